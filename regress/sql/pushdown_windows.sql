--
-- Window functions, DISTINCT ON and WITH TIES.
--
SET client_min_messages = warning;
CREATE SCHEMA pushdown_windows;
SET search_path = pushdown_windows, public;
SET TimeZone = 'Europe/Berlin';
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\! mkdir -p "$PYSTACHIO_REGRESS_SCRATCH/windows" && chmod 777 "$PYSTACHIO_REGRESS_SCRATCH/windows"
CREATE TABLE heap AS
SELECT n AS k, n % 7 AS a, NULLIF(n % 5, 3) AS b, (n * 37 % 101)::bigint * 90000000000000000 AS big,
       NULLIF(n * 13 % 17, 4)::smallint AS s, (n * 7 % 23 - 11)::numeric(9,2) / 4 AS d,
       NULLIF((n * 11 % 19)::numeric(4,1), 5.0)::numeric(4,1) AS e,
       CASE n % 6 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' WHEN 2 THEN '0' WHEN 3 THEN 'Infinity' ELSE (n % 9 / 2.0)::text END::float8 AS f,
       CASE WHEN n % 11 > 0 THEN chr(97 + n * 5 % 26) || (n % 4) END COLLATE "C" AS t, n % 3 = 0 AS x,
       date '2024-01-31' + n % 60 AS day, timestamp '2024-03-30 12:00' + (n % 50) * interval '7 hours' AS at,
       timestamptz '2024-03-30 12:00' + (n % 50) * interval '7 hours' AS tz
FROM generate_series(1, 400) n;
ALTER TABLE heap ALTER d TYPE numeric(9,2);
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM pushdown_windows.heap WHERE k % 4 > 0', :'scratch' || '/windows/part1.parquet', overwrite => true);
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM pushdown_windows.heap WHERE k % 4 = 0', :'scratch' || '/windows/part2.parquet', overwrite => true);
SELECT set_config('test.windows', :'scratch' || '/windows', false) IS NOT NULL AS set;
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE t (k integer, a integer, b integer, big bigint, s smallint, d numeric(9,2), e numeric(4,1), f float8, t text COLLATE "C", x boolean, day date, at timestamp, tz timestamptz) SERVER pystachio OPTIONS (path %L)', current_setting('test.windows') || '/part*.parquet'); END $$;
ANALYZE t;
ANALYZE heap;
-- Whether a query is one scan, and how many rows differ from those over the heap table.
CREATE FUNCTION compared(query text, OUT pushed boolean, OUT differing bigint) LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
  pushed := plan->0->'Plan'->>'Node Type' = 'Foreign Scan';
  EXECUTE format('SELECT count(*) FROM ((SELECT q::text FROM (%1$s) q EXCEPT ALL SELECT q::text FROM (%2$s) q) UNION ALL (SELECT q::text FROM (%2$s) q EXCEPT ALL SELECT q::text FROM (%1$s) q)) d',
                 query, regexp_replace(query, ' FROM t(_many)?\M', ' FROM heap\1', 'g')) INTO differing;
END $$;

EXPLAIN (COSTS OFF) SELECT k, rank() OVER w, sum(s) OVER (PARTITION BY a), avg(d) OVER (w ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) FROM t WINDOW w AS (PARTITION BY a ORDER BY b DESC, k);

-- Numbers.
CREATE TABLE numbers (id serial, select_list text);
INSERT INTO numbers (select_list) VALUES
  ('row_number() OVER (PARTITION BY a ORDER BY k)'),
  ('row_number() OVER (ORDER BY k DESC)'),
  ('rank() OVER (PARTITION BY a ORDER BY b), dense_rank() OVER (PARTITION BY a ORDER BY b)'),
  ('rank() OVER (ORDER BY b DESC NULLS LAST, x), dense_rank() OVER (ORDER BY e NULLS FIRST)'),
  ('percent_rank() OVER (PARTITION BY b ORDER BY e), cume_dist() OVER (PARTITION BY b ORDER BY e)'),
  ('percent_rank() OVER (PARTITION BY k), cume_dist() OVER (PARTITION BY k ORDER BY a)'),
  ('rank() OVER (), count(*) OVER (), dense_rank() OVER (PARTITION BY x)'),
  ('rank() OVER (ORDER BY f), dense_rank() OVER (PARTITION BY f ORDER BY b)'),
  ('rank() OVER (PARTITION BY t ORDER BY day), rank() OVER (PARTITION BY x ORDER BY t)'),
  ('ntile(3) OVER (PARTITION BY a ORDER BY k), ntile(90) OVER (PARTITION BY a ORDER BY k), ntile(1) OVER (ORDER BY k)');
