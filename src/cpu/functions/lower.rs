//! Plan expressions become DataFusion expressions.

use std::{cell::Cell, sync::Arc};

use crate::datafusion::{
    common::{Column, ScalarValue},
    logical_expr::{Cast, Expr, Like},
};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType as ArrowType, IntervalMonthDayNano, i256};
use pystachio_engine::CharacterCase;
use pystachio_plan::{Ctype, DataType, Error, ErrorKind, Expression, Function, Literal, Result, Value};

use super::{
    LoweringInput, bound,
    call::{Kernel, call},
    conditional, like,
};

/// How deep expressions may nest. Lowering and evaluation recurse; this fits a thread's stack.
const DEPTH_MAX: u32 = 1_000;
const MICROSECOND_NANOSECONDS: i64 = 1_000;

/// The expression; see [`super::lower_expression`].
///
/// # Errors
///
/// `NotSupported`, and `Internal` for a plan that contradicts itself.
pub(super) fn lower(expression: &Expression, input: &LoweringInput<'_>) -> Result<Expr> {
    let _depth = Depth::enter()?;
    match expression {
        Expression::Column { id, .. } => Ok(Expr::Column(Column::new_unqualified(crate::column_name(*id)))),
        Expression::Literal(_) | Expression::Parameter { .. } => {
            let value = scalar(constant(expression, input)?.ok_or_else(|| Error::internal("no constant"))?)?;
            Ok(Expr::Literal(value, None))
        }
        Expression::Call { function, arguments, data_type } => {
            lower_call(*function, arguments, data_type, input)
        }
        Expression::Case { branches, otherwise, data_type } => {
            conditional::lower_case(branches, otherwise.as_deref(), data_type, input)
        }
    }
}

/// The expression in the Arrow type of `data_type`, which is its own type but for precision.
///
/// # Errors
///
/// As of [`lower`].
pub(super) fn lower_aligned(
    expression: &Expression,
    data_type: &DataType,
    input: &LoweringInput<'_>,
) -> Result<Expr> {
    let lowered = lower(expression, input)?;
    let target = data_type.to_arrow();
    let actual = arrow_type(expression, input)?;
    if actual == target {
        return Ok(lowered);
    }
    if let (Expr::Literal(value, _), true) = (&lowered, is_null(expression, input)?) {
        debug_assert!(value.is_null());
        let null = ScalarValue::try_from(&target).map_err(|error| crate::error::from_datafusion(&error))?;
        return Ok(Expr::Literal(null, None));
    }
    Ok(call(Kernel::Align, vec![lowered], data_type))
}

/// The literal that an expression is, or the value of the parameter that it is.
///
/// # Errors
///
/// `Internal` for a parameter without a value.
pub(super) fn constant<'e>(
    expression: &'e Expression,
    input: &'e LoweringInput<'_>,
) -> Result<Option<&'e Literal>> {
    match expression {
        Expression::Literal(literal) => Ok(Some(literal)),
        Expression::Parameter { index, .. } => match input.parameters.get(*index as usize) {
            Some(literal) => Ok(Some(literal)),
            None => Err(Error::internal(format!(
                "parameter {index} has no value: the query has {} parameters",
                input.parameters.len()
            ))),
        },
        _ => Ok(None),
    }
}

/// The Arrow type of the lowered expression.
///
/// # Errors
///
/// `Internal` for a column that the input does not have.
pub(super) fn arrow_type(expression: &Expression, input: &LoweringInput<'_>) -> Result<ArrowType> {
    if let Expression::Column { id, .. } = expression {
        let name = crate::column_name(*id);
        return match input.schema.field_with_name(&name) {
            Ok(field) => Ok(field.data_type().clone()),
            Err(_) => Err(Error::internal(format!("the input has no column {name}"))),
        };
    }
    match constant(expression, input)? {
        Some(literal) => Ok(literal.data_type.to_arrow()),
        None => Ok(expression.data_type().to_arrow()),
    }
}

