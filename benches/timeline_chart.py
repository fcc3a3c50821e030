"""How busy storage, bus and GPU were over a query's time, as numbers and as SVG.

A lane is a resource: `storage` (reads of the host), `bus` (copies between host and device), `device` (kernels and copies within
it). Its time is cut into BINS parts of equal length; of each it is known for which share the resource was busy.
"""

import chart_style

BINS = 240
LANES = {"storage": ("read",), "bus": ("upload", "download"), "device": ("kernel", "copy")}
# What a reader is told of each lane, and its colour.
_MEANINGS = {"storage": "storage or page cache: reads of the host", "bus": "copies between host and GPU", "device": "kernels, and copies within GPU memory"}
_SERIES = {"storage": 2, "bus": 1, "device": 0}
_LANE_HEIGHT, _LANE_GAP, _LEFT, _TOP, _WIDTH, _RIGHT = 44, 22, 104, 76, 720, 40


def union(spans):
    """Spans (start, end) that do not touch, in order, which together cover the same moments."""
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def _shares(spans, elapsed_ms):
    """The share of each bin that spans which do not touch cover."""
    width, shares = elapsed_ms / BINS, [0.0] * BINS
    for start, end in spans:
        for place in range(max(0, int(start / width)), min(BINS - 1, int(end / width)) + 1):
            shares[place] += max(0.0, min(end, (place + 1) * width) - max(start, place * width)) / width
    return [round(min(share, 1.0), 3) for share in shares]


def lanes(activities, elapsed_ms):
    """What rows (activity, start_ms, elapsed_ms, bytes) of a query that took `elapsed_ms` come to: by lane its busy
    milliseconds, its bytes, and the shares of its bins."""
    found = {}
    for lane, kinds in LANES.items():
        rows = [row for row in activities if row[0] in kinds]
        spans = union((start, start + length) for _, start, length, _ in rows)
        found[lane] = {"busy_ms": round(sum(end - start for start, end in spans), 3), "bytes": sum(row[3] for row in rows),
                       "shares": _shares(spans, elapsed_ms) if elapsed_ms > 0 else [0.0] * BINS}
    return found


def axis_step(elapsed_ms):
    """Milliseconds between the marks of an axis: 1, 2 or 5 times a power of ten, at most ten of them."""
    step = 0.01
    while True:
        for factor in (1, 2, 5):
            if elapsed_ms / (step * factor) <= 10:
                return step * factor
        step *= 10


def _panel(title, timeline, top):
    """The lines of one query's drawing, and where it ends."""
    elapsed_ms = timeline["elapsed_ms"]
    lines = [chart_style.text(_LEFT, top + 14, f"{title}: {elapsed_ms:.1f} ms", "name")]
    y, bar = top + 38, _WIDTH / BINS
    for lane, numbers in timeline["lanes"].items():
        lines.append(chart_style.text(_LEFT, y - 5, _MEANINGS[lane], "note"))
        lines.append(chart_style.text(_LEFT - 44, y + _LANE_HEIGHT / 2 + 4, lane, anchor="end"))
        for share in (0, 100):
            lines.append(chart_style.text(_LEFT - 6, y + _LANE_HEIGHT * (1 - share / 100) + 4, f"{share} %", "note", "end"))
        lines.append(f'<rect class="plot" x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_LANE_HEIGHT}"/>')
        for place, share in enumerate(numbers["shares"]):
            if share > 0:
                height = share * _LANE_HEIGHT
                lines.append(f'<rect class="s{_SERIES[lane]}" x="{_LEFT + place * bar:.1f}" y="{y + _LANE_HEIGHT - height:.1f}" '
                             f'width="{bar:.1f}" height="{height:.1f}"/>')
        y += _LANE_HEIGHT + _LANE_GAP
    y -= _LANE_GAP
    step = axis_step(max(elapsed_ms, 0.01))
    for mark in range(int(elapsed_ms / step + 1e-9) + 1):
        x = _LEFT + _WIDTH * mark * step / max(elapsed_ms, step)
        lines.append(f'<line class="axis" x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}"/>')
        lines.append(chart_style.text(x, y + 18, f"{mark * step:g}", "note", "middle"))
    lines.append(chart_style.text(_LEFT + _WIDTH / 2, y + 34, "milliseconds since the query's start", "note", "middle"))
    return lines, y + 44


def svg(timelines):
    """One drawing of several queries, by title, one below the other: busy shares over milliseconds."""
    title = "Storage, bus and GPU over a query's time"
    body = [chart_style.text(_LEFT, 28, title, "title"),
            chart_style.text(_LEFT, 48, f"share of each of {BINS} equal parts of the time in which a resource was busy: full height is all of it", "note")]
    top = _TOP - 10
    for name, timeline in timelines.items():
        lines, top = _panel(name, timeline, top)
        body += lines
        top += 14
    return chart_style.drawing(_LEFT + _WIDTH + _RIGHT, round(top), title, body)
