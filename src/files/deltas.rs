//! Numbers that are stored as differences: read where the CPU engine's reader does not look at what they are.
//!
//! Source: Parquet's Encodings.md, "Delta Encoding" and "Delta Strings".

use crate::compact_protocol::CompactWalk;

/// What is wrong with a page whose values its bytes do not hold, in the words of both engines.
pub(super) const NOT_ITS_BYTES: &str = "its values or levels do not fit its bytes";

/// A visitor of the parts of blocks. Its arguments: the least difference, the width of the numbers to add to it, the packed bytes, their count.
type VisitPart<'v> = dyn FnMut(i64, u8, &[u8], u64) -> Result<(), &'static str> + 'v;

/// The header of differences and what follows it.
struct Deltas<'a> {
    walk: CompactWalk<'a>,
    count: u64,
    first: i64,
    block_parts: u64,
    part_values: u64,
}

impl<'a> Deltas<'a> {
    /// Opens differences, of which there may be as many as a page has values.
    fn open(bytes: &'a [u8], value_count: u32) -> Result<Self, &'static str> {
        let mut walk = CompactWalk { rest: bytes };
        let [block_values, block_parts, count] = [walk.unsigned()?, walk.unsigned()?, walk.unsigned()?];
        let first = walk.signed()?;
        if count > u64::from(value_count) {
            return Err("it announces more values than it has");
        }
        let part_values = block_values.checked_div(block_parts).filter(|values| *values > 0);
        let part_values = part_values.ok_or("it has blocks without values")?;
        Ok(Self { walk, count, first, block_parts, part_values })
    }

    /// Calls `visit` for every part of a block. Gives what follows them.
    fn parts(mut self, visit: &mut VisitPart<'_>) -> Result<&'a [u8], &'static str> {
        let mut left = self.count.saturating_sub(1);
        while left > 0 {
            let least = self.walk.signed()?;
            let widths = self.walk.take(self.block_parts)?;
            let parts = usize::try_from(left.div_ceil(self.part_values)).unwrap_or(usize::MAX);
            for width in widths.iter().take(parts) {
                let bytes = self.part_values.saturating_mul(u64::from(*width)).div_ceil(8);
                let packed = self.walk.take(bytes)?;
                let taken = left.min(self.part_values);
                visit(least, *width, packed, taken)?;
                left -= taken;
            }
        }
        Ok(self.walk.rest)
    }
}

/// What follows differences, of which there may be as many as a page has values.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn after_deltas(bytes: &[u8], value_count: u32) -> Result<&[u8], &'static str> {
    Deltas::open(bytes, value_count)?.parts(&mut |_, _, _, _| Ok(()))
}

/// How many numbers there are, and whether all that is stored of them fits 32 bits.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn delta_count(bytes: &[u8], value_count: u32) -> Result<(u64, bool), &'static str> {
    let deltas = Deltas::open(bytes, value_count)?;
    let (count, mut is_narrow) = (deltas.count, i32::try_from(deltas.first).is_ok());
    deltas.parts(&mut |least, width, _, _| {
        is_narrow = is_narrow && width <= 32 && i32::try_from(least).is_ok();
        Ok(())
    })?;
    Ok((count, is_narrow))
}

/// The numbers, which wrap around as those of the format do, and what follows them.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn read_deltas(bytes: &[u8], value_count: u32) -> Result<(Vec<i64>, &[u8]), &'static str> {
    let deltas = Deltas::open(bytes, value_count)?;
    let mut value = deltas.first;
    let mut values = Vec::new();
    if deltas.count > 0 {
        values.push(value);
    }
    let rest = deltas.parts(&mut |least, width, packed, count| {
        if width > 64 {
            return Err(NOT_ITS_BYTES);
        }
        for place in 0..count {
            value = value.wrapping_add(least).wrapping_add(unpacked(packed, width, place).cast_signed());
            values.push(value);
        }
        Ok(())
    })?;
    Ok((values, rest))
}

/// A number of packed ones.
fn unpacked(packed: &[u8], width: u8, place: u64) -> u64 {
    if width == 0 {
        return 0;
    }
    let first = place * u64::from(width);
    let byte = (first / 8) as usize;
    let mut window = [0; 16];
    let bytes = packed.get(byte..).unwrap_or_default();
    let taken = bytes.len().min(window.len());
    window[..taken].copy_from_slice(&bytes[..taken]);
    let bits = (u128::from_le_bytes(window) >> (first % 8)) as u64;
    if width == 64 { bits } else { bits & ((1 << width) - 1) }
}

