//! Operations on the emulated device against plain loops over the same values.

mod compression;
mod float_sums;
mod key_filters;
mod packing;
mod ranges;
mod repeats;
mod scatter;
mod slots;
mod windows;

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::i256;
use num_bigint::BigInt;
use pystachio_plan::{DataType, ErrorKind, Result};

use super::{
    Accumulation, Accumulator, Grouping, HashPartitioning, ProbeMode, Queue, SlotKey, SlotLayout, SortColumn,
    SumWidth, column_schema, to_arrow,
};
use crate::device::{CellType, Chunk, Column, DeviceMemory, EmulatedPlatform, StringCell};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A simple generator of numbers: the same `seed` gives the same ones.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

pub(crate) fn queue() -> Queue {
    let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1 << 30);
    Queue::new(&memory).unwrap()
}

fn numbers(queue: &Queue, values: &[Option<i64>]) -> Column {
    let cells: Vec<i64> = values.iter().map(|value| value.unwrap_or(-77)).collect();
    let column = Column {
        data_type: DataType::Int64,
        cell_type: CellType::Int64,
        values: queue.upload(&cells).unwrap(),
        validity: validity(queue, values),
        strings: Vec::new(),
    };
    queue.poison_nulls(&column, values.len());
    column
}

fn decimal(precision: u8) -> DataType {
    DataType::Decimal { precision, scale: 2 }
}

/// A column of decimals of more than 38 digits.
fn large_numbers(queue: &Queue, values: &[Option<i256>]) -> Column {
    let cells: Vec<[u8; 32]> = values.iter().map(|value| value.unwrap_or(i256::MAX).to_le_bytes()).collect();
    let column = Column {
        data_type: decimal(60),
        cell_type: CellType::Int256,
        values: queue.upload(&cells).unwrap(),
        validity: validity(queue, values),
        strings: Vec::new(),
    };
    queue.poison_nulls(&column, values.len());
    column
}

fn read_large_numbers(queue: &Queue, column: &Column, count: usize) -> Vec<Option<i256>> {
    assert_eq!(column.cell_type, CellType::Int256);
    let cells: Vec<[u8; 32]> = queue.download(&column.values, count).unwrap();
    let flags: Option<Vec<u8>> = column.validity.as_ref().map(|flags| queue.download(flags, count).unwrap());
    let is_valid = |row: usize| flags.as_ref().is_none_or(|flags| flags[row] != 0);
    (0..count).map(|row| is_valid(row).then(|| i256::from_le_bytes(cells[row]))).collect()
}

/// Numbers of up to `words` words, of which some differ in one word only.
fn random_large_numbers(count: usize, words: usize, nulls: bool) -> Vec<Option<i256>> {
    let mut source = Numbers(SEED ^ count as u64);
    (0..count)
        .map(|_| {
            let mut parts = [0; 4];
            let word = source.next(words as u64) as usize;
            parts[word] = source.next(3);
            if source.next(2) == 0 {
                parts[..words].iter_mut().for_each(|part| *part = source.next(u64::MAX >> 33) << 31);
            }
            let mut bytes = [0; 32];
            bytes
                .iter_mut()
                .enumerate()
                .for_each(|(byte, target)| *target = (parts[byte / 8] >> (byte % 8 * 8)) as u8);
            let value = i256::from_le_bytes(bytes);
            let value = if source.next(2) == 0 { value.wrapping_neg() } else { value };
            (!nulls || source.next(5) > 0).then_some(value)
        })
        .collect()
}

fn big(value: i256) -> BigInt {
    BigInt::from_signed_bytes_le(&value.to_le_bytes())
}

pub(crate) fn validity<T>(queue: &Queue, values: &[Option<T>]) -> Option<crate::device::Buffer> {
    let flags: Vec<u8> = values.iter().map(|value| value.is_some().into()).collect();
    flags.contains(&0).then(|| queue.upload(&flags).unwrap())
}

pub(crate) fn texts(queue: &Queue, values: &[Option<String>]) -> Column {
    let bytes: String = values.iter().flatten().cloned().collect();
    let buffer = queue.upload(bytes.as_bytes()).unwrap();
    let mut address = buffer.address();
    let cells: Vec<StringCell> = values
        .iter()
        .map(|value| {
            let length = value.as_ref().map_or(0, String::len) as u32;
            let cell = StringCell { address, length, reserved: 0 };
            address += u64::from(length);
            cell
        })
        .collect();
    let column = Column {
        data_type: DataType::Text,
        cell_type: CellType::String,
        values: queue.upload(&cells).unwrap(),
        validity: validity(queue, values),
        strings: vec![buffer],
    };
    queue.poison_nulls(&column, values.len());
    column
}

fn read_numbers(queue: &Queue, column: &Column, count: usize) -> Vec<Option<i64>> {
    let cells: Vec<i64> = queue.download(&column.values, count).unwrap();
    let flags: Option<Vec<u8>> = column.validity.as_ref().map(|flags| queue.download(flags, count).unwrap());
    let is_valid = |row: usize| flags.as_ref().is_none_or(|flags| flags[row] != 0);
    (0..count).map(|row| is_valid(row).then(|| cells[row])).collect()
}

