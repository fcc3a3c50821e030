//! Square roots of numerics with PostgreSQL's choice of digits, which [`pystachio_engine::quotient`] makes.
//!
//! PostgreSQL's integer square root has a remainder, by which it rounds: its result is the root that is next to the true one. So is that
//! of the integer square root here.
//!
//! Source: PostgreSQL 15, `numeric.c`, `numeric_sqrt` and `sqrt_var`.

use std::sync::Arc;

use arrow::{
    array::ArrayRef,
    datatypes::{Int32Type, i256},
};
use num_bigint::{BigInt, BigUint};
use pystachio_engine::quotient::{Leading, select_root_scale};
use pystachio_plan::{Error, Result};

use super::{
    arithmetic::root_of_negative,
    digits::{
        Decimals, big_from_wide, big_to_wide, decimal_overflow, decimal_text, rescale, result_type,
        wide_array,
    },
    invocation::Invocation,
    lanes::zip_lanes,
    quotient::leading,
};

/// `(a, scale)`: the root of a, rounded to `scale` digits, held at the result's scale.
///
/// # Errors
///
/// `InvalidPowerArgument` of a negative number; `NumericOutOfRange` if the root does not fit the result's width or `scale` is beyond the
/// result's.
pub(super) fn square_root(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (numbers, own) = Decimals::new(call.argument(0)?)?;
    let (_, held) = result_type(call.result)?;
    let values = zip_lanes(
        &numbers.widen(),
        &call.lanes::<Int32Type>(1)?,
        call.rows,
        |number, digits| {
            let root = root_of(number, own, digits).and_then(|root| {
                rescale(root, u32::try_from(digits).ok()?, held).filter(|_| digits <= held as i32)
            });
            root.map_or((i256::ZERO, true), |root| (root, false))
        },
        |number, digits| match number < i256::ZERO {
            true => root_of_negative(),
            false => {
                let number = decimal_text(&number.to_string(), own);
                let shown = format!("sqrt({number}) with {digits} digits after the point, held at {held},");
                decimal_overflow(&shown, call.result)
            }
        },
    )?;
    wide_array(values, call.result)
}

/// The root of a number of scale `own`, rounded to so many digits; `None` of a negative number, and if it does not fit.
fn root_of(number: i256, own: u32, digits: i32) -> Option<i256> {
    let number = big_from_wide(number).to_biguint()?;
    let raised = i64::from(digits) * 2 - i64::from(own);
    let power = BigUint::from(10_u32).pow(u32::try_from(raised.unsigned_abs()).ok()?);
    // A number has no digits other than zero beyond its display scale, which `digits` is not below.
    let square = if raised >= 0 { number * power } else { number / power };
    let mut root = square.sqrt();
    // The remainder is greater than the root where the next digit is 5 or more.
    if &square - &root * &root > root {
        root += 1_u32;
    }
    big_to_wide(&BigInt::from(root))
}

/// `(a, display scale of a)`: the digits after the point of the root.
pub(super) fn root_scale(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (numbers, own) = Decimals::new(call.argument(0)?)?;
    let leading = match &numbers {
        Decimals::Narrow(lanes) => lanes.convert(|value| leading(value, own)),
        Decimals::Wide(lanes) => lanes.convert(|value| leading(value, own)),
    };
    let scales = zip_lanes(
        &leading,
        &call.lanes::<Int32Type>(1)?,
        call.rows,
        |leading: Leading, display| (select_root_scale(leading, display), false),
        |_, _| Error::internal("choosing a scale has failed"),
    )?;
    Ok(Arc::new(scales.into_array::<Int32Type>()))
}
