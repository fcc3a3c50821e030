--
-- Cursors: scrolled ones, ones that outlive their transaction, ones in PL/pgSQL; savepoints, and tables that change below them.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql

-- Scrolled in every direction, with the scan alone and with a sort of PostgreSQL's above it.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, c FROM t3 WHERE id <= 8 ORDER BY id;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
FETCH RELATIVE -3 FROM c;
FETCH ABSOLUTE 2 FROM c;
FETCH FIRST FROM c;
MOVE FORWARD ALL IN c;
FETCH PRIOR FROM c;
MOVE BACKWARD ALL IN c;
FETCH NEXT FROM c;
CLOSE c;
DECLARE r SCROLL CURSOR FOR SELECT random() < 2 AS yes, id FROM t3 WHERE id <= 4 ORDER BY id;
FETCH ALL FROM r;
FETCH BACKWARD ALL FROM r;
CLOSE r;
-- One that is not scrolled; one whose scrolling PostgreSQL decides.
DECLARE n NO SCROLL CURSOR FOR SELECT id FROM t3 ORDER BY id LIMIT 3;
FETCH 2 FROM n;
SAVEPOINT s;
FETCH BACKWARD 1 FROM n;
ROLLBACK TO s;
FETCH 2 FROM n;
COMMIT;

-- WITH HOLD: rows that were read and rows that were not, with a temporary table in the session and without one.
BEGIN;
DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT x.id, y.n FROM t3 x JOIN t2 y ON x.id = y.id WHERE x.id <= 9 ORDER BY x.id;
FETCH 2 FROM h;
DECLARE g NO SCROLL CURSOR WITH HOLD FOR SELECT a, count(*) FROM t1 GROUP BY a ORDER BY a;
COMMIT;
SELECT name, is_holdable, is_scrollable FROM pg_cursors ORDER BY name;
FETCH 2 FROM h;
FETCH BACKWARD 3 FROM h;
FETCH LAST FROM h;
FETCH 3 FROM g;
-- The tables may go meanwhile.
DROP FOREIGN TABLE pq.t2;
FETCH ABSOLUTE -2 FROM h;
CLOSE ALL;
-- An error while the rows are kept ends the transaction.
BEGIN;
DECLARE e CURSOR WITH HOLD FOR SELECT 10 / (id - 20) FROM t3 ORDER BY id;
COMMIT;
SELECT count(*) FROM pg_cursors;

-- A savepoint that is rolled back takes the cursors of it along, and leaves the others where they are.
BEGIN;
DECLARE before_it CURSOR FOR SELECT id FROM t3 ORDER BY id;
FETCH 2 FROM before_it;
SAVEPOINT s;
DECLARE within_it CURSOR FOR SELECT id FROM t1 ORDER BY id;
FETCH 2 FROM within_it;
FETCH 2 FROM before_it;
ROLLBACK TO s;
FETCH 2 FROM within_it;
ROLLBACK TO s;
FETCH 2 FROM before_it;
SAVEPOINT t;
DECLARE released CURSOR FOR SELECT id FROM t1 ORDER BY id DESC;
FETCH 1 FROM released;
RELEASE t;
FETCH 1 FROM released;
-- The current row of a cursor is none that can be changed.
UPDATE heap.t3 SET a = 0 WHERE CURRENT OF before_it;
ROLLBACK;
-- Another cursor of the name may not be made, and the others stay as they are.
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t3 ORDER BY id;
FETCH 1 FROM c;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT 1;
ROLLBACK TO s;
FETCH 1 FROM c;
COMMIT;

-- PL/pgSQL: bound and unbound ones, with arguments, scrolled, given to the caller.
CREATE FUNCTION public.by_cursors(first integer) RETURNS TABLE (step text, id integer) LANGUAGE plpgsql AS $$
DECLARE
  bound SCROLL CURSOR (low integer) FOR SELECT x.id FROM pq.t3 x WHERE x.id >= low ORDER BY x.id;
  unbound refcursor;
  line record;
BEGIN
  OPEN bound (first);
  FETCH bound INTO id;
  step := 'first';
  RETURN NEXT;
  MOVE RELATIVE 3 IN bound;
  FETCH PRIOR FROM bound INTO id;
  step := 'back from the fourth';
  RETURN NEXT;
  CLOSE bound;
  OPEN unbound SCROLL FOR EXECUTE 'SELECT id FROM pq.t1 WHERE a = $1 ORDER BY id' USING 3;
  FETCH LAST FROM unbound INTO id;
  step := 'last';
  RETURN NEXT;
  CLOSE unbound;
  FOR line IN bound (first + 36) LOOP
    step := 'loop';
    id := line.id;
    RETURN NEXT;
  END LOOP;
END $$;
SELECT * FROM public.by_cursors(2);
CREATE FUNCTION public.given(refcursor) RETURNS refcursor LANGUAGE plpgsql AS $$
BEGIN
  OPEN $1 FOR SELECT id, a FROM pq.t3 WHERE a > 1 ORDER BY id;
  RETURN $1;
END $$;
BEGIN;
SELECT public.given('mine');
FETCH 3 FROM mine;
COMMIT;
-- A procedure that commits in a loop over a query: PostgreSQL keeps the rows that are left.
CREATE TABLE public.seen (id integer);
CREATE PROCEDURE public.commits() LANGUAGE plpgsql AS $$
DECLARE
  line record;
BEGIN
  FOR line IN SELECT x.id FROM pq.t3 x JOIN pq.t1 y ON x.id = y.id ORDER BY x.id LOOP
    INSERT INTO public.seen VALUES (line.id);
    IF line.id % 3 = 0 THEN
      COMMIT;
    ELSIF line.id % 5 = 0 THEN
      ROLLBACK;
    END IF;
  END LOOP;
END $$;
CALL public.commits();
SELECT count(*), sum(id) FROM public.seen;
-- A block that catches errors of a query, again and again.
CREATE FUNCTION public.caught(tables text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  found text := '';
  number integer;
BEGIN
  PERFORM set_config('search_path', tables, true);
  FOR number IN 1..6 LOOP
    BEGIN
      EXECUTE format('SELECT sum(100 / (id - %s)) FROM t3 WHERE id < 4', number) INTO STRICT number;
      found := found || number || ' ';
    EXCEPTION WHEN division_by_zero THEN
      found := found || 'zero ';
    END;
  END LOOP;
  RETURN found;
END $$;
SELECT public.caught('pq'), public.caught('pq') = public.caught('heap') AS same;
DROP TABLE public.seen;
DROP FUNCTION public.by_cursors, public.given, public.caught;
DROP PROCEDURE public.commits;
