//! Arithmetic and rounding of decimals.
//!
//! Invariants: a result has exactly the scale of its type. Work starts in 128 bits where operands and
//! result are that wide; a batch in which that overflows is computed again in 256 bits, and only what does
//! not fit the result's width then is an error.

use std::{borrow::Cow, sync::Arc};

use crate::datafusion::logical_expr::ColumnarValue;
use arrow::{
    array::{ArrayRef, Decimal128Array, Decimal256Array},
    datatypes::{
        DataType as ArrowType, Decimal128Type, Decimal256Type, Int16Type, Int32Type, Int64Type, i256,
    },
};
use pystachio_plan::{DataType, Error, ErrorKind, Function, Result};

use super::{
    arithmetic::division_by_zero,
    call::Invocation,
    lanes::{Lanes, Nullable, map_lanes, zip_lanes},
};

/// An integer that holds a decimal's digits.
pub(super) trait Digits: Copy + Default + Ord + std::fmt::Display + 'static {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Ten to a power, if it fits.
    fn power_of_ten(exponent: u32) -> Option<Self>;
    /// Sum, and whether it overflowed.
    fn add(self, other: Self) -> (Self, bool);
    /// Difference, and whether it overflowed.
    fn subtract(self, other: Self) -> (Self, bool);
    /// Product, and whether it overflowed.
    fn multiply(self, other: Self) -> (Self, bool);
    /// Quotient, towards zero, and remainder; `None` by zero or if it overflows.
    fn divide(self, other: Self) -> Option<(Self, Self)>;
    /// Decimal digits, at least one.
    fn digit_count(self) -> u32;
    /// The same integer, if it fits.
    fn to_i64(self) -> Option<i64>;
}

impl Digits for i128 {
    const ZERO: Self = 0;
    const ONE: Self = 1;

    fn power_of_ten(exponent: u32) -> Option<Self> {
        10_i128.checked_pow(exponent)
    }

    #[inline]
    fn add(self, other: Self) -> (Self, bool) {
        self.overflowing_add(other)
    }

    #[inline]
    fn subtract(self, other: Self) -> (Self, bool) {
        self.overflowing_sub(other)
    }

    #[inline]
    fn multiply(self, other: Self) -> (Self, bool) {
        // Nearly all factors have at most 18 digits, and their product takes one instruction.
        match (i64::try_from(self), i64::try_from(other)) {
            (Ok(a), Ok(b)) => (i128::from(a) * i128::from(b), false),
            _ => self.overflowing_mul(other),
        }
    }

    #[inline]
    fn divide(self, other: Self) -> Option<(Self, Self)> {
        if let (Ok(a), Ok(b)) = (i64::try_from(self), i64::try_from(other)) {
            return Some((a.checked_div(b)?.into(), a.checked_rem(b)?.into()));
        }
        Some((self.checked_div(other)?, self.checked_rem(other)?))
    }

    fn digit_count(self) -> u32 {
        self.unsigned_abs().checked_ilog10().unwrap_or(0) + 1
    }

    fn to_i64(self) -> Option<i64> {
        i64::try_from(self).ok()
    }
}

impl Digits for i256 {
    const ZERO: Self = i256::ZERO;
    const ONE: Self = i256::ONE;

    fn power_of_ten(exponent: u32) -> Option<Self> {
        i256::from_i128(10).checked_pow(exponent)
    }

    fn add(self, other: Self) -> (Self, bool) {
        self.checked_add(other).map_or((i256::ZERO, true), |sum| (sum, false))
    }

    fn subtract(self, other: Self) -> (Self, bool) {
        self.checked_sub(other).map_or((i256::ZERO, true), |difference| (difference, false))
    }

    fn multiply(self, other: Self) -> (Self, bool) {
        self.checked_mul(other).map_or((i256::ZERO, true), |product| (product, false))
    }

    fn divide(self, other: Self) -> Option<(Self, Self)> {
        if let (Some(a), Some(b)) = (self.to_i128(), other.to_i128())
            && let Some((quotient, remainder)) = a.divide(b)
        {
            return Some((i256::from_i128(quotient), i256::from_i128(remainder)));
        }
        Some((self.checked_div(other)?, self.checked_rem(other)?))
    }

