"""What ranks moved for a query: of EXPLAIN (ANALYZE, FORMAT JSON) what was planned and counted, of `pystachio.timeline` when it moved.

Units: bytes; milliseconds since the query's start on rank 0; GB/s are 10^9 bytes a second. Bytes count where they leave a rank; what
stays on its rank does not count in what the timeline says, and does in what EXPLAIN says.
"""

import json
import pathlib
import re

import timeline_chart
from harness.explain import EXCHANGE

_HEADLINE = re.compile(r"^(?P<name>\S.*?): rows=(?P<rows>\d+)(?: kept=\d+)?(?: heavy=\d+)? bytes=(?P<bytes>\d+) skew=(?P<skew>[\d.]+)$")
# The share of what a rank sent after which it has sent.
NEARLY_ALL = 0.99
_TIMELINE = "SELECT rank, activity, start_ms, elapsed_ms, bytes FROM pystachio.timeline(server => '{server}')"


def _nodes(plan):
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def explained(document):
    """Figures of what EXPLAIN (ANALYZE, FORMAT JSON) printed: `ran_on`, `ranks` (which ranks ran it and why), `bytes_read` and
    `spilled_bytes` of all ranks, `exchanges` as planned, and what they moved: `moved_rows`, `moved_bytes`, `skew` of the worst."""
    found = {"ran_on": [], "ranks": [], "bytes_read": 0, "spilled_bytes": 0, "exchanges": [], "moved_rows": 0, "moved_bytes": 0, "skew": 1.0}
    for node in _nodes(document[0]["Plan"]):
        found["ran_on"] += [node["Ran On"]] if "Ran On" in node else []
        found["ranks"] += [node["Ranks"]] if "Ranks" in node else []
        found["bytes_read"] += node.get("Bytes Read", 0)
        found["spilled_bytes"] += node.get("Spilled Bytes", 0)
        found["exchanges"] += [line.strip() for line in node.get("Rank Plan", []) if re.match(EXCHANGE, line)]
        for line in node.get("Exchanges", []):
            moved = _HEADLINE.match(line)
            if moved:
                found["moved_rows"] += int(moved["rows"])
                found["moved_bytes"] += int(moved["bytes"])
                found["skew"] = max(found["skew"], float(moved["skew"]))
    return found


def network(rows):
    """What rows (rank, activity, start_ms, elapsed_ms, bytes) of a timeline come to, of the rank that sent most: its `sent_bytes`;
    `network_ms`, the milliseconds in which anything was on its way to or from it; `window_ms`, from its first send until nearly all that it
    sent was there, and the rate that this is, `network_gb_s`."""
    by_rank = {}
    for rank, activity, start, elapsed, count in rows:
        if activity in ("send", "receive"):
            by_rank.setdefault(rank, []).append((activity, start, start + elapsed, count))
    found = max((_of_rank(moved) for moved in by_rank.values()), key=lambda of_rank: of_rank["sent_bytes"], default=None)
    return found or {"sent_bytes": 0, "network_ms": 0.0, "window_ms": 0.0, "network_gb_s": None}


def _of_rank(moved):
    """What movements (activity, start, end, bytes) of one rank come to."""
    sends = sorted(((end, start, count) for activity, start, end, count in moved if activity == "send"))
    sent, over, last = sum(count for _, _, count in sends), 0, 0.0
    for last, _, count in sends:
        over += count
        # A last message of some bytes, when all is joined, is no part of the rate.
        if over >= NEARLY_ALL * sent:
            break
    window = last - min((start for _, start, _ in sends), default=last)
    milliseconds = sum(end - start for start, end in timeline_chart.union((start, end) for _, start, end, _ in moved))
    return {"sent_bytes": sent, "network_ms": milliseconds, "window_ms": window, "network_gb_s": sent / window / 1e6 if window else None}


def raw_gb_s(path, links):
    """The best rate of raw transfers over these links in what the example `shuffle` wrote; None where it is not known."""
    if not path or not pathlib.Path(path).exists():
        return None
    results = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["results"]
    wanted = (links, "emulated")
    rates = [result["gb_s"] for result in results if result["kind"] == "raw" and result["links"] in wanted and result.get("gb_s")]
    return max(rates, default=None)


def timeline(session, server):
    """Rows (rank, activity, start_ms, elapsed_ms, bytes) of the server's last query that was noted."""
    rows = session.run(_TIMELINE.format(server=server)).rows
    return [(int(rank), activity, float(start), float(elapsed), int(count)) for rank, activity, start, elapsed, count in rows]


def measure(session, server, sql):
    """Runs a query under EXPLAIN ANALYZE, which notes its timeline: its figures, and the document."""
    document = json.loads(session.run(f"EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) {sql}").scalar())
    return {**explained(document), **network(timeline(session, server))}, document
