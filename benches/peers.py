"""The systems that are compared. Each gives rows for a query; all read the same Parquet files.

Invariants: a peer uses `threads` threads. `receive` returns after the last row has reached this process, in the form in
which the peer's own library holds it: turning values into Python's takes longer than many queries. `run` does that too.
Deliberately absent: timing, and the comparison of answers (run.py).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "regress"))

from harness.libpq import Session  # noqa: E402

TABLES = ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"]


class PostgresPeer:
    """A schema of a PostgreSQL database through libpq: heap tables, or pystachio's foreign tables."""

    def __init__(self, name, conninfo, schema, settings=()):
        self.name = name
        self.session = Session(conninfo, [f"SET search_path = {schema}, public", "SET statement_timeout = '300s'", *settings])

    def version(self):
        return self.session.run("SELECT split_part(version(), ' ', 2)").scalar()

    def run(self, sql):
        return self.session.run(sql).rows

    def receive(self, sql):
        self.session.receive(sql)

    def close(self):
        self.session.close()


class DuckdbPeer:
    """DuckDB over views of the Parquet files."""

    name = "duckdb"

    def __init__(self, data, threads):
        import duckdb

        self._version = duckdb.__version__
        self.connection = duckdb.connect()
        self.connection.execute(f"SET threads = {threads}")
        for table in TABLES:
            self.connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{data}/{table}.parquet')")

    def version(self):
        return self._version

    def run(self, sql):
        return self.connection.execute(sql).fetchall()

    def receive(self, sql):
        self.connection.sql(sql).to_arrow_table()

    def close(self):
        self.connection.close()


class DatafusionPeer:
    """DataFusion over the Parquet files, or over tables read into memory beforehand."""

    def __init__(self, data, threads, in_memory):
        import datafusion

        self.name = "datafusion-mem" if in_memory else "datafusion"
        self._version = datafusion.__version__
        self.context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))
        for table in TABLES:
            self.context.register_parquet(table if not in_memory else f"file_{table}", f"{data}/{table}.parquet")
            if in_memory:
                self.context.register_table(table, self.context.table(f"file_{table}").cache())

    def version(self):
        return self._version

    def run(self, sql):
        rows = []
        for batch in self.context.sql(sql).collect():
            rows.extend(zip(*[column.to_pylist() for column in batch.columns]))
        return rows

    def receive(self, sql):
        self.context.sql(sql).collect()

    def close(self):
        self.context = None
