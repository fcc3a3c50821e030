--
-- Sums, averages and variances of floating-point numbers, which are rounded once; groups of such numbers; and keys that others determine.
--
SET client_min_messages = warning;
CREATE SCHEMA pushdown_floats;
SET search_path = pushdown_floats, public;
SET extra_float_digits = 3;
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\! mkdir -p "$PYSTACHIO_REGRESS_SCRATCH/floats" && chmod 777 "$PYSTACHIO_REGRESS_SCRATCH/floats"
-- Values whose sums are not floats (f, s), values whose sums are (q), and values that decide alone (x).
CREATE TABLE heap AS
SELECT n AS id, n % 5 AS g, CASE WHEN n % 11 > 0 THEN sin(n) * 10 ^ (n % 9) END AS f, (cos(n) * 100)::real AS s, n % 40 / 4.0::float8 AS q,
       CASE n % 6 WHEN 0 THEN '-0' WHEN 1 THEN 'NaN' WHEN 2 THEN '-Infinity' WHEN 3 THEN 'Infinity' WHEN 4 THEN '0' ELSE '5e-324' END::float8 AS x,
       (n % 100)::smallint AS w, (n * 37 % 1000)::integer AS i, (n * 7 % 2000 / 8.0)::numeric(9,3) AS m, date '2024-01-01' + n % 900 AS day
