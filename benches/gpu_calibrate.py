"""The step `calibrate` of gpu.py: what decoding and operators take on the GPU, printed as the constants that the code holds.

- Decoding: single columns in every encoding, written by pyarrow; the time of the kernels that decode, by value and by byte.
  `src/files/writing/layout/choice.rs` has weights, of which PLAIN is 100: a byte's way over the bus and its decoding.
- Operators: queries over TPC-H that are mostly one operator; the time of its kernels by row. `src/worker/choice.rs` has nanoseconds.

Kernel times come from pystachio.timeline, the best of some runs over column chunks that are cached on the GPU. The program does
not change the code: copy its results there.
"""

import contextlib
import math
import pathlib

from harness import tables
from harness.libpq import Session

ROWS = 20_000_000
ROW_GROUP_ROWS = 10_000_000
PAGES = 100
RUNS = 3
# From the page cache to the GPU; BUS_BYTES_PER_NS of src/worker/choice.rs.
BUS_BYTES_PER_NS = 20.0
DECODING = {"decode_levels", "locate_strings", "write_places", "decode_deltas", "decode_large_deltas", "decode_prefixes", "build_strings",
            "decode_indexes", "convert_values", "convert_large_values", "index_snappy", "decompress_snappy", "decompress_lz4"}
_SCANS = {"write_offsets", "select_rows"}
_PROGRAMS = {"evaluate_program", "evaluate_small_program", "evaluate_uniform_program", "evaluate_narrow_program", "test_ranges"}

# Constant of src/worker/choice.rs: query, the rows that it is about as a query, the factor of a row, and the kernels.
OPERATORS = {
    # Five parts, one of which is free.
    "EVALUATE_PART": ("SELECT count(*) FROM lineitem WHERE l_quantity * l_tax > l_discount", "SELECT count(*) FROM lineitem", lambda _: 4,
                      _PROGRAMS),
    "BUILD_ROW": ("SELECT count(*) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
                  "SELECT count(*) FROM partsupp", lambda _: 1, {"measure_keys", "insert_build_rows", "find_equal_keys"}),
    # With the hashes of both sides, of which this is the far larger one.
    "PROBE_ROW": ("SELECT count(*) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
                  "SELECT count(*) FROM lineitem", lambda _: 1, {"hash_keys", "match_rows", "count_matches", "write_matches"} | _SCANS),
    "OUTPUT_ROW": ("SELECT sum(ps_availqty + l_linenumber) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
                   "SELECT count(*) FROM lineitem", lambda _: 1, {"gather_cells"}),
    "TRY_PAIR": ("SELECT count(*) FROM customer a JOIN nation b ON a.c_acctbal < b.n_nationkey", "SELECT count(*) * 25 FROM customer",
                 lambda _: 1, {"write_pairs", "gather_cells"} | _PROGRAMS | _SCANS),
    "GROUP_ROW": ("SELECT count(*) FROM (SELECT l_partkey, l_suppkey FROM lineitem GROUP BY 1, 2) x", "SELECT count(*) FROM lineitem",
                  lambda _: 1, {"hash_keys", "assign_groups", "number_groups"} | _SCANS),
    "ACCUMULATE_ROW": ("SELECT l_returnflag, sum(l_quantity), sum(l_tax), sum(l_discount), sum(l_extendedprice) FROM lineitem GROUP BY 1",
                       "SELECT count(*) FROM lineitem", lambda _: 4, {"accumulate_slots", "accumulate_block_slots", "accumulate_private_slots", "flag_slots", "take_slots"}),
    "COMPARE_ROW": ("SELECT o_totalprice FROM orders ORDER BY 1 OFFSET 100000000", "SELECT count(*) FROM orders", math.log2,
                    {"measure_sort_words", "encode_sort_words", "count_digits", "scatter_digits"} | _SCANS),
}


def _kernel_ms(peer, sql, kernels):
    """The least time that these kernels took in a run over cached chunks."""
    session, found = peer.session, []
    peer.receive(sql)
    for _ in range(RUNS):
        session.run("SET pystachio.timeline = on")
        peer.receive(sql)
        session.run("SET pystachio.timeline = off")
        rows = session.run("SELECT name, sum(elapsed_ms) FROM pystachio.timeline(server => 'gpu') WHERE activity = 'kernel' GROUP BY 1").rows
        found.append(sum(float(row[1]) for row in rows if row[0] in kernels))
    return min(found)


