--
-- Dates and timestamps as text: by the session's DateStyle and time zone, which the engine gets when the query starts, and by formats.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set ECHO none
\i :abs_srcdir/include/moments.sql
CREATE TABLE public.sessions (place integer, style text, zone text);
INSERT INTO sessions SELECT row_number() OVER (), style, zone FROM unnest('{"ISO, MDY","SQL, MDY","SQL, DMY","Postgres, MDY","Postgres, DMY","German, DMY"}'::text[]) style,
  unnest('{UTC,Europe/Berlin,Asia/Kolkata,Pacific/Apia,-02:30}'::text[]) zone;
-- In how many sessions a query gives the same over both.
CREATE FUNCTION public.same_in_sessions(query text) RETURNS TABLE (outcome text, sessions bigint) LANGUAGE plpgsql AS $$
DECLARE
  chosen record;
  outcomes text[] := '{}';
BEGIN
  FOR chosen IN SELECT * FROM sessions ORDER BY place LOOP
    PERFORM set_config('datestyle', chosen.style, true), set_config('timezone', chosen.zone, true);
    outcomes := outcomes || public.same(query);
  END LOOP;
  RETURN QUERY SELECT o, count(*) FROM unnest(outcomes) o GROUP BY 1 ORDER BY 1;
END $$;
SET search_path = pq, public;
\set ECHO all
--
-- Casts
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT d::text, ts::text, tz::text FROM moments WHERE 'on ' || d LIKE '%-02-%';
SELECT same_in_sessions('SELECT id, d::text, ts::text, tz::text FROM moments');
SELECT same_in_sessions('SELECT id, v::text FROM edge_date');
SELECT same_in_sessions('SELECT id, v::text FROM edge_timestamp');
SELECT same_in_sessions('SELECT id, v::text FROM edge_timestamptz');
SELECT same_in_sessions('SELECT id, to_json(tz), jsonb_build_array(tz, ts, d), concat(d, ts) FROM moments');
SELECT same_in_sessions('SELECT id, to_json(v) FROM edge_timestamptz');
SELECT same('SELECT id, v::text, v::real::text, to_json(v), to_jsonb(v) FROM edge_float8 WHERE abs(v) < 1e38 AND (v = 0 OR abs(v) > 1e-38)');
SELECT same('SELECT id, v::text, to_json(v), to_jsonb(v), concat(v) FROM edge_float8');
SELECT same_in_sessions('SELECT left(tz::text, 10) AS day, count(*) FROM moments GROUP BY 1');
-- Abbreviations of zones are in no table.
SET datestyle = 'SQL, DMY';
EXPLAIN (VERBOSE, COSTS OFF) SELECT d::text, tz::text FROM moments;
RESET datestyle;
--
-- A kept plan has the style and the zone of each run
--
SET plan_cache_mode = force_generic_plan;
PREPARE printed AS SELECT max(d::text), min(ts::text) FROM moments;
EXECUTE printed;
SET datestyle = 'German';
EXECUTE printed;
SET datestyle = 'ISO';
PREPARE moment AS SELECT tz::text FROM moments WHERE tz IS NOT NULL ORDER BY id LIMIT 1;
SET timezone = 'Asia/Kolkata';
EXECUTE moment;
SET timezone = 'America/New_York';
EXECUTE moment;
SET datestyle = 'Postgres';
EXECUTE moment;
RESET datestyle;
RESET timezone;
RESET plan_cache_mode;
--
-- to_char
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_char(ts, 'YYYY-MM'), count(*) FROM moments GROUP BY 1;
EXPLAIN (VERBOSE, COSTS OFF) SELECT to_char(tz, 'YYYY OF'), to_char(ts, 'TMDay'), to_char(id, '999') FROM moments;
SELECT same_in_sessions('SELECT id, to_char(d, ''Dy DD Mon YYYY BC''), to_char(ts, ''IYYY-IW-ID HH12:MI:SS.US pm''), to_char(tz, ''FMMonth FMDDth, Y,YYY HH24 J Q'') FROM moments');
SELECT same_in_sessions('SELECT to_char(tz, ''YYYY-MM'') AS month, count(*) FROM moments GROUP BY 1 ORDER BY 1');
SELECT same_in_sessions('SELECT id, age(tz, timestamptz ''2024-03-31 01:30+01''), age(ts, timestamp ''2000-02-29''), age(timestamptz ''2024-10-27 02:30+02'', tz) FROM moments');
--
-- Regular expressions
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM t1 WHERE c ~ '^[a-c]+$' AND c !~* 'B$' AND c SIMILAR TO '(a|b)%';
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM t1 WHERE c ~ '(a)\1';
SELECT same($$SELECT id FROM t1 WHERE c ~ '^[a-c]+$' OR c ~* 'B$' OR c SIMILAR TO '(x|y)_%' OR regexp_like(c, 'A.', 'i')$$);
