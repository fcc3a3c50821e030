//! Sums of floats without rounding, one a group.
//!
//! A finite `double precision` is a whole multiple of 2⁻¹⁰⁷⁴, its square one of 2⁻²¹⁴⁸. A sum is such a multiple too: a whole number in
//! words of 32 bits, of which all sums together have those that their values touch. Prices need five words, values of all exponents 69.
//!
//! ```text
//! bit of the number      0        32        64        96
//!                        ├─ word ─┼─ word ─┼─ word ─┼─ …
//! a value of 53 bits              ╰── at most 3 words ──╯
//! ```
//!
//! Invariants
//! - A word is kept in 64 bits and carries are left in it, so that adding a value changes at most three words, five for a square. It is
//!   brought back to 32 bits before [`ADDENDS_MAX`] addends can overflow it; the last word has what is above it, with the sign.
//! - The order of values and of sums that are added makes no difference to a result.
//! - NaN and infinities are marks beside the number; so is that a value was not -0, for a sum of -0 alone is -0.

use num_bigint::BigInt;
use pystachio_engine::deviations::{PRODUCT_EXPONENT, VALUE_EXPONENT, scaled};

/// Addends after which carries are taken out of the words: each is below 2³³, the words hold 2⁶³.
const ADDENDS_MAX: u32 = 1 << 29;

/// Words that a value, and a square or a sum of 128 bits, touches at most.
const VALUE_WORDS: usize = 3;
const SQUARE_WORDS: usize = 5;

/// What was added, beside the number.
const ANY: u8 = 1;
const NOT_NEGATIVE_ZERO: u8 = 2;
const NAN: u8 = 4;
const INFINITY: u8 = 8;
const NEGATIVE_INFINITY: u8 = 16;

/// Whether the values or their squares are summed; products of two values are as squares are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    Values,
    Squares,
}

/// Sums of groups.
#[derive(Debug)]
pub(super) struct ExactSums {
    power: Power,
    /// The place of the first word in the numbers.
    first: usize,
    /// Words a group.
    width: usize,
    words: Vec<i64>,
    marks: Vec<u8>,
    /// Addends since carries were taken out of the words, at most.
    addends: u32,
}

/// A finite number other than zero: `digits * 2^(32 * word + bit)` of the unit, negative if `sign` is -1.
struct Parts {
    sign: i64,
    digits: u128,
    word: usize,
    bit: u32,
}

/// The biased exponent, from which a value's place follows; that of zeros and of the least values is 1.
fn exponent(value: f64) -> usize {
    ((value.to_bits() >> 52) & 0x7ff).max(1) as usize
}

/// The place of the product of two finite numbers other than zero.
fn product_place(a: f64, b: f64) -> usize {
    exponent(a) + exponent(b) - 2
}

/// The exponent that infinities and NaN have.
const NOT_FINITE: usize = 0x7ff;

/// What a batch of values needs.
struct Values {
    /// Biased exponents of those that are finite and not zero; the greatest is 0 if there are none.
    least: usize,
    greatest: usize,
    count: u32,
    /// None is zero, NaN, infinite, or below the normal numbers.
    are_normal: bool,
}

impl Values {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (mut least, mut greatest, mut count) = (u64::MAX, 0, 0_u32);
        for value in values.clone() {
            let magnitude = value.to_bits() & (i64::MAX as u64);
            least = least.min(magnitude);
            greatest = greatest.max(magnitude);
            count += 1;
        }
        let exponent_of = |magnitude: u64| (magnitude >> 52) as usize;
        if count > 0 && exponent_of(least) > 0 && exponent_of(greatest) < NOT_FINITE {
            let (least, greatest) = (exponent_of(least), exponent_of(greatest));
            return Self { least, greatest, count, are_normal: true };
        }
        let (mut least, mut greatest) = (NOT_FINITE, 0);
        for value in values.filter(|value| value.is_finite() && *value != 0.0) {
            least = least.min(exponent(value));
            greatest = greatest.max(exponent(value));
        }
        Self { least, greatest, count, are_normal: false }
    }
}

