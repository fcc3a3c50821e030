"""Engines that die, sessions that stop: what the issue's section on the engine process promises."""

import glob
import json
import os
import signal
import threading

from faults.support import HANG_S, LONG_QUERY, WIDE_QUERY, expect_error, expect_failure, require, wait_until
from harness import tables
from harness.libpq import QueryError

_TRIVIAL = "SELECT count(*) FROM nation"


def _kill_engine(place, number):
    """Kills the engine during a query; other sessions and the next query are unharmed."""
    with place.session() as victim, place.session() as other:
        require(other.run(_TRIVIAL).scalar() == "25", "the engine works before")
        backend = other.backend_pid
        victim.start(LONG_QUERY)
        place.wait_running()
        pid = place.engine_pid()
        os.kill(pid, number)
        try:
            victim.finish(HANG_S)
            raise AssertionError("the query of the killed engine gave a result")
        except QueryError as error:
            require(error.sqlstate.startswith(("08", "57", "XX", "58", "HV")), f"SQLSTATE {error.sqlstate}: {error.message}")
            require("engine" in error.message, f"the error does not name the engine: {error.message}")
            require("pystachio" in f"{error.message} {error.detail} {error.hint}", f"the server is not named: {error.message}")
        require(other.run(_TRIVIAL).scalar() == "25", "another session's next query works")
        require(victim.run(_TRIVIAL).scalar() == "25", "the victim's session is usable")
        require(other.backend_pid == backend, "the other session kept its backend")
        wait_until(lambda: place.engine_pid() not in (None, pid), "a new engine is shown")


def engine_killed(place):
    _kill_engine(place, signal.SIGKILL)


def engine_segfault(place):
    _kill_engine(place, signal.SIGSEGV)


def engine_killed_again_and_again(place):
    """Back-off never keeps a query waiting for long, and the count of restarts rises."""
    before = int(place.engine()["restarts"])
    with place.session() as session:
        for _ in range(3):
            os.kill(place.engine_pid(), signal.SIGKILL)
            wait_until(lambda: _answers(session), "the engine answers again", 0.05)
    require(int(place.engine()["restarts"]) >= before + 3, f"restarts: {place.engine()}")


def _answers(session):
    try:
        return session.run(_TRIVIAL).scalar() == "25"
    except QueryError:
        return False


def statement_timeout(place):
    with place.session() as session:
        require(session.run(_TRIVIAL).scalar() == "25", "the engine works before")
        session.run("SET statement_timeout = '300ms'")
        expect_error(session, LONG_QUERY, ["57014"])
        with place.little_work():
            session.run(f"SET statement_timeout = '{HANG_S}s'")
        require(session.run(_TRIVIAL).scalar() == "25", "the session is usable")


def cancel_request(place):
    for query in (LONG_QUERY, WIDE_QUERY):
        with place.session() as session:
            session.start(query)
            place.wait_running()
            with place.little_work():
                session.cancel()
                expect_failure(session, query, ["57014"])
            require(session.run(_TRIVIAL).scalar() == "25", "the session is usable")


def backend_terminated(place):
    session = place.session()
    session.start(LONG_QUERY)
    place.wait_running()
    place.watch.run(f"SELECT pg_terminate_backend({session.backend_pid})")
    place.wait_idle()
    try:
        session.finish(HANG_S)
    except QueryError:
        pass
    session.close()


def client_gone(place):
    """A client that dies while rows are sent, and one that dies while it waits."""
    for query in (f"COPY ({WIDE_QUERY}) TO STDOUT", WIDE_QUERY):
        session = place.session("SET client_connection_check_interval = '100ms'")
        session.start(query)
        place.wait_running()
        session.drop_socket()
        place.wait_idle()
        session.close()
    session = place.session("SET client_connection_check_interval = '100ms'")
    session.start(LONG_QUERY)
    place.wait_running()
    session.drop_socket()
    place.wait_idle()
    session.close()


def cursor_closed(place):
    """A LIMIT or a closed cursor stops production; two cursors are read in turns."""
    with place.session() as session:
        session.run("BEGIN")
        session.run(f"DECLARE one CURSOR FOR {WIDE_QUERY}")
        session.run("DECLARE two CURSOR FOR SELECT o_orderkey FROM orders ORDER BY 1")
        first = [len(session.run(f"FETCH 10 FROM {name}").rows) for name in ("one", "two", "one", "two")]
        require(first == [10, 10, 10, 10], f"rows fetched: {first}")
        session.run("CLOSE one")
        session.run("CLOSE two")
        place.wait_idle()
        session.run("COMMIT")
        require(len(session.run(WIDE_QUERY + " LIMIT 3").rows) == 3, "LIMIT 3")
        place.wait_idle()


