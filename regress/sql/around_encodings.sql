--
-- Databases of other encodings than UTF8: text of files in them, both ways, and characters that they do not have.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
-- What the planner takes for granted of encodings with one byte a character: no two bytes stand for the same character.
DO $$
DECLARE
  name text;
  byte bytea;
  known text;
BEGIN
  FOREACH name IN ARRAY '{LATIN1,LATIN2,LATIN3,LATIN4,LATIN5,LATIN6,LATIN7,LATIN8,LATIN9,LATIN10,ISO_8859_5,ISO_8859_6,ISO_8859_7,ISO_8859_8,
    KOI8R,KOI8U,WIN866,WIN874,WIN1250,WIN1251,WIN1252,WIN1253,WIN1254,WIN1255,WIN1256,WIN1257,WIN1258}'::text[] LOOP
    FOR code IN 1..255 LOOP
      byte := set_byte('\x00', 0, code);
      BEGIN
        known := convert_from(byte, name);
      EXCEPTION WHEN untranslatable_character THEN
        CONTINUE;
      END;
      IF length(known) <> 1 OR convert_to(known, name) <> byte OR (name = 'LATIN1' AND ascii(known) <> code) THEN
        RAISE 'byte % of % is %', code, name, known;
      END IF;
    END LOOP;
  END LOOP;
