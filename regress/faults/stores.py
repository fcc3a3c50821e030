"""Tables over object stores, while the store fails, answers late or in part, and changes objects: right rows or an error, never others.

Each is tested on the CPU engine and on the GPU's. Also whose user mapping counts, and where secrets are not.
"""

import base64
import bisect
import contextlib
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.parse

from faults import store_server
from faults.support import HANG_S, expect_error, expect_failure, require, wait_until
from harness.libpq import QueryError

_SECRET = "hush-7f3a9c-secret"
_FAILED = ["58030"]
_DENIED = ["42501"]
_MISSING = ["58P01"]
_QUERY = "SELECT count(*), sum(l_quantity), min(l_shipdate), max(l_comment COLLATE \"C\") FROM {}.lineitem WHERE l_discount > 0.02"
_DEVICES = ("cpu", "gpu")


class Lake:
    """A store with TPC-H's files, a server of each device, and tables over them."""

    def __init__(self, place):
        self.place = place
        self.store = store_server.Store()
        self.tpch = pathlib.Path(place.tpch)
        self.store.ask("PUT", "/lake")
        for name in ("lineitem", "nation"):
            self.store.put(f"tpch/{name}.parquet", self.tpch / f"{name}.parquet")
        with place.session("SET client_min_messages = warning") as session:
            session.run("DROP SCHEMA IF EXISTS lake_cpu, lake_gpu CASCADE")
            for device, option in zip(_DEVICES, ("cpu", place.gpu_device())):
                server = f"lake_{device}"
                session.run(f"DROP SERVER IF EXISTS {server} CASCADE")
                session.run(f"CREATE SERVER {server} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{option}', memory '512MB', cache '0', "
                            f"endpoint '{self.store.endpoint}', stores 's3://lake/', store_timeout '5s', object_cache '64MB')")
                session.run(self.mapping("postgres", server, "boss"))
                session.run(f"CREATE SCHEMA {server}; IMPORT FOREIGN SCHEMA \"s3://lake/tpch\" FROM SERVER {server} INTO {server}")
        with place.session() as session:
            self.expected = session.run(_QUERY.format("tpch")).rows

    @staticmethod
    def mapping(role, server, key):
        """The statement that gives a role a key."""
        return (f"CREATE USER MAPPING FOR {role} SERVER {server} "
                f"OPTIONS (access_key_id '{key}', secret_access_key '{_SECRET}')")

    def fresh(self, session):
        """Has other engines read next, whose caches are empty."""
        self.number = getattr(self, "number", 0) + 1
        for device in _DEVICES:
            session.run(f"ALTER SERVER lake_{device} OPTIONS (SET object_cache '{64 + self.number}MB')")
        self.store.requests()

    def rows(self, session, device):
        """What the query returns."""
        return session.run(_QUERY.format(f"lake_{device}")).rows


@contextlib.contextmanager
def _lake(place):
    lake = Lake(place)
    try:
        yield lake
    finally:
        with place.session("SET client_min_messages = warning") as session:
            session.run("DROP SCHEMA IF EXISTS lake_cpu, lake_gpu CASCADE")
            session.run("DROP SERVER IF EXISTS lake_cpu, lake_gpu CASCADE")
        lake.store.close()


def _rows_unless(session, sql, sqlstates, words):
    """The rows of a query, or None if it fails in the way that it may."""
    try:
        return session.run(sql).rows
    except QueryError as error:
        require(error.sqlstate in sqlstates and words in error.message, f"another error: {error.sqlstate} {error.message}")
        return None


def reading(place):
    """Both engines read objects: right rows, each byte once."""
    with _lake(place) as lake, place.session() as session:
        for device in _DEVICES:
            require(lake.rows(session, device) == lake.expected, f"{device}: the rows of the local file")
            lake.store.requests()
            require(lake.rows(session, device) == lake.expected, f"{device}: again")
            gets = [request for request in lake.store.requests("GET") if request[2]]
            require(gets == [], f"{device}: nothing is transferred again: {gets}")
            held = session.run(f"SELECT path, tier FROM pystachio.cache WHERE server = 'lake_{device}' AND tier = 'disk'").rows
            require(("s3://lake/tpch/lineitem.parquet", "disk") in held, f"{device}: the cache shows the object: {held}")
            plan = session.run(f"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) {_QUERY.format('lake_' + device)}").rows
            require(_SECRET not in str(plan), "EXPLAIN does not have the secret")
        both = session.run("SELECT count(*) FROM lake_cpu.lineitem JOIN lake_cpu.nation ON n_nationkey = l_suppkey % 25").scalar()
        require(both == session.run("SELECT count(*) FROM tpch.lineitem").scalar(), "a join of two objects")
        session.run("ANALYZE lake_cpu.nation")
        require(session.run("SELECT count(*) FROM pg_stats WHERE schemaname = 'lake_cpu'").scalar() == "4", "ANALYZE reads a sample")
        small = "ALTER SERVER lake_{} OPTIONS (SET object_cache '1MB')"
        for device in _DEVICES:
            session.run(small.format(device))
            require(lake.rows(session, device) == lake.expected, f"{device}: objects larger than the cache")


def reads_ahead(place):
    """While a row group is transferred, the next one is asked for: a store that answers a request when it has the next one is read."""
    with _lake(place) as lake, place.session() as session:
        path = f"{place.folder}/ahead.parquet"
        numbers = "SELECT n AS a, n % 7 AS b FROM generate_series(1, 40000) n"
        session.run(f"SELECT * FROM pystachio.write_parquet('{numbers}', '{path}', row_group_rows => 10000, overwrite => true)")
        lake.store.put("ahead/ahead.parquet", pathlib.Path(path))
        for device in _DEVICES:
            server = f"lake_{device}"
            session.run(f"ALTER SERVER {server} OPTIONS (ADD threads '1', SET store_timeout '10min')")
            session.run(f"CREATE FOREIGN TABLE {server}.ahead (a integer, b integer) SERVER {server} OPTIONS (path 's3://lake/ahead/ahead.parquet')")
            query = f"SELECT sum(a), sum(b) FROM {server}.ahead"
            session.run(f"EXPLAIN {query}")
            asked, two = [], threading.Event()

            def paired(request, asked=asked, two=two):
                asked.append(request.headers["Range"])
                if len(asked) > 1:
                    two.set()
                answer = request.forward()
                request.answer(*(answer if two.wait(HANG_S) else (500, [], b"")))

            with lake.store.fault("GET", "ahead.parquet", paired):
                require(session.run(query).rows == [("800020000", "119997")], f"{device}: the right sums")
            require(len(asked) > 1, f"{device}: row groups are asked for one by one: {asked}")
            session.run(f"ALTER SERVER {server} OPTIONS (DROP threads, SET store_timeout '5s')")


def pages(place):
    """Of an object with page indexes, a few rows by a sorted column cost the pages that have them, not the object."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session:
        path = pathlib.Path(f"{place.folder}/pages.parquet")
        rows = "SELECT n AS k, md5(n::text) AS a, md5((-n)::text) AS b FROM generate_series(1, 300000) n"
        session.run(f"SELECT * FROM pystachio.write_parquet('{rows}', '{path}', compression => 'none', overwrite => true)")
        lake.store.put("pages/pages.parquet", path)
        expected = session.run(f"SELECT a, b FROM ({rows}) r WHERE k BETWEEN 150000 AND 150003 ORDER BY k").rows
        for device in _DEVICES:
            server = f"lake_{device}"
            session.run(f"CREATE FOREIGN TABLE {server}.pages (k integer, a text, b text) SERVER {server} OPTIONS (path 's3://lake/pages/pages.parquet')")
            session.run(f"EXPLAIN SELECT k FROM {server}.pages")
            lake.store.requests()
            found = session.run(f"SELECT a, b FROM {server}.pages WHERE k BETWEEN 150000 AND 150003 ORDER BY k").rows
            require(found == expected, f"{device}: the rows: {found}")
            ranges = [request[2].removeprefix("bytes=").split("-") for request in lake.store.requests("GET") if request[2]]
            transferred = sum(int(last) - int(first) + 1 for first, last in ranges)
            require(0 < transferred < path.stat().st_size / 3, f"{device}: {transferred} of {path.stat().st_size} bytes: {ranges}")
            require(len(ranges) < 30, f"{device}: {len(ranges)} requests")


def paths(place):
    """Folders, patterns and lists of objects; paths that are refused."""
    with _lake(place) as lake, place.session() as session:
        nation = lake.tpch / "nation.parquet"
        for key in ("n/year=2024/a.parquet", "n/year=2025/b.parquet", "n/year=2025/_c.parquet", "n/.hidden/d.parquet", "n/e.txt", "n/x y+z%.parquet"):
            lake.store.put(key.replace("%", "%25").replace(" ", "%20").replace("+", "%2B"), nation)
        lake.store.put("delta/_delta_log/0.json", b"{}")
        lake.store.put("delta/a.parquet", nation)

        def count(path, device="cpu", option="path"):
            session.run("DROP FOREIGN TABLE IF EXISTS public.objects")
            session.run(f"CREATE FOREIGN TABLE public.objects (n_name text) SERVER lake_{device} OPTIONS ({option} '{path}')")
            return int(session.run("SELECT count(*) FROM public.objects").scalar())

        for device in _DEVICES:
            for path, files in (("s3://lake/n", 3), ("s3://lake/n/", 3), ("s3://lake/n/*/*.parquet", 2), ("s3://lake/n/**/*.parquet", 3),
                                ("s3://lake/n/year=202[5-9]/*", 1), ("s3://lake/n/year=*", 2), ("s3://lake/n/year=2025/_c.parquet", 1),
                                ("s3://lake/n/x y+z%.parquet", 1)):
                require(count(path, device) == 25 * files, f"{device}: {path} is {files} files")
            require(count("{s3://lake/n/year=2024,s3://lake/tpch/nation.parquet}", device, "paths") == 50, "a list of paths")
        for path in ("s3://lake/none", "s3://lake/none.parquet", "s3://lake/none/*.parquet", "s3://lake/n/e"):
            session.run(f"ALTER FOREIGN TABLE public.objects OPTIONS (DROP paths, ADD path '{path}')" if path.endswith("none")
                        else f"ALTER FOREIGN TABLE public.objects OPTIONS (SET path '{path}')")
            expect_error(session, "SELECT * FROM public.objects", _MISSING, [path])
        for path, states, words in (("hdfs://n/x", ["0A000"], ["s3://, gs://, az://"]), ("s3://", ["22023"], ["bucket"]), ("s3://lake/../x", ["22023"], ['".."'])):
            expect_error(session, f"ALTER FOREIGN TABLE public.objects OPTIONS (SET path '{path}')", states, words)
        session.run("ALTER FOREIGN TABLE public.objects OPTIONS (SET path 's3://other/x.parquet')")
        expect_error(session, "SELECT * FROM public.objects", _DENIED, ["lake_gpu", "stores"])
        session.run("ALTER FOREIGN TABLE public.objects OPTIONS (SET path 's3://lake/delta')")
        expect_error(session, "SELECT * FROM public.objects", ["0A000"], ["Delta Lake"])
        session.run("ALTER FOREIGN TABLE public.objects OPTIONS (ADD writable 'true')")
        expect_error(session, "INSERT INTO public.objects VALUES ('x')", ["0A000"], ["Delta Lake"])
        session.run("CREATE SCHEMA imported; IMPORT FOREIGN SCHEMA \"s3://lake\" EXCEPT (delta) FROM SERVER lake_cpu INTO imported")
        tables = session.run("SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'imported'::regnamespace").scalar()
        require(tables == "n,tpch", f"tables of folders: {tables}")
        require(session.run("SELECT count(*) FROM imported.n WHERE year = 2024").scalar() == "25", "keys of folders are columns")
        session.run("DROP SCHEMA imported CASCADE; DROP FOREIGN TABLE public.objects")


def _put_tables(lake):
    """Puts the tables of Delta Lake and Iceberg that the SQL tests make into the store, and some that name what they must not."""
    regress = pathlib.Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number in "123":
            shutil.copy(regress / "data" / f"t{number}.parquet", folder)
        subprocess.run(["python3", regress / "include" / "iceberg.py", folder], check=True)
        subprocess.run(["sh", regress / "include" / "delta.sh"], env={**os.environ, "PYSTACHIO_REGRESS_DATA": name}, check=True)
        log = folder / "delta_bad" / "local" / "_delta_log" / f"{0:020d}.json"
        shutil.copytree(folder / "delta_bad" / "away", log.parents[1])
        log.write_text(log.read_text(encoding="utf-8").replace("s3://bucket/t1.parquet", "file:///etc/hostname"), encoding="utf-8")
        # Its file of deletes is not written here.
        shutil.rmtree(folder / "iceberg" / "positions")
        for path in sorted(folder.glob("*/**/*")):
            if path.is_file():
                lake.store.put(urllib.parse.quote(str(path.relative_to(folder))), path)


def tables(place):
    """Tables of Delta Lake and Iceberg: their logs, metadata, files and deletes are read from the store, and from nowhere else."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session:
        _put_tables(lake)
        for device in _DEVICES:
            for form in ("delta", "iceberg"):
                session.run(f"CREATE SCHEMA imported; IMPORT FOREIGN SCHEMA \"s3://lake/{form}\" FROM SERVER lake_{device} INTO imported")
                for query, expected in (("count(*), count(part), min(id) > 0 FROM imported.t", ("120", "40", "t")),
                                        ("count(*), count(later), count(DISTINCT id) FROM imported.wider", ("120", "0", "120")),
                                        ("count(*), sum((id = 3)::integer), sum((id = 4)::integer) FROM imported.vector", ("114", "0", "0")),
                                        ("count(*), min(id), max(id) FROM imported.empty", ("0", None, None))):
                    rows = session.run(f"SELECT {query}").rows
                    require(rows == [expected], f"{device}: {query} of {form}: {rows}")
                session.run("DROP SCHEMA imported CASCADE")
            for path, form, version in (("iceberg/t", "iceberg", "101"), ("delta/t", "delta", "0"), ("iceberg/t/metadata/v1.metadata.json", "iceberg", "101")):
                session.run(f"CREATE FOREIGN TABLE public.objects (id integer, part date) SERVER lake_{device} "
                            f"OPTIONS (path 's3://lake/{path}', format '{form}', version '{version}')")
                require(session.run("SELECT count(*), count(part) FROM public.objects").rows == [("120", "120")], f"{device}: version {version} of {path}")
                session.run("DROP FOREIGN TABLE public.objects")
            # The table itself is allowed, and what it names is not.
            for path, words in (("iceberg_bad/away", "s3://bucket/t1.parquet"), ("delta_bad/away", "s3://bucket/t1.parquet"), ("delta_bad/local", "/etc/hostname")):
                session.run(f"CREATE FOREIGN TABLE public.objects (id integer) SERVER lake_{device} "
                            f"OPTIONS (path 's3://lake/{path}', format '{path.split('_')[0]}')")
                expect_error(session, "SELECT sum(id) FROM public.objects", _DENIED, [words])
                session.run("DROP FOREIGN TABLE public.objects")
            session.run(f"ALTER SERVER lake_{device} OPTIONS (SET stores 's3://lake/iceberg/t/metadata/,s3://lake/tpch/')")
            session.run(f"CREATE FOREIGN TABLE public.objects (id integer) SERVER lake_{device} "
                        "OPTIONS (path 's3://lake/iceberg/t/metadata/v1.metadata.json', format 'iceberg')")
            expect_error(session, "SELECT sum(id) FROM public.objects", _DENIED, ["s3://lake/iceberg/t/t1.parquet"])
            session.run(f"DROP FOREIGN TABLE public.objects; ALTER SERVER lake_{device} OPTIONS (SET stores 's3://lake/')")


