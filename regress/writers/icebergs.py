"""Writes small tables of Iceberg, and notes the rows that they have at each of some snapshots.

By the library pyiceberg: tables of versions 1 and 2 with partitions of each transform, columns that are added, renamed, dropped and
widened, deleted rows, branches and tags, files of others that are added. What it does not write is written here, by the specification:
position and equality deletes, and tables of version 3 with deletion vectors and defaults.
"""

import copy
import datetime
import json
import pathlib
import shutil
import struct
import uuid
import zlib

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as t
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from lake_rows import SQL, States, random_row, roaring

UTC = datetime.timezone.utc
NAMES = ["id", "kind", "small", "n", "amount", "wide", "f", "r", "flag", "day", "at", "local", "label", "raw", "tags", "spot"]
TYPES = {**SQL, "small": "integer", "words": "text", "clock": "time", "key": "uuid", "four": "bytea"}


def field(number, name, kind, required=False):
    return t.NestedField(number, name, kind, required=required)


PLACES = t.ListType(element_id=21, element_type=t.StructType(field(22, "y", t.LongType())), element_required=False)
SCHEMA = Schema(
    field(1, "id", t.LongType(), True), field(2, "kind", t.StringType()), field(3, "small", t.IntegerType()), field(4, "n", t.IntegerType()),
    field(5, "amount", t.DecimalType(12, 2)), field(6, "wide", t.DecimalType(30, 5)), field(7, "f", t.DoubleType()), field(8, "r", t.FloatType()),
    field(9, "flag", t.BooleanType()), field(10, "day", t.DateType()), field(11, "at", t.TimestamptzType()), field(12, "local", t.TimestampType()),
    field(13, "label", t.StringType()), field(14, "raw", t.BinaryType()),
    field(15, "tags", t.ListType(element_id=16, element_type=t.StringType(), element_required=False)),
    field(17, "spot", t.StructType(field(18, "x", t.IntegerType()), field(19, "name", t.StringType()), field(20, "path", PLACES))),
)
# Tables by their names: the version of the format, and transforms of columns.
TABLES = {
    "plain": (2, {}), "plain_first": (1, {}), "parts": (2, {"kind": "identity", "id": "bucket[4]"}), "parts_first": (1, {"flag": "identity"}),
    "times": (2, {"at": "day", "local": "year"}), "months": (2, {"day": "month", "at": "hour"}),
    "cuts": (2, {"n": "truncate[1000000000]", "label": "truncate[1]", "amount": "truncate[500000000]"}),
    "values": (2, {"small": "identity", "day": "identity", "amount": "identity", "local": "identity"}),
}


def narrow(row, choose):
    """A row with few values in the columns that tables are divided by."""
    moments = [datetime.datetime(1969, 12, 31, 23, 30, 0, 1), datetime.datetime(1970, 1, 1), datetime.datetime(2024, 2, 29, 12, 0, 0, 5), None]
    chosen = choose.choice(moments)
    row["at"], row["local"] = chosen and chosen.replace(tzinfo=UTC), choose.choice(moments)
    row["day"] = choose.choice([datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(2024, 3, 1), None])
    row["small"] = choose.choice([None, -1, 7])
    if row["amount"] is not None:
        row["amount"] = choose.choice([row["amount"].copy_abs() * 0 + 5, -row["amount"].copy_abs() * 0 - 1])
    return row


def arrow_of(rows, table):
    return pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema(), include_field_ids=False))


def some_row(choose, number):
    """A random row. Of structs in it pyiceberg writes empty lists in place of missing ones."""
    row = random_row(choose, number)
    if row["spot"] and row["spot"]["path"] is None:
        row["spot"]["path"] = []
    return row


def moved(row, z=None):
    """A row whose struct has the names of its fields that it gets later."""
    spot = row["spot"]
    if spot:
        path = spot["path"] and [item and {"w": item["y"]} for item in spot["path"]]
        spot = {"x": spot["x"], "words": spot["name"], "path": path, "z": z}
    return {**row, "spot": spot}


