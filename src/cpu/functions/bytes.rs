//! Texts as bytes and code points: digests, encodings, digits.
//!
//! Source: PostgreSQL 15, `oracle_compat.c` (`ascii`, `chr`), `varlena.c` (`to_hex32`), `cryptohashfuncs.c` and `encode.c`.

use std::{fmt::Write, sync::Arc};

use arrow::{
    array::{ArrayRef, BinaryViewBuilder, Int32Array, StringViewBuilder},
    datatypes::{DataType as ArrowType, Int32Type, Int64Type},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use md5::{Digest as _, Md5};
use pystachio_plan::{DataType, Digest, Error, ErrorKind, Result};
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::{invocation::Invocation, lanes::Lanes};

/// Bytes that a line of base64 stands for.
const LINE_BYTES: usize = 57;

/// `ascii`.
pub(super) fn ascii(call: &Invocation<'_>) -> Result<ArrayRef> {
    let text = call.text(0)?;
    // Code points have 21 bits.
    let first = |text: &str| text.chars().next().map_or(0, |character| u32::from(character) as i32);
    let values: Int32Array = (0..call.rows).map(|row| text.get(row).map(first)).collect();
    Ok(Arc::new(values))
}

/// `chr`.
///
/// # Errors
///
/// `InvalidArgument` and `LimitExceeded` for a number that is no character.
pub(super) fn character(call: &Invocation<'_>) -> Result<ArrayRef> {
    let numbers = call.lanes::<Int32Type>(0)?;
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        match numbers.get(row) {
            Some(number) => builder.append_value(character_of(number)?.encode_utf8(&mut [0; 4])),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn character_of(number: i32) -> Result<char> {
    let refused = |message: String| Error::new(ErrorKind::LimitExceeded, message);
    let code_point = u32::try_from(number)
        .map_err(|_| Error::new(ErrorKind::InvalidArgument, "character number must be positive"))?;
    match char::from_u32(code_point) {
        Some('\0') => Err(refused("null character not permitted".to_owned())),
        Some(character) => Ok(character),
        None if code_point > u32::from(char::MAX) => {
            Err(refused(format!("requested character too large for encoding: {code_point}")))
        }
        None => Err(refused(format!("requested character not valid for encoding: {code_point}"))),
    }
}

/// `to_hex`.
pub(super) fn to_hexadecimal(call: &Invocation<'_>) -> Result<ArrayRef> {
    match call.arrow_type(0)? {
        ArrowType::Int32 => {
            write_digits(call, &call.lanes::<Int32Type>(0)?, |value| value.cast_unsigned().into())
        }
        ArrowType::Int64 => write_digits(call, &call.lanes::<Int64Type>(0)?, i64::cast_unsigned),
        _ => Err(call.not_supported("to_hex")),
    }
}

fn write_digits<T: Copy>(
    call: &Invocation<'_>,
    lanes: &Lanes<'_, T>,
    bits: impl Fn(T) -> u64,
) -> Result<ArrayRef> {
    call.write_texts(|row, target| {
        let Some(value) = lanes.get(row) else { return Ok(false) };
        write!(target, "{:x}", bits(value)).map_err(|error| Error::internal(error.to_string()))?;
        Ok(true)
    })
}

/// `md5`, as text, and `sha224` to `sha512`, as bytes.
pub(super) fn digest(digest: Digest, call: &Invocation<'_>) -> Result<ArrayRef> {
    let bytes = call.bytes(0)?;
    if *call.result == DataType::Text {
        return call.write_texts(|row, target| {
            let Some(value) = bytes.get(row) else { return Ok(false) };
            push_hexadecimal(target, &Md5::digest(value));
            Ok(true)
        });
    }
    let mut builder = BinaryViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        let Some(value) = bytes.get(row) else {
            builder.append_null();
            continue;
        };
        match digest {
            Digest::Sha224 => builder.append_value(Sha224::digest(value)),
            Digest::Sha256 => builder.append_value(Sha256::digest(value)),
            Digest::Sha384 => builder.append_value(Sha384::digest(value)),
            Digest::Sha512 => builder.append_value(Sha512::digest(value)),
            Digest::Md5 => return Err(call.not_supported("md5 as bytes")),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn push_hexadecimal(target: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS[usize::from(value & 15)];
    target.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]));
}

/// How bytes are written as text.
#[derive(Clone, Copy)]
enum Format {
    Hexadecimal,
    Base64,
    Escape,
}

impl Format {
    fn of(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "hex" => Ok(Self::Hexadecimal),
            "base64" => Ok(Self::Base64),
            "escape" => Ok(Self::Escape),
            _ => Err(Error::new(ErrorKind::InvalidArgument, format!("unrecognized encoding: \"{name}\""))),
        }
    }
}

/// `encode`.
///
/// # Errors
///
/// `InvalidArgument` for an unknown format.
pub(super) fn encode(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (bytes, formats) = (call.bytes(0)?, call.text(1)?);
    call.write_texts(|row, target| {
        let (Some(bytes), Some(format)) = (bytes.get(row), formats.get(row)) else { return Ok(false) };
        match Format::of(format)? {
            Format::Hexadecimal => push_hexadecimal(target, bytes),
            Format::Base64 => {
                for line in bytes.chunks(LINE_BYTES) {
                    STANDARD.encode_string(line, target);
                    if line.len() == LINE_BYTES {
                        target.push('\n');
                    }
                }
            }
            Format::Escape => bytes.iter().for_each(|byte| push_escaped(target, *byte)),
        }
        Ok(true)
    })
}

fn push_escaped(target: &mut String, byte: u8) {
    match byte {
        0 | 128.. => {
            let digit = |shift: u8| char::from(b'0' + (byte >> shift & 7));
            target.extend(['\\', digit(6), digit(3), digit(0)]);
        }
        b'\\' => target.push_str("\\\\"),
        _ => target.push(byte.into()),
    }
}

/// `decode`.
///
/// # Errors
///
/// `InvalidArgument` for an unknown format; that and `InvalidText` for a text that is not of the format.
pub(super) fn decode(call: &Invocation<'_>) -> Result<ArrayRef> {
    let (texts, formats) = (call.text(0)?, call.text(1)?);
    let mut bytes = Vec::new();
    let mut builder = BinaryViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        let (Some(text), Some(format)) = (texts.get(row), formats.get(row)) else {
            builder.append_null();
            continue;
        };
        bytes.clear();
        match Format::of(format)? {
            Format::Hexadecimal => decode_hexadecimal(text, &mut bytes)?,
            Format::Base64 => decode_base64(text, &mut bytes)?,
            Format::Escape => decode_escaped(text, &mut bytes)?,
        }
        builder.append_value(&bytes);
    }
    Ok(Arc::new(builder.finish()))
}

