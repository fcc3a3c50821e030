--
-- LATERAL: PostgreSQL joins a relation that reads columns of others, and an outer join's NULLs stay NULL.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql

SELECT public.pushed($$SELECT x.a, s.v FROM t1 x LEFT JOIN LATERAL (SELECT *, x.a + 1 AS v FROM t2 y) s ON x.i = s.i AND x.a = 999$$);
SELECT DISTINCT s.v FROM t1 x LEFT JOIN LATERAL (SELECT *, x.a + 1 AS v FROM t2 y) s ON x.i = s.i AND x.a = 999;
SELECT same($$SELECT x.id, s.v FROM t1 x LEFT JOIN LATERAL (SELECT *, x.a + 1 AS v FROM t2 y) s ON x.i = s.i AND x.a = 999$$);
SELECT same($$SELECT x.id, s.v, s.id FROM t1 x LEFT JOIN LATERAL (SELECT *, x.a + 1 AS v FROM t2 y) s ON x.i = s.i AND x.a > 3$$);
SELECT same($$SELECT count(*) FROM t1 x LEFT JOIN LATERAL (SELECT x.a AS t, y.* FROM t2 y) s ON x.i = s.i WHERE s.t = s.a$$);
SELECT same($$SELECT x.id, s.t FROM t1 x LEFT JOIN LATERAL (SELECT x.a AS t, y.* FROM t2 y) s ON x.i = s.i WHERE s.t = s.a OR s.t IS NULL$$);
SELECT same($$SELECT x.id, s.* FROM t3 x LEFT JOIN LATERAL (SELECT y.a AS ya, z.a AS za, least(x.a, y.a, z.a) AS v FROM t2 y CROSS JOIN t3 z) s ON x.i = s.ya$$);
SELECT same($$SELECT * FROM t3 x LEFT JOIN LATERAL (SELECT coalesce(x) FROM t2 y WHERE x.a = y.a) k ON true$$);
SELECT same($$SELECT x.id, s.v FROM t1 x LEFT JOIN LATERAL (SELECT y.id, coalesce(y.a, x.a) AS v FROM t2 y WHERE y.i > 0) s ON x.id = s.id$$);
SELECT same($$SELECT x.id, s.v FROM t1 x LEFT JOIN LATERAL (SELECT y.id, coalesce(y.a, x.a) AS v FROM t2 y LEFT JOIN t3 z ON y.id = z.id) s ON x.id = s.id$$);
SELECT same($$SELECT x.id, s.v, t.w FROM t1 x LEFT JOIN LATERAL (SELECT y.id, x.a + 1 AS v FROM t2 y) s ON x.id = s.id AND x.a > 2 LEFT JOIN LATERAL (SELECT z.id, s.v + 1 AS w FROM t3 z) t ON t.id = x.id AND x.i > 0$$);
SELECT same($$SELECT s.v, count(*) FROM t1 x LEFT JOIN LATERAL (SELECT y.id, x.a AS v FROM t2 y) s ON x.id = s.id AND x.i > 0 GROUP BY s.v ORDER BY 1$$);
SELECT same($$SELECT x.id, s.v FROM t1 x LEFT JOIN LATERAL (SELECT x.a + 1 AS v) s ON x.i > 0$$);
SELECT same($$SELECT x.id, s.v FROM t1 x LEFT JOIN (SELECT y.id, 1 AS v FROM t2 y) s ON x.id = s.id AND x.i > 0$$);
SELECT same($$SELECT x.id, s.v FROM t1 x LEFT JOIN (SELECT y.id, coalesce(y.a, z.a, 7) AS v FROM t2 y LEFT JOIN t3 z ON y.a = z.a) s ON x.id = s.id AND x.i > 0$$);
SELECT same($$SELECT x.id, s.v FROM t1 x FULL JOIN (SELECT y.id, coalesce(y.a, 7) AS v FROM t2 y JOIN t3 z ON y.a = z.id) s ON x.id = s.id$$);
SELECT same($$SELECT x.id, s.k FROM t1 x LEFT JOIN LATERAL (SELECT count(*) AS k FROM t2 y WHERE y.a = x.a) s ON x.i > 0$$);
SELECT same($$SELECT x.id, s.id FROM t1 x CROSS JOIN LATERAL (SELECT y.id FROM t2 y WHERE y.a = x.a ORDER BY y.id LIMIT 1) s$$);
SELECT same($$SELECT x.id FROM t1 x WHERE EXISTS (SELECT 1 FROM t2 y LEFT JOIN LATERAL (SELECT z.id, y.a AS v FROM t3 z) s ON s.id = y.id AND y.i > 0 WHERE s.v = x.a)$$);

