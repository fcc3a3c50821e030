#!/usr/bin/env python3
"""Writes the files of the everyday workload; needs pyarrow.

usage: make_data.py FOLDER ROWS FILES

FOLDER/tables/events.parquet    ROWS events of two years, ascending in time
FOLDER/tables/many/*.parquet    FILES small files of ROWS / 500 rows each (20 at least), ascending in time
FOLDER/tables/wide.parquet      ROWS / 50 rows of 300 columns (200 at least)
FOLDER/months/month_YYYYMM.parquet   one file for each month of two years, ROWS / 5 rows in all

Values are hashes of row numbers, so that the files are the same on every host.
"""

import datetime
import decimal
import pathlib
import shutil
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

START = datetime.datetime(2024, 1, 1)
END = datetime.datetime(2026, 1, 1)
SPAN_US = int((END - START).total_seconds()) * 1_000_000
START_US = int((START - datetime.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
DAY_US = 86_400_000_000
MANY_DAYS = 60
WIDE_COLUMNS = 300
COUNTRIES = ["DE", "FR", "US", "IN", "BR", "JP", "GB", "ES", "IT", None]
KINDS = ["view", "view", "view", "view", "click", "click", "search", "purchase"]
SECTIONS = ["home", "shop", "cart", "help", "blog"]
METRICS = ["cpu", "memory", "disk", "network"]
REGIONS = ["north", "south", "east", "west"]
STATUSES = ["new", "paid", "sent", "closed", "void"]
ROW_GROUP_ROWS = 122_880


def hashed(numbers, salt):
    """A hash below 2^31 of each number."""
    mixed = pc.add(pc.multiply(numbers, pa.scalar(6364136223846793005)), pa.scalar(salt * 1442695040888963407 % 2**62))
    mixed = pc.bit_wise_xor(mixed, pc.shift_right(mixed, pa.scalar(29)))
    mixed = pc.multiply(mixed, pa.scalar(2685821657736338717))
    return pc.bit_wise_and(pc.shift_right(mixed, pa.scalar(31)), pa.scalar(2**31 - 1))


def below(numbers, salt, limit):
    """A number from 0 to `limit` - 1 for each number."""
    value = hashed(numbers, salt)
    return pc.subtract(value, pc.multiply(pc.divide(value, pa.scalar(limit)), pa.scalar(limit)))


def chosen(numbers, salt, values):
    return pc.take(pa.array(values, pa.string()), below(numbers, salt, len(values)))


def sometimes_null(values, numbers, salt, one_in):
    return pc.if_else(pc.equal(below(numbers, salt, one_in), 0), pa.scalar(None, values.type), values)


def cents(numbers, salt, limit, precision=10, scale=2):
    """Decimals below `limit` units of the last digit."""
    unscaled = below(numbers, salt, limit).cast(pa.decimal128(19, 0))
    shift = pa.scalar(decimal.Decimal(1).scaleb(-scale), pa.decimal128(scale + 1, scale))
    return pc.multiply(unscaled, shift).cast(pa.decimal128(precision, scale))


def numbers_of(first, count):
    return pa.array(range(first, first + count), pa.int64())


def moments(numbers, rows, start_us, span_us):
    """Ascending times: the n-th of `rows` in a span."""
    return pc.add(pc.multiply(numbers, pa.scalar(span_us // rows)), pa.scalar(start_us)).cast(pa.timestamp("us"))


def write(table, path, row_group_rows=ROW_GROUP_ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_rows)


def events(rows):
    n = numbers_of(0, rows)
    ts = moments(n, rows, START_US, SPAN_US)
    page = pc.binary_join_element_wise("", chosen(n, 3, SECTIONS), below(n, 4, 200).cast(pa.string()), "/")
    session = pc.utf8_lpad(pc.divide(n, pa.scalar(7)).cast(pa.string()), width=8, padding="0")
    return pa.table({
        "id": pc.add(n, pa.scalar(1)),
        "ts": ts,
        "day": ts.cast(pa.date32(), safe=False),
        "user_id": pc.add(below(n, 1, max(100, rows // 50)), pa.scalar(1)).cast(pa.int32()),
        "kind": chosen(n, 2, KINDS),
        "page": page,
        "country": chosen(n, 5, COUNTRIES),
        "amount": sometimes_null(cents(n, 6, 100_000), n, 7, 6),
        "duration_ms": below(n, 8, 30_000).cast(pa.int32()),
        "session": pc.binary_join_element_wise("s", session, ""),
        "ok": pc.greater(below(n, 9, 50), pa.scalar(0)),
        "ref": sometimes_null(pc.add(below(n, 10, max(100, rows // 10)), pa.scalar(1)), n, 11, 3),
    })


def many(first, count, rows):
    n = numbers_of(first, count)
    return pa.table({
        "id": pc.add(n, pa.scalar(1)),
        "ts": moments(n, rows, START_US + 366 * DAY_US, MANY_DAYS * DAY_US),
        "device": below(n, 21, 200).cast(pa.int32()),
        "metric": chosen(n, 22, METRICS),
        "value": cents(n, 23, 10_000_000, 12, 3),
    })


def wide(rows):
    n = numbers_of(0, rows)
    columns = {"id": pc.add(n, pa.scalar(1))}
    for place in range(1, WIDE_COLUMNS):
        name, salt = f"c{place:03}", 100 + place
        kind = place % 5
        if kind == 1:
            columns[name] = below(n, salt, 1000).cast(pa.int32())
        elif kind == 2:
            columns[name] = sometimes_null(below(n, salt, 2**31), n, salt + 1, 4)
        elif kind == 3:
            columns[name] = chosen(n, salt, [f"v{value}" for value in range(20)])
        elif kind == 4:
            columns[name] = cents(n, salt, 1_000_000, 9, 2)
        else:
            columns[name] = pc.add(below(n, salt, 7000), pa.scalar(12_000)).cast(pa.int32()).cast(pa.date32())
    return pa.table(columns)


def months(rows):
    n = numbers_of(0, rows)
    ts = moments(n, rows, START_US, SPAN_US)
    return pa.table({
        "id": pc.add(n, pa.scalar(1)),
        "ts": ts,
        "region": chosen(n, 31, REGIONS),
        "status": chosen(n, 32, STATUSES),
        "amount": cents(n, 33, 500_000),
    })


def month_starts():
    return [datetime.datetime(year, month, 1) for year in (2024, 2025) for month in range(1, 13)]


def main():
    folder, rows, files = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)
    write(events(rows), folder / "tables/events.parquet")
    write(wide(max(200, rows // 50)), folder / "tables/wide.parquet")
    each = max(20, rows // 500)
    for number in range(files):
        write(many(number * each, each, each * files), folder / f"tables/many/part-{number:05}.parquet")
    table = months(max(2400, rows // 5))
    starts = [*month_starts(), END]
    for start, end in zip(starts, starts[1:]):
        inside = pc.and_(pc.greater_equal(table["ts"], pa.scalar(start, pa.timestamp("us"))), pc.less(table["ts"], pa.scalar(end, pa.timestamp("us"))))
        write(table.filter(inside), folder / f"months/month_{start:%Y%m}.parquet")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
