#!/usr/bin/env python3
"""The picture in README: the 22 queries of TPC-H, DuckDB's seconds beside pystachio's, as SVG.

usage: pairs_chart.py [--check] RESULT.json PICTURE.svg

RESULT.json is what gpu.py recorded (benches/results); of it the hot runs without a technique switched off are drawn. The scale is
logarithmic: equal lengths are equal factors. Colours follow the reader's scheme, light or dark. `--check` writes nothing and fails
if the picture is another one than the result gives.
"""

import json
import math
import pathlib
import sys

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 400, 62, 14, 78, 78
_GAP_SHARE, _QUERY_COUNT = 0.26, 22
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .note { font-size: 11px; fill: #57606a }
  .paper { fill: #ffffff } .grid { stroke: #d0d7de } .duckdb { fill: #c77f2a } .pystachio { fill: #2f7d4f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9da7b1 }
    .paper { fill: #0d1117 } .grid { stroke: #30363d } .duckdb { fill: #e0a458 } .pystachio { fill: #56c288 }
  }"""


def hot_seconds(document, system):
    """Seconds by query, q01 to q22. Raises ValueError unless all 22 were measured."""
    found = {entry["query"]: entry["seconds"] for entry in document["measured"]
             if (entry["mode"], entry["system"], entry["without"]) == ("hot", system, None) and entry.get("seconds")}
    if len(found) != _QUERY_COUNT:
        raise ValueError(f"hot runs of {system} for {len(found)} queries, not {_QUERY_COUNT}")
    return dict(sorted(found.items()))


class LogScale:
    """Heights of seconds, between the powers of ten around all values."""

    def __init__(self, values):
        self.low, self.high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def y(self, seconds):
        share = (math.log10(seconds) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def marks(self):
        return [10.0 ** power for power in range(self.low, self.high + 1)]


def _grid(scale):
    for mark in scale.marks():
        y = scale.y(mark)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark:g} s</text>'


def _bars(scale, duckdb, ours):
    step = (_WIDTH - _LEFT - _RIGHT) / len(duckdb)
    bar = step * (1 - _GAP_SHARE) / 2
    for place, query in enumerate(duckdb):
        left = _LEFT + place * step + step * _GAP_SHARE / 2
        for number, (name, seconds) in enumerate((("duckdb", duckdb[query]), ("pystachio", ours[query]))):
            y = scale.y(seconds)
            yield (f'<rect class="{name}" x="{left + number * bar:.1f}" y="{y:.1f}" width="{bar:.1f}" height="{_HEIGHT - _BOTTOM - y:.1f}">'
                   f"<title>Q{int(query[1:])}, {name}: {seconds:.3f} s</title></rect>")
        yield f'<text x="{left + bar:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">Q{int(query[1:])}</text>'


def _legend(duckdb, ours):
    left = _LEFT
    for name, label in (("duckdb", f"DuckDB, {sum(duckdb.values()):.1f} s in all"), ("pystachio", f"pystachio, {sum(ours.values()):.1f} s in all")):
        yield f'<rect class="{name}" x="{left}" y="46" width="12" height="12"/><text x="{left + 18}" y="56">{label}</text>'
        left += 190


def svg(document):
    """The picture of what gpu.py recorded."""
    facts, duckdb, ours = document["facts"], hot_seconds(document, "duckdb"), hot_seconds(document, "gpu")
    scale = LogScale([*duckdb.values(), *ours.values()])
    commit = facts["built"].split()[0].removeprefix("commit=")
    notes = [f"pystachio {facts['versions']['pystachio']} on one {facts['gpu'].split(',')[0]}; DuckDB {facts['versions']['duckdb']} on the "
             f"{facts['threads']} processors of the same host; the same Parquet files",
             f"hot: pystachio's best of {facts['runs']} runs, columns in GPU memory; DuckDB's of {facts['duckdb_runs']}, files in memory; "
             f"{facts['date']}, commit {commit}"]
    title = f"TPC-H SF {document['scale']} over Parquet: seconds a query, logarithmic; lower is better"
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">',
             f"<title>{title}</title>", f"<style>{_STYLE}\n</style>", '<rect class="paper" width="100%" height="100%"/>',
             f'<text class="title" x="{_LEFT}" y="28">{title}</text>', *_legend(duckdb, ours), *_grid(scale), *_bars(scale, duckdb, ours),
             *(f'<text class="note" x="{_LEFT}" y="{_HEIGHT - 30 + 17 * place}">{note}</text>' for place, note in enumerate(notes)), "</svg>", ""]
    return "\n".join(lines)


def main(arguments):
    check = "--check" in arguments
    paths = [pathlib.Path(argument) for argument in arguments if argument != "--check"]
    if len(paths) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    picture = svg(json.loads(paths[0].read_text(encoding="utf-8")))
    if not check:
        paths[1].write_text(picture, encoding="utf-8")
    elif not paths[1].exists() or paths[1].read_text(encoding="utf-8") != picture:
        print(f"error: {paths[1]} is not what {paths[0]} gives: python3 benches/pairs_chart.py {paths[0]} {paths[1]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