def by_library(catalog, states, choose):
    for name, (version, transforms) in TABLES.items():
        fields = [PartitionField(SCHEMA.find_field(column).field_id, 1000 + place, parse_transform(transform), f"{column}_{place}"
                                 if transform != "identity" else column) for place, (column, transform) in enumerate(transforms.items())]
        properties = {"format-version": str(version)}
        if name == "plain":
            properties["write.metadata.compression-codec"] = "gzip"
        table = catalog.create_table(f"lake.{name}", SCHEMA, partition_spec=PartitionSpec(*fields), properties=properties)
        rows, number = [], 0
        for _ in range(2):
            more = [some_row(choose, number + place) for place in range(choose.randrange(1, 12 if transforms else 40))]
            more = [narrow(row, choose) for row in more] if transforms else more
            number += len(more)
            rows = rows + more
            table.append(arrow_of(more, table))
        states.add(name, rows, table.current_snapshot().snapshot_id, NAMES)
        bound = choose.randrange(-100, 100)
        table.delete(f"id > 3 and n > {bound}")
        rows = [row for row in rows if not (row["id"] > 3 and row["n"] is not None and row["n"] > bound)]
        snapshot = table.current_snapshot().snapshot_id
        states.add(name, rows, snapshot, NAMES)
        if name == "plain":
            table.manage_snapshots().create_tag(snapshot, "before").create_branch(snapshot, "other").commit()
            states.add(name, rows, "before", NAMES)
        with table.update_schema() as update:
            update.add_column("extra", t.IntegerType())
            update.rename_column("raw", "bytes")
            update.rename_column(("spot", "name"), "words")
            update.rename_column(("spot", "path", "element", "y"), "w")
            update.add_column(("spot", "z"), t.IntegerType())
            update.update_column("n", t.LongType())
            update.update_column("r", t.DoubleType())
            update.update_column("wide", t.DecimalType(32, 5))
            update.delete_column("f")
        if name == "parts":
            with table.update_spec() as update:
                update.add_field("flag", parse_transform("identity"), "flag")
                update.remove_field("kind")
        columns = [{"raw": "bytes"}.get(column, column) for column in NAMES if column != "f"] + ["extra"]
        rows = [{**moved(row), "bytes": row["raw"]} for row in rows]
        more = [moved(some_row(choose, number + place), place) for place in range(12)]
        more = [{**narrow(row, choose), "n": choose.randrange(2**40), "extra": place} for place, row in enumerate(more)]
        table.append(arrow_of([{**{column: row.get(column) for column in columns}, "bytes": row["raw"]} for row in more], table))
        wider = {"n": "bigint", "r": "double precision", "wide": "numeric(32,5)", "bytes": "bytea"}
        states.add(name, rows + [{**row, "bytes": row["raw"]} for row in more], None, columns, wider)


def other_types(catalog, states, choose):
    schema = Schema(field(1, "id", t.LongType(), True), field(2, "kind", t.StringType()), field(3, "n", t.IntegerType()),
                    field(4, "clock", t.TimeType()), field(5, "key", t.UUIDType()), field(6, "four", t.FixedType(4)))
    for name, columns in (("kinds", []), ("kind_parts", ["clock", "four"])):
        fields = [PartitionField(schema.find_field(column).field_id, 1000 + place, parse_transform("identity"), column)
                  for place, column in enumerate(columns)]
        table = catalog.create_table(f"lake.{name}", schema, partition_spec=PartitionSpec(*fields))
        rows = [{"id": number, "kind": None, "n": number, "clock": choose.choice([datetime.time(23, 59, 59, 999999), datetime.time(0), None]),
                 "key": choose.choice([uuid.UUID(int=1 << 127), None]), "four": choose.choice([b"\0\xff\1 ", None])} for number in range(20)]
        table.append(pa.Table.from_pylist([{**row, "key": row["key"] and row["key"].bytes} for row in rows], schema=schema_to_pyarrow(schema, include_field_ids=False)))
        states.add(name, rows, None, list(rows[0]))


