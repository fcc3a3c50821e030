//! Comparisons: native operators wherever their result is PostgreSQL's, and with a constant always in the
//! type of the other side, so that pruning and dynamic filters can use them.
//!
//! A number is compared in units of the column: `price < 0.125` with two digits after the point is
//! `price <= 0.12`, a cast of a date to a timestamp compared with a timestamp is a comparison of the date,
//! and so on. What no value of the column can equal becomes a comparison with the column type's greatest
//! value, which is false or true for every value and NULL for NULL.

use crate::datafusion::{
    common::ScalarValue,
    logical_expr::{
        Expr, Operator,
        expr::InList,
        expr_fn::{binary_expr, or},
    },
};
use arrow::datatypes::{DataType as ArrowType, i256};
use pystachio_plan::{DataType, Error, ErrorKind, Expression, Function, Literal, Result, Value};

use super::{
    LoweringInput,
    calendar::DAY_MICROSECONDS,
    call::{Kernel, call},
    digits::Digits,
    failure::may_fail,
    scalars::{integer_scalar, scalar, text_scalar},
};

/// A list of so many texts is compared text by text, which costs less than to hash each value.
const COMPARED_TEXTS_MAX: usize = 4;

impl LoweringInput<'_> {
    /// A comparison of two expressions.
    ///
    /// # Errors
    ///
    /// `NotSupported` if the types can't be compared.
    pub(super) fn lower_comparison(
        &self,
        function: Function,
        a: &Expression,
        b: &Expression,
    ) -> Result<Expr> {
        match (self.constant(a)?, self.constant(b)?) {
            (None, Some(literal)) => self.compare_with_constant(function, a, literal, b),
            (Some(literal), None) => self.compare_with_constant(mirror(function), b, literal, a),
            _ => self.compare_expressions(function, a, b),
        }
    }

    /// `x IN (…)`.
    ///
    /// # Errors
    ///
    /// As of [`Self::lower_comparison`].
    pub(super) fn lower_in(&self, arguments: &[Expression]) -> Result<Expr> {
        let (value, items) = arguments.split_first().ok_or_else(|| Error::internal("IN has no arguments"))?;
        let literals =
            items.iter().map(|item| self.constant(item)).collect::<Result<Option<Vec<&Literal>>>>()?;
        let native = !value.data_type().is_float() && *value.data_type() != DataType::Interval;
        let (Some(literals), true, true) = (literals, native, items.len() > 1) else {
            let equal =
                |item: &Expression| Expression::predicate(Function::Equal, vec![value.clone(), item.clone()]);
            return self.lower_or(&items.iter().map(equal).collect::<Vec<_>>());
        };
        self.lower_in_literals(value, &literals)
    }

    fn lower_in_literals(&self, value: &Expression, literals: &[&Literal]) -> Result<Expr> {
        let mut list = Vec::with_capacity(literals.len());
        let mut has_null = false;
        let mut lane = None;
        for literal in literals {
            if literal.value == Value::Null {
                has_null = true;
            } else if let Some(bounded) = Bounded::new(value, literal, self)? {
                if bounded.exact
                    && let Some(item) = integer_scalar(&bounded.arrow, bounded.floor)
                {
                    list.push(item);
                }
                lane = Some((bounded.inner, bounded.arrow));
            } else {
                let arrow = self.arrow_type(value)?;
                list.push(typed_scalar(&arrow, literal)?);
                lane = Some((value, arrow));
            }
        }
        let null = || Expr::Literal(ScalarValue::Boolean(None), None);
        let Some((inner, arrow)) = lane else { return Ok(null()) };
        let lowered = self.lower(inner)?;
        if list.is_empty() {
            return if has_null { Ok(null()) } else { always(lowered, &arrow, false) };
        }
        let mut list: Vec<Expr> = list.into_iter().map(|item| Expr::Literal(item, None)).collect();
        if has_null {
            let null =
                ScalarValue::try_from(&arrow).map_err(|error| crate::error::from_datafusion(&error))?;
            list.push(Expr::Literal(null, None));
        }
        let is_text = matches!(arrow, ArrowType::Utf8View | ArrowType::BinaryView);
        if is_text && matches!(lowered, Expr::Column(_)) && list.len() <= COMPARED_TEXTS_MAX {
            let equal = list.into_iter().map(|item| binary_expr(lowered.clone(), Operator::Eq, item));
            return equal.reduce(or).ok_or_else(|| Error::internal("IN has no items"));
        }
        Ok(Expr::InList(InList::new(Box::new(lowered), list, false)))
    }

    fn compare_with_constant(
        &self,
        function: Function,
        a: &Expression,
        literal: &Literal,
        b: &Expression,
    ) -> Result<Expr> {
        if literal.value == Value::Null {
            return match function {
                Function::IsDistinctFrom => Ok(self.lower(a)?.is_not_null()),
                Function::IsNotDistinctFrom => Ok(self.lower(a)?.is_null()),
                _ => Ok(Expr::Literal(ScalarValue::Boolean(None), None)),
            };
        }
        if let Some(bounded) = Bounded::new(a, literal, self)? {
            return bounded.compare(function, self);
        }
        let arrow = self.arrow_type(a)?;
        let native = match literal.value {
            // Arrow's order of floats is not PostgreSQL's, and the statistics of Parquet files leave NaN out.
            // Equality with a number that is neither zero nor NaN is the same everywhere.
            Value::Float(value) => function == Function::Equal && value != 0.0 && !value.is_nan(),
            Value::Interval(_) => false,
            _ => true,
        };
        if native && let Ok(value) = typed_scalar(&arrow, literal) {
            return Ok(binary_expr(self.lower(a)?, operator(function), Expr::Literal(value, None)));
        }
        self.compare_expressions(function, a, b)
    }

    fn compare_expressions(&self, function: Function, a: &Expression, b: &Expression) -> Result<Expr> {
        let (a_type, b_type) = (self.arrow_type(a)?, self.arrow_type(b)?);
        let (a_lowered, b_lowered) = (self.lower(a)?, self.lower(b)?);
        let own = a.data_type().is_float() || *a.data_type() == DataType::Interval;
        let constants = matches!((&a_lowered, &b_lowered), (Expr::Literal(..), Expr::Literal(..)));
        if a_type == b_type && !own && !constants {
            return Ok(binary_expr(a_lowered, operator(function), b_lowered));
        }
        let decimals = a.data_type().is_decimal() && b.data_type().is_decimal();
        if !decimals && a.data_type() != b.data_type() {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("{} can't be compared with {}", a.data_type(), b.data_type()),
            ));
        }
        let align = |lowered: Expr, expression: &Expression, actual: &ArrowType| {
            if decimals || *actual == expression.data_type().to_arrow() {
                lowered
            } else {
                call(Kernel::Align, vec![lowered], expression.data_type())
            }
        };
        let a_lowered = align(a_lowered, a, &a_type);
        let b_lowered = align(b_lowered, b, &b_type);
        if own || decimals || constants {
            return Ok(call(Kernel::Function(function), vec![a_lowered, b_lowered], &DataType::Bool));
        }
        Ok(binary_expr(a_lowered, operator(function), b_lowered))
    }
}

