//! The registry of functions: one entry for each function of the plan language, which planner, engines, EXPLAIN, the files of
//! cases and the differential tests read; `pystachio.functions()` shows them.
//!
//! ```text
//! Function ── entry() ──► FunctionEntry: name, signatures, NULL rule, failure, cost, how it is shown,
//!                          its names in pg_catalog, SQL by which it is tried
//! ```
//!
//! - `signature.rs`: what a function takes and gives, by classes of types
//! - `name.rs`: names of functions with their parameters; `catalog.rs`: PostgreSQL's names
//! - `array.rs`, `comparison.rs`, `logic.rs`, `arithmetic.rs`, `bits.rs`, `decimal.rs`, `float.rs`, `cast.rs`, `text.rs`, `matching.rs`,
//!   `form.rs`, `json.rs`, `bytes.rs`, `datetime.rs`, `moment.rs`, `statistics.rs`: the entries by family
//!
//! Invariants: an entry is data and pure functions. What [`Function::is_strict`] and [`crate::call_could_fail`] say is in no
//! other place. Every signature without arrays has cases of PostgreSQL's (`src/cases`), and both engines are tested on all of them. How a
//! function is evaluated is a table of each engine's (`src/cpu/functions`, `src/gpu/program/compile`), which the compiler keeps
//! complete.
//!
//! Deliberately absent: engines, and what is PostgreSQL's alone: collations, oids. Whether a caveat holds is checked in `src/lower`.

mod arithmetic;
mod array;
mod bits;
mod bytes;
mod cast;
mod catalog;
mod comparison;
mod datetime;
mod decimal;
mod float;
mod form;
mod json;
mod logic;
mod matching;
mod moment;
mod name;
mod signature;
mod statistics;
mod text;

use crate::{
    Collator, Ctype, DataType, DateField, Digest, Expression, FloatFunction, Function, Justified, LocaleName,
    TrimSide,
};

pub use catalog::{CatalogNames, CatalogUse, function_of_catalog};
pub use name::function_of_name;
pub use signature::{Example, ResultType, Signature, TypeClass};

/// All that is known of a function but its evaluation.
#[derive(Clone, Copy, Debug)]
pub struct FunctionEntry {
    /// Its name in files of cases, errors and EXPLAIN.
    pub name: &'static str,
    /// The functions that the entry is of.
    pub form: Form,
    /// What it gives, in a sentence.
    pub meaning: &'static str,
    /// When its result is NULL.
    pub nulls: NullRule,
    /// When it could fail for some row.
    pub failure: FailureRule,
    /// Whether it costs more than the skipping of rows that do not need it.
    pub is_expensive: bool,
    /// Whether a device computes it for the GPU engine, and not the host.
    pub is_on_device: bool,
    /// How EXPLAIN shows a call.
    pub shown: Shown,
    /// What it takes and gives.
    pub signatures: &'static [Signature],
    /// The functions in `pg_catalog` that mean it, operators' functions among them.
    pub catalog: &'static [CatalogNames],
    /// Under which conditions they do. What is compared must be comparable, and a field or letters must be known, besides.
    pub caveats: &'static [Caveat],
}

/// A condition under which a function of PostgreSQL means one of the plan language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// Equal text has equal bytes under the call's collation.
    Deterministic,
    /// Arguments of type `character` are padded, as their blanks count.
    KeepsBlanks,
    /// Timestamps are not so far away that PostgreSQL, which counts from 2000, fails for others than the engines.
    Distance,
    /// An argument is a time zone, in calls of so many arguments.
    TimeZone {
        /// Its place.
        place: usize,
        /// The number of arguments.
        of: usize,
    },
}

/// A function, or how it is made of its parameter.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Without a parameter.
    Plain(Function),
    /// With a field of a date or time.
    Field(fn(DateField) -> Function),
    /// With an end of a text.
    Side(fn(TrimSide) -> Function),
    /// With the letters that there are.
    Letters(fn(Ctype) -> Function),
    /// With an order of texts.
    Order(fn(Collator) -> Function),
    /// With whether it is of a sample, and whether it is a deviation.
    Moments(fn(bool, bool) -> Function),
}

