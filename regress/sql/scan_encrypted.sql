--
-- Encrypted files: of pyarrow with one key and with keys of a KMS, and of DuckDB. On the CPU engine and on the emulated device.
--
\getenv data PYSTACHIO_REGRESS_DATA
\set files :data '/_encrypted'
\set keys :files '/keys.sql'
\i :keys
SELECT set_config('test.files', :'files', false) AS files \gset
CREATE SERVER on_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
CREATE SERVER on_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
SET pystachio.engine_choice = gpu;
CREATE SCHEMA encrypted;
SET search_path = encrypted, public;
CREATE TABLE heap AS SELECT n AS id, CASE WHEN n % 5 <> 0 THEN 'name ' || n % 7 END AS name, (n * 1.25)::numeric(9,2) AS amount,
  DATE '2024-01-01' + n AS day, 'city ' || n % 3 AS city, n AS zip FROM generate_series(1, 300) n;

-- How many rows of a query over each file differ from the heap's, by engine; or the error.
CREATE FUNCTION differing(files text[]) RETURNS TABLE (file text, engine text, different text) LANGUAGE plpgsql AS $$
DECLARE
  query text;
  hint text;
BEGIN
  FOREACH file IN ARRAY files LOOP
    FOR engine IN VALUES ('cpu'), ('device') LOOP
      EXECUTE format('CREATE FOREIGN TABLE t (id integer, name text, amount numeric(9,2), day date, city text OPTIONS (column_name ''place.city''), '
        'zip integer OPTIONS (column_name ''place.zip'')) SERVER on_%s OPTIONS (path %L)', engine, current_setting('test.files') || '/' || file || '.parquet');
      different := '';
      FOREACH query IN ARRAY ARRAY['SELECT * FROM @', 'SELECT name, day, zip FROM @ WHERE id BETWEEN 95 AND 108 AND amount > 120',
        'SELECT name, city, count(*), sum(amount), max(day), min(zip) FROM @ GROUP BY name, city', 'SELECT id FROM @ WHERE name = ''name 3'' AND zip > 250']
      LOOP
        BEGIN
          EXECUTE format('WITH ours AS MATERIALIZED (%s), heap AS MATERIALIZED (%s) SELECT %L || '' '' || count(*) FROM ((TABLE ours EXCEPT ALL TABLE heap) UNION ALL (TABLE heap EXCEPT ALL TABLE ours)) d',
            replace(query, '@', 't'), replace(query, '@', 'heap'), different) INTO different;
        EXCEPTION WHEN OTHERS THEN
          GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
          different := SQLSTATE || ' ' || SQLERRM || ' | ' || hint;
          EXIT;
        END;
      END LOOP;
      DROP FOREIGN TABLE t;
      RETURN NEXT;
    END LOOP;
  END LOOP;
END $$;

\pset format unaligned

-- No keys.
SELECT * FROM differing('{gcm,plain_footer,kms,kms_single,duckdb}');
\set file :files '/kms_single.parquet'
CREATE FOREIGN TABLE of_single (id integer, city text OPTIONS (column_name 'place.city')) SERVER on_cpu OPTIONS (path :'file');
SELECT count(*), sum(id), max(city) FROM of_single; -- what is plain of a file with a plain footer
IMPORT FOREIGN SCHEMA files LIMIT TO (gcm, kms_single, plain_footer) FROM SERVER on_cpu INTO encrypted OPTIONS (path :'files');
IMPORT FOREIGN SCHEMA files LIMIT TO (kms_single) FROM SERVER on_cpu INTO encrypted OPTIONS (path :'files');
SELECT column_name, type FROM pystachio.describe(:'files' || '/kms_single.parquet', server => 'on_cpu');
DROP FOREIGN TABLE kms_single;

-- Options that are no keys. No value is shown.
CREATE USER MAPPING FOR CURRENT_USER SERVER on_cpu OPTIONS (footer_key 'secret');
CREATE USER MAPPING FOR CURRENT_USER SERVER on_cpu OPTIONS (column_keys 'name:30313233343536373839303132333435,amount');
CREATE USER MAPPING FOR CURRENT_USER SERVER on_cpu OPTIONS (key_list ':30313233343536373839303132333435');
CREATE USER MAPPING FOR CURRENT_USER SERVER on_cpu OPTIONS (footer_keys '30313233343536373839303132333435');

