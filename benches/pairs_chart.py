#!/usr/bin/env python3
"""The picture in README: the 22 queries of TPC-H, DuckDB's seconds beside pystachio's, as SVG.

usage: pairs_chart.py [--check] RESULT.json PICTURE.svg

RESULT.json is what gpu.py recorded (benches/results). If its step `forms` ran, the queries over the files that DuckDB wrote are
drawn, otherwise its hot runs without a technique switched off. Both sides are of one run. The axis is linear and begins at 0, so that
the length of a bar means its time. `--check` writes nothing and fails if the picture is another one than the result gives.
"""

import json
import math
import pathlib
import sys

import chart_style

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 400, 62, 14, 78, 78
_GAP_SHARE, _QUERY_COUNT = 0.26, 22
# The class of each system in chart_style.
_CLASSES = {"duckdb": "s1", "pystachio": "s0"}


def hot_seconds(document, system):
    """Seconds by query, q01 to q22. Raises ValueError unless all 22 were measured."""
    rows = document["facts"].get("duckdb_files")
    if rows:
        found = {row["query"]: row[system] for row in rows if row.get(system)}
    else:
        found = {entry["query"]: entry["seconds"] for entry in document["measured"]
                 if (entry["mode"], entry["system"], entry["without"]) == ("hot", system, None) and entry.get("seconds")}
    if len(found) != _QUERY_COUNT:
        raise ValueError(f"hot runs of {system} for {len(found)} queries, not {_QUERY_COUNT}")
    return dict(sorted(found.items()))


class LinearScale:
    """Heights of seconds, from 0 to a round number above all values."""

    def __init__(self, values):
        unit = 10.0 ** math.floor(math.log10(max(values)))
        self.step = next(unit * part for part in (0.1, 0.2, 0.5, 1, 2) if max(values) <= 8 * unit * part)
        self.high = self.step * math.ceil(max(values) / self.step)

    def y(self, seconds):
        return _HEIGHT - _BOTTOM - seconds / self.high * (_HEIGHT - _TOP - _BOTTOM)

    def marks(self):
        return [self.step * number for number in range(round(self.high / self.step) + 1)]


def _grid(scale):
    for mark in scale.marks():
        y = scale.y(mark)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield chart_style.text(_LEFT - 8, y + 4, f"{mark:g} s", anchor="end")


def _bars(scale, duckdb, ours):
    step = (_WIDTH - _LEFT - _RIGHT) / len(duckdb)
    bar = step * (1 - _GAP_SHARE) / 2
    for place, query in enumerate(duckdb):
        left = _LEFT + place * step + step * _GAP_SHARE / 2
        for number, (name, seconds) in enumerate((("duckdb", duckdb[query]), ("pystachio", ours[query]))):
            y = scale.y(seconds)
            yield (f'<rect class="{_CLASSES[name]}" x="{left + number * bar:.1f}" y="{y:.1f}" width="{bar:.1f}" '
                   f'height="{_HEIGHT - _BOTTOM - y:.1f}"><title>Q{int(query[1:])}, {name}: {seconds:.3f} s</title></rect>')
        yield chart_style.text(left + bar, _HEIGHT - _BOTTOM + 16, f"Q{int(query[1:])}", anchor="middle")


def _legend(facts, duckdb, ours):
    labels = {"duckdb": f"DuckDB {facts['versions']['duckdb']}, {facts['threads']} threads: {sum(duckdb.values()):.1f} s in all",
              "pystachio": f"pystachio, one {facts['gpu'].split(',')[0]}: {sum(ours.values()):.1f} s in all"}
    left = _LEFT
    for name, label in labels.items():
        yield f'<rect class="{_CLASSES[name]}" x="{left}" y="46" width="12" height="12"/>'
        yield chart_style.text(left + 18, 56, label)
        left += 300


def svg(document):
    """The picture of what gpu.py recorded."""
    facts, duckdb, ours = document["facts"], hot_seconds(document, "duckdb"), hot_seconds(document, "gpu")
    scale = LinearScale([*duckdb.values(), *ours.values()])
    commit = facts["built"].split()[0].removeprefix("commit=")
    files = "files that DuckDB wrote" if facts.get("duckdb_files") else "Parquet files"
    notes = ["Both hot, the best of their runs: column chunks in GPU memory; files in the page cache. "
             f"Same host, {facts['memory_gib']} GiB of memory.",
             f"{facts['date']}, pystachio {facts['versions']['pystachio']}, commit {commit}, PostgreSQL {facts['versions']['postgres']}."]
    title = f"TPC-H SF {document['scale']} over {files}: seconds for each query; lower is better"
    body = [chart_style.text(_LEFT, 28, title, "title"), *_legend(facts, duckdb, ours), *_grid(scale), *_bars(scale, duckdb, ours),
            *(chart_style.text(_LEFT, _HEIGHT - 30 + 17 * place, note, "note") for place, note in enumerate(notes))]
    return chart_style.drawing(_WIDTH, _HEIGHT, title, body)


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
