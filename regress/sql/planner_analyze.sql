--
-- What ANALYZE finds: how many values columns have, where its sample is a small part of the table, and which columns go together.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
SELECT count(*) FROM pystachio.tpch_generate(:'scratch' || '/planner_analyze', 0.01, ARRAY['lineitem'], overwrite => true, row_group_rows => 1024);
CREATE SCHEMA planner_analyze;
SELECT :'scratch' || '/planner_analyze' AS folder \gset
IMPORT FOREIGN SCHEMA files FROM SERVER pystachio INTO planner_analyze OPTIONS (path :'folder');
SET search_path = planner_analyze, public;
CREATE TABLE truth AS SELECT count(*) AS row_count, count(DISTINCT l_orderkey) AS l_orderkey, count(DISTINCT l_partkey) AS l_partkey,
  count(DISTINCT l_suppkey) AS l_suppkey, count(DISTINCT l_linenumber) AS l_linenumber, count(DISTINCT l_shipmode) AS l_shipmode FROM lineitem;
-- By how much what pg_stats shows is too high or too low, in percent.
CREATE FUNCTION off_by(column_name text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
  truth numeric; found numeric;
BEGIN
  EXECUTE format('SELECT %I FROM truth', column_name) INTO truth;
  SELECT CASE WHEN n_distinct < 0 THEN -n_distinct * row_count ELSE n_distinct END INTO found
  FROM pg_stats, truth WHERE schemaname = 'planner_analyze' AND tablename = 'lineitem' AND attname = column_name;
  RETURN round(100 * abs(found / truth - 1), 1);
END $$;

-- Half of the rows, of all row groups: the values are counted. Orders are neighbours.
ANALYZE lineitem;
SELECT off_by('l_orderkey') AS orders, off_by('l_partkey') AS parts, off_by('l_suppkey') AS suppliers, off_by('l_linenumber') AS lines, off_by('l_shipmode') AS modes;
SELECT n_distinct BETWEEN -0.26 AND -0.24 AS is_quarter, correlation > 0.99 AS in_order FROM pg_stats
WHERE schemaname = 'planner_analyze' AND tablename = 'lineitem' AND attname = 'l_orderkey';

-- 300 rows, of 8 row groups of 61.
SET default_statistics_target = 1;
ANALYZE lineitem;
SELECT off_by('l_orderkey') < 8 AS orders, off_by('l_partkey') < 5 AS parts, off_by('l_suppkey') AS suppliers, off_by('l_linenumber') AS lines, off_by('l_shipmode') AS modes;

-- In a transaction the next command sees it, and a rollback takes it back.
SELECT off_by('l_orderkey') AS before \gset
BEGIN;
RESET default_statistics_target;
ANALYZE lineitem (l_orderkey);
SELECT off_by('l_orderkey') AS orders;
ROLLBACK;
SELECT off_by('l_orderkey') = :before AS as_before;

-- A command for several tables commits after each of them.
RESET default_statistics_target;
ANALYZE lineitem, truth;
SELECT off_by('l_orderkey') AS orders;

-- Extended statistics: conditions on columns that go together, and their groups.
CREATE FUNCTION expected_rows(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
  RETURN plan -> 0 -> 'Plan' -> 'Plan Rows';
END $$;
CREATE FUNCTION is_near(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  truth numeric;
BEGIN
  EXECUTE 'SELECT count(*) FROM lineitem WHERE ' || condition INTO truth;
  RETURN expected_rows('SELECT FROM lineitem WHERE ' || condition) BETWEEN 0.8 * truth AND 1.25 * truth;
END $$;
PREPARE estimates AS
SELECT is_near('l_returnflag = ''A'' AND l_linestatus = ''F''') AS returned, is_near('l_returnflag = ''N'' AND l_linestatus = ''F''') AS late,
  expected_rows('SELECT FROM lineitem GROUP BY l_returnflag, l_linestatus') AS groups,
  expected_rows('SELECT count(*) FROM lineitem WHERE l_shipmode = ''AIR'' GROUP BY l_linestatus, l_returnflag') AS of_some,
  expected_rows('SELECT DISTINCT l_returnflag, l_linestatus FROM lineitem') AS pairs;
EXECUTE estimates;
CREATE STATISTICS flags (mcv, ndistinct) ON l_returnflag, l_linestatus FROM lineitem;
ANALYZE lineitem;
EXECUTE estimates;

-- What the user says is preferred.
ALTER FOREIGN TABLE lineitem ALTER COLUMN l_orderkey SET (n_distinct = 7);
ANALYZE lineitem;
SELECT n_distinct FROM pg_stats WHERE schemaname = 'planner_analyze' AND tablename = 'lineitem' AND attname = 'l_orderkey';
DROP SCHEMA planner_analyze CASCADE;
