--
-- Folders whose names give columns, and files of one table that differ. Each query over a heap table, on the CPU engine and on the
-- emulated device.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
\set lake :data '/lake'
\set sales :data '/lake/sales'
\set mixed_files :data '/lake/mixed'
\! rm -rf "$PYSTACHIO_REGRESS_DATA/lake" && mkdir -p "$PYSTACHIO_REGRESS_DATA/lake/sales/year=2023/kind=a%2Fb" "$PYSTACHIO_REGRESS_DATA/lake/sales/year=2024/kind=__HIVE_DEFAULT_PARTITION__" "$PYSTACHIO_REGRESS_DATA/lake/sales/year=2024/kind=c d" "$PYSTACHIO_REGRESS_DATA/lake/ints" "$PYSTACHIO_REGRESS_DATA/lake/numbers" "$PYSTACHIO_REGRESS_DATA/lake/moments" "$PYSTACHIO_REGRESS_DATA/lake/mixed" "$PYSTACHIO_REGRESS_DATA/lake/broken"
\! cd "$PYSTACHIO_REGRESS_DATA" && cp t1.parquet "lake/sales/year=2023/kind=a%2Fb/" && cp t2.parquet "lake/sales/year=2024/kind=__HIVE_DEFAULT_PARTITION__/" && cp t3.parquet "lake/sales/year=2024/kind=c d/" && touch lake/sales/_SUCCESS "lake/sales/year=2023/.part.crc"
\! cd "$PYSTACHIO_REGRESS_DATA" && cp edge_int2.parquet edge_int4.parquet edge_int8.parquet lake/ints && cp edge_int4.parquet edge_numeric_15_2.parquet edge_numeric_9_4.parquet lake/numbers && cp edge_date.parquet edge_timestamp.parquet lake/moments && cp edge_int4.parquet edge_text.parquet t1.parquet lake/mixed && echo junk > lake/broken/a.parquet
CREATE SERVER on_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SET pystachio.engine_choice = gpu;

-- What IMPORT makes of it, and what it says.
CREATE SCHEMA cpu;
CREATE SCHEMA device;
IMPORT FOREIGN SCHEMA lake FROM SERVER on_cpu INTO cpu OPTIONS (path :'lake');
SET client_min_messages = error;
IMPORT FOREIGN SCHEMA lake FROM SERVER on_device INTO device OPTIONS (path :'lake');
RESET client_min_messages;
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'cpu'::regnamespace AND (c.relname <> 'sales' OR a.attname IN ('id', 'year', 'kind'))
  AND (c.relname <> 'mixed' OR a.attname IN ('id', 'a', 'v')) ORDER BY 1, a.attnum;

-- The same rows in heap tables, from each file by itself.
CREATE SCHEMA single;
CREATE SCHEMA heap_lake;
SELECT format('CREATE FOREIGN TABLE single.%s (%s) SERVER on_cpu OPTIONS (path %L)', name, columns, :'data' || '/' || name || '.parquet')
FROM (VALUES ('t1', 'id integer, a integer, c text'), ('t2', 'id integer, a integer, c text'), ('t3', 'id integer, a integer, c text'),
  ('edge_int2', 'id integer, v smallint'), ('edge_int4', 'id integer, v integer'), ('edge_int8', 'id integer, v bigint'),
  ('edge_numeric_15_2', 'id integer, v numeric(15,2)'), ('edge_numeric_9_4', 'id integer, v numeric(9,4)'),
  ('edge_date', 'id integer, v date'), ('edge_timestamp', 'id integer, v timestamp')) f (name, columns)
\gexec
CREATE TABLE heap_lake.sales AS
  SELECT id, a, c, 2023 AS year, 'a/b' AS kind FROM single.t1
  UNION ALL SELECT id, a, c, 2024, NULL FROM single.t2 UNION ALL SELECT id, a, c, 2024, 'c d' FROM single.t3;
CREATE TABLE heap_lake.ints AS SELECT id, v::bigint AS v FROM single.edge_int2
  UNION ALL SELECT id, v FROM single.edge_int4 UNION ALL SELECT id, v FROM single.edge_int8;
