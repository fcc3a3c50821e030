"""Tables of Delta Lake and of Iceberg that libraries and the tests wrote, and the queries that their logs must not answer wrongly.

The tables are made by regress/writers/lakes.py in an environment of its own (scripts/writers.sh lakes), from a seed, and where there is
Java also by Spark (regress/writers/spark.py). Each state of each
table is read on the CPU engine and on the emulated device, and compared with a heap table of the rows that it must have.
"""

import json
import pathlib
import shutil
import subprocess

from differential import writers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICES = ("cpu", "emulated")
FORMATS = ("delta", "iceberg")
NAMES = {"timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone", "time": "time without time zone"}
# Columns that conditions are about, of which some are of partitions, and all of which logs have bounds of.
COMPARED = ("id", "kind", "small", "n", "amount", "wide", "f", "flag", "day", "at", "local", "label", "raw", "words", "extra")

# Rows that are compared one by one; of more a digest is.
ROWS_MAX = 1000


# Tables by Spark of a run with a share of the queries: making one takes most of a minute.
SPARK_TABLES = 2


def make(folder, seed, share):
    """Writes the tables into `folder` unless it has those of this seed; their states. Where only a share of the queries runs, Spark
    makes some of its tables, which the seed chooses."""
    folder = pathlib.Path(folder)
    made = folder / "seed"
    wanted = f"{seed} {'all' if share >= 1 else 'some'}"
    if not made.exists() or made.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        python = subprocess.run([ROOT / "scripts" / "writers.sh", "lakes"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        subprocess.run([python, ROOT / "regress" / "writers" / "lakes.py", folder, str(seed)], check=True)
        if shutil.which("java"):
            python = subprocess.run([ROOT / "scripts" / "writers.sh", "spark"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
            subprocess.run([python, ROOT / "regress" / "writers" / "spark.py", folder, str(seed), *([] if share >= 1 else [str(SPARK_TABLES)])], check=True)
        made.write_text(wanted, encoding="utf-8")
    states = json.loads((folder / "lakes.json").read_text(encoding="utf-8"))
    by_spark = folder / "spark.json"
    if not by_spark.exists():
        print("lakes: not with tables by Spark: there is no java")
        return states
    return states + json.loads(by_spark.read_text(encoding="utf-8"))


def load(session, folder, states):
    """Schemas `lakes_cpu` and `lakes_emulated` with a foreign table for each state, and `lakes_heap` with its rows."""
    session.run("SET client_min_messages = warning; DROP SCHEMA IF EXISTS lakes_heap CASCADE; CREATE SCHEMA lakes_heap")
    for device in DEVICES:
        session.run(f"DROP SERVER IF EXISTS lakes_{device} CASCADE; DROP SCHEMA IF EXISTS lakes_{device} CASCADE; CREATE SCHEMA lakes_{device}")
        session.run(f"CREATE SERVER lakes_{device} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{device}', memory '256MB', threads '2')")
        for form in FORMATS:
            session.run(f"CREATE SCHEMA imported; IMPORT FOREIGN SCHEMA lake FROM SERVER lakes_{device} INTO imported OPTIONS (path '{folder}/{form}')")
            for (table,) in session.run("SELECT relname FROM pg_class WHERE relnamespace = 'imported'::regnamespace").rows:
                session.run(f"ALTER FOREIGN TABLE imported.{table} RENAME TO {form}_{table}")
                session.run(f"ALTER FOREIGN TABLE imported.{form}_{table} SET SCHEMA lakes_{device}")
            session.run("DROP SCHEMA imported")
    for state in states:
        definition = ", ".join(f"{name} {sql}" for name, sql in state["columns"])
        session.run(f"CREATE TABLE lakes_heap.{_name(state)} ({definition})")
        session.run(f"COPY lakes_heap.{_name(state)} FROM '{folder}/{state['csv']}' (FORMAT csv)")
        if state["version"] is not None:
            for device in DEVICES:
                session.run(f"CREATE FOREIGN TABLE lakes_{device}.{_name(state)} ({definition}) SERVER lakes_{device} "
                            f"OPTIONS (path '{folder}/{state['format']}/{state['table']}', format '{state['format']}', version '{state['version']}')")


def _name(state):
    name = f"{state['format']}_{state['table']}"
    # Numbers of snapshots are by chance.
    return name if state["version"] is None else f"{name}_{pathlib.Path(state['csv']).stem.rsplit('_', 1)[1]}"


def imported_types(session, device, state):
    """The columns of an imported table with PostgreSQL's names of their types."""
    return session.run("SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                       f"WHERE attrelid = 'lakes_{device}.{_name(state)}'::regclass AND attnum > 0 ORDER BY attnum").rows


def declared_types(state):
    """The same as the rows have them."""
    return [(name, NAMES.get(sql, sql)) for name, sql in state["columns"]]


def queries(session, device, state, choose, count):
    """Pairs of the same query over the heap table and the foreign one, with its name."""
    columns = dict(state["columns"])
    names = ", ".join(columns)
    rows = f"SELECT {names} FROM {{t}} ORDER BY id"
    if state["rows"] > ROWS_MAX:
        rows = f"SELECT count(*), md5(string_agg(t::text, ';' ORDER BY id)) FROM (SELECT {names} FROM {{t}}) t"
    texts = [rows, "SELECT count(*) FROM {t}", "SELECT min(id), max(id), count(id), max(label COLLATE \"C\") FROM {t}"
             if "label" in columns else "SELECT min(id), max(id), count(id) FROM {t}", "SELECT kind, count(*), sum(n) FROM {t} GROUP BY kind ORDER BY kind"]
    for _ in range(count):
        column = choose.choice([name for name in COMPARED if name in columns])
        values = session.run(f"SELECT {column}::text FROM lakes_heap.{_name(state)} WHERE {column} IS NOT NULL ORDER BY id "
                             f"OFFSET {choose.randrange(max(1, state['rows'] // 2))} LIMIT 2").rows
        values = [row[0] for row in values] or ["0"]
        condition = choose.choice(writers.CONDITIONS)
        if values == ["0"]:
            condition = choose.choice(["{c} IS NULL", "{c} IS NOT NULL"])
        written = [writers.quoted(value, columns[column]) for value in (values * 2)[:2]]
        where = condition.format(c=column, v=written[0], w=written[1])
        where = condition.format(c=column, v=written[0], w=written[1])
        if choose.random() < 0.5:
            texts.append(f"SELECT count(*), min(id) FROM {{t}} WHERE {where}")
        else:
            texts.append(f"SELECT id, {column} FROM {{t}} WHERE {where} ORDER BY id")
    for text in texts:
        heap, foreign = (text.replace("{t}", f"lakes_{schema}.{_name(state)}") for schema in ("heap", device))
        yield f"{_name(state)} on {device}: {text}", heap, foreign
