"""The everyday workload: queries that people and their tools send, over data that no benchmark's rules shaped.

`queries.sql` has the queries, `make_data.py` writes the Parquet files, `workload.py` makes the tables. The differential suite
`everyday` compares the answers with a small amount of data; `benches/everyday.py` measures with more.
"""
