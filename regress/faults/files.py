"""Bad input: damaged files, files that change, schemas that do not fit, folders without rights, a full disk."""

import os
import pathlib
import random
import shutil
import struct
import subprocess

from faults.support import HANG_S, Failure, expect_error, require, wait_until
from harness.libpq import QueryError

_DAMAGED = ["XX001", "58P01", "58030", "HV000", "HV004", "HV00D", "0A000"]


class Folder:
    """A folder for files that tests damage, readable by the server."""

    def __init__(self, place):
        self.path = pathlib.Path(place.folder) / "damaged"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        self.path.chmod(0o755)
        self.data = place.data

    def write(self, name, content):
        """Writes a file and returns its path."""
        target = self.path / name
        target.parent.mkdir(exist_ok=True, parents=True)
        target.parent.chmod(0o755)
        target.write_bytes(content)
        target.chmod(0o644)
        return target

    def read(self, name):
        """The bytes of a table of regress/data."""
        return (self.data / f"{name}.parquet").read_bytes()


def _table(session, path, columns="id integer, v integer"):
    session.run("DROP FOREIGN TABLE IF EXISTS public.damaged")
    session.run(f"CREATE FOREIGN TABLE public.damaged ({columns}) SERVER pystachio OPTIONS (path '{path}')")


def _stays_alive(place, action):
    """Runs `action`; the engine's process must be the same afterwards, and answer."""
    with place.session("SET client_min_messages = warning") as session:
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "the engine works before")
        pid = place.engine_pid()
        action(session)
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "the next query works")
        require(place.engine_pid() == pid, "the engine's process is another one: it crashed")
        session.run("DROP FOREIGN TABLE IF EXISTS public.damaged")