    fn digit_count(self) -> u32 {
        let mut count = 1;
        // A quotient says how many digits there are without the magnitude, which the least value lacks.
        while let Some(power) = Self::power_of_ten(count)
            && self.checked_div(power).is_some_and(|quotient| quotient != i256::ZERO)
        {
            count += 1;
        }
        count
    }

    fn to_i64(self) -> Option<i64> {
        self.to_i128().and_then(Digits::to_i64)
    }
}

/// Why a decimal operation failed.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The value needs more digits than there are; what was computed.
    Overflow(String),
    /// A divisor of zero.
    DivisionByZero,
}

/// A decimal argument of either width. Integers are decimals of scale 0.
pub(super) enum Decimals<'a> {
    /// 128 bits.
    Narrow(Lanes<'a, i128>),
    /// 256 bits.
    Wide(Lanes<'a, i256>),
}

impl<'a> Decimals<'a> {
    /// The digits of an argument, and its scale.
    pub(super) fn new(argument: &'a ColumnarValue) -> Result<(Self, u32)> {
        Ok(match argument.data_type() {
            ArrowType::Decimal128(_, scale) => {
                (Self::Narrow(Lanes::primitive::<Decimal128Type>(argument)?), unsigned_scale(scale)?)
            }
            ArrowType::Decimal256(_, scale) => {
                (Self::Wide(Lanes::primitive::<Decimal256Type>(argument)?), unsigned_scale(scale)?)
            }
            ArrowType::Int16 => {
                (Self::Narrow(Lanes::primitive::<Int16Type>(argument)?.convert(i128::from)), 0)
            }
            ArrowType::Int32 => {
                (Self::Narrow(Lanes::primitive::<Int32Type>(argument)?.convert(i128::from)), 0)
            }
            ArrowType::Int64 => {
                (Self::Narrow(Lanes::primitive::<Int64Type>(argument)?.convert(i128::from)), 0)
            }
            other => return Err(Error::internal(format!("a decimal was expected, not {other}"))),
        })
    }

    /// The same digits in 256 bits.
    pub(super) fn widen(&self) -> Lanes<'_, i256> {
        match self {
            Self::Narrow(lanes) => lanes.convert(i256::from_i128),
            Self::Wide(Lanes::Column { values, nulls }) => {
                Lanes::Column { values: Cow::Borrowed(values), nulls: nulls.clone() }
            }
            Self::Wide(Lanes::Constant(value)) => Lanes::Constant(*value),
        }
    }
}

/// `+`, `-`, `*`, `%`, negation, `abs` and `sign` of decimals.
///
/// # Errors
///
/// `NumericOutOfRange` if a value does not fit the result's width, `DivisionByZero`.
pub(super) fn evaluate(function: Function, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (a, a_scale) = Decimals::new(call.argument(0)?)?;
    let unary = matches!(function, Function::Negate | Function::Absolute | Function::Sign);
    let (b, b_scale) = Decimals::new(call.argument(usize::from(!unary))?)?;
    let (_, scale) = result_type(call.result)?;
    let operation = Operation { function, a_scale, b_scale, scale };
    run(
        call,
        &[&a, &b],
        |lanes| operation.run(lanes[0], lanes[1], call.rows),
        |lanes| operation.run(&lanes[0], &lanes[1], call.rows),
    )
}

/// `round`, `trunc`, `ceil` and `floor` of decimals; the second argument, if there is one, is the count of
/// digits after the point.
///
/// # Errors
///
/// `NumericOutOfRange` if a value does not fit the result's width.
pub(super) fn evaluate_rounding(function: Function, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (a, a_scale) = Decimals::new(call.argument(0)?)?;
    let (_, scale) = result_type(call.result)?;
    let digits =
        if call.arguments().len() > 1 { call.lanes::<Int32Type>(1)? } else { Lanes::Constant(Some(0)) };
    let rounding = Rounding { function, a_scale, scale };
    run(
        call,
        &[&a],
        |lanes| rounding.run(lanes[0], &digits, call.rows),
        |lanes| rounding.run(&lanes[0], &digits, call.rows),
    )
}

