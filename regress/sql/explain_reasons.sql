--
-- Why a query is not one scan: EXPLAIN (VERBOSE) and pystachio.strict give the same reasons for whatever stands above or
-- beside the scans.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
CREATE SERVER reasons_other FOREIGN DATA WRAPPER pystachio OPTIONS (device_memory '1GB');
SELECT format('CREATE FOREIGN TABLE pq.other (id integer NOT NULL, a integer, c text) SERVER reasons_other OPTIONS (path %L)',
  :'data' || '/t2.parquet')
\gexec
CREATE TABLE public.parted (id integer NOT NULL, a integer) PARTITION BY RANGE (id);
CREATE TABLE public.parted_heap PARTITION OF public.parted FOR VALUES FROM (-10) TO (1);
SELECT format('CREATE FOREIGN TABLE public.parted_parquet PARTITION OF public.parted FOR VALUES FROM (1) TO (1000) '
  'SERVER pystachio OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec

-- The reasons that EXPLAIN gives, each once, and those of strict; they must be the same.
CREATE FUNCTION public.reasons(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
  explained text;
  raised text;
BEGIN
  EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) ' || query INTO plan;
  SELECT string_agg(reason, '; ' ORDER BY place) INTO explained FROM (
    SELECT DISTINCT ON (reason) reason, place
    FROM jsonb_path_query(plan, '$.**."Not Pushed Down"[*]') WITH ORDINALITY q(value, place), LATERAL (SELECT value #>> '{}') r(reason)
    ORDER BY reason, place) unique_reasons;
  BEGIN
    SET LOCAL pystachio.strict = on;
    EXECUTE 'EXPLAIN ' || query;
    raised := 'no error';
  EXCEPTION WHEN feature_not_supported THEN
    GET STACKED DIAGNOSTICS raised = PG_EXCEPTION_DETAIL;
  END;
  SET LOCAL pystachio.strict = off;
  IF explained IS NULL AND raised = 'no error' THEN
    RETURN 'one scan';
  END IF;
  IF raised IS DISTINCT FROM 'Not pushed down: ' || explained || '.' THEN
    RETURN format('EXPLAIN says: %s, strict says: %s', explained, raised);
  END IF;
  RETURN explained;
END $$;

CREATE TABLE public.queries (n serial, query text);
INSERT INTO public.queries (query) VALUES
  ('SELECT count(*) FROM t3 x JOIN heap.t2 y ON x.a = y.a'),
  ('SELECT count(*) FROM t3 x LEFT JOIN heap.t2 y ON x.a = y.a JOIN heap.t1 z ON z.a = x.a'),
  ('SELECT count(*) FROM t3 x, heap.t2 y WHERE x.a < y.a'),
  ('SELECT count(*) FROM t3 WHERE a IN (SELECT a FROM heap.t2)'),
  ('SELECT count(*) FROM t3 x JOIN other y ON x.a = y.a'),
  ('SELECT count(*) FROM t3 x JOIN other y ON x.a = y.a JOIN heap.t2 z ON z.a = x.a'),
  ('SELECT n FROM t3 UNION SELECT m FROM t2'),
  ('SELECT id FROM t3 UNION ALL SELECT id FROM t2'),
  ('SELECT id FROM t3 UNION ALL SELECT id FROM heap.t2'),
  ('SELECT id FROM t3 UNION ALL SELECT id FROM other'),
  ('SELECT count(*) FROM (SELECT id FROM t3 UNION ALL SELECT id FROM other) u'),
  ('SELECT f FROM t3 INTERSECT SELECT f FROM t2'),
  ('SELECT id FROM t3 INTERSECT ALL SELECT id FROM t2'),
  ('SELECT f FROM t3 EXCEPT SELECT f FROM t2'),
  ('SELECT id FROM t3 EXCEPT ALL SELECT id FROM heap.t2'),
  ('SELECT count(*) FROM public.parted'),
  ('SELECT id, row_number() OVER (ORDER BY id) FROM t3'),
  ('SELECT sum(a) OVER (PARTITION BY c), count(*) OVER () FROM t3 JOIN t2 USING (a, c)'),
  ('SELECT a, c, count(*) FROM t3 GROUP BY GROUPING SETS ((a), (c))'),
  ('SELECT a, count(*) + (random() * 0)::int FROM t3 GROUP BY ROLLUP (a)'),
  ('SELECT DISTINCT ON (a) a, id FROM t3 ORDER BY a, id'),
  ('SELECT id FROM t3 WHERE a = 1 FOR UPDATE'),
  ('SELECT x.id FROM t3 x JOIN t2 y ON x.a = y.a FOR SHARE OF x'),
  ('SELECT x.id, q.id FROM t3 x, LATERAL (SELECT id FROM t2 y WHERE y.a = x.a ORDER BY id LIMIT 1) q'),
  ('SELECT x.id, v FROM t3 x, LATERAL generate_series(1, x.a) s (v)'),
  ('SELECT id, (SELECT max(y.id) FROM t2 y WHERE y.a > x.a) FROM t3 x ORDER BY 2'),
  ('SELECT id, (SELECT max(y.id) FROM t2 y WHERE y.a > x.a) FROM t3 x'),
  ('SELECT id, a IN (SELECT a FROM t2) FROM t3'),
  ('SELECT id, (SELECT max(id) FROM t2) FROM t3'),
  ('SELECT id FROM t3 x WHERE id = (SELECT max(y.id) FROM t2 y WHERE y.a < x.a OR x.c = y.c)'),
  ('SELECT id FROM t3 x WHERE EXISTS (SELECT FROM heap.t2 y WHERE y.a < x.a OR x.c IS NULL) OR id = 1'),
  ('SELECT id FROM t3 WHERE a > (SELECT min(a) FROM heap.t2)'),
  ('WITH RECURSIVE r AS (SELECT id FROM t3 WHERE id = 1 UNION ALL SELECT r.id + 1 FROM r JOIN t3 ON t3.id = r.id) SELECT * FROM r'),
  ('WITH w AS MATERIALIZED (SELECT a FROM t3 WHERE id < 10) SELECT count(*) FROM w'),
  ('WITH w AS MATERIALIZED (SELECT a FROM t3 WHERE id < 10) SELECT count(*) FROM w x JOIN w y USING (a)'),
  ('WITH w AS (SELECT a, random() AS r FROM t3) SELECT count(*) FROM w x JOIN w y USING (a)'),
  ('SELECT count(*) FROM t3 JOIN (VALUES (1), (2)) v (a) USING (a)'),
  ('SELECT count(*) FROM t3 JOIN generate_series(1, 3) g ON g = a'),
  ('SELECT count(*) FROM t3 JOIN unnest(ARRAY[1, 2]) u (a) USING (a)'),
  ('SELECT count(*) FROM t3 JOIN json_to_recordset(''[{"a": 1}]'') j (a integer) USING (a)'),
  ('SELECT generate_series(1, 2), a FROM t3'),
  ('SELECT unnest(ARRAY[a, id]) FROM t3 ORDER BY 1'),
  ('SELECT a FROM t3 ORDER BY a FETCH FIRST 3 ROWS WITH TIES'),
  ('SELECT f, count(*) FROM t3 GROUP BY f'),
  ('SELECT DISTINCT f FROM t3'),
  ('SELECT string_agg(c, '','' ORDER BY id) FROM t3'),
  ('SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY f) FROM t3'),
  ('SELECT count(*) FROM t3 WHERE format(''%I'', c) > ''a'''),
  ('SELECT count(*) FROM t3 x JOIN t2 y ON format(''%I'', x.c) = format(''%I'', y.c)'),
  ('SELECT count(*) FROM t3 x JOIN pg_class c ON c.relname = x.c'),
  ('SELECT x FROM t3 x ORDER BY id'),
  ('SELECT id FROM t3 WHERE tableoid > 0'),
  ('INSERT INTO heap.t3 SELECT * FROM t3');
SELECT n, query, public.reasons(query) FROM public.queries ORDER BY n \g (format=unaligned)

-- Nothing is left over: no reason.
SELECT public.reasons('SELECT c, count(*) FROM t3 x JOIN t2 y USING (a, c) GROUP BY c ORDER BY c LIMIT 3');
SET pystachio.pushdown = off;
SELECT public.reasons('SELECT count(*) FROM t3');
RESET pystachio.pushdown;

-- A plan that is kept has its reasons too.
PREPARE kept (integer) AS SELECT count(*) FROM t3 x JOIN heap.t2 y ON x.a = y.a WHERE x.id > $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE kept (1);
EXECUTE kept (1);
RESET plan_cache_mode;
DEALLOCATE kept;

SET client_min_messages = warning;
DROP FUNCTION public.reasons;
DROP TABLE public.queries, public.parted;
DROP SERVER reasons_other CASCADE;
