//! Changes of type.

use super::{
    CatalogNames, Example, FailureRule, Form, FunctionEntry, ResultType, Shown, Signature,
    TypeClass::{self, *},
};
use crate::{DataType, Expression, Function};

/// A change from one class to another, and how SQL asks for it.
const fn change(from: &'static [TypeClass], to: TypeClass, examples: &'static [Example]) -> Signature {
    Signature::new(from, ResultType::Of(to), examples)
}

const TO_INTEGERS: &[Example] = &[Example::with("{a}::{n}", &["int2", "int4", "int8"])];
const TO_FLOATS: &[Example] = &[Example::with("{a}::{n}", &["float4", "float8"])];
const TO_DECIMALS: &[Example] = &[Example::with(
    "{a}::{n}",
    &["numeric(15,2)", "numeric(38,10)", "numeric(9,4)", "numeric(5,0)", "numeric"],
)];
const TO_TEXT: &[Example] = &[Example::of("{a}::text")];
const TO_TIMESTAMPS: &[Example] = &[Example::with("{a}::{n}", &["timestamp", "timestamptz"])];

pub(super) static CAST: FunctionEntry = FunctionEntry::new(
    "cast",
    Form::Plain(Function::Cast),
    "The value as another type. A value that the type cannot hold is an error.",
)
.failure(FailureRule::Depends(could_fail))
.shown(Shown::Cast)
.signatures(&[
    change(&[Integers], Integers, TO_INTEGERS),
    change(&[Integers], Floats, TO_FLOATS),
    change(&[Integers], Decimals, TO_DECIMALS),
    change(&[Integers], Text, TO_TEXT),
    change(&[Floats], Integers, TO_INTEGERS),
    change(&[Floats], Floats, TO_FLOATS),
    change(&[Decimals], Integers, TO_INTEGERS),
    change(&[Decimals], Floats, TO_FLOATS),
    change(&[Decimals], Decimals, TO_DECIMALS),
    change(&[Bool], Int32, &[Example::of("{a}::int4")]),
    change(&[Int32], Bool, &[Example::of("{a}::bool")]),
    change(&[Bool], Text, TO_TEXT),
    change(&[Date], Timestamps, TO_TIMESTAMPS),
    change(&[Date], Text, TO_TEXT),
    change(&[Time], Text, TO_TEXT),
    change(&[Timestamps], Date, &[Example::of("{a}::date")]),
    change(&[Timestamps], Time, &[Example::of("{a}::time")]),
    change(&[Timestamps], Timestamps, TO_TIMESTAMPS),
    change(&[Timestamps], Text, TO_TEXT),
    change(&[Uuid], Text, TO_TEXT),
])
.catalog(&[CatalogNames::itself(&[
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "bool",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "text",
])]);

/// The first four digits of a text, as another type.
const FROM_TEXT: &[Example] = &[Example::with(
    "nullif(left(regexp_replace({a}, '[^0-9]', '', 'g'), 4), '')::{n}",
    &["int2", "int4", "int8", "float4", "float8", "numeric(9,4)"],
)];

pub(super) static PARSE: FunctionEntry = FunctionEntry::new(
    "parse",
    Form::Plain(Function::Parse),
    "A text as another type. A text that the type does not read is an error.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.shown(Shown::CastOfFirst)
.signatures(&[
    Signature::new(&[Text, Bool], ResultType::Of(Integers), FROM_TEXT),
    Signature::new(&[Text, Bool], ResultType::Of(Floats), FROM_TEXT),
    Signature::new(&[Text, Bool], ResultType::Of(Decimals), FROM_TEXT),
    Signature::new(&[Text, Bool], ResultType::Of(Bool), &[Example::of("({a} LIKE '%a%')::text::bool")]),
    Signature::new(&[Text, Bool], ResultType::Of(Uuid), &[Example::of("md5({a})::uuid")]),
]);

fn could_fail(arguments: &[Expression], to: &DataType) -> bool {
    match (arguments.first().map(Expression::data_type), to) {
        (Some(from), to) if from == to => false,
        (Some(DataType::Int16), DataType::Int32 | DataType::Int64)
        | (Some(DataType::Int32), DataType::Int64) => false,
        (Some(from), to) if from.is_integer() && to.is_float() => false,
        (Some(from), DataType::Decimal { precision, scale }) if from.is_integer() => {
            i32::from(*precision) - i32::from(*scale) < integer_digits(from)
        }
        (
            Some(DataType::Decimal { precision, scale }),
            DataType::Decimal { precision: wider, scale: longer },
        ) => longer < scale || wider - longer < precision - scale,
        _ => true,
    }
}

/// Decimal digits of an integer type's values.
fn integer_digits(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        _ => 19,
    }
}
