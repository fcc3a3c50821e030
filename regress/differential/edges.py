"""The expression edge matrix: every function and operator of the plan language over the edge values of its types.

What is called local is not pushed down on purpose, and not counted where it is counted how much is.

An entry is an expression over `a.v` (and `b.v`). It is evaluated for every row (or pair of rows) of the edge
tables, in the target list and in a filter. Where PostgreSQL raises an error for some rows, those rows are run one
by one, and the error's SQLSTATE and message are compared.

Deliberately absent: what counts as pushed down; the runner reports it.
"""

from dataclasses import dataclass

INTEGERS = ["int2", "int4", "int8"]
FLOATS = ["float4", "float8"]
NUMERICS = ["numeric_15_2", "numeric_38_10", "numeric_9_4", "numeric_5_0"]
TEXTS = ["text", "varchar", "char"]
TIMES = ["date", "timestamp", "timestamptz", "time"]
ORDERED = ["bool"] + INTEGERS + FLOATS + NUMERICS + TEXTS + TIMES + ["uuid", "bytea"]
ARRAYS = ["int4_array", "text_array", "numeric_array", "date_array"]
# Of each array a type whose values its elements are compared with.
ELEMENTS = ["int4", "text", "numeric_15_2", "date"]
FORMS = ["uint8", "uint16", "uint32", "uint64", "int8", "decimal_int32", "decimal_int64", "decimal_fixed", "timestamp_ms",
         "timestamp_ns", "timestamp_int96", "timestamptz_ms", "time_ms", "time_ns", "float16", "large_string", "dictionary",
         "string_plain", "string_delta", "int_delta", "float_split", "page_v2", "zstd", "gzip", "brotli", "lz4",
         "no_statistics", "json"]

COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
CROSS_PAIRS = [("int2", "int4"), ("int4", "int8"), ("int2", "int8"), ("float4", "float8"), ("int4", "float8"), ("int8", "float8"),
               ("int4", "numeric_15_2"), ("int8", "numeric_38_10"), ("numeric_15_2", "numeric_38_10"),
               ("numeric_9_4", "numeric_5_0"), ("numeric_15_2", "float8"), ("date", "timestamp"), ("date", "timestamptz"),
               ("timestamp", "timestamptz"), ("text", "varchar"), ("char", "text"), ("varchar", "char")]
FIELDS = ["microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade",
          "century", "millennium", "dow", "isodow", "doy", "isoyear", "epoch"]
# Those that no engine has.
OTHER_FIELDS = ["julian", "timezone", "timezone_hour"]
# Those with a fraction, which PostgreSQL computes in steps that are rounded.
FRACTIONS = ["second", "milliseconds", "microseconds", "epoch"]
INTERVALS = ["0", "1 day", "-1 day", "1 month", "-1 month", "13 months", "1 year 2 months 3 days 04:05:06.789", "-25 hours",
             "0.000001 seconds", "1000000 days"]
STRIDES = ["15 minutes", "1 day", "0.000001 seconds", "100000000 days"]
BUCKETS = ["extract(epoch from a.v) / 3600", "floor(extract(epoch from a.v) / 3600)", "extract(epoch from a.v)::bigint / 900 * 900",
           "to_timestamp(floor(extract(epoch from a.v) / 900) * 900)", "to_timestamp(extract(epoch from a.v))",
           "to_timestamp(date_part('epoch', a.v))"]
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca",
         "UTC", "+05:30", "EST", "CET-1CEST,M3.5.0,M10.5.0/3"]


@dataclass
class Entry:
    """`types`: edge tables of `a` and, if two, `b`. `kind`: value, or boolean (then also run as a filter)."""

    name: str
    types: tuple
    expression: str
    kind: str = "value"

    @property
    def source(self):
        """The FROM list."""
        return ", ".join(f"edge_{name} {alias}" for name, alias in zip(self.types, "ab"))

    @property
    def keys(self):
        return ["a.id", "b.id"][: len(self.types)]


def _comparison_entries():
    pairs = [(name, name) for name in ORDERED] + CROSS_PAIRS
    for left, right in pairs:
        for operator in COMPARISONS:
            yield Entry(f"{left} {operator} {right}", (left, right), f"a.v {operator} b.v", "boolean")


def _arithmetic_entries():
    pairs = [(name, name) for name in INTEGERS + FLOATS + NUMERICS]
    pairs += [("int2", "int4"), ("int4", "int8"), ("int8", "int2"), ("float4", "float8"), ("int4", "numeric_15_2"),
              ("numeric_15_2", "int8"), ("numeric_15_2", "numeric_38_10"), ("numeric_9_4", "numeric_15_2"),
              ("numeric_5_0", "numeric_9_4"), ("int4", "float8")]
    for left, right in pairs:
        for operator in "+-*/%":
            if operator == "%" and ("float4" in (left, right) or "float8" in (left, right)):
                continue
            yield Entry(f"{left} {operator} {right}", (left, right), f"a.v {operator} b.v")
    for name in INTEGERS + FLOATS + NUMERICS:
        yield Entry(f"-{name}", (name,), "-a.v")
        yield Entry(f"abs({name})", (name,), "abs(a.v)")
        if name not in INTEGERS:
            for function in ("sign", "round", "trunc", "ceil", "floor"):
                yield Entry(f"{function}({name})", (name,), f"{function}(a.v)")
    for name in NUMERICS:
        for digits in (-12, -3, -1, 0, 1, 3, 9):
            yield Entry(f"round({name}, {digits})", (name,), f"round(a.v, {digits})")
            yield Entry(f"trunc({name}, {digits})", (name,), f"trunc(a.v, {digits})")
        yield Entry(f"mod({name}, 7)", (name,), "mod(a.v, 7)")
        yield Entry(f"{name} * (1 - {name})", (name,), "a.v * (1 - a.v)")
        yield Entry(f"1 / {name}", (name,), "1 / a.v")
        yield Entry(f"100.00 * {name} / 3", (name,), "100.00 * a.v / 3")
        yield Entry(f"sqrt({name})", (name,), "sqrt(a.v)")
        yield Entry(f"sqrt of abs({name})", (name,), "sqrt(abs(a.v))")
        yield Entry(f"sqrt of abs({name} / 3)", (name,), "sqrt(abs(a.v) / 3)")
        for bounds in ("-10, 100.5, 7", "0.3, -0.3, 1000000", "0, 32767.99, 3"):
            yield Entry(f"width_bucket {name} {bounds}", (name,), f"width_bucket(a.v::numeric, {bounds})")
    yield Entry("sqrt(float8)", ("float8",), "sqrt(a.v)")
    yield Entry("mod(int4, int4)", ("int4", "int4"), "mod(a.v, b.v)")


