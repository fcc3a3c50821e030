-- Needs PostgreSQL 18.
--
-- NOT NULL … NOT VALID: existing rows may be NULL, so the planner does not rely on it.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\set path :data '/t3.parquet'
CREATE FOREIGN TABLE pq.nv (id integer NOT NULL, a integer, c text) SERVER pystachio OPTIONS (path :'path');
ALTER FOREIGN TABLE pq.nv ADD CONSTRAINT nv_a NOT NULL a NOT VALID;
SELECT attname, attnotnull FROM pg_attribute WHERE attrelid = 'pq.nv'::regclass AND attnum > 0 ORDER BY attnum;
SELECT count(*), count(a), count(a) = (SELECT count(a) FROM heap.t3) AS as_heap FROM nv;
SELECT id FROM nv WHERE a IS NULL ORDER BY id LIMIT 3;
SELECT id FROM heap.t3 WHERE a IS NULL ORDER BY id LIMIT 3;
-- A NULL makes NOT IN true for no row.
SELECT count(*) FROM t1 WHERE id NOT IN (SELECT a FROM nv);
SELECT count(*) FROM t1 WHERE id NOT IN (SELECT a FROM nv WHERE a IS NOT NULL);
SELECT count(*) FROM heap.t1 WHERE id NOT IN (SELECT a FROM heap.t3 WHERE a IS NOT NULL);
ANALYZE pq.nv;
SELECT null_frac > 0 AS has_nulls FROM pg_stats WHERE schemaname = 'pq' AND tablename = 'nv' AND attname = 'a';
DROP FOREIGN TABLE pq.nv;
