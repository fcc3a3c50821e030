#!/usr/bin/env python3
"""TPC-H through psql's library against DuckDB, DataFusion and heap PostgreSQL, in one go on one machine.

usage: run.py CONNINFO FOLDER [--scale SF] [--runs N] [--queries "1 6"]

Peers, all over the same Parquet files: pystachio (column cache off), pystachio-warm (column cache on), duckdb,
datafusion, datafusion-mem (its tables held in memory), postgres (heap tables, primary keys and foreign key indexes,
ANALYZE). Every query is run by every peer once to warm up and to compare answers; then the measured runs go round
the peers query by query, so that noise falls on all alike. Writes benches/results/<date>-<host class>.md and .html.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

import report as reports  # noqa: E402
from answers import same_answer  # noqa: E402
from harness import tables  # noqa: E402
from harness.explain import plan_shape  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402
from peers import DatafusionPeer, DuckdbPeer, PostgresPeer  # noqa: E402

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
TRIVIAL_RUNS = 50
COPY_RUNS = 3
PLANNING_RUNS = 5


def prepare(conninfo, folder, scale):
    """Makes the database of a scale factor: data, foreign tables of two servers, heap tables. Kept for later runs."""
    name = "bench_sf" + str(scale).replace(".", "_")
    with Session(f"{conninfo} dbname=postgres") as session:
        if not session.run(f"SELECT 1 FROM pg_database WHERE datname = '{name}'").rows:
            session.run(f"CREATE DATABASE {name}")
    target = pathlib.Path(folder) / f"tpch-sf{scale}"
    memory = _memory_bytes()
    with Session(f"{conninfo} dbname={name}", ["SET client_min_messages = warning"]) as session:
        session.run("DROP EXTENSION IF EXISTS pystachio CASCADE; CREATE EXTENSION pystachio")
        if not (target / "complete").exists():
            print(f"generating TPC-H SF {scale}", flush=True)
            session.run(f"SELECT * FROM pystachio.tpch_generate('{target}', {scale}, overwrite => true)")
            (target / "complete").touch()
        for server, cache in (("cache_off", 0), ("cache_on", memory // 4)):
            session.run(f"CREATE SERVER {server} FOREIGN DATA WRAPPER pystachio "
                        f"OPTIONS (device 'cpu', memory '{memory // 3 >> 20}MB', cache '{cache >> 20}MB')")
            tables.tpch_foreign(session, target, server, server)
        if not session.run("SELECT to_regclass('heap.done')").scalar():
            print("loading the heap tables", flush=True)
            tables.heap_copy(session, "cache_off", "heap")
            session.run("CREATE TABLE heap.done ()")
    return f"{conninfo} dbname={name}", target


def _memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def measure(peers, queries, runs):
    """Warm-up with comparison of answers, then the measured rounds. Returns seconds by query and peer, and findings."""
    seconds = {name: {peer.name: [] for peer in peers} for name in queries}
    findings, absent = [], set()
    for name, sql in queries.items():
        answers = {}
        for peer in peers:
            try:
                answers[peer.name] = peer.run(sql)
                # The second pass fills caches of what the first one only noticed.
                peer.run(sql)
            except Exception as error:  # a peer that can't run a query is a finding, not the end
                findings.append(f"{name}: {peer.name} fails: {str(error).splitlines()[0]}")
                absent.add((name, peer.name))
        wanted = answers.get("postgres")
        for peer in peers:
            got = answers.get(peer.name)
            if wanted is None or got is None or peer.name == "postgres":
                continue
            exact = peer.name.startswith("pystachio")
            difference = (None if got == wanted else "text differs: " + (same_answer(wanted, got) or "in formatting")) if exact \
                else same_answer(wanted, got)
            if difference:
                findings.append(f"{name}: {peer.name} differs from PostgreSQL: {difference}")
        for round_number in range(runs):
            # Another peer starts each round.
            order = peers[round_number % len(peers):] + peers[: round_number % len(peers)]
            for peer in order:
                if (name, peer.name) not in absent:
                    begin = time.perf_counter()
                    peer.receive(sql)
                    seconds[name][peer.name].append(time.perf_counter() - begin)
        row = {peer: statistics.median(values) for peer, values in seconds[name].items() if values}
        print(f"{name:<5}" + "".join(f" {peer.name} {row[peer.name]:.3f}" if peer.name in row else f" {peer.name} -" for peer in peers), flush=True)
    return {name: {peer: statistics.median(values) for peer, values in row.items() if values} for name, row in seconds.items()}, findings


def planning(peer, queries):
    """Milliseconds of planning by query, and whether each is one scan."""
    times, shapes = {}, {}
    for name, sql in queries.items():
        try:
            shapes[name] = "yes" if plan_shape(peer.session, sql).one_scan else "no"
            samples = [json.loads(peer.session.run(f"EXPLAIN (FORMAT JSON, SUMMARY ON) {sql}").scalar())[0]["Planning Time"]
                       for _ in range(PLANNING_RUNS)]
            times[name] = statistics.median(samples)
        except QueryError as error:
            shapes[name] = f"error: {error.message}"
    return times, shapes


def median_seconds(peers, sql, runs):
    """Median seconds of a statement by peer, in rounds."""
    samples = {peer.name: [] for peer in peers}
    for round_number in range(runs + 1):
        for peer in peers:
            begin = time.perf_counter()
            peer.receive(sql)
            if round_number:
                samples[peer.name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in samples.items()}


def claims_of(medians, planning_ms, extra):
    """The issue's targets with what was measured."""
    def claim(text, target, measured, met, digits=2):
        return {"text": text, "target": target, "measured": measured, "met": bool(measured is not None and met(measured)), "digits": digits}

    def ratio(one, other):
        return reports.ratio_mean(medians, one, other)[0]

    faster = ratio("postgres", "pystachio")
    return [
        claim("cache off, against DataFusion", "<= 1.15", ratio("pystachio", "datafusion"), lambda value: value <= 1.15),
        claim("times faster than heap PostgreSQL, cache off", ">= 2.5", faster, lambda value: value >= 2.5),
        claim("cache warm, against DuckDB", "<= 1.1", ratio("pystachio-warm", "duckdb"), lambda value: value <= 1.1),
        claim("slowest planning, ms", "< 10", max(planning_ms.values(), default=None), lambda value: value < 10),
        claim("count(*) of nation in a warm session, ms", "< 10", extra["nation"]["pystachio"] * 1000, lambda value: value < 10),
        claim("count(*) of lineitem, ms", "< 10", extra["lineitem"]["pystachio"] * 1000, lambda value: value < 10),
        claim("COPY lineitem to /dev/null, against heap, cache off", "<= 1.25", extra["copy"]["pystachio"] / extra["copy"]["postgres"],
              lambda value: value <= 1.25),
        claim("COPY lineitem to /dev/null, against heap, cache warm", "<= 1.25", extra["copy"]["pystachio-warm"] / extra["copy"]["postgres"],
              lambda value: value <= 1.25),
    ]