fn is_blank(character: &char) -> bool {
    matches!(character, ' ' | '\n' | '\t' | '\r')
}

/// Blanks between pairs of digits are skipped.
fn decode_hexadecimal(text: &str, target: &mut Vec<u8>) -> Result<()> {
    let refused = |message: String| Error::new(ErrorKind::InvalidArgument, message);
    let digit = |character: char| {
        let value = character.to_digit(16).and_then(|value| u8::try_from(value).ok());
        value.ok_or_else(|| refused(format!("invalid hexadecimal digit: \"{character}\"")))
    };
    let mut characters = text.chars();
    while let Some(high) = characters.by_ref().find(|character| !is_blank(character)) {
        let high = digit(high)?;
        let low = characters
            .next()
            .ok_or_else(|| refused("invalid hexadecimal data: odd number of digits".to_owned()))?;
        target.push(high << 4 | digit(low)?);
    }
    Ok(())
}

/// Blanks are skipped. One or two signs of equality end a group of four.
fn decode_base64(text: &str, target: &mut Vec<u8>) -> Result<()> {
    let refused = |message: String| Error::new(ErrorKind::InvalidArgument, message);
    let (mut bits, mut place, mut end) = (0_u32, 0, 0);
    for character in text.chars().filter(|character| !is_blank(character)) {
        let value = match character {
            'A'..='Z' => u32::from(character) - u32::from('A'),
            'a'..='z' => u32::from(character) - u32::from('a') + 26,
            '0'..='9' => u32::from(character) - u32::from('0') + 52,
            '+' => 62,
            '/' => 63,
            '=' => {
                if end == 0 {
                    end = match place {
                        2 => 1,
                        3 => 2,
                        _ => {
                            return Err(refused(
                                "unexpected \"=\" while decoding base64 sequence".to_owned(),
                            ));
                        }
                    };
                }
                0
            }
            _ => {
                let message = format!("invalid symbol \"{character}\" found while decoding base64 sequence");
                return Err(refused(message));
            }
        };
        bits = bits << 6 | value;
        place += 1;
        if place == 4 {
            let [_, first, second, third] = bits.to_be_bytes();
            target.push(first);
            target.extend((end != 1).then_some(second));
            target.extend((end == 0).then_some(third));
            (bits, place) = (0, 0);
        }
    }
    if place != 0 {
        return Err(refused("invalid base64 end sequence".to_owned())
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(())
}

/// A backslash is before another one, or before three octal digits.
fn decode_escaped(text: &str, target: &mut Vec<u8>) -> Result<()> {
    let mut bytes = text.as_bytes();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = match (first, rest) {
            (b'\\', [b'\\', rest @ ..]) => {
                target.push(b'\\');
                rest
            }
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', rest @ ..]) => {
                target.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                rest
            }
            (b'\\', _) => {
                return Err(Error::new(ErrorKind::InvalidText, "invalid input syntax for type bytea"));
            }
            _ => {
                target.push(*first);
                rest
            }
        };
    }
    Ok(())
}
