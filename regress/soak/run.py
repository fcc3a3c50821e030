#!/usr/bin/env python3
"""The soak test. usage: run.py CONNINFO CLUSTER_FOLDER [--seconds N] [--seed N] [--clients N] [--suite NAME]… [--server NAME]…

CONNINFO: a superuser's connection to a private cluster, without a database; the run makes `soak` in it, and kills processes of its
engines. scripts/soak.sh makes that cluster.

    the same work ─ measure ─ 35 %: every fault ─ 15 %: no engine is killed ─ the same work ─ measure ─ 50 %: as before ─ the same work ─ measure
                                                                                              (in three parts, if it is long)

Engines and the sessions that last are compared between the last two moments, when all of them have seen every kind of work.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness.libpq import QueryError, Session  # noqa: E402
from soak import changed, measure, servers  # noqa: E402
from soak.breaker import Breaker  # noqa: E402
from soak.clients import ANSWER_S_LONGEST, Client, Holder  # noqa: E402
from soak.journal import Journal  # noqa: E402
from soak.questions import WEIGHTS, Catalogue  # noqa: E402

# What the parts have of the time. Engines are compared after all sessions have worked at once with the same processes: the allocator
# keeps what it needed at its highest.
KILLS_SHARE, WARM_SHARE = 0.35, 0.15
# A long run is in parts, after each of which is measured: what has grown in every part may be on its way beyond what is allowed.
PARTS, PARTS_SECONDS_MIN = 3, 600
# How long engines and backends may take until nothing runs any more, and until memory and threads are given back.
QUIET_S_MAX, SETTLED_S_MAX = 30, 60
# An engine whose queries wait for each other for ever uses less of a processor than this, in hundredths of a second.
COMPUTES_S, COMPUTES_TICKS_MIN = 10, 5
# Engines start again by themselves, after several kills with a delay.
ENGINE_START_S_MAX = 60
EMULATED_VARIABLE = "PYSTACHIO_EMULATED"


class Soak:
    """A run: the servers, what is asked, and what has happened."""

    def __init__(self, options):
        self.options, self.seed, self.folder = options, options.seed, options.folder
        self.conninfo = f"{options.conninfo} dbname=soak"
        self.suites = options.suite or list(WEIGHTS)
        self.servers = [server for server in servers.SERVERS if not options.server or server.name in options.server]
        self.begin = time.monotonic()
        self.log = measure.Log(f"{options.folder}/server.log")
        self.journal = Journal(self.servers, any(f"{kind}=" in os.environ.get(EMULATED_VARIABLE, "") for kind in ("allocations", "copies", "reads")))
        self.leaked_bytes, self.leaked_descriptors = 0, 0
        self._prepare()
        self.clients = [Client(self, number, is_keeper=number < options.keepers) for number in range(options.clients)]
        self.holders = [Holder(self, 1000 + number) for number in range(options.holders)]

    def _prepare(self):
        with Session(f"{self.options.conninfo} dbname=postgres", ["SET client_min_messages = warning"]) as session:
            session.run("DROP DATABASE IF EXISTS soak WITH (FORCE)")
            session.run("CREATE DATABASE soak")
        with Session(self.conninfo, ["CREATE EXTENSION pystachio"]) as session:
            data = servers.create(session, self.folder)
        self.changed = changed.ChangedTables(self.conninfo, self.folder, data, servers.SERVERS)
        self.catalogue = Catalogue(self.conninfo, self.seed)
        missing = [suite for suite in self.suites if suite != "changed" and not self.catalogue.suites.get(suite)]
        self.suites = [suite for suite in self.suites if suite not in missing]
        self.watch = Session(self.conninfo)
        print(f"soak: seed {self.seed}, {sum(map(len, self.catalogue.suites.values()))} questions of {len(self.suites)} suites, "
              f"{sum(len(table.answers) for table in self.changed.tables)} states of {len(self.changed.tables)} changed tables; "
              f"prepared in {time.monotonic() - self.begin:.0f} s", flush=True)

    # -- looking -------------------------------------------------------------------------------------------

    def engines(self, session=None):
        """The rows of pystachio.engines, by server; of ranks other than 0 by server and rank."""
        result = (session or self.watch).run("SELECT * FROM pystachio.engines")
        rows = [dict(zip(result.names, row)) for row in result.rows]
        return {engine_name(row["server"], int(row["rank"] or 0)): row for row in rows}

    def engine_pid(self, session, server, rank=0):
        """The process of a rank of a server's engine, or None while it is down."""
        row = self.engines(session).get(engine_name(server, rank))
        return int(row["pid"]) if row and row["pid"] else None

    def look(self):
        """The running queries, to inspect one that does not end."""
        with contextlib.suppress(QueryError), Session(self.conninfo, ["SET statement_timeout = '5s'"]) as session:
            activity = session.run("SELECT pid, state, wait_event_type, wait_event, now() - query_start, left(query, 60) FROM pg_stat_activity "
                                   "WHERE state <> 'idle'").rows
            return f"{activity}\n{self.engines(session)}"
        return "the engines' state can't be had"

    def computes(self, server):
        """Whether the engine of a server uses a processor now. One that has ended does not."""
        with contextlib.suppress(OSError, QueryError, TypeError), Session(self.conninfo, ["SET statement_timeout = '5s'"]) as session:
            pid = self.engine_pid(session, server.name)
            before = measure.ticks(pid)
            time.sleep(COMPUTES_S)
            return measure.ticks(pid) - before > COMPUTES_TICKS_MIN
        return False

    # -- phases --------------------------------------------------------------------------------------------

    def work(self, seconds, kills):
        """All clients at once for a time."""
        until = time.monotonic() + seconds
        breaker = Breaker(self)
        actions = [*[(one.run, until) for one in [*self.clients, *self.holders]], (breaker.run, until, kills)]
        if "changed" in self.suites:
            actions.append((breaker.replace, until))
        threads = [threading.Thread(target=action, args=arguments, daemon=True) for action, *arguments in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 2 * ANSWER_S_LONGEST)
        if any(thread.is_alive() for thread in threads):
            self.journal.finding("no answer", f"{sum(thread.is_alive() for thread in threads)} sessions do not come to an end\n{self.look()}")

    def rest(self):
        """Waits until nothing runs, whatever was done; what doesn't end is a finding."""
        for table in self.changed.tables:
            table.put(0)
        for client in self.clients:
            if client.session:
                # Two statements: DISCARD ALL is refused in a transaction, which statements sent together are.
                client.session.run("ROLLBACK")
                client.session.run("DISCARD ALL")
                client.kept.clear()
        own = {self.watch.backend_pid, *(client.session.backend_pid for client in self.clients if client.session)}
        self._until(lambda: self._others(own) == [], QUIET_S_MAX, "backends of ended sessions", lambda: self._others(own))
        self._until(lambda: not self._busy(), QUIET_S_MAX, "queries of engines", self._busy)

    def _others(self, own):
        rows = self.watch.run("SELECT pid, state, left(query, 80) FROM pg_stat_activity WHERE backend_type = 'client backend'").rows
        return [row for row in rows if int(row[0]) not in own]

    def _busy(self):
        return {name: row for name, row in self.engines().items() if int(row["queries_running"] or 0) + int(row["queries_waiting"] or 0)}

    def _until(self, holds, seconds, what, describe):
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                self.journal.finding("work goes on", f"{what}, {seconds} s after the last session has ended: {describe()}")
                return
            time.sleep(0.2)

    def same_work(self):
        """The same questions of every server, on each of its engines, twice: caches and allocators have seen them."""
        with Session(self.conninfo, ["SET client_min_messages = warning"]) as session:
            for server in self.servers:
                self._until(lambda server=server: self._answers(session, server), ENGINE_START_S_MAX, f"the engine of {server.name} to start",
                            lambda server=server: self.engines()[server.name])
                for choice in ["gpu", "cpu"] if server.is_gpu else ["auto"]:
                    session.run(f"SET pystachio.engine_choice = {choice}; SET search_path = {server.name}_tpch, public")
                    for question in [*self.catalogue.suites["tpch"], *self.catalogue.suites["spill"]] * 2:
                        try:
                            session.receive(question.sql)
                        except QueryError as error:
                            if not (server.is_tiny and error.sqlstate == "53200") and not self.journal.device_fails:
                                self.journal.finding("unexpected error", f"{server.name}, the same work, {question.name}: {error}", question.sql)

    def _answers(self, session, server):
        try:
            has_rows = session.run(f"SELECT count(*) FROM {server.name}_tpch.nation").scalar() == "25"
        except QueryError:
            return False
        # Rank 0 answers alone until all are connected.
        engines = self.engines(session)
        return has_rows and all(engines.get(name, {}).get("state") == "running" for name in engine_names(server))

    def processes(self):
        """Engines and sessions that last, by name, as processes."""
        engines = self.engines()
        found = {f"engine {name}": measure.process(int(engines[name]["pid"])) for server in self.servers for name in engine_names(server)}
        for client in self.clients:
            if client.session:
                found[f"backend of keeper {client.number}"] = measure.process(client.session.backend_pid)
        found["postmaster"] = measure.process(int(pathlib.Path(self.folder, "data", "postmaster.pid").read_text(encoding="utf-8").split()[0]))
        return found

    def moment(self, name):
        """The same work, quiet, and what there is then."""
        self.rest()
        self.same_work()
        self.rest()
        spilled = measure.spill_files(self.folder)
        if spilled:
            self.journal.finding("spill files are left", f"{len(spilled)}, {sum(spilled.values())} bytes: {list(spilled)[:5]}")
        found = self.processes()
        engines = self.engines()
        print(f"{name}:", flush=True)
        for key, one in found.items():
            row = engines.get(key.removeprefix("engine "), {})
            of_engine = f"; device memory {row['device_memory_used']} of {row['device_memory']}, memory {row['memory']}" if row else ""
            print(f"    {key}: {measure.line(one)}{of_engine}", flush=True)
        return found, engines

    def compare(self, before, after, names, bytes_max):
        """What has grown; waits a while for memory and threads that are only kept for a time."""
        deadline = time.monotonic() + SETTLED_S_MAX
        for name in names:
            while True:
                if name not in before:
                    break
                found, leaked, descriptors = measure.growth(name, before[name], after[name], bytes_max)
                if not found or time.monotonic() > deadline:
                    break
                time.sleep(1)
                after[name] = measure.process(after[name].pid)
            if name not in before:
                continue
            self.leaked_bytes += leaked
            self.leaked_descriptors += descriptors
            for text in found:
                self.journal.finding("not as before", text)

    def run(self):
        """All of it; returns the exit status."""
        seconds = self.options.seconds
        for client in self.clients:
            if client.is_keeper:
                client.open()
        first, _ = self.moment("before")
        if seconds * KILLS_SHARE >= 1:
            self.work(seconds * KILLS_SHARE, True)
        self.work(seconds * WARM_SHARE, False)
        middle, engines_before = self.moment("after kills, and some time without")
        parts = PARTS if seconds >= PARTS_SECONDS_MIN else 1
        moments = [middle]
        for part in range(parts):
            self.work(seconds * (1 - KILLS_SHARE - WARM_SHARE) / parts, False)
            last, engines_after = self.moment(f"after part {part + 1} of {parts} without kills")
            moments.append(last)
        for server, engine in [(server, engine) for server in self.servers for engine in engine_names(server)]:
            name, was, now = f"engine {engine}", engines_before[engine], engines_after[engine]
            same = (middle[name].pid, middle[name].start, was["restarts"]) == (last[name].pid, last[name].start, now["restarts"])
            if not same and not self.journal.device_fails:
                self.journal.finding("an engine ended", f"{engine}, which no test killed: {was}\n    is now {now}")
            elif same:
                self.compare(middle, last, [name], measure.ENGINE_BYTES_MAX + server.kept_bytes)
        for name in last if parts > 1 else []:
            if len({(moment[name].pid, moment[name].start) for moment in moments if name in moment}) == 1:
                for text in measure.steady_growth(name, [moment[name] for moment in moments if name in moment]):
                    self.journal.finding("grows steadily", text)
        self.compare(middle, last, [name for name in last if name.startswith("backend")], measure.BACKEND_BYTES_MAX)
        self.compare(first, last, ["postmaster"], measure.BACKEND_BYTES_MAX)
        for text in self.log.unexpected():
            self.journal.finding("unexpected in the log", text)
        return self.report()

    def report(self):
        """The last lines."""
        counts, faults = dict(self.journal.counts), dict(self.journal.faults)
        own = {key: counts.pop(key, 0) for key in ("queries", "answers compared", "sessions lost", "wrong answers", "unexpected errors")}
        variable = os.environ.get(EMULATED_VARIABLE)
        repeat = f"{f'{EMULATED_VARIABLE}={variable} ' if variable else ''}make soak SECONDS={self.options.seconds} SEED={self.seed}"
        print(f"also: {_listed(counts)}; {self.catalogue.answered} answers of heap tables; the slowest cancel took "
              f"{self.journal.slowest_cancel_s:.2f} s")
        print(f"queries run: {own['queries']}\nanswers compared: {own['answers compared']}\nfaults injected: {_listed(faults)}")
        print(f"sessions lost: {own['sessions lost']}\nwrong answers: {own['wrong answers']}\nunexpected errors: {own['unexpected errors']}")
        print(f"leaked: {self.leaked_bytes} bytes, {self.leaked_descriptors} descriptors")
        print(f"findings: {len(self.journal.findings)}{f' ({_listed(_tally(self.journal.findings))})' if self.journal.findings else ''}")
        print(f"seed {self.seed}; to repeat: {repeat}", flush=True)
        return 1 if self.journal.findings or not own["answers compared"] else 0


def engine_name(server, rank):
    """What a rank of a server is called."""
    return f"{server} rank {rank}" if rank else server


def engine_names(server):
    """What all ranks of a Server are called."""
    return [engine_name(server.name, rank) for rank in range(server.ranks)]


def _listed(counts):
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _tally(names):
    return {name: names.count(name) for name in names}


def main():
    parser = argparse.ArgumentParser(description="Sessions at random, with faults, for a time.")
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--keepers", type=int, default=2, help="how many of the clients keep one session for all the time")
    parser.add_argument("--holders", type=int, default=2, help="sessions beside them that leave cursors open")
    parser.add_argument("--suite", action="append", choices=list(WEIGHTS))
    parser.add_argument("--server", action="append", choices=[server.name for server in servers.SERVERS])
    status = Soak(parser.parse_args()).run()
    # A session that never ended must not keep the driver.
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
