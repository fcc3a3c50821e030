-- Queries that watch pystachio. Each is a panel of docs/monitoring-dashboard.json.
--
-- The comment above a query names the kind of panel, the unit of its values, its size on a grid of 24 columns, and its title. Any client
-- can run the queries. A role needs USAGE on the servers, and pg_monitor to see other roles' queries.

-- panel: stat, none, 4x4: Engines down
SELECT count(*) AS down FROM pystachio.engines WHERE state NOT IN ('running', 'stopped', 'retiring');

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

-- panel: rates, none, 12x8: Queries begun each second, by state
SELECT date_trunc('second', started) AS time, state AS metric, count(*)::double precision AS value
FROM pystachio.queries GROUP BY 1, 2 ORDER BY 1;

-- panel: table, none, 24x6: What runs
SELECT query.server, query.pid, query.usename, query.engine, query.state, query.waiting_for, round(query.elapsed_ms) AS ms, query.rows,
  round(100 * query.fraction_done) AS percent, pg_size_pretty(query.memory) AS memory, left(regexp_replace(activity.query, '\s+', ' ', 'g'), 60) AS statement
FROM pystachio.queries query LEFT JOIN pg_stat_activity activity USING (pid)
WHERE query.state NOT IN ('finished', 'failed', 'cancelled') ORDER BY query.started;

-- panel: bars, bytes, 8x4: Memory by engine
SELECT server || ' ' || rank AS metric, memory::double precision AS value FROM pystachio.engines WHERE memory IS NOT NULL ORDER BY 1;

-- panel: bars, bytes, 8x4: Cached columns by tier
SELECT server || ', ' || tier AS metric, sum(memory)::double precision AS value FROM pystachio.cache GROUP BY 1 ORDER BY 1;

-- panel: bars, none, 8x4: Sessions that wait, by event
SELECT wait_event AS metric, count(*)::double precision AS value
FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND backend_type = 'client backend' GROUP BY 1 ORDER BY 1;

-- panel: table, none, 24x5: Engines
SELECT server, rank, device, state, restarts, queries_run AS run, pg_size_pretty(memory) AS memory, left(last_error, 40) AS last_error
FROM pystachio.engines ORDER BY server, rank;

-- panel: table, none, 24x9: Statements that took longest, with pg_stat_statements
SELECT statistics.engine, statistics.calls, round(statistics.total_ms) AS ms, round(statistics.max_ms) AS max_ms, statistics.failures,
  pg_size_pretty(statistics.bytes_read) AS read, left(regexp_replace(statements.query, '\s+', ' ', 'g'), 70) AS statement
FROM pystachio.statistics LEFT JOIN pg_stat_statements statements USING (userid, dbid, queryid)
ORDER BY statistics.total_ms DESC NULLS LAST LIMIT 10;