impl Power {
    fn place(self, exponent: usize) -> usize {
        match self {
            Self::Values => exponent - 1,
            Self::Squares => 2 * (exponent - 1),
        }
    }

    fn words(self) -> usize {
        match self {
            Self::Values => VALUE_WORDS,
            Self::Squares => SQUARE_WORDS,
        }
    }

    pub(super) fn unit(self) -> i32 {
        match self {
            Self::Values => VALUE_EXPONENT,
            Self::Squares => PRODUCT_EXPONENT,
        }
    }

    #[inline]
    fn parts(self, value: f64) -> Parts {
        let bits = value.to_bits();
        let exponent = exponent(value);
        let hidden = if (bits >> 52) & 0x7ff == 0 { 0 } else { 1 << 52 };
        let digits = u128::from((bits & ((1 << 52) - 1)) | hidden);
        let place = self.place(exponent);
        let (sign, digits) = match self {
            Self::Values => (1 - 2 * ((bits >> 63) as i64), digits),
            Self::Squares => (1, digits * digits),
        };
        Parts { sign, digits, word: place / 32, bit: (place % 32) as u32 }
    }
}

impl ExactSums {
    pub(super) fn new(power: Power) -> Self {
        Self { power, first: 0, width: 0, words: Vec::new(), marks: Vec::new(), addends: 0 }
    }

    /// Makes place for groups.
    pub(super) fn resize(&mut self, group_count: usize) {
        self.marks.resize(group_count, 0);
        self.words.resize(group_count * self.width, 0);
    }

    /// Adds values to their groups.
    pub(super) fn add(&mut self, rows: impl Iterator<Item = (usize, f64)> + Clone) {
        let values = Values::of(rows.clone().map(|(_, value)| value));
        self.make_place(&values, self.power.words());
        if values.are_normal && self.power == Power::Values {
            for (group, value) in rows {
                self.marks[group] |= ANY | NOT_NEGATIVE_ZERO;
                self.add_digits(group, value);
            }
            return;
        }
        for (group, value) in rows {
            self.add_one(group, value);
        }
    }

    /// Adds values to one group.
    pub(super) fn add_all(&mut self, group: usize, values: &[f64]) {
        let found = Values::of(values.iter().copied());
        let spread = found.greatest.saturating_sub(found.least) as u32;
        let count_bits = usize::BITS - values.len().leading_zeros();
        // The sum of all is added at once where 128 bits hold it.
        if !found.are_normal || self.power != Power::Values || spread.max(11) + 53 + count_bits > 126 {
            return self.add(values.iter().map(|value| (group, *value)));
        }
        self.make_place(&found, SQUARE_WORDS);
        self.marks[group] |= ANY | NOT_NEGATIVE_ZERO;
        let mut total = 0_i128;
        for value in values {
            let bits = value.to_bits();
            let digits = (bits & ((1 << 52) - 1)) | (1 << 52);
            let shift = exponent(*value) - found.least;
            // Without the check that a shift of 128 bits needs.
            let (low, high) = (digits << shift, (digits >> 1) >> (63 - shift));
            let sign = (bits as i64) >> 63;
            let shifted = (u128::from(high) << 64 | u128::from(low)) as i128;
            total += (shifted ^ i128::from(sign)) - i128::from(sign);
        }
        let (sign, magnitude) = (if total < 0 { -1 } else { 1 }, total.unsigned_abs());
        let place = self.power.place(found.least);
        self.add_wide(group, Parts { sign, digits: magnitude, word: place / 32, bit: (place % 32) as u32 });
    }

