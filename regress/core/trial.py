"""Compares one query over foreign tables with the same over heap tables, in the suite's own session.

All happens in a transaction, or below a savepoint of the suite's own, that is rolled back: settings, temporary tables,
uncommitted rows and prepared statements of the suite are seen, and nothing of ours stays.
"""

import contextlib
import random

from harness.libpq import QueryError

from .compare import ORDER_OPEN, Outcome, difference, stable_part_differs
from .mirror import SHUFFLED, Unmirrored
from .queries import Query, query_of, statement_hash

HEAP_TIMEOUT = "10s"
FOREIGN_TIMEOUT = "40s"
MODES = {
    "cpu": ("f", []),
    "emulated": ("g", ["pystachio.engine_choice = 'gpu'"]),
    "geqo": ("f", ["geqo_threshold = 2", "geqo = on"]),
    "parallel": ("f", ["{parallel} = on", "parallel_setup_cost = 0", "parallel_tuple_cost = 0", "max_parallel_workers_per_gather = 2"]),
    "partitionwise": ("f", ["enable_partitionwise_join = on", "enable_partitionwise_aggregate = on"]),
    "generic": ("f", ["plan_cache_mode = 'force_generic_plan'"]),
}
# Other plans of heap tables: where they disagree, so may an engine.
_VARIANTS = [("s", []), *((role, []) for role in SHUFFLED), ("t", ["enable_hashagg = off", "enable_hashjoin = off"]),
             ("s", ["enable_sort = off", "enable_nestloop = off"]), ("h", ["enable_mergejoin = off", "enable_hashjoin = off"])]
_AS_OWNER = "SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL ROLE NONE; SET LOCAL client_encoding = 'UTF8'"
# The texts that the files are written from.
_FOR_EXPORT = ("SET LOCAL search_path = pg_catalog; SET LOCAL datestyle = 'ISO, MDY'; SET LOCAL timezone = 'UTC'; "
               "SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = 'hex'; SET LOCAL intervalstyle = 'postgres'; "
               "SET LOCAL statement_timeout = '30s'; SET LOCAL synchronize_seqscans = off")
# What a query over heap copies fails with where the suite's own types are text here.
_TYPE_ERRORS = {"42883", "42804", "42703", "42725", "42P01", "42846"}


