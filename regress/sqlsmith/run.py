#!/usr/bin/env python3
"""Runs queries of sqlsmith over foreign tables, and judges what comes of each.

usage: run.py CONNINFO CLUSTER_FOLDER --sqlsmith PROGRAM --seconds N --seed N [--findings FILE] [--counts FILE]

Each query runs as it was made: the server must live, the session too, the query must end within its time limit, and an error must not
be an internal one, unless the same query over heap tables gives it too. Then, where its values are decided, it runs without what the
order of rows decides, alone and within a query that groups it or joins it with itself, on the CPU engine and on the emulated device:
both must give heap's rows. A query whose rows differ between
heap tables in other orders does not decide them. An error instead of rows is counted and shown, but is no finding: which rows an
expression sees is the planner's to choose.
"""

import argparse
import collections
import pathlib
import random
import sys
import time

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from harness import tables  # noqa: E402
from harness.claims import Claims, write_counts  # noqa: E402
from harness.libpq import QueryError, Session  # noqa: E402
from sqlsmith import queries as smith  # noqa: E402

DATABASE, ROLE = "sqlsmith", "smith"
SCALE = 0.001
QUERIES_A_SEED = 100
LIMIT_MS = 3000
# A query that is cancelled ends by then, whatever else the machine does.
HANG_S = 120
ROWS_MAX = 20000
# The schemas that queries name, the same tables on the emulated device, and as heap tables in several orders.
FOREIGN = ("pq", "shapes", "tpch", "spec")
EMULATED = {name: f"{name}_emulated" for name in FOREIGN}
HEAPS = [{"pq": f"heap{suffix}", **{name: f"{name}_heap{suffix}" for name in FOREIGN[1:]}} for suffix in ("", "_mixed", "_turned")]
_ORDERS = {"_mixed": "md5(t::text)", "_turned": "md5(t::text) DESC"}
_KEYED = {"pq"}
# Over a schema {1} with the tables of regress/data: views with computed columns, groups, set operations and outer joins; functions that read
# tables; a tree of partitions, and a heap table with a child.
_SHAPES = """CREATE VIEW {0}.outer_joined AS SELECT x.id, x.a, coalesce(y.n, 0) AS n, y.c || '!' AS c, y.k IS NULL AS missing, x.ts, y.d
  FROM {1}.t1 x LEFT JOIN (SELECT a, n * 2 AS n, upper(c) AS c, k, d FROM {1}.t2 WHERE id % 3 > 0) y ON x.a = y.a;
CREATE VIEW {0}.grouped AS SELECT a AS id, a, count(*) AS k, sum(n) AS n, max(c) AS c, min(d) AS d, avg(m) AS m, count(DISTINCT i) AS i FROM {1}.t1 GROUP BY a;
CREATE VIEW {0}.combined AS SELECT id, a, c, n FROM {1}.t3 UNION SELECT id + 1, b::integer, s, m FROM {1}.t2 WHERE b < 100 EXCEPT SELECT id, a, c, n FROM {1}.t1;
CREATE VIEW {0}.newest AS SELECT id, a, n, d FROM {1}.t2 x WHERE d = (SELECT max(d) FROM {1}.t2 y WHERE y.a = x.a);
CREATE FUNCTION {0}.label_of(integer) RETURNS text LANGUAGE sql STABLE AS 'SELECT c FROM {1}.t2 WHERE id = $1';
CREATE FUNCTION {0}.count_of(integer, bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM {1}.t1 WHERE a = $1 AND b > $2';
CREATE TABLE {0}.parent (id integer, a integer, c text);
INSERT INTO {0}.parent SELECT id + 500, a, c FROM heap.t2 WHERE id < 20;
CREATE TABLE {0}.tree (id integer, a integer, n numeric(15,2), c text) PARTITION BY RANGE (id);
CREATE TABLE {0}.tree_own PARTITION OF {0}.tree DEFAULT;
INSERT INTO {0}.tree SELECT id + 200, a, n, c FROM heap.t1"""
_SHAPES_FOREIGN = """CREATE FOREIGN TABLE {0}.child (d date) INHERITS ({0}.parent) SERVER {3} OPTIONS (path '{2}/t3.parquet');
CREATE FOREIGN TABLE {0}.tree_part PARTITION OF {0}.tree FOR VALUES FROM (1) TO (100) SERVER {3} OPTIONS (path '{2}/t3.parquet')"""
_SHAPES_HEAP = """CREATE TABLE {0}.child (d date) INHERITS ({0}.parent); INSERT INTO {0}.child SELECT id, a, c, d FROM {1}.t3;
CREATE TABLE {0}.tree_part PARTITION OF {0}.tree FOR VALUES FROM (1) TO (100); INSERT INTO {0}.tree_part SELECT id, a, n, c FROM {1}.t3"""
_LOG_WORDS = ("PANIC:", "TRAP:", "terminated by signal", "panicked at")
LOST = "08006"