    /// Adds the products of two values to their groups. Of squares, whose multiples of 2⁻²¹⁴⁸ products are too.
    pub(super) fn add_products(&mut self, rows: impl Iterator<Item = (usize, f64, f64)> + Clone) {
        let (mut least, mut greatest, mut count) = (usize::MAX, 0, 0_u32);
        for (_, a, b) in rows.clone() {
            count += 1;
            if a.is_finite() && b.is_finite() && a != 0.0 && b != 0.0 {
                let place = product_place(a, b);
                (least, greatest) = (least.min(place), greatest.max(place));
            }
        }
        if least <= greatest {
            self.cover(least / 32, greatest / 32 + SQUARE_WORDS);
        }
        self.count(count);
        for (group, a, b) in rows {
            self.marks[group] |= ANY | NOT_NEGATIVE_ZERO;
            if !a.is_finite() || !b.is_finite() {
                self.marks[group] |= NAN;
            } else if a != 0.0 && b != 0.0 {
                let (a_parts, b_parts) = (Power::Values.parts(a), Power::Values.parts(b));
                let place = product_place(a, b);
                self.add_wide(
                    group,
                    Parts {
                        sign: a_parts.sign * b_parts.sign,
                        digits: a_parts.digits * b_parts.digits,
                        word: place / 32,
                        bit: (place % 32) as u32,
                    },
                );
            }
        }
    }

    /// Makes place for the words that values touch, each so many.
    fn make_place(&mut self, values: &Values, words: usize) {
        if values.greatest > 0 {
            let (least, greatest) =
                (self.power.place(values.least) / 32, self.power.place(values.greatest) / 32);
            self.cover(least, greatest + words);
        }
        self.count(values.count);
    }

    #[inline]
    fn add_digits(&mut self, group: usize, value: f64) {
        let Parts { sign, digits, word, bit } = self.power.parts(value);
        let start = group * self.width + word - self.first;
        let words = &mut self.words[start..start + VALUE_WORDS];
        let digits = digits << bit;
        words[0] += sign * (digits as u32 as i64);
        words[1] += sign * ((digits >> 32) as u32 as i64);
        words[2] += sign * ((digits >> 64) as i64);
    }

    fn add_wide(&mut self, group: usize, parts: Parts) {
        let Parts { sign, digits, word, bit } = parts;
        let start = group * self.width + word - self.first;
        let words = &mut self.words[start..start + SQUARE_WORDS];
        let (low, high) = ((digits as u64 as u128) << bit, (digits >> 64) << bit);
        words[0] += sign * (low as u32 as i64);
        words[1] += sign * ((low >> 32) as u32 as i64);
        words[2] += sign * ((low >> 64) as i64 + (high as u32 as i64));
        words[3] += sign * ((high >> 32) as u32 as i64);
        words[4] += sign * ((high >> 64) as i64);
    }

    #[inline]
    fn add_one(&mut self, group: usize, value: f64) {
        let is_negative_zero = value == 0.0 && value.is_sign_negative();
        self.marks[group] |= if is_negative_zero { ANY } else { ANY | NOT_NEGATIVE_ZERO };
        if value == 0.0 {
            return;
        }
        if !value.is_finite() {
            self.marks[group] |= match value {
                _ if value.is_nan() => NAN,
                _ if value > 0.0 || self.power == Power::Squares => INFINITY,
                _ => NEGATIVE_INFINITY,
            };
            return;
        }
        match self.power {
            Power::Values => self.add_digits(group, value),
            Power::Squares => {
                let parts = self.power.parts(value);
                self.add_wide(group, parts);
            }
        }
    }

    /// Notes that each word gets so many more addends.
    fn count(&mut self, addends: u32) {
        if self.addends.saturating_add(addends) > ADDENDS_MAX {
            self.carry();
        }
        self.addends = self.addends.saturating_add(addends);
    }

