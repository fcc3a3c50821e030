--
-- EXPLAIN: the pushed tree in words, reasons, and what ANALYZE adds.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
EXPLAIN (COSTS OFF) SELECT x.c, count(*), sum(x.n) FROM t1 x JOIN t2 y ON x.a = y.a WHERE y.d > date '1994-09-01' GROUP BY x.c ORDER BY 3 DESC LIMIT 5;
EXPLAIN (VERBOSE, COSTS OFF) SELECT x.id FROM t3 x LEFT JOIN t2 y ON x.a = y.a AND y.k WHERE format('%1$s', x.c) > 'a';

-- Times and counts vary: only the names are shown here. Each device has operators of its own.
CREATE FUNCTION public.explain_names(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  line text;
  operators_depth int;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    CONTINUE WHEN line ~ '^ *Ran On: ';
    IF length(line) - length(ltrim(line)) > operators_depth THEN
      ASSERT line ~ '\(rows=\d+', 'an operator without rows: ' || line;
      CONTINUE;
    END IF;
    operators_depth = CASE WHEN line ~ '^ *Engine Operators:$' THEN length(line) - length(ltrim(line)) END;
    RETURN NEXT regexp_replace(line, '[0-9]+(\.[0-9]+)?( ?([kM]i?B|ms|us|bytes))?', 'N', 'g');
  END LOOP;
END $$;
SELECT * FROM public.explain_names('SELECT c, count(*) FROM pq.t1 WHERE id < 20 GROUP BY c');
-- A scan that runs more than once: the sum of its runs.
SET pystachio.rewrite = off;
SELECT * FROM public.explain_names('SELECT o.a, q.k FROM (VALUES (1), (2)) o(a), LATERAL (SELECT count(*) AS k FROM pq.t3 WHERE t3.a = o.a) q');
RESET pystachio.rewrite;
-- Estimated and actual rows. Below a LIMIT, actual rows are those that the device had computed when it was met.
CREATE FUNCTION public.explain_rows(query text, with_actual boolean DEFAULT false) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  answer json;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO answer;
  RETURN QUERY SELECT CASE WHEN with_actual THEN line ELSE regexp_replace(line, ' actual=\d+( reduced)?', '') END
    FROM json_array_elements_text(answer -> 0 -> 'Plan' -> 'Engine Plan') line;
END $$;
SELECT * FROM public.explain_rows('SELECT x.c, count(DISTINCT y.id) FROM pq.t1 x LEFT JOIN pq.t2 y ON x.a = y.a GROUP BY x.c HAVING count(DISTINCT y.id) > 20 ORDER BY 1', true);
SELECT * FROM public.explain_rows('SELECT c, count(*) FROM pq.t1 WHERE a IN (SELECT a FROM pq.t2 WHERE k) GROUP BY c ORDER BY 2 DESC, 1 LIMIT 3');
SELECT * FROM public.explain_rows('SELECT count(*) FROM pq.t1');
-- EXPLAIN alone reads no rows, and its JSON can be read.
CREATE FUNCTION public.explain_json(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  answer json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON, VERBOSE) ' || query INTO answer;
  RETURN answer;
END $$;
SELECT public.explain_json('SELECT c, count(*) FROM pq.t1 GROUP BY c') -> 0 -> 'Plan' ->> 'Node Type';
-- Figures are numbers in formats for programs.
CREATE FUNCTION public.explain_figures(query text) RETURNS TABLE (key text, type text) LANGUAGE plpgsql AS $$
DECLARE
  answer json;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || query INTO answer;
  RETURN QUERY SELECT figure.key, json_typeof(figure.value) FROM json_each(answer -> 0 -> 'Plan') figure;
END $$;
SELECT * FROM public.explain_figures('SELECT c, count(*) FROM pq.t1 GROUP BY c') WHERE key ~ 'Bytes|Cache|Engine (Time|Prep)|Peak|Waited|in Postgres' ORDER BY key COLLATE "C";
-- Settings that bear on plans are shown where they are not as by default.
CREATE FUNCTION public.explain_settings(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (SETTINGS, COSTS OFF) ' || query LOOP
    RETURN QUERY SELECT match[1] FROM regexp_matches(line, '(pystachio\.\w+ = ''[^'']*'')', 'g') match ORDER BY 1;
  END LOOP;
END $$;
SET pystachio.rewrite = force;
SET pystachio.gpu_disable = 'cache';
-- Which engine runs small queries is set in the configuration of some clusters.
SELECT setting FROM public.explain_settings('SELECT count(*) FROM pq.t1') setting WHERE setting !~ 'engine_choice';
RESET pystachio.rewrite;
RESET pystachio.gpu_disable;
DROP FUNCTION public.explain_names, public.explain_rows, public.explain_json, public.explain_figures, public.explain_settings;
