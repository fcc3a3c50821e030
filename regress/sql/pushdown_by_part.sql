--
-- Subqueries that look at the row around them: joined whatever else of the query stays in PostgreSQL, and where they can't
-- be joined, the rows of many keys are read at once.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
-- Nodes of a plan that run a subquery for each row, and the number of foreign scans.
CREATE FUNCTION public.shape(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
  scans bigint;
  subplans bigint;
  loops bigint;
BEGIN
  EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
  SELECT count(*) FILTER (WHERE node ->> 'Node Type' = 'Foreign Scan'),
    count(*) FILTER (WHERE node ->> 'Parent Relationship' = 'SubPlan'),
    count(*) FILTER (WHERE node ->> 'Node Type' = 'Nested Loop')
  INTO scans, subplans, loops FROM jsonb_path_query(plan, 'strict $.**') node WHERE jsonb_typeof(node) = 'object';
  RETURN format('%s scans, %s SubPlans, %s nested loops', scans, subplans, loops);
END $$;
-- How often the engine was asked for the second scan: how many rows come at a time decides that.
CREATE FUNCTION public.runs(query text) RETURNS text LANGUAGE plpgsql SET search_path = pq, public AS $$
DECLARE
  line text;
  runs integer := 1;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    runs := greatest(runs, substring(line FROM 'runs=(\d+)')::integer);
  END LOOP;
  RETURN CASE WHEN runs BETWEEN 2 AND 10 THEN 'some queries' ELSE runs || ' queries' END;
END $$;

-- A group that only PostgreSQL has stays with it, and the average below is joined.
SELECT public.shape($$SELECT to_char(x.d, 'TMYYYY'), count(*) FROM t1 x WHERE x.i > 0 AND x.n > (SELECT avg(y.n) FROM t2 y WHERE y.a = x.a) GROUP BY 1$$);
SELECT same($$SELECT to_char(x.d, 'TMYYYY'), count(*) FROM t1 x WHERE x.i > 0 AND x.n > (SELECT avg(y.n) FROM t2 y WHERE y.a = x.a) GROUP BY 1$$);
SELECT public.shape($$SELECT to_char(x.d, 'TMYYYY'), (SELECT count(*) FROM t2 y WHERE y.a = x.a) FROM t1 x$$);
SELECT same($$SELECT to_char(x.d, 'TMYYYY'), (SELECT count(*) FROM t2 y WHERE y.a = x.a) FROM t1 x$$);
SELECT public.shape($$SELECT to_char(x.d, 'TMYYYY') FROM t1 x WHERE x.i = 1 OR x.a IN (SELECT y.a FROM t2 y WHERE y.b = x.b)$$);
SELECT same($$SELECT to_char(x.d, 'TMYYYY') FROM t1 x WHERE x.i = 1 OR x.a IN (SELECT y.a FROM t2 y WHERE y.b = x.b)$$);
-- So where a condition of the outer table stays with PostgreSQL.
SELECT public.shape($$SELECT x.id FROM t1 x WHERE to_char(x.d, 'TMYYYY') <> '2000' AND x.n > (SELECT avg(y.n) FROM t2 y WHERE y.a = x.a)$$);
SELECT same($$SELECT x.id FROM t1 x WHERE to_char(x.d, 'TMYYYY') <> '2000' AND x.n > (SELECT avg(y.n) FROM t2 y WHERE y.a = x.a)$$);
-- NOT IN with NULLs would be a nested loop there, so it keeps PostgreSQL's hash table. The average is still joined.
SELECT public.shape($$SELECT x.id FROM t1 x WHERE to_char(x.d, 'TMYYYY') <> '2000' AND x.a NOT IN (SELECT y.a FROM t2 y) AND x.n > (SELECT avg(y.n) FROM t2 y WHERE y.a = x.a)$$);
SELECT same($$SELECT x.id FROM t1 x WHERE to_char(x.d, 'TMYYYY') <> '2000' AND x.a NOT IN (SELECT y.a FROM t2 y) AND x.n > (SELECT avg(y.n) FROM t2 y WHERE y.a = x.a)$$);
-- So where the outer rows are PostgreSQL's.
SELECT public.shape($$SELECT x.id, (SELECT count(*) FROM t2 y WHERE y.a = x.a) FROM heap.t1 x$$);
SELECT same($$SELECT x.id, (SELECT count(*) FROM t2 y WHERE y.a = x.a) FROM heap.t1 x$$);
SELECT public.shape($$SELECT g, (SELECT max(y.id) FROM t2 y WHERE y.a = g) FROM generate_series(1, 100) g$$);
SELECT same($$SELECT g, (SELECT max(y.id) FROM t2 y WHERE y.a = g) FROM generate_series(1, 100) g$$);
SELECT same($$SELECT g, EXISTS (SELECT 1 FROM t2 y WHERE y.a = g) OR g > 50 FROM generate_series(1, 100) g$$);
SELECT same($$SELECT x.id FROM heap.t1 x WHERE x.id > (SELECT avg(y.id) FROM t2 y WHERE y.a = x.a) FOR UPDATE$$);

-- Keys and aggregates of a query with groups.
SELECT public.shape($$SELECT CASE WHEN EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a) THEN 'some' ELSE 'none' END, count(*) FROM t1 x GROUP BY 1$$);
SELECT public.shape($$SELECT (SELECT count(*) FROM t2 y WHERE y.a = x.a) AS k, count(*), sum((SELECT max(z.i) FROM t3 z WHERE z.c = x.c)) FROM t1 x GROUP BY 1$$);
SELECT same($$SELECT (SELECT count(*) FROM t2 y WHERE y.a = x.a) AS k, count(*), sum((SELECT max(z.i) FROM t3 z WHERE z.c = x.c)) FROM t1 x GROUP BY 1$$);
SELECT same($$SELECT (SELECT count(*) FROM t2 y WHERE y.a = x.a) + 1, count(*) FROM t1 x GROUP BY (SELECT count(*) FROM t2 y WHERE y.a = x.a)$$);
-- What is said of no rows may look two levels out.
SELECT same($$SELECT x.id, (SELECT max((SELECT count(*) + x.id FROM t3 z WHERE z.a = y.a)) FROM t2 y WHERE y.i = 1 AND y.id < 20) FROM t1 x$$);
-- The equality may be in each part of a disjunction.
SELECT public.shape($$SELECT x.id FROM t1 x WHERE (SELECT count(*) FROM t2 y WHERE (y.a = x.a AND y.i = 1) OR (y.a = x.a AND y.k)) > 0$$);
SELECT same($$SELECT x.id FROM t1 x WHERE (SELECT count(*) FROM t2 y WHERE (y.a = x.a AND y.i = 1) OR (y.a = x.a AND y.k)) > 0$$);

