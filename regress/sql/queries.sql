--
-- What runs, what ran last, and what it has cost: pystachio.queries and pystachio.statistics.
--
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
CREATE SCHEMA watched;
SET search_path = watched, public;
SET compute_query_id = on;
CREATE SERVER watched FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
CREATE SERVER watched_gpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SELECT format('CREATE FOREIGN TABLE %I (id integer, a integer, b bigint, c text) SERVER %I OPTIONS (path %L)', name, server, :'data' || '/t1.parquet')
FROM (VALUES ('t1', 'watched'), ('g1', 'watched_gpu')) tables (name, server)
\gexec
SELECT format('CREATE FOREIGN TABLE refused (id integer, v integer[]) SERVER watched_gpu OPTIONS (path %L)', :'data' || '/edge_int4_array.parquet')
\gexec
-- Waits until the last query of a server is in a state: an engine notices the end of its reader a moment later.
CREATE FUNCTION wait_state(wanted text, watched text DEFAULT 'watched') RETURNS text LANGUAGE plpgsql AS $$
DECLARE found text;
BEGIN
  FOR attempt IN 1..1000 LOOP
    found = (SELECT concat_ws(', ', state, waiting_for) FROM pystachio.queries WHERE server = watched ORDER BY query DESC LIMIT 1);
    EXIT WHEN found = wanted;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN found;
END $$;

-- An engine that does not run has run nothing, and is not started for it.
SELECT count(*) FROM pystachio.queries WHERE server = 'watched';
SELECT count(*) FROM pystachio.statistics WHERE server = 'watched';
SELECT state FROM pystachio.engines WHERE server = 'watched';

-- A query that has ended.
SELECT count(*), sum(a) FROM t1;
SELECT query, queryid IS NOT NULL AS queryid, pid = pg_backend_pid() AS pid, datname = current_database() AS datname, usename = current_user AS usename,
  engine, ranks, state, waiting_for, started BETWEEN now() - interval '1 minute' AND clock_timestamp() AS started, elapsed_ms > 0 AS elapsed,
  rows, bytes_read BETWEEN 1 AND bytes_expected AS read, fraction_done, memory > 0 AS memory, spilled, error
FROM pystachio.queries WHERE server = 'watched';

-- One whose rows a cursor has begun to take, beside itself.
BEGIN;
DECLARE rows_taken CURSOR FOR SELECT x.id, y.c, z.b FROM t1 x, t1 y, t1 z;
FETCH 1 FROM rows_taken \g /dev/null
SELECT wait_state('returning rows, reader');
SELECT query, rows > 0 AS rows, fraction_done <= 1 AS fraction, bytes_expected > 0 AS expected, memory > 0 AS memory, elapsed_ms > 0 AS elapsed
FROM pystachio.queries WHERE server = 'watched' AND state = 'returning rows';
-- Who wants no more rows has not cancelled anything.
CLOSE rows_taken;
SELECT wait_state('finished');
COMMIT;
SELECT count(*) FROM (SELECT x.id FROM t1 x, t1 y, t1 z WHERE x.c <= y.c LIMIT 10) few;
SELECT wait_state('finished');

-- One that fails, and one that is cancelled.
SELECT 1 / (id - id) FROM t1;
SELECT wait_state('failed');
SET statement_timeout = '200ms';
SELECT count(*) FROM t1 a, t1 b, t1 c, t1 d, t1 e WHERE a.c || b.c || c.c || d.c < e.c || a.c;
RESET statement_timeout;
SELECT wait_state('cancelled');
SELECT query, state, rows, fraction_done BETWEEN 0 AND 1 AS fraction, error FROM pystachio.queries WHERE server = 'watched' AND state IN ('failed', 'cancelled')
ORDER BY query;

-- Both engines of a server with a device, and what the device has refused.
SET pystachio.engine_choice = gpu;
SELECT count(*), sum(b) FROM g1;
SELECT count(*) FROM refused WHERE v IS NULL;
SET pystachio.engine_choice = cpu;
SELECT count(*), sum(b) FROM g1;
RESET pystachio.engine_choice;
SELECT query, engine, ranks, state, bytes_read > 0 AS read, bytes_expected > 0 AS expected, fraction_done FROM pystachio.queries WHERE server = 'watched_gpu' ORDER BY query;
SELECT engine, calls, fallbacks FROM pystachio.statistics WHERE server = 'watched_gpu' AND fallbacks > 0;
-- A timeline has the number of its query.
SET pystachio.engine_choice = gpu;
SET pystachio.timeline = on;
SELECT max(a) FROM g1;
RESET pystachio.timeline;
RESET pystachio.engine_choice;
SELECT query, state FROM pystachio.queries JOIN pystachio.timeline_queries('watched_gpu') USING (query) WHERE server = 'watched_gpu';

-- What all ranks run is one query.
CREATE SERVER watched_ranks FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', ranks '2', rank_policy 'all');
SELECT format('CREATE FOREIGN TABLE on_ranks (id integer, a integer, b bigint, c text) SERVER watched_ranks OPTIONS (paths %L)',
  ARRAY[:'data' || '/t{rank}.parquet', :'data' || '/t2.parquet', :'data' || '/t3.parquet']::text)
