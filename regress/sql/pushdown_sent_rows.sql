--
-- Rows of PostgreSQL's own tables, VALUES and functions in plans of an engine, which joins and groups them.
--
SET client_min_messages = warning;
CREATE SCHEMA sent_rows;
SET search_path = sent_rows, public;
SET TimeZone = 'Europe/Berlin';
SET max_parallel_workers_per_gather = 0;
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\! mkdir -p "$PYSTACHIO_REGRESS_SCRATCH/sent_rows" && chmod 777 "$PYSTACHIO_REGRESS_SCRATCH/sent_rows"
CREATE TABLE sales_heap AS
SELECT n AS id, n % 1000 AS item, date '2024-01-01' + n % 400 AS day, ((n * 37 % 10007) / 100.0)::numeric(9,2) AS price,
       CASE WHEN n % 13 > 0 THEN 'c' || n % 50 END COLLATE "C" AS code
FROM generate_series(1, 120000) n;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM sent_rows.sales_heap', :'scratch' || '/sent_rows/sales.parquet', overwrite => true);
SELECT format('CREATE FOREIGN TABLE sales (id integer, item integer, day date, price numeric(9,2), code text COLLATE "C") SERVER pystachio OPTIONS (path %L)', :'scratch' || '/sent_rows/sales.parquet')
\gexec
-- Every kind of column.
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN small AS integer CHECK (VALUE < 100000);
CREATE TABLE items (item integer PRIMARY KEY, name varchar(20), kind char(4), weight numeric(7,3), cost numeric, ratio float8, share real, big bigint, few smallint,
  since date, at timestamp, tz timestamptz, clock time, id uuid, raw bytea, on_sale boolean, tags text[], facts jsonb, plain json, feeling mood, rank small, span interval);
INSERT INTO items SELECT n, CASE WHEN n % 7 > 0 THEN 'item ' || n END, CASE n % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'bb' END, n / 8.0, n / 3.0,
  CASE n % 5 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' ELSE (n / 3.0)::text END::float8, n / 7.0, n * 10000000000, n % 100,
  CASE n % 97 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' ELSE date '2024-01-01' + n END, timestamp '2024-03-31 01:30' + n * interval '1 minute',
  timestamptz '2024-03-31 01:30' + n * interval '1 minute', time '12:00' + n * interval '1 second', ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid,
  decode(lpad(n::text, 6, '0'), 'hex'), n % 2 = 0, CASE WHEN n % 4 > 0 THEN ARRAY['t' || n % 5, NULL] END, jsonb_build_object('n', n), json_build_object('n', n),
  CASE WHEN n % 2 = 0 THEN 'sad' ELSE 'ok' END::mood, n, n * interval '1 hour'
FROM generate_series(0, 1200) n;
CREATE TABLE days AS SELECT day::date AS day, extract(year FROM day)::integer AS year, to_char(day, 'TMMon') COLLATE "C" AS month, extract(isodow FROM day)::integer AS weekday
FROM generate_series(date '2023-12-15', date '2025-03-01', interval '1 day') day;
CREATE TEMPORARY TABLE wanted (code text COLLATE "C", limit_price numeric(6,1));
INSERT INTO wanted SELECT 'c' || n, n * 2.5 FROM generate_series(1, 60) n;
INSERT INTO wanted VALUES (NULL, NULL), ('c1', 50.0);
ANALYZE;
-- Whether the engine gets rows, whether all of the query is one scan, and how many rows differ from those over heap tables alone.
CREATE FUNCTION rows_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE format('SELECT q::text FROM (%s) q', query);
END $$;
-- Whatever the settings are that keep PostgreSQL from joining by hash.
CREATE FUNCTION heap_rows_of(query text) RETURNS SETOF text LANGUAGE sql SET enable_hashjoin = on AS $$
  SELECT rows_of(regexp_replace(query, '\m(sales|parts)\M', '\1_heap', 'g'))
$$;
CREATE FUNCTION compared(query text, OUT sent boolean, OUT whole boolean, OUT differing bigint) LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
  sent := plan::text LIKE '%Send Rows%';
  whole := plan->0->'Plan'->>'Node Type' = 'Foreign Scan';
  SELECT count(*) INTO differing FROM ((SELECT rows_of(query) EXCEPT ALL SELECT heap_rows_of(query))
    UNION ALL (SELECT heap_rows_of(query) EXCEPT ALL SELECT rows_of(query))) d;
