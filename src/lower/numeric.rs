//! Scales, bounds and the arithmetic of numbers.
//!
//! A decimal's precision is proved from bounds on its operands (`magnitude`): declared types give bounds,
//! and footers give tighter ones. Engines check at run time that values fit the width that the precision
//! selects, so that data which changed after planning is an error and never a wrong value.

use pystachio_plan::{DataType, Expression, Function, Value};

use crate::{Lowered, LoweredResult, Refusal, Scale};

/// Digits that an engine's widest decimal holds.
const DIGITS_MAX: i32 = 76;
/// PostgreSQL's least count of significant digits in a quotient (NUMERIC_MIN_SIG_DIGITS).
const QUOTIENT_DIGITS_MIN: i32 = 16;
/// Decimal digits in one of numeric's base-10000 digits.
const DIGITS_PER_WORD: i32 = 4;
/// The most digits after the point of a quotient that is 1 or more, of numbers that show no more: its first digit to the base 10000 is
/// before the point, or rounding puts it there.
pub(crate) const GREAT_QUOTIENT_DIGITS: i32 = QUOTIENT_DIGITS_MIN + DIGITS_PER_WORD;
/// Rows that no group exceeds; a bound for the precision of sums.
pub(crate) const GROUP_ROWS_MAX: f64 = 1e12;
/// Absorbs the rounding of bounds computed in floating point.
const BOUND_SLACK: f64 = 1.0 + 1e-9;

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl Arithmetic {
    /// The operator that a function of the plan is.
    pub(crate) fn of(function: Function) -> Option<Self> {
        Some(match function {
            Function::Add => Self::Add,
            Function::Subtract => Self::Subtract,
            Function::Multiply => Self::Multiply,
            Function::Divide | Function::DivideDecimal => Self::Divide,
            Function::Modulo => Self::Modulo,
            _ => return None,
        })
    }

    /// The plan's word; numeric division has words of its own.
    fn to_plan(self) -> Function {
        match self {
            Self::Add => Function::Add,
            Self::Subtract => Function::Subtract,
            Self::Multiply => Function::Multiply,
            Self::Divide => Function::Divide,
            Self::Modulo => Function::Modulo,
        }
    }
}

/// The greatest absolute value that a type holds.
pub fn type_magnitude(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Int16 => 32_768.0,
        DataType::Int32 => 2_147_483_648.0,
        DataType::Int64 => 9_223_372_036_854_775_808.0,
        DataType::Decimal { precision, scale } => 10f64.powi(i32::from(*precision) - i32::from(*scale)),
        _ => f64::INFINITY,
    }
}

/// The decimal type that holds every value of at most this magnitude at this scale.
pub(crate) fn decimal_type(magnitude: f64, scale: i32) -> Result<DataType, Refusal> {
    let precision = (whole_digits(magnitude)? + scale).max(1);
    if scale < 0 || precision > DIGITS_MAX {
        return Err(Refusal::LongNumeric { precision, scale });
    }
    Ok(DataType::Decimal { precision: precision as u8, scale: scale as u8 })
}

fn whole_digits(magnitude: f64) -> Result<i32, Refusal> {
    if !magnitude.is_finite() {
        return Err(Refusal::UnboundedNumeric);
    }
    let bound = magnitude * BOUND_SLACK;
    Ok(if bound < 1.0 { 0 } else { bound.log10().floor() as i32 + 1 })
}

/// The scale of a decimal type.
pub(crate) fn type_scale(data_type: &DataType) -> Result<i32, Refusal> {
    match data_type {
        DataType::Decimal { scale, .. } => Ok(i32::from(*scale)),
        DataType::Numeric => Err(Refusal::RuntimeArithmetic),
        other => Err(Refusal::TakenAsNumeric(other.clone())),
    }
}

/// The greatest scale that a choice among literals gives; `None` of anything else.
fn greatest_of_choice(scale: &Expression) -> Option<i32> {
    match scale {
        Expression::Literal(literal) => match literal.value {
            Value::Int(digits) => i32::try_from(digits).ok(),
            _ => None,
        },
        Expression::Case { branches, otherwise, .. } => {
            let values = branches.iter().map(|branch| &branch.result).chain(otherwise.as_deref());
            values.map(greatest_of_choice).try_fold(0, |most, value| Some(most.max(value?)))
        }
        _ => None,
    }
}

