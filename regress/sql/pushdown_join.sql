--
-- Joins of every kind.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- Inner.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k, sum(x.n) AS n FROM t1 x JOIN t2 y ON x.a = y.a;
SELECT count(*) AS k, sum(x.n) AS n FROM t1 x JOIN t2 y ON x.a = y.a;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k, sum(x.n) AS n FROM t1 x JOIN t2 y ON x.a = y.a) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, sum(x.n) AS n FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k, sum(x.n) AS n FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, sum(x.n) AS n FROM t1 x JOIN t2 y ON x.a = y.a) q)) difference;

-- Left with a filter on the nullable side.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k, count(y.id) AS m FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k WHERE y.c IS NULL;
SELECT count(*) AS k, count(y.id) AS m FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k WHERE y.c IS NULL;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k, count(y.id) AS m FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k WHERE y.c IS NULL) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, count(y.id) AS m FROM heap.t1 x LEFT JOIN heap.t2 y ON x.a = y.a AND y.k WHERE y.c IS NULL) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k, count(y.id) AS m FROM heap.t1 x LEFT JOIN heap.t2 y ON x.a = y.a AND y.k WHERE y.c IS NULL) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, count(y.id) AS m FROM t1 x LEFT JOIN t2 y ON x.a = y.a AND y.k WHERE y.c IS NULL) q)) difference;

-- Right.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k, count(x.id) AS m FROM t1 x RIGHT JOIN t3 y ON x.c = y.c AND x.i = y.i;
SELECT count(*) AS k, count(x.id) AS m FROM t1 x RIGHT JOIN t3 y ON x.c = y.c AND x.i = y.i;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m FROM t1 x RIGHT JOIN t3 y ON x.c = y.c AND x.i = y.i) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m FROM heap.t1 x RIGHT JOIN heap.t3 y ON x.c = y.c AND x.i = y.i) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m FROM heap.t1 x RIGHT JOIN heap.t3 y ON x.c = y.c AND x.i = y.i) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m FROM t1 x RIGHT JOIN t3 y ON x.c = y.c AND x.i = y.i) q)) difference;

-- Full.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k, count(x.id) AS m, count(y.id) AS o FROM t2 x FULL JOIN t3 y ON x.d = y.d;
SELECT count(*) AS k, count(x.id) AS m, count(y.id) AS o FROM t2 x FULL JOIN t3 y ON x.d = y.d;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m, count(y.id) AS o FROM t2 x FULL JOIN t3 y ON x.d = y.d) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m, count(y.id) AS o FROM heap.t2 x FULL JOIN heap.t3 y ON x.d = y.d) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m, count(y.id) AS o FROM heap.t2 x FULL JOIN heap.t3 y ON x.d = y.d) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k, count(x.id) AS m, count(y.id) AS o FROM t2 x FULL JOIN t3 y ON x.d = y.d) q)) difference;

-- Semi.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id;
SELECT id FROM t3 x WHERE EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE EXISTS (SELECT 1 FROM heap.t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE EXISTS (SELECT 1 FROM heap.t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.id <> x.id) ORDER BY id) q)) difference;

-- Anti.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t3 x WHERE NOT EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.c = x.c) ORDER BY id;
SELECT id FROM t3 x WHERE NOT EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.c = x.c) ORDER BY id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT id FROM t3 x WHERE NOT EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.c = x.c) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE NOT EXISTS (SELECT 1 FROM heap.t2 y WHERE y.a = x.a AND y.c = x.c) ORDER BY id) q)
  UNION ALL (SELECT q::text FROM (SELECT id FROM heap.t3 x WHERE NOT EXISTS (SELECT 1 FROM heap.t2 y WHERE y.a = x.a AND y.c = x.c) ORDER BY id) q EXCEPT ALL SELECT q::text FROM (SELECT id FROM t3 x WHERE NOT EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a AND y.c = x.c) ORDER BY id) q)) difference;

-- Anti by an outer join.
EXPLAIN (VERBOSE, COSTS OFF) SELECT x.id, y.c FROM t3 x LEFT JOIN t2 y ON x.a = y.a AND x.c = y.c WHERE y.id IS NULL ORDER BY x.id;
SELECT x.id, y.c FROM t3 x LEFT JOIN t2 y ON x.a = y.a AND x.c = y.c WHERE y.id IS NULL ORDER BY x.id;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT x.id, y.c FROM t3 x LEFT JOIN t2 y ON x.a = y.a AND x.c = y.c WHERE y.id IS NULL ORDER BY x.id) q EXCEPT ALL SELECT q::text FROM (SELECT x.id, y.c FROM heap.t3 x LEFT JOIN heap.t2 y ON x.a = y.a AND x.c = y.c WHERE y.id IS NULL ORDER BY x.id) q)
  UNION ALL (SELECT q::text FROM (SELECT x.id, y.c FROM heap.t3 x LEFT JOIN heap.t2 y ON x.a = y.a AND x.c = y.c WHERE y.id IS NULL ORDER BY x.id) q EXCEPT ALL SELECT q::text FROM (SELECT x.id, y.c FROM t3 x LEFT JOIN t2 y ON x.a = y.a AND x.c = y.c WHERE y.id IS NULL ORDER BY x.id) q)) difference;

-- Four tables.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a LEFT JOIN t3 z ON y.c = z.c JOIN t3 w ON w.i = x.i WHERE x.id < 20;
SELECT count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a LEFT JOIN t3 z ON y.c = z.c JOIN t3 w ON w.i = x.i WHERE x.id < 20;
SELECT count(*) FROM (
  (SELECT q::text FROM (SELECT count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a LEFT JOIN t3 z ON y.c = z.c JOIN t3 w ON w.i = x.i WHERE x.id < 20) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a LEFT JOIN heap.t3 z ON y.c = z.c JOIN heap.t3 w ON w.i = x.i WHERE x.id < 20) q)
  UNION ALL (SELECT q::text FROM (SELECT count(*) AS k FROM heap.t1 x JOIN heap.t2 y ON x.a = y.a LEFT JOIN heap.t3 z ON y.c = z.c JOIN heap.t3 w ON w.i = x.i WHERE x.id < 20) q EXCEPT ALL SELECT q::text FROM (SELECT count(*) AS k FROM t1 x JOIN t2 y ON x.a = y.a LEFT JOIN t3 z ON y.c = z.c JOIN t3 w ON w.i = x.i WHERE x.id < 20) q)) difference;
