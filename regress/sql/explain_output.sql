--
-- EXPLAIN: the pushed tree in words, reasons, and what ANALYZE adds.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
EXPLAIN (COSTS OFF) SELECT x.c, count(*), sum(x.n) FROM t1 x JOIN t2 y ON x.a = y.a WHERE y.d > date '1994-09-01' GROUP BY x.c ORDER BY 3 DESC LIMIT 5;
EXPLAIN (VERBOSE, COSTS OFF) SELECT x.id FROM t3 x LEFT JOIN t2 y ON x.a = y.a AND y.k WHERE md5(x.c) > 'a';

-- Times and counts vary: only the names are shown here.
CREATE FUNCTION public.explain_names(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    RETURN NEXT regexp_replace(line, '[0-9]+(\.[0-9]+)?( ?([kM]i?B|ms|us|bytes))?', 'N', 'g');
  END LOOP;
END $$;
SELECT * FROM public.explain_names('SELECT c, count(*) FROM pq.t1 WHERE id < 20 GROUP BY c');
-- EXPLAIN alone reads no rows, and its JSON can be read.
CREATE FUNCTION public.explain_json(query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  answer json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON, VERBOSE) ' || query INTO answer;
  RETURN answer;
END $$;
SELECT public.explain_json('SELECT c, count(*) FROM pq.t1 GROUP BY c') -> 0 -> 'Plan' ->> 'Node Type';
DROP FUNCTION public.explain_names, public.explain_json;