-- One key, of each length, in both forms.
CREATE USER MAPPING FOR CURRENT_USER SERVER on_cpu OPTIONS (footer_key '30313233343536373839303132333435');
CREATE USER MAPPING FOR CURRENT_USER SERVER on_device OPTIONS (footer_key '30313233343536373839303132333435');
SELECT * FROM differing('{gcm,gcm_v2,ctr,plain_footer,plain_footer_ctr,prefix_stored,duckdb}');
SELECT * FROM differing('{gcm_192,prefix_supplied,kms}');
SELECT format('ALTER USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (SET footer_key %L)', engine, encode('012345678901234567890123', 'base64'))
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT * FROM differing('{gcm_192,ctr_192,gcm}');
SELECT format('ALTER USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (SET footer_key %L)', engine, encode('01234567890123456789012345678901', 'hex'))
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT * FROM differing('{gcm_256,ctr_256}');

-- AAD prefixes.
SELECT format('ALTER USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (SET footer_key ''30313233343536373839303132333435'', ADD aad_prefix ''the table'')', engine)
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT * FROM differing('{prefix_stored,prefix_supplied,gcm}');
SELECT format('ALTER USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (SET aad_prefix ''another'')', engine)
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT * FROM differing('{prefix_stored,prefix_supplied}');

-- Keys of a KMS, unwrapped by master keys.
SELECT format('DROP USER MAPPING FOR CURRENT_USER SERVER on_%s; CREATE USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (key_list %L)', engine, engine,
  format('kf:%s, k1:%s, k2:%s', encode('master-of-footer', 'hex'), encode('master-of-first.', 'base64'), encode('master-of-second', 'hex')))
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT * FROM differing('{kms,kms_single}');
-- Without one of them.
SELECT format('ALTER USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (SET key_list %L)', engine,
  format('kf:%s, k1:%s', encode('master-of-footer', 'hex'), encode('master-of-first.', 'hex')))
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT * FROM differing('{kms,kms_single}');
IMPORT FOREIGN SCHEMA files LIMIT TO (kms) FROM SERVER on_device INTO encrypted OPTIONS (path :'files');
SELECT attname FROM pg_attribute WHERE attrelid = 'kms'::regclass AND attnum > 0 ORDER BY attnum;
SELECT count(*), count(DISTINCT name), sum(amount) FROM kms;
ALTER FOREIGN TABLE kms ADD COLUMN day date, ADD COLUMN place jsonb, ADD COLUMN city text OPTIONS (column_name 'place.city');
SELECT max(name), max(city) FROM kms WHERE id < 10;
SELECT max(name) FROM kms WHERE day > '2024-03-01';
SELECT place FROM kms;
SELECT place->>'city' FROM kms WHERE id = 1;
ANALYZE kms;
-- A wrong one.
SELECT format('ALTER USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (SET key_list %L)', engine,
  format('kf:%s, k1:%s', encode('master-of-footer', 'hex'), encode('master-of-second', 'hex')))
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT sum(id) FROM kms;
SELECT max(name) FROM kms;
-- Keys that nothing wraps, by columns.
SELECT format('DROP USER MAPPING FOR CURRENT_USER SERVER on_%s; CREATE USER MAPPING FOR CURRENT_USER SERVER on_%s OPTIONS (column_keys %L)', engine, engine,
  format('name:%s,amount:%s', :'key_of_name', :'key_of_amount')) FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
IMPORT FOREIGN SCHEMA files LIMIT TO (kms_single) FROM SERVER on_device INTO encrypted OPTIONS (path :'files');
SELECT count(*) FROM (SELECT id, name, amount FROM kms_single EXCEPT SELECT id, name, amount FROM heap) d;
ALTER USER MAPPING FOR CURRENT_USER SERVER on_device OPTIONS (SET column_keys 'name:30313233343536373839303132333435');
SELECT max(name) FROM kms_single;
SELECT max(amount) FROM kms_single;