impl Scale {
    /// The scale as an Int32 expression.
    pub fn expression(&self) -> Expression {
        match self {
            Self::None => Expression::int32(0),
            Self::Fixed(digits) => Expression::int32(*digits),
            Self::Varies(expression) => (**expression).clone(),
        }
    }

    /// The scale of a result that has as many digits as the operand with more.
    fn greatest(&self, other: &Scale) -> Scale {
        match (self, other) {
            (Self::Fixed(a), Self::Fixed(b)) => Self::Fixed(*a.max(b)),
            (Self::Fixed(fixed), Self::Varies(varying)) | (Self::Varies(varying), Self::Fixed(fixed))
                if greatest_of_choice(varying).is_some_and(|most| most <= *fixed) =>
            {
                Self::Fixed(*fixed)
            }
            _ => {
                let both = vec![self.expression(), other.expression()];
                Self::Varies(Box::new(Expression::call(Function::Greatest, both, DataType::Int32)))
            }
        }
    }

    fn sum(&self, other: &Scale) -> Scale {
        match (self, other) {
            (Self::Fixed(a), Self::Fixed(b)) => Self::Fixed(a + b),
            _ => {
                let both = vec![self.expression(), other.expression()];
                Self::Varies(Box::new(Expression::call(Function::Add, both, DataType::Int32)))
            }
        }
    }
}

/// A decimal that has as many digits after the point as PostgreSQL shows; `None` if their number varies by row.
pub(crate) fn shown_decimal(value: Lowered) -> Result<Option<Expression>, Refusal> {
    let own = type_scale(value.data_type())?;
    Ok(match value.scale {
        Scale::Varies(_) => None,
        Scale::Fixed(digits) if digits != own => {
            let shown = decimal_type(value.magnitude, digits)?;
            Some(Expression::call(Function::Cast, vec![value.expression], shown))
        }
        _ => Some(value.expression),
    })
}

/// The one scale that all have; `None` if they differ or vary.
pub fn common_scale(values: &[Lowered]) -> Option<Scale> {
    let mut common: Option<i32> = None;
    for value in values.iter().filter(|value| !is_null(&value.expression)) {
        match (&value.scale, common) {
            (Scale::None, _) => return Some(Scale::None),
            (Scale::Fixed(digits), None) => common = Some(*digits),
            (Scale::Fixed(digits), Some(known)) if *digits == known => {}
            _ => return None,
        }
    }
    Some(common.map_or(Scale::None, Scale::Fixed))
}

/// Brings values that become one column to one type.
pub fn unify_branches(values: Vec<Lowered>) -> Result<(Vec<Lowered>, DataType, f64), Refusal> {
    let magnitude = values
        .iter()
        .filter(|value| !is_null(&value.expression))
        .map(|value| value.magnitude)
        .fold(0.0, f64::max);
    let known = values.iter().find(|value| !is_null(&value.expression)).or(values.first());
    let first = known.ok_or(Refusal::ChoiceOfNothing)?;
    let mut data_type = first.data_type().clone();
    if data_type.is_decimal() {
        let mut scale = 0;
        let mut precision = 0;
        for value in values.iter().filter(|value| !is_null(&value.expression)) {
            scale = scale.max(type_scale(value.data_type())?);
        }
        for value in values.iter().filter(|value| !is_null(&value.expression)) {
            if let DataType::Decimal { precision: digits, scale: own } = value.data_type() {
                precision = precision.max(i32::from(*digits) - i32::from(*own) + scale);
            }
        }
        let bounded = decimal_type(magnitude, scale);
        data_type = match bounded {
            Ok(DataType::Decimal { precision: proved, scale }) if i32::from(proved) < precision => {
                DataType::Decimal { precision: proved, scale }
            }
            _ if precision <= DIGITS_MAX => {
                DataType::Decimal { precision: precision.max(1) as u8, scale: scale as u8 }
            }
            _ => return Err(Refusal::ChoiceOfLongNumerics(precision)),
        };
    }
    let values: Result<Vec<_>, Refusal> = values.into_iter().map(|value| retype(value, &data_type)).collect();
    Ok((values?, data_type, magnitude))
}

