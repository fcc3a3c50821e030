#!/usr/bin/env python3
"""Writes the same rows as Parquet files by whatever libraries this Python has, and the rows themselves as CSV.

usage: write.py FOLDER SEED PREFIX

FOLDER gets PREFIX_FORM.parquet for each form of each library, rows.csv and rows.json: the columns of the rows, with
PostgreSQL's type for each, and PREFIX.json: the files, which columns each has, and its writer. The CSV is
written from the values, not by a library, and is thereby an independent witness.

The rows come in bands of BAND_ROWS, as long as a row group: of each column one band has its least values, one its
greatest, one NULL alone, one any of them. So row groups and pages can be told apart by their statistics, and a
statistic that is wrong shows.
"""

import datetime
import decimal
import importlib.util
import json
import pathlib
import random
import struct
import sys
import uuid

BAND_ROWS = 120
BANDS = 5
EPOCH = datetime.datetime(1970, 1, 1)
Decimal = decimal.Decimal
decimal.getcontext().prec = 60


def moment(micros):
    """A timestamp as PostgreSQL reads it."""
    return str(EPOCH + datetime.timedelta(microseconds=micros))


def day(days):
    return str(EPOCH.date() + datetime.timedelta(days))


def clock(micros):
    return str((datetime.datetime.min + datetime.timedelta(microseconds=micros)).time())


def number(value):
    if value != value:
        return "NaN"
    return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value, repr(value))


def single(value):
    """The float of 32 bits that is nearest."""
    return struct.unpack("f", struct.pack("f", value))[0]


def scaled(texts):
    return [Decimal(text) for text in texts.split()]


TEXTS = ["", " ", "a", "A", "a ", "ab", "abc", "b", "z", "Z", "0", "10", "9", "\u00e4", "\u00df", "e\u0301", "\u65e5\u672c\u8a9e", "\U0001f600",
         "a\U0001f600", "%", "x\ny", "tab\tend", "\u007f", "\u0080", "\uffff", "\U0010ffff", "it's", '"q"', "back\\slash"]
LONG_TEXTS = ["x" * 70, "x" * 300, "x" * 300 + "a", "\u00e9" * 130, "\U0010ffff" * 100, "z" * 5000, "", "short"]
BYTES = [b"", b"\0", b"\0\0", b"a", b"a\0", b"abc", b"\x7f", b"\x80", b"\xff", b"\xff\0", b"\xff" * 80, bytes(range(256))]

# Name, PostgreSQL's type, edge values, a value from a random source, how PostgreSQL reads it.
COLUMNS = [
    ("flag", "boolean", [False, True], lambda choose: choose.random() < 0.5, str),
    ("i16", "smallint", [-32768, -1, 0, 1, 32767], lambda choose: choose.randrange(-2**15, 2**15), str),
    ("i32", "integer", [-2**31, -1, 0, 1, 2**31 - 1], lambda choose: choose.randrange(-2**31, 2**31), str),
    ("i64", "bigint", [-2**63, -2**31 - 1, -1, 0, 1, 2**53 + 1, 2**63 - 1], lambda choose: choose.randrange(-2**63, 2**63), str),
    ("u8", "smallint", [0, 1, 127, 128, 255], lambda choose: choose.randrange(2**8), str),
    ("u16", "integer", [0, 1, 32767, 32768, 65535], lambda choose: choose.randrange(2**16), str),
    ("u32", "bigint", [0, 1, 2**31 - 1, 2**31, 2**32 - 1], lambda choose: choose.randrange(2**32), str),
    ("u64", "numeric(20,0)", [0, 1, 2**63 - 1, 2**63, 2**64 - 1], lambda choose: choose.randrange(2**64), str),
    ("f32", "real", [single(value) for value in (float("-inf"), -3.4e38, -1.5, -0.0, 0.0, 1e-45, 0.1, 3.4e38, float("inf"), float("nan"))],
     lambda choose: single(choose.uniform(-1e6, 1e6)), number),
    ("f64", "double precision", [float("-inf"), -1.7e308, -1.5, -0.0, 0.0, 5e-324, 0.1, 1.7e308, float("inf"), float("nan")],
     lambda choose: choose.uniform(-1e9, 1e9), number),
    ("d9", "numeric(9,2)", scaled("-9999999.99 -0.01 0.00 0.01 1.00 9999999.99"),
     lambda choose: Decimal(choose.randrange(-10**9 + 1, 10**9)).scaleb(-2), str),
    ("d15", "numeric(15,2)", scaled("-9999999999999.99 -0.01 0.00 0.01 2.50 9999999999999.99"),
     lambda choose: Decimal(choose.randrange(-10**15 + 1, 10**15)).scaleb(-2), str),
    ("d38", "numeric(38,10)", scaled("-9999999999999999999999999999.9999999999 -0.0000000001 0.0000000000 0.3333333333 "
                                     "9999999999999999999999999999.9999999999"),
     lambda choose: Decimal(choose.randrange(-10**38 + 1, 10**38)).scaleb(-10), str),
    ("day", "date", [-719162, -141428, -1, 0, 1, 11016, 2932896], lambda choose: choose.randrange(-20000, 40000), day),
    ("ts", "timestamp", [-9_000_000_000_000_000, -1, 0, 1, 951_827_696_789_012, 9_000_000_000_000_000],
     lambda choose: choose.randrange(-10**15, 4 * 10**15), moment),
    ("tz", "timestamptz", [-9_000_000_000_000_000, -500_000, 0, 951_827_696_789_000, 9_000_000_000_000_000],
     lambda choose: choose.randrange(-10**15, 4 * 10**15), lambda micros: moment(micros) + "+00"),
    ("clock", "time", [0, 1, 43_200_000_000, 86_399_999_999], lambda choose: choose.randrange(86_400_000_000), clock),
    ("t", "text", TEXTS, lambda choose: "w" + str(choose.randrange(1000)), str),
    ("long", "text", LONG_TEXTS, lambda choose: choose.choice(LONG_TEXTS) + str(choose.randrange(100)), str),
    ("word", "text", TEXTS[:12], lambda choose: choose.choice(TEXTS[:12]), str),
    ("raw", "bytea", BYTES, lambda choose: choose.choice(BYTES), lambda value: "\\x" + value.hex()),
    ("id128", "uuid", [uuid.UUID(int=value) for value in (0, 1, 2**64, 2**127, 2**128 - 1)],
     lambda choose: uuid.UUID(int=choose.getrandbits(128)), str),
]
NAMES = [name for name, *_ in COLUMNS]


