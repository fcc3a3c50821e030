#!/usr/bin/env python3
"""Writes the Parquet files of this folder, the same values as CSV for COPY, and MANIFEST.json.

usage: python3 regress/data/make_data.py        (needs pyarrow; the files are committed, tests do not need it)

- edge_<type>: one column `v` of the type, with the values where implementations go wrong.
- form_<encoding>: the same kind of values in another Parquet form of the type.
- nested: structs, maps and lists of them, as `jsonb`.
- ids_old, ids_new: files of one table with field ids.
- moments: dates and timestamps around transitions of time zones.
- t1, t2, t3, t0: tables of few distinct values and many NULLs, for generated joins and groups; t0 is empty.

Every value is given twice: as Arrow holds it and as PostgreSQL reads it. The CSV is thereby an independent
witness of what the Parquet file means. Everything random comes from one seed.
"""

import csv
import datetime
import decimal
import hashlib
import json
import pathlib
import random
import sys
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20260101
HERE = pathlib.Path(__file__).parent
EPOCH = datetime.datetime(1970, 1, 1)
Decimal = decimal.Decimal
decimal.getcontext().prec = 80


def same(values):
    """Values whose str() PostgreSQL reads."""
    return [(value, None if value is None else str(value)) for value in values]


def floats(values):
    def text(value):
        if value is None:
            return None
        if value != value:
            return "NaN"
        return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value, repr(value))

    return [(value, text(value)) for value in values]


def timestamps(suffix=""):
    """Microseconds since 1970 and their text."""
    texts = [
        "0001-01-01 00:00:00", "1582-10-15 00:00:00", "1900-02-28 23:59:59.999999", "1969-12-31 23:59:59.5",
        "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "1970-01-01 00:00:00.000001",
        "1992-01-31 10:20:30.123456", "1996-02-29 12:00:00", "1999-12-31 23:59:59.999999", "2000-01-01 00:00:00",
        "2000-02-29 12:34:56.789012", "2004-12-31 23:00:00", "2005-01-02 01:02:03", "2009-12-31 00:00:00.5",
        "2038-01-19 03:14:08", "9999-12-31 23:59:59.999999",
    ]
    values = [(None, None)]
    for text in texts:
        moment = datetime.datetime.fromisoformat(text if "." not in text else text.ljust(26, "0"))
        difference = moment - EPOCH
        micros = (difference.days * 86400 + difference.seconds) * 1_000_000 + difference.microseconds
        values.append((micros, text + suffix))
    values.append((-210_866_803_200_000_000, "4714-11-24 00:00:00" + suffix + " BC"))
    # Arrow counts from 1970 and ends in January 294247; PostgreSQL counts from 2000 and ends 29 years later. Sums that
    # fall between the two are a known difference, so this stays below both, and near enough to the other end that differences fit an interval.
    values.append((9_092_131_199_999_999, "2258-02-12 23:59:59.999999" + suffix))
    values.append((8_773_874_035_199_999_999, "280002-12-31 23:59:59.999999" + suffix))
    return values


def dates():
    texts = [
        "0001-01-01", "1582-10-15", "1899-12-31", "1900-02-28", "1900-03-01", "1969-12-31", "1970-01-01",
        "1992-01-31", "1995-03-15", "1996-02-29", "1998-12-01", "1999-12-31", "2000-01-01", "2000-02-29",
        "2000-12-31", "2001-01-01", "2004-12-31", "2005-01-02", "2008-12-29", "2009-12-31", "2010-01-03",
        "2100-02-28", "9999-12-31",
    ]
    values = [(None, None)]
    values += [((datetime.date.fromisoformat(text) - EPOCH.date()).days, text) for text in texts]
    values += [(-719_529 - 365 + 1, "0002-01-01 BC"), (-2_440_588, "4714-11-24 BC"), (2_145_042_905, "5874897-12-31")]
    return values


