--
-- Aggregates for which the order of rows matters: arrays and joined texts, percentiles, modes, hypothetical rows; and bits.
-- Each answer is compared with that over heap tables.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql

-- Plans.
EXPLAIN (VERBOSE, COSTS OFF) SELECT c, array_agg(id ORDER BY a DESC, id) AS ids, string_agg(c, ', ' ORDER BY id) AS cs FROM t1 GROUP BY c ORDER BY c;
EXPLAIN (VERBOSE, COSTS OFF) SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY f) AS p, mode() WITHIN GROUP (ORDER BY a) AS m FROM t1 GROUP BY k;
EXPLAIN (VERBOSE, COSTS OFF) SELECT rank(3) WITHIN GROUP (ORDER BY a) AS r, dense_rank(3) WITHIN GROUP (ORDER BY a DESC) AS d FROM t1;
EXPLAIN (VERBOSE, COSTS OFF) SELECT bit_and(a) AS x, bit_or(b) FILTER (WHERE k) AS y FROM t1;

-- array_agg of every type, with NULLs, ordered by one that is unique.
SELECT same($$SELECT i, array_agg(a ORDER BY id), array_agg(b ORDER BY id DESC), array_agg(i ORDER BY id), array_agg(c ORDER BY id) FROM t1 GROUP BY i$$);
SELECT same($$SELECT i, array_agg(d ORDER BY id), array_agg(n ORDER BY id), array_agg(m ORDER BY id), array_agg(f ORDER BY id), array_agg(k ORDER BY id), array_agg(ts ORDER BY id) FROM t1 GROUP BY i$$);
SELECT same($$SELECT array_agg(a ORDER BY id), array_agg(n + 1 ORDER BY id), array_agg(n * m ORDER BY id), array_agg(upper(c) ORDER BY id), array_agg(f::real ORDER BY id) FROM t1$$);
SELECT same($$SELECT array_agg(d::timestamptz ORDER BY id), array_agg(ts::time ORDER BY id), array_agg(d - 7 ORDER BY id) FROM t1$$);
SELECT same($$SELECT array_agg(s ORDER BY id) FROM t1$$);
SELECT same($$SELECT array_agg(CASE WHEN k THEN n ELSE 0 END ORDER BY id) FROM t1$$);
SELECT same($$SELECT array_agg(ts - ts ORDER BY id) FROM t1$$);
-- Keys of every type, in all orders.
SELECT same($$SELECT array_agg(id ORDER BY a, id), array_agg(id ORDER BY a DESC, id), array_agg(id ORDER BY a NULLS FIRST, id DESC), array_agg(id ORDER BY a DESC NULLS LAST, id) FROM t1$$);
SELECT same($$SELECT array_agg(id ORDER BY c, id), array_agg(id ORDER BY s, id), array_agg(id ORDER BY n, f DESC, id), array_agg(id ORDER BY k DESC, ts, id), array_agg(id ORDER BY b + 1, id) FROM t1$$);
SELECT same($$SELECT a, array_agg(id ORDER BY CASE WHEN k THEN n END, id) FROM t1 GROUP BY a HAVING array_agg(id ORDER BY id) IS NOT NULL$$);
-- FILTER and DISTINCT.
SELECT same($$SELECT c, array_agg(a ORDER BY id) FILTER (WHERE k), array_agg(DISTINCT a), array_agg(DISTINCT a ORDER BY a DESC NULLS LAST) FILTER (WHERE id > 20), count(DISTINCT i), count(*) FROM t1 GROUP BY c$$);
SELECT same($$SELECT array_agg(DISTINCT a), array_agg(DISTINCT c ORDER BY c DESC), array_agg(DISTINCT n), array_agg(DISTINCT k) FILTER (WHERE i > 0), sum(DISTINCT i), max(d) FROM t1$$);
SELECT same($$SELECT array_agg(DISTINCT a) FROM t1$$);
SELECT same($$SELECT array_agg(DISTINCT f) FROM t1 WHERE f <> 0$$);
SELECT same($$SELECT array_agg(a), array_agg(DISTINCT c), array_agg(1 / a ORDER BY id) FILTER (WHERE a <> 0), mode() WITHIN GROUP (ORDER BY c) FROM t0$$);
SELECT same($$SELECT c, array_agg(1 / a ORDER BY id) FILTER (WHERE a <> 0), array_agg(a ORDER BY 1 / a) FILTER (WHERE a > 100) FROM t1 GROUP BY c$$);
SELECT same($$SELECT array_agg(1 / a ORDER BY id) FROM t1 WHERE a = 0$$);
SELECT same($$SELECT array_agg(a ORDER BY id) FILTER (WHERE id < 0), array_agg(NULL::integer) FROM t1 WHERE id < 4$$);

