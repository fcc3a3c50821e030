"""Rights on views whose queries an engine runs: they are checked as those of tables are, whatever stands around a view.

From PostgreSQL 16 on a view that was expanded is a subquery's own entry in the range table; what an engine absorbs must carry it
along. The forms hold on every version.
"""

from faults.support import expect_error, require
from harness.libpq import QueryError

_DENIED = ["42501"]
ROLE = "stranger"
# What reads a view in a part of the query that an engine may absorb. {v}: a view of nation with its columns.
FORMS = [
    "SELECT * FROM {v}",
    "SELECT count(*) FROM {v}",
    "SELECT * FROM (SELECT n_regionkey, count(*) FROM {v} GROUP BY 1) s",
    "SELECT count(*) FROM (SELECT n_regionkey, count(*) FROM {v} GROUP BY 1) s",
    "SELECT * FROM (SELECT DISTINCT n_name FROM {v}) s",
    "SELECT * FROM (SELECT n_name FROM {v} ORDER BY n_name LIMIT 3) s",
    "SELECT * FROM (SELECT n_name FROM {v} OFFSET 0) s WHERE n_name > 'B'",
    "SELECT max(c) FROM (SELECT n_regionkey, count(*) AS c FROM {v} GROUP BY 1 HAVING count(*) > 1) s",
    "SELECT * FROM tpch.region JOIN (SELECT n_regionkey, count(*) FROM {v} GROUP BY 1) s ON n_regionkey = r_regionkey",
    "SELECT * FROM tpch.region LEFT JOIN (SELECT n_regionkey, count(*) FROM {v} GROUP BY 1) s ON n_regionkey = r_regionkey",
    "SELECT * FROM tpch.region JOIN (SELECT DISTINCT n_regionkey FROM {v}) s ON n_regionkey = r_regionkey",
    "SELECT * FROM tpch.region WHERE r_regionkey IN (SELECT n_regionkey FROM {v})",
    "SELECT * FROM tpch.region WHERE r_regionkey IN (SELECT n_regionkey FROM {v} GROUP BY 1 HAVING count(*) > 1)",
    "SELECT * FROM tpch.region WHERE r_regionkey NOT IN (SELECT n_regionkey FROM {v})",
    "SELECT * FROM tpch.region WHERE EXISTS (SELECT 1 FROM {v} WHERE n_regionkey = r_regionkey)",
    "SELECT * FROM tpch.region WHERE r_regionkey > (SELECT avg(n_regionkey) FROM {v})",
    "SELECT * FROM tpch.region WHERE r_regionkey < (SELECT count(*) FROM {v} WHERE n_regionkey = r_regionkey)",
    "SELECT r_name, (SELECT max(n_name) FROM {v} WHERE n_regionkey = r_regionkey) FROM tpch.region",
    "WITH w AS (SELECT n_regionkey, count(*) AS c FROM {v} GROUP BY 1) SELECT * FROM w",
    "WITH w AS (SELECT n_regionkey, count(*) AS c FROM {v} GROUP BY 1) SELECT * FROM w a JOIN w b USING (c)",
    "WITH w AS MATERIALIZED (SELECT * FROM {v}) SELECT count(*) FROM w",
    "SELECT n_regionkey FROM {v} UNION SELECT r_regionkey FROM tpch.region",
    "SELECT count(*) FROM (SELECT n_regionkey FROM {v} UNION ALL SELECT r_regionkey FROM tpch.region) u",
    "SELECT r_regionkey FROM tpch.region EXCEPT SELECT n_regionkey FROM {v}",
    "SELECT r_regionkey FROM tpch.region INTERSECT SELECT n_regionkey FROM {v}",
    "SELECT * FROM (SELECT * FROM (SELECT n_regionkey, count(*) AS c FROM {v} GROUP BY 1) a WHERE c > 1 LIMIT 2) b",
    "SELECT n_regionkey, count(*) FROM {v} GROUP BY ROLLUP (n_regionkey)",
    "SELECT s.c FROM tpch.region, LATERAL (SELECT count(*) AS c FROM {v} WHERE n_regionkey = r_regionkey) s",
    "COPY (SELECT n_regionkey, count(*) FROM {v} GROUP BY 1) TO STDOUT",
    "COPY (SELECT * FROM (SELECT DISTINCT n_name FROM {v}) s) TO STDOUT",
]
# Bodies of views; each has the columns n_name and n_regionkey.
VIEWS = {
    "plain": ("", "SELECT n_name, n_regionkey FROM tpch.nation"),
    "grouped": ("", "SELECT n_name, n_regionkey FROM tpch.nation GROUP BY 1, 2"),
    "barrier": ("WITH (security_barrier)", "SELECT n_name, n_regionkey FROM tpch.nation WHERE n_regionkey < 4"),
    "nested": ("", "SELECT n_name, n_regionkey FROM seen.grouped"),
    "joined": ("", "SELECT n_name, n_regionkey FROM tpch.nation JOIN tpch.region ON r_regionkey = n_regionkey"),
}


