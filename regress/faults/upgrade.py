"""An extension that an earlier version made: it works with this library, and the update makes the objects of this version.

`regress/upgrade/` has the install scripts of earlier versions, as they were.
"""

import os
import pathlib
import signal
import subprocess

from faults.support import expect_error, require, wait_until
from harness.libpq import Session

_SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "upgrade"
_PROTOCOL_VIOLATION = "08P01"
# Answers every connection as an engine of another version: `newer` with a greeting, `older` with the frame of a time before greetings.
_OTHER_ENGINE = """#!/usr/bin/env python3
import os, signal, socket, struct, sys
options = dict(option[2:].split("=", 1) for option in sys.argv[1:])
version = b"99.1"
answers = {"newer": b"pystach\\n" + struct.pack("<IIH", 9999, os.getpid(), len(version)) + version,
           "older": struct.pack("<IB", 64, 0) + bytes(64)}
listener = socket.socket(socket.AF_UNIX)
listener.bind(options["socket"])
listener.listen()
while True:
    client, _ = listener.accept()
    if client.recv(4096):
        client.sendall(answers[options["name"]])
    client.close()
"""

# What is in the extension, with all that an update could leave otherwise.
_OBJECTS = {
    "members": "SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass "
               "AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pystachio')",
    "functions": "SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid), prosrc, provolatile, proisstrict, proparallel, proacl::text, "
                 "obj_description(oid, 'pg_proc') FROM pg_proc WHERE pronamespace = 'pystachio'::regnamespace",
    "views": "SELECT relname, pg_get_viewdef(oid), relacl::text, obj_description(oid, 'pg_class') FROM pg_class "
             "WHERE relkind = 'v' AND relnamespace = 'pystachio'::regnamespace",
    "columns": "SELECT attrelid::regclass::text, attnum, attname, format_type(atttypid, atttypmod) FROM pg_attribute "
               "WHERE attnum > 0 AND attrelid IN (SELECT oid FROM pg_class WHERE relkind = 'v' AND relnamespace = 'pystachio'::regnamespace)",
    "tables": "SELECT relname, relacl::text, obj_description(oid, 'pg_class') FROM pg_class "
              "WHERE relkind = 'r' AND relnamespace = 'pystachio'::regnamespace",
    "triggers": "SELECT tgname, tgrelid::regclass::text, tgfoid::regprocedure::text, tgtype FROM pg_trigger "
                "UNION ALL SELECT evtname, evtevent, evtfoid::regprocedure::text, NULL FROM pg_event_trigger",
    "servers": "SELECT srvname, srvoptions::text, srvacl::text, obj_description(oid, 'pg_foreign_server') FROM pg_foreign_server",
}


def _objects(session):
    return {name: sorted(session.run(query).rows, key=str) for name, query in _OBJECTS.items()}


def update_from_earlier_versions(place):
    """Each version's script is installed beside this one's; its views work with this library before the update, and after it."""
    share = pathlib.Path(place.watch.run("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'").scalar(), "extension")
    scripts = sorted(_SCRIPTS.glob("pystachio--*.sql"))
    require(len(scripts) >= 2, "there are earlier versions")
    for script in scripts:
        version = script.stem.split("--")[1]
        installed = share / script.name
        installed.write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
        try:
            for has_views in (False, True):
                _update(place, version, has_views)
        finally:
            installed.unlink()


