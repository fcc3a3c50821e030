--
-- Grouping sets.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- ROLLUP, with what tells its rows apart.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, c, count(*) AS k, sum(n) AS s, GROUPING(a, c) AS g FROM t1 WHERE id < 30 GROUP BY ROLLUP (a, c) ORDER BY g, a, c;
SELECT a, c, count(*) AS k, sum(n) AS s, GROUPING(a, c) AS g FROM t1 WHERE id < 30 GROUP BY ROLLUP (a, c) ORDER BY g, a, c;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, c, count(*) AS k, sum(n) AS s, GROUPING(a, c) AS g FROM t1 WHERE id < 30 GROUP BY ROLLUP (a, c) ORDER BY g, a, c) q EXCEPT ALL SELECT q::text FROM (SELECT a, c, count(*) AS k, sum(n) AS s, GROUPING(a, c) AS g FROM heap.t1 WHERE id < 30 GROUP BY ROLLUP (a, c) ORDER BY g, a, c) q)
  UNION ALL (SELECT q::text FROM (SELECT a, c, count(*) AS k, sum(n) AS s, GROUPING(a, c) AS g FROM heap.t1 WHERE id < 30 GROUP BY ROLLUP (a, c) ORDER BY g, a, c) q EXCEPT ALL SELECT q::text FROM (SELECT a, c, count(*) AS k, sum(n) AS s, GROUPING(a, c) AS g FROM t1 WHERE id < 30 GROUP BY ROLLUP (a, c) ORDER BY g, a, c) q)) difference;

-- CUBE of expressions; expressions over them are of NULL where they are not grouped by.
EXPLAIN (VERBOSE, COSTS OFF) SELECT i % 3 AS r, upper(c) AS u, coalesce(i % 3, -1) AS v, max(d) AS m FROM t2 GROUP BY CUBE (i % 3, upper(c)) ORDER BY 1, 2, 4 LIMIT 15;
SELECT i % 3 AS r, upper(c) AS u, coalesce(i % 3, -1) AS v, max(d) AS m FROM t2 GROUP BY CUBE (i % 3, upper(c)) ORDER BY 1, 2, 4 LIMIT 15;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT i % 3 AS r, upper(c) AS u, coalesce(i % 3, -1) AS v, max(d) AS m FROM t2 GROUP BY CUBE (i % 3, upper(c)) ORDER BY 1, 2, 4 LIMIT 15) q EXCEPT ALL SELECT q::text FROM (SELECT i % 3 AS r, upper(c) AS u, coalesce(i % 3, -1) AS v, max(d) AS m FROM heap.t2 GROUP BY CUBE (i % 3, upper(c)) ORDER BY 1, 2, 4 LIMIT 15) q)
  UNION ALL (SELECT q::text FROM (SELECT i % 3 AS r, upper(c) AS u, coalesce(i % 3, -1) AS v, max(d) AS m FROM heap.t2 GROUP BY CUBE (i % 3, upper(c)) ORDER BY 1, 2, 4 LIMIT 15) q EXCEPT ALL SELECT q::text FROM (SELECT i % 3 AS r, upper(c) AS u, coalesce(i % 3, -1) AS v, max(d) AS m FROM t2 GROUP BY CUBE (i % 3, upper(c)) ORDER BY 1, 2, 4 LIMIT 15) q)) difference;

-- Aggregates see the values of what their set does not group by.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, sum(a) AS s, count(DISTINCT c) AS k, avg(n) FILTER (WHERE a > 2) AS f FROM t1 GROUP BY GROUPING SETS ((a), (c), ()) HAVING count(*) > 2 ORDER BY s, a, k, f;
SELECT a, sum(a) AS s, count(DISTINCT c) AS k, avg(n) FILTER (WHERE a > 2) AS f FROM t1 GROUP BY GROUPING SETS ((a), (c), ()) HAVING count(*) > 2 ORDER BY s, a, k, f;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, sum(a) AS s, count(DISTINCT c) AS k, avg(n) FILTER (WHERE a > 2) AS f FROM t1 GROUP BY GROUPING SETS ((a), (c), ()) HAVING count(*) > 2 ORDER BY s, a, k, f) q EXCEPT ALL SELECT q::text FROM (SELECT a, sum(a) AS s, count(DISTINCT c) AS k, avg(n) FILTER (WHERE a > 2) AS f FROM heap.t1 GROUP BY GROUPING SETS ((a), (c), ()) HAVING count(*) > 2 ORDER BY s, a, k, f) q)
  UNION ALL (SELECT q::text FROM (SELECT a, sum(a) AS s, count(DISTINCT c) AS k, avg(n) FILTER (WHERE a > 2) AS f FROM heap.t1 GROUP BY GROUPING SETS ((a), (c), ()) HAVING count(*) > 2 ORDER BY s, a, k, f) q EXCEPT ALL SELECT q::text FROM (SELECT a, sum(a) AS s, count(DISTINCT c) AS k, avg(n) FILTER (WHERE a > 2) AS f FROM t1 GROUP BY GROUPING SETS ((a), (c), ()) HAVING count(*) > 2 ORDER BY s, a, k, f) q)) difference;

