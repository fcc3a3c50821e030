-- Needs ICU.
--
-- A database whose default collation is ICU's: engines order by the server's ICU, and PostgreSQL itself changes case.
--
\getenv abs_srcdir PG_ABS_SRCDIR
SET client_min_messages = warning;
DROP DATABASE IF EXISTS regress_icu;
CREATE DATABASE regress_icu TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8';
\c regress_icu
SET client_min_messages = warning;
CREATE EXTENSION pystachio;
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SELECT same('SELECT id, c FROM t1');
SELECT same('SELECT array_agg(c) FROM (SELECT DISTINCT c FROM t1 ORDER BY c) s');
SELECT same('SELECT array_agg(id) FROM (SELECT id FROM t1 ORDER BY c DESC NULLS LAST, id LIMIT 50) s');
SELECT same('SELECT min(c), max(c), count(DISTINCT c) FROM t1');
SELECT same('SELECT c, count(*) FROM t2 GROUP BY c');
SELECT same('SELECT id FROM t1 WHERE c > ''B'' AND c <= ''ä''');
SELECT same('SELECT id FROM t1 WHERE c BETWEEN ''A'' AND ''b''');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.c = y.c');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.c < y.c AND x.id = y.id');
SELECT same('SELECT upper(c), lower(c), initcap(c) FROM t1');
SELECT same('SELECT id FROM t1 WHERE c ILIKE ''%Ä%'' OR c LIKE ''a%''');
SELECT same('SELECT s, count(*) FROM t3 GROUP BY s ORDER BY s');
SELECT same('SELECT id FROM t1 WHERE (c, id) > (''a'', 10)');
SELECT same('SELECT c FROM t1 INTERSECT SELECT c FROM t2');
SELECT same('SELECT greatest(x.c, y.c), least(x.s, y.s) FROM t1 x JOIN t2 y USING (id)');
SELECT same('SELECT id, rank() OVER (ORDER BY c) FROM t1');
SELECT same('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY c), mode() WITHIN GROUP (ORDER BY s) FROM t1');
SELECT same('SELECT id FROM t1 WHERE c = ANY (''{ä,a,B}'') OR c > ALL (''{x,y}'')');
-- Deterministic collations compare bytes for equality, and keys of the library for an order.
SELECT * FROM pushed('SELECT c, count(*) FROM t1 WHERE c = ''ä'' GROUP BY c');
SELECT * FROM pushed('SELECT id FROM t1 WHERE c > ''ä'' ORDER BY c LIMIT 3');
SELECT * FROM pushed('SELECT id FROM t1 WHERE c COLLATE "C" > ''ä'' ORDER BY c COLLATE "C" LIMIT 3');
PREPARE by_text (text) AS SELECT count(*) FROM pq.t2 WHERE c >= $1;
EXECUTE by_text ('B');
SET plan_cache_mode = force_generic_plan;
EXECUTE by_text ('B');
RESET plan_cache_mode;
-- A collation that takes different bytes for equal.
CREATE COLLATION public.any_case (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false);
CREATE FOREIGN TABLE pq.folded (id integer, c text COLLATE public.any_case) SERVER pystachio OPTIONS (path '/nowhere');
\getenv data PYSTACHIO_REGRESS_DATA
\set path :data '/t1.parquet'
ALTER FOREIGN TABLE pq.folded OPTIONS (SET path :'path');
CREATE TABLE heap.folded (id integer, c text COLLATE public.any_case);
INSERT INTO heap.folded SELECT id, c FROM pq.folded;
SELECT same('SELECT lower(c::text COLLATE "C"), count(*) FROM folded GROUP BY lower(c::text COLLATE "C")');
SELECT same('SELECT id FROM folded WHERE c = ''A''');
SELECT same('SELECT count(DISTINCT c) FROM folded');
SELECT same('SELECT x.id, y.id FROM folded x JOIN folded y ON x.c = y.c');
SELECT same('SELECT count(*) FROM folded WHERE c IN (SELECT c FROM folded WHERE id < 20)');
\c regression
DROP DATABASE regress_icu;
