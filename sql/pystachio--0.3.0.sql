-- What CREATE EXTENSION pystachio makes. Written by hand: `scripts/check_sql.py` compares it with what the library exports.

--
-- The foreign-data wrapper, and a server that is ready to use
--
CREATE FUNCTION @extschema@.handler()
  RETURNS fdw_handler
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'pystachio_handler';

CREATE FUNCTION @extschema@.validator(options text[], catalog oid)
  RETURNS void
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'validator_wrapper';

CREATE FOREIGN DATA WRAPPER pystachio
  HANDLER @extschema@.handler
  VALIDATOR @extschema@.validator;

CREATE SERVER pystachio FOREIGN DATA WRAPPER pystachio;

GRANT USAGE ON FOREIGN SERVER pystachio TO PUBLIC;
GRANT USAGE ON SCHEMA @extschema@ TO PUBLIC;

COMMENT ON FUNCTION @extschema@.handler() IS 'The callbacks of the foreign-data wrapper pystachio';
COMMENT ON FUNCTION @extschema@.validator(text[], oid) IS
  'Checks the options of servers, foreign tables and their columns';
COMMENT ON FOREIGN DATA WRAPPER pystachio IS 'Foreign tables over Parquet files';
COMMENT ON SERVER pystachio IS 'The engine of this database that is there from the start';

--
-- Options of the server that the extension makes: pg_dump leaves out objects of extensions. This table has the options, and is dumped
--
CREATE TABLE @extschema@.server_options (name text PRIMARY KEY, value text NOT NULL);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.server_options', '');

CREATE VIEW @extschema@.own_server AS
  SELECT server.srvname AS server, option.option_name AS name, option.option_value AS value
  FROM pg_catalog.pg_extension extension
  JOIN pg_catalog.pg_depend member ON member.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass
    AND member.refobjid OPERATOR(pg_catalog.=) extension.oid AND member.deptype OPERATOR(pg_catalog.=) 'e'
  JOIN pg_catalog.pg_foreign_server server ON member.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_foreign_server'::pg_catalog.regclass
    AND member.objid OPERATOR(pg_catalog.=) server.oid
  LEFT JOIN LATERAL pg_catalog.pg_options_to_table(server.srvoptions) option ON true
  WHERE extension.extname OPERATOR(pg_catalog.=) 'pystachio';

CREATE FUNCTION @extschema@.keep_server_options()
  RETURNS event_trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
BEGIN
  DELETE FROM @extschema@.server_options WHERE name NOT IN (SELECT own.name FROM @extschema@.own_server own WHERE own.name IS NOT NULL);
  INSERT INTO @extschema@.server_options SELECT own.name, own.value FROM @extschema@.own_server own WHERE own.name IS NOT NULL
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE server_options.value <> excluded.value;
END $$;

CREATE FUNCTION @extschema@.restore_server_options()
  RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
  AS $$
DECLARE
  change text;
BEGIN
  SELECT format('ALTER SERVER %I OPTIONS (%s)', min(own.server),
    string_agg(format('%s %I %L', CASE WHEN current.name IS NULL THEN 'ADD' ELSE 'SET' END, kept.name, kept.value), ', '))
  INTO change
  FROM (SELECT DISTINCT server FROM @extschema@.own_server) own
  CROSS JOIN @extschema@.server_options kept
  LEFT JOIN @extschema@.own_server current ON current.name = kept.name
  WHERE current.value IS DISTINCT FROM kept.value
  HAVING count(*) > 0;
  IF change IS NOT NULL THEN
    EXECUTE change;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER restore AFTER INSERT ON @extschema@.server_options
  FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.restore_server_options();

CREATE EVENT TRIGGER pystachio_server_options ON ddl_command_end WHEN TAG IN ('ALTER SERVER')
  EXECUTE FUNCTION @extschema@.keep_server_options();

GRANT SELECT ON @extschema@.server_options TO PUBLIC;
REVOKE EXECUTE ON FUNCTION @extschema@.keep_server_options(), @extschema@.restore_server_options() FROM PUBLIC;

