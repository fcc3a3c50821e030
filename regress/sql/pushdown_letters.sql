--
-- upper, lower and ILIKE: the letters are those that libc has for the collation.
-- Each case: the plan, the result, and a comparison with the heap copy by EXCEPT ALL both ways.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\set path :data '/edge_text.parquet'
CREATE FOREIGN TABLE pq.edge (id integer NOT NULL, v text) SERVER pystachio OPTIONS (path :'path');
CREATE FOREIGN TABLE pq.edge_c (id integer NOT NULL, v text COLLATE "C") SERVER pystachio OPTIONS (path :'path');
CREATE TABLE heap.edge AS SELECT * FROM pq.edge;
-- Whatever names the host's locales have as collations, this one is on every host.
CREATE COLLATION public.letters (provider = libc, lc_collate = 'C', lc_ctype = 'C.UTF-8');
CREATE FOREIGN TABLE pq.edge_letters (id integer NOT NULL, v text COLLATE letters) SERVER pystachio OPTIONS (path :'path');

-- The database's collation.
EXPLAIN (VERBOSE, COSTS OFF) SELECT upper(v || 'ßıÿ') AS u, count(*) AS k FROM edge WHERE v ILIKE '%Ä%' GROUP BY 1 ORDER BY 1;
SELECT upper(v || 'ßıÿ') AS u, count(*) AS k FROM edge WHERE v ILIKE '%Ä%' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM (
  (SELECT upper(v || 'ßıÿ'), count(*) FROM edge WHERE v ILIKE '%Ä%' GROUP BY 1
   EXCEPT ALL SELECT upper(v || 'ßıÿ'), count(*) FROM heap.edge WHERE v ILIKE '%Ä%' GROUP BY 1)
  UNION ALL
  (SELECT upper(v || 'ßıÿ'), count(*) FROM heap.edge WHERE v ILIKE '%Ä%' GROUP BY 1
   EXCEPT ALL SELECT upper(v || 'ßıÿ'), count(*) FROM edge WHERE v ILIKE '%Ä%' GROUP BY 1)) difference;

-- A collation of one's own; the Kelvin sign is a k, İ is no more than an i.
EXPLAIN (VERBOSE, COSTS OFF) SELECT lower((v || 'İK') COLLATE letters) AS l, count(*) AS k FROM edge WHERE v <= 'Z' AND v >= 'A' GROUP BY 1 ORDER BY 1;
SELECT lower((v || 'İK') COLLATE letters) AS l, count(*) AS k FROM edge WHERE v <= 'Z' AND v >= 'A' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM (
  (SELECT lower((v || 'İK') COLLATE letters), id FROM edge EXCEPT ALL SELECT lower((v || 'İK') COLLATE letters), id FROM heap.edge)
  UNION ALL (SELECT lower((v || 'İK') COLLATE letters), id FROM heap.edge EXCEPT ALL SELECT lower((v || 'İK') COLLATE letters), id FROM edge)) difference;

-- ASCII's letters only.
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, v FROM edge WHERE v COLLATE "C" ILIKE 'Ä' OR upper(v COLLATE "POSIX") = 'ABC' ORDER BY id;
SELECT id, v FROM edge WHERE v COLLATE "C" ILIKE 'Ä' OR upper(v COLLATE "POSIX") = 'ABC' ORDER BY id;
SELECT count(*) FROM (
  (SELECT id, v FROM edge WHERE v COLLATE "C" ILIKE 'Ä' OR upper(v COLLATE "POSIX") = 'ABC'
   EXCEPT ALL SELECT id, v FROM heap.edge WHERE v COLLATE "C" ILIKE 'Ä' OR upper(v COLLATE "POSIX") = 'ABC')
  UNION ALL
  (SELECT id, v FROM heap.edge WHERE v COLLATE "C" ILIKE 'Ä' OR upper(v COLLATE "POSIX") = 'ABC'
   EXCEPT ALL SELECT id, v FROM edge WHERE v COLLATE "C" ILIKE 'Ä' OR upper(v COLLATE "POSIX") = 'ABC')) difference;

-- A pattern that only run time tells.
PREPARE matching(text) AS SELECT id FROM edge WHERE v ILIKE $1 ORDER BY id;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE matching('Ä');
EXECUTE matching('Ä');
EXECUTE matching('%ABC%');
EXECUTE matching('A\');
RESET plan_cache_mode;

-- Refused: upper() of text that has two collations.
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) FROM edge_letters a JOIN edge_c b USING (id) WHERE upper(a.v || b.v) = 'AA';
SELECT count(*) FROM edge_letters a JOIN edge_c b USING (id) WHERE upper(a.v || b.v) = 'AA';
DROP FOREIGN TABLE edge_letters;
DROP COLLATION public.letters;
