"""A cluster that is a hot standby and is promoted: it answers queries over foreign tables, and what looks after its engines needs no more there than elsewhere."""

import os
import pathlib
import shutil
import subprocess
import time

from faults.support import Place, require, wait_until
from harness import tables

_SECOND = "second"
# The schema of each server's tables.
_SCHEMAS = {"one": "pystachio", "two": _SECOND}
_COUNT = "SELECT count(*) FROM {}.nation"
# More checks than the cluster has worker slots (conf/standby.conf).
_CHECKED_S = 5.0


def _cluster(action, *arguments):
    script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cluster.sh"
    run = subprocess.run([str(script), action, "standby", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout.strip()


def engines_start_after_many_checks(place):
    """After more checks than there are worker slots another engine starts, and those that ran go on."""
    folder = _cluster("create", place.stage).splitlines()[-1]
    conninfo = _cluster("conninfo")
    first = Place(conninfo, folder, "postgres")
    with first.session("SET client_min_messages = warning") as session:
        session.run("CREATE EXTENSION pystachio")
        session.run(f"CREATE SERVER {_SECOND} FOREIGN DATA WRAPPER pystachio")
        for schema, server in _SCHEMAS.items():
            tables.tpch_foreign(session, place.tpch, schema, server)
    first.watch.close()
    _cluster("stop")
    # It replays what it has written itself, and waits for more.
    signal_file = pathlib.Path(folder, "data", "standby.signal")
    signal_file.touch()
    shutil.chown(signal_file, os.stat(signal_file.parent).st_uid)
    _cluster("start")
    try:
        standby = Place(conninfo, folder, "postgres")
        with standby.session() as session:
            require(session.run("SELECT pg_is_in_recovery()").scalar() == "t", "it is a standby")
            require(session.run(_COUNT.format("one")).scalar() == "25", "the first engine answers")
            require(standby.engine_pid(_SECOND) is None, "the second engine has not begun")
            time.sleep(_CHECKED_S)
            require(session.run(_COUNT.format("two")).scalar() == "25", "another engine starts")
            require(session.run(_COUNT.format("one")).scalar() == "25", "the first engine goes on")
            pids = [standby.engine_pid(server) for server in _SCHEMAS.values()]
            require(session.run("SELECT pg_promote()").scalar() == "t", "it is promoted")
            require([standby.engine_pid(server) for server in _SCHEMAS.values()] == pids, "engines go on after the promotion")
            session.run(f"ALTER SERVER {_SECOND} OPTIONS (ADD memory '300MB')")
            require(session.run(_COUNT.format("two")).scalar() == "25", "the altered server answers")
            require(standby.engine_pid(_SECOND) != pids[1], "on another engine")
            wait_until(lambda: len(standby.watch.run("SELECT FROM pystachio.engines").rows) == 2, "the former one ends")
        standby.watch.close()
    finally:
        _cluster("stop")


TESTS = [engines_start_after_many_checks]
