"""The step `duckdb_files` of gpu.py: the queries over files that DuckDB wrote from the same rows, in its default
form, hot in both engines.

A figure on files of our own form is half of one: most people's files are small row groups by other writers.
"""

import time

from answers import same_answer
from harness import tables
from harness.libpq import QueryError, Session
from peers import TABLES, DuckdbPeer
from report import number


def write_files(bench, folder):
    """DuckDB's files of all tables, unless they are there."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    writer = DuckdbPeer(bench.data, bench.threads)
    begin = time.monotonic()
    for table in TABLES:
        path = folder / f"{table}.parquet"
        if not path.exists():
            writer.connection.execute(f"COPY (SELECT * FROM {table}) TO '{path}' (FORMAT parquet)")
            path.chmod(0o644)
    writer.close()
    print(f"duckdb files: written in {time.monotonic() - begin:.1f} s", flush=True)


def best(action, runs):
    """The least seconds of some runs."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def run_duckdb_files(bench):
    """Returns how many answers are not DuckDB's."""
    folder, schema = bench.folder / f"duckdb-files-sf{bench.options.scale}", bench.schema("duckdb_files")
    write_files(bench, folder)
    with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
        tables.tpch_foreign(session, folder, schema, "gpu")
    ours, duckdb = bench.peer("gpu", [f"SET search_path = {schema}, public"]), DuckdbPeer(folder, bench.threads)
    rows, wrong = [], 0
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        wanted = [[None if value is None else str(value) for value in row] for row in duckdb.run(sql)]
        theirs = best(lambda: duckdb.receive(sql), bench.options.duckdb_runs)
        try:
            difference = same_answer(wanted, ours.run(sql))
            seconds = best(lambda: ours.receive(sql), bench.options.runs)
        except QueryError as error:
            difference, seconds = str(error).splitlines()[0], None
        wrong += difference is not None
        rows.append({"query": name, "gpu": seconds, "duckdb": theirs, "difference": difference})
        print(f"duckdb files {name}  gpu {number(seconds)}  duckdb {number(theirs)}  {difference or 'same answer'}", flush=True)
    bench.results.fact(duckdb_files=rows)
    both = [(row["gpu"], row["duckdb"]) for row in rows if row["gpu"]]
    gpu, theirs = (sum(column) for column in zip(*both)) if both else (0, 0)
    print(f"duckdb files: {len(both)} queries, gpu {gpu:.3f} s, duckdb {theirs:.3f} s, {wrong} wrong", flush=True)
    ours.close()
    duckdb.close()
    return wrong


def duckdb_files_table(facts):
    """Lines of the report; none if the step did not run."""
    rows = facts.get("duckdb_files")
    if not rows:
        return []
    lines = ["## Files that DuckDB wrote", "", "Hot, seconds, over files of the same rows in DuckDB's own form.", "",
             "| query | GPU | DuckDB |", "|---|---:|---:|"]
    lines += [f"| {row['query']} | {number(row['gpu'])} | {number(row['duckdb'])} |" for row in rows]
    return [*lines, ""]