END $$;
CREATE FUNCTION compared_all(queries text[]) RETURNS TABLE (query text, sent boolean, whole boolean, differing bigint) LANGUAGE sql AS $$
  SELECT query, c.* FROM unnest(queries) WITH ORDINALITY q (query, number), compared(query) c ORDER BY number
$$;
\pset format unaligned

EXPLAIN (COSTS OFF, VERBOSE) SELECT month, count(*), sum(price) FROM sales JOIN days USING (day) WHERE weekday = 1 GROUP BY month;
SELECT * FROM compared_all(ARRAY[
  -- Kinds of joins.
  'SELECT month, count(*), sum(price) FROM sales JOIN days USING (day) WHERE weekday = 1 GROUP BY month',
  'SELECT name, count(*), max(price) FROM sales LEFT JOIN items USING (item) GROUP BY name',
  'SELECT kind, count(*), count(sales.id), count(items.item) FROM sales FULL JOIN items USING (item) GROUP BY kind',
  'SELECT count(*), sum(price) FROM sales WHERE item IN (SELECT item FROM items WHERE on_sale)',
  'SELECT count(*), sum(price) FROM sales WHERE EXISTS (SELECT FROM wanted w WHERE w.code = sales.code AND price < limit_price)',
  'SELECT count(*), sum(price) FROM sales WHERE NOT EXISTS (SELECT FROM wanted w WHERE w.code = sales.code)',
  'SELECT count(*), sum(price) FROM sales WHERE code NOT IN (SELECT code FROM wanted)',
  'SELECT count(*), sum(price) FROM sales WHERE code NOT IN (SELECT code FROM wanted WHERE code IS NOT NULL)',
  'SELECT name FROM items i WHERE NOT EXISTS (SELECT FROM sales s WHERE s.item = i.item)',
  'SELECT name FROM items i WHERE EXISTS (SELECT FROM sales s WHERE s.item = i.item AND price < 0.1)',
  -- Several inputs, and joins of them in PostgreSQL.
  'SELECT month, kind, count(*), sum(price * weight) FROM sales JOIN days USING (day) JOIN items USING (item) GROUP BY month, kind',
  'SELECT month, kind, count(*) FROM sales JOIN days USING (day) JOIN items USING (item) JOIN wanted USING (code) WHERE price < limit_price GROUP BY month, kind ORDER BY 1, 2',
  'SELECT count(*) FROM sales JOIN (items JOIN days ON days.day = items.since) USING (item)',
  -- VALUES, functions, subqueries, WITH.
  'SELECT label, count(*) FROM sales JOIN (VALUES (1, ''one''), (2, ''two''), (NULL, ''none'')) v (item, label) USING (item) GROUP BY label',
  'SELECT n, count(*) FROM sales JOIN generate_series(990, 1010) n ON n = item GROUP BY n',
  'SELECT k, count(*), min(price) FROM sales JOIN (SELECT item, lower(kind) AS k FROM items ORDER BY weight DESC LIMIT 500) i USING (item) GROUP BY k',
  'WITH w AS MATERIALIZED (SELECT item, random() >= 0 AS yes FROM items) SELECT yes, count(*) FROM sales JOIN w USING (item) GROUP BY yes',
  'SELECT count(*) FROM sales, (SELECT count(*) AS all_items FROM items) i WHERE item * 2 < all_items',
  -- Rows without columns.
  'SELECT count(*) FROM sales CROSS JOIN (SELECT FROM days LIMIT 7) d',
  -- What is computed above outer joins.
  'SELECT label, count(*) FROM sales LEFT JOIN (SELECT item, coalesce(name, ''?'') AS label FROM items WHERE on_sale) i USING (item) GROUP BY label',
  -- No rows.
  'SELECT kind, count(*) FROM sales JOIN items USING (item) WHERE weight < 0 GROUP BY kind',
  'SELECT count(*), count(name) FROM sales LEFT JOIN (SELECT * FROM items WHERE weight < 0) i USING (item)',
  -- Windows, sorts, limits, sets above.
  'SELECT * FROM (SELECT kind, item, sum(price) AS s, rank() OVER (PARTITION BY kind ORDER BY sum(price) DESC, item) AS r FROM sales JOIN items USING (item) GROUP BY kind, item) q WHERE r <= 3',
  'SELECT sales.id, name FROM sales JOIN items USING (item) ORDER BY price DESC, sales.id LIMIT 20',
  'SELECT DISTINCT kind, weekday FROM sales JOIN items USING (item) JOIN days USING (day)',
  'SELECT kind, count(*) FROM sales JOIN items USING (item) GROUP BY ROLLUP (kind)',
  'SELECT 1 AS part, count(*) FROM sales JOIN items USING (item) UNION ALL SELECT 2, count(*) FROM sales JOIN days USING (day)',
  -- What can't be sent stays.
  'SELECT feeling, count(*) FROM sales JOIN items USING (item) GROUP BY feeling',
  'SELECT max(cost), count(*) FROM sales JOIN items USING (item)']);
