--
-- The extension goes away whole, and comes back.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
RESET search_path;
SET client_min_messages = warning;
DROP EXTENSION pystachio;
DROP EXTENSION pystachio CASCADE;
SELECT count(*) FROM pg_foreign_data_wrapper WHERE fdwname = 'pystachio';
SELECT count(*) FROM pg_proc WHERE pronamespace = 'pystachio'::regnamespace;
CREATE EXTENSION pystachio;
\getenv data PYSTACHIO_REGRESS_DATA
SELECT format('CREATE FOREIGN TABLE again (id integer) SERVER pystachio OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
SELECT count(*) FROM again;
DROP FOREIGN TABLE again;
