#!/usr/bin/env python3
"""Tests of the Parquet files, without a server: run with the Python of scripts/core.sh, which has pyarrow."""

import pathlib
import random
import sys
import tempfile
import unittest

import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from core.forms import Form, Unwritable, array_items, decimal_shape
from core.mirror import Column

COLUMNS = [Column("i", "int4"), Column("t", "text"), Column("n", "numeric", precision=5, scale=2), Column("s", "timestamp"),
           Column("c", "time"), Column("d", "date"), Column("f", "float8"), Column("b", "bool"), Column("u", "uuid"),
           Column("y", "bytea"), Column("a", "int4", array=True), Column("z", "timestamptz"), Column("k", "int8", not_null=True)]
ROWS = [
    ["1", "one", "1.50", "1000", "5000", "3", "NaN", "t", "00000000-0000-0000-0000-000000000001", "\\x00ff", "{1,NULL}", "7", "1"],
    [None] * 12 + ["2"],
    ["-7", "", "-999.99", "-5", "1", "-800", "-0", "f", "ffffffff-ffff-ffff-ffff-ffffffffffff", "\\x", "{}", "-1", "3"],
]


class Forms(unittest.TestCase):
    def test_every_form_holds_the_rows(self):
        for seed in range(200):
            with tempfile.TemporaryDirectory() as folder:
                folder, form = pathlib.Path(folder), Form(random.Random(seed))
                form.write(folder, COLUMNS, [list(column) for column in zip(*ROWS)])
                table = pq.ParquetDataset(folder).read()
                with self.subTest(seed=seed, form=form.text):
                    self.assertEqual(table["i"].to_pylist(), [1, None, -7])
                    self.assertEqual(table["t"].to_pylist(), ["one", None, ""])
                    self.assertEqual([value and str(value) for value in table["n"].to_pylist()], ["1.50", None, "-999.99"])
                    self.assertEqual(table["a"].to_pylist(), [[1, None], None, []])
                    self.assertEqual([value.value if value.is_valid else None for value in table["s"].cast("timestamp[us]").combine_chunks()],
                                     [1000, None, -5])

    def test_no_rows(self):
        for seed in range(20):
            with tempfile.TemporaryDirectory() as folder:
                Form(random.Random(seed)).write(pathlib.Path(folder), COLUMNS, [[] for _ in COLUMNS])
                self.assertEqual(pq.ParquetDataset(folder).read().num_rows, 0)

    def test_arrays_as_they_are_printed(self):
        self.assertEqual(array_items('{a,"b,\\"c",NULL,"NULL"}'), ["a", 'b,"c', None, "NULL"])
        for text in ("{{1},{2}}", "[0:1]={1,2}"):
            with self.assertRaises(Unwritable):
                array_items(text)

    def test_shapes_of_numerics(self):
        self.assertEqual(decimal_shape(["1.5", "-0.001", "100"]), (6, 3))
        with self.assertRaises(Unwritable):
            decimal_shape(["NaN"])


if __name__ == "__main__":
    unittest.main()
