--
-- Columns that stay on a GPU packed: the first query of a column has pages, the second one makes segments, later ones test, read and fold these.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
SET pystachio.engine_choice = gpu;
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf segments_holes && mkdir -m 777 segments_holes
SELECT * FROM pystachio.tpch_generate(:'scratch' || '/segments', 0.01, ARRAY['lineitem', 'orders', 'part'], overwrite => true, row_group_rows => 5000);
CREATE SERVER segments FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB');
CREATE SCHEMA segments_files;
CREATE SCHEMA segments_heap;
SELECT :'scratch' || '/segments' AS folder \gset
IMPORT FOREIGN SCHEMA files FROM SERVER segments INTO segments_files OPTIONS (path :'folder');
CREATE TABLE segments_heap.lineitem AS SELECT * FROM segments_files.lineitem;
CREATE TABLE segments_heap.orders AS SELECT * FROM segments_files.orders;
CREATE TABLE segments_heap.part AS SELECT * FROM segments_files.part;
-- The same rows with NULLs, in files that lack columns, and in folders.
CREATE TABLE segments_heap.holes AS SELECT l_orderkey AS k, nullif(l_linenumber, 3) AS n, (CASE WHEN l_tax > 0.03 THEN l_tax END)::numeric(15,2) AS tax,
  CASE WHEN l_partkey % 7 > 0 THEN l_shipmode END AS mode, CASE WHEN l_suppkey % 5 > 0 THEN l_comment END AS comment,
  CASE WHEN l_orderkey % 3 > 0 THEN l_shipdate END AS day, l_quantity > 25 AS large, l_extendedprice::double precision / 7 AS part,
  md5(l_comment)::uuid AS id, l_shipdate::timestamp + l_linenumber * interval '1 hour' AS moment
FROM segments_heap.lineitem;
SELECT :'scratch' || '/segments_holes' AS holes \gset
SELECT sum(row_count) FROM pystachio.write_parquet('SELECT *, k % 4 AS quarter FROM segments_heap.holes', :'holes', partition_by => '{quarter}', row_group_rows => 3000);
CREATE FOREIGN TABLE segments_files.holes (k bigint, n integer, tax numeric(15,2), mode text, comment text, day date, large boolean, part double precision,
  id uuid, moment timestamp, later integer, quarter integer) SERVER segments OPTIONS (path :'holes');
ALTER TABLE segments_heap.holes ADD COLUMN later integer, ADD COLUMN quarter integer;
UPDATE segments_heap.holes SET quarter = k % 4;
INSERT INTO segments_heap.holes (k, later, quarter) SELECT -number, number % 7, 3 FROM generate_series(1, 2000) number;
SELECT sum(row_count) FROM pystachio.write_parquet('SELECT k, later, quarter FROM segments_heap.holes WHERE k < 0', :'holes', partition_by => '{quarter}');
ANALYZE segments_heap.lineitem, segments_heap.orders, segments_heap.part, segments_heap.holes;

-- How many rows differ in the first, second and third query over the files, and in one over pages.
CREATE FUNCTION differing(query text, OUT whole boolean, OUT rows bigint, OUT first bigint, OUT second bigint, OUT third bigint, OUT pages bigint) LANGUAGE plpgsql AS $$
DECLARE
  files text := replace(query, '@', 'segments_files.'); heap text := replace(query, '@', 'segments_heap.'); line text; plan text := '';
  compared text := format('SELECT count(*) FROM ((TABLE found EXCEPT ALL %1$s) UNION ALL (%1$s EXCEPT ALL TABLE found)) rows', '(' || heap || ')');
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || files LOOP plan := plan || line; END LOOP;
  whole := plan LIKE 'Foreign Scan%';
  PERFORM set_config('pystachio.gpu_disable', '', true);
  EXECUTE 'CREATE TEMPORARY TABLE found ON COMMIT DROP AS ' || files;
  EXECUTE compared INTO first;
  EXECUTE 'DROP TABLE found';
  EXECUTE 'CREATE TEMPORARY TABLE found ON COMMIT DROP AS ' || files;
  EXECUTE compared INTO second;
  EXECUTE 'DROP TABLE found';
  EXECUTE 'CREATE TEMPORARY TABLE found ON COMMIT DROP AS ' || files;
  EXECUTE compared INTO third;
  SELECT count(*) INTO rows FROM found;
  PERFORM set_config('pystachio.gpu_disable', 'segments', true);
  EXECUTE 'DROP TABLE found';
  EXECUTE 'CREATE TEMPORARY TABLE found ON COMMIT DROP AS ' || files;
  EXECUTE compared INTO pages;
END $$;