-- A view's expression below an outer join is pushed down if it reads only the view's own columns.
EXPLAIN (COSTS OFF) SELECT x.id, s.v FROM t1 x LEFT JOIN (SELECT y.id, coalesce(y.a, 7) AS v FROM t2 y) s ON x.id = s.id;

-- A scan that is read again for every row of another asks the engine once more, and then no more.
SET pystachio.rewrite = off;
SET enable_memoize = off;
CREATE FUNCTION public.engine_runs(query text, shown text DEFAULT ' Scan t[0-9] \[') RETURNS SETOF text LANGUAGE plpgsql SET search_path = pq, public AS $$
DECLARE
  line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    IF line ~ shown THEN
      -- Which keys are sought one by one depends on the order of rows, and with them how many rows are found.
      RETURN NEXT regexp_replace(trim(line), 'actual=\d+ ', '');
    END IF;
  END LOOP;
END $$;
SELECT line FROM public.engine_runs($$SELECT x.id, s.v FROM t3 x LEFT JOIN LATERAL (SELECT y.id, coalesce(y.i, x.a) AS v FROM t2 y) s ON x.id = s.id$$) line;
SELECT line FROM public.engine_runs($$SELECT x.id, (SELECT min(x.a + y.i) FROM t2 y WHERE to_char(y.id, '999V') = to_char(x.id, '999V')) FROM t3 x$$) line;
SELECT same($$SELECT x.id, s.v FROM t3 x LEFT JOIN LATERAL (SELECT y.id, coalesce(y.i, x.a) AS v FROM t2 y) s ON x.id = s.id$$);
SELECT same($$SELECT x.id, (SELECT min(x.a + y.i) FROM t2 y WHERE to_char(y.id, '999V') = to_char(x.id, '999V')) FROM t3 x$$);
SELECT same($$SELECT x.id, EXISTS (SELECT 1 FROM t2 y WHERE to_char(y.id, '999V') <> to_char(x.id, '999V')) FROM t3 x$$);
RESET pystachio.rewrite;
-- A subquery whose keys come from a heap table reads all its rows after some queries, if they are few enough.
SELECT line FROM public.engine_runs($$SELECT (SELECT max((SELECT y.a FROM t1 y WHERE y.id = x.id))) FROM heap.t1 x$$) line;
SELECT line FROM public.engine_runs($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.id = x.a) FROM heap.t1 x$$) line;
SELECT line FROM public.engine_runs($$SELECT x.id, (SELECT json_agg(y.c) FROM t2 y WHERE y.c = x.c AND y.b = x.i) FROM heap.t1 x$$) line;
SELECT line FROM public.engine_runs($$SELECT x.id, (SELECT string_agg(y.c, ',') FROM t2 y WHERE y.c = x.c AND y.b = x.i) FROM heap.t1 x$$) line;
-- From version 16 on PostgreSQL asks for the aggregate's rows in its order.
SELECT line FROM public.engine_runs($$SELECT x.id, (SELECT json_agg(y.c ORDER BY y.id) FROM t2 y WHERE y.c = x.c AND y.b = x.i) FROM heap.t1 x$$) line;
-- One file a run.
SELECT line FROM public.engine_runs($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.id = x.id ORDER BY y.d LIMIT 1) FROM heap.t1 x$$, ' Files: ') line;
SELECT line FROM public.engine_runs($$SELECT x.id, (SELECT json_agg(q) FROM (SELECT y.id, y.c FROM t2 y WHERE y.a = x.a ORDER BY y.d, y.id) q) FROM heap.t1 x$$) line;
SELECT x.id, (SELECT y.id FROM t2 y WHERE y.a = x.a ORDER BY y.d DESC, y.id LIMIT 1 OFFSET 1) FROM heap.t1 x
EXCEPT SELECT x.id, (SELECT y.id FROM heap.t2 y WHERE y.a = x.a ORDER BY y.d DESC, y.id LIMIT 1 OFFSET 1) FROM heap.t1 x;
SELECT same($$SELECT (SELECT max((SELECT y.a FROM t1 y WHERE y.id = x.id))) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.id = x.a) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT string_agg(y.c, ',' ORDER BY y.id) FROM t2 y WHERE y.c = x.c AND y.b = x.i) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT string_agg(y.id::text, ',' ORDER BY y.id) FROM t2 y WHERE y.d = x.d AND y.k) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT string_agg(y.id::text, ',' ORDER BY y.id) FROM t2 y WHERE y.ts = x.ts AND y.a + 1 > 2) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.a = x.a) FROM t1 x$$);
RESET enable_memoize;

