--
-- Rows that are compared, counted and named whole; LIKE with ANY and ALL; EXISTS in GROUP BY.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
-- Pages by key.
SELECT * FROM pushed('SELECT id FROM t1 WHERE (d, id) < (date ''1994-09-10'', 40) ORDER BY d DESC, id DESC LIMIT 3');
SELECT same('SELECT id FROM t1 WHERE (d, id) < (date ''1994-09-10'', 40)');
SELECT same('SELECT id, (a, b) < (2, 3), (a, b) <= (2, 3), (a, b) > (2, 3), (a, b) >= (2, 3) FROM t1');
SELECT same('SELECT id, (a, b, i) < (2, 3, 1), (a, b, i) <= (2, 3, 1), (a, b, i) > (2, 3, 1), (a, b, i) >= (2, 3, 1) FROM t1');
SELECT same('SELECT id, (a, NULL) < (2, 3), (a, b) < (NULL, 3), (a, b) < (2, NULL::integer) FROM t1');
SELECT same('SELECT x.id, y.id FROM t1 x JOIN t2 y ON x.a = y.a AND (x.c, x.n, x.ts) >= (y.c, y.n, y.ts)');
SELECT same('SELECT id FROM t1 WHERE NOT (s, k, f) > (''AIR'', true, 1)');
SELECT same('SELECT id FROM t1 WHERE (ts, id) < (now(), 7) AND (id, 1 / (id - 5)) > (5, 0)');
PREPARE page(date, integer) AS SELECT count(*), max(id) FROM t1 WHERE (d, id) > ($1, $2);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE page('1994-09-10', 40);
EXECUTE page('1994-09-10', 40);
EXECUTE page(NULL, 40);
RESET plan_cache_mode;
-- Different rows.
SELECT * FROM pushed('SELECT count(DISTINCT (a, c)) FROM t1');
SELECT same('SELECT count(DISTINCT (a, c)) FROM t1');
SELECT same('SELECT k, count(DISTINCT (a, n)) FROM t1 GROUP BY k HAVING count(DISTINCT (a, n)) > 1');
SELECT same('SELECT count(DISTINCT (a, c)) FROM t0');
SELECT same('SELECT count(DISTINCT (a, c)), count(*) FROM t1');
SELECT same('SELECT count(DISTINCT (a, f)), count(DISTINCT (a, c)) FILTER (WHERE k) FROM t1');
-- LIKE with ANY and ALL.
SELECT * FROM pushed('SELECT count(*) FROM t1 WHERE c LIKE ANY (ARRAY[''a%'', ''%r''])');
SELECT same('SELECT id, c LIKE ANY (''{a%,%r}''), c NOT LIKE ALL (''{a%,%r}''), c ILIKE ANY (''{B,X%}''), c NOT ILIKE ANY (''{a%,b}'') FROM t1');
SELECT same('SELECT id, c LIKE ANY (ARRAY[''a%'', NULL]), c LIKE ALL (ARRAY[''a%'', NULL]), c LIKE ANY (''{}''), c LIKE ALL (''{}'') FROM t1');
SELECT same('SELECT id, c LIKE ANY (NULL::text[]) FROM t1');
SELECT same('SELECT id, s LIKE ANY (''{a%,B}''), c LIKE ANY (ARRAY[s, ''%b'']) FROM t1');
PREPARE alike(text[]) AS SELECT count(*) FILTER (WHERE c LIKE ANY ($1)), count(*) FILTER (WHERE c NOT ILIKE ALL ($1)),
  count(*) FILTER (WHERE c LIKE ALL ($1)), count(*) FILTER (WHERE CASE c WHEN 'a' THEN c LIKE ANY ($1) ELSE k END) FROM t1 WHERE id > 0 OR c LIKE ANY ($1);
PREPARE alike_heap(text[]) AS SELECT count(*) FILTER (WHERE c LIKE ANY ($1)), count(*) FILTER (WHERE c NOT ILIKE ALL ($1)),
  count(*) FILTER (WHERE c LIKE ALL ($1)), count(*) FILTER (WHERE CASE c WHEN 'a' THEN c LIKE ANY ($1) ELSE k END) FROM heap.t1 WHERE id > 0 OR c LIKE ANY ($1);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE alike('{a%}');
EXECUTE alike('{a%,%r}');
EXECUTE alike_heap('{a%,%r}');
EXECUTE alike('{a%,NULL}');
EXECUTE alike_heap('{a%,NULL}');
EXECUTE alike('{}');
EXECUTE alike_heap('{}');
EXECUTE alike(NULL);
EXECUTE alike_heap(NULL);
RESET plan_cache_mode;
