//! Failures of the emulated device on purpose, for tests of error paths.
//!
//! `PYSTACHIO_EMULATED=seed=7,allocations=1000,copies=5000,reads=300` in the environment: the
//! device works late, in orders seeded by 7, and lets one allocation in a thousand fail, one copy
//! in five thousand, and one read of a file in three hundred.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use super::{STEP, mix};

/// The variable with the settings of every emulated device of a process.
const VARIABLE: &str = "PYSTACHIO_EMULATED";

/// The settings of emulated devices, unless a test sets others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Behaviour {
    /// The seed of late work; work happens at once if absent.
    pub(super) seed: Option<u64>,
    /// One call in so many fails; none if absent.
    pub(super) refused: [Option<u64>; KINDS],
}

/// The kinds of calls that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An allocation: the device has not enough memory.
    Allocation = 0,
    /// A copy: the driver refuses it, and goes on.
    Copy = 1,
    /// A read of a file by the device itself.
    Read = 2,
}

const KINDS: usize = 3;
const NAMES: [&str; KINDS] = ["allocations", "copies", "reads"];

/// Counts the calls that could fail.
#[derive(Default)]
pub(super) struct Failures {
    one_in: [Option<u64>; KINDS],
    /// For each kind, which call from now on fails: 0 is none, 1 the next.
    planned: [AtomicU64; KINDS],
    counts: [AtomicU64; KINDS],
    seed: u64,
}

impl Behaviour {
    /// The settings from the environment. An unknown setting is an error.
    #[expect(
        clippy::panic,
        reason = "only tests set the variable, and a typing error would look like success"
    )]
    pub(super) fn of_environment() -> Self {
        static KNOWN: OnceLock<Behaviour> = OnceLock::new();
        *KNOWN.get_or_init(|| {
            let text = std::env::var(VARIABLE).unwrap_or_default();
            Self::parse(&text).unwrap_or_else(|word| panic!("{VARIABLE}={text}: unknown setting \"{word}\""))
        })
    }

    fn parse(text: &str) -> Result<Self, &str> {
        let mut behaviour = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, number) = word.split_once('=').ok_or(word)?;
            let number: u64 = number.parse().map_err(|_| word)?;
            match NAMES.iter().position(|known| *known == name) {
                Some(kind) => behaviour.refused[kind] = Some(number.max(1)),
                None if name == "seed" => behaviour.seed = Some(number),
                None => return Err(word),
            }
        }
        Ok(behaviour)
    }
}

impl Failures {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        Self { one_in: behaviour.refused, seed: behaviour.seed.unwrap_or(0), ..Self::default() }
    }

    /// Makes the call of a kind fail that comes after so many others.
    pub(super) fn plan(&self, kind: Refusal, after: u64) {
        self.planned[kind as usize].store(after + 1, Ordering::Relaxed);
    }

    /// Calls of a kind so far.
    pub(super) fn count(&self, kind: Refusal) -> u64 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    /// A number derived from the seed and a call's number.
    fn mixed(&self, number: u64) -> u64 {
        mix(self.seed.wrapping_add(number.wrapping_mul(STEP)))
    }

    /// Whether this call fails.
    pub(super) fn refuses(&self, kind: Refusal) -> bool {
        let kind = kind as usize;
        let number = self.counts[kind].fetch_add(1, Ordering::Relaxed);
        let planned = &self.planned[kind];
        let left = planned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left == Ok(1) || self.one_in[kind].is_some_and(|one_in| self.mixed(number).is_multiple_of(one_in))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_what_is_refused() {
        let behaviour = Behaviour::parse("seed=7,allocations=1000,reads=0").unwrap();
        assert_eq!(behaviour, Behaviour { seed: Some(7), refused: [Some(1000), None, Some(1)] });
        assert_eq!(Behaviour::parse(""), Ok(Behaviour::default()));
        for wrong in ["sed=7", "seed", "copies=many"] {
            assert_eq!(Behaviour::parse(wrong), Err(wrong));
        }
    }

    #[test]
    fn one_call_of_those_to_come_is_refused() {
        let failures = Failures::default();
        failures.plan(Refusal::Copy, 2);
        let refused: Vec<bool> = (0..5).map(|_| failures.refuses(Refusal::Copy)).collect();
        assert_eq!(refused, [false, false, true, false, false]);
        assert!(!failures.refuses(Refusal::Allocation));
        let behaviour = Behaviour { refused: [None, None, Some(10)], ..Behaviour::default() };
        let failures = Failures::new(behaviour);
        let count = (0..10_000).filter(|_| failures.refuses(Refusal::Read)).count();
        assert!((800..1200).contains(&count), "{count}");
    }
}
