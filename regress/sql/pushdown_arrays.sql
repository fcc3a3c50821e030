--
-- Arrays that columns have: membership, containment, elements and counts are the engine's.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\getenv scratch PYSTACHIO_REGRESS_SCRATCH
\i :abs_srcdir/include/tables.sql
\i :abs_srcdir/include/same.sql
\set columns 'id integer, x integer, w text, n numeric(9,2), tags text[], codes varchar(8)[], ints integer[], smalls smallint[], bigs bigint[], nums numeric(8,3)[], floats double precision[], days date[], moments timestamp[], keys uuid[], flags boolean[], fixed char(3)[]'
CREATE TABLE heap.arrays (:columns);
INSERT INTO heap.arrays
SELECT i, i % 5, chr(97 + i % 4), (i % 7) / 4.0,
  CASE i % 6 WHEN 0 THEN NULL WHEN 1 THEN '{}' WHEN 2 THEN '{a,b,NULL}' WHEN 3 THEN '{b}' WHEN 4 THEN '{"",c,a,a}' ELSE '{NULL}' END::text[],
  CASE WHEN i % 3 > 0 THEN ARRAY[chr(97 + i % 4), 'A'] END,
  CASE WHEN i % 4 > 0 THEN (SELECT array_agg(j % 5) FROM generate_series(i, i + i % 7) j) END,
  ARRAY[i % 5, NULL, -32768]::smallint[], ARRAY[i % 5, 9223372036854775807]::bigint[],
  ARRAY[(i % 7) / 4.0, 1.5, NULL]::numeric(8,3)[],
  CASE i % 4 WHEN 0 THEN '{NaN,-0}' WHEN 1 THEN '{Infinity,0}' WHEN 2 THEN '{1.5}' END::float8[],
  ARRAY[date '2024-02-27' + i % 5, date 'infinity'], ARRAY[timestamp '2024-02-29 12:00' + i * interval '1 hour'],
  CASE WHEN i % 2 = 0 THEN ARRAY[('00000000-0000-0000-0000-00000000000' || i % 3)::uuid] END, ARRAY[i % 2 = 0, i % 3 = 0], ARRAY['a', chr(97 + i % 4)]::char(3)[]
FROM generate_series(1, 400) i;
SELECT row_count FROM pystachio.write_parquet('SELECT * FROM heap.arrays', :'scratch' || '/pushdown_arrays/arrays.parquet');
\set folder :scratch '/pushdown_arrays'
CREATE FOREIGN TABLE pq.arrays (:columns) SERVER pystachio OPTIONS (path :'folder');

