"""Step kill of ranks.py: processes of ranks are killed or stopped while queries run over all ranks.

    session   query ─ query ─ query ✗            query (tried again and again) ─ query over all ranks
    here                        ▲ signal          ▲ first rows                    ▲ all are connected again
                                └── error_s ──┘   └────────── all from the signal on ──────────────────┘

Queries follow one another without a pause, so that one of them is struck in the middle; where the signal falls between two of them and is noticed before the
next begins, which then runs on one rank, it is tried again.
"""

import contextlib
import os
import signal
import threading
import time

import gpu
from harness.libpq import QueryError, Session

# Queries run for so long before the kill.
BEFORE_S = 1.0
# A query that is struck has failed after so long, and the signal is sent so often.
STRUCK_S_MAX = 10.0
KILLS_MAX = 8
# What does not work again after so long does not.
RECOVERY_S_MAX = 60.0
# The query that is struck: the one that moves most rows.
STRUCK_QUERY = 9


class _Runner(threading.Thread):
    """Runs a query again and again until it fails or is told to stop."""

    def __init__(self, bench, sql):
        super().__init__(daemon=True)
        self.bench, self.sql = bench, sql
        self.is_stopped, self.count, self.error, self.ended = False, 0, None, None

    def run(self):
        peer = self.bench.open()
        try:
            while not self.is_stopped:
                with self.bench.guarded(peer):
                    peer.receive(self.sql)
                self.count += 1
        except QueryError as error:
            self.error = gpu.first_line(error)
        self.ended = time.monotonic()
        with contextlib.suppress(QueryError):
            peer.close()


def _wait_works(bench, sql, wanted, since):
    """Seconds since a moment until a query gives its rows; None if it never does."""
    while time.monotonic() - since < RECOVERY_S_MAX:
        with contextlib.suppress(QueryError):
            peer = bench.open()
            try:
                with bench.guarded(peer):
                    if peer.run(sql) == wanted:
                        return time.monotonic() - since
            finally:
                peer.close()
        time.sleep(0.02)
    return None


def _failures(count):
    """What happens to which ranks, by the words of the report."""
    last = count - 1
    found = {f"SIGKILL of rank {last}": (signal.SIGKILL, [last]), f"SIGSTOP of rank {last}": (signal.SIGSTOP, [last])}
    if count > 2:
        found["SIGKILL of ranks 1 and 2"] = (signal.SIGKILL, [1, 2])
    found["SIGKILL of rank 0"] = (signal.SIGKILL, [0])
    return found


def _strike(bench, sql, wanted, number, ranks):
    """Sends a signal to ranks while the query runs; what followed."""
    pids = bench.configure("all")
    runner = _Runner(bench, sql)
    runner.start()
    for _ in range(KILLS_MAX):
        time.sleep(BEFORE_S)
        struck = time.monotonic()
        for rank in ranks:
            os.kill(pids[rank], number)
        runner.join(STRUCK_S_MAX)
        if runner.error:
            break
        with Session(bench.conninfo) as session:
            pids = bench.wait_connected(session, bench.options.ranks, pids[ranks[-1]])
    next_s = _wait_works(bench, sql, wanted, struck) if runner.error else None
    runner.is_stopped = True
    found = {"error": runner.error, "queries_before": runner.count, "error_s": runner.ended - struck if runner.error else None,
             "next_s": next_s, "connected_s": None}
    with contextlib.suppress(RuntimeError), Session(bench.conninfo) as session:
        bench.wait_connected(session, bench.options.ranks, pids[ranks[-1]])
        found["connected_s"] = time.monotonic() - struck
    return found


def run_kill(bench):
    """Strikes ranks in turn. Returns of how many failures no query was struck, or none works after."""
    if bench.options.ranks < 2:
        print("kill: there is one rank only, whose end is the engine's", flush=True)
        return 0
    bench.configure("all")
    sql = next(iter(bench.queries([STRUCK_QUERY]).values()))
    peer = bench.open()
    wanted, wrong = peer.run(sql), 0
    peer.close()
    for name, (number, ranks) in _failures(bench.options.ranks).items():
        if not bench.has_time():
            break
        found = _strike(bench, sql, wanted, number, ranks)
        bench.results.note("kill", name, found)
        print(f"kill  {name}  {found}", flush=True)
        wrong += found["next_s"] is None or found["connected_s"] is None
    return wrong
