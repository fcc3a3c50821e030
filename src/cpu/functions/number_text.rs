//! Numbers as text by the formats of `to_char`.
//!
//! Source: PostgreSQL 15, `formatting.c` (`int4_to_char`, `numeric_to_char`, `float8_to_char`, `NUM_processor`, `NUM_numpart_to_char`).

use arrow::{
    array::ArrayRef,
    datatypes::{DataType as ArrowType, Float32Type, Float64Type},
};
use pystachio_plan::{Error, ErrorKind, NumberFormat, NumberPart, Result};

use super::{
    digits::{Decimals, Digits, decimal_text, rescale},
    invocation::Invocation,
};

/// Significant digits that a double has, and a float of 32 bits.
const DOUBLE_DIGITS: usize = 15;
const SINGLE_DIGITS: usize = 6;

/// `to_char(number, format)`.
///
/// # Errors
///
/// `NotSupported` for a format that [`NumberFormat`] does not read.
pub(super) fn format_number(call: &Invocation<'_>) -> Result<ArrayRef> {
    match call.arrow_type(0)? {
        ArrowType::Float64 => {
            let lanes = call.lanes::<Float64Type>(0)?;
            write_all(call, |row, format| {
                lanes.get(row).map(|value| Number::float(value, DOUBLE_DIGITS, format))
            })
        }
        ArrowType::Float32 => {
            let lanes = call.lanes::<Float32Type>(0)?;
            write_all(call, |row, format| {
                lanes.get(row).map(|value| Number::float(f64::from(value), SINGLE_DIGITS, format))
            })
        }
        _ => {
            let (digits, scale) = Decimals::new(call.argument(0)?)?;
            match &digits {
                Decimals::Narrow(lanes) => write_all(call, |row, format| {
                    lanes.get(row).map(|value| Number::decimal(value, scale, format))
                }),
                Decimals::Wide(lanes) => write_all(call, |row, format| {
                    lanes.get(row).map(|value| Number::decimal(value, scale, format))
                }),
            }
        }
    }
}

fn write_all(
    call: &Invocation<'_>,
    number: impl Fn(usize, &NumberFormat) -> Option<Number>,
) -> Result<ArrayRef> {
    let formats = call.text(1)?;
    let mut known: Option<(String, NumberFormat)> = None;
    let mut written = Vec::new();
    call.write_texts(|row, target| {
        let Some(format) = formats.get(row) else { return Ok(false) };
        if known.as_ref().is_none_or(|(text, _)| text != format) {
            let parsed = NumberFormat::parse(format).map_err(|_| unread(format))?;
            known = Some((format.to_owned(), parsed));
        }
        let Some((_, format)) = &known else { return Ok(false) };
        let Some(number) = number(row, format) else { return Ok(false) };
        written.clear();
        Writer::new(format, &number).write(&mut written);
        // Behind its last digit PostgreSQL takes the end of a number for a digit, which ends the text.
        let end = written.iter().position(|byte| *byte == 0).unwrap_or(written.len());
        target.push_str(&String::from_utf8_lossy(written.get(..end).unwrap_or_default()));
        Ok(true)
    })
}

fn unread(format: &str) -> Error {
    Error::new(ErrorKind::NotSupported, format!("number format \"{format}\" can't be used"))
        .with_hint("SET pystachio.pushdown = off lets PostgreSQL write it.")
}

/// A number that is to be written.
struct Number {
    /// Its digits and their point, without its sign.
    text: Vec<u8>,
    is_negative: bool,
    /// Digits behind the point that the format still has.
    fraction_digits: usize,
}

impl Number {
    fn decimal<D: Digits>(value: D, scale: u32, format: &NumberFormat) -> Self {
        let wanted = format.fraction_digits;
        // Digits that the value does not have are zeros.
        let kept = u32::try_from(wanted).unwrap_or(scale).min(scale);
        let rounded = rescale(value, scale, kept).unwrap_or(value);
        let mut text = decimal_text(&rounded.to_string(), kept);
        if kept == 0 && wanted > 0 {
            text.push('.');
        }
        text.extend(std::iter::repeat_n('0', wanted - kept as usize));
        Self::signed(&text, wanted)
    }

