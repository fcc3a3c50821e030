--
-- Triggers, rules, PL/pgSQL, SQL functions, materialised views, policies of heap tables: what reads foreign tables around a statement.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SET client_min_messages = warning;
CREATE TABLE public.orders (id integer, a integer, n numeric, note text);
CREATE TABLE public.journal (id serial, what text, n bigint, total numeric);

-- A row trigger that reads foreign tables, a statement trigger that joins its transition tables with them, and a deferred trigger.
CREATE FUNCTION public.fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT count(*)::text || ' of ' || (SELECT count(*) FROM pq.t1) INTO NEW.note FROM pq.t1 x WHERE x.a = NEW.a;
  IF NOT EXISTS (SELECT FROM pq.t3 WHERE id = NEW.id) THEN
    RETURN NULL;
  END IF;
  RETURN NEW;
END $$;
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.journal (what, n, total) SELECT 'inserted', count(*), sum(x.n) FROM added JOIN pq.t2 x ON x.a = added.a;
  ELSE
    INSERT INTO public.journal (what, n, total)
    SELECT 'changed', count(*), sum(added.n - taken.n) FROM added JOIN taken USING (id) WHERE id IN (SELECT id FROM pq.t3 WHERE k);
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION public.check_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.n > (SELECT max(n) FROM pq.t1) THEN
    RAISE EXCEPTION 'order % is larger than any of t1', NEW.id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER fill BEFORE INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION public.fill();
CREATE TRIGGER added AFTER INSERT ON public.orders REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION public.note();
CREATE TRIGGER changed AFTER UPDATE ON public.orders REFERENCING NEW TABLE AS added OLD TABLE AS taken FOR EACH STATEMENT EXECUTE FUNCTION public.note();
CREATE CONSTRAINT TRIGGER check_later AFTER INSERT OR UPDATE ON public.orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.check_later();
INSERT INTO public.orders SELECT id, a, n FROM pq.t2 WHERE id BETWEEN 35 AND 45 ORDER BY id;
SELECT * FROM public.orders ORDER BY id;
UPDATE public.orders o SET n = o.n + x.n FROM pq.t1 x WHERE x.id = o.id AND x.n < 10;
SELECT what, n, total FROM public.journal ORDER BY id;
BEGIN;
UPDATE public.orders SET n = 1e13 WHERE id = 36;
SELECT count(*) FROM public.orders;
COMMIT;
SELECT max(n) < 1e13 AS undone FROM public.orders;
COPY public.orders (id, a, n) FROM STDIN;
38	3	1
1000	3	1
\.
SELECT count(*), max(note) FROM public.orders WHERE id IN (38, 1000);

-- Triggers of a foreign table: they can be there, and no row of it is written.
CREATE TRIGGER fill BEFORE INSERT ON pq.t1 FOR EACH ROW EXECUTE FUNCTION public.fill();
INSERT INTO pq.t1 (id) VALUES (1);
SELECT count(*) FROM pq.t1 WHERE id < 10;
CREATE TRIGGER added AFTER INSERT ON pq.t1 REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION public.note();
DROP TRIGGER fill ON pq.t1;

-- A rule that adds a statement over foreign tables.
CREATE RULE also AS ON DELETE TO public.orders DO ALSO
  INSERT INTO public.journal (what, n) SELECT 'deleted ' || OLD.id, (SELECT count(*) FROM pq.t1 x WHERE x.a = OLD.a);
DELETE FROM public.orders WHERE id < 38;
SELECT what, n FROM public.journal WHERE what LIKE 'deleted%' ORDER BY what;
DROP RULE also ON public.orders;
-- A view that is written by its trigger and read from Parquet.
CREATE VIEW public.both_kinds AS SELECT id, n, 'file' AS kept FROM pq.t3 UNION ALL SELECT id, n, 'table' FROM public.orders;
CREATE FUNCTION public.into_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.orders (id, n) VALUES (NEW.id, NEW.n);
  RETURN NEW;
END $$;
CREATE TRIGGER instead INSTEAD OF INSERT ON public.both_kinds FOR EACH ROW EXECUTE FUNCTION public.into_orders();
INSERT INTO public.both_kinds (id, n) SELECT id, 5 FROM public.both_kinds WHERE kept = 'file' AND id < 3;
SELECT kept, count(*), sum(n) FROM public.both_kinds GROUP BY kept ORDER BY kept;
-- A policy of a heap table that asks a foreign one.
ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY;
CREATE ROLE regress_around;
GRANT SELECT, INSERT ON public.orders TO regress_around;
GRANT USAGE ON SCHEMA pq TO regress_around;
GRANT SELECT ON pq.t3 TO regress_around;
CREATE POLICY known ON public.orders USING (id IN (SELECT id FROM pq.t3 WHERE a > 0)) WITH CHECK (EXISTS (SELECT FROM pq.t3 x WHERE x.id = orders.id AND x.n > 0));
SET ROLE regress_around;
SELECT count(*), bool_and(id IN (SELECT id FROM pq.t3 WHERE a > 0)) FROM public.orders;
RESET ROLE;
DROP OWNED BY regress_around;
DROP ROLE regress_around;

-- Functions: inlined, with SETOF, in a column default, in a domain's check, in an index.
CREATE FUNCTION public.of_a(integer) RETURNS SETOF pq.t1 LANGUAGE sql STABLE AS 'SELECT * FROM pq.t1 WHERE a = $1';
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*), sum(f.n) FROM public.of_a(3) f JOIN pq.t2 y ON y.a = f.a;
SELECT count(*), sum(f.n) FROM public.of_a(3) f JOIN pq.t2 y ON y.a = f.a;
SELECT x.id, (SELECT count(*) FROM public.of_a(x.a)) FROM pq.t3 x WHERE x.id < 4 ORDER BY 1;
CREATE FUNCTION public.rows_of(text) RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY EXECUTE 'SELECT id, n FROM ' || $1 || ' WHERE id < 4 ORDER BY id'; END $$;
SELECT * FROM public.rows_of('pq.t1') AS r (id integer, n numeric(15,2));
CREATE FUNCTION public.counted() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM pq.t1';
ALTER TABLE public.journal ALTER n SET DEFAULT public.counted();
INSERT INTO public.journal (what) VALUES ('default') RETURNING n;
-- A materialised view is filled, and filled again while it is read.
CREATE MATERIALIZED VIEW public.kept AS SELECT a, count(*) AS k, sum(n) AS n FROM pq.t1 WHERE a IS NOT NULL GROUP BY a;
CREATE UNIQUE INDEX ON public.kept (a);
REFRESH MATERIALIZED VIEW CONCURRENTLY public.kept;
SELECT count(*), sum(k) FROM public.kept;
-- Statements with several parts that write, and one that writes what it reads.
WITH gone AS (DELETE FROM public.orders o USING pq.t3 x WHERE x.id = o.id AND x.a > 2 RETURNING o.id, o.n),
  kept AS (INSERT INTO public.journal (what, n, total) SELECT 'moved', g.id, g.n + x.n FROM gone g JOIN pq.t1 x ON x.id = g.id RETURNING n)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM kept) AS kept, (SELECT count(*) FROM public.orders) AS before;
-- Foreign keys can't name a foreign table.
CREATE TABLE public.child (id integer REFERENCES pq.t1 (id));
DROP FUNCTION public.fill, public.note, public.check_later, public.into_orders, public.of_a, public.rows_of, public.counted CASCADE;
DROP VIEW public.both_kinds;
DROP MATERIALIZED VIEW public.kept;
DROP TABLE public.orders, public.journal;
