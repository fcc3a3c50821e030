#!/usr/bin/env python3
"""Sums what the areas of a test run counted, and prints it; the last line is 'N passed, N failed'.

usage: tally.py RESULTS STATUS AREA…

RESULTS holds <area>.json with the counts of each area. Tests that a server can't run are counted as skipped. An area without
counts has not finished, which is a failure, as is a STATUS other than 0; the end of its log, <area>.log, is printed.
<area>.failures names an area's failures, <area>.seconds says how long it took, and <area>.times has a line for each of its tests:
the seconds, a tab, the name. The slowest tests of all areas are printed first.
"""

import json
import pathlib
import sys

FAILURE_LINES_MAX = 8
LINE_CHARACTERS_MAX = 160
SLOWEST = 20


def failures(path):
    """The first lines of what an area said of its failures, so that the end of a long log tells what to look for."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    rest = [f"… {len(lines) - FAILURE_LINES_MAX} lines more"] if len(lines) > FAILURE_LINES_MAX else []
    return [line[:LINE_CHARACTERS_MAX] for line in lines[:FAILURE_LINES_MAX]] + rest


def last_lines(path):
    """The end of the log of an area that has not finished."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return [line[:LINE_CHARACTERS_MAX] for line in lines[-FAILURE_LINES_MAX:]]


def slowest(folder, areas):
    """The slowest tests of all areas, as (seconds, area, name)."""
    tests = []
    for area in areas:
        path = folder / f"{area}.times"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            seconds, name = line.split("\t", 1)
            tests.append((float(seconds), area, name))
    return sorted(tests, reverse=True)[:SLOWEST]


def main():
    folder, status, areas = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    passed = failed = 0
    tests = slowest(folder, areas)
    if tests:
        print("the slowest tests:")
    for seconds, area, name in tests:
        print(f"{seconds:>8.1f} s  {area}: {name[:LINE_CHARACTERS_MAX]}")
    for area in areas:
        path = folder / f"{area}.json"
        counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"passed": 0, "failed": 1}
        seconds = path.with_suffix(".seconds")
        duration = f" {seconds.read_text():>6} s" if seconds.exists() else ""
        skipped = f" {counts['skipped']:>3} skipped" if counts.get("skipped") else ""
        unfinished = "" if path.exists() else "  (did not finish)"
        print(f"{area:<18} {counts['passed']:>6} passed {counts['failed']:>5} failed{duration}{skipped}{unfinished}")
        said = failures(folder / f"{area}.failures")
        for line in said if path.exists() or said else last_lines(folder / f"{area}.log"):
            print(f"    {line}")
        passed, failed = passed + counts["passed"], failed + counts["failed"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or status else 0


if __name__ == "__main__":
    sys.exit(main())
