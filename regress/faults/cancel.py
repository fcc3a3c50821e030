"""A cancelled query's work stops soon, whatever the engine is in the middle of."""

import contextlib
import pathlib
import time

from faults.support import HANG_S, STOP_CPU_S_MAX, cpu_s, require, wait_until
from harness import tables
from harness.libpq import QueryError

# Every row has the same key.
_ONE_KEY = "(SELECT *, l_orderkey * 0 AS k FROM lineitem OFFSET 0)"
# Thousands of pairs a row: even a GPU does not make them all before the cancel comes.
_PAIRS = "lineitem a JOIN lineitem b ON a.l_suppkey % 7 = b.l_suppkey % 7"
# One row of lineitem with a text of some 50 MB, the others as they are.
_LONG_TEXT = "CASE WHEN l_orderkey = 1 AND l_linenumber = 1 THEN replace(replace(l_comment || 'eeeee', 'e', repeat('y', 1000)), 'y', repeat('z', 10000)) " \
             "ELSE l_comment END"
_SERVER = "cancelled"
_CASES = {
    "pairs that a LIKE drops": "SELECT count(*) FROM lineitem a, lineitem b WHERE a.l_comment LIKE '%'||b.l_shipmode||'%z%'||b.l_comment||'%'",
    "an outer join of pairs": "SELECT count(*) FROM lineitem a LEFT JOIN lineitem b ON a.l_comment LIKE '%'||b.l_comment||'%'",
    "a semi join of pairs": "SELECT count(*) FROM lineitem a WHERE EXISTS (SELECT 1 FROM lineitem b WHERE b.l_comment LIKE '%zz%'||a.l_comment||'%')",
    "an anti join of pairs": "SELECT count(*) FROM lineitem a WHERE NOT EXISTS (SELECT 1 FROM lineitem b WHERE b.l_comment LIKE '%zz%'||a.l_comment||'%')",
    "all pairs": "SELECT sum(a.l_tax * b.l_tax) FROM lineitem a, lineitem b",
    "one key, no pair kept": f"SELECT count(*) FROM {_ONE_KEY} a JOIN {_ONE_KEY} b ON a.k = b.k AND a.l_comment || b.l_comment LIKE '%never there%'",
    "one key, no pair kept, cheaply": f"SELECT count(*) FROM {_ONE_KEY} a JOIN {_ONE_KEY} b ON a.k = b.k AND a.l_orderkey + b.l_orderkey < 0",
    "one key, a semi join": f"SELECT count(*) FROM {_ONE_KEY} a WHERE EXISTS (SELECT 1 FROM {_ONE_KEY} b WHERE a.k = b.k AND a.l_orderkey + b.l_orderkey < 0)",
    "a sort": f"SELECT * FROM (SELECT a.l_comment || b.l_comment AS c, a.l_orderkey FROM {_PAIRS}) x ORDER BY c DESC OFFSET 1000000000",
    "a sort by a long text": f"SELECT count(*) FROM (SELECT {_LONG_TEXT} AS c FROM large.lineitem ORDER BY 1 OFFSET 1000) x",
    "the first of many": f"SELECT a.l_comment || b.l_comment FROM {_PAIRS} ORDER BY 1 LIMIT 100000",
    "distinct values": f"SELECT count(DISTINCT a.l_comment || b.l_comment) FROM {_PAIRS}",
    "distinct values twice": f"SELECT count(DISTINCT a.l_comment || b.l_comment), count(DISTINCT a.l_orderkey + b.l_orderkey) FROM {_PAIRS}",
    "groups": f"SELECT count(*) FROM (SELECT a.l_comment || b.l_comment AS c, count(*) FROM {_PAIRS} GROUP BY 1) x",
    "decoding": "SELECT count(*) FROM large.lineitem WHERE l_comment LIKE '%never there%'",
    "a sample": "ANALYZE large.lineitem",
    "generating": "SELECT * FROM pystachio.tpch_generate('{folder}', 10, overwrite => true)",
    "generating for GPUs": "SELECT * FROM pystachio.tpch_generate('{folder}', 10, overwrite => true, layout => 'gpu')",
    "optimizing": "SELECT * FROM pystachio.optimize_parquet('{large}', '{folder}-optimized', overwrite => true)",
}
# When the cancel comes.
_AFTER_S = 0.3
# An engine that rests uses less processor time than this in so long.
_REST_S, _REST_CPU_S_MAX = 0.3, 0.05
# An emulated device ends what it has begun: a launch on one core.
_LAUNCH_CPU_S_MAX = 3.0


