//! Aggregates: partial results of every chunk, merged where their groups are equal.
//!
//! DISTINCT aggregates run in two steps: the operator groups by group and value, and after the last
//! row it aggregates the different values.
//!
//! ```text
//! chunk ─► partial results of the others ─────────────────────────────► groups ─► results
//!     └──► group and value, for every argument of a DISTINCT aggregate ─► groups ─► partial results ─┘
//! ```
//!
//! In a plan for several ranks a rank outputs partial results (`AggregatePhase::Partial`) or reads
//! them (`AggregatePhase::Final`). Rows are added in the same way; only the type or the accumulator
//! of a call differs, and partial results that merging does not make fewer are output at once.
//!
//! Invariants: partial sums have 128 bits if the addends' digits prove that enough, and 256
//! otherwise, and partial sums of floats are exact. So the order of chunks does not change whether a sum fits its type, unless it comes
//! near to 256 bits (see `partial_type` of the plan language). Partial results of one kind leave
//! those of the other unchanged: zero for counts, NULL for the rest.

use std::{ops::RangeInclusive, sync::Arc};

use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, DataType, Error, ErrorKind, Expression, Literal,
    NamedExpression, Result, partial_type,
};

use super::{
    groups::{ManyRows, MergedGroups, MergedValue, Merger, PutAside},
    slot_groups::{Added, SlotGroups},
};
use crate::{
    device::{AnyColumn, CellType, Chunk, CodedColumn, Column, Rows},
    execution::{
        CountedSource, Driver, FoldedRows, Source, expressions::RowProgram, row_wise::project,
        scan_fold::ScanFold,
    },
    operation::{
        Accumulation, Accumulator, FEW_SLOTS_MAX, Grouping, Queue, SLOT_KEYS_MAX, SlotKey, SlotLayout,
        SumWidth, slot_count,
    },
};

/// One aggregate of a plan.
#[derive(Clone, Debug)]
pub(in crate::execution) struct PlannedAggregate {
    accumulator: Accumulator,
    /// Which column of the inputs; `None` for `count(*)`.
    argument: Option<usize>,
    /// Whether equal inputs count once.
    distinct: bool,
    /// The representation of its sum while rows are added.
    width: SumWidth,
    /// The type of partial results.
    partial_type: DataType,
    data_type: DataType,
}

/// One row a group.
pub(in crate::execution) struct AggregateSource {
    input: CountedSource,
    /// Groups, then arguments.
    program: RowProgram,
    group_types: Vec<DataType>,
    argument_types: Vec<DataType>,
    calls: Vec<PlannedAggregate>,
    /// The range of a single key, from footers.
    expected_keys: Option<RangeInclusive<i64>>,
    /// Whether the input aggregates some of its rows itself.
    folds: bool,
    /// Whether its results are merged once more, so that groups may come in several of them.
    is_partial: bool,
    state: AggregateState,
}

enum AggregateState {
    Begins,
    /// Rows are added.
    Reads(Box<Reading>),
    /// Results that are not in the groups, and the groups.
    Ends(Option<Chunk>, Box<MergedGroups>),
}

/// The groups of the rows so far.
struct Reading {
    groups: MergedGroups,
    /// Of each argument of a DISTINCT call, the groups and values.
    distinct: Vec<(usize, MergedGroups)>,
    slots: Option<SlotGroups>,
    is_empty: bool,
}

/// The input of partial results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Rows of the input.
    Rows,
    /// Different values of the argument at this place.
    Distinct(usize),
}

