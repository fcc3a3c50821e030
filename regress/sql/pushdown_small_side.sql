--
-- Joins of foreign tables with small relations that stay in PostgreSQL: the engine returns only rows with their keys.
-- Each case: the plan, and a comparison with the heap copy.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
-- The small sides: with duplicates and NULLs, of other types, without rows.
CREATE TEMP TABLE few (x integer, big bigint, name text, note text);
INSERT INTO few VALUES (1, 1, 'a', 'one'), (2, 2, 'b', 'two'), (2, 20, 'b', 'two again'), (NULL, NULL, NULL, 'none');
CREATE TEMP TABLE empty (x integer);
ANALYZE few, empty;
-- The other way to join with them is to send their rows.
SET pystachio.send_rows = off;
-- With the few rows of these tables no join costs much; this makes each row dear.
SET cpu_operator_cost = 1;
-- What the keyed joins of a statement have read, and what the engine returned for it.
CREATE FUNCTION public.keyed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  plan jsonb;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO plan;
  RETURN QUERY
    SELECT CASE WHEN node ->> 'Custom Plan Provider' = 'Join Keys'
                THEN format('keys: %s %s', node ->> 'Keys', node ->> 'Filter by Keys')
                WHEN node ->> 'Custom Plan Provider' = 'Keyed Join'
                THEN 'keyed join'
                ELSE format('scan: %s rows, keys %s', (node ->> 'Actual Rows')::numeric::integer, coalesce(node ->> 'Keys of the Join', 'of none')) END
    FROM jsonb_path_query(plan, 'strict $.**') node
    WHERE node ? 'Custom Plan Provider' OR node ? 'Engine Plan';
END $$;

-- The plan.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, note FROM t1 JOIN few ON a = x;

-- Inner, with duplicates and NULLs.
SELECT keyed('SELECT id, note FROM t1 JOIN few ON a = x');
SELECT same('SELECT id, note FROM t1 JOIN few ON a = x');
-- Semi.
SELECT keyed('SELECT id FROM t1 WHERE a IN (SELECT x FROM few)');
SELECT same('SELECT id FROM t1 WHERE a IN (SELECT x FROM few)');
SELECT keyed('SELECT note FROM few WHERE EXISTS (SELECT FROM t1 WHERE a = x AND id > 3)');
SELECT same('SELECT note FROM few WHERE EXISTS (SELECT FROM t1 WHERE a = x AND id > 3)');
-- The foreign table is the side that may be missing, on the left and on the right.
SELECT keyed('SELECT note, id FROM few LEFT JOIN t1 ON a = x AND c < note');
SELECT same('SELECT note, id FROM few LEFT JOIN t1 ON a = x AND c < note');
SELECT same('SELECT note, id FROM t1 RIGHT JOIN few ON a = x WHERE note <> ''two''');
-- Anti.
SELECT keyed('SELECT note FROM few WHERE NOT EXISTS (SELECT FROM t1 WHERE a = x)');
SELECT same('SELECT note FROM few WHERE NOT EXISTS (SELECT FROM t1 WHERE a = x)');
-- Rows of the foreign table are preserved: nothing may be filtered.
SELECT keyed('SELECT note, id FROM t1 LEFT JOIN few ON a = x');
SELECT same('SELECT note, id FROM t1 LEFT JOIN few ON a = x');
SELECT keyed('SELECT note, id FROM t1 FULL JOIN few ON a = x');
SELECT same('SELECT note, id FROM t1 FULL JOIN few ON a = x');
SELECT keyed('SELECT id FROM t1 WHERE NOT EXISTS (SELECT FROM few WHERE a = x)');
SELECT same('SELECT id FROM t1 WHERE NOT EXISTS (SELECT FROM few WHERE a = x)');

