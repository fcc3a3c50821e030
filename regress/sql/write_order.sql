--
-- Files whose rows are sorted, and what EXPLAIN shows of statements that write.
--
\getenv data PYSTACHIO_REGRESS_DATA
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA write_order;
SET search_path = write_order, public;
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf order && mkdir -m 777 order
SELECT set_config('test.order', :'scratch' || '/order', false) IS NOT NULL AS set;
\set written :scratch '/order'
-- Runs a command with the folder in the place of {}.
CREATE FUNCTION run(command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE replace(command, '{}', current_setting('test.order'));
END $$;
-- EXPLAIN with {} in the place of the folder.
CREATE FUNCTION plan(command text, options text DEFAULT 'COSTS OFF') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, command) LOOP
    line := regexp_replace(replace(line, current_setting('test.order'), '{}'), 'Written: [0-9]+ bytes', 'Written: N bytes');
    RETURN NEXT regexp_replace(line, 'rows=([0-9]+)\.00', 'rows=\1');
  END LOOP;
END $$;
CREATE TABLE source AS SELECT i AS k, i * 7919 % 1000 AS m, CASE WHEN i % 10 > 0 THEN chr(64 + i * 31 % 58) || 'x' END AS t, (i * 7919 % 1000 / 8.0)::float8 AS f,
  i % 3 AS p FROM generate_series(1, 20000) i;
INSERT INTO source VALUES (20001, NULL, 'NaN', 'NaN', 0), (20002, NULL, '-NaN', -('Infinity'::float8 - 'Infinity'::float8), 0), (20003, 1, 'ä', '-0', 1), (20004, 1, '', '0', 1);

-- Rows of the file in their order, in each way of writing.
SELECT run('CREATE FOREIGN TABLE sorted (k integer, m integer, t text, f float8, p integer, place bigint OPTIONS (reads ''file_row_number'')) SERVER pystachio OPTIONS (path ''{}/sorted.parquet'')');
CREATE FUNCTION is_sorted(by text, among text DEFAULT 'sorted') RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE same boolean;
BEGIN
  -- Equal rows may be in any order: of the key, the places must not go down.
  EXECUTE format('SELECT bool_and(rank >= coalesce(before, 0)) FROM (SELECT rank, lag(rank) OVER (ORDER BY place) AS before
    FROM (SELECT place, dense_rank() OVER (ORDER BY %s) AS rank FROM %s) r) s', by, among) INTO same;
  RETURN same;
END $$;
SELECT row_count FROM pystachio.write_parquet('SELECT k, m, t, f, p FROM source', :'written' || '/sorted.parquet', sort_by => 'm, k DESC', row_group_rows => 2048);
SELECT is_sorted('m, k DESC'), is_sorted('k');
SELECT count(*) FROM (SELECT k, m, t, f, p FROM sorted EXCEPT ALL SELECT * FROM source) x;
\set file :written '/sorted.parquet'
COPY source TO :'file' (FORMAT parquet, sort_by 'f DESC NULLS LAST, k');
SELECT is_sorted('f DESC NULLS LAST, k');
COPY source TO :'file' (FORMAT parquet, sort_by 't nulls first,k', layout gpu);
SELECT is_sorted('t COLLATE "C" NULLS FIRST, k');
-- A query that the engine computes whole.
COPY (SELECT k, m, t, f, p FROM sorted WHERE k > 100) TO :'file' (FORMAT parquet, sort_by 'm desc, k asc');
SELECT is_sorted('m DESC, k'), count(*) FROM sorted;
-- More rows than fit into memory.
CREATE SERVER little FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '64MB', threads '2');
SELECT row_count FROM pystachio.write_parquet('SELECT i AS k, i * 7919::bigint % 1000003 AS m, repeat(md5(i::text), 4) AS t FROM generate_series(1, 400000) i', :'written' || '/many.parquet',
  sort_by => 'm', server => 'little');