_CLIENT = """
import sys
from pyiceberg.catalog.rest import RestCatalog
catalog = RestCatalog("other", uri=sys.argv[1], warehouse="main", credential="reader:hush-reader", **{"header.X-Iceberg-Access-Delegation": "vended-credentials"})
for namespace in (("sales",), ("sales", "eu")):
    for name in sorted(catalog.list_tables(namespace)):
        rows = catalog.load_table(name).scan().to_arrow()
        print(name[-1], rows.num_rows, sum(rows.column("id").to_pylist()))
"""


@contextlib.contextmanager
def _catalog(lake, session):
    """A catalog of tables in the store, which the servers name, and whose client's name and secret are in the superuser's mapping."""
    catalog = store_server.Catalog(lake.store)
    try:
        for device in _DEVICES:
            session.run(f"ALTER SERVER lake_{device} OPTIONS (ADD catalog '{catalog.endpoint}', ADD warehouse 'main')")
            session.run(f"ALTER USER MAPPING FOR postgres SERVER lake_{device} OPTIONS (ADD client_id 'reader', ADD client_secret 'hush-reader')")
        yield catalog
    finally:
        catalog.close()


def catalogs(place):
    """Tables of a REST catalog: as another client of the catalog reads them, one state a statement, each by its role's own token."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session, _catalog(lake, session) as catalog:
        relations = (("orders", "imported.orders"), ("parts", "imported.parts"), ("with.point", 'imported."with.point"'), ("zeros", "imported.zeros"), ("orders", "eu.orders"))

        def compare(text):
            """Compares the tables with what another client of the catalog reads."""
            asked = subprocess.run([catalog.python, "-c", _CLIENT, catalog.endpoint], check=True, capture_output=True, text=True).stdout
            theirs = [tuple(line.split()) for line in asked.splitlines()]
            ours = [(table, *session.run(f"SELECT count(*), coalesce(sum(id), 0) FROM {relation}").rows[0]) for table, relation in relations]
            require(ours == theirs and len(ours) == 5, f"{text}: {ours}, not {theirs}")

        for device in _DEVICES:
            session.run("DROP SCHEMA IF EXISTS imported, eu CASCADE; CREATE SCHEMA imported; CREATE SCHEMA eu")
            session.run(f"IMPORT FOREIGN SCHEMA sales FROM SERVER lake_{device} INTO imported")
            session.run(f"IMPORT FOREIGN SCHEMA \"sales.eu\" FROM SERVER lake_{device} INTO eu")
            compare(device)
            options = session.run("SELECT ftoptions::text FROM pg_foreign_table WHERE ftrelid = 'imported.\"with.point\"'::regclass").scalar()
            require("path" not in options and "sales" in options, f"a table is known by its names: {options}")
            plan = str(session.run("EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) SELECT count(*) FROM imported.orders").rows)
            require("snapshot" in plan and "hush" not in plan, f"EXPLAIN shows the snapshot and no secret: {plan}")

            # The next statement sees the next state, also one that was prepared; a number of a snapshot means that one.
            session.run("DEALLOCATE ALL; PREPARE asked AS SELECT count(*) FROM eu.orders; EXECUTE asked")
            before, first = int(session.run("EXECUTE asked").scalar()), re.search(r"snapshot (\d+)", str(session.run("EXPLAIN VERBOSE SELECT count(*) FROM eu.orders").rows)).group(1)
            catalog.change("append sales.eu.orders")
            compare(f"{device}, after rows were appended")
            require(int(session.run("EXECUTE asked").scalar()) == before + 50, f"{device}: rows that were appended")
            session.run(f"ALTER FOREIGN TABLE eu.orders OPTIONS (ADD version '{first}')")
            require(int(session.run("SELECT count(*) FROM eu.orders").scalar()) == before, f"{device}: a former snapshot")
            session.run("ALTER FOREIGN TABLE eu.orders OPTIONS (DROP version)")
            both = "SELECT count(*) FROM imported.orders a JOIN imported.orders b USING (id)"
            require(session.run(both).scalar() == "100", f"{device}: each row meets itself")
            catalog.change("delete sales.parts")
            compare(f"{device}, after changes")

            # Where the catalog leads is the server's to allow.
            session.run(f"ALTER SERVER lake_{device} OPTIONS (SET stores 's3://lake/tpch/')")
            expect_error(session, "SELECT count(*) FROM imported.orders", _DENIED, ["s3://lake/warehouse/"])
            session.run(f"ALTER SERVER lake_{device} OPTIONS (SET stores 's3://lake/')")

            # Keys that the catalog lends, and the place where they are good for something.
            session.run(f"ALTER SERVER lake_{device} OPTIONS (ADD credentials 'catalog', DROP endpoint)")
            lake.store.requests()
            require(int(session.run("SELECT count(*) FROM imported.parts").scalar()) > 0, f"{device}: rows by the catalog's keys")
            keys = {request[3] for request in lake.store.requests()}
            require(keys == {"lent-key"}, f"{device}: the keys that are lent are used alone: {keys}")
            catalog.change("lend nothing")
            error = expect_error(session, "SELECT count(*) FROM imported.parts", _DENIED, ["lends no keys"])
            require("hush" not in str(vars(error)), "no secret")
            catalog.change(f"lend {lake.store.endpoint}")
            session.run(f"ALTER SERVER lake_{device} OPTIONS (DROP credentials, ADD endpoint '{lake.store.endpoint}')")

            # Names that the catalog does not have.
            for namespace, words in (("none", ["namespace", "none"]), ("sales.none", ["sales.none"])):
                expect_error(session, f'IMPORT FOREIGN SCHEMA "{namespace}" FROM SERVER lake_{device} INTO imported', _MISSING, words)
            expect_error(session, f"IMPORT FOREIGN SCHEMA sales LIMIT TO (nothing) FROM SERVER lake_{device} INTO imported", _MISSING, ["nothing", "sales"])
            session.run(f"CREATE FOREIGN TABLE imported.missing (id bigint) SERVER lake_{device} OPTIONS (table 'sales.missing')")
            expect_error(session, "SELECT * FROM imported.missing", _MISSING, ["sales.missing", catalog.endpoint])
            for option, words in (("ADD writable 'true'", "can't be written"), ("ADD path '/x'", "exclude"), ("ADD format 'delta'", "iceberg"), ("SET table 'alone'", "namespace")):
                expect_error(session, f"ALTER FOREIGN TABLE imported.missing OPTIONS ({option})", ["22023"], [words])


def catalog_faults(place):
    """A catalog that fails, is late, or does not know the asker."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session, _catalog(lake, session) as catalog:
        for device in _DEVICES:
            session.run("DROP SCHEMA IF EXISTS imported CASCADE; CREATE SCHEMA imported")
            session.run(f"IMPORT FOREIGN SCHEMA sales FROM SERVER lake_{device} INTO imported")
            query, server = "SELECT count(*) FROM imported.orders", f"lake_{device}"
            for name, act, times in (("503", store_server.status(503), 2), ("no answer", store_server.unanswered, 2)):
                with catalog.fault("GET", "/tables/orders", act, times) as fault:
                    require(session.run(query).scalar() == "100", f"{device}: {name}: the right rows")
                    require(fault.seen == times, f"{device}: {name}: it was asked again")
            for name, act, states, words in (
                ("503", store_server.status(503), _FAILED, ["503"]),
                ("no answer", store_server.unanswered, _FAILED, ["the connection was cut"]),
                ("403", store_server.status(403), _DENIED, ["refuses table", "sales.orders"]),
                ("404", store_server.status(404), _MISSING, ["sales.orders"]),
                ("a page", lambda request: request.answer(200, [], b"<html>hush</html>"), _FAILED, ["REST catalog"]),
                ("elsewhere", lambda request: request.answer(302, [("Location", "http://127.0.0.1:9/hush")], b""), _FAILED, ["302"]),
            ):
                with catalog.fault("GET", "/tables/orders", act):
                    error = expect_error(session, query, states, words)
                    require("hush" not in str(vars(error)), f"{device}: {name}: no secret, and nothing of the answer")
                require(session.run(query).scalar() == "100", f"{device}: {name}: the right rows after that")
            # A catalog that keeps a query waiting.
            gate = threading.Event()

            def hold(request, gate=gate):
                gate.wait(300)
                request.close_connection = True

            with catalog.fault("GET", "/tables/orders", hold) as fault:
                session.run(f"ALTER SERVER {server} OPTIONS (SET store_timeout '10min')")
                session.run("SELECT 1")
                session.start(query)
                wait_until(lambda fault=fault: fault.seen > 0, "the engine waits for the catalog")
                session.cancel()
                expect_failure(session, query, ["57014"])
                gate.set()
            session.run(f"ALTER SERVER {server} OPTIONS (SET store_timeout '5s')")

            # Tokens end before their time, and at it.
            catalog.requests()
            require(session.run(query).scalar() == "100", "rows")
            require(not [request for request in catalog.requests("POST")], f"{device}: a token is used again")
            catalog.change("forget tokens")
            require(session.run(query).scalar() == "100", f"{device}: another token is asked for")
            require(len(catalog.requests("POST")) == 1, f"{device}: once")
            for options, words in (("SET client_secret 'wrong'", "refuses a token"), ("DROP client_id, DROP client_secret", "refuses"), ("ADD token 'wrong'", "refuses")):
                session.run(f"ALTER USER MAPPING FOR postgres SERVER {server} OPTIONS ({options})")
                error = expect_error(session, query, _DENIED, [words])
                require("wrong" not in str(vars(error)) and "hush" not in str(vars(error)), "no secret")
            session.run(f"ALTER USER MAPPING FOR postgres SERVER {server} OPTIONS (SET token 'hush-fixed-token')")
            require(session.run(query).scalar() == "100", f"{device}: a token of the mapping")

            # Each by the mapping of its role.
            session.run("DROP ROLE IF EXISTS cataloger; CREATE ROLE cataloger")
            try:
                session.run(f"GRANT USAGE ON SCHEMA imported TO cataloger; GRANT SELECT ON ALL TABLES IN SCHEMA imported TO cataloger; GRANT USAGE ON FOREIGN SERVER {server} TO cataloger")
                session.run("CREATE VIEW imported.seen AS SELECT id FROM imported.orders; GRANT SELECT ON imported.seen TO cataloger; SET ROLE cataloger")
                expect_error(session, query, _DENIED, ["refuses"])
                require(session.run("SELECT count(*) FROM imported.seen").scalar() == "100", f"{device}: the view's owner asks")
                session.run(f"RESET ROLE; CREATE USER MAPPING FOR cataloger SERVER {server} OPTIONS (client_id 'short', client_secret 'hush-short', access_key_id 'cataloger', secret_access_key 'x'); SET ROLE cataloger")
                catalog.requests(), lake.store.requests()
                require(session.run(query).scalar() == "100", f"{device}: its own mapping")
                require("hush-fixed-token" not in {request[3] for request in catalog.requests()}, f"{device}: its own token")
                require({request[3] for request in lake.store.requests()} == {"cataloger"}, f"{device}: its own key")
            finally:
                session.run(f"RESET ROLE; DROP USER MAPPING IF EXISTS FOR cataloger SERVER {server}; DROP OWNED BY cataloger; DROP ROLE cataloger")
            # Options that do not fit together.
            session.run(f"ALTER SERVER {server} OPTIONS (SET warehouse 'other')")
            expect_error(session, query, _MISSING, ["configuration"])
            expect_error(session, f"ALTER SERVER {server} OPTIONS (DROP catalog)", ["22023"], ["warehouse"])
            session.run(f"ALTER SERVER {server} OPTIONS (DROP catalog, DROP warehouse)")
            expect_error(session, query, ["22023"], [server, "no catalog"])
            expect_error(session, f"ALTER SERVER {server} OPTIONS (ADD credentials 'catalog')", ["22023"], ["catalog"])
            session.run(f"ALTER USER MAPPING FOR postgres SERVER {server} OPTIONS (DROP token)")