fn random_numbers(count: usize, distinct: u64, nulls: bool) -> Vec<Option<i64>> {
    let mut source = Numbers(SEED ^ count as u64 ^ distinct);
    (0..count)
        .map(|_| {
            let value = source.next(distinct) as i64 - distinct as i64 / 2;
            (!nulls || source.next(5) > 0).then_some(value)
        })
        .collect()
}

fn random_texts(count: usize, distinct: u64) -> Vec<Option<String>> {
    let mut source = Numbers(SEED ^ distinct);
    (0..count)
        .map(|_| {
            let value = source.next(distinct);
            (source.next(7) > 0).then(|| "ä€x".repeat((value % 5) as usize) + &value.to_string())
        })
        .collect()
}

#[test]
fn selection_keeps_the_order_of_rows() {
    let queue = queue();
    for count in [0usize, 1, 31, 256, 4096, 4097, 20_000] {
        let mut source = Numbers(SEED ^ count as u64);
        let flags: Vec<u8> = (0..count).map(|_| (source.next(3) == 0).into()).collect();
        let rows = queue.select(&queue.upload(&flags).unwrap(), count).unwrap();
        let found: Vec<u32> = queue.download(&rows.rows, rows.count).unwrap();
        let expected: Vec<u32> = (0..count as u32).filter(|row| flags[*row as usize] == 1).collect();
        assert_eq!(found, expected, "count={count}");
    }
}

#[test]
fn chunks_are_joined_in_order_with_their_nulls() {
    let queue = queue();
    let parts =
        [random_numbers(300, 9, false), random_numbers(5, 9, true), vec![], random_numbers(70, 4, true)];
    let chunks: Vec<Chunk> = parts
        .iter()
        .map(|part| Chunk { row_count: part.len(), columns: vec![numbers(&queue, part)] })
        .collect();
    let whole = queue.concat(&chunks).unwrap();
    assert_eq!(read_numbers(&queue, &whole.columns[0], whole.row_count), parts.concat());
}

#[test]
fn probes_find_all_matches_and_no_null() {
    for (build_count, probe_count, distinct) in [(0, 10, 3), (10, 0, 3), (500, 700, 40), (3000, 900, 100_000)]
    {
        let build = random_numbers(build_count, distinct, true);
        let probe = random_numbers(probe_count, distinct + 3, true);
        check_probes(&build, &probe);
    }
    // Unique keys: dense ones, sparse ones, and at the ends of their type.
    let unique = |scale: i64, first: i64| -> Vec<Option<i64>> {
        (0..400).map(|row| (row % 7 != 0).then_some((row * 37 % 400) * scale + first)).collect()
    };
    let some = |values: std::ops::Range<i64>| values.map(Some).collect::<Vec<_>>();
    check_probes(&unique(1, -200), &some(-250..250));
    check_probes(&unique(1000, 5), &some(0..5000));
    check_probes(&unique(1, i64::MIN), &[Some(i64::MIN), Some(i64::MIN + 9), Some(i64::MAX), None]);
    check_probes(&[Some(i64::MIN), Some(i64::MAX)], &[Some(i64::MAX), Some(0), None, Some(i64::MIN)]);
    check_probes(&[None, None], &[None, Some(1)]);
}

fn check_probes(build: &[Option<i64>], probe: &[Option<i64>]) {
    let queue = queue();
    let (build_count, probe_count) = (build.len(), probe.len());
    let table = queue.build(vec![numbers(&queue, build)], build_count).unwrap();
    let keys = [numbers(&queue, probe)];
    for mode in [ProbeMode::Matches, ProbeMode::MatchesOrMiss, ProbeMode::First] {
        let pairs = queue.probe(&table, &keys, probe_count, mode, u64::MAX).unwrap().unwrap();
        let probe_rows: Vec<u32> = queue.download(&pairs.probe.rows, pairs.probe.count).unwrap();
        let build_rows: Vec<u32> = queue.download(&pairs.build.rows, pairs.build.count).unwrap();
        let mut found: Vec<(u32, u32)> = probe_rows.into_iter().zip(build_rows).collect();
        found.sort_unstable();
        let mut expected = Vec::new();
        for (row, key) in probe.iter().enumerate() {
            let matches: Vec<u32> = (0..build_count as u32)
                .filter(|other| key.is_some() && build[*other as usize] == *key)
                .collect();
            if matches.is_empty() && mode == ProbeMode::MatchesOrMiss {
                expected.push((row as u32, u32::MAX));
            }
            expected.extend(matches.into_iter().map(|other| (row as u32, other)));
        }
        if mode == ProbeMode::First {
            let rows = |pairs: &[(u32, u32)]| pairs.iter().map(|pair| pair.0).collect::<Vec<_>>();
            assert!(found.iter().all(|pair| expected.contains(pair)));
            let mut with_match = rows(&expected);
            with_match.dedup();
            assert_eq!(rows(&found), with_match);
        } else {
            assert_eq!(found, expected, "build={build_count} probe={probe_count} {mode:?}");
        }
    }
}

/// An aggregate of every group. Sums have the representation of partial ones.
fn accumulate(
    queue: &Queue,
    grouping: &Grouping,
    accumulator: Accumulator,
    input: &Column,
    result: &DataType,
) -> Result<Column> {
    let width = SumWidth::of(&input.data_type).unwrap_or_else(|_| SumWidth::of_partial(input));
    let call = Accumulation { accumulator, input: Some(0), width, result: result.clone() };
    Ok(queue.accumulate(grouping, &[input], &[call])?.remove(0))
}