/// When a function's result is NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullRule {
    /// Where an argument is, and nowhere else.
    Strict,
    /// Where an argument is, and in places where none is.
    StrictAndOwn,
    /// Nowhere.
    Never,
    /// Where all arguments are.
    AllNull,
    /// In some of the places where an argument is.
    SomeNull,
    /// By a rule that arguments' NULLs do not tell.
    Own,
}

/// Whether a call could fail for some row, its arguments aside.
#[derive(Clone, Copy, Debug)]
pub enum FailureRule {
    /// For none.
    Never,
    /// As far as types and constants tell.
    Always,
    /// As the arguments and the result's type say.
    Depends(fn(&[Expression], &DataType) -> bool),
}

/// How EXPLAIN shows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// `name(a, b)`.
    Call,
    /// `(a operator b)`.
    Infix(&'static str),
    /// `(a words)`.
    Postfix(&'static str),
    /// `(word a)`.
    Prefix(&'static str),
    /// `(a IN (b, c))`, `(a = ANY ($1))`.
    List,
    /// `(a = ANY (b))`.
    Any,
    /// `a[b]`.
    Subscript,
    /// `(a / b)`, without the third argument.
    Quotient,
    /// `(a)::type`.
    Cast,
    /// The same of the first argument alone.
    CastOfFirst,
    /// `name(field FROM a)`.
    FieldFrom,
    /// `name(field, a)`.
    Field,
    /// `btrim(a, b)`, by the end.
    Trim,
}

macro_rules! entries {
    ($($pattern:pat => $entry:path,)*) => {
        impl Function {
            /// All that is known of the function but its evaluation.
            pub fn entry(&self) -> &'static FunctionEntry {
                match self { $($pattern => &$entry,)* }
            }
        }

        /// Every entry once, by family.
        pub static FUNCTIONS: &[&FunctionEntry] = &[$(&$entry),*];
    };
}

entries! {
    Function::Equal => comparison::EQUAL,
    Function::NotEqual => comparison::NOT_EQUAL,
    Function::Less => comparison::LESS,
    Function::LessEqual => comparison::LESS_EQUAL,
    Function::Greater => comparison::GREATER,
    Function::GreaterEqual => comparison::GREATER_EQUAL,
    Function::IsDistinctFrom => comparison::IS_DISTINCT_FROM,
    Function::IsNotDistinctFrom => comparison::IS_NOT_DISTINCT_FROM,
    Function::In => comparison::IN,
    Function::And => logic::AND,
    Function::Or => logic::OR,
    Function::Not => logic::NOT,
    Function::IsNull => logic::IS_NULL,
    Function::IsNotNull => logic::IS_NOT_NULL,
    Function::IsTrue => logic::IS_TRUE,
    Function::IsNotTrue => logic::IS_NOT_TRUE,
    Function::IsFalse => logic::IS_FALSE,
    Function::IsNotFalse => logic::IS_NOT_FALSE,
    Function::Coalesce => logic::COALESCE,
    Function::NullIf => logic::NULL_IF,
    Function::Greatest => logic::GREATEST,
    Function::Least => logic::LEAST,
    Function::Add => arithmetic::ADD,
    Function::Subtract => arithmetic::SUBTRACT,
    Function::Multiply => arithmetic::MULTIPLY,
    Function::Divide => arithmetic::DIVIDE,
    Function::Modulo => arithmetic::MODULO,
    Function::Negate => arithmetic::NEGATE,
    Function::Absolute => arithmetic::ABSOLUTE,
    Function::Sign => arithmetic::SIGN,
    Function::Round => arithmetic::ROUND,
    Function::Truncate => arithmetic::TRUNCATE,
    Function::Ceiling => arithmetic::CEILING,
    Function::Floor => arithmetic::FLOOR,
    Function::SquareRoot => arithmetic::SQUARE_ROOT,
    Function::Float(FloatFunction::CubeRoot) => float::CUBE_ROOT,
    Function::Float(FloatFunction::Exponential) => float::EXPONENTIAL,
    Function::Float(FloatFunction::NaturalLogarithm) => float::NATURAL_LOGARITHM,
    Function::Float(FloatFunction::DecimalLogarithm) => float::DECIMAL_LOGARITHM,
    Function::Float(FloatFunction::Power) => float::POWER,
    Function::Float(FloatFunction::Sine) => float::SINE,
    Function::Float(FloatFunction::Cosine) => float::COSINE,
    Function::Float(FloatFunction::Tangent) => float::TANGENT,
    Function::Float(FloatFunction::Cotangent) => float::COTANGENT,
    Function::Float(FloatFunction::ArcSine) => float::ARC_SINE,
    Function::Float(FloatFunction::ArcCosine) => float::ARC_COSINE,
    Function::Float(FloatFunction::ArcTangent) => float::ARC_TANGENT,
    Function::Float(FloatFunction::ArcTangentOfQuotient) => float::ARC_TANGENT_OF_QUOTIENT,
    Function::Float(FloatFunction::HyperbolicSine) => float::HYPERBOLIC_SINE,
    Function::Float(FloatFunction::HyperbolicCosine) => float::HYPERBOLIC_COSINE,
    Function::Float(FloatFunction::HyperbolicTangent) => float::HYPERBOLIC_TANGENT,
    Function::Float(FloatFunction::HyperbolicArcSine) => float::HYPERBOLIC_ARC_SINE,
    Function::Float(FloatFunction::HyperbolicArcCosine) => float::HYPERBOLIC_ARC_COSINE,
    Function::Float(FloatFunction::HyperbolicArcTangent) => float::HYPERBOLIC_ARC_TANGENT,
    Function::Float(FloatFunction::Degrees) => float::DEGREES,
    Function::Float(FloatFunction::Radians) => float::RADIANS,
    Function::BitAnd => bits::BIT_AND,
    Function::BitOr => bits::BIT_OR,
    Function::BitXor => bits::BIT_XOR,
    Function::BitNot => bits::BIT_NOT,
    Function::ShiftLeft => bits::SHIFT_LEFT,
    Function::ShiftRight => bits::SHIFT_RIGHT,
    Function::GreatestCommonDivisor => bits::GREATEST_COMMON_DIVISOR,
    Function::LeastCommonMultiple => bits::LEAST_COMMON_MULTIPLE,
    Function::DivideWhole => decimal::DIVIDE_WHOLE,
    Function::DivideDecimal => decimal::DIVIDE_DECIMAL,
    Function::QuotientScale => decimal::QUOTIENT_SCALE,
    Function::DecimalRoot => decimal::DECIMAL_ROOT,
    Function::RootScale => decimal::ROOT_SCALE,
    Function::Cast => cast::CAST,
    Function::Like => text::LIKE,
    Function::ILike(_) => text::ILIKE,
    Function::Matches(_) => matching::MATCHES,
    Function::MatchesIgnoringCase(_) => matching::MATCHES_IGNORING_CASE,
    Function::ReplaceMatches(_) => matching::REPLACE_MATCHES,
    Function::CountMatches(_) => matching::COUNT_MATCHES,
    Function::MatchedPart(_) => matching::MATCHED_PART,
    Function::MatchedParts(_) => matching::MATCHED_PARTS,
    Function::Substring => text::SUBSTRING,
    Function::Length => text::LENGTH,
    Function::OctetLength => text::OCTET_LENGTH,
    Function::Upper(_) => text::UPPER,
    Function::Lower(_) => text::LOWER,
    Function::Concat => text::CONCAT,
    Function::ConcatSkippingNulls => text::CONCAT_SKIPPING_NULLS,
    Function::Trim(_) => text::TRIM,
    Function::Position => text::POSITION,
    Function::Replace => text::REPLACE,
    Function::Left => text::LEFT,
    Function::Right => text::RIGHT,
    Function::StartsWith => text::STARTS_WITH,
    Function::PadBlanks => text::PAD_BLANKS,
    Function::TrimBlanks => text::TRIM_BLANKS,
    Function::SortKey(_) => text::SORT_KEY,
    Function::TextOfSortKey => text::TEXT_OF_SORT_KEY,
    Function::PadLeft => form::PAD_LEFT,
    Function::PadRight => form::PAD_RIGHT,
    Function::SplitPart => form::SPLIT_PART,
    Function::Translate => form::TRANSLATE,
    Function::Reverse => form::REVERSE,
    Function::Repeat => form::REPEAT,
    Function::InitCap(_) => form::INIT_CAP,
    Function::Ascii => bytes::ASCII,
    Function::Character => bytes::CHARACTER,
    Function::ConcatSeparated => form::CONCAT_SEPARATED,
    Function::Overlay => form::OVERLAY,
    Function::QuoteLiteral => form::QUOTE_LITERAL,
    Function::QuoteIdentifier => form::QUOTE_IDENTIFIER,
    Function::JsonText => json::JSON_TEXT,
    Function::Parse => cast::PARSE,
    Function::JsonPart => json::JSON_PART,
    Function::JsonbPart => json::JSONB_PART,
    Function::JsonPartText => json::JSON_PART_TEXT,
    Function::JsonbPartText => json::JSONB_PART_TEXT,
    Function::JsonType => json::JSON_TYPE,
    Function::JsonbType => json::JSONB_TYPE,
    Function::JsonLength => json::JSON_LENGTH,
    Function::JsonbLength => json::JSONB_LENGTH,
    Function::JsonCast => json::JSON_CAST,
    Function::JsonbCast => json::JSONB_CAST,
    Function::JsonbText => json::JSONB_TEXT,
    Function::JsonbExists => json::JSONB_EXISTS,
    Function::JsonbContains => json::JSONB_CONTAINS,
    Function::NumberText => json::NUMBER_TEXT,
    Function::ToHexadecimal => bytes::TO_HEXADECIMAL,
    Function::Digest(Digest::Md5) => bytes::MD5,
    Function::Digest(Digest::Sha224) => bytes::SHA224,
    Function::Digest(Digest::Sha256) => bytes::SHA256,
    Function::Digest(Digest::Sha384) => bytes::SHA384,
    Function::Digest(Digest::Sha512) => bytes::SHA512,
    Function::Encode => bytes::ENCODE,
    Function::Decode => bytes::DECODE,
    Function::EqualsAny => array::EQUALS_ANY,
    Function::Cardinality => array::CARDINALITY,
    Function::Element => array::ELEMENT,
    Function::Row => array::ROW,
    Function::JoinTexts => array::JOIN_TEXTS,
    Function::PercentileCont => array::PERCENTILE_CONT,
    Function::PercentileDisc => array::PERCENTILE_DISC,
    Function::Mode => array::MODE,
    Function::Extract(_) => datetime::EXTRACT,
    Function::DatePart(_) => datetime::DATE_PART,
    Function::DateTrunc(_) => datetime::DATE_TRUNC,
    Function::AddDays => datetime::ADD_DAYS,
    Function::SubtractDays => datetime::SUBTRACT_DAYS,
    Function::DaysBetween => datetime::DAYS_BETWEEN,
    Function::AddInterval => datetime::ADD_INTERVAL,
    Function::TimestampDifference => datetime::TIMESTAMP_DIFFERENCE,
    Function::Span => moment::SPAN,
    Function::MeanSpan => moment::MEAN_SPAN,
    Function::DateBin => datetime::DATE_BIN,
    Function::ToTimestamp => datetime::TO_TIMESTAMP,
    Function::LocalTime => datetime::LOCAL_TIME,
    Function::Instant => datetime::INSTANT,
    Function::MakeDate => moment::MAKE_DATE,
    Function::MakeTime => moment::MAKE_TIME,
    Function::MakeTimestamp => moment::MAKE_TIMESTAMP,
    Function::MakeInterval => moment::MAKE_INTERVAL,
    Function::IsFinite => moment::IS_FINITE,
    Function::Age => moment::AGE,
    Function::AddTime => moment::ADD_TIME,
    Function::TurnTime => moment::TURN_TIME,
    Function::FormatMoment => moment::FORMAT_MOMENT,
    Function::ReadDate => moment::READ_DATE,
    Function::ReadTimestamp => moment::READ_TIMESTAMP,
    Function::FormatNumber => form::FORMAT_NUMBER,
    Function::ReadNumber => moment::READ_NUMBER,
    Function::ReadNumberScale => moment::READ_NUMBER_SCALE,
    Function::Justify(Justified::Hours) => moment::JUSTIFY_HOURS,
    Function::Justify(Justified::Days) => moment::JUSTIFY_DAYS,
    Function::Justify(Justified::All) => moment::JUSTIFY_INTERVAL,
    Function::MomentText => moment::MOMENT_TEXT,
    Function::InstantText => moment::INSTANT_TEXT,
    Function::DateTruncInZone(_) => datetime::DATE_TRUNC_IN_ZONE,
    Function::Variance { .. } => statistics::VARIANCE,
    Function::VarianceScale { .. } => statistics::VARIANCE_SCALE,
}

impl Function {
    /// Whether a NULL argument makes the result NULL.
    pub fn is_strict(&self) -> bool {
        matches!(self.entry().nulls, NullRule::Strict | NullRule::StrictAndOwn)
    }
}

impl Form {
    /// A function of the form, whatever its parameter.
    pub fn any(&self) -> Function {
        match self {
            Self::Plain(function) => *function,
            Self::Field(make) => make(DateField::Second),
            Self::Side(make) => make(TrimSide::Both),
            Self::Letters(make) => make(Ctype::Ascii),
            Self::Order(make) => make(Collator::Libc(LocaleName::C_UTF8)),
            Self::Moments(make) => make(true, false),
        }
    }
}

impl FunctionEntry {
    /// A strict function that never fails, costs little, and that nothing in `pg_catalog` means.
    const fn new(name: &'static str, form: Form, meaning: &'static str) -> Self {
        Self {
            name,
            form,
            meaning,
            nulls: NullRule::Strict,
            failure: FailureRule::Never,
            is_expensive: false,
            is_on_device: true,
            shown: Shown::Call,
            signatures: &[],
            catalog: &[],
            caveats: &[],
        }
    }

    const fn nulls(mut self, nulls: NullRule) -> Self {
        self.nulls = nulls;
        self
    }

    const fn failure(mut self, failure: FailureRule) -> Self {
        self.failure = failure;
        self
    }

    const fn expensive(mut self) -> Self {
        self.is_expensive = true;
        self
    }

    const fn on_host(mut self) -> Self {
        self.is_on_device = false;
        self
    }

    const fn shown(mut self, shown: Shown) -> Self {
        self.shown = shown;
        self
    }

    const fn signatures(mut self, signatures: &'static [Signature]) -> Self {
        self.signatures = signatures;
        self
    }

    const fn catalog(mut self, catalog: &'static [CatalogNames]) -> Self {
        self.catalog = catalog;
        self
    }

    const fn caveats(mut self, caveats: &'static [Caveat]) -> Self {
        self.caveats = caveats;
        self
    }
}

impl NullRule {
    /// The rule in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::StrictAndOwn => "if an argument is, and for some values",
            Self::Never => "never",
            Self::AllNull => "if all arguments are",
            Self::SomeNull => "only if an argument is",
            Self::Own => "for some values",
        }
    }
}

impl FailureRule {
    /// The rule in words.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "for some values",
            Self::Depends(_) => "for some values of some types",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_form_is_of_its_entry_and_names_are_unique() {
        let mut names = BTreeSet::new();
        for entry in FUNCTIONS {
            assert_eq!(entry.form.any().entry().name, entry.name);
            assert!(names.insert(entry.name), "{} twice", entry.name);
            assert!(!entry.signatures.is_empty(), "{} takes nothing", entry.name);
            assert!(entry.meaning.ends_with('.'), "{}", entry.name);
        }
    }

    #[test]
    fn examples_have_a_column_for_each_placeholder() {
        for entry in FUNCTIONS {
            for signature in entry.signatures {
                for example in signature.examples {
                    assert!(example.sql.contains("{a}"), "{}", example.sql);
                    assert_eq!(example.sql.contains("{n}"), !example.constants.is_empty(), "{}", example.sql);
                    assert_eq!(
                        example.sql.contains("{m}"),
                        !example.more_constants.is_empty(),
                        "{}",
                        example.sql
                    );
                    let has_two = signature.arguments.len() > 1 || signature.is_variadic;
                    assert!(!example.sql.contains("{b}") || has_two, "{}", example.sql);
                }
            }
        }
    }
}
