-- Everyday queries: what dashboards, object-relational mappers, pages of lists, loads, and people at a prompt send.
--
-- A query begins with `-- GROUP: NAME`. Lines that may follow:
--   -- duckdb: SQL    the same in DuckDB's words; `none` if DuckDB has no such query or gives another answer by design
--   -- prepare: SQL   a statement that runs before it in the session (PREPARE); DuckDB then needs a line of its own
-- The order of rows counts where the outermost ORDER BY says so; the reader looks for that at the end of the query.

-- dashboard: orders a month
SELECT date_trunc('month', o_orderdate) AS month, count(*), sum(o_totalprice) FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: orders a month by a cast
SELECT date_trunc('month', o_orderdate::timestamp) AS month, count(*) FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: orders a year
SELECT extract(year FROM o_orderdate) AS year, count(*), sum(o_totalprice) FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: orders by day of week
SELECT extract(dow FROM o_orderdate) AS dow, count(*) FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: revenue by segment and year
SELECT c_mktsegment, extract(year FROM o_orderdate) AS year, sum(o_totalprice) FROM orders JOIN customer ON o_custkey = c_custkey GROUP BY 1, 2 ORDER BY 1, 2;

-- dashboard: events a day
SELECT day, count(*), count(DISTINCT user_id) FROM events GROUP BY day ORDER BY day;

-- dashboard: events an hour of one week
SELECT date_trunc('hour', ts) AS hour, count(*) FROM events WHERE ts >= '2025-03-03' AND ts < '2025-03-10' GROUP BY 1 ORDER BY 1;

-- dashboard: last seven days
SELECT kind, count(*) FROM events WHERE ts >= now() - interval '7 days' GROUP BY 1 ORDER BY 1;

-- dashboard: last ten years by now
SELECT kind, count(*) FROM events WHERE ts >= now() - interval '10 years' GROUP BY 1 ORDER BY 1;

-- dashboard: last ten years by localtimestamp
SELECT kind, count(*) FROM events WHERE ts >= localtimestamp - interval '10 years' GROUP BY 1 ORDER BY 1;
-- duckdb: SELECT kind, count(*) FROM events WHERE ts >= current_localtimestamp() - interval '10 years' GROUP BY 1 ORDER BY 1

-- dashboard: orders of the last forty years
SELECT count(*) FROM orders WHERE o_orderdate >= current_date - interval '40 years';

-- dashboard: orders of the last forty years by date
SELECT count(*) FROM orders WHERE o_orderdate >= (current_date - interval '40 years')::date;

