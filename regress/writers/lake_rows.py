"""Random rows for tables of Delta Lake and of Iceberg, and what is noted of the states that they have."""

import datetime
import decimal
import json
import struct

import pyarrow as pa

UTC = datetime.timezone.utc

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False), pa.field("kind", pa.string()), pa.field("small", pa.int16()), pa.field("n", pa.int32()),
    pa.field("amount", pa.decimal128(12, 2)), pa.field("wide", pa.decimal128(30, 5)), pa.field("f", pa.float64()), pa.field("r", pa.float32()),
    pa.field("flag", pa.bool_()), pa.field("day", pa.date32()), pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("local", pa.timestamp("us")),
    pa.field("label", pa.string()), pa.field("raw", pa.binary()), pa.field("tags", pa.list_(pa.string())),
    pa.field("spot", pa.struct([("x", pa.int32()), ("name", pa.string()), ("path", pa.list_(pa.struct([("y", pa.int64())])))])),
])
SQL = {"id": "bigint", "kind": "text", "small": "smallint", "n": "integer", "amount": "numeric(12,2)", "wide": "numeric(30,5)",
       "f": "double precision", "r": "real", "flag": "boolean", "day": "date", "at": "timestamptz", "local": "timestamp", "label": "text",
       "raw": "bytea", "tags": "text[]", "spot": "jsonb", "extra": "integer"}
LABELS = ["", "a", "Z", "ß ü", "it's", "x" * 40, "x" * 31 + "zz", "\U0001f600", "100 %", "k=v/w"]


def random_row(choose, number):
    def maybe(value):
        return None if choose.random() < 0.15 else value

    micros = choose.randrange(-10**15, 2 * 10**15)
    return {
        "id": number, "kind": maybe(choose.choice(["a", "b c", "d/e", "f=1%"])), "small": maybe(choose.randrange(-300, 300)),
        "n": maybe(choose.randrange(-2**31, 2**31)), "amount": maybe(decimal.Decimal(choose.randrange(-10**11, 10**11)).scaleb(-2)),
        "wide": maybe(decimal.Decimal(choose.randrange(-10**28, 10**28)).scaleb(-5)), "f": maybe(choose.choice([0.0, -1.5, 1e300, choose.random()])),
        "r": maybe(choose.choice([0.0, 0.5, -2.25])), "flag": maybe(choose.random() < 0.5),
        "day": maybe(datetime.date(1990, 1, 1) + datetime.timedelta(days=choose.randrange(20000))),
        "at": maybe(datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=micros)),
        "local": maybe(datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)), "label": maybe(choose.choice(LABELS)),
        "raw": maybe(choose.randbytes(choose.randrange(6))), "tags": maybe([maybe(choose.choice(["p", "q,r", '"'])) for _ in range(choose.randrange(3))]),
        "spot": maybe({"x": maybe(choose.randrange(9)), "name": maybe(choose.choice(LABELS)),
                       "path": maybe([maybe({"y": maybe(choose.randrange(5))}) for _ in range(choose.randrange(3))])}),
    }


class States:
    """The rows of tables, as they are to be read."""

    def __init__(self, folder, form, types):
        self.folder, self.form, self.types, self.listed = folder, form, types, []

    def add(self, table, rows, version=None, columns=None, types=None):
        # What changed nothing made no version.
        if any((known["table"], known["version"]) == (table, version) for known in self.listed):
            return
        columns = columns or list(SCHEMA.names)
        types = {**self.types, **(types or {})}
        name = f"{self.form}_{table}_{len(self.listed)}.csv"
        lines = (",".join(quoted(row.get(column)) for column in columns) + "\n" for row in rows)
        (self.folder / name).write_text("".join(lines), encoding="utf-8")
        self.listed.append({"format": self.form, "table": table, "version": version, "csv": name, "rows": len(rows),
                            "columns": [[column, types[column]] for column in columns]})


def quoted(value):
    """A value as COPY reads it; a missing one is NULL."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = "\\x" + value.hex()
    elif isinstance(value, list):
        items = ("NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in value)
        value = "{" + ",".join(items) + "}"
    elif isinstance(value, dict):
        value = json.dumps(value)
    elif isinstance(value, float):
        value = repr(value)
    return '"' + str(value).replace('"', '""') + '"'


def arrow(rows, schema=SCHEMA):
    return pa.Table.from_pylist(rows, schema=schema)


def roaring(numbers):
    """A bitmap of 64-bit numbers in its portable form."""
    groups = {}
    for number in sorted(numbers):
        groups.setdefault(number >> 16, []).append(number & 0xFFFF)
    containers = []
    for low in groups.values():
        if len(low) <= 4096:
            containers.append(struct.pack(f"<{len(low)}H", *low))
        else:
            bits = bytearray(8192)
            for number in low:
                bits[number >> 3] |= 1 << (number & 7)
            containers.append(bytes(bits))
    head = struct.pack("<II", 12346, len(groups))
    head += b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in groups.items())
    offset = len(head) + 4 * len(groups)
    offsets = b""
    for container in containers:
        offsets += struct.pack("<I", offset)
        offset += len(container)
    return struct.pack("<IQI", 1681511377, 1, 0) + head + offsets + b"".join(containers)
