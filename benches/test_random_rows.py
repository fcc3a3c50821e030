#!/usr/bin/env python3
"""Tests of the rows that joins are measured with. Needs pyarrow."""

import pathlib
import sys
import tempfile
import unittest

import pyarrow.parquet

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import random_rows


class Rows(unittest.TestCase):
    def test_build_keys_are_all_numbers_once(self):
        build, _ = random_rows.sides(5000, 1, 1, 0.5)
        keys = build.table(0, 5000)["k"].to_pylist()
        self.assertEqual(sorted(keys), list(range(5000)))
        self.assertNotEqual(keys, sorted(keys))

    def test_a_share_of_the_probe_rows_finds_a_match(self):
        for ratio in (0.5, 0.3):
            _, probe = random_rows.sides(1000, 20000, 1, ratio)
            keys = probe.table(0, 20000)["k"].to_pylist()
            self.assertAlmostEqual(sum(key < 1000 for key in keys) / len(keys), ratio, delta=0.02)
            self.assertGreaterEqual(min(keys), 0)

    def test_rows_are_the_same_wherever_a_part_begins(self):
        for side in random_rows.sides(3000, 3000, 3, 0.5):
            whole = side.table(0, 3000)
            self.assertEqual(side.table(700, 100), whole.slice(700, 100).combine_chunks())

    def test_values_of_columns_and_sides_are_not_alike(self):
        columns = [side.table(0, 200)[name].to_pylist() for side in random_rows.sides(200, 200, 3, 0.5) for name in ("v1", "v2")]
        values = [value for column in columns for value in column]
        self.assertEqual(len(set(values)), len(values))
        self.assertTrue(all(0 <= value < 1 << 63 for value in values))
        self.assertGreater(max(values), 1 << 62)

    def test_files_hold_all_rows_in_row_groups_and_no_nulls(self):
        build, _ = random_rows.sides(10001, 1, 2, 0.5)
        with tempfile.TemporaryDirectory() as folder:
            written = random_rows.write(build, folder, 3)
            files = sorted(written.iterdir())
            self.assertEqual(len(files), 3)
            self.assertFalse(any(field.nullable for file in files for field in pyarrow.parquet.read_schema(file)))
            self.assertGreaterEqual(sum(pyarrow.parquet.ParquetFile(file).num_row_groups for file in files), random_rows.ROW_GROUPS_MIN)
            read = pyarrow.concat_tables([pyarrow.parquet.read_table(file) for file in files])
            self.assertEqual(read.sort_by("k")["k"].to_pylist(), list(range(10001)))
            self.assertEqual(sorted(read["v1"].to_pylist()), sorted(build.table(0, 10001)["v1"].to_pylist()))

    def test_a_table_for_which_there_is_no_room_is_not_begun(self):
        build, _ = random_rows.sides(random_rows.ROWS_MAX - 1, 1, 10**6, 0.5)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(OSError, "GB are free"):
                random_rows.write(build, folder, 1)
            self.assertEqual(list(pathlib.Path(folder, "build").iterdir()), [])

    def test_too_many_rows_are_an_error_that_names_the_limit(self):
        with self.assertRaisesRegex(ValueError, str(random_rows.ROWS_MAX - 1)):
            random_rows.sides(random_rows.ROWS_MAX, 1, 1, 0.5)


if __name__ == "__main__":
    unittest.main()
