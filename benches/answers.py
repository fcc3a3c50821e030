"""Whether two systems gave the same answer.

Rows are compared in order: the 22 queries order their results by all that tells rows apart, but for ties that no
system has broken differently so far.
"""

import decimal
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
    if str(a).rstrip() == str(b).rstrip():
        return True
    try:
        return math.isclose(decimal.Decimal(str(a)), decimal.Decimal(str(b)), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except (decimal.InvalidOperation, ValueError):
        return str(a).split(" ")[0] == str(b).split(" ")[0] and str(a).endswith("00:00:00")
