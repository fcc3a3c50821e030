//! Numbers that are read from text by the formats of `to_number`.
//!
//! Source: PostgreSQL 15, `formatting.c` (`numeric_to_number`, `NUM_processor`, `NUM_numpart_from_char`) and `numeric.c` (`numeric_in`,
//! `apply_typmod`).

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use pystachio_plan::{Error, ErrorKind, NumberFormat, NumberPart, Result};

use super::{
    digits::{Digits, narrow_array, result_type},
    faults::field_overflow,
    invocation::Invocation,
    lanes::Nullable,
};

/// `to_number(text, format)`.
///
/// # Errors
///
/// PostgreSQL's of texts that are no number, and of numbers with more digits than the format.
pub(super) fn read_number(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (_, scale) = result_type(call.result)?;
    let values = read_all(call, |number, format| number.value(format, scale))?;
    let nulls = values.iter().map(Option::is_some).collect::<Vec<_>>().into();
    let values = values.into_iter().map(Option::unwrap_or_default).collect();
    narrow_array(Nullable { values, nulls: Some(nulls) }, call.result)
}

/// The digits behind the point of what [`read_number`] reads.
pub(super) fn read_number_scale(call: &Invocation<'_>) -> Result<ArrayRef> {
    let scales = read_all(call, |number, _| Ok(number.counts[1] as i32))?;
    Ok(Arc::new(scales.into_iter().collect::<Int32Array>()))
}

fn read_all<T>(
    call: &Invocation<'_>,
    value: impl Fn(&ReadNumber, &NumberFormat) -> Result<T>,
) -> Result<Vec<Option<T>>> {
    let (texts, formats) = (call.text(0)?, call.text(1)?);
    let mut known: Option<(String, NumberFormat)> = None;
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let (Some(text), Some(format)) = (texts.get(row), formats.get(row)) else {
            values.push(None);
            continue;
        };
        let format = match &mut known {
            Some((known, parsed)) if known == format => parsed,
            known => &mut known.insert((format.to_owned(), parsed(format)?)).1,
        };
        values.push(Some(value(&ReadNumber::of(format, text), format)?));
    }
    Ok(values)
}

fn parsed(format: &str) -> Result<NumberFormat> {
    NumberFormat::parse(format).map_err(|_| {
        Error::new(ErrorKind::NotSupported, format!("number format \"{format}\" can't be used"))
            .with_hint("SET pystachio.pushdown = off lets PostgreSQL read it.")
    })
}

/// A number as it stands in a text.
#[derive(Debug, Default)]
struct ReadNumber {
    sign: Option<u8>,
    /// Digits, and a point among them.
    digits: String,
    /// Digits before the point, and behind it.
    counts: [usize; 2],
    has_point: bool,
}

impl ReadNumber {
    /// Reads a text by a format.
    fn of(format: &NumberFormat, text: &str) -> Self {
        let mut number = Self::default();
        let mut input = text.as_bytes();
        for part in &format.parts {
            let Some(first) = input.first() else { break };
            let step = match part {
                // In the place of a text any character may stand.
                NumberPart::Character(_) => match first {
                    0xf0.. => 4,
                    0xe0.. => 3,
                    0xc0.. => 2,
                    _ => 1,
                },
                NumberPart::Comma if format.is_compact || *first != b',' => 0,
                NumberPart::Comma => 1,
                NumberPart::Digit | NumberPart::Zero => {
                    number.read(&mut input, format, true);
                    1
                }
                _ => {
                    number.read(&mut input, format, false);
                    1
                }
            };
            input = input.get(step..).unwrap_or_default();
        }
        if number.digits.ends_with('.') {
            number.digits.pop();
        }
        number
    }

    /// The number at a scale.
    fn value(&self, format: &NumberFormat, scale: u32) -> Result<i128> {
        if self.counts == [0, 0] {
            let sign = self.sign.map_or(' ', char::from);
            let message = format!("invalid input syntax for type numeric: \"{sign}\"");
            return Err(Error::new(ErrorKind::InvalidText, message));
        }
        let [_, fraction] = self.counts;
        let (whole, behind) = self.digits.split_once('.').unwrap_or((&self.digits, ""));
        if whole.trim_start_matches('0').len() > format.whole_digits {
            return Err(field_overflow((format.whole_digits + fraction) as u8, fraction as u32));
        }
        let digits: i128 = format!("{whole}{behind}").parse().unwrap_or_default();
        let zeroes = scale.saturating_sub(fraction as u32);
        let magnitude = i128::power_of_ten(zeroes).and_then(|power| digits.checked_mul(power));
        let magnitude = magnitude.ok_or_else(|| Error::internal("a number exceeds its format"))?;
        Ok(if self.sign == Some(b'-') { -magnitude } else { magnitude })
    }

    /// Reads what stands in the place of a digit or the point, up to its last character.
    fn read(&mut self, input: &mut &[u8], format: &NumberFormat, is_digit: bool) {
        let skip = |input: &mut &[u8]| *input = input.get(1..).unwrap_or_default();
        if input.first() == Some(&b' ') {
            skip(input);
        }
        let has_digits = self.counts != [0, 0];
        if let (Some(sign @ (b'-' | b'+')), None, false, true) =
            (input.first(), self.sign, has_digits, is_digit)
        {
            self.sign = Some(*sign);
            skip(input);
        }
        let Some(first) = input.first() else { return };
        match first {
            b'0'..=b'9' => {
                if self.has_point && self.counts[1] == format.fraction_digits {
                    return;
                }
                self.digits.push(char::from(*first));
                self.counts[usize::from(self.has_point)] += 1;
            }
            b'.' if format.has_point && !self.has_point => {
                self.digits.push('.');
                self.has_point = true;
            }
            _ => {}
        }
    }
}
