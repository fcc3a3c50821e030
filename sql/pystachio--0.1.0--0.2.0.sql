-- 0.2.0 tells of ranks, and of the queries that run and ran.
\echo Use "ALTER EXTENSION pystachio UPDATE TO '0.2.0'" to load this file. \quit

-- The new views have other columns in other places. Views over the old ones go on with these, which are then no part of the extension.
DO $$
BEGIN
  DROP VIEW @extschema@.engines, @extschema@.cache;
  DROP FUNCTION @extschema@.engine_status(oid), @extschema@.cache_entries(oid), @extschema@.timeline(bigint, text);
EXCEPTION WHEN dependent_objects_still_exist THEN
  ALTER EXTENSION pystachio DROP VIEW @extschema@.engines;
  ALTER EXTENSION pystachio DROP VIEW @extschema@.cache;
  ALTER EXTENSION pystachio DROP FUNCTION @extschema@.engine_status(oid);
  ALTER EXTENSION pystachio DROP FUNCTION @extschema@.cache_entries(oid);
  ALTER EXTENSION pystachio DROP FUNCTION @extschema@.timeline(bigint, text);
  ALTER VIEW @extschema@.engines RENAME TO engines_0_1;
  ALTER VIEW @extschema@.cache RENAME TO cache_0_1;
  ALTER FUNCTION @extschema@.engine_status(oid) RENAME TO engine_status_0_1;
  ALTER FUNCTION @extschema@.cache_entries(oid) RENAME TO cache_entries_0_1;
  ALTER FUNCTION @extschema@.timeline(bigint, text) RENAME TO timeline_0_1;
END $$;

CREATE FUNCTION @extschema@.engine_status(server oid)
  RETURNS TABLE (
    rank integer,
    host text,
    device text,
    pid integer,
    state text,
    since double precision,
    generation bigint,
    memory bigint,
    device_memory bigint,
    device_memory_used bigint,
    device_memory_peak bigint,
    device_memory_fragmented bigint,
    queries_running bigint,
    queries_waiting bigint,
    queries_run bigint,
    restarts bigint,
    storage_paths text[],
    libraries text[],
    last_error text)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'engine_status_0_2_wrapper';

CREATE FUNCTION @extschema@.cache_entries(server oid)
  RETURNS TABLE (
    rank integer,
    path text,
    "column" text,
    tier text,
    row_groups bigint,
    memory bigint,
    hits bigint,
    misses bigint)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'cache_entries_0_2_wrapper';

CREATE VIEW @extschema@.engines AS
  SELECT server.srvname AS server, engine.rank, engine.host, engine.device, engine.pid, engine.state,
    pg_catalog.to_timestamp(engine.since) AS since, engine.generation, engine.memory, engine.device_memory,
    engine.device_memory_used, engine.device_memory_peak, engine.device_memory_fragmented, engine.queries_running, engine.queries_waiting, engine.queries_run, engine.restarts,
    engine.storage_paths, engine.libraries, engine.last_error
  FROM pg_catalog.pg_foreign_server server
  JOIN pg_catalog.pg_foreign_data_wrapper wrapper ON wrapper.oid OPERATOR(pg_catalog.=) server.srvfdw
  JOIN pg_catalog.pg_proc handler ON handler.oid OPERATOR(pg_catalog.=) wrapper.fdwhandler
  CROSS JOIN LATERAL @extschema@.engine_status(server.oid) engine
  WHERE handler.prosrc OPERATOR(pg_catalog.=) 'pystachio_handler';

CREATE VIEW @extschema@.cache AS
  SELECT server.srvname AS server, entry.*
  FROM pg_catalog.pg_foreign_server server
  JOIN pg_catalog.pg_foreign_data_wrapper wrapper ON wrapper.oid OPERATOR(pg_catalog.=) server.srvfdw
  JOIN pg_catalog.pg_proc handler ON handler.oid OPERATOR(pg_catalog.=) wrapper.fdwhandler
  CROSS JOIN LATERAL @extschema@.cache_entries(server.oid) entry
  WHERE handler.prosrc OPERATOR(pg_catalog.=) 'pystachio_handler';

GRANT SELECT ON @extschema@.engines, @extschema@.cache TO PUBLIC;

COMMENT ON FUNCTION @extschema@.engine_status(oid) IS 'State of a server''s engine, one row for each rank; starts no engine';
COMMENT ON FUNCTION @extschema@.cache_entries(oid) IS 'Columns that an engine keeps between queries; starts no engine';
COMMENT ON VIEW @extschema@.engines IS
  'Engines of the servers that you may use; paths and errors of other roles need pg_read_all_stats';
COMMENT ON VIEW @extschema@.cache IS
  'Columns that engines keep between queries, by rank and tier (device, pinned, host); their names need pg_read_all_stats';

