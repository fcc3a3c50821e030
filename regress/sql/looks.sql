--
-- Columns by their field ids, what files hold, tables that follow their files, and files as tables.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\set old :data '/ids_old.parquet'
\set new :data '/ids_new.parquet'
\set t1 :data '/t1.parquet'
\set looks :scratch '/looks'
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf looks && mkdir -p looks/ids looks/import looks/mixed looks/grown && chmod -R 777 looks
\! cd "$PYSTACHIO_REGRESS_SCRATCH/looks" && cp "$PYSTACHIO_REGRESS_DATA"/ids_old.parquet ids/1.parquet && cp "$PYSTACHIO_REGRESS_DATA"/ids_new.parquet ids/2.parquet && cp -r ids import && mkdir import/swapped && cp "$PYSTACHIO_REGRESS_DATA"/ids_*.parquet import/swapped && cp "$PYSTACHIO_REGRESS_DATA"/ids_old.parquet "$PYSTACHIO_REGRESS_DATA"/t1.parquet mixed && cp "$PYSTACHIO_REGRESS_DATA"/edge_int2.parquet grown
CREATE SERVER on_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SET pystachio.engine_choice = gpu;
CREATE SCHEMA looks;
SET search_path = looks;
SELECT format('CREATE SCHEMA %s; CREATE FOREIGN TABLE %1$s.renamed (id integer OPTIONS (field_id ''1''), text_of text OPTIONS (field_id ''2''), '
  'sum numeric OPTIONS (column_name ''amount'', field_id ''3''), name text OPTIONS (field_id ''4''), none text OPTIONS (field_id ''9''), by_name text OPTIONS (column_name ''name'')) '
  'SERVER on_%1$s OPTIONS (path %L)', name, :'looks' || '/ids') FROM (VALUES ('cpu'), ('device')) e (name)
\gexec
-- The id counts, whatever the name is.
SELECT id, text_of, sum, name, by_name FROM cpu.renamed ORDER BY text_of NULLS LAST, id, by_name;
SELECT id, text_of, sum, name, by_name FROM device.renamed ORDER BY text_of NULLS LAST, id, by_name;
SELECT count(*) FROM cpu.renamed WHERE text_of > 'a' AND name IS NULL;
SELECT count(*) FROM device.renamed WHERE text_of > 'a' AND name IS NULL;
SELECT sum(sum), min(sum), max(sum) FROM cpu.renamed;
SELECT sum(sum), min(sum), max(sum) FROM device.renamed;
-- No file has it.
SELECT none FROM cpu.renamed;
SELECT none FROM device.renamed;
-- Files without ids have the column by its name.
SELECT format('CREATE FOREIGN TABLE mixed (id integer OPTIONS (field_id ''1''), c text OPTIONS (field_id ''2'')) SERVER on_cpu OPTIONS (path %L)', :'looks' || '/mixed')
\gexec
SELECT count(*), count(id), count(c) FROM mixed;
SELECT c FROM mixed WHERE id <= 3 GROUP BY c ORDER BY c;
CREATE FOREIGN TABLE wrong (id integer OPTIONS (field_id 'x')) SERVER on_cpu OPTIONS (path :'t1');
CREATE FOREIGN TABLE wrong (id integer OPTIONS (field_id '1', reads 'filename')) SERVER on_cpu OPTIONS (path :'t1');

-- IMPORT by name and by id.
CREATE SCHEMA by_name;
SELECT format('IMPORT FOREIGN SCHEMA files FROM SERVER on_cpu INTO by_name OPTIONS (path %L)', :'looks' || '/import')
\gexec
CREATE SCHEMA by_id;
SELECT format('IMPORT FOREIGN SCHEMA files FROM SERVER on_cpu INTO by_id OPTIONS (path %L, match_by ''field_id'')', :'looks' || '/import')
\gexec
SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod), attfdwoptions FROM pg_attribute
WHERE attrelid IN ('by_name.ids'::regclass, 'by_id.ids'::regclass, 'by_id.swapped'::regclass) AND attnum > 0 ORDER BY attrelid::regclass::text, attnum;
SELECT * FROM by_id.ids ORDER BY label NULLS LAST, id;
SELECT * FROM by_id.swapped ORDER BY name NULLS LAST, id;
SELECT format('IMPORT FOREIGN SCHEMA files LIMIT TO (mixed) FROM SERVER on_cpu INTO by_id OPTIONS (path %L, match_by ''field_id'')', :'looks')
\gexec
SELECT format('IMPORT FOREIGN SCHEMA files FROM SERVER on_cpu INTO by_id OPTIONS (path %L, match_by ''place'')', :'looks')
\gexec

