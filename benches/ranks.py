#!/usr/bin/env python3
"""SQL on one rank and on all GPUs of a host, in steps that can be repeated and stopped.

usage: ranks.py STEP CONNINFO FOLDER --ranks N --device DEVICE [--scale SF] …        (scripts/bench-ranks.sh calls it)

Steps:
- generate: TPC-H, server `gpu`, its tables and statistics, as gpu.py does. What is there stays.
- hot: each query's best of some runs in one engine after one that fills caches, by configuration (below); answers compared with
  those of one rank, as text in full; what each read and moved.
- kill: ranks that are killed or stopped while queries run: the error, and when the next one works.
- skew: a join by a column of few values, with such keys split and not (ranks_skew.py).
- timeline: storage and network over a query's time, with each technique off and on (ranks_timeline.py).
- warm, cold: a fresh engine for each query, files in the page cache, or not there; those that read most first.
- paper_join, large_join: joins of generated rows (ranks_join.py), over one kind of links.
- report: prints the report of what has been measured.

Configurations: `one` (one rank, as a server without ranks), `all` (every query on all ranks that can), `fastest` (on those that are
expected to be faster).

Results are kept in FOLDER/ranks-results, apart for each number of ranks, and written after every query, and with them the report. What takes longer than the
limit of a query is cancelled; a backend that does not hear that is ended.
"""

import contextlib
import json
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

import answers  # noqa: E402
import bandwidth_chart  # noqa: E402
import gpu  # noqa: E402
import ranks_join  # noqa: E402
import ranks_kill  # noqa: E402
import ranks_report  # noqa: E402
import ranks_skew  # noqa: E402
import ranks_timeline  # noqa: E402
import ranks_traffic  # noqa: E402
import storage  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402
from peers import PostgresPeer  # noqa: E402

SERVER = "gpu"
CONFIGURATIONS = ("one", "all", "fastest")
# In a fresh engine only the policy that uses all ranks is compared with one.
FRESH_CONFIGURATIONS = ("one", "all")
# A backend that has not heard its cancel after so long is ended.
DEAF_S = 5.0
# Ranks that are not connected after so long are not going to be.
CONNECTED_S_MAX = 30
# So long a query that starts an engine takes at most.
STARTER_LIMIT_S = 20
# What belongs to a build beside the queries' times.
SECTIONS = ("kill", "skew", "bandwidths", "joins", "join_answers", "generated")
# As many errors one after another end a configuration: nothing works there.
ERRORS_MAX = 4


class Results(gpu.Results):
    """What was measured. Every change is written at once, and with it the report and its drawing."""

    def __init__(self, folder, options):
        super().__init__(folder, options)
        if self.document.get("sections_build") != options.build:
            for section in SECTIONS:
                self.document.pop(section, None)
            self.document["sections_build"] = options.build

    def save(self):
        text = json.dumps(self.document, indent=1)
        provisional = self.path.with_suffix(".new")
        provisional.write_text(text, encoding="utf-8")
        provisional.replace(self.path)
        if "date" not in self.document["facts"]:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        name = ranks_report.file_name(self.document)
        (self.out / f"{name}.md").write_text(ranks_report.markdown(self.document), encoding="utf-8")
        (self.out / f"{name}.json").write_text(text, encoding="utf-8")
        if self.document.get("bandwidths"):
            (self.out / f"{name}.svg").write_text(bandwidth_chart.svg(self.document["bandwidths"]), encoding="utf-8")

    def note(self, section, name, found):
        """Keeps what was found under a name in a section of the document."""
        self.document.setdefault(section, {})[name] = found
        self.save()


