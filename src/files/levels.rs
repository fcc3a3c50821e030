//! Definition and repetition levels of a page.
//!
//! Source: Parquet's Encodings.md, "Run Length Encoding / Bit-Packing Hybrid" and "Bit-packed (Deprecated)".

use crate::compact_protocol::{CompactWalk, encode_unsigned};

/// Bits of a level.
pub(super) fn level_bits(level_max: i16) -> u32 {
    i16::BITS - level_max.leading_zeros()
}

/// Packed levels as older writers have them, from the highest bit of each byte on, as one packed run of the newer form with
/// its length before it. `None` if they are too few.
pub(super) fn packed_as_runs(packed: &[u8], bits: u32, count: u32) -> Option<Vec<u8>> {
    let groups = count.div_ceil(8);
    let mut run = encode_unsigned(u64::from(groups) << 1 | 1);
    let first = run.len();
    run.resize(first + (groups * bits) as usize, 0);
    for bit in 0..u64::from(count) * u64::from(bits) {
        let byte = packed.get((bit / 8) as usize)?;
        if byte >> (7 - bit % 8) & 1 == 1 {
            // Within a value the highest bit comes first there, and last here.
            let (value, within) = (bit / u64::from(bits), bit % u64::from(bits));
            let place = value * u64::from(bits) + (u64::from(bits) - 1 - within);
            run[first + (place / 8) as usize] |= 1 << (place % 8);
        }
    }
    Some([u32::try_from(run.len()).ok()?.to_le_bytes().to_vec(), run].concat())
}

/// How many of a page's levels are the greatest one, so that there is a value. `None` if the runs can't be read.
pub(super) fn count_values(runs: &[u8], level_max: i16, count: u32) -> Option<u32> {
    let bits = level_bits(level_max);
    let mut walk = CompactWalk { rest: runs };
    let (mut left, mut found) = (u64::from(count), 0);
    while left > 0 {
        let header = walk.unsigned().ok()?;
        if header & 1 == 0 {
            let taken = (header >> 1).min(left);
            let value = walk.take(u64::from(bits.div_ceil(8))).ok()?;
            let value = value.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
            found += if value == u32::from(level_max.unsigned_abs()) { taken } else { 0 };
            left -= taken;
        } else {
            let values = (header >> 1).checked_mul(8)?;
            let bytes = (values / 8).checked_mul(bits.into())?.min(walk.rest.len() as u64);
            let packed = walk.take(bytes).ok()?;
            let taken = values.min(left).min(bytes * 8 / u64::from(bits));
            if taken == 0 {
                return None;
            }
            let is_value =
                |place: &u64| packed_value(packed, bits, *place) == u32::from(level_max.unsigned_abs());
            found += match bits {
                1 => count_ones(packed, taken),
                _ => (0..taken).filter(is_value).count() as u64,
            };
            left -= taken;
        }
    }
    u32::try_from(found).ok()
}

/// The first `count` bits that are set.
fn count_ones(packed: &[u8], count: u64) -> u64 {
    let (whole, rest) = ((count / 8) as usize, count % 8);
    let ones: u64 = packed[..whole].iter().map(|byte| u64::from(byte.count_ones())).sum();
    let last = packed.get(whole).map_or(0, |byte| byte & ((1_u16 << rest) - 1) as u8);
    ones + u64::from(last.count_ones())
}

fn packed_value(packed: &[u8], bits: u32, place: u64) -> u32 {
    let first = place * u64::from(bits);
    let bit = |bit: u64| {
        let byte = packed.get((bit / 8) as usize).copied().unwrap_or(0);
        u32::from(byte >> (bit % 8) & 1)
    };
    (0..u64::from(bits)).fold(0, |value, within| value | bit(first + within) << within)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels packed from the highest bit on.
    fn packed(levels: &[u32], bits: u32) -> Vec<u8> {
        let mut bytes = vec![0; (levels.len() * bits as usize).div_ceil(8)];
        for (place, level) in levels.iter().enumerate() {
            for within in 0..bits {
                if level >> (bits - 1 - within) & 1 == 1 {
                    let bit = place * bits as usize + within as usize;
                    bytes[bit / 8] |= 0x80 >> (bit % 8);
                }
            }
        }
        bytes
    }

    #[test]
    fn packed_levels_keep_their_values_as_runs() {
        for level_max in [1_i16, 2, 3, 5, 7] {
            let bits = level_bits(level_max);
            for count in [1_usize, 7, 8, 9, 64, 65] {
                let levels: Vec<u32> =
                    (0..count as u32).map(|place| place * 7 % (level_max as u32 + 1)).collect();
                let runs = packed_as_runs(&packed(&levels, bits), bits, count as u32).unwrap();
                let found: Vec<u32> =
                    (0..count as u64).map(|place| packed_value(&runs[5..], bits, place)).collect();
                assert_eq!(found, levels, "{level_max} {count}");
                let greatest = levels.iter().filter(|level| **level == level_max as u32).count() as u32;
                assert_eq!(
                    count_values(&runs[4..], level_max, count as u32),
                    Some(greatest),
                    "{level_max} {count}"
                );
                assert_eq!(packed_as_runs(&[], bits, count as u32), None);
            }
        }
    }

    #[test]
    fn repeated_and_packed_runs_are_counted() {
        // Five times 1, one packed group of 1s and 0s in turn, an empty run, twenty times 0.
        let runs = [10, 1, 3, 0x55, 0, 1, 40, 0];
        assert_eq!(count_values(&runs, 1, 33), Some(9));
        assert_eq!(count_values(&runs, 1, 9), Some(7));
        assert_eq!(count_values(&runs, 1, 34), None);
        assert_eq!(count_values(&[1], 1, 1), None);
    }
}
