--
-- Options of servers, tables and columns: valid ones are taken, others are errors that list the valid ones.
--
\getenv data PYSTACHIO_REGRESS_DATA
SELECT count(*) FROM pg_foreign_server WHERE srvname = 'pystachio';

-- Servers.
CREATE SERVER s1 FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', threads '2', memory '512MB', cache '64MB', device_timeout '2min', log_level 'warn');
ALTER SERVER s1 OPTIONS (SET memory '1GB', DROP cache);
SELECT srvoptions FROM pg_foreign_server WHERE srvname = 's1';
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (colour 'red');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (device 'abacus');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (threads '0');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (threads 'many');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (memory 'lots');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (memory '1kB');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (memory '-1GB');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (memory '512MB', cache '1GB');
-- Fractions of a unit are valid, as in PostgreSQL's own settings; two decimal points are not. 0.5 GB holds a cache of 0.5 GB.
ALTER SERVER s1 OPTIONS (SET memory '0.5GB', ADD cache '512MB');
ALTER SERVER s1 OPTIONS (SET cache '0.6GB');
ALTER SERVER s1 OPTIONS (SET memory '1.2.3GB');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (device_memory '0%');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (device_memory '101%');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (device_memory '64kB');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (pinned_cache 'some');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (device_timeout '900ms');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (device_timeout '-1');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (device_timeout 'long');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (ranks '0');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (rank_policy 'some');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (log_level 'loud');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (affinity 'nearest');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (affinity 'numa,nvme0:first');
CREATE USER MAPPING FOR CURRENT_USER SERVER s1 OPTIONS (password 'x');
DROP SERVER s1;

-- Catalogs of Iceberg. No table is asked for here.
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (catalog 'catalog.example.org');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (warehouse 'main');
CREATE SERVER bad FOREIGN DATA WRAPPER pystachio OPTIONS (credentials 'catalog');
CREATE SERVER c1 FOREIGN DATA WRAPPER pystachio OPTIONS (catalog 'http://127.0.0.1:9/api', warehouse 'main', credentials 'catalog');
CREATE FOREIGN TABLE bad (id integer) SERVER c1 OPTIONS (table 'orders');
CREATE FOREIGN TABLE bad (id integer) SERVER c1 OPTIONS (table 'sales..orders');
CREATE FOREIGN TABLE bad (id integer) SERVER c1 OPTIONS (table '"sales.orders');
CREATE FOREIGN TABLE bad (id integer) SERVER c1 OPTIONS (table 'sales.orders', path '/a');
CREATE FOREIGN TABLE bad (id integer) SERVER c1 OPTIONS (table 'sales.orders', format 'delta');
CREATE FOREIGN TABLE bad (id integer) SERVER c1 OPTIONS (table 'sales.orders', writable 'true');
CREATE FOREIGN TABLE bad (id integer) SERVER c1 OPTIONS (path 'catalog://sales/orders', format 'iceberg');
CREATE FOREIGN TABLE orders (id integer) SERVER c1 OPTIONS (table '"2026.q1".eu."a ""b"""', version 'audit');
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'orders'::regclass;
CREATE FOREIGN TABLE elsewhere (id integer) SERVER pystachio OPTIONS (table 'sales.orders');
SELECT * FROM elsewhere;
IMPORT FOREIGN SCHEMA "sales." FROM SERVER c1 INTO public;
DROP SERVER c1 CASCADE;
DROP FOREIGN TABLE elsewhere;

-- Tables.
CREATE FOREIGN TABLE bad (id integer) SERVER pystachio;
CREATE FOREIGN TABLE bad (id integer) SERVER pystachio OPTIONS (file '/x.parquet');
CREATE FOREIGN TABLE bad (id integer) SERVER pystachio OPTIONS (path 'relative.parquet');
CREATE FOREIGN TABLE bad (id integer) SERVER pystachio OPTIONS (path '');
CREATE FOREIGN TABLE bad (id integer) SERVER pystachio OPTIONS (path '/a', paths '{/b}');
CREATE FOREIGN TABLE bad (id integer) SERVER pystachio OPTIONS (paths '{}');
CREATE FOREIGN TABLE bad (id integer OPTIONS (column_nam 'x')) SERVER pystachio OPTIONS (path '/a');

-- Columns match by name; column_name maps another one.
SELECT format('CREATE FOREIGN TABLE named (v integer, number integer OPTIONS (column_name ''id'')) SERVER pystachio OPTIONS (path %L)',
  :'data' || '/edge_int4.parquet')
\gexec
SELECT * FROM named ORDER BY number LIMIT 3;
ALTER FOREIGN TABLE named ALTER number OPTIONS (SET column_name 'nothing');
SELECT * FROM named;
ALTER FOREIGN TABLE named ALTER number OPTIONS (SET column_name 'id');
ALTER FOREIGN TABLE named ALTER v TYPE date;
SELECT * FROM named;
ALTER FOREIGN TABLE named ALTER v TYPE integer;
ALTER FOREIGN TABLE named ADD extra text;
SELECT extra FROM named;
SELECT count(*) FROM named;
ALTER FOREIGN TABLE named DROP extra;
SELECT max(v) FROM named;
DROP FOREIGN TABLE named;

-- Each rank has a device of its own.
CREATE SERVER two_ranks FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', devices '1,0');
CREATE SERVER two_ranks FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', ranks '2', rank_processes 'two');
CREATE SERVER two_ranks FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', devices '1,0', ranks '2');
SELECT format('CREATE FOREIGN TABLE on_two (id integer) SERVER two_ranks OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
SELECT count(*) FROM on_two;
ALTER SERVER two_ranks OPTIONS (SET devices 'first');
ALTER SERVER two_ranks OPTIONS (SET device 'cpu');
SELECT count(*) FROM on_two;
DROP SERVER two_ranks CASCADE;

-- A GPU that is not there says so.
CREATE SERVER gpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cuda');
SELECT format('CREATE FOREIGN TABLE on_gpu (id integer) SERVER gpu OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
SELECT count(*) FROM on_gpu;
DROP SERVER gpu CASCADE;