class RankBench(gpu.Bench):
    """A database whose server `gpu` is one rank or several."""

    def __init__(self, options):
        super().__init__(options)
        self.results = Results(self.folder / "ranks-results" / f"of-{options.ranks}", options)
        # What starts an engine: a query that all ranks run, over a table that is there.
        self.starter = f"SELECT count(*) FROM {self.schema(SERVER)}.region"

    def configure(self, configuration):
        """Makes the server one rank or several, with a fresh engine, and waits until all ranks are connected."""
        wanted = {} if configuration == "one" else {"ranks": str(self.options.ranks), "rank_policy": configuration}
        with Session(self.conninfo, [f"SET statement_timeout = '{STARTER_LIMIT_S}s'"]) as session:
            rows = session.run("SELECT (pg_options_to_table(srvoptions)).* FROM pg_foreign_server "
                               f"WHERE srvname = '{SERVER}'").rows
            there = {name: value for name, value in rows if name in ("ranks", "rank_policy")}
            changes = [f"DROP {name}" for name in there if name not in wanted]
            changes += [f"{'SET' if name in there else 'ADD'} {name} '{value}'" for name, value in wanted.items()
                        if there.get(name) != value]
            if changes:
                # The engine of the old options ends with this.
                session.run(f"ALTER SERVER {SERVER} OPTIONS ({', '.join(changes)})")
            else:
                self.end_engine(session)
            return self.wait_connected(session, 1 if configuration == "one" else self.options.ranks)

    def engines(self, session):
        """The ranks that run: rank, process, generation of their network."""
        rows = session.run("SELECT rank, pid, generation FROM pystachio.engines "
                           f"WHERE server = '{SERVER}' AND state = 'running' ORDER BY rank").rows
        return [(int(rank), int(pid), generation) for rank, pid, generation in rows if pid]

    def end_engine(self, session):
        """Ends rank 0, and with it all others, and waits until its process is gone."""
        running = self.engines(session)
        if running:
            os.kill(running[0][1], 9)
        deadline = time.monotonic() + gpu.RESTART_S_MAX
        while {pid for _, pid, _ in self.engines(session)} & {pid for _, pid, _ in running}:
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of server {SERVER} are there {gpu.RESTART_S_MAX} s after their end")
            time.sleep(0.02)

    def wait_connected(self, session, count, without=None):
        """Waits until so many ranks are connected, none of which is the process `without`; their processes. The first query starts
        the engine."""
        deadline = time.monotonic() + CONNECTED_S_MAX
        while True:
            with contextlib.suppress(QueryError):
                session.run(self.starter)
            running = self.engines(session)
            pids = [pid for _, pid, _ in running]
            if len(pids) == count and without not in pids and len({generation for _, _, generation in running}) == 1:
                return pids
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(running)} of {count} ranks of server {SERVER} are connected after {CONNECTED_S_MAX} s")
            time.sleep(0.05)

    def open(self, settings=(), schema=None):
        """A session whose queries end in time."""
        limit = f"SET statement_timeout = '{self.options.query_limit}s'"
        choice = f"SET pystachio.engine_choice = {self.options.engine_choice}"
        return PostgresPeer(SERVER, self.conninfo, schema or self.schema(SERVER), [limit, choice, *self.settings(), *settings])

    def raw_gb_s(self):
        """The rate of raw transfers over the links that the server has now: what was measured for this run, or else for an earlier one."""
        known = self.results.document["facts"].get("raw_gb_s", {})
        rate = ranks_traffic.raw_gb_s(self.options.raw, self.options.links)
        if rate:
            self.results.fact(raw_gb_s={**known, self.options.links: rate})
        return rate or known.get(self.options.links)

    @contextlib.contextmanager
    def guarded(self, peer):
        """Ends the session's backend where a query does not end by its own limit."""
        pid = peer.session.backend_pid

        def end():
            with contextlib.suppress(QueryError), Session(self.conninfo) as session:
                session.run(f"SELECT pg_terminate_backend({pid})")

        timer = threading.Timer(self.options.query_limit + DEAF_S, end)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def attempt(self, peer, action):
        """What an action on a session gives within a query's limit: see `tried`."""
        def within_limit():
            with self.guarded(peer):
                return action()

        return self.tried(within_limit)

    def tried(self, action):
        """What an action gives, and None; or None, and its error as text. What fails may take the session along."""
        try:
            return action(), None
        except QueryError as error:
            return None, gpu.first_line(error)