def signed_catalogs(place):
    """A catalog that demands signatures of AWS, and checks each: by the keys of the role's mapping, for the service and the region that are named or told."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session, _catalog(lake, session) as catalog:
        for device in _DEVICES:
            server = f"lake_{device}"
            session.run("DROP SCHEMA IF EXISTS imported, eu CASCADE; CREATE SCHEMA imported; CREATE SCHEMA eu")

            def mapping(options, server=server):
                session.run(f"DROP USER MAPPING FOR postgres SERVER {server}; CREATE USER MAPPING FOR postgres SERVER {server} OPTIONS ({options})")

            signer = "access_key_id 'signer', secret_access_key 'hush-signer'"
            catalog.change("sign glue eu-central-1")
            mapping(signer)
            imports = f"IMPORT FOREIGN SCHEMA sales FROM SERVER {server} INTO imported"
            expect_error(session, imports, _DENIED, ["refuses", "MissingAuthenticationTokenException", "sigv4_enabled"])
            session.run(f"ALTER SERVER {server} OPTIONS (ADD sigv4_enabled 'true', ADD signing_name 'glue', ADD signing_region 'eu-central-1')")
            session.run(imports)
            session.run(f"IMPORT FOREIGN SCHEMA \"sales.eu\" FROM SERVER {server} INTO eu")
            query = "SELECT count(*) FROM imported.\"with.point\""
            require(session.run(query).scalar() == "100", f"{device}: rows by a signature")
            require(int(session.run("SELECT count(*) FROM eu.orders").scalar()) > 0, f"{device}: a namespace in another")
            catalog.requests()
            with catalog.fault("GET", "/tables/with.point", store_server.status(503), 2) as fault:
                require(session.run(query).scalar() == "100" and fault.seen == 2, f"{device}: each try has a signature")
            require({request[3] for request in catalog.requests()} == {"signer"}, f"{device}: the key of the mapping alone")
            plan = str(session.run(f"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) {query}").rows)
            require("hush" not in plan and "AWS4" not in plan, f"{device}: EXPLAIN has no secret")

            # Keys that are wrong, of a session, at their end, and none.
            for options, words in ((signer.replace("hush-signer", "wrong"), ["InvalidSignatureException", "secret_access_key"]),
                                   ("access_key_id 'nobody', secret_access_key 'wrong'", ["InvalidSignatureException"]),
                                   ("access_key_id 'session', secret_access_key 'hush/session+'", ["UnrecognizedClientException", "session_token"]),
                                   ("access_key_id 'expired', secret_access_key 'hush-expired', session_token 'hush-old-token'", ["ExpiredTokenException"]),
                                   ("access_key_id 'a key', secret_access_key 'hush'", ["no credentials", "access_key_id"]),
                                   ("token 'hush-fixed-token'", ["no credentials", "access_key_id"])):
                mapping(options)
                error = expect_error(session, query, _DENIED, [catalog.endpoint, *words])
                shown = f"{error.message} {error.detail} {error.hint}"
                require("hush" not in shown and "wrong" not in shown and "Signature=" not in shown, f"{device}: no secret: {shown}")
            mapping("access_key_id 'session', secret_access_key 'hush/session+', session_token 'hush-session-token'")
            require(session.run(query).scalar() == "100", f"{device}: keys of a session")
            mapping(signer)
            for option, value in (("signing_name", "s3tables"), ("signing_region", "eu-central-2")):
                session.run(f"ALTER SERVER {server} OPTIONS (SET {option} '{value}')")
                expect_error(session, query, _DENIED, ["InvalidSignatureException", option])
                session.run(f"ALTER SERVER {server} OPTIONS (SET {option} '{'glue' if option == 'signing_name' else 'eu-central-1'}')")
            for option, words in (("SET signing_name 'a/b'", ["signing_name", "glue"]), ("SET sigv4_enabled 'yes'", ["sigv4_enabled", "true"])):
                expect_error(session, f"ALTER SERVER {server} OPTIONS ({option})", ["22023"], words)

            # The region of the stores counts where no other is named; a catalog may say all of it, unless the server forbids that.
            session.run(f"ALTER SERVER {server} OPTIONS (DROP signing_region, ADD region 'eu-central-1')")
            require(session.run(query).scalar() == "100", f"{device}: the region of the stores")
            catalog.change("tell s3tables us-west-2")
            session.run(f"ALTER SERVER {server} OPTIONS (DROP sigv4_enabled, DROP signing_name)")
            require(session.run(query).scalar() == "100", f"{device}: as the catalog says")
            session.run(f"ALTER SERVER {server} OPTIONS (ADD sigv4_enabled 'false')")
            expect_error(session, query, _DENIED, ["MissingAuthenticationTokenException"])
            session.run(f"ALTER SERVER {server} OPTIONS (DROP sigv4_enabled, DROP region)")

            # Keys that a signed answer lends read the files. Those that have ended are asked for again, however old answers may be.
            session.run(f"ALTER SERVER {server} OPTIONS (ADD credentials 'catalog', DROP endpoint, ADD listing_age '1h')")
            for end, asked in (("99999999999999", False), ("1", True)):
                catalog.change(f"lend {lake.store.endpoint} {end}")
                session.run(f"ALTER SERVER {server} OPTIONS (SET store_timeout '{6 if asked else 7}s')")
                require(session.run(query).scalar() == "100", f"{device}: rows by lent keys")
                catalog.requests(), lake.store.requests()
                require(session.run(query).scalar() == "100", f"{device}: rows by lent keys again")
                require({request[3] for request in lake.store.requests()} <= {"lent-key"}, f"{device}: lent keys alone read files")
                require(bool(catalog.requests()) == asked, f"{device}: keys that end at {end} are asked for again: {asked}")
            catalog.change(f"lend {lake.store.endpoint}")
            catalog.change("trust")
            session.run(f"ALTER SERVER {server} OPTIONS (DROP credentials, ADD endpoint '{lake.store.endpoint}', DROP listing_age)")
        session.run("DROP SCHEMA imported, eu CASCADE")


_VIEW_REASONS = {
    "bad_bytes": "zero byte",
    "bad_call": '"pg_read_file"',
    "bad_columns": "more column names than columns",
    "bad_delete": "changes rows",
    "bad_drop": "not a SELECT",
    "bad_into": "INTO",
    "bad_lock": "locks rows",
    "bad_operator": '"kept_equal"',
    "bad_own_call": '"kept_call"',
    "bad_parameter": "$1",
    "bad_place": '"public.kept"',
    "bad_system": '"pg_authid"',
    "bad_two": "2 statements",
    "empty": "no text",
    "quoted": "dialect spark",
    "spark": "dialect spark",
}


def views_of_catalogs(place):
    """Views of a catalog: named by IMPORT, made by a function, by the rights of the role that calls it. A hostile text is never run."""
    with _lake(place) as lake, place.session() as session, _catalog(lake, session) as catalog:
        session.run("DROP SCHEMA IF EXISTS imported CASCADE; CREATE SCHEMA imported; DROP TABLE IF EXISTS public.kept; CREATE TABLE public.kept (a integer)")
        session.run("CREATE OR REPLACE FUNCTION public.kept_call() RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT 1'")
        session.run("CREATE OR REPLACE FUNCTION public.kept_equal(bigint, integer) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true'")
        session.run("DROP OPERATOR IF EXISTS public.=== (bigint, integer); CREATE OPERATOR public.=== (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = public.kept_equal)")
        session.notices.clear()
        session.run("IMPORT FOREIGN SCHEMA sales FROM SERVER lake_cpu INTO imported")
        named = [notice for notice in session.notices if "views" in notice]
        require(len(named) == 1 and '"big"' in named[0] and '"spark"' in named[0], f"IMPORT names the views: {session.notices}")
        expect_error(session, "IMPORT FOREIGN SCHEMA sales LIMIT TO (big) FROM SERVER lake_cpu INTO imported", _MISSING, ["import_views"])
        call = "SELECT view, command, reason FROM pystachio.import_views('lake_cpu', 'sales', 'imported'{}) ORDER BY view COLLATE \"C\""

        def outcomes(more=""):
            return {view: (command, reason) for view, command, reason in session.run(call.format(more)).rows}

        session.run("SET search_path = public")
        found = outcomes()
        for view, words in _VIEW_REASONS.items():
            command, reason = found.pop(view)
            require(command is None and words in reason, f"{view}: {command}, {reason}")
        require(sorted(found) == ["a_over_big", "big", "joined"] and all(reason is None for _, reason in found.values()), f"views that are made: {found}")
        require(all("security_invoker" in command for command, _ in found.values()), f"rights of the reader: {found}")
        require(session.run("SHOW search_path").scalar() == "public", "the setting is as before")
        require(session.run("SELECT count(*) FROM public.kept").scalar() == "0" and session.run("SELECT to_regclass('public.kept2') IS NULL").scalar() == "t", "no text was run")
        for query, expected in (('SELECT count(*), min(id), max("Kind") FROM imported.big', ("49", "51", "k2")), ("SELECT top FROM imported.a_over_big", ("99",)),
                                ("SELECT count(*), sum(n) FROM imported.joined", ("100", "100"))):
            rows = session.run(query).rows
            require(rows == [expected], f"{query}: {rows}")
        plan = str(session.run("EXPLAIN (COSTS OFF) SELECT count(*) FROM imported.joined").rows)
        require("Foreign Scan" in plan and "Join" not in plan.replace("Joined", ""), f"the engine computes a view whole: {plan}")
        # Another time, and other dialects.
        found = outcomes(", true")
        require("already exists" in found["big"][1], f"a view is not replaced: {found['big']}")
        require(found["spark"][1] is None and "syntax error" in found["quoted"][1], f"other dialects: {found['spark']}, {found['quoted']}")
        require(session.run("SELECT count(DISTINCT k) FROM imported.spark").scalar() == "3", "a view of another dialect")
        # In a transaction that is rolled back nothing remains.
        session.run("DROP VIEW imported.spark")
        session.run("BEGIN")
        require(outcomes(", true")["spark"][1] is None, "in a transaction")
        session.run("ROLLBACK")
        require(session.run("SELECT to_regclass('imported.spark') IS NULL").scalar() == "t", "nothing of it is left")
        # By the rights of the calling role.
        session.run("SET client_min_messages = warning; DROP ROLE IF EXISTS viewer; CREATE ROLE viewer")
        try:
            session.run("SET ROLE viewer")
            expect_error(session, call.format(""), _DENIED, ["lake_cpu"])
            session.run("RESET ROLE; GRANT USAGE ON FOREIGN SERVER lake_cpu TO viewer; SET ROLE viewer")
            expect_error(session, call.format(""), _DENIED, ["refuses"])
            session.run("RESET ROLE; CREATE USER MAPPING FOR viewer SERVER lake_cpu OPTIONS (client_id 'reader', client_secret 'hush-reader'); SET ROLE viewer")
            require("permission denied" in outcomes(", true")["spark"][1], "no right on the schema")
        finally:
            session.run("RESET ROLE; DROP USER MAPPING IF EXISTS FOR viewer SERVER lake_cpu; DROP OWNED BY viewer; DROP ROLE viewer")
        # A view that the catalog does not describe, a catalog that lists none, a server without one.
        session.run("DROP VIEW imported.joined")
        with catalog.fault("GET", "/views/joined", store_server.status(403)):
            require("refuses view" in outcomes()["joined"][1], "a view that the catalog refuses")
        with catalog.fault("GET", "/views/joined", lambda request: request.answer(200, [], b"{}")):
            require("REST catalog" in outcomes()["joined"][1], "an answer that is none")
        with catalog.fault("GET", "/views", store_server.status(403)):
            session.notices.clear()
            session.run("CREATE SCHEMA again; SET client_min_messages = notice; IMPORT FOREIGN SCHEMA sales FROM SERVER lake_cpu INTO again")
            require(any("are not known" in notice for notice in session.notices), f"tables without views: {session.notices}")
        expect_error(session, "SELECT * FROM pystachio.import_views('lake_cpu', 'none', 'imported')", _MISSING, ["none"])
        expect_error(session, "SELECT * FROM pystachio.import_views('pystachio', 'sales', 'imported')", ["22023"], ["pystachio", "catalog"])
        session.run("SET client_min_messages = warning; DROP SCHEMA imported, again CASCADE; DROP TABLE public.kept; DROP OPERATOR public.=== (bigint, integer); DROP FUNCTION public.kept_call, public.kept_equal")


def web(place):
    """A file by http, without a list and without credentials."""
    with _lake(place) as lake, place.session() as session:
        lake.store.put("public/nation.parquet", lake.tpch / "nation.parquet", **{"x-amz-acl": "public-read"})
        url = f"{lake.store.endpoint}/lake/public/nation.parquet"
        for device in _DEVICES:
            session.run(f"ALTER SERVER lake_{device} OPTIONS (SET stores '{lake.store.endpoint}/lake')")
            session.run(f"DROP FOREIGN TABLE IF EXISTS public.web; CREATE FOREIGN TABLE public.web (n_name text) SERVER lake_{device} OPTIONS (path '{url}')")
            require(session.run("SELECT count(*), min(n_name) FROM public.web").rows == [("25", "ALGERIA")], f"{device}: rows by http")
            with lake.store.fault("GET", "public", lambda request: request.answer(200, [], request.forward()[2])):
                session.run(f"ALTER SERVER lake_{device} OPTIONS (SET object_cache '99MB')")
                expect_error(session, "SELECT max(n_name) FROM public.web", _FAILED, ["parts of files"])
            session.run(f"ALTER SERVER lake_{device} OPTIONS (SET stores 's3://lake/')")
        session.run("DROP FOREIGN TABLE public.web")


_XML = "<?xml version='1.0' encoding='utf-8'?><Error><Code>{}</Code><Message>hush</Message></Error>"
# Of each scheme: options of a user mapping, the one that errors name, and what the store answers to a wrong bucket and to a wrong key.
_SCHEMES = {
    "s3": ("access_key_id 'a', secret_access_key 'hush'", "secret_access_key", "NoSuchBucket", "SignatureDoesNotMatch"),
    "gs": ("service_account_key '{\"gcs_base_url\": \"http://127.0.0.1:9\", \"disable_oauth\": true, \"client_email\": \"hush\", \"private_key\": \"hush\", \"private_key_id\": \"\"}'",
           "service_account_key", "NoSuchBucket", "AccessDenied"),
    "az": ("account_name 'a', account_key 'aHVzaA=='", "account_key", "ContainerNotFound", "AuthenticationFailed"),
}


def wrong_options(place):
    """A wrong bucket, key or endpoint, of each scheme: the error has the URL, what the store has answered, and the option that helps."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session, socket.socket() as closed:
        # A port at which nothing listens.
        closed.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}"

        def answers(status, content=b""):
            return lambda request: request.answer(status, [("Content-Type", "application/xml")], content)

        def fails(statement, states, words):
            error = expect_error(session, statement, states, words)
            shown = f"{error.message} {error.detail} {error.hint}"
            require("hush" not in shown and "aHVzaA" not in shown and "Signature=" not in shown, f"no secret: {shown}")

        for scheme, (options, option, no_bucket, no_right) in _SCHEMES.items():
            session.run("DROP SERVER IF EXISTS wrong CASCADE")
            session.run(f"CREATE SERVER wrong FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', stores '{scheme}://', endpoint '{lake.store.endpoint}', store_timeout '5s')")
            folder, file = f"{scheme}://none/t", f"{scheme}://none/t/a.parquet"
            for name, path in (("folder", folder), ("file", file)):
                session.run(f"CREATE FOREIGN TABLE public.wrong_{name} (k integer) SERVER wrong OPTIONS (path '{path}')")
            statements = [("SELECT * FROM public.wrong_folder", folder), ("SELECT * FROM public.wrong_file", file),
                          (f"IMPORT FOREIGN SCHEMA \"{folder}\" FROM SERVER wrong INTO public", folder)]
            for statement, _ in statements:
                fails(statement, _DENIED, ["no credentials", f"{scheme}://none/", "CREATE USER MAPPING", option])
            session.run(f"CREATE USER MAPPING FOR postgres SERVER wrong OPTIONS ({options})")
            with lake.store.fault("GET", "", answers(404, _XML.format(no_bucket).encode())), lake.store.fault("HEAD", "", answers(404)):
                for statement, _ in statements:
                    fails(statement, _MISSING, [f"{scheme}://none/", '"none"', no_bucket, "endpoint"])
            with lake.store.fault("GET", "", answers(403, _XML.format(no_right).encode())), lake.store.fault("HEAD", "", answers(403)):
                for statement, url in statements:
                    fails(statement, _DENIED, [scheme + "://none", "permission denied", "403", option] + ([no_right] if url == folder else []))
            with lake.store.fault("GET", "", answers(200, b"hush")), lake.store.fault("HEAD", "", answers(404)):
                for statement, _ in statements:
                    fails(statement, _FAILED, [f"{scheme}://none/", "not that of such a store", "endpoint"])
            session.run(f"ALTER SERVER wrong OPTIONS (SET endpoint '{refused}', SET store_timeout '1s')")
            for statement, _ in statements:
                fails(statement, _FAILED, [f"{scheme}://none/", "no connection", "endpoint"])
            for value in ("nowhere", "ftp://h", "https://h/?x"):
                fails(f"ALTER SERVER wrong OPTIONS (SET endpoint '{value}')", ["22023"], ["endpoint", value, "URL"])
            if scheme != "s3":
                session.run("ALTER USER MAPPING FOR postgres SERVER wrong OPTIONS (SET {})".format("service_account_key '{hush'" if scheme == "gs" else "account_key 'hush!'"))
                fails(statements[0][0], ["22023"], [f"{scheme}://none/", option])
        session.run(f"ALTER SERVER wrong OPTIONS (SET stores '{lake.store.endpoint}/,{refused}/')")
        session.run(f"CREATE FOREIGN TABLE public.wrong_web (k integer) SERVER wrong OPTIONS (path '{lake.store.endpoint}/none/t.parquet')")
        for status, states, words in ((404, _MISSING, ["does not exist"]), (401, _DENIED, ["401", "bearer_token"]), (500, _FAILED, ["500"])):
            with lake.store.fault("GET", "", answers(status)), lake.store.fault("HEAD", "", answers(status)):
                fails("SELECT * FROM public.wrong_web", states, [f"{lake.store.endpoint}/none/t.parquet", *words])
        session.run(f"ALTER FOREIGN TABLE public.wrong_web OPTIONS (SET path '{refused}/none/t.parquet')")
        fails("SELECT * FROM public.wrong_web", _FAILED, [f"{refused}/none/t.parquet", "no connection"])
        session.run("DROP SERVER wrong CASCADE")


