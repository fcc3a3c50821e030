//! Comparisons.

use super::{
    CatalogNames, Example, Form, FunctionEntry, NullRule, ResultType, Shown, Signature,
    TypeClass::{self, *},
    catalog::operator_names,
};
use crate::Function;

const BOOL: ResultType = ResultType::Of(Bool);

/// The signatures of a comparison with an operator: two of every class.
macro_rules! comparisons {
    ($operator:literal) => {{
        const EXAMPLES: &[Example] = &[Example::of(concat!("{a} ", $operator, " {b}"))];
        const fn pair(arguments: &'static [TypeClass]) -> Signature {
            Signature::new(arguments, BOOL, EXAMPLES)
        }
        &[
            pair(&[Bool, Bool]),
            pair(&[Integers, Integers]),
            pair(&[Floats, Floats]),
            pair(&[Decimals, Decimals]),
            pair(&[Text, Text]),
            pair(&[Date, Date]),
            pair(&[Timestamps, Timestamps]),
            pair(&[Time, Time]),
            pair(&[Interval, Interval]),
            pair(&[Uuid, Uuid]),
            pair(&[Bytea, Bytea]),
        ]
    }};
}

/// The names of a comparison's functions, such as `int48lt`, `nameeqtext` and `date_le_timestamp`; that of texts follows no rule.
macro_rules! comparison_names {
    ($suffix:literal, $text:literal) => {
        operator_names!(
            $suffix,
            $text,
            concat!("numeric_", $suffix),
            concat!("bool", $suffix),
            concat!("text", $suffix, "name"),
            concat!("name", $suffix, "text"),
            concat!("bpchar", $suffix),
            concat!("date_", $suffix),
            concat!("date_", $suffix, "_timestamp"),
            concat!("time_", $suffix),
            concat!("timestamp_", $suffix),
            concat!("date_", $suffix, "_timestamptz"),
            concat!("timestamp_", $suffix, "_date"),
            concat!("timestamp_", $suffix, "_timestamptz"),
            concat!("timestamptz_", $suffix),
            concat!("timestamptz_", $suffix, "_date"),
            concat!("timestamptz_", $suffix, "_timestamp"),
            concat!("uuid_", $suffix),
            concat!("bytea", $suffix),
            concat!("interval_", $suffix)
        )
    };
}

macro_rules! comparison {
    ($entry:ident, $name:literal, $function:expr, $operator:literal, $suffix:literal, $text:literal, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .shown(Shown::Infix($operator))
            .signatures(comparisons!($operator))
            .catalog(comparison_names!($suffix, $text));
    };
}

comparison!(EQUAL, "equal", Function::Equal, "=", "eq", "texteq", "Whether a equals b.");
comparison!(NOT_EQUAL, "not_equal", Function::NotEqual, "<>", "ne", "textne", "Whether a does not equal b.");
comparison!(LESS, "less", Function::Less, "<", "lt", "text_lt", "Whether a is before b.");
comparison!(
    LESS_EQUAL,
    "less_equal",
    Function::LessEqual,
    "<=",
    "le",
    "text_le",
    "Whether a is not after b."
);
comparison!(GREATER, "greater", Function::Greater, ">", "gt", "text_gt", "Whether a is after b.");
comparison!(
    GREATER_EQUAL,
    "greater_equal",
    Function::GreaterEqual,
    ">=",
    "ge",
    "text_ge",
    "Whether a is not before b."
);

pub(super) static IS_DISTINCT_FROM: FunctionEntry = FunctionEntry::new(
    "is_distinct_from",
    Form::Plain(Function::IsDistinctFrom),
    "Whether a and b differ; NULL equals NULL.",
)
.nulls(NullRule::Never)
.shown(Shown::Infix("IS DISTINCT FROM"))
.signatures(comparisons!("IS DISTINCT FROM"));

pub(super) static IS_NOT_DISTINCT_FROM: FunctionEntry = FunctionEntry::new(
    "is_not_distinct_from",
    Form::Plain(Function::IsNotDistinctFrom),
    "Whether a and b are the same; NULL equals NULL.",
)
.nulls(NullRule::Never)
.shown(Shown::Infix("IS NOT DISTINCT FROM"))
.signatures(comparisons!("IS NOT DISTINCT FROM"));

pub(super) static IN: FunctionEntry = FunctionEntry::new(
    "in",
    Form::Plain(Function::In),
    "Whether the first equals one of the others; NULL if it equals none and any value is NULL.",
)
.nulls(NullRule::SomeNull)
.shown(Shown::List)
.signatures(&[Signature::new(&[Any, Any], BOOL, &[Example::of("{a} IN (1, NULL)")]).variadic()]);
