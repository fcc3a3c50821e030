#!/usr/bin/env python3
"""Writes what a run of cargo-nextest counted, for tally.py.

usage: nextest_counts.py JUNIT RESULTS AREA    writes <area>.json, <area>.times and <area>.failures in RESULTS
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as tree


def main():
    junit, folder, area = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    passed, failures, times = 0, [], []
    for suite in tree.parse(junit).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{suite.get('name')} {case.get('name')}"
            times.append((float(case.get("time") or 0), name))
            failure = next((child for child in case if child.tag in ("failure", "error")), None)
            if failure is None:
                passed += 1
            else:
                failures.append(f"{name}: {failure.get('message') or failure.get('type') or 'failed'}")
    (folder / f"{area}.json").write_text(json.dumps({"passed": passed, "failed": len(failures)}), encoding="utf-8")
    (folder / f"{area}.times").write_text("".join(f"{seconds:.3f}\t{name}\n" for seconds, name in times), encoding="utf-8")
    (folder / f"{area}.failures").write_text("".join(f"{text}\n" for text in failures), encoding="utf-8")


if __name__ == "__main__":
    main()