def keep_plan(bench, name, document):
    """Keeps a plan with its measurements."""
    logs = pathlib.Path(bench.options.logs)
    logs.mkdir(parents=True, exist_ok=True)
    (logs / f"{name}.explain.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measure_hot(bench, peer, sql):
    """A query's answer, the seconds of its first run and of the others in turn, and what it read and moved. The limit of a query is one for
    each run. Without further runs the first one counts, and only its answer and time are measured. Where what it moved could not be measured,
    the figures say why, and the session may be gone."""
    begin = time.monotonic()
    with bench.guarded(peer):
        answer = peer.run(sql)
    first, seconds = time.monotonic() - begin, []
    if bench.options.runs == 0:
        return answer, [first], {"first_s": first, "not_measured": "first run alone"}, None
    for _ in range(bench.options.runs):
        with bench.guarded(peer):
            seconds.append(gpu.timed(lambda: peer.receive(sql)))
    try:
        with bench.guarded(peer):
            figures, document = ranks_traffic.measure(peer.session, SERVER, sql)
    except QueryError as error:
        figures, document = {"not_measured": gpu.first_line(error)}, None
    return answer, seconds, {"first_s": first, **figures}, document


def run_hot(bench):
    """Every query again and again in one engine, by configuration. Returns how many answers are not those of one rank, how many queries
    failed, and how many configurations did not start."""
    storage.fill_page_cache(bench.files, bench.threads)
    wrong, queries = 0, bench.queries()
    for configuration in bench.options.configurations:
        if not bench.has_time():
            break
        begin = time.monotonic()
        try:
            bench.configure(configuration)
        except RuntimeError as error:
            wrong += 1
            print(f"hot {configuration:7} {error}", flush=True)
            continue
        bench.results.fact(**{f"start_{configuration}_s": time.monotonic() - begin})
        wrong += run_hot_queries(bench, configuration, queries)
    return wrong


def run_hot_queries(bench, configuration, queries):
    """The queries in the engine that runs. Returns how many answers are not those of one rank, or not there."""
    peer, errors, wrong = bench.open(), 0, 0
    for name, sql in queries.items():
        if not bench.has_time() or errors >= ERRORS_MAX:
            break
        found, error = bench.tried(lambda: measure_hot(bench, peer, sql))
        if error:
            peer.close()
            peer = bench.open()
            errors, wrong = errors + 1, wrong + 1
            bench.results.record("hot", configuration, name, None, error=error)
            print(f"hot {configuration:7} {name}  fails: {error}", flush=True)
            continue
        errors = 0
        difference = record_hot(bench, configuration, name, found)
        if "not_measured" in found[2]:
            peer.close()
            peer = bench.open()
        wrong += difference is not None
    peer.close()
    return wrong


def record_hot(bench, configuration, name, found):
    """Keeps what measure_hot found, and the plan. What differs of the answer, or None."""
    answer, seconds, figures, document = found
    differences = answers.keep_answer(bench.folder / "ranks-results" / f"answers-sf{bench.options.scale}", name, configuration, answer)
    for other in differences.keys() - {configuration}:
        if measured := bench.results.find("hot", other, name):
            measured["difference"] = differences[other]
    bench.results.record("hot", configuration, name, min(seconds), all_seconds=seconds, difference=differences.get(configuration), **figures)
    difference = next((found for found in differences.values() if found), None)
    if document:
        keep_plan(bench, f"sf{bench.options.scale}-{name}-{configuration}", document)
    moved = figures.get("not_measured") or f"sent {figures['sent_bytes'] / 1e6:.2f} MB"
    print(f"hot {configuration:7} {name}  {min(seconds):.4f}  first {figures['first_s']:.3f}  {moved}"
          + (f"  DIFFERS: {difference}" if difference else ""), flush=True)
    return difference


def run_fresh(bench, mode):
    """Every query in fresh engines, on one rank and on all; `cold` drops the files from the page cache first."""
    queries = bench.queries()
    reads = {name: (bench.results.find("hot", "one", name) or {}).get("bytes_read") or 0 for name in queries}
    if mode == "warm":
        storage.fill_page_cache(bench.files, bench.threads)
    for name in sorted(queries, key=lambda name: -reads[name]):
        line = []
        for configuration in FRESH_CONFIGURATIONS:
            if not bench.has_time():
                return 0
            pids = bench.configure(configuration)
            peer = bench.open()
            if mode == "cold":
                storage.drop(bench.files, bench.options.drop_caches)
            counters = [gpu.ReadCounter(pid) for pid in pids]
            seconds, error = bench.attempt(peer, lambda: gpu.timed(lambda: peer.receive(queries[name])))
            more = {"error": error} if error else {"bytes_read": sum(counter.bytes() for counter in counters)}
            bench.results.record(mode, configuration, name, seconds, **more)
            line.append(f"{configuration} " + (f"{seconds:.3f}" if seconds else f"fails: {error}"))
            peer.close()
        print(f"{mode} {name}  " + "  ".join(line), flush=True)
    return 0


def note_facts(bench):
    """What the report says of machine, versions and way of measuring."""
    options = bench.options
    with Session(bench.conninfo) as session:
        versions = {"pystachio": session.run("SELECT pystachio.version()").scalar(),
                    "postgres": session.run("SELECT split_part(version(), ' ', 2)").scalar()}
    bench.results.fact(**gpu.machine_facts(), versions=versions, device=options.device, ranks=options.ranks, built=options.built,
                       runs=options.runs, date=time.strftime("%Y-%m-%d", time.gmtime()))


def run_report(bench):
    """Prints the report."""
    print(ranks_report.markdown(bench.results.document))
    return 0


STEPS = {"generate": gpu.run_generate, "hot": run_hot, "kill": ranks_kill.run_kill, "skew": ranks_skew.run_skew, "timeline": ranks_timeline.run_timeline,
         "warm": lambda bench: run_fresh(bench, "warm"), "cold": lambda bench: run_fresh(bench, "cold"),
         "paper_join": ranks_join.run_paper_join, "large_join": ranks_join.run_large_join, "report": run_report}
# These need no TPC-H.
WITHOUT_TPCH = ("generate", "paper_join", "large_join")


def arguments():
    parser = gpu.step_parser("SQL on one rank and on all GPUs of a host.", STEPS)
    parser.set_defaults(scale="100", runs=4, query_limit=30)
    parser.add_argument("--ranks", type=int, required=True, help="GPUs, or emulated devices")
    parser.add_argument("--configurations", default=CONFIGURATIONS, nargs="+", choices=CONFIGURATIONS, help="of the step hot")
    parser.add_argument("--timeline-query", type=int, default=3, help="the query whose storage and network are drawn")
    parser.add_argument("--timeline-cold", action="store_true", help="with nothing of the files in the page cache")
    parser.add_argument("--links", default="p2p", help="what the server's environment makes ranks move rows over, for the report")
    parser.add_argument("--columns", default=[1, 2, 4, 10], type=lambda text: [int(word) for word in text.split(",")],
                        help="columns of 8 bytes of the paper's join")
    parser.add_argument("--join-rows", type=float, default=1.0, help="share of the joins' rows")
    parser.add_argument("--raw", help="JSON of the raw transfers (the example shuffle), to compare joins with")
    parser.add_argument("--keep-rows", action="store_true", help="leave generated rows there")
    return parser.parse_args()


def main():
    bench = RankBench(arguments())
    if bench.options.step in WITHOUT_TPCH:
        gpu.make_database(bench)
    note_facts(bench)
    return 1 if STEPS[bench.options.step](bench) else 0


if __name__ == "__main__":
    sys.exit(main())
