#!/usr/bin/env python3
"""Writes small tables of Delta Lake and of Iceberg, and the rows that they have at each of some versions.

usage: lakes.py FOLDER SEED

By the library deltalake: appended, deleted, updated and compacted tables, partitions, columns that are added, checkpoints. What it does
not write is written here, by the protocol: deletion vectors, column mapping, checkpoints of several parts and with sidecars.
Those of Iceberg are written by icebergs.py. FOLDER/delta and FOLDER/iceberg have the tables. FOLDER/lakes.json lists their states, each
with its rows as CSV: a missing value is NULL, "" is empty.
"""

import copy
import json
import pathlib
import random
import shutil
import struct
import sys
import urllib.parse
import uuid
import zlib

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

import icebergs
from lake_rows import SCHEMA, SQL, States, arrow, random_row, roaring

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
def log_path(table, version, rest=".json"):
    return table / "_delta_log" / f"{version:020d}{rest}"


def actions(table, version):
    return [json.loads(line) for line in log_path(table, version).read_text(encoding="utf-8").splitlines()]


def commit(table, version, written):
    log_path(table, version).write_text("".join(json.dumps(action) + "\n" for action in written), encoding="utf-8")


def by_library(root, states, choose):
    """Tables of deltalake's own making."""
    for name, partitions in (("plain", []), ("parts", ["kind"]), ("days", ["flag", "small"])):
        table, rows, number = root / name, [], 0
        for append in range(5):
            more = [random_row(choose, number + place) for place in range(choose.randrange(1, 60))]
            if "small" in partitions:
                for row in more:
                    row["small"] = choose.choice([1, -2, None])
            number += len(more)
            rows = rows + more
            deltalake.write_deltalake(str(table), arrow(more), mode="append", partition_by=partitions or None)
            states.add(name, rows, deltalake.DeltaTable(str(table)).version())
            if append == 2:
                deltalake.DeltaTable(str(table)).create_checkpoint()
        bound = choose.randrange(-100, 100)
        deltalake.DeltaTable(str(table)).delete(f"id % 3 = 1 AND n > {bound}")
        rows = [row for row in rows if not (row["id"] % 3 == 1 and row["n"] is not None and row["n"] > bound)]
        states.add(name, rows, deltalake.DeltaTable(str(table)).version())
        deltalake.DeltaTable(str(table)).update(predicate="id % 5 = 0", updates={"label": "'changed'", "amount": "NULL"})
        rows = [{**row, "label": "changed", "amount": None} if row["id"] % 5 == 0 else row for row in rows]
        states.add(name, rows, deltalake.DeltaTable(str(table)).version())
        deltalake.DeltaTable(str(table)).optimize.compact()
        states.add(name, rows, deltalake.DeltaTable(str(table)).version())
        wider = pa.schema(list(SCHEMA) + [pa.field("extra", pa.int32())])
        more = [{**random_row(choose, number + place), "extra": place} for place in range(7)]
        if "small" in partitions:
            for row in more:
                row["small"] = 7
        rows = rows + more
        deltalake.write_deltalake(str(table), arrow(more, wider), mode="append", schema_mode="merge", partition_by=partitions or None)
        states.add(name, rows, None, SCHEMA.names + ["extra"])
    # All rows are gone, and the table stays.
    empty = root / "emptied"
    deltalake.write_deltalake(str(empty), arrow([random_row(choose, 0)]))
    deltalake.DeltaTable(str(empty)).delete()
    states.add("emptied", [])


