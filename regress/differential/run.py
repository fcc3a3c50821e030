#!/usr/bin/env python3
"""The differential runner.

usage: run.py CONNINFO --data FOLDER [--tpch FOLDER] [--suite NAME]… [--seed N] [--factor F] [--share S] [--order N] [--self-check] [--only TEXT]

CONNINFO must name a database that may be filled. --data: a folder for a copy of regress/data that the server can
read. --tpch: a folder with TPC-H as Parquet, made with pystachio.tpch_generate if it is empty.
Suites: cases (the case files of src/cases, on PostgreSQL alone), data (the tables load alike), generated, edges, literals,
letters (upper and lower case), arrays, statements (kept while files change), tpch, spec (TPC-H with char(n)), optimized,
spill (a device with little memory), ranks (several that share each query), rewrites, estimates, writers (files that other libraries wrote),
lakes (tables of Delta Lake and of Iceberg, at each of their versions), everyday (what people and their tools send), readers (files that readers get wrong, each on the CPU engine and on the emulated device).
--share: of the long suites only such a share of their queries runs, which the seed chooses; 1 by default.
--self-check needs no pystachio: heap is compared with heap, which must agree, and with changed data, which must not.
"""

import argparse
import decimal
import fractions
import itertools
import math
import pathlib
import random
import re
import shutil
import sys
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from differential import cases, edges, generate, lakes, letters, readers, statements, views, writers, written  # noqa: E402
from everyday import workload  # noqa: E402
from harness import tables  # noqa: E402
from harness.claims import Claims, differences, write_counts  # noqa: E402
from harness.explain import plan_operators, plan_shape, ran_on, ranks_of, runs_on  # noqa: E402
from harness.libpq import QueryError, Result, Session  # noqa: E402

SUITES = ["cases", "data", "generated", "sent", "views", "edges", "literals", "letters", "arrays", "statements", "set_operations", "tpch", "spec", "optimized",
          "spill", "ranks", "rewrites", "estimates", "writers", "written", "lakes", "everyday", "readers"]
# The least share of queries that must run as one scan, in percent, by suite: it may only be raised.
PUSHED_PERCENT_MIN = {"tpch": 100, "spec": 100, "letters": 100, "generated": 73, "views": 75, "set_operations": 20, "edges": 95, "arrays": 96,
                      "everyday": 79}
# The share of the generated queries with a heap table whose rows are sent to the engine, in percent: it may only be raised.
SENT_PERCENT_MIN = 22
# The least share of TPC-H that must run on a server's device, where it has one, in percent: it may only be raised.
DEVICE_PERCENT_MIN = 75
# A join's estimate may be off by this factor, and this share of the joins of TPC-H must be within it, in percent. The
# rest is off by as much over heap tables: PostgreSQL takes the columns of a join on several (queries 9, 20) and the condition
# of an anti join (21, 22) for independent.
ESTIMATE_FACTOR_MAX = 10
ESTIMATES_PERCENT_MIN = 80
# A device's memory in suite spill: a thirteenth of what TPC-H at SF 0.01 takes when it is decoded.
SPILL_MEMORY = "1280kB"
# Ranks that share the queries of suite ranks.
RANK_COUNTS = (1, 2, 4)
# Settings of exchanges under each of which a share of the queries runs there.
EXCHANGE_SETTINGS = (
    "pystachio.gpu_disable = exchange_overlap", "pystachio.gpu_disable = exchange_gathering", "pystachio.gpu_disable = exchange_groups",
    "pystachio.gpu_disable = exchange_senders", "pystachio.gpu_disable = 'exchange_filters, exchange_broadcast_choice'",
    "pystachio.gpu_disable = exchange_broadcast_choice", "pystachio.gpu_disable = exchange_heavy_keys",
    "pystachio.gpu_exchange_compression = on",
)
# How many of the 22 queries must change ranks at several ranks: all whose tables ranks share.
RANKED_QUERIES_MIN = 22
# What must spill there: build sides, groups, different values and orders that are larger than that.
SPILL_QUERIES = {
    "join": "SELECT count(*), sum(l_quantity), min(o_comment), max(p_name) FROM lineitem JOIN orders ON l_orderkey = o_orderkey "
            "JOIN part ON l_partkey = p_partkey JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
    "outer join": "SELECT count(*), count(o.o_orderkey), count(p.o_orderkey), min(o.o_comment), max(p.o_comment) "
                  "FROM orders o FULL JOIN orders p ON o.o_orderkey = p.o_custkey",
    "anti join": "SELECT count(*), min(o_comment) FROM orders WHERE NOT EXISTS "
                 "(SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_extendedprice * 2 > o_totalprice)",
    "groups": "SELECT l_orderkey, l_partkey, count(*), sum(l_extendedprice), min(l_comment) FROM lineitem GROUP BY 1, 2 ORDER BY 1, 2",
    "different values": "SELECT count(DISTINCT l_comment), count(DISTINCT l_partkey) FROM lineitem",
    "order": "SELECT l_extendedprice, l_orderkey, l_linenumber, l_comment FROM lineitem ORDER BY 1 DESC, 2, 3",
}
# Rows of the everyday workload's largest table besides TPC-H, and its small files.
EVERYDAY_ROWS = 20_000
EVERYDAY_FILES = 40
# A share of a suite is too far below the suite's floor if a choice of so many queries has as few by chance less often than this. A few
# of one kind more or less are a lot among twenty, so that choices differ more than this reckons.
SHARE_CHANCE_MIN = fractions.Fraction(1, 10 ** 6)
# Conditions over each column of each file that other libraries wrote, where all run.
WRITERS_CONDITIONS = 8
# Conditions over each state of a table of a lake.
LAKES_CONDITIONS = 20
# How many queries over views there are for one of suite generated: each joins ten times as many rows.
VIEWS_FACTOR = 0.3
ERROR_ROWS_MAX = 12
# The shapes of generated queries that rewrites are for.
REWRITTEN = ("nested", "scalar", "with", "lateral", "prepared", "set_operation", "derived", "local", "by_part")
BPCHAR, NUMERIC = 1042, 1700
RECOVERY_S_MAX = 60
STATEMENT_TIMEOUT = "SET statement_timeout = '60s'"


