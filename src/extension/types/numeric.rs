//! `numeric`, in the form that PostgreSQL stores.
//!
//! ```text
//! short: ┌──────────┬────────┬─────────┐   long: ┌──────────┬──────────────┬────────┬─────────┐
//!        │ length 4 │ head 2 │ digits… │         │ length 4 │ sign, dscale │ weight │ digits… │
//!        └──────────┴────────┴─────────┘         └──────────┴──────────────┴────────┴─────────┘
//! ```
//!
//! Digits are 16 bits each, to the base 10000, the greatest first, with no zeroes at either end; the
//! weight is the exponent of the first one. `dscale` is how many decimal digits are shown after the point.
//!
//! Source: src/backend/utils/adt/numeric.c of PostgreSQL.
#![expect(unsafe_code, reason = "reads words as units of 16 bits")]

use std::ops::Range;

use arrow_array::{Array, Decimal128Array, Decimal256Array, Int32Array};
use arrow_buffer::i256;
use pgrx::pg_sys::Datum;
use pystachio_plan::{Error, ErrorKind, Result};

use super::block::Cells;

const BASE: u64 = 10_000;
/// Four digits to the base 10000.
const BASE_POWER_4: u64 = BASE * BASE * BASE * BASE;
const DIGITS_PER_GROUP: u32 = 4;
/// Decimal digits of the longest numbers that files hold.
const LONG_DIGITS_MAX: usize = 76;
/// Groups of a value of 76 decimal digits, wherever its point is.
const GROUPS_MAX: usize = 20;
/// Groups of an `i128`, wherever its point is: 39 digits.
const GROUPS_128_MAX: usize = 11;
/// Units of 16 bits before the digits: the length word and the long header.
const HEADER_UNITS: usize = 4;
const UNITS_PER_WORD: usize = 4;

const SHORT_HEADER: u16 = 0x8000;
const SHORT_SIGN: u16 = 0x2000;
const SHORT_SCALE_SHIFT: u32 = 7;
const SHORT_SCALE_MAX: u16 = 0x3f;
const SHORT_WEIGHT_SIGN: u16 = 0x40;
const SHORT_WEIGHT_MASK: u16 = 0x3f;
const LONG_NEGATIVE: u16 = 0x4000;
const LONG_SCALE_MASK: u16 = 0x3fff;
const SPECIAL: u16 = 0xc000;

/// The display scales of a column.
pub enum Scales<'a> {
    /// The scale of the decimal type.
    OfType,
    /// The same for every row.
    Fixed(u16),
    /// One for every row.
    Column(&'a Int32Array),
}

/// The memory of a column's values.
#[derive(Default)]
pub struct NumericScratch {
    words: Vec<u64>,
}

impl NumericScratch {
    /// Room for this many words, as units of 16 bits, aligned as words.
    fn units(&mut self, word_count: usize) -> &mut [u16] {
        if self.words.len() < word_count {
            self.words.resize(word_count, 0);
        }
        // SAFETY: a word is four units.
        unsafe {
            std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u16>(), UNITS_PER_WORD * word_count)
        }
    }
}

/// Digits to the base 10000, the least first.
struct DigitGroups {
    groups: [u16; GROUPS_MAX],
    count: usize,
}

/// A `numeric` as an integer and a scale, or that it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The value times ten to the power of the scale; the last digit is not zero unless the scale is 0.
    Finite {
        /// The integer.
        unscaled: i128,
        /// The scale.
        scale: u8,
    },
    /// More than 38 digits.
    TooLong,
    /// NaN or an infinity.
    Special,
}

/// A `numeric` as an integer of a column's scale, or that it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedLong {
    /// The integer.
    Finite(i256),
    /// More than 76 digits, or digits beyond the scale.
    TooLong,
    /// NaN or an infinity.
    Special,
}

/// What a `numeric` consists of: the value is the digits as one number × 10000^(weight + 1 - digits).
struct Parts {
    is_negative: bool,
    weight: i32,
    digits: Vec<u16>,
}

