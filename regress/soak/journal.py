"""What is done to engines and sessions in a soak, when, and whether it explains an error.

Invariants: an error is explained by what was done to the query, its session or its engine at that time, and by nothing else. What
nothing explains is a finding.

Deliberately absent: answers, which nothing excuses.
"""

import re
import threading
import time
from collections import Counter

CANCELLED, OUT_OF_MEMORY, TERMINATED, LOST, DEVICE = "57014", "53200", "57P01", "08006", "58000"
# How long after an engine was killed a query may still have been given to it: the kernel takes its time to close what a process
# has open, and machines are busy.
DEATH_GRACE_S = 3.0
# How long after a cancel was sent it may reach the session's next statement.
CANCEL_GRACE_S = 2.0
# Engines whose device is told to fail: its errors, and the end of the engine that follows.
_ENGINE = re.compile(r'engine of server "([^"]+)"')
# What a query of several ranks fails with when one of them is lost.
_RANK = re.compile(r"\branks? \d+")


class Journal:
    """Faults by kind, and the findings."""

    def __init__(self, servers, device_fails, echo=print):
        self.faults, self.findings, self.counts = Counter(), [], Counter()
        self.device_fails, self._echo = device_fails, echo
        self._tiny = {server.name for server in servers if server.is_tiny}
        self._gpus = {server.name for server in servers if server.is_gpu}
        self._shared = {server.name for server in servers if server.ranks > 1}
        self._deaths = {server.name: [] for server in servers}
        self._guard = threading.Lock()
        self.slowest_cancel_s = 0.0

    def count(self, what, number=1):
        """Counts queries, answers and the like."""
        with self._guard:
            self.counts[what] += number

    def fault(self, kind):
        """Counts a fault."""
        with self._guard:
            self.faults[kind] += 1

    def death(self, server):
        """Notes that an engine is about to be killed."""
        with self._guard:
            self._deaths[server].append(time.monotonic())

    def cancelled(self, seconds):
        """Notes how long it took until a cancel was answered."""
        with self._guard:
            self.slowest_cancel_s = max(self.slowest_cancel_s, seconds)

    def finding(self, kind, text, repeat=""):
        """Counts and prints what must not be."""
        with self._guard:
            self.findings.append(kind)
            self._echo(f"FINDING {kind}: {text}{f'{chr(10)}    to repeat: {repeat}' if repeat else ''}", flush=True)

    def died(self, server, begin, end):
        """Whether an engine was killed between two times, or shortly before."""
        with self._guard:
            return any(begin - DEATH_GRACE_S <= death <= end for death in self._deaths[server])

    def explains(self, error, trial):
        """What explains the error of a Trial, in a word, or None."""
        state = error.sqlstate
        if state == CANCELLED and trial.may_be_cancelled:
            return "cancelled"
        if trial.is_lost or state == TERMINATED:
            return "terminated" if trial.was_terminated else None
        named = _ENGINE.search(error.message)
        server = named[1] if named else trial.server
        if state == LOST and (named or (trial.server in self._shared and _RANK.search(error.message))) and self.died(server, trial.begin, trial.end):
            return "engine killed"
        if state == OUT_OF_MEMORY and trial.server in self._tiny:
            return "out of memory"
        if self.device_fails and trial.server in self._gpus and state in (OUT_OF_MEMORY, DEVICE, LOST):
            return "device fault"
        return None


class Trial:
    """One query of a session, from its begin to its end, and what was done to it."""

    def __init__(self, server):
        self.server, self.begin, self.end = server, time.monotonic(), None
        self.may_be_cancelled, self.was_terminated, self.is_lost = False, False, False

    def ended(self, session):
        """Notes the end."""
        self.end = time.monotonic()
        self.is_lost = session.transaction == "unknown"
        return self
