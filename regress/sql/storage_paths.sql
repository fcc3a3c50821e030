--
-- The ways from files to a device, by name, and how pystachio.engines shows them.
--
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
CREATE SCHEMA storage_paths;
SET search_path = storage_paths, public;
CREATE SERVER storage_emulated FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB');
SELECT format('CREATE FOREIGN TABLE t1 (id integer, a integer, b bigint, c text) SERVER storage_emulated OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
-- The emulated device reads files by itself in cuFile's compatibility mode only.
SET pystachio.engine_choice = gpu;
SET pystachio.gpu_disable = 'cache';
CREATE FUNCTION answer() RETURNS text LANGUAGE sql AS $$ SELECT count(*) || ' ' || sum(a) || ' ' || sum(b)::bigint || ' ' || max(c) FROM t1 $$;
CREATE FUNCTION path_taken() RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF) SELECT sum(a), max(c) FROM t1' LOOP
    IF line ~ 'Storage Path' THEN
      -- Where the kernel refuses io_uring, there is only pread.
      RETURN regexp_replace(trim(line), 'direct \((io_uring|pread)\)', 'direct');
    END IF;
  END LOOP;
END $$;
SELECT answer() AS expected \gset
SELECT mode, set_config('pystachio.gpu_storage', mode, false), answer() = :'expected' AS same,
  -- By itself it takes what is fast for what the page cache holds.
  CASE WHEN mode = 'auto' THEN path_taken() ~ 'page cache|direct' END AS by_host, CASE WHEN mode <> 'auto' THEN path_taken() END AS path
FROM unnest('{auto,page_cache,direct,direct_pread,cufile_compat}'::text[]) mode;

-- What is not there is an error, and not another way.
SET pystachio.gpu_storage = gpudirect;
SELECT answer();
SET pystachio.gpu_storage = sideways;
RESET pystachio.gpu_storage;

-- Each file system that was read from has a row: what it supports, and why not more.
SELECT cardinality(storage_paths) AS file_systems, storage_paths[1] ~ '^/.* \(\w+ on .*\): ' AS names,
  storage_paths[1] ~ 'no GPUDirect \(the emulated device has none\), (no )?direct .*, page cache$' AS ways, libraries
FROM pystachio.engines WHERE server = 'storage_emulated';

-- A GPU's engine says which libraries it finds, also where there is no GPU.
CREATE SERVER storage_cuda FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cuda', memory '256MB');
SELECT format('CREATE FOREIGN TABLE on_cuda (id integer) SERVER storage_cuda OPTIONS (path %L)', :'data' || '/t1.parquet')
\gexec
SET pystachio.engine_choice = cpu;
SELECT count(id) > 0 AS rows FROM on_cuda;
SELECT substring(line FROM '^\w+') AS library, line ~ '^lib\w+\.so(\.\d)? (is of|is not there; |can''t be loaded: |is too old: )' AS told
FROM pystachio.engines, unnest(libraries) line WHERE server = 'storage_cuda';
SET client_min_messages = error;
DROP SERVER storage_emulated, storage_cuda CASCADE;
DROP SCHEMA storage_paths CASCADE;
