//! Plans run on one device: a tree of sources that give chunks.
//!
//! - `engine.rs`: what the host starts; `run.rs`: a query on a thread of its own
//! - `timeline.rs`: what the device did for the last queries
//! - `compile.rs`: a plan becomes a tree of sources
//! - `readers.rs`: threads that read and decode for all scans; `chunk_cache`: what stays between queries
//! - `chunk_loads.rs`: column chunks on their way to the device
//! - `scan.rs`, `rows.rs` (filter, project, limit, union, values), `join.rs`, `aggregate.rs`, `sort.rs`: the sources
//! - `runtime_filter.rs`, `filter_route.rs`: what joins know of keys, and which scans get to know it
//! - `scan_parts.rs`: row groups among readers; `scan_pieces.rs`: those that do not fit
//! - `scan_rows.rs`, `scan_filter.rs`: the rows of a row group that are wanted, and how that is found out
//! - `row_program.rs`, `coded_expressions.rs`: what is computed of rows, once an entry where a column comes as codes
//! - `memory.rs`: what a query may use, and what its operators may hold
//! - `held.rs`: rows that are held, and their way off the device
//! - `matching.rs`, `join_partitions.rs`: one probe chunk against a build side; a build side that was spilled
//! - `slot_groups.rs`: groups of an integer key; `groups.rs`: partial results, in memory or spilled
//! - `sort_ranges.rs`: a sort of rows that were spilled
//!
//! ```text
//!   sort ◄── aggregate ◄── join ◄── filter ◄── scan         a chunk is pulled through to the next breaker
//!                            ▲
//!                            └── build side, whole, or partition by partition
//! ```
//!
//! Invariants: a query hears of a fault before it gives a row that came after it. A query has one queue, so all its
//! device work is in one order and a buffer that is dropped is freed after its last use. Between two chunks a query
//! looks whether it is still wanted. What an operator holds from one chunk to the next it has a claim for; what it gets
//! no claim for it spills. Chunks are not larger than what there is of memory allows: what is, is given in parts, which
//! are slices of it. Text whose dictionary has few entries goes from operator to operator as codes; what holds rows,
//! sorts, hashes a build side or gives rows away makes cells of them.
//!
//! Deliberately absent: anything that runs what no kernel has: `NotSupported` says so before the first
//! row, and the host runs such a plan on another engine.

mod aggregate;
mod chunk_cache;
mod chunk_loads;
mod coded_expressions;
mod compile;
mod engine;
mod filter_route;
mod groups;
mod held;
mod join;
mod join_partitions;
mod matching;
mod memory;
mod readers;
mod row_program;
mod rows;
mod run;
mod runtime_filter;
mod scan;
mod scan_filter;
mod scan_parts;
mod scan_pieces;
mod scan_rows;
mod slot_groups;
mod sort;
mod sort_ranges;
#[cfg(test)]
mod tests;
mod timeline;

pub use engine::{DeviceEngine, DeviceOptions};

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use pystachio_engine::StopFlag;
use pystachio_files::QueryFiles;
use pystachio_plan::{ColumnId, DataType, DeviceSettings, Literal, OperatorMetrics, QueryMetrics, Result};

use self::{
    chunk_cache::ChunkCache, filter_route::ReducedOperators, memory::QueryMemory, readers::ReaderPool,
};
use crate::{
    device::{Chunk, Rows},
    file_systems::FileSystems,
    operation::{FaultReport, Queue},
};

/// Columns of a source, in the order of its chunks.
type Columns = Vec<(ColumnId, DataType)>;

/// What every source of a query shares.
struct QueryContext {
    /// Queries of an engine are numbered in the order of their start.
    number: u64,
    /// Who asks.
    role: u32,
    settings: DeviceSettings,
    queue: Queue,
    memory: QueryMemory,
    cache: ChunkCache,
    readers: ReaderPool,
    /// The place in which the query will want each scan, by the address of its relation.
    scan_ranks: HashMap<usize, usize>,
    /// What is read of scans, but for their own conditions.
    columns_above_scans: HashSet<ColumnId>,
    reduced: ReducedOperators,
    files: QueryFiles,
    file_systems: Arc<FileSystems>,
    parameters: Vec<Literal>,
    stop: StopFlag,
    /// The last look at what kernels have reported.
    faults: Option<FaultReport>,
    metrics: QueryMetrics,
    /// The place in the metrics of the operator that is asked for rows.
    operator: usize,
}