impl PlannedAggregate {
    /// An aggregate of a plan, whose argument is a column of the inputs of some type.
    ///
    /// # Errors
    ///
    /// `NotSupported` for an aggregate or a sum without a kernel.
    pub(in crate::execution) fn new(
        call: &AggregateCall,
        argument: Option<(usize, &DataType)>,
        phase: AggregatePhase,
    ) -> Result<Self> {
        let (place, argument_type) = argument.unzip();
        if let Some(DataType::Record(_)) = argument_type {
            return Err(Error::new(ErrorKind::NotSupported, "no kernel sums pairs of floats"));
        }
        let accumulator = match (call.function, phase) {
            (Aggregate::Deviations, _) => Accumulator::Deviations,
            (Aggregate::Sum, _) if call.is_of_floats() => Accumulator::FloatSum,
            // Partial counts are added up.
            (Aggregate::Count, AggregatePhase::Final) | (Aggregate::Sum, _) => Accumulator::Sum,
            (Aggregate::Count, AggregatePhase::Whole | AggregatePhase::Partial) => Accumulator::Count,
            (Aggregate::Min | Aggregate::BoolAnd, _) => Accumulator::Min,
            (Aggregate::Max | Aggregate::BoolOr, _) => Accumulator::Max,
            (Aggregate::AnyValue, _) => Accumulator::Any,
            (function @ (Aggregate::BitAnd | Aggregate::BitOr | Aggregate::BitXor | Aggregate::Array), _) => {
                let name = format!("{function:?}").to_lowercase();
                let message = format!("{name} is not computed on the GPU here: no kernel computes it");
                return Err(Error::new(ErrorKind::NotSupported, message));
            }
        };
        let partial_type = match (phase, argument_type) {
            // Inputs are partial results, and outputs too until the last row of a group.
            (AggregatePhase::Final, Some(partial)) => partial.clone(),
            _ => partial_type(call.function, argument_type, &call.data_type),
        };
        let width = match (accumulator, phase, argument_type) {
            (Accumulator::Sum, AggregatePhase::Whole | AggregatePhase::Partial, Some(addends)) => {
                SumWidth::of(addends)?
            }
            _ => SumWidth::of_sums(&partial_type),
        };
        let (distinct, data_type) = (call.counts_distinct(), call.data_type.clone());
        Ok(Self { accumulator, argument: place, distinct, width, partial_type, data_type })
    }

    /// How partial results are merged.
    fn merged(&self) -> MergedValue {
        let accumulator = match self.accumulator {
            Accumulator::Count => Accumulator::Sum,
            other => other,
        };
        let (partial_type, data_type) = (self.partial_type.clone(), self.data_type.clone());
        MergedValue { accumulator, partial_type, data_type }
    }

    fn pass(&self) -> Pass {
        match (self.distinct, self.argument) {
            (true, Some(argument)) => Pass::Distinct(argument),
            _ => Pass::Rows,
        }
    }
}

impl AggregateSource {
    pub(in crate::execution) fn new(
        input: CountedSource,
        program: RowProgram,
        group_types: Vec<DataType>,
        argument_types: Vec<DataType>,
        calls: Vec<PlannedAggregate>,
    ) -> Self {
        let (expected_keys, folds, is_partial, state) = (None, false, false, AggregateState::Begins);
        Self { input, program, group_types, argument_types, calls, expected_keys, folds, is_partial, state }
    }

    /// The same, over an input that is asked to aggregate its rows itself where it can. `groups` and `arguments` are what the program computes.
    pub(in crate::execution) fn folding(
        mut self,
        groups: &[NamedExpression],
        arguments: &[Expression],
        parameters: &[Literal],
    ) -> Self {
        let is_plain = self.calls.iter().all(|call| call.pass() == Pass::Rows);
        let aggregate = |call: &PlannedAggregate| (call.accumulator, call.argument, call.width);
        let layout = SlotLayout::plan(self.calls.iter().map(aggregate)).filter(|_| is_plain);
        let partial_types = self.partial_types();
        let fold =
            layout.and_then(|layout| ScanFold::of(groups, arguments, (layout, partial_types), parameters));
        self.folds = fold.is_some_and(|fold| self.input.fold(Arc::new(fold)));
        self
    }

    /// The same, as the first of two phases.
    pub(in crate::execution) fn in_first_phase(self) -> Self {
        Self { is_partial: true, ..self }
    }

    /// The same, if the values of a single key are known to lie in a range.
    pub(in crate::execution) fn expecting(self, keys: Option<RangeInclusive<i64>>) -> Self {
        Self { expected_keys: keys, ..self }
    }

    /// How many of its parts hold rows.
    pub(in crate::execution) fn holder_count(&self) -> usize {
        1 + self.distinct_arguments().len() + usize::from(self.slot_layout().is_some())
    }

    fn partial_types(&self) -> Vec<DataType> {
        self.calls.iter().map(|call| call.partial_type.clone()).collect()
    }

