//! Functions of text. Positions and lengths count characters.

use super::{
    CatalogNames, CatalogUse, Caveat, Example, FailureRule, Form, FunctionEntry, NullRule, ResultType, Shown,
    Signature,
    TypeClass::{Bool, Bytea, Int32, Text},
};
use crate::{DataType, Expression, Function, Literal, Value};

const BOOL: ResultType = ResultType::Of(Bool);
const INT32: ResultType = ResultType::Of(Int32);
const TEXT: ResultType = ResultType::Of(Text);
const BYTEA: ResultType = ResultType::Of(Bytea);

/// Places in a text, in it and on both sides of it.
const STARTS: &[&str] = &["-2", "0", "1", "2", "5", "2147483647"];
const COUNTS: &[&str] = &["-1", "0", "1", "3", "2147483647"];
/// Counts of characters that are kept or, negative, dropped.
const ENDS: &[&str] = &["-2147483648", "-2", "0", "2", "2147483647"];

/// Patterns of constants alone, of wildcards alone, and with both.
const PATTERNS: &[&str] = &["", "abc", "%", "_", "a%", "%a", "%b%", "a_b", "PROMO%", "%special%requests%"];

/// Names of LIKE's functions, by the type of the text.
const LIKE_NAMES: &[CatalogNames] = &[
    CatalogNames::itself(&["textlike", "bpcharlike"]),
    CatalogNames { names: &["textnlike", "bpcharnlike"], is: CatalogUse::Not },
];
const ILIKE_NAMES: &[CatalogNames] = &[
    CatalogNames::itself(&["texticlike", "bpchariclike"]),
    CatalogNames { names: &["texticnlike", "bpcharicnlike"], is: CatalogUse::Not },
];

pub(super) static LIKE: FunctionEntry = FunctionEntry::new(
    "like",
    Form::Plain(Function::Like),
    "Whether a text matches a pattern. A pattern that ends within an escape is an error for texts that match up to there.",
)
.failure(FailureRule::Depends(pattern_could_fail))
.expensive()
.shown(Shown::Infix("LIKE"))
.signatures(&[Signature::new(&[Text, Text], BOOL, &[Example::with("{a} LIKE '{n}'", PATTERNS)])])
.caveats(&[Caveat::Deterministic, Caveat::KeepsBlanks])
.catalog(LIKE_NAMES);

pub(super) static ILIKE: FunctionEntry = FunctionEntry::new(
    "ilike",
    Form::Letters(Function::ILike),
    "Whether a text matches a pattern, both in lower case.",
)
.failure(FailureRule::Depends(pattern_could_fail))
.expensive()
.shown(Shown::Infix("ILIKE"))
.signatures(&[Signature::new(&[Text, Text], BOOL, &[Example::of("{a} ILIKE {b}")])])
.caveats(&[Caveat::Deterministic, Caveat::KeepsBlanks])
.catalog(ILIKE_NAMES);

pub(super) static SUBSTRING: FunctionEntry = FunctionEntry::new(
    "substring",
    Form::Plain(Function::Substring),
    "The substring from a position on, of a length if one is given. A negative length is an error.",
)
.failure(FailureRule::Depends(count_could_fail))
.signatures(&[
    Signature::new(&[Text, Int32], TEXT, &[Example::with("substring({a}, {n})", STARTS)]),
    Signature::new(
        &[Text, Int32, Int32],
        TEXT,
        &[Example { sql: "substring({a}, {n}, {m})", constants: STARTS, more_constants: COUNTS }],
    ),
])
.catalog(&[CatalogNames::itself(&["substring", "substr"])]);

pub(super) static LENGTH: FunctionEntry = FunctionEntry::new(
    "length",
    Form::Plain(Function::Length),
    "The number of characters, or of bytes of a bytea.",
)
.signatures(&[
    Signature::new(&[Text], INT32, &[Example::of("length({a})"), Example::of("char_length({a})")]),
    Signature::new(&[Bytea], INT32, &[Example::of("length({a})")]),
])
.catalog(&[CatalogNames::itself(&["length", "char_length", "character_length"])]);

pub(super) static OCTET_LENGTH: FunctionEntry =
    FunctionEntry::new("octet_length", Form::Plain(Function::OctetLength), "The number of bytes.")
        .signatures(&[
            Signature::new(&[Text], INT32, &[Example::of("octet_length({a})")]),
            Signature::new(&[Bytea], INT32, &[Example::of("octet_length({a})")]),
        ])
        .caveats(&[Caveat::KeepsBlanks])
        .catalog(&[CatalogNames::itself(&["octet_length"])]);

pub(super) static UPPER: FunctionEntry = FunctionEntry::new(
    "upper",
    Form::Letters(Function::Upper),
    "The text in upper case, character by character.",
)
.expensive()
.signatures(&[Signature::new(&[Text], TEXT, &[Example::of("upper({a})")])])
.catalog(&[CatalogNames::itself(&["upper"])]);

pub(super) static LOWER: FunctionEntry = FunctionEntry::new(
    "lower",
    Form::Letters(Function::Lower),
    "The text in lower case, character by character.",
)
.expensive()
.signatures(&[Signature::new(&[Text], TEXT, &[Example::of("lower({a})")])])
.catalog(&[CatalogNames::itself(&["lower"])]);

