"""The result of every SQL object of the extension for each role: a role without rights, one with SELECT alone, one that may read the
server's files, and a superuser.

The objects are listed from the catalogs: one that is added and that nothing here tries makes the test fail.
"""

import pathlib

from faults.support import expect_error, require
from harness.libpq import QueryError

NOBODY, SELECTOR, READER, BOSS = "role_nobody", "role_selector", "role_reader", "postgres"
ROLES = (NOBODY, SELECTOR, READER, BOSS)
_DENIED = "42501"


def _members(session):
    """The extension's objects, as PostgreSQL describes them."""
    rows = session.run(
        "SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend WHERE deptype = 'e' "
        "AND refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pystachio') "
        # The types of views' rows, which are members of their own from PostgreSQL 17 on, give nothing that the views don't.
        "AND NOT (classid = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_type member LEFT JOIN pg_type element "
        "ON element.oid = member.typelem WHERE member.oid = objid AND (member.typrelid <> 0 OR element.typrelid <> 0)))").rows
    return {row[0] for row in rows}


def _settings(session):
    return {name: context for name, context in session.run("SELECT name, context FROM pg_settings WHERE name LIKE 'pystachio.%'").rows}


class Trial:
    """A statement that uses an object, and what it gives to each role: a SQLSTATE, or a function that judges the rows."""

    def __init__(self, statement, everybody=None, undo=None, **by_role):
        self.statement, self.undo = statement, undo
        self.expected = {role: by_role.get(role, everybody) for role in ROLES}


def _any(rows):
    return True


def _hidden(*places):
    """Rows in which these columns are NULL; there must be some."""
    return lambda rows: bool(rows) and all(row[place] is None for row in rows for place in places)


def _shown(*places):
    return lambda rows: bool(rows) and any(row[place] is not None for row in rows for place in places)


def _empty(rows):
    return not rows


