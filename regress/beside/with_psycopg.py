"""psycopg 3: text and binary results, server-side cursors, pipelines, prepared statements, COPY, notices, cancels, two-phase commits."""

import asyncio
import contextlib
import datetime
import decimal
import threading

import psycopg

from beside.support import BY_KEY, FAILING, FOREIGN, HEAP, KEYS, LONG_QUERY, QUERIES, edge_tables, require_equal
from faults.support import require


def _connect(place, path, **more):
    return psycopg.connect(place.conninfo_with(path), **more)


def _raw(cursor):
    """The bytes of a result as they came, and its columns' types."""
    result = cursor.pgresult
    columns = [(result.fname(column), result.ftype(column), result.fmod(column), result.fformat(column)) for column in range(result.nfields)]
    return columns, [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]


def _compare(place, what, action, **more):
    """`action(connection)` must return the same over foreign tables as over heap tables; returns it."""
    found = []
    for path in (FOREIGN, HEAP):
        with _connect(place, path, **more) as connection:
            found.append(action(connection))
    require_equal(*found, what)
    return found[0]


def text_and_binary_results(place):
    """Every value of every type, byte by byte, in both formats."""
    queries = dict(QUERIES, **{name: f"SELECT * FROM {name} ORDER BY id" for name in edge_tables()})

    def all_of(connection):
        found = []
        for name, query in queries.items():
            for binary in (False, True):
                columns, rows = _raw(connection.execute(query, binary=binary))
                found.append((name, columns))
                found += [(name, row) for row in rows]
        return found

    found = _compare(place, "results", all_of)
    require(len(found) > 10000, f"{len(found)} rows are few")


def server_side_cursors(place):
    """Named cursors: plain ones, scrolled ones, and ones that outlive their transaction."""

    def read(connection):
        found = []
        for name, query in QUERIES.items():
            with connection.cursor(f"plain {name}") as cursor:
                cursor.itersize = 37
                cursor.execute(query)
                found += list(cursor)
            with connection.cursor(f"scroll {name}", scrollable=True, binary=True) as cursor:
                cursor.execute(query)
                found.append(cursor.fetchmany(10))
                cursor.scroll(-5)
                found.append(cursor.fetchmany(3))
                cursor.scroll(0, mode="absolute")
                found.append(cursor.fetchall())
        with connection.cursor("held", withhold=True, scrollable=True) as cursor:
            cursor.execute(QUERIES["pages"])
            found.append(cursor.fetchmany(100))
            connection.commit()
            found.append(cursor.fetchmany(100))
            connection.rollback()
            cursor.scroll(-150)
            found.append(cursor.fetchall())
        return found

    _compare(place, "server-side cursors", read)


def pipelines(place):
    """Many statements in one round trip, one of which fails: what came before it and after the next sync is right."""

    def run(connection):
        connection.autocommit = True
        found = []
        with connection.pipeline() as pipeline:
            cursors = [connection.execute(BY_KEY.format("%s"), (key,)) for key in KEYS]
            cursors += [connection.execute(query) for query in QUERIES.values()]
            pipeline.sync()
            found += [cursor.fetchall() for cursor in cursors]
        try:
            with connection.pipeline() as pipeline:
                first = connection.execute(QUERIES["groups"])
                connection.execute(FAILING)
                connection.execute(QUERIES["join"])
                pipeline.sync()
        except psycopg.Error as error:
            found.append((error.sqlstate, str(error).split("\n", maxsplit=1)[0]))
        found.append(first.fetchall())
        with connection.pipeline():
            found.append(connection.execute(QUERIES["join"]).fetchall())
        return found

    found = _compare(place, "pipelines", run)
    require(found[-3] == ("22012", "division by zero"), f"the failing statement: {found[-3]}")


