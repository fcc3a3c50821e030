--
-- Keys that many rows of a join have, on several ranks: these rows stay where they are, and what they match goes to all ranks.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
-- Small queries are expected to be faster on the CPU.
SET pystachio.engine_choice = gpu;
SELECT sum(row_count) > 70000 AS made FROM pystachio.tpch_generate(:'scratch' || '/exchange_heavy', 0.01, ARRAY['lineitem', 'orders'], overwrite => true);
CREATE SERVER heavy FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', ranks '4', rank_policy 'all', rank_processes 'one');
CREATE SCHEMA heavy;
CREATE SCHEMA heavy_heap;
SELECT :'scratch' || '/exchange_heavy' AS folder \gset
IMPORT FOREIGN SCHEMA files FROM SERVER heavy INTO heavy OPTIONS (path :'folder');
CREATE TABLE heavy_heap.lineitem AS SELECT * FROM heavy.lineitem;
CREATE TABLE heavy_heap.orders AS SELECT * FROM heavy.orders;
ANALYZE heavy_heap.lineitem, heavy_heap.orders;
-- Both sides are expected to have many rows: PostgreSQL takes such a sum for one of 200. Joins stay as they are written.
SET join_collapse_limit = 1;
-- What turns out small would be broadcast.
SET pystachio.gpu_exchange_broadcast_choice = off;
\set joined ' FROM (@lineitem l JOIN @orders o ON l.l_orderkey + 0 = o.o_orderkey + 0) %s JOIN (@orders a JOIN @orders b ON a.o_orderkey + 0 = b.o_orderkey + 0 JOIN @orders c ON a.o_orderkey + 0 = c.o_orderkey + 0) ON l.l_linenumber = a.o_orderkey GROUP BY l.l_shipmode'
\set query 'SELECT l.l_shipmode, count(*) AS n, count(a.o_orderkey) AS matched, sum(l.l_quantity) AS quantity, max(o.o_comment) AS comment' :joined

-- The lines of a plan that speak of heavy keys.
CREATE FUNCTION split(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN ' || replace(query, '@', 'heavy.') LOOP
    IF line ~ 'heavy keys split' THEN RETURN NEXT substring(line FROM 'by .*heavy keys split: \d+'); END IF;
  END LOOP;
END $$;
-- Whether rows stayed because of their keys, and whether a rank had clearly more rows than others after a shuffle of many.
CREATE FUNCTION moved(query text, OUT heavy boolean, OUT skewed boolean) LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  heavy := false;
  skewed := false;
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || replace(query, '@', 'heavy.') LOOP
    IF substring(line FROM 'Shuffle \d+.*: rows=(\d+)')::bigint > 50000 THEN
      heavy := heavy OR line ~ ' heavy=\d+ ';
      skewed := skewed OR substring(line FROM 'skew=([0-9.]+)')::float8 > 1.3;
    END IF;
  END LOOP;
END $$;
-- How many rows differ from those of heap tables.
CREATE FUNCTION differing(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE differing bigint; heap text := '(' || replace(query, '@', 'heavy_heap.') || ')';
BEGIN
  EXECUTE 'CREATE TEMPORARY TABLE found ON COMMIT DROP AS ' || replace(query, '@', 'heavy.');
  EXECUTE format('SELECT count(*) FROM ((TABLE found EXCEPT ALL %1$s) UNION ALL (%1$s EXCEPT ALL TABLE found)) rows', heap) INTO differing;
  DROP TABLE found;
  RETURN differing;
END $$;
SELECT format(:'query', 'LEFT') AS left_query, format(:'query', 'INNER') AS inner_query \gset

-- Nothing is known before ANALYZE.
SELECT * FROM split(:'left_query');
ANALYZE heavy.lineitem, heavy.orders;
-- Every row of the larger side has one of seven keys, six of which have more than a sixteenth of the rows.
SELECT * FROM split(:'left_query');
SELECT * FROM split(:'inner_query');
SELECT * FROM moved(:'left_query');
SELECT differing(:'left_query'), differing(:'inner_query');
SET pystachio.gpu_exchange_heavy_keys = off;
SELECT * FROM split(:'left_query');
SELECT * FROM moved(:'left_query');
SELECT differing(:'left_query');
RESET pystachio.gpu_exchange_heavy_keys;

-- Common values are in plans of roles to which pg_stats shows them.
CREATE ROLE heavy_reader;
GRANT USAGE ON SCHEMA heavy TO heavy_reader;
GRANT SELECT ON heavy.orders TO heavy_reader;
CREATE VIEW heavy.items AS SELECT * FROM heavy.lineitem;
GRANT SELECT ON heavy.items TO heavy_reader;
SET ROLE heavy_reader;
SELECT count(*) AS shown FROM pg_stats WHERE schemaname = 'heavy' AND tablename = 'lineitem';
SELECT * FROM split(replace(:'left_query', '@lineitem', '@items'));
RESET ROLE;
GRANT SELECT (l_linenumber) ON heavy.lineitem TO heavy_reader;
SET ROLE heavy_reader;
SELECT attname AS shown FROM pg_stats WHERE schemaname = 'heavy' AND tablename = 'lineitem';
SELECT * FROM split(replace(:'left_query', '@lineitem', '@items'));
RESET ROLE;
SELECT * FROM split(replace(:'left_query', '@lineitem', '@items'));

DROP FUNCTION split, moved, differing;
DROP SERVER heavy CASCADE;
DROP SCHEMA heavy, heavy_heap CASCADE;
DROP ROLE heavy_reader;