-- Keys that are not returned, and an order by an expression.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t1 GROUP BY GROUPING SETS ((a, c), (i)) ORDER BY min(id), k LIMIT 10;
SELECT count(*) AS k FROM t1 GROUP BY GROUPING SETS ((a, c), (i)) ORDER BY min(id), k LIMIT 10;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k FROM t1 GROUP BY GROUPING SETS ((a, c), (i)) ORDER BY min(id), k LIMIT 10) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 GROUP BY GROUPING SETS ((a, c), (i)) ORDER BY min(id), k LIMIT 10) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 GROUP BY GROUPING SETS ((a, c), (i)) ORDER BY min(id), k LIMIT 10) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM t1 GROUP BY GROUPING SETS ((a, c), (i)) ORDER BY min(id), k LIMIT 10) q)) difference;

-- Joins, and sets that are there twice.
EXPLAIN (VERBOSE, COSTS OFF) SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3;
SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a GROUP BY x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q)
  UNION ALL (SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a GROUP BY x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q)) difference;

-- The same sets once.
EXPLAIN (VERBOSE, COSTS OFF) SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY DISTINCT x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3;
SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY DISTINCT x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY DISTINCT x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a GROUP BY DISTINCT x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q)
  UNION ALL (SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a GROUP BY DISTINCT x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT x.a, y.i, count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY DISTINCT x.a, GROUPING SETS ((y.i), (), ()) ORDER BY 1, 2, 3) q)) difference;

-- One row of no rows, without an aggregate too.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, GROUPING(a) AS g FROM t0 GROUP BY ROLLUP (a);
SELECT a, GROUPING(a) AS g FROM t0 GROUP BY ROLLUP (a);
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, GROUPING(a) AS g FROM t0 GROUP BY ROLLUP (a)) q EXCEPT ALL SELECT q::text FROM (SELECT a, GROUPING(a) AS g FROM heap.t0 GROUP BY ROLLUP (a)) q)
  UNION ALL (SELECT q::text FROM (SELECT a, GROUPING(a) AS g FROM heap.t0 GROUP BY ROLLUP (a)) q EXCEPT ALL SELECT q::text FROM (SELECT a, GROUPING(a) AS g FROM t0 GROUP BY ROLLUP (a)) q)) difference;

-- DISTINCT above the sets.
EXPLAIN (VERBOSE, COSTS OFF) SELECT DISTINCT a FROM t1 GROUP BY CUBE (a, i) ORDER BY a;
SELECT DISTINCT a FROM t1 GROUP BY CUBE (a, i) ORDER BY a;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT DISTINCT a FROM t1 GROUP BY CUBE (a, i) ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT DISTINCT a FROM heap.t1 GROUP BY CUBE (a, i) ORDER BY a) q)
  UNION ALL (SELECT q::text FROM (SELECT DISTINCT a FROM heap.t1 GROUP BY CUBE (a, i) ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT DISTINCT a FROM t1 GROUP BY CUBE (a, i) ORDER BY a) q)) difference;

-- In a subquery, with a correlation and a CTE.
-- Versions of PostgreSQL differ in projections that change nothing.
CREATE FUNCTION lines_of_plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
    IF line !~ '^ *Project *$' THEN
      RETURN NEXT ltrim(line);
    END IF;
  END LOOP;
