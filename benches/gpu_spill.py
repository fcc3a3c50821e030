"""The step `spill` of gpu.py: the queries with a GPU memory of a sixteenth of the data, which must only make them slower.

A server `spill` has the same files as the server `gpu`, and its arena is a sixteenth of their bytes. Every query must
run on the device, and give the text that the server `gpu` gives. One that takes longer than LIMIT_S is cancelled, and
the next one is measured; the last lines are a table of all.
"""

import os
import re
import time

from report import number
from harness import tables
from harness.libpq import QueryError, Session

# The arena is this part of the data's bytes, as they are in the files.
PART = 16
SERVER = "spill"
# A query that takes longer is given up: all of them have to fit into the step's time.
LIMIT_S = 30
# PostgreSQL's code for a statement that its timeout has cancelled.
CANCELLED = "57014"


def timed(action):
    """Seconds that `action` takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def make_server(bench, device_memory):
    """A server with a small arena, and the tables over it, analyzed as those of the server `gpu`."""
    options, schema = bench.options, bench.schema(SERVER)
    with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
        session.run(f"DROP SERVER IF EXISTS {SERVER} CASCADE")
        session.run(f"CREATE SERVER {SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{options.device}', "
                    f"device_memory '{device_memory >> 10}kB'{options.server_options})")
        tables.tpch_foreign(session, bench.data, schema, SERVER)


def measure(bench, name, sql, whole, small):
    """One query on both servers: a finding, or None, and a row of the table: seconds, seconds with memory for all, spilled bytes."""
    seconds = spilling_seconds = None
    try:
        wanted = whole.run(sql)
        seconds = timed(lambda: whole.receive(sql))
        got = small.run(sql)
        spilling_seconds = timed(lambda: small.receive(sql))
        explained = "\n".join(row[0] for row in small.session.run(f"EXPLAIN (ANALYZE) {sql}").rows)
    except QueryError as error:
        finding = f"fails: {error}"
        if error.sqlstate == CANCELLED:
            finding = f"takes longer than {limit(bench)} s"
        bench.results.record("spill", "gpu", name, None, error=finding.splitlines()[0][:200], whole_seconds=seconds)
        return finding, (spilling_seconds, seconds, None)
    places = re.findall(r"^ *Ran On: (.*)$", explained, re.MULTILINE)
    spilled = sum(int(count) for count in re.findall(r"^ *Spilled Bytes: (\d+)(?: bytes)?$", explained, re.MULTILINE))
    bench.results.record("spill", "gpu", name, spilling_seconds, whole_seconds=seconds, spilled_bytes=spilled)
    row = (spilling_seconds, seconds, spilled)
    elsewhere = [place for place in places if place != bench.options.device]
    if elsewhere:
        return f"ran on {elsewhere[0]}", row
    return None if got == wanted else f"{len(got)} rows differ from those with memory for all", row


def limit(bench):
    """Seconds after which a query is given up."""
    return min(LIMIT_S, bench.options.query_limit)


def table_line(name, row, finding):
    """A query's line of the table."""
    spilling_seconds, seconds, spilled = row
    ratio = number(spilling_seconds / seconds if spilling_seconds and seconds else None, 1)
    gigabytes = number(spilled / 1e9 if spilled is not None else None, 2)
    said = (finding or "same answer").splitlines()[0]
    return f"{name:<6}{number(spilling_seconds):>12}{number(seconds):>12}{ratio:>8}{gigabytes:>12}  {said}"


def run_spill(bench):
    """Returns how many queries failed, ran elsewhere or gave something else."""
    data_bytes = sum(os.path.getsize(path) for path in bench.files)
    device_memory = data_bytes // PART
    make_server(bench, device_memory)
    bench.results.fact(spill_device_memory=device_memory)
    print(f"SF {bench.options.scale}: {device_memory / 1e6:.0f} MB of GPU memory for {data_bytes / 1e9:.2f} GB of files", flush=True)
    whole, small = bench.peer("gpu"), bench.peer(SERVER, [f"SET statement_timeout = '{limit(bench)}s'"])
    wrong, lines = 0, []
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        finding, row = measure(bench, name, sql, whole, small)
        bench.results.note(name, "with little memory", finding)
        wrong += finding is not None
        lines.append(table_line(name, row, finding))
        print(f"spill {lines[-1]}", flush=True)
    whole.close()
    small.close()
    print(f"{'query':<6}{'seconds':>12}{'for all':>12}{'ratio':>8}{'GB spilled':>12}", *lines, sep="\n", flush=True)
    return wrong


def spill_table(measured):
    """Lines of the report: how much slower each query is; none if the step did not run."""
    rows = {query: entry for query in measured.queries if (entry := measured.entry("spill", "gpu", query))}
    if not rows:
        return []
    lines = ["## With little GPU memory", "", f"The arena held to {measured.facts.get('spill_device_memory', 0) / 1e6:.0f} MB, a sixteenth of "
             "the files' bytes. Seconds of the second run.", "", "| query | seconds | with memory for all | ratio | GB spilled |",
             "|---|---:|---:|---:|---:|"]
    for query, entry in rows.items():
        seconds, whole = entry.get("seconds"), entry.get("whole_seconds")
        ratio = number(seconds / whole if seconds and whole else None, 1)
        spilled = number(entry.get("spilled_bytes", 0) / 1e9, 2)
        lines.append(f"| {query} | {'error' if entry.get('error') else number(seconds)} | {number(whole)} "
                     f"| {ratio} | {spilled} |")
    return lines + [""]
