"""Files that readers of Parquet get wrong, or refuse: the value that each gives, or its error, the same on both engines.

Most are written by hand (handmade.py), each for a defect that was reported of some reader or writer. The rest are by libraries that
are installed anyway (scripts/writers.sh), read as they are.
"""

import pathlib
import shutil
import struct
import subprocess
from dataclasses import dataclass

from differential.handmade import (
    BIT_PACKED, BYTE_ARRAY, DATE, DECIMAL, DELTA, DELTA_BYTES, DELTA_LENGTH, FIXED, INT_8, INT32, INT64, INT96, LIST, LZ4, OPTIONAL, RLE_DICTIONARY,
    REPEATED, SPLIT, TIMESTAMP_MICROS, TIMESTAMP_MILLIS, UINT_16, UTF8, Column, File, I8, I64, data, data_v2, deltas, dictionary, frames, packed_high,
    packed_run, plain, prefixed, run, varint,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a value beyond a page's bytes, a page that can't be decoded, and a value beyond its type are called.
CORRUPT, NUMBER, MOMENT = "XX001", "22003", "22008"


@dataclass
class Case:
    """A file, and what queries over it give: rows as text, or the SQLSTATE and a part of the message of an error."""

    name: str
    file: bytes
    queries: list
    # Columns as they are declared, where they are not imported.
    columns: str = ""


def rows(*values):
    """Rows of one column."""
    return [(None if value is None else str(value),) for value in values]


def error(state, part):
    return state, part


def required(name, physical, values, **more):
    """A column of plain values in one page."""
    return Column(name, physical, [data(plain(physical, values), len(values))], **more)


def statistics(least, greatest, nulls=0, exact=True):
    """Bounds in the newer fields."""
    return {3: I64(nulls), 5: greatest, 6: least, 7: exact, 8: exact}


def cases():
    """Every case."""
    for make in (_null_counts, _prefixes, _page_indexes, _packed_levels, _bounds, _counts, _int96, _annotated, _infinities, _unknown_annotations, _footers,
                 _frames, _nulls, _long_decimals, _empty_runs, _wide_deltas):
        yield from make()


def _null_counts():
    """Counts of NULLs by a writer that is known for wrong ones: polars 29140, 29321."""
    page = data(prefixed(packed_run([1, 0, 1, 1, 0])) + plain(BYTE_ARRAY, [b"a", b"b", b"a"]), 5)
    for writer in ("Polars", "Parquet.Net version 4.25.0 (build 0)"):
        column = Column("e", BYTE_ARRAY, [page], OPTIONAL, converted=UTF8, statistics={3: I64(5)})
        yield Case(f"NULLs counted by {writer}", File([column], created_by=writer).bytes(), [
            ("SELECT count(e) FROM {t}", rows(3)), ("SELECT count(*) FROM {t} WHERE e = 'a'", rows(2)), ("SELECT count(*) FROM {t} WHERE e IS NOT NULL", rows(3)),
        ])


def _prefixes():
    """Texts that share a beginning with the one before: PARQUET-246, SPARK-59352."""
    def texts(prefixes, suffixes, page=data):
        body = deltas(prefixes) + deltas([len(suffix) for suffix in suffixes]) + b"".join(suffixes)
        return page(body, len(prefixes), DELTA_BYTES)

    def file(*pages):
        return File([Column("t", BYTE_ARRAY, list(pages), converted=UTF8)]).bytes()

    good = texts([0, 2, 1], [b"abc", b"d", b"xy"])
    for page, name in ((data, "V1"), (data_v2, "V2")):
        yield Case(f"prefixes {name}", file(texts([0, 2, 1], [b"abc", b"d", b"xy"], page)), [("SELECT t FROM {t}", rows("abc", "abd", "axy"))])
    corrupt = error(CORRUPT, "its values or levels do not fit its bytes")
    for name, page in (
        ("longer than the text before", texts([0, 4], [b"abc", b"d"])), ("at the start of a page", texts([2, 0], [b"abc", b"d"])),
        ("below zero", texts([0, -1], [b"abc", b"d"])), ("a suffix below zero", texts([0, 0], [b"abc", b""][:1] + [b""], data)),
    ):
        if name == "a suffix below zero":
            page = data(deltas([0, 0]) + deltas([3, -1]) + b"abc", 2, DELTA_BYTES)
        yield Case(f"prefixes {name}", file(good, page), [("SELECT t FROM {t}", corrupt), ("SELECT count(*) FROM {t}", rows(3 + page.count))])


def _page_indexes():
    """Offset indexes whose first rows are moved: ClickHouse 114530, 116788."""
    pages = [data(plain(INT32, range(first, first + 100)), 100) for first in range(0, 400, 100)]
    bounds = [(struct.pack("<i", first), struct.pack("<i", first + 99)) for first in range(0, 400, 100)]
    others = [data(plain(INT64, [value * 7 for value in range(first, first + 50)]), 50) for first in range(0, 400, 50)]
    for name, first_rows, other_rows in (
        ("right", [0, 100, 200, 300], range(0, 400, 50)), ("one moved", [0, 133, 200, 300], range(0, 400, 50)),
        ("two moved", [0, 133, 233, 300], range(0, 400, 50)), ("others moved", [0, 100, 200, 300], [0, 60, 110, 160, 200, 250, 300, 350]),
    ):
        file = File([Column("k", INT32, pages, first_rows=first_rows, bounds=bounds), Column("o", INT64, others, first_rows=list(other_rows))])
        yield Case(f"offset index {name}", file.bytes(), [
            (f"SELECT k, o FROM {{t}} WHERE k = {key}", [(str(key), str(key * 7))]) for key in (0, 99, 100, 110, 132, 133, 199, 200, 232, 399)
        ] + [("SELECT count(*), sum(o) FROM {t} WHERE k BETWEEN 105 AND 205", [("101", str(7 * sum(range(105, 206))))])])


def _packed_levels():
    """Levels packed from the highest bit on, as before Parquet 2."""
    levels = [1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1]
    values = [value for value, level in enumerate(levels) if level]
    expected = [value if level else None for value, level in enumerate(levels)]
    for name, physical, encode in (("int", INT32, plain), ("text", BYTE_ARRAY, lambda kind, some: plain(kind, [str(value).encode() for value in some]))):
        body = packed_high(levels, 1) + encode(physical, values)
        column = Column("a", physical, [data(body, len(levels), levels=BIT_PACKED)], OPTIONAL, converted=UTF8 if physical == BYTE_ARRAY else None)
        yield Case(f"packed levels {name}", File([column]).bytes(), [("SELECT a FROM {t}", rows(*expected))])
    # Lists: [1, 2], [], [3], NULL, [NULL, 4].
    repetition, definition = [0, 1, 0, 0, 0, 0, 1], [3, 3, 1, 3, 0, 2, 3]
    body = packed_high(repetition, 1) + packed_high(definition, 2) + plain(INT32, [1, 2, 3, 4])
    parents = (("a", OPTIONAL, LIST), ("list", REPEATED, None))
    column = Column("element", INT32, [data(body, 7, levels=BIT_PACKED)], OPTIONAL, parents=parents)
    yield Case("packed levels list", File([column], rows=[5]).bytes(), [("SELECT a FROM {t}", rows("{1,2}", "{}", "{3}", None, "{NULL,4}"))])


def _bounds():
    """Bounds of another length than the values have."""
    for name, least, greatest in (("right", b"\0\1", b"\0\x09"), ("longer", b"\0\1\0\0", b"\x00\x09\x99\x99\x99\x99\x99\x99"), ("shorter", b"\0", b"\x09")):
        column = required("d", FIXED, [b"\0\1", b"\0\x09"], length=2, converted=DECIMAL, scale=1, precision=4, statistics=statistics(least, greatest))
        yield Case(f"bounds of a fixed decimal {name}", File([column]).bytes(), [
            ("SELECT min(d), max(d) FROM {t}", [("0.1", "0.9")]), ("SELECT count(*) FROM {t} WHERE d > 0.5", rows(1)), ("SELECT d FROM {t} WHERE d = 0.9", rows("0.9")),
        ])


def _counts():
    """Bytes and numbers that are no whole values."""
    corrupt = error(CORRUPT, "its values or levels do not fit its bytes")
    for page, name in ((data, "V1"), (data_v2, "V2")):
        for size, count in ((11, 2), (8, 4), (7, 2)):
            split = page(bytes(range(size)), count, SPLIT)
            yield Case(f"split {size} bytes of {count} {name}", File([Column("a", INT32, [split])]).bytes(), [("SELECT a FROM {t}", corrupt)])
        good = page(bytes([1, 2, 0, 1, 0, 0, 0, 0]), 2, SPLIT)
        yield Case(f"split bytes {name}", File([Column("a", INT32, [good])]).bytes(), [("SELECT a FROM {t}", rows(1, 258))])
        for extra, count in (("too many", 7), ("too few", 2)):
            body = deltas([1, 2, 3, 4], count=count)
            if extra == "too many":
                body = deltas([1, 2, 3, 4, 5, 6, 7])
            yield Case(f"deltas {extra} {name}", File([Column("a", INT64, [page(body, 4, DELTA)])]).bytes(),
                       [("SELECT a FROM {t}", error(CORRUPT, "column \"a\", page 0"))])
        lengths = deltas([1, 1, 1, 1, 1]) + b"abcde"
        yield Case(f"lengths too many {name}", File([Column("a", BYTE_ARRAY, [page(lengths, 4, DELTA_LENGTH)], converted=UTF8)]).bytes(),
                   [("SELECT a FROM {t}", error(CORRUPT, "column \"a\", page 0"))])
    # Of a page with NULLs there are as many as values.
    levels = prefixed(packed_run([1, 0, 1, 0]))
    for count, expected in ((2, rows(5, None, 6, None)), (3, corrupt)):
        page = data(levels + deltas([5, 6, 7][:count]), 4, DELTA)
        yield Case(f"deltas of {count} beside NULLs", File([Column("a", INT64, [page], OPTIONAL)]).bytes(), [("SELECT a FROM {t}", expected)])


def _int96():
    """Nanoseconds of a day below zero are rounded down, as all nanoseconds are."""
    values = [(-1, 2440588), (-1000, 2440588), (-1001, 2440588), (999, 2440588), (1, 2440589)]
    expected = rows("1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999998", "1970-01-01 00:00:00", "1970-01-02 00:00:00")
    yield Case("INT96 plain", File([required("a", INT96, values)]).bytes(), [("SELECT a FROM {t}", expected)])
    pages = [dictionary(plain(INT96, values), 5), data(b"\3" + packed_run(range(5), 3), 5, RLE_DICTIONARY)]
    yield Case("INT96 dictionary", File([Column("a", INT96, pages)]).bytes(), [("SELECT a FROM {t}", expected)])


def _annotated():
    """Values beyond their annotation are an error, and bounds that hold one are not used."""
    beyond = error(NUMBER, "out of range")
    digits = error(NUMBER, "more digits than")
    for name, values, more, state in (
        ("INT_8", [127, 300], {"converted": INT_8}, beyond), ("INT_8 new", [127, 300], {"logical": {10: {1: I8(8), 2: True}}}, beyond),
        ("UINT_16", [1, -1], {"converted": UINT_16}, beyond), ("DECIMAL", [999, 12345], {"converted": DECIMAL, "scale": 1, "precision": 3}, digits),
    ):
        bounds = statistics(struct.pack("<i", min(values)), struct.pack("<i", max(values)))
        for with_bounds in (None, bounds):
            column = required("a", INT32, values, statistics=with_bounds, **more)
            yield Case(f"{name} {'with' if with_bounds else 'without'} bounds", File([column, required("b", INT32, [1, 2])]).bytes(), [
                ("SELECT a FROM {t}", state), ("SELECT max(a) FROM {t}", state), ("SELECT b FROM {t} WHERE a >= 0", state),
                ("SELECT sum(b), count(*) FROM {t}", [("3", "2")]),
            ])
            pages = [dictionary(plain(INT32, values), 2), data(b"\1" + run(0, 2), 2, RLE_DICTIONARY)]
            value = "99.9" if name == "DECIMAL" else str(values[0])
            yield Case(f"{name} {'with' if with_bounds else 'without'} bounds, not used", File([Column("a", INT32, pages, **more)]).bytes(),
                       [("SELECT a FROM {t}", rows(value, value)), (f"SELECT count(*) FROM {{t}} WHERE a = {value}", rows(2))])
        page = data(deltas(values), 2, DELTA)
        yield Case(f"{name} deltas", File([Column("a", INT32, [page], **more)]).bytes(), [("SELECT a FROM {t}", state)])
        parents = (("a", OPTIONAL, LIST), ("list", REPEATED, None))
        page = data(prefixed(run(0, 2)) + prefixed(run(2, 2, 2)) + plain(INT32, values), 2)
        yield Case(f"{name} list", File([Column("element", INT32, [page], parents=parents, **more)]).bytes(), [("SELECT a FROM {t}", state)])
    for name, physical, values, length in (("long", INT64, [10**17, 10**18], None), ("fixed", FIXED, [b"\x03\xe7", b"\x30\x39"], 2), ("bytes", BYTE_ARRAY, [b"\x03\xe7", b"\x30\x39"], None)):
        precision = 18 if physical == INT64 else 3
        column = required("a", physical, values, length=length, converted=DECIMAL, scale=1, precision=precision)
        yield Case(f"DECIMAL {name}", File([column]).bytes(), [("SELECT a FROM {t}", digits)])
    # Declared with more digits than the annotation has.
    column = required("a", INT32, [999, 12345], converted=DECIMAL, scale=1, precision=3)
    yield Case("DECIMAL declared wider", File([column]).bytes(), [("SELECT a FROM {t}", digits)], "a numeric(10,2)")


def _infinities():
    """DuckDB's infinite dates and timestamps: duckdb 10323, 23821."""
    greatest32, greatest64 = 2**31 - 1, 2**63 - 1
    dates = [-greatest32, 0, greatest32]
    expected = rows("-infinity", "1970-01-01", "infinity")
    bounds = statistics(struct.pack("<i", -greatest32), struct.pack("<i", greatest32))
    asked = [
        ("SELECT a FROM {t}", expected), ("SELECT min(a), max(a) FROM {t}", [("-infinity", "infinity")]), ("SELECT count(*) FROM {t} WHERE a = 'infinity'", rows(1)),
        ("SELECT count(*) FROM {t} WHERE a < '1960-01-01'", rows(1)), ("SELECT a FROM {t} ORDER BY a DESC LIMIT 1", rows("infinity")),
        ("SELECT count(*) FROM {t} WHERE a = '-infinity'", rows(1)),
    ]
    yield Case("infinite dates", File([required("a", INT32, dates, converted=DATE, statistics=bounds)]).bytes(), asked)
    yield Case("infinite dates in deltas", File([Column("a", INT32, [data(deltas(dates), 3, DELTA)], converted=DATE)]).bytes(), asked)
    pages = [dictionary(plain(INT32, dates), 3), data(b"\2" + packed_run(range(3), 2), 3, RLE_DICTIONARY)]
    yield Case("infinite dates in a dictionary", File([Column("a", INT32, pages, converted=DATE)]).bytes(), asked)
    for name, converted, logical in (("us", TIMESTAMP_MICROS, None), ("ms", TIMESTAMP_MILLIS, None), ("us without zone", None, {8: {1: False, 2: {2: {}}}})):
        moments = [-greatest64, 0, greatest64]
        zone = "+00" if logical is None else ""
        column = required("a", INT64, moments, converted=converted, logical=logical, statistics=statistics(struct.pack("<q", -greatest64), struct.pack("<q", greatest64)))
        asked = [("SELECT a FROM {t}", rows("-infinity", f"1970-01-01 00:00:00{zone}", "infinity")), ("SELECT min(a), max(a) FROM {t}", [("-infinity", "infinity")]),
                 ("SELECT count(*) FROM {t} WHERE a > '2200-01-01'", rows(1)), ("SELECT count(*) FROM {t} WHERE a = '-infinity'", rows(1))]
        yield Case(f"infinite timestamps {name}", File([column]).bytes(), asked)
        page = data(deltas(moments), 3, DELTA)
        yield Case(f"infinite timestamps {name} in deltas", File([Column("a", INT64, [page], converted=converted, logical=logical)]).bytes(), asked)
    for name, physical, value, converted in (("date", INT32, greatest32 - 1, DATE), ("date", INT32, -2**31, DATE), ("timestamp", INT64, -2**63, TIMESTAMP_MICROS)):
        size = "<i" if physical == INT32 else "<q"
        column = required("a", physical, [value], converted=converted, statistics=statistics(struct.pack(size, value), struct.pack(size, value)))
        yield Case(f"{name} {value}", File([column]).bytes(), [("SELECT a FROM {t}", error(MOMENT, "out of range")), ("SELECT max(a) FROM {t}", error(MOMENT, "out of range"))])


def _unknown_annotations():
    """A column that can't be told what it is leaves the others: arrow-rs 8776, 10941; parquet-format 599, 600, 607."""
    good = required("good", INT32, [1, 2])
    for name, physical, values, more in (
        ("unheard of", INT32, [1, 2], {"logical": {99: {}}}), ("text on INT32", INT32, [1, 2], {"converted": UTF8, "logical": {1: {}}}),
        ("date on INT64", INT64, [1, 2], {"logical": {6: {}}}), ("UUID of 8", FIXED, [bytes(8)] * 2, {"length": 8, "logical": {14: {}}}),
        ("FLOAT16 of 3", FIXED, [bytes(3)] * 2, {"length": 3, "logical": {15: {}}}), ("DECIMAL(12) on INT32", INT32, [1, 2], {"converted": DECIMAL, "scale": 0, "precision": 12}),
        ("unheard of on INT64", INT64, [1, 2], {"logical": {42: {1: 7}}}),
    ):
        yield Case(f"annotation {name}", File([required("bad", physical, values, **more), good]).bytes(), [
            ("SELECT * FROM {t}", rows(1, 2)), ("SELECT good FROM {t} WHERE good > 1", rows(2)),
        ])
    once = required("a", INT32, [12345], logical={5: {1: 2, 2: 5}})
    yield Case("decimal by the new annotation alone", File([once]).bytes(), [("SELECT a FROM {t}", rows("123.45"))])
    both = required("a", INT32, [1], logical={99: {}}, converted=DATE)
    yield Case("unheard of beside an old annotation", File([both]).bytes(), [("SELECT a FROM {t}", rows("1970-01-02"))])


def _footers():
    """Footers that say what others do not mind."""
    no_dictionary = required("a", INT32, [1, 2], dictionary_offset=0)
    yield Case("dictionary at 0", File([no_dictionary]).bytes(), [("SELECT a FROM {t}", rows(1, 2))])
    pages = [dictionary(plain(INT32, [7, 8]), 2), data(b"\1" + packed_run([0, 1], 1), 2, RLE_DICTIONARY)]
    yield Case("writer that is no text", File([required("a", INT32, [1, 2])], created_by=b"caf\xe9").bytes(), [("SELECT a FROM {t}", rows(1, 2)), ("SELECT max(a) FROM {t}", rows(2))])
    yield Case("metadata that is no text", File([required("a", INT32, [1])], extra={5: [{1: "k", 2: b"\xff\xfe"}]}).bytes(), [("SELECT a FROM {t}", rows(1))])
    yield Case("dictionary", File([Column("a", INT32, pages)]).bytes(), [("SELECT a FROM {t}", rows(7, 8))])
    # review: sums of what three chunks are said to decompress to.
    huge = [required(name, INT64, [1, 2], uncompressed=2**63 - 1) for name in "abc"]
    yield Case("sizes that overflow", File(huge).bytes(), [("SELECT sum(a + b + c) FROM {t}", rows(9)), ("SELECT a FROM {t} WHERE b > 1", rows(2))])
    count = 2**15 + 5
    page = [data(plain(INT32, [3]), 1)]
    many = Column("a", INT32, [page] * count)
    yield Case("many row groups", File([many], rows=[1] * count).bytes(), [("SELECT count(*) FROM {t}", rows(count)), ("SELECT a FROM {t} LIMIT 1", rows(3))])


def _frames():
    """LZ4 of Hadoop in frames of any number and size."""
    body = plain(INT32, range(100))
    for name, parts in (("one", [body]), ("small last", [body[:300], body[300:]]), ("small first", [body[:100], body[100:]]),
                        ("three", [body[:200], body[200:210], body[210:]])):
        stored = frames(*parts)
        for kind, page in (("V1", data(stored, 100, size=400)), ("V2", data_v2(body, 100, compressed=stored))):
            yield Case(f"frames {name} {kind}", File([Column("a", INT32, [page], codec=LZ4)]).bytes(), [("SELECT count(*), sum(a), max(a) FROM {t}", [("100", "4950", "99")])])
    stored = frames(body[:300], body[300:])
    pages = [dictionary(stored, 100, size=400), data(frames(b"\7" + packed_run(range(100), 7)), 100, RLE_DICTIONARY, size=1 + 1 + 7 * 13)]
    yield Case("frames of a dictionary", File([Column("a", INT32, pages, codec=LZ4)]).bytes(), [("SELECT sum(a) FROM {t}", rows(4950))])
    short = data(frames(body[:300]), 100, size=400)
    yield Case("frames that are too few", File([Column("a", INT32, [short], codec=LZ4)]).bytes(), [("SELECT sum(a) FROM {t}", error(CORRUPT, "column \"a\", page 0"))])


def _nulls():
    """Chunks of NULLs: an empty dictionary, and a page without a byte of values."""
    for name, physical, converted in (("int", INT32, None), ("text", BYTE_ARRAY, UTF8)):
        v1 = data(prefixed(run(0, 3)), 3, RLE_DICTIONARY)
        v2 = data_v2(b"", 3, RLE_DICTIONARY, nulls=3, definitions=run(0, 3))
        for kind, page in (("V1", v1), ("V2", v2)):
            column = Column("a", physical, [dictionary(b"", 0), page], OPTIONAL, converted=converted)
            yield Case(f"NULLs {name} {kind}", File([column]).bytes(), [("SELECT a FROM {t}", rows(None, None, None)), ("SELECT count(a) FROM {t}", rows(0))])
        values = [1, 2] if physical == INT32 else [b"x", b"y"]
        pages = [dictionary(plain(physical, values), 2), v1, data(prefixed(run(1, 2)) + b"\1" + packed_run([0, 1], 1), 2, RLE_DICTIONARY)]
        expected = [str(value) if physical == INT32 else value.decode() for value in values]
        yield Case(f"NULLs {name} before values", File([Column("a", physical, pages, OPTIONAL, converted=converted)]).bytes(), [("SELECT a FROM {t}", rows(None, None, None, *expected))])
    lost = [dictionary(plain(INT32, [1]), 1), data(prefixed(run(1, 3)), 3, RLE_DICTIONARY)]
    yield Case("values without a byte", File([Column("a", INT32, lost, OPTIONAL)]).bytes(), [("SELECT a FROM {t}", error(CORRUPT, "column \"a\""))])


def _long_decimals():
    """Decimals in byte arrays of more bytes than their digits need."""
    values = [(value).to_bytes(size, "big", signed=True) for value, size in ((12345, 20), (-12345, 17), (0, 33), (-1, 1), (10**9, 18))]
    expected = rows("123.45", "-123.45", "0.00", "-0.01", "10000000.00")
    for kind, pages in (
        ("plain", [data(plain(BYTE_ARRAY, values), 5)]), ("dictionary", [dictionary(plain(BYTE_ARRAY, values), 5), data(b"\3" + packed_run(range(5), 3), 5, RLE_DICTIONARY)]),
        ("lengths", [data(deltas([len(value) for value in values]) + b"".join(values), 5, DELTA_LENGTH)]),
    ):
        yield Case(f"long decimals {kind}", File([Column("a", BYTE_ARRAY, pages, converted=DECIMAL, scale=2, precision=15)]).bytes(),
                   [("SELECT a FROM {t}", expected), ("SELECT sum(a) FROM {t}", rows("9999999.99")), ("SELECT count(*) FROM {t} WHERE a = 123.45", rows(1))])
    beyond = required("a", BYTE_ARRAY, [(2**140).to_bytes(20, "big")], converted=DECIMAL, scale=2, precision=15)
    yield Case("long decimals that do not fit", File([beyond]).bytes(), [("SELECT a FROM {t}", error(NUMBER, "more digits than"))])
    empty = required("a", BYTE_ARRAY, [b""], converted=DECIMAL, scale=2, precision=15)
    yield Case("decimals without a byte", File([empty]).bytes(), [("SELECT a FROM {t}", error(CORRUPT, "column \"a\""))])


def _empty_runs():
    """Runs of levels without a value."""
    runs = run(1, 0) + run(1, 2) + packed_run([0, 1, 0, 0, 0, 0, 0, 0]) + run(0, 0) + run(1, 1)
    expected = rows(5, 6, None, 7, None, None, None, None, None, None, 8)
    for kind, page in (("V1", data(prefixed(runs) + plain(INT32, [5, 6, 7, 8]), 11)), ("V2", data_v2(plain(INT32, [5, 6, 7, 8]), 11, nulls=7, definitions=runs))):
        yield Case(f"empty runs {kind}", File([Column("a", INT32, [page], OPTIONAL)]).bytes(), [("SELECT a FROM {t}", expected), ("SELECT count(a) FROM {t}", rows(4))])


def _wide_deltas():
    """Differences of 33 bits between numbers of 32, as some writers store them."""
    values = [-2**31, 2**31 - 1, 0, -5, 2**31 - 1, -2**31, 7] * 40
    for kind, page in (("V1", data(deltas(values), len(values), DELTA)), ("V2", data_v2(deltas(values), len(values), DELTA))):
        yield Case(f"wide deltas {kind}", File([Column("a", INT32, [page])]).bytes(), [
            ("SELECT count(*), sum(a::bigint), min(a), max(a) FROM {t}", [(str(len(values)), str(sum(values)), str(min(values)), str(max(values)))]),
            ("SELECT a FROM {t} LIMIT 7", rows(*values[:7])),
        ])
    levels = prefixed(packed_run([1, 0] * 140))
    page = data(levels + deltas(values[:140]), 280, DELTA)
    yield Case("wide deltas beside NULLs", File([Column("a", INT32, [page], OPTIONAL)]).bytes(), [("SELECT count(a), sum(a::bigint) FROM {t}", [("140", str(sum(values[:140])))])])


# ---- writers that are installed anyway ----

# By the program's last words: what is in the file `w` of a folder, and what queries over it give.
WRITTEN = {
    "polars": ("""
import polars
frame = polars.DataFrame({'e': [None if row % 5 == 0 else 'c%02d' % (row % 16) for row in range(1000)]}, schema={'e': polars.Enum(['c%02d' % n for n in range(16)])})
frame.write_parquet(path, data_page_size=400, statistics={'min': False, 'max': False, 'distinct_count': False, 'null_count': True})
""", [("SELECT count(e) FROM {t}", rows(800)), ("SELECT count(*) FROM {t} WHERE e = 'c01'", rows(51)), ("SELECT count(*) FROM {t} WHERE e IS NULL", rows(200))]),
    "duckdb": ("""
import duckdb
duckdb.sql(f"COPY (SELECT '-infinity'::timestamp us, 'infinity'::date d UNION ALL SELECT '2000-01-01'::timestamp, '-infinity'::date ORDER BY us) TO '{path}' (FORMAT parquet)")
""", [("SELECT us, d FROM {t}", [("-infinity", "infinity"), ("2000-01-01 00:00:00", "-infinity")]), ("SELECT max(d), min(us) FROM {t}", [("infinity", "-infinity")]),
      ("SELECT count(*) FROM {t} WHERE d = 'infinity'", rows(1))]),
}


def write(folder):
    """Writes all files into `folder`: the cases by the names of their tables."""
    shutil.rmtree(folder, ignore_errors=True)
    pathlib.Path(folder).mkdir(parents=True)
    pathlib.Path(folder).chmod(0o755)
    found = {}
    for number, case in enumerate(cases()):
        found[f"c{number:03}"] = case
    for number, case in found.items():
        path = pathlib.Path(folder) / f"{number}.parquet"
        path.write_bytes(case.file)
        path.chmod(0o644)
    for python in _pythons():
        for library, (program, queries) in WRITTEN.items():
            table = f"w{len(found):03}"
            path = pathlib.Path(folder) / f"{table}.parquet"
            made = subprocess.run([python, "-c", f"path = {str(path)!r}\n{program}"], capture_output=True, text=True, check=False)
            if made.returncode == 0 and path.exists():
                path.chmod(0o644)
                version = subprocess.run([python, "-c", f"import {library}; print({library}.__version__)"], capture_output=True, text=True, check=True)
                found[table] = Case(f"{library} {version.stdout.strip()}", b"", queries)
    return found


def failure(expected, actual):
    """What is wrong with the outcomes of each engine, or None."""
    texts = []
    for engine, outcome in actual.items():
        if isinstance(expected, tuple):
            state, part = expected
            holds = getattr(outcome, "sqlstate", None) == state and part in outcome.message
        else:
            holds = getattr(outcome, "rows", None) == expected
        if not holds:
            found = getattr(outcome, "rows", None)
            texts.append(f"{engine}: {outcome if found is None else found[:8]}, expected {expected if isinstance(expected, tuple) else expected[:8]}")
    return "\n".join(texts) or None


def _pythons():
    made = subprocess.run([ROOT / "scripts" / "writers.sh"], stdout=subprocess.PIPE, text=True, check=False)
    return made.stdout.split() if made.returncode == 0 else []


def folders(folder):
    """Makes tables of other formats, one file each, below `folder`: their names, and the words for the format."""
    root = pathlib.Path(folder)
    shutil.rmtree(root, ignore_errors=True)
    made = {}
    for name, log, words in (("delta", "_delta_log/00000000000000000000.json", "Delta Lake"), ("iceberg", "metadata/v1.metadata.json", "Iceberg"),
                             ("hudi", ".hoodie/hoodie.properties", "Hudi")):
        (root / name / log).parent.mkdir(parents=True)
        (root / name / log).write_text("{}", encoding="utf-8")
        (root / name / "part=1").mkdir()
        for place in ("a.parquet", "part=1/b.parquet"):
            (root / name / place).write_bytes(File([required("a", INT32, [1, 2])]).bytes())
        made[name] = words
    (root / "plain").mkdir()
    (root / "plain" / "a.parquet").write_bytes(File([required("a", INT32, [1, 2])]).bytes())
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return made
