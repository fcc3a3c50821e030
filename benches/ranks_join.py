"""Joins of generated rows of ranks.py, through SQL: what an exchange makes of the links between ranks.

- paper_join: the distributed join of PystachIO (arXiv 2512.02862, figures 5 to 8): 120 M build and 320 M probe rows, 1 to 10 columns of 8
  bytes on each side, half of the probe rows find a match; then the steps of its ablation.
- large_join: the one of rapidsai/distributed-join: 800 M rows a side, a key and a value, three in ten probe rows find a match.

A join is `inner`, of which the planner chooses how the sides meet, and of which filters drop probe rows before they are sent; or `full`:
every row of both sides stays, so that nothing is dropped, and all rows of large sides are shuffled. A query reads the columns of both
sides to its end (`max` of each), as a join that gives its rows to what is above it does.

Answers of all ranks and of one are the same text, whichever was first. The links are what the server's environment makes them: the
script that calls this starts it anew for each kind.
"""

import shutil
import time

import gpu
import random_rows
import ranks_traffic
import storage
from harness.libpq import Session
from ranks_techniques import ABLATION, known, statements

SERVER = "gpu"
BUILD_ROWS, PROBE_ROWS, HIT_RATIO = 120_000_000, 320_000_000, 0.5
LARGE_ROWS, LARGE_COLUMNS, LARGE_HIT_RATIO = 800_000_000, 2, 0.3
# Columns of the ablation's rows, if so many are measured.
ABLATION_COLUMNS = 4
KINDS = ("full", "inner")


def join_sql(columns, kind):
    """The join of a key and so many columns less one on each side."""
    values = [f"max({side}.v{place})" for side in "bp" for place in range(1, columns)]
    return f"SELECT {', '.join(['count(*)', 'count(b.k)', 'count(p.k)', *values])} FROM build b {kind.upper()} JOIN probe p ON b.k = p.k"


class Tables:
    """A join's tables: files, and foreign tables over them."""

    def __init__(self, bench, name, sides):
        self.bench, self.name, self.sides = bench, name, sides
        self.folder = bench.folder / name
        self.rows = sum(side.rows for side in sides)
        self.stamp = " ".join(f"{side.name} {side.rows} x {side.columns}" for side in sides)

    def make(self):
        """The files, unless they are there, and the tables with their statistics."""
        complete = self.folder / "complete"
        if not (complete.exists() and complete.read_text(encoding="utf-8") == self.stamp):
            complete.unlink(missing_ok=True)
            begin = time.monotonic()
            for side in self.sides:
                random_rows.write(side, self.folder, self.bench.threads)
            self.folder.chmod(0o755)
            complete.write_text(self.stamp, encoding="utf-8")
            seconds, gigabytes = time.monotonic() - begin, sum(side.bytes for side in self.sides) / 1e9
            self.bench.results.note("generated", self.name, {"seconds": seconds, "gb": gigabytes, "rows": self.stamp})
            print(f"{self.name}: {gigabytes:.1f} GB written in {seconds:.1f} s", flush=True)
        with Session(self.bench.conninfo, ["SET client_min_messages = warning"]) as session:
            session.run(f"DROP SCHEMA IF EXISTS {self.name} CASCADE; CREATE SCHEMA {self.name}")
            for side in self.sides:
                columns = ", ".join(f"{name} bigint NOT NULL" for name in side.names())
                session.run(f"CREATE FOREIGN TABLE {self.name}.{side.name} ({columns}) SERVER {SERVER} "
                            f"OPTIONS (path '{self.folder / side.name}')")
                session.run(f"ANALYZE {self.name}.{side.name}")
        self.bench.starter = f"SELECT count(*) FROM {self.name}.build"
        storage.fill_page_cache([str(file) for side in self.sides for file in (self.folder / side.name).iterdir()], self.bench.threads)

    def drop(self):
        """Gives their room back, unless they are to stay."""
        if not self.bench.options.keep_rows:
            shutil.rmtree(self.folder, ignore_errors=True)


