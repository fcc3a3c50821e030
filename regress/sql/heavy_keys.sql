--
-- Keys that many rows of a join have: if they are known, their rows stay on the ranks where they are.
-- Plans only: tests of the engine's run such joins.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA heavy_keys;
SET search_path = heavy_keys, public;
SET pystachio.engine_choice = gpu;
SET work_mem = '1GB';
SET client_min_messages = error;
SELECT sum(row_count) > 0 AS generated
FROM pystachio.tpch_generate(:'scratch' || '/heavy_keys', 0.1, ARRAY['orders', 'lineitem'], overwrite => true) \gset
SET client_min_messages = warning;
CREATE SERVER heavy_keys FOREIGN DATA WRAPPER pystachio
  OPTIONS (device 'emulated', memory '1GB', ranks '4', rank_policy 'all', rank_processes 'one');
-- The same file some times: sides that are worth a shuffle.
SELECT array_fill(:'scratch' || '/heavy_keys/orders.parquet', ARRAY[30])::text AS orders,
  array_fill(:'scratch' || '/heavy_keys/lineitem.parquet', ARRAY[12])::text AS lineitem \gset
CREATE FOREIGN TABLE orders (
  o_orderstatus text NOT NULL, o_totalprice numeric(15,2) NOT NULL, o_orderpriority text NOT NULL, o_clerk text NOT NULL, o_comment text NOT NULL
) SERVER heavy_keys OPTIONS (paths :'orders');
CREATE FOREIGN TABLE lineitem (
  l_extendedprice numeric(15,2) NOT NULL, l_shipinstruct text NOT NULL, l_shipmode text NOT NULL, l_comment text NOT NULL
) SERVER heavy_keys OPTIONS (paths :'lineitem');
CREATE VIEW joined AS
SELECT count(*), sum(length(l_comment)) AS comment, sum(length(l_shipinstruct)) AS instruct, sum(l_extendedprice) AS price,
  count(o_comment) AS comments, count(o_clerk) AS clerks, count(o_orderpriority) AS priorities, count(o_orderstatus) AS statuses, sum(o_totalprice) AS total
FROM lineitem LEFT JOIN orders ON l_shipmode = o_comment;
CREATE FUNCTION exchanges(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE) ' || query LOOP
    IF line ~ '(Shuffle|Broadcast) \d' THEN
      RETURN NEXT substring(line FROM '(?:Shuffle|Broadcast) \d') || coalesce(': ' || substring(line FROM 'heavy keys split: \d+'), '');
    END IF;
  END LOOP;
END $$;
-- All seven ship modes: each has more than a quarter of a rank's even share, by a sample of row groups.
SELECT exchanges('SELECT * FROM joined');
-- Statistics are preferred, whatever they tell: here, that four of the values are rare.
ANALYZE lineitem;
ANALYZE orders;
UPDATE pg_statistic SET stanumbers1 = ARRAY[0.14, 0.14, 0.14, 0.01, 0.01, 0.01, 0.01]
WHERE starelid = 'lineitem'::regclass AND staattnum = (SELECT attnum FROM pg_attribute WHERE attrelid = 'lineitem'::regclass AND attname = 'l_shipmode');
SELECT exchanges('SELECT * FROM joined');
SET pystachio.gpu_disable = 'exchange_heavy_keys';
SELECT exchanges('SELECT * FROM joined');
RESET pystachio.gpu_disable;
-- What statistics may not tell a role the engine counts for itself: no value leaves it.
CREATE ROLE heavy_keys_reader;
GRANT USAGE ON SCHEMA heavy_keys TO heavy_keys_reader;
GRANT SELECT ON joined TO heavy_keys_reader;
SET ROLE heavy_keys_reader;
SELECT exchanges('SELECT * FROM joined');
RESET ROLE;
SET client_min_messages = error;
DROP SERVER heavy_keys CASCADE;
DROP SCHEMA heavy_keys CASCADE;
DROP ROLE heavy_keys_reader;
