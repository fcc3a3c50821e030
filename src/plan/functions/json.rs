//! Text of JSON, parts of it, and text of numbers.

use super::{
    Example, FailureRule, Form, FunctionEntry, NullRule, ResultType, Signature,
    TypeClass::{Bool, Bytea, Date, Decimals, Floats, Int32, Integers, Lists, Text, Time, Timestamps, Uuid},
};
use crate::Function;

const TEXT: ResultType = ResultType::Of(Text);
const VALUE: &[Example] = &[Example::of("to_json({a})")];

pub(super) static JSON_TEXT: FunctionEntry =
    FunctionEntry::new("json_text", Form::Plain(Function::JsonText), "The value as JSON; null of NULL.")
        .nulls(NullRule::Never)
        .on_host()
        .signatures(&[
            Signature::new(&[Bool], TEXT, VALUE),
            Signature::new(&[Integers], TEXT, VALUE),
            Signature::new(&[Decimals], TEXT, VALUE),
            Signature::new(&[Date], TEXT, VALUE),
            Signature::new(&[Time], TEXT, VALUE),
            Signature::new(&[Timestamps], TEXT, VALUE),
            Signature::new(&[Uuid], TEXT, VALUE),
            Signature::new(&[Text], TEXT, VALUE),
            Signature::new(&[Floats, Text], TEXT, VALUE),
            Signature::new(&[Decimals, Int32], TEXT, VALUE),
            Signature::new(&[Timestamps, Bytea], TEXT, VALUE),
            Signature::new(&[Lists], TEXT, VALUE),
            Signature::new(&[Lists, Text], TEXT, VALUE),
            Signature::new(&[Lists, Bytea], TEXT, VALUE),
        ]);

/// Documents of each kind, and of a value that may be a text with quotes.
const PARTS: &[Example] = &[
    Example::with("(json_build_object('a', {a}, 'b', 1.50) -> '{n}')::text", &["a", "b", "c"]),
    Example::with("json_build_array({a}, NULL) -> {n} IS NULL", &["0", "1", "2", "-1"]),
];
const BINARY_PARTS: &[Example] = &[
    Example::with("(jsonb_build_object('a', {a}, 'b', 1.50) -> '{n}')::text", &["a", "b", "c"]),
    Example::with("jsonb_build_array({a}, NULL) -> {n} IS NULL", &["0", "1", "2", "-1"]),
];
const PART_TEXTS: &[Example] = &[
    Example::with("json_build_object('a', {a}, 'b', 1.50) ->> '{n}'", &["a", "b", "c"]),
    Example::with("json_build_array({a}, NULL) ->> {n}", &["0", "1", "2", "-1"]),
];
const BINARY_PART_TEXTS: &[Example] = &[
    Example::with("jsonb_build_object('a', {a}, 'b', 1.50) ->> '{n}'", &["a", "b", "c"]),
    Example::with("jsonb_build_array({a}, NULL) ->> {n}", &["0", "1", "2", "-1"]),
    Example::with("jsonb_build_object('x', jsonb_build_array({a})) #>> '{n}'", &["{x,0}", "{x}", "{}"]),
];

/// A function of a document, and the same of `jsonb`.
macro_rules! of_document {
    ($entry:ident, $name:literal, $function:expr, $failure:expr, $nulls:expr, $signature:expr, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry = FunctionEntry::new($name, Form::Plain($function), $meaning)
            .nulls($nulls)
            .failure($failure)
            .expensive()
            .on_host()
            .signatures(&[$signature]);
    };
}

