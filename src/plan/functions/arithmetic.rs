//! Arithmetic and rounding of integers, floats and decimals.

use super::{
    CatalogNames, Example, FailureRule, Form, FunctionEntry, ResultType, Shown, Signature,
    TypeClass::{Decimals, Float64, Floats, Int32, Integers},
    catalog::operator_names,
};
use crate::{DataType, Expression, Function};

const DECIMAL: ResultType = ResultType::Of(Decimals);

/// Digits that numbers are rounded to, before the point and after it.
const DIGITS: &[&str] = &["-12", "-3", "-1", "0", "1", "3", "9"];

/// The precision of a decimal result is a bound that holds for every row.
fn fails_if_no_decimal(_arguments: &[Expression], data_type: &DataType) -> bool {
    !data_type.is_decimal()
}

/// What is rounded may need a digit more than its type has; no float does.
fn fails_if_decimal(_arguments: &[Expression], data_type: &DataType) -> bool {
    data_type.is_decimal()
}

/// The names of a function of one number, by the types that have one.
macro_rules! unary_names {
    ($suffix:literal, $($other:literal),*) => {
        &[CatalogNames::itself(&[
            concat!("int2", $suffix),
            concat!("int4", $suffix),
            concat!("int8", $suffix),
            concat!("float4", $suffix),
            concat!("float8", $suffix),
            $($other),*
        ])]
    };
}

/// An operator of two numbers whose decimals have exact results.
macro_rules! exact {
    ($entry:ident, $name:literal, $function:expr, $operator:literal, $names:expr, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .failure(FailureRule::Depends(fails_if_no_decimal))
            .shown(Shown::Infix($operator))
            .signatures(&[
                Signature::new(
                    &[Integers, Integers],
                    ResultType::Same,
                    &[Example::of(concat!("{a} ", $operator, " {b}"))],
                ),
                Signature::new(
                    &[Floats, Floats],
                    ResultType::Same,
                    &[Example::of(concat!("{a} ", $operator, " {b}"))],
                ),
                Signature::new(
                    &[Decimals, Decimals],
                    DECIMAL,
                    &[Example::of(concat!("{a} ", $operator, " {b}"))],
                ),
            ])
            .catalog($names);
    };
}

exact!(ADD, "add", Function::Add, "+", operator_names!("pl", "numeric_add"), "The sum.");
exact!(
    SUBTRACT,
    "subtract",
    Function::Subtract,
    "-",
    operator_names!("mi", "numeric_sub"),
    "The difference."
);
exact!(MULTIPLY, "multiply", Function::Multiply, "*", operator_names!("mul", "numeric_mul"), "The product.");

pub(super) static DIVIDE: FunctionEntry = FunctionEntry::new(
    "divide",
    Form::Plain(Function::Divide),
    "The quotient; integers round towards zero. Division by zero is an error.",
)
.failure(FailureRule::Always)
.shown(Shown::Infix("/"))
.signatures(&[
    Signature::new(&[Integers, Integers], ResultType::Same, &[Example::of("{a} / {b}")]),
    Signature::new(&[Floats, Floats], ResultType::Same, &[Example::of("{a} / {b}")]),
])
.catalog(operator_names!("div"));

pub(super) static MODULO: FunctionEntry = FunctionEntry::new(
    "modulo",
    Form::Plain(Function::Modulo),
    "The remainder of a division towards zero, with the sign of a. Division by zero is an error.",
)
.failure(FailureRule::Always)
.shown(Shown::Infix("%"))
.signatures(&[
    Signature::new(
        &[Integers, Integers],
        ResultType::Same,
        &[Example::of("{a} % {b}"), Example::of("mod({a}, {b})")],
    ),
    Signature::new(
        &[Decimals, Decimals],
        DECIMAL,
        &[Example::of("{a} % {b}"), Example::with("mod({a}, {n})", &["7"])],
    ),
])
.catalog(&[CatalogNames::itself(&["int2mod", "int4mod", "int8mod", "numeric_mod", "mod"])]);