/// Whether texts that share a beginning with the one before can be put together: one length of each kind for each of
/// `count` values, none of them negative, and no beginning longer than the text before it.
///
/// # Errors
///
/// What is wrong, in words.
pub(super) fn check_prefixes(bytes: &[u8], count: u32) -> Result<(), &'static str> {
    let (prefixes, rest) = read_deltas(bytes, count)?;
    let (suffixes, texts) = read_deltas(rest, count)?;
    if [prefixes.len(), suffixes.len()] != [count as usize; 2] {
        return Err(NOT_ITS_BYTES);
    }
    // Lengths are numbers of 32 bits.
    let lengths = |values: Vec<i64>| values.into_iter().map(|value| u32::try_from(value as i32));
    let (mut before, mut taken) = (0_u64, 0_u64);
    for (prefix, suffix) in lengths(prefixes).zip(lengths(suffixes)) {
        let (Ok(prefix), Ok(suffix)) = (prefix, suffix) else { return Err(NOT_ITS_BYTES) };
        if u64::from(prefix) > before {
            return Err(NOT_ITS_BYTES);
        }
        before = u64::from(prefix) + u64::from(suffix);
        taken += u64::from(suffix);
    }
    if taken <= texts.len() as u64 { Ok(()) } else { Err(NOT_ITS_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact_protocol::{encode_signed, encode_unsigned};

    /// Differences in blocks of 128 with four parts; all differences of a part take `width` bits.
    fn deltas(delta_count: u64, width: u8) -> Vec<u8> {
        let mut bytes: Vec<u8> = [128, 4, delta_count, 7].into_iter().flat_map(encode_unsigned).collect();
        let mut left = delta_count.saturating_sub(1);
        while left > 0 {
            bytes.extend([2, width, width, width, width]);
            for _ in 0..left.div_ceil(32).min(4) {
                bytes.extend(vec![0xa5; usize::from(width) * 4]);
                left = left.saturating_sub(32);
            }
        }
        bytes
    }

    /// Numbers in blocks of 128 with four parts, each difference in 40 bits.
    fn encoded(values: &[i64]) -> Vec<u8> {
        let [first, rest @ ..] = values else {
            return [128, 4, 0, 0].into_iter().flat_map(encode_unsigned).collect();
        };
        let mut bytes: Vec<u8> =
            [128, 4, values.len() as u64].into_iter().flat_map(encode_unsigned).collect();
        bytes.extend(encode_signed(*first));
        let mut before = *first;
        for block in rest.chunks(128) {
            let differences: Vec<i64> =
                block.iter().map(|value| value - std::mem::replace(&mut before, *value)).collect();
            let least = differences.iter().copied().min().unwrap_or(0);
            bytes.extend(encode_signed(least));
            bytes.extend([40; 4]);
            let mut packed = [0; 128 * 5];
            for (place, difference) in differences.iter().enumerate() {
                packed[place * 5..place * 5 + 5].copy_from_slice(&(difference - least).to_le_bytes()[..5]);
            }
            bytes.extend(&packed[..differences.len().div_ceil(32) * 32 * 5]);
        }
        bytes
    }

    #[test]
    fn differences_end_where_their_last_part_does() {
        for count in [0, 1, 2, 33, 34, 128, 129, 130, 500] {
            for width in [0, 1, 7, 32] {
                let bytes = [deltas(count, width), vec![1, 2, 3]].concat();
                assert_eq!(after_deltas(&bytes, 500), Ok(&[1, 2, 3][..]), "{count} of {width} bits");
                assert_eq!(delta_count(&bytes, 500), Ok((count, true)));
                for end in 0..bytes.len() - 3 {
                    assert!(after_deltas(&bytes[..end], 500).is_err(), "{count} of {width}: {end}");
                }
            }
        }
        assert_eq!(delta_count(&deltas(500, 33), 500), Ok((500, false)));
    }

    #[test]
    fn differences_that_announce_more_than_the_page_are_refused() {
        assert!(after_deltas(&deltas(100, 3), 100).is_ok());
        assert_eq!(after_deltas(&deltas(101, 3), 100), Err("it announces more values than it has"));
        let encode = |numbers: [u64; 4]| numbers.into_iter().flat_map(encode_unsigned).collect::<Vec<u8>>();
        assert_eq!(
            after_deltas(&encode([128, 4, 1 << 40, 7]), 100),
            Err("it announces more values than it has")
        );
        for [values, parts] in [[128, 0], [0, 4], [3, 4]] {
            assert_eq!(
                after_deltas(&encode([values, parts, 2, 7]), 100),
                Err("it has blocks without values")
            );
        }
    }

    #[test]
    fn numbers_are_read_back() {
        for values in
            [vec![], vec![-5], vec![7, 7, 7], (0..400).map(|value| value * value % 1000 - 300).collect()]
        {
            let bytes = [encoded(&values), vec![9]].concat();
            assert_eq!(read_deltas(&bytes, 400), Ok((values, &[9][..])));
        }
    }

    #[test]
    fn beginnings_are_of_the_text_before() {
        let texts = |prefixes: &[i64], suffixes: &[i64], bytes: usize| {
            let bytes = [encoded(prefixes), encoded(suffixes), vec![b'x'; bytes]].concat();
            check_prefixes(&bytes, prefixes.len() as u32)
        };
        assert_eq!(texts(&[0, 2, 3], &[2, 1, 0], 3), Ok(()));
        assert_eq!(texts(&[0, 3, 3], &[2, 1, 0], 3), Err(NOT_ITS_BYTES));
        assert_eq!(texts(&[1, 0], &[2, 1], 3), Err(NOT_ITS_BYTES));
        assert_eq!(texts(&[0, -1], &[2, 1], 3), Err(NOT_ITS_BYTES));
        assert_eq!(texts(&[0, 0], &[2, -1], 3), Err(NOT_ITS_BYTES));
        assert_eq!(texts(&[0, 0], &[2, 2], 3), Err(NOT_ITS_BYTES));
        assert_eq!(texts(&[0, 0], &[2], 3), Err(NOT_ITS_BYTES));
    }
}
