--
-- Calls of SQL functions that read tables of ours are subqueries: joined, looked up, or run once, and never an engine query for each row.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql

CREATE FUNCTION public.label(wanted integer) RETURNS text LANGUAGE sql STABLE AS 'SELECT c FROM t2 WHERE id = wanted';
-- No row, and several of which the first counts.
CREATE FUNCTION public.first_id(integer) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT id FROM t2 WHERE a = $1 ORDER BY d DESC, id';
CREATE FUNCTION public.how_many(wanted integer, minimum integer DEFAULT 0) RETURNS bigint LANGUAGE sql STABLE
  AS 'SELECT count(*) FROM t2 WHERE a = wanted AND i > minimum';
-- The type is converted, and a parameter is within a subquery of the body.
CREATE FUNCTION public.widest(wanted integer) RETURNS numeric LANGUAGE sql STABLE
  AS 'SELECT max(i) FROM t2 x WHERE a = wanted AND EXISTS (SELECT 1 FROM t3 y WHERE y.id = x.id AND y.id <> wanted)';
CREATE FUNCTION public.doubled(wanted integer) RETURNS text LANGUAGE sql STABLE AS 'SELECT label(wanted) || label(wanted)';
CREATE FUNCTION public.nested(wanted integer) RETURNS text LANGUAGE sql STABLE AS 'SELECT label(id) FROM t3 WHERE id = wanted';
CREATE FUNCTION public.any_kind(wanted anyelement) RETURNS anyelement LANGUAGE sql STABLE AS 'SELECT max(wanted) FROM t2 WHERE id = 3';
SET search_path = pq, public;
CREATE FUNCTION public.atomic(wanted integer) RETURNS text LANGUAGE sql STABLE BEGIN ATOMIC SELECT c FROM t2 WHERE id = wanted; END;
CREATE FUNCTION public.returned(wanted integer) RETURNS bigint LANGUAGE sql STABLE RETURN (SELECT count(*) FROM t2 WHERE a = wanted);

SELECT same($$SELECT id, label(id), label(a) FROM t1$$);
SELECT same($$SELECT id, first_id(a) FROM t1$$);
SELECT same($$SELECT id, how_many(a), how_many(a, 5), how_many(minimum => i, wanted => a) FROM t1$$);
SELECT same($$SELECT id, widest(a) FROM t1$$);
SELECT same($$SELECT id, doubled(id), nested(a), any_kind(c), any_kind(a) FROM t1$$);
SELECT same($$SELECT id FROM t1 WHERE label(a) > 'b' OR how_many(a) > 2$$);
SELECT same($$SELECT x.id, y.id FROM t1 x LEFT JOIN t3 y ON label(x.a) = label(y.a)$$);
SELECT same($$SELECT label(a), count(*) FROM t1 GROUP BY label(a) HAVING count(*) > 1$$);
SELECT same($$SELECT label(a) || 'x', count(*) FROM t1 GROUP BY label(a)$$);
SELECT same($$SELECT count(*) FROM t1 GROUP BY label(a) HAVING label(a) IS NULL$$);
SELECT same($$SELECT label(a), sum(how_many(i)), count(*) FROM t1 GROUP BY ROLLUP (label(a))$$);
SELECT same($$SELECT a, label(a), max(label(i)) FROM t1 GROUP BY a$$);
SELECT same($$SELECT DISTINCT label(a) FROM t1$$);
SELECT same($$SELECT id, label(a), row_number() OVER (PARTITION BY label(a) ORDER BY id) FROM t1$$);
SELECT same($$SELECT label(max(a)), label(sum(a)::integer) FROM t1$$);
SELECT same($$SELECT id FROM t1 ORDER BY label(a), id LIMIT 5$$);
SELECT same($$WITH x AS (SELECT id, label(a) AS l FROM t1) SELECT * FROM x WHERE l IN (SELECT label(id) FROM t3)$$);
SELECT same($$SELECT id, atomic(a), returned(a) FROM t1$$);

