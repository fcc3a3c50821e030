"""Row security and security barriers: what they hide, no condition of a user sees, by rows, by errors or by what EXPLAIN counts.

Every query runs over a table whose partitions are heap and over tables whose partitions are foreign, under the same policies:
rows, SQLSTATEs and texts of errors must be the same. Most conditions fail for rows that the policies hide, and for no others.
"""

from faults.support import expect_error, require
from harness.libpq import QueryError

# The reader is called as the only nation that it may see: n_nationkey 6, n_regionkey 3.
ROLE = "FRANCE"
# Where the rows are: in a heap, and in files that each engine reads. `emulated` is the GPU engine.
TABLES = {"heap": "secure.nation_heap", "mixed": "secure.nation_mixed", "foreign": "secure.nation_foreign",
          "emulated": "secure.nation_emulated"}
# Where a server has a GPU engine, that runs what it can.
_GPU = "SET pystachio.engine_choice = gpu"
# Each fails for some row, but not for n_nationkey 6. Those of SQL first, then what PostgreSQL must evaluate itself.
CONDITIONS = [
    "1 / (n_nationkey - 4) >= 0",
    "nullif(n_name, 'FRANCE')::int IS NULL",
    "(n_nationkey::int - 6) * 2147483647 = 0",
    "sqrt((n_nationkey - 6)::float8) = 0",
    "substr(n_name, 1, n_nationkey::int - 6) = ''",
    "n_regionkey = 3 AND 1 / (n_nationkey - 4) >= 0",
    "n_nationkey = 6 OR 1 / (n_nationkey - 4) > 100",
    "1 / (n_nationkey - 4) >= 0 AND nullif(n_name, 'FRANCE')::int IS NULL",
    "CASE WHEN n_regionkey = 3 THEN 1 / (n_nationkey - 7) END < 0",
    "secure.tells(n_name)",
    "secure.tells(n_name) AND 1 / (n_nationkey - 4) >= 0",
    "1 / (n_nationkey - $1::int) >= 0",
]
QUERIES = [
    "SELECT count(*) FROM {t} WHERE {c}",
    "SELECT n_name, n_comment FROM {t} WHERE {c} ORDER BY n_name",
    "SELECT n_regionkey, max(n_name) FROM {t} WHERE {c} GROUP BY n_regionkey ORDER BY 1",
    "SELECT n_name, r_name FROM {t} JOIN tpch.region ON r_regionkey = n_regionkey WHERE {c}",
    "SELECT r_name, n_name FROM tpch.region LEFT JOIN {t} ON r_regionkey = n_regionkey AND {c} ORDER BY 1, 2",
    "SELECT r_name FROM tpch.region WHERE EXISTS (SELECT 1 FROM {t} WHERE n_regionkey = r_regionkey AND {c})",
    "SELECT count(*) FROM (SELECT * FROM {t} WHERE {c} UNION ALL SELECT * FROM {t}) u",
    "WITH w AS MATERIALIZED (SELECT * FROM {t}) SELECT count(*) FROM w WHERE {c}",
    "SELECT n_name FROM {t} WHERE {c} ORDER BY n_comment LIMIT 1",
    "SELECT count(*) FROM {t} WHERE {c} AND n_comment LIKE '%e%' AND n_name = 'FRANCE'",
]
# Expressions that fail for hidden rows anywhere but in WHERE.
EXPRESSIONS = [
    "SELECT n_name, 1 / (n_nationkey - 4) FROM {t}",
    "SELECT sum(1 / (n_nationkey - 4)) FROM {t}",
    "SELECT sum(1 / (n_nationkey - 4)) FILTER (WHERE n_regionkey = 3) FROM {t}",
    "SELECT 1 / (n_nationkey - 4), count(*) FROM {t} GROUP BY 1",
    "SELECT DISTINCT nullif(n_name, 'FRANCE')::int FROM {t}",
    "SELECT n_name FROM {t} ORDER BY 1 / (n_nationkey - 4) LIMIT 3",
    "SELECT n_name, r_name FROM {t} JOIN tpch.region ON r_regionkey = 1 / (n_nationkey - 4)",
    "SELECT n_name, count(*) FROM {t} JOIN tpch.orders ON o_custkey = coalesce(nullif(n_name, 'FRANCE')::int, 370) GROUP BY 1",
    "SELECT count(*) FROM tpch.orders WHERE o_custkey IN (SELECT coalesce(nullif(n_name, 'FRANCE')::int, 370) FROM {t})",
    "SELECT count(*) FROM tpch.orders WHERE o_custkey NOT IN (SELECT 1 / (n_nationkey - 4) FROM {t})",
    "SELECT * FROM (SELECT n_regionkey AS k, count(*) FROM {t} GROUP BY 1) s WHERE 1 / (k - 4) < 0",
    "SELECT r_name, (SELECT max(1 / (n_nationkey - 4)) FROM {t} WHERE n_regionkey = r_regionkey) FROM tpch.region ORDER BY 1",
    "SELECT a.n_name FROM {t} a JOIN {t} b ON 1 / (a.n_nationkey - 4) = 1 / (b.n_nationkey - 4)",
    "SELECT a.n_name FROM {t} a LEFT JOIN {t} b ON a.n_nationkey < 1 / (b.n_nationkey - 4) + 1",
    "COPY (SELECT n_name, 1 / (n_nationkey - 4) FROM {t}) TO STDOUT",
]
POLICIES = {
    "of the current user": ["USING (n_name = current_user)"],
    "that is NULL": ["USING (nullif(n_regionkey, 4::bigint) = 3 AND n_name = 'FRANCE')"],
    "of several levels, one of which fails for rows that another hides": [
        "AS RESTRICTIVE USING (n_nationkey > 5)", "USING (100 / (n_nationkey - 5) > 50)"],
    "that PostgreSQL evaluates": ["USING (secure.is_own(n_name))"],
    "one half of which PostgreSQL evaluates": ["AS RESTRICTIVE USING (secure.is_own(n_name))", "USING (n_regionkey = 3)"],
    "with a subquery": ["USING (n_name IN (SELECT nation FROM secure.members WHERE member = current_user))"],
    "that hides all": ["USING (n_name = 'ATLANTIS')"],
}