-- dashboard: superset time range
-- duckdb: SELECT kind, count(*) FROM events WHERE ts >= timestamp '2025-06-01 00:00:00' AND ts < timestamp '2025-07-01 00:00:00' GROUP BY 1 ORDER BY 1
SELECT kind, count(*) FROM events WHERE ts >= to_timestamp('2025-06-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND ts < to_timestamp('2025-07-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY 1 ORDER BY 1;

-- dashboard: metabase previous month
SELECT count(*) FROM events WHERE day >= date_trunc('month', date '2025-06-15') - interval '1 month' AND day < date_trunc('month', date '2025-06-15');

-- dashboard: grafana buckets of six hours
-- duckdb: SELECT floor(epoch(ts) / 21600) * 21600 AS t, count(*) FROM events WHERE ts BETWEEN '2025-05-01' AND '2025-05-08' GROUP BY 1 ORDER BY 1
SELECT floor(extract(epoch FROM ts) / 21600) * 21600 AS t, count(*) FROM events WHERE ts BETWEEN '2025-05-01' AND '2025-05-08' GROUP BY 1 ORDER BY 1;

-- dashboard: kinds by country
SELECT country, kind, count(*), sum(amount) FROM events GROUP BY 1, 2 ORDER BY 1, 2;

-- dashboard: top ten pages
SELECT page, count(*) AS n FROM events GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10;

-- dashboard: top ten customers
SELECT c_name, sum(o_totalprice) AS total FROM orders JOIN customer ON o_custkey = c_custkey GROUP BY c_custkey, c_name ORDER BY 2 DESC, 1 LIMIT 10;

-- dashboard: top nations by revenue of a year
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey WHERE l_shipdate >= '1995-01-01' AND l_shipdate < '1996-01-01' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10;

-- dashboard: conversion funnel
SELECT count(*) FILTER (WHERE kind = 'view') AS views, count(*) FILTER (WHERE kind = 'click') AS clicks, count(*) FILTER (WHERE kind = 'purchase') AS purchases FROM events WHERE day >= '2025-01-01';

-- dashboard: share of failures
SELECT country, count(*) AS n, sum(CASE WHEN ok THEN 0 ELSE 1 END) AS failed FROM events GROUP BY 1 ORDER BY 1;

-- dashboard: rate of failures
SELECT country, round(100.0 * count(*) FILTER (WHERE NOT ok) / count(*), 2) AS percent FROM events GROUP BY 1 ORDER BY 1;

-- dashboard: pivot of status with integer zero
SELECT extract(year FROM o_orderdate) AS year, sum(CASE WHEN o_orderstatus = 'F' THEN o_totalprice ELSE 0 END) AS f, sum(CASE WHEN o_orderstatus = 'O' THEN o_totalprice ELSE 0 END) AS o, sum(CASE WHEN o_orderstatus = 'P' THEN o_totalprice ELSE 0 END) AS p FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: pivot with filters
SELECT extract(year FROM o_orderdate) AS year, sum(o_totalprice) FILTER (WHERE o_orderstatus = 'F') AS f, sum(o_totalprice) FILTER (WHERE o_orderstatus = 'O') AS o FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: greatest of a case with integer zero
SELECT max(CASE WHEN o_orderstatus = 'F' THEN o_totalprice ELSE 0 END) FROM orders;

-- dashboard: case as a group
SELECT CASE WHEN o_totalprice < 50000 THEN 'small' WHEN o_totalprice < 200000 THEN 'middle' ELSE 'large' END AS size, count(*) FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: histogram by width
SELECT floor(o_totalprice / 50000) AS bucket, count(*) FROM orders GROUP BY 1 ORDER BY 1;

-- dashboard: distinct users by kind
SELECT kind, count(DISTINCT user_id), count(*) FROM events GROUP BY 1 ORDER BY 1;

-- dashboard: distinct priorities by customer
SELECT o_custkey, count(DISTINCT o_orderpriority), sum(o_totalprice) FROM orders GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 20;

-- dashboard: averages
SELECT l_returnflag, avg(l_quantity), avg(l_extendedprice), avg(l_discount) FROM lineitem GROUP BY 1 ORDER BY 1;

-- dashboard: having
SELECT o_custkey, count(*) AS n FROM orders GROUP BY 1 HAVING count(*) > 20 ORDER BY 2 DESC, 1 LIMIT 20;

-- dashboard: first and last event of users
SELECT user_id, min(ts), max(ts), count(*) FROM events GROUP BY 1 ORDER BY 1 LIMIT 50;

-- dashboard: events by local day of the session's zone
-- duckdb: none
SELECT date_trunc('day', ts AT TIME ZONE 'UTC') AS day, count(*) FROM events WHERE day >= '2025-06-01' AND day < '2025-06-15' GROUP BY 1 ORDER BY 1;

-- dashboard: to_char of a month as a group
-- duckdb: SELECT strftime(day, '%Y-%m') AS month, count(*) FROM events GROUP BY 1 ORDER BY 1
SELECT to_char(day, 'YYYY-MM') AS month, count(*) FROM events GROUP BY 1 ORDER BY 1;

-- dashboard: running total of months
SELECT month, n, sum(n) OVER (ORDER BY month) AS total FROM (SELECT date_trunc('month', ts) AS month, count(*) AS n FROM events GROUP BY 1) m ORDER BY 1;

-- dashboard: month before
SELECT month, n, n - lag(n) OVER (ORDER BY month) AS change FROM (SELECT date_trunc('month', ts) AS month, count(*) AS n FROM events GROUP BY 1) m ORDER BY 1;

-- dashboard: rank of countries within kinds
SELECT kind, country, n FROM (SELECT kind, country, count(*) AS n, rank() OVER (PARTITION BY kind ORDER BY count(*) DESC, country) AS r FROM events GROUP BY 1, 2) x WHERE r <= 3 ORDER BY 1, 3 DESC, 2;

-- dashboard: rollup
SELECT country, kind, count(*) FROM events GROUP BY ROLLUP (country, kind) ORDER BY grouping(country), grouping(kind), 1 NULLS LAST, 2 NULLS LAST;

-- dashboard: lower of a trimmed text as a group
SELECT lower(trim(replace(c_mktsegment, 'U', 'u'))) AS segment, count(*) FROM customer GROUP BY 1 ORDER BY 1;

-- orm: first rows
SELECT o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate FROM orders ORDER BY o_orderkey LIMIT 21;

-- orm: count of all
SELECT COUNT(*) AS "__count" FROM events;

-- orm: exists
SELECT 1 AS a FROM orders WHERE o_custkey = 37 LIMIT 1;

-- orm: row by key
SELECT * FROM orders WHERE o_orderkey = 4711 LIMIT 21;

-- orm: rows by keys
SELECT * FROM orders WHERE o_orderkey IN (1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39) ORDER BY o_orderkey;

-- orm: rows by an array of keys
-- duckdb: SELECT o_orderkey, o_totalprice FROM orders WHERE o_orderkey IN (1, 2, 3, 32, 33, 34, 64, 65, 66) ORDER BY 1
SELECT o_orderkey, o_totalprice FROM orders WHERE o_orderkey = ANY ('{1,2,3,32,33,34,64,65,66}'::bigint[]) ORDER BY 1;

-- orm: a parent with its children
SELECT c.c_custkey, c.c_name, o.o_orderkey, o.o_totalprice FROM customer c LEFT OUTER JOIN orders o ON c.c_custkey = o.o_custkey WHERE c.c_custkey = 37 ORDER BY 1, 3;

-- orm: parents with children of some
SELECT DISTINCT c.c_custkey, c.c_name FROM customer c INNER JOIN orders o ON c.c_custkey = o.o_custkey WHERE o.o_totalprice > 300000 ORDER BY 1 LIMIT 25;

-- orm: parents by an inner query
SELECT c_custkey, c_name FROM customer WHERE c_custkey IN (SELECT o_custkey FROM orders WHERE o_totalprice > 300000) ORDER BY 1 LIMIT 25;

-- orm: parents without children
SELECT c_custkey, c_name FROM customer WHERE NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey) ORDER BY 1 LIMIT 25;