def _cast_entries():
    numbers = INTEGERS + FLOATS + NUMERICS
    names = {"numeric_15_2": "numeric(15,2)", "numeric_38_10": "numeric(38,10)", "numeric_9_4": "numeric(9,4)",
             "numeric_5_0": "numeric(5,0)"}
    for source in numbers:
        for target in numbers:
            yield Entry(f"{source} to {target}", (source,), f"a.v::{names.get(target, target)}")
        yield Entry(f"{source} to numeric", (source,), "a.v::numeric")
    for source in ["bool"] + numbers + TIMES + ["uuid", "char", "varchar"]:
        yield Entry(f"{source} to text", (source,), "a.v::text")
    for source, target in [("bool", "int4"), ("int4", "bool"), ("date", "timestamp"), ("date", "timestamptz"), ("timestamp", "date"),
                           ("timestamp", "time"), ("timestamptz", "date"), ("timestamptz", "timestamp"), ("timestamptz", "time"),
                           ("timestamp", "timestamptz"), ("text", "varchar(3)"), ("text", "char(3)"), ("char", "varchar"),
                           ("char", "char(2)"), ("varchar", "char(400)"), ("date", "text"), ("timestamp", "timestamp(0)"),
                           ("timestamp", "timestamp(3)"), ("time", "time(0)")]:
        yield Entry(f"{source} to {target}", (source,), f"a.v::{target}")


def _logic_entries():
    for operator in ("AND", "OR"):
        yield Entry(f"bool {operator} bool", ("bool", "bool"), f"a.v {operator} b.v", "boolean")
    for test in ("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN"):
        yield Entry(f"bool {test}", ("bool",), f"a.v {test}", "boolean")
    yield Entry("NOT bool", ("bool",), "NOT a.v", "boolean")
    for name in ORDERED:
        yield Entry(f"{name} IS NULL", (name,), "a.v IS NULL", "boolean")
        yield Entry(f"{name} IS NOT NULL", (name,), "a.v IS NOT NULL", "boolean")
        yield Entry(f"coalesce({name})", (name, name), "coalesce(a.v, b.v)")
        yield Entry(f"nullif({name})", (name, name), "nullif(a.v, b.v)")
        yield Entry(f"greatest({name})", (name, name), "greatest(a.v, b.v)")
        yield Entry(f"least({name})", (name, name), "least(a.v, b.v)")
        yield Entry(f"case {name}", (name, name), "CASE WHEN a.v < b.v THEN a.v WHEN a.v = b.v THEN NULL ELSE b.v END")
        yield Entry(f"simple case {name}", (name, name), "CASE a.v WHEN b.v THEN 1 ELSE 2 END")
        yield Entry(f"between {name}", (name, name), "a.v BETWEEN b.v AND b.v", "boolean")
    for name, inside in [("int4", "1, 2, -7"), ("int4", "1, NULL"), ("int8", "3, 9223372036854775807"), ("text", "'a', '', 'x'"),
                         ("text", "'a', NULL"), ("char", "'a', 'ab   '"), ("varchar", "'a ', 'A'"),
                         ("numeric_15_2", "1, 1.5, 0.05, 0.050"), ("date", "'2000-02-29', '1998-12-01'"), ("float8", "0, 'NaN', 1.5"),
                         ("uuid", "'00000000-0000-0000-0000-000000000001'"), ("bool", "true, NULL"), ("bytea", "'\\x61', '\\x'")]:
        yield Entry(f"{name} IN ({inside})", (name,), f"a.v IN ({inside})", "boolean")
        yield Entry(f"{name} NOT IN ({inside})", (name,), f"a.v NOT IN ({inside})", "boolean")
    yield Entry("int4 = ANY array", ("int4",), "a.v = ANY ('{1,2,NULL}'::int[])", "boolean")
    yield Entry("int4 = ANY empty", ("int4",), "a.v = ANY ('{}'::int[])", "boolean")
    yield Entry("int4 <> ALL array", ("int4",), "a.v <> ALL ('{1,2}'::int[])", "boolean")
    yield Entry("int4 > ANY array", ("int4",), "a.v > ANY ('{1,100}'::int[])", "boolean")


