"""Statements whose plans are kept while their files change: replaced by others, of other types too, added, taken away.

A table is a folder with copies of tables of regress/data. Its heap copy gets the same rows. Every statement is made once in a
session that stays open, and run after each change.

Deliberately absent: files that change while a query runs (faults/files.py).
"""

import pathlib
import shutil
from dataclasses import dataclass


@dataclass
class Change:
    """The files of the folder from now on: tables of regress/data."""

    name: str
    files: list


@dataclass
class Table:
    """`columns`: as declared; heap has the same. `changes`: what the folder holds in turn."""

    name: str
    columns: str
    changes: list
    column: str = "v"


TABLES = [
    Table("digits", "id integer, v numeric", [
        Change("two digits", ["edge_numeric_15_2"]),
        Change("four digits", ["edge_numeric_9_4"]),
        Change("no digits", ["edge_numeric_5_0"]),
        Change("ten digits", ["edge_numeric_38_10"]),
        Change("integers", ["edge_int4"]),
        Change("two digits, narrow", ["form_decimal_int64"]),
        Change("two digits, wide", ["form_decimal_fixed", "edge_numeric_15_2"]),
        Change("unsigned", ["form_uint64"]),
    ]),
    Table("widths", "id integer, v numeric(15,2)", [
        Change("narrow", ["form_decimal_int64"]),
        Change("wide files added", ["form_decimal_int64", "edge_numeric_15_2"]),
        Change("wide alone", ["edge_numeric_15_2"]),
        Change("of other digits", ["form_decimal_int32"]),
    ]),
    Table("whole", "id integer, v bigint", [
        Change("small", ["edge_int2"]),
        Change("large", ["edge_int8"]),
        Change("middle", ["edge_int4"]),
        Change("more of it", ["edge_int4", "edge_int4"]),
    ]),
    Table("times", "id integer, v timestamp", [
        Change("near", ["form_timestamp_ms"]),
        Change("far", ["form_timestamp_ms", "edge_timestamp"]),
        Change("nanoseconds", ["form_timestamp_ns"]),
    ], "v"),
]

_NUMBERS = {
    "rows": "SELECT id, v FROM {t} ORDER BY id, v",
    "products": "SELECT id, v * v, v + v, v * 100 - v FROM {t} WHERE v BETWEEN -1000000 AND 1000000 ORDER BY 1, 2",
    "sums": "SELECT count(*), sum(v), avg(v), min(v), max(v), sum(v * 2 + 1) FROM {t}",
    "groups": "SELECT id % 3, count(v), sum(v), sum(v - 1) FROM {t} GROUP BY 1 ORDER BY 1",
    "join": "SELECT count(*), sum(a.v + b.v) FROM {t} a JOIN {t} b ON a.id = b.id",
    "union": "SELECT v FROM {t} WHERE id < 5 UNION ALL SELECT sum(v) FROM {t} ORDER BY 1",
    "scalar": "SELECT id FROM {t} a WHERE v >= (SELECT avg(b.v) FROM {t} b) ORDER BY id",
    "left over": "SELECT to_char(sum(v), 'FM999999999999999999999999999990.0999999999'), count(*) FROM {t}",
}
_TIMES = {
    "rows": "SELECT id, v FROM {t} ORDER BY id, v",
    "parts": "SELECT id, date_part('second', v), extract(year FROM v), v - timestamp '1970-01-01' FROM {t} "
             "WHERE v < '9999-01-01' AND v > '1000-01-01' ORDER BY id, v",
    "bounds": "SELECT count(*), min(v), max(v) FROM {t}",
}
# The name of the statement whose plan is generic.
GENERIC = "parameter, generic"
# With one parameter, a bound from below.
_PARAMETER = "SELECT count(*), count(v), sum(id), min(v), max(v) FROM {t} WHERE v >= $1"


def queries(table):
    """Name and text of a table's statements without parameters."""
    return _TIMES if table.name == "times" else _NUMBERS


@dataclass
class Kept:
    """A statement that a session keeps: `prepare` makes it, and `call` runs it.

    Where there are `parameters`, it is a statement of the protocol, which drivers make: `prepare` has its text and `call` its name.
    """

    name: str
    prepare: list
    call: str
    parameters: list | None = None

    def make(self, session):
        if self.parameters is None:
            for statement in self.prepare:
                session.run(statement)
        else:
            session.prepare(self.call, *self.prepare)

    def run(self, session):
        return session.run(self.call) if self.parameters is None else session.execute(self.call, self.parameters)