-- LATERAL subqueries with aggregates.
SELECT public.shape($$SELECT x.id, s.k, s.m FROM t1 x CROSS JOIN LATERAL (SELECT count(*) AS k, max(y.d) AS m FROM t2 y WHERE y.a = x.a) s$$);
SELECT same($$SELECT x.id, s.k, s.m FROM t1 x CROSS JOIN LATERAL (SELECT count(*) AS k, max(y.d) AS m FROM t2 y WHERE y.a = x.a) s$$);
SELECT public.shape($$SELECT x.id, s.k FROM t1 x, LATERAL (SELECT count(*) + 1 AS k FROM t2 y WHERE y.a = x.a) s WHERE s.k > 2$$);
SELECT same($$SELECT x.id, s.k FROM t1 x, LATERAL (SELECT count(*) + 1 AS k FROM t2 y WHERE y.a = x.a) s WHERE s.k > 2$$);
SELECT same($$SELECT x.id, s.k FROM t1 x LEFT JOIN LATERAL (SELECT count(*) AS k FROM t2 y WHERE y.a = x.a) s ON s.k < 3$$);
SELECT same($$SELECT x.id, s.k, t.j FROM t1 x LEFT JOIN LATERAL (SELECT count(*) AS k FROM t2 y WHERE y.a = x.a) s ON true LEFT JOIN LATERAL (SELECT sum(z.id) AS j FROM t3 z WHERE z.id = s.k) t ON true$$);
SELECT same($$SELECT x.id, s.k, t.j FROM t1 x, LATERAL (SELECT count(*) AS k FROM t2 y WHERE y.a = x.a) s, LATERAL (SELECT count(*) AS j FROM t3 z WHERE z.a = x.a AND z.id = s.k) t$$);
SELECT same($$SELECT z.id, q.kk FROM t3 z LEFT JOIN (t1 x CROSS JOIN LATERAL (SELECT count(*) AS kk FROM t2 y WHERE y.a = x.a) s) q ON q.id = z.a AND q.kk < 2$$);
SELECT same($$SELECT z.id, q.kk FROM t3 z FULL JOIN (t1 x CROSS JOIN LATERAL (SELECT count(*) AS kk FROM t2 y WHERE y.a = x.a) s) q ON q.id = z.a$$);
SELECT same($$SELECT z.id, q.kk FROM t3 z, (t1 x CROSS JOIN LATERAL (SELECT count(*) AS kk FROM t2 y WHERE y.a = z.a) s) q WHERE q.id = z.id$$);
SELECT same($$SELECT * FROM (SELECT x.id, s.* FROM t1 x CROSS JOIN LATERAL (SELECT DISTINCT count(*) AS k, sum(y.n) FROM t2 y WHERE y.a = x.a ORDER BY 1) s) q$$);
SELECT same($$SELECT x.id, (SELECT max(s.k) FROM t3 z CROSS JOIN LATERAL (SELECT count(*) AS k FROM t2 y WHERE y.a = z.a) s WHERE z.i = x.i) FROM t1 x$$);
SELECT same($$SELECT x.id, s.k FROM heap.t1 x CROSS JOIN LATERAL (SELECT count(*) AS k FROM t2 y WHERE y.a = x.a) s$$);
-- With groups and DISTINCT.
SELECT public.shape($$SELECT x.id, s.* FROM t1 x CROSS JOIN LATERAL (SELECT y.i, count(*) FROM t2 y WHERE y.a = x.a GROUP BY y.i) s$$);
SELECT same($$SELECT x.id, s.* FROM t1 x CROSS JOIN LATERAL (SELECT y.i, count(*) FROM t2 y WHERE y.a = x.a GROUP BY y.i) s$$);
SELECT same($$SELECT x.id, s.* FROM t1 x LEFT JOIN LATERAL (SELECT y.i, sum(y.n) AS n FROM t2 y WHERE y.a = x.a GROUP BY y.i, y.k HAVING count(*) > 1 ORDER BY y.k) s ON s.n > x.n$$);
SELECT same($$SELECT x.id, s.* FROM t1 x, LATERAL (SELECT DISTINCT y.i, y.k FROM t2 y WHERE y.a = x.a) s WHERE s.k$$);
SELECT same($$SELECT x.id, s.* FROM t1 x, LATERAL (SELECT DISTINCT count(*) AS k FROM t2 y WHERE y.a = x.a GROUP BY y.i) s$$);
SELECT same($$SELECT x.id, s FROM t1 x LEFT JOIN LATERAL (SELECT y.i, max(y.c) AS c FROM t2 y WHERE y.a = x.a GROUP BY y.i) s ON true$$);
SELECT same($$SELECT x.id, (SELECT s::text WHERE x.i > 0), (SELECT s.i) FROM heap.t1 x JOIN LATERAL (SELECT y.i, max(y.c) AS c FROM t2 y WHERE y.a = x.a GROUP BY y.i) s ON true$$);
SELECT same($$SELECT x.id, s FROM t1 x CROSS JOIN LATERAL (SELECT count(*), max(y.c) AS c FROM t2 y WHERE y.a = x.a) s$$);