    /// Makes place for words of the numbers.
    fn cover(&mut self, first: usize, end: usize) {
        let (own_first, own_end) = (self.first, self.first + self.width);
        if self.width > 0 && own_first <= first && end <= own_end {
            return;
        }
        let (first, end) =
            if self.width == 0 { (first, end) } else { (first.min(own_first), end.max(own_end)) };
        let width = end - first;
        let mut words = vec![0; self.marks.len() * width];
        if self.width > 0 {
            // The last word may be negative, and then is so in the wider numbers.
            for (from, to) in self.words.chunks_exact(self.width).zip(words.chunks_exact_mut(width)) {
                to[own_first - first..own_end - first].copy_from_slice(from);
            }
        }
        (self.first, self.width, self.words) = (first, width, words);
    }

    /// Takes the carries out of all words, so that each but a group's last has 32 bits.
    pub(super) fn carry(&mut self) {
        self.words.chunks_exact_mut(self.width.max(1)).for_each(carry);
        self.addends = 1;
    }

    fn words_of(&self, group: usize) -> &[i64] {
        &self.words[group * self.width..(group + 1) * self.width]
    }

    /// Writes the bytes that [`ExactSums::add_state`] adds to a group, after [`ExactSums::carry`]; `None` if it has no value.
    ///
    /// They are the marks; the place of the first word, 2 bytes; and words of 4 bytes, of which the last has the sign. Bytes are those
    /// of the machine.
    pub(super) fn write_state(&self, group: usize, state: &mut Vec<u8>) -> Option<()> {
        let marks = self.marks[group];
        if marks & ANY == 0 {
            return None;
        }
        state.push(marks);
        let words = self.words_of(group);
        // What the last word has above 32 bits is a word of its own.
        let above = words.last().map_or(0, |last| (last >> 32) as i32);
        let word = |place: usize| words.get(place).map_or(above, |word| *word as u32 as i32);
        let skipped = words.iter().take_while(|word| **word == 0).count();
        let mut count = words.len() + 1;
        // A last word says nothing where it is the sign of the one below.
        while count > skipped + 1 && word(count - 1) == word(count - 2) >> 31 {
            count -= 1;
        }
        if skipped < words.len() {
            state.extend(((self.first + skipped) as u16).to_ne_bytes());
            (skipped..count).for_each(|place| state.extend(word(place).to_ne_bytes()));
        }
        Some(())
    }

    /// Adds to a group what another one has; `None` if these are no bytes of a state.
    pub(super) fn add_state(&mut self, group: usize, state: &[u8]) -> Option<()> {
        let (marks, state) = state.split_first()?;
        self.marks[group] |= marks;
        if state.is_empty() {
            return Some(());
        }
        let (first, words) = state.split_first_chunk::<2>()?;
        let first = usize::from(u16::from_ne_bytes(*first));
        let (words, rest) = words.as_chunks::<4>();
        if !rest.is_empty() || words.is_empty() || first + words.len() > WORDS_MAX {
            return None;
        }
        self.cover(first, first + words.len());
        self.count(1);
        let start = group * self.width + first - self.first;
        let (last, lower) = words.split_last()?;
        for (place, word) in lower.iter().enumerate() {
            self.words[start + place] += i64::from(u32::from_ne_bytes(*word));
        }
        self.words[start + lower.len()] += i64::from(i32::from_ne_bytes(*last));
        Some(())
    }

    /// Which of the results that are no finite number a group has, and whether it has any.
    fn special(&self, group: usize) -> Option<Total> {
        let marks = self.marks[group];
        let infinities = marks & (INFINITY | NEGATIVE_INFINITY);
        Some(match marks {
            _ if marks & ANY == 0 => Total::Nothing,
            _ if marks & NAN != 0 || infinities == INFINITY | NEGATIVE_INFINITY => Total::Special(f64::NAN),
            _ if infinities == INFINITY => Total::Special(f64::INFINITY),
            _ if infinities == NEGATIVE_INFINITY => Total::Special(f64::NEG_INFINITY),
            _ if marks & NOT_NEGATIVE_ZERO == 0 => Total::Special(-0.0),
            _ => return None,
        })
    }

