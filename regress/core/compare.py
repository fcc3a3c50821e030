"""Whether two outcomes of a query are the same, as far as PostgreSQL decides them."""

import re

_FIRST_OWN_OID = 16384
_ROLE_SCHEMA = re.compile(r"\b[f-x]_\d+\.")
_PREPARED_NAME = re.compile(r"\bcore_\d+\b")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
VALUE_CHARACTERS_MAX = 200
# The columns of the result don't tell whether the order is right.
ORDER_OPEN = "order: the same rows in another order, which ORDER BY may decide"


class Outcome:
    """What a query gave: a result, or an error; `slow` where it was stopped for its time."""

    def __init__(self, result=None, error=None):
        self.result, self.error = result, error

    @property
    def slow(self):
        return self.error is not None and self.error.sqlstate == "57014" and "timeout" in self.error.message

    def text(self):
        """A short account of it."""
        if self.error:
            return f"{self.error.sqlstate}: {self.error.message}"
        rows = [str(row)[:VALUE_CHARACTERS_MAX] for row in self.result.rows[:4]]
        return f"{len(self.result.rows)} rows: " + "; ".join(rows)


def message_of(error):
    """A message without the names that the roles' schemas, and foreign tables, bring into it."""
    text = _PREPARED_NAME.sub("", _ROLE_SCHEMA.sub("", error.message))
    return text.replace("foreign table", "table")


def difference(query, expected, actual, type_name):
    """None if the outcomes are the same, or what differs. `type_name` gives the name of a type's oid."""
    if expected.error or actual.error:
        if not (expected.error and actual.error):
            return f"expected {expected.text()}\ngot      {actual.text()}"
        one, other = (expected.error.sqlstate, message_of(expected.error)), (actual.error.sqlstate, message_of(actual.error))
        return None if one == other else f"expected {one}\ngot      {other}"
    left, right = expected.result, actual.result
    if left.names != right.names:
        return f"column names: expected {left.names}, got {right.names}"
    types = [[(_type(oid, type_name), modifier) for oid, modifier in side.types] for side in (left, right)]
    if types[0] != types[1]:
        return f"column types: expected {types[0]}, got {types[1]}"
    rows = [[_named(row) for row in side.rows] for side in (left, right)]
    if rows[0] == rows[1]:
        return None
    found = _bag_difference(*rows)
    if found:
        return found
    if query.ordered:
        keys = query.order_keys(left.names)
        projected = [[tuple(row[key] for key in keys) for row in side] for side in rows]
        if projected[0] != projected[1]:
            place = next(place for place, (one, other) in enumerate(zip(*projected)) if one != other)
            return f"order: row {place + 1} has the keys {projected[1][place]}, expected {projected[0][place]}"
        if len(keys) < len(query.order_items):
            return ORDER_OPEN
    return None


def stable_part_differs(expected, variants, actual):
    """For a query whose result depends on the order of rows even in heap tables (`variants` differ from `expected`): whether
    `actual` differs in what they have in common: how many rows there are, and the columns that are the same in all; of
    errors what they say but for the value that each met first."""
    outcomes = [expected, *variants, actual]
    if all(outcome.error for outcome in outcomes) and len({_error_kind(outcome.error) for outcome in outcomes}) == 1:
        return None
    if actual.error or expected.error or any(variant.error for variant in variants):
        return f"expected {expected.text()}\ngot      {actual.text()}"
    counts = {len(variant.result.rows) for variant in [expected, *variants]}
    if len(counts) == 1 and len(actual.result.rows) not in counts:
        return f"rows: expected {counts}, got {len(actual.result.rows)}"
    for column, name in enumerate(expected.result.names):
        wanted = _column(expected, column)
        if all(_column(variant, column) == wanted for variant in variants) and _column(actual, column) != wanted:
            return f"column {name}: expected {wanted[:5]}, got {_column(actual, column)[:5]}"
    return None


def _error_kind(error):
    """An error without the values that it quotes."""
    return error.sqlstate, _QUOTED.sub('""', message_of(error))


def _column(outcome, column):
    return sorted((row[column] is None, row[column] or "") for row in outcome.result.rows)


def _type(oid, type_name):
    return oid if oid < _FIRST_OWN_OID else type_name(oid)


def _named(row):
    return tuple(value and _ROLE_SCHEMA.sub("", value) for value in row)


def _bag_difference(left, right):
    left, right = sorted(left, key=_row_key), sorted(right, key=_row_key)
    if left == right:
        return None
    lines = [f"rows differ: expected {len(left)}, got {len(right)}"]
    missing, extra = _without(left, right), _without(right, left)
    lines += [f"  only expected {str(row)[:VALUE_CHARACTERS_MAX]}" for row in missing[:4]]
    lines += [f"  only got      {str(row)[:VALUE_CHARACTERS_MAX]}" for row in extra[:4]]
    return "\n".join(lines)


def _without(rows, others):
    left = {}
    for row in others:
        left[row] = left.get(row, 0) + 1
    found = []
    for row in rows:
        if left.get(row):
            left[row] -= 1
        else:
            found.append(row)
    return found


def _row_key(row):
    return tuple((value is None, value or "") for value in row)
