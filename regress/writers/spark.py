#!/usr/bin/env python3
"""Writes small tables of Iceberg by Spark, and the rows that Spark reads of each of their snapshots, tags and branches.

usage: spark.py FOLDER SEED [COUNT]        COUNT of the tables, which the seed chooses; by default all

Tables of versions 2 and 3 whose rows are deleted, updated and merged without rewriting files, with columns that are added, renamed, moved,
widened and dropped, also in structs, with partitions that change, and with files that Spark rewrites. FOLDER/iceberg has the tables,
FOLDER/spark.json lists their states as lakes.json does.
"""

import datetime
import json
import os
import pathlib
import random
import sys
import time

os.environ["TZ"] = "UTC"
time.tzset()

import snowpark_connect_deps_iceberg  # noqa: E402
from pyspark.sql import Row, SparkSession  # noqa: E402
from pyspark.sql import types as t  # noqa: E402

from lake_rows import States, random_row  # noqa: E402

JAR = next(pathlib.Path(snowpark_connect_deps_iceberg.__file__).parent.glob("jars/iceberg-spark-runtime-3.5_2.12-*.jar"))
FLAT = ("id BIGINT NOT NULL, kind STRING, small INT, n INT, amount DECIMAL(12,2), wide DECIMAL(30,5), f DOUBLE, r FLOAT, flag BOOLEAN, day DATE, "
        "at TIMESTAMP, local TIMESTAMP_NTZ, label STRING, raw BINARY")
NESTED = "tags ARRAY<STRING>, spot STRUCT<x: INT, name: STRING, path: ARRAY<STRUCT<y: BIGINT>>>"
# PostgreSQL's types of Spark's.
SQL = {"bigint": "bigint", "int": "integer", "string": "text", "double": "double precision", "float": "real", "boolean": "boolean", "date": "date",
       "timestamp": "timestamptz", "timestamp_ntz": "timestamp", "binary": "bytea", "array<string>": "text[]"}
MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
# Tables: the version of the format, the partitions, and how rows are deleted.
TABLES = {
    "spark_rows": (2, "", MERGE_ON_READ),
    "spark_parts": (2, "PARTITIONED BY (kind, days(at))", MERGE_ON_READ),
    "spark_vectors": (3, "PARTITIONED BY (bucket(3, id), truncate(1, label))", MERGE_ON_READ),
    "spark_files": (2, "PARTITIONED BY (flag, truncate(1000000, n))", f"{MERGE_ON_READ}, 'write.delete.granularity'='file'"),
    "spark_copies": (1, "PARTITIONED BY (months(day))", "'write.format.default'='parquet', 'write.parquet.compression-codec'='gzip'"),
}


def sql_type(kind):
    """PostgreSQL's type of one of Spark's."""
    if kind.startswith("decimal"):
        return kind.replace("decimal", "numeric")
    return "jsonb" if kind.startswith(("struct", "map")) else SQL[kind]


