--
-- The settings: names, defaults, who may change them.
--
SELECT pystachio.version() IS NOT NULL AS loaded;
SELECT name, boot_val, unit, context FROM pg_settings WHERE name LIKE 'pystachio.%' ORDER BY name;
SET pystachio.rewrite = sometimes;
SET pystachio.batch_rows = 1;
SET pystachio.strict = on;
-- Techniques of the GPU engine are switched off by name, by superusers.
SET pystachio.gpu_disable = 'cache, regulation';
SHOW pystachio.gpu_disable;
SET pystachio.gpu_disable = 'cache, pool';
SET ROLE pg_monitor;
SET pystachio.gpu_disable = 'cache';
RESET ROLE;
RESET ALL;