def _text_entries():
    patterns = ["%", "", "_", "__", "a%", "%a", "%b%", "a_b", "a\\%b", "a\\_b", "\\\\", "%\\\\%", "\u00e4", "_%", "%_", "PROMO%",
                "%special%requests%", "x%x", "%\n%", "A%", "abc", "%abc%", "\U0001f600%", "a\\b", "\u00c4", "\u00c4%", "_\u00c9", "%\u1e9e%", "%\u0130", "%\u212a%"]
    for name in TEXTS:
        for pattern in patterns:
            quoted = pattern.replace("'", "''")
            for operator in ("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"):
                yield Entry(f"{name} {operator} {pattern!r}", (name,), f"a.v {operator} '{quoted}'", "boolean")
        for start in (-2, 0, 1, 2, 5, 2147483647):
            yield Entry(f"substring({name}, {start})", (name,), f"substring(a.v, {start})")
            for count in (-1, 0, 1, 3, 2147483647):
                yield Entry(f"substring({name}, {start}, {count})", (name,), f"substring(a.v, {start}, {count})")
        for function in ("length", "octet_length", "upper", "lower", "trim", "btrim", "ltrim", "rtrim", "char_length"):
            yield Entry(f"{function}({name})", (name,), f"{function}(a.v)")
        # Letters whose case has another length, is ASCII, has no single character, or has two.
        beyond = "\u0130\u0131\u017f\u00df\u1e9e\u01c4\u01c5\u01c6\u212a\u00b5\u00ff\u023a\u2c65\u03c3\u03c2\U00010400\ufb01"
        for function in ("upper", "lower"):
            yield Entry(f"{function}({name} || beyond ASCII)", (name,), f"{function}(a.v || '{beyond}')")
            yield Entry(f"{function}({name} C)", (name,), f"{function}(a.v || '{beyond}' COLLATE \"C\")")
        yield Entry(f"{name} ILIKE {name}", (name, name), "a.v ILIKE b.v", "boolean")
        yield Entry(f"{name} ILIKE upper {name}", (name, name), "a.v ILIKE '%' || upper(b.v) || '%'", "boolean")
        yield Entry(f"literal ILIKE {name}", (name,), f"'{beyond}' ILIKE '%' || a.v || '%'", "boolean")
        yield Entry(f"{name} ILIKE C", (name,), "a.v COLLATE \"C\" ILIKE '\u00c4%'", "boolean")
        yield Entry(f"trim ab {name}", (name,), "trim(both 'ab' from a.v)")
        yield Entry(f"ltrim xa {name}", (name,), "ltrim(a.v, 'xa')")
        yield Entry(f"rtrim empty {name}", (name,), "rtrim(a.v, '')")
        yield Entry(f"btrim({name}, {name})", (name, name), "btrim(a.v, b.v)")
        yield Entry(f"position {name}", (name, name), "position(b.v in a.v)")
        yield Entry(f"strpos {name}", (name, name), "strpos(a.v, b.v)")
        yield Entry(f"{name} || {name}", (name, name), "a.v || b.v")
        yield Entry(f"{name} || literal", (name,), "'<' || a.v || '>'")
        yield Entry(f"concat({name})", (name, name), "concat(a.v, '-', b.v)")
        yield Entry(f"replace({name})", (name, name), "replace(a.v, b.v, '#')")
        yield Entry(f"starts_with({name})", (name, name), "starts_with(a.v, b.v)", "boolean")
        yield Entry(f"dynamic LIKE {name}", (name,), "a.v LIKE a.v || '%'", "boolean")
        for count in (-2147483648, -2, 0, 2, 2147483647):
            yield Entry(f"left({name}, {count})", (name,), f"left(a.v, {count})")
            yield Entry(f"right({name}, {count})", (name,), f"right(a.v, {count})")
    yield Entry("length(bytea)", ("bytea",), "length(a.v)")
    yield Entry("octet_length(bytea)", ("bytea",), "octet_length(a.v)")
    yield Entry("concat(int4, text)", ("int4", "text"), "concat(a.v, b.v)")
    yield Entry("format(text, int8)", ("text", "int8"), "format('%s is %L, %%', a.v, b.v)")
    yield Entry("local format(text)", ("text",), "format('%I', a.v)")
    yield Entry("char || text", ("char", "text"), "a.v || b.v")


EXPRESSIONS = ["", "b", "^a", "a$", "^$", "a.c|^x", "[A-Fb]{2,3}", "(ab)+|[^a-z ]", "^(a|b)*$", "\\d+|\\s", "x[[:alpha:]]*y"]
# Those that no engine has, and those that are an error.
OTHER_EXPRESSIONS = ["(a)\\1", "a(?=b)", "(?i)A", "\\x61", "(a", "a**", "[b-a]"]


def _expression_entries():
    for name in TEXTS:
        for expression in EXPRESSIONS:
            for operator in ("~", "~*"):
                yield Entry(f"{name} {operator} {expression!r}", (name,), f"a.v {operator} '{expression}'", "boolean")
        for operator in ("!~", "!~*"):
            yield Entry(f"{name} {operator} '^[ab]'", (name,), f"a.v {operator} '^[ab]'", "boolean")
        for expression in OTHER_EXPRESSIONS:
            yield Entry(f"local {name} ~ {expression!r}", (name,), f"a.v ~ '{expression}'", "boolean")
        yield Entry(f"{name} ~ C", (name,), "a.v COLLATE \"C\" ~* '\\m[[:alpha:]]+\\M|\u00c4'", "boolean")
        yield Entry(f"{name} SIMILAR TO", (name,), "a.v SIMILAR TO '(a|x)_*%|[[:upper:]]%'", "boolean")
        yield Entry(f"local {name} ~ {name}", (name, name), "a.v ~ ('^' || left(b.v, 1))", "boolean")


# Those with groups whose parts are known, and what a match becomes.
GROUPS = ["(a+)(b*)", "([a-z]+?)(\\d|$)", "^(\\w+)[ -]*(.*)$", "(x|ab|a)b?"]
REPLACEMENTS = ["", "<\\&>", "\\1-\\2\\", "\\\\&"]


def _part_entries():
    """Parts of texts that match, and how many there are."""
    for name in TEXTS:
        for expression in EXPRESSIONS:
            for call in (f"regexp_replace(a.v, '{expression}', '<\\&>', 'g')", f"regexp_replace(a.v, '{expression}', '[\\&]', 2, 2)",
                         f"regexp_count(a.v, '{expression}')", f"regexp_substr(a.v, '{expression}', 1, 2)"):
                yield Entry(f"{name} {call}", (name,), call)
        for expression in ("^A", "B+?|c"):
            yield Entry(f"{name} replace {expression}", (name,), f"regexp_replace(a.v, '{expression}', 'x', 'gi')")
        for expression in ("A", "b*"):
            yield Entry(f"{name} count {expression}", (name,), f"regexp_count(a.v, '{expression}', 2, 'i')")
        for expression in GROUPS:
            for replacement in REPLACEMENTS:
                yield Entry(f"{name} replace {expression} {replacement}", (name,), f"regexp_replace(a.v, '{expression}', '{replacement}')")
            for call in (f"regexp_substr(a.v, '{expression}', 1, 1, 'i', 2)", f"(regexp_match(a.v, '{expression}'))[2]",
                         f"regexp_match(a.v, '{expression}', 'i')"):
                yield Entry(f"{name} {call}", (name,), call)
        for expression in EXPRESSIONS:
            # The part of a group that is repeated is not known.
            local = "local " if "(ab)+" in expression or "(a|b)*" in expression else ""
            for call in (f"substring(a.v FROM '{expression}')", f"regexp_match(a.v, '{expression}')"):
                yield Entry(f"{local}{name} {call}", (name,), call)
        for expression in OTHER_EXPRESSIONS:
            yield Entry(f"local {name} replace {expression!r}", (name,), f"regexp_replace(a.v, '{expression}', 'x')")