TEXTS = [
    None, "", " ", "  ", "a", "A", "a ", " a", " a b ", "ab", "abc", "aBc", "ABC", "xxabcxx", "b", "z", "Z", "0", "10", "9",
    "\u00e4", "\u00c4", "\u00df", "\u00e9", "e\u0301", "\u65e5\u672c\u8a9e", "\U0001f600", "a\U0001f600b", "%", "_", "\\",
    "a%b", "a_b", "a\\b", "it's", '"q"', "x\ny", "tab\tend", "twelve chars", "thirteen char", "x" * 300,
    "special packages requests", "PROMO BRUSHED COPPER", "~", "\u007f", "\u0080", "\uffff",
]

EDGES = {
    "bool": ("boolean", pa.bool_(), same([None, True, False])),
    "int2": ("smallint", pa.int16(), same([None, -32768, -32767, -1000, -7, -3, -1, 0, 1, 2, 3, 7, 100, 181, 182, 32766, 32767])),
    "int4": ("integer", pa.int32(), same([None, -2147483648, -2147483647, -65536, -1000, -7, -3, -1, 0, 1, 2, 3, 7, 100,
             32768, 46340, 46341, 65536, 2147483646, 2147483647])),
    "int8": ("bigint", pa.int64(), same([None, -9223372036854775808, -9223372036854775807, -2147483649, -1000, -7, -3, -1, 0, 1,
             2, 3, 7, 100, 2147483648, 3037000499, 3037000500, 4294967296, 9223372036854775806, 9223372036854775807])),
    "float4": ("real", pa.float32(), floats([None, float("-inf"), -3.4028234663852886e38, -2.5, -1.5, -1.0, -0.5, -0.0, 0.0,
               1.401298464324817e-45, 0.10000000149011612, 0.5, 1.0, 1.5, 2.5, 3.5, 16777216.0, 2147483648.0,
               3.4028234663852886e38, float("inf"), float("nan")])),
    "float8": ("double precision", pa.float64(), floats([None, float("-inf"), -1.7976931348623157e308, -2147483648.5, -2.5, -1.5,
               -1.0, -0.5, -0.0, 0.0, 5e-324, 1e-300, 0.1, 0.3, 0.5, 1.0, 1.5, 2.5, 3.5, 32767.5, 2147483647.4,
               2147483647.5, 9007199254740993.0, 9.223372036854775e18, 9.223372036854776e18, 1e200, 1.7976931348623157e308,
               float("inf"), float("nan")])),
    "numeric_15_2": ("numeric(15,2)", pa.decimal128(15, 2), same([None] + [Decimal(text) for text in (
                     "-9999999999999.99 -12345.67 -100.00 -2.50 -1.50 -1.00 -0.50 -0.05 -0.01 0.00 0.01 0.05 0.06 0.07 0.50 1.00 1.50 "
                     "2.00 2.50 3.00 7.00 33.33 100.00 12345.67 99999.99 9999999999999.99").split()])),
    "numeric_38_10": ("numeric(38,10)", pa.decimal128(38, 10), same([None] + [Decimal(text) for text in (
                      "-9999999999999999999999999999.9999999999 -1.0000000000 -0.0000000001 0.0000000000 0.0000000001 "
                      "0.3333333333 1.0000000000 1.5000000000 2.5000000000 123456789012345678.0123456789 "
                      "9999999999999999999999999999.9999999999").split()])),
    "numeric_9_4": ("numeric(9,4)", pa.decimal128(9, 4), same([None] + [Decimal(text) for text in (
                    "-99999.9999 -2.5000 -1.0000 -0.4999 -0.0001 0.0000 0.0001 0.1250 0.4999 0.5000 0.5001 1.0000 1.5000 3.0000 "
                    "99999.9999").split()])),
    "numeric_5_0": ("numeric(5,0)", pa.decimal128(5, 0), same([None] + [Decimal(text) for text in
                    "-99999 -15 -5 -1 0 1 2 3 5 15 25 99999".split()])),
    "date": ("date", pa.date32(), dates()),
    "timestamp": ("timestamp", pa.timestamp("us"), timestamps()),
    "timestamptz": ("timestamptz", pa.timestamp("us", "UTC"), timestamps("+00")),
    "time": ("time", pa.time64("us"), [(None, None), (0, "00:00:00"), (1, "00:00:00.000001"), (45296789012, "12:34:56.789012"),
             (43200000000, "12:00:00"), (86399999999, "23:59:59.999999"), (3661000000, "01:01:01"), (59999999, "00:00:59.999999")]),
    "text": ("text", pa.string(), same(TEXTS)),
    "varchar": ("varchar(300)", pa.string(), same(TEXTS)),
    "char": ("char(5)", pa.string(), same([None, "", "a", "A", "ab", "abc", "abcde", " a", "  ", "a b", "\u00e4\u00f6\u00fc\u00df\u00e9",
             "%", "x_y", "a\t", "MAIL", "SHIP", "~"])),
    "uuid": ("uuid", pa.uuid(), [(None, None)] + [(uuid.UUID(int=number).bytes, str(uuid.UUID(int=number))) for number in (
             0, 1, 2**64, 2**127, 2**128 - 1, 0x0123456789abcdef0123456789abcdef)]),
    "bytea": ("bytea", pa.binary(), [(None, None)] + [(value, "\\x" + value.hex()) for value in (
              b"", b"\0", b"\0\0", b"a", b"a\0", b"abc", b"\x7f", b"\x80", b"\xff", b"\xff\0", bytes(range(256)))]),
    "int4_array": ("integer[]", pa.list_(pa.int32()), [(None, None), ([], "{}"), ([1], "{1}"), ([None], "{NULL}"),
                   ([1, None, -2147483648, 2147483647], "{1,NULL,-2147483648,2147483647}")]),
    "text_array": ("text[]", pa.list_(pa.string()), [(None, None), ([], "{}"), ([""], '{""}'), (["NULL", None], '{"NULL",NULL}'),
                   (["a,b", 'q"q', "b\\s", "{}", " x "], '{"a,b","q\\"q","b\\\\s","{}"," x "}')]),
    "numeric_array": ("numeric(8,3)[]", pa.list_(pa.decimal128(8, 3)),
                      [(None, None), ([], "{}"), ([Decimal("1.500"), None, Decimal("-0.001")], "{1.500,NULL,-0.001}")]),
    "date_array": ("date[]", pa.list_(pa.date32()), [(None, None), ([0, None, 11016], "{1970-01-01,NULL,2000-02-29}")]),
}

