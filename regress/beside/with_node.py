"""node-postgres: `with_node.js` compares; this prints what it found."""

import json
import os
import subprocess

from beside.support import BY_KEY, DATABASE, FAILING, FOREIGN, HEAP, KEYS, LONG_QUERY, QUERIES, ROOT, edge_tables
from faults.support import HANG_S, require


def node_postgres(place):
    """Results, prepared statements, cursors, COPY, a pool, cancels."""
    given = {**place.parameters(), "database": DATABASE, "paths": [path.replace(" ", "") for path in (FOREIGN, HEAP)], "queries": QUERIES,
             "byKey": BY_KEY.format("$1"), "keys": KEYS, "long": LONG_QUERY, "failing": FAILING, "tables": edge_tables()}
    environment = {**os.environ, "NODE_PATH": place.packages.paths["node"]}
    done = subprocess.run(["node", ROOT / "regress/beside/with_node.js", json.dumps(given)], capture_output=True, text=True, env=environment,
                          timeout=HANG_S, check=False)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if not line.startswith("ok ")]
    require(done.returncode == 0 and not failed and len(lines) >= 8, "\n".join([*failed, done.stderr, f"{len(lines)} tests"]))
    place.wait_idle()


TESTS = [node_postgres]
