//! A time zone as a table, from which an engine computes what the server would.
//!
//! ```text
//! first offset: i32 │ repeats before, after: u8 │ (seconds in UTC: i64, offset from then on: i32) …      little endian
//! ```
//!
//! The extension reads the transitions out of the server's own zone data, so that no engine needs any. Rules that hold for
//! ever repeat every 400 years, as the calendar does: the table then has the last or first 400 years of them.
//!
//! Local times that a transition skips belong to the offset before it, those that it repeats to the offset after it.
//!
//! Invariants: transitions are in order, and three days apart or more, so that a local time has one place among them.
//!
//! Source: `DetermineTimeZoneOffset` of PostgreSQL and `localsub` of the time zone library in it.

use crate::{Error, ErrorKind, Result, TimeZone};

const SECOND_MICROSECONDS: i64 = 1_000_000;
/// 400 years.
const CYCLE_SECONDS: i64 = 146_097 * 86_400;
/// Transitions that are nearer to each other leave a local time without a place.
const APART_SECONDS: i64 = 3 * 86_400;
/// 1600-01-01 and 2500-01-01: rules that hold for ever hold outside these years, and for 400 years within.
const YEARS: (i64, i64) = (-11_676_096_000, 16_725_225_600);
/// Before the first timestamp, and long after the last day of a rule that ends.
const LONG_AGO: i64 = -300_000_000_000;
const HEAD_BYTES: usize = 5;
const ENTRY_BYTES: usize = 12;
/// Some 400 years of transitions each month.
const ENTRIES_MAX: usize = 1 << 14;

/// The transitions of a time zone.
pub struct ZoneTable {
    /// How far local time is ahead, by the moment in UTC.
    pub by_utc: ZoneSteps,
    /// How far local time is ahead, by local time.
    pub by_local: ZoneSteps,
}

/// Offsets in microseconds, each from a moment on.
pub struct ZoneSteps {
    /// In order.
    pub starts: Vec<i64>,
    /// One more than starts: that before the first is the first.
    pub offsets: Vec<i64>,
    /// How many starts are not after the beginning of each stretch since the first, of [`ZoneSteps::STRETCH_SHIFT`].
    pub stretches: Vec<u32>,
    /// Whether the first 400 years repeat before them.
    pub repeats_before: bool,
    /// Whether the last 400 years repeat after them.
    pub repeats_after: bool,
}

impl ZoneTable {
    /// No offset is as large.
    pub const OFFSET_SECONDS_END: i64 = 7 * 86_400;

    /// The table of a zone, as bytes.
    ///
    /// # Errors
    ///
    /// `NotSupported` if its transitions are too near to each other, or too many.
    pub fn encode(zone: &dyn TimeZone) -> Result<Vec<u8>> {
        let refuse = |why| {
            let message = format!("a time zone whose transitions are {why} can't be used");
            Error::new(ErrorKind::NotSupported, message)
        };
        let mut next = zone.next_transition(LONG_AGO);
        let repeats_before = next.then.is_some_and(|(seconds, _)| seconds < YEARS.0);
        if repeats_before {
            next = zone.next_transition(YEARS.0);
        }
        let first = next.offset;
        let mut entries: Vec<(i64, i64)> = Vec::new();
        let mut repeats_after = false;
        while let Some((seconds, offset)) = next.then {
            if seconds >= YEARS.1 {
                repeats_after = true;
                break;
            }
            // Some change the name alone.
            if entries.last().map_or(first, |last| last.1) != offset {
                if entries.last().is_some_and(|last| seconds - last.0 < APART_SECONDS) {
                    return Err(refuse("less than three days apart"));
                }
                entries.push((seconds, offset));
            }
            if entries.len() > ENTRIES_MAX {
                return Err(refuse("too many"));
            }
            next = zone.next_transition(seconds);
        }
        let mut bytes = (first as i32).to_le_bytes().to_vec();
        bytes.push(u8::from(repeats_before) | u8::from(repeats_after) << 1);
        for (seconds, offset) in entries {
            bytes.extend(seconds.to_le_bytes());
            bytes.extend((offset as i32).to_le_bytes());
        }
        Ok(bytes)
    }