class Pair:
    """Two sessions of one database: `expected` reads heap tables, `actual` reads foreign ones.

    PostgreSQL's Memoize gives wrong rows where an expression of LATERAL columns is computed below an outer join: its key lacks their columns.
    """

    def __init__(self, conninfo, expected_schema, actual_schema, expected_setup=(), actual_setup=()):
        self._open_expected = lambda: Session(
            conninfo, [STATEMENT_TIMEOUT, "SET enable_memoize = off", f"SET search_path = {expected_schema}, public", *expected_setup])
        self._open_actual = lambda: Session(
            conninfo, [STATEMENT_TIMEOUT, "SET enable_memoize = off", f"SET search_path = {actual_schema}, public", *actual_setup])
        self.expected, self.actual = self._open_expected(), self._open_actual()

    def reopen(self):
        """New sessions after a crash of the server, once it takes connections again."""
        deadline = time.monotonic() + RECOVERY_S_MAX
        while True:
            try:
                self.close()
                self.expected, self.actual = self._open_expected(), self._open_actual()
                return
            except QueryError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def close(self):
        self.expected.close()
        self.actual.close()


def outcome(session, sql):
    """The result, or the error as a value."""
    return outcome_of(lambda: session.run(sql))


def outcome_of(action):
    """What `action` returns, or its error as a value."""
    try:
        return action()
    except QueryError as error:
        return error


def outcome_differences(expected, actual, ordered):
    """Compares results, or errors by SQLSTATE and message."""
    if isinstance(expected, QueryError) or isinstance(actual, QueryError):
        if isinstance(expected, QueryError) and isinstance(actual, QueryError):
            if (expected.sqlstate, expected.message) == (actual.sqlstate, actual.message):
                return None
        describe = lambda value: f"error {value}" if isinstance(value, QueryError) else f"{len(value.rows)} rows {value.rows[:3]}"
        return f"expected {describe(expected)}\ngot      {describe(actual)}"
    return differences(expected, actual, ordered)


class Pushdown:
    """Counts how many queries ran as one scan, and why others did not."""

    def __init__(self):
        self.whole, self.partial, self.reasons, self.examples = 0, 0, {}, {}

    def look(self, pair, name, sql):
        """Explains a query and counts it; a query that can't be explained is not counted."""
        try:
            shape = plan_shape(pair.actual, sql)
        except QueryError as error:
            if error.sqlstate == "08006":
                pair.reopen()
            return
        if shape.one_scan:
            self.whole += 1
            return
        self.partial += 1
        for reason in shape.reasons or ["(no reason given) " + " / ".join(sorted(set(shape.nodes)))]:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            self.examples.setdefault(reason, name)

    @property
    def total(self):
        return self.whole + self.partial

    @property
    def percent(self):
        return 100 * self.whole // self.total if self.total else 0

    def report(self, suite):
        """Prints the counts and the most frequent reasons."""
        if not self.total:
            return
        print(f"{suite}: {self.whole} of {self.total} queries ran as one scan ({self.percent} %)")
        for reason, count in sorted(self.reasons.items(), key=lambda item: -item[1])[:15]:
            print(f"    {count:5} {reason[:150]}   e.g. {self.examples[reason]}")


def compare(pair, claims, name, sql, ordered, prepare=(), cleanup=(), view=lambda result: result):
    """Runs one query on both sides and counts the claim that they agree, in what `view` makes of their results."""
    sides = []
    for session in (pair.expected, pair.actual):
        side = None
        for statement in prepare:
            prepared = outcome(session, statement)
            side = prepared if isinstance(prepared, QueryError) else None
        sides.append(side or outcome(session, sql))
        for statement in cleanup:
            outcome(session, statement)
    failure = outcome_differences(*(side if isinstance(side, QueryError) else view(side) for side in sides), ordered)
    if any(isinstance(side, QueryError) and side.sqlstate == "08006" for side in sides):
        # A server that crashed on both sides must not pass as agreement.
        failure = failure or "the connection was lost"
        pair.reopen()
    return claims.record(name, failure and f"{'; '.join([*prepare, sql])}\n{failure}")


def is_chosen(options, name):
    """Whether a query runs: those that --only names, else the seed's share."""
    if options.only:
        return options.only in name
    return zlib.crc32(f"{options.seed} {name}".encode()) < options.share * 2**32


def run_cases(conninfo, options):
    """What the engines' tests take for PostgreSQL's results is what the server gives."""
    claims = Claims("cases")
    rows = cases.rows_of_variances()
    with Session(conninfo, [STATEMENT_TIMEOUT]) as session:
        for section in cases.sections():
            if not options.only or options.only in section.name:
                claims.record(section.name, cases.failure(session, section, rows))
    return claims


def run_data(conninfo, options):
    """The foreign tables hold what the CSV says."""
    claims = Claims("data")
    pair = Pair(conninfo, "heap", "pq")
    for table in tables.manifest():
        compare(pair, claims, table["name"], f"SELECT * FROM {table['name']} ORDER BY id", True)
        rows = outcome(pair.actual, f"SELECT count(*)::int FROM {table['name']}")
        claims.check(f"{table['name']} has its rows",
                     not isinstance(rows, QueryError) and rows.scalar() == str(table["rows"]), str(rows))
    pair.close()
    return claims


def run_generated(conninfo, options):
    """Queries from a seed."""
    return run_queries(Pair(conninfo, "heap", "pq"), "generated", generate.generated(options.seed, options.factor * options.share), options)


def run_sent(conninfo, options):
    """The same queries where one or two tables are PostgreSQL's own, whose rows engines get wherever they can join them."""
    own_tables = {"mixed_one": ("t2",), "mixed_two": ("t2", "t3")}
    with Session(conninfo) as session:
        for schema, names in own_tables.items():
            copies = "; ".join(f"CREATE TABLE {schema}.{name} AS TABLE heap.{name}; ANALYZE {schema}.{name}" for name in names)
            session.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; {copies}")
    # The other ways of joining them cost too much then.
    setup = [f"SET {setting}" for setting in ("enable_hashjoin = off", "enable_mergejoin = off", "enable_nestloop = off", "pystachio.join_keys = 0")]
    claims = Claims("sent")
    queries = [query for query in generate.generated(options.seed + 2, options.factor * options.share) if " t2 " in query.sql]
    for schema, names in own_tables.items():
        begun, sent = claims.passed + claims.failed, 0
        pair = Pair(conninfo, "heap", f"{schema}, pq", (), setup)
        # Many queries have no other tables than these two.
        for query in queries[::len(names)]:
            if options.only and options.only not in query.name:
                continue
            compare(pair, claims, query.name, query.sql, query.ordered, query.prepare, query.cleanup)
            if query.explain is not None and not query.prepare:
                plan = outcome(pair.actual, f"EXPLAIN (COSTS OFF) {query.explain or query.sql}")
                sent += not isinstance(plan, QueryError) and "Send Rows" in str(plan.rows)
        pair.close()
        count = claims.passed + claims.failed - begun
        print(f"sent: rows of {' and '.join(names)} in {sent} of {count} queries")
        if not options.only and len(names) == 1:
            is_enough = chance_of_at_most(sent, count, SENT_PERCENT_MIN) >= SHARE_CHANCE_MIN
            claims.check("rows of PostgreSQL are sent in enough queries", is_enough, f"{sent} of {count}, where {SENT_PERCENT_MIN} % are expected")
    return claims


