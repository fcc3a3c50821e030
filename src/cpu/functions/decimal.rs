//! Arithmetic and rounding of decimals.
//!
//! Invariants: those of `digits.rs`, which runs them.

use std::borrow::Cow;

use arrow::{array::ArrayRef, datatypes::Int32Type};
use pystachio_plan::{Function, Result};

use super::{
    digits::{Decimals, Digits, Fault, decimal_text, divide_rounded, rescale, result_type, run},
    invocation::Invocation,
    lanes::{Lanes, Nullable, map_lanes, zip_lanes},
};

/// `+`, `-`, `*`, `%`, `div`, negation, `abs` and `sign` of decimals.
///
/// # Errors
///
/// `NumericOutOfRange` if a value does not fit the result's width, `DivisionByZero`.
pub(super) fn evaluate(function: Function, call: &Invocation<'_>) -> Result<ArrayRef> {
    let (a, a_scale) = Decimals::new(call.argument(0)?)?;
    let unary = matches!(function, Function::Negate | Function::Absolute | Function::Sign);
    let (b, b_scale) = Decimals::new(call.argument(usize::from(!unary))?)?;
    let (_, scale) = result_type(call.result)?;
    // Quotients are whole, whatever both are aligned to.
    let scale = if function == Function::DivideWhole { a_scale.max(b_scale) } else { scale };
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
            Function::DivideWhole => self.run_aligned(a, b, rows, |a, b| match a.divide(b) {
                Some((quotient, _)) => (quotient, false),
                None => (D::ZERO, true),
            }),
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
        if matches!(self.function, Function::Modulo | Function::DivideWhole) && b == D::ZERO {
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
