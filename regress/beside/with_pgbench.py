"""pgbench with 32 clients in its three modes, each of whose transactions compares an answer with that of heap tables."""

import os
import re
import subprocess

from beside.support import FOREIGN
from faults.support import HANG_S, IS_WHOLE, require

CLIENTS = 32
TRANSACTIONS = 40 if IS_WHOLE else 6
# An error ends the client, and pgbench says so.
_EQUAL = """CREATE OR REPLACE FUNCTION public.require_equal(what text, ours text, theirs text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF ours IS DISTINCT FROM theirs THEN
    RAISE EXCEPTION '%: over foreign tables %, over heap tables %', what, ours, theirs;
  END IF;
END $$"""
# Queries with {0} for the schema; the parameters are random.
_QUERIES = {
    "by key": "SELECT count(*) || ' ' || coalesce(sum(l_extendedprice), 0) AS v FROM {0}.lineitem WHERE l_orderkey = :key",
    "range": "SELECT count(*) || ' ' || coalesce(max(o_comment), '') AS v FROM {0}.orders WHERE o_orderkey BETWEEN :key AND :key + 500",
    "join": "SELECT count(*) || ' ' || coalesce(sum(o_totalprice), 0) AS v FROM {0}.orders JOIN {0}.customer ON c_custkey = o_custkey "
            "WHERE c_nationkey = :nation",
    "in a transaction": "SELECT string_agg(n_name, ',' ORDER BY n_name) AS v FROM {0}.nation WHERE n_regionkey = :nation % 5",
}


def _script(name, query, mode):
    begin, end = ("BEGIN;", "COMMIT;") if "transaction" in name else ("", "")
    # The values of variables are parameters in all modes but the simple one, where they are text.
    values = "$q$:ours_v$q$, $q$:theirs_v$q$" if mode == "simple" else ":ours_v, :theirs_v"
    return f"""\\set key random(1, 60000)
\\set nation random(0, 24)
{begin}
{query.format("tpch")} \\gset ours_
{query.format("tpch_heap")} \\gset theirs_
SELECT public.require_equal('{name}', {values});
{end}
"""


def run_pgbench(place, mode, conninfo, clients=CLIENTS):
    """Runs the scripts in one mode over a connection string; raises AssertionError unless every transaction succeeds."""
    folder = place.own_folder("pgbench")
    files = []
    for number, (name, query) in enumerate(_QUERIES.items()):
        path = folder / f"{number}.sql"
        path.write_text(_script(name, query, mode), encoding="utf-8")
        files += ["-f", str(path)]
    command = [place.bindir / "pgbench", "-n", "-M", mode, "-c", str(clients), "-j", "2", "-t", str(TRANSACTIONS), *files, conninfo]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, env={**os.environ, "PGTZ": "UTC"})
    processed = re.search(r"number of transactions actually processed: (\d+)/(\d+)", done.stdout)
    failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
    good = processed and processed[1] == processed[2] == str(clients * TRANSACTIONS) and (not failed or failed[1] == "0")
    require(done.returncode == 0 and good, f"{mode}: {done.stdout}\n{done.stderr}")


def _mode(mode):
    def test(place):
        place.watch.run(_EQUAL)
        run_pgbench(place, mode, place.conninfo_with(FOREIGN))
        place.wait_idle()

    test.__name__ = f"{CLIENTS}_clients_{mode}"
    test.__doc__ = f"{CLIENTS} clients in mode {mode}."
    return test


TESTS = [_mode(mode) for mode in ("simple", "extended", "prepared")]
