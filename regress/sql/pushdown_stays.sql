--
-- Conditions that no engine has: PostgreSQL checks them on the rows of a join or of groups, which the engine computes.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql

-- A condition of an inner join, and one of the joins above it.
SELECT public.pushed($$SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.a = y.a AND to_char(x.n, '999V') <> to_char(y.n, '999V')$$);
SELECT same($$SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.a = y.a AND to_char(x.n, '999V') <> to_char(y.n, '999V')$$);
SELECT public.pushed($$SELECT x.id, z.c FROM t1 x JOIN t2 y ON x.a = y.a AND to_char(x.n, '999V') <> to_char(y.n, '999V') JOIN t3 z ON z.id = y.id$$);
SELECT same($$SELECT x.id, z.c FROM t1 x JOIN t2 y ON x.a = y.a AND to_char(x.n, '999V') <> to_char(y.n, '999V') JOIN t3 z ON z.id = y.id$$);
SELECT same($$SELECT x.id, y.id, z.id FROM t1 x JOIN t2 y ON x.a = y.a AND to_char(x.n, '999V') <> to_char(y.n, '999V') JOIN t3 z ON z.id = y.id AND to_char(z.n, '9V') <> to_char(x.n, '9V')$$);
-- Columns that nothing else reads.
SELECT same($$SELECT count(*) FROM t1 x JOIN t2 y ON x.a = y.a AND to_char(x.d, 'TMMM') < to_char(y.d, 'TMMM')$$);
-- Of an outer join: above it, and not its own.
SELECT public.pushed($$SELECT x.id, y.id FROM t1 x LEFT JOIN t2 y ON x.id = y.id WHERE coalesce(to_char(y.n, '9V'), 'x') <> to_char(x.n, '9V')$$);
SELECT same($$SELECT x.id, y.id FROM t1 x LEFT JOIN t2 y ON x.id = y.id WHERE coalesce(to_char(y.n, '9V'), 'x') <> to_char(x.n, '9V')$$);
SELECT public.pushed($$SELECT x.id, y.id FROM t1 x LEFT JOIN t2 y ON x.id = y.id AND to_char(y.n, '9V') <> to_char(x.n, '9V')$$);
SELECT same($$SELECT x.id, y.id FROM t1 x LEFT JOIN t2 y ON x.id = y.id AND to_char(y.n, '9V') <> to_char(x.n, '9V')$$);
SELECT same($$SELECT x.id, y.id FROM t1 x FULL JOIN t2 y ON x.id = y.id WHERE coalesce(to_char(y.n, '9V'), 'x') <> coalesce(to_char(x.n, '9V'), 'x')$$);
-- The rows of a join that keeps them all: a condition on them may wait.
SELECT same($$SELECT x.id, y.id FROM t1 x LEFT JOIN t2 y ON x.id = y.id AND y.a > 1 WHERE to_char(x.n, '9V') <> ' 1'$$);
SELECT same($$SELECT x.id FROM t1 x WHERE EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a) AND to_char(x.n, '9V') <> ' 1'$$);
SELECT same($$SELECT x.id FROM t1 x WHERE NOT EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.id > 3) AND to_char(x.n, '9V') <> ' 1'$$);
SELECT same($$SELECT x.id, y.id FROM t1 x RIGHT JOIN t2 y ON x.id = y.id AND to_char(x.n, '9V') <> ' 1'$$);
SELECT same($$SELECT x.id FROM t2 x WHERE EXISTS (SELECT 1 FROM t1 y WHERE y.a = x.a AND to_char(y.n, '9V') <> ' 1')$$);
-- A join whose only equality stays is left to PostgreSQL.
SELECT public.pushed($$SELECT count(*) FROM t1 x JOIN t2 y ON to_char(x.n, '999V') = to_char(y.n, '999V')$$);
SELECT same($$SELECT count(*) FROM t1 x JOIN t2 y ON to_char(x.n, '999V') = to_char(y.n, '999V')$$);
-- HAVING.
SELECT public.pushed($$SELECT a, sum(n) FROM t1 GROUP BY a HAVING to_char(sum(n), '9999V') <> '  12'$$);
SELECT same($$SELECT a, sum(n) FROM t1 GROUP BY a HAVING to_char(sum(n), '9999V') <> '  12'$$);
SELECT same($$SELECT a, sum(n) FROM t1 GROUP BY a HAVING to_char(max(d), 'TMMM') < '07' AND count(*) > 1 ORDER BY sum(n), a LIMIT 3$$);
SELECT same($$SELECT x.a, s.k FROM t2 x JOIN (SELECT a, count(*) AS k FROM t1 GROUP BY a HAVING to_char(max(d), 'TMMM') < '07') s ON s.a = x.a$$);
SELECT same($$SELECT DISTINCT count(*) FROM t1 GROUP BY a HAVING to_char(max(d), 'TMMM') < '07'$$);
-- What could fail is computed only for rows that the condition keeps.
SELECT same($$SELECT x.id, 1000 / (x.a - 3) FROM t1 x JOIN t2 y ON x.id = y.id AND to_char(x.a - 3, '9V') <> to_char(y.id - y.id, '9V')$$);
SELECT same($$SELECT x.id FROM t1 x JOIN t2 y ON x.id = y.id AND to_char(x.a - 3, '9V') <> to_char(y.id - y.id, '9V') ORDER BY 1000 / (x.a - 3), x.id$$);
SELECT same($$SELECT a, 1000 / (a - 3) FROM t1 GROUP BY a HAVING to_char(a - 3, '9V') <> to_char(count(*) - count(*), '9V')$$);
SELECT same($$SELECT a FROM t1 GROUP BY a HAVING to_char(count(*) - count(*), '9V') <> to_char(a - 3, '9V') ORDER BY 1000 / (a - 3)$$);
SELECT same($$SELECT x.id FROM t1 x JOIN t2 y ON x.id = y.id AND to_char(x.a - 3, '9V') <> to_char(y.id - y.id, '9V') JOIN t3 z ON z.id = y.id AND 1000 / (x.a - 3) > z.id$$);
-- Volatile conditions stay where they are.
SELECT public.pushed($$SELECT x.id, z.id FROM t1 x JOIN t2 y ON x.a = y.a AND x.n + random() >= y.n JOIN t3 z ON z.id = y.id$$);
-- Subqueries for each row, parameters, and partitions.
SELECT same($$SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.a = y.a AND to_char(x.n, '9V') <> (SELECT to_char(max(z.n), '9V') FROM t3 z WHERE z.id > x.id)$$);
SELECT same($$SELECT x.id, (SELECT count(*) FROM t2 y JOIN t3 z ON y.a = z.a AND to_char(y.n, '9V') <> to_char(x.n, '9V')) FROM t1 x$$);
-- Cost decides: a condition that drops nearly all rows of a table is checked before its join.
SELECT same($$SELECT x.id, count(*) FROM t1 x JOIN t2 y ON x.a = y.a JOIN t3 z ON y.a = z.a WHERE to_char(x.id, '999V') = '   5' GROUP BY x.id$$);
