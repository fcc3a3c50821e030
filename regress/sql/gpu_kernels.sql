--
-- What GPUs compute beside comparisons and sums of whole numbers: each query runs there as a whole, or, at the end, as far as there are
-- kernels, with the rows of the CPU engine and, but for sums of floats that PostgreSQL rounds at each row, of a heap table.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
SET extra_float_digits = 3;
SET timezone = 'UTC';
-- Small queries are expected to be faster on the CPU.
SET pystachio.engine_choice = gpu;
CREATE SCHEMA gpu_kernels;
SET search_path = gpu_kernels, public;
\! mkdir -p "$PYSTACHIO_REGRESS_SCRATCH/gpu_kernels" && chmod 777 "$PYSTACHIO_REGRESS_SCRATCH/gpu_kernels"
CREATE TABLE heap AS
SELECT n AS id, (n % 7)::smallint AS g, CASE WHEN n % 10 > 0 THEN n * 37 % 11 - 4 END AS a, n::bigint * 7919 % 100003 - 50000 AS b,
  CASE n % 9 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN '--' ELSE repeat(chr(97 + n % 5), n % 4) || '-Äß€' || n || '-' || repeat('ab', n % 3) END AS c,
  CASE n % 11 WHEN 0 THEN NULL WHEN 1 THEN timestamp '0044-03-15 23:00:01.5 BC' ELSE timestamp '1999-12-26 11:59:59.987654' END + n * interval '9 hours 7 minutes' AS ts,
  CASE WHEN n % 11 > 0 THEN sin(n) * 10 ^ (n % 9) END AS f, (cos(n) * 100)::real AS s,
  CASE n % 6 WHEN 0 THEN '-0' WHEN 1 THEN 'NaN' WHEN 2 THEN '-Infinity' WHEN 3 THEN 'Infinity' WHEN 4 THEN '0' ELSE '1e-290' END::float8 AS x