def prepared_statements(place):
    """Statements that are prepared at once and run often enough for a generic plan, with parameters of several types, in both formats."""

    def run(connection):
        found = []
        for number in range(12):
            key = KEYS[number % len(KEYS)]
            day = datetime.date(1995, 1 + number, 3)
            for binary in (False, True):
                found.append(connection.execute(BY_KEY.format("%b" if binary else "%t"), (key,), prepare=True, binary=binary).fetchall())
            found.append(connection.execute("SELECT count(*), min(o_totalprice) FROM orders WHERE o_orderdate < %s AND o_totalprice > %s AND o_comment LIKE %s",
                                            (day, decimal.Decimal("1000.50"), "%a%"), prepare=True).fetchall())
            found.append(connection.execute("SELECT o_orderkey FROM orders WHERE o_orderkey = ANY(%s) ORDER BY 1", (list(KEYS),), prepare=True).fetchall())
            found.append(connection.execute("SELECT id, v FROM edge_timestamptz WHERE v > %s ORDER BY id LIMIT 3",
                                            (datetime.datetime(2000, 1, number + 1, tzinfo=datetime.timezone.utc),), prepare=True).fetchall())
        return found

    _compare(place, "prepared statements", run)


def copies(place):
    """COPY of queries in each format, and COPY into a table that is joined with the copied one."""

    def run(connection):
        found = []
        for options in ("FORMAT text", "FORMAT csv, HEADER", "FORMAT binary"):
            with connection.cursor().copy(f"COPY ({QUERIES['pages']}) TO STDOUT ({options})") as copy:
                found.append(b"".join(bytes(block) for block in copy))
        connection.execute("CREATE TEMP TABLE keys (key bigint, note text)")
        with connection.cursor().copy("COPY keys FROM STDIN") as copy:
            for key in KEYS:
                copy.write_row((key, f"note {key}"))
        found.append(connection.execute("SELECT note, count(l_quantity), sum(l_quantity) FROM keys LEFT JOIN lineitem ON l_orderkey = key GROUP BY 1 ORDER BY 1").fetchall())
        return found

    _compare(place, "copies", run)


def notices(place):
    """Notices from a loop over a query, and from a query that fails after some."""

    def run(connection):
        texts = []
        connection.add_notice_handler(lambda message: texts.append((message.severity, message.message_primary)))
        connection.execute("DO $$ DECLARE line record; BEGIN FOR line IN SELECT * FROM nation ORDER BY n_nationkey LOOP "
                           "RAISE NOTICE '% in %', line.n_name, (SELECT r_name FROM region WHERE r_regionkey = line.n_regionkey); END LOOP; END $$")
        try:
            connection.execute("DO $$ DECLARE line record; BEGIN FOR line IN SELECT l_orderkey FROM lineitem WHERE l_orderkey > 5980 ORDER BY 1 LOOP "
                               "RAISE WARNING '%', 10 / (line.l_orderkey - 5991); END LOOP; END $$")
        except psycopg.Error as error:
            texts.append((error.sqlstate, error.diag.message_primary, error.diag.context))
        return texts

    found = _compare(place, "notices", run)
    require(len(found) > 26 and found[-1][0] == "22012", f"{len(found)} notices, the last {found[-1]}")


def cancel_running(place, connection, query, parameters=None):
    """Cancels a query while an engine runs it: it ends with the error of a cancel."""
    failure = []

    def work():
        try:
            connection.execute(query, parameters).fetchall()
        except psycopg.Error as error:
            failure.append(error.sqlstate)

    thread = threading.Thread(target=work)
    thread.start()
    place.wait_running()
    connection.cancel_safe()
    thread.join()
    require(failure == ["57014"], f"the cancelled query ended with {failure or 'rows'}")


def cancels(place):
    """A cancelled query ends, the engine stops its work, and the session goes on; prepared and in a pipeline too."""
    with _connect(place, FOREIGN) as connection:
        cancel_running(place, connection, LONG_QUERY)
        connection.rollback()
        place.wait_idle()
        cancel_running(place, connection, LONG_QUERY + " AND a.l_orderkey > %s", (0,))
        connection.rollback()
        place.wait_idle()
        with connection.pipeline():
            cancel_running(place, connection, LONG_QUERY)
            connection.rollback()
        place.wait_idle()
        require(connection.execute("SELECT count(*) FROM region").fetchone() == (5,), "the session goes on")


