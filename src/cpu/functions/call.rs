//! The scalar function that a call of the plan language becomes where DataFusion has no operator with
//! PostgreSQL's value.
//!
//! Imports: this file knows the functions' families and what they are made of; none of them knows it.
//!
//! Invariants: over no rows nothing is evaluated, so that a CASE branch that no row takes can't fail. Over
//! constants the result is a constant.

use std::{hash::Hash, sync::Arc};

use crate::datafusion::{
    common::ScalarValue,
    error::Result as DataFusionResult,
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};
use arrow::{
    array::{Array, ArrayRef, AsArray, new_empty_array},
    compute::take,
    datatypes::DataType as ArrowType,
};
use pystachio_engine::{CharacterCase, text_order::TextOrder, variance::VarianceForm};
use pystachio_plan::{DataType, Error, Function, Result, call_could_fail};

use super::{
    arithmetic, bits, bytes, cast, comparison, datetime, decimal, float_function, form,
    invocation::Invocation, json, json_text, lanes::internal, like, list, make_moment, matching::Matcher,
    moment_text, number_text, parse, parts::PartFinder, quotient, read_moment, read_number,
    repeated::Repeated, root, select, shown_number, text, variance, zone,
};
use crate::error::to_datafusion;

/// What a [`ScalarCall`] computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kernel {
    /// A function of the plan language. `Coalesce` evaluates all its arguments.
    Function(Function),
    /// `upper`.
    Upper(Arc<CharacterCase>),
    /// `lower`.
    Lower(Arc<CharacterCase>),
    /// `ILIKE`.
    ILike(Arc<CharacterCase>),
    /// `initcap`.
    InitCap(Arc<CharacterCase>),
    /// The key of a text in an order.
    SortKey(Arc<TextOrder>),
    /// `~` and `~*`.
    Matches(Arc<Matcher>),
    /// Functions of the parts of a text that match a regular expression.
    Parts(Arc<PartFinder>),
    /// The first argument, or NULL where the second is true.
    NullWhere,
    /// CASE: conditions and results in turn, and ELSE. All of them are evaluated.
    Select,
    /// A float with one NaN and one zero.
    NormalizeFloat,
    /// A float with one NaN, and both zeros as they are.
    NormalizeNan,
    /// The same value in another Arrow type of the same plan type.
    Align,
}

/// A scalar function of DataFusion.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ScalarCall {
    kernel: Kernel,
    name: String,
    result: DataType,
    signature: Signature,
}

/// A call of a function. Over literals it is evaluated at once, unless that fails: then it fails for the
/// first row that reaches it.
pub(super) fn call(kernel: Kernel, arguments: Vec<Expr>, result: &DataType) -> Expr {
    let function = ScalarCall::new(kernel, result.clone());
    let constants: Option<Vec<ColumnarValue>> = arguments
        .iter()
        .map(|argument| match argument {
            Expr::Literal(value, _) => Some(ColumnarValue::Scalar(value.clone())),
            _ => None,
        })
        .collect();
    if let Some(constants) = constants
        && let Ok(ColumnarValue::Scalar(value)) = function.evaluate(&constants, 1)
    {
        return Expr::Literal(value, None);
    }
    ScalarUDF::new_from_impl(function).call(arguments)
}

/// A float with one NaN and one zero.
pub(crate) fn normalize_float(value: Expr, data_type: &DataType) -> Expr {
    call(Kernel::NormalizeFloat, vec![value], data_type)
}

/// A float with one NaN, and both zeros as they are: for what hands one of its values on.
pub(super) fn normalize_nan(value: Expr, data_type: &DataType) -> Expr {
    call(Kernel::NormalizeNan, vec![value], data_type)
}

