"""Many clients at once: each is a process with a session, and compares every answer with the one that it was given.

Invariants:
- A client takes the queries in turn, from a place of its own on, so that different queries run at the same time.
- Every client ends: it begins no query after the deadline, and each has the session's statement_timeout.
- The seed of a run decides which queries are cancelled, and when.

Deliberately absent: what clients do beside queries; the caller changes tables and caches meanwhile.
"""

import json
import multiprocessing
import os
import random
import time

from harness.libpq import QueryError

# Where client n begins: n times as many queries further on.
STRIDE = 7
CANCELLED = "57014"
# How long all clients together may take to connect.
START_S_MAX = 120
# Errors that are kept; there may be as many as queries.
ERRORS_MAX = 5


class Load:
    """What clients run: a function that opens a session, queries by name, and the answers by name, as `sorted_rows` gives them.

    `cancelled_share` of the queries are cancelled after at most `cancelled_after_s` seconds. `compared_share` of the answers are
    looked at: making Python's values of a long one takes longer than some queries.
    """

    def __init__(self, open_session, queries, answers, cancelled_share=0.0, cancelled_after_s=0.3, compared_share=1.0, seed=0):
        self.open_session, self.queries, self.answers = open_session, queries, answers
        self.cancelled_share, self.cancelled_after_s = cancelled_share, cancelled_after_s
        self.compared_share, self.seed = compared_share, seed


class Outcome:
    """What came of a run: how many queries gave their answer and how many were cancelled, in how many seconds, and what went wrong."""

    def __init__(self, clients, answered, cancelled, seconds, errors):
        self.clients, self.answered, self.cancelled, self.seconds, self.errors = clients, answered, cancelled, seconds, errors

    @property
    def rate(self):
        """Answers a second."""
        return self.answered / self.seconds if self.seconds else 0.0

    def line(self, one=None):
        """A line for people; `one`: what one client did."""
        ratio = f", {self.rate / one.rate:.2f} times one client" if one and one.rate else ""
        return (f"{self.clients} clients: {self.answered} answers in {self.seconds:.1f} s, {self.rate:.2f} a second{ratio}, "
                f"{self.cancelled} cancelled, {len(self.errors)} errors")


def sorted_rows(result):
    """An answer as clients compare it: the order of rows that the query leaves open does not count."""
    return sorted(result.rows, key=lambda row: tuple((value is None, value or "") for value in row))


def process_start(pid):
    """When a process of this machine began, as the kernel counts: one that was restarted has another one."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


def run_clients(load, count, seconds, beside=None):
    """Runs so many clients for about so many seconds, and each of them one query at least; returns the Outcome.

    `beside`: what another process does meanwhile, given the time.monotonic() at which it is to end; returns texts of errors.
    """
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(count + 1 + bool(beside))
    started = [_start(context, _client, load, number, seconds, gate) for number in range(count)]
    if beside:
        started.append(_start(context, _beside, beside, seconds, gate))
    gate.wait(START_S_MAX)
    begin = time.monotonic()
    told = [_told(reader) for _, reader in started[:count]]
    elapsed = time.monotonic() - begin
    told += [_told(reader) for _, reader in started[count:]]
    for process, _ in started:
        process.join()
    errors = [text for one in told for text in one["errors"]]
    return Outcome(count, sum(one["answered"] for one in told), sum(one["cancelled"] for one in told), elapsed, errors)


def _start(context, target, *arguments):
    """A process that writes what it has to tell, and where to read that."""
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, writer))
    process.start()
    writer.close()
    return process, reader


def _tell(writer, told):
    writer.send(json.dumps(told))
    writer.close()
    # What the parent has open is not this process's to close.
    os._exit(0)


def _beside(action, seconds, gate, writer):
    gate.wait(START_S_MAX)
    _tell(writer, {"answered": 0, "cancelled": 0, "errors": action(time.monotonic() + seconds)})


def _told(reader):
    try:
        return json.loads(reader.recv())
    except EOFError:
        return {"answered": 0, "cancelled": 0, "errors": ["a client ended without a word"]}


def _client(load, number, seconds, gate, writer):
    """One client, in a process of its own; says at its end what it saw."""
    told = {"answered": 0, "cancelled": 0, "errors": []}
    choose = random.Random(load.seed * 1000 + number)
    session = None
    try:
        session = load.open_session()
    except QueryError as error:
        told["errors"].append(f"client {number}: {error}")
    gate.wait(START_S_MAX)
    deadline = time.monotonic() + seconds
    names = list(load.queries)
    place = number * STRIDE
    while session and len(told["errors"]) < ERRORS_MAX:
        name = names[place % len(names)]
        place += 1
        try:
            _one_query(load, session, name, choose, told)
        except QueryError as error:
            told["errors"].append(f"client {number}, {name}: {error} {error.detail or ''}".rstrip())
        if time.monotonic() >= deadline:
            break
    _tell(writer, told)


def _one_query(load, session, name, choose, told):
    is_cancelled = choose.random() < load.cancelled_share
    try:
        if is_cancelled:
            result = _cancelled_after(session, load.queries[name], choose.uniform(0, load.cancelled_after_s))
        else:
            if choose.random() >= load.compared_share:
                session.receive(load.queries[name])
                told["answered"] += 1
                return
            result = session.run(load.queries[name])
    except QueryError as error:
        if not is_cancelled or error.sqlstate != CANCELLED:
            raise
        told["cancelled"] += 1
        return
    rows, wanted = sorted_rows(result), load.answers[name]
    if rows != wanted:
        different = next((pair for pair in zip(wanted, rows) if pair[0] != pair[1]), "one has more")
        told["errors"].append(f"{name}: {len(rows)} rows, {len(wanted)} wanted, first difference {different}")
    else:
        told["answered"] += 1


def _cancelled_after(session, sql, seconds):
    """Runs a query that is cancelled after a time; its result if it is faster."""
    session.start(sql)
    try:
        return session.finish(seconds)
    except TimeoutError:
        session.cancel()
        return session.finish()
