//! Sets of keys against plain sets of the same values.

use std::collections::HashSet;

use super::*;
use crate::operation::{FilterCounts, KeyFilter, KeyFilterShape, KeyRange, KeyTest};

const ROWS: usize = 5000;

/// Keys of the build side and of the probe side, of which a part are in both.
fn sides(spread: i64, nulls: bool) -> [Vec<Option<i64>>; 2] {
    let mut source = Numbers(SEED ^ spread as u64);
    [3, 9].map(|part| {
        (0..ROWS)
            .map(|_| {
                let key = source.next(part * 500) as i64 * spread - 700;
                (!nulls || source.next(8) > 0).then_some(key)
            })
            .collect()
    })
}

/// The set of some rows' keys, which are added in two pieces.
fn filter_of(queue: &Queue, shape: KeyFilterShape, keys: &[Column]) -> KeyFilter {
    let filter = queue.open_key_filter(shape).unwrap();
    let middle = ROWS / 3;
    for rows in [0..middle, middle..ROWS] {
        let slice = |key: &Column| queue.slice_column(key, rows.start, rows.len()).unwrap();
        queue.insert_keys(&filter, &keys.iter().map(slice).collect::<Vec<_>>(), rows.len()).unwrap();
    }
    filter
}

/// The flags of probe rows, after a check that counts and untested rows are right.
fn passes(queue: &Queue, build: &[Column], probe: &[Column], shape: KeyFilterShape) -> Vec<bool> {
    let filter = filter_of(queue, shape, build);
    let flags = queue.test_keys(&filter, probe, ROWS, KeyTest::default()).unwrap();
    let flags: Vec<u8> = queue.download(&flags, ROWS).unwrap();
    assert!(flags.iter().all(|flag| *flag <= 1));
    let asked: Vec<u8> = (0..ROWS).map(|row| u8::from(row % 3 > 0)).collect();
    let asked_buffer = queue.upload(&asked).unwrap();
    let counts = queue.upload(&[FilterCounts { tested: 10, passed: 20 }]).unwrap();
    let test = KeyTest { asked: Some(&asked_buffer), counts: Some(&counts) };
    let some = queue.test_keys(&filter, probe, ROWS, test).unwrap();
    let some: Vec<u8> = queue.download(&some, ROWS).unwrap();
    let expected: Vec<u8> = flags.iter().zip(&asked).map(|(flag, asked)| flag & asked).collect();
    assert_eq!(some, expected);
    let tested = 10 + asked.iter().map(|asked| u64::from(*asked)).sum::<u64>();
    let passed = 20 + expected.iter().map(|flag| u64::from(*flag)).sum::<u64>();
    assert_eq!(queue.download::<FilterCounts>(&counts, 1).unwrap(), [FilterCounts { tested, passed }]);
    flags.iter().map(|flag| *flag == 1).collect()
}

#[test]
fn a_bitmap_passes_exactly_the_keys_that_are_in_it() {
    let queue = queue();
    for (spread, nulls) in [(1, false), (1, true), (7, true)] {
        let [build, probe] = sides(spread, nulls);
        let columns = [&build, &probe].map(|values| numbers(&queue, values));
        let range = queue.key_range(&columns[0], ROWS).unwrap().unwrap();
        let keys: HashSet<i64> = build.iter().flatten().copied().collect();
        assert_eq!(Some(&range.least), keys.iter().min());
        assert_eq!(Some(&range.greatest), keys.iter().max());
        let shape = KeyFilterShape::bitmap(Some(range), ROWS, 0).unwrap();
        let found = passes(&queue, &columns[..1], &columns[1..], shape);
        let expected: Vec<bool> =
            probe.iter().map(|key| key.is_some_and(|key| keys.contains(&key))).collect();
        assert_eq!(found, expected);
    }
}

/// Checks that no key of the set is refused, and few others pass.
fn check_bloom(found: &[bool], is_in: impl Fn(usize) -> bool, context: &str) {
    let refused = (0..ROWS).filter(|row| is_in(*row) && !found[*row]).count();
    let mistaken = (0..ROWS).filter(|row| !is_in(*row) && found[*row]).count();
    assert_eq!(refused, 0, "{context}");
    assert!(mistaken < ROWS / 100, "{context}: {mistaken} rows pass by mistake");
    assert!((0..ROWS).any(&is_in) && !(0..ROWS).all(&is_in), "{context}: nothing is tested");
}