MILLISECONDS = [(value // 1000, text) for value, text in [
    (-1_500_000, "1969-12-31 23:59:58.5"), (0, "1970-01-01 00:00:00"), (951_827_696_789_000, "2000-02-29 12:34:56.789"),
    (253_402_300_799_999_000, "9999-12-31 23:59:59.999")]]
NANOSECONDS = [(-1_500_000_000, "1969-12-31 23:59:58.5"), (0, "1970-01-01 00:00:00"),
               (951_827_696_789_012_000, "2000-02-29 12:34:56.789012")]
NULL = [(None, None)]
LONG_NUMBERS = [(value, str(value)) for value in map(Decimal, [
    "-9999999999999999999999999999999999999999.9999999999", "-12345678901234567890123456789012345678.0000000001", "-1.5000000000",
    "-0.0000000001", "0.0000000000", "0.0000000001", "2.0000000000", "170141183460469231731687303715884105728.0000000000",
    "9999999999999999999999999999999999999999.9999999999"])]
LONGEST_NUMBERS = [(value, f"{value:f}") for value in map(Decimal, [
    "-" + "9" * 38 + "." + "9" * 38, "-0." + "0" * 37 + "1", "0." + "0" * 38, "7." + "0" * 38, "9" * 38 + "." + "9" * 38])]
TENTHS = [(value, str(value)) for value in map(Decimal, ["-99999.99", "-0.01", "0.00", "0.01", "99999.99"])]

