--
-- Values that are known only at run time.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
PREPARE p1(integer, text) AS SELECT count(*), sum(n) FROM t1 WHERE a > $1 AND c <> $2;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p1(2, 'a');
EXECUTE p1(2, 'a');
EXECUTE p1(5, 'b');
EXECUTE p1(NULL, 'b');
SET plan_cache_mode = force_custom_plan;
EXECUTE p1(2, 'a');
EXECUTE p1(5, 'b');
RESET plan_cache_mode;

-- A limit, a parameter that decides everything, a wide numeric.
PREPARE p2(bigint) AS SELECT id FROM t3 ORDER BY id LIMIT $1;
EXECUTE p2(3);
EXECUTE p2(0);
PREPARE p3(integer) AS SELECT count(*) FROM t1 WHERE $1 > 5 AND a > 1;
SET plan_cache_mode = force_generic_plan;
EXECUTE p3(6);
EXECUTE p3(5);
PREPARE p4(numeric) AS SELECT count(*) FROM t1 WHERE n > $1;
EXECUTE p4(1.4999999999999999999);
EXECUTE p4('NaN');
RESET plan_cache_mode;

-- PL/pgSQL variables, and a loop that runs the plan again and again.
DO $$
DECLARE
  total bigint := 0;
  found bigint;
BEGIN
  FOR step IN 0..8 LOOP
    SELECT count(*) INTO found FROM t1 WHERE a = step;
    total := total + found;
  END LOOP;
  RAISE NOTICE 'total %', total;
END $$;

-- A scan that is started anew for each outer row.
SELECT o.a, l.id FROM (VALUES (1), (2), (NULL), (2)) o(a) LEFT JOIN LATERAL (SELECT id FROM t3 WHERE t3.a = o.a ORDER BY id LIMIT 2) l ON true;
-- Stable functions.
SELECT count(*) FROM t1 WHERE d < current_date;
SELECT count(*) FROM t1 WHERE ts < now();
