"""What is asked in a soak: the queries of every differential suite, and what the heap tables answer, found once for each.

Invariants: an answer never changes; the answer of a question about a changed table belongs to one state of its files.

Deliberately absent: when a question is asked and what is done meanwhile (clients.py); the changed tables (changed.py).
"""

import hashlib
import threading
from dataclasses import dataclass

from differential import edges, generate, letters, views
from differential import run as differential
from harness.claims import differences
from harness.clients import sorted_rows
from harness.libpq import QueryError, Session

# Beyond so many rows a digest of an answer is kept, not its rows.
ROWS_KEPT_MAX = 2000
# What heap tables may take for an answer; what takes longer is not asked.
HEAP_TIMEOUT = "SET statement_timeout = '60s'"
# PostgreSQL up to 17 leaves LATERAL columns of expressions below outer joins out of Memoize's keys: the rows of another key come back,
# over heap tables and wherever else the plan has a Memoize.
WITHOUT_MEMOIZE = "SET enable_memoize = off"
# How often a suite is chosen. Edges are many and short.
WEIGHTS = {"tpch": 6, "spill": 2, "generated": 6, "views": 4, "columns": 2, "edges": 4, "literals": 1, "arrays": 1, "letters": 1,
           "set_operations": 2, "rewrites": 1, "changed": 6, "rows": 2}
# Many rows, which are sent for some time and sorted or joined with much memory.
ROWS = {
    "a sort": "SELECT l_orderkey, l_linenumber, l_comment, l_shipdate, l_extendedprice FROM lineitem ORDER BY l_comment, 1, 2",
    "pairs": "SELECT a.l_orderkey, a.l_linenumber, b.l_linenumber, b.l_comment FROM lineitem a JOIN lineitem b USING (l_orderkey) "
             "WHERE a.l_quantity > 30",
    "groups": "SELECT l_partkey, l_suppkey, l_shipmode, count(*), sum(l_tax), min(l_comment) FROM lineitem GROUP BY 1, 2, 3",
    "a long work": "SELECT count(*), min(a.o_comment), max(b.o_comment) FROM orders a JOIN orders b ON a.o_custkey % 50 = b.o_custkey % 50 "
                   "AND a.o_totalprice < b.o_totalprice",
    "text": "SELECT count(DISTINCT l_comment || o_comment), max(l_comment || o_comment) FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
}


@dataclass(frozen=True)
class Question:
    """A query over the tables of the schema `tables` of a server (`edge`, `views`, `tpch`), or over heap tables with `settings`.

    `is_regular`: a query that a cursor and EXPLAIN take.
    """

    suite: str
    name: str
    tables: str
    sql: str
    ordered: bool = False
    prepare: tuple = ()
    cleanup: tuple = ()
    settings: str = ""
    is_regular: bool = True

    def schema(self, server):
        """Where the tables are that the question is about."""
        return self.heap_schema if self.suite == "rewrites" else f"{server.name}_{self.tables}"

    @property
    def heap_schema(self):
        return "heap" if self.tables == "edge" else f"{self.tables}_heap"


class Answer:
    """What heap tables answered: an error, all rows, or a digest of many."""

    def __init__(self, question, outcome):
        self.error, self.result, self.digest = None, None, None
        if isinstance(outcome, QueryError):
            self.error = outcome
        elif len(outcome.rows) <= ROWS_KEPT_MAX:
            self.result = outcome
        else:
            self.digest = digest(outcome, question.ordered)

    def differs_from(self, outcome, question):
        """None, or how an outcome differs from this answer."""
        if self.error or isinstance(outcome, QueryError):
            if self.error and isinstance(outcome, QueryError) and self.error.sqlstate[:2] == outcome.sqlstate[:2]:
                # Which of several rows' errors comes first is open, and row by row is what the differential suite compares.
                return None
            got = f"error {outcome}" if isinstance(outcome, QueryError) else f"{len(outcome.rows)} rows"
            return f"expected {f'error {self.error}' if self.error else 'rows'}, got {got}"
        if self.result:
            return differences(self.result, outcome, question.ordered)
        got = digest(outcome, question.ordered)
        return None if got == self.digest else f"rows differ: expected {self.digest}, got {got}"


def digest(result, ordered):
    """Column names and types, the number of rows, and a hash of them."""
    rows = result.rows if ordered else sorted_rows(result)
    return result.names, result.types, len(rows), hashlib.sha256(repr(rows).encode()).hexdigest()