def _given(table, value):
    """What runs the statement of a generic plan."""
    return f"EXECUTE p_{table.name}_generic ({value})"


def without_pushdown(table):
    """What runs the statement of a generic plan with a value that engines don't have."""
    return _given(table, "'NaN'")


def statements(table, schema):
    """The statements of a table in a schema."""
    parameter_type, bound = ("timestamp", "1990-01-01") if table.name == "times" else ("numeric", "-5.5")
    name = f"{schema}.{table.name}"
    for key, text in queries(table).items():
        sql, word = text.format(t=name), key.replace(" ", "_")
        yield Kept(f"{key} prepared", [f"PREPARE p_{table.name}_{word} AS {sql}"], f"EXECUTE p_{table.name}_{word}")
        yield Kept(f"{key} by the protocol", [sql], f"d_{table.name}_{word}", [])
    made, sql = f"p_{table.name}_given", _PARAMETER.format(t=name)
    yield Kept("parameter prepared", [f"PREPARE {made} ({parameter_type}) AS {sql}"], f"EXECUTE {made} ('{bound}')")
    yield Kept("parameter by the protocol", [sql.replace("$1", f"$1::{parameter_type}")], f"d_{table.name}_given", [bound])
    generic = f"p_{table.name}_generic"
    yield Kept(GENERIC, [f"PREPARE {generic} ({parameter_type}) AS {sql}", "SET plan_cache_mode = force_generic_plan"],
               _given(table, f"'{bound}'"))
    sums = "count(*) || ' ' || coalesce(max(v)::text, '') || ' ' || coalesce(min(v)::text, '')"
    function = f"{schema}.f_{table.name}"
    yield Kept("function", [f"CREATE OR REPLACE FUNCTION {function}_static() RETURNS text LANGUAGE plpgsql AS "
                            f"$$DECLARE r text; BEGIN SELECT {sums} INTO r FROM {name}; RETURN r; END$$"], f"SELECT {function}_static()")
    yield Kept("function with parameter", [
        f"CREATE OR REPLACE FUNCTION {function}_given(b {parameter_type}) RETURNS text LANGUAGE plpgsql AS "
        f"$$DECLARE r text; BEGIN SELECT {sums} INTO r FROM {name} WHERE v >= b; RETURN r; END$$"], f"SELECT {function}_given('{bound}')")
    yield Kept("function with a loop", [
        f"CREATE OR REPLACE FUNCTION {function}_loop() RETURNS SETOF text LANGUAGE plpgsql AS "
        f"$$DECLARE r record; BEGIN FOR r IN SELECT id, v FROM {name} ORDER BY id, v LOOP RETURN NEXT r.id || ' ' || coalesce(r.v::text, ''); "
        f"END LOOP; END$$"], f"SELECT * FROM {function}_loop()")
    yield Kept("function of SQL", [f"CREATE OR REPLACE FUNCTION {function}_sql() RETURNS text LANGUAGE sql VOLATILE AS "
                                   f"$$SELECT {sums} FROM {name}$$"], f"SELECT {function}_sql()")


def place(folder, data, table, change):
    """Puts the files of a change into a table's folder, each by renaming, and takes the others away."""
    target = pathlib.Path(folder) / table.name
    target.mkdir(parents=True, exist_ok=True)
    target.chmod(0o755)
    wanted = set()
    for number, name in enumerate(change.files):
        path = target / f"{number}.parquet"
        wanted.add(path)
        new = target / f"{number}.new"
        shutil.copyfile(pathlib.Path(data) / f"{name}.parquet", new)
        new.chmod(0o644)
        new.rename(path)
    for path in target.glob("*.parquet"):
        if path not in wanted:
            path.unlink()


def fill(session, table, change):
    """Puts the rows of a change into the heap table."""
    session.run(f"TRUNCATE changed_heap.{table.name}")
    for name in change.files:
        session.run(f"INSERT INTO changed_heap.{table.name} SELECT id, v FROM heap.{name}")


def create(session, folder, table):
    """Makes the foreign and the heap table."""
    session.run(f"CREATE FOREIGN TABLE changed.{table.name} ({table.columns}) SERVER pystachio OPTIONS (path '{folder}/{table.name}')")
    session.run(f"CREATE TABLE changed_heap.{table.name} ({table.columns})")
