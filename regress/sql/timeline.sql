--
-- What a device does for a query: timelines, its cache, and the techniques that can be switched off.
--
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
CREATE SCHEMA timeline;
SET search_path = timeline, public;
-- Small queries are expected to be faster on the CPU.
SET pystachio.engine_choice = gpu;
CREATE SERVER timeline_emulated FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB');
CREATE FUNCTION foreign_table(name text, path text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE FOREIGN TABLE %I (id integer, a integer, b bigint, c text) SERVER timeline_emulated OPTIONS (path %L)', name, path);
END $$;
SELECT foreign_table('t1', :'data' || '/t1.parquet'), foreign_table('t2', :'data' || '/t2.parquet');

-- Nothing is noted unless it is asked for, and an engine that does not run keeps nothing.
SELECT count(*) FROM pystachio.timeline(server => 'timeline_emulated');
SELECT pystachio.timeline_trace(server => 'timeline_emulated') IS NULL AS no_trace;
SELECT sum(a), count(*) FROM t1;
SELECT count(*) FROM pystachio.timeline_queries('timeline_emulated');

-- The first query has read; the second one found the column chunks on the device.
SET pystachio.timeline = on;
SELECT count(*), count(t1.b) FROM t1 JOIN t2 USING (id);
SELECT activity, bool_and(bytes > 0) AS bytes FROM pystachio.timeline(server => 'timeline_emulated')
WHERE activity IN ('read', 'upload') OR name IN ('decode_indexes', 'convert_values', 'match_rows') GROUP BY activity ORDER BY activity;
SELECT bool_and(start_ms >= 0 AND elapsed_ms >= 0) AS times, bool_or(lane > 0) AS streams, count(DISTINCT query) AS queries,
  bool_or(name ~ '^insert_') AS builds
FROM pystachio.timeline(server => 'timeline_emulated');
SELECT count(*), count(t1.b) FROM t1 JOIN t2 USING (id);
SELECT count(*) FILTER (WHERE activity = 'read') AS reads, count(*) FILTER (WHERE activity = 'kernel') > 0 AS kernels
FROM pystachio.timeline(server => 'timeline_emulated');
-- The second query that reads a column has it packed; a third one finds it so.
SELECT count(*), count(t1.b) FROM t1 JOIN t2 USING (id);
SELECT server, bool_and(memory > 0) AS memory, sum(hits) > 0 AS hits FROM pystachio.cache
WHERE server = 'timeline_emulated' AND path ~ '/t[12].parquet' GROUP BY server;
SET pystachio.gpu_disable = 'cache';
SELECT count(*), count(t1.b) FROM t1 JOIN t2 USING (id);
SELECT count(*) FILTER (WHERE activity = 'read') > 0 AS reads FROM pystachio.timeline(server => 'timeline_emulated');
RESET pystachio.gpu_disable;

SELECT device_memory, device_memory_used > 0 AS used, device_memory_peak >= device_memory_used AS peak,
  device_memory_fragmented >= 0 AS fragmented FROM pystachio.engines WHERE server = 'timeline_emulated';
SELECT DISTINCT tier, hits > 0 AS hits, misses > 0 AS misses FROM pystachio.cache WHERE server = 'timeline_emulated' AND tier = 'device' ORDER BY tier, hits;

-- A trace as browsers show it, and queries by number.
SELECT trace ->> 'displayTimeUnit' AS unit, bool_or(event ->> 'ph' = 'X') AS events, bool_or(event -> 'args' ->> 'name' = 'storage') AS storage
FROM (SELECT pystachio.timeline_trace(server => 'timeline_emulated')::jsonb AS trace) traces, jsonb_array_elements(trace -> 'traceEvents') event
GROUP BY 1;
SELECT count(*), bool_and(elapsed_ms > 0 AND activities > 0 AND started <= clock_timestamp()) AS whole
FROM pystachio.timeline_queries('timeline_emulated');
SELECT count(*) > 0 AS found
FROM pystachio.timeline((SELECT min(query) FROM pystachio.timeline_queries('timeline_emulated')), 'timeline_emulated');
SELECT * FROM pystachio.timeline(1000000, 'timeline_emulated');

-- All ranks, each in its own process, on one clock. The first reads a file without rows and shares of the others.
CREATE SERVER timeline_ranks FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', ranks '2', rank_policy 'all');
SELECT format('CREATE FOREIGN TABLE on_ranks (id integer, a integer, b bigint, c text) SERVER timeline_ranks OPTIONS (paths %L)',
  ARRAY[:'data' || '/t{rank}.parquet', :'data' || '/t2.parquet', :'data' || '/t3.parquet']::text)
\gexec
SELECT count(*), count(b), count(c) FROM on_ranks;
SELECT rank, bool_or(activity = 'read') AS reads, bool_or(activity = 'kernel') AS kernels, bool_and(start_ms >= 0) AS times
FROM pystachio.timeline(server => 'timeline_ranks') GROUP BY rank ORDER BY rank;
SELECT event ->> 'pid' AS process, min(event -> 'args' ->> 'name') FILTER (WHERE event ->> 'name' = 'process_name') AS name,
  bool_or(event ->> 'ph' = 'X') AS events
FROM jsonb_array_elements(pystachio.timeline_trace(server => 'timeline_ranks')::jsonb -> 'traceEvents') event GROUP BY 1 ORDER BY 1;
SELECT rank, bool_and(memory > 0) AS memory, count(DISTINCT path) AS files FROM pystachio.cache
WHERE server = 'timeline_ranks' AND tier = 'device' GROUP BY rank ORDER BY rank;
DO $$
BEGIN
  -- A rank tells of itself now and then.
  FOR attempt IN 1..100 LOOP
    EXIT WHEN (SELECT bool_and(storage_paths <> '{}') FROM pystachio.engines WHERE server = 'timeline_ranks');
    PERFORM pg_sleep(0.1);
  END LOOP;
END $$;
SELECT rank, storage_paths <> '{}' AS paths FROM pystachio.engines WHERE server = 'timeline_ranks' ORDER BY rank;

-- The same rows without each technique.
SET pystachio.timeline = off;
CREATE FUNCTION answer() RETURNS text LANGUAGE sql AS $$
  SELECT count(*) || ' ' || sum(t1.a) || ' ' || min(t2.c) FROM t1 JOIN t2 USING (id) WHERE t1.id > 10
$$;
SELECT answer() AS expected \gset
SELECT set_config('pystachio.gpu_disable', name, false) AS without, answer() = :'expected' AS same
FROM unnest('{cache,concurrent_builds,dictionary_codes,exchange_broadcast_choice,exchange_filters,exchange_gathering,exchange_groups,exchange_heavy_keys,exchange_overlap,exchange_senders,nvcomp,page_skipping,reader_combining,regulation,runtime_filters,segments}'::text[]) name;
RESET pystachio.gpu_disable;

-- EXPLAIN ANALYZE shows what the device did, and notes it.
CREATE FUNCTION explained(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF) ' || query LOOP RETURN NEXT line; END LOOP;
END $$;
SELECT bool_or(line ~ 'Device Time: kernels [0-9.]+ ms copies [0-9.]+ ms') AS device, bool_or(line ~ 'bytes_cached=[1-9]') AS cached,
  bool_or(line ~ 'bytes_decoded=[1-9]') AS decoded, bool_or(line ~ 'Storage Time|T_min') AS storage
FROM explained('SELECT max(b) FROM t1') line;
-- A join passes the range of its build side's keys to the scan of its probe side.
SELECT bool_or(line ~ '(bitmap|bloom)_rows_tested=[1-9]') AS tested,
  bool_or(line ~ '(bitmap|bloom)_rows_dropped=[1-9]|row_groups_pruned_by_joins=[1-9]') AS dropped
FROM explained('SELECT count(*), sum(t1.b) FROM t1 JOIN (SELECT DISTINCT id FROM t2 WHERE a < 3) few USING (id)') line;
SET pystachio.gpu_disable = 'runtime_filters';
SELECT bool_or(line ~ '_rows_tested|pruned_by_joins') AS tested
FROM explained('SELECT count(*), sum(t1.b) FROM t1 JOIN (SELECT DISTINCT id FROM t2 WHERE a < 3) few USING (id)') line;
RESET pystachio.gpu_disable;
-- Conditions on text are evaluated once for each entry of a dictionary.
SELECT bool_or(line ~ 'dictionary_entries_tested=[1-9]') AS entries, bool_or(line ~ 'dictionary_rows_tested=[1-9]') AS rows
FROM explained($$SELECT count(*) FROM t1 WHERE c LIKE '%a%' OR c IS NULL$$) line;
SET pystachio.gpu_disable = 'dictionary_codes';
SELECT bool_or(line ~ 'dictionary_') AS entries
FROM explained($$SELECT count(*) FROM t1 WHERE c LIKE '%a%' OR c IS NULL$$) line;
SET pystachio.gpu_disable = 'cache';
SET pystachio.storage_bandwidth = 1000;
SELECT bool_or(line ~ 'Storage Time: [0-9.]+ ms at [0-9.]+ GB/s, of which [0-9.]+ ms with the device at work') AS storage,
  bool_or(line ~ 'T_min: [0-9.]+ ms at 1.00 GB/s, and this was [0-9.]+ times it') AS t_min
FROM explained('SELECT sum(b) FROM t1') line;
SET pystachio.gpu_storage = direct;
SELECT bool_or(line ~ 'Storage Path: (direct|page cache)') AS path, bool_or(line ~ 'rows=1') AS rows
FROM explained('SELECT sum(b) FROM t1') line;
SELECT answer() = :'expected' AS same;
SET pystachio.gpu_storage = sideways;
-- An engine without a GPU reports none.
CREATE SERVER timeline_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '1');
SELECT format('CREATE FOREIGN TABLE on_cpu (id integer) SERVER timeline_cpu OPTIONS (path %L)', :'data' || '/t1.parquet') \gexec
SELECT count(*) FROM on_cpu;
SET client_min_messages = notice;
SELECT count(*) FROM pystachio.timeline(server => 'timeline_cpu');
SELECT pystachio.timeline_trace(server => 'timeline_cpu') IS NULL AS no_trace;
SET client_min_messages = error;
DROP SERVER timeline_cpu, timeline_emulated, timeline_ranks CASCADE;
DROP SCHEMA timeline CASCADE;
