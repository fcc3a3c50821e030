"""Other extensions' libraries, loaded before pystachio and after it: the SQL tests of the planner, and what each library does with
queries over foreign tables.

auto_explain runs every statement with ANALYZE, pg_stat_statements and pg_stat_kcache track planning, pgaudit lists the tables of
every query, and so on: regress/conf/beside.conf has their settings.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from beside.support import HEAP, QUERIES, ROOT, require_equal
from faults.support import HANG_S, IS_WHOLE, require, wait_until

# In the order in which they are loaded. pg_stat_kcache wants pg_stat_statements before it.
CONTRIB = ["auto_explain", "pg_stat_statements"]
PACKAGED = ["pg_stat_kcache", "pg_qualstats", "pg_wait_sampling", "pgaudit", "hypopg", "plpgsql_check", "set_user", "pg_hint_plan", "pg_cron"]
# Libraries that are loaded but make no extension.
_LIBRARIES_ONLY = {"auto_explain"}
# The SQL tests that run beside them: plans, prepared statements, cursors, functions. With --whole all that plan, read or write.
_TESTS = ["pushdown_join", "pushdown_prepared", "pushdown_small_side", "pushdown_sets", "planner_pitfalls", "planner_untouched", "explain_output",
          "explain_reasons", "write_statements", "tpch_plans"]
# Those of what engines record are left out: there auto_explain's ANALYZE shows.
_TESTS_WHOLE = r"^test: *((?:planner|pushdown|tpch|explain|write|scan|around).*)$"
_ENTRY = re.compile(r"LOG:  duration: [0-9.]+ ms  plan:\n((?:\t.*\n)+)")


def _install(place):
    """Copies the packages' libraries and scripts into the private server; returns the names of those that are there."""
    there = []
    major = place.watch.run("SELECT current_setting('server_version_num')::integer / 10000").scalar()
    folders = {f"usr/lib/postgresql/{major}/lib": place.server_folder("pkglibdir"),
               f"usr/share/postgresql/{major}/extension": place.server_folder("sharedir") / "extension"}
    for name in PACKAGED:
        root = place.packages.paths.get(name)
        if root is None:
            continue
        there.append(name)
        for source, target in folders.items():
            if root != "/" and os.path.isdir(f"{root}/{source}"):
                shutil.copytree(f"{root}/{source}", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("bitcode"), copy_function=_replace)
    return [name for name in CONTRIB if (folders[f"usr/lib/postgresql/{major}/lib"] / f"{name}.so").exists()] + there


def _replace(source, target):
    """Copies a file in the place of another one, which a process may have mapped and keeps."""
    pathlib.Path(target).unlink(missing_ok=True)
    return shutil.copy2(source, target)


def _load(place, libraries):
    """Restarts the server with these libraries."""
    place.watch.run(f"ALTER SYSTEM SET shared_preload_libraries = {', '.join(libraries)}")
    place.restart()
    found = place.watch.run("SHOW shared_preload_libraries").scalar()
    require(found == ", ".join(libraries), f"the server has loaded {found}")


def _sql_tests(place):
    """The planner's SQL tests: their answers and plans must be the expected ones, as without any other library."""
    tests = _TESTS
    if IS_WHOLE:
        tests = re.findall(_TESTS_WHOLE, (ROOT / "regress/schedule").read_text(encoding="utf-8"), re.MULTILINE)
    counts = place.root / "sql-tests.json"
    config = subprocess.run(["bash", "-c", f"source {ROOT}/scripts/environment.sh; find_pg_config"], check=True, capture_output=True, text=True)
    size = place.log_size()
    done = subprocess.run([ROOT / "regress/run.sh", config.stdout.strip(), place.folder, counts, *tests], capture_output=True, text=True, check=False)
    passed = json.loads(counts.read_text(encoding="utf-8"))["passed"]
    require(done.returncode == 0 and passed == len(tests), f"{passed} of {len(tests)} SQL tests passed:\n{done.stdout[-6000:]}")
    return place.log_since(size)