FORMS = {
    "uint8": ("smallint", pa.uint8(), same([None, 0, 1, 255]), {}),
    "uint16": ("integer", pa.uint16(), same([None, 0, 1, 65535]), {}),
    "uint32": ("bigint", pa.uint32(), same([None, 0, 1, 4294967295]), {}),
    "uint64": ("numeric(20,0)", pa.uint64(), same([None, 0, 1, 9223372036854775808, 18446744073709551615]), {}),
    "int8": ("smallint", pa.int8(), same([None, -128, 0, 127]), {}),
    "decimal_int32": ("numeric(7,2)", pa.decimal128(7, 2), NULL + TENTHS, {"store_decimal_as_integer": True}),
    "decimal_int64": ("numeric(15,2)", pa.decimal128(15, 2), NULL + TENTHS, {"store_decimal_as_integer": True}),
    "decimal_fixed": ("numeric(15,2)", pa.decimal128(15, 2), NULL + TENTHS, {}),
    "decimal_long": ("numeric(50,10)", pa.decimal256(50, 10), NULL + LONG_NUMBERS, {}),
    "decimal_longest": ("numeric(76,38)", pa.decimal256(76, 38), NULL + LONGEST_NUMBERS, {}),
    "timestamp_ms": ("timestamp", pa.timestamp("ms"), NULL + MILLISECONDS, {}),
    "timestamp_ns": ("timestamp", pa.timestamp("ns"), NULL + NANOSECONDS, {"version": "2.6"}),
    "timestamp_int96": ("timestamp", pa.timestamp("ns"), NULL + NANOSECONDS, {"use_deprecated_int96_timestamps": True}),
    "timestamptz_ms": ("timestamptz", pa.timestamp("ms", "UTC"), NULL + [(v, t + "+00") for v, t in MILLISECONDS], {}),
    "time_ms": ("time", pa.time32("ms"), NULL + [(0, "00:00:00"), (45296789, "12:34:56.789"), (86399999, "23:59:59.999")], {}),
    "time_ns": ("time", pa.time64("ns"), NULL + [(0, "00:00:00"), (45296789012000, "12:34:56.789012")], {}),
    "time_utc": ("timetz", pa.time64("us"), NULL + [(0, "00:00:00+00"), (45296789012, "12:34:56.789012+00"), (86399999999, "23:59:59.999999+00")], {}),
    "float16": ("real", pa.float16(), floats([None, -65504.0, -0.0, 0.0, 0.5, 65504.0, float("inf"), float("nan")]), {}),
    "large_string": ("text", pa.large_string(), same([None, "", "a", "\u65e5\u672c"]), {}),
    "dictionary": ("text", pa.dictionary(pa.int32(), pa.string()), same([None, "", "a", "a", "b"]), {}),
    "string_plain": ("text", pa.string(), same(["", "a", "\u65e5\u672c"]), {"use_dictionary": False, "compression": "none"}),
    "string_delta": ("text", pa.string(), same(["", "a", "ab", "\u65e5\u672c"]),
                     {"use_dictionary": False, "column_encoding": {"v": "DELTA_BYTE_ARRAY"}}),
    "int_delta": ("bigint", pa.int64(), same([None, -9223372036854775808, 0, 9223372036854775807]),
                  {"use_dictionary": False, "column_encoding": {"v": "DELTA_BINARY_PACKED"}}),
    "float_split": ("double precision", pa.float64(), floats([None, -0.0, 1.5, float("nan")]),
                    {"use_dictionary": False, "column_encoding": {"v": "BYTE_STREAM_SPLIT"}}),
    "page_v2": ("integer", pa.int32(), same([None, 1, 2, None, 3]), {"data_page_version": "2.0"}),
    "zstd": ("integer", pa.int32(), same([None, 1, 2]), {"compression": "zstd"}),
    "gzip": ("integer", pa.int32(), same([None, 1, 2]), {"compression": "gzip"}),
    "brotli": ("integer", pa.int32(), same([None, 1, 2]), {"compression": "brotli"}),
    "lz4": ("integer", pa.int32(), same([None, 1, 2]), {"compression": "lz4"}),
    "no_statistics": ("integer", pa.int32(), same([None, 1, 2]), {"write_statistics": False}),
    "json": ("json", pa.json_(), same([None, "{}", '{"a": [1, null]}']), {}),
}


