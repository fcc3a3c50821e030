--
-- Common table expressions that are read several times, or MATERIALIZED.
--
SET client_min_messages = warning;
CREATE SCHEMA pushdown_cte;
SET search_path = pushdown_cte, public;
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\! mkdir -p "$PYSTACHIO_REGRESS_SCRATCH/cte" && chmod 777 "$PYSTACHIO_REGRESS_SCRATCH/cte"
CREATE TABLE heap AS SELECT n AS k, n % 7 AS a, NULLIF(n % 5, 3) AS b, n % 3 AS c FROM generate_series(1, 1000) n;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM pushdown_cte.heap', :'scratch' || '/cte/t.parquet', overwrite => true);
SELECT set_config('test.cte', :'scratch' || '/cte', false) IS NOT NULL AS set;
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE t (k integer, a integer, b integer, c integer) SERVER pystachio OPTIONS (path %L)', current_setting('test.cte') || '/t.parquet'); END $$;
ANALYZE t;
ANALYZE heap;
-- The plan and how many rows differ from those over the heap table.
CREATE FUNCTION differing(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE result bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM ((SELECT q::text FROM (%1$s) q EXCEPT ALL SELECT q::text FROM (%2$s) q) UNION ALL (SELECT q::text FROM (%2$s) q EXCEPT ALL SELECT q::text FROM (%1$s) q)) d',
                 query, replace(query, ' FROM t', ' FROM heap')) INTO result;
  RETURN result;
END $$;

