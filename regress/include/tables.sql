\set ECHO none
-- The tables of regress/data: foreign in schema pq, heap copies in schema heap.
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS pq CASCADE;
DROP SCHEMA IF EXISTS heap CASCADE;
CREATE SCHEMA pq;
CREATE SCHEMA heap;
SELECT format('CREATE FOREIGN TABLE pq.%s (id integer NOT NULL, a integer, b bigint, i smallint, c text, s char(5), d date, '
  'n numeric(15,2), m numeric(12,4), f double precision, k boolean, ts timestamp) '
  'SERVER pystachio OPTIONS (path %L)', t, :'data' || '/' || t || '.parquet')
FROM unnest('{t0,t1,t2,t3}'::text[]) t
\gexec
SELECT format('CREATE TABLE heap.%s AS SELECT * FROM pq.%1$s', t) FROM unnest('{t0,t1,t2,t3}'::text[]) t
\gexec
ANALYZE;
-- What the foreign scans of a query do, where versions of PostgreSQL plan differently around them.
CREATE OR REPLACE FUNCTION public.pushed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
BEGIN
  EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) ' || query INTO plan;
  RETURN QUERY SELECT line FROM jsonb_path_query(plan, 'strict $.**') scan,
    LATERAL (SELECT jsonb_array_elements_text(scan -> 'Engine Plan')
             UNION ALL SELECT '  not pushed down: ' || jsonb_array_elements_text(scan -> 'Not Pushed Down')) lines (line)
  WHERE scan ? 'Engine Plan';
END $$;
SET client_min_messages = notice;
SET search_path = pq, public;
\set ECHO all
