#!/usr/bin/env python3
"""The dashboard of docs/monitoring.sql: as Grafana reads it, and as a picture of a real run.

usage: monitoring.py [--check]              writes docs/monitoring-dashboard.json, or fails if the queries give another one
       monitoring.py --draw CONNINFO FILE   runs TPC-H from some sessions for a while, then every query once, and draws what they gave

CONNINFO is of a database with pystachio and the TPC-H tables, on its search path or in the schema `tpch`. The picture is drawn here, after the
dashboard's layout: Grafana has its own looks.
"""

import dataclasses
import html
import json
import pathlib
import re
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUERIES, DASHBOARD = ROOT / "docs/monitoring.sql", ROOT / "docs/monitoring-dashboard.json"
_HEAD = re.compile(r"^-- panel: (stat|series|rates|bars|table), (\w+), (\d+)x(\d+): (.+)$")
_COLUMNS = 24
_GRAFANA_KINDS = {"stat": "stat", "series": "timeseries", "rates": "timeseries", "bars": "bargauge", "table": "table"}
_LOAD_S, _SESSIONS = 20, 4


@dataclasses.dataclass
class Panel:
    """A query and where what it gives is shown: columns and rows of the grid."""

    kind: str
    unit: str
    width: int
    height: int
    title: str
    sql: str
    x: int = 0
    y: int = 0


def read_panels(text):
    """The panels of a file of queries, placed from left to right and from top to bottom. Raises ValueError for a query without a panel."""
    panels = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            panels.append(Panel(head[1], head[2], int(head[3]), int(head[4]), head[5], ""))
        elif line.startswith("--") or not line.strip():
            continue
        elif not panels or panels[-1].sql.endswith(";"):
            raise ValueError(f"a query without a panel: {line}")
        else:
            panels[-1].sql = f"{panels[-1].sql}\n{line}".strip()
    x = y = row_height = 0
    for panel in panels:
        if not panel.sql.endswith(";"):
            raise ValueError(f"a panel without a query: {panel.title}")
        if x + panel.width > _COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        panel.x, panel.y = x, y
        x, row_height = x + panel.width, max(row_height, panel.height)
    return panels


def dashboard(panels):
    """The dashboard as Grafana imports it; it asks for the data source."""
    source = {"type": "grafana-postgresql-datasource", "uid": "${DS_POSTGRESQL}"}

    def drawn(number, panel):
        kind = panel.kind
        options = {}
        if kind in ("stat", "bars"):
            options = {"reduceOptions": {"values": kind == "bars", "calcs": ["lastNotNull"], "fields": ""}}
        custom = {"series": {"drawStyle": "points", "pointSize": 6}, "rates": {"drawStyle": "bars", "fillOpacity": 80}}.get(kind, {})
        return {
            "id": number, "title": panel.title, "type": _GRAFANA_KINDS[kind], "datasource": source,
            "gridPos": {"x": panel.x, "y": panel.y, "w": panel.width, "h": panel.height},
            "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
            "options": options,
            "targets": [{"refId": "A", "datasource": source, "format": "time_series" if kind in ("series", "rates") else "table",
                         "editorMode": "code", "rawQuery": True, "rawSql": panel.sql}],
        }

    return {
        "__inputs": [{"name": "DS_POSTGRESQL", "label": "PostgreSQL", "description": "A database with pystachio", "type": "datasource",
                      "pluginId": "grafana-postgresql-datasource", "pluginName": "PostgreSQL"}],
        "title": "pystachio", "uid": "pystachio", "tags": ["postgresql"], "schemaVersion": 39, "version": 1,
        "time": {"from": "now-15m", "to": "now"}, "refresh": "10s", "timezone": "browser",
        "panels": [drawn(number + 1, panel) for number, panel in enumerate(panels)],
    }


def dashboard_text(panels):
    return json.dumps(dashboard(panels), indent=2, ensure_ascii=False) + "\n"


