"""Whether two systems, or two configurations of one, gave the same answer.

Rows are compared in order: the 22 queries order their results by all that tells rows apart, but for ties that no
system has broken differently so far.
"""

import datetime
import decimal
import json
import math

# Averages and quotients are binary floats in some peers, and have six digits in another.
TOLERANCE = 1e-6


def same_answer(left, right):
    """Whether two answers agree: text without trailing blanks, numbers within TOLERANCE."""
    if len(left) != len(right):
        return f"{len(left)} rows against {len(right)}"
    for place, (one, other) in enumerate(zip(left, right)):
        for column, (a, b) in enumerate(zip(one, other)):
            if not _same_value(a, b):
                return f"row {place + 1}, column {column + 1}: {a!r} against {b!r}"
    return None


def _same_value(a, b):
    if a is None or b is None:
        return a is None and b is None
    a, b = _plain(a), _plain(b)
    if a.rstrip() == b.rstrip():
        return True
    try:
        return math.isclose(decimal.Decimal(a), decimal.Decimal(b), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except (decimal.InvalidOperation, ValueError):
        return False


def _plain(value):
    """A value as text that all systems' forms of it have in common: booleans as PostgreSQL prints them, moments of UTC by ISO."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, datetime.date):
        return _moment(value)
    if isinstance(value, str) and len(value) >= len("2000-01-01") and value[4:5] == value[7:8] == "-":
        try:
            return _moment(datetime.datetime.fromisoformat(value.removesuffix("+00") + "+00:00" * value.endswith("+00")))
        except ValueError:
            return value
    return str(value)


def _moment(value):
    """A date, or a moment; without the time of day if that is midnight."""
    if not isinstance(value, datetime.datetime):
        return value.isoformat()
    value = value.replace(tzinfo=None)
    return value.date().isoformat() if value.time() == datetime.time() else value.isoformat()


def keep_answer(folder, name, configuration, answer):
    """Keeps an answer, and compares those of one rank and of several, to the letter, as far as both are kept, whichever came first. Returns
    what differs by configuration, None where nothing does."""
    folder.mkdir(parents=True, exist_ok=True)
    file = lambda of: folder / f"{name}.{of}.json"
    file(configuration).write_text(json.dumps([list(row) for row in answer]), encoding="utf-8")
    others = ("all", "fastest") if configuration == "one" else (configuration,)
    rows = {of: json.loads(file(of).read_text(encoding="utf-8")) for of in ("one", *others) if file(of).exists()}
    return {of: difference_of(rows["one"], rows[of]) for of in others if "one" in rows and of in rows}


def difference_of(wanted, rows):
    """The first row that differs, in words; None if all are the same."""
    if wanted == rows:
        return None
    place = next((place for place, pair in enumerate(zip(wanted, rows)) if pair[0] != pair[1]), min(len(wanted), len(rows)))
    return f"{len(rows)} rows against {len(wanted)}, row {place + 1} is the first that differs"