class Catalogue:
    """All questions by suite, and the answers that are known."""

    def __init__(self, conninfo, seed):
        self.conninfo = conninfo
        with Session(conninfo) as session:
            self.suites = _suites(session, seed)
        self._answers, self._guard, self._locks = {}, threading.Lock(), {}

    def choose(self, random, suites):
        """A question of one of the suites, other than `changed`."""
        suite = random.choices(suites, [WEIGHTS[suite] for suite in suites])[0]
        return suite if suite == "changed" else random.choice(self.suites[suite])

    def answer(self, question, oracle):
        """The heap tables' Answer, or None if they can't be asked; `oracle` is a session of the caller's for that."""
        with self._guard:
            lock = self._locks.setdefault((question.suite, question.name, question.sql), threading.Lock())
        with lock:
            key = question.suite, question.name, question.sql
            if key not in self._answers:
                self._answers[key] = _asked(question, oracle)
            return self._answers[key]

    @property
    def answered(self):
        """How many questions have been answered by heap tables."""
        return len(self._answers)


def _asked(question, oracle):
    oracle.run(f"RESET ALL; {HEAP_TIMEOUT}; SET search_path = {question.heap_schema}, public; SET pystachio.rewrite = off; {WITHOUT_MEMOIZE}")
    outcome = None
    try:
        for statement in question.prepare:
            oracle.run(statement)
        outcome = oracle.run(question.sql)
    except QueryError as error:
        # A value that has no result has an error of class 22, which a set operation of tables can't have.
        outcome = error if error.sqlstate.startswith(("22", "2F")) else None
    for statement in question.cleanup:
        differential.outcome(oracle, statement)
    return outcome and Answer(question, outcome)


def _suites(session, seed):
    session.run("SET search_path = heap, public")
    suites = {"tpch": [Question("tpch", name, "tpch", sql, True) for name, sql in differential.tpch_queries(session)],
              "spill": [Question("spill", name, "tpch", sql, True) for name, sql in differential.SPILL_QUERIES.items()],
              "rows": [Question("rows", name, "tpch", sql, "ORDER BY" in sql) for name, sql in ROWS.items()],
              "columns": [Question("columns", name, "edge", sql, ordered) for name, sql, ordered in edges.column_queries()],
              "edges": [question for entry in edges.entries() for question in _of_entry(entry)],
              "literals": [Question("literals", name, "edge", sql, ordered) for name, sql, ordered in edges.literal_queries(session)],
              "letters": [Question("letters", name, "edge", sql) for name, sql in letters.queries(session)],
              "arrays": [Question("arrays", f"{name}: {array}", "edge", f"EXECUTE given ({array})", True,
                                  (f"PREPARE given ({kind}) AS {sql}",), ("DEALLOCATE given",), "SET plan_cache_mode = force_generic_plan", False)
                         for name, kind, sql, arrays in edges.array_queries(session) for array in arrays],
              "generated": _generated("generated", "edge", generate.generated(seed)),
              "views": [question for question in _generated("views", "views", generate.generated(
                  seed, 1, views.CONSTANTS, views.LIKE_PATTERNS)) if not question.name.startswith("local")],
              "rewrites": [question for question in _generated("rewrites", "edge", generate.generated(seed + 1), "SET pystachio.rewrite = force")
                           if question.name.startswith(differential.REWRITTEN)]}
    if int(session.run("SHOW server_version_num").scalar()) < 170000:
        # Later servers leave to the plan which of several equal values they return.
        suites["set_operations"] = [Question("set_operations", sql, "edge", sql, True) for _, _, sql in differential.set_operations()]
    return suites


def _of_entry(entry):
    keys = ", ".join(entry.keys)
    yield Question("edges", entry.name, "edge", f"SELECT {keys}, ({entry.expression}) AS r FROM {entry.source} ORDER BY {keys}", True)
    test = entry.expression if entry.kind == "boolean" else f"({entry.expression}) IS NOT NULL"
    yield Question("edges", f"{entry.name} in WHERE", "edge", f"SELECT {keys} FROM {entry.source} WHERE {test} ORDER BY {keys}", True)


def _generated(suite, schema, queries, settings=""):
    return [Question(suite, query.name, schema, query.sql, query.ordered, tuple(query.prepare), tuple(query.cleanup),
                     "; ".join(filter(None, [settings, WITHOUT_MEMOIZE if query.name.startswith("lateral") else ""])), not query.prepare)
            for query in queries]
