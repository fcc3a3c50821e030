"""Makes tables of Iceberg of the files t1 to t3 of the data folder, by hand: folder `iceberg` has good ones, `iceberg_bad` others.

usage: iceberg.py DATA [next]

With `next` the table t gets a further snapshot. The files have no field ids, so that the tables list names for columns.
"""

import json
import pathlib
import shutil
import struct
import sys
import zlib

MARK = b"pystachio regres"
FIELDS = [{"id": 1, "name": "id", "required": True, "type": "int"}, {"id": 2, "name": "a", "required": False, "type": "int"},
          {"id": 3, "name": "c", "required": False, "type": "string"}, {"id": 4, "name": "part", "required": False, "type": "date"}]
NOON = 1767268800000
DAY = 86400000
LEAP_DAY, NEW_YEAR = 19782, 20089


def long(number):
    bits, data = (number << 1) ^ (number >> 63), b""
    while bits >= 0x80:
        data += bytes([bits & 0x7F | 0x80])
        bits >>= 7
    return data + bytes([bits])


def encoded(schema, value):
    """A value in the form of Avro."""
    if isinstance(schema, list):
        return long(0) if value is None else long(1) + encoded(schema[1], value)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("int", "long"):
        return long(value)
    if kind in ("string", "bytes"):
        data = value.encode() if kind == "string" else value
        return long(len(data)) + data
    if kind == "array":
        items = b"".join(encoded(schema["items"], item) for item in value)
        return (long(len(value)) + items if value else b"") + long(0)
    return b"".join(encoded(field["type"], value.get(field["name"])) for field in schema["fields"])


def avro(path, schema, records):
    text = json.dumps(schema).encode()
    values = b"".join(encoded(schema, record) for record in records)
    head = b"Obj\x01" + long(1) + long(11) + b"avro.schema" + long(len(text)) + text + long(0)
    path.write_bytes(head + MARK + long(len(records)) + long(len(values)) + values + MARK)


def field(name, kind, number):
    return {"name": name, "type": kind, "field-id": number}


def optional(name, kind, number):
    return field(name, ["null", kind], number)


def by_column(name, number):
    entry = {"type": "record", "name": f"e{number}", "fields": [field("key", "int", number + 1), field("value", "bytes", number + 2)]}
    return optional(name, {"type": "array", "items": entry, "logicalType": "map"}, number)


LIST = {"type": "record", "name": "manifest_file", "fields": [
    field("manifest_path", "string", 500), field("partition_spec_id", "int", 502), field("content", "int", 517), field("sequence_number", "long", 515)]}
ENTRY = {"type": "record", "name": "manifest_entry", "fields": [
    field("status", "int", 0), optional("sequence_number", "long", 3), field("data_file", {"type": "record", "name": "r2", "fields": [
        field("content", "int", 134), field("file_path", "string", 100), field("file_format", "string", 101),
        field("partition", {"type": "record", "name": "r102", "fields": [optional("part", "int", 1000)]}, 102), field("record_count", "long", 103),
        by_column("lower_bounds", 125), by_column("upper_bounds", 128), optional("referenced_data_file", "string", 143),
        optional("content_offset", "long", 144), optional("content_size_in_bytes", "long", 145)]}, 2)]}


class Table:
    """A table whose metadata say that it is in another folder than it is."""

    def __init__(self, root, files=(), fields=None, version=2, mapping=True):
        self.root, self.location = root, f"file:///elsewhere/{root.name}"
        data = root.parent.parent
        (root / "metadata").mkdir(parents=True)
        for name in files:
            shutil.copy(data / name, root / name)
        names = [{"field-id": column["id"], "names": [column["name"]]} for column in FIELDS[:3]]
        self.metadata = {
            "format-version": version, "table-uuid": "0", "location": self.location, "last-sequence-number": 0, "last-updated-ms": NOON,
            "last-column-id": 9, "schemas": [{"type": "struct", "schema-id": 0, "fields": fields or FIELDS}], "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 4, "field-id": 1000, "name": "part", "transform": "identity"}]}],
            "default-spec-id": 0, "last-partition-id": 1000, "sort-orders": [], "default-sort-order-id": 0, "current-snapshot-id": -1,
            "properties": {"schema.name-mapping.default": json.dumps(names)} if mapping else {}, "snapshots": [], "snapshot-log": [], "refs": {}}
        self.number = 0

    def file(self, name, part=None, status=1, bounds=None, sequence=None, **more):
        values = {"content": 0, "file_path": name if ":" in name else f"{self.location}/{name}", "file_format": "PARQUET", "partition": {"part": part},
                  "record_count": 120, **more}
        if bounds:
            values["lower_bounds"], values["upper_bounds"] = ([{"key": 1, "value": struct.pack("<i", bound)}] for bound in bounds)
        return {"status": status, "sequence_number": sequence, "data_file": values}

    def commit(self, rows, deletes=()):
        """A snapshot of these files, a day after the one before it."""
        self.number += 1
        snapshot, listed = 100 + self.number, []
        for content, entries in ((0, rows), (1, deletes)):
            path = self.root / "metadata" / f"m{self.number}-{content}.avro"
            avro(path, ENTRY, entries)
            listed.append({"manifest_path": f"{self.location}/metadata/{path.name}", "partition_spec_id": 0, "content": content, "sequence_number": self.number})
        avro(self.root / "metadata" / f"s{self.number}.avro", LIST, listed)
        time = NOON + DAY * (self.number - 1)
        self.metadata["snapshots"].append({"snapshot-id": snapshot, "sequence-number": self.number, "timestamp-ms": time,
                                           "manifest-list": f"{self.location}/metadata/s{self.number}.avro", "schema-id": 0})
        self.metadata["snapshot-log"].append({"snapshot-id": snapshot, "timestamp-ms": time})
        self.metadata["refs"]["main"] = {"snapshot-id": snapshot, "type": "branch"}
        self.metadata["current-snapshot-id"] = snapshot

    def save(self, name="v1.metadata.json"):
        (self.root / "metadata" / name).write_text(json.dumps(self.metadata), encoding="utf-8")

    def vector(self, rows, count=None, name="t1.parquet"):
        """The entry of a deletion vector, whose file is written."""
        bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *rows)
        data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
        framed = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        (self.root / "rows.puffin").write_bytes(b"PFA1" + framed)
        return self.file("rows.puffin", content=1, file_format="PUFFIN", record_count=count or len(rows), referenced_data_file=f"{self.location}/{name}",
                         content_offset=4, content_size_in_bytes=len(framed))


