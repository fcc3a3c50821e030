//! Functions that give a text another form. Positions and lengths count characters.

use super::{
    CatalogNames, Caveat, Example, FailureRule, Form, FunctionEntry, NullRule, ResultType, Signature,
    TypeClass::{Decimals, Floats, Int32, Int64, Text},
};
use crate::{DataType, Expression, Function, Literal, Value};

const TEXT: ResultType = ResultType::Of(Text);

/// Lengths of padded texts.
const LENGTHS: &[&str] = &["-1", "0", "3", "12"];
/// Numbers of fields.
const FIELDS: &[&str] = &["-3", "-1", "0", "1", "2"];
/// Numbers of repetitions.
const TIMES: &[&str] = &["-1", "0", "1", "3"];
/// Where another text is placed.
const STARTS: &[&str] = &["0", "1", "3", "100", "2147483647"];

/// Formats of numbers with each kind of pattern.
const NUMBER_FORMATS: &[&str] = &[
    "999",
    "FM999,990.009",
    "000.99",
    "9,999,999,999.99PR",
    "MI9.9",
    "9999PL",
    "SG099.9",
    "FM9.99",
    "9 \"x\" 999th",
    "",
];

/// The same without the ending of an ordinal number, which infinity does not have.
const FLOAT_FORMATS: &[&str] =
    &["999", "FM999,990.009", "000.99", "9,999,999,999.99PR", "MI9.9", "FM999999999999999.9999999999999999"];

pub(super) static FORMAT_NUMBER: FunctionEntry =
    FunctionEntry::new("format_number", Form::Plain(Function::FormatNumber), "The number in a format.")
        .expensive()
        .on_host()
        .signatures(&[
            Signature::new(&[Int32, Text], TEXT, &[Example::with("to_char({a}, '{n}')", NUMBER_FORMATS)]),
            Signature::new(&[Int64, Text], TEXT, &[Example::with("to_char({a}, '{n}')", NUMBER_FORMATS)]),
            Signature::new(&[Decimals, Text], TEXT, &[Example::with("to_char({a}, '{n}')", NUMBER_FORMATS)]),
            Signature::new(&[Floats, Text], TEXT, &[Example::with("to_char({a}, '{n}')", FLOAT_FORMATS)]),
        ]);

macro_rules! pad {
    ($entry:ident, $name:literal, $function:expr, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .failure(FailureRule::Depends(length_could_fail))
            .expensive()
            .signatures(&[Signature::new(
                &[Text, Int32, Text],
                TEXT,
                &[
                    Example::with(concat!($name, "({a}, {n})"), LENGTHS),
                    Example::with(concat!($name, "({a}, {n}, 'x\u{e4}')"), LENGTHS),
                ],
            )])
            .catalog(&[CatalogNames::itself(&[$name])]);
    };
}

pad!(
    PAD_LEFT,
    "lpad",
    Function::PadLeft,
    "The text at a length: filled at its start with the other text, or cut at its end."
);
pad!(
    PAD_RIGHT,
    "rpad",
    Function::PadRight,
    "The text at a length: filled at its end with the other text, or cut there."
);

pub(super) static SPLIT_PART: FunctionEntry = FunctionEntry::new(
    "split_part",
    Form::Plain(Function::SplitPart),
    "The field of a number, from the end if it is negative, between delimiters. Number 0 is an error.",
)
.failure(FailureRule::Depends(field_could_fail))
.expensive()
.signatures(&[Signature::new(
    &[Text, Text, Int32],
    TEXT,
    &[Example::with("split_part({a}, 'b', {n})", FIELDS), Example::of("split_part({a}, {b}, 1)")],
)])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["split_part"])]);

pub(super) static TRANSLATE: FunctionEntry = FunctionEntry::new(
    "translate",
    Form::Plain(Function::Translate),
    "The text with characters of the second text replaced by those at the same places of the third, or dropped.",
)
.expensive()
.signatures(&[Signature::new(
    &[Text, Text, Text],
    TEXT,
    &[Example::of("translate({a}, 'abc', 'x\u{e4}')"), Example::of("translate({a}, {b}, 'xyz')")],
)])
.catalog(&[CatalogNames::itself(&["translate"])]);