class Judge:
    """The sessions, what was counted, and what was found."""

    def __init__(self, conninfo, claims, findings):
        self.conninfo, self.claims, self.findings = conninfo, claims, findings
        self.counts, self.errors = collections.Counter(), collections.Counter()
        self.sessions = {}
        with Session(conninfo) as session:
            rows = session.run("SELECT DISTINCT proname FROM pg_proc WHERE provolatile = 'v'").rows
        self.volatile = {row[0] for row in rows}

    def _session(self, name):
        if name not in self.sessions:
            deadline = time.monotonic() + HANG_S
            while True:
                try:
                    self.sessions[name] = Session(self.conninfo.replace("user=postgres", f"user={ROLE}"), [
                        f"SET statement_timeout = {LIMIT_MS}", "SET default_transaction_read_only = on", "SET client_min_messages = error"])
                    break
                except QueryError:
                    # The server starts again after a crash.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
        return self.sessions[name]

    def run(self, name, query):
        """Rows in their order, or the error; a session that is lost is opened again by the next query."""
        session = self._session(name)
        try:
            session.start(query)
            result = session.finish(HANG_S)
            return (sorted(result.rows, key=lambda row: tuple((value is None, value or "") for value in row)) if result else []), None
        except QueryError as error:
            if error.sqlstate == LOST:
                self.sessions.pop(name).close()
            return None, error
        except TimeoutError:
            self.sessions.pop(name).close()
            return None, QueryError("hang", f"no end within {HANG_S} s, with a time limit of {LIMIT_MS} ms")

    def find(self, what, name, query, heap=None):
        """Notes a finding with its query."""
        text = f"{what}\n-- over heap tables: {heap or 'not run'}\n{query};\n"
        self.findings.write(f"-- {name}: {text}\n")
        self.findings.flush()
        self.claims.record(name, text)

    def judge(self, name, query):
        """Runs a query as it was made, and compares it where it can be."""
        rows, error = self.run("foreign", query)
        self.counts["as made: rows" if error is None else f"as made: {'timeout' if error.sqlstate == '57014' else 'error'}"] += 1
        if error is not None:
            self.errors[error.sqlstate] += 1
            if error.sqlstate in (LOST, "hang") or error.sqlstate.startswith("XX"):
                _, other = self.run("heap", smith.over(query, HEAPS[0]))
                if other is None or other.sqlstate != error.sqlstate:
                    return self.find(f"{error}", name, query, other or "rows")
        self.claims.record(name)
        if (error is None or error.sqlstate != "57014") and smith.is_comparable(query, self.volatile):
            query = smith.decided(query, _KEYED)
            self.compare(f"{name} compared", query)
            self.compare(f"{name} within", smith.around(query, random.Random(name)))
        return None

    def compare(self, name, query):
        """Compares both engines' rows with those of heap tables."""
        wanted, heap_error = self.run("heap", smith.over(query, HEAPS[0]))
        if heap_error is not None and heap_error.sqlstate in ("57014", LOST, "hang"):
            self.counts["compared: too slow over heap tables"] += 1
            return
        for engine, schemas in (("cpu", {}), ("emulated", EMULATED)):
            ours = smith.over(query, schemas) if schemas else query
            rows, error = self.run("foreign", ours)
            if error is not None and (error.sqlstate in (LOST, "hang") or error.sqlstate.startswith("XX")) and (
                    heap_error is None or heap_error.sqlstate != error.sqlstate):
                self.find(f"{engine}: {error}", name, ours, heap_error or f"{len(wanted)} rows")
            elif error is not None or heap_error is not None:
                same = error is not None and heap_error is not None
                self.counts[f"compared, {engine}: " + ("both are errors" if same else "timeout" if error and error.sqlstate == "57014" else "one is an error")] += 1
                if not same and not (error and error.sqlstate == "57014"):
                    self.findings.write(f"-- no finding, but one is an error: {name}, {engine}: {error or 'rows'}; over heap tables: {heap_error or 'rows'}\n{ours};\n\n")
            elif rows == wanted:
                self.counts[f"compared, {engine}: the same rows"] += 1
                self.claims.record(f"{name} {engine}")
            elif self._is_open(query, wanted):
                self.counts[f"compared, {engine}: not decided"] += 1
            else:
                only, missing = [row for row in rows if row not in wanted][:2], [row for row in wanted if row not in rows][:2]
                self.find(f"{engine}: {len(rows)} rows, only here {only}", name, ours, f"{len(wanted)} rows, only there {missing}")

    def _is_open(self, query, wanted):
        """Whether heap tables with rows in other orders give other rows."""
        for schemas in HEAPS[1:]:
            rows, error = self.run("heap", smith.over(query, schemas))
            if error is not None or rows != wanted:
                return True
        return False