-- Types that differ, text, several keys, a key that is computed, and one that no engine compares.
SELECT keyed('SELECT id, note FROM t1 JOIN few ON a = big');
SELECT same('SELECT id, note FROM t1 JOIN few ON a = big');
SELECT same('SELECT id, note FROM t1 JOIN few ON b = x');
SELECT same('SELECT id, note FROM t1 JOIN few ON i = big');
SELECT keyed('SELECT id, note FROM t1 JOIN few ON c = name');
SELECT same('SELECT id, note FROM t1 JOIN few ON c = name');
SELECT same('SELECT id, note FROM t1 JOIN few ON s = name');
SELECT same('SELECT id, note FROM t1 JOIN few ON s = name::char(5)');
SELECT same('SELECT id, note FROM t1 JOIN few ON n = x');
SELECT same('SELECT id, x FROM t1 JOIN (VALUES (1.5), (''NaN''), (2.50), (NULL)) v (x) ON n = x');
SELECT same('SELECT id, x FROM t1 JOIN (VALUES (float8 ''1.5''), (''NaN''), (''-Infinity''), (0)) v (x) ON f = x');
SELECT same('SELECT id, x FROM t1 JOIN (VALUES (date ''1999-12-31''), (''infinity''), (''2000-02-29'')) v (x) ON d = x');
SELECT same('SELECT id, x FROM t1 JOIN (VALUES (timestamp ''1999-12-31''), (''infinity'')) v (x) ON d = x');
SELECT keyed('SELECT id, note FROM t1 JOIN few ON a = x AND c = name');
SELECT same('SELECT id, note FROM t1 JOIN few ON a = x AND c = name');
SELECT keyed('SELECT id, note FROM t1 JOIN few ON a + 1 = x * 2');
SELECT same('SELECT id, note FROM t1 JOIN few ON a + 1 = x * 2');
SELECT keyed('SELECT id, note FROM t1 JOIN few ON format(''%1$s'', c) = format(''%1$s'', name)');
SELECT same('SELECT id, note FROM t1 JOIN few ON format(''%1$s'', c) = format(''%1$s'', name)');

-- No rows: the engine is not asked. Only NULLs.
SELECT keyed('SELECT id FROM t1 JOIN empty ON a = x');
SELECT same('SELECT id FROM t1 JOIN empty ON a = x');
SELECT same('SELECT id FROM t1 JOIN few ON a = x WHERE x IS NULL');
SELECT same('SELECT id, x FROM t1 RIGHT JOIN (SELECT * FROM few WHERE note = ''none'') f ON a = x');

-- More rows than the setting allows: expected, so that the path is not there, and unexpected.
SET pystachio.join_keys = 30;
SELECT keyed('SELECT id, x FROM t1 JOIN generate_series(1, 40) x ON a = x');
SELECT keyed('SELECT id, x FROM t1 JOIN unnest((SELECT array_agg(g) FROM generate_series(1, 31) g)) x ON a = x');
SELECT same('SELECT id, x FROM t1 JOIN unnest((SELECT array_agg(g) FROM generate_series(1, 31) g)) x ON a = x');
SELECT keyed('SELECT id, x FROM t1 JOIN unnest((SELECT array_agg(g) FROM generate_series(1, 30) g)) x ON a = x');
SELECT keyed('SELECT x, id FROM unnest((SELECT array_agg(g) FROM generate_series(1, 31) g)) x LEFT JOIN t1 ON a = x');
SELECT same('SELECT x, id FROM unnest((SELECT array_agg(g) FROM generate_series(1, 31) g)) x LEFT JOIN t1 ON a = x');
SELECT same('SELECT note, (SELECT count(*) FROM t1 JOIN unnest((SELECT array_agg(g) FROM generate_series(x, 16 * x) g)) y ON a = y) FROM few');
SELECT same('SELECT note, (SELECT count(id) FROM unnest((SELECT array_agg(g) FROM generate_series(x, 16 * x) g)) y LEFT JOIN t1 ON a = y) FROM few');
SET pystachio.join_keys = 0;
SELECT keyed('SELECT id, note FROM t1 JOIN few ON a = x');
RESET pystachio.join_keys;
SET pystachio.pushdown = off;
SELECT keyed('SELECT id, note FROM t1 JOIN few ON a = x');
RESET pystachio.pushdown;

