--
-- Text in the order of a language: collations of libc, as the default of a database and by name. Each query is compared with heap tables,
-- in the order of its rows too.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
DROP DATABASE IF EXISTS regress_english;
CREATE DATABASE regress_english TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'en_US.UTF-8' LC_CTYPE 'en_US.UTF-8';
\c regress_english
SET client_min_messages = warning;
CREATE EXTENSION pystachio;
SET search_path = public, pg_catalog;
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set path :data '/edge_text.parquet'
CREATE FOREIGN TABLE pq.edge (id integer NOT NULL, v text) SERVER pystachio OPTIONS (path :'path');
CREATE TABLE heap.edge AS SELECT * FROM pq.edge;
\set path :data '/edge_char.parquet'
CREATE FOREIGN TABLE pq.padded (id integer NOT NULL, v char(5)) SERVER pystachio OPTIONS (path :'path');
CREATE TABLE heap.padded AS SELECT * FROM pq.padded;
CREATE COLLATION public.swedish (provider = libc, locale = 'sv_SE.UTF-8');
CREATE COLLATION public.czech (provider = libc, locale = 'cs_CZ.UTF-8');
-- Whether a query has the same rows in the same order over both.
CREATE FUNCTION public.same_order(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  found text[];
  ours text[];
  one record;
BEGIN
  FOR turn IN 1..2 LOOP
    ours := found;
    found := '{}';
    PERFORM set_config('search_path', CASE turn WHEN 1 THEN 'pq' ELSE 'heap' END || ', public', true);
    FOR one IN EXECUTE query LOOP
      found := found || one::text;
    END LOOP;
  END LOOP;
  PERFORM set_config('search_path', 'pq, public', true);
  IF ours = found THEN
    RETURN 'the same ' || cardinality(found) || ' rows';
  END IF;
  RETURN format('DIFFERENT: %s, over heap tables %s', ours, found);
END $$;

-- The order of rows, in whole and its first ones.
SELECT * FROM pushed('SELECT id, v FROM edge ORDER BY v, id');
SELECT same_order('SELECT id, v FROM edge ORDER BY v, id');
SELECT same_order('SELECT id, v FROM edge ORDER BY v DESC NULLS LAST, id');
SELECT * FROM pushed('SELECT id, v FROM edge ORDER BY v DESC, id LIMIT 5');
SELECT same_order('SELECT id, v FROM edge ORDER BY v DESC, id LIMIT 5');
SELECT same_order('SELECT id, v FROM edge ORDER BY v COLLATE swedish, id LIMIT 20');
SELECT same_order('SELECT id, v FROM edge ORDER BY v COLLATE czech DESC, id OFFSET 3');
SELECT same_order('SELECT id, v FROM edge ORDER BY v COLLATE "C", id');
SELECT same_order('SELECT id, v FROM padded ORDER BY v, id');
SELECT same_order('SELECT id, c, s FROM t1 ORDER BY s, c, id');
SELECT same_order('SELECT id, v FROM edge ORDER BY v FETCH FIRST 4 ROWS WITH TIES');
SELECT same_order('SELECT DISTINCT ON (left(v, 1)) left(v, 1), v FROM edge ORDER BY left(v, 1), v, id');
SELECT same_order('SELECT DISTINCT c FROM t1 ORDER BY c');
SELECT same_order('SELECT c, count(*) FROM t1 GROUP BY c ORDER BY c DESC');
SELECT same_order('SELECT upper(c) AS u, sum(a) FROM t1 GROUP BY 1 ORDER BY 1 LIMIT 7');
SELECT same_order('SELECT c FROM t1 UNION SELECT c FROM t2 ORDER BY 1');
-- Letters come before case.
SELECT v FROM (VALUES ('b'), ('B'), ('a'), ('A')) AS few (v) ORDER BY v;
SELECT array_agg(DISTINCT lower(left(c, 1)) ORDER BY lower(left(c, 1))) AS letters FROM t1 WHERE c ~ '^[A-Za-z]';

-- Comparisons.
SELECT * FROM pushed('SELECT count(*) FROM edge WHERE v > ''a'' AND v <= ''B''');
SELECT same('SELECT count(*) FROM edge WHERE v > ''a'' AND v <= ''B''');
SELECT same('SELECT id, v FROM edge WHERE v BETWEEN ''A'' AND ''ä''');
SELECT same('SELECT id, v FROM edge WHERE v >= ''z'' COLLATE swedish');
SELECT same('SELECT id, v FROM padded WHERE v < ''b''');
SELECT same('SELECT x.id, y.id FROM t2 x JOIN t2 y ON x.c < y.c');
SELECT same('SELECT id, v FROM edge WHERE (v, id) > (''a'', 3)');
SELECT same('SELECT id, v FROM edge WHERE v < ANY (ARRAY[''b'', ''A''])');
SELECT same('SELECT id, v FROM edge WHERE v >= ALL (ARRAY[''b'', NULL])');
SELECT same('SELECT id, v < ''m'', NOT v >= ''m'' COLLATE czech FROM edge');
PREPARE after(text) AS SELECT count(*) FROM edge WHERE v > $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE after('a');
SELECT (SELECT count(*) FROM heap.edge WHERE v > 'a') AS wanted \gset
EXECUTE after('a') \gset
SELECT :count = :wanted AS is_same;
RESET plan_cache_mode;

-- The least and the greatest.
SELECT * FROM pushed('SELECT min(v), max(v COLLATE swedish) FROM edge');
SELECT same('SELECT min(v), max(v), min(v COLLATE swedish), max(v COLLATE czech) FROM edge');
SELECT same('SELECT left(v, 1), min(v), max(v) FILTER (WHERE id > 3) FROM edge GROUP BY 1');
SELECT same('SELECT min(v), max(v) FROM padded');
SELECT same('SELECT min(v), max(v) FROM edge WHERE id < 0');
SELECT same('SELECT id, greatest(c, s::text), least(c, ''m'', NULL) FROM t1');
SELECT same('SELECT max(c) FROM t1 HAVING min(c) < ''x''');

-- Windows, and aggregates in an order.
SELECT * FROM pushed('SELECT id, rank() OVER (PARTITION BY left(v, 1) ORDER BY v) FROM edge');
SELECT same('SELECT id, rank() OVER (PARTITION BY left(v, 1) ORDER BY v) FROM edge');
SELECT same('SELECT id, min(v) OVER (ORDER BY id ROWS 3 PRECEDING), max(v) OVER (PARTITION BY left(v, 1)) FROM edge');
SELECT same('SELECT id, lag(v) OVER (ORDER BY v, id), count(*) OVER (ORDER BY v COLLATE swedish) FROM edge');
SELECT same('SELECT * FROM (SELECT id, v, row_number() OVER (PARTITION BY length(v) ORDER BY v, id) AS n FROM edge) q WHERE n <= 2');
SELECT same('SELECT array_agg(v ORDER BY v, id), string_agg(v, '','' ORDER BY v DESC, id) FROM edge');
SELECT same('SELECT array_agg(DISTINCT c ORDER BY c DESC) FROM t1');
SELECT same('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY v), mode() WITHIN GROUP (ORDER BY v) FROM edge');
SELECT same('SELECT rank(''b'') WITHIN GROUP (ORDER BY v), dense_rank(''b'') WITHIN GROUP (ORDER BY v DESC) FROM edge');
SELECT same('SELECT array_agg(v) FROM (SELECT v FROM edge ORDER BY v, id) q');

-- A path that is sorted for what PostgreSQL does above: a merge join with a heap table.
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET pystachio.send_rows = off;
SELECT count(*) = (SELECT count(*) FROM heap.t1 x JOIN heap.t2 y USING (c)) AS is_same FROM pq.t1 x JOIN heap.t2 y USING (c);
RESET enable_hashjoin;
RESET enable_nestloop;
RESET pystachio.send_rows;

-- Two collations that meet have no order, and LIKE and = need none.
SELECT count(*) FROM edge WHERE v COLLATE swedish < v COLLATE czech;
SELECT same('SELECT count(*) FROM edge WHERE v LIKE ''a%'' OR v = ''B''');

\c regression
SET client_min_messages = warning;
DROP DATABASE regress_english;
