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

-- Each rank has files of its own. The table has the rows of all of them, on whichever rank a query runs.
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
CREATE SERVER three_ranks FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', ranks '3', rank_policy 'all', rank_processes 'one');
SELECT format('CREATE FOREIGN TABLE owned (id integer, a integer) SERVER three_ranks OPTIONS (path %L)', :'data' || '/t{rank}.parquet')
\gexec
SELECT format('CREATE FOREIGN TABLE owned_and_shared (id integer, a integer) SERVER three_ranks OPTIONS (paths %L)',
  ARRAY[:'data' || '/t{rank}.parquet', :'data' || '/t3.parquet']::text)
\gexec
SET pystachio.engine_choice = gpu;
SELECT count(*), count(a), sum(id) FROM owned;
SELECT count(*), count(a), sum(id) FROM owned_and_shared;
SELECT count(*) FROM owned x JOIN owned_and_shared y ON x.id = y.id AND x.a = y.a;
SET pystachio.engine_choice = cpu;
SELECT count(*), count(a), sum(id) FROM owned;
SELECT count(*) FROM owned x JOIN owned_and_shared y ON x.id = y.id AND x.a = y.a;
RESET pystachio.engine_choice;
ANALYZE owned;
SELECT reltuples FROM pg_class WHERE relname = 'owned';
ALTER SERVER three_ranks OPTIONS (SET ranks '2');
SELECT count(*) FROM owned;
ALTER SERVER three_ranks OPTIONS (SET ranks '5');
SELECT count(*) FROM owned;
-- A server of one rank has the files of rank 0 alone, of which t0 has no row.
SELECT format('CREATE FOREIGN TABLE of_first (id integer, a integer) SERVER pystachio OPTIONS (path %L)', :'data' || '/t{rank}.parquet')
\gexec
SELECT count(*) FROM of_first;
-- Import finds the tables of rank 0; files are written for one rank at a time.
SELECT sum(row_count) FROM pystachio.tpch_generate(:'scratch' || '/rank0', 0.001, ARRAY['region'], overwrite => true);
SELECT sum(row_count) FROM pystachio.tpch_generate(:'scratch' || '/rank1', 0.001, ARRAY['region'], overwrite => true);
ALTER SERVER three_ranks OPTIONS (SET ranks '2');
SELECT format('IMPORT FOREIGN SCHEMA imported FROM SERVER three_ranks INTO public OPTIONS (path %L)', :'scratch' || '/rank{rank}')
\gexec
SELECT r_name, count(*) FROM region GROUP BY r_name ORDER BY r_name;
SELECT row_count FROM pystachio.tpch_generate('/nowhere{rank}', 0.001, ARRAY['region']);
SELECT count(*) FROM pystachio.optimize_parquet('/nvme{rank}/raw', '/nvme0/new');
DROP SERVER three_ranks CASCADE;
DROP FOREIGN TABLE of_first;