FROM generate_series(1, 700) n;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM gpu_kernels.heap', :'scratch' || '/gpu_kernels/a.parquet', overwrite => true);
CREATE SERVER kernels FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SELECT format('CREATE FOREIGN TABLE files (id integer, g smallint, a integer, b bigint, c text, ts timestamp, f float8, s real, x float8) SERVER kernels OPTIONS (path %L)', :'scratch' || '/gpu_kernels/*.parquet')
\gexec
ANALYZE heap, files;
-- Where a query ran, and whether its rows are those of the CPU engine and of the heap table. @ is the table.
CREATE FUNCTION ran(query text, OUT engine text, OUT as_cpu boolean, OUT as_heap boolean) LANGUAGE plpgsql AS $$
DECLARE
  line text; gpu text; cpu text; heap text; files text := replace(query, '@', 'files');
  digest text := 'WITH r AS MATERIALIZED (%s) SELECT count(*) || coalesce(md5(string_agg(r::text, ''|'' ORDER BY r::text COLLATE "C")), '''') FROM r';
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || files LOOP
    engine := coalesce(engine, substring(line FROM 'Ran On: (.*)'));
  END LOOP;
  EXECUTE format(digest, files) INTO gpu;
  EXECUTE format(digest, replace(query, '@', 'heap')) INTO heap;
  SET LOCAL pystachio.engine_choice = cpu;
  EXECUTE format(digest, files) INTO cpu;
  SET LOCAL pystachio.engine_choice = gpu;
  as_cpu := gpu = cpu;
  as_heap := gpu = heap;
END $$;

-- Rows that are repeated.
SELECT * FROM ran('SELECT g, a FROM @ EXCEPT ALL SELECT g, a FROM @ WHERE id % 3 = 0');
SELECT * FROM ran('SELECT a, left(c, 1) FROM @ INTERSECT ALL SELECT a, left(c, 1) FROM @ WHERE id % 2 = 0');
SELECT * FROM ran('SELECT t.id, t.c, n FROM @ t, generate_series(1, t.b % 5) n WHERE n <> 2');
SELECT * FROM ran('SELECT t.id, n, o FROM @ t LEFT JOIN LATERAL generate_series(1, t.b % 4) WITH ORDINALITY s (n, o) ON true');
SELECT * FROM ran('SELECT g, count(*), sum(n) FROM @ t, generate_series(1, t.b % 300) n GROUP BY g');
SELECT n FROM (SELECT b FROM files WHERE id = 1) t, generate_series(1, t.b + 4000000000000000000) n LIMIT 3;

-- Sums of floats.
SELECT engine, as_cpu FROM ran('SELECT sum(f), avg(f), sum(s), avg(s), stddev(f), var_pop(s), count(x) FROM @');
SELECT engine, as_cpu FROM ran('SELECT g, sum(f), avg(f), sum(s), avg(s), stddev(f), var_pop(s), stddev_pop(f), variance(s) FROM @ GROUP BY g');
SELECT engine, as_cpu FROM ran('SELECT c, a, sum(f) FILTER (WHERE id % 3 > 0), avg(s), stddev(f), count(*) FROM @ GROUP BY c, a');
SELECT engine, as_cpu FROM ran('SELECT id % 6 AS h, id % 5 AS i, sum(x), avg(x), stddev(x), sum(s + g::real) FROM @ GROUP BY 1, 2');
SELECT engine, as_cpu FROM ran('SELECT g, sum(f), sum(a), max(c), count(DISTINCT a) FROM @ WHERE id < 0 GROUP BY g');
SELECT engine, as_cpu FROM ran('SELECT sum(f), avg(s), stddev(x) FROM @ WHERE id < 0');
SELECT sum(CASE WHEN id <= 2 THEN 1.5e308::float8 END) FROM files;
SELECT sum(CASE WHEN id <= 2 THEN 3e38::real END) FROM files;

-- Percentiles and modes; of several fractions they are arrays, which have no kernel.
SELECT * FROM ran('SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY f), percentile_cont(0.99) WITHIN GROUP (ORDER BY x DESC) FILTER (WHERE x <> 0), percentile_cont(0.1) WITHIN GROUP (ORDER BY a), mode() WITHIN GROUP (ORDER BY a), mode() WITHIN GROUP (ORDER BY c COLLATE "C" DESC) FROM @ GROUP BY g');
SELECT * FROM ran('SELECT a, percentile_disc(0.3) WITHIN GROUP (ORDER BY b), percentile_disc(0.5) WITHIN GROUP (ORDER BY ts DESC), percentile_disc(1) WITHIN GROUP (ORDER BY c COLLATE "C"), percentile_disc(0) WITHIN GROUP (ORDER BY s), count(*), sum(b), count(DISTINCT g) FROM @ GROUP BY a');
SELECT * FROM ran('SELECT c, percentile_disc(0.6) WITHIN GROUP (ORDER BY b) FILTER (WHERE a > 0), mode() WITHIN GROUP (ORDER BY g) FILTER (WHERE a IS NULL), percentile_cont(0.5) WITHIN GROUP (ORDER BY s) FROM @ GROUP BY c');
SELECT * FROM ran('SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY b), mode() WITHIN GROUP (ORDER BY g), percentile_disc(0.5) WITHIN GROUP (ORDER BY b::numeric / 8), percentile_disc(0.5) WITHIN GROUP (ORDER BY a > 0) FROM @');
SELECT * FROM ran('SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY b), mode() WITHIN GROUP (ORDER BY g), count(*) FROM @ WHERE id < 0');
SELECT * FROM ran('SELECT g, percentile_cont(0.25) WITHIN GROUP (ORDER BY b) FROM @ WHERE id < 0 GROUP BY g');
SELECT * FROM ran('SELECT g FROM @ GROUP BY g HAVING percentile_disc(0.5) WITHIN GROUP (ORDER BY b) > 0 ORDER BY mode() WITHIN GROUP (ORDER BY a)');
SELECT * FROM ran('SELECT t.id FROM @ t JOIN (SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY b) AS m FROM @ GROUP BY g) m ON m.g = t.g AND t.b > m.m');
SELECT * FROM ran('SELECT g, a, percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM @ GROUP BY GROUPING SETS ((g), (a), ())');
SELECT * FROM ran('SELECT g, percentile_cont(1) WITHIN GROUP (ORDER BY y), percentile_cont(0.3) WITHIN GROUP (ORDER BY y) FROM (SELECT g, CASE id % 4 WHEN 0 THEN 1.7e308::float8 WHEN 1 THEN -1.7e308::float8 ELSE 5e-324::float8 END AS y FROM @) t GROUP BY g');
SELECT * FROM ran('SELECT g, percentile_cont(ARRAY[0.1, 0.5]) WITHIN GROUP (ORDER BY b), percentile_disc(0.5) WITHIN GROUP (ORDER BY b) FROM @ GROUP BY g');

-- Regular expressions.
SELECT pattern, r.* FROM unnest(ARRAY['^a', 'b$', '-Ä.€[0-9]+-', '(ab){2}', '^$', '^(a|b)*-', '\d\d\d', '[[:alpha:]]ß', '\mab', 'x|', 'a.*b.*c']) pattern,
  ran(format('SELECT id, c ~ %1$L, c !~ %1$L, c ~* %1$L FROM @', pattern)) r;
SELECT * FROM ran('SELECT g, count(*) FROM @ WHERE c SIMILAR TO ''%-(ab)+'' OR c ~* ''äSS|Äß.1'' GROUP BY g');
SELECT engine FROM ran('SELECT id FROM @ WHERE c ~ ''(a|b)*a(a|b){12}c''');

