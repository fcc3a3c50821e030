//! The functions' columns of a block.
//!
//! - Numbers come of where partitions and peer groups begin.
//! - Functions that look for a row give its number, and `take` the values.
//! - Counts and sums of a frame are the difference of two sums from the block's first row on. They wrap, and so does the difference,
//!   so that it is right wherever the sum fits its type.
//! - Least and greatest values: where all frames begin with their partition the best so far, otherwise a tree of the best of 2, 4, 8 … rows.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use crate::datafusion::{
    common::ScalarValue,
    error::{DataFusionError, Result as DataFusionResult},
    physical_expr::PhysicalExpr,
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Decimal256Array, DynComparator,
        Float64Array, Int32Array, Int64Array, RecordBatch, UInt32Array, make_comparator, new_null_array,
    },
    compute::{SortOptions, take},
    datatypes::{DataType, Decimal128Type, Decimal256Type, Int16Type, Int32Type, Int64Type, i256},
};
use pystachio_plan::{Aggregate, Error, ErrorKind, WindowFunction};

use super::{
    Call,
    frames::{Frame, Frames},
};
use crate::{error::to_datafusion, functions::float_sum};

/// Peer groups and partitions, as runs of rows.
type Runs<'a> = &'a [Range<usize>];

/// A column for each call.
pub(super) fn compute(
    calls: &[Call],
    rows: &RecordBatch,
    partitions: Runs<'_>,
    peers: Runs<'_>,
) -> DataFusionResult<Vec<ArrayRef>> {
    // Functions of one window have one frame.
    let mut known: Vec<(String, Arc<Frames>)> = Vec::new();
    let mut frames = |frame: &Frame| -> DataFusionResult<Arc<Frames>> {
        let text = format!("{frame:?}");
        if let Some((_, frames)) = known.iter().find(|(known, _)| *known == text) {
            return Ok(frames.clone());
        }
        let frames = Arc::new(Frames::of(frame, rows, partitions, peers)?);
        known.push((text, frames.clone()));
        Ok(frames)
    };
    let mut columns = Vec::with_capacity(calls.len());
    for call in calls {
        let argument = evaluated(call.argument.as_ref(), rows)?;
        let block = Block { count: rows.num_rows(), partitions, peers };
        columns.push(match call.function {
            WindowFunction::RowNumber
            | WindowFunction::Rank
            | WindowFunction::DenseRank
            | WindowFunction::PercentRank
            | WindowFunction::CumeDist
            | WindowFunction::Ntile(_) => block.number(call.function),
            WindowFunction::Lag(offset) => block.lag(&required(argument)?, offset)?,
            WindowFunction::FirstValue | WindowFunction::LastValue | WindowFunction::NthValue(_) => {
                found(call.function, &required(argument)?, &*frames(&call.frame)?)?
            }
            WindowFunction::Aggregate(aggregate) => {
                let frames = frames(&call.frame)?;
                match aggregate {
                    Aggregate::Count => count(argument.as_ref(), block.count, &frames),
                    Aggregate::Sum | Aggregate::Deviations if call.data_type.is_floating() => {
                        sum_floats(&required(argument)?, aggregate, &call.data_type, &frames)?
                    }
                    Aggregate::Sum | Aggregate::Deviations => {
                        sum(&required(argument)?, &call.data_type, &frames)?
                    }
                    Aggregate::BoolAnd | Aggregate::BoolOr => {
                        truth(&required(argument)?, aggregate == Aggregate::BoolAnd, &frames)
                    }
                    Aggregate::Min | Aggregate::Max => {
                        let argument = required(argument)?;
                        let key = evaluated(call.key.as_ref(), rows)?.unwrap_or_else(|| argument.clone());
                        let best = Best::new(&key, aggregate == Aggregate::Max)?;
                        best.of_frames(&argument, &frames, partitions)?
                    }
                    Aggregate::AnyValue => found(WindowFunction::FirstValue, &required(argument)?, &frames)?,
                    Aggregate::BitAnd | Aggregate::BitOr | Aggregate::BitXor | Aggregate::Array => {
                        return Err(DataFusionError::NotImplemented(format!("{aggregate:?} over a window")));
                    }
                }
            }
        });
    }
    Ok(columns)
}

