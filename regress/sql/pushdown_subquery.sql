--
-- Subqueries that are rewritten or labelled.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- A correlated average.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a);
SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a);
SELECT count(*) FROM (((SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a)) EXCEPT ALL (SELECT count(*) AS k FROM heap.t1 x WHERE n < (SELECT 0.5 * avg(n) FROM heap.t2 y WHERE y.a = x.a))) UNION ALL ((SELECT count(*) AS k FROM heap.t1 x WHERE n < (SELECT 0.5 * avg(n) FROM heap.t2 y WHERE y.a = x.a)) EXCEPT ALL (SELECT count(*) AS k FROM t1 x WHERE n < (SELECT 0.5 * avg(n) FROM t2 y WHERE y.a = x.a)))) difference;

-- A correlated minimum.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id;
SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id;
SELECT count(*) FROM (((SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id) EXCEPT ALL (SELECT id FROM heap.t3 x WHERE n = (SELECT min(n) FROM heap.t2 y WHERE y.a = x.a AND y.k) ORDER BY id)) UNION ALL ((SELECT id FROM heap.t3 x WHERE n = (SELECT min(n) FROM heap.t2 y WHERE y.a = x.a AND y.k) ORDER BY id) EXCEPT ALL (SELECT id FROM t3 x WHERE n = (SELECT min(n) FROM t2 y WHERE y.a = x.a AND y.k) ORDER BY id))) difference;

-- NOT IN with NULLs.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id;
SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id;
SELECT count(*) FROM (((SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id) EXCEPT ALL (SELECT id FROM heap.t3 WHERE a NOT IN (SELECT a FROM heap.t2 WHERE i = 1) ORDER BY id)) UNION ALL ((SELECT id FROM heap.t3 WHERE a NOT IN (SELECT a FROM heap.t2 WHERE i = 1) ORDER BY id) EXCEPT ALL (SELECT id FROM t3 WHERE a NOT IN (SELECT a FROM t2 WHERE i = 1) ORDER BY id))) difference;

-- NOT IN without NULLs.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id;
SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id;
SELECT count(*) FROM (((SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id) EXCEPT ALL (SELECT id FROM heap.t3 WHERE id NOT IN (SELECT id FROM heap.t2 WHERE i > 0) ORDER BY id)) UNION ALL ((SELECT id FROM heap.t3 WHERE id NOT IN (SELECT id FROM heap.t2 WHERE i > 0) ORDER BY id) EXCEPT ALL (SELECT id FROM t3 WHERE id NOT IN (SELECT id FROM t2 WHERE i > 0) ORDER BY id))) difference;

-- IN a group.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id;
SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id;
SELECT count(*) FROM (((SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id) EXCEPT ALL (SELECT id FROM heap.t3 WHERE a IN (SELECT a FROM heap.t1 GROUP BY a HAVING count(*) > 12) ORDER BY id)) UNION ALL ((SELECT id FROM heap.t3 WHERE a IN (SELECT a FROM heap.t1 GROUP BY a HAVING count(*) > 12) ORDER BY id) EXCEPT ALL (SELECT id FROM t3 WHERE a IN (SELECT a FROM t1 GROUP BY a HAVING count(*) > 12) ORDER BY id))) difference;

-- A CTE used twice.
EXPLAIN (VERBOSE, COSTS OFF) WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w);
WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w);
SELECT count(*) FROM (((WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)) EXCEPT ALL (WITH w AS (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w))) UNION ALL ((WITH w AS (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)) EXCEPT ALL (WITH w AS (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)))) difference;

-- A CTE that is materialized.
EXPLAIN (VERBOSE, COSTS OFF) WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10;
WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10;
SELECT count(*) FROM (((WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10) EXCEPT ALL (WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10)) UNION ALL ((WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM heap.t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10) EXCEPT ALL (WITH w AS MATERIALIZED (SELECT a, sum(n) AS total FROM t1 GROUP BY a) SELECT count(*) AS k FROM w WHERE total > 10))) difference;

-- An uncorrelated EXISTS.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100);
SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100);
SELECT count(*) FROM (((SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100)) EXCEPT ALL (SELECT count(*) AS k FROM heap.t3 WHERE EXISTS (SELECT 1 FROM heap.t2 WHERE a > 100))) UNION ALL ((SELECT count(*) AS k FROM heap.t3 WHERE EXISTS (SELECT 1 FROM heap.t2 WHERE a > 100)) EXCEPT ALL (SELECT count(*) AS k FROM t3 WHERE EXISTS (SELECT 1 FROM t2 WHERE a > 100)))) difference;
