//! Functions of regular expressions.

use super::{
    CatalogNames, CatalogUse, Caveat, Example, Form, FunctionEntry, NullRule, ResultType, Shown, Signature,
    TypeClass::{Bool, Int32, Lists, Text},
};
use crate::Function;

const BOOL: ResultType = ResultType::Of(Bool);
const INT32: ResultType = ResultType::Of(Int32);
const TEXT: ResultType = ResultType::Of(Text);

/// Patterns with each kind of part.
const EXPRESSIONS: &[&str] = &[
    "",
    "b",
    "^a",
    "a$",
    "^$",
    "a.c|^x",
    "[A-Fb]{2,3}",
    "(ab)+|[^a-z ]",
    "^(a|b)*$",
    "\\d+|\\s",
    "x[[:alpha:]]*y",
];

pub(super) static MATCHES: FunctionEntry = FunctionEntry::new(
    "matches",
    Form::Letters(Function::Matches),
    "Whether a part of the text matches a regular expression.",
)
.expensive()
.shown(Shown::Infix("~"))
.signatures(&[Signature::new(
    &[Text, Text],
    BOOL,
    &[Example::with("{a} ~ '{n}'", EXPRESSIONS), Example::with("{a} !~ '{n}'", &["^[ab]"])],
)])
.caveats(&[Caveat::Deterministic, Caveat::KeepsBlanks])
.catalog(&[
    CatalogNames::itself(&["textregexeq", "bpcharregexeq", "regexp_like"]),
    CatalogNames { names: &["textregexne", "bpcharregexne"], is: CatalogUse::Not },
]);

pub(super) static MATCHES_IGNORING_CASE: FunctionEntry = FunctionEntry::new(
    "matches_ignoring_case",
    Form::Letters(Function::MatchesIgnoringCase),
    "Whether a part of the text matches a regular expression, whatever the case of letters.",
)
.expensive()
.shown(Shown::Infix("~*"))
.signatures(&[Signature::new(
    &[Text, Text],
    BOOL,
    &[Example::with("{a} ~* '{n}'", EXPRESSIONS), Example::with("{a} !~* '{n}'", &["^[ab]"])],
)])
.caveats(&[Caveat::Deterministic, Caveat::KeepsBlanks])
.catalog(&[
    CatalogNames::itself(&["texticregexeq", "bpcharicregexeq"]),
    CatalogNames { names: &["texticregexne", "bpcharicregexne"], is: CatalogUse::Not },
]);

/// Patterns with groups whose parts are known.
const GROUPS: &[&str] = &["(a+)(b*)", "([a-z]+?)(\\d|$)", "^(\\w+)[ -]*(.*)$", "(x|ab|a)b?"];

/// What a match becomes.
const REPLACEMENTS: &[&str] = &["", "<\\&>", "\\1-\\2\\", "\\\\&"];

pub(super) static REPLACE_MATCHES: FunctionEntry = FunctionEntry::new(
    "replace_matches",
    Form::Letters(Function::ReplaceMatches),
    "The text with a match of a regular expression, or every match, replaced.",
)
.expensive()
.on_host()
.signatures(&[Signature::new(
    &[Text, Text, Text, Int32, Int32, Bool],
    TEXT,
    &[
        Example::with("regexp_replace({a}, '{n}', '<\\&>', 'g')", EXPRESSIONS),
        Example::with("regexp_replace({a}, '{n}', 'x', 'gi')", &["^A", "B+?|c"]),
        Example { sql: "regexp_replace({a}, '{n}', '{m}')", constants: GROUPS, more_constants: REPLACEMENTS },
        Example::with("regexp_replace({a}, '{n}', '[\\&]', 2, 2)", EXPRESSIONS),
    ],
)])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["regexp_replace"])]);

pub(super) static COUNT_MATCHES: FunctionEntry = FunctionEntry::new(
    "count_matches",
    Form::Letters(Function::CountMatches),
    "How many parts of the text match a regular expression, one behind the other.",
)
.expensive()
.on_host()
.signatures(&[Signature::new(
    &[Text, Text, Int32, Bool],
    INT32,
    &[
        Example::with("regexp_count({a}, '{n}')", EXPRESSIONS),
        Example::with("regexp_count({a}, '{n}', 2, 'i')", &["A", "b*"]),
    ],
)])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["regexp_count"])]);

pub(super) static MATCHED_PART: FunctionEntry = FunctionEntry::new(
    "matched_part",
    Form::Letters(Function::MatchedPart),
    "The part of the text that matches a regular expression, or a group of it.",
)
.nulls(NullRule::StrictAndOwn)
.expensive()
.on_host()
.signatures(&[Signature::new(
    &[Text, Text, Int32, Int32, Int32, Bool],
    TEXT,
    &[
        Example::with("regexp_substr({a}, '{n}', 1, 2)", EXPRESSIONS),
        Example::with("regexp_substr({a}, '{n}', 1, 1, 'i', 2)", GROUPS),
        Example::with("substring({a} FROM '{n}')", EXPRESSIONS),
        Example::with("(regexp_match({a}, '{n}'))[2]", GROUPS),
    ],
)])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["regexp_substr"])]);

pub(super) static MATCHED_PARTS: FunctionEntry = FunctionEntry::new(
    "matched_parts",
    Form::Letters(Function::MatchedParts),
    "The parts of the text that the groups of a regular expression match, or the one that all of it matches.",
)
.nulls(NullRule::StrictAndOwn)
.expensive()
.on_host()
.signatures(&[Signature::new(
    &[Text, Text, Bool],
    ResultType::Of(Lists),
    &[
        Example::with("regexp_match({a}, '{n}')", EXPRESSIONS),
        Example::with("regexp_match({a}, '{n}', 'i')", GROUPS),
    ],
)])
.caveats(&[Caveat::Deterministic])
.catalog(&[CatalogNames::itself(&["regexp_match"])]);
