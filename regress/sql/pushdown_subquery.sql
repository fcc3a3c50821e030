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
