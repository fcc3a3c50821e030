"""Ranks in processes of their own that are killed, stopped or asked to end, whatever they are at; a cancel that reaches all of them."""

import contextlib
import glob
import os
import re
import signal
import time

from faults.support import HANG_S, expect_error, require, wait_until
from harness import tables
from harness.libpq import QueryError

_SERVER = "shared"
_RANKS = 3
# The one that is struck where it is not rank 0.
_STRUCK = 2
_TRIVIAL = "SELECT count(*), sum(n_nationkey) FROM nation, region WHERE n_regionkey = r_regionkey"
_TRIVIAL_ROWS = [("25", "300")]
# Pairs of rows that one side has of every rank: it takes seconds, of which little is for exchanges.
_PAIRS = "SELECT count(*) FROM lineitem a, lineitem b WHERE a.l_comment < b.l_comment"
# Rows change ranks all the time.
_SHUFFLED = ("SELECT count(*), sum(length(c)) FROM (SELECT a.l_orderkey, a.l_comment || b.l_comment || max(b.l_shipinstruct) AS c FROM lineitem a "
             "JOIN lineitem b ON a.l_suppkey = b.l_suppkey GROUP BY a.l_orderkey, a.l_linenumber, a.l_comment, b.l_comment) x")
# Each rank gives far more rows than are expected, so that they are joined there and gathered.
_WIDE = ("SELECT a.*, b.l_comment FROM lineitem a JOIN lineitem b ON a.l_suppkey = b.l_suppkey WHERE a.l_comment || b.l_comment LIKE '%a%' "
         "AND a.l_comment || b.l_shipinstruct LIKE '%e%'")
# How long a query that may run on is waited for before the ranks are looked at.
_LOOK_S = 0.5
# Rank 0 among those that are named: one that waits for it in a round before is behind as well.
_NAMES_RANK_0 = re.compile(r"\branks? (\d+, )*0\b")
# Longer than ranks wait for one another.
_STOPPED_S = 7.0
_SUPERVISOR = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pystachio supervisor'"
_AGAIN = "Run the query again"
_REASONS = {signal.SIGKILL: "was killed by signal 9", signal.SIGTERM: "ended, as it was asked to", signal.SIGSTOP: "did not answer"}


def _ranks(place):
    """The rows of the server's ranks, by rank."""
    result = place.watch.run(f"SELECT * FROM pystachio.engines WHERE server = '{_SERVER}' ORDER BY rank")
    return [dict(zip(result.names, row)) for row in result.rows]


def _are_connected(place):
    ranks = _ranks(place)
    return len(ranks) == _RANKS and all(rank["state"] == "running" for rank in ranks)


def _network(ranks):
    """What tells one network of ranks from another."""
    return ranks[0]["pid"], ranks[0]["generation"]


def _wait_connected(place, other_than=None):
    """Waits until all ranks are connected, in another network than they were."""
    def holds():
        return _are_connected(place) and _network(_ranks(place)) != other_than
    return wait_until(holds, "all ranks are connected", 0.05)


def _session(place):
    return place.session("SET client_min_messages = warning", "SET pystachio.engine_choice = gpu", f"SET search_path = {_SERVER}, public")


def _setup(place):
    """The server, its tables in row groups that ranks share, and one query on all of them."""
    pieces = f"{place.folder}/faults-ranks"
    with _session(place) as session:
        if not place.engine(_SERVER):
            session.run(f"SELECT * FROM pystachio.tpch_generate('{pieces}', 0.01, overwrite => true, row_group_rows => 2048)")
            session.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio "
                        f"OPTIONS (device 'emulated', memory '768MB', ranks '{_RANKS}', rank_policy 'all')")
            tables.tpch_foreign(session, pieces, _SERVER, _SERVER)
        require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the server works before")
    _wait_connected(place)


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _processes_of_server(place, engines=()):
    """Processes of the server's engine, and those that it has not waited for. Other clusters may have a server of this name."""
    found, data = [], os.path.realpath(place.folder)
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8") as file:
                pid, rest = file.read().split(" ", 1)
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = rest.rsplit(")", 1)[1].split()[:2]
        # What an engine leaves that has died itself is waited for by init, some time.
        if (f"--name={_SERVER}".encode() in command and _folder(pid).startswith(data)) or (state == "Z" and parent in engines):
            found.append(int(pid))
    return sorted(found)