    /// The zone of such bytes.
    ///
    /// # Errors
    ///
    /// `Internal` for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let invalid = || Error::internal("not the table of a time zone");
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(invalid)?;
        let (first, flags) = head.split_first_chunk::<4>().ok_or_else(invalid)?;
        let (first, flags) = (i32::from_le_bytes(*first), flags.first().copied().unwrap_or(0));
        let is_offset = |offset: i32| i64::from(offset).abs() < Self::OFFSET_SECONDS_END;
        if rest.len() % ENTRY_BYTES != 0 || rest.len() / ENTRY_BYTES > ENTRIES_MAX + 1 || !is_offset(first) {
            return Err(invalid());
        }
        let mut offsets = vec![i64::from(first) * SECOND_MICROSECONDS];
        let (mut utc, mut local) = (Vec::new(), Vec::new());
        for entry in rest.chunks_exact(ENTRY_BYTES) {
            let (seconds, offset) = entry.split_first_chunk::<8>().ok_or_else(invalid)?;
            let seconds = i64::from_le_bytes(*seconds);
            let offset = i32::from_le_bytes(offset.try_into().map_err(|_| invalid())?);
            let start = seconds.checked_mul(SECOND_MICROSECONDS).ok_or_else(invalid)?;
            let is_in_order =
                utc.last().is_none_or(|last| start - last >= APART_SECONDS * SECOND_MICROSECONDS);
            if !is_in_order || !is_offset(offset) || !(LONG_AGO..YEARS.1).contains(&seconds) {
                return Err(invalid());
            }
            let offset = i64::from(offset) * SECOND_MICROSECONDS;
            utc.push(start);
            local.push(start + offset);
            offsets.push(offset);
        }
        if local.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(invalid());
        }
        let steps = |starts, offsets| ZoneSteps::new(starts, offsets, flags & 1 != 0, flags & 2 != 0);
        Ok(Self { by_utc: steps(utc, offsets.clone()), by_local: steps(local, offsets) })
    }

    /// The least and the greatest offset in such bytes, in microseconds; `None` if they are no table.
    pub fn extreme_offsets(bytes: &[u8]) -> Option<(i64, i64)> {
        let (head, entries) = bytes.split_at_checked(HEAD_BYTES)?;
        let first = i32::from_le_bytes(*head.first_chunk()?);
        let others = entries.chunks_exact(ENTRY_BYTES).filter_map(|entry| entry.last_chunk());
        let offsets = others.map(|offset| i32::from_le_bytes(*offset));
        let (least, greatest) = offsets
            .fold((first, first), |(least, greatest), offset| (least.min(offset), greatest.max(offset)));
        Some((i64::from(least) * SECOND_MICROSECONDS, i64::from(greatest) * SECOND_MICROSECONDS))
    }

    /// The local time at a moment in UTC; both in microseconds. `None` beyond 64 bits.
    pub fn to_local(&self, utc: i64) -> Option<i64> {
        utc.checked_add(self.by_utc.offset(utc))
    }

    /// The moment in UTC that PostgreSQL takes a local time for.
    pub fn to_utc(&self, local: i64) -> Option<i64> {
        local.checked_sub(self.by_local.offset(local))
    }

    /// How far local time is ahead at a moment in UTC.
    pub fn offset(&self, utc: i64) -> i64 {
        self.by_utc.offset(utc)
    }
}

impl ZoneSteps {
    /// The microseconds of a stretch of time, as a power of two: some 100 days.
    pub const STRETCH_SHIFT: u32 = 43;

    fn new(starts: Vec<i64>, offsets: Vec<i64>, repeats_before: bool, repeats_after: bool) -> Self {
        let mut stretches = Vec::new();
        if let (Some(first), Some(last)) = (starts.first(), starts.last()) {
            let count = (last.abs_diff(*first) >> Self::STRETCH_SHIFT) + 1;
            let mut passed = 0;
            for stretch in 0..count {
                let begin = first + ((stretch as i64) << Self::STRETCH_SHIFT);
                while starts.get(passed).is_some_and(|start| *start <= begin) {
                    passed += 1;
                }
                stretches.push(passed as u32);
            }
        }
        Self { starts, offsets, stretches, repeats_before, repeats_after }
    }

    #[inline]
    fn offset(&self, at: i64) -> i64 {
        let (Some(first), Some(last)) = (self.starts.first(), self.starts.last()) else {
            return self.offsets.first().copied().unwrap_or(0);
        };
        let mut at = at;
        if at < *first {
            if !self.repeats_before {
                return self.offsets.first().copied().unwrap_or(0);
            }
            at = within_cycle(at, *first);
        } else if at >= *last {
            if !self.repeats_after {
                return self.offsets.last().copied().unwrap_or(0);
            }
            at = within_cycle(at, last - CYCLE_SECONDS * SECOND_MICROSECONDS);
        }
        let stretch = (at.abs_diff(*first) >> Self::STRETCH_SHIFT) as usize;
        let mut place =
            self.stretches.get(stretch).or(self.stretches.last()).map_or(0, |place| *place as usize);
        while self.starts.get(place).is_some_and(|start| *start <= at) {
            place += 1;
        }
        self.offsets.get(place).copied().unwrap_or(0)
    }
}

