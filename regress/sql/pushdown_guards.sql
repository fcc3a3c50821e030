--
-- What CASE, COALESCE, AND and OR guard is not computed for the rows that they keep from it, whether or not the
-- expression is pushed down whole.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql

-- Parts that could fail stay behind their guards; what PostgreSQL computes for every row is pushed down.
EXPLAIN (VERBOSE, COSTS OFF) SELECT CASE WHEN x.a <> 0 THEN to_char(100 / x.a, '999V') END FROM t1 x JOIN t2 y ON x.id = y.id;
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_char(100 / nullif(x.a, 0), '999V') FROM t1 x JOIN t2 y ON x.id = y.id;
SELECT same($$SELECT CASE WHEN x.a <> 0 THEN to_char(100 / x.a, '999V') END FROM t1 x JOIN t2 y ON x.id = y.id$$);
SELECT same($$SELECT CASE WHEN a <> 0 THEN to_char(100 / a, '999V') END FROM t1 ORDER BY id$$);
SELECT same($$SELECT a <> 0 AND to_char(100 / a, '9V') = ' 9' FROM t1 ORDER BY id$$);
SELECT same($$SELECT a = 0 OR to_char(100 / a, '9V') = ' 9' FROM t1 ORDER BY id$$);
SELECT same($$SELECT NOT (a = 0 OR to_char(100 / a, '9V') = ' 9') FROM t1 ORDER BY id$$);
SELECT same($$SELECT coalesce(CASE WHEN a = 0 THEN 'zero' END, to_char(100 / a, '999V')) FROM t1 ORDER BY id$$);
SELECT same($$SELECT CASE a WHEN 0 THEN 'zero' ELSE to_char(100 / a, '999V') END FROM t1 ORDER BY id$$);
SELECT same($$SELECT CASE WHEN a = 0 THEN 0 WHEN to_char(100 / a, '9V') = ' 9' THEN 1 ELSE 2 END FROM t1 ORDER BY id$$);
SELECT same($$SELECT CASE WHEN b < 1000 THEN to_char(b::int * 1000, '999999V') END FROM t1 ORDER BY id$$);
SELECT same($$SELECT CASE WHEN a > 0 THEN normalize(substring(c, 1, a - 1)) END FROM t1 ORDER BY id$$);
SELECT same($$SELECT CASE WHEN a > 0 AND (k OR normalize(substring(c, 1, a - 1)) > 'a') THEN 1 END FROM t1 ORDER BY id$$);
SELECT same($$SELECT ARRAY[CASE WHEN a <> 0 THEN ROW(100 / a)::text END], to_char(100 / nullif(a, 0), '9V') FROM t1 ORDER BY id$$);
-- Where nothing guards it, both fail.
SELECT same($$SELECT to_char(100 / a, '999V') FROM t1 ORDER BY id$$);
SELECT same($$SELECT CASE WHEN to_char(100 / a, '9V') = ' 9' THEN 1 END FROM t1 ORDER BY id$$);
-- What can't fail is pushed down from anywhere.
EXPLAIN (VERBOSE, COSTS OFF) SELECT CASE WHEN k THEN normalize(upper(c)) END FROM t1 ORDER BY id;

-- Over aggregates, in their FILTER and after HAVING.
SELECT same($$SELECT CASE WHEN count(*) FILTER (WHERE a = 50) > 0 THEN to_char(sum(a) / count(*) FILTER (WHERE a = 50), '9V') END FROM t1$$);
SELECT same($$SELECT i, CASE WHEN count(*) FILTER (WHERE a = 5) > 0 THEN to_char(sum(a) / count(*) FILTER (WHERE a = 5), '9V') END FROM t1 GROUP BY i ORDER BY i$$);
SELECT same($$SELECT sum(100 / a) FILTER (WHERE a <> 0), string_agg(to_char(100 / a, '999V'), ',' ORDER BY id) FILTER (WHERE a <> 0) FROM t1$$);
SELECT same($$SELECT i, to_char(100 / (count(*) - 1), '999V') FROM t1 GROUP BY i HAVING count(*) > 1 ORDER BY i$$);
SELECT same($$SELECT DISTINCT CASE WHEN a <> 0 THEN to_char(100 / a, '999V') END FROM t1$$);
SELECT same($$SELECT DISTINCT CASE WHEN a <> 0 THEN 100 / a END FROM t1 WHERE a IS NOT NULL$$);
SELECT same($$SELECT CASE WHEN a <> 0 THEN to_char(100 / a, '999V') END AS g, count(*) FROM t1 GROUP BY 1$$);
SELECT same($$SELECT id, CASE WHEN a <> 0 THEN to_char(100 / a, '999V') END FROM t1 ORDER BY 2, 1 LIMIT 7$$);
SELECT same($$SELECT id, row_number() OVER (ORDER BY id), CASE WHEN a <> 0 THEN to_char(100 / a, '999V') END FROM t1$$);