    /// The size of slots and the type of their key, if groups may be found by the value of it.
    fn slot_layout(&self) -> Option<(SlotLayout, DataType)> {
        let [key] = self.group_types.as_slice() else { return None };
        let is_integer = matches!(CellType::of(key), Ok(CellType::Int16 | CellType::Int32 | CellType::Int64));
        let is_plain = self.calls.iter().all(|call| call.pass() == Pass::Rows);
        let aggregate = |call: &PlannedAggregate| (call.accumulator, call.argument, call.width);
        let layout = SlotLayout::plan(self.calls.iter().map(aggregate)).filter(|_| is_integer && is_plain);
        layout.map(|layout| (layout, key.clone()))
    }

    /// The places of arguments of DISTINCT calls.
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

    fn begin(&self, driver: &Driver) -> Result<Reading> {
        let claim = || driver.query.memory.claim();
        let key_count = self.group_types.len();
        let merger = Merger { key_count, values: self.calls.iter().map(PlannedAggregate::merged).collect() };
        let many_rows = if self.is_partial { ManyRows::PassedOn } else { ManyRows::Partitioned };
        let groups = MergedGroups::new(merger, many_rows, claim()?);
        let mut distinct = Vec::new();
        for place in self.distinct_arguments() {
            let merger = Merger { key_count: key_count + 1, values: Vec::new() };
            distinct.push((place, MergedGroups::new(merger, ManyRows::Partitioned, claim()?)));
        }
        let slots = match self.slot_layout() {
            Some((layout, key_type)) => {
                let slots = SlotGroups::new(layout, key_type, self.partial_types(), claim()?);
                Some(slots.expecting(self.expected_keys.clone()))
            }
            None => None,
        };
        Ok(Reading { groups, distinct, slots, is_empty: true })
    }

    /// Adds rows, to the last one or until results are passed on, which it returns.
    fn read(&mut self, driver: &mut Driver, reading: &mut Reading) -> Result<Option<Chunk>> {
        let key_count = self.group_types.len();
        let Reading { groups, distinct, slots, is_empty } = reading;
        // Every group has a value, if only NULL, of an argument.
        let adds_rows = distinct.is_empty() || self.calls.iter().any(|call| call.pass() == Pass::Rows);
        loop {
            if let Some(chunk) = groups.next_passed_on() {
                return Ok(Some(chunk));
            }
            let rows = match self.folds {
                false => self.input.next(driver)?,
                true => match self.input.next_folded(driver)? {
                    Some(FoldedRows::Groups { groups: folded, row_count }) => {
                        driver.count("rows_folded", row_count as u64);
                        *is_empty &= row_count == 0;
                        if folded.row_count > 0 {
                            groups.add(driver, folded)?;
                        }
                        continue;
                    }
                    Some(FoldedRows::Rows(rows)) => Some(rows),
                    None => None,
                },
            };
            let Some(rows) = rows else { return Ok(None) };
            if rows.row_count == 0 {
                continue;
            }
            *is_empty = false;
            let rows = project(driver, &rows, &self.program)?;
            let mut keys = rows.columns.iter().take(key_count);
            if keys.any(|key| key.codes().is_some()) {
                driver.count("dictionary_rows_grouped", rows.row_count as u64);
            }
            let queue = &driver.queue;
            let rows = match slots {
                None => rows,
                Some(slots) => {
                    let chunk = queue.chunk_of(&rows)?;
                    let added = match chunk.columns.split_first() {
                        Some((key, arguments)) => slots.add(queue, key, arguments, chunk.row_count)?,
                        None => Added::Nowhere,
                    };
                    match added {
                        Added::InSlots => continue,
                        Added::Moved(earlier) => {
                            groups.add(driver, earlier)?;
                            continue;
                        }
                        Added::Nowhere => chunk.into(),
                    }
                }
            };
            if adds_rows {
                groups.add(driver, self.partial(queue, &rows, Pass::Rows)?)?;
            }
            for (place, values) in distinct.iter_mut() {
                values.add(driver, self.different_values(queue, &rows, *place)?)?;
            }
        }
    }