def snapshots(table):
    """Those of the table t: the files do not have its partition column."""
    first = table.file("t1.parquet", LEAP_DAY, bounds=(1, 120))
    table.commit([first])
    yield
    table.metadata["refs"]["first"] = {"snapshot-id": 101, "type": "tag"}
    table.commit([table.file("t1.parquet", LEAP_DAY, 0, (1, 120), 1), table.file("t2.parquet"), table.file("late.parquet", NEW_YEAR, bounds=(1, 120))])
    table.commit([table.file("t1.parquet", LEAP_DAY, 2, (1, 120), 1), table.file("t2.parquet", status=0, sequence=2), table.file("t3.parquet", LEAP_DAY),
                  table.file("late.parquet", NEW_YEAR, 2, (1, 120), 2)])
    yield
    table.commit([table.file("t1.parquet", 19783, bounds=(1, 120)), table.file("t2.parquet", status=0, sequence=2), table.file("t3.parquet", LEAP_DAY, 0, sequence=3)])
    yield


def good(root):
    t = Table(root / "t", ["t1.parquet", "t2.parquet", "t3.parquet"])
    shutil.copy(root.parent / "t1.parquet", t.root / "late.parquet")
    steps = snapshots(t)
    for number in (1, 2):
        next(steps)
        t.save(f"v{number}.metadata.json")
    # The hint is of before the last commit.
    (t.root / "metadata" / "version-hint.text").write_text("1", encoding="utf-8")
    later = [{"id": 5, "name": "later", "required": False, "type": "decimal(10,2)"}, {"id": 6, "name": "strange", "required": False, "type": "variant"},
             {"id": 7, "name": "seven", "required": True, "type": "long", "initial-default": 7, "write-default": 7}]
    wider = Table(root / "wider", ["t1.parquet"], FIELDS + later, 3)
    wider.commit([wider.file("t1.parquet")])
    wider.save("00000-a.metadata.json")
    wider.save("00001-b.metadata.json")
    Table(root / "empty").save()
    vector = Table(root / "vector", ["t1.parquet"], version=3)
    vector.commit([vector.file("t1.parquet", bounds=(1, 120))], [vector.vector([2, 3, 60, 61, 62, 119])])
    vector.save()
    # Its file of positions is written by the test.
    positions = Table(root / "positions", ["t1.parquet"])
    positions.commit([positions.file("t1.parquet")], [positions.file("deletes.parquet", content=1, record_count=3)])
    positions.save()


def bad(root):
    def table(name, change=None, entry=None, deletes=lambda table: (), save=True, **more):
        made = Table(root / name, ["t1.parquet"], **more)
        made.commit([made.file("t1.parquet") if entry is None else entry(made)], deletes(made))
        if change:
            change(made)
        if save:
            made.save()
        return made

    table("later", lambda made: made.metadata.update({"format-version": 4}))
    table("orc", entry=lambda made: made.file("t1.orc", file_format="ORC"))
    table("away", entry=lambda made: made.file("s3://bucket/t1.parquet"))
    table("gone", entry=lambda made: made.file("t9.parquet"))
    table("unnamed", mapping=False)
    table("cardinality", deletes=lambda made: [made.vector([1, 2], 3)])
    table("beyond", deletes=lambda made: [made.vector([1, 500])])
    cut = table("cut")
    (cut.root / "metadata" / "v1.metadata.json").write_text('{"format-version":2,"locat', encoding="utf-8")
    manifest = table("manifest").root / "metadata" / "m1-0.avro"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    two = table("two", save=False)
    two.save("00003-a.metadata.json")
    two.save("00003-b.metadata.json")
    (root / "nothing" / "metadata").mkdir(parents=True)


def main():
    data = pathlib.Path(sys.argv[1])
    if sys.argv[2:]:
        made = [data / "iceberg" / "t"]
        again = Table(data / "iceberg" / "again")
        shutil.rmtree(again.root)
        again.root, again.location = made[0], "file:///elsewhere/t"
        again.metadata["location"] = again.location
        list(snapshots(again))
        again.save("v3.metadata.json")
    else:
        made = [data / "iceberg", data / "iceberg_bad"]
        for folder, make in zip(made, (good, bad)):
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
    for folder in made:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