def run_views(conninfo, options):
    """Queries from a seed over views of TPC-H."""
    with Session(conninfo) as session:
        views.create(session, "views", "tpch")
        views.create(session, "views_heap", "tpch_heap")
    queries = generate.generated(options.seed, options.factor * options.share * VIEWS_FACTOR, views.CONSTANTS, views.LIKE_PATTERNS)
    # PostgreSQL would run a subquery for each row of heap tables without an index.
    queries = [query for query in queries if not query.name.startswith(("local", "by_part", "lateral_groups"))]
    return run_queries(Pair(conninfo, "views_heap", "views"), "views", queries, options)


def run_queries(pair, suite, queries, options):
    """Compares generated queries, and counts how many ran as one scan."""
    claims, pushdown = Claims(suite), Pushdown()
    print(f"{suite}: seed {options.seed}")
    for query in queries:
        if options.only and options.only not in query.name:
            continue
        compare(pair, claims, query.name, query.sql, query.ordered, query.prepare, query.cleanup)
        if query.explain is not None:
            for statement in query.prepare:
                outcome(pair.actual, statement)
            pushdown.look(pair, query.name, query.explain or query.sql)
            for statement in query.cleanup:
                outcome(pair.actual, statement)
    pair.close()
    finish_pushdown(claims, pushdown, options)
    return claims


def finish_pushdown(claims, pushdown, options):
    """Prints the report and claims the floor, where foreign tables are on one side."""
    if options.self_check or options.only:
        return
    pushdown.report(claims.suite)
    floor = PUSHED_PERCENT_MIN.get(claims.suite)
    if floor is not None:
        if options.share < 1:
            is_enough = chance_of_at_most(pushdown.whole, pushdown.total, floor) >= SHARE_CHANCE_MIN
        else:
            is_enough = pushdown.percent >= floor
        claims.check("enough queries run as one scan", is_enough,
                     f"{pushdown.whole} of {pushdown.total}, {pushdown.percent} %, where the whole suite has at least {floor} %")


def chance_of_at_most(count, total, percent):
    """How likely at most `count` of `total` are, each of which is with a chance of `percent`: exact, as floats end at a thousand."""
    ways = sum(math.comb(total, k) * percent ** k * (100 - percent) ** (total - k) for k in range(count + 1))
    return fractions.Fraction(ways, 100 ** total)


def run_edges(conninfo, options):
    """The expression edge matrix and whole queries over edge columns."""
    claims, pushdown = Claims("edges"), Pushdown()
    pair = Pair(conninfo, "heap", "pq")
    if not options.self_check:
        missing = edges.missing_examples(pair.expected)
        claims.check("the matrix has every example of the registry of functions", not missing, "\n".join(missing))
    choose = random.Random(options.seed)
    for name, sql, ordered in edges.column_queries():
        if is_chosen(options, name):
            compare(pair, claims, name, sql, ordered)
            if not name.startswith("local"):
                pushdown.look(pair, name, sql)
    for entry in edges.entries():
        if is_chosen(options, entry.name):
            run_entry(pair, claims, pushdown, entry, choose)
    pair.close()
    finish_pushdown(claims, pushdown, options)
    return claims


def run_entry(pair, claims, pushdown, entry, choose):
    """One entry of the matrix: in the target list, in a filter, and row by row where PostgreSQL raises errors."""
    keys = ", ".join(entry.keys)
    select = f"SELECT {keys}, ({entry.expression}) AS r FROM {entry.source}"
    expected = outcome(pair.expected, f"{select} ORDER BY {keys}")
    if isinstance(expected, QueryError) and not expected.sqlstate.startswith(("22", "2F")):
        # PostgreSQL has no such function for these types: there is nothing to compare.
        return
    test = entry.expression if entry.kind == "boolean" else f"({entry.expression}) IS NOT NULL"
    if not entry.name.startswith("local"):
        pushdown.look(pair, entry.name, f"SELECT {keys} FROM {entry.source} WHERE {test}")
    if not isinstance(expected, QueryError):
        actual = outcome(pair.actual, f"{select} ORDER BY {keys}")
        claims.record(entry.name, _entry_failure(select, outcome_differences(expected, actual, True)))
        compare(pair, claims, entry.name + " in WHERE", f"SELECT {keys} FROM {entry.source} WHERE {test} ORDER BY {keys}", True)
        return
    good, bad = split_rows(pair.expected, entry)
    if good:
        identity = " * 1000 + ".join(entry.keys)
        allowed = ", ".join(str(_identity(row)) for row in good)
        sql = f"{select} WHERE {identity} IN ({allowed}) ORDER BY {keys}"
        compare(pair, claims, entry.name + " where defined", sql, True)
    for row in choose.sample(bad, min(len(bad), ERROR_ROWS_MAX)):
        where = " AND ".join(f"{key} = {value}" for key, value in zip(entry.keys, row))
        compare(pair, claims, f"{entry.name} at {row}", f"{select} WHERE {where}", True)


def _entry_failure(select, failure):
    return failure and f"{select}\n{failure}"


def _identity(row):
    number = 0
    for value in row:
        number = number * 1000 + int(value)
    return number


def split_rows(session, entry):
    """Row keys for which heap PostgreSQL gives a value, and those for which it raises an error."""
    good, bad = [], []
    for row in session.run(f"SELECT {', '.join(entry.keys)} FROM {entry.source} ORDER BY {', '.join(entry.keys)}").rows:
        where = " AND ".join(f"{key} = {value}" for key, value in zip(entry.keys, row))
        result = outcome(session, f"SELECT ({entry.expression}) FROM {entry.source} WHERE {where}")
        (bad if isinstance(result, QueryError) else good).append(row)
    return good, bad