    /// The groups of all rows, after the last one.
    fn end(&self, driver: &Driver, reading: Reading) -> Result<AggregateState> {
        let Reading { mut groups, distinct, slots, is_empty } = reading;
        let mut ready = None;
        if is_empty && self.group_types.is_empty() {
            // One row, over an empty input.
            let nothing = driver.queue.empty(&self.input.types())?.into();
            let nothing = project(driver, &nothing, &self.program)?;
            groups.add(driver, self.partial(&driver.queue, &nothing, Pass::Rows)?)?;
        }
        if let Some(mut slots) = slots {
            let queue = &driver.queue;
            if groups.is_empty() {
                let types: Vec<_> = self.calls.iter().map(|call| call.data_type.clone()).collect();
                ready = slots.take(queue, &types)?;
            } else {
                if let Some(chunk) = slots.take(queue, &self.partial_types())? {
                    groups.add(driver, chunk)?;
                }
            }
        }
        for (place, mut values) in distinct {
            while let Some(chunk) = values.next(driver)? {
                let partial = self.partial(&driver.queue, &chunk.into(), Pass::Distinct(place))?;
                groups.add(driver, partial)?;
            }
        }
        Ok(AggregateState::Ends(ready, Box::new(groups)))
    }

    /// The groups of some rows with their partial results. In a pass over different values, rows
    /// are grouped by group and value.
    fn partial(&self, queue: &Queue, rows: &Rows, pass: Pass) -> Result<Chunk> {
        let (keys, arguments) = rows.columns.split_at(self.group_types.len());
        let keys = Keys { columns: keys.iter().collect(), row_count: rows.row_count };
        let (mut places, mut inputs, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for call in self.calls.iter().filter(|call| call.pass() == pass) {
            let place = call.argument.map(|place| if pass == Pass::Rows { place } else { 0 });
            // Columns that several calls share become cells once.
            if let Some(place) = place.filter(|place| !places.contains(place)) {
                places.push(place);
                inputs.push(queue.cells_of(argument_at(arguments, place)?, rows.row_count)?);
            }
            calls.push(Accumulation {
                accumulator: call.accumulator,
                input: place.and_then(|place| places.iter().position(|known| *known == place)),
                width: call.width,
                result: call.partial_type.clone(),
            });
        }
        let inputs: Vec<&Column> = inputs.iter().collect();
        if calls.len() == self.calls.len()
            && let Some(chunk) = keys.accumulate_codes(queue, &inputs, &calls)?
        {
            return Ok(chunk);
        }
        let grouping = keys.group(queue)?;
        let mut columns = keys.leaders(queue, &grouping)?;
        let mut results = queue.accumulate(&grouping, &inputs, &calls)?.into_iter().peekable();
        for call in &self.calls {
            columns.push(match results.next_if(|_| call.pass() == pass) {
                Some(result) => result,
                None => self.neutral(queue, call, grouping.group_count)?,
            });
        }
        Ok(Chunk { row_count: grouping.group_count, columns })
    }

    /// Partial results that change nothing.
    fn neutral(&self, queue: &Queue, call: &PlannedAggregate, row_count: usize) -> Result<Column> {
        match (call.accumulator, call.argument) {
            (Accumulator::Count, _) => Ok(Column {
                data_type: DataType::Int64,
                cell_type: CellType::Int64,
                values: queue.allocate_filled::<u64>(row_count as u64, 0)?,
                validity: None,
                strings: Vec::new(),
            }),
            (Accumulator::Sum | Accumulator::FloatSum | Accumulator::Deviations, _) | (_, None) => {
                queue.nulls(&call.partial_type, row_count)
            }
            // The same for values of the argument.
            (_, Some(place)) => {
                let data_type = self.argument_types.get(place);
                queue.nulls(data_type.unwrap_or(&call.data_type), row_count)
            }
        }
    }

    /// The different values of an argument, by group.
    fn different_values(&self, queue: &Queue, rows: &Rows, place: usize) -> Result<Chunk> {
        let (keys, arguments) = rows.columns.split_at(self.group_types.len());
        let columns = keys.iter().chain([argument_at(arguments, place)?]).collect();
        let keys = Keys { columns, row_count: rows.row_count };
        let grouping = keys.group(queue)?;
        Ok(Chunk { row_count: grouping.group_count, columns: keys.leaders(queue, &grouping)? })
    }
}

/// The columns to group rows by. Codes stand for their values: two codes may have equal values, and
/// then there are two groups until partial results are merged.
struct Keys<'a> {
    columns: Vec<&'a AnyColumn>,
    row_count: usize,
}