def main():
    parser = argparse.ArgumentParser(description="TPC-H against peers.")
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--scale", default="1")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--queries", default="")
    options = parser.parse_args()
    threads = os.cpu_count()
    conninfo, data = prepare(options.conninfo, options.folder, options.scale)
    numbers = [int(text) for text in options.queries.replace(",", " ").split()] or list(range(1, 23))
    with Session(conninfo) as session:
        queries = {f"q{number:02}": session.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in numbers}
    peers = [PostgresPeer("pystachio", conninfo, "cache_off"), PostgresPeer("pystachio-warm", conninfo, "cache_on"),
             DuckdbPeer(data, threads), DatafusionPeer(data, threads, False), DatafusionPeer(data, threads, True),
             PostgresPeer("postgres", conninfo, "heap", [f"SET max_parallel_workers_per_gather = {threads}"])]
    medians, findings = measure(peers, queries, options.runs)
    planning_ms, one_scan = planning(peers[0], queries)
    ours = [peer for peer in peers if isinstance(peer, PostgresPeer)]
    extra = {
        "nation": median_seconds(ours, "SELECT count(*) FROM nation", TRIVIAL_RUNS),
        "lineitem": median_seconds(ours[:2], "SELECT count(*) FROM lineitem", TRIVIAL_RUNS),
        "copy": median_seconds(ours, "COPY (SELECT * FROM lineitem) TO '/dev/null'", COPY_RUNS),
    }
    host = f"{threads}-core-{platform.machine()}"
    report = {
        "scale": options.scale, "date": datetime.date.today().isoformat(), "host": host, "peers": [peer.name for peer in peers],
        "setting": f"{threads} threads, {_memory_bytes() >> 30} GiB of memory; hot: a warm-up, then the median of {options.runs} runs; "
                   "all over the same Parquet files; peers take turns.",
        "versions": {peer.name: peer.version() for peer in peers if peer.name not in ("pystachio-warm", "datafusion-mem")},
        "medians": medians, "planning_ms": planning_ms, "one_scan": one_scan, "claims": claims_of(medians, planning_ms, extra),
        "answers": "All peers gave the same answers; pystachio's are PostgreSQL's byte for byte." if not findings
                   else "Findings: " + "; ".join(findings),
        "notes": ["COPY (SELECT * FROM lineitem) TO '/dev/null', seconds: "
                  + ", ".join(f"{name} {value:.2f}" for name, value in extra["copy"].items()),
                  "SELECT count(*) FROM nation, ms: " + ", ".join(f"{name} {value * 1000:.2f}" for name, value in extra["nation"].items())],
    }
    report["versions"]["pystachio"] = peers[0].session.run("SELECT pystachio.version()").scalar()
    for peer in peers:
        peer.close()
    RESULTS.mkdir(exist_ok=True)
    partial = "" if len(numbers) == 22 else "-partial"
    path = RESULTS / f"{report['date']}-{host}-sf{options.scale}{partial}"
    path.with_name(path.name + ".md").write_text(reports.markdown(report), encoding="utf-8")
    path.with_name(path.name + ".html").write_text(reports.page(report), encoding="utf-8")
    print("\n" + reports.markdown(report))
    print(f"report: benches/results/{path.name}.md and .html")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
