--
-- Comparisons of composite values and ORDER BY of them: by their fields, with PostgreSQL's NULLs.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
SET search_path = public, pq;
CREATE TYPE part AS (t text COLLATE "C", n integer, d numeric(9,2));
CREATE TYPE wide AS (b boolean, f double precision, m timestamp, c char(4) COLLATE "C", k uuid, s smallint);
CREATE TYPE outer_part AS (p part, n integer);
CREATE TYPE listed AS (a integer[], n integer);
CREATE TYPE late AS (t text COLLATE "C", n integer);
\set columns 'id integer NOT NULL, x integer, p part, q part, w wide, always part NOT NULL, o outer_part, i listed, l late'
CREATE TABLE heap.records (:columns);
INSERT INTO heap.records
SELECT id, id % 5,
  CASE id % 6 WHEN 0 THEN NULL::part WHEN 1 THEN ROW(NULL, NULL, NULL)::part ELSE ROW(NULLIF(chr(96 + id % 4), '`'), NULLIF(id % 3, 2), NULLIF(id % 5, 3) / 2.0)::part END,
  CASE id % 7 WHEN 0 THEN NULL::part WHEN 1 THEN ROW(NULL, NULL, NULL)::part ELSE ROW(NULLIF(chr(96 + id % 3), '`'), NULLIF(id % 4, 2), NULLIF(id % 2, 1) / 2.0)::part END,
  CASE id % 11 WHEN 0 THEN NULL::wide ELSE ROW(NULLIF(id % 2, 0) = 1, (ARRAY['NaN', '-0', '0', 'Infinity', '-Infinity', NULL, '1.5'])[1 + id % 7]::double precision,
    (ARRAY['infinity', '-infinity', NULL, '2024-02-29 12:00', '2024-02-29 12:00:00.000001'])[1 + id % 5]::timestamp, (ARRAY['a', 'a b', '', NULL])[1 + id % 4],
    ('00000000-0000-0000-0000-00000000000' || id % 3)::uuid, (ARRAY[-32768, 32767, 0, NULL])[1 + id % 4])::wide END,
  ROW(chr(97 + id % 3), id % 2, NULLIF(id % 4, 0))::part,
  CASE id % 4 WHEN 0 THEN NULL::outer_part ELSE ROW(CASE id % 3 WHEN 1 THEN ROW('x', 1, 1)::part END, id % 2)::outer_part END,
  ROW(ARRAY[id % 3, NULL], id % 2)::listed,
  CASE id % 5 WHEN 0 THEN NULL::late ELSE ROW(chr(97 + id % 3), id % 4)::late END
FROM generate_series(1, 420) id;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM heap.records', :'scratch' || '/composites_compared/rows.parquet', overwrite => true);
\set folder :scratch '/composites_compared'
CREATE FOREIGN TABLE pq.records (:columns) SERVER pystachio OPTIONS (path :'folder');