def cursor_after_an_error(place):
    """An error within a savepoint stops the engine's work at once, and the cursor has no rows any more."""
    for query, sqlstate in ((LONG_QUERY, "57014"), ("SELECT o_orderkey / (o_orderkey - 7) FROM orders", "22012")):
        with place.session() as session:
            session.run("BEGIN")
            session.run(f"DECLARE failing CURSOR FOR {query}")
            session.run("DECLARE other CURSOR FOR SELECT n_nationkey FROM nation ORDER BY 1")
            require(session.run("FETCH 5 FROM other").rows[4][0] == "4", "another cursor works before")
            session.run("SAVEPOINT before")
            session.start("FETCH ALL FROM failing")
            if sqlstate == "57014":
                place.wait_running()
                session.cancel()
            try:
                session.finish(HANG_S)
                raise AssertionError("the failing cursor gave rows")
            except QueryError as error:
                require(error.sqlstate == sqlstate, f"{error}")
            place.wait_idle()
            session.run("ROLLBACK TO before")
            expect_error(session, "FETCH ALL FROM failing", ["55000", sqlstate])
            session.run("ROLLBACK TO before")
            require(session.run("FETCH 5 FROM other").rows[4][0] == "9", "another cursor works after")
            session.run("COMMIT")
        place.wait_idle()
        with place.session() as session:
            # The same in PL/pgSQL, whose EXCEPTION clause is a subtransaction.
            session.run(f"""CREATE FUNCTION pg_temp.first_state() RETURNS text LANGUAGE plpgsql AS $$
                DECLARE failing refcursor; found_row record; state text := 'none';
                BEGIN
                  OPEN failing FOR {query};
                  LOOP
                    BEGIN
                      FETCH failing INTO found_row;
                      EXIT WHEN NOT FOUND;
                    EXCEPTION WHEN division_by_zero OR query_canceled OR object_not_in_prerequisite_state THEN
                      GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE;
                      EXIT;
                    END;
                  END LOOP;
                  BEGIN
                    FETCH failing INTO found_row;
                    state := state || ' and no error';
                  EXCEPTION WHEN OTHERS THEN
                    state := state || ' and an error';
                  END;
                  RETURN state;
                END $$""")
            session.start("SELECT pg_temp.first_state()")
            if sqlstate == "57014":
                # The engine begins with the first FETCH.
                place.wait_running()
                session.cancel()
            require(session.finish(HANG_S).scalar() == f"{sqlstate} and an error", "the second FETCH fails too")
        place.wait_idle()