impl Parts {
    /// Of a value without its length word; none of NaN and infinities.
    fn of(body: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            body.get(2 * index..2 * index + 2).map_or(0, |pair| u16::from_le_bytes([pair[0], pair[1]]))
        };
        let header = word(0);
        if header & SPECIAL == SPECIAL {
            return None;
        }
        let (is_negative, weight, digits_start) = if header & SHORT_HEADER != 0 {
            let weight = (header & SHORT_WEIGHT_MASK) as i32;
            let weight = if header & SHORT_WEIGHT_SIGN != 0 { weight - 64 } else { weight };
            (header & SHORT_SIGN != 0, weight, 1)
        } else {
            (header & LONG_NEGATIVE != 0, i32::from(word(1) as i16), 2)
        };
        Some(Self { is_negative, weight, digits: (digits_start..body.len() / 2).map(word).collect() })
    }
}

/// Values of up to 38 digits.
pub fn fill_decimal128(
    array: &Decimal128Array,
    scale: i8,
    scales: &Scales<'_>,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut NumericScratch,
) -> Result<()> {
    let values = array.values();
    let scale = type_scale(scale)?;
    let decimal = Decimal { scale, scales, value_words: value_words(GROUPS_128_MAX) };
    decimal.fill(array, rows, cells, scratch, |row| {
        let value = values[row];
        (DigitGroups::of_u128(value.unsigned_abs(), scale), value < 0)
    })
}

/// Values of up to 76 digits.
pub fn fill_decimal256(
    array: &Decimal256Array,
    scale: i8,
    scales: &Scales<'_>,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut NumericScratch,
) -> Result<()> {
    let values = array.values();
    let scale = type_scale(scale)?;
    let decimal = Decimal { scale, scales, value_words: value_words(GROUPS_MAX) };
    decimal.fill(array, rows, cells, scratch, |row| {
        let value = values[row];
        (DigitGroups::of_i256(value, scale), value.is_negative())
    })
}

/// Reads a `numeric` without its length word, which has been detoasted.
pub fn decode(body: &[u8]) -> Decoded {
    let Some(Parts { is_negative, weight, mut digits }) = Parts::of(body) else { return Decoded::Special };
    while digits.last() == Some(&0) {
        digits.pop();
    }
    let mut exponent = DIGITS_PER_GROUP as i32 * (weight + 1 - digits.len() as i32);
    // Zeroes at the end of the last group are no digits of the value, and 38 digits must not overflow.
    let (mut last, mut base) = (digits.pop().unwrap_or(0), u128::from(BASE));
    while last != 0 && last.is_multiple_of(10) {
        last /= 10;
        base /= 10;
        exponent += 1;
    }
    let magnitude = digits
        .iter()
        .map(|digit| (*digit, u128::from(BASE)))
        .chain([(last, base)])
        .try_fold(0u128, |value, (digit, base)| value.checked_mul(base)?.checked_add(u128::from(digit)));
    match magnitude.and_then(|magnitude| normalize(magnitude, exponent)) {
        Some((magnitude, scale)) if magnitude < 10u128.pow(38) => {
            let unscaled = magnitude as i128;
            Decoded::Finite { unscaled: if is_negative { -unscaled } else { unscaled }, scale }
        }
        _ => Decoded::TooLong,
    }
}

