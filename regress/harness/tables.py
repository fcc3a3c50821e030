"""Makes the tables that tests compare: foreign tables in one schema, heap copies in another.

- `edge_schemas`: the tables of regress/data. The heap copy is loaded from the CSV, not from the foreign table, so
  that a value that is read wrongly shows.
- `tpch_schemas`: TPC-H, generated as Parquet; the heap copy is read through the foreign tables.

Schemas: `pq` and `heap` (regress/data), `tpch` and `tpch_heap` (imported types), `spec` and `spec_heap` (the
specification's types, with char(n)), `…_optimized`, `tpch_gpu` (files laid out for GPUs), and `tpch_spill` (a device with
little memory).
"""

import json
import pathlib
import shutil

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"

TPCH_KEYS = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "customer": ["c_custkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}
TPCH_INDEXES = [
    "lineitem (l_partkey, l_suppkey)", "lineitem (l_suppkey)", "orders (o_custkey)", "partsupp (ps_suppkey)",
    "customer (c_nationkey)", "supplier (s_nationkey)", "nation (n_regionkey)",
]

_SPEC_COLUMNS = {
    "region": "r_regionkey bigint NOT NULL, r_name char(25) NOT NULL, r_comment varchar(152)",
    "nation": "n_nationkey bigint NOT NULL, n_name char(25) NOT NULL, n_regionkey bigint NOT NULL, n_comment varchar(152)",
    "supplier": "s_suppkey bigint NOT NULL, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, "
                "s_nationkey bigint NOT NULL, s_phone char(15) NOT NULL, s_acctbal decimal(15,2) NOT NULL, "
                "s_comment varchar(101) NOT NULL",
    "part": "p_partkey bigint NOT NULL, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, p_brand char(10) NOT NULL, "
            "p_type varchar(25) NOT NULL, p_size integer NOT NULL, p_container char(10) NOT NULL, "
            "p_retailprice decimal(15,2) NOT NULL, p_comment varchar(23) NOT NULL",
    "partsupp": "ps_partkey bigint NOT NULL, ps_suppkey bigint NOT NULL, ps_availqty integer NOT NULL, "
                "ps_supplycost decimal(15,2) NOT NULL, ps_comment varchar(199) NOT NULL",
    "customer": "c_custkey bigint NOT NULL, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, "
                "c_nationkey bigint NOT NULL, c_phone char(15) NOT NULL, c_acctbal decimal(15,2) NOT NULL, "
                "c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL",
    "orders": "o_orderkey bigint NOT NULL, o_custkey bigint NOT NULL, o_orderstatus char(1) NOT NULL, "
              "o_totalprice decimal(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL, "
              "o_clerk char(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL",
    "lineitem": "l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, "
                "l_linenumber integer NOT NULL, l_quantity decimal(15,2) NOT NULL, l_extendedprice decimal(15,2) NOT NULL, "
                "l_discount decimal(15,2) NOT NULL, l_tax decimal(15,2) NOT NULL, l_returnflag char(1) NOT NULL, "
                "l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, "
                "l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, "
                "l_comment varchar(44) NOT NULL",
}


def manifest():
    """The parsed MANIFEST.json: name, rows and columns of every table of regress/data."""
    return json.loads((DATA / "MANIFEST.json").read_text(encoding="utf-8"))["tables"]


def copy_data(folder):
    """Copies regress/data to a folder that the server's user can read, whatever the clone's rights are."""
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    for source in [*DATA.glob("*.parquet"), *DATA.glob("*.csv")]:
        target = folder / source.name
        shutil.copyfile(source, target)
        target.chmod(0o644)
    return folder


def _definition(table):
    return ", ".join(f"{column} {sql}" + (" NOT NULL" if column == "id" else "") for column, sql in table["columns"])


def edge_heap(session, folder):
    """Makes `heap` over regress/data copied to `folder`, and the tables of `public` that mixed queries join either schema's with."""
    session.run("SET client_min_messages = warning; DROP SCHEMA IF EXISTS heap CASCADE; CREATE SCHEMA heap")
    for table in manifest():
        name = table["name"]
        session.run(f"CREATE TABLE heap.{name} ({_definition(table)})")
        session.run(f"COPY heap.{name} FROM '{folder}/{name}.csv' (FORMAT csv)")
    for name in ("t1", "t2", "t3"):
        session.run(f"DROP TABLE IF EXISTS public.local_{name}; CREATE TABLE public.local_{name} AS SELECT * FROM heap.{name}")
        session.run(f"ALTER TABLE public.local_{name} ALTER id SET NOT NULL")
    session.run("RESET client_min_messages")


def edge_foreign(session, folder, schema, server="pystachio"):
    """Makes a schema of foreign tables over the files of regress/data in `folder`, and analyzes them."""
    session.run(f"SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
    session.run("RESET client_min_messages")
    for table in manifest():
        name = table["name"]
        session.run(f"CREATE FOREIGN TABLE {schema}.{name} ({_definition(table)}) SERVER {server} OPTIONS (path '{folder}/{name}.parquet')")
        session.run(f"ANALYZE {schema}.{name}")


def edge_schemas(session, folder, foreign=True):
    """Makes `pq` (foreign; or heap too where `foreign` is false) and `heap` over regress/data copied to `folder`."""
    edge_heap(session, folder)
    if foreign:
        edge_foreign(session, folder, "pq")
    else:
        session.run("SET client_min_messages = warning; DROP SCHEMA IF EXISTS pq CASCADE; CREATE SCHEMA pq; RESET client_min_messages")
        for table in manifest():
            session.run(f"CREATE TABLE pq.{table['name']} AS SELECT * FROM heap.{table['name']}")
            session.run(f"ALTER TABLE pq.{table['name']} ALTER id SET NOT NULL")
    session.run("ANALYZE")


def optimized_foreign(session, data, tpch):
    """Rewrites regress/data and TPC-H for GPUs, imports what came of it, and TPC-H as it is generated in that form.

    Schemas: `pq_optimized`, `tpch_optimized`, `tpch_gpu`. Row groups are small enough that there are several.
    """
    for source in (data, tpch):
        session.run(f"SELECT * FROM pystachio.optimize_parquet('{source}', '{source}-optimized', overwrite => true, row_group_rows => 25000)")
    session.run(f"SELECT * FROM pystachio.tpch_generate('{tpch}-gpu', 0.01, overwrite => true, layout => 'gpu')")
    edge_foreign(session, f"{data}-optimized", "pq_optimized")
    tpch_foreign(session, f"{tpch}-optimized", "tpch_optimized")
    tpch_foreign(session, f"{tpch}-gpu", "tpch_gpu")


def spilling_foreign(session, folder, memory):
    """Imports TPC-H in small row groups through a server `spilling` whose device has so much memory: schema `tpch_spill`."""
    device = session.run("SHOW pystachio.auto_device").scalar()
    pieces = f"{folder}-pieces"
    session.run(f"SELECT * FROM pystachio.tpch_generate('{pieces}', 0.01, overwrite => true, row_group_rows => 1024)")
    session.run("SET client_min_messages = warning; DROP SERVER IF EXISTS spilling CASCADE; RESET client_min_messages")
    session.run(f"CREATE SERVER spilling FOREIGN DATA WRAPPER pystachio OPTIONS (device '{'cuda' if device == 'cuda' else 'emulated'}', "
                f"memory '256MB', device_memory '{memory}')")
    tpch_foreign(session, pieces, "tpch_spill", "spilling")


def ranked_foreign(session, folder, ranks):
    """Imports TPC-H in small row groups through servers whose emulated devices are so many ranks, which share every query: the schemas."""
    pieces = f"{folder}-ranks"
    session.run(f"SELECT * FROM pystachio.tpch_generate('{pieces}', 0.01, overwrite => true, row_group_rows => 2048)")
    schemas = []
    for count in ranks:
        server, schema = f"ranks_{count}", f"tpch_ranks_{count}"
        session.run(f"SET client_min_messages = warning; DROP SERVER IF EXISTS {server} CASCADE; RESET client_min_messages")
        session.run(f"CREATE SERVER {server} FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '512MB', "
                    f"ranks '{count}', rank_policy 'all')")
        tpch_foreign(session, pieces, schema, server)
        schemas.append((count, schema))
    return schemas


def import_statement(folder, schema, server="pystachio", limit=""):
    """The statement that imports the Parquet files of `folder`, whose path may be longer than a name can be."""
    return f"IMPORT FOREIGN SCHEMA files {limit} FROM SERVER {server} INTO {schema} OPTIONS (path '{folder}')"


def tpch_foreign(session, folder, schema="tpch", server="pystachio"):
    """Imports the Parquet files of `folder` into a schema of foreign tables, and analyzes them."""
    session.run(f"SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
    session.run("RESET client_min_messages")
    session.run(import_statement(folder, schema, server))
    for table in TPCH_KEYS:
        session.run(f"ANALYZE {schema}.{table}")


def spec_foreign(session, folder, schema="spec", server="pystachio"):
    """Declares the Parquet files of `folder` with the specification's types, char(n) among them."""
    session.run(f"SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
    session.run("RESET client_min_messages")
    for table, columns in _SPEC_COLUMNS.items():
        session.run(f"CREATE FOREIGN TABLE {schema}.{table} ({columns}) "
                    f"SERVER {server} OPTIONS (path '{folder}/{table}.parquet')")
        session.run(f"ANALYZE {schema}.{table}")


def heap_copy(session, source, target, keys=True):
    """Copies every table of schema `source` into heap tables of the same types, with primary keys and indexes."""
    session.run(f"SET client_min_messages = warning; DROP SCHEMA IF EXISTS {target} CASCADE; CREATE SCHEMA {target}")
    session.run("RESET client_min_messages")
    for table, key in TPCH_KEYS.items():
        session.run(f"CREATE TABLE {target}.{table} (LIKE {source}.{table})")
        session.run(f"INSERT INTO {target}.{table} SELECT * FROM {source}.{table}")
        if keys:
            session.run(f"ALTER TABLE {target}.{table} ADD PRIMARY KEY ({', '.join(key)})")
    for index in TPCH_INDEXES if keys else []:
        session.run(f"CREATE INDEX ON {target}.{index}")
    for table in TPCH_KEYS:
        session.run(f"VACUUM (ANALYZE) {target}.{table}")
