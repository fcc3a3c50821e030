"""pandas: frames from queries, in portions and with parameters, with the types that columns have."""

import pandas
from sqlalchemy import create_engine, text
from sqlalchemy.exc import InvalidRequestError

from beside.support import FOREIGN, HEAP, QUERIES, edge_tables
from beside.with_sqlalchemy import _url
from faults.support import require


def _frames(place, action):
    found = []
    for path in (FOREIGN, HEAP):
        engine = create_engine(_url(place, "psycopg"), connect_args={"options": f"-c search_path={path.replace(' ', '')}"})
        with engine.connect() as connection:
            found.append(action(connection))
        engine.dispose()
    for ours, theirs in zip(*found, strict=True):
        pandas.testing.assert_frame_equal(ours, theirs)
    return found[0]


# What psycopg has no value of Python for: dates and times beyond the year 9999, and infinite ones. Bytes make pandas fail in some frames.
_UNREADABLE = ("date", "timestamp", "time", "bytea")


def frames(place):
    """Frames of queries, of both kinds of types, and of edge values."""
    names = [name for name in edge_tables() if name.startswith("edge_") and not name.removeprefix("edge_").startswith(_UNREADABLE)]

    def run(connection):
        found = []
        for query in [*QUERIES.values(), *(f"SELECT * FROM {name} ORDER BY id" for name in names)]:
            found.append(pandas.read_sql_query(text(query), connection))
            found.append(pandas.read_sql_query(text(query), connection, dtype_backend="numpy_nullable"))
        found.append(pandas.read_sql_query(text("SELECT o_orderkey, o_orderdate, o_totalprice FROM orders WHERE o_orderdate > :day ORDER BY 1"), connection,
                                           params={"day": "1998-07-01"}, index_col="o_orderkey", parse_dates=["o_orderdate"], coerce_float=True))
        return found

    found = _frames(place, run)
    require(sum(len(frame) for frame in found) > 5000, "few rows")


def portions(place):
    """A frame in portions, by a server-side cursor."""

    def run(connection):
        streaming = connection.execution_options(stream_results=True)
        return list(pandas.read_sql_query(text(QUERIES["pages"]), streaming, chunksize=250))

    require(len(_frames(place, run)) > 10, "few portions")


def frames_as_tables(place):
    """A frame that becomes a table, which is joined; and what docs/limits.md says of read_sql_table."""

    def run(connection):
        keys = pandas.DataFrame({"key": [1, 7, 32, 39], "note": ["a", "b", "c", None]})
        keys.to_sql("frame_keys", connection, schema="pg_temp", index=False)
        return [pandas.read_sql_query(text("SELECT key, note, sum(l_quantity) AS n FROM frame_keys JOIN lineitem ON l_orderkey = key GROUP BY 1, 2 ORDER BY 1"),
                                      connection)]

    _frames(place, run)
    engine = create_engine(_url(place, "psycopg"))
    try:
        pandas.read_sql_table("region", engine, schema="tpch")
        raise AssertionError("read_sql_table reads foreign tables: docs/limits.md says that it does not")
    except InvalidRequestError:
        pass
    finally:
        engine.dispose()


TESTS = [frames, portions, frames_as_tables]
