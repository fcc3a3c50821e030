#!/usr/bin/env python3
"""The everyday workload over foreign tables, heap tables with indexes, and DuckDB, in one go on one machine.

usage: everyday.py CONNINFO FOLDER [--scale SF] [--runs N] [--only TEXT]

Every system runs each query until it is warm (ten times, so that PostgreSQL has decided on a generic plan of what is
prepared), and gives the answer, which is compared: foreign with heap as text in full, DuckDB with a tolerance. Then the measured runs
go round the systems query by query. The report names each query that is slower than over heap tables, or five times
slower than DuckDB, and says why. Writes benches/results/<date>-<host class>-everyday-sf<SF>.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

from answers import same_answer  # noqa: E402
from everyday import workload  # noqa: E402
from harness import tables  # noqa: E402
from harness.clients import Load, run_clients, sorted_rows  # noqa: E402
from harness.explain import plan_shape  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402
from peers import DuckdbPeer, PostgresPeer  # noqa: E402
from report import geometric_mean  # noqa: E402
import run as tpch  # noqa: E402

ROWS_PER_SCALE = 1_000_000
FILES = 500
WARM_RUNS = 10
# What a slow query may take in all while it warms up, and while it is measured, in seconds.
WARM_S_MAX, MEASURED_S_MAX = 5.0, 10.0
# A query counts as slower than over heap tables from this factor and from so many milliseconds on: less is noise.
HEAP_FACTOR, HEAP_MS, DUCKDB_FACTOR = 1.1, 0.5, 5.0
CLIENTS = (1, 8, 32)
CLIENT_SECONDS = 4
CLIENT_QUERIES = ("lookup: order by key", "lookup: lines of an order", "page: newest first", "dashboard: events a day")
REASONS_MAX = 2
FOREIGN, HEAP, DUCKDB = "foreign", "heap", "duckdb"


def prepare(conninfo, folder, scale):
    """Makes TPC-H and the workload's tables; returns the database, and the folder of each kind of file."""
    database, tpch_folder = tpch.prepare(conninfo, folder, scale)
    files = pathlib.Path(folder) / f"everyday-sf{scale}"
    if not (files / "complete").exists():
        print(f"writing the everyday files of scale {scale}", flush=True)
        workload.make_data(files, round(float(scale) * ROWS_PER_SCALE), FILES)
        (files / "complete").touch()
    print("loading the heap tables", flush=True)
    with Session(database, ["SET statement_timeout = '600s'"]) as session:
        workload.make_tables(session, files, "everyday", "everyday_heap", "cache_on", tables.import_statement)
    return database, tpch_folder, files


def duckdb_peer(database, tpch_folder, files):
    """DuckDB with views over the same files, and with the small tables that are heap tables in PostgreSQL."""
    peer = DuckdbPeer(tpch_folder, os.cpu_count())
    views = {"events": "tables/events.parquet", "wide": "tables/wide.parquet", "many": "tables/many/*.parquet", "monthly": "months/*.parquet"}
    for name, path in views.items():
        peer.connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}/{path}')")
    with Session(database) as session:
        for name, (columns, _) in workload.LOCAL.items():
            peer.connection.execute(f"CREATE TABLE {name} ({columns})")
            rows = session.run(f"SELECT * FROM public.{name}").rows
            peer.connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return peer


def statement_of(query, peer):
    return query.duckdb if peer.name == DUCKDB else query.sql