    /// A group's sum, rounded to a format, after [`ExactSums::carry`].
    pub(super) fn rounded(&self, group: usize, form: FloatForm) -> Total {
        if let Some(special) = self.special(group) {
            return special;
        }
        let mut words = self.words_of(group);
        let is_negative = words.last().is_some_and(|last| *last < 0);
        let negated;
        if is_negative {
            let mut changed: Vec<i64> = words.iter().map(|word| -*word).collect();
            carry(&mut changed);
            negated = changed;
            words = &negated;
        }
        let Some(top) = words.iter().rposition(|word| *word != 0) else { return Total::Finite(0.0) };
        // The highest bits, a multiple of 2 to the exponent; `is_more` tells whether a bit below them is set.
        let start = top.saturating_sub(2);
        let bits = words[start..=top].iter().rev().fold(0_u128, |bits, word| (bits << 32) + *word as u128);
        let is_more = words[..start].iter().any(|word| *word != 0);
        let exponent = self.power.unit() + 32 * (self.first + start) as i32;
        let cut = (bits.ilog2() as i32 + 1 - form.digits as i32).max(form.least - exponent).max(0) as u32;
        // Beyond all bits is less than half of the least number.
        let mut digits = bits.checked_shr(cut).unwrap_or(0) as u64;
        if (1..128).contains(&cut) {
            let (rest, half) = (bits & ((1 << cut) - 1), 1 << (cut - 1));
            // Halfway between two numbers the even one is nearer.
            digits += u64::from(rest > half || (rest == half && (is_more || digits % 2 == 1)));
        }
        let value = scaled(digits, exponent + cut as i32);
        if value > form.greatest {
            return Total::Overflow;
        }
        Total::Finite(if is_negative { -value } else { value })
    }

    /// A group's number, a multiple of [`Power::unit`], after [`ExactSums::carry`]. The error holds NaN, an infinity, or that there is no value.
    pub(super) fn number(&self, group: usize) -> Result<BigInt, Total> {
        if let Some(special) = self.special(group) {
            return match special {
                Total::Special(0.0) => Ok(BigInt::ZERO),
                other => Err(other),
            };
        }
        let words = self.words_of(group);
        let total = words.iter().rev().fold(BigInt::ZERO, |total, word| (total << 32) + word);
        Ok(total << (32 * self.first))
    }

    /// Drops the first groups.
    pub(super) fn drop_first(&mut self, group_count: usize) {
        self.marks.drain(..group_count);
        self.words.drain(..group_count * self.width);
    }

    pub(super) fn group_count(&self) -> usize {
        self.marks.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<i64>() + self.marks.capacity()
    }
}

/// Words of the widest numbers, with room for the sign.
const WORDS_MAX: usize = 2 * 2046 / 32 + SQUARE_WORDS + 2;

/// Leaves 32 bits in each word but the last.
fn carry(words: &mut [i64]) {
    let Some((last, lower)) = words.split_last_mut() else { return };
    let mut carried = 0;
    for word in lower {
        let sum = *word + carried;
        *word = sum & 0xffff_ffff;
        carried = sum >> 32;
    }
    *last += carried;
}

/// A format of floats.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatForm {
    /// Binary digits.
    digits: u32,
    /// The exponent of the least number above zero.
    least: i32,
    greatest: f64,
}

impl FloatForm {
    pub(super) const SINGLE: Self = Self { digits: 24, least: -149, greatest: f32::MAX as f64 };
    pub(super) const DOUBLE: Self = Self { digits: 53, least: VALUE_EXPONENT, greatest: f64::MAX };
}

/// The sum of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Total {
    /// There is no value.
    Nothing,
    /// NaN, an infinity, or -0 of nothing else.
    Special(f64),
    Finite(f64),
    /// More than the format holds, of finite values.
    Overflow,
}
