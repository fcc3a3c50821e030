--
-- Queries without a foreign table of pystachio are planned as PostgreSQL plans them, in every database.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SET client_min_messages = warning;
CREATE FUNCTION public.plan_of(query text, rewriting text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  line text;
  plan text := '';
BEGIN
  PERFORM set_config('pystachio.rewrite', rewriting, true);
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
    plan := plan || line || E'\n';
  END LOOP;
  RETURN plan;
END $$;
SET client_min_messages = notice;
-- What would be rewritten over foreign tables: without a table, and over others.
SET search_path = heap, public;
SELECT query, public.plan_of(query, 'off') = public.plan_of(query, 'on') AS untouched FROM (VALUES
  ('SELECT 1 INTERSECT SELECT 2'),
  ('SELECT 1 UNION SELECT 2 EXCEPT SELECT 3'),
  ('WITH q AS (SELECT 1 AS a) SELECT x.a FROM q x, q y'),
  ('SELECT 1 WHERE 1 NOT IN (SELECT 2)'),
  ('SELECT EXISTS (SELECT 1 WHERE 1 = ALL (SELECT 2))'),
  ('SELECT relname FROM pg_class WHERE oid NOT IN (SELECT attrelid FROM pg_attribute)'),
  ('SELECT a, count(*) FROM t1 GROUP BY ROLLUP (a)'),
  ('SELECT a FROM t1 WHERE n > (SELECT avg(n) FROM t2 WHERE t2.a = t1.a)'),
  ('SELECT a FROM t1 EXCEPT SELECT a FROM t2'),
  ('WITH q AS (SELECT a, count(*) FROM t1 GROUP BY a) SELECT x.a FROM q x JOIN q y ON x.a = y.a'),
  ('SELECT v FROM (VALUES (1), (2)) q(v) WHERE v NOT IN (SELECT a FROM t1)'),
  ('SELECT (SELECT count(*) FROM t2 WHERE t2.a = t1.a) FROM t1')) q(query);
-- A table anywhere in the query counts.
SELECT query, public.plan_of(query, 'off') = public.plan_of(query, 'on') AS untouched FROM (VALUES
  ('SELECT a FROM pq.t1 EXCEPT SELECT a FROM pq.t2'),
  ('SELECT 1 WHERE EXISTS (SELECT a FROM pq.t1 INTERSECT SELECT a FROM pq.t2)'),
  ('SELECT q.a FROM (WITH w AS (SELECT a FROM pq.t1) SELECT x.a FROM w x, w y WHERE x.a = y.a) q')) q(query);
DROP FUNCTION public.plan_of;
-- A database without the extension.
CREATE DATABASE regress_untouched;
\c regress_untouched
CREATE FUNCTION public.plan_of(query text, rewriting text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  line text;
  plan text := '';
BEGIN
  PERFORM set_config('pystachio.rewrite', rewriting, true);
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
    plan := plan || line || E'\n';
  END LOOP;
  RETURN plan;
END $$;
SELECT public.plan_of('SELECT 1 INTERSECT SELECT 2', 'off') = public.plan_of('SELECT 1 INTERSECT SELECT 2', 'on') AS untouched;
\c regression
DROP DATABASE regress_untouched;
