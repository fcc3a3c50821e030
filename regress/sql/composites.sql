--
-- Structs as composite values, lists of structs as arrays of them: read, written, and fields that are the engine's.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SET search_path = public, pq;
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TYPE place AS (street text, number integer, zip char(6));
CREATE TYPE person AS (name varchar(10), born date, paid numeric(9,2), home place, tags text[], score double precision, raw json, moment timestamptz, key uuid, p positive);
CREATE TYPE item AS (product text, amount smallint, price numeric(8,3), made_at place);
\set columns 'id integer NOT NULL, x integer, who person, items item[], home place NOT NULL'
CREATE TABLE heap.orders (:columns);
INSERT INTO heap.orders
SELECT i, i % 5,
  CASE i % 7
    WHEN 0 THEN NULL::person
    WHEN 1 THEN ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::person
    WHEN 2 THEN ROW('', 'infinity', 0, ROW(NULL, NULL, NULL), '{}', 'NaN', '{"a":  1}', '-infinity', '00000000-0000-0000-0000-000000000000', 1)::person
    ELSE ROW('n' || i % 4, date '2024-02-27' + i % 5, (i % 9) / 4.0, ROW('s ' || i % 3, i % 6, chr(97 + i % 3)), ARRAY['a', NULL, chr(97 + i % 5)],
      i / 8.0, to_json(i), timestamptz '2024-03-31 00:00+00' + i * interval '1 hour', ('00000000-0000-0000-0000-00000000000' || i % 3)::uuid, NULL)::person
  END,
  CASE i % 6
    WHEN 0 THEN NULL::item[]
    WHEN 1 THEN '{}'
    WHEN 2 THEN ARRAY[NULL, ROW(NULL, NULL, NULL, NULL)]::item[]
    ELSE ARRAY[ROW('p' || i % 4, i % 8, i / 8.0, ROW('"q"', i, '')), ROW('ä€😀', -1, -0.125, NULL)]::item[]
  END,
  ROW(CASE WHEN i % 4 > 0 THEN 's ' || i % 3 END, NULLIF(i % 6, 5), 'z')::place
FROM generate_series(1, 300) i;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM heap.orders', :'scratch' || '/composites/orders.parquet', overwrite => true);
\set folder :scratch '/composites'
\set orders :scratch '/composites/orders.parquet'
CREATE TABLE heap.orders_before AS SELECT id, (home).street, (home).number FROM heap.orders;
CREATE FOREIGN TABLE pq.orders (:columns) SERVER pystachio OPTIONS (path :'folder');