-- The same where PostgreSQL's own joins are to cost more.
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_nestloop = off;
SET pystachio.join_keys = 0;
SELECT * FROM compared_all(ARRAY[
  'SELECT count(*), sum(price) FROM sales WHERE code NOT IN (SELECT code FROM wanted)',
  'SELECT name FROM items i WHERE EXISTS (SELECT FROM sales s WHERE s.item = i.item AND price < 0.1)',
  'SELECT items.item, count(sales.id) FROM items LEFT JOIN sales ON sales.item = items.item AND price > weight GROUP BY items.item',
  'SELECT label, count(*) FROM sales JOIN (VALUES (1, ''one''), (2, ''two''), (NULL, ''none'')) v (item, label) USING (item) GROUP BY label',
  'SELECT n, count(*) FROM sales JOIN generate_series(990, 1010) n ON n = item GROUP BY n',
  'SELECT count(*) FROM sales JOIN json_to_recordset(''[{"item": 3}, {"item": 4}, {}]'') j (item integer) USING (item)',
  'SELECT kind, count(*) FROM sales JOIN items USING (item) WHERE weight < 0 GROUP BY kind',
  'SELECT count(*) FROM sales s JOIN items i ON i.item > s.item WHERE s.id < 20',
  -- Rows are sent anew where they depend on a row outside, and only there.
  'SELECT w, (SELECT count(*) FROM sales JOIN days USING (day) WHERE weekday = w) FROM generate_series(1, 7) w',
  'SELECT w, (SELECT count(*) FROM sales JOIN days USING (day) WHERE weekday = 3 AND item = w) FROM generate_series(1, 7) w']);
SELECT c.sent, c.differing FROM compared('SELECT t, count(*) FROM sales JOIN items USING (item), unnest(tags) t GROUP BY t') c;
-- Of several orders of joins, which send different relations, a scan gets what its own plan reads.
CREATE TABLE first AS SELECT n % 1000 AS item, n % 50 AS g, 'first ' || n AS note FROM generate_series(1, 3000) n;
CREATE TABLE second AS SELECT n % 50 AS g, n AS x FROM generate_series(1, 400) n;
ANALYZE first, second;
SELECT count(*), bool_and(note = 'first ' || f AND f % 1000 = id % 1000 AND f % 50 = x % 50) AS fit FROM (
  SELECT sales.id, note, substr(note, 7)::integer AS f, x FROM sales JOIN first USING (item) JOIN second USING (g) LIMIT 5000) q;
-- No cache holds what one query alone reads.
SELECT count(*) AS cached FROM pystachio.cache WHERE path LIKE '%/sent-%';
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_nestloop;
RESET pystachio.join_keys;
-- Keys of a side that can't be sent filter a join with rows that are.
SET cpu_operator_cost = 1;
SELECT c.* FROM compared('SELECT s.id, i.name FROM sales s LEFT JOIN items i ON i.item = s.item WHERE EXISTS (SELECT FROM (VALUES (2.50), (0.01), (2.50)) v (x) WHERE x = s.price)') c;
EXPLAIN (COSTS OFF) SELECT s.id, i.name FROM sales s LEFT JOIN items i ON i.item = s.item WHERE EXISTS (SELECT FROM (VALUES (2.50), (0.01), (2.50)) v (x) WHERE x = s.price);
RESET cpu_operator_cost;
-- Values of every type come back as they are.
SELECT c.* FROM compared('SELECT i.* FROM sales s JOIN items i USING (item) WHERE s.price > 99.9') c;
SELECT name, c.sent, c.differing FROM
  unnest(ARRAY['name', 'kind', 'weight', 'cost', 'ratio', 'share', 'big', 'few', 'since', 'at', 'tz', 'clock', 'raw', 'on_sale', 'tags', 'facts', 'plain', 'feeling', 'rank', 'span']) WITH ORDINALITY names (name, number),
  compared(format('SELECT sales.id, %s FROM sales JOIN items USING (item) ORDER BY price, sales.id LIMIT 2000', name)) c ORDER BY number;
