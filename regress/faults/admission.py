"""Many queries on a CPU engine with little memory: they wait for one another instead of failing, and never for a client that does not read."""

import contextlib
import glob
import time

from faults.support import HANG_S, IS_WHOLE, Failure, expect_error, require, sampled, wait_until
from harness import tables
from harness.clients import Load, run_clients, sorted_rows
from harness.libpq import QueryError

_SERVER = "narrow"
# Two queries of TPC-H at this scale factor fill the memory, and one query runs at a time.
_SCALE, _MEMORY = 0.1, "64MB"
_COUNTS = {1: 3, 16: 10, 64: 10} if IS_WHOLE else {16: 4, 64: 4}
_CANCELLED_SHARE = 0.1
_LIMIT_S = 300
# It computes until it is cancelled.
_ENDLESS = "SELECT count(*) FROM orders a, orders b WHERE a.o_orderkey < b.o_orderkey"
_CURSORS = 5
# Queries of this scale factor have too little in the same memory.
_CRAMPED, _ROOMY, _CRAMPED_SCALE = "cramped", "roomy", 0.5
_CRAMPED_QUERIES = [
    "SELECT count(*), count(DISTINCT l_comment) FROM lineitem",
    "SELECT l_returnflag, count(*), sum(l_quantity), count(DISTINCT l_comment), avg(DISTINCT l_tax) FROM lineitem GROUP BY 1",
    "SELECT l_orderkey, l_linenumber, l_comment FROM lineitem ORDER BY l_comment, l_orderkey, l_linenumber OFFSET 2000000 LIMIT 10",
    "SELECT count(*), max(a.l_comment), min(b.l_comment) FROM lineitem a JOIN lineitem b USING (l_orderkey, l_linenumber)",
    "SELECT count(*), max(o_comment) FROM orders LEFT JOIN lineitem ON o_orderkey = l_orderkey AND l_comment < o_comment",
]
_LOOP = """DO $$
DECLARE outer_row record; inner_row record; inner_sum numeric; done integer := 0;
BEGIN
    FOR outer_row IN SELECT l_orderkey, l_comment FROM lineitem LOOP
        done := done + 1;
        IF done % 100000 = 1 THEN
            SELECT sum(l_tax) INTO inner_sum FROM lineitem WHERE l_orderkey <= outer_row.l_orderkey;
            FOR inner_row IN SELECT * FROM lineitem ORDER BY l_comment LIMIT 3 LOOP
                inner_sum := inner_sum + inner_row.l_tax;
            END LOOP;
        END IF;
    END LOOP;
    IF done <> (SELECT count(*) FROM lineitem) THEN RAISE 'the loop saw % rows', done; END IF;
END $$"""


def _session(place):
    return place.session("SET client_min_messages = warning", f"SET statement_timeout = '{_LIMIT_S}s'", f"SET search_path = {_SERVER}, public")


@contextlib.contextmanager
def _narrow(place):
    """The server and its tables, for as long as they are needed."""
    folder = f"{place.folder}/faults-{_SERVER}"
    with _session(place) as session:
        session.run(f"DROP SERVER IF EXISTS {_SERVER} CASCADE")
        session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', {_SCALE}, overwrite => true)")
        session.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '{_MEMORY}')")
        tables.tpch_foreign(session, folder, _SERVER, _SERVER)
        yield session
        session.run(f"DROP SERVER {_SERVER} CASCADE; DROP SCHEMA {_SERVER} CASCADE")


def _wait_event(place, session):
    """What a session waits for."""
    activity = place.watch.run(f"SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = {session.backend_pid}")
    return list(activity.rows[0]) if activity.rows else None


def many_clients_wait_for_memory(place):
    """Each of up to 64 clients gets every answer, though two queries at once would not fit."""
    with _narrow(place) as session:
        queries = {f"q{number:02}": session.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in range(1, 23)}
        answers = {name: sorted_rows(session.run(sql)) for name, sql in queries.items()}
        load = Load(lambda: _session(place), queries, answers, _CANCELLED_SHARE, seed=20260102)
        one = None
        for count, seconds in _COUNTS.items():
            outcome = run_clients(load, count, seconds)
            print(f"    {outcome.line(one)}", flush=True)
            one = one or outcome
            require(not outcome.errors, f"{count} clients: {outcome.errors[:5]}")
            place.wait_idle(_SERVER)