SELECT same($$SELECT * FROM orders$$);
SELECT same($$SELECT o FROM orders o$$);
SELECT same($$SELECT id, who FROM orders WHERE who IS NULL$$);
SELECT same($$SELECT id, who IS NULL, who IS NOT NULL, who IS DISTINCT FROM NULL, home IS NULL, items IS NULL FROM orders$$);
SELECT same($$SELECT count(*), count(who), count(items), count(home), count((who).home) FROM orders$$);
SELECT same($$SELECT (who).* FROM orders$$);
SELECT same($$SELECT id, ((who).home).street, (who).home, (who).tags, (who).tags[1], (home).zip || '|', (who).raw::text FROM orders$$);
SELECT same($$SELECT id FROM orders WHERE (who).name = 'n1' AND ((who).home).number > 2$$);
SELECT same($$SELECT id FROM orders WHERE (who).name IS NULL OR (who).born = 'infinity'$$);
SELECT same($$SELECT (who).name, count(*), sum((who).paid), min((who).born), max(((who).home).number), avg((who).paid) FROM orders GROUP BY (who).name$$);
SELECT same($$SELECT (who).paid + 1, (who).score * 2, upper((who).name), (who).born + x, (who).moment - interval '1 day', (who).p + 1 FROM orders$$);
SELECT same($$SELECT DISTINCT ((who).home).zip, (home).zip FROM orders$$);
SELECT same($$SELECT a.id, b.id FROM orders a JOIN orders b ON ((a.who).home).street = (b.home).street AND (a.who).paid = b.x WHERE a.id < 60 AND b.id < 60$$);
SELECT same($$SELECT a.id, (b.who).name, b.who, (b.home).street, b.items FROM orders a LEFT JOIN orders b ON (b.who).key = (a.who).key AND b.id = a.id + 7$$);
SELECT same($$SELECT id FROM orders a WHERE NOT EXISTS (SELECT FROM orders b WHERE (b.who).name = (a.who).name AND b.id <> a.id)$$);
SELECT same($$SELECT (who).born, (who).name FROM orders WHERE (who).born < '2024-03-01' ORDER BY (who).name COLLATE "C", (who).born, id LIMIT 9$$);
SELECT same($$SELECT id, items[1], (items[1]).product, (items[2]).price, ((items[1]).made_at).number, cardinality(items), items[2:3] FROM orders$$);
SELECT same($$SELECT id, i FROM orders, unnest(items) i$$);
SELECT same($$SELECT id, i.product, i.price, (i.made_at).number FROM orders, unnest(items) i WHERE i.amount > 2$$);
SELECT same($$SELECT id, i.*, n FROM orders LEFT JOIN unnest(items) WITH ORDINALITY AS i (product, amount, price, made_at, n) ON true$$);
SELECT same($$SELECT product, count(*), sum(price) FROM orders, unnest(items) GROUP BY product$$);
SELECT same($$SELECT id, unnest(items) FROM orders$$);
SELECT same($$SELECT home, count(*) FROM orders GROUP BY home$$);
SELECT same($$SELECT DISTINCT who FROM orders WHERE who IS NOT NULL$$);
SELECT same($$SELECT a.id, b.id FROM orders a JOIN orders b ON a.home = b.home AND a.id < b.id WHERE b.id < 50$$);
SELECT same($$SELECT id, home FROM orders ORDER BY home, id LIMIT 5$$);
SELECT same($$SELECT id FROM orders WHERE home = ROW('s 1', 1, 'z')::place OR who IN (SELECT who FROM orders WHERE id = 3)$$);
SELECT same($$SELECT coalesce(who, ROW('none', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::person), CASE WHEN x = 1 THEN home END, nullif(home, home) FROM orders$$);
SELECT same($$SELECT to_jsonb(who), row_to_json(home), items::text FROM orders$$);
SELECT same($$SELECT x, array_agg(home ORDER BY id), max((home).number) FROM orders GROUP BY x$$);
SELECT same($$SELECT (s.w).name, s.w FROM (SELECT who AS w, id FROM orders OFFSET 0) s WHERE (s.w).name > 'n'$$);
SELECT same($$SELECT (SELECT (b.who).name FROM orders b WHERE b.id = a.id + 1), (a.home).street FROM orders a$$);
SELECT same($$SELECT id FROM orders WHERE (who).name = ANY (ARRAY['n1', 'n3']) AND (who).home IS NOT NULL$$);
SELECT same($$SELECT id, 1 / (home).number FROM orders$$);
SELECT same($$SELECT who FROM orders UNION SELECT who FROM orders WHERE x = 1$$);
ANALYZE pq.orders;
SELECT attname, null_frac FROM pg_stats WHERE schemaname = 'pq' AND tablename = 'orders' ORDER BY attname;
PREPARE named (text) AS SELECT count(*) FROM pq.orders WHERE (who).name = $1;
EXECUTE named('n2');
SET plan_cache_mode = force_generic_plan;
EXECUTE named('n2');
-- Only leaves that are needed are read; fields are the engine's.
SELECT public.pushed($$SELECT (who).name, count(*) FROM orders WHERE ((who).home).number > 1 GROUP BY (who).name$$);
SELECT public.pushed($$SELECT a.id FROM orders a JOIN orders b ON ((a.who).home).street = (b.home).street$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT (who).name, (who).paid FROM pq.orders WHERE (home).zip = 'z';
EXPLAIN (VERBOSE, COSTS OFF) SELECT home FROM pq.orders WHERE home IS NULL;
-- Fields of elements: the arrays of that field alone are read.
SELECT same($$SELECT id, (items[x]).price, (items[x]).product, (items[x]).amount + 1, ((items[1]).made_at).number, ((items[2]).made_at).street FROM orders$$);
SELECT same($$SELECT id FROM orders WHERE (items[1]).price > 3 OR (items[2]).product = 'ä€😀'$$);
SELECT same($$SELECT (items[1]).product, count(*), sum((items[1]).price), max((items[2]).amount) FROM orders GROUP BY 1$$);
SELECT same($$SELECT id, (items[NULL]).price, (items[0]).price, (items[-1]).price, (items[99]).price, (items[1]).price IS NULL FROM orders$$);
SELECT same($$SELECT a.id, (b.items[1]).price FROM orders a LEFT JOIN orders b ON b.id = a.id + 3 AND (b.items[1]).amount = (a.items[1]).amount$$);
SELECT same($$SELECT id, ((items[1]).made_at).zip || '|', (items[1]).made_at FROM orders$$);
SELECT public.pushed($$SELECT (items[1]).product, count(*), sum((items[x]).price) FROM orders WHERE ((items[2]).made_at).number IS NULL GROUP BY 1$$);
SELECT public.pushed($$SELECT id, ((items[1]).made_at).zip FROM orders WHERE (items[1]).price > 3$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT (items[2]).price FROM pq.orders WHERE ((items[1]).made_at).number > 7;
-- NULL tests of composite values are those of their fields, if these are single values.
SELECT same($$SELECT id FROM orders WHERE home IS NULL$$);
SELECT same($$SELECT id FROM orders WHERE home IS NOT NULL AND NOT (who).home IS NULL$$);
SELECT same($$SELECT (who).home IS NULL, (who).home IS NOT NULL, who IS NULL, count(*) FROM orders GROUP BY 1, 2, 3$$);
SELECT same($$SELECT a.id, b.home IS NULL, b.home IS NOT NULL FROM orders a LEFT JOIN orders b ON b.id = a.id + 290$$);
SELECT same($$SELECT id, items[2] IS NULL, (items[1]).made_at IS NULL, (items[1]).made_at IS NOT NULL FROM orders$$);
SELECT public.pushed($$SELECT home IS NULL, count(*) FROM orders WHERE (who).home IS NOT NULL GROUP BY 1$$);
SELECT public.pushed($$SELECT id FROM orders WHERE who IS NULL$$);
SELECT public.pushed($$SELECT id FROM orders WHERE home = ROW('s 1', 1, 'z')::place$$);
-- The type changes: plans are made anew. Values that are there lack the new field.
PREPARE whole AS SELECT home FROM pq.orders WHERE id = 1;
EXECUTE whole;
ALTER TYPE place DROP ATTRIBUTE number;
EXECUTE whole;
ALTER TYPE place ADD ATTRIBUTE city text;
EXECUTE whole;
ALTER TYPE place DROP ATTRIBUTE city, ADD ATTRIBUTE "Number" bigint;
EXECUTE whole;
RESET plan_cache_mode;
SELECT same($$SELECT id, (home).street, (home).zip, home IS NULL FROM orders$$);

-- Files of another program: names in any case, fewer fields, wider types, maps as arrays of their entries.
\set file :data '/nested.parquet'
CREATE TYPE flat AS ("O" text, r bigint);
CREATE TYPE spot AS (y integer[], x numeric(5,1));
CREATE TYPE two AS (three bigint);
CREATE TYPE one AS (two two);
CREATE TYPE deep AS (one one);
CREATE TYPE word AS (key text, value jsonb);
CREATE TYPE leaves AS (b boolean, i1 smallint, u4 bigint, u8 numeric, f2 real, n numeric, t text, d date, ts timestamp, tz timestamptz, tm time, "by" bytea);
CREATE FOREIGN TABLE pq.nested (id integer, flat flat, points spot[], deep deep, words word[], every leaves) SERVER pystachio OPTIONS (path :'file');
SELECT id, flat, points, deep, words FROM pq.nested ORDER BY id;
SELECT every FROM pq.nested ORDER BY id;
SELECT id, (flat).r, (flat)."O", (((deep).one).two).three, (every).n, (every).u8 FROM pq.nested WHERE (flat).r > 0 OR (every).n > 1 ORDER BY id;
SELECT id, (deep).one IS NULL AS one, ((deep).one).two IS NULL AS two, deep IS NULL AS deep FROM pq.nested ORDER BY id;
SELECT count(*) FROM pq.nested a JOIN pq.nested b ON (a.every).ts = (b.every).ts AND (a.every)."by" = (b.every)."by";

-- IMPORT makes the types.
CREATE SCHEMA imported;
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'true');
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = 'imported.nested'::regclass AND attnum > 0 ORDER BY attnum;
SELECT t.typname, string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) AS fields
FROM pg_type t JOIN pg_attribute ON attrelid = typrelid JOIN pg_class c ON c.oid = typrelid WHERE typnamespace = 'imported'::regnamespace AND c.relkind = 'c' GROUP BY 1 ORDER BY 1;
SELECT id, flat, points, deep FROM imported.nested ORDER BY id;
-- Again: types that are as they must be are used.
SELECT array_agg(oid ORDER BY oid) AS types FROM pg_type WHERE typnamespace = 'imported'::regnamespace AND typrelid <> 'imported.nested'::regclass AND typcategory = 'C' \gset
DROP FOREIGN TABLE imported.nested;
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'true');
SELECT array_agg(oid ORDER BY oid) = :'types' AS same FROM pg_type WHERE typnamespace = 'imported'::regnamespace AND typrelid <> 'imported.nested'::regclass AND typcategory = 'C';
SELECT id, flat, points, deep FROM imported.nested WHERE id < 3 ORDER BY id;
CREATE SCHEMA "imported too";
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO "imported too" OPTIONS (path :'data', import_composite 'true');
SELECT count(*), count(flat), count(points) FROM "imported too".nested;
DROP SCHEMA "imported too" CASCADE;
-- Others are left as they are, and no table and no type is made.
DROP FOREIGN TABLE imported.nested;
ALTER TYPE imported.nested_flat ADD ATTRIBUTE more integer;
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'true');
ALTER TYPE imported.nested_flat DROP ATTRIBUTE more;
DROP TYPE imported.nested_points;
CREATE DOMAIN imported.nested_points AS integer;
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'true');
DROP DOMAIN imported.nested_points;
CREATE TABLE imported.nested_points (x double precision, y integer[]);
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'true');
DROP TABLE imported.nested_points;
ALTER TYPE imported.nested_every ALTER ATTRIBUTE n TYPE numeric(20,2);
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'true');
DROP TYPE imported.nested_every;
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'true');
SELECT typname FROM pg_type WHERE typnamespace = 'imported'::regnamespace AND typcategory = 'C' ORDER BY 1;
IMPORT FOREIGN SCHEMA nested LIMIT TO (nested) FROM SERVER pystachio INTO imported OPTIONS (path :'data', import_composite 'maybe');
DROP SCHEMA imported CASCADE;

