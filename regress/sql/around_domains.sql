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
\set path :data '/t3.parquet'
-- A column that is declared as a domain can't be read. The others of its table can.
CREATE FOREIGN TABLE pq.d (id integer NOT NULL, a public.small, n numeric(15,2)) SERVER pystachio OPTIONS (path :'path');
SELECT a FROM pq.d;
SELECT count(a) FROM pq.d WHERE id < 10;
SELECT count(*), sum(n) FROM pq.d WHERE id < 10;
SELECT count(*) FROM pq.t1 JOIN pq.d USING (id);
CREATE FOREIGN TABLE pq.only_domains (a public.small) SERVER pystachio OPTIONS (path :'path');
SELECT count(*) FROM pq.only_domains;
-- Instead: a view whose columns are of the domains.
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
DROP FOREIGN TABLE pq.d, pq.only_domains;
DROP FUNCTION public.as_low;
DROP TYPE public.pair;
DROP DOMAIN public.low, public.small, public.label, public.money2;
