--
-- CASE and COALESCE over numerics of several scales: each value prints its own digits, a sum the most that any of its values has.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SELECT * FROM pushed('SELECT sum(CASE WHEN k THEN n ELSE 0 END) FROM t1');
SELECT * FROM pushed('SELECT a, sum(COALESCE(n, 0)), count(*) FROM t1 GROUP BY a');
SELECT * FROM pushed('SELECT max(CASE WHEN k THEN n ELSE 55 END) FROM t1');
SELECT * FROM pushed('SELECT CASE WHEN k THEN n ELSE 55 END, count(*) FROM t1 GROUP BY 1');
SELECT sum(CASE WHEN k THEN n ELSE 0 END), sum(CASE WHEN id > 0 THEN 0 ELSE n END), sum(CASE WHEN id < 0 THEN n END) FROM t1;
SELECT same('SELECT sum(CASE WHEN k THEN n ELSE 0 END) FROM t1');
SELECT same('SELECT a, sum(CASE WHEN k THEN n ELSE 0 END), sum(CASE WHEN k THEN 0 ELSE n END) FROM t1 GROUP BY a');
SELECT same('SELECT a, sum(CASE WHEN k THEN n WHEN b > 2 THEN m ELSE 0 END), avg(CASE WHEN k THEN n WHEN b > 2 THEN m ELSE 0 END) FROM t1 GROUP BY a');
SELECT same('SELECT a, sum(CASE WHEN k THEN 0.000 WHEN b > 2 THEN NULL ELSE n END) FROM t1 GROUP BY a');
SELECT same('SELECT a, sum(CASE WHEN k THEN 1 WHEN b > 2 THEN 2.50 ELSE 3.125 END) FROM t1 GROUP BY a');
SELECT same('SELECT a, sum(CASE WHEN k THEN 1 WHEN b > 2 THEN n ELSE 3 END) FILTER (WHERE i > 0) FROM t1 GROUP BY a');
SELECT same('SELECT a, sum(CASE i WHEN 1 THEN n WHEN 2 THEN m END) FROM t1 GROUP BY a');
SELECT same('SELECT a, sum(COALESCE(n, 0)), sum(COALESCE(n, m, 0)), sum(COALESCE(n, m)) FROM t1 GROUP BY a');
SELECT same('SELECT sum(CASE WHEN k THEN n ELSE 0 END), sum(COALESCE(n, 0)) FROM t0');
SELECT same('SELECT sum(CASE WHEN k THEN n ELSE 0 END), count(CASE WHEN k THEN n ELSE 0 END) FROM t1 WHERE id < 0');
SELECT same('SELECT a, sum(CASE WHEN k THEN n * m ELSE 0 END), avg(CASE WHEN k THEN n * 2 ELSE 0 END), stddev(CASE WHEN k THEN n ELSE 0 END) FROM t1 GROUP BY a');
SELECT same('SELECT sum(CASE WHEN k THEN id * 1.50 ELSE 0 END), sum(CASE WHEN id > 200 THEN id * 1.50 ELSE 0 END) FROM t1');
SELECT same('SELECT x.a, sum(CASE WHEN y.k THEN y.n ELSE 0 END) FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.b > 3 GROUP BY x.a');
SELECT same('SELECT a, 100.00 * sum(CASE WHEN k THEN n ELSE 0 END) / NULLIF(sum(m), 0) FROM t1 GROUP BY a');
SELECT same('SELECT a FROM t1 GROUP BY a HAVING sum(CASE WHEN k THEN n ELSE 0 END) > 3 ORDER BY 1');
-- GREATEST and LEAST show the digits of what they choose, the first of equals.
EXPLAIN (COSTS OFF) SELECT greatest(n, 55), least(n, m, 3) FROM t1;
SELECT same('SELECT id, greatest(n, 55), least(n, 3), greatest(n, 5, 2.50, m), least(7, n, m), greatest(5, n, 5.0), least(5.00, NULL, n) FROM t1');
SELECT same('SELECT a, sum(greatest(n, 55)), sum(least(n, -3)), max(greatest(n, 55)), min(least(m, -7)), avg(greatest(n, 3)) FROM t1 GROUP BY a');
SELECT same('SELECT sum(greatest(n, 0)), sum(least(n, 1000000)) FROM t0');
SELECT same('SELECT id FROM t1 WHERE greatest(n, 3) > 3.5 OR least(m, 2) = 2');
-- Least and greatest, groups and DISTINCT: each value has one scale.
SELECT same('SELECT a, max(CASE WHEN k THEN n ELSE 55 END), min(CASE WHEN k THEN n ELSE -7 END) FROM t1 GROUP BY a');
SELECT same('SELECT max(CASE WHEN k THEN n WHEN b > 2 THEN m ELSE 55 END), min(COALESCE(n, 55)) FROM t1');
SELECT same('SELECT max(CASE WHEN k THEN n ELSE 55 END) FROM t0');
SELECT same('SELECT CASE WHEN k THEN n ELSE 55 END, count(*), sum(a) FROM t1 GROUP BY 1');
SELECT same('SELECT CASE WHEN k THEN n ELSE 55 END + 1, count(*) FROM t1 GROUP BY CASE WHEN k THEN n ELSE 55 END');
SELECT same('SELECT DISTINCT CASE WHEN k THEN n ELSE 55 END, a FROM t1');
SELECT same('SELECT x, count(*) FROM (SELECT DISTINCT COALESCE(n, 55) AS x, k FROM t1) s GROUP BY x');
SELECT CASE WHEN k THEN n ELSE 55 END AS x, count(*) FROM t1 GROUP BY 1 ORDER BY 1 DESC LIMIT 3;
-- Equal values with several scales are one group, which shows one of them.
SELECT CASE WHEN k THEN 1 ELSE 1.00 END, count(*) FROM t1 GROUP BY 1;
