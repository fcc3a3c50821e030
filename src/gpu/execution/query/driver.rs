//! The state that all drivers of a query share, and the state of each driver.
//!
//! ```text
//! QueryContext ─┬─ driver of the query's own thread: stream, metrics, faults ─► the root, chunk by chunk
//!               ├─ driver of a fragment (`join/fragment.rs`): the same       ─► a build side, as a whole
//!               └─ drivers of an exchange (`exchange`): the same             ─► the rows below it, to other ranks; and those of others
//! ```
//!
//! Invariants: one thread uses a driver, and all its device work is in the order of one stream. A
//! driver publishes rows on its stream before it hands them to another driver, and their faults are
//! known by then.

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use pystachio_engine::{
    StopFlag,
    locking::{lock_whole, whole},
};
use pystachio_files::QueryFiles;
use pystachio_plan::{
    DeviceSettings, Error, ErrorKind, Literal, OperatorMetrics, QueryMetrics, Result, StoragePath,
};

use super::{
    memory::{QueryMemory, WorkingDriver},
    meter::QueryMeter,
    threads::Threads,
};
use crate::{
    file_systems::FileSystems,
    operation::{FaultReport, Queue},
};

/// What every driver of a query needs, whatever operators it runs. The compilation of the plan
/// completes it before any driver runs; from then on it is shared, and fields that change have
/// locks of their own.
pub(in crate::execution) struct QueryContext {
    /// Queries of an engine are numbered in the order of their start.
    pub(in crate::execution) number: u64,
    /// The user of the query.
    pub(in crate::execution) role: u32,
    pub(in crate::execution) settings: DeviceSettings,
    pub(in crate::execution) memory: QueryMemory,
    /// Where drivers run.
    pub(in crate::execution) threads: Threads,
    pub(in crate::execution) files: QueryFiles,
    pub(in crate::execution) file_systems: Arc<FileSystems>,
    pub(in crate::execution) parameters: Vec<Literal>,
    /// Stops the query when it is no longer wanted. Fragments have flags of their own, which this
    /// one stops too.
    pub(in crate::execution) stop: StopFlag,
    /// Its progress, for monitoring.
    pub(in crate::execution) meter: Arc<QueryMeter>,
    /// Counts that drivers have reported.
    pub(in crate::execution) metrics: Mutex<QueryMetrics>,
}

impl QueryContext {
    /// The metrics, while no driver runs.
    pub(in crate::execution) fn metrics_mut(&mut self) -> &mut QueryMetrics {
        whole(self.metrics.get_mut())
    }
}

/// How often a thread of a query that waits for another one polls whether the query is still wanted.
pub(in crate::execution) const WAIT_INTERVAL: Duration = Duration::from_millis(10);

/// Runs one fragment of a query.
///
/// # Errors
///
/// Kernels report faults in values later than the work that causes them. Before a driver sends rows
/// or hands a build side over, it calls [`Driver::check_faults`].
pub(in crate::execution) struct Driver {
    pub(in crate::execution) query: Arc<QueryContext>,
    /// All device work of the driver goes through it: it has a stream of its own.
    pub(in crate::execution) queue: Queue,
    /// Stops the driver when its fragment is no longer wanted.
    stop: StopFlag,
    /// The last check of the kernels' fault reports.
    faults: Option<FaultReport>,
    /// Counts since [`Driver::merge_metrics`].
    pub(in crate::execution) metrics: DriverMetrics,
    /// The place in the metrics of the operator that runs.
    operator: usize,
    /// Absent while it waits for another driver.
    working: Option<WorkingDriver>,
}

/// The place of an operator that is not counted.
pub(in crate::execution) const NO_OPERATOR: usize = usize::MAX;

/// The counts of one driver: of its own operators, and of their scans.
#[derive(Default)]
pub(in crate::execution) struct DriverMetrics {
    /// By place in [`QueryMetrics::operators`].
    operators: BTreeMap<usize, OperatorMetrics>,
    pub(in crate::execution) bytes_read: u64,
    pub(in crate::execution) cache_hits: u64,
    pub(in crate::execution) cache_misses: u64,
    /// The methods by which files were read.
    pub(in crate::execution) storage_paths: Vec<StoragePath>,
}

