--
-- Functions of timestamptz, by the session's time zone.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set ECHO none
\i :abs_srcdir/include/moments.sql
CREATE TABLE public.zones (place integer, zone text);
INSERT INTO zones VALUES (1, 'UTC'), (2, 'America/New_York'), (3, 'Europe/London'), (4, 'Europe/Dublin'), (5, 'Asia/Kolkata'), (6, 'Pacific/Apia'),
  (7, 'Africa/Casablanca'), (8, '+05:30'), (9, 'FOO+3BAR,M3.2.0,M11.1.0'), (10, 'Africa/Freetown'), (11, 'America/Juneau'), (12, 'Asia/Manila'),
  (13, 'Europe/Berlin'), (14, 'Australia/Lord_Howe'), (15, 'America/Sao_Paulo');
-- What queries give over both kinds of tables, in one zone after another.
CREATE FUNCTION public.same_in_zones(queries text[]) RETURNS TABLE (zone text, results text) LANGUAGE plpgsql AS $$
DECLARE
  query text;
BEGIN
  FOR zone IN SELECT z.zone FROM zones z ORDER BY place LOOP
    PERFORM set_config('timezone', zone, true);
    results := NULL;
    FOREACH query IN ARRAY queries LOOP
      results := concat_ws(', ', results, same(query));
    END LOOP;
    RETURN NEXT;
  END LOOP;
END $$;
\set ECHO all
SELECT * FROM pushed('SELECT date_trunc(''month'', d), count(*) FROM moments GROUP BY 1');
SELECT * FROM pushed('SELECT id FROM moments WHERE extract(hour FROM tz) = 3 AND tz::date > ''2000-01-01'' AND tz + interval ''1 month 2 days 3 hours'' < now()');
SELECT * FROM same_in_zones(ARRAY['SELECT date_trunc(''month'', d), count(*) FROM moments GROUP BY 1',
  'SELECT id, d::timestamptz, ts::timestamptz, tz::timestamp, tz::date, tz::time FROM moments']);
SELECT * FROM same_in_zones(ARRAY(SELECT format('SELECT id, date_trunc(%L, d), date_trunc(%1$L, tz), date_trunc(%1$L, ts::timestamptz) FROM moments', f)
  FROM unnest('{microseconds,milliseconds,second,minute,hour,day,week,month,quarter,year,decade,century,millennium}'::text[]) f));
SELECT * FROM same_in_zones(ARRAY(SELECT format('SELECT id, extract(%s FROM tz), date_part(%1$L, tz) FROM moments', f)
  FROM unnest('{microseconds,milliseconds,second,minute,hour,day,week,month,quarter,year,decade,century,millennium,dow,isodow,doy,isoyear,epoch}'::text[]) f));
SELECT * FROM same_in_zones(ARRAY(SELECT format('SELECT id, tz + interval %L, tz - interval %1$L FROM moments', i)
  FROM unnest('{0,1 day,1 month,-13 months,1 year 2 months 3 days 04:05:06.789,-25 hours,40 days -1 hour}'::text[]) i));
SELECT * FROM same_in_zones('{"SELECT a.id, a.tz - b.tz FROM moments a JOIN moments b ON b.id = a.id + 7", "SELECT id, ts < tz, ts = tz, ts >= tz FROM moments"}');
-- Edge values, of which some are out of range.
SELECT * FROM same_in_zones(ARRAY(SELECT format('SELECT id, date_trunc(%L, v), extract(%1$s FROM v), v::timestamp, v::date, v + interval ''1 month'' FROM edge_timestamptz WHERE id <> 19', f)
  FROM unnest('{second,hour,day,year}'::text[]) f) ||
  ARRAY['SELECT id, v::timestamptz FROM edge_timestamp WHERE id <> 19', 'SELECT id, v::timestamptz FROM edge_date WHERE v < ''200000-01-01'' AND v > ''4713-01-01 BC''']);
SELECT same('SELECT v::timestamptz FROM edge_date'), same('SELECT v::timestamp FROM edge_timestamptz');
-- A plan that is kept goes by the zone of each run.
SET plan_cache_mode = force_generic_plan;
PREPARE months AS SELECT date_trunc('month', d) AS month, count(*) FROM moments WHERE d > '2024-01-01' GROUP BY 1 ORDER BY 1 LIMIT 2;
SET timezone = 'America/New_York';
EXECUTE months;
SET timezone = 'Asia/Kolkata';
EXECUTE months;
SET timezone = 'Pacific/Apia';
EXECUTE months;
RESET timezone;
RESET plan_cache_mode;
\set ECHO none
DROP TABLE zones, heap.moments, heap.edge_date, heap.edge_timestamp, heap.edge_timestamptz;
DROP FOREIGN TABLE pq.moments, pq.edge_date, pq.edge_timestamp, pq.edge_timestamptz;
DROP FUNCTION same_in_zones;