def array_of(values, arrow_type):
    """An array from values as Arrow holds them (integers for dates and times)."""
    if pa.types.is_timestamp(arrow_type) or pa.types.is_time64(arrow_type):
        return pa.array(values, pa.int64()).cast(arrow_type)
    if pa.types.is_time32(arrow_type) or pa.types.is_date32(arrow_type):
        return pa.array(values, pa.int32()).cast(arrow_type)
    if pa.types.is_dictionary(arrow_type):
        return pa.array(values, arrow_type.value_type).dictionary_encode()
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, pa.array(values, arrow_type.storage_type))
    if pa.types.is_list(arrow_type) and pa.types.is_date32(arrow_type.value_type):
        return pa.array(values, pa.list_(pa.int32())).cast(arrow_type)
    return pa.array(values, arrow_type)


def fuzz_columns(row_count, choose):
    """Columns of t1, t2, t3: few distinct values, a fifth NULL."""
    words = ["", "a", "b", "ab", "abc", "B", "x ", " x", "\u00e4", "%", "foo bar", "special requests", "zz"]
    codes = ["", "a", "b", "ab", "abcde", "B", "AIR"]

    def nullable(make):
        return [None if choose.random() < 0.2 else make() for _ in range(row_count)]

    def pick(values):
        return nullable(lambda: choose.choice(values))

    dates_of = nullable(lambda: choose.randrange(9_000, 9_030))
    stamps = nullable(lambda: choose.choice([694_224_000, 694_310_399, 951_827_696, 0]) * 1_000_000 + choose.choice([0, 500_000]))
    return [
        ("a", "integer", pa.int32(), same(nullable(lambda: choose.randrange(-3, 9)))),
        ("b", "bigint", pa.int64(), same(pick([-5, 0, 1, 2, 3, 4, 5, 6, 7, 4294967296, 9007199254740993]))),
        ("i", "smallint", pa.int16(), same(nullable(lambda: choose.randrange(-2, 5)))),
        ("c", "text", pa.string(), same(pick(words))),
        ("s", "char(5)", pa.string(), same(pick(codes))),
        ("d", "date", pa.date32(), [(v, None if v is None else str(EPOCH.date() + datetime.timedelta(v))) for v in dates_of]),
        ("n", "numeric(15,2)", pa.decimal128(15, 2), same(pick([Decimal(t) for t in
            ("-2.50", "-0.01", "0.00", "0.01", "0.50", "1.00", "1.50", "2.00", "2.50", "3.00", "100.00", "12345.67")]))),
        ("m", "numeric(12,4)", pa.decimal128(12, 4), same(pick([Decimal(t) for t in
            ("-1.2500", "0.0000", "0.0001", "0.3333", "0.5000", "1.0000", "1.5000", "2.0000", "7.7777")]))),
        # Multiples of 1/4: sums are exact in every order.
        ("f", "double precision", pa.float64(), floats(pick([-2.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 1e6]))),
        ("k", "boolean", pa.bool_(), same(pick([True, False]))),
        ("ts", "timestamp", pa.timestamp("us"),
         [(v, None if v is None else str(EPOCH + datetime.timedelta(microseconds=v))) for v in stamps]),
    ]


# Transitions of time zones, in UTC: America/New_York, Europe/London and Dublin, Asia/Kolkata, Pacific/Apia (a day that is not there),
# Africa/Casablanca, America/Sao_Paulo (a midnight that is not there, one that is twice), Australia/Lord_Howe (half an hour), local mean
# times, and years of which zones know the rules alone.
TRANSITIONS = ["1883-11-18 17:00", "1892-07-04 12:00", "1916-05-21 02:00", "1941-09-30 18:30", "1968-10-26 23:00", "1971-10-31 02:00",
               "2011-12-30 10:00", "2018-02-18 02:00", "2018-11-04 03:00", "2023-03-19 02:00", "2023-04-23 02:00", "2024-03-10 07:00",
               "2024-03-31 01:00", "2024-04-06 15:00", "2024-10-05 15:30", "2024-10-27 01:00", "2024-11-03 06:00", "2500-03-14 07:00",
               "9999-10-31 01:00"]


