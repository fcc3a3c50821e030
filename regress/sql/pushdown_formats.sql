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
-- Numbers as they are printed
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT f::text, n::text, (n / 3)::varchar, concat(a, '-', n, '-', k, f, ts), format('%s %L %I', f, n, 'order') FROM t1;
SELECT same($$SELECT id, f::text, f::real::text, n::text, m::varchar, (n / 3)::text, (n * m)::text, a::numeric::text, abs(n)::text FROM t1$$);
SELECT same($$SELECT left(n::text, 2), count(*) FROM t1 GROUP BY 1$$);
SELECT same($$SELECT string_agg(f::text, ',' ORDER BY id), string_agg(n::text, ' ' ORDER BY id), avg(n)::text, sum(f)::text FROM t1$$);
SELECT same($$SELECT id, concat(a, b, i, c, s, d, n, m, f, k, ts), concat_ws('|', a, k, f, NULL, n / 7, s), concat(d, ts::timestamptz, ts::time) FROM t1$$);
SELECT same($$SELECT id, format('%s %s %s %L %L', k, f, n, f, k), format('%I.%I', 'order', 'a b') FROM t1$$);
SELECT same($$SELECT id, quote_ident(c), quote_ident('user' || coalesce(c, '')), quote_nullable(c), quote_nullable(a), quote_literal(n) FROM t1$$);
SELECT same($$SELECT format('%I', c) FROM t1$$);
SET quote_all_identifiers = on;
SELECT same($$SELECT id, quote_ident(c), format('%I', 'ab') FROM t1$$);
RESET quote_all_identifiers;
-- A kept plan has the digits of each run.
SET plan_cache_mode = force_generic_plan;
PREPARE shown AS SELECT min(f::text), max((f / 3)::text), min((f::real / 7)::text), max(json_build_array(f / 3)::text) FROM t1;
EXECUTE shown;
SET extra_float_digits = 0;
EXECUTE shown;
SELECT same($$SELECT id, f::text, (f / 3)::real::text, to_json(f / 3), concat(f / 7) FROM t1$$);
SET extra_float_digits = -4;
EXECUTE shown;
RESET extra_float_digits;
RESET plan_cache_mode;

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
-- Floats, values with a time zone, numerics of several scales.
EXPLAIN (VERBOSE, COSTS OFF) SELECT json_build_object('f', f, 'r', f::real, 'q', n / 3, 'at', ts::timestamptz) FROM t1;
SELECT same($$SELECT id, to_json(f), to_json(f::real), to_json(n / 3), to_json(ts::timestamptz), jsonb_build_object('f', f, 'r', f::real, 'q', n / 3, 'at', ts::timestamptz) FROM t1$$);
SELECT same($$SELECT id, to_json('NaN'::float8 + f), to_jsonb(f * 'Infinity'::float8), to_json(f / 1e300), to_jsonb(f * 1e30), to_json(-0.0::float8 * f) FROM t1$$);
SELECT same($$SELECT k, json_agg(f ORDER BY id), jsonb_agg(f::real ORDER BY id), json_object_agg('x' || id, f ORDER BY id), json_build_object('average', avg(n), 'most', max(m), 'sum', sum(f)) FROM t1 GROUP BY k$$);
-- Arrays.
SELECT same($$SELECT k, to_json(array_agg(a ORDER BY id)), to_jsonb(array_agg(f ORDER BY id)), array_to_json(array_agg(c ORDER BY id)), to_json(array_agg(n ORDER BY id)), to_json(array_agg(ts::timestamptz ORDER BY id)), to_json(array_agg(d ORDER BY id) FILTER (WHERE false)) FROM t1 GROUP BY k$$);
SELECT same($$SELECT json_agg(l ORDER BY k), jsonb_agg(l ORDER BY k) FROM (SELECT k, array_agg(a ORDER BY id) FILTER (WHERE k) AS l FROM t1 GROUP BY k) q$$);
-- Rows.
EXPLAIN (VERBOSE, COSTS OFF) SELECT json_agg(t ORDER BY id) FROM (SELECT id, c AS "Name", f, n FROM t1) t;
SELECT same($$SELECT json_agg(t ORDER BY id) FROM (SELECT id, c AS "Name ""x""", f, n, s, ts FROM t1) t$$);
SELECT same($$SELECT k, jsonb_agg(t ORDER BY id), json_agg(row_to_json(t) ORDER BY id) FROM (SELECT id, c, d, k FROM t1) t GROUP BY k$$);
SELECT same($$SELECT id, row_to_json(ROW(a, c, f)), to_jsonb(ROW(a, ROW(c, f))), to_json(ROW(NULL, a)) FROM t1$$);
SELECT same($$SELECT x.id, json_build_object('x', x, 'y', y) FROM t1 x LEFT JOIN t2 y ON x.id = y.a$$);
SELECT same($$SELECT json_agg(x ORDER BY id), jsonb_agg(x ORDER BY id) FROM t1 x$$);
SELECT same($$SELECT json_agg(y ORDER BY x.id, y.id), jsonb_agg(y ORDER BY x.id, y.id), json_object_agg(x.id, y ORDER BY x.id, y.id) FROM t1 x LEFT JOIN t2 y ON x.id = y.a$$);
SELECT public.pushed($$SELECT json_agg(y ORDER BY x.id, y.id) FROM (SELECT id FROM t1) x LEFT JOIN t2 y ON x.id = y.a$$);
SELECT same($$SELECT json_agg(ARRAY[a, i] ORDER BY id), jsonb_agg(ARRAY[c, s] ORDER BY id) FROM t1$$);
SELECT same($$SELECT id, to_json(ARRAY[n, m]), json_build_object('list', ARRAY[f, NULL], 'rows', ARRAY[ROW(a, c), ROW(b, NULL)]), to_jsonb(ARRAY[k]), array_to_json(ARRAY[d]) FROM t1$$);
-- What stays.
SELECT public.pushed($$SELECT json_object_agg(a, c) FROM t1$$);
SELECT public.pushed($$SELECT json_agg(ARRAY[ARRAY[a]]) FROM t1$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT json_build_object(c, a), json_build_object('a'), to_json(ts - ts), row_to_json(ROW(a), true), to_json(c::bytea) FROM t1;
SELECT same($$SELECT json_agg(f ORDER BY id), json_agg(DISTINCT a), json_agg(ARRAY[a] ORDER BY id), json_build_array(count(f)), json_agg(row_to_json(ROW(a), true) ORDER BY id) FROM t1$$);
SELECT same($$SELECT json_build_object('a') FROM t1$$);

--
-- Numbers that are read, and intervals of whole units
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT sum(to_number(n::text, '999999.99')), to_number(min(c), '9') FROM t1;
SELECT same($$SELECT id, to_number(n::text, '999999999.99'), to_number(to_char(n, 'FM9,999,990.00'), '9,999,990.00') + 1, to_number('1' || id, '000'), to_number(m::text, 'FM99999.9') FROM t1$$);
SELECT same($$SELECT sum(to_number(a::text, '999999')), to_number(max(i::text), '99.9') FROM t1$$);
SELECT same($$SELECT to_number(c, '99') FROM t1$$);
SELECT same($$SELECT to_number('1234' || id, '9.99') FROM t1$$);
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_number(c, 'S99'), to_number(c, c), to_number(c, '99MI'), to_number(c, '') FROM t1;
SELECT same($$SELECT id, justify_days(ts - timestamp '2000-01-01'), justify_interval(timestamp '2030-06-01 12:00' - ts), justify_hours(ts - timestamp '2020-02-02 13:14:15.6'), justify_interval(age(ts, timestamp '2001-02-03 04:05')) FROM t1$$);

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
