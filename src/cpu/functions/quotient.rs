//! Division of numerics with PostgreSQL's choice of digits, which [`pystachio_engine::quotient`] makes.
//!
//! Source: PostgreSQL 15, `numeric.c`, `select_div_scale` and `div_var`.

use std::sync::Arc;

use arrow::{
    array::ArrayRef,
    datatypes::{Int32Type, i256},
};
use num_bigint::BigInt;
use pystachio_engine::quotient::{Leading, big_quotient, select_scale};
use pystachio_plan::{Error, Result};

use super::{
    digits::{
        Decimals, Digits, Fault, big_from_wide, big_to_wide, decimal_overflow, decimal_text, divide_rounded,
        is_narrow, narrow_array, rescale, result_type, wide_array,
    },
    faults::division_by_zero,
    invocation::Invocation,
    lanes::{Lanes, Nullable, zip_lanes},
};

/// `(a, b, scale)`: a / b rounded half away from zero to `scale` digits, held at the result's scale.
///
/// # Errors
///
/// `DivisionByZero`; `NumericOutOfRange` if the quotient does not fit the result's width or `scale` is
/// beyond the result's.
pub(super) fn divide(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (a, a_scale) = Decimals::new(call.argument(0)?)?;
    let (b, b_scale) = Decimals::new(call.argument(1)?)?;
    let digits = call.lanes::<Int32Type>(2)?;
    let (precision, scale) = result_type(call.result)?;
    let division = Division { a_scale, b_scale, scale };
    if let (Decimals::Narrow(a), Decimals::Narrow(b)) = (&a, &b)
        && is_narrow(precision)
    {
        match division.run(a, b, &digits, call.rows) {
            Ok(values) => return narrow_array(values, call.result),
            Err(Fault::DivisionByZero) => return Err(division_by_zero()),
            Err(Fault::Overflow(_)) => {}
        }
    }
    match division.run(&a.widen(), &b.widen(), &digits, call.rows) {
        Ok(values) => wide_array(values, call.result),
        Err(Fault::DivisionByZero) => Err(division_by_zero()),
        Err(Fault::Overflow(quotient)) => Err(decimal_overflow(&quotient, call.result)),
    }
}

/// `(a, display scale of a, b, display scale of b)`: the digits after the point of a / b.
pub(super) fn quotient_scale(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (a, a_scale) = Decimals::new(call.argument(0)?)?;
    let a_display = call.lanes::<Int32Type>(1)?;
    let (b, b_scale) = Decimals::new(call.argument(2)?)?;
    let b_display = call.lanes::<Int32Type>(3)?;
    let leading = |digits: &Decimals<'_>, scale: u32| match digits {
        Decimals::Narrow(lanes) => lanes.convert(|value| leading(value, scale)),
        Decimals::Wide(lanes) => lanes.convert(|value| leading(value, scale)),
    };
    let displayed = |a: &Lanes<'_, Leading>, display: &Lanes<'_, i32>| {
        zip_lanes(
            a,
            display,
            call.rows,
            |leading, display| ((leading, display), false),
            |_, _| Error::internal("pairing a number with its scale has failed"),
        )
        .map(Nullable::into_lanes)
    };
    let a = displayed(&leading(&a, a_scale), &a_display)?;
    let b = displayed(&leading(&b, b_scale), &b_display)?;
    let scales = zip_lanes(
        &a,
        &b,
        call.rows,
        |(a, a_display): (Leading, i32), (b, b_display): (Leading, i32)| {
            (select_scale(a, a_display, b, b_display), false)
        },
        |_, _| Error::internal("choosing a scale has failed"),
    )?;
    Ok(Arc::new(scales.into_array::<Int32Type>()))
}

/// The first group of digits of a decimal.
pub(super) fn leading<D: Digits>(value: D, scale: u32) -> Leading {
    if value == D::ZERO {
        return Leading::default();
    }
    Leading::locate(value.digit_count().into(), scale, |dropped| {
        value.divide(D::power_of_ten(dropped)?)?.0.to_i64()
    })
}

/// A division of decimals of these scales into one of scale `scale`.
struct Division {
    a_scale: u32,
    b_scale: u32,
    scale: u32,
}

impl Division {
    fn run<D: QuotientDigits>(
        &self,
        a: &Lanes<'_, D>,
        b: &Lanes<'_, D>,
        digits: &Lanes<'_, i32>,
        rows: usize,
    ) -> std::result::Result<Nullable<D>, Fault> {
        let pairs = zip_lanes(a, b, rows, |a, b| ((a, b), b == D::ZERO), |_, _| Fault::DivisionByZero)?;
        zip_lanes(
            &pairs.into_lanes(),
            digits,
            rows,
            |(a, b), digits| self.divide(a, b, digits).map_or((D::ZERO, true), |quotient| (quotient, false)),
            |(a, b), digits| {
                let a = decimal_text(&a.to_string(), self.a_scale);
                let b = decimal_text(&b.to_string(), self.b_scale);
                let held = self.scale;
                Fault::Overflow(format!("{a} / {b} with {digits} digits after the point, held at {held},"))
            },
        )
    }

    fn divide<D: QuotientDigits>(&self, a: D, b: D, digits: i32) -> Option<D> {
        if b == D::ZERO {
            // Only a NULL slot is left with this.
            return None;
        }
        let digits = u32::try_from(digits).ok().filter(|digits| *digits <= self.scale)?;
        let raised = i64::from(digits) + i64::from(self.b_scale) - i64::from(self.a_scale);
        // A divisor of zero gets here only in a lane that is NULL.
        let quotient =
            if a == D::ZERO || b == D::ZERO { Some(D::ZERO) } else { scaled_quotient(a, b, raised) };
        let quotient = match quotient {
            Some(quotient) => quotient,
            None => D::quotient_of_any_size(a, b, raised)?,
        };
        rescale(quotient, digits, self.scale)
    }
}

/// a * 10^raised / b, rounded, if numerator and denominator fit.
fn scaled_quotient<D: Digits>(a: D, b: D, raised: i64) -> Option<D> {
    let power = D::power_of_ten(u32::try_from(raised.unsigned_abs()).ok()?)?;
    let (a, b, overflow) = if raised >= 0 {
        let (a, overflow) = a.multiply(power);
        (a, b, overflow)
    } else {
        let (b, overflow) = b.multiply(power);
        (a, b, overflow)
    };
    if overflow { None } else { divide_rounded(a, b) }
}

/// Digits whose quotient can be computed even if the numerator does not fit.
trait QuotientDigits: Digits {
    /// a * 10^raised / b, rounded half away from zero; `None` if it does not fit.
    fn quotient_of_any_size(a: Self, b: Self, raised: i64) -> Option<Self>;
}

impl QuotientDigits for i128 {
    fn quotient_of_any_size(a: Self, b: Self, raised: i64) -> Option<Self> {
        let (a, b) = (i256::from_i128(a), i256::from_i128(b));
        match scaled_quotient(a, b, raised) {
            Some(quotient) => quotient.to_i128(),
            None => i256::quotient_of_any_size(a, b, raised)?.to_i128(),
        }
    }
}

impl QuotientDigits for i256 {
    fn quotient_of_any_size(a: Self, b: Self, raised: i64) -> Option<Self> {
        let power = BigInt::from(10).pow(u32::try_from(raised.unsigned_abs()).ok()?);
        let (mut numerator, mut denominator) = (big_from_wide(a), big_from_wide(b));
        if raised >= 0 {
            numerator *= power
        } else {
            denominator *= power
        }
        big_to_wide(&big_quotient(&numerator, &denominator))
    }
}
