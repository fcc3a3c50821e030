--
-- AT TIME ZONE and date_trunc with a time zone that the query names.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set ECHO none
\i :abs_srcdir/include/moments.sql
SET timezone = 'America/New_York';
CREATE TABLE public.zones (place integer, zone text);
INSERT INTO zones VALUES (1, 'UTC'), (2, 'America/New_York'), (3, 'Europe/Berlin'), (4, 'Asia/Kolkata'), (5, 'Australia/Lord_Howe'),
  (6, 'America/Sao_Paulo'), (7, 'Africa/Casablanca'), (8, 'pacific/apia'), (9, '+05:30'), (10, 'est'), (11, 'PDT'), (12, 'Z'), (13, 'Etc/GMT-14'),
  (14, 'FOO+3BAR,M3.2.0,M11.1.0'), (15, 'CET-1CEST,M3.5.0,M10.5.0/3'), (16, '<+0330>-3:30');
-- What queries give over both kinds of tables, with one zone after another in the place of %1$L.
CREATE FUNCTION public.same_with_zones(queries text[]) RETURNS TABLE (zone text, results text) LANGUAGE plpgsql AS $$
DECLARE
  query text;
BEGIN
  FOR zone IN SELECT z.zone FROM zones z ORDER BY place LOOP
    results := NULL;
    FOREACH query IN ARRAY queries LOOP
      results := concat_ws(', ', results, same(format(query, zone)));
    END LOOP;
    RETURN NEXT;
  END LOOP;
END $$;
\set ECHO all
SELECT * FROM pushed($$SELECT date_trunc('month', tz AT TIME ZONE 'Europe/Berlin'), count(*) FROM moments GROUP BY 1$$);
SELECT * FROM pushed($$SELECT id FROM moments WHERE ts AT TIME ZONE interval '-03:30' < now() AND date_trunc('day', tz, 'EST') > '2000-01-01'$$);
SELECT * FROM same_with_zones(ARRAY['SELECT id, tz AT TIME ZONE %1$L, ts AT TIME ZONE %1$L, d AT TIME ZONE %1$L FROM moments',
  'SELECT id FROM moments WHERE tz AT TIME ZONE %1$L >= ''2024-03-10 02:30'' OR ts AT TIME ZONE %1$L < ''1900-01-01''',
  'SELECT date_trunc(''month'', tz AT TIME ZONE %1$L), count(*), max(ts AT TIME ZONE %1$L) FROM moments GROUP BY 1',
  'SELECT id, extract(hour FROM tz AT TIME ZONE %1$L), (tz AT TIME ZONE %1$L)::date, ts AT TIME ZONE %1$L AT TIME ZONE ''Asia/Tokyo'' FROM moments']);
SELECT * FROM same_with_zones(ARRAY(SELECT format('SELECT id, date_trunc(%L, tz, %%1$L) FROM moments', f)
  FROM unnest('{microseconds,milliseconds,second,minute,hour,day,week,month,quarter,year,decade,century,millennium}'::text[]) f));
-- Edge values, of which some are out of range.
SELECT * FROM same_with_zones('{"SELECT id, v AT TIME ZONE %1$L FROM edge_timestamptz WHERE id <> 19", "SELECT id, v AT TIME ZONE %1$L FROM edge_timestamp WHERE id <> 19",
  "SELECT id, date_trunc(''hour'', v, %1$L), date_trunc(''year'', v, %1$L) FROM edge_timestamptz WHERE id <> 19"}');
-- An interval ahead of UTC.
SELECT i AS ahead, same(format('SELECT id, tz AT TIME ZONE interval %L, ts AT TIME ZONE interval %1$L FROM moments', i))
FROM unnest('{0,05:30,-03:30:15.7,16:00,-40:00}'::text[]) i;
-- A zone that only run time tells.
SELECT same('SELECT id, tz AT TIME ZONE (SELECT zone FROM public.zones WHERE place = 3) FROM moments');
SELECT same('SELECT id, tz AT TIME ZONE (SELECT NULL::text) FROM moments');
SELECT same('SELECT id, tz AT TIME ZONE current_setting(''timezone'') FROM moments');
SELECT same('SELECT id, tz AT TIME ZONE (SELECT ''Europe/Nowhere''::text) FROM moments');
SELECT same('SELECT id, tz AT TIME ZONE (SELECT interval ''1 month'') FROM moments');
SELECT count(*) FROM pq.moments WHERE tz AT TIME ZONE (SELECT 'MSK'::text) > '2000-01-01';
SET plan_cache_mode = force_generic_plan;
PREPARE days(text) AS SELECT tz AT TIME ZONE $1 AS local, date_trunc('day', tz, $1) FROM pq.moments WHERE id < 4 ORDER BY id;
PREPARE days_heap(text) AS SELECT tz AT TIME ZONE $1 AS local, date_trunc('day', tz, $1) FROM heap.moments WHERE id < 4 ORDER BY id;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE days('Europe/Berlin');
EXECUTE days('Europe/Berlin');
EXECUTE days_heap('Europe/Berlin');
EXECUTE days('Australia/Lord_Howe');
EXECUTE days_heap('Australia/Lord_Howe');
RESET plan_cache_mode;
-- What stays with PostgreSQL, and why.
CREATE FUNCTION public.refusals(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
BEGIN
  PERFORM set_config('search_path', 'pq, public', true);
  EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) ' || query INTO plan;
  RETURN QUERY SELECT DISTINCT reason #>> '{}' FROM jsonb_path_query(plan, '$.**."Not Pushed Down"[*]') reason;
END $$;
SELECT refusals($$SELECT count(*) FROM moments WHERE tz AT TIME ZONE (CASE id % 2 WHEN 0 THEN 'UTC' ELSE 'EST' END) > '2000-01-01'$$);
SELECT refusals($$SELECT count(*) FROM moments WHERE tz AT TIME ZONE 'MSK' > '2000-01-01'$$);
SELECT refusals($$SELECT count(*) FROM moments WHERE tz AT TIME ZONE 'Europe/Nowhere' > '2000-01-01'$$);
SELECT refusals($$SELECT count(*) FROM moments WHERE CASE WHEN id > 5 THEN tz AT TIME ZONE (SELECT 'UTC'::text) > '2000-01-01' END$$);
SELECT same('SELECT count(*) FROM moments WHERE tz AT TIME ZONE ''MSK'' > ''2000-01-01''');
SELECT same('SELECT count(*) FROM moments WHERE tz AT TIME ZONE ''Europe/Nowhere'' > ''2000-01-01''');
\set ECHO none
DROP TABLE zones, heap.moments, heap.edge_timestamp, heap.edge_timestamptz;
DROP FOREIGN TABLE pq.moments, pq.edge_timestamp, pq.edge_timestamptz;
DROP FUNCTION same_with_zones, refusals;
