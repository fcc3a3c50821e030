"""The step `load` of gpu.py: the 22 queries by 1, 4, 16 and 64 clients at once, each in an order of its own.

First on the server `gpu`, hot: answers a second, and how many times those of one client. Then on a server `crowded` with a
quarter of the data's bytes as GPU memory, among cancels, and while other files are replaced: every query waits, and many spill. No
answer may differ from one client's, no query may fail, and the engine's process must be the same all the time.
"""

import os
import shutil
import time

from harness import tables
from harness.clients import Load, process_start, run_clients, sorted_rows
from harness.libpq import QueryError, Session
from report import number

# The arena of the server `crowded` is this part of the data's bytes, as they are in the files.
CROWDED_PART = 4
CROWDED_BYTES_MIN = 4 << 20
CROWDED = "crowded"
CROWDED_CLIENTS = (16, 64)
CANCELLED_SHARE = 0.1
# Answers that are looked at on the server `gpu`: making values of all of them would measure Python.
COMPARED_SHARE = 0.2
# What clients are to reach: so many times the answers a second of another number of clients.
RATIOS_MIN = {16: (1, 3.0), 64: (1, 3.0)}
# Whose files are replaced, in copies of their own.
CHANGED = ("customer", "nation", "supplier")
CHANGED_QUERY = ("SELECT n_name, count(*), sum(c_acctbal), min(c_name) FROM customer JOIN nation ON c_nationkey = n_nationkey "
                 "JOIN supplier ON s_nationkey = n_nationkey AND s_acctbal > c_acctbal AND s_suppkey < 1000 GROUP BY 1 ORDER BY 1")


class Engine:
    """The process that runs a server's queries now."""

    def __init__(self, bench, server):
        self.bench, self.server = bench, server
        self.identity = self.look()

    def look(self):
        """Its process id, when it began, and how often it was started."""
        with Session(self.bench.conninfo) as session:
            rows = session.run(f"SELECT pid, restarts FROM pystachio.engines WHERE server = '{self.server}'").rows
        pid = int(rows[0][0] or 0) if rows else 0
        return pid, process_start(pid) if pid else 0, rows and rows[0][1]

    def change(self):
        """A text if it is another one now."""
        now = self.look()
        return None if now == self.identity else f"the engine is another one: {self.identity} before, {now} now"


def chunks_loaded(bench, server):
    """How often column chunks that are on the GPU came there, from files or from the host: clients that are hot bring none."""
    with Session(bench.conninfo) as session:
        return int(session.run(f"SELECT coalesce(sum(misses), 0)::bigint FROM pystachio.cache WHERE server = '{server}' AND tier = 'device'").scalar())


def open_session(bench, server):
    """How a client connects."""
    options = bench.options
    return lambda: Session(bench.conninfo, [
        "SET client_min_messages = warning", f"SET search_path = {bench.schema(server)}, public",
        f"SET statement_timeout = '{options.query_limit}s'", f"SET pystachio.engine_choice = {options.engine_choice}", *bench.settings()])


def answers_of_one(bench, server, queries):
    """Every query's answer, once; caches are warm then."""
    with open_session(bench, server)() as session:
        return {name: sorted_rows(session.run(sql)) for name, sql in queries.items()}


