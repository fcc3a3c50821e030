//! The CPU engine, as its host starts it.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use pystachio_engine::{Engine, GenerateProgress, ResultStream};
use pystachio_plan::{
    CacheEntry, EngineStatus, Error, ErrorKind, FileSet, GenerateRequest, QueryRequest, Result,
    SampleRequest, TableDescription,
};

use crate::{describe, error::from_panic, files::FileCatalog, generate, sample};

/// What a server's options come to.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Threads that compute: partitions of every operator.
    pub threads: usize,
    /// Memory for running queries.
    pub memory_bytes: u64,
    /// Memory for decoded columns; 0 turns the column cache off.
    pub cache_bytes: u64,
    /// Where operators that outgrow their memory write; made if absent.
    pub spill_directory: PathBuf,
}

/// The CPU engine. It runs on the tokio runtime in which its methods are called.
pub struct CpuEngine {
    options: CpuOptions,
    catalog: Arc<FileCatalog>,
}

impl CpuEngine {
    /// An engine with empty caches.
    ///
    /// # Errors
    ///
    /// `FileAccess` if the spill directory can't be made.
    pub fn new(options: CpuOptions) -> Result<Self> {
        Ok(Self { options, catalog: Arc::default() })
    }
}

#[async_trait]
impl Engine for CpuEngine {
    async fn describe(&self, files: &FileSet) -> Result<TableDescription> {
        let (catalog, files) = (self.catalog.clone(), files.clone());
        run_blocking(move || describe::describe(&catalog, &files)).await
    }

    async fn run(&self, _request: QueryRequest) -> Result<Box<dyn ResultStream>> {
        Err(Error::new(ErrorKind::NotSupported, "run"))
    }

    async fn sample(&self, request: SampleRequest) -> Result<Box<dyn ResultStream>> {
        let catalog = self.catalog.clone();
        run_blocking(move || sample::sample(&catalog, &request)).await
    }

    async fn generate(
        &self,
        request: GenerateRequest,
        progress: &(dyn Fn(GenerateProgress) + Send + Sync),
    ) -> Result<Vec<(String, u64)>> {
        generate::generate(request, self.options.threads, progress).await
    }

    fn cache(&self) -> Vec<CacheEntry> {
        Vec::new()
    }

    fn status(&self) -> EngineStatus {
        EngineStatus { memory_max_bytes: self.options.memory_bytes, ..EngineStatus::default() }
    }
}

/// Runs `work` where it may block, and turns its panic into an error.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failure) => match failure.try_into_panic() {
            Ok(payload) => Err(from_panic(payload.as_ref())),
            Err(_) => Err(Error::new(ErrorKind::Cancelled, "the engine is shutting down")),
        },
    }
}
