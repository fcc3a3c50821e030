"""A library that offers paths of its own for foreign tables and their joins (other_paths.c), loaded before pystachio and after it. The
cheapest path is taken, whoever offers it, and the answers stay."""

import pathlib
import shutil
import subprocess

from beside.support import FOREIGN, HEAP, QUERIES, ROOT, require_equal
from faults.support import require

_NAME = "other_paths"
# More of what plans are made of around scans and joins: sorts, groups, subqueries, a rescan, prepared statements, heap tables.
_MORE = {
    "three tables": "SELECT n_name, sum(o_totalprice) FROM orders JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey "
                    "WHERE o_orderdate < '1995-01-01' GROUP BY 1 ORDER BY 1",
    "a subquery": "SELECT o_orderkey, (SELECT count(*) FROM lineitem WHERE l_orderkey = o_orderkey) FROM orders WHERE o_orderkey < 200 ORDER BY 1",
    "not in": "SELECT c_custkey FROM customer WHERE c_custkey NOT IN (SELECT o_custkey FROM orders) ORDER BY 1 LIMIT 50",
    "a heap table": "SELECT h.n_name, count(*) FROM tpch_heap.nation h JOIN supplier ON s_nationkey = h.n_nationkey GROUP BY 1 ORDER BY 1",
    "for each row": "SELECT r.r_name, x.n_name FROM tpch_heap.region r, LATERAL (SELECT n_name FROM nation WHERE n_regionkey = r.r_regionkey "
                    "ORDER BY n_name LIMIT 2) x ORDER BY 1, 2",
}


def _build(place):
    """Compiles the library into the private server."""
    config = subprocess.run(["bash", "-c", f"source {ROOT}/scripts/environment.sh; find_pg_config"], check=True, capture_output=True, text=True).stdout.strip()
    headers = subprocess.run([config, "--includedir-server"], check=True, capture_output=True, text=True).stdout.strip()
    made = place.root / f"{_NAME}.so"
    done = subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{headers}", "-o", made, pathlib.Path(__file__).with_name(f"{_NAME}.c")],
                          capture_output=True, text=True, check=False)
    require(done.returncode == 0, done.stderr)
    target = place.server_folder("pkglibdir") / f"{_NAME}.so"
    target.unlink(missing_ok=True)
    shutil.copy(made, target)


def _plan(session, query):
    return "\n".join(row[0] for row in session.run(f"EXPLAIN {query}").rows)


def _check(place):
    queries = {**QUERIES, **_MORE}
    with place.session(f"SET search_path = {HEAP}") as session:
        wanted = {name: session.run(query).rows for name, query in queries.items()}
    scan, join = "SELECT o_orderkey, o_comment FROM orders", "SELECT o_orderkey, c_name FROM orders JOIN customer ON o_custkey = c_custkey"
    with place.session(f"SET search_path = {FOREIGN}") as session:
        for factor, is_taken in (("0", True), ("0.5", True), ("2", False), ("-1", False)):
            session.run(f"SET other_paths.cost_factor = {factor}")
            for query in (scan, join):
                plan = _plan(session, query)
                require(("Custom Scan (OtherPaths)" in plan) == is_taken and "Foreign Scan" in plan, f"cost_factor {factor}: {query}:\n{plan}")
            for name, query in queries.items():
                require_equal(session.run(query).rows, wanted[name], f"{name}, cost_factor {factor}")
            # A query that engines run whole costs less than rows that are passed on.
            plan = _plan(session, "SELECT o_orderstatus, count(*) FROM orders GROUP BY 1")
            require("Aggregate" not in plan.split("Engine Plan")[0], f"cost_factor {factor}:\n{plan}")


def _loaded(place, libraries):
    _build(place)
    place.watch.run(f"ALTER SYSTEM SET shared_preload_libraries = {', '.join(libraries)}")
    place.restart()
    _check(place)


def loaded_before(place):
    """Its hooks were there first, so that ours call them."""
    _loaded(place, [_NAME, "pystachio"])


def loaded_after(place):
    """Its hooks call ours."""
    _loaded(place, ["pystachio", _NAME])


TESTS = [loaded_before, loaded_after]
