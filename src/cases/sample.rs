//! The part of a long list of cases that a run of the tests takes.
//!
//! `PYSTACHIO_TEST_SHARE` says how much of the list runs, all of it by default, and `PYSTACHIO_TEST_SEED` chooses the cases.
//! `scripts/test.sh` sets both. A sampled run finds nothing that a whole one would not find.

use std::{env, str::FromStr};

/// How a test takes cases from its lists. The same environment gives the same cases.
#[derive(Debug)]
pub struct Sample {
    share: f64,
    state: u64,
}

fn environment<T: FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

impl Sample {
    /// The sample of a test, whose name makes it another one than that of other tests. Prints what was chosen.
    pub fn of(test: &str) -> Self {
        let share: f64 = environment("PYSTACHIO_TEST_SHARE").unwrap_or(1.0);
        let seed: u64 = environment("PYSTACHIO_TEST_SEED").unwrap_or(0);
        println!("{test}: PYSTACHIO_TEST_SHARE={share} PYSTACHIO_TEST_SEED={seed}");
        Self::with(test, share, seed)
    }

    fn with(test: &str, share: f64, seed: u64) -> Self {
        // FNV-1a: the same on every machine.
        let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let state = test.bytes().chain(seed.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, hash);
        Self { share: share.clamp(0.0, 1.0), state }
    }

    /// Whether all cases run.
    pub fn is_whole(&self) -> bool {
        self.share >= 1.0
    }

    /// How many of so many cases run: one at least.
    pub fn count(&self, cases: usize) -> usize {
        ((cases as f64 * self.share).ceil() as usize).clamp(cases.min(1), cases)
    }

    /// The cases that run, in their order.
    pub fn take<T>(&mut self, cases: impl IntoIterator<Item = T>) -> Vec<T> {
        let cases: Vec<T> = cases.into_iter().collect();
        let marks = self.marks(cases.len());
        cases.into_iter().zip(marks).filter_map(|(case, is_chosen)| is_chosen.then_some(case)).collect()
    }

    /// Which of so many cases run. For cases that are made of one sequence of random numbers: each must be made.
    pub fn marks(&mut self, cases: usize) -> Vec<bool> {
        let mut left = self.count(cases);
        // Each of the cases that are left is as likely as the others.
        let mut mark = |place: usize| {
            let is_chosen = self.below((cases - place) as u64) < left as u64;
            left -= usize::from(is_chosen);
            is_chosen
        };
        (0..cases).map(&mut mark).collect()
    }

    /// A number below a limit: SplitMix64.
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_a_share_in_order_and_all_seeds_choose_every_case() {
        let mut seen = [false; 20];
        for seed in 0..60 {
            let [one, other] = [(); 2].map(|()| Sample::with("a test", 0.25, seed).take(0..20_usize));
            assert_eq!(one, other);
            assert_eq!(one.len(), 5);
            assert!(one.is_sorted());
            one.into_iter().for_each(|case| seen[case] = true);
        }
        assert!(seen.iter().all(|is_seen| *is_seen), "{seen:?}");
        assert_ne!(Sample::with("a", 0.25, 1).take(0..99), Sample::with("b", 0.25, 1).take(0..99));
    }

    #[test]
    fn one_case_runs_at_least_and_all_where_the_share_is_one() {
        assert_eq!(Sample::with("a test", 0.01, 7).take(0..9).len(), 1);
        assert_eq!(Sample::with("a test", 0.01, 7).take(0..0).len(), 0);
        let mut whole = Sample::with("a test", 1.0, 7);
        assert_eq!(whole.take(0..9), Vec::from_iter(0..9));
        assert!(whole.is_whole() && !Sample::with("a test", 0.25, 7).is_whole());
    }
}