-- What files hold.
SELECT column_name, type, not_null, field_id, differences IS NOT NULL AS differs, bytes > 0 AS has_bytes, files, rows FROM pystachio.describe(:'old');
SELECT column_name, type, field_id, replace(differences, :'looks', '…') AS differences, files, rows FROM pystachio.describe(:'looks' || '/ids', 'on_cpu');
SELECT column_name, type, file_type FROM pystachio.describe(:'data' || '/nested.parquet');
SELECT * FROM pystachio.describe('relative.parquet');
SELECT * FROM pystachio.describe('/nowhere/*.parquet');
SELECT * FROM pystachio.describe(:'t1', 'no_server');

-- A table that follows its files.
SELECT format('CREATE FOREIGN TABLE grown (v smallint, gone text) SERVER on_cpu OPTIONS (path %L)', :'looks' || '/grown')
\gexec
SELECT pystachio.refresh_table('grown');
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = 'grown'::regclass AND attnum > 0 ORDER BY attnum;
\! cd "$PYSTACHIO_REGRESS_SCRATCH/looks" && cp "$PYSTACHIO_REGRESS_DATA"/edge_int8.parquet "$PYSTACHIO_REGRESS_DATA"/t1.parquet grown
SELECT max(v) FROM grown;
SELECT pystachio.refresh_table('grown');
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = 'grown'::regclass AND attnum > 0 ORDER BY attnum;
SELECT max(v), count(c) FROM grown;
SELECT pystachio.refresh_table('grown');
\! cd "$PYSTACHIO_REGRESS_SCRATCH/looks" && cp "$PYSTACHIO_REGRESS_DATA"/edge_text.parquet grown
SELECT pystachio.refresh_table('grown');
SELECT pystachio.refresh_table('pg_class');
CREATE FOREIGN TABLE refreshed (id integer OPTIONS (field_id '1')) SERVER on_cpu OPTIONS (path '/nowhere');
SELECT format('ALTER FOREIGN TABLE refreshed OPTIONS (SET path %L)', :'looks' || '/ids')
\gexec
SELECT pystachio.refresh_table('refreshed');
SELECT id, label, amount, name FROM refreshed ORDER BY label NULLS LAST, id;
CREATE ROLE looks_reader;
GRANT USAGE ON SCHEMA looks TO looks_reader;
PREPARE of_owner AS SELECT count(*) FROM pystachio.read_parquet(:'new', 'on_cpu') AS t (id integer);
SET plan_cache_mode = force_generic_plan;
EXECUTE of_owner;
EXECUTE of_owner;
SET ROLE looks_reader;
EXECUTE of_owner;
RESET plan_cache_mode;
SELECT pystachio.refresh_table('looks.grown');
SELECT * FROM pystachio.describe(:'t1');
SELECT * FROM pystachio.read_parquet(:'t1') AS t (id integer);
RESET ROLE;

-- Files as a table: planned as one.
SELECT count(*), sum(a) FROM pystachio.read_parquet(:'t1', 'on_cpu') AS t (id integer, a integer);
EXPLAIN (COSTS OFF) SELECT count(*) FROM pystachio.read_parquet(:'t1', 'on_cpu') AS t (id integer, a integer) WHERE a > 2;
EXPLAIN (COSTS OFF) SELECT one.c, count(*) FROM pystachio.read_parquet(:'t1', 'on_cpu') AS one (a integer, c text)
  JOIN pystachio.read_parquet(:'data' || '/t2.parquet', server => 'on_cpu') AS two (a integer) USING (a) GROUP BY one.c;
