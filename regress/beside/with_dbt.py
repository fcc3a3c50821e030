"""dbt: a project whose sources are foreign tables, and the same one over heap copies. It runs twice, so that increments and a
snapshot find what is there.
"""

import os
import pathlib
import shutil
import subprocess

from beside.support import DATABASE, ROOT, require_equal
from faults.support import HANG_S, IS_WHOLE, require

_RESULTS = {"order_totals": "o_orderkey, o_custkey, o_orderdate, total", "segments": "c_mktsegment, orders, total", "by_month": "month, lines, value",
            "balances": "c_custkey, c_acctbal, dbt_valid_to IS NULL"}


def _run(place, folder, schema):
    program = pathlib.Path(place.packages.paths["dbt"]).parent / "dbt"
    command = [program, "--quiet", "build", "--project-dir", folder, "--profiles-dir", folder, "--vars", f"{{tables: {schema}}}", "--target", f"on_{schema}"]
    environment = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, env=environment, cwd=folder)
    require(done.returncode == 0, f"dbt build: {done.stdout[-3000:]}{done.stderr[-2000:]}")


def builds(place):
    """Tables, views, increments, tests of sources and a snapshot: twice."""
    folder = place.root / "dbt"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "regress/beside/dbt", folder)
    server = place.parameters()
    outputs = [f"    on_{schema}: {{type: postgres, host: {server['host']}, port: {server['port']}, user: {server['user']}, password: '', dbname: {DATABASE}, "
               f"schema: dbt_{schema}, threads: 4}}" for schema in ("tpch", "tpch_heap")]
    (folder / "profiles.yml").write_text("beside:\n  target: on_tpch\n  outputs:\n" + "\n".join(outputs) + "\n", encoding="utf-8")
    for schema in ("tpch", "tpch_heap"):
        _run(place, folder, schema)
        if IS_WHOLE:
            _run(place, folder, schema)
    for name, columns in _RESULTS.items():
        found = [place.watch.run(f"SELECT {columns} FROM dbt_{schema}.{name} ORDER BY 1").rows for schema in ("tpch", "tpch_heap")]
        require(found[0], f"{name} has no rows")
        require_equal(*found, name)
    place.watch.run("SET client_min_messages = warning; DROP SCHEMA dbt_tpch, dbt_tpch_heap CASCADE; RESET client_min_messages")


TESTS = [builds]
