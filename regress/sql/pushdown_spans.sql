--
-- Differences of timestamps: their fields and comparisons. Each query is compared with heap tables.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SELECT * FROM pushed('SELECT avg(extract(epoch FROM ts - d)) FROM t1 WHERE ts - d > interval ''1 day''');
SELECT same('SELECT avg(extract(epoch FROM ts - d)) FROM t1 WHERE ts - d > interval ''1 day''');
SELECT same('SELECT id, extract(epoch FROM ts - d), extract(epoch FROM d - ts) FROM t1');
SELECT same('SELECT id, extract(day FROM ts - d), extract(hour FROM ts - d), extract(minute FROM d - ts), extract(second FROM d - ts) FROM t1');
SELECT same('SELECT id, date_part(''day'', ts - d), date_part(''hour'', d - ts), date_part(''minute'', ts - d), date_part(''epoch'', d - ts), date_part(''second'', ts - d) FROM t1');
SELECT same('SELECT id, extract(epoch FROM (ts + interval ''0.000001 s'') - d), extract(epoch FROM ts::timestamptz - d::timestamptz) FROM t2');
SELECT same('SELECT x.id, y.id, extract(second FROM x.ts - y.ts), extract(day FROM x.ts - y.ts) FROM t2 x, t2 y WHERE x.ts - y.ts < interval ''2 months''');
SELECT same('SELECT id FROM t1 WHERE ts - d = interval ''0''');
SELECT same('SELECT id FROM t1 WHERE ts - d BETWEEN interval ''-10 years 1 month'' AND interval ''9000 days 3 hours''');
SELECT same('SELECT count(*) FROM t1 WHERE ts - d <> interval ''24 hours'' AND ts - d IS DISTINCT FROM interval ''1 day''');
SELECT same('SELECT id FROM t1 WHERE ts - d < NULL::interval');
SELECT same('SELECT x.id, y.id FROM t2 x JOIN t2 y ON x.ts - x.d > y.ts - y.d');
SELECT same('SELECT x.id, y.id FROM t2 x JOIN t2 y ON x.ts - x.d = y.ts - y.d');
SELECT same('SELECT CASE WHEN ts - d < interval ''1 year'' THEN ''short'' ELSE ''long'' END AS length, count(*) FROM t1 GROUP BY 1');
SELECT same('SELECT max(extract(epoch FROM ts - d)), min(extract(day FROM ts - d)) FROM t1 GROUP BY a % 3');

-- The mean, the least and the greatest.
SELECT * FROM pushed('SELECT k, avg(ts - d), max(ts - d) FROM t1 GROUP BY k');
SELECT same('SELECT a % 3, avg(ts - d), min(ts - d), max(d - ts), avg(d - ts) FILTER (WHERE id > 7) FROM t1 GROUP BY 1');
SELECT same('SELECT avg(ts - d), min(ts - d) FROM t1 WHERE id < 0');
SELECT same('SELECT avg(x.ts - y.ts), avg(x.ts - y.d), max(x.ts - y.d) FROM t1 x, t2 y');
SELECT same('SELECT x.id, avg(x.ts - y.ts) FROM t1 x, t2 y GROUP BY 1');
SELECT same('SELECT id, avg(ts - d) OVER (ORDER BY id ROWS 4 PRECEDING), max(ts - d) OVER (PARTITION BY k) FROM t1');
SELECT same('SELECT avg(ts::timestamptz - d::timestamptz) FROM t2');

-- Other intervals and fields stay, and so do orders.
SELECT * FROM pushed('SELECT id FROM t1 WHERE ts - d > interval ''1 day'' * a');
SELECT same('SELECT id FROM t1 WHERE ts - d > interval ''1 day'' * a');
SELECT * FROM pushed('SELECT extract(month FROM ts - d), extract(milliseconds FROM ts - d) FROM t1');
SELECT same('SELECT id, extract(month FROM ts - d), extract(milliseconds FROM ts - d) FROM t1');
SELECT * FROM pushed('SELECT sum(ts - d), avg(DISTINCT ts - d) FROM t1');
SELECT same('SELECT sum(ts - d), avg(DISTINCT ts - d) FROM t1');
SELECT same('SELECT nullif(ts - d, interval ''1 day'') FROM t1');
SELECT same('SELECT id FROM t1 ORDER BY ts - d, id LIMIT 5');