-- Of PostgreSQL's rows too: few engine queries, however many rows. Versions of PostgreSQL differ in the plan around it.
SELECT public.pushed($$SELECT id, label(a) FROM heap.t1$$);
EXPLAIN (COSTS OFF) SELECT id, label(a) FROM t1;
SELECT public.pushed($$SELECT label(a), count(*) FROM t1 GROUP BY label(a)$$);
-- What is an aggregate is joined.
SELECT public.pushed($$SELECT id, how_many(a) FROM t1$$);

-- What is not what its query is: called as before.
CREATE FUNCTION public.volatile(wanted integer) RETURNS text LANGUAGE sql AS 'SELECT c FROM t2 WHERE id = wanted';
CREATE FUNCTION public.strict(wanted integer) RETURNS bigint LANGUAGE sql STABLE STRICT AS 'SELECT count(*) FROM t2 WHERE id IS DISTINCT FROM wanted';
CREATE FUNCTION public.configured(wanted integer) RETURNS text LANGUAGE sql STABLE SET search_path = pq AS 'SELECT c FROM t2 WHERE id = wanted';
CREATE FUNCTION public.of_owner(wanted integer) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS 'SELECT c FROM t2 WHERE id = wanted';
CREATE FUNCTION public.two(wanted integer) RETURNS text LANGUAGE sql STABLE AS 'SELECT 1; SELECT c FROM t2 WHERE id = wanted';
CREATE FUNCTION public.limited(wanted integer) RETURNS text LANGUAGE sql STABLE AS 'SELECT c FROM t2 WHERE id = wanted LIMIT 0';
CREATE FUNCTION public.set_of(wanted integer) RETURNS SETOF text LANGUAGE sql STABLE AS 'SELECT c FROM t2 WHERE id = wanted';
CREATE FUNCTION public.itself(wanted integer) RETURNS integer LANGUAGE sql STABLE AS 'SELECT CASE WHEN wanted < 1 THEN (SELECT min(id)::integer FROM t2) ELSE public.itself(wanted - 1) END';
SELECT same($$SELECT id, volatile(a), strict(a), limited(a), two(a), set_of(a) FROM t1$$);
SELECT same($$SELECT id, itself(2) FROM t1$$);
SELECT id, configured(a), of_owner(a) FROM t1 WHERE id < 4 ORDER BY id;
-- An argument with effects is computed once a row.
CREATE SEQUENCE public.calls;
SELECT count(label((a + 0 * nextval('public.calls'))::integer)) FROM t1;
SELECT last_value = (SELECT count(*) FROM t1) AS once_a_row FROM public.calls;

-- A plan that is kept is made anew when the function changes, and a function within.
PREPARE kept AS SELECT max(label(id)), max(nested(id)) FROM heap.t1;
EXECUTE kept;
SET plan_cache_mode = force_generic_plan;
EXECUTE kept;
CREATE OR REPLACE FUNCTION public.label(wanted integer) RETURNS text LANGUAGE sql STABLE AS $$SELECT 'new ' || c FROM t2 WHERE id = wanted$$;
EXECUTE kept;
RESET plan_cache_mode;

-- Who may not call it is told so.
CREATE ROLE pystachio_function_reader;
GRANT USAGE ON SCHEMA pq, heap TO pystachio_function_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA pq, heap TO pystachio_function_reader;
REVOKE EXECUTE ON FUNCTION public.label(integer) FROM PUBLIC;
SET ROLE pystachio_function_reader;
SELECT id, label(a) FROM t1;
RESET ROLE;
-- The function reads with the rights of who calls it.
GRANT EXECUTE ON FUNCTION public.label(integer) TO pystachio_function_reader;
REVOKE SELECT ON t2 FROM pystachio_function_reader;
SET ROLE pystachio_function_reader;
SELECT id, label(a) FROM t1;
RESET ROLE;
DROP OWNED BY pystachio_function_reader;
DROP ROLE pystachio_function_reader;
DROP SEQUENCE public.calls;
DROP FUNCTION public.label, public.first_id, public.how_many, public.widest, public.doubled, public.nested, public.any_kind, public.atomic, public.returned,
  public.volatile, public.strict, public.configured, public.of_owner, public.two, public.limited, public.set_of, public.itself;