-- What a plan shows.
ALTER USER MAPPING FOR CURRENT_USER SERVER on_device OPTIONS (DROP column_keys, ADD footer_key '30313233343536373839303132333435');
ALTER USER MAPPING FOR CURRENT_USER SERVER on_cpu OPTIONS (DROP column_keys, ADD footer_key '30313233343536373839303132333435');
IMPORT FOREIGN SCHEMA files LIMIT TO (gcm) FROM SERVER on_device INTO encrypted OPTIONS (path :'files');
CREATE FUNCTION plan_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE 'EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF) ' || query;
END $$;
SELECT count(*) FILTER (WHERE line ~ '3031323334|0123456789') AS with_key, bool_or(line ~ 'Pruned: 2') AS prunes
FROM plan_of('SELECT max(name) FROM gcm WHERE id > 250') line;

-- Ranks in processes of their own.
CREATE SERVER on_ranks FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', ranks '2', memory '512MB', threads '2', rank_policy 'all');
CREATE USER MAPPING FOR CURRENT_USER SERVER on_ranks OPTIONS (footer_key '30313233343536373839303132333435');
\set file :files '/gcm.parquet'
CREATE FOREIGN TABLE on_ranks (id integer, name text, day date) SERVER on_ranks OPTIONS (path :'file');
SELECT name, count(*), max(day) FROM on_ranks WHERE id > 20 GROUP BY name ORDER BY name;
DROP SERVER on_ranks CASCADE;

-- Rewriting is not for encrypted files.
SELECT * FROM pystachio.optimize_parquet(:'files' || '/kms_single.parquet', :'files' || '/never.parquet');

