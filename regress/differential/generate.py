"""Generated queries over t1, t2, t3 and the empty t0, from a seed.

Invariants:
- A query's result is determined: ordered queries order by every column; sums are of exact values; a LIMIT follows
  an order that ends in a key.
- No query fails on heap tables: divisors are never zero and integers stay small. Errors are the edge matrix's.
- Queries name their tables without a schema; the runner sets search_path.

Deliberately absent: the comparison (run.py) and the values (regress/data, views.py).
"""

import random
from dataclasses import dataclass, field, replace

TABLES = ["t1", "t2", "t3"]
JOIN_KEYS = ["a", "b", "i", "c", "s", "d", "n", "k", "ts"]
INTEGERS, NUMERICS, TEXTS = ["a", "i", "id"], ["n", "m"], ["c", "s"]
CONSTANTS = {
    "a": ["-3", "0", "1", "2", "3", "5", "8", "100"],
    "b": ["-5", "0", "1", "3", "7", "4294967296"],
    "i": ["-2", "0", "1", "4"],
    "id": ["1", "7", "20", "33", "64", "65", "1000"],
    "c": ["''", "'a'", "'ab'", "'B'", "'x '", "'zz'", "'foo bar'"],
    "s": ["''", "'a'", "'ab'", "'ab   '", "'AIR'", "'zz'"],
    "d": ["date '1994-08-25'", "date '1994-09-01'", "date '1994-09-20'", "date '1994-08-01' + interval '1' month"],
    "n": ["0", "0.01", "1", "1.5", "2.50", "100", "-0.01", "0.005"],
    "m": ["0", "0.3333", "1.5", "-1.25", "2"],
    "f": ["0", "0.25", "1.5", "2.5", "1e6"],
    "ts": ["timestamp '1992-01-01 00:00:00'", "timestamp '2000-02-29 12:34:56'", "timestamp '1970-01-01'"],
}
# Fields of extract and date_part, and those that a date has.
DATE_FIELDS = ["century", "day", "decade", "dow", "doy", "isodow", "isoyear", "julian", "millennium", "month", "quarter", "week", "year"]
CLOCK_FIELDS = ["epoch", "hour", "microseconds", "milliseconds", "minute", "second"]
MOVES = ["", " + interval '7.736875 seconds'", " - interval '1 month 0.000001 seconds'", " + interval '36 hours'"]
LIKE_PATTERNS = ["'a%'", "'%b'", "'%a%'", "'_'", "'__'", "'%'", "'x%'", "'%special%requests%'", "'\\%'", "'A%'", "'%\u00c4%'"]


@dataclass
class Query:
    """One comparison: `prepare` statements run first in each session, `sql` is compared, `cleanup` follows."""

    name: str
    sql: str
    ordered: bool = False
    prepare: list = field(default_factory=list)
    cleanup: list = field(default_factory=list)
    # The statement that EXPLAIN takes, if it is not `sql`; None if pushdown is not looked at.
    explain: str | None = ""

    def unexplained(self):
        """The same query, which does not count among those that are pushed down."""
        return replace(self, explain=None)


