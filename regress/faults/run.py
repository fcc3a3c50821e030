#!/usr/bin/env python3
"""The fault tests.

usage: run.py CONNINFO CLUSTER_FOLDER [--module NAME]… [--only TEXT] [--order N] [--bare CONNINFO FOLDER] [--stage STAGE] [--counts FILE]

CONNINFO: a superuser's connection to a private cluster, without a database; the tests make `faults` in it and
kill processes of its engines.
"""

import argparse
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from faults import access, admission, bare, cancel, clients, cursors, divided, files, hang, hosts, nesting, planning, policies, processes, ranks, roles, standby, stores, supervisor, upgrade, views, watching, writing  # noqa: E402
from faults.support import TPCH_SCALE, WORK_SCALES, Place  # noqa: E402
from harness import tables  # noqa: E402
from harness.claims import Claims, write_counts  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402

MODULES = {"access": access, "views": views, "policies": policies, "roles": roles, "upgrade": upgrade, "cancel": cancel, "divided": divided, "files": files, "stores": stores, "writing": writing, "nesting": nesting, "planning": planning,
           "processes": processes, "hang": hang, "clients": clients, "admission": admission, "watching": watching, "cursors": cursors, "ranks": ranks,
           "hosts": hosts, "standby": standby, "supervisor": supervisor}
# Modules that make clusters of their own.
OWN_CLUSTERS = ("hosts", "standby", "supervisor")


def generate(session, folder, scale):
    """TPC-H in a folder, unless it is there; returns the folder."""
    if not pathlib.Path(folder, "lineitem.parquet").exists():
        session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', {scale})")
    return folder


def main():
    parser = argparse.ArgumentParser(description="Runs the fault tests.")
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--module", action="append", choices=MODULES, help="by default all of them")
    parser.add_argument("--only", default="")
    parser.add_argument("--order", type=int, help="a number that chooses the order of the modules")
    parser.add_argument("--bare", nargs=2, metavar=("CONNINFO", "FOLDER"), help="a cluster without shared_preload_libraries")
    parser.add_argument("--stage", help="the build, for the tests that make other clusters of it")
    parser.add_argument("--counts")
    options = parser.parse_args()
    with Session(f"{options.conninfo} dbname=postgres", ["SET client_min_messages = warning"]) as session:
        session.run("DROP DATABASE IF EXISTS faults WITH (FORCE)")
        session.run("CREATE DATABASE faults")
    with Session(f"{options.conninfo} dbname=faults", ["CREATE EXTENSION pystachio"]) as session:
        folder = generate(session, f"{options.folder}/faults-tpch", TPCH_SCALE)
        tables.tpch_foreign(session, folder)
        tables.heap_copy(session, "tpch", "tpch_heap")
    place = Place(options.conninfo, options.folder, "faults")
    place.tpch, place.stage = folder, options.stage
    work_scale = WORK_SCALES.get(place.engine()["device"], TPCH_SCALE)
    with place.session() as session:
        work_folder = folder if work_scale == TPCH_SCALE else generate(session, f"{options.folder}/faults-work", work_scale)
        tables.tpch_foreign(session, work_folder, "work")
    place.data = tables.copy_data(f"{options.folder}/faults-data")
    claims = Claims("faults")
    modules = list(options.module or MODULES)
    if options.order is not None:
        random.Random(options.order).shuffle(modules)
    for module in modules:
        if module in OWN_CLUSTERS and not options.stage:
            print(f"    {module}: not without --stage", flush=True)
            continue
        for test in MODULES[module].TESTS:
            if options.only and options.only not in test.__name__:
                continue
            claims.attempt(test.__name__, lambda test=test: test(place))
            print(f"    {test.__name__} ({claims.times[-1][0]:.1f} s)", flush=True)
            try:
                place.watch.run("SELECT 1")
            except QueryError:
                place.watch = place.session()
    if options.bare and options.only in "bare":
        claims.attempt("bare", lambda: bare.without_preloading(*options.bare))
    status = claims.summary()
    write_counts(options.counts, claims)
    return status


if __name__ == "__main__":
    sys.exit(main())