/// A comparison with a number in the units of an expression that Arrow stores as an integer.
struct Bounded<'e> {
    /// The expression under casts that change no value.
    inner: &'e Expression,
    /// Its Arrow type.
    arrow: ArrowType,
    /// The greatest number of units that is not greater than the constant.
    floor: i256,
    /// Whether the constant is that number of units.
    exact: bool,
}

impl<'e> Bounded<'e> {
    /// `None` if this is no number.
    fn new(expression: &'e Expression, literal: &Literal, input: &LoweringInput<'_>) -> Result<Option<Self>> {
        let (mut value, scale) = match (&literal.value, &literal.data_type) {
            (Value::Int(value), _) => (i256::from_i128((*value).into()), 0),
            (Value::Decimal(value), DataType::Decimal { scale, .. }) => {
                (i256::from_i128(*value), u32::from(*scale))
            }
            _ => return Ok(None),
        };
        let mut exact = true;
        let mut inner = expression;
        while let Expression::Call { function: Function::Cast, arguments, data_type } = inner
            && let Some(argument) = arguments.first()
        {
            if keeps_value(argument.data_type(), data_type) && !may_fail(argument) {
                inner = argument;
            } else if *argument.data_type() == DataType::Date
                && matches!(data_type, DataType::Timestamp | DataType::TimestampTz)
            {
                (value, exact) = divide_floor(value, i256::from_i128(DAY_MICROSECONDS.into()));
                inner = argument;
                break;
            } else {
                break;
            }
        }
        let arrow = input.arrow_type(inner)?;
        if integer_scalar(&arrow, i256::ZERO).is_none() {
            return Ok(None);
        }
        let units = match arrow {
            ArrowType::Decimal128(_, scale) | ArrowType::Decimal256(_, scale) => {
                u32::try_from(scale).unwrap_or(0)
            }
            _ => 0,
        };
        let (floor, same) = at_scale(value, scale, units);
        Ok(Some(Self { inner, arrow, floor, exact: exact && same }))
    }

    fn compare(self, function: Function, input: &LoweringInput<'_>) -> Result<Expr> {
        let lowered = input.lower(self.inner)?;
        let value = integer_scalar(&self.arrow, self.floor);
        if let Some(value) = value.as_ref()
            && self.exact
        {
            return Ok(binary_expr(lowered, operator(function), Expr::Literal(value.clone(), None)));
        }
        // No value of the expression equals the constant.
        let below_all = value.is_none() && self.floor < i256::ZERO;
        match (function, value) {
            (Function::IsDistinctFrom, _) => Ok(Expr::Literal(ScalarValue::Boolean(Some(true)), None)),
            (Function::IsNotDistinctFrom, _) => Ok(Expr::Literal(ScalarValue::Boolean(Some(false)), None)),
            (Function::Equal, _) => always(lowered, &self.arrow, false),
            (Function::NotEqual, _) => always(lowered, &self.arrow, true),
            (Function::Less | Function::LessEqual, Some(value)) => {
                Ok(binary_expr(lowered, Operator::LtEq, Expr::Literal(value, None)))
            }
            (_, Some(value)) => Ok(binary_expr(lowered, Operator::Gt, Expr::Literal(value, None))),
            (Function::Less | Function::LessEqual, None) => always(lowered, &self.arrow, !below_all),
            (_, None) => always(lowered, &self.arrow, below_all),
        }
    }
}

