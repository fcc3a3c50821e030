//! Aggregates: partial results of every chunk, merged where their groups are equal.
//!
//! DISTINCT aggregates are made of the others: the different values of a group are groups of their own, and when
//! the input has been seen they are what is added up.
//!
//! ```text
//! chunk ─► partial results of the others ─────────────────────────────► groups ─► results
//!     └──► group and value, for every argument of a DISTINCT aggregate ─► groups ─► partial results ─┘
//! ```
//!
//! Invariants: partial sums have 128 bits where the addends' digits prove that enough, and 256 elsewhere, so that the
//! order of chunks does not change whether a sum fits its type, unless it comes near to 256 bits. Partial results of
//! one kind leave those of the other as they are: zero for counts, NULL for the rest.

use pystachio_plan::{Aggregate, DataType, Error, Result};

use super::{
    Operator, QueryContext, Source,
    groups::{Groups, MergedValue, Merger, leader_columns},
    slot_groups::SlotGroups,
};
use crate::{
    device::{CellType, Chunk, Column, DECIMAL128_DIGITS_MAX, DECIMAL256_DIGITS_MAX},
    operation::{Accumulator, Queue, SlotLayout, SumWidth},
    program::Program,
};

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
    input: Operator,
    /// Groups, then arguments.
    program: Program,
    group_types: Vec<DataType>,
    argument_types: Vec<DataType>,
    calls: Vec<Call>,
    /// Absent before the input is read.
    groups: Option<Groups>,
    /// Results that are not in `groups`.
    ready: Option<Chunk>,
}

/// What partial results are of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Rows of the input.
    Rows,
    /// Different values of the argument at this place.
    Distinct(usize),
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

    /// How partial results are merged.
    fn merged(&self, argument_types: &[DataType]) -> Result<MergedValue> {
        let accumulator = match self.accumulator() {
            Accumulator::Count => Accumulator::Sum,
            other => other,
        };
        let partial_type = self.partial_type(argument_types)?;
        Ok(MergedValue { accumulator, partial_type, data_type: self.data_type.clone() })
    }

    /// The type of partial results.
    fn partial_type(&self, argument_types: &[DataType]) -> Result<DataType> {
        let argument = self.argument.and_then(|place| argument_types.get(place));
        let (Aggregate::Sum, Some(argument)) = (self.function, argument) else {
            return Ok(self.data_type.clone());
        };
        let precision = match SumWidth::of(argument)? {
            SumWidth::Wide => DECIMAL128_DIGITS_MAX,
            SumWidth::Large => DECIMAL256_DIGITS_MAX,
        };
        let scale = match &self.data_type {
            DataType::Decimal { scale, .. } => *scale,
            _ => 0,
        };
        Ok(DataType::Decimal { precision, scale })
    }

    fn pass(&self) -> Pass {
        match (self.distinct, self.argument) {
            (true, Some(argument)) => Pass::Distinct(argument),
            _ => Pass::Rows,
        }
    }
}

impl AggregateSource {
    pub(super) fn new(
        input: Operator,
        program: Program,
        group_types: Vec<DataType>,
        argument_types: Vec<DataType>,
        calls: Vec<Call>,
    ) -> Self {
        Self { input, program, group_types, argument_types, calls, groups: None, ready: None }
    }

    /// How many of its parts hold rows.
    pub(super) fn holder_count(&self) -> usize {
        1 + self.distinct_arguments().len() + usize::from(self.slot_layout().is_some())
    }

    /// What slots hold, if the groups may be found by their key.
    fn slot_layout(&self) -> Option<SlotLayout> {
        let [key] = self.group_types.as_slice() else { return None };
        let is_integer = matches!(CellType::of(key), Ok(CellType::Int16 | CellType::Int32 | CellType::Int64));
        let is_plain = self.calls.iter().all(|call| call.pass() == Pass::Rows);
        let aggregates: Vec<_> = self.calls.iter().map(|call| (call.accumulator(), call.argument)).collect();
        if is_integer && is_plain { SlotLayout::plan(&aggregates, &self.argument_types) } else { None }
    }

    /// The places of arguments of which different values count.
    fn distinct_arguments(&self) -> Vec<usize> {
        let mut places = Vec::new();
        for call in &self.calls {
            if let Pass::Distinct(place) = call.pass()
                && !places.contains(&place)
            {
                places.push(place);
            }
        }
        places
    }

