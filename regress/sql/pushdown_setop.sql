--
-- Set operations.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- UNION ALL in FROM.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c, count(*) AS k FROM (SELECT c FROM t1 WHERE a > 3 UNION ALL SELECT c FROM t2) u GROUP BY c ORDER BY c;
SELECT c, count(*) AS k FROM (SELECT c FROM t1 WHERE a > 3 UNION ALL SELECT c FROM t2) u GROUP BY c ORDER BY c;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT c, count(*) AS k FROM (SELECT c FROM t1 WHERE a > 3 UNION ALL SELECT c FROM t2) u GROUP BY c ORDER BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c, count(*) AS k FROM (SELECT c FROM heap.t1 WHERE a > 3 UNION ALL SELECT c FROM heap.t2) u GROUP BY c ORDER BY c) q)
  UNION ALL (SELECT q::text FROM (SELECT c, count(*) AS k FROM (SELECT c FROM heap.t1 WHERE a > 3 UNION ALL SELECT c FROM heap.t2) u GROUP BY c ORDER BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c, count(*) AS k FROM (SELECT c FROM t1 WHERE a > 3 UNION ALL SELECT c FROM t2) u GROUP BY c ORDER BY c) q)) difference;

-- UNION.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a;
SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a FROM heap.t1 UNION SELECT a FROM heap.t2 ORDER BY a) q)
  UNION ALL (SELECT q::text FROM (SELECT a FROM heap.t1 UNION SELECT a FROM heap.t2 ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a) q)) difference;

-- INTERSECT.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, i FROM t1 INTERSECT SELECT a, i FROM t2 ORDER BY a, i;
SELECT a, i FROM t1 INTERSECT SELECT a, i FROM t2 ORDER BY a, i;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, i FROM t1 INTERSECT SELECT a, i FROM t2 ORDER BY a, i) q EXCEPT ALL SELECT q::text FROM (SELECT a, i FROM heap.t1 INTERSECT SELECT a, i FROM heap.t2 ORDER BY a, i) q)
  UNION ALL (SELECT q::text FROM (SELECT a, i FROM heap.t1 INTERSECT SELECT a, i FROM heap.t2 ORDER BY a, i) q EXCEPT ALL SELECT q::text FROM (SELECT a, i FROM t1 INTERSECT SELECT a, i FROM t2 ORDER BY a, i) q)) difference;

-- EXCEPT ALL.
SELECT public.pushed($$SELECT a FROM t1 EXCEPT ALL SELECT a FROM t2 ORDER BY a$$);
SELECT a FROM t1 EXCEPT ALL SELECT a FROM t2 ORDER BY a;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a FROM t1 EXCEPT ALL SELECT a FROM t2 ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a FROM heap.t1 EXCEPT ALL SELECT a FROM heap.t2 ORDER BY a) q)
  UNION ALL (SELECT q::text FROM (SELECT a FROM heap.t1 EXCEPT ALL SELECT a FROM heap.t2 ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a FROM t1 EXCEPT ALL SELECT a FROM t2 ORDER BY a) q)) difference;

-- Operations that count.
\i :abs_srcdir/include/same.sql
SELECT public.pushed($$SELECT a, c FROM t1 INTERSECT ALL SELECT a, c FROM t2 ORDER BY a$$);
SELECT same($$SELECT a FROM t1 INTERSECT ALL SELECT a FROM t2$$);
SELECT same($$SELECT a, k FROM t1 EXCEPT ALL SELECT a, k FROM t2$$);
SELECT same($$SELECT a, k, c FROM t3 INTERSECT ALL SELECT a, k, c FROM t1 ORDER BY 3, 1 LIMIT 7$$);
SELECT same($$SELECT a FROM t1 EXCEPT ALL SELECT a FROM t2 EXCEPT ALL SELECT a FROM t3$$);
SELECT same($$SELECT a FROM t1 EXCEPT ALL (SELECT a FROM t2 INTERSECT ALL SELECT a FROM t3)$$);
SELECT same($$(SELECT n FROM t1 UNION ALL SELECT n FROM t2) INTERSECT ALL SELECT n FROM t3$$);
SELECT same($$SELECT i FROM t1 EXCEPT ALL SELECT a FROM t2$$);
SELECT same($$SELECT a FROM t1 EXCEPT ALL SELECT a FROM t0$$);
SELECT same($$SELECT a FROM t0 INTERSECT ALL SELECT a FROM t1$$);
SELECT same($$SELECT FROM t1 EXCEPT ALL SELECT FROM t3$$);
SELECT same($$SELECT x.id, (SELECT count(*) FROM (SELECT a FROM t1 WHERE id > x.id EXCEPT ALL SELECT a FROM t2 WHERE id > x.id) s) FROM t1 x$$);
SELECT same($$SELECT count(*) FROM t3 WHERE a IN (SELECT a FROM t1 EXCEPT ALL SELECT a FROM t2)$$);