def _form_entries():
    """Functions that give a text another form, and those of its bytes."""
    for name in TEXTS:
        for function in ("lpad", "rpad"):
            for length in (-1, 0, 3, 12):
                yield Entry(f"{function}({name}, {length})", (name,), f"{function}(a.v, {length})")
                yield Entry(f"{function}({name}, {length}, fill)", (name,), f"{function}(a.v, {length}, 'x\u00e4')")
            yield Entry(f"local {function}({name}, length)", (name,), f"{function}(a.v, length(a.v) + 2)")
            yield Entry(f"local {function}({name}, large)", (name,), f"{function}(a.v, 268435455)")
        for field in (-3, -1, 0, 1, 2):
            yield Entry(f"split_part({name}, {field})", (name,), f"split_part(a.v, 'b', {field})")
        yield Entry(f"split_part({name}, {name})", (name, name), "split_part(a.v, b.v, 1)")
        yield Entry(f"split_part({name}, {name}) from the end", (name, name), "split_part(a.v, left(b.v, 1), -2)")
        yield Entry(f"translate({name})", (name,), "translate(a.v, 'abc', 'x\u00e4')")
        yield Entry(f"translate({name}, {name})", (name, name), "translate(a.v, b.v, 'xyz')")
        for count in (-1, 0, 1, 3):
            yield Entry(f"repeat({name}, {count})", (name,), f"repeat(a.v, {count})")
        yield Entry(f"local repeat({name}, 1001)", (name,), "md5(repeat(a.v, 1001))")
        for function in ("reverse", "initcap", "quote_literal", "quote_ident", "quote_nullable", "ascii", "md5", "bit_length"):
            yield Entry(f"{function}({name})", (name,), f"{function}(a.v)")
        yield Entry(f"initcap({name} C)", (name,), "initcap('x\u00c4 \u00e4X-' || a.v COLLATE \"C\")")
        yield Entry(f"concat_ws({name})", (name, name), "concat_ws('-', a.v, 'x', b.v)")
        yield Entry(f"concat_ws by {name}", (name, name), "concat_ws(a.v, b.v, 'x')")
        for start in (0, 1, 3, 100, 2147483647):
            yield Entry(f"overlay({name}, {start})", (name,), f"overlay(a.v placing 'x\u00e4' from {start})")
            for count in (-2, 0, 2, 2147483647):
                yield Entry(f"overlay({name}, {start}, {count})", (name,), f"overlay(a.v placing 'xyz' from {start} for {count})")
        for form in ("hex", "base64", "escape", "HEX", "octal"):
            yield Entry(f"decode({name}, {form})", (name,), f"decode(a.v, '{form}')")
            yield Entry(f"decode(encode({name}, {form}))", (name,), f"decode(encode(decode(md5(a.v), 'hex'), '{form}'), '{form}')")
    for form in ("hex", "base64", "escape", "HEX", "octal"):
        yield Entry(f"encode(bytea, {form})", ("bytea",), f"encode(a.v, '{form}')")
    for function in ("md5", "sha224", "sha256", "sha384", "sha512"):
        yield Entry(f"{function}(bytea)", ("bytea",), f"{function}(a.v)")
    yield Entry("chr(int4)", ("int4",), "chr(a.v)")
    for name in ("int4", "int8"):
        yield Entry(f"to_hex({name})", (name,), "to_hex(a.v)")


NUMBER_FORMATS = ["999", "FM999,990.009", "000.99", "9,999,999,999.99PR", "MI9.9", "9999PL", "SG099.9", "FM9.99", '9 "x" 999th', ""]
# Without the ending of an ordinal number, which infinity does not have.
FLOAT_NUMBER_FORMATS = ["999", "FM999,990.009", "000.99", "9,999,999,999.99PR", "MI9.9", "FM999999999999999.9999999999999999"]


def _json_entries():
    for name in ["bool", "date", "time", "timestamp", "timestamptz", "uuid"] + INTEGERS + FLOATS + NUMERICS + TEXTS:
        yield Entry(f"to_json({name})", (name,), "to_json(a.v)")
        yield Entry(f"row_to_json({name})", (name,), "row_to_json(ROW(a.v, a.id))")
        yield Entry(f"concat({name})", (name,), "concat(a.v, '-', a.id, a.v)")
        yield Entry(f"format({name})", (name,), "format('%s', a.v)")
        yield Entry(f"json_build_object({name})", (name,), "json_build_object('v', a.v, 'list', json_build_array(a.v, NULL))")
        yield Entry(f"jsonb_build_array({name})", (name,), "jsonb_build_array(a.v, a.id)")
    for name in TEXTS:
        for form in ("999", "9,999.99", "FM000.9", "99x99"):
            yield Entry(f"to_number({name}, {form})", (name,), f"to_number(a.v, '{form}')")
    for name in NUMERICS:
        yield Entry(f"to_number(text of {name})", (name,), "to_number(a.v::text, '9999999999999999999999999999.9999999999')")
        yield Entry(f"to_json({name} / 3)", (name,), "to_json(a.v / 3)")
        yield Entry(f"text of {name} / 3", (name,), "(a.v / 3)::text")
    for name in ARRAYS:
        yield Entry(f"to_json({name})", (name,), "to_json(a.v)")
        yield Entry(f"jsonb_build_array({name})", (name,), "jsonb_build_array(a.v)")
    yield Entry("local to_json(bytea)", ("bytea",), "to_json(a.v)")


def _number_entries():
    """Bits of integers, and functions of floats that the C library computes."""
    for name in INTEGERS:
        for operator in ("&", "|", "#"):
            yield Entry(f"{name} {operator} {name}", (name, name), f"a.v {operator} b.v")
        yield Entry(f"~{name}", (name,), "~a.v")
        for operator in ("<<", ">>"):
            for count in (-1, 0, 1, 15, 31, 33, 65):
                yield Entry(f"{name} {operator} {count}", (name,), f"a.v {operator} ({count})")
        if name != "int2":
            for function in ("gcd", "lcm"):
                yield Entry(f"{function}({name})", (name, name), f"{function}(a.v, b.v)")
    for name in ("float4", "float8"):
        for function in ("cbrt", "exp", "ln", "log", "sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
                         "acosh", "atanh", "degrees", "radians"):
            yield Entry(f"{function}({name})", (name,), f"{function}(a.v)")
        yield Entry(f"power({name})", (name, name), "power(a.v, b.v)")
        yield Entry(f"{name} ^ {name}", (name, name), "a.v ^ b.v")
        yield Entry(f"atan2({name})", (name, name), "atan2(a.v, b.v)")
        yield Entry(f"local width_bucket({name})", (name,), "width_bucket(a.v, -1.5, 10, 7)")
    for name in ["int4", "int8"] + FLOATS + NUMERICS:
        for form in FLOAT_NUMBER_FORMATS if name in FLOATS else NUMBER_FORMATS:
            yield Entry(f"to_char({name}, {form})", (name,), f"to_char(a.v, '{form}')")
        for form in ("S999", "9D9", "L9", "RN", "9.9.9"):
            yield Entry(f"local to_char({name}, {form})", (name,), f"to_char(a.v, '{form}')")
    for name in NUMERICS:
        yield Entry(f"div({name})", (name, name), "div(a.v, b.v)")
        yield Entry(f"local ln({name})", (name,), "ln(abs(a.v) + 1)")


