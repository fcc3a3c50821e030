//! `var_samp`, `var_pop`, `stddev_samp` and `stddev_pop` of numerics and integers from exact sums, a group at a time.
//!
//! Both engines compute them so: the numbers in between have any size.
//!
//! Source: PostgreSQL 15, `numeric.c`, `numeric_stddev_internal` and `sqrt_var`.

use num_bigint::{BigInt, Sign};
use pystachio_plan::{Error, ErrorKind, Result};

use crate::quotient::{Leading, big_quotient, select_scale};

/// Which of the four functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VarianceForm {
    /// Divide by n - 1 instead of n.
    pub sample: bool,
    /// Take the square root.
    pub deviation: bool,
}

/// The arguments of one group.
pub struct Moments {
    /// Rows that are not NULL.
    pub count: i64,
    /// Their sum, times ten to the power of its scale.
    pub sum: BigInt,
    /// Digits after the point of `sum`.
    pub sum_scale: u32,
    /// The sum of their squares, times ten to the power of its scale.
    pub squares: BigInt,
    /// Digits after the point of `squares`.
    pub squares_scale: u32,
    /// Digits after the point with which the rows are displayed.
    pub display_scale: i32,
}

/// A value times ten to the power of its count of digits after the point.
pub struct Statistic {
    /// The digits.
    pub value: BigInt,
    /// How many of them are after the point.
    pub digits: i32,
}

impl Moments {
    /// The function's value; `None` for NULL.
    pub fn statistic(self, form: VarianceForm) -> Option<Statistic> {
        let Some(Variance { numerator, denominator, scale, digits }) = self.variance(form)? else {
            return Some(Statistic { value: BigInt::ZERO, digits: 0 });
        };
        let digits_power = BigInt::from(10).pow(digits.unsigned_abs());
        let value = big_quotient(&(numerator * &digits_power), &(denominator * BigInt::from(10).pow(scale)));
        if !form.deviation {
            return Some(Statistic { value, digits });
        }
        // One more digit than wanted, towards zero, decides the rounding: no root lies exactly between.
        let root = BigInt::sqrt(&(value * digits_power * 100_u32));
        Some(Statistic { value: big_quotient(&root, &BigInt::from(10)), digits })
    }

    /// The digits after the point of [`Self::statistic`].
    pub fn digits(self, form: VarianceForm) -> Option<i32> {
        Some(self.variance(form)?.map_or(0, |variance| variance.digits))
    }

    /// The variance as a quotient; within, `None` for one of zero.
    fn variance(self, form: VarianceForm) -> Option<Option<Variance>> {
        let Self { count, sum, sum_scale, squares, squares_scale, display_scale } = self;
        if count <= i64::from(form.sample) {
            return None;
        }
        // n * sum(x^2) - sum(x)^2, at the scale that both terms can have.
        let scale = squares_scale.max(sum_scale * 2);
        let raise = |value: BigInt, from: u32| match scale - from {
            0 => value,
            by => value * BigInt::from(10).pow(by),
        };
        let numerator = raise(squares * count, squares_scale) - raise(&sum * &sum, sum_scale * 2);
        if numerator.sign() != Sign::Plus {
            return Some(None);
        }
        let denominator = BigInt::from(count) * BigInt::from(if form.sample { count - 1 } else { count });
        let digits = select_scale(
            Leading::of_big(&numerator, scale),
            display_scale.saturating_mul(2),
            Leading::of_big(&denominator, 0),
            0,
        );
        Some(Some(Variance { numerator, denominator, scale, digits }))
    }
}

/// A variance that is not zero.
struct Variance {
    /// Times ten to the power of `scale`.
    numerator: BigInt,
    denominator: BigInt,
    scale: u32,
    /// Digits after the point of the quotient.
    digits: i32,
}

impl Statistic {
    /// The digits with `scale` of them after the point.
    ///
    /// # Errors
    ///
    /// `NumericOutOfRange` if it has more after the point.
    pub fn held_at(self, scale: u32) -> Result<BigInt> {
        let Self { value, digits } = self;
        let raised = u32::try_from(digits).ok().and_then(|digits| scale.checked_sub(digits));
        let raised = raised.ok_or_else(|| {
            let message = format!(
                "numeric value out of range: {digits} digits after the point, of which {scale} can be held"
            );
            Error::new(ErrorKind::NumericOutOfRange, message)
        })?;
        Ok(value * BigInt::from(10).pow(raised))
    }
}
