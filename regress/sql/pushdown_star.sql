--
-- Groups by attributes of small tables: a large table is aggregated by the keys of a join before it is joined.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/same.sql
SET client_min_messages = warning;
CREATE SCHEMA star_heap;
SET search_path = star_heap, public;
-- Keys without a match, NULL keys, and keys that match twice. Of one group all values are NULL.
CREATE TABLE facts AS
SELECT CASE WHEN n % 97 > 0 THEN n % 1009 END AS item, date '2024-01-01' + n % 40 AS day, (n % 7)::smallint AS store,
  CASE WHEN n % 1009 <> 5 AND n % 11 > 0 THEN 2147483647 - n END AS q, 9223372036854775807 - n AS big, (n % 500 / 7.0)::numeric(7,2) AS price,
  (CASE WHEN n % 13 > 0 THEN n % 300 / 11.0 END)::numeric(12,4) AS rate, (n % 10 * 1e27)::numeric(30,2) AS huge, n / 3.0::double precision AS part,
  n % 1009 < 900 AS flag, n % 64 AS bits, CASE WHEN n % 9 > 0 THEN chr(97 + n % 26) || n % 5 END AS note
FROM generate_series(1, 120000) n;
CREATE TABLE items AS
SELECT CASE WHEN n % 50 > 0 THEN n END AS i_item, CASE WHEN n % 12 > 0 THEN 'brand ' || n % 12 END AS brand, 'class ' || n % 30 AS class,
  (n * 1.25)::numeric(9,2) AS i_price, n % 3 = 0 AS fresh
FROM generate_series(1, 1000) n CROSS JOIN LATERAL generate_series(1, CASE n % 10 WHEN 0 THEN 2 ELSE 1 END) copies;
CREATE TABLE days AS
SELECT date '1990-01-01' + n AS d, to_char(date '1990-01-01' + n, 'YYYY-MM') AS month, n AS number FROM generate_series(0, 20000) n;
CREATE TABLE stores AS SELECT n::smallint AS s, 'store ' || n / 2 AS name, n AS size FROM generate_series(0, 6) n;
CREATE TABLE none AS SELECT * FROM facts WHERE false;
SELECT count(row_count) FROM unnest('{facts,items,days,stores,none}'::text[]) t,
  LATERAL pystachio.write_parquet('SELECT * FROM star_heap.' || t, :'scratch' || '/star_' || t || '.parquet', row_group_rows => 30000, overwrite => true);
CREATE SERVER star_cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB');
CREATE SERVER star_device FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB');
CREATE SERVER star_ranks FOREIGN DATA WRAPPER pystachio
  OPTIONS (device 'emulated', memory '256MB', ranks '2', rank_policy 'all', rank_processes 'one');
SELECT set_config('test.star', :'scratch' || '/star_', false) IS NOT NULL AS set;
DO $$
DECLARE server text; t text; columns text;
BEGIN
  FOREACH server IN ARRAY '{star_cpu,star_device,star_ranks}'::text[] LOOP
    EXECUTE format('CREATE SCHEMA %I', server);
    FOREACH t IN ARRAY '{facts,items,days,stores,none}'::text[] LOOP
      SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum) INTO columns
      FROM pg_attribute WHERE attrelid = ('star_heap.' || t)::regclass AND attnum > 0;
      EXECUTE format('CREATE FOREIGN TABLE %I.%I (%s) SERVER %1$I OPTIONS (path %4$L)', server, t, columns, current_setting('test.star') || t || '.parquet');
    END LOOP;
  END LOOP;
END $$;
ANALYZE;
SET pystachio.engine_choice = gpu;
-- By what the groups below joins are, or `planned` for a plan without them. Then the rows, and the servers with other ones.
CREATE FUNCTION star_heap.compared(query text) RETURNS text LANGUAGE plpgsql SET search_path = public AS $$
DECLARE line text; is_below boolean := false; inner_groups text; theirs text[] := public.rows_over('star_heap', query); answer text; server text;
BEGIN
  PERFORM set_config('search_path', 'star_cpu', true);
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    is_below := is_below OR line ~ 'join on';
    IF is_below THEN
      inner_groups := coalesce(inner_groups, substring(line FROM '^ +(?:Aggregate .*\mby|Distinct) (.*)$'));
    END IF;
  END LOOP;
  answer := coalesce('by ' || inner_groups, 'planned') || ': ' ||
    CASE WHEN theirs[1] = 'error' THEN 'the same error ' || theirs[2] ELSE cardinality(theirs) || ' rows' END;
  FOREACH server IN ARRAY '{star_cpu,star_device,star_ranks}'::text[] LOOP
    IF public.rows_over(server, query) <> theirs THEN
      answer := answer || ', OTHERS of ' || server || ' ' || (public.rows_over(server, query))[1:3]::text || ' for ' || theirs[1:3]::text;
    END IF;
  END LOOP;
  RETURN answer;
