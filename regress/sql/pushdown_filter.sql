--
-- Filters and expressions.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- A comparison.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, a FROM t1 WHERE a > 6 ORDER BY id;
SELECT id, a FROM t1 WHERE a > 6 ORDER BY id;
SELECT count(*) FROM (((SELECT id, a FROM t1 WHERE a > 6 ORDER BY id) EXCEPT ALL (SELECT id, a FROM heap.t1 WHERE a > 6 ORDER BY id)) UNION ALL ((SELECT id, a FROM heap.t1 WHERE a > 6 ORDER BY id) EXCEPT ALL (SELECT id, a FROM t1 WHERE a > 6 ORDER BY id))) difference;

-- Three-valued logic.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id;
SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id;
SELECT count(*) FROM (((SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id) EXCEPT ALL (SELECT id FROM heap.t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id)) UNION ALL ((SELECT id FROM heap.t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id) EXCEPT ALL (SELECT id FROM t3 WHERE NOT (a > 3 OR c = 'a') ORDER BY id))) difference;

-- IN with a NULL.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id;
SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id;
SELECT count(*) FROM (((SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id) EXCEPT ALL (SELECT id FROM heap.t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id)) UNION ALL ((SELECT id FROM heap.t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id) EXCEPT ALL (SELECT id FROM t3 WHERE a NOT IN (1, 2, NULL) ORDER BY id))) difference;

-- LIKE.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id;
SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id;
SELECT count(*) FROM (((SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id) EXCEPT ALL (SELECT id, c FROM heap.t1 WHERE c LIKE '%special%requests%' ORDER BY id)) UNION ALL ((SELECT id, c FROM heap.t1 WHERE c LIKE '%special%requests%' ORDER BY id) EXCEPT ALL (SELECT id, c FROM t1 WHERE c LIKE '%special%requests%' ORDER BY id))) difference;

-- Blanks of char(n).
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id;
SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id;
SELECT count(*) FROM (((SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id) EXCEPT ALL (SELECT id, s FROM heap.t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id)) UNION ALL ((SELECT id, s FROM heap.t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id) EXCEPT ALL (SELECT id, s FROM t3 WHERE s = 'ab' OR s = 'a   ' ORDER BY id))) difference;

-- date against timestamp.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day;
SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day;
SELECT count(*) FROM (((SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day) EXCEPT ALL (SELECT count(*) AS k FROM heap.t1 WHERE d < date '1994-09-10' - interval '3' day)) UNION ALL ((SELECT count(*) AS k FROM heap.t1 WHERE d < date '1994-09-10' - interval '3' day) EXCEPT ALL (SELECT count(*) AS k FROM t1 WHERE d < date '1994-09-10' - interval '3' day))) difference;

-- CASE, COALESCE, NULLIF.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id;
SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id;
SELECT count(*) FROM (((SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id) EXCEPT ALL (SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM heap.t3 WHERE id < 9 ORDER BY id)) UNION ALL ((SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM heap.t3 WHERE id < 9 ORDER BY id) EXCEPT ALL (SELECT id, CASE WHEN a > 3 THEN n ELSE m END AS x, coalesce(c, s, '-') AS y, nullif(a, 2) AS z FROM t3 WHERE id < 9 ORDER BY id))) difference;

-- Scale of numeric.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id;
SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id;
SELECT count(*) FROM (((SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id) EXCEPT ALL (SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM heap.t3 WHERE id < 9 ORDER BY id)) UNION ALL ((SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM heap.t3 WHERE id < 9 ORDER BY id) EXCEPT ALL (SELECT id, n + m AS p, n * m AS q, n / nullif(m, 0) AS r, round(n, 1) AS u FROM t3 WHERE id < 9 ORDER BY id))) difference;

-- extract.
EXPLAIN (VERBOSE, COSTS OFF) SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1;
SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM (((SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1) EXCEPT ALL (SELECT extract(year FROM d) AS y, count(*) AS k FROM heap.t1 GROUP BY 1 ORDER BY 1)) UNION ALL ((SELECT extract(year FROM d) AS y, count(*) AS k FROM heap.t1 GROUP BY 1 ORDER BY 1) EXCEPT ALL (SELECT extract(year FROM d) AS y, count(*) AS k FROM t1 GROUP BY 1 ORDER BY 1))) difference;