COMMENT ON TABLE @extschema@.server_options IS 'Options of the extension''s own server, for pg_dump; ALTER SERVER writes them here';
COMMENT ON VIEW @extschema@.own_server IS 'The extension''s own server and its options';
COMMENT ON FUNCTION @extschema@.keep_server_options() IS 'Writes the options of the extension''s own server to pystachio.server_options';
COMMENT ON FUNCTION @extschema@.restore_server_options() IS 'Gives the options of pystachio.server_options to the extension''s own server';

--
-- What runs
--
CREATE FUNCTION @extschema@.version()
  RETURNS text
  LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
  AS 'MODULE_PATHNAME', 'version_wrapper';

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
    last_error text,
    memory_promised bigint,
    gpus text[],
    last_used double precision)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'engine_status_wrapper';

CREATE FUNCTION @extschema@.cache_entries(server oid)
  RETURNS TABLE (
    rank integer,
    path text,
    "column" text,
    tier text,
    row_groups bigint,
    memory bigint,
    hits bigint,
    misses bigint,
    unpacked bigint)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'cache_entries_wrapper';

CREATE VIEW @extschema@.engines AS
  SELECT server.srvname AS server, engine.rank, engine.host, engine.device, engine.pid, engine.state,
    pg_catalog.to_timestamp(engine.since) AS since, engine.generation, engine.memory, engine.device_memory,
    engine.device_memory_used, engine.device_memory_peak, engine.device_memory_fragmented, engine.queries_running, engine.queries_waiting, engine.queries_run, engine.restarts,
    engine.storage_paths, engine.libraries, engine.last_error, engine.memory_promised, engine.gpus,
    pg_catalog.to_timestamp(engine.last_used) AS last_used
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

COMMENT ON FUNCTION @extschema@.version() IS 'The version of the library';
COMMENT ON FUNCTION @extschema@.engine_status(oid) IS 'State of a server''s engine, one row for each rank; starts no engine';
COMMENT ON FUNCTION @extschema@.cache_entries(oid) IS 'Columns that an engine keeps between queries; starts no engine';
COMMENT ON VIEW @extschema@.engines IS
  'Engines of the servers that you may use; paths and errors of other roles need pg_read_all_stats';
COMMENT ON VIEW @extschema@.cache IS
  'Columns that engines keep between queries, by rank and tier (device, pinned, host); their names need pg_read_all_stats';

--
-- Queries: what runs, what ran last, and what they have cost
--
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

--
-- What is pushed down
--
CREATE FUNCTION @extschema@.functions()
  RETURNS TABLE (
    name text,
    meaning text,
    signatures text[],
    nulls text,
    fails text,
    on_device boolean,
    catalog_names text[],
    examples text[])
  LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
  AS 'MODULE_PATHNAME', 'functions_wrapper';

COMMENT ON FUNCTION @extschema@.functions() IS
  'The functions that engines evaluate: their meaning, when they are NULL, when they fail, names in pg_catalog that mean them';

--
-- Where the time of a query went
--
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
  AS 'MODULE_PATHNAME', 'timeline_wrapper';

CREATE FUNCTION @extschema@.timeline_queries(server text DEFAULT 'pystachio')
  RETURNS TABLE (
    query bigint,
    started timestamp with time zone,
    elapsed_ms double precision,
    activities bigint)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'timeline_queries_wrapper';

CREATE FUNCTION @extschema@.timeline_trace(query bigint DEFAULT NULL, server text DEFAULT 'pystachio')
  RETURNS json
  LANGUAGE c
  AS 'MODULE_PATHNAME', 'timeline_trace_wrapper';

COMMENT ON FUNCTION @extschema@.timeline(bigint, text) IS
  'Reads, copies, kernels and transfers of a query whose timeline was recorded; by default of the last one';
COMMENT ON FUNCTION @extschema@.timeline_queries(text) IS
  'Your queries whose timelines an engine keeps; those of all roles for pg_read_all_stats';
COMMENT ON FUNCTION @extschema@.timeline_trace(bigint, text) IS
  'A timeline in the Trace Event Format, which Perfetto and Chrome show';

--
-- Files
--
CREATE FUNCTION @extschema@.optimize_parquet(
    source text,
    target text,
    overwrite boolean DEFAULT false,
    row_group_rows bigint DEFAULT 10000000,
    compression text DEFAULT 'auto',
    server text DEFAULT 'pystachio')
  RETURNS TABLE (
    file text,
    column_name text,
    encoding text,
    compression text,
    row_groups bigint,
    pages bigint,
    bytes_before bigint,
    bytes_after bigint,
    reason text)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'optimize_parquet_wrapper';

