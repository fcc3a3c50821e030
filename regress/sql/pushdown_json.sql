--
-- Parts of JSON documents, and values that are read from text. Each query is compared with heap tables.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set ECHO none
-- Documents that a seed chooses: names occur twice, numbers have any form, texts have escapes.
CREATE FUNCTION public.chosen(seed text, below integer) RETURNS integer LANGUAGE sql IMMUTABLE AS
  $$ SELECT abs(('x' || substr(md5(seed), 1, 7))::bit(28)::integer) % below $$;
CREATE FUNCTION public.document(seed text, depth integer) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  kind integer := public.chosen(seed, CASE WHEN depth > 0 THEN 10 ELSE 6 END);
  parts text[] := '{}';
  blank text := (ARRAY['', ' ', E'\n\t', ''])[1 + public.chosen(seed || 'b', 4)];
  names text[] := '{a,b,c,ab,"",é,\\u0061,"x y",0,1,a.b}';
BEGIN
  IF kind < 2 THEN
    RETURN (ARRAY['0','-1','12','1.50','-0','-0.0','1e3','2.5E-2','1E+1','123456789012345678901234567890.10','0.1e1','7','7.0'])[1 + public.chosen(seed || 'n', 13)];
  ELSIF kind < 4 THEN
    RETURN (ARRAY['""','"a"','"é"','"\u00e9\ud83d\ude00"','"q\"\\\/\b\f\n\r\t"','"1"','"x y"','"\u0061"','"{}"'])[1 + public.chosen(seed || 't', 9)];
  ELSIF kind < 6 THEN
    RETURN (ARRAY['null','true','false','[]','{}'])[1 + public.chosen(seed || 'w', 5)];
  END IF;
  FOR place IN 1 .. public.chosen(seed || 'c', 6) LOOP
    parts := parts || (CASE WHEN kind < 9 THEN '"' || names[1 + public.chosen(seed || 'k' || place, 11)] || '"' || blank || ':' ELSE '' END
      || blank || public.document(seed || '.' || place, depth - 1));
  END LOOP;
  RETURN CASE WHEN kind < 9 THEN '{' ELSE '[' END || blank || array_to_string(parts, blank || ',') || blank || CASE WHEN kind < 9 THEN '}' ELSE ']' END;
END $$;
CREATE TABLE heap.documents AS SELECT id, t, t::json AS j, t::jsonb AS b
  FROM (SELECT id, CASE WHEN id % 97 = 0 THEN NULL ELSE document('s' || id, 4) END AS t FROM generate_series(1, 3000) id) made;
-- What is no JSON, or not in each of its types.
CREATE TABLE heap.broken AS SELECT row_number() OVER ()::integer AS id, t FROM unnest(ARRAY['', ' ', '{', '{"a"', '{"a":', '{"a":1', '[1,', '[1 2]', '{"a":1 "b":2}', '{1:2}',
  '{"a":1,}', '[,]', '1 2', 'nulls', '01', '1.', '-', '1e', '''a''', 'é', '"a', '"\x"', '"\u12"', E'"\t"', '"\u0000"', '{"a":"\ud800"}', '"\udc00"', '"\ud800\ud800"',
  '1e200000', '{"a":1e-20000}', '{"b":2}', '["a"]', '"a"', '7', 'null', E'\u00a01', '{"a":{"a":{"a":1}}}', '[[[[]]]]']) t;
DO $$ BEGIN
  PERFORM pystachio.write_parquet('SELECT id, t, t AS j, t AS b FROM heap.documents', current_setting('data_directory') || '/documents.parquet', overwrite => true);
  PERFORM pystachio.write_parquet('SELECT id, t FROM heap.broken', current_setting('data_directory') || '/broken.parquet', overwrite => true);
  EXECUTE format('CREATE FOREIGN TABLE pq.documents (id integer, t text, j json, b jsonb) SERVER pystachio OPTIONS (path %L)', current_setting('data_directory') || '/documents.parquet');
  EXECUTE format('CREATE FOREIGN TABLE pq.broken (id integer, t text) SERVER pystachio OPTIONS (path %L)', current_setting('data_directory') || '/broken.parquet');
END $$;
-- What each of the broken documents gives, if it differs.
CREATE FUNCTION public.same_of_broken(expression text) RETURNS TABLE (outcome text, documents bigint) LANGUAGE sql AS $$
  SELECT public.same(format('SELECT %s FROM broken WHERE id = %s', expression, id)), count(*) FROM heap.broken GROUP BY 1 ORDER BY 1
