--
-- Files rewritten for reading on a GPU.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA optimize_files;
SET search_path = optimize_files, public;
CREATE FUNCTION foreign_table(name text, path text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE FOREIGN TABLE %I (id integer, a integer, b bigint, c text) SERVER pystachio OPTIONS (path %L)', name, path);
END $$;

-- A file, a folder, a pattern.
SELECT column_name, encoding, compression, row_groups, pages, bytes_before > 0 AS before, bytes_after > 0 AS after
FROM pystachio.optimize_parquet(:'data' || '/t1.parquet', :'scratch' || '/optimized/one.parquet', overwrite => true);
SELECT DISTINCT regexp_replace(file, '.*/optimized/', '') AS file
FROM pystachio.optimize_parquet(:'data', :'scratch' || '/optimized/folder', overwrite => true) WHERE file ~ '/t[0-9]' ORDER BY 1;
SELECT regexp_replace(file, '.*/optimized/', '') AS file, count(*)
FROM pystachio.optimize_parquet(:'data' || '/t[12].parquet', :'scratch' || '/optimized/pattern', true, 1024, 'zstd')
WHERE compression = 'ZSTD' GROUP BY 1 ORDER BY 1;
SELECT foreign_table('before', :'data' || '/t1.parquet'), foreign_table('one', :'scratch' || '/optimized/one.parquet'),
  foreign_table('folder', :'scratch' || '/optimized/folder/t1.parquet'), foreign_table('pattern', :'scratch' || '/optimized/pattern/t1.parquet');
SELECT count(*) FROM before;
SELECT * FROM before EXCEPT ALL SELECT * FROM one;
SELECT * FROM one EXCEPT ALL SELECT * FROM before;
SELECT * FROM before EXCEPT ALL SELECT * FROM folder;
SELECT * FROM before EXCEPT ALL SELECT * FROM pattern;

-- The reasons: an ascending column, a column of few values. Generated files have this form already.
SELECT row_count FROM pystachio.tpch_generate(:'scratch' || '/optimized/tpch', 0.1, ARRAY['orders'], overwrite => true);
SELECT row_count FROM pystachio.tpch_generate(:'scratch' || '/optimized/gpu', 0.1, ARRAY['orders'], overwrite => true, layout => 'gpu');
CREATE VIEW choices AS
SELECT * FROM (VALUES ('tpch'), ('gpu')) source (name),
  LATERAL pystachio.optimize_parquet(current_setting('test.scratch') || '/optimized/' || name || '/orders.parquet',
    current_setting('test.scratch') || '/optimized/again', true);
SELECT set_config('test.scratch', :'scratch', false) IS NOT NULL AS set;
SELECT name, column_name, encoding, row_groups, pages >= 100 AS enough, bytes_after < bytes_before AS smaller,
  reason ~ ' % of PLAIN; (SNAPPY|LZ4_RAW) (would save|saves) [0-9]+ %$' AS says_why
FROM choices WHERE column_name IN ('o_orderkey', 'o_orderstatus') ORDER BY name DESC, column_name;

-- What is refused.
SELECT pystachio.optimize_parquet('relative', '/tmp/never');
SELECT pystachio.optimize_parquet('/tmp/never', 'relative');
SELECT pystachio.optimize_parquet(:'data' || '/t1.parquet', :'scratch' || '/optimized/one.parquet');
SELECT pystachio.optimize_parquet(:'data' || '/t1.parquet', :'data', true);
SELECT pystachio.optimize_parquet(:'data', :'data' || '/below', true);
SELECT pystachio.optimize_parquet(:'data' || '/none*', :'scratch' || '/optimized/none');
SELECT pystachio.optimize_parquet(:'data' || '/t1.parquet', :'scratch' || '/optimized/none', row_group_rows => 0);
SELECT pystachio.optimize_parquet(:'data' || '/t1.parquet', :'scratch' || '/optimized/none', row_group_rows => 1);
SELECT pystachio.optimize_parquet(:'data' || '/t1.parquet', :'scratch' || '/optimized/none', compression => 'gzip');
SELECT pystachio.optimize_parquet(:'data' || '/t1.parquet', :'scratch' || '/optimized/none', server => 'none');
SELECT pystachio.optimize_parquet(NULL, '/tmp/never') IS NULL AS of_null;
SELECT pystachio.tpch_generate(:'scratch' || '/optimized/none', 0.01, layout => 'row');
SET client_min_messages = warning;
DROP SCHEMA optimize_files CASCADE;