-- An engine carries through what it has no type for, NaN and the longest intervals too, and computes nothing of it.
CREATE TABLE odd (item integer, cost numeric, long numeric(500,200), span interval, short interval day to second(1));
INSERT INTO odd VALUES (1, 'NaN', 'NaN', '-178000000 years -11 mons -2147483648 days -2562047787:59:59.999999', '1 day 02:03:04.5'),
  (2, 'Infinity', 1e299, '178000000 years 2147483647 days 2562047788:00:54.775807', '-1 day +02:03:04.5'), (3, '-Infinity', -1e-200, '0', NULL), (4, NULL, NULL, NULL, '-0.1 s'),
  (5, 1e-16383, 0.10, '1 mon -1 day +00:00:00.000001', '9 days'), (6, -9.99e131071, 0, '-1 mon +1 day -00:00:00.000001', '-9 days'), (7, 12.500, 12.500, '3 days', '0');
ANALYZE odd;
SET IntervalStyle = sql_standard;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_nestloop = off;
SET pystachio.join_keys = 0;
SELECT * FROM compared_all(ARRAY[
  'SELECT sales.id, cost, long, span, short FROM sales JOIN odd USING (item) WHERE price < 30',
  'SELECT sales.id, cost, long, span, short FROM sales LEFT JOIN odd USING (item) ORDER BY sales.id DESC LIMIT 3000',
  'SELECT sales.id, cost + 1, span / 2, day + short FROM sales JOIN odd USING (item) WHERE item > 3 AND price < 30',
  'SELECT item, max(cost), max(span) FROM sales JOIN odd USING (item) GROUP BY item',
  'SELECT span, count(*) FROM sales JOIN odd USING (item) WHERE cost = 12.5 OR span < ''0'' GROUP BY span']);
RESET IntervalStyle;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_nestloop;
RESET pystachio.join_keys;
-- What groups of several sets are of is planned, and sent, once.
EXPLAIN (COSTS OFF) SELECT kind, on_sale, few, count(*) FROM sales JOIN items USING (item) GROUP BY CUBE (kind, on_sale, few);
SELECT * FROM compared_all(ARRAY[
  'SELECT kind, on_sale, few, count(*), sum(price), GROUPING(kind, on_sale, few) FROM sales JOIN items USING (item) GROUP BY CUBE (kind, on_sale, few)',
  'SELECT kind, code, sum(price), rank() OVER (PARTITION BY GROUPING(kind, code) ORDER BY sum(price) DESC) FROM sales JOIN items USING (item) GROUP BY GROUPING SETS ((kind), (code), ()) HAVING count(*) > 5',
  'SELECT month, kind, count(*) FROM sales JOIN days USING (day) LEFT JOIN items USING (item) GROUP BY ROLLUP (month, kind) HAVING GROUPING(month) = 0']);
-- What stays in PostgreSQL says so.
EXPLAIN (VERBOSE, COSTS OFF) SELECT sales.id, facts, feeling, cost, span, id.id FROM sales JOIN items USING (item), LATERAL (SELECT items.id) id ORDER BY price, sales.id LIMIT 2;
SELECT * FROM compared_all(ARRAY[
  'SELECT sales.id, facts, feeling FROM sales JOIN items USING (item) ORDER BY price, sales.id LIMIT 200',
  'SELECT kind, jsonb_agg(facts ORDER BY sales.id), array_agg(feeling ORDER BY sales.id) FROM sales JOIN items USING (item) WHERE price < 1 GROUP BY kind',
  'SELECT sales.id, facts FROM sales LEFT JOIN (SELECT item, facts || jsonb_build_object(''kind'', kind) AS facts FROM items WHERE on_sale) i USING (item) ORDER BY price, sales.id LIMIT 200']);
SELECT c.* FROM compared('SELECT kind, length(kind), count(*) FROM sales JOIN items USING (item) WHERE kind = ''a'' GROUP BY kind') c;