impl Keys<'_> {
    fn group(&self, queue: &Queue) -> Result<Grouping> {
        let keys: Vec<Column> = self.columns.iter().map(|column| column.cells_or_codes()).collect();
        queue.group(&keys, self.row_count, self.groups_max())
    }

    /// The groups with their aggregates, if all keys come as codes and there are few groups: each
    /// has a slot, and rows are not compared.
    fn accumulate_codes(
        &self,
        queue: &Queue,
        inputs: &[&Column],
        calls: &[Accumulation],
    ) -> Result<Option<Chunk>> {
        let coded = self.columns.iter().map(|column| column.codes());
        let Some(coded) = coded.collect::<Option<Vec<&CodedColumn>>>() else { return Ok(None) };
        let layout = SlotLayout::plan(calls.iter().map(|call| (call.accumulator, call.input, call.width)));
        let keys: Vec<_> = coded.iter().map(|coded| SlotKey::numbers(coded.entry_count as u64)).collect();
        let is_few = (1..=SLOT_KEYS_MAX).contains(&keys.len()) && slot_count(&keys) <= FEW_SLOTS_MAX;
        let Some(layout) = layout.filter(|_| is_few) else { return Ok(None) };
        let mut slots = queue.open_slots(&layout, keys)?;
        let codes: Vec<Column> = coded.iter().map(|coded| coded.code_column()).collect();
        queue.accumulate_slots(&layout, &mut slots, &codes, inputs, self.row_count)?;
        let code_types = vec![DataType::Int32; coded.len()];
        let result_types: Vec<DataType> = calls.iter().map(|call| call.result.clone()).collect();
        let mut chunk = queue.take_slots(&layout, &slots, &code_types, &result_types)?;
        for (column, coded) in chunk.columns.iter_mut().zip(coded) {
            *column = queue.look_up_codes(&coded.entries, &column.values, chunk.row_count)?;
        }
        Ok(Some(chunk))
    }

    /// The groups are at most the combinations of entries, one of each column.
    fn groups_max(&self) -> usize {
        let entries =
            self.columns.iter().map(|column| column.codes().map_or(usize::MAX, |coded| coded.entry_count));
        entries.fold(1, usize::saturating_mul)
    }

    /// The keys of every group.
    fn leaders(&self, queue: &Queue, grouping: &Grouping) -> Result<Vec<Column>> {
        match &grouping.leaders {
            None => Ok(Vec::new()),
            Some(leaders) => {
                let keys = queue.gather_columns(&self.columns, leaders)?;
                keys.iter().map(|key| queue.cells_of(key, leaders.count)).collect()
            }
        }
    }
}

fn count(driver: &mut Driver, groups: &mut MergedGroups) {
    let PutAside { partitioned, passed_on } = groups.take_counts();
    for (name, rows) in [("rows_partitioned", partitioned), ("rows_passed_on", passed_on)] {
        if rows > 0 {
            driver.count(name, rows);
        }
    }
}

fn argument_at(arguments: &[AnyColumn], place: usize) -> Result<&AnyColumn> {
    arguments.get(place).ok_or_else(|| Error::internal("an aggregate without its argument"))
}

impl Source for AggregateSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        loop {
            self.state = match std::mem::replace(&mut self.state, AggregateState::Begins) {
                AggregateState::Begins => AggregateState::Reads(Box::new(self.begin(driver)?)),
                AggregateState::Reads(mut reading) => match self.read(driver, &mut reading)? {
                    Some(passed_on) => {
                        count(driver, &mut reading.groups);
                        self.state = AggregateState::Reads(reading);
                        return Ok(Some(passed_on.into()));
                    }
                    None => self.end(driver, *reading)?,
                },
                AggregateState::Ends(ready, mut groups) => {
                    let next = match ready {
                        None => groups.next(driver)?,
                        ready => ready,
                    };
                    count(driver, &mut groups);
                    self.state = AggregateState::Ends(None, groups);
                    return Ok(next.map(Rows::from));
                }
            };
        }
    }
}