SELECT n.id, c.* FROM numbers n, compared('SELECT k, ' || select_list || ' FROM t') c ORDER BY n.id;

-- Values of other rows.
CREATE TABLE lookups (id serial, select_list text);
INSERT INTO lookups (select_list) VALUES
  ('lag(t) OVER w, lead(t) OVER w, lag(d, 3) OVER w, lead(e, 0) OVER w, lag(x, -2) OVER w'),
  ('lag(k, 1, 0) OVER w, lead(d, 2, -1.500) OVER w, lag(t, 1, ''none'') OVER w, lead(day, 5, day) OVER w'),
  ('lag(d, 1, 0) OVER w, lag(d, 1, NULL) OVER w, lag(k, 1, s::int) OVER w'),
  ('first_value(t) OVER w, last_value(t) OVER w, nth_value(d, 4) OVER w'),
  ('first_value(b) OVER (w ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING), last_value(e) OVER (w ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)'),
  ('nth_value(k, 2) OVER (w ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW), first_value(k) OVER (w ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)'),
  ('last_value(k) OVER (PARTITION BY a ORDER BY k GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP), last_value(f) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)'),
  ('lag(CASE WHEN x THEN d ELSE 0 END) OVER w, first_value(CASE WHEN x THEN d ELSE 0 END) OVER (w ROWS 2 PRECEDING)');
SELECT n.id, c.* FROM lookups n, compared('SELECT k, ' || select_list || ' FROM t WINDOW w AS (PARTITION BY a ORDER BY b, k)') c ORDER BY n.id;

-- Aggregates of frames of every kind.
CREATE TABLE frames (id serial, frame text);
INSERT INTO frames (frame) VALUES
  (''), ('PARTITION BY a'), ('ORDER BY b'), ('PARTITION BY a ORDER BY b DESC'), ('PARTITION BY a ORDER BY k'),
  ('PARTITION BY a ORDER BY k ROWS UNBOUNDED PRECEDING'),
  ('PARTITION BY a ORDER BY k ROWS BETWEEN 2 PRECEDING AND CURRENT ROW'),
  ('PARTITION BY a ORDER BY k ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING'),
  ('PARTITION BY a ORDER BY k ROWS BETWEEN 2 FOLLOWING AND 4 FOLLOWING'),
  ('PARTITION BY a ORDER BY k ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING'),
  ('PARTITION BY a ORDER BY k ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING'),
  ('PARTITION BY a ORDER BY k ROWS BETWEEN 3 PRECEDING AND 3 FOLLOWING EXCLUDE CURRENT ROW'),
  ('ORDER BY k ROWS BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 FOLLOWING'),
  ('PARTITION BY x ORDER BY b GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING'),
  ('PARTITION BY x ORDER BY b GROUPS BETWEEN 2 FOLLOWING AND 3 FOLLOWING'),
  ('PARTITION BY x ORDER BY b GROUPS BETWEEN 3 PRECEDING AND 2 PRECEDING'),
  ('PARTITION BY x ORDER BY b GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING EXCLUDE GROUP'),
  ('PARTITION BY x ORDER BY b RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE TIES'),
  ('PARTITION BY x ORDER BY b RANGE UNBOUNDED PRECEDING EXCLUDE GROUP'), ('PARTITION BY x ORDER BY b ROWS BETWEEN 5 PRECEDING AND 5 FOLLOWING EXCLUDE TIES'),
  ('PARTITION BY x ORDER BY s RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING'),
  ('PARTITION BY x ORDER BY s DESC RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING'),
  ('PARTITION BY x ORDER BY s DESC NULLS FIRST RANGE BETWEEN 3 FOLLOWING AND 5 FOLLOWING'),
  ('PARTITION BY x ORDER BY s NULLS FIRST RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING'),
  ('ORDER BY e RANGE BETWEEN 1.25 PRECEDING AND 0.5 FOLLOWING EXCLUDE TIES'),
  ('ORDER BY big RANGE BETWEEN 9000000000000000000 PRECEDING AND 9000000000000000000 FOLLOWING'),
  ('ORDER BY day RANGE BETWEEN ''1 month'' PRECEDING AND ''1 day'' PRECEDING'),
  ('ORDER BY day DESC RANGE BETWEEN ''12 hours'' PRECEDING AND ''2 days'' FOLLOWING'),
  ('ORDER BY at RANGE BETWEEN ''1 day 3 hours'' PRECEDING AND CURRENT ROW'),
  ('ORDER BY tz RANGE BETWEEN ''1 day'' PRECEDING AND ''1 day'' FOLLOWING'),
  ('ORDER BY tz DESC RANGE BETWEEN CURRENT ROW AND ''1 month 1 day'' FOLLOWING');
