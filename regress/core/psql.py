"""Runs the suite's files in a session as psql does, and passes each statement to the comparison before it runs.

Deliberately absent: what psql prints. Commands that only show something (`\\d`, `\\echo`, …) are counted and left out.
"""

import re

from harness.libpq import QueryError, Session

from .statements import Meta, Script, Statement, set_arguments

_BASE_TIMEOUT = "60s"
_TRUE, _FALSE = {"true", "on", "1", "yes", "t"}, {"false", "off", "0", "no", "f", ""}


class Client:
    """A psql without a screen. `before(statement, text)` is called before each statement that is to run, and may say by False that
    it is left out; `counts` is a Counter."""

    def __init__(self, conninfo, environment, before, counts):
        self.conninfo, self.environment, self.before, self.counts = conninfo, environment, before, counts
        self.session = None

    def run_file(self, path):
        """Runs one file in a session of its own. Yields nothing; errors of statements are part of the suite."""
        self.variables = {"DBNAME": "regression", "HOST": "", "USER": "postgres", "SERVER_VERSION_NUM": "150000", "SHOW_ALL_RESULTS": "on"}
        self.conditions = []
        self.connect()
        self.variables["SERVER_VERSION_NUM"] = self.session.run("SHOW server_version_num").scalar()
        script = Script(path.read_text(encoding="utf-8", errors="replace"), self.variables)
        try:
            for element in script.elements():
                if isinstance(element, Meta):
                    if self._command(element) == "quit":
                        break
                elif all(self.conditions):
                    self._statement(element, script)
        finally:
            self.session.close()

    def connect(self, user="postgres"):
        """Begins a new session."""
        if self.session:
            self.session.close()
        self.session = Session(f"{self.conninfo} dbname=regression user={user}", [f"SET statement_timeout = '{_BASE_TIMEOUT}'"])

    def _statement(self, statement, script):
        if self.session.transaction == "unknown":
            self.counts["connections lost"] += 1
            self.connect()
        if statement.command not in ("gdesc", "watch", "parse", "bind", "bind_named"):
            if self.before(statement, statement.text) is False:
                return
        result = self._run(statement.text, script)
        script.backslash_quotes = self._setting("standard_conforming_strings") == "off" if "standard_conforming" in statement.text else script.backslash_quotes
        if result and statement.command == "gset" and len(result.rows) == 1:
            for name, value in zip(result.names, result.rows[0]):
                if value is None:
                    self.variables.pop(statement.arguments + name, None)
                else:
                    self.variables[statement.arguments + name] = value
        if result and statement.command == "gexec":
            for text in [value for row in result.rows for value in row if value]:
                self.before(Statement(text, statement.line), text)
                self._run(text, script)

    def _setting(self, name):
        try:
            return self.session.run(f"SHOW {name}").scalar()
        except QueryError:
            return None

    def _run(self, text, script):
        self.counts["statements"] += 1
        try:
            return self.session.run_with_rows(text, script.copy_rows)
        except QueryError as error:
            self.counts["statements that fail, as many are meant to"] += 1
            if error.sqlstate == "08006":
                self.counts["connections lost"] += 1
                self.connect()
        except UnicodeError:
            self.counts["results in another encoding"] += 1
        return None

    def _command(self, element):
        command, arguments = element.command, element.arguments
        if command in ("if", "elif", "else", "endif"):
            return self._condition(command, arguments)
        if not all(self.conditions):
            return None
        words = set_arguments(arguments, self.variables)
        if command == "quit" or command == "q":
            return "quit"
        if command == "set" and words and re.fullmatch(r"\w+", words[0]):
            self.variables[words[0]] = "".join(words[1:])
        elif command == "unset" and words:
            self.variables.pop(words[0], None)
        elif command == "getenv" and len(words) == 2:
            self.variables[words[0]] = self.environment.get(words[1], "")
        elif command in ("c", "connect"):
            user = words[1] if len(words) > 1 and words[1] != "-" else "postgres"
            try:
                self.connect(user)
            except QueryError:
                self.counts["connections refused"] += 1
                self.session = None
                self.connect()
        else:
            self.counts["meta commands left out"] += 1
        return None

    def _condition(self, command, arguments):
        if command == "endif":
            if self.conditions:
                self.conditions.pop()
        elif command == "if":
            self.conditions.append(self._holds(arguments))
        elif self.conditions:
            # A branch after one that held never holds; `done` outlives it as a value that is false but not None.
            done = self.conditions[-1] or self.conditions[-1] is None
            self.conditions[-1] = None if done else command == "else" or self._holds(arguments)

    def _holds(self, arguments):
        asked = re.fullmatch(r":\{\?(\w+)\}", arguments.strip())
        if asked:
            return asked[1] in self.variables
        word = "".join(set_arguments(arguments, self.variables)).lower()
        return word in _TRUE