CREATE FUNCTION @extschema@.query_entries(server oid)
  RETURNS TABLE (
    query bigint,
    queryid bigint,
    pid integer,
    userid oid,
    engine text,
    ranks integer,
    state text,
    waiting_for text,
    started timestamp with time zone,
    elapsed_ms double precision,
    rows bigint,
    bytes_read bigint,
    bytes_expected bigint,
    fraction_done double precision,
    memory bigint,
    spilled bigint,
    error text)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'query_entries_wrapper';

CREATE FUNCTION @extschema@.statistics_entries(server oid)
  RETURNS TABLE (
    userid oid,
    queryid bigint,
    engine text,
    calls bigint,
    failures bigint,
    cancellations bigint,
    fallbacks bigint,
    rows bigint,
    bytes_read bigint,
    spilled bigint,
    cache_hits bigint,
    cache_misses bigint,
    total_ms double precision,
    min_ms double precision,
    max_ms double precision,
    ranks integer,
    since timestamp with time zone)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'statistics_entries_wrapper';

CREATE FUNCTION @extschema@.statistics_reset(server text DEFAULT 'pystachio')
  RETURNS void
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'statistics_reset_wrapper';

-- As pg_stat_statements_reset: what others count by is not for everybody to forget.
REVOKE EXECUTE ON FUNCTION @extschema@.statistics_reset(text) FROM PUBLIC;

CREATE VIEW @extschema@.queries AS
  SELECT server.srvname AS server, entry.query, entry.queryid, entry.pid,
    pg_catalog.current_database() AS datname, pg_catalog.pg_get_userbyid(entry.userid) AS usename,
    entry.engine, entry.ranks, entry.state, entry.waiting_for, entry.started, entry.elapsed_ms, entry.rows,
    entry.bytes_read, entry.bytes_expected, entry.fraction_done, entry.memory, entry.spilled, entry.error
  FROM pg_catalog.pg_foreign_server server
  JOIN pg_catalog.pg_foreign_data_wrapper wrapper ON wrapper.oid OPERATOR(pg_catalog.=) server.srvfdw
  JOIN pg_catalog.pg_proc handler ON handler.oid OPERATOR(pg_catalog.=) wrapper.fdwhandler
  CROSS JOIN LATERAL @extschema@.query_entries(server.oid) entry
  WHERE handler.prosrc OPERATOR(pg_catalog.=) 'pystachio_handler';

CREATE VIEW @extschema@.statistics AS
  SELECT server.srvname AS server, entry.userid, database.oid AS dbid, entry.queryid, entry.engine, entry.calls,
    entry.failures, entry.cancellations, entry.fallbacks, entry.rows, entry.bytes_read, entry.spilled,
    entry.cache_hits, entry.cache_misses, entry.total_ms, entry.min_ms, entry.max_ms, entry.ranks, entry.since
  FROM pg_catalog.pg_foreign_server server
  JOIN pg_catalog.pg_foreign_data_wrapper wrapper ON wrapper.oid OPERATOR(pg_catalog.=) server.srvfdw
  JOIN pg_catalog.pg_proc handler ON handler.oid OPERATOR(pg_catalog.=) wrapper.fdwhandler
  JOIN pg_catalog.pg_database database ON database.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
  CROSS JOIN LATERAL @extschema@.statistics_entries(server.oid) entry
  WHERE handler.prosrc OPERATOR(pg_catalog.=) 'pystachio_handler';

GRANT SELECT ON @extschema@.queries, @extschema@.statistics TO PUBLIC;

COMMENT ON FUNCTION @extschema@.query_entries(oid) IS
  'Queries of a server''s engine that run or ended last; starts no engine';
COMMENT ON FUNCTION @extschema@.statistics_entries(oid) IS
  'Cost of a server''s queries by role, statement and engine; starts no engine';
COMMENT ON FUNCTION @extschema@.statistics_reset(text) IS 'Empties pystachio.statistics of a server';
COMMENT ON VIEW @extschema@.queries IS
  'Queries that run on engines, and the last that ended; details of other roles'' queries need pg_read_all_stats';
COMMENT ON VIEW @extschema@.statistics IS
  'Cost of queries, to join with pg_stat_statements; counts of other roles need pg_read_all_stats';

CREATE FUNCTION @extschema@.timeline(query bigint DEFAULT NULL, server text DEFAULT 'pystachio')
  RETURNS TABLE (
    query bigint,
    rank integer,
    activity text,
    name text,
    lane integer,
    start_ms double precision,
    elapsed_ms double precision,
    bytes bigint)
  LANGUAGE c
  AS 'MODULE_PATHNAME', 'timeline_0_2_wrapper';

COMMENT ON FUNCTION @extschema@.timeline(bigint, text) IS
  'Reads, copies, kernels and transfers of a query whose timeline was recorded; by default of the last one';
