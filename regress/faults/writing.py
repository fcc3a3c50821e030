"""Rows that are being written while the engine, the session, the server or the disk fails: either all of a transaction's files are there, or none."""

import os
import pathlib
import shutil
import signal
import subprocess

from faults.support import HANG_S, expect_error, expect_failure, require, wait_until

# Many batches; the advisory lock that a session holds stops them in the middle.
_GATE = 7001
_ROWS = "SELECT i, repeat('x', 100) FROM generate_series(1, 100000) i"
_GATED = (f"INSERT INTO public.written {_ROWS} "
          f"UNION ALL SELECT 0, CASE WHEN pg_advisory_lock({_GATE}) IS NULL OR pg_advisory_unlock({_GATE}) THEN 'gate' END")
_LOST = ["08006"]


class Written:
    """A writable table over a folder, empty at first."""

    def __init__(self, place):
        self.place = place
        self.folder = pathlib.Path(place.folder) / "written"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(0o777)
        place.watch.run("DROP FOREIGN TABLE IF EXISTS public.written")
        place.watch.run(f"CREATE FOREIGN TABLE public.written (k integer, t text) SERVER pystachio OPTIONS (path '{self.folder}', writable 'true')")

    def names(self, begin=""):
        """The names in the folder that begin so."""
        return sorted(path.name for path in self.folder.iterdir() if path.name.startswith(begin))

    def gated(self):
        """A session whose INSERT has sent many rows and waits for the gate, and the session that holds it."""
        keeper, writer = self.place.session(), self.place.session()
        keeper.run(f"SELECT pg_advisory_lock({_GATE})")
        pid = writer.run("SELECT pg_backend_pid()").scalar()
        writer.start(_GATED)
        waits = f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {pid}"
        wait_until(lambda: self.place.watch.run(waits).scalar() == "t", "the INSERT waits for the gate")
        require(len(self.names(".rows-")) == 1, f"one file is being written: {self.names()}")
        return keeper, writer, int(pid)

    def is_empty(self):
        """Whether nothing is left in the folder."""
        return not self.names()


def engine_killed(place):
    """An engine that dies while rows come is an error, and its file goes with the next write."""
    written = Written(place)
    keeper, writer, _ = written.gated()
    with keeper, writer:
        os.kill(place.engine_pid(), signal.SIGKILL)
        keeper.run(f"SELECT pg_advisory_unlock({_GATE})")
        expect_failure(writer, "the INSERT", _LOST, ["ended unexpectedly"])
    require(written.names("rows-") == [], "no file has a name that scans see")
    wait_until(lambda: place.watch.run("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO public.written%'").scalar() == "0",
               "the session is gone")
    with place.session() as session:
        session.run("INSERT INTO public.written VALUES (1, 'after')")
        require(session.run("SELECT count(*) FROM public.written").scalar() == "1", "only the later row is there")
    require(written.names(".") == [], f"the dead session's file is removed: {written.names()}")


def writer_cancelled(place):
    """A cancel ends the write, and nothing is left; the session goes on."""
    written = Written(place)
    keeper, writer, _ = written.gated()
    with keeper, writer:
        writer.cancel()
        expect_failure(writer, "the INSERT", ["57014"])
        wait_until(written.is_empty, "nothing is left")
        writer.run("INSERT INTO public.written VALUES (1, 'after')")
        require(len(written.names("rows-")) == 1, "the session writes again")


def writer_terminated(place):
    """So does a session that is terminated, while it writes and before it commits."""
    written = Written(place)
    keeper, writer, pid = written.gated()
    with keeper, writer:
        place.watch.run(f"SELECT pg_terminate_backend({pid})")
        wait_until(written.is_empty, "nothing is left")
    with place.session() as session:
        pid = session.run("SELECT pg_backend_pid()").scalar()
        session.run("BEGIN")
        session.run("INSERT INTO public.written VALUES (1, 'never')")
        require(len(written.names(".rows-")) == 1, "the file waits for the commit")
        place.watch.run(f"SELECT pg_terminate_backend({pid})")
        wait_until(written.is_empty, "nothing is left")


def engine_lost_before_commit(place):
    """A commit needs no engine: the file is whole, and is the session's to rename."""
    written = Written(place)
    with place.session() as session:
        session.run("BEGIN")
        session.run("INSERT INTO public.written VALUES (1, 'kept')")
        os.kill(place.engine_pid(), signal.SIGKILL)
        session.run("COMMIT")
        require(session.run("SELECT t FROM public.written").scalar() == "kept", "the row is there")