-- What is kept of a file is found with the keys that it was read with, and by no other role.
CREATE ROLE regress_with_key;
CREATE ROLE regress_without_key;
CREATE ROLE regress_other_key;
GRANT USAGE ON SCHEMA encrypted TO regress_with_key, regress_without_key, regress_other_key;
GRANT USAGE ON FOREIGN SERVER on_device, on_cpu TO regress_with_key, regress_without_key, regress_other_key;
SELECT format('CREATE FOREIGN TABLE on_cpu (id integer, name text, day date) SERVER on_cpu OPTIONS (path %L)', :'files' || '/gcm.parquet') \gexec
GRANT SELECT ON gcm, on_cpu TO regress_with_key, regress_without_key, regress_other_key;
SELECT format('CREATE USER MAPPING FOR regress_%s_key SERVER on_%s OPTIONS (footer_key %L)', role, engine, key)
FROM (VALUES ('with', '30313233343536373839303132333435'), ('other', '40313233343536373839303132333435')) r (role, key), (VALUES ('cpu'), ('device')) e (engine) \gexec
SET ROLE regress_with_key;
SELECT max(name), max(day), count(*) FROM gcm;
SELECT max(name), max(day), count(*) FROM on_cpu;
SET ROLE regress_without_key;
SELECT max(name) FROM gcm;
SELECT max(name) FROM on_cpu;
SELECT count(*) FROM gcm;
SET ROLE regress_other_key;
SELECT max(name) FROM gcm;
SELECT max(name) FROM on_cpu;
SET ROLE regress_with_key;
SELECT max(name), max(day), count(*) FROM gcm;
RESET ROLE;
-- Of a view the owner's keys count, and no others.
CREATE VIEW of_owner AS SELECT name, day FROM gcm;
CREATE VIEW without_key AS SELECT name, day FROM gcm;
GRANT SELECT ON of_owner, without_key TO regress_with_key, regress_without_key;
ALTER VIEW of_owner OWNER TO regress_with_key;
ALTER VIEW without_key OWNER TO regress_without_key;
GRANT SELECT ON of_owner, without_key TO regress_with_key, regress_without_key;
SET ROLE regress_without_key;
SELECT max(name), max(day) FROM of_owner;
SELECT max(name), max(day) FROM gcm;
SET ROLE regress_with_key;
SELECT max(name), max(day) FROM without_key;
RESET ROLE;
-- A prepared plan.
SET plan_cache_mode = force_generic_plan;
GRANT SELECT ON gcm TO regress_with_key, regress_without_key;
SET ROLE regress_with_key;
PREPARE by_day AS SELECT max(name) FROM gcm WHERE day > $1;
EXECUTE by_day('2024-02-01');
SET ROLE regress_without_key;
EXECUTE by_day('2024-02-01');
RESET ROLE;
DEALLOCATE by_day;
-- One of a view whose owner has no key, made while the role that ran it had none either: another role's keys do not count, nor its own later.
CREATE ROLE regress_no_key;
GRANT USAGE ON SCHEMA encrypted TO regress_no_key;
GRANT USAGE ON FOREIGN SERVER on_device, on_cpu TO regress_no_key;
SELECT format('CREATE FOREIGN TABLE plain_footer_%s (id integer, name text) SERVER on_%1$s OPTIONS (path %L)', engine, :'files' || '/plain_footer.parquet')
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SELECT format('GRANT SELECT ON plain_footer_%1$s TO regress_with_key, regress_without_key, regress_no_key;
  CREATE VIEW of_no_key_%1$s AS SELECT id, name FROM plain_footer_%1$s; ALTER VIEW of_no_key_%1$s OWNER TO regress_without_key;
  CREATE VIEW of_caller_%1$s WITH (security_invoker = true) AS SELECT id, name FROM plain_footer_%1$s; ALTER VIEW of_caller_%1$s OWNER TO regress_without_key;
  CREATE VIEW of_caller_in_view_%1$s AS SELECT id, name FROM of_caller_%1$s; ALTER VIEW of_caller_in_view_%1$s OWNER TO regress_with_key;
  GRANT SELECT ON of_no_key_%1$s, of_caller_%1$s, of_caller_in_view_%1$s TO regress_with_key, regress_without_key, regress_no_key', engine)
FROM (VALUES ('cpu'), ('device')) e (engine) \gexec
SET ROLE regress_no_key;
PREPARE of_view_cpu AS SELECT max(name), count(*) FROM of_no_key_cpu;
PREPARE of_view_device AS SELECT max(name), count(*) FROM of_no_key_device;
PREPARE of_caller_cpu AS SELECT max(name), count(*) FROM of_caller_cpu;
EXECUTE of_view_cpu;
EXECUTE of_view_device;
EXECUTE of_caller_cpu;
RESET ROLE;
SET ROLE regress_with_key;
EXECUTE of_view_cpu;
EXECUTE of_view_device;
EXECUTE of_caller_cpu;
SELECT count(*) FROM plain_footer_cpu p JOIN of_no_key_cpu v USING (name);
SELECT count(*) FROM of_no_key_cpu v JOIN plain_footer_cpu p USING (id);
RESET ROLE;
SET ROLE regress_no_key;
SELECT max(name) FROM of_caller_device; -- of the caller, who has none
SELECT max(name) FROM of_caller_in_view_device; -- and so it is in a view of another owner
RESET ROLE;
CREATE USER MAPPING FOR regress_no_key SERVER on_cpu OPTIONS (footer_key '30313233343536373839303132333435');
SET ROLE regress_no_key;
EXECUTE of_view_cpu;
EXECUTE of_caller_cpu;
RESET ROLE;
DROP USER MAPPING FOR regress_no_key SERVER on_cpu;
CREATE USER MAPPING FOR regress_without_key SERVER on_cpu OPTIONS (footer_key '30313233343536373839303132333435');
SET ROLE regress_no_key;
EXECUTE of_view_cpu; -- by the owner's keys now
EXECUTE of_caller_cpu;
RESET ROLE;
DROP USER MAPPING FOR regress_without_key SERVER on_cpu;
DEALLOCATE ALL;
-- Of a cursor that a function opens, the keys of the function's owner count, whichever role fetches.
CREATE FUNCTION opened(c refcursor, source regclass) RETURNS refcursor LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  OPEN c FOR EXECUTE format('SELECT max(name) FROM %s', source);
  RETURN c;
END $$;
ALTER FUNCTION opened OWNER TO regress_with_key;
SET ROLE regress_no_key;
BEGIN;
SELECT opened('c', 'plain_footer_cpu');
FETCH c;
COMMIT;
RESET ROLE;
ALTER FUNCTION opened OWNER TO regress_no_key;
SET ROLE regress_with_key;
BEGIN;
SELECT opened('c', 'plain_footer_cpu');
FETCH c;
ROLLBACK;
RESET ROLE;
DROP FUNCTION opened;

SET client_min_messages = warning;
DROP OWNED BY regress_with_key, regress_without_key, regress_other_key, regress_no_key CASCADE;
DROP SCHEMA encrypted CASCADE;
DROP SERVER on_cpu CASCADE;
DROP SERVER on_device CASCADE;
DROP ROLE regress_with_key, regress_without_key, regress_other_key, regress_no_key;