def plain(value, kind):
    """A value that Spark returns, as COPY is to read it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if kind == "timestamp" and value is not None:
        return value.replace(tzinfo=datetime.timezone.utc)
    return value


class Table:
    """A table, its statements, and the states that they leave."""

    def __init__(self, spark, name, states, choose):
        version, partitions, properties = TABLES[name]
        self.spark, self.name, self.states, self.choose, self.count = spark, name, states, choose, 0
        self.full = f"lake.iceberg.{name}"
        # Spark fails to rewrite deletes of a table that has arrays.
        columns = FLAT if name == "spark_upgraded" else f"{FLAT}, {NESTED}"
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING iceberg {partitions} TBLPROPERTIES ('format-version'='{version}', {properties})")

    def sql(self, statement):
        return self.spark.sql(statement.replace("{t}", self.full))

    def rows(self, count):
        """So many random rows, of few partitions."""
        rows = [random_row(self.choose, self.count + number) for number in range(count)]
        moments = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(1970, 1, 1), datetime.datetime(2024, 2, 29, 12, 0, 0, 5), None]
        for row in rows:
            row["at"], row["day"] = self.choose.choice(moments), self.choose.choice([None, datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)])
            row["n"] = row["n"] and row["n"] % 3000000
        self.count += count
        return rows

    def insert(self, count):
        """Appends rows of the columns that the table has now."""
        schema = self.spark.table(self.full).schema
        names = {"bytes": "raw", "title": "label", **({} if "small" in schema.names else {"f": "small"})}

        def value(row, column):
            found = row.get(names.get(column.name, column.name))
            if column.name == "spot" and found is not None:
                inner = {"words": "name", "z": "x"}
                return {part: found.get(inner.get(part, part)) for part in column.dataType.names}
            if column.name == "extra":
                return row["id"] % 5
            # What Spark reads as an integer may be a wider type by now.
            return float(found) if found is not None and isinstance(column.dataType, t.DoubleType) else found

        rows = [tuple(value(row, column) for column in schema) for row in self.rows(count)]
        self.spark.createDataFrame(rows, schema).coalesce(2).writeTo(self.full).append()
        self.note()

    def change(self, statement):
        """A statement that makes a snapshot."""
        self.sql(statement)
        self.note()

    def note(self):
        """Notes the rows of the current snapshot, under its number."""
        (snapshot,) = self.sql("SELECT snapshot_id FROM {t}.history ORDER BY made_current_at DESC, is_current_ancestor LIMIT 1").collect()[0]
        self.read(snapshot, self.spark.read.option("snapshot-id", snapshot).table(self.full))

    def read(self, version, frame):
        """Notes what Spark reads."""
        kinds = {column.name: column.dataType.simpleString() for column in frame.schema}
        rows = [{name: plain(value, kinds[name]) for name, value in row.asDict().items()} for row in frame.orderBy("id").collect()]
        self.states.add(self.name, rows, version, list(kinds), {name: sql_type(kind) for name, kind in kinds.items()})

    def named(self, name):
        """Notes the rows of a branch or a tag."""
        self.read(name, self.sql(f"SELECT * FROM {{t}} VERSION AS OF '{name}'"))

    def last(self):
        """Notes the rows of the table as it is."""
        self.read(None, self.spark.table(self.full))

    def procedure(self, call):
        self.sql(f"CALL lake.system.{call}")
        self.note()


def fill(table):
    """What is done to each of the tables."""
    for count in (40, 25):
        table.insert(count)
    table.change("DELETE FROM {t} WHERE id % 7 = 3")
    table.change("UPDATE {t} SET label = concat('u', id), n = NULL WHERE id % 5 = 1")
    table.sql("ALTER TABLE {t} CREATE TAG before")
    table.named("before")
    table.change("MERGE INTO {t} t USING (SELECT id + 20 AS id FROM range(60)) s ON t.id = s.id AND t.kind = 'a' WHEN MATCHED AND t.id % 2 = 0 THEN DELETE "
                 "WHEN MATCHED THEN UPDATE SET kind = 'b c', flag = NOT flag")
    # Columns.
    for change in ("ADD COLUMN extra INT AFTER kind", "RENAME COLUMN raw TO bytes", "ALTER COLUMN n TYPE BIGINT", "ALTER COLUMN r TYPE DOUBLE", "ALTER COLUMN wide TYPE DECIMAL(32,5)",
                   "DROP COLUMN f", "ALTER COLUMN local FIRST", "RENAME COLUMN small TO f"):
        if (change.split()[-1], table.name) != ("BIGINT", "spark_files"):
            table.sql(f"ALTER TABLE {{t}} {change}")
    table.insert(20)
    table.change("UPDATE {t} SET extra = 100 WHERE id % 4 = 0")
    # Partitions.
    for change in ("ADD PARTITION FIELD bucket(4, id)", "ADD PARTITION FIELD hours(at)" if "parts" not in table.name else "REPLACE PARTITION FIELD at_day WITH years(at)"):
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.insert(20)
    table.change("DELETE FROM {t} WHERE kind = 'd/e' OR id % 11 = 0")
    # A branch goes its own way.
    table.sql("ALTER TABLE {t} CREATE BRANCH other")
    table.sql(f"DELETE FROM {table.full}.branch_other WHERE id > 50")
    # Files that are written anew, by the table and by its upkeep.
    table.procedure(f"rewrite_data_files(table => '{table.full}', options => map('rewrite-all', '{str('rows' in table.name).lower()}'))")
    table.change("DELETE FROM {t} WHERE id % 13 = 5")
    table.procedure(f"rewrite_manifests('{table.full}')")
    table.insert(10)
    # A whole partition, or a file, goes by metadata alone.
    table.change("DELETE FROM {t} WHERE flag")
    table.sql("ALTER TABLE {t} RENAME COLUMN label TO title")
    table.sql("ALTER TABLE {t} DROP COLUMN extra")
    table.sql("ALTER TABLE {t} ADD COLUMN extra INT")
    # It has the columns that the table has.
    table.named("other")
    table.last()


def upgraded(table):
    """Position deletes that become vectors when the table's version is raised."""
    table.insert(40)
    table.change("DELETE FROM {t} WHERE id % 6 = 1")
    table.change("DELETE FROM {t} WHERE id % 7 = 1")
    table.procedure(f"rewrite_position_delete_files(table => '{table.full}', options => map('rewrite-all', 'true'))")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    table.change("DELETE FROM {t} WHERE id % 6 = 2")
    table.insert(10)
    table.change("UPDATE {t} SET kind = NULL WHERE id % 6 = 3")
    table.last()


def structs(table):
    """Fields of structs that are added, renamed and widened."""
    table.insert(30)
    for change in ("ADD COLUMN spot.z INT", "RENAME COLUMN spot.name TO words", "ALTER COLUMN spot.x TYPE BIGINT"):
        table.sql(f"ALTER TABLE {{t}} {change}")
    table.insert(20)
    table.change("DELETE FROM {t} WHERE id % 3 = 0")
    # All files are written anew, and have the fields of today.
    table.procedure(f"rewrite_data_files(table => '{table.full}', options => map('rewrite-all', 'true'))")
    table.last()


TABLES["spark_upgraded"] = (2, "PARTITIONED BY (kind)", MERGE_ON_READ)
TABLES["spark_structs"] = (2, "", MERGE_ON_READ)


def main():
    folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    spark = (SparkSession.builder.master("local[2]").config("spark.jars", str(JAR)).config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
             .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "1g").config("spark.log.level", "ERROR")
             .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
             .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog").config("spark.sql.catalog.lake.type", "hadoop")
             .config("spark.sql.catalog.lake.warehouse", str(folder)).getOrCreate())
    states, choose = States(folder, "iceberg", {}), random.Random(seed)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else len(TABLES)
    for name in choose.sample(sorted(TABLES), count):
        table = Table(spark, name, states, choose)
        {"spark_upgraded": upgraded, "spark_structs": structs}.get(name, fill)(table)
    (folder / "spark.json").write_text(json.dumps(states.listed), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
