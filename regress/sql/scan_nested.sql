--
-- Structs, maps and lists of them as jsonb and json. Each query over a heap table, on the CPU engine and on the emulated device.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv abs_srcdir PG_ABS_SRCDIR
\set file :data '/nested.parquet'
CREATE SERVER on_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SET pystachio.engine_choice = gpu;
CREATE SCHEMA cpu;
CREATE SCHEMA device;
CREATE SCHEMA heap_nested;
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER on_cpu INTO cpu OPTIONS (path :'data');
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER on_device INTO device OPTIONS (path :'data');
SELECT attname, format_type(atttypid, atttypmod) AS type, attnotnull FROM pg_attribute
WHERE attrelid = 'cpu.nested'::regclass AND attnum > 0 ORDER BY attnum;
CREATE TABLE heap_nested.nested AS SELECT * FROM cpu.nested LIMIT 0;
\copy heap_nested.nested FROM PROGRAM 'cat "$PG_ABS_SRCDIR/data/nested.csv"' (FORMAT csv)
SELECT id, every FROM cpu.nested ORDER BY id;
SELECT id, points, lists, words, numbers, flat, deep FROM device.nested ORDER BY id;

-- How many rows of each query differ from the heap's: none.
\i :abs_srcdir/include/differing.sql
CREATE FUNCTION differing(query text) RETURNS TABLE (engine text, different bigint) LANGUAGE sql AS
$$ SELECT * FROM differing_from(query, replace(query, '@', 'heap_nested.')) $$;
SELECT query, engine, different FROM (VALUES
  ('SELECT * FROM @nested'),
  ('SELECT id, points FROM @nested WHERE points IS NOT NULL'),
  ('SELECT count(*), count(every), count(points) AS p, count(words) FILTER (WHERE deep IS NULL) AS w FROM @nested'),
  ('SELECT id, every->>''t'' AS t, (every->>''u8'')::numeric AS u, deep #>> ''{one,two,three}'' AS d FROM @nested'),
  ('SELECT id, e FROM @nested, jsonb_array_elements(points) e'),
  ('SELECT id, every->>''t'' AS t FROM @nested WHERE every->>''t'' < ''b'''),
  ('SELECT (every->>''n'')::numeric AS n, (every->>''d'')::date AS d, (every->>''ts'')::timestamp AS ts, (every->>''tz'')::timestamptz AS tz, (every->>''b'')::boolean AS b FROM @nested'),
  ('SELECT sum((every->>''u4'')::bigint) AS s, count(every->>''i8'') AS c, min(every->>''i1'') AS m, max((every->>''i1'')::bigint) AS b FROM @nested'),
  ('SELECT deep[''one''][''two'']->>''three'' AS three, (deep[''one'']#>''{two}''->>''three'')::bigint AS b FROM @nested'),
  ('SELECT deep #>> ''{one,two,three}'' AS three, count(*) AS c FROM @nested GROUP BY 1'),
  ('SELECT id FROM @nested WHERE (deep->''one''->''two''->>''three'')::bigint > 2'),
  ('SELECT id FROM @nested WHERE every->>''T'' IS NULL AND every->>''t'' IS NOT NULL'),
  ('SELECT (flat->>''r'')::bigint AS r, flat->>''o'' AS o, every->>''f8'' AS f, (every->>''f4'')::real AS f4 FROM @nested'),
  ('SELECT a.id, b.flat->>''o'' AS o, (b.every->>''n'')::numeric(12,3) AS n FROM @nested a LEFT JOIN @nested b ON a.id = b.id + 2 AND (b.flat->>''r'')::int > 0'),
  ('SELECT a.id FROM @nested a WHERE NOT EXISTS (SELECT FROM @nested b WHERE b.flat->>''o'' = a.flat->>''o'' AND b.id <> a.id)'),
  ('SELECT key, value FROM @nested, jsonb_each(words)'),
  ('SELECT id FROM @nested WHERE jsonb_contains(every, ''{"b": true}'') OR lists ? ''a'''),
  ('SELECT lists, count(*) FROM @nested GROUP BY lists'),
  ('SELECT DISTINCT deep FROM @nested'),
  ('SELECT count(DISTINCT numbers) AS n, max(words::text) AS w FROM @nested'),
  ('SELECT a.id, b.id AS other FROM @nested a JOIN @nested b ON a.lists = b.lists'),
  ('SELECT coalesce(points, lists) AS c, CASE WHEN id < 3 THEN words END AS w, nullif(deep, ''{"one": null}'') AS d FROM @nested'),
  ('SELECT coalesce(points, ''[7]'') AS c, concat(points, lists) AS t, points::text AS p FROM @nested'),
  ('SELECT id, (SELECT b.points FROM @nested b WHERE b.id = a.id + 1) AS next FROM @nested a'),
  ('SELECT points FROM @nested UNION SELECT lists FROM @nested'),
  ('(SELECT id, every FROM @nested ORDER BY id DESC LIMIT 2)'),
  ('SELECT id, words FROM @nested ORDER BY words, id OFFSET 1')) q (query), differing(query);