-- Joins of partitions: each of them is planned with the conditions of its parent, adjusted to it.
DO $$
DECLARE
  place text;
BEGIN
  FOREACH place IN ARRAY '{pq,heap}'::text[] LOOP
    EXECUTE format('CREATE TABLE %I.p1 (LIKE heap.t1) PARTITION BY RANGE (id)', place);
    EXECUTE format('CREATE TABLE %I.p2 (LIKE heap.t2) PARTITION BY RANGE (id)', place);
    EXECUTE format('CREATE TABLE %I.p1_more PARTITION OF %1$I.p1 FOR VALUES FROM (1000) TO (2000)', place);
    EXECUTE format('CREATE TABLE %I.p2_more PARTITION OF %1$I.p2 FOR VALUES FROM (1000) TO (2000)', place);
    EXECUTE format('ALTER TABLE %I.p1 ATTACH PARTITION %1$I.t1 FOR VALUES FROM (MINVALUE) TO (1000)', place);
    EXECUTE format('ALTER TABLE %I.p2 ATTACH PARTITION %1$I.t2 FOR VALUES FROM (MINVALUE) TO (1000)', place);
    EXECUTE format('INSERT INTO %I.p1 SELECT id + 1000, a, b, i, c, s, d, n, m, f, k, ts FROM heap.t1', place);
    EXECUTE format('INSERT INTO %I.p2 SELECT id + 1000, a, b, i, c, s, d, n, m, f, k, ts FROM heap.t2', place);
  END LOOP;
END $$;
SET enable_partitionwise_join = on;
SELECT same($$SELECT x.id, s.t, s.a FROM p1 x LEFT JOIN LATERAL (SELECT x.a AS t, y.* FROM p2 y) s ON x.id = s.id WHERE s.t = s.a$$);
SELECT same($$SELECT x.id, s.t, s.i FROM p1 x LEFT JOIN LATERAL (SELECT x.a AS t, y.* FROM p2 y) s ON x.id = s.id WHERE s.t < s.i AND s.i > 0$$);
SELECT same($$SELECT x.id, s.t, s.i FROM p1 x LEFT JOIN LATERAL (SELECT x.a AS t, y.* FROM p2 y) s ON x.id = s.id WHERE s.t < s.i AND to_char(s.i, 'S9') > '+1'$$);
SELECT same($$SELECT count(*) FROM p1 x LEFT JOIN LATERAL (SELECT x.a AS t, y.* FROM p2 y) s ON x.id = s.id WHERE s.t = s.i OR s.t > 3$$);
SELECT same($$SELECT x.id, s.k FROM p1 x CROSS JOIN LATERAL (SELECT y.id + x.a AS k FROM p2 y WHERE y.id = x.id AND y.a > x.i AND y.c <> 'a') s$$);
RESET enable_partitionwise_join;

-- Parallel plans forced: an engine's query and the InitPlans in it stay with the leader.
DO $$BEGIN
  EXECUTE format('SET %s = on', CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END);
