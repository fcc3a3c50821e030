--
-- Quotients of more digits than a decimal of an engine has: compared, and as keys of an order.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SET client_min_messages = warning;
CREATE VIEW pq.means AS SELECT a, avg(n) AS x, avg(m) AS y, sum(n) AS s FROM pq.t1 GROUP BY a;
CREATE VIEW heap.means AS SELECT a, avg(n) AS x, avg(m) AS y, sum(n) AS s FROM heap.t1 GROUP BY a;
-- Numbers that are far apart, and quotients that are next to a constant: rounding decides whether they are equal to it.
CREATE TABLE heap.apart AS SELECT id::integer, v::numeric(24,6) FROM unnest(ARRAY[0, 0.000001, -0.000001, 0.3, 3, -3, 7, 1000000, 999999.999999, 1000000.000001, -999999999999.999999, 999999999999999999.999999, 999999999999999999.999998, NULL]) WITH ORDINALITY AS x (v, id);
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf apart && mkdir -m 777 apart
\set file :scratch '/apart'
CREATE FOREIGN TABLE pq.apart (id integer, v numeric(24,6)) SERVER pystachio OPTIONS (path :'file', writable 'true');
INSERT INTO pq.apart SELECT id, v FROM heap.apart;
CREATE VIEW pq.pairs AS SELECT a.id AS i, b.id AS j, a.v / 3.000000 * 1.0000000000 AS x, b.v / 7.000000 * 1.0000000000 AS y, a.v * 1.000000000000 AS v, b.v * 1.000000000000 AS w FROM pq.apart a, pq.apart b;
CREATE VIEW heap.pairs AS SELECT a.id AS i, b.id AS j, a.v / 3.000000 * 1.0000000000 AS x, b.v / 7.000000 * 1.0000000000 AS y, a.v * 1.000000000000 AS v, b.v * 1.000000000000 AS w FROM heap.apart a, heap.apart b;
SET client_min_messages = notice;

SELECT * FROM pushed($$SELECT a FROM means WHERE CASE WHEN y > 0 THEN abs(x - y) / y ELSE NULL END > 0.1$$);
SELECT * FROM pushed($$SELECT i, j FROM pairs WHERE x / y > 2.5$$);
SELECT * FROM pushed($$SELECT p.i FROM pairs p JOIN pairs q ON p.i = q.j WHERE q.y <> 0 AND CASE WHEN p.y <> 0 THEN p.x / p.y END >= CASE WHEN q.y <> 0 THEN q.x / q.y END$$);
SELECT * FROM pushed($$SELECT i, j, x / y FROM pairs WHERE y <> 0 ORDER BY x / y DESC NULLS LAST, i, j LIMIT 5$$);
SELECT i, j, x / y FROM pairs WHERE y <> 0 ORDER BY x / y DESC NULLS LAST, i, j LIMIT 5;