-- string_agg.
SELECT same($$SELECT a, string_agg(c, ', ' ORDER BY id), string_agg(c, NULL ORDER BY id DESC), string_agg(c, '' ORDER BY id), string_agg(c, c ORDER BY id) FROM t1 GROUP BY a$$);
SELECT same($$SELECT string_agg(c, i::text ORDER BY id), string_agg(id::text, c ORDER BY n DESC, id), string_agg(s, '|' ORDER BY id), string_agg(c || '!', ',' ORDER BY id) FILTER (WHERE k) FROM t1$$);
SELECT same($$SELECT i, string_agg(DISTINCT c, ','), string_agg(DISTINCT c, '/' ORDER BY c DESC) FILTER (WHERE a > 2), count(DISTINCT c) FROM t1 GROUP BY i$$);
SELECT same($$SELECT string_agg(DISTINCT c, i::text) FROM t1$$);
SELECT same($$SELECT string_agg(c, ',') FROM t1 WHERE c IS NULL$$);
SELECT same($$SELECT string_agg(c, ',') FROM t0$$);
SELECT same($$SELECT string_agg(c::bytea, '\x00'::bytea ORDER BY id) FROM t1$$);
SELECT same($$SELECT x.a, (SELECT string_agg(y.c, ',' ORDER BY y.id) FROM t2 y WHERE y.a = x.a) FROM t1 x$$);
SELECT length(string_agg(c, ',')) = (SELECT sum(length(c) + 1) - 1 FROM t1) AS same FROM t1;
PREPARE joined(text) AS SELECT string_agg(c, $1 ORDER BY id) FROM t1 WHERE id < 6;
SET plan_cache_mode = force_generic_plan;
EXECUTE joined('; ');
EXECUTE joined(NULL);
RESET plan_cache_mode;

-- The order of a subquery.
SELECT public.pushed($$SELECT array_agg(id) FROM (SELECT id, a FROM t1 ORDER BY a DESC, id) s$$);
SELECT same($$SELECT array_agg(id) FROM (SELECT id FROM t1 ORDER BY a DESC, id) s$$);
SELECT same($$SELECT array_agg(id), string_agg(c, ',') FROM (SELECT id, c, a FROM t1 ORDER BY a DESC, id LIMIT 9) s WHERE a > 1$$);
SELECT same($$SELECT array_agg(id) FROM (SELECT id, row_number() OVER (ORDER BY n, id) AS place FROM t1) s WHERE place < 20$$);
SELECT same($$SELECT array_agg(x) FROM (SELECT id + 1 AS x FROM t1 ORDER BY c, id OFFSET 3) s$$);

