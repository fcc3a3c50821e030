\set ECHO none
-- How many rows of a query over the tables of each engine, which are in the schemas cpu and device and stand as @, differ from those of
-- a query over heap tables.
CREATE OR REPLACE FUNCTION public.differing_from(query text, over_heap text) RETURNS TABLE (engine text, different bigint) LANGUAGE plpgsql AS $$
BEGIN
  FOR engine IN VALUES ('cpu'), ('device') LOOP
    EXECUTE format('WITH ours AS MATERIALIZED (%s), heap AS MATERIALIZED (%s) SELECT count(*) FROM ((TABLE ours EXCEPT ALL TABLE heap) UNION ALL (TABLE heap EXCEPT ALL TABLE ours)) d',
      replace(query, '@', engine || '.'), over_heap) INTO different;
    RETURN NEXT;
  END LOOP;
END $$;
\set ECHO all
