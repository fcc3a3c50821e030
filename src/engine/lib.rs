//! What every engine offers the process that hosts it: the seam between `worker` and the engines.
//!
//! An engine turns a [`pystachio_plan::QueryRequest`] into a stream of Arrow batches. The CPU engine
//! (`src/cpu`) implements the trait over DataFusion. The worker's pair of engines implements it over the CPU engine and
//! the GPU engine (`src/gpu`). A host sees only the trait.
//!
//! Code that all engines share:
//! - `stop.rs`: the cancel flag of a request; `account.rs`: the progress of a request
//! - `locking.rs`: locks, and what a panic does to them; `panics.rs`: a caught panic as an error
//! - `tally.rs`: counts that must not wrap; `held_counts.rs`: what a cache holds of each of some things
//! - `spill.rs`: spill files and their limits; `spill_folder.rs`: their folders; `spool.rs`: result rows in them
//! - `descriptors.rs`: how many files may be open
//! - `character_case.rs`, `text_order.rs`, `host_locale.rs` and `icu.rs`: uppercase, lowercase, letters, digits and the order of texts as
//!   the host's libc and ICU define them
//! - `mathematics.rs`: functions of floats that the host's libc computes
//! - `variance.rs`, `deviations.rs` and `quotient.rs`: values that need integers of any size
//!
//! Invariants: dropping a stream or a future stops its work and frees its memory. An engine returns
//! errors and never ends the process.
//!
//! Deliberately absent: engines, Parquet, devices, PostgreSQL, sockets.

mod account;
mod character_case;
pub mod descriptors;
pub mod deviations;
mod held_counts;
mod host_locale;
mod icu;
pub mod locking;
pub mod mathematics;
mod panics;
pub mod quotient;
pub mod spill;
pub mod spill_folder;
pub mod spool;
mod stop;
mod tally;
pub mod text_order;
pub mod variance;

pub use account::{Meter, QueryAccount, QueryPlace};
pub use character_case::{CaseMap, CharacterCase};
pub use held_counts::HeldCounts;
pub use panics::from_panic;
pub use stop::{StopFlag, TurnWait};
pub use tally::Tally;

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use pystachio_plan::{
    CacheEntry, CatalogView, ColumnId, DescribeExtent, EngineStatus, Error, FileSet, GenerateRequest,
    OptimizeRequest, OptimizedColumn, QueryMetrics, QueryRequest, QueryTimeline, Relation, Result,
    SampleRequest, StoreAccess, StoreName, TableDescription, WriteRequest, WrittenRows,
};