FORMATS = ["YYYY-MM-DD HH24:MI:SS.US", "Day, DDth Month YYYY HH12:MI AM", "IYYY-IW-ID Q CC J WW W DDD",
           'FMDay FMDDth FMMonth FMRM Y,YYY B.C. "Q"Q', ""]


READ_FORMATS = ["YYYY-MM-DD", "YYYYMMDD", "DD.FMMM.YYYY"]


def _moment_entries():
    """Dates and times that are made of numbers, and their texts."""
    for function in ("justify_days", "justify_hours", "justify_interval"):
        for moment in ("2000-01-01", "1969-12-31 23:59:59.999999", "9999-12-31 12:00"):
            yield Entry(f"{function}(timestamp - {moment})", ("timestamp",), f"{function}(a.v - timestamp '{moment}')")
        yield Entry(f"{function}(age)", ("timestamp", "timestamp"), f"{function}(age(a.v, b.v))")
    for name in TEXTS:
        for form in READ_FORMATS:
            yield Entry(f"to_date({name}, {form})", (name,), f"to_date(a.v, '{form}')")
        yield Entry(f"to_timestamp({name})", (name,), "to_timestamp(a.v, 'YYYY-MM-DD HH24:MI:SS')")
        yield Entry(f"local to_date({name})", (name,), "to_date(a.v, 'DD Mon YYYY')")
    for name in ("date", "timestamp"):
        yield Entry(f"to_date of text of {name}", (name,), "to_date(a.v::text, 'YYYY-MM-DD')")
        yield Entry(f"to_timestamp of text of {name}", (name,), "to_timestamp(a.v::text, 'YYYY-MM-DD HH24:MI:SS')")
    yield Entry("make_date(int4)", ("int4",), "make_date(a.v, 2, 29)")
    yield Entry("make_date(int4, int4)", ("int4", "int4"), "make_date(2024, a.v, b.v)")
    yield Entry("make_time(int4, float8)", ("int4", "float8"), "make_time(a.v, 30, b.v)")
    yield Entry("make_timestamp(int4, float8)", ("int4", "float8"), "make_timestamp(a.v, 12, 31, 23, 59, b.v)")
    yield Entry("make_interval(days, secs)", ("int2", "int2"), "make_interval(days => a.v, secs => b.v)")
    yield Entry("make_interval(years, months)", ("int2", "int2"), "make_interval(a.v, b.v, 3, 4, 5, 6, 7.5)")
    yield Entry("make_interval(weeks, mins)", ("int2", "int2"), "make_interval(weeks => a.v, mins => b.v)")
    yield Entry("time + date", ("date", "time"), "b.v + a.v")
    for interval in ("3 hours", "-25 hours", "1 day 00:00:00.000001"):
        yield Entry(f"time + {interval}", ("time",), f"a.v + interval '{interval}'")
        yield Entry(f"time - {interval}", ("time",), f"a.v - interval '{interval}'")
    for name in ("date", "timestamp", "timestamptz"):
        yield Entry(f"isfinite({name})", (name,), "isfinite(a.v)")
        yield Entry(f"age({name}, {name})", (name, name), "age(a.v, b.v)")
        yield Entry(f"age({name})", (name,), "age(a.v)")
        for form in FORMATS:
            yield Entry(f"to_char({name}, {form})", (name,), f"to_char(a.v, '{form}')")
        for form in ("TMMonth", "TZ OF"):
            yield Entry(f"local to_char({name}, {form})", (name,), f"to_char(a.v, '{form}')")
        yield Entry(f"{name} || text", (name, "text"), "a.v || b.v")


def _time_entries():
    for name in TIMES:
        for part in FIELDS:
            local = "local " if name == "timestamptz" else ""
            yield Entry(f"extract({part} from {name})", (name,), f"extract({part} from a.v)")
            yield Entry(f"{local}date_part({part}, {name})", (name,), f"date_part('{part}', a.v)")
        for part in OTHER_FIELDS:
            yield Entry(f"local extract({part} from {name})", (name,), f"extract({part} from a.v)")
            yield Entry(f"local date_part({part}, {name})", (name,), f"date_part('{part}', a.v)")
    for part in FRACTIONS:
        for seconds in ("7.736875", "0.000001", "59.999999", "-33.300007"):
            moved = f"a.v + interval '{seconds} seconds'"
            for name in ("timestamp", "date"):
                yield Entry(f"date_part({part}, {name} + {seconds})", (name,), f"date_part('{part}', {moved})")
                yield Entry(f"extract({part} from {name} + {seconds})", (name,), f"extract({part} from {moved})")
            yield Entry(f"date_part({part}, timestamp::time + {seconds})", ("timestamp",), f"date_part('{part}', ({moved})::time)")
    yield from _infinity_entries()
    for name in ("timestamp", "timestamptz", "date"):
        for part in FIELDS:
            if part not in ("dow", "isodow", "doy", "isoyear", "epoch"):
                yield Entry(f"date_trunc({part}, {name})", (name,), f"date_trunc('{part}', a.v)")
        for interval in INTERVALS:
            yield Entry(f"{name} + {interval}", (name,), f"a.v + interval '{interval}'")
            yield Entry(f"{name} - {interval}", (name,), f"a.v - interval '{interval}'")
        yield Entry(f"{name} - {name}", (name, name), "a.v - b.v")
        for stride in STRIDES:
            yield Entry(f"date_bin({stride}, {name})", (name,), f"date_bin('{stride}', a.v, '2001-02-03 04:05:06.7')")
        for bucket in BUCKETS:
            yield Entry(f"bucket {bucket} {name}", (name,), bucket)
        for zone in ZONES:
            local = "local " if name == "date" else ""
            yield Entry(f"{local}{name} at {zone}", (name,), f"a.v AT TIME ZONE '{zone}'")
            for part in ("second", "hour", "day", "week", "year"):
                yield Entry(f"{local}date_trunc({part}, {name}, {zone})", (name,), f"date_trunc('{part}', a.v, '{zone}')")
    for days in (-2147483648, -1000, 0, 1, 2147483647):
        yield Entry(f"date + {days}", ("date",), f"a.v + ({days})")
        yield Entry(f"date - {days}", ("date",), f"a.v - ({days})")
    yield Entry("date + int4", ("date", "int4"), "a.v + b.v")
    yield Entry("int4 + date", ("date", "int4"), "b.v + a.v")
    yield Entry("date + time", ("date", "time"), "a.v + b.v")
    yield Entry("to_timestamp(float8)", ("float8",), "to_timestamp(a.v)")
    yield Entry("to_timestamp(int8)", ("int8",), "to_timestamp(a.v)")