-- orm: parents not in an inner query
SELECT count(*) FROM customer WHERE c_custkey NOT IN (SELECT o_custkey FROM orders);

-- orm: case-insensitive contains
SELECT c_custkey, c_name FROM customer WHERE UPPER(c_name) LIKE UPPER('%0000003%') ORDER BY 1 LIMIT 21;

-- orm: ilike
SELECT c_custkey, c_name FROM customer WHERE c_name ILIKE '%customer#00000003%' ORDER BY 1 LIMIT 21;

-- orm: like any
-- duckdb: SELECT count(*) FROM customer WHERE c_phone LIKE '11-%' OR c_phone LIKE '25-%'
SELECT count(*) FROM customer WHERE c_phone LIKE ANY (ARRAY['11-%', '25-%']);

-- orm: starts with
SELECT count(*) FROM part WHERE p_name LIKE 'forest%';

-- orm: between and in
SELECT count(*) FROM lineitem WHERE l_shipdate BETWEEN '1994-01-01' AND '1994-03-31' AND l_shipmode IN ('AIR', 'RAIL', 'TRUCK');

-- orm: is null
SELECT count(*) FROM events WHERE amount IS NULL AND ref IS NOT NULL;

-- orm: aggregate of a filtered relation
SELECT COUNT(*) AS n, SUM(o_totalprice) AS total, AVG(o_totalprice) AS mean, MIN(o_orderdate) AS first, MAX(o_orderdate) AS last FROM orders WHERE o_custkey BETWEEN 100 AND 200;