#[test]
fn groups_are_those_of_equal_keys_and_nulls() {
    let queue = queue();
    for (count, distinct) in [(1usize, 1u64), (2000, 4), (6000, 5000)] {
        let first = random_numbers(count, distinct, true);
        let second = random_texts(count, distinct / 2 + 1);
        let values = random_numbers(count, 1 << 40, true);
        let keys = [numbers(&queue, &first), texts(&queue, &second)];
        let input = numbers(&queue, &values);
        let grouping = queue.group(&keys, count, count).unwrap();
        let leaders = grouping.leaders.clone().unwrap();
        let leaders: Vec<u32> = queue.download(&leaders.rows, leaders.count).unwrap();
        let mut expected: BTreeMap<(Option<i64>, Option<String>), Vec<i64>> = BTreeMap::new();
        for row in 0..count {
            let entry = expected.entry((first[row], second[row].clone())).or_default();
            entry.extend(values[row]);
        }
        assert_eq!(grouping.group_count, expected.len());
        let aggregate = |accumulator, data_type: &DataType| {
            let column = accumulate(&queue, &grouping, accumulator, &input, data_type).unwrap();
            read_numbers(&queue, &column, grouping.group_count)
        };
        let counts = aggregate(Accumulator::Count, &DataType::Int64);
        let sums = aggregate(Accumulator::Sum, &DataType::Int64);
        let least = aggregate(Accumulator::Min, &DataType::Int64);
        let greatest = aggregate(Accumulator::Max, &DataType::Int64);
        for (group, leader) in leaders.iter().enumerate() {
            let key = (first[*leader as usize], second[*leader as usize].clone());
            let rows = &expected[&key];
            assert_eq!(counts[group], Some(rows.len() as i64));
            assert_eq!(sums[group], (!rows.is_empty()).then(|| rows.iter().sum::<i64>()));
            assert_eq!(least[group], rows.iter().min().copied());
            assert_eq!(greatest[group], rows.iter().max().copied());
        }
    }
}

#[test]
fn one_pass_takes_as_many_aggregates_as_there_are() {
    let queue = queue();
    let rows = 3_000;
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    // Sums of addends that have 64 bits, and of some that have more.
    let narrow: Vec<_> = (0..11).map(|_| random_numbers(rows, 1 << 62, true)).collect();
    let addend =
        |row: usize| (row % 5 != 3).then_some(if row.is_multiple_of(3) { -1 } else { 1 } << (60 + row % 20));
    let large: Vec<Option<i128>> = (0..rows).map(addend).collect();
    let cells: Vec<i128> = large.iter().map(|value| value.unwrap_or(7)).collect();
    let large_column = Column {
        data_type: DataType::Decimal { precision: 27, scale: 0 },
        cell_type: CellType::Int128,
        values: queue.upload(&cells).unwrap(),
        validity: validity(&queue, &large),
        strings: Vec::new(),
    };
    let mut values: Vec<Vec<Option<i128>>> = vec![large];
    values.extend(narrow.iter().map(|column| column.iter().map(|value| value.map(i128::from)).collect()));
    let columns: Vec<Column> =
        [large_column].into_iter().chain(narrow.iter().map(|values| numbers(&queue, values))).collect();
    let call = |accumulator, input, result: &DataType| Accumulation {
        accumulator,
        input,
        width: SumWidth::Wide,
        result: result.clone(),
    };
    let mut calls = vec![call(Accumulator::Count, None, &DataType::Int64)];
    for input in 0..values.len() {
        calls.push(call(Accumulator::Sum, Some(input), &wide));
        calls.push(call(Accumulator::Count, Some(input), &DataType::Int64));
    }
    // Few enough for every thread to keep its own, for every block, and for neither; and no keys at all.
    for distinct in [0, 5, 500, 2_500] {
        let keys = random_numbers(rows, distinct.max(1), true);
        let key_columns = if distinct == 0 { Vec::new() } else { vec![numbers(&queue, &keys)] };
        let grouping = queue.group(&key_columns, rows, rows).unwrap();
        let leaders = grouping.leaders.as_ref();
        let leaders: Vec<u32> = leaders.map_or(vec![0], |all| queue.download(&all.rows, all.count).unwrap());
        let found = queue.accumulate(&grouping, &columns.iter().collect::<Vec<_>>(), &calls).unwrap();
        let members = |leader: &u32| -> Vec<usize> {
            (0..rows).filter(|row| distinct == 0 || keys[*row] == keys[*leader as usize]).collect()
        };
        let members: Vec<Vec<usize>> = leaders.iter().map(members).collect();
        let counts = read_numbers(&queue, &found[0], grouping.group_count);
        assert_eq!(counts, members.iter().map(|rows| Some(rows.len() as i64)).collect::<Vec<_>>());
        for (input, values) in values.iter().enumerate() {
            let of_group = |rows: &Vec<usize>| rows.iter().filter_map(|row| values[*row]).collect::<Vec<_>>();
            let groups: Vec<Vec<i128>> = members.iter().map(of_group).collect();
            let counts = read_numbers(&queue, &found[2 + 2 * input], grouping.group_count);
            assert_eq!(counts, groups.iter().map(|group| Some(group.len() as i64)).collect::<Vec<_>>());
            let sums: Vec<i128> = queue.download(&found[1 + 2 * input].values, grouping.group_count).unwrap();
            let flags = found[1 + 2 * input].validity.as_ref().unwrap();
            let flags: Vec<u8> = queue.download(flags, grouping.group_count).unwrap();
            for (group, values) in groups.iter().enumerate() {
                assert_eq!(flags[group] != 0, !values.is_empty(), "{distinct} keys, input {input}");
                if !values.is_empty() {
                    assert_eq!(sums[group], values.iter().sum::<i128>(), "{distinct} keys, input {input}");
                }
            }
        }
    }
}

