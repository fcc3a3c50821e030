--
-- Prepared statements: a generic plan leaves the engine what a custom plan leaves it, or is not taken.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SET client_min_messages = warning;
-- Whether a statement over a schema's tables is one scan under a plan_cache_mode.
CREATE FUNCTION public.is_one_scan(mode text, call text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
BEGIN
  PERFORM set_config('plan_cache_mode', mode, true);
  EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) ' || call INTO plan;
  RETURN (SELECT count(*) = 1 AND bool_and(node ->> 'Node Type' = 'Foreign Scan' AND NOT node ? 'Filter')
          FROM jsonb_path_query(plan, 'strict $.** ? (exists(@."Node Type"))') node);
END $$;
CREATE FUNCTION public.rows_of(mode text, call text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  found text[] := '{}';
  one record;
BEGIN
  PERFORM set_config('plan_cache_mode', mode, true);
  FOR one IN EXECUTE call LOOP
    found := found || one::text;
  END LOOP;
  RETURN (SELECT coalesce(array_agg(part ORDER BY part COLLATE "C"), '{}') FROM unnest(found) part);
EXCEPTION WHEN OTHERS THEN
  RETURN ARRAY['error', SQLSTATE, SQLERRM];
END $$;
-- Prepares a statement over foreign tables and over heap tables, runs it ten times, and says: whether its custom plan is one
-- scan, whether its generic plan is, whether the plan of its eleventh run is, and whether all returned the rows of heap tables.
CREATE FUNCTION public.prepared(types text, query text, arguments text, OUT custom boolean, OUT generic boolean, OUT eleventh boolean, OUT same boolean)
LANGUAGE plpgsql SET search_path = pq, public AS $$
DECLARE
  expected text[];
  run integer;
BEGIN
  PERFORM set_config('search_path', 'heap, public', true);
  EXECUTE format('PREPARE over_heap(%s) AS %s', types, query);
  expected := public.rows_of('force_custom_plan', format('EXECUTE over_heap(%s)', arguments));
  PERFORM set_config('search_path', 'pq, public', true);
  EXECUTE format('PREPARE over_files(%s) AS %s', types, query);
  same := expected[1] IS DISTINCT FROM 'error';
  FOR run IN 1..10 LOOP
    same := same AND public.rows_of('auto', format('EXECUTE over_files(%s)', arguments)) = expected;
  END LOOP;
  eleventh := public.is_one_scan('auto', format('EXECUTE over_files(%s)', arguments));
  custom := public.is_one_scan('force_custom_plan', format('EXECUTE over_files(%s)', arguments));
  generic := public.is_one_scan('force_generic_plan', format('EXECUTE over_files(%s)', arguments));
  same := same AND public.rows_of('force_generic_plan', format('EXECUTE over_files(%s)', arguments)) = expected;
  DEALLOCATE over_heap;
  DEALLOCATE over_files;
END $$;
SET client_min_messages = notice;
-- A generic plan that is whole.
SELECT left(query, 60) AS query, p.* FROM (VALUES
  ('date', 'SELECT count(*), sum(n) FROM t1 WHERE d >= $1 AND d < $1 + interval ''1 year''', '''1994-01-01'''),
  ('date', 'SELECT count(*), sum(n) FROM t1 WHERE d >= $1 AND d < $1 + interval ''1 year''', '''infinity'''),
  ('date', 'SELECT count(*), sum(n) FROM t1 WHERE d >= $1 AND d < $1 + interval ''1 year''', 'NULL'),
  ('date, interval', 'SELECT count(*) FROM t1 WHERE d BETWEEN $1 - $2 AND $1 + $2', '''1994-06-15'', ''90 days'''),
  ('timestamp', 'SELECT count(*) FILTER (WHERE d < $1), count(*) FILTER (WHERE d <= $1), count(*) FILTER (WHERE d > $1), count(*) FILTER (WHERE d >= $1), '
     'count(*) FILTER (WHERE d = $1), count(*) FILTER (WHERE d <> $1), count(*) FILTER (WHERE $1 < d) FROM t1', '''1994-09-07'''),
  ('timestamp', 'SELECT count(*) FILTER (WHERE d < $1), count(*) FILTER (WHERE d <= $1), count(*) FILTER (WHERE d > $1), count(*) FILTER (WHERE d >= $1), '
     'count(*) FILTER (WHERE d = $1), count(*) FILTER (WHERE d <> $1), count(*) FILTER (WHERE $1 < d) FROM t1', '''1994-09-07 12:00'''),
  ('timestamp', 'SELECT count(*) FILTER (WHERE d < $1), count(*) FILTER (WHERE d <= $1), count(*) FILTER (WHERE d > $1), count(*) FILTER (WHERE d >= $1), '
     'count(*) FILTER (WHERE d = $1), count(*) FILTER (WHERE d <> $1), count(*) FILTER (WHERE $1 < d) FROM t1', '''-infinity'''),
  ('date, date', 'SELECT count(*) FROM t1 WHERE ($1 IS NULL OR d >= $1) AND ($2 IS NULL OR d < $2 + interval ''1 day'')', '''1994-01-01'', NULL'),
  ('date, integer', 'SELECT id FROM t1 WHERE k OR d < $1 + $2 ORDER BY d, id LIMIT 5', '''1994-01-01'', 3'),
  ('timestamp', 'SELECT count(*) FROM t1 WHERE ts >= $1 AND ts < $1 + interval ''1 month''', '''1994-01-01'''),
  ('date', 'SELECT count(*) FROM t1 WHERE d < current_date - interval ''1 day'' AND d > $1', '''1994-01-01'''),
  ('integer, integer, integer', 'SELECT count(*) FROM t1 WHERE a IN ($1, $2, $3) OR a NOT IN ($1, 5)', '1, 2, NULL'),
  ('text, text', 'SELECT count(*) FROM t1 WHERE c IN ($1, $2) OR c LIKE $1 || ''%''', '''a'', ''b'''),
  ('integer[]', 'SELECT count(*) FROM t1 WHERE a = ANY ($1)', '''{1,2,NULL}'''),
  ('text', 'SELECT count(*) FROM t1 WHERE c LIKE $1', '''%a%'''),
  ('text', 'SELECT count(*) FROM t1 WHERE $1 IS NULL OR upper(c) LIKE upper($1)', '''%a%'''),
  ('bigint, bigint', 'SELECT id FROM t1 ORDER BY id OFFSET $2 LIMIT $1', '3, 2'),
  ('integer', 'SELECT id FROM t1 ORDER BY id LIMIT $1', '3'),
  ('integer, integer', 'SELECT id, a + $1, CASE WHEN a > $2 THEN a - $1 ELSE $2 END FROM t1', '1, 3'),
  ('integer', 'SELECT a, count(*) FROM t1 GROUP BY a HAVING count(*) > $1', '2'),
  ('numeric', 'SELECT a, sum(n) FROM t1 GROUP BY a HAVING sum(n) > $1', '100.5'),
  ('integer, date', 'SELECT count(*) FROM t1 x JOIN t2 y ON x.a = y.a + $1 AND y.d < $2 + interval ''1 month''', '1, ''1995-01-01'''),
  ('integer', 'SELECT count(*) FROM t1 WHERE n > $1::numeric AND f > $1::double precision AND b > $1::bigint', '1'),
  ('text', 'SELECT id FROM t1 ORDER BY CASE WHEN $1 = ''a'' THEN a ELSE id END, id LIMIT 5', '''a'''),
  ('text', 'SELECT $1 AS label, count(*) FROM t1 GROUP BY 1', '''x'''),
  ('integer, text', 'SELECT id FROM t1 WHERE (a = $1 OR $1 IS NULL) AND (c = $2 OR $2 IS NULL)', 'NULL, ''a''')) q(types, query, arguments),
  LATERAL public.prepared(types, q.query, arguments) p;
-- One that is not is never taken where a custom plan is whole.
SELECT left(query, 60) AS query, p.* FROM (VALUES
  ('numeric', 'SELECT sum(n * $1) FROM t1', '1.05'),
  ('numeric, numeric', 'SELECT sum(n * (1 - $1)) FROM t1 WHERE n * $2 > 10', '0.05, 2'),
  ('integer', 'SELECT sum(round(n, $1)) FROM t1', '1'),
  ('text', 'SELECT date_trunc($1, ts), count(*) FROM t1 GROUP BY 1', '''month'''),
  ('interval', 'SELECT count(*) FROM t1 WHERE ts + $1 > timestamp ''1994-06-01''', '''1 month'''),
  ('integer[]', 'SELECT count(*) FROM t1 WHERE a > ANY ($1)', '''{1,2}'''),
  ('numeric', 'SELECT sum(CASE WHEN k THEN $1 ELSE 0.0 END) FROM t1', '1.5')) q(types, query, arguments),
  LATERAL public.prepared(types, q.query, arguments) p;
-- Nor does it matter where both are partial.
SELECT left(query, 60) AS query, p.* FROM (VALUES
  ('text', 'SELECT count(*) FROM t1 WHERE to_char(d, $1) > ''1994''', '''TMYYYY'''),
  ('integer', 'SELECT to_char(a, ''999V''), count(*) FROM t1 WHERE a > $1 GROUP BY 1', '3')) q(types, query, arguments),
  LATERAL public.prepared(types, q.query, arguments) p;
DROP FUNCTION public.prepared, public.rows_of, public.is_one_scan;