def failing_store(place):
    """Requests that fail for a while are sent again; others are an error that says what the store answered."""
    with _lake(place) as lake, place.session() as session:
        for device in _DEVICES:
            for name, act, times in (("503", store_server.status(503), 3), ("cut", store_server.cut(1000), 3), ("cut at once", store_server.cut(0), 2)):
                lake.fresh(session)
                with lake.store.fault("GET", "lineitem.parquet", act, times) as fault:
                    require(lake.rows(session, device) == lake.expected, f"{device}: {name}: the right rows")
                    require(fault.seen == times, f"{device}: {name}: {fault.seen} of {times} faults")
            for name, act, states, words in (
                ("503", store_server.status(503), _FAILED, ["503", "SlowDown"]),
                ("404", store_server.status(404), _MISSING, ["does not exist"]),
                ("403", store_server.status(403), _DENIED, ["permission denied"]),
                ("cut", store_server.cut(1000), _FAILED, ["lineitem.parquet"]),
                ("shortened", store_server.shortened, _FAILED, ["broke off"]),
            ):
                lake.fresh(session)
                with lake.store.fault("GET", "lineitem.parquet", act):
                    error = expect_error(session, _QUERY.format(f"lake_{device}"), states, words)
                    require(_SECRET not in str(vars(error)) and "Signature" not in str(vars(error)), "the error has nothing of the request")
                require(lake.rows(session, device) == lake.expected, f"{device}: {name}: the right rows after that")