    fn float(value: f64, digits: usize, format: &NumberFormat) -> Self {
        let whole = fixed_text(value.abs(), 0).len();
        let fraction_digits = match digits.checked_sub(whole) {
            None | Some(0) => 0,
            Some(left) => format.fraction_digits.min(left),
        };
        Self::signed(&fixed_text(value, fraction_digits), fraction_digits)
    }

    fn signed(text: &str, fraction_digits: usize) -> Self {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        Self { text: text.as_bytes().to_vec(), is_negative, fraction_digits }
    }
}

/// A double as `%.*f` prints it.
fn fixed_text(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() };
    }
    format!("{value:.digits$}")
}

/// What PostgreSQL keeps while it writes a number.
struct Writer<'a> {
    format: &'a NumberFormat,
    number: Vec<u8>,
    is_negative: bool,
    fraction_digits: usize,
    has_brackets: bool,
    /// The last digit that is written, or the point.
    last_relevant: Option<usize>,
    is_sign_written: bool,
    /// Whether the last part wrote a digit.
    is_in_number: bool,
    /// Parts of digits and of the point that are written.
    current: usize,
    /// One more than there are before the last one, blanks and the point aside.
    count: usize,
    /// Digits of the format before the number's first.
    blanks: usize,
    /// The number's next character.
    next: usize,
}

impl<'a> Writer<'a> {
    fn new(format: &'a NumberFormat, number: &Number) -> Self {
        let (whole, fraction_digits) = (format.whole_digits, number.fraction_digits);
        let own = number.text.iter().position(|byte| *byte == b'.').unwrap_or(number.text.len());
        let mut text = number.text.clone();
        if own > whole {
            text = vec![b'#'; whole + fraction_digits + 1];
            if let Some(point) = text.get_mut(whole) {
                *point = b'.';
            }
        }
        let blanks = whole.saturating_sub(own);
        let is_positive = !number.is_negative;
        let has_other_sign = format.has_plus || format.has_minus;
        let has_no_sign = is_positive && format.is_compact && !has_other_sign;
        let has_brackets = format.has_brackets && !has_no_sign;
        let is_sign_written = match (format.has_plus, format.has_minus) {
            (false, false) => is_positive && format.is_compact,
            (has_plus, has_minus) => !has_plus || has_minus,
        };
        let last_relevant = (format.is_compact && format.has_point)
            .then(|| last_relevant(&text, format.zeros_to, blanks))
            .flatten();
        let mut count = fraction_digits + whole;
        if !is_sign_written && blanks == 0 {
            count += 1;
        }
        Self {
            format,
            number: text,
            is_negative: number.is_negative,
            fraction_digits,
            has_brackets,
            last_relevant,
            is_sign_written,
            is_in_number: false,
            current: 0,
            count,
            blanks,
            next: 0,
        }
    }

