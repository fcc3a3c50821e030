-- Queries that watch pystachio, each a panel of docs/monitoring-dashboard.json as it stands here.
--
-- A comment above each says what kind of panel it is, the unit of its values, how large it is on a grid of 24 columns, and its title. Any
-- client can run them; a role needs USAGE on the servers, and pg_monitor to see what other roles do.

-- panel: stat, none, 4x4: Engines that are down
SELECT count(*) AS down FROM pystachio.engines WHERE state NOT IN ('running', 'stopped');

-- panel: stat, none, 4x4: Queries running
SELECT coalesce(sum(queries_running), 0)::bigint AS running FROM pystachio.engines WHERE rank = 0;

-- panel: stat, none, 4x4: Queries waiting
SELECT coalesce(sum(queries_waiting), 0)::bigint AS waiting FROM pystachio.engines WHERE rank = 0;

-- panel: stat, none, 4x4: Recent failures
SELECT count(*) AS failed FROM pystachio.queries WHERE state = 'failed';

-- panel: stat, bytes, 4x4: Memory of engines
SELECT coalesce(sum(memory), 0)::bigint AS memory FROM pystachio.engines;

-- panel: stat, percentunit, 4x4: Cache hits
SELECT sum(hits)::double precision / nullif(sum(hits + misses), 0) AS hit_rate FROM pystachio.cache;

-- panel: series, ms, 12x8: Time of the last queries
SELECT started AS time, server || ', ' || engine AS metric, elapsed_ms AS value
FROM pystachio.queries WHERE state = 'finished' ORDER BY started;

-- panel: series, none, 12x8: Queries begun each second, by state
SELECT date_trunc('second', started) AS time, state AS metric, count(*)::double precision AS value
FROM pystachio.queries GROUP BY 1, 2 ORDER BY 1;

-- panel: table, none, 24x8: What runs
SELECT query.server, query.pid, query.usename, query.engine, query.state, query.waiting_for, round(query.elapsed_ms) AS ms, query.rows,
  round(100 * query.fraction_done) AS percent, pg_size_pretty(query.memory) AS memory, left(activity.query, 60) AS statement
FROM pystachio.queries query LEFT JOIN pg_stat_activity activity USING (pid)
WHERE query.state NOT IN ('finished', 'failed', 'cancelled') ORDER BY query.started;

-- panel: bars, bytes, 8x6: Memory by engine
SELECT server || ' ' || rank AS metric, memory::double precision AS value FROM pystachio.engines WHERE memory IS NOT NULL ORDER BY 1;

-- panel: bars, bytes, 8x6: Cached columns by tier
SELECT server || ', ' || tier AS metric, sum(memory)::double precision AS value FROM pystachio.cache GROUP BY 1 ORDER BY 1;

-- panel: bars, none, 8x6: Sessions that wait, by event
SELECT wait_event AS metric, count(*)::double precision AS value
FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND backend_type = 'client backend' GROUP BY 1 ORDER BY 1;

-- panel: table, none, 12x8: Engines
SELECT server, rank, device, state, restarts, queries_run AS run, pg_size_pretty(memory) AS memory, left(last_error, 40) AS last_error
FROM pystachio.engines ORDER BY server, rank;

-- panel: table, none, 12x8: Statements that took longest, with pg_stat_statements
SELECT statistics.engine, statistics.calls, round(statistics.total_ms) AS ms, round(statistics.max_ms) AS max_ms, statistics.failures,
  pg_size_pretty(statistics.bytes_read) AS read, left(statements.query, 50) AS statement
FROM pystachio.statistics LEFT JOIN pg_stat_statements statements USING (userid, dbid, queryid)
ORDER BY statistics.total_ms DESC NULLS LAST LIMIT 10;