def _explained(log):
    """What auto_explain has logged, parsed."""
    return [json.loads(entry.replace("\t", "")) for entry in _ENTRY.findall(log)]


def _check_log(place, log, libraries):
    for word in ("PANIC:", "FATAL:", "terminated by signal", "TRAP:"):
        require(word not in log, "\n".join(line for line in log.splitlines() if word in line)[:2000])
    if "auto_explain" in libraries:
        plans = _explained(log)
        scans = [plan for plan in plans if '"Engine Plan"' in json.dumps(plan)]
        ran = [plan for plan in scans if " actual=" in json.dumps(plan)]
        require(len(plans) > 100 and len(scans) > 50 and len(ran) > 50, f"auto_explain has logged {len(plans)} plans, {len(scans)} with scans of pystachio, "
                f"{len(ran)} with the rows that these returned")


def _make_extensions(place, libraries):
    with place.session("SET client_min_messages = warning", "SET search_path = public") as session:
        for name in libraries:
            if name not in _LIBRARIES_ONLY and name != "pystachio":
                session.run(f"CREATE EXTENSION IF NOT EXISTS {name} CASCADE")


def _check_statements(place):
    """pg_stat_statements counts queries over foreign tables as it counts those over heap tables."""
    found = []
    for schema in ("tpch", "tpch_heap"):
        with place.session(f"SET search_path = {schema}, public") as session:
            session.run("SELECT pg_stat_statements_reset()")
            for query in QUERIES.values():
                session.run(query)
            session.prepare("by key", "SELECT count(*) FROM lineitem WHERE l_orderkey = $1")
            for number in range(7):
                session.execute("by key", (str(number),))
            session.run("BEGIN; DECLARE c CURSOR FOR SELECT l_orderkey FROM lineitem ORDER BY 1; FETCH 10 FROM c; FETCH 20 FROM c; CLOSE c; COMMIT")
            session.run("DO $$ BEGIN PERFORM count(*) FROM nation; END $$")
            found.append(session.run("SELECT query, calls, rows, plans, toplevel FROM pg_stat_statements WHERE query ~ 'lineitem|orders|nation' "
                                     "AND query !~ 'pg_stat_statements|(^| )(BEGIN|DO) ' ORDER BY query, toplevel").rows)
    require(len(found[0]) >= len(QUERIES) + 2, f"{len(found[0])} statements")
    require_equal(*found, "pg_stat_statements")
    _check_times(place)


def _check_times(place):
    """The time that a query has waited for the engine is in pg_stat_statements: the engine is stopped meanwhile."""
    query = "SELECT max(n_nationkey) FROM nation"
    # Of a statement that these have PostgreSQL analyze, the engine is asked before the statement starts whether the plan holds.
    with place.session("SET auto_explain.log_analyze = off", "SET pg_qualstats.enabled = off") as session:
        # The session knows the table, so the planner has nothing to ask. There is an engine, and a connection to it.
        session.run(query)
        engine = place.engine_pid()
        os.kill(engine, signal.SIGSTOP)
        try:
            session.start(query)
            state = f"SELECT state = 'active' AND wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = {session.backend_pid}"
            wait_until(lambda: place.watch.run(state).scalar() == "t", "the query waits for the engine")
            begin = time.monotonic()
            time.sleep(0.2)
            waited_ms = (time.monotonic() - begin) * 1000
        finally:
            os.kill(engine, signal.SIGCONT)
        session.finish(HANG_S)
        counted = session.run("SELECT round(sum(total_exec_time)) FROM pg_stat_statements WHERE query ~ 'max.n_nationkey'").scalar()
    require(float(counted) >= waited_ms - 1, f"the query has waited for {waited_ms:.0f} ms, and {counted} ms are counted")