class Joins:
    """Measures joins of some tables by configuration."""

    def __init__(self, bench, tables):
        self.bench, self.tables, self.wrong = bench, tables, 0
        self.raw = bench.raw_gb_s()

    def measure(self, configuration, kind, columns, variant=("all on", {})):
        """One join on the ranks that the server has now: seconds, and what moved. Its answer is that of the others."""
        bench, (step, settings) = self.bench, variant
        sql, peer = join_sql(columns, kind), self.bench.open(statements(settings), self.tables.name)

        def measured():
            answer = peer.run(sql)
            seconds = [gpu.timed(lambda: peer.receive(sql)) for _ in range(bench.options.runs)]
            return answer, seconds, ranks_traffic.measure(peer.session, SERVER, sql)[0]

        found, error = bench.attempt(peer, measured)
        peer.close()
        self.wrong += error is not None
        entry = {"join": self.tables.name, "links": bench.options.links, "configuration": configuration, "kind": kind,
                 "columns": columns, "step": step, "rows": self.tables.rows, "error": error}
        if found:
            answer, seconds, figures = found
            difference = self._first_answer(sql, answer) != answer
            self.wrong += difference
            entry |= {"seconds": min(seconds), "all_seconds": seconds, "differs": difference, "raw_gb_s": self.raw, **figures}
        name = " ".join(str(entry[key]) for key in ("join", "links", "configuration", "kind", "columns", "step"))
        bench.results.note("joins", name, entry)
        print(f"{name}  " + (f"fails: {error}" if error else self._line(entry)), flush=True)
        return found

    def _first_answer(self, sql, answer):
        """The answer that a join had first, which this one is if there was none; kept, as links are measured one after another."""
        results, rows = self.bench.results, [list(row) for row in answer]
        name = f"{self.tables.stamp}: {sql}"
        if name not in results.document.get("join_answers", {}):
            results.note("join_answers", name, rows)
        return [tuple(row) for row in results.document["join_answers"][name]]

    def are_measured_on_one(self):
        """Whether one rank's are there: links are nothing to it."""
        wanted = {"join": self.tables.name, "rows": self.tables.rows, "configuration": "one", "error": None}
        entries = self.bench.results.document.get("joins", {}).values()
        return any(all(entry[key] == value for key, value in wanted.items()) for entry in entries)

    def _line(self, entry):
        rate = entry["network_gb_s"]
        return (f"{entry['seconds']:.4f} s, {entry['rows'] / entry['seconds'] / 1e6:.0f} M rows/s, sent {entry['sent_bytes'] / 1e6:.2f} MB"
                + (f" at {rate:.1f} GB/s" if rate else "") + ("  DIFFERS" if entry["differs"] else ""))


def run_paper_join(bench):
    """By columns and kind on all ranks, the ablation, and one rank. Returns how many answers differ or are not there."""
    columns = bench.options.columns
    rows = [max(int(count * bench.options.join_rows), 1) for count in (BUILD_ROWS, PROBE_ROWS)]
    tables = Tables(bench, "paper_join", random_rows.sides(*rows, max(columns), HIT_RATIO))
    tables.make()
    joins = Joins(bench, tables)
    bench.configure("all")
    for kind in KINDS:
        for count in columns:
            if bench.has_time():
                joins.measure("all", kind, count)
    with Session(bench.conninfo) as session:
        steps, missing = known(session, ABLATION)
    bench.results.fact(ablation_without_settings=missing)
    for step in steps.items():
        if bench.has_time():
            joins.measure("all", "full", min(ABLATION_COLUMNS, max(columns)), step)
    if bench.has_time() and not joins.are_measured_on_one():
        bench.configure("one")
        for kind in KINDS:
            for count in columns:
                if bench.has_time():
                    joins.measure("one", kind, count)
    tables.drop()
    return joins.wrong


def run_large_join(bench):
    """On all ranks, and on one. Returns how many answers differ or are not there."""
    rows = max(int(LARGE_ROWS * bench.options.join_rows), 1)
    tables = Tables(bench, "large_join", random_rows.sides(rows, rows, LARGE_COLUMNS, LARGE_HIT_RATIO))
    tables.make()
    joins = Joins(bench, tables)
    for configuration in ("all",) if joins.are_measured_on_one() else ("all", "one"):
        bench.configure(configuration)
        for kind in reversed(KINDS):
            if bench.has_time():
                joins.measure(configuration, kind, LARGE_COLUMNS)
    tables.drop()
    return joins.wrong
