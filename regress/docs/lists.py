"""Whether what pages list is what the code has: settings, options, types, texts of errors, versions, the picture.

The server itself is asked wherever it can be: what a page leaves out is found as well as what it invents.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

from harness.libpq import QueryError, Session

DATABASE = "page_lists"
_MONITORING = importlib.util.spec_from_file_location("monitoring", pathlib.Path(__file__).resolve().parents[2] / "scripts/monitoring.py")
monitoring = importlib.util.module_from_spec(_MONITORING)
sys.modules["monitoring"] = monitoring
_MONITORING.loader.exec_module(monitoring)
_NAMES = re.compile(r"`([^`]+)`")
# A declared interval is a type of the engines, but no Parquet column is read as one.
_NEVER_READ = {"interval"}
_PLACEHOLDER_CHARACTERS_MAX = 100
_PICTURES = {"docs/images/tpch-sf10.svg": "benches/results/2026-11-25-gpu-cuda-sf10-duckdb-files.json"}


def check(root, pages, conninfo, folder, claims):
    """All lists, in a database of their own; the server's user may write in `folder`."""
    with Session(f"{conninfo} dbname=postgres", ["SET client_min_messages = warning"]) as session:
        session.run(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        session.run(f"CREATE DATABASE {DATABASE}")
        with Session(f"{conninfo} dbname={DATABASE}", ["CREATE EXTENSION pystachio"]) as own:
            claims.attempt("settings", lambda: _settings(pages["docs/settings.md"], own))
            claims.attempt("options", lambda: _options(pages["docs/settings.md"], pages["docs/tables.md"], own))
            claims.attempt("types", lambda: _types(pages["docs/types.md"], own, f"{folder}/{DATABASE}"))
            claims.attempt("functions and views", lambda: _objects(pages, own))
            own.run("CREATE EXTENSION pg_stat_statements; SET compute_query_id = on")
            own.run(f"CREATE FOREIGN TABLE watched (r_regionkey bigint) SERVER pystachio OPTIONS (path '{folder}/{DATABASE}/region.parquet')")
            own.run("SELECT sum(r_regionkey) FROM watched")
            for panel in monitoring.read_panels((root / "docs/monitoring.sql").read_text(encoding="utf-8")):
                claims.attempt(f"docs/monitoring.sql: {panel.title}", lambda panel=panel: _panel(panel, own))
        session.run(f"DROP DATABASE {DATABASE} WITH (FORCE)")
    done = subprocess.run([sys.executable, root / "scripts/monitoring.py", "--check"], capture_output=True, text=True, check=False)
    claims.check("docs/monitoring-dashboard.json", done.returncode == 0, done.stderr)
    claims.attempt("versions", lambda: _versions(root, pages["README.md"]))
    sources = source_text(root)
    for text in error_texts(pages["docs/troubleshooting.md"]):
        claims.check(f"docs/troubleshooting.md: {text}", is_in_source(text, sources), "no code has this text")
    for picture, result in _PICTURES.items():
        done = subprocess.run([sys.executable, root / "benches/pairs_chart.py", "--check", root / result, root / picture], capture_output=True,
                              text=True, check=False)
        claims.check(picture, done.returncode == 0, done.stderr)


def require_same(listed, there):
    """Raises AssertionError with what one of two sets of names has and the other does not."""
    listed, there = set(listed), set(there)
    if listed != there:
        raise AssertionError(f"missing on the page: {sorted(there - listed)}; only on the page: {sorted(listed - there)}")


def _settings(page, session):
    """Names and defaults, as `pg_settings` has them."""
    rows = session.run("SELECT name, CASE WHEN unit IS NULL OR boot_val = '0' THEN boot_val ELSE boot_val || ' ' || unit END, context "
                       "FROM pg_settings WHERE name LIKE 'pystachio.%'").rows
    there = {(name, _in_seconds(value or ""), context) for name, value, context in rows}
    listed = {(_NAMES.findall(row[0])[0], row[2].strip("`"), row[3]) for row in page.table_rows(r"`pystachio\.\w+`") if len(row) > 3}
    require_same(listed, there)


def _in_seconds(value):
    return re.sub(r"^(\d+)000 ms$", r"\1 s", value)


def _options(page, other, session):
    """The options of every object, as the hints of errors about unknown ones list them. Another page explains some of them."""
    unknown = "OPTIONS (no_such_option '1')"
    statements = {
        "server": f"CREATE SERVER x FOREIGN DATA WRAPPER pystachio {unknown}",
        "table": f"CREATE FOREIGN TABLE x (id integer) SERVER pystachio {unknown}",
        "column": f"CREATE FOREIGN TABLE x (id integer {unknown}) SERVER pystachio OPTIONS (path '/x')",
        "import": f"IMPORT FOREIGN SCHEMA \"/\" FROM SERVER pystachio INTO public {unknown}",
        "user mapping": f"CREATE USER MAPPING FOR CURRENT_USER SERVER pystachio {unknown}",
    }
    there = set()
    for thing, statement in statements.items():
        try:
            session.run(statement)
        except QueryError as error:
            names = re.search(r"(?:Valid options: |The valid option is )(.*)\.", error.hint)[1]
            there |= {(thing, name) for name in names.split(", ")}
    listed, explained = ({(row[0], name) for row in listing.table_rows("|".join(statements)) for name in _NAMES.findall(row[1])}
                         for listing in (page, other))
    require_same(listed, there)
    assert explained <= there, f"no such options: {sorted(explained - there)}"


def _types(page, session, folder):
    """The types that a column of a foreign table may have."""
    session.run(f"SELECT * FROM pystachio.tpch_generate('{folder}', 0.001, ARRAY['region'], overwrite => true)")
    rows = session.run("SELECT format_type(oid, NULL) FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' "
                       "AND typcategory <> 'A'").rows
    there = {name for (name,) in rows if _is_readable(session, name, f"{folder}/region.parquet")} - _NEVER_READ
    listed = {name for row in page.table_rows(r"`[^`]+`(, `[^`]+`)*") for name in _NAMES.findall(row[0])}
    require_same(listed, there)


def _is_readable(session, type_name, path):
    """Whether engines have the type: a query of such a column is planned, whatever the file has in it."""
    session.run(f"DROP FOREIGN TABLE IF EXISTS typed; CREATE FOREIGN TABLE typed (r_regionkey bigint, r_name {type_name}) "
                f"SERVER pystachio OPTIONS (path '{path}')")
    try:
        session.run("EXPLAIN SELECT r_name FROM typed")
    except QueryError as error:
        if "can't be read from Parquet" not in error.message:
            raise
        return False
    return True


def _objects(pages, session):
    """Functions, tables and views of the extension: each is named on some page, and pages name no others."""
    rows = session.run("SELECT proname FROM pg_proc WHERE pronamespace = 'pystachio'::regnamespace UNION "
                       "SELECT relname FROM pg_class WHERE relnamespace = 'pystachio'::regnamespace AND relkind IN ('r', 'v')").rows
    # What only the views, the wrapper and the triggers use.
    there = {name for (name,) in rows} - {"handler", "validator", "engine_status", "cache_entries", "query_entries", "statistics_entries",
                                           "own_server", "keep_server_options", "restore_server_options"}
    settings = {name.split(".")[1] for (name,) in session.run("SELECT name FROM pg_settings WHERE name LIKE 'pystachio.%'").rows}
    text = "\n".join(page.text for name, page in pages.items() if name != "docs/SUMMARY.md")
    files = {"control", "so", "md", "conf", "pem"}
    named = set(re.findall(r"\bpystachio\.(\w+)", text)) - (settings - there) - files
    require_same({name for name in named if not name.startswith("gpu_") or name in there}, there)


def _panel(panel, session):
    """A query of docs/monitoring.sql gives what its kind of panel shows."""
    result = session.run(panel.sql)
    names = tuple(result.names)
    if panel.kind == "stat":
        assert len(names) == 1 and len(result.rows) == 1, f"one value: {names}, {len(result.rows)} rows"
    elif panel.kind == "table":
        assert len(names) > 1, names
        assert "pg_stat_statements" not in panel.sql or any("sum(r_regionkey)" in (row[-1] or "") for row in result.rows), "no statement was joined"
    else:
        assert names == {"bars": ("metric", "value")}.get(panel.kind, ("time", "metric", "value")), names


def _versions(root, page):
    """The versions that README names are those that builds take."""
    there = re.search(r'^SERVER_VERSIONS="(.*)"', (root / "scripts/environment.sh").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    named = re.search(r"PostgreSQL (\d+(?:(?:, | and )\d+)*) on Linux", page.text)
    require_same(re.findall(r"\d+", named[1]) if named else [], there)


def error_texts(page):
    """The texts that the headings of the page are: code, with `…` for what differs."""
    return [text for line in page.prose if line.startswith("###") for text in _NAMES.findall(line)]


def source_text(root):
    """All code, with texts as they are printed: continued lines joined, quotes without their backslash."""
    files = sorted((root / "src").rglob("*.rs"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if "tests" not in path.parts)
    return re.sub(r"\\\n\s*", "", text).replace('\\"', '"')


def is_in_source(text, sources):
    """Whether a text with `…` for what differs is that of some literal."""
    gap = f"[^\\n]{{0,{_PLACEHOLDER_CHARACTERS_MAX}}}?"
    return re.search(gap.join(re.escape(part) for part in text.split("…")), sources) is not None
