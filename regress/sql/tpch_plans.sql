--
-- The 22 TPC-H queries, each one Foreign Scan, with the tree that the engine runs.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA tpch_plans;
SELECT count(*), sum(row_count) FROM pystachio.tpch_generate(:'scratch' || '/tpch', 0.001, overwrite => true);
SELECT :'scratch' || '/tpch' AS folder \gset
IMPORT FOREIGN SCHEMA files FROM SERVER pystachio INTO tpch_plans OPTIONS (path :'folder');
SET search_path = tpch_plans, public;
ANALYZE region, nation, supplier, part, partsupp, customer, orders, lineitem;
SELECT relname, reltuples FROM pg_class WHERE relnamespace = 'tpch_plans'::regnamespace ORDER BY 1;
CREATE FUNCTION tpch_plans.scans(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON, COSTS OFF) ' || query INTO plan;
  RETURN (SELECT string_agg(m[1], ', ') FROM regexp_matches(plan::text, '"Node Type": "([^"]+)"', 'g') m);
END $$;
SELECT n, tpch_plans.scans(pystachio.tpch_query(n)) AS nodes FROM generate_series(1, 22) n;
SELECT pystachio.tpch_query(0);
SELECT pystachio.tpch_query(23);
SELECT pystachio.tpch_query(NULL) IS NULL AS of_null;
SET pystachio.strict = on;
SELECT pystachio.tpch_query(6) AS query
\gset
:query;
DROP SCHEMA tpch_plans CASCADE;
