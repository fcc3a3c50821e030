"""Step timeline of ranks.py: storage and network over a query's time, with each technique off and on (PystachIO, figure 14).

    activities of all ranks on one clock ─► bytes by moment and rank ─► GB/s of BINS equal parts of the time

An activity's bytes are spread evenly over its time. Storage is what all ranks read together, a rank what it sent to others. The
query reads its files again each time, and finds no column chunk on the GPU.

T_min is the least time in which all that can be done: the longer of the bytes read over the rate of reading the files, and of the bytes that
a rank sent over the rate of raw transfers, where that is known.
"""

import ranks_traffic
import storage
from harness.libpq import QueryError, Session
from ranks_techniques import TECHNIQUES, known, statements

BINS = 120
# So that it reads.
WITHOUT_CACHE = {"cache": "off"}
SERVER = "gpu"


def bandwidths(rows, elapsed_ms):
    """What rows (rank, activity, start_ms, elapsed_ms, bytes) come to: by series the GB/s of each of BINS parts of the time."""
    width = elapsed_ms / BINS
    series = {"storage, all ranks": [0.0] * BINS}
    for rank, activity, start, elapsed, count in rows:
        if activity == "read":
            name = "storage, all ranks"
        elif activity == "send":
            name = f"network, sent by rank {rank}"
        else:
            continue
        bins = series.setdefault(name, [0.0] * BINS)
        if width > 0:
            _spread(bins, width, (start, max(elapsed, 1e-3)), count)
    ordered = sorted(series, key=lambda name: (not name.startswith("storage"), name))
    return {name: [round(value, 3) for value in series[name]] for name in ordered}


def _spread(bins, width, span, count):
    """Adds bytes that moved in a span (start, length) of milliseconds to bins, as GB/s."""
    start, length = span
    first, last = (min(max(int(moment / width), 0), BINS - 1) for moment in (start, start + length))
    for place in range(first, last + 1):
        # What is before the first bin or after the last one is theirs.
        begin = start if place == first else place * width
        end = start + length if place == last else (place + 1) * width
        bins[place] += count * (end - begin) / length / width / 1e6


def t_min_ms(found, storage_bytes_per_s, link_bytes_per_s):
    """Milliseconds, of the terms whose rate is known; None where none is."""
    terms = [(found["read_bytes"], storage_bytes_per_s), (found["sent_bytes"], link_bytes_per_s)]
    return max((count / rate * 1e3 for count, rate in terms if rate), default=None)


def storage_rate(bench):
    """Bytes a second that reading the files gives, from where the query has them; None of small files."""
    storage.fill_page_cache(bench.files, bench.threads)
    if not bench.options.timeline_cold:
        return storage.fill_page_cache(bench.files, bench.threads)
    found = storage.direct_bandwidth(bench.files)
    return found[0] if found else None


def _elapsed_ms(session):
    return float(session.run(f"SELECT elapsed_ms FROM pystachio.timeline_queries('{SERVER}') ORDER BY query DESC LIMIT 1").scalar())


def watch(bench, sql, settings):
    """The timeline of a query: its rows and its milliseconds."""
    peer = bench.open(statements({**WITHOUT_CACHE, **settings}))
    try:
        with bench.guarded(peer):
            # What is compiled, connected and allocated the first time is not part of it.
            peer.receive(sql)
            if bench.options.timeline_cold:
                storage.drop(bench.files, bench.options.drop_caches)
            peer.session.run("SET pystachio.timeline = on")
            peer.receive(sql)
        return ranks_traffic.timeline(peer.session, SERVER), _elapsed_ms(peer.session)
    finally:
        peer.close()


def run_timeline(bench):
    """The query on all ranks, once for each technique that the server has a setting for."""
    raw = bench.raw_gb_s()
    rates = storage_rate(bench), raw * 1e9 if raw else None
    bench.results.fact(storage_bytes_per_s=rates[0], link_bytes_per_s=rates[1])
    bench.configure("all")
    name, sql = next(iter(bench.queries([bench.options.timeline_query]).items()))
    with Session(bench.conninfo) as session:
        steps, missing = known(session, TECHNIQUES)
    bench.results.fact(techniques_without_settings=missing)
    for technique, settings in steps.items():
        if not bench.has_time():
            break
        try:
            rows, elapsed_ms = watch(bench, sql, settings)
        except QueryError as error:
            print(f"timeline {technique}  fails: {str(error).splitlines()[0]}", flush=True)
            continue
        read = sum(row[4] for row in rows if row[1] == "read")
        found = {"query": name, "cold": bench.options.timeline_cold, "elapsed_ms": elapsed_ms, "read_bytes": read,
                 **ranks_traffic.network(rows), "series": bandwidths(rows, elapsed_ms)}
        found["t_min_ms"] = t_min_ms(found, *rates)
        bench.results.note("bandwidths", technique, found)
        print(f"timeline {name} {technique}  {elapsed_ms:.1f} ms, read {read / 1e6:.1f} MB, sent {found['sent_bytes'] / 1e6:.2f} MB",
              flush=True)
    return 0