def _update(place, version, has_views):
    """Updates a database. With views of a user's own over those of the extension these are there afterwards, with their rights."""
    for database in ("updated", "anew"):
        place.watch.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        place.watch.run(f"CREATE DATABASE {database}")
    limits = ["SET statement_timeout = '300s'", "SET client_min_messages = warning"]
    with Session(f"{place.base} dbname=anew", limits) as session:
        session.run("CREATE EXTENSION pystachio")
        session.run("ALTER SERVER pystachio OPTIONS (ADD memory '256MB')")
        expected = _objects(session)
        current = session.run("SELECT extversion FROM pg_extension WHERE extname = 'pystachio'").scalar()
    with Session(f"{place.base} dbname=updated", limits) as session:
        session.run(f"CREATE EXTENSION pystachio VERSION '{version}'")
        require(session.run("SELECT pystachio.version()").scalar() == current, "the library is of this version")
        session.run("ALTER SERVER pystachio OPTIONS (ADD memory '256MB')")
        session.run(f"CREATE FOREIGN TABLE nation (n_nationkey bigint, n_name text) SERVER pystachio OPTIONS (path '{place.tpch}/nation.parquet')")
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "foreign tables can be read")
        views = {"engines_of_mine": "SELECT server, rank, state, last_error FROM pystachio.engines", "cache_of_mine": "SELECT * FROM pystachio.cache",
                 "timeline_of_mine": "SELECT activity, bytes FROM pystachio.timeline()"}
        for name, query in views.items():
            session.run(query)
            if has_views:
                session.run(f"CREATE VIEW {name} AS {query}; GRANT SELECT ON {name} TO pg_monitor")
        if version != "0.1.0":
            session.run("REVOKE SELECT ON pystachio.engines FROM PUBLIC; GRANT SELECT ON pystachio.engines TO pg_monitor")
        rights = session.run(_RIGHTS).rows
        session.run("ALTER EXTENSION pystachio UPDATE")
        require(session.run(_RIGHTS).rows == rights, "views of one's own and rights are kept")
        for name in views if has_views else ():
            session.run(f"SELECT * FROM {name}")
        _require_objects(_objects(session), expected, version)
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "foreign tables are kept")
        require(session.run("SELECT count(*) FROM pystachio.engines WHERE state = 'running' AND memory_promised > 0").scalar() == "1", "views work")
    for database in ("updated", "anew"):
        place.watch.run(f"DROP DATABASE {database} WITH (FORCE)")


# Rights on views that an update must keep: a user's own, and those of the extension that a user has changed.
_RIGHTS = "SELECT relname, relacl::text FROM pg_class WHERE relkind = 'v' AND relacl::text LIKE '%pg_monitor%' ORDER BY 1"


def _require_objects(found, expected, version):
    def of_earlier(row):
        # Views of 0.1 that others depend on go on under these names, outside of the extension.
        return any(str(cell).endswith("_0_1") for cell in row[:1])

    for name, objects in expected.items():
        rows = [row for row in found[name] if not of_earlier(row)]
        if name == "views":
            # The rights on the view were changed before.
            rows, objects = ([(view, text, comment) for view, text, _, comment in part] for part in (rows, objects))
        require(rows == list(objects), f"{name} of {version} after the update: {[row for row in [*rows, *objects] if row not in rows or row not in objects]}")


def a_dump_keeps_options(place):
    """pg_dump leaves out what belongs to an extension; the options of its server are dumped all the same, as COPY and as INSERT."""
    programs = place.watch.run("SELECT setting FROM pg_config WHERE name = 'BINDIR'").scalar()
    query = "SELECT srvname, srvoptions::text FROM pg_foreign_server ORDER BY 1"
    limits = ["SET statement_timeout = '300s'", "SET client_min_messages = warning"]
    for database in ("dumped", "restored"):
        place.watch.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
    place.watch.run("CREATE DATABASE dumped")
    with Session(f"{place.base} dbname=dumped", limits) as session:
        session.run("CREATE EXTENSION pystachio")
        session.run("CREATE SERVER own FOREIGN DATA WRAPPER pystachio OPTIONS (threads '2')")
        session.run("ALTER SERVER pystachio OPTIONS (ADD threads '1', ADD memory '256MB')")
        session.run("ALTER SERVER pystachio OPTIONS (SET threads '3', ADD log_level 'warn', DROP memory)")
        session.run("ALTER SERVER pystachio OPTIONS (ADD cache '0')")
        expected = session.run(query).rows
    for options in ([], ["--inserts"]):
        place.watch.run("CREATE DATABASE restored")
        dump = subprocess.run([f"{programs}/pg_dump", *options, f"{place.base} dbname=dumped"], check=True, capture_output=True, text=True).stdout
        with Session(f"{place.base} dbname=restored", limits) as session:
            restored = subprocess.run([f"{programs}/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", f"{place.base} dbname=restored"], input=dump,
                                      capture_output=True, text=True)
            require(restored.returncode == 0, f"the dump is restored: {restored.stderr}")
            require(session.run(query).rows == expected, f"{options}: {session.run(query).rows} instead of {expected}")
            require(session.run("SELECT count(*) FROM pystachio.server_options").scalar() == "3", "the options can be dumped again")
        place.watch.run("DROP DATABASE restored WITH (FORCE)")
    place.watch.run("DROP DATABASE dumped WITH (FORCE)")


