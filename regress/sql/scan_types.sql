--
-- Values of every type, as PostgreSQL prints them.
--
\getenv data PYSTACHIO_REGRESS_DATA
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS typed CASCADE;
CREATE SCHEMA typed;
SELECT format('CREATE FOREIGN TABLE typed.%s (id integer NOT NULL, v %s) SERVER pystachio OPTIONS (path %L)', split_part(t, '=', 1),
  split_part(t, '=', 2), :'data' || '/' || split_part(t, '=', 1) || '.parquet')
FROM unnest(ARRAY['edge_bool=boolean', 'edge_int2=smallint', 'edge_int4=integer', 'edge_int8=bigint', 'edge_float4=real',
  'edge_float8=double precision', 'edge_numeric_15_2=numeric(15,2)', 'edge_numeric_38_10=numeric(38,10)', 'edge_date=date',
  'edge_timestamp=timestamp', 'edge_timestamptz=timestamptz', 'edge_time=time', 'edge_char=char(5)', 'edge_uuid=uuid',
  'edge_bytea=bytea', 'edge_int4_array=integer[]', 'edge_text_array=text[]', 'edge_numeric_array=numeric(8,3)[]',
  'edge_date_array=date[]', 'form_uint64=numeric(20,0)', 'form_timestamp_int96=timestamp', 'form_float16=real', 'form_json=json']) t
\gexec
SET search_path = typed, public;
SELECT * FROM edge_bool ORDER BY id;
SELECT * FROM edge_int2 ORDER BY id;
SELECT * FROM edge_int4 ORDER BY id;
SELECT * FROM edge_int8 ORDER BY id;
SELECT * FROM edge_float4 ORDER BY id;
SELECT * FROM edge_float8 ORDER BY id;
SELECT * FROM edge_numeric_15_2 ORDER BY id;
SELECT * FROM edge_numeric_38_10 ORDER BY id;
SELECT * FROM edge_date ORDER BY id;
SELECT * FROM edge_timestamp ORDER BY id;
SELECT * FROM edge_timestamptz ORDER BY id;
SET timezone = 'America/New_York';
SELECT * FROM edge_timestamptz WHERE id < 16 ORDER BY id;
RESET timezone;
SELECT * FROM edge_time ORDER BY id;
SELECT id, '<' || v::text || '>' AS trimmed, v, length(v) FROM edge_char ORDER BY id;
SELECT * FROM edge_uuid ORDER BY id;
SELECT * FROM edge_bytea ORDER BY id;
SELECT * FROM edge_int4_array ORDER BY id;
SELECT * FROM edge_text_array ORDER BY id;
SELECT * FROM edge_numeric_array ORDER BY id;
SELECT * FROM edge_date_array ORDER BY id;
SELECT * FROM form_uint64 ORDER BY id;
SELECT * FROM form_timestamp_int96 ORDER BY id;
SELECT * FROM form_float16 ORDER BY id;
SELECT * FROM form_json ORDER BY id;
-- Arrays are returned; work on them is PostgreSQL's.
SELECT id, v[1], array_length(v, 1), 1 = ANY (v) FROM edge_int4_array ORDER BY id;
DROP SCHEMA typed CASCADE;
