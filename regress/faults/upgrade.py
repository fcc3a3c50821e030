"""An extension that an earlier version made, and the update to this one: the same objects as of one that is made anew.

`regress/upgrade/` has the install scripts of earlier versions, as they were. Functions whose rows have other columns since then are other
functions of the library: what is not updated fails, and reads nothing as what it is not.
"""

import pathlib
import re

from faults.support import expect_error, require, wait_until
from harness.libpq import Session

_SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "upgrade"
_UNDEFINED_FUNCTION = "42883"
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
    "servers": "SELECT srvname, srvoptions::text, srvacl::text, obj_description(oid, 'pg_foreign_server') FROM pg_foreign_server",
}


def _objects(session):
    return {name: sorted(session.run(query).rows, key=str) for name, query in _OBJECTS.items()}


def _exported(library):
    return set(re.findall(rb"pg_finfo_(\w+)", pathlib.Path(library).read_bytes()))


def update_from_earlier_versions(place):
    """Each version's script is installed beside this one's, with functions that the library has no more under the names of those that it has."""
    (share, library), = place.watch.run(
        "SELECT (SELECT setting FROM pg_config WHERE name = 'SHAREDIR'), (SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR')").rows
    exported = {name.decode() for name in _exported(f"{library}/pystachio.so")}
    scripts = sorted(_SCRIPTS.glob("pystachio--*.sql"))
    require(scripts, "there are earlier versions")
    for script in scripts:
        version = script.stem.split("--")[1]
        text = script.read_text(encoding="utf-8")
        wanted = set(re.findall(r"'MODULE_PATHNAME', '(\w+)'", text))
        gone = sorted(wanted - exported)
        require(gone, "functions whose rows changed have other names")
        # The library that is there has nothing of that name, as after an update of the package alone.
        stand_in = re.sub(r"'MODULE_PATHNAME', '(\w+)'", lambda match: f"'MODULE_PATHNAME', '{_known(match[1], exported)}'", text)
        installed = pathlib.Path(share, "extension", script.name)
        installed.write_text(stand_in, encoding="utf-8")
        try:
            _update(place, version, gone)
        finally:
            installed.unlink()


def _known(symbol, exported):
    if symbol in exported:
        return symbol
    stem = symbol.removesuffix("_wrapper")
    found = [name for name in exported if re.fullmatch(rf"{stem}_\d+_\d+_wrapper", name)]
    require(len(found) == 1, f"{symbol} is followed by {found}")
    return found[0]


def _update(place, version, gone):
    place.watch.run("DROP DATABASE IF EXISTS updated WITH (FORCE)")
    place.watch.run("DROP DATABASE IF EXISTS anew WITH (FORCE)")
    place.watch.run("CREATE DATABASE updated")
    place.watch.run("CREATE DATABASE anew")
    limits = ["SET statement_timeout = '300s'"]
    with Session(f"{place.base} dbname=anew", limits) as session:
        session.run("CREATE EXTENSION pystachio")
        expected = _objects(session)
        current = session.run("SELECT extversion FROM pg_extension WHERE extname = 'pystachio'").scalar()
    with Session(f"{place.base} dbname=updated", limits) as session:
        session.run(f"CREATE EXTENSION pystachio VERSION '{version}'")
        # As the old library left them: names that are not in this one.
        for symbol in gone:
            session.run(f"UPDATE pg_proc SET prosrc = '{symbol}' WHERE prosrc ~ '^{symbol.removesuffix('_wrapper')}_[0-9_]+_wrapper$'")
    with Session(f"{place.base} dbname=updated", limits) as session:
        expect_error(session, "SELECT * FROM pystachio.engines", [_UNDEFINED_FUNCTION])
        require(session.run("SELECT pystachio.version()").scalar() == current, "the library is of this version")
        session.run(f"CREATE FOREIGN TABLE nation (n_nationkey bigint, n_name text) SERVER pystachio OPTIONS (path '{place.tpch}/nation.parquet')")
        session.run("ALTER EXTENSION pystachio UPDATE")
        found = _objects(session)
        for name, objects in expected.items():
            require(found[name] == objects, f"{name} of {version} after the update: {[row for row in [*found[name], *objects] if row not in found[name] or row not in objects]}")
        require(session.run("SELECT count(*) FROM nation").scalar() == "25", "foreign tables are kept")
        require(session.run("SELECT count(*) FROM pystachio.engines WHERE state = 'running'").scalar() == "1", "views work")
    for database in ("updated", "anew"):
        place.watch.run(f"DROP DATABASE {database} WITH (FORCE)")


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


TESTS = [update_from_earlier_versions, engines_of_other_versions]