END
$$;
SELECT lines_of_plan('WITH w AS (SELECT a, i, n FROM t1 WHERE id < 40) SELECT x.id, (SELECT max(s) FROM (SELECT a, sum(n) AS s FROM w GROUP BY ROLLUP (a)) q WHERE q.a = x.a) AS m FROM t3 x WHERE x.id < 10 ORDER BY x.id');
DROP FUNCTION lines_of_plan;
WITH w AS (SELECT a, i, n FROM t1 WHERE id < 40) SELECT x.id, (SELECT max(s) FROM (SELECT a, sum(n) AS s FROM w GROUP BY ROLLUP (a)) q WHERE q.a = x.a) AS m FROM t3 x WHERE x.id < 10 ORDER BY x.id;
SELECT count(*) FROM (
  (SELECT q::text FROM (WITH w AS (SELECT a, i, n FROM t1 WHERE id < 40) SELECT x.id, (SELECT max(s) FROM (SELECT a, sum(n) AS s FROM w GROUP BY ROLLUP (a)) q WHERE q.a = x.a) AS m FROM t3 x WHERE x.id < 10 ORDER BY x.id) q EXCEPT ALL SELECT q::text FROM (WITH w AS (SELECT a, i, n FROM heap.t1 WHERE id < 40) SELECT x.id, (SELECT max(s) FROM (SELECT a, sum(n) AS s FROM w GROUP BY ROLLUP (a)) q WHERE q.a = x.a) AS m FROM heap.t3 x WHERE x.id < 10 ORDER BY x.id) q)
  UNION ALL (SELECT q::text FROM (WITH w AS (SELECT a, i, n FROM heap.t1 WHERE id < 40) SELECT x.id, (SELECT max(s) FROM (SELECT a, sum(n) AS s FROM w GROUP BY ROLLUP (a)) q WHERE q.a = x.a) AS m FROM heap.t3 x WHERE x.id < 10 ORDER BY x.id) q EXCEPT ALL SELECT q::text FROM (WITH w AS (SELECT a, i, n FROM t1 WHERE id < 40) SELECT x.id, (SELECT max(s) FROM (SELECT a, sum(n) AS s FROM w GROUP BY ROLLUP (a)) q WHERE q.a = x.a) AS m FROM t3 x WHERE x.id < 10 ORDER BY x.id) q)) difference;

-- Numeric keys keep their scale.
EXPLAIN (VERBOSE, COSTS OFF) SELECT n, m, sum(n * m) AS s FROM t3 WHERE id < 12 GROUP BY GROUPING SETS ((n, m), (m)) ORDER BY 1, 2, 3;
SELECT n, m, sum(n * m) AS s FROM t3 WHERE id < 12 GROUP BY GROUPING SETS ((n, m), (m)) ORDER BY 1, 2, 3;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT n, m, sum(n * m) AS s FROM t3 WHERE id < 12 GROUP BY GROUPING SETS ((n, m), (m)) ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT n, m, sum(n * m) AS s FROM heap.t3 WHERE id < 12 GROUP BY GROUPING SETS ((n, m), (m)) ORDER BY 1, 2, 3) q)
  UNION ALL (SELECT q::text FROM (SELECT n, m, sum(n * m) AS s FROM heap.t3 WHERE id < 12 GROUP BY GROUPING SETS ((n, m), (m)) ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT n, m, sum(n * m) AS s FROM t3 WHERE id < 12 GROUP BY GROUPING SETS ((n, m), (m)) ORDER BY 1, 2, 3) q)) difference;

-- A window above the groups.
SELECT public.pushed($$SELECT a, count(*) AS k, rank() OVER (ORDER BY count(*) DESC, a) AS r FROM t1 GROUP BY ROLLUP (a) ORDER BY r, a LIMIT 5$$);
SELECT a, count(*) AS k, rank() OVER (ORDER BY count(*) DESC, a) AS r FROM t1 GROUP BY ROLLUP (a) ORDER BY r, a LIMIT 5;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, count(*) AS k, rank() OVER (ORDER BY count(*) DESC, a) AS r FROM t1 GROUP BY ROLLUP (a) ORDER BY r, a LIMIT 5) q EXCEPT ALL SELECT q::text FROM (SELECT a, count(*) AS k, rank() OVER (ORDER BY count(*) DESC, a) AS r FROM heap.t1 GROUP BY ROLLUP (a) ORDER BY r, a LIMIT 5) q)
  UNION ALL (SELECT q::text FROM (SELECT a, count(*) AS k, rank() OVER (ORDER BY count(*) DESC, a) AS r FROM heap.t1 GROUP BY ROLLUP (a) ORDER BY r, a LIMIT 5) q EXCEPT ALL SELECT q::text FROM (SELECT a, count(*) AS k, rank() OVER (ORDER BY count(*) DESC, a) AS r FROM t1 GROUP BY ROLLUP (a) ORDER BY r, a LIMIT 5) q)) difference;

