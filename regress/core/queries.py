"""What of a statement can be compared: the query in it, the words that may name tables, and why it can't be."""

import hashlib
import re

from .statements import tokens

# What gives other values each time, acts beyond the transaction, or tells how rows are stored.
_UNSTABLE = {
    "random", "random_normal", "setseed", "nextval", "currval", "lastval", "setval", "clock_timestamp", "timeofday", "pg_sleep",
    "gen_random_uuid", "uuidv7", "uuidv4", "txid_current", "txid_current_snapshot", "pg_current_xact_id", "pg_current_snapshot",
    "pg_notify", "set_config", "pg_export_snapshot", "pg_backend_pid", "pg_relation_size", "pg_table_size", "pg_size_pretty",
    "pg_relation_filenode", "pg_column_size", "pg_column_compression", "pg_sequence_last_value", "pg_terminate_backend",
    "pg_total_relation_size", "pg_indexes_size", "pg_relation_filepath", "pg_class", "pg_attribute", "pg_index", "pg_constraint",
    "pg_statistic", "pg_stats", "pg_locks", "pg_inherits", "pg_partition_tree", "pg_depend", "pg_tables", "pg_views", "pg_type",
}
_UNSTABLE_PARTS = re.compile(r"^(pg_stat_|pg_advisory_|pg_try_advisory_|lo_|loread|lowrite|explain_)")
_PLACES = {"ctid", "xmin", "xmax", "cmin", "cmax"}
_WRITES = {"insert", "delete", "merge"}
_CLAUSES = {"limit", "offset", "fetch", "for", "union", "intersect", "except"}
_OPERATORS = {"=", "<", ">", "+", "*", "-", "%"}


class Query:
    """A query of a statement.

    `kind` is the statement's first word; `text` what is run; `prepare` a statement that prepares it as `{name}`, where
    there is one; `body` the query alone; `ordered` whether ORDER BY stands at its end.
    """

    def __init__(self, kind, text, prepare=None, body=None):
        self.kind, self.text, self.prepare, self.body = kind, text, prepare, body or text
        self.tokens = tokens(self.body)
        self.ordered = any(token.nesting == 0 and token.word == "order" for token in self.tokens)

    @property
    def identifiers(self):
        """Names as the catalogs hold them; what follows a dot is a column, or a relation of a named schema."""
        names = set()
        for place, token in enumerate(self.tokens):
            if place and self.tokens[place - 1].text == ".":
                continue
            if token.text[0] == '"':
                names.add(token.text[1:-1].replace('""', '"'))
            elif _is_word(token):
                names.add(token.word[:63])
        return names

    @property
    def reason(self):
        """Why the query can't be compared, or None."""
        words = {token.word for token in self.tokens if _is_word(token)}
        if words & _WRITES or "update" in words and "for" not in words:
            return "writes"
        if words & _UNSTABLE or any(_UNSTABLE_PARTS.match(word) for word in words):
            return "depends on more than rows"
        if words & _PLACES or "tableoid" in words and not re.search(r"tableoid\s*::\s*reg", self.text, re.IGNORECASE):
            return "depends on where rows lie"
        if "tablesample" in words:
            return "TABLESAMPLE, which takes no foreign table"
        return None

    def order_keys(self, names):
        """Places, in a result with these column names, of the leading ORDER BY expressions that are columns of it."""
        places = []
        for item in self.order_items:
            place = _column_of(item, names)
            if place is None:
                break
            places.append(place)
        return places

    @property
    def order_items(self):
        """The expressions of the last ORDER BY outside parentheses, as lists of Tokens."""
        items = []
        for place, token in enumerate(self.tokens):
            if token.nesting == 0 and token.word == "order":
                items = [[]]
            elif not items or token.word == "by" and not items[-1]:
                continue
            elif token.nesting == 0 and token.word in _CLAUSES:
                break
            elif token.nesting == 0 and token.text == ",":
                items.append([])
            else:
                items[-1].append(token)
        return [_without_direction(item) for item in items]

    def with_keys(self, names):
        """The query with every ORDER BY expression that is no column of the result (of columns `names`) added as one, and how many
        these are; (None, 0) where that isn't a matter of text."""
        words = [(place, token) for place, token in enumerate(self.tokens) if token.nesting == 0]
        if self.tokens[0].word != "select" or {token.word for _, token in words} & {"union", "intersect", "except", "distinct", "values"}:
            return None, 0
        keys = [item for item in self.order_items if _column_of(item, names) is None]
        begin = next((token.offset for _, token in words if token.word == "from"), None)
        if not keys or begin is None:
            return None, 0
        added = ", ".join(f"({self.body[item[0].offset:item[-1].offset + len(item[-1].text)]})" for item in keys)
        return f"{self.body[:begin]}, {added} {self.body[begin:]}", len(keys)

    def with_parameters(self):
        """The query with integers beside operators as parameters `$n`, equal ones as one: (text, values)."""
        text, values, end, previous = "", [], 0, ""
        for token in self.tokens:
            text += self.body[end:token.offset]
            end = token.offset + len(token.text)
            if previous in _OPERATORS and re.fullmatch(r"\d{1,9}", token.text):
                if token.text not in values:
                    values.append(token.text)
                text += f"${values.index(token.text) + 1}"
            else:
                text += token.text
            previous = token.text
        return text + self.body[end:], values


