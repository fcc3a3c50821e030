//! Sums and deviations of floats against integers of any size.

use pystachio_engine::deviations::{nearest_quotient, squared_deviations};

use super::*;

/// Values of which a sum has few words, many, or is no finite number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// With exponents of a range of this size.
    Finite(u64),
    Whole,
    Special,
    NegativeZeros,
}

fn value(kind: Kind, source: &mut Numbers) -> f64 {
    match kind {
        Kind::Finite(exponents) => {
            let exponent = 1023 + source.next(exponents) - exponents / 2;
            let fraction = source.next(1 << 26) << 26 | source.next(1 << 26);
            f64::from_bits(source.next(2) << 63 | exponent << 52 | fraction)
        }
        Kind::Whole => source.next(1000) as f64 - 300.0,
        Kind::Special => match source.next(400) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            4 => 0.0,
            number => f64::from_bits(number),
        },
        Kind::NegativeZeros => {
            if source.next(60) == 0 {
                0.0
            } else {
                -0.0
            }
        }
    }
}

fn values(kind: Kind, count: usize, source: &mut Numbers) -> Vec<Option<f64>> {
    (0..count).map(|_| (source.next(6) > 0).then(|| value(kind, source))).collect()
}

fn floats(queue: &Queue, values: &[Option<f64>], data_type: &DataType) -> Column {
    let cells = values.iter().map(|value| value.unwrap_or(f64::NAN));
    let buffer = match data_type {
        DataType::Float32 => queue.upload(&cells.map(|cell| cell as f32).collect::<Vec<_>>()),
        _ => queue.upload(&cells.collect::<Vec<_>>()),
    };
    let column = Column {
        data_type: data_type.clone(),
        cell_type: CellType::of(data_type).unwrap(),
        values: buffer.unwrap(),
        validity: validity(queue, values),
        strings: Vec::new(),
    };
    queue.poison_nulls(&column, values.len());
    column
}

fn read_floats(queue: &Queue, column: &Column, count: usize) -> Vec<Option<f64>> {
    let cells: Vec<f64> = match column.cell_type {
        CellType::Float32 => {
            let cells: Vec<f32> = queue.download(&column.values, count).unwrap();
            cells.into_iter().map(f64::from).collect()
        }
        _ => queue.download(&column.values, count).unwrap(),
    };
    let flags: Vec<u8> = queue.download(column.validity.as_ref().unwrap(), count).unwrap();
    cells.into_iter().zip(flags).map(|(cell, flag)| (flag != 0).then_some(cell)).collect()
}

fn grouping(queue: &Queue, groups: &[u32], group_count: usize) -> Grouping {
    let numbers = (group_count > 1).then(|| queue.upload(groups).unwrap());
    Grouping { groups: numbers, group_count, leaders: None, row_count: groups.len() }
}

fn call(accumulator: Accumulator, result: DataType) -> Accumulation {
    Accumulation { accumulator, input: Some(0), width: SumWidth::Wide, result }
}

fn accumulate(
    queue: &Queue,
    groups: &[u32],
    group_count: usize,
    input: &Column,
    call: Accumulation,
) -> Result<Column> {
    let grouping = grouping(queue, groups, group_count);
    Ok(queue.accumulate(&grouping, &[input], &[call])?.remove(0))
}

/// A finite float in units of 2^-1074.
fn whole(value: f64) -> BigInt {
    let bits = value.to_bits();
    let exponent = (bits >> 52) & 0x7ff;
    let hidden = if exponent == 0 { 0 } else { 1 << 52 };
    let digits = BigInt::from((bits & ((1 << 52) - 1)) | hidden) << (exponent.max(1) - 1);
    if value.is_sign_negative() { -digits } else { digits }
}

/// The nearest single to a sum; of two the even one.
fn nearest_single(sum: &BigInt) -> f64 {
    let near = nearest_quotient(sum, &BigInt::from(1), -1074) as f32;
    let candidates = [near.next_down(), near, near.next_up()];
    let distance = |single: &f32| {
        let distance = whole(f64::from(*single)) - sum;
        (distance.magnitude().clone(), single.to_bits() & 1)
    };
    f64::from(candidates.into_iter().filter(|single| single.is_finite()).min_by_key(distance).unwrap())
}

