"""Tables whose file is replaced while they are asked: by others with known rows, each a state of the table.

Invariants:
- A state is one file, which takes the other's place by a rename: a query sees one state, whatever it reads when.
- What a query may answer are the states whose time and the query's overlap, or that the files changed (40001). A statement
  of two scans may see a state in each (docs/exactness.md): it is compared where only one was in force.

Deliberately absent: several files of one table, of which a query may rightly see a mixture.
"""

import os
import pathlib
import shutil
import threading
import time

from differential import statements
from harness.libpq import QueryError, Session
from soak.questions import Answer, Question

FILES_CHANGED = "40001"
_LINES = "lineitem"
_LINE_COLUMNS = ("l_orderkey bigint, l_linenumber integer, l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_shipdate date, "
                 "l_shipmode text, l_comment text")
_LINE_QUERIES = {
    "counts": "SELECT count(*), sum(l_quantity), sum(l_extendedprice), min(l_comment), max(l_comment) FROM {t}",
    "groups": "SELECT l_shipmode, count(*), sum(l_extendedprice), min(l_shipdate) FROM {t} GROUP BY 1 ORDER BY 1",
    "itself": "SELECT count(*), sum(a.l_quantity - b.l_quantity), count(b.l_orderkey) FROM {t} a LEFT JOIN {t} b "
              "ON a.l_orderkey = b.l_orderkey AND a.l_linenumber = b.l_linenumber",
    "others": "SELECT count(*) FROM {t} a WHERE NOT EXISTS (SELECT 1 FROM {t} b WHERE b.l_comment = a.l_comment)",
    "scalar": "SELECT count(*) FROM {t} WHERE l_extendedprice > (SELECT avg(l_extendedprice) FROM {t})",
    "top": "SELECT l_extendedprice, l_orderkey, l_linenumber, l_comment FROM {t} ORDER BY 1 DESC, 2, 3 LIMIT 20",
    "rows": "SELECT l_orderkey, l_linenumber, l_comment FROM {t} WHERE l_orderkey % 37 = 0 ORDER BY 1, 2",
}


# Statements with a subquery that is a scan of its own.
_TWO_SCANS = "scalar"


class ChangedTable:
    """A table, its states, and when which of them was in force."""

    def __init__(self, name, columns, files, folder):
        self.name, self.columns, self.files = name, columns, files
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self.answers = []
        self._history, self._guard = [], threading.Lock()

    def put(self, state):
        """Puts the file of a state in the place of the other's."""
        path, new = self.folder / "0.parquet", self.folder / "0.new"
        shutil.copyfile(self.files[state], new)
        new.chmod(0o644)
        entry = [state, time.monotonic(), float("inf")]
        with self._guard:
            # Before the rename: a query may see the file, and be judged, before this thread goes on.
            self._history.append(entry)
        os.replace(new, path)
        entry[2] = time.monotonic()

    def states(self, begin, end):
        """The states that were in force at some time between two."""
        with self._guard:
            history = [tuple(entry) for entry in self._history]
        until = [entry[2] for entry in history[1:]] + [float("inf")]
        return {state for (state, since, _), left in zip(history, until) if since <= end and left >= begin}

    def kept(self, schema):
        """The statements of the table in a schema: those that a session keeps, and new ones."""
        if self.name == _LINES:
            for name, text in _LINE_QUERIES.items():
                sql = text.format(t=f"{schema}.{_LINES}")
                yield statements.Kept(f"{name} prepared", [f"PREPARE p_{_LINES}_{name} AS {sql}"], f"EXECUTE p_{_LINES}_{name}")
                yield statements.Kept(f"{name} by the protocol", [sql], f"d_{_LINES}_{name}", [])
                yield statements.Kept(f"{name} new", [], sql)
            return
        table = _table(self.name)
        yield from statements.statements(table, schema)
        for name, text in statements.queries(table).items():
            yield statements.Kept(f"{name} new", [], text.format(t=f"{schema}.{self.name}"))


