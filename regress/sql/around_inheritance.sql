--
-- Inheritance, ONLY, partitions of partitions, tableoid, whole rows, dropped and renamed columns: foreign tables in each place.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SET client_min_messages = warning;
\set ECHO none
-- %1$s: the schema; %2$s: FOREIGN where the table is one; %3$s: its file.
SELECT format(sql, place, CASE place WHEN 'pq' THEN 'FOREIGN' END,
  CASE place WHEN 'pq' THEN format('SERVER pystachio OPTIONS (path %L)', :'data' || '/' || file || '.parquet') END)
FROM (VALUES ('pq'), ('heap')) places (place), (VALUES
  -- A heap parent with a foreign child, which has a child of its own, and with a heap child.
  (1, '', 'CREATE TABLE %1$s.events (id integer NOT NULL, a integer, c text)'),
  (2, 't1', 'CREATE %2$s TABLE %1$s.events_t1 (b bigint) INHERITS (%1$s.events) %3$s'),
  (3, 't2', 'CREATE %2$s TABLE %1$s.events_t2 (n numeric(15,2)) INHERITS (%1$s.events_t1) %3$s'),
  (4, '', 'CREATE TABLE %1$s.events_own (note text DEFAULT ''own'') INHERITS (%1$s.events)'),
  -- A foreign parent with children of both kinds.
  (5, 't3', 'CREATE %2$s TABLE %1$s.base (id integer NOT NULL, a integer, d date) %3$s'),
  (6, '', 'CREATE TABLE %1$s.base_own () INHERITS (%1$s.base)'),
  (7, 't2', 'CREATE %2$s TABLE %1$s.base_t2 () INHERITS (%1$s.base) %3$s'),
  -- Partitions of partitions, with other attribute numbers than their parents have.
  (8, '', 'CREATE TABLE %1$s.tree (id integer NOT NULL, gone text, a integer, n numeric(15,2)) PARTITION BY RANGE (id)'),
  (9, '', 'ALTER TABLE %1$s.tree DROP COLUMN gone'),
  (10, '', 'CREATE TABLE %1$s.tree_low (n numeric(15,2), id integer NOT NULL, a integer) PARTITION BY RANGE (id)'),
  (11, 't3', 'CREATE %2$s TABLE %1$s.tree_low_t3 (gone date, a integer, n numeric(15,2), id integer NOT NULL) %3$s'),
  (12, '', 'ALTER TABLE %1$s.tree_low_t3 DROP COLUMN gone'),
  (13, '', 'ALTER TABLE %1$s.tree_low ATTACH PARTITION %1$s.tree_low_t3 FOR VALUES FROM (1) TO (41)'),
  (14, '', 'CREATE TABLE %1$s.tree_low_own PARTITION OF %1$s.tree_low FOR VALUES FROM (41) TO (100)'),
  (15, '', 'ALTER TABLE %1$s.tree ATTACH PARTITION %1$s.tree_low FOR VALUES FROM (1) TO (100)'),
  (16, '', 'CREATE TABLE %1$s.tree_rest PARTITION OF %1$s.tree DEFAULT'),
  -- A table whose columns were dropped, renamed and added.
  (17, 't1', 'CREATE %2$s TABLE %1$s.changed (gone text, id integer NOT NULL, a integer, b bigint, c text) %3$s'),
  (18, '', 'ALTER TABLE %1$s.changed DROP COLUMN gone, DROP COLUMN b'),
  (19, '', 'ALTER TABLE %1$s.changed ADD COLUMN d date')) steps (number, file, sql)
ORDER BY place, number
\gexec
ALTER FOREIGN TABLE pq.changed RENAME c TO label;
ALTER FOREIGN TABLE pq.changed ALTER label OPTIONS (ADD column_name 'c');
ALTER TABLE heap.changed RENAME c TO label;
INSERT INTO heap.events_t1 SELECT id, a, c, b FROM heap.t1;
INSERT INTO heap.events_t2 SELECT id, a, c, b, n FROM heap.t2;
INSERT INTO heap.base SELECT id, a, d FROM heap.t3;
INSERT INTO heap.base_t2 SELECT id, a, d FROM heap.t2;
INSERT INTO heap.tree SELECT id, a, n FROM heap.t3;
INSERT INTO heap.changed SELECT id, a, c, d FROM heap.t1;
SELECT format(sql, place) FROM (VALUES ('pq'), ('heap')) places (place), (VALUES
  ('INSERT INTO %s.events SELECT -id, a, c FROM heap.t3 WHERE id < 4'),
  ('INSERT INTO %s.events_own (id, a, c) SELECT 1000 + id, a, c FROM heap.t3'),
  ('INSERT INTO %s.base_own SELECT 1000 + id, a, d FROM heap.t3'),
  ('INSERT INTO %s.tree SELECT id + 40, a, n FROM heap.t3'),
  ('INSERT INTO %s.tree SELECT id + 200, a, n FROM heap.t3')) steps (sql)
\gexec
ANALYZE;
\set ECHO all

