--
-- Each pitfall of pushing whole subtrees, by a query that would show it.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- IS DISTINCT FROM and NULLIF share a struct with `=`.
SELECT count(*) FROM t1 WHERE a IS DISTINCT FROM i;
SELECT count(*) FROM heap.t1 WHERE a IS DISTINCT FROM i;
SELECT count(nullif(a, i)) FROM t1;
SELECT count(nullif(a, i)) FROM heap.t1;

-- A value computed below an outer join reads NULL above it.
SELECT x.id, q.v FROM t3 x LEFT JOIN (SELECT id, coalesce(a, 0) AS v FROM t2 WHERE k) q ON x.id = q.id WHERE x.id < 8 ORDER BY 1;
SELECT x.id, q.v FROM heap.t3 x LEFT JOIN (SELECT id, coalesce(a, 0) AS v FROM heap.t2 WHERE k) q ON x.id = q.id WHERE x.id < 8 ORDER BY 1;

-- The inner side of a semi join is named above it by equivalence.
SELECT count(*) FROM t1 x JOIN t2 y ON x.a = y.a WHERE x.a IN (SELECT a FROM t3 WHERE i > 0) AND y.a < 5;
SELECT count(*) FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a WHERE x.a IN (SELECT a FROM heap.t3 WHERE i > 0) AND y.a < 5;

-- InitPlans of a subquery that the engine runs.
SELECT count(*) FROM t1 x JOIN (SELECT a, count(*) AS k FROM t2 WHERE n > (SELECT avg(n) FROM t3) GROUP BY a) q ON x.a = q.a;
SELECT count(*) FROM heap.t1 x JOIN (SELECT a, count(*) AS k FROM heap.t2 WHERE n > (SELECT avg(n) FROM heap.t3) GROUP BY a) q ON x.a = q.a;

-- A view is planned anew when a table below it changes.
CREATE VIEW public.grouped AS SELECT a, count(*) AS k, sum(n) AS n FROM t1 GROUP BY a;
PREPARE viewed AS SELECT count(*), sum(g.k) FROM public.grouped g JOIN t2 ON t2.a = g.a;
EXECUTE viewed;
SELECT format('ALTER FOREIGN TABLE pq.t1 OPTIONS (SET path %L)', :'data' || '/t3.parquet')
\gexec
EXECUTE viewed;
SELECT format('ALTER FOREIGN TABLE pq.t1 OPTIONS (SET path %L)', :'data' || '/t1.parquet')
\gexec
EXECUTE viewed;

-- Tables that the engine reads are locked like others.
BEGIN;
SELECT count(*) FROM t3 JOIN (SELECT a, max(n) FROM t2 GROUP BY a) q ON q.a = t3.a;
SELECT relation::regclass, mode FROM pg_locks WHERE relation IN ('pq.t2'::regclass, 'pq.t3'::regclass) ORDER BY 1;
COMMIT;

-- Conditions without columns, and those that are never true.
SELECT count(*) FROM t1 x JOIN t2 y ON x.a = y.a WHERE EXISTS (SELECT 1 FROM t3 WHERE a = 100);
SELECT count(*) FROM t1 WHERE false;
SELECT count(*) FROM t1 x LEFT JOIN t2 y ON false;

