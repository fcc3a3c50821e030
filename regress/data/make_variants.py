#!/usr/bin/env python3
"""Writes variants.parquet and variants.csv: variants of every type, as DuckDB writes them, and the JSON that they are; and
times_of_utc.parquet: times that are annotated as adjusted to UTC. nested_variants.parquet has the same variants within structs, lists and
maps; no library here writes these, so pyarrow writes them as structs, which the footer is made to call variants.

usage: make_variants.py, with DuckDB 2.0 and pyarrow 26 (scripts/writers.sh)

The columns: `mixed` has values of all types, which are not shredded; `alike` objects of the same fields, shredded, with values that
do not fit; `numbers` and `moments` single values of one type, shredded.
"""

import pathlib

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent
# In SQL of DuckDB, and as jsonb prints it.
MIXED = [
    ("NULL", None), ("true", "true"), ("1::TINYINT", "1"), ("(-32768)::SMALLINT", "-32768"), ("2147483647", "2147483647"),
    ("(-9223372036854775808)::BIGINT", "-9223372036854775808"), ("1.5::DOUBLE", "1.5"), ("'nan'::DOUBLE", '"NaN"'), ("0.1::FLOAT", "0.1"),
    ("-0.05::DECIMAL(5,2)", "-0.05"), ("12345678901.50::DECIMAL(18,2)", "12345678901.50"),
    ("-1234567890123456789012345678.1234567890::DECIMAL(38,10)", "-1234567890123456789012345678.1234567890"),
    ("DATE '2024-02-29'", '"2024-02-29"'), ("TIME '12:34:56.789'", '"12:34:56.789"'),
    ("TIMESTAMP '2024-02-29 12:34:56.78'", '"2024-02-29T12:34:56.78"'),
    ("TIMESTAMPTZ '2024-02-29 12:34:56.78+02'", '"2024-02-29T10:34:56.78+00:00"'), ("'\\x00\\xFF'::BLOB", '"\\\\x00ff"'),
    ("UUID '01234567-89ab-cdef-0123-456789abcdef'", '"01234567-89ab-cdef-0123-456789abcdef"'), ("''", '""'),
    ("'a\"\\' || chr(10) || 'ä'", '"a\\"\\\\\\nä"'), (f"'{'x' * 70}'", f'"{"x" * 70}"'),
    ("{'b': 1, 'a': [1, NULL, 3], 'c': {'d': 'e'}}", '{"a": [1, null, 3], "b": 1, "c": {"d": "e"}}'), ("[]", "[]"),
    ("[{'x': [[1], []]}, {'x': NULL}]", '[{"x": [[1], []]}, {"x": null}]'),
]
ALIKE = [
    ("NULL", None), ("{'id': 1, 'name': 'a', 'tags': ['x', NULL], 'price': 1.50::DECIMAL(9,2)}", '{"id": 1, "name": "a", "tags": ["x", null], "price": 1.50}'),
    ("{'id': NULL, 'name': NULL, 'tags': NULL, 'price': NULL}", '{"id": null, "name": null, "tags": null, "price": null}'),
    ("{'id': 2, 'name': 'b', 'more': {'deep': [1]}}", '{"id": 2, "more": {"deep": [1]}, "name": "b"}'), ("{'id': 'text', 'name': 3}", '{"id": "text", "name": 3}'),
    ("'no object'", '"no object"'), ("[1]", "[1]"),
]


def rows(values, count):
    return [values[place % len(values)] for place in range(count)]


def nested():
    """Variants within other values, of those in variants.parquet."""
    source = pq.read_table(HERE / "variants.parquet")
    column = {name: source[name].combine_chunks() for name in source.column_names}
    count = source.num_rows
    holder = pa.StructArray.from_arrays([column["alike"], column["id"]], names=["v", "n"], mask=pa.array([n % 7 == 6 for n in range(count)]))
    # Lists of no, one and two variants.
    offsets, taken = [0], []
    for n in range(count):
        taken += [n, (n + 1) % count][:n % 3]
        offsets.append(len(taken))
    many = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), column["mixed"].take(pa.array(taken)))
    named = pa.MapArray.from_arrays(pa.array(range(count + 1), pa.int32()), pa.array(["k"] * count), column["numbers"])
    path = HERE / "nested_variants.parquet"
    pq.write_table(pa.table({"id": column["id"], "holder": holder, "many": many, "named": named}), path)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length:-8]
    for name, children in (("v", 3), ("element", 3), ("value", 3)):
        # An optional group: its repetition, its name, the number of its children; then its logical type.
        group = b"\x35\x02\x18" + bytes([len(name)]) + name.encode() + b"\x15" + bytes([2 * children])
        assert footer.count(group + b"\x00") == 1, name
        footer = footer.replace(group + b"\x00", group + b"\x5c\x0c\x20\x00\x00\x00")
    path.write_bytes(content[:-8 - length] + footer + len(footer).to_bytes(4, "little") + content[-4:])


def main():
    count = 60
    columns = {
        "mixed": rows(MIXED, count), "alike": rows(ALIKE, 7) + rows(ALIKE[1:2], count - 7),
        "numbers": rows([(f"{n}::INTEGER", str(n)) for n in range(5)] + [("NULL", None)], count),
        "moments": rows([("TIMESTAMP '2024-02-29 12:34:56.78'", '"2024-02-29T12:34:56.78"'), ("NULL", None)], count),
    }
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE t (id INTEGER, " + ", ".join(f"{name} VARIANT" for name in columns) + ")")
    for place in range(count):
        values = ", ".join(f"({values[place][0]})::VARIANT" for values in columns.values())
        connection.execute(f"INSERT INTO t VALUES ({place + 1}, {values})")
    connection.execute(f"COPY (SELECT * FROM t ORDER BY id) TO '{HERE / 'variants.parquet'}' (FORMAT parquet)")
    times = "SELECT n::INTEGER AS id, CASE WHEN n > 0 THEN ('12:34:56.78' || n || '+00')::TIMETZ END AS v FROM range(3) t (n)"
    connection.execute(f"COPY ({times}) TO '{HERE / 'times_of_utc.parquet'}' (FORMAT parquet)")
    with open(HERE / "variants.csv", "w", newline="", encoding="utf-8") as file:
        for place in range(count):
            cells = [str(place + 1)] + [values[place][1] for values in columns.values()]
            file.write(",".join("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in cells) + "\n")
    nested()


if __name__ == "__main__":
    main()
