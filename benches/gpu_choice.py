"""The step `choice` of gpu.py: whether the choice of engine is the faster engine, over a matrix of queries, forms of files and states of
caches, and what the smallest queries cost.

| state | caches |
|---|---|
| hot | both engines have run the query three times |
| first | the engine is new, and files are in the page cache: each choice has an engine of its own |

`auto` is compared with the better of both engines, each measured in the same state.
"""

import math
import statistics
import time

import gpu_forms
from harness import tables
from harness.libpq import QueryError, Session

CHOICES = ("cpu", "gpu", "auto")
# Forms of other writers that are measured beside our own.
FORMS = ("duckdb",)
# Queries whose first runs are measured: of each an engine is started three times.
FIRST_QUERIES = (1, 3, 6, 13, 18, 21)
WARM_RUNS = 3
# A count, a lookup, a filter and a join of the smallest tables.
SMALL = {
    "count": "SELECT count(*) FROM nation",
    "lookup": "SELECT n_name FROM nation WHERE n_nationkey = 7",
    "sum": "SELECT sum(s_acctbal) FROM supplier WHERE s_nationkey < 5",
    "join": "SELECT r_name, count(*) FROM nation JOIN region ON n_regionkey = r_regionkey GROUP BY r_name ORDER BY r_name",
}
SMALL_RUNS = 30


def _seconds(peer, sql):
    begin = time.perf_counter()
    peer.receive(sql)
    return time.perf_counter() - begin


def _settings(choice, schema):
    return [f"SET search_path = {schema}, public", f"SET pystachio.engine_choice = {choice}"]


def _hot(bench, schema, sql):
    """The least seconds of each choice, with what it needs in its engine's caches."""
    found = {}
    for choice in CHOICES:
        peer = bench.peer("gpu", _settings(choice, schema))
        try:
            for _ in range(WARM_RUNS):
                peer.receive(sql)
            found[choice] = min(_seconds(peer, sql) for _ in range(bench.options.runs))
        finally:
            peer.close()
    return found


def _first(bench, schema, sql):
    """The seconds of each choice on an engine that has nothing yet."""
    found = {}
    for choice in CHOICES:
        bench.restart_engine("gpu")
        peer = bench.peer("gpu", _settings(choice, schema))
        try:
            found[choice] = _seconds(peer, sql)
        finally:
            peer.close()
    return found


def summary(rows):
    """Geometric mean and greatest of `auto` over the better engine, and the row of the greatest."""
    ratios = [(row["auto"] / min(row["cpu"], row["gpu"]), row) for row in rows]
    worst = max(ratios, key=lambda entry: entry[0])
    return math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios)), worst[0], worst[1]


def run_choice(bench):
    """Measures the matrix. Returns 0: times decide nothing."""
    schemas = {"own": bench.schema("gpu")}
    for form in FORMS:
        folder, schema = bench.folder / f"{form}-sf{bench.options.scale}", bench.schema(f"form_{form}").replace("-", "_")
        gpu_forms.write_files(bench, form, folder)
        with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
            tables.tpch_foreign(session, folder, schema, "gpu")
        schemas[form] = schema
    rows = []
    for form, schema in schemas.items():
        for state, measure, queries in (("hot", _hot, bench.queries()), ("first", _first, bench.queries(FIRST_QUERIES))):
            for name, sql in queries.items():
                if not bench.has_time():
                    break
                try:
                    found = measure(bench, schema, sql)
                except QueryError as error:
                    print(f"choice {form} {state} {name}  fails: {str(error).splitlines()[0]}", flush=True)
                    continue
                rows.append({"form": form, "state": state, "query": name, **found})
                print(f"choice {form} {state} {name}  " + "  ".join(f"{choice} {found[choice] * 1e3:.1f} ms" for choice in CHOICES), flush=True)
    for form in schemas:
        for state in ("hot", "first"):
            some = [row for row in rows if (row["form"], row["state"]) == (form, state)]
            if some:
                mean, greatest, row = summary(some)
                print(f"choice {form} {state}: auto takes {mean:.2f} of the better engine's time by geometric mean, at most {greatest:.2f} ({row['query']})",
                      flush=True)
    if rows:
        mean, greatest, row = summary(rows)
        print(f"choice: {len(rows)} places, {mean:.3f} by geometric mean, at most {greatest:.2f} ({row['form']} {row['state']} {row['query']})", flush=True)
    _measure_small(bench)
    return 0


def _measure_small(bench):
    """The smallest queries on the device's engine: what a query costs there whatever it reads."""
    for choice in ("gpu", "cpu"):
        peer = bench.peer("gpu", [f"SET pystachio.engine_choice = {choice}"])
        for name, sql in SMALL.items():
            for _ in range(WARM_RUNS):
                peer.receive(sql)
            seconds = sorted(_seconds(peer, sql) for _ in range(SMALL_RUNS))
            print(f"small {choice} {name}  least {seconds[0] * 1e3:.2f} ms, median {statistics.median(seconds) * 1e3:.2f} ms", flush=True)
        peer.close()
