"""What others see of a query while it runs or waits, and of an engine: progress, the log's lines, the last error."""

import contextlib
import os
import re
import signal

from faults.support import HANG_S, LONG_QUERY, expect_error, require, wait_until
from harness.libpq import QueryError

_SERVER = "watching"
# Many batches, so that a reader that has taken the first keeps the engine from most rows.
_SLOW_READER = "DECLARE slow CURSOR FOR SELECT * FROM work.lineitem"


def _query(place, pid, server="pystachio"):
    """The last query of a backend, as a dictionary, or an empty one."""
    result = place.watch.run(f"SELECT * FROM pystachio.queries WHERE server = '{server}' AND pid = {pid} ORDER BY query DESC LIMIT 1")
    return dict(zip(result.names, result.rows[0])) if result.rows else {}


def a_running_query_is_watched(place):
    """State, engine, user, time and memory of a query that runs, from another session, until it is cancelled."""
    with place.session() as session:
        session.start(LONG_QUERY)
        wait_until(lambda: _query(place, session.backend_pid).get("state") == "running", "the query is seen to run")
        first = _query(place, session.backend_pid)
        require(first["usename"] == "postgres" and first["datname"] == "faults" and first["engine"] in ("cpu", "gpu"), f"whose it is: {first}")
        require(first["rows"] == "0" and int(first["bytes_expected"]) > 0 and first["waiting_for"] is None, f"how far it is: {first}")
        wait_until(lambda: int(_query(place, session.backend_pid)["memory"]) > 0, "it holds memory")
        later = _query(place, session.backend_pid)
        require(later["query"] == first["query"] and float(later["elapsed_ms"]) > float(first["elapsed_ms"]), f"it goes on: {first}, {later}")
        session.cancel()
        with contextlib.suppress(QueryError):
            session.finish(HANG_S)
        wait_until(lambda: _query(place, session.backend_pid)["state"] == "cancelled", "it was cancelled")
        place.wait_idle()


def the_part_that_is_done_grows(place):
    """A reader that takes some rows sees the query go on by as much."""
    with place.session("SET pystachio.batch_rows = 64", "SET pystachio.engine_choice = cpu") as session:
        count = int(session.run("SELECT count(*) FROM work.lineitem").scalar())
        session.run(f"BEGIN; {_SLOW_READER}; FETCH 1 FROM slow")
        wait_until(lambda: _query(place, session.backend_pid).get("waiting_for") == "reader", "the query waits for its reader")
        done = float(_query(place, session.backend_pid)["fraction_done"])
        require(0 < done < 0.9, f"after one row {done} is done")
        session.run(f"MOVE {count // 2} IN slow")
        wait_until(lambda: float(_query(place, session.backend_pid)["fraction_done"]) >= 0.5, "half of it is done")
        session.run("MOVE ALL IN slow")
        ended = _query(place, session.backend_pid)
        require((ended["state"], ended["rows"], ended["fraction_done"]) == ("finished", str(count), "1"), f"at its end: {ended}")
        session.run("COMMIT")


def a_waiting_query_is_watched(place):
    """A query that waits for its turn says so."""
    with place.session("SET client_min_messages = warning") as boss:
        boss.run(f"DROP SERVER IF EXISTS {_SERVER} CASCADE; CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '64MB'); "
                 f"CREATE FOREIGN TABLE work.narrow (l_comment text, l_tax numeric) SERVER {_SERVER} OPTIONS (path '{place.tpch}/lineitem.parquet')")
        with place.session() as first, place.session() as second:
            first.start("SELECT count(*) FROM work.narrow a, work.narrow b WHERE a.l_comment < b.l_comment")
            place.wait_running(1, _SERVER)
            second.start("SELECT sum(l_tax) FROM work.narrow")
            wait_until(lambda: _query(place, second.backend_pid, _SERVER).get("state") == "waiting", "the second query waits")
            require(_query(place, second.backend_pid, _SERVER)["waiting_for"] == "turn", "for its turn")
            first.cancel()
            require(second.finish(HANG_S).scalar() is not None, "the second query ends")
            with contextlib.suppress(QueryError):
                first.finish(HANG_S)
        boss.run(f"DROP SERVER {_SERVER} CASCADE")