/// The value at the type: a decimal of another scale or width is cast, NULL takes any type.
pub fn retype(value: Lowered, data_type: &DataType) -> LoweredResult {
    if value.data_type() == data_type {
        return Ok(value);
    }
    let expression = match (&value.expression, value.data_type()) {
        (Expression::Literal(literal), _) if literal.value == Value::Null => {
            Expression::literal(Value::Null, data_type.clone())
        }
        (_, DataType::Decimal { .. }) if matches!(data_type, DataType::Decimal { .. }) => {
            Expression::call(Function::Cast, vec![value.expression], data_type.clone())
        }
        (_, other) => return Err(Refusal::TwoTypes(other.clone(), data_type.clone())),
    };
    Ok(Lowered { expression, ..value })
}

/// Builds a choice among values (CASE, COALESCE) and, where their display scales differ, the same choice
/// among the scales.
pub(crate) fn choose(
    values: Vec<Lowered>,
    data_type: DataType,
    magnitude: f64,
    build: impl Fn(Vec<Expression>, DataType) -> Expression,
) -> Lowered {
    let scale = common_scale(&values).unwrap_or_else(|| {
        let scales = values.iter().map(|value| value.scale.expression()).collect();
        Scale::Varies(Box::new(build(scales, DataType::Int32)))
    });
    let scale = match scale {
        Scale::None if data_type.is_decimal() => Scale::Fixed(0),
        other => other,
    };
    let expressions = values.into_iter().map(|value| value.expression).collect();
    Lowered::number(build(expressions, data_type), scale, magnitude)
}

/// Whether the expression is the constant NULL.
pub(crate) fn is_null(expression: &Expression) -> bool {
    matches!(expression, Expression::Literal(literal) if literal.value == Value::Null)
}

/// The wider of two integer or float types.
pub(crate) fn wider(a: &DataType, b: &DataType) -> Option<DataType> {
    let rank = |data_type: &DataType| match data_type {
        DataType::Int16 => Some(0),
        DataType::Int32 => Some(1),
        DataType::Int64 => Some(2),
        DataType::Float32 => Some(10),
        DataType::Float64 => Some(11),
        _ => None,
    };
    let (rank_a, rank_b) = (rank(a)?, rank(b)?);
    if a.is_integer() != b.is_integer() {
        return None;
    }
    Some(if rank_a >= rank_b { a.clone() } else { b.clone() })
}

/// The value cast to the type, unless it has it.
pub(crate) fn cast_to(value: Lowered, data_type: &DataType) -> Expression {
    if value.data_type() == data_type {
        return value.expression;
    }
    if let Expression::Literal(literal) = &value.expression
        && matches!(literal.value, Value::Int(_) | Value::Null)
        && literal.data_type.is_integer()
        && data_type.is_integer()
    {
        return Expression::literal(literal.value.clone(), data_type.clone());
    }
    Expression::call(Function::Cast, vec![value.expression], data_type.clone())
}

/// An integer as a decimal; anything else as it is.
pub(crate) fn as_decimal(value: &Lowered) -> LoweredResult {
    if !value.data_type().is_integer() {
        return Ok(value.clone());
    }
    let magnitude = value.magnitude.min(type_magnitude(value.data_type()));
    let data_type = decimal_type(magnitude, 0)?;
    let expression = Expression::call(Function::Cast, vec![value.expression.clone()], data_type);
    let (least_magnitude, total_magnitude) = (value.least_magnitude, value.total_magnitude);
    Ok(Lowered {
        least_magnitude,
        total_magnitude,
        ..Lowered::number(expression, Scale::Fixed(0), magnitude)
    })
}

/// `a op b` on numbers.
pub(crate) fn arithmetic(operator: Arithmetic, a: Lowered, b: Lowered) -> LoweredResult {
    if a.data_type().is_decimal() && b.data_type().is_decimal() {
        return decimal_arithmetic(operator, a, b);
    }
    let Some(common) = wider(a.data_type(), b.data_type()) else {
        return Err(Refusal::Arithmetic(a.data_type().clone(), b.data_type().clone()));
    };
    if common.is_float() && operator == Arithmetic::Modulo {
        return Err(Refusal::ModuloOfFloats);
    }
    let magnitude = match operator {
        Arithmetic::Add | Arithmetic::Subtract => a.magnitude + b.magnitude,
        Arithmetic::Multiply => a.magnitude * b.magnitude,
        Arithmetic::Divide => a.magnitude,
        Arithmetic::Modulo => a.magnitude.min(b.magnitude),
    };
    let magnitude = if common.is_integer() { magnitude.min(type_magnitude(&common)) } else { f64::INFINITY };
    let arguments = vec![cast_to(a, &common), cast_to(b, &common)];
    let expression = Expression::call(operator.to_plan(), arguments, common);
    Ok(Lowered::number(expression, Scale::None, magnitude))
}

