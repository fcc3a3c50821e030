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
\i :abs_srcdir/include/ran_on.sql
SET pystachio.engine_choice = gpu;
SELECT ran_on('SELECT sum((flat).r) FROM pq.device WHERE (flat).r > 0');
SELECT ran_on('SELECT flat FROM pq.device');
SELECT sum((flat).r) FROM pq.device WHERE (flat).r > 0;
SELECT id, flat, deep, (flat)."O", (((deep).one).two).three FROM pq.device ORDER BY id;
RESET pystachio.engine_choice;
SET client_min_messages = warning;
DROP FUNCTION ran_on;
DROP SERVER on_device CASCADE;
DROP TYPE person, item, place, flat, spot, two, one, deep, word, leaves, kept, wrong, absent, circled, many, named_short CASCADE;
DROP DOMAIN positive;