def _infinity_entries():
    for name in ("timestamp", "date"):
        for end in ("infinity", "-infinity"):
            value = f"coalesce(a.v, '{end}')"
            for part in ("year", "month", "second", "epoch", "isoyear", "dow"):
                yield Entry(f"local extract({part} from {name} or {end})", (name,), f"extract({part} from {value})")
                yield Entry(f"local date_part({part}, {name} or {end})", (name,), f"date_part('{part}', {value})")
            for part in ("day", "month", "second"):
                yield Entry(f"date_trunc({part}, {name} or {end})", (name,), f"date_trunc('{part}', {value})")
            yield Entry(f"{name} or {end} + 1 month", (name,), f"{value} + interval '1 month 1 second'")
            yield Entry(f"{name} or {end} - {name}", (name, name), f"{value} - b.v")
            yield Entry(f"{name} - {name} or {end}", (name, name), f"b.v - {value}")
            yield Entry(f"{name} < {name} or {end}", (name, name), f"b.v < {value}", "boolean")
    for end in ("infinity", "-infinity"):
        yield Entry(f"date or {end} + int4", ("date", "int4"), f"coalesce(a.v, '{end}') + b.v")
        yield Entry(f"date or {end} to timestamp", ("date",), f"coalesce(a.v, '{end}')::timestamp")
        yield Entry(f"timestamp or {end} to date", ("timestamp",), f"coalesce(a.v, '{end}')::date")
        yield Entry(f"local timestamp or {end} to time", ("timestamp",), f"coalesce(a.v, '{end}')::time")
        yield Entry(f"local hour of least of timestamp and {end}", ("timestamp",), f"date_part('hour', least(a.v, '{end}'))")


def _array_entries():
    for array, element in zip(ARRAYS, ELEMENTS):
        yield Entry(f"{element} = any of {array}", (element, array), "a.v = ANY (b.v)", "boolean")
        yield Entry(f"{element} <> all of {array}", (element, array), "a.v <> ALL (b.v)", "boolean")
        yield Entry(f"local {array} contains its first element", (array, array), "a.v @> b.v[1:1]", "boolean")
        yield Entry(f"element of {array}", (array, "int4"), "(a.v)[b.v]")
        yield Entry(f"cardinality of {array}", (array,), "cardinality(a.v)")
        yield Entry(f"length of {array}", (array,), "array_length(a.v, 1)")


def _document_entries():
    """Parts of JSON that is made of values, and values that are read from text."""
    expressions = []
    for form in ("json", "jsonb"):
        expressions += [f"({form}_build_object('a', a.v, 'b', 1.50) -> '{key}')::text" for key in "abc"]
        expressions += [f"{form}_build_object('a', a.v, 'b', 1.50) ->> '{key}'" for key in "abc"]
        expressions += [f"{form}_build_array(a.v, NULL) -> {place} IS NULL" for place in (0, 1, 2, -1)]
        expressions += [f"{form}_build_array(a.v, NULL) ->> {place}" for place in (0, 1, 2, -1)]
        expressions += [f"{form}_typeof(to_{form}(a.v))", f"{form}_array_length({form}_build_array(a.v, 1))", f"to_json(a.v)::text::{form}"]
    expressions += [f"jsonb_build_object('x', jsonb_build_array(a.v)) #>> '{path}'" for path in ("{x,0}", "{x}", "{}")]
    expressions += [f"jsonb_build_object('a', a.v) ? '{key}'" for key in "ab"]
    expressions += [f"jsonb_build_object('a', a.v, 'b', 1) @> '{other}'" for other in ('{"b": 1.0}', '{"a": null}', "{}", "[]")]
    expressions += ["to_jsonb(a.v)::text", "jsonb_build_array(a.v) ? 'a'"]
    for name in ["bool", "int4", "float8", "numeric_15_2", "text", "date", "timestamp", "uuid"]:
        for expression in expressions:
            yield Entry(f"{expression} of {name}", (name,), expression)
    for name in TEXTS:
        for target in INTEGERS + FLOATS + ["numeric(9,4)"]:
            yield Entry(f"digits of {name} to {target}", (name,), f"nullif(left(regexp_replace(a.v, '[^0-9]', '', 'g'), 4), '')::{target}")
        yield Entry(f"word of {name} to bool", (name,), "(a.v LIKE '%a%')::text::bool")
        yield Entry(f"digest of {name} to uuid", (name,), "md5(a.v)::uuid")


def entries():
    """Every entry, in a fixed order."""
    for make in (_comparison_entries, _arithmetic_entries, _cast_entries, _logic_entries, _text_entries, _expression_entries, _part_entries,
                 _form_entries, _json_entries, _document_entries, _number_entries, _moment_entries, _time_entries, _array_entries):
        yield from make()


# What the planner alone calls, for which SQL has no call, and functions of intervals, which no edge table has: they are tried on differences.
PLANNERS_OWN = ["instant", "join_texts", "justify_days", "justify_hours", "justify_interval", "mean_span", "mode", "pad_blanks",
                "percentile_cont", "percentile_disc", "quotient_scale", "root_scale", "row", "sort_key", "span", "text_of_sort_key",
                "to_number_scale", "trim_blanks", "variance", "variance_scale"]


def missing_examples(session):
    """What the registry of functions would have tried and the matrix does not: `function: SQL`."""
    tried = {entry.expression for entry in entries()}
    examples = session.run("SELECT name, unnest(examples) FROM pystachio.functions()").rows
    silent = session.run("SELECT name FROM pystachio.functions() WHERE examples = '{}' ORDER BY name").rows
    missing = [f"{name}: {sql}" for name, sql in examples if sql.replace("{a}", "a.v").replace("{b}", "b.v") not in tried]
    return missing + [f"{name}: no example" for (name,) in silent if name not in PLANNERS_OWN]


