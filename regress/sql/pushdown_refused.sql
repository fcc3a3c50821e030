--
-- What is not pushed down whole: the plan names the reason, the result is right, strict makes it an error.
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
