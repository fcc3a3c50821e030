#!/usr/bin/env python3
"""Tests of what a soak decides by, without a server: answers, states of changed tables, what explains an error, what has grown."""

import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness.libpq import QueryError, Result
from soak import changed, measure
from soak.journal import DEATH_GRACE_S, Journal, Trial
from soak.questions import ROWS_KEPT_MAX, Answer, Question
from soak.servers import SERVERS

QUESTION = Question("columns", "q", "edge", "SELECT 1", True)
ROOMY, TINY, GPU = SERVERS[0].name, SERVERS[1].name, SERVERS[2].name
RANKED = next(server.name for server in SERVERS if server.ranks > 1)
ENDED = f'engine of server "{ROOMY}" ended unexpectedly: process 7'


def result(*rows):
    return Result(["v"], [(23, -1)], [(row,) for row in rows], len(rows))


def trial(server=ROOMY):
    made = Trial(server)
    made.end = time.monotonic()
    return made


class Answers(unittest.TestCase):
    def test_a_value_that_differs_is_found_in_few_rows_and_in_many(self):
        for count in (3, ROWS_KEPT_MAX + 1):
            rows = [str(row) for row in range(count)]
            answer = Answer(QUESTION, result(*rows))
            self.assertIsNone(answer.differs_from(result(*rows), QUESTION))
            for other in ([*rows[:-1], "x"], rows[:-1], rows[::-1], [*rows[:-1], None]):
                self.assertIsNotNone(answer.differs_from(result(*other), QUESTION))

    def test_rows_without_an_order_may_come_in_any(self):
        question = Question("columns", "q", "edge", "SELECT 1")
        for count in (3, ROWS_KEPT_MAX + 1):
            rows = [str(row) for row in range(count)]
            self.assertIsNone(Answer(question, result(*rows)).differs_from(result(*rows[::-1]), question))
            self.assertIsNotNone(Answer(question, result(*rows)).differs_from(result(*rows[:-1], rows[0]), question))

    def test_an_error_is_no_answer_but_to_an_error_of_its_class(self):
        error = QueryError("22012", "division by zero")
        self.assertIsNotNone(Answer(QUESTION, result("1")).differs_from(error, QUESTION))
        self.assertIsNotNone(Answer(QUESTION, error).differs_from(result("1"), QUESTION))
        self.assertIsNone(Answer(QUESTION, error).differs_from(QueryError("22003", "out of range"), QUESTION))
        self.assertIsNotNone(Answer(QUESTION, error).differs_from(QueryError("XX000", "internal"), QUESTION))


class Explanations(unittest.TestCase):
    def setUp(self):
        self.journal = Journal(SERVERS, False, echo=lambda *_, **__: None)

    def test_nothing_explains_an_error_by_itself(self):
        for error in (QueryError("57014", "canceling statement"), QueryError("57P01", "terminating connection"), QueryError("08006", ENDED),
                      QueryError("53200", "out of memory"), QueryError("XX000", "internal"), QueryError("40001", "files changed"),
                      QueryError("58000", "the device is lost")):
            self.assertIsNone(self.journal.explains(error, trial()), error)

    def test_each_fault_explains_its_error(self):
        cancelled = trial()
        cancelled.may_be_cancelled = True
        self.assertTrue(self.journal.explains(QueryError("57014", "canceling"), cancelled))
        terminated = trial()
        terminated.was_terminated = terminated.is_lost = True
        self.assertTrue(self.journal.explains(QueryError("08006", "server closed the connection"), terminated))
        self.assertTrue(self.journal.explains(QueryError("53200", "out of memory"), trial(TINY)))
        self.journal.death(ROOMY)
        self.assertTrue(self.journal.explains(QueryError("08006", ENDED), trial()))
        self.assertIsNone(self.journal.explains(QueryError("08006", ENDED.replace(ROOMY, GPU)), trial(GPU)))
        self.assertIsNone(self.journal.explains(QueryError("08006", "server closed the connection"), trial()))

    def test_a_rank_that_was_killed_explains_the_errors_of_its_server(self):
        lost = QueryError("08006", 'server "shared": rank 1 was lost')
        self.journal.death(ROOMY)
        self.assertIsNone(self.journal.explains(lost, trial(RANKED)))
        self.journal.death(RANKED)
        self.assertTrue(self.journal.explains(lost, trial(RANKED)))
        self.assertIsNone(self.journal.explains(QueryError("XX000", "rank 1 failed"), trial(RANKED)))
        self.assertIsNone(self.journal.explains(lost, trial(ROOMY)))

    def test_an_engine_that_was_killed_long_before_explains_nothing(self):
        self.journal.death(ROOMY)
        late = trial()
        late.begin = late.end = time.monotonic() + DEATH_GRACE_S + 1
        self.assertIsNone(self.journal.explains(QueryError("08006", ENDED), late))

    def test_a_lost_session_is_not_excused_by_a_killed_engine(self):
        self.journal.death(ROOMY)
        lost = trial()
        lost.is_lost = True
        self.assertIsNone(self.journal.explains(QueryError("08006", ENDED), lost))


