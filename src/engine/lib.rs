//! What every engine offers the process that hosts it: the seam between `worker` and the engines.
//!
//! An engine turns a [`pystachio_plan::QueryRequest`] into a stream of Arrow batches. The CPU engine
//! (`src/cpu`) implements this over DataFusion; the worker's pair of engines over it and the GPU engine (`src/gpu`).
//! Whoever hosts an engine sees only this trait.
//!
//! What engines do alike stands beside it:
//! - `stop.rs`: what a host and an engine tell each other of a request; `account.rs`: how far it is; `locking.rs`: what a panic leaves of a lock;
//!   `panics.rs`: what it is for the query
//! - `spill.rs`: what a query has on the host's disk; `spool.rs`: rows there that nobody reads
//! - `character_case.rs`: upper and lower case, by `host_locale.rs` as libc has them; `variance.rs` and `quotient.rs`: what needs
//!   integers of any size. Each is one of PostgreSQL's values, which no engine may compute otherwise
//!
//! Invariants: dropping a stream or a future stops its work and frees its memory. An engine returns
//! errors and never ends the process.
//!
//! Deliberately absent: engines, Parquet, devices, PostgreSQL, sockets.

mod account;
mod character_case;
mod host_locale;
pub mod locking;
mod panics;
pub mod quotient;
pub mod spill;
pub mod spool;
mod stop;
pub mod variance;

pub use account::{Meter, QueryAccount, QueryPlace};
pub use character_case::{CaseMap, CharacterCase};
pub use panics::from_panic;
pub use stop::{StopFlag, TurnWait};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_plan::{
    CacheEntry, EngineStatus, FileSet, GenerateRequest, OptimizeRequest, OptimizedColumn, QueryMetrics,
    QueryRequest, QueryTimeline, Result, SampleRequest, TableDescription,
};

/// An engine: of one device, or of several that share queries as ranks.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Describes a table from the footers of its files, which are cached by file identity.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, `FileCorrupt`, each naming the file.
    async fn describe(&self, files: &FileSet) -> Result<TableDescription>;

    /// What [`TableDescription::identity`] of a table is now. Reads no footer.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, each naming the file.
    async fn identify(&self, files: &FileSet) -> Result<u64>;

    /// Starts a query. Its batches have one column per output of the plan, laid out as
    /// [`pystachio_plan::DataType::to_arrow`] says. `stop` ends it within a batch of rows, also where
    /// every thread of the engine is busy; the answer is not wanted then.
    ///
    /// # Errors
    ///
    /// Those of the files, of the plan's functions, `NotSupported` and `OutOfMemory`; `FilesChanged` if the plan does
    /// not hold for the files as they are now.
    async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>>;

    /// What a query would read: the counts of files and row groups, those ruled out by statistics
    /// included. Reads footers at most.
    ///
    /// # Errors
    ///
    /// As of [`Engine::run`].
    async fn preview(&self, request: QueryRequest) -> Result<QueryMetrics>;

    /// Starts reading a sample of a table's rows.
    ///
    /// # Errors
    ///
    /// As of [`Engine::run`].
    async fn sample(&self, request: SampleRequest) -> Result<Box<dyn ResultStream>>;

    /// Writes the TPC-H tables and returns their names and row counts. What a failed or dropped run
    /// wrote is removed.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `FilePermission`, `FileAccess`, each naming the file.
    async fn generate(
        &self,
        request: GenerateRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<(String, u64)>>;

    /// Rewrites files for reading on a GPU and returns their columns. What a failed or dropped run wrote is
    /// removed.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `OutOfMemory`; those of the files, each naming the file.
    async fn optimize(
        &self,
        request: OptimizeRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<OptimizedColumn>>;

    /// What the column caches hold, of all ranks that answer soon.
    async fn cache(&self) -> Vec<CacheEntry>;

    /// What devices, of all ranks that answer soon, did for the last queries that wanted it noted; nothing where there is none.
    async fn timeline(&self) -> Vec<QueryTimeline> {
        Vec::new()
    }

    /// Memory and queries now. The host fills in what it knows better.
    fn status(&self) -> EngineStatus;
}

/// The rows of a query, batch by batch. Dropping it stops the query.
#[async_trait]
pub trait ResultStream: Send {
    /// The schema of every batch.
    fn schema(&self) -> SchemaRef;

    /// The next batch, or `None` after the last. Batches have at least one row.
    ///
    /// # Errors
    ///
    /// As of [`Engine::run`]. After an error the stream is at its end.
    async fn next_batch(&mut self) -> Result<Option<RecordBatch>>;

    /// What the query has cost so far; complete after the last batch.
    fn metrics(&self) -> QueryMetrics;
}

/// How far [`Engine::generate`] or [`Engine::optimize`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteProgress {
    /// The table or file being written.
    pub name: String,
    /// Rows written so far, over all of them.
    pub rows_done: u64,
    /// Rows to write, over all of them.
    pub rows_total: u64,
}
