"""A cluster in which the library is not in shared_preload_libraries: first use starts what is needed."""

import os
import signal

from faults.support import require, wait_until
from harness import tables
from harness.explain import plan_shape
from harness.libpq import QueryError, Session

_QUERY = ("SELECT n_name, count(*) FROM t.nation JOIN (SELECT c_nationkey, count(*) AS k FROM t.customer GROUP BY 1) q "
          "ON c_nationkey = n_nationkey GROUP BY 1 ORDER BY 1")


def without_preloading(conninfo, folder):
    """CREATE EXTENSION, import and queries work; the one partial plan of a session comes with a HINT, once."""
    target = f"{folder}/tpch"
    with Session(f"{conninfo} dbname=postgres", ["SET statement_timeout = '300s'"]) as session:
        require(session.run("SHOW shared_preload_libraries").scalar() == "", "the library is not preloaded")
        session.run("CREATE EXTENSION pystachio; CREATE SCHEMA t")
        session.run(f"SELECT * FROM pystachio.tpch_generate('{target}', 0.01)")
        session.run(tables.import_statement(target, "t"))
        expected = session.run(_QUERY).rows
        require(len(expected) == 25, f"{len(expected)} rows")
    with Session(f"{conninfo} dbname=postgres", ["SET statement_timeout = '300s'"]) as session:
        require(session.run(_QUERY).rows == expected, "a new session's first query is right")
        hints = [notice for notice in session.notices if "shared_preload_libraries" in notice]
        require(len(hints) <= 1, f"the advice comes once: {hints}")
        require(session.run(_QUERY).rows == expected, "its second query is right")
        require([notice for notice in session.notices if "shared_preload_libraries" in notice] == hints, "no second advice")
        require(plan_shape(session, _QUERY).one_scan, "its second query is one scan")
        pid = int(session.run("SELECT pid FROM pystachio.engines WHERE state = 'running'").scalar())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _works(session, expected), "the engine comes back", 0.05)
        supervisors = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pystachio supervisor'"
        require(session.run(supervisors).scalar() == "1", "one supervisor runs")
        session.run("DROP EXTENSION pystachio CASCADE; DROP SCHEMA t")
        wait_until(lambda: session.run(supervisors).scalar() == "0", "the supervisor ends with its last engine", 0.02)


def _works(session, expected):
    try:
        return session.run(_QUERY).rows == expected
    except QueryError:
        return False