class Changed(unittest.TestCase):
    def test_the_states_of_a_time_are_those_in_force(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name in ("one", "two"):
                files.append(pathlib.Path(folder, name))
                files[-1].write_text(name, encoding="utf-8")
            table = changed.ChangedTable("t", "id integer", files, folder)
            table.answers = [{"q": Answer(QUESTION, result("1"))}, {"q": Answer(QUESTION, result("2"))}]
            kept = changed.statements.Kept("q", [], "SELECT 1")
            table.put(0)
            first = time.monotonic()
            table.put(1)
            self.assertEqual((table.folder / "0.parquet").read_text(encoding="utf-8"), "two")
            second = time.monotonic()
            self.assertEqual((table.states(first, first), table.states(first, second), table.states(second, second)), ({0}, {0, 1}, {1}))
            self.assertIsNone(changed.difference(table, kept, result("1"), first, second))
            self.assertIsNone(changed.difference(table, kept, QueryError("40001", "changed"), first, second))
            self.assertIn("of the states [0]", changed.difference(table, kept, result("1"), second, second))
            self.assertIn("of the states []", changed.difference(table, kept, result("3"), first, second))
            self.assertIsNotNone(changed.difference(table, kept, QueryError("40001", "changed"), second, second))


class Growth(unittest.TestCase):
    def test_what_grows_beyond_what_is_allowed_is_told(self):
        def made(anonymous, descriptors, threads, deleted=()):
            return measure.Process(1, 1, anonymous, anonymous, descriptors, threads, list(deleted))
        before = made(0, 10, 10)
        self.assertEqual(measure.growth("p", before, made(100, 10 + measure.DESCRIPTORS_MAX, 10), 100), ([], 0, 0))
        for after, leaked, descriptors in ((made(101, 10, 10), 1, 0), (made(0, 11 + measure.DESCRIPTORS_MAX, 10), 0, 1),
                                           (made(0, 10, 11 + measure.THREADS_MAX), 0, 0), (made(0, 10, 10, ["/t/spill (deleted)"]), 0, 0)):
            found = measure.growth("p", before, after, 100)
            self.assertEqual((len(found[0]), *found[1:]), (1, leaked, descriptors))

    def test_what_grows_in_every_part_is_told(self):
        def moments(*megabytes):
            return [measure.Process(1, 1, size << 20, 0, 1, 1) for size in megabytes]
        self.assertEqual(measure.steady_growth("p", moments(100, 150, 200, 210)), [])
        self.assertEqual(len(measure.steady_growth("p", moments(100, 150, 200, 250))), 1)

    def test_lines_of_a_log_that_nothing_explains(self):
        with tempfile.NamedTemporaryFile("w+", suffix=".log") as file:
            file.write("2026-01-01 LOG:  before\n")
            file.flush()
            log = measure.Log(file.name)
            file.write("2026 [1] soak ERROR:  division by zero\n2026 [1] soak STATEMENT:  SELECT 1\n2026 [2] soak ERROR:  internal error: x\n"
                       "2026 [3]  LOG:  server process (PID 8) was terminated by signal 11\nthread 'a' panicked at b.rs:1\n"
                       "thread 'a' panicked at b.rs:2\nsomething else\n")
            file.flush()
            found = log.unexpected()
            self.assertEqual(len(found), 4, found)
            self.assertTrue(any(text.startswith("2 times: thread") for text in found))



if __name__ == "__main__":
    unittest.main()
