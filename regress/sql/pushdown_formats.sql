--
-- Texts that are made of values: parts that match a regular expression, numbers by a format, JSON, and format().
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql

--
-- Parts that match
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT regexp_replace(c, '[^a-c]+', '-', 'g') AS part, count(*) FROM t1 GROUP BY 1;
SELECT same($$SELECT id, regexp_replace(c, '[^a-c]+', '-', 'g'), regexp_replace(c, '^(.)(.*)$', '\2\1'), regexp_replace(c, 'B', '<\&>', 'i') FROM t1$$);
SELECT same($$SELECT id, regexp_replace(s, '.', '#', 2), regexp_replace(s, '\w', '#', 1, 2), regexp_replace(s, 'A', '', 1, 0, 'i') FROM t1$$);
SELECT same($$SELECT id, regexp_count(c, '[a-c]'), regexp_count(c, 'B', 2, 'i'), regexp_substr(c, '[^a]'), regexp_substr(c, '(.)(.)', 1, 1, 'c', 2) FROM t1$$);
SELECT same($$SELECT id, substring(c FROM '[b-z]+'), substring(c FROM '^(.)'), regexp_match(c, '(.)(.?)'), (regexp_match(c, '(.)(.)'))[2], regexp_match(c, 'b') FROM t1$$);
SELECT same($$SELECT id, (regexp_match(c, 'b'))[1], (regexp_match(c, 'b'))[2], (regexp_match(c, '(b)'))[0] FROM t1$$);
-- The first preference counts: the longest part, or the shortest.
SELECT same($$SELECT id, regexp_replace(x, 'a.*?b', '#'), regexp_replace(x, 'a.*b', '#'), regexp_replace(x, '(a+?|b)', '[\1]', 'g'),
  regexp_replace(x, '(a*?)(b+)', '\2\1'), regexp_substr(x, 'a|ab|abb'), regexp_match(x, '(a|ab)(b*)(.*?)$')
  FROM (SELECT id, repeat('aabbb', 3) || c AS x FROM t1) s$$);
SELECT same($$SELECT id, regexp_replace(c, '', '.', 'g'), regexp_replace(c, 'x*', '.', 'g'), regexp_replace(c, '$', '.', 'g'), regexp_count(c, '') FROM t1$$);
-- What is not known, or an error, stays in PostgreSQL.
EXPLAIN (VERBOSE, COSTS OFF) SELECT regexp_replace(c, '((a)b)', '\2'), regexp_match(c, '(a)*'), regexp_replace(c, 'a{0}b', ''), regexp_count(c, 'a', 1, 'n'),
  regexp_replace(c, 'a', s), regexp_replace(c, s, ''), regexp_substr(c, '(a)\1'), regexp_substr(c, 'a', 0) FROM t1;
SELECT same($$SELECT regexp_replace(c, '((a)b)', '\2'), regexp_match(c, '(a)*'), regexp_replace(c, 'a{0}b', ''), regexp_replace(c, 'a', s) FROM t1$$);
SELECT same($$SELECT regexp_substr(c, 'a', 0) FROM t1$$);
SELECT same($$SELECT regexp_match(c, 'a', 'g') FROM t1$$);