pub(super) static CONCAT: FunctionEntry =
    FunctionEntry::new("concat", Form::Plain(Function::Concat), "The texts, concatenated.")
        .expensive()
        .shown(Shown::Infix("||"))
        .signatures(&[Signature::new(&[Text, Text], TEXT, &[Example::of("{a} || {b}")]).variadic()])
        .catalog(&[CatalogNames::itself(&["textcat"])]);

pub(super) static CONCAT_SKIPPING_NULLS: FunctionEntry = FunctionEntry::new(
    "concat_skipping_nulls",
    Form::Plain(Function::ConcatSkippingNulls),
    "The texts that are not NULL, concatenated.",
)
.nulls(NullRule::Never)
.expensive()
.signatures(&[Signature::new(&[Text], TEXT, &[Example::of("concat({a}, '-', {b})")]).variadic()])
.caveats(&[Caveat::KeepsBlanks])
.catalog(&[CatalogNames::itself(&["concat"])]);

pub(super) static TRIM: FunctionEntry = FunctionEntry::new(
    "trim",
    Form::Side(Function::Trim),
    "The text without the characters of the other text at its start, its end, or both.",
)
.shown(Shown::Trim)
.signatures(&[Signature::new(
    &[Text, Text],
    TEXT,
    &[
        Example::of("trim({a})"),
        Example::of("btrim({a})"),
        Example::of("ltrim({a})"),
        Example::of("rtrim({a})"),
        Example::of("btrim({a}, {b})"),
    ],
)])
.catalog(&[CatalogNames::itself(&["btrim", "ltrim", "rtrim"])]);

pub(super) static POSITION: FunctionEntry = FunctionEntry::new(
    "position",
    Form::Plain(Function::Position),
    "The position of the other text in the text, from 1; 0 if it does not occur.",
)
.expensive()
.signatures(&[Signature::new(
    &[Text, Text],
    INT32,
    &[Example::of("position({b} in {a})"), Example::of("strpos({a}, {b})")],
)])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["position", "strpos"])]);

pub(super) static REPLACE: FunctionEntry = FunctionEntry::new(
    "replace",
    Form::Plain(Function::Replace),
    "The text with each occurrence of the second text replaced by the third.",
)
.expensive()
.signatures(&[Signature::new(&[Text, Text, Text], TEXT, &[Example::of("replace({a}, {b}, '#')")])])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["replace"])]);

pub(super) static LEFT: FunctionEntry = FunctionEntry::new(
    "left",
    Form::Plain(Function::Left),
    "The first characters, as many as the count; a negative count drops characters from the end.",
)
.signatures(&[Signature::new(&[Text, Int32], TEXT, &[Example::with("left({a}, {n})", ENDS)])])
.catalog(&[CatalogNames::itself(&["left"])]);

pub(super) static RIGHT: FunctionEntry = FunctionEntry::new(
    "right",
    Form::Plain(Function::Right),
    "The last characters, as many as the count; a negative count drops characters from the start.",
)
.signatures(&[Signature::new(&[Text, Int32], TEXT, &[Example::with("right({a}, {n})", ENDS)])])
.catalog(&[CatalogNames::itself(&["right"])]);

pub(super) static STARTS_WITH: FunctionEntry = FunctionEntry::new(
    "starts_with",
    Form::Plain(Function::StartsWith),
    "Whether a text begins with another.",
)
.signatures(&[Signature::new(&[Text, Text], BOOL, &[Example::of("starts_with({a}, {b})")])])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["starts_with"])]);

pub(super) static PAD_BLANKS: FunctionEntry = FunctionEntry::new(
    "pad_blanks",
    Form::Plain(Function::PadBlanks),
    "The text padded with blanks to a length in characters.",
)
.expensive()
.signatures(&[Signature::new(&[Text, Int32], TEXT, &[])]);

pub(super) static TRIM_BLANKS: FunctionEntry =
    FunctionEntry::new("trim_blanks", Form::Plain(Function::TrimBlanks), "The text without trailing blanks.")
        .signatures(&[Signature::new(&[Text], TEXT, &[])]);

pub(super) static SORT_KEY: FunctionEntry = FunctionEntry::new(
    "sort_key",
    Form::Order(Function::SortKey),
    "A key in whose order texts are under a collation. Texts that differ have different keys.",
)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Text], BYTEA, &[])]);

pub(super) static TEXT_OF_SORT_KEY: FunctionEntry =
    FunctionEntry::new("text_of_sort_key", Form::Plain(Function::TextOfSortKey), "The text of such a key.")
        .on_host()
        .signatures(&[Signature::new(&[Bytea], TEXT, &[])]);

/// The pattern's end is looked at only for texts that match up to there.
fn pattern_could_fail(arguments: &[Expression], _data_type: &DataType) -> bool {
    match arguments.get(1) {
        Some(Expression::Literal(Literal { value: Value::Text(pattern), .. })) => {
            pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
        }
        Some(Expression::Literal(Literal { value: Value::Null, .. })) => false,
        _ => true,
    }
}

fn count_could_fail(arguments: &[Expression], _data_type: &DataType) -> bool {
    match arguments.get(2) {
        Some(Expression::Literal(Literal { value: Value::Int(count), .. })) => *count < 0,
        other => other.is_some(),
    }
}
