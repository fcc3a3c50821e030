--
-- The registry of functions that the engines evaluate.
--
SELECT count(*) > 50 AS many, count(*) = count(DISTINCT name) AS names_differ FROM pystachio.functions();
\pset format unaligned
SELECT * FROM pystachio.functions() WHERE name = 'starts_with';
-- PostgreSQL has every function that is said to mean one of them.
SELECT f.name, c FROM pystachio.functions() f, unnest(catalog_names) c
WHERE NOT EXISTS (SELECT FROM pg_proc WHERE proname = c AND pronamespace = 'pg_catalog'::regnamespace);
-- What the planner alone calls, and what the host computes for a device.
SELECT name, on_device FROM pystachio.functions() WHERE examples = '{}' OR NOT on_device ORDER BY name;
\pset format aligned
