"""Writes Parquet files of which every byte is chosen: what no library at hand writes, or writes no more.

A file is columns, each with its place in the schema and its pages. What is not said is what a careful writer says: headers that
are true, statistics only where they are given, an offset index only where it is asked for.

    File([Column("a", INT32, [data(plain(INT32, [1, 2]), 2)])]).bytes()

Source: parquet.thrift; Thrift's compact protocol; Encodings.md.
"""

import struct

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA, DELTA_LENGTH, DELTA_BYTES, RLE_DICTIONARY, SPLIT = 0, 2, 3, 4, 5, 6, 7, 8, 9
UNCOMPRESSED, LZ4 = 0, 5
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
# ConvertedType.
UTF8, LIST, DECIMAL, DATE, INT_8, INT_16, UINT_8, UINT_16 = 0, 3, 5, 6, 15, 16, 11, 12
TIMESTAMP_MILLIS, TIMESTAMP_MICROS = 9, 10


def varint(value):
    """A number in groups of seven bits."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def zigzag(value):
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


class I8(int):
    """An integer that is written as one byte."""


class I64(int):
    """An integer of 64 bits, which other readers tell from those of 32."""


def encoded(value):
    """The type's code and the bytes of a value: a number, a text, bytes, a list of structures, a structure."""
    if isinstance(value, I8):
        return 3, struct.pack("b", value)
    if isinstance(value, int):
        return 6 if isinstance(value, I64) else 5, zigzag(value)
    if isinstance(value, (str, bytes)):
        data = value.encode() if isinstance(value, str) else value
        return 8, varint(len(data)) + data
    if isinstance(value, dict):
        return 12, structure(value)
    items = [encoded(item) for item in value]
    code = items[0][0] if items else 12
    head = bytes([len(items) << 4 | code]) if len(items) < 15 else bytes([0xF0 | code]) + varint(len(items))
    return 9, head + b"".join(data for _, data in items)


def structure(fields):
    """A structure of fields by number; those that are None are left out."""
    out, before = b"", 0
    for number, value in sorted(fields.items()):
        if value is None:
            continue
        code, data = (1 if value else 2, b"") if isinstance(value, bool) else encoded(value)
        delta = number - before
        out += bytes([delta << 4 | code]) if delta < 16 else bytes([code]) + zigzag(number)
        out += data
        before = number
    return out + b"\0"


# ---- values ----

def plain(physical, values):
    """Values one after another."""
    if physical == BYTE_ARRAY:
        return b"".join(struct.pack("<I", len(value)) + value for value in values)
    if physical == FIXED:
        return b"".join(values)
    if physical == INT96:
        return b"".join(struct.pack("<qi", nanoseconds, day) for nanoseconds, day in values)
    return b"".join(struct.pack({INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}[physical], value) for value in values)


def deltas(values, block=128, parts=4, count=None):
    """Differences; `count` is what the header says of their number, if it is not the truth."""
    out = varint(block) + varint(parts) + varint(len(values) if count is None else count) + zigzag(values[0] if values else 0)
    differences = [after - before for before, after in zip(values, values[1:])]
    size = block // parts
    for first in range(0, len(differences), block):
        some = differences[first:first + block]
        least = min(some)
        split = [some[at:at + size] for at in range(0, block, size)]
        widths = [max((value - least).bit_length() for value in part) if part else 0 for part in split]
        out += zigzag(least) + bytes(widths)
        for part, width in zip(split, widths):
            if part:
                out += packed([value - least for value in part] + [0] * (size - len(part)), width)
    return out


def packed(values, width):
    """Numbers of some bits, from the lowest bit of each byte on."""
    bits = sum(value << place * width for place, value in enumerate(values))
    return bits.to_bytes((len(values) * width + 7) // 8, "little")


def packed_high(values, width):
    """The same from the highest bit on, as older writers packed levels."""
    text = "".join(format(value, f"0{width}b") for value in values)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[at:at + 8], 2) for at in range(0, len(text), 8))