def _trials(place):
    """Trials by the object that they use."""
    nation, target = f"{place.tpch}/nation.parquet", f"{place.folder}/faults-roles"
    server = "(SELECT oid FROM pg_foreign_server WHERE srvname = 'pystachio')"
    engines = "SELECT storage_paths, libraries, last_error, device, state FROM pystachio."
    cache = "SELECT path, \"column\", row_groups, hits, misses, tier FROM pystachio."
    queries = "SELECT state, rows, elapsed_ms, bytes_read FROM pystachio."
    statistics = "SELECT engine, calls, total_ms FROM pystachio."
    options = "pg_catalog.pg_foreign_table"
    return {
        "function pystachio.version()": [Trial("SELECT pystachio.version()", _any)],
        "function pystachio.functions()": [Trial("SELECT name FROM pystachio.functions()", _shown(0))],
        "function pystachio.handler()": [Trial("SELECT pystachio.handler() IS NULL", _any)],
        "function pystachio.validator(text[],oid)": [
            Trial(f"SELECT pystachio.validator('{{path={nation}}}', '{options}'::regclass)", _any,
                  **{NOBODY: _DENIED, SELECTOR: _DENIED}),
            Trial("SELECT pystachio.validator('{device=cpu}', 'pg_catalog.pg_foreign_server'::regclass)", _any)],
        "function pystachio.engine_status(oid)": [
            Trial(f"{engines}engine_status({server})", _hidden(0, 1, 2), **{BOSS: _shown(2)}),
            Trial("SELECT * FROM pystachio.engine_status(0)", _empty),
            Trial("SELECT * FROM pystachio.engine_status((SELECT oid FROM pg_foreign_server WHERE srvname = 'roles_other'))", _empty)],
        "view pystachio.engines": [Trial(f"{engines}engines WHERE server = 'pystachio'", _hidden(0, 1, 2), **{BOSS: _shown(2)})],
        "function pystachio.cache_entries(oid)": [
            Trial(f"{cache}cache_entries({server})", _hidden(0, 1, 2, 3, 4), **{BOSS: _shown(0, 1, 2, 3, 4)}),
            Trial("SELECT * FROM pystachio.cache_entries(0)", _empty),
            Trial("SELECT * FROM pystachio.cache_entries((SELECT oid FROM pg_foreign_server WHERE srvname = 'roles_other'))", _empty)],
        "view pystachio.cache": [
            Trial(f"{cache}cache", _hidden(0, 1, 2, 3, 4), **{BOSS: _shown(0, 1, 2, 3, 4)})],
        "function pystachio.timeline(bigint,text)": [
            Trial("SELECT * FROM pystachio.timeline(server => 'roles_emulated')", _empty, **{BOSS: _shown(0)}),
            # Others' queries are as if they had not been.
            Trial("SELECT * FROM pystachio.timeline(1, 'roles_emulated')", "22023", **{BOSS: _shown(0)})],
        "function pystachio.timeline_queries(text)": [
            Trial("SELECT * FROM pystachio.timeline_queries('roles_emulated')", _empty, **{BOSS: _shown(0)})],
        "function pystachio.timeline_trace(bigint,text)": [
            Trial("SELECT * FROM pystachio.timeline_trace(server => 'roles_emulated')", _hidden(0), **{BOSS: _shown(0)})],
        # Of another's queries only that they are there.
        "function pystachio.query_entries(oid)": [
            Trial(f"{queries}query_entries({server}) WHERE userid = 'postgres'::regrole", _hidden(0, 1, 2, 3), **{BOSS: _shown(0, 1, 2, 3)}),
            Trial("SELECT * FROM pystachio.query_entries(0)", _empty)],
        "view pystachio.queries": [
            Trial(f"{queries}queries WHERE server = 'pystachio' AND usename = 'postgres'", _hidden(0, 1, 2, 3), **{BOSS: _shown(0, 1, 2, 3)})],
        "function pystachio.statistics_entries(oid)": [
            Trial(f"{statistics}statistics_entries({server}) WHERE userid = 'postgres'::regrole", _hidden(0, 1, 2), **{BOSS: _shown(0, 1, 2)}),
            Trial("SELECT * FROM pystachio.statistics_entries(0)", _empty)],
        "view pystachio.statistics": [
            Trial(f"{statistics}statistics WHERE server = 'pystachio' AND userid = 'postgres'::regrole", _hidden(0, 1, 2), **{BOSS: _shown(0, 1, 2)})],
        "function pystachio.statistics_reset(text)": [
            Trial("SELECT pystachio.statistics_reset('roles_emulated')", _DENIED, **{BOSS: _any})],
        "function pystachio.tpch_query(integer)": [Trial("SELECT pystachio.tpch_query(1)", _any)],
        "function pystachio.tpch_generate(text,double precision,text[],boolean,bigint,text,text,text)": [
            Trial(f"SELECT * FROM pystachio.tpch_generate('{target}', 0.001, '{{region}}', true)", _DENIED, **{BOSS: _any})],
        "function pystachio.optimize_parquet(text,text,boolean,bigint,text,text)": [
            Trial(f"SELECT * FROM pystachio.optimize_parquet('{nation}', '{target}/optimized', true)", _DENIED, **{BOSS: _any})],
        "function pystachio.describe(text,text)": [
            Trial(f"SELECT rows FROM pystachio.describe('{nation}')", _any, **{NOBODY: _DENIED, SELECTOR: _DENIED})],
        "function pystachio.read_parquet(text,text)": [
            Trial(f"SELECT max(n_name) FROM pystachio.read_parquet('{nation}') AS t (n_name text)", _any, **{NOBODY: _DENIED, SELECTOR: _DENIED})],
        "function pystachio.read_parquet_as(anyelement,text,text)": [
            Trial(f"SELECT count(*) FROM pystachio.read_parquet_as(NULL::pystachio.own_server, '{nation}')", _any,
                  **{NOBODY: _DENIED, SELECTOR: _DENIED})],
        "function pystachio.refresh_table(regclass)": [
            Trial("SELECT pystachio.refresh_table('tpch.nation')", _DENIED, **{BOSS: _any})],
        # A server without a catalog has no views, and one of another wrapper is none.
        "function pystachio.import_views(text,text,regnamespace,boolean)": [
            Trial("SELECT * FROM pystachio.import_views('pystachio', 'sales', 'roles_own')", "22023"),
            Trial("SELECT * FROM pystachio.import_views('roles_other', 'sales', 'roles_own')", "55000")],
        "function pystachio.write_parquet(text,text,boolean,text,bigint,text,text,text,text[],text)": [
            Trial(f"SELECT * FROM pystachio.write_parquet('SELECT 1 AS a', '{target}/written/a.parquet', true)", _DENIED, **{BOSS: _any})],
        "foreign-data wrapper pystachio": [
            Trial("CREATE SERVER roles_mine FOREIGN DATA WRAPPER pystachio", _DENIED, "DROP SERVER roles_mine", **{BOSS: _any})],
        "server pystachio": [
            Trial(f"CREATE FOREIGN TABLE roles_own.mine (n_name text) SERVER pystachio OPTIONS (path '{nation}')", _any,
                  "DROP FOREIGN TABLE roles_own.mine", **{NOBODY: _DENIED, SELECTOR: _DENIED}),
            Trial(f'IMPORT FOREIGN SCHEMA "{place.tpch}" LIMIT TO (region) FROM SERVER pystachio INTO roles_own', _any,
                  "DROP FOREIGN TABLE roles_own.region", **{NOBODY: _DENIED, SELECTOR: _DENIED}),
            Trial("ALTER SERVER pystachio OWNER TO CURRENT_USER", _DENIED, **{BOSS: _any}),
            Trial("ALTER SERVER pystachio OPTIONS (ADD log_level 'info')", _DENIED,
                  "ALTER SERVER pystachio OPTIONS (DROP log_level)", **{BOSS: _any}),
            Trial("SELECT count(*) FROM tpch.nation", _any, **{NOBODY: _DENIED, READER: _DENIED}),
            Trial("ALTER FOREIGN TABLE tpch.nation OPTIONS (SET path '/etc/passwd')", _DENIED,
                  f"ALTER FOREIGN TABLE tpch.nation OPTIONS (SET path '{nation}')", **{BOSS: _any})],
        "table pystachio.server_options": [
            Trial("SELECT * FROM pystachio.server_options", _any),
            Trial("INSERT INTO pystachio.server_options VALUES ('threads', '1')", _DENIED, "ALTER SERVER pystachio OPTIONS (DROP threads)", **{BOSS: _any})],
        "view pystachio.own_server": [Trial("SELECT * FROM pystachio.own_server", _DENIED, **{BOSS: _any})],
        "function pystachio.keep_server_options()": [Trial("SELECT pystachio.keep_server_options()", _DENIED, **{BOSS: "0A000"})],
        "function pystachio.restore_server_options()": [Trial("SELECT pystachio.restore_server_options()", _DENIED, **{BOSS: "0A000"})],
        "event trigger pystachio_server_options": [
            Trial("ALTER EVENT TRIGGER pystachio_server_options DISABLE", _DENIED, "ALTER EVENT TRIGGER pystachio_server_options ENABLE", **{BOSS: _any}),
            # Owners of other wrappers' servers may change these as ever.
            Trial("ALTER SERVER roles_owned OPTIONS (ADD colour 'red')", _DENIED, "ALTER SERVER roles_owned OPTIONS (DROP colour)",
                  **{NOBODY: _any, BOSS: _any})],
        "schema pystachio": [Trial("CREATE TABLE pystachio.mine ()", _DENIED, "DROP TABLE pystachio.mine", **{BOSS: _any})],
    }


