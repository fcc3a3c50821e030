--
-- Dates and timestamps beside timestamptz, by the session's time zone.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set ECHO none
\i :abs_srcdir/include/moments.sql
CREATE TABLE public.zones (place integer, zone text);
INSERT INTO zones VALUES (1, 'UTC'), (2, 'America/New_York'), (3, 'Europe/London'), (4, 'Europe/Dublin'), (5, 'Asia/Kolkata'), (6, 'Pacific/Apia'),
  (7, 'Africa/Casablanca'), (8, '+05:30'), (9, 'FOO+3BAR,M3.2.0,M11.1.0'), (10, 'Africa/Freetown');
-- The rows of each comparison of a column with a moment: constants, and values that are known only at run time.
CREATE FUNCTION public.compared(tables text, moments text, type text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  moment text;
  found text;
BEGIN
  PERFORM set_config('search_path', tables || ', public', true);
  FOREACH moment IN ARRAY moments::text[] LOOP
    EXECUTE (SELECT 'SELECT row(' || string_agg(format('sum(id) FILTER (WHERE %s %s %L::%s)', c, o, moment, type), ', ') || ')::text FROM moments'
             FROM unnest('{d,ts,tz}'::text[]) c, unnest('{=,<>,<,<=,>,>=,IS DISTINCT FROM,IS NOT DISTINCT FROM}'::text[]) o) INTO found;
    RETURN NEXT found;
    EXECUTE format('SELECT row(count(*), sum(id))::text FROM moments WHERE d >= (SELECT %L::%s) OR ts < (SELECT %1$L::%2$s)', moment, type) INTO found;
    RETURN NEXT found;
    EXECUTE format('SELECT row(count(*), sum(id))::text FROM moments WHERE ts >= (SELECT %L::%s)', moment, type) INTO found;
    RETURN NEXT found;
    EXECUTE format('SELECT row(count(*), sum(id))::text FROM moments WHERE d < (SELECT %L::%s)', moment, type) INTO found;
    RETURN NEXT found;
  END LOOP;
END $$;
CREATE FUNCTION public.compared_in_zones(type text) RETURNS TABLE (zone text, moments bigint, differences bigint) LANGUAGE plpgsql AS $$
DECLARE
  chosen text[];
BEGIN
  FOR zone IN SELECT z.zone FROM zones z ORDER BY place LOOP
    PERFORM set_config('timezone', zone, true);
    EXECUTE format('SELECT array_agg(CASE WHEN %L = ''date'' THEN d::text WHEN %1$L = ''timestamp'' THEN ts::text ELSE tz::text END) FROM heap.moments '
                   'WHERE id %% 97 = 1', type) INTO chosen;
    chosen := chosen || '{infinity,-infinity,200000-01-01}';
    moments := cardinality(chosen);
    differences := (SELECT count(*) FROM (SELECT ROW_NUMBER() OVER () AS n, f FROM compared('pq', chosen::text, type) f) a
                    JOIN (SELECT ROW_NUMBER() OVER () AS n, f FROM compared('heap', chosen::text, type) f) b USING (n) WHERE a.f IS DISTINCT FROM b.f);
    RETURN NEXT;
  END LOOP;
END $$;
\set ECHO all
SELECT * FROM compared_in_zones('timestamptz');
SELECT * FROM compared_in_zones('timestamp');
SELECT * FROM compared_in_zones('date');

-- What dashboards ask.
SET timezone = 'America/New_York';
SELECT * FROM pushed('SELECT count(*) FROM moments WHERE ts >= now() - interval ''7 days''');
SELECT * FROM pushed('SELECT count(*) FROM moments WHERE ts >= to_timestamp(''2024-03-10 02:30'', ''YYYY-MM-DD HH24:MI'')');
SELECT * FROM pushed('SELECT count(*) FROM moments WHERE d >= current_date - interval ''30 years''');
SELECT * FROM pushed('SELECT count(*) FROM moments WHERE d >= date_trunc(''month'', date ''2024-03-10'') - interval ''1 month''');
SELECT * FROM pushed('SELECT count(*) FROM moments WHERE d BETWEEN ''2024-03-10 00:00-05''::timestamptz AND now()');
SELECT same('SELECT count(*) FROM moments WHERE ts >= now() - interval ''7 days'' OR ts IN (now(), ''2024-03-10 07:00Z''::timestamptz)');
SELECT same('SELECT count(*), sum(id) FROM moments WHERE ts >= to_timestamp(''2024-03-10 02:30'', ''YYYY-MM-DD HH24:MI'')');
SELECT same('SELECT count(*), sum(id) FROM moments WHERE d >= date_trunc(''month'', date ''2024-03-10'') - interval ''1 month''');
SELECT same('SELECT id FROM moments WHERE CASE WHEN id > 500 THEN ts < now() ELSE d > ''2000-01-01 12:00''::timestamp END');
SELECT same('SELECT id FROM moments a JOIN t1 b USING (id) WHERE a.ts < now() AND b.d <= now()');
-- One that is kept goes by the zone of each run.
SET plan_cache_mode = force_generic_plan;
PREPARE since(timestamptz, date, interval) AS SELECT count(*), sum(id), min(ts) FROM moments WHERE ts >= $1 AND d >= $2 + $3;
PREPARE since_heap(timestamptz, date, interval) AS SELECT count(*), sum(id), min(ts) FROM heap.moments WHERE ts >= $1 AND d >= $2 + $3;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE since('2024-03-10 07:30Z', '2020-02-29', '1 year');
EXECUTE since('2024-03-10 07:30Z', '2020-02-29', '1 year');
EXECUTE since_heap('2024-03-10 07:30Z', '2020-02-29', '1 year');
SET timezone = 'Asia/Kolkata';
EXECUTE since('2024-03-10 07:30Z', '2020-02-29', '1 year');
EXECUTE since_heap('2024-03-10 07:30Z', '2020-02-29', '1 year');
SET timezone = 'Pacific/Apia';
EXECUTE since('2011-12-30 10:30Z', '1980-01-31', '1 month');
EXECUTE since_heap('2011-12-30 10:30Z', '1980-01-31', '1 month');
EXECUTE since('infinity', '1980-01-31', '1 month');
EXECUTE since(NULL, '1980-01-31', '1 month');
RESET plan_cache_mode;
RESET timezone;
\set ECHO none
DROP TABLE zones, heap.moments;
DROP FOREIGN TABLE pq.moments;
DROP FUNCTION compared, compared_in_zones;
