--
-- DELETE of whole partitions.
--
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
SET client_min_messages = warning;
CREATE SCHEMA write_deletes;
SET search_path = write_deletes, public;
\! cd "$PYSTACHIO_REGRESS_SCRATCH" && rm -rf deletes && mkdir -m 777 deletes
SELECT set_config('test.deletes', :'scratch' || '/deletes', false) IS NOT NULL AS set;
CREATE FUNCTION run(command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE replace(command, '{}', current_setting('test.deletes'));
END $$;
CREATE FUNCTION plan(command text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || command LOOP
    RETURN NEXT replace(line, current_setting('test.deletes'), '{}');
  END LOOP;
END $$;
SELECT run('CREATE FOREIGN TABLE parted (k integer, d date, t text, b boolean, i smallint) SERVER pystachio OPTIONS (path ''{}/parted'', writable ''true'', partition_by ''d,t,b,i'')');
CREATE TABLE heap (k integer, d date, t text, b boolean, i smallint);
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS $$
  TRUNCATE heap, parted;
  INSERT INTO heap SELECT n, CASE n % 4 WHEN 0 THEN NULL ELSE date '2026-01-01' + n % 4 END, CASE n % 3 WHEN 0 THEN 'a/b c%' WHEN 1 THEN 'ä' END, n % 2 = 0, n % 5 - 2
  FROM generate_series(1, 60) n;
  INSERT INTO parted SELECT * FROM heap;
$$;
SELECT fill();
SELECT count(*) FROM parted;
-- Each deletes the same rows of both tables.
CREATE FUNCTION twice(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE ours bigint; theirs bigint;
BEGIN
  EXECUTE 'DELETE FROM parted ' || condition;
  GET DIAGNOSTICS ours = ROW_COUNT;
  EXECUTE 'DELETE FROM heap ' || condition;
  GET DIAGNOSTICS theirs = ROW_COUNT;
  RETURN ours || ' ' || theirs;
END $$;
CREATE FUNCTION differing() RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM ((SELECT * FROM heap EXCEPT ALL SELECT * FROM parted) UNION ALL (SELECT * FROM parted EXCEPT ALL SELECT * FROM heap)) x
$$;
SELECT twice('WHERE d = ''2026-01-02'' AND NOT b');
SELECT differing();
SELECT twice('WHERE d IS NULL AND t = ''a/b c%''');
SELECT differing();
SELECT twice('WHERE i < 0 AND (t IS NULL OR upper(t) = ''Ä'')');
SELECT differing();
SELECT twice('WHERE i = 100');
SELECT twice('WHERE false');
SELECT twice('WHERE d >= current_date - 100000 AND i IN (1, 2) AND coalesce(b, true)');
SELECT differing(), count(*) FROM parted;
SELECT twice('');
SELECT differing(), count(*) FROM parted;
SELECT twice('');
INSERT INTO parted VALUES (1, '2026-01-01', 'x', true, 1);
SELECT * FROM parted;
\! cd "$PYSTACHIO_REGRESS_SCRATCH/deletes/parted" && find . -type f | sed -E 's/[0-9a-f]{14}-[0-9a-f]{16}-[0-9]+/N/' | LC_ALL=C sort
-- Parameters, and a statement in a function, and again.
SELECT fill();
PREPARE gone(smallint, text) AS DELETE FROM parted WHERE i = $1 AND t IS NOT DISTINCT FROM $2;
EXECUTE gone(1, NULL);
EXECUTE gone(1, NULL);
EXECUTE gone(2, 'ä');
DELETE FROM heap WHERE i = 1 AND t IS NULL OR i = 2 AND t = 'ä';
SELECT differing();
WITH gone AS (DELETE FROM parted WHERE i = 0) SELECT 1 AS one;
DELETE FROM heap WHERE i = 0;
SELECT differing();

-- Transactions: files go with the commit.
SELECT fill();
BEGIN;
DELETE FROM parted WHERE i = 1;
SELECT count(*) FROM parted WHERE i = 1;
ROLLBACK;
SELECT differing();
BEGIN;
DELETE FROM parted WHERE i = 1;
SAVEPOINT a;
DELETE FROM parted WHERE i = 2;
ROLLBACK TO a;
DELETE FROM parted WHERE i = 1;
INSERT INTO parted VALUES (61, '2026-01-01', 'x', true, 1), (62, '2026-01-01', 'x', true, 2);
SAVEPOINT b;
DELETE FROM parted WHERE i = 2 AND t = 'x';
RELEASE b;
COMMIT;
DELETE FROM heap WHERE i = 1;
INSERT INTO heap VALUES (61, '2026-01-01', 'x', true, 1);
SELECT differing();
BEGIN;
DELETE FROM parted WHERE i = 1;
PREPARE TRANSACTION 'never';
BEGIN;
DELETE FROM parted;
INSERT INTO parted VALUES (63, '2026-01-01', 'x', true, 1);
COMMIT;
SELECT * FROM parted;
\! cd "$PYSTACHIO_REGRESS_SCRATCH/deletes/parted" && find . -type f -name '.*'

-- EXPLAIN; views and partitions of a partitioned table.
SELECT plan('DELETE FROM parted WHERE i = 1 AND d > ''2026-01-01''');
CREATE VIEW seen AS SELECT * FROM parted WHERE i = 1;
SELECT plan('DELETE FROM seen WHERE t = ''x''');
DELETE FROM seen WHERE t = 'x';
SELECT count(*) FROM parted;
SELECT run('CREATE FOREIGN TABLE plain (k integer) SERVER pystachio OPTIONS (path ''{}/plain'', writable ''true'')');
INSERT INTO plain VALUES (1), (2);
DELETE FROM plain;
SELECT * FROM plain;
INSERT INTO plain VALUES (3);
SELECT * FROM plain;

-- What is refused: what can be deleted is said.
SELECT fill();
DELETE FROM parted WHERE k = 1;
DELETE FROM parted WHERE i = 1 AND k = 1;
DELETE FROM parted WHERE i = 1 RETURNING k;
DELETE FROM parted WHERE i = 1 AND random() < 2;
DELETE FROM parted USING heap WHERE parted.i = heap.i;
DELETE FROM parted WHERE i = (SELECT max(i) FROM heap);
DELETE FROM parted WHERE parted IS NULL;
DELETE FROM parted WHERE tableoid = 0;
DELETE FROM plain WHERE k = 3;
UPDATE parted SET k = 1;
UPDATE plain SET k = 1 WHERE k = 3;
SELECT run('CREATE FOREIGN TABLE closed (k integer, i smallint) SERVER pystachio OPTIONS (path ''{}/parted'')');
DELETE FROM closed WHERE i = 1;
UPDATE closed SET k = 1;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
CREATE TRIGGER before BEFORE DELETE ON parted FOR EACH ROW EXECUTE FUNCTION note();
DELETE FROM parted WHERE i = 1;
DROP TRIGGER before ON parted;
CREATE VIEW guarded WITH (security_barrier) AS SELECT * FROM parted WHERE i = 1;
DELETE FROM guarded;
-- A file in no partition.
SELECT row_count FROM pystachio.write_parquet('SELECT 1 AS k, date ''2026-01-01'' AS d, ''x''::text AS t, true AS b, 1::smallint AS i', :'scratch' || '/deletes/parted/stray.parquet');
DELETE FROM parted WHERE i = 1;
SELECT differing();
-- Rights.
CREATE ROLE deleter;
GRANT USAGE ON SCHEMA write_deletes TO deleter;
GRANT SELECT ON plain TO deleter;
SET ROLE deleter;
DELETE FROM plain;
RESET ROLE;
GRANT DELETE ON plain TO deleter;
SET ROLE deleter;
DELETE FROM plain;
RESET ROLE;
SELECT count(*) FROM plain;

DROP SCHEMA write_deletes CASCADE;
DROP ROLE deleter;
