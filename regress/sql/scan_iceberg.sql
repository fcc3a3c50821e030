--
-- Tables of Iceberg: snapshots, what their manifests rule out, metadata that are damaged. Each on the CPU engine and on the emulated device.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
\set iceberg :data '/iceberg'
\set table :data '/iceberg/t'
\set metadata :data '/iceberg/t/metadata/v2.metadata.json'
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\set deletes :scratch '/iceberg_deletes.parquet'
\set bad :data '/iceberg_bad'
\set t1 :data '/t1.parquet'
\! python3 "$PG_ABS_SRCDIR/include/iceberg.py" "$PYSTACHIO_REGRESS_DATA"
SET TimeZone = 'UTC';
CREATE SERVER on_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SET pystachio.engine_choice = gpu;
CREATE SCHEMA cpu;
CREATE SCHEMA device;
SELECT row_count FROM pystachio.write_parquet($$SELECT 'file:///elsewhere/positions/t1.parquet' AS file_path, unnest(ARRAY[0, 59, 119])::bigint AS pos UNION ALL SELECT 'file:///elsewhere/positions/other.parquet', 7$$, :'deletes', overwrite => true);
\! cp "$PYSTACHIO_REGRESS_SCRATCH/iceberg_deletes.parquet" "$PYSTACHIO_REGRESS_DATA/iceberg/positions/deletes.parquet"

-- IMPORT recognizes them, and has the columns of the current schema.
IMPORT FOREIGN SCHEMA iceberg FROM SERVER on_cpu INTO cpu OPTIONS (path :'iceberg');
SET client_min_messages = error;
IMPORT FOREIGN SCHEMA iceberg FROM SERVER on_device INTO device OPTIONS (path :'iceberg');
RESET client_min_messages;
SELECT c.relname, t.ftoptions[2] AS format, string_agg(format('%s %s%s', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END), ', ' ORDER BY a.attnum) AS columns
FROM pg_class c JOIN pg_foreign_table t ON t.ftrelid = c.oid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'cpu'::regnamespace GROUP BY 1, 2 ORDER BY 1;

-- The same rows in heap tables, from each file by itself.
CREATE SCHEMA single;
CREATE SCHEMA heap_iceberg;
SELECT format('CREATE FOREIGN TABLE single.%s (id integer, a integer, c text) SERVER on_cpu OPTIONS (path %L)', name, :'data' || '/' || name || '.parquet')
FROM unnest(ARRAY['t1', 't2', 't3']) name
\gexec
CREATE TABLE heap_iceberg.t AS SELECT id, a, c, NULL::date AS part FROM single.t2 UNION ALL SELECT id, a, c, '2024-02-29' FROM single.t3;
CREATE TABLE heap_iceberg.t101 AS SELECT id, a, c, '2024-02-29'::date AS part FROM single.t1;
CREATE TABLE heap_iceberg.t102 AS TABLE heap_iceberg.t101 UNION ALL SELECT id, a, c, NULL FROM single.t2 UNION ALL SELECT id, a, c, '2025-01-01' FROM single.t1;
CREATE TABLE heap_iceberg.wider AS SELECT id, a, c, NULL::date AS part, NULL::numeric(10,2) AS later, 7::bigint AS seven FROM single.t1;
CREATE TABLE heap_iceberg.empty AS SELECT * FROM heap_iceberg.t LIMIT 0;
CREATE FOREIGN TABLE single.numbered (id integer, a integer, c text, place bigint OPTIONS (reads 'file_row_number'))
  SERVER on_cpu OPTIONS (path :'t1');
CREATE TABLE heap_iceberg.vector AS SELECT id, a, c, NULL::date AS part FROM single.numbered WHERE place NOT IN (2, 3, 60, 61, 62, 119);
CREATE TABLE heap_iceberg.positions AS SELECT id, a, c, NULL::date AS part FROM single.numbered WHERE place NOT IN (0, 59, 119);

-- Snapshots, by number, by name and by time. The commits are of noon of the first days of 2026.
SELECT format('CREATE FOREIGN TABLE %1$I.t%2$s (id integer, a integer, c text, part date) SERVER on_%1$s OPTIONS (path %3$L, format ''iceberg''%4$s)', schema, number, path, option)
FROM (VALUES ('cpu'), ('device')) s (schema), (VALUES ('101', :'table', ', version ''101'''), ('_time', :'table', ', timestamp ''2026-01-02 11:59'''),
  ('102', :'table', ', version ''102'''), ('_tag', :'table', ', version ''first'''), ('_file', :'metadata', ''), ('109', :'table', ', version ''109'''),
  ('_early', :'table', ', timestamp ''2025-12-31 UTC'''), ('_branch', :'table', ', version ''nowhere''')) v (number, path, option)
\gexec

