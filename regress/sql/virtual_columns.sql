-- Needs PostgreSQL 18.
--
-- Virtual generated columns, which are computed wherever they are read: no file has them.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\set path :data '/t3.parquet'
CREATE FOREIGN TABLE pq.v (id integer NOT NULL, a integer, c text, twice bigint GENERATED ALWAYS AS (a * 2) VIRTUAL,
  long text GENERATED ALWAYS AS (c || '-' || c)) SERVER pystachio OPTIONS (path :'path');
CREATE TABLE heap.v (id integer NOT NULL, a integer, c text, twice bigint GENERATED ALWAYS AS (a * 2) VIRTUAL,
  long text GENERATED ALWAYS AS (c || '-' || c));
INSERT INTO heap.v (id, a, c) SELECT id, a, c FROM t3;

-- ANALYZE samples the columns that are there.
ANALYZE pq.v;
SELECT attname, n_distinct = (SELECT n_distinct FROM pg_stats h WHERE h.tablename = 't3' AND h.schemaname = 'heap' AND h.attname = f.attname) AS as_heap
FROM pg_stats f WHERE schemaname = 'pq' AND tablename = 'v' ORDER BY 1;

-- Their expressions are pushed down.
EXPLAIN (VERBOSE, COSTS OFF) SELECT twice, count(*), min(long) FROM v WHERE twice > 2 GROUP BY twice ORDER BY twice;
SELECT twice, count(*), min(long) FROM v WHERE twice > 2 GROUP BY twice ORDER BY twice;
SELECT count(*) FROM (
  (SELECT twice, count(*), min(long) FROM v WHERE twice > 2 GROUP BY twice
   EXCEPT ALL SELECT twice, count(*), min(long) FROM heap.v WHERE twice > 2 GROUP BY twice)
  UNION ALL
  (SELECT twice, count(*), min(long) FROM heap.v WHERE twice > 2 GROUP BY twice
   EXCEPT ALL SELECT twice, count(*), min(long) FROM v WHERE twice > 2 GROUP BY twice)) difference;

-- A table alone, whole rows, and below an outer join.
SELECT * FROM v WHERE id < 4 ORDER BY id;
SELECT v FROM v WHERE id < 4 ORDER BY id;
SELECT x.id, y.twice, y.long FROM t3 x LEFT JOIN v y ON y.twice = x.a WHERE x.id < 6 ORDER BY 1, 2, 3;
SELECT id FROM v WHERE twice = 4 ORDER BY id FOR UPDATE;
DROP FOREIGN TABLE pq.v;
DROP TABLE heap.v;