\gexec
SET pystachio.engine_choice = gpu;
SELECT count(*), count(b), count(c) FROM on_ranks;
RESET pystachio.engine_choice;
SELECT query, engine, ranks, state, rows, bytes_read > 0 AS read, bytes_expected >= bytes_read AS expected, fraction_done FROM pystachio.queries WHERE server = 'watched_ranks';
SELECT engine, calls, ranks FROM pystachio.statistics WHERE server = 'watched_ranks';

-- Statistics: runs of one statement are one row, whatever its constants; each engine has its own.
SELECT pystachio.statistics_reset('watched');
SELECT pystachio.statistics_reset('watched_gpu');
SELECT count(*) FROM pystachio.statistics WHERE server IN ('watched', 'watched_gpu');
SELECT count(*) FROM t1 WHERE id > 5;
SELECT count(*) FROM t1 WHERE id > 500;
SELECT count(*) FROM t1 WHERE id / 0 > 500;
SET pystachio.engine_choice = cpu;
SELECT count(*) FROM g1 WHERE id > 5;
SET pystachio.engine_choice = gpu;
SELECT count(*) FROM g1 WHERE id > 6;
RESET pystachio.engine_choice;
SELECT server, userid::regrole = current_user::regrole AS userid, dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS dbid,
  queryid IS NOT NULL AS queryid, engine, calls, failures, cancellations, fallbacks, rows, bytes_read > 0 AS read, spilled, cache_hits + cache_misses > 0 AS cached,
  total_ms >= max_ms AND max_ms >= min_ms AND min_ms > 0 AS times, ranks, since <= clock_timestamp() AS since
FROM pystachio.statistics WHERE server IN ('watched', 'watched_gpu') ORDER BY server, engine, failures;
SELECT count(DISTINCT queryid) FROM pystachio.statistics WHERE server = 'watched_gpu';
-- The number is that of EXPLAIN.
CREATE FUNCTION query_number(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE) ' || query LOOP
    IF line ~ 'Query Identifier: ' THEN RETURN substring(line FROM '-?\d+')::bigint; END IF;
  END LOOP;
END $$;
SELECT calls FROM pystachio.statistics WHERE server = 'watched' AND queryid = query_number('SELECT count(*) FROM t1 WHERE id > 5');
-- Where the server computes no number there is none, and all such queries of a role are one row.
SET compute_query_id = off;
SELECT pystachio.statistics_reset('watched');
SELECT min(a) FROM t1;
SELECT max(b) FROM t1 WHERE id > 7;
SELECT queryid, calls FROM pystachio.statistics WHERE server = 'watched';
SELECT queryid FROM pystachio.queries WHERE server = 'watched' ORDER BY query DESC LIMIT 1;

-- Other roles see that a query runs, and its owner. A member of pg_read_all_stats sees all of it.
CREATE ROLE regress_watcher;
GRANT USAGE ON SCHEMA watched TO regress_watcher;
GRANT USAGE ON FOREIGN SERVER watched TO regress_watcher;
SET ROLE regress_watcher;
SELECT DISTINCT usename IS NOT NULL AS usename, pid IS NOT NULL AS pid, queryid, engine, ranks, state, waiting_for, started, elapsed_ms, rows, bytes_read, bytes_expected,
  fraction_done, memory, spilled, error FROM pystachio.queries WHERE server = 'watched';
SELECT userid IS NOT NULL AS userid, queryid, engine, calls, failures, rows, bytes_read, total_ms, since FROM pystachio.statistics WHERE server = 'watched';
SELECT count(*) FROM pystachio.queries WHERE server = 'watched_gpu';
SELECT pystachio.statistics_reset('watched');
RESET ROLE;
GRANT pg_monitor TO regress_watcher;
SET ROLE regress_watcher;
SELECT count(*) > 0 AS seen FROM pystachio.queries WHERE server = 'watched' AND state = 'failed' AND error ~ 'division';
SELECT calls FROM pystachio.statistics WHERE server = 'watched';
RESET ROLE;
REVOKE pg_monitor FROM regress_watcher;
CREATE VIEW few WITH (security_barrier) AS SELECT id FROM t1 WHERE id < 10;
GRANT SELECT ON few TO regress_watcher;
SET ROLE regress_watcher;
SELECT count(*) FROM few WHERE id > 3;
SELECT engine, state, elapsed_ms > 0 AS elapsed, rows, bytes_read, bytes_expected, fraction_done, memory, spilled FROM pystachio.queries
WHERE server = 'watched' AND usename = current_user;
SELECT engine, calls, rows, bytes_read, spilled, cache_hits, total_ms > 0 AS total FROM pystachio.statistics
WHERE server = 'watched' AND userid = current_user::regrole;
RESET ROLE;
SELECT rows, bytes_expected > 0 AS expected FROM pystachio.queries WHERE server = 'watched' AND usename = 'regress_watcher';

-- The supervisor is in pg_stat_activity.
SELECT backend_type, datname FROM pg_stat_activity WHERE backend_type = 'pystachio supervisor';

-- What a server is asked to forget, and what is not ours.
SELECT pystachio.statistics_reset('nowhere');
SELECT pystachio.statistics_reset(NULL);

DROP SERVER watched, watched_gpu, watched_ranks CASCADE;
DROP SCHEMA watched CASCADE;
DROP ROLE regress_watcher;
