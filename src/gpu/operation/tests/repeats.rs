//! Rows repeated by numbers of their own.

use super::*;
use crate::operation::abi::REPEATED_ROUND;

/// Row and number of each repeat, as loops have them.
fn expected(lasts: &[Option<i64>], keeps_rows: bool) -> Vec<(u32, Option<i64>)> {
    let mut repeats = Vec::new();
    for (row, last) in lasts.iter().enumerate() {
        let last = last.unwrap_or(0);
        repeats.extend((1..=last).map(|number| (row as u32, Some(number))));
        if last < 1 && keeps_rows {
            repeats.push((row as u32, None));
        }
    }
    repeats
}

fn found(queue: &Queue, lasts: &[Option<i64>], keeps_rows: bool, piece: u64) -> Vec<(u32, Option<i64>)> {
    let repeats = queue.count_repeats(numbers(queue, lasts), lasts.len(), keeps_rows).unwrap();
    let mut all = Vec::new();
    let mut first = 0;
    while first < repeats.total {
        let count = piece.min(repeats.total - first) as usize;
        let (rows, number) = queue.repeat(&repeats, first, count).unwrap();
        let rows: Vec<u32> = queue.download(&rows.rows, count).unwrap();
        all.extend(rows.into_iter().zip(read_numbers(queue, &number, count)));
        first += count as u64;
    }
    assert!(queue.next_repeats(repeats).unwrap().is_none());
    all
}

#[test]
fn rows_come_once_for_each_number() {
    let queue = queue();
    let mut source = Numbers(SEED);
    let mut random = |count: usize, most: u64| -> Vec<Option<i64>> {
        let mut last = || (source.next(5) > 0).then(|| source.next(most) as i64 - 2);
        (0..count).map(|_| last()).collect()
    };
    let cases = [
        vec![],
        vec![None],
        vec![Some(0), Some(i64::MIN), None],
        vec![Some(1)],
        vec![Some(0), Some(3), None, Some(-4), Some(1), Some(0)],
        random(700, 5),
        random(9_000, 4),
        random(40, 900),
    ];
    for lasts in cases {
        for keeps_rows in [false, true] {
            for piece in [u64::MAX, 1000, 7] {
                let context = format!("{} rows, keeps {keeps_rows}, {piece} at once", lasts.len());
                assert!(
                    found(&queue, &lasts, keeps_rows, piece) == expected(&lasts, keeps_rows),
                    "{context}"
                );
            }
        }
    }
}

#[test]
fn a_row_may_be_repeated_more_often_than_there_are_row_numbers() {
    let queue = queue();
    let round = REPEATED_ROUND as i64;
    let lasts = [Some(2), Some(i64::MAX), Some(round + 2), None];
    let mut repeats = queue.count_repeats(numbers(&queue, &lasts), lasts.len(), true).unwrap();
    assert_eq!(repeats.total, 2 + 2 * REPEATED_ROUND + 1);
    let read = |repeats: &_, first: u64, count: usize| {
        let (rows, number) = queue.repeat(repeats, first, count).unwrap();
        let rows: Vec<u32> = queue.download(&rows.rows, count).unwrap();
        rows.into_iter().zip(read_numbers(&queue, &number, count)).collect::<Vec<_>>()
    };
    assert_eq!(
        read(&repeats, REPEATED_ROUND, 4),
        [(1, Some(round - 1)), (1, Some(round)), (2, Some(1)), (2, Some(2))]
    );
    assert_eq!(read(&repeats, repeats.total - 1, 1), [(3, None)]);
    repeats = queue.next_repeats(repeats).unwrap().unwrap();
    assert_eq!(repeats.total, REPEATED_ROUND + 2);
    assert_eq!(read(&repeats, 0, 1), [(1, Some(round + 1))]);
    assert_eq!(read(&repeats, REPEATED_ROUND, 2), [(2, Some(round + 1)), (2, Some(round + 2))]);
    repeats = queue.next_repeats(repeats).unwrap().unwrap();
    assert_eq!((repeats.total, read(&repeats, 0, 1)), (REPEATED_ROUND, vec![(1, Some(2 * round + 1))]));
}