impl QueryContext {
    fn check_cancelled(&self) -> Result<()> {
        self.stop.check()
    }

    /// Counts something of the operator that is asked for rows.
    fn count(&mut self, name: &str, count: u64) {
        if let Some(operator) = self.metrics.operators.get_mut(self.operator) {
            operator.count(name, count);
        }
    }

    /// Hears of the faults up to the last chunk, and looks at those up to this one. What was heard of a chunk came
    /// while the next one was read.
    fn hear_faults(&mut self) -> Result<()> {
        let before = self.faults.replace(self.queue.report_faults()?);
        before.map_or(Ok(()), |report| report.wait())
    }

    /// Hears of all faults; waits.
    fn check_faults(&mut self) -> Result<()> {
        self.faults = None;
        self.queue.report_faults()?.wait()
    }
}

/// An operator that gives chunks of its columns until it has no more.
trait Source: Send {
    /// The next rows, or `None` at the end. There may be none among them.
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Rows>>;
}

/// A source with its columns, and what it has given so far.
struct Operator {
    columns: Columns,
    source: Box<dyn Source>,
    /// Place in [`QueryMetrics::operators`].
    place: usize,
    /// Rows that are too many to be given at once, and the first that was not.
    rest: Option<(Rows, usize)>,
}

impl Operator {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Rows>> {
        context.check_cancelled()?;
        let started = Instant::now();
        let above = context.queue.memory().attribute(self.place as u32);
        let operator_above = std::mem::replace(&mut context.operator, self.place);
        let given = self.give(context);
        context.operator = operator_above;
        context.queue.memory().attribute(above);
        let rows = given?;
        if !context.settings.deferred_synchronisation {
            context.queue.wait()?;
        }
        if let Some(OperatorMetrics { row_count, elapsed_us, .. }) =
            context.metrics.operators.get_mut(self.place)
        {
            let count = rows.as_ref().map_or(0, |rows| rows.row_count) as u64;
            *row_count = Some(row_count.unwrap_or(0) + count);
            *elapsed_us = Some(elapsed_us.unwrap_or(0) + started.elapsed().as_micros() as u64);
        }
        if let Some(rows) = &rows {
            debug_assert_eq!(rows.columns.len(), self.columns.len());
        }
        Ok(rows)
    }

    /// The next rows, of the rest or of the source.
    fn give(&mut self, context: &mut QueryContext) -> Result<Option<Rows>> {
        match self.rest.take() {
            Some((rows, first)) => self.part(context, rows, first).map(Some),
            None => match self.source.next(context)? {
                Some(rows) => self.part(context, rows, 0).map(Some),
                None => Ok(None),
            },
        }
    }

    /// As many rows as are given at once; the others are the rest.
    fn part(&mut self, context: &QueryContext, rows: Rows, first: usize) -> Result<Rows> {
        let rows_max = rows_within(&rows, context.memory.chunk_bytes());
        // Rows that begin so are given where they are.
        let rows_max = if rows_max < PART_ROWS { rows_max } else { rows_max / PART_ROWS * PART_ROWS };
        let left = rows.row_count - first;
        if left <= rows_max.saturating_add(rows_max / 2) {
            return context.queue.slice_rows(&rows, first, left);
        }
        let part = context.queue.slice_rows(&rows, first, rows_max)?;
        self.rest = Some((rows, first + rows_max));
        Ok(part)
    }

    /// The cells of the next rows.
    fn next_chunk(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        let rows = self.next(context)?;
        rows.map(|rows| context.queue.chunk_of(&rows)).transpose()
    }

    fn types(&self) -> Vec<DataType> {
        self.columns.iter().map(|(_, data_type)| data_type.clone()).collect()
    }
}

/// Rows that are given at once are a multiple of this, unless they are fewer.
const PART_ROWS: usize = 64;

/// How many of some rows have so many bytes; at least one.
fn rows_within(rows: &Rows, bytes: u64) -> usize {
    match rows.cell_bytes() {
        cell_bytes if cell_bytes > bytes => {
            let rows = rows.row_count as u128 * u128::from(bytes) / u128::from(cell_bytes);
            (rows as usize).max(1)
        }
        _ => rows.row_count.max(1),
    }
}
