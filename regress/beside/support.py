"""What the parts share: the packages that were found, both forms of the tables, and the queries that are compared."""

import os
import pathlib
import re
import shutil
import subprocess

from faults.support import HANG_S, Place
from harness import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATABASE = "beside"
# The search paths of foreign tables and of their heap copies.
FOREIGN, HEAP = "tpch, pq, public", "tpch_heap, heap, public"
SCALE = 0.01

# Every query decides its rows and their order. The parameter of those that have one is an order's key or a date.
QUERIES = {
    "pages": "SELECT l_orderkey, l_linenumber, l_extendedprice, l_shipdate, l_comment FROM lineitem WHERE l_orderkey < 3000 ORDER BY 1, 2",
    "groups": "SELECT l_returnflag, l_linestatus, count(*), sum(l_quantity), avg(l_discount) FROM lineitem GROUP BY 1, 2 ORDER BY 1, 2",
    "join": "SELECT c_mktsegment, count(*), sum(o_totalprice), max(o_orderdate) FROM customer JOIN orders ON o_custkey = c_custkey GROUP BY 1 ORDER BY 1",
    "semi": "SELECT o_orderkey, o_orderstatus FROM orders WHERE EXISTS (SELECT FROM lineitem WHERE l_orderkey = o_orderkey AND l_quantity > 49) "
            "ORDER BY 1 LIMIT 200",
    "outer": "SELECT n_name, count(s_suppkey), coalesce(sum(s_acctbal), 0) FROM nation LEFT JOIN supplier ON s_nationkey = n_nationkey AND s_acctbal > 5000 "
             "GROUP BY 1 ORDER BY 1",
    "window": "SELECT o_custkey, o_orderkey, rank() OVER (PARTITION BY o_custkey ORDER BY o_totalprice DESC, o_orderkey) FROM orders "
              "WHERE o_custkey < 100 ORDER BY 1, 2",
    "none": "SELECT l_orderkey FROM lineitem WHERE l_shipdate > '2099-01-01'",
}
# A query with one parameter, and its values.
BY_KEY = "SELECT l_linenumber, l_quantity, l_shipmode, l_receiptdate FROM lineitem WHERE l_orderkey = {} ORDER BY l_linenumber"
KEYS = (1, 7, 4, 32, 5000000, 39, 66, 1)
# Runs until it is cancelled; the engine does all of it.
LONG_QUERY = "SELECT count(*) FROM lineitem a, lineitem b, orders c WHERE a.l_comment < b.l_comment AND c.o_comment > a.l_comment"
# An error that comes after rows.
FAILING = "SELECT l_orderkey, 10 / (l_orderkey - 5991) FROM lineitem WHERE l_orderkey > 5000 ORDER BY l_orderkey"


def edge_tables():
    """Names of the tables of regress/data: among them one of edge values for each type."""
    return [table["name"] for table in tables.manifest()]


class Packages:
    """What scripts/beside.sh found: `paths` and `versions` by name, `skipped` with the reason."""

    def __init__(self, text):
        self.paths, self.versions, self.skipped = {}, {}, {}
        for line in text.splitlines():
            kind, name, version, rest = line.split("\t")
            if kind == "have":
                self.paths[name], self.versions[name] = rest, version
            else:
                self.skipped[name] = rest


class Cluster(Place):
    """The private cluster, its programs and packages."""

    def __init__(self, conninfo, folder, stage, packages):
        super().__init__(conninfo, folder, DATABASE)
        self.stage, self.packages = stage, packages
        self.root = pathlib.Path(folder)
        self.bindir = self.root / ("server" + (self.root / "server/bindir").read_text(encoding="utf-8"))
        self.owner = self.root.stat().st_uid

    def server_folder(self, option):
        """A folder of the private server, as its pg_config names it (`pkglibdir`, `sharedir`)."""
        config = subprocess.run(["bash", "-c", f"source {ROOT}/scripts/environment.sh; find_pg_config"], check=True, capture_output=True, text=True)
        place = subprocess.run([config.stdout.strip(), f"--{option}"], check=True, capture_output=True, text=True)
        return self.root / ("server" + place.stdout.strip())

    def conninfo_with(self, path):
        """A connection string of the database for a search path, with a time limit for each statement."""
        return f"{self.conninfo} options='-c search_path={path.replace(' ', '')} -c statement_timeout={HANG_S}s'"

    def parameters(self):
        """The host, the port and the user, as drivers take them."""
        return dict(re.findall(r"(\w+)=(\S+)", self.base))

    def settings(self, path):
        """A search path and a time limit, as drivers take settings."""
        return {"search_path": path, "statement_timeout": f"{HANG_S}s"}

    def restart(self):
        """Restarts the server with the settings of ALTER SYSTEM, and opens the watching session again."""
        self.watch.close()
        subprocess.run([ROOT / "scripts/cluster.sh", "start", self.root.name, self.stage], check=True, stdout=subprocess.DEVNULL)
        self.watch = self.session()

    def own_folder(self, name):
        """An empty folder in the cluster's, which belongs to the server's user."""
        folder = self.root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if os.getuid() == 0:
            shutil.chown(folder, self.owner)
        return folder

    def as_owner(self):
        """Arguments of subprocess that make a program run as the server's user: some refuse to run as root."""
        return {"user": self.owner, "group": os.stat(self.root).st_gid, "extra_groups": []} if os.getuid() == 0 else {}

    def log_since(self, size):
        """What the server has logged after its log had that size."""
        with open(self.root / "server.log", encoding="utf-8", errors="replace") as file:
            file.seek(size)
            return file.read()

    def log_size(self):
        """The size of the server's log."""
        return (self.root / "server.log").stat().st_size


def make_tables(place):
    """TPC-H and the tables of regress/data, as foreign tables and as heap copies."""
    data = tables.copy_data(f"{place.folder}/edges")
    with place.session() as session:
        folder = f"{place.folder}/tpch"
        session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', {SCALE}, overwrite => true)")
        tables.tpch_foreign(session, folder)
        tables.heap_copy(session, "tpch", "tpch_heap")
        tables.edge_schemas(session, data)


def require_equal(foreign, heap, what):
    """Raises AssertionError with the first difference between two lists, or two other values."""
    if foreign == heap:
        return
    if isinstance(foreign, (list, tuple)) and isinstance(heap, (list, tuple)):
        for place, (ours, theirs) in enumerate(zip(foreign, heap)):
            if ours != theirs:
                raise AssertionError(f"{what}, at {place}: over foreign tables {ours!r}, over heap tables {theirs!r}")
        raise AssertionError(f"{what}: {len(foreign)} over foreign tables, {len(heap)} over heap tables")
    raise AssertionError(f"{what}: over foreign tables {foreign!r}, over heap tables {heap!r}")