def _check_audit(place):
    """pgaudit lists the tables of a query over foreign tables, through views too, as it lists those of one over heap tables."""
    found = []
    for schema in ("tpch", "tpch_heap"):
        with place.session(f"SET search_path = {schema}, public") as session:
            session.run("CREATE VIEW audited AS SELECT n_name, r_name FROM nation JOIN region ON r_regionkey = n_regionkey")
            size = place.log_size()
            for query in [*QUERIES.values(), "SELECT r_name, count(*) FROM audited GROUP BY 1 ORDER BY 1"]:
                session.run(query)
            session.run("DROP VIEW audited")
        entries = re.findall(r"AUDIT: SESSION,\d+,\d+,(READ|WRITE),(\w+),([\w ]*),([\w.]*),", place.log_since(size))
        found.append([(kind, command, name.replace(f"{schema}.", "")) for kind, command, _, name in entries if name.startswith(f"{schema}.")])
    require(len(found[0]) > len(QUERIES), f"{len(found[0])} tables")
    require_equal(sorted(found[0]), sorted(found[1]), "audited tables")


def _check_hypothetical(place):
    """hypopg's index of a heap table beside a foreign one changes its plan; none can be had on a foreign table."""
    with place.session("SET search_path = tpch, public") as session:
        # hypopg forgets its indexes before auto_explain names them, over heap tables too.
        session.run("SET auto_explain.log_min_duration = -1")
        session.run("CREATE TEMP TABLE wide AS SELECT l_orderkey AS key, l_comment FROM tpch_heap.lineitem")
        session.run("ANALYZE wide")
        session.run("SELECT hypopg_create_index('CREATE INDEX ON wide (key)')")
        query = "SELECT w.l_comment, o_comment FROM wide w JOIN orders ON o_orderkey = w.key WHERE w.key = 32"
        plan = "\n".join(row[0] for row in session.run(f"EXPLAIN {query}").rows)
        require("btree_wide_key" in plan and "Foreign Scan" in plan, plan)
        rows = [session.run(query.replace("JOIN orders", f"JOIN {schema}.orders") + " ORDER BY 1, 2").rows for schema in ("tpch", "tpch_heap")]
        require_equal(*rows, "beside a hypothetical index")
        session.run("SELECT hypopg_reset()")


def _check_functions(place):
    """plpgsql_check looks through a function over foreign tables."""
    with place.session("SET search_path = tpch, public", "SET client_min_messages = warning") as session:
        session.run("CREATE OR REPLACE FUNCTION public.checked(key bigint) RETURNS numeric LANGUAGE plpgsql AS $$ DECLARE total numeric; line record; BEGIN "
                    "SELECT sum(l_quantity) INTO total FROM tpch.lineitem WHERE l_orderkey = key; "
                    "FOR line IN SELECT * FROM tpch.orders WHERE o_orderkey = key LOOP total := total + line.o_totalprice; END LOOP; RETURN total; END $$")
        found = session.run("SELECT * FROM plpgsql_check_function('public.checked(bigint)')").rows
        require(not found, f"plpgsql_check says {found}")
        require(session.run("SELECT public.checked(1)").scalar() is not None, "the function runs")


def _check_quals(place):
    """pg_qualstats and pg_wait_sampling have looked at such queries."""
    require(int(place.watch.run("SELECT count(*) FROM pg_qualstats").scalar()) > 0, "pg_qualstats has nothing")


def _check_kcache(place):
    found = place.watch.run("SELECT count(*) FROM pg_stat_kcache_detail WHERE query ~ 'lineitem'").scalar()
    require(int(found) > 0, "pg_stat_kcache has nothing")


def _check_set_user(place):
    """A session that is another user's for a while reads foreign tables by that user's rights."""
    with place.session("SET client_min_messages = warning") as session:
        session.run("DROP ROLE IF EXISTS beside_reader; CREATE ROLE beside_reader; GRANT USAGE ON SCHEMA tpch TO beside_reader; "
                    "GRANT SELECT ON tpch.region TO beside_reader")
        session.run("SELECT set_user('beside_reader')")
        require(session.run("SELECT count(*), current_user FROM tpch.region").rows == [("5", "beside_reader")], "the table that it may read")
        session.run("SELECT reset_user()")
        session.run("DROP OWNED BY beside_reader; DROP ROLE beside_reader")


