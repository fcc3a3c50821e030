"""Many clients on a device with little memory, among cancels and changing caches: the answers of one, and no engine that ends."""

import os
import shutil
import time

from faults.support import IS_WHOLE, TPCH_SCALE, require
from harness import tables
from harness.clients import Load, process_start, run_clients, sorted_rows
from harness.libpq import QueryError

_SERVER = "crowded"
# By device: scale factor, its memory, and that of the host. Each of four queries has a quarter, and most of them spill; page-locked
# memory for that is in several extents.
_SIZES = {"cuda": (1, "64MB", "1GB"), "emulated": (TPCH_SCALE, "4MB", "256MB")}
_ROW_GROUP_ROWS = {"cuda": 100_000, "emulated": 4096}
# How many clients there are, one after another, and for how many seconds.
_COUNTS = {1: 5, 4: 10, 16: 10, 64: 5} if IS_WHOLE else {4: 4, 64: 4}
_CANCELLED_SHARE = 0.1
# A query waits for all that came before it.
_QUERY_S_MAX = 600
# Whose files are replaced, in copies of their own.
_CHANGED = ("customer", "nation", "orders", "supplier")
_CHANGED_QUERY = ("SELECT n_name, count(*), sum(o_totalprice), min(c_name) FROM orders JOIN customer ON o_custkey = c_custkey "
                  "JOIN nation ON c_nationkey = n_nationkey GROUP BY 1 ORDER BY 1")


def _session(place, schema):
    return place.session("SET client_min_messages = warning", "SET pystachio.engine_choice = gpu", f"SET statement_timeout = '{_QUERY_S_MAX}s'",
                         f"SET search_path = {schema}, public")


def _prepare(place, device):
    """The server, TPC-H in small row groups, and a copy of some files that change."""
    scale, device_memory, memory = _SIZES[device]
    folder = f"{place.folder}/faults-{_SERVER}"
    with _session(place, "public") as session:
        session.run(f"DROP SERVER IF EXISTS {_SERVER} CASCADE; DROP SCHEMA IF EXISTS changed CASCADE; CREATE SCHEMA changed")
        session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', {scale}, overwrite => true, row_group_rows => {_ROW_GROUP_ROWS[device]})")
        session.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio "
                    f"OPTIONS (device '{device}', memory '{memory}', device_memory '{device_memory}')")
        tables.tpch_foreign(session, folder, _SERVER, _SERVER)
    changed = f"{folder}-changed"
    os.makedirs(changed, exist_ok=True)
    os.chmod(changed, 0o755)
    return folder, changed


def _replace(source, target):
    """The same rows in another file, which caches know nothing of."""
    shutil.copyfile(source, f"{target}.new")
    os.chmod(f"{target}.new", 0o644)
    os.replace(f"{target}.new", target)


def _change(place, folder, changed, wanted, deadline):
    """Replaces files and drops tables, and queries them, until a time; returns what went wrong."""
    errors = []
    with _session(place, "changed") as session:
        while time.monotonic() < deadline and len(errors) < 5:
            for table in _CHANGED:
                _replace(f"{folder}/{table}.parquet", f"{changed}/{table}.parquet")
            try:
                session.run("DROP SCHEMA changed CASCADE; CREATE SCHEMA changed")
                session.run(tables.import_statement(changed, "changed", _SERVER))
                for _ in range(2):
                    if sorted_rows(session.run(_CHANGED_QUERY)) != wanted:
                        errors.append("replaced files give other rows")
            except QueryError as error:
                errors.append(f"replaced files: {error}")
    return errors


def many_clients_get_the_answers_of_one(place):
    """Up to 64 clients over the 22 queries: all wait for memory, spill, and are cancelled now and then."""
    device = place.gpu_device()
    folder, changed = _prepare(place, device)
    with _session(place, _SERVER) as session:
        queries = {f"q{number:02}": session.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in range(1, 23)}
        answers = {name: sorted_rows(session.run(sql)) for name, sql in queries.items()}
        wanted = sorted_rows(session.run(_CHANGED_QUERY))
        if _SIZES[device][0] == TPCH_SCALE:
            session.run("SET search_path = tpch_heap, public")
            differing = [name for name, sql in queries.items() if sorted_rows(session.run(sql)) != answers[name]]
            require(not differing, f"one client does not get heap PostgreSQL's answers: {differing}")
    engine = place.engine(_SERVER)
    pid, start, restarts = int(engine["pid"]), process_start(int(engine["pid"])), engine["restarts"]
    load = Load(lambda: _session(place, _SERVER), queries, answers, _CANCELLED_SHARE, seed=20260101)
    one = None
    for count, seconds in _COUNTS.items():
        outcome = run_clients(load, count, seconds, lambda deadline: _change(place, folder, changed, wanted, deadline))
        print(f"    {outcome.line(one)}", flush=True)
        one = one or outcome
        require(not outcome.errors, f"{count} clients: {outcome.errors[:5]}")
        now = place.engine(_SERVER)
        require((int(now["pid"] or 0), now["restarts"]) == (pid, restarts) and process_start(pid) == start,
                f"{count} clients: the engine is another one: {now}")
        place.wait_idle(_SERVER)
    with _session(place, _SERVER) as session:
        session.run(f"DROP SCHEMA changed CASCADE; DROP SERVER {_SERVER} CASCADE; DROP SCHEMA {_SERVER} CASCADE")


TESTS = [many_clients_get_the_answers_of_one]
