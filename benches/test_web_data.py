#!/usr/bin/env python3
"""Tests of the rows of the web workload. Needs pyarrow."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import web_data

ROWS = 20_000


class Rows(unittest.TestCase):
    def test_rows_are_the_same_wherever_a_batch_begins(self):
        whole = web_data.batch(0, 3_000, ROWS)
        for first, count in ((0, 1_000), (1_000, 7), (1_007, 1_993)):
            self.assertEqual(web_data.batch(first, count, ROWS), whole.slice(first, count))

    def test_values_are_those_of_every_host(self):
        self.assertEqual(web_data.user_of(3), 234096216274336655)
        self.assertEqual(web_data.batch(7, 1, ROWS).column("event_time")[0].as_py().isoformat(), "2025-03-01T01:06:07")

    def test_a_row_group_of_batches_has_all_rows(self):
        batches = list(web_data.batches(5, web_data.BATCH_ROWS + 10, 10 * web_data.BATCH_ROWS))
        self.assertEqual([batch.num_rows for batch in batches], [web_data.BATCH_ROWS, 10])

    def test_most_phrases_are_empty_and_few_users_have_many_rows(self):
        rows = web_data.batch(0, ROWS, ROWS)
        empty = sum(phrase == "" for phrase in rows.column("search_phrase").to_pylist()) / ROWS
        self.assertAlmostEqual(empty, 0.87, delta=0.02)
        users = rows.column("user_id").value_counts().field("counts").to_pylist()
        self.assertGreater(max(users), ROWS // 50)
        self.assertGreater(len(users), ROWS // 20)

    def test_one_address_has_one_title_and_one_hash(self):
        rows = web_data.batch(0, ROWS, ROWS)
        pages = set(zip(rows.column("url_hash").to_pylist(), rows.column("url").to_pylist(), rows.column("title").to_pylist()))
        self.assertEqual(len(pages), len(rows.column("url_hash").unique()))


if __name__ == "__main__":
    unittest.main()
