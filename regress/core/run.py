#!/usr/bin/env python3
"""Runs PostgreSQL's regression queries over foreign tables and heap copies, and compares.

usage: run.py CONNINFO --suite FOLDER --data FOLDER --version N [--slice SECONDS] [--mode MODE]… [--file NAME]… [--only HASH]

CONNINFO is of a private cluster, in which a database `regression` and the suite's roles are made. The server reads and writes
below --data. --slice runs files that the seed chooses for about so long, each query in one mode; without it all files run, each
query in every mode.
"""

import argparse
import collections
import os
import pathlib
import random
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from core import source
from core.known import Known
from core.mirror import SERVERS, Mirrors
from core.psql import Client
from core.queries import statement_hash
from core.trial import MODES, Trial
from harness.claims import Claims, write_counts
from harness.libpq import QueryError, Session

# Files without a query over a table that others don't have too, and what they would cost or change.
LEFT_OUT = {
    "tablespace": "moves tables between folders", "stats": "waits for statistics", "infinite_recurse": "exhausts the stack",
    "opr_sanity": "catalogs alone", "type_sanity": "catalogs alone", "misc_sanity": "catalogs alone", "oidjoins": "catalogs alone",
    "sanity_check": "catalogs alone", "vacuum_parallel": "no queries", "database": "databases", "largeobject": "large objects",
    "maintain_every": "no queries", "maintain": "no queries", "event_trigger": "triggers that would see our own statements",
}
FIRST = "test_setup"
# What the suite's own runner sets.
_DATABASE = """
CREATE DATABASE regression TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C';
ALTER DATABASE regression SET lc_messages TO 'C';
ALTER DATABASE regression SET lc_monetary TO 'C';
ALTER DATABASE regression SET lc_numeric TO 'C';
ALTER DATABASE regression SET lc_time TO 'C';
ALTER DATABASE regression SET bytea_output TO 'hex';
ALTER DATABASE regression SET timezone_abbreviations TO 'Default';
ALTER DATABASE regression SET datestyle TO 'Postgres, MDY';
ALTER DATABASE regression SET intervalstyle TO 'postgres_verbose';
"""


class _TimeIsUp(Exception):
    """A slice has run for its time."""


def make_database(options):
    """The database of the suite, with the extension and, where a mode wants it, a server for the emulated device."""
    zone = "America/Los_Angeles" if int(options.version) >= 18 else "PST8PDT"
    with Session(f"{options.conninfo} dbname=postgres") as session:
        for statement in _DATABASE.strip().split(";\n"):
            session.run(statement)
        session.run(f"ALTER DATABASE regression SET timezone TO '{zone}'")
    with Session(f"{options.conninfo} dbname=regression") as session:
        if options.self_check:
            return
        session.run("CREATE EXTENSION pystachio")
        if "emulated" in options.modes:
            session.run("CREATE SERVER core_emulated FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '1GB')")


def make_folders(options):
    """The suite's data where the server can read it, and folders for what is written: (environment of psql, mirrors)."""
    root = pathlib.Path(options.data)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    shutil.copytree(pathlib.Path(options.suite) / "data", root / "data")
    for place in ("results", "mirrors"):
        (root / place).mkdir()
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / "results").chmod(0o777)
    (root / "mirrors").chmod(0o755)
    environment = {"PG_ABS_SRCDIR": str(root), "PG_ABS_BUILDDIR": str(root), "PG_LIBDIR": "/nonexistent", "PG_DLSUFFIX": ".so"}
    return environment, root / "mirrors"


def chosen_files(options):
    """The files to run, in order; the first makes the tables that most others need."""
    files = [path for path in source.files(pathlib.Path(options.suite)) if path.stem not in LEFT_OUT]
    if options.file:
        return [path for path in files if path.stem in [FIRST, *options.file]]
    if options.slice:
        rest = [path for path in files if path.stem != FIRST]
        random.Random(options.seed).shuffle(rest)
        return [path for path in files if path.stem == FIRST] + rest
    return files


def run(options):
    """Runs all, or a slice, and returns (claims, counts)."""
    claims, counts = Claims("core"), collections.Counter()
    environment, folder = make_folders(options)
    make_database(options)
    known = Known(options.version)
    end = None
    with Session(f"{options.conninfo} dbname=regression", ["SET client_min_messages = warning", "SET lock_timeout = '10s'"]) as maker:
        servers = {} if options.self_check else SERVERS
        mirrors = Mirrors(maker, folder, options.seed, servers, {MODES[mode][0] for mode in options.modes} | {"h"})
        trial = Trial(options, mirrors, known, claims, counts)

        def before(statement, text):
            if known.ends_server(trial.file, statement_hash(text)):
                counts["statements left out: they end this server"] += 1
                return False
            if options.slice and not end:
                return True  # the first file: others need its tables
            if end and time.monotonic() > end:
                raise _TimeIsUp
            trial.before(statement, text)
            return True

        client = Client(options.conninfo, environment, before, counts)
        for path in chosen_files(options):
            begin, compared = time.monotonic(), counts["queries compared"]
            trial.begin_file(path.stem, client)
            try:
                client.run_file(path)
            except _TimeIsUp:
                break
            except QueryError as error:
                claims.record(f"{path.stem}: the session is lost", str(error))
            counts["files"] += 1
            if options.slice and not end:
                end = time.monotonic() + options.slice
            if not options.slice:
                print(f"    {path.stem}: {counts['queries compared'] - compared} compared in {time.monotonic() - begin:.1f} s", flush=True)
    for entry, mode in known.stale:
        claims.record(f"{entry['file']} {entry['statement']} {mode}: listed in known.json, and doesn't differ", entry["reason"])
    return claims, counts


def arguments():
    """The command line, with a seed in any case."""
    parser = argparse.ArgumentParser(description="PostgreSQL's regression queries over foreign tables.")
    parser.add_argument("conninfo")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--slice", type=float)
    parser.add_argument("--mode", action="append", dest="modes", choices=list(MODES))
    parser.add_argument("--file", action="append")
    parser.add_argument("--only", help="the hash of a statement, as failures are named")
    parser.add_argument("--self-check", action="store_true", help="heap tables in place of foreign ones: all must agree")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--counts", help="a file to write the counts to, as JSON")
    options = parser.parse_args()
    options.modes = options.modes or [mode for mode in MODES if mode != "emulated" or not options.self_check]
    options.one_mode = options.slice is not None
    options.seed = int.from_bytes(os.urandom(3), "big") if options.seed is None else options.seed
    return options


def main():
    options = arguments()
    print(f"core: PostgreSQL {options.version}, seed {options.seed}, modes {' '.join(options.modes)}", flush=True)
    claims, counts = run(options)
    for name, count in sorted(counts.items()):
        print(f"    {count:7} {name}")
    status = claims.summary()
    write_counts(options.counts, claims)
    return status


if __name__ == "__main__":
    sys.exit(main())