-- UNION of columns that are computed, with a limit.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a + 1 AS a, c FROM t1 WHERE n > 1 UNION SELECT i, upper(c) FROM t3 UNION SELECT 0, 'x' FROM t2 WHERE id < 3 ORDER BY c DESC NULLS LAST, a LIMIT 12;
SELECT a + 1 AS a, c FROM t1 WHERE n > 1 UNION SELECT i, upper(c) FROM t3 UNION SELECT 0, 'x' FROM t2 WHERE id < 3 ORDER BY c DESC NULLS LAST, a LIMIT 12;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a + 1 AS a, c FROM t1 WHERE n > 1 UNION SELECT i, upper(c) FROM t3 UNION SELECT 0, 'x' FROM t2 WHERE id < 3 ORDER BY c DESC NULLS LAST, a LIMIT 12) q EXCEPT ALL SELECT q::text FROM (SELECT a + 1 AS a, c FROM heap.t1 WHERE n > 1 UNION SELECT i, upper(c) FROM heap.t3 UNION SELECT 0, 'x' FROM heap.t2 WHERE id < 3 ORDER BY c DESC NULLS LAST, a LIMIT 12) q)
  UNION ALL (SELECT q::text FROM (SELECT a + 1 AS a, c FROM heap.t1 WHERE n > 1 UNION SELECT i, upper(c) FROM heap.t3 UNION SELECT 0, 'x' FROM heap.t2 WHERE id < 3 ORDER BY c DESC NULLS LAST, a LIMIT 12) q EXCEPT ALL SELECT q::text FROM (SELECT a + 1 AS a, c FROM t1 WHERE n > 1 UNION SELECT i, upper(c) FROM t3 UNION SELECT 0, 'x' FROM t2 WHERE id < 3 ORDER BY c DESC NULLS LAST, a LIMIT 12) q)) difference;

-- UNION ALL at the top.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, c FROM t1 WHERE a = 3 UNION ALL SELECT id, c FROM t2 WHERE a = 3 ORDER BY 1, 2;
SELECT id, c FROM t1 WHERE a = 3 UNION ALL SELECT id, c FROM t2 WHERE a = 3 ORDER BY 1, 2;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, c FROM t1 WHERE a = 3 UNION ALL SELECT id, c FROM t2 WHERE a = 3 ORDER BY 1, 2) q EXCEPT ALL SELECT q::text FROM (SELECT id, c FROM heap.t1 WHERE a = 3 UNION ALL SELECT id, c FROM heap.t2 WHERE a = 3 ORDER BY 1, 2) q)
  UNION ALL (SELECT q::text FROM (SELECT id, c FROM heap.t1 WHERE a = 3 UNION ALL SELECT id, c FROM heap.t2 WHERE a = 3 ORDER BY 1, 2) q EXCEPT ALL SELECT q::text FROM (SELECT id, c FROM t1 WHERE a = 3 UNION ALL SELECT id, c FROM t2 WHERE a = 3 ORDER BY 1, 2) q)) difference;