-- A subquery among the columns stays in PostgreSQL.
SELECT trim(line) AS line FROM public.pushed($$SELECT a, (SELECT max(id) FROM t2 y WHERE y.a = x.a) AS m FROM t1 x GROUP BY ROLLUP (a) ORDER BY a LIMIT 5$$) line WHERE line !~ 'Sort';
SELECT a, (SELECT max(id) FROM t2 y WHERE y.a = x.a) AS m FROM t1 x GROUP BY ROLLUP (a) ORDER BY a LIMIT 5;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, (SELECT max(id) FROM t2 y WHERE y.a = x.a) AS m FROM t1 x GROUP BY ROLLUP (a) ORDER BY a LIMIT 5) q EXCEPT ALL SELECT q::text FROM (SELECT a, (SELECT max(id) FROM heap.t2 y WHERE y.a = x.a) AS m FROM heap.t1 x GROUP BY ROLLUP (a) ORDER BY a LIMIT 5) q)
  UNION ALL (SELECT q::text FROM (SELECT a, (SELECT max(id) FROM heap.t2 y WHERE y.a = x.a) AS m FROM heap.t1 x GROUP BY ROLLUP (a) ORDER BY a LIMIT 5) q EXCEPT ALL SELECT q::text FROM (SELECT a, (SELECT max(id) FROM t2 y WHERE y.a = x.a) AS m FROM t1 x GROUP BY ROLLUP (a) ORDER BY a LIMIT 5) q)) difference;

-- Sets that HAVING rules out.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, i, count(*) AS k FROM t1 GROUP BY CUBE (a, i) HAVING GROUPING(a) = 0 AND count(*) > 3 ORDER BY 1, 2, 3;
SELECT a, i, count(*) AS k FROM t1 GROUP BY CUBE (a, i) HAVING GROUPING(a) = 0 AND count(*) > 3 ORDER BY 1, 2, 3;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, i, count(*) AS k FROM t1 GROUP BY CUBE (a, i) HAVING GROUPING(a) = 0 AND count(*) > 3 ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT a, i, count(*) AS k FROM heap.t1 GROUP BY CUBE (a, i) HAVING GROUPING(a) = 0 AND count(*) > 3 ORDER BY 1, 2, 3) q)
  UNION ALL (SELECT q::text FROM (SELECT a, i, count(*) AS k FROM heap.t1 GROUP BY CUBE (a, i) HAVING GROUPING(a) = 0 AND count(*) > 3 ORDER BY 1, 2, 3) q EXCEPT ALL SELECT q::text FROM (SELECT a, i, count(*) AS k FROM t1 GROUP BY CUBE (a, i) HAVING GROUPING(a) = 0 AND count(*) > 3 ORDER BY 1, 2, 3) q)) difference;

-- And all of them.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) HAVING GROUPING(a) > 1;
SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) HAVING GROUPING(a) > 1;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) HAVING GROUPING(a) > 1) q EXCEPT ALL SELECT q::text FROM (SELECT a, count(*) AS k FROM heap.t1 GROUP BY ROLLUP (a) HAVING GROUPING(a) > 1) q)
  UNION ALL (SELECT q::text FROM (SELECT a, count(*) AS k FROM heap.t1 GROUP BY ROLLUP (a) HAVING GROUPING(a) > 1) q EXCEPT ALL SELECT q::text FROM (SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) HAVING GROUPING(a) > 1) q)) difference;

-- A limit that reads a query of WITH.
SELECT trim(line) AS line FROM public.pushed($$WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) ORDER BY a LIMIT (SELECT count(*) FROM w)$$) line WHERE line !~ 'Sort';
WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) ORDER BY a LIMIT (SELECT count(*) FROM w);
SELECT count(*) FROM (
  (SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) ORDER BY a LIMIT (SELECT count(*) FROM w)) q EXCEPT ALL SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM heap.t1 WHERE id < 4) SELECT a, count(*) AS k FROM heap.t1 GROUP BY ROLLUP (a) ORDER BY a LIMIT (SELECT count(*) FROM w)) q)
  UNION ALL (SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM heap.t1 WHERE id < 4) SELECT a, count(*) AS k FROM heap.t1 GROUP BY ROLLUP (a) ORDER BY a LIMIT (SELECT count(*) FROM w)) q EXCEPT ALL SELECT q::text FROM (WITH w AS MATERIALIZED (SELECT a FROM t1 WHERE id < 4) SELECT a, count(*) AS k FROM t1 GROUP BY ROLLUP (a) ORDER BY a LIMIT (SELECT count(*) FROM w)) q)) difference;

-- GROUPING() of a subquery's constant has no column, and is still the grouping's.
SELECT x.ts, to_char(sum(x.i), 'S999') AS r1, GROUPING(x.ts) AS r2 FROM (SELECT i, timestamp '1994-01-01' AS ts FROM t1) x GROUP BY 1;