def _folder(pid):
    """The working directory of a process, which is its cluster's."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def _left_behind(place):
    """What there is of processes, sockets and spill files that no rank has."""
    pids = {rank["pid"] for rank in _ranks(place)}
    left = [f"process {pid}" for pid in _processes_of_server(place, pids) if str(pid) not in pids]
    data = place.watch.run("SHOW data_directory").scalar()
    spilled = [path.split("_")[-2] for path in glob.glob(f"{data}/base/pgsql_tmp/pgsql_tmp_pystachio_*")]
    left += [f"spill folder of {pid}" for pid in spilled if not _alive(pid)]
    for folder in glob.glob(f"{data}/pystachio/*-*-*"):
        names = set(os.listdir(folder)) - {"request.json", "state.json", "socket", "used", "cufile.log"}
        left += [f"{folder}/{name}" for name in names]
    return left


def _check_after(place, session, before, is_anew=True):
    """The next query works soon, all ranks are there again soon, and nothing is left of what was; which processes are those of before."""
    begin = time.monotonic()
    wait_until(lambda: _works(session), "the next query has rows", 0.05)
    _wait_connected(place, _network(before) if is_anew else None)
    print(f"        ranks were connected after {time.monotonic() - begin:.1f} s", flush=True)
    require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "a query over all ranks has its rows")
    wait_until(lambda: not _left_behind(place), f"nothing is left behind of {[rank['pid'] for rank in before]}", 0.1)
    after = _ranks(place)
    return [rank["pid"] == known["pid"] for rank, known in zip(after, before)]


def _works(session):
    """Whether a query has its rows; it may fail as long as ranks are being started."""
    try:
        rows = session.run(_TRIVIAL).rows
    except QueryError as error:
        require(error.sqlstate.startswith(("08", "57", "XX", "58")), f"{error}")
        return False
    require(rows == _TRIVIAL_ROWS, f"the next query has other rows: {rows}")
    return True


def _running(ranks):
    return [int(rank["queries_running"] or 0) for rank in ranks]


def _run_on_ranks(place):
    return all(count > 0 for count in _running(_ranks(place)))


def _runs_on_rank_0_alone(ranks):
    """Where the others are known to be gone before it begins."""
    first, *others = _running(ranks)
    return first > 0 and not any(others)


class _Phase:
    """What a query is at when a rank is struck."""

    def __init__(self, name, query, reach):
        self.name, self.query, self.reach = name, query, reach


def _reach_running(place, session, query):
    session.start(query)
    wait_until(lambda: _run_on_ranks(place), "the query runs on all ranks", 0.02)


def _reach_planning(_, session, query):
    session.start(query)
    time.sleep(0.003)


def _reach_rows(place, session, query):
    session.run("BEGIN")
    session.run(f"DECLARE wide CURSOR FOR {query}")
    require(len(session.run("FETCH 100 FROM wide").rows) == 100, "rows come")
    session.start("FETCH ALL FROM wide")


_PHASES = [_Phase("planning", _PAIRS, _reach_planning), _Phase("scanning", _PAIRS, _reach_running),
           _Phase("exchanging", _SHUFFLED, _reach_running), _Phase("giving rows", _WIDE, _reach_rows)]


def _finish(session, what):
    """The error that a query ends with, or None; it must end."""
    try:
        session.finish(HANG_S)
        return None
    except QueryError as error:
        return error
    except TimeoutError:
        require(False, f"{what}: the query does not end")


def _finish_or_cancel(place, session, what, may_run):
    """The same of a query that had not begun, and may run where `may_run` says it of the ranks: that takes long, and is cancelled."""
    wait_until(lambda: not _is_busy_for(session, _LOOK_S) or may_run(_ranks(place)), f"{what}: the query ends, or runs on what is left")
    if not session.is_busy():
        return _finish(session, what)
    session.cancel()
    with contextlib.suppress(QueryError):
        session.finish(HANG_S)
    return None


def _is_busy_for(session, seconds):
    """Whether a query has not ended after so long."""
    deadline = time.monotonic() + seconds
    while session.is_busy() and time.monotonic() < deadline:
        time.sleep(0.01)
    return session.is_busy()


def _strike_peer(place, number):
    """A rank other than 0 is struck while it is at each of the phases."""
    _setup(place)
    for phase in _PHASES:
        with _session(place) as victim, _session(place) as other:
            before = _ranks(place)
            what = f"{signal.Signals(number).name} of rank {_STRUCK} while {phase.name}"
            phase.reach(place, victim, phase.query)
            os.kill(int(before[_STRUCK]["pid"]), number)
            # A query that had not begun on that rank may run on rank 0 alone.
            if phase.name == "planning":
                error = _finish_or_cancel(place, victim, what, _runs_on_rank_0_alone)
            else:
                error = _finish(victim, what)
            require(error is not None or phase.name == "planning", f"{what}: the query gave rows")
            if error:
                text = f"{error.message} {error.detail} {error.hint}"
                require(error.sqlstate == "08006", f"{what}: {error.sqlstate}: {text}")
                # One that is asked to end tells the others so, sooner than its process has ended.
                reasons = [_REASONS[number], *(["takes part in no more exchanges"] if number == signal.SIGTERM else [])]
                require(error.message.startswith(f'server "{_SERVER}": rank {_STRUCK} '), f"{what}: {text}")
                require(any(reason in text for reason in reasons) and _AGAIN in (error.hint or ""), f"{what}: {text}")
                if number != signal.SIGTERM:
                    detail = f"Its process {before[_STRUCK]['pid']} {_REASONS[number]}"
                    require((error.detail or "").startswith(detail), f"{what}: {text}")
            if phase.name == "giving rows":
                victim.run("ROLLBACK")
            same = _check_after(place, other, before)
            require(same == [rank != _STRUCK for rank in range(_RANKS)], f"{what}: processes kept: {same}")
            require(victim.run(_TRIVIAL).rows == _TRIVIAL_ROWS, f"{what}: the victim's session is usable")
            after = _ranks(place)
            generations = [int(ranks[0]["generation"]) for ranks in (before, after)]
            require(generations[0] < generations[1], f"{what}: generations {generations}")
            require("process" in (after[_STRUCK]["last_error"] or ""), f"{what}: {after[_STRUCK]}")


def a_rank_that_is_killed_is_named_and_started_anew(place):
    _strike_peer(place, signal.SIGKILL)


def a_rank_that_is_asked_to_end_is_named_and_started_anew(place):
    _strike_peer(place, signal.SIGTERM)


def a_rank_that_is_stopped_is_named_and_started_anew(place):
    _strike_peer(place, signal.SIGSTOP)


def ranks_that_are_struck_while_nothing_runs_are_started_anew(place):
    _setup(place)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        for struck in ([1], [1, 2]):
            with _session(place) as session:
                before = _ranks(place)
                for rank in struck:
                    os.kill(int(before[rank]["pid"]), number)
                wait_until(lambda: _network(_ranks(place)) != _network(before) or not _are_connected(place),
                           "it is found without a query", 0.02)
                same = _check_after(place, session, before)
                require(same == [rank not in struck for rank in range(_RANKS)], f"{signal.Signals(number).name}: {same}")


def a_rank_0_that_dies_ends_all_ranks(place):
    """The query fails as that of any engine does, no rank of the old engine is left, and the new one has all of its ranks."""
    _setup(place)
    for number, phases in ((signal.SIGKILL, _PHASES), (signal.SIGTERM, _PHASES[1:3])):
        for phase in phases:
            with _session(place) as victim, _session(place) as other:
                before = _ranks(place)
                what = f"{signal.Signals(number).name} of rank 0 while {phase.name}"
                phase.reach(place, victim, phase.query)
                os.kill(int(before[0]["pid"]), number)
                if phase.name == "planning":
                    # It may not have been sent yet, and run on the engine that comes after.
                    old_pid = before[0]["pid"]
                    error = _finish_or_cancel(place, victim, what,
                                              lambda ranks, old=old_pid: ranks[0]["pid"] != old and _running(ranks)[0] > 0)
                else:
                    error = _finish(victim, what)
                if error:
                    require(error.sqlstate.startswith(("08", "57", "XX", "58", "HV")), f"{what}: {error.sqlstate} {error.message}")
                if phase.name == "giving rows":
                    victim.run("ROLLBACK")
                wait_until(lambda: not any(_alive(int(rank["pid"])) for rank in before), f"{what}: its ranks end", 0.05)
                same = _check_after(place, other, before)
                require(not any(same), f"{what}: processes kept: {same}")
                require(victim.run(_TRIVIAL).rows == _TRIVIAL_ROWS, f"{what}: the victim's session is usable")


def a_rank_0_that_dies_is_told_before_the_next_one_starts(place):
    """The supervisor stands still: it notes no end of a process, and starts none."""
    _setup(place)
    supervisor = int(place.watch.run(_SUPERVISOR).scalar())
    with _session(place) as victim, _session(place) as other:
        victim.run("SET pystachio.connect_timeout = '10min'")
        # The next plan is made of what the session knows of the table: where it fails, the files may have changed.
        victim.run("SELECT count(*) FROM lineitem")
        before = _ranks(place)
        first = before[0]["pid"]
        _reach_running(place, victim, _PAIRS)
        os.kill(supervisor, signal.SIGSTOP)
        try:
            os.kill(int(first), signal.SIGKILL)
            error = _finish(victim, "SIGKILL of rank 0")
        finally:
            os.kill(supervisor, signal.SIGCONT)
        text = error and f"{error.sqlstate}: {error.message} {error.detail} {error.hint}"
        require(error and error.sqlstate == "08006" and f"process {first}" in error.message, text)
        require(_REASONS[signal.SIGKILL] in (error.detail or "") and _AGAIN in (error.hint or ""), text)
        same = _check_after(place, other, before)
        require(not any(same), f"processes kept: {same}")


def a_rank_0_that_is_stopped_and_goes_on_keeps_its_ranks(place):
    """A rank that was stopped does not report the others as silent."""
    _setup(place)
    for phase in (None, _PHASES[2]):
        with _session(place) as victim, _session(place) as other:
            before = _ranks(place)
            if phase:
                phase.reach(place, victim, phase.query)
            os.kill(int(before[0]["pid"]), signal.SIGSTOP)
            time.sleep(_STOPPED_S)
            os.kill(int(before[0]["pid"]), signal.SIGCONT)
            if phase:
                error = _finish(victim, "rank 0 goes on")
                # A machine that is busy may find the silence later than it ends.
                require(error is None or (error.sqlstate == "08006" and _NAMES_RANK_0.search(error.message)), f"{error}")
            same = _check_after(place, other, before)
            require(all(same), f"processes kept: {same}")


def a_cancel_reaches_all_ranks(place):
    _setup(place)
    before = _ranks(place)
    for query in (_PAIRS, _SHUFFLED):
        with _session(place) as session:
            session.start(query)
            wait_until(lambda: _run_on_ranks(place), "the query runs on all ranks", 0.02)
            session.cancel()
            error = _finish(session, "a cancel")
            require(error is not None and error.sqlstate == "57014", f"{error}")
            wait_until(lambda: all(int(rank["queries_running"]) == 0 for rank in _ranks(place)), "all ranks have stopped", 0.05)
            same = _check_after(place, session, before, False)
            require(all(same), f"processes kept: {same}")


def a_server_that_is_altered_or_dropped_leaves_no_rank(place):
    """A server that is dropped leaves no rank; what a rank fails with is shown."""
    _setup(place)
    pids = [int(rank["pid"]) for rank in _ranks(place)]
    with _session(place) as session:
        expect_error(session, f"ALTER SERVER {_SERVER} OPTIONS (ADD rank_processes 'two')", ["22023", "HV00D", "HV024"], ["own, one"])
        session.run(f"ALTER SERVER {_SERVER} OPTIONS (ADD rank_processes 'one')")
        require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "ranks of one process work")
        wait_until(lambda: not any(_alive(pid) for pid in pids), "the ranks of the old engine end", 0.05)
        require(len(_ranks(place)) == 1, f"{_ranks(place)}")
        session.run(f"DROP SERVER {_SERVER} CASCADE; DROP SCHEMA {_SERVER} CASCADE")
        wait_until(lambda: not _processes_of_server(place), "no process is left", 0.05)


TESTS = [a_rank_that_is_killed_is_named_and_started_anew, a_rank_that_is_asked_to_end_is_named_and_started_anew,
         a_rank_that_is_stopped_is_named_and_started_anew, ranks_that_are_struck_while_nothing_runs_are_started_anew,
         a_rank_0_that_dies_ends_all_ranks, a_rank_0_that_dies_is_told_before_the_next_one_starts,
         a_rank_0_that_is_stopped_and_goes_on_keeps_its_ranks, a_cancel_reaches_all_ranks, a_server_that_is_altered_or_dropped_leaves_no_rank]
