"""Files that other libraries wrote: which there are, and the queries that their statistics must not answer wrongly.

The files are made by regress/writers/write.py in the libraries' own environments (scripts/writers.sh), from a seed. For hosts that
don't have these they can be made elsewhere: writers.py FOLDER SEED
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What an imported column may be besides the type of the rows: bytes of one length need not be a UUID, and INT96 has no zone.
OTHER_TYPES = {"uuid": {"bytea"}, "timestamptz": {"timestamp without time zone"}}
# Conditions over every column, of which the seed picks some for each file. {v}, {w}: values of the column.
CONDITIONS = ["{c} = {v}", "{c} < {v}", "{c} <= {v}", "{c} > {v}", "{c} >= {v}", "{c} <> {v}", "{c} BETWEEN {v} AND {w}", "{c} IN ({v}, {w})",
              "{c} IS NULL", "{c} IS NOT NULL", "NOT {c} > {v}"]


def make(folder, seed):
    """Writes the files into `folder` unless it has those of this seed; the columns of the rows, and the files with their columns."""
    folder = pathlib.Path(folder)
    made = folder / "seed"
    if not made.exists() or made.read_text(encoding="utf-8") != str(seed):
        _write(folder, seed)
        made.write_text(str(seed), encoding="utf-8")
    rows = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    files = [file for path in sorted(folder.glob("*_*.json")) for file in json.loads(path.read_text(encoding="utf-8"))]
    return rows, files


def _write(folder, seed):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    made = subprocess.run([ROOT / "scripts" / "writers.sh"], stdout=subprocess.PIPE, text=True, check=False)
    pythons = made.stdout.split()
    if made.returncode != 0 or not pythons:
        raise SystemExit("the libraries that write Parquet are not installed: run scripts/writers.sh where there is a network")
    for python, prefix in zip(pythons, ["new", "older"]):
        subprocess.run([python, ROOT / "regress" / "writers" / "write.py", folder, str(seed), prefix], check=True)
    (folder / "rows.csv").chmod(0o644)


def load(session, folder, rows, import_statement):
    """Schemas `written` (foreign, imported) and `written_heap`, with the rows loaded from the CSV."""
    session.run("SET client_min_messages = warning; DROP SCHEMA IF EXISTS written CASCADE; CREATE SCHEMA written")
    session.run("DROP SCHEMA IF EXISTS written_heap CASCADE; CREATE SCHEMA written_heap; RESET client_min_messages")
    definition = ", ".join(f"{name} {sql}" for name, sql in rows["columns"])
    session.run(f"CREATE TABLE written_heap.rows ({definition})")
    session.run(f"COPY written_heap.rows FROM '{folder}/rows.csv' (FORMAT csv)")
    session.run(import_statement(folder, "written"))


def imported_types(session, table):
    """PostgreSQL's names of the types of an imported table's columns."""
    found = session.run("SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                        f"WHERE attrelid = 'written.{table}'::regclass AND attnum > 0 ORDER BY attnum")
    return {name: sql for name, sql in found.rows}


def is_type(expected, imported):
    """Whether an imported type can have the values of a column of the rows."""
    names = {"timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone", "time": "time without time zone"}
    return imported == names.get(expected, expected) or imported in OTHER_TYPES.get(expected, ())


def heap_column(name, expected, imported):
    """A column of the heap rows as the imported type has it."""
    if imported == "bytea" and expected == "uuid":
        return f"uuid_send({name})"
    return f"{name}::{imported}" if imported in OTHER_TYPES.get(expected, ()) else name


def quoted(text, sql):
    return "'" + text.replace("'", "''") + f"'::{sql}"


def queries(session, file, rows, types, choose, count):
    """Name, query over the heap rows, query over the file; both give the same."""
    table = file["name"]
    expected = dict(rows["columns"])
    heap = ", ".join(f"{heap_column(name, expected[name], types[name])} AS {name}" for name in file["columns"])
    heap = f"(SELECT {heap} FROM written_heap.rows) h"
    names = ", ".join(file["columns"])
    foreign = f"written.{table}"

    def both(name, template):
        return f"{table} {name}", template.replace("{t}", heap), template.replace("{t}", foreign)

    yield both("rows", f"SELECT {names} FROM {{t}} ORDER BY id")
    yield both("count", "SELECT count(*) FROM {t}")
    for column in file["columns"]:
        ends = "" if types[column] in ("boolean", "bytea", "uuid") else f"min({column}), max({column}), "
        if types[column] in ("real", "double precision"):
            # Zeros of both signs are equal: any of them is the least.
            ends = f"min({column}) + 0, max({column}) + 0, "
        yield both(f"{column} ends", f"SELECT {ends}count({column}) FROM {{t}}")
        # Values as the column prints them, so that they read back as the same.
        values = session.run(f"SELECT DISTINCT {column}::text COLLATE \"C\" FROM {heap} WHERE {column} IS NOT NULL ORDER BY 1").rows
        for _ in range(count):
            condition = choose.choice(CONDITIONS)
            [v], [w] = choose.choice(values), choose.choice(values)
            condition = condition.format(c=column, v=quoted(v, types[column]), w=quoted(w, types[column]))
            yield both(f"{column} {condition}", f"SELECT id FROM {{t}} WHERE {condition} ORDER BY id")


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]))
