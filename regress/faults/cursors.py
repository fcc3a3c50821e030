"""Cursors that stay open: more of them than have memory at once, and none waits for another that is not read."""

from faults.support import require
from harness import tables

_SERVER = "cursors"
_DEVICE_MEMORY = "256MB"
# Queries that have memory of a device for themselves at once are half as many.
_COUNT = 8
_WIDE = "SELECT l_orderkey, l_linenumber, l_extendedprice, l_shipinstruct, l_comment FROM lineitem ORDER BY l_orderkey, l_linenumber"
_QUERIES = [
    _WIDE,
    "SELECT a.l_orderkey, a.l_linenumber, o.o_comment, a.l_comment FROM lineitem a JOIN orders o ON a.l_orderkey = o.o_orderkey ORDER BY 1, 2",
    "SELECT l_orderkey, l_linenumber, l_comment, sum(l_quantity), min(l_shipdate) FROM lineitem GROUP BY 1, 2, 3 ORDER BY 1, 2",
]
# Loops in loops: each reads some rows of its query, and runs another one for each of them.
_LOOPS = """CREATE FUNCTION {schema}.loops(depth integer, after bigint) RETURNS text LANGUAGE plpgsql SET search_path = {schema}, public AS $$
DECLARE
  line record;
  found text := '';
  number integer := 0;
BEGIN
  FOR line IN SELECT l_orderkey, l_linenumber, l_comment, l_shipinstruct FROM lineitem WHERE l_orderkey > after ORDER BY 1, 2 LOOP
    number := number + 1;
    found := found || line.l_orderkey || '.' || line.l_linenumber || ' ';
    IF depth > 1 AND number = 1 THEN
      found := found || '(' || {schema}.loops(depth - 1, line.l_orderkey + 100) || ')';
    END IF;
    EXIT WHEN number = 3;
  END LOOP;
  RETURN found;
END $$"""


def _prepare(place):
    with place.session("SET client_min_messages = warning") as session:
        session.run(f"DROP SERVER IF EXISTS {_SERVER} CASCADE; DROP SCHEMA IF EXISTS {_SERVER} CASCADE")
        session.run(f"CREATE SERVER {_SERVER} FOREIGN DATA WRAPPER pystachio "
                    f"OPTIONS (device '{place.gpu_device()}', memory '1GB', device_memory '{_DEVICE_MEMORY}')")
        tables.tpch_foreign(session, place.tpch, _SERVER, _SERVER)


def _opened(place, schema, engine_choice):
    """A session in which all cursors are open, each at its second row, and those first rows."""
    session = place.session(f"SET search_path = {schema}, public", f"SET pystachio.engine_choice = {engine_choice}", "BEGIN")
    first = []
    for number in range(_COUNT):
        session.run(f"DECLARE c{number} NO SCROLL CURSOR FOR {_QUERIES[number % len(_QUERIES)]}")
        first.append(session.run(f"FETCH 1 FROM c{number}").rows)
    return session, first


def _check_cursors(place, schema, engine_choice, wanted):
    session, found = _opened(place, schema, engine_choice)
    # Others' queries have memory too.
    with place.session(f"SET search_path = {schema}, public", f"SET pystachio.engine_choice = {engine_choice}") as other:
        require(other.run("SELECT count(*) FROM (SELECT DISTINCT l_comment FROM lineitem) x").scalar() != "0", "no rows")
    # One goes on a little, one is closed, and all others are read to their ends, the last first.
    found[2] += session.run("FETCH 1000 FROM c2").rows
    session.run("CLOSE c4")
    for number in reversed([number for number in range(_COUNT) if number != 4]):
        found[number] += session.run(f"FETCH ALL FROM c{number}").rows
        same = found[number] == wanted[number % len(_QUERIES)]
        require(same, f"cursor {number}: {len(found[number])} rows, {len(wanted[number % len(_QUERIES)])} wanted, or others")
    session.close()


def open_cursors_hold_nobody_up(place):
    """More cursors in one session than queries have memory at once, on each engine."""
    _prepare(place)
    with place.session("SET search_path = tpch_heap, public") as session:
        wanted = [session.run(query).rows for query in _QUERIES]
    _check_cursors(place, _SERVER, "gpu", wanted)
    place.wait_idle(_SERVER)
    _check_cursors(place, _SERVER, "cpu", wanted)
    place.wait_idle(_SERVER)


def loops_in_loops_end(place):
    """PL/pgSQL reads ahead of each loop's query a little, and then runs the ones inside."""
    _prepare(place)
    texts = []
    for schema in ("tpch_heap", _SERVER):
        with place.session("SET pystachio.engine_choice = gpu", "SET client_min_messages = warning") as session:
            session.run(f"DROP FUNCTION IF EXISTS {schema}.loops")
            session.run(_LOOPS.format(schema=schema))
            texts.append(session.run(f"SELECT {schema}.loops({_COUNT}, 0)").scalar())
    require(texts[0] == texts[1], f"loops over heap tables: {texts[0]}\nover foreign tables: {texts[1]}")
    place.wait_idle(_SERVER)


TESTS = [open_cursors_hold_nobody_up, loops_in_loops_end]