fn evaluated(
    expression: Option<&Arc<dyn PhysicalExpr>>,
    rows: &RecordBatch,
) -> DataFusionResult<Option<ArrayRef>> {
    let evaluate = |part: &Arc<dyn PhysicalExpr>| part.evaluate(rows)?.into_array(rows.num_rows());
    expression.map(evaluate).transpose()
}

fn required(argument: Option<ArrayRef>) -> DataFusionResult<ArrayRef> {
    argument.ok_or_else(|| DataFusionError::Internal("a window function lacks its argument".to_owned()))
}

struct Block<'a> {
    count: usize,
    partitions: Runs<'a>,
    peers: Runs<'a>,
}

impl Block<'_> {
    /// A function that numbers rows.
    fn number(&self, function: WindowFunction) -> ArrayRef {
        let mut whole = Vec::with_capacity(self.count);
        let mut shares = Vec::new();
        let mut groups = self.peers.iter().peekable();
        for partition in self.partitions {
            let rows = partition.len();
            let mut number = 0;
            while let Some(group) = groups.next_if(|group| group.start < partition.end) {
                number += 1;
                for row in group.clone() {
                    let (before, behind) = (group.start - partition.start, group.end - partition.start);
                    match function {
                        WindowFunction::RowNumber => whole.push((row - partition.start + 1) as i64),
                        WindowFunction::Rank => whole.push(before as i64 + 1),
                        WindowFunction::DenseRank => whole.push(number),
                        WindowFunction::Ntile(parts) => whole.push(part(row - partition.start, rows, parts)),
                        WindowFunction::PercentRank if rows == 1 => shares.push(0.0),
                        WindowFunction::PercentRank => shares.push(before as f64 / (rows - 1) as f64),
                        _ => shares.push(behind as f64 / rows as f64),
                    }
                }
            }
        }
        match function {
            WindowFunction::PercentRank | WindowFunction::CumeDist => Arc::new(Float64Array::from(shares)),
            WindowFunction::Ntile(_) => {
                Arc::new(Int32Array::from_iter_values(whole.into_iter().map(|number| number as i32)))
            }
            _ => Arc::new(Int64Array::from(whole)),
        }
    }

    fn lag(&self, argument: &ArrayRef, offset: i32) -> DataFusionResult<ArrayRef> {
        let mut places = Vec::with_capacity(self.count);
        for partition in self.partitions {
            places.extend(partition.clone().map(|row| {
                let place = row as i64 - i64::from(offset);
                let place = usize::try_from(place).ok().filter(|place| partition.contains(place))?;
                Some(place as u32)
            }));
        }
        Ok(take(argument, &UInt32Array::from(places), None)?)
    }
}

/// The number of the part that a row is in, if so many rows are divided into so many.
fn part(row: usize, rows: usize, parts: u32) -> i64 {
    let (each, more) = (rows / parts as usize, rows % parts as usize);
    let long = more * (each + 1);
    let place = if row < long { row / (each + 1) } else { more + (row - long) / each };
    place as i64 + 1
}

/// The value of the first or last row, or of that with a number.
fn found(function: WindowFunction, argument: &ArrayRef, frames: &Frames) -> DataFusionResult<ArrayRef> {
    let place = |row: usize| {
        let mut parts = frames.parts(row).into_iter().filter(|part| !part.is_empty());
        match function {
            WindowFunction::LastValue => parts.next_back().map(|part| part.end - 1),
            WindowFunction::NthValue(number) => {
                let mut left = number as usize - 1;
                parts.find_map(|part| {
                    let found = (left < part.len()).then(|| part.start + left);
                    left = left.saturating_sub(part.len());
                    found
                })
            }
            _ => parts.next().map(|part| part.start),
        }
    };
    let places = (0..argument.len()).map(|row| place(row).map(|place| place as u32));
    Ok(take(argument, &places.collect::<UInt32Array>(), None)?)
}

/// Values that are not NULL before each row, and before the end.
fn filled_before(argument: &dyn Array) -> Vec<u32> {
    let mut filled = 0;
    let mut before = Vec::with_capacity(argument.len() + 1);
    before.push(0);
    before.extend((0..argument.len()).map(|row| {
        filled += u32::from(argument.is_valid(row));
        filled
    }));
    before
}

