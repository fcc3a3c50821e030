#!/usr/bin/env python3
"""Prints the rows of a Parquet file as a library of this Python reads them, as JSON: an array a row, in the order of the first column.

usage: read.py LIBRARY FILE TYPES        TYPES: the kinds of the columns, as JSON, as regress/differential/written.py has them

Each value is a text that says exactly what was read: the bits of a float, the microseconds of a time, the digits of a decimal.
"""

import datetime
import json
import struct
import sys
import uuid

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)


def moment(value):
    """Microseconds since 1970 in UTC."""
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return str((value - EPOCH) // MICROSECOND)


def clock(value):
    return str(((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond)


def bits(form):
    return lambda value: "nan" if value != value else struct.pack(form, value).hex()


def identity(value):
    return str(uuid.UUID(bytes=bytes(value)) if isinstance(value, (bytes, bytearray, memoryview)) else uuid.UUID(str(value)))


def text(value):
    """Polars has no JSON, and gives its bytes."""
    return bytes(value).decode() if isinstance(value, bytes) else str(value)


KINDS = {
    "boolean": lambda value: {True: "t", False: "f"}[value],
    "integer": lambda value: str(int(value)),
    "real": bits(">f"),
    "double": bits(">d"),
    "decimal": lambda value: format(value, "f"),
    "date": lambda value: str((value - EPOCH.date()).days),
    "time": clock,
    "timestamp": moment,
    "text": text,
    "bytes": lambda value: bytes(value).hex(),
    "uuid": identity,
    "pair": lambda value: {"n": value["n"], "t": value["t"]},
}


def shown(kind, value):
    """A value as text; None for NULL."""
    if value is None:
        return None
    if kind.endswith("[]"):
        return [shown(kind[:-2], item) for item in value]
    return KINDS[kind](value)


def rows(library, file):
    """The rows that a library reads."""
    if library == "pyarrow":
        import pyarrow.parquet
        table = pyarrow.parquet.read_table(file)
    elif library == "duckdb":
        import duckdb
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        table = connection.sql(f"SELECT * FROM '{file}'").to_arrow_table()
    else:
        import polars
        return polars.read_parquet(file).rows()
    return list(zip(*(column.to_pylist() for column in table.columns)))


def main():
    library, file, kinds = sys.argv[1:]
    kinds = json.loads(kinds)
    found = [[shown(kind, value) for kind, value in zip(kinds, row, strict=True)] for row in rows(library, file)]
    json.dump(sorted(found, key=lambda row: int(row[0])), sys.stdout)


if __name__ == "__main__":
    main()
