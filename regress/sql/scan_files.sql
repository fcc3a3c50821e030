--
-- A file, a folder, a glob pattern, a list.
--
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
SELECT format('CREATE FOREIGN TABLE globbed (id integer, a integer) SERVER pystachio OPTIONS (path %L)', :'data' || '/t[123].parquet')
\gexec
SELECT count(*), count(a) FROM globbed;
SELECT format('CREATE FOREIGN TABLE listed (id integer, a integer) SERVER pystachio OPTIONS (paths %L)',
  ARRAY[:'data' || '/t1.parquet', :'data' || '/t3.parquet']::text)
\gexec
SELECT count(*), count(a) FROM listed;
SELECT count(*) FROM listed x JOIN globbed y ON x.id = y.id AND x.a = y.a;
SELECT format('CREATE FOREIGN TABLE nothing (id integer) SERVER pystachio OPTIONS (path %L)', :'data' || '/none*.parquet')
\gexec
SELECT count(*) FROM nothing;
SELECT format('CREATE FOREIGN TABLE differing (id integer, v integer) SERVER pystachio OPTIONS (path %L)', :'data' || '/edge_[it]*t*.parquet')
\gexec
SELECT count(v) FROM differing;
DROP FOREIGN TABLE IF EXISTS globbed, listed, nothing, differing;
