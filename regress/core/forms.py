"""Writes rows as Parquet files of a random form: codec, encodings, dictionaries, row groups, pages, indexes, several files.

A column is given as the texts that PostgreSQL prints (dates and times as numbers, see `mirror.py`). What has no Parquet
form (infinite dates, NaN among numerics, arrays of several dimensions) is told by `Unwritable`, and the column is written
as text then.
"""

import decimal
import re
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

DECIMAL_DIGITS_MAX = 38
_CODECS = ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]
_FILES_MAX = 3
# Every row group costs an engine some time, whatever it holds.
_ROW_GROUPS_MAX = 12
_NANOSECONDS_MAX = 9_000_000_000_000_000
_INT64_MAX = 2 ** 63 - 1
_ENCODINGS = {
    "integer": ["PLAIN", "DELTA_BINARY_PACKED"], "float": ["PLAIN", "BYTE_STREAM_SPLIT"],
    "text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"], "other": ["PLAIN"],
}


class Unwritable(Exception):
    """A value of a column has no Parquet form in its type."""


class Form:
    """One random form; `text` says which, for the report of a difference."""

    def __init__(self, choose):
        self.choose = choose
        self.codec = choose.choice(_CODECS)
        self.options = {
            "compression": self.codec,
            "data_page_version": choose.choice(["1.0", "2.0"]),
            "data_page_size": choose.choice([64, 1024, 1 << 20]),
            "dictionary_pagesize_limit": choose.choice([64, 4096, 1 << 20]),
            "write_batch_size": choose.choice([5, 100, 1024]),
            "write_statistics": choose.random() < 0.8,
            "write_page_index": choose.random() < 0.5,
            "write_page_checksum": choose.random() < 0.5,
            "store_decimal_as_integer": choose.random() < 0.5,
            "version": choose.choice(["2.4", "2.6"]),
        }
        self.files = choose.choice([1, 1, 1, 2, _FILES_MAX])
        self.dictionary = choose.choice([True, False, None])
        self.required = choose.random() < 0.5
        self.unit = choose.choice(["us", "us", "ms", "ns", "int96"])
        self.groups = choose.choice([1, 2, 5, _ROW_GROUPS_MAX])
        self.text = (f"{self.options}, files={self.files}, groups={self.groups}, dictionary={self.dictionary}, "
                     f"required={self.required}, unit={self.unit}")

    def arrow_type(self, column, values):
        """The Arrow type of a column with these values."""
        kind = column.kind
        if kind in ("timestamp", "timestamptz"):
            zone = "UTC" if kind == "timestamptz" else None
            return pa.timestamp(self._timestamp_unit(values), zone)
        if kind == "time":
            return pa.time32("ms") if self.unit == "ms" and not any(value % 1000 for value in values) else pa.time64("us")
        if kind == "text" and self.choose.random() < 0.2:
            return pa.large_string()
        simple = {"bool": pa.bool_(), "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(),
                  "float8": pa.float64(), "date": pa.date32(), "text": pa.string(), "bytea": pa.binary(), "uuid": pa.uuid()}
        return simple.get(kind) or pa.decimal128(column.precision, column.scale)

    def _timestamp_unit(self, values):
        if self.unit == "ms" and not any(value % 1000 for value in values):
            return "ms"
        if self.unit in ("ns", "int96") and all(abs(value) < _NANOSECONDS_MAX for value in values):
            return "ns"
        return "us"

    def write(self, folder, columns, texts):
        """Writes `texts` (a list for each column) below `folder`."""
        fields, arrays = [], []
        for column, values in zip(columns, texts):
            array = self._array(column, values)
            arrays.append(array)
            fields.append(pa.field(column.name, array.type, nullable=not (self.required and column.not_null)))
        table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        options = dict(self.options)
        self._encode(fields, options)
        int96 = self.unit == "int96" and not any(column.kind == "timestamptz" for column in columns)
        if int96 and all(field.type.unit == "ns" for field in fields if pa.types.is_timestamp(field.type)):
            options["use_deprecated_int96_timestamps"] = True
            # Which has no encoding but PLAIN and a dictionary.
            for field in fields:
                if pa.types.is_timestamp(field.type) and field.name in options.get("column_encoding", {}):
                    options["column_encoding"][field.name] = "PLAIN"
        share = -(-max(table.num_rows, 1) // self.files)
        for place in range(self.files):
            part = table.slice(place * share, share)
            path = folder / f"part-{place}.parquet"
            pq.write_table(part, path, row_group_size=max(1, -(-part.num_rows // self.groups)), **options)
            path.chmod(0o644)

    def _encode(self, fields, options):
        if self.dictionary is None:
            named = [field.name for field in fields if self.choose.random() < 0.5]
        else:
            named = [field.name for field in fields] if self.dictionary else []
        options["use_dictionary"] = named or False
        plain = {field.name: self.choose.choice(_ENCODINGS[_family(field.type)]) for field in fields if field.name not in named}
        # pyarrow finds nested columns by their paths alone.
        if plain and not any(pa.types.is_list(field.type) for field in fields):
            options["column_encoding"] = plain

    def _array(self, column, texts):
        if not column.array:
            values = [None if text is None else value_of(column, text) for text in texts]
            return _simple_array(values, self.arrow_type(column, [value for value in values if value is not None]))
        lists = [None if text is None else [None if item is None else value_of(column, item) for item in array_items(text)] for text in texts]
        arrow_type = self.arrow_type(column, [])
        offsets, flat = [0], []
        for items in lists:
            flat.extend(items or [])
            offsets.append(len(flat))
        missing = pa.array([items is None for items in lists], pa.bool_())
        if arrow_type == pa.large_string():
            arrow_type = pa.string()
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _simple_array(flat, arrow_type), mask=missing)


def _family(arrow_type):
    if pa.types.is_integer(arrow_type) or pa.types.is_temporal(arrow_type):
        return "integer"
    if pa.types.is_floating(arrow_type):
        return "float"
    return "text" if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) else "other"


def _simple_array(values, arrow_type):
    if pa.types.is_timestamp(arrow_type):
        factor = {"ms": (1, 1000), "us": (1, 1), "ns": (1000, 1)}[arrow_type.unit]
        values = [None if value is None else value * factor[0] // factor[1] for value in values]
        return pa.array(values, pa.int64()).cast(arrow_type)
    if pa.types.is_time64(arrow_type):
        return pa.array(values, pa.int64()).cast(arrow_type)
    if pa.types.is_time32(arrow_type):
        return pa.array([None if value is None else value // 1000 for value in values], pa.int32()).cast(arrow_type)
    if pa.types.is_date32(arrow_type):
        return pa.array(values, pa.int32()).cast(arrow_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, pa.array(values, arrow_type.storage_type))
    return pa.array(values, arrow_type)


def value_of(column, text):
    """A value as Arrow holds it."""
    kind = column.kind
    try:
        if kind in ("int2", "int4", "int8", "date", "time", "timestamp", "timestamptz"):
            value = int(decimal.Decimal(text))
            if abs(value) > _INT64_MAX:
                raise Unwritable(text)
            return value
        if kind in ("float4", "float8"):
            return float(text)
        if kind == "numeric":
            if not decimal.Decimal(text).is_finite():
                raise Unwritable(text)
            return decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-column.scale), context=decimal.Context(prec=80))
        if kind == "bool":
            return text in ("t", "true")
        if kind == "bytea":
            return bytes.fromhex(text[2:])
        if kind == "uuid":
            return uuid.UUID(text).bytes
    except (ValueError, ArithmeticError) as error:
        raise Unwritable(text) from error
    return text


def decimal_shape(texts):
    """Digits and scale that hold all of these numerics exactly."""
    whole = scale = 0
    for text in texts:
        found = re.fullmatch(r"-?(\d+)(?:\.(\d+))?", text)
        if not found:
            raise Unwritable(text)
        whole, scale = max(whole, len(found[1].lstrip("0"))), max(scale, len(found[2] or ""))
    if whole + scale > DECIMAL_DIGITS_MAX:
        raise Unwritable(f"{whole + scale} digits")
    return max(whole + scale, 1), scale


def array_items(text):
    """The items of an array of one dimension as PostgreSQL prints it."""
    if not text.startswith("{") or not text.endswith("}"):
        raise Unwritable(text)
    items, place, end = [], 1, len(text) - 1
    while place < end:
        if text[place] == "{":
            raise Unwritable(text)
        if text[place] == '"':
            found = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match(text, place)
            items.append(re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL))
        else:
            found = re.compile(r"[^,}]*").match(text, place)
            items.append(None if found[0].upper() == "NULL" else found[0])
        place = found.end() + 1
    return items
