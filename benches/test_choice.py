"""How a choice is compared with the better engine."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

import gpu_choice  # noqa: E402


class Summary(unittest.TestCase):
    def test_the_better_engine_of_each_row_counts(self):
        rows = [{"query": "a", "cpu": 2.0, "gpu": 1.0, "auto": 1.0}, {"query": "b", "cpu": 1.0, "gpu": 3.0, "auto": 4.0}]
        mean, greatest, row = gpu_choice.summary(rows)
        self.assertAlmostEqual(mean, 2.0)
        self.assertEqual((greatest, row["query"]), (4.0, "b"))


if __name__ == "__main__":
    unittest.main()
