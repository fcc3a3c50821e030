#!/usr/bin/env python3
"""Tests of the splitter, without a server: `python3 regress/core/test_statements.py`."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from core.statements import Meta, Script, Statement, set_arguments, tokens


def split(text, **variables):
    """What a script holds: texts of statements, (command, arguments) of meta commands."""
    return [element.text if isinstance(element, Statement) and not element.command
            else (element.text, element.command, element.arguments) if isinstance(element, Statement)
            else (element.command, element.arguments) for element in Script(text, variables).elements()]


class Splitting(unittest.TestCase):
    def test_semicolons_in_quotes_and_comments_end_nothing(self):
        self.assertEqual(split("SELECT ';' , \";\" -- ;\n, 1; /* ; /* ; */ ; */ SELECT 2;"),
                         ["SELECT ';' , \";\"  \n, 1", "SELECT 2"])

    def test_dollar_quotes(self):
        self.assertEqual(split("DO $$ BEGIN; END $$; SELECT $a$ $b$ ; $a$, $1;"), ["DO $$ BEGIN; END $$", "SELECT $a$ $b$ ; $a$, $1"])

    def test_a_dollar_within_a_word_quotes_nothing(self):
        self.assertEqual(split("SELECT a$b$c; SELECT 2;"), ["SELECT a$b$c", "SELECT 2"])

    def test_backslashes_escape_in_e_strings_only(self):
        self.assertEqual(split(r"SELECT E'\';', '\'; SELECT 2;"), [r"SELECT E'\';', '\'", "SELECT 2"])

    def test_backslashes_escape_where_strings_do_not_conform(self):
        script = Script(r"SELECT '\';'; SELECT 2;", {})
        script.backslash_quotes = True
        self.assertEqual([element.text for element in script.elements()], [r"SELECT '\';'", "SELECT 2"])

    def test_semicolons_in_parentheses(self):
        self.assertEqual(split("CREATE RULE r AS ON UPDATE TO t DO (SELECT 1; SELECT 2); SELECT 3;"),
                         ["CREATE RULE r AS ON UPDATE TO t DO (SELECT 1; SELECT 2)", "SELECT 3"])

    def test_atomic_bodies(self):
        body = "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END"
        self.assertEqual(split(body + "; SELECT 3;"), [body, "SELECT 3"])
        self.assertEqual(split("BEGIN; SELECT 1; END;"), ["BEGIN", "SELECT 1", "END"])

    def test_commands_that_send(self):
        self.assertEqual(split("SELECT 1 AS a \\gset p_\nSELECT 2\n\\g\n\\d t\nSELECT 3;"),
                         [("SELECT 1 AS a", "gset", "p_"), ("SELECT 2", "g", ""), ("d", "t"), "SELECT 3"])

    def test_joined_statements(self):
        self.assertEqual(split("SELECT 1\\; SELECT 2;"), ["SELECT 1; SELECT 2"])

    def test_variables(self):
        self.assertEqual(split("SELECT :a, :'a', :\"a\", x::int, y[1:2], ':a', :b, :{?a};", a="it's"),
                         ["SELECT it's, 'it''s', \"it's\", x::int, y[1:2], ':a', :b, TRUE"])

    def test_a_variable_set_between_statements_is_seen(self):
        variables = {}
        script, found = Script("\\set a 5\nSELECT :a;", variables), []
        for element in script.elements():
            if isinstance(element, Meta):
                variables["a"] = "5"
            else:
                found.append(element.text)
        self.assertEqual(found, ["SELECT 5"])

    def test_rows_of_copy(self):
        script, found = Script("COPY t FROM stdin;\n1;\n'\n\\.\nSELECT 1;", {}), []
        for element in script.elements():
            found.append(element.text)
            if element.text.startswith("COPY"):
                found.append(script.copy_rows())
        self.assertEqual(found, ["COPY t FROM stdin", "1;\n'\n", "SELECT 1"])

    def test_lines_count_from_the_first_word(self):
        self.assertEqual([element.line for element in Script("-- a\n\nSELECT\n1;\nSELECT 2;", {}).elements()], [3, 5])

    def test_arguments_of_set(self):
        self.assertEqual(set_arguments("filename :folder '/data/one.data'", {"folder": "/x"}), ["filename", "/x", "/data/one.data"])

    def test_tokens_know_their_nesting(self):
        found = [(token.text, token.nesting, token.offset) for token in tokens("a(b, 'c d')")]
        self.assertEqual(found, [("a", 0, 0), ("(", 0, 1), ("b", 1, 2), (",", 1, 3), ("'c d'", 1, 5), (")", 0, 10)])


if __name__ == "__main__":
    unittest.main()