-- Read twice: the groups are computed once.
EXPLAIN (COSTS OFF) WITH w AS (SELECT a, sum(k) AS total FROM t GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w);
SELECT differing('WITH w AS (SELECT a, sum(k) AS total FROM t GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(total) FROM w)');
-- Written twice.
EXPLAIN (COSTS OFF) SELECT * FROM (SELECT b, count(*) FROM t GROUP BY b) x JOIN (SELECT b, count(*) FROM t GROUP BY b) y USING (b);
SELECT differing('SELECT * FROM (SELECT b, count(*) FROM t GROUP BY b) x JOIN (SELECT b, count(*) FROM t GROUP BY b) y USING (b)');
-- Groups of groups.
EXPLAIN (COSTS OFF) WITH w AS (SELECT a, b, max(k) AS last FROM t GROUP BY a, b), v AS (SELECT b, sum(last) AS s FROM w GROUP BY b)
SELECT w.a, v.s FROM w JOIN v USING (b) JOIN v u USING (b) WHERE u.s > 10;
SELECT differing('WITH w AS (SELECT a, b, max(k) AS last FROM t GROUP BY a, b), v AS (SELECT b, sum(last) AS s FROM w GROUP BY b) SELECT w.a, v.s FROM w JOIN v USING (b) JOIN v u USING (b) WHERE u.s > 10');
-- With another condition each: each reads less than both would.
EXPLAIN (COSTS OFF) WITH w AS (SELECT a, c, sum(k) AS total FROM t GROUP BY a, c) SELECT x.total - y.total AS d FROM w x JOIN w y USING (a) WHERE x.c = 1 AND y.c = 2;
SELECT differing('WITH w AS (SELECT a, c, sum(k) AS total FROM t GROUP BY a, c) SELECT x.total - y.total AS d FROM w x JOIN w y USING (a) WHERE x.c = 1 AND y.c = 2');
-- With other columns: one part has the columns of both.
EXPLAIN (COSTS OFF) WITH w AS (SELECT a, sum(k) AS total, min(c) AS least, count(*) AS n FROM t GROUP BY a) SELECT a, total FROM w WHERE total = (SELECT max(least) + min(n) FROM w);
SELECT differing('WITH w AS (SELECT a, sum(k) AS total, min(c) AS least, count(*) AS n FROM t GROUP BY a) SELECT a, total FROM w WHERE total > (SELECT max(least) + min(n) FROM w)');
SELECT differing('WITH w AS (SELECT a, sum(k) AS s, sum(k) AS u, max(b) AS m FROM t GROUP BY a) SELECT x.s, y.u, y.s, y.m FROM w x JOIN w y USING (a)');
SELECT differing('WITH w AS (SELECT p.a, u.c, sum(p.k) AS s, sum(u.k) AS u FROM t p JOIN (SELECT * FROM t) u ON p.b = u.b AND p.a < u.c GROUP BY p.a, u.c) SELECT x.a, x.s, y.u FROM w x JOIN w y ON x.a = y.c AND x.c = y.a');
-- Windows.
EXPLAIN (COSTS OFF) WITH w AS (SELECT a, b, sum(k) AS s, avg(sum(k)) OVER (PARTITION BY a) AS mean, rank() OVER (PARTITION BY a ORDER BY b) AS place FROM t GROUP BY a, b)
SELECT x.a, x.mean, y.s, z.s FROM w x JOIN w y ON x.a = y.a AND x.place = y.place + 1 JOIN w z ON x.a = z.a AND x.place = z.place - 1;
SELECT differing('WITH w AS (SELECT a, b, sum(k) AS s, avg(sum(k)) OVER (PARTITION BY a) AS mean, rank() OVER (PARTITION BY a ORDER BY b) AS place FROM t GROUP BY a, b) SELECT x.a, x.mean, y.s, z.s FROM w x JOIN w y ON x.a = y.a AND x.place = y.place + 1 JOIN w z ON x.a = z.a AND x.place = z.place - 1');
SELECT differing('WITH w AS (SELECT k, a, row_number() OVER (PARTITION BY a ORDER BY k) AS n, lag(b) OVER (PARTITION BY a ORDER BY k) AS before, c FROM t) SELECT x.k, x.before, y.n, y.c FROM w x JOIN w y ON x.a = y.a AND x.n = y.n - 1 WHERE x.n < 5');
SELECT differing('WITH w AS (SELECT k, row_number() OVER (ORDER BY k) AS n FROM t) SELECT n FROM w UNION ALL SELECT k FROM w WHERE n <= 3');
-- MATERIALIZED: no condition moves into it.
EXPLAIN (COSTS OFF) WITH w AS MATERIALIZED (SELECT a, c, sum(k) AS total FROM t GROUP BY a, c) SELECT x.total - y.total AS d FROM w x JOIN w y USING (a) WHERE x.c = 1 AND y.c = 2;
SELECT differing('WITH w AS MATERIALIZED (SELECT a, c, sum(k) AS total FROM t GROUP BY a, c) SELECT x.total - y.total AS d FROM w x JOIN w y USING (a) WHERE x.c = 1 AND y.c = 2');
EXPLAIN (COSTS OFF) WITH w AS MATERIALIZED (SELECT a, b FROM t WHERE b <> 0) SELECT count(*) FROM w WHERE 12 / b > 3;
WITH w AS MATERIALIZED (SELECT a, b FROM t WHERE b <> 0) SELECT count(*) FROM w WHERE 12 / b > 3;
WITH w AS MATERIALIZED (SELECT a, b FROM t WHERE b <> 0) SELECT count(*) FROM w x JOIN w y USING (a) WHERE 12 / x.b > 3;
SELECT differing('WITH w AS MATERIALIZED (SELECT a, b FROM t WHERE b <> 0 LIMIT 1000) SELECT count(*) FROM w WHERE a = 1');
SELECT differing('WITH w AS MATERIALIZED (SELECT DISTINCT a, b FROM t) SELECT x.a, y.b FROM w x, w y WHERE x.a = y.b');
-- The others stay as they are.
SELECT differing('WITH RECURSIVE w AS (SELECT min(k) AS k FROM t UNION ALL SELECT k + 1 FROM w WHERE k < 5) SELECT * FROM w');
SELECT count(*) FROM (WITH w AS MATERIALIZED (SELECT a, random() AS r FROM t GROUP BY a) SELECT * FROM w x JOIN w y USING (a, r)) q;
WITH w AS MATERIALIZED (SELECT a, max(k) AS k FROM heap GROUP BY a) SELECT count(*) FROM w JOIN t USING (k);

DROP SCHEMA pushdown_cte CASCADE;
