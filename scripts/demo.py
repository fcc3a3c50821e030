#!/usr/bin/env python3
"""The demo: TPC-H as Parquet, imported, analyzed, and its 22 queries through libpq.

usage: demo.py CONNINFO FOLDER SCALE_FACTOR

Prints one line a query: rows, seconds, the engine that ran it, and whether the whole query was one scan. The data
of a scale factor is generated once; the database `tpch` keeps whatever else is in it.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

from harness.explain import plan_shape, runs_on  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402
from harness.tables import tpch_foreign  # noqa: E402

DATABASE = "tpch"


def make_database(conninfo):
    """Makes the database if it is not there, and a fresh extension in it."""
    with Session(f"{conninfo} dbname=postgres") as session:
        if not session.run(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'").rows:
            session.run(f"CREATE DATABASE {DATABASE}")
    with Session(f"{conninfo} dbname={DATABASE}", ["SET client_min_messages = warning"]) as session:
        session.run("DROP EXTENSION IF EXISTS pystachio CASCADE")
        session.run("CREATE EXTENSION pystachio")


def generate(session, folder, scale):
    """Writes the eight tables unless an earlier run did, with the server's progress messages shown."""
    target = folder / f"tpch-sf{scale}"
    if (target / "complete").exists():
        print(f"data: {target} is there already")
        return target
    print(f"data: generating TPC-H at scale factor {scale} in {target}", flush=True)
    begin = time.monotonic()
    session.on_notice = lambda line: print("  " + line.split(":", 1)[-1].strip(), flush=True)
    rows = session.run(f"SELECT * FROM pystachio.tpch_generate('{target}', {scale}, overwrite => true)").rows
    session.on_notice = None
    (target / "complete").touch()
    total = sum(int(row[1]) for row in rows)
    print(f"data: {total} rows in {time.monotonic() - begin:.1f} s", flush=True)
    return target


def engine_of(session, query):
    """What runs a query, as EXPLAIN says, or the only engine of the server `pystachio`."""
    places = {place.split(" ")[0] for place in runs_on(session, query)}
    if places:
        return ", ".join(sorted(places))
    rows = session.run("SELECT DISTINCT device FROM pystachio.engines WHERE server = 'pystachio'").rows
    return ", ".join(sorted(row[0] for row in rows if row[0])) or "none"


def run_queries(session):
    """Runs and prints the 22 queries; returns how many failed."""
    print(f"\n{'query':<6} {'rows':>8} {'seconds':>9}  {'engine':<8} {'one scan'}")
    total, failures = 0.0, 0
    for number in range(1, 23):
        query = session.run(f"SELECT pystachio.tpch_query({number})").scalar()
        try:
            shape = plan_shape(session, query)
            begin = time.perf_counter()
            result = session.run(query)
            seconds = time.perf_counter() - begin
        except QueryError as error:
            failures += 1
            print(f"q{number:<5} {'error':>8}  {error.message}" + (f" ({error.detail})" if error.detail else ""), flush=True)
            continue
        total += seconds
        used = engine_of(session, query) if "Foreign Scan" in shape.nodes else "postgres"
        print(f"q{number:<5} {len(result.rows):>8} {seconds:>9.3f}  {used:<8} {'yes' if shape.one_scan else 'no'}", flush=True)
    print(f"{'total':<6} {'':>8} {total:>9.3f}")
    return failures


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    conninfo, folder, scale = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    make_database(conninfo)
    with Session(f"{conninfo} dbname={DATABASE}") as session:
        print(f"pystachio {session.run('SELECT pystachio.version()').scalar()}")
        target = generate(session, folder, scale)
        begin = time.monotonic()
        tpch_foreign(session, target)
        session.run(f"ALTER DATABASE {DATABASE} SET search_path = tpch, public; SET search_path = tpch, public")
        print(f"imported and analyzed in {time.monotonic() - begin:.1f} s", flush=True)
        failures = run_queries(session)
    print(f"\nconnect: psql '{conninfo} dbname={DATABASE}'")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except QueryError as failure:
        hint = f"\nhint: {failure.hint}" if failure.hint else ""
        print(f"error: {failure.message} (SQLSTATE {failure.sqlstate}){hint}", file=sys.stderr)
        sys.exit(1)
