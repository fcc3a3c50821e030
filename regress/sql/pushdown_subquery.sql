--
-- Subqueries that are rewritten or labelled.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- A correlated average.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a);
SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a);
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a)) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 x WHERE n < (SELECT 0.5 * avg(n) FROM heap.t2 y WHERE y.a = x.a)) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 x WHERE n < (SELECT 0.5 * avg(n) FROM heap.t2 y WHERE y.a = x.a)) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a)) q)) difference;

-- A correlated minimum.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id;
SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE n = (SELECT min(n) FROM heap.t2 y WHERE y.a = x.a AND y.k) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE n = (SELECT min(n) FROM heap.t2 y WHERE y.a = x.a AND y.k) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id) q)) difference;

-- NOT IN with NULLs.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id;
SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a NOT IN (SELECT a FROM heap.t2 WHERE i = 1) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a NOT IN (SELECT a FROM heap.t2 WHERE i = 1) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id) q)) difference;

-- NOT IN without NULLs.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id;
SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 WHERE id NOT IN (SELECT id FROM heap.t2 WHERE i > 0) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 WHERE id NOT IN (SELECT id FROM heap.t2 WHERE i > 0) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id) q)) difference;

-- IN a group.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id;
SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a IN (SELECT a FROM heap.t1 GROUP BY a HAVING count(*) > 12) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a IN (SELECT a FROM heap.t1 GROUP BY a HAVING count(*) > 12) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id) q)) difference;

-- A CTE used twice.
EXPLAIN (VERBOSE, COSTS OFF) WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w);
WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w);
SELECT count(*) FROM (
  (SELECT q::text FROM (WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)) q EXCEPT ALL SELECT q::text FROM (WITH w AS (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)) q)
  UNION ALL (SELECT q::text FROM (WITH w AS (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)) q EXCEPT ALL SELECT q::text FROM (WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)) q)) difference;

-- A CTE that is materialized.
EXPLAIN (VERBOSE, COSTS OFF) WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10;
WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10;
SELECT count(*) FROM (
  (SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10) q EXCEPT ALL SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10) q)
  UNION ALL (SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10) q EXCEPT ALL SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10) q)) difference;

-- An uncorrelated EXISTS.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100);
SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100);
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100)) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM heap.t3 WHERE EXISTS (SELECT 1 FROM heap.t2 WHERE a > 100)) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k FROM heap.t3 WHERE EXISTS (SELECT 1 FROM heap.t2 WHERE a > 100)) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100)) q)) difference;

-- A correlated IN.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE c IN (SELECT c FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id;
SELECT id FROM t3 x WHERE c IN (SELECT c FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE c IN (SELECT c FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE c IN (SELECT c FROM heap.t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE c IN (SELECT c FROM heap.t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE c IN (SELECT c FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q)) difference;

-- A correlated NOT IN with NULLs.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE a NOT IN (SELECT a FROM t2 y WHERE y.i = x.i) ORDER BY id;
SELECT id FROM t3 x WHERE a NOT IN (SELECT a FROM t2 y WHERE y.i = x.i) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE a NOT IN (SELECT a FROM t2 y WHERE y.i = x.i) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE a NOT IN (SELECT a FROM heap.t2 y WHERE y.i = x.i) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE a NOT IN (SELECT a FROM heap.t2 y WHERE y.i = x.i) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE a NOT IN (SELECT a FROM t2 y WHERE y.i = x.i) ORDER BY id) q)) difference;

-- A correlated ALL.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE n > ALL (SELECT n FROM t2 y WHERE y.i = x.i) ORDER BY id;
SELECT id FROM t3 x WHERE n > ALL (SELECT n FROM t2 y WHERE y.i = x.i) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE n > ALL (SELECT n FROM t2 y WHERE y.i = x.i) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE n > ALL (SELECT n FROM heap.t2 y WHERE y.i = x.i) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE n > ALL (SELECT n FROM heap.t2 y WHERE y.i = x.i) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE n > ALL (SELECT n FROM t2 y WHERE y.i = x.i) ORDER BY id) q)) difference;