CREATE FUNCTION @extschema@.describe(path text, server text DEFAULT 'pystachio')
  RETURNS TABLE (
    column_name text,
    type text,
    not_null boolean,
    field_id integer,
    file_type text,
    differences text,
    bytes bigint,
    files bigint,
    rows bigint)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'describe_wrapper';

CREATE FUNCTION @extschema@.refresh_table(relation regclass)
  RETURNS void
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'refresh_table_wrapper';

CREATE FUNCTION @extschema@.import_views(
    server text,
    namespace text,
    schema regnamespace,
    other_dialects boolean DEFAULT false)
  RETURNS TABLE (
    view text,
    command text,
    reason text)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'import_views_wrapper';

CREATE FUNCTION @extschema@.read_parquet(path text, server text DEFAULT 'pystachio')
  RETURNS SETOF record
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'read_parquet_wrapper';

CREATE FUNCTION @extschema@.read_parquet_as(row_type anyelement, path text, server text DEFAULT 'pystachio')
  RETURNS SETOF anyelement
  LANGUAGE c
  AS 'MODULE_PATHNAME', 'read_parquet_as_wrapper';

CREATE FUNCTION @extschema@.write_parquet(
    query text,
    path text,
    overwrite boolean DEFAULT false,
    compression text DEFAULT 'auto',
    row_group_rows bigint DEFAULT 0,
    server text DEFAULT 'pystachio',
    layout text DEFAULT 'default',
    file_size text DEFAULT '0',
    partition_by text[] DEFAULT '{}',
    sort_by text DEFAULT '')
  RETURNS TABLE (file text, row_count bigint, bytes bigint)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'write_parquet_wrapper';

CREATE FUNCTION @extschema@.tpch_generate(
    directory text,
    scale_factor double precision DEFAULT 1.0,
    tables text[] DEFAULT '{}',
    overwrite boolean DEFAULT false,
    row_group_rows bigint DEFAULT 0,
    compression text DEFAULT 'auto',
    server text DEFAULT 'pystachio',
    layout text DEFAULT 'default')
  RETURNS TABLE (table_name text, row_count bigint)
  LANGUAGE c STRICT
  AS 'MODULE_PATHNAME', 'tpch_generate_wrapper';

CREATE FUNCTION @extschema@.tpch_query(n integer)
  RETURNS text
  LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
  AS 'MODULE_PATHNAME', 'tpch_query_wrapper';

COMMENT ON FUNCTION @extschema@.optimize_parquet(text, text, boolean, bigint, text, text) IS
  'Rewrites Parquet files of the server''s host in the form that GPUs read best';
COMMENT ON FUNCTION @extschema@.describe(text, text) IS
  'The columns of Parquet files of the server''s host, as IMPORT FOREIGN SCHEMA declares them';
COMMENT ON FUNCTION @extschema@.import_views(text, text, regnamespace, boolean) IS
  'Makes views of the views of a catalog''s namespace, and says of each by which command, or why not';
COMMENT ON FUNCTION @extschema@.refresh_table(regclass) IS
  'Adds the columns that the files of a foreign table have gained, and widens types';
COMMENT ON FUNCTION @extschema@.read_parquet(text, text) IS
  'The rows of Parquet files of the server''s host, with the columns of a column definition list';
COMMENT ON FUNCTION @extschema@.read_parquet_as(anyelement, text, text) IS
  'The rows of Parquet files of the server''s host, with the columns of a row type';
COMMENT ON FUNCTION @extschema@.write_parquet(text, text, boolean, text, bigint, text, text, text, text[], text) IS
  'Writes the rows of a query as Parquet files of the server''s host';
COMMENT ON FUNCTION @extschema@.tpch_generate(text, double precision, text[], boolean, bigint, text, text, text) IS
  'Writes the TPC-H tables as Parquet into a folder of the server''s host';
COMMENT ON FUNCTION @extschema@.tpch_query(integer) IS 'The text of a TPC-H query, 1 to 22';
