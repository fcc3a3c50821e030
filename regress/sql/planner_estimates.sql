--
-- Row estimates from the statistics in footers. Only roles that may read the column get them.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SET client_min_messages = warning;
CREATE FUNCTION public.expected_rows(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
  RETURN plan -> 0 -> 'Plan' -> 'Plan Rows';
END $$;
CREATE ROLE regress_reader;
CREATE ROLE regress_stranger;
GRANT USAGE ON SCHEMA pq TO regress_reader, regress_stranger;
GRANT SELECT (id, n) ON pq.t1 TO regress_reader;
CREATE VIEW public.all_rows AS SELECT id, n FROM pq.t1;
CREATE VIEW public.some_rows WITH (security_barrier) AS SELECT id, n FROM pq.t1 WHERE id > 10;
GRANT SELECT ON public.all_rows, public.some_rows TO regress_stranger;
CREATE TABLE public.parted (id integer NOT NULL, n numeric(15,2)) PARTITION BY RANGE (id);
SELECT format('CREATE FOREIGN TABLE public.parted_all PARTITION OF public.parted FOR VALUES FROM (1) TO (1000) '
  'SERVER pystachio OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
GRANT SELECT ON public.parted TO regress_stranger;
SET client_min_messages = notice;
-- Comparing numerics is not leakproof. Beyond the greatest value one row is expected, and of an unknown column a third.
SELECT public.expected_rows('SELECT id FROM pq.t1') AS all_rows, public.expected_rows('SELECT id FROM pq.t1 WHERE n > 1e12') AS owner;
SET ROLE regress_reader;
SELECT public.expected_rows('SELECT id FROM pq.t1 WHERE n > 1e12') AS with_column;
RESET ROLE;
REVOKE SELECT ON pq.t1 FROM regress_reader;
GRANT SELECT ON public.parted_all TO regress_reader;
SET ROLE regress_stranger;
-- Through a view the rights are its owner's, of a partition those on the table that is named, and a barrier hides values.
SELECT public.expected_rows('SELECT id FROM public.all_rows WHERE n > 1e12') AS view, public.expected_rows('SELECT id FROM public.parted WHERE n > 1e12') AS partition,
  public.expected_rows('SELECT id FROM public.some_rows WHERE n > 1e12') > 1 AS barrier_hides;
RESET ROLE;
-- How many values a column has that was never analyzed, by the dictionaries in files: few, many, and one for each row.
SET client_min_messages = warning;
DO $$ BEGIN
  PERFORM pystachio.write_parquet('SELECT i % 7 * 1000000 AS few, ''k'' || (i % 1000) AS many, md5(i::text) AS each FROM generate_series(1, 100000) i',
    current_setting('data_directory') || '/counted.parquet', overwrite => true);
  EXECUTE format('CREATE FOREIGN TABLE public.counted (few integer, many text, each text) SERVER pystachio OPTIONS (path %L)', current_setting('data_directory') || '/counted.parquet');
END $$;
SET client_min_messages = notice;
SELECT public.expected_rows('SELECT few FROM public.counted GROUP BY 1') AS few, public.expected_rows('SELECT many FROM public.counted GROUP BY 1') AS many,
  public.expected_rows('SELECT each FROM public.counted GROUP BY 1') >= 20000 AS each;
SELECT public.expected_rows('SELECT FROM public.counted a JOIN public.counted b USING (each)') <= 500000 AS joined;
DROP FOREIGN TABLE public.counted;
-- Extended statistics tell that two columns go together.
SET client_min_messages = warning;
SELECT format('CREATE FOREIGN TABLE public.twice (a integer, b integer OPTIONS (column_name %L)) SERVER pystachio OPTIONS (path %L)', 'a', :'data' || '/t1.parquet')
\gexec
ANALYZE public.twice;
SET client_min_messages = notice;
SELECT mode() WITHIN GROUP (ORDER BY a) AS common FROM heap.t1 \gset
SELECT public.expected_rows(format('SELECT FROM public.twice WHERE a = %1$s AND b = %1$s', :common))
  < public.expected_rows(format('SELECT FROM public.twice WHERE a = %s', :common)) AS apart;
CREATE STATISTICS public.together (dependencies) ON a, b FROM public.twice;
ANALYZE public.twice;
SELECT public.expected_rows(format('SELECT FROM public.twice WHERE a = %1$s AND b = %1$s', :common))
  = public.expected_rows(format('SELECT FROM public.twice WHERE a = %s', :common)) AS together;
DROP FOREIGN TABLE public.twice;
DROP VIEW public.all_rows, public.some_rows;
DROP TABLE public.parted;
DROP FUNCTION public.expected_rows;
DROP OWNED BY regress_reader, regress_stranger;
DROP ROLE regress_reader, regress_stranger;