of_document!(
    JSON_PART,
    "json_part",
    Function::JsonPart,
    FailureRule::Always,
    NullRule::StrictAndOwn,
    Signature::new(&[Text, Text], TEXT, PARTS),
    "The part of a document of json that a path leads to."
);
of_document!(
    JSONB_PART,
    "jsonb_part",
    Function::JsonbPart,
    FailureRule::Never,
    NullRule::StrictAndOwn,
    Signature::new(&[Text, Text], TEXT, BINARY_PARTS),
    "The part of a document of jsonb that a path leads to."
);
of_document!(
    JSON_PART_TEXT,
    "json_part_text",
    Function::JsonPartText,
    FailureRule::Always,
    NullRule::StrictAndOwn,
    Signature::new(&[Text, Text], TEXT, PART_TEXTS),
    "The same as text; NULL of null."
);
of_document!(
    JSONB_PART_TEXT,
    "jsonb_part_text",
    Function::JsonbPartText,
    FailureRule::Never,
    NullRule::StrictAndOwn,
    Signature::new(&[Text, Text], TEXT, BINARY_PART_TEXTS),
    "The same as text; NULL of null."
);
of_document!(
    JSON_TYPE,
    "json_typeof",
    Function::JsonType,
    FailureRule::Never,
    NullRule::Strict,
    Signature::new(&[Text], TEXT, &[Example::of("json_typeof(to_json({a}))")]),
    "The name of the type of a document of json."
);
of_document!(
    JSONB_TYPE,
    "jsonb_typeof",
    Function::JsonbType,
    FailureRule::Never,
    NullRule::Strict,
    Signature::new(&[Text], TEXT, &[Example::of("jsonb_typeof(to_jsonb({a}))")]),
    "The name of the type of a document of jsonb."
);
of_document!(
    JSON_LENGTH,
    "json_array_length",
    Function::JsonLength,
    FailureRule::Always,
    NullRule::Strict,
    Signature::new(
        &[Text],
        ResultType::Of(Int32),
        &[Example::of("json_array_length(json_build_array({a}, 1))")]
    ),
    "The number of elements of an array of json. Another document is an error."
);
of_document!(
    JSONB_LENGTH,
    "jsonb_array_length",
    Function::JsonbLength,
    FailureRule::Always,
    NullRule::Strict,
    Signature::new(
        &[Text],
        ResultType::Of(Int32),
        &[Example::of("jsonb_array_length(jsonb_build_array({a}, 1))")]
    ),
    "The number of elements of an array of jsonb. Another document is an error."
);
of_document!(
    JSON_CAST,
    "json_cast",
    Function::JsonCast,
    FailureRule::Always,
    NullRule::Strict,
    Signature::new(&[Text], TEXT, &[Example::of("to_json({a})::text::json")]),
    "The text, which must be a document of json."
);
of_document!(
    JSONB_CAST,
    "jsonb_cast",
    Function::JsonbCast,
    FailureRule::Always,
    NullRule::Strict,
    Signature::new(&[Text], TEXT, &[Example::of("to_json({a})::text::jsonb")]),
    "The text, which must be a document of jsonb."
);
of_document!(
    JSONB_TEXT,
    "jsonb_text",
    Function::JsonbText,
    FailureRule::Never,
    NullRule::Strict,
    Signature::new(&[Text], TEXT, &[Example::of("to_jsonb({a})::text")]),
    "A document of jsonb as PostgreSQL prints it."
);
of_document!(
    JSONB_EXISTS,
    "jsonb_exists",
    Function::JsonbExists,
    FailureRule::Never,
    NullRule::Strict,
    Signature::new(
        &[Text, Text],
        ResultType::Of(Bool),
        &[
            Example::with("jsonb_build_object('a', {a}) ? '{n}'", &["a", "b"]),
            Example::of("jsonb_build_array({a}) ? 'a'")
        ]
    ),
    "Whether an object of jsonb has a field, an array a text, or a text is this one."
);
of_document!(
    JSONB_CONTAINS,
    "jsonb_contains",
    Function::JsonbContains,
    FailureRule::Never,
    NullRule::Strict,
    Signature::new(
        &[Text, Text],
        ResultType::Of(Bool),
        &[Example::with(
            "jsonb_build_object('a', {a}, 'b', 1) @> '{n}'",
            &["{\"b\": 1.0}", "{\"a\": null}", "{}", "[]"]
        )]
    ),
    "Whether a document of jsonb has all that another one has."
);

pub(super) static NUMBER_TEXT: FunctionEntry =
    FunctionEntry::new("number_text", Form::Plain(Function::NumberText), "The number as its type prints it.")
        .expensive()
        .on_host()
        .signatures(&[
            Signature::new(&[Floats, Text], TEXT, &[Example::of("{a}::text")]),
            Signature::new(&[Decimals], TEXT, &[Example::of("{a}::text")]),
            Signature::new(&[Decimals, Int32], TEXT, &[]),
        ]);
