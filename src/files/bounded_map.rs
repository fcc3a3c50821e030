//! What was found out about files, kept as long as there is not too much of it.

use std::{collections::HashMap, hash::Hash, sync::Mutex};

use pystachio_engine::locking::lock_whole;

/// Values by their keys, so many at most: one more and the others are forgotten, to be found out again.
#[derive(Debug)]
pub(super) struct BoundedMap<K, V, const ENTRIES_MAX: usize>(Mutex<HashMap<K, V>>);

impl<K, V, const ENTRIES_MAX: usize> Default for BoundedMap<K, V, ENTRIES_MAX> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone, const ENTRIES_MAX: usize> BoundedMap<K, V, ENTRIES_MAX> {
    pub(super) fn get(&self, key: &K) -> Option<V> {
        lock_whole(&self.0).get(key).cloned()
    }

    pub(super) fn insert(&self, key: K, value: V) {
        let mut entries = lock_whole(&self.0);
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&key) {
            entries.clear();
        }
        entries.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_is_full_forgets_the_others_and_one_that_gets_a_known_key_does_not() {
        let map = BoundedMap::<_, _, 2>::default();
        map.insert('a', 1);
        map.insert('b', 2);
        map.insert('a', 3);
        assert_eq!((map.get(&'a'), map.get(&'b')), (Some(3), Some(2)));
        map.insert('c', 4);
        assert_eq!((map.get(&'a'), map.get(&'b'), map.get(&'c')), (None, None, Some(4)));
    }
}