pub(super) static NEGATE: FunctionEntry =
    FunctionEntry::new("negate", Form::Plain(Function::Negate), "The negated number.")
        .failure(FailureRule::Depends(fails_if_no_decimal))
        .signatures(&[
            Signature::new(&[Integers], ResultType::Same, &[Example::of("-{a}")]),
            Signature::new(&[Floats], ResultType::Same, &[Example::of("-{a}")]),
            Signature::new(&[Decimals], ResultType::Same, &[Example::of("-{a}")]),
        ])
        .catalog(unary_names!("um", "numeric_uminus"));

pub(super) static ABSOLUTE: FunctionEntry =
    FunctionEntry::new("absolute", Form::Plain(Function::Absolute), "The absolute value.")
        .failure(FailureRule::Depends(fails_if_no_decimal))
        .signatures(&[
            Signature::new(&[Integers], ResultType::Same, &[Example::of("abs({a})")]),
            Signature::new(&[Floats], ResultType::Same, &[Example::of("abs({a})")]),
            Signature::new(&[Decimals], ResultType::Same, &[Example::of("abs({a})")]),
        ])
        .catalog(unary_names!("abs", "abs", "numeric_abs"));

pub(super) static SIGN: FunctionEntry =
    FunctionEntry::new("sign", Form::Plain(Function::Sign), "The sign of the number: -1, 0 or 1.")
        .signatures(&[
            Signature::new(&[Float64], ResultType::Same, &[Example::of("sign({a})")]),
            Signature::new(&[Decimals], DECIMAL, &[Example::of("sign({a})")]),
        ])
        .catalog(&[CatalogNames::itself(&["sign"])]);

pub(super) static ROUND: FunctionEntry = FunctionEntry::new(
    "round",
    Form::Plain(Function::Round),
    "The number rounded to a count of digits after the point, or before it if negative; halves of decimals away from zero, of floats to even.",
)
.failure(FailureRule::Depends(fails_if_decimal))
.signatures(&[
    Signature::new(&[Float64], ResultType::Same, &[Example::of("round({a})")]),
    Signature::new(
        &[Decimals, Int32],
        DECIMAL,
        &[Example::of("round({a})"), Example::with("round({a}, {n})", DIGITS)],
    ),
])
.catalog(&[CatalogNames::itself(&["round"])]);

pub(super) static TRUNCATE: FunctionEntry = FunctionEntry::new(
    "truncate",
    Form::Plain(Function::Truncate),
    "The number cut off after a count of digits after the point, or before it if negative.",
)
.failure(FailureRule::Depends(fails_if_decimal))
.signatures(&[
    Signature::new(&[Float64], ResultType::Same, &[Example::of("trunc({a})")]),
    Signature::new(
        &[Decimals, Int32],
        DECIMAL,
        &[Example::of("trunc({a})"), Example::with("trunc({a}, {n})", DIGITS)],
    ),
])
.catalog(&[CatalogNames::itself(&["trunc"])]);

pub(super) static CEILING: FunctionEntry = FunctionEntry::new(
    "ceiling",
    Form::Plain(Function::Ceiling),
    "The least integer that is not less than the number.",
)
.failure(FailureRule::Depends(fails_if_decimal))
.signatures(&[
    Signature::new(&[Float64], ResultType::Same, &[Example::of("ceil({a})")]),
    Signature::new(&[Decimals], DECIMAL, &[Example::of("ceil({a})")]),
])
.catalog(&[CatalogNames::itself(&["ceil", "ceiling"])]);

pub(super) static FLOOR: FunctionEntry = FunctionEntry::new(
    "floor",
    Form::Plain(Function::Floor),
    "The greatest integer that is not greater than the number.",
)
.failure(FailureRule::Depends(fails_if_decimal))
.signatures(&[
    Signature::new(&[Float64], ResultType::Same, &[Example::of("floor({a})")]),
    Signature::new(&[Decimals], DECIMAL, &[Example::of("floor({a})")]),
])
.catalog(&[CatalogNames::itself(&["floor"])]);

pub(super) static SQUARE_ROOT: FunctionEntry = FunctionEntry::new(
    "square_root",
    Form::Plain(Function::SquareRoot),
    "The square root. A negative number is an error.",
)
.failure(FailureRule::Always)
.signatures(&[Signature::new(&[Float64], ResultType::Same, &[Example::of("sqrt({a})")])])
.catalog(&[CatalogNames::itself(&["sqrt", "dsqrt", "numeric_sqrt"])]);