    fn write(mut self, target: &mut Vec<u8>) {
        let is_compact = self.format.is_compact;
        for part in &self.format.parts {
            match part {
                NumberPart::Digit | NumberPart::Point => self.write_digit(target, false),
                NumberPart::Zero => self.write_digit(target, true),
                NumberPart::Comma if self.is_in_number => target.push(b','),
                NumberPart::Minus if self.is_negative => target.push(b'-'),
                NumberPart::Plus if !self.is_negative => target.push(b'+'),
                NumberPart::Comma | NumberPart::Minus | NumberPart::Plus => {
                    target.extend((!is_compact).then_some(b' '));
                }
                NumberPart::Sign => target.push(if self.is_negative { b'-' } else { b'+' }),
                NumberPart::Ordinal { is_lower } => self.write_ending(target, *is_lower),
                NumberPart::Character(character) => {
                    target.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
    }

    /// The ending of an ordinal number, which those without sign and point have.
    fn write_ending(&self, target: &mut Vec<u8>, is_lower: bool) {
        if self.number.first() == Some(&b'#') || self.is_negative || self.format.has_point {
            return;
        }
        let mut digits = self.number.iter().rev();
        let (last, before) = (digits.next(), digits.next());
        let ending = match last {
            _ if before == Some(&b'1') => "TH",
            Some(b'1') => "ST",
            Some(b'2') => "ND",
            Some(b'3') => "RD",
            _ => "TH",
        };
        target.extend(if is_lower { ending.to_ascii_lowercase() } else { ending.to_owned() }.bytes());
    }

    /// A zero before the point, which is not written: `.1`.
    fn is_blank_zero(&self) -> bool {
        self.format.zeros_from.is_none()
            && self.next == 0
            && self.number.first() == Some(&b'0')
            && self.fraction_digits != 0
    }

    /// Whether no digit behind the point is written.
    fn ends_at_point(&self) -> bool {
        self.last_relevant.is_some_and(|last| self.number.get(last) == Some(&b'.'))
    }

    /// A digit or the point, and the sign before the first.
    fn write_digit(&mut self, target: &mut Vec<u8>, is_zero: bool) {
        self.is_in_number = false;
        let is_before = self.current < self.blanks;
        let is_zero_place = self.format.zeros_from.is_some_and(|from| from <= self.current);
        let is_first_zero = self.format.zeros_from == Some(self.current);
        if !self.is_sign_written
            && (!is_before || is_first_zero)
            && (!self.is_blank_zero() || self.ends_at_point())
        {
            self.write_sign(target);
        }
        if is_before && !is_zero_place {
            target.extend((!self.format.is_compact).then_some(b' '));
        } else if is_before {
            target.push(b'0');
            self.is_in_number = true;
        } else {
            self.write_number(target, is_zero);
        }
        let end = self.count + usize::from(self.blanks > 0) + usize::from(self.format.has_point);
        let is_last = self.current + 2 == end && self.last_relevant != Some(self.next);
        if is_last && self.is_sign_written && self.has_brackets {
            target.push(if self.is_negative { b'>' } else { b' ' });
        }
        self.current += 1;
    }

    fn write_sign(&mut self, target: &mut Vec<u8>) {
        self.is_sign_written = true;
        match (self.has_brackets, self.is_negative) {
            (true, true) => target.push(b'<'),
            (true, false) => target.push(b' '),
            (false, true) => target.push(b'-'),
            (false, false) => target.extend((!self.format.is_compact).then_some(b' ')),
        }
    }

    /// The number's next character.
    fn write_number(&mut self, target: &mut Vec<u8>, is_zero: bool) {
        let next = self.number.get(self.next).copied().unwrap_or(0);
        if next == b'.' {
            target.push(b'.');
        } else if self.last_relevant.is_some_and(|last| self.next > last) && !is_zero {
            // Zeros at the end.
        } else if self.is_blank_zero() {
            match self.format.is_compact {
                false => target.push(b' '),
                true => target.extend(self.ends_at_point().then_some(b'0')),
            }
        } else {
            target.push(next);
            self.is_in_number = true;
        }
        if next != 0 {
            self.next += 1;
        }
    }
}

/// The last digit behind the point that is no zero, or that the format has as one.
fn last_relevant(number: &[u8], zeros_to: usize, blanks: usize) -> Option<usize> {
    let point = number.iter().position(|byte| *byte == b'.')?;
    // At least the point is no zero.
    let last = number.iter().rposition(|digit| *digit != b'0').unwrap_or(point);
    if zeros_to <= blanks {
        return Some(last);
    }
    let last_zero = (number.len() - 1).min(zeros_to - blanks);
    Some(last.max(last_zero))
}