def measure(peers, query, runs):
    """Milliseconds by peer, and findings: answers that differ, and errors."""
    answers, findings, samples = {}, [], {}
    for peer in peers:
        sql = statement_of(query, peer)
        if sql is None:
            continue
        try:
            if query.prepare and peer.name != DUCKDB:
                peer.run(query.prepare)
            answers[peer.name] = peer.run(sql)
            begin = time.perf_counter()
            for _ in range(WARM_RUNS - 1):
                peer.receive(sql)
                if time.perf_counter() - begin > WARM_S_MAX:
                    break
            samples[peer.name] = []
        except Exception as error:  # a system that can't run a query is a finding, not the end
            findings.append(f"{peer.name} fails: {str(error).splitlines()[0]}")
    findings += differences(query, answers)
    begin = time.perf_counter()
    for number in range(runs):
        for peer in peers[number % len(peers):] + peers[:number % len(peers)]:
            if peer.name in samples:
                start = time.perf_counter()
                peer.receive(statement_of(query, peer))
                samples[peer.name].append(1000 * (time.perf_counter() - start))
        if time.perf_counter() - begin > MEASURED_S_MAX:
            break
    return {name: statistics.median(values) for name, values in samples.items()}, findings


def differences(query, answers):
    """How the answers differ from those over heap tables."""
    wanted = answers.get(HEAP)
    if wanted is None:
        return []
    found = []
    for name, rows in answers.items():
        one, other = (wanted, rows) if query.is_ordered else (in_one_order(wanted), in_one_order(rows))
        if name == FOREIGN and one != other:
            found.append(f"foreign differs from heap: {same_answer(one, other) or 'in formatting'}")
        elif name == DUCKDB and same_answer(one, other):
            found.append(f"duckdb differs from heap: {same_answer(one, other)}")
    return found


def in_one_order(rows):
    return sorted(rows, key=lambda row: tuple((value is None, str(value)) for value in row))


def why(peer, query):
    """What keeps a query over foreign tables from being fast, as EXPLAIN tells."""
    session = peer.session
    try:
        shape = plan_shape(session, query.sql)
        if not shape.one_scan:
            reasons = shape.reasons[:REASONS_MAX] or ["left to PostgreSQL: " + ", ".join(sorted(set(shape.nodes) - {"Foreign Scan"}))]
            return "; ".join(re.sub(r"\s+", " ", reason) for reason in reasons)
        told = json.loads(session.run(f"EXPLAIN (ANALYZE, TIMING OFF, SUMMARY ON, FORMAT JSON) {query.sql}").scalar())[0]
        planning, execution = told.get("Planning Time", 0.0), told.get("Execution Time", 0.0)
        if planning > execution:
            return f"planning takes {planning:.1f} ms, running {execution:.1f}"
        return f"one scan: the engine takes {execution:.1f} ms, planning {planning:.1f}"
    except QueryError as error:
        return f"EXPLAIN fails: {error.message}"


def clients(database, queries):
    """Queries a second over foreign and over heap tables, by number of clients."""
    chosen = {query.full_name: query.sql for query in queries if query.full_name in CLIENT_QUERIES}
    rows = []
    for name, sql in chosen.items():
        rates = {}
        for label, path in ((FOREIGN, "everyday, cache_on"), (HEAP, "everyday_heap, heap")):
            def open_session(path=path):
                return Session(database, [f"SET search_path = {path}, public", "SET statement_timeout = '60s'"])

            with open_session() as session:
                answers = {name: sorted_rows(session.run(sql))}
            for count in CLIENTS:
                outcome = run_clients(Load(open_session, {name: sql}, answers), count, CLIENT_SECONDS)
                rates[label, count] = outcome.rate
                rows += [f"| {name} | {error} | | |" for error in outcome.errors]
        rows.append(f"| {name} | " + " | ".join(f"{rates[FOREIGN, count]:.0f} / {rates[HEAP, count]:.0f}" for count in CLIENTS) + " |")
    return ["| query | " + " | ".join(f"{count} clients" for count in CLIENTS) + " |", "|---|" + "---:|" * len(CLIENTS), *rows]


def is_slower_than_heap(row):
    return FOREIGN in row and HEAP in row and row[FOREIGN] > HEAP_FACTOR * row[HEAP] and row[FOREIGN] - row[HEAP] > HEAP_MS


def is_slower_than_duckdb(row):
    return FOREIGN in row and DUCKDB in row and row[FOREIGN] > DUCKDB_FACTOR * row[DUCKDB]


def cell(value):
    return "-" if value is None else f"{value:.1f}"


