//! Values that are read from text, as the input functions of their types read them.
//!
//! Source: PostgreSQL 15 and 16, `numutils.c` (`pg_strtoint16`, `pg_strtoint32`, `pg_strtoint64`), `float.c` (`float4in`, `float8in`),
//! `numeric.c` (`numeric_in`, `apply_typmod`), `bool.c` (`boolin`, `parse_bool_with_len`), `uuid.c` (`string_to_uuid`).

use std::{borrow::Cow, sync::Arc};

use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array,
};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    decimal_text::DecimalText, digits::narrow_array, faults::field_overflow, invocation::Invocation,
    lanes::Nullable,
};
use crate::error::from_arrow;

/// Bytes of a `uuid`.
const UUID_BYTES: usize = 16;

/// `text::type`.
///
/// # Errors
///
/// PostgreSQL's of a text that is no value of the type.
pub(super) fn parse(call: &Invocation<'_>) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    let bases = call.array(1)?;
    let has_bases = bases.as_any().downcast_ref::<BooleanArray>().is_some_and(|bases| bases.value(0));
    let rows = || (0..call.rows).map(|row| texts.get(row));
    Ok(match call.result {
        DataType::Int16 => {
            Arc::new(all::<_, Int16Array>(rows(), |text| integer(text, "smallint", has_bases))?)
        }
        DataType::Int32 => {
            Arc::new(all::<_, Int32Array>(rows(), |text| integer(text, "integer", has_bases))?)
        }
        DataType::Int64 => Arc::new(all::<_, Int64Array>(rows(), |text| integer(text, "bigint", has_bases))?),
        DataType::Float32 => Arc::new(all::<_, Float32Array>(rows(), |text| {
            float(
                text,
                "real",
                |number| number.parse::<f32>().unwrap_or_default(),
                |hexadecimal| hexadecimal as f32,
            )
        })?),
        DataType::Float64 => Arc::new(all::<_, Float64Array>(rows(), |text| {
            float(
                text,
                "double precision",
                |number| number.parse::<f64>().unwrap_or_default(),
                |hexadecimal| hexadecimal,
            )
        })?),
        DataType::Decimal { precision, scale } => {
            let read = |text| decimal(text, *precision, *scale, has_bases);
            let values = rows().map(|text| text.map(read).transpose()).collect::<Result<Vec<_>>>()?;
            let nulls = values.iter().map(Option::is_some).collect::<Vec<_>>().into();
            let values = values.into_iter().map(Option::unwrap_or_default).collect();
            return narrow_array(Nullable { values, nulls: Some(nulls) }, call.result);
        }
        DataType::Bool => Arc::new(all::<_, BooleanArray>(rows(), boolean)?),
        DataType::Uuid => {
            let values = rows().map(|text| text.map(uuid).transpose()).collect::<Result<Vec<_>>>()?;
            let array =
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), UUID_BYTES as i32);
            Arc::new(array.map_err(|error| from_arrow(&error))?)
        }
        _ => return Err(call.not_supported("a cast")),
    })
}

fn all<'a, T, A: FromIterator<Option<T>>>(
    texts: impl Iterator<Item = Option<&'a str>>,
    read: impl Fn(&'a str) -> Result<T>,
) -> Result<A> {
    texts.map(|text| text.map(&read).transpose()).collect()
}

/// PostgreSQL's error of a text that a type does not read.
fn invalid(type_name: &str, text: &str) -> Error {
    Error::new(ErrorKind::InvalidText, format!("invalid input syntax for type {type_name}: \"{text}\""))
}

/// Whether C takes a byte for white space.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A text without white space at its ends.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|character: char| u8::try_from(character).is_ok_and(is_blank))
}

/// An integer of a type: with a sign, in digits; in digits of other bases and with underscores between them if `has_bases`.
fn integer<T: TryFrom<i128>>(text: &str, type_name: &str, has_bases: bool) -> Result<T> {
    let out_of_range = || {
        let message = format!("value \"{text}\" is out of range for type {type_name}");
        Error::new(ErrorKind::NumericOutOfRange, message)
    };
    let inner = trimmed(text);
    let (is_negative, unsigned) = match inner.as_bytes().first() {
        Some(b'-') => (true, &inner[1..]),
        Some(b'+') => (false, &inner[1..]),
        _ => (false, inner),
    };
    let (base, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] if has_bases => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] if has_bases => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] if has_bases => (2, &unsigned[2..]),
        _ => (10, unsigned),
    };
    let mut magnitude: i128 = 0;
    let mut rest = digits.chars().peekable();
    let mut is_first = true;
    while let Some(next) = rest.next() {
        match next.to_digit(base) {
            Some(digit) => magnitude = magnitude * i128::from(base) + i128::from(digit),
            // An underscore is between digits, or behind the letter of a base.
            None if next == '_'
                && has_bases
                && !(is_first && base == 10)
                && rest.peek().is_some_and(|next| next.is_digit(base)) => {}
            None => return Err(invalid(type_name, text)),
        }
        is_first = false;
        // PostgreSQL notices a number that is too large before what follows it.
        if magnitude > i128::from(u64::MAX) || (magnitude > 0 && T::try_from(-magnitude).is_err()) {
            return Err(out_of_range());
        }
    }
    if is_first {
        return Err(invalid(type_name, text));
    }
    let value = if is_negative { -magnitude } else { magnitude };
    T::try_from(value).map_err(|_| out_of_range())
}

