"""The tables of generated queries as views over TPC-H: more rows, columns that are computed, text with dictionaries.

Invariants: a view has the columns of t1 to t3 of regress/data, `id` is a key, and joins on the columns with fewest values give
some ten thousand rows.
"""

CONSTANTS = {
    "a": ["-3", "1", "2", "3", "7"],
    "b": ["1", "3", "17", "60", "4294967296"],
    "i": ["0", "1", "4", "33"],
    "id": ["1", "7", "33", "65", "100", "1000"],
    "c": ["'AIR'", "'TRUCK'", "'REG AIR'", "'1-URGENT'", "'5-LOW'", "'SM BOX'", "'M'", "''", "'LG CASE'"],
    "s": ["'DELIVER IN PERSON'", "'NONE'", "'O'", "'F'", "'Brand#13'", "'Brand#55 '", "''"],
    "d": ["date '1994-08-25'", "date '1996-01-01'", "date '1992-09-20'"],
    "n": ["0", "1", "17.00", "25", "100", "1000.5"],
    "m": ["0", "0.05", "0.04", "500", "1200.00"],
    "f": ["0", "0.25", "1.5", "2.5"],
    "ts": ["timestamp '1996-01-01'", "timestamp '1994-02-28'"],
}
LIKE_PATTERNS = ["'A%'", "'%AI%'", "'%R'", "'_'", "'%'", "'5%'", "'%BOX'", "'%a%'", "'% %'", "'Brand#1_%'"]

_DEFINITIONS = {
    "t1": "SELECT (l_orderkey * 8 + l_linenumber)::int AS id, CASE WHEN l_quantity < 45 THEN l_linenumber END AS a, l_suppkey AS b, "
          "(l_suppkey % 40)::int AS i, l_shipmode AS c, l_shipinstruct AS s, l_shipdate AS d, l_quantity AS n, l_discount AS m, "
          "l_linenumber::float8 / 4 AS f, l_returnflag = 'R' AS k, l_commitdate::timestamp AS ts "
          "FROM {source}.lineitem WHERE l_partkey % 400 = 1",
    "t2": "SELECT o_orderkey::int AS id, (o_custkey % 9)::int AS a, o_custkey AS b, (o_custkey % 31)::int AS i, "
          "CASE WHEN o_orderstatus <> 'P' THEN o_orderpriority END AS c, o_orderstatus AS s, o_orderdate AS d, o_totalprice AS n, "
          "o_totalprice AS m, (o_custkey % 10)::float8 AS f, o_orderpriority < '3' AS k, o_orderdate::timestamp AS ts "
          "FROM {source}.orders WHERE o_custkey % 80 < 2",
    "t3": "SELECT p_partkey::int AS id, p_size AS a, p_partkey AS b, p_size % 7 AS i, p_container AS c, p_brand AS s, "
          "CASE WHEN p_size > 3 THEN date '1994-01-01' + p_size END AS d, p_retailprice AS n, p_retailprice AS m, p_size::float8 AS f, "
          "nullif(p_mfgr, 'Manufacturer#4') > 'Manufacturer#2' AS k, timestamp '1994-01-01' AS ts "
          "FROM {source}.part WHERE p_partkey % 12 = 1",
}


def create(session, schema, source):
    """Makes the views over TPC-H in the schema `source`."""
    session.run(f"SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; RESET client_min_messages")
    for name, definition in _DEFINITIONS.items():
        session.run(f"CREATE VIEW {schema}.{name} AS {definition.format(source=source)}")
    session.run(f"CREATE VIEW {schema}.t0 AS SELECT * FROM {schema}.t1 WHERE id < 0")
