--
-- Aggregates, groups, DISTINCT.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- Groups.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c, count(*) AS k, sum(n) AS n, avg(m) AS m, min(d) AS d, max(ts) AS ts FROM t1 GROUP BY c ORDER BY c;
SELECT c, count(*) AS k, sum(n) AS n, avg(m) AS m, min(d) AS d, max(ts) AS ts FROM t1 GROUP BY c ORDER BY c;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT c, count(*) AS k, sum(n) AS n, avg(m) AS m, min(d) AS d, max(ts) AS ts FROM t1 GROUP BY c ORDER BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c, count(*) AS k, sum(n) AS n, avg(m) AS m, min(d) AS d, max(ts) AS ts FROM heap.t1 GROUP BY c ORDER BY c) q)
  UNION ALL (SELECT q::text FROM (SELECT c, count(*) AS k, sum(n) AS n, avg(m) AS m, min(d) AS d, max(ts) AS ts FROM heap.t1 GROUP BY c ORDER BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c, count(*) AS k, sum(n) AS n, avg(m) AS m, min(d) AS d, max(ts) AS ts FROM t1 GROUP BY c ORDER BY c) q)) difference;

-- Without input.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k, sum(n) AS n, avg(a) AS a, min(c) AS c FROM t0;
SELECT count(*) AS k, sum(n) AS n, avg(a) AS a, min(c) AS c FROM t0;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k, sum(n) AS n, avg(a) AS a, min(c) AS c FROM t0) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, sum(n) AS n, avg(a) AS a, min(c) AS c FROM heap.t0) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k, sum(n) AS n, avg(a) AS a, min(c) AS c FROM heap.t0) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, sum(n) AS n, avg(a) AS a, min(c) AS c FROM t0) q)) difference;

-- Without groups.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c, count(*) AS k FROM t0 GROUP BY c;
SELECT c, count(*) AS k FROM t0 GROUP BY c;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT c, count(*) AS k FROM t0 GROUP BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c, count(*) AS k FROM heap.t0 GROUP BY c) q)
  UNION ALL (SELECT q::text FROM (SELECT c, count(*) AS k FROM heap.t0 GROUP BY c) q EXCEPT ALL SELECT q::text FROM (SELECT c, count(*) AS k FROM t0 GROUP BY c) q)) difference;

-- FILTER and DISTINCT.
EXPLAIN (VERBOSE, COSTS OFF) SELECT i, count(DISTINCT c) AS k, sum(n) FILTER (WHERE k) AS n FROM t1 GROUP BY i ORDER BY i;
SELECT i, count(DISTINCT c) AS k, sum(n) FILTER (WHERE k) AS n FROM t1 GROUP BY i ORDER BY i;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT i, count(DISTINCT c) AS k, sum(n) FILTER (WHERE k) AS n FROM t1 GROUP BY i ORDER BY i) q EXCEPT ALL SELECT q::text FROM (SELECT i, count(DISTINCT c) AS k, sum(n) FILTER (WHERE k) AS n FROM heap.t1 GROUP BY i ORDER BY i) q)
  UNION ALL (SELECT q::text FROM (SELECT i, count(DISTINCT c) AS k, sum(n) FILTER (WHERE k) AS n FROM heap.t1 GROUP BY i ORDER BY i) q EXCEPT ALL SELECT q::text FROM (SELECT i, count(DISTINCT c) AS k, sum(n) FILTER (WHERE k) AS n FROM t1 GROUP BY i ORDER BY i) q)) difference;

-- HAVING.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a FROM t1 GROUP BY a HAVING count(*) > 10 AND avg(n) > 100 ORDER BY a;
SELECT a FROM t1 GROUP BY a HAVING count(*) > 10 AND avg(n) > 100 ORDER BY a;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a FROM t1 GROUP BY a HAVING count(*) > 10 AND avg(n) > 100 ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a FROM heap.t1 GROUP BY a HAVING count(*) > 10 AND avg(n) > 100 ORDER BY a) q)
  UNION ALL (SELECT q::text FROM (SELECT a FROM heap.t1 GROUP BY a HAVING count(*) > 10 AND avg(n) > 100 ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a FROM t1 GROUP BY a HAVING count(*) > 10 AND avg(n) > 100 ORDER BY a) q)) difference;

-- HAVING with a subquery.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, sum(n) AS n FROM t1 GROUP BY a HAVING sum(n) > (SELECT avg(n) FROM t2) ORDER BY a;
SELECT a, sum(n) AS n FROM t1 GROUP BY a HAVING sum(n) > (SELECT avg(n) FROM t2) ORDER BY a;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT a, sum(n) AS n FROM t1 GROUP BY a HAVING sum(n) > (SELECT avg(n) FROM t2) ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a, sum(n) AS n FROM heap.t1 GROUP BY a HAVING sum(n) > (SELECT avg(n) FROM heap.t2) ORDER BY a) q)
  UNION ALL (SELECT q::text FROM (SELECT a, sum(n) AS n FROM heap.t1 GROUP BY a HAVING sum(n) > (SELECT avg(n) FROM heap.t2) ORDER BY a) q EXCEPT ALL SELECT q::text FROM (SELECT a, sum(n) AS n FROM t1 GROUP BY a HAVING sum(n) > (SELECT avg(n) FROM t2) ORDER BY a) q)) difference;

