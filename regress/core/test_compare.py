#!/usr/bin/env python3
"""Tests of what counts as the same, without a server."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from core.compare import Outcome, stable_part_differs
from harness.libpq import QueryError


def failed(message, sqlstate="22P02"):
    return Outcome(error=QueryError(sqlstate, message))


class Errors(unittest.TestCase):
    def test_the_value_that_was_met_first_is_open(self):
        heap = [failed('invalid input syntax for type box: "(1,2)"'), failed('invalid input syntax for type box: "(3,4)"')]
        self.assertIsNone(stable_part_differs(heap[0], heap[1:], failed('invalid input syntax for type box: "(5,6)"')))

    def test_what_is_wrong_with_it_is_not(self):
        heap = [failed('invalid input syntax for type box: "(1,2)"'), failed('invalid input syntax for type box: "(3,4)"')]
        self.assertIsNotNone(stable_part_differs(heap[0], heap[1:], failed('invalid input syntax for type point: "(5,6)"')))
        self.assertIsNotNone(stable_part_differs(heap[0], heap[1:], failed('invalid input syntax for type box: "(5,6)"', "XX000")))


if __name__ == "__main__":
    unittest.main()