$$;
SET search_path = pq, public;
\set ECHO all
--
-- Parts by constant steps
--
EXPLAIN (VERBOSE, COSTS OFF) SELECT b->'a'->>'b', count(*) FROM documents WHERE b->>'a' <> '' GROUP BY 1;
SELECT * FROM pushed('SELECT j->>''a'', count(*) FROM documents GROUP BY 1');
SELECT same('SELECT id, b->>''a'', j->>''a'', b->>''b'', j->>''ab'', b->>'''', b->>''é'', b->>''x y'' FROM documents');
SELECT same('SELECT id, b->''a'', j->''a'', b->''a''->''b'', j->''c''->''a'' FROM documents');
SELECT same('SELECT id, b->0, b->-1, b->>1, j->0, j->>-2, j->>1 FROM documents');
SELECT same('SELECT id, b->''a''->0->>''b'', j->''a''->>0, b->''b''->-1->''a'' FROM documents');
SELECT same('SELECT id, b#>>''{a}'', b#>>''{a,0}'', b#>''{a,b}'', b#>>''{}'', b#>''{}'', b#>>''{0,a}'', b#>>''{-1}'', b#>>''{1}'' FROM documents');
SELECT same('SELECT id, j#>>''{a}'', j#>>''{a,0}'', j#>''{a,b}'', j#>>''{}'', j#>''{}'', j#>>''{0,a}'', j#>>''{-1}'', j#>>''{1}'', j#>>''{a,b,c}'' FROM documents');
SELECT same('SELECT id, b[''a''], b[''a''][''b''], b[0], b[''a''][0], (b[''a''])->>''b'' FROM documents');
SELECT same('SELECT id, b#>''{a}''->''b''->>0, b->''a''#>>''{b,c}'', j->''a''#>>''{b,c}'', j#>''{a,b}''->>''c'' FROM documents');
SELECT same('SELECT b->>''a'', count(*), min(j->>''b''), max(length(b->>''c'')) FROM documents GROUP BY 1');
SELECT same('SELECT id FROM documents WHERE b->>''a'' IS NULL AND b->''a'' IS NOT NULL');
SELECT same('SELECT id FROM documents ORDER BY b->>''a'' COLLATE "C" DESC NULLS LAST, id LIMIT 50');
SELECT same('SELECT x.id, count(*) FROM documents x JOIN documents y ON x.b->>''a'' = y.b->>''b'' WHERE x.id < 500 GROUP BY 1');
--
-- Text of documents, casts
--
SELECT same('SELECT id, b::text, j::text, j::jsonb, b::json, t::json, t::jsonb, t::jsonb::text, t::json->>''a'', t::jsonb->''a'' FROM documents');
SELECT same('SELECT id, upper(b::text), length(j::text), (t::jsonb)->>''b'' FROM documents WHERE t::jsonb->>''a'' > ''0''');
SELECT * FROM pushed('SELECT id FROM documents WHERE t::jsonb->''a''->>''b'' = ''x''');
--
-- Keys, what is contained, types and lengths
--
SELECT * FROM pushed('SELECT count(*) FROM documents WHERE b ? ''a'' AND b @> ''{"a": 1}'' AND jsonb_typeof(b) = ''object''');
SELECT same('SELECT id, b ? ''a'', b ? ''0'', b ? '''', b->''a'' ? ''b'', b ?| ''{a,b}'', b ?& ''{a,b}'', b ?| ''{c,NULL}'' FROM documents');
SELECT same('SELECT id FROM documents WHERE b @> ''{"a": 7}''');
SELECT same('SELECT id, b @> ''7'', b @> ''[7.00]'', b @> ''{}'', b @> ''[]'', b @> ''{"a": {}}'', b @> ''[[]]'', b @> ''null'', b @> ''"a"'', b @> ''[{"a": []}]'' FROM documents');
SELECT same('SELECT id, b <@ ''{"a": 1, "b": [1, 2, {"c": null}], "c": {}}'', b->''a'' <@ ''[0, 7, "a", null, true]'' FROM documents');
SELECT same('SELECT x.id, y.id FROM documents x, documents y WHERE x.b @> y.b AND x.id < 60 AND y.id < 60');
SELECT same('SELECT jsonb_typeof(b), json_typeof(j), jsonb_typeof(b->''a''), json_typeof(j->0), count(*) FROM documents GROUP BY 1, 2, 3, 4');
SELECT same('SELECT id, jsonb_array_length(b), json_array_length(j) FROM documents WHERE json_typeof(j) = ''array''');
SELECT same('SELECT sum(CASE WHEN jsonb_typeof(b->''a'') = ''array'' THEN jsonb_array_length(b->''a'') END) FROM documents');
SELECT same('SELECT jsonb_array_length(b) FROM documents WHERE jsonb_typeof(b) = ''object''');
SELECT same('SELECT json_array_length(j) FROM documents WHERE json_typeof(j) = ''string''');
--
-- JSON that the engine makes of structs and of values
--
SELECT same('SELECT id, jsonb_build_object(''k'', s, ''n'', a)->>''k'', json_build_object(''k'', s)->''k'', jsonb_build_array(s, num)->>1 FROM t1');
--
-- What is no JSON
--
SELECT * FROM same_of_broken('t::jsonb->>''a''');
SELECT * FROM same_of_broken('t::json->>''a''');
SELECT * FROM same_of_broken('t::jsonb');
SELECT * FROM same_of_broken('t::json');
SELECT * FROM same_of_broken('t::json->-1, t::jsonb#>>''{a,a}''');
SELECT * FROM same_of_broken('t::jsonb @> ''{"b": 2.0}'', t::jsonb ? ''a''');
SELECT * FROM same_of_broken('jsonb_typeof(t::jsonb), json_typeof(t::json)');
SELECT * FROM same_of_broken('json_array_length(t::json)');
SELECT * FROM same_of_broken('jsonb_array_length(t::jsonb)');
-- A condition before it keeps PostgreSQL from reading it.
SELECT same('SELECT id, CASE WHEN left(t, 1) = ''{'' AND id IN (31, 37) THEN t::jsonb->>''b'' END FROM broken');
SELECT same('SELECT count(*) FROM documents WHERE j->>''a'' = ''x'' OR id > 10');
--
-- Parameters and steps that are no constants
--
PREPARE by_key(text, jsonb) AS SELECT count(*) FROM documents WHERE b->>$1 IS NOT NULL AND b @> $2;
EXECUTE by_key('a', '{}');
SET plan_cache_mode = force_generic_plan;
EXECUTE by_key('a', '{}');
RESET plan_cache_mode;
DEALLOCATE by_key;
SELECT * FROM pushed('SELECT b->>t FROM documents');
SELECT * FROM pushed('SELECT b - ''a'', b || b FROM documents');
SELECT same('SELECT b->>left(t, 1), b - ''a'' FROM documents WHERE jsonb_typeof(b) = ''object''');
SELECT same('SELECT coalesce(b->''a'', ''{"x": 1}''), CASE WHEN id > 7 THEN ''[1]''::json ELSE j->''b'' END FROM documents');
--
-- Numbers, booleans and uuids from text
--
\set ECHO none
CREATE TABLE heap.texts AS SELECT row_number() OVER ()::integer AS id, v FROM unnest(ARRAY['0', ' 12 ', '-7', '+3', '32767', '32768', '-32768', '2147483647', '2147483648', '-2147483648',
  '9223372036854775807', '9223372036854775808', '-9223372036854775808', '1.0', '1.5', '-.5', '1.', '.', '1e3', '1e400', '1e-400', '4e38', '1e-46', '16777217', '0.1', 'inf', '-Infinity', 'NaN',
  'nan(1)', '0x1p3', '-0', '', ' ', 'x', '1 2', '--1', 't', 'TRUE', ' yes ', 'of', 'o', 'on', 'truth', '1', 'n', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
  '{A0EEBC999C0B4EF8BB6D6BB9BD380A11}', 'a0ee-bc99-9c0b4ef8-bb6d6bb9-bd38-0a11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1', '99999999999999999999999x', '1x', E'\x0b1\f', '1_', '_1']) v;