def _setup(boss, place):
    boss.run("SET client_min_messages = warning; DROP SCHEMA IF EXISTS roles_own CASCADE; CREATE SCHEMA roles_own")
    boss.run("DROP SERVER IF EXISTS roles_emulated CASCADE; DROP FOREIGN DATA WRAPPER IF EXISTS roles_other CASCADE")
    for role in ROLES[:3]:
        try:
            boss.run(f"DROP OWNED BY {role} CASCADE")
        except QueryError:
            pass
        boss.run(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA tpch TO {role}")
    boss.run(f"GRANT USAGE, CREATE ON SCHEMA roles_own TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA tpch TO {SELECTOR}; "
             f"GRANT pg_read_server_files TO {READER}")
    boss.run("CREATE SERVER roles_emulated FOREIGN DATA WRAPPER pystachio OPTIONS (device 'emulated', memory '512MB', "
             "device_memory '256MB'); GRANT USAGE ON FOREIGN SERVER roles_emulated TO PUBLIC")
    # A server of a wrapper without a handler is nothing to us.
    boss.run("CREATE FOREIGN DATA WRAPPER roles_other; CREATE SERVER roles_other FOREIGN DATA WRAPPER roles_other")
    boss.run(f"CREATE SERVER roles_owned FOREIGN DATA WRAPPER roles_other; GRANT USAGE ON FOREIGN DATA WRAPPER roles_other TO {NOBODY}; "
             f"ALTER SERVER roles_owned OWNER TO {NOBODY}")
    boss.run(f"CREATE FOREIGN TABLE roles_own.nation (n_name text) SERVER roles_emulated OPTIONS (path '{place.tpch}/nation.parquet')")
    boss.run(f"GRANT SELECT ON roles_own.nation TO {SELECTOR}")
    boss.run("SET pystachio.timeline = on; SET pystachio.engine_choice = gpu; SELECT count(*) FROM roles_own.nation WHERE n_name > 'A'")
    boss.run("SELECT max(n_name) FROM tpch.nation")
    try:
        boss.run("SELECT 1 / (n_nationkey - 4) FROM tpch.nation")
    except QueryError as error:
        require(error.sqlstate == "22012", str(error))


def _teardown(boss):
    boss.run("DROP SCHEMA roles_own CASCADE; DROP SERVER roles_emulated CASCADE; DROP FOREIGN DATA WRAPPER roles_other CASCADE")


def _try(session, trial, role, boss):
    """What is wrong with a trial as a role, or None."""
    try:
        rows = session.run(trial.statement).rows
    except QueryError as error:
        expected = trial.expected[role]
        return None if error.sqlstate == expected else f"{role}: {trial.statement}: {error}, expected {expected}"
    if trial.undo:
        boss.run(trial.undo)
    expected = trial.expected[role]
    if callable(expected) and expected(rows):
        return None
    return f"{role}: {trial.statement}: {rows[:3]}, expected {getattr(expected, '__name__', expected)}"


def every_object_is_tried(place):
    """Each function, view, server and wrapper of the extension, as each role."""
    with place.session() as boss:
        _setup(boss, place)
        trials = _trials(place)
        members = _members(boss)
        untried, gone = members - set(trials), set(trials) - members - {"schema pystachio"}
        require(not untried and not gone, f"objects that no trial uses: {sorted(untried)}; trials without an object: {sorted(gone)}")
        wrong = []
        for role in ROLES:
            with place.session(role=role) as session:
                for object_trials in trials.values():
                    wrong.extend(filter(None, (_try(session, trial, role, boss) for trial in object_trials)))
        require(not wrong, "\n    ".join([f"{len(wrong)} trials:", *wrong]))
        _teardown(boss)


def every_setting_is_tried(place):
    """A setting of the user's own may be set by every role, one of the superuser's or the server's by no other role."""
    with place.session() as boss:
        settings = _settings(boss)
        require(len(settings) > 10, f"settings: {sorted(settings)}")
        for role in ROLES:
            with place.session(role=role) as session:
                for name, context in settings.items():
                    try:
                        session.run(f"SELECT set_config('{name}', current_setting('{name}'), false)")
                        outcome = "set"
                    except QueryError as error:
                        outcome = error.sqlstate
                    if context == "user" or (context == "superuser" and role == BOSS):
                        expected = ("set",)
                    elif context == "superuser":
                        expected = (_DENIED,)
                    else:
                        # What names a path is not even shown to all.
                        expected = ("55P02",) if role == BOSS else ("55P02", _DENIED)
                    require(outcome in expected, f"{role}: {name} ({context}): {outcome}, expected {expected}")


def errors_and_timelines_are_ones_own(place):
    """A role sees the error and the timeline of its own last query, and not those of others."""
    errors = "SELECT last_error FROM pystachio.engines WHERE server = 'pystachio'"
    queries = "SELECT count(*) FROM pystachio.timeline_queries('roles_emulated')"
    with place.session() as boss:
        _setup(boss, place)
        with place.session(role=SELECTOR) as selector, place.session(role=NOBODY) as nobody:
            expect_error(selector, "SELECT sqrt(r_regionkey - 3) FROM region", ["2201F"])
            require("square root" in (selector.run(errors).scalar() or ""), f"its own: {selector.run(errors).rows}")
            require("square root" in (boss.run(errors).scalar() or ""), "the superuser sees everybody's")
            require(nobody.run(errors).rows == [(None,)], f"another's: {nobody.run(errors).rows}")
            selector.run("SET pystachio.timeline = on; SET pystachio.engine_choice = gpu")
            selector.run("SELECT max(n_name) FROM roles_own.nation")
            require(selector.run(queries).scalar() == "1", f"its own timeline: {selector.run(queries).rows}")
            require(selector.run("SELECT count(*) > 0 FROM pystachio.timeline(server => 'roles_emulated')").scalar() == "t", "its rows")
            require(nobody.run(queries).scalar() == "0", "another's timeline")
            # A member of a role has its privileges, and sees what is its own.
            boss.run(f"GRANT {SELECTOR} TO {NOBODY}")
            require(nobody.run(queries).scalar() == "1", "a member's")
            boss.run(f"REVOKE {SELECTOR} FROM {NOBODY}; GRANT pg_read_all_stats TO {NOBODY}")
            require(int(nobody.run(queries).scalar()) >= 2, "the role that may read all statistics")
            require("square root" in (nobody.run(errors).scalar() or ""), "and all errors")
        _teardown(boss)


def files_are_not_named_by_others(place):
    """A role that may use a table learns no path from it, and one that owns it can't point it elsewhere."""
    with place.session() as boss:
        _setup(boss, place)
        with place.session(role=SELECTOR) as selector:
            shown = "\n".join(row[0] for row in selector.run("EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM tpch.nation").rows)
            require(str(pathlib.Path(place.tpch).parent) not in shown, f"EXPLAIN names the file:\n{shown}")
        _teardown(boss)


TESTS = [every_object_is_tried, every_setting_is_tried, errors_and_timelines_are_ones_own, files_are_not_named_by_others]