impl ScalarCall {
    fn new(kernel: Kernel, result: DataType) -> Self {
        let name = match &kernel {
            Kernel::Function(function) => format!("{function:?}").to_lowercase(),
            Kernel::Upper(_) => "upper".to_owned(),
            Kernel::Lower(_) => "lower".to_owned(),
            Kernel::ILike(_) => "ilike".to_owned(),
            Kernel::InitCap(_) => "initcap".to_owned(),
            Kernel::SortKey(_) => "sort_key".to_owned(),
            Kernel::Matches(_) => "matches".to_owned(),
            Kernel::Parts(finder) => finder.name().to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        Self { kernel, name, result, signature: Signature::variadic_any(Volatility::Immutable) }
    }

    /// Whether it could fail for some row. Its arguments are not known here, so that it may be said not to be sure.
    pub(super) fn could_fail(&self) -> bool {
        match &self.kernel {
            // A negative count is an error, and a field of number 0.
            Kernel::Function(Function::Substring | Function::SplitPart) => true,
            // A cast of their document, which may be none, is left to them.
            Kernel::Function(
                Function::JsonbPart
                | Function::JsonbPartText
                | Function::JsonType
                | Function::JsonbType
                | Function::JsonbText
                | Function::JsonbExists
                | Function::JsonbContains,
            ) => true,
            Kernel::Function(function) => call_could_fail(*function, &[], &self.result),
            // The pattern may end within an escape.
            Kernel::ILike(_) => true,
            Kernel::Upper(_)
            | Kernel::Lower(_)
            | Kernel::InitCap(_)
            | Kernel::SortKey(_)
            | Kernel::Matches(_)
            | Kernel::Parts(_)
            | Kernel::NullWhere
            | Kernel::Select
            | Kernel::NormalizeFloat
            | Kernel::NormalizeNan
            | Kernel::Align => false,
        }
    }

    /// Evaluates a function of one text column for its different values, if many rows share them.
    ///
    /// Not inlined, nor is [`Self::evaluate`]: lowering evaluates constants, and its frames are many.
    #[inline(never)]
    fn evaluate_repeated(&self, arguments: &[ColumnarValue]) -> Option<Result<ArrayRef>> {
        if !self.is_of_text() {
            return None;
        }
        let is_column = |argument: &ColumnarValue| matches!(argument, ColumnarValue::Array(_));
        let column = arguments.iter().position(is_column)?;
        let ColumnarValue::Array(array) = arguments.get(column)? else { return None };
        let is_only_one = !arguments.iter().skip(column + 1).any(is_column);
        let repeated = array.as_string_view_opt().filter(|_| is_only_one).and_then(Repeated::of)?;
        let rows = repeated.values.len();
        let mut arguments = arguments.to_vec();
        *arguments.get_mut(column)? = ColumnarValue::Array(Arc::new(repeated.values));
        let values = evaluate_kernel(&self.kernel, &Invocation::new(&arguments, rows, &self.result));
        Some(values.and_then(|values| {
            take(&values, &repeated.places, None).map_err(|error| crate::error::from_arrow(&error))
        }))
    }

    /// Whether it is a strict function of texts that costs more than telling the values of a column apart.
    fn is_of_text(&self) -> bool {
        match &self.kernel {
            Kernel::Function(function) => matches!(
                function,
                Function::Like
                    | Function::Substring
                    | Function::Concat
                    | Function::Trim(_)
                    | Function::Position
                    | Function::Replace
                    | Function::Left
                    | Function::Right
                    | Function::PadBlanks
                    | Function::PadLeft
                    | Function::PadRight
                    | Function::SplitPart
                    | Function::Translate
                    | Function::Reverse
                    | Function::Repeat
                    | Function::Overlay
                    | Function::QuoteLiteral
                    | Function::QuoteIdentifier
                    | Function::Digest(_)
                    | Function::Decode
                    | Function::ReadDate
                    | Function::ReadTimestamp
                    | Function::ReadNumber
                    | Function::ReadNumberScale
            ),
            Kernel::Upper(_)
            | Kernel::Lower(_)
            | Kernel::ILike(_)
            | Kernel::InitCap(_)
            | Kernel::SortKey(_)
            | Kernel::Parts(_)
            | Kernel::Matches(_) => true,
            _ => false,
        }
    }

    #[inline(never)]
    fn evaluate(&self, arguments: &[ColumnarValue], rows: usize) -> Result<ColumnarValue> {
        if rows == 0 {
            return Ok(ColumnarValue::Array(new_empty_array(&self.result.to_arrow())));
        }
        let constant = arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { rows };
        let array = match self.evaluate_repeated(arguments) {
            Some(array) => array?,
            None => evaluate_kernel(&self.kernel, &Invocation::new(arguments, rows, &self.result))?,
        };
        assert_eq!(array.len(), rows, "{}: rows of the result", self.name);
        if constant {
            let value = ScalarValue::try_from_array(&array, 0).map_err(|error| internal(&error))?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(array))
    }
}

impl ScalarUDFImpl for ScalarCall {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> DataFusionResult<ArrowType> {
        Ok(self.result.to_arrow())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        self.evaluate(&arguments.args, arguments.number_rows).map_err(to_datafusion)
    }
}

fn evaluate_kernel(kernel: &Kernel, call: &Invocation<'_>) -> Result<ArrayRef> {
    match kernel {
        Kernel::Function(function) => evaluate_function(*function, call),
        Kernel::Upper(case) => text::change_case(case.upper(), call),
        Kernel::Lower(case) => text::change_case(case.lower(), call),
        Kernel::ILike(case) => like::like(Some(case.lower()), call),
        Kernel::InitCap(case) => form::initial_capitals(case, call),
        Kernel::SortKey(order) => text::sort_key(order, call),
        Kernel::Matches(matcher) => matcher.matches(call),
        Kernel::Parts(finder) => finder.evaluate(call),
        Kernel::NullWhere => comparison::null_where(call),
        Kernel::Select => select::select(call),
        Kernel::NormalizeFloat => arithmetic::normalize_float(call, true),
        Kernel::NormalizeNan => arithmetic::normalize_float(call, false),
        Kernel::Align => cast::align(call),
    }
}

/// Every function of the plan language and its evaluation.
fn evaluate_function(function: Function, call: &Invocation<'_>) -> Result<ArrayRef> {
    match function {
        Function::Equal
        | Function::NotEqual
        | Function::Less
        | Function::LessEqual
        | Function::Greater
        | Function::GreaterEqual
        | Function::IsDistinctFrom
        | Function::IsNotDistinctFrom => {
            Ok(Arc::new(comparison::compare(function, call.argument(0)?, call.argument(1)?, call.rows)?))
        }
        Function::Greatest | Function::Least => comparison::choose(function == Function::Greatest, call),
        Function::Coalesce => comparison::coalesce(call),
        Function::Add
        | Function::Subtract
        | Function::Multiply
        | Function::Divide
        | Function::Modulo
        | Function::Negate
        | Function::Absolute
        | Function::Sign => match call.result {
            DataType::Decimal { .. } => decimal::evaluate(function, call),
            _ => arithmetic::evaluate(function, call),
        },
        Function::Round | Function::Truncate | Function::Ceiling | Function::Floor => match call.result {
            DataType::Decimal { .. } => decimal::evaluate_rounding(function, call),
            _ => arithmetic::evaluate_rounding(function, call),
        },
        Function::SquareRoot => arithmetic::square_root(call),
        Function::Float(function) => float_function::evaluate(function, call),
        Function::BitAnd
        | Function::BitOr
        | Function::BitXor
        | Function::BitNot
        | Function::ShiftLeft
        | Function::ShiftRight
        | Function::GreatestCommonDivisor
        | Function::LeastCommonMultiple => bits::evaluate(function, call),
        Function::DivideWhole => decimal::evaluate(function, call),
        Function::DivideDecimal => quotient::divide(call),
        Function::QuotientScale => quotient::quotient_scale(call),
        Function::DecimalRoot => root::square_root(call),
        Function::RootScale => root::root_scale(call),
        Function::Variance { sample, deviation } => {
            variance::variance(VarianceForm { sample, deviation }, call)
        }
        Function::VarianceScale { sample, deviation } => {
            variance::variance_scale(VarianceForm { sample, deviation }, call)
        }
        Function::Cast => cast::evaluate(call),
        Function::Like => like::like(None, call),
        Function::Substring => text::substring(call),
        Function::Length => text::length(call),
        Function::OctetLength => text::octet_length(call),
        Function::Concat => text::concat(call, false),
        Function::ConcatSkippingNulls => text::concat(call, true),
        Function::Trim(side) => text::trim(side, call),
        Function::Position => text::position(call),
        Function::Replace => text::replace(call),
        Function::Left => text::left(call),
        Function::Right => text::right(call),
        Function::StartsWith => text::starts_with(call),
        Function::PadBlanks => text::pad_blanks(call),
        Function::TrimBlanks => text::trim_blanks(call),
        Function::TextOfSortKey => text::text_of_sort_key(call),
        Function::PadLeft => form::pad(true, call),
        Function::PadRight => form::pad(false, call),
        Function::SplitPart => form::split_part(call),
        Function::Translate => form::translate(call),
        Function::Reverse => form::reverse(call),
        Function::Repeat => form::repeat(call),
        Function::ConcatSeparated => form::concat_separated(call),
        Function::Overlay => form::overlay(call),
        Function::QuoteLiteral => form::quote_literal(call),
        Function::QuoteIdentifier => form::quote_identifier(call),
        Function::Ascii => bytes::ascii(call),
        Function::Character => bytes::character(call),
        Function::JsonText => json_text::json_text(call),
        Function::Parse => parse::parse(call),
        Function::JsonPart => json::part(false, call),
        Function::JsonbPart => json::part(true, call),
        Function::JsonPartText => json::part_text(false, call),
        Function::JsonbPartText => json::part_text(true, call),
        Function::JsonType => json::type_name(false, call),
        Function::JsonbType => json::type_name(true, call),
        Function::JsonLength => json::array_length(false, call),
        Function::JsonbLength => json::array_length(true, call),
        Function::JsonCast => json::cast(false, call),
        Function::JsonbCast => json::cast(true, call),
        Function::JsonbText => json::text(call),
        Function::JsonbExists => json::exists(call),
        Function::JsonbContains => json::contains(call),
        Function::NumberText => shown_number::number_text(call),
        Function::ToHexadecimal => bytes::to_hexadecimal(call),
        Function::Digest(digest) => bytes::digest(digest, call),
        Function::Encode => bytes::encode(call),
        Function::Decode => bytes::decode(call),
        Function::EqualsAny => list::equals_any(call),
        Function::Cardinality => list::cardinality(call),
        Function::Element => list::element(call),
        Function::Row => list::row(call),
        Function::JoinTexts => list::join_texts(call),
        Function::PercentileCont => list::percentile_cont(call),
        Function::PercentileDisc => list::percentile_disc(call),
        Function::Mode => list::mode(call),
        Function::Extract(field) => datetime::extract(field, call),
        Function::DatePart(field) => datetime::date_part(field, call),
        Function::DateTrunc(field) => datetime::date_trunc(field, call),
        Function::AddDays => datetime::add_days(call),
        Function::SubtractDays => datetime::subtract_days(call),
        Function::DaysBetween => datetime::days_between(call),
        Function::AddInterval => datetime::add_interval(call),
        Function::TimestampDifference => datetime::timestamp_difference(call),
        Function::Span => make_moment::span(call),
        Function::MeanSpan => make_moment::mean_span(call),
        Function::DateBin => datetime::date_bin(call),
        Function::ToTimestamp => datetime::to_timestamp(call),
        Function::LocalTime => zone::local_time(call),
        Function::Instant => zone::instant(call),
        Function::MakeDate => make_moment::make_date(call),
        Function::MakeTime => make_moment::make_time(call),
        Function::MakeTimestamp => make_moment::make_timestamp(call),
        Function::MakeInterval => make_moment::make_interval(call),
        Function::IsFinite => make_moment::is_finite(call),
        Function::Age => make_moment::age(call),
        Function::AddTime => make_moment::add_time(call),
        Function::TurnTime => make_moment::turn_time(call),
        Function::FormatMoment => moment_text::format_moment(call),
        Function::ReadDate => read_moment::read_date(call),
        Function::ReadTimestamp => read_moment::read_timestamp(call),
        Function::ReadNumber => read_number::read_number(call),
        Function::ReadNumberScale => read_number::read_number_scale(call),
        Function::Justify(units) => make_moment::justify(units, call),
        Function::FormatNumber => number_text::format_number(call),
        Function::MomentText => moment_text::moment_text(call),
        Function::InstantText => moment_text::instant_text(call),
        Function::DateTruncInZone(field) => zone::date_trunc(field, call),
        // Lowered to other expressions, or to a kernel of their own.
        Function::In
        | Function::And
        | Function::Or
        | Function::Not
        | Function::IsNull
        | Function::IsNotNull
        | Function::IsTrue
        | Function::IsNotTrue
        | Function::IsFalse
        | Function::IsNotFalse
        | Function::NullIf
        | Function::Upper(_)
        | Function::SortKey(_)
        | Function::Lower(_)
        | Function::InitCap(_)
        | Function::Matches(_)
        | Function::MatchesIgnoringCase(_)
        | Function::ReplaceMatches(_)
        | Function::CountMatches(_)
        | Function::MatchedPart(_)
        | Function::MatchedParts(_)
        | Function::ILike(_) => Err(Error::internal(format!("{function:?} is not evaluated as a call"))),
    }
}
