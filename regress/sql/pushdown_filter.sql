--
-- Filters and expressions.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- A comparison.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, a FROM t1 WHERE a > 6 ORDER BY id;
SELECT id, a FROM t1 WHERE a > 6 ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, a FROM t1 WHERE a > 6 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, a FROM heap.t1 WHERE a > 6 ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, a FROM heap.t1 WHERE a > 6 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, a FROM t1 WHERE a > 6 ORDER BY id) q)) difference;

-- Three-valued logic.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id;
SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id) q)) difference;

-- IN with a NULL.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id;
SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id) q)) difference;

-- LIKE.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id;
SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, c FROM heap.t1 WHERE c LIKE '%special%requests%' ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, c FROM heap.t1 WHERE c LIKE '%special%requests%' ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id) q)) difference;

-- Blanks of char(n).
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id;
SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, s FROM heap.t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, s FROM heap.t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id) q)) difference;

-- date against timestamp.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day;
SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 WHERE d < date '1994-09-10' - interval '3' day) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 WHERE d < date '1994-09-10' - interval '3' day) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day) q)) difference;

-- CASE, COALESCE, NULLIF.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id;
SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM heap.t3 WHERE id < 9 ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM heap.t3 WHERE id < 9 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id) q)) difference;

-- Scale of numeric.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id;
SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM heap.t3 WHERE id < 9 ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM heap.t3 WHERE id < 9 ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id) q)) difference;

-- extract.
EXPLAIN (VERBOSE, COSTS OFF) SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1;
SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1) q EXCEPT ALL SELECT q::text FROM (SELECT extract(year FROM d) AS y, count(*) AS k FROM heap.t1 GROUP BY 1 ORDER BY 1) q)
  UNION ALL (SELECT q::text FROM (SELECT extract(year FROM d) AS y, count(*) AS k FROM heap.t1 GROUP BY 1 ORDER BY 1) q EXCEPT ALL SELECT q::text FROM (SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1) q)) difference;

-- Casts to a length.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c::varchar(2) AS v, c::char(3) AS w, s::varchar(3) AS x, s::char(1) AS y, s::text AS z, count(*) AS k FROM t1 WHERE c::char(3) > 'a' AND s::varchar(2) LIKE 'A%' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;
SELECT c::varchar(2) AS v, c::char(3) AS w, s::varchar(3) AS x, s::char(1) AS y, s::text AS z, count(*) AS k FROM t1 WHERE c::char(3) > 'a' AND s::varchar(2) LIKE 'A%' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT c::varchar(2) AS v, c::char(3) AS w, s::varchar(3) AS x, s::char(1) AS y, s::text AS z, count(*) AS k FROM t1 WHERE c::char(3) > 'a' AND s::varchar(2) LIKE 'A%' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5) q EXCEPT ALL SELECT q::text FROM (SELECT c::varchar(2) AS v, c::char(3) AS w, s::varchar(3) AS x, s::char(1) AS y, s::text AS z, count(*) AS k FROM heap.t1 WHERE c::char(3) > 'a' AND s::varchar(2) LIKE 'A%' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5) q)
  UNION ALL (SELECT q::text FROM (SELECT c::varchar(2) AS v, c::char(3) AS w, s::varchar(3) AS x, s::char(1) AS y, s::text AS z, count(*) AS k FROM heap.t1 WHERE c::char(3) > 'a' AND s::varchar(2) LIKE 'A%' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5) q EXCEPT ALL SELECT q::text FROM (SELECT c::varchar(2) AS v, c::char(3) AS w, s::varchar(3) AS x, s::char(1) AS y, s::text AS z, count(*) AS k FROM t1 WHERE c::char(3) > 'a' AND s::varchar(2) LIKE 'A%' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5) q)) difference;