def a_query_that_waits_is_seen_and_cancelled(place):
    """It is counted as waiting, a cancel ends it at once, and the next one gets its answer when there is room."""
    with _narrow(place), _session(place) as endless, _session(place) as second, _session(place) as third:
        endless.start(_ENDLESS)
        place.wait_running(1, _SERVER)
        second.start("SELECT count(*) FROM lineitem WHERE l_tax > 0")
        wait_until(lambda: place.waiting(_SERVER) == 1, "a query waits")
        named = int(place.watch.run("SHOW server_version_num").scalar()) >= 170000
        for session, name in ((endless, "PystachioAnswer"), (second, "PystachioTurn")):
            expected = ["Extension", name if named else "Extension"]
            wait_until(lambda session=session, expected=expected: _wait_event(place, session) == expected, f"pg_stat_activity shows {expected}, not {_wait_event(place, session)}")
        third.start("SELECT count(*) FROM customer WHERE c_comment > ''")
        wait_until(lambda: place.waiting(_SERVER) == 2, "two queries wait")
        require(place.running(_SERVER) == 1, f"{place.running(_SERVER)} queries run")
        second.cancel()
        try:
            second.finish(HANG_S)
            require(False, "a query that waited gave rows before the one that ran")
        except QueryError as error:
            require(error.sqlstate == "57014", str(error))
        require(place.running(_SERVER) == 1, "the cancel did not wait for the query that runs")
        wait_until(lambda: place.waiting(_SERVER) == 1, "one query waits")
        endless.cancel()
        # Its own turn is told too.
        require(third.finish(HANG_S).scalar() == "15000", "the third query counts")
        with contextlib.suppress(QueryError):
            endless.finish(HANG_S)
        place.wait_idle(_SERVER)


def nobody_waits_for_who_does_not_read(place):
    """Cursors that are open and loops over rows leave their places and memory to other queries, and get all their rows."""
    with _narrow(place) as session, _session(place) as other:
        count = int(session.run("SELECT count(*) FROM lineitem").scalar())
        session.run("BEGIN")
        for number in range(_CURSORS):
            session.run(f"DECLARE c{number} CURSOR FOR SELECT l_orderkey, l_comment, l_shipdate, l_tax, l_extendedprice FROM lineitem")
            require(len(session.run(f"FETCH 1 FROM c{number}").rows) == 1, "a cursor has a row")
        require(int(other.run("SELECT count(*) FROM lineitem WHERE l_comment > ''").scalar()) == count, "another session counts")
        for number in range(_CURSORS):
            rest = int(session.run(f"MOVE ALL IN c{number}").affected)
            require(rest == count - 1, f"cursor {number} has {rest} more rows, not {count - 1}")
        session.run("COMMIT")
        outcome = run_clients(Load(lambda: _session(place), {"loop": _LOOP}, {"loop": []}), 4, 1)
        require(not outcome.errors, f"loops: {outcome.errors[:3]}")
        place.wait_idle(_SERVER)


def queries_larger_than_memory_spill(place):
    """Joins, distinct values beside other aggregates, and a late page of an order give the rows that they give with more memory."""
    folder = f"{place.folder}/faults-{_CRAMPED}"
    setup = "SET client_min_messages = warning", f"SET statement_timeout = '{_LIMIT_S}s'"
    with place.session(*setup) as session:
        session.run(f"DROP SERVER IF EXISTS {_CRAMPED} CASCADE; DROP SERVER IF EXISTS {_ROOMY} CASCADE")
        session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', {_CRAMPED_SCALE}, overwrite => true)")
        for server, memory in ((_CRAMPED, _MEMORY), (_ROOMY, "2GB")):
            session.run(f"CREATE SERVER {server} FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '{memory}', threads '4')")
            tables.tpch_foreign(session, folder, server, server)
        queries = [session.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in (9, 10, 18)] + _CRAMPED_QUERIES
        with place.session(*setup, f"SET search_path = {_CRAMPED}, public") as cramped, place.session(*setup, f"SET search_path = {_ROOMY}, public") as roomy:
            for sql in sampled(queries, "larger than memory"):
                begin = time.monotonic()
                try:
                    rows = sorted_rows(cramped.run(sql))
                except QueryError as error:
                    raise Failure(f"{error.sqlstate} {error.message} {error.detail}: {sql}") from error
                require(rows == sorted_rows(roomy.run(sql)), f"other rows with little memory: {sql}")
                print(f"    {time.monotonic() - begin:.1f} s with both memories: {' '.join(sql.split())[:60]}", flush=True)
        _spill_files_have_places_and_limits(place, session)
        for server in (_CRAMPED, _ROOMY):
            session.run(f"DROP SERVER {server} CASCADE; DROP SCHEMA {server} CASCADE")


