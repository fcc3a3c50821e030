"""The supervisor of a cluster's engines, in a cluster of its own that is restarted and killed.

No process may be left of a server that has ended: engines are found by their working directory, which is the data directory.
"""

import contextlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import threading

from faults.support import HANG_S, IS_WHOLE, LONG_QUERY, Place, expect_error, require, wait_until
from harness import tables
from harness.libpq import QueryError

_DATABASES = [f"d{number}" for number in range(30 if IS_WHOLE else 8)]
_COUNT = "SELECT count(*) FROM t.nation"
_SUPERVISOR = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pystachio supervisor'"


class _Cluster:
    """The cluster `super`, with the extension and tables in all databases."""

    def __init__(self, place):
        self.folder = _script("create", place.stage).splitlines()[-1]
        self.conninfo = _script("conninfo")
        self.data = pathlib.Path(self.folder, "data")
        with self.session("template1") as session:
            session.run("CREATE EXTENSION pystachio; CREATE SCHEMA t; CREATE SCHEMA work")
            session.run(tables.import_statement(place.tpch, "t", limit="LIMIT TO (nation)"))
            session.run(tables.import_statement(place.tpch, "work", limit="LIMIT TO (lineitem)"))
        with self.session("postgres") as session:
            for name in _DATABASES:
                session.run(f"CREATE DATABASE {name} STRATEGY file_copy")
            # That of the template has done its work, the import.
            _set(session, "pystachio.idle_timeout", "1s")
            wait_until(lambda: not self.engines(), "the template's engine ends when it is idle", 0.05)
            _set(session, "pystachio.idle_timeout")

    def place(self, database):
        return Place(self.conninfo, self.folder, database)

    @contextlib.contextmanager
    def session(self, database):
        place = Place.__new__(Place)
        place.conninfo = f"{self.conninfo} dbname={database}"
        with place.session("SET client_min_messages = warning") as session:
            yield session

    def count(self, database):
        with self.session(database) as session:
            return session.run(_COUNT).scalar()

    def engines(self):
        """The processes of engines, whoever their parent is."""
        return [pid for pid, command in self._processes() if command.startswith("pystachio-engin")]

    def processes(self):
        """All processes of the server, and what it has left."""
        return [pid for pid, _ in self._processes()]

    def _processes(self):
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_alive = (path / "stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
                if is_alive and os.path.samefile(path / "cwd", self.data):
                    yield int(path.name), (path / "comm").read_text().strip()

    def promised(self):
        """The options `memory` of the engines that run, in MB."""
        lines = []
        for pid in self.engines():
            with contextlib.suppress(OSError):
                lines.append(pathlib.Path(f"/proc/{pid}/cmdline").read_text())
        return [int(line.split("--memory=")[1].split("\0")[0]) >> 20 for line in lines]

    def control(self, *arguments):
        """pg_ctl, as the server's user."""
        server = pathlib.Path(self.folder, "server")
        program = str(server) + (server / "bindir").read_text() + "/pg_ctl"
        owner = self.data.stat()
        user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.getuid() == 0 else {}
        with open("/dev/null", "r+b") as nothing:
            subprocess.run([program, "-D", str(self.data), "-w", "-t", str(HANG_S), "-l", f"{self.folder}/server.log", *arguments],
                           check=True, stdin=nothing, stdout=nothing, stderr=nothing, cwd="/", **user)

    def supervisor(self):
        with self.session("postgres") as session:
            rows = session.run(_SUPERVISOR).rows
            return int(rows[0][0]) if len(rows) == 1 else None

    def folders(self):
        """The folders of engines."""
        return [path.name for path in (self.data / "pystachio").iterdir() if path.is_dir() and path.name != "writes"]


def _set(session, name, value=None):
    """Changes a setting of the cluster, or takes the change back, and reloads the settings."""
    session.run(f"ALTER SYSTEM SET {name} = '{value}'" if value is not None else f"ALTER SYSTEM RESET {name}")
    session.run("SELECT pg_reload_conf()")


def _script(action, *arguments):
    script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cluster.sh"
    return subprocess.run([str(script), action, "super", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _cluster(place):
    if not hasattr(place, "supervised"):
        place.supervised = _Cluster(place)
    return place.supervised


class _Load:
    """Sessions that query without a pause; what goes wrong while the server is down is forgiven."""

    def __init__(self, cluster, databases):
        self.stop, self.wrong = threading.Event(), []
        self.threads = [threading.Thread(target=self._run, args=(cluster, name)) for name in databases]

    def _run(self, cluster, database):
        while not self.stop.is_set():
            try:
                with cluster.session(database) as session:
                    while not self.stop.is_set():
                        if session.run(_COUNT).scalar() != "25":
                            self.wrong.append(database)
            except (QueryError, OSError):
                self.stop.wait(0.02)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(HANG_S)
        require(not self.wrong, f"wrong answers: {self.wrong}")


def many_databases_start_nothing(place):
    """Engines start with the first query, take no worker slot, and end when they are idle."""
    cluster = _cluster(place)
    cluster.control("-m", "fast", "restart")
    with cluster.session("postgres") as session:
        require(session.run("SHOW max_worker_processes").scalar() == "1", "there is one worker slot")
        wait_until(lambda: cluster.supervisor() is not None, "the supervisor runs")
        require(not cluster.engines() and not cluster.folders(), f"nothing has started: {cluster.engines()} {cluster.folders()}")
        require(cluster.count(_DATABASES[0]) == "25" and len(cluster.engines()) == 1, f"one engine has started: {cluster.engines()}")
        with cluster.session(_DATABASES[0]) as user:
            wait_until(lambda: user.run("SELECT last_used BETWEEN since AND clock_timestamp() FROM pystachio.engines").scalar() == "t",
                       "its last use is shown", 0.05)
        with cluster.session(_DATABASES[1]) as other:
            require(other.run("SELECT state FROM pystachio.engines").scalar() == "stopped", "another database's has not")
        for name in _DATABASES[:6]:
            require(cluster.count(name) == "25", f"{name} answers")
        require(session.run("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pystachio%'").scalar() == "1", "one worker runs")
        with cluster.session(_DATABASES[0]) as busy:
            busy.start(LONG_QUERY)
            watch = cluster.place(_DATABASES[0])
            watch.wait_running()
            _set(session, "pystachio.idle_timeout", "1s")
            wait_until(lambda: len(cluster.engines()) == 1, "idle engines end, and the busy one does not", 0.05)
            require(watch.engine()["state"] == "running", f"the busy engine: {watch.engine()}")
            busy.cancel()
            with contextlib.suppress(QueryError):
                busy.finish(HANG_S)
            wait_until(lambda: not cluster.engines() and not cluster.folders(), "the last one ends too", 0.05)
            # A session that has connected before finds the next engine.
            require(busy.run(_COUNT).scalar() == "25", "the next query starts it again")
            watch.watch.close()
        _set(session, "pystachio.idle_timeout")


def engines_start_with_the_server(place):
    """With pystachio.start_engines they do, and those that were not used end as others do."""
    cluster = _cluster(place)
    with cluster.session("postgres") as session:
        _set(session, "pystachio.start_engines", "server_start")
        # The checks that read the catalogs of databases need a slot.
        _set(session, "max_worker_processes", "2")
        for name in _DATABASES[3:]:
            session.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    cluster.control("-m", "fast", "restart")
    # Those of three databases and of the template that can be connected to.
    wait_until(lambda: len(cluster.engines()) == 4, "engines start with the server", 0.05)
    with cluster.session("postgres") as session:
        _set(session, "pystachio.start_engines")
        _set(session, "max_worker_processes")
    cluster.control("-m", "fast", "restart")


def no_process_is_left(place):
    """Fast and immediate shutdown while queries run, and a restart of the server with all that it does: no engine outlives it."""
    cluster = _cluster(place)
    with _Load(cluster, _DATABASES[:3]):
        for mode in ("fast", "immediate"):
            with cluster.session(_DATABASES[0]) as busy:
                wait_until(lambda: cluster.engines(), "engines run")
                busy.start(LONG_QUERY)
                cluster.control("-m", mode, "stop")
                wait_until(lambda: not cluster.processes(), f"no process is left after a shutdown {mode}", 0.02)
                with contextlib.suppress(QueryError):
                    busy.finish(HANG_S)
            cluster.control("start")
            wait_until(lambda: _answers(cluster, _DATABASES[0]), f"the server answers after a shutdown {mode}", 0.05)
        cluster.control("-m", "fast", "restart")
        wait_until(lambda: _answers(cluster, _DATABASES[0]), "the server answers after a restart", 0.05)
    require(len(cluster.engines()) <= 3, f"engines: {cluster.engines()}")


def _answers(cluster, database):
    try:
        return cluster.count(database) == "25"
    except QueryError:
        return False


def supervisor_killed(place):
    """SIGTERM ends all engines, and the next query starts another supervisor; SIGKILL restarts all sessions, as that of any worker."""
    cluster = _cluster(place)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGABRT):
        require(cluster.count(_DATABASES[0]) == "25" and cluster.count(_DATABASES[1]) == "25", "engines run")
        before, engines = cluster.supervisor(), cluster.engines()
        os.kill(before, number)
        wait_until(lambda: not set(engines) & set(cluster.engines()), "its engines end with it", 0.02)
        wait_until(lambda: _answers(cluster, _DATABASES[0]), "the next query is answered", 0.05)
        after = cluster.supervisor()
        require(after not in (None, before), f"there is another supervisor: {before}, {after}")
        require(len(cluster.engines()) == 1, f"one engine was used since: {cluster.engines()}")


def postmaster_killed(place):
    """Nothing outlives the postmaster either."""
    cluster = _cluster(place)
    require(cluster.count(_DATABASES[0]) == "25", "an engine runs")
    os.kill(int((cluster.data / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)
    wait_until(lambda: not cluster.processes(), "no process is left", 0.02)
    # Where nobody waits for an orphan that has ended, its number is still taken.
    for lock in (cluster.data / "postmaster.pid", *pathlib.Path(cluster.folder).glob(".s.PGSQL.*.lock")):
        lock.unlink()
    cluster.control("start")
    require(cluster.count(_DATABASES[0]) == "25", "the server answers after its recovery")


def _waits(cluster, session, sql, event):
    """Starts a statement, and whether it then waits for an event and not only ends."""
    pid = session.run("SELECT pg_backend_pid()").scalar()
    session.start(sql)
    seen = []

    def is_settled():
        with cluster.session("postgres") as watch:
            seen.extend(row[0] for row in watch.run(f"SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = {pid} AND (state = 'idle' OR wait_event = '{event}')").rows)
        return bool(seen)

    wait_until(is_settled, f"the session waits for {event}, or is idle")
    return seen[-1] == event, int(pid)


def writes_are_whole_after_a_crash(place):
    """A session is killed between the change of names and its commit record, and between that and the removal of files: all of a transaction's
    files are there, or none, and none has a name of the time between."""
    cluster, database = _cluster(place), _DATABASES[0]
    folder = pathlib.Path(cluster.folder, "crashed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o777)
    rows = "SELECT string_agg(k || '/' || p, ' ' ORDER BY k, p) FROM crashed"
    with cluster.session(database) as session:
        session.run("DROP FOREIGN TABLE IF EXISTS crashed; DROP TABLE IF EXISTS logged; CREATE TABLE logged (k integer)")
        session.run(f"CREATE FOREIGN TABLE crashed (k integer, p integer) SERVER pystachio OPTIONS (path '{folder}', writable 'true', partition_by 'p')")
        session.run("INSERT INTO crashed VALUES (1, 1), (2, 2)")
        session.run(f"COPY (SELECT 9 AS k) TO '{folder}/p=2/z.parquet' (FORMAT parquet)")

    def names(begin):
        return [path for path in folder.rglob("*") if path.is_file() and path.name.startswith(".") == (begin == ".")]

    def change(key):
        """Adds a row, removes a partition and replaces a file."""
        return (f"BEGIN; INSERT INTO logged VALUES ({key}); INSERT INTO crashed VALUES ({key}, 3); DELETE FROM crashed WHERE p = 1; "
                f"COPY (SELECT {key} AS k) TO '{folder}/p=2/z.parquet' (FORMAT parquet); ")

    def crash(pid):
        require(len(names(".")) == 2, f"a removed and a replaced file have other names: {names('.')}")
        require(list((cluster.data / "pystachio" / "writes").glob("[0-9]*.json")), "there is a record")
        os.kill(pid, signal.SIGKILL)
        # The postmaster has seen it when the number is free.
        wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the session is gone")
        wait_until(lambda: _answers(cluster, database), "the server has recovered", 0.05)

    def check(expected):
        with cluster.session(database) as session:
            found = session.run(rows).scalar()
            require(found == expected, f"the rows are whole: {found}")
        require(names(".") == [], f"no other name is left: {names('.')}")
        require(not list((cluster.data / "pystachio" / "writes").glob("*.json")), "no record is left")

    with cluster.session("postgres") as session:
        _set(session, "synchronous_standby_names", "nobody")
    try:
        # The first session commits for ever, with the queue of notifications locked; the second waits for that, before its commit record.
        with contextlib.suppress(QueryError), cluster.session(database) as keeper, cluster.session(database) as writer:
            keeper.run("SET synchronous_commit = on")
            writer.run("SET synchronous_commit = on")

            def is_kept():
                """The checkpointer reads the setting some time later."""
                is_waiting, _ = _waits(cluster, keeper, "BEGIN; INSERT INTO logged VALUES (0); NOTIFY noted; COMMIT", "SyncRep")
                if not is_waiting:
                    keeper.finish(HANG_S)
                return is_waiting

            wait_until(is_kept, "a commit waits for a standby")
            is_waiting, pid = _waits(cluster, writer, change(5) + "NOTIFY noted; COMMIT", "object")
            require(is_waiting, "the commit waits for the queue")
            crash(pid)
        check("1/1 2/2 9/2")
        # The commit record is there, and the session waits for a standby.
        with contextlib.suppress(QueryError), cluster.session(database) as writer:
            writer.run("SET synchronous_commit = on")
            is_waiting, pid = _waits(cluster, writer, change(6) + "COMMIT", "SyncRep")
            require(is_waiting, "the commit waits for a standby")
            crash(pid)
        check("2/2 6/2 6/3")
    finally:
        with cluster.session("postgres") as session:
            _set(session, "synchronous_standby_names")


def databases_are_dropped_and_renamed(place):
    """Also one in another tablespace. What is renamed goes on."""
    cluster = _cluster(place)
    spaces = pathlib.Path(cluster.folder, "space")
    spaces.mkdir(exist_ok=True)
    if os.getuid() == 0:
        os.chown(spaces, cluster.data.stat().st_uid, cluster.data.stat().st_gid)
    with cluster.session("postgres") as session:
        session.run(f"CREATE TABLESPACE elsewhere LOCATION '{spaces}'")
        session.run("CREATE DATABASE moved TABLESPACE elsewhere")
        before = set(cluster.engines())
        require(cluster.count("moved") == "25", "a database in another tablespace answers")
        pid, = set(cluster.engines()) - before
        wait_until(lambda: _renames(session, "moved", "renamed"), "the database is renamed")
        require(cluster.count("renamed") == "25" and pid in cluster.engines(), "its engine goes on under the new name")
        wait_until(lambda: _runs(session, "ALTER DATABASE renamed SET TABLESPACE pg_default"), "the database moves")
        require(cluster.count("renamed") == "25" and pid in cluster.engines(), "its engine goes on in the other tablespace")
        wait_until(lambda: _runs(session, "DROP DATABASE renamed"), "DROP DATABASE is not blocked")
        wait_until(lambda: pid not in cluster.engines(), "its engine ends", 0.02)
        session.run("DROP TABLESPACE elsewhere")


def _renames(session, name, other):
    return _runs(session, f"ALTER DATABASE {name} RENAME TO {other}")


def _runs(session, statement):
    """Whether a statement succeeds that waits for sessions which are just ending."""
    try:
        session.run(statement)
        return True
    except QueryError as error:
        require(error.sqlstate == "55006", f"{error}")
        return False


def memory_is_promised_once(place):
    """Engines of all databases share pystachio.memory: idle ones end for others, and a query for which there is no room says who has it."""
    cluster = _cluster(place)
    first, second, third = _DATABASES[:3]
    with cluster.session(first) as busy, cluster.session(second) as other, cluster.session(third) as last:
        _set(busy, "pystachio.memory", "600MB")
        for session in (busy, other):
            session.run("ALTER SERVER pystachio OPTIONS (ADD memory '400MB')")
        wait_until(lambda: not cluster.engines(), "engines of the former options end", 0.02)
        busy.start(LONG_QUERY)
        watch = cluster.place(first)
        watch.wait_running()
        other.run("SET pystachio.connect_timeout = '1500ms'")
        expect_error(other, _COUNT, ["53200"], ["400 MB", "400 of 600 MB", f'database "{first}": 400 MB', "pystachio.memory"])
        require(watch.running() == 1, "the busy engine goes on")
        busy.cancel()
        with contextlib.suppress(QueryError):
            busy.finish(HANG_S)
        watch.wait_idle()
        other.run("RESET pystachio.connect_timeout")
        require(other.run(_COUNT).scalar() == "25", "an engine that is idle ends for another one")
        require(cluster.promised() == [400], f"promised: {cluster.promised()} MB")
        # A server that does not say how much it needs gets two thirds of what is free, here of all after the other has ended.
        require(last.run(_COUNT).scalar() == "25" and cluster.promised() == [400], f"promised: {cluster.promised()} MB")
        _set(last, "pystachio.memory", "1200MB")
        wait_until(lambda: _answers(cluster, second) and cluster.promised() == [400, 400], "more room lets both run", 0.05)
        last.run("ALTER SERVER pystachio OPTIONS (ADD memory '1300MB')")
        expect_error(last, _COUNT, ["53200"], ["1300 MB", "of 1200 MB", "option memory"])
        _set(last, "pystachio.memory")
        wait_until(lambda: _answers(cluster, third), "the machine's memory is enough", 0.05)
        watch.watch.close()
    for name in (first, second, third):
        with cluster.session(name) as session:
            session.run("ALTER SERVER pystachio OPTIONS (DROP memory)")


def processors_are_shared(place):
    """pystachio.threads binds all threads of all engines to the same processors, whatever the option threads says."""
    cluster = _cluster(place)
    first, second = _DATABASES[:2]
    with cluster.session(first) as session, cluster.session(second) as other:
        allowed = _processors_of(cluster.supervisor() or os.getpid())
        _end_idle(cluster, session)
        _set(session, "pystachio.threads", "1")
        other.run("ALTER SERVER pystachio OPTIONS (ADD threads '3')")
        wait_until(lambda: session.run("SHOW pystachio.threads").scalar() == "1", "the setting is loaded", 0.02)
        # The supervisor reads it too, a moment later.
        wait_until(lambda: _bound(cluster, [first, second]) == {min(allowed)}, "all threads of both engines are on the first processor", 0.2)
        require(sorted(_threads(cluster)) == [1, 3], f"options of the engines: {_threads(cluster)} threads")
        _set(session, "pystachio.threads")
        other.run("ALTER SERVER pystachio OPTIONS (DROP threads)")
        wait_until(lambda: _bound(cluster, [first, second]) == allowed, "the engines may use all processors again", 0.2)


def _bound(cluster, databases):
    """The processors that any thread of the engines may use that start with queries of these databases."""
    with cluster.session("postgres") as session:
        _end_idle(cluster, session)
    for name in databases:
        require(cluster.count(name) == "25", "an engine runs")
    found = set()
    for pid in cluster.engines():
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found |= _processors_of(f"{pid}/task/{task.name}")
    return found


def _end_idle(cluster, session):
    """All engines end."""
    _set(session, "pystachio.idle_timeout", "1s")
    wait_until(lambda: not cluster.engines(), "idle engines end", 0.02)
    _set(session, "pystachio.idle_timeout")


def _processors_of(pid):
    """The processors that a thread may use."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    ranges = next(line for line in lines if line.startswith("Cpus_allowed_list:")).split()[1].split(",")
    bounds = [[int(bound) for bound in text.split("-")] for text in ranges]
    return {number for bound in bounds for number in range(bound[0], bound[-1] + 1)}


def _threads(cluster):
    """The option `--threads` of the engines that run."""
    lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in cluster.engines()]
    return [int(line.split("--threads=")[1].split("\0")[0]) for line in lines]


def no_slot_for_a_supervisor(place):
    """Without a worker slot the first query says so; preloading would have kept one."""
    cluster = _cluster(place)
    with cluster.session("postgres") as session:
        _set(session, "max_worker_processes", "0")
    cluster.control("-m", "fast", "restart")
    with cluster.session(_DATABASES[0]) as session:
        expect_error(session, _COUNT, ["08006"], ["max_worker_processes", "shared_preload_libraries"])
        _set(session, "max_worker_processes")
    cluster.control("-m", "fast", "stop")
    require(not cluster.processes(), "no process is left")


def many_sessions(place):
    """More sessions than an engine has file descriptors by the usual limit: all of them get their rows, and all keep their connection."""
    cluster = _cluster(place)
    count = 1100 if IS_WHOLE else 120
    with cluster.session("postgres") as session:
        _set(session, "max_connections", str(count + 20))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The usual limit for the server and its engine; this process has a socket for each session too.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    cluster.control("-m", "fast", "restart")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(cluster.session(_DATABASES[0])) for _ in range(count)]
        for _ in range(2):
            for session in sessions:
                require(session.run(_COUNT).scalar() == "25", "a session gets its rows")
        require(len(cluster.engines()) == 1, f"one engine serves them: {cluster.engines()}")
        engine = pathlib.Path(f"/proc/{cluster.engines()[0]}/fd")
        require(len(list(engine.iterdir())) >= count, "each session keeps its connection")
    with cluster.session("postgres") as session:
        _set(session, "max_connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    cluster.control("-m", "fast", "restart")


TESTS = [many_databases_start_nothing, many_sessions, engines_start_with_the_server, no_process_is_left, supervisor_killed, postmaster_killed, writes_are_whole_after_a_crash,
         databases_are_dropped_and_renamed, memory_is_promised_once, processors_are_shared, no_slot_for_a_supervisor]