-- One EXCEPT after the other.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c FROM t3 EXCEPT SELECT c FROM t1 WHERE a > 1 EXCEPT SELECT c FROM t2 WHERE a < 1 ORDER BY c;
SELECT c FROM t3 EXCEPT SELECT c FROM t1 WHERE a > 1 EXCEPT SELECT c FROM t2 WHERE a < 1 ORDER BY c;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT c FROM t3 EXCEPT SELECT c FROM t1 WHERE a > 1 EXCEPT SELECT c FROM t2 WHERE a < 1 ORDER BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c FROM heap.t3 EXCEPT SELECT c FROM heap.t1 WHERE a > 1 EXCEPT SELECT c FROM heap.t2 WHERE a < 1 ORDER BY c) q)
  UNION ALL (SELECT q::text FROM (SELECT c FROM heap.t3 EXCEPT SELECT c FROM heap.t1 WHERE a > 1 EXCEPT SELECT c FROM heap.t2 WHERE a < 1 ORDER BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c FROM t3 EXCEPT SELECT c FROM t1 WHERE a > 1 EXCEPT SELECT c FROM t2 WHERE a < 1 ORDER BY c) q)) difference;

-- INTERSECT as a membership.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t3 WHERE a IN (SELECT a FROM t1 WHERE n > 1 INTERSECT SELECT a FROM t2 WHERE k);
SELECT count(*) AS k FROM t3 WHERE a IN (SELECT a FROM t1 WHERE n > 1 INTERSECT SELECT a FROM t2 WHERE k);
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k FROM t3 WHERE a IN (SELECT a FROM t1 WHERE n > 1 INTERSECT SELECT a FROM t2 WHERE k)) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM heap.t3 WHERE a IN (SELECT a FROM heap.t1 WHERE n > 1 INTERSECT SELECT a FROM heap.t2 WHERE k)) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k FROM heap.t3 WHERE a IN (SELECT a FROM heap.t1 WHERE n > 1 INTERSECT SELECT a FROM heap.t2 WHERE k)) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM t3 WHERE a IN (SELECT a FROM t1 WHERE n > 1 INTERSECT SELECT a FROM t2 WHERE k)) q)) difference;

-- UNION of groups below a join.
EXPLAIN (VERBOSE, COSTS OFF) SELECT x.id, u.total FROM t3 x JOIN (SELECT a, count(*) AS total FROM t1 GROUP BY a UNION SELECT i, min(id) FROM t2 GROUP BY i) u ON u.a = x.a ORDER BY 1, 2;
SELECT x.id, u.total FROM t3 x JOIN (SELECT a, count(*) AS total FROM t1 GROUP BY a UNION SELECT i, min(id) FROM t2 GROUP BY i) u ON u.a = x.a ORDER BY 1, 2;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT x.id, u.total FROM t3 x JOIN (SELECT a, count(*) AS total FROM t1 GROUP BY a UNION SELECT i, min(id) FROM t2 GROUP BY i) u ON u.a = x.a ORDER BY 1, 2) q EXCEPT ALL SELECT q::text FROM (SELECT x.id, u.total FROM heap.t3 x JOIN (SELECT a, count(*) AS total FROM heap.t1 GROUP BY a UNION SELECT i, min(id) FROM heap.t2 GROUP BY i) u ON u.a = x.a ORDER BY 1, 2) q)
  UNION ALL (SELECT q::text FROM (SELECT x.id, u.total FROM heap.t3 x JOIN (SELECT a, count(*) AS total FROM heap.t1 GROUP BY a UNION SELECT i, min(id) FROM heap.t2 GROUP BY i) u ON u.a = x.a ORDER BY 1, 2) q EXCEPT ALL SELECT q::text FROM (SELECT x.id, u.total FROM t3 x JOIN (SELECT a, count(*) AS total FROM t1 GROUP BY a UNION SELECT i, min(id) FROM t2 GROUP BY i) u ON u.a = x.a ORDER BY 1, 2) q)) difference;

-- A LIMIT that reads a CTE of the query.
SELECT public.pushed($$WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a LIMIT (SELECT count(*) FROM w)$$);
WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a LIMIT (SELECT count(*) FROM w);
SELECT count(*) FROM (
  (SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a LIMIT (SELECT count(*) FROM w)) q EXCEPT ALL SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM heap.t1 WHERE id < 4) SELECT a FROM heap.t1 UNION SELECT a FROM heap.t2 ORDER BY a LIMIT (SELECT count(*) FROM w)) q)
  UNION ALL (SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM heap.t1 WHERE id < 4) SELECT a FROM heap.t1 UNION SELECT a FROM heap.t2 ORDER BY a LIMIT (SELECT count(*) FROM w)) q EXCEPT ALL SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a FROM t1 UNION SELECT a FROM t2 ORDER BY a LIMIT (SELECT count(*) FROM w)) q)) difference;