-- orm: annotated count of children
SELECT c.c_custkey, c.c_name, COUNT(o.o_orderkey) AS n FROM customer c LEFT OUTER JOIN orders o ON c.c_custkey = o.o_custkey GROUP BY c.c_custkey, c.c_name ORDER BY n DESC, 1 LIMIT 20;

-- orm: scalar subquery in the target list
SELECT c_custkey, (SELECT count(*) FROM orders WHERE o_custkey = c_custkey) AS n FROM customer WHERE c_custkey <= 50 ORDER BY 1;

-- orm: exists as a flag
SELECT c_custkey, EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey) AS has FROM customer WHERE c_custkey <= 50 ORDER BY 1;

-- orm: exists below case as a group
SELECT CASE WHEN EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey) THEN 'active' ELSE 'idle' END AS state, count(*) FROM customer GROUP BY 1 ORDER BY 1;

-- orm: union of two relations
SELECT c_nationkey AS nation FROM customer UNION SELECT s_nationkey FROM supplier ORDER BY 1;

-- orm: json of a row and its children
-- duckdb: none
SELECT c_custkey, (SELECT json_agg(o ORDER BY o.o_orderkey) FROM (SELECT o_orderkey, o_totalprice FROM orders WHERE o_custkey = c_custkey) o) AS orders FROM customer WHERE c_custkey <= 10 ORDER BY 1;

-- orm: json_agg of whole rows of a join
-- duckdb: none
SELECT json_agg(n.* ORDER BY n.n_nationkey) FROM nation n JOIN region r ON n_regionkey = r_regionkey WHERE r_name = 'ASIA';

-- orm: whole row is null
-- duckdb: SELECT count(*) FROM customer LEFT JOIN orders o ON o_custkey = c_custkey WHERE o.o_orderkey IS NULL
SELECT count(*) FROM customer LEFT JOIN orders o ON o_custkey = c_custkey WHERE o IS NULL;

-- orm: latest row of a key
SELECT * FROM events WHERE user_id = 42 ORDER BY ts DESC, id DESC LIMIT 1;

-- orm: distinct values for a list
SELECT DISTINCT country FROM events ORDER BY 1;

-- orm: two levels of joins
SELECT o.o_orderkey, c.c_name, n.n_name FROM orders o JOIN customer c ON o.o_custkey = c.c_custkey JOIN nation n ON c.c_nationkey = n.n_nationkey WHERE o.o_orderkey BETWEEN 100 AND 200 ORDER BY 1;

-- page: newest first
SELECT * FROM events ORDER BY ts DESC, id DESC LIMIT 10;

-- page: newest first by time alone
SELECT ts, count(*) OVER () AS n FROM (SELECT ts FROM events ORDER BY ts DESC LIMIT 10) e ORDER BY 1 DESC;

-- page: newest of many files
SELECT * FROM many ORDER BY ts DESC, id DESC LIMIT 10;

-- page: oldest of many files
SELECT * FROM many ORDER BY ts, id LIMIT 10;

-- page: greatest key first
SELECT l_orderkey, l_linenumber, l_quantity FROM lineitem ORDER BY l_orderkey DESC, l_linenumber LIMIT 10;

-- page: least key first
SELECT l_orderkey, l_linenumber, l_quantity FROM lineitem ORDER BY l_orderkey, l_linenumber LIMIT 10;

-- page: second page
SELECT o_orderkey, o_totalprice FROM orders ORDER BY o_totalprice DESC, o_orderkey LIMIT 50 OFFSET 50;

-- page: deep offset
SELECT o_orderkey, o_orderdate FROM orders ORDER BY o_orderdate DESC, o_orderkey LIMIT 50 OFFSET 10000;

-- page: deeper offset
SELECT id, ts FROM events ORDER BY id OFFSET 19000 LIMIT 5;

-- page: offset without order in a key
SELECT count(*) FROM (SELECT o_orderkey FROM orders ORDER BY o_orderkey LIMIT 100 OFFSET 5000) x;

-- page: keyset by a row
-- duckdb: SELECT o_orderkey, o_orderdate FROM orders WHERE (o_orderdate, o_orderkey) < (date '1995-06-01', 100000::bigint) ORDER BY o_orderdate DESC, o_orderkey DESC LIMIT 50
SELECT o_orderkey, o_orderdate FROM orders WHERE (o_orderdate, o_orderkey) < ('1995-06-01', 100000) ORDER BY o_orderdate DESC, o_orderkey DESC LIMIT 50;

