"""Tests of the comparison of answers."""

import datetime
import decimal
import pathlib
import tempfile
import unittest

from answers import keep_answer, same_answer


class Answers(unittest.TestCase):
    def test_forms_of_one_value_agree(self):
        moment = datetime.datetime(2025, 3, 1, 22, 42, 14, 400000)
        for text, value in [("t", True), ("f", False), ("2025-03-01 22:42:14.4", moment), ("2025-03-01 22:42:14.4+00", moment),
                            ("1992-01-01 00:00:00+00", datetime.date(1992, 1, 1)), ("1992-01-01", datetime.datetime(1992, 1, 1)),
                            ("x", "x  "), ("1.50", decimal.Decimal("1.5")), ("0.3333333333", 1 / 3), (None, None)]:
            self.assertIsNone(same_answer([(text,)], [(value,)]), (text, value))

    def test_other_values_differ(self):
        for text, value in [("t", False), ("2025-03-01 22:42:14.4", datetime.datetime(2025, 3, 1, 22, 42, 14)), ("a", "b"), ("1.5", 1.6), (None, 0),
                            ("1992-01-01", datetime.date(1992, 1, 2))]:
            self.assertIsNotNone(same_answer([(text,)], [(value,)]), (text, value))

    def test_counts_of_rows_count(self):
        self.assertIsNotNone(same_answer([("1",)], [("1",), ("1",)]))

    def test_answers_that_are_kept_are_compared_whichever_came_first(self):
        with tempfile.TemporaryDirectory() as folder:
            keep = lambda configuration, rows: keep_answer(pathlib.Path(folder) / "new", "q01", configuration, rows)
            self.assertEqual(keep("all", [("1", None)]), {})
            self.assertEqual(keep("fastest", [("2", None)]), {})
            self.assertEqual(keep("one", [("1", None)]), {"all": None, "fastest": "1 rows against 1, row 1 is the first that differs"})
            self.assertEqual(keep("fastest", [("1", None), ("3", "x")]), {"fastest": "2 rows against 1, row 2 is the first that differs"})


if __name__ == "__main__":
    unittest.main()