def two_writers(place):
    """Two sessions write at once: each sees what the other has committed."""
    written = Written(place)
    with place.session() as one, place.session() as other:
        for session, key in ((one, 1), (other, 2)):
            session.run("BEGIN")
            session.run(f"INSERT INTO public.written VALUES ({key}, 'row')")
        require(len(written.names(".rows-")) == 2 and written.names("rows-") == [], "both files wait")
        one.run("COMMIT")
        require(other.run("SELECT string_agg(k::text, ',') FROM public.written").scalar() == "1", "the first is there")
        other.run("COMMIT")
        require(one.run("SELECT string_agg(k::text, ',' ORDER BY k) FROM public.written").scalar() == "1,2", "both are there")


def a_name_taken_meanwhile(place):
    """A file that another session has made by the time of the commit stays, and the transaction fails whole."""
    written = Written(place)
    path = written.folder / "a.parquet"
    with place.session() as one, place.session() as other:
        one.run("BEGIN")
        one.run("INSERT INTO public.written VALUES (1, 'never')")
        one.run(f"SELECT pystachio.write_parquet('SELECT 1 AS k, ''one'' AS t', '{path}')")
        other.run(f"SELECT pystachio.write_parquet('SELECT 2 AS k, ''other'' AS t', '{path}')")
        expect_error(one, "COMMIT", ["22023"], ["already exists"])
        require(one.run("SELECT string_agg(t, ',') FROM public.written").scalar() == "other", "only the other's row is there")
    require(written.names() == ["a.parquet"], f"nothing else is left: {written.names()}")


def replaced_files_come_back(place):
    """A file that the transaction has replaced comes back when the next one can't be named."""
    written = Written(place)
    first, second = written.folder / "a.parquet", written.folder / "b.parquet"
    with place.session() as one, place.session() as other:
        other.run(f"SELECT pystachio.write_parquet('SELECT 1 AS k, ''before'' AS t', '{first}')")
        one.run("BEGIN")
        one.run(f"SELECT pystachio.write_parquet('SELECT 2 AS k, ''never'' AS t', '{first}', overwrite => true)")
        one.run(f"SELECT pystachio.write_parquet('SELECT 3 AS k, ''never'' AS t', '{second}')")
        other.run(f"SELECT pystachio.write_parquet('SELECT 4 AS k, ''other'' AS t', '{second}')")
        expect_error(one, "COMMIT", ["22023"], ["already exists"])
        require(one.run("SELECT string_agg(t, ',' ORDER BY k) FROM public.written").scalar() == "before,other", "the file from before is there")
        one.run(f"SELECT pystachio.write_parquet('SELECT 5 AS k, ''after'' AS t', '{first}', overwrite => true)")
        require(other.run("SELECT string_agg(t, ',' ORDER BY k) FROM public.written").scalar() == "other,after", "the next write replaces it")
    require(written.names() == ["a.parquet", "b.parquet"], f"nothing else is left: {written.names()}")


def folder_gone(place):
    """A folder that is removed before the commit fails the transaction."""
    written = Written(place)
    with place.session() as session:
        session.run("BEGIN")
        session.run("INSERT INTO public.written VALUES (1, 'never')")
        shutil.rmtree(written.folder)
        expect_error(session, "COMMIT", ["58030"], [str(written.folder)])
        require(session.run("SELECT 1").scalar() == "1", "the session goes on")


def disk_full(place):
    """A write that finds no room is an error that names the file; nothing is left of it, and what fits is written later. Only root can mount
    a file system of one megabyte, so that it is full of two."""
    written = Written(place)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "none", written.folder], check=False, capture_output=True).returncode != 0:
        print("writing: disk_full is skipped: no file system can be mounted")
        return
    try:
        noise = "SELECT i, string_agg(md5(i::text || j), '') FROM generate_series(1, 2000) i, generate_series(1, 40) j GROUP BY i"
        with place.session() as session:
            # By the engine that gets rows, by COPY, and by the engine that computes them.
            expect_error(session, f"INSERT INTO public.written {noise}", ["53100", "58030"], [str(written.folder), "No space left"])
            wait_until(written.is_empty, "nothing is left")
            expect_error(session, f"COPY ({noise}) TO '{written.folder}/a.parquet' (FORMAT parquet)", ["53100", "58030"], ["No space left"])
            wait_until(written.is_empty, "nothing is left")
            session.run("INSERT INTO public.written VALUES (1, 'fits')")
            session.run("BEGIN")
            session.run("INSERT INTO public.written VALUES (2, 'too')")
            expect_error(session, f"INSERT INTO public.written {noise}", ["53100", "58030"], ["No space left"])
            session.run("ROLLBACK")
            require(session.run("SELECT string_agg(t, ',') FROM public.written").scalar() == "fits", "only what was committed is there")
        wait_until(lambda: written.names(".") == [], "nothing else is left")
    finally:
        subprocess.run(["umount", "-l", written.folder], check=True)