def added_files(catalog, states, choose, folder):
    """Files without ids, which are told by names that the table lists: a column has another name since."""
    rows = [random_row(choose, number) for number in range(30)]
    schema = Schema(*[SCHEMA.find_field(column) for column in ("id", "kind", "n", "label")])
    table = catalog.create_table("lake.added", schema)
    names = ["id", "kind", "n", "label"]
    path = folder / "iceberg-written" / "lake" / "added" / "other.parquet"
    pq.write_table(pa.Table.from_pylist([{name: row[name] for name in names} for row in rows],
                                        schema=pa.schema([pa.field("id", pa.int64(), False), ("kind", pa.string()), ("n", pa.int32()), ("label", pa.string())])), path)
    table.add_files([path.as_uri()])
    with table.update_schema() as update:
        update.rename_column("label", "words")
    more = [random_row(choose, 100 + number) for number in range(5)]
    table.append(arrow_of([{"id": row["id"], "kind": row["kind"], "n": row["n"], "words": row["label"]} for row in more], table))
    states.add("added", [{**row, "words": row["label"]} for row in rows + more], None, ["id", "kind", "n", "words"])


def manifest_schema(partition):
    def optional(name, kind, number):
        return {"name": name, "type": ["null", kind], "default": None, "field-id": number}

    def by_column(name, kind, number, key, value):
        entry = {"type": "record", "name": f"k{key}_v{value}", "fields": [{"name": "key", "type": "int", "field-id": key}, {"name": "value", "type": kind, "field-id": value}]}
        return optional(name, {"type": "array", "items": entry, "logicalType": "map"}, number)

    file = [{"name": "content", "type": "int", "field-id": 134}, {"name": "file_path", "type": "string", "field-id": 100},
            {"name": "file_format", "type": "string", "field-id": 101},
            {"name": "partition", "type": {"type": "record", "name": "r102", "fields": partition}, "field-id": 102},
            {"name": "record_count", "type": "long", "field-id": 103}, {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
            by_column("lower_bounds", "bytes", 125, 126, 127), by_column("upper_bounds", "bytes", 128, 129, 130),
            optional("key_metadata", "bytes", 131), optional("equality_ids", {"type": "array", "items": "int", "element-id": 136}, 135),
            optional("referenced_data_file", "string", 143), optional("content_offset", "long", 144), optional("content_size_in_bytes", "long", 145)]
    return {"type": "record", "name": "manifest_entry", "fields": [
        {"name": "status", "type": "int", "field-id": 0}, optional("snapshot_id", "long", 1), optional("sequence_number", "long", 3),
        optional("file_sequence_number", "long", 4), {"name": "data_file", "type": {"type": "record", "name": "r2", "fields": file}, "field-id": 2}]}


class Commits:
    """Commits to a table that are written by hand."""

    def __init__(self, table, folder, choose):
        self.folder, self.choose = folder, choose
        path = pathlib.Path(table.metadata_location.removeprefix("file://"))
        self.number, self.metadata = int(path.name.split("-")[0]), json.loads(path.read_text(encoding="utf-8"))
        self.spec, self.schema = table.spec(), table.schema()
        self.partition = [{"name": part.name, "type": ["null", "string"], "default": None, "field-id": part.field_id} for part in self.spec.fields]

    def url(self, path):
        return path.as_uri()

    def new_path(self, folder, end):
        return self.folder / folder / f"{uuid.UUID(int=self.choose.getrandbits(128))}{end}"

    def manifests(self):
        """The manifests of the current snapshot."""
        snapshot = next(known for known in self.metadata["snapshots"] if known["snapshot-id"] == self.metadata["current-snapshot-id"])
        with open(snapshot["manifest-list"].removeprefix("file://"), "rb") as file:
            reader = fastavro.reader(file)
            return list(reader), reader.writer_schema, dict(reader.metadata)

    def data_files(self):
        """The live data files of the current snapshot with the rows' ids, by their paths."""
        found = {}
        for manifest in self.manifests()[0]:
            if manifest["content"] == 1:
                continue
            with open(manifest["manifest_path"].removeprefix("file://"), "rb") as file:
                for entry in fastavro.reader(file):
                    if entry["status"] != 2:
                        file_path = entry["data_file"]["file_path"]
                        ids = pq.read_table(file_path.removeprefix("file://"), columns=["id"], partitioning=None).column("id").to_pylist()
                        found[file_path] = (ids, entry["data_file"]["partition"])
        return dict(sorted(found.items()))

    def entry(self, path, row_count, content=0, partition=None, file_format="PARQUET", **more):
        values = {"content": content, "file_path": self.url(path), "file_format": file_format, "partition": partition or {}, "record_count": row_count,
                  "file_size_in_bytes": path.stat().st_size, "lower_bounds": None, "upper_bounds": None, "key_metadata": None, "equality_ids": None,
                  "referenced_data_file": None, "content_offset": None, "content_size_in_bytes": None, **more}
        return {"status": 1, "snapshot_id": None, "sequence_number": None, "file_sequence_number": None, "data_file": values}

    def commit(self, rows=(), deletes=(), drop=(), codec="deflate", inherit=True):
        """A snapshot with more files, and without the data files `drop`; its id."""
        listed, schema, properties = self.manifests()
        snapshot, sequence = self.choose.getrandbits(62), self.metadata["last-sequence-number"] + 1
        kept = []
        for manifest in listed:
            path = pathlib.Path(manifest["manifest_path"].removeprefix("file://"))
            with open(path, "rb") as file:
                reader = fastavro.reader(file)
                entries, entry_schema, entry_properties = list(reader), reader.writer_schema, dict(reader.metadata)
            if any(entry["data_file"]["file_path"] in drop for entry in entries):
                # The manifest again: files that stay have numbers of their own then, and the other is marked.
                for entry in entries:
                    gone = entry["data_file"]["file_path"] in drop
                    entry.update(status=2 if gone else 0, sequence_number=entry["sequence_number"] or manifest["sequence_number"],
                                 file_sequence_number=entry["file_sequence_number"] or manifest["sequence_number"])
                manifest = {**manifest, **self.write_manifest(entries, manifest["content"], snapshot, sequence, codec, entry_schema, entry_properties)}
            kept.append(manifest)
        for content, entries in ((0, rows), (1, deletes)):
            if entries:
                if not inherit:
                    for entry in entries:
                        entry.update(sequence_number=sequence, file_sequence_number=sequence, status=0)
                new = self.write_manifest(list(entries), content, snapshot, sequence, codec)
                template = {name: 0 if name.endswith("count") else None for name in kept[0]}
                kept.append({**template, "partition_spec_id": self.spec.spec_id, "content": content, **new})
        path = self.new_path("metadata", ".avro")
        with open(path, "wb") as file:
            fastavro.writer(file, schema, kept, codec=codec, metadata={name: value for name, value in properties.items() if not name.startswith("avro.")})
        time = self.metadata["last-updated-ms"] + 1000
        self.metadata["snapshots"].append({
            "snapshot-id": snapshot, "parent-snapshot-id": self.metadata["current-snapshot-id"], "sequence-number": sequence, "timestamp-ms": time,
            "manifest-list": self.url(path), "summary": {"operation": "overwrite"}, "schema-id": self.metadata["current-schema-id"]})
        self.metadata.update({"current-snapshot-id": snapshot, "last-sequence-number": sequence, "last-updated-ms": time})
        self.metadata["snapshot-log"].append({"snapshot-id": snapshot, "timestamp-ms": time})
        self.metadata["refs"]["main"]["snapshot-id"] = snapshot
        self.save()
        return snapshot

    def write_manifest(self, entries, content, snapshot, sequence, codec, schema=None, properties=None):
        path = self.new_path("metadata", "-m0.avro")
        said = {"schema": json.dumps(self.metadata["schemas"][-1]), "partition-spec": "[]", "partition-spec-id": str(self.spec.spec_id),
                "format-version": "2", "content": "deletes" if content else "data"}
        said.update({name: value for name, value in (properties or {}).items() if not name.startswith("avro.")})
        with open(path, "wb") as file:
            fastavro.writer(file, schema or manifest_schema(self.partition), entries, codec=codec, metadata=said)
        return {"manifest_path": self.url(path), "manifest_length": path.stat().st_size, "sequence_number": sequence, "min_sequence_number": sequence,
                "added_snapshot_id": snapshot}

    def save(self):
        self.number += 1
        path = self.folder / "metadata" / f"{self.number:05d}-{uuid.UUID(int=self.choose.getrandbits(128))}.metadata.json"
        path.write_text(json.dumps(self.metadata), encoding="utf-8")

    def write_rows(self, rows, columns, partition=None):
        """A data file."""
        path = self.new_path("data", ".parquet")
        schema = schema_to_pyarrow(Schema(*[self.schema.find_field(column) for column in columns]))
        pq.write_table(pa.Table.from_pylist([{column: row[column] for column in columns} for row in rows], schema=schema), path, row_group_size=16)
        return self.entry(path, len(rows), partition=partition)

    def write_positions(self, positions, partition=None, **more):
        """A file of the numbers of rows, by the paths of their files."""
        path = self.new_path("data", "-deletes.parquet")
        schema = pa.schema([pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}), pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"})])
        rows = sorted((name, number) for name, numbers in positions.items() for number in numbers)
        pq.write_table(pa.table([[name for name, _ in rows], [number for _, number in rows]], schema=schema), path)
        names = [name.encode() for name in positions]
        bounds = {"lower_bounds": [{"key": 2147483546, "value": min(names)}], "upper_bounds": [{"key": 2147483546, "value": max(names)}]}
        return self.entry(path, len(rows), 1, partition, **bounds, **more)

    def write_equalities(self, rows, columns, partition=None):
        """A file of the values that deleted rows have."""
        path = self.new_path("data", "-equal.parquet")
        schema = schema_to_pyarrow(Schema(*[self.schema.find_field(column) for column in columns]))
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        ids = [self.schema.find_field(column).field_id for column in columns]
        return self.entry(path, len(rows), 2, partition, equality_ids=ids)

    def write_vectors(self, rows_of):
        """A file of deletion vectors, by the paths of their files."""
        path, blobs, entries = self.new_path("data", ".puffin"), [], []
        content = b"PFA1"
        for name, (numbers, partition) in rows_of.items():
            vector = roaring(numbers)
            framed = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
            blobs.append({"type": "deletion-vector-v1", "fields": [2147483545], "snapshot-id": -1, "sequence-number": -1, "offset": len(content),
                          "length": len(framed), "properties": {"referenced-data-file": name, "cardinality": str(len(numbers))}})
            entries.append((name, len(numbers), partition, len(content), len(framed)))
            content += framed
        footer = json.dumps({"blobs": blobs}).encode()
        path.write_bytes(content + b"PFA1" + footer + struct.pack("<II", len(footer), 0) + b"PFA1")
        return [self.entry(path, count, 1, partition, "PUFFIN", referenced_data_file=name, content_offset=offset, content_size_in_bytes=size)
                for name, count, partition, offset, size in entries]


COLUMNS = ["id", "kind", "n", "amount", "day", "label"]


def deleted_rows(catalog, states, choose, root):
    """Rows that are deleted by numbers, by values and by vectors, one after the other."""
    for name, is_partitioned in (("deletes", False), ("deletes_parts", True)):
        schema = Schema(*[SCHEMA.find_field(column) for column in COLUMNS])
        spec = PartitionSpec(PartitionField(2, 1000, parse_transform("identity"), "kind")) if is_partitioned else PartitionSpec()
        table = catalog.create_table(f"lake.{name}", schema, partition_spec=spec)
        rows = []
        for _ in range(3):
            more = [{**random_row(choose, len(rows) + place), "n": choose.choice([None, 1, 2, 3])} for place in range(60)]
            table.append(arrow_of([{column: row[column] for column in COLUMNS} for row in more], table))
            rows += more
        hand = Commits(table, root / name, choose)

        def note(snapshot):
            states.add(name, rows, snapshot, COLUMNS)

        def without(gone):
            return [row for row in rows if row["id"] not in gone]

        # Numbers, of several files at once, and of one that is named.
        files = hand.data_files()
        by_partition = {}
        for path, (ids, partition) in files.items():
            numbers = choose.sample(range(len(ids)), len(ids) // 4)
            if numbers:
                by_partition.setdefault(json.dumps(partition), {})[path] = numbers
            rows = without({ids[number] for number in numbers})
        note(hand.commit(deletes=[hand.write_positions(positions, json.loads(partition)) for partition, positions in by_partition.items()]))
        path, (ids, partition) = choose.choice(list(files.items()))
        rows = without(set(ids[:3]))
        note(hand.commit(deletes=[hand.write_positions({path: [0, 1, 2][:len(ids)]}, partition, referenced_data_file=path)], codec="null"))
        # Values: older rows with them are gone, and rows of the same snapshot and later ones stay.
        gone = {row["id"] for row in choose.sample(rows, 20)}
        again = [{**random_row(choose, number), "kind": "a"} for number in sorted(gone)[:8]]
        if is_partitioned:
            kinds = {row["kind"] for row in rows if row["id"] in gone}
            deletes = [hand.write_equalities([{"id": row["id"]} for row in rows if row["id"] in gone and row["kind"] == kind], ["id"], {"kind": kind})
                       for kind in sorted(kinds, key=str)]
        else:
            deletes = [hand.write_equalities([{"id": number} for number in sorted(gone)], ["id"])]
        part = {"kind": "a"} if is_partitioned else {}
        rows = without(gone) + again
        written = hand.write_rows(again, COLUMNS, part)
        again_path = written["data_file"]["file_path"]
        note(hand.commit(rows=[written], deletes=deletes, codec="snappy", inherit=False))
        more = [{**random_row(choose, 1000 + place), "kind": "a", "n": choose.choice([None, 1])} for place in range(20)]
        rows = rows + more
        note(hand.commit(rows=[hand.write_rows(more, COLUMNS, part)], codec="zstandard"))
        # Of two columns, with NULL, which equals NULL.
        rows = [row for row in rows if (row["kind"], row["n"]) not in (("a", None), ("a", 2))]
        note(hand.commit(deletes=[hand.write_equalities([{"kind": "a", "n": None}, {"kind": "a", "n": 2}], ["kind", "n"], part)]))
        # A file that is gone, with deletes that concern it.
        path, (ids, _) = choose.choice([item for item in files.items() if item[0] in hand.data_files()])
        left = set(ids) - {row["id"] for row in again + more}
        rows = [row for row in rows if row["id"] not in left or row in again]
        note(hand.commit(drop={path}))
        # Vectors, in a table that has position deletes of before.
        hand.metadata.update({"format-version": 3, "next-row-id": 1000})
        files, vectors = hand.data_files(), {}
        alive, anew = {row["id"] for row in rows}, {row["id"] for row in again}
        for path, (ids, partition) in list(files.items())[::2]:
            # Of a row that was deleted and written again, only the new one is there.
            living = [identity in alive and (identity not in anew or path == again_path) for identity in ids]
            # The vector has the numbers of rows that are gone already, and more.
            numbers = {number for number in range(len(ids)) if not living[number]} | set(choose.sample(range(len(ids)), len(ids) // 5))
            if numbers:
                vectors[path] = (sorted(numbers), partition)
                gone = {ids[number] for number in numbers if living[number]}
                rows = without(gone)
        note(hand.commit(deletes=hand.write_vectors(vectors)))
        states.add(name, rows, None, COLUMNS)


def defaults(catalog, states, choose, root):
    """Columns with a value in files that lack them; files that lack the column of their identity partition."""
    schema = Schema(*[SCHEMA.find_field(column) for column in COLUMNS])
    table = catalog.create_table("lake.defaults", schema, partition_spec=PartitionSpec(PartitionField(2, 1000, parse_transform("identity"), "kind")))
    rows = [{**random_row(choose, number), "kind": "a"} for number in range(20)]
    table.append(arrow_of([{column: row[column] for column in COLUMNS} for row in rows], table))
    hand = Commits(table, root / "defaults", choose)
    more = [{**random_row(choose, 20 + number), "kind": kind} for number, kind in enumerate(["d/e", "d/e", None])]
    stored = [column for column in COLUMNS if column != "kind"]
    hand.metadata["format-version"] = 3
    hand.metadata["next-row-id"] = 0
    added = [("extra", "int", 7, "integer"), ("words", "string", "none", "text"), ("at", "timestamptz", "2024-02-29T12:00:00.000001+00:00", "timestamptz"),
             ("wide", "decimal(30,5)", "-1.50000", "numeric(30,5)"), ("bytes", "binary", "00ff", "bytea"), ("f", "double", 0.5, "double precision")]
    fields = [{"id": 100 + place, "name": name, "required": False, "type": kind, "initial-default": value, "write-default": value}
              for place, (name, kind, value, _) in enumerate(added)]
    newest = copy.deepcopy(hand.metadata["schemas"][-1])
    newest["fields"] += fields
    newest["schema-id"] += 1
    hand.metadata["schemas"].append(newest)
    hand.metadata.update({"current-schema-id": newest["schema-id"], "last-column-id": 200})
    hand.commit(rows=[hand.write_rows(more[:2], stored, {"kind": "d/e"}), hand.write_rows(more[2:], stored, {"kind": None})])
    values = {"extra": 7, "words": "none", "at": datetime.datetime(2024, 2, 29, 12, 0, 0, 1, UTC), "wide": "-1.50000", "bytes": b"\0\xff", "f": 0.5}
    states.add("defaults", [{**row, **values} for row in rows + more], None, COLUMNS + [name for name, *_ in added], {name: sql for name, _, _, sql in added})


def without_catalog(root, states):
    """A table of a catalog as one without: its metadata files have other names, and a hint says the last but one."""
    shutil.copytree(root / "parts", root / "hadoop")
    folder = root / "hadoop" / "metadata"
    paths = sorted(folder.glob("*.metadata.json"))
    for place, path in enumerate(paths):
        path.rename(folder / f"v{place + 1}.metadata.json")
    (folder / "version-hint.text").write_text(f"{len(paths) - 1}\n", encoding="utf-8")
    states.listed += [{**state, "table": "hadoop"} for state in states.listed if state["table"] == "parts" and state["version"] is None]


def write(folder, choose):
    """Writes the tables into folder/iceberg; their states. They were somewhere else before."""
    before = folder / "iceberg-written"
    before.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=before.as_uri())
    catalog.create_namespace("lake")
    states = States(folder, "iceberg", TYPES)
    by_library(catalog, states, choose)
    other_types(catalog, states, choose)
    added_files(catalog, states, choose, folder)
    deleted_rows(catalog, states, choose, before / "lake")
    defaults(catalog, states, choose, before / "lake")
    (before / "lake").rename(folder / "iceberg")
    without_catalog(folder / "iceberg", states)
    return states.listed