def damaged_files(place):
    """Each kind of damage is an ERROR that names the file."""
    folder = Folder(place)
    good = folder.read("edge_int4")
    footer_bytes = struct.unpack("<I", good[-8:-4])[0]
    kinds = {
        "empty": b"",
        "short": b"PAR1",
        "text": b"id,v\n1,2\n" * 100,
        "truncated": good[: len(good) // 2],
        "no_end": good[:-4],
        "no_footer": good[: -8 - footer_bytes],
        "encrypted_footer": b"PARE" + good[4:-4] + b"PARE",
        "footer_too_long": good[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1",
        "footer_negative": good[:-8] + struct.pack("<I", 2**32 - 1) + b"PAR1",
        "footer_zero": good[:-8] + struct.pack("<I", 0) + b"PAR1",
        "footer_noise": good[: -8 - footer_bytes] + bytes([0xA5]) * footer_bytes + good[-8:],
        "page_noise": good[:4] + bytes([0xFF]) * 60 + good[64:],
        "page_zero": good[:4] + bytes(200) + good[204:],
    }

    def action(session):
        for name, content in kinds.items():
            path = folder.write(f"{name}.parquet", content)
            try:
                _table(session, path)
            except QueryError:
                continue
            expect_error(session, "SELECT * FROM public.damaged ORDER BY id", _DAMAGED, [f"{name}.parquet"])
            # The damaged pages are those of the first column.
            expect_error(session, "SELECT sum(id) FROM public.damaged", _DAMAGED, [f"{name}.parquet"])

    _stays_alive(place, action)


def random_damage(place):
    """Flipped bytes give an ERROR or rows, never a crash or a hang."""
    folder = Folder(place)
    choose = random.Random(20260101)

    def action(session):
        errors = 0
        for number in range(120):
            name = choose.choice(["edge_int4", "edge_text", "edge_numeric_15_2", "t1", "edge_text_array", "form_int_delta"])
            content = bytearray(folder.read(name))
            for _ in range(choose.randint(1, 12)):
                content[choose.randrange(len(content))] = choose.randrange(256)
            path = folder.write(f"random{number}.parquet", bytes(content))
            columns = {"edge_int4": "id integer, v integer", "edge_text": "id integer, v text", "t1": "id integer, a integer, c text, n numeric(15,2)",
                       "edge_numeric_15_2": "id integer, v numeric(15,2)", "edge_text_array": "id integer, v text[]",
                       "form_int_delta": "id integer, v bigint"}[name]
            try:
                _table(session, path, columns)
                session.run("SELECT * FROM public.damaged")
            except QueryError as error:
                errors += 1
                if error.sqlstate in ("57014", "XX000") or error.sqlstate.startswith("08") or "panic" in error.message:
                    raise Failure(f"random{number}.parquet ({name}): {error}") from error
        require(errors > 20, f"only {errors} of 120 damaged files gave an error: is anything damaged?")

    _stays_alive(place, action)


def wrong_schema(place):
    """Errors name file, column and both types."""
    folder = Folder(place)
    folder.write("mixed/one.parquet", folder.read("edge_int4"))
    folder.write("mixed/two.parquet", folder.read("edge_text"))
    folder.write("one.parquet", folder.read("edge_int4"))
    folder.write("text.parquet", folder.read("edge_text"))

    def fails(session, path, columns, words, states=("HV004", "HV00L", "HV005", "42703", "42804", "HV000", "23502", "22001", "HV009")):
        try:
            _table(session, path, columns)
        except QueryError as error:
            require(all(word.lower() in f"{error.message} {error.detail}".lower() for word in words), f"{error}")
            return
        expect_error(session, "SELECT * FROM public.damaged ORDER BY 1", list(states), words)

    def action(session):
        fails(session, folder.path / "mixed", "id integer, v integer", ["two.parquet", "v"])
        fails(session, folder.path / "one.parquet", "id integer, missing integer", ["one.parquet", "missing"])
        fails(session, folder.path / "one.parquet", "id integer, v text", ["one.parquet", "v", "text"])
        fails(session, folder.path / "one.parquet", "id integer, v date", ["one.parquet", "v", "date"])
        fails(session, folder.path / "text.parquet", "id integer, v integer", ["text.parquet", "v", "integer"])
        fails(session, folder.path / "text.parquet", "id integer, v varchar(3)", ["v", "3"])
        fails(session, folder.path / "text.parquet", "id integer, v char(3)", ["v", "3"])
        fails(session, folder.path / "one.parquet", "id integer, v integer NOT NULL", ["v"])

    _stays_alive(place, action)


def missing_files(place):
    """No file, no match, an empty folder, a folder without rights."""
    folder = Folder(place)
    (folder.path / "empty").mkdir()
    (folder.path / "empty").chmod(0o755)
    locked = folder.write("locked/one.parquet", folder.read("edge_int4")).parent
    missing = ["58P01", "42501", "HV000", "HV00R", "58030"]

    def action(session):
        for path, word in ((folder.path / "absent.parquet", "absent.parquet"), (folder.path / "absent*.parquet", "absent"),
                           (folder.path / "empty", "empty"), (folder.path / "nowhere" / "x.parquet", "nowhere")):
            try:
                _table(session, path)
            except QueryError as error:
                require(word in error.message, f"{error}")
                continue
            expect_error(session, "SELECT * FROM public.damaged", missing, [word])
        _table(session, locked)
        require(len(session.run("SELECT * FROM public.damaged").rows) == 20, "a folder with rights is read")
        if os.getuid() == 0:
            locked.chmod(0)
            expect_error(session, "SELECT * FROM public.damaged", missing, ["locked"])
            locked.chmod(0o755)
            (locked / "one.parquet").chmod(0)
            expect_error(session, "SELECT * FROM public.damaged", missing, ["one.parquet"])
            (locked / "one.parquet").chmod(0o644)
            require(len(session.run("SELECT * FROM public.damaged").rows) == 20, "rights given back are seen")

    _stays_alive(place, action)


def changed_files(place):
    """A file changed between two queries is seen by the second, whatever is cached; a deleted one is an error."""
    folder = Folder(place)
    path = folder.write("changing.parquet", folder.read("edge_int4"))

    def action(session):
        _table(session, path)
        query = "SELECT count(*), count(v), max(v) FROM public.damaged"
        first = session.run(query).rows
        require(session.run(query).rows == first == [("20", "19", "2147483647")], f"before: {first}")
        session.run("PREPARE kept AS " + query)
        require(session.run("EXECUTE kept").rows == first, "prepared")
        replacement = folder.write("replacement.parquet", folder.read("form_page_v2"))
        os.replace(replacement, path)
        for statement in (query, "EXECUTE kept"):
            rows = session.run(statement).rows
            require(rows == [("5", "3", "3")], f"after a rename over it: {rows}")
        path.write_bytes(folder.read("edge_int4"))
        for statement in (query, "EXECUTE kept"):
            rows = session.run(statement).rows
            require(rows == first, f"after writing it in place: {rows}")
        path.unlink()
        expect_error(session, query, ["58P01", "HV000"], ["changing.parquet"])
        expect_error(session, "EXECUTE kept", ["58P01", "HV000"], ["changing.parquet"])
        folder.write("changing.parquet", folder.read("edge_int4"))
        require(session.run(query).rows == first, "a file that is back is seen")

    _stays_alive(place, action)


def file_added(place):
    """A new file of a folder is seen by the next query."""
    folder = Folder(place)
    folder.write("growing/a.parquet", folder.read("edge_int4"))

    def action(session):
        _table(session, folder.path / "growing")
        require(session.run("SELECT count(*) FROM public.damaged").scalar() == "20", "one file")
        folder.write("growing/b.parquet", folder.read("form_page_v2"))
        require(session.run("SELECT count(*) FROM public.damaged").scalar() == "25", "two files")
        require(session.run("SELECT count(v) FROM public.damaged WHERE v = 3").scalar() == "2", "rows of both")

    _stays_alive(place, action)


def replaced_while_read(place):
    """A file cut short while a cursor is open: the rest is an ERROR or the old rows, never a crash."""
    folder = Folder(place)
    content = (pathlib.Path(place.tpch) / "lineitem.parquet").read_bytes()
    path = folder.write("lineitem.parquet", content)

    def action(session):
        _table(session, path, "l_orderkey bigint, l_comment text")
        session.run("BEGIN")
        session.run("DECLARE reading CURSOR FOR SELECT * FROM public.damaged")
        require(len(session.run("FETCH 10 FROM reading").rows) == 10, "the first rows")
        os.truncate(path, len(content) // 3)
        try:
            session.run("FETCH ALL FROM reading")
        except QueryError as error:
            require(error.sqlstate in _DAMAGED, f"{error}")
        session.run("ROLLBACK")
        expect_error(session, "SELECT count(l_comment) FROM public.damaged", _DAMAGED, ["lineitem.parquet"])

    _stays_alive(place, action)


def _unfinished(folder):
    """Files without Parquet's last bytes. Files and folders may go away while this looks at them."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = pathlib.Path(place, name)
            try:
                if path.read_bytes()[-4:] != b"PAR1":
                    found.append(path)
            except FileNotFoundError:
                pass
    return found


def generate_faults(place):
    """Generation refuses what it must, can be cancelled, and leaves nothing half-written behind."""
    folder = Folder(place)
    target = folder.path / "made"
    folder.path.chmod(0o777)

    def action(session):
        expect_error(session, f"SELECT * FROM pystachio.tpch_generate('{target}', -1)", ["22023", "HV000"], ["scale"])
        expect_error(session, "SELECT * FROM pystachio.tpch_generate('relative/path', 0.01)", ["22023", "42602", "HV000"], ["absolute"])
        expect_error(session, "SELECT * FROM pystachio.tpch_generate('/proc/nowhere', 0.01)", ["58P01", "58030", "42501"], ["/proc/nowhere"])
        session.run("SET statement_timeout = '700ms'")
        expect_error(session, f"SELECT * FROM pystachio.tpch_generate('{target}', 3)", ["57014"])
        session.run(f"SET statement_timeout = '{HANG_S}s'")
        # Tables finished before the cancel may stay; a file must be whole.
        wait_until(lambda: not _unfinished(target), f"unfinished files in {target} go away")

    _stays_alive(place, action)


def optimize_faults(place):
    """Rewriting files refuses damaged ones, is cancelled, and leaves nothing half-written behind."""
    folder = Folder(place)
    target = folder.path / "optimized"
    folder.path.chmod(0o777)
    damaged = folder.path / "damaged.parquet"
    shutil.copyfile(f"{place.tpch}/orders.parquet", damaged)
    with open(damaged, "r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 100_000)

    def action(session):
        optimize = "SELECT * FROM pystachio.optimize_parquet"
        expect_error(session, f"{optimize}('{damaged}', '{target}')", ["XX001", "58030", "HV000"], ["damaged.parquet"])
        expect_error(session, f"{optimize}('{place.tpch}', '/proc/nowhere')", ["58P01", "58030", "42501"], ["/proc/nowhere"])
        session.start(f"{optimize}('{place.tpch}', '{target}')")
        wait_until(lambda: target.exists() or not session.is_busy(), f"{target} is begun")
        session.cancel()
        try:
            session.finish(HANG_S)
            # It ended before the cancel came.
            shutil.rmtree(target)
        except QueryError as error:
            require(error.sqlstate == "57014", f"{error}")
        wait_until(lambda: not target.exists(), f"{target} goes away")
        session.run(f"{optimize}('{place.tpch}', '{target}')")
        require(len(list(target.iterdir())) == 8, "whole files, and nothing else")

    _stays_alive(place, action)


def full_disk(place):
    """A disk that fills up while generating and while rewriting files."""
    if os.getuid() != 0:
        print("    full_disk: skipped, as mounting needs root")
        return
    folder = Folder(place)
    small = folder.path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "tmpfs", str(small)], capture_output=True, text=True)
    if mounted.returncode:
        print(f"    full_disk: skipped, as mounting a small file system fails: {mounted.stderr.strip()}")
        return
    try:
        def action(session):
            expect_error(session, f"SELECT * FROM pystachio.tpch_generate('{small}/made', 0.1)", ["58030", "53100"], [str(small)])
            expect_error(session, f"SELECT * FROM pystachio.optimize_parquet('{place.tpch}', '{small}/made')", ["58030", "53100"], [str(small)])
            wait_until(lambda: not _unfinished(small), f"unfinished files in {small} go away")

        _stays_alive(place, action)
    finally:
        subprocess.run(["umount", str(small)], check=True)


TESTS = [damaged_files, random_damage, wrong_schema, missing_files, changed_files, file_added, replaced_while_read, generate_faults,
         optimize_faults, full_disk]
