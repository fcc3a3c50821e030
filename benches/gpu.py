#!/usr/bin/env python3
"""TPC-H on a GPU against DuckDB, over the same files on one machine, in steps that can be repeated and stopped.

usage: gpu.py STEP CONNINFO FOLDER --device DEVICE [--scale SF] [--queries "1 6"] …        (scripts/bench-gpu.sh calls it)

Steps, each for one scale factor:
- generate: data, the servers `gpu` (--device) and `cpu`, tables of both, statistics. What is there stays.
- exact: the answers of both servers against heap PostgreSQL's text, which must be the same.
- cold: page cache dropped and a fresh engine (DuckDB: a fresh instance) for every query; the disk's own bandwidth. DuckDB runs
  the --duckdb-cold queries that read most.
- direct: cold once more, with reads past the page cache.
- warm: files in the page cache, a fresh engine for every query, so that no engine's cache holds anything.
- hot: the best of some runs in one engine, after a run that fills caches; answers compared with DuckDB's.
- first: what the first use of a query's shape in an engine adds to its second.
- kernels: launches, time and bytes of every kernel of the hot queries.
- choice: whether the choice of engine is the faster one, and what the smallest queries cost (gpu_choice.py).
- profile: what each kernel of the hot queries takes alone, by Nsight Compute where it is there (gpu_profile.py).
- timeline: how busy storage, bus and GPU are during one query, cold and hot; drawn beside the report.
- calibrate: prints what decoding and operators take, as the constants that the code holds; needs pyarrow.
- ablation: warm and hot, once without each technique that pystachio.gpu_disable knows. A new one is found by itself.
- spill: every query with a sixteenth of the data's bytes as GPU memory: slower, with the same text (gpu_spill.py).
- load: the queries by 1, 4, 16 and 64 clients at once; the same with little memory, cancels and files that change (gpu_load.py).
- forms: the queries, hot, over files that other programs wrote from the same rows (gpu_forms.py).
- report: prints the report of what has been measured.

Results are kept in FOLDER/gpu-results and written after every query, and with them the report, so a step that is
stopped loses one query at most. DuckDB's are kept across builds of pystachio; ours belong to the build that gave them.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

import gpu_calibrate  # noqa: E402
import gpu_report  # noqa: E402
import gpu_watch  # noqa: E402
import storage  # noqa: E402
import timeline_chart  # noqa: E402
from answers import same_answer  # noqa: E402
from gpu_choice import run_choice  # noqa: E402
from gpu_forms import run_forms  # noqa: E402
from gpu_load import run_load  # noqa: E402
from gpu_profile import run_profile  # noqa: E402
from gpu_spill import run_spill  # noqa: E402
from harness import tables  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402
from peers import TABLES, DuckdbPeer, PostgresPeer  # noqa: E402
from ranks_techniques import statements, techniques  # noqa: E402

DATABASE = "bench_gpu"
RESTART_S_MAX = 60
# Of every way of reading, before and after a cold query.
PROBE_S = 0.25
# Without a form for GPUs: few and large row groups.
ROW_GROUP_ROWS = 10_000_000
# Of TPC-H in the form for GPUs, which is the smallest: 27.2 GB at SF 100.
SCALE_BYTES = 272_000_000


class Results:
    """What was measured at a scale factor. Every change is written at once, and with it the report."""

    def __init__(self, folder, options):
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.out = folder / f"sf{options.scale}.json", pathlib.Path(options.out)
        self.document = {"scale": options.scale, "facts": {}, "findings": {}, "measured": []}
        if self.path.exists():
            self.document = json.loads(self.path.read_text(encoding="utf-8"))
        if self.document.get("build") != options.build:
            kept = [entry for entry in self.document["measured"] if entry["system"] == "duckdb"]
            self.document.update(build=options.build, findings={}, measured=kept, kernels={}, profile={}, timelines={})

    def find(self, mode, system, query, without=None):
        wanted = {"mode": mode, "system": system, "query": query, "without": without}
        return next((entry for entry in self.document["measured"] if all(entry[key] == wanted[key] for key in wanted)), None)

    def record(self, mode, system, query, seconds, without=None, **more):
        old = self.find(mode, system, query, without)
        if old:
            self.document["measured"].remove(old)
        self.document["measured"].append(
            {"mode": mode, "system": system, "query": query, "without": without, "seconds": seconds, **more})
        self.save()

    def note(self, query, kind, finding):
        """Keeps what was found of a query's answer; None: it is right."""
        self.document["findings"][f"{query} {kind}"] = finding
        self.save()

    def note_kernels(self, query, found):
        """Keeps what a hot query's kernels and copies took."""
        self.document.setdefault("kernels", {})[query] = found
        self.save()

    def note_profile(self, query, found):
        """Keeps what a hot query's kernels take alone."""
        self.document.setdefault("profile", {})[query] = found
        self.save()

    def note_timeline(self, title, timeline):
        """Keeps how busy the lanes were during a query."""
        self.document.setdefault("timelines", {})[title] = timeline
        self.save()

    def fact(self, **facts):
        self.document["facts"].update(facts)
        self.save()

    def save(self):
        text = json.dumps(self.document, indent=1)
        provisional = self.path.with_suffix(".new")
        provisional.write_text(text, encoding="utf-8")
        provisional.replace(self.path)
        if "date" in self.document["facts"]:
            self.out.mkdir(parents=True, exist_ok=True)
            names = gpu_report.file_names(self.document)
            for name in names[1:]:
                for kind in (".md", ".json", ".svg"):
                    (self.out / (name + kind)).unlink(missing_ok=True)
            (self.out / f"{names[0]}.md").write_text(gpu_report.markdown(self.document), encoding="utf-8")
            (self.out / f"{names[0]}.json").write_text(text, encoding="utf-8")
            if self.document.get("timelines"):
                (self.out / f"{names[0]}.svg").write_text(timeline_chart.svg(self.document["timelines"]), encoding="utf-8")


