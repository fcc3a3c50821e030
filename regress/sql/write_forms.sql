--
-- How files are written: COPY TO, compression, sizes, the form for GPUs, partitions.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA write_forms;
SET search_path = write_forms, public;
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf forms && mkdir -m 777 forms
SELECT set_config('test.forms', :'scratch' || '/forms', false) IS NOT NULL AS set;
-- Runs a command with the folder in the place of {}.
CREATE FUNCTION run(command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE replace(command, '{}', current_setting('test.forms'));
END $$;
CREATE FUNCTION reads(name text, columns text, path text) RETURNS void LANGUAGE sql AS $$
  SELECT run(format('CREATE FOREIGN TABLE %I (%s) SERVER pystachio OPTIONS (path %L)', name, columns, '{}/' || path))
$$;
CREATE TABLE source AS SELECT i AS k, i % 7 AS g, 'text ' || i % 100 AS t, (i / 8.0)::numeric(12,3) AS n FROM generate_series(1, 50000) i;

-- COPY TO: of a query, of a table, of some of its columns, of a foreign table.
\set written `echo "$PYSTACHIO_REGRESS_SCRATCH/forms"`
\set file :written '/query.parquet'
COPY (SELECT k, n FROM source WHERE g = 3) TO :'file' (FORMAT parquet);
SELECT reads('query', 'k integer, n numeric(12,3)', 'query.parquet');
SELECT count(*), sum(k), sum(n) FROM query;
SELECT count(*), sum(k), sum(n) FROM source WHERE g = 3;
COPY (SELECT k, n FROM source WHERE g = 4) TO :'file' WITH (FORMAT 'parquet', compression zstd, row_group_rows 1024);
SELECT count(*), sum(k) FROM query;
\set file :written '/table.parquet'
COPY source TO :'file' (FORMAT parquet);
COPY source (t, k) TO :'file' (FORMAT parquet, overwrite false);
COPY source (t, k) TO :'file' (FORMAT parquet, overwrite true);
SELECT reads('two', 'k integer, t text', 'table.parquet');
SELECT * FROM two WHERE k = 5;
COPY two TO :'file' (FORMAT parquet);
CREATE TABLE above (k integer);
CREATE TABLE below () INHERITS (above);
INSERT INTO above VALUES (1);
INSERT INTO below VALUES (2);
\set file :written '/above.parquet'
COPY above TO :'file' (FORMAT parquet);
SELECT reads('above_read', 'k integer', 'above.parquet');
SELECT * FROM above_read;
-- A COPY in a function, and again: its statement is kept.
CREATE FUNCTION again(i integer) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  PERFORM run('COPY (SELECT ' || i || ' AS k) TO ''{}/above.parquet'' (FORMAT parquet)');
  RETURN i;
END $$;
SELECT again(i) FROM generate_series(3, 4) i;
SELECT * FROM above_read;
-- What is refused, and what is PostgreSQL's.
COPY source TO '/nowhere/x.parquet' (FORMAT parquet, delimiter ',');
COPY source TO '/nowhere/x.parquet' (FORMAT parquet, compression gzip);
COPY source TO '/nowhere/x.parquet' (FORMAT parquet, compression none, compression none);
COPY source TO '/nowhere/x.parquet' (FORMAT parquet, row_group_rows 5);
COPY source TO '/nowhere/x.parquet' (FORMAT parquet, server 'none');
COPY source TO 'x.parquet' (FORMAT parquet);
COPY (SELECT nothing FROM source) TO '/nowhere/x.parquet' (FORMAT parquet);
COPY (DELETE FROM source RETURNING k) TO '/nowhere/x.parquet' (FORMAT parquet);
COPY nothing TO '/nowhere/x.parquet' (FORMAT parquet);
COPY source (nothing) TO '/nowhere/x.parquet' (FORMAT parquet);
COPY source TO STDOUT (FORMAT parquet);
COPY source FROM '/nowhere/x.parquet' (FORMAT parquet);
CREATE ROLE copier;
GRANT USAGE ON SCHEMA write_forms TO copier;
SET ROLE copier;
COPY (SELECT 1 AS a) TO '/tmp/x.parquet' (FORMAT parquet);
RESET ROLE;
GRANT pg_write_server_files TO copier;
SET ROLE copier;
\set file :written '/source.parquet'
COPY source TO :'file' (FORMAT parquet);
COPY (SELECT 1 AS a) TO :'file' (FORMAT parquet);
RESET ROLE;
-- Policies hold.
ALTER TABLE source ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON source FOR SELECT TO copier USING (k <= 10);
GRANT SELECT ON source TO copier;
SET ROLE copier;
COPY source TO :'file' (FORMAT parquet);
RESET ROLE;
ALTER TABLE source DISABLE ROW LEVEL SECURITY;

-- A folder, files of a size, and the form for GPUs: the same rows.
SELECT count(*), sum(row_count) FROM pystachio.write_parquet('SELECT * FROM source', :'written' || '/folder');
SELECT count(*), sum(row_count) FROM pystachio.write_parquet('SELECT * FROM source', :'written' || '/folder');
SELECT count(*) > 3 AS several, sum(row_count), min(bytes) > 0 AS sized
FROM pystachio.write_parquet('SELECT i, sha256(i::text::bytea) AS s FROM generate_series(1, 300000) i', :'written' || '/sizes', file_size => '2MB', compression => 'none');
SELECT reads('sizes', 'i integer, s bytea', 'sizes');
SELECT count(*), sum(i), count(*) FILTER (WHERE s = sha256(i::text::bytea)) FROM sizes;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM source ORDER BY k', :'written' || '/gpu/a.parquet', layout => 'gpu');
SELECT reads('gpu', 'k integer, g integer, t text, n numeric(12,3)', 'gpu');
SELECT * FROM source EXCEPT ALL SELECT * FROM gpu;
SELECT count(*) FROM gpu;
\! ls -a "$PYSTACHIO_REGRESS_SCRATCH/forms/gpu"; stat -c '%a %n' "$PYSTACHIO_REGRESS_SCRATCH/forms/query.parquet"

-- Partitions are folders, whose names hold the values.
CREATE TABLE parts (d date, t text, b boolean, k integer);
INSERT INTO parts VALUES ('2026-01-02', 'a', true, 1), ('2026-01-02', 'a', true, 2), ('2026-01-03', 'a/b=c %', false, 3), (NULL, 'ä', NULL, 4), ('2026-01-02', 'a', true, 5);
SELECT regexp_replace(file, '.*/forms/', '') AS file, row_count FROM pystachio.write_parquet('SELECT * FROM parts', :'written' || '/parts', partition_by => '{d,t,b}') ORDER BY 1;
SELECT reads('parts_read', 'k integer', 'parts');
SELECT * FROM parts_read ORDER BY k;
-- More partitions than files that are open at one time.
SELECT count(*) >= 300 AS enough, sum(row_count), count(DISTINCT regexp_replace(file, '/[^/]*$', ''))
FROM pystachio.write_parquet('SELECT i AS k, i % 300 AS part FROM generate_series(1, 200000) i', :'written' || '/many', partition_by => '{part}');
SELECT reads('many_read', 'k integer', 'many');
SELECT count(*), sum(k) FROM many_read;
SELECT run('CREATE FOREIGN TABLE parted (k integer, g smallint) SERVER pystachio OPTIONS (path ''{}/parted'', writable ''true'', partition_by ''g'', compression ''lz4'')');
INSERT INTO parted VALUES (1, 1), (2, 2), (3, NULL);
BEGIN;
INSERT INTO parted VALUES (4, 4);
ROLLBACK;
\! cd "$PYSTACHIO_REGRESS_SCRATCH/forms/parted" && find . -type d | LC_ALL=C sort
SELECT reads('parted_read', 'k integer', 'parted');
SELECT * FROM parted_read ORDER BY k;
-- The table reads what it has written, and prunes.
SELECT * FROM parted ORDER BY k;
SELECT * FROM parted WHERE g = 2;
SELECT reads('parts_whole', 'd date, t text, b boolean, k integer', 'parts');
SELECT * FROM parts_whole ORDER BY k;
ALTER FOREIGN TABLE parted ADD COLUMN more text;
INSERT INTO parted VALUES (5, 1, 'new');
SELECT * FROM parted ORDER BY k;
ALTER FOREIGN TABLE parted DROP COLUMN more;
INSERT INTO parted VALUES (6, 1);
SELECT * FROM parted WHERE g = 1 ORDER BY k;
ALTER FOREIGN TABLE parted ADD COLUMN file text OPTIONS (reads 'filename');
SELECT k, substring(file from 'parted/(g=[0-9]*)') FROM parted WHERE g = 1 ORDER BY k;
INSERT INTO parted VALUES (7, 1);
TRUNCATE parted;
ALTER FOREIGN TABLE parted DROP COLUMN file;
TRUNCATE parted;
SELECT * FROM parted;
INSERT INTO parted VALUES (8, 8);
SELECT * FROM parted;

-- A query that an engine computes whole is written by the engine: no row comes to PostgreSQL.
CREATE FUNCTION rows_of_scan(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || command LOOP
    IF line ~ 'Foreign Scan' THEN RETURN substring(line FROM 'rows=([0-9]+)'); END IF;
  END LOOP;
END $$;
SELECT run('CREATE FOREIGN TABLE copied (k integer, g integer, t text, n numeric(12,3)) SERVER pystachio OPTIONS (path ''{}/copied'', writable ''true'')');
SELECT rows_of_scan('INSERT INTO copied SELECT * FROM gpu WHERE k <= 1000');
SELECT rows_of_scan('INSERT INTO copied (k, t) SELECT k + 200000, t FROM gpu WHERE k <= 10');
SELECT rows_of_scan('INSERT INTO copied SELECT k + 300000, g, ''of '' || t, n FROM gpu WHERE k <= 10 ORDER BY t LIMIT 5');
INSERT INTO copied SELECT k, max(g), min(t), sum(n)::numeric(12,3) FROM gpu WHERE k > 1000 GROUP BY k ORDER BY k;
PREPARE add(integer) AS INSERT INTO copied SELECT k + 100000, g, t, n FROM gpu WHERE k < $1;
EXECUTE add(4);
EXECUTE add(2);
SELECT count(*), sum(k), sum(g), sum(n), min(t), max(t) FROM copied;
SELECT count(*) FROM (SELECT * FROM copied WHERE k < 100000 EXCEPT ALL SELECT * FROM source) x;
-- What PostgreSQL has to see comes to PostgreSQL.
SELECT rows_of_scan('INSERT INTO copied SELECT * FROM gpu WHERE k <= 10 RETURNING k');
SELECT rows_of_scan('INSERT INTO copied SELECT k, g, t || random()::text, n FROM gpu WHERE k <= 10');
SELECT run('CREATE FOREIGN TABLE strict (k integer NOT NULL, g integer, t text, n numeric(12,3)) SERVER pystachio OPTIONS (path ''{}/strict'', writable ''true'')');
SELECT rows_of_scan('INSERT INTO strict SELECT * FROM gpu WHERE k <= 10');
INSERT INTO strict SELECT NULL, g, t, n FROM gpu WHERE k = 7;
SELECT count(*) FROM strict;
-- Errors of the engine, and a rollback.
INSERT INTO copied SELECT 1 / (k - 5), g, t, n FROM gpu;
BEGIN;
INSERT INTO copied SELECT * FROM gpu;
ROLLBACK;
SELECT count(*) FROM copied;
\set file :written '/whole.parquet'
COPY (SELECT g, count(*) AS rows, max(t) AS t, 'x' AS x FROM gpu GROUP BY g ORDER BY g) TO :'file' (FORMAT parquet);
SELECT reads('whole', 'g integer, rows bigint, t text, x text', 'whole.parquet');
SELECT * FROM whole;
COPY gpu TO :'file' (FORMAT parquet, layout gpu);
SELECT row_count FROM pystachio.write_parquet('SELECT k, n FROM gpu WHERE t LIKE ''%7''', :'written' || '/sevens.parquet');
SELECT reads('sevens', 'k integer, n numeric(12,3)', 'sevens.parquet');
SELECT count(*), sum(k), sum(n) FROM sevens;
SELECT count(*), sum(k), sum(n) FROM gpu WHERE t LIKE '%7';
COPY (SELECT 1 / (k - 5) AS k FROM gpu) TO :'file' (FORMAT parquet);
COPY (SELECT sum(n) AS n FROM gpu) TO :'file' (FORMAT parquet);

-- Numbers of more than 38 digits, and times of UTC.
CREATE TABLE long (k integer, n numeric(76,38), w numeric(39,0), f numeric(2,70), list numeric(40,2)[], t timetz, ts timetz[]);
INSERT INTO long VALUES
  (1, (repeat('9', 38) || '.' || repeat('9', 38))::numeric, repeat('9', 39)::numeric, ('-0.' || repeat('0', 68) || '99')::numeric, ARRAY[1, NULL, -99999999999999999999999999999999999999.99], '00:00+00', '{}'),
  (2, ('-' || repeat('9', 38) || '.' || repeat('9', 38))::numeric, -repeat('9', 39)::numeric, ('0.' || repeat('0', 68) || '1')::numeric, '{}', '23:59:59.999999+00', ARRAY['12:00:00.5+00', NULL]::timetz[]),
  (3, 0, 0, 0, NULL, NULL, NULL),
  (4, ('0.' || repeat('0', 37) || '1')::numeric, 10000, NULL, '{0}', '24:00+00', NULL),
  (5, 17014118346046923173168730371588410572.8, 170141183460469231731687303715884105728, NULL, NULL, '12:34:56+00', NULL),
  (6, -10000.0001, 100000000000000000000000000000000000000, NULL, NULL, '01:00+00', NULL),
  (7, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT row_count FROM pystachio.write_parquet('TABLE long', :'written' || '/long.parquet');
SELECT row_count FROM pystachio.write_parquet('TABLE long', :'written' || '/long_gpu.parquet', layout => 'gpu');
SELECT row_count FROM pystachio.write_parquet('TABLE long', :'written' || '/long_sorted.parquet', sort_by => 'n DESC NULLS LAST, w');
SELECT reads('long_' || name, 'k integer, n numeric(76,38), w numeric(39,0), f numeric(2,70), list numeric(40,2)[], t timetz, ts timetz[]', file || '.parquet')
FROM (VALUES ('read', 'long'), ('gpu_read', 'long_gpu'), ('sorted_read', 'long_sorted')) f (name, file);
CREATE FUNCTION differs(one text, other text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  result bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM ((SELECT t::text FROM %1$s t EXCEPT ALL SELECT t::text FROM %2$s t) UNION ALL (SELECT t::text FROM %2$s t EXCEPT ALL SELECT t::text FROM %1$s t)) d', one, other) INTO result;
  RETURN result;
END $$;
SELECT differs('long', 'long_read'), differs('long', 'long_gpu_read'), differs('long', 'long_sorted_read');
SELECT k, n, w, f, list, t, ts FROM long_read ORDER BY k;
SELECT k FROM long_sorted_read;
SELECT column_name, type, file_type FROM pystachio.describe(:'written' || '/long.parquet');
SELECT run('CREATE FOREIGN TABLE long_written (k integer, n numeric(76,38), w numeric(39,0), f numeric(2,70), list numeric(40,2)[], t timetz, ts timetz[]) SERVER pystachio OPTIONS (path ''{}/long_written'', writable ''true'')');
INSERT INTO long_written TABLE long;
INSERT INTO long_written SELECT k + 10, n, w, f, list, t, ts FROM long_read;
SELECT differs('(SELECT * FROM long UNION ALL SELECT k + 10, n, w, f, list, t, ts FROM long)', 'long_written');
SELECT rows_of_scan('INSERT INTO long_written SELECT * FROM long_read');
-- Values and types that files don't hold.
INSERT INTO long_written (k, n) VALUES (20, 'NaN');
INSERT INTO long_written (k, w) VALUES (20, 'Infinity');
INSERT INTO long_written (k, t) VALUES (20, '12:00+02');
INSERT INTO long_written (k, ts) VALUES (20, '{12:00+00,12:00-00:30}');
INSERT INTO long_written (k, t) VALUES (20, timetz '12:00+02' AT TIME ZONE 'UTC');
SELECT t FROM long_written WHERE k = 20;
SELECT pystachio.write_parquet('SELECT 1::numeric(77,0) AS a', :'written' || '/never.parquet');
SELECT pystachio.write_parquet('SELECT 1::numeric(40,-2) AS a', :'written' || '/never.parquet');
SELECT pystachio.write_parquet('SELECT 1::numeric AS a', :'written' || '/never.parquet');
CREATE TYPE with_zone AS (a integer, t timetz);
SELECT pystachio.write_parquet('SELECT ROW(1, ''12:00+00'')::with_zone AS a', :'written' || '/never.parquet');
CREATE TYPE with_long AS (a integer, n numeric(50,10));
SELECT row_count FROM pystachio.write_parquet('SELECT ROW(1, 1234567890123456789012345678901234567890.0000000001)::with_long AS a', :'written' || '/record.parquet');
SELECT reads('record', 'a with_long', 'record.parquet');
SELECT a, (a).n FROM record;

-- TRUNCATE: all files go with the commit.
SELECT run('CREATE FOREIGN TABLE emptied (k integer) SERVER pystachio OPTIONS (path ''{}/emptied'', writable ''true'')');
TRUNCATE emptied;
SELECT * FROM emptied;
INSERT INTO emptied VALUES (1);
INSERT INTO emptied VALUES (2);
BEGIN;
INSERT INTO emptied VALUES (3);
SAVEPOINT a;
TRUNCATE emptied;
ROLLBACK TO a;
COMMIT;
SELECT * FROM emptied ORDER BY k;
BEGIN;
TRUNCATE emptied;
INSERT INTO emptied VALUES (4);
SELECT * FROM emptied ORDER BY k;
ROLLBACK;
SELECT * FROM emptied ORDER BY k;
BEGIN;
INSERT INTO emptied VALUES (5);
SAVEPOINT b;
TRUNCATE emptied;
RELEASE b;
INSERT INTO emptied VALUES (6);
COMMIT;
SELECT * FROM emptied ORDER BY k;
\! ls -A "$PYSTACHIO_REGRESS_SCRATCH/forms/emptied" | sed -E 's/[0-9a-f]{14}-[0-9a-f]{16}/NUMBER/' | sort
BEGIN;
TRUNCATE emptied;
PREPARE TRANSACTION 'never';
TRUNCATE gpu;
SELECT run('CREATE FOREIGN TABLE pattern (k integer) SERVER pystachio OPTIONS (path ''{}/abov*'', writable ''true'')');
SELECT run('CREATE FOREIGN TABLE one (k integer) SERVER pystachio OPTIONS (path ''{}/above.parquet'', writable ''true'')');
TRUNCATE pattern;
TRUNCATE one;
SELECT * FROM one;
SELECT count(*) FROM gpu;

-- What is refused.
SELECT pystachio.write_parquet('SELECT 1 AS a, 2 AS b', :'written' || '/never.parquet', partition_by => '{a}');
SELECT pystachio.write_parquet('SELECT 1 AS a, 2 AS b', :'written' || '/never.parquet', file_size => '2MB');
SELECT pystachio.write_parquet('SELECT 1 AS a, 2 AS b', :'written' || '/never', partition_by => '{c}');
SELECT pystachio.write_parquet('SELECT 1 AS a, 2 AS b', :'written' || '/never', partition_by => '{a,a}');
SELECT pystachio.write_parquet('SELECT 1 AS a, 2 AS b', :'written' || '/never', partition_by => '{a,b}');
SELECT pystachio.write_parquet('SELECT 1.5::real AS a, 2 AS b', :'written' || '/never', partition_by => '{a}');
SELECT pystachio.write_parquet('SELECT 1 AS _a, 2 AS b', :'written' || '/never', partition_by => '{_a}');
SELECT pystachio.write_parquet('SELECT ''''::text AS a, 2 AS b', :'written' || '/never', partition_by => '{a}');
SELECT pystachio.write_parquet('SELECT ''infinity''::date AS a, 2 AS b', :'written' || '/never', partition_by => '{a}');
SELECT pystachio.write_parquet('SELECT repeat(''x'', 300) AS a, 2 AS b', :'written' || '/never', partition_by => '{a}');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never', file_size => '1kB');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never', layout => 'row');
SELECT run('CREATE FOREIGN TABLE wrong (k integer) SERVER pystachio OPTIONS (path ''{}/x'', partition_by ''a,,b'')');
SELECT run('CREATE FOREIGN TABLE wrong (k integer) SERVER pystachio OPTIONS (path ''{}/x'', row_group_rows ''many'')');
\! ls -a "$PYSTACHIO_REGRESS_SCRATCH/forms"

DROP SCHEMA write_forms CASCADE;
REVOKE ALL ON SCHEMA pystachio FROM copier;
DROP ROLE copier;