/// A `numeric(p,s)`, in units of its last digit.
///
/// # Errors
///
/// Besides PostgreSQL's, `NotSupported` for NaN, which decimals lack.
fn decimal(text: &str, precision: u8, scale: u8, has_bases: bool) -> Result<i128> {
    let inner = trimmed(text);
    let unsigned = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    let is_word = |word: &str| unsigned.eq_ignore_ascii_case(word);
    if is_word("infinity") || is_word("inf") {
        let detail =
            format!("A field with precision {precision}, scale {scale} cannot hold an infinite value.");
        return Err(Error::new(ErrorKind::NumericOutOfRange, "numeric field overflow").with_detail(detail));
    }
    if inner.eq_ignore_ascii_case("nan") {
        let message =
            format!("the engine's numeric({precision},{scale}) has no NaN, which a text is cast to");
        return Err(Error::new(ErrorKind::NotSupported, message)
            .with_hint("SET pystachio.pushdown = off lets PostgreSQL compute it."));
    }
    let overflow = || field_overflow(precision, u32::from(scale));
    let bound = 10i128.pow(u32::from(precision));
    let value = match unsigned.as_bytes() {
        [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', ..] if has_bases => {
            let whole: i128 = match integer::<i128>(inner, "numeric", true) {
                Err(error) if error.kind == ErrorKind::NumericOutOfRange => return Err(overflow()),
                whole => whole.map_err(|_| invalid("numeric", text))?,
            };
            whole.checked_mul(10i128.pow(u32::from(scale))).ok_or_else(overflow)?
        }
        _ => {
            let number = without_separators(inner, has_bases).ok_or_else(|| invalid("numeric", text))?;
            DecimalText::of(&number)?.rounded(u32::from(scale)).ok_or_else(overflow)?
        }
    };
    if value.abs() < bound { Ok(value) } else { Err(overflow()) }
}

/// A decimal number without what only PostgreSQL reads in it; `None` of a text that is none.
fn without_separators(text: &str, has_underscores: bool) -> Option<Cow<'_, str>> {
    let mut number = Cow::Borrowed(text);
    if has_underscores && text.contains('_') {
        let bytes = text.as_bytes();
        let is_digit =
            |place: Option<usize>| place.and_then(|place| bytes.get(place)).is_some_and(u8::is_ascii_digit);
        let is_between = |place: usize| is_digit(place.checked_sub(1)) && is_digit(Some(place + 1));
        if !text.match_indices('_').all(|(place, _)| is_between(place)) {
            return None;
        }
        number = Cow::Owned(text.replace('_', ""));
    }
    // Before version 16 blanks may stand before an exponent, which C reads.
    if !has_underscores && let Some((mantissa, exponent)) = text.split_once(['e', 'E']) {
        let inner =
            exponent.trim_start_matches(|character: char| u8::try_from(character).is_ok_and(is_blank));
        if inner.len() < exponent.len() {
            number = Cow::Owned(format!("{mantissa}e{inner}"));
        }
    }
    let unsigned = number.strip_prefix(['-', '+']).unwrap_or(&number);
    let (length, _) = decimal_length(unsigned)?;
    (length == unsigned.len()).then_some(number)
}

/// A float of a type, as `strtod` reads it.
fn float<T: Copy + Into<f64>>(
    text: &str,
    type_name: &str,
    decimal: impl Fn(&str) -> T,
    rounded: impl Fn(f64) -> T,
) -> Result<T> {
    let start = text.trim_start_matches(|character: char| u8::try_from(character).is_ok_and(is_blank));
    let unsigned = start.strip_prefix(['-', '+']).unwrap_or(start);
    let sign = if start.starts_with('-') { -1.0 } else { 1.0 };
    let begins =
        |word: &str| unsigned.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    let (length, value) = if begins("infinity") {
        (8, rounded(sign * f64::INFINITY))
    } else if begins("inf") {
        (3, rounded(sign * f64::INFINITY))
    } else if begins("nan") {
        (3 + payload_length(&unsigned[3..]), rounded(f64::NAN))
    } else {
        let hexadecimal = hexadecimal(unsigned);
        let (length, is_zero) = match hexadecimal {
            Some((length, value)) => (length, value == Some(0.0)),
            None => decimal_length(unsigned).ok_or_else(|| invalid(type_name, text))?,
        };
        let signed = &start[..start.len() - unsigned.len() + length];
        let value = match hexadecimal {
            Some((_, value)) => rounded(sign * value.unwrap_or(f64::INFINITY)),
            None => decimal(signed),
        };
        let wide: f64 = value.into();
        if wide.is_infinite() || (wide == 0.0 && !is_zero) {
            let message = format!("\"{signed}\" is out of range for type {type_name}");
            return Err(Error::new(ErrorKind::NumericOutOfRange, message));
        }
        (length, value)
    };
    match trimmed(&unsigned[length..]).is_empty() {
        true => Ok(value),
        false => Err(invalid(type_name, text)),
    }
}