class Bench:
    """One scale factor: its data, its database, its sessions."""

    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(options.folder)
        self.data = self.folder / f"tpch-sf{options.scale}"
        self.files = [str(self.data / f"{table}.parquet") for table in TABLES]
        self.conninfo = f"{options.conninfo} dbname={DATABASE}"
        self.results = Results(self.folder / "gpu-results", options)
        self.deadline = time.monotonic() + options.limit
        self.threads = os.cpu_count()

    def schema(self, system):
        """Where a system's tables of this scale factor are."""
        return f"{system}_sf{self.options.scale}".replace(".", "_")

    def queries(self, numbers=None):
        """Name and text of some queries; of those asked for, if none are named."""
        numbers = numbers or [int(text) for text in self.options.queries.replace(",", " ").split()] or list(range(1, 23))
        with Session(self.conninfo) as session:
            return {f"q{number:02}": session.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in numbers}

    def peer(self, server, settings=()):
        limit = f"SET statement_timeout = '{self.options.query_limit}s'"
        choice = f"SET pystachio.engine_choice = {self.options.engine_choice}"
        return PostgresPeer(server, self.conninfo, self.schema(server), [limit, choice, *self.settings(), *settings])

    def settings(self):
        """What every measured session sets beside that."""
        return [f"SET {setting}" for setting in self.options.settings.split(",") if setting.strip()]

    def has_time(self):
        """Whether another measurement fits into the step's time limit."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            print("the step's time is over; what was measured is kept", flush=True)
        return left > 0

    def engine_pid(self, session, server):
        rows = session.run(f"SELECT pid FROM pystachio.engines WHERE server = '{server}' AND state = 'running'").rows
        return int(rows[0][0]) if rows and rows[0][0] else None

    def restart_engine(self, server):
        """Ends a server's engine and waits for the next one, which has nothing in its caches."""
        with Session(self.conninfo, ["SET client_min_messages = warning"]) as session:
            old = self.engine_pid(session, server)
            if old:
                os.kill(old, 9)
            deadline = time.monotonic() + RESTART_S_MAX
            while True:
                # The first query starts the engine.
                with contextlib.suppress(QueryError):
                    session.run(f"SELECT count(*) FROM {self.schema(server)}.region")
                pid = self.engine_pid(session, server)
                if pid and pid != old:
                    return pid
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the engine of server {server} is not running {RESTART_S_MAX} s after its end")
                time.sleep(0.05)


class ReadCounter:
    """Bytes that a process reads from when the counter is made."""

    def __init__(self, pid):
        self.path = pathlib.Path(f"/proc/{pid}/io")
        self.start = self._counts()

    def _counts(self):
        text = self.path.read_text(encoding="ascii")
        return [int(re.search(rf"^{name}: (\d+)", text, re.MULTILINE)[1]) for name in ("rchar", "read_bytes")]

    def bytes(self):
        """By system calls; reads of io_uring are none and count as what storage gave."""
        by_call, by_storage = (now - start for now, start in zip(self._counts(), self.start))
        return by_call if 2 * by_call >= by_storage else by_storage


