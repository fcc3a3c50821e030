"""Counts claims that hold and claims that fail, and prints the failures as they come."""

import json
import pathlib
import sys
import time

LINE_CHARACTERS_MAX = 400


class Claims:
    """The tally of one suite. Every claim is counted once. `times`: seconds and name of what was timed."""

    def __init__(self, suite):
        self.suite, self.passed, self.failed, self.failures, self.times = suite, 0, 0, [], []

    def record(self, name, failure=None):
        """Counts a claim: it failed if `failure` is a text that says how."""
        if failure is None:
            self.passed += 1
            return True
        self.failed += 1
        text = f"{self.suite}: {name}\n{_indent(failure)}"
        self.failures.append(text)
        print(f"FAILED {text}", flush=True)
        return False

    def check(self, name, holds, failure=""):
        """Counts a claim that is a condition."""
        return self.record(name, None if holds else failure or "the condition is false")

    def attempt(self, name, action):
        """Counts and times a claim that holds if `action` returns; what it raises is the failure."""
        begin, failure = time.monotonic(), None
        try:
            action()
        except Exception as error:  # a test driver: every failure is a finding
            failure = f"{type(error).__name__}: {error}"
        self.times.append((time.monotonic() - begin, name))
        return self.record(name, failure)

    def summary(self):
        """Prints the counts on one line and returns the exit status."""
        print(f"{self.suite}: {self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed or not self.passed else 0


def write_counts(path, *tallies):
    """Writes the counts of some `Claims` as JSON to `path` where there is one, and failures and times beside it."""
    if path:
        path = pathlib.Path(path)
        counts = {"passed": sum(claims.passed for claims in tallies), "failed": sum(claims.failed for claims in tallies)}
        path.write_text(json.dumps(counts), encoding="utf-8")
        path.with_suffix(".failures").write_text("".join(f"{text}\n" for claims in tallies for text in claims.failures), encoding="utf-8")
        times = [f"{seconds:.3f}\t{name}\n" for claims in tallies for seconds, name in claims.times]
        path.with_suffix(".times").write_text("".join(times), encoding="utf-8")


def _indent(text):
    lines = [line if len(line) <= LINE_CHARACTERS_MAX else line[:LINE_CHARACTERS_MAX] + " …" for line in text.splitlines()]
    return "\n".join("    " + line for line in lines[:40])


def differences(expected, actual, ordered):
    """Compares two results as text, in full; returns None, or a description of the first differences.

    Rows of an unordered result are compared as a multiset.
    """
    if expected.names != actual.names:
        return f"column names differ: expected {expected.names}, got {actual.names}"
    if expected.types != actual.types:
        return f"column types differ: expected {expected.types}, got {actual.types}"
    left, right = expected.rows, actual.rows
    if not ordered:
        left, right = sorted(left, key=_row_key), sorted(right, key=_row_key)
    if left == right:
        return None
    lines = [f"rows differ: expected {len(left)}, got {len(right)}"]
    for place in range(max(len(left), len(right))):
        one = left[place] if place < len(left) else "(no row)"
        other = right[place] if place < len(right) else "(no row)"
        if one != other:
            lines += [f"row {place + 1}:", f"  expected {one}", f"  got      {other}"]
            if len(lines) > 12:
                break
    return "\n".join(lines)


def _row_key(row):
    return tuple((value is None, value or "") for value in row)


def fail_usage(text):
    """Ends the program with a usage message."""
    print(text, file=sys.stderr)
    sys.exit(2)