SELECT run('CREATE FOREIGN TABLE many (k integer, m bigint, t text, place bigint OPTIONS (reads ''file_row_number'')) SERVER little OPTIONS (path ''{}/many.parquet'')');
SELECT is_sorted('m', 'many'), count(*), sum(k), sum(length(t)) FROM many;
DROP SERVER little CASCADE;

-- Tables: partitions, sizes, names in quotes.
SELECT run('CREATE FOREIGN TABLE parted (k integer, m integer, t text, f float8, p integer, place bigint OPTIONS (reads ''file_row_number''), file text OPTIONS (reads ''filename'')) SERVER pystachio OPTIONS (path ''{}/parted'')');
SELECT run('CREATE FOREIGN TABLE target (k integer, m integer, t text, f float8, p integer) SERVER pystachio OPTIONS (path ''{}/parted'', writable ''true'', partition_by ''p'', sort_by ''m DESC, p, "k"'')');
INSERT INTO target SELECT * FROM source;
INSERT INTO target SELECT k, m, t, f, p FROM sorted;
SELECT count(*), count(DISTINCT file) FROM parted;
SELECT bool_and(ordered) FROM (SELECT file, place, (m, -k) <= lag((m, -k)) OVER (PARTITION BY file ORDER BY place) IS NOT FALSE AS ordered FROM parted WHERE m IS NOT NULL) x;
SELECT p, substring(file FROM 'p=[0-9]') AS folder, count(*) FROM parted GROUP BY 1, 2 ORDER BY 1;
INSERT INTO target SELECT * FROM source WHERE false;
SELECT row_count FROM pystachio.write_parquet('SELECT 2 AS "a b", 1 AS "c,""d"', :'written' || '/quoted.parquet', sort_by => '"a b" DESC, "c,""d"');

-- EXPLAIN.
SELECT plan('INSERT INTO target VALUES (1)');
SELECT plan('INSERT INTO target SELECT k, m, t, f, p FROM sorted WHERE k > 19990');
SELECT plan('INSERT INTO target SELECT k, m, t, random(), p FROM sorted');
SELECT line FROM plan('INSERT INTO target SELECT k, m, t, f, p FROM sorted WHERE k > 19990', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF') line
WHERE line ~ 'Written|Options|Insert|Foreign Scan';
SELECT run('ALTER FOREIGN TABLE target OPTIONS (DROP partition_by, SET sort_by ''m NULLS FIRST, k DESC NULLS LAST'', ADD compression ''zstd'', ADD row_group_rows ''4096'', ADD file_size ''2MB'', ADD layout ''gpu'')');
SELECT substring(plan('INSERT INTO target SELECT k, m, t, f, p FROM sorted', 'COSTS OFF, FORMAT json') FROM '"Written By[^\[]*');

-- What is refused.
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never.parquet', sort_by => 'b');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never.parquet', sort_by => 'a, a DESC');
SELECT pystachio.write_parquet('SELECT ARRAY[1] AS a', :'written' || '/never.parquet', sort_by => 'a');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never.parquet', sort_by => 'a,');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never.parquet', sort_by => 'a DOWN');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never.parquet', sort_by => '"a');
SELECT pystachio.write_parquet('SELECT 1 AS a', :'written' || '/never.parquet', sort_by => 'a NULLS');
SELECT run('CREATE FOREIGN TABLE wrong (k integer) SERVER pystachio OPTIONS (path ''{}/x'', sort_by ''k DESC ASC'')');
SELECT pystachio.write_parquet('SELECT 1 / (2 - i) AS a FROM generate_series(1, 3) i', :'written' || '/never.parquet', sort_by => 'a');
COPY (SELECT 1 / (k - 200) AS a FROM sorted) TO :'file' (FORMAT parquet, sort_by 'a');
SELECT count(*) FROM sorted;
\! ls -A "$PYSTACHIO_REGRESS_SCRATCH/order"

DROP SCHEMA write_order CASCADE;