-- page: keyset by a row, ascending
-- duckdb: SELECT id, ts FROM events WHERE (ts, id) > (timestamp '2025-06-01 00:00:00', 0::bigint) ORDER BY ts, id LIMIT 50
SELECT id, ts FROM events WHERE (ts, id) > ('2025-06-01 00:00:00', 0) ORDER BY ts, id LIMIT 50;

-- page: keyset by or
SELECT o_orderkey, o_orderdate FROM orders WHERE o_orderdate < '1995-06-01' OR (o_orderdate = '1995-06-01' AND o_orderkey < 100000) ORDER BY o_orderdate DESC, o_orderkey DESC LIMIT 50;

-- page: count beside the page
SELECT o_orderkey, count(*) OVER () AS total FROM orders WHERE o_orderstatus = 'P' ORDER BY o_orderkey LIMIT 20;

-- page: filtered and sorted by text
SELECT c_name, c_phone FROM customer WHERE c_mktsegment = 'BUILDING' ORDER BY c_name LIMIT 20;

-- page: nulls last
SELECT id, amount FROM events ORDER BY amount DESC NULLS LAST, id LIMIT 20;

-- page: nulls first
SELECT id, amount FROM events ORDER BY amount NULLS FIRST, id LIMIT 20;

-- page: distinct on
SELECT DISTINCT ON (user_id) user_id, ts, kind FROM events WHERE user_id <= 100 ORDER BY user_id, ts DESC, id DESC;

-- page: top three of each group
SELECT country, id, amount FROM (SELECT country, id, amount, row_number() OVER (PARTITION BY country ORDER BY amount DESC NULLS LAST, id) AS r FROM events) x WHERE r <= 3 ORDER BY 1, 3 DESC NULLS LAST, 2;

-- page: lateral top of each
SELECT c_custkey, o_orderkey, o_totalprice FROM (SELECT c_custkey FROM customer ORDER BY c_custkey LIMIT 20) c CROSS JOIN LATERAL (SELECT o_orderkey, o_totalprice FROM orders WHERE o_custkey = c_custkey ORDER BY o_totalprice DESC, o_orderkey LIMIT 3) o ORDER BY 1, 3 DESC, 2;

-- page: with ties
-- duckdb: none
SELECT o_orderdate FROM orders ORDER BY o_orderdate FETCH FIRST 5 ROWS WITH TIES;

-- lookup: event by id
SELECT * FROM events WHERE id = 12345;

-- lookup: order by key
SELECT * FROM orders WHERE o_orderkey = 39;

-- lookup: absent key
SELECT * FROM orders WHERE o_orderkey = 8;

-- lookup: session by text
SELECT count(*), min(ts) FROM events WHERE session = 's00000123';

-- lookup: events of a user
SELECT count(*), max(ts) FROM events WHERE user_id = 77;

-- lookup: lines of an order
SELECT l_linenumber, l_quantity, l_extendedprice FROM lineitem WHERE l_orderkey = 39 ORDER BY 1;

-- lookup: a day
SELECT count(*), sum(amount) FROM events WHERE day = '2025-02-28';

-- lookup: a moment
SELECT count(*) FROM events WHERE ts = '2025-02-28 12:00:00';

-- lookup: join by a key
SELECT o_orderkey, l_linenumber, p_name FROM orders JOIN lineitem ON l_orderkey = o_orderkey JOIN part ON p_partkey = l_partkey WHERE o_orderkey = 7 ORDER BY 1, 2;

-- lookup: first of an index column
SELECT min(o_orderdate), max(o_orderdate) FROM orders;

-- lookup: greatest key
SELECT max(l_orderkey) FROM lineitem;

-- lookup: estimate of rows
SELECT count(*) FROM lineitem;

-- etl: distinct keys of a load
SELECT DISTINCT user_id, country FROM events ORDER BY 1, 2 LIMIT 500;

