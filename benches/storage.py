"""Raw reading of files: what the disk gives, and what the page cache holds.

Invariants: `direct_bandwidth` leaves nothing in the page cache. `drop` drops clean pages only; files that were just
written are synchronised first.
"""

import mmap
import os
import pathlib
import random
import threading
import time

BLOCK_BYTES = 8 << 20
DROP_CACHES = pathlib.Path("/proc/sys/vm/drop_caches")


def _read_all(paths, threads, flags, seconds_max, first=0):
    """Bytes a second that `threads` get from files with 8 MiB reads in turn, from block `first` on and around, or None if they can't
    be read so."""
    blocks = [(path, offset) for path in paths for offset in range(0, os.path.getsize(path) - BLOCK_BYTES + 1, BLOCK_BYTES)]
    blocks = blocks[first % max(len(blocks), 1):] + blocks[:first % max(len(blocks), 1)]
    deadline, totals, failures = time.monotonic() + seconds_max, [0] * threads, []

    def work(place):
        buffer = mmap.mmap(-1, BLOCK_BYTES)
        handles = {}
        try:
            for path, offset in blocks[place::threads]:
                if time.monotonic() > deadline:
                    break
                if path not in handles:
                    handles[path] = os.open(path, os.O_RDONLY | flags)
                totals[place] += os.preadv(handles[path], [buffer], offset)
        except OSError as error:
            failures.append(error)
        finally:
            for handle in handles.values():
                os.close(handle)

    begin = time.monotonic()
    workers = [threading.Thread(target=work, args=(place,)) for place in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    elapsed = time.monotonic() - begin
    return None if failures or not sum(totals) else sum(totals) / elapsed


def direct_bandwidth(paths, seconds_max=4.0):
    """The best of 1 and 4 threads reading the files past the page cache: (bytes a second, threads), or None where the
    file system has no O_DIRECT or the files are smaller than a block."""
    drop(paths, False)
    # Not the same blocks each time: what is below the disk may have a cache.
    found = [(_read_all(paths, threads, os.O_DIRECT, seconds_max, random.randrange(1 << 30)), threads) for threads in (1, 4)]
    found = [(bandwidth, threads) for bandwidth, threads in found if bandwidth]
    return max(found) if found else None


def fill_page_cache(paths, threads):
    """Reads the files whole, so that the page cache holds what memory has room for. Bytes a second, or None of files smaller than a block."""
    return _read_all(paths, threads, 0, float("inf"))


def drop(paths, whole_cache):
    """Drops the files' pages from the page cache; with `whole_cache` everything that the kernel can drop, as root."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    if whole_cache:
        DROP_CACHES.write_text("3\n", encoding="ascii")


def synchronise():
    """Writes what was written: only clean pages can be dropped."""
    os.sync()
