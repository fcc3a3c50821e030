#!/usr/bin/env python3
"""The demo: TPC-H as Parquet, imported, analyzed, and its 22 queries through libpq.

usage: demo.py CONNINFO FOLDER SCALE_FACTOR SQL_SCRIPT

Prints one line a query: rows, seconds, the engine that ran it, and whether the whole query was one scan. The data
of a scale factor is generated once. The database `tpch` keeps what is in it, also what depends on the extension or the tables: tables get
another path when another scale factor is asked for, and the extension is made anew only where a build has another SQL_SCRIPT (the
extension's) than the one that it was made by, and no object of a user depends on it.
"""

import hashlib
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

from harness.explain import plan_shape, runs_on  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402
from harness.tables import TPCH_KEYS, import_statement  # noqa: E402

DATABASE = SCHEMA = "tpch"
# Seconds of each step at scale factor 1, on two cores that others used as well; all grow with the scale.
_GENERATE_S, _IMPORT_S, _QUERIES_S = 48, 13, 24


def duration(seconds, scale):
    """What a step may take, in words."""
    expected = seconds * float(scale)
    return f"up to {max(1, round(expected))} s" if expected < 120 else f"up to {round(expected / 60)} min"


def make_database(conninfo, folder, script):
    """Makes the database and the extension in it where they are not there."""
    with Session(f"{conninfo} dbname=postgres") as session:
        if not session.run(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'").rows:
            session.run(f"CREATE DATABASE {DATABASE}")
    digest, known = hashlib.sha256(script.read_bytes()).hexdigest(), folder / f"{DATABASE}-extension"
    with Session(f"{conninfo} dbname={DATABASE}", ["SET client_min_messages = warning"]) as session:
        there = session.run("SELECT 1 FROM pg_extension WHERE extname = 'pystachio'").rows
        if there and not (known.exists() and known.read_text(encoding="utf-8") == digest) and not drop_extension(session):
            return
        session.run("CREATE EXTENSION IF NOT EXISTS pystachio")
    known.write_text(digest, encoding="utf-8")


def drop_extension(session):
    """Drops the extension with the demo's own tables, unless anything else depends on them or its server has options; whether it did."""
    if session.run("SELECT 1 FROM pg_foreign_server WHERE srvname = 'pystachio' AND srvoptions IS NOT NULL").rows:
        keeps = "the server pystachio has options"
    else:
        keeps = dependents(session)
    if keeps:
        print(f"the extension in database {DATABASE} stays as an earlier build made it: {keeps}\n"
              f"  to have this build's: DROP EXTENSION pystachio CASCADE in {DATABASE}, which drops that, and make demo again", flush=True)
    return not keeps


def dependents(session):
    """Drops the demo's tables and the extension, or says what depends on them, and drops nothing."""
    session.run("BEGIN")
    try:
        session.run(f"DROP FOREIGN TABLE IF EXISTS {', '.join(f'{SCHEMA}.{table}' for table in TPCH_KEYS)}")
        session.run("DROP EXTENSION pystachio")
        session.run("COMMIT")
    except QueryError as error:
        session.run("ROLLBACK")
        return error.detail or error.message
    return None


def import_tables(session, target):
    """Imports the tables that are not there, points the others at the folder, and analyzes those that it changed."""
    session.run(f"SET client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS {SCHEMA}; RESET client_min_messages")
    for table in TPCH_KEYS:
        found = session.run(f"SELECT relkind, (SELECT option_value FROM pg_options_to_table(ftoptions) WHERE option_name = 'path') FROM pg_class "
                            f"LEFT JOIN pg_foreign_table ON ftrelid = oid WHERE oid = to_regclass('{SCHEMA}.{table}')").rows
        if not found:
            session.run(import_statement(target, SCHEMA, limit=f"LIMIT TO ({table})"))
        elif found[0][0] != "f" or found[0][1] == f"{target}/{table}.parquet":
            continue
        else:
            session.run(f"ALTER FOREIGN TABLE {SCHEMA}.{table} OPTIONS (SET path '{target}/{table}.parquet')")
        session.run(f"ANALYZE {SCHEMA}.{table}")


def generate(session, folder, scale):
    """Writes the eight tables unless an earlier run did, with the server's progress messages shown."""
    target = folder / f"tpch-sf{scale}"
    if (target / "complete").exists():
        print(f"data: {target} is there already")
        return target
    print(f"data: generating TPC-H at scale factor {scale} in {target}: {duration(_GENERATE_S, scale)} on two cores", flush=True)
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
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    conninfo, folder, scale, script = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
    make_database(conninfo, folder, script)
    with Session(f"{conninfo} dbname={DATABASE}") as session:
        print(f"pystachio {session.run('SELECT pystachio.version()').scalar()}")
        target = generate(session, folder, scale)
        print(f"importing and analyzing the tables: {duration(_IMPORT_S, scale)} where they are new", flush=True)
        begin = time.monotonic()
        import_tables(session, target)
        session.run(f"SET search_path = {SCHEMA}, public")
        if not session.run(f"SELECT 1 FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase WHERE datname = '{DATABASE}'").rows:
            session.run(f"ALTER DATABASE {DATABASE} SET search_path = {SCHEMA}, public")
        print(f"imported and analyzed in {time.monotonic() - begin:.1f} s", flush=True)
        print(f"running the 22 queries: {duration(_QUERIES_S, scale)}", flush=True)
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