-- The whole tree, a part of it, and one table alone.
SELECT same('SELECT id, a, c FROM events');
SELECT same('SELECT id, a, c FROM ONLY events');
SELECT same('SELECT id, a, b FROM events_t1');
SELECT same('SELECT id, a, b FROM ONLY events_t1');
SELECT same('SELECT id, a, d FROM base');
SELECT same('SELECT id, a, d FROM ONLY base');
SELECT same('SELECT * FROM tree');
SELECT same('SELECT count(*) FROM ONLY tree');
SELECT same('SELECT * FROM ONLY tree_low_t3');
-- What an ONLY table is pushed as, and the members of a tree.
SELECT * FROM pushed('SELECT a, count(*) FROM ONLY events_t1 WHERE id < 50 GROUP BY a');
SELECT * FROM pushed('SELECT a, count(*) FROM events_t1 WHERE id < 50 GROUP BY a');
SELECT * FROM pushed('SELECT x.id FROM ONLY base x JOIN ONLY events_t1 y USING (a)');

-- Where a row is from.
SELECT same('SELECT tableoid::regclass, count(*), sum(id), min(c) FROM events GROUP BY 1');
SELECT same('SELECT tableoid::regclass::text, id FROM tree WHERE id IN (3, 41, 205)');
SELECT same('SELECT id FROM events WHERE tableoid = ''events_t2''::regclass AND a > 0');
SELECT same('SELECT x.tableoid::regclass, y.tableoid::regclass, count(*) FROM tree x JOIN events y USING (a) GROUP BY 1, 2');
SELECT same('SELECT c.relname, count(*) FROM base b JOIN pg_class c ON c.oid = b.tableoid GROUP BY 1');
SELECT same('SELECT tableoid::regclass, id FROM ONLY base WHERE id < 4');
SELECT same('SELECT count(tableoid), count(DISTINCT tableoid) FROM changed');

-- Whole rows, which are those of the named table.
SELECT same('SELECT e FROM events e');
SELECT same('SELECT e, tableoid::regclass FROM events_t1 e WHERE e.id < 10');
SELECT same('SELECT t, row_to_json(t) FROM tree t');
SELECT same('SELECT c, c.*::text FROM changed c');
SELECT same('SELECT to_jsonb(b) - ''d'' FROM ONLY base b');
SELECT same('SELECT count(x), count(y) FROM tree x LEFT JOIN changed y ON x.a = y.a AND y.d > ''1994-09-01''');
SELECT same('SELECT (e).id, (e).c FROM (SELECT e FROM events e) s WHERE (e).a = 3');
SELECT same('SELECT label, d, id FROM changed WHERE label LIKE ''%a%'' AND d IS NOT NULL');

-- Conditions that exclude members, by plan and at run time; joins and groups by partition.
SELECT same('SELECT id, n FROM tree WHERE id BETWEEN 30 AND 50');
PREPARE by_id (integer) AS SELECT tableoid::regclass::text, id FROM pq.tree WHERE id = $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE by_id (7);
EXECUTE by_id (42);
EXECUTE by_id (202);
RESET plan_cache_mode;
DEALLOCATE by_id;
SELECT same('SELECT t.id, t.n FROM tree t JOIN LATERAL (SELECT t3.id + 38 AS id FROM t3 WHERE t3.id < 5) s ON s.id = t.id');
SET enable_partitionwise_join = on;
SET enable_partitionwise_aggregate = on;
SELECT same('SELECT x.id, y.a FROM tree x JOIN tree y ON x.id = y.id WHERE x.a > 2');
SELECT same('SELECT id, count(*), sum(n) FROM tree GROUP BY id');
SELECT same('SELECT x.id FROM tree x LEFT JOIN tree y ON x.id = y.id AND y.n < 0 WHERE y IS NULL');
RESET enable_partitionwise_join;
RESET enable_partitionwise_aggregate;

-- Orders and limits over the members.
SELECT same('SELECT array_agg(id) FROM (SELECT id FROM tree ORDER BY id DESC LIMIT 250) s');
SELECT same('SELECT array_agg((id, a)::text) FROM (SELECT id, a FROM base ORDER BY a NULLS FIRST, id OFFSET 10 LIMIT 60) s');
SELECT same('SELECT max(id), min(id) FROM tree');

-- Rows of heap members change; a statement that would change those of a foreign one is refused.
SELECT same('WITH gone AS (DELETE FROM ONLY base_own USING base_t2 t WHERE base_own.a = t.a AND t.id < 20 RETURNING base_own.id) SELECT * FROM gone');
UPDATE pq.events SET a = 1 WHERE id < 0;
UPDATE ONLY pq.events SET a = (SELECT max(x.a) FROM pq.t1 x) WHERE id < 0;
DELETE FROM pq.tree WHERE id = 7;
DELETE FROM pq.tree WHERE id = 242;
UPDATE pq.tree SET id = 7 WHERE id = 45;
INSERT INTO pq.tree (id) VALUES (7);
SELECT same('SELECT tableoid::regclass, count(*) FROM tree GROUP BY 1');
