#!/usr/bin/env python3
"""Sums what the areas of a test run counted, and prints it; the last line is 'N passed, N failed'.

usage: tally.py RESULTS STATUS AREA…

RESULTS holds <area>.json with the counts of each. An area without one has not finished, which counts as a failure, as
does a STATUS other than 0. What failed is named once more below an area's counts, from <area>.failures where there is one. <area>.seconds says how long an area took.
"""

import json
import pathlib
import sys

FAILURE_LINES_MAX = 8
LINE_CHARACTERS_MAX = 160


def failures(path):
    """The first lines of what an area said of its failures, so that the end of a long log tells what to look for."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    rest = [f"… {len(lines) - FAILURE_LINES_MAX} lines more"] if len(lines) > FAILURE_LINES_MAX else []
    return [line[:LINE_CHARACTERS_MAX] for line in lines[:FAILURE_LINES_MAX]] + rest


def main():
    folder, status, areas = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    passed = failed = 0
    for area in areas:
        path = folder / f"{area}.json"
        counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"passed": 0, "failed": 1}
        seconds = path.with_suffix(".seconds")
        duration = f" {seconds.read_text():>6} s" if seconds.exists() else ""
        print(f"{area:<18} {counts['passed']:>6} passed {counts['failed']:>5} failed{duration}" + ("" if path.exists() else "  (did not finish)"))
        for line in failures(folder / f"{area}.failures"):
            print(f"    {line}")
        passed, failed = passed + counts["passed"], failed + counts["failed"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or status else 0


if __name__ == "__main__":
    sys.exit(main())