def streams(place):
    """Rows one by one, and a stream that is left early: the session goes on, and the engine stops."""

    def run(connection):
        # A stream that is left early is cancelled.
        connection.autocommit = True
        found = list(connection.cursor().stream(QUERIES["pages"]))
        for number, row in enumerate(connection.cursor().stream("SELECT * FROM lineitem ORDER BY l_comment, l_orderkey, l_linenumber")):
            found.append(row)
            if number == 20:
                break
        found.append(connection.execute(QUERIES["groups"]).fetchall())
        return found

    _compare(place, "streams", run)
    place.wait_idle()


def savepoints(place):
    """A query that fails within a savepoint leaves the cursors of the transaction as they were."""

    def run(connection):
        found = []
        with connection.transaction():
            cursor = connection.cursor("outer")
            cursor.execute(QUERIES["pages"])
            found.append(cursor.fetchmany(10))
            for _ in range(3):
                try:
                    with connection.transaction():
                        found.append(connection.execute(QUERIES["join"]).fetchall())
                        # Which rows come before the error is open: an engine computes many at once (docs/exactness.md).
                        inner = connection.cursor("inner")
                        inner.execute(FAILING)
                        inner.fetchall()
                except psycopg.Error as error:
                    found.append(error.sqlstate)
                found.append(cursor.fetchmany(10))
            found.append(cursor.fetchall())
        return found

    found = _compare(place, "savepoints", run)
    require("22012" in found, "a query fails")
    place.wait_idle()


def two_phase_commits(place):
    """Transactions that read foreign tables, open cursors on them, and are prepared: committed and rolled back from other sessions."""
    with _connect(place, FOREIGN, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS public.prepared; CREATE TABLE public.prepared (path text, n bigint, total numeric)")
    for path in (FOREIGN, HEAP):
        for outcome in ("commit", "rollback"):
            connection = _connect(place, path)
            connection.tpc_begin(connection.xid(1, f"{path} {outcome}", "beside"))
            cursor = connection.cursor("left open")
            cursor.execute(QUERIES["pages"])
            cursor.fetchmany(7)
            connection.execute("INSERT INTO public.prepared SELECT split_part(%s, ',', 1), count(*), sum(l_quantity) FROM lineitem", (path,))
            connection.tpc_prepare()
            connection.close()
            with contextlib.closing(_connect(place, path)) as connection:
                found = [xid for xid in connection.tpc_recover() if xid.gtrid == f"{path} {outcome}"]
                require(len(found) == 1, f"prepared transactions: {found}")
                if outcome == "commit":
                    connection.tpc_commit(found[0])
                else:
                    connection.tpc_rollback(found[0])
    rows = place.watch.run("SELECT path, n, total FROM public.prepared ORDER BY path").rows
    require([row[0] for row in rows] == ["tpch", "tpch_heap"], f"what was committed: {rows}")
    require_equal(rows[0][1:], rows[1][1:], "what was committed")
    place.watch.run("DROP TABLE public.prepared")
    place.wait_idle()


def many_at_once(place):
    """Asynchronous connections side by side, some of whose queries are cancelled by their tasks."""

    async def client(path, number):
        found = []
        async with await psycopg.AsyncConnection.connect(place.conninfo_with(path), autocommit=True) as connection:
            names = list(QUERIES)
            for step in range(len(names)):
                cursor = await connection.execute(QUERIES[names[(number + step) % len(names)]], binary=bool(number % 2))
                found.append(await cursor.fetchall())
        return found

    async def all_clients(path):
        return await asyncio.gather(*(client(path, number) for number in range(12)))

    async def cancelled():
        async with await psycopg.AsyncConnection.connect(f"{place.conninfo} options='-c search_path={FOREIGN.replace(' ', '')}'", autocommit=True) as connection:
            task = asyncio.create_task(connection.execute(LONG_QUERY))
            while not task.done() and not await asyncio.to_thread(place.running):
                await asyncio.sleep(0.01)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            return await (await connection.execute("SELECT count(*) FROM region")).fetchone()

    require_equal(*(asyncio.run(all_clients(path)) for path in (FOREIGN, HEAP)), "clients at once")
    require(asyncio.run(cancelled()) == (5,), "the session goes on after its task was cancelled")
    place.wait_idle()


TESTS = [text_and_binary_results, server_side_cursors, pipelines, prepared_statements, copies, notices, cancels, streams, savepoints, two_phase_commits,
         many_at_once]
