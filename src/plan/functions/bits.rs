//! Bits of integers, and their common divisors and multiples.

use super::{
    CatalogNames, Example, FailureRule, Form, FunctionEntry, ResultType, Shown, Signature,
    TypeClass::{Int32, Int64, Integers},
};
use crate::Function;

/// Counts of bits, some beyond those that there are.
const COUNTS: &[&str] = &["-1", "0", "1", "15", "31", "33", "65"];

macro_rules! names {
    ($suffix:literal) => {
        &[CatalogNames::itself(&[
            concat!("int2", $suffix),
            concat!("int4", $suffix),
            concat!("int8", $suffix),
        ])]
    };
}

macro_rules! of_two {
    ($entry:ident, $name:literal, $function:expr, $operator:literal, $suffix:literal, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .shown(Shown::Infix($operator))
            .signatures(&[Signature::new(
                &[Integers, Integers],
                ResultType::Same,
                &[Example::of(concat!("{a} ", $operator, " {b}"))],
            )])
            .catalog(names!($suffix));
    };
}

of_two!(BIT_AND, "bit_and", Function::BitAnd, "&", "and", "The bits that both have.");
of_two!(BIT_OR, "bit_or", Function::BitOr, "|", "or", "The bits that one has.");
of_two!(BIT_XOR, "bit_xor", Function::BitXor, "#", "xor", "The bits that only one has.");

pub(super) static BIT_NOT: FunctionEntry =
    FunctionEntry::new("bit_not", Form::Plain(Function::BitNot), "The bits that the integer does not have.")
        .shown(Shown::Prefix("~"))
        .signatures(&[Signature::new(&[Integers], ResultType::Same, &[Example::of("~{a}")])])
        .catalog(names!("not"));

macro_rules! shift {
    ($entry:ident, $name:literal, $function:expr, $operator:literal, $suffix:literal, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .shown(Shown::Infix($operator))
            .signatures(&[Signature::new(
                &[Integers, Int32],
                ResultType::Same,
                &[Example::with(concat!("{a} ", $operator, " ({n})"), COUNTS)],
            )])
            .catalog(names!($suffix));
    };
}

shift!(
    SHIFT_LEFT,
    "shift_left",
    Function::ShiftLeft,
    "<<",
    "shl",
    "The bits, moved by so many places to higher ones."
);
shift!(
    SHIFT_RIGHT,
    "shift_right",
    Function::ShiftRight,
    ">>",
    "shr",
    "The bits, moved by so many places to lower ones; the sign stays."
);

macro_rules! common {
    ($entry:ident, $name:literal, $function:expr, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .failure(FailureRule::Always)
            .on_host()
            .signatures(&[
                Signature::new(
                    &[Int32, Int32],
                    ResultType::Same,
                    &[Example::of(concat!($name, "({a}, {b})"))],
                ),
                Signature::new(
                    &[Int64, Int64],
                    ResultType::Same,
                    &[Example::of(concat!($name, "({a}, {b})"))],
                ),
            ])
            .catalog(&[CatalogNames::itself(&[$name])]);
    };
}

common!(
    GREATEST_COMMON_DIVISOR,
    "gcd",
    Function::GreatestCommonDivisor,
    "The greatest integer that divides both; 0 of two zeros."
);
common!(
    LEAST_COMMON_MULTIPLE,
    "lcm",
    Function::LeastCommonMultiple,
    "The least integer that both divide; 0 if one is zero."
);
