"""Other foreign data wrappers: postgres_fdw from this server to itself, over foreign tables there; file_fdw beside them."""

from beside.support import DATABASE, QUERIES, require_equal
from faults.support import require
from harness import tables
from harness.libpq import QueryError

_TABLES = "region, nation, supplier, customer, orders, lineitem"
# Over the schema {0}, with tables of its own, of pystachio's and of both.
_MIXED = {
    "joined with ours": "SELECT r.n_name, count(*), sum(o.o_totalprice) FROM {0}.nation r JOIN tpch.customer c ON c.c_nationkey = r.n_nationkey "
                        "JOIN tpch.orders o ON o.o_custkey = c.c_custkey GROUP BY 1 ORDER BY 1",
    "a semi join": "SELECT count(*) FROM tpch.lineitem WHERE EXISTS (SELECT FROM {0}.supplier WHERE s_suppkey = l_suppkey AND s_acctbal > 9000)",
    "in a subquery of ours": "SELECT o_orderkey, (SELECT r.n_name FROM {0}.nation r WHERE r.n_nationkey = o_orderkey % 25) FROM tpch.orders "
                             "WHERE o_orderkey < 100 ORDER BY 1",
    "both sides of a union": "SELECT n_name FROM {0}.nation UNION ALL SELECT n_name FROM tpch.nation ORDER BY 1",
    "partitions of both": "SELECT count(*), sum(r_regionkey), max(r_name) FROM {0}.parted",
}


def _prepare(session, name, sql):
    session.run(f"SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS {name}; DROP SCHEMA IF EXISTS {sql} CASCADE; CREATE SCHEMA {sql}; "
                "RESET client_min_messages")


def postgres_fdw(place):
    """Foreign tables of pystachio behind postgres_fdw: its remote cursors, its estimates by EXPLAIN there, its joins, async reads, ANALYZE."""
    with place.session("SET search_path = public") as session:
        _prepare(session, "postgres_fdw", "remote")
        parameters = place.parameters()
        session.run(f"CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{parameters['host']}', port '{parameters['port']}', "
                    f"dbname '{DATABASE}', fetch_size '300', async_capable 'true')")
        session.run("ALTER SERVER loopback OPTIONS (SET fetch_size '200')")
        session.run(f"CREATE USER MAPPING FOR CURRENT_USER SERVER loopback OPTIONS (user '{parameters['user']}')")
        session.run(f"IMPORT FOREIGN SCHEMA tpch LIMIT TO ({_TABLES}) FROM SERVER loopback INTO remote")
        # A partition of each wrapper, and the same rows in heap tables.
        session.run("CREATE TABLE public.far_regions AS SELECT r_regionkey + 10 AS r_regionkey, r_name, r_comment FROM tpch_heap.region")
        for schema in ("remote", "tpch_heap"):
            session.run(f"CREATE TABLE {schema}.parted (r_regionkey bigint, r_name text, r_comment text) PARTITION BY RANGE (r_regionkey)")
        session.run("CREATE FOREIGN TABLE remote.near PARTITION OF remote.parted FOR VALUES FROM (0) TO (10) SERVER pystachio "
                    f"OPTIONS (path '{place.folder}/tpch/region.parquet')")
        session.run("CREATE FOREIGN TABLE remote.far PARTITION OF remote.parted FOR VALUES FROM (10) TO (20) SERVER loopback "
                    "OPTIONS (schema_name 'public', table_name 'far_regions')")
        session.run("CREATE TABLE tpch_heap.parted_all PARTITION OF tpch_heap.parted DEFAULT")
        session.run("INSERT INTO tpch_heap.parted SELECT * FROM tpch_heap.region UNION ALL SELECT * FROM public.far_regions")
        try:
            for estimates in ("false", "true"):
                for table in _TABLES.split(", "):
                    session.run(f"ALTER FOREIGN TABLE remote.{table} OPTIONS ({'SET' if estimates == 'true' else 'ADD'} use_remote_estimate '{estimates}')")
                for name, query in QUERIES.items():
                    found = []
                    for schema in ("remote", "tpch_heap"):
                        session.run(f"SET search_path = {schema}, public")
                        found.append(session.run(query).rows)
                    require_equal(*found, f"{name}, remote estimates {estimates}")
                for name, query in _MIXED.items():
                    found = [session.run(query.format(schema)).rows for schema in ("remote", "tpch_heap")]
                    require_equal(*found, f"{name}, remote estimates {estimates}")
            session.run("ANALYZE remote.orders, remote.nation")
            require(session.run("SELECT count(*) > 0 FROM pg_stats WHERE schemaname = 'remote' AND tablename = 'orders'").scalar() == "t", "no statistics")
            session.run("BEGIN; DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT n_name FROM remote.nation JOIN tpch.region ON r_regionkey = n_regionkey ORDER BY 1")
            require(len(session.run("FETCH 5 FROM c").rows) == 5, "rows of a cursor")
            session.run("COMMIT")
            require(len(session.run("FETCH ALL FROM c").rows) == 20, "the rest of them")
            session.run("CLOSE c")
            try:
                session.run("SELECT 10 / (l_orderkey - 5991) FROM remote.lineitem JOIN remote.orders ON o_orderkey = l_orderkey WHERE l_orderkey > 5000")
                raise AssertionError("no error from the remote side")
            except QueryError as error:
                require(error.sqlstate == "22012", f"the error of the remote side: {error}")
        finally:
            session.run("SET client_min_messages = warning; DROP SERVER loopback CASCADE; DROP SCHEMA remote CASCADE; "
                        "DROP TABLE tpch_heap.parted CASCADE; DROP TABLE public.far_regions")
    place.wait_idle()


# Over {0}, the rows of heap.t2 in a file of file_fdw.
_BESIDE_FILES = ["SELECT x.id, y.id, y.c FROM {0} x JOIN {1}.t1 y ON x.a = y.a ORDER BY 1, 2", "SELECT id FROM {1}.t1 WHERE a IN (SELECT a FROM {0} WHERE k) ORDER BY 1",
                 "SELECT y.id, x.n FROM {1}.t3 y LEFT JOIN {0} x USING (id) ORDER BY 1", "SELECT a, c FROM {0} EXCEPT SELECT a, c FROM {1}.t1 ORDER BY 1, 2",
                 "SELECT a, count(*), sum(n) FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {1}.t3) q GROUP BY a ORDER BY a"]


def file_fdw(place):
    """Files of file_fdw joined and combined with foreign tables of pystachio: as a small side, as an outer side, in set operations."""
    with place.session("SET search_path = public") as session:
        _prepare(session, "file_fdw", "csv")
        session.run("CREATE SERVER csv FOREIGN DATA WRAPPER file_fdw")
        columns = next(table["columns"] for table in tables.manifest() if table["name"] == "t2")
        try:
            session.run(f"CREATE FOREIGN TABLE csv.t2 ({', '.join(f'{name} {sql}' for name, sql in columns)}) SERVER csv "
                        f"OPTIONS (filename '{place.folder}/edges/t2.csv', format 'csv')")
            for analyzed in (False, True):
                if analyzed:
                    session.run("ANALYZE csv.t2")
                for query in _BESIDE_FILES:
                    found = [session.run(query.format(*names)).rows for names in (("csv.t2", "pq"), ("heap.t2", "heap"))]
                    require(found[0], f"no rows: {query}")
                    require_equal(*found, query)
        finally:
            session.run("SET client_min_messages = warning; DROP SERVER csv CASCADE; DROP SCHEMA csv CASCADE")
    place.wait_idle()


TESTS = [postgres_fdw, file_fdw]
