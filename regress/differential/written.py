"""Files that pystachio writes, read by other libraries and by both of its engines: the values are those of the heap table.

The rows are those of the suite `writers`: edge values of every type. regress/writers/read.py reads the files in the private environment
of the libraries.
"""

import json
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = ("pyarrow", "duckdb", "polars")
# What PostgreSQL prints of a value of each kind, as regress/writers/read.py does.
_FLOAT = "CASE WHEN {c} = 'NaN' THEN 'nan' ELSE encode({send}({c}), 'hex') END"
_MOMENT = "(extract(epoch FROM {c}) * 1000000)::bigint::text"
KINDS = {
    "boolean": ("boolean", "{c}::text::char(1)::text"), "smallint": ("integer", "{c}::text"), "integer": ("integer", "{c}::text"), "bigint": ("integer", "{c}::text"),
    "real": ("real", _FLOAT.replace("{send}", "float4send")), "double precision": ("double", _FLOAT.replace("{send}", "float8send")),
    "date": ("date", "({c} - DATE '1970-01-01')::text"), "time": ("time", _MOMENT), "timetz": ("time", _MOMENT), "timestamp": ("timestamp", _MOMENT), "timestamptz": ("timestamp", _MOMENT),
    "text": ("text", "{c}"), "bytea": ("bytes", "encode({c}, 'hex')"), "uuid": ("uuid", "{c}::text"), "json": ("text", "{c}::text"),
    "integer[]": ("integer[]", "array_to_json({c}::text[])"), "text[]": ("text[]", "array_to_json({c})"),
    "written_heap.pair": ("pair", "to_json({c})"), "written_heap.pair[]": ("pair[]", "to_json({c})"),
}
# Columns beside those of the rows: lists, JSON, and composite values.
_MORE = [("numbers", "integer[]", "CASE WHEN id % 5 > 0 THEN ARRAY[i32, NULL, id] END"), ("words", "text[]", "CASE id % 3 WHEN 0 THEN '{}' ELSE ARRAY[t, NULL, 'x'] END"),
         ("document", "json", "json_build_object('t', t)"),
         ("pair", "written_heap.pair", "CASE id % 4 WHEN 1 THEN ROW(NULL, NULL)::written_heap.pair WHEN 2 THEN ROW(i32, t)::written_heap.pair END"),
         ("pairs", "written_heap.pair[]",
          "CASE id % 3 WHEN 1 THEN '{}' WHEN 2 THEN ARRAY[ROW(i32, t), NULL, ROW(NULL, 'x')]::written_heap.pair[] END")]
_TYPES = "DROP TYPE IF EXISTS written_heap.pair CASCADE; CREATE TYPE written_heap.pair AS (n integer, t text)"
# Numbers of more digits than DuckDB and Polars read, and times of UTC.
LONG = {"table": "long", "more": [], "columns": [["id", "integer"], ["n", "numeric(76,38)"], ["w", "numeric(39,0)"], ["f", "numeric(2,70)"], ["t", "timetz"]]}
_NINES = f"{'9' * 38}.{'9' * 38}"
_LONG_ROWS = (
    "SELECT id, (CASE id % 7 WHEN 0 THEN NULL WHEN 1 THEN '{nines}' WHEN 2 THEN '-{nines}' WHEN 3 THEN '0' WHEN 4 THEN '1e-38' ELSE (id * 1234567.89)::text END)::numeric(76,38) AS n, "
    "(CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN 1e39 - id WHEN 2 THEN id - 1e39 ELSE 170141183460469231731687303715884105725 + id END)::numeric(39,0) AS w, "
    "((id % 199 - 99) * 1e-70::numeric)::numeric(2,70) AS f, CASE WHEN id % 3 > 0 THEN (time '00:00' + id * interval '17.000123 s')::timetz END AS t FROM generate_series(1, 1000) id"
).replace("{nines}", _NINES)
# Arguments of write_parquet.
FORMS = {
    "default": "", "uncompressed": ", compression => 'none'", "zstd": ", compression => 'zstd'", "lz4": ", compression => 'lz4'",
    "gpu": ", layout => 'gpu'", "partitions": ", partition_by => '{flag}'",
    "sorted": ", sort_by => 'flag DESC NULLS FIRST, t, i32'",
}


def kind(sql):
    """The kind of a column of PostgreSQL's type, and how its values are printed."""
    return ("decimal", "{c}::text") if sql.startswith("numeric") else KINDS[sql]


def columns(rows):
    """Names, types and expressions of what is written."""
    return [(name, sql, name) for name, sql in rows["columns"]] + rows.get("more", _MORE)


def write(session, folder, rows):
    """Writes a file, or a folder of them, for each form; returns their paths by form."""
    shutil.rmtree(folder, ignore_errors=True)
    pathlib.Path(folder).mkdir(parents=True)
    pathlib.Path(folder).chmod(0o777)
    query = "SELECT " + ", ".join(f"{expression} AS {name}" for name, _, expression in columns(rows)) + " FROM written_heap.rows ORDER BY id"
    session.run(f"{_TYPES}; DROP TABLE IF EXISTS written_heap.written; CREATE TABLE written_heap.written AS {query}")
    paths = {}
    for form, arguments in FORMS.items():
        paths[form] = f"{folder}/{form}" if form == "partitions" else f"{folder}/{form}.parquet"
        session.run(f"SELECT pystachio.write_parquet($$TABLE written_heap.written$$, '{paths[form]}'{arguments})")
    return paths


def write_long(session, folder):
    """Writes a file of long numbers, and returns its path."""
    session.run(f"DROP TABLE IF EXISTS written_heap.long; CREATE TABLE written_heap.long AS {_LONG_ROWS}")
    session.run(f"SELECT pystachio.write_parquet($$TABLE written_heap.long$$, '{folder}/long.parquet')")
    return f"{folder}/long.parquet"


def expected(session, rows):
    """The rows as PostgreSQL has them, in the words of read.py."""
    values = ", ".join(kind(sql)[1].format(c=name) for name, sql, _ in columns(rows))
    return [json.loads(row[0]) for row in session.run(f"SELECT json_build_array({values}) FROM written_heap.{rows.get('table', 'written')} ORDER BY id").rows]


def read(python, library, path, rows):
    """The rows as a library reads them, or what it says of a file that it can't read."""
    kinds = json.dumps([kind(sql)[0] for _, sql, _ in columns(rows)])
    done = subprocess.run([python, ROOT / "regress" / "writers" / "read.py", library, path, kinds], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr[-600:]


def pythons():
    """The Python of the libraries of today."""
    made = subprocess.run([ROOT / "scripts" / "writers.sh"], stdout=subprocess.PIPE, text=True, check=False)
    return made.stdout.split()


def difference(found, wanted, rows):
    """What differs first, or None."""
    if isinstance(found, str):
        return found
    if len(found) != len(wanted):
        return f"{len(found)} rows, not {len(wanted)}"
    for one, other in zip(found, wanted):
        for (name, *_), value, right in zip(columns(rows), one, other):
            if value != right:
                return f"row {other[0]}, column {name}: {value!r}, not {right!r}"
    return None