def checkpoint_forms(root, states, choose):
    """The same table with each form of checkpoint, and no commit before it."""
    source, rows = root / "classic", []
    for append in range(6):
        more = [random_row(choose, append * 20 + place) for place in range(20)]
        rows += more
        deltalake.write_deltalake(str(source), arrow(more), mode="append", partition_by=["kind"])
    deltalake.DeltaTable(str(source)).delete("id < 10")
    rows = [row for row in rows if row["id"] >= 10]
    version = deltalake.DeltaTable(str(source)).version()
    deltalake.DeltaTable(str(source)).create_checkpoint()
    # One has a commit after it.
    after = root / "after"
    shutil.copytree(source, after)
    more = [random_row(choose, 1000 + place) for place in range(5)]
    deltalake.write_deltalake(str(after), arrow(more), mode="append", partition_by=["kind"])
    states.add("after", rows + more)
    states.add("after", rows, version)
    for number in range(version + 1):
        log_path(source, number).unlink()
        log_path(after, number).unlink()
    states.add("classic", rows)
    checkpoint = log_path(source, version, ".checkpoint.parquet")
    held = pq.read_table(checkpoint)
    for name in ("multipart", "sidecars", "sidecars_json"):
        table = root / name
        shutil.copytree(source, table)
        log_path(table, version, ".checkpoint.parquet").unlink()
        (table / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)
        if name == "multipart":
            third = -(-held.num_rows // 3)
            for part in range(3):
                pq.write_table(held.slice(part * third, third), log_path(table, version, f".checkpoint.{part + 1:010d}.{3:010d}.parquet"))
            # Those of a writer that has ended before all were there.
            pq.write_table(held.slice(0, 1), log_path(table, version + 1, f".checkpoint.{1:010d}.{2:010d}.parquet"))
            states.add(name, rows)
        else:
            folder = table / "_delta_log" / "_sidecars"
            folder.mkdir()
            is_file = [add is not None for add in held.column("add").to_pylist()]
            files = held.filter(pa.array(is_file)).select([column for column in held.column_names if column in ("add", "remove")])
            half = files.num_rows // 2
            listed = []
            for place, part in enumerate((files.slice(0, half), files.slice(half))):
                path = folder / f"part {place}.parquet"
                pq.write_table(part, path)
                listed.append({"path": urllib.parse.quote(path.name), "sizeInBytes": path.stat().st_size, "modificationTime": 0, "tags": None})
            others = [row for row in held.to_pylist() if row.get("protocol") or row.get("metaData")]
            found = {key: value for row in others for key, value in row.items() if key in ("protocol", "metaData") and value}
            found["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
            for key in ("configuration",):
                found["metaData"][key] = dict(found["metaData"].get(key) or [])
            found["metaData"]["format"] = {"provider": "parquet", "options": {}}
            lines = [{"checkpointMetadata": {"version": version}}] + [{key: value} for key, value in found.items()]
            lines += [{"sidecar": sidecar} for sidecar in listed]
            mark = uuid.UUID(int=choose.getrandbits(128))
            if name == "sidecars_json":
                path = log_path(table, version, f".checkpoint.{mark}.json")
                path.write_text("".join(json.dumps(line, default=str) + "\n" for line in lines), encoding="utf-8")
            else:
                protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", pa.list_(pa.string())),
                                      ("writerFeatures", pa.list_(pa.string()))])
                columns = {"protocol": protocol, "metaData": held.schema.field("metaData").type,
                           "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])}
                original = next(row["metaData"] for row in others if row.get("metaData"))
                rows_of = [{"protocol": found["protocol"]}, {"metaData": original}] + [{"sidecar": sidecar} for sidecar in listed]
                arrays = {key: pa.array([row.get(key) for row in rows_of], kind) for key, kind in columns.items()}
                pq.write_table(pa.table(arrays), log_path(table, version, f".checkpoint.{mark}.parquet"))
            states.add(name, rows)


def z85(data):
    text = ""
    for (number,) in struct.iter_unpack(">I", data):
        text += "".join(Z85[number // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return text


def vector_of(table, numbers, form, choose):
    """The descriptor of a deletion vector, whose file is written."""
    data = roaring(numbers)
    described = {"sizeInBytes": len(data), "cardinality": len(numbers)}
    if form == "i":
        padded = data + b"\0" * (-len(data) % 4)
        return {"storageType": "i", "pathOrInlineDv": z85(padded), **described}
    mark = uuid.UUID(int=choose.getrandbits(128))
    before = struct.pack(">I", 3) + b"abc" + struct.pack(">I", zlib.crc32(b"abc"))
    folder = "ab" if form == "u" else ""
    path = table / folder / f"deletion_vector_{mark}.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\1" + before + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    where = folder + z85(mark.bytes) if form == "u" else path.as_uri()
    return {"storageType": form, "pathOrInlineDv": where, "offset": 1 + len(before), **described}


def deletion_vectors(root, states, choose):
    """Rows that are deleted by vectors: in the log, in files of the table, and elsewhere; twice of one file."""
    table, rows = root / "vectors", []
    for append in range(4):
        # One with several row groups, the rows of which lie beyond one container.
        count = 70_000 if append == 1 else 300
        first = len(rows)
        if append == 1:
            more = [{**random_row(choose, first), "id": first + place, "n": place} for place in range(count)]
        else:
            more = [random_row(choose, first + place) for place in range(count)]
        rows += more
        properties = deltalake.WriterProperties(max_row_group_size=20_000)
        deltalake.write_deltalake(str(table), arrow(more), mode="append", writer_properties=properties)
    version = deltalake.DeltaTable(str(table)).version()
    adds = {}
    for number in range(version + 1):
        for action in actions(table, number):
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    gone = set()
    for step, forms in enumerate((("i", "u", "p", None), ("u", "p", None, "i"))):
        written = [{"protocol": features}] if step == 0 else []
        for (path, add), form in zip(sorted(adds.items(), key=lambda pair: pair[1]["size"]), forms):
            if form is None:
                continue
            ids = pq.read_table(table / urllib.parse.unquote(path), columns=["id"]).column("id").to_pylist()
            before = {place for place, number in enumerate(ids) if number in gone}
            # Each run of rows that stay is decoded by itself, which takes the emulated device long.
            chosen = before | set(choose.sample(range(len(ids)), min(len(ids) // (3 if step else 10), 150)))
            if step == 1 and form == "p":
                chosen |= set(range(20_000, min(40_000, len(ids))))
            gone |= {ids[place] for place in chosen}
            removed = {"path": path, "deletionTimestamp": 0, "dataChange": True}
            if "deletionVector" in add:
                removed["deletionVector"] = add["deletionVector"]
            adds[path] = {**copy.deepcopy(add), "deletionVector": vector_of(table, chosen, form, choose)}
            written += [{"remove": removed}, {"add": adds[path]}]
        version += 1
        commit(table, version, written)
        states.add("vectors", [row for row in rows if row["id"] not in gone], version)
    # All rows of a file.
    smallest = min(adds.values(), key=lambda add: add["size"])
    ids = pq.read_table(table / urllib.parse.unquote(smallest["path"]), columns=["id"]).column("id").to_pylist()
    gone |= set(ids)
    removed = {"path": smallest["path"], "dataChange": True, **{key: smallest[key] for key in ("deletionVector",) if key in smallest}}
    commit(table, version + 1, [{"remove": removed}, {"add": {**smallest, "deletionVector": vector_of(table, set(range(len(ids))), "i", choose)}}])
    states.add("vectors", [row for row in rows if row["id"] not in gone])


def spot_type(name):
    """A struct with a field of a name, and one that no file has."""
    def field(name, kind, identity, physical):
        return {"name": name, "type": kind, "nullable": True,
                "metadata": {"delta.columnMapping.id": identity, "delta.columnMapping.physicalName": physical}}
    return {"type": "struct", "fields": [field(name, "integer", 21, "in-x"), field("later", "string", 29, "in-later")]}


def column_mapping(root, states, choose):
    """Files with other names for columns than the table, which are told by name or by id; columns that were renamed, dropped and added."""
    for mode in ("name", "id"):
        name = f"mapped_{mode}"
        table = root / name
        (table / "_delta_log").mkdir(parents=True)
        fields, stored = [], []
        kinds = {"bigint": "long", "text": "string", "integer": "integer", "numeric(12,2)": "decimal(12,2)"}
        names = ["id", "kind", "n", "amount", "label", "spot"]
        for place, column in enumerate(names):
            physical = f"col-{uuid.UUID(int=choose.getrandbits(128))}"
            kind = spot_type("x") if column == "spot" else kinds[SQL[column]]
            fields.append({"name": column, "type": kind, "nullable": column != "id",
                           "metadata": {"delta.columnMapping.id": place + 1, "delta.columnMapping.physicalName": physical}})
            # By id, names in files mean nothing.
            stored.append((physical if mode == "name" else f"x{place}", place + 1))
        # Fields within columns have names of their own in files, too.
        spot = pa.struct([pa.field("in-x" if mode == "name" else "q", pa.int32(), metadata={"PARQUET:field_id": "21"}),
                          pa.field("in-old", pa.string(), metadata={"PARQUET:field_id": "22"})])
        rows, version = [], 0

        def metadata(fields):
            return {"metaData": {"id": "00000000-0000-0000-0000-000000000000", "format": {"provider": "parquet", "options": {}},
                                 "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": ["kind"],
                                 "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"}, "createdTime": 0}}

        def append(number, columns):
            rows_now, adds = [], []
            for kind in ("a", None):
                more = [{**random_row(choose, number * 100 + place + (50 if kind else 0)), "kind": kind} for place in range(30)]
                arrays, schema = [], []
                for column, (file_name, identity) in zip(names, stored):
                    if column == "kind" or column not in columns:
                        continue
                    kind_of = spot if column == "spot" else SCHEMA.field(column).type
                    values = [row[column] for row in more]
                    if column == "spot":
                        values = [value and {spot[0].name: value["x"], "in-old": "gone"} for value in values]
                    schema.append(pa.field(file_name, kind_of, metadata={"PARQUET:field_id": str(identity)}))
                    arrays.append(pa.array(values, kind_of))
                path = f"{number}-{kind}.parquet"
                pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(schema)), table / path)
                physical = fields[1]["metadata"]["delta.columnMapping.physicalName"]
                numbers = [row["n"] for row in more if row["n"] is not None]
                n_name = fields[2]["metadata"]["delta.columnMapping.physicalName"]
                stats = {"numRecords": len(more), "minValues": {n_name: min(numbers)}, "maxValues": {n_name: max(numbers)},
                         "nullCount": {n_name: len(more) - len(numbers)}}
                adds.append({"add": {"path": path, "partitionValues": {physical: kind}, "size": (table / path).stat().st_size, "modificationTime": 0,
                                     "dataChange": True, "stats": json.dumps(stats)}})
                rows_now += more
            return rows_now, adds

        protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        def shown(rows, name):
            """What the table shows of a column whose field has a name, and of one that files lack."""
            return [{**row, "spot": row["spot"] and {name: row["spot"]["x"], "later": None}} for row in rows]

        more, adds = append(0, names)
        rows += more
        commit(table, version, [protocol, metadata(fields)] + adds)
        states.add(name, shown(rows, "x"), version, names)
        # "label" becomes "words", "amount" is dropped, and a new column of the old name comes.
        renamed = copy.deepcopy(fields)
        renamed[4]["name"] = "words"
        # So is a field of a struct.
        renamed[5]["type"] = spot_type("z")
        fresh = {"name": "amount", "type": "decimal(12,2)", "nullable": True,
                 "metadata": {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col-new"}}
        renamed[3] = fresh
        stored[3] = ("col-new" if mode == "name" else "x7", 7)
        version += 1
        commit(table, version, [metadata(renamed)])
        now = [{**row, "amount": None, "words": row["label"]} for row in rows]
        SQL["words"] = "text"
        columns = ["id", "kind", "n", "amount", "words", "spot"]
        states.add(name, shown(now, "z"), version, columns)
        more, adds = append(1, names)
        version += 1
        commit(table, version, adds)
        states.add(name, shown(now + [{**row, "words": row["label"]} for row in more], "z"), None, columns)


def main():
    folder, choose = pathlib.Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    root = folder / "delta"
    root.mkdir(parents=True)
    states = States(folder, "delta", SQL)
    by_library(root, states, choose)
    checkpoint_forms(root, states, choose)
    deletion_vectors(root, states, choose)
    column_mapping(root, states, choose)
    listed = states.listed + icebergs.write(folder, choose)
    (folder / "lakes.json").write_text(json.dumps(listed), encoding="utf-8")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