def make_crowded(bench):
    """The server with a small arena, and the tables over it."""
    options, schema = bench.options, bench.schema(CROWDED)
    device_memory = max(sum(os.path.getsize(path) for path in bench.files) // CROWDED_PART, CROWDED_BYTES_MIN)
    with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
        session.run(f"DROP SERVER IF EXISTS {CROWDED} CASCADE")
        session.run(f"CREATE SERVER {CROWDED} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{options.device}', "
                    f"device_memory '{device_memory >> 10}kB'{options.server_options})")
        tables.tpch_foreign(session, bench.data, schema, CROWDED)
    return device_memory


def replace_files(bench, deadline):
    """Replaces files, imports them anew and queries them, until a time; returns what went wrong."""
    folder, errors, wanted = bench.folder / "load-changed", [], None
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    with open_session(bench, CROWDED)() as session:
        while time.monotonic() < deadline and len(errors) < 5:
            for table in CHANGED:
                provisional = folder / f"{table}.new"
                shutil.copyfile(bench.data / f"{table}.parquet", provisional)
                provisional.chmod(0o644)
                provisional.replace(folder / f"{table}.parquet")
            try:
                session.run("DROP SCHEMA IF EXISTS load_changed CASCADE; CREATE SCHEMA load_changed")
                session.run(tables.import_statement(folder, "load_changed", CROWDED, f"LIMIT TO ({', '.join(CHANGED)})"))
                session.run("SET search_path = load_changed")
                rows = sorted_rows(session.run(CHANGED_QUERY))
                wanted = wanted or rows
                if rows != wanted:
                    errors.append("replaced files give other rows")
            except QueryError as error:
                errors.append(f"replaced files: {error}")
    return errors


def run_phase(bench, server, load, counts, beside=None):
    """Runs some numbers of clients, one after another, and prints a line for each; returns the outcomes and what went wrong."""
    engine, outcomes, wrong = Engine(bench, server), {}, []
    for count in counts:
        if not bench.has_time():
            break
        loaded = chunks_loaded(bench, server)
        outcome = outcomes[count] = run_clients(load, count, bench.options.load_seconds, beside)
        loaded = max(0, chunks_loaded(bench, server) - loaded)
        print(f"load {server}  {outcome.line(outcomes.get(1))}, {loaded} column chunks loaded", flush=True)
        found = [*outcome.errors, *([engine.change()] if engine.change() else [])]
        for text in found[:5]:
            print(f"    {text}", flush=True)
        wrong += [f"{server}, {count} clients: {text}" for text in found]
        engine = Engine(bench, server)
    return outcomes, wrong


def too_slow(outcomes):
    """Numbers of clients that do less than they are to reach, as texts."""
    found = []
    for count, (base, ratio) in RATIOS_MIN.items():
        if count in outcomes and base in outcomes and outcomes[count].rate < ratio * outcomes[base].rate:
            found.append(f"{count} clients: {outcomes[count].rate:.2f} answers a second, less than {ratio} times those of {base}: "
                         f"{outcomes[base].rate:.2f}")
    return found


def run_load(bench):
    """Returns how much went wrong."""
    queries = bench.queries()
    answers = answers_of_one(bench, "gpu", queries)
    load = Load(open_session(bench, "gpu"), queries, answers, compared_share=COMPARED_SHARE)
    outcomes, wrong = run_phase(bench, "gpu", load, bench.options.clients)
    # A device that is emulated has no more processors than the host.
    slow = too_slow(outcomes) if bench.options.device == "cuda" else []
    device_memory = make_crowded(bench)
    # Its engine runs from then on.
    answers_of_one(bench, CROWDED, dict(list(queries.items())[:1]))
    load = Load(open_session(bench, CROWDED), queries, answers, CANCELLED_SHARE, compared_share=COMPARED_SHARE)
    counts = [count for count in CROWDED_CLIENTS if count in bench.options.clients]
    crowded, crowded_wrong = run_phase(bench, CROWDED, load, counts, lambda deadline: replace_files(bench, deadline))
    wrong += crowded_wrong + slow
    rows = [{"server": server, "clients": outcome.clients, "rate": outcome.rate, "answered": outcome.answered,
             "cancelled": outcome.cancelled, "errors": len(outcome.errors)}
            for server, found in (("gpu", outcomes), (CROWDED, crowded)) for outcome in found.values()]
    bench.results.fact(load=rows, load_wrong=wrong[:20], load_device_memory=device_memory)
    for text in slow:
        print(text, flush=True)
    print(f"load: {len(wrong)} wrong", flush=True)
    return len(wrong)


def load_table(facts):
    """Lines of the report: answers a second by number of clients; none if the step did not run."""
    rows = facts.get("load")
    if not rows:
        return []
    one = {row["server"]: row["rate"] for row in rows if row["clients"] == 1}
    lines = ["## With many clients", "", "Answers a second, the 22 queries in turn. The server `crowded` has "
             f"{facts.get('load_device_memory', 0) / 1e6:.0f} MB of GPU memory; a tenth of its queries is cancelled, and files of other tables "
             "are replaced meanwhile.", "", "| server | clients | answers a second | times one client | answers | cancelled | errors |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        ratio = row["rate"] / one[row["server"]] if one.get(row["server"]) else None
        lines.append(f"| {row['server']} | {row['clients']} | {number(row['rate'], 2)} | {number(ratio, 2)} | {row['answered']} "
                     f"| {row['cancelled']} | {row['errors']} |")
    return [*lines, "", *(f"- {text}" for text in facts.get("load_wrong", [])), ""]