def prepare(conninfo, folder):
    """The database with all schemas, and the role, which may read them."""
    with Session(f"{conninfo} dbname=postgres", ["SET client_min_messages = warning"]) as session:
        session.run(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        session.run(f"CREATE DATABASE {DATABASE}")
        session.run(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    with Session(f"{conninfo} dbname={DATABASE}", ["SET client_min_messages = warning"]) as session:
        session.run("CREATE EXTENSION pystachio")
        session.run("CREATE SERVER emulated FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '1GB')")
        data = tables.copy_data(f"{folder}/edges")
        tables.edge_schemas(session, data)
        tables.edge_foreign(session, data, "pq_emulated", "emulated")
        session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}/tpch', {SCALE}, overwrite => true)")
        tpch = f"{folder}/tpch"
        tables.tpch_foreign(session, tpch)
        tables.tpch_foreign(session, tpch, "tpch_emulated", "emulated")
        tables.spec_foreign(session, tpch)
        tables.spec_foreign(session, tpch, "spec_emulated", "emulated")
        for schema in ("tpch", "spec"):
            tables.heap_copy(session, schema, f"{schema}_heap", keys=False)
        names = [("heap", table["name"]) for table in tables.manifest()]
        names += [(schema, name) for schema in ("tpch_heap", "spec_heap") for name in tables.TPCH_KEYS]
        for suffix, order in _ORDERS.items():
            session.run(f"CREATE SCHEMA heap{suffix}; CREATE SCHEMA tpch_heap{suffix}; CREATE SCHEMA spec_heap{suffix}")
            for schema, name in names:
                session.run(f"CREATE TABLE {schema}{suffix}.{name} AS SELECT * FROM {schema}.{name} t ORDER BY {order}")
        for schema, base, server in [("shapes", "pq", "pystachio"), ("shapes_emulated", "pq_emulated", "emulated"),
                                     *((heap["shapes"], heap["pq"], None) for heap in HEAPS)]:
            session.run(f"CREATE SCHEMA {schema}")
            session.run(_SHAPES.format(schema, base))
            session.run((_SHAPES_FOREIGN if server else _SHAPES_HEAP).format(schema, base, data, server))
        session.run("ANALYZE")
        # sqlsmith takes the tables that its role may read: those of FOREIGN while it makes queries, and all of them afterwards.
        for schema in [*FOREIGN, *EMULATED.values(), *(name for heap in HEAPS for name in heap.values())]:
            session.run(f"GRANT USAGE ON SCHEMA {schema} TO {ROLE}")
        # The views of the extension: each query has other rows there.
        session.run("REVOKE ALL ON ALL TABLES IN SCHEMA pystachio FROM PUBLIC")


def grant(conninfo, schemas, verb="GRANT", preposition="TO"):
    """Lets the role read the tables of these schemas, or no longer."""
    with Session(f"{conninfo} dbname={DATABASE}") as session:
        for schema in schemas:
            session.run(f"{verb} SELECT ON ALL TABLES IN SCHEMA {schema} {preposition} {ROLE}")


def engine_processes(conninfo):
    """Process ids of the engines."""
    with Session(f"{conninfo} dbname={DATABASE}") as session:
        return session.run("SELECT server, pid FROM pystachio.engines ORDER BY server").rows


def main():
    parser = argparse.ArgumentParser(description="Runs queries of sqlsmith over foreign tables.")
    parser.add_argument("conninfo")
    parser.add_argument("folder")
    parser.add_argument("--sqlsmith", required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", default="findings.sql")
    parser.add_argument("--counts")
    options = parser.parse_args()
    prepare(options.conninfo, options.folder)
    conninfo = f"{options.conninfo} dbname={DATABASE}"
    others = [*EMULATED.values(), *(name for heap in HEAPS for name in heap.values())]
    claims = Claims("sqlsmith")
    log = pathlib.Path(options.folder, "server.log")
    log_size, deadline, seed = log.stat().st_size, time.monotonic() + options.seconds, options.seed
    with open(options.findings, "w", encoding="utf-8") as findings:
        judge = Judge(conninfo, claims, findings)
        with Session(conninfo) as session:
            for server in ("pq", "pq_emulated"):
                session.run(f"SELECT count(*) FROM {server}.t1")
        engines = engine_processes(options.conninfo)
        while time.monotonic() < deadline:
            grant(options.conninfo, others, "REVOKE", "FROM")
            grant(options.conninfo, FOREIGN)
            made = smith.make(options.sqlsmith, conninfo.replace("user=postgres", f"user={ROLE}"), seed, QUERIES_A_SEED)
            grant(options.conninfo, others)
            for number, query in enumerate(made):
                judge.judge(f"seed {seed}, query {number}", query)
                if time.monotonic() >= deadline:
                    break
            seed += 1
    print(f"    seeds {options.seed} to {seed - 1}")
    for name, count in sorted(judge.counts.items()):
        print(f"    {name}: {count}")
    print(f"    errors by SQLSTATE: {dict(judge.errors.most_common())}")
    after = engine_processes(options.conninfo)
    claims.check("engines live on", after == engines, f"engines before {engines}, after {after}")
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(log_size)
        bad = [line for line in file if any(word in line for word in _LOG_WORDS)]
    claims.check("the server's log", not bad, "".join(bad[:10]))
    status = claims.summary()
    write_counts(options.counts, claims)
    return status


if __name__ == "__main__":
    sys.exit(main())
