"""Real kernel time of hot queries, by Nsight Compute: the step `profile` of gpu.py.

The engine is started beneath `ncu`, which runs one kernel at a time and measures each alone. How long a query takes so says
nothing; what its kernels take when nothing runs beside them is what its ordinary time is compared with: the rest is launches that
wait for the host, and kernels that are too small for the device.

The file that ncu writes numbers launches in their order. How many of them belong to which query is what the engine's own log of a
query counts.
"""

import csv
import os
import pathlib
import shutil
import signal
import stat
import time

import storage
from harness.libpq import QueryError, Session

PROFILERS = ("ncu", "/usr/local/cuda/bin/ncu")
# Ending writes a line for each launch.
END_S_MAX = 120
# Runs of a query, of which the last is measured: what stays on the device is there from the third on.
RUNS = 4
# Until every process of the server has its settings anew.
RELOAD_S = 1
DURATION = "gpu__time_duration.sum"
# Bytes that the device's memory reads and writes, the share of cycles in which a scheduler issues an instruction, and the share of warps
# that are there of those that could be. One run of a kernel tells all of them; more would make the profiler save and restore memory.
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
ISSUED, WARPS = "smsp__issue_active.avg.pct_of_peak_sustained_active", "sm__warps_active.avg.pct_of_peak_sustained_active"
METRICS = (DURATION, READ, WRITTEN, ISSUED, WARPS)
_NS = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}


def profiler():
    """The program, or None where there is none."""
    return next((found for found in map(shutil.which, PROFILERS) if found), None)


def _wrapper(folder, program, engine, log):
    """A program that runs the engine beneath the profiler."""
    path = folder / "profiled-engine"
    path.write_text(f'#!/bin/sh\nexec {program} --clock-control none --cache-control none --target-processes application-only --csv --page raw '
                    f'--print-units base --metrics {",".join(METRICS)} --log-file {log} {engine} "$@"\n', encoding="utf-8")
    path.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    return path


def _launches(log):
    """Name, nanoseconds, bytes, and percents of issue and warps of every launch, in order."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.startswith('"')]
    table = list(csv.reader(lines))
    if not table:
        return []
    heads = table[0]
    units = dict(zip(heads, table[1], strict=True)).get(DURATION, "ns") if len(table) > 1 else "ns"

    def number(row, metric):
        text = row[heads.index(metric)].replace(",", "") if metric in heads else ""
        # What a counter does not tell is "n/a" or "nan".
        return float(text) if text.replace(".", "", 1).isdigit() else 0.0

    return [(row[heads.index("Kernel Name")].split("(")[0], number(row, DURATION) * _NS.get(units, 1), number(row, READ) + number(row, WRITTEN),
             number(row, ISSUED), number(row, WARPS)) for row in table[1:] if row[0].isdigit()]


def _use_engine(bench, path):
    """Says which executable engines are from their next start on: this one, or the installed one."""
    with Session(bench.conninfo) as session:
        session.run(f"ALTER SYSTEM SET pystachio.engine_path = '{path}'" if path else "ALTER SYSTEM RESET pystachio.engine_path")
        session.run("SELECT pg_reload_conf()")


def _engines_beneath(pid):
    """The engine's processes among those that a process has started."""
    parents, engines = {}, []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (folder / "stat").read_text(encoding="utf-8").split("(", 1)[1].rsplit(")", 1)
            parents[int(folder.name)] = (int(rest.split()[1]), name)
        except (OSError, ValueError):
            continue
    for candidate, (_, name) in parents.items():
        above = candidate
        while above in parents and above != pid:
            above = parents[above][0]
        if above == pid and candidate != pid and name.startswith("pystachio-engi"):
            engines.append(candidate)
    return engines


def _noted_launches(peer, after):
    """Launches of the engine's queries since one, and the last query: a statement may have several, for subqueries that PostgreSQL runs first."""
    rows = peer.session.run("SELECT noted.query, count(*) FILTER (WHERE activity = 'kernel') FROM pystachio.timeline_queries('gpu') AS noted, "
                            f"pystachio.timeline(noted.query, 'gpu') WHERE noted.query > {after} GROUP BY 1 ORDER BY 1").rows
    return sum(int(count) for _, count in rows), int(rows[-1][0]) if rows else after


def run_profile(bench):
    """Kernels of every hot query, each alone. Keeps launches and milliseconds by kernel."""
    program = profiler()
    if program is None:
        print("profile: Nsight Compute (ncu) is not there", flush=True)
        return 0
    storage.fill_page_cache(bench.files, bench.threads)
    # The engine runs as the server's user, whose folder this is.
    log = bench.folder / f"ncu-sf{bench.options.scale}.csv"
    log.unlink(missing_ok=True)
    with Session(bench.conninfo) as session:
        engine = pathlib.Path(session.run("SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'").scalar()) / "pystachio-engine"
    _use_engine(bench, _wrapper(bench.folder, program, engine, log))
    counts, noted, last = [], [], 0
    try:
        pid = bench.restart_engine("gpu")
        peer = bench.peer("gpu", ["SET statement_timeout = '300s'"])
        for name, sql in bench.queries().items():
            if not bench.has_time():
                break
            try:
                begin = time.perf_counter()
                # Fills caches; what it launches is not looked at.
                peer.session.run("SET pystachio.timeline = on")
                for _ in range(RUNS):
                    peer.receive(sql)
                    launches, last = _noted_launches(peer, last)
                    counts.append(launches)
                noted.append((name, len(counts) - 1))
                print(f"profile {name}  {counts[-1]} launches, {time.perf_counter() - begin:.1f} s", flush=True)
            except QueryError as error:
                print(f"profile {name}  fails: {str(error).splitlines()[0]}", flush=True)
                break
        peer.close()
        # The profiler writes what it has measured when its child has ended; the engine that the supervisor then starts must not be
        # beneath another one, which would begin the file anew.
        _use_engine(bench, None)
        time.sleep(RELOAD_S)
        for engine in _engines_beneath(pid) or [pid]:
            os.kill(engine, signal.SIGTERM)
        deadline = time.monotonic() + END_S_MAX
        while pathlib.Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        _use_engine(bench, None)
        bench.restart_engine("gpu")
    launches = []
    if log.exists():
        shutil.copy(log, bench.options.logs)
        launches = _launches(log)
    # Those of the first looks at the engine come before.
    first = len(launches) - sum(counts)
    print(f"profile: {len(launches)} launches in the file, {sum(counts)} noted", flush=True)
    for name, place in noted:
        begin = first + sum(counts[:place])
        sums = {}
        for kernel, nanoseconds, moved, issued, warps in launches[max(begin, 0):begin + counts[place]]:
            total = sums.setdefault(kernel, {"name": kernel, "count": 0, "ms": 0.0, "bytes": 0.0, "issued": 0.0, "warps": 0.0})
            milliseconds = nanoseconds / 1e6
            # Percents are weighted by time.
            for key, value in (("count", 1), ("ms", milliseconds), ("bytes", moved), ("issued", issued * milliseconds), ("warps", warps * milliseconds)):
                total[key] += value
        found = list(sums.values())
        bench.results.note_profile(name, found)
        slowest = sorted(found, key=lambda entry: -entry["ms"])[:4]
        print(f"profile {name}  {sum(entry['ms'] for entry in found):.1f} ms alone: "
              + ", ".join(f"{entry['name']} {entry['ms']:.1f} ms/{entry['count']}" for entry in slowest), flush=True)
    return 0