CREATE TABLE heap_lake.numbers AS SELECT id, v::numeric(17,4) AS v FROM single.edge_int4
  UNION ALL SELECT id, v::numeric(17,4) FROM single.edge_numeric_15_2 UNION ALL SELECT id, v::numeric(17,4) FROM single.edge_numeric_9_4;

-- How many rows of each query differ from the heap's: none.
\i :abs_srcdir/include/differing.sql
CREATE FUNCTION differing(query text) RETURNS TABLE (engine text, different bigint) LANGUAGE sql AS
$$ SELECT * FROM differing_from(query, replace(query, '@', 'heap_lake.')) $$;
SELECT query, engine, different FROM (VALUES
  ('SELECT id, a, c, year, kind FROM @sales'),
  ('SELECT year, kind FROM @sales'),
  ('SELECT count(*) FROM @sales WHERE year = 2024'),
  ('SELECT id, kind FROM @sales WHERE year = 2023 AND id > 50'),
  ('SELECT id, year FROM @sales WHERE kind IS NULL'),
  ('SELECT id, year FROM @sales WHERE kind IS NOT NULL AND a > 3'),
  ('SELECT id FROM @sales WHERE kind IN (''a/b'', ''nothing'')'),
  ('SELECT id FROM @sales WHERE kind LIKE ''c%'' OR year < 2024'),
  ('SELECT id FROM @sales WHERE year <> 2023'),
  ('SELECT id FROM @sales WHERE year > 2030'),
  ('SELECT year, kind, count(*), sum(a), min(id), max(c) FROM @sales GROUP BY year, kind'),
  ('SELECT min(year), max(year), min(kind), max(kind), count(kind), sum(year) FROM @sales'),
  ('SELECT x.id, x.kind, y.kind AS other FROM @sales x JOIN @sales y ON x.id = y.id AND x.year = y.year - 1'),
  ('SELECT x.id FROM @sales x WHERE EXISTS (SELECT FROM @sales y WHERE y.kind = x.kind AND y.id = x.a)'),
  ('SELECT kind || year AS text FROM @sales WHERE length(kind) = 3'),
  ('SELECT id, v FROM @ints'),
  ('SELECT count(*), sum(v), min(v), max(v), count(v) FROM @ints'),
  ('SELECT id FROM @ints WHERE v > 40000'),
  ('SELECT id, v FROM @numbers'),
  ('SELECT v, count(*) FROM @numbers WHERE v > 0.5 GROUP BY v'),
  ('SELECT sum(v), max(v) FROM @numbers')) q (query), differing(query)
ORDER BY 1, 2;

-- Dates as timestamps; a date beyond the range of timestamps is an error, as of PostgreSQL's cast.
SELECT max(v) FROM cpu.moments;
SELECT format('CREATE FOREIGN TABLE %s (id integer, d %s) SERVER %s OPTIONS (path %L)', name, type, server, :'data' || '/t1.parquet')
FROM (VALUES ('dates', 'date', 'on_cpu'), ('moments_cpu', 'timestamp', 'on_cpu'), ('moments_device', 'timestamp', 'on_device')) f (name, type, server)
\gexec
SELECT count(*), count(x.d) FROM moments_cpu x JOIN moments_device y USING (id) JOIN dates z USING (id)
WHERE x.d IS NOT DISTINCT FROM y.d AND x.d IS NOT DISTINCT FROM z.d::timestamp;

-- A column that some files lack is NULL there; one that no file has is an error; so is one of two types.
SELECT count(*), count(a) FROM cpu.mixed;
SELECT count(*), count(a) FROM device.mixed;
CREATE FOREIGN TABLE mixed (id integer, a integer NOT NULL, b text, v text) SERVER on_device OPTIONS (path :'mixed_files');
SELECT sum(a) FROM mixed;
SELECT count(b) FROM mixed WHERE id > 0;
SELECT count(v) FROM mixed;
ALTER FOREIGN TABLE mixed ADD nowhere integer;
SELECT count(nowhere) FROM mixed;