def many_clients(place):
    """32 clients, different queries at once, all answers right."""
    queries = [place.watch.run(f"SELECT pystachio.tpch_query({number})").scalar() for number in range(1, 23)]
    expected = []
    with place.session("SET search_path = tpch_heap, public") as session:
        for query in queries:
            expected.append(session.run(query).rows)
    failures = []

    def client(number):
        try:
            with place.session() as session:
                for step in range(3):
                    place_of = (number * 7 + step * 5) % len(queries)
                    if session.run(queries[place_of]).rows != expected[place_of]:
                        failures.append(f"client {number}: query {place_of + 1} gave another answer")
        except QueryError as error:
            failures.append(f"client {number}: {error}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    require(not failures, "\n".join(failures[:5]))
    require(not any(thread.is_alive() for thread in threads), "a client hangs")


def memory_option(place):
    """A query beyond the server's memory is an error that names the option, and the engine lives on."""
    with place.session("SET client_min_messages = warning") as session:
        session.run("DROP SERVER IF EXISTS small CASCADE; DROP SCHEMA IF EXISTS small CASCADE")
        session.run("CREATE SERVER small FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '64MB', cache '0')")
        larger = f"{place.folder}/faults-larger"
        session.run(f"SELECT * FROM pystachio.tpch_generate('{larger}', 0.1, overwrite => true)")
        session.run(f"CREATE SCHEMA small; {tables.import_statement(larger, 'small', 'small')}")
        session.run("SET search_path = small")
        require(session.run(_TRIVIAL).scalar() == "25", "the small server works")
        # A join without keys holds all rows of one side, and has no other way.
        expect_error(session, "SELECT count(*) FROM lineitem a JOIN lineitem b ON a.l_comment || b.l_comment || a.l_shipinstruct < a.l_shipmode",
                     ["53200"], ["memory"])
        require(session.run(_TRIVIAL).scalar() == "25", "the small server works after it")
        session.run("DROP SERVER small CASCADE; DROP SCHEMA small CASCADE")


def answers_before_it_is_noted(place):
    """An engine that answers is shown as running, though its supervisor has not looked at it yet."""
    with place.session() as session:
        require(session.run(_TRIVIAL).scalar() == "25", "the engine works before")
        wait_until(lambda: _noted(session, place, "running"), "the supervisor notes that the engine runs")
        noted = _noted(session, place, "running")
        with open(noted, encoding="utf-8") as file:
            state = file.read()
        try:
            # The supervisor writes the file when its own view of the engine changes, and not before.
            with open(noted, "w", encoding="utf-8") as file:
                file.write(json.dumps({**json.loads(state), "phase": "starting"}))
            engine = place.engine()
        finally:
            with open(noted, "w", encoding="utf-8") as file:
                file.write(state)
    require(engine["state"] == "running" and engine["memory"] is not None, f"shown as {engine}")


def _noted(session, place, phase):
    """The file in which the supervisor of the running engine says how it is, where it says `phase`."""
    for path in glob.glob(session.run("SHOW data_directory").scalar() + "/pystachio/*/state.json"):
        try:
            with open(path, encoding="utf-8") as file:
                state = json.load(file)
        except FileNotFoundError:
            # That of a dropped server, whose supervisor removes its folder when it ends.
            continue
        if state["engine_pid"] == place.engine_pid() and state["phase"] == phase:
            return path
    return None


def _server(session, place, name):
    """A server with a table in a schema of its own."""
    session.run(f"DROP SERVER IF EXISTS {name} CASCADE; DROP SCHEMA IF EXISTS {name} CASCADE")
    session.run(f"CREATE SERVER {name} FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '1GB')")
    session.run(f"CREATE SCHEMA {name}; {tables.import_statement(place.tpch, name, name, 'LIMIT TO (nation, lineitem)')}")


def changes_interrupt_nothing(place):
    """RENAME, COMMENT and the like change no process. A changed option lets a running query and an open cursor end on the old one."""
    with place.session("SET client_min_messages = warning") as session, place.session() as reader, place.session() as runner:
        _server(session, place, "changing")
        expected = session.run("SELECT l_comment FROM changing.lineitem ORDER BY l_orderkey, l_linenumber").rows
        first = place.engine_pid("changing")
        # Small batches, so that the cursor's rows are not all in the socket.
        reader.run("SET pystachio.batch_rows = 64; BEGIN")
        reader.run("DECLARE reading CURSOR FOR SELECT l_comment FROM changing.lineitem ORDER BY l_orderkey, l_linenumber")
        rows = reader.run("FETCH 10 FROM reading").rows
        for statement in ("ALTER SERVER changing RENAME TO changed", "COMMENT ON SERVER changed IS 'text'", "GRANT USAGE ON FOREIGN SERVER changed TO PUBLIC",
                          "ALTER SERVER changed VERSION '2'", "ALTER SERVER changed OPTIONS (SET memory '1048576kB')", "ALTER SERVER changed RENAME TO changing"):
            session.run(statement)
            require(session.run("SELECT count(*) FROM changing.nation").scalar() == "25", "another query works")
            rows += reader.run("FETCH 10 FROM reading").rows
            server = "changed" if "RENAME TO changing" not in statement else "changing"
            require(place.engine_pid(server) == first, f"after {statement} the engine is the same")
        runner.start(LONG_QUERY.replace("work.", "changing."))
        place.wait_running(2, "changing")
        session.run("ALTER SERVER changing OPTIONS (SET memory '300MB')")
        require(session.run("SELECT count(*) FROM changing.nation").scalar() == "25", "a new query works")
        second = place.engine_pid("changing")
        require(second not in (None, first), "on another engine")
        states = place.watch.run("SELECT pid, state FROM pystachio.engines WHERE server = 'changing'").rows
        require(states == [(str(second), "running"), (str(first), "retiring")], f"both are shown: {states}")
        # Back to the options of the engine whose last queries run: another process with the same.
        session.run("ALTER SERVER changing OPTIONS (SET memory '1GB')")
        require(session.run("SELECT count(*) FROM changing.nation").scalar() == "25", "a query works with the former option")
        require(place.engine_pid("changing") not in (None, first, second), "on a third engine")
        wait_until(lambda: not _alive(second), "the second, which was idle, ends", 0.02)
        require(runner.is_busy() and _alive(first), "the first engine runs its last queries")
        runner.cancel()
        expect_failure(runner, "the query that ran before the options changed", ["57014"])
        rows += reader.run("FETCH ALL FROM reading").rows
        require(rows == expected, "the cursor has all its rows")
        reader.run("COMMIT")
        wait_until(lambda: not _alive(first), "the first engine ends with its last query", 0.02)
        require(runner.run("SELECT count(*) FROM changing.nation").scalar() == "25", "its session goes on with the third")
        session.run("DROP SERVER changing CASCADE; DROP SCHEMA changing")


def changes_under_load(place):
    """Options change again and again while sessions query without a pause: every query has its answer."""
    with place.session("SET client_min_messages = warning") as session:
        _server(session, place, "restless")
        stop, failures, counts = threading.Event(), [], []

        def client():
            count = 0
            try:
                with place.session() as own:
                    while not stop.is_set():
                        if own.run("SELECT count(*) FROM restless.nation").scalar() != "25":
                            failures.append("another answer")
                        count += 1
            except QueryError as error:
                failures.append(f"{error} {error.detail}")
            counts.append(count)

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(10):
            session.run(f"ALTER SERVER restless OPTIONS (SET memory '{300 + number}MB')")
            require(session.run("SELECT count(*) FROM restless.nation").scalar() == "25", "the altered server works")
        stop.set()
        for thread in threads:
            thread.join(HANG_S)
        require(not failures, "\n".join(failures[:5]))
        require(sum(counts) > 10, f"queries: {counts}")
        wait_until(lambda: len(place.watch.run("SELECT FROM pystachio.engines WHERE server = 'restless'").rows) == 1, "one engine is left")
        session.run("DROP SERVER restless CASCADE; DROP SCHEMA restless")


def alteration_rolled_back(place):
    """A transaction that alters or makes a server uses an engine of its own, which goes with a rollback."""
    with place.session("SET client_min_messages = warning") as session:
        _server(session, place, "undecided")
        query = "SELECT count(*) FROM undecided.nation"
        require(session.run(query).scalar() == "25", "the server works")
        first = place.engine_pid("undecided")
        session.run("BEGIN; ALTER SERVER undecided OPTIONS (SET memory '300MB')")
        require(session.run(query).scalar() == "25", "it works in the transaction")
        second = int(session.run("SELECT pid FROM pystachio.engines WHERE server = 'undecided'").scalar())
        require(second != first and place.engine_pid("undecided") == first, "others have the old engine")
        session.run("ROLLBACK")
        wait_until(lambda: not _alive(second), "the engine of the transaction ends", 0.02)
        require(session.run(query).scalar() == "25" and place.engine_pid("undecided") == first, "the old engine goes on")
        session.run("DROP SERVER undecided CASCADE; DROP SCHEMA undecided")


def dropped_server(place):
    """DROP SERVER ends its engine; so does a change of its options."""
    with place.session("SET client_min_messages = warning") as session:
        session.run("DROP SERVER IF EXISTS fleeting CASCADE; DROP SCHEMA IF EXISTS fleeting CASCADE")
        session.run("CREATE SERVER fleeting FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB')")
        session.run(f"CREATE SCHEMA fleeting; {tables.import_statement(place.tpch, 'fleeting', 'fleeting', 'LIMIT TO (nation)')}")
        require(session.run("SELECT count(*) FROM fleeting.nation").scalar() == "25", "the server works")
        first = place.engine_pid("fleeting")
        require(first is not None and _alive(first), "its engine is shown")
        session.run("ALTER SERVER fleeting OPTIONS (SET memory '300MB')")
        require(session.run("SELECT count(*) FROM fleeting.nation").scalar() == "25", "it works with the new option")
        second = place.engine_pid("fleeting")
        require(second != first, "a changed option starts a new engine")
        wait_until(lambda: not _alive(first), "the old engine ends", 0.05)
        session.run("DROP SERVER fleeting CASCADE; DROP SCHEMA fleeting")
        wait_until(lambda: not _alive(second), "the dropped server's engine ends", 0.05)


def dropped_database(place):
    """DROP DATABASE is not blocked, and its engines end."""
    with place.session("SET client_min_messages = warning") as session:
        session.run("DROP DATABASE IF EXISTS fleeting")
        session.run("CREATE DATABASE fleeting")
        other = type(session)(place.base + " dbname=fleeting", ["CREATE EXTENSION pystachio", "CREATE SCHEMA t"])
        other.run(tables.import_statement(place.tpch, "t", limit="LIMIT TO (nation)"))
        require(other.run("SELECT count(*) FROM t.nation").scalar() == "25", "the new database works")
        pid = int(other.run("SELECT pid FROM pystachio.engines").scalar())
        other.close()
        wait_until(lambda: _drops(session), "DROP DATABASE works", 0.1)
        wait_until(lambda: not _alive(pid), "the dropped database's engine ends", 0.05)


def _drops(session):
    try:
        session.run("DROP DATABASE fleeting")
        return True
    except QueryError:
        return False


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


TESTS = [engine_killed, engine_segfault, engine_killed_again_and_again, statement_timeout, cancel_request, backend_terminated,
         client_gone, cursor_closed, cursor_after_an_error, many_clients, memory_option, answers_before_it_is_noted,
         changes_interrupt_nothing, changes_under_load, alteration_rolled_back, dropped_server, dropped_database]