/// The length of what may follow `nan`: letters, digits and underscores in brackets.
fn payload_length(rest: &str) -> usize {
    let inner = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    match inner {
        Some((inner, _)) if inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
            inner.len() + 2
        }
        _ => 0,
    }
}

/// The length of a decimal number at the start of a text, and whether all of its digits are zeros.
fn decimal_length(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut length = whole;
    let mut behind = 0;
    if bytes.get(whole) == Some(&b'.') {
        behind = digits(whole + 1);
        length += 1 + behind;
    }
    if whole + behind == 0 {
        return None;
    }
    let is_zero = bytes[..length].iter().all(|byte| matches!(byte, b'0' | b'.'));
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'-' | b'+')));
        let from = length + 1 + sign;
        let exponent = if from <= bytes.len() { digits(from) } else { 0 };
        if exponent > 0 {
            length = from + exponent;
        }
    }
    Some((length, is_zero))
}

/// The length of a hexadecimal number of C at the start of a text, such as `0x1.8p3`, and its value; no value if it is too large or too
/// small. `None` if there is no such number.
fn hexadecimal(text: &str) -> Option<(usize, Option<f64>)> {
    /// Bits that a mantissa may have before digits are only looked at for whether one of them is no zero.
    const KEPT_BITS: u32 = 120;
    let rest = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let (mut mantissa, mut exponent, mut digits, mut has_point) = (0u128, 0i64, 0, false);
    let mut length = 2;
    for byte in rest.bytes() {
        match char::from(byte).to_digit(16) {
            Some(digit) => {
                digits += 1;
                match mantissa >> KEPT_BITS {
                    0 => {
                        mantissa = mantissa << 4 | u128::from(digit);
                        exponent -= if has_point { 4 } else { 0 };
                    }
                    _ => {
                        mantissa |= u128::from(digit != 0);
                        exponent += if has_point { 0 } else { 4 };
                    }
                }
            }
            None if byte == b'.' && !has_point => has_point = true,
            None => break,
        }
        length += 1;
    }
    if digits == 0 {
        return None;
    }
    if let Some(power) = text[length..].strip_prefix(['p', 'P']) {
        let sign = usize::from(power.starts_with(['-', '+']));
        let count = power[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if count > 0 {
            exponent = exponent.saturating_add(power[..sign + count].parse().unwrap_or(i64::from(i32::MAX)));
            length += 1 + sign + count;
        }
    }
    if mantissa == 0 {
        return Some((length, Some(0.0)));
    }
    // In steps that are exact, but for the last one of a number below the normal ones.
    let mut value = mantissa as f64;
    let mut left = exponent.clamp(-4000, 4000) as i32;
    while left != 0 && value != 0.0 && value.is_finite() {
        let step = left.clamp(-500, 500);
        value *= 2f64.powi(step);
        left -= step;
    }
    Some((length, (value != 0.0 && value.is_finite()).then_some(value)))
}

/// A boolean: a word of them or its start.
fn boolean(text: &str) -> Result<bool> {
    let word = trimmed(text);
    let begins =
        |of: &str| !word.is_empty() && of.get(..word.len()).is_some_and(|of| of.eq_ignore_ascii_case(word));
    // "o" may be one or the other.
    let is_whole = word.len() > 1;
    if begins("true") || begins("yes") || (is_whole && begins("on")) || word == "1" {
        return Ok(true);
    }
    if begins("false") || begins("no") || (is_whole && begins("off")) || word == "0" {
        return Ok(false);
    }
    Err(invalid("boolean", text))
}

/// A uuid: 32 digits, with a hyphen behind any four of them, in braces or not.
fn uuid(text: &str) -> Result<[u8; UUID_BYTES]> {
    let bytes = text.as_bytes();
    let inner = match bytes.strip_prefix(b"{") {
        Some(inner) => inner.strip_suffix(b"}"),
        None => Some(bytes),
    };
    let read = |mut rest: &[u8]| {
        let mut value = [0u8; UUID_BYTES];
        for (place, byte) in value.iter_mut().enumerate() {
            let digit = |of: usize| rest.get(of).and_then(|digit| char::from(*digit).to_digit(16));
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
            rest = &rest[2..];
            if place % 2 == 1 && place < UUID_BYTES - 1 {
                rest = rest.strip_prefix(b"-").unwrap_or(rest);
            }
        }
        rest.is_empty().then_some(value)
    };
    inner.and_then(read).ok_or_else(|| invalid("uuid", text))
}

#[cfg(test)]
mod tests;