def _cancel_in(place, session, name, query, server="pystachio"):
    pid = place.engine_pid(server)
    session.start(query)
    time.sleep(_AFTER_S)
    session.cancel()
    before = cpu_s(pid)
    try:
        session.finish(HANG_S)
        return False
    except QueryError as error:
        require(error.sqlstate == "57014", f"{name}: {error}")
    place.wait_idle(server)
    wait_until(lambda: _rests(pid), f"{name}: the engine rests")
    used_s, used_s_max = cpu_s(pid) - before, _LAUNCH_CPU_S_MAX if server == _SERVER else STOP_CPU_S_MAX
    require(used_s <= used_s_max, f"{name}: the engine computed for {used_s:.2f} s of processors after the cancel")
    require(place.engine_pid(server) == pid, f"{name}: the engine's process is another one")
    return True


def _rests(pid):
    """Whether a process computes nothing, and not only because others have the processors."""
    before = cpu_s(pid)
    time.sleep(_REST_S)
    return cpu_s(pid) - before <= _REST_CPU_S_MAX and not _runnable(pid)


def _runnable(pid):
    """How many threads of a process run or wait for a processor."""
    count = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            count += (task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "R"
    return count


def work_stops_when_cancelled(place):
    """Joins that keep no pair, sorts, groups, decoding, sampling, writing files: none computes on."""
    folder = f"{place.folder}/faults-large"
    with place.session("SET client_min_messages = warning", "SET search_path = work, public") as session:
        session.run("DROP SCHEMA IF EXISTS large CASCADE; CREATE SCHEMA large")
        # One row group, and the generator's text, which is made once and for all.
        session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', 0.5, ARRAY['lineitem'], overwrite => true, row_group_rows => 16000000)")
        session.run(tables.import_statement(folder, "large"))
        cancelled = [name for name, query in _CASES.items()
                     if _cancel_in(place, session, name, query.format(folder=f"{place.folder}/faults-cancelled", large=folder))]
        # What is read from files may be through before, and one long text too.
        missed = set(_CASES) - set(cancelled) - {"decoding", "a sample", "a sort by a long text"}
        require(not missed, f"not cancelled: {missed}")
        left = [path for name in ("cancelled", "cancelled-optimized") for path in pathlib.Path(f"{place.folder}/faults-{name}").glob("**/*")]
        require(not left, f"cancelled work left {left}")
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "the session is usable")
        session.run("DROP SCHEMA large CASCADE")


def a_sort_by_a_long_text_stops_on_a_gpu(place):
    """Texts are told apart pass after pass there, and made with ever more space: none of it goes on after a cancel."""
    device = place.gpu_device()
    with place.session("SET client_min_messages = warning", "SET pystachio.engine_choice = gpu", f"SET search_path = {_SERVER}, public") as session:
        session.run(f"DROP SERVER IF EXISTS {_SERVER} CASCADE; DROP SCHEMA IF EXISTS {_SERVER} CASCADE")
        session.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{device}', memory '1GB', device_memory '1GB')")
        tables.tpch_foreign(session, place.tpch, _SERVER, _SERVER)
        name = "a sort by a long text"
        cancelled = _cancel_in(place, session, name, _CASES[name].replace("large.lineitem", "lineitem"), _SERVER)
        require(cancelled or device != "emulated", f"not cancelled: {name}")
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "the session is usable")
        session.run(f"DROP SERVER {_SERVER} CASCADE; DROP SCHEMA {_SERVER} CASCADE")


TESTS = [work_stops_when_cancelled, a_sort_by_a_long_text_stops_on_a_gpu]
