"""The servers of a soak, one of each engine with room and one with hardly any, two whose ranks share each query, and the tables of each.

Schemas: NAME_edge, NAME_views, NAME_tpch and NAME_changed for each server; `heap`, `views_heap` and `tpch_heap` hold the same rows,
`state_N` what the files of changed tables hold in their state N (changed.py).

Deliberately absent: what is asked of them (questions.py).
"""

import pathlib
from dataclasses import dataclass, field

from differential import views
from harness import tables

SCALE = 0.01


@dataclass(frozen=True)
class Server:
    """`is_tiny`: queries may fail for want of memory. `files`: how its TPC-H is written, the arguments of tpch_generate."""

    name: str
    options: dict = field(hash=False)
    is_tiny: bool
    files: str

    @property
    def is_gpu(self):
        return self.options["device"] != "cpu"

    @property
    def ranks(self):
        """Processes that share its queries."""
        return int(self.options.get("ranks", 1))

    @property
    def kept_bytes(self):
        """What a process of the engine may keep between queries, and may not have had before: cached columns and chunks, page-locked memory for
        spilling, a quarter of `memory`, which is never given back, and the emulated device's memory."""
        kept = _bytes(self.options["cache"])
        if self.is_gpu:
            kept += _bytes(self.options["memory"]) // 4 + _bytes(self.options["pinned_cache"]) + _bytes(self.options["device_memory"])
        return kept


# Caches are small, so that they are soon full and memory can be compared; four threads, so that there is something to interleave.
SERVERS = [
    Server("pystachio", {"device": "cpu", "memory": "512MB", "cache": "64MB", "threads": "4"}, False, ""),
    Server("cpu_tiny", {"device": "cpu", "memory": "64MB", "cache": "8MB", "threads": "4"}, True, ", row_group_rows => 4096"),
    Server("gpu_roomy", {"device": "emulated", "memory": "256MB", "device_memory": "64MB", "cache": "32MB", "pinned_cache": "8MB",
                         "threads": "4"}, False, ", layout => 'gpu'"),
    Server("gpu_tiny", {"device": "emulated", "memory": "256MB", "device_memory": "4MB", "cache": "8MB", "pinned_cache": "8MB",
                        "threads": "4"}, True, ", row_group_rows => 1024"),
    *[Server(f"gpu_ranks_{ranks}", {"device": "emulated", "memory": "512MB", "device_memory": "128MB", "cache": "32MB", "pinned_cache": "8MB",
                                    "threads": "4", "ranks": str(ranks), "rank_policy": "all"}, False, ", row_group_rows => 2048")
      for ranks in (2, 4)],
]


def create(session, folder):
    """Makes the servers, their schemas, and the heap tables with the same rows, over files in `folder`."""
    for server in SERVERS:
        if server.name == "pystachio":
            session.run(f"ALTER SERVER pystachio OPTIONS ({_options(server, 'ADD ')})")
        else:
            session.run(f"CREATE SERVER {server.name} FOREIGN DATA WRAPPER pystachio OPTIONS ({_options(server)})")
    data = tables.copy_data(f"{folder}/soak-edges")
    tables.edge_heap(session, data)
    for server in SERVERS:
        files = f"{folder}/soak-tpch-{server.name}"
        session.run(f"SELECT * FROM pystachio.tpch_generate('{files}', {SCALE}, overwrite => true{server.files})")
        tables.tpch_foreign(session, files, f"{server.name}_tpch", server.name)
        tables.edge_foreign(session, data, f"{server.name}_edge", server.name)
        views.create(session, f"{server.name}_views", f"{server.name}_tpch")
    tables.heap_copy(session, f"{SERVERS[0].name}_tpch", "tpch_heap")
    views.create(session, "views_heap", "tpch_heap")
    session.run("ANALYZE")
    return pathlib.Path(data)


def _bytes(text):
    return int(text.removesuffix("MB")) << 20


def _options(server, action=""):
    return ", ".join(f"{action}{name} '{value}'" for name, value in server.options.items())