-- etl: duplicates
SELECT user_id, day, count(*) AS n FROM events GROUP BY 1, 2 HAVING count(*) > 3 ORDER BY 3 DESC, 1, 2 LIMIT 50;

-- etl: rows of one side only
SELECT count(*) FROM (SELECT o_custkey FROM orders EXCEPT SELECT c_custkey FROM customer WHERE c_nationkey = 3) x;

-- etl: rows of both sides
SELECT count(*) FROM (SELECT l_partkey FROM lineitem WHERE l_quantity = 50 INTERSECT SELECT ps_partkey FROM partsupp WHERE ps_availqty < 1000) x;

-- etl: full join that reconciles
SELECT count(*), count(a.c_nationkey), count(b.s_nationkey) FROM (SELECT DISTINCT c_nationkey FROM customer WHERE c_custkey < 30) a FULL JOIN (SELECT DISTINCT s_nationkey FROM supplier WHERE s_suppkey < 30) b ON a.c_nationkey = b.s_nationkey;

-- etl: anti join of days
SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM orders WHERE o_orderkey = e.ref);

-- etl: semi join with repeated keys
SELECT count(*) FROM events WHERE country IN (SELECT country FROM events WHERE amount > 990);

-- etl: semi join with repeated keys and a residual
SELECT count(*) FROM events a WHERE a.id <= 5000 AND EXISTS (SELECT 1 FROM events b WHERE b.country = a.country AND b.id <> a.id AND b.id <= 5000);

-- etl: not in with repeated keys
SELECT count(*) FROM events WHERE country NOT IN (SELECT country FROM events WHERE amount > 999.5 AND country IS NOT NULL);

-- etl: sums by day and kind
SELECT day, kind, count(*), sum(amount), min(duration_ms), max(duration_ms) FROM events GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 1000;

-- etl: coalesce and nullif
SELECT coalesce(country, 'none') AS c, count(nullif(kind, 'view')) FROM events GROUP BY 1 ORDER BY 1;

-- etl: text parts
SELECT split_part(page, '/', 2) AS section, count(*) FROM events GROUP BY 1 ORDER BY 1;

-- etl: substring and length
SELECT substring(page, 1, 6) AS head, max(length(page)), count(*) FROM events GROUP BY 1 ORDER BY 1;

-- etl: concatenated key
SELECT country || '-' || kind AS k, count(*) FROM events WHERE country IS NOT NULL GROUP BY 1 ORDER BY 1;

-- etl: regular expression
SELECT count(*) FROM events WHERE page ~ '^/(shop|cart)/[0-9]+$';
-- duckdb: SELECT count(*) FROM events WHERE regexp_matches(page, '^/(shop|cart)/[0-9]+$')

-- etl: casts
SELECT sum(duration_ms::bigint), sum(user_id::numeric), count(*) FROM events WHERE id::text LIKE '%77';

-- etl: changed rows by interval
SELECT count(*) FROM events WHERE ts >= timestamp '2025-06-01' AND ts < timestamp '2025-06-01' + interval '1 day';

-- etl: age of orders
SELECT l_receiptdate - l_commitdate AS days, count(*) FROM lineitem GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20;

-- etl: date arithmetic
SELECT count(*) FROM lineitem WHERE l_receiptdate > l_commitdate + 30;

-- etl: cte used twice
WITH m AS (SELECT o_custkey, sum(o_totalprice) AS total FROM orders GROUP BY 1) SELECT count(*) FROM m WHERE total > (SELECT avg(total) FROM m);

-- etl: materialized cte
WITH m AS MATERIALIZED (SELECT o_custkey, sum(o_totalprice) AS total FROM orders GROUP BY 1) SELECT count(*), max(total) FROM m WHERE total > 100000;

-- etl: union all of two years
SELECT kind, count(*) FROM (SELECT kind FROM events WHERE day < '2025-01-01' UNION ALL SELECT kind FROM events WHERE day >= '2025-01-01') x GROUP BY 1 ORDER BY 1;

-- etl: string_agg
SELECT n_regionkey, string_agg(n_name, ',' ORDER BY n_name) FROM nation GROUP BY 1 ORDER BY 1;

