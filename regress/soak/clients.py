"""The sessions of a soak: each asks, at random, and cancels, leaves, or keeps cursors open.

Invariants:
- What a client does follows from the run's seed and its number; what the server makes of it depends on time too.
- A keeper's session lasts for the whole run, so that the memory that a backend gathers can be measured; it is never ended.
- Every wait has an end: no answer in time (`Client._finish`) is a finding.

Deliberately absent: faults of processes (breaker.py); what explains errors (journal.py).
"""

import contextlib
import random
import threading
import time
import traceback

from harness.libpq import QueryError, Result, Session
from soak import changed
from soak.journal import CANCEL_GRACE_S, Trial

# Longer than the slowest query takes on a busy machine, an engine that starts again included. Where the engine computes all the
# time, the machine may just be busier than that: then it is the second.
ANSWER_S_MAX, ANSWER_S_LONGEST = 180, 900
# A backend hears a cancel while it waits for an engine, even for one that is stopped; what is more is the machine's business.
CANCEL_S_MAX = 15
# How many questions in turn a session asks of one server.
QUESTIONS_IN_TURN = 25
# What is done with a question, and how often.
ACTS = {"plain": 60, "cancel": 14, "timeout": 5, "cursor": 9, "savepoint": 4, "explain": 2, "drop": 3, "close": 2}
# Acts for questions of more statements than one.
SIMPLE_ACTS = ("plain", "cancel", "timeout", "drop", "close")
GPU_SWITCHES = ("cache", "concurrent_builds", "dictionary_codes", "exchange_broadcast_choice", "exchange_filters", "exchange_gathering",
                "exchange_overlap", "page_skipping", "reader_combining", "regulation", "runtime_filters", "segments")


def _statements(statements):
    """Statements in one line."""
    return " ".join("; ".join(statements).split())


