"""The queries of the everyday workload and the tables that they read: foreign in one schema, heap with indexes in another.

TPC-H is there already, in schemas of its own: a session's search path has both. `make_tables` makes the other tables, and in `public` small
heap tables that either kind is joined with.
"""

import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parent.parent / "scripts"
TABLES = ["events", "many", "wide"]
INDEXES = ["events (ts)", "events (user_id)", "events (session)", "events (day)", "many (ts)", "many (device)", "monthly (ts)"]
# Heap tables that queries join with either schema's.
LOCAL = {
    "local_calendar": ("day date PRIMARY KEY, quarter text",
                       "SELECT d::date, to_char(d, 'YYYY-\"Q\"Q') FROM generate_series(timestamp '1992-01-01', '1998-12-31', interval '1 day') AS d"),
    "local_kinds": ("kind text PRIMARY KEY, label text",
                    "VALUES ('view', 'looks'), ('click', 'looks'), ('search', 'looks'), ('purchase', 'buys')"),
    "local_vip": ("custkey bigint PRIMARY KEY", "SELECT 37 * n FROM generate_series(1, 40) AS n"),
}


class Query:
    """One query: its group and name, the SQL, what runs before it, and DuckDB's words for it (None: it has none)."""

    def __init__(self, group, name, sql, duckdb, prepare):
        self.group, self.name, self.sql, self.duckdb, self.prepare = group, name, sql, duckdb, prepare

    @property
    def full_name(self):
        return f"{self.group}: {self.name}"

    @property
    def is_ordered(self):
        """Whether the query itself says in which order its rows come."""
        text = self.prepare or self.sql
        return bool(re.search(r"ORDER BY [^()]*(\([^()]*\)[^()]*)*$", text))

    @property
    def cleanup(self):
        """The statement that forgets what was prepared; None if nothing was."""
        return self.prepare and f"DEALLOCATE {self.prepare.split()[1]}"


def queries():
    """The queries of queries.sql, in its order."""
    found = []
    for block in (HERE / "queries.sql").read_text(encoding="utf-8").split("\n\n")[1:]:
        group, name = re.match(r"-- (\w+): (.*)", block).groups()
        marks = dict(re.findall(r"^-- (duckdb|prepare): (.*)$", block, re.MULTILINE))
        sql = " ".join(line for line in block.splitlines() if not line.startswith("--")).strip().rstrip(";")
        duckdb = marks.get("duckdb", sql)
        found.append(Query(group, name, sql, None if duckdb == "none" else duckdb, marks.get("prepare")))
    return found


def make_data(folder, rows, files):
    """Writes the files, by a Python that has pyarrow."""
    python = subprocess.run([SCRIPTS / "pyarrow.sh"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([python, HERE / "make_data.py", folder, str(rows), str(files)], check=True)


def make_tables(session, folder, foreign, heap, server, import_statement):
    """Makes the schemas `foreign` and `heap` with the workload's tables, and the small heap tables of `public`."""
    session.run("SET client_min_messages = warning")
    for schema in (foreign, heap):
        session.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
    session.run(import_statement(f"{folder}/tables", foreign, server))
    for table in TABLES:
        session.run(f"CREATE TABLE {heap}.{table} (LIKE {foreign}.{table}); INSERT INTO {heap}.{table} SELECT * FROM {foreign}.{table}")
        session.run(f"ALTER TABLE {heap}.{table} ADD PRIMARY KEY (id); ANALYZE {foreign}.{table}")
    _make_months(session, folder, foreign, heap, server)
    session.run("; ".join(f"CREATE INDEX ON {heap}.{index}" for index in INDEXES))
    for table, (columns, rows) in LOCAL.items():
        session.run(f"DROP TABLE IF EXISTS public.{table}; CREATE TABLE public.{table} ({columns}); INSERT INTO public.{table} {rows}")
        session.run(f"ANALYZE public.{table}")
    for table in [*TABLES, "monthly"]:
        session.run(f"VACUUM (ANALYZE) {heap}.{table}")
    session.run("RESET client_min_messages")


def _make_months(session, folder, foreign, heap, server):
    """A parent with a partition for each month, of foreign tables and of heap tables."""
    columns = "id bigint NOT NULL, ts timestamp NOT NULL, region text, status text, amount numeric(10,2)"
    for schema in (foreign, heap):
        session.run(f"CREATE TABLE {schema}.monthly ({columns}) PARTITION BY RANGE (ts)")
    texts = [f"{year}-{month:02}-01" for year in (2024, 2025) for month in range(1, 13)] + ["2026-01-01"]
    for start, end in zip(texts, texts[1:]):
        name = f"month_{start[:4]}{start[5:7]}"
        bounds = f"FOR VALUES FROM ('{start}') TO ('{end}')"
        session.run(f"CREATE FOREIGN TABLE {foreign}.{name} PARTITION OF {foreign}.monthly {bounds} "
                    f"SERVER {server} OPTIONS (path '{folder}/months/{name}.parquet')")
        session.run(f"CREATE TABLE {heap}.{name} PARTITION OF {heap}.monthly {bounds}; ANALYZE {foreign}.{name}")
    session.run(f"INSERT INTO {heap}.monthly SELECT * FROM {foreign}.monthly; ANALYZE {foreign}.monthly")
    session.run(f"CREATE INDEX ON {heap}.monthly (id)")
