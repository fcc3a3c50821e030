"""Queries of which the GPU engine computes a part and the CPU engine the rest: killed, cancelled and out of memory within the part."""

import contextlib
import os
import signal

from faults.support import expect_failure, require, wait_until
from harness import tables

_SERVER = "divided"
# No kernel computes md5. The pairs below it take longer than any test waits.
_LONG_PART = "SELECT md5(n::text) FROM (SELECT count(*) AS n FROM lineitem a JOIN lineitem b ON a.l_suppkey % 7 = b.l_suppkey % 7 " \
             "JOIN lineitem c ON b.l_suppkey % 7 = c.l_suppkey % 7 WHERE a.l_comment < c.l_comment) x"
_SHORT_PART = "SELECT md5(max(l_comment)) FROM lineitem GROUP BY l_linestatus ORDER BY 1"
# All rows are one partition.
_LARGE_PART = "SELECT md5(sum(n * l_linenumber)::text) FROM (SELECT l_linenumber, row_number() OVER (ORDER BY l_comment, l_orderkey, l_linenumber) AS n FROM lineitem) x"


@contextlib.contextmanager
def _server(place, options="memory '1GB'"):
    """A session over the TPC-H tables of a server with a GPU engine, which runs all that it has kernels for."""
    with place.session("SET client_min_messages = warning", "SET pystachio.engine_choice = gpu", f"SET search_path = {_SERVER}, public") as session:
        drop = f"DROP SERVER IF EXISTS {_SERVER} CASCADE; DROP SCHEMA IF EXISTS {_SERVER} CASCADE"
        session.run(drop)
        session.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{place.gpu_device()}', {options})")
        tables.tpch_foreign(session, place.tpch, _SERVER, _SERVER)
        yield session
        session.run(drop)


def _ran_on(session, query, analyze=False):
    """The engines of a query: those that ran it, or those that are to."""
    options = "(ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)" if analyze else ""
    lines = [row[0].strip() for row in session.run(f"EXPLAIN {options} {query}").rows]
    return next(line.split(": ", 1)[1] for line in lines if line.startswith(("Ran On: ", "Runs On: ")))


def _begin_part(place, session):
    """Starts a query whose part runs on the device when this returns."""
    engines = _ran_on(session, _LONG_PART)
    require("and cpu above it" in engines, f"the query is not divided: {engines}")
    session.start(_LONG_PART)
    # The whole query, which the GPU engine refuses first, takes no memory there.
    part = f"SELECT count(*) FROM pystachio.queries WHERE server = '{_SERVER}' AND state = 'running' AND engine = 'gpu' AND memory > 0"
    wait_until(lambda: place.watch.run(part).scalar() == "1", "the GPU engine computes the part")


def _answers(session):
    """The next divided query is answered, with the rows of the CPU engine."""
    engines = _ran_on(session, _SHORT_PART, analyze=True)
    require("and cpu above it" in engines, f"the query was not divided: {engines}")
    divided = session.run(_SHORT_PART).rows
    session.run("SET pystachio.engine_choice = cpu")
    require(divided == session.run(_SHORT_PART).rows and len(divided) == 2, f"rows of a divided query: {divided}")
    session.run("SET pystachio.engine_choice = gpu")


def a_part_is_cancelled(place):
    """A cancel ends the part with its query, and the engine goes on."""
    with _server(place) as session:
        _begin_part(place, session)
        pid = place.engine_pid(_SERVER)
        session.cancel()
        expect_failure(session, _LONG_PART, ["57014"])
        place.wait_idle(_SERVER)
        require(place.engine_pid(_SERVER) == pid, "the engine's process is another one")
        _answers(session)


def an_engine_is_killed_in_a_part(place):
    """The query fails and names its engine; the next one runs on the engine that is started in its place."""
    with _server(place) as session:
        _begin_part(place, session)
        pid = place.engine_pid(_SERVER)
        os.kill(pid, signal.SIGKILL)
        expect_failure(session, _LONG_PART, ["08006"], ["engine", _SERVER])
        wait_until(lambda: place.engine_pid(_SERVER) not in (None, pid), "a new engine is shown")
        _answers(session)


def a_part_finds_too_little_device_memory(place):
    """The CPU engine then runs the whole query, and says why."""
    with _server(place, "memory '1GB', device_memory '4MB'") as session:
        require("and cpu above it" in _ran_on(session, _LARGE_PART), "the query is not divided")
        engines = _ran_on(session, _LARGE_PART, analyze=True)
        require(engines.startswith("cpu ("), f"it ran on {engines}")
        of_both = session.run(_LARGE_PART).scalar()
        session.run("SET pystachio.engine_choice = cpu")
        require(of_both == session.run(_LARGE_PART).scalar(), "the rows are those of the CPU engine")
        session.run("SET pystachio.engine_choice = gpu")
        place.wait_idle(_SERVER)
        _answers(session)


TESTS = [a_part_is_cancelled, an_engine_is_killed_in_a_part, a_part_finds_too_little_device_memory]