def retired_engine(place):
    """An engine that is retired ends the write that it runs, and the next one gets the next write."""
    written = Written(place)
    keeper, writer, _ = written.gated()
    with keeper, writer:
        before = place.engine_pid()
        place.watch.run("ALTER SERVER pystachio OPTIONS (ADD log_level 'error')")
        try:
            with place.session() as session:
                session.run("INSERT INTO public.written VALUES (1, 'next')")
            require(place.engine_pid() != before, "another engine runs")
            keeper.run(f"SELECT pg_advisory_unlock({_GATE})")
            writer.finish(HANG_S)
        finally:
            place.watch.run("ALTER SERVER pystachio OPTIONS (DROP log_level)")
    require(place.watch.run("SELECT count(*) FROM public.written").scalar() == "100002", "all rows are there")


def written_while_planned(place):
    """A query whose files change after the planner has read their footers is planned again: here by a key that is greater than those before."""
    written = Written(place)
    place.watch.run("INSERT INTO public.written SELECT i, 'row' FROM generate_series(1, 8) i")
    # The planner calls a function that is said to be immutable, after it has read the footers of both tables. There the query waits.
    place.watch.run(f"SELECT pystachio.write_parquet('SELECT 1 AS one', '{place.folder}/one.parquet', overwrite => true)")
    place.watch.run(f"CREATE FOREIGN TABLE public.one (one integer) SERVER pystachio OPTIONS (path '{place.folder}/one.parquet')")
    place.watch.run(f"""CREATE OR REPLACE FUNCTION public.gate() RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
        $$BEGIN PERFORM pg_advisory_lock({_GATE}); PERFORM pg_advisory_unlock({_GATE}); RETURN 0; END$$""")
    rows = "SELECT string_agg(k::text, ',' ORDER BY k) FROM public.written, public.one WHERE k >"
    with place.session() as keeper, place.session() as writer:
        for key, prepare, read in ((9, "SELECT 1", f"{rows} public.gate()"),
                                   (10, f"PREPARE by_value AS {rows} public.gate() + $1", "EXECUTE by_value(0)")):
            with place.session() as reader:
                reader.run(prepare)
                keeper.run(f"SELECT pg_advisory_lock({_GATE})")
                waits = f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {reader.backend_pid}"
                reader.start(read)
                wait_until(lambda: place.watch.run(waits).scalar() == "t", "the planner waits for the gate")
                writer.run(f"INSERT INTO public.written VALUES ({key}, 'row')")
                keeper.run(f"SELECT pg_advisory_unlock({_GATE})")
                expected = ",".join(str(k) for k in range(1, key + 1))
                require(reader.finish(HANG_S).scalar() == expected, "the query reads the new row")
    require(len(written.names("rows-")) == 3, "each INSERT has written a file")
    place.watch.run("DROP FUNCTION public.gate()")
    place.watch.run("DROP FOREIGN TABLE public.one")


