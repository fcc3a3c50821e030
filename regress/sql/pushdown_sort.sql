--
-- ORDER BY, LIMIT, OFFSET.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- NULLs first.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, id FROM t3 ORDER BY a NULLS FIRST, id LIMIT 10;
SELECT a, id FROM t3 ORDER BY a NULLS FIRST, id LIMIT 10;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, id FROM t3 ORDER BY a NULLS FIRST, id LIMIT 10) q EXCEPT ALL SELECT q::text FROM (SELECT a, id FROM heap.t3 ORDER BY a NULLS FIRST, id LIMIT 10) q)
  UNION ALL (SELECT q::text FROM (SELECT a, id FROM heap.t3 ORDER BY a NULLS FIRST, id LIMIT 10) q EXCEPT ALL SELECT q::text FROM (SELECT a, id FROM t3 ORDER BY a NULLS FIRST, id LIMIT 10) q)) difference;

-- Descending.
EXPLAIN (VERBOSE, COSTS OFF) SELECT n, id FROM t3 ORDER BY n DESC, id OFFSET 30;
SELECT n, id FROM t3 ORDER BY n DESC, id OFFSET 30;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT n, id FROM t3 ORDER BY n DESC, id OFFSET 30) q EXCEPT ALL SELECT q::text FROM (SELECT n, id FROM heap.t3 ORDER BY n DESC, id OFFSET 30) q)
  UNION ALL (SELECT q::text FROM (SELECT n, id FROM heap.t3 ORDER BY n DESC, id OFFSET 30) q EXCEPT ALL SELECT q::text FROM (SELECT n, id FROM t3 ORDER BY n DESC, id OFFSET 30) q)) difference;

-- Text.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c, id FROM t3 ORDER BY c DESC NULLS LAST, id LIMIT 12;
SELECT c, id FROM t3 ORDER BY c DESC NULLS LAST, id LIMIT 12;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT c, id FROM t3 ORDER BY c DESC NULLS LAST, id LIMIT 12) q EXCEPT ALL SELECT q::text FROM (SELECT c, id FROM heap.t3 ORDER BY c DESC NULLS LAST, id LIMIT 12) q)
  UNION ALL (SELECT q::text FROM (SELECT c, id FROM heap.t3 ORDER BY c DESC NULLS LAST, id LIMIT 12) q EXCEPT ALL SELECT q::text FROM (SELECT c, id FROM t3 ORDER BY c DESC NULLS LAST, id LIMIT 12) q)) difference;

-- A limit of nothing.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 ORDER BY id LIMIT 0;
SELECT id FROM t3 ORDER BY id LIMIT 0;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 ORDER BY id LIMIT 0) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 ORDER BY id LIMIT 0) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 ORDER BY id LIMIT 0) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 ORDER BY id LIMIT 0) q)) difference;

-- After a group.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c, sum(n) AS n FROM t1 GROUP BY c ORDER BY n DESC NULLS LAST, c LIMIT 4;
SELECT c, sum(n) AS n FROM t1 GROUP BY c ORDER BY n DESC NULLS LAST, c LIMIT 4;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT c, sum(n) AS n FROM t1 GROUP BY c ORDER BY n DESC NULLS LAST, c LIMIT 4) q EXCEPT ALL SELECT q::text FROM (SELECT c, sum(n) AS n FROM heap.t1 GROUP BY c ORDER BY n DESC NULLS LAST, c LIMIT 4) q)
  UNION ALL (SELECT q::text FROM (SELECT c, sum(n) AS n FROM heap.t1 GROUP BY c ORDER BY n DESC NULLS LAST, c LIMIT 4) q EXCEPT ALL SELECT q::text FROM (SELECT c, sum(n) AS n FROM t1 GROUP BY c ORDER BY n DESC NULLS LAST, c LIMIT 4) q)) difference;

-- By an expression.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE a IS NOT NULL ORDER BY a % 3, -a, id LIMIT 8;
SELECT id FROM t3 WHERE a IS NOT NULL ORDER BY a % 3, -a, id LIMIT 8;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 WHERE a IS NOT NULL ORDER BY a % 3, -a, id LIMIT 8) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a IS NOT NULL ORDER BY a % 3, -a, id LIMIT 8) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a IS NOT NULL ORDER BY a % 3, -a, id LIMIT 8) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 WHERE a IS NOT NULL ORDER BY a % 3, -a, id LIMIT 8) q)) difference;

-- Below a merge join of PostgreSQL's, the engine sorts by the key of the join.
CREATE TABLE heap.sides AS SELECT n AS id, n AS a FROM generate_series(1, 3000) n;
CREATE INDEX ON heap.sides (a);
ANALYZE heap.sides;
SET pystachio.join_keys = 0;
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT x.id, y.id FROM heap.sides x JOIN t1 y ON x.a = y.a;
SELECT count(*), sum(y.id) FROM heap.sides x JOIN t1 y ON x.a = y.a;
EXPLAIN (COSTS OFF) SELECT x.id FROM heap.sides x JOIN (t1 y JOIN t2 z ON y.id = z.id) ON x.a = z.a;
SELECT count(*), sum(y.id) FROM heap.sides x JOIN (t1 y JOIN t2 z ON y.id = z.id) ON x.a = z.a;
SELECT count(*), sum(y.id) FROM heap.sides x FULL JOIN t1 y ON x.a = y.a;
RESET enable_hashjoin;
RESET enable_nestloop;
RESET pystachio.join_keys;
DROP TABLE heap.sides;