class Trial:
    """Compares statements. `claims` counts, `counts` says what was left out and why, `known` has the known differences."""

    def __init__(self, options, mirrors, known, claims, counts):
        self.options, self.mirrors, self.known, self.claims, self.counts = options, mirrors, known, claims, counts
        self.choose = random.Random(f"{options.seed} modes")
        self.prepared, self.number, self.file, self.client = {}, 0, "", None
        self.parallel = "debug_parallel_query" if int(options.version) >= 16 else "force_parallel_mode"
        self.types, self.seen, self.settings = {}, set(), 0

    def begin_file(self, name, client):
        """A file begins in a new session."""
        self.file, self.client, self.prepared, self.seen = name, client, {}, set()
        self.mirrors.epoch += 1

    def before(self, statement, text):
        """What `psql.Client` calls before it runs a statement."""
        query = query_of(text, self.prepared)
        if query:
            self._query(statement, text, query)
        if not query or query.kind != "select":
            self.mirrors.epoch += 1
        if text.lstrip().lower().startswith(("set ", "reset ")):
            self.settings += 1

    def _query(self, statement, text, query):
        if self.options.only and self.options.only != statement_hash(text):
            return
        if query.reason:
            self.counts[f"skipped: {query.reason}"] += 1
            return
        if self.client.session.transaction not in ("idle", "open"):
            self.counts["skipped: in a failed transaction"] += 1
            return
        try:
            if self.client.session.transaction == "idle":
                self.mirrors.clear()
            with self._aside() as path:
                self._compare(statement, text, query, path)
        except Unmirrored as reason:
            self.counts[f"skipped: {reason}"] += 1
        except QueryError as error:
            self._lost_or_skipped(error)
        except UnicodeError:
            self.counts["skipped: another encoding"] += 1

    def _lost_or_skipped(self, error):
        if self.mirrors.maker.transaction != "idle":
            self.mirrors.maker.run("ROLLBACK")
        if error.sqlstate == "08006":
            self.client.connect()
        self.counts[f"skipped: mirror {error.sqlstate}"] += 1
        if self.options.verbose:
            print(f"    {self.file}: no mirror: {error}", flush=True)

    @contextlib.contextmanager
    def _aside(self):
        """A place in the session from which nothing stays; gives the suite's own search path."""
        session = self.client.session
        nested = session.transaction == "open"
        session.run(("" if nested else "BEGIN; ") + "SAVEPOINT core_aside")
        try:
            yield session.run("SHOW search_path").scalar()
        finally:
            if session.transaction != "unknown":
                session.run("ROLLBACK TO SAVEPOINT core_aside; RELEASE SAVEPOINT core_aside" if nested else "ROLLBACK")

    def _compare(self, statement, text, query, path):
        session = self.client.session
        session.run(f"{_AS_OWNER}; SET LOCAL search_path = {_with_temporary(path)}")
        relations, writes = self.mirrors.named(session, query.identifiers)
        if not relations:
            self.counts["skipped: names no table of the suite"] += 1
            return
        session.run(_FOR_EXPORT)
        units = [self.mirrors.unit(session, relation, path) for relation in relations]
        session.run(f"ROLLBACK TO SAVEPOINT core_aside; {_AS_OWNER}")
        if writes:
            self.mirrors.epoch += 1
        again = (query.text, query.body, self.settings, *[unit.number for unit in units])
        if again in self.seen:
            self.counts["skipped: the same query again"] += 1
            return
        self.seen.add(again)
        expected = self._outcome(query, units, "h", [], path, HEAP_TIMEOUT)
        if expected.slow:
            self.counts["skipped: slow over heap tables"] += 1
            return
        if expected.error and expected.error.sqlstate in _TYPE_ERRORS:
            self.counts["skipped: its types are not those of foreign tables"] += 1
            return
        self.counts["queries compared"] += 1
        self.counts["of these with an error"] += expected.error is not None
        for mode in self._modes():
            self._mode(mode, statement, text, query, units, path, expected)

    def _modes(self):
        if self.options.one_mode:
            return [self.choose.choice(self.options.modes)]
        return self.options.modes

    def _mode(self, mode, statement, text, query, units, path, expected):
        role, settings = MODES[mode]
        settings = [setting.replace("{parallel}", self.parallel) for setting in settings]
        actual = self._outcome(query, units, role, settings, path, FOREIGN_TIMEOUT, mode == "generic")
        key = statement_hash(text)
        found = difference(query, expected, actual, self._type_name)
        if found and not actual.slow:
            found = self._explained(query, units, path, expected, actual, role, settings, found, mode)
        entry = self.known.find(self.file, key, mode)
        if entry and found:
            self.counts["known differences"] += 1
            found = None
        elif entry:
            self.known.agreed(entry, mode)
        name = f"{self.file}:{statement.line} {key} {mode}"
        if found:
            forms = "\n".join(f"{part.name}: {form.text}" for unit in units for part, form in zip(unit.parts, unit.forms))
            found = f"{found}\n{text}\n{forms}"
        self.claims.record(name, found)
        if actual.error and actual.error.sqlstate == "08006":
            raise actual.error

    def _outcome(self, query, units, role, settings, path, timeout, generic=False):
        """Runs a query with the schemas of `role` first on the search path."""
        session = self.client.session
        if role != "h" and role not in ("f", "g"):
            for unit in units:
                self.mirrors.reordered(unit, role)
        schemas = [unit.schema(role) for unit in units]
        self.number += 1
        name = f"core_{self.number}"
        prepared = False
        session.run("SAVEPOINT core_run")
        try:
            for setting in [f"search_path = {', '.join(schemas)}, {_with_temporary(path)}", f"statement_timeout = '{timeout}'", *settings]:
                session.run(f"SET LOCAL {setting}")
            text = query.text
            if query.prepare:
                session.run(query.prepare.replace("{name}", name))
                prepared, text = True, text.replace("{name}", name)
            elif generic:
                body, values = query.with_parameters()
                types = f" ({', '.join(['int4'] * len(values))})" if values else ""
                session.run(f"PREPARE {name}{types} AS {body}")
                prepared, text = True, f"EXECUTE {name}" + (f" ({', '.join(values)})" if values else "")
            return Outcome(result=session.run(text))
        except QueryError as error:
            return Outcome(error=error)
        finally:
            if session.transaction != "unknown":
                session.run("ROLLBACK TO SAVEPOINT core_run; RELEASE SAVEPOINT core_run")
                if prepared:
                    session.run(f"DEALLOCATE {name}")

    def _explained(self, query, units, path, expected, actual, role, settings, found, mode):
        """None if heap tables give what was found too, in another order or by another plan; else the difference."""
        if found == ORDER_OPEN and self._ordered_alike(query, units, path, expected, role, settings):
            self.counts["orders that ORDER BY leaves open"] += 1
            return None
        variants = []
        for other, others in [("h", settings), *_VARIANTS]:
            variant = self._outcome(query, units, other, others, path, HEAP_TIMEOUT, mode == "generic")
            if difference(query, variant, actual, self._type_name) is None:
                self.counts["results that depend on the order of rows or the plan in heap tables too"] += 1
                return None
            variants.append(variant)
        if all(difference(query, expected, variant, self._type_name) is None for variant in variants):
            return found
        apart = stable_part_differs(expected, variants, actual)
        self.counts["results of no one order in heap tables"] += apart is None
        return apart

    def _ordered_alike(self, query, units, path, expected, role, settings):
        """Whether the keys of ORDER BY, shown as columns, come in the same order from both."""
        text, count = query.with_keys(expected.result.names)
        if not count or query.prepare:
            return False
        shown = Query(query.kind, text)
        outcomes = [self._outcome(shown, units, *side, path, FOREIGN_TIMEOUT) for side in (("h", []), (role, settings))]
        if any(outcome.error for outcome in outcomes):
            return False
        keys = [[row[-count:] for row in outcome.result.rows] for outcome in outcomes]
        return keys[0] == keys[1]

    def _type_name(self, oid):
        if oid not in self.types:
            rows = self.mirrors.maker.run(f"SELECT typname FROM pg_type WHERE oid = {oid}").rows
            self.types[oid] = rows[0][0] if rows else str(oid)
        return self.types[oid]


def _with_temporary(path):
    """The search path with temporary tables behind what is put before it: they come first where they are not named."""
    return ", ".join(["pg_temp", *([path] if path and path != '""' else [])])
