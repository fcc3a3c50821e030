"""upper, lower and ILIKE of every code point, under every character class that libc gives this server.

Each query concatenates a column with a literal, so that an engine computes the function, and groups or counts, so
that the whole query can be one scan.

Deliberately absent: locales that the host may lack. What pg_collation has is used; C.UTF-8 is always there.
"""

CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
BLOCK_CODE_POINTS = 0x8000
LETTERS_A_QUERY = 100
COLLATIONS_MAX = 8
# The row of edge_text whose value is 'a'.
SOURCE = "edge_text WHERE id = 5"


def _quote(text):
    return "'" + text.replace("'", "''") + "'"


def _collations(session):
    """COLLATE clauses, one a character class of libc: Turkic ones first, whose ASCII letters are not C's."""
    yield ""
    rows = session.run(
        "SELECT quote_ident(nspname) || '.' || quote_ident(collname) FROM (SELECT DISTINCT ON (collctype) * FROM pg_collation "
        "WHERE collprovider = 'c' AND collisdeterministic AND collencoding IN (-1, pg_char_to_encoding('UTF8')) "
        "ORDER BY collctype, oid) c JOIN pg_namespace n ON n.oid = collnamespace "
        f"ORDER BY collctype ~ '^(tr|az|C)' DESC, collctype LIMIT {COLLATIONS_MAX}").rows
    for (name,) in rows:
        yield f" COLLATE {name}"


def _blocks():
    """Every code point of text, in blocks: (first, text)."""
    for first in range(0, CODE_POINTS, BLOCK_CODE_POINTS):
        block = range(max(first, 1), first + BLOCK_CODE_POINTS)
        yield first, "".join(chr(code_point) for code_point in block if code_point not in SURROGATES)


def _letters():
    """Characters with case, each with one that may be equal to it but for case."""
    for code_point in range(1, CODE_POINTS):
        if code_point in SURROGATES:
            continue
        letter = chr(code_point)
        others = {letter.lower(), letter.upper(), letter.title(), letter.casefold()} - {letter}
        for other in sorted(others):
            yield letter, other


def queries(session):
    """(name, sql)"""
    letters = list(_letters())
    for collation in _collations(session):
        for first, block in _blocks():
            for function in ("upper", "lower"):
                yield (f"{function} from U+{first:04X}{collation}",
                       f"SELECT {function}((v || {_quote(block)}){collation}), count(*) FROM {SOURCE} GROUP BY 1")
        for first in range(0, len(letters), LETTERS_A_QUERY):
            counts = ", ".join(
                f"count(*) FILTER (WHERE (v || {_quote(letter)}){collation} ILIKE {_quote(pattern)})"
                for letter, other in letters[first: first + LETTERS_A_QUERY] for pattern in ("_" + other, "%" + other))
            yield f"ILIKE from letter {first}{collation}", f"SELECT {counts} FROM {SOURCE}"