SELECT same($$SELECT * FROM arrays$$);
SELECT same($$SELECT id FROM arrays WHERE 'a' = ANY (tags)$$);
SELECT same($$SELECT id, 'a' = ANY (tags), 'a' <> ALL (tags), NULL = ANY (tags), w = ANY (tags), w = ANY (codes) FROM arrays$$);
SELECT same($$SELECT id, x = ANY (ints), x <> ALL (ints), 3 = ANY (ints), x = ANY (bigs), x::smallint = ANY (ints), 3::bigint = ANY (ints), x = ANY (smalls) FROM arrays$$);
SELECT same($$SELECT id, n = ANY (nums), 1.5 = ANY (nums), 1.50001 = ANY (nums), 2 = ANY (nums), n <> ALL (nums) FROM arrays$$);
SELECT same($$SELECT id, 'NaN' = ANY (floats), 0 = ANY (floats), '-0'::float8 = ANY (floats), n::float8 = ANY (floats) FROM arrays$$);
SELECT same($$SELECT id, date '2024-02-29' = ANY (days), 'infinity' = ANY (days), timestamp '2024-03-01' = ANY (moments), '00000000-0000-0000-0000-000000000001' = ANY (keys), true = ANY (flags) FROM arrays$$);
SELECT same($$SELECT id FROM arrays WHERE NOT (w = ANY (tags)) OR 4 < cardinality(ints)$$);
SELECT same($$SELECT id FROM arrays WHERE x > ANY (ints) AND x <= ALL (bigs)$$);
SELECT same($$SELECT id, 'a' = ANY (fixed) FROM arrays$$);
SELECT same($$SELECT id, tags @> ARRAY['a'], tags @> ARRAY['a', 'b'], tags @> '{}', tags @> ARRAY[NULL]::text[], NOT tags @> ARRAY['c'] FROM arrays$$);
SELECT same($$SELECT id, ARRAY['a'] <@ tags, tags <@ ARRAY['a', 'b'], tags && ARRAY['c', 'b'], ARRAY['c', NULL] && tags, tags && '{}' FROM arrays$$);
SELECT same($$SELECT id, ints @> ARRAY[1, 2], ints && ARRAY[x, 7], ints @> ARRAY[x], tags && ARRAY[w] FROM arrays$$);
SELECT same($$SELECT id, nums @> ARRAY[1.5], bigs @> ARRAY[3::bigint], codes @> ARRAY['A']::varchar[], days && ARRAY[date 'infinity'] FROM arrays$$);
SELECT same($$SELECT id, tags[1], tags[2], tags[x], ints[0], ints[-1], ints[NULL], ints[x + 1] + 1, nums[1], nums[2] + n, floats[1], days[1] + 1, keys[1], fixed[2], codes[1] || 'x' FROM arrays$$);
SELECT same($$SELECT id, cardinality(tags), array_length(tags, 1), array_length(tags, 2), cardinality(ints), array_length(nums, x), array_upper(tags, 1) FROM arrays$$);
SELECT same($$SELECT tags[1], count(*), sum(cardinality(ints)), max(nums[1]) FROM arrays GROUP BY 1$$);
SELECT same($$SELECT a.id, b.id FROM arrays a JOIN arrays b ON a.ints[1] = b.x AND a.w = ANY (b.tags) WHERE a.id < 40 AND b.id < 40$$);
SELECT same($$SELECT a.id, b.tags[1], 'a' = ANY (b.tags), b.tags @> '{a}' FROM arrays a LEFT JOIN arrays b ON a.id = b.id + 390$$);
SELECT same($$SELECT id, tags[1:2], tags || 'z'::text, array_to_string(tags, ','), tags = '{b}' FROM arrays$$);
SELECT same($$SELECT id FROM arrays WHERE tags IS NULL OR ints IS NOT NULL AND ints[1] IS NULL$$);
PREPARE has (text, integer) AS SELECT count(*) FROM arrays WHERE $1 = ANY (tags) AND ints @> ARRAY[$2];
EXECUTE has('a', 3);
SET plan_cache_mode = force_generic_plan;
EXECUTE has('a', 3);
RESET plan_cache_mode;

SELECT public.pushed($$SELECT id FROM arrays WHERE 'a' = ANY (tags) AND ints[1] = x AND cardinality(ints) > 1$$);
SELECT public.pushed($$SELECT count(*) FROM arrays WHERE tags @> ARRAY['a', 'b'] OR tags && ARRAY['c']$$);
SELECT public.pushed($$SELECT tags[1], count(*) FROM arrays GROUP BY 1$$);
SELECT public.pushed($$SELECT id FROM arrays WHERE 3 < ANY (ints)$$);

