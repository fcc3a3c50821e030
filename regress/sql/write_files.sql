--
-- Rows written to Parquet files: INSERT, COPY FROM and write_parquet.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA write_files;
SET search_path = write_files, public;
SET timezone = 'UTC';
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf written && mkdir -m 777 written
SELECT set_config('test.written', :'scratch' || '/written', false) IS NOT NULL AS set;

-- A table over a folder of the scratch folder, with these columns.
CREATE FUNCTION writable(name text, columns text, folder text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE FOREIGN TABLE %I (%s) SERVER pystachio OPTIONS (path %L, writable ''true'')', name, columns,
    current_setting('test.written') || '/' || coalesce(folder, name));
END $$;
-- The files of a folder: how many have a name that scans see, and how many another.
CREATE FUNCTION files(folder text, OUT seen bigint, OUT hidden bigint) LANGUAGE sql AS $$
  SELECT count(*) FILTER (WHERE name ~ '^rows-[0-9a-f]{14}-[0-9a-f]{16}-[0-9]+\.parquet$'), count(*) FILTER (WHERE name ~ '^\.')
  FROM pg_ls_dir(current_setting('test.written') || '/' || folder, true, false) name
$$;
-- Waits until the engine has removed the files of a write that has failed.
CREATE FUNCTION settle(folder text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE (SELECT hidden FROM files(folder)) > 0 LOOP PERFORM pg_sleep(0.01); END LOOP;
END $$;

-- Every type, with the values at its ends.
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TABLE every_type (
  id integer NOT NULL, b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision, n9 numeric(9,2), n18 numeric(18,0),
  n38 numeric(38,10), n4 numeric(2,4), t text, v varchar(5), c char(4), j json, y bytea, u uuid, d date, h time, m timestamp, z timestamptz, p positive,
  ai integer[], at text[], an numeric(5,1)[], ad date[], ac char(3)[], az timestamptz[], aj json[], au uuid[], ab boolean[], ay bytea[]);
INSERT INTO every_type VALUES
  (1, true, -32768, -2147483648, -9223372036854775808, '-0', '-0', -9999999.99, -999999999999999999, -9999999999999999999999999999.9999999999, -0.0099,
   '', '', '', 'null', '', '00000000-0000-0000-0000-000000000000', '4714-11-24 BC', '00:00', '4714-11-24 00:00 BC', '4714-11-24 00:00 BC', 1,
   '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'),
  (2, false, 32767, 2147483647, 9223372036854775807, 'NaN', 'NaN', 9999999.99, 999999999999999999, 9999999999999999999999999999.9999999999, 0.0099,
   'ä€😀', 'ä€😀', 'ä€😀 ', '{"a": [1,  2]}', '\x00ff', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '5874897-12-31', '24:00', '294246-12-31 23:59:59.999999', '294246-12-31 23:59:59.999999', 2147483647,
   '{1,NULL,-3}', '{"",NULL,ä}', '{1.5,NULL,-9999.9}', '{infinity,NULL,2000-01-01}', '{a,NULL,"b "}', '{-infinity,2000-01-01 00:00}', '{"{\"a\": 1}",NULL}',
   '{00000000-0000-0000-0000-00000000000a,NULL}', '{t,NULL,f}', '{"\\x00",NULL,"\\x"}'),
  (3, NULL, NULL, NULL, NULL, 'Infinity', '-Infinity', 0, 0, 0.00, 0, ' x ', 'x', ' x', '[]', '\x', NULL, 'infinity', '12:34:56.789012', 'infinity', 'infinity', NULL,
   '{NULL}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, NULL, 0, 0, 0, '1.1754944e-38', '4.9e-324', 0.01, 1, 1e-10, 0.0001, E'\x01', NULL, NULL, NULL, NULL, NULL, '-infinity', NULL, '-infinity', '-infinity', NULL,
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT writable('types', string_agg(format('%I %s%s', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END), ', ' ORDER BY attnum))
FROM pg_attribute WHERE attrelid = 'every_type'::regclass AND attnum > 0;
INSERT INTO types SELECT * FROM every_type;
SELECT count(*) FROM types;
SELECT w::text FROM every_type w EXCEPT ALL SELECT w::text FROM types w;
SELECT w::text FROM types w EXCEPT ALL SELECT w::text FROM every_type w;
SELECT * FROM files('types');
-- What IMPORT makes of the file is what was declared, but for lengths and domains.
SELECT file ~ '/imported/types\.parquet$' AS named, row_count, bytes > 0 AS has_bytes
FROM pystachio.write_parquet('SELECT * FROM every_type ORDER BY id', :'scratch' || '/written/imported/types.parquet');
DROP SCHEMA IF EXISTS imported CASCADE;
CREATE SCHEMA imported;
SELECT format('IMPORT FOREIGN SCHEMA files FROM SERVER pystachio INTO imported OPTIONS (path %L)', current_setting('test.written') || '/imported') \gexec
SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'imported.types'::regclass AND attnum > 0;
SELECT w::text FROM every_type w EXCEPT ALL SELECT w::text FROM (SELECT id, b, i2, i4, i8, f4, f8, n9, n18, n38, n4::numeric(2,4), t, v::varchar(5), c::char(4), j, y, u, d, h, m, z, p::positive,
  ai, at, an, ad, ac::char(3)[], az, aj, au, ab, ay FROM imported.types) w;

-- COPY FROM, several times, and statements that read what they add to.
SELECT writable('numbers', 'k integer NOT NULL, v text DEFAULT ''none'', d integer GENERATED ALWAYS AS (k * 2) STORED');
COPY numbers (k, v) FROM STDIN;
1	one
2	\N
\.
INSERT INTO numbers (k) VALUES (3);
INSERT INTO numbers (k) SELECT k + 10 FROM numbers;
SELECT * FROM numbers ORDER BY k;
SELECT * FROM files('numbers');
INSERT INTO numbers (k) SELECT 1 WHERE false;
SELECT * FROM files('numbers');
PREPARE add(integer) AS INSERT INTO numbers (k) VALUES ($1);
EXECUTE add(20);
EXECUTE add(21);
INSERT INTO numbers (k) VALUES (22) ON CONFLICT DO NOTHING;
SELECT count(*), sum(d) FROM numbers;
-- Not aligned: the width would be that of the path.
\a
EXPLAIN (COSTS OFF) INSERT INTO numbers (k) VALUES (1);
\a
SELECT * FROM files('numbers');
INSERT INTO numbers (k) VALUES (23), (24) RETURNING *, tableoid::regclass;
WITH added AS (INSERT INTO numbers (k) VALUES (25) RETURNING d) SELECT * FROM added;
-- More rows than a batch has.
SELECT writable('many', 'i bigint, t text');
INSERT INTO many SELECT i, repeat('x', (i % 50)::integer) FROM generate_series(1, 200000) i;
SELECT count(*), sum(i), sum(length(t)) FROM many;

-- Names come with the commit, and go with an abort.
SELECT writable('steps', 'k integer');
BEGIN;
INSERT INTO steps VALUES (1);
SELECT * FROM files('steps');
SAVEPOINT a;
INSERT INTO steps VALUES (2);
SELECT * FROM files('steps');
ROLLBACK TO a;
SELECT * FROM files('steps');
SAVEPOINT b;
INSERT INTO steps VALUES (3);
RELEASE b;
COMMIT;
SELECT * FROM files('steps');
SELECT * FROM steps ORDER BY k;
BEGIN;
INSERT INTO steps VALUES (4);
ROLLBACK;
SELECT * FROM files('steps');
INSERT INTO steps SELECT 1 / (3 - i) FROM generate_series(1, 3) i;
SELECT settle('steps');
SELECT * FROM files('steps');
DO $$
BEGIN
  INSERT INTO steps VALUES (5);
  BEGIN
    INSERT INTO steps VALUES (6);
    RAISE EXCEPTION 'undone';
  EXCEPTION WHEN raise_exception THEN NULL;
  END;
END $$;
SELECT * FROM steps ORDER BY k;
BEGIN;
INSERT INTO steps VALUES (7);
PREPARE TRANSACTION 'files';
SELECT * FROM files('steps');
-- A deferred constraint that fails at the commit.
CREATE TABLE checked (k integer UNIQUE DEFERRABLE INITIALLY DEFERRED);
BEGIN;
INSERT INTO steps VALUES (8);
INSERT INTO checked VALUES (1), (1);
COMMIT;
SELECT * FROM files('steps');
-- A folder that an aborted transaction made goes with it.
SELECT writable('fresh', 'k integer', 'new/below');
BEGIN;
INSERT INTO fresh VALUES (1);
SELECT * FROM files('new/below');
ROLLBACK;
SELECT * FROM files('new');

-- Constraints, triggers, views and partitions.
SELECT writable('constrained', 'k integer NOT NULL CHECK (k < 10), p positive');
INSERT INTO constrained VALUES (NULL, 1);
INSERT INTO constrained VALUES (10, 1);
INSERT INTO constrained VALUES (1, -1);
COPY constrained FROM STDIN;
1	1
11	1
\.
INSERT INTO constrained VALUES (9, NULL);
CREATE VIEW few AS SELECT * FROM constrained WHERE k > 5 WITH CHECK OPTION;
INSERT INTO few VALUES (6, 1);
INSERT INTO few VALUES (5, 1);
SELECT * FROM constrained ORDER BY k;
CREATE TABLE seen (what text, k integer);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_WHEN = 'BEFORE' THEN NEW.k := NEW.k + 1; END IF;
  INSERT INTO seen VALUES (TG_WHEN, NEW.k);
  RETURN NEW;
END $$;
CREATE TRIGGER before BEFORE INSERT ON steps FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER after AFTER INSERT ON steps FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO steps VALUES (100) RETURNING k;
SELECT * FROM seen;
DROP TRIGGER before ON steps;
DROP TRIGGER after ON steps;
CREATE TABLE parted (k integer, t text) PARTITION BY RANGE (k);
SELECT writable('low', 'k integer, t text'), writable('high', 't text, k integer');
ALTER TABLE parted ATTACH PARTITION low FOR VALUES FROM (0) TO (10);
ALTER TABLE parted ATTACH PARTITION high FOR VALUES FROM (10) TO (20);
INSERT INTO parted SELECT i, 'row ' || i FROM generate_series(0, 19, 3) i;
COPY parted FROM STDIN;
1	copied
11	copied
\.
SELECT tableoid::regclass, * FROM parted ORDER BY k;
INSERT INTO low VALUES (10, 'beyond');

-- Files of one name.
SELECT writable('same', 'k integer', 'same');
SELECT row_count FROM pystachio.write_parquet('SELECT 1 AS k', :'scratch' || '/written/same/a.parquet');
SELECT row_count FROM pystachio.write_parquet('SELECT 2 AS k', :'scratch' || '/written/same/a.parquet');
SELECT row_count FROM pystachio.write_parquet('VALUES (3), (4)', :'scratch' || '/written/same/b.parquet');
SELECT row_count FROM pystachio.write_parquet('SELECT 3 AS k', :'scratch' || '/written/same/a.parquet', overwrite => true, compression => 'zstd');
SELECT * FROM same ORDER BY k;
\! rm "$PYSTACHIO_REGRESS_SCRATCH/written/same/b.parquet"
SELECT * FROM same;
BEGIN;
SELECT row_count FROM pystachio.write_parquet('SELECT 4 AS k', :'scratch' || '/written/same/a.parquet', true);
SELECT row_count FROM pystachio.write_parquet('SELECT k + 2 AS k FROM same', :'scratch' || '/written/same/a.parquet', true);
SELECT * FROM same;
COMMIT;
SELECT * FROM same;
BEGIN;
SELECT row_count FROM pystachio.write_parquet('SELECT 6 AS k', :'scratch' || '/written/same/a.parquet', true);
INSERT INTO checked VALUES (1), (1);
COMMIT;
SELECT * FROM same;
\! ls -a "$PYSTACHIO_REGRESS_SCRATCH/written/same"
SELECT row_count FROM pystachio.write_parquet('SELECT 1 AS k WHERE false', :'scratch' || '/written/same/a.parquet', true);
SELECT * FROM same;

-- What is refused.
INSERT INTO every_type (id, n9) VALUES (6, 'NaN');
INSERT INTO types (id, n9) SELECT id, n9 FROM every_type;
INSERT INTO types (id, m) VALUES (7, '294276-12-31');
INSERT INTO types (id, ai) VALUES (7, '{{1,2},{3,4}}');
INSERT INTO types (id, ai) VALUES (7, '[0:1]={1,2}');
SELECT count(*) FROM types;
SELECT writable('bare', 'n numeric'), writable('long', 'n numeric(77,0)'), writable('times', 'i interval'), writable('binary_json', 'j jsonb');
INSERT INTO bare VALUES (1);
INSERT INTO long VALUES (1);
INSERT INTO times VALUES ('1 day');
INSERT INTO binary_json VALUES ('{}');
UPDATE numbers SET k = 0;
DELETE FROM numbers;
INSERT INTO numbers (k) VALUES (1) ON CONFLICT (k) DO NOTHING;
CREATE FOREIGN TABLE closed (k integer) SERVER pystachio OPTIONS (path '/nowhere', writable 'false');
INSERT INTO closed VALUES (1);
COPY closed FROM '/dev/null';
SELECT table_name, is_insertable_into FROM information_schema.tables WHERE table_name IN ('closed', 'numbers') AND table_schema = 'write_files' ORDER BY 1;
ALTER FOREIGN TABLE closed OPTIONS (SET writable 'maybe');
ALTER FOREIGN TABLE closed OPTIONS (SET writable 'true');
INSERT INTO closed VALUES (1);
ALTER FOREIGN TABLE closed OPTIONS (SET path '/no*where');
INSERT INTO closed VALUES (1);
ALTER FOREIGN TABLE closed OPTIONS (SET path '/nowhere{rank}');
INSERT INTO closed VALUES (1);
ALTER FOREIGN TABLE closed OPTIONS (DROP path, ADD paths '{/a,/b}');
INSERT INTO closed VALUES (1);
SELECT writable('one_file', 'k integer', 'same/a.parquet'), writable('other_type', 'k bigint', 'steps'), writable('more', 'k integer, l integer', 'steps'),
  writable('less', 'v text', 'numbers');
INSERT INTO one_file VALUES (1);
INSERT INTO other_type VALUES (1);
INSERT INTO more VALUES (1);
INSERT INTO less VALUES ('x');
SELECT pystachio.write_parquet('SELECT 1 AS a, 2 AS a', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('SELECT', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('SELECT 1; SELECT 2', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('DELETE FROM every_type RETURNING id', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('CREATE TABLE never AS SELECT 1', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('SELECT nothing', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('SELECT 1 / 0 AS a', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('SELECT sum(1.5) AS total', :'scratch' || '/written/never.parquet');
SELECT pystachio.write_parquet('SELECT 1 AS a', 'relative.parquet');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'scratch' || '/written/never.parquet', compression => 'gzip');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'scratch' || '/written/never.parquet', row_group_rows => 1);
SELECT pystachio.write_parquet('SELECT 1 AS a', :'scratch' || '/written/never.parquet', row_group_rows => -1);
SELECT pystachio.write_parquet('SELECT 1 AS a', :'scratch' || '/written/never.parquet', server => 'none');
\! ls -a "$PYSTACHIO_REGRESS_SCRATCH/written"
-- Rights.
CREATE ROLE writer_of_files;
GRANT USAGE ON SCHEMA write_files, pystachio TO writer_of_files;
GRANT SELECT ON numbers TO writer_of_files;
GRANT pg_read_server_files TO writer_of_files;
GRANT USAGE ON FOREIGN SERVER pystachio TO writer_of_files;
GRANT CREATE ON SCHEMA write_files TO writer_of_files;
SET ROLE writer_of_files;
INSERT INTO numbers (k) VALUES (30);
SELECT pystachio.write_parquet('SELECT 1 AS a', '/tmp/never.parquet');
CREATE FOREIGN TABLE own (k integer) SERVER pystachio OPTIONS (path '/nowhere', writable 'true');
RESET ROLE;
GRANT INSERT ON numbers TO writer_of_files;
SET ROLE writer_of_files;
INSERT INTO numbers (k) VALUES (30);
RESET ROLE;
SELECT count(*) FROM numbers WHERE k = 30;

DROP SCHEMA imported CASCADE;
DROP SCHEMA write_files CASCADE;
REVOKE ALL ON FOREIGN SERVER pystachio FROM writer_of_files;
REVOKE ALL ON SCHEMA pystachio FROM writer_of_files;
DROP ROLE writer_of_files;
