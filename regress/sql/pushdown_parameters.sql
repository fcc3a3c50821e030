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
-- Below zero it is the error of heap tables, as a constant too.
PREPARE p2_offset(bigint, bigint) AS SELECT id FROM t3 ORDER BY id OFFSET $1 LIMIT $2;
PREPARE p2_heap(bigint, bigint) AS SELECT id FROM heap.t3 ORDER BY id OFFSET $1 LIMIT $2;
\set VERBOSITY sqlstate
EXECUTE p2(-1);
EXECUTE p2_offset(-1, 2);
EXECUTE p2_offset(-1, -1);
EXECUTE p2_offset(0, -1);
EXECUTE p2_heap(-1, 2);
EXECUTE p2_heap(-1, -1);
EXECUTE p2_heap(0, -1);
SELECT id FROM t3 LIMIT -1;
SELECT id FROM t3 OFFSET -1;
SELECT id FROM heap.t3 LIMIT -1;
SELECT id FROM heap.t3 OFFSET -1;
\set VERBOSITY default
EXECUTE p2(-1);
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

-- Arrays: elements NULL, none, no array, several dimensions.
PREPARE p5(integer[]) AS SELECT count(*), sum(n) FROM t1 WHERE a = ANY ($1);
PREPARE p6(bigint[]) AS SELECT id FROM t3 WHERE a <> ALL ($1) ORDER BY id;
PREPARE p7(numeric[]) AS SELECT count(*) FILTER (WHERE n = ANY ($1)), count(*) FILTER (WHERE n <> ALL ($1)) FROM t1;
PREPARE p8(text[]) AS SELECT x.id FROM t3 x LEFT JOIN t2 y ON x.a = y.a AND y.c = ANY ($1) WHERE y.id IS NULL ORDER BY 1 LIMIT 3;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p5('{1,2}');
EXECUTE p5('{1,2,NULL}');
EXECUTE p5('{{1,2},{3,NULL}}');
EXECUTE p5('{}');
EXECUTE p5(NULL);
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p6('{1,2}');
EXECUTE p6('{1,2,5000000000}');
EXECUTE p6('{1,2,NULL}');
EXECUTE p6('{}');
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p7('{1.50}');
EXECUTE p7('{1.5,NaN,1e30}');
EXECUTE p7('{NaN}');
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p8('{a}');
EXECUTE p8('{a,b,"special requests"}');
EXECUTE p8('{}');
RESET plan_cache_mode;

-- An array of an InitPlan, of a stable function, of a PL/pgSQL variable, and of a row.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM t1 WHERE a = ANY ((SELECT array_agg(a) FROM t3)::integer[]);
SELECT count(*) FROM t1 WHERE a = ANY ((SELECT array_agg(a) FROM t3)::integer[]);
SELECT count(*) FROM heap.t1 WHERE a = ANY ((SELECT array_agg(a) FROM heap.t3)::integer[]);
SELECT count(*) FROM t1 WHERE c = ANY (current_schemas(true)::text[] || '{a,b}'::text[]);
SELECT o.l, q.k FROM (VALUES ('{1,2}'::integer[]), (NULL), ('{}'), ('{3,NULL}')) o(l), LATERAL (SELECT count(*) AS k FROM t1 WHERE a = ANY (o.l)) q;
DO $$
DECLARE
  wanted integer[] := '{}';
  found bigint;
BEGIN
  FOR step IN 0..8 LOOP
    wanted := wanted || step;
    SELECT count(*) INTO found FROM t1 WHERE a = ANY (wanted);
  END LOOP;
  RAISE NOTICE 'found %', found;
END $$;
-- What stays: other operators, another kind of element, an array of every row's own.
PREPARE p9(integer[]) AS SELECT count(*) FROM t1 WHERE a > ANY ($1);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p9('{1,2}');
RESET plan_cache_mode;
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM t1 WHERE a = ANY (ARRAY[id, a] || 3);
