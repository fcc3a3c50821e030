--
-- The choice between a device's engine and the CPU engine, and how EXPLAIN shows it.
--
\getenv data PYSTACHIO_REGRESS_DATA
CREATE SERVER paired FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '256MB', threads '2');
CREATE SERVER alone FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB', threads '2');
SELECT format('CREATE FOREIGN TABLE on_%s (id integer, a integer, c text) SERVER %1$s OPTIONS (path %L)', server, :'data' || '/t1.parquet')
FROM unnest('{paired,alone}'::text[]) server
\gexec
SELECT format('CREATE FOREIGN TABLE arrays (id integer, v integer[]) SERVER paired OPTIONS (path %L)', :'data' || '/edge_int4_array.parquet')
\gexec
-- Times vary: that the one which was chosen is the smaller is checked, and the numbers are hidden.
CREATE FUNCTION public.explain_choice(query text, options text DEFAULT 'COSTS') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  line text;
  engine text;
  times numeric[];
BEGIN
  FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
    engine = coalesce(substring(line FROM 'R[ua]ns? On: (\w+)'), engine);
    IF line ~ 'Expected Times' THEN
      times = (SELECT array_agg(match[1]::numeric) FROM regexp_matches(line, '([0-9.]+) ms', 'g') match);
      ASSERT (engine = 'cpu') = (times[1] < times[2]), engine || ' is not the faster of ' || line;
    END IF;
    IF line ~ 'R[ua]ns? On|Expected Times' THEN
      RETURN NEXT regexp_replace(trim(line), '[0-9.]+ ms', 'N ms', 'g');
    END IF;
  END LOOP;
END $$;
SHOW pystachio.device_overhead;

-- auto: a small table is not worth what a query costs on a device, unless that is nothing.
SET pystachio.engine_choice = auto;
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c');
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c', 'ANALYZE');
SET pystachio.device_overhead = 0;
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c');
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c', 'ANALYZE');
RESET pystachio.device_overhead;

-- The choice can be made by hand; nothing is estimated then.
SET pystachio.engine_choice = gpu;
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c');
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c', 'ANALYZE, COSTS OFF');
SET pystachio.engine_choice = cpu;
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c');
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c', 'ANALYZE, COSTS OFF');

-- Functions without a kernel always run on the CPU engine, and EXPLAIN says so.
SET pystachio.engine_choice = gpu;
SELECT * FROM public.explain_choice('SELECT id FROM arrays WHERE v IS NULL');
SELECT * FROM public.explain_choice('SELECT id FROM arrays WHERE v IS NULL', 'ANALYZE');

-- With costs alone; and a server without a device has no choice.
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_paired GROUP BY c', 'COSTS OFF');
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_alone GROUP BY c');
SELECT * FROM public.explain_choice('SELECT c, count(*) FROM on_alone GROUP BY c', 'ANALYZE');

-- Whichever engine it is, the rows are the same; errors of files are those of a query.
SELECT md5(string_agg(format('%s %s %s', id, a, c), ',' ORDER BY id)) = (SELECT md5(string_agg(format('%s %s %s', id, a, c), ',' ORDER BY id)) FROM on_alone)
  AS same FROM on_paired;
SET pystachio.engine_choice = auto;
ALTER FOREIGN TABLE on_paired OPTIONS (SET path '/nowhere/t1.parquet');
SELECT count(id) FROM on_paired;
SET pystachio.engine_choice = abacus;
RESET pystachio.engine_choice;
DROP FUNCTION public.explain_choice;
DROP SERVER paired, alone CASCADE;