-- What conditions leave, of constants and of parameters.
\i :abs_srcdir/include/analyzed.sql
CREATE FUNCTION files_of(query text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT analyzed(query, '^ *Files') $$;
SELECT files_of('SELECT sum(a) FROM cpu.sales WHERE year < 2024');
SELECT files_of('SELECT sum(a) FROM device.sales WHERE year < 2024');
SELECT files_of('SELECT sum(a) FROM device.sales WHERE kind IS NULL OR kind = ''a/b''');
SELECT files_of('SELECT sum(a) FROM device.sales WHERE year < 2024 AND kind IS NULL');
SELECT files_of('SELECT sum(a) FROM device.sales WHERE a < 2024');
PREPARE of_year(integer) AS SELECT count(*), sum(a), min(kind) FROM cpu.sales WHERE year = $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE of_year(2023);
EXECUTE of_year(2024);
EXECUTE of_year(NULL);
SELECT files_of('EXECUTE of_year(2023)');
RESET plan_cache_mode;

-- A table of a declared type that a folder's value is not of.
CREATE FOREIGN TABLE typed (id integer, year smallint, kind varchar(3)) SERVER on_cpu OPTIONS (path :'sales');
SELECT year, kind, count(*) FROM typed GROUP BY 1, 2 ORDER BY 1, 2;
ALTER FOREIGN TABLE typed ALTER kind TYPE integer;
SELECT count(kind) FROM typed;
SELECT count(*) FROM typed WHERE kind = 1;
ALTER FOREIGN TABLE typed ALTER kind TYPE varchar(2);
SELECT count(kind) FROM typed;
ALTER FOREIGN TABLE typed ALTER kind TYPE text, ALTER kind SET NOT NULL;
SELECT max(kind) FROM typed;
-- Under another name.
ALTER FOREIGN TABLE typed ADD y text OPTIONS (column_name 'YEAR'), DROP kind;
SELECT y, year, count(*) FROM typed GROUP BY 1, 2 ORDER BY 1;
ANALYZE typed;
SELECT attname, null_frac, n_distinct FROM pg_stats WHERE tablename = 'typed' AND attname IN ('y', 'year') ORDER BY 1;

-- The path of the file, and the number of the row in it.
CREATE FOREIGN TABLE named_on_cpu (id integer, path text OPTIONS (reads 'filename'), n bigint OPTIONS (reads 'file_row_number'), year integer)
  SERVER on_cpu OPTIONS (path :'sales');
CREATE FOREIGN TABLE named_on_device (id integer, path text OPTIONS (reads 'filename'), n bigint OPTIONS (reads 'file_row_number'), year integer)
  SERVER on_device OPTIONS (path :'sales');
SELECT right(path, 11) AS name, min(n), max(n), count(DISTINCT n), sum(n), bool_and(id = n + 1) AS in_order FROM named_on_cpu GROUP BY path ORDER BY 1;
SELECT right(path, 11) AS name, min(n), max(n), count(DISTINCT n), sum(n), bool_and(id = n + 1) AS in_order FROM named_on_device GROUP BY path ORDER BY 1;
SELECT id, n FROM named_on_cpu WHERE n BETWEEN 62 AND 66 AND year = 2023 ORDER BY id;
SELECT id, n FROM named_on_device WHERE n BETWEEN 62 AND 66 AND year = 2023 ORDER BY id;
SELECT count(*) FROM named_on_cpu WHERE path LIKE '%/t2.parquet';
SELECT path = :'sales' || '/year=2023/kind=a%2Fb/t1.parquet' AS same, count(*) FROM named_on_device
WHERE path = :'sales' || '/year=2023/kind=a%2Fb/t1.parquet' GROUP BY 1;
ALTER FOREIGN TABLE named_on_cpu ALTER n TYPE integer;
SELECT max(n) FROM named_on_cpu;
ALTER FOREIGN TABLE named_on_cpu ALTER path TYPE bytea;
SELECT path FROM named_on_cpu LIMIT 1;
CREATE FOREIGN TABLE refused (n bigint OPTIONS (reads 'rows')) SERVER on_cpu OPTIONS (path :'sales');
CREATE FOREIGN TABLE refused (n bigint OPTIONS (reads 'filename', column_name 'n')) SERVER on_cpu OPTIONS (path :'sales');

\! rm -rf "$PYSTACHIO_REGRESS_DATA/lake"
SET client_min_messages = warning;
DROP FUNCTION differing, files_of;
DROP SCHEMA single, heap_lake CASCADE;
DROP SERVER on_cpu CASCADE;
DROP SERVER on_device CASCADE;
DROP SCHEMA cpu, device;