/// An engine: of one device, or of several that share queries as ranks.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Describes a table from the footers of its files, which are cached by file identity. The request says how stores are reached,
    /// and ends with its flag.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, `FileCorrupt`, each naming the file.
    async fn describe(
        &self,
        files: &FileSet,
        extent: DescribeExtent,
        request: (&StoreAccess, &StopFlag),
    ) -> Result<TableDescription>;

    /// Returns the current [`TableDescription::identity`] of a table. Reads no footer.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, each naming the file.
    async fn identify(&self, files: &FileSet, request: (&StoreAccess, &StopFlag)) -> Result<u64>;

    /// Lists a folder of a store.
    ///
    /// # Errors
    ///
    /// `FilePermission`, `FileAccess`, `NotSupported`, each naming the folder.
    async fn names(&self, folder: &str, request: (&StoreAccess, &StopFlag)) -> Result<Vec<StoreName>>;

    /// Lists the views of a namespace of a catalog, with their texts if these are wanted.
    ///
    /// # Errors
    ///
    /// Those of asking the catalog.
    async fn views(
        &self,
        namespace: &[String],
        wants_texts: bool,
        request: (&StoreAccess, &StopFlag),
    ) -> Result<Vec<CatalogView>>;

    /// Removes objects of stores. Returns those that may still be there, and why.
    ///
    /// # Errors
    ///
    /// Those of stores that can't be asked.
    async fn remove(
        &self,
        paths: Vec<String>,
        request: (&StoreAccess, &StopFlag),
    ) -> Result<Vec<(String, Error)>>;

    /// Starts a query. Its batches have one column per output of the plan, laid out as
    /// [`pystachio_plan::DataType::to_arrow`] says. `stop` ends the query within a batch of rows, even if
    /// every thread of the engine is busy. The caller then discards the answer.
    ///
    /// # Errors
    ///
    /// Those of the files, of the plan's functions, `NotSupported` and `OutOfMemory`; `FilesChanged` if the plan does
    /// not hold for the files as they are now.
    async fn run(&self, request: QueryRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>>;

    /// Counts the files and row groups that a query would read, and those that statistics rule out. Reads
    /// footers at most.
    ///
    /// # Errors
    ///
    /// As of [`Engine::run`].
    async fn preview(&self, request: QueryRequest, stop: StopFlag) -> Result<QueryMetrics>;

    /// Starts reading a sample of a table's rows.
    ///
    /// # Errors
    ///
    /// As of [`Engine::run`].
    async fn sample(&self, request: SampleRequest, stop: StopFlag) -> Result<Box<dyn ResultStream>>;

    /// Writes the TPC-H tables and returns their names and row counts. A failed or dropped run removes the
    /// files that it wrote.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `FilePermission`, `FileAccess`, each naming the file.
    async fn generate(
        &self,
        request: GenerateRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<(String, u64)>>;

    /// Rewrites files for reading on a GPU and returns their columns. A failed or dropped run removes the files
    /// that it wrote.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `OutOfMemory`; those of the files, each naming the file.
    async fn optimize(
        &self,
        request: OptimizeRequest,
        progress: &(dyn Fn(WriteProgress) + Send + Sync),
    ) -> Result<Vec<OptimizedColumn>>;

    /// Starts writing rows as files. Checks where they are to go.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `NotSupported`, `SchemaMismatch` if files of the same folder have other columns; those of the file
    /// system, each naming the file.
    async fn begin_write(&self, request: WriteRequest) -> Result<Box<dyn RowWriter>>;

    /// Lists the contents of the column caches of all ranks that answer in time.
    async fn cache(&self) -> Vec<CacheEntry>;

    /// Lists the device work of the last watched queries, of all ranks that answer in time. Empty without a device.
    async fn timeline(&self) -> Vec<QueryTimeline> {
        Vec::new()
    }

    /// Current memory use and queries. The host completes the fields that it knows better.
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

    /// The query's metrics so far; complete after the last batch.
    fn metrics(&self) -> QueryMetrics;
}

/// A part of a plan that another engine computes.
#[derive(Clone)]
pub struct GivenPart {
    /// The part. Engines know it by its address in the plan.
    pub relation: Arc<Relation>,
    /// Where its rows come from.
    pub source: Arc<dyn PartSource>,
}

/// What gives the rows of a part of a plan.
#[async_trait]
pub trait PartSource: Send + Sync {
    /// Starts the part, perhaps not for the first time. Its batches have these of its columns, in this order, as those of
    /// [`Engine::run`] have a plan's outputs.
    ///
    /// # Errors
    ///
    /// As of [`Engine::run`].
    async fn start(&self, outputs: Vec<ColumnId>) -> Result<Box<dyn ResultStream>>;
}

/// Files that rows are written to, batch by batch. Dropped before [`RowWriter::keep`], it removes what it wrote.
#[async_trait]
pub trait RowWriter: Send {
    /// Writes rows, laid out as [`pystachio_plan::DataType::to_written_arrow`] or [`pystachio_plan::DataType::to_arrow`] says; decimals
    /// may have any precision if their values fit. Returns when the next batch may come, which
    /// is before these are written. Their error may come with the next call.
    ///
    /// # Errors
    ///
    /// Those of the file system, naming the file; `OutOfMemory`. The writer is of no more use then.
    async fn write(&mut self, batch: RecordBatch) -> Result<()>;

    /// Completes the files under their provisional names, so that they outlive a crash of the host.
    ///
    /// # Errors
    ///
    /// As of [`RowWriter::write`].
    async fn finish(&mut self) -> Result<WrittenRows>;

    /// Makes objects of stores visible, after [`RowWriter::finish`]. Local files get their names from the client.
    ///
    /// # Errors
    ///
    /// Those of the store, naming the object. Other objects may be visible then; they go when this is dropped.
    async fn complete(&mut self) -> Result<()> {
        Ok(())
    }

    /// Leaves the files of [`RowWriter::finish`] to the client.
    fn keep(self: Box<Self>);
}

/// The progress of [`Engine::generate`] or [`Engine::optimize`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteProgress {
    /// The table or file being written.
    pub name: String,
    /// Rows written so far, over all of them.
    pub rows_done: u64,
    /// Rows to write, over all of them.
    pub rows_total: u64,
}