-- Compared with constants, on either side.
SELECT same($$SELECT a FROM means WHERE CASE WHEN y > 0 THEN abs(x - y) / y ELSE NULL END > 0.1$$);
SELECT same($$SELECT a FROM means WHERE CASE y WHEN 0 THEN 0 ELSE x / y END <= 1$$);
SELECT same($$SELECT a FROM means WHERE 3 < -(x / NULLIF(y, 0))$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y > 0$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y < 0.0000000000000000000001$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y = 7.0 / 3$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y <> 2.3333333333333333$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y >= 2.3333310000023333$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y <= -2.3333333333333333$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y > 100000000000000000$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y > -1000000000000000000000$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND abs(x / y) < 1$$);
SELECT same($$SELECT i, j, x / NULLIF(y, 0) > 1 FROM pairs$$);
SELECT same($$SELECT count(*) FROM pairs WHERE x / y > 1$$);
-- The order of the parts of CASE, AND and OR brings errors out.
SELECT same($$SELECT i, j FROM pairs WHERE CASE WHEN x / y > 1 THEN 1 ELSE 2 END > 5$$);
SELECT same($$SELECT a FROM (SELECT a, sum(n) AS s, sum(m) - sum(m) AS zero FROM t1 GROUP BY a) g WHERE CASE WHEN s / zero > 1 THEN 1 ELSE 2 END > 5$$);
SELECT same($$SELECT i, j FROM pairs WHERE CASE WHEN y <> 0 AND x / y > 1 THEN 1 ELSE 2 END > 1$$);
SELECT same($$SELECT i, j FROM pairs WHERE (y <> 0 AND x / y > 1) OR i > 100$$);
SELECT same($$SELECT i, j FROM pairs WHERE x / y > 1 OR i > 0$$);
SELECT same($$SELECT i, j FROM pairs WHERE i > 0 OR x / y > 1$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND i = 5 AND j < 9 AND x / y BETWEEN -100 AND 0.5$$);
-- With others, and with numbers.
SELECT same($$SELECT p.i, p.j, q.i, q.j FROM pairs p, pairs q WHERE p.y <> 0 AND q.y <> 0 AND p.x / p.y > q.x / q.y AND p.j = q.i$$);
SELECT same($$SELECT p.i, p.j, q.i, q.j FROM pairs p, pairs q WHERE p.y <> 0 AND q.y <> 0 AND p.x / p.y = q.x / q.y$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND x / y <= x$$);
-- A quotient that is rounded to 1.
SELECT i, j, v / w FROM pairs WHERE w <> 0 AND v / w = 1 ORDER BY 1, 2;
SELECT same($$SELECT i, j, v / w = 1, v / w < 1, v / w > 0.99999999999999999999, v / w > 0.999999999999999999999 FROM pairs WHERE w <> 0$$);
SELECT same($$SELECT p.i, p.j, q.i, q.j, p.v / p.w > q.v / q.w, p.v / p.w = q.v / q.w FROM pairs p, pairs q WHERE p.w <> 0 AND q.w <> 0$$);
SELECT same($$SELECT i, j, rank() OVER (ORDER BY v / w) FROM pairs WHERE w <> 0$$);
SELECT same($$SELECT i, j FROM pairs WHERE y <> 0 AND i <> x / y$$);
SELECT same($$SELECT i, j, CASE WHEN y > 0 THEN x / y END < CASE WHEN x > 0 THEN y / x WHEN x = 0 THEN 1.5 END FROM pairs$$);
-- As keys of an order, and of a window.
SELECT same($$SELECT i, j, x / y, row_number() OVER (ORDER BY x / y, i, j) FROM pairs WHERE y <> 0$$);
SELECT same($$SELECT * FROM (SELECT i, j FROM pairs WHERE y <> 0 ORDER BY x / y, i DESC, j LIMIT 50) s$$);
SELECT same($$SELECT i, j, rank() OVER (PARTITION BY i ORDER BY CASE WHEN y <> 0 THEN x / y END DESC NULLS LAST) FROM pairs$$);
SELECT same($$SELECT DISTINCT ON (i) i, j FROM pairs WHERE y <> 0 ORDER BY i, x / y, j$$);
-- Sums of sums are bounded as sums are.
SELECT * FROM pushed($$SELECT sum(s) * 1.0000 / sum(x) FROM (SELECT a, sum(n) AS s, sum(m) AS x FROM t1 GROUP BY a) g$$);
SELECT same($$SELECT sum(s) * 1.0000 / sum(x), avg(s) FROM (SELECT a, sum(n) AS s, sum(m) AS x FROM t1 GROUP BY a) g$$);
SELECT same($$SELECT sum(g.s) * 1.0000 / sum(x) FROM (SELECT a, sum(n) AS s, sum(m) AS x FROM t1 GROUP BY a) g JOIN t2 ON g.a = t2.a$$);
-- What is shown stays with PostgreSQL.
SELECT * FROM pushed($$SELECT x / y FROM pairs WHERE y <> 0$$);
SELECT same($$SELECT x / y FROM pairs WHERE y <> 0$$);
SELECT same($$SELECT x / y, count(*) FROM pairs WHERE y <> 0 GROUP BY 1$$);
-- Buckets: with bounds that are constants, and not so far apart that PostgreSQL rounds up.
SELECT * FROM pushed($$SELECT width_bucket(n, 0, 100, 10), count(*) FROM t1 GROUP BY 1$$);
SELECT width_bucket(n, 0, 100, 10), count(*) FROM t1 GROUP BY 1 ORDER BY 1;
SELECT same($$SELECT id, n, width_bucket(n, 0, 100, 10), width_bucket(n, 100, 0.5, 7), width_bucket(m, -1.25, 1.2500, 3), width_bucket(n * m, 0, 0.3, 100000) FROM t1$$);
SELECT same($$SELECT width_bucket(v, lowest, 1, 10) FROM apart, (SELECT 0.25 AS lowest) b$$);
SELECT same($$SELECT i, j, width_bucket(v, -3, 7, 2147483646) FROM pairs$$);
SELECT same($$SELECT width_bucket(n, 5, 5.0, 10) FROM t1$$);
SELECT same($$SELECT width_bucket(n, 0, 10, 0) FROM t1$$);
SELECT * FROM pushed($$SELECT width_bucket(n, m, 100, 10) FROM t1$$);
SELECT * FROM pushed($$SELECT width_bucket(n, 0, 1e16, 10) FROM t1$$);
SELECT * FROM pushed($$SELECT width_bucket(f, 0, 100, 10) FROM t1$$);
DROP VIEW pq.means, heap.means, pq.pairs, heap.pairs;
