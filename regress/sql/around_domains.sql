--
-- Domains and composite types: as types of foreign columns, in casts, with checks; arrays of them.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SET client_min_messages = warning;
CREATE DOMAIN public.small AS integer CHECK (VALUE < 1000);
CREATE DOMAIN public.label AS text CHECK (VALUE <> 'never');
CREATE DOMAIN public.money2 AS numeric(15,2);
CREATE DOMAIN public.low AS public.small CHECK (VALUE < 8);
CREATE DOMAIN public.id_number AS public.small;
\set path :data '/t3.parquet'
CREATE DOMAIN public.five AS char(5);
CREATE DOMAIN public.given AS bigint NOT NULL CHECK (VALUE <> -77);
CREATE DOMAIN public.day AS date;
-- Columns that are declared as domains, over a domain too, are read as the domain's own type.
CREATE FOREIGN TABLE pq.d (id public.id_number NOT NULL, a public.small, b public.given, c public.label, s public.five, d public.day, n public.money2,
  m numeric(12,4)) SERVER pystachio OPTIONS (path :'path');
CREATE TABLE heap.d (id public.id_number, a public.small, b bigint, c public.label, s public.five, d public.day, n public.money2, m numeric(12,4));
INSERT INTO heap.d SELECT * FROM pq.d;
ANALYZE pq.d, heap.d;
SELECT same('SELECT * FROM d');
SELECT same('SELECT d FROM d');
SELECT same('SELECT id, a, pg_typeof(a), pg_typeof(a + 1), n, n * 2, s, s || ''|'', length(s), octet_length(s), c || s FROM d');
SELECT same('SELECT a, count(*), sum(n), min(c), max(s), avg(b), min(d) FROM d GROUP BY a');
SELECT same('SELECT s, c, n, count(DISTINCT a), count(DISTINCT s), array_agg(a ORDER BY id) FROM d GROUP BY s, c, n');
SELECT same('SELECT DISTINCT a, s FROM d ORDER BY s DESC, a LIMIT 7');
SELECT same('SELECT id FROM d WHERE a BETWEEN 2 AND 5 AND c LIKE ''%a%'' OR s = ''AIR'' OR n IN (1, 2, 100) OR d > DATE ''1993-01-01''');
SELECT same('SELECT id FROM d WHERE a = ANY (''{1,2,3}''::public.small[]) OR c = ANY (''{ab,zz}''::public.label[])');
SELECT same('SELECT x.id, y.id FROM d x JOIN d y ON x.a = y.a AND x.s = y.s LEFT JOIN t1 z ON z.b = y.b');
SELECT same('SELECT t1.id, d.b, d.a, d.s FROM t1 LEFT JOIN d ON t1.id = d.id AND d.n > 1 ORDER BY 1, 2, 3');
SELECT same('SELECT id, coalesce(a, 7), CASE WHEN b > 1 THEN s ELSE NULL END, greatest(a, id), nullif(c, ''ab'') FROM d');
SELECT same('SELECT id FROM d WHERE b IS NULL');
SELECT same('SELECT count(*) FROM d WHERE b NOT IN (SELECT b FROM t2)');
SELECT same('SELECT a FROM d UNION SELECT id FROM t2');
SELECT same('SELECT id, (SELECT max(n) FROM t2 WHERE t2.a = d.a) FROM d');
SELECT same('SELECT a::text, c::varchar(2), n::integer, s::text, a::public.id_number FROM d');
SELECT * FROM pushed('SELECT a, count(*), min(s) FROM d WHERE c LIKE ''%a%'' AND n > 1 AND b = 3 GROUP BY a ORDER BY a');
SELECT * FROM pushed('SELECT count(*) FROM d x JOIN t1 y ON x.a = y.a WHERE x.a::public.low = 3');
CREATE TABLE public.keys AS SELECT 3::public.small AS key UNION ALL SELECT 5;
ANALYZE public.keys;
SELECT same('SELECT d.id, key FROM d JOIN keys ON d.a = key');
PREPARE by_column (public.small, public.five) AS SELECT count(*) FROM pq.d WHERE a = $1 OR s = $2;
SET plan_cache_mode = force_generic_plan;
EXECUTE by_column (3, 'AIR');
RESET plan_cache_mode;
DEALLOCATE by_column;
-- Conditions of a domain are checked where PostgreSQL gets the value; its NOT NULL is not.
CREATE DOMAIN public.few AS integer NOT NULL CHECK (VALUE < 4);
ALTER FOREIGN TABLE pq.d ALTER COLUMN a TYPE public.few;
SELECT a FROM pq.d;
SELECT a FROM pq.d WHERE a > 4;
DO $$
BEGIN
  ANALYZE pq.d;
EXCEPTION WHEN check_violation THEN
  RAISE WARNING 'a value violates its domain';
