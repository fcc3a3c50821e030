"""A device that does not return: the threads of an emulated device's engine are held still within its kernels."""

import contextlib
import ctypes
import os
import pathlib
import time

from faults.support import HANG_S, LONG_QUERY, require, wait_until
from harness import tables
from harness.libpq import QueryError

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long
_DETACH, _SEIZE, _INTERRUPT = 17, 0x4206, 0x4207
_WAIT_ALL = 0x40000000
# What goes on while the device's threads are held: the engine hears its clients and sees what hangs.
_LEFT_ALONE = ("pystachio-engin", "pystachio-socke", "pystachio-watch")
_TIMEOUT_S = 2
# How long threads are held. Where none of them was within a kernel they are held again, at another moment.
_HELD_S = 15
_TRIVIAL = "SELECT count(*) FROM hanging.nation"


def _ptrace(request, thread):
    if _LIBC.ptrace(request, thread, None, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def _held(pid):
    """Holds the threads of a process still that compute."""
    held = []
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if (task / "comm").read_text().strip().startswith(_LEFT_ALONE):
                    continue
                thread = int(task.name)
                _ptrace(_SEIZE, thread)
                held.append(thread)
                _ptrace(_INTERRUPT, thread)
                os.waitpid(thread, _WAIT_ALL)
        require(held, "no thread computes")
        yield
    finally:
        for thread in held:
            try:
                _ptrace(_DETACH, thread)
            except ProcessLookupError:
                # It has been killed, and its process is not over before this is heard.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(thread, _WAIT_ALL)


def _may_hold(pid):
    try:
        with _held(pid):
            return True
    except PermissionError:
        return False


def _error_while_held(victim, pid):
    """What a query fails with while its engine is held; None if nothing was within a kernel."""
    with _held(pid):
        try:
            victim.finish(_HELD_S)
        except QueryError as error:
            return error
        except TimeoutError:
            return None
    raise AssertionError("a query whose engine was held gave rows")


def a_device_that_does_not_return_is_given_up(place):
    """What runs on it fails after the server option device_timeout, its engine is restarted, and nothing else is."""
    with place.session("SET client_min_messages = warning", "SET pystachio.engine_choice = gpu") as victim, place.session() as other:
        victim.run("DROP SERVER IF EXISTS hanging CASCADE; DROP SCHEMA IF EXISTS hanging CASCADE")
        victim.run("CREATE SERVER hanging FOREIGN DATA WRAPPER pystachio "
                   f"OPTIONS (device 'emulated', memory '512MB', device_timeout '{_TIMEOUT_S}s')")
        victim.run(f"CREATE SCHEMA hanging; {tables.import_statement(place.tpch, 'hanging', 'hanging', 'LIMIT TO (nation, lineitem)')}")
        require(victim.run(_TRIVIAL).scalar() == "25", "the server works before")
        if not _may_hold(place.engine_pid("hanging")):
            print("    not run: this user may not trace processes")
            return
        pid, neighbour = place.engine_pid("hanging"), place.engine_pid()
        victim.start(LONG_QUERY.replace("work.", "hanging."))
        place.wait_running(server="hanging")
        error, deadline = None, time.monotonic() + HANG_S
        while not error and time.monotonic() < deadline:
            error = _error_while_held(victim, pid)
        require(error is not None, "a query is not given up whose engine does nothing")
        require("has not returned" in error.message and "device_timeout" in (error.hint or ""), f"{error.message} {error.hint}")
        wait_until(lambda: _answers(other), "a new engine answers")
        require(place.engine_pid("hanging") != pid, "the engine is a new one")
        require(place.engine_pid() == neighbour, "the other server's engine is the same")
        require(victim.run(_TRIVIAL).scalar() == "25", "the victim's session is usable")
        victim.run("DROP SERVER hanging CASCADE; DROP SCHEMA hanging CASCADE")


def _answers(session):
    try:
        return session.run(_TRIVIAL).scalar() == "25"
    except QueryError:
        return False


TESTS = [a_device_that_does_not_return_is_given_up]