-- Texts and bits.
SELECT * FROM ran('SELECT id, split_part(c, ''-'', 2), split_part(c, ''-'', -1), split_part(c, '''', 1), split_part(c, ''--'', a + 20) FROM @');
SELECT * FROM ran('SELECT id, lpad(c, a, ''xß''), rpad(c, 12, ''xß''), lpad(c, 3), repeat(c, a), reverse(c), translate(c, ''-aß€'', ''_Ä'') FROM @');
SELECT * FROM ran('SELECT id, a & 6, b | a, g # 5::smallint, ~a, ~b, g << a, a << 3, b >> a, a >> 33, b << g FROM @');
SELECT split_part(c, '-', a) FROM files WHERE a = 0;
SELECT repeat(c, 1000000000) FROM files WHERE id = 3;

-- Texts of dates and timestamps.
SELECT format, r.* FROM unnest('{YYYY-MM-DD HH24:MI:SS.US,"FMDay, DDth FMMonth YYYY BC",IYYY-IW-ID IDDD DDD,Dy Mon mon MON day DAY Month,HH12:MI:SS.MS am P.M.,Q CC W WW J SSSS,"RM rm FMRM Y,YYY YYY YY Y","FMYYYYth \"qu\" ä D"}'::text[]) format,
  ran(format('SELECT id, to_char(ts, %1$L), to_char(ts::date, %1$L) FROM @', format)) r;
SELECT * FROM ran('SELECT to_char(ts, ''YYYY-MM'') AS month, count(*), sum(b) FROM @ GROUP BY 1');
SELECT * FROM ran('SELECT count(to_char(ts, '''')), count(*) FROM @');