def order(value):
    """Sorts values of one column, NaN last."""
    return (value != value, value)


def bands(edges, make, choose):
    """The values of a column, band by band."""
    values = edges + [make(choose) for _ in range(60)]
    values.sort(key=order)
    third = len(values) // 3
    pools = [values[:third], values[-third:], values, [None], edges]
    choose.shuffle(pools)
    nulls = choose.choice([0, 0.1, 0.3])
    return [None if choose.random() < nulls else choose.choice(pool) for pool in pools for _ in range(BAND_ROWS)]


def make_rows(seed):
    choose = random.Random(seed)
    return {name: bands(edges, make, choose) for name, _, edges, make, _ in COLUMNS}


def write_csv(folder, rows):
    """The rows as COPY reads them: NULL is what has no quotes."""
    def cell(text):
        return "" if text is None else '"' + text.replace('"', '""') + '"'

    texts = [[None if value is None else show(value) for value in rows[name]] for name, *_, show in COLUMNS]
    with open(folder / "rows.csv", "w", newline="", encoding="utf-8") as file:
        for place, row in enumerate(zip(*texts), 1):
            file.write(f"{place}," + ",".join(map(cell, row)) + "\n")
    columns = [["id", "integer"]] + [[name, sql] for name, sql, *_ in COLUMNS]
    (folder / "rows.json").write_text(json.dumps({"columns": columns, "rows": BAND_ROWS * BANDS}), encoding="utf-8")


class Files:
    """Writes forms, and notes which columns each has. A form that its library can't write is an error: there is none."""

    def __init__(self, folder, prefix):
        self.folder, self.prefix, self.files = folder, prefix, []

    def write(self, form, columns, action):
        name = f"{self.prefix}_{form}"
        path = self.folder / f"{name}.parquet"
        action(str(path))
        path.chmod(0o644)
        self.files.append({"name": name, "columns": list(columns)})

    def note(self):
        (self.folder / f"{self.prefix}.json").write_text(json.dumps(self.files), encoding="utf-8")


