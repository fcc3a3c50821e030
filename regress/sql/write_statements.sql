--
-- Statements that write heap tables from foreign ones; foreign ones can't be written.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
SET client_min_messages = warning;
CREATE TABLE public.taken AS SELECT a, count(*) AS k, sum(n) AS n FROM t1 GROUP BY a;
SELECT * FROM public.taken ORDER BY a;
INSERT INTO public.taken SELECT x.a, 0, y.n FROM t3 x JOIN t2 y ON x.id = y.id WHERE x.id < 4;
SELECT count(*) FROM public.taken;
UPDATE public.taken SET k = -1 FROM t3 WHERE t3.a = taken.a AND t3.id < 10;
SELECT count(*) FROM public.taken WHERE k = -1;
DELETE FROM public.taken USING t3 WHERE t3.a = taken.a AND t3.id >= 10;
SELECT count(*) FROM public.taken;
WITH moved AS (DELETE FROM public.taken RETURNING a) SELECT count(*) FROM moved JOIN t1 USING (a);
MERGE INTO public.taken USING (SELECT id, a FROM t3 WHERE id < 3) s ON taken.a = s.a WHEN NOT MATCHED THEN INSERT VALUES (s.a, 7, 1);
SELECT k FROM public.taken;
INSERT INTO t1 (id) VALUES (1);
UPDATE t1 SET a = 1;
DELETE FROM t1;
TRUNCATE t1;
COPY t1 FROM '/dev/null';
COPY (SELECT id, a FROM t3 WHERE id < 4 ORDER BY id) TO STDOUT;
DROP TABLE public.taken;