#[test]
fn a_bloom_filter_refuses_no_key_that_is_in_it() {
    let queue = queue();
    let shape = KeyFilterShape::bloom(ROWS);
    for nulls in [false, true] {
        let [build, probe] = sides(1 << 40, nulls);
        let keys: HashSet<i64> = build.iter().flatten().copied().collect();
        let is_in = |row: usize| probe[row].is_some_and(|key| keys.contains(&key));
        let columns = [&build, &probe].map(|values| numbers(&queue, values));
        check_bloom(&passes(&queue, &columns[..1], &columns[1..], shape), is_in, "bigint");
        let words = |values: &[Option<i64>]| {
            values.iter().map(|key| key.map(|key| format!("ä{key:030}"))).collect::<Vec<_>>()
        };
        let columns = [&build, &probe].map(|values| texts(&queue, &words(values)));
        check_bloom(&passes(&queue, &columns[..1], &columns[1..], shape), is_in, "text");
        let large = |values: &[Option<i64>]| {
            values.iter().map(|key| key.map(|key| i256::from_i128(i128::from(key) << 70))).collect::<Vec<_>>()
        };
        let columns = [&build, &probe].map(|values| large_numbers(&queue, &large(values)));
        check_bloom(&passes(&queue, &columns[..1], &columns[1..], shape), is_in, "numeric");
    }
}

#[test]
fn several_keys_pass_only_together() {
    let queue = queue();
    let [build, probe] = sides(1, true);
    let word = |key: i64| ["a", "", "bc"][(key % 3).unsigned_abs() as usize].to_owned();
    let words = |values: &[Option<i64>], shift: i64| {
        values.iter().map(|key| Some(word(key.unwrap_or(5) + shift))).collect::<Vec<_>>()
    };
    let build_words = words(&build, 0);
    // Every other probe row has the text of another key.
    let mut probe_words = words(&probe, 0);
    let others = words(&probe, 1);
    (0..ROWS).step_by(2).for_each(|row| probe_words[row].clone_from(&others[row]));
    let keys: HashSet<_> = build.iter().zip(&build_words).filter(|(key, _)| key.is_some()).collect();
    let is_in = |row: usize| keys.contains(&(&probe[row], &probe_words[row]));
    let build_columns = [numbers(&queue, &build), texts(&queue, &build_words)];
    let probe_columns = [numbers(&queue, &probe), texts(&queue, &probe_words)];
    let shape = KeyFilterShape::bloom(ROWS);
    check_bloom(&passes(&queue, &build_columns, &probe_columns, shape), is_in, "two keys");
}

#[test]
fn a_bitmap_knows_whether_keys_repeat() {
    let queue = queue();
    let once: Vec<Option<i64>> = (0..ROWS as i64).map(|row| (row % 9 > 0).then_some(row * 3)).collect();
    let mut twice = once.clone();
    twice[ROWS - 1] = once[1];
    for (values, is_repeated) in [(once, false), (twice, true)] {
        let keys = [numbers(&queue, &values)];
        let shape = KeyFilterShape::bitmap(queue.key_range(&keys[0], ROWS).unwrap(), ROWS, 0).unwrap();
        let filter = filter_of(&queue, shape, &keys);
        assert_eq!(queue.has_repeated_key(&filter).unwrap(), is_repeated);
    }
}

#[test]
fn a_set_without_keys_passes_nothing() {
    let queue = queue();
    let nulls = numbers(&queue, &vec![None; ROWS]);
    assert_eq!(queue.key_range(&nulls, ROWS).unwrap(), None);
    let probe = numbers(&queue, &sides(1, true)[1]);
    let found = passes(&queue, &[nulls], &[probe], KeyFilterShape::bloom(ROWS));
    assert!(!found.contains(&true));
}

#[test]
fn only_keys_that_lie_close_together_get_a_bit_each() {
    let is_bitmap = |least, greatest, rows, tested| {
        let shape = KeyFilterShape::bitmap(Some(KeyRange { least, greatest }), rows, tested);
        shape.is_some_and(|shape| {
            assert!(shape.bytes() <= (1 << 20) + 4 * rows as u64 + tested / 2, "{shape:?}");
            true
        })
    };
    assert!(is_bitmap(0, 1_000_000, 1, 0));
    assert!(!is_bitmap(0, 100_000_000, 1_000_000, 0));
    assert!(is_bitmap(-1_600_000_000, 1_600_000_000 - 1, 100_000_000, 0));
    assert!(!is_bitmap(i64::MIN, i64::MAX, usize::MAX >> 8, u64::MAX >> 8));
    assert!(is_bitmap(i64::MAX, i64::MAX, 1, 0));
    // Rows that are tested pay for it too.
    assert!(!is_bitmap(0, 600_000_000, 5_000_000, 10_000_000));
    assert!(is_bitmap(0, 600_000_000, 5_000_000, 600_000_000));
    assert_eq!(KeyFilterShape::bitmap(None, 1_000_000, 1_000_000), None);
}