def _setup(boss, place):
    boss.run("SET client_min_messages = warning")
    boss.run("DROP SCHEMA IF EXISTS secure CASCADE")
    boss.run("DROP SERVER IF EXISTS secure_emulated CASCADE")
    for role in (ROLE, "GERMANY"):
        try:
            boss.run(f'DROP OWNED BY "{role}" CASCADE')
        except QueryError:
            pass
        boss.run(f'DROP ROLE IF EXISTS "{role}"; CREATE ROLE "{role}" LOGIN; GRANT USAGE ON SCHEMA tpch TO "{role}"')
        boss.run(f'GRANT SELECT ON tpch.region, tpch.orders TO "{role}"')
    boss.run("CREATE SCHEMA secure; CREATE TABLE secure.members (member name, nation text)")
    boss.run("INSERT INTO secure.members VALUES ('FRANCE', 'FRANCE'), ('GERMANY', 'CHINA')")
    boss.run("CREATE FUNCTION secure.is_own(text) RETURNS boolean LANGUAGE plpgsql STABLE COST 1000 AS "
             "$$BEGIN RETURN $1 = current_user; END$$")
    # Cheap, so that PostgreSQL would evaluate it first if levels did not forbid it.
    boss.run("CREATE FUNCTION secure.tells(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS "
             "$$BEGIN IF $1 <> 'FRANCE' THEN RAISE EXCEPTION 'seen: %', $1; END IF; RETURN true; END$$")
    boss.run("CREATE SERVER secure_emulated FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '512MB', "
             "device_memory '256MB')")
    boss.run(f'IMPORT FOREIGN SCHEMA "{place.tpch}" LIMIT TO (region, orders) FROM SERVER secure_emulated INTO secure')
    for name in ("region", "orders"):
        boss.run(f"ALTER FOREIGN TABLE secure.{name} RENAME TO emulated_{name}")
    columns = "n_nationkey bigint, n_name text, n_regionkey bigint, n_comment text"
    for kind, table in TABLES.items():
        boss.run(f"CREATE TABLE {table} ({columns}) PARTITION BY RANGE (n_nationkey)")
        if kind == "heap":
            boss.run(f"CREATE TABLE {table}_all PARTITION OF {table} DEFAULT; INSERT INTO {table} SELECT * FROM tpch.nation")
        else:
            server = "secure_emulated" if kind == "emulated" else "pystachio"
            boss.run(f"CREATE FOREIGN TABLE {table}_all PARTITION OF {table} DEFAULT SERVER {server} "
                     f"OPTIONS (path '{place.tpch}/nation.parquet')")
        if kind in ("heap", "mixed"):
            boss.run(f"CREATE TABLE {table}_more PARTITION OF {table} FOR VALUES FROM (1000) TO (2000)")
        boss.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; ANALYZE {table}")
    boss.run("GRANT USAGE ON SCHEMA secure TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA secure TO PUBLIC")