-- Small sides of other kinds: VALUES, functions, arrays, CTEs, volatile ones.
SELECT keyed('SELECT id, y FROM t1 JOIN (VALUES (1, ''p''), (2, ''q'')) v (x, y) ON a = x');
SELECT same('SELECT id, y FROM t1 JOIN (VALUES (1, ''p''), (2, ''q'')) v (x, y) ON a = x');
SELECT same('SELECT id, x FROM t1 JOIN generate_series(1, 3) x ON a = x');
SELECT same('SELECT id, x FROM t1 JOIN unnest(ARRAY[1, 2, NULL]) x ON a = x');
SELECT same('WITH w AS MATERIALIZED (SELECT x FROM few) SELECT id, x FROM t1 JOIN w ON a = x');
SELECT count(*) > 0 AS found FROM t1 JOIN (SELECT (1 + 0 * random())::integer AS x OFFSET 0) r ON a = x;

-- A prepared statement: by a custom and by a generic plan.
PREPARE by_keys(integer[]) AS SELECT count(*), sum(id) FROM t1 JOIN unnest($1) x ON a = x;
EXECUTE by_keys('{1,2,NULL}');
SET plan_cache_mode = force_generic_plan;
EXECUTE by_keys('{1,2,NULL}');
EXECUTE by_keys('{}');
EXECUTE by_keys(NULL);
RESET plan_cache_mode;
SELECT count(*), sum(id) FROM heap.t1 JOIN unnest('{1,2,NULL}'::integer[]) x ON a = x;

-- Several foreign tables: the condition goes to the scan with the key. Then two small sides, and a chain of them.
SELECT keyed('SELECT t1.id, note FROM t1 JOIN t2 ON t1.c = t2.c JOIN few ON t2.a = x');
SELECT same('SELECT t1.id, note FROM t1 JOIN t2 ON t1.c = t2.c JOIN few ON t2.a = x');
SELECT same('SELECT t1.id, f.note, g.note FROM t1 JOIN few f ON t1.a = f.x JOIN few g ON t1.c = g.name');
SELECT same('SELECT t1.id, t2.id, note FROM few JOIN t1 ON t1.a = x JOIN t2 ON t2.id = t1.id + x');
SELECT same('SELECT t1.id, note FROM t1 JOIN few ON a = x WHERE format(''%1$s'', c) > note ORDER BY id, note LIMIT 5');

-- Groups and unions of the engine's tables.
SELECT keyed('SELECT note, k FROM (SELECT a, count(*) AS k FROM t1 GROUP BY a) g JOIN few ON a = x');
SELECT same('SELECT note, k FROM (SELECT a, count(*) AS k FROM t1 GROUP BY a) g JOIN few ON a = x');
SELECT keyed('SELECT note, id FROM (SELECT a, id FROM t1 UNION ALL SELECT a, id FROM t2) u JOIN few ON a = x');
SELECT same('SELECT note, id FROM (SELECT a, id FROM t1 UNION ALL SELECT a, id FROM t2) u JOIN few ON a = x');

-- Partitions: foreign tables, and one of PostgreSQL's.
CREATE TABLE parts (id integer, a integer, c text) PARTITION BY RANGE (id);
SELECT format('CREATE FOREIGN TABLE part_%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s) SERVER pystachio OPTIONS (path %L)',
  n, n * 1000000, (n + 1) * 1000000, path)
FROM (SELECT n, option_value FROM (VALUES (0, 't1'), (1, 't2')) t (n, name),
  LATERAL (SELECT option_value FROM pg_options_to_table((SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = ('pq.' || name)::regclass))
           WHERE option_name = 'path') o) t (n, path)
\gexec
CREATE TABLE part_own PARTITION OF parts FOR VALUES FROM (2000000) TO (3000000);
INSERT INTO part_own SELECT 2000000 + x, x % 5, 'own' FROM generate_series(1, 20) x;
SELECT keyed('SELECT parts.id, note FROM parts JOIN few ON a = x');
SELECT (SELECT array_agg(r ORDER BY r) FROM (SELECT (parts.id, note)::text FROM parts JOIN few ON a = x) q (r))
     = (SELECT array_agg(r ORDER BY r) FROM (SELECT (t.id, note)::text FROM
          (SELECT id, a FROM heap.t1 UNION ALL SELECT id, a FROM heap.t2 UNION ALL SELECT id, a FROM part_own) t JOIN few ON a = x) q (r)) AS same;
