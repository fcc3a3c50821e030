"""The step `forms` of gpu.py: the queries, hot, over files of the same rows that other programs wrote, beside files of our own form and beside
DuckDB over the other program's files.

A figure on files of our own form is half of one: most people's files have small row groups and are by other writers. Which forms there are
depends on the libraries that this Python has; a form whose library is missing is left out, and said so.
"""

import importlib.util
import time

from answers import same_answer
from harness import tables
from harness.libpq import QueryError, Session
from peers import TABLES, DuckdbPeer
from report import number

# What COPY of DuckDB is told: its defaults, what its newer encodings are, and many files instead of one.
DUCKDB_FORMS = {
    "duckdb": "FORMAT parquet",
    "duckdb-v2-zstd": "FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd",
    "duckdb-small-files": "FORMAT parquet, FILE_SIZE_BYTES '5MB'",
    "duckdb-nulls": "FORMAT parquet",
}
PYARROW_FORMS = {
    "pyarrow-v1": {"version": "1.0", "data_page_version": "1.0", "compression": "snappy"},
    "pyarrow-v2-zstd": {"version": "2.6", "data_page_version": "2.0", "compression": "zstd"},
}
PYARROW_ROWS = 1 << 20
# Columns of which every NULL_OF-th row has NULL in the form with NULLs: measures and texts, no keys.
NULLED = {"lineitem": ["l_extendedprice", "l_discount", "l_shipinstruct", "l_commitdate"], "orders": ["o_totalprice", "o_comment"],
          "customer": ["c_acctbal"], "part": ["p_container"], "partsupp": ["ps_supplycost"]}
NULL_OF = 97


def _columns(table, form):
    nulled = NULLED.get(table, []) if form == "duckdb-nulls" else []
    replaced = [f"CASE WHEN row_number() OVER () % {NULL_OF} > 0 THEN {column} END AS {column}" for column in nulled]
    return f"* REPLACE ({', '.join(replaced)})" if replaced else "*"


def _write_by_duckdb(bench, form, table, target):
    writer = DuckdbPeer(bench.data, bench.threads)
    path = target if "FILE_SIZE_BYTES" in DUCKDB_FORMS[form] else target.with_suffix(".parquet")
    writer.connection.execute(f"COPY (SELECT {_columns(table, form)} FROM {table}) TO '{path}' ({DUCKDB_FORMS[form]})")
    writer.close()


def _write_by_pyarrow(bench, form, table, target):
    import pyarrow.parquet

    source = pyarrow.parquet.ParquetFile(bench.data / f"{table}.parquet")
    with pyarrow.parquet.ParquetWriter(target.with_suffix(".parquet"), source.schema_arrow, **PYARROW_FORMS[form]) as writer:
        for batch in source.iter_batches(PYARROW_ROWS):
            writer.write_batch(batch, row_group_size=PYARROW_ROWS)


def _write_by_polars(bench, _form, table, target):
    import polars

    polars.scan_parquet(bench.data / f"{table}.parquet").sink_parquet(target.with_suffix(".parquet"))