/// What a group's values come to.
fn expected(accumulator: Accumulator, values: &[f64], single: bool) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let one = BigInt::from(1);
    let is_finite = values.iter().all(|value| value.is_finite());
    if accumulator == Accumulator::Deviations {
        if !is_finite {
            return Some(f64::NAN);
        }
        let sum: BigInt = values.iter().map(|value| whole(*value)).sum();
        let squares = values.iter().map(|value| whole(*value) * whole(*value)).sum();
        return Some(squared_deviations(&BigInt::from(values.len()), &(&sum * &sum), &squares).unwrap());
    }
    if !is_finite || values.iter().all(|value| value.to_bits() == (-0.0_f64).to_bits()) {
        // Rounding has no say.
        let others = values.iter().filter(|value| !value.is_finite());
        return Some(if is_finite { -0.0 } else { others.sum() });
    }
    let sum: BigInt = values.iter().map(|value| whole(*value)).sum();
    Some(match single {
        true => nearest_single(&sum),
        false => nearest_quotient(&sum, &one, -1074),
    })
}

fn same(found: &[Option<f64>], wanted: &[Option<f64>]) -> bool {
    let bits = |value: &Option<f64>| value.map(|value| if value.is_nan() { 1 } else { value.to_bits() });
    found.iter().map(bits).eq(wanted.iter().map(bits))
}

/// Whole sums, and sums of the states of parts.
fn check(
    kind: Kind,
    accumulator: Accumulator,
    (row_count, group_count): (usize, usize),
    source: &mut Numbers,
) {
    let queue = queue();
    let mut values = values(kind, row_count, source);
    let groups: Vec<u32> = (0..row_count).map(|_| source.next(group_count as u64) as u32).collect();
    for data_type in [DataType::Float64, DataType::Float32] {
        let single = data_type == DataType::Float32;
        if single {
            let narrowed = |value: &mut Option<f64>| {
                *value = value.map(|value| f64::from(value as f32)).filter(|value| value.abs() < 1e30);
            };
            values.iter_mut().for_each(narrowed);
        }
        let result = match (accumulator, single) {
            (Accumulator::FloatSum, true) => DataType::Float32,
            _ => DataType::Float64,
        };
        let mut by_group = vec![Vec::new(); group_count];
        for (group, value) in groups.iter().zip(&values) {
            by_group[*group as usize].extend(value);
        }
        let wanted: Vec<_> = by_group
            .iter()
            .map(|values| expected(accumulator, values, result == DataType::Float32))
            .collect();
        let context =
            format!("{accumulator:?} of {kind:?} {data_type}, {row_count} rows, {group_count} groups");
        let input = floats(&queue, &values, &data_type);
        let found =
            accumulate(&queue, &groups, group_count, &input, call(accumulator, result.clone())).unwrap();
        assert!(same(&read_floats(&queue, &found, group_count), &wanted), "{context}");
        // States of states, the parts in another order.
        let part_rows = (row_count / 3).max(1);
        let mut parts = Vec::new();
        for (groups, values) in groups.chunks(part_rows).zip(values.chunks(part_rows)).rev() {
            let input = floats(&queue, values, &data_type);
            let states = accumulate(&queue, groups, group_count, &input, call(accumulator, DataType::Bytea));
            parts.push(Chunk { row_count: group_count, columns: vec![states.unwrap()] });
        }
        while !parts.is_empty() {
            let merged = queue.concat(&parts[..parts.len().min(2)]).unwrap();
            let numbers: Vec<u32> = (0..merged.row_count).map(|row| (row % group_count) as u32).collect();
            parts.drain(..parts.len().min(2));
            let is_last = parts.is_empty();
            let result = if is_last { result.clone() } else { DataType::Bytea };
            let column =
                accumulate(&queue, &numbers, group_count, &merged.columns[0], call(accumulator, result));
            let column = column.unwrap();
            if is_last {
                assert!(same(&read_floats(&queue, &column, group_count), &wanted), "states: {context}");
                break;
            }
            parts.insert(0, Chunk { row_count: group_count, columns: vec![column] });
        }
    }
}