-- Rows of a correlated subquery.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE (a, c) IN (SELECT a, c FROM t2 y WHERE y.k = x.k) ORDER BY id;
SELECT id FROM t3 x WHERE (a, c) IN (SELECT a, c FROM t2 y WHERE y.k = x.k) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE (a, c) IN (SELECT a, c FROM t2 y WHERE y.k = x.k) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE (a, c) IN (SELECT a, c FROM heap.t2 y WHERE y.k = x.k) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE (a, c) IN (SELECT a, c FROM heap.t2 y WHERE y.k = x.k) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE (a, c) IN (SELECT a, c FROM t2 y WHERE y.k = x.k) ORDER BY id) q)) difference;

-- A negated disjunction.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE NOT (a > 3 OR EXISTS (SELECT 1 FROM t2 y WHERE y.c = x.c)) ORDER BY id;
SELECT id FROM t3 x WHERE NOT (a > 3 OR EXISTS (SELECT 1 FROM t2 y WHERE y.c = x.c)) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE NOT (a > 3 OR EXISTS (SELECT 1 FROM t2 y WHERE y.c = x.c)) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE NOT (a > 3 OR EXISTS (SELECT 1 FROM heap.t2 y WHERE y.c = x.c)) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE NOT (a > 3 OR EXISTS (SELECT 1 FROM heap.t2 y WHERE y.c = x.c)) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE NOT (a > 3 OR EXISTS (SELECT 1 FROM t2 y WHERE y.c = x.c)) ORDER BY id) q)) difference;

-- An ANY without equality.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, c FROM t3 x WHERE a + i < ANY (SELECT y.a * 2 FROM t2 y WHERE y.n > 1) ORDER BY id;
SELECT id, c FROM t3 x WHERE a + i < ANY (SELECT y.a * 2 FROM t2 y WHERE y.n > 1) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, c FROM t3 x WHERE a + i < ANY (SELECT y.a * 2 FROM t2 y WHERE y.n > 1) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, c FROM heap.t3 x WHERE a + i < ANY (SELECT y.a * 2 FROM heap.t2 y WHERE y.n > 1) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, c FROM heap.t3 x WHERE a + i < ANY (SELECT y.a * 2 FROM heap.t2 y WHERE y.n > 1) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, c FROM t3 x WHERE a + i < ANY (SELECT y.a * 2 FROM t2 y WHERE y.n > 1) ORDER BY id) q)) difference;

-- A count among the columns.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, (SELECT count(*) FROM t2 y WHERE y.a = x.a) AS k FROM t3 x ORDER BY id;
SELECT id, (SELECT count(*) FROM t2 y WHERE y.a = x.a) AS k FROM t3 x ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, (SELECT count(*) FROM t2 y WHERE y.a = x.a) AS k FROM t3 x ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, (SELECT count(*) FROM heap.t2 y WHERE y.a = x.a) AS k FROM heap.t3 x ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, (SELECT count(*) FROM heap.t2 y WHERE y.a = x.a) AS k FROM heap.t3 x ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, (SELECT count(*) FROM t2 y WHERE y.a = x.a) AS k FROM t3 x ORDER BY id) q)) difference;

-- Expressions over aggregates among the columns.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, (SELECT coalesce(sum(y.n), 0) + count(y.c) FROM t2 y WHERE y.i = x.i AND y.k) AS k, (SELECT max(y.d) FROM t1 y WHERE y.c = x.c) AS m FROM t3 x ORDER BY id;
SELECT id, (SELECT coalesce(sum(y.n), 0) + count(y.c) FROM t2 y WHERE y.i = x.i AND y.k) AS k, (SELECT max(y.d) FROM t1 y WHERE y.c = x.c) AS m FROM t3 x ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, (SELECT coalesce(sum(y.n), 0) + count(y.c) FROM t2 y WHERE y.i = x.i AND y.k) AS k, (SELECT max(y.d) FROM t1 y WHERE y.c = x.c) AS m FROM t3 x ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, (SELECT coalesce(sum(y.n), 0) + count(y.c) FROM heap.t2 y WHERE y.i = x.i AND y.k) AS k, (SELECT max(y.d) FROM heap.t1 y WHERE y.c = x.c) AS m FROM heap.t3 x ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, (SELECT coalesce(sum(y.n), 0) + count(y.c) FROM heap.t2 y WHERE y.i = x.i AND y.k) AS k, (SELECT max(y.d) FROM heap.t1 y WHERE y.c = x.c) AS m FROM heap.t3 x ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, (SELECT coalesce(sum(y.n), 0) + count(y.c) FROM t2 y WHERE y.i = x.i AND y.k) AS k, (SELECT max(y.d) FROM t1 y WHERE y.c = x.c) AS m FROM t3 x ORDER BY id) q)) difference;

