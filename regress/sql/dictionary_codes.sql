--
-- Text as places in its dictionary, on a GPU engine: the rows of heap tables, with codes and without.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
-- Small queries are expected to be faster on the CPU.
SET pystachio.engine_choice = gpu;
SELECT * FROM pystachio.tpch_generate(:'scratch' || '/dictionary_codes', 0.01, ARRAY['lineitem', 'orders', 'part'], overwrite => true, row_group_rows => 20000);
CREATE SERVER codes FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB');
CREATE SCHEMA codes_files;
CREATE SCHEMA codes_heap;
SELECT :'scratch' || '/dictionary_codes' AS folder \gset
IMPORT FOREIGN SCHEMA files FROM SERVER codes INTO codes_files OPTIONS (path :'folder');
CREATE TABLE codes_heap.lineitem AS SELECT * FROM codes_files.lineitem;
CREATE TABLE codes_heap.orders AS SELECT * FROM codes_files.orders;
CREATE TABLE codes_heap.part AS SELECT * FROM codes_files.part;
ANALYZE codes_heap.lineitem, codes_heap.orders, codes_heap.part;

-- How many rows differ, of the files and of the heap, with codes and without.
CREATE FUNCTION differing(query text, OUT whole boolean, OUT codes bigint, OUT cells bigint) LANGUAGE plpgsql AS $$
DECLARE
  files text := replace(query, '@', 'codes_files.'); heap text := replace(query, '@', 'codes_heap.'); line text; plan text := '';
  compared text := format('SELECT count(*) FROM ((TABLE found EXCEPT ALL %1$s) UNION ALL (%1$s EXCEPT ALL TABLE found)) rows', '(' || heap || ')');
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || files LOOP plan := plan || line; END LOOP;
  whole := plan LIKE 'Foreign Scan%';
  PERFORM set_config('pystachio.gpu_disable', '', true);
  EXECUTE 'CREATE TEMPORARY TABLE found ON COMMIT DROP AS ' || files;
  EXECUTE compared INTO codes;
  PERFORM set_config('pystachio.gpu_disable', 'dictionary_codes', true);
  EXECUTE 'DROP TABLE found';
  EXECUTE 'CREATE TEMPORARY TABLE found ON COMMIT DROP AS ' || files;
  EXECUTE compared INTO cells;
END $$;

-- Groups, and what is computed of text.
SELECT * FROM differing('SELECT l_returnflag, l_linestatus, count(*), sum(l_quantity), min(l_shipmode), max(l_comment) FROM @lineitem GROUP BY 1, 2');
SELECT * FROM differing('SELECT l_shipmode, count(DISTINCT l_shipinstruct) AS a, count(DISTINCT l_shipmode) FILTER (WHERE l_returnflag <> ''A'') AS b FROM @lineitem GROUP BY 1');
SELECT * FROM differing('SELECT DISTINCT l_shipinstruct, l_shipmode FROM @lineitem WHERE l_quantity < 3');
SELECT * FROM differing('SELECT upper(substring(l_shipinstruct FROM 2 FOR 7)) AS u, length(l_shipmode) AS n, sum(l_tax) FROM @lineitem GROUP BY 1, 2');
SELECT * FROM differing('SELECT sum(CASE WHEN l_shipmode LIKE ''%AI%'' THEN l_extendedprice WHEN l_shipmode < ''N'' THEN -l_tax ELSE l_quantity END) AS a, '
  'count(*) FILTER (WHERE l_shipinstruct IN (''NONE'', ''TAKE BACK RETURN'')) AS b, count(nullif(l_shipmode, ''MAIL'')) AS c FROM @lineitem');
SELECT * FROM differing('SELECT l_orderkey, l_shipmode || ''/'' || l_returnflag AS pair, lower(l_shipmode) AS l, l_shipmode > l_shipinstruct AS later FROM @lineitem');
SELECT * FROM differing('SELECT p_brand, p_type, count(*) FROM @part WHERE p_container LIKE ''%BOX'' OR p_mfgr = ''Manufacturer#1'' GROUP BY 1, 2 HAVING min(p_type) > ''P''');
SELECT * FROM differing('SELECT CASE WHEN p_brand < ''Brand#3'' THEN p_brand END AS b, p_size FROM @part');

-- Text of either side of a join.
SELECT * FROM differing('SELECT l_shipmode, o_orderpriority, count(*) FROM @lineitem JOIN @orders ON l_orderkey = o_orderkey WHERE o_orderstatus = ''F'' GROUP BY 1, 2');
SELECT * FROM differing('SELECT l_shipmode, o_orderpriority, count(*) AS a, count(o_orderkey) AS b FROM @lineitem LEFT JOIN @orders ON l_orderkey = o_orderkey AND o_orderstatus < l_linestatus GROUP BY 1, 2');
SELECT * FROM differing('SELECT l_shipmode, count(*) FROM @lineitem WHERE EXISTS (SELECT FROM @orders WHERE o_orderkey = l_orderkey AND o_orderpriority LIKE ''1%'') GROUP BY 1');
SELECT * FROM differing('SELECT p_type, l_shipmode, p_container FROM @lineitem FULL JOIN (SELECT * FROM @part WHERE p_size < 9) p ON p_partkey = l_partkey');

-- Joins on text.
SELECT * FROM differing('SELECT p.p_type, b.p_mfgr, count(*) FROM @part p JOIN (SELECT DISTINCT p_brand, p_mfgr FROM @part WHERE p_size < 30) b ON b.p_brand = p.p_brand GROUP BY 1, 2');
SELECT * FROM differing('SELECT l_orderkey, l_linenumber FROM @lineitem WHERE l_shipmode IN (SELECT max(l_shipmode) FROM @lineitem WHERE l_quantity < 2 GROUP BY l_returnflag, l_linenumber)');
SELECT * FROM differing('SELECT p_partkey FROM @part WHERE p_type NOT IN (SELECT p_type FROM @part WHERE p_size < 5)');
SELECT * FROM differing('SELECT p.p_partkey, q.p_partkey AS other FROM @part p LEFT JOIN @part q ON upper(q.p_container) = p.p_container AND q.p_brand = ''Brand#55'' AND q.p_size > p.p_size');

-- Limits, sorts and unions.
SELECT * FROM differing('SELECT l_shipmode, l_orderkey, l_linenumber FROM @lineitem ORDER BY l_shipmode DESC, 2, 3 OFFSET 7 LIMIT 500');
SELECT * FROM differing('SELECT t, count(*) FROM (SELECT l_shipmode AS t FROM @lineitem UNION ALL SELECT o_orderpriority FROM @orders) texts GROUP BY 1');

-- EXPLAIN ANALYZE shows what was done by entries.
CREATE FUNCTION explained(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF) ' || query LOOP RETURN NEXT line; END LOOP;
END $$;
SELECT substring(line FROM 'dictionary_rows_grouped=\d+') AS counted
FROM explained('SELECT l_shipmode, count(*), min(l_tax) FROM codes_files.lineitem GROUP BY 1') line WHERE line ~ 'dictionary_rows';
SELECT substring(line FROM 'dictionary_rows_probed=\d+') AS counted
FROM explained('SELECT count(o_orderpriority), sum(l_tax) FROM codes_files.lineitem LEFT JOIN (SELECT DISTINCT o_orderpriority FROM codes_files.orders) p ON o_orderpriority = l_shipinstruct') line
WHERE line ~ 'dictionary_rows';

SET client_min_messages = error;
DROP FUNCTION explained;
DROP SERVER codes CASCADE;
DROP SCHEMA codes_files, codes_heap CASCADE;
DROP FUNCTION differing;
