--
-- Row groups that statistics rule out are not read, and rows are not lost.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SELECT count(*) FROM t1 WHERE id <= 10;
SELECT count(*) FROM t1 WHERE id > 1000;
SELECT count(*) FROM t1 WHERE id BETWEEN 60 AND 70;
SELECT count(*) FROM t1 WHERE id IN (1, 33, 65, 120);
SELECT count(*) FROM t1 WHERE d IS NULL AND id > 64;
SELECT count(*), min(id), max(id) FROM t1 WHERE NOT (id < 100);
SELECT (SELECT count(*) FROM t1 WHERE c = 'x ') = (SELECT count(*) FROM heap.t1 WHERE c = 'x ') AS same;
-- The plan says how many are left.
EXPLAIN (COSTS OFF) SELECT a FROM t1 WHERE id <= 10;
-- count(*) needs no row group at all.
EXPLAIN (COSTS OFF) SELECT count(*) FROM t1;
SELECT count(*) FROM t1;