# The picture.
_CELL_WIDTH, _CELL_HEIGHT, _GAP, _TOP = 41, 30, 8, 44
# The width of a letter, that of a table's head included, and of the space between columns.
_LETTER, _SPACE = 7.6, 22
_SERIES = ("#2f7d4f", "#c77f2a", "#3b6ea8", "#8a5a9e", "#a23b3b", "#5d6b76")
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 } .name { font-weight: 600 } .big { font-size: 24px; font-weight: 600 } .note { font-size: 12px; fill: #57606a }
  .paper { fill: #ffffff } .panel { fill: #f6f8fa; stroke: #d0d7de } .grid { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9da7b1 } .paper { fill: #0d1117 } .panel { fill: #161b22; stroke: #30363d } .grid { stroke: #30363d }
  }"""


def shown(value, unit):
    """A number with its unit, as a reader wants it."""
    if value is None:
        return "–"
    number = float(value)
    if unit == "percentunit":
        return f"{100 * number:.0f} %"
    if unit == "bytes":
        for prefix, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if number >= size:
                return f"{number / size:.1f} {prefix}"
        return f"{number:.0f} B"
    return f"{number:,.0f}" + (" ms" if unit == "ms" else "")


def _text(x, y, text, kind="", anchor="start"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(str(text))}</text>'


def _cut(text, width):
    """As much of a text as has room."""
    letters = max(int(width / _LETTER), 1)
    return text if len(text) <= letters else text[:letters - 1] + "…"


def _stat(panel, rows, box):
    x, y, width, height = box
    yield _text(x + width / 2, y + height / 2 + 20, shown(rows[0][0] if rows else None, panel.unit), "big", "middle")


def _bars(panel, rows, box):
    x, y, width, height = box
    most = max([float(row[1] or 0) for row in rows], default=0) or 1.0
    step = min((height - 34) / max(len(rows), 1), 30)
    for place, (name, value) in enumerate(rows):
        top = y + 30 + place * step
        length = (width - 250) * float(value or 0) / most
        yield _text(x + 10, top + step / 2 + 4, _cut(name, 140))
        yield f'<rect x="{x + 155}" y="{top + 3:.1f}" width="{max(length, 1):.1f}" height="{step - 6:.1f}" fill="{_SERIES[place % len(_SERIES)]}"/>'
        yield _text(x + 161 + max(length, 1), top + step / 2 + 4, shown(value, panel.unit))


def _series(panel, rows, box):
    x, y, width, height = box
    if not rows:
        return
    left, right, top, bottom = x + 74, x + width - 14, y + 50, y + height - 26
    times, values = [float(row[0]) for row in rows], [float(row[2] or 0) for row in rows]
    first, span, most = min(times), max(max(times) - min(times), 1e-3), max(max(values), 1e-9)
    for share in (0, 0.5, 1):
        mark = bottom - share * (bottom - top)
        yield f'<line class="grid" x1="{left}" x2="{right}" y1="{mark:.1f}" y2="{mark:.1f}"/>'
        yield _text(left - 6, mark + 4, shown(share * most, panel.unit), "note", "end")
    names = sorted({row[1] or "–" for row in rows})
    for place, name in enumerate(names):
        yield f'<circle cx="{x + 16 + place * 150}" cy="{y + 36}" r="4" fill="{_SERIES[place % len(_SERIES)]}"/>'
        yield _text(x + 26 + place * 150, y + 40, _cut(name, 130), "note")
    # A bar of a rate is as wide as its second, less a gap, and its series stand beside each other.
    wide = (right - left) / (span + 1) * 0.8 / len(names)
    for moment, (_, name, _), value in zip(times, rows, values, strict=True):
        number = names.index(name or "–")
        colour, height_of_value = _SERIES[number % len(_SERIES)], value / most * (bottom - top)
        if panel.kind == "rates":
            place = left + (moment - first) / (span + 1) * (right - left) + number * wide
            yield (f'<rect x="{place:.1f}" y="{bottom - height_of_value:.1f}" width="{wide:.1f}" height="{height_of_value:.1f}" '
                   f'fill="{colour}"/>')
        else:
            yield (f'<circle cx="{left + (moment - first) / span * (right - left):.1f}" cy="{bottom - height_of_value:.1f}" r="3" '
                   f'fill="{colour}" fill-opacity="0.75"/>')
    yield _text(left, bottom + 18, "0 s", "note")
    yield _text(right, bottom + 18, f"{span:.0f} s", "note", "end")


def _table(names, rows, box):
    x, y, width, height = box
    texts = [names, *[["–" if value is None else str(value) for value in row] for row in rows]]
    room = int((height - 34) / 20)
    texts = texts[:room]
    widths = [max(len(row[place]) for row in texts) for place in range(len(names))]
    # What is widest gives way.
    while sum(widths) * _LETTER + _SPACE * len(widths) > width - 20 and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    for number, row in enumerate(texts):
        left = x + 10
        for place, value in enumerate(row):
            yield _text(left, y + 42 + number * 20, _cut(value, widths[place] * _LETTER + 1), "name" if number == 0 else "")
            left += widths[place] * _LETTER + _SPACE


def draw(panels, results, notes):
    """The picture of panels and what their queries gave: (names, rows), in their order."""
    height = _TOP + max(panel.y + panel.height for panel in panels) * _CELL_HEIGHT + 50
    width = _COLUMNS * _CELL_WIDTH + 2 * _GAP
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
             "<title>A dashboard of pystachio</title>", f"<style>{_STYLE}\n</style>", '<rect class="paper" width="100%" height="100%"/>',
             _text(_GAP + 4, 28, "pystachio", "title")]
    for panel, (names, rows) in zip(panels, results, strict=True):
        box = (_GAP + panel.x * _CELL_WIDTH + _GAP / 2, _TOP + panel.y * _CELL_HEIGHT, panel.width * _CELL_WIDTH - _GAP,
               panel.height * _CELL_HEIGHT - _GAP)
        lines.append(f'<rect class="panel" x="{box[0]:.1f}" y="{box[1]:.1f}" width="{box[2]:.1f}" height="{box[3]:.1f}" rx="4"/>')
        lines.append(_text(box[0] + 10, box[1] + 20, panel.title, "name"))
        if panel.kind == "table":
            lines += _table(names, rows, box)
        else:
            lines += {"stat": _stat, "bars": _bars, "series": _series, "rates": _series}[panel.kind](panel, rows, box)
    lines += [_text(_GAP + 4, height - 30 + 16 * place, note, "note") for place, note in enumerate(notes)]
    return "\n".join([*lines, "</svg>", ""])


def _load(open_session, queries, until):
    """One session that runs queries in turn until a moment."""
    with open_session() as session:
        for turn in range(1 << 30):
            if time.monotonic() > until:
                return
            session.run(queries[turn % len(queries)])


def record(conninfo):
    """What the queries give while TPC-H runs: the panels, their rows, and what the run was."""
    sys.path.insert(0, str(ROOT / "regress"))
    from harness.libpq import Session  # noqa: PLC0415

    def open_session():
        return Session(conninfo, ["SET search_path = public, tpch"])

    panels = read_panels(QUERIES.read_text(encoding="utf-8"))
    with open_session() as session:
        queries = [session.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in range(1, 23)]
        until = time.monotonic() + _LOAD_S
        turns = [queries[start:] + queries[:start] for start in range(0, 22, max(22 // _SESSIONS, 1))][:_SESSIONS]
        threads = [threading.Thread(target=_load, args=(open_session, turn, until)) for turn in turns]
        for thread in threads:
            thread.start()
        # While the sessions still run.
        time.sleep(_LOAD_S - 1)
        results = []
        for panel in panels:
            sql = panel.sql.rstrip(";")
            if panel.kind in ("series", "rates"):
                sql = f"SELECT extract(epoch FROM time), metric, value FROM ({sql}) series"
            result = session.run(sql)
            results.append((list(result.names), result.rows))
        for thread in threads:
            thread.join()
        version, server = session.run("SELECT pystachio.version(), current_setting('server_version')").rows[0]
    notes = [f"The queries of docs/monitoring.sql while {_SESSIONS} sessions ran the 22 queries of TPC-H for {_LOAD_S} s, drawn by scripts/monitoring.py.",
             f"pystachio {version}, PostgreSQL {server.split()[0]}. Grafana's looks differ."]
    return panels, results, notes


def main(arguments):
    if arguments[:1] == ["--draw"] and len(arguments) == 3:
        pathlib.Path(arguments[2]).write_text(draw(*record(arguments[1])), encoding="utf-8")
        return 0
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = dashboard_text(read_panels(QUERIES.read_text(encoding="utf-8")))
    if not arguments:
        DASHBOARD.write_text(text, encoding="utf-8")
    elif not DASHBOARD.exists() or DASHBOARD.read_text(encoding="utf-8") != text:
        print(f"error: {DASHBOARD} is not what {QUERIES} gives: run scripts/monitoring.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