-- INSERT, and files of one table that differ in their structs.
CREATE TYPE kept AS (a integer, b text);
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf composites_written && mkdir -m 777 composites_written
\set folder :scratch '/composites_written'
CREATE FOREIGN TABLE pq.written (id integer, k kept, ks kept[]) SERVER pystachio OPTIONS (path :'folder', writable 'true');
INSERT INTO pq.written VALUES (1, ROW(1, 'x'), ARRAY[ROW(2, NULL), NULL]::kept[]), (2, NULL, NULL), (3, ROW(NULL, NULL), '{}');
INSERT INTO pq.written SELECT id + 10, k, ks FROM pq.written;
SELECT * FROM pq.written ORDER BY id;
ALTER TYPE kept ADD ATTRIBUTE c numeric(5,2), ADD ATTRIBUTE d date;
SELECT * FROM pq.written ORDER BY id;
INSERT INTO pq.written VALUES (4, ROW(4, 'y', 1.5, 'infinity'), ARRAY[ROW(5, 'z', NULL, '-infinity')]::kept[]);
SELECT * FROM pq.written ORDER BY id;
SELECT id, (k).c, (k).d, (k).b FROM pq.written WHERE (k).a IS NOT NULL ORDER BY id;

-- Tables of more files than planning looks at: fields are found in each file. One has no struct there, one lacks a field.
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf composites_many && mkdir -m 777 composites_many
\set folder :scratch '/composites_many'
CREATE TYPE spread AS (a integer, b text, inner_one one);
CREATE TABLE heap.many AS SELECT i AS id, CASE WHEN i % 7 > 0 THEN ROW(i, 'b' || i % 5, ROW(ROW(i * 2)::two)::one)::spread END AS s,
  ARRAY[ROW(i, 'x', NULL), ROW(NULL, 'b' || i, ROW(ROW(i)::two)::one)]::spread[] AS ss, i % 300 AS part FROM generate_series(1, 900) i;