def _set_policies(boss, definitions):
    for table in TABLES.values():
        boss.run(f"DO $$ DECLARE p name; BEGIN FOR p IN SELECT polname FROM pg_policy WHERE polrelid = '{table}'::regclass "
                 f"LOOP EXECUTE format('DROP POLICY %I ON {table}', p); END LOOP; END $$")
        for place, definition in enumerate(definitions):
            boss.run(f"CREATE POLICY p{place} ON {table} {definition}")


def _outcome(session, query):
    """The rows of a query without their order, or its error."""
    try:
        if "$1" not in query:
            return sorted(map(str, session.run(query).rows))
        session.run(f"PREPARE asked AS {query}")
        try:
            return sorted(map(str, session.run("EXECUTE asked (4)").rows))
        finally:
            session.run("DEALLOCATE asked")
    except QueryError as error:
        return f"{error.sqlstate}: {error.message}"


def _queries():
    for condition in CONDITIONS:
        for query in QUERIES:
            yield query.replace("{c}", condition)
    yield from EXPRESSIONS


def _there(query, kind):
    return query.replace("tpch.", "secure.emulated_") if kind == "emulated" else query


def _compare(session, name, relations):
    """Every query over the relations gives what it gives over the heap."""
    differences = []
    for query in _queries():
        expected = _outcome(session, query.replace("{t}", relations["heap"]))
        for kind, relation in relations.items():
            if kind == "heap":
                continue
            # All of a query's tables are of the engine that is tried.
            got = _outcome(session, _there(query, kind).replace("{t}", relation))
            # Errors of tables name the table.
            if str(got).replace(relation, "") != str(expected).replace(relations["heap"], ""):
                differences.append(f"{name}, {kind}: {query}\n      heap: {expected}\n      here: {got}")
    require(not differences, f"{len(differences)} differences:\n    " + "\n    ".join(differences[:20]))


def hidden_rows_stay_hidden(place):
    """Under every policy, and for every condition that fails for hidden rows, foreign partitions give what heap ones give."""
    with place.session() as boss:
        _setup(boss, place)
        for name, definitions in POLICIES.items():
            _set_policies(boss, definitions)
            for mode in ("auto", "force_generic_plan"):
                with place.session(f"SET plan_cache_mode = {mode}", _GPU, role=ROLE) as reader:
                    _compare(reader, f"policy {name}", TABLES)
        _teardown(boss)


def barriers_hold(place):
    """Security-barrier views over foreign tables: rows, groups and joins below the barrier."""
    bodies = {
        "rows": "SELECT * FROM {t} WHERE n_name = current_user",
        "groups": "SELECT max(n_nationkey) AS n_nationkey, n_name, max(n_regionkey) AS n_regionkey, max(n_comment) AS n_comment "
                  "FROM {t} GROUP BY n_name HAVING max(n_nationkey) = 6",
        "joins": "SELECT n_nationkey, n_name, n_regionkey, n_comment FROM {t} JOIN tpch.region ON r_regionkey = n_regionkey "
                 "WHERE r_name = 'EUROPE' AND n_name = 'FRANCE'",
        "limits": "SELECT * FROM {t} WHERE n_regionkey = 3 ORDER BY n_nationkey LIMIT 1",
    }
    with place.session() as boss:
        _setup(boss, place)
        for name, body in bodies.items():
            views = {}
            for kind, table in TABLES.items():
                views[kind] = f"secure.barrier_{name}_{kind}"
                boss.run(f"CREATE VIEW {views[kind]} WITH (security_barrier) AS {_there(body, kind).replace('{t}', table)}")
                boss.run(f"GRANT SELECT ON {views[kind]} TO PUBLIC")
            with place.session(_GPU, role=ROLE) as reader:
                _compare(reader, f"barrier over {name}", views)
        _teardown(boss)


