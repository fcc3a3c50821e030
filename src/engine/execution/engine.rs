//! A device and what runs on it, as its host starts it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use pystachio_plan::{QueryMetrics, QueryRequest, Result};

use super::{
    QueryContext,
    compile::compile,
    memory::QueryMemory,
    run::{DeviceStream, Run},
};
use crate::{
    ResultStream, StopFlag,
    device::{DeviceMemory, HostMemory, Platform},
    operation::Queue,
    spill::{SpillOptions, SpillStore},
    storage::FileCatalog,
};

/// What a server's options come to.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Device memory for running queries.
    pub memory_bytes: u64,
    /// Page-locked memory of the host for what does not fit there.
    pub host_bytes: u64,
    /// Where files go for what does not fit there either.
    pub spill_directory: PathBuf,
}

/// Runs plans on one device. What no kernel has is `NotSupported`.
pub struct DeviceEngine {
    memory: DeviceMemory,
    catalog: Arc<FileCatalog>,
    queries_running: Arc<AtomicU64>,
    queries_run: Arc<AtomicU64>,
    spill: SpillOptions,
}

impl DeviceEngine {
    /// An engine on a platform.
    pub fn new(platform: Arc<dyn Platform>, options: &DeviceOptions) -> Self {
        let host = HostMemory::new(platform.clone(), options.host_bytes);
        Self {
            memory: DeviceMemory::new(platform, options.memory_bytes),
            catalog: Arc::default(),
            queries_running: Arc::default(),
            queries_run: Arc::default(),
            spill: SpillOptions { host, directory: Arc::new(options.spill_directory.clone()) },
        }
    }

    /// The device's memory.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// `cuda` or `emulated`.
    pub fn device(&self) -> &'static str {
        self.memory.platform().name()
    }

    /// Starts a query and waits for its first rows.
    ///
    /// # Errors
    ///
    /// `NotSupported` before the first row, for what no kernel has; otherwise as of [`crate::Engine::run`].
    pub async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>> {
        self.queries_running.fetch_add(1, Ordering::Relaxed);
        let guard =
            Box::new(RunningGuard { running: self.queries_running.clone(), run: self.queries_run.clone() });
        let queue = Queue::new(&self.memory.open_account())?;
        let store = SpillStore::new(self.spill.clone());
        let run = Run { request, queue, store, catalog: self.catalog.clone(), guard, stop };
        Ok(Box::new(DeviceStream::start(run).await?))
    }

    /// What a query would read. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`DeviceEngine::run`].
    pub fn preview(&self, request: &QueryRequest) -> Result<QueryMetrics> {
        let queue = Queue::new(&self.memory.open_account())?;
        let mut context = QueryContext {
            memory: QueryMemory::new(queue.memory().clone(), SpillStore::new(self.spill.clone())),
            queue,
            catalog: self.catalog.clone(),
            parameters: request.parameters.clone(),
            stop: StopFlag::default(),
            metrics: QueryMetrics::default(),
        };
        compile(&request.plan, &mut context)?;
        context.metrics.operators.clear();
        Ok(context.metrics)
    }

    /// Queries that ended and that run now.
    pub fn query_counts(&self) -> (u64, u64) {
        (self.queries_run.load(Ordering::Relaxed), self.queries_running.load(Ordering::Relaxed))
    }

    /// Device memory in use, and the most that may be.
    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.memory.used_bytes(), self.memory.bytes_max())
    }
}

/// Counts a query as running for as long as it lives.
struct RunningGuard {
    running: Arc<AtomicU64>,
    run: Arc<AtomicU64>,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.run.fetch_add(1, Ordering::Relaxed);
    }
}