SELECT count(*) FROM pystachio.write_parquet('TABLE heap.many', :'folder', partition_by => '{part}');
CREATE TYPE less AS ("B" text);
SELECT row_count FROM pystachio.write_parquet('SELECT 1001 AS id, ROW(''of less'')::less AS s', :'folder' || '/less.parquet');
INSERT INTO heap.many VALUES (1001, ROW(NULL, 'of less', NULL));
CREATE FOREIGN TABLE pq.many (id integer, s spread, ss spread[]) SERVER pystachio OPTIONS (path :'folder');
ALTER TABLE heap.many DROP COLUMN part;
SELECT same($$SELECT * FROM many$$);
SELECT same($$SELECT id, (s).a, (s).b, (((s).inner_one).two).three, (ss[2]).b, (((ss[2]).inner_one).two).three FROM many$$);
SELECT same($$SELECT (s).b, count(*), sum((((s).inner_one).two).three) FROM many WHERE (s).a IS NULL OR (s).a < 500 GROUP BY 1$$);
SELECT public.pushed($$SELECT (s).b, count(*) FROM many WHERE (((s).inner_one).two).three > 9 GROUP BY 1$$);
SELECT public.pushed($$SELECT (ss[1]).a FROM many WHERE (ss[2]).b = 'b7'$$);
SELECT row_count FROM pystachio.write_parquet('SELECT 1002 AS id, ''text'' AS s', :'folder' || '/wrong.parquet');
SELECT max((s).b) FROM pq.many;
SELECT count(s) FROM pq.many;
DROP TYPE spread, less CASCADE;
-- Columns that are found by their ids.
CREATE TYPE kept_place AS (street text, number integer);
CREATE FOREIGN TABLE pq.by_id (id integer OPTIONS (field_id '1'), h kept_place OPTIONS (column_name 'home', field_id '7')) SERVER pystachio OPTIONS (path :'orders');
SELECT public.pushed($$SELECT (h).street, count(*) FROM by_id WHERE (h).number > 1 GROUP BY 1$$);
SELECT count(*) FROM ((SELECT id, (h).street, (h).number FROM pq.by_id) EXCEPT ALL (TABLE heap.orders_before)) d;
DROP FOREIGN TABLE pq.by_id;
DROP TYPE kept_place;
-- Tables of Delta Lake: by the names of the table, whatever the files call them.
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf composites_delta && mkdir -m 777 composites_delta
\set folder :scratch '/composites_delta'
CREATE TYPE stored AS (c text, n bigint, a numeric(9,2), d date);
CREATE TYPE stored_before AS (n integer, c text);
CREATE TYPE lake_place AS (city text, zip bigint, amount numeric(9,2), day date);
SELECT row_count FROM pystachio.write_parquet('SELECT i::bigint AS k, CASE WHEN i % 5 > 0 THEN ROW(''c'' || i % 3, i, i / 4.0, date ''2024-01-01'' + i)::stored END AS p FROM generate_series(1, 100) i', :'folder' || '/a.parquet');
SELECT row_count FROM pystachio.write_parquet('SELECT i::bigint AS k, ROW(i, ''c'' || i % 3)::stored_before AS p FROM generate_series(101, 120) i', :'folder' || '/b.parquet');
\! sh "$PG_ABS_SRCDIR/include/lake_structs.sh" composites_delta
CREATE TABLE heap.lake AS SELECT i::bigint AS id, CASE WHEN i > 100 THEN ROW('c' || i % 3, i, NULL, NULL)::lake_place WHEN i % 5 > 0 THEN ROW('c' || i % 3, i, i / 4.0, date '2024-01-01' + i)::lake_place END AS place FROM generate_series(1, 120) i;
CREATE TABLE heap.lake_json AS SELECT id, to_jsonb(place) AS place FROM heap.lake;
CREATE FOREIGN TABLE pq.lake (id bigint, place lake_place) SERVER pystachio OPTIONS (path :'folder', format 'delta');
CREATE FOREIGN TABLE pq.lake_json (id bigint, place jsonb) SERVER pystachio OPTIONS (path :'folder', format 'delta');
SELECT same($$SELECT id, (place).city, (place).zip, (place).amount, (place).day FROM lake$$);
SELECT same($$SELECT (place).city, count(*), sum((place).amount) FROM lake WHERE (place).zip > 3 OR (place).zip IS NULL GROUP BY 1$$);
SELECT same($$SELECT id, place->>'city', (place->>'zip')::bigint, (place->>'amount')::numeric(9,2), (place->>'day')::date FROM lake_json$$);
SELECT same($$SELECT place->>'city', count(*) FROM lake_json WHERE (place->>'zip')::bigint > 50 GROUP BY 1$$);
SELECT same($$SELECT * FROM lake_json$$);
SELECT public.pushed($$SELECT (place).city, count(*), sum((place).amount) FROM lake WHERE (place).day > '2024-02-01' GROUP BY 1$$);
SELECT public.pushed($$SELECT place->>'city', count(*) FROM lake_json WHERE (place->>'zip')::bigint > 50 GROUP BY 1$$);
SELECT place FROM pq.lake;
DROP TYPE stored, stored_before, lake_place CASCADE;