def statement_hash(text):
    """What a statement is known by in `known.json`: its text without comments and space, hashed."""
    return hashlib.sha256(" ".join(token.text for token in tokens(text)).encode()).hexdigest()[:12]


def query_of(text, prepared):
    """The Query in a statement, or None. `prepared` has (statement, query) of each PREPARE by name, and is given new ones."""
    found = tokens(text)
    first = next((token.word for token in found if token.text != "("), "")
    if len(found) < 2 or any(token.text == ";" for token in found):
        return None
    if first in ("select", "with", "values", "table"):
        into = _find(found, "into")
        return Query("select", text if into is None else _without_into(text, found, into))
    if first == "prepare":
        body = _after(text, found, "as")
        if _reads(body):
            prepared[found[1].word] = (text, body)
        return None
    if first == "execute":
        return _execute(text, found, prepared)
    body = ""
    if first == "declare":
        body = _after(text, found, "for")
    elif first == "create" and {"table", "materialized"} & {token.word for token in found[:4]}:
        body = re.sub(r"\s+with\s+(no\s+)?data\s*$", "", _after(text, found, "as"), flags=re.IGNORECASE)
    elif first == "insert":
        body = re.split(r"\breturning\b|\bon\s+conflict\b", _after(text, found, "select", itself=True), flags=re.IGNORECASE)[0]
    elif first == "copy" and found[1].text == "(":
        closing = next(token.offset for token in found if token.text == ")" and token.nesting == 0)
        body = text[found[1].offset + 1:closing]
    return Query(first, body) if _reads(body) else None


def _execute(text, found, prepared):
    if found[1].word not in prepared:
        return None
    prepare, body = prepared[found[1].word]
    heading = tokens(prepare)[1]
    return Query("execute", "EXECUTE {name} " + text[found[1].offset + len(found[1].text):],
                 "PREPARE {name} " + prepare[heading.offset + len(heading.text):], body)


def _is_word(token):
    return token.text[0].isalpha() and "'" not in token.text or token.text[0] == "_"


def _reads(body):
    return re.match(r"[\s(]*(select|with|values|table)\b", body, re.IGNORECASE) is not None


def _find(found, word):
    return next((place for place, token in enumerate(found) if token.word == word and token.nesting == 0), None)


def _after(text, found, word, itself=False):
    """The text after the first token `word` outside parentheses, or from it on; empty if there is none."""
    place = _find(found, word)
    if place is None:
        return ""
    return text[found[place].offset + (0 if itself else len(word)):]


def _without_into(text, found, into):
    """The text without INTO [TEMPORARY | UNLOGGED] [TABLE] name."""
    end = into + 1
    while found[end].word in ("temp", "temporary", "unlogged", "table", "local", "global"):
        end += 1
    end += 1
    while end + 1 < len(found) and found[end].text == ".":
        end += 2
    return text[:found[into].offset] + (text[found[end].offset:] if end < len(found) else "")


def _without_direction(item):
    """An ORDER BY expression without ASC, DESC, NULLS FIRST, USING and the like."""
    item = [token for token in item if token.word not in ("asc", "desc", "nulls", "first", "last")]
    using = next((place for place, token in enumerate(item) if token.word == "using"), len(item))
    return item[:using]


def _column_of(item, names):
    """The place of the result's column that an ORDER BY expression is, or None."""
    words = [token.text for token in item]
    if len(words) == 1 and words[0].isdigit():
        return int(words[0]) - 1 if 0 < int(words[0]) <= len(names) else None
    if len(words) == 1 or len(words) == 3 and words[1] == ".":
        name = words[-1][1:-1] if words[-1][0] == '"' else words[-1].lower()
        if names.count(name) == 1:
            return names.index(name)
    return None