#[test]
fn a_key_without_a_slot_is_an_error_and_nothing_else() {
    let queue = queue();
    let layout = SlotLayout::plan([(Accumulator::Count, None, SumWidth::Wide)]).unwrap();
    for value_count in [3, 500, 5_000] {
        let key = SlotKey { least: 10, value_count, has_null: false };
        let keys = [Some(10), Some(9), Some(10 + value_count as i64), Some(i64::MIN)]
            .map(|key| numbers(&queue, &[key]));
        for (place, key_column) in keys.into_iter().enumerate() {
            let mut slots = queue.open_slots(&layout, vec![key.clone()]).unwrap();
            queue.accumulate_slots(&layout, &mut slots, &[key_column], &[], 1).unwrap();
            let taken = queue.take_slots(&layout, &slots, &[DataType::Int64], &[DataType::Int64]);
            assert_eq!(taken.map(|chunk| chunk.row_count).ok(), (place == 0).then_some(1));
        }
        // Without a place for NULL nothing is added.
        let mut slots = queue.open_slots(&layout, vec![key]).unwrap();
        let null = numbers(&queue, &[None]);
        assert!(queue.accumulate_slots(&layout, &mut slots, &[null], &[], 1).is_err());
    }
}

#[test]
fn a_sum_beyond_its_type_is_an_error() {
    let queue = queue();
    let input = numbers(&queue, &[Some(i64::MAX), Some(1)]);
    let grouping = queue.group(&[], 2, 2).unwrap();
    let error = accumulate(&queue, &grouping, Accumulator::Sum, &input, &DataType::Int64).unwrap_err();
    assert_eq!(error.message, "bigint out of range");
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    let sum = accumulate(&queue, &grouping, Accumulator::Sum, &input, &wide).unwrap();
    let cells: Vec<[u64; 2]> = queue.download(&sum.values, 1).unwrap();
    assert_eq!(cells, [[1 << 63, 0]]);
}

#[test]
fn sorts_are_stable_and_put_nulls_where_told() {
    let queue = queue();
    let orders = [(false, false), (false, true), (true, false), (true, true)];
    // Many rows, and few, which are ranked in one launch.
    for (count, (descending, nulls_first)) in
        [5000, 4096, 300, 2, 1].into_iter().flat_map(|count| orders.map(|order| (count, order)))
    {
        let first = random_numbers(count, 20, true);
        let second = random_texts(count, 300);
        let keys = [
            SortColumn { column: numbers(&queue, &first), descending, nulls_first },
            SortColumn { column: texts(&queue, &second), descending: !descending, nulls_first: !nulls_first },
        ];
        let rows = queue.sort(&keys, count).unwrap();
        let found: Vec<u32> = queue.download(&rows.rows, rows.count).unwrap();
        let mut expected: Vec<u32> = (0..count as u32).collect();
        expected.sort_by(|a, b| {
            let (a, b) = (*a as usize, *b as usize);
            compare(&first[a], &first[b], descending, nulls_first)
                .then_with(|| compare(&second[a], &second[b], !descending, !nulls_first))
        });
        assert_eq!(found, expected);
    }
}

#[test]
fn pairs_beyond_the_limit_are_not_counted_to_their_end() {
    let queue = queue();
    // By key and by hash: all rows have one.
    let (build_count, probe_count) = (300_000, 200_000);
    for by_hash in [false, true] {
        let keys = |count: usize| match by_hash {
            false => numbers(&queue, &vec![Some(7); count]),
            true => texts(&queue, &vec![Some("seven".to_owned()); count]),
        };
        let table = queue.build(vec![keys(build_count)], build_count).unwrap();
        let started = std::time::Instant::now();
        let found = queue.probe(&table, &[keys(probe_count)], probe_count, ProbeMode::Matches, 1 << 20);
        let elapsed = started.elapsed();
        assert!(found.unwrap().is_none());
        // 60 thousand million pairs.
        assert!(elapsed.as_secs() < 120, "by hash {by_hash}: {elapsed:?}");
    }
}