def changed_objects(place):
    """An object that is replaced is read anew; of one that is replaced while it is read no query has rows of both versions."""
    with _lake(place) as lake, place.session() as session:
        session.run("CREATE TEMP TABLE fewer AS SELECT * FROM tpch.lineitem WHERE l_orderkey < 1000")
        path = f"{place.folder}/fewer.parquet"
        session.run(f"SELECT * FROM pystachio.write_parquet('SELECT * FROM tpch.lineitem WHERE l_orderkey < 1000', '{path}', overwrite => true)")
        whole, fewer = lake.tpch / "lineitem.parquet", pathlib.Path(path)

        def put(file):
            return lambda: lake.store.put("tpch/lineitem.parquet", file)

        expected_fewer = session.run(_QUERY.format("tpch").replace("WHERE", "WHERE l_orderkey < 1000 AND")).rows
        for device in _DEVICES:
            query = _QUERY.format(f"lake_{device}")
            require(lake.rows(session, device) == lake.expected, f"{device}: before")
            put(fewer)()
            require(lake.rows(session, device) == expected_fewer, f"{device}: after")
            put(whole)()
            for name, change in (("conditional", store_server.after), ("unconditional", store_server.unconditional)):
                lake.fresh(session)
                put(whole)()
                with place.session() as other:
                    # Planned, with its footer read.
                    other.run(f"PREPARE asked AS {query}; EXPLAIN EXECUTE asked")
                    with lake.store.fault("GET", "lineitem.parquet", change(put(fewer))) as fault:
                        # A query that has returned no row may be planned again, for the new version.
                        rows = _rows_unless(other, "EXECUTE asked", _FAILED, "was changed while")
                        require(rows in (None, expected_fewer), f"{device}: {name}: rows of no version: {rows}")
                        require(fault.seen > 0, f"{device}: {name}: the object was replaced")
                put(whole)()
                require(lake.rows(session, device) == lake.expected, f"{device}: {name}: the right rows after that")


def cancelled(place):
    """A query that waits for a store ends when it is cancelled, while the store still keeps it waiting."""
    with _lake(place) as lake, place.session() as session:
        for device in _DEVICES:
            lake.fresh(session)
            gate = threading.Event()

            def hold(request, gate=gate):
                gate.wait(300)
                request.close_connection = True

            with lake.store.fault("GET", "lineitem.parquet", hold) as fault:
                session.run(f"ALTER SERVER lake_{device} OPTIONS (SET store_timeout '10min')")
                for what in (_QUERY.format(f"lake_{device}"), f"EXPLAIN {_QUERY.format(f'lake_{device}')}"):
                    session.run("SELECT 1")
                    before = fault.seen
                    session.start(what)
                    wait_until(lambda before=before: fault.seen > before, "the engine waits for the store")
                    session.cancel()
                    expect_failure(session, what, ["57014"])
                gate.set()
            session.run(f"ALTER SERVER lake_{device} OPTIONS (SET store_timeout '5s')")
            require(lake.rows(session, device) == lake.expected, f"{device}: the right rows after that")


