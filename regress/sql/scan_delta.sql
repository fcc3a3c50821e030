--
-- Tables of Delta Lake: versions, what their logs rule out, logs that are damaged. Each on the CPU engine and on the emulated device.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
\set delta :data '/delta'
\set table :data '/delta/t'
\set bad :data '/delta_bad'
\set t1 :data '/t1.parquet'
\! sh "$PG_ABS_SRCDIR/include/delta.sh"
SET TimeZone = 'UTC';
CREATE SERVER on_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SET pystachio.engine_choice = gpu;
CREATE SCHEMA cpu;
CREATE SCHEMA device;

-- IMPORT recognizes them, and has the columns of the log.
IMPORT FOREIGN SCHEMA delta FROM SERVER on_cpu INTO cpu OPTIONS (path :'delta');
SET client_min_messages = error;
IMPORT FOREIGN SCHEMA delta FROM SERVER on_device INTO device OPTIONS (path :'delta');
RESET client_min_messages;
SELECT c.relname, t.ftoptions[2] AS format, string_agg(format('%s %s%s', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END), ', ' ORDER BY a.attnum) AS columns
FROM pg_class c JOIN pg_foreign_table t ON t.ftrelid = c.oid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'cpu'::regnamespace AND c.relname <> 'plain' GROUP BY 1, 2 ORDER BY 1;

-- The same rows in heap tables, from each file by itself.
CREATE SCHEMA single;
CREATE SCHEMA heap_delta;
SELECT format('CREATE FOREIGN TABLE single.%s (id integer, a integer, c text) SERVER on_cpu OPTIONS (path %L)', name, :'data' || '/' || name || '.parquet')
FROM unnest(ARRAY['t1', 't2', 't3']) name
\gexec
CREATE TABLE heap_delta.t AS SELECT id, a, c, NULL::date AS part FROM single.t2 UNION ALL SELECT id, a, c, '2024-02-29' FROM single.t3;
CREATE TABLE heap_delta.t0 AS SELECT id, a, c, '2024-02-29'::date AS part FROM single.t1;
CREATE TABLE heap_delta.wider AS SELECT id, a, c, NULL::date AS part, NULL::numeric(10,2) AS later FROM single.t1;
CREATE TABLE heap_delta.empty AS SELECT * FROM heap_delta.t LIMIT 0;
CREATE FOREIGN TABLE single.numbered (id integer, a integer, c text, place bigint OPTIONS (reads 'file_row_number'))
  SERVER on_cpu OPTIONS (path :'t1');
CREATE TABLE heap_delta.vector AS SELECT id, a, c, NULL::date AS part FROM single.numbered WHERE place NOT IN (2, 3, 60, 61, 62, 119);

-- Versions, by number and by time. The commits are of noon of the first days of 2026.
SELECT format('CREATE FOREIGN TABLE %1$I.t%2$s (id integer, a integer, c text, part date) SERVER on_%1$s OPTIONS (path %3$L, format ''delta'', %4$s)', schema, number, :'table', option)
FROM (VALUES ('cpu'), ('device')) s (schema), (VALUES ('0', 'version ''0'''), ('_time', 'timestamp ''2026-01-02 11:59'''), ('1', 'version ''1'''),
  ('9', 'version ''9'''), ('_early', 'timestamp ''2025-12-31 UTC''')) v (number, option)
\gexec

-- How many rows of each query differ from the heap's: none.
\i :abs_srcdir/include/differing.sql
CREATE FUNCTION differing(query text) RETURNS TABLE (engine text, different bigint) LANGUAGE sql AS
$$ SELECT * FROM differing_from(query, replace(replace(query, '@', 'heap_delta.'), '_time', '0')) $$;
SELECT query, engine, different FROM (VALUES
  ('SELECT id, a, c, part FROM @t'),
  ('SELECT part, count(*), min(id), max(id) FROM @t GROUP BY part'),
  ('SELECT count(*) FROM @t'),
  ('SELECT count(*) FROM @t WHERE part IS NULL AND a > 3'),
  ('SELECT id FROM @t WHERE part = ''2024-02-29'''),
  ('SELECT id, a, c, part FROM @t0'),
  ('SELECT id, a, c, part FROM @t_time'),
  ('SELECT x.id, y.part FROM @t x JOIN @t0 y USING (id)'),
  ('SELECT id, a, c, part, later FROM @wider'),
  ('SELECT count(later), count(*) FROM @wider WHERE later IS NULL'),
  ('SELECT id, a, c, part FROM @empty'),
  ('SELECT count(*), sum(id) FROM @empty'),
  ('SELECT id, a, c, part FROM @vector'),
  ('SELECT count(*) FROM @vector'),
  ('SELECT min(id), max(id), count(a) FROM @vector'),
  ('SELECT id FROM @vector WHERE id BETWEEN 55 AND 65'),
  ('SELECT id FROM @vector ORDER BY id DESC LIMIT 3'),
  -- A condition that fails for a row that is deleted.
  ('SELECT id FROM @vector WHERE 1 / (id - (SELECT id FROM single.numbered WHERE place = 60)) IS NULL')
) q (query), differing(query);