END $$;
-- The line of EXPLAIN ANALYZE for the scan of the large table.
CREATE FUNCTION star_heap.scan_of_facts(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    IF line ~ 'Scan facts' THEN RETURN NEXT trim(line); END IF;
  END LOOP;
END $$;
SET search_path = star_cpu, star_heap, public;

--
-- The plan
--
EXPLAIN (COSTS OFF) SELECT brand, class, sum(price), count(*) FROM facts JOIN items ON item = i_item GROUP BY brand, class;
-- The finest groups of all sets have it, once.
EXPLAIN (COSTS OFF) SELECT brand, class, avg(rate) FROM facts JOIN items ON item = i_item GROUP BY ROLLUP (brand, class);
-- A condition on a small table still filters the rows that are read.
SELECT scan_of_facts('SELECT brand, sum(price) FROM facts JOIN items ON item = i_item AND fresh GROUP BY brand');

--
-- Aggregates
--
SELECT compared('SELECT brand, count(*), count(q), count(note) FILTER (WHERE price > 20), count(*) FILTER (WHERE flag) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT class, sum(q), sum(store), sum(big), sum(q) FILTER (WHERE store = 9) FROM facts JOIN items ON item = i_item GROUP BY class');
SELECT compared('SELECT class, sum(price), sum(rate), sum(price * rate), avg(price), avg(rate), avg(q) FROM facts JOIN items ON item = i_item GROUP BY class');
SELECT compared('SELECT brand, stddev(store), variance(q), var_pop(rate) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT class, min(note), max(note), min(day), max(rate), min(part), max(big) FROM facts JOIN items ON item = i_item GROUP BY class');
SELECT compared('SELECT brand, bool_and(flag), bool_or(q IS NULL) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT brand, bit_and(bits), bit_or(bits), bit_xor(bits) FROM facts JOIN items ON item = i_item GROUP BY brand');
-- Extremes of the small table do not depend on how many rows match.
SELECT compared('SELECT brand, sum(price), max(i_price), min(class), bool_or(fresh) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT DISTINCT brand, class FROM facts JOIN items ON item = i_item');
-- Sums of long numbers, and a cast that does not hold the sum.
SELECT compared('SELECT brand, sum(huge) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT brand, sum(big)::bigint FROM facts JOIN items ON item = i_item GROUP BY brand');

--
-- Groups
--
SELECT compared('SELECT month, number % 3 AS third, store, sum(q) FROM facts JOIN days ON day = d GROUP BY 1, 2, 3');
SELECT compared('SELECT lower(class) || brand, item % 10, count(*) FROM facts JOIN items ON item = i_item GROUP BY 1, 2');
SELECT compared('SELECT brand, sum(price) FROM facts JOIN items ON item = i_item GROUP BY brand HAVING count(*) > 9000 AND max(i_price) > 10');
SELECT compared('SELECT brand, class, avg(q), sum(rate), count(*), grouping(brand, class) FROM facts JOIN items ON item = i_item GROUP BY ROLLUP (brand, class)');
SELECT compared('SELECT brand, class, min(note), sum(price) FROM facts JOIN items ON item = i_item GROUP BY GROUPING SETS ((brand, class), (class), ()) HAVING sum(price) > 1000');
SELECT compared('SELECT max(total), count(*) FROM (SELECT brand, sum(price) AS total FROM facts JOIN items ON item = i_item GROUP BY brand) sums');

--
-- Joins
--
SELECT compared('SELECT month, sum(q), count(*) FROM facts JOIN days ON day = d GROUP BY month');
SELECT compared('SELECT month, name, sum(price) FROM facts JOIN days ON day = d JOIN stores ON store = s GROUP BY month, name');
SELECT compared('SELECT brand, sum(price) FROM facts JOIN days ON day = d JOIN items ON item = i_item WHERE month <> ''2024-02'' GROUP BY brand');
SELECT compared('SELECT month, name, count(rate) FROM facts, days, stores WHERE day = d AND store = s AND d > date ''2024-01-05'' GROUP BY month, name');
SELECT compared('SELECT name, count(*) FROM facts JOIN stores ON store + 0 = s AND store = size GROUP BY name');
SELECT compared('SELECT brand, sum(price) FROM facts JOIN items ON item = i_item WHERE brand = ''none'' GROUP BY brand');
SELECT compared('SELECT brand, sum(price) FROM none JOIN items ON item = i_item GROUP BY brand');
PREPARE by_brand(numeric) AS SELECT brand, sum(price) FROM facts JOIN items ON item = i_item WHERE i_price < $1 GROUP BY brand ORDER BY brand LIMIT 2;
EXECUTE by_brand(1000);
EXECUTE by_brand(5);

--
-- Plans that stay
--
-- Sums of floats are rounded once, different values and lists need all rows.
SELECT compared('SELECT brand, sum(part)::numeric(20,3) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT brand, count(DISTINCT note) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT brand, array_agg(bits ORDER BY bits) FROM facts JOIN items ON item = i_item GROUP BY brand');
-- Sums of the small table's values, and of both tables'.
SELECT compared('SELECT brand, sum(i_price) FROM facts JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT brand, sum(price * i_price) FROM facts JOIN items ON item = i_item GROUP BY brand');
-- Facts that match nothing might fail: item 1005 is none of the small table's.
SELECT compared('SELECT brand, sum(100 / (item - 1005)) FROM facts JOIN items ON item = i_item GROUP BY brand');
-- Further conditions, outer joins, and groups of the large table alone.
SELECT compared('SELECT brand, sum(price) FROM facts JOIN items ON item = i_item AND price < i_price GROUP BY brand');
SELECT compared('SELECT brand, sum(price) FROM facts LEFT JOIN items ON item = i_item GROUP BY brand');
SELECT compared('SELECT store, sum(price) FROM facts JOIN items ON item = i_item GROUP BY store');
SELECT compared('SELECT sum(price) FROM facts JOIN items ON item = i_item');
-- Few rows a group.
SELECT compared('SELECT brand, month, sum(price) FROM facts JOIN items ON item = i_item JOIN days ON day = d GROUP BY brand, month');

SET client_min_messages = error;
DROP SERVER star_cpu CASCADE;
DROP SERVER star_device CASCADE;
DROP SERVER star_ranks CASCADE;
DROP SCHEMA IF EXISTS star_cpu, star_device, star_ranks, star_heap CASCADE;