-- Partitions, one foreign and one not.
SET client_min_messages = warning;
CREATE TABLE public.parted (id integer NOT NULL, a integer, n numeric(15,2)) PARTITION BY RANGE (id);
CREATE TABLE public.parted_low PARTITION OF public.parted FOR VALUES FROM (-10) TO (1);
INSERT INTO public.parted VALUES (0, 5, 1.50), (-1, NULL, 2);
SELECT format('CREATE FOREIGN TABLE public.parted_high PARTITION OF public.parted FOR VALUES FROM (1) TO (1000) '
  'SERVER pystachio OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
SELECT count(*), sum(n) FROM public.parted;
SELECT a, count(*) FROM public.parted WHERE id < 50 GROUP BY a ORDER BY a;
SELECT count(*) FROM public.parted p JOIN t3 ON p.a = t3.a;
SET enable_partitionwise_aggregate = on;
SELECT a, count(*) FROM public.parted GROUP BY a ORDER BY a;
RESET enable_partitionwise_aggregate;

-- Other planner settings change nothing.
SET geqo_threshold = 2;
SELECT count(*) FROM t1 x JOIN t2 y ON x.a = y.a JOIN t3 z ON y.c = z.c WHERE x.id < 30;
-- The genetic search frees the nodes of one join order before it tries the next: expressions that are evaluated at run time must outlive it.
SELECT count(*) FROM t1 w, t1 x, t2 y, t3 z WHERE (w.c = current_user OR w.id = x.id) AND x.a = y.a AND y.id = z.id AND z.id < 9;
SELECT count(*) FROM heap.t1 w, heap.t1 x, heap.t2 y, heap.t3 z WHERE (w.c = current_user OR w.id = x.id) AND x.a = y.a AND y.id = z.id AND z.id < 9;
SELECT count(*) FROM t1 w, t1 x, t2 y, t3 z
  WHERE (w.c IN (current_user, session_user, 'a') OR w.id = x.id + (SELECT min(id) FROM t3)) AND x.a = y.a AND y.id = z.id AND z.id < 9;
SELECT count(*) FROM heap.t1 w, heap.t1 x, heap.t2 y, heap.t3 z
  WHERE (w.c IN (current_user, session_user, 'a') OR w.id = x.id + (SELECT min(id) FROM heap.t3)) AND x.a = y.a AND y.id = z.id AND z.id < 9;
PREPARE searched(text, integer) AS SELECT count(*) FROM t1 w, t1 x, t2 y, t3 z
  WHERE (w.c = $1 || 'a' OR w.id = x.id + $2 * 2) AND (x.a = y.a OR y.d < current_date - $2) AND y.id = z.id AND z.id < 9;
SET plan_cache_mode = force_generic_plan;
EXECUTE searched('x', 1);
RESET geqo_threshold;
EXECUTE searched('x', 1);
SET plan_cache_mode = force_custom_plan;
EXECUTE searched('x', 1);
RESET plan_cache_mode;
DEALLOCATE searched;
SET join_collapse_limit = 1;
SET from_collapse_limit = 1;
SELECT count(*) FROM t1 x JOIN t2 y ON x.a = y.a JOIN t3 z ON y.c = z.c WHERE x.id < 30;
RESET join_collapse_limit;
RESET from_collapse_limit;
SELECT count(*) FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a JOIN heap.t3 z ON y.c = z.c WHERE x.id < 30;
DROP TABLE public.parted;
DROP VIEW public.grouped;

-- What a query groups by, which PostgreSQL 18 names in its own way, in HAVING and in subqueries there and among the columns.
SELECT a + 1 AS x, count(*) FROM t1 GROUP BY a + 1 HAVING count(*) > 3 AND a + 1 > 2 ORDER BY 1;
SELECT a + 1 AS x, count(*) FROM heap.t1 GROUP BY a + 1 HAVING count(*) > 3 AND a + 1 > 2 ORDER BY 1;
SELECT a, (SELECT max(id) FROM t2 WHERE t2.a = t1.a) FROM t1 GROUP BY a HAVING EXISTS (SELECT 1 FROM t3 WHERE t3.i = t1.a) ORDER BY 1;
SELECT a, (SELECT max(id) FROM heap.t2 WHERE t2.a = t1.a) FROM heap.t1 GROUP BY a HAVING EXISTS (SELECT 1 FROM heap.t3 WHERE t3.i = t1.a) ORDER BY 1;
SELECT a, count(*) FROM t1 GROUP BY ROLLUP (a) HAVING a > (SELECT min(a) FROM t2) ORDER BY 1;
SELECT a, count(*) FROM heap.t1 GROUP BY ROLLUP (a) HAVING a > (SELECT min(a) FROM heap.t2) ORDER BY 1;
SELECT a, count(*) FROM t1 WHERE id NOT IN (SELECT id FROM t2 WHERE a > 3 GROUP BY id) GROUP BY ROLLUP (a) HAVING a IS NULL ORDER BY 1, 2;
SELECT a, count(*) FROM heap.t1 WHERE id NOT IN (SELECT id FROM heap.t2 WHERE a > 3 GROUP BY id) GROUP BY ROLLUP (a) HAVING a IS NULL ORDER BY 1, 2;
