-- Run once, when the data folder is made: the extension, and something to query. The sample lies in the volume of the data, so that it
-- is there as long as the tables are; DROP SCHEMA tpch CASCADE removes the tables, and the folder can be deleted then.
CREATE EXTENSION pystachio;
SELECT * FROM pystachio.tpch_generate('/var/lib/postgresql/sample', 0.01, overwrite => true);
CREATE SCHEMA tpch;
IMPORT FOREIGN SCHEMA "/var/lib/postgresql/sample" FROM SERVER pystachio INTO tpch;
