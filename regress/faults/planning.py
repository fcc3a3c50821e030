"""A session that plans again and again: statements that fail while they are planned, and statements that drivers prepare."""

from faults.support import require
from harness.explain import plan_shape

# As psycopg and JDBC prepare after five runs: the protocol's named statements, whose parameters' types the server infers.
_PREPARED = [
    ("SELECT count(*), sum(l_extendedprice) FROM lineitem WHERE l_shipdate >= $1 AND l_shipdate < $1 + interval '1 year'", ["1994-01-01"]),
    ("SELECT count(*) FROM lineitem WHERE ($1::date IS NULL OR l_shipdate >= $1) AND ($2::date IS NULL OR l_shipdate < $2 + interval '1 day')",
     ["1994-01-01", "1994-06-30"]),
    ("SELECT sum(l_extendedprice * (1 - l_discount) * $1) FROM lineitem WHERE l_quantity < $2", ["1.19", "24"]),
    ("SELECT o_orderpriority, count(*) FROM orders WHERE o_orderstatus IN ($1, $2) AND o_comment LIKE $3 GROUP BY 1 HAVING count(*) > $4 ORDER BY 1",
     ["F", "O", "%special%", "1"]),
    ("SELECT o_orderkey FROM orders ORDER BY o_totalprice DESC, o_orderkey LIMIT $1 OFFSET $2", ["5", "10"]),
    ("SELECT date_trunc($1, o_orderdate::timestamp), count(*) FROM orders GROUP BY 1 ORDER BY 1", ["year"]),
    ("SELECT count(*) FROM orders WHERE o_custkey = ANY ($1)", ["{1,2,4,5,7,8}"]),
]


def _memory_mib(session):
    with open(f"/proc/{session.backend_pid}/status", encoding="ascii") as status:
        return int(status.read().split("RssAnon:")[1].split()[0]) / 1024


def planning_that_fails_leaves_nothing(place):
    """Statements fail while they are planned, in a session that goes on: the next one plans as the first, in the same memory."""
    fail = ("DO $$ BEGIN FOR step IN 1..{} LOOP BEGIN EXECUTE 'SELECT n_name FROM nation WHERE n_nationkey = 1 / 0'; "
            "EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$")
    query = "SELECT count(*) FROM nation JOIN (SELECT r_regionkey, count(*) FROM region GROUP BY 1) q ON n_regionkey = r_regionkey"
    with place.session() as session:
        session.run(fail.format(2_000))
        before = _memory_mib(session)
        session.run(fail.format(20_000))
        grown = _memory_mib(session) - before
        # What a run of the planner keeps is some 300 bytes: 6 MiB if it stayed.
        require(grown < 3, f"20,000 statements left {grown:.1f} MiB")
        require(plan_shape(session, query).one_scan, "the next query is not planned whole")
        require(session.run(query).scalar() == "25", "its answer is wrong")


def prepared_statements_stay_whole(place):
    """A named statement of the protocol gives the same rows ten times, and is one scan after that."""
    with place.session() as session, place.session("SET search_path = tpch_heap, public") as heap:
        for number, (query, parameters) in enumerate(_PREPARED):
            name = f"named{number}"
            for each in (session, heap):
                each.prepare(name, query)
            expected = heap.execute(name, parameters).rows
            for run in range(10):
                require(session.execute(name, parameters).rows == expected, f"run {run + 1} of {query}")
            call = f"EXECUTE {name}({', '.join(repr(value) for value in parameters)})"
            require(plan_shape(session, call).one_scan, f"the eleventh run is not one scan: {query}")


TESTS = [planning_that_fails_leaves_nothing, prepared_statements_stay_whole]
