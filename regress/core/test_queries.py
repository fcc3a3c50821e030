#!/usr/bin/env python3
"""Tests of what is taken from statements, without a server: `python3 regress/core/test_queries.py`."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from core.queries import query_of, statement_hash


def body(text, prepared=None):
    query = query_of(text, {} if prepared is None else prepared)
    return query and query.text.strip()


class Queries(unittest.TestCase):
    def test_queries_within_statements(self):
        self.assertEqual(body("SELECT a FROM t"), "SELECT a FROM t")
        self.assertEqual(body("(SELECT 1) UNION SELECT 2"), "(SELECT 1) UNION SELECT 2")
        self.assertEqual(body("SELECT a INTO TEMP TABLE x FROM t"), "SELECT a FROM t")
        self.assertEqual(body("CREATE TABLE x (a) AS SELECT 1 WITH NO DATA"), "SELECT 1")
        self.assertEqual(body("DECLARE c SCROLL CURSOR FOR SELECT 1"), "SELECT 1")
        self.assertEqual(body("INSERT INTO x (a) SELECT 1 ON CONFLICT DO NOTHING"), "SELECT 1")
        self.assertEqual(body("COPY (SELECT (1)) TO stdout"), "SELECT (1)")

    def test_what_is_no_query(self):
        for text in ("CREATE TABLE x (a int)", "INSERT INTO x VALUES (1)", "COPY x TO stdout", "SET a = b", "SELECT 1; SELECT 2", "EXECUTE p"):
            self.assertIsNone(body(text), text)

    def test_prepared_queries(self):
        prepared = {}
        self.assertIsNone(body("PREPARE p (int) AS SELECT $1", prepared))
        query = query_of("EXECUTE p (2)", prepared)
        self.assertEqual((query.prepare, query.text), ("PREPARE {name}  (int) AS SELECT $1", "EXECUTE {name}  (2)"))

    def test_what_can_not_be_compared(self):
        reasons = [query_of(text, {}).reason for text in (
            "SELECT random() FROM t", "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "SELECT ctid FROM t",
            "SELECT tableoid::regclass FROM t", "SELECT a FROM t FOR UPDATE", "SELECT 'insert' FROM t")]
        self.assertEqual([reason is not None for reason in reasons], [True, True, True, False, False, False])

    def test_names(self):
        self.assertEqual(query_of('SELECT t.x FROM "Tab" t, s.u, V', {}).identifiers & {"Tab", "x", "u", "v", "tab"}, {"Tab", "v"})

    def test_keys_of_order(self):
        query = query_of("SELECT a, b + 1 AS c FROM (SELECT 1 ORDER BY 2) x ORDER BY 2 DESC, x.a NULLS FIRST, f(b), a LIMIT 1", {})
        self.assertTrue(query.ordered)
        self.assertEqual(query.order_keys(["a", "c"]), [1, 0])

    def test_keys_as_columns(self):
        query = query_of("SELECT a FROM t ORDER BY a, b <> c DESC NULLS LAST, f(1, 2) LIMIT 3", {})
        self.assertEqual(query.with_keys(["a"]), ("SELECT a , (b <> c), (f(1, 2)) FROM t ORDER BY a, b <> c DESC NULLS LAST, f(1, 2) LIMIT 3", 2))
        self.assertEqual(query_of("SELECT a FROM t UNION SELECT b FROM u ORDER BY a + 1", {}).with_keys(["a"]), (None, 0))

    def test_parameters(self):
        self.assertEqual(query_of("SELECT a - 1 FROM t WHERE a <= 5 AND f(3) GROUP BY a - 1 LIMIT 4", {}).with_parameters(),
                         ("SELECT a - $1 FROM t WHERE a <= $2 AND f(3) GROUP BY a - $1 LIMIT 4", ["1", "5"]))

    def test_hashes_know_neither_space_nor_comments(self):
        self.assertEqual(statement_hash("SELECT  1 -- one\n, 2"), statement_hash("SELECT 1, 2"))


if __name__ == "__main__":
    unittest.main()
