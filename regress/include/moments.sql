\set ECHO none
-- Moments around the transitions of time zones, and columns with edge values, over Parquet in schema pq and as heap tables in schema heap.
-- After tables.sql.
SET datestyle = ISO;
\getenv data PYSTACHIO_REGRESS_DATA
SELECT format('CREATE FOREIGN TABLE pq.moments (id integer NOT NULL, d date, ts timestamp, tz timestamptz) SERVER pystachio OPTIONS (path %L)',
  :'data' || '/moments.parquet')
\gexec
SELECT format('CREATE FOREIGN TABLE pq.edge_%s (id integer NOT NULL, v %1$s) SERVER pystachio OPTIONS (path %L)', t,
  :'data' || '/edge_' || t || '.parquet')
FROM unnest('{date,timestamp,timestamptz,float8,int8}'::text[]) t
\gexec
SELECT format('CREATE TABLE heap.%s AS SELECT * FROM pq.%1$s', t)
FROM unnest('{moments,edge_date,edge_timestamp,edge_timestamptz,edge_float8,edge_int8}'::text[]) t
\gexec
