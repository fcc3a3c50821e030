#!/usr/bin/env python3
"""TPC-DS over files that DuckDB writes, as DuckDB's extension of that name makes data and queries: nothing of TPC-DS is kept here.

usage: tpcds.py data FOLDER [--scale SF]                       data and queries; needs a DuckDB whose wheel has the extension, such as 1.1.3
       tpcds.py duckdb FOLDER [--scale SF] [--runs N]          times and answers of the DuckDB that is installed
       tpcds.py ours FOLDER CONNINFO [--scale SF] [--runs N] [--device cuda] [--choices "gpu auto cpu"] [--limit SECONDS]
       tpcds.py planning FOLDER CONNINFO [--scale SF] [--runs N] [--device cpu]    planning times against heap tables of the same rows
       tpcds.py report FOLDER [--scale SF]                     prints the table

Each step leaves its results in FOLDER/tpcds-sf<SF>.<step>.json, query by query. The first run of a query is one in an engine that has run
those before it, over files in the page cache. Hot: the least of some runs after it. Answers are compared as rows in any order: numbers
within a tolerance with DuckDB, which has doubles where PostgreSQL has numeric; as text between the engines.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

from answers import same_answer  # noqa: E402
from report import geometric_mean  # noqa: E402

DATABASE = "bench_tpcds"
SERVER = "tpcds"


class Step:
    """What a step has measured, on disk after every query."""

    def __init__(self, path):
        self.path, self.document = path, read_results(path)

    def record(self, *keys, **found):
        place = self.document
        for key in keys:
            place = place.setdefault(key, {})
        place.update(found)
        self.path.write_text(json.dumps(self.document), encoding="utf-8")


def read_results(path):
    """What a step has left in a file; nothing if it did not run."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def results(options):
    name = options.step if options.step != "duckdb" else f"duckdb-{options.peer_name}"
    return pathlib.Path(options.folder) / f"tpcds-sf{options.scale}.{name}.json"


def data_folder(options):
    return pathlib.Path(options.folder) / f"tpcds-sf{options.scale}"


def queries(options):
    """Number and text of each query."""
    texts = json.loads((data_folder(options) / "queries.json").read_text(encoding="utf-8"))
    wanted = options.queries.split()
    return {number: text for number, text in texts.items() if not wanted or number in wanted}