#[test]
fn sums_of_floats_are_the_floats_next_to_the_mathematical_ones() {
    let mut source = Numbers(SEED);
    let kinds = [
        Kind::Finite(3),
        Kind::Finite(60),
        Kind::Finite(900),
        Kind::Whole,
        Kind::Special,
        Kind::NegativeZeros,
    ];
    for kind in kinds {
        // Words of a thread, of a block, and of all.
        for shape in [(0, 1), (1, 1), (3000, 1), (3000, 6), (2500, 90), (4000, 2600)] {
            check(kind, Accumulator::FloatSum, shape, &mut source);
        }
    }
}

#[test]
fn deviations_of_floats_are_rounded_once() {
    let mut source = Numbers(SEED ^ 1);
    for kind in [Kind::Finite(3), Kind::Finite(300), Kind::Whole, Kind::Special, Kind::NegativeZeros] {
        for shape in [(0, 1), (1, 1), (2000, 1), (900, 3), (2500, 90), (3000, 1700)] {
            check(kind, Accumulator::Deviations, shape, &mut source);
        }
    }
}

#[test]
fn what_is_added_with_both_signs_leaves_nothing() {
    let queue = queue();
    let mut source = Numbers(SEED);
    let half: Vec<_> = (0..700).map(|_| Some(value(Kind::Finite(1900), &mut source))).collect();
    let mut values: Vec<_> =
        half.iter().map(|value| value.map(|value| -value)).chain(half.iter().copied()).collect();
    let sum = |values: &[Option<f64>]| {
        let input = floats(&queue, values, &DataType::Float64);
        let call = call(Accumulator::FloatSum, DataType::Float64);
        let sum = accumulate(&queue, &vec![0; values.len()], 1, &input, call).unwrap();
        read_floats(&queue, &sum, 1)
    };
    assert!(same(&sum(&values), &[Some(0.0)]));
    values.push(Some(-1e-300));
    assert!(same(&sum(&values), &[Some(-1e-300)]));
}

#[test]
fn finite_values_that_no_float_sums_are_an_error() {
    let queue = queue();
    let sum = |values: &[f64], accumulator, data_type: DataType| -> Result<Option<f64>> {
        let values: Vec<_> = values.iter().map(|value| Some(*value)).collect();
        let input = floats(&queue, &values, &data_type);
        let result = if accumulator == Accumulator::FloatSum { data_type } else { DataType::Float64 };
        let sum = accumulate(&queue, &vec![0; values.len()], 1, &input, call(accumulator, result))?;
        Ok(read_floats(&queue, &sum, 1)[0])
    };
    let (sums, deviations) = (Accumulator::FloatSum, Accumulator::Deviations);
    let (single, double) = (DataType::Float32, DataType::Float64);
    let (f32_max, f64_max) = (f64::from(f32::MAX), f64::MAX);
    for (values, accumulator, data_type) in [
        (vec![f64_max, f64_max], sums, double.clone()),
        (vec![-f64_max, -1e300], sums, double.clone()),
        (vec![f32_max, f32_max], sums, single.clone()),
        (vec![1e300, -1e300], deviations, double.clone()),
    ] {
        let error = sum(&values, accumulator, data_type).unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::NumericOutOfRange, "value out of range: overflow")
        );
    }
    assert_eq!(sum(&[f64_max, f64_max, -f64_max], sums, double.clone()).unwrap(), Some(f64_max));
    assert_eq!(sum(&[f64_max, f64::INFINITY], sums, double).unwrap(), Some(f64::INFINITY));
    assert_eq!(sum(&[f32_max, f32_max], deviations, single).unwrap(), Some(0.0));
}
