\set ECHO none
-- Lines of a query's EXPLAIN (ANALYZE), and on which engine it runs.
CREATE OR REPLACE FUNCTION public.analyzed(query text, pattern text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    IF line ~ pattern THEN RETURN NEXT trim(line); END IF;
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION public.ran_on(query text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT public.analyzed(query, '^ *Ran On') $$;
\set ECHO all
