\set ECHO none
-- Runs a query over the foreign tables and over their heap copies, as it stands, and says whether both give the same
-- rows, or errors of the same kind.
SET client_min_messages = warning;
CREATE OR REPLACE FUNCTION public.rows_over(tables text, query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  found text[] := '{}';
  one record;
BEGIN
  PERFORM set_config('search_path', tables || ', public', true);
  FOR one IN EXECUTE query LOOP
    found := found || one::text;
  END LOOP;
  RETURN (SELECT coalesce(array_agg(part ORDER BY part COLLATE "C"), '{}') FROM unnest(found) part);
EXCEPTION WHEN OTHERS THEN
  RETURN ARRAY['error', SQLSTATE, SQLERRM];
END $$;
CREATE OR REPLACE FUNCTION public.same(query text) RETURNS text LANGUAGE plpgsql SET search_path = public AS $$
DECLARE
  ours text[] := public.rows_over('pq', query);
  theirs text[] := public.rows_over('heap', query);
BEGIN
  IF ours = theirs THEN
    RETURN CASE WHEN ours[1] = 'error' THEN 'the same error ' || ours[2] ELSE 'the same ' || cardinality(ours) || ' rows' END;
  END IF;
  RETURN format('DIFFERENT: %s rows %s, over heap tables %s rows %s', cardinality(ours), ours[1:5], cardinality(theirs), theirs[1:5]);
END $$;
SET client_min_messages = notice;
\set ECHO all