def column_queries():
    """Whole queries over single edge columns: (name, sql, ordered)."""
    for name in ["edge_" + one for one in ORDERED + ARRAYS] + ["form_" + one for one in FORMS]:
        yield f"scan {name}", f"SELECT id, v FROM {name} ORDER BY id", True
        yield f"count {name}", f"SELECT count(*), count(v) FROM {name}", False
        yield f"null {name}", f"SELECT id FROM {name} WHERE v IS NULL", False
    for name in ORDERED:
        for order in ("ASC", "DESC", "ASC NULLS FIRST", "DESC NULLS LAST"):
            yield f"order {name} {order}", f"SELECT v, id FROM edge_{name} ORDER BY v {order}, id", True
        yield f"group {name}", f"SELECT v, count(*) FROM edge_{name} GROUP BY v", False
        yield f"distinct {name}", f"SELECT DISTINCT v FROM edge_{name}", False
        yield f"count distinct {name}", f"SELECT count(DISTINCT v) FROM edge_{name}", False
        yield f"array of {name}", f"SELECT array_agg(v ORDER BY v, id), array_agg(v ORDER BY v DESC NULLS LAST, id DESC) FROM edge_{name}", False
        yield f"arrays of {name}", f"SELECT id % 3, array_agg(v ORDER BY id), array_agg(id ORDER BY v, id) FROM edge_{name} GROUP BY 1", False
        if name != "bytea":
            yield f"json of {name}", (f"SELECT id % 3, json_agg(v ORDER BY id), jsonb_agg(v ORDER BY id DESC), json_object_agg('k' || id, v ORDER BY id) "
                                      f"FROM edge_{name} GROUP BY 1"), False
        if name not in FLOATS:
            yield f"distinct array of {name}", f"SELECT array_agg(DISTINCT v), array_agg(DISTINCT v ORDER BY v DESC) FROM edge_{name}", False
            yield f"percentile of {name}", (f"SELECT id % 3, mode() WITHIN GROUP (ORDER BY v), percentile_disc(0.5) WITHIN GROUP (ORDER BY v), "
                                            f"percentile_disc(0.8) WITHIN GROUP (ORDER BY v DESC) FROM edge_{name} GROUP BY 1"), False
            yield f"percentiles of {name}", (f"SELECT id % 3, mode() WITHIN GROUP (ORDER BY v DESC), percentile_disc(ARRAY[0.1, 1]) WITHIN GROUP (ORDER BY v DESC) "
                                             f"FROM edge_{name} GROUP BY 1"), False
        yield f"join {name}", f"SELECT a.id, b.id FROM edge_{name} a JOIN edge_{name} b ON a.v = b.v", False
        yield f"full join {name}", (f"SELECT a.id, b.id, a.v, b.v FROM edge_{name} a FULL JOIN "
                                    f"(SELECT * FROM edge_{name} WHERE id % 2 = 0) b ON a.v = b.v"), False
        yield f"not in {name}", f"SELECT id FROM edge_{name} WHERE v NOT IN (SELECT v FROM edge_{name} WHERE id > 3)", False
        yield f"in {name}", f"SELECT id FROM edge_{name} WHERE v IN (SELECT v FROM edge_{name} WHERE id > 3)", False
        yield f"in all {name}", f"SELECT id FROM edge_{name} WHERE v IN (SELECT v FROM edge_{name})", False
        yield f"top {name}", f"SELECT v, id FROM edge_{name} WHERE v IS NOT NULL ORDER BY v DESC, id LIMIT 3", True
        if name not in ("bool", "uuid", "bytea"):
            yield f"min max {name}", f"SELECT min(v), max(v) FROM edge_{name}", False
            yield f"min max grouped {name}", f"SELECT id % 3, min(v), max(v), count(v) FROM edge_{name} GROUP BY 1", False
            yield f"min max alone {name}", f"SELECT id, min(v), max(v) FROM edge_{name} GROUP BY 1", False
            yield f"min max backwards {name}", (f"SELECT id % 3, min(v), max(v) FROM (SELECT id, v FROM edge_{name} ORDER BY v DESC OFFSET 0) x "
                                                "GROUP BY 1"), False
            yield f"min max none {name}", f"SELECT min(v), max(v), count(v) FROM edge_{name} WHERE id < 0", False
    for name in INTEGERS + NUMERICS:
        for function in ("sum", "avg", "stddev", "variance", "var_pop", "stddev_pop"):
            yield f"{function} {name}", f"SELECT {function}(v) FROM edge_{name}", False
            yield f"{function} grouped {name}", f"SELECT id % 4, {function}(v) FROM edge_{name} GROUP BY 1", False
            yield f"{function} distinct {name}", f"SELECT {function}(DISTINCT v) FROM edge_{name}", False
            yield f"{function} none {name}", f"SELECT {function}(v) FROM edge_{name} WHERE id < 0", False
        yield f"sum expression {name}", f"SELECT sum(v - 1), sum(CASE WHEN id > 3 THEN v ELSE 0 END) FROM edge_{name}", False
        yield f"avg ratio {name}", f"SELECT sum(v) / count(*), 100.00 * sum(v) / nullif(sum(v + 1), 0), avg(v) * 2 FROM edge_{name}", False
    for name in ("int4", "numeric_15_2", "numeric_9_4", "numeric_38_10"):
        # Quotients of quotients, of which some are too long for a decimal: compared, and as keys of an order.
        pairs = f"(SELECT a.id AS i, b.id AS j, a.v * 1.0000 / 7 AS x, b.v / 3.0000 AS y FROM edge_{name} a, edge_{name} b WHERE a.id % 4 = 1 AND b.v <> 0) p"
        for condition in ("x / y > 0.1", "x / y <= -1", "abs(x / y) = 1.0", "x / y <> 12345678", "CASE WHEN x > 0 THEN y / x END < x / y", "x / y >= i"):
            yield f"compare quotients {name} {condition}", f"SELECT i, j FROM {pairs} WHERE {condition}", False
        yield f"order quotients {name}", f"SELECT i, j FROM {pairs} ORDER BY x / y, i, j", True
        yield f"rank quotients {name}", f"SELECT i, j, rank() OVER (PARTITION BY i ORDER BY CASE WHEN x <> 0 THEN y / x END DESC NULLS LAST) FROM {pairs}", False
    for name in INTEGERS:
        for function in ("bit_and", "bit_or", "bit_xor"):
            yield f"{function} {name}", f"SELECT {function}(v), {function}(DISTINCT v) FROM edge_{name}", False
            yield f"{function} grouped {name}", f"SELECT id % 4, {function}(v), {function}(DISTINCT v) FROM edge_{name} GROUP BY 1", False
    for name in INTEGERS + NUMERICS + FLOATS:
        yield f"percentile_cont {name}", (f"SELECT id % 4, percentile_cont(0.3) WITHIN GROUP (ORDER BY v), percentile_cont(0.99) WITHIN GROUP (ORDER BY v DESC), count(*) "
                                          f"FROM edge_{name} GROUP BY 1"), False
        yield f"percentiles_cont {name}", (f"SELECT percentile_cont(0.3) WITHIN GROUP (ORDER BY v), percentile_cont(ARRAY[0.5, 0.99]) "
                                           f"WITHIN GROUP (ORDER BY v DESC) FROM edge_{name}"), False
        yield f"hypothetical {name}", (f"SELECT rank(1) WITHIN GROUP (ORDER BY v), dense_rank(1) WITHIN GROUP (ORDER BY v DESC), "
                                       f"percent_rank(0) WITHIN GROUP (ORDER BY v), cume_dist(1) WITHIN GROUP (ORDER BY v) FROM edge_{name}"), False
    for name in FLOATS:
        # Values whose sums are floats: PostgreSQL rounds others at each row.
        for value in (1.5, 0.25):
            yield f"sum {name} {value}", f"SELECT sum(v), avg(v), count(v) FROM edge_{name} WHERE v BETWEEN -{value} AND {value} AND (v = 0 OR abs(v) >= 0.5)", False
    for name in ("date", "time", "timestamp", "timestamptz"):
        for part in FRACTIONS + ["year", "week", "hour"]:
            for call in (f"date_part('{part}', v)", f"extract({part} from v)"):
                if (part in ("year", "week") and name == "time") or (name == "date" and "extract" in call and part not in ("epoch", "year", "week")):
                    continue
                local = "local " if name == "timestamptz" or "date_part" in call else ""
                yield f"{local}group by {call} of {name}", f"SELECT {call} AS p, count(*) FROM edge_{name} GROUP BY 1", False
                yield f"{local}least {call} of {name}", f"SELECT id % 3, min({call}), count(DISTINCT {call}) FROM edge_{name} GROUP BY 1", False
                yield f"{local}order by {call} of {name}", f"SELECT id, {call} AS p FROM edge_{name} ORDER BY 2, 1", True
    for name, end in (("timestamp", "infinity"), ("date", "-infinity")):
        yield f"local derived {end} of {name}", (f"SELECT extract(year from x), n FROM (SELECT coalesce(v, '{end}') AS x, count(*) AS n "
                                           f"FROM edge_{name} GROUP BY 1 LIMIT 1000) s"), False
    for function in ("bool_and", "bool_or", "every"):
        yield f"{function}", f"SELECT {function}(v), {function}(v) FILTER (WHERE id > 1) FROM edge_bool", False
        yield f"{function} none", f"SELECT {function}(v) FROM edge_bool WHERE id < 0", False


