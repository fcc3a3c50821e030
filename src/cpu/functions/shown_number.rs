//! Numbers as the output functions of their types write them.
//!
//! Source: PostgreSQL 15, `float.c` (`float4out`, `float8out_internal`), `d2s.c`, `f2s.c`, `snprintf.c` (`pg_strfromd`) and `numeric.c`
//! (`get_str_from_var`).

use std::fmt::{self, Display, LowerExp, Write};

use arrow::{
    array::ArrayRef,
    datatypes::{DataType as ArrowType, Float32Type, Float64Type, Int32Type},
};
use pystachio_plan::{Error, Result};

use super::{
    digits::{Decimals, decimal_text},
    invocation::Invocation,
    lanes::{Lanes, TextLanes},
};

/// Powers of five above this have more binary digits than floats and the numbers halfway between them.
const HALFWAY_POWER_MAX: u32 = 24;

/// The plan language's text of numbers.
///
/// # Errors
///
/// `NotSupported` for other types than those of numbers.
pub(super) fn number_text(call: &Invocation<'_>) -> Result<ArrayRef> {
    let numbers = ShownNumbers::new(call)?;
    call.write_texts(|row, target| {
        numbers.write(row, target)?;
        Ok(!target.is_empty())
    })
}

/// Numbers of the first argument.
pub(super) enum ShownNumbers<'a> {
    /// With the setting `extra_float_digits`.
    Singles { values: Lanes<'a, f32>, settings: TextLanes },
    /// The same of doubles.
    Doubles { values: Lanes<'a, f64>, settings: TextLanes },
    /// With the digits behind the point that are shown, where the type has more.
    Decimals { values: Decimals<'a>, scale: u32, shown: Option<Lanes<'a, i32>> },
}

impl<'a> ShownNumbers<'a> {
    pub(super) fn new(call: &Invocation<'a>) -> Result<Self> {
        Ok(match call.arrow_type(0)? {
            ArrowType::Float32 => {
                Self::Singles { values: call.lanes::<Float32Type>(0)?, settings: call.text(1)? }
            }
            ArrowType::Float64 => {
                Self::Doubles { values: call.lanes::<Float64Type>(0)?, settings: call.text(1)? }
            }
            _ => {
                let (values, scale) = Decimals::new(call.argument(0)?)?;
                let shown = match call.arguments().len() {
                    1 => None,
                    _ => Some(call.lanes::<Int32Type>(1)?),
                };
                Self::Decimals { values, scale, shown }
            }
        })
    }

    /// Appends a row's number; nothing of NULL.
    pub(super) fn write(&self, row: usize, target: &mut String) -> Result<()> {
        match self {
            Self::Singles { values, settings } => match (values.get(row), settings.get(row)) {
                (Some(value), Some(setting)) => write_float(target, value, extra_digits(setting)?),
                _ => Ok(()),
            },
            Self::Doubles { values, settings } => match (values.get(row), settings.get(row)) {
                (Some(value), Some(setting)) => write_float(target, value, extra_digits(setting)?),
                _ => Ok(()),
            },
            Self::Decimals { values, scale, shown } => {
                let shown = match shown {
                    None => Some(*scale),
                    Some(shown) => shown.get(row).map(|shown| u32::try_from(shown).unwrap_or(0)),
                };
                match (values, shown) {
                    (_, None) => Ok(()),
                    (Decimals::Narrow(values), Some(shown)) => {
                        write_decimal(target, values.get(row), *scale, shown)
                    }
                    (Decimals::Wide(values), Some(shown)) => {
                        write_decimal(target, values.get(row), *scale, shown)
                    }
                }
            }
        }
    }
}

/// Appends a decimal with fewer digits behind the point than it has: the others are zeroes.
fn write_decimal(target: &mut String, digits: Option<impl Display>, scale: u32, shown: u32) -> Result<()> {
    let Some(digits) = digits else { return Ok(()) };
    if scale == 0 {
        return write!(target, "{digits}").map_err(failed);
    }
    let text = decimal_text(&digits.to_string(), scale);
    let cut = scale.saturating_sub(shown) as usize + usize::from(shown == 0);
    target.push_str(text.get(..text.len().saturating_sub(cut)).unwrap_or_default());
    Ok(())
}

fn failed(error: fmt::Error) -> Error {
    Error::internal(error.to_string())
}

/// The setting `extra_float_digits`, as it is shown.
fn extra_digits(setting: &str) -> Result<i32> {
    setting.parse().map_err(|_| Error::internal(format!("{setting} is no number of digits")))
}

/// A type of floats.
pub(super) trait Float: Copy + LowerExp + Into<f64> {
    /// Decimal digits that every number keeps.
    const DIGITS: i32;
    /// Decimal digits that tell any two numbers apart.
    const DIGITS_MAX: usize;
    /// Binary digits of a number halfway between two.
    const HALFWAY_BITS: u32;

    /// Whether a text is read as the number.
    fn is_read(self, text: &str) -> bool;
}

impl Float for f64 {
    const DIGITS: i32 = 15;
    const DIGITS_MAX: usize = 17;
    const HALFWAY_BITS: u32 = 54;

    fn is_read(self, text: &str) -> bool {
        text.parse() == Ok(self)
    }
}

impl Float for f32 {
    const DIGITS: i32 = 6;
    const DIGITS_MAX: usize = 9;
    const HALFWAY_BITS: u32 = 25;

    fn is_read(self, text: &str) -> bool {
        text.parse() == Ok(self)
    }
}

/// A float by the setting `extra_float_digits`: with the fewest digits that are read as the same number, or with so many more or less than
/// it always keeps.
pub(super) fn write_float<F: Float>(target: &mut String, value: F, extra_digits: i32) -> Result<()> {
    let double: f64 = value.into();
    if double.is_nan() {
        target.push_str("NaN");
        return Ok(());
    }
    if double.is_sign_negative() {
        target.push('-');
    }
    if double.is_infinite() {
        target.push_str("Infinity");
        return Ok(());
    }
    if double == 0.0 {
        target.push('0');
        return Ok(());
    }
    match extra_digits {
        1.. => shortest(value).write(target, F::DIGITS),
        less => {
            let digits = (F::DIGITS + less).max(1);
            Digits::of(&format!("{double:.*e}", digits as usize - 1)).write(target, digits)
        }
    }
    .map_err(failed)
}

/// The fewest digits that a reader takes for the number, and of these the nearest ones. PostgreSQL does not trust readers with digits
/// exactly halfway between two numbers, and writes more of them.
fn shortest<F: Float>(value: F) -> Digits {
    let short = Digits::of(&format!("{value:e}"));
    let count = short.digits.len();
    for digits in count..=F::DIGITS_MAX {
        // Of two that are equally near, the even one.
        let text = format!("{value:.*e}", digits - 1);
        let nearest = Digits::of(&text);
        if value.is_read(&text) && !nearest.is_halfway(F::HALFWAY_BITS) {
            return nearest;
        }
        if digits == count && !short.is_halfway(F::HALFWAY_BITS) {
            break;
        }
    }
    short
}

/// A number without its sign: digits without zeroes at the end, of which the first is before the point, times a power of ten.
struct Digits {
    digits: String,
    exponent: i32,
}

impl Digits {
    /// From a text such as `-1.25e-7`.
    fn of(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut digits: String = mantissa.bytes().filter(u8::is_ascii_digit).map(char::from).collect();
        digits.truncate(digits.trim_end_matches('0').len().max(1));
        Self { digits, exponent: exponent.parse().unwrap_or(0) }
    }

    /// Whether it has as many binary digits as a number halfway between two floats.
    fn is_halfway(&self, bits: u32) -> bool {
        let power = self.exponent - (self.digits.len() as i32 - 1);
        let digits: u128 = self.digits.parse().unwrap_or(0);
        if digits == 0 || power.unsigned_abs() > HALFWAY_POWER_MAX {
            return false;
        }
        let five = 5_u128.pow(power.unsigned_abs());
        let odd = match power {
            0.. => (digits >> digits.trailing_zeros()) * five,
            _ if digits.is_multiple_of(five) => digits / five,
            _ => return false,
        };
        128 - odd.leading_zeros() - odd.trailing_zeros() == bits
    }

    /// As `printf` writes it by `%g`: with an exponent where it has more than so many digits before the point, or four zeroes behind it.
    fn write(&self, target: &mut String, whole_digits_max: i32) -> fmt::Result {
        let Self { digits, exponent } = self;
        let (first, others) = digits.split_at(1);
        if !(-4..whole_digits_max).contains(exponent) {
            let point = if others.is_empty() { "" } else { "." };
            let sign = if *exponent < 0 { '-' } else { '+' };
            return write!(target, "{first}{point}{others}e{sign}{:02}", exponent.abs());
        }
        let Ok(whole) = usize::try_from(exponent + 1) else {
            return write!(
                target,
                "0.{digits:0>width$}",
                width = digits.len() + exponent.unsigned_abs() as usize - 1
            );
        };
        match digits.split_at_checked(whole) {
            Some((whole, "")) => target.write_str(whole),
            Some(("", fraction)) => write!(target, "0.{fraction}"),
            Some((whole, fraction)) => write!(target, "{whole}.{fraction}"),
            None => write!(target, "{digits:0<whole$}"),
        }
    }
}
