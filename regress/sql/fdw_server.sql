--
-- Servers have engines of their own, which the view shows.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SELECT count(*) FROM t1;
SELECT server, rank, device IN ('cpu', 'cuda', 'emulated') AS has_device, pid > 0 AS has_pid, state, since <= now() AS has_started, queries_run > 0 AS has_run
FROM pystachio.engines WHERE server = 'pystachio' AND state = 'running';
SELECT pystachio.version() ~ '^[0-9]+\.[0-9]+\.[0-9]+' AS version;

-- A second server, a second engine.
CREATE SERVER second FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '1');
SELECT format('CREATE FOREIGN TABLE two (id integer, a integer) SERVER second OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
SELECT count(*), sum(a) FROM two;
SELECT count(DISTINCT pid) FROM pystachio.engines WHERE server IN ('pystachio', 'second');

-- Tables of two servers join in PostgreSQL.
SELECT count(*) FROM two JOIN t2 ON two.a = t2.a;
SELECT count(*) FROM heap.t1 two JOIN heap.t2 ON two.a = t2.a;

-- What happens to servers of other wrappers is theirs.
CREATE FOREIGN DATA WRAPPER other_wrapper;
CREATE SERVER other_server FOREIGN DATA WRAPPER other_wrapper OPTIONS (planet 'Mars');
ALTER SERVER other_server OPTIONS (SET planet 'Venus');
DROP FOREIGN DATA WRAPPER other_wrapper CASCADE;

-- The cache shows what it holds, and never more than the option allows.
SELECT count(*) > 0 AS holds FROM pystachio.cache WHERE path LIKE '%t1.parquet';
DROP SERVER second CASCADE;
