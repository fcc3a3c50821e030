"""What processes and folders hold in a quiet moment of a soak, and what of it has grown.

Invariants:
- Only the same process is compared with itself; an engine that was replaced without being killed by a test is a finding.
- Both moments come after the same work over every server, so that caches hold the same.

Deliberately absent: what the engines say of their queries (run.py waits until they run none).
"""

import os
import pathlib
import re
from dataclasses import dataclass, field

from harness.clients import process_start

# What an engine may have more than before, beside what its server's options let it keep between queries: the allocator has an arena for
# each thread, and gives back their pages only from the top.
ENGINE_BYTES_MAX = 64 << 20
# A backend gathers PostgreSQL's caches of the catalog, which it never drops: some thousand functions, types and operators, and the
# tables of every server; and it keeps a connection to each engine.
BACKEND_BYTES_MAX = 24 << 20
# Growth of one part of a long run that is more than what allocators still find to keep: with eight sessions an engine on the emulated device
# took 230 MB more than with one, most of it within a hundred queries, and then stayed as it was.
STEADY_BYTES_MIN = 32 << 20
# Descriptors and threads: a connection or two of the measurement itself, and threads that wait for work and end after some seconds.
DESCRIPTORS_MAX, THREADS_MAX = 8, 8
_EXPECTED_LOG = [re.compile(text) for text in (
    r" (ERROR|STATEMENT|DETAIL|HINT|CONTEXT|QUERY|LOCATION):  ",
    r" FATAL:  terminating connection due to administrator command",
    r" WARNING:  (there is no transaction in progress|PID \d+ is not a PostgreSQL backend process)",
    # What the run does to engines and their supervisor.
    r" LOG:  pystachio engine of server .* (was killed by signal (9|11|15)|ended|ends with its last query|stopped)",
    # What it does to ranks, and what follows until they are connected again.
    r": error: pystachio_worker::ranks::slot: rank \d+: process \d+ (was killed by signal (9|11|15)|ended, as it was asked to)",
    r": error: pystachio_worker::ranks::watch: the network of ranks has ended: rank \d+ ",
    r" WARNING:  .*: pystachio_gpu::execution::ranks::ranked_engine: query runs on one rank: ",
    r" LOG:  background worker \"pystachio supervisor\" .* exited with exit code",
    r" FATAL:  connection to client lost",
    r" LOG:  could not (send data to|receive data from) client",
    r" LOG:  unexpected EOF on client connection",
    r" LOG:  (received fast shutdown|database system|starting PostgreSQL|listening on|checkpoint)",
    r"^\t", r"^$",
)]
# What no line of the log may have, whatever it begins with.
_NEVER = re.compile(r"PANIC|panicked at|stack backtrace|was terminated by signal|TRAP:|terminating any other active|internal error|"
                    r"server process .* exited|XX000|cache lookup failed|leak|out of shared memory")
_NUMBERS = re.compile(r"\d+")


@dataclass
class Process:
    """A process: its own memory (`anonymous`), its proportional share of all, descriptors and threads."""

    pid: int
    start: int
    anonymous: int
    proportional: int
    descriptors: int
    threads: int
    deleted: list = field(default_factory=list)


def process(pid):
    """A process of this machine as it is now; raises OSError where it has ended."""
    status = dict(line.split(":", 1) for line in _read(f"/proc/{pid}/status").splitlines() if ":" in line)
    rollup = dict(line.split(":", 1) for line in _read(f"/proc/{pid}/smaps_rollup").splitlines()[1:])
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return Process(pid, process_start(pid), _kilobytes(status["RssAnon"]), _kilobytes(rollup["Pss"]), len(links),
                   int(status["Threads"]), [link for link in links if link.endswith("(deleted)") and link.startswith("/") and "/dev/" not in link])


def ticks(pid):
    """What a process has used of processors, in hundredths of a second."""
    fields = _read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def spill_files(folder):
    """Names and bytes of what engines have left in their folders for spill files."""
    found = {}
    for path in pathlib.Path(folder, "data", "base", "pgsql_tmp").glob("pgsql_tmp_pystachio_*/**/*"):
        try:
            if path.is_file():
                found[str(path)] = path.stat().st_size
        except OSError:
            continue
    return found


def growth(name, before, after, bytes_max):
    """Texts of what of a process has grown by more than it may, and the bytes and descriptors of that."""
    found, leaked, descriptors = [], 0, 0
    if after.anonymous - before.anonymous > bytes_max:
        leaked = after.anonymous - before.anonymous - bytes_max
        found.append(f"{name}: memory grew from {before.anonymous >> 20} to {after.anonymous >> 20} MB, {bytes_max >> 20} MB are allowed")
    if after.descriptors - before.descriptors > DESCRIPTORS_MAX:
        descriptors = after.descriptors - before.descriptors - DESCRIPTORS_MAX
        found.append(f"{name}: descriptors grew from {before.descriptors} to {after.descriptors}, {DESCRIPTORS_MAX} are allowed")
    if after.threads - before.threads > THREADS_MAX:
        found.append(f"{name}: threads grew from {before.threads} to {after.threads}, {THREADS_MAX} are allowed")
    if [path for path in after.deleted if path not in before.deleted]:
        found.append(f"{name}: deleted files are open: {after.deleted[:5]}")
    return found, leaked, descriptors


def steady_growth(name, moments):
    """Texts of what has grown in every part of a run by more than what allocators do."""
    grown = [after.anonymous - before.anonymous for before, after in zip(moments, moments[1:])]
    if min(grown) > STEADY_BYTES_MIN:
        return [f"{name}: memory grew in every part, by {[part >> 20 for part in grown]} MB"]
    return []


def line(process_of):
    """A process in a line."""
    return (f"{process_of.anonymous >> 20} MB of its own, {process_of.proportional >> 20} MB proportional, {process_of.descriptors} descriptors, "
            f"{process_of.threads} threads")


class Log:
    """The server's log from now on."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.offset = self.path.stat().st_size

    def unexpected(self):
        """Lines that don't belong there, each kind once, with how many there are."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            lines = file.read().decode(errors="replace").split("\n")
        kinds = {}
        for text in lines:
            if _NEVER.search(text) or not any(expected.search(text) for expected in _EXPECTED_LOG):
                kind = _NUMBERS.sub("#", text)
                first, count = kinds.get(kind, (text, 0))
                kinds[kind] = first, count + 1
        return [f"{count} times: {first}" for first, count in kinds.values()]


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _kilobytes(text):
    return int(text.split()[0]) << 10
