--
-- Queries that are not pushed down whole: the plan names the reason, the result is right, strict raises an error.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
CREATE FUNCTION public.twice(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 * 2; END';

-- A function of the user's.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE twice(a) = 4 ORDER BY id;
SELECT id FROM t3 WHERE twice(a) = 4 ORDER BY id;
-- A volatile one.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM t3 WHERE random() >= 0;
SELECT count(*) FROM t3 WHERE random() >= 0;
-- A heap table.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM t3 x JOIN heap.t2 y ON x.a = y.a;
SELECT count(*) FROM t3 x JOIN heap.t2 y ON x.a = y.a;
-- Text of several collations: PostgreSQL raises an error where it is compared.
\set path :data '/t3.parquet'
CREATE FOREIGN TABLE pq.collations (c text COLLATE "C", d text OPTIONS (column_name 'c') COLLATE "POSIX") SERVER pystachio OPTIONS (path :'path');
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM collations WHERE c < d;
SELECT count(*) FROM collations WHERE c < d;
SELECT count(*) FROM collations WHERE c = d;
-- LIKE raises it from PostgreSQL 18 on.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM collations WHERE c LIKE d;
SELECT count(*) FROM collations WHERE starts_with(c, d);
SELECT count(*) FROM collations WHERE strpos(c, d) > 0;
SELECT greatest(c, d) FROM collations;
SELECT max(c || d) FROM collations;
SELECT count(DISTINCT c || d) FROM collations;
SELECT c || d FROM collations GROUP BY 1;
SELECT DISTINCT c || d FROM collations;
SELECT count(*) FROM collations x JOIN collations y ON x.c = y.d;
SELECT count(*) FROM (SELECT c FROM collations UNION ALL SELECT d FROM collations) s;
SELECT c FROM collations UNION ALL SELECT d FROM collations ORDER BY 1;
SELECT count(*) FROM collations WHERE c || d || 'x' IS NOT NULL;
DROP FOREIGN TABLE pq.collations;
-- A whole row.
EXPLAIN (VERBOSE, COSTS OFF) SELECT x FROM t3 x WHERE id < 3;
SELECT x FROM t3 x WHERE id < 3 ORDER BY id;
-- Row locks.
SELECT id FROM t3 WHERE id < 3 ORDER BY id FOR UPDATE;

SET pystachio.strict = on;
SELECT id FROM t3 WHERE twice(a) = 4 ORDER BY id;
SELECT count(*) FROM t3 x JOIN heap.t2 y ON x.a = y.a;
SELECT count(*) FROM t3 WHERE a > 1;
SELECT count(*) FROM heap.t2;
RESET pystachio.strict;

-- Everything above the scans can be left to PostgreSQL.
SET pystachio.pushdown = off;
EXPLAIN (COSTS OFF) SELECT c, count(*) FROM t1 GROUP BY c;
SELECT c, count(*) FROM t3 GROUP BY c ORDER BY c;
RESET pystachio.pushdown;
DROP FUNCTION public.twice;