-- Types that a struct is not, and values that files can't hold.
CREATE TYPE wrong AS ("O" integer);
CREATE TYPE absent AS (r integer, z integer);
CREATE FOREIGN TABLE pq.wrong (id integer, flat wrong, every integer, points flat[]) SERVER pystachio OPTIONS (path :'file');
SELECT flat FROM pq.wrong;
SELECT (flat)."O" FROM pq.wrong;
SELECT every FROM pq.wrong;
SELECT points FROM pq.wrong;
CREATE FOREIGN TABLE pq.absent (id integer, flat absent) SERVER pystachio OPTIONS (path :'file');
SELECT flat FROM pq.absent;
SELECT (flat).z FROM pq.absent;
SELECT (flat).r FROM pq.absent ORDER BY 1;
CREATE TYPE circled AS (o circle);
CREATE FOREIGN TABLE pq.circled (id integer, flat circled) SERVER pystachio OPTIONS (path :'file');
SELECT flat FROM pq.circled;
CREATE TYPE many AS (a integer, j jsonb);
SELECT row_count FROM pystachio.write_parquet('SELECT ROW(1, ''{}'')::many AS m', :'scratch' || '/composites/none.parquet');
CREATE TYPE named_short AS (t varchar(1));
CREATE FOREIGN TABLE pq.short (id integer, every named_short) SERVER pystachio OPTIONS (path :'file');
SELECT every FROM pq.short;
-- A device reads fields; whole values are for the CPU engine.
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
CREATE FOREIGN TABLE pq.device (id integer, flat flat, deep deep) SERVER on_device OPTIONS (path :'file');
\i :abs_srcdir/include/analyzed.sql
SET pystachio.engine_choice = gpu;
SELECT ran_on('SELECT sum((flat).r) FROM pq.device WHERE (flat).r > 0');
SELECT ran_on('SELECT flat FROM pq.device');
SELECT sum((flat).r) FROM pq.device WHERE (flat).r > 0;
SELECT id, flat, deep, (flat)."O", (((deep).one).two).three FROM pq.device ORDER BY id;
RESET pystachio.engine_choice;
SET client_min_messages = warning;
DROP SERVER on_device CASCADE;
DROP TABLE heap.orders_before;
DROP TYPE person, item, place, flat, spot, two, one, deep, word, leaves, kept, wrong, absent, circled, many, named_short CASCADE;
DROP DOMAIN positive;