def _columns():
    """Name, values and way of writing of every column that is tried."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.multiply(pc.random(ROWS, initializer=1), 1e6)
    integers = pc.cast(pc.floor(numbers), pa.int64())
    few = pc.cast(pc.floor(pc.multiply(numbers, 1e-3)), pa.int64())
    texts = pc.binary_join_element_wise("number", pc.cast(integers, pa.string()), " ")
    plain, dictionary = {"use_dictionary": False}, {"use_dictionary": True}
    kinds = {"int4": (pc.cast(integers, pa.int32()), pc.cast(few, pa.int32())), "int8": (integers, few), "float8": (numbers, pc.cast(few, pa.float64()))}
    for kind, (values, repeated) in kinds.items():
        yield f"{kind} PLAIN", values, {**plain, "column_encoding": "PLAIN"}
        yield f"{kind} BYTE_STREAM_SPLIT", values, {**plain, "column_encoding": "BYTE_STREAM_SPLIT"}
        if kind != "float8":
            yield f"{kind} DELTA_BINARY_PACKED", values, {**plain, "column_encoding": "DELTA_BINARY_PACKED"}
        yield f"{kind} RLE_DICTIONARY", repeated, dictionary
    yield "int8 PLAIN SNAPPY", few, {**plain, "column_encoding": "PLAIN", "compression": "snappy"}
    yield "int8 PLAIN LZ4_RAW", few, {**plain, "column_encoding": "PLAIN", "compression": "lz4_raw"}
    yield "text PLAIN", texts, {**plain, "column_encoding": "PLAIN"}
    yield "text DELTA_LENGTH_BYTE_ARRAY", texts, {**plain, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"}
    yield "text DELTA_BYTE_ARRAY", texts, {**plain, "column_encoding": "DELTA_BYTE_ARRAY"}
    yield "text RLE_DICTIONARY", pc.cast(few, pa.string()), dictionary


def _write(path, values, options):
    """A file of one optional column `c`; its bytes in the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = values.nbytes // PAGES // (ROWS // ROW_GROUP_ROWS)
    pq.write_table(pa.table({"c": values}), path, row_group_size=ROW_GROUP_ROWS, data_page_size=size, version="2.6", data_page_version="2.0",
                   store_schema=False, **{"compression": "none", **options})
    groups = pq.ParquetFile(path).metadata
    return sum(groups.row_group(place).column(0).total_compressed_size for place in range(groups.num_row_groups))


def _decoding(bench, peer):
    """Prints a table of what decoding takes."""
    folder = pathlib.Path(bench.options.folder) / "calibrate"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    cost, plain_cost = {}, {}
    print("| column | encoded bytes a value | ns a value | decoded GB/s | weight |\n|---|---:|---:|---:|---:|", flush=True)
    for name, values, options in _columns():
        path = folder / "tried.parquet"
        encoded = _write(path, values, options) / ROWS
        path.chmod(0o644)
        peer.session.run(f"DROP SCHEMA IF EXISTS calibrate CASCADE; CREATE SCHEMA calibrate; "
                         f"{tables.import_statement(folder, 'calibrate', 'gpu')}; SET pystachio.engine_choice = gpu")
        nanoseconds = _kernel_ms(peer, "SELECT max(c) FROM calibrate.tried", DECODING) * 1e6 / ROWS
        kind = name.split()[0]
        decoded = {"int4": 4, "text": 16}.get(kind, 8)
        cost[name] = 1 / BUS_BYTES_PER_NS + nanoseconds / encoded
        plain_cost.setdefault("text" if kind == "text" else "number", cost[name])
        weight = 100 * cost[name] / plain_cost["number"]
        rate = decoded / nanoseconds if nanoseconds else math.inf
        print(f"| {name} | {encoded:.2f} | {nanoseconds:.4f} | {rate:.0f} | {weight:.0f} |", flush=True)
        path.unlink()
    peer.session.run("DROP SCHEMA calibrate CASCADE")
    with contextlib.suppress(OSError):
        folder.rmdir()


def _operators(bench, peer):
    """Prints the nanoseconds of operators as src/worker/choice.rs has them."""
    print("\nsrc/worker/choice.rs, device_ns:", flush=True)
    for constant, (query, rows_query, factor, kernels) in OPERATORS.items():
        rows = int(float(peer.session.run(rows_query).scalar()))
        nanoseconds = _kernel_ms(peer, query, kernels) * 1e6 / rows / factor(max(rows, 2))
        print(f"const {constant}: Rate = Rate {{ cpu_ns: …, device_ns: {nanoseconds:.3f} }};", flush=True)


def run_calibrate(bench):
    """Measures and prints."""
    with Session(bench.conninfo, ["SET client_min_messages = warning"]) as session:
        peer = bench.peer("gpu", ["SET client_min_messages = warning"])
        try:
            _operators(bench, peer)
            _decoding(bench, peer)
        finally:
            peer.close()
            session.run("DROP SCHEMA IF EXISTS calibrate CASCADE")
    return 0