def moment_columns():
    """Columns of moments: each half hour around transitions."""
    seconds = [None]
    for text in TRANSITIONS:
        at = int((datetime.datetime.fromisoformat(text) - EPOCH).total_seconds())
        seconds += [at + step * 1_800 for step in range(-32, 33)]
    stamps = [None if v is None else v * 1_000_000 - v % 7 % 2 for v in seconds]
    days = [None if v is None else v // 86_400_000_000 for v in stamps]

    def text(v):
        return None if v is None else str(EPOCH + datetime.timedelta(microseconds=v))

    local = [(v, text(v)) for v in stamps]
    utc = [(v, None if v is None else text(v) + "+00") for v in stamps]
    dates = [(v, None if v is None else str(EPOCH.date() + datetime.timedelta(v))) for v in days]
    return [("d", "date", pa.date32(), dates), ("ts", "timestamp", pa.timestamp("us"), local),
            ("tz", "timestamptz", pa.timestamp("us", "UTC"), utc)]


def nested_columns():
    """Columns that are JSON: the texts are those that `jsonb` prints."""
    leaves = [("b", pa.bool_()), ("i1", pa.int8()), ("u4", pa.uint32()), ("u8", pa.uint64()), ("i8", pa.int64()), ("f2", pa.float16()),
              ("f4", pa.float32()), ("f8", pa.float64()), ("n", pa.decimal128(12, 3)), ("t", pa.string()), ("d", pa.date32()),
              ("ts", pa.timestamp("ns")), ("tz", pa.timestamp("ms", "UTC")), ("tm", pa.time64("us")), ("by", pa.binary())]
    moment = datetime.datetime(2024, 2, 29, 12, 34, 56, 780000)
    every = dict(b=True, i1=-128, u4=4294967295, u8=18446744073709551615, i8=-9223372036854775808, f2=0.5, f4=0.1, f8=1e20,
                 n=Decimal("1.500"), t='a"\\\u00e4\n\u0001', d=moment.date(), ts=moment, tz=moment, tm=datetime.time(1, 2, 3, 500), by=b"\0\xff")
    every_text = ('{"b": true, "d": "2024-02-29", "n": 1.500, "t": "a\\"\\\\\u00e4\\n\\u0001", "by": "\\\\x00ff", "f2": 0.5, "f4": 0.1, '
                  '"f8": 100000000000000000000, "i1": -128, "i8": -9223372036854775808, "tm": "01:02:03.0005", "ts": "2024-02-29T12:34:56.78", '
                  '"tz": "2024-02-29T12:34:56.78+00:00", "u4": 4294967295, "u8": 18446744073709551615}')
    none_text = "{" + ", ".join(f'"{name}": null' for name in sorted((name for name, _ in leaves), key=lambda name: (len(name), name))) + "}"
    special = dict(every, f2=float("nan"), f4=float("inf"), f8=float("-inf"), d=-719_529, t="")
    special_text = (every_text.replace('"f2": 0.5', '"f2": "NaN"').replace('"f4": 0.1', '"f4": "Infinity"')
                    .replace("100000000000000000000", '"-Infinity"').replace('"d": "2024-02-29"', '"d": "0002-12-31 BC"')
                    .replace('"t": "a\\"\\\\\u00e4\\n\\u0001"', '"t": ""'))
    point = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int32()))])
    return [
        ("every", "jsonb", pa.struct(leaves), [(None, None), ({}, none_text), (every, every_text), (special, special_text)]),
        ("points", "jsonb", pa.list_(point), [
            ([], "[]"), (None, None), ([None, {"x": 1, "y": None}], '[null, {"x": 1, "y": null}]'),
            ([{"x": None, "y": [1, None]}, {"x": 2, "y": []}], '[{"x": null, "y": [1, null]}, {"x": 2, "y": []}]')]),
        ("lists", "jsonb", pa.list_(pa.list_(pa.string())), [
            ([["a", None], None, []], '[["a", null], null, []]'), (None, None), ([], "[]"), ([[""]], '[[""]]')]),
        ("words", "jsonb", pa.map_(pa.string(), point), [
            ([], "{}"), ([("k", None)], '{"k": null}'), (None, None),
            ([("b", {"x": 1, "y": [2]}), ("a\"", {"x": None, "y": None})], '{"b": {"x": 1, "y": [2]}, "a\\"": {"x": null, "y": null}}')]),
        ("numbers", "jsonb", pa.map_(pa.int32(), pa.float64()), [
            ([(2, 0.5), (1, None)], '[{"key": 2, "value": 0.5}, {"key": 1, "value": null}]'), ([], "[]"), (None, None), (None, None)]),
        ("flat", "jsonb", pa.struct([pa.field("r", pa.int32(), nullable=False), ("o", pa.string())]), [
            ({"r": 1, "o": "a"}, '{"o": "a", "r": 1}'), (None, None), ({"r": 3, "o": None}, '{"o": null, "r": 3}'), (None, None)]),
        ("deep", "jsonb", pa.struct([("one", pa.struct([("two", pa.struct([("three", pa.int64())]))]))]), [
            ({"one": None}, '{"one": null}'), (None, None), ({"one": {"two": {"three": 3}}}, '{"one": {"two": {"three": 3}}}'),
            ({"one": {"two": None}}, '{"one": {"two": null}}')]),
    ]


