"""The case files of src/cases, by which both engines are tested, against the server itself.

Each section's SQL is prepared with its arguments' types and run for every line; what the server prints must be what the line
says. Variances, whose arguments are a count and sums, are computed over rows that have these (`variance_rows.tsv`).

Deliberately absent: pystachio. Only PostgreSQL runs here.
"""

import pathlib
import re

from harness.libpq import QueryError

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "src" / "cases" / "postgresql"
ROWS = "variance_rows.tsv"
AGGREGATES = ("variance", "variance_scale")
PREPARED = "section"
LEAST_INTEGER = "-2147483648"


class Section:
    """A function on one set of types: its SQL, and lines of arguments and what is expected of them."""

    def __init__(self, function, arguments, result, sql):
        self.function, self.arguments, self.sql, self.lines = function, arguments.split(","), sql, []
        self.name = f"{function}({arguments}) {result}"


def sections():
    """Every section of every file."""
    for path in sorted(FOLDER.glob("*.tsv")):
        if path.name == ROWS:
            continue
        section = None
        for line in path.read_text(encoding="utf-8").splitlines():
            fields = line.split("\t")
            if fields[0] == "#":
                if section:
                    yield section
                section = Section(*fields[1:])
            else:
                section.lines.append(fields)
        if section:
            yield section


def failure(session, section, rows):
    """The lines of a section for which the server prints something else, as a text; None where there are none."""
    run = _aggregated if section.function.split(":")[0] in AGGREGATES else _called
    wrong = []
    try:
        for *arguments, expected, actual in run(session, section, rows):
            if expected != actual:
                wrong.append(f"{arguments}: the file has {expected}, PostgreSQL {actual}")
    except QueryError as error:
        wrong.append(f"not run: {error}")
    return f"{section.sql}\n" + "\n".join(wrong) if wrong else None


def rows_of_variances():
    """Rows, as an array of numerics, by their count, their sum, the sum of their squares, and digits after the point."""
    lines = (FOLDER / ROWS).read_text(encoding="utf-8").splitlines()
    return {tuple(fields[:-1]): "{%s}" % fields[-1] for fields in (line.split("\t") for line in lines)}


def _called(session, section, _):
    """Each line, and what the server prints for its call."""
    types = [argument.replace(";", ",") for argument in section.arguments]

    def at_scale(place):
        """A parameter has no scale of its own."""
        data_type = types[int(place[1]) - 1]
        return f"{place[0]}::{data_type}" if data_type.startswith("numeric") else place[0]

    session.run(f"PREPARE {PREPARED} ({', '.join(types)}) AS SELECT {re.sub('[$]([0-9])', at_scale, section.sql)}")
    # Some servers' `right` takes it for its own negation; the planner asks them, and leaves the call to them.
    negates_wrongly = section.function == "right" and session.run(f"SELECT right('a', {LEAST_INTEGER})").scalar() == "a"
    try:
        for line in section.lines:
            if negates_wrongly and LEAST_INTEGER in line:
                continue
            yield *line, _printed(session, [_given(text, data_type) for text, data_type in zip(line, types)])
    finally:
        session.run(f"DEALLOCATE {PREPARED}")


def _aggregated(session, section, rows):
    """Each line, and what the server prints for the aggregate of rows that have its count and sums."""
    call = f"{section.sql}(v)"
    if section.function.startswith("variance_scale"):
        call = f"scale({call})"
    session.run(f"PREPARE {PREPARED} (numeric[]) AS SELECT {call}, count(*), sum(v), sum(v * v), coalesce(max(scale(v)), 0) "
                "FROM unnest($1) v")
    try:
        for *line, expected in section.lines:
            values = rows.get(tuple(line))
            result, *found = session.execute(PREPARED, [values or "{}"]).rows[0]
            # What rows with other sums give says nothing of the line.
            is_of_line = values is not None and [_written(text) for text in found] == line
            yield *line, expected, _written(result) if is_of_line else f"was not asked: {ROWS} has no rows of these"
    finally:
        session.run(f"DEALLOCATE {PREPARED}")


def _printed(session, arguments):
    try:
        return _written(session.execute(PREPARED, arguments).scalar())
    except QueryError as error:
        return f"ERROR: {error.message}"


def _given(text, data_type):
    """An argument of a line as PostgreSQL reads it."""
    if text == "\\N":
        return None
    if data_type == "interval":
        return "{} months {} days {} microseconds".format(*text.split(" "))
    marked = text.replace("\\\\", "\0").replace("\\t", "\t").replace("\\n", "\n")
    return marked.replace("\0", "\\")


def _written(value):
    """A value that PostgreSQL printed, as the files write it."""
    if value is None:
        return "\\N"
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
