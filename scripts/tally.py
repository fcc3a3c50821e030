#!/usr/bin/env python3
"""Sums what the areas of a test run counted, and prints it; the last line is 'N passed, N failed'.

usage: tally.py RESULTS STATUS AREA…

RESULTS holds <area>.json with the counts of each. An area without one has not finished, which counts as a failure, as
does a STATUS other than 0.
"""

import json
import pathlib
import sys


def main():
    folder, status, areas = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    passed = failed = 0
    for area in areas:
        path = folder / f"{area}.json"
        counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"passed": 0, "failed": 1}
        print(f"{area:<18} {counts['passed']:>6} passed {counts['failed']:>5} failed" + ("" if path.exists() else "  (did not finish)"))
        passed, failed = passed + counts["passed"], failed + counts["failed"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or status else 0


if __name__ == "__main__":
    sys.exit(main())
