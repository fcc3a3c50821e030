//! Plans run on one device: a tree of sources that give chunks.
//!
//! - `engine.rs`: what the host starts; `run.rs`: a query on a thread of its own
//! - `timeline.rs`: what the device did for the last queries
//! - `compile.rs`: a plan becomes a tree of sources
//! - `readers.rs`: threads that read and decode for all scans; `chunk_cache.rs`: what stays on the device
//! - `scan.rs`, `rows.rs` (filter, project, limit, union, values), `join.rs`, `aggregate.rs`, `sort.rs`: the sources
//!
//! ```text
//!   sort ◄── aggregate ◄── join ◄── filter ◄── scan         a chunk is pulled through to the next breaker
//!                            ▲
//!                            └── build side, whole
//! ```
//!
//! Invariants: a query has one queue, so all its device work is in one order and a buffer that is dropped
//! is freed after its last use. Between two chunks a query looks whether it is still wanted.
//!
//! Deliberately absent: anything that runs what no kernel has: `NotSupported` says so before the first
//! row, and the host runs such a plan on another engine.

mod aggregate;
mod chunk_cache;
mod compile;
mod engine;
mod join;
mod readers;
mod rows;
mod run;
mod scan;
mod sort;
#[cfg(test)]
mod tests;
mod timeline;

pub use engine::{DeviceEngine, DeviceOptions};

use std::{collections::HashMap, sync::Arc, time::Instant};

use pystachio_plan::{
    ColumnId, DataType, DeviceSettings, Error, ErrorKind, Literal, OperatorMetrics, QueryMetrics, Result,
};

use self::{chunk_cache::ChunkCache, readers::ReaderPool};
use crate::{StopFlag, device::Chunk, operation::Queue, storage::FileCatalog};

/// Columns of a source, in the order of its chunks.
type Columns = Vec<(ColumnId, DataType)>;

/// What every source of a query shares.
struct QueryContext {
    /// Queries of an engine are numbered in the order of their start.
    number: u64,
    settings: DeviceSettings,
    queue: Queue,
    cache: ChunkCache,
    readers: ReaderPool,
    /// The place in which the query will want each scan, by the address of its relation.
    scan_ranks: HashMap<usize, usize>,
    catalog: Arc<FileCatalog>,
    parameters: Vec<Literal>,
    stop: StopFlag,
    metrics: QueryMetrics,
}

impl QueryContext {
    fn check_cancelled(&self) -> Result<()> {
        if self.stop.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        Ok(())
    }
}

/// An operator that gives chunks of its columns until it has no more.
trait Source: Send {
    /// The next chunk, or `None` at the end. A chunk may have no rows.
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>>;
}

/// A source with its columns, and what it has given so far.
struct Operator {
    columns: Columns,
    source: Box<dyn Source>,
    /// Place in [`QueryMetrics::operators`].
    place: usize,
}

impl Operator {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        context.check_cancelled()?;
        let started = Instant::now();
        let above = context.queue.memory().attribute(self.place as u32);
        let chunk = self.source.next(context)?;
        context.queue.memory().attribute(above);
        if let Some(OperatorMetrics { row_count, elapsed_us, .. }) =
            context.metrics.operators.get_mut(self.place)
        {
            let rows = chunk.as_ref().map_or(0, |chunk| chunk.row_count) as u64;
            *row_count = Some(row_count.unwrap_or(0) + rows);
            *elapsed_us = Some(elapsed_us.unwrap_or(0) + started.elapsed().as_micros() as u64);
        }
        if let Some(chunk) = &chunk {
            debug_assert_eq!(chunk.columns.len(), self.columns.len());
        }
        Ok(chunk)
    }

    /// All rows as one chunk.
    fn collect(&mut self, context: &mut QueryContext) -> Result<Chunk> {
        let mut chunks = Vec::new();
        while let Some(chunk) = self.next(context)? {
            if chunk.row_count > 0 {
                chunks.push(chunk);
            }
        }
        if chunks.is_empty() { context.queue.empty(&self.types()) } else { context.queue.concat(&chunks) }
    }

    fn types(&self) -> Vec<DataType> {
        self.columns.iter().map(|(_, data_type)| data_type.clone()).collect()
    }
}
