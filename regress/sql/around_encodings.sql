--
-- Databases with encoding LATIN1 or SQL_ASCII: text from files, text to files, and characters that the encoding lacks.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
DROP DATABASE IF EXISTS regress_latin1;
CREATE DATABASE regress_latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
\c regress_latin1
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION pystachio;
SET search_path = public, pg_catalog;
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SHOW server_encoding;
-- t1 and t2 have ASCII, umlauts, and some characters that LATIN1 has not.
SELECT same('SELECT id, c FROM t1');
SELECT same('SELECT c, count(*) FROM t1 GROUP BY c');
SELECT same('SELECT id FROM t1 WHERE c > ''a'' ORDER BY c, id');
SELECT same('SELECT min(c), max(c) FROM t2');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.c = y.c');
SELECT same('SELECT id, length(c), substring(c, 1, 1), reverse(c) FROM t2');
SELECT same('SELECT upper(c), lower(c), initcap(c) FROM t1');
SELECT same('SELECT s, length(s), count(*) FROM t3 GROUP BY s');
SELECT * FROM pushed('SELECT c, count(*) FROM t1 WHERE c > ''a'' GROUP BY c ORDER BY c');
-- Keys of a heap side.
CREATE TABLE public.few (key text);
INSERT INTO public.few VALUES ('ä'), ('%');
ANALYZE public.few;
SELECT same('SELECT x.id, key FROM t2 x JOIN few ON x.c = key');
-- Names of tables and columns.
CREATE SCHEMA "grün";
\set path :data '/t2.parquet'
CREATE FOREIGN TABLE "grün"."größe" ("schlüssel" integer OPTIONS (column_name 'id'), c text) SERVER pystachio OPTIONS (path :'path');
SELECT "schlüssel", c FROM "grün"."größe" WHERE c IS NOT NULL ORDER BY 1 LIMIT 2;
-- A character in the file that LATIN1 lacks: an error that names it, only where it is read.
\set path :data '/edge_text.parquet'
CREATE FOREIGN TABLE edge_text (id integer, v text) SERVER pystachio OPTIONS (path :'path');
SELECT count(*) FROM edge_text;
SELECT count(*), max(length(v)) > 0 AS long FROM edge_text;
SELECT id, v FROM edge_text ORDER BY id;
SELECT count(v) FROM edge_text WHERE v = 'a';
\c regression
DROP DATABASE regress_latin1;
CREATE DATABASE regress_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';
\c regress_ascii
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION pystachio;
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
-- Values are bytes, which are compared as such.
SELECT same('SELECT id, c, octet_length(c) FROM t1');
SELECT same('SELECT id FROM t1 WHERE c = ''ä''');
SELECT same('SELECT id FROM t1 WHERE c LIKE ''%ä%''');
SELECT same('SELECT id, c FROM t2 ORDER BY c, id');
SELECT same('SELECT c, count(*), min(s), max(s) FROM t1 GROUP BY c');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON lower(x.c) = lower(y.c)');
PREPARE by_text (text) AS SELECT count(*) FROM pq.t2 WHERE c = $1;
EXECUTE by_text ('ä');
\c regression
DROP DATABASE regress_ascii;