/// The moment so many cycles earlier or later that is in the cycle that begins at a moment.
fn within_cycle(at: i64, begin: i64) -> i64 {
    let cycle = i128::from(CYCLE_SECONDS * SECOND_MICROSECONDS);
    let into = (i128::from(at) - i128::from(begin)).rem_euclid(cycle);
    begin.saturating_add(into as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NextTransition;

    const DAY: i64 = 86_400;

    /// Forward and back once in each year of 365.2425 days, from and until a year.
    struct Yearly {
        from: i64,
        until: i64,
    }

    impl Yearly {
        fn transition(number: i64) -> i64 {
            // Two a year, on seconds that repeat every 400 years.
            number.div_euclid(800) * CYCLE_SECONDS
                + number.rem_euclid(800) * (CYCLE_SECONDS / 800 / 3_600) * 3_600
        }
    }

    impl TimeZone for Yearly {
        fn next_transition(&self, utc_seconds: i64) -> NextTransition {
            let mut number = utc_seconds.div_euclid(CYCLE_SECONDS) * 800 - 1;
            while Self::transition(number) <= utc_seconds || number < self.from {
                number += 1;
            }
            let offset_from = |number: i64| if number.rem_euclid(2) == 0 { 7_200 } else { 3_600 };
            let is_over = number >= self.until;
            let last = if is_over { self.until - 1 } else { number - 1 };
            let offset = if last < self.from { 1_234 } else { offset_from(last) };
            let then = (!is_over).then(|| (Self::transition(number), offset_from(number)));
            NextTransition { offset, then }
        }
    }

    fn offset_of_local(zone: &dyn TimeZone, seconds: i64) -> i64 {
        let near = zone.next_transition(seconds - DAY);
        match near.then {
            Some((transition, offset)) if seconds - offset >= transition => offset,
            _ => near.offset,
        }
    }

    #[test]
    fn a_table_has_the_offsets_of_its_zone() {
        let ends = [(i64::MIN / 4, i64::MAX / 4), (-200, i64::MAX / 4), (-200, 90), (0, 0)];
        for (from, until) in ends {
            let zone = Yearly { from, until };
            let table = ZoneTable::decode(&ZoneTable::encode(&zone).unwrap()).unwrap();
            let years = (-4_700..3_000).step_by(41).chain([9_999, 100_000, 290_000]);
            for seconds in
                years.flat_map(|year| (0..24).map(move |part| year * 31_556_952 - part * 1_314_871))
            {
                for seconds in [seconds, seconds / 3_600 * 3_600, seconds / 3_600 * 3_600 - 1] {
                    let micros = seconds * SECOND_MICROSECONDS + 7;
                    let utc = zone.next_transition(seconds).offset;
                    assert_eq!(
                        table.to_local(micros),
                        Some(micros + utc * SECOND_MICROSECONDS),
                        "{from} {seconds}"
                    );
                    let local = offset_of_local(&zone, seconds);
                    assert_eq!(
                        table.to_utc(micros),
                        Some(micros - local * SECOND_MICROSECONDS),
                        "{from} {seconds}"
                    );
                }
            }
        }
    }

    #[test]
    fn transitions_have_a_place() {
        let zone = Yearly { from: -200, until: 90 };
        let table = ZoneTable::decode(&ZoneTable::encode(&zone).unwrap()).unwrap();
        for number in -200..90 {
            let at = Yearly::transition(number);
            for seconds in [at - 1, at, at + 1, at + 3_599, at + 3_600, at + 7_199, at + 7_200] {
                let micros = seconds * SECOND_MICROSECONDS;
                let expected = zone.next_transition(seconds).offset * SECOND_MICROSECONDS;
                assert_eq!(table.offset(micros), expected, "{number}");
                let local = offset_of_local(&zone, seconds);
                assert_eq!(table.to_utc(micros), Some(micros - local * SECOND_MICROSECONDS), "{number}");
            }
        }
    }

    #[test]
    fn other_bytes_are_no_table() {
        let mut entries = 0i32.to_le_bytes().to_vec();
        entries.push(0);
        assert!(ZoneTable::decode(&entries).is_ok());
        for seconds in [0i64, 100] {
            entries.extend(seconds.to_le_bytes());
            entries.extend(3_600i32.to_le_bytes());
        }
        for bytes in [&entries[..], &entries[..4], &entries[..12], b"", &[255, 255, 255, 127, 0]] {
            assert!(ZoneTable::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
