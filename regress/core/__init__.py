"""PostgreSQL's own regression queries as a test of this project: `run.py` drives, its neighbours do one thing each.

- `source.py`: in which order the suite's files run
- `statements.py`: splits them as psql does
- `psql.py`: runs them in a session as psql does
- `queries.py`: what of a statement can be compared
- `mirror.py`, `forms.py`: the tables that a query names as Parquet files, foreign tables and heap copies
- `trial.py`: one query over both, in the suite's session
- `compare.py`: whether two outcomes are the same, and what depends on the order of rows alone
- `known.py`: the differences that are known, each with its reason

Nothing of PostgreSQL's files is part of this folder: statements are known by hashes of their text.
"""
