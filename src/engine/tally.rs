//! Counts that must not wrap: of bytes, rows and places.
//!
//! This crate is compiled with checks for overflow. The CPU engine is not, because its functions compute row by row and
//! check what PostgreSQL checks. It counts memory by this type, whose arithmetic keeps its checks wherever it is inlined.

/// A count that panics where it would wrap. Under [`crate::locking::lock`] such a panic ends the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tally(usize);

impl Tally {
    /// The count.
    pub fn get(self) -> usize {
        self.0
    }

    /// Adds to the count.
    ///
    /// # Panics
    ///
    /// If the sum does not fit.
    #[track_caller]
    pub fn add(&mut self, more: usize) {
        self.0 += more;
    }

    /// Takes from the count.
    ///
    /// # Panics
    ///
    /// If there is less.
    #[track_caller]
    pub fn take(&mut self, less: usize) {
        self.0 -= less;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts() {
        let mut tally = Tally::default();
        tally.add(5);
        tally.take(2);
        assert_eq!(tally.get(), 3);
    }

    #[test]
    #[should_panic(expected = "overflow")]
    fn a_tally_does_not_go_below_zero() {
        Tally::default().take(1);
    }

    #[test]
    #[should_panic(expected = "overflow")]
    fn a_tally_does_not_wrap() {
        let mut tally = Tally::default();
        tally.add(usize::MAX);
        tally.add(1);
    }
}