SELECT f.id, c.* FROM frames f, compared(format(
  'SELECT k, count(*) OVER (%1$s), count(b) OVER (%1$s), sum(s) OVER (%1$s), sum(big) OVER (%1$s), avg(d) OVER (%1$s), min(t) OVER (%1$s), max(f + 0) OVER (%1$s), min(f + 0) OVER (%1$s), max(day) OVER (%1$s), bool_and(x) OVER (%1$s), bool_or(x) OVER (%1$s), stddev(e) OVER (%1$s), sum(d) FILTER (WHERE x) OVER (%1$s), count(*) FILTER (WHERE b = 1) OVER (%1$s), sum(CASE WHEN x THEN d ELSE 0 END) OVER (%1$s) FROM t', frame)) c
WHERE frame LIKE '%ORDER BY k%' OR frame NOT LIKE '%ROWS%' ORDER BY f.id;
-- Of 0 and -0, which are equal, the last is shown.
SELECT f.id, c.* FROM frames f, compared(format('SELECT k, min(f) OVER (%1$s), max(f) OVER (%1$s) FROM t', frame)) c WHERE frame LIKE '%ORDER BY k%' ORDER BY f.id;
-- Rows of one peer group come in any order: what is the same for all of them.
SELECT f.id, c.* FROM frames f, compared(format('SELECT b, count(*) OVER (%1$s), count(b) OVER (%1$s) FROM t', frame)) c WHERE frame LIKE '%EXCLUDE TIES%' ORDER BY f.id;

-- Partitions of many batches, and many in a batch.
CREATE TABLE heap_many AS SELECT n AS k, n % 2 AS few, n / 3 AS many, n * 7919 % 30011 AS v, CASE WHEN n % 5 > 0 THEN 'x' || n % 97 END COLLATE "C" AS t FROM generate_series(1, 30000) n;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM pushdown_windows.heap_many', :'scratch' || '/windows/many.parquet', row_group_rows => 1024, overwrite => true);
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE t_many (k integer, few integer, many integer, v integer, t text COLLATE "C") SERVER pystachio OPTIONS (path %L)', current_setting('test.windows') || '/many.parquet'); END $$;
ANALYZE t_many;
ANALYZE heap_many;
CREATE TABLE over_many (id serial, query text);
INSERT INTO over_many (query) VALUES
  ('SELECT k, row_number() OVER (PARTITION BY few ORDER BY v), sum(v) OVER (PARTITION BY few ORDER BY v ROWS 9000 PRECEDING), lag(t, 8200) OVER (PARTITION BY few ORDER BY v) FROM t_many'),
  ('SELECT k, row_number() OVER (PARTITION BY many ORDER BY v), sum(v) OVER (PARTITION BY many), max(t) OVER (PARTITION BY many ORDER BY v ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) FROM t_many'),
  ('SELECT k, dense_rank() OVER (ORDER BY t, v), min(t) OVER (ORDER BY v ROWS BETWEEN 40 PRECEDING AND 40 FOLLOWING EXCLUDE CURRENT ROW), count(t) OVER (ORDER BY v RANGE BETWEEN 100 PRECEDING AND 500 FOLLOWING) FROM t_many'),
  ('SELECT * FROM (SELECT k, few, row_number() OVER (PARTITION BY few ORDER BY v DESC) AS r FROM t_many) q WHERE r <= 3'),
  ('SELECT * FROM (SELECT k, few, rank() OVER (PARTITION BY few ORDER BY t DESC) AS r FROM t_many) q WHERE r <= 3'),
  ('SELECT * FROM (SELECT k, t, rank() OVER (PARTITION BY t ORDER BY v % 10) AS r, row_number() OVER (PARTITION BY t ORDER BY v % 10) < 0 AS n FROM t_many) q WHERE r <= 2'),
  ('SELECT DISTINCT ON (t) t, k FROM t_many ORDER BY t, v'),
  ('SELECT DISTINCT ON (many) many, k, t FROM t_many ORDER BY many, v DESC');
SELECT o.id, c.* FROM over_many o, compared(query) c ORDER BY o.id;