-- unnest in FROM: each element beside its row.
SELECT same($$SELECT id, tag FROM arrays, unnest(tags) tag$$);
SELECT same($$SELECT id, tag FROM arrays LEFT JOIN unnest(tags) tag ON true$$);
SELECT same($$SELECT id, tag, place FROM arrays, unnest(tags) WITH ORDINALITY u (tag, place)$$);
SELECT same($$SELECT id, i + 1, place FROM arrays LEFT JOIN LATERAL unnest(ints) WITH ORDINALITY u (i, place) ON true$$);
SELECT same($$SELECT tag, count(*), sum(x), min(place) FROM arrays, unnest(tags) WITH ORDINALITY u (tag, place) GROUP BY tag$$);
SELECT same($$SELECT id, tag FROM arrays, unnest(tags) tag WHERE tag > 'a' AND id < 200$$);
SELECT same($$SELECT id, num + n, f, d, m, k, b FROM arrays, unnest(nums) num, unnest(floats) f, unnest(days) d, unnest(moments) m, unnest(keys) k, unnest(flags) b WHERE id < 30$$);
SELECT same($$SELECT a.id, tag, b.id FROM arrays a, unnest(a.tags) tag, arrays b WHERE b.w = tag AND b.id < 9 AND a.id < 50$$);
SELECT same($$SELECT a.id, b.id, tag FROM arrays a JOIN arrays b USING (id), unnest(b.codes) tag WHERE a.x = 3 AND tag <> a.w$$);
SELECT same($$SELECT a.id, tag, t1.c FROM arrays a LEFT JOIN unnest(a.tags) tag ON true LEFT JOIN t1 ON t1.id = a.id$$);
SELECT same($$SELECT id, tag FROM arrays LEFT JOIN unnest(tags) tag ON tag = 'a'$$);
SELECT same($$SELECT id, tag FROM arrays, unnest(tags) tag WHERE x > 2 ORDER BY tag, id LIMIT 7$$);
SELECT same($$SELECT id FROM arrays WHERE EXISTS (SELECT FROM unnest(tags) tag WHERE tag = w)$$);
SELECT same($$SELECT id, (SELECT count(*) FROM unnest(ints) i WHERE i > 2) FROM arrays$$);
SELECT same($$SELECT id, (SELECT max(i) FROM unnest(ints) i) FROM arrays$$);
SELECT same($$SELECT id, unnest(tags) FROM arrays$$);
SELECT same($$SELECT id, u.a, u.b FROM arrays, unnest(tags, ints) u (a, b)$$);
SELECT same($$SELECT id, tag FROM arrays, unnest(tags || 'z'::text) tag$$);
SELECT same($$SELECT id, i, f FROM arrays, unnest(ints) i, unnest(fixed) f WHERE i = 3$$);
SELECT same($$SELECT DISTINCT tag FROM (SELECT tags, id FROM arrays WHERE id < 100 OFFSET 0) s, unnest(s.tags) tag$$);
SELECT same($$SELECT id, i / 0 FROM arrays, unnest(ints) i$$);
SELECT same($$SELECT id, u.a, u.b, u.n FROM arrays LEFT JOIN unnest(tags, ints, nums) WITH ORDINALITY u (a, b, c, n) ON true$$);
SELECT same($$SELECT u.a, count(*), sum(u.b) FROM arrays, unnest(codes, ints) u (a, b) WHERE b > 1 GROUP BY 1$$);
-- unnest in a target list.
SELECT same($$SELECT unnest(tags) AS tag, count(*), sum(x) FROM arrays GROUP BY 1$$);
SELECT same($$SELECT id, unnest(tags), unnest(ints), upper(unnest(codes)) || w FROM arrays$$);
SELECT same($$SELECT DISTINCT unnest(ints) FROM arrays ORDER BY 1$$);
SELECT same($$SELECT DISTINCT unnest(ints) FROM arrays ORDER BY 1 DESC LIMIT 2$$);
SELECT same($$SELECT id, unnest(ints) FROM arrays ORDER BY id LIMIT 20$$);
SELECT same($$SELECT count(*) FROM (SELECT unnest(tags) AS tag FROM arrays WHERE x = 1) s WHERE tag = 'a'$$);
SELECT same($$SELECT a.id, unnest(b.tags) FROM arrays a LEFT JOIN arrays b ON b.id = a.id + 390$$);
SELECT same($$SELECT max(x), unnest(ARRAY[1, 2]) FROM arrays$$);
SELECT same($$SELECT x, unnest(array_agg(id ORDER BY id)) FROM arrays WHERE id < 9 GROUP BY x$$);
SELECT same($$SELECT unnest(tags), count(*) OVER () FROM arrays WHERE id < 9$$);
SELECT same($$SELECT unnest(tags), unnest(ints[1:2]) FROM arrays$$);
SELECT same($$SELECT unnest(ints) + 1 AS i, count(*) FROM arrays GROUP BY 1 HAVING count(*) > 2 ORDER BY 1$$);
SELECT same($$SELECT id FROM arrays WHERE 'a' IN (SELECT unnest(tags))$$);
SELECT same($$SELECT id FROM arrays a WHERE w IN (SELECT unnest(b.tags) FROM arrays b WHERE b.x = a.x)$$);
SELECT public.pushed($$SELECT unnest(tags) AS tag, count(*) FROM arrays GROUP BY 1$$);
SELECT public.pushed($$SELECT id, unnest(tags), unnest(ints) FROM arrays$$);
SELECT count(*) FROM arrays, unnest(tags);
SELECT public.pushed($$SELECT tag, count(*) FROM arrays, unnest(tags) WITH ORDINALITY u (tag, place) WHERE place < 3 AND tag <> w GROUP BY tag$$);
SELECT public.pushed($$SELECT id, tag FROM arrays LEFT JOIN unnest(tags) tag ON true$$);
SELECT public.pushed($$SELECT count(*) FROM arrays a, unnest(a.tags) tag, arrays b WHERE b.w = tag$$);