SELECT (SELECT count(*) FROM pystachio.read_parquet(:'data' || '/t2.parquet', 'on_cpu') AS two (a integer) WHERE two.a = one.a) AS matches, count(*)
FROM pystachio.read_parquet(:'t1', 'on_cpu') AS one (a integer) GROUP BY 1 ORDER BY 1;
WITH one AS (SELECT * FROM pystachio.read_parquet(:'t1', 'on_cpu') AS t (id integer, a integer)) SELECT count(*) FROM one WHERE id < 10;
CREATE TYPE t1_row AS (c text, id integer);
SELECT count(c), max(id) FROM pystachio.read_parquet_as(NULL::t1_row, :'t1', 'on_cpu');
EXPLAIN (COSTS OFF) SELECT count(c), max(id) FROM pystachio.read_parquet_as(NULL::t1_row, :'t1', 'on_cpu') t WHERE t.id > 3;
SELECT t FROM pystachio.read_parquet_as(NULL::t1_row, :'t1', 'on_cpu') t ORDER BY id LIMIT 2;
-- The session makes one table for a path with its columns.
SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind = 'f';
SELECT count(*) FROM pystachio.read_parquet(:'t1', 'on_cpu') AS t (id integer, a integer) WHERE a IS NULL;
SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind = 'f';
-- Paths that are not known when the query is planned.
PREPARE of_path(text) AS SELECT count(*) FROM pystachio.read_parquet($1, 'on_cpu') AS t (id integer);
EXECUTE of_path(:'t1');
SET plan_cache_mode = force_generic_plan;
EXECUTE of_path(:'t1');
EXECUTE of_path(:'new');
RESET plan_cache_mode;
SELECT regexp_replace(path, '.*/', '') AS file, count(*)
FROM (VALUES (:'t1'), (:'new'), (NULL)) f (path), LATERAL pystachio.read_parquet(path, 'on_cpu') AS t (id integer) GROUP BY path ORDER BY count(*);
-- The place of the error has the path of this test.
\set VERBOSITY terse
SELECT * FROM pystachio.read_parquet(:'new', 'on_cpu') WITH ORDINALITY AS t (id, label, n);
\set VERBOSITY default
SELECT id, n FROM ROWS FROM (pystachio.read_parquet(:'new', 'on_cpu') AS (id integer)) WITH ORDINALITY AS t (id, n) ORDER BY n;
-- A kept plan, and a table that is gone.
PREPARE kept AS SELECT max(id) FROM pystachio.read_parquet(:'new', 'on_cpu') AS t (id integer);
SET plan_cache_mode = force_generic_plan;
EXECUTE kept;
DISCARD TEMP;
EXECUTE kept;
BEGIN;
SELECT count(*) FROM pystachio.read_parquet(:'new', 'on_cpu') AS t (label text);
ROLLBACK;
SELECT count(*) FROM pystachio.read_parquet(:'new', 'on_cpu') AS t (label text);
RESET plan_cache_mode;
CREATE VIEW files_view AS SELECT * FROM pystachio.read_parquet('/nowhere.parquet', 'on_cpu') AS t (label text);
SELECT pg_get_viewdef('files_view') LIKE '%FROM pystachio.read_parquet(''/nowhere.parquet''::text, ''on_cpu''::text) t(label text);' AS is_kept;
SELECT * FROM files_view;
DROP VIEW files_view;
GRANT pg_read_server_files TO looks_reader;
GRANT USAGE ON FOREIGN SERVER on_cpu TO looks_reader;
SET ROLE looks_reader;
SELECT count(*) FROM pystachio.read_parquet(:'new', 'on_cpu') AS t (id integer);
RESET ROLE;
\set VERBOSITY terse
SELECT * FROM pystachio.read_parquet(:'new', 'on_cpu');
\set VERBOSITY default
SELECT * FROM pystachio.read_parquet('relative.parquet', 'on_cpu') AS t (id integer);
SELECT * FROM pystachio.read_parquet(:'new', 'on_cpu') AS t (nothing integer);
BEGIN READ ONLY;
SELECT count(*) FROM pystachio.read_parquet(:'new', 'on_cpu') AS t (name text);
ROLLBACK;

RESET search_path;
DISCARD TEMP;
SET client_min_messages = error;
DROP SCHEMA looks, cpu, device, by_name, by_id CASCADE;
DROP SERVER on_cpu CASCADE;
DROP SERVER on_device CASCADE;
DROP ROLE looks_reader;