# Files of one table at two times: a column was renamed, and another has its old name now.
IDENTIFIED = {
    "ids_old": ([1, 2, 3], [
        ("name", "text", pa.string(), same(["a", "b", None])), ("amount", "integer", pa.int32(), same([10, None, 30]))]),
    "ids_new": ([1, 3, 2, 4], [
        ("amount", "bigint", pa.int64(), same([5000000000, 7])), ("label", "text", pa.string(), same(["c", None])),
        ("name", "text", pa.string(), same(["x", "y"]))]),
}


def write(name, columns, manifest, row_group_size=64, options=None, field_ids=None):
    """Writes one table; `columns`: (name, sql type, arrow type, [(arrow value, text)]). `field_ids`: one for each, that of `id` first."""
    row_count = len(columns[0][3])
    ids = ("id", "integer", pa.int32(), same(range(1, row_count + 1)))
    columns = [ids] + columns
    metadata = [{"PARQUET:field_id": str(number)} for number in field_ids] if field_ids else [None] * len(columns)
    schema = pa.schema([
        pa.field(column, arrow, nullable=column != "id", metadata=own)
        for (column, _, arrow, _), own in zip(columns, metadata)])
    arrays = [array_of([value for value, _ in values], arrow) for _, _, arrow, values in columns]
    options = dict(options or {})
    if "column_encoding" in options:
        options["column_encoding"] = dict(options["column_encoding"], id="PLAIN")
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), HERE / f"{name}.parquet", row_group_size=row_group_size, **options)
    with open(HERE / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NOTNULL, lineterminator="\n") if hasattr(csv, "QUOTE_NOTNULL") else None
        for row in zip(*[[text for _, text in values] for _, _, _, values in columns]):
            if writer:
                writer.writerow(row)
            else:
                file.write(",".join("" if text is None else '"' + text.replace('"', '""') + '"' for text in row) + "\n")
    manifest["tables"].append({
        "name": name,
        "rows": row_count,
        "columns": [[column, sql] for column, sql, _, _ in columns],
        "sha256": hashlib.sha256((HERE / f"{name}.parquet").read_bytes()).hexdigest(),
    })


def main():
    manifest = {"command": "python3 regress/data/make_data.py", "pyarrow": pa.__version__, "seed": SEED, "tables": []}
    for name, (sql, arrow, values) in EDGES.items():
        write(f"edge_{name}", [("v", sql, arrow, values)], manifest)
    for name, (sql, arrow, values, options) in FORMS.items():
        write(f"form_{name}", [("v", sql, arrow, values)], manifest, options=options)
    choose = random.Random(SEED)
    for name, row_count in (("t0", 0), ("t1", 120), ("t2", 80), ("t3", 40)):
        write(name, fuzz_columns(row_count, choose), manifest, row_group_size=32)
    write("nested", nested_columns(), manifest, row_group_size=3)
    write("moments", moment_columns(), manifest, row_group_size=65)
    for name, (field_ids, columns) in IDENTIFIED.items():
        write(name, columns, manifest, field_ids=field_ids)
    (HERE / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    print(f"{len(manifest['tables'])} tables")


if __name__ == "__main__":
    sys.exit(main())