/// Reads a `numeric` without its length word, which has been detoasted, as an integer of this scale.
pub fn decode_long(body: &[u8], scale: u8) -> DecodedLong {
    let Some(Parts { is_negative, weight, digits }) = Parts::of(body) else { return DecodedLong::Special };
    let mut decimal: Vec<u8> = Vec::with_capacity(digits.len() * DIGITS_PER_GROUP as usize);
    for group in &digits {
        decimal
            .extend([group / 1000, group / 100 % 10, group / 10 % 10, group % 10].map(|digit| digit as u8));
    }
    // The value is the digits as one number × 10^exponent, in units of the scale.
    let exponent = DIGITS_PER_GROUP as i32 * (weight + 1 - digits.len() as i32) + i32::from(scale);
    if decimal.iter().all(|digit| *digit == 0) {
        return DecodedLong::Finite(i256::ZERO);
    }
    match usize::try_from(exponent) {
        Ok(zeroes) if zeroes <= LONG_DIGITS_MAX => decimal.resize(decimal.len() + zeroes, 0),
        Ok(_) => return DecodedLong::TooLong,
        Err(_) => {
            let kept = decimal.len().saturating_sub(exponent.unsigned_abs() as usize);
            if decimal.drain(kept..).any(|digit| digit != 0) {
                return DecodedLong::TooLong;
            }
        }
    }
    let first = decimal.iter().position(|digit| *digit != 0).unwrap_or(decimal.len());
    let decimal = &decimal[first..];
    if decimal.len() > LONG_DIGITS_MAX {
        return DecodedLong::TooLong;
    }
    // No number of so many digits overflows.
    let ten = i256::from_i128(10);
    let value = decimal.iter().fold(i256::ZERO, |value, digit| {
        value.wrapping_mul(ten).wrapping_add(i256::from_i128(i128::from(*digit)))
    });
    DecodedLong::Finite(if is_negative { value.wrapping_neg() } else { value })
}

/// The value as an integer and a scale that is as small as can be.
fn normalize(mut magnitude: u128, mut exponent: i32) -> Option<(u128, u8)> {
    if magnitude == 0 {
        return Some((0, 0));
    }
    while exponent < 0 && magnitude.is_multiple_of(10) {
        magnitude /= 10;
        exponent += 1;
    }
    if exponent >= 0 {
        let factor = 10u128.checked_pow(exponent.unsigned_abs())?;
        return Some((magnitude.checked_mul(factor)?, 0));
    }
    (exponent >= -38).then_some((magnitude, exponent.unsigned_abs() as u8))
}

fn type_scale(scale: i8) -> Result<u32> {
    u32::try_from(scale).map_err(|_| Error::internal(format!("result has a negative scale: {scale}")))
}

/// Words of eight bytes that a value takes at most.
const fn value_words(groups_max: usize) -> usize {
    (HEADER_UNITS + groups_max).div_ceil(UNITS_PER_WORD)
}

struct Decimal<'a> {
    scale: u32,
    scales: &'a Scales<'a>,
    value_words: usize,
}

impl Decimal<'_> {
    fn fill(
        &self,
        array: &dyn Array,
        rows: Range<usize>,
        cells: &mut Cells<'_>,
        scratch: &mut NumericScratch,
        groups: impl Fn(usize) -> (DigitGroups, bool),
    ) -> Result<()> {
        let value_units = self.value_words * UNITS_PER_WORD;
        let units = scratch.units(rows.len() * self.value_words);
        let fraction_groups = self.scale.div_ceil(DIGITS_PER_GROUP) as usize;
        let start = rows.start;
        cells.try_fill(array, rows, |row| {
            let display_scale = match self.scales {
                Scales::OfType => self.scale as u16,
                Scales::Fixed(scale) => *scale,
                Scales::Column(scales) => u16::try_from(scales.value(row))
                    .map_err(|_| Error::internal(format!("display scale is {}", scales.value(row))))?,
            };
            if display_scale > LONG_SCALE_MASK {
                return Err(Error::new(ErrorKind::NumericOutOfRange, "numeric has too many digits"));
            }
            let (groups, negative) = groups(row);
            let place = (row - start) * value_units;
            let target = &mut units[place..place + value_units];
            groups.write(fraction_groups, negative, display_scale, target);
            Ok(Datum::from(target.as_ptr()))
        })
    }
}

impl DigitGroups {
    fn of_u128(magnitude: u128, scale: u32) -> Self {
        match u64::try_from(magnitude) {
            Ok(small) => Self::of_u64(small, scale),
            Err(_) => Self::of_large(magnitude, scale),
        }
    }