def run_literals(conninfo, options):
    """Edge values as literals."""
    claims = Claims("literals")
    pair = Pair(conninfo, "heap", "pq")
    for name, sql, ordered in edges.literal_queries(pair.expected):
        if is_chosen(options, name):
            compare(pair, claims, name, sql, ordered)
    pair.close()
    return claims


def run_letters(conninfo, options):
    """Upper and lower case of every code point."""
    claims, pushdown = Claims("letters"), Pushdown()
    pair = Pair(conninfo, "heap", "pq")
    for name, sql in letters.queries(pair.expected):
        if is_chosen(options, name):
            compare(pair, claims, name, sql, False)
            pushdown.look(pair, name, sql)
    pair.close()
    finish_pushdown(claims, pushdown, options)
    return claims


def run_arrays(conninfo, options):
    """Edge values in arrays that a generic plan is given."""
    claims, pushdown = Claims("arrays"), Pushdown()
    pair = Pair(conninfo, "heap", "pq", *[["SET plan_cache_mode = force_generic_plan"]] * 2)
    for name, parameter, query, arrays in edges.array_queries(pair.expected):
        if not is_chosen(options, name):
            continue
        prepare, cleanup = [f"PREPARE given ({parameter}) AS {query}"], ["DEALLOCATE given"]
        for array in arrays:
            compare(pair, claims, f"{name}: {array}", f"EXECUTE given ({array})", True, prepare, cleanup)
        outcome(pair.actual, prepare[0])
        pushdown.look(pair, name, f"EXECUTE given ({arrays[0]})")
        outcome(pair.actual, cleanup[0])
    pair.close()
    finish_pushdown(claims, pushdown, options)
    return claims


def run_statements(conninfo, options):
    """Statements that are kept while the files of their tables change."""
    claims = Claims("statements")
    folder = f"{options.data}-changed"
    shutil.rmtree(folder, ignore_errors=True)
    with Session(conninfo, ["SET client_min_messages = warning"]) as session:
        session.run("DROP SCHEMA IF EXISTS changed CASCADE; DROP SCHEMA IF EXISTS changed_heap CASCADE")
        session.run("CREATE SCHEMA changed; CREATE SCHEMA changed_heap")
        for table in statements.TABLES:
            statements.place(folder, options.data, table, table.changes[0])
            statements.create(session, folder, table)
            statements.fill(session, table, table.changes[0])
            if not options.only or options.only in table.name:
                run_statements_of(conninfo, options, table, folder, session, claims)
    return claims


def run_statements_of(conninfo, options, table, folder, session, claims):
    """Each statement of a table, after each change of its files; then without files, and with them again."""
    both = []
    for schema in ("changed_heap", "changed"):
        kept = list(statements.statements(table, schema))
        sessions = [Session(conninfo, [STATEMENT_TIMEOUT]) for _ in kept]
        for statement, own in zip(kept, sessions):
            statement.make(own)
        both.append(list(zip(kept, sessions)))
    pairs = list(zip(*both))

    def compare_all(when):
        for (of_heap, heap), (statement, own) in pairs:
            failure = outcome_differences(outcome_of(lambda: of_heap.run(heap)), outcome_of(lambda: statement.run(own)), True)
            claims.record(f"{table.name}, {statement.name}, {when}", failure and f"{statement.call}\n{failure}")

    # Back to the first state, and through all of them the other way.
    for change in [*table.changes, *table.changes[-2::-1]]:
        statements.place(folder, options.data, table, change)
        statements.fill(session, table, change)
        # At first a plan that is too old may be at hand, then one that was made for these files.
        compare_all(f"{change.name}, at first")
        compare_all(f"{change.name}, again")
    for (_, heap), (statement, own) in pairs:
        if statement.name == statements.GENERIC and table.name != "times":
            run_without_pushdown(claims, table, heap, own)
    statements.place(folder, options.data, table, statements.Change("nothing", []))
    for _, (statement, own) in pairs:
        missing = outcome_of(lambda: statement.run(own))
        claims.check(f"{table.name}, {statement.name}, without files", isinstance(missing, QueryError) and missing.sqlstate == "58P01", str(missing))
    statements.place(folder, options.data, table, table.changes[0])
    compare_all("files again")
    for pair in pairs:
        for _, own in pair:
            own.close()


def run_without_pushdown(claims, table, heap, own):
    """A value that engines don't have: what its error advises helps a plan that is kept, too."""
    call = statements.without_pushdown(table)
    refused = outcome(own, call)
    claims.check(f"{table.name}, NaN", isinstance(refused, QueryError) and refused.sqlstate == "0A000", str(refused))
    own.run("SET pystachio.pushdown = off")
    failure = outcome_differences(outcome(heap, call), outcome(own, call), True)
    claims.record(f"{table.name}, NaN without pushdown", failure and f"{call}\n{failure}")
    own.run("RESET pystachio.pushdown")


def tpch_queries(session):
    """Number and text of the 22 queries, and of query 15 with a view in place of WITH."""
    for number in range(1, 23):
        yield f"q{number:02}", session.run(f"SELECT pystachio.tpch_query({number})").scalar()


def run_tpch(conninfo, options, schema="tpch"):
    """The 22 queries: identical to heap PostgreSQL, and each one scan."""
    claims, pushdown, places = Claims(schema), Pushdown(), []
    pair = Pair(conninfo, f"{schema}_heap", schema)
    for name, sql in tpch_queries(pair.expected):
        if options.only and options.only not in name:
            continue
        compare(pair, claims, name, sql, True)
        empty = outcome(pair.expected, sql)
        if name not in ("q18", "q02", "q20"):
            claims.check(f"{name} has rows", not isinstance(empty, QueryError) and empty.rows, "heap PostgreSQL gave no rows")
        pushdown.look(pair, name, sql)
        places.append(runs_on(pair.actual, sql))
    pair.close()
    if any(places):
        on_device = sum(not any(place.startswith("cpu") for place in scans) for scans in places)
        print(f"{schema}: {on_device} of {len(places)} queries run on the device")
        claims.check("enough queries run on the device", 100 * on_device >= DEVICE_PERCENT_MIN * len(places), str(places))
    finish_pushdown(claims, pushdown, options)
    return claims


def run_spec(conninfo, options):
    """The 22 queries over the specification's declared types."""
    return run_tpch(conninfo, options, "spec")