END $$;
-- Files and folders whose names are not ASCII.
\! mkdir -p "$PYSTACHIO_REGRESS_DATA/töpfe" && cp "$PYSTACHIO_REGRESS_DATA/t2.parquet" "$PYSTACHIO_REGRESS_DATA/töpfe/größe.parquet"
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
-- t1 and t2 have ASCII and umlauts.
SELECT same('SELECT id, c FROM t1');
SELECT same('SELECT c, count(*) FROM t1 GROUP BY c');
SELECT same('SELECT id FROM t1 WHERE c > ''a'' ORDER BY c, id');
SELECT same('SELECT min(c), max(c) FROM t2');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.c = y.c');
SELECT same('SELECT id, length(c), substring(c, 1, 1), reverse(c) FROM t2');
SELECT same('SELECT upper(c), lower(c), initcap(c) FROM t1');
SELECT same('SELECT s, length(s), count(*) FROM t3 GROUP BY s');
SELECT same('SELECT string_agg(c, ''ö'' ORDER BY id) FROM t2');
SELECT same('SELECT id, c::varchar(1), c::bytea, md5(c), ascii(c) FROM t2 WHERE c <> ''''');
SELECT * FROM pushed('SELECT c, count(*) FROM t1 WHERE c > ''a'' GROUP BY c ORDER BY c');
-- Constants.
SELECT same('SELECT id FROM t2 WHERE c = ''ä''');
SELECT same('SELECT id FROM t2 WHERE c <> ''ä'' AND c < ''ö'' ORDER BY c, id');
SELECT same('SELECT id FROM t2 WHERE c LIKE ''%ä%'' OR c LIKE ''x_''');
SELECT same('SELECT id FROM t2 WHERE c ILIKE ''%Ä%'' OR c ILIKE ''AB_''');
SELECT same('SELECT id FROM t2 WHERE c IN (''ä'', ''%'', ''ab'')');
SELECT same('SELECT id FROM t2 WHERE c = ANY (''{ä,%}'') OR c LIKE ANY (''{ä%,z_}'')');
SELECT same('SELECT id FROM t2 WHERE c <> ALL (''{ä,%}'')');
SELECT same('SELECT id, c || ''ö'', concat(c, ''ß'', s), position(''ä'' IN c), replace(c, ''ä'', ''üü''), btrim(c, ''ä '') FROM t2');
SELECT same('SELECT max(replace(c, ''z'', ''ÿ'')), min(replace(c, '' '', ''é'')) FROM t2');
SELECT same('SELECT CASE WHEN c = ''ä'' THEN ''Ü'' ELSE coalesce(c, ''ö'') END, count(*) FROM t2 GROUP BY 1');
SELECT same('SELECT id FROM t2 WHERE starts_with(c, ''ä'') OR left(c, 1) = ''ä'' OR right(c, 1) = ''z''');
SELECT * FROM pushed('SELECT id FROM t2 WHERE c = ''ä'' OR c LIKE ''%ö%''');
-- Bytes are counted by PostgreSQL.
SELECT same('SELECT id, octet_length(c), octet_length(s), bit_length(c) FROM t2');
SELECT same('SELECT count(*) FROM t2 WHERE octet_length(c) = 1');
SELECT * FROM pushed('SELECT id FROM t2 WHERE octet_length(c) = 1');
-- Parameters.
PREPARE by_text (text, text[]) AS SELECT id, c || $1 FROM t2 WHERE c = $1 OR c = ANY ($2) OR c LIKE $1 || '_%' ORDER BY id;
EXECUTE by_text ('ä', '{ö,%}');
SET plan_cache_mode = force_generic_plan;
EXECUTE by_text ('ä', '{ö,%}');
RESET plan_cache_mode;
SELECT same('SELECT id FROM t2 WHERE c = (SELECT max(c) FROM t2 WHERE c > ''zz'')');
-- Keys of a heap side, and of rows around a subquery.
CREATE TABLE public.few (key text);
INSERT INTO public.few VALUES ('ä'), ('%');
ANALYZE public.few;
SELECT same('SELECT x.id, key FROM t2 x JOIN few ON x.c = key');
SELECT same('SELECT key, (SELECT string_agg(id::text, '','' ORDER BY id) FROM t2 WHERE c = key) FROM few');
SELECT same('SELECT t1.id, (SELECT t2.id FROM t2 WHERE t2.c = t1.c ORDER BY t2.id LIMIT 1) FROM t1');
-- Statistics that ANALYZE has made.
ANALYZE pq.t1, pq.t2;
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.c = y.c WHERE x.c >= ''ä''');
SELECT most_common_vals::text LIKE '%ä%' AS has_umlaut FROM pg_stats WHERE schemaname = 'pq' AND tablename = 't1' AND attname = 'c';
-- Names of tables, columns, folders and files.
CREATE SCHEMA "grün";
\set path :data '/töpfe/größe.parquet'
CREATE FOREIGN TABLE "grün"."größe" ("schlüssel" integer OPTIONS (column_name 'id'), c text) SERVER pystachio OPTIONS (path :'path');
SELECT "schlüssel", c FROM "grün"."größe" WHERE c IS NOT NULL ORDER BY 1 LIMIT 2;
EXPLAIN (VERBOSE, COSTS OFF) SELECT "schlüssel" FROM "grün"."größe" WHERE c = 'ä';
\set paths '{"' :data '/töpfe/größe.parquet"}'
ALTER FOREIGN TABLE "grün"."größe" OPTIONS (DROP path, ADD paths :'paths');
SELECT count(*) FROM "grün"."größe";
\set folder :data '/töpfe'
IMPORT FOREIGN SCHEMA :"folder" LIMIT TO ("größe") FROM SERVER pystachio INTO public;
SELECT id, c FROM public."größe" WHERE c = 'ä' ORDER BY id;
-- Functions and views of the extension.
CREATE SERVER "zürich" FOREIGN DATA WRAPPER pystachio;
SELECT pystachio.statistics_reset('zürich');
SELECT pystachio.statistics_reset('basel ß');
\set target :scratch '/größe.parquet'
SELECT DISTINCT file LIKE '%/größe.parquet' AS is_named FROM pystachio.optimize_parquet(:'path', :'target', true, server => 'zürich');
-- A GPU engine may have read it without keeping it.
SELECT bool_and(path LIKE '%/töpfe/größe.parquet') IS NOT FALSE AS is_named FROM pystachio.cache WHERE path LIKE '%/t_pfe/%';
DROP SERVER "zürich";
-- A message has an escape for what is not ASCII.
CREATE FOREIGN TABLE "grün".absent ("größe" integer) SERVER pystachio OPTIONS (path :'path');
SELECT * FROM "grün".absent;
-- A character that LATIN1 has not, in the file: an error that names it, where PostgreSQL reads it and nowhere else.
\set path :data '/edge_text.parquet'
CREATE FOREIGN TABLE edge_text (id integer, v text) SERVER pystachio OPTIONS (path :'path');
SELECT count(*) FROM edge_text;
SELECT count(*), max(length(v)) > 0 AS long FROM edge_text;
SELECT id, v FROM edge_text ORDER BY id;
SELECT count(v) FROM edge_text WHERE v = 'a';
SELECT id, v FROM edge_text WHERE v IN ('ä', 'Ä', 'ß', 'é') ORDER BY id;
SELECT id FROM edge_text WHERE format('%s', v) = 'Ä' ORDER BY id;
ANALYZE edge_text;
\c regression
DROP DATABASE regress_latin1;
-- An encoding whose bytes have another order than the characters in UTF-8.
CREATE DATABASE regress_latin2 TEMPLATE template0 ENCODING 'LATIN2' LOCALE 'C';
\c regress_latin2
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION pystachio;
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SELECT same('SELECT replace(c, ''b'', ''ł'') AS r, id FROM t2 ORDER BY r, id LIMIT 60');
SELECT same('SELECT min(replace(c, ''b'', ''ł'')), max(replace(c, ''zz'', ''ł'')) FROM t2');
SELECT same('SELECT id FROM t2 WHERE replace(c, ''b'', ''ł'') > ''ä''');
SELECT same('SELECT id FROM t2 WHERE c > ''ł''');
SELECT same('SELECT greatest(c, ''ł''), least(c, ''ł'') FROM t2');
SELECT same('SELECT id FROM t2 WHERE (c, id) > (''ł'', 3)');
SELECT same('SELECT c, id FROM t2 WHERE c IN (''ä'', ''ł'', ''a'')');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON replace(x.c, ''b'', ''ł'') = replace(y.c, ''a'', ''ł'')');
SELECT same('SELECT replace(c, ''b'', ''ł''), count(*) FROM t2 GROUP BY 1');
CREATE TABLE public.few (key text);
INSERT INTO public.few VALUES ('ä'), ('%'), ('ł');
ANALYZE public.few;
SELECT same('SELECT x.id, key FROM t2 x JOIN few ON x.c = key');
SELECT * FROM pushed('SELECT min(c) FROM t2');
SELECT * FROM pushed('SELECT c FROM t2 WHERE c > ''ł'' AND c <> ''ä'' ORDER BY c');
\c regression
DROP DATABASE regress_latin2;
-- Characters of several bytes: PostgreSQL compares and computes text.
CREATE DATABASE regress_euc TEMPLATE template0 ENCODING 'EUC_JP' LOCALE 'C';
\c regress_euc
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION pystachio;
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SELECT same('SELECT id, c FROM t2 WHERE c = ''ä'' OR c LIKE ''x_'' OR c IN (''日本'', ''ab'') ORDER BY c, id');
SELECT same('SELECT c, length(c), octet_length(c), upper(c), c || ''日本'', count(*), min(s) FROM t2 GROUP BY c');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.c = y.c');
SELECT same('SELECT extract(year FROM d), date_trunc(''month'', ts), count(DISTINCT c), count(c) FROM t2 GROUP BY 1, 2');
PREPARE by_text (text) AS SELECT id, c || $1 FROM t2 WHERE c = $1 OR c LIKE $1 || '_%' ORDER BY id;
EXECUTE by_text ('ä');
CREATE TABLE public.few (key text);
INSERT INTO public.few VALUES ('ä'), ('%');
ANALYZE public.few;
SELECT same('SELECT x.id, key FROM t2 x JOIN few ON x.c = key');
SELECT * FROM pushed('SELECT count(*), count(c), max(extract(year FROM d)) FROM t2 WHERE a > 1');
SELECT * FROM pushed('SELECT c, count(*) FROM t2 WHERE c LIKE ''a%'' AND length(c) = 2 GROUP BY c');
\c regression
DROP DATABASE regress_euc;
-- SQL_ASCII: every byte is a character.
CREATE DATABASE regress_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';
\c regress_ascii
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION pystachio;
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SELECT same('SELECT id, c, octet_length(c) FROM t1');
SELECT same('SELECT id FROM t1 WHERE c = ''ä''');
SELECT same('SELECT id FROM t1 WHERE c LIKE ''%ä%''');
SELECT same('SELECT id FROM t1 WHERE c LIKE ''_'' OR c LIKE ANY (''{__,_b%}'') OR c ILIKE ''A_''');
SELECT same('SELECT id, length(c), substring(c, 1, 1), left(c, 1), right(c, 1), reverse(c), position(''b'' IN c), strpos(c, ''z'') FROM t2');
SELECT same('SELECT btrim(c, ''ã''), btrim(c, ''x ''), btrim(c), replace(c, ''ä'', ''b''), starts_with(c, ''ä''), c || ''ö'' FROM t2');
SELECT same('SELECT c::varchar(1), c::char(1), concat(c, s), upper(c), lower(c) FROM t2');
SELECT same('SELECT count(*) FROM t2 WHERE length(c) = 2');
SELECT same('SELECT id, c FROM t2 ORDER BY c, id');
SELECT same('SELECT c, count(*), min(s), max(s) FROM t1 GROUP BY c');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON lower(x.c) = lower(y.c)');
SELECT * FROM pushed('SELECT id FROM t1 WHERE c LIKE ''%ä%'' AND lower(c) <> ''x'' ORDER BY c, id');
SELECT * FROM pushed('SELECT id FROM t1 WHERE length(c) = 1 AND c LIKE ''_'' AND btrim(c, ''ä'') <> ''''');
PREPARE by_text (text) AS SELECT count(*) FROM pq.t2 WHERE c = $1;
EXECUTE by_text ('ä');
SET plan_cache_mode = force_generic_plan;
EXECUTE by_text ('ä');
EXECUTE by_text (E'\xe4');
RESET plan_cache_mode;
-- A constant that is not valid in UTF-8 stays in PostgreSQL.
SELECT same('SELECT id FROM t1 WHERE c = E''\xe4'' OR c = ''ab''');
SELECT same('SELECT id FROM t1 WHERE c = ANY (E''{\xe4,ab}'')');
-- Keys that are not valid in UTF-8 filter nothing.
CREATE TABLE public.few (key text);
INSERT INTO public.few VALUES (E'\xe4'), ('ab');
ANALYZE public.few;
SELECT same('SELECT x.id, key FROM t2 x JOIN few ON x.c = key');
\c regression
DROP DATABASE regress_ascii;
\! rm -r "$PYSTACHIO_REGRESS_DATA/töpfe"