-- Parameters of PostgreSQL's part and of the engine's, and plans that are kept.
SET plan_cache_mode = force_generic_plan;
PREPARE by_month(text, numeric) AS SELECT weekday, count(*) FROM sales JOIN days USING (day) WHERE month = $1 AND price < $2 GROUP BY weekday ORDER BY weekday LIMIT 2;
EXECUTE by_month('Feb', 50);
EXECUTE by_month('Mar', 1);
RESET plan_cache_mode;
-- Hot rows in PostgreSQL and cold ones in files.
CREATE TABLE parts (id integer, item integer, day date, price numeric(9,2), code text COLLATE "C") PARTITION BY RANGE (id);
SELECT format('CREATE FOREIGN TABLE parts_cold PARTITION OF parts FOR VALUES FROM (1) TO (120001) SERVER pystachio OPTIONS (path %L)', :'scratch' || '/sent_rows/sales.parquet')
\gexec
CREATE TABLE parts_hot PARTITION OF parts FOR VALUES FROM (120001) TO (200000);
INSERT INTO parts_hot SELECT n + 120000, n % 1000, date '2025-02-05' + n % 10, n / 100.0, 'hot' FROM generate_series(1, 5000) n;
CREATE TABLE parts_heap AS SELECT * FROM parts;
ANALYZE;
EXPLAIN (COSTS OFF) SELECT code, count(*), sum(price) FROM parts GROUP BY code;
SELECT * FROM compared_all(ARRAY[
  'SELECT code, count(*), sum(price), avg(price), min(day), max(day) FROM parts GROUP BY code',
  'SELECT count(*) FROM parts WHERE price < 10',
  'SELECT month, count(DISTINCT item), sum(price) FROM parts JOIN days USING (day) GROUP BY month',
  'SELECT id, price FROM parts ORDER BY price DESC, id LIMIT 10',
  'SELECT item, sum(price) FROM parts WHERE id > 119990 GROUP BY item']);
-- Rights and policies of PostgreSQL's tables are PostgreSQL's.
CREATE ROLE sent_rows_reader;
GRANT USAGE ON SCHEMA sent_rows TO sent_rows_reader;
GRANT SELECT ON sales, days TO sent_rows_reader;
GRANT SELECT (item, kind) ON items TO sent_rows_reader;
ALTER TABLE days ENABLE ROW LEVEL SECURITY;
CREATE POLICY mondays ON days TO sent_rows_reader USING (weekday = 1);
SET ROLE sent_rows_reader;
SELECT weekday, count(*) FROM sales JOIN days USING (day) GROUP BY weekday;
SELECT kind, count(*) FROM sales JOIN items USING (item) GROUP BY kind ORDER BY kind;
SELECT kind, count(*) FROM sales JOIN items USING (item) WHERE on_sale GROUP BY kind;
RESET ROLE;
-- Rows in a cursor, an error on the way, and a transaction that goes on.
BEGIN;
DECLARE c CURSOR FOR SELECT id, month FROM sales JOIN days USING (day) ORDER BY id;
FETCH 2 FROM c;
SAVEPOINT before;
SELECT count(*) FROM sales JOIN (SELECT 1 / (item - 5) AS item FROM items OFFSET 0) i USING (item);
ROLLBACK TO before;
FETCH 1 FROM c;
UPDATE days SET month = 'all' WHERE day = '2024-01-01';
SELECT month, count(*) FROM sales JOIN days USING (day) WHERE day < '2024-01-03' GROUP BY month ORDER BY month;
ROLLBACK;
-- What no file holds.
UPDATE items SET weight = 'NaN' WHERE item = 3;
SELECT sum(weight) FROM sales JOIN items USING (item);
SET pystachio.send_rows = off;
SELECT sum(weight) FROM sales JOIN items USING (item);
EXPLAIN (COSTS OFF, VERBOSE) SELECT month, count(*) FROM sales JOIN days USING (day) GROUP BY month;
RESET pystachio.send_rows;
-- Strict, and as the source of rows that are written.
SET pystachio.strict = on;
SELECT count(*) FROM sales JOIN days USING (day);
RESET pystachio.strict;
CREATE TABLE results AS SELECT month, count(*) AS n FROM sales JOIN days USING (day) GROUP BY month;
INSERT INTO results SELECT kind, count(*) FROM sales JOIN items USING (item) GROUP BY kind;
SELECT count(*), sum(n) FROM results;
SET client_min_messages = warning;
DROP SCHEMA sent_rows CASCADE;
DROP ROLE sent_rows_reader;
