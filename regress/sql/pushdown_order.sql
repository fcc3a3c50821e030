--
-- Orders that nodes above a scan need: windows, merge joins, grouping by sorting, a LIMIT that stays in PostgreSQL.
-- Each case prints the plan's nodes, the engine's sorts and limits, and whether the rows equal those of heap tables, in order.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SET client_min_messages = warning;
CREATE FUNCTION public.ordered(query text, OUT nodes text, OUT engine text, OUT same boolean) LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
  of_files text[];
  of_heap text[];
BEGIN
  PERFORM set_config('search_path', 'pq, public', true);
  EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) ' || query INTO plan;
  -- Versions differ in where they compute columns.
  SELECT string_agg(node #>> '{}', ', ') INTO nodes FROM jsonb_path_query(plan, 'strict $.**."Node Type"') node WHERE node #>> '{}' <> 'Result';
  SELECT string_agg(trim(line), '; ') INTO engine
  FROM jsonb_path_query(plan, 'strict $.** ? (exists(@."Engine Plan"))') scan, LATERAL jsonb_array_elements_text(scan -> 'Engine Plan') line
  WHERE line ~ 'Sort|Limit';
  EXECUTE 'SELECT array_agg(q::text) FROM (' || query || ') q' INTO of_files;
  PERFORM set_config('search_path', 'heap, public', true);
  EXECUTE 'SELECT array_agg(q::text) FROM (' || query || ') q' INTO of_heap;
  same := of_files IS NOT DISTINCT FROM of_heap;
END $$;
SET client_min_messages = notice;
-- Windows that PostgreSQL computes: their sort is the engine's, below joins, filters and groups too.
SELECT q.query, o.* FROM (VALUES
  ('SELECT id, array_agg(id) OVER (PARTITION BY a ORDER BY n DESC NULLS LAST, id) FROM t1'),
  ('SELECT id, array_agg(a) OVER (ORDER BY d NULLS FIRST, id DESC) FROM t1 WHERE id < 50'),
  ('SELECT x.id, y.id AS other, array_agg(y.id) OVER (PARTITION BY x.a ORDER BY x.id, y.id) FROM t1 x JOIN t2 y ON x.a = y.a WHERE x.id < 20'),
  ('SELECT x.id, y.id AS other, array_agg(y.id) OVER (PARTITION BY y.c ORDER BY x.id, y.id) FROM t1 x LEFT JOIN t2 y ON x.id = y.id + 3'),
  ('SELECT a, sum(n), array_agg(sum(n)) OVER (ORDER BY a) FROM t1 GROUP BY a'),
  ('SELECT a, count(*), array_agg(a) OVER (ORDER BY count(*) DESC, a) FROM t1 GROUP BY a'),
  ('SELECT id, array_agg(id) OVER (PARTITION BY a % 2, c ORDER BY id) FROM t1'),
  ('SELECT id, array_agg(id) OVER (ORDER BY f DESC, id) FROM t1'),
  ('SELECT id, array_agg(id) OVER (ORDER BY k, s, ts, id) FROM t1')) q (query), LATERAL public.ordered(q.query) o;
-- The first row of each group, which is the engine's too.
SELECT q.query, o.* FROM (VALUES
  ('SELECT DISTINCT ON (a) a, id, n FROM t1 ORDER BY a, n DESC, id'),
  ('SELECT DISTINCT ON (c) c, id FROM t1 ORDER BY c DESC NULLS LAST, id'),
  ('SELECT DISTINCT ON (x.a) x.a, y.id FROM t1 x JOIN t2 y ON x.a = y.a ORDER BY x.a, y.id DESC'),
  ('SELECT DISTINCT ON (a % 3) a % 3 AS r, sum(n) FROM t1 GROUP BY a ORDER BY a % 3, sum(n) DESC')) q (query), LATERAL public.ordered(q.query) o;
-- What engines order otherwise, PostgreSQL sorts.
SELECT q.query, o.* FROM (VALUES
  ('SELECT id, row_number() OVER (ORDER BY ts - timestamp ''1994-01-01'', id) FROM t1'),
  ('SELECT id, row_number() OVER (ORDER BY to_char(d, ''TMYYYY''), id) FROM t1')) q (query), LATERAL public.ordered(q.query) o;
-- A key that returns a set has more rows than its scan.
SELECT q.query, o.* FROM (VALUES
  ('SELECT generate_series(1, 2) + id AS r, count(*) FROM t1 GROUP BY 1 ORDER BY 1'),
  ('SELECT id, generate_series(1, 2) + a AS r FROM t1 ORDER BY 2, 1'),
  ('SELECT DISTINCT ON (1) generate_series(1, 2) + a AS r, id FROM t1 ORDER BY 1, 2')) q (query), LATERAL public.ordered(q.query) o;
-- Only the first rows come where PostgreSQL computes what is returned, or what comes after them.
SELECT q.query, o.* FROM (VALUES
  ('SELECT id, generate_series(1, 2) FROM t1 ORDER BY id LIMIT 3'),
  ('SELECT id FROM t1 ORDER BY a, id LIMIT 5'),
  ('SELECT id FROM t1 WHERE to_char(d, ''TMYYYY'') > ''1994'' ORDER BY a, id LIMIT 5'),
  ('SELECT id FROM t1 ORDER BY a, id FETCH FIRST (SELECT 2) ROWS WITH TIES')) q (query), LATERAL public.ordered(q.query) o;
-- A merge join with a table of PostgreSQL's own, and groups by sorting.
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET enable_hashagg = off;
SELECT q.query, o.* FROM (VALUES
  ('SELECT x.id, h.id AS other FROM t1 x JOIN heap.t2 h ON x.id = h.id ORDER BY x.id'),
  ('SELECT f, count(*) FROM t1 GROUP BY f ORDER BY f')) q (query), LATERAL public.ordered(q.query) o;
RESET enable_hashjoin;
RESET enable_nestloop;
RESET enable_hashagg;
DROP FUNCTION public.ordered;
