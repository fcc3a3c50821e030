"""What the fault tests share: the state of engines, waiting for a condition, expecting an error, the work that an engine does.

Tests wait for a state. How long that takes depends on what else runs on the machine, so no test claims a time. A claim about work
that must stop is one about the processor time of the engine.
"""

import contextlib
import math
import os
import random
import time

from harness.libpq import QueryError, Session

# Runs for seconds at least, on one row of output.
LONG_QUERY = "SELECT count(*) FROM work.lineitem a, work.lineitem b WHERE a.l_comment < b.l_comment"
# Sends rows for a long time.
WIDE_QUERY = "SELECT a.*, b.l_comment FROM work.lineitem a JOIN work.lineitem b ON a.l_suppkey = b.l_suppkey"
# The scale factor of the schema `work`, whose queries are to be stopped: an H200 does the pairs of SF 0.01 in 0.2 s, a CPU in
# minutes.
WORK_SCALES = {"cuda": 0.05}
TPCH_SCALE = 0.01
# The share of many cases that runs, and whether all do: scripts/test.sh says it.
SHARE = float(os.environ.get("PYSTACHIO_TEST_SHARE", "1"))
IS_WHOLE = SHARE >= 1
# Only a hang takes longer, whatever else runs on the machine.
HANG_S = 300
# Processor time of an engine after a cancel: half a second of all its threads.
STOP_CPU_S_MAX = 0.5 * (os.cpu_count() or 1)


class Failure(Exception):
    """A claim does not hold."""


def require(holds, text):
    """Raises Failure with `text` unless `holds`."""
    if not holds:
        raise Failure(text)


def wait_until(condition, text, interval_s=0.01, timeout_s=HANG_S):
    """Polls a condition; returns the seconds it took, or raises Failure."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout_s:
            raise Failure(f"{text}: not within {timeout_s} s")
        time.sleep(interval_s)
    return time.monotonic() - begin


def sampled(cases, name):
    """The share of a list of cases that runs, in their order; the seed of the run chooses them."""
    choose = random.Random(f"{os.environ.get('PYSTACHIO_TEST_SEED', '0')} {name}")
    places = choose.sample(range(len(cases)), min(len(cases), math.ceil(len(cases) * SHARE)))
    return [cases[place] for place in sorted(places)]


def cpu_s(pid):
    """Seconds of processors that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def expect_error(session, sql, sqlstates, words=(), timeout_s=HANG_S):
    """Runs `sql`, which must fail with one of `sqlstates` and name all `words`; returns the error."""
    session.start(sql)
    return expect_failure(session, sql, sqlstates, words, timeout_s)


def expect_failure(session, sql, sqlstates, words=(), timeout_s=HANG_S):
    """As expect_error, of a query that has begun."""
    try:
        result = session.finish(timeout_s)
    except QueryError as error:
        text = " ".join(part for part in (error.message, error.detail, error.hint) if part)
        require(error.sqlstate in sqlstates, f"SQLSTATE {error.sqlstate}, not one of {sqlstates}: {text}\n{sql}")
        for word in words:
            require(word.lower() in text.lower(), f"the error does not name '{word}': {text}\n{sql}")
        return error
    raise Failure(f"no error, but {len(result.rows) if result else 0} rows: {sql}")


class Place:
    """A cluster under test: connection strings, folders, and the engines of a database."""

    def __init__(self, conninfo, folder, database):
        self.base, self.folder, self.database = conninfo, folder, database
        self.conninfo = f"{conninfo} dbname={database}"
        self.watch = self.session()

    def session(self, *setup, role=None):
        """A new session with a time limit, in the schema of the TPC-H tables."""
        conninfo = self.conninfo.replace("user=postgres", f"user={role}") if role else self.conninfo
        return Session(conninfo, [f"SET statement_timeout = '{HANG_S}s'", "SET search_path = tpch, public", *setup])

    def gpu_device(self):
        """The device of a server for tests of the GPU engine: emulated where there is no GPU."""
        return "cuda" if self.watch.run("SHOW pystachio.auto_device").scalar() == "cuda" else "emulated"

    def engine(self, server="pystachio"):
        """The row of pystachio.engines of a server, as a dictionary, or None."""
        result = self.watch.run(f"SELECT * FROM pystachio.engines WHERE server = '{server}'")
        return dict(zip(result.names, result.rows[0])) if result.rows else None

    def engine_pid(self, server="pystachio"):
        """The process id of a server's engine, or None while it is down."""
        engine = self.engine(server)
        return int(engine["pid"]) if engine and engine["pid"] else None

    def running(self, server="pystachio"):
        """How many queries the engine runs now."""
        engine = self.engine(server)
        return int(engine["queries_running"] or 0) if engine else 0

    def wait_running(self, count=1, server="pystachio"):
        """Waits until the engine runs that many queries."""
        return wait_until(lambda: self.running(server) >= count, f"the engine runs {count} queries")

    def waiting(self, server="pystachio"):
        """How many queries wait in the engine now."""
        engine = self.engine(server)
        return int(engine["queries_waiting"] or 0) if engine else 0

    def wait_idle(self, server="pystachio"):
        """Waits until the engine runs no query, and none waits."""
        return wait_until(lambda: self.running(server) + self.waiting(server) == 0, "the engine stops its work")

    @contextlib.contextmanager
    def little_work(self, server="pystachio"):
        """What is cancelled within stops soon: the engine uses little processor time until it runs no query."""
        pid = self.engine_pid(server)
        before = cpu_s(pid)
        yield
        self.wait_idle(server)
        used = cpu_s(pid) - before
        require(used <= STOP_CPU_S_MAX, f"the engine computed for {used:.2f} s of processors after the cancel")
