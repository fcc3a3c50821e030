"""Steps of gpu.py that look at what the GPU does: kernels of hot queries, and a query's time line, cold and hot.

Every measurement goes to the results at once; a step that is stopped loses one query.
"""

import re
import time

import storage
import timeline_chart
from gpu_calibrate import DECODING
from harness.libpq import QueryError


def _watched(peer, sql):
    """Runs a query of server `gpu` whose activities are noted."""
    peer.session.run("SET pystachio.timeline = on")
    peer.receive(sql)
    peer.session.run("SET pystachio.timeline = off")


def _timeline(peer):
    """The last noted query: its milliseconds and its lanes."""
    session = peer.session
    elapsed_ms = float(session.run("SELECT elapsed_ms FROM pystachio.timeline_queries('gpu') ORDER BY query DESC LIMIT 1").scalar())
    rows = session.run("SELECT activity, start_ms, elapsed_ms, bytes FROM pystachio.timeline(server => 'gpu')").rows
    activities = [(row[0], float(row[1]), float(row[2]), int(row[3])) for row in rows]
    return {"elapsed_ms": elapsed_ms, "lanes": timeline_chart.lanes(activities, elapsed_ms)}


def _union_ms(spans):
    """Milliseconds in which at least one of the spans (start, length) goes on."""
    total, end = 0.0, 0.0
    for start, length in sorted(spans):
        total += max(0.0, start + length - max(start, end))
        end = max(end, start + length)
    return total


def _measure_decoding(bench, peer):
    """Notes at what rate the columns of Q1 are decoded from column chunks in the GPU's memory: decoded bytes over the time in which a
    kernel that decodes runs, though others run beside it."""
    sql = bench.queries([1])["q01"]
    explained = "\n".join(row[0] for row in peer.session.run(f"EXPLAIN (ANALYZE) {sql}").rows)
    _watched(peer, sql)
    rows = peer.session.run("SELECT name, start_ms, elapsed_ms FROM pystachio.timeline(server => 'gpu') WHERE activity = 'kernel'").rows
    milliseconds = _union_ms([(float(row[1]), float(row[2])) for row in rows if row[0] in DECODING])
    decoded = sum(int(count) for count in re.findall(r"\bbytes_decoded=(\d+)", explained))
    if decoded and milliseconds:
        bench.results.fact(decoding_bytes_per_s=decoded / milliseconds * 1e3)
        print(f"decoding q01  {decoded / 1e9:.1f} GB in {milliseconds:.1f} ms: {decoded / milliseconds / 1e6:.0f} GB/s", flush=True)


def run_kernels(bench):
    """Time and bytes of every kernel and copy of every hot query, and the rate of decoding."""
    storage.fill_page_cache(bench.files, bench.threads)
    peer = bench.peer("gpu")
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        try:
            peer.run(sql)
            _watched(peer, sql)
            rows = peer.session.run("SELECT name, activity, count(*), sum(elapsed_ms), sum(bytes) FROM pystachio.timeline(server => 'gpu') "
                                    "WHERE activity <> 'read' GROUP BY 1, 2").rows
        except QueryError as error:
            print(f"kernels {name}  fails: {str(error).splitlines()[0]}", flush=True)
            continue
        found = [{"name": row[0], "activity": row[1], "count": int(row[2]), "ms": float(row[3]), "bytes": int(row[4])} for row in rows]
        bench.results.note_kernels(name, found)
        slowest = max(found, key=lambda entry: entry["ms"], default=None)
        print(f"kernels {name}  {sum(entry['ms'] for entry in found):.1f} ms, slowest {slowest and slowest['name']}", flush=True)
        if name == "q01":
            _measure_decoding(bench, peer)
    peer.close()
    return 0


def run_timeline(bench):
    """The time lines of one query, cold and hot. The query is the one that --timeline-query names."""
    name, sql = next(iter(bench.queries([bench.options.timeline_query]).items()))
    for mode in ("cold", "hot"):
        if mode == "cold":
            bench.restart_engine("gpu")
        peer = bench.peer("gpu")
        try:
            peer.run("SELECT count(*) FROM region")
            if mode == "cold":
                storage.drop(bench.files, bench.options.drop_caches)
            else:
                peer.receive(sql)
            _watched(peer, sql)
            bench.results.note_timeline(f"{name} {mode}", _timeline(peer))
        finally:
            peer.close()
        print(f"timeline {name} {mode}", flush=True)
    return 0


def run_first(bench):
    """What the first use of a query's shape adds: a fresh engine's first and second run, both without the cache on the GPU, with files
    in the page cache. The engine, but not the query's tables, was used before."""
    storage.fill_page_cache(bench.files, bench.threads)
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        bench.restart_engine("gpu")
        peer = bench.peer("gpu", ["SET pystachio.gpu_disable = 'cache'"])
        try:
            peer.run("SELECT count(*) FROM region")
            seconds = []
            for _ in range(3):
                begin = time.perf_counter()
                peer.receive(sql)
                seconds.append(time.perf_counter() - begin)
        except QueryError as error:
            bench.results.record("first", "gpu", name, None, error=str(error).splitlines()[0])
            continue
        finally:
            peer.close()
        bench.results.record("first", "gpu", name, seconds[0], all_seconds=seconds)
        print(f"first {name}  " + "  ".join(f"{value:.3f}" for value in seconds), flush=True)
    return 0