END $$;
SELECT count(a), max(a) FROM pq.d WHERE a > 4;
SELECT count(*) FROM pq.d WHERE a IS NULL;
SELECT a, count(*) FROM pq.d WHERE a < 3 OR a IS NULL GROUP BY a ORDER BY a;
SELECT id, a + 1 AS more FROM pq.d WHERE a > 5 ORDER BY id LIMIT 2;
ALTER DOMAIN public.few DROP CONSTRAINT few_check;
SELECT count(*) FROM (SELECT a FROM pq.d OFFSET 0) x;
-- Arrays of domains, and domains of arrays.
CREATE DOMAIN public.even AS integer NOT NULL CHECK (VALUE <> -2147483648);
CREATE DOMAIN public.whole AS integer[] CHECK (cardinality(VALUE) < 3);
\set path :data '/edge_int4_array.parquet'
CREATE FOREIGN TABLE pq.lists (id integer, v integer[]) SERVER pystachio OPTIONS (path :'path');
CREATE FOREIGN TABLE pq.evens (id integer, v public.even[]) SERVER pystachio OPTIONS (path :'path');
CREATE FOREIGN TABLE pq.wholes (id integer, v public.whole) SERVER pystachio OPTIONS (path :'path');
SELECT count(*), count(v), max(cardinality(v)), count(*) FILTER (WHERE 3 = ANY (v)) FROM pq.lists;
SELECT * FROM pq.lists ORDER BY id;
SELECT v FROM pq.evens ORDER BY id LIMIT 2;
SELECT count(v[1]) FROM pq.evens;
SELECT count(v::text) FROM pq.evens;
SELECT v FROM pq.wholes ORDER BY id LIMIT 2;
SELECT count(v[1]) FROM pq.wholes;
SELECT count(v::text) FROM pq.wholes;
-- A domain over a type that is not read.
CREATE DOMAIN public.address AS inet;
ALTER FOREIGN TABLE pq.lists ALTER COLUMN v TYPE public.address;
SELECT v FROM pq.lists;
DROP FOREIGN TABLE pq.lists, pq.evens, pq.wholes;
-- Views whose columns are of domains.
CREATE VIEW pq.v AS SELECT id, a::public.small AS a, c::public.label AS c, n::public.money2 AS n FROM pq.t3;
CREATE VIEW heap.v AS SELECT id, a::public.small AS a, c::public.label AS c, n::public.money2 AS n FROM heap.t3;
SELECT same('SELECT * FROM v');
SELECT same('SELECT a, count(*), sum(n), min(c) FROM v GROUP BY a');
SELECT same('SELECT v.id, t2.c FROM v JOIN t2 ON t2.a = v.a WHERE v.n > 1');
SELECT same('SELECT id FROM v WHERE c LIKE ''%e%'' AND a IN (1, 2, 3)');
SELECT same('SELECT pg_typeof(a), pg_typeof(n) FROM v WHERE id = 1');
SELECT same('SELECT v FROM v');
-- Casts to a domain check its condition, for the rows that are read and no others.
SELECT same('SELECT a::public.small FROM t1');
SELECT same('SELECT a::public.low FROM t1 WHERE a < 7');
SELECT same('SELECT a::public.low FROM t1');
SELECT same('SELECT count(*) FROM t1 WHERE a::public.small = 3');
SELECT same('SELECT c::public.label, count(*) FROM t2 GROUP BY 1');
SELECT same('SELECT id, (a + 1)::public.small, n::public.money2 FROM t3 ORDER BY n::public.money2, id');
SELECT same('SELECT x.id FROM t1 x JOIN t2 y ON x.a::public.small = y.a::public.small');
SELECT same('SELECT coalesce(a, 5)::public.low FROM t3 WHERE id = 2');
SELECT * FROM pushed('SELECT count(*) FROM t1 WHERE a::public.small = 3');
-- Parameters of domains, arrays of them, and functions that return them.
PREPARE by_domain (public.small, public.label) AS SELECT count(*) FROM pq.t1 WHERE a = $1 OR c = $2;
EXECUTE by_domain (3, 'a');
EXECUTE by_domain (1000, 'a');
SET plan_cache_mode = force_generic_plan;
EXECUTE by_domain (3, 'a');
RESET plan_cache_mode;
DEALLOCATE by_domain;
SELECT same('SELECT count(*) FROM t1 WHERE a = ANY (''{1,2,3}''::public.small[])');
CREATE FUNCTION public.as_low(integer) RETURNS public.low LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END';
SELECT same('SELECT public.as_low(a) FROM t3 WHERE a < 5');
SELECT same('SELECT public.as_low(a) FROM t3');
-- A domain that is changed below a prepared statement.
PREPARE again AS SELECT count(a::public.low) FROM pq.t3 WHERE a < 8;
EXECUTE again;
ALTER DOMAIN public.low ADD CONSTRAINT lower CHECK (VALUE < 3) NOT VALID;
EXECUTE again;
DEALLOCATE again;
-- Composite types.
CREATE TYPE public.pair AS (a integer, c text);
SELECT same('SELECT (a, c)::public.pair FROM t3');
SELECT same('SELECT ((a, c)::public.pair).c, count(*) FROM t3 GROUP BY 1');
SELECT same('SELECT x.id FROM t3 x JOIN t2 y ON (x.a, x.c)::public.pair = (y.a, y.c)::public.pair');
SELECT same('SELECT array_agg(DISTINCT (a, c)::public.pair) FROM t3');
SELECT same('SELECT (json_populate_record(NULL::public.pair, row_to_json(t3))).* FROM t3');
DROP VIEW pq.v, heap.v;
DROP FOREIGN TABLE pq.d;
DROP TABLE heap.d, public.keys;
DROP FUNCTION public.as_low;
DROP TYPE public.pair;
DROP DOMAIN public.low, public.id_number, public.small, public.label, public.money2, public.five, public.given, public.day, public.few,
  public.even, public.whole, public.address;