-- A member of UNION ALL whose condition can't hold is left out, groups included: the uses of a CTE that a constant tells apart.
SELECT public.pushed($$WITH total AS (SELECT a, sum(n) AS s, 't1' AS source FROM t1 GROUP BY a UNION ALL SELECT a, sum(n), 't2' FROM t2 GROUP BY a)
  SELECT x.a, x.s, y.s AS other FROM total x JOIN total y ON x.a = y.a WHERE x.source = 't1' AND y.source = 't2' ORDER BY x.a$$);
WITH total AS (SELECT a, sum(n) AS s, 't1' AS source FROM t1 GROUP BY a UNION ALL SELECT a, sum(n), 't2' FROM t2 GROUP BY a)
  SELECT x.a, x.s, y.s AS other FROM total x JOIN total y ON x.a = y.a WHERE x.source = 't1' AND y.source = 't2' ORDER BY x.a;
WITH total AS (SELECT a, sum(n) AS s, 't1' AS source FROM heap.t1 GROUP BY a UNION ALL SELECT a, sum(n), 't2' FROM heap.t2 GROUP BY a)
  SELECT x.a, x.s, y.s AS other FROM total x JOIN total y ON x.a = y.a WHERE x.source = 't1' AND y.source = 't2' ORDER BY x.a;
-- Without groups there is a row of nothing; of all members none may be left.
SELECT count(*), sum(s) FROM (SELECT count(*) AS s, 1 AS source FROM t1 UNION ALL SELECT count(*), 2 FROM t2 WHERE false UNION ALL SELECT id, 3 FROM t3 WHERE false GROUP BY id) u;
SELECT count(*) FROM (SELECT a, 1 AS source FROM t1 GROUP BY a UNION ALL SELECT a, 2 FROM t2 GROUP BY a) u WHERE source = 3;

-- Operations of operations.
SELECT public.pushed($$SELECT a FROM t1 INTERSECT SELECT a FROM t2 INTERSECT SELECT a FROM t3 ORDER BY a$$);
SELECT same($$SELECT a FROM t1 INTERSECT SELECT a FROM t2 INTERSECT SELECT a FROM t3$$);
SELECT public.pushed($$(SELECT a FROM t1 EXCEPT SELECT a FROM t2) UNION SELECT a FROM t3 WHERE id < 5 ORDER BY a$$);
SELECT same($$(SELECT a FROM t1 EXCEPT SELECT a FROM t2) UNION SELECT a FROM t3 WHERE id < 5$$);
SELECT same($$(SELECT a, c FROM t1 EXCEPT SELECT a, c FROM t2) UNION ALL (SELECT a, c FROM t3 INTERSECT SELECT a, c FROM t1)$$);
SELECT same($$SELECT a FROM t1 EXCEPT (SELECT a FROM t2 EXCEPT SELECT a FROM t3)$$);
SELECT same($$(SELECT a FROM t1 UNION ALL SELECT a FROM t2) EXCEPT ALL (SELECT a FROM t3 UNION SELECT a FROM t1)$$);
SELECT same($$(SELECT a FROM t1 INTERSECT ALL SELECT a FROM t2) UNION SELECT a FROM t3$$);
SELECT same($$(SELECT a AS x, n FROM t1 UNION SELECT b, m FROM t2) INTERSECT SELECT i, n FROM t3 ORDER BY x, n LIMIT 4$$);
SELECT same($$SELECT x.id, (SELECT count(*) FROM (SELECT a FROM t1 WHERE id > x.id INTERSECT SELECT a FROM t2 WHERE id > x.id INTERSECT SELECT a FROM t3) s) FROM t1 x$$);
SELECT same($$WITH w AS (SELECT a FROM t1), v AS (SELECT a FROM t2) (SELECT a FROM w INTERSECT SELECT a FROM v) UNION (SELECT a FROM w EXCEPT SELECT a FROM v) UNION SELECT a FROM t3$$);
SELECT same($$SELECT count(*) FROM t3 WHERE a IN ((SELECT a FROM t1 INTERSECT SELECT a FROM t2) EXCEPT SELECT 3)$$);
-- Numbers of several scales: of equal ones the first operand's is given.
SELECT public.pushed($$SELECT n FROM t1 UNION SELECT m FROM t2 ORDER BY n$$);
SELECT same($$SELECT i AS v, k FROM t1 UNION SELECT n, k FROM t3$$);
SELECT same($$SELECT n AS v, k FROM t1 UNION SELECT i, k FROM t3$$);
SELECT same($$SELECT n AS v, k FROM t1 EXCEPT SELECT i, k FROM t3 WHERE id < 10$$);
SELECT same($$SELECT n - COALESCE(n, 0.0) AS v FROM t1 UNION SELECT n FROM t3$$);
SELECT public.pushed($$SELECT CASE WHEN k THEN n * 1.0 ELSE 0.000 END AS v FROM t1 INTERSECT SELECT (a * n) * 2.0 FROM t3$$);
SELECT public.pushed($$SELECT n - COALESCE(n, 0.0) AS v FROM t1 UNION SELECT n FROM t3$$);
SELECT same($$SELECT n - 1 AS x FROM t1 UNION SELECT n * 1 FROM t2 UNION SELECT n FROM t3$$);
SELECT n FROM (VALUES (1.0), (1.00)) s (n) GROUP BY n;

