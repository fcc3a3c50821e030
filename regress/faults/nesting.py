"""Queries nested deep or written wide: PostgreSQL's answer over heap tables, or its error, and no crash."""

from faults.support import Failure, require
from harness.explain import plan_shape
from harness.libpq import QueryError


def _repeat(start, count, step):
    text = start
    for number in range(count):
        text = step(text, number)
    return text


def _chain(count):
    return "SELECT max({}), count(*) FROM nation".format(" + ".join(["n_nationkey"] * count))


def _condition(count):
    return "SELECT count(*) FROM nation WHERE {} > 10".format(" + ".join(["n_nationkey"] * count))


def _nots(count):
    return "SELECT count(*) FROM nation WHERE " + _repeat(
        "n_nationkey = 3", count, lambda inner, number: f"NOT ({inner} AND n_regionkey < {number + 100})")


def _ands_and_ors(count):
    return "SELECT count(*) FROM nation WHERE " + _repeat(
        "n_nationkey = 3", count,
        lambda inner, number: f"({inner}) OR n_regionkey = {number % 7}" if number % 2 else f"({inner}) AND n_regionkey < {number + 1}")


def _cases(count):
    return "SELECT sum({}) FROM nation".format(
        _repeat("n_nationkey", count, lambda inner, number: f"CASE WHEN n_regionkey = {number} THEN {number} ELSE {inner} END"))


def _case_operands(count):
    return "SELECT sum({}) FROM nation".format(
        _repeat("n_nationkey", count, lambda inner, _: f"CASE {inner} WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE 1 END"))


def _concatenations(count):
    return "SELECT max({}) FROM nation".format(" || ".join(["n_name"] * count))


def _functions(count):
    return "SELECT max({}) FROM nation".format(_repeat("n_nationkey", count, lambda inner, _: f"abs({inner})"))


def _grouped(count):
    return "SELECT count(*), sum(a) FROM ({}) x".format(_repeat(
        "SELECT n_nationkey AS a FROM nation", count, lambda inner, number: f"SELECT a + 1 AS a FROM ({inner}) s{number} GROUP BY a"))


def _doubled(count):
    """Each level uses the column of the one below twice."""
    return "SELECT count(*), sum(a) FROM ({}) x".format(_repeat(
        "SELECT n_nationkey * 0 AS a FROM nation", count, lambda inner, number: f"SELECT a + a AS a FROM ({inner}) s{number} LIMIT 20"))


def _union_all(count):
    return "SELECT count(*), max(n_name) FROM ({}) u".format(" UNION ALL ".join(["SELECT n_name FROM nation"] * count))


def _union(count):
    return "SELECT count(*), max(n_name) FROM ({}) u".format(" UNION ".join(["SELECT n_name FROM nation"] * count))


def _except(count):
    return "SELECT count(*) FROM ({}) u".format(" EXCEPT ".join(["SELECT n_name FROM nation"] * count))


def _conjunction(count):
    return "SELECT count(*) FROM nation WHERE " + " AND ".join(f"n_nationkey <> {number + 20}" for number in range(count))


def _disjunction(count):
    return "SELECT count(*) FROM nation WHERE " + " OR ".join(
        f"(n_nationkey = {number} AND n_regionkey < {number + 1})" for number in range(count))


def _members(count):
    return "SELECT count(*) FROM nation WHERE n_nationkey IN ({})".format(",".join(str(number) for number in range(3, count)))


def _branches(count):
    return "SELECT sum(CASE {} ELSE 0 END) FROM nation".format(
        " ".join(f"WHEN n_nationkey = {number} THEN {number + 1}" for number in range(count)))


def _joins(count):
    joins = " ".join(f"JOIN nation n{number} ON n{number}.n_nationkey = n{number - 1}.n_nationkey" for number in range(1, count))
    return f"SELECT count(*) FROM nation n0 {joins}"


def _answer(session, schema, query):
    session.run(f"SET search_path = {schema}, public")
    try:
        return session.run(query).rows
    except QueryError as error:
        if error.sqlstate in ("57014", "08006", "XX000"):
            raise Failure(f"{error}: {query[:200]}") from error
        return error.sqlstate


def _same_as_heap(place, shapes, setup=()):
    with place.session("SET statement_timeout = '300s'", *setup) as session:
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "the engine works before")
        pid = place.engine_pid()
        for shape, counts in shapes:
            for count in counts:
                query = shape(count)
                expected, actual = _answer(session, "tpch_heap", query), _answer(session, "tpch", query)
                require(actual == expected, f"{shape.__name__}({count}): {actual!r}, heap {expected!r}")
        session.run("SET search_path = tpch, public")
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "the engine works after")
        require(place.engine_pid() == pid, "the engine's process is another one: it crashed")


_DEEP = [(_chain, (150, 900, 3000, 5000)), (_condition, (150, 900, 3000, 5000)), (_nots, (150, 900, 2000)),
         (_ands_and_ors, (150, 900, 2000)), (_cases, (150, 900, 2000)), (_case_operands, (8, 60, 400)),
         (_concatenations, (150, 900, 2000)), (_functions, (150, 900, 2000)), (_grouped, (60, 300, 900)),
         (_doubled, (10, 40, 300)), (_union, (300,)), (_except, (100, 900))]
_WIDE = [(_conjunction, 5000), (_disjunction, 5000), (_members, 10_000), (_branches, 5000), (_union_all, 1000)]


def nested_deep(place):
    """What nests too deep for a plan is left to PostgreSQL, which answers or says that its stack is too small."""
    _same_as_heap(place, _DEEP)


def nested_deep_on_a_small_stack(place):
    """So it is where PostgreSQL may use little stack: an answer of the engine, or PostgreSQL's error."""
    with place.session("SET statement_timeout = '300s'", "SET max_stack_depth = '150kB'") as session:
        for shape, counts in _DEEP:
            query = shape(counts[0])
            expected = _answer(session, "tpch_heap", query)
            if expected != "54001":
                actual = _answer(session, "tpch", query)
                require(actual in (expected, "54001"), f"{shape.__name__}: {actual!r}, heap {expected!r}")


def written_wide(place):
    """What is wide and flat is run by the engine."""
    _same_as_heap(place, [(shape, (count,)) for shape, count in _WIDE])
    _same_as_heap(place, [(_members, (50_000,)), (_joins, (22,))], ["SET from_collapse_limit = 1", "SET join_collapse_limit = 1"])
    with place.session("SET from_collapse_limit = 1", "SET join_collapse_limit = 1") as session:
        for shape, count in [*_WIDE, (_joins, 22)]:
            require(plan_shape(session, shape(count)).one_scan, f"{shape.__name__}({count}) is not one scan")


TESTS = [nested_deep, nested_deep_on_a_small_stack, written_wide]