def run_optimized(conninfo, options):
    """Files rewritten for GPUs, and TPC-H generated in that form, hold what they held, by data and by the 22 queries."""
    claims = Claims("optimized")
    with Session(conninfo, ["SET statement_timeout = '600s'"]) as session:
        tables.optimized_foreign(session, options.data, options.tpch)
    pair = Pair(conninfo, "heap", "pq_optimized")
    for table in tables.manifest():
        compare(pair, claims, table["name"], f"SELECT * FROM {table['name']} ORDER BY id", True)
    pair.close()
    for schema in ("tpch_optimized", "tpch_gpu"):
        pair = Pair(conninfo, "tpch_heap", schema)
        for name, sql in tpch_queries(pair.expected):
            if not options.only or options.only in name:
                compare(pair, claims, f"{schema} {name}", sql, True)
        pair.close()
    return claims


def run_spill(conninfo, options):
    """The 22 queries, and more, with a sixteenth of the data as device memory: the same text, on the device."""
    claims = Claims("spill")
    with Session(conninfo, ["SET statement_timeout = '600s'"]) as session:
        tables.spilling_foreign(session, options.tpch, SPILL_MEMORY)
    pair = Pair(conninfo, "tpch_heap", "tpch_spill", (), ["SET pystachio.engine_choice = gpu"])
    for name, sql in [*tpch_queries(pair.expected), *SPILL_QUERIES.items()]:
        if options.only and options.only not in name:
            continue
        compare(pair, claims, name, sql, True)
        measured = outcome_of(lambda: ran_on(pair.actual, sql))
        if isinstance(measured, QueryError):
            claims.record(f"{name} runs", str(measured))
            continue
        places, spilled = measured
        claims.check(f"{name} runs on the device", places and set(places) <= {"cuda", "emulated"}, str(places))
        if name in SPILL_QUERIES:
            claims.check(f"{name} spills", spilled > 0)
    pair.close()
    return claims


def run_ranks(conninfo, options):
    """The 22 queries on one, two and four ranks that share each of them: the same text, and rows do change ranks. A share of them also
    without one technique of exchanges after another."""
    claims = Claims("ranks")
    with Session(conninfo, ["SET statement_timeout = '600s'"]) as session:
        schemas = tables.ranked_foreign(session, options.tpch, RANK_COUNTS)
    for count, schema in schemas:
        exchanged = []
        pair = Pair(conninfo, "tpch_heap", schema, (), ["SET pystachio.engine_choice = gpu"])
        for name, sql in tpch_queries(pair.expected):
            if options.only and options.only not in name:
                continue
            compare(pair, claims, f"{name} on {count} ranks", sql, True)
            scans = outcome_of(lambda: ranks_of(pair.actual, sql))
            if isinstance(scans, QueryError):
                claims.record(f"{name} on {count} ranks runs", str(scans))
                continue
            for ranks, planned, moved in (scan for scan in scans if scan[0].startswith(f"all {count};")):
                exchanged.append(name)
                # Every exchange of the plan, and every rank's part in it. A join whose build side got no rows may end the query early:
                # then exchanges, and other ranks' parts, may be absent.
                ran = [line for line in moved if not line.startswith("  rank ")]
                parts = len(moved) - len(ran)
                is_whole = len(ran) == len(planned) and parts == count * len(ran)
                is_early = any("rows=0 kept=0" in line for line in ran) and len(ran) <= min(parts, len(planned))
                claims.check(f"{name} on {count} ranks says what moves", planned and (is_whole or is_early),
                             f"{ranks} {planned} {moved}")
        if count > 1:
            compare_exchange_settings(pair, claims, count, options)
            check_narrowing(pair, claims, count)
        pair.close()
        exchanged = sorted(set(exchanged))
        print(f"ranks: rows of {len(exchanged)} queries change ranks on {count}")
        if not options.only:
            wanted = RANKED_QUERIES_MIN if count > 1 else 0
            claims.check(f"queries use {count} ranks", len(exchanged) >= wanted if wanted else not exchanged, str(exchanged))
    return claims


def compare_exchange_settings(pair, claims, count, options):
    """The same text under each setting of exchanges, of as many queries as are to run of long suites."""
    for name, sql in tpch_queries(pair.expected):
        chosen = [setting for setting in EXCHANGE_SETTINGS if is_chosen(options, f"{name} on {count} ranks, {setting}")]
        expected = chosen and outcome(pair.expected, sql)
        for setting in chosen:
            reset = f"RESET {setting.split(' ')[0]}"
            set_before = outcome(pair.actual, f"SET {setting}")
            actual = set_before if isinstance(set_before, QueryError) else outcome(pair.actual, sql)
            outcome(pair.actual, reset)
            failure = outcome_differences(expected, actual, True)
            if isinstance(actual, QueryError) and actual.sqlstate == "08006":
                pair.reopen()
            claims.record(f"{name} on {count} ranks, {setting}", failure and f"SET {setting}; {sql}\n{failure}")


def check_narrowing(pair, claims, count):
    """What ranks send is said to be narrowed where that is wanted, and nowhere else."""
    sql = dict(tpch_queries(pair.expected))["q03"]
    for setting, wanted in (("on", True), ("off", False)):
        outcome(pair.actual, f"SET pystachio.gpu_exchange_compression = {setting}")
        scans = outcome_of(lambda: ranks_of(pair.actual, sql))
        moved = [] if isinstance(scans, QueryError) else [line for _, _, lines in scans for line in lines]
        sent = [found for line in moved for found in re.findall(r"bytes=(\d+) narrowed from (\d+)", line)]
        is_right = all(int(narrow) < int(wide) for narrow, wide in sent) and bool(sent) == wanted
        claims.check(f"{count} ranks, compression {setting}, say of what they narrow", moved and is_right, str(scans))
    outcome(pair.actual, "RESET pystachio.gpu_exchange_compression")


def without_representatives(result):
    """The result of a set operation without what PostgreSQL 17 and later leave to the plan: which of several equal values stands
    for them all where these print differently, and the type modifier of a column (that of the first operand, or none)."""
    plain = {NUMERIC: lambda text: str(decimal.Decimal(text).normalize(decimal.Context(prec=1000))), BPCHAR: lambda text: text.rstrip(" ")}
    kinds = [plain.get(kind, str) for kind, _ in result.types]
    rows = [tuple(value if value is None else of_kind(value) for of_kind, value in zip(kinds, row)) for row in result.rows]
    return Result(result.names, [(kind, None) for kind, _ in result.types], rows, result.affected)


