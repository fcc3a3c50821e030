-- Needs ICU.
--
-- Collations of ICU: their orders and letters are not pushed down, and the result is right.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\set path :data '/edge_text.parquet'
CREATE FOREIGN TABLE pq.edge (id integer NOT NULL, v text) SERVER pystachio OPTIONS (path :'path');
CREATE TABLE heap.edge AS SELECT * FROM pq.edge;

-- An order.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 ORDER BY c COLLATE "en-x-icu", id LIMIT 5;
SELECT id FROM t3 ORDER BY c COLLATE "en-x-icu", id LIMIT 5;

-- Letters, which ICU does not change one by one.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM edge WHERE upper(v COLLATE "en-x-icu") = 'SS';
SELECT count(*) FROM edge WHERE upper(v COLLATE "en-x-icu") = 'SS';
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM edge WHERE v COLLATE "en-x-icu" ILIKE 'ä';
SELECT count(*) FROM edge WHERE v COLLATE "en-x-icu" ILIKE 'ä';