/// What a frame has, by what there is before each row.
fn filled_in(before: &[u32], parts: &[Range<usize>; 3]) -> u32 {
    parts.iter().map(|part| before[part.end] - before[part.start]).sum()
}

fn count(argument: Option<&ArrayRef>, count: usize, frames: &Frames) -> ArrayRef {
    let counts: Int64Array = match argument {
        None => (0..count)
            .map(|row| Some(frames.parts(row).iter().map(|part| part.len() as i64).sum::<i64>()))
            .collect(),
        Some(argument) => {
            let before = filled_before(argument);
            (0..count).map(|row| Some(i64::from(filled_in(&before, &frames.parts(row))))).collect()
        }
    };
    Arc::new(counts)
}

/// Sums in integers of one width.
trait Sums: Copy {
    const ZERO: Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
}

impl Sums for i128 {
    const ZERO: Self = 0;
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
}

impl Sums for i256 {
    const ZERO: Self = i256::ZERO;
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
}

/// The sum of each frame; `None` of one without values.
fn sums<T: Sums>(
    argument: &dyn Array,
    frames: &Frames,
    value: impl Fn(usize) -> T,
) -> impl Iterator<Item = Option<T>> {
    let filled = filled_before(argument);
    let mut total = T::ZERO;
    let mut before = Vec::with_capacity(argument.len() + 1);
    before.push(total);
    before.extend((0..argument.len()).map(|row| {
        if argument.is_valid(row) {
            total = total.plus(value(row));
        }
        total
    }));
    (0..argument.len()).map(move |row| {
        let parts = frames.parts(row);
        let sum = |part: &Range<usize>| before[part.end].minus(before[part.start]);
        (filled_in(&filled, &parts) > 0).then(|| parts.iter().map(sum).fold(T::ZERO, T::plus))
    })
}

/// Sums of floats. Frames are whole partitions, of which each is summed once.
fn sum_floats(
    argument: &ArrayRef,
    aggregate: Aggregate,
    data_type: &DataType,
    frames: &Frames,
) -> DataFusionResult<ArrayRef> {
    let mut last: Option<(Range<usize>, ScalarValue)> = None;
    let mut sums = Vec::with_capacity(frames.bounds.len());
    for frame in &frames.bounds {
        let sum = match last.take() {
            Some((known, sum)) if known == *frame => sum,
            _ => float_sum(aggregate, data_type, &argument.slice(frame.start, frame.len()))?,
        };
        sums.push(sum.clone());
        last = Some((frame.clone(), sum));
    }
    ScalarValue::iter_to_array(sums)
}

fn sum(argument: &ArrayRef, data_type: &DataType, frames: &Frames) -> DataFusionResult<ArrayRef> {
    if let DataType::Decimal256(precision, scale) = data_type {
        let sums: Vec<Option<i256>> = match argument.data_type() {
            DataType::Decimal256(..) => {
                let values = argument.as_primitive::<Decimal256Type>();
                sums(argument, frames, |row| values.value(row)).collect()
            }
            _ => sums(argument, frames, |row| i256::from_i128(narrow_value(argument, row))).collect(),
        };
        let sums = Decimal256Array::from(sums).with_precision_and_scale(*precision, *scale)?;
        return Ok(Arc::new(sums));
    }
    let sums = sums(argument, frames, |row| narrow_value(argument, row));
    match data_type {
        DataType::Decimal128(precision, scale) => {
            let sums = sums.collect::<Decimal128Array>().with_precision_and_scale(*precision, *scale)?;
            Ok(Arc::new(sums))
        }
        _ => {
            let narrow = |sum: i128| {
                i64::try_from(sum).map_err(|_| {
                    to_datafusion(Error::new(ErrorKind::NumericOutOfRange, "bigint out of range"))
                })
            };
            let sums = sums.map(|sum| sum.map(narrow).transpose());
            Ok(Arc::new(sums.collect::<DataFusionResult<Int64Array>>()?))
        }
    }
}

