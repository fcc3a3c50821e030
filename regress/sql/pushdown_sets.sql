--
-- Functions in the target list that return sets: PostgreSQL calls them, over what the engine returns.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql

EXPLAIN (COSTS OFF) SELECT x.a, generate_series(1, 2) AS g FROM t1 x JOIN t2 y ON x.id = y.id WHERE x.a > 3 ORDER BY x.a, g;
SELECT x.a, generate_series(1, 2) AS g FROM t1 x JOIN t2 y ON x.id = y.id WHERE x.a > 3 AND x.id < 12 ORDER BY x.a, g;
EXPLAIN (COSTS OFF) SELECT max(a), generate_series(1, 3) AS g FROM t1 ORDER BY g DESC;
SELECT max(a), generate_series(1, 3) AS g FROM t1 ORDER BY g DESC;
EXPLAIN (COSTS OFF) SELECT id, generate_series(1, 2) FROM t1 ORDER BY id LIMIT 3;
SELECT id, generate_series(1, 2) FROM t1 ORDER BY id LIMIT 3;
EXPLAIN (COSTS OFF) SELECT unnest(ARRAY[a, i]) AS u, count(*) FROM t1 GROUP BY u;

SELECT same($$SELECT a, generate_series(1, 2) AS g FROM t1 ORDER BY a, g$$);
SELECT same($$SELECT a, generate_series(1, a) AS g FROM t1 ORDER BY g DESC, id$$);
SELECT same($$SELECT DISTINCT generate_series(1, 2), a > 0 FROM t1$$);
SELECT same($$SELECT DISTINCT ON (g) generate_series(1, a) AS g FROM t1 ORDER BY g$$);
SELECT same($$SELECT max(a), generate_series(1, 3) AS g FROM t1 ORDER BY g$$);
SELECT same($$SELECT i, count(*), generate_series(1, count(*)) AS g FROM t1 GROUP BY i ORDER BY i, g$$);
SELECT same($$SELECT i, generate_series(1, max(a)) AS g FROM t1 GROUP BY i HAVING count(*) > 2$$);
SELECT same($$SELECT unnest(ARRAY[a, i]) AS u, count(*) FROM t1 GROUP BY u$$);
SELECT same($$SELECT unnest(ARRAY[a, i]) + 1 AS u, sum(n) FROM t1 GROUP BY 1 ORDER BY 2, 1$$);
SELECT same($$SELECT count(*) FROM (SELECT unnest(ARRAY[a, i]) AS u FROM t1) s WHERE u > 2$$);
SELECT same($$SELECT u, count(*) FROM (SELECT unnest(ARRAY[a, i]) AS u FROM t1 ORDER BY 1) s GROUP BY u$$);
SELECT same($$SELECT generate_series(1, 2), generate_series(1, 3), max(id) FROM t1 GROUP BY a > 0 ORDER BY 3, 1, 2$$);
SELECT same($$SELECT generate_series(1, generate_series(1, 3)), a FROM t1 ORDER BY 2, 1$$);
SELECT same($$SELECT CASE WHEN a > 0 THEN a END, regexp_split_to_table(c, '') FROM t1 ORDER BY 1, 2$$);
SELECT same($$SELECT to_char(a, '9'), unnest(ARRAY[c, s]) FROM t1 ORDER BY id, 2 LIMIT 9$$);
SELECT same($$SELECT id, generate_series(1, 2) FROM t1 UNION SELECT id, 3 FROM t2$$);
SELECT same($$SELECT x.id, generate_series(1, x.i) FROM t1 x LEFT JOIN t2 y ON x.a = y.id ORDER BY y.id, 1, 2$$);
SELECT same($$SELECT row_number() OVER (ORDER BY id), generate_series(1, 2) FROM t1 ORDER BY 1, 2$$);
SELECT same($$SELECT grouping(a), a, generate_series(1, 2) FROM t1 GROUP BY a ORDER BY 2, 3$$);
SELECT same($$SELECT a, count(*), generate_series(1, 2) FROM t1 GROUP BY ROLLUP (a) ORDER BY 1, 2, 3$$);
SELECT same($$SELECT 1 WHERE EXISTS (SELECT generate_series(1, a) FROM t1 WHERE a < 0)$$);
SELECT same($$SELECT id FROM t2 WHERE a IN (SELECT generate_series(1, i) FROM t1)$$);