def run(value, count, width=1):
    """A run of one value."""
    return varint(count << 1) + value.to_bytes((width + 7) // 8, "little")


def packed_run(values, width=1):
    """A run of packed ones."""
    groups = (len(values) + 7) // 8
    return varint(groups << 1 | 1) + packed(list(values) + [0] * (groups * 8 - len(values)), width)


def prefixed(runs):
    """Levels of a page V1."""
    return struct.pack("<I", len(runs)) + runs


def frames(*parts):
    """LZ4 as Hadoop frames it: each part as a block that only repeats literals."""
    out = b""
    for part in parts:
        block = bytes([min(len(part), 15) << 4])
        if len(part) >= 15:
            rest = len(part) - 15
            block += b"\xff" * (rest // 255) + bytes([rest % 255])
        block += part
        out += struct.pack(">II", len(part), len(block)) + block
    return out


# ---- pages ----

def data(body, count, encoding=PLAIN, levels=RLE, size=None):
    """A data page V1 of so many values, NULLs counted."""
    header = {1: 0, 2: len(body) if size is None else size, 3: len(body), 5: {1: count, 2: encoding, 3: levels, 4: levels}}
    return Page(structure(header) + body, count, False)


def data_v2(values, count, encoding=PLAIN, nulls=0, definitions=b"", repetitions=b"", rows=None, compressed=None):
    """A data page V2; `compressed` are the values as they are stored, if they are not as they are."""
    body = repetitions + definitions + (values if compressed is None else compressed)
    kind = {1: count, 2: nulls, 3: count if rows is None else rows, 4: encoding, 5: len(definitions), 6: len(repetitions), 7: compressed is not None}
    header = {1: 3, 2: len(repetitions) + len(definitions) + len(values), 3: len(body), 8: kind}
    return Page(structure(header) + body, count, False)


def dictionary(body, count, size=None):
    """A dictionary page."""
    header = {1: 2, 2: len(body) if size is None else size, 3: len(body), 7: {1: count, 2: PLAIN}}
    return Page(structure(header) + body, 0, True)


class Page:
    """The bytes of a page, and how many values it has."""

    def __init__(self, raw, count, is_dictionary):
        self.raw, self.count, self.is_dictionary = raw, count, is_dictionary


# ---- files ----

class Column:
    """A column: its place in the schema, and its pages, of one row group or of several (a list each)."""

    def __init__(self, name, physical, pages, repetition=REQUIRED, converted=None, logical=None, length=None, scale=None, precision=None,
                 codec=UNCOMPRESSED, statistics=None, dictionary_offset="true", first_rows=None, bounds=None, uncompressed=None, parents=(),
                 children=None):
        self.name, self.physical, self.repetition = name, physical, repetition
        self.groups = pages if pages and isinstance(pages[0], list) else [pages]
        self.converted, self.logical, self.length, self.scale, self.precision = converted, logical, length, scale, precision
        self.codec, self.statistics, self.dictionary_offset = codec, statistics, dictionary_offset
        self.first_rows, self.bounds, self.uncompressed, self.parents, self.children = first_rows, bounds, uncompressed, parents, children

    def elements(self):
        """Its part of the schema."""
        leaf = {1: self.physical, 2: self.length, 3: self.repetition, 4: self.name, 6: self.converted, 7: self.scale, 8: self.precision, 10: self.logical}
        return [*({3: repetition, 4: name, 5: 1, 6: converted} for name, repetition, converted in self.parents), leaf]

    @property
    def path(self):
        return [*(name for name, *_ in self.parents), self.name]


class File:
    """A file of columns. `rows`: of each row group, if they are not the values of the first column's pages."""

    def __init__(self, columns, rows=None, created_by="parquet-cpp-arrow version 26.0.1", extra=None):
        self.columns, self.created_by, self.extra = columns, created_by, extra or {}
        self.rows = rows or [sum(page.count for page in group) for group in columns[0].groups]

    def bytes(self):
        out, groups, indexes = b"PAR1", [], []
        for number, rows in enumerate(self.rows):
            chunks = []
            for column in self.columns:
                start, offsets = len(out), []
                for page in column.groups[number]:
                    offsets.append((len(out), page))
                    out += page.raw
                first = next((at for at, page in offsets if not page.is_dictionary), start)
                dictionary_at = start if offsets and offsets[0][1].is_dictionary else None
                if column.dictionary_offset != "true":
                    dictionary_at = column.dictionary_offset
                size = len(out) - start
                count = sum(page.count for page in column.groups[number])
                metadata = {1: column.physical, 2: [PLAIN, RLE], 3: column.path, 4: column.codec, 5: I64(count),
                            6: I64(size if column.uncompressed is None else column.uncompressed), 7: I64(size), 9: I64(first),
                            11: None if dictionary_at is None else I64(dictionary_at), 12: column.statistics}
                chunk = {2: I64(0), 3: metadata}
                chunks.append(chunk)
                if column.first_rows is not None:
                    pages = [(at, page) for at, page in offsets if not page.is_dictionary]
                    indexes.append((chunk, pages, column))
            groups.append({1: chunks, 2: I64(sum(chunk[3][7] for chunk in chunks)), 3: I64(rows)})
        for chunk, pages, column in indexes:
            index = structure({1: [{1: I64(at), 2: len(page.raw), 3: I64(first)} for (at, page), first in zip(pages, column.first_rows)]})
            chunk[4], chunk[5] = I64(len(out)), len(index)
            out += index
            if column.bounds is not None:
                index = column_index(column.bounds)
                chunk[6], chunk[7] = I64(len(out)), len(index)
                out += index
        elements = [{4: "schema", 5: len(self.columns)}]
        for column in self.columns:
            elements += column.elements()
        footer = structure({1: 1, 2: elements, 3: I64(sum(self.rows)), 4: groups, 6: self.created_by,
                            7: [{1: {}} for _ in self.columns], **self.extra})
        return out + footer + struct.pack("<I", len(footer)) + b"PAR1"


def column_index(bounds):
    """The least and the greatest value of each page, encoded."""
    count = len(bounds)
    flags = (bytes([count << 4 | 2]) if count < 15 else b"\xf2" + varint(count)) + b"\x02" * count
    out = b"\x19" + flags
    for side in range(2):
        out += b"\x19" + encoded([pair[side] for pair in bounds])[1]
    # The order: ascending; and the counts of NULLs.
    return out + b"\x15\x02" + b"\x19" + encoded([I64(0)] * count)[1] + b"\0"