-- How many rows of each query differ from the heap's: none.
\i :abs_srcdir/include/differing.sql
CREATE FUNCTION differing(query text) RETURNS TABLE (engine text, different bigint) LANGUAGE sql AS
$$ SELECT * FROM differing_from(query, regexp_replace(replace(query, '@', 'heap_iceberg.'), 't_time|t_tag', 't101')) $$;
SELECT query, engine, different FROM (VALUES
  ('SELECT id, a, c, part FROM @t'),
  ('SELECT part, count(*), min(id), max(id) FROM @t GROUP BY part'),
  ('SELECT count(*) FROM @t'),
  ('SELECT count(*) FROM @t WHERE part IS NULL AND a > 3'),
  ('SELECT id FROM @t WHERE part = ''2024-02-29'''),
  ('SELECT min(part), max(part), count(part) FROM @t102'),
  ('SELECT id, a, c, part FROM @t101'),
  ('SELECT id, a, c, part FROM @t102'),
  ('SELECT id, a, c, part FROM @t_time'),
  ('SELECT id, a, c, part FROM @t_tag'),
  ('SELECT x.id, y.part FROM @t x JOIN @t101 y USING (id)'),
  ('SELECT id, a, c, part, later, seven FROM @wider'),
  ('SELECT count(later), count(*), sum(seven), min(seven) FROM @wider WHERE later IS NULL'),
  ('SELECT count(*) FROM @wider WHERE seven <> 7 OR seven IS NULL'),
  ('SELECT id, a, c, part FROM @empty'),
  ('SELECT count(*), sum(id) FROM @empty'),
  ('SELECT id, a, c, part FROM @vector'),
  ('SELECT count(*) FROM @vector'),
  ('SELECT min(id), max(id), count(a) FROM @vector'),
  ('SELECT id FROM @vector WHERE id BETWEEN 55 AND 65'),
  ('SELECT id FROM @vector ORDER BY id DESC LIMIT 3'),
  ('SELECT id, a, c, part FROM @positions'),
  ('SELECT count(*), min(id), max(id) FROM @positions'),
  -- A condition that fails for a row that is deleted.
  ('SELECT id FROM @vector WHERE 1 / (id - (SELECT id FROM single.numbered WHERE place = 60)) IS NULL')
) q (query), differing(query);

-- Plans name the snapshot that they were made for.
EXPLAIN (COSTS OFF) SELECT id FROM cpu.t WHERE part IS NULL;
EXPLAIN (COSTS OFF) SELECT id FROM cpu.empty;

-- Files that conditions rule out by the bounds and partition values of manifests.
\i :abs_srcdir/include/analyzed.sql
CREATE FUNCTION files_of(query text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT analyzed(query, '^ *Files') $$;
SELECT files_of('SELECT a FROM cpu.t102 WHERE part IS NULL AND id = 7');
SELECT files_of('SELECT a FROM device.t102 WHERE id > 500');
SELECT files_of('SELECT a FROM device.t102 WHERE id IS NOT NULL AND part > ''2024-12-31''');
SELECT files_of('SELECT a FROM cpu.t102 WHERE id < 500 OR part = ''2024-02-29''');

-- A statement sees one snapshot; the next one sees the next. A metadata file as the path stays what it is.
PREPARE sums AS SELECT count(*), count(part) FROM cpu.t;
EXECUTE sums;
BEGIN;
DECLARE before CURSOR FOR SELECT count(*) FROM cpu.t;
\! python3 "$PG_ABS_SRCDIR/include/iceberg.py" "$PYSTACHIO_REGRESS_DATA" next
FETCH before;
EXECUTE sums;
SELECT count(*), count(part) FROM cpu.t;
COMMIT;
EXECUTE sums;
SELECT count(*), count(part) FROM cpu.t_file;
SELECT engine, different FROM differing('SELECT id, a, c, part FROM @t101');
DEALLOCATE sums;

-- Snapshots that there are not.
SELECT count(*) FROM cpu.t109;
SELECT count(*) FROM device.t_early;
SELECT count(*) FROM device.t_branch;

-- Metadata that are damaged, or need more than can be read.
CREATE SCHEMA bad;
IMPORT FOREIGN SCHEMA iceberg_bad LIMIT TO (orc) FROM SERVER on_cpu INTO bad OPTIONS (path :'bad');
SELECT format('CREATE FOREIGN TABLE bad.%I (id integer) SERVER on_cpu OPTIONS (path %L, format ''iceberg'')', name, :'bad' || '/' || name)
FROM unnest(ARRAY['later', 'orc', 'away', 'gone', 'unnamed', 'cardinality', 'beyond', 'cut', 'manifest', 'two', 'nothing']) name
\gexec
SELECT sum(id) FROM bad.later;
SELECT sum(id) FROM bad.orc;
SELECT sum(id) FROM bad.away;
SELECT sum(id) FROM bad.gone;
SELECT sum(id) FROM bad.unnamed;
SELECT sum(id) FROM bad.cardinality;
SELECT sum(id) FROM bad.beyond;
SELECT sum(id) FROM bad.cut;
SELECT sum(id) FROM bad.manifest;
SELECT sum(id) FROM bad.two;
SELECT sum(id) FROM bad.nothing;

-- Options.
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'iceberg', version '-1');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'iceberg', version '1', timestamp '2026-01-01');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (paths '{/a,/b}', format 'iceberg');
CREATE FOREIGN TABLE bad.o (id integer) SERVER on_cpu OPTIONS (path :'table', format 'iceberg', writable 'true');
CREATE FOREIGN TABLE bad.plain (id integer) SERVER on_cpu OPTIONS (path :'table');
SELECT count(*) FROM bad.plain;

DROP FUNCTION differing, files_of;
SET client_min_messages = error;
DROP SERVER on_cpu CASCADE;
DROP SERVER on_device CASCADE;
DROP SCHEMA cpu, device, single, bad, heap_iceberg CASCADE;
\! rm -rf "$PYSTACHIO_REGRESS_SCRATCH/iceberg_deletes.parquet" "$PYSTACHIO_REGRESS_DATA/iceberg" "$PYSTACHIO_REGRESS_DATA/iceberg_bad"