/// Runs an operation in 128 bits if arguments and result allow, and in 256 bits if not or if that overflows.
pub(super) fn run(
    call: &Invocation<'_>,
    arguments: &[&Decimals<'_>],
    narrow: impl Fn(&[&Lanes<'_, i128>]) -> std::result::Result<Nullable<i128>, Fault>,
    wide: impl Fn(&[Lanes<'_, i256>]) -> std::result::Result<Nullable<i256>, Fault>,
) -> Result<ArrayRef> {
    let (precision, _) = result_type(call.result)?;
    let lanes: Option<Vec<&Lanes<'_, i128>>> = arguments
        .iter()
        .map(|argument| match argument {
            Decimals::Narrow(lanes) => Some(lanes),
            Decimals::Wide(_) => None,
        })
        .collect();
    if let Some(lanes) = lanes
        && is_narrow(precision)
    {
        match narrow(&lanes) {
            Ok(values) => return narrow_array(values, call.result),
            Err(Fault::DivisionByZero) => return Err(division_by_zero()),
            Err(Fault::Overflow(_)) => {}
        }
    }
    let lanes: Vec<Lanes<'_, i256>> = arguments.iter().map(|argument| argument.widen()).collect();
    match wide(&lanes) {
        Ok(values) => wide_array(values, call.result),
        Err(Fault::DivisionByZero) => Err(division_by_zero()),
        Err(Fault::Overflow(value)) => Err(decimal_overflow(&value, call.result)),
    }
}

/// Values of 256 bits as an array of a decimal type of either width.
pub(super) fn wide_array(values: Nullable<i256>, result: &DataType) -> Result<ArrayRef> {
    let (precision, scale) = result_type(result)?;
    if is_narrow(precision) {
        let lanes = Lanes::Column { values: Cow::Borrowed(&values.values), nulls: values.nulls.clone() };
        let narrow = map_lanes(
            &lanes,
            values.values.len(),
            |value| value.to_i128().map_or((0, true), |value| (value, false)),
            |value| decimal_overflow(&decimal_text(&value.to_string(), scale), result),
        )?;
        return narrow_array(narrow, result);
    }
    let array: Decimal256Array = values.into_array();
    let array = array
        .with_precision_and_scale(precision, arrow_scale(scale)?)
        .map_err(|error| Error::internal(format!("{result} is not a type of 256 bits: {error}")))?;
    Ok(Arc::new(array))
}

/// Values of 128 bits as an array of a decimal type of that width.
pub(super) fn narrow_array(values: Nullable<i128>, result: &DataType) -> Result<ArrayRef> {
    let (precision, scale) = result_type(result)?;
    let array: Decimal128Array = values.into_array();
    let array = array
        .with_precision_and_scale(precision, arrow_scale(scale)?)
        .map_err(|error| Error::internal(format!("{result} is not a type of 128 bits: {error}")))?;
    Ok(Arc::new(array))
}

/// Precision and scale of a decimal type.
pub(super) fn result_type(result: &DataType) -> Result<(u8, u32)> {
    match result {
        DataType::Decimal { precision, scale } => Ok((*precision, u32::from(*scale))),
        other => Err(Error::internal(format!("a decimal result was expected, not {other}"))),
    }
}

/// Whether a decimal of this many digits is held in 128 bits.
pub(super) fn is_narrow(precision: u8) -> bool {
    matches!(DataType::Decimal { precision, scale: 0 }.to_arrow(), ArrowType::Decimal128(..))
}

/// The error of a value that does not fit the width of its type.
pub(super) fn decimal_overflow(value: &str, result: &DataType) -> Error {
    let digits = match result {
        DataType::Decimal { precision, .. } if is_narrow(*precision) => 38,
        _ => 76,
    };
    Error::new(
        ErrorKind::NumericOutOfRange,
        format!("numeric value out of range: {value} needs more than {digits} digits"),
    )
    .with_hint("Cast an operand to a numeric with fewer digits, or to double precision.")
}

/// The quotient rounded half away from zero; `None` if it overflows or the divisor is zero.
pub(super) fn divide_rounded<D: Digits>(value: D, divisor: D) -> Option<D> {
    let (quotient, remainder) = value.divide(divisor)?;
    if remainder == D::ZERO {
        return Some(quotient);
    }
    let magnitude = |value: D| if value < D::ZERO { D::ZERO.subtract(value) } else { (value, false) };
    let (part, _) = magnitude(remainder);
    let (whole, overflow) = magnitude(divisor);
    // The least value's magnitude does not fit; no remainder is half of it in any decimal.
    if overflow || part < whole.subtract(part).0 {
        return Some(quotient);
    }
    let (rounded, overflow) = if (value < D::ZERO) == (divisor < D::ZERO) {
        quotient.add(D::ONE)
    } else {
        quotient.subtract(D::ONE)
    };
    (!overflow).then_some(rounded)
}

/// The value at another scale, rounded half away from zero; `None` if it overflows.
pub(super) fn rescale<D: Digits>(value: D, from: u32, to: u32) -> Option<D> {
    if to >= from {
        if value == D::ZERO {
            return Some(value);
        }
        let (scaled, overflow) = value.multiply(D::power_of_ten(to - from)?);
        (!overflow).then_some(scaled)
    } else {
        match D::power_of_ten(from - to) {
            Some(power) => divide_rounded(value, power),
            // A power that does not fit is more than twice as large as any value that does.
            None => Some(D::ZERO),
        }
    }
}

/// Digits with their point.
pub(super) fn decimal_text(digits: &str, scale: u32) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let scale = scale as usize;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

fn unsigned_scale(scale: i8) -> Result<u32> {
    u32::try_from(scale).map_err(|_| Error::internal(format!("decimal with negative scale {scale}")))
}

fn arrow_scale(scale: u32) -> Result<i8> {
    i8::try_from(scale).map_err(|_| Error::internal(format!("decimal with scale {scale}")))
}

/// An operation on one or two decimals; the second is the first again if there is one.
struct Operation {
    function: Function,
    a_scale: u32,
    b_scale: u32,
    scale: u32,
}

impl Operation {
    fn run<D: Digits>(
        &self,
        a: &Lanes<'_, D>,
        b: &Lanes<'_, D>,
        rows: usize,
    ) -> std::result::Result<Nullable<D>, Fault> {
        let never = |value: D| self.overflow(value, value);
        match self.function {
            Function::Negate => map_lanes(a, rows, |a| D::ZERO.subtract(a), never),
            Function::Absolute => {
                map_lanes(a, rows, |a| if a < D::ZERO { D::ZERO.subtract(a) } else { (a, false) }, never)
            }
            Function::Sign => map_lanes(a, rows, |a| (sign(a), false), never),
            Function::Multiply => {
                let power = self.power(self.a_scale + self.b_scale)?;
                if power == D::ONE {
                    return zip_lanes(a, b, rows, D::multiply, |a, b| self.overflow(a, b));
                }
                let scaled = |a: D, b: D| then(a.multiply(b), |product| product.multiply(power));
                zip_lanes(a, b, rows, scaled, |a, b| self.overflow(a, b))
            }
            Function::Add => self.run_aligned(a, b, rows, D::add),
            Function::Subtract => self.run_aligned(a, b, rows, D::subtract),
            _ => self.run_aligned(a, b, rows, |a, b| match a.divide(b) {
                Some((_, remainder)) => (remainder, false),
                None => (D::ZERO, true),
            }),
        }
    }

    /// Both operands are brought to the result's scale first: constants once, columns value by value.
    fn run_aligned<D: Digits>(
        &self,
        a: &Lanes<'_, D>,
        b: &Lanes<'_, D>,
        rows: usize,
        operate: impl Fn(D, D) -> (D, bool),
    ) -> std::result::Result<Nullable<D>, Fault> {
        let (a, a_power) = self.align(a, self.a_scale)?;
        let (b, b_power) = self.align(b, self.b_scale)?;
        if a_power == D::ONE && b_power == D::ONE {
            return zip_lanes(&a, &b, rows, operate, |a, b| self.overflow(a, b));
        }
        let aligned = |a: D, b: D| {
            let (a, a_overflow) = a.multiply(a_power);
            let (b, b_overflow) = b.multiply(b_power);
            let (result, overflow) = operate(a, b);
            (result, a_overflow | b_overflow | overflow)
        };
        zip_lanes(&a, &b, rows, aligned, |a, b| self.overflow(a, b))
    }

    fn align<'l, D: Digits>(
        &self,
        lanes: &'l Lanes<'_, D>,
        scale: u32,
    ) -> std::result::Result<(Lanes<'l, D>, D), Fault> {
        let power: D = self.power(scale)?;
        Ok(match lanes {
            Lanes::Constant(Some(value)) => {
                let (scaled, overflow) = value.multiply(power);
                if overflow {
                    return Err(self.overflow(*value, power));
                }
                (Lanes::Constant(Some(scaled)), D::ONE)
            }
            Lanes::Constant(None) => (Lanes::Constant(None), D::ONE),
            Lanes::Column { values, nulls } => {
                (Lanes::Column { values: Cow::Borrowed(values), nulls: nulls.clone() }, power)
            }
        })
    }

    fn power<D: Digits>(&self, scale: u32) -> std::result::Result<D, Fault> {
        self.scale
            .checked_sub(scale)
            .and_then(D::power_of_ten)
            .ok_or_else(|| Fault::Overflow(format!("a value of scale {scale} at scale {}", self.scale)))
    }

    fn overflow<D: Digits>(&self, a: D, b: D) -> Fault {
        if self.function == Function::Modulo && b == D::ZERO {
            return Fault::DivisionByZero;
        }
        let operator = match self.function {
            Function::Add => "+",
            Function::Subtract => "-",
            Function::Multiply => "*",
            Function::Modulo => "%",
            _ => return Fault::Overflow(decimal_text(&a.to_string(), self.a_scale)),
        };
        let a = decimal_text(&a.to_string(), self.a_scale);
        let b = decimal_text(&b.to_string(), self.b_scale);
        Fault::Overflow(format!("{a} {operator} {b}"))
    }
}

/// Rounding to a count of digits after the point, or before it if negative.
struct Rounding {
    function: Function,
    a_scale: u32,
    scale: u32,
}

impl Rounding {
    fn run<D: Digits>(
        &self,
        a: &Lanes<'_, D>,
        digits: &Lanes<'_, i32>,
        rows: usize,
    ) -> std::result::Result<Nullable<D>, Fault> {
        zip_lanes(
            a,
            digits,
            rows,
            |a, digits| self.round(a, digits).map_or((D::ZERO, true), |value| (value, false)),
            |a, _| Fault::Overflow(decimal_text(&a.to_string(), self.a_scale)),
        )
    }

    fn round<D: Digits>(&self, value: D, digits: i32) -> Option<D> {
        let dropped = i64::from(self.a_scale) - i64::from(digits);
        if dropped <= 0 {
            return rescale(value, self.a_scale, self.scale);
        }
        let power = u32::try_from(dropped).ok().and_then(D::power_of_ten);
        let Some(power) = power else {
            return match self.function {
                // A power that does not fit is more than twice as large as any value that does.
                Function::Round | Function::Truncate => Some(D::ZERO),
                Function::Ceiling if value <= D::ZERO => Some(D::ZERO),
                Function::Floor if value >= D::ZERO => Some(D::ZERO),
                _ => None,
            };
        };
        let (quotient, remainder) = value.divide(power)?;
        let rounded = match self.function {
            Function::Round => divide_rounded(value, power)?,
            Function::Ceiling if remainder > D::ZERO => quotient.add(D::ONE).0,
            Function::Floor if remainder < D::ZERO => quotient.subtract(D::ONE).0,
            _ => quotient,
        };
        // `rounded` has `digits` digits after the point; fewer than the result's scale or as many.
        let raised = u32::try_from(i64::from(self.scale) - i64::from(digits)).ok()?;
        if rounded == D::ZERO {
            return Some(rounded);
        }
        let (value, overflow) = rounded.multiply(D::power_of_ten(raised)?);
        (!overflow).then_some(value)
    }
}

fn sign<D: Digits>(value: D) -> D {
    if value > D::ZERO {
        D::ONE
    } else if value < D::ZERO {
        D::ZERO.subtract(D::ONE).0
    } else {
        D::ZERO
    }
}

fn then<D: Digits>(first: (D, bool), next: impl Fn(D) -> (D, bool)) -> (D, bool) {
    let (value, overflow) = next(first.0);
    (value, first.1 || overflow)
}
