--
-- Numbers of 39 to 76 digits, and times with time zone.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SET timezone = 'UTC';
CREATE SCHEMA imported;
IMPORT FOREIGN SCHEMA data LIMIT TO (form_decimal_long, form_decimal_longest, form_time_utc) FROM SERVER pystachio INTO imported OPTIONS (path :'data');
SELECT attrelid::regclass, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid IN ('imported.form_decimal_long'::regclass, 'imported.form_decimal_longest'::regclass, 'imported.form_time_utc'::regclass) AND attname = 'v' ORDER BY 1;
SELECT * FROM imported.form_decimal_long ORDER BY id;
SELECT * FROM imported.form_decimal_longest ORDER BY id;
\set file :data '/form_decimal_long.parquet'
CREATE FOREIGN TABLE pq.long (id integer, v numeric(50,10)) SERVER pystachio OPTIONS (path :'file');
CREATE FOREIGN TABLE pq.bare (id integer, v numeric) SERVER pystachio OPTIONS (path :'file');
CREATE FOREIGN TABLE pq.wider (id integer, v numeric(70,20)) SERVER pystachio OPTIONS (path :'file');
CREATE FOREIGN TABLE pq.short (id integer, v numeric(38,10)) SERVER pystachio OPTIONS (path :'file');
CREATE FOREIGN TABLE pq.coarse (id integer, v numeric(50,9)) SERVER pystachio OPTIONS (path :'file');
\set file :data '/form_decimal_longest.parquet'
CREATE FOREIGN TABLE pq.longest (id integer, v numeric(76,38)) SERVER pystachio OPTIONS (path :'file');
\set file :data '/form_time_utc.parquet'
CREATE FOREIGN TABLE pq.times (id integer, v timetz) SERVER pystachio OPTIONS (path :'file');
CREATE TABLE heap.long (id integer, v numeric(50,10));
CREATE TABLE heap.longest (id integer, v numeric(76,38));
CREATE TABLE heap.times (id integer, v timetz);
\copy heap.long FROM PROGRAM 'cat "$PG_ABS_SRCDIR/data/form_decimal_long.csv"' (FORMAT csv)
\copy heap.longest FROM PROGRAM 'cat "$PG_ABS_SRCDIR/data/form_decimal_longest.csv"' (FORMAT csv)
\copy heap.times FROM PROGRAM 'cat "$PG_ABS_SRCDIR/data/form_time_utc.csv"' (FORMAT csv)
CREATE VIEW heap.bare AS SELECT id, v FROM heap.long;
CREATE VIEW heap.wider AS SELECT id, v::numeric(70,20) FROM heap.long;

SELECT same($$SELECT * FROM long$$);
SELECT same($$SELECT * FROM longest$$);
SELECT same($$SELECT * FROM bare$$);
SELECT same($$SELECT * FROM wider$$);
SELECT same($$SELECT id FROM long WHERE v > 0$$);
SELECT same($$SELECT id FROM long WHERE v = 0.0000000001 OR v = 2$$);
SELECT same($$SELECT id FROM long WHERE v < -12345678901234567890123456789012345678$$);
SELECT same($$SELECT id FROM long WHERE v > 9999999999999999999999999999999999999999$$);
SELECT same($$SELECT id FROM long WHERE v IN (2, -1.5) OR v BETWEEN -1 AND 0$$);
SELECT same($$SELECT id FROM longest WHERE v >= 7$$);
SELECT same($$SELECT id FROM longest WHERE v = 99999999999999999999999999999999999999.99999999999999999999999999999999999999$$);
SELECT same($$SELECT min(v), max(v), count(v), count(*) FROM long$$);
SELECT same($$SELECT min(v), max(v), count(DISTINCT v) FROM longest$$);
SELECT same($$SELECT sum(v), avg(v) FROM long$$);
SELECT same($$SELECT sum(v) FROM longest$$);
SELECT same($$SELECT v, count(*) FROM long GROUP BY v$$);
SELECT same($$SELECT id, v + 1, v * 2, -v, abs(v), v - id, round(v, 2), v::text, v::numeric(60,12) FROM long$$);
SELECT same($$SELECT id, v * v FROM longest WHERE id > 3$$);
SELECT same($$SELECT id, v / 3 FROM long$$);
SELECT same($$SELECT a.id, b.id FROM long a JOIN long b ON a.v = b.v$$);
SELECT same($$SELECT a.id, b.id FROM long a JOIN longest b ON a.v = b.v$$);
SELECT same($$SELECT a.id, b.id FROM long a JOIN long b ON a.v < b.v$$);
SELECT same($$SELECT id FROM long ORDER BY v DESC NULLS LAST LIMIT 4$$);
SELECT same($$SELECT DISTINCT v FROM longest$$);
SELECT same($$SELECT trim_scale(v) FROM (SELECT v FROM long UNION SELECT v FROM longest) u$$);
SELECT same($$SELECT id, v::double precision, v::bigint FROM long WHERE v BETWEEN -10 AND 10$$);
SELECT same($$SELECT coalesce(v, 0), nullif(v, 2), greatest(v, 1), CASE WHEN v > 0 THEN v ELSE 0 END FROM long$$);
SELECT same($$SELECT id FROM long WHERE v = ANY (ARRAY[2, -1.5]::numeric[])$$);
PREPARE at_least (numeric) AS SELECT id FROM pq.long WHERE v >= $1 ORDER BY id;
EXECUTE at_least (170141183460469231731687303715884105728);
EXECUTE at_least ('NaN');
ANALYZE pq.long;
SELECT v FROM pq.short ORDER BY id;
SELECT v FROM pq.coarse ORDER BY id;

SELECT same($$SELECT * FROM times$$);
SELECT same($$SELECT id FROM times WHERE v > '12:00+00'$$);
SELECT same($$SELECT v, count(*) FROM times GROUP BY v$$);
SELECT same($$SELECT count(v), min(v), max(v) FROM times WHERE v IS NOT NULL$$);
SELECT same($$SELECT v AT TIME ZONE 'Asia/Kolkata', v::time, v::text FROM times ORDER BY v$$);
SELECT same($$SELECT a.id FROM times a JOIN times b USING (v)$$);
IMPORT FOREIGN SCHEMA data LIMIT TO (times_of_utc) FROM SERVER pystachio INTO imported OPTIONS (path :'data');
SELECT * FROM imported.times_of_utc ORDER BY id;
ALTER FOREIGN TABLE imported.times_of_utc ALTER v TYPE timetz;
SELECT * FROM imported.times_of_utc ORDER BY id;
DROP SCHEMA imported CASCADE;
