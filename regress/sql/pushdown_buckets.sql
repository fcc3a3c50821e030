--
-- Buckets of time: epochs divided, date_bin, to_timestamp.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set ECHO none
\i :abs_srcdir/include/moments.sql
SET timezone = 'Europe/Berlin';
\set ECHO all
SELECT * FROM pushed('SELECT floor(extract(epoch FROM ts) / 3600), count(*) FROM moments GROUP BY 1');
SELECT * FROM pushed('SELECT to_timestamp(floor(extract(epoch FROM tz) / 900) * 900) AS bucket, count(*) FROM moments GROUP BY 1');
SELECT * FROM pushed('SELECT date_bin(''15 minutes'', tz, ''2001-01-01'') AS bucket, count(*) FROM moments GROUP BY 1');
SELECT v AS value, same(format('SELECT id, extract(epoch FROM %1$s) / 3600, floor(extract(epoch FROM %1$s) / 3600), extract(epoch FROM %1$s)::bigint / 900 * 900 FROM moments', v)),
  same(format('SELECT id, to_timestamp(floor(extract(epoch FROM %1$s) / 900) * 900), to_timestamp(date_part(''epoch'', %1$s)) FROM moments', v)),
  same(format('SELECT floor(extract(epoch FROM %1$s) / 3600), count(*) FROM moments GROUP BY 1', v))
FROM unnest('{d,ts,tz}'::text[]) v;
-- Strides from origins before and after; the last ones are errors.
SELECT s AS stride, o AS origin, same(format('SELECT id, date_bin(%L, ts, %L), date_bin(%1$L, tz, %2$L), date_bin(%1$L, d, timestamp %2$L) FROM moments', s, o))
FROM unnest('{1 microsecond,15 minutes,1 day,7 days 00:00:01,40000000 days,0,-1 hour,1 month}'::text[]) s, unnest('{2001-01-01,2024-03-31 02:30,9999-12-31}'::text[]) o;
SELECT same('SELECT id, date_bin(''1 day'', ts, ''infinity'') FROM moments');
SELECT same('SELECT id, date_bin(''1 hour'', ts, (SELECT timestamp ''2024-02-29 00:20'')), date_bin(''1 hour'', tz, now()) > now() FROM moments');
SELECT same('SELECT id, date_bin(''1 hour'', ts, (SELECT timestamp ''-infinity'')) FROM moments');
SELECT same('SELECT date_bin(''1 day'', ts, ''2001-01-01'') AS day, count(*), min(tz) FROM moments WHERE date_bin(''1 day'', tz, ''2001-01-01 UTC'') > ''1990-01-01'' GROUP BY 1');
SELECT v AS type, same(format('SELECT id, date_bin(''1 day'', v, ''2001-01-01'') FROM edge_%s WHERE id <> 19', v)) FROM unnest('{timestamp,timestamptz}'::text[]) v;
-- Seconds.
SELECT same('SELECT id, to_timestamp(v) FROM edge_float8 WHERE abs(v) < 1e11'), same('SELECT id, to_timestamp(v) FROM edge_int8 WHERE v BETWEEN -1e11 AND 1e11'),
  same('SELECT id, to_timestamp(v / 1000) FROM edge_float8 WHERE abs(v) < 1e9 OR v IN (''infinity'', ''-infinity'')'),
  same('SELECT id, to_timestamp(v % 10000000000) FROM edge_int8');
SELECT same(format('SELECT id, to_timestamp(v) FROM edge_float8 WHERE id = %s', id)) FROM heap.edge_float8 ORDER BY id;
-- What is infinite has no fields in an engine.
SELECT same('SELECT id, extract(hour FROM to_timestamp(v)) FROM edge_float8 WHERE v IN (''infinity'', 0, 1)');
\set ECHO none
DROP TABLE heap.moments, heap.edge_timestamp, heap.edge_timestamptz, heap.edge_float8, heap.edge_int8;
DROP FOREIGN TABLE pq.moments, pq.edge_timestamp, pq.edge_timestamptz, pq.edge_float8, pq.edge_int8;