def literal_queries(session):
    """Each edge value as a literal in a comparison: what pruning by statistics must get right. (name, sql, ordered)"""
    for name in ["edge_" + one for one in ORDERED]:
        kind = session.run(f"SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
                           f"WHERE attrelid = 'heap.{name}'::regclass AND attname = 'v'").scalar()
        values = session.run(f"SELECT DISTINCT quote_literal(v::text) FROM heap.{name} WHERE v IS NOT NULL ORDER BY 1").rows
        for (value,) in values[:: 2 if len(values) > 30 else 1]:
            for operator in ("=", "<", ">=", "<>"):
                yield (f"{name} {operator} {value[:30]}",
                       f"SELECT id FROM {name} WHERE v {operator} {value}::{kind} ORDER BY id", True)


def array_queries(session):
    """Edge values in arrays that only run time tells: (name, type of the array, query, arguments)."""
    for name in ORDERED:
        kind = session.run(f"SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
                           f"WHERE attrelid = 'heap.edge_{name}'::regclass AND attname = 'v'").scalar()
        values = [value for (value,) in session.run(f"SELECT DISTINCT v::text FROM heap.edge_{name} WHERE v IS NOT NULL ORDER BY 1").rows]
        kinds = [kind]
        kinds += {"int2": ["bigint"], "int4": ["bigint", "smallint", "numeric"], "int8": ["integer", "smallint"],
                  "numeric_15_2": ["numeric", "integer"], "numeric_9_4": ["numeric"], "numeric_38_10": ["numeric"],
                  "varchar": ["text"], "char": ["text"], "text": ["varchar"], "float4": ["float8"],
                  "date": ["timestamp"], "timestamp": ["date"]}.get(name, [])
        for element in kinds:
            some = values if element == kind else []
            if element == "numeric":
                some = [*values, "NaN", "Infinity", "0.12345678901234567", "1e30"]
            arrays = ["NULL", "'{}'", "'{NULL}'", "'{NULL,NULL}'"]
            arrays += [_array(some[:1]), _array(some), _array([*some[::2], None]), _array([*some[1::3], *some[:2]])]
            if len(some) > 3:
                arrays.append(f"ARRAY[{_array(some[:2])}::{element}[], {_array([some[2], None])}::{element}[]]")
            if element in ("bigint", "integer", "smallint"):
                arrays += ["'{1,2,3,32767,-32768}'", "'{{0,1},{2,NULL}}'"]
            if element == "numeric":
                arrays += ["'{NaN}'", "'{NaN,Infinity,-Infinity}'", "'{NaN,NULL}'", "'{1.50,1.5000,0.0,-0.00}'"]
            if element in ("timestamp", "date"):
                arrays += ["'{1994-09-01,infinity,NULL}'"]
            query = f"SELECT id, v = ANY ($1) AS found, v <> ALL ($1) AS missing FROM edge_{name}"
            yield (f"{name} in {element}[]", f"{element}[]", f"{query} ORDER BY id", arrays)
            yield (f"{name} in {element}[] as a filter", f"{element}[]", f"SELECT id FROM edge_{name} WHERE v = ANY ($1) ORDER BY id", arrays)
            yield (f"{name} not in {element}[] as a filter", f"{element}[]",
                   f"SELECT id FROM edge_{name} WHERE NOT v = ANY ($1) OR v <> ALL ($1) ORDER BY id", arrays)


def _array(values):
    """The values, None for NULL, as the text of an array."""
    quoted = ('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if value is not None else "NULL" for value in values)
    return "'{" + ",".join(quoted).replace("'", "''") + "}'"