def _log_lines(place):
    with open(f"{place.folder}/server.log", encoding="utf-8", errors="replace") as log:
        return log.read().splitlines()


def an_engine_logs_through_the_server(place):
    """Its lines have the server's prefix, the engine's server and its database; and so has the line of its end."""
    with place.session("SET client_min_messages = warning") as boss:
        boss.run(f"DROP SERVER IF EXISTS {_SERVER} CASCADE; "
                 f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '64MB', log_level 'info'); "
                 f"CREATE FOREIGN TABLE work.narrow (l_tax numeric) SERVER {_SERVER} OPTIONS (path '{place.tpch}/lineitem.parquet')")
        begin = len(_log_lines(place))
        boss.run("SELECT sum(l_tax) FROM work.narrow")
        prefix = rf'^\d{{4}}-\d\d-\d\d \S+ UTC \[\d+\] +LOG:  pystachio engine of server "{_SERVER}", database "faults"'

        def is_logged(text):
            return any(re.search(prefix + text, line) for line in _log_lines(place)[begin:])

        wait_until(lambda: is_logged(": pystachio_engine: engine is ready"), "the engine's own line is logged")
        os.kill(place.engine_pid(_SERVER), signal.SIGKILL)
        wait_until(lambda: is_logged(r" \(process \d+\) was killed by signal 9"), "its end is logged")
        boss.run(f"DROP SERVER {_SERVER} CASCADE")


def the_last_error_is_the_last(place):
    """A query's error takes the place of the end of the process before."""
    with place.session() as session:
        session.run("SELECT count(*) FROM nation")
        killed = place.engine_pid()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: place.engine_pid() not in (None, killed), "the engine runs again")
        require("killed" in place.engine()["last_error"], f"the last error: {place.engine()['last_error']}")
        expect_error(session, "SELECT sqrt(r_regionkey - 3) FROM region", ["2201F"])
        require("square root" in place.engine()["last_error"], f"the last error: {place.engine()['last_error']}")


def the_supervisor_is_a_process_of_the_server(place):
    """pg_stat_activity shows it. It waits, is connected to no database, and is the parent of all engines."""
    shown = "SELECT pid, datname, wait_event_type, wait_event FROM pg_stat_activity WHERE backend_type = 'pystachio supervisor'"
    named = int(place.watch.run("SHOW server_version_num").scalar()) >= 170000
    expected = (None, "Extension", "PystachioSupervisor" if named else "Extension")
    def waits():
        rows = place.watch.run(shown).rows
        require(len(rows) == 1, f"supervisors: {rows}")
        with open(f"/proc/{place.engine_pid()}/stat", encoding="utf-8") as file:
            require(file.read().rsplit(")", 1)[1].split()[1] == rows[0][0], "the engine is its child")
        return tuple(rows[0][1:]) == expected

    with place.session() as session:
        session.run("SELECT count(*) FROM nation")
    wait_until(waits, f"the supervisor is shown as {expected}")


def memory_that_is_not_there_is_warned_of(place):
    """A server may have an option `memory` for another machine, and setting it gives a notice."""
    with place.session("SET client_min_messages = error", "SET log_min_messages = warning") as boss:
        begin = len(_log_lines(place))
        boss.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (memory '9999GB')")
        boss.run(f"DROP SERVER {_SERVER}")
        warned = [line for line in _log_lines(place)[begin:] if "is more than this machine has: 10238976 MB of" in line]
        require(len(warned) == 1, f"warnings: {warned}")


TESTS = [a_running_query_is_watched, the_part_that_is_done_grows, a_waiting_query_is_watched, an_engine_logs_through_the_server,
         the_last_error_is_the_last, the_supervisor_is_a_process_of_the_server, memory_that_is_not_there_is_warned_of]