def whose_mapping(place):
    """The user mapping of PostgreSQL's role counts, and a cached object is not another role's."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as boss:
        for role in ("asker", "owner_of_view", "stranger"):
            boss.run(f"DROP ROLE IF EXISTS {role}") if role != "owner_of_view" else None
            boss.run(f"DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        roles = "asker, owner_of_view, stranger"
        for device in _DEVICES:
            server, query = f"lake_{device}", "SELECT count(*) FROM {}"
            boss.run(f"GRANT USAGE ON FOREIGN SERVER {server} TO {roles}; GRANT USAGE, CREATE ON SCHEMA {server} TO {roles}")
            boss.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {server} TO {roles}")
            boss.run(f"CREATE VIEW {server}.nations AS SELECT n_name, n_nationkey FROM {server}.nation; GRANT SELECT ON {server}.nations TO {roles}")
            boss.run(f"ALTER VIEW {server}.nations OWNER TO owner_of_view")
            for role in ("asker", "owner_of_view"):
                boss.run(lake.mapping(role, server, f"key-of-{role}"))
            with place.session(role="stranger") as stranger:
                expect_error(stranger, query.format(f"{server}.nation"), _DENIED, ["no credentials", "USER MAPPING"])
                lake.store.requests()
                require(stranger.run(query.format(f"{server}.nations")).scalar() == "25", "the view's owner reads")
                keys = {request[3] for request in lake.store.requests()}
                require(keys == {"key-of-owner_of_view"}, f"{device}: the view's owner asks: {keys}")
            with place.session(role="asker") as asker:
                lake.store.requests()
                require(asker.run(query.format(f"{server}.nation")).scalar() == "25", "the asker reads")
                keys = {request[3] for request in lake.store.requests()}
                require(keys == {"key-of-asker"}, f"{device}: the asker asks: {keys}")
                both = f"SELECT count(*) FROM {server}.nation a JOIN {server}.nations b USING (n_nationkey)"
                require(asker.run(both).scalar() == "25", "a join of both")
                keys = {request[3] for request in lake.store.requests()}
                require(keys == {"key-of-asker", "key-of-owner_of_view"}, f"{device}: each table is asked for by its own role: {keys}")
                # Everything is cached, and known to the session.
                lake.store.refused_keys.add("key-of-asker")
                expect_error(asker, query.format(f"{server}.nation"), _DENIED, ["permission denied"])
                expect_error(asker, both, _DENIED, ["permission denied"])
                require(asker.run(query.format(f"{server}.nations")).scalar() == "25", "the view's owner still reads")
                lake.store.refused_keys.clear()
            # One session, several roles, one prepared statement.
            boss.run(f"PREPARE counted AS {query.format(f'{server}.nation')}")
            for role, key in (("postgres", "boss"), ("asker", "key-of-asker"), ("postgres", "boss")):
                boss.run(f"SET ROLE {role}")
                lake.store.requests()
                require(boss.run("EXECUTE counted").scalar() == "25", "a prepared statement")
                keys = {request[3] for request in lake.store.requests()}
                require(keys == {key}, f"{device}: {role} executes: {keys}")
            boss.run("SET ROLE stranger")
            expect_error(boss, "EXECUTE counted", _DENIED, ["no credentials"])
            boss.run("RESET ROLE; DEALLOCATE counted")
            # Rows that go through a view are written, and removed, by its owner's key.
            boss.run(f"CREATE FOREIGN TABLE {server}.kept (n integer) SERVER {server} OPTIONS (path 's3://lake/kept_{device}', writable 'true')")
            boss.run(f"GRANT ALL ON {server}.kept TO {roles}; CREATE VIEW {server}.keeps AS SELECT n FROM {server}.kept")
            boss.run(f"ALTER VIEW {server}.keeps OWNER TO owner_of_view; GRANT ALL ON {server}.keeps TO {roles}")
            for role in ("stranger", "asker"):
                with place.session(role=role) as session:
                    for statement in ("INSERT INTO {} VALUES (1)", "INSERT INTO {} SELECT n + 1 FROM {}", "DELETE FROM {}"):
                        lake.store.requests()
                        session.run(statement.replace("{}", f"{server}.keeps"))
                        keys = {request[3] for request in lake.store.requests()}
                        require(keys == {"key-of-owner_of_view"}, f"{device}: {role}: {statement} by {keys}")
            with place.session(role="stranger") as stranger:
                expect_error(stranger, f"INSERT INTO {server}.kept VALUES (1)", _DENIED, ["no credentials"])
        boss.run("DROP SCHEMA lake_cpu, lake_gpu CASCADE; DROP SERVER lake_cpu, lake_gpu CASCADE")
        boss.run("DROP OWNED BY asker, stranger; DROP ROLE asker, stranger")


def secrets(place):
    """A secret is in the catalog, and nowhere else: not in files of engines, logs, command lines and messages. Wrong options are errors that name no value."""
    with _lake(place) as lake, place.session() as session:
        for device in _DEVICES:
            require(lake.rows(session, device) == lake.expected, f"{device}: reads")
            with lake.store.fault("GET", "", store_server.status(503)):
                lake.fresh(session)
                expect_error(session, _QUERY.format(f"lake_{device}"), _FAILED, ["503"])
        found = []
        for path in [*pathlib.Path("/proc").glob("[0-9]*/cmdline"), *pathlib.Path("/proc").glob("[0-9]*/environ"),
                     *pathlib.Path(place.folder).rglob("*.json"), *pathlib.Path(place.folder).rglob("*log*")]:
            with contextlib.suppress(OSError):
                # The server's log has the statements of this test that failed, none of which has the secret.
                if path.is_file() and _SECRET.encode() in path.read_bytes():
                    found.append(str(path))
        require(found == [], f"the secret is in {found}")
        for views in ("pystachio.engines", "pystachio.queries", "pystachio.cache", "pg_stat_activity"):
            require(_SECRET not in str(session.run(f"SELECT * FROM {views}").rows).replace("CREATE USER MAPPING", ""), f"{views} does not have it")
        mapping = "CREATE USER MAPPING FOR public SERVER lake_cpu OPTIONS ({})"
        error = expect_error(session, mapping.format(f"secret '{_SECRET}'"), ["22023"], ["access_key_id"])
        require(_SECRET not in f"{error.message} {error.detail} {error.hint}", "the error names no value")
        expect_error(session, "ALTER SERVER lake_cpu OPTIONS (ADD credentials 'mine')", ["22023"], ["anonymous"])
        expect_error(session, "ALTER SERVER lake_cpu OPTIONS (SET endpoint 'ftp://x')", ["22023"], ["URL"])
        expect_error(session, "ALTER SERVER lake_cpu OPTIONS (SET stores '/data')", ["22023"], ["s3://"])
        session.run("DO $$ BEGIN CREATE ROLE keeper LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        session.run("GRANT USAGE ON FOREIGN DATA WRAPPER pystachio TO keeper; GRANT CREATE ON DATABASE faults TO keeper")
        with place.session(role="keeper") as keeper:
            expect_error(keeper, "CREATE SERVER kept FOREIGN DATA WRAPPER pystachio OPTIONS (credentials 'environment')", _DENIED, ["superusers"])
            keeper.run("CREATE SERVER kept FOREIGN DATA WRAPPER pystachio OPTIONS (stores 's3://')")
            session.run("ALTER SERVER kept OPTIONS (ADD credentials 'environment')")
            expect_error(keeper, "ALTER SERVER kept OPTIONS (ADD endpoint 'http://127.0.0.1:1')", _DENIED, ["environment"])
        session.run("DROP SERVER kept; DROP OWNED BY keeper; DROP ROLE keeper")


def encrypted(place):
    """Encrypted objects: read with their keys by both engines, never by another role. What is kept of them on disk is encrypted, and keys are nowhere."""
    keys = {"footer_key": b"0123456789012345".hex(), "other_key": b"1123456789012345".hex()}
    folder = pathlib.Path(__file__).resolve().parent.parent / "encrypted"
    columns = "id integer, name text, amount numeric(9,2), day date"
    query = "SELECT count(*), sum(id), sum(amount), max(name), min(day) FROM {}"
    expected = [("300", "45150", "56437.50", "name 6", "2024-01-02")]
    # Other tests have had statements with the key that failed, which PostgreSQL logs.
    logged = {path: path.stat().st_size for path in pathlib.Path(place.folder).rglob("*log*") if path.is_file()}
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as boss:
        roles = ("opener", "other", "blind")
        for role in roles:
            boss.run(f"DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        for name in ("gcm", "ctr", "duckdb"):
            lake.store.put(f"encrypted/{name}.parquet", folder / f"{name}.parquet")
        for device in _DEVICES:
            server = f"lake_{device}"
            boss.run(f"GRANT USAGE ON FOREIGN SERVER {server} TO {', '.join(roles)}; GRANT USAGE ON SCHEMA {server} TO {', '.join(roles)}")
            for name in ("gcm", "ctr", "duckdb"):
                boss.run(f"CREATE FOREIGN TABLE {server}.{name} ({columns}) SERVER {server} OPTIONS (path 's3://lake/encrypted/{name}.parquet')")
            boss.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {server} TO {', '.join(roles)}")
            for role, key in (("opener", keys["footer_key"]), ("other", keys["other_key"]), ("blind", None)):
                mapping = lake.mapping(role, server, f"key-of-{role}")
                boss.run(mapping if key is None else mapping[:-1] + f", footer_key '{key}')")
            for _ in range(2):
                for name in ("gcm", "ctr", "duckdb"):
                    table = f"{server}.{name}"
                    with place.session("SET datestyle = ISO", role="opener") as opener:
                        found = opener.run(query.format(table)).rows
                        require(found == expected, f"{table}: {found}")
                        plan = opener.run(f"EXPLAIN (ANALYZE, VERBOSE) {query.format(table)}").rows
                        require(keys["footer_key"] not in str(plan), "EXPLAIN does not have the key")
                    with place.session(role="other") as other:
                        expect_error(other, query.format(table), ["XX001"], ["can't be decrypted", name])
                    with place.session(role="blind") as blind:
                        expect_error(blind, query.format(table), _DENIED, ["is encrypted", name])
        kept = [path for path in pathlib.Path(place.folder).rglob("*") if path.is_file() and "regress" not in str(path)]
        plain = "name 6".encode()
        sized = {(folder / f"{name}.parquet").stat().st_size for name in ("gcm", "ctr", "duckdb")}
        objects, with_text, with_key = 0, [], []
        for path in kept:
            with contextlib.suppress(OSError):
                content = path.read_bytes() if path.stat().st_size < 1 << 20 else b""
                if path.stat().st_size in sized and content[-4:] == b"PARE":
                    objects += 1
                    if plain in content:
                        with_text.append(str(path))
                # The catalog of user mappings has keys.
                if keys["footer_key"].encode() in content[logged.get(path, 0):] and "/base/" not in str(path) and "pg_wal" not in str(path):
                    with_key.append(str(path))
        require(objects >= 3, f"objects are kept on disk: {objects}")
        require(with_text == [] and with_key == [], f"plain text is in {with_text}, the key in {with_key}")
        boss.run("DROP SCHEMA lake_cpu, lake_gpu CASCADE; DROP SERVER lake_cpu, lake_gpu CASCADE")
        boss.run(f"DROP OWNED BY {', '.join(roles)}; DROP ROLE {', '.join(roles)}")


def _all_find(sessions, query, expected, text):
    """A query's only value is the same in all sessions."""
    for session in sessions:
        found = session.run(query).scalar()
        require(found == expected, f"{text}: {found}")


def writing(place):
    """Rows go into a store: all files of a transaction when it commits, and none when it aborts."""
    big = "SELECT i AS k, md5(i::text) || md5((-i)::text) AS t FROM generate_series(1, 250000) i"
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session, place.session() as other:
        store = lake.store
        for device in _DEVICES:
            # What is written is read at once, however old lists may be.
            session.run(f"ALTER SERVER lake_{device} OPTIONS (ADD listing_age '1h')")
            session.run("DROP FOREIGN TABLE IF EXISTS public.stored, public.parted")
            session.run(f"CREATE FOREIGN TABLE public.stored (k integer, t text) SERVER lake_{device} OPTIONS (path 's3://lake/w_{device}', writable 'true')")
            rows = "SELECT count(*) || ' ' || coalesce(sum(k), 0) FROM public.stored"

            def both(expected, text):
                _all_find((session, other), rows, expected, f"{device}: {text}")

            def nothing_left(count):
                wait_until(lambda: len(store.keys(f"w_{device}/")) == count and store.uploads() == 0, f"{device}: {count} objects, and no upload")

            both("0 0", "a folder without objects is empty")
            session.run("INSERT INTO public.stored VALUES (1, 'one')")
            both("1 1", "a row is there when its statement has ended")
            session.run("BEGIN; INSERT INTO public.stored VALUES (2, 'two'); SAVEPOINT a; INSERT INTO public.stored VALUES (3, 'three'); ROLLBACK TO a")
            session.run("INSERT INTO public.stored VALUES (4, 'four')")
            both("1 1", "no row before the commit")
            require(len(store.keys(f"w_{device}/")) == 1, "no object before the commit")
            session.run("COMMIT")
            both("3 7", "the rows that were not rolled back")
            session.run("BEGIN; INSERT INTO public.stored VALUES (5, 'never'); ROLLBACK")
            nothing_left(3)
            # In parts: by rows of PostgreSQL's, and by the engine that computes them.
            session.run(f"BEGIN; INSERT INTO public.stored {big}")
            require(store.uploads() == 1, f"{device}: the parts are there")
            session.run("ROLLBACK")
            nothing_left(3)
            session.run(f"INSERT INTO public.stored {big}")
            both("250003 31250125007", "all rows of a large object")
            nothing_left(4)
            session.run("INSERT INTO public.stored SELECT k, t FROM public.stored WHERE k > 100000")
            both("400003 57500200007", "the engine's own rows")
            # One object, and whether it is replaced.
            target = f"s3://lake/one_{device}.parquet"
            for _ in range(2):
                session.run(f"COPY (SELECT 1 AS k, 'x' AS t) TO '{target}' (FORMAT parquet, server 'lake_{device}')")
            expect_error(session, f"SELECT pystachio.write_parquet('SELECT 2 AS k', '{target}', server => 'lake_{device}')", ["22023"], ["already exists", target])
            new = f"s3://lake/new_{device}.parquet"
            session.run("BEGIN")
            session.run(f"SELECT pystachio.write_parquet('SELECT 2 AS k', '{new}', server => 'lake_{device}')")
            other.run(f"SELECT pystachio.write_parquet('SELECT 3 AS k', '{new}', server => 'lake_{device}')")
            expect_error(session, "COMMIT", ["22023"], ["already exists", new])
            # Partitions, sizes, order, the form for GPUs.
            session.run(f"CREATE FOREIGN TABLE public.parted (k integer, t text, p integer) SERVER lake_{device} OPTIONS (path 's3://lake/p_{device}', "
                        "writable 'true', partition_by 'p', layout 'gpu', file_size '1MB', sort_by 'k DESC')")
            session.run(f"INSERT INTO public.parted SELECT k, t, k % 3 FROM ({big}) b")
            require(session.run("SELECT count(*) || ' ' || sum(k) FROM public.parted WHERE p = 1").scalar() == "83334 10416791667", f"{device}: a partition")
            require(len(store.keys(f"p_{device}/p=1/")) > 1, f"{device}: several files of a partition")