-- Files that conditions rule out by the log's statistics or partition values.
\i :abs_srcdir/include/analyzed.sql
CREATE FUNCTION files_of(query text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT analyzed(query, '^ *Files') $$;
SELECT files_of('SELECT a FROM cpu.t1 WHERE part IS NULL AND id = 7');
SELECT files_of('SELECT a FROM device.t1 WHERE id > 500');
SELECT files_of('SELECT a FROM device.t1 WHERE id IS NULL AND part > ''2024-12-31''');
SELECT files_of('SELECT a FROM cpu.t1 WHERE id < 500 OR part = ''2024-02-29''');

-- A statement sees one version; the next one sees the next.
PREPARE sums AS SELECT count(*), count(part) FROM cpu.t;
EXECUTE sums;
BEGIN;
DECLARE before CURSOR FOR SELECT count(*) FROM cpu.t;
\! cd "$PYSTACHIO_REGRESS_DATA/delta/t/_delta_log" && printf '{"add":{"path":"part=1999-01-01/a%%201.parquet","partitionValues":{"part":"2024-03-01"},"size":1,"modificationTime":0,"dataChange":true}}\n' > 00000000000000000003.json
FETCH before;
EXECUTE sums;
SELECT count(*), count(part) FROM cpu.t;
COMMIT;
EXECUTE sums;
SELECT engine, different FROM differing('SELECT id, a, c, part FROM @t0');
DEALLOCATE sums;

-- Versions that there are not.
SELECT count(*) FROM cpu.t9;
SELECT count(*) FROM device.t_early;

-- Logs that are damaged, or need more than can be read.
CREATE SCHEMA bad;
IMPORT FOREIGN SCHEMA delta_bad LIMIT TO (gap) FROM SERVER on_cpu INTO bad OPTIONS (path :'bad');
SELECT format('CREATE FOREIGN TABLE bad.%I (id integer%s) SERVER on_cpu OPTIONS (path %L, format ''delta'')', name, CASE name WHEN 'lying' THEN ', absent integer NOT NULL' END, :'bad' || '/' || name)
FROM unnest(ARRAY['gap', 'cut', 'feature', 'cardinality', 'beyond', 'away', 'gone', 'nothing', 'lying', 'checkpoint']) name
\gexec
SELECT sum(id) FROM bad.gap;
SELECT sum(id) FROM bad.cut;
SELECT sum(id) FROM bad.feature;
SELECT sum(id) FROM bad.cardinality;
SELECT sum(id) FROM bad.beyond;
SELECT sum(id) FROM bad.away;
SELECT sum(id) FROM bad.gone;
SELECT sum(id) FROM bad.nothing;
SELECT sum(absent) FROM bad.lying;
SELECT sum(id) FROM bad.checkpoint;

-- Options.
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'hudi');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', version '1');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'delta', version '-1');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'delta', version '1', timestamp '2026-01-01');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'delta', timestamp 'noon');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (paths '{/a,/b}', format 'delta');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path '/d{rank}', format 'delta');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'delta', writable 'true');
CREATE FOREIGN TABLE bad.plain (id integer) SERVER on_cpu OPTIONS (path :'table');
SELECT count(*) FROM bad.plain;
CREATE FOREIGN TABLE bad.other (id integer, absent integer) SERVER on_cpu OPTIONS (path :'table', format 'delta', version '0');
SELECT count(absent) FROM bad.other;

DROP FUNCTION differing, files_of;
SET client_min_messages = error;
DROP SERVER on_cpu CASCADE;
DROP SERVER on_device CASCADE;
DROP SCHEMA cpu, device, single, bad, heap_delta CASCADE;
\! rm -rf "$PYSTACHIO_REGRESS_DATA/delta" "$PYSTACHIO_REGRESS_DATA/delta_bad"