/// True, or false, for every value of the expression, and NULL for NULL.
fn always(lowered: Expr, arrow: &ArrowType, result: bool) -> Result<Expr> {
    let greatest = match arrow {
        ArrowType::Int16 => i16::MAX.into(),
        ArrowType::Int32 | ArrowType::Date32 => i32::MAX.into(),
        ArrowType::Decimal128(..) => i128::MAX,
        _ => i64::MAX.into(),
    };
    let greatest = match arrow {
        ArrowType::Decimal256(..) => i256::MAX,
        _ => i256::from_i128(greatest),
    };
    let greatest = integer_scalar(arrow, greatest)
        .ok_or_else(|| Error::internal(format!("{arrow} is not stored as an integer")))?;
    let operator = if result { Operator::LtEq } else { Operator::Gt };
    Ok(binary_expr(lowered, operator, Expr::Literal(greatest, None)))
}

/// Whether a cast gives the same number for every value and never fails.
fn keeps_value(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Int16, DataType::Int32 | DataType::Int64) | (DataType::Int32, DataType::Int64) => true,
        (_, DataType::Decimal { precision, scale }) => {
            let whole = precision.saturating_sub(*scale);
            match from {
                DataType::Int16 => whole >= 5,
                DataType::Int32 => whole >= 10,
                DataType::Int64 => whole >= 19,
                DataType::Decimal { precision: from_precision, scale: from_scale } => {
                    scale >= from_scale && whole >= from_precision.saturating_sub(*from_scale)
                }
                _ => false,
            }
        }
        _ => false,
    }
}

/// The number at another scale, towards minus infinity, and whether it is the same number.
fn at_scale(value: i256, from: u32, to: u32) -> (i256, bool) {
    if to >= from {
        let scaled = i256::power_of_ten(to - from).and_then(|power| value.checked_mul(power));
        match scaled {
            Some(scaled) => (scaled, true),
            None if value < i256::ZERO => (i256::MIN, false),
            None => (i256::MAX, false),
        }
    } else {
        match i256::power_of_ten(from - to) {
            Some(power) => divide_floor(value, power),
            None => (if value < i256::ZERO { i256::from_i128(-1) } else { i256::ZERO }, value == i256::ZERO),
        }
    }
}

fn divide_floor(value: i256, divisor: i256) -> (i256, bool) {
    let quotient = value.checked_div(divisor).unwrap_or(i256::ZERO);
    let remainder = value.checked_rem(divisor).unwrap_or(i256::ZERO);
    let floor = if remainder < i256::ZERO { quotient.wrapping_sub(i256::ONE) } else { quotient };
    (floor, remainder == i256::ZERO)
}

/// A constant in the Arrow type of the expression that it is compared with.
fn typed_scalar(arrow: &ArrowType, literal: &Literal) -> Result<ScalarValue> {
    let value = match &literal.value {
        Value::Text(text) => text_scalar(arrow, text),
        Value::Bytes(bytes) => match arrow {
            ArrowType::Binary => Some(ScalarValue::Binary(Some(bytes.clone()))),
            ArrowType::LargeBinary => Some(ScalarValue::LargeBinary(Some(bytes.clone()))),
            _ => None,
        },
        _ => None,
    };
    let value = match value {
        Some(value) => value,
        None => scalar(literal)?,
    };
    if value.data_type() == *arrow {
        return Ok(value);
    }
    Err(Error::new(
        ErrorKind::NotSupported,
        format!("a value of type {} can't be compared with {arrow}", literal.data_type),
    ))
}

fn operator(function: Function) -> Operator {
    match function {
        Function::Equal => Operator::Eq,
        Function::NotEqual => Operator::NotEq,
        Function::Less => Operator::Lt,
        Function::LessEqual => Operator::LtEq,
        Function::Greater => Operator::Gt,
        Function::GreaterEqual => Operator::GtEq,
        Function::IsDistinctFrom => Operator::IsDistinctFrom,
        _ => Operator::IsNotDistinctFrom,
    }
}

/// The comparison with its sides exchanged.
fn mirror(function: Function) -> Function {
    match function {
        Function::Less => Function::Greater,
        Function::LessEqual => Function::GreaterEqual,
        Function::Greater => Function::Less,
        Function::GreaterEqual => Function::LessEqual,
        other => other,
    }
}