-- NULL tests and counts are the engine's; what compares or takes values apart is PostgreSQL's.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, every FROM cpu.nested WHERE points IS NOT NULL;
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(every) FROM cpu.nested;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM cpu.nested WHERE deep->'one' = 'null';
-- A field of a struct is read instead of the JSON.
EXPLAIN (VERBOSE, COSTS OFF) SELECT flat->>'o', count(*) FROM cpu.nested WHERE (flat->>'r')::integer > 0 AND deep #>> '{one,two,three}' IS NULL GROUP BY flat->>'o';
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, every->>'t' AS t FROM cpu.nested ORDER BY id;
-- Parameters, and statistics.
PREPARE given(jsonb) AS SELECT id, $1 AS given FROM cpu.nested WHERE deep = $1;
EXECUTE given('{"one": null}');
DEALLOCATE given;
ANALYZE cpu.nested;
SELECT attname, null_frac FROM pg_stats WHERE schemaname = 'cpu' ORDER BY attname;

-- json has the text as it is made.
CREATE FOREIGN TABLE plain (id integer, every json, points json, words json, numbers json) SERVER on_cpu OPTIONS (path :'file');
SELECT id, points, words, numbers FROM plain ORDER BY id;
SELECT every FROM plain WHERE id = 3;
SELECT count(*) FROM plain p JOIN heap_nested.nested h USING (id)
WHERE (p.every::jsonb, p.points::jsonb, p.words::jsonb, p.numbers::jsonb) IS DISTINCT FROM (h.every, h.points, h.words, h.numbers);
-- Domains, arrays of single values, and texts.
CREATE DOMAIN small_map AS jsonb CHECK (NOT VALUE ? 'b');
CREATE FOREIGN TABLE checked (id integer, words small_map) SERVER on_cpu OPTIONS (path :'file');
SELECT id, words FROM checked WHERE id < 4 ORDER BY id;
SELECT words FROM checked WHERE id = 4;
\set file :data '/edge_int4_array.parquet'
CREATE FOREIGN TABLE of_array (id integer, v jsonb) SERVER on_cpu OPTIONS (path :'file');
SELECT id, v FROM of_array ORDER BY id;
\set file :data '/form_json.parquet'
CREATE FOREIGN TABLE of_text (id integer, v jsonb) SERVER on_device OPTIONS (path :'file');
SELECT id, v, v->'a' AS a FROM of_text ORDER BY id;
\set file :data '/edge_text_array.parquet'
CREATE FOREIGN TABLE of_texts (id integer, v jsonb[]) SERVER on_cpu OPTIONS (path :'file');
SELECT id, v FROM of_texts WHERE id < 3 ORDER BY id;
SELECT id, v FROM of_texts WHERE id = 3;
\set file :data '/edge_text.parquet'
CREATE FOREIGN TABLE of_words (id integer, v jsonb) SERVER on_cpu OPTIONS (path :'file');
SELECT v FROM of_words WHERE id = 5;
SELECT count(v) FROM of_words;
-- Types that a nested value is not.
\set file :data '/nested.parquet'
CREATE FOREIGN TABLE wrong (every text, points integer[]) SERVER on_cpu OPTIONS (path :'file');
SELECT every FROM wrong;
SELECT points FROM wrong;
-- Fields of structs as columns: conditions, joins, groups and statistics are the engine's.
CREATE FUNCTION fields(schema text, server text, file text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE FOREIGN TABLE %I.fields (id integer, b boolean OPTIONS (column_name ''every.b''), i1 smallint OPTIONS (column_name ''every.i1''),
    u4 bigint OPTIONS (column_name ''every.u4''), u8 numeric(20,0) OPTIONS (column_name ''every.u8''), f2 real OPTIONS (column_name ''every.f2''),
    f8 double precision OPTIONS (column_name ''every.f8''), n numeric(12,3) OPTIONS (column_name ''every.n''), t text OPTIONS (column_name ''Every.T''),
    d date OPTIONS (column_name ''every.d''), ts timestamp OPTIONS (column_name ''every.ts''), tz timestamptz OPTIONS (column_name ''every.tz''),
    tm time OPTIONS (column_name ''every.tm''), y bytea OPTIONS (column_name ''every.by''), one jsonb OPTIONS (column_name ''deep.one''),
    r integer OPTIONS (column_name ''flat.r''), o text OPTIONS (column_name ''flat.o''), two jsonb OPTIONS (column_name ''deep.one.two''), three bigint OPTIONS (column_name ''deep.one.two.three''), deep jsonb)
    SERVER %I OPTIONS (path %L)', schema, server, file);
END $$;
\set file :data '/nested.parquet'
SELECT fields('cpu', 'on_cpu', :'file'), fields('device', 'on_device', :'file');
CREATE VIEW heap_nested.fields AS SELECT id, (every->>'b')::boolean AS b, (every->>'i1')::smallint AS i1, (every->>'u4')::bigint AS u4,
  (every->>'u8')::numeric(20,0) AS u8, (every->>'f2')::real AS f2, (every->>'f8')::double precision AS f8, (every->>'n')::numeric(12,3) AS n,
  every->>'t' AS t, (every->>'d')::date AS d, (every->>'ts')::timestamp AS ts, (every->>'tz')::timestamptz AS tz, (every->>'tm')::time AS tm,
  (every->>'by')::bytea AS y, nullif(deep->'one', 'null') AS one, (flat->>'r')::integer AS r, flat->>'o' AS o, nullif(deep#>'{one,two}', 'null') AS two,
  (deep#>>'{one,two,three}')::bigint AS three, deep FROM heap_nested.nested;
SELECT query, engine, different FROM (VALUES
  ('SELECT * FROM @fields'),
  ('SELECT three, two, deep, id, t FROM @fields'),
  ('SELECT id, three FROM @fields WHERE three > 2'),
  ('SELECT id FROM @fields WHERE t < ''b'' AND u4 = 4294967295'),
  ('SELECT id FROM @fields WHERE three IS NULL'),
  ('SELECT count(*), count(three) AS c, sum(three) AS s, max(d) AS d, min(n) AS n FROM @fields'),
  ('SELECT sum(r) AS r, count(*) AS c FROM @fields WHERE r IS NULL OR r > 0'),
  ('SELECT b, count(*) AS c FROM @fields GROUP BY b'),
  ('SELECT a.id, b.id AS other FROM @fields a JOIN @fields b ON a.t = b.t AND a.n = b.n')) q (query), differing(query);
EXPLAIN (VERBOSE, COSTS OFF) SELECT n, count(*) FROM cpu.fields WHERE three IS NULL AND d > '2024-01-01' GROUP BY n;
-- A device reads fields of which one level may be NULL.
\i :abs_srcdir/include/analyzed.sql
SELECT ran_on('SELECT sum(r) FROM device.fields WHERE r IS NULL OR r > 0');
SELECT ran_on('SELECT o FROM device.fields');
SELECT ran_on('SELECT flat FROM device.nested');
SELECT ran_on('SELECT sum((flat->>''r'')::integer) FROM device.nested');
-- Statistics of a field rule row groups out.
CREATE FUNCTION pruned(query text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT analyzed(query, '^ *Row Groups') $$;
SELECT pruned('SELECT id FROM cpu.fields WHERE three > 5');
SELECT pruned('SELECT id FROM cpu.fields WHERE i1 < 0');
SELECT pruned('SELECT id FROM cpu.nested WHERE (every->>''i1'')::smallint < 0');
-- Names of no field, of what is within lists and maps, and of a type that does not fit.
CREATE FOREIGN TABLE nowhere (a integer OPTIONS (column_name 'every.none')) SERVER on_cpu OPTIONS (path :'file');
SELECT * FROM nowhere;
CREATE FOREIGN TABLE within (a integer OPTIONS (column_name 'points.x')) SERVER on_cpu OPTIONS (path :'file');
SELECT * FROM within;
CREATE FOREIGN TABLE unlike (a integer OPTIONS (column_name 'every.t')) SERVER on_cpu OPTIONS (path :'file');
SELECT * FROM unlike;
CREATE FOREIGN TABLE never_null (a bigint OPTIONS (column_name 'deep.one.two.three') NOT NULL) SERVER on_cpu OPTIONS (path :'file');
SELECT * FROM never_null;

-- Enums: equality and order are PostgreSQL's.
CREATE TYPE code AS ENUM ('zz', 'x ', ' x', 'a', 'ab', 'b', 'abc', 'B', '', '%', 'foo bar', 'special requests', 'ä');
CREATE TYPE code_too_few AS ENUM ('a', 'b');
\set file :data '/t1.parquet'
CREATE FOREIGN TABLE coded (id integer, c code, a integer) SERVER on_device OPTIONS (path :'file');
CREATE FOREIGN TABLE spelled (id integer, c text) SERVER on_cpu OPTIONS (path :'file');
SELECT count(*), count(*) FILTER (WHERE k.c::text IS DISTINCT FROM s.c) AS different FROM coded k JOIN spelled s USING (id);
SELECT c, count(*), sum(a) FROM coded WHERE c < 'b' GROUP BY c ORDER BY c;
EXPLAIN (VERBOSE, COSTS OFF) SELECT max(a), count(c) FROM coded WHERE c IS NOT NULL;
EXPLAIN (VERBOSE, COSTS OFF) SELECT c FROM coded WHERE c = 'a' ORDER BY c;
CREATE FOREIGN TABLE coded_wrong (id integer, c code_too_few) SERVER on_cpu OPTIONS (path :'file');
SELECT c FROM coded_wrong WHERE id = 2;
RESET pystachio.engine_choice;
SET client_min_messages = warning;
DROP DOMAIN small_map CASCADE;
DROP TYPE code, code_too_few CASCADE;
DROP FUNCTION differing, fields, pruned;
DROP SCHEMA cpu, device, heap_nested CASCADE;
DROP SERVER on_cpu CASCADE;
DROP SERVER on_device CASCADE;