def counts_tell_nothing(place):
    """EXPLAIN ANALYZE shows no count of hidden rows, neither the engine's nor PostgreSQL's, except to roles that may read statistics."""
    queries = ["SELECT count(*) FROM {t} WHERE n_regionkey = 4", "SELECT n_name FROM {t} WHERE n_nationkey < 5",
               "SELECT n_comment FROM {t} WHERE n_name LIKE 'E%'",
               "SELECT count(*) FROM {t} JOIN tpch.region ON r_regionkey = n_regionkey AND r_name = 'AFRICA'"]
    words = ("Rows Removed by Filter", "Row Groups", "Bytes Read", "actual=", "Column Cache", "Engine Operators")
    with place.session() as boss:
        _setup(boss, place)
        for name in ("of the current user", "that PostgreSQL evaluates"):
            _set_policies(boss, POLICIES[name])
            for query in queries:
                for kind in ("foreign", "emulated"):
                    for options in ("ANALYZE, VERBOSE", "VERBOSE"):
                        explain = f"EXPLAIN ({options}) {query.replace('{t}', TABLES[kind])}"
                        with place.session(role=ROLE) as reader:
                            lines = [row[0] for row in reader.run(explain).rows]
                        told = [line for line in lines for word in words if word in line]
                        require(not told, f"policy {name}, {kind}: {explain} tells {told}")
        boss.run(f'GRANT pg_read_all_stats TO "{ROLE}"')
        with place.session(role=ROLE) as reader:
            lines = [row[0] for row in reader.run(f"EXPLAIN (ANALYZE) SELECT count(*) FROM {TABLES['foreign']}").rows]
            require(any("Row Groups" in line for line in lines), f"a role that may read statistics sees counts: {lines}")
        _teardown(boss)


def plans_follow_the_role(place):
    """A cached plan is of the role that runs it; SECURITY DEFINER functions see what their owner sees."""
    with place.session() as boss:
        _setup(boss, place)
        _set_policies(boss, POLICIES["of the current user"])
        boss.run('ALTER ROLE "GERMANY" NOBYPASSRLS')
        for kind, table in TABLES.items():
            boss.run(f"CREATE FUNCTION secure.owned_{kind}() RETURNS TABLE (n text) LANGUAGE plpgsql SECURITY DEFINER AS "
                     f"$$BEGIN RETURN QUERY SELECT n_name FROM {table} WHERE n_nationkey::int >= 0; END$$")
            boss.run(f"CREATE FUNCTION secure.invoked_{kind}() RETURNS TABLE (n text) LANGUAGE plpgsql AS "
                     f"$$BEGIN RETURN QUERY SELECT n_name FROM {table} WHERE 1 / (n_nationkey - 4) <= 0; END$$")
            # Owned by a role that is not exempt: the definer's policy, not the caller's.
            boss.run(f'ALTER FUNCTION secure.owned_{kind}() OWNER TO "GERMANY"')
            for mode in ("force_generic_plan", "force_custom_plan"):
                with place.session(f"SET plan_cache_mode = {mode}") as session:
                    session.run(f"PREPARE p AS SELECT n_name FROM {table} WHERE n_nationkey >= 0 ORDER BY 1")
                    for role, names in (("postgres", 25), (ROLE, [ROLE]), ("GERMANY", ["GERMANY"]), (ROLE, [ROLE]), ("postgres", 25)):
                        session.run(f'SET ROLE "{role}"')
                        rows = [row[0] for row in session.run("EXECUTE p").rows]
                        require(rows == names or len(rows) == names, f"{kind}, {mode}: {role} sees {rows}")
                        owned = [row[0] for row in session.run(f"SELECT * FROM secure.owned_{kind}()").rows]
                        require(owned == ["GERMANY"], f"{kind}: a function of GERMANY's gives {role} {owned}")
                        if role != "postgres":
                            invoked = [row[0] for row in session.run(f"SELECT * FROM secure.invoked_{kind}()").rows]
                            require(invoked == [role], f"{kind}: {role} calls a function that gives {invoked}")
        _teardown(boss)


