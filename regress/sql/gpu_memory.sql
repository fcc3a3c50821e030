--
-- What a GPU engine reads, decodes and keeps: it skips pages without wanted rows, and column chunks leave the device.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA gpu_memory;
SET search_path = gpu_memory, public;
-- Small queries are expected to be faster on the CPU.
SET pystachio.engine_choice = gpu;
SELECT row_count FROM pystachio.tpch_generate(:'scratch' || '/gpu_memory', 0.02, ARRAY['orders'], overwrite => true, layout => 'gpu');
CREATE SERVER memory_large FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB');
SELECT :'scratch' || '/gpu_memory' AS folder \gset
IMPORT FOREIGN SCHEMA files FROM SERVER memory_large INTO gpu_memory OPTIONS (path :'folder');
CREATE FUNCTION counted(query text, counter text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE line text; total bigint := 0;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF) ' || query LOOP
    total := total + coalesce(substring(line FROM '\m' || counter || '=(\d+)')::bigint, 0);
  END LOOP;
  RETURN total;
END $$;

-- Keys ascend, and page indexes know it: pages of all columns are neither read nor decoded.
CREATE VIEW few AS SELECT count(*), sum(o_totalprice), min(o_comment) FROM orders WHERE o_orderkey BETWEEN 2000 AND 2200;
SET pystachio.gpu_disable = 'cache';
SELECT * FROM few;
SELECT counted('SELECT * FROM few', 'pages_skipped') > 10 * counted('SELECT * FROM few', 'pages_decoded') AS few_pages;
SELECT counted('SELECT * FROM few', 'bytes_read') AS bytes_few \gset
SET pystachio.gpu_disable = 'cache, page_skipping';
SELECT * FROM few;
SELECT counted('SELECT * FROM few', 'pages_skipped') AS pages_skipped, counted('SELECT * FROM few', 'bytes_read') > 5 * :bytes_few AS reads_more;
SET pystachio.gpu_disable = 'cache';
-- Page indexes do not help here: the filter's column is decoded, then those pages of the others that still have rows.
CREATE VIEW one AS SELECT o_totalprice, o_comment FROM orders WHERE o_totalprice = (SELECT max(o_totalprice) FROM orders);
SELECT * FROM one;
SELECT counted('SELECT o_comment FROM orders WHERE o_totalprice > 440000', 'pages_skipped') > 0 AS skips;
SET pystachio.gpu_disable = 'cache, page_skipping';
SELECT * FROM one;
RESET pystachio.gpu_disable;

-- What does not fit into the device's memory comes back from the host's, and is not read again.
SELECT row_count FROM pystachio.tpch_generate(:'scratch' || '/gpu_memory_tiers', 0.06, ARRAY['orders'], overwrite => true, row_group_rows => 3000, compression => 'none');
CREATE SERVER memory_small FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', device_memory '4MB', pinned_cache '64MB');
CREATE SCHEMA on_small;
SELECT :'scratch' || '/gpu_memory_tiers' AS folder \gset
IMPORT FOREIGN SCHEMA files FROM SERVER memory_small INTO on_small OPTIONS (path :'folder');
CREATE VIEW everything AS
SELECT sum(o_orderkey) AS a, sum(o_custkey) AS b, sum(o_totalprice) AS c, min(o_orderdate) AS d, max(o_orderpriority) AS e, max(o_clerk) AS f, max(o_comment) AS g
FROM on_small.orders;
SELECT * FROM everything;
SELECT * FROM everything;
SELECT counted('SELECT * FROM everything', 'bytes_pinned') > 0 AS pinned, counted('SELECT * FROM everything', 'bytes_read') AS bytes_read;
SELECT DISTINCT tier, memory > 0 AS memory, hits > 0 AS hits FROM pystachio.cache WHERE server = 'memory_small' AND tier = 'pinned' AND hits > 0;
-- Without it, it is read anew.
ALTER SERVER memory_small OPTIONS (SET pinned_cache '0');
SELECT * FROM everything;
SELECT counted('SELECT * FROM everything', 'bytes_pinned') AS bytes_pinned, counted('SELECT * FROM everything', 'bytes_read') > 0 AS reads;
SELECT count(*) FROM pystachio.cache WHERE server = 'memory_small' AND tier = 'pinned';

SET client_min_messages = error;
DROP SERVER memory_large, memory_small CASCADE;
DROP SCHEMA gpu_memory, on_small CASCADE;