def make_data(options):
    import duckdb

    folder = data_folder(options)
    if (folder / "queries.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    begin = time.monotonic()
    connection = duckdb.connect(str(folder / "made.db"))
    connection.execute("LOAD tpcds")
    connection.execute(f"CALL dsdgen(sf = {options.scale})")
    print(f"tpcds: generated in {time.monotonic() - begin:.0f} s", flush=True)
    for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        path = folder / f"{table}.parquet"
        connection.execute(f"COPY {table} TO '{path}' (FORMAT parquet)")
        path.chmod(0o644)
    texts = dict(connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall())
    connection.close()
    (folder / "made.db").unlink()
    (folder / "queries.json").write_text(json.dumps({f"{number:02}": text for number, text in texts.items()}), encoding="utf-8")
    print(f"tpcds: written in {time.monotonic() - begin:.0f} s", flush=True)


def timed(action):
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result


def as_text(rows):
    """Values of Python as text; truth as PostgreSQL writes it."""
    truths = {True: "t", False: "f"}
    return [[None if value is None else truths[value] if isinstance(value, bool) else str(value) for value in row] for row in rows]


def run_duckdb(options):
    import duckdb

    step = Step(results(options))
    step.record(version=duckdb.__version__)
    connection = duckdb.connect()
    connection.execute(f"SET threads = {os.cpu_count()}")
    connection.execute("SET default_null_order = 'NULLS_LAST_ON_ASC_FIRST_ON_DESC'")
    for path in sorted(data_folder(options).glob("*.parquet")):
        connection.execute(f"CREATE VIEW {path.stem} AS SELECT * FROM read_parquet('{path}')")
    deadline = time.monotonic() + options.limit
    for number, sql in queries(options).items():
        if time.monotonic() > deadline:
            print("tpcds: the time is over; the rest is not measured", flush=True)
            break
        # The name of a subquery, and a word of DuckDB 2's own.
        sql = sql.replace(") AT,", ') AS "at",')
        first, rows = timed(lambda: connection.execute(sql).fetchall())
        hot = min(timed(lambda: connection.execute(sql).fetchall())[0] for _ in range(options.runs))
        step.record("queries", number, first=first, hot=hot, rows=as_text(rows))


def ran_on(session, sql):
    lines = [row[0] for row in session.run(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql}").rows]
    found = [line.split(":", 1)[1].strip() for line in lines if line.strip().startswith("Ran On:")]
    scans = sum("Foreign Scan" in line for line in lines)
    return {"ran_on": found, "is_one_scan": scans == 1 and "Foreign Scan" in lines[0], "plan": lines}


def make_tables(options):
    from harness.libpq import Session

    with Session(options.conninfo) as session:
        if not session.run(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'").rows:
            session.run(f"CREATE DATABASE {DATABASE} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    folder = data_folder(options)
    schema = f"sf{options.scale}".replace(".", "_")
    with Session(f"{options.conninfo} dbname={DATABASE}", ["SET client_min_messages = warning"]) as session:
        session.run("CREATE EXTENSION IF NOT EXISTS pystachio")
        session.run(f"DROP SERVER IF EXISTS {SERVER} CASCADE")
        session.run(f"CREATE SERVER {SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{options.device}'{options.server_options})")
        session.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        session.run(f"CREATE SCHEMA {schema}")
        session.run(f'IMPORT FOREIGN SCHEMA "{folder}" FROM SERVER {SERVER} INTO {schema}')
        names = [row[0] for row in session.run(f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace").rows]
        for name in names:
            session.run(f"ANALYZE {schema}.{name}")
    return schema


def run_ours(options):
    # The other steps need no libpq.
    from harness.libpq import QueryError, Session

    step = Step(results(options))
    schema = make_tables(options)
    deadline = time.monotonic() + options.limit
    for choice in options.choices.split():
        setup = [f"SET search_path = {schema}", "SET statement_timeout = '120s'", f"SET pystachio.engine_choice = {choice}"]
        with Session(f"{options.conninfo} dbname={DATABASE}", setup) as session:
            for number, sql in queries(options).items():
                if time.monotonic() > deadline:
                    print("tpcds: the time is over; the rest is not measured", flush=True)
                    return
                try:
                    first, _ = timed(lambda: session.receive(sql))
                    hot = min(timed(lambda: session.receive(sql))[0] for _ in range(options.runs))
                    facts = ran_on(session, sql.rstrip().rstrip(";"))
                    step.record(choice, number, first=first, hot=hot, rows=as_text(session.run(sql).rows), **facts)
                except QueryError as error:
                    step.record(choice, number, error=str(error).splitlines()[0])
                    print(f"tpcds {number} {choice}: {str(error).splitlines()[0]}", flush=True)


def planning_s(session, sql):
    lines = [row[0] for row in session.run(f"EXPLAIN (SUMMARY) {sql.rstrip().rstrip(';')}").rows]
    return next(float(line.split()[2]) / 1000 for line in lines if line.startswith("Planning Time"))


def run_planning(options):
    from harness.libpq import Session

    step = Step(results(options))
    schema = make_tables(options)
    conninfo = f"{options.conninfo} dbname={DATABASE}"
    with Session(conninfo, ["SET client_min_messages = warning"]) as session:
        session.run(f"DROP SCHEMA IF EXISTS {schema}_heap CASCADE")
        session.run(f"CREATE SCHEMA {schema}_heap")
        names = [row[0] for row in session.run(f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace").rows]
        for name in names:
            session.run(f"CREATE TABLE {schema}_heap.{name} AS SELECT * FROM {schema}.{name}")
            session.run(f"ANALYZE {schema}_heap.{name}")
    foreign, heap = (Session(conninfo, [f"SET search_path = {place}"]) for place in (schema, f"{schema}_heap"))
    ratios = []
    for number, sql in queries(options).items():
        times = [(planning_s(foreign, sql), planning_s(heap, sql)) for _ in range(options.runs)]
        ours, theirs = (min(column) for column in zip(*times))
        step.record(number, foreign=ours, heap=theirs)
        ratios.append((ours / theirs, number, ours * 1000, theirs * 1000))
    print(f"planning: {geometric_mean([ratio for ratio, *_ in ratios]):.2f} of heap's by geometric mean; the largest: "
          + ", ".join(f"q{number} {ratio:.1f} ({ours:.1f} to {theirs:.1f} ms)" for ratio, number, ours, theirs in sorted(ratios)[:-9:-1]))
    foreign.close()
    heap.close()


def as_key(row):
    """What rows are sorted by before they are compared: what is no fraction first, since fractions differ in their last digits."""
    def fraction(value):
        return float(value) if value and re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", value) else None

    fractions = [fraction(value) for value in row]
    texts = [(value is None, value or "") for value, number in zip(row, fractions) if number is None]
    return texts, [number for number in fractions if number is not None]


def difference(left, right):
    """What tells two answers apart; rows come in any order."""
    return same_answer(left, right) and same_answer(sorted(left, key=as_key), sorted(right, key=as_key))


def report(options):
    folder = pathlib.Path(options.folder)
    peers = {path.name.split(".duckdb-")[1].removesuffix(".json"): json.loads(path.read_text(encoding="utf-8"))
             for path in sorted(folder.glob(f"tpcds-sf{options.scale}.duckdb-*.json"))}
    path = folder / f"tpcds-sf{options.scale}.ours.json"
    ours = json.loads(path.read_text(encoding="utf-8"))
    choices = [choice for choice in ours if choice in ("gpu", "auto", "cpu")]
    names = [f"{choice} {run}" for choice in choices for run in ("first", "hot")]
    names += [f"DuckDB {peer} {run}" for peer in peers for run in ("first", "hot")]
    print("| query | " + " | ".join(f"{name} ms" for name in names) + " | ran on | answers |")
    print("|---|" + "---:|" * len(names) + "---|---|")
    for number in sorted({number for choice in choices for number in ours[choice]}):
        found = {choice: ours[choice].get(number, {}) for choice in choices}
        theirs = {peer: document["queries"].get(number, {}) for peer, document in peers.items()}
        cells = [entry.get(run) for entry in [*found.values(), *theirs.values()] for run in ("first", "hot")]
        notes = [f"{choice}: {entry['error']}" for choice, entry in found.items() if "error" in entry]
        answers = {choice: entry["rows"] for choice, entry in found.items() if "rows" in entry}
        main = next(iter(answers), None)
        for other in [name for name in answers if name != main]:
            if sorted(map(str, answers[main])) != sorted(map(str, answers[other])):
                notes.append(f"{main} is not {other}")
        for peer, entry in theirs.items():
            if main and "rows" in entry and (told := difference(entry["rows"], answers[main])):
                notes.append(f"DuckDB {peer}: {told}")
        ran = sorted({place for choice, entry in found.items() if choice != "cpu" for place in entry.get("ran_on", [])})
        print(f"| {number} | " + " | ".join("" if cell is None else f"{cell * 1000:.1f}" for cell in cells)
              + f" | {'; '.join(ran)} | {'; '.join(notes) or 'equal'} |")
    for choice in choices:
        for peer, document in peers.items():
            for run in ("first", "hot"):
                pairs = [(entry[run], document["queries"][number][run]) for number, entry in ours[choice].items()
                         if run in entry and number in document["queries"]]
                ratios = [theirs / own for own, theirs in pairs]
                if ratios:
                    print(f"{choice} {run}: {len(ratios)} queries, DuckDB {peer} takes {geometric_mean(ratios):.2f} times as long; "
                          f"slower than it: {sum(ratio < 1 for ratio in ratios)}; sums {sum(own for own, _ in pairs):.2f} s and "
                          f"{sum(theirs for _, theirs in pairs):.2f} s")


def workload_parser(description, steps):
    """What the steps of a workload take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("step", choices=steps)
    parser.add_argument("folder")
    parser.add_argument("conninfo", nargs="?", default="")
    parser.add_argument("--queries", default="")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--choices", default="auto")
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("--server-options", default="")
    return parser


def main():
    parser = workload_parser("TPC-DS over DuckDB's files", ["data", "duckdb", "ours", "planning", "report"])
    parser.add_argument("--scale", default="1")
    parser.add_argument("--peer-name", default="")
    options = parser.parse_args()
    if options.step == "duckdb" and not options.peer_name:
        import duckdb

        options.peer_name = duckdb.__version__
    {"data": make_data, "duckdb": run_duckdb, "ours": run_ours, "planning": run_planning, "report": report}[options.step](options)


if __name__ == "__main__":
    main()