def foreign_values(session, values, sql):
    """The values of the first column of a query that are not printed as one of those that another query returns; None if it fails."""
    found = outcome(session, sql)
    known = {row[0] for row in session.run(values).rows}
    return None if isinstance(found, QueryError) else [row[0] for row in found.rows if row[0] not in known]


def set_operations():
    """Set operations of columns of every pair of types: (left column, right column, query)."""
    columns = ["a", "b", "i", "id", "n", "m", "f", "k", "c", "s", "d", "ts", "NULL", "'x'", "1", "2.50", "c::varchar(3)", "s::text",
               "n::numeric(9,3)", "coalesce(a, 0)"]
    operations = itertools.cycle(["UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
    for left, right in itertools.product(columns, columns):
        operation = next(operations)
        yield left, right, f"SELECT {left} AS v, k FROM t1 {operation} SELECT {right}, k FROM t3 ORDER BY 1, 2"
        yield left, right, (f"(SELECT {left} AS v FROM t1 LIMIT 0) {operation} (SELECT {right} FROM t3 GROUP BY 1 ORDER BY 1 LIMIT 5) "
                            f"{operation} SELECT DISTINCT {left} FROM t2 ORDER BY 1")


def run_set_operations(conninfo, options):
    """UNION, INTERSECT and EXCEPT of columns of every pair of types that they take, and rewritten over heap tables."""
    claims, pushdown = Claims("set_operations"), Pushdown()
    pair = Pair(conninfo, "heap", "pq")
    rewritten = Pair(conninfo, "heap", "heap", ["SET pystachio.rewrite = off"], ["SET pystachio.rewrite = force"])
    is_open = int(pair.expected.run("SHOW server_version_num").scalar()) >= 170000
    view = without_representatives if is_open else lambda result: result
    for left, right, sql in set_operations():
        if not is_chosen(options, sql) or isinstance(outcome(pair.expected, sql), QueryError):
            continue
        compare(pair, claims, sql, sql, True, view=view)
        compare(rewritten, claims, f"{sql} rewritten", sql, True, view=view)
        if is_open:
            values = f"SELECT {left} FROM t1 UNION ALL SELECT {right} FROM t3 UNION ALL SELECT {left} FROM t2"
            made = foreign_values(pair.actual, values, sql)
            claims.check(f"{sql} returns values of its operands", made == [], f"{sql}\nreturns {made}")
        pushdown.look(pair, sql, sql)
    pair.close()
    rewritten.close()
    finish_pushdown(claims, pushdown, options)
    return claims


def run_rewrites(conninfo, options):
    """The planner's rewrites applied to heap tables: on against off."""
    claims = Claims("rewrites")
    modes = (["SET pystachio.rewrite = off"], ["SET pystachio.rewrite = force"])
    pair = Pair(conninfo, "tpch_heap", "tpch_heap", *modes)
    for name, sql in tpch_queries(pair.expected):
        compare(pair, claims, f"{name} rewritten", sql, True)
    pair.close()
    pair = Pair(conninfo, "heap", "heap", *modes)
    for query in generate.generated(options.seed + 1, options.factor * options.share):
        if query.name.startswith(REWRITTEN) and (not options.only or options.only in query.name):
            compare(pair, claims, query.name + " rewritten", query.sql, query.ordered, query.prepare, query.cleanup)
    pair.close()
    return claims


def run_estimates(conninfo, options):
    """EXPLAIN ANALYZE of the 22 queries: every operator that ran says what it gave, and joins give what was expected."""
    claims, joins, having = Claims("estimates"), [], []
    with Session(conninfo, [STATEMENT_TIMEOUT, "SET search_path = tpch, public"]) as session:
        for name, sql in tpch_queries(session):
            if options.only and options.only not in name:
                continue
            scans = plan_operators(session, sql)
            rows = len(session.run(sql).rows)
            claims.check(f"{name}: the first operator gave the result", scans[0][0].actual == rows, f"{scans[0][0].actual} of {rows}")
            operators = [operator for scan in scans for operator in scan]
            absent = [operator.text for operator in operators if operator.executed and operator.actual is None]
            claims.check(f"{name}: every operator that ran has actual rows", not absent, str(absent))
            joins.extend((name, operator) for operator in operators if operator.kind == "join" and operator.actual is not None)
            passing = next((operator for operator in operators if operator.text.startswith("Filter (sum(l_quantity) > 300)")), None)
            if passing:
                having.append((passing.estimate, max(operator.estimate for operator in operators)))
    if not options.only:
        # PostgreSQL takes a third of the groups.
        claims.check("few groups are expected to pass HAVING", any(20 * few < most for few, most in having), str(having))
    joins.sort(key=lambda join: -join[1].factor)
    near = sum(join.factor <= ESTIMATE_FACTOR_MAX for _, join in joins)
    reduced = sum(join.reduced for _, join in joins)
    print(f"estimates: {near} of {len(joins)} joins within a factor of {ESTIMATE_FACTOR_MAX}; of the {reduced} that operators above "
          "reduced only estimates that are too low can be told; the worst:")
    for name, join in joins[:8]:
        print(f"    {join.factor:7.1f}  {name} rows={join.estimate} actual={join.actual}{' reduced' * join.reduced}  {join.text[:110]}")
    claims.check("joins give what was expected", 100 * near >= ESTIMATES_PERCENT_MIN * len(joins), f"{near} of {len(joins)}")
    return claims


def run_writers(conninfo, options):
    """Files that other libraries wrote hold their rows, and are asked by what their statistics say of them."""
    claims, choose = Claims("writers"), random.Random(options.seed)
    folder = f"{options.data}-writers"
    rows, files = writers.make(folder, options.seed)
    with Session(conninfo, [STATEMENT_TIMEOUT]) as session:
        writers.load(session, folder, rows, tables.import_statement)
    pair = Pair(conninfo, "public", "public", *[["SET TimeZone = 'UTC'"]] * 2)
    count = max(1, round(WRITERS_CONDITIONS * options.share))
    expected = dict(rows["columns"])
    print(f"writers: {len(files)} files of {rows['rows']} rows")
    for file in files:
        types = writers.imported_types(pair.actual, file["name"])
        others = {name: types.get(name) for name in file["columns"] if not writers.is_type(expected[name], types.get(name))}
        if not claims.check(f"{file['name']} has the columns and types of the rows", not others, str(others)):
            file["columns"] = [name for name in file["columns"] if name not in others]
        for name, heap, foreign in writers.queries(pair.expected, file, rows, types, choose, count):
            if options.only and options.only not in name:
                continue
            claims.record(name, outcome_differences(outcome(pair.expected, heap), outcome(pair.actual, foreign), True))
    pair.close()
    return claims


def run_written(conninfo, options):
    """Files that write_parquet has written are read by other libraries, and by both engines, as what they were written from."""
    claims = Claims("written")
    rows, _ = writers.make(f"{options.data}-writers", options.seed)
    with Session(conninfo, [STATEMENT_TIMEOUT, "SET TimeZone = 'UTC'", "SET client_min_messages = warning"]) as session:
        writers.load(session, f"{options.data}-writers", rows, tables.import_statement)
        paths = written.write(session, f"{options.data}-written", rows)
        wanted, python = written.expected(session, rows), written.pythons()[0]
        for form in [form for form in paths if form != "partitions"]:
            for library in written.LIBRARIES:
                found = written.read(python, library, paths[form], rows)
                claims.record(f"{form} by {library}", written.difference(found, wanted, rows))
        found = written.read(python, "pyarrow", written.write_long(session, f"{options.data}-written"), written.LONG)
        claims.record("long numbers by pyarrow", written.difference(found, written.expected(session, written.LONG), written.LONG))
        for device in ("cpu", "emulated"):
            session.run(f"DROP SERVER IF EXISTS written_{device} CASCADE")
            session.run(f"CREATE SERVER written_{device} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{device}', memory '512MB')")
            for form, path in paths.items():
                kept = [(name, sql) for name, sql, _ in written.columns(rows) if form != "partitions" or name != "flag"]
                declared = ", ".join(f"{name} {sql}" for name, sql in kept)
                session.run(f"CREATE FOREIGN TABLE public.again ({declared}) SERVER written_{device} OPTIONS (path '{path}')")
                names = ", ".join(name for name, _ in kept)
                texts = [session.run(f"SELECT r::text FROM (SELECT {names} FROM {table} ORDER BY id) r").rows for table in ("written_heap.written", "public.again")]
                claims.record(f"{form} by {device}", None if texts[0] == texts[1] else "the rows differ")
                session.run("DROP FOREIGN TABLE public.again")
            declared = ", ".join(f"{name} {sql}" for name, sql in written.LONG["columns"])
            session.run(f"CREATE FOREIGN TABLE public.again ({declared}) SERVER written_{device} OPTIONS (path '{options.data}-written/long.parquet')")
            texts = [session.run(f"SELECT r::text FROM (SELECT * FROM {table} ORDER BY id) r").rows for table in ("written_heap.long", "public.again")]
            claims.record(f"long numbers by {device}", None if texts[0] == texts[1] else "the rows differ")
            session.run("DROP FOREIGN TABLE public.again")
    return claims


def run_lakes(conninfo, options):
    """Tables of Delta Lake and of Iceberg have at each version the rows that their writers say, on both engines, and are asked by what their logs say of them."""
    claims, choose = Claims("lakes"), random.Random(options.seed)
    folder = f"{options.data}-lakes"
    states = lakes.make(folder, options.seed, options.share)
    with Session(conninfo, [STATEMENT_TIMEOUT]) as session:
        lakes.load(session, folder, states)
    settings = ["SET TimeZone = 'UTC'", "SET pystachio.engine_choice = gpu"]
    pair = Pair(conninfo, "public", "public", *[settings] * 2)
    print(f"lakes: {len(states)} states of tables")
    for state in states:
        for device in lakes.DEVICES:
            if state["version"] is None:
                types = lakes.imported_types(pair.actual, device, state)
                claims.record(f"{state['format']}_{state['table']} is imported with its types, {device}", None if sorted(types) == sorted(lakes.declared_types(state)) else str(types))
            for name, heap, foreign in lakes.queries(pair.expected, device, state, choose, max(2, round(LAKES_CONDITIONS * options.share))):
                if options.only and options.only not in name:
                    continue
                claims.record(name, outcome_differences(outcome(pair.expected, heap), outcome(pair.actual, foreign), True))
    pair.close()
    return claims


def run_everyday(conninfo, options):
    """What dashboards, mappers, pages of lists and loads send: the same answers over heap tables with indexes."""
    claims, pushdown = Claims("everyday"), Pushdown()
    folder = f"{options.data}-everyday"
    workload.make_data(folder, EVERYDAY_ROWS, EVERYDAY_FILES)
    with Session(conninfo, [STATEMENT_TIMEOUT]) as session:
        workload.make_tables(session, folder, "everyday", "everyday_heap", "pystachio", tables.import_statement)
    pair = Pair(conninfo, "everyday_heap, tpch_heap", "everyday, tpch")
    for query in workload.queries():
        if options.only and options.only not in query.full_name:
            continue
        prepare = [query.prepare] if query.prepare else []
        cleanup = [query.cleanup] if query.prepare else []
        compare(pair, claims, query.full_name, query.sql, query.is_ordered, prepare, cleanup)
        for statement in prepare:
            outcome(pair.actual, statement)
        if query.group != "mixed":
            pushdown.look(pair, query.full_name, query.sql)
        for statement in cleanup:
            outcome(pair.actual, statement)
    pair.close()
    finish_pushdown(claims, pushdown, options)
    return claims


def run_readers(conninfo, options):
    """Files that readers get wrong or refuse give their values, or the same error, on the CPU engine and on the emulated device."""
    claims = Claims("readers")
    folder, lake = f"{options.data}-readers", f"{options.data}-lake"
    found = readers.write(folder)
    engines = ("cpu", "emulated")
    with Session(conninfo, [STATEMENT_TIMEOUT, "SET client_min_messages = warning"]) as session:
        for device in engines:
            session.run(f"DROP SERVER IF EXISTS readers_{device} CASCADE; DROP SCHEMA IF EXISTS readers_{device} CASCADE")
            session.run(f"CREATE SERVER readers_{device} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{device}', memory '512MB')")
            session.run(f"CREATE SCHEMA readers_{device}")
            for table, case in found.items():
                sql = tables.import_statement(folder, f"readers_{device}", f"readers_{device}", f"LIMIT TO ({table})")
                if case.columns:
                    sql = (f"CREATE FOREIGN TABLE readers_{device}.{table} ({case.columns}) SERVER readers_{device} "
                           f"OPTIONS (path '{folder}/{table}.parquet')")
                made = outcome(session, sql)
                claims.record(f"{case.name} has a table, {device}", str(made) if isinstance(made, QueryError) else None)
        check_other_formats(session, claims, lake)
    choice = ["SET TimeZone = 'UTC'", "SET pystachio.engine_choice = gpu"]
    pair = Pair(conninfo, "public", "public", choice, choice)
    print(f"readers: {len(found)} files")
    for table, case in found.items():
        if options.only and options.only not in case.name:
            continue
        for sql, expected in case.queries:
            actual = [outcome(pair.expected, sql.replace("{t}", f"readers_{device}.{table}")) for device in engines]
            failure = readers.failure(expected, dict(zip(engines, actual)))
            claims.record(f"{case.name}: {sql}", failure and f"{table}: {failure}")
            if any(isinstance(side, QueryError) and side.sqlstate == "08006" for side in actual):
                pair.reopen()
    pair.close()
    return claims


def check_other_formats(session, claims, folder):
    """Folders that are tables of other formats are refused by scans and by IMPORT, which a file of them alone is not."""
    made = readers.folders(folder)
    session.run("DROP SCHEMA IF EXISTS lake CASCADE; CREATE SCHEMA lake")

    def refused(name, sql, words):
        error = outcome(session, sql)
        is_refused = isinstance(error, QueryError) and error.sqlstate == "0A000" and words in error.message
        claims.check(name, is_refused, f"{sql}\n{error if isinstance(error, QueryError) else error.rows}")

    for table, words in made.items():
        words = f'"{folder}/{table}" is a table of {words}'
        for number, path in enumerate((table, f"{table}/part=1", f"{table}/*.parquet", f"{table}/*/*.parquet")):
            session.run(f"CREATE FOREIGN TABLE lake.{table}{number} (a integer) SERVER readers_cpu OPTIONS (path '{folder}/{path}')")
            refused(f"a scan of {path}", f"SELECT a FROM lake.{table}{number}", words)
        refused(f"an import of {table}", tables.import_statement(f"{folder}/{table}", "lake", "readers_cpu"), words)
        # Tables of Delta Lake and Iceberg are read, but these have nothing.
        if table not in ("delta", "iceberg"):
            refused(f"an import of {table} among others", tables.import_statement(folder, "lake", "readers_cpu", f"LIMIT TO ({table}, plain)"), words)
        session.run(f"CREATE FOREIGN TABLE lake.{table}_file (a integer) SERVER readers_cpu OPTIONS (path '{folder}/{table}/a.parquet')")
        claims.check(f"a file of {table} is read", outcome(session, f"SELECT count(*) FROM lake.{table}_file").rows == [("2",)])
    session.run(tables.import_statement(folder, "lake", "readers_cpu", f"EXCEPT ({', '.join(made)})"))
    claims.check("an import leaves the others out", outcome(session, "SELECT sum(a) FROM lake.plain").rows == [("3",)])


def prepare_tpch(conninfo, folder, schemas):
    """Generates TPC-H at SF 0.01 if it is not there, imports it and copies it to heap tables."""
    with Session(conninfo, ["SET statement_timeout = '600s'"]) as session:
        if not (pathlib.Path(folder) / "lineitem.parquet").exists():
            session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', 0.01)")
        if "tpch" in schemas:
            tables.tpch_foreign(session, folder)
            tables.heap_copy(session, "tpch", "tpch_heap")
        if "spec" in schemas:
            tables.spec_foreign(session, folder)
            tables.heap_copy(session, "spec", "spec_heap")


def self_check(conninfo, options):
    """The runner's own test: heap agrees with heap; after a change of one value it must say so."""
    options.factor = min(options.factor, 0.3)
    suites = [run_data(conninfo, options), run_generated(conninfo, options), run_edges(conninfo, options)]
    agree = Claims("self-check")
    for claims in suites:
        agree.check(f"{claims.suite}: heap agrees with heap", claims.failed == 0 and claims.passed > 20)
    with Session(conninfo) as session:
        session.run("UPDATE pq.t1 SET c = 'changed' WHERE id = 1; UPDATE pq.edge_int4 SET v = 4 WHERE v = 3")
    print("self-check: the failures that follow are wanted")
    for run in (run_data, run_generated, run_edges):
        claims = run(conninfo, options)
        agree.check(f"{claims.suite}: a changed value is found", claims.failed > 0)
    section = next(cases.sections())
    section.lines[0][-1] = "changed"
    with Session(conninfo) as session:
        agree.check("cases: a changed line is found", cases.failure(session, section, {}) is not None)
    return agree


def main():
    parser = argparse.ArgumentParser(description="Compares foreign tables with heap tables.")
    parser.add_argument("conninfo")
    parser.add_argument("--data", required=True)
    parser.add_argument("--tpch")
    parser.add_argument("--suite", action="append", choices=SUITES)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--factor", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--order", type=int, help="a number that chooses the order of the suites")
    parser.add_argument("--only")
    parser.add_argument("--self-check", action="store_true")
    parser.add_argument("--counts", help="a file to write the counts to, as JSON")
    options = parser.parse_args()
    suites = list(options.suite or SUITES)
    if options.order is not None:
        random.Random(options.order).shuffle(suites)
    print(f"seed {options.seed}, share {options.share}")
    folder = tables.copy_data(options.data)
    if set(suites) & {"data", "generated", "sent", "edges", "literals", "letters", "arrays", "statements", "set_operations", "optimized", "rewrites"} or options.self_check:
        with Session(options.conninfo) as session:
            tables.edge_schemas(session, folder, foreign=not options.self_check)
    if options.self_check:
        claims = self_check(options.conninfo, options)
        write_counts(options.counts, claims)
        return claims.summary()
    wanted = {"tpch", "views", "optimized", "spill", "ranks", "rewrites", "spec", "estimates", "everyday"} & set(suites)
    if wanted:
        if not options.tpch:
            parser.error("suites tpch, views, spec, optimized, spill, ranks, rewrites, estimates and everyday need --tpch FOLDER")
        prepare_tpch(options.conninfo, options.tpch, wanted | {"tpch"})
    tallies = []
    status = 0
    for suite in suites:
        begin = time.monotonic()
        claims = globals()[f"run_{suite}"](options.conninfo, options)
        claims.times.append((time.monotonic() - begin, f"suite {suite}"))
        status |= claims.summary()
        print(f"    ({claims.times[-1][0]:.1f} s)", flush=True)
        tallies.append(claims)
    write_counts(options.counts, *tallies)
    return status


if __name__ == "__main__":
    sys.exit(main())