#[test]
fn chains_longer_than_a_launch_walks_are_gone_on_with() {
    let queue = queue();
    let build_count = 700_000;
    // A value by itself, another in nearly all rows, and one in none. Numbers are slots themselves, text is hashed.
    let value = |row: usize| if row == 5 { "rare" } else { "frequent" }.to_owned();
    let build: Vec<Option<String>> = (0..build_count).map(|row| Some(value(row))).collect();
    let number = |text: &Option<String>| match text.as_deref() {
        Some("rare") => Some(1),
        Some("frequent") => Some(2),
        _ => Some(9),
    };
    let probe = ["frequent", "rare", "missing", "frequent"].map(|text| Some(text.to_owned()));
    for by_hash in [false, true] {
        let keys = |values: &[Option<String>]| match by_hash {
            false => numbers(&queue, &values.iter().map(number).collect::<Vec<_>>()),
            true => texts(&queue, values),
        };
        let table = queue.build(vec![keys(&build)], build_count).unwrap();
        for mode in [ProbeMode::Matches, ProbeMode::MatchesOrMiss, ProbeMode::First] {
            let pairs = queue.probe(&table, &[keys(&probe)], probe.len(), mode, u64::MAX).unwrap().unwrap();
            let probe_rows: Vec<u32> = queue.download(&pairs.probe.rows, pairs.probe.count).unwrap();
            let build_rows: Vec<u32> = queue.download(&pairs.build.rows, pairs.build.count).unwrap();
            assert_eq!(probe_rows.len(), build_rows.len());
            assert!(probe_rows.is_sorted());
            let mut found: Vec<Vec<u32>> = vec![Vec::new(); probe.len()];
            for (probe_row, build_row) in probe_rows.into_iter().zip(build_rows) {
                found[probe_row as usize].push(build_row);
            }
            found.iter_mut().for_each(|rows| rows.sort_unstable());
            let frequent: Vec<u32> = (0..build_count as u32).filter(|row| *row != 5).collect();
            match mode {
                ProbeMode::First => {
                    let counts: Vec<usize> = found.iter().map(Vec::len).collect();
                    assert_eq!(counts, [1, 1, 0, 1]);
                    assert!(found[0][0] != 5 && found[1] == [5] && found[3][0] != 5);
                }
                _ => {
                    let miss = if mode == ProbeMode::MatchesOrMiss { vec![u32::MAX] } else { Vec::new() };
                    assert!(
                        found == [frequent.clone(), vec![5], miss, frequent],
                        "by hash {by_hash}, {mode:?}"
                    );
                }
            }
        }
    }
}

/// Texts that begin alike: each is another one cut off at some byte, with other bytes after that.
fn branching_texts(count: usize, seed: u64) -> Vec<Option<String>> {
    let mut source = Numbers(seed);
    let mut texts: Vec<String> = vec![String::new()];
    while texts.len() < count {
        let from = &texts[source.next(texts.len() as u64) as usize];
        let kept = if source.next(3) == 0 { source.next(from.len() as u64 + 1) as usize } else { from.len() };
        let mut text = from[..kept].to_owned();
        let piece = ["", "\0", "\0\0", "a", "b", "\u{7f}"][source.next(6) as usize];
        let repeats = [0, 1, 2, 7, 8, 33, 300][source.next(7) as usize];
        text.push_str(&piece.repeat(repeats));
        texts.push(text);
    }
    texts.into_iter().map(|text| (source.next(20) > 0).then_some(text)).collect()
}

#[test]
fn long_texts_are_in_the_order_of_their_bytes() {
    let queue = queue();
    for (count, seed) in [(2, 1), (3, 2), (40, 3), (700, 4), (3000, 5), (3000, 6)] {
        let values = branching_texts(count, seed);
        let second = random_numbers(count, 3, false);
        for (descending, nulls_first) in [(false, false), (true, false), (false, true)] {
            let column = texts(&queue, &values);
            let numbers = numbers(&queue, &second);
            let keys = [
                SortColumn { column: numbers, descending: false, nulls_first },
                SortColumn { column, descending, nulls_first },
            ];
            let rows = queue.sort(&keys, count).unwrap();
            let found: Vec<u32> = queue.download(&rows.rows, rows.count).unwrap();
            let mut expected: Vec<u32> = (0..count as u32).collect();
            expected.sort_by(|a, b| {
                let (a, b) = (*a as usize, *b as usize);
                compare(&second[a], &second[b], false, nulls_first)
                    .then_with(|| compare(&values[a], &values[b], descending, nulls_first))
            });
            assert_eq!(found, expected, "{count} texts of seed {seed}");
        }
    }
}

#[test]
fn bytes_that_rows_share_do_not_change_an_order() {
    let queue = queue();
    let count = 3000;
    let mut source = Numbers(SEED);
    // The differences: none, a byte in the middle, the sign, and the content of NULL rows.
    let shapes: [fn(u64) -> Option<i64>; 5] = [
        |_| Some(-7),
        |random| Some(0x1234_5678_0000_4321 | (random as i64 % 7) << 24),
        |random| Some(if random.is_multiple_of(2) { 5 } else { -5 }),
        |random| (!random.is_multiple_of(3)).then_some(1 << 40),
        |_| None,
    ];
    for shape in shapes {
        let values: Vec<Option<i64>> = (0..count).map(|_| shape(source.next(u64::MAX))).collect();
        let long = |value: &Option<i64>| value.map(|value| format!("a prefix of some length {value:x}"));
        let named: Vec<Option<String>> = values.iter().map(long).collect();
        for (descending, nulls_first) in [(false, false), (true, false), (false, true)] {
            let order = |compared: &dyn Fn(usize, usize) -> std::cmp::Ordering| {
                let mut rows: Vec<u32> = (0..count as u32).collect();
                rows.sort_by(|a, b| compared(*a as usize, *b as usize));
                rows
            };
            let sorted = |column| {
                let rows = queue.sort(&[SortColumn { column, descending, nulls_first }], count).unwrap();
                queue.download::<u32>(&rows.rows, rows.count).unwrap()
            };
            let by_value = order(&|a, b| compare(&values[a], &values[b], descending, nulls_first));
            assert_eq!(sorted(numbers(&queue, &values)), by_value);
            let by_name = order(&|a, b| compare(&named[a], &named[b], descending, nulls_first));
            assert_eq!(sorted(texts(&queue, &named)), by_name);
        }
    }
}