-- Conditions that segments test, and what is left to others.
SELECT * FROM differing('SELECT l_orderkey, l_extendedprice, l_shipdate FROM @lineitem WHERE l_shipdate BETWEEN ''1994-01-01'' AND ''1994-12-31'' AND l_discount >= 0.05 AND l_quantity < 24');
SELECT * FROM differing('SELECT l_orderkey, l_linenumber, l_comment FROM @lineitem WHERE l_commitdate < l_receiptdate AND l_shipdate < l_commitdate AND l_shipmode IN (''MAIL'', ''SHIP'')');
SELECT * FROM differing('SELECT l_orderkey, l_shipinstruct FROM @lineitem WHERE l_shipinstruct LIKE ''%BACK%'' AND (l_quantity = 5 OR l_tax > l_discount)');
SELECT * FROM differing('SELECT o_orderkey, o_comment FROM @orders WHERE o_comment NOT LIKE ''%special%requests%''');
SELECT * FROM differing('SELECT o_orderkey FROM @orders WHERE o_comment LIKE ''%s'' AND o_comment LIKE ''%e%'' AND o_comment NOT LIKE ''s%'' AND o_comment <> ''''');
SELECT * FROM differing('SELECT p_partkey, p_name FROM @part WHERE p_name LIKE ''%green%'' OR p_size = 7');
SELECT * FROM differing('SELECT p_partkey FROM @part WHERE p_name LIKE ''a_%'' AND p_partkey / (p_size - 51) < -3');
SELECT * FROM differing('SELECT * FROM @lineitem');
SELECT * FROM differing('SELECT count(*) FROM @lineitem');
SELECT * FROM differing('SELECT count(*) FROM @lineitem WHERE l_orderkey < 0');

-- Keys of joins.
SELECT * FROM differing('SELECT o_orderpriority, count(*), sum(l_quantity) FROM @orders JOIN @lineitem ON l_orderkey = o_orderkey WHERE o_orderdate < ''1992-03-01'' AND l_tax > 0.02 GROUP BY 1');
SELECT * FROM differing('SELECT p_brand, count(*) FROM @part JOIN @lineitem ON l_partkey = p_partkey WHERE p_size < 3 GROUP BY 1');
SELECT * FROM differing('SELECT mode, count(*) FROM @holes WHERE mode IN (SELECT l_shipmode FROM @lineitem WHERE l_quantity < 2 AND l_shipmode < ''M'') GROUP BY 1');

-- Groups that scans find themselves, and others.
SELECT * FROM differing('SELECT l_returnflag, l_linestatus, sum(l_quantity) AS a, sum(l_extendedprice) AS b, sum(l_extendedprice * (1 - l_discount)) AS c, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS d, avg(l_discount) AS e, count(*) AS f FROM @lineitem WHERE l_shipdate <= ''1998-09-02'' GROUP BY 1, 2');
SELECT * FROM differing('SELECT sum(l_extendedprice * l_discount), count(*), avg(l_tax - 0.5) FROM @lineitem WHERE l_discount BETWEEN 0.05 AND 0.07');
SELECT * FROM differing('SELECT l_linenumber, count(*), sum(2 * l_quantity - 1) FROM @lineitem GROUP BY 1');
SELECT * FROM differing('SELECT l_suppkey, count(*), sum(l_quantity) FROM @lineitem GROUP BY 1');
SELECT * FROM differing('SELECT sum(l_quantity) FROM @lineitem WHERE l_orderkey < 0');
SELECT * FROM differing('SELECT DISTINCT l_shipmode FROM @lineitem');
SELECT * FROM differing('SELECT mode, count(*) AS a, count(tax) AS b, sum(tax), count(n) AS c FROM @holes GROUP BY 1');
SELECT * FROM differing('SELECT n, large, sum(tax * n), count(mode) FROM @holes GROUP BY 1, 2');
SELECT * FROM differing('SELECT quarter, later, count(*), sum(tax) FROM @holes GROUP BY 1, 2');
SELECT * FROM differing('SELECT day, min(part), max(moment), count(DISTINCT mode) FROM @holes GROUP BY 1');

-- NULLs, other types, and columns that files do not have.
SELECT * FROM differing('SELECT * FROM @holes');
SELECT * FROM differing('SELECT k, n, mode, comment FROM @holes WHERE n > 2 AND mode <> ''AIR'' AND comment LIKE ''%ly%''');
SELECT * FROM differing('SELECT k, n FROM @holes WHERE mode IS NULL OR n IS NULL');
SELECT * FROM differing('SELECT k, id, moment FROM @holes WHERE coalesce(mode, ''none'') = ''none'' AND large AND day > ''1995-01-01''');
SELECT * FROM differing('SELECT k FROM @holes WHERE part > 5000 AND moment < ''1996-01-01 12:00'' AND quarter = 2');
SELECT * FROM differing('SELECT k, later FROM @holes WHERE later IS NULL AND quarter < 2 AND NOT large');

-- What is kept: segments take less than pages.
SELECT tier, sum(memory) > 0 AS memory, sum(hits) > 0 AS hits, sum(memory) < sum(unpacked) AS is_packed FROM pystachio.cache WHERE server = 'segments' GROUP BY 1;
-- A change of the declaration is another column.
ALTER FOREIGN TABLE segments_files.holes ALTER COLUMN n TYPE bigint;
SELECT sum(n), count(*) FROM segments_files.holes WHERE n > 1;
SELECT sum(n), count(*) FROM segments_heap.holes WHERE n > 1;
ALTER FOREIGN TABLE segments_files.holes ALTER COLUMN mode TYPE varchar(3);
SELECT count(mode) FROM segments_files.holes WHERE quarter = 0;
SELECT count(mode) FROM segments_files.holes WHERE quarter = 0;
SELECT count(n) FROM segments_files.holes WHERE large;
SELECT count(n) FROM segments_heap.holes WHERE large;
-- A file that changes is read again.
SELECT sum(o_totalprice) FROM segments_files.orders;
SELECT row_count FROM pystachio.tpch_generate(:'scratch' || '/segments', 0.005, ARRAY['orders'], overwrite => true, row_group_rows => 5000);
SELECT count(*) FROM segments_files.orders;

SET client_min_messages = error;
DROP SERVER segments CASCADE;
DROP SCHEMA segments_files, segments_heap CASCADE;
DROP FUNCTION differing;