impl DriverMetrics {
    /// The counts of an operator.
    pub(in crate::execution) fn operator(&mut self, place: usize) -> &mut OperatorMetrics {
        self.operators.entry(place).or_default()
    }

    /// Adds all of it to a query's. Ignores places without an operator.
    fn add_to(self, metrics: &mut QueryMetrics) {
        for (place, counted) in self.operators {
            let Some(operator) = metrics.operators.get_mut(place) else { continue };
            if let Some(row_count) = counted.row_count {
                *operator.row_count.get_or_insert(0) += row_count;
            }
            if let Some(elapsed_us) = counted.elapsed_us {
                *operator.elapsed_us.get_or_insert(0) += elapsed_us;
            }
            counted.counters.iter().for_each(|(name, count)| operator.count(name, *count));
        }
        metrics.bytes_read += self.bytes_read;
        metrics.cache_hits += self.cache_hits;
        metrics.cache_misses += self.cache_misses;
        self.storage_paths.into_iter().for_each(|path| metrics.add_storage_path(path));
    }
}

impl Driver {
    /// A driver on a stream, for work of the operator at `operator` until another one runs. `stop`:
    /// set when the fragment is no longer wanted.
    pub(in crate::execution) fn new(
        query: Arc<QueryContext>,
        queue: Queue,
        stop: StopFlag,
        operator: usize,
    ) -> Self {
        queue.memory().attribute(operator as u32);
        let working = Some(query.memory.enter());
        Self { query, queue, stop, faults: None, metrics: DriverMetrics::default(), operator, working }
    }

    /// # Errors
    ///
    /// `Cancelled` if the fragment or the whole query is no longer wanted.
    pub(in crate::execution) fn check_cancelled(&self) -> Result<()> {
        self.stop.check()
    }

    /// Stops the driver when its fragment is no longer wanted.
    pub(in crate::execution) fn stop(&self) -> &StopFlag {
        &self.stop
    }

    /// Does the work of an operator: counts and device activity meanwhile belong to that operator.
    pub(in crate::execution) fn work_for<T>(
        &mut self,
        operator: usize,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let noted_above = self.queue.memory().attribute(operator as u32);
        let above = std::mem::replace(&mut self.operator, operator);
        let done = work(self);
        self.operator = above;
        self.queue.memory().attribute(noted_above);
        done
    }

    /// Counts for the operator that runs.
    pub(in crate::execution) fn count(&mut self, name: &str, count: u64) {
        self.metrics.operator(self.operator).count(name, count);
    }

    /// Adds the counts to the query's metrics.
    pub(in crate::execution) fn merge_metrics(&mut self) {
        let counted = std::mem::take(&mut self.metrics);
        counted.add_to(&mut lock_whole(&self.query.metrics));
    }

    /// Waits for another driver. Other drivers may use this one's memory for chunks meanwhile.
    pub(in crate::execution) fn while_waiting<T>(&mut self, wait: impl FnOnce(&Self) -> T) -> T {
        self.working = None;
        let done = wait(self);
        self.working = Some(self.query.memory.enter());
        done
    }

    /// Checks the faults up to the last chunk, and requests those up to this one, which arrive
    /// while the next one is read.
    pub(in crate::execution) fn check_last_faults(&mut self) -> Result<()> {
        let before = self.faults.replace(self.queue.report_faults()?);
        before.map_or(Ok(()), |report| report.wait())
    }

    /// Checks all faults; waits.
    pub(in crate::execution) fn check_faults(&mut self) -> Result<()> {
        self.faults = None;
        self.queue.report_faults()?.wait()
    }

    /// The error to report: the first fault counts, since its consequences may fail in other ways.
    pub(in crate::execution) fn first_failure<T>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Err(error) if !matches!(error.kind, ErrorKind::Cancelled | ErrorKind::Device) => {
                self.check_faults().and(Err(error))
            }
            result => result,
        }
    }
}

/// The error of a query whose driver panicked.
pub(in crate::execution) fn failure_of_panic(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::internal(format!("the engine failed while it ran the query: {text}"))
}
