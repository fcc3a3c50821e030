//! How many parts a cache holds of each of some things: of a file's column, for example.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
};

use crate::Tally;

/// Counts by key. A key of which nothing is held takes no memory.
#[derive(Debug)]
pub struct HeldCounts<Key> {
    counts: HashMap<Key, Tally>,
}

impl<Key> Default for HeldCounts<Key> {
    fn default() -> Self {
        Self { counts: HashMap::new() }
    }
}

impl<Key: Eq + Hash> HeldCounts<Key> {
    /// How many are held.
    pub fn of(&self, key: &Key) -> usize {
        self.counts.get(key).map_or(0, |count| count.get())
    }

    /// Counts one that is held from now on.
    pub fn add(&mut self, key: Key) {
        self.counts.entry(key).or_default().add(1);
    }

    /// Counts one less. Of a key of which nothing is held it changes nothing.
    pub fn take(&mut self, key: Key) {
        let Entry::Occupied(mut held) = self.counts.entry(key) else { return };
        held.get_mut().take(1);
        if held.get().get() == 0 {
            held.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_longer_held_is_forgotten() {
        let mut held = HeldCounts::default();
        held.add("a");
        held.add("a");
        held.add("b");
        assert_eq!([held.of(&"a"), held.of(&"b"), held.of(&"c")], [2, 1, 0]);
        for key in ["a", "b", "c", "b"] {
            held.take(key);
        }
        assert_eq!([held.of(&"a"), held.of(&"b"), held.of(&"c")], [1, 0, 0]);
        assert_eq!(held.counts.len(), 1);
    }
}