-- Above groups, joins and each other; below conditions, groups, orders and limits.
CREATE TABLE shapes (id serial, query text);
INSERT INTO shapes (query) VALUES
  ('SELECT a, sum(k), rank() OVER (ORDER BY sum(k) DESC), sum(sum(k)) OVER (), sum(k) * 100.0 / sum(sum(k)) OVER () FROM t GROUP BY a'),
  ('SELECT a, b, count(*), row_number() OVER (PARTITION BY a ORDER BY count(*) DESC, b) FROM t GROUP BY a, b HAVING count(*) > 3'),
  ('SELECT * FROM (SELECT k, a, row_number() OVER (PARTITION BY a ORDER BY d DESC, k) AS r FROM t) q WHERE r <= 3'),
  ('SELECT * FROM (SELECT k, a, rank() OVER (PARTITION BY a ORDER BY d DESC) AS r, dense_rank() OVER (PARTITION BY a ORDER BY d) AS s FROM t) q WHERE r <= 3 AND s < 6'),
  ('SELECT * FROM (SELECT k, a, row_number() OVER (PARTITION BY a ORDER BY k) AS r FROM t) q WHERE r = 2'),
  ('SELECT * FROM (SELECT k, count(*) OVER (ORDER BY k) AS r FROM t) q WHERE 5 >= r'),
  ('SELECT * FROM (SELECT k, a, row_number() OVER (PARTITION BY a ORDER BY k) AS r FROM t) q WHERE a = 3 AND r < 1'),
  ('SELECT a, max(r) FROM (SELECT a, row_number() OVER (PARTITION BY a, b ORDER BY k) AS r FROM t) q GROUP BY a'),
  ('SELECT DISTINCT a, first_value(k) OVER (PARTITION BY a ORDER BY k DESC) FROM t'),
  ('SELECT k, r FROM (SELECT k, row_number() OVER (ORDER BY k) AS r FROM t) q JOIN (SELECT a FROM t WHERE b = 0 GROUP BY a) p ON p.a = q.r'),
  ('SELECT x.k, y.r FROM (SELECT k, lag(k) OVER (ORDER BY k) AS r FROM t) x LEFT JOIN (SELECT k, lead(k) OVER (ORDER BY k) AS r FROM t) y ON x.r = y.k'),
  ('SELECT k, row_number() OVER (PARTITION BY a % 2, b + 1 ORDER BY k * -1) FROM t WHERE d > 0'),
  ('SELECT k, CASE WHEN row_number() OVER (ORDER BY k) % 2 = 0 THEN lag(t) OVER (ORDER BY k) ELSE t END FROM t'),
  ('SELECT k, r + 1, lag(r) OVER (ORDER BY k) FROM (SELECT k, rank() OVER (PARTITION BY a ORDER BY b) AS r FROM t) q'),
  ('SELECT k, sum(d) OVER (ORDER BY k) FROM t ORDER BY k LIMIT 7 OFFSET 3'),
  ('SELECT DISTINCT ON (a) a, b, k FROM t ORDER BY a, b DESC NULLS LAST, k'),
  ('SELECT DISTINCT ON (b, x) b, x, t, k FROM t ORDER BY b, x DESC, k DESC'),
  ('SELECT DISTINCT ON (a % 3) a % 3, sum(k) FROM t GROUP BY a ORDER BY a % 3, sum(k) DESC'),
  ('SELECT DISTINCT ON (a) a, rank() OVER (ORDER BY b, k) AS r FROM t ORDER BY a, r'),
  ('SELECT a, k FROM (SELECT DISTINCT ON (a) a, k FROM t ORDER BY a, k DESC) q WHERE k > 395'),
  ('SELECT b, count(*) FROM (SELECT b FROM t ORDER BY b FETCH FIRST 3 ROWS WITH TIES) q GROUP BY b'),
  ('SELECT a, count(*) FROM (SELECT a FROM t ORDER BY a DESC OFFSET 10 FETCH FIRST 60 ROWS WITH TIES) q GROUP BY a'),
  ('SELECT k FROM t ORDER BY a FETCH FIRST 0 ROWS WITH TIES'),
  ('SELECT k FROM t WHERE k < 0 ORDER BY a FETCH FIRST 2 ROWS WITH TIES');
