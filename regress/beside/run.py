#!/usr/bin/env python3
"""The tests of what runs beside pystachio.

usage: run.py CONNINFO CLUSTER_FOLDER --packages FILE --stage STAGE [--module NAME]… [--only TEXT] [--counts FILE]

CONNINFO: a superuser's connection to a private cluster, without a database; the tests make `beside` in it and restart the server.
--packages: what scripts/beside.sh printed. Run by the Python that it names `drivers`, if there is one.
"""

import argparse
import importlib
import pathlib
import sys

# The folder of this file would hide packages of the same names.
sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from beside.support import DATABASE, Cluster, Packages, make_tables  # noqa: E402
from faults.support import IS_WHOLE  # noqa: E402
from harness.claims import Claims, write_counts  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402

# The parts, in the order in which they run, and the packages without which each is left out. The last two restart the server.
MODULES = {"with_psycopg": ["drivers"], "with_asyncpg": ["drivers"], "with_sqlalchemy": ["drivers"], "with_pandas": ["drivers"],
           "with_node": ["node"], "with_pgbench": [], "with_pgbouncer": ["pgbouncer", "drivers"], "with_wrappers": [],
           "with_dbt": ["dbt"], "with_paths": [], "with_libraries": []}
# Runs with all cases only, or by its name.
LONG = {"with_dbt"}


def main():
    parser = argparse.ArgumentParser(description="Runs the tests of what runs beside pystachio.")
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--packages", required=True)
    parser.add_argument("--stage", required=True)
    parser.add_argument("--module", action="append", choices=MODULES, help="by default all of them")
    parser.add_argument("--only", default="")
    parser.add_argument("--counts")
    options = parser.parse_args()
    packages = Packages(pathlib.Path(options.packages).read_text(encoding="utf-8"))
    for name, version in sorted(packages.versions.items()):
        print(f"    {name}: {version}", flush=True)
    for name, reason in sorted(packages.skipped.items()):
        print(f"    skipped: {name}: {reason}", flush=True)
    with Session(f"{options.conninfo} dbname=postgres", ["SET client_min_messages = warning"]) as session:
        session.run(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        session.run(f"CREATE DATABASE {DATABASE}")
    with Session(f"{options.conninfo} dbname={DATABASE}", ["CREATE EXTENSION pystachio"]):
        pass
    place = Cluster(options.conninfo, options.folder, options.stage, packages)
    make_tables(place)
    claims = Claims("beside")
    for module in options.module or [name for name in MODULES if IS_WHOLE or name not in LONG]:
        missing = [name for name in MODULES[module] if name not in packages.paths]
        if missing:
            print(f"    skipped: {module} needs {', '.join(missing)}", flush=True)
            continue
        for test in importlib.import_module(f"beside.{module}").TESTS:
            name = f"{module}.{test.__name__}"
            if options.only and options.only not in name:
                continue
            claims.attempt(name, lambda test=test: test(place))
            print(f"    {name} ({claims.times[-1][0]:.1f} s)", flush=True)
            try:
                place.watch.run("SELECT 1")
            except QueryError:
                place.watch = place.session()
    status = claims.summary()
    write_counts(options.counts, claims)
    return status


if __name__ == "__main__":
    sys.exit(main())
