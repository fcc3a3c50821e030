--
-- Whole rows, and EXISTS in the target list of a grouped query: the engine computes the joins below them.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SELECT * FROM pushed('SELECT x.a, json_agg(y.*) FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY x.a');
SELECT * FROM pushed('SELECT x.id FROM t1 x LEFT JOIN t2 y ON x.a = y.a WHERE y IS NULL');
SELECT * FROM pushed('SELECT x, y FROM t1 x LEFT JOIN t2 y ON x.a = y.a');
SELECT same('SELECT x.a, json_agg(y.* ORDER BY y.id) FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY x.a');
SELECT same('SELECT x.id, row_to_json(y), to_jsonb(x) FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k');
SELECT same('SELECT x, y, y.* FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k');
SELECT same('SELECT x.id, x IS NULL, x IS NOT NULL, y IS NULL, y IS NOT NULL FROM t1 x FULL JOIN t2 y ON x.id = y.id + 60');
SELECT same('SELECT count(y), count(*), count(DISTINCT y) FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k');
SELECT same('SELECT x.id FROM t1 x JOIN t2 y ON x.a = y.a WHERE x IS DISTINCT FROM y');
SELECT same('SELECT x.id FROM t1 x LEFT JOIN t2 y ON x.a = y.a WHERE y IS NULL');
SELECT same('SELECT (SELECT row_to_json(x)) FROM t1 x JOIN t2 y USING (id)');
-- A column that was dropped is none of a row's.
\set ECHO none
SET client_min_messages = warning;
ALTER FOREIGN TABLE pq.t2 DROP COLUMN m;
ALTER TABLE heap.t2 DROP COLUMN m;
RESET client_min_messages;
\set ECHO all
SELECT same('SELECT x.id, row_to_json(y), y, y IS NOT NULL FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k');
-- EXISTS in keys and in aggregates.
SELECT * FROM pushed('SELECT CASE WHEN EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a) THEN ''with'' ELSE ''without'' END, count(*) FROM t1 x GROUP BY 1');
SELECT same('SELECT CASE WHEN EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.k) THEN ''with'' ELSE ''without'' END, count(*) FROM t1 x GROUP BY 1');
SELECT same('SELECT x.k, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.k)), sum(CASE WHEN NOT EXISTS (SELECT 1 FROM t3 y WHERE y.id = x.a) THEN n END) FROM t1 x GROUP BY x.k');
SELECT same('SELECT EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.k) AS e, max(x.id) FROM t1 x GROUP BY 1 HAVING count(*) > 1 ORDER BY 1');
SELECT same('SELECT x.k, EXISTS (SELECT 1 FROM t2 y WHERE y.k = x.k) FROM t1 x GROUP BY x.k');
SELECT same('SELECT EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a) AND x.k, upper(CASE WHEN EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a) THEN ''a'' END) FROM t1 x GROUP BY 1, EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a)');