-- A count in a condition.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE (SELECT count(*) FROM t2 y WHERE y.a = x.a) < 2 ORDER BY id;
SELECT id FROM t3 x WHERE (SELECT count(*) FROM t2 y WHERE y.a = x.a) < 2 ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE (SELECT count(*) FROM t2 y WHERE y.a = x.a) < 2 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE (SELECT count(*) FROM heap.t2 y WHERE y.a = x.a) < 2 ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE (SELECT count(*) FROM heap.t2 y WHERE y.a = x.a) < 2 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE (SELECT count(*) FROM t2 y WHERE y.a = x.a) < 2 ORDER BY id) q)) difference;

-- EXISTS and IN below OR.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE i = 1 OR EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.k) OR c IN (SELECT c FROM t1 z WHERE z.n > 2) ORDER BY id;
SELECT id FROM t3 x WHERE i = 1 OR EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.k) OR c IN (SELECT c FROM t1 z WHERE z.n > 2) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE i = 1 OR EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.k) OR c IN (SELECT c FROM t1 z WHERE z.n > 2) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE i = 1 OR EXISTS (SELECT 1 FROM heap.t2 y WHERE y.a = x.a AND y.k) OR c IN (SELECT c FROM heap.t1 z WHERE z.n > 2) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE i = 1 OR EXISTS (SELECT 1 FROM heap.t2 y WHERE y.a = x.a AND y.k) OR c IN (SELECT c FROM heap.t1 z WHERE z.n > 2) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE i = 1 OR EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.k) OR c IN (SELECT c FROM t1 z WHERE z.n > 2) ORDER BY id) q)) difference;

-- EXISTS as a column.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, EXISTS (SELECT 1 FROM t2 y WHERE y.d = x.d) AS k, CASE WHEN id IN (SELECT id FROM t1) THEN 1 ELSE 0 END AS m FROM t3 x ORDER BY id;
SELECT id, EXISTS (SELECT 1 FROM t2 y WHERE y.d = x.d) AS k, CASE WHEN id IN (SELECT id FROM t1) THEN 1 ELSE 0 END AS m FROM t3 x ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, EXISTS (SELECT 1 FROM t2 y WHERE y.d = x.d) AS k, CASE WHEN id IN (SELECT id FROM t1) THEN 1 ELSE 0 END AS m FROM t3 x ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, EXISTS (SELECT 1 FROM heap.t2 y WHERE y.d = x.d) AS k, CASE WHEN id IN (SELECT id FROM heap.t1) THEN 1 ELSE 0 END AS m FROM heap.t3 x ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, EXISTS (SELECT 1 FROM heap.t2 y WHERE y.d = x.d) AS k, CASE WHEN id IN (SELECT id FROM heap.t1) THEN 1 ELSE 0 END AS m FROM heap.t3 x ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, EXISTS (SELECT 1 FROM t2 y WHERE y.d = x.d) AS k, CASE WHEN id IN (SELECT id FROM t1) THEN 1 ELSE 0 END AS m FROM t3 x ORDER BY id) q)) difference;