def _spill_files_have_places_and_limits(place, session):
    """They are where `temp_tablespaces` says, count as temporary files, and a limit that they exceed is named."""
    sort = _CRAMPED_QUERIES[2]
    setup = "SET client_min_messages = warning", f"SET statement_timeout = '{_LIMIT_S}s'", f"SET search_path = {_CRAMPED}, public"
    session.run("DROP TABLESPACE IF EXISTS faults_spill")
    session.run("SET allow_in_place_tablespaces = on")
    session.run("CREATE TABLESPACE faults_spill LOCATION ''")
    tablespace = session.run("SELECT oid FROM pg_tablespace WHERE spcname = 'faults_spill'").scalar()
    folder = f"{place.watch.run('SHOW data_directory').scalar()}/pg_tblspc/{tablespace}/PG_*/pgsql_tmp"
    before = _temp_bytes(place)
    with place.session(*setup, "SET temp_tablespaces = 'faults_spill'", "SET log_temp_files = 0") as spilling:
        spilling.run(f"BEGIN; DECLARE sorted CURSOR FOR {sort.split(' OFFSET ')[0]}")
        require(len(spilling.run("FETCH 1 FROM sorted").rows) == 1, "the query that spills has its first row")
        # As long as it has more rows.
        require(glob.glob(f"{folder}/pgsql_tmp_pystachio_{place.engine_pid(_CRAMPED)}_*"), "no folder in the tablespace")
        spilling.run("MOVE ALL IN sorted; COMMIT")
    wait_until(lambda: _temp_bytes(place) > before + (1 << 20), "spill files count as temporary files")
    _early_ends_count(place, setup, sort)
    _a_failed_query_counts(place, setup, sort)
    wait_until(lambda: not glob.glob(f"{folder}/*"), "the tablespace is empty")
    session.run("DROP TABLESPACE faults_spill")
    with place.session(*setup, "SET temp_file_limit = '100kB'") as limited:
        expect_error(limited, sort, ["53400"], ["temp_file_limit (100kB)"])
    session.run(f"ALTER SERVER {_CRAMPED} OPTIONS (ADD spill_limit '1MB')")
    with place.session(*setup) as limited:
        expect_error(limited, sort, ["53400"], ["spill_limit (1 MB)"])
    place.wait_idle(_CRAMPED)


def _early_ends_count(place, setup, sort):
    """Queries whose rows are not read to the end count what they have spilled: a cursor that is closed, a LIMIT, a cancel."""
    rows = sort.split(" OFFSET ")[0]
    ends = {
        "a closed cursor": [f"BEGIN; DECLARE sorted CURSOR FOR {rows}", "FETCH 1 FROM sorted", "CLOSE sorted; COMMIT"],
        "a rollback": [f"BEGIN; DECLARE sorted CURSOR FOR {rows}", "FETCH 1 FROM sorted", "ROLLBACK"],
        "an error in PostgreSQL": [f"DO $$ DECLARE row record; BEGIN FOR row IN {rows} LOOP PERFORM 1 / 0; END LOOP; "
                                   "EXCEPTION WHEN division_by_zero THEN NULL; END $$"],
    }
    for end, statements in ends.items():
        before = _temp_bytes(place)
        with place.session(*setup) as session:
            for statement in statements:
                session.run(statement)
        wait_until(lambda: _temp_bytes(place) > before + (1 << 20), f"spill files of a query that is ended by {end} count as temporary files")


def _a_failed_query_counts(place, setup, sort):
    """So does a query that fails."""
    before = _temp_bytes(place)
    with place.session(*setup, "SET temp_file_limit = '8MB'") as limited:
        expect_error(limited, sort, ["53400"], ["temp_file_limit"])
    wait_until(lambda: _temp_bytes(place) > before, "spill files of a query that failed count as temporary files")


def _temp_bytes(place):
    """What temporary files of the database have held."""
    return int(place.watch.run("SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()").scalar())


TESTS = [queries_larger_than_memory_spill, many_clients_wait_for_memory, a_query_that_waits_is_seen_and_cancelled, nobody_waits_for_who_does_not_read]