def removing(place):
    """TRUNCATE and DELETE of whole partitions: objects go when the transaction has committed, and stay when it aborts or the store refuses."""
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session, place.session() as other:
        store = lake.store
        for device in _DEVICES:
            session.run(f"ALTER SERVER lake_{device} OPTIONS (ADD listing_age '1h')")
            session.run("DROP FOREIGN TABLE IF EXISTS public.parted")
            session.run(f"CREATE FOREIGN TABLE public.parted (k integer, p integer) SERVER lake_{device} OPTIONS (path 's3://lake/d_{device}', writable 'true', partition_by 'p')")
            rows = "SELECT coalesce(string_agg(k::text, ',' ORDER BY k), '') FROM public.parted"

            def check(expected, count, text):
                _all_find((session, other), rows, expected, f"{device}: {text}")
                require(len(store.keys(f"d_{device}/")) == count, f"{device}: {text}: {store.keys(f'd_{device}/')}")

            session.run("INSERT INTO public.parted SELECT i, i % 3 FROM generate_series(1, 9) i")
            check("1,2,3,4,5,6,7,8,9", 3, "three partitions")
            session.run("BEGIN; DELETE FROM public.parted WHERE p = 1")
            require(len(store.keys(f"d_{device}/")) == 3, "no object goes before the commit")
            session.run("ROLLBACK")
            check("1,2,3,4,5,6,7,8,9", 3, "nothing was deleted")
            session.run("BEGIN; SAVEPOINT a; DELETE FROM public.parted WHERE p = 2; ROLLBACK TO a; DELETE FROM public.parted WHERE p = 1; COMMIT")
            check("2,3,5,6,8,9", 2, "a partition is deleted, and another is not")
            session.run("BEGIN; INSERT INTO public.parted VALUES (10, 7), (11, 8); DELETE FROM public.parted WHERE p = 7; INSERT INTO public.parted VALUES (12, 7); COMMIT")
            check("2,3,5,6,8,9,11,12", 4, "own rows are deleted, later ones are not")
            # Another program's object, of which no list knows that is kept.
            store.put(f"d_{device}/p=2/other.parquet", store.ask("GET", f"/lake/{store.keys(f'd_{device}/p=2/')[0]}"))
            session.run("DELETE FROM public.parted WHERE p IN (2, 8)")
            check("3,6,9,12", 2, "all objects of the partition")
            expect_error(session, "DELETE FROM public.parted WHERE k = 3", ["0A000"], ["partition"])
            # What the store refuses stays, and is said.
            session.notices.clear()
            with store.fault("POST", "delete", store_server.status(403)):
                session.run("DELETE FROM public.parted WHERE p = 7")
            require(len(session.notices) == 1 and f"s3://lake/d_{device}/p=7/" in session.notices[0], f"{device}: a warning names the object: {session.notices}")
            check("3,6,9,12", 2, "the rows are there")
            session.run("DELETE FROM public.parted WHERE p = 7")
            check("3,6,9", 1, "again")
            # An engine that is gone before the commit is started again.
            session.run("INSERT INTO public.parted VALUES (20, 5)")
            session.run("BEGIN; DELETE FROM public.parted WHERE p = 5")
            os.kill(place.engine_pid(f"lake_{device}"), signal.SIGKILL)
            session.run("COMMIT")
            check("3,6,9", 1, "by another engine")
            session.run("DELETE FROM public.parted")
            check("", 1, "all partitions: a file without rows is left")
            session.run("INSERT INTO public.parted SELECT i, i % 3 FROM generate_series(1, 9) i")
            session.run("BEGIN; INSERT INTO public.parted VALUES (10, 1); TRUNCATE public.parted; INSERT INTO public.parted VALUES (11, 1); COMMIT")
            check("11", 2, "TRUNCATE, and a row after it")
        session.run("DROP FOREIGN TABLE public.parted")


def failing_writes(place):
    """A store that fails while it is written to: what it does is tried again, or the transaction fails whole and names the object."""
    big = "SELECT i AS k, md5(i::text) || md5((-i)::text) AS t FROM generate_series(1, 250000) i"
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session:
        store, device = lake.store, "cpu"
        session.run("DROP FOREIGN TABLE IF EXISTS public.stored")
        session.run(f"CREATE FOREIGN TABLE public.stored (k integer, t text) SERVER lake_{device} OPTIONS (path 's3://lake/f', writable 'true')")
        count = "SELECT count(*) FROM public.stored"

        def nothing_left(text):
            wait_until(lambda: store.keys("f/") == [] and store.uploads() == 0, f"{text}: nothing is left")
            require(session.run(count).scalar() == "0", f"{text}: no rows")

        for method, text, act, statement in (
            ("PUT", "/f/", store_server.status(500), "INSERT INTO public.stored VALUES (1, 'x')"),
            ("PUT", "partNumber=", store_server.status(500), f"INSERT INTO public.stored {big}"),
            ("POST", "uploadId=", store_server.status(500), f"INSERT INTO public.stored {big}"),
            ("POST", "uploadId=", store_server.unanswered, f"INSERT INTO public.stored {big}"),
            ("PUT", "/f/", store_server.unanswered, "INSERT INTO public.stored VALUES (1, 'x')"),
        ):
            with store.fault(method, text, act):
                expect_error(session, statement, _FAILED, ["could not write", "s3://lake/f/rows-"])
            nothing_left(f"{method} {text}")
        # Two statements, the second of which fails when the first is there.
        session.run("BEGIN; INSERT INTO public.stored VALUES (1, 'x')")
        session.run(f"INSERT INTO public.stored {big}")
        with store.fault("POST", "uploadId=", store_server.status(500)):
            expect_error(session, "COMMIT", _FAILED, ["could not write", "s3://lake/f/rows-"])
        nothing_left("the first of two")
        # What is tried again.
        with store.fault("PUT", "/f/", store_server.status(503), 2) as puts, store.fault("POST", "uploadId=", store_server.status(503), 2) as posts:
            session.run(f"INSERT INTO public.stored {big}")
            require((puts.seen, posts.seen) == (2, 2), "the requests were tried again")
        require(session.run(count).scalar() == "250000", "the rows are there")
        # An engine that is gone before the commit.
        session.run("BEGIN; INSERT INTO public.stored VALUES (1, 'never')")
        os.kill(place.engine_pid(f"lake_{device}"), signal.SIGKILL)
        expect_error(session, "COMMIT", ["08006"], ["ended unexpectedly"])
        require(session.run(count).scalar() == "250000", "no other row")
        # A write that is cancelled.
        uploading = threading.Event()

        def late(request):
            uploading.set()
            request.answer(503, [], b"")

        with store.fault("PUT", "partNumber=", late), place.session() as writer:
            writer.start(f"INSERT INTO public.stored {big}")
            require(uploading.wait(HANG_S), "parts are uploaded")
            writer.cancel()
            expect_failure(writer, "the INSERT", ["57014"])
        wait_until(lambda: len(store.keys("f/")) == 1 and store.uploads() == 0, "nothing else is left")
        # Keys, rights and places.
        store.refused_keys.add("boss")
        expect_error(session, "INSERT INTO public.stored VALUES (1, 'x')", _DENIED, ["s3://lake/"])
        store.refused_keys.clear()
        path = "s3://other/x.parquet"
        expect_error(session, f"COPY (SELECT 1 AS k) TO '{path}' (FORMAT parquet, server 'lake_cpu')", _DENIED, [path])
        session.run("ALTER SERVER lake_cpu OPTIONS (SET stores 's3://lake/,http://')")
        path = f"{store.endpoint}/lake/x.parquet"
        expect_error(session, f"COPY (SELECT 1 AS k) TO '{path}' (FORMAT parquet, server 'lake_cpu')", ["0A000"], [path])
        session.run("DROP ROLE IF EXISTS uploader; CREATE ROLE uploader; GRANT CREATE, USAGE ON SCHEMA public TO uploader; GRANT USAGE ON FOREIGN SERVER lake_cpu TO uploader")
        try:
            session.run("GRANT INSERT ON public.stored TO uploader; SET ROLE uploader")
            expect_error(session, "COPY (SELECT 1 AS k) TO 's3://lake/x.parquet' (FORMAT parquet, server 'lake_cpu')", _DENIED, ["denied to COPY"])
            expect_error(session, "CREATE FOREIGN TABLE public.own (k integer) SERVER lake_cpu OPTIONS (path 's3://lake/own', writable 'true')", _DENIED, ["writable"])
            expect_error(session, "INSERT INTO public.stored VALUES (1, 'x')", _DENIED, ["access_key_id"])
            session.run(f"RESET ROLE; {lake.mapping('uploader', 'lake_cpu', 'other')}; SET ROLE uploader")
            store.requests()
            session.run("INSERT INTO public.stored VALUES (1, 'x')")
            require({request[3] for request in store.requests("PUT")} == {"other"}, "its own key counts")
        finally:
            session.run("RESET ROLE; DROP USER MAPPING IF EXISTS FOR uploader SERVER lake_cpu; DROP OWNED BY uploader; DROP ROLE uploader")


def lists_of_versions(place):
    """A table with many files in a folder asks for lists of it, and for single objects where it may not list: the same rows, by far fewer requests."""
    count = 40
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session:
        nation, log = lake.tpch / "nation.parquet", []
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("n_nationkey", "long"), ("n_name", "string"))]
        log.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        log.append({"metaData": {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps({"type": "struct", "fields": fields}),
                                 "partitionColumns": [], "configuration": {}}})
        for number in range(count):
            # Among others that the table does not have.
            for name in (f"f{number:03}.parquet", f"f{number:03}-gone.parquet"):
                lake.store.put(f"many/{name}", nation)
            log.append({"add": {"path": f"f{number:03}.parquet", "partitionValues": {}, "size": nation.stat().st_size, "modificationTime": 1, "dataChange": True}})
        lake.store.put(f"many/_delta_log/{0:020d}.json", "\n".join(json.dumps(action) for action in log).encode())
        for device in _DEVICES:
            session.run(f"DROP FOREIGN TABLE IF EXISTS public.many; CREATE FOREIGN TABLE public.many (n_name text) SERVER lake_{device} OPTIONS (path 's3://lake/many', format 'delta')")
            lake.store.requests()
            require(session.run("SELECT count(*) FROM public.many").scalar() == str(25 * count), f"{device}: rows of all files")
            heads = [request for request in lake.store.requests("HEAD") if "/many/f" in request[1]]
            require(heads == [], f"{device}: {len(heads)} requests for single objects")

            def unlisted(request):
                if "_delta_log" in request.path:
                    request.answer(*request.forward())
                else:
                    store_server.status(403)(request)

            with lake.store.fault("GET", "list-type=2", unlisted):
                session.run(f"ALTER SERVER lake_{device} OPTIONS (SET object_cache '{70 + len(device)}MB')")
                require(session.run("SELECT count(*) FROM public.many").scalar() == str(25 * count), f"{device}: rows of all files, without lists of them")
                heads = [request for request in lake.store.requests("HEAD") if "/many/f" in request[1]]
                require(len(heads) >= count, f"{device}: {len(heads)} requests for single objects")
        session.run("DROP FOREIGN TABLE public.many")