DROP TABLE parts;

-- Started again: for each row around it, with other keys and with the same.
SELECT keyed('SELECT note, (SELECT count(*) FROM t1 JOIN unnest(ARRAY[x, x + 1]) y ON a = y) FROM few');
SELECT same('SELECT note, (SELECT count(*) FROM t1 JOIN unnest(ARRAY[x, x + 1]) y ON a = y) FROM few');
SELECT same('SELECT note, (SELECT count(*) FROM unnest(ARRAY[x, x + 1]) y LEFT JOIN t1 ON a = y AND c < note) FROM few');
SELECT same('SELECT note, ARRAY(SELECT y FROM unnest(ARRAY[x, x + 1, 40]) y WHERE EXISTS (SELECT FROM t1 WHERE a = y) ORDER BY y) FROM few');
SELECT same('SELECT note, ARRAY(SELECT y FROM unnest(ARRAY[x, x + 1, 40]) y WHERE NOT EXISTS (SELECT FROM t1 WHERE a = y) ORDER BY y) FROM few');
SELECT same('SELECT count(*) FROM t3, LATERAL (SELECT t1.id FROM t1 JOIN few ON a = x WHERE t1.id < t3.id OFFSET 0) l');
SELECT keyed('WITH RECURSIVE walk (id, depth) AS (SELECT 1, 0 UNION SELECT t1.a, depth + 1 FROM walk JOIN t1 ON t1.id = walk.id WHERE depth < 5) SELECT * FROM walk');
SELECT same('WITH RECURSIVE walk (id, depth) AS (SELECT 1, 0 UNION SELECT t1.a, depth + 1 FROM walk JOIN t1 ON t1.id = walk.id WHERE depth < 5) SELECT * FROM walk');
SET enable_hashjoin = off;
SELECT same('SELECT id, note FROM t1 JOIN few ON a = x');
RESET enable_hashjoin;

-- A cursor that goes back, and rows that are changed or locked: these are joined as ever.
BEGIN;
DECLARE back SCROLL CURSOR FOR SELECT note, id FROM t1 JOIN few ON a = x AND id < 20 ORDER BY id, note;
FETCH 3 FROM back;
FETCH BACKWARD 1 FROM back;
COMMIT;
SELECT keyed('SELECT id FROM t1 JOIN few ON a = x FOR UPDATE OF few');
BEGIN;
UPDATE few SET note = note || '!' FROM t1 WHERE a = x AND id < 20;
SELECT note FROM few ORDER BY note;
ROLLBACK;
BEGIN;
INSERT INTO empty SELECT id FROM t1 JOIN few ON a = x AND id < 20;
SELECT count(*) = (SELECT count(*) FROM heap.t1 JOIN few ON a = x AND id < 20) AS same FROM empty;
ROLLBACK;

-- Rights of views and row-level security are as ever.
CREATE ROLE regress_small_side;
CREATE VIEW public.shown WITH (security_barrier) AS SELECT id, a, c FROM pq.t1 WHERE id < 30;
GRANT SELECT ON public.shown TO regress_small_side;
CREATE TABLE public.chosen (x integer, owner name);
INSERT INTO public.chosen VALUES (1, 'regress_small_side'), (2, 'postgres');
ALTER TABLE public.chosen ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON public.chosen USING (owner = current_user);
GRANT SELECT ON public.chosen TO regress_small_side;
GRANT USAGE ON SCHEMA pq TO regress_small_side;
SET ROLE regress_small_side;
SELECT count(*), min(a), max(a) FROM public.shown JOIN public.chosen ON a = x;
SELECT count(*) FROM pq.t1 JOIN public.chosen ON pq.t1.a = x;
RESET ROLE;
SELECT count(*), min(a), max(a) FROM heap.t1 WHERE id < 30 AND a = 1;
DROP TABLE public.chosen;
DROP VIEW public.shown;
REVOKE USAGE ON SCHEMA pq FROM regress_small_side;
DROP ROLE regress_small_side;
DROP FUNCTION public.keyed;
