"""Faults of a soak that come from outside: engines killed, stopped for a while, their options changed, sessions terminated, files
replaced.

Invariants: what is about to be done is in the journal before it is done. Only what belongs to the run's cluster gets a signal.

Deliberately absent: what sessions do to themselves (clients.py).
"""

import contextlib
import os
import random
import signal
import time
import traceback

from harness.libpq import QueryError, Session

# The mean time between two faults, and between two replaced files.
FAULT_EVERY_S, REPLACED_EVERY_S = 1.0, 0.5
GENTLE = {"stop": 3, "terminate": 3}
KILLS = {"kill": 4, "segfault": 1, "abort": 1, "supervisor": 1, "options": 1, "silence": 1}
# A rank that is stopped for so long has fallen silent to the others, which go on without it.
SILENCE_S = 7.0


class Breaker:
    """Does faults at random until a time; with `kills`, such as end engines."""

    def __init__(self, soak):
        self.soak, self.random = soak, random.Random(f"{soak.seed} breaker")

    def run(self, until, kills):
        """The faults of processes."""
        weights = {**GENTLE, **(KILLS if kills else {})}
        try:
            with Session(self.soak.conninfo, ["SET client_min_messages = warning"]) as session:
                while self._wait(FAULT_EVERY_S, until):
                    name = self.random.choices(list(weights), list(weights.values()))[0]
                    # A session that fails here is an engine that is down just now: another fault is as good.
                    with contextlib.suppress(QueryError, ProcessLookupError):
                        getattr(self, f"_{name}")(session)
        except Exception:
            self.soak.journal.finding("the driver failed", f"breaker\n{traceback.format_exc()}")

    def replace(self, until):
        """The faults of files."""
        own = random.Random(f"{self.soak.seed} files")
        try:
            while self._wait(REPLACED_EVERY_S, until, own):
                self.soak.changed.put(own)
                self.soak.journal.fault("file replaced")
        except Exception:
            self.soak.journal.finding("the driver failed", f"files\n{traceback.format_exc()}")

    def _wait(self, mean_s, until, own=None):
        time.sleep(max(0.0, min((own or self.random).expovariate(1 / mean_s), until - time.monotonic())))
        return time.monotonic() < until

    def _engine(self, session, of_first=False):
        """A server of the run and the process of one of its ranks, which is one of pystachio's; raises ProcessLookupError while it is down."""
        server = self.random.choice(self.soak.servers)
        pid = self.soak.engine_pid(session, server.name, 0 if of_first else self.random.randrange(server.ranks))
        if not pid or "pystachio-engine" not in _command(pid):
            raise ProcessLookupError
        return server, pid

    def _signal(self, session, number, kind):
        server, pid = self._engine(session)
        self.soak.journal.death(server.name)
        os.kill(pid, number)
        self.soak.journal.fault(kind)

    def _kill(self, session):
        self._signal(session, signal.SIGKILL, "engine killed")

    def _segfault(self, session):
        self._signal(session, signal.SIGSEGV, "engine segfault")

    def _abort(self, session):
        self._signal(session, signal.SIGTERM, "engine terminated")

    def _supervisor(self, session):
        _, pid = self._engine(session, of_first=True)
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            parent = int(file.read().rsplit(")", 1)[1].split()[1])
        if "pystachio" not in _command(parent):
            raise ProcessLookupError
        # It ends all engines.
        for server in self.soak.servers:
            self.soak.journal.death(server.name)
        os.kill(parent, signal.SIGTERM)
        self.soak.journal.fault("supervisor terminated")

    def _options(self, session):
        server = self.random.choice(self.soak.servers)
        self.soak.journal.death(server.name)
        session.run(f"ALTER SERVER {server.name} OPTIONS (SET threads '{self.random.randint(2, 5)}')")
        # The engine of the former options ends with its last query.
        self.soak.journal.death(server.name)
        self.soak.journal.fault("options changed")

    def _stop(self, session):
        _, pid = self._engine(session)
        self.soak.journal.fault("engine stopped for a while")
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(3 * 10 ** self.random.uniform(-2, 0))
        finally:
            os.kill(pid, signal.SIGCONT)

    def _silence(self, session):
        """A rank that does not answer for longer than others wait for it."""
        server, pid = self._engine(session)
        if server.ranks == 1:
            raise ProcessLookupError
        self.soak.journal.death(server.name)
        self.soak.journal.fault("rank stopped until it was given up")
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(SILENCE_S)
        finally:
            # The others may have ended it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            self.soak.journal.death(server.name)

    def _terminate(self, session):
        pid = self.random.choice(self.soak.clients).victim()
        if pid:
            session.run(f"SELECT pg_terminate_backend({pid})")
            self.soak.journal.fault("session terminated")


def _command(pid):
    """A process's command line, empty where it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
