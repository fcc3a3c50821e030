\set ECHO none
-- On which engine a query runs, by EXPLAIN (ANALYZE).
CREATE FUNCTION ran_on(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    IF line ~ '^ *Ran On' THEN RETURN NEXT trim(line); END IF;
  END LOOP;
END $$;
\set ECHO all