-- What can't be joined is read for many rows at once: the first key alone, then 16, then more.
SET pystachio.rewrite = off;
SET enable_memoize = off;
SELECT public.runs($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.id = x.id) FROM t1 x$$);
SELECT public.runs($$SELECT x.id, (SELECT count(*) FROM t2 y WHERE y.id = x.id) FROM t1 x$$);
SELECT public.runs($$SELECT x.id, s.c FROM t1 x CROSS JOIN LATERAL (SELECT y.c FROM t2 y WHERE y.id = x.id ORDER BY y.d) s$$);
SELECT public.runs($$SELECT max((SELECT y.a FROM t2 y WHERE y.id = x.id)) FROM t1 x$$);
-- Keys of a table of PostgreSQL's are not known ahead: after 16 queries all rows are read.
SELECT public.runs($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.id = x.id) FROM heap.t1 x$$);
SELECT same($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.id = x.id) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.a = x.a ORDER BY y.d DESC NULLS LAST, y.id LIMIT 1) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.a = x.a ORDER BY y.id LIMIT 1 OFFSET 1) FROM t1 x$$);
SELECT same($$SELECT x.id, s.id FROM t1 x CROSS JOIN LATERAL (SELECT y.id FROM t2 y WHERE y.a = x.a ORDER BY y.d DESC, y.id LIMIT 2) s$$);
SELECT same($$SELECT x.id, s.id FROM t1 x CROSS JOIN LATERAL (SELECT y.id FROM t2 y WHERE y.a = x.a AND y.b = x.b ORDER BY y.id LIMIT 0) s$$);
SELECT same($$SELECT x.id, s.id FROM t1 x CROSS JOIN LATERAL (SELECT y.id FROM t2 y WHERE y.a = x.a ORDER BY y.id LIMIT x.i) s WHERE x.i > 0$$);
SELECT same($$SELECT x.id, (SELECT count(*) FROM t2 y WHERE y.a = x.a AND y.i = x.i) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT count(*) FROM t2 y WHERE y.a = x.a HAVING count(*) < 9) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT sum(y.n) FROM t2 y JOIN t3 z ON y.id = z.id WHERE y.a = x.a AND z.a = x.a) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT count(z.id) FROM t2 y LEFT JOIN t3 z ON y.id = z.id AND z.a = x.a WHERE y.a = x.a) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT string_agg(y.c, ',' ORDER BY y.id) FROM t2 y WHERE y.c = x.c) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT json_agg(q) FROM (SELECT y.id, y.c FROM t2 y WHERE y.a = x.a ORDER BY y.id) q) FROM t1 x$$);
SELECT same($$SELECT x.id, EXISTS (SELECT 1 FROM t2 y WHERE y.s = x.s AND y.id > 5) FROM t1 x$$);
SELECT same($$SELECT x.id, z.id, (SELECT count(*) FROM t2 y WHERE y.a = x.a AND y.i = z.i) FROM t1 x JOIN t3 z ON to_char(x.id, '999') = to_char(z.id, '999')$$);
SELECT same($$SELECT x.id, s.id, t.id FROM t1 x CROSS JOIN LATERAL (SELECT y.id, y.a FROM t2 y WHERE y.a = x.a ORDER BY y.id LIMIT 2) s CROSS JOIN LATERAL (SELECT z.id FROM t3 z WHERE z.a = s.a AND z.id > x.i ORDER BY z.id LIMIT 2) t$$);
SELECT same($$SELECT DISTINCT x.a, (SELECT max(y.c) FROM t2 y WHERE y.a = x.a) FROM t1 x ORDER BY 1$$);
-- A subquery that returns two rows is an error. One that would fail for a key that no row has is not.
SELECT same($$SELECT x.id, (SELECT y.c FROM t2 y WHERE y.a = x.a) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT max(10 / (y.id - 7)) FROM t2 y WHERE y.id = x.id) FROM t1 x$$);
SELECT same($$SELECT x.id, (SELECT max(10 / (y.id - 7)) FROM t2 y WHERE y.id = x.id) FROM t1 x WHERE x.id < 7$$);
SELECT same($$SELECT q.id FROM (SELECT x.id, (SELECT max(10 / (y.id - 7)) FROM t2 y WHERE y.id = x.id) AS m FROM t1 x ORDER BY x.id) q WHERE CASE WHEN q.id = 7 THEN true ELSE q.m < 5 END LIMIT 3$$);
-- Little memory: fewer keys are read at once.
SET work_mem = '64kB';
SELECT same($$SELECT x.id, (SELECT string_agg(y.c, ',' ORDER BY y.id) FROM t2 y WHERE y.i = x.i) FROM t1 x$$);
RESET work_mem;
RESET enable_memoize;
RESET pystachio.rewrite;