def _new_session_has(place, script):
    with place.session() as session:
        return session.run("SHOW pystachio.engine_path").scalar() == str(script)


def engines_of_other_versions(place):
    """After an upgrade sessions and engines may be of different versions until the server restarts: the error says which, and the way out."""
    script = pathlib.Path(place.folder, "other-engine.py")
    script.write_text(_OTHER_ENGINE, encoding="utf-8")
    script.chmod(0o755)
    version = place.watch.run("SELECT pystachio.version()").scalar()
    with place.session("SET client_min_messages = warning") as session:
        session.run(f"ALTER SYSTEM SET pystachio.engine_path = '{script}'")
        session.run("SELECT pg_reload_conf()")
        try:
            wait_until(lambda: _new_session_has(place, script), "new processes have the setting")
            for server, words in (("newer", [f"the extension is {version}", "the engine 99.1 (protocol 9999)"]), ("older", ["an older one"])):
                session.run(f"CREATE SERVER {server} FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu')")
                session.run(f"CREATE FOREIGN TABLE {server}_nation (n_nationkey int) SERVER {server} OPTIONS (path '{place.tpch}/nation.parquet')")
                expect_error(session, f"SELECT count(*) FROM {server}_nation", [_PROTOCOL_VIOLATION], [*words, "Restart the database server"])
        finally:
            session.run("ALTER SYSTEM RESET pystachio.engine_path")
            session.run("SELECT pg_reload_conf()")
            session.run("DROP SERVER IF EXISTS newer CASCADE; DROP SERVER IF EXISTS older CASCADE")


def a_package_is_upgraded(place):
    """An upgraded package replaces the executable of a running server. Engines that start afterwards are of the server's own version."""
    library = place.watch.run("SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'").scalar()
    engine = pathlib.Path(library, "pystachio-engine")
    former = engine.with_suffix(".former")
    engine.rename(former)
    try:
        engine.write_text(_OTHER_ENGINE, encoding="utf-8")
        engine.chmod(0o755)
        with place.session("SET client_min_messages = warning") as session:
            session.run("SELECT count(*) FROM nation")
            os.kill(place.engine_pid(), signal.SIGKILL)
            wait_until(lambda: session.run("SELECT count(*) FROM pystachio.engines WHERE state = 'running' AND restarts > 0").scalar() == "1",
                       "the engine of the running server is started again")
            require(session.run("SELECT count(*) FROM nation").scalar() == "25", "it is of the server's version")
            session.run("CREATE SERVER newer FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '64MB')")
            session.run(f"CREATE FOREIGN TABLE newer_nation (n_nationkey int) SERVER newer OPTIONS (path '{place.tpch}/nation.parquet')")
            require(session.run("SELECT count(*) FROM newer_nation").scalar() == "25", "so are engines that start now")
            session.run("DROP SERVER newer CASCADE")
    finally:
        former.replace(engine)


TESTS = [update_from_earlier_versions, a_dump_keeps_options, engines_of_other_versions, a_package_is_upgraded]