-- Of two columns: all operators, in every row, with NULL where PostgreSQL has it.
SELECT same($$SELECT id, p = q, p <> q, p < q, p <= q, p > q, p >= q, p IS DISTINCT FROM q, p IS NOT DISTINCT FROM q FROM records$$);
SELECT same($$SELECT id, q = p, NOT (p = q), (p = q) IS NULL, (p < q) IS NOT TRUE, p = p, p < p, p >= p FROM records$$);
SELECT same($$SELECT id, p = always, always > p, always IS DISTINCT FROM p, always = always FROM records$$);
SELECT same($$SELECT id FROM records WHERE p = q$$);
SELECT same($$SELECT id FROM records WHERE NOT (p = q) OR p < always$$);
SELECT same($$SELECT count(*) FILTER (WHERE p = q), count(*) FILTER (WHERE p <> q), count(*) FILTER (WHERE (p = q) IS NULL) FROM records$$);
SELECT same($$SELECT p = q, count(*) FROM records GROUP BY 1$$);
-- With values of each field's type.
SELECT same($$SELECT id, w = ROW(true, 'NaN', 'infinity', 'a', '00000000-0000-0000-0000-000000000001', -32768)::wide, w < ROW(NULL, 0, '2024-02-29 12:00', 'a b', NULL, 0)::wide FROM records$$);
SELECT same($$SELECT id, w >= ROW(true, '-0', NULL, '', NULL, NULL)::wide, w IS DISTINCT FROM ROW(NULL, NULL, NULL, NULL, NULL, NULL)::wide FROM records$$);
SELECT same($$SELECT a.id, b.id FROM (SELECT id, w FROM records WHERE id < 40) a, (SELECT id, w FROM records WHERE id < 40) b WHERE a.w < b.w$$);
SELECT same($$SELECT a.id, b.id FROM records a JOIN records b ON a.p = b.p AND a.id < b.id WHERE b.id < 60$$);
-- With constants, rows and NULL.
SELECT same($$SELECT id FROM records WHERE p = ROW('b', 1, 0)::part$$);
SELECT same($$SELECT id, p = ROW('b', 1, 0)::part, p = ROW(NULL, 1, 0)::part, NOT (p = ROW('b', NULL, NULL)::part), (p = ROW('b', 1, 0)::part) IS NULL FROM records$$);
SELECT same($$SELECT id, p = ROW('a', x, 0.5)::part, ROW(NULL, NULL, NULL)::part = p, p = '(b,,1.00)'::part, p <> '(,,)'::part FROM records$$);
SELECT same($$SELECT id, p < ROW('b', NULL, 1)::part, p >= ROW(NULL, 1, NULL)::part, p = NULL, p IS DISTINCT FROM NULL, p IS NOT DISTINCT FROM NULL::part FROM records$$);
SELECT same($$SELECT id, ROW(x, id) < ROW(3, 7), ROW(x, (p).n) = ROW(1, 1), ROW(p) IS NULL FROM records$$);
SELECT same($$SELECT id FROM records WHERE l = ROW('a', 3)::late OR l > ROW('c', NULL)::late$$);
-- IN, ANY and ALL.
SELECT same($$SELECT id, p IN (ROW('a', 1, 0.5)::part, ROW(NULL, NULL, NULL)::part, ROW('b', 0, 1)::part), p NOT IN (ROW('a', 1, 0.5)::part, ROW('c', NULL, 2)::part) FROM records$$);
SELECT same($$SELECT id, p = ANY (ARRAY['(a,1,0.50)', NULL, '(,,)']::part[]), p <> ALL (ARRAY['(a,1,0.50)', NULL]::part[]), p < ALL (ARRAY['(c,,)', '(b,1,)']::part[]), p > ANY (ARRAY['(a,0,0)']::part[]) FROM records$$);
SELECT same($$SELECT id, p = ANY ('{}'::part[]), p <> ALL ('{}'::part[]), p = ANY (NULL::part[]), p = ANY (ARRAY[q, always]) FROM records$$);
SELECT same($$SELECT id FROM records WHERE p IN (q, always)$$);
-- NULLIF, CASE, COALESCE and outer joins around them.
SELECT same($$SELECT id, nullif(p, q), CASE p WHEN q THEN 'same' WHEN always THEN 'always' END, CASE WHEN p = q THEN (p).n ELSE -1 END FROM records$$);
SELECT same($$SELECT a.id, b.p = b.q, b.p IS DISTINCT FROM b.q, b.always = b.always, b.p < b.always FROM records a LEFT JOIN records b ON b.id = a.id + 400$$);
SELECT same($$SELECT a.id FROM records a LEFT JOIN records b ON b.id = a.id + 400 WHERE b.always IS NOT DISTINCT FROM NULL$$);
SELECT same($$SELECT id FROM records a WHERE EXISTS (SELECT FROM records b WHERE b.id = a.id + 1 AND b.p = b.q)$$);
SELECT same($$SELECT id, (SELECT count(*) FROM records b WHERE b.p = a.q AND b.id < 20) FROM records a WHERE id < 20$$);
-- Fields that are composite themselves, arrays, parts of one.
SELECT same($$SELECT id, (o).p = p, (o).p < q, (o).p IS DISTINCT FROM (o).p FROM records$$);
SELECT same($$SELECT id, o = o, o < ROW(ROW('x', 1, 1)::part, 1)::outer_part, i = ROW('{1,NULL}', 1)::listed, i < i FROM records$$);
-- Order.
CREATE FUNCTION in_order(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  theirs text;
  ours text;
BEGIN
  SET LOCAL search_path = public, heap;
  EXECUTE format('SELECT string_agg(r::text, E''\n'') FROM (%s OFFSET 0) r', query) INTO theirs;
  SET LOCAL search_path = public, pq;
  EXECUTE format('SELECT string_agg(r::text, E''\n'') FROM (%s OFFSET 0) r', query) INTO ours;
  RETURN ours = theirs;
END $$;
SELECT in_order($$SELECT id, p FROM records ORDER BY p, id$$), in_order($$SELECT id, p FROM records ORDER BY p DESC, id$$);
SELECT in_order($$SELECT id, p FROM records ORDER BY p NULLS FIRST, id DESC$$), in_order($$SELECT id FROM records ORDER BY p DESC NULLS LAST, q, id LIMIT 50$$);
SELECT in_order($$SELECT id FROM records ORDER BY w, id$$), in_order($$SELECT id, w FROM records ORDER BY w DESC NULLS LAST, id DESC$$);
SELECT in_order($$SELECT id FROM records ORDER BY always DESC, id LIMIT 9$$), in_order($$SELECT id, (o).p FROM records ORDER BY (o).p, id$$);
SELECT in_order($$SELECT id FROM records ORDER BY ROW(x, p), id$$), in_order($$SELECT id FROM records ORDER BY ROW(x, (p).t), id$$);
SELECT in_order($$SELECT id, rank() OVER (ORDER BY p), dense_rank() OVER (ORDER BY q DESC) FROM records ORDER BY id$$);
SELECT in_order($$SELECT id, count(*) OVER (ORDER BY p), first_value(id) OVER (PARTITION BY x ORDER BY p NULLS FIRST, id) FROM records ORDER BY id$$);
SELECT in_order($$SELECT p, count(*) FROM records GROUP BY p ORDER BY p$$), in_order($$SELECT DISTINCT p FROM records ORDER BY p DESC$$);
SELECT same($$SELECT id FROM records WHERE x = 1 ORDER BY p FETCH FIRST 3 ROWS WITH TIES$$);
-- The collation is that of the type, whatever the arguments of ROW have.
CREATE TYPE of_language AS (t text COLLATE "POSIX");
SELECT same($$SELECT id, ROW((p).t COLLATE "POSIX")::of_language < ROW('b' COLLATE "C")::of_language, ROW((p).t COLLATE "C")::of_language = ROW((q).t)::of_language FROM records$$);
SELECT same($$SELECT id, ROW((p).t COLLATE "C") < ROW('b'::text COLLATE "C"), ROW((p).t) = ROW('b'::text COLLATE "C"), ROW((p).t, x) < ROW((q).t, id) FROM records$$);
-- Types that differ are errors when rows are compared, not before; a field that is gone keeps values in PostgreSQL.
SELECT id FROM pq.records WHERE p = ROW('a', 1::bigint, 0.5);
SELECT id FROM heap.records WHERE p = ROW('a', 1::bigint, 0.5);
SELECT id FROM pq.records WHERE p = ROW('a'::text, 1);
PREPARE by_value (part) AS SELECT count(*) FROM pq.records WHERE p = $1;
EXECUTE by_value(ROW('b', 1, 0));
SET plan_cache_mode = force_generic_plan;
EXECUTE by_value(ROW('b', 1, 0));
RESET plan_cache_mode;
SELECT count(*) FROM heap.records WHERE p = ROW('b', 1, 0)::part;
-- What is pushed down, and what is not.
SELECT pushed($$SELECT id FROM records WHERE p = ROW('a', 1, 0.5)::part$$);
SELECT pushed($$SELECT id FROM records WHERE always < ROW('b', 1, 0.5)::part$$);
SELECT pushed($$SELECT id FROM records WHERE p IS DISTINCT FROM q$$);
SELECT pushed($$SELECT id FROM records WHERE always IN (ROW('a', 1, 0.5)::part, ROW('b', 0, NULL)::part)$$);
SELECT pushed($$SELECT id FROM records ORDER BY p DESC, always, id LIMIT 2$$);
SELECT pushed($$SELECT p, count(*) FROM records GROUP BY p$$);
SELECT pushed($$SELECT a.id FROM records a JOIN records b ON a.always = b.always$$);
SELECT pushed($$SELECT id FROM records WHERE i = ROW('{1,NULL}', 1)::listed$$);
SELECT pushed($$SELECT id FROM records WHERE o = ROW(NULL, 1)::outer_part$$);
ALTER TYPE late DROP ATTRIBUTE n;
SELECT same($$SELECT id FROM records WHERE l = ROW('a')::late$$);
SELECT pushed($$SELECT id FROM records WHERE l = ROW('a')::late$$);
DROP FUNCTION in_order;
SET client_min_messages = warning;
DROP TABLE heap.records;
DROP TYPE part, wide, outer_part, listed, late, of_language CASCADE;