/// The literal as DataFusion's.
///
/// # Errors
///
/// `Internal` if the value is not one of its type, `NotSupported` for arrays.
pub(super) fn scalar(literal: &Literal) -> Result<ScalarValue> {
    let mismatch =
        || Error::internal(format!("{:?} is not a value of type {}", literal.value, literal.data_type));
    let arrow = literal.data_type.to_arrow();
    Ok(match (&literal.value, &literal.data_type) {
        (Value::Null, _) => {
            ScalarValue::try_from(&arrow).map_err(|error| crate::error::from_datafusion(&error))?
        }
        (_, DataType::List(_)) => {
            return Err(Error::new(ErrorKind::NotSupported, "a constant array is not supported here"));
        }
        (Value::Bool(value), DataType::Bool) => ScalarValue::Boolean(Some(*value)),
        (Value::Int(value), _) => {
            integer_scalar(&arrow, i256::from_i128((*value).into())).ok_or_else(mismatch)?
        }
        (Value::Float(value), DataType::Float32) => ScalarValue::Float32(Some(*value as f32)),
        (Value::Float(value), DataType::Float64) => ScalarValue::Float64(Some(*value)),
        (Value::Decimal(value), DataType::Decimal { .. }) => {
            integer_scalar(&arrow, i256::from_i128(*value)).ok_or_else(mismatch)?
        }
        (Value::Text(value), DataType::Text) => ScalarValue::Utf8View(Some(value.clone())),
        (Value::Bytes(value), DataType::Bytea) => ScalarValue::BinaryView(Some(value.clone())),
        (Value::Bytes(value), DataType::Uuid) if value.len() == 16 => {
            ScalarValue::FixedSizeBinary(16, Some(value.clone()))
        }
        (Value::Interval(value), DataType::Interval) => {
            let nanoseconds = value.microseconds.checked_mul(MICROSECOND_NANOSECONDS).ok_or_else(|| {
                Error::new(
                    ErrorKind::DatetimeOutOfRange,
                    format!("interval out of range: {} microseconds", value.microseconds),
                )
            })?;
            let interval = IntervalMonthDayNano::new(value.months, value.days, nanoseconds);
            ScalarValue::IntervalMonthDayNano(Some(interval))
        }
        _ => return Err(mismatch()),
    })
}

/// A value of an Arrow type that is stored as an integer; `None` if it does not fit or is not such a type.
pub(super) fn integer_scalar(arrow: &ArrowType, value: i256) -> Option<ScalarValue> {
    use arrow::datatypes::TimeUnit::Microsecond;
    let narrow = value.to_i128();
    let long = narrow.and_then(|value| i64::try_from(value).ok());
    Some(match arrow {
        ArrowType::Int16 => ScalarValue::Int16(Some(i16::try_from(narrow?).ok()?)),
        ArrowType::Int32 => ScalarValue::Int32(Some(i32::try_from(narrow?).ok()?)),
        ArrowType::Int64 => ScalarValue::Int64(Some(long?)),
        ArrowType::Date32 => ScalarValue::Date32(Some(i32::try_from(narrow?).ok()?)),
        ArrowType::Time64(Microsecond) => ScalarValue::Time64Microsecond(Some(long?)),
        ArrowType::Timestamp(Microsecond, zone) => {
            ScalarValue::TimestampMicrosecond(Some(long?), zone.clone())
        }
        ArrowType::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(narrow?), *precision, *scale),
        ArrowType::Decimal256(precision, scale) => ScalarValue::Decimal256(Some(value), *precision, *scale),
        _ => return None,
    })
}

fn is_null(expression: &Expression, input: &LoweringInput<'_>) -> Result<bool> {
    Ok(constant(expression, input)?.is_some_and(|literal| literal.value == Value::Null))
}