class Client:
    """A session after another, or one for all the time (`is_keeper`)."""

    def __init__(self, soak, number, is_keeper=False):
        self.soak, self.number, self.is_keeper = soak, number, is_keeper
        self.random = random.Random(f"{soak.seed} client {number}")
        self.session, self.oracle, self.server, self.left = None, None, None, 0
        self.kept, self.cancelled_at, self.settings = set(), 0.0, ""
        self._guard, self._is_terminated = threading.Lock(), False

    def run(self, until):
        """Asks until a time."""
        try:
            self.oracle = Session(self.soak.conninfo)
            while time.monotonic() < until:
                self.step()
        except Exception:  # the driver's own failure must be seen, and must not end the run
            self.soak.journal.finding("the driver failed", f"client {self.number}\n{traceback.format_exc()}")
        finally:
            if self.oracle:
                self.oracle.close()
            if not self.is_keeper:
                self.leave()

    def open(self):
        """Begins a session."""
        with self._guard:
            self._is_terminated = False
            self.session = Session(self.soak.conninfo, ["SET client_min_messages = warning"])
        self.kept.clear()
        self.soak.journal.count("sessions")

    def leave(self):
        """Ends the session."""
        with self._guard:
            session, self.session = self.session, None
        if session:
            session.close()

    def victim(self):
        """The process of the session, which from now on may be lost; None where it must not be."""
        with self._guard:
            if self.is_keeper or not self.session:
                return None
            self._is_terminated = True
            return self.session.backend_pid

    def step(self):
        """One question."""
        self._take_session()
        suites = list(self.soak.suites)
        question = self.soak.catalogue.choose(self.random, suites)
        trial = Trial(self.server.name)
        trial.may_be_cancelled = time.monotonic() - self.cancelled_at < CANCEL_GRACE_S
        if question == "changed":
            self._ask_changed(trial)
        else:
            self._ask(question, trial)

    # -- sessions and settings -----------------------------------------------------------------------------

    def _take_session(self):
        if self.session and self.left > 0:
            self.left -= 1
            return
        self.left = self.random.randint(1, QUESTIONS_IN_TURN)
        self.server = self.random.choice(self.soak.servers)
        if self.session and (self.is_keeper or self.random.random() < 0.5):
            # Another server in the same session, whose backend then holds connections to both.
            with contextlib.suppress(QueryError):
                self.session.run("DISCARD ALL")
                self.kept.clear()
                return
        self.leave()
        self.open()

    def _choose_settings(self, schema, own=""):
        settings = [f"SET search_path = {schema}, public"]
        if self.server.is_gpu:
            settings.append(f"SET pystachio.engine_choice = {self.random.choice(['gpu'] * 5 + ['auto', 'cpu'])}")
            settings += [f"SET pystachio.gpu_{switch} = off" for switch in GPU_SWITCHES if self.random.random() < 0.02]
        if self.random.random() < 0.15:
            settings.append(f"SET pystachio.batch_rows = {self.random.choice([64, 65, 1000, 65536])}")
        if self.random.random() < 0.1:
            settings.append(f"SET plan_cache_mode = {self.random.choice(['force_generic_plan', 'force_custom_plan'])}")
        if self.random.random() < 0.05:
            settings.append("SET pystachio.timeline = on")
        if own:
            settings.append(own)
        self.settings = "; ".join(settings)

    # -- asking --------------------------------------------------------------------------------------------

    def _ask(self, question, trial):
        answer = self.soak.catalogue.answer(question, self.oracle)
        if answer is None:
            self.soak.journal.count("questions that heap tables don't answer")
            return
        self._choose_settings(question.schema(self.server), question.settings)
        act = self._choose_act(None if question.is_regular else SIMPLE_ACTS)
        outcome = self._outcome(act, question.prepare, question.sql, question.cleanup, trial)
        self.soak.journal.count("queries")
        if outcome is None:
            return
        if isinstance(outcome, QueryError) and self._is_explained(outcome, trial):
            return
        failure = answer.differs_from(outcome, question)
        self.soak.journal.count("answers compared")
        if failure is None:
            return
        again = self._again(question, answer)
        text = _statements([*question.prepare, question.sql])
        self._report(outcome, f"{question.suite} {question.name} ({act})\n    {failure}\n    {again}", trial, text)

    def _ask_changed(self, trial):
        table, kept = self.soak.changed.question(self.server, self.random)
        self._choose_settings("public")
        outcome = None
        try:
            self._begin()
            if kept.prepare and not changed.is_function(kept) and kept.call not in self.kept:
                kept.make(self.session)
                self.kept.add(kept.call)
            trial.begin = time.monotonic()
            outcome = kept.run(self.session)
        except QueryError as error:
            outcome = error
        trial.ended(self.session)
        self.soak.journal.count("queries")
        if isinstance(outcome, QueryError) and self._is_explained(outcome, trial):
            return
        failure = changed.difference(table, kept, outcome, trial.begin, trial.end)
        self.soak.journal.count("answers compared")
        if isinstance(outcome, QueryError) and failure is None and outcome.sqlstate == changed.FILES_CHANGED:
            self.soak.journal.count("files changed (40001)")
        if failure:
            text = _statements([*kept.prepare, kept.call])
            self._report(outcome, f"changed {table.name}, {kept.name}\n    {failure}", trial, text)

    def _choose_act(self, allowed):
        acts = {act: weight for act, weight in ACTS.items() if not (allowed and act not in allowed) and not (self.is_keeper and act in ("drop", "close"))}
        return self.random.choices(list(acts), list(acts.values()))[0]

    def _begin(self):
        self.session.start(f"RESET ALL; SET client_min_messages = warning; {self.settings}")
        self._finish()

    def _outcome(self, act, prepare, sql, cleanup, trial):
        """The result, the error, or None where the act gives nothing to compare."""
        try:
            self._begin()
            for statement in prepare:
                self.session.start(statement)
                self._finish()
            trial.begin = time.monotonic()
            result = getattr(self, f"_{act}")(sql, trial)
        except QueryError as error:
            result = error
        except TimeoutError:
            self._hang(sql)
            return None
        if self.session:
            trial.ended(self.session)
            if not trial.is_lost:
                for statement in cleanup:
                    with contextlib.suppress(QueryError):
                        self.session.run(statement)
        return result

    def _is_explained(self, error, trial):
        """Counts an error that something explains. Where the session is lost, another one follows."""
        trial.was_terminated = self._is_terminated
        reason = self.soak.journal.explains(error, trial)
        if trial.is_lost:
            self.leave()
            self.soak.journal.count("sessions terminated" if reason else "sessions lost")
        if reason:
            self.soak.journal.count(f"errors: {reason}")
        return bool(reason)

    def _report(self, outcome, text, trial, sql):
        kind = "unexpected error" if isinstance(outcome, QueryError) else "wrong answer"
        if isinstance(outcome, QueryError):
            text += f"\n    {outcome} {outcome.detail or ''} {outcome.hint or ''}".rstrip()
        self.soak.journal.count("wrong answers" if kind == "wrong answer" else "unexpected errors")
        self.soak.journal.finding(kind, f"client {self.number} on {trial.server}, {trial.begin - self.soak.begin:.1f} to "
                                  f"{trial.end - self.soak.begin:.1f} s: {text}", f"{self.settings}; {sql}")

    def _again(self, question, answer):
        """Whether the same question gives the same again, in the same session."""
        try:
            self._begin()
            for statement in question.prepare:
                self.session.run(statement)
            self.session.start(question.sql)
            failure = answer.differs_from(self._finish(), question)
            for statement in question.cleanup:
                self.session.run(statement)
            return f"asked again: {'the same as heap tables' if failure is None else failure}"
        except (QueryError, TimeoutError, AttributeError) as error:
            return f"asked again: {error}"

    def _finish(self):
        """Waits for the answer, on a busy machine for longer; raises TimeoutError where there is none."""
        begin = time.monotonic()
        while True:
            try:
                return self.session.finish(ANSWER_S_MAX)
            except TimeoutError:
                if time.monotonic() - begin > ANSWER_S_LONGEST or not self.soak.computes(self.server):
                    raise
                self.soak.journal.count("answers that the machine was too busy for")

    def _hang(self, sql):
        """A query that does not end. The session is left as it is for inspection, until the run ends."""
        pid = self.session.backend_pid
        state = self.soak.look()
        self.soak.journal.finding("no answer", f"client {self.number}, backend {pid}, on {self.server.name}: no answer in time\n"
                                  f"    {sql}\n{state}", f"{self.settings}; {sql}")
        with contextlib.suppress(QueryError):
            self.session.cancel()
        self.leave()

    def _delay_s(self, longest=1.0):
        """Short delays are as likely as long ones."""
        return longest * 10 ** self.random.uniform(-3, 0)

    # -- acts ----------------------------------------------------------------------------------------------

    def _plain(self, sql, _):
        self.session.start(sql)
        return self._finish()

    def _cancel(self, sql, trial):
        self.session.start(sql)
        try:
            return self.session.finish(self._delay_s())
        except TimeoutError:
            pass
        self.soak.journal.fault("cancel")
        trial.may_be_cancelled, self.cancelled_at = True, time.monotonic()
        with contextlib.suppress(QueryError):
            # Without a connection slot to ask on, the query is not cancelled.
            self.session.cancel()
        begin = time.monotonic()
        try:
            return self._finish()
        except QueryError as error:
            took_s = time.monotonic() - begin
            self.soak.journal.cancelled(took_s)
            if took_s > CANCEL_S_MAX and error.sqlstate == "57014":
                self.soak.journal.finding("a slow cancel", f"client {self.number} on {self.server.name}: {took_s:.1f} s\n    {sql}",
                                          f"{self.settings}; {sql}")
            raise

    def _timeout(self, sql, trial):
        self.session.run(f"SET statement_timeout = {max(1, int(1000 * self._delay_s()))}")
        trial.may_be_cancelled = True
        self.soak.journal.fault("statement_timeout")
        return self._plain(sql, trial)

    def _cursor(self, sql, trial):
        names, types, rows = None, None, []
        try:
            self.session.run(f"BEGIN; DECLARE asked NO SCROLL CURSOR FOR {sql}")
            for _ in range(self.random.randint(0, 3)):
                rows += self._plain(f"FETCH {self.random.randint(1, 200)} FROM asked", trial).rows
            if self.random.random() < 0.3:
                self.soak.journal.fault("cursor left")
                return None
            result = self._plain("FETCH ALL FROM asked", trial)
            names, types = result.names, result.types
            return Result(names, types, rows + result.rows, 0)
        finally:
            with contextlib.suppress(QueryError):
                self.session.run(self.random.choice(["ROLLBACK", "COMMIT", "CLOSE ALL; COMMIT", "ROLLBACK"]))
            with contextlib.suppress(QueryError):
                self.session.run("ROLLBACK") if self.session.transaction != "idle" else None

    def _savepoint(self, sql, trial):
        """A query that may be cancelled in a subtransaction, and again after it."""
        try:
            self.session.run("BEGIN; SAVEPOINT before")
            try:
                self._cancel(sql, trial)
            except QueryError as error:
                # Whatever else it is, the same query is likely to fail with it again, outside.
                if self.session.transaction == "unknown" or error.sqlstate != "57014":
                    raise
                self.session.run("ROLLBACK TO before")
            return self._plain(sql, trial)
        finally:
            with contextlib.suppress(QueryError):
                self.session.run("ROLLBACK")

    def _explain(self, sql, trial):
        self._plain(f"EXPLAIN (ANALYZE, VERBOSE) {sql}", trial)

    def _drop(self, sql, _):
        self.session.start(sql)
        time.sleep(self._delay_s())
        self.soak.journal.fault("socket dropped")
        self.session.drop_socket()
        self.leave()

    def _close(self, sql, _):
        self.session.start(sql)
        time.sleep(self._delay_s())
        self.soak.journal.fault("session closed in a query")
        self.leave()


