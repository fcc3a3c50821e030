"""asyncpg, which has every value in binary: types, prepared statements, cursors, COPY, a pool, time limits."""

import asyncio
import io

import asyncpg

from beside.support import BY_KEY, DATABASE, FAILING, FOREIGN, HEAP, KEYS, LONG_QUERY, QUERIES, edge_tables, require_equal
from faults.support import require


async def _connect(place, path):
    return await asyncpg.connect(**place.parameters(), database=DATABASE, server_settings=place.settings(path))


def _compare(place, what, action):
    """`action(connection)` must return the same over foreign tables as over heap tables; returns it."""

    async def run(path):
        connection = await _connect(place, path)
        try:
            return await action(connection)
        finally:
            await connection.close()

    found = [asyncio.run(run(path)) for path in (FOREIGN, HEAP)]
    # NaN is no equal of itself, and -0.0 is one of 0.0.
    require_equal(*([repr(part) for part in one] for one in found), what)
    return found[0]


def results(place):
    """Every value of every type that this driver can have."""

    async def run(connection):
        found = []
        for query in [*QUERIES.values(), *(f"SELECT * FROM {name} ORDER BY id" for name in edge_tables())]:
            try:
                found += await connection.fetch(query)
            except (OverflowError, ValueError, asyncpg.InternalClientError) as error:
                found.append(f"{query}: {type(error).__name__}")
        return found

    require(len(_compare(place, "results", run)) > 5000, "few rows")


def prepared_statements(place):
    """Statements with parameters, often enough for a generic plan; and what the server says of their types."""

    async def run(connection):
        found = []
        by_key = await connection.prepare(BY_KEY.format("$1"))
        found += [by_key.get_parameters(), by_key.get_attributes()]
        many = await connection.prepare("SELECT o_orderkey, o_orderdate FROM orders WHERE o_orderkey = ANY($1::bigint[]) AND o_orderdate >= $2::date ORDER BY 1")
        first_day = await connection.fetchval("SELECT min(o_orderdate) FROM orders")
        for _ in range(2):
            for key in KEYS:
                found.append(await by_key.fetch(key))
                found.append(await many.fetch(list(KEYS), first_day))
                found.append(await connection.fetchrow("SELECT count(*), sum(l_quantity) FROM lineitem WHERE l_orderkey < $1 OR $2::text IS NULL", key, None))
        await connection.executemany("SELECT count(*) FROM lineitem WHERE l_orderkey = $1", [(key,) for key in KEYS])
        try:
            await connection.fetch(FAILING)
        except asyncpg.PostgresError as error:
            found.append((error.sqlstate, error.message))
        return found

    require(_compare(place, "prepared statements", run)[-1][0] == "22012", "a query fails")


def cursors(place):
    """Cursors of the protocol, read in portions, side by side, with other queries between."""

    async def run(connection):
        found = []
        async with connection.transaction():
            one = await connection.cursor(QUERIES["pages"])
            two = await connection.cursor(QUERIES["window"])
            for _ in range(5):
                found.append(await one.fetch(20))
                found.append(await two.fetch(30))
                found.append(await connection.fetch(QUERIES["join"]))
            await one.forward(100)
            found.append(await one.fetchrow())
            async for row in connection.cursor(QUERIES["semi"], prefetch=17):
                found.append(row)
        return found

    _compare(place, "cursors", run)
    place.wait_idle()


def copies(place):
    """COPY of queries in binary, and records that are copied into a table and joined."""

    async def run(connection):
        found = []
        for options in ({"format": "binary"}, {"format": "csv", "header": True}):
            output = io.BytesIO()
            found.append(await connection.copy_from_query(QUERIES["pages"], output=output, **options))
            found.append(output.getvalue())
        await connection.execute("CREATE TEMP TABLE keys (key bigint, note text)")
        await connection.copy_records_to_table("keys", records=[(key, f"note {key}") for key in KEYS])
        found.append(await connection.fetch("SELECT note, count(l_quantity), sum(l_quantity) FROM keys LEFT JOIN lineitem ON l_orderkey = key GROUP BY 1 ORDER BY 1"))
        return found

    _compare(place, "copies", run)


def pools(place):
    """More tasks than connections; each connection is reset between two."""

    async def run(path):
        async with asyncpg.create_pool(**place.parameters(), database=DATABASE, server_settings=place.settings(path), min_size=2, max_size=6) as pool:
            return await asyncio.gather(*(pool.fetch(query) for query in [*QUERIES.values()] * 6))

    require_equal(*(repr(asyncio.run(run(path))) for path in (FOREIGN, HEAP)), "a pool")


def time_limits(place):
    """The driver cancels a query when its own time limit is over or its task is cancelled; the session goes on."""

    async def run():
        connection = await _connect(place, FOREIGN)
        try:
            await connection.fetch(LONG_QUERY, timeout=0.5)
            raise AssertionError("the long query returned rows")
        except asyncio.TimeoutError:
            pass
        require(await connection.fetchval("SELECT count(*) FROM region") == 5, "the session goes on")
        task = asyncio.create_task(connection.fetch(LONG_QUERY))
        while not task.done() and not await asyncio.to_thread(place.running):
            await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
            raise AssertionError("the cancelled query returned rows")
        except asyncio.CancelledError:
            pass
        require(await connection.fetchval("SELECT count(*) FROM region") == 5, "the session goes on")
        await connection.close()

    asyncio.run(run())
    place.wait_idle()


TESTS = [results, prepared_statements, cursors, copies, pools, time_limits]