fn lower_call(
    function: Function,
    arguments: &[Expression],
    data_type: &DataType,
    input: &LoweringInput<'_>,
) -> Result<Expr> {
    let first = || arguments.first().ok_or_else(|| missing(function));
    let second = || arguments.get(1).ok_or_else(|| missing(function));
    let boxed = || Ok::<_, Error>(Box::new(lower(first()?, input)?));
    match function {
        Function::And => conditional::lower_and(arguments, input),
        Function::Or => conditional::lower_or(arguments, input),
        Function::Not => Ok(Expr::Not(boxed()?)),
        Function::IsNull => Ok(Expr::IsNull(boxed()?)),
        Function::IsNotNull => Ok(Expr::IsNotNull(boxed()?)),
        Function::IsTrue => Ok(Expr::IsTrue(boxed()?)),
        Function::IsNotTrue => Ok(Expr::IsNotTrue(boxed()?)),
        Function::IsFalse => Ok(Expr::IsFalse(boxed()?)),
        Function::IsNotFalse => Ok(Expr::IsNotFalse(boxed()?)),
        Function::Coalesce => conditional::lower_coalesce(arguments, data_type, input),
        Function::NullIf => {
            let value = lower_aligned(first()?, data_type, input)?;
            let equal = bound::lower_comparison(Function::Equal, first()?, second()?, input)?;
            Ok(call(Kernel::NullWhere, vec![value, equal], data_type))
        }
        Function::Greatest | Function::Least => {
            let arguments = arguments
                .iter()
                .map(|argument| lower_aligned(argument, data_type, input))
                .collect::<Result<Vec<Expr>>>()?;
            Ok(call(Kernel::Function(function), arguments, data_type))
        }
        Function::Equal
        | Function::NotEqual
        | Function::Less
        | Function::LessEqual
        | Function::Greater
        | Function::GreaterEqual
        | Function::IsDistinctFrom
        | Function::IsNotDistinctFrom => bound::lower_comparison(function, first()?, second()?, input),
        Function::In => bound::lower_in(arguments, input),
        Function::Like => lower_like(first()?, second()?, input),
        Function::Upper(ctype) => with_letters(Kernel::Upper, ctype, arguments, data_type, input),
        Function::Lower(ctype) => with_letters(Kernel::Lower, ctype, arguments, data_type, input),
        Function::ILike(ctype) => with_letters(Kernel::ILike, ctype, arguments, data_type, input),
        Function::Cast => lower_cast(first()?, data_type, input),
        _ => {
            let arguments =
                arguments.iter().map(|argument| lower(argument, input)).collect::<Result<Vec<Expr>>>()?;
            Ok(call(Kernel::Function(function), arguments, data_type))
        }
    }
}

fn lower_like(text: &Expression, pattern: &Expression, input: &LoweringInput<'_>) -> Result<Expr> {
    let lowered = lower(text, input)?;
    if let Some(Literal { value: Value::Text(literal), .. }) = constant(pattern, input)?
        && like::is_simple_pattern(literal)
        && let Some(literal) = bound::text_scalar(&arrow_type(text, input)?, literal)
    {
        let literal = Box::new(Expr::Literal(literal, None));
        return Ok(Expr::Like(Like::new(false, Box::new(lowered), literal, None, false)));
    }
    let pattern = lower(pattern, input)?;
    Ok(call(Kernel::Function(Function::Like), vec![lowered, pattern], &DataType::Bool))
}

/// A function whose letters are those of a ctype.
fn with_letters(
    kernel: impl FnOnce(Arc<CharacterCase>) -> Kernel,
    ctype: Ctype,
    arguments: &[Expression],
    data_type: &DataType,
    input: &LoweringInput<'_>,
) -> Result<Expr> {
    let arguments = arguments.iter().map(|argument| lower(argument, input)).collect::<Result<Vec<Expr>>>()?;
    Ok(call(kernel(CharacterCase::of(ctype)?), arguments, data_type))
}

fn lower_cast(value: &Expression, data_type: &DataType, input: &LoweringInput<'_>) -> Result<Expr> {
    if value.data_type() == data_type {
        return lower_aligned(value, data_type, input);
    }
    let lowered = lower(value, input)?;
    match (value.data_type(), data_type) {
        // Widening can't fail, and DataFusion's pruning knows its own cast.
        (DataType::Int16, DataType::Int32 | DataType::Int64) | (DataType::Int32, DataType::Int64)
            if !matches!(lowered, Expr::Literal(..)) =>
        {
            Ok(Expr::Cast(Cast::new(Box::new(lowered), data_type.to_arrow())))
        }
        _ => Ok(call(Kernel::Function(Function::Cast), vec![lowered], data_type)),
    }
}

fn missing(function: Function) -> Error {
    Error::internal(format!("{function:?} has too few arguments"))
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Counts how deep the lowering of an expression is.
struct Depth;

impl Depth {
    fn enter() -> Result<Self> {
        let depth = DEPTH.get() + 1;
        if depth > DEPTH_MAX {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("expression nests too deep: more than {DEPTH_MAX} levels"),
            )
            .with_hint("Split the expression, for example over subqueries."));
        }
        DEPTH.set(depth);
        Ok(Self)
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

const _: () = assert!(DECIMAL128_MAX_PRECISION == 38);