fn compare<T: Ord>(a: &Option<T>, b: &Option<T>, descending: bool, nulls_first: bool) -> std::cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) if descending => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (None, None) => std::cmp::Ordering::Equal,
        (None, Some(_)) if nulls_first => std::cmp::Ordering::Less,
        (Some(_), None) if !nulls_first => std::cmp::Ordering::Less,
        _ => std::cmp::Ordering::Greater,
    }
}

#[test]
fn equal_keys_share_a_partition_and_levels_spread_them_anew() {
    let queue = queue();
    for (count, distinct) in [(0usize, 1u64), (1, 1), (3000, 40), (9000, 100_000)] {
        let keys = random_numbers(count, distinct, true);
        let column = numbers(&queue, &keys);
        for partition_count in [1usize, 2, 13, 256] {
            let mut together = Vec::new();
            for level in [0, 1] {
                for nulls_match in [false, true] {
                    let by = HashPartitioning { partition_count, level, nulls_match };
                    let found = queue.partition(std::slice::from_ref(&column), count, by).unwrap();
                    assert_eq!(found.bounds.len(), partition_count + 1);
                    assert_eq!((found.bounds[0], found.bounds[partition_count]), (0, count));
                    let rows: Vec<u32> = queue.download(&found.rows.rows, count).unwrap();
                    let mut seen: BTreeMap<Option<i64>, usize> = BTreeMap::new();
                    for partition in 0..partition_count {
                        let rows = &rows[found.bounds[partition]..found.bounds[partition + 1]];
                        assert!(rows.is_sorted(), "rows of a partition keep their order");
                        for row in rows {
                            let key = keys[*row as usize];
                            if key.is_some() || nulls_match {
                                assert_eq!(*seen.entry(key).or_insert(partition), partition, "{key:?}");
                            }
                        }
                    }
                    let mut all = rows;
                    all.sort_unstable();
                    assert_eq!(all, (0..count as u32).collect::<Vec<_>>());
                    if !nulls_match {
                        together.push(seen);
                    }
                }
            }
            // Of the keys that share the first partition, others share one at the next level.
            let first: Vec<_> = together[0].iter().filter(|(_, partition)| **partition == 0).collect();
            if distinct > 1000 && partition_count == 13 {
                let next: std::collections::BTreeSet<usize> =
                    first.iter().map(|(key, _)| together[1][*key]).collect();
                assert_eq!(next.len(), 13);
            }
        }
    }
}

#[test]
fn ranges_are_in_order_and_equals_of_splitters_apart() {
    let queue = queue();
    let count = 5000;
    let first = random_numbers(count, 30, true);
    let second = random_texts(count, 60);
    for (descending, nulls_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let order = |a: usize, b: usize| {
            compare(&first[a], &first[b], descending, nulls_first)
                .then_with(|| compare(&second[a], &second[b], !descending, !nulls_first))
        };
        let mut sorted: Vec<usize> = (0..count).collect();
        sorted.sort_by(|a, b| order(*a, *b));
        let mut splitters: Vec<usize> = sorted.iter().copied().step_by(400).collect();
        splitters.dedup_by(|a, b| order(*a, *b).is_eq());
        let keys = [
            SortColumn { column: numbers(&queue, &first), descending, nulls_first },
            SortColumn { column: texts(&queue, &second), descending: !descending, nulls_first: !nulls_first },
        ];
        let chosen = [
            numbers(&queue, &splitters.iter().map(|row| first[*row]).collect::<Vec<_>>()),
            texts(&queue, &splitters.iter().map(|row| second[*row].clone()).collect::<Vec<_>>()),
        ];
        let found = queue.partition_by_range(&keys, count, &chosen, splitters.len()).unwrap();
        let rows: Vec<u32> = queue.download(&found.rows.rows, count).unwrap();
        for partition in 0..2 * splitters.len() + 1 {
            for row in &rows[found.bounds[partition]..found.bounds[partition + 1]] {
                let before = splitters.iter().filter(|splitter| order(**splitter, *row as usize).is_lt());
                let is_equal = splitters.iter().any(|splitter| order(*splitter, *row as usize).is_eq());
                assert_eq!(partition, 2 * before.count() + usize::from(is_equal));
            }
        }
        let threshold =
            [numbers(&queue, &[first[splitters[3]]]), texts(&queue, &[second[splitters[3]].clone()])];
        let found = queue.select_before(&keys, count, &threshold).unwrap();
        let found: Vec<u32> = queue.download(&found.rows, found.count).unwrap();
        let expected: Vec<u32> =
            (0..count as u32).filter(|row| order(*row as usize, splitters[3]).is_lt()).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn chunks_leave_the_device_with_texts_and_nulls() {
    let queue = queue();
    let first = random_texts(3000, 50);
    let second = random_numbers(3000, 50, true);
    let chunk = Chunk { row_count: 3000, columns: vec![texts(&queue, &first), numbers(&queue, &second)] };
    let schema = column_schema(&[DataType::Text, DataType::Int64]);
    let batch = to_arrow(&queue, &chunk, &schema).unwrap();
    use arrow::array::AsArray;
    let found: Vec<Option<String>> =
        batch.column(0).as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect();
    assert_eq!(found, first);
    let found: Vec<Option<i64>> =
        batch.column(1).as_primitive::<arrow::datatypes::Int64Type>().iter().collect();
    assert_eq!(found, second);
}

/// Random cells of NULLs are not converted, whatever the type.
#[test]
fn nulls_of_every_type_leave_the_device() {
    let queue = queue();
    let types = [
        DataType::Bool,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Date,
        DataType::Time,
        DataType::Timestamp,
        DataType::TimestampTz,
        DataType::Interval,
        DataType::Uuid,
        DataType::Text,
        DataType::Bytea,
        decimal(9),
        decimal(38),
        decimal(60),
    ];
    for data_type in types {
        let column = queue.nulls(&data_type, 7).unwrap();
        let chunk = Chunk { row_count: 7, columns: vec![column] };
        let batch = to_arrow(&queue, &chunk, &column_schema(std::slice::from_ref(&data_type)));
        let batch = batch.unwrap_or_else(|error| panic!("{data_type}: {error}"));
        assert_eq!(batch.column(0).null_count(), 7, "{data_type}");
    }
}

#[test]
fn a_stream_is_used_again_and_by_one_queue_at_a_time() {
    let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::new()), 1 << 20);
    let first = Queue::new(&memory).unwrap();
    let stream = first.stream();
    let clone = first.clone();
    drop(first);
    assert_ne!(Queue::new(&memory).unwrap().stream(), stream);
    drop(clone);
    let streams: Vec<Queue> = (0..2).map(|_| Queue::new(&memory).unwrap()).collect();
    assert!(streams.iter().any(|queue| queue.stream() == stream));
    assert_ne!(streams[0].stream(), streams[1].stream());
}

