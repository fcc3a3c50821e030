"""Step kill of ranks.py: one rank's process is killed while queries run over all ranks.

    session   query ─ query ─ query ✗            query (tried again and again) ─ query over all ranks
    here                        ▲ kill -9         ▲ first rows                    ▲ all are connected again
                                └── error_s ──┘   └────────── all from the kill on ──────────────────┘

Queries follow one another without a pause, so that one of them is struck in the middle; where the kill falls between two of them and is noticed before the
next begins, which then runs on one rank, it is tried again.
"""

import contextlib
import os
import threading
import time

import gpu
from harness.libpq import QueryError, Session

# Queries run for so long before the kill.
BEFORE_S = 1.0
# A query that is struck has failed after so long, and the kill is tried so often.
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


def run_kill(bench):
    """Kills the last rank. Returns 1 if no query was struck, or none works after."""
    if bench.options.ranks < 2:
        print("kill: there is one rank only, whose end is the engine's", flush=True)
        return 0
    pids = bench.configure("all")
    sql = next(iter(bench.queries([STRUCK_QUERY]).values()))
    peer = bench.open()
    wanted = peer.run(sql)
    peer.close()
    runner = _Runner(bench, sql)
    runner.start()
    for _ in range(KILLS_MAX):
        time.sleep(BEFORE_S)
        killed = time.monotonic()
        os.kill(pids[-1], 9)
        runner.join(STRUCK_S_MAX)
        if runner.error:
            break
        with Session(bench.conninfo) as session:
            pids = bench.wait_connected(session, bench.options.ranks, pids[-1])
    next_s = None
    if runner.error:
        next_s = _wait_works(bench, sql, wanted, killed)
    runner.is_stopped = True
    found = {"error": runner.error, "queries_before": runner.count, "error_s": runner.ended - killed if runner.error else None,
             "next_s": next_s, "connected_s": None}
    with contextlib.suppress(RuntimeError), Session(bench.conninfo) as session:
        bench.wait_connected(session, bench.options.ranks, pids[-1])
        found["connected_s"] = time.monotonic() - killed
    bench.results.note("kill", f"rank {bench.options.ranks - 1} of {bench.options.ranks}", found)
    print(f"kill  {found}", flush=True)
    return 0 if next_s is not None and found["connected_s"] is not None else 1