-- Percentiles and modes.
SELECT same($$SELECT i, percentile_cont(0.5) WITHIN GROUP (ORDER BY f), percentile_cont(0.1) WITHIN GROUP (ORDER BY a), percentile_cont(0.999) WITHIN GROUP (ORDER BY n DESC), percentile_cont(1) WITHIN GROUP (ORDER BY b) FROM t1 GROUP BY i$$);
SELECT same($$SELECT i, percentile_disc(0) WITHIN GROUP (ORDER BY a), percentile_disc(0.3) WITHIN GROUP (ORDER BY c), percentile_disc(0.5) WITHIN GROUP (ORDER BY n DESC), percentile_disc(1) WITHIN GROUP (ORDER BY d), percentile_disc(0.7) WITHIN GROUP (ORDER BY ts), percentile_disc(0.5) WITHIN GROUP (ORDER BY s), percentile_disc(0.5) WITHIN GROUP (ORDER BY k) FROM t1 GROUP BY i$$);
SELECT same($$SELECT percentile_cont(ARRAY[0, 0.25, 0.5, 0.99, 1]) WITHIN GROUP (ORDER BY f), percentile_disc(ARRAY[0.75, 0.25]) WITHIN GROUP (ORDER BY c DESC), percentile_disc(ARRAY[0.5, 0.1]) WITHIN GROUP (ORDER BY n) FROM t1$$);
SELECT same($$SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY f) FILTER (WHERE k), percentile_cont(ARRAY[0.5]) WITHIN GROUP (ORDER BY f) FILTER (WHERE id < 0), mode() WITHIN GROUP (ORDER BY a) FILTER (WHERE a IS NULL) FROM t1$$);
SELECT same($$SELECT a, mode() WITHIN GROUP (ORDER BY c), mode() WITHIN GROUP (ORDER BY c DESC), mode() WITHIN GROUP (ORDER BY n), mode() WITHIN GROUP (ORDER BY f), mode() WITHIN GROUP (ORDER BY k), mode() WITHIN GROUP (ORDER BY s) FROM t1 GROUP BY a$$);
SELECT same($$SELECT a FROM t1 GROUP BY a HAVING percentile_cont(0.5) WITHIN GROUP (ORDER BY f) > 1 ORDER BY percentile_disc(0.5) WITHIN GROUP (ORDER BY id)$$);
SELECT same($$SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY f) FROM t1$$);
SELECT same($$SELECT percentile_disc('NaN') WITHIN GROUP (ORDER BY f) FROM t1$$);
SELECT same($$SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY f) FROM t0$$);
SELECT same($$SELECT percentile_cont(NULL) WITHIN GROUP (ORDER BY f) FROM t1$$);
SELECT same($$SELECT percentile_disc(ARRAY[0.5, NULL]) WITHIN GROUP (ORDER BY a) FROM t1$$);
SELECT same($$SELECT percentile_disc(ARRAY[[0.5, 0.1], [0.2, 1]]) WITHIN GROUP (ORDER BY a) FROM t1$$);
SELECT same($$SELECT percentile_disc('{}'::float8[]) WITHIN GROUP (ORDER BY a) FROM t1$$);
SELECT same($$SELECT i, percentile_disc(i / 10.0) WITHIN GROUP (ORDER BY a) FROM t1 WHERE i >= 0 GROUP BY i$$);
SELECT same($$SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ts - ts) FROM t1$$);