END$$;
SELECT * FROM (SELECT min(id) FROM t1 x WHERE NOT EXISTS (SELECT 1 FROM t2 y WHERE y.id = 10000)) s;
SELECT count(*) FROM t1 x JOIN (SELECT a, count(*) AS k FROM t2 WHERE n > (SELECT avg(n) FROM t3) GROUP BY a) q ON x.a = q.a;
SELECT same($$SELECT * FROM (SELECT min(id) FROM t1 x WHERE NOT EXISTS (SELECT 1 FROM t2 y WHERE y.id = 10000)) s$$);
SELECT same($$SELECT a, generate_series(1, 2) AS g FROM t1 WHERE id > (SELECT avg(id) FROM t2) ORDER BY a, g$$);
SELECT same($$SELECT x.id, (SELECT max(s.k) FROM (SELECT a, count(*) AS k FROM t2 WHERE n > (SELECT avg(n) FROM t3) GROUP BY a) s WHERE s.a = x.a) FROM t1 x$$);
-- Rows that a scan keeps for the next time are in a file where they are more than work_mem.
SET work_mem = '64kB';
SET enable_material = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT same($$SELECT x.id, count(*), max(y.t) FROM t0 z RIGHT JOIN t3 x ON x.id = z.id LEFT JOIN (SELECT a.id + b.id AS i, a.c || b.c || a.n::text AS t FROM t1 a CROSS JOIN t1 b) y ON to_char(x.id + y.i, 'S9999') <> y.t GROUP BY x.id$$);
RESET work_mem;
RESET enable_material;
RESET enable_hashjoin;
RESET enable_mergejoin;

-- The first row of each key of a heap table: a join where that costs less than a query for each key.
CREATE TABLE heap.many AS SELECT n AS id, n % 40 AS k FROM generate_series(1, 20000) n;
ANALYZE heap.many;
SELECT line FROM public.engine_runs($$SELECT count((SELECT y.c FROM t1 y WHERE y.a = x.k ORDER BY y.n, y.id LIMIT 1)) FROM heap.many x$$) line;
SELECT line FROM public.engine_runs($$SELECT count(s.c) FROM heap.many x CROSS JOIN LATERAL (SELECT y.c FROM t1 y WHERE y.a = x.k ORDER BY y.n, y.id LIMIT 1) s$$) line;
SET pystachio.rewrite = force;
SELECT same($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.a = x.a ORDER BY y.n, y.id LIMIT 1) FROM heap.t1 x$$);
SELECT same($$SELECT x.id, (SELECT coalesce(y.c, 'none') FROM t2 y WHERE y.a = x.a AND y.k ORDER BY y.d DESC, y.id LIMIT 1) FROM heap.t1 x WHERE (SELECT y.id FROM t2 y WHERE y.i = x.i AND y.a = x.a ORDER BY y.id DESC LIMIT 1) > 3$$);
SELECT same($$SELECT x.id, s.* FROM heap.t1 x CROSS JOIN LATERAL (SELECT y.id, y.c FROM t2 y WHERE y.a = x.a ORDER BY y.n, y.id LIMIT 1) s$$);
SELECT same($$SELECT x.id, s.* FROM heap.t1 x LEFT JOIN LATERAL (SELECT y.id, y.c FROM t2 y WHERE y.a = x.a ORDER BY y.n NULLS FIRST, y.id LIMIT 1) s ON true$$);
SELECT same($$SELECT x.id, s.id FROM heap.t1 x LEFT JOIN LATERAL (SELECT y.id FROM t2 y JOIN t3 z USING (id) WHERE y.a + z.a = x.a + 1 ORDER BY y.id LIMIT 1) s ON s.id > 3$$);
-- Left alone: another limit, and keys that come from scans of ours.
SELECT same($$SELECT x.id, (SELECT y.id FROM t2 y WHERE y.a = x.a ORDER BY y.id OFFSET 1 LIMIT 1) FROM heap.t1 x$$);
SELECT same($$SELECT x.id, s.* FROM heap.t1 x LEFT JOIN LATERAL (SELECT y.id, y.c FROM t2 y WHERE y.a = x.a ORDER BY y.id LIMIT 2) s ON true$$);
SELECT same($$SELECT x.id, (SELECT y.id FROM t2 y WHERE y.a < x.a ORDER BY y.id LIMIT 1) FROM heap.t1 x$$);
RESET pystachio.rewrite;
DROP TABLE heap.many;
