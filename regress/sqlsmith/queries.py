"""The queries of sqlsmith: made without being executed, so that a seed always gives the same ones, and rewritten for comparison."""

import re
import subprocess

# What would change the cluster or other sessions, or waits. Rights refuse most of it, and this is what they allow.
_UNWANTED = re.compile(r"\b(pg_(sleep|advisory|try_advisory|terminate|cancel|reload|rotate|promote|switch|backup|stat_reset|logical|replication|log_backend|notify|"
                       r"create|drop|wal_replay|import|start|stop|walfile|current_logfile|ls_|read_)\w*|lo\w*_\w+|lo(read|write)|set_config|setseed|dblink\w*|"
                       r"(query|table|schema|database|cursor)_to_xml\w*|ts_stat|tpch_generate|optimize_parquet)\(")
# Functions whose value is another one in every session, at every time, or for every table.
_UNSTABLE = re.compile(r"(pg_(?!typeof$)|txid_|inet_|current_|now$|(transaction|statement|clock)_timestamp$|timeofday|random|row_security_active|has_|to_reg|"
                       r"version$|currtid|lastval|mxid_age|age$|format_type|\w+_description$)")
_SAMPLE = re.compile(r" tablesample \w+ \([0-9.]+\)")
_ONE_OF_A_RUN = re.compile(r"\bpystachio\.|\b(tableoid|ctid|xmin|xmax|cmin|cmax)\b")
_ONE_ROW = re.compile(r"\(select (\w+) from (\w+)\.(\w+) limit 1 offset (\d+)\)")
# Types that only stand for others: sqlsmith takes them for types of values. The server refuses each such cast.
_PSEUDO = {"anymultirange": "int4multirange", "anyrange": "int4range", "anyenum": "text", "anyarray": "int4[]", "anynonarray": "int4", "anyelement": "int4",
           "anycompatiblemultirange": "int4multirange", "anycompatiblerange": "int4range", "anycompatiblearray": "int4[]", "anycompatiblenonarray": "int4",
           "anycompatible": "int4"}
_LIMIT = re.compile(r"\n *limit \d+")


def make(program, conninfo, seed, count):
    """So many queries of a seed: those that read, and that leave the cluster as it is."""
    done = subprocess.run([program, f"--target={conninfo}", f"--seed={seed}", f"--max-queries={count}", "--dry-run", "--exclude-catalog"],
                          capture_output=True, text=True, timeout=600, check=False)
    if not done.stdout:
        raise RuntimeError(f"sqlsmith made no query: {done.stderr}")
    made = re.sub(r"\bas (any\w+)\)", lambda found: f"as {_PSEUDO.get(found[1], found[1])})", done.stdout)
    queries = [query.strip() for query in made.split(";\n")]
    return [query for query in queries if re.match(r"(select|with)\b", query) and not _UNWANTED.search(query)]


def is_comparable(query, volatile):
    """Whether the query's values are the same in every session and over every copy of the tables; `volatile`: names of functions that are not."""
    names = set(re.findall(r"\bpg_catalog\.(\w+)\(", query))
    return not _ONE_OF_A_RUN.search(query) and not names & volatile and not any(_UNSTABLE.match(name) for name in names)


def decided(query, keyed):
    """The query with fewer rows that only their order chooses: no LIMIT, no sample, and single rows by their key in the schemas of `keyed`."""

    def row(found):
        column, schema, table, offset = found.groups()
        if schema in keyed:
            return f"(select {column} from {schema}.{table} where id = {int(offset) + 1})"
        return f"(select {column} from {schema}.{table} order by 1 limit 1 offset {offset})"

    return _SAMPLE.sub("", _LIMIT.sub("", _ONE_ROW.sub(row, query)))


def over(query, schemas):
    """The query with other schemas: a dictionary of names."""
    return re.sub(r"\b(" + "|".join(schemas) + r")\.", lambda found: schemas[found[1]] + ".", query)


# sqlsmith groups nothing and combines nothing.
_AROUND = ["SELECT count(*), count(c0), count(c1) FROM ({0}) q", "SELECT c0, count(*), count(c1) FROM ({0}) q GROUP BY c0",
           "SELECT min(c0), max(c0), min(c1), max(c1) FROM ({0}) q", "SELECT DISTINCT c0, c1 FROM ({0}) q",
           "SELECT c0 FROM ({0}) q WHERE c0 IS NOT NULL INTERSECT SELECT c0 FROM ({0}) r", "SELECT c1 FROM ({0}) q EXCEPT ALL SELECT c1 FROM ({0}) r WHERE c0 IS NULL",
           "SELECT count(*) FROM ({0}) q WHERE c0 IN (SELECT c0 FROM ({0}) r)", "SELECT x.c0, y.c1 FROM ({0}) x LEFT JOIN ({0}) y ON x.c0 = y.c0",
           "SELECT x.c0 FROM ({0}) x WHERE NOT EXISTS (SELECT FROM ({0}) y WHERE y.c1 = x.c1)"]


def around(query, choose):
    """A query that groups the rows of this one, or combines them with themselves; `choose`: a random.Random."""
    return choose.choice(_AROUND).format(query)
