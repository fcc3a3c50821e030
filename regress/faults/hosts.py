"""Two clusters as two hosts that share queries: one is cut off, shows a wrong certificate, and comes back; a cancel that reaches both.

As root the other cluster runs in a network namespace, and is cut off by taking its link down; otherwise both are at addresses of this host, and
the other cluster's engine is stopped.

Over GPUs each cluster has one of them, and NCCL takes the clusters for two hosts, so that rows go by its network.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess

from faults.support import HANG_S, Place, expect_error, expect_failure, require, wait_until
from harness import tables
from harness.libpq import QueryError, Session

_SERVER = "spread"
_NAMESPACE = "pystachio-hosts"
_LINKS = ("pystachio-0", "pystachio-1")
_PORT = 5619
_TRIVIAL = "SELECT count(*), sum(n_nationkey) FROM nation, region WHERE n_regionkey = r_regionkey"
_TRIVIAL_ROWS = [("25", "300")]
_PAIRS = "SELECT count(*) FROM lineitem a, lineitem b WHERE a.l_comment < b.l_comment"
# Rows for every kind of exchange.
_LEVELLED = ("SELECT l_orderkey, l_linenumber, l_comment FROM lineitem ORDER BY l_comment, l_orderkey, l_linenumber",
             "SELECT l_suppkey, count(DISTINCT l_partkey), count(DISTINCT l_linenumber) FROM lineitem GROUP BY l_suppkey",
             "SELECT o_orderkey FROM orders WHERE o_orderkey + 1 NOT IN (SELECT l_orderkey FROM lineitem WHERE l_quantity < 10)")
_KINDS = ("Shuffle", "Broadcast", "Gather", "Merge")
_QUERIES = (1, 3, 4, 5, 6, 9, 10, 13, 15, 18, 21, 22)
# What makes the other cluster another host with a GPU of its own.
_OTHER_HOST = {"CUDA_VISIBLE_DEVICES": "1", "NCCL_HOSTID": _NAMESPACE}


class _Hosts:
    """Both clusters, and what is between them."""

    def __init__(self, place):
        self.first, self.device = place, place.gpu_device()
        self.has_namespace = _make_namespace()
        self.addresses = ("10.213.77.1", "10.213.77.2") if self.has_namespace else ("127.0.0.2", "127.0.0.3")
        self.names = [f"{address}:{_PORT + number}" for number, address in enumerate(self.addresses)]
        self.certificates = pathlib.Path(place.folder, "faults-certificates")
        _make_certificates(self.certificates, self.addresses, os.stat(place.folder).st_uid)
        folder = _cluster("create", self.has_namespace, place.stage).splitlines()[-1]
        conninfo = _cluster("conninfo", self.has_namespace)
        with Session(f"{conninfo} dbname=postgres", []) as session:
            session.run("CREATE DATABASE faults")
        with Session(f"{conninfo} dbname=faults", ["CREATE EXTENSION pystachio"]):
            pass
        self.second = Place(conninfo, folder, "faults")
        pieces = f"{place.folder}/faults-hosts"
        with place.session() as session:
            session.run(f"SELECT * FROM pystachio.tpch_generate('{pieces}', 0.01, overwrite => true, row_group_rows => 2048)")
        for number, side in enumerate((self.first, self.second)):
            with side.session("SET client_min_messages = warning") as session:
                session.run(f"DROP SERVER IF EXISTS {_SERVER} CASCADE; DROP SCHEMA IF EXISTS {_SERVER} CASCADE")
                session.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS ({self.options(number)})")
                tables.tpch_foreign(session, pieces, _SERVER, _SERVER)
            # The engine starts with it.
            with self.session(side) as session:
                require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the server works before")

    def options(self, number):
        folder = self.certificates
        # A GPU has its host's engine, the rank of the other one's, and the engines of other servers.
        memory = "'4GB', device_memory '4GB'" if self.device == "cuda" else "'512MB'"
        return (f"device '{self.device}', memory {memory}, rank_policy 'all', hosts '{','.join(self.names)}', host '{self.names[number]}', "
                f"tls_certificate '{folder}/{number}.pem', tls_key '{folder}/{number}.key', tls_ca '{folder}/ca.pem'")

    def session(self, side):
        return side.session("SET client_min_messages = warning", "SET pystachio.engine_choice = gpu", f"SET search_path = {_SERVER}, public")

    @contextlib.contextmanager
    def cut_off(self):
        """The second host can't be reached."""
        if self.has_namespace:
            _ip("link", "set", _LINKS[0], "down")
            try:
                yield
            finally:
                _ip("link", "set", _LINKS[0], "up")
        else:
            group = -self.second.engine_pid(_SERVER)
            os.kill(group, signal.SIGSTOP)
            try:
                yield
            finally:
                os.kill(group, signal.SIGCONT)


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _make_namespace():
    """Whether there is a network namespace with a link to it."""
    if os.getuid() != 0:
        return False
    _delete_namespace()
    try:
        _ip("netns", "add", _NAMESPACE)
        _ip("link", "add", _LINKS[0], "type", "veth", "peer", "name", _LINKS[1], "netns", _NAMESPACE)
        _ip("addr", "add", "10.213.77.1/24", "dev", _LINKS[0])
        _ip("link", "set", _LINKS[0], "up")
        for arguments in (["addr", "add", "10.213.77.2/24", "dev", _LINKS[1]], ["link", "set", _LINKS[1], "up"], ["link", "set", "lo", "up"]):
            _ip("-n", _NAMESPACE, *arguments)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"        no network namespace: {error}", flush=True)
        _delete_namespace()
        return False
    return True


