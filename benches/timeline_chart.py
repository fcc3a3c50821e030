"""How busy storage, bus and GPU were over a query's time, as numbers and as SVG.

A lane is a resource: `storage` (reads of the host), `bus` (copies between host and device), `device` (kernels and copies within
it). Its time is cut into BINS parts of equal length; of each it is known for which share the resource was busy.
"""

BINS = 240
LANES = {"storage": ("read",), "bus": ("upload", "download"), "device": ("kernel", "copy")}
_COLOURS = {"storage": "#3b6ea8", "bus": "#c77f2a", "device": "#4b9b5f"}
_LANE_HEIGHT, _LANE_GAP, _LEFT, _TOP, _WIDTH = 44, 14, 90, 34, 720


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
    elapsed_ms, lines = timeline["elapsed_ms"], [f'<text x="{_LEFT}" y="{top + 14}" font-weight="bold">{title}: {timeline["elapsed_ms"]:.1f} ms</text>']
    y, bar = top + 24, _WIDTH / BINS
    for lane, numbers in timeline["lanes"].items():
        lines.append(f'<text x="{_LEFT - 8}" y="{y + _LANE_HEIGHT / 2 + 4:.0f}" text-anchor="end">{lane}</text>')
        lines.append(f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_LANE_HEIGHT}" fill="#f2f2f2"/>')
        for place, share in enumerate(numbers["shares"]):
            if share > 0:
                height = share * _LANE_HEIGHT
                lines.append(f'<rect x="{_LEFT + place * bar:.1f}" y="{y + _LANE_HEIGHT - height:.1f}" width="{bar:.1f}" '
                             f'height="{height:.1f}" fill="{_COLOURS[lane]}"/>')
        y += _LANE_HEIGHT + _LANE_GAP
    step = axis_step(max(elapsed_ms, 0.01))
    for mark in range(int(elapsed_ms / step) + 1):
        x = _LEFT + _WIDTH * mark * step / max(elapsed_ms, step)
        lines.append(f'<line x1="{x:.1f}" y1="{y - 8}" x2="{x:.1f}" y2="{y - 2}" stroke="#666"/>')
        lines.append(f'<text x="{x:.1f}" y="{y + 10}" text-anchor="middle" fill="#444">{mark * step:g}</text>')
    return lines, y + 20


def svg(timelines):
    """One drawing of several queries, by title, one below the other: busy shares over milliseconds."""
    body, top = [], _TOP - 24
    for title, timeline in timelines.items():
        lines, top = _panel(title, timeline, top)
        body += lines
        top += 10
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 30}" height="{top}" '
            'font-family="sans-serif" font-size="12">')
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>", ""])