FROM generate_series(1, 5000) n;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM pushdown_floats.heap WHERE id % 3 > 0', :'scratch' || '/floats/a.parquet', overwrite => true);
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM pushdown_floats.heap WHERE id % 3 = 0', :'scratch' || '/floats/b.parquet', overwrite => true);
SELECT format('CREATE FOREIGN TABLE t (id integer, g integer, f float8, s real, q float8, x float8, w smallint, i integer, m numeric(9,3), day date) SERVER pystachio OPTIONS (path %L)', :'scratch' || '/floats/*.parquet')
\gexec
ANALYZE heap;
ANALYZE t;
-- Whether a query is one scan, and how many rows differ from those over the heap table.
CREATE FUNCTION compared(query text, OUT pushed boolean, OUT differing bigint) LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE format('EXPLAIN (FORMAT JSON) %s', query) INTO plan;
  pushed := plan->0->'Plan'->>'Node Type' = 'Foreign Scan';
  EXECUTE format('WITH ours AS MATERIALIZED (SELECT q::text FROM (%s) q), heap AS MATERIALIZED (SELECT q::text FROM (%s) q)
    SELECT count(*) FROM ((TABLE ours EXCEPT ALL TABLE heap) UNION ALL (TABLE heap EXCEPT ALL TABLE ours)) d', query, regexp_replace(query, '\mt\M', 'heap', 'g')) INTO differing;
END $$;

EXPLAIN (VERBOSE, COSTS OFF) SELECT g, sum(f), avg(s), stddev(f), var_pop(f) FROM t GROUP BY g;
-- The exact sum as a whole number of 2^-70, which numeric has, and the nearest float to that.
CREATE FUNCTION units(f float8) RETURNS numeric LANGUAGE sql AS $$
  SELECT CASE WHEN bits < 0 THEN -1 ELSE 1 END * ((bits & ((1::bigint << 52) - 1)) + (1::bigint << 52))::numeric * (1::bigint << (((bits >> 52) & 2047) - 1005)::int)
  FROM (SELECT ('x' || encode(float8send(f), 'hex'))::bit(64)::bigint AS bits) b WHERE f <> 0
  UNION ALL SELECT 0 WHERE f = 0 $$;
SELECT ours.g, total = wanted AS sum, mean = wanted / n AS avg FROM (SELECT g, sum(f) AS total, avg(f) AS mean FROM t GROUP BY g) ours
  JOIN (SELECT g, sum(units(f))::float8 / 2 ^ 70 AS wanted, count(f) AS n FROM heap GROUP BY g) exact USING (g) ORDER BY g;
SELECT sum(f) = (SELECT sum(units(f))::float8 / 2 ^ 70 FROM heap) AS sum, sum(s) = (SELECT (sum(units(s::float8))::float8 / 2 ^ 70)::real FROM heap) AS single FROM t;
-- What no order of rows changes is as over heap tables.
SELECT compared('SELECT g, sum(q), avg(q), count(q), sum(q) FILTER (WHERE id < 100) FROM t GROUP BY g');
SELECT compared('SELECT sum(q), avg(q), sum(q::real), avg(q::real) FROM t WHERE id < 0');
SELECT compared('SELECT sum(q), avg(q), stddev(q), variance(q), var_pop(q) FROM t WHERE id = 7');
SELECT compared('SELECT sum(x), avg(x), var_pop(x) FROM t WHERE id % 6 = ' || n) FROM generate_series(0, 5) n;
SELECT compared('SELECT sum(x), avg(x) FROM t WHERE id % 6 IN (0, 4)');
SELECT compared('SELECT sum(x), avg(x), stddev(x) FROM t WHERE id % 6 IN (2, 3)');
SELECT compared('SELECT sum(x), avg(x), stddev(x) FROM t WHERE id % 6 IN (3, 5)');
SELECT compared('SELECT g, sum(x), avg(x) FROM t GROUP BY g');
SELECT compared('SELECT g, w, sum(q) AS s FROM t GROUP BY ROLLUP (g, w) HAVING sum(q) > 3');
SELECT compared('SELECT id, q / sum(q) OVER (PARTITION BY g), avg(q) OVER (), sum(q::real) OVER (PARTITION BY w) FROM t');
SELECT stddev(w::float8), var_samp(w::real), var_pop(w::float8), stddev_pop(i::float8) FROM t;
SELECT sum(v), avg(v) FROM (SELECT 1e16::float8 AS v FROM t WHERE id = 1 UNION ALL SELECT 1::float8 FROM t WHERE id <= 3 UNION ALL SELECT -1e16::float8 FROM t WHERE id = 2) c;
SELECT sum(q * 1e308) FROM t;
SELECT sum((q * 1e37)::real) FROM t;
SELECT sum(CASE WHEN id <= 2 THEN 1.5e308::float8 WHEN id = 3 THEN -1.5e308::float8 END) FROM t;
-- Aggregates of pairs: of two pairs PostgreSQL's are exact too.
\set pairs 'count(*), corr(a, b), covar_pop(a, b), covar_samp(a, b), regr_count(a, b), regr_avgx(a, b), regr_avgy(a, b), regr_sxx(a, b), regr_syy(a, b), regr_sxy(a, b), regr_r2(a, b), regr_slope(a, b), regr_intercept(a, b)'
EXPLAIN (VERBOSE, COSTS OFF) SELECT g, corr(f, q), regr_intercept(f, w) FROM t GROUP BY g;
SELECT compared('SELECT h, ' || :'pairs' || ' FROM (SELECT id / 2 AS h, q AS a, w AS b FROM t) p GROUP BY h');
SELECT compared('SELECT h, ' || :'pairs' || ' FROM (SELECT id / 4 AS h, CASE WHEN id % 4 <> 1 THEN q END AS a, CASE WHEN id % 4 <> 2 THEN w::real END AS b FROM t) p GROUP BY h');
SELECT compared('SELECT ' || :'pairs' || ' FROM (SELECT q AS a, q AS b FROM t WHERE id < 0) p');
SELECT compared('SELECT h, ' || :'pairs' || ' FROM (SELECT id % 6 AS h, x AS a, 1.5 AS b FROM t WHERE id % 6 <> 5) p GROUP BY h');
SELECT compared('SELECT h, ' || :'pairs' || ' FROM (SELECT id % 6 AS h, 2::float8 AS a, x AS b FROM t WHERE id % 6 <> 5) p GROUP BY h');
SELECT compared('SELECT h, corr(a, b) FILTER (WHERE b > 3), regr_count(DISTINCT a, b) FROM (SELECT id / 2 AS h, q AS a, w AS b FROM t) p GROUP BY h');
SELECT compared('SELECT id, covar_pop(q, w) OVER (PARTITION BY id / 2), corr(q, w) OVER (PARTITION BY id / 2) FROM t');
SELECT abs(t.a - h.a) < 1e-9 AS corr, abs(t.b / h.b - 1) < 1e-9 AS slope, abs(t.c / h.c - 1) < 1e-9 AS intercept, abs(t.d / h.d - 1) < 1e-9 AS covariance, t.n = h.n AS count
  FROM (SELECT g, corr(f, q) AS a, regr_slope(f, s) AS b, regr_intercept(f, w) AS c, covar_samp(f, q) AS d, regr_count(f, q) AS n FROM t GROUP BY g) t
  JOIN (SELECT g, corr(f, q) AS a, regr_slope(f, s) AS b, regr_intercept(f, w) AS c, covar_samp(f, q) AS d, regr_count(f, q) AS n FROM heap GROUP BY g) h USING (g) ORDER BY g;
SELECT corr(1e160 * q, 1e160 * w) FROM t;
-- Sums in an order stay in PostgreSQL, and all with the setting off.
CREATE FUNCTION refused(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
    IF line ~ 'floating-point' THEN RETURN NEXT trim(line); END IF;
  END LOOP;
END $$;
SELECT refused('SELECT sum(f ORDER BY id) FROM t');
SELECT refused('SELECT sum(DISTINCT f) FROM t');
SELECT refused('SELECT sum(f) OVER (ORDER BY id) FROM t');
SELECT refused('SELECT corr(f, q ORDER BY id) FROM t');
SELECT refused('SELECT regr_slope(f, q) OVER (ORDER BY id) FROM t');
SELECT refused('SELECT avg(f) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM t');
SELECT refused('SELECT avg(f) OVER (PARTITION BY g ROWS 3 PRECEDING) FROM t');
SET pystachio.exact_float_sums = off;
EXPLAIN (VERBOSE, COSTS OFF) SELECT sum(f) FROM t;
RESET pystachio.exact_float_sums;

-- Groups and different values.
EXPLAIN (COSTS OFF) SELECT q, count(*) FROM t GROUP BY q;
SELECT compared('SELECT q, count(*), sum(i) FROM t GROUP BY q');
SELECT compared('SELECT DISTINCT q, w FROM t');
SELECT compared('SELECT count(DISTINCT q), count(DISTINCT s) FROM t');
SELECT abs(x) AS x, count(*) FROM t GROUP BY x ORDER BY 1, 2;
SELECT compared('SELECT s, q, max(id) FROM t GROUP BY s, q');

-- A key that others determine is computed for each group.
EXPLAIN (COSTS OFF) SELECT day, extract(year FROM day), count(*) FROM t GROUP BY 1, 2;
SELECT compared('SELECT day, extract(year FROM day), w, w + 1, day + w, count(*) FROM t GROUP BY 1, 2, 3, 4, day + w, day - 7');
SELECT compared('SELECT DISTINCT day, extract(month FROM day) AS m, day + 1 AS d FROM t');
SELECT compared('SELECT w, w + 1 AS n, sum(i) FROM t GROUP BY w, w + 1 HAVING w + 1 > 50');
EXPLAIN (COSTS OFF) SELECT q, 1 / (q + 1), count(*) FROM t GROUP BY 1, 2;
EXPLAIN (COSTS OFF) SELECT w + 1, w + 2, count(*) FROM t GROUP BY 1, 2;
SELECT 100 / w AS r, w, count(*) FROM t WHERE w < 2 GROUP BY 1, 2;

-- So is a constant beside other keys. Alone it makes no group of no rows.
EXPLAIN (COSTS OFF) SELECT 1 AS one, g, 'x' AS word, count(*) FROM t GROUP BY one, g, word;
SELECT compared('SELECT 1 AS one, g, ''x'' AS word, 2.50 AS price, count(*) FROM t GROUP BY one, g, word, price');
SELECT compared('SELECT NULL::integer AS nothing, w, sum(i) FROM t GROUP BY nothing, w HAVING count(*) > 1');
SELECT compared('SELECT DISTINCT 1 AS one, g FROM t');
SELECT count(*) FROM (SELECT 1 AS one, 2 AS two, sum(i) FROM t WHERE id < 0 GROUP BY one, two) groups;

-- The sum of a value and a constant is a sum and a count.
EXPLAIN (COSTS OFF) SELECT sum(w), sum(w + 1), sum(w - 2), sum(3 + w), avg(w + 4) FROM t;
SELECT compared('SELECT g, sum(w), sum(w + 1), sum(w - 2), sum(3 + w), avg(w + 4), sum(w::bigint + 5), avg(w::bigint - 6) FROM t GROUP BY g');
SELECT compared('SELECT g, sum(m + 1), sum(m + 0.5), sum(m - 0.1234), avg(m + 1.50), sum(2.25 + m) FILTER (WHERE i > 500), sum(i + 1) FILTER (WHERE i > 5000) FROM t GROUP BY g');
SELECT compared('SELECT sum(DISTINCT w + 1), sum(w + 1) FROM t');
SELECT compared('SELECT sum(nullif(w, 3) + 1), avg(nullif(m, 1) - 2) FROM t WHERE id < 0 OR id % 4 = 1');
EXPLAIN (COSTS OFF) SELECT sum(i + 2000000000) FROM t;
SELECT sum(i + 2147483000) FROM t;
DROP SCHEMA pushdown_floats CASCADE;