def arrow_table(pa, rows, names, changed=()):
    """The rows as an Arrow table."""
    types = {
        "id": pa.int32(), "flag": pa.bool_(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(), "u8": pa.uint8(), "u16": pa.uint16(),
        "u32": pa.uint32(), "u64": pa.uint64(), "f32": pa.float32(), "f64": pa.float64(), "d9": pa.decimal128(9, 2),
        "d15": pa.decimal128(15, 2), "d38": pa.decimal128(38, 10), "day": pa.date32(), "ts": pa.timestamp("us"),
        "tz": pa.timestamp("us", "UTC"), "clock": pa.time64("us"), "t": pa.string(), "long": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()), "raw": pa.binary(), "id128": pa.binary(16), **dict(changed),
    }

    def array(name):
        values = rows[name]
        if name == "day":
            return pa.array(values, pa.int32()).cast(types[name])
        if name in ("ts", "tz", "clock"):
            array = pa.array(values, pa.int64())
            return array.cast(pa.timestamp("us")).cast(types[name]) if name == "ts" else array.cast(types[name])
        if name == "id128":
            return pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
        if name == "word" and pa.types.is_dictionary(types[name]):
            # With an entry that no row has, and that is the greatest.
            entries = sorted({value for value in values if value is not None}) + ["zz unused"]
            codes = pa.array([None if value is None else entries.index(value) for value in values], pa.int32())
            return pa.DictionaryArray.from_arrays(codes, pa.array(entries))
        return pa.array(values, types[name])

    arrays = [array(name) for name in names]
    fields = [pa.field(name, array.type, nullable=name != "id") for name, array in zip(names, arrays)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def group_columns(pa, rows):
    """Columns of several leaves, or of one below groups, as Arrow arrays by name: no PostgreSQL type holds them.

    Their leaves have the names and some of the values of other columns, and are NULL at every level.
    """
    def null_every(count, values):
        return [None if place % count == 0 else value for place, value in enumerate(values)]

    inner = [{"t": text} for text in rows["t"]]
    pair = [{"i32": number, "inner": value} for number, value in zip(rows["i32"], null_every(5, inner))]
    pair_type = pa.struct([("i32", pa.int32()), ("inner", pa.struct([("t", pa.string())]))])
    several = [[value] * (place % 4) for place, value in enumerate(pair)]
    return {
        "group_1": pa.array(null_every(7, pair), pair_type),
        "group_2": pa.array(null_every(3, several), pa.list_(pair_type)),
        "group_3": pa.array(null_every(4, [[(str(key), number) for key in range(place % 3)] for place, number in enumerate(rows["i64"])]),
                            pa.map_(pa.string(), pa.int64())),
        "group_4": pa.array([{"id": number} for number in rows["i16"]], pa.struct([("id", pa.int16())])),
    }


def with_groups(pa, table, rows, unwritten=()):
    """The table with columns of groups before, between and behind its own."""
    groups = {name: array for name, array in group_columns(pa, rows).items() if name not in unwritten}
    for number, (name, array) in enumerate(groups.items()):
        place = number * table.num_columns // max(1, len(groups) - 1)
        table = table.add_column(min(place, table.num_columns), name, array)
    return table


def write_pyarrow(files, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    is_new = int(pa.__version__.split(".")[0]) >= 20
    names = ["id", *NAMES]
    table = arrow_table(pa, rows, names)
    plain_words = arrow_table(pa, rows, names, {"word": pa.string()}.items())
    deltas = {name: "DELTA_BINARY_PACKED" for name in ("id", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "day", "ts", "tz", "clock")}
    deltas |= {"t": "DELTA_BYTE_ARRAY", "long": "DELTA_LENGTH_BYTE_ARRAY", "word": "DELTA_BYTE_ARRAY", "f32": "BYTE_STREAM_SPLIT",
               "f64": "BYTE_STREAM_SPLIT"}
    forms = {
        "default": (table, {}),
        "v2": (plain_words, {"data_page_version": "2.0", "compression": "zstd", "use_dictionary": False, "version": "2.6"}),
        "version1": (plain_words, {"version": "1.0", "compression": "gzip"}),
        "int96": (table, {"use_deprecated_int96_timestamps": True, "compression": "none"}),
        "no_statistics": (table, {"write_statistics": False, "compression": "lz4"}),
        "small_pages": (plain_words, {"data_page_size": 256, "write_batch_size": 16, "data_page_version": "2.0"}),
        "groups": (with_groups(pa, table, rows), {"compression": "snappy"}),
    }
    if is_new:
        forms["small_pages"][1]["write_page_index"] = True
        forms["groups"][1]["write_page_index"] = True
        forms["deltas"] = (plain_words, {"use_dictionary": False, "column_encoding": deltas})
        forms["integer_decimals"] = (table, {"store_decimal_as_integer": True, "write_page_index": True, "compression": "brotli"})
    for form, (content, options) in forms.items():
        # The first version has no unsigned 32-bit type: it makes a signed one of 64 bits, which is a bigint all the same.
        files.write(form, names, lambda path: pq.write_table(content, path, row_group_size=BAND_ROWS, **options))


def write_duckdb(files, rows):
    import duckdb
    import pyarrow as pa

    names = ["id", *NAMES]
    content = arrow_table(pa, rows, names, {"word": pa.string()}.items())
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET preserve_insertion_order = true; SET TimeZone = 'UTC'")
    connection.register("content", content)
    connection.register("content_groups", with_groups(pa, content, rows))
    columns = ", ".join(names)
    for form, (selected, source, options) in {
        "default": (columns, "content", ""),
        "v2": (columns, "content", ", PARQUET_VERSION 'V2', COMPRESSION zstd"),
        "uncompressed": (columns, "content", ", COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1"),
        "groups": ("*", "content_groups", ""),
    }.items():
        files.write(form, names, lambda path: connection.execute(
            f"COPY (SELECT {selected} FROM {source} ORDER BY id) TO '{path}' (FORMAT parquet{options})"))


def write_polars(files, rows):
    import polars as pl
    import pyarrow as pa

    # Older releases write decimals as floats.
    unwritten = {"id128"} | ({"d9", "d15", "d38"} if pl.__version__.startswith("0.") else set())
    names = [name for name in ["id", *NAMES] if name not in unwritten]
    table = arrow_table(pa, rows, names, {"word": pa.string()}.items())
    content = pl.from_arrow(table)
    for form, options in {
        "default": {"statistics": True},
        "snappy": {"compression": "snappy", "statistics": True, "data_page_size": 400},
        "uncompressed": {"compression": "uncompressed", "statistics": True},
    }.items():
        files.write(form, names, lambda path: content.write_parquet(path, row_group_size=BAND_ROWS, **options))
    # It makes lists of structs of maps.
    grouped = pl.from_arrow(with_groups(pa, table, rows))
    files.write("groups", names, lambda path: grouped.write_parquet(path, row_group_size=BAND_ROWS))


def write_fastparquet(files, rows):
    import fastparquet
    import pandas as pd

    kinds = {"flag": "boolean", "i16": "Int16", "i32": "Int32", "i64": "Int64", "u8": "UInt8", "u16": "UInt16", "u32": "UInt32",
             "u64": "UInt64"}
    content = {"id": pd.array(range(1, BAND_ROWS * BANDS + 1), dtype="int32")}
    for name, kind in kinds.items():
        content[name] = pd.array([pd.NA if value is None else value for value in rows[name]], dtype=kind)
    for name in ("t", "long", "raw"):
        content[name] = pd.Series(rows[name], dtype=object)
    # In the order of the categories, which is not that of the text.
    words = sorted({value for value in rows["word"] if value is not None}, reverse=True)
    content["word"] = pd.Categorical(rows["word"], categories=words, ordered=True)
    content["ts"] = pd.to_datetime(pd.Series(pd.array(rows["ts"], dtype="Int64")), unit="us")
    frame = pd.DataFrame(content)
    encodings = {"t": "utf8", "long": "utf8", "raw": "bytes", **{name: "infer" for name in frame.columns if name not in ("t", "long", "raw")}}
    for form, options in {
        "default": {"stats": True},
        "snappy": {"compression": "SNAPPY", "stats": True},
    }.items():
        files.write(form, frame.columns, lambda path: fastparquet.write(
            path, frame, row_group_offsets=BAND_ROWS, write_index=False, object_encoding=encodings, **options))


def write_datafusion(files, rows):
    """By parquet-rs."""
    import datafusion
    import pyarrow as pa

    names = ["id", *NAMES]
    content = arrow_table(pa, rows, names)
    grouped = with_groups(pa, content, rows)
    for form, settings in {
        "default": {},
        "groups": {"statistics_enabled": "page"},
        "v2": {"writer_version": "2.0", "compression": "zstd(3)", "dictionary_enabled": "false", "data_page_row_count_limit": "30",
               "write_batch_size": "10"},
        "lz4": {"compression": "lz4_raw", "statistics_enabled": "chunk", "statistics_truncate_length": "4"},
    }.items():
        config = datafusion.SessionConfig().set("datafusion.execution.target_partitions", "1")
        for key, value in {"max_row_group_size": str(BAND_ROWS), **settings}.items():
            config = config.set(f"datafusion.execution.parquet.{key}", value)
        context = datafusion.SessionContext(config)
        table = grouped if form == "groups" else content
        context.register_record_batches("content", [table.combine_chunks().to_batches()])
        files.write(form, names, lambda path: context.sql(
            f"COPY (SELECT * FROM content ORDER BY id) TO '{path}' STORED AS PARQUET").collect())


WRITERS = {"pyarrow": write_pyarrow, "duckdb": write_duckdb, "polars": write_polars, "fastparquet": write_fastparquet,
           "datafusion": write_datafusion}


def main():
    folder, seed, prefix = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rows = make_rows(seed)
    write_csv(folder, rows)
    rows["id"] = list(range(1, BAND_ROWS * BANDS + 1))
    for library, write in WRITERS.items():
        if importlib.util.find_spec(library):
            files = Files(folder, f"{prefix}_{library}")
            write(files, rows)
            files.note()


if __name__ == "__main__":
    main()