fn decimal_arithmetic(operator: Arithmetic, a: Lowered, b: Lowered) -> LoweredResult {
    let (scale_a, scale_b) = (type_scale(a.data_type())?, type_scale(b.data_type())?);
    let (magnitude, type_scale, scale) = match operator {
        Arithmetic::Add | Arithmetic::Subtract => {
            (a.magnitude + b.magnitude, scale_a.max(scale_b), a.scale.greatest(&b.scale))
        }
        Arithmetic::Multiply => (a.magnitude * b.magnitude, scale_a + scale_b, a.scale.sum(&b.scale)),
        Arithmetic::Modulo => {
            (a.magnitude.min(b.magnitude), scale_a.max(scale_b), a.scale.greatest(&b.scale))
        }
        Arithmetic::Divide => return divide(a, b, None),
    };
    let data_type = decimal_type(magnitude, type_scale)?;
    let not_null = a.is_never_null() && b.is_never_null();
    let least_magnitude = match operator {
        Arithmetic::Multiply => least_magnitude(&a)? * least_magnitude(&b)? / BOUND_SLACK,
        _ => 0.0,
    };
    let arguments = vec![a.expression, b.expression];
    let expression = Expression::call(operator.to_plan(), arguments, data_type);
    Ok(Lowered { not_null, least_magnitude, ..Lowered::number(expression, scale, magnitude) })
}

/// `a / b` on numerics. A caller that knows a bound on the quotient gives it.
pub(crate) fn divide(a: Lowered, b: Lowered, quotient_magnitude: Option<f64>) -> LoweredResult {
    let magnitude = match quotient_magnitude {
        Some(magnitude) => magnitude,
        None => a.magnitude / least_magnitude(&b)?,
    };
    let digits_max = quotient_digits_max(&a, &b)?;
    divide_to(a, b, magnitude, digits_max)
}

/// The least absolute value of a decimal other than zero.
pub(crate) fn least_magnitude(value: &Lowered) -> Result<f64, Refusal> {
    let of_type = 10f64.powi(-type_scale(value.data_type())?);
    Ok(value.least_magnitude.max(of_type))
}

/// The most digits that PostgreSQL keeps after the point of `a / b`.
pub(crate) fn quotient_digits_max(a: &Lowered, b: &Lowered) -> Result<i32, Refusal> {
    let (scale_a, scale_b) = (type_scale(a.data_type())?, type_scale(b.data_type())?);
    let mut dividend_scale = scale_a;
    if a.least_magnitude > 0.0 {
        let digits = -(a.least_magnitude / BOUND_SLACK).log10().floor();
        dividend_scale = dividend_scale.min((digits as i32).max(0));
    }
    Ok(quotient_scale_max(dividend_scale, b.magnitude)?.max(scale_a).max(scale_b))
}

/// `a / b`, which is not greater than a bound and has at most so many digits after the point.
pub(crate) fn divide_to(a: Lowered, b: Lowered, magnitude: f64, digits_max: i32) -> LoweredResult {
    let least_magnitude = least_magnitude(&a)? / b.magnitude / BOUND_SLACK;
    // Rounding may carry into one more digit.
    let data_type = decimal_type(magnitude * 1.1 + 1.0, digits_max)?;
    let (own_a, own_b) = (a.scale.expression(), b.scale.expression());
    let choice = vec![a.expression.clone(), own_a, b.expression.clone(), own_b];
    let scale = Expression::call(Function::QuotientScale, choice, DataType::Int32);
    let arguments = vec![a.expression, b.expression, scale.clone()];
    let expression = Expression::call(Function::DivideDecimal, arguments, data_type);
    // At least 16 digits are kept.
    Ok(Lowered { least_magnitude, ..Lowered::number(expression, Scale::Varies(Box::new(scale)), magnitude) })
}

