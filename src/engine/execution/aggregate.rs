//! Aggregates: partial results of every chunk, merged at the end.
//!
//! Invariants: partial sums have 128 bits where the addends' digits prove that enough, and 256 elsewhere, so that
//! the order of chunks does not change whether a sum fits its type, unless it comes near to 256 bits.
//! DISTINCT needs all rows at once, so a plan with it aggregates the whole input in one step.

use pystachio_plan::{Aggregate, DataType, Error, Result};

use super::{Operator, QueryContext, Source};
use crate::{
    device::{Chunk, Column, DECIMAL128_DIGITS_MAX, DECIMAL256_DIGITS_MAX},
    operation::{Accumulator, Grouping, Queue, SumWidth},
    program::Program,
};

/// Partial results are merged when they have this many times the rows of the last merge.
const MERGE_GROWTH: usize = 4;
/// Fewer partial rows are not merged before the end.
const MERGE_ROWS_MIN: usize = 4 << 20;

/// One aggregate of a plan.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) function: Aggregate,
    /// Which column of the inputs; `None` for `count(*)`.
    pub(super) argument: Option<usize>,
    pub(super) distinct: bool,
    pub(super) data_type: DataType,
}

/// One row a group.
pub(super) struct AggregateSource {
    pub(super) input: Operator,
    /// Groups, then arguments.
    pub(super) program: Program,
    pub(super) group_types: Vec<DataType>,
    pub(super) calls: Vec<Call>,
    pub(super) is_done: bool,
}

impl Call {
    fn accumulator(&self) -> Accumulator {
        match self.function {
            Aggregate::Count => Accumulator::Count,
            Aggregate::Sum => Accumulator::Sum,
            Aggregate::Min | Aggregate::BoolAnd => Accumulator::Min,
            Aggregate::Max | Aggregate::BoolOr => Accumulator::Max,
            Aggregate::AnyValue => Accumulator::Any,
        }
    }

    /// What partial results are merged by.
    fn merger(&self) -> Accumulator {
        match self.accumulator() {
            Accumulator::Count => Accumulator::Sum,
            other => other,
        }
    }

    /// The type of partial results.
    fn partial_type(&self, argument: Option<&Column>) -> Result<DataType> {
        let (Aggregate::Sum, Some(argument)) = (self.function, argument) else {
            return Ok(self.data_type.clone());
        };
        let precision = match SumWidth::of(&argument.data_type)? {
            SumWidth::Wide => DECIMAL128_DIGITS_MAX,
            SumWidth::Large => DECIMAL256_DIGITS_MAX,
        };
        let scale = match &self.data_type {
            DataType::Decimal { scale, .. } => *scale,
            _ => 0,
        };
        Ok(DataType::Decimal { precision, scale })
    }
}

impl AggregateSource {
    /// The groups of a chunk with their partial results.
    fn partial(&self, queue: &Queue, chunk: &Chunk) -> Result<Chunk> {
        let (keys, arguments) = chunk.columns.split_at(self.group_types.len());
        let grouping = queue.group(keys, chunk.row_count)?;
        let mut columns = leader_columns(queue, &grouping, keys)?;
        for call in &self.calls {
            let argument = argument_of(call, arguments)?;
            let partial_type = call.partial_type(argument)?;
            columns.push(queue.accumulate(&grouping, call.accumulator(), argument, &partial_type)?);
        }
        Ok(Chunk { row_count: grouping.group_count, columns })
    }

    /// Partial results of the same group made one. `is_last`: of the types that the plan wants.
    fn merge(&self, queue: &Queue, chunks: &[Chunk], is_last: bool) -> Result<Chunk> {
        let chunk = queue.concat(chunks)?;
        let (keys, partials) = chunk.columns.split_at(self.group_types.len());
        let grouping = queue.group(keys, chunk.row_count)?;
        let mut columns = leader_columns(queue, &grouping, keys)?;
        for (call, partial) in self.calls.iter().zip(partials) {
            let data_type = if is_last { &call.data_type } else { &partial.data_type };
            columns.push(queue.merge(&grouping, call.merger(), partial, data_type)?);
        }
        Ok(Chunk { row_count: grouping.group_count, columns })
    }

    /// Everything in one step.
    fn whole(&self, queue: &Queue, chunk: &Chunk) -> Result<Chunk> {
        let (keys, arguments) = chunk.columns.split_at(self.group_types.len());
        let grouping = queue.group(keys, chunk.row_count)?;
        let mut columns = leader_columns(queue, &grouping, keys)?;
        for call in &self.calls {
            let argument = argument_of(call, arguments)?;
            let column = match (call.distinct, argument) {
                (true, Some(argument)) => {
                    let (distinct, values) = queue.distinct(&grouping, argument)?;
                    queue.accumulate(&distinct, call.accumulator(), Some(&values), &call.data_type)?
                }
                _ => queue.accumulate(&grouping, call.accumulator(), argument, &call.data_type)?,
            };
            columns.push(column);
        }
        Ok(Chunk { row_count: grouping.group_count, columns })
    }
}

fn argument_of<'a>(call: &Call, arguments: &'a [Column]) -> Result<Option<&'a Column>> {
    match call.argument {
        None => Ok(None),
        Some(place) => {
            let found =
                arguments.get(place).ok_or_else(|| Error::internal("an aggregate without its argument"))?;
            Ok(Some(found))
        }
    }
}

/// The keys of every group.
fn leader_columns(queue: &Queue, grouping: &Grouping, keys: &[Column]) -> Result<Vec<Column>> {
    match &grouping.leaders {
        None => Ok(Vec::new()),
        Some(leaders) => keys.iter().map(|key| queue.gather(key, leaders)).collect(),
    }
}

impl Source for AggregateSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(None);
        }
        let in_one_step = self.calls.iter().any(|call| call.distinct);
        let (mut chunks, mut row_count, mut merged_rows) = (Vec::new(), 0, MERGE_ROWS_MIN);
        while let Some(chunk) = self.input.next(context)? {
            if chunk.row_count == 0 {
                continue;
            }
            let chunk = super::rows::project(context, &chunk, &self.program)?;
            let chunk = if in_one_step { chunk } else { self.partial(&context.queue, &chunk)? };
            row_count += chunk.row_count;
            chunks.push(chunk);
            if !in_one_step && row_count > merged_rows.saturating_mul(MERGE_GROWTH) {
                let merged = self.merge(&context.queue, &chunks, false)?;
                row_count = merged.row_count;
                merged_rows = row_count.max(MERGE_ROWS_MIN);
                chunks = vec![merged];
            }
        }
        let queue = &context.queue;
        if chunks.is_empty() {
            if !self.group_types.is_empty() {
                let types: Vec<DataType> = self
                    .group_types
                    .iter()
                    .cloned()
                    .chain(self.calls.iter().map(|call| call.data_type.clone()))
                    .collect();
                return queue.empty(&types).map(Some);
            }
            // One row, over no input.
            let nothing = queue.empty(&self.input.types())?;
            let nothing = super::rows::project(context, &nothing, &self.program)?;
            return self.whole(queue, &nothing).map(Some);
        }
        if in_one_step {
            self.whole(queue, &queue.concat(&chunks)?).map(Some)
        } else {
            self.merge(queue, &chunks, true).map(Some)
        }
    }
}
