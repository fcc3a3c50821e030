-- Needs ICU.
--
-- Collations of ICU: their orders are pushed down, their letters are not, and the result is right.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\set path :data '/edge_text.parquet'
CREATE FOREIGN TABLE pq.edge (id integer NOT NULL, v text) SERVER pystachio OPTIONS (path :'path');
CREATE TABLE heap.edge AS SELECT * FROM pq.edge;

\i :abs_srcdir/include/same.sql
CREATE COLLATION public.numeric_order (provider = icu, locale = 'en-u-kn-true');
CREATE COLLATION public.no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);

-- An order.
SELECT * FROM pushed('SELECT id FROM t3 ORDER BY c COLLATE "en-x-icu", id LIMIT 5');
SELECT id FROM t3 ORDER BY c COLLATE "en-x-icu", id LIMIT 5;
SELECT same('SELECT id, v, row_number() OVER (ORDER BY v COLLATE "de-x-icu", id) FROM edge');
SELECT same('SELECT id, v, rank() OVER (ORDER BY v COLLATE numeric_order DESC) FROM edge');
SELECT same('SELECT id, v FROM edge WHERE v COLLATE "sv-x-icu" >= ''z'' OR v COLLATE "und-x-icu" < ''B''');
SELECT same('SELECT min(v COLLATE "de-x-icu"), max(v COLLATE "sv-x-icu"), greatest(max(v), ''ö'' COLLATE "de-x-icu") FROM edge');
SELECT same('SELECT string_agg(v, ''|'' ORDER BY v COLLATE "cs-x-icu", id) FROM edge');

-- Where different texts are equal, no key tells them apart.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM edge ORDER BY v COLLATE no_case, id LIMIT 3;
SELECT same('SELECT count(*) FROM edge WHERE v COLLATE no_case > ''B''');

-- Letters, which ICU does not change one by one.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM edge WHERE upper(v COLLATE "en-x-icu") = 'SS';
SELECT count(*) FROM edge WHERE upper(v COLLATE "en-x-icu") = 'SS';
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM edge WHERE v COLLATE "en-x-icu" ILIKE 'ä';
SELECT count(*) FROM edge WHERE v COLLATE "en-x-icu" ILIKE 'ä';
DROP COLLATION public.numeric_order;
DROP COLLATION public.no_case;