def table_of(names, medians, reasons):
    lines = ["| query | foreign ms | heap ms | DuckDB ms | why |", "|---|---:|---:|---:|---|"]
    for name in names:
        row = medians[name]
        reason = reasons.get(name, "").replace("|", "\\|")
        lines.append(f"| {name} | {cell(row.get(FOREIGN))} | {cell(row.get(HEAP))} | {cell(row.get(DUCKDB))} | {reason} |")
    return lines


def report(options, host, versions, medians, findings, reasons, client_lines):
    """The whole report as Markdown."""
    slower_than_heap = [name for name, row in medians.items() if is_slower_than_heap(row)]
    slower_than_duckdb = [name for name, row in medians.items() if is_slower_than_duckdb(row)]
    groups = {}
    for name, row in medians.items():
        groups.setdefault(name.split(":")[0], []).append(row)
    lines = [f"# Everyday queries, scale {options.scale}, {datetime.date.today().isoformat()}, {host}", "",
             f"{len(medians)} queries (regress/everyday/queries.sql) over the same data: foreign tables on the CPU engine with its column cache, heap "
             f"tables with indexes, DuckDB over the files. Warm, median of {options.runs} runs, {os.cpu_count()} threads; systems take turns.", "",
             "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", "",
             "## By group (geometric means)", "", "| group | queries | foreign / heap | foreign / DuckDB |", "|---|---:|---:|---:|"]
    for group, rows in groups.items():
        means = [geometric_mean(row[FOREIGN] / row[other] for row in rows if FOREIGN in row and other in row) for other in (HEAP, DUCKDB)]
        lines.append(f"| {group} | {len(rows)} | " + " | ".join("-" if mean is None else f"{mean:.2f}" for mean in means) + " |")
    lines += ["", f"## Slower than over heap tables: {len(slower_than_heap)}", "", *table_of(slower_than_heap, medians, reasons)]
    lines += ["", f"## Five times slower than DuckDB: {len(slower_than_duckdb)}", "", *table_of(slower_than_duckdb, medians, reasons)]
    lines += ["", "## Many clients (queries a second, foreign / heap)", "", *client_lines]
    lines += ["", "## Answers", "", *([f"- {finding}" for finding in findings] or ["All systems gave the same answers; those over foreign tables are heap's to the byte."])]
    lines += ["", "## All queries", "", *table_of(medians, medians, {})]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Everyday queries over foreign tables, heap tables and DuckDB.")
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--scale", default="1")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    database, tpch_folder, files = prepare(options.conninfo, options.folder, options.scale)
    queries = [query for query in workload.queries() if options.only in query.full_name]
    peers = [PostgresPeer(FOREIGN, database, "everyday, cache_on"), PostgresPeer(HEAP, database, "everyday_heap, heap"),
             duckdb_peer(database, tpch_folder, files)]
    medians, findings, reasons = {}, [], {}
    for query in queries:
        name = query.full_name
        medians[name], found = measure(peers, query, options.runs)
        findings += [f"{name}: {finding}" for finding in found]
        if is_slower_than_heap(medians[name]) or is_slower_than_duckdb(medians[name]):
            reasons[name] = why(peers[0], query)
        print(f"{name:<50}" + "".join(f" {peer} {cell(value):>8}" for peer, value in medians[name].items())
              + (f"  {reasons[name][:90]}" if name in reasons else ""), *found, flush=True)
    host = f"{os.cpu_count()}-core-{platform.machine()}"
    versions = {"pystachio": peers[0].session.run("SELECT pystachio.version()").scalar(), "PostgreSQL": peers[1].version(), "DuckDB": peers[2].version()}
    text = report(options, host, versions, medians, findings, reasons, clients(database, queries))
    for peer in peers:
        peer.close()
    partial = "-partial" if options.only else ""
    path = tpch.RESULTS / f"{datetime.date.today().isoformat()}-{host}-everyday-sf{options.scale}{partial}.md"
    path.write_text(text, encoding="utf-8")
    print("\n" + text + f"\nreport: benches/results/{path.name}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