-- Subqueries, views and outer joins.
CREATE VIEW public.guarded AS SELECT id, i, CASE WHEN a <> 0 THEN to_char(100 / a, '999V') END AS v FROM t1;
SELECT v, count(*) FROM public.guarded GROUP BY v ORDER BY v LIMIT 3;
DROP VIEW public.guarded;
SELECT same($$SELECT s.v, y.id FROM (SELECT id, CASE WHEN a <> 0 THEN to_char(100 / a, '999V') END AS v FROM t1) s RIGHT JOIN t2 y ON y.id = s.id$$);
SELECT same($$SELECT CASE WHEN s.k > 1 THEN to_char(100 / (s.k - 1), '999V') END FROM (SELECT i, count(*) AS k FROM t1 GROUP BY i) s$$);
SELECT same($$SELECT x.id FROM t1 x LEFT JOIN t2 y ON x.id = y.id AND y.a <> 0 AND 100 / y.a > 20 AND 100 / x.id > 0$$);
SELECT same($$SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.i = y.i AND 100 / (x.a - y.a) > 20 AND x.a <> y.a$$);
SELECT same($$SELECT i FROM t1 GROUP BY i HAVING 100 / (count(*) - 1) > 10 AND count(*) > 1$$);

-- Conditions beside each other guard as PostgreSQL orders them: cheap ones first.
SELECT same($$SELECT id FROM t1 WHERE 100 / a > 20 AND a <> 0$$);
SELECT same($$SELECT id FROM t1 WHERE to_char(a, '9V') <> ' 0' AND 100 / (a * 2) > 5$$);
SELECT same($$SELECT q.id, q.v FROM (SELECT id, max(a) AS v FROM t1 GROUP BY id) q JOIN t2 y ON q.id = y.id WHERE 100 / q.v > 20 AND q.v <> 0$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t1 WHERE to_char(a, '9V') <> ' 0' AND 100 / (a * 2) > 5 AND i > 0;

-- A condition without columns is tested before anything is read.
SELECT same($$SELECT a FROM t1 WHERE 1 / a > 0 GROUP BY a HAVING NULL > avg(a)$$);
SELECT same($$SELECT count(*) FROM t1 WHERE 1 / a > 0 HAVING NULL > avg(a)$$);
SELECT same($$SELECT x.id FROM t1 x JOIN t2 y ON x.id = y.id WHERE 1 / x.a > 0 AND (SELECT count(*) FROM t3) = 0$$);
SELECT same($$SELECT count(*) FROM (SELECT a FROM t1 WHERE 1 / a > 0 GROUP BY a HAVING now() < timestamptz '2000-01-01') s$$);
SET plan_cache_mode = force_generic_plan;
PREPARE gated(boolean) AS SELECT count(*) FROM t1 x JOIN t2 y ON x.id = y.id WHERE 1 / x.a > 0 AND $1;
EXPLAIN (COSTS OFF) EXECUTE gated(false);
EXECUTE gated(false);
EXECUTE gated(NULL);
EXECUTE gated(true);
DEALLOCATE gated;
PREPARE guarded(integer) AS SELECT CASE WHEN $1 <> 0 THEN to_char(a / $1, '999V') END FROM t1 WHERE id < 4 ORDER BY id;
EXECUTE guarded(0);
EXECUTE guarded(2);
DEALLOCATE guarded;
-- Values of parameters are computed where PostgreSQL would.
PREPARE either(integer) AS SELECT count(*) FROM t1 WHERE $1 = 0 OR a > 100 / $1;
EXPLAIN (COSTS OFF) EXECUTE either(0);
EXECUTE either(0);
EXECUTE either(50);
DEALLOCATE either;
PREPARE both_true(integer) AS SELECT count(*) FROM t1 WHERE $1 <> 0 AND a > 100 / $1;
EXECUTE both_true(0);
EXECUTE both_true(50);
DEALLOCATE both_true;
PREPARE branch(integer) AS SELECT id, CASE WHEN $1 = 0 OR a = 0 THEN 0 ELSE a + 100 / $1 / a END FROM t1 WHERE id < 4 ORDER BY id;
EXECUTE branch(0);
EXECUTE branch(10);
DEALLOCATE branch;
PREPARE ranges(numeric, date) AS SELECT count(*) FROM t1 WHERE n BETWEEN $1 AND $1 + 10 OR (k AND d < $2 + 3);
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE ranges(1, '1994-09-01');
EXECUTE ranges(1, '1994-09-01');
EXECUTE ranges(1, 'infinity');
DEALLOCATE ranges;
PREPARE optional(integer, date) AS SELECT count(*) FROM t1 WHERE (a = $1 OR $1 IS NULL) AND (d < $2 OR $2 IS NULL OR $2 = 'infinity');
EXPLAIN (COSTS OFF) EXECUTE optional(1, '1994-09-01');
EXECUTE optional(1, '1994-09-01');
EXECUTE optional(NULL, 'infinity');
DEALLOCATE optional;
RESET plan_cache_mode;

-- GROUPING without grouping sets is 0.
EXPLAIN (VERBOSE, COSTS OFF) SELECT a, grouping(i) FROM t1 GROUP BY a, i;
SELECT same($$SELECT a, grouping(i), grouping(a, i) + count(*) FROM t1 GROUP BY a, i$$);
SELECT same($$SELECT a, to_char(grouping(i) + 1, '9V') FROM t1 GROUP BY a, i HAVING grouping(a) = 0 ORDER BY 1, grouping(i)$$);
SELECT same($$SELECT DISTINCT grouping(a) FROM t1 GROUP BY a$$);