def _delete_namespace():
    """Without it, or without the command, there is nothing to delete."""
    with contextlib.suppress(OSError):
        subprocess.run(["ip", "netns", "del", _NAMESPACE], capture_output=True, check=False)


def _make_certificates(folder, addresses, owner):
    """An authority with a certificate for each address, and a stranger with one for the second address."""
    folder.mkdir(exist_ok=True)

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True, cwd=folder)

    def authority(name):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def certificate(name, address, of):
        folder.joinpath(f"{name}.ext").write_text(f"subjectAltName=IP:{address}\nbasicConstraints=CA:FALSE\n", encoding="utf-8")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{of}.pem", "-CAkey", f"{of}.key", "-CAcreateserial", "-days", "2",
                "-extfile", f"{name}.ext", "-out", f"{name}.pem")

    authority("ca")
    authority("stranger")
    for number, address in enumerate(addresses):
        certificate(str(number), address, "ca")
    certificate("wrong", addresses[1], "stranger")
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner, -1)


def _cluster(action, has_namespace, *arguments):
    script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cluster.sh"
    environment = {**os.environ, **_OTHER_HOST, **({"PYSTACHIO_NETWORK": _NAMESPACE} if has_namespace else {})}
    run = subprocess.run([str(script), action, "hosts", *arguments], check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return run.stdout.strip()


def _setup(place):
    """Both hosts, which are made once, connected."""
    if not hasattr(place, "hosts"):
        place.hosts = _Hosts(place)
    _wait_connected(place.hosts)
    return place.hosts


def _ranks(side):
    result = side.watch.run(f"SELECT * FROM pystachio.engines WHERE server = '{_SERVER}' ORDER BY rank")
    return [dict(zip(result.names, row)) for row in result.rows]


def _are_connected(side, count=2):
    ranks = _ranks(side)
    return len(ranks) == count and all(rank["state"] == "running" for rank in ranks)


def _wait_connected(hosts):
    return wait_until(lambda: _are_connected(hosts.first) and _are_connected(hosts.second), "both hosts are connected", 0.05)


def _processes():
    """How many processes both hosts' engines and ranks have."""
    count = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            count += f"--name={_SERVER}\0".encode() in path.read_bytes() + b"\0"
    return count


def _run_on_both(hosts):
    return all(int(rank["queries_running"] or 0) > 0 for rank in _ranks(hosts.first))


def _start_on_both(hosts, session, query):
    session.start(query)
    wait_until(lambda: _run_on_both(hosts), "the query runs on both hosts", 0.02)


def two_hosts_answer_as_one_rank(place):
    hosts = _setup(place)
    for number, side in enumerate((hosts.first, hosts.second)):
        ranks = _ranks(side)
        require([rank["host"] for rank in ranks] == [hosts.names[number], hosts.names[1 - number]], f"the coordinator's host is first: {ranks}")
    run_before = int(_ranks(hosts.first)[1]["queries_run"])
    with hosts.session(hosts.first) as session, place.session("SET search_path = tpch_heap, public") as heap:
        for number in _QUERIES:
            query = place.watch.run(f"SELECT pystachio.tpch_query({number})").scalar()
            require(session.run(query).rows == heap.run(query).rows, f"query {number} has other rows on two hosts")
        plan = "\n".join(row[0] for row in session.run(f"EXPLAIN {query}").rows)
        require("rank" in plan.lower(), f"the plan is for ranks: {plan}")
    wait_until(lambda: int(_ranks(hosts.first)[1]["queries_run"]) >= run_before + len(_QUERIES), "the other host has run its parts")
    # The other host coordinates what it is asked.
    with hosts.session(hosts.second) as session, place.session("SET search_path = tpch_heap, public") as heap:
        query = place.watch.run("SELECT pystachio.tpch_query(5)").scalar()
        require(session.run(query).rows == heap.run(query).rows, "query 5 has other rows from the other host")


def hosts_have_several_ranks_each(place):
    hosts = _setup(place)
    if hosts.device == "cuda":
        print("        not over GPUs, of which each host has one", flush=True)
        return
    with hosts.session(hosts.first) as session, hosts.session(hosts.second) as other, place.session("SET search_path = tpch_heap, public") as heap:
        for side in (session, other):
            side.run(f"ALTER SERVER {_SERVER} OPTIONS (ADD ranks '2')")
            require(side.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the altered server works")
        wait_until(lambda: _are_connected(hosts.first, 4), "all ranks are connected", 0.05)
        placed = [rank["host"] for rank in _ranks(hosts.first)]
        require(placed == [hosts.names[0]] * 2 + [hosts.names[1]] * 2, f"hosts of ranks: {placed}")
        for number in (3, 13):
            query = place.watch.run(f"SELECT pystachio.tpch_query({number})").scalar()
            require(session.run(query).rows == heap.run(query).rows, f"query {number} has other rows on four ranks")
            for setting, levels in (("on", True), ("off", False)):
                session.run(f"SET pystachio.gpu_two_level_exchange = {setting}")
                plan = "\n".join(row[0] for row in session.run(f"EXPLAIN (ANALYZE) {query}").rows)
                for level in ("between hosts", "within hosts"):
                    require((level in plan) == levels, f"two levels are {setting}: {plan}")
                require(("to 3 ranks" in plan) != levels, f"the ranks that each sends to, two levels {setting}: {plan}")
                require(session.run(query).rows == heap.run(query).rows, f"query {number} has other rows with two levels {setting}")
            session.run("RESET pystachio.gpu_two_level_exchange")
        _all_levels(place, session, heap)
        require(_are_connected(hosts.first, 4), "all ranks are connected still")
        # One host has the old definition: they refuse each other, and answer alone.
        session.run(f"ALTER SERVER {_SERVER} OPTIONS (DROP ranks)")
        require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "a host of another definition answers alone")
        wait_until(lambda: "hosts name others" in (_ranks(hosts.first)[1]["last_error"] or ""), "the difference is shown", 0.1)
        other.run(f"ALTER SERVER {_SERVER} OPTIONS (DROP ranks)")
        require(other.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the altered server works")


def _all_levels(place, session, heap):
    """Each kind of exchange in two levels, and every query."""
    session.run("SET pystachio.gpu_two_level_exchange = on; SET pystachio.gpu_disable = exchange_broadcast_choice")
    shown = set()
    for query in [place.watch.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in _QUERIES] + list(_LEVELLED):
        plan = "\n".join(row[0] for row in session.run(f"EXPLAIN {query}").rows)
        shown |= {(kind, level) for kind in _KINDS for level in ("between", "within") if re.search(rf"{kind} \d+ {level} hosts", plan)}
        require(sorted(session.run(query).rows) == sorted(heap.run(query).rows), f"other rows by two levels: {query}")
    require(len(shown) == 2 * len(_KINDS), f"kinds of exchanges by two levels: {shown}")
    session.run("RESET pystachio.gpu_two_level_exchange; RESET pystachio.gpu_disable")


def a_cancel_reaches_the_other_host(place):
    hosts = _setup(place)
    with hosts.session(hosts.first) as session:
        _start_on_both(hosts, session, _PAIRS)
        session.cancel()
        expect_failure(session, _PAIRS, ["57014"])
        wait_until(lambda: all(int(rank["queries_running"]) == 0 for rank in _ranks(hosts.first)), "both hosts have stopped", 0.05)
        require(_are_connected(hosts.first) and session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the next query has its rows")


def a_host_that_is_cut_off_is_named_and_comes_back(place):
    hosts = _setup(place)
    with hosts.session(hosts.first) as session:
        _start_on_both(hosts, session, _PAIRS)
        with hosts.cut_off():
            try:
                session.finish(HANG_S)
                require(False, "the query has rows though a host is away")
            except QueryError as error:
                text = f"{error.message} {error.detail} {error.hint}"
                require(error.sqlstate == "08006", f"{error.sqlstate}: {text}")
                require("rank 1" in text and f"host {hosts.names[1]}" in text, f"the error names neither rank nor host: {text}")
            require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the next query runs on what is left")
            # It is asked again and again.
            wait_until(lambda: "can't be reached" in (_ranks(hosts.first)[1]["last_error"] or ""), "its absence is shown", 0.1)
        took = wait_until(lambda: _are_connected(hosts.first), "the host is back", 0.05)
        print(f"        the host was connected {took:.1f} s after its return", flush=True)
        require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "a query on both has its rows")
    _wait_connected(hosts)
    wait_until(lambda: _processes() == 4, "each host has its engine and one rank of the other's queries", 0.05)


def a_host_comes_back_without_a_query(place):
    """A database server that is restarted starts the engine that other hosts use."""
    hosts = _setup(place)
    hosts.second.watch.close()
    _cluster("start", hosts.has_namespace)
    hosts.second.watch = hosts.second.session()
    _wait_connected(hosts)
    with hosts.session(hosts.first) as session:
        require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "a query on both has its rows")


def a_wrong_certificate_connects_nobody(place):
    hosts = _setup(place)
    folder = hosts.certificates
    with hosts.session(hosts.first) as session, hosts.session(hosts.second) as other:
        other.run(f"ALTER SERVER {_SERVER} OPTIONS (SET tls_certificate '{folder}/wrong.pem', SET tls_key '{folder}/wrong.key')")
        require(other.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the host with the wrong certificate answers alone")
        # Both sides refuse: the one that connects, and the one that listens.
        for side, word in ((hosts.first, "UnknownIssuer"), (hosts.second, "received fatal alert")):
            wait_until(lambda side=side, word=word: word in (_ranks(side)[1]["last_error"] or ""), f"{word} is shown", 0.1)
        require("tls_ca" in _ranks(hosts.first)[1]["last_error"], "the way out is named")
        require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the other one answers too")
        other.run(f"ALTER SERVER {_SERVER} OPTIONS (SET tls_certificate '{folder}/none.pem')")
        expect_error(other, _TRIVIAL, ["58P01", "42501", "08006", "55000", "0A000", "HV00L", "58030"], ["tls_certificate", "none.pem"])
        other.run(f"ALTER SERVER {_SERVER} OPTIONS (SET tls_certificate '{folder}/1.pem', SET tls_key '{folder}/1.key')")
        require(other.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the host answers with its own certificate")
    _wait_connected(hosts)


def options_of_hosts_are_checked(place):
    valid = {"hosts": "a:1,b:1", "host": "a:1", "tls_certificate": "/c", "tls_key": "/k", "tls_ca": "/a"}

    def create(**changes):
        options = {name: value for name, value in {**valid, **changes}.items() if value is not None}
        return "CREATE SERVER wrong FOREIGN DATA WRAPPER pystachio OPTIONS (" + ", ".join(f"{name} '{value}'" for name, value in options.items()) + ")"

    states = ["22023", "HV00D", "HV024"]
    with place.session("BEGIN") as session:
        for changes, words in (({"hosts": "a,b:1"}, ["hosts", '"a"', "10.0.0.1:5440"]), ({"hosts": "a:1"}, ["two hosts"]), ({"hosts": "a:1,a:1"}, ["once"]),
                               ({"hosts": "a:1,b:0"}, ["b:0"]), ({"host": "c:1"}, ["c:1", "a:1, b:1"]), ({"host": None}, ['"host" is missing']),
                               ({"tls_key": None}, ['"tls_key" is missing', "Set all of"]), ({"tls_ca": "a.pem"}, ["tls_ca", "absolute"]),
                               ({"ranks": "33"}, ["2 hosts", "64"])):
            session.run("SAVEPOINT before")
            expect_error(session, create(**changes), states, words)
            session.run("ROLLBACK TO before")
        session.run(create(device="cpu"))
        session.run("ROLLBACK; DROP ROLE IF EXISTS host_maker; CREATE ROLE host_maker; GRANT USAGE ON FOREIGN DATA WRAPPER pystachio TO host_maker")
        session.run("SET ROLE host_maker")
        expect_error(session, create(), ["42501"], ["hosts", "superuser"])
        session.run("RESET ROLE; DROP OWNED BY host_maker; DROP ROLE host_maker")


def hosts_are_dropped(place):
    """Nothing is left of them."""
    hosts = _setup(place)
    with hosts.session(hosts.first) as session:
        session.run(f"DROP SERVER {_SERVER} CASCADE; DROP SCHEMA {_SERVER} CASCADE")
    # The engine that others have lost says so, and works.
    with hosts.session(hosts.second) as session:
        wait_until(lambda: _ranks(hosts.second)[1]["state"] != "running", "its absence is found", 0.05)
        require(session.run(_TRIVIAL).rows == _TRIVIAL_ROWS, "the host that is left answers")
    wait_until(lambda: _processes() == 1, "no rank is left of the host that is gone", 0.05)
    hosts.second.watch.close()
    _cluster("stop", False)
    if hosts.has_namespace:
        _ip("netns", "del", _NAMESPACE)


TESTS = [options_of_hosts_are_checked, two_hosts_answer_as_one_rank, hosts_have_several_ranks_each, a_cancel_reaches_the_other_host,
         a_host_that_is_cut_off_is_named_and_comes_back, a_host_comes_back_without_a_query, a_wrong_certificate_connects_nobody, hosts_are_dropped]