/// A value of at most 128 bits.
fn narrow_value(argument: &ArrayRef, row: usize) -> i128 {
    match argument.data_type() {
        DataType::Int16 => argument.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => argument.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => argument.as_primitive::<Int64Type>().value(row).into(),
        _ => argument.as_primitive::<Decimal128Type>().value(row),
    }
}

/// Whether all values of a frame are true, or any.
fn truth(argument: &ArrayRef, all: bool, frames: &Frames) -> ArrayRef {
    let values = argument.as_boolean();
    let filled = filled_before(values);
    let decisive: BooleanArray = (0..values.len())
        .map(|row| (values.is_valid(row) && values.value(row) != all).then_some(true))
        .collect();
    let decisive = filled_before(&decisive);
    let truths: BooleanArray = (0..values.len())
        .map(|row| {
            let parts = frames.parts(row);
            (filled_in(&filled, &parts) > 0).then(|| (filled_in(&decisive, &parts) > 0) != all)
        })
        .collect();
    Arc::new(truths)
}

/// The least or the greatest of several rows.
struct Best {
    key: ArrayRef,
    compare: DynComparator,
    wanted: Ordering,
}

impl Best {
    fn new(key: &ArrayRef, greatest: bool) -> DataFusionResult<Self> {
        let compare = make_comparator(key, key, SortOptions::default())?;
        let wanted = if greatest { Ordering::Greater } else { Ordering::Less };
        Ok(Self { key: key.clone(), compare, wanted })
    }

    fn own(&self, row: usize) -> Option<u32> {
        self.key.is_valid(row).then_some(row as u32)
    }

    /// The better of two rows; of equal ones, such as 0 and -0, the last, as PostgreSQL has it.
    fn better(&self, one: Option<u32>, other: Option<u32>) -> Option<u32> {
        match (one, other) {
            (Some(first), Some(second)) => {
                let order = (self.compare)(second as usize, first as usize);
                let is_better = order == self.wanted || order == Ordering::Equal && second > first;
                Some(if is_better { second } else { first })
            }
            (one, other) => one.or(other),
        }
    }

    fn of_frames(
        &self,
        argument: &ArrayRef,
        frames: &Frames,
        partitions: Runs<'_>,
    ) -> DataFusionResult<ArrayRef> {
        let count = argument.len();
        if self.key.null_count() == count {
            return Ok(new_null_array(argument.data_type(), count));
        }
        let places: UInt32Array = if frames.begin_partitions(partitions) {
            let mut so_far = Vec::with_capacity(count);
            for partition in partitions {
                let mut best = None;
                so_far.extend(partition.clone().map(|row| {
                    best = self.better(best, self.own(row));
                    best
                }));
            }
            let of = |frame: &Range<usize>| if frame.is_empty() { None } else { so_far[frame.end - 1] };
            frames.bounds.iter().map(of).collect()
        } else {
            let tree = self.tree(count);
            let of = |row: usize| {
                let parts = frames.parts(row);
                parts.into_iter().map(|part| self.of_range(&tree, part)).fold(None, |a, b| self.better(a, b))
            };
            (0..count).map(of).collect()
        };
        Ok(take(argument, &places, None)?)
    }

    /// The best of runs of 1, 2, 4 … rows, each size behind the one before.
    fn tree(&self, count: usize) -> Vec<Vec<Option<u32>>> {
        let mut levels = vec![(0..count).map(|row| self.own(row)).collect::<Vec<_>>()];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let pair = |pair: &[Option<u32>]| self.better(pair[0], pair.get(1).copied().flatten());
            let next = last.chunks(2).map(pair).collect();
            levels.push(next);
        }
        levels
    }

    fn of_range(&self, levels: &[Vec<Option<u32>>], range: Range<usize>) -> Option<u32> {
        let (mut start, mut end) = (range.start, range.end);
        let mut best = None;
        for level in levels {
            if start >= end {
                break;
            }
            if start % 2 == 1 {
                best = self.better(best, level[start]);
                start += 1;
            }
            if end % 2 == 1 {
                end -= 1;
                best = self.better(best, level[end]);
            }
            (start, end) = (start / 2, end / 2);
        }
        best
    }
}
