--
-- IMPORT FOREIGN SCHEMA: one table a file or folder, types from the files.
--
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
CREATE SCHEMA imported;
SELECT format('IMPORT FOREIGN SCHEMA %I LIMIT TO (t1, edge_text, edge_uuid) FROM SERVER pystachio INTO imported', :'data')
\gexec
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = 'imported'::regnamespace ORDER BY 1, a.attnum;
SELECT count(*) FROM imported.t1;
DROP SCHEMA imported CASCADE;

-- EXCEPT, and every form of a type.
CREATE SCHEMA imported;
SELECT format('IMPORT FOREIGN SCHEMA %I EXCEPT (t0, t1) FROM SERVER pystachio INTO imported', :'data')
\gexec
SELECT count(*) FILTER (WHERE relname IN ('t0', 't1')) AS excepted, count(*) > 40 AS many
FROM pg_class WHERE relnamespace = 'imported'::regnamespace;
SELECT c.relname, format_type(a.atttypid, a.atttypmod) AS type
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'v'
WHERE c.relnamespace = 'imported'::regnamespace ORDER BY 1;
DROP SCHEMA imported CASCADE;

-- A path longer than a name can be.
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SELECT :'scratch' || '/' || repeat('long', 20) AS folder \gset
SELECT row_count FROM pystachio.tpch_generate(:'folder', 0.001, ARRAY['region'], overwrite => true);
CREATE SCHEMA imported;
IMPORT FOREIGN SCHEMA regions LIMIT TO (region) FROM SERVER pystachio INTO imported OPTIONS (path :'folder');
SELECT count(*) FROM imported.region;
-- A file and a folder of one name.
SELECT row_count FROM pystachio.tpch_generate(:'folder' || '/region', 0.001, ARRAY['region'], overwrite => true);
IMPORT FOREIGN SCHEMA regions FROM SERVER pystachio INTO imported OPTIONS (path :'folder');
IMPORT FOREIGN SCHEMA regions EXCEPT (region) FROM SERVER pystachio INTO imported OPTIONS (path :'folder');
DROP SCHEMA imported CASCADE;

-- What can't be imported.
CREATE SCHEMA imported;
IMPORT FOREIGN SCHEMA "/nowhere/at/all" FROM SERVER pystachio INTO imported;
IMPORT FOREIGN SCHEMA "/nowhere/of/a/name/of/which/only/sixty/three/bytes/are/kept/and/no/more" FROM SERVER pystachio INTO imported;
IMPORT FOREIGN SCHEMA nowhere FROM SERVER pystachio INTO imported OPTIONS (path '/nowhere/of/a/name/of/which/more/than/sixty/three/bytes/are/kept/and/more');
IMPORT FOREIGN SCHEMA "relative" FROM SERVER pystachio INTO imported;
SELECT format('IMPORT FOREIGN SCHEMA %I FROM SERVER pystachio INTO imported OPTIONS (colour ''red'')', :'data')
\gexec
DROP SCHEMA imported;