-- What has no kernel runs on the CPU engine, and what is below it on the GPU.
SELECT format('CREATE FOREIGN TABLE nested (id integer, v integer[]) SERVER kernels OPTIONS (path %L)', :'data' || '/edge_int4_array.parquet')
\gexec
SELECT * FROM ran('SELECT md5(g::text), count(*), ''Total: '' || sum(b), initcap(max(c)) FROM @ GROUP BY g');
SELECT * FROM ran('SELECT md5(c), count(*), min(a) FROM @ WHERE id % 3 = 0 GROUP BY 1');
SELECT * FROM ran('SELECT g, array_agg(a ORDER BY id) FROM @ WHERE a > 0 GROUP BY g');
SELECT * FROM ran('SELECT g, sum(a) FROM @ GROUP BY g HAVING initcap(max(c)) > ''A''');
SELECT * FROM ran('SELECT x.g, md5(x.c), y.n FROM (SELECT g, max(c) AS c FROM @ GROUP BY g) x JOIN (SELECT g, count(*) AS n FROM @ WHERE a > 1 GROUP BY g) y ON x.g = y.g AND initcap(x.c) <> y.n::text');
SELECT * FROM ran('WITH s AS MATERIALIZED (SELECT g, a, sum(b) AS n FROM @ GROUP BY g, a) SELECT md5(s.a::text), t.n FROM s JOIN s t ON s.g = t.g AND md5(s.n::text) > md5(t.n::text)');
SELECT * FROM ran('SELECT id, row_number() OVER (PARTITION BY md5(g::text) ORDER BY b, id) FROM @ WHERE a IS NOT NULL');
SELECT * FROM ran('SELECT md5(g::text) FROM @ WHERE a = 3 UNION ALL SELECT c FROM @ WHERE a = 2 UNION ALL SELECT initcap(c) FROM @');
SELECT * FROM ran('SELECT DISTINCT initcap(c) FROM (SELECT c FROM @ ORDER BY b LIMIT 50) q');
SELECT * FROM ran('SELECT g, count(*) FROM @ t WHERE EXISTS (SELECT FROM @ u WHERE u.g = t.g AND u.a > 3 AND initcap(u.c) <> initcap(t.c)) GROUP BY g');
SELECT * FROM ran('SELECT initcap(c), id FROM @ WHERE id < 0');
-- In the order of the part.
SELECT id, initcap(c) FROM files ORDER BY b DESC LIMIT 4;
SELECT md5(c), n FROM (SELECT c, count(*) AS n FROM files GROUP BY c ORDER BY c COLLATE "C" DESC NULLS LAST LIMIT 5) q;
-- Only as many rows as are wanted; a part that gives no column; what EXPLAIN says beforehand.
SELECT count(*) FROM (SELECT initcap(c) FROM files WHERE a > 0 LIMIT 3) q;
SELECT count(DISTINCT md5('x' || g)) FROM files WHERE a > 0;
CREATE FUNCTION runs_on(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; found text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN ' || query LOOP found := coalesce(found, substring(line FROM 'Runs On: (.*)')); END LOOP;
  RETURN found;
END $$;
SELECT runs_on('SELECT initcap(c) FROM files WHERE a > 0');
-- A scan whose rows would all be handed over is the CPU engine's, as are columns that the GPU can't read.
SELECT runs_on('SELECT initcap(c) FROM files');
SELECT runs_on('SELECT n.v, f.s FROM nested n JOIN (SELECT g, sum(a) AS s FROM files GROUP BY g) f ON f.g = n.id');
SELECT * FROM ran('SELECT n.v, f.s FROM nested n JOIN (SELECT g, sum(a) AS s FROM @ GROUP BY g) f ON f.g = n.id');
-- Errors below and above.
SELECT md5((1 / sum(a - a))::text) FROM files GROUP BY g;
SELECT g, initcap(c)::integer FROM files WHERE a > 0 ORDER BY id LIMIT 1;
-- Expected times decide, where they are asked.
SET pystachio.engine_choice = auto;
SET pystachio.device_overhead = 0;
SELECT runs_on('SELECT md5(g::text), sum(b), count(*) FROM files GROUP BY g');
RESET pystachio.device_overhead;
SET pystachio.engine_choice = gpu;

DROP SCHEMA gpu_kernels CASCADE;
DROP SERVER kernels;