class Generator:
    """Makes queries of each shape from one random source, with constants and patterns that the tables' values meet."""

    def __init__(self, seed, constants, patterns):
        self.choose, self.constants, self.patterns = random.Random(seed), constants, patterns

    # -- parts ---------------------------------------------------------------------------------------------

    def chance(self, probability):
        return self.choose.random() < probability

    def pick(self, values):
        return self.choose.choice(values)

    def some(self, values, low, high):
        return self.choose.sample(values, self.choose.randint(low, min(high, len(values))))

    def table(self):
        return "t0" if self.chance(0.03) else self.pick(TABLES)

    def column(self, aliases, names):
        return f"{self.pick(aliases)}.{self.pick(names)}"

    def atom(self, aliases):
        """A predicate without AND, OR, NOT."""
        alias = self.pick(aliases)
        name = self.pick(list(self.constants))
        column = f"{alias}.{name}"
        constant = lambda: self.pick(self.constants[name])
        kinds = ["compare"] * 4 + ["null", "in", "between", "distinct", "columns", "bool", "expression"]
        if name in TEXTS:
            kinds += ["like"] * 4
        kind = self.pick(kinds)
        if kind == "compare":
            return f"{column} {self.pick(['=', '<>', '<', '<=', '>', '>='])} {constant()}"
        if kind == "null":
            return f"{column} IS {self.pick(['', 'NOT '])}NULL"
        if kind == "in":
            values = [constant() for _ in range(self.choose.randint(1, 4))]
            if self.chance(0.15):
                values.append("NULL")
            return f"{column} {self.pick(['', '', 'NOT '])}IN ({', '.join(values)})"
        if kind == "between":
            return f"{column} {self.pick(['', 'NOT '])}BETWEEN {constant()} AND {constant()}"
        if kind == "distinct":
            return f"{column} IS {self.pick(['', 'NOT '])}DISTINCT FROM {self.pick([constant(), 'NULL'])}"
        if kind == "columns":
            group = self.pick([INTEGERS + ["b"], NUMERICS + INTEGERS, ["c"], ["s"], ["d"], ["f"]])
            return (f"{self.column(aliases, group)} {self.pick(['=', '<>', '<', '>='])} {self.column(aliases, group)}")
        if kind == "bool":
            flag = self.column(aliases, ["k"])
            return f"{flag} {self.pick(['', 'IS TRUE', 'IS NOT TRUE', 'IS FALSE', 'IS NOT FALSE', 'IS NULL'])}".strip()
        if kind == "like":
            return f"{column} {self.pick(['LIKE', 'LIKE', 'NOT LIKE', 'ILIKE'])} {self.pick(self.patterns)}"
        return f"{self.integer(aliases)} {self.pick(['=', '<', '>'])} {self.integer(aliases)}"

    def predicate(self, aliases, depth=2):
        if depth == 0 or self.chance(0.4):
            return self.atom(aliases)
        kind = self.pick(["AND", "AND", "OR", "NOT"])
        if kind == "NOT":
            return f"NOT ({self.predicate(aliases, depth - 1)})"
        return f"({self.predicate(aliases, depth - 1)} {kind} {self.predicate(aliases, depth - 1)})"

    def integer(self, aliases, depth=1):
        """A small integer expression."""
        if depth == 0 or self.chance(0.3):
            return self.column(aliases, INTEGERS)
        left, right = self.integer(aliases, depth - 1), self.integer(aliases, depth - 1)
        return self.pick([
            f"({left} + {right})", f"({left} - {right})", f"({left} * 3)", f"({left} / 2)", f"({left} % 3)", f"abs({left})",
            f"coalesce({left}, {right}, 0)", f"nullif({left}, {right})", f"length({self.column(aliases, ['c'])})",
            f"CASE WHEN {self.atom(aliases)} THEN {left} ELSE {right} END", f"-{left}",
            f"position('a' in {self.column(aliases, ['c'])})", f"greatest({left}, {right})",
        ])

    def numeric(self, aliases):
        left, right = self.column(aliases, NUMERICS), self.column(aliases, NUMERICS + ["a"])
        return self.pick([
            left, f"({left} + {right})", f"({left} - {right})", f"({left} * {right})", f"({left} * (1 - {right}))",
            f"round({left}, 1)", f"abs({left})", f"CASE WHEN {self.atom(aliases)} THEN {left} ELSE 0 END",
            f"({left} / nullif({right}, 0))", f"coalesce({left}, 0)", f"floor({left})", f"ceil({left})", f"-{left}",
        ])

    def text(self, aliases):
        column = self.column(aliases, ["c"])
        return self.pick([
            column, f"upper({column})", f"lower({column})", f"substring({column}, 1, 2)", f"({column} || 'x')",
            f"coalesce({column}, '-')", f"trim({column})", f"concat({column}, {self.column(aliases, ['s'])})",
            f"CASE WHEN {self.atom(aliases)} THEN {column} END", self.column(aliases, ["s"]), f"substring({column} from 2)",
        ])

    def date(self, aliases):
        column = self.column(aliases, ["d"])
        return self.pick([column, f"extract(year from {column})", f"extract(month from {column})", f"({column} + 3)",
                          f"({column} - date '1994-08-20')", f"date_trunc('month', {self.column(aliases, ['ts'])})", self.date_part(aliases)])

    def date_part(self, aliases):
        """A field of a date, a timestamp or a time of day."""
        kind = self.pick(["date", "timestamp", "timestamp", "time"])
        if kind == "date":
            field, value = self.pick(DATE_FIELDS), self.column(aliases, ["d"])
        else:
            value = f"({self.column(aliases, ['ts'])}{self.pick(MOVES)})"
            field = self.pick(CLOCK_FIELDS if kind == "time" else DATE_FIELDS + CLOCK_FIELDS)
            value += "::time" if kind == "time" else ""
        return self.pick([f"extract({field} from {value})", f"date_part('{field}', {value})"])

    def expression(self, aliases):
        return self.pick([self.integer, self.numeric, self.text, self.date])(aliases)

    def key(self, aliases):
        """An expression to group by. Equal numerics of one group must have one scale, as any of them is printed."""
        make = self.pick([self.integer, self.numeric, self.text, self.date])
        return f"round({make(aliases)}, 3)" if make == self.numeric else make(aliases)

    def ordered_aggregate(self, aliases):
        """An aggregate that the order of rows decides: their ids come last in it."""
        exact = INTEGERS + NUMERICS + ["b", "c", "d", "k", "ts"]
        key, value = self.column(aliases, exact), self.column(aliases, exact + ["f"])
        end = self.pick(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
        order = f"ORDER BY {key}{end}, {', '.join(f'{alias}.id' for alias in aliases)}"
        within = f"WITHIN GROUP (ORDER BY {key}{end})"
        number = self.column(aliases, INTEGERS)
        return self.pick([
            f"array_agg({value} {order})", f"array_agg(DISTINCT {key} ORDER BY {key}{end})", f"array_agg(DISTINCT {key})",
            f"string_agg({self.text(aliases)}, ',' {order})", f"string_agg({self.column(aliases, ['c'])}, {self.text(aliases)} {order})",
            f"string_agg(DISTINCT {self.column(aliases, ['c'])}, '-')", f"mode() {within}", f"percentile_disc({self.pick([0, 0.5, 0.9])}) {within}",
            f"percentile_disc(ARRAY[0.25, 1]) {within}", f"percentile_cont(0.37) WITHIN GROUP (ORDER BY {self.column(aliases, INTEGERS + NUMERICS)}{end})",
            f"{self.pick(['rank', 'dense_rank', 'percent_rank', 'cume_dist'])}(2) WITHIN GROUP (ORDER BY {number}{end})",
            f"{self.pick(['bit_and', 'bit_or', 'bit_xor'])}({number})",
        ])

    def aggregate(self, aliases):
        if self.chance(0.07):
            return self.ordered_aggregate(aliases)
        distinct = "DISTINCT " if self.chance(0.2) else ""
        names = INTEGERS + NUMERICS + ["b"]
        call = self.pick([
            "count(*)", f"count({distinct}{self.column(aliases, list(self.constants))})",
            f"sum({distinct}{self.column(aliases, names)})", f"sum({self.numeric(aliases)})", f"sum({self.column(aliases, ['f'])})",
            f"avg({distinct}{self.column(aliases, names)})", f"avg({self.column(aliases, ['f'])})",
            f"min({self.column(aliases, list(self.constants))})", f"max({self.column(aliases, list(self.constants))})",
            f"bool_and({self.column(aliases, ['k'])})", f"bool_or({self.column(aliases, ['k'])})",
            f"regr_count({self.column(aliases, INTEGERS)}, {self.column(aliases, INTEGERS + NUMERICS)})", f"regr_avgx(1, {self.column(aliases, INTEGERS)})",
            f"stddev({self.column(aliases, INTEGERS + NUMERICS)})", f"variance({self.column(aliases, INTEGERS + NUMERICS)})",
            f"var_pop({self.column(aliases, INTEGERS + NUMERICS)})", f"sum({self.integer(aliases)})",
        ])
        if self.chance(0.2):
            call += f" FILTER (WHERE {self.predicate(aliases, 1)})"
        return call

    def condition(self, left, right, equal_only=False):
        """A join condition between two aliases."""
        keys = self.some(JOIN_KEYS, 1, 2)
        parts = [f"{left}.{key} = {right}.{key}" for key in keys]
        if self.chance(0.15):
            parts = [f"{left}.a = {right}.b"]
        if not equal_only and self.chance(0.35):
            parts.append(self.pick([
                f"{left}.id <> {right}.id", f"{left}.n < {right}.n", self.predicate([right], 1), self.predicate([left], 1),
                self.predicate([left, right], 1), f"{left}.a + 1 > {right}.i",
            ]))
        return " AND ".join(parts)

    def ordered(self, name, select_list, rest, **options):
        """A query ordered by all its columns."""
        order = []
        for place in range(1, len(select_list) + 1):
            order.append(f"{place}{self.pick(['', '', ' DESC'])}{self.pick(['', '', ' NULLS FIRST', ' NULLS LAST'])}")
        columns = ", ".join(f"{expression} AS r{place}" for place, expression in enumerate(select_list))
        return Query(name, f"SELECT {columns} {rest} ORDER BY {', '.join(order)}", ordered=True, **options)

    def unordered(self, name, select_list, rest, **options):
        columns = ", ".join(f"{expression} AS r{place}" for place, expression in enumerate(select_list))
        return Query(name, f"SELECT {columns} {rest}", **options)

    def either(self, name, select_list, rest, **options):
        make = self.ordered if self.chance(0.5) else self.unordered
        return make(name, select_list, rest, **options)

    # -- shapes --------------------------------------------------------------------------------------------

    def join_two(self, name):
        kind = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT JOIN", "CROSS JOIN"])
        on = "" if kind == "CROSS JOIN" else f" ON {self.condition('x', 'y', kind == 'FULL JOIN')}"
        where = f" WHERE {self.predicate(['x', 'y'])}" if self.chance(0.7) else ""
        if kind == "CROSS JOIN":
            where = f" WHERE x.id < 15 AND {self.predicate(['x', 'y'])}"
        columns = ["x.id", "y.id"] + [self.expression(["x", "y"]) for _ in range(self.choose.randint(0, 3))]
        return self.either(name, columns, f"FROM {self.table()} x {kind} {self.table()} y{on}{where}")

    def join_three(self, name):
        first, second = (self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "LEFT JOIN"]) for _ in range(2))
        outer = self.pick(["x", "y"])
        if self.chance(0.3):
            source = (f"{self.table()} x {first} ({self.table()} y {second} {self.table()} z "
                      f"ON {self.condition('y', 'z')}) ON {self.condition('x', 'y')}")
        else:
            source = (f"{self.table()} x {first} {self.table()} y ON {self.condition('x', 'y')} "
                      f"{second} t3 z ON {self.condition(outer, 'z')}")
        where = f" WHERE {self.predicate(['x', 'y', 'z'])}" if self.chance(0.8) else ""
        if self.chance(0.5):
            return self.either(name, ["x.id", "y.id", "z.id", self.expression(["x", "y", "z"])], f"FROM {source}{where}")
        return self.either(name, [self.aggregate(["x", "y", "z"]) for _ in range(3)] + ["count(*)"], f"FROM {source}{where}")

    def subquery_predicate(self, outer, inner):
        key = self.pick(["a", "b", "i", "c", "s", "d", "n"])
        correlation = ""
        if self.chance(0.45):
            same = self.pick(["a", "i", "c", "s", "d"])
            correlation = f" AND {inner}.{same} = {outer}.{same}"
            if self.chance(0.4):
                compared = self.pick(["id", "a", "i", "n", "s", "d"])
                comparison = self.pick(["<>", "<", ">=", "IS DISTINCT FROM"])
                correlation += f" AND {inner}.{compared} {comparison} {outer}.{compared}"
        where = f"WHERE {self.predicate([inner], 1)}{correlation}"
        table = self.table()
        aggregate_key = self.pick(["a", "i", "n", "m"])
        return self.pick([
            f"EXISTS (SELECT 1 FROM {table} {inner} {where})",
            f"NOT EXISTS (SELECT 1 FROM {table} {inner} {where})",
            f"{outer}.{key} IN (SELECT {inner}.{key} FROM {table} {inner} {where})",
            f"{outer}.{key} NOT IN (SELECT {inner}.{key} FROM {table} {inner} {where})",
            f"{outer}.{key} NOT IN (SELECT {inner}.{key} FROM {table} {inner} {where} AND {inner}.{key} IS NOT NULL)",
            f"{outer}.{key} = ANY (SELECT {inner}.{key} FROM {table} {inner} {where})",
            f"{outer}.{key} <> ALL (SELECT {inner}.{key} FROM {table} {inner} {where})",
            f"{outer}.a > ALL (SELECT {inner}.a FROM {table} {inner} {where})",
            f"{outer}.a < ANY (SELECT {inner}.a FROM {table} {inner} {where})",
            f"({outer}.a, {outer}.c) IN (SELECT {inner}.a, {inner}.c FROM {table} {inner} {where})",
            f"({outer}.a, {outer}.i) NOT IN (SELECT {inner}.a, {inner}.i FROM {table} {inner} {where})",
            f"{outer}.{aggregate_key} {self.pick(['<', '>', '=', '<='])} (SELECT {self.pick(['min', 'max', 'avg', 'sum'])}"
            f"({inner}.{aggregate_key}) FROM {table} {inner} {where})",
            f"{outer}.n < (SELECT 0.5 * avg({inner}.n) FROM {table} {inner} {where})",
            f"(SELECT count(*) FROM {table} {inner} {where}) {self.pick(['=', '>', '<'])} {self.pick(['0', '1', '3'])}",
        ])

    def nested(self, name):
        predicate = self.subquery_predicate("x", "y")
        if self.chance(0.3):
            predicate = f"({predicate} {self.pick(['AND', 'OR'])} {self.predicate(['x'], 1)})"
        if self.chance(0.25):
            predicate += f" AND {self.subquery_predicate('x', 'z')}"
        if self.chance(0.1):
            predicate = f"NOT ({predicate})"
        columns = ["x.id"] + [self.expression(["x"]) for _ in range(self.choose.randint(0, 2))]
        if self.chance(0.3):
            columns = [self.aggregate(["x"]) for _ in range(2)] + ["count(*)"]
        return self.either(name, columns, f"FROM {self.table()} x WHERE {predicate}")

    def nested_join(self, name):
        kind = self.pick(["JOIN", "LEFT JOIN"])
        source = f"{self.table()} x {kind} {self.table()} y ON {self.condition('x', 'y')}"
        where = f"{self.subquery_predicate(self.pick(['x', 'y']), 'z')} AND {self.predicate(['x', 'y'], 1)}"
        return self.either(name, ["x.id", "y.id"], f"FROM {source} WHERE {where}")

    def scalar_select(self, name):
        same = self.pick(["a", "i", "c", "s"])
        inner = self.pick([
            f"(SELECT {self.pick(['min', 'max', 'sum', 'count', 'avg'])}(y.a) FROM {self.table()} y WHERE y.{same} = x.{same})",
            f"(SELECT count(*) FROM {self.table()} y WHERE y.{same} = x.{same} AND {self.predicate(['y'], 1)})",
            f"(SELECT sum(y.n) FROM {self.table()} y WHERE {self.predicate(['y'], 1)})",
            f"EXISTS (SELECT 1 FROM {self.table()} y WHERE y.{same} = x.{same})",
            f"x.{same} IN (SELECT y.{same} FROM {self.table()} y)",
        ])
        return self.either(name, ["x.id", inner], f"FROM {self.table()} x WHERE {self.predicate(['x'], 1)}")

    def grouped_source(self):
        """One table or two, and their aliases."""
        if self.chance(0.5):
            kind = self.pick(["JOIN", "LEFT JOIN", "FULL JOIN"])
            return f"{self.table()} x {kind} {self.table()} y ON {self.condition('x', 'y', kind == 'FULL JOIN')}", ["x", "y"]
        return f"{self.table()} x", ["x"]

    def group(self, name):
        source, aliases = self.grouped_source()
        keys = []
        for _ in range(self.choose.randint(0, 3)):
            keys.append(self.column(aliases, JOIN_KEYS) if self.chance(0.7) else self.key(aliases))
        where = f" WHERE {self.predicate(aliases)}" if self.chance(0.6) else ""
        by = f" GROUP BY {', '.join(str(place + 1) for place in range(len(keys)))}" if keys else ""
        having = ""
        if self.chance(0.35):
            having = " HAVING " + self.pick([
                f"count(*) {self.pick(['>', '<', '='])} {self.pick(['1', '2', '5'])}", f"sum({aliases[0]}.a) > 3",
                f"min({aliases[0]}.n) < 1", f"count(DISTINCT {aliases[0]}.c) > 1", f"avg({aliases[0]}.a) > 1.5",
                f"sum({aliases[0]}.n) > (SELECT avg(h.n) FROM t3 h)",
            ])
        columns = keys + [self.aggregate(aliases) for _ in range(self.choose.randint(1, 4))]
        return self.either(name, columns, f"FROM {source}{where}{by}{having}")

    def grouping_sets(self, name):
        source, aliases = self.grouped_source()
        keys = [self.column(aliases, JOIN_KEYS) if self.chance(0.8) else self.key(aliases) for _ in range(self.choose.randint(1, 3))]
        some = [self.some(keys, 1, len(keys)) for _ in range(2)]
        listed = ", ".join(keys)
        sets = ", ".join(f"({', '.join(part)})" for part in some)
        by = self.pick([
            f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS ({sets}, ())", f"GROUPING SETS ({sets}, ({listed}))",
            f"{keys[0]}, ROLLUP ({listed})", f"DISTINCT ROLLUP ({listed}), CUBE ({', '.join(some[0])})", "GROUPING SETS (())",
            f"GROUPING SETS (ROLLUP ({listed}), ({', '.join(some[1])}))",
        ])
        columns = list(keys) if "(())" not in by else []
        if columns:
            columns += [f"GROUPING ({listed})", f"{keys[0]} IS NULL", f"coalesce(({keys[-1]})::text, '-')"][: self.choose.randint(0, 3)]
        columns += [self.aggregate(aliases) for _ in range(self.choose.randint(0 if columns else 1, 2))]
        having = ""
        if columns[:1] == keys[:1] and self.chance(0.4):
            having = " HAVING " + self.pick([f"GROUPING ({keys[0]}) = 0", f"{keys[0]} IS NOT NULL", "count(*) > 1",
                                             f"{keys[-1]} IS NULL OR count(*) > 2"])
        where = f" WHERE {self.predicate(aliases)}" if self.chance(0.6) else ""
        rest = f"FROM {source}{where} GROUP BY {by}{having}"
        if " = " not in source + where:
            return self.either(name, columns, rest)
        # PostgreSQL before 18 drops a key of ORDER BY that a condition equates with an earlier one, though grouping sets make one of
        # them NULL. The order is a query's around it.
        body = ", ".join(f"{expression} AS r{place}" for place, expression in enumerate(columns))
        return self.either(name, [f"q.r{place}" for place in range(len(columns))], f"FROM (SELECT {body} {rest}) q")

    def distinct(self, name):
        columns = [self.key(["x"]) for _ in range(self.choose.randint(1, 3))]
        body = ", ".join(f"{expression} AS r{place}" for place, expression in enumerate(columns))
        sql = f"SELECT DISTINCT {body} FROM {self.table()} x WHERE {self.predicate(['x'])}"
        if self.chance(0.4):
            sql += " ORDER BY " + ", ".join(str(place + 1) for place in range(len(columns)))
            return Query(name, sql, ordered=True)
        return Query(name, sql)

    def set_operation(self, name):
        columns = self.some(["a", "i", "c", "d", "n", "s", "k"], 1, 3)
        parts = [f"SELECT {', '.join(f'{alias}.{column}' for column in columns)} FROM {self.table()} {alias} "
                 f"WHERE {self.predicate([alias], 1)}" for alias in ("x", "y", "z")]
        operators = [f"{self.pick(['UNION', 'INTERSECT', 'EXCEPT'])}{self.pick(['', ' ALL'])}" for _ in range(2)]
        sql = f"({parts[0]}) {operators[0]} ({parts[1]})"
        if self.chance(0.3):
            sql = f"({sql}) {operators[1]} ({parts[2]})"
        if self.chance(0.4):
            column = columns[0]
            return self.either(name, [f"u.{column}", "count(*)"], f"FROM ({sql}) u GROUP BY 1")
        return Query(name, sql)

    def union_all(self, name):
        parts = [f"SELECT {alias}.id, {alias}.a, {alias}.n, {alias}.c FROM {self.table()} {alias} "
                 f"WHERE {self.predicate([alias], 1)}" for alias in ("x", "y", "z")[: self.choose.randint(2, 3)]]
        union = " UNION ALL ".join(parts)
        if self.chance(0.5):
            return self.either(name, ["u.c", "count(*)", "sum(u.n)", "max(u.a)"], f"FROM ({union}) u WHERE u.id > 3 GROUP BY 1")
        return self.either(name, ["u.id", "u.a", "v.id"], f"FROM ({union}) u JOIN t3 v ON u.a = v.a WHERE u.n IS NOT NULL")

    def with_query(self, name):
        hint = self.pick(["", "", "MATERIALIZED ", "NOT MATERIALIZED "])
        cte = (f"WITH w AS {hint}(SELECT x.a, x.c, count(*) AS k, sum(x.n) AS total FROM {self.table()} x "
               f"WHERE {self.predicate(['x'], 1)} GROUP BY x.a, x.c)")
        body = self.pick([
            "SELECT w.a, w.c, w.total FROM w WHERE w.total = (SELECT max(total) FROM w)",
            "SELECT w.a, v.a, w.total, v.k FROM w JOIN w v ON w.c = v.c AND w.k <= v.k",
            f"SELECT w.a, w.total, y.id FROM w LEFT JOIN {self.table()} y ON y.a = w.a AND {self.predicate(['y'], 1)}",
            "SELECT sum(w.total), count(*), max(w.k) FROM w",
            "SELECT w.c, sum(w.k) FROM w GROUP BY w.c HAVING sum(w.k) > (SELECT avg(k) FROM w)",
        ])
        return Query(name, f"{cte} {body}")

    def lateral(self, name):
        same = self.pick(["a", "i", "c"])
        inner = self.pick([
            f"SELECT y.id AS v FROM {self.table()} y WHERE y.{same} = x.{same} ORDER BY y.id LIMIT 2",
            f"SELECT sum(y.n) AS v FROM {self.table()} y WHERE y.{same} = x.{same}",
            f"SELECT count(*) AS v FROM {self.table()} y WHERE y.{same} = x.{same} AND {self.predicate(['y'], 1)}",
            "SELECT x.a + 1 AS v",
        ])
        kind = self.pick(["CROSS JOIN LATERAL ({}) l", "LEFT JOIN LATERAL ({}) l ON true"])
        return self.either(name, ["x.id", "l.v"], f"FROM {self.table()} x {kind.format(inner)} WHERE {self.predicate(['x'], 1)}")

    def top(self, name):
        column = self.pick(["a", "b", "c", "s", "d", "n", "f", "k", "ts"])
        direction = self.pick(["", " ASC", " DESC"]) + self.pick(["", " NULLS FIRST", " NULLS LAST"])
        limit = self.pick(["LIMIT 5", "LIMIT 10 OFFSET 3", "LIMIT 0", "OFFSET 30", "LIMIT ALL", "FETCH FIRST 7 ROWS ONLY", "LIMIT 1000"])
        where = f" WHERE {self.predicate(['x'], 1)}" if self.chance(0.5) else ""
        if self.chance(0.3):
            sql = (f"SELECT x.{column}, count(*), sum(x.n) FROM {self.table()} x{where} GROUP BY x.{column} "
                   f"ORDER BY count(*) DESC, x.{column}{direction} {limit}")
        elif self.chance(0.3):
            sql = (f"SELECT q.id, y.id FROM (SELECT x.id, x.a FROM {self.table()} x{where} ORDER BY x.{column}{direction}, x.id {limit}) q "
                   f"LEFT JOIN t3 y ON q.a = y.a ORDER BY 1, 2")
        else:
            sql = f"SELECT x.{column}, x.id FROM {self.table()} x{where} ORDER BY x.{column}{direction}, x.id {limit}"
        return Query(name, sql, ordered=True)

    def derived(self, name):
        inner = (f"SELECT y.{self.pick(['a', 'i'])} AS g, count(*) AS k, {self.aggregate(['y'])} AS v FROM {self.table()} y "
                 f"WHERE {self.predicate(['y'], 1)} GROUP BY 1")
        kind = self.pick(["JOIN", "LEFT JOIN", "FULL JOIN"])
        return self.either(name, ["x.id", "q.g", "q.k", "q.v"],
                           f"FROM {self.table()} x {kind} ({inner}) q ON x.a = q.g WHERE coalesce(x.id, 1) < 60")

    def local(self, name):
        """Heap tables of `public` on one side, whatever the search path says of the other."""
        kind = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        local, table = f"public.local_{self.pick(TABLES)}", self.table()
        left, right = (local, table) if self.chance(0.5) else (table, local)
        if self.chance(0.3):
            return self.either(name, ["x.id"], f"FROM {left} x WHERE {self.subquery_predicate('x', 'y')} "
                                               f"AND x.a IN (SELECT w.a FROM {right} w)")
        if self.chance(0.4):
            return self.either(name, ["x.c", "count(*)", "sum(y.n)"],
                               f"FROM {left} x {kind} {right} y ON x.a = y.a WHERE {self.predicate(['x', 'y'], 1)} GROUP BY 1")
        return self.either(name, ["x.id", "y.id"], f"FROM {left} x {kind} {right} y ON {self.condition('x', 'y', True)} "
                                                   f"WHERE {self.predicate(['x', 'y'], 1)}")

    def small_side(self, name):
        """A relation of PostgreSQL's with few rows, many, none, NULLs and duplicates, joined by keys with tables and joins of them."""
        key, values = self.pick([
            ("a", "integer"), ("a", "bigint"), ("b", "integer"), ("b", "bigint"), ("i", "smallint"), ("i", "integer"), ("id", "integer"),
            ("n", "numeric"), ("n", "integer"), ("c", "text"), ("s", "text"), ("s", "char(5)"), ("d", "date"), ("d", "timestamp"), ("ts", "timestamp"),
            ("f", "float8"), ("k", "boolean"),
        ])
        chosen = [value for value in (self.pick(self.constants.get(key, ["true", "false"])) for _ in range(self.choose.randint(1, 6)))
                  if values != "integer" or not value.startswith("4294967296")]
        chosen += ["NULL"] * self.pick([0, 1, 2])
        listed = ", ".join(f"(CAST({value} AS {values}))" for value in chosen or ["NULL"])
        small = self.pick([
            f"(VALUES {listed}) v (x)", f"(VALUES {listed}) v (x)", f"(SELECT x FROM (VALUES {listed}) w (x) WHERE x IS NULL) v",
            f"unnest(ARRAY(VALUES {listed})) v (x)", f"(SELECT w.{key} AS x FROM public.local_{self.pick(TABLES)} w WHERE {self.predicate(['w'], 1)}) v",
            f"(SELECT w.{key} AS x FROM public.local_t3 w ORDER BY w.id LIMIT {self.pick([0, 3, 30])}) v",
        ])
        big, aliases = self.pick([
            (f"{self.table()} t", ["t"]), (f"{self.table()} t", ["t"]),
            (f"({self.table()} t JOIN {self.table()} u ON {self.condition('t', 'u', True)} AND t.id < 40)", ["t", "u"]),
            (f"({self.table()} t LEFT JOIN {self.table()} u ON {self.condition('t', 'u', True)} AND u.id < 20)", ["t", "u"]),
            (f"(SELECT DISTINCT {key} AS {key}, id FROM {self.table()} WHERE id % 3 > 0) t", []),
            (f"(SELECT {key} AS {key}, max(id) AS id FROM {self.table()} GROUP BY 1) t", []),
            (f"(SELECT {key}, id FROM {self.table()} UNION ALL SELECT {key}, -id FROM {self.table()}) t", []),
        ])
        on = f"t.{key} = v.x"
        if self.chance(0.3):
            on += f" AND {self.predicate(aliases, 1) if aliases else 't.id > 5'}"
        # Few rows cost little; with this it is worth to have fewer of them. And sometimes the keys are too many.
        prepare = ["SET cpu_operator_cost = 1", f"SET pystachio.join_keys = {self.pick([100000, 100000, 3])}"]
        options = {"prepare": prepare, "cleanup": ["RESET cpu_operator_cost", "RESET pystachio.join_keys"], "explain": None}
        kind = self.pick(["join", "join", "in", "exists", "not_exists", "other_exists", "left", "right", "full", "scalar", "group"])
        if kind == "in":
            return self.either(name, ["t.id", f"t.{key}"], f"FROM {big} WHERE t.{key} IN (SELECT v.x FROM {small})", **options)
        if kind in ("exists", "not_exists"):
            word = "EXISTS" if kind == "exists" else "NOT EXISTS"
            return self.either(name, ["v.x"], f"FROM {small} WHERE {word} (SELECT FROM {big} WHERE {on})", **options)
        if kind == "other_exists":
            return self.either(name, ["t.id"], f"FROM {big} WHERE {self.pick(['', 'NOT '])}EXISTS (SELECT FROM {small} WHERE {on})", **options)
        if kind == "scalar":
            inner = self.pick([f"(SELECT count(*) FROM {big} JOIN (SELECT o.{key} AS x UNION ALL SELECT NULL) v ON {on})",
                               f"(SELECT count(t.id) FROM (SELECT o.{key} AS x UNION ALL SELECT o.{key}) v LEFT JOIN {big} ON {on})"])
            return self.either(name, ["o.id", inner], "FROM public.local_t3 o WHERE o.id < 25", **options)
        if kind == "group":
            return self.either(name, ["v.x", "count(*)", "sum(t.id)"], f"FROM {big} JOIN {small} ON {on} GROUP BY 1", **options)
        word = {"join": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}[kind]
        if kind == "full":
            on = f"t.{key} = v.x"
        sides = (big, small) if self.chance(0.5) else (small, big)
        return self.either(name, ["t.id", f"t.{key}", "v.x"], f"FROM {sides[0]} {word} {sides[1]} ON {on}", **options)

    def prepared(self, name):
        """The same statement with several parameters, as a custom and as a generic plan."""
        mode = self.pick(["force_custom_plan", "force_generic_plan"])
        types, body, calls = self.pick([
            ("integer", "SELECT x.id, x.a FROM t1 x WHERE x.a = $1", ["1", "NULL", "100"]),
            ("integer, text", "SELECT count(*), sum(x.n) FROM t1 x JOIN t2 y ON x.a = y.a WHERE x.a > $1 AND y.c <> $2",
             ["0, 'a'", "NULL, 'a'", "-5, ''"]),
            ("numeric", "SELECT x.id, x.n FROM t1 x WHERE x.n >= $1", ["1.5", "0.005", "NULL", "1e30", "-12345.678901"]),
            ("date", "SELECT x.id, x.d FROM t2 x WHERE x.d < $1 AND x.d >= $1 - 7", ["'1994-09-01'", "NULL"]),
            ("bigint", "SELECT x.id FROM t1 x ORDER BY x.id LIMIT $1", ["5", "0", "NULL"]),
            ("text", "SELECT x.id, x.c FROM t1 x WHERE x.c LIKE $1", ["'a%'", "'%'", "NULL", "'\\%'"]),
            ("integer[]", "SELECT x.id FROM t1 x WHERE x.a = ANY ($1)", ["'{1,2,NULL}'", "'{}'", "NULL"]),
            ("integer", "SELECT x.id FROM t1 x WHERE $1 > 5 AND EXISTS (SELECT 1 FROM t2 y WHERE y.a = x.a)", ["6", "5", "NULL"]),
            ("integer", "SELECT x.c, sum(x.n * $1) FROM t1 x GROUP BY x.c HAVING count(*) > $1", ["1", "3"]),
            ("char(5)", "SELECT x.id FROM t1 x WHERE x.s = $1", ["'ab'", "'ab   '", "''", "NULL"]),
            ("timestamp", "SELECT x.id FROM t1 x WHERE x.ts >= $1", ["'1992-01-01'", "'infinity'", "NULL"]),
            ("float8", "SELECT x.id, x.f FROM t1 x WHERE x.f <> $1", ["0.25", "'NaN'", "NULL"]),
            ("boolean", "SELECT x.id FROM t1 x WHERE x.k IS NOT DISTINCT FROM $1", ["true", "NULL"]),
            ("integer, integer", "SELECT x.id, (SELECT max(y.n) FROM t2 y WHERE y.a = x.a AND y.i < $2) FROM t1 x WHERE x.a < $1",
             ["3, 2", "NULL, 1"]),
        ])
        arguments = self.pick(calls)
        return Query(name, f"EXECUTE generated({arguments})",
                     prepare=[f"SET plan_cache_mode = {mode}", f"PREPARE generated({types}) AS {body}"],
                     cleanup=["DEALLOCATE generated", "RESET plan_cache_mode"], explain=f"EXECUTE generated({arguments})")

    # -- guards, sets and LATERAL: PostgreSQL keeps a part of each ------------------------------------------

    def failing(self, aliases):
        """A condition, and a text that fails for rows for which that is not true, with a function that is not pushed down."""
        column, other = self.column(aliases, INTEGERS), self.column(aliases, INTEGERS)
        divisor = self.pick([column, f"({column} - {other})", f"({column} % 3)", f"(length({self.column(aliases, ['c'])}) - 1)"])
        value, form = self.pick([(f"100 / {divisor}", "'S9999'"), (f"{other} % {divisor}", "'S999'"), (f"1.5 / {divisor}", "'S99D999'")])
        long = self.column(aliases, ["b"])
        return self.pick([
            (f"{divisor} <> 0", f"to_char({value}, {form})"), (f"{divisor} > 0", f"to_char({value}, {form})"),
            (f"{column} > 0", f"quote_nullable(substring({self.column(aliases, ['c'])}, 1, {column} - 1))"),
            (f"abs({long}) < 1000", f"to_char({long}::integer * 1000, 'S9999999')"),
        ])

    def guarded_text(self, aliases):
        """A text whose failing part is evaluated only where it does not fail."""
        guard, text = self.failing(aliases)
        atom = self.atom(aliases)
        return self.pick([
            f"CASE WHEN {guard} THEN {text} END", f"CASE WHEN {guard} AND {atom} THEN {text} ELSE '-' END",
            f"CASE WHEN ({guard}) IS NOT TRUE THEN 'none' WHEN {atom} THEN {text} ELSE {self.text(aliases)} END",
            f"coalesce(CASE WHEN ({guard}) IS NOT TRUE THEN 'none' END, {text})", f"({guard} AND {text} > '+2')",
            f"(({guard}) IS NOT TRUE OR {text} > '+2')", f"CASE ({guard}) IS TRUE WHEN true THEN {text} END",
            f"upper(CASE WHEN {guard} THEN {text} END)",
        ])

    def guarded(self, name):
        source, aliases = self.grouped_source()
        where = f" WHERE {self.predicate(aliases)}" if self.chance(0.5) else ""
        value = self.guarded_text(aliases)
        kind = self.pick(["plain", "plain", "group", "filter", "derived", "where", "aggregates"])
        if kind == "group":
            return self.either(name, [value, "count(*)"], f"FROM {source}{where} GROUP BY 1", explain=None)
        if kind == "filter":
            guard, text = self.failing(aliases)
            columns = [f"min({text}) FILTER (WHERE {guard})", "count(*)", self.aggregate(aliases)]
            return self.either(name, columns, f"FROM {source}{where}", explain=None)
        if kind == "derived":
            inner = f"SELECT {aliases[0]}.id AS g, {value} AS v FROM {source}{where}"
            return self.either(name, ["z.id", "q.v"], f"FROM t3 z LEFT JOIN ({inner}) q ON z.id = q.g", explain=None)
        if kind == "where":
            guard, text = self.failing(aliases)
            return self.either(name, ["count(*)"], f"FROM {source} WHERE CASE WHEN {guard} THEN {text} > '+2' END", explain=None)
        if kind == "aggregates":
            over = f"CASE WHEN count({aliases[0]}.a) > 0 THEN to_char(sum({aliases[0]}.i) / count({aliases[0]}.a), 'S999') END"
            key = self.column(aliases, JOIN_KEYS)
            return self.either(name, [key, over, "grouping(" + key + ")"], f"FROM {source}{where} GROUP BY 1", explain=None)
        return self.either(name, [f"{alias}.id" for alias in aliases] + [value], f"FROM {source}{where}", explain=None)

    def sets(self, name):
        """Functions in the target list that return sets, which PostgreSQL calls."""
        source, aliases = self.grouped_source()
        where = f" WHERE {self.predicate(aliases)}" if self.chance(0.6) else ""
        column = self.column(aliases, ["a", "i"])
        series = self.pick([
            "generate_series(1, 2)", f"generate_series(1, least({column}, 4))", f"unnest(ARRAY[{column}, {self.column(aliases, INTEGERS)}])",
            f"generate_series(1, 2) + {column}", f"unnest(ARRAY[{self.integer(aliases)}, 0])",
        ])
        kind = self.pick(["plain", "plain", "distinct", "group", "aggregates", "derived", "limit"])
        if kind == "distinct":
            return Query(name, f"SELECT DISTINCT {series}, {column} > 1 FROM {source}{where}", explain=None)
        if kind == "group":
            return self.either(name, [series, "count(*)", self.aggregate(aliases)], f"FROM {source}{where} GROUP BY 1", explain=None)
        if kind == "aggregates":
            columns = [column, "count(*)", "generate_series(1, least(count(*), 3))"]
            return self.either(name, columns, f"FROM {source}{where} GROUP BY 1", explain=None)
        if kind == "derived":
            return self.either(name, ["q.u", "count(*)"], f"FROM (SELECT {series} AS u FROM {source}{where}) q GROUP BY 1", explain=None)
        if kind == "limit":
            keys = ", ".join(f"{alias}.id" for alias in aliases)
            sql = f"SELECT {keys}, generate_series(1, 2) AS g FROM {source}{where} ORDER BY {keys}, g LIMIT 7"
            return Query(name, sql, ordered=True, explain=None)
        return self.either(name, [f"{alias}.id" for alias in aliases] + [series], f"FROM {source}{where}", explain=None)

    def lateral_outer(self, name):
        """Columns of the outer side below an outer join, NULL where that finds no partner."""
        outer = self.pick(["x.a + 1", "coalesce(y.a, x.a)", "least(x.a, y.a)", "x.a", "x.c", "coalesce(x.c, '-')", "1", "coalesce(y.a, 7)",
                           "y.i"])
        inner = f"SELECT y.id, y.a, y.i, {outer} AS v FROM {self.table()} y"
        if self.chance(0.3):
            inner += f" {self.pick(['LEFT JOIN', 'JOIN'])} {self.table()} w ON {self.condition('y', 'w')}"
        if self.chance(0.3):
            inner += f" WHERE {self.predicate(['y'], 1)}"
        on = f"s.{self.pick(['id', 'a', 'i'])} = x.{self.pick(['id', 'a', 'i'])}"
        if self.chance(0.6):
            on += f" AND {self.pick([self.atom(['x']), 's.a > 1', 's.v IS NOT NULL'])}"
        source = f"{self.table()} x LEFT JOIN LATERAL ({inner}) s ON {on}"
        columns = ["x.id", "s.id", "s.v"]
        if self.chance(0.3):
            source += f" LEFT JOIN LATERAL (SELECT z.id, s.v AS w FROM t3 z) t ON t.id = x.{self.pick(['id', 'a'])}"
            columns.append("t.w")
        if self.chance(0.3):
            return self.either(name, ["s.v", "count(*)"], f"FROM {source} GROUP BY 1", explain=None)
        where = f" WHERE {self.pick([self.atom(['x']), 's.v IS NULL', 's.v IS NOT NULL', 's.id IS NULL OR s.a > 0'])}" if self.chance(0.5) else ""
        return self.either(name, columns, f"FROM {source}{where}", explain=None)

    def beyond(self, name):
        """What is not pushed down whole must still be right."""
        return Query(name, self.pick([
            f"SELECT x.id, row_number() OVER (PARTITION BY x.a ORDER BY x.id), sum(x.n) OVER (PARTITION BY x.c) FROM {self.table()} x",
            f"SELECT x.a, count(*), rank() OVER (ORDER BY count(*)) FROM {self.table()} x GROUP BY GROUPING SETS ((x.a), ())",
            f"SELECT x.a, (SELECT max(id) FROM t2) AS m FROM {self.table()} x GROUP BY ROLLUP (x.a, x.i)",
            f"SELECT DISTINCT ON (x.a) x.a, x.id FROM {self.table()} x ORDER BY x.a, x.id",
            f"SELECT json_agg(x.f ORDER BY x.id) FROM {self.table()} x WHERE {self.predicate(['x'], 1)}",
            f"SELECT array_agg(ARRAY[x.s] ORDER BY x.id) FROM {self.table()} x WHERE {self.predicate(['x'], 1)}",
            f"SELECT x.id, generate_series(1, x.i) FROM {self.table()} x WHERE x.i < 4",
            f"SELECT x.id, x::text FROM {self.table()} x WHERE x.id < 5",
            f"SELECT x.id, format('%1$s', x.c), to_char(x.d, 'TMYYYY Mon') FROM {self.table()} x WHERE format('%1$s', x.c) > 'e'",
            f"SELECT percentile_disc(x.i / 10.0) WITHIN GROUP (ORDER BY x.n) FROM {self.table()} x WHERE x.i >= 0 GROUP BY x.i",
            f"SELECT * FROM {self.table()} x FULL JOIN {self.table()} y USING (id) WHERE coalesce(x.a, y.a) > 2",
            f"SELECT * FROM {self.table()} x NATURAL JOIN (SELECT y.a, y.i FROM {self.table()} y) q",
            "WITH RECURSIVE r AS (SELECT id, a FROM t1 WHERE id = 1 UNION ALL SELECT t.id, t.a FROM t1 t JOIN r ON t.id = r.id + 1 "
            "WHERE t.id < 20) SELECT * FROM r",
            f"SELECT count(*) FROM (VALUES (1), (2), (NULL)) v(a) JOIN {self.table()} x ON x.a = v.a",
            f"SELECT x.id FROM {self.table()} x WHERE x.tableoid IS NOT NULL AND {self.predicate(['x'], 1)}",
        ]), explain=None)

    # -- windows ---------------------------------------------------------------------------------------------

    def order_by(self, aliases, keys):
        words = lambda: f"{self.pick(['', ' DESC'])}{self.pick(['', '', ' NULLS FIRST', ' NULLS LAST'])}"
        return ", ".join(f"{self.column(aliases, [key])}{words()}" for key in keys)

    def frame(self, key):
        """A frame over rows, peer groups, or values of the only key, if one can be added to it."""
        bounds = lambda offset: (f"{offset} PRECEDING", "CURRENT ROW", f"{offset} FOLLOWING")
        unit = self.pick(["ROWS", "GROUPS"] + (["RANGE"] * 2 if key in ("a", "i", "id", "n", "d", "ts") else []))
        offset = lambda: str(self.choose.randint(0, 4))
        if unit == "RANGE" and key == "n":
            offset = lambda: self.pick(["0", "0.5", "1.25", "100"])
        elif unit == "RANGE" and key in ("d", "ts"):
            offset = lambda: self.pick(["'1 day'", "'2 days 3 hours'", "'1 month'", "'0 seconds'"])
        low, high = sorted([self.choose.randint(0, 3), self.choose.randint(0, 3)])
        starts = ["UNBOUNDED PRECEDING", *bounds(offset())]
        ends = [*bounds(offset()), "UNBOUNDED FOLLOWING"]
        exclude = self.pick(["", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS"])
        return f" {unit} BETWEEN {starts[low]} AND {ends[high]}{exclude}"

    def window_function(self, alias):
        """What is computed of a frame, or of a partition."""
        column = self.column([alias], list(self.constants))
        if self.chance(0.4):
            call = self.aggregate([alias])
            return call.replace("DISTINCT ", "")
        return self.pick([
            "row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", f"ntile({self.choose.randint(1, 5)})",
            f"lag({column})", f"lead({column}, {self.choose.randint(0, 3)})", f"lag({alias}.id, {self.choose.randint(-2, 2)}, 0)",
            f"lead({alias}.n, 1, -1.50)", f"lag({alias}.c, 2, 'none')", f"first_value({column})", f"last_value({column})",
            f"nth_value({column}, {self.choose.randint(1, 4)})",
        ])

    def window(self, name):
        """Window functions over a table, a join or groups; the first rows of each partition; the orders are of all rows."""
        if self.chance(0.2):
            table, key = self.table(), self.pick(["a", "i", "c", "k"])
            over = f"{self.pick(['', 'PARTITION BY count(*) % 2 '])}ORDER BY {self.pick(['sum(x.n)', 'count(*)'])}{self.pick(['', ' DESC'])}, x.{key}"
            calls = ["rank() OVER w", "sum(count(*)) OVER w", "sum(x.n) / nullif(sum(sum(x.n)) OVER (), 0)", f"lag(x.{key}) OVER w"]
            group = f"x.{key}" if self.chance(0.6) else f"ROLLUP (x.{key}, x.b)"
            if group != f"x.{key}":
                calls = ["rank() OVER (PARTITION BY grouping(x.b) ORDER BY count(*))", f"count(*) OVER (PARTITION BY x.{key})"]
                return self.either(name, [f"x.{key}", "x.b", "count(*)", *self.some(calls, 1, 2)], f"FROM {table} x GROUP BY {group}")
            return self.either(name, [f"x.{key}", "count(*)", *self.some(calls, 1, 3)], f"FROM {table} x GROUP BY {group} WINDOW w AS ({over})")
        source, where = f"{self.table()} x", f" WHERE {self.predicate(['x'], 1)}" if self.chance(0.3) else ""
        if self.chance(0.2):
            source += f" {self.pick(['LEFT JOIN', 'JOIN'])} (SELECT a AS h, max(id) AS g FROM t2 GROUP BY a) y ON y.h = x.a"
        windows, calls = [], []
        for number in range(self.choose.randint(1, 3)):
            partition = ", ".join(f"x.{key}" for key in self.some(["a", "b", "i", "c", "s", "d", "k", "n", "f"], 0, 2))
            keys = self.some([key for key in self.constants if key != "id"], 0, 2)
            if self.chance(0.25) and len(keys) == 1:
                # With peers: what is the same for all of them.
                call = self.pick(["rank()", "dense_rank()", "cume_dist()", "percent_rank()", "count(*)", "sum(x.n)", "max(x.c)", "avg(x.a)"])
                order, frame = f" ORDER BY {self.order_by(['x'], keys)}", self.pick(["", " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING"])
            else:
                call, key = self.window_function("x"), (keys + ["id"])[0]
                order = f" ORDER BY {self.order_by(['x'], keys + ['id'])}"
                frame = self.frame(key if not keys else "") if self.chance(0.6) else ""
            windows.append(f"w{number} AS ({f'PARTITION BY {partition}' if partition else ''}{order}{frame})")
            if " FILTER" in call:
                call, condition = call.split(" FILTER", 1)
                calls.append(f"{call} FILTER{condition} OVER w{number}")
            else:
                calls.append(f"{call} OVER w{number}")
        columns = [f"{call} AS v{place}" for place, call in enumerate(calls)]
        if self.chance(0.3):
            first = f"{self.pick(['row_number', 'rank', 'dense_rank'])}() OVER (PARTITION BY x.{self.pick(['a', 'c', 'k'])} ORDER BY x.{self.pick(['n', 'd', 'i'])}, x.id)"
            inner = f"SELECT x.id, {first} AS r, {columns[0]} FROM {source}{where} WINDOW {', '.join(windows)}"
            return Query(name, f"SELECT * FROM ({inner}) q WHERE r {self.pick(['<=', '<', '='])} {self.choose.randint(1, 4)}{self.pick(['', ' AND v0 IS NOT NULL'])}")
        if self.chance(0.15):
            keys = self.some(["a", "b", "c", "d", "k", "n"], 1, 2)
            on = ", ".join(f"x.{key}" for key in keys)
            return Query(name, f"SELECT DISTINCT ON ({on}) {on}, x.id, x.n FROM {source}{where} ORDER BY {on}, {self.order_by(['x'], self.some(['i', 'n', 's'], 0, 2) + ['id'])}")
        if self.chance(0.1):
            key = self.pick(["a", "c", "d", "k"])
            return Query(name, f"SELECT x.{key}, count(*) FROM (SELECT x.{key} FROM {source}{where} ORDER BY {self.order_by(['x'], [key])} "
                               f"OFFSET {self.choose.randint(0, 5)} FETCH FIRST {self.choose.randint(0, 9)} ROWS WITH TIES) x GROUP BY x.{key}")
        return self.either(name, ["x.id", *calls], f"FROM {source}{where} WINDOW {', '.join(windows)}")

    # -- subqueries for each row, whatever else stays in PostgreSQL -------------------------------------------

    def tie(self, outer="x"):
        """What ties a subquery over y to a row of `outer`: equalities, and conditions of y alone."""
        same = [f"y.{column} = {outer}.{column}" for column in self.some(["a", "b", "i", "c", "s", "d", "id", "k"], 1, 2)]
        if self.chance(0.15):
            other = self.atom(["y"])
            return f"(({' AND '.join(same)} AND {self.atom(['y'])}) OR ({' AND '.join(same)} AND {other}))"
        return " AND ".join(same + ([self.predicate(["y"], 1)] if self.chance(0.4) else []))

    def row_value(self):
        """A scalar subquery over y, for a row of x."""
        order = f"y.{self.pick(['n', 'd', 'c', 'a'])}{self.pick([' DESC', ''])}{self.pick([' NULLS FIRST', ' NULLS LAST', ''])}, y.id"
        value = self.pick([
            "count(*)", "count(y.c)", "sum(y.n)", "max(y.d)", "coalesce(sum(y.a), 0) + count(*)", "string_agg(y.c, ',' ORDER BY y.id)", "limit", "limit",
            "offset", "exists",
        ])
        source = f"FROM {self.table()} y WHERE {self.tie()}"
        if value == "exists":
            return f"EXISTS (SELECT 1 {source})"
        if value in ("limit", "offset"):
            return f"(SELECT y.{self.pick(['n', 'c', 'id', 'd'])} {source} ORDER BY {order} LIMIT 1{' OFFSET 1' if value == 'offset' else ''})"
        return f"(SELECT {value} {source})"

    def by_part(self, name):
        """Subqueries in columns, conditions, groups and aggregates, beside what only PostgreSQL computes."""
        table = self.pick([self.table(), self.table(), self.table(), "public.local_t3"])
        value, local = self.row_value(), self.pick(["to_char(x.d, 'TMYYYY')", "format('%1$s', x.c)"])
        where = f"WHERE {self.predicate(['x'], 1)}" if self.chance(0.5) else f"WHERE {local} IS NOT NULL"
        columns, rest = self.pick([
            (["x.id", value], f"FROM {table} x {where}"),
            (["x.id", local, value], f"FROM {table} x {where}"),
            ([local, "count(*)"], f"FROM {table} x {where} AND {value} IS NOT NULL GROUP BY 1"),
            ([value, "count(*)", f"min({local})"], f"FROM {table} x {where} GROUP BY 1"),
            ([local, f"count({value})"], f"FROM {table} x {where} GROUP BY 1"),
            (["x.id"], f"FROM {table} x {where} AND (x.i = 1 OR {value} IS NULL)"),
            (["x.id", "z.id", value], f"FROM {table} x LEFT JOIN t3 z ON x.a = z.a AND {local} <> z.c {where}"),
        ])
        return self.either(name, columns, rest).unexplained()

    def lateral_groups(self, name):
        """LATERAL subqueries with aggregates, groups, DISTINCT and limits, in joins of every kind."""
        source, limit = f"FROM {self.table()} y WHERE {self.tie()}", self.choose.randint(0, 3)
        inner, columns = self.pick([
            (f"SELECT count(*) AS v, max(y.c) AS w {source}", ["v", "w"]), (f"SELECT sum(y.n) AS v, count(y.a) + 1 AS w {source}", ["v", "w"]),
            (f"SELECT y.i AS v, count(*) AS w {source} GROUP BY y.i", ["v", "w"]), (f"SELECT DISTINCT y.c AS v, y.k AS w {source}", ["v", "w"]),
            (f"SELECT y.k AS v, sum(y.a) AS w {source} GROUP BY y.k, y.i HAVING count(*) > 1", ["v", "w"]),
            (f"SELECT y.id AS v, y.n AS w {source} ORDER BY y.n DESC, y.id LIMIT {limit}", ["v", "w"]),
            (f"SELECT y.id AS v, md5(y.c) AS w {source} ORDER BY y.id LIMIT {limit} OFFSET 1", ["v", "w"]),
        ])
        join = self.pick([
            f"x CROSS JOIN LATERAL ({inner}) l", f"x LEFT JOIN LATERAL ({inner}) l ON true", f"x, LATERAL ({inner}) l",
            f"x LEFT JOIN LATERAL ({inner}) l ON l.v IS NOT NULL", f"x JOIN LATERAL ({inner}) l ON x.i > 0",
            f"x CROSS JOIN LATERAL ({inner}) l LEFT JOIN t3 z ON z.a = x.a AND l.w IS NOT NULL",
        ])
        source = f"{self.table()} {join}"
        if self.chance(0.25) and "t3 z" not in join:
            source = f"t3 z {self.pick(['LEFT', 'FULL'])} JOIN ({self.table()} {join}) ON z.id = x.a"
        return self.either(name, ["x.id"] + [f"l.{column}" for column in columns], f"FROM {source}").unexplained()


SHAPES = [
    ("join_two", 70), ("join_three", 45), ("nested", 80), ("nested_join", 25), ("scalar_select", 25), ("group", 75),
    ("distinct", 20), ("set_operation", 30), ("union_all", 20), ("with_query", 20), ("lateral", 15), ("top", 30),
    ("derived", 25), ("local", 30), ("prepared", 40), ("beyond", 25),
    ("grouping_sets", 50), ("guarded", 45), ("sets", 30), ("lateral_outer", 40), ("small_side", 80),
    ("by_part", 70), ("lateral_groups", 50), ("window", 150),
]


def generated(seed, factor=1.0, constants=CONSTANTS, patterns=LIKE_PATTERNS):
    """All generated queries: `factor` scales how many of each shape."""
    generator = Generator(seed, constants, patterns)
    queries = []
    for shape, count in SHAPES:
        for number in range(max(1, int(count * factor))):
            queries.append(getattr(generator, shape)(f"{shape}_{number + 1:03}"))
    return queries