def _check_hints(place):
    """Hints of pg_hint_plan for the tables that stay in PostgreSQL, and for foreign ones, leave answers as they are."""
    hints = ["/*+ NestLoop(c o) */", "/*+ HashJoin(c o) Leading((o c)) */", "/*+ SeqScan(c) SeqScan(o) */", "/*+ Rows(c o #10) */", "/*+ Parallel(o 2 hard) */",
             "/*+ Set(pystachio.pushdown off) */"]
    found = []
    with place.session("SET search_path = tpch, public") as session:
        for hint in hints:
            for heap in ("tpch", "tpch_heap"):
                found.append(session.run(f"{hint} SELECT c.c_mktsegment, count(*), sum(o.o_totalprice) FROM {heap}.customer c JOIN orders o "
                                         "ON o.o_custkey = c.c_custkey GROUP BY 1 ORDER BY 1").rows)
    require(all(one == found[0] for one in found), "answers differ with hints")


def _schedule_job(place, way):
    """A job of pg_cron that runs every minute, by a background worker or by a connection of its own; its effect is awaited later."""
    place.watch.run("SET client_min_messages = warning; DROP TABLE IF EXISTS public.job_results; RESET client_min_messages; "
                    "CREATE TABLE public.job_results (way text, n bigint, total numeric)")
    place.watch.run(f"SELECT cron.schedule('{way}', '* * * * *', $$INSERT INTO public.job_results SELECT '{way}', count(*), sum(l_extendedprice) "
                    "FROM tpch.lineitem JOIN tpch.orders ON o_orderkey = l_orderkey WHERE o_orderdate < '1996-01-01'$$)")


def _await_job(place, way):
    wait_until(lambda: place.watch.run("SELECT count(*) > 0 FROM public.job_results").scalar() == "t", f"the job of pg_cron ({way}) runs", interval_s=0.2)
    place.watch.run(f"SELECT cron.unschedule('{way}')")
    rows = place.watch.run("SELECT DISTINCT n, total FROM public.job_results").rows
    with place.session(f"SET search_path = {HEAP}") as session:
        wanted = session.run("SELECT count(*), sum(l_extendedprice) FROM lineitem JOIN orders ON o_orderkey = l_orderkey WHERE o_orderdate < '1996-01-01'").rows
    require_equal(rows, wanted, f"the job of pg_cron ({way})")
    failed = place.watch.run("SELECT return_message FROM cron.job_run_details WHERE status = 'failed'").rows
    require(not failed, f"jobs failed: {failed}")


_CHECKS = {"pg_stat_statements": _check_statements, "pgaudit": _check_audit, "hypopg": _check_hypothetical, "plpgsql_check": _check_functions,
           "pg_qualstats": _check_quals, "pg_stat_kcache": _check_kcache, "set_user": _check_set_user, "pg_hint_plan": _check_hints}


def _beside(place, libraries, way):
    _load(place, libraries)
    _make_extensions(place, libraries)
    if way and "pg_cron" in libraries:
        _schedule_job(place, way)
    size = place.log_size()
    log = _sql_tests(place)
    for name in libraries:
        if name in _CHECKS:
            try:
                _CHECKS[name](place)
            except Exception as error:
                raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    if way and "pg_cron" in libraries:
        _await_job(place, way)
    place.wait_idle()
    _check_log(place, log + place.log_since(size), libraries)


def loaded_before(place):
    """Their hooks were there first, so that ours call theirs. Jobs of pg_cron run in background workers."""
    others = _install(place)
    if "pg_cron" in others:
        place.watch.run("ALTER SYSTEM SET cron.use_background_workers = on")
    _beside(place, [*others, "pystachio"], "worker")


def loaded_after(place):
    """Theirs call ours. Jobs of pg_cron run in sessions, with --whole: one begins with the next minute at the earliest."""
    others = _install(place)
    place.watch.run("ALTER SYSTEM RESET cron.use_background_workers")
    place.watch.run(f"ALTER SYSTEM SET cron.host = '{place.folder}'")
    _beside(place, ["pystachio", *others], "session" if IS_WHOLE else None)


TESTS = [loaded_before, loaded_after]