-- A comparison that may be NULL stays a SubPlan.
SELECT public.pushed($$SELECT id, a IN (SELECT a FROM t2) AS k FROM t3 x ORDER BY id LIMIT 5$$);
SELECT id, a IN (SELECT a FROM t2) AS k FROM t3 x ORDER BY id LIMIT 5;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, a IN (SELECT a FROM t2) AS k FROM t3 x ORDER BY id LIMIT 5) q EXCEPT ALL SELECT q::text FROM (SELECT id, a IN (SELECT a FROM heap.t2) AS k FROM heap.t3 x ORDER BY id LIMIT 5) q)
  UNION ALL (SELECT q::text FROM (SELECT id, a IN (SELECT a FROM heap.t2) AS k FROM heap.t3 x ORDER BY id LIMIT 5) q EXCEPT ALL SELECT q::text FROM (SELECT id, a IN (SELECT a FROM t2) AS k FROM t3 x ORDER BY id LIMIT 5) q)) difference;

-- Computed columns of a subquery below an outer join.
EXPLAIN (VERBOSE, COSTS OFF) SELECT x.id, y.one, y.two FROM t3 x LEFT JOIN (SELECT a, 1 AS one, coalesce(n, 0) AS two FROM t2) y ON y.a = x.a WHERE y.one = 1 AND y.two >= 1 ORDER BY 1, 2, 3 LIMIT 20;
SELECT x.id, y.one, y.two FROM t3 x LEFT JOIN (SELECT a, 1 AS one, coalesce(n, 0) AS two FROM t2) y ON y.a = x.a WHERE y.one = 1 AND y.two >= 1 ORDER BY 1, 2, 3 LIMIT 20;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT x.id, y.one, y.two FROM t3 x LEFT JOIN (SELECT a, 1 AS one, coalesce(n, 0) AS two FROM t2) y ON y.a = x.a WHERE y.one = 1 AND y.two >= 1 ORDER BY 1, 2, 3 LIMIT 20) q EXCEPT ALL SELECT q::text FROM (SELECT x.id, y.one, y.two FROM heap.t3 x LEFT JOIN (SELECT a, 1 AS one, coalesce(n, 0) AS two FROM heap.t2) y ON y.a = x.a WHERE y.one = 1 AND y.two >= 1 ORDER BY 1, 2, 3 LIMIT 20) q)
  UNION ALL (SELECT q::text FROM (SELECT x.id, y.one, y.two FROM heap.t3 x LEFT JOIN (SELECT a, 1 AS one, coalesce(n, 0) AS two FROM heap.t2) y ON y.a = x.a WHERE y.one = 1 AND y.two >= 1 ORDER BY 1, 2, 3 LIMIT 20) q EXCEPT ALL SELECT q::text FROM (SELECT x.id, y.one, y.two FROM t3 x LEFT JOIN (SELECT a, 1 AS one, coalesce(n, 0) AS two FROM t2) y ON y.a = x.a WHERE y.one = 1 AND y.two >= 1 ORDER BY 1, 2, 3 LIMIT 20) q)) difference;

-- Two semi joins by one column, of joins that have it on both sides: conditions above name any of them.
\i :abs_srcdir/include/same.sql
SELECT public.pushed($$WITH w AS (SELECT x.a FROM t1 x, t2 y WHERE x.a = y.a AND x.id <> y.id) SELECT count(DISTINCT z.id), sum(z.n) FROM t3 z WHERE z.a IN (SELECT a FROM w) AND z.a IN (SELECT t1.a FROM t1, w WHERE t1.a = w.a)$$);
SELECT same($$WITH w AS (SELECT x.a FROM t1 x, t2 y WHERE x.a = y.a AND x.id <> y.id) SELECT count(DISTINCT z.id), sum(z.n) FROM t3 z WHERE z.a IN (SELECT a FROM w) AND z.a IN (SELECT t1.a FROM t1, w WHERE t1.a = w.a)$$);
SELECT same($$SELECT z.id FROM t3 z WHERE z.a IN (SELECT x.a FROM t1 x, t2 y WHERE x.a = y.a AND x.b < y.id) AND EXISTS (SELECT 1 FROM t2 v, t1 u WHERE u.a = v.a AND v.a = z.a AND u.i > v.i)$$);