pub(super) static REVERSE: FunctionEntry =
    FunctionEntry::new("reverse", Form::Plain(Function::Reverse), "The characters in the opposite order.")
        .expensive()
        .signatures(&[Signature::new(&[Text], TEXT, &[Example::of("reverse({a})")])])
        .catalog(&[CatalogNames::itself(&["reverse"])]);

pub(super) static REPEAT: FunctionEntry =
    FunctionEntry::new("repeat", Form::Plain(Function::Repeat), "The text, so many times.")
        .failure(FailureRule::Always)
        .expensive()
        .signatures(&[Signature::new(&[Text, Int32], TEXT, &[Example::with("repeat({a}, {n})", TIMES)])])
        .catalog(&[CatalogNames::itself(&["repeat"])]);

pub(super) static INIT_CAP: FunctionEntry = FunctionEntry::new(
    "initcap",
    Form::Letters(Function::InitCap),
    "The text in lower case, and in upper case what does not follow a letter or digit.",
)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Text], TEXT, &[Example::of("initcap({a})")])])
.catalog(&[CatalogNames::itself(&["initcap"])]);

pub(super) static CONCAT_SEPARATED: FunctionEntry = FunctionEntry::new(
    "concat_ws",
    Form::Plain(Function::ConcatSeparated),
    "The texts that are not NULL, with the first between them. NULL if the first is.",
)
.nulls(NullRule::SomeNull)
.expensive()
.on_host()
.signatures(&[Signature::new(
    &[Text, Text],
    TEXT,
    &[Example::of("concat_ws('-', {a}, 'x', {b})"), Example::of("concat_ws({a}, {b}, 'x')")],
)
.variadic()])
.caveats(&[Caveat::KeepsBlanks])
.catalog(&[CatalogNames::itself(&["concat_ws"])]);

pub(super) static OVERLAY: FunctionEntry = FunctionEntry::new(
    "overlay",
    Form::Plain(Function::Overlay),
    "The text with a part replaced, which begins at a position and is as long as the other text, or as a count. A position below 1 is an error.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.signatures(&[
    Signature::new(
        &[Text, Text, Int32],
        TEXT,
        &[Example::with("overlay({a} placing 'x\u{e4}' from {n})", STARTS)],
    ),
    Signature::new(
        &[Text, Text, Int32, Int32],
        TEXT,
        &[Example {
            sql: "overlay({a} placing 'xyz' from {n} for {m})",
            constants: STARTS,
            more_constants: &["-2", "0", "2", "2147483647"],
        }],
    ),
])
.catalog(&[CatalogNames::itself(&["overlay"])]);

pub(super) static QUOTE_LITERAL: FunctionEntry = FunctionEntry::new(
    "quote_literal",
    Form::Plain(Function::QuoteLiteral),
    "The text as a constant of SQL.",
)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Text], TEXT, &[Example::of("quote_literal({a})")])])
.catalog(&[CatalogNames::itself(&["quote_literal"])]);

pub(super) static QUOTE_IDENTIFIER: FunctionEntry =
    FunctionEntry::new("quote_ident", Form::Plain(Function::QuoteIdentifier), "The text as a name of SQL.")
        .expensive()
        .on_host()
        .signatures(&[Signature::new(&[Text, Text, Text], TEXT, &[Example::of("quote_ident({a})")])]);

/// PostgreSQL reserves four bytes a character, and no more than 1 GB.
fn length_could_fail(arguments: &[Expression], _data_type: &DataType) -> bool {
    !matches!(arguments.get(1), Some(Expression::Literal(Literal { value: Value::Int(..268_435_455), .. })))
}

fn field_could_fail(arguments: &[Expression], _data_type: &DataType) -> bool {
    match arguments.get(2) {
        Some(Expression::Literal(Literal { value: Value::Int(field), .. })) => *field == 0,
        _ => true,
    }
}
