--
-- VARIANT as jsonb, shredded or not: files of DuckDB (data/make_variants.py).
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
CREATE SCHEMA imported;
IMPORT FOREIGN SCHEMA data LIMIT TO (variants) FROM SERVER pystachio INTO imported OPTIONS (path :'data');
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = 'imported.variants'::regclass AND attnum > 0 ORDER BY attnum;
\set file :data '/variants.parquet'
CREATE FOREIGN TABLE pq.variants (id integer, mixed jsonb, alike jsonb, numbers jsonb, moments jsonb) SERVER pystachio OPTIONS (path :'file');
CREATE TABLE heap.variants (id integer, mixed jsonb, alike jsonb, numbers jsonb, moments jsonb);
\copy heap.variants FROM PROGRAM 'cat "$PG_ABS_SRCDIR/data/variants.csv"' (FORMAT csv)
SELECT id, mixed, alike FROM pq.variants WHERE id < 25 ORDER BY id;
SELECT same($$SELECT * FROM variants$$);
SELECT same($$SELECT id, alike->>'name', (alike->>'id'), mixed->'a' FROM variants WHERE alike ? 'name'$$);
SELECT same($$SELECT count(*), count(mixed), count(numbers), sum((numbers)::text::int) FROM variants$$);
SELECT same($$SELECT numbers, count(*) FROM variants GROUP BY 1$$);
SELECT same($$SELECT id, e FROM variants, jsonb_array_elements(alike->'tags') e WHERE jsonb_typeof(alike->'tags') = 'array'$$);
SELECT same($$SELECT id FROM variants WHERE mixed IS NULL OR moments IS NULL AND alike @> '{"id": 1}'$$);
-- Within structs, lists and maps.
IMPORT FOREIGN SCHEMA data LIMIT TO (nested_variants) FROM SERVER pystachio INTO imported OPTIONS (path :'data');
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = 'imported.nested_variants'::regclass AND attnum > 0 ORDER BY attnum;
\set nested :data '/nested_variants.parquet'
CREATE FOREIGN TABLE pq.nested_variants (id integer, holder jsonb, many jsonb, named jsonb) SERVER pystachio OPTIONS (path :'nested');
CREATE TABLE heap.nested_variants AS SELECT id, CASE WHEN id % 7 <> 0 THEN jsonb_build_object('v', alike, 'n', id) END AS holder,
  CASE id % 3 WHEN 1 THEN '[]' WHEN 2 THEN jsonb_build_array(mixed) ELSE jsonb_build_array(mixed, (SELECT mixed FROM heap.variants n WHERE n.id = v.id % 60 + 1)) END AS many,
  jsonb_build_object('k', numbers) AS named FROM heap.variants v;
SELECT * FROM pq.nested_variants WHERE id < 7 ORDER BY id;
SELECT same($$SELECT * FROM nested_variants$$);
SELECT same($$SELECT id, holder->'v'->>'name', holder->>'n' FROM nested_variants WHERE (holder->>'n')::int > 3$$);
SELECT same($$SELECT id, e FROM nested_variants, jsonb_array_elements(many) e$$);
-- The text as it is made.
CREATE FOREIGN TABLE pq.texts (id integer, alike json) SERVER pystachio OPTIONS (path :'file');
SELECT * FROM pq.texts WHERE id < 8 ORDER BY id;
CREATE FOREIGN TABLE pq.wrong (id integer, mixed text) SERVER pystachio OPTIONS (path :'file');
SELECT mixed FROM pq.wrong;
DROP SCHEMA imported CASCADE;