def _setup(boss):
    boss.run("SET client_min_messages = warning; DROP SCHEMA IF EXISTS seen CASCADE")
    try:
        boss.run(f"DROP OWNED BY {ROLE} CASCADE")
    except QueryError:
        pass
    boss.run(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN; CREATE SCHEMA seen")
    boss.run(f"GRANT USAGE ON SCHEMA tpch, seen TO {ROLE}; GRANT SELECT ON tpch.region TO {ROLE}")
    for name, (options, body) in VIEWS.items():
        boss.run(f"CREATE VIEW seen.{name} {options} AS {body}")


def _forms():
    for form in FORMS:
        for name in VIEWS:
            yield form.replace("{v}", f"seen.{name}"), name


def views_are_checked(place):
    """A role without rights on a view can't read it by any form of query; a role with them needs none on the tables below."""
    with place.session() as boss:
        _setup(boss)
        with place.session(role=ROLE) as stranger:
            for query, name in _forms():
                expect_error(stranger, query, _DENIED, [name])
            boss.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA seen TO {ROLE}")
            for query, _ in _forms():
                stranger.run(query)
            boss.run(f"REVOKE SELECT ON seen.grouped FROM {ROLE}")
            for form in FORMS:
                stranger.run(form.replace("{v}", "seen.nested"))
        boss.run("DROP SCHEMA seen CASCADE")


def columns_of_views_are_checked(place):
    """A right on some columns is none on the others, however deep they are read."""
    with place.session() as boss:
        _setup(boss)
        boss.run(f"GRANT SELECT (n_regionkey) ON seen.grouped, seen.plain TO {ROLE}")
        with place.session(role=ROLE) as stranger:
            for view in ("seen.grouped", "seen.plain"):
                for query in (
                    "SELECT * FROM (SELECT n_name, count(*) FROM {v} GROUP BY 1) s",
                    "SELECT count(*) FROM (SELECT DISTINCT n_name FROM {v}) s",
                    "SELECT * FROM tpch.region JOIN (SELECT n_regionkey, max(n_name) FROM {v} GROUP BY 1) s ON n_regionkey = r_regionkey",
                    "SELECT * FROM tpch.region WHERE r_name IN (SELECT n_name FROM {v} GROUP BY 1)",
                    "SELECT * FROM tpch.region WHERE r_name NOT IN (SELECT n_name FROM {v})",
                    "COPY (SELECT max(n_name) FROM {v}) TO STDOUT",
                ):
                    expect_error(stranger, query.replace("{v}", view), _DENIED, [view.split(".")[1]])
                stranger.run(f"SELECT * FROM (SELECT n_regionkey, count(*) FROM {view} GROUP BY 1) s")
        boss.run("DROP SCHEMA seen CASCADE")


def cached_plans_are_checked(place):
    """What a privileged role has prepared, or planned within a function, a role without rights can't execute after SET ROLE."""
    with place.session() as boss:
        _setup(boss)
        queries = [(query, name) for query, name in _forms() if not query.startswith("COPY")]
        for mode in ("force_generic_plan", "auto"):
            with place.session(f"SET plan_cache_mode = {mode}") as session:
                for number, (query, _) in enumerate(queries):
                    session.run(f"PREPARE q{number} AS {query}; EXECUTE q{number}")
                session.run(f"SET ROLE {ROLE}")
                for number, (_, name) in enumerate(queries):
                    expect_error(session, f"EXECUTE q{number}", _DENIED, [name])
        for number, (query, _) in enumerate(queries):
            # All columns are read: core removes a join of which none is, and 16.2 forgets the views in it over heap tables too.
            boss.run(f"CREATE FUNCTION seen.f{number}() RETURNS bigint LANGUAGE plpgsql AS "
                     f"$f$DECLARE n bigint; BEGIN SELECT count(counted::text) INTO n FROM ({query}) counted; RETURN n; END$f$")
        with place.session("SET plan_cache_mode = force_generic_plan") as session:
            for number in range(len(queries)):
                session.run(f"SELECT seen.f{number}()")
            session.run(f"SET ROLE {ROLE}")
            for number, (_, name) in enumerate(queries):
                expect_error(session, f"SELECT seen.f{number}()", _DENIED, [name])
        boss.run("DROP SCHEMA seen CASCADE")


def views_are_locked(place):
    """A running query holds locks on the views that it reads, and a plan is made anew when one is replaced."""
    with place.session() as boss, place.session() as other:
        _setup(boss)
        boss.run("SET plan_cache_mode = force_generic_plan")
        boss.run("PREPARE p AS SELECT count(*) FROM (SELECT n_regionkey, count(*) FROM seen.grouped GROUP BY 1) s")
        require(boss.run("EXECUTE p").scalar() == "5", "five regions")
        boss.run("BEGIN; EXECUTE p")
        locked = "SELECT count(*) FROM pg_locks WHERE relation = 'seen.grouped'::regclass"
        require(other.run(locked).scalar() == "1", "the view is locked until the transaction ends")
        boss.run("COMMIT")
        other.run("CREATE OR REPLACE VIEW seen.grouped AS SELECT n_name, n_regionkey FROM tpch.nation WHERE n_regionkey < 2 GROUP BY 1, 2")
        require(boss.run("EXECUTE p").scalar() == "2", "the view as it is now")
        boss.run("DROP SCHEMA seen CASCADE")


TESTS = [views_are_checked, columns_of_views_are_checked, cached_plans_are_checked, views_are_locked]