class Holder(Client):
    """Opens cursors, reads a little, waits, and reads the rest or goes."""

    def step(self):
        self.left = 0
        self._take_session()
        self._choose_settings(f"{self.server.name}_tpch")
        cursors, trial = [], Trial(self.server.name)
        try:
            self._begin()
            self.session.run("BEGIN")
            suites = [suite for suite in ("rows", "tpch", "spill") if suite in self.soak.suites] or ["rows"]
            for number in range(self.random.randint(1, 5)):
                question = self.soak.catalogue.choose(self.random, suites)
                answer = self.soak.catalogue.answer(question, self.oracle)
                self.session.run(f"DECLARE c{number} NO SCROLL CURSOR FOR {question.sql}")
                cursors.append((question, answer, self._fetch(number, self.random.choice(["1", "10", "1000"])).rows))
                self.soak.journal.count("queries")
                self.soak.journal.fault("cursor open")
            time.sleep(self.random.uniform(0, 4))
            for number in self.random.sample(range(len(cursors)), len(cursors)):
                self._end_cursor(number, cursors, trial)
            self.session.run(self.random.choice(["COMMIT", "ROLLBACK"]))
        except QueryError as error:
            trial.ended(self.session)
            if not self._is_explained(error, trial):
                self._report(error, f"open cursors: {[question.name for question, _, _ in cursors]}", trial, "cursors")
            elif self.session:
                with contextlib.suppress(QueryError):
                    self.session.run("ROLLBACK")
        except TimeoutError:
            self._hang(f"open cursors over {[question.sql for question, _, _ in cursors]}")

    def _fetch(self, number, count):
        self.session.start(f"FETCH {count} FROM c{number}")
        return self._finish()

    def _end_cursor(self, number, cursors, trial):
        question, answer, rows = cursors[number]
        choice = self.random.random()
        if choice < 0.2:
            self.session.run(f"CLOSE c{number}")
        elif choice < 0.85:
            rest = self._fetch(number, "ALL")
            outcome = Result(rest.names, rest.types, rows + rest.rows, 0)
            failure = answer.differs_from(outcome, question)
            self.soak.journal.count("answers compared")
            if failure:
                trial.ended(self.session)
                self._report(outcome, f"{question.suite} {question.name}, an open cursor\n    {question.sql}\n    {failure}", trial, question.sql)