    fn read(&mut self, context: &mut QueryContext) -> Result<Groups> {
        let key_count = self.group_types.len();
        let values = self.calls.iter().map(|call| call.merged(&self.argument_types));
        let merger = Merger { key_count, values: values.collect::<Result<_>>()? };
        let mut groups = Groups::new(merger, context.memory.claim()?);
        let mut distinct = Vec::new();
        for place in self.distinct_arguments() {
            let merger = Merger { key_count: key_count + 1, values: Vec::new() };
            distinct.push((place, Groups::new(merger, context.memory.claim()?)));
        }
        let mut slots = match self.slot_layout() {
            Some(layout) => Some(SlotGroups::new(layout, context.memory.claim()?)),
            None => None,
        };
        // Every group has a value, if only NULL, of an argument.
        let adds_rows = distinct.is_empty() || self.calls.iter().any(|call| call.pass() == Pass::Rows);
        let mut is_empty = true;
        while let Some(chunk) = self.input.next(context)? {
            if chunk.row_count == 0 {
                continue;
            }
            is_empty = false;
            let queue = &context.queue;
            let chunk = super::rows::project(context, &chunk, &self.program)?;
            if let (Some(slots), Some((key, arguments))) = (&mut slots, chunk.columns.split_first())
                && slots.add(queue, key, arguments, chunk.row_count)?
            {
                continue;
            }
            if adds_rows {
                groups.add(context, self.partial(queue, &chunk, Pass::Rows)?)?;
            }
            for (place, values) in &mut distinct {
                values.add(context, self.different_values(queue, &chunk, *place)?)?;
            }
        }
        if is_empty && key_count == 0 {
            // One row, over no input.
            let nothing = context.queue.empty(&self.input.types())?;
            let nothing = super::rows::project(context, &nothing, &self.program)?;
            groups.add(context, self.partial(&context.queue, &nothing, Pass::Rows)?)?;
        }
        if let (Some(slots), Some(key_type)) = (slots, self.group_types.first()) {
            let queue = &context.queue;
            if groups.is_empty() {
                let types: Vec<_> = self.calls.iter().map(|call| call.data_type.clone()).collect();
                self.ready = slots.take(queue, key_type, &types)?;
            } else {
                let types = self.calls.iter().map(|call| call.partial_type(&self.argument_types));
                if let Some(chunk) = slots.take(queue, key_type, &types.collect::<Result<Vec<_>>>()?)? {
                    groups.add(context, chunk)?;
                }
            }
        }
        for (place, mut values) in distinct {
            while let Some(chunk) = values.next(context)? {
                groups.add(context, self.partial(&context.queue, &chunk, Pass::Distinct(place))?)?;
            }
        }
        Ok(groups)
    }

    /// The groups of a chunk with their partial results. In a pass over different values, the chunk has groups
    /// and that value.
    fn partial(&self, queue: &Queue, chunk: &Chunk, pass: Pass) -> Result<Chunk> {
        let (keys, arguments) = chunk.columns.split_at(self.group_types.len());
        let grouping = queue.group(keys, chunk.row_count)?;
        let mut columns = leader_columns(queue, &grouping, keys)?;
        for call in &self.calls {
            columns.push(if call.pass() == pass {
                let argument = match (pass, call.argument) {
                    (_, None) => None,
                    (Pass::Distinct(_), Some(_)) => Some(argument_at(arguments, 0)?),
                    (Pass::Rows, Some(place)) => Some(argument_at(arguments, place)?),
                };
                let partial_type = call.partial_type(&self.argument_types)?;
                queue.accumulate(&grouping, call.accumulator(), argument, &partial_type)?
            } else {
                self.neutral(queue, call, grouping.group_count)?
            });
        }
        Ok(Chunk { row_count: grouping.group_count, columns })
    }

    /// Partial results that change nothing.
    fn neutral(&self, queue: &Queue, call: &Call, row_count: usize) -> Result<Column> {
        match (call.accumulator(), call.argument) {
            (Accumulator::Count, _) => Ok(Column {
                data_type: DataType::Int64,
                cell_type: CellType::Int64,
                values: queue.allocate_filled::<u64>(row_count as u64, 0)?,
                validity: None,
                strings: Vec::new(),
            }),
            (Accumulator::Sum, _) | (_, None) => {
                queue.nulls(&call.partial_type(&self.argument_types)?, row_count)
            }
            // As these are: values of the argument.
            (_, Some(place)) => {
                let data_type = self.argument_types.get(place);
                queue.nulls(data_type.unwrap_or(&call.data_type), row_count)
            }
        }
    }

    /// The different values of an argument, by group.
    fn different_values(&self, queue: &Queue, chunk: &Chunk, place: usize) -> Result<Chunk> {
        let (keys, arguments) = chunk.columns.split_at(self.group_types.len());
        let keys: Vec<Column> = keys.iter().chain([argument_at(arguments, place)?]).cloned().collect();
        let grouping = queue.group(&keys, chunk.row_count)?;
        let columns = leader_columns(queue, &grouping, &keys)?;
        Ok(Chunk { row_count: grouping.group_count, columns })
    }
}

fn argument_at(arguments: &[Column], place: usize) -> Result<&Column> {
    arguments.get(place).ok_or_else(|| Error::internal("an aggregate without its argument"))
}

impl Source for AggregateSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        if self.groups.is_none() {
            self.groups = Some(self.read(context)?);
        }
        if let Some(chunk) = self.ready.take() {
            return Ok(Some(chunk));
        }
        match &mut self.groups {
            Some(groups) => groups.next(context),
            None => Ok(None),
        }
    }
}
