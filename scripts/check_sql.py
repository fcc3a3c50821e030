#!/usr/bin/env python3
"""Compares the install script in sql/ with the library: usage: check_sql.py LIBRARY

PostgreSQL believes what CREATE FUNCTION says of a C function. So every function that the library exports must be
declared once, with the types that its Rust function takes and gives, and NULL must not reach one that can't take it. Functions that
return rows by the names of their columns take `fcinfo` and check these themselves. Names that end with a version are for the
scripts of that version, which regress/upgrade has.
Also compares the version in Cargo.toml with the one in pystachio.control.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = {
    "&str": "text",
    "&'static str": "text",
    "String": "text",
    # Text in the database's encoding. No function has a bytea.
    "&[u8]": "text",
    "Vec<u8>": "text",
    "Array<'_, &[u8]>": "text[]",
    "bool": "boolean",
    "i32": "integer",
    "i64": "bigint",
    "f64": "double precision",
    "pg_sys::Oid": "oid",
    "AnyElement": "anyelement",
    "pgrx::Json": "json",
    "TimestampWithTimeZone": "timestamp with time zone",
    "Vec<Option<String>>": "text[]",
    "Vec<String>": "text[]",
    "()": "void",
}
# Written without the attribute that makes a wrapper, because pgrx has no type for what it returns.
BY_HAND = {"pystachio_handler": ([], "fdw_handler", True)}


def sql_type(rust):
    """The SQL type of a Rust type, and whether it takes or gives NULL."""
    rust = re.sub(r"\s+", " ", rust.strip())
    optional = re.fullmatch(r"Option<(.*)>", rust)
    bare = optional.group(1) if optional else rust
    if bare not in TYPES:
        raise SystemExit(f"check_sql.py: no SQL type is known for the Rust type {bare!r}")
    return TYPES[bare], bool(optional)


def split(text):
    """Parts between commas that are in no bracket."""
    parts, depth, part = [], 0, ""
    for character in text:
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [part.strip() for part in [*parts, part] if part.strip()]


def balanced(text, start):
    """What is in the bracket that opens at `start`, and the place behind it."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return text[start + 1 : place], place + 1
    raise SystemExit("check_sql.py: a bracket that does not close")


def rust_functions():
    """Wrapper name to (argument types, result, whether no argument may be NULL)."""
    found = dict(BY_HAND)
    for path in sorted((ROOT / "src/extension").rglob("*.rs")):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"#\[pg_extern[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub )?fn (\w+)", text):
            arguments, after = balanced(text, text.index("(", match.end()))
            returned = text[after : text.index("{", after)].strip().removeprefix("->").strip()
            arguments = split(arguments)
            by_name = bool(arguments) and arguments[-1].startswith("fcinfo:")
            types = [sql_type(argument.split(":", 1)[1]) for argument in arguments[: len(arguments) - by_name]]
            if by_name:
                result = None
            elif returned.startswith("TableIterator<"):
                columns = re.findall(r"name!\((\w+), ((?:[^()]|\(\))*)\)", returned)
                result = [(name, sql_type(rust)[0]) for name, rust in columns]
            else:
                result = sql_type(returned or "()")[0]
            strict = not any(optional for _, optional in types)
            found[f"{match.group(1)}_wrapper"] = ([sql for sql, _ in types], result, strict)
    return found


def sql_functions(text):
    """The same of the script; whether it is declared STRICT."""
    found = {}
    text = re.sub(r"--.*", "", text)
    for match in re.finditer(r"CREATE FUNCTION @extschema@\.(\w+)\(", text):
        arguments, after = balanced(text, match.end() - 1)
        rest = text[after : text.index(";", after)]
        symbol = re.search(r"AS 'MODULE_PATHNAME', '(\w+)'", rest)
        if not symbol:
            continue
        symbol = symbol.group(1)
        table = re.search(r"RETURNS TABLE \(", rest)
        if table:
            columns, _ = balanced(rest, table.end() - 1)
            result = [tuple(column.replace('"', "").split(" ", 1)) for column in split(columns)]
        else:
            result = re.search(r"RETURNS (.+)", rest).group(1).strip()
        types = [re.sub(r" DEFAULT .*", "", argument, flags=re.S).split(" ", 1)[1] for argument in split(arguments)]
        # A name's own type has the form of an oid.
        types = ["oid" if sql in ("regclass", "regnamespace") else sql for sql in types]
        if symbol in found:
            raise SystemExit(f"check_sql.py: {symbol} is declared twice")
        found[symbol] = (types, result, re.search(r"\bSTRICT\b", rest) is not None)
    return found


def exported(library):
    """The functions that the library offers to CREATE FUNCTION."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" pg_finfo_(\w+)$", symbols, flags=re.M))


def main(library):
    """Prints what differs; 1 if anything does."""
    control = (ROOT / "pystachio.control").read_text(encoding="utf-8")
    version = re.search(r"^default_version = '(.*)'", control, flags=re.M).group(1)
    cargo = re.search(r'^\[workspace\.package\]\nversion = "(.*)"', (ROOT / "Cargo.toml").read_text(), flags=re.M).group(1)
    script = ROOT / f"sql/pystachio--{version}.sql"
    wrong = [] if version == cargo else [f"pystachio.control has version {version}, Cargo.toml {cargo}"]
    declared = sql_functions(script.read_text(encoding="utf-8"))
    written = rust_functions()
    for symbol in sorted(exported(library) | set(declared) | set(written)):
        if symbol not in exported(library):
            wrong.append(f"{symbol} is not exported by the library")
        elif re.search(r"_\d+_\d+_wrapper$", symbol):
            if not any(f"'{symbol}'" in path.read_text(encoding="utf-8") for path in (ROOT / "regress/upgrade").glob("*.sql")):
                wrong.append(f"{symbol} is declared by no script of regress/upgrade")
        elif symbol not in declared:
            wrong.append(f"{symbol} is not declared by {script.name}")
        elif symbol not in written:
            wrong.append(f"{symbol} has no Rust function with the attribute pg_extern")
        else:
            (types, result, strict), (rust_types, rust_result, needs_strict) = declared[symbol], written[symbol]
            if types != rust_types:
                wrong.append(f"{symbol} is declared with arguments {types}, and takes {rust_types}")
            # The caller says which columns the rows have.
            is_any_row = result in ("SETOF record", "SETOF anyelement")
            if rust_result is None and not isinstance(result, list) and not is_any_row:
                wrong.append(f"{symbol} returns rows, and is declared to return {result}")
            elif rust_result is not None and result != rust_result:
                wrong.append(f"{symbol} is declared to return {result}, and returns {rust_result}")
            if strict != needs_strict:
                wrong.append(f"{symbol} is declared {'' if strict else 'not '}STRICT")
    for line in wrong:
        print(f"check_sql.py: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: check_sql.py LIBRARY")
    sys.exit(main(sys.argv[1]))
