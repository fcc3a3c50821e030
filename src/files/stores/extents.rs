//! Which bytes of an object are present.
//!
//! Invariant: ranges are sorted, disjoint, non-empty, and do not touch.

use std::ops::Range;

/// Ranges of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Range<u64>>);

impl Extents {
    /// Adds a range. Returns how many bytes were not in it before.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let added: u64 = self.missing(&range).iter().map(|range| range.end - range.start).sum();
        let first = self.0.partition_point(|known| known.end < range.start);
        let last = self.0.partition_point(|known| known.start <= range.end);
        let joined = self.0.get(first..last).unwrap_or_default();
        let start = joined.first().map_or(range.start, |known| known.start.min(range.start));
        let end = joined.last().map_or(range.end, |known| known.end.max(range.end));
        self.0.splice(first..last, std::iter::once(start..end));
        added
    }

    /// The parts of a range that are not present, in order.
    pub fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut start = range.start;
        let first = self.0.partition_point(|known| known.end <= range.start);
        for known in self.0.iter().skip(first).take_while(|known| known.start < range.end) {
            if start < known.start {
                missing.push(start..known.start);
            }
            start = start.max(known.end);
        }
        if start < range.end {
            missing.push(start..range.end);
        }
        missing
    }

    /// Removes a range.
    pub fn remove(&mut self, range: &Range<u64>) {
        let first = self.0.partition_point(|known| known.end <= range.start);
        let last = self.0.partition_point(|known| known.start < range.end);
        let cut = self.0.get(first..last).unwrap_or_default();
        let before = cut.first().map(|known| known.start..range.start);
        let after = cut.last().map(|known| range.end..known.end);
        let left: Vec<_> = before.into_iter().chain(after).filter(|range| !range.is_empty()).collect();
        self.0.splice(first..last, left);
    }

    /// The ranges, but for what others have too.
    pub fn without(&self, others: &Self) -> Vec<Range<u64>> {
        self.0.iter().flat_map(|range| others.missing(range)).collect()
    }

    /// All bytes that are present.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }
}

/// Ranges as requests: sorted, neighbours with at most `gap_max` bytes between them joined, and none longer than `bytes_max`.
pub fn as_requests(mut ranges: Vec<Range<u64>>, gap_max: u64, bytes_max: u64) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap_max) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    let mut requests = Vec::new();
    for range in joined {
        // Equal pieces are ready at about the same time.
        let count = (range.end - range.start).div_ceil(bytes_max.max(1));
        let piece = (range.end - range.start).div_ceil(count.max(1));
        let mut start = range.start;
        while start < range.end {
            let end = start.saturating_add(piece).min(range.end);
            requests.push(start..end);
            start = end;
        }
    }
    requests
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them of one")]
mod tests {
    use super::*;

    #[test]
    fn inserted_ranges_join_and_what_is_between_is_missing() {
        let mut extents = Extents::default();
        assert_eq!((extents.insert(10..20), extents.insert(30..40), extents.insert(5..5)), (10, 10, 0));
        assert_eq!(extents.missing(&(0..50)), [0..10, 20..30, 40..50]);
        assert_eq!(extents.missing(&(12..18)), []);
        assert_eq!(extents.missing(&(18..32)), [20..30]);
        assert_eq!(extents.insert(20..25), 5);
        assert_eq!(extents.0, [10..25, 30..40]);
        assert_eq!(extents.insert(0..100), 75);
        assert_eq!((extents.0.as_slice(), extents.bytes()), ([0..100].as_slice(), 100));
        extents.remove(&(20..30));
        assert_eq!((extents.0.as_slice(), extents.bytes()), ([0..20, 30..100].as_slice(), 90));
        let mut others = Extents::default();
        others.insert(10..40);
        assert_eq!(extents.without(&others), [0..10, 40..100]);
        extents.remove(&(0..100));
        assert_eq!(extents.missing(&(3..4)), [3..4]);
    }

    /// Every small set of ranges against a set of bytes.
    #[test]
    fn extents_are_a_set_of_bytes() {
        let ranges: Vec<Range<u64>> =
            (0..6).flat_map(|start| (start + 1..7).map(move |end| start..end)).collect();
        for first in &ranges {
            for second in &ranges {
                for third in &ranges {
                    let (mut extents, mut bytes) = (Extents::default(), [false; 8]);
                    for range in [first, second, third] {
                        let fresh = range.clone().filter(|byte| !bytes[*byte as usize]).count() as u64;
                        range.clone().for_each(|byte| bytes[byte as usize] = true);
                        assert_eq!(extents.insert(range.clone()), fresh);
                    }
                    let missing: Vec<u64> = extents.missing(&(0..8)).into_iter().flatten().collect();
                    let expected: Vec<u64> = (0..8).filter(|byte| !bytes[*byte as usize]).collect();
                    assert_eq!(missing, expected);
                    assert!(extents.0.windows(2).all(|pair| pair[0].end < pair[1].start));
                    extents.remove(second);
                    second.clone().for_each(|byte| bytes[byte as usize] = false);
                    assert_eq!(extents.bytes(), bytes.iter().filter(|is_there| **is_there).count() as u64);
                    assert!(extents.0.iter().cloned().flatten().all(|byte| bytes[byte as usize]));
                }
            }
        }
    }

    #[test]
    fn neighbours_are_one_request_and_large_ranges_several() {
        assert_eq!(as_requests(vec![50..60, 0..10, 14..20, 9..12], 4, 100), [0..20, 50..60]);
        assert_eq!(as_requests(vec![0..250], 0, 100), [0..84, 84..168, 168..250]);
        assert_eq!(as_requests(vec![3..3], 0, 100), []);
    }
}
