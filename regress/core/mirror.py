"""Makes the tables that a query names: Parquet files of a random form, foreign tables over them, and heap copies.

A unit is one relation of the suite with what belongs to it: a table, a tree of partitions or of children, or a view, which
stays a view over the units below it. Each unit has schemas of its own, one for each role:

- `f`: foreign tables of the CPU engine's server
- `g`: the same files by the emulated device's server
- `h`: heap tables of the same rows, from PostgreSQL's text and not from the files
- `s`, and `i` to `x` without it: heap tables of the same rows in other orders (in `s` a parent has its children's rows itself, as a heap scan
  takes one child after the other), made only when a difference has to be understood

- Units are made in a session of their own, whose rows are frozen: every snapshot of the suite's session sees them.
- A unit lasts until the relation's definition or rows change, which is looked for after statements that may write: by the
  places and transactions of its rows, as any change of a row moves it, and of a view that can't be rebuilt by its rows.
- A column is declared with its own type where foreign tables can have it, with its domain's base type, else as text.
"""

import decimal
import hashlib
import random
import shutil

from harness.libpq import QueryError

from .forms import Form, Unwritable, array_items, decimal_shape, value_of

ROWS_MAX = 60_000
DEPTH_MAX = 8
_PLAIN = {"bool", "int2", "int4", "int8", "float4", "float8", "date", "time", "timestamp", "timestamptz", "bytea", "uuid"}
_TEXTS = {"text", "varchar", "bpchar", "json"}
_ITEMS = {"bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "uuid"}
_HEAP_PARTITIONS = 0.2
# Two rows whose order decides have the same one in all of these once in some tens of thousands.
SHUFFLED = tuple("ijklmnopqrtuvwx")
SERVERS = {"f": "pystachio", "g": "core_emulated"}
_LENGTH_WORD = 4


class Unmirrored(Exception):
    """Why a relation has no mirror."""


class Column:
    """A column: `kind` is the plain type, `declared` the SQL type with collation; numerics have digits and scale."""

    def __init__(self, name, kind, declared="text", array=False, not_null=False, precision=None, scale=None):
        self.name, self.kind, self.declared, self.array, self.not_null = name, kind, declared, array, not_null
        self.precision, self.scale = precision, scale

    @property
    def definition(self):
        """The column in CREATE TABLE."""
        return f"{quoted(self.name)} {self.declared}" + (" NOT NULL" if self.not_null else "")

    @property
    def exported(self):
        """Expressions of its text for heap tables and, of dates and times, its number for files."""
        name = quoted(self.name)
        if self.array:
            return [f"{name}::text"]
        if self.kind == "date":
            return [f"{name}::text", f"CASE WHEN isfinite({name}) THEN ({name} - date '1970-01-01')::text ELSE {name}::text END"]
        if self.kind in ("timestamp", "timestamptz"):
            return [f"{name}::text", f"CASE WHEN isfinite({name}) THEN (extract(epoch FROM {name}) * 1000000)::text ELSE {name}::text END"]
        if self.kind == "time":
            return [f"{name}::text", f"(extract(epoch FROM {name}) * 1000000)::text"]
        return [f"{name}::text"]


class Relation:
    """A relation as the catalogs have it."""

    def __init__(self, oid, name, schema, kind, has_children):
        self.oid, self.name, self.schema, self.kind, self.has_children = oid, name, schema, kind, has_children == "t"

    @property
    def qualified(self):
        return f"{quoted(self.schema)}.{quoted(self.name)}"


class Part:
    """One table of a unit: its columns, its rows as texts for heap and for files, and how its parent is named."""

    def __init__(self, name, columns, heap, files, clause="", partitioned=""):
        self.name, self.columns, self.heap, self.files = name, columns, heap, files
        self.clause, self.partitioned, self.foreign = clause, partitioned, False


class Unit:
    """What stands for one relation, as it was when `marks` were true of it; `forms` tells of its files, and `view` is
    (statement, units below, search path)."""

    def __init__(self, number, marks, parts, forms, view=None):
        self.number, self.marks, self.parts, self.forms, self.view = number, marks, parts, forms, view
        self.epoch, self.roles = 0, set()

    def schema(self, role):
        return f"{role}_{self.number}"


class Mirrors:
    """All units. `maker` is a session of its own, `folder` a folder that the server reads; `roles` are those that every unit
    has, and `servers` those of roles whose tables are foreign."""

    def __init__(self, maker, folder, seed, servers, roles):
        self.maker, self.folder, self.seed, self.servers, self.roles = maker, folder, seed, servers, sorted(roles)
        self.units, self.number, self.epoch, self.dropped = {}, 0, 1, []

    def named(self, session, identifiers):
        """The relations of the suite that these words name, in `session` with its own search path; and whether functions of the
        suite are named too, which may write."""
        words = "ARRAY[" + ", ".join(literal(word) for word in sorted(identifiers)) + "]"
        found = session.run(
            "SELECT c.oid, c.relname, n.nspname, c.relkind, c.relhassubclass FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.relname = ANY ({words}::text[]) AND pg_catalog.pg_table_is_visible(c.oid) "
            "AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND c.relkind IN ('r', 'v', 'm', 'p') ORDER BY 2").rows
        writes = session.run("SELECT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace <> 'pg_catalog'::pg_catalog.regnamespace "
                             f"AND proname = ANY ({words}::text[]))").scalar() == "t"
        return [Relation(*row) for row in found], writes

    def unit(self, session, relation, path, depth=0):
        """The unit of a relation, made anew where the relation has changed. Raises Unmirrored."""
        unit = self.units.get(relation.oid)
        if unit and unit.epoch == self.epoch:
            return unit
        if depth > DEPTH_MAX:
            raise Unmirrored("views nested deep")
        made = None
        if relation.kind == "v":
            made = self._view(session, relation, path, unit, depth)
        elif relation.kind == "p" or relation.has_children:
            made = self._tree(session, relation, unit)
        made = made or self._plain(session, relation, path, unit)
        made.epoch = self.epoch
        if unit and made is not unit:
            self.dropped.append(unit)
        self.units[relation.oid] = made
        return made

    def reordered(self, unit, role):
        """Makes the heap tables of `unit` with their rows in another order (`s`: backwards, the others shuffled)."""
        if role in unit.roles:
            return
        below = unit.view[1] if unit.view else []
        for other in below:
            self.reordered(other, role)
        try:
            self._create(unit, role)
        except QueryError:
            self.maker.run("ROLLBACK")
            raise

    def clear(self):
        """Drops what is not current any more; only while no transaction of the suite is open."""
        for unit in self.dropped:
            try:
                for role in unit.roles:
                    self.maker.run(f"DROP SCHEMA IF EXISTS {unit.schema(role)} CASCADE")
            except QueryError:
                continue  # some session of the suite still looks at it; the name isn't used again
            shutil.rmtree(self.folder / str(unit.number), ignore_errors=True)
        self.dropped = []

    def _plain(self, session, relation, path, unit):
        """A table with the rows of a relation, be it a view."""
        stored = relation.kind != "v"
        if not stored:
            session.run(f"SET LOCAL search_path = {path or literal('')}")  # its functions may need it
        marks = _marks(session, [relation]) if stored else None
        if stored and unit and unit.marks == marks:
            return unit
        columns = _columns(session, relation)
        if not columns:
            raise Unmirrored("no columns")
        lines = _lines(session, relation, columns, f"FROM {relation.qualified}")
        marks = marks or _digest(relation, columns, lines)
        if unit and unit.marks == marks:
            return unit
        while True:
            try:
                return self._made(marks, [_part(relation, columns, lines)])
            except _MustBeText as found:
                columns = [Column(column.name, "text", not_null=column.not_null) if column.name == found.name else column for column in columns]
                lines = _lines(session, relation, columns, f"FROM {relation.qualified}")

    def _tree(self, session, relation, unit):
        """A root with all of its partitions or children; None where that can't be rebuilt."""
        try:
            rows = session.run(
                "WITH RECURSIVE tree (oid, parent, depth) AS (SELECT "
                f"{relation.oid}::oid, 0::oid, 0 UNION ALL SELECT i.inhrelid, i.inhparent, depth + 1 FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid) "
                "SELECT c.oid, c.relname, n.nspname, c.relkind, c.relhassubclass, pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid), "
                "array_to_string(array_agg(p.relname ORDER BY p.relname), '/'), max(tree.depth) FROM tree JOIN pg_class c ON c.oid = tree.oid "
                "JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_class p ON p.oid = tree.parent GROUP BY c.oid, n.nspname ORDER BY 9, 2").rows
            names = [row[1] for row in rows]
            if len(set(names)) < len(names) or any(row[3] not in "rp" for row in rows):
                return None
            members = [(Relation(*row[:5]), row[5:]) for row in rows]
            marks = _marks(session, [member for member, (_, key, _, _) in members if not key]) + str(rows)
            if unit and unit.marks == marks:
                return unit
            texts = set()
            while True:
                try:
                    return self._made(marks, self._members(session, members, texts))
                except _MustBeText as column:
                    texts.add(column.name)
        except (QueryError, Unmirrored):
            if self.maker.transaction != "idle":
                self.maker.run("ROLLBACK")
            if session.transaction == "failed":
                raise
            return None

    @staticmethod
    def _members(session, members, texts):
        """The parts of a tree, parents first."""
        parts, order = [], None
        for member, (bound, key, parents, _) in members:
            columns = _columns(session, member, texts)
            order = order or [column.name for column in columns]
            clause = ""
            if bound:
                # Partitions can have their columns in another order than their parent, from which the mirror takes it.
                columns.sort(key=lambda column: order.index(column.name))
                clause = f"PARTITION OF {{schema}}.{quoted(parents)} {bound}"
            elif parents:
                clause = "INHERITS (" + ", ".join("{schema}." + quoted(parent) for parent in parents.split("/")) + ")"
            part = _part(member, columns, [] if key else _lines(session, member, columns, f"FROM ONLY {member.qualified}"))
            part.clause, part.partitioned = clause, key or ""
            parts.append(part)
        return parts

    def _view(self, session, relation, path, unit, depth):
        """A view over the units of what it reads; None where that can't be rebuilt."""
        session.run(f"SET LOCAL search_path = {path or literal('')}")
        text = session.run(f"SELECT pg_catalog.pg_get_viewdef({relation.oid}::pg_catalog.oid)").scalar()
        session.run("SET LOCAL search_path = pg_catalog")
        names = session.run(f"SELECT attname FROM pg_attribute WHERE attrelid = {relation.oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum").rows
        options = session.run(f"SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = {relation.oid}").scalar()
        rows = session.run(
            "SELECT DISTINCT c.oid, c.relname, n.nspname, c.relkind, c.relhassubclass FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid "
            "JOIN pg_class c ON c.oid = d.refobjid JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE r.ev_class = {relation.oid} AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass "
            f"AND d.refobjid <> {relation.oid} AND c.relkind IN ('r', 'v', 'm', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')").rows
        if not rows or not text:
            return None
        try:
            below = [self.unit(session, Relation(*row), path, depth + 1) for row in rows]
        except Unmirrored:
            return None
        marks = " ".join([text, str(names), str(options), *[str(other.number) for other in below]])
        if unit and unit.marks == marks:
            return unit
        statement = (f"CREATE VIEW {{schema}}.{quoted(relation.name)} ({', '.join(quoted(name) for name, in names)})"
                     + (f" WITH ({options})" if options else "") + f" AS {text}")
        try:
            return self._made(marks, [], (statement, below, path))
        except QueryError:
            self.maker.run("ROLLBACK")
            return None

    def _made(self, marks, parts, view=None):
        self.number += 1
        choose = random.Random(f"{self.seed} {[(part.name, part.heap) for part in parts]}")
        made = Unit(self.number, marks, parts, [Form(choose) for _ in parts], view)
        for place, (part, form) in enumerate(zip(parts, made.forms)):
            part.foreign = not part.partitioned and not (part.clause and choose.random() < _HEAP_PARTITIONS)
            if part.foreign:
                folder = self.folder / str(made.number) / str(place)
                folder.mkdir(parents=True)
                form.write(folder, part.columns, [[row[column] for row in part.files] for column in range(len(part.columns))])
        for role in self.roles:
            self._create(made, role)
        if parts and choose.random() < 0.7:
            for role in self.roles:
                for part in parts:
                    self.maker.run(f"ANALYZE {made.schema(role)}.{quoted(part.name)}")
        return made

    def _create(self, unit, role):
        schema = unit.schema(role)
        self.maker.run(f"BEGIN; CREATE SCHEMA {schema}")
        if unit.view:
            statement, below, path = unit.view
            schemas = [other.schema(role) for other in below]
            self.maker.run(f"SET LOCAL search_path = {', '.join([*schemas, *([path] if path else [])])}")
            self.maker.run(statement.replace("{schema}", schema, 1))
        for place, part in enumerate([_flattened(unit.parts)] if role == "s" and unit.parts else unit.parts):
            self._create_part(unit, role, schema, place, part)
        self.maker.run("COMMIT")
        unit.roles.add(role)

    def _create_part(self, unit, role, schema, place, part):
        name = f"{schema}.{quoted(part.name)}"
        columns = "" if part.clause.startswith("PARTITION") else "(" + ", ".join(column.definition for column in part.columns) + ")"
        clause = part.clause.replace("{schema}", schema)
        foreign = role in self.servers and part.foreign
        statement = f"CREATE {'FOREIGN ' if foreign else ''}TABLE {name} {columns} {clause}"
        if part.partitioned:
            statement += f" PARTITION BY {part.partitioned}"
        if foreign:
            statement += f" SERVER {self.servers[role]} OPTIONS (path '{self.folder}/{unit.number}/{place}')"
        self.maker.run(statement)
        if not foreign and not part.partitioned:
            rows = list(part.heap)
            if role == "s":
                rows.reverse()
            elif role in SHUFFLED:
                random.Random(f"{self.seed} {role}").shuffle(rows)
            text = "".join(row + "\n" for row in rows)
            names = ", ".join(quoted(column.name) for column in part.columns)
            self.maker.run_with_rows(f"COPY {name} ({names}) FROM STDIN (FREEZE)", lambda: text)


class _MustBeText(Exception):
    def __init__(self, name):
        super().__init__(name)
        self.name = name


def _columns(session, relation, texts=()):
    """The columns of a relation; those in `texts` as text."""
    rows = session.run(
        "SELECT a.attname, t.typname, b.typname, e.typname, format_type(b.oid, CASE WHEN t.oid = b.oid THEN a.atttypmod ELSE t.typtypmod END), "
        "CASE WHEN t.oid = b.oid THEN a.atttypmod ELSE t.typtypmod END, a.attnotnull, "
        "CASE WHEN a.attcollation NOT IN (0, t.typcollation) THEN (SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname) "
        "FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation) END "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END "
        "LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A' "
        f"WHERE a.attrelid = {relation.oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum").rows
    columns = []
    for name, _, base, item, declared, typmod, not_null, collation in rows:
        kind, array = _kind(base, int(typmod)), False
        if item and _kind(item, int(typmod)) in _ITEMS | {"numeric"} and item != "bpchar":
            kind, array = _kind(item, int(typmod)), True
        if kind is None or name in texts or array and kind == "numeric":
            kind, array, declared = "text", False, "text"
        if collation and kind == "text":
            declared += f" COLLATE {collation}"
        columns.append(Column(name, kind, declared, array, not_null == "t"))
        if kind == "numeric" and int(typmod) >= 0:
            columns[-1].precision, columns[-1].scale = _numeric_shape(int(typmod))
    return columns


def _kind(name, typmod):
    if name in _PLAIN:
        return name
    if name in _TEXTS:
        # Blanks at the end belong to char of no length, and foreign tables don't have them.
        return None if name == "bpchar" and typmod < 0 else "text"
    if name == "numeric":
        if typmod < 0:
            return name
        precision, scale = _numeric_shape(typmod)
        return name if 0 <= scale <= precision <= 38 else None
    return None


def _numeric_shape(typmod):
    """Digits and scale; the scale has eleven bits and a sign."""
    bits = typmod - _LENGTH_WORD
    return bits >> 16 & 0xffff, ((bits & 0x7ff) ^ 1024) - 1024


def _flattened(parts):
    """A tree as one table with all rows."""
    root = parts[0]
    order = [column.name for column in root.columns]
    rows = []
    for part in parts:
        places = {column.name: place for place, column in enumerate(part.columns)}
        cells = [row.split("\t") for row in part.heap]
        rows.extend("\t".join(row[places[name]] for name in order) for row in cells)
    return Part(root.name, root.columns, rows, [])


def _marks(session, relations):
    """What changes whenever these tables do: their columns, and where their rows lie since when."""
    oids = ", ".join(relation.oid for relation in relations) or "0"
    columns = session.run("SELECT string_agg(concat_ws(',', attrelid, attnum, attname, atttypid, atttypmod, attnotnull, attcollation), ';' "
                          f"ORDER BY attrelid, attnum) FROM pg_attribute WHERE attrelid IN ({oids}) AND attnum > 0 AND NOT attisdropped").scalar()
    rows = [session.run(f"SELECT count(*), sum(xmin::text::numeric), sum(hashtid(ctid)), pg_relation_filenode({relation.oid}) "
                        f"FROM ONLY {relation.qualified}").rows for relation in relations]
    return f"{columns} {rows}"


def _lines(session, relation, columns, source):
    """The rows of a relation as COPY prints them."""
    expressions = [expression for column in columns for expression in column.exported]
    rows = session.run(f"COPY (SELECT {', '.join(expressions)} {source} LIMIT {ROWS_MAX + 1}) TO STDOUT").rows
    if len(rows) > ROWS_MAX:
        raise Unmirrored("many rows")
    return [row for row, in rows]


def _digest(relation, columns, lines):
    digest = hashlib.sha256(repr([relation.name, [(column.definition, column.kind) for column in columns]]).encode())
    for line in lines:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _part(relation, columns, lines):
    """A Part of lines of COPY. Raises _MustBeText where a column has a value without a Parquet form."""
    heap, files = _split_rows(columns, lines)
    return Part(relation.name, columns, heap, files)


def _split_rows(columns, lines):
    """Lines of COPY for heap tables, and values for files, of lines with a text and a number for some columns."""
    cells = [line.split("\t") for line in lines]
    place, texts, numbers = 0, [], []
    for column in columns:
        width = len(column.exported)
        texts.append([row[place] for row in cells])
        numbers.append([unescaped(row[place + width - 1]) for row in cells])
        if column.kind == "numeric":
            texts[-1], numbers[-1] = _numerics(column, texts[-1])
        place += width
        _check_writable(column, numbers[-1])
    return ["\t".join(row) for row in zip(*texts)], list(zip(*numbers))


def _numerics(column, texts):
    """Numerics of one scale: a Parquet column has one, so what prints with another gets it in heap tables too."""
    values = [unescaped(text) for text in texts]
    try:
        if column.precision is None or column.declared == "numeric":
            column.precision, column.scale = decimal_shape([value for value in values if value is not None])
        written = [None if value is None else str(value_of(column, value)) for value in values]
    except Unwritable as error:
        raise _MustBeText(column.name) from error
    return ["\\N" if value is None else _plain_decimal(value) for value in written], written


def _plain_decimal(text):
    """`str` of a Decimal may have an exponent (0E-20), which stands for no other value."""
    return format(decimal.Decimal(text), "f")


def _check_writable(column, values):
    try:
        for value in values:
            if value is not None:
                for item in array_items(value) if column.array else [value]:
                    if item is not None:
                        value_of(column, item)
    except Unwritable as error:
        raise _MustBeText(column.name) from error


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unescaped(cell):
    """The value of a cell of COPY's text format."""
    if cell == "\\N":
        return None
    if "\\" not in cell:
        return cell
    text, place = [], 0
    while place < len(cell):
        if cell[place] == "\\":
            place += 1
            text.append(_ESCAPES.get(cell[place], cell[place]))
        else:
            text.append(cell[place])
        place += 1
    return "".join(text)


def quoted(name):
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text):
    """A text as a string of SQL."""
    return "'" + text.replace("'", "''") + "'" if "\\" not in text else " E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