--
-- Numbers by a format
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_char(n, 'FM999,990.00') AS shown, count(*) FROM t1 GROUP BY 1;
SELECT same($$SELECT id, to_char(n, '999,990.009'), to_char(n, 'FM990.09PR'), to_char(m, 'MI0.9999'), to_char(a, '000th'), to_char(b, 'SG9,999'), to_char(i, '9PL') FROM t1$$);
SELECT same($$SELECT id, to_char(f, '9,990.99'), to_char(f::real, 'FM990.9'), to_char(n / 3, '990.999999'), to_char(n, '"n: "99'), to_char(a, '') FROM t1$$);
SELECT same($$SELECT to_char(sum(n), 'FM9,999,999.00'), to_char(avg(a), '99.99'), to_char(count(*), '9') FROM t1$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_char(n, 'FM9G990D00'), to_char(n, 'S99'), to_char(n, 'L99'), to_char(a, 'RN'), to_char(f, '9.9EEEE'), to_char(a, '99V9'), to_char(f, '9th'),
  to_char(a, '9.9.9'), to_char(a, c) FROM t1;
SELECT same($$SELECT to_char(a, '9.9.9') FROM t1$$);

--
-- JSON
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT k, json_agg(c ORDER BY id), jsonb_object_agg(id, n ORDER BY id) FROM t1 GROUP BY k;
SELECT same($$SELECT k, json_agg(c ORDER BY id), jsonb_agg(n ORDER BY id), json_agg(d ORDER BY id) FILTER (WHERE a > 2), jsonb_agg(ts ORDER BY id), json_agg(s ORDER BY id), json_agg(k ORDER BY id) FROM t1 GROUP BY k$$);
SELECT same($$SELECT json_object_agg(id, c ORDER BY id), jsonb_object_agg(id % 3, n ORDER BY id), json_object_agg('x' || id, b ORDER BY id) FROM t1$$);
SELECT same($$SELECT json_agg(a ORDER BY id), json_agg(json_build_object('id', id, 'name', c, 'at', ts, 'n', n, 'null', NULL, 'list', json_build_array(a, i, k)) ORDER BY id) FROM t1$$);
SELECT same($$SELECT jsonb_agg(jsonb_build_object('id', id, 'name', c) ORDER BY id), json_agg(a) FROM t0$$);
SELECT same($$SELECT id, json_build_object('a', a, 'c', c), jsonb_build_object('b', b, 'a', n, 'b', id), json_build_array(), jsonb_build_array(d, s, m), json_build_object(), to_json(c), to_jsonb(n), to_json(ts) FROM t1$$);
SELECT same($$SELECT id, jsonb_build_object('b', n) -> 'b', json_build_object('c', c) ->> 'c' FROM t1$$);
SELECT public.pushed($$SELECT json_agg(f) FROM t1$$);
SELECT public.pushed($$SELECT json_object_agg(a, c) FROM t1$$);
SELECT public.pushed($$SELECT json_agg(ARRAY[a]) FROM t1$$);
SELECT public.pushed($$SELECT json_agg(ts::timestamptz) FROM t1$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT json_build_object('f', f), json_build_object(c, a), json_build_object('a'), to_json(ts::timestamptz) FROM t1;
SELECT same($$SELECT json_agg(f ORDER BY id), json_agg(DISTINCT a), json_agg(ARRAY[a] ORDER BY id), json_build_array(count(f)) FROM t1$$);
SELECT same($$SELECT json_build_object('a') FROM t1$$);

--
-- Dates and timestamps that are read
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_date(d::text, 'YYYY-MM-DD') AS day, count(*) FROM t1 GROUP BY 1;
SELECT same($$SELECT id, to_date(to_char(d, 'DD.MM.YYYY'), 'DD.MM.YYYY'), to_date(to_char(d, 'YYYYMMDD'), 'YYYYMMDD'), to_date(to_char(d, 'FMMM/FMDD/YYYY'), 'MM/DD/YYYY'),
  to_timestamp(to_char(ts, 'YYYY-MM-DD HH24:MI:SS'), 'YYYY-MM-DD HH24:MI:SS') FROM t1 WHERE d IS NOT NULL AND ts IS NOT NULL$$);
SELECT same($$SELECT to_date(c, 'YYYY-MM-DD') FROM t1 WHERE id = 24$$);
SELECT same($$SELECT to_date(to_char(d, 'YYYYMMDD') || '1', 'YYYYDDMM') FROM t1 WHERE id = 24$$);
SELECT same($$SELECT to_timestamp('2024-01-01 ' || id || ':00:00', 'YYYY-MM-DD HH24:MI:SS') FROM t1 WHERE id = 24$$);
SET timezone = 'Europe/Berlin';
SELECT same($$SELECT id, to_timestamp('2024-03-31 0' || id % 5 || ':30', 'YYYY-MM-DD HH24:MI') FROM t1$$);
RESET timezone;
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_date(c, 'DD Mon YYYY'), to_date(c, c), to_timestamp(c, 'YYYY-MM-DD HH12:MI AM'), to_timestamp(c, 'YYYY TZ') FROM t1;

--
-- format(), concat() and arrays of character(n)
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT format('%s: %L, 100%%', c, s), concat(id, '-', c, i), concat_ws('/', a, c, b) FROM t1;
SELECT same($$SELECT id, format('%s: %L, 100%%', c, s), format('%s', a), format('plain'), format('%L|%s', c, b), concat(id, '-', c, i), concat_ws('/', a, c, b) FROM t1$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT format('%I', c), format('%1$s', c), format('%s', k), format('%s', f), format(c, a), format('%s', c, a) FROM t1;
SELECT same($$SELECT format('%I', c), format('%s', k) FROM t1$$);
SELECT same($$SELECT format('%s %s', c) FROM t1$$);
SELECT same($$SELECT k, array_agg(s ORDER BY id), array_agg(s ORDER BY s DESC, id) FROM t1 GROUP BY k$$);

--
-- Numbers beside rows
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT t1.id, number FROM t1, generate_series(1, t1.b) number WHERE number < 4;
SELECT same($$SELECT t1.id, number FROM t1, generate_series(1, t1.b) number WHERE number < 4 AND b < 100000$$);
SELECT same($$SELECT t1.id, number, place FROM t1 LEFT JOIN generate_series(1, t1.a::bigint) WITH ORDINALITY number (number, place) ON true$$);
SELECT same($$SELECT t1.id, number FROM t1, generate_series(t1.a, 5) number$$);