#[test]
fn sums_of_wide_and_of_large_decimals_are_exact() {
    let queue = queue();
    for (words, count, distinct) in [(2, 3_000, 3), (2, 3_000, 700), (4, 3_000, 4), (4, 3_000, 5), (4, 0, 1)]
    {
        // Below 2^120 and 2^250, so that sums fit 256 bits.
        let shift = |value: i256| value >> 6_u8;
        let values: Vec<Option<i256>> =
            random_large_numbers(count, words, true).into_iter().map(|value| value.map(shift)).collect();
        let input = if words == 2 {
            let cells: Vec<i128> = values.iter().map(|value| value.map_or(-1, i256::as_i128)).collect();
            Column {
                data_type: decimal(38),
                cell_type: CellType::Int128,
                values: queue.upload(&cells).unwrap(),
                validity: validity(&queue, &values),
                strings: Vec::new(),
            }
        } else {
            large_numbers(&queue, &values)
        };
        let keys = random_numbers(count, distinct, false);
        for grouping in [
            queue.group(&[numbers(&queue, &keys)], count, count).unwrap(),
            queue.group(&[], count, count).unwrap(),
        ] {
            let groups: Vec<usize> = match &grouping.leaders {
                None => vec![0; count],
                Some(leaders) => {
                    let leaders: Vec<u32> = queue.download(&leaders.rows, leaders.count).unwrap();
                    let of_key = |key| leaders.iter().position(|row| keys[*row as usize] == key);
                    keys.iter().map(|key| of_key(*key).unwrap()).collect()
                }
            };
            let mut expected: Vec<Option<BigInt>> = vec![None; grouping.group_count];
            for (group, value) in groups.iter().zip(&values) {
                if let Some(value) = value {
                    *expected[*group].get_or_insert_default() += big(*value);
                }
            }
            let sums = accumulate(&queue, &grouping, Accumulator::Sum, &input, &decimal(76)).unwrap();
            let sums = read_large_numbers(&queue, &sums, grouping.group_count);
            assert_eq!(sums.into_iter().map(|sum| sum.map(big)).collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn large_sums_that_fit_no_cell_are_errors() {
    let queue = queue();
    let least = i256::MIN;
    for (values, precision, digits) in [
        (vec![i256::MAX, i256::ONE], 76, 76),
        (vec![least, i256::MINUS_ONE], 76, 76),
        (vec![i256::from(i128::MAX), i256::ONE], 38, 38),
        (vec![i256::from(i128::MIN), i256::MINUS_ONE], 38, 38),
    ] {
        let values: Vec<Option<i256>> = values.into_iter().map(Some).collect();
        let input = large_numbers(&queue, &values);
        let grouping = queue.group(&[], 2, 2).unwrap();
        let sum = accumulate(&queue, &grouping, Accumulator::Sum, &input, &decimal(precision));
        let error = sum.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NumericOutOfRange);
        assert!(error.message.contains(&format!("{digits} digits")), "{}", error.message);
    }
    // An overflow of an intermediate sum is no error.
    let input = large_numbers(&queue, &[Some(i256::MAX), Some(i256::MAX), Some(least), Some(least)]);
    let grouping = queue.group(&[], 4, 4).unwrap();
    let sum = accumulate(&queue, &grouping, Accumulator::Sum, &input, &decimal(38)).unwrap();
    assert_eq!(queue.download::<i128>(&sum.values, 1).unwrap(), [-2]);
    // Sums of few digits are added up in 128 bits, whatever the result's cells.
    let input = numbers(&queue, &[Some(-5), Some(3), None]);
    let grouping = queue.group(&[], 3, 3).unwrap();
    let sum = accumulate(&queue, &grouping, Accumulator::Sum, &input, &decimal(76)).unwrap();
    assert_eq!(read_large_numbers(&queue, &sum, 1), [Some(i256::from(-2))]);
    // Partial sums of 256 bits are merged in more.
    let partial = large_numbers(&queue, &[Some(i256::MAX), None, Some(i256::MINUS_ONE)]);
    let merged =
        accumulate(&queue, &queue.group(&[], 3, 3).unwrap(), Accumulator::Sum, &partial, &decimal(76))
            .unwrap();
    assert_eq!(read_large_numbers(&queue, &merged, 1), [i256::MAX.checked_sub(i256::ONE)]);
}

#[test]
fn large_decimals_are_keys_of_groups_joins_and_sorts() {
    let queue = queue();
    let count = 4_000;
    let values = random_large_numbers(count, 4, true);
    let column = large_numbers(&queue, &values);
    let grouping = queue.group(std::slice::from_ref(&column), count, count).unwrap();
    let mut distinct: Vec<Option<i256>> = values.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(grouping.group_count, distinct.len());
    let leaders = queue.gather(&column, grouping.leaders.as_ref().unwrap()).unwrap();
    let mut found = read_large_numbers(&queue, &leaders, grouping.group_count);
    found.sort_unstable();
    assert_eq!(found, distinct);
    for (descending, nulls_first) in [(false, false), (true, true)] {
        let keys = [SortColumn { column: column.clone(), descending, nulls_first }];
        let rows = queue.sort(&keys, count).unwrap();
        let found: Vec<u32> = queue.download(&rows.rows, rows.count).unwrap();
        let mut expected: Vec<u32> = (0..count as u32).collect();
        expected.sort_by(|a, b| compare(&values[*a as usize], &values[*b as usize], descending, nulls_first));
        assert_eq!(found, expected);
    }
    let all = queue.group(&[], count, count).unwrap();
    for (accumulator, extreme) in
        [(Accumulator::Min, values.iter().flatten().min()), (Accumulator::Max, values.iter().flatten().max())]
    {
        let found = accumulate(&queue, &all, accumulator, &column, &decimal(60)).unwrap();
        assert_eq!(read_large_numbers(&queue, &found, 1), [extreme.copied()]);
    }
    let probe = &values[..500];
    let table = queue.build(vec![column], count).unwrap();
    let keys = [large_numbers(&queue, probe)];
    let pairs = queue.probe(&table, &keys, probe.len(), ProbeMode::Matches, u64::MAX).unwrap().unwrap();
    let matches = |key: &Option<i256>| values.iter().filter(|value| key.is_some() && *value == key).count();
    assert_eq!(pairs.build.count, probe.iter().map(matches).sum::<usize>());
}

#[test]
fn large_decimals_are_moved_and_leave_the_device() {
    let queue = queue();
    let values = random_large_numbers(900, 4, true);
    let chunk = Chunk { row_count: 900, columns: vec![large_numbers(&queue, &values)] };
    let parts = [queue.slice(&chunk, 0, 400).unwrap(), queue.slice(&chunk, 400, 500).unwrap()];
    let whole = queue.concat(&parts).unwrap();
    let nulls = queue.nulls(&decimal(60), 3).unwrap();
    assert_eq!(read_large_numbers(&queue, &nulls, 3), [None; 3]);
    let batch = to_arrow(&queue, &whole, &column_schema(&[decimal(60)])).unwrap();
    use arrow::array::AsArray;
    let found: Vec<Option<i256>> =
        batch.column(0).as_primitive::<arrow::datatypes::Decimal256Type>().iter().collect();
    assert_eq!(found, values);
}

#[test]
fn texts_one_after_another_get_their_cells_by_their_lengths() {
    let queue = queue();
    let mut numbers = Numbers(SEED);
    for row_count in [0, 1, 7, 300, 5000] {
        let values: Vec<Option<String>> = (0..row_count)
            .map(|_| (numbers.next(5) > 0).then(|| "ab".repeat(numbers.next(4) as usize)))
            .collect();
        let column = texts(&queue, &values);
        let measured = queue.measure_text(&column, row_count).unwrap();
        let lengths = measured.lengths.clone();
        let packed = queue.copy_text(&column, row_count, measured, None).unwrap();
        let text = packed.bytes.slice(0, packed.total_bytes);
        let cells = queue.place_text(&lengths, &text, row_count).unwrap();
        let placed = Column { values: cells, strings: vec![text], ..column.clone() };
        let batch = |column: Column| {
            let chunk = Chunk { row_count, columns: vec![column] };
            to_arrow(&queue, &chunk, &column_schema(&[DataType::Text])).unwrap()
        };
        assert_eq!(batch(placed), batch(column), "{row_count} rows");
        if packed.total_bytes > 0 {
            let short = packed.bytes.slice(0, packed.total_bytes - 1);
            let error = queue.place_text(&lengths, &short, row_count).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Protocol);
        }
    }
}