def policies_of_the_current_user_leave_postgres(place):
    """`owner = current_user` is the scan's own condition, and so is its like with other names; a query is one scan."""
    with place.session() as boss:
        _setup(boss, place)
        table = TABLES["foreign"]
        for condition in ("n_name = current_user", "current_user = n_name", "n_name >= session_user AND n_name <= current_user",
                          "n_name IN (current_user, current_database())", "n_name <> 'none'::name AND n_name = user",
                          "n_name::varchar(25) = current_role"):
            _set_policies(boss, [f"USING ({condition})"])
            with place.session("SET pystachio.strict = on", role=ROLE) as reader:
                rows = reader.run(f"SELECT n_name, count(*) FROM {table} WHERE n_nationkey::int % 2 = 0 GROUP BY 1").rows
            require(rows == [(ROLE, "1")], f"{condition}: {rows}")
        # Implicit collations that contradict each other: PostgreSQL can't compare, and says so.
        columns = 'n_name text COLLATE "POSIX", n_comment text COLLATE "C"'
        boss.run(f"CREATE TABLE secure.collated_heap ({columns}); INSERT INTO secure.collated_heap VALUES ('a', 'b')")
        boss.run(f"CREATE FOREIGN TABLE secure.collated ({columns}) SERVER pystachio OPTIONS (path '{place.tpch}/nation.parquet')")
        for relation in ("secure.collated_heap", "secure.collated"):
            for condition in ("n_name = n_comment", "n_name = current_user", "n_name < n_comment", "n_name IN (n_comment, 'a')"):
                expect_error(boss, f"SELECT count(*) FROM {relation} WHERE {condition}", ["42P22"], ["collation"])
        _teardown(boss)


def foreign_tables_have_no_policies(place):
    """PostgreSQL gives policies to tables only: not to foreign ones, whatever their wrapper."""
    with place.session() as boss:
        _setup(boss, place)
        foreign = f"{TABLES['foreign']}_all"
        expect_error(boss, f"ALTER FOREIGN TABLE {foreign} ENABLE ROW LEVEL SECURITY", ["42809"])
        expect_error(boss, f"CREATE POLICY p ON {foreign} USING (false)", ["42809"])
        # Named itself, a partition has no policy of its parent's: its own rights protect it.
        _set_policies(boss, POLICIES["that hides all"])
        boss.run(f"REVOKE SELECT ON {foreign} FROM PUBLIC")
        with place.session(role=ROLE) as reader:
            require(reader.run(f"SELECT count(*) FROM {TABLES['foreign']}").scalar() == "0", "through its parent")
            expect_error(reader, f"SELECT count(*) FROM {foreign}", ["42501"])
        _teardown(boss)


def conditions_guard_what_is_above(place):
    """Without any policy: what a condition drops is not computed above it, whatever the engine moves about."""
    queries = [
        "SELECT o_orderkey FROM {s}.orders WHERE o_custkey <> 370 ORDER BY 1 / (o_custkey - 370), o_orderkey LIMIT 3",
        "SELECT count(*) FROM {s}.orders JOIN {s}.nation ON n_nationkey = 10 / (o_custkey - 370) WHERE o_custkey <> 370",
        "SELECT max(n_regionkey), 1 / (max(n_regionkey) * count(*) * (min(n_nationkey) + 1)) FROM {s}.nation GROUP BY n_regionkey "
        "HAVING max(n_regionkey) <> 0",
        "SELECT count(*) FROM {s}.nation a JOIN {s}.nation b "
        "ON CASE WHEN a.n_nationkey <> 4 THEN 10 / (a.n_nationkey - 4) > b.n_nationkey END",
        "SELECT count(*) FROM {s}.nation a LEFT JOIN {s}.region b "
        "ON CASE WHEN a.n_nationkey <> 4 THEN 10 / (a.n_nationkey - 4) > b.r_regionkey END",
    ]
    with place.session() as boss:
        for query in queries:
            expected = _outcome(boss, query.replace("{s}", "tpch_heap"))
            require(isinstance(expected, list), f"over heap: {query}: {expected}")
            got = _outcome(boss, query.replace("{s}", "tpch"))
            require(got == expected, f"{query}: {got}, over heap {expected}")


def _teardown(boss):
    boss.run("DROP SCHEMA secure CASCADE; DROP SERVER secure_emulated CASCADE")


TESTS = [hidden_rows_stay_hidden, barriers_hold, counts_tell_nothing, plans_follow_the_role,
         policies_of_the_current_user_leave_postgres, foreign_tables_have_no_policies, conditions_guard_what_is_above]