DO $$ BEGIN
  PERFORM pystachio.write_parquet('SELECT id, v FROM heap.texts', current_setting('data_directory') || '/texts.parquet', overwrite => true);
  EXECUTE format('CREATE FOREIGN TABLE pq.texts (id integer, v text) SERVER pystachio OPTIONS (path %L)', current_setting('data_directory') || '/texts.parquet');
END $$;
CREATE FUNCTION public.same_of_texts(type text) RETURNS TABLE (outcome text, texts bigint) LANGUAGE sql AS $$
  SELECT public.same(format('SELECT v::%s, v::varchar::%s FROM texts WHERE id = %s', type, type, id)), count(*) FROM heap.texts GROUP BY 1 ORDER BY 1
$$;
\set ECHO all
SELECT * FROM pushed('SELECT sum(v::integer) FROM texts WHERE v ~ ''^[0-9]+$''');
SELECT * FROM same_of_texts('smallint');
SELECT * FROM same_of_texts('integer');
SELECT * FROM same_of_texts('bigint');
SELECT * FROM same_of_texts('real');
SELECT * FROM same_of_texts('double precision');
SELECT * FROM same_of_texts('numeric(10,3)') WHERE outcome NOT LIKE '%NaN%';
SELECT * FROM same_of_texts('boolean');
SELECT * FROM same_of_texts('uuid');
SELECT same('SELECT sum(v::bigint), max(v::integer), avg(v::double precision) FROM texts WHERE v ~ ''^ *-?[0-9]{1,9} *$''');
SELECT same('SELECT sum(v::numeric(20,5)), avg(v::numeric(12,2)), max(v::numeric(9,3)) FROM texts WHERE v ~ ''^ *-?[0-9]{1,4}(\.[0-9]+)? *$''');
-- No decimal of an engine is NaN.
SELECT v::numeric(10,3) FROM texts WHERE v = 'NaN';
SELECT same('SELECT id, v::char(4)::integer FROM texts WHERE v ~ ''^[0-9]{1,4}$''');
SELECT same('SELECT id, (b->>''a'')::float8 + 1, CASE WHEN b->>''b'' ~ ''^[0-9]{1,9}$'' THEN (b->>''b'')::integer END FROM documents WHERE b->>''a'' ~ ''^-?[0-9]+(\.[0-9]+)?$''');
-- Whether digits of other bases are read is PostgreSQL's version's.
SELECT same('SELECT id, (''0x'' || id)::integer, (''1_'' || id)::bigint FROM texts') LIKE 'the same%' AS same;
RESET search_path;
DROP TABLE heap.documents, heap.broken, heap.texts;
DROP FOREIGN TABLE pq.documents, pq.broken, pq.texts;