-- DISTINCT.
EXPLAIN (VERBOSE, COSTS OFF) SELECT DISTINCT k, i FROM t1 ORDER BY k, i;
SELECT DISTINCT k, i FROM t1 ORDER BY k, i;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT DISTINCT k, i FROM t1 ORDER BY k, i) q EXCEPT ALL SELECT q::text FROM (SELECT DISTINCT k, i FROM heap.t1 ORDER BY k, i) q)
  UNION ALL (SELECT q::text FROM (SELECT DISTINCT k, i FROM heap.t1 ORDER BY k, i) q EXCEPT ALL SELECT q::text FROM (SELECT DISTINCT k, i FROM t1 ORDER BY k, i) q)) difference;

-- Variance.
EXPLAIN (VERBOSE, COSTS OFF) SELECT k, stddev(n) AS a, variance(a) AS b, var_pop(i) AS c FROM t1 GROUP BY k ORDER BY k;
SELECT k, stddev(n) AS a, variance(a) AS b, var_pop(i) AS c FROM t1 GROUP BY k ORDER BY k;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT k, stddev(n) AS a, variance(a) AS b, var_pop(i) AS c FROM t1 GROUP BY k ORDER BY k) q EXCEPT ALL SELECT q::text FROM (SELECT k, stddev(n) AS a, variance(a) AS b, var_pop(i) AS c FROM heap.t1 GROUP BY k ORDER BY k) q)
  UNION ALL (SELECT q::text FROM (SELECT k, stddev(n) AS a, variance(a) AS b, var_pop(i) AS c FROM heap.t1 GROUP BY k ORDER BY k) q EXCEPT ALL SELECT q::text FROM (SELECT k, stddev(n) AS a, variance(a) AS b, var_pop(i) AS c FROM t1 GROUP BY k ORDER BY k) q)) difference;

-- Booleans.
EXPLAIN (VERBOSE, COSTS OFF) SELECT bool_and(k) AS x, bool_or(k) AS y, count(k) AS z FROM t1;
SELECT bool_and(k) AS x, bool_or(k) AS y, count(k) AS z FROM t1;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT bool_and(k) AS x, bool_or(k) AS y, count(k) AS z FROM t1) q EXCEPT ALL SELECT q::text FROM (SELECT bool_and(k) AS x, bool_or(k) AS y, count(k) AS z FROM heap.t1) q)
  UNION ALL (SELECT q::text FROM (SELECT bool_and(k) AS x, bool_or(k) AS y, count(k) AS z FROM heap.t1) q EXCEPT ALL SELECT q::text FROM (SELECT bool_and(k) AS x, bool_or(k) AS y, count(k) AS z FROM t1) q)) difference;

-- A group over a group.
EXPLAIN (VERBOSE, COSTS OFF) SELECT k, count(*) AS n FROM (SELECT a, count(*) AS k FROM t1 GROUP BY a) q GROUP BY k ORDER BY k;
SELECT k, count(*) AS n FROM (SELECT a, count(*) AS k FROM t1 GROUP BY a) q GROUP BY k ORDER BY k;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT k, count(*) AS n FROM (SELECT a, count(*) AS k FROM t1 GROUP BY a) q GROUP BY k ORDER BY k) q EXCEPT ALL SELECT q::text FROM (SELECT k, count(*) AS n FROM (SELECT a, count(*) AS k FROM heap.t1 GROUP BY a) q GROUP BY k ORDER BY k) q)
  UNION ALL (SELECT q::text FROM (SELECT k, count(*) AS n FROM (SELECT a, count(*) AS k FROM heap.t1 GROUP BY a) q GROUP BY k ORDER BY k) q EXCEPT ALL SELECT q::text FROM (SELECT k, count(*) AS n FROM (SELECT a, count(*) AS k FROM t1 GROUP BY a) q GROUP BY k ORDER BY k) q)) difference;

-- Different rows beside other aggregates.
\i :abs_srcdir/include/same.sql
SELECT public.pushed($$SELECT k, count(DISTINCT (a, c)), count(DISTINCT (a, c)) FILTER (WHERE i > 0), count(DISTINCT c), count(*) FROM t1 GROUP BY k$$);
SELECT same($$SELECT k, count(DISTINCT (a, c)), count(DISTINCT (a, c)) FILTER (WHERE i > 0), count(DISTINCT c), count(*) FROM t1 GROUP BY k$$);
SELECT same($$SELECT count(DISTINCT (a, n, s)), count(DISTINCT (k, d)) FILTER (WHERE 10 / a > 1), sum(n) FROM t1 WHERE a <> 0$$);
SELECT same($$SELECT count(DISTINCT (a, c)) FILTER (WHERE a > 3) FROM t1$$);
SELECT same($$SELECT count(DISTINCT (a, c)), count(DISTINCT (c, a)), max(d) FROM t0$$);
SELECT same($$SELECT a, count(DISTINCT (i, k)), array_agg(DISTINCT i), count(DISTINCT ROW(ts)) FROM t1 GROUP BY a HAVING count(DISTINCT (i, k)) > 3$$);