def timed(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


@contextlib.contextmanager
def duckdb_limit(peer, seconds):
    """Interrupts DuckDB's query after a time."""
    timer = threading.Timer(seconds, peer.connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def first_line(error):
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def make_servers(session, options):
    """A fresh extension and its servers, unless this build has made them."""
    session.run("CREATE TABLE IF NOT EXISTS public.made (build text, imported text)")
    if session.run(f"SELECT 1 FROM public.made WHERE build = '{options.build}'").rows:
        return
    session.run("DROP EXTENSION IF EXISTS pystachio CASCADE; TRUNCATE public.made; CREATE EXTENSION pystachio")
    session.run(f"CREATE SERVER gpu FOREIGN DATA WRAPPER pystachio OPTIONS (device '{options.device}'{options.server_options})")
    session.run("CREATE SERVER cpu FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu')")
    session.run(f"INSERT INTO public.made VALUES ('{options.build}')")


def generate_arguments(session, options):
    """Further arguments of tpch_generate: as asked for, else the GPU form where there is one."""
    if options.generate is not None:
        return options.generate
    has_layout = session.run("SELECT 1 FROM pg_proc WHERE proname = 'tpch_generate' AND 'layout' = ANY (proargnames)").rows
    return "layout => 'gpu'" if has_layout else f"row_group_rows => {ROW_GROUP_ROWS}"


def check_room(folder, scale):
    """Raises OSError where a disk has no room for TPC-H, before half of it is written."""
    wanted, free = 1.05 * SCALE_BYTES * scale, shutil.disk_usage(folder).free
    if free < wanted:
        raise OSError(f"{folder}: TPC-H at SF {scale:g} takes {wanted / 1e9:.0f} GB, and {free / 1e9:.1f} GB are free: choose a smaller SF")


def generate_data(bench, session, arguments, stamp):
    """The files. What was measured over others is void."""
    complete = bench.data / "complete"
    if complete.exists() and complete.read_text(encoding="utf-8") == stamp:
        return
    complete.unlink(missing_ok=True)
    check_room(bench.folder, float(bench.options.scale))
    begin = time.monotonic()
    session.run(f"SELECT * FROM pystachio.tpch_generate('{bench.data}', {bench.options.scale}, overwrite => true, "
                f"server => 'cpu'{', ' if arguments else ''}{arguments})")
    seconds = time.monotonic() - begin
    storage.synchronise()
    complete.write_text(stamp, encoding="utf-8")
    gigabytes = sum(os.path.getsize(path) for path in bench.files) / 1e9
    bench.results.document.update(measured=[], findings={})
    bench.results.fact(generate_s=seconds, data_gb=gigabytes, generate=arguments)
    print(f"SF {bench.options.scale}: {gigabytes:.1f} GB generated in {seconds:.1f} s", flush=True)


def make_database(bench):
    """The database, the extension and its servers, where they are not there."""
    with Session(f"{bench.options.conninfo} dbname=postgres") as session:
        if not session.run(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'").rows:
            session.run(f"CREATE DATABASE {DATABASE}")
    with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
        make_servers(session, bench.options)


def run_generate(bench):
    """Data and tables. Both are kept if they are as asked for."""
    options = bench.options
    make_database(bench)
    with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
        arguments = generate_arguments(session, options)
        stamp = f"SF {options.scale} {arguments}".replace("'", "")
        generate_data(bench, session, arguments, stamp)
        if session.run(f"SELECT 1 FROM public.made WHERE imported = '{stamp}'").rows:
            print(f"SF {options.scale}: data and tables are there", flush=True)
            return 0
        for server in ("gpu", "cpu"):
            begin, schema = time.monotonic(), bench.schema(server)
            tables.tpch_foreign(session, bench.data, schema, server)
            print(f"SF {options.scale}: {server}: imported and analyzed in {time.monotonic() - begin:.1f} s", flush=True)
        session.run(f"INSERT INTO public.made VALUES (NULL, '{stamp}')")
    return 0


def run_exact(bench):
    """Both servers against heap PostgreSQL: the same text. Returns how many queries differ."""
    queries, wrong = bench.queries(), 0
    with Session(bench.conninfo) as session:
        heap = bench.schema("heap")
        if session.run(f"SELECT to_regclass('{heap}.done')").scalar() is None:
            begin = time.monotonic()
            tables.heap_copy(session, bench.schema("cpu"), heap)
            session.run(f"CREATE TABLE {heap}.done ()")
            print(f"SF {bench.options.scale}: heap tables loaded in {time.monotonic() - begin:.1f} s", flush=True)
    heap, others = bench.peer("heap"), [bench.peer("gpu"), bench.peer("cpu")]
    heap.session.run(f"SET max_parallel_workers_per_gather = {bench.threads}")
    for name, sql in queries.items():
        if not bench.has_time():
            break
        wanted, states = heap.run(sql), []
        for peer in others:
            try:
                got = peer.run(sql)
                finding = None if got == wanted else "text differs from heap PostgreSQL's: " + (
                    same_answer(wanted, got) or "in formatting")
            except QueryError as error:
                finding = f"fails: {first_line(error)}"
            bench.results.note(name, f"{peer.name} exact", finding)
            wrong += finding is not None
            states.append(f"{peer.name} {finding or 'exact'}")
        print(f"{name}  {len(wanted):>6} rows  " + "  ".join(states), flush=True)
    for peer in (heap, *others):
        peer.close()
    return wrong


def measure_ours(bench, mode, name, sql, server, settings=(), without=None):
    """A query in a fresh engine; `cold` and `direct` drop the page cache first, and look just before and just after the query
    what the disk gives, which changes from second to second where others share it. Prints nothing; returns text for the line."""
    pid, is_cold, bandwidths = bench.restart_engine(server), mode in ("cold", "direct"), []
    peer = bench.peer(server, settings)

    def look():
        if is_cold:
            bandwidths.extend(found[0] for found in [storage.direct_bandwidth(bench.files, PROBE_S)] if found)

    try:
        peer.run("SELECT count(*) FROM region")
        look()
        if is_cold:
            storage.drop(bench.files, bench.options.drop_caches)
        counter = ReadCounter(pid)
        try:
            seconds = timed(lambda: peer.receive(sql))
        except QueryError as error:
            bench.results.record(mode, server, name, None, without, error=first_line(error))
            return f"{server} fails: {first_line(error)}"
        more = {"bytes_read": counter.bytes()}
        look()
        if bandwidths:
            more["direct_bytes_per_s"] = sum(bandwidths) / len(bandwidths)
        bench.results.record(mode, server, name, seconds, without, **more)
        return f"{server} {seconds:.3f}" + (f" ({more['bytes_read'] / sum(bandwidths) * len(bandwidths):.3f} T_min)" if bandwidths else "")
    finally:
        peer.close()


def measure_bandwidth(bench):
    """Notes what the disk gives past the page cache."""
    found = storage.direct_bandwidth(bench.files)
    if found:
        bench.results.fact(direct_bytes_per_s=found[0], direct_threads=found[1])
        print(f"O_DIRECT: {found[0] / 1e9:.2f} GB/s with {found[1]} threads", flush=True)


def run_cold(bench):
    """Every query with nothing in memory."""
    measure_bandwidth(bench)
    queries = bench.queries()
    for name, sql in queries.items():
        if not bench.has_time():
            break
        line = [measure_ours(bench, "cold", name, sql, server) for server in bench.options.systems if server != "duckdb"]
        print(f"cold {name}  " + "  ".join(line), flush=True)
    if "duckdb" in bench.options.systems:
        entries = {name: bench.results.find("cold", "gpu", name) or {} for name in queries}
        largest = sorted(queries, key=lambda name: -(entries[name].get("bytes_read") or 0))
        for name in largest[:bench.options.duckdb_cold]:
            if not bench.has_time():
                break
            print(f"cold {name}  duckdb {cold_duckdb(bench, name, queries[name])}", flush=True)
    return 0


def cold_duckdb(bench, name, sql):
    """DuckDB's cold seconds as text, measured unless an earlier run did."""
    if not bench.results.find("cold", "duckdb", name):
        storage.drop(bench.files, bench.options.drop_caches)
        peer = DuckdbPeer(bench.data, bench.threads)
        try:
            with duckdb_limit(peer, bench.options.query_limit):
                bench.results.record("cold", "duckdb", name, timed(lambda: peer.receive(sql)))
        except Exception as error:  # what a peer can't run is a finding, not the end
            bench.results.record("cold", "duckdb", name, None, error=first_line(error))
        finally:
            peer.close()
    return gpu_report.number(bench.results.find("cold", "duckdb", name)["seconds"])


def run_direct(bench):
    """Every query with nothing in memory, read past the page cache."""
    measure_bandwidth(bench)
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        print(f"direct {name}  " + measure_ours(bench, "direct", name, sql, "gpu", ["SET pystachio.gpu_storage = 'direct'"]), flush=True)
    return 0


def run_warm(bench, settings=(), without=None):
    """Every query in a fresh engine over files in the page cache."""
    storage.fill_page_cache(bench.files, bench.threads)
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        servers = [server for server in bench.options.systems if server != "duckdb"] if without is None else ["gpu"]
        line = [measure_ours(bench, "warm", name, sql, server, settings, without) for server in servers]
        print(f"warm {name}  " + "  ".join(line), flush=True)
    return 0


def run_hot(bench, settings=(), without=None):
    """Every query again and again in one engine. Returns how many answers are not DuckDB's."""
    options, wrong = bench.options, 0
    servers = [server for server in options.systems if server != "duckdb"] if without is None else ["gpu"]
    storage.fill_page_cache(bench.files, bench.threads)
    ours = {server: bench.peer(server, settings) for server in servers}
    duckdb = DuckdbPeer(bench.data, bench.threads) if "duckdb" in options.systems and without is None else None
    answers_folder = bench.folder / "gpu-results" / f"answers-sf{options.scale}"
    answers_folder.mkdir(exist_ok=True)
    logs = pathlib.Path(options.logs)
    logs.mkdir(parents=True, exist_ok=True)
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        line, wanted = [], None
        if duckdb:
            wanted = hot_duckdb(bench, duckdb, name, sql, answers_folder / f"{name}.json")
            line.append("duckdb " + gpu_report.number(bench.results.find("hot", "duckdb", name)["seconds"]))
        for server, peer in ours.items():
            try:
                answer = peer.run(sql)
                seconds = [timed(lambda: peer.receive(sql)) for _ in range(options.runs)]
                explained = "\n".join(row[0] for row in peer.session.run(f"EXPLAIN (ANALYZE) {sql}").rows)
            except QueryError as error:
                bench.results.record("hot", server, name, None, without, error=first_line(error))
                line.append(f"{server} fails: {first_line(error)}")
                continue
            ran_on = re.search(r"^ *Ran On: (.*)$", explained, re.MULTILINE)
            ran_on = ran_on[1] if ran_on else server
            suffix = "" if without is None else f"-without-{without}"
            (logs / f"sf{options.scale}-{name}-{server}{suffix}.explain").write_text(explained + "\n", encoding="utf-8")
            bench.results.record("hot", server, name, min(seconds), without, all_seconds=seconds, ran_on=ran_on)
            line.append(f"{server} {min(seconds):.3f}" + ("" if ran_on in (server, options.device) else f" ON {ran_on[:60]}"))
            if wanted is not None:
                difference = same_answer(wanted, answer)
                bench.results.note(name, f"{server} against duckdb", difference)
                wrong += difference is not None
                line.append(f"DIFFERS: {difference}" if difference else "same answer")
        print(f"hot  {name}  " + "  ".join(line), flush=True)
    for peer in (*ours.values(), *([duckdb] if duckdb else [])):
        peer.close()
    return wrong


def hot_duckdb(bench, duckdb, name, sql, answer_file):
    """DuckDB's answer, as text, measured unless an earlier run did. None if it can't run the query."""
    if not (answer_file.exists() and bench.results.find("hot", "duckdb", name)):
        try:
            with duckdb_limit(duckdb, bench.options.query_limit):
                rows = duckdb.run(sql)
                seconds = [timed(lambda: duckdb.receive(sql)) for _ in range(bench.options.duckdb_runs)]
        except Exception as error:  # what a peer can't run is a finding, not the end
            bench.results.record("hot", "duckdb", name, None, error=first_line(error))
            return None
        text = [[None if value is None else str(value) for value in row] for row in rows]
        answer_file.write_text(json.dumps(text), encoding="utf-8")
        bench.results.record("hot", "duckdb", name, min(seconds), all_seconds=seconds)
    return json.loads(answer_file.read_text(encoding="utf-8"))


def run_ablation(bench):
    """Warm and hot without one technique after another."""
    with Session(bench.conninfo) as session:
        names = techniques(session)
    for name in names:
        print(f"without {name}", flush=True)
        for run in (run_warm, run_hot):
            if bench.has_time():
                run(bench, statements({name: "off"}), name)
    if not names:
        print("no technique can be turned off", flush=True)
    return 0


def machine_facts():
    """Hardware and versions, for the report."""
    def output(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""

    processor = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    gpu = output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader").splitlines()
    return {"processor": processor[1] if processor else "unknown", "threads": os.cpu_count(), "memory_gib": memory,
            "gpu": gpu[0] if gpu else "none", "kernel": os.uname().release}


def note_facts(bench):
    """What the report says of machine, versions and way of measuring."""
    duckdb = "-"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        duckdb = importlib.metadata.version("duckdb")
    with Session(bench.conninfo) as session:
        versions = {"pystachio": session.run("SELECT pystachio.version()").scalar(), "duckdb": duckdb,
                    "postgres": session.run("SELECT split_part(version(), ' ', 2)").scalar()}
    options = bench.options
    bench.results.fact(**machine_facts(), device_bandwidth=options.device_bandwidth, versions=versions, device=options.device, built=options.built, runs=options.runs,
                       duckdb_runs=options.duckdb_runs, date=time.strftime("%Y-%m-%d", time.gmtime()))


def run_report(bench):
    """Prints the report."""
    print(gpu_report.markdown(bench.results.document))
    print(f"report: {bench.results.out / gpu_report.file_names(bench.results.document)[0]}.md and .json")
    return 0


STEPS = {"generate": run_generate, "exact": run_exact, "cold": run_cold, "direct": run_direct, "warm": run_warm, "hot": run_hot,
         "first": gpu_watch.run_first, "kernels": gpu_watch.run_kernels, "profile": run_profile, "choice": run_choice, "timeline": gpu_watch.run_timeline,
         "calibrate": gpu_calibrate.run_calibrate, "ablation": run_ablation, "spill": run_spill, "load": run_load,
         "forms": run_forms,
         "report": run_report}


def step_parser(description, steps):
    """What every benchmark is told that has steps over one database."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("step", choices=steps)
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", default="10")
    parser.add_argument("--queries", default="")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--engine-choice", default="gpu", help="pystachio.engine_choice: gpu, auto, cpu")
    parser.add_argument("--settings", default="", help="what measured sessions set: name = value, name = value")
    parser.add_argument("--generate", help="further arguments of tpch_generate, as SQL")
    parser.add_argument("--server-options", default="", help="further options of the server gpu, as SQL that begins with a comma")
    parser.add_argument("--limit", type=float, default=540, help="seconds after which a step measures nothing more")
    parser.add_argument("--query-limit", type=int, default=120, help="seconds after which a query is given up")
    parser.add_argument("--drop-caches", action="store_true", help="cold: drop the whole page cache, not only the files'")
    parser.add_argument("--build", default="unknown", help="a digest of the build that is measured")
    parser.add_argument("--built", default="unknown", help="what the build was made of, for the report")
    parser.add_argument("--out", required=True, help="where the report goes")
    parser.add_argument("--logs", required=True, help="where plans with their measurements go")
    return parser


def main():
    parser = step_parser("TPC-H on a GPU against DuckDB.", STEPS)
    parser.add_argument("--systems", default="gpu duckdb", type=str.split, help="of gpu, cpu, duckdb")
    parser.add_argument("--duckdb-runs", type=int, default=2)
    parser.add_argument("--duckdb-cold", type=int, default=22, help="how many queries DuckDB runs cold: those that read most")
    parser.add_argument("--timeline-query", type=int, default=3, help="the query whose time lines are drawn")
    parser.add_argument("--device-bandwidth", type=float, default=4.3, help="TB/s that a copy within the device moves, reads and writes")
    parser.add_argument("--clients", default=[1, 4, 16, 64], type=lambda text: [int(word) for word in text.split()], help="of the step load")
    parser.add_argument("--forms", default="", help="of the step forms; all if empty")
    parser.add_argument("--load-seconds", type=float, default=15, help="seconds for each number of clients")
    bench = Bench(parser.parse_args())
    if bench.options.step != "generate":
        note_facts(bench)
    return 1 if STEPS[bench.options.step](bench) else 0


if __name__ == "__main__":
    sys.exit(main())