/// `sqrt(a)` on a numeric.
pub(crate) fn decimal_root(a: Lowered) -> LoweredResult {
    let own = type_scale(a.data_type())?;
    let digits_max = root_scale_max(own).max(own);
    let magnitude = a.magnitude.sqrt() * BOUND_SLACK;
    // Rounding may carry into one more digit.
    let data_type = decimal_type(magnitude * 1.1 + 1.0, digits_max)?;
    let display = a.scale.expression();
    let scale = Expression::call(Function::RootScale, vec![a.expression.clone(), display], DataType::Int32);
    let expression = Expression::call(Function::DecimalRoot, vec![a.expression, scale.clone()], data_type);
    Ok(Lowered::number(expression, Scale::Varies(Box::new(scale)), magnitude))
}

/// The most digits that PostgreSQL keeps after the point of a square root, beside those of the number itself: the smaller the number, the
/// more.
///
/// Source: `numeric_sqrt` in PostgreSQL's numeric.c, which works on the weight (in base-10000 digits) of the number. The smallest one
/// other than zero is 10 ^ -scale.
fn root_scale_max(scale: i32) -> i32 {
    let weight_min = -((scale + DIGITS_PER_WORD - 1) / DIGITS_PER_WORD);
    QUOTIENT_DIGITS_MIN - 1 - weight_min * DIGITS_PER_WORD / 2
}

/// The most digits that PostgreSQL keeps after the point of a quotient: the fewer whole digits it has, the
/// more.
///
/// Source: `select_div_scale` in PostgreSQL's numeric.c, which works on the weights (in base-10000 digits)
/// of dividend and divisor. The smallest dividend other than zero is 10 ^ -scale.
pub(crate) fn quotient_scale_max(dividend_scale: i32, divisor_magnitude: f64) -> Result<i32, Refusal> {
    let dividend_weight_min = -((dividend_scale + DIGITS_PER_WORD - 1) / DIGITS_PER_WORD);
    let divisor_weight_max = (whole_digits(divisor_magnitude)? - 1).max(0) / DIGITS_PER_WORD;
    let quotient_weight_min = dividend_weight_min - divisor_weight_max - 1;
    Ok(QUOTIENT_DIGITS_MIN - quotient_weight_min * DIGITS_PER_WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(precision: u8, scale: u8) -> DataType {
        DataType::Decimal { precision, scale }
    }

    fn column(data_type: DataType, magnitude: f64) -> Lowered {
        let expression = Expression::column(pystachio_plan::ColumnId(1), data_type);
        Lowered { magnitude, ..Lowered::of_type(expression) }
    }

    #[test]
    fn bounds_give_precision() {
        assert_eq!(decimal_type(104_949.5, 2), Ok(decimal(8, 2)));
        assert_eq!(decimal_type(0.1, 2), Ok(decimal(2, 2)));
        assert_eq!(decimal_type(9.0, 0), Ok(decimal(1, 0)));
        assert!(decimal_type(f64::INFINITY, 0).is_err());
        assert!(decimal_type(1e70, 10).is_err());
    }

    #[test]
    fn products_add_scales() {
        let product =
            arithmetic(Arithmetic::Multiply, column(decimal(15, 2), 104_949.5), column(decimal(15, 2), 1.1));
        let product = product.unwrap();
        assert_eq!(*product.data_type(), decimal(10, 4));
        assert!(matches!(product.scale, Scale::Fixed(4)));
    }

    #[test]
    fn integers_of_two_sizes_meet_in_the_larger() {
        let sum = arithmetic(Arithmetic::Add, column(DataType::Int32, 10.0), column(DataType::Int64, 10.0));
        assert_eq!(*sum.unwrap().data_type(), DataType::Int64);
    }

    #[test]
    fn quotients_of_sums_fit_the_widest_decimal() {
        let sum = column(decimal(38, 2), 1e25);
        let count = column(decimal(19, 0), GROUP_ROWS_MAX);
        let count = Lowered { scale: Scale::Fixed(0), ..count };
        assert!(divide(sum, count, Some(1e13)).is_ok());
    }
}
