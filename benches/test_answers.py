"""Tests of the comparison of answers."""

import datetime
import decimal
import unittest

from answers import same_answer


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


if __name__ == "__main__":
    unittest.main()