-- etl: array_agg
-- duckdb: none
SELECT n_regionkey, array_agg(n_nationkey ORDER BY n_nationkey) FROM nation GROUP BY 1 ORDER BY 1;

-- etl: percentile
-- duckdb: none
SELECT kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms) FROM events GROUP BY 1 ORDER BY 1;

-- etl: boolean aggregates
SELECT kind, bool_and(ok), bool_or(ok) FROM events GROUP BY 1 ORDER BY 1;

-- etl: variance
-- duckdb: none
SELECT kind, stddev(duration_ms), variance(duration_ms) FROM events GROUP BY 1 ORDER BY 1;

-- etl: greatest of lines
SELECT max(l_extendedprice * (1 - l_discount) * (1 + l_tax)) FROM lineitem;

-- etl: count of distinct pairs
-- duckdb: SELECT count(*) FROM (SELECT DISTINCT user_id, kind FROM events)
SELECT count(DISTINCT (user_id, kind)) FROM events;

-- many: count
SELECT count(*) FROM many;

-- many: one device
SELECT count(*), sum(value) FROM many WHERE device = 7;

-- many: one hour
SELECT metric, count(*), max(value) FROM many WHERE ts >= '2025-02-01 00:00' AND ts < '2025-02-01 01:00' GROUP BY 1 ORDER BY 1;

-- many: by metric
SELECT metric, count(*), sum(value), min(value), max(value) FROM many GROUP BY 1 ORDER BY 1;

-- many: by day
SELECT date_trunc('day', ts) AS day, count(*) FROM many GROUP BY 1 ORDER BY 1;

-- many: row by id
SELECT * FROM many WHERE id = 777;

-- many: last of devices
SELECT device, max(ts) FROM many GROUP BY 1 ORDER BY 1;

-- wide: two columns
SELECT sum(c001), count(c002) FROM wide;

-- wide: one row
SELECT * FROM wide WHERE id = 77;

-- wide: some rows
SELECT * FROM wide ORDER BY id LIMIT 20;

-- wide: twenty sums
SELECT sum(c001), sum(c006), sum(c011), sum(c016), sum(c021), sum(c026), sum(c031), sum(c036), sum(c041), sum(c046), sum(c051), sum(c056), sum(c061), sum(c066), sum(c071), sum(c076), sum(c081), sum(c086), sum(c091), sum(c096) FROM wide;

-- wide: a group by a text far on the right
SELECT c298, count(*), sum(c296) FROM wide GROUP BY 1 ORDER BY 1;

-- wide: conditions on many columns
SELECT count(*) FROM wide WHERE c001 > 10 AND c006 > 10 AND c011 > 10 AND c003 <> 'v1' AND c008 <> 'v2';

-- months: count
SELECT count(*) FROM monthly;

-- months: one month
SELECT status, count(*), sum(amount) FROM monthly WHERE ts >= '2025-03-01' AND ts < '2025-04-01' GROUP BY 1 ORDER BY 1;

-- months: one day
SELECT count(*), sum(amount) FROM monthly WHERE ts >= '2025-03-05' AND ts < '2025-03-06';

-- months: by month
SELECT date_trunc('month', ts) AS month, count(*), sum(amount) FROM monthly GROUP BY 1 ORDER BY 1;

-- months: newest
SELECT * FROM monthly ORDER BY ts DESC, id DESC LIMIT 20;

-- months: by region and status
SELECT region, status, count(*), sum(amount) FROM monthly GROUP BY 1, 2 ORDER BY 1, 2;

-- months: row by id
SELECT * FROM monthly WHERE id = 4321;

-- mixed: a calendar on the heap
SELECT c.quarter, sum(l_extendedprice) FROM lineitem JOIN local_calendar c ON c.day = l_shipdate GROUP BY 1 ORDER BY 1;

-- mixed: labels on the heap
SELECT l.label, count(*) FROM events JOIN local_kinds l ON l.kind = events.kind GROUP BY 1 ORDER BY 1;

-- mixed: keys on the heap
SELECT count(*), sum(o_totalprice) FROM orders WHERE o_custkey IN (SELECT custkey FROM local_vip);