def _peak_bytes(place, device):
    """The most memory that an engine has taken."""
    status = pathlib.Path(f"/proc/{place.engine_pid(f'lake_{device}')}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) << 10


def many_objects(place):
    """A folder of 100,000 objects: a pattern and the key of a folder find some of them, with the requests that lists take and little memory."""
    count, page, folders = 100_000, 1000, 1000
    with _lake(place) as lake, place.session("SET client_min_messages = warning") as session:
        nation = (lake.tpch / "nation.parquet").read_bytes()
        # They are made up: each of them answers with the same bytes.
        keys = sorted(f"big/p={number % folders:04}/f{number:06}.parquet" for number in range(count))

        def answer(request):
            query = urllib.parse.parse_qs(request.path.partition("?")[2])
            prefix = query.get("prefix", [""])[0]
            first, last = bisect.bisect_left(keys, prefix), bisect.bisect_left(keys, prefix + "\U0010ffff")
            start = max(first, int(query.get("continuation-token", [first])[0]))
            content = ["<ListBucketResult>"]
            if "delimiter" in query:
                names = sorted({prefix + key[len(prefix):].split("/")[0] + "/" for key in keys[first:last]})
                content += [f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in names]
            else:
                content += [f"<Contents><Key>{key}</Key><Size>{len(nation)}</Size><ETag>\"1\"</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                            for key in keys[start : min(last, start + page)]]
                if start + page < last:
                    content.append(f"<IsTruncated>true</IsTruncated><NextContinuationToken>{start + page}</NextContinuationToken>")
            request.answer(200, [("Content-Type", "application/xml")], "".join([*content, "</ListBucketResult>"]).encode())

        def content(request):
            first, last = (int(number) for number in request.headers["Range"].removeprefix("bytes=").split("-"))
            headers = [("ETag", '"1"'), ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"), ("Content-Range", f"bytes {first}-{last}/{len(nation)}")]
            request.answer(206, headers, nation[first : last + 1])

        with lake.store.fault("GET", "list-type=2", answer), lake.store.fault("GET", "/big/p", content):
            for device in _DEVICES:
                session.run(f"DROP FOREIGN TABLE IF EXISTS public.big; CREATE FOREIGN TABLE public.big (n_name text, p integer) SERVER lake_{device} OPTIONS (path 's3://lake/big')")
                session.run("SELECT count(*) FROM public.big WHERE p = 1")
                before = _peak_bytes(place, device)
                lake.store.requests()
                require(session.run("SELECT count(*), min(p), max(p) FROM public.big WHERE p IN (17, 18)").rows == [(str(25 * 200), "17", "18")], f"{device}: two folders of a thousand")
                lists = [request for request in lake.store.requests("GET") if "list-type" in request[1]]
                require(len(lists) < 4 * count // page, f"{device}: {len(lists)} lists")
                session.run("ALTER FOREIGN TABLE public.big OPTIONS (SET path 's3://lake/big/p=0[01]0*/*9.parquet')")
                require(session.run("SELECT count(*) FROM public.big").scalar() == str(25 * len(fnmatch.filter(keys, "big/p=0[01]0*/*9.parquet"))), f"{device}: a pattern")
                peak = _peak_bytes(place, device)
                require(peak < 600 << 20, f"{device}: with lists of {count} objects the engine takes {peak >> 20} MB, before {before >> 20} MB")
        session.run("DROP FOREIGN TABLE public.big")


def _other_store(place, session, store, path, good, wrong):
    """What is to hold of every store, of one with a scheme of its own: read by both engines, listed, written, and failing by name."""
    tpch = pathlib.Path(place.tpch)
    for name in ("lineitem", "nation"):
        store.put(f"tpch/{name}.parquet", tpch / f"{name}.parquet")
    for key in ("n/year=2024/a.parquet", "n/year=2025/b c+d%.parquet", "n/year=2025/_c.parquet", "n/.hidden/d.parquet"):
        store.put(urllib.parse.quote(key) if isinstance(store, store_server.Azure) else key, tpch / "nation.parquet")
    expected = session.run(_QUERY.format("tpch")).rows
    for device, option in zip(_DEVICES, ("cpu", place.gpu_device())):
        server = f"other_{device}"
        session.run(f"DROP SERVER IF EXISTS {server} CASCADE; DROP SCHEMA IF EXISTS {server} CASCADE")
        session.run(f"CREATE SERVER {server} FOREIGN DATA WRAPPER pystachio OPTIONS (device '{option}', memory '512MB', cache '0', endpoint '{store.endpoint}', "
                    f"stores '{path}/', store_timeout '5s', object_cache '64MB')")
        session.run(f"CREATE SCHEMA {server}")
        expect_error(session, f"IMPORT FOREIGN SCHEMA \"{path}/tpch\" FROM SERVER {server} INTO {server}", _DENIED, ["no credentials"])
        session.run(f"CREATE USER MAPPING FOR postgres SERVER {server} OPTIONS ({good})")
        session.run(f"IMPORT FOREIGN SCHEMA \"{path}/tpch\" FROM SERVER {server} INTO {server}")
        query = _QUERY.format(server)
        require(session.run(query).rows == expected, f"{path}, {device}: the rows of the local file")
        store.requests()
        require(session.run(query).rows == expected, f"{path}, {device}: again")
        require(not [request for request in store.requests("GET") if request[2]], f"{path}, {device}: nothing is transferred again")
        session.run(f"CREATE FOREIGN TABLE {server}.n (n_name text, year integer) SERVER {server} OPTIONS (path '{path}/n')")
        require(session.run(f"SELECT year, count(*) FROM {server}.n GROUP BY year ORDER BY year").rows == [("2024", "25"), ("2025", "25")], f"{path}, {device}: folders")
        session.run(f"ALTER FOREIGN TABLE {server}.n OPTIONS (SET path '{path}/n/**/*.parquet')")
        require(session.run(f"SELECT count(*) FROM {server}.n").scalar() == "50", f"{path}, {device}: a pattern")
        session.run(f"ALTER FOREIGN TABLE {server}.n OPTIONS (SET path '{path}/none')")
        expect_error(session, f"SELECT count(*) FROM {server}.n", _MISSING, [f"{path}/none"])
        scheme = path.split("://", maxsplit=1)[0]
        session.run(f"ALTER SERVER {server} OPTIONS (SET stores '{scheme}://'); ALTER FOREIGN TABLE {server}.n OPTIONS (SET path '{scheme}://none/n')")
        # fake-gcs-server has another answer than the store.
        expect_error(session, f"SELECT count(*) FROM {server}.n", _FAILED if scheme == "gs" else _MISSING, [f"{scheme}://none/", "endpoint"] + (['"none"'] if scheme == "az" else []))
        session.run(f"ALTER SERVER {server} OPTIONS (SET stores '{path}/')")
        number = 65
        for name, act, times in (("503", store_server.status(503), 2), ("cut", store_server.cut(1000), 2)):
            number += 1
            session.run(f"ALTER SERVER {server} OPTIONS (SET object_cache '{number}MB')")
            with store.fault("GET", "lineitem", act, times) as fault:
                require(session.run(query).rows == expected, f"{path}, {device}: {name}: the right rows")
                require(fault.seen == times, f"{path}, {device}: {name}: {fault.seen} of {times} faults")
        for name, act, states, words in (("503", store_server.status(503), _FAILED, ["503"]), ("403", store_server.status(403), _DENIED, ["permission denied"]),
                                         ("404", store_server.status(404), _MISSING, ["lineitem.parquet"])):
            number += 1
            session.run(f"ALTER SERVER {server} OPTIONS (SET object_cache '{number}MB')")
            with store.fault("GET", "lineitem", act):
                error = expect_error(session, query, states, words)
                require("sig=" not in str(vars(error)), "no secret")
        # A file of several parts is there with the commit, and never of a transaction that fails.
        big = (f"SELECT file FROM pystachio.write_parquet($$SELECT i AS k, repeat(md5(i::text), 8) AS t FROM generate_series(1, 100000) i$$, "
               f"'{path}/big_{device}/{{}}.parquet', compression => 'none', server => '{server}')")
        store.requests()
        session.run("BEGIN; " + big.format("kept"))
        sent = [request for request in store.requests() if "partNumber=" in request[1] or "comp=block&" in request[1] + "&"]
        require(len(sent) > 2, f"{path}, {device}: {len(sent)} parts were sent")
        require(store.keys(f"big_{device}/") == [], f"{path}, {device}: no object of parts before the commit")
        session.run("COMMIT")
        session.run(f"CREATE FOREIGN TABLE {server}.big (k integer, t text) SERVER {server} OPTIONS (path '{path}/big_{device}')")
        summed = "SELECT count(*), sum(k), count(*) FILTER (WHERE t = repeat(md5(k::text), 8)) FROM {}"
        require(session.run(summed.format(f"{server}.big")).rows == [("100000", "5000050000", "100000")], f"{path}, {device}: all rows of all parts")
        session.run("BEGIN; " + big.format("never") + "; ROLLBACK")
        wait_until(lambda: not getattr(store, "parts", None), f"{path}, {device}: no part is left")
        require(len(store.keys(f"big_{device}/")) == 1, f"{path}, {device}: no object of what was rolled back in parts")
        # Rows that are written, and removed.
        session.run(f"CREATE FOREIGN TABLE {server}.w (k integer, p integer) SERVER {server} OPTIONS (path '{path}/w_{device}', writable 'true', partition_by 'p')")
        session.run(f"BEGIN; INSERT INTO {server}.w SELECT i, i % 2 FROM generate_series(1, 10) i")
        require(store.keys(f"w_{device}/") == [], "no object before the commit")
        session.run("COMMIT")
        require(session.run(f"SELECT count(*), sum(k) FROM {server}.w").rows == [("10", "55")], f"{path}, {device}: rows that were written")
        session.run(f"BEGIN; INSERT INTO {server}.w VALUES (11, 1); ROLLBACK")
        require(len(store.keys(f"w_{device}/")) == 2, f"{path}, {device}: no object of what was rolled back")
        session.run(f"DELETE FROM {server}.w WHERE p = 1")
        require(session.run(f"SELECT count(*), sum(k) FROM {server}.w").rows == [("5", "30")] and len(store.keys(f"w_{device}/")) == 1, f"{path}, {device}: a partition is deleted")
        session.run(f"TRUNCATE {server}.w")
        require(session.run(f"SELECT count(*) FROM {server}.w").scalar() == "0" and len(store.keys(f"w_{device}/")) == 1, f"{path}, {device}: TRUNCATE")
        if wrong:
            session.run(f"ALTER USER MAPPING FOR postgres SERVER {server} OPTIONS ({wrong})")
            expect_error(session, f"SELECT count(*) FROM {server}.nation", _DENIED, ["permission denied"])
        session.run(f"DROP SERVER {server} CASCADE; DROP SCHEMA {server} CASCADE")


def azure(place):
    """Objects of Azure Blob Storage (Azurite), by the account's key and by a shared access signature."""
    if not shutil.which("npm"):
        print("    azure: not without npm")
        return
    store = store_server.Azure()
    try:
        with place.session("SET client_min_messages = warning") as session:
            good = f"account_name '{store.ACCOUNT}', account_key '{store.KEY}'"
            _other_store(place, session, store, "az://lake", good, f"SET account_key '{base64.b64encode(b'another').decode()}'")
            session.run(f"CREATE SERVER signed FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', endpoint '{store.endpoint}', stores 'az://lake/')")
            session.run(f"CREATE USER MAPPING FOR postgres SERVER signed OPTIONS (account_name '{store.ACCOUNT}', sas_token '{store.token('rl')}')")
            session.run("CREATE FOREIGN TABLE public.signed (n_name text) SERVER signed OPTIONS (path 'az://lake/tpch/nation.parquet')")
            require(session.run("SELECT count(*) FROM public.signed").scalar() == "25", "a signature that allows to read")
            error = expect_error(session, "COPY (SELECT 1 AS k) TO 'az://lake/x.parquet' (FORMAT parquet, server 'signed')", _DENIED, ["az://lake/x.parquet"])
            require("sig=" not in str(vars(error)), "no secret")
            session.run("DROP SERVER signed CASCADE")
    finally:
        store.close()


def google(place):
    """Objects of Google Cloud Storage (fake-gcs-server, which checks no keys)."""
    store = store_server.Google()
    try:
        key = json.dumps({"gcs_base_url": store.endpoint, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""})
        with place.session("SET client_min_messages = warning") as session:
            _other_store(place, session, store, "gs://lake", f"service_account_key '{key}'", None)
    finally:
        store.close()


TESTS = [reading, reads_ahead, pages, paths, tables, catalogs, catalog_faults, signed_catalogs, views_of_catalogs, web, wrong_options, failing_store, changed_objects, cancelled, whose_mapping, secrets, encrypted, writing, removing, failing_writes, lists_of_versions, many_objects, azure, google]
