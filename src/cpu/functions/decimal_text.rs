//! Numbers in decimal digits, as JSON and texts have them.
//!
//! Source: PostgreSQL 15, `numeric.c` (`set_var_from_str`, `make_result`, `numeric_out`).

use pystachio_plan::{Error, ErrorKind, Result};

/// Digits of the largest `numeric` before the point, and behind it.
const DIGITS_MAX: [i64; 2] = [131_072, 16_383];
/// Digits that 128 bits hold.
const DECIMAL_DIGITS_MAX: i64 = 38;
/// Beyond this an exponent is out of range whatever the digits.
const EXPONENT_MAX: i64 = (i32::MAX / 2) as i64;

/// A number as it stands in a text.
pub(super) struct DecimalText<'a> {
    is_negative: bool,
    /// Digits before the point, and behind it.
    digits: [&'a str; 2],
    exponent: i64,
}

impl<'a> DecimalText<'a> {
    /// The number of a token: a sign or none, digits, perhaps a point among or behind them, and an exponent or none.
    ///
    /// # Errors
    ///
    /// PostgreSQL's of a number that is beyond `numeric`.
    pub(super) fn of(token: &'a str) -> Result<Self> {
        let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
        let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(mantissa) => (true, mantissa),
            None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
        };
        let (whole, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        // An exponent that no integer holds is beyond the maximum.
        let exponent = exponent.parse::<i64>().ok().filter(|exponent| exponent.abs() < EXPONENT_MAX);
        let exponent = exponent.ok_or_else(overflow)?;
        let number = Self { is_negative, digits: [whole, behind], exponent };
        let fits = number.scale() <= DIGITS_MAX[1]
            && number.first().is_none_or(|first| number.point() - first <= DIGITS_MAX[0]);
        fits.then_some(number).ok_or_else(overflow)
    }

    /// Digits behind the point of the number as it is printed.
    fn scale(&self) -> i64 {
        (self.digits[1].len() as i64 - self.exponent).max(0)
    }

    /// How many of its digits are before the point: more than there are, or fewer than none.
    fn point(&self) -> i64 {
        self.digits[0].len() as i64 + self.exponent
    }

    fn all_digits(&self) -> impl Iterator<Item = u8> + '_ {
        self.digits.iter().flat_map(|digits| digits.bytes())
    }

    /// The place of the first digit that is no zero.
    fn first(&self) -> Option<i64> {
        self.all_digits().position(|digit| digit != b'0').map(|place| place as i64)
    }
}

impl DecimalText<'_> {
    /// The number at a scale, rounded away from zero, in units of its last digit; `None` if it has more digits than a decimal.
    pub(super) fn rounded(&self, scale: u32) -> Option<i128> {
        let Some(first) = self.first() else { return Some(0) };
        // The place behind the last digit that is kept.
        let end = self.point() + i64::from(scale);
        if end < first {
            return Some(0);
        }
        if end - first > DECIMAL_DIGITS_MAX {
            return None;
        }
        let mut digits = self.all_digits().skip(first as usize);
        let mut value: i128 = 0;
        for _ in first..end {
            value = value * 10 + i128::from(digits.next().unwrap_or(b'0') - b'0');
        }
        value += i128::from(digits.next().is_some_and(|next| next >= b'5'));
        Some(if self.is_negative { -value } else { value })
    }
}

/// Whether a `numeric` can be the number.
///
/// # Errors
///
/// PostgreSQL's if not.
pub(super) fn check(token: &str) -> Result<()> {
    // No number of so few characters is out of range but by an exponent.
    match token.len() < 1000 && !token.contains(['e', 'E']) {
        true => Ok(()),
        false => DecimalText::of(token).map(drop),
    }
}

/// Writes a number as PostgreSQL prints it.
///
/// # Errors
///
/// As of [`check`].
pub(super) fn write(token: &str, target: &mut String) -> Result<()> {
    let number = DecimalText::of(token)?;
    let (point, scale) = (number.point(), number.scale());
    let first = number.first();
    if number.is_negative && first.is_some() {
        target.push('-');
    }
    let digits: Vec<u8> = number.all_digits().collect();
    let digit = |place: i64| {
        let digit = usize::try_from(place).ok().and_then(|place| digits.get(place));
        char::from(digit.copied().unwrap_or(b'0'))
    };
    match first.filter(|first| *first < point) {
        Some(first) => target.extend((first..point).map(digit)),
        None => target.push('0'),
    }
    if scale > 0 {
        target.push('.');
        target.extend((point..point + scale).map(digit));
    }
    Ok(())
}

fn overflow() -> Error {
    Error::new(ErrorKind::NumericOutOfRange, "value overflows numeric format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_away_from_zero() {
        let rounded = |text, scale| DecimalText::of(text).unwrap().rounded(scale);
        for (text, scale, value) in [
            ("1.50", 2, 150),
            ("1.005", 2, 101),
            ("-1.005", 2, -101),
            ("0.4", 0, 0),
            ("0.5", 0, 1),
            ("-0.5", 0, -1),
            ("0.05", 0, 0),
            ("1e3", 2, 100_000),
            ("12e-1", 0, 1),
            ("999.995", 2, 100_000),
            (".5", 1, 5),
            ("7.", 0, 7),
            ("+0001e-4", 4, 1),
            ("0e9", 3, 0),
            ("1e-16000", 2, 0),
        ] {
            assert_eq!(rounded(text, scale), Some(value), "{text} at {scale}");
        }
        assert_eq!(rounded("1e38", 0), None);
        assert_eq!(rounded("99999999999999999999999999999999999999", 0), Some(10i128.pow(38) - 1));
    }
}