def deletes_at_once(place):
    """Two transactions that delete partitions of one table wait for each other, and neither fails; so do readers and writers."""
    folder = pathlib.Path(place.folder) / "deleted"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o777)
    place.watch.run("DROP FOREIGN TABLE IF EXISTS public.deleted")
    place.watch.run(f"CREATE FOREIGN TABLE public.deleted (k integer, p integer) SERVER pystachio OPTIONS (path '{folder}', writable 'true', partition_by 'p')")
    place.watch.run("INSERT INTO public.deleted SELECT i, i % 4 FROM generate_series(1, 8) i")

    def waits(session):
        sql = f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {session.backend_pid}"
        wait_until(lambda: place.watch.run(sql).scalar() == "t", "the session waits for a lock")

    rows = "SELECT string_agg(k::text, ',' ORDER BY k) FROM public.deleted"
    with place.session() as one, place.session() as other, place.session() as reader, place.session() as writer:
        # Each holds the lock that PostgreSQL takes for a DELETE before either deletes.
        for session in (one, other):
            session.run("BEGIN")
            session.run("EXPLAIN DELETE FROM public.deleted WHERE p = 0")
        one.run("DELETE FROM public.deleted WHERE p = 1")
        other.start("DELETE FROM public.deleted WHERE p = 2")
        waits(other)
        reader.start(rows)
        waits(reader)
        writer.start("INSERT INTO public.deleted VALUES (9, 0)")
        waits(writer)
        one.run("COMMIT")
        other.finish(HANG_S)
        other.run("COMMIT")
        require(reader.finish(HANG_S).scalar() in ("2,3,4,6,7,8", "3,4,7,8", "3,4,7,8,9", "2,3,4,6,7,8,9"), "the reader sees no part of a partition")
        writer.finish(HANG_S)
        require(reader.run(rows).scalar() == "3,4,7,8,9", "both partitions are gone")
        # Sessions that have read or written hold a DELETE up until they end.
        for session, sql in ((reader, rows), (writer, "INSERT INTO public.deleted VALUES (10, 0)")):
            session.run("BEGIN")
            session.run(sql)
            one.start("DELETE FROM public.deleted WHERE p = 3")
            waits(one)
            session.run("ROLLBACK")
            one.finish(HANG_S)
        require(reader.run(rows).scalar() == "4,8,9", "the third one is gone")
        # A read by a cached plan, and one of several tables.
        reader.run("PREPARE kept AS SELECT count(*) FROM public.deleted a JOIN public.deleted b USING (p)")
        require(reader.run("EXECUTE kept").scalar() == "9", "a join")
        one.run("BEGIN")
        one.run("DELETE FROM public.deleted WHERE p = 0")
        reader.start("EXECUTE kept")
        waits(reader)
        one.run("ROLLBACK")
        require(reader.finish(HANG_S).scalar() == "9", "the join again")
    place.watch.run("DROP FOREIGN TABLE public.deleted")


def deletes_after_reads(place):
    """Of two transactions that have read a table and then delete partitions of it, PostgreSQL ends one as a deadlock, and the other goes on."""
    folder = pathlib.Path(place.folder) / "deadlocked"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o777)
    place.watch.run("DROP FOREIGN TABLE IF EXISTS public.deadlocked")
    place.watch.run(f"CREATE FOREIGN TABLE public.deadlocked (k integer, p integer) SERVER pystachio OPTIONS (path '{folder}', writable 'true', partition_by 'p')")
    rows = "SELECT string_agg(k::text, ',' ORDER BY k) FROM public.deadlocked"
    # The one that looks for deadlocks is the one that is ended: the other never looks.
    with place.session("SET deadlock_timeout = '1h'") as patient, place.session("SET deadlock_timeout = '10ms'") as other:
        waits = f"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {patient.backend_pid}"
        for statement in ("DELETE FROM public.deadlocked WHERE p = 2", "DELETE FROM public.deadlocked", "TRUNCATE public.deadlocked"):
            place.watch.run("TRUNCATE public.deadlocked; INSERT INTO public.deadlocked SELECT i, i % 4 FROM generate_series(1, 8) i")
            for session in (patient, other):
                session.run("BEGIN")
                require(session.run(rows).scalar() == "1,2,3,4,5,6,7,8", "both have read the table")
            patient.start("DELETE FROM public.deadlocked WHERE p = 1")
            wait_until(lambda: place.watch.run(waits).scalar() == "t", "the first DELETE waits for the reader")
            error = expect_error(other, statement, ["40P01"], ["deadlock detected"])
            require("relation" in error.detail or "object" in error.detail, f"the error says who waits for whom: {error.detail}")
            other.run("ROLLBACK")
            patient.finish(HANG_S)
            patient.run("COMMIT")
            require(place.watch.run(rows).scalar() == "2,3,4,6,7,8", f"{statement}: the other transaction deletes its partition")
    place.watch.run("DROP FOREIGN TABLE public.deadlocked")


TESTS = [written_while_planned, deletes_at_once, deletes_after_reads, engine_killed, writer_cancelled, writer_terminated, engine_lost_before_commit, two_writers, a_name_taken_meanwhile, replaced_files_come_back, folder_gone, disk_full, retired_engine]