-- mixed: keys on the heap joined
SELECT v.custkey, count(*), sum(o_totalprice) FROM local_vip v JOIN orders ON o_custkey = v.custkey GROUP BY 1 ORDER BY 1;

-- mixed: keys as an array of a subquery
-- duckdb: SELECT count(*), sum(o_totalprice) FROM orders WHERE o_custkey IN (SELECT custkey FROM local_vip)
SELECT count(*), sum(o_totalprice) FROM orders WHERE o_custkey = ANY (ARRAY(SELECT custkey FROM local_vip));

-- mixed: unnested keys
-- duckdb: SELECT o_orderkey, o_totalprice FROM orders JOIN (SELECT unnest([1, 2, 3, 32, 33, 34]) AS k) k ON o_orderkey = k.k ORDER BY 1
SELECT o_orderkey, o_totalprice FROM orders JOIN unnest('{1,2,3,32,33,34}'::bigint[]) AS k ON o_orderkey = k ORDER BY 1;

-- mixed: values
SELECT v.name, count(*) FROM orders JOIN (VALUES ('F', 'done'), ('O', 'open'), ('P', 'partial')) AS v (status, name) ON o_orderstatus = v.status GROUP BY 1 ORDER BY 1;

-- mixed: left join of the heap
SELECT v.custkey, o.o_orderkey FROM local_vip v LEFT JOIN orders o ON o.o_custkey = v.custkey AND o.o_totalprice > 300000 ORDER BY 1, 2 NULLS LAST LIMIT 50;

-- mixed: series of days
-- duckdb: SELECT d::date AS day, count(e.id) FROM (SELECT unnest(generate_series(timestamp '2025-03-01', timestamp '2025-03-07', interval '1 day')) AS d) x LEFT JOIN events e ON e.day = d::date GROUP BY 1 ORDER BY 1
SELECT d::date AS day, count(e.id) FROM generate_series(timestamp '2025-03-01', timestamp '2025-03-07', interval '1 day') AS d LEFT JOIN events e ON e.day = d::date GROUP BY 1 ORDER BY 1;

-- prepared: a year by a date
-- prepare: PREPARE p1 (date) AS SELECT count(*), sum(l_extendedprice) FROM lineitem WHERE l_shipdate >= $1 AND l_shipdate < $1 + interval '1 year'
-- duckdb: SELECT count(*), sum(l_extendedprice) FROM lineitem WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1995-01-01'
EXECUTE p1 ('1994-01-01');

-- prepared: a key
-- prepare: PREPARE p2 (bigint) AS SELECT o_orderkey, o_totalprice FROM orders WHERE o_orderkey = $1
-- duckdb: SELECT o_orderkey, o_totalprice FROM orders WHERE o_orderkey = 39
EXECUTE p2 (39);

-- prepared: keys
-- prepare: PREPARE p3 (bigint[]) AS SELECT count(*), sum(o_totalprice) FROM orders WHERE o_orderkey = ANY ($1)
-- duckdb: SELECT count(*), sum(o_totalprice) FROM orders WHERE o_orderkey IN (1, 2, 3, 32, 33, 34)
EXECUTE p3 ('{1,2,3,32,33,34}');

-- prepared: a page
-- prepare: PREPARE p4 (int, int) AS SELECT o_orderkey FROM orders ORDER BY o_orderkey LIMIT $1 OFFSET $2
-- duckdb: SELECT o_orderkey FROM orders ORDER BY o_orderkey LIMIT 20 OFFSET 40
EXECUTE p4 (20, 40);

-- prepared: a pattern and a number
-- prepare: PREPARE p5 (text, numeric) AS SELECT count(*) FROM customer WHERE c_phone LIKE $1 AND c_acctbal > $2
-- duckdb: SELECT count(*) FROM customer WHERE c_phone LIKE '11-%' AND c_acctbal > 1000.50
EXECUTE p5 ('11-%', 1000.50);

-- prepared: an optional condition
-- prepare: PREPARE p6 (text) AS SELECT count(*) FROM events WHERE $1 IS NULL OR kind = $1
-- duckdb: SELECT count(*) FROM events WHERE kind = 'click'
EXECUTE p6 ('click');
