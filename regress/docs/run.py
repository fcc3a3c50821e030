#!/usr/bin/env python3
"""Runs the commands of README and docs/, page by page, and compares what they list with what the code has.

usage: run.py CONNINFO FOLDER [--page NAME]… [--counts FILE]

CONNINFO: a superuser's connection to a private cluster, without a database, on this host; FOLDER: one in which the server's user may write.
Every page has a database of its own. A block that fails, an output that is another one, a list that misses something and a link that leads
nowhere are failures; blocks that can't run here are marked on their page with the reason, and counted as skipped.
"""

import argparse
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from docs import links, lists  # noqa: E402
from docs.page import Page, PageError, mismatch  # noqa: E402
from docs.session import PageSession  # noqa: E402
from harness import tables  # noqa: E402
from harness.claims import Claims, write_counts  # noqa: E402
from harness.libpq import Session  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_SCALE = 0.01
_PAGES_AT_ONCE = 4


def page_paths():
    """README and the pages of docs/, in the order of the table of contents."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def read_pages(paths, claims):
    """The pages, by their path from the root; one that can't be read as a page is a failure."""
    pages = {}
    for path in paths:
        name = str(path.relative_to(ROOT))
        try:
            pages[name] = Page(name, path.read_text(encoding="utf-8"))
        except PageError as error:
            claims.record(name, str(error))
    return pages


class Runner:
    """Runs pages in databases of one cluster."""

    def __init__(self, conninfo, folder, claims):
        self.conninfo, self.folder, self.claims, self.skipped = conninfo, folder, claims, 0
        self._environment = {f"PG{word.split('=')[0].upper()}": word.split("=")[1] for word in conninfo.split()}

    def run(self, page):
        """Runs the blocks of a page, in order, in a new database; returns the seconds that it took."""
        begin = time.monotonic()
        database = "page_" + pathlib.Path(page.name).stem.lower()
        data = self.folder / database
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        shutil.chown(data, self.folder.stat().st_uid, self.folder.stat().st_gid)
        with Session(f"{self.conninfo} dbname=postgres", ["SET client_min_messages = warning"]) as session:
            session.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
            session.run(f"CREATE DATABASE {database}")
            self._prepare(page, database, data)
            with tempfile.TemporaryDirectory() as scratch:
                environment = {**self._environment, "PGDATABASE": database, "PGTZ": "UTC"}
                with PageSession(environment, data, scratch) as blocks:
                    self._run_blocks(page, blocks)
            session.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        return time.monotonic() - begin

    def _prepare(self, page, database, data):
        if page.preparation is None:
            return
        with Session(f"{self.conninfo} dbname={database}", ["SET client_min_messages = warning"]) as session:
            session.run("CREATE EXTENSION pystachio")
            if page.preparation == "tpch":
                session.run(f"SELECT * FROM pystachio.tpch_generate('{data}/tpch', {_SCALE})")
                tables.tpch_foreign(session, f"{data}/tpch")
                session.run(f"ALTER DATABASE {database} SET search_path = tpch, public")

    def _run_blocks(self, page, session):
        for block, output in page.steps():
            name = f"{page.name}:{block.line}"
            if "skip" in block.directives:
                self.skipped += 1
                continue
            printed, failed = session.run(block)
            expects_error = "error" in block.directives
            if failed != expects_error:
                self.claims.record(name, f"{'nothing fails' if expects_error else 'it fails'}:\n{printed}")
                continue
            if expects_error and output is None:
                self.claims.record(name, "the page does not show the error")
                continue
            self.claims.record(name, output and mismatch(output.text, printed, "numbers" in output.directives))


def main():
    parser = argparse.ArgumentParser(description="Runs what README and docs/ show.")
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--page", action="append", help="run the blocks of these and nothing else, as docs/tables.md")
    parser.add_argument("--counts")
    options = parser.parse_args()
    blocks, facts = Claims("blocks"), Claims("facts")
    pages = read_pages(page_paths(), facts)
    runner = Runner(options.conninfo, pathlib.Path(options.folder), blocks)
    wanted = [page for name, page in pages.items() if any(page.steps()) and (not options.page or name in options.page)]
    # Most of a page's time it waits, for databases and engines.
    with concurrent.futures.ThreadPoolExecutor(_PAGES_AT_ONCE) as pool:
        for page, seconds in zip(wanted, pool.map(runner.run, wanted)):
            blocks.times.append((seconds, page.name))
            print(f"    {page.name}: {seconds:.1f} s", flush=True)
    if not options.page:
        links.check(ROOT, pages, facts)
        lists.check(ROOT, pages, options.conninfo, options.folder, facts)
    write_counts(options.counts, blocks, facts)
    if options.counts:
        path = pathlib.Path(options.counts)
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "skipped": runner.skipped}), encoding="utf-8")
    print(f"docs: {runner.skipped} blocks skipped")
    return blocks.summary() | (0 if options.page else facts.summary())


if __name__ == "__main__":
    sys.exit(main())