-- A UNION of rows that can't be equal need not compare them: keys of groups tell the rows of each operand apart, constants the operands.
SELECT public.pushed($$SELECT 'first' AS part, a, avg(n) AS x FROM t1 GROUP BY a UNION SELECT 'second', a, avg(m) FROM t2 GROUP BY a ORDER BY 1, 2 LIMIT 3$$);
SELECT 'first' AS part, a, avg(n) AS x FROM t1 GROUP BY a UNION SELECT 'second', a, avg(m) FROM t2 GROUP BY a ORDER BY 1, 2 LIMIT 3;
SELECT same($$SELECT 'first' AS part, a, avg(n) AS x FROM t1 GROUP BY a UNION SELECT 'second', a, avg(m) FROM t2 GROUP BY a UNION SELECT NULL, NULL, avg(n) FROM t3$$);
SELECT same($$WITH g AS (SELECT a, c, sum(n) AS s, avg(n) AS x FROM t1 GROUP BY a, c), r AS (SELECT x, a, c, 0 AS level FROM g UNION SELECT sum(s) / count(*), a, NULL, 1 FROM g GROUP BY a UNION SELECT sum(s) / count(*), NULL, NULL, 2 FROM g)
  SELECT *, rank() OVER (PARTITION BY level ORDER BY x) FROM r$$);
SELECT same($$SELECT part, rank FROM (SELECT 1 AS part, a, rank FROM (SELECT a, x, rank() OVER (ORDER BY x) AS rank FROM (SELECT a, avg(n) AS x FROM t1 GROUP BY a) g) r WHERE rank < 5
  UNION SELECT 2, a, rank FROM (SELECT a, rank() OVER (ORDER BY x) AS rank FROM (SELECT DISTINCT a, m / 3 AS x FROM t2) g) r) u$$);
-- Where they can, numbers of several scales stay with PostgreSQL.
SELECT public.pushed($$SELECT 1 AS part, a, avg(n) AS x FROM t1 GROUP BY a UNION SELECT 1, a, avg(m) FROM t2 GROUP BY a$$);
SELECT public.pushed($$SELECT 1 AS part, avg(n) AS x FROM t1 GROUP BY a UNION SELECT 2, avg(m) FROM t2$$);
SELECT public.pushed($$SELECT 1 AS part, g.a, x FROM (SELECT a, avg(n) AS x FROM t1 GROUP BY a) g JOIN t3 ON g.a = t3.a UNION SELECT 2, a, avg(m) FROM t2 GROUP BY a$$);
SELECT public.pushed($$SELECT 1 AS part, a, x FROM (SELECT a, x, generate_series(1, 2) FROM (SELECT a, avg(n) AS x FROM t1 GROUP BY a) g) s UNION SELECT 2, a, avg(m) FROM t2 GROUP BY a$$);
SELECT same($$SELECT 1 AS part, count(*) AS x FROM t1 GROUP BY a UNION SELECT 2, count(*) FROM t2 UNION SELECT 1, 1$$);