class ChangedTables:
    """All changed tables, with foreign tables in NAME_changed for each server."""

    def __init__(self, conninfo, folder, data, servers):
        lines = [pathlib.Path(folder) / f"soak-tpch-{servers[0].name}" / "lineitem.parquet", pathlib.Path(folder) / "soak-lines" / "lineitem.parquet"]
        changed = f"{folder}/soak-changed"
        self.tables = [ChangedTable(table.name, table.columns, [pathlib.Path(data) / f"{files[0]}.parquet" for files in _states(table)], changed)
                       for table in statements.TABLES] + [ChangedTable(_LINES, _LINE_COLUMNS, lines, changed)]
        with Session(conninfo, ["SET client_min_messages = warning"]) as session:
            session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}/soak-lines', 0.008, ARRAY['lineitem'], overwrite => true, layout => 'gpu')")
            for server in servers:
                session.run(f"CREATE SCHEMA {server.name}_changed")
            for table in self.tables:
                table.put(0)
                for server in servers:
                    session.run(f"CREATE FOREIGN TABLE {server.name}_changed.{table.name} ({table.columns}) SERVER {server.name} "
                                f"OPTIONS (path '{table.folder}')")
                    _make_functions(session, table, f"{server.name}_changed")
        for table in self.tables:
            for state in range(len(table.files)):
                table.answers.append(_answers(conninfo, table, state))

    def put(self, random):
        """Puts a state of a table in force; returns what was done."""
        table = random.choice(self.tables)
        state = random.randrange(len(table.files))
        table.put(state)
        return f"{table.name} has {table.files[state]}"

    def question(self, server, random):
        """A table and a statement of it in the server's schema."""
        table = random.choice([*self.tables, self.tables[-1], self.tables[-1]])
        return table, random.choice(list(table.kept(f"{server.name}_changed")))


def difference(table, kept, outcome, begin, end):
    """None, or why the outcome of a statement between two times is that of no state then."""
    states = table.states(begin, end)
    if len(states) > 1 and (kept.name.startswith(_TWO_SCANS) or isinstance(outcome, QueryError) and outcome.sqlstate == FILES_CHANGED):
        return None
    question = Question("changed", kept.name, "changed", kept.call, True)
    found = [table.answers[state][kept.name].differs_from(outcome, question) for state in sorted(states)]
    if None in found:
        return None
    others = [state for state in range(len(table.files)) if table.answers[state][kept.name].differs_from(outcome, question) is None]
    return (f"of no state of {table.name} that was in force, which were {sorted(states)}; it is that of the states {others}\n"
            + "\n".join(f"{table.files[state]}: {text}" for state, text in zip(sorted(states), found)))


def _states(table):
    return [change.files for change in table.changes if len(change.files) == 1]


def _table(name):
    return next(table for table in statements.TABLES if table.name == name)


def is_function(kept):
    """Whether a statement calls a function, which all sessions share."""
    return bool(kept.prepare) and kept.prepare[0].startswith("CREATE")


def _make_functions(session, table, schema):
    for kept in table.kept(schema):
        if is_function(kept):
            kept.make(session)


def _answers(conninfo, table, state):
    """What heap tables with the rows of a state answer, by the statement's name."""
    schema, answers = f"state_{state}", {}
    with Session(conninfo, ["SET client_min_messages = warning"]) as session:
        session.run(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        session.run(f"CREATE FOREIGN TABLE {schema}.source ({table.columns}) SERVER pystachio OPTIONS (path '{table.files[state]}')")
        session.run(f"CREATE TABLE {schema}.{table.name} ({table.columns}); INSERT INTO {schema}.{table.name} TABLE {schema}.source")
        session.run(f"DROP FOREIGN TABLE {schema}.source; ANALYZE {schema}.{table.name}")
        for kept in table.kept(schema):
            kept.make(session)
            question = Question("changed", kept.name, "changed", kept.call, True)
            try:
                answers[kept.name] = Answer(question, kept.run(session))
            except QueryError as error:
                answers[kept.name] = Answer(question, error)
            session.run("RESET plan_cache_mode")
    return answers