    fn of_u64(magnitude: u64, scale: u32) -> Self {
        let mut this = Self { groups: [0; GROUPS_MAX], count: 0 };
        // The last digits after the point do not fill a group; constants, so that no division is left.
        let mut rest = match scale % DIGITS_PER_GROUP {
            0 => magnitude,
            1 => this.push(magnitude % 10 * 1000, magnitude / 10),
            2 => this.push(magnitude % 100 * 100, magnitude / 100),
            _ => this.push(magnitude % 1000 * 10, magnitude / 1000),
        };
        while rest > 0 {
            rest = this.push(rest % BASE, rest / BASE);
        }
        this
    }

    fn of_large(magnitude: u128, scale: u32) -> Self {
        let mut this = Self { groups: [0; GROUPS_MAX], count: 0 };
        let partial = scale % DIGITS_PER_GROUP;
        let mut rest = magnitude;
        if partial > 0 {
            let divisor = 10u128.pow(partial);
            this.push((rest % divisor) as u64 * 10u64.pow(DIGITS_PER_GROUP - partial), 0);
            rest /= divisor;
        }
        while rest > 0 {
            let mut part = (rest % u128::from(BASE_POWER_4)) as u64;
            rest /= u128::from(BASE_POWER_4);
            for _ in 0..4 {
                part = this.push(part % BASE, part / BASE);
            }
        }
        this
    }

    fn of_i256(value: i256, scale: u32) -> Self {
        if let Some(value) = value.to_i128() {
            return Self::of_u128(value.unsigned_abs(), scale);
        }
        let mut this = Self { groups: [0; GROUPS_MAX], count: 0 };
        let partial = scale % DIGITS_PER_GROUP;
        let ten = |exponent: u32| i256::from_i128(10i128.pow(exponent));
        let part = |value: i256| value.to_i128().unwrap_or_default().unsigned_abs() as u64;
        let mut rest = value;
        if partial > 0 {
            this.push(part(rest.wrapping_rem(ten(partial))) * 10u64.pow(DIGITS_PER_GROUP - partial), 0);
            rest = rest.wrapping_div(ten(partial));
        }
        // Twenty groups hold 80 digits; the type has 76 at most.
        while rest != i256::ZERO && this.count < GROUPS_MAX {
            this.push(part(rest.wrapping_rem(ten(DIGITS_PER_GROUP))), 0);
            rest = rest.wrapping_div(ten(DIGITS_PER_GROUP));
        }
        this
    }

    /// Adds a group above the others and hands on what is left.
    fn push(&mut self, group: u64, rest: u64) -> u64 {
        if let Some(place) = self.groups.get_mut(self.count) {
            *place = group as u16;
        }
        self.count += 1;
        rest
    }

    /// Writes the value, length word first.
    fn write(&self, fraction_groups: usize, negative: bool, display_scale: u16, target: &mut [u16]) {
        let groups = &self.groups[..self.count.min(GROUPS_MAX)];
        let top = groups.iter().rposition(|group| *group != 0).map_or(0, |place| place + 1);
        let bottom = groups[..top].iter().position(|group| *group != 0).unwrap_or(0);
        let digits = &groups[bottom..top];
        let weight = if digits.is_empty() { 0 } else { top as i32 - 1 - fraction_groups as i32 };
        let negative = negative && !digits.is_empty();
        let head = if display_scale <= SHORT_SCALE_MAX && (-64..64).contains(&weight) {
            let sign = if negative { SHORT_SIGN } else { 0 };
            let weight_sign = if weight < 0 { SHORT_WEIGHT_SIGN } else { 0 };
            let weight = weight as u16 & SHORT_WEIGHT_MASK;
            target[2] = SHORT_HEADER | sign | display_scale << SHORT_SCALE_SHIFT | weight_sign | weight;
            3
        } else {
            target[2] = if negative { LONG_NEGATIVE } else { 0 } | display_scale;
            target[3] = weight as u16;
            4
        };
        for (unit, digit) in target[head..].iter_mut().zip(digits.iter().rev()) {
            *unit = *digit;
        }
        // A length word of four bytes: the count of bytes, itself included, above two zero bits.
        target[0] = (2 * (head + digits.len()) as u16) << 2;
        target[1] = 0;
    }
}