-- Hypothetical rows.
SELECT same($$SELECT i, rank(3) WITHIN GROUP (ORDER BY a), dense_rank(3) WITHIN GROUP (ORDER BY a), percent_rank(3) WITHIN GROUP (ORDER BY a), cume_dist(3) WITHIN GROUP (ORDER BY a) FROM t1 GROUP BY i$$);
SELECT same($$SELECT rank(3) WITHIN GROUP (ORDER BY a DESC), dense_rank(3) WITHIN GROUP (ORDER BY a DESC), rank(3) WITHIN GROUP (ORDER BY a NULLS FIRST), dense_rank(3) WITHIN GROUP (ORDER BY a NULLS FIRST), cume_dist(3) WITHIN GROUP (ORDER BY a DESC NULLS LAST) FROM t1$$);
SELECT same($$SELECT rank(NULL) WITHIN GROUP (ORDER BY a), dense_rank(NULL) WITHIN GROUP (ORDER BY a), rank(NULL) WITHIN GROUP (ORDER BY a DESC), cume_dist(NULL) WITHIN GROUP (ORDER BY a), percent_rank(NULL) WITHIN GROUP (ORDER BY a DESC) FROM t1$$);
SELECT same($$SELECT rank(3, 'b') WITHIN GROUP (ORDER BY a, c), rank('b', 3) WITHIN GROUP (ORDER BY c DESC, a), cume_dist(3, 'b', 1.5) WITHIN GROUP (ORDER BY a, c, n), dense_rank(3, 'b') WITHIN GROUP (ORDER BY a, c) FROM t1$$);
SELECT same($$SELECT rank(1.5) WITHIN GROUP (ORDER BY n), rank(date '1994-09-01') WITHIN GROUP (ORDER BY d), rank('NaN'::float8) WITHIN GROUP (ORDER BY f), dense_rank(2.0::float8) WITHIN GROUP (ORDER BY f) FILTER (WHERE k) FROM t1$$);
SELECT same($$SELECT rank(3) WITHIN GROUP (ORDER BY a), dense_rank(3) WITHIN GROUP (ORDER BY a), percent_rank(3) WITHIN GROUP (ORDER BY a), cume_dist(3) WITHIN GROUP (ORDER BY a) FROM t0$$);

-- Bits.
SELECT same($$SELECT c, bit_and(a), bit_or(a), bit_xor(a), bit_and(b), bit_or(i), bit_xor(DISTINCT a), bit_or(DISTINCT b), bit_and(i) FILTER (WHERE k) FROM t1 GROUP BY c$$);
SELECT same($$SELECT bit_and(a), bit_or(b), bit_xor(i), bit_xor(DISTINCT b), count(DISTINCT a) FROM t1$$);
SELECT same($$SELECT bit_and(a), bit_or(a), bit_xor(b) FROM t0$$);

-- An order that changes nothing.
SELECT public.pushed($$SELECT sum(n ORDER BY id), max(a ORDER BY c), count(DISTINCT a ORDER BY a) FROM t1$$);
SELECT same($$SELECT sum(n ORDER BY id), max(a ORDER BY c), count(DISTINCT a ORDER BY a) FROM t1$$);
SELECT same($$SELECT sum(a ORDER BY 1 / a) FROM t1$$);

-- Not over frames; not of composite values and arrays.
SELECT public.pushed($$SELECT array_agg(a) OVER (ORDER BY id) FROM t1$$);
SELECT public.pushed($$SELECT bit_and(a) OVER (ORDER BY id) FROM t1$$);
SELECT public.pushed($$SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY f) FROM t1$$);
SELECT same($$SELECT json_agg(a ORDER BY id), array_agg(ARRAY[a] ORDER BY id), array_agg(ROW(a, c) ORDER BY id) FROM t1$$);

-- Groups of others' groups, joins, unions, grouping sets.
SELECT same($$SELECT k, array_agg(ids ORDER BY ids) FROM (SELECT k, a, min(id) AS ids FROM t1 GROUP BY k, a) s GROUP BY k$$);
SELECT same($$SELECT x.i, string_agg(y.c, ',' ORDER BY x.id, y.id) FROM t1 x JOIN t2 y ON x.a = y.a GROUP BY x.i$$);
SELECT same($$SELECT i, k, array_agg(id ORDER BY id), percentile_disc(0.5) WITHIN GROUP (ORDER BY a) FROM t1 GROUP BY GROUPING SETS ((i), (k), ())$$);
SELECT same($$SELECT array_agg(v ORDER BY v) FROM (SELECT a AS v FROM t1 UNION ALL SELECT i FROM t2) s$$);
SELECT same($$SELECT u FROM (SELECT array_agg(DISTINCT a) AS v FROM t1 GROUP BY i) s, unnest(v) u$$);
SELECT same($$SELECT i, (array_agg(c ORDER BY id))[1], cardinality(array_agg(id)), array_length(array_agg(a), 1), 3 = ANY (array_agg(a)) FROM t1 GROUP BY i$$);