SELECT s.id, c.* FROM shapes s, compared(query) c ORDER BY s.id;
SELECT DISTINCT ON (a) a, b, k FROM t ORDER BY a, b DESC NULLS LAST, k;
SELECT * FROM (SELECT k, a, row_number() OVER (PARTITION BY a ORDER BY k) AS r FROM t) q WHERE r <= 2 ORDER BY a, r;
EXPLAIN (COSTS OFF) SELECT * FROM (SELECT k, a, row_number() OVER (PARTITION BY a ORDER BY k) AS r FROM t) q WHERE r <= 2;
EXPLAIN (COSTS OFF) SELECT DISTINCT ON (a) a, k FROM t ORDER BY a, k DESC;
CREATE FUNCTION actual(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    IF line ~ 'actual=' AND line !~ 'Window' THEN RETURN NEXT line; END IF;
  END LOOP;
END $$;
SELECT actual('SELECT count(*) FROM (SELECT row_number() OVER (PARTITION BY a ORDER BY k) AS r FROM t) q WHERE r <= 2');

-- Parameters.
PREPARE first_of(int) AS SELECT * FROM (SELECT a, k, row_number() OVER (PARTITION BY a ORDER BY k) AS r FROM t) q WHERE r <= $1 AND a < 2 ORDER BY a, k;
EXECUTE first_of(2);
SET plan_cache_mode = force_generic_plan;
EXECUTE first_of(1);
RESET plan_cache_mode;

-- Errors are PostgreSQL's.
SELECT sum(k) OVER (ORDER BY k ROWS -1 PRECEDING) FROM t;
SELECT sum(k) OVER (ORDER BY k ROWS NULL PRECEDING) FROM t;
SELECT ntile(0) OVER (ORDER BY k) FROM t;
SELECT nth_value(k, 0) OVER (ORDER BY k) FROM t;
SELECT sum(k) OVER (ORDER BY day RANGE '-1 day' PRECEDING) FROM t;
SELECT sum(big * 100) OVER (ORDER BY k) FROM t;
SELECT max(r) FROM (SELECT sum(k / (a - 9)) OVER (ORDER BY k) AS r FROM t) q;
SELECT sum(k / a) OVER (ORDER BY k) FROM t;

-- What stays in PostgreSQL says why.
CREATE FUNCTION refused(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
    IF line ~ 'Not pushed down' OR line ~ 'window' THEN RETURN NEXT trim(line); END IF;
  END LOOP;
END $$;
SELECT refused('SELECT sum(f) OVER (ORDER BY k) FROM t');
SELECT refused('SELECT lag(k, a) OVER (ORDER BY k) FROM t');
SELECT refused('SELECT sum(k) OVER (ORDER BY f RANGE 1.5 PRECEDING) FROM t');
SELECT refused('SELECT lag(k / a) OVER (ORDER BY k) FROM t');
SELECT refused('SELECT array_agg(k) OVER (ORDER BY k) FROM t');

-- A device runs all of them.
CREATE SCHEMA windows_on_device;
SET search_path = windows_on_device, pushdown_windows, public;
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE t (k integer, a integer, b integer, big bigint, s smallint, d numeric(9,2), e numeric(4,1), f float8, t text COLLATE "C", x boolean, day date, at timestamp, tz timestamptz) SERVER on_device OPTIONS (path %L)', current_setting('test.windows') || '/part*.parquet'); END $$;
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE t_many (k integer, few integer, many integer, v integer, t text COLLATE "C") SERVER on_device OPTIONS (path %L)', current_setting('test.windows') || '/many.parquet'); END $$;
ANALYZE t;
ANALYZE t_many;
SET pystachio.engine_choice = gpu;
\i :abs_srcdir/include/analyzed.sql
SELECT place, count(*) FROM numbers, ran_on('SELECT k, ' || select_list || ' FROM t') place GROUP BY place;
SELECT place, count(*) FROM lookups, ran_on('SELECT k, ' || select_list || ' FROM t WINDOW w AS (PARTITION BY a ORDER BY b, k)') place GROUP BY place;
SELECT place, count(*) FROM frames, ran_on(format('SELECT k, count(b) OVER (%1$s), sum(big) OVER (%1$s), avg(d) OVER (%1$s), min(t) OVER (%1$s), max(f) OVER (%1$s), bool_or(x) OVER (%1$s), stddev(e) OVER (%1$s), count(*) FILTER (WHERE b = 1) OVER (%1$s) FROM t', frame)) place GROUP BY place;
SELECT place, count(*) FROM shapes, ran_on(query) place GROUP BY place;
SELECT place, count(*) FROM over_many, ran_on(query) place GROUP BY place;
SELECT o.id, c.* FROM over_many o, compared(query) c ORDER BY o.id;
SELECT f.id, c.* FROM frames f, compared(format('SELECT k, count(b) OVER (%1$s), sum(big) OVER (%1$s), min(t) OVER (%1$s), max(f + 0) OVER (%1$s) FROM t', frame)) c
WHERE frame LIKE '%RANGE%' OR frame LIKE '%ORDER BY k%' ORDER BY f.id;
RESET pystachio.engine_choice;

DROP SCHEMA windows_on_device CASCADE;
DROP SCHEMA pushdown_windows CASCADE;
DROP SERVER on_device;
