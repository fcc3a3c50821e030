#!/usr/bin/env python3
"""A package is replaced by that of another release below a running server. Status 0 if what it should do holds.

usage: regress/release.py HALF CONNINFO FOLDER LIBRARIES EXTENSION STAGE VERSION UPDATED

HALF is `before` or `after` the server's restart, which the caller does in between. CONNINFO has no database. FOLDER has `t1.parquet`.
LIBRARIES and EXTENSION are where the server's library, engine and scripts lie, STAGE is the build that replaces them. VERSION is the
package that the server was started with, UPDATED the one that replaces it.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.support import Failure, require, wait_until
from harness.libpq import QueryError, Session

_LIMITS = ["SET statement_timeout = '60s'", "SET client_min_messages = warning"]
_QUERY = "SELECT count(*), sum(n), min(c), max(d) FROM t1"
_ENGINE = "SELECT pid FROM pystachio.engines WHERE server = 'pystachio' AND state = 'running'"


def _install(arguments):
    """As a package manager does: each file is another file under the same name."""
    for folder, target in (("lib", arguments.libraries), ("extension", arguments.extension)):
        for source in pathlib.Path(arguments.stage, folder).iterdir():
            provisional = pathlib.Path(target, f"{source.name}.new")
            shutil.copy(source, provisional)
            provisional.rename(provisional.with_suffix(""))


def _answers(session):
    """The rows, or the error that tells an administrator to restart the server."""
    try:
        return session.run(_QUERY).rows
    except QueryError as error:
        require("estart the" in str(error.hint), f"the error says what to do: {error} {error.hint}")
        return None


def before(arguments):
    """Before the restart: running sessions go on; what can't, says so; nothing hangs, and the server stays up."""
    with Session(f"{arguments.conninfo} dbname=postgres", _LIMITS) as session:
        session.run("CREATE DATABASE released")
    database = f"{arguments.conninfo} dbname=released"
    with Session(database, _LIMITS) as session:
        session.run("CREATE EXTENSION pystachio")
        require(session.run("SELECT pystachio.version()").scalar() == arguments.version, "the earlier package runs")
        session.run("CREATE FOREIGN TABLE t1 (id integer NOT NULL, a integer, n numeric(15, 2), c text, d date) "
                    f"SERVER pystachio OPTIONS (path '{arguments.folder}/t1.parquet')")
        expected = session.run(_QUERY).rows
        pathlib.Path(arguments.folder, "expected").write_text(repr(expected), encoding="utf-8")
        _install(arguments)
        require(session.run(_QUERY).rows == expected, "a session goes on with its engine")
        with Session(database, _LIMITS) as another:
            require(_answers(another) == expected, "so does one that begins after the upgrade")
        killed = session.run(_ENGINE).scalar()
        os.kill(int(killed), signal.SIGKILL)
        wait_until(lambda: session.run("SELECT pid FROM pystachio.engines WHERE server = 'pystachio'").scalar() != killed, "the end is noted")
        found = _answers(session)
        require(found in (expected, None), f"right rows or the error: {found}")
        print("the engine that starts after the upgrade " + ("goes on" if found else "asks for a restart of the server"))
        with Session(f"{arguments.conninfo} dbname=postgres", _LIMITS) as other:
            require(other.run("SELECT 1").scalar() == "1", "the server is up")


def after(arguments):
    """After the restart: this library over the earlier objects, then the update."""
    expected = pathlib.Path(arguments.folder, "expected").read_text(encoding="utf-8")
    with Session(f"{arguments.conninfo} dbname=released", _LIMITS) as session:
        require(session.run("SELECT pystachio.version()").scalar() == arguments.updated, "the library is the other package's")
        require(repr(session.run(_QUERY).rows) == expected, "tables can be read before the extension is updated")
        session.run("ALTER EXTENSION pystachio UPDATE")
        require(session.run("SELECT extversion FROM pg_extension WHERE extname = 'pystachio'").scalar() == arguments.updated, "it is updated")
        require(repr(session.run(_QUERY).rows) == expected, "and after")
        require(session.run("SELECT count(*) FROM pystachio.engines WHERE state = 'running'").scalar() == "1", "its views work")


def main():
    parser = argparse.ArgumentParser()
    for name in ("half", "conninfo", "folder", "libraries", "extension", "stage", "version", "updated"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    {"before": before, "after": after}[arguments.half](arguments)


if __name__ == "__main__":
    try:
        main()
    except (Failure, QueryError) as error:
        print(f"FAILED: {error}")
        sys.exit(1)