def _write_by_spark(bench, _form, table, target):
    """By parquet-java, a file for each task. Needs Java."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(f"local[{bench.threads}]").config("spark.ui.enabled", "false").getOrCreate()
    spark.read.parquet(str(bench.data / f"{table}.parquet")).write.parquet(str(target))


def _write_by_clickhouse(bench, _form, table, target):
    import chdb

    source = bench.data / f"{table}.parquet"
    chdb.query(f"SELECT * FROM file('{source}', Parquet) INTO OUTFILE '{target.with_suffix('.parquet')}' FORMAT Parquet")


# The library of each form, and what writes a table with it.
FORMS = {**dict.fromkeys(DUCKDB_FORMS, ("duckdb", _write_by_duckdb)), **dict.fromkeys(PYARROW_FORMS, ("pyarrow", _write_by_pyarrow)),
         "polars": ("polars", _write_by_polars), "spark": ("pyspark", _write_by_spark), "clickhouse": ("chdb", _write_by_clickhouse)}


def write_files(bench, form, folder):
    """The files of all tables in a form, unless they are there."""
    folder.mkdir(exist_ok=True)
    begin = time.monotonic()
    for table in TABLES:
        target = folder / table
        if not target.exists() and not target.with_suffix(".parquet").exists():
            FORMS[form][1](bench, form, table, target)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    print(f"{form}: written in {time.monotonic() - begin:.1f} s", flush=True)


def _duckdb_over(bench, folder):
    """DuckDB over the files of a form."""
    peer = DuckdbPeer(bench.data, bench.threads)
    # As PostgreSQL sorts.
    peer.connection.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    for table in TABLES:
        path = folder / table / "*.parquet" if (folder / table).is_dir() else folder / f"{table}.parquet"
        peer.connection.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM read_parquet('{path}')")
    return peer


def best(action, runs):
    """The least seconds of some runs."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _measure(bench, form, own):
    """The queries over the files of a form, which are there; `own` are those of our own form."""
    folder, schema = bench.folder / f"{form}-sf{bench.options.scale}", bench.schema(f"form_{form}").replace("-", "_")
    with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
        tables.tpch_foreign(session, folder, schema, "gpu")
    ours, duckdb = bench.peer("gpu", [f"SET search_path = {schema}, public"]), _duckdb_over(bench, folder)
    rows = []
    for name, sql in bench.queries().items():
        if not bench.has_time():
            break
        wanted = [[None if value is None else str(value) for value in row] for row in duckdb.run(sql)]
        theirs = best(lambda: duckdb.receive(sql), bench.options.duckdb_runs)
        try:
            # Without what this program makes of the rows.
            begin = time.perf_counter()
            ours.receive(sql)
            first = time.perf_counter() - begin
            # The second run makes segments.
            difference = same_answer(wanted, ours.run(sql))
            seconds = best(lambda: ours.receive(sql), bench.options.runs)
            own_seconds = best(lambda: own.receive(sql), bench.options.runs)
        except QueryError as error:
            difference, first, seconds, own_seconds = str(error).splitlines()[0], None, None, None
        rows.append({"query": name, "gpu": seconds, "first": first, "own": own_seconds, "duckdb": theirs, "difference": difference})
        print(f"{form} {name}  gpu {number(seconds)}  own form {number(own_seconds)}  first {number(first)}  duckdb {number(theirs)}  "
              f"{difference or 'same answer'}", flush=True)
    ours.close()
    duckdb.close()
    return rows


def _sums(rows):
    """Seconds of the measured queries: over the form, at the first run, over our own form, DuckDB's."""
    whole = [row for row in rows if row["gpu"]]
    return {kind: sum(row[kind] for row in whole) for kind in ("gpu", "first", "own", "duckdb")}


def run_forms(bench):
    """Returns how many answers are not DuckDB's."""
    own, wrong, measured = bench.peer("gpu"), 0, {}
    for sql in bench.queries().values():
        # What is used twice stays as segments.
        own.receive(sql)
        own.receive(sql)
    for form in bench.options.forms.split() or FORMS:
        library = FORMS[form][0]
        if importlib.util.find_spec(library) is None:
            print(f"{form}: left out, {library} is not installed", flush=True)
            continue
        if not bench.has_time():
            break
        write_files(bench, form, bench.folder / f"{form}-sf{bench.options.scale}")
        measured[form] = _measure(bench, form, own)
        wrong += sum(row["difference"] is not None for row in measured[form])
        bench.results.fact(forms=measured, **({"duckdb_files": measured[form]} if form == "duckdb" else {}))
        sums = _sums(measured[form])
        print(f"{form}: {len(measured[form])} queries, gpu {sums['gpu']:.3f} s, own form {sums['own']:.3f} s, first runs {sums['first']:.3f} s, "
              f"duckdb {sums['duckdb']:.3f} s, {wrong} wrong so far", flush=True)
    own.close()
    return wrong


def forms_table(facts):
    """Lines of the report; none if the step did not run."""
    forms = facts.get("forms")
    if not forms:
        return []
    lines = ["## Files that other programs wrote", "", "Seconds of all queries over files of the same rows: hot, hot over our own form in the same minutes, "
             "first runs, and DuckDB over the other program's files.", "",
             "| form | hot | own form | times | first runs | DuckDB |", "|---|---:|---:|---:|---:|---:|"]
    for form, rows in forms.items():
        sums = _sums(rows)
        times = sums["gpu"] / sums["own"] if sums["own"] else 0.0
        lines.append(f"| {form} | {sums['gpu']:.3f} | {sums['own']:.3f} | {times:.2f} | {sums['first']:.3f} | {sums['duckdb']:.3f} |")
    return [*lines, ""]
