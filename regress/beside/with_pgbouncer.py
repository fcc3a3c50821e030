"""PgBouncer in transaction mode: sessions of the server that many clients share in turn."""

import contextlib
import shutil
import subprocess

import psycopg

from beside.support import BY_KEY, DATABASE, FAILING, FOREIGN, HEAP, KEYS, LONG_QUERY, QUERIES, require_equal
from beside.with_pgbench import _EQUAL, CLIENTS, run_pgbench
from beside.with_psycopg import cancel_running
from faults.support import require, wait_until
from harness.libpq import QueryError, Session

_PORT = 6432
_SESSIONS = 5


@contextlib.contextmanager
def _pooler(place):
    """PgBouncer over the cluster, whose databases `foreign` and `heap` differ in their search paths; gives a function for connection strings."""
    folder = place.own_folder("pgbouncer")
    # The server's user can't enter every cache folder.
    root = place.root / "pgbouncer-program"
    shutil.rmtree(root, ignore_errors=True)
    source = place.packages.paths["pgbouncer"]
    if source.endswith("/pgbouncer/pgbouncer"):
        shutil.copytree(source.rsplit("/", 1)[0], root)
        source = str(root / "pgbouncer")
    server = place.parameters()
    lines = ["[databases]"]
    for name, path in (("foreign", FOREIGN), ("heap", HEAP)):
        lines.append(f"{name} = host={server['host']} port={server['port']} user={server['user']} dbname={DATABASE} connect_query='SET search_path = {path}'")
    lines += ["[pgbouncer]", "listen_addr =", f"listen_port = {_PORT}", f"unix_socket_dir = {folder}", "auth_type = any", "pool_mode = transaction",
              f"default_pool_size = {_SESSIONS}", f"max_client_conn = {4 * CLIENTS}", f"logfile = {folder}/log", f"pidfile = {folder}/pid",
              "ignore_startup_parameters = extra_float_digits,options", "server_reset_query_always = 0", "query_wait_timeout = 300"]
    configuration = folder / "pgbouncer.ini"
    configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
    process = subprocess.Popen([source, "-q", configuration], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               **place.as_owner())

    def conninfo(name):
        return f"host={folder} port={_PORT} user={server['user']} dbname={name}"

    def answers():
        require(process.poll() is None, f"PgBouncer ended: {(folder / 'log').read_text(encoding='utf-8') if (folder / 'log').exists() else ''}")
        try:
            Session(conninfo("foreign")).close()
            return True
        except QueryError:
            return False

    try:
        wait_until(answers, "PgBouncer answers")
        yield conninfo
    finally:
        process.terminate()
        process.wait()


def clients_share_sessions(place):
    """pgbench with more clients than sessions, in the modes that transaction pooling has."""
    place.watch.run(_EQUAL)
    with _pooler(place) as conninfo:
        for mode in ("simple", "extended"):
            run_pgbench(place, mode, conninfo("foreign"))
        count = place.watch.run(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{DATABASE}' AND backend_type = 'client backend' "
                                "AND pid <> pg_backend_pid()").scalar()
        require(int(count) <= _SESSIONS + 1, f"{count} sessions of the server, for {CLIENTS} clients")
    place.wait_idle()


def transactions_of_psycopg(place):
    """Transactions of many connections in turn: cursors, errors, pipelines; each finds its own state."""
    with _pooler(place) as conninfo:
        found = []
        for name in ("foreign", "heap"):
            rows = []
            connections = [psycopg.connect(conninfo(name), prepare_threshold=None) for _ in range(8)]
            for step in range(2):
                for number, connection in enumerate(connections):
                    with connection.transaction():
                        cursor = connection.cursor("portions", binary=True)
                        cursor.execute(QUERIES["pages"])
                        rows.append(cursor.fetchmany(50))
                        rows.append(connection.execute(BY_KEY.format("%s"), (KEYS[number % len(KEYS)],)).fetchall())
                        rows.append(cursor.fetchmany(50))
                    try:
                        connection.execute(FAILING if step else QUERIES["join"])
                    except psycopg.Error as error:
                        rows.append(error.sqlstate)
                    connection.rollback()
                    with connection.pipeline():
                        rows += [connection.execute(query).fetchall() for query in QUERIES.values()]
                    connection.commit()
            for connection in connections:
                connection.close()
            found.append(rows)
        require_equal(*found, "transactions through PgBouncer")
        require("22012" in found[0], "a query fails")
    place.wait_idle()


def cancels(place):
    """A cancel goes through the pooler to the session that runs the query, and not to the one that has it afterwards."""
    with _pooler(place) as conninfo:
        with psycopg.connect(conninfo("foreign"), prepare_threshold=None, autocommit=True) as connection:
            cancel_running(place, connection, LONG_QUERY)
            require(connection.execute("SELECT count(*) FROM region").fetchone() == (5,), "the connection goes on")
        # A client that goes away in the middle of its query.
        gone = Session(conninfo("foreign"))
        gone.start(LONG_QUERY)
        place.wait_running()
        gone.close()
        place.wait_idle()


TESTS = [clients_share_sessions, transactions_of_psycopg, cancels]
