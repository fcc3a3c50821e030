//! What travels over the socket between a backend and an engine.
//!
//! ```text
//! backend                              engine
//!   greeting ──────────────────────────► greeting (see `greeting.rs`)
//!   Describe / Identify / Names / Views / Status / Cache / Timeline / Queries / Statistics / ResetStatistics ► one answer
//!   Preview ───────────────────────────► Finished | Failed
//!   Run, Sample ───────────────────────► schema frame, batch frames, Finished | Failed; between them Turn, Spilled…
//!   Generate ──────────────────────────► Progress…, Generated | Failed
//!   Optimize ──────────────────────────► Progress…, Optimized | Failed
//!   Write ─────────────────────────────► Writing | Failed
//!   batch frames, WriteEnd ────────────► Written | Failed
//!   WriteQuery ────────────────────────► Written | Failed; before it Turn, Spilled…
//!   Complete, of objects ──────────────► Completed | Failed
//!   Keep, Undo ────────────────────────► no answer
//! ```
//!
//! After a failure to write, an engine closes the connection: rows may still be on their way.
//!
//! An engine that ends in order says `Failed` with [`crate::ErrorKind::Retired`] on a connection without a request, and closes it.
//!
//! A connection runs one request at a time. A backend that no longer wants the rest of an answer sends
//! [`Request::Cancel`] or [`Request::Enough`], or closes the connection; all of them stop the work. After a message the engine
//! still ends the answer (`Finished` or `Failed`). Flow control is the socket's own: an engine that can't write
//! stops producing.

use serde::{Deserialize, Serialize};

use crate::{
    ColumnContent, DataType, Error, ExchangeFacts, Literal, MemorySpace, Plan, StoreAccess, TableFormat,
    TableVersion, Value, store::is_in_store,
};

/// Both sides must have the same; the extension and the engine are installed together.
pub const PROTOCOL_VERSION: u32 = 39;

/// From a backend to an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Describes tables from their footers. Answer: `Described`.
    Describe {
        /// One a table.
        tables: Vec<FileSet>,
        /// How many footers may be read.
        extent: DescribeExtent,
        /// How they may reach stores.
        access: StoreAccess,
    },
    /// Asks whether tables are what they were. Answer: `Identified`.
    Identify {
        /// One a table.
        tables: Vec<FileSet>,
        /// How they may reach stores.
        access: StoreAccess,
    },
    /// Lists a folder of a store. Answer: `Names`.
    Names {
        /// A path in a store.
        folder: String,
        /// How it may be reached, by role 0.
        access: StoreAccess,
    },
    /// Lists the views of a namespace of a catalog. Answer: `Views`.
    Views {
        /// The path that stands for the namespace.
        folder: String,
        /// Whether their texts are wanted, and not their names alone.
        wants_texts: bool,
        /// How the catalog may be reached, by role 0.
        access: StoreAccess,
    },
    /// Says what a plan would read: files and row groups, and those that statistics rule out. Answer:
    /// `Finished`, with these counts only.
    Preview(Box<QueryRequest>),
    /// Runs a plan. Answer: schema, batches, `Finished`.
    Run(Box<QueryRequest>, QueryOrigin),
    /// Reads some rows for ANALYZE. Answer as of `Run`.
    Sample(SampleRequest),
    /// Writes the TPC-H tables. Answer: `Progress`, then `Generated`.
    Generate(GenerateRequest),
    /// Rewrites files for reading on a GPU. Answer: `Progress`, then `Optimized`.
    Optimize(OptimizeRequest),
    /// Writes rows as files with provisional names. Answer: `Writing`, then the backend sends batches and `WriteEnd`.
    Write(WriteRequest),
    /// Runs a plan and writes its rows, as of `Write`. Answer: `Written`, before it what comes between the rows of `Run`. The plan's
    /// outputs are the columns, in order.
    WriteQuery(WriteRequest, Box<QueryRequest>, QueryOrigin),
    /// The rows of `Write` are complete. Answer: `Written`.
    WriteEnd,
    /// The transaction is about to commit: the objects of `Written` are to become visible. Answer: `Completed`. If the connection is closed
    /// before, the engine removes them.
    Complete,
    /// The objects of `Completed` are to go: the transaction aborts. Those that have replaced others stay. After `Written`: nobody reads
    /// the files any more, and they go. No answer.
    Undo,
    /// The backend has noted the files of `Written`, and renames or removes them. The engine removes those that it is not told
    /// to keep. No answer.
    Keep,
    /// Removes objects of stores: their transaction has committed. Answer: `Removed`.
    Remove {
        /// Their paths.
        paths: Vec<String>,
        /// How they may be reached, by role 0.
        access: StoreAccess,
    },
    /// Answer: `Status`.
    Status,
    /// Answer: `Cache`.
    Cache,
    /// What the device did for the last queries. Answer: `Timeline`.
    Timeline,
    /// The queries that run and those that ended last. Answer: `Queries`.
    Queries,
    /// What queries have cost since the engine started, or since it was asked to forget. Answer: `Statistics`.
    Statistics,
    /// Forget that. Answer: `Statistics`, empty.
    ResetStatistics,
    /// Stop the request that is running.
    Cancel,
    /// Ends a query whose client has all the rows that it wants. The query counts as ended, not as failed or cancelled.
    Enough,
}

/// From an engine to a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// Answers `Describe`, one a table, in order.
    Described(Vec<Result<TableDescription, Error>>),
    /// Answers `Identify`, one a table, in order: [`TableDescription::identity`] as it is now.
    Identified(Vec<Result<u64, Error>>),
    /// Answers `Names`.
    Names(Vec<StoreName>),
    /// Answers `Views`.
    Views(Vec<CatalogView>),
    /// Answers `Remove`: the objects that may still be there, and why.
    Removed(Vec<(String, Error)>),
    /// Whether the query waits until others have ended or given up memory. Comes anywhere in the answer to `Run`; at first
    /// it does not wait, and a wait that is soon over is not told.
    Turn {
        /// It waits now.
        is_awaited: bool,
    },
    /// The lengths that spill files of the query have had so far, as a sum. Comes anywhere in the answer to `Run`, before the rows
    /// and the error that come after the spilling. `Finished` says it last.
    Spilled {
        /// Bytes.
        temp_file_bytes: u64,
    },
    /// The result is complete.
    Finished(Box<QueryMetrics>),
    /// How far writing is.
    Progress {
        /// Table or file being written.
        name: String,
        /// Rows written so far, over all of them.
        rows_done: u64,
        /// Rows to write, over all of them (estimated for lineitem).
        rows_total: u64,
    },
    /// Answers `Generate`.
    Generated {
        /// Table name and rows, in the order written.
        tables: Vec<(String, u64)>,
    },
    /// Answers `Optimize`: the columns of every file that was written.
    Optimized(Vec<OptimizedColumn>),
    /// Answers `Write`: rows may come.
    Writing,
    /// Answers `WriteEnd` and `WriteQuery`.
    Written(WrittenRows),
    /// Answers `Complete`.
    Completed,
    /// Answers `Status`.
    Status(EngineStatus),
    /// Answers `Cache`.
    Cache(Vec<CacheEntry>),
    /// Answers `Timeline`: the last query last.
    Timeline(Vec<QueryTimeline>),
    /// Answers `Queries`, in the order of their start.
    Queries(Vec<QueryEntry>),
    /// Answers `Statistics` and `ResetStatistics`.
    Statistics(Vec<StatisticsEntry>),
    /// The request failed, and nothing more of its answer comes.
    Failed(Error),
}

/// Rows that a backend sends, to be written as Parquet files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRequest {
    /// Where the files go.
    pub target: WriteTarget,
    /// The columns of the rows, in order.
    pub columns: Vec<WrittenColumn>,
    /// How they are laid out.
    pub form: WriteForm,
    /// The backend's process. It is part of the provisional names: files of processes that are gone are removed.
    pub process: u32,
    /// Where rows go that are sorted and don't fit into memory, and files on their way into stores.
    pub spill: SpillRequest,
    /// How a store that they go to may be reached.
    pub access: StoreAccess,
}

/// Where files are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteTarget {
    /// One file.
    File {
        /// Absolute, or in a store.
        path: String,
        /// Whether it may replace a file.
        overwrite: bool,
    },
    /// Files of a folder, with names of their own.
    Folder {
        /// Absolute, or in a store.
        path: String,
        /// The begin of the files' names, which no other write has.
        stem: String,
    },
    /// Files among the query's spill files, which only its own scans read: [`TableFormat::Sent`]. They go when the client says
    /// [`Request::Undo`] or closes the connection.
    Spill,
}

/// A column of rows to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenColumn {
    /// Its name in the files.
    pub name: String,
    /// Its type. The batches have it as [`DataType::to_written_arrow`] says.
    pub data_type: DataType,
    /// Whether its text, or that of its elements, is JSON.
    pub is_json: bool,
    /// Whether its times of day, or those of its elements, are of UTC.
    pub is_utc: bool,
    /// Whether no value is NULL.
    pub not_null: bool,
}

/// How files are laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteForm {
    /// One of `auto`, `none`, `snappy`, `lz4`, `zstd`.
    pub compression: String,
    /// Rows that a row group has at most; 0 leaves it to the engine.
    pub row_group_rows: u64,
    /// Bytes after which the next file begins; 0: one file for all rows.
    pub file_bytes: u64,
    /// What the files are made for.
    pub layout: FileLayout,
    /// Columns whose values are in the names of folders, `key=value`, and not in the files. Only of a folder.
    pub partition_by: Vec<String>,
    /// The order of each file's rows; as they come if there is none.
    pub sort_by: Vec<SortedColumn>,
}

/// A column that the rows of a file are sorted by. Text compares byte by byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortedColumn {
    /// Its name in the file.
    pub name: String,
    /// Greatest first.
    pub descending: bool,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

impl WriteTarget {
    /// The path of the file or the folder; `None` of spill files.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File { path, .. } | Self::Folder { path, .. } => Some(path),
            Self::Spill => None,
        }
    }
}

impl Default for WriteForm {
    fn default() -> Self {
        Self {
            compression: "auto".to_owned(),
            row_group_rows: 0,
            file_bytes: 0,
            layout: FileLayout::Default,
            partition_by: Vec::new(),
            sort_by: Vec::new(),
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenRows {
    /// The files, complete and on disk.
    pub files: Vec<WrittenFile>,
    /// Folders that were made for them, innermost first.
    pub made_folders: Vec<String>,
    /// They are objects of a store, which nobody sees before the backend says [`Request::Complete`] on this connection.
    pub is_in_store: bool,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// The name that it is to have.
    pub path: String,
    /// The name that it has. Scans skip it. Empty of an object.
    pub provisional_path: String,
    /// Whether it may replace a file.
    pub overwrite: bool,
    /// Its rows.
    pub row_count: u64,
    /// Its size.
    pub bytes: u64,
}

/// What stands in a path for the number of a rank: what is there then is that rank's own.
pub const RANK_PLACEHOLDER: &str = "{rank}";

/// Letters that make a path a pattern.
pub const PATTERN_LETTERS: [char; 3] = ['*', '?', '['];

/// Where a table's rows are: files, folders and glob patterns, as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileSet {
    /// At least one, but for rows that are still to be sent; absolute, or with the scheme of a store. One with [`RANK_PLACEHOLDER`] is as
    /// many paths as the engine has ranks. One that ends with `/` is a folder that may have no files. Of a table format the table's folder alone.
    pub paths: Vec<String>,
    /// What says which files the paths stand for.
    pub format: TableFormat,
    /// The role whose user mapping counts for paths in stores, by the database server's number; 0: the one that runs the query.
    pub role: u32,
}

impl FileSet {
    /// All Parquet files that the paths stand for, which the role that runs the query reads.
    pub fn parquet(paths: Vec<String>) -> Self {
        Self { paths, format: TableFormat::Parquet, role: 0 }
    }

    /// The same at a version of the table, for which a plan is made; itself if it has no versions.
    #[must_use]
    pub fn at_version(&self, version: Option<&TableVersion>) -> Self {
        let format = version.map_or_else(|| self.format.clone(), |version| self.format.at(version.clone()));
        Self { format, ..self.clone() }
    }

    /// Whether it has rows of PostgreSQL's, which only the query reads that they are sent for. No cache holds them.
    pub fn is_sent(&self) -> bool {
        matches!(self.format, TableFormat::Sent(_))
    }

    /// Whether files of it are in a store.
    pub fn is_in_store(&self) -> bool {
        self.paths.iter().any(|path| is_in_store(path))
    }

    /// Whether ranks have files of their own.
    pub fn is_per_rank(&self) -> bool {
        self.paths.iter().any(|path| path.contains(RANK_PLACEHOLDER))
    }
}

/// Which column of files a declared column is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileColumn {
    /// Its name in files without ids, or in all where no id is declared.
    pub name: String,
    /// Its id in files with ids.
    pub field_id: Option<i32>,
}

/// The files that a plan was made for, and what it takes from their footers. Of other files the plan holds as long as these
/// bounds and scales do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedFiles {
    /// As the plan's scans name them.
    pub files: FileSet,
    /// [`TableDescription::identity`] then.
    pub identity: u64,
    /// Columns as the scans name them, and bounds on [`ColumnDescription::magnitude`].
    pub bounds: Vec<(FileColumn, f64)>,
    /// Columns that show as many digits after the point as the files say: [`ColumnDescription::scale`].
    pub scales: Vec<(FileColumn, u8)>,
}

/// A state of a table's files, as one process sees it, in digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesState {
    /// Of the machine and the file systems that they are on.
    pub places: u64,
    /// Of their paths, and what makes each of them the same file there with the same content.
    pub identity: u64,
    /// Of their paths, sizes and footers: all that copies of them on other machines have in common.
    pub content: u64,
}

impl FilesState {
    /// Whether two processes see the same files: on one machine the very same, on two of them copies of each other.
    pub fn is_same(&self, other: &Self) -> bool {
        match self.places == other.places {
            true => self.identity == other.identity,
            false => self.content == other.content,
        }
    }
}

/// The files that a rank reads of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenFiles {
    /// As the plan's scans name them.
    pub files: FileSet,
    /// A digest of which of them it reads: others are ruled out by the keys of their folders.
    pub part: u64,
    /// Their state.
    pub state: FilesState,
}

/// What rank 0 tells the other ranks when a query has begun there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryBegin {
    /// What rank 0 reads: the other ranks read the same, or fail.
    pub seen_files: Vec<SeenFiles>,
    /// The part of a rank's memory that the query reserves on each rank, as engines count it.
    pub memory_share: u16,
}

/// Where a query's spill files are, and how much they may hold, as the session's settings say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpillRequest {
    /// The folder for them, relative to the data directory. An engine on a host without it uses its own.
    pub directory: Option<String>,
    /// The setting `temp_file_limit`, in bytes; none if there is no limit.
    pub bytes_max: Option<u64>,
}

/// A plan and what it needs to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryRequest {
    /// What to run.
    pub plan: Plan,
    /// What the plan was made for; files that are not here are read as they are.
    pub planned_files: Vec<PlannedFiles>,
    /// The values of [`crate::Expression::Parameter`], by index.
    pub parameters: Vec<Literal>,
    /// Whether per-operator metrics are wanted (EXPLAIN ANALYZE).
    pub with_metrics: bool,
    /// Rows a batch has at most.
    pub batch_rows_max: u32,
    /// Where it spills to.
    pub spill: SpillRequest,
    /// What the device's engine makes use of.
    pub device: DeviceSettings,
    /// Which of the host's engines runs it, where there are two.
    pub engine: EngineChoice,
    /// The role that runs the query, by the database server's number. The engine keeps it with its records of the query, so
    /// that the extension can hide them from other roles.
    pub role: u32,
    /// How it may reach stores.
    pub access: StoreAccess,
}

/// Which statement of the database server a query belongs to. An engine keeps it with what it remembers of the query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryOrigin {
    /// The server's number of the statement's text, without its constants; 0 where the server computes none.
    pub query_id: i64,
    /// Whether counts would tell the role of rows that are hidden from it.
    pub hides_counts: bool,
}

/// Which of a host's engines runs a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QueryEngine {
    /// The CPU engine.
    Cpu,
    /// The device's, whatever the device is.
    Gpu,
}

impl std::fmt::Display for QueryEngine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        })
    }
}

/// Where a query is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryState {
    /// It waits until other queries have ended or given up memory.
    Waiting,
    /// Footers are read, and the plan becomes operators.
    Preparing,
    /// It runs, and no row has left the engine.
    Running,
    /// Rows leave the engine.
    Returning,
    /// Its reader has all the rows that it wanted.
    Finished,
    /// It ended with an error.
    Failed,
    /// The client cancelled it.
    Cancelled,
}

impl std::fmt::Display for QueryState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Waiting => "waiting",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Returning => "returning rows",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// What a query waits for, if the engine does not work for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryWait {
    /// Other queries.
    Turn,
    /// Its reader, which has not taken the last rows.
    Reader,
}

impl std::fmt::Display for QueryWait {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Turn => "turn",
            Self::Reader => "reader",
        })
    }
}

/// How far a query is, and what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryProgress {
    /// Bytes read from files so far.
    pub bytes_read: u64,
    /// Bytes that the column chunks of its scans have in files, but for row groups that statistics rule out before they begin.
    pub bytes_expected: u64,
    /// Of these, those that its scans are through with: read, found in a cache, or skipped.
    pub bytes_done: u64,
    /// Memory that it holds now.
    pub memory_bytes: u64,
    /// Bytes that did not fit so far.
    pub spilled_bytes: u64,
    /// Sum of the lengths that its spill files have had so far.
    pub temp_file_bytes: u64,
}

impl QueryProgress {
    /// With what another part of the query has done.
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_expected: self.bytes_expected + other.bytes_expected,
            bytes_done: self.bytes_done + other.bytes_done,
            memory_bytes: self.memory_bytes + other.memory_bytes,
            spilled_bytes: self.spilled_bytes + other.spilled_bytes,
            temp_file_bytes: self.temp_file_bytes + other.temp_file_bytes,
        }
    }
}

/// A query that runs, or one that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryEntry {
    /// Queries of an engine are numbered from 1 in the order of their start.
    pub query: u64,
    /// The process of the backend that asked.
    pub backend_pid: u32,
    /// The asking role, see [`QueryRequest::role`].
    pub role: u32,
    /// Which statement it belongs to.
    pub origin: QueryOrigin,
    /// What runs it, or ran it last; none before that is known.
    pub engine: Option<QueryEngine>,
    /// Ranks that have a part in it.
    pub rank_count: u32,
    /// Where it is in its life.
    pub state: QueryState,
    /// What it waits for.
    pub waits_for: Option<QueryWait>,
    /// When it came, in microseconds since 1970.
    pub started_unix_us: u64,
    /// From then to now, or to its end.
    pub elapsed_us: u64,
    /// Rows that have left the engine.
    pub row_count: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes that the column chunks of its scans have in files, but for row groups that statistics rule out; 0 before that is
    /// known.
    pub bytes_expected: u64,
    /// Of these, those that its scans are through with.
    pub bytes_done: u64,
    /// Memory that it holds; of one that has ended, the most that it held at once.
    pub memory_bytes: u64,
    /// Bytes that did not fit.
    pub spilled_bytes: u64,
    /// Why it failed.
    pub error: Option<String>,
}

/// What the queries of one statement, role and engine have cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatisticsEntry {
    /// The asking role, see [`QueryRequest::role`].
    pub role: u32,
    /// [`QueryOrigin::query_id`].
    pub query_id: i64,
    /// Whether counts would tell the role of rows that are hidden from it.
    pub hides_counts: bool,
    /// What ran them; none of those that ended before an engine ran them.
    pub engine: Option<QueryEngine>,
    /// Queries that ended, in whatever way.
    pub calls: u64,
    /// Of these, those that failed.
    pub failures: u64,
    /// Of these, cancelled ones.
    pub cancellations: u64,
    /// Of these, those that the device's engine had refused.
    pub fallbacks: u64,
    /// Rows that left the engine.
    pub row_count: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes that did not fit.
    pub spilled_bytes: u64,
    /// Column chunks that came from a cache.
    pub cache_hits: u64,
    /// Column chunks that did not.
    pub cache_misses: u64,
    /// How long they took, together.
    pub total_us: u64,
    /// The shortest.
    pub min_us: u64,
    /// The longest.
    pub max_us: u64,
    /// The most ranks that one of them had.
    pub rank_count_max: u32,
    /// Since when this is counted, in microseconds since 1970.
    pub since_unix_us: u64,
}

/// How a device's engine runs a query: its techniques, each of which a developer can switch off (`techniques.rs`), and choices. The results are
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSettings {
    /// Column chunks stay on the device between queries.
    pub cache: bool,
    /// Build sides of joins are read and hashed beside one another; otherwise each when its join wants it.
    pub concurrent_builds: bool,
    /// Scans decode text into places in its dictionary: conditions and expressions on it are evaluated once for each
    /// entry, and groups are found by it.
    pub dictionary_codes: bool,
    /// What exchanges between ranks make use of.
    pub exchange: ExchangeSettings,
    /// nvCOMP decompresses Zstandard and gzip, where it is installed and pages have a checksum; otherwise threads of the host
    /// do.
    pub nvcomp: bool,
    /// nvCOMP decompresses pages without a checksum too: a damaged one may keep it from ending, or end the engine.
    pub nvcomp_unchecked: bool,
    /// Of a row group, only pages are decoded that page indexes and filters on other columns leave.
    pub page_skipping: bool,
    /// Readers work ahead for all scans of a query; otherwise for the one that is waited for.
    pub reader_combining: bool,
    /// What is read ahead is bounded by bytes: operators, and exchanges that are full, stop readers.
    pub regulation: bool,
    /// Joins send what they know of their build sides' keys to scans of their probe sides.
    pub runtime_filters: bool,
    /// Column chunks that are used again stay on the device as segments, and scans test and read these; otherwise pages stay.
    pub segments: bool,
    /// How files are read.
    pub storage: StoragePath,
    /// What the device does is noted for `pystachio.timeline`.
    pub timeline: bool,
}

/// Techniques of exchanges between ranks. The same on all ranks of a query; the results are the same with any.
///
/// What is on its way has no setting: blocks lie in a region of a size that is chosen once. Whether that stops readers is up to
/// [`DeviceSettings::regulation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeSettings {
    /// Joins both of whose sides would be shuffled broadcast the build side if it turns out small.
    pub broadcast_choice: bool,
    /// When blocks are compressed.
    pub compression: ExchangeCompression,
    /// Ranks give each other the keys of build sides, for filters of scans below exchanges.
    pub filters: bool,
    /// Few rows are merged before they are sent, and blocks are held back until they are worth a round; otherwise rows leave as
    /// they come, and each block as soon as there is room.
    pub gathering: bool,
    /// So many groups of transfers are on their way at once: 1 to [`EXCHANGE_GROUPS_MAX`].
    pub groups_max: u8,
    /// Rows with keys that too many rows have stay where they are, and what they match goes to all ranks.
    pub heavy_keys: bool,
    /// Rows leave while what is below the exchange still runs; otherwise they are held, and spilled, until it has ended.
    pub overlap: bool,
    /// So many drivers send the rows of one fragment beside one another: 1 to [`EXCHANGE_SENDERS_MAX`].
    pub senders_max: u8,
    /// When exchanges have two levels.
    pub two_level: TwoLevelExchange,
}

/// When an exchange between ranks of several hosts is two: between hosts, and within each. Rows cross the network in fewer and larger messages, and
/// those that all ranks get once for each host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TwoLevelExchange {
    /// Where that is expected to take less time.
    #[default]
    Auto,
    /// Wherever there are several hosts with several ranks each.
    On,
    /// Never.
    Off,
}

/// When blocks of rows are compressed before they leave a rank: integers, dates, times, decimals and lengths of text to as few bits as their values
/// allow, texts by LZ4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ExchangeCompression {
    /// Where the link to other ranks was measured and is so slow that it pays. Each rank decides by itself.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Groups of transfers that may be on their way at once.
pub const EXCHANGE_GROUPS_MAX: u8 = 8;
/// Drivers that may send the rows of one fragment.
pub const EXCHANGE_SENDERS_MAX: u8 = 8;

impl Default for ExchangeSettings {
    fn default() -> Self {
        Self {
            broadcast_choice: true,
            compression: ExchangeCompression::Auto,
            filters: true,
            gathering: true,
            // Two gave 216 GB/s with 16 MB a group and 356 with 256 MB, one 111 and 304.
            groups_max: 2,
            heavy_keys: true,
            overlap: true,
            // One packs while the other one waits for room, or runs what is below.
            senders_max: 2,
            two_level: TwoLevelExchange::Auto,
        }
    }
}

/// How bytes get from files into a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StoragePath {
    /// GPUDirect where the file system has it; otherwise the page cache for what fits there, and direct reads
    /// for more.
    Auto,
    /// Through the page cache.
    PageCache,
    /// Past the page cache (O_DIRECT), several reads at once by io_uring where the kernel lets us.
    Direct,
    /// Past the page cache, one read after another.
    DirectPread,
    /// From storage to the device, without passing through the host's memory: cuFile with GPUDirect Storage.
    GpuDirect,
    /// cuFile in its compatibility mode, which passes through the host's memory.
    CuFileCompat,
}

impl StoragePath {
    /// What `Auto` means on a file system without GPUDirect, for a table of which so many bytes are read, where
    /// so many are available. What takes more than half would drive everything else out of the page cache,
    /// itself included.
    pub fn resolve(self, bytes_to_read: u64, bytes_available: u64) -> Self {
        match self {
            Self::Auto if bytes_to_read > bytes_available / 2 => Self::Direct,
            Self::Auto => Self::PageCache,
            path => path,
        }
    }
}

impl std::fmt::Display for StoragePath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::PageCache => "page cache",
            Self::Direct => "direct (io_uring)",
            Self::DirectPread => "direct (pread)",
            Self::GpuDirect => "GPUDirect",
            Self::CuFileCompat => "cuFile compatibility mode",
        })
    }
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self {
            cache: true,
            concurrent_builds: true,
            dictionary_codes: true,
            exchange: ExchangeSettings::default(),
            nvcomp: true,
            nvcomp_unchecked: false,
            page_skipping: true,
            reader_combining: true,
            regulation: true,
            runtime_filters: true,
            segments: true,
            storage: StoragePath::Auto,
            timeline: false,
        }
    }
}

/// Which engine of a host with a device runs a query. What no kernel has runs on the CPU engine in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineChoice {
    /// The one that is expected to be faster.
    Auto {
        /// What a query costs on the device, however few rows it has.
        device_overhead_us: u32,
    },
    /// The device's.
    Device,
    /// The CPU engine.
    Cpu,
}

/// How long a query was expected to take on each of a host's engines, and what the choice was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineEstimates {
    /// On the CPU engine.
    pub cpu_us: u64,
    /// On the device's engine.
    pub device_us: u64,
    /// The device's name.
    pub device: String,
}

/// Rows for ANALYZE: row groups spread over the files, and rows spread over each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    /// Where the rows are.
    pub files: FileSet,
    /// What is read, as in a scan. The result has these columns, in order.
    pub columns: Vec<crate::ScanColumn>,
    /// How many rows are wanted.
    pub row_count: u64,
    /// Seed of the choice.
    pub seed: u64,
    /// How it may reach stores.
    pub access: StoreAccess,
}

/// The TPC-H tables as Parquet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateRequest {
    /// Where; made if absent. Each table is `<directory>/<table>.parquet`.
    pub directory: String,
    /// The scale factor, greater than 0.
    pub scale_factor: f64,
    /// Which tables; all eight if empty.
    pub tables: Vec<String>,
    /// Replace files that exist; otherwise they are an error.
    pub overwrite: bool,
    /// Rows of a row group; 0 for the engine's choice.
    pub row_group_rows: u64,
    /// `none`, `snappy`, `lz4`, `zstd`, or `auto` for the layout's own.
    pub compression: String,
    /// How the files are laid out.
    pub layout: FileLayout,
}

/// What Parquet files are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileLayout {
    /// Row groups of a thread's work, and a codec for all columns.
    Default,
    /// As [`Request::Optimize`] writes files.
    Gpu,
}

/// Files to be rewritten for reading on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimizeRequest {
    /// A file, a folder or a pattern; absolute.
    pub source: String,
    /// A file, if the source is one and this ends with `.parquet`; otherwise a folder, in which files have the
    /// names that they have below the source. Absolute; made if absent.
    pub target: String,
    /// Replace files that exist; otherwise they are an error.
    pub overwrite: bool,
    /// Rows that a row group has at most.
    pub row_group_rows: u64,
    /// `none`, `snappy`, `lz4`, `zstd`, or `auto` for what pays, by column.
    pub compression: String,
}

/// A column of a file that was rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimizedColumn {
    /// The file written; absolute path.
    pub file: String,
    /// Its path in the schema, with points.
    pub column: String,
    /// The encodings of its data pages, by the format's names, with commas.
    pub encoding: String,
    /// Its codec, by the format's name.
    pub compression: String,
    /// Row groups of the file.
    pub row_groups: u64,
    /// Pages of the column chunk that has the fewest.
    pub pages: u64,
    /// Bytes in the source.
    pub bytes_before: u64,
    /// Bytes now.
    pub bytes_after: u64,
    /// Why this encoding and this codec.
    pub reason: String,
}

/// Of which files a description is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DescribeExtent {
    /// All.
    All,
    /// Of a table of many files some of them. The number of rows is then an estimate, and only of keys of folders is said which values
    /// there are.
    Some,
}

/// What the footers of a table's files say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDescription {
    /// In the order they are read; those that [`DescribeExtent`] says.
    pub files: Vec<FileDescription>,
    /// The columns of all files by name, those of the first one first, and then the keys of their folders.
    pub columns: Vec<ColumnDescription>,
    /// The same columns by their field ids, with the names of the last file; without those that have none. Where some files have no
    /// ids, neither types nor values are known.
    pub by_id: Vec<ColumnDescription>,
    /// Exact, if all files are described.
    pub row_count: u64,
    /// A digest of the paths of all files, of the sizes, inodes and times of change of those that are described by default, and of
    /// what says which of their rows are deleted.
    pub identity: u64,
    /// The version of the table that this describes, of a format with versions.
    pub version: Option<TableVersion>,
}

/// An object or a folder in a folder of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreName {
    /// Its name there.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// What says which files a table has that is the folder.
    pub format: TableFormat,
}

/// A view of a catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CatalogView {
    /// Its name in its namespace.
    pub name: String,
    /// What it is defined by, or why the catalog does not say it.
    pub texts: Result<ViewTexts, Error>,
}

/// The texts of a view's current version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewTexts {
    /// The catalog of names that have none; none: the view's own.
    pub catalog: Option<String>,
    /// The namespace of names that have none; none: the view's own.
    pub namespace: Option<Vec<String>>,
    /// The names of its columns; none: those of the text.
    pub columns: Vec<String>,
    /// Its texts, each after the name of its dialect in lowercase.
    pub texts: Vec<(String, String)>,
}

/// One Parquet file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileDescription {
    /// Absolute path.
    pub path: String,
    /// Its size.
    pub file_bytes: u64,
    /// Exact.
    pub row_count: u64,
    /// How many row groups.
    pub row_group_count: u32,
}

/// One column over all files of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDescription {
    /// The name in the files.
    pub name: String,
    /// Its id, where all files that have it say the same.
    pub field_id: Option<i32>,
    /// The type that holds every value of all files' types; `None` if PostgreSQL has none.
    pub data_type: Option<DataType>,
    /// The Parquet type in words, for messages: `INT64 Decimal(15,2)`.
    pub file_type: String,
    /// How the files differ in it, in words, if they do: a file without it has NULL.
    pub differences: Option<String>,
    /// PostgreSQL's name for `data_type` as IMPORT FOREIGN SCHEMA writes it (`json` where the file says
    /// so, `jsonb` for nested values, `numeric(20,0)` for unsigned 64 bit).
    pub sql_type: String,
    /// Whether files have nanoseconds in it, which are rounded down to microseconds.
    pub is_rounded: bool,
    /// Whether files have times of day in UTC in it.
    pub is_time_of_utc: bool,
    /// Every file declares the column REQUIRED.
    pub required: bool,
    /// NULLs in all files, where every footer tells.
    pub null_count: Option<u64>,
    /// The least value, or a bound below it, where every footer tells.
    pub minimum: Option<Value>,
    /// The greatest value, or a bound above it, where every footer tells.
    pub maximum: Option<Value>,
    /// How many values there are besides NULL, of a key of folders.
    pub distinct_count: Option<u64>,
    /// About how many values there are besides NULL, by the dictionaries of some chunks.
    pub distinct_estimate: Option<f64>,
    /// Bytes in the files, compressed.
    pub compressed_bytes: u64,
    /// Bytes of the pages, uncompressed.
    pub uncompressed_bytes: u64,
    /// Of a struct, its fields at any depth that a scan can read as columns instead of as JSON: single values that have one type in all
    /// files of the table, and names that no other field has. None where some files are not described.
    pub fields: Vec<FieldDescription>,
    /// Whether a file has it, or a part of it, encrypted with a key that the role lacks.
    pub is_locked: bool,
    /// Of a struct, or a list of structs, the composite type that holds every value of all files, or the array of such.
    pub record: Option<DataType>,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldDescription {
    /// The names of the structs within the column, and its own.
    pub path: Vec<String>,
    /// Its type.
    pub data_type: DataType,
}

impl FieldDescription {
    /// The name by which a scan finds the field of a column.
    pub fn name_in(&self, column: &str) -> String {
        format!("{column}.{}", self.path.join("."))
    }
}

impl TableDescription {
    /// Whether a name with points is that of a field which the description says of a struct.
    pub fn has_field(&self, name: &str) -> bool {
        let is_field = |column: &ColumnDescription| {
            column.fields.iter().any(|field| field.name_in(&column.name).eq_ignore_ascii_case(name))
        };
        name.contains('.') && self.columns.iter().any(is_field)
    }

    /// The column of the files that a declared one is.
    pub fn column(&self, column: &FileColumn) -> Option<&ColumnDescription> {
        match column.field_id {
            Some(_) if !self.by_id.is_empty() => {
                self.by_id.iter().find(|described| described.field_id == column.field_id)
            }
            _ => self.named(&column.name),
        }
    }

    /// The column that a name means: exactly, and then without regard to case.
    pub fn named(&self, name: &str) -> Option<&ColumnDescription> {
        let columns = &self.columns;
        columns
            .iter()
            .find(|column| column.name == name)
            .or_else(|| columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)))
    }
}

impl ColumnDescription {
    /// What a scan has of the column, if it is declared as IMPORT FOREIGN SCHEMA does.
    pub fn content(&self) -> ColumnContent {
        match self.sql_type.as_str() {
            "json" | "jsonb" => ColumnContent::Json,
            _ => ColumnContent::Column,
        }
    }

    /// Whether it is a key of folders, of which alone all values are known.
    pub fn is_folder_key(&self) -> bool {
        self.distinct_count.is_some()
    }

    /// Digits after the point of its numbers, or of the numbers in its lists.
    pub fn scale(&self) -> Option<u8> {
        let number = match self.data_type.as_ref()? {
            DataType::List(item) => item,
            number => number,
        };
        match number {
            DataType::Decimal { scale, .. } => Some(*scale),
            integer if integer.is_integer() => Some(0),
            _ => None,
        }
    }

    /// A bound on the absolute values of numbers, and on the microseconds of timestamps, where the footers tell one.
    pub fn magnitude(&self) -> Option<f64> {
        let data_type = match self.data_type.as_ref()? {
            DataType::Timestamp | DataType::TimestampTz => &DataType::Int64,
            data_type if data_type.is_float() => return None,
            data_type => data_type,
        };
        let size = |value: &Option<Value>| Some(value.as_ref()?.number(data_type)?.abs());
        Some(size(&self.minimum)?.max(size(&self.maximum)?))
    }

    /// The least and the greatest number, or bounds beyond them, where the footers tell.
    pub fn number_bounds(&self) -> Option<(f64, f64)> {
        let data_type = self.data_type.as_ref()?;
        Some((self.minimum.as_ref()?.number(data_type)?, self.maximum.as_ref()?.number(data_type)?))
    }
}

impl PlannedFiles {
    /// Whether a plan for these files gives the right rows of others too.
    pub fn hold(&self, description: &TableDescription) -> bool {
        let within = |(column, bound): &(FileColumn, f64)| {
            let magnitude = description.column(column).and_then(ColumnDescription::magnitude);
            magnitude.is_some_and(|now| now <= *bound)
        };
        let as_shown = |(column, scale): &(FileColumn, u8)| {
            description.column(column).and_then(ColumnDescription::scale) == Some(*scale)
        };
        self.identity == description.identity
            || (self.bounds.iter().all(within) && self.scales.iter().all(as_shown))
    }
}

/// What a query cost the engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryMetrics {
    /// What ran it (of a preview: will run it), and why not the server's device if it did not; empty for the
    /// server's only engine.
    pub device: String,
    /// What the choice of an engine rests on, where there was one.
    pub estimates: Option<EngineEstimates>,
    /// Whether files of a table are not those that the query was planned for.
    pub has_changed_files: bool,
    /// Rows returned.
    pub row_count: u64,
    /// From the request to the last batch, time blocked on the socket included.
    pub elapsed_us: u64,
    /// Turning the plan into an executable one.
    pub prepare_us: u64,
    /// Time in which the engine waited for the backend to take a batch.
    pub blocked_us: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// [`QueryProgress::bytes_expected`].
    pub bytes_expected: u64,
    /// The ways in which a device's engine has read files; each once, in their order.
    pub storage_paths: Vec<StoragePath>,
    /// Files of all scans.
    pub files_total: u64,
    /// Row groups in all files of all scans.
    pub row_groups_total: u64,
    /// Row groups that statistics ruled out.
    pub row_groups_pruned: u64,
    /// Files that statistics ruled out.
    pub files_pruned: u64,
    /// Decoded columns of row groups that came from the column cache.
    pub cache_hits: u64,
    /// Decoded columns of row groups that did not.
    pub cache_misses: u64,
    /// The most memory reserved at once.
    pub memory_peak_bytes: u64,
    /// Bytes that did not fit: written to spill files, or moved from a device to the host.
    pub spilled_bytes: u64,
    /// Sum of the lengths that its spill files have had.
    pub temp_file_bytes: u64,
    /// Of a sample: how many values the columns of the whole table have, by estimate; `None` of a column of which that can't be
    /// said. Empty if the sample has all rows.
    pub distinct_counts: Vec<Option<f64>>,
    /// The engine's operators, depth first, if asked for.
    pub operators: Vec<OperatorMetrics>,
    /// What a device did, if asked for and if there is one.
    pub device_work: Option<DeviceWork>,
    /// The rows of the plan's operators, in preorder, if asked for; `None` where the engine can't tell.
    pub actual_rows: Vec<Option<ActualRows>>,
    /// How it runs on the server's ranks, if asked for and if there are several.
    pub ranks: Option<RanksReport>,
    /// What exchanges have moved, by rank and then in the order of the plan, if asked for.
    pub exchanges: Vec<ExchangeTraffic>,
}

/// How a query runs on the ranks of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksReport {
    /// How many ranks there are.
    pub rank_count: u32,
    /// What they do.
    pub choice: RankChoice,
    /// Time that the query is expected to take on one rank.
    pub one_rank_us: u64,
    /// And on all of them; absent if it can't be distributed.
    pub all_ranks_us: Option<u64>,
    /// The rows of the operators of the plan that all ranks run, in preorder, of all ranks together; of a run.
    pub actual_rows: Vec<Option<ActualRows>>,
}

/// Which ranks run a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RankChoice {
    /// All.
    All {
        /// What each of them runs.
        plan: Box<Plan>,
        /// What is expected of its exchanges.
        exchanges: Vec<ExchangeFacts>,
    },
    /// Rank 0 alone.
    First {
        /// Why, in words.
        reason: String,
    },
}

/// What ranks chose for both sides of a join when they knew how large the smaller one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExchangeChoice {
    /// Both go to the owners of their keys.
    Shuffle,
    /// Every rank gets the smaller one, and the rows of the other stay.
    Broadcast,
}

/// What an exchange has moved on one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeTraffic {
    /// The rank's number.
    pub rank: u32,
    /// The exchange's kind and number, in words.
    pub exchange: String,
    /// What the ranks have chosen, where a shuffle could become a broadcast.
    pub choice: Option<ExchangeChoice>,
    /// Rows that the rank has given to others; one that every rank gets counts once, and copies of rows that it has kept not at all.
    pub sent_rows: u64,
    /// Rows that stayed on the rank, which no other one gets, but for copies of a build side's with heavy keys.
    pub kept_rows: u64,
    /// Of the kept rows, those with heavy keys.
    pub heavy_rows: u64,
    /// Bytes of blocks that the rank has sent, once for each rank that got them.
    pub sent_bytes: u64,
    /// As many as those would have been without compression.
    pub sent_wide_bytes: u64,
    /// Other ranks that got blocks of it.
    pub partners: u32,
    /// Rows that came. Of rows that every rank gets, also its own.
    pub received_rows: u64,
    /// Bytes of blocks that came.
    pub received_bytes: u64,
    /// From the first block that the rank sent or got to the last.
    pub moving_us: u64,
    /// Time in which what gives rows waited for room.
    pub send_wait_us: u64,
    /// Time in which what takes them waited for blocks.
    pub receive_wait_us: u64,
}

/// What a device did for a query, over all its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceWork {
    /// Time in which at least one kernel ran.
    pub kernel_us: u64,
    /// Time in which at least one copy between host and device ran.
    pub copy_us: u64,
    /// Time in which at least one reader read.
    pub read_us: u64,
    /// Time in which readers read while kernels or copies ran.
    pub overlap_us: u64,
    /// The highest rate at which the engine has read files for a query, in bytes a second; 0 if it has not.
    pub read_rate_max: u64,
    /// The size of the device's arena.
    pub memory_max_bytes: u64,
}

/// The rows that an operator of the plan gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActualRows {
    /// Rows, over all threads.
    pub row_count: u64,
    /// Operators above (a limit, a filter that was pushed down, a join without rows to join) may have kept it
    /// from giving more.
    pub is_reduced: bool,
}

/// One operator of the engine's own tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorMetrics {
    /// What it is and does, in one line.
    pub description: String,
    /// Distance from the root.
    pub depth: u32,
    /// Rows of output.
    pub row_count: Option<u64>,
    /// Time computing, summed over threads.
    pub elapsed_us: Option<u64>,
    /// Anything else worth a number, by name.
    pub counters: Vec<(String, u64)>,
}

/// A query that an engine has run, and what its device did when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryTimeline {
    /// Queries of an engine are numbered from 1 in the order of their start.
    pub query: u64,
    /// Of one that all ranks ran, the number that it has on all of them.
    pub shared: Option<u64>,
    /// The asking role, see [`QueryRequest::role`].
    pub role: u32,
    /// When it started, in microseconds since 1970.
    pub started_unix_us: u64,
    /// How long it ran.
    pub elapsed_us: u64,
    /// In the order of their start.
    pub activities: Vec<Activity>,
}

/// A read, a copy, a kernel or a movement between ranks of a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The rank that did it.
    pub rank: u32,
    /// What kind of thing was busy.
    pub kind: ActivityKind,
    /// The kernel's name, or what was done in a word.
    pub name: String,
    /// 0: storage; 1: the network; from 2 on the device's streams in the order of their first use.
    pub lane: u32,
    /// Since the query's start on rank 0.
    pub started_us: u64,
    /// How long it took.
    pub elapsed_us: u64,
    /// Bytes that were moved; 0 where that is not known. Of a kernel what it reads and writes, estimated from below.
    pub bytes: u64,
}

/// What was busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ActivityKind {
    /// Storage, or the page cache.
    Read,
    /// The bus, towards the device.
    Upload,
    /// The bus, towards the host.
    Download,
    /// The device's memory.
    Copy,
    /// The device.
    Kernel,
    /// The network, towards other ranks: from the start of the transfers to when they are known to be over.
    Send,
    /// The network, from other ranks.
    Receive,
}

impl std::fmt::Display for ActivityKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Copy => "copy",
            Self::Kernel => "kernel",
            Self::Send => "send",
            Self::Receive => "receive",
        })
    }
}

impl QueryMetrics {
    /// Notes a way in which files were read.
    pub fn add_storage_path(&mut self, path: StoragePath) {
        if let Err(place) = self.storage_paths.binary_search(&path) {
            self.storage_paths.insert(place, path);
        }
    }

    /// Adds what another engine's part of the query has cost. Its operators are at this depth and below.
    pub fn add_part(&mut self, part: QueryMetrics, depth: u32) {
        self.bytes_read += part.bytes_read;
        self.bytes_expected += part.bytes_expected;
        self.files_total += part.files_total;
        self.row_groups_total += part.row_groups_total;
        self.row_groups_pruned += part.row_groups_pruned;
        self.files_pruned += part.files_pruned;
        self.cache_hits += part.cache_hits;
        self.cache_misses += part.cache_misses;
        self.memory_peak_bytes += part.memory_peak_bytes;
        self.spilled_bytes += part.spilled_bytes;
        self.temp_file_bytes += part.temp_file_bytes;
        part.storage_paths.into_iter().for_each(|path| self.add_storage_path(path));
        self.device_work = self.device_work.take().or(part.device_work);
        let operators = part.operators.into_iter();
        self.operators
            .extend(operators.map(|operator| OperatorMetrics { depth: operator.depth + depth, ..operator }));
    }
}

impl OperatorMetrics {
    /// A counter; 0 if nothing was added to it.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, sum)| *sum)
    }

    /// Adds to a counter.
    pub fn count(&mut self, name: &str, value: u64) {
        match self.counters.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += value,
            None if value > 0 => self.counters.push((name.to_owned(), value)),
            None => {}
        }
    }
}

/// How a device's memory is used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemoryStatus {
    /// The most that may be in use.
    pub max_bytes: u64,
    /// In use now.
    pub used_bytes: u64,
    /// The most that was in use at once.
    pub peak_bytes: u64,
    /// Taken from the device and free, but not in the longest range that is.
    pub fragmented_bytes: u64,
}

/// How an engine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Process id.
    pub engine_pid: u32,
    /// `cpu`, later `cuda` or `emulated`.
    pub device: String,
    /// Queries that ended, well or not.
    pub queries_run: u64,
    /// Queries running now.
    pub queries_running: u64,
    /// Queries that wait until others have ended or paused.
    pub queries_waiting: u64,
    /// Memory that queries have reserved now.
    pub memory_used_bytes: u64,
    /// The option `memory`.
    pub memory_max_bytes: u64,
    /// A device's memory, where there is a device.
    pub device_memory: Option<DeviceMemoryStatus>,
    /// Memory that the column cache holds.
    pub cache_used_bytes: u64,
    /// The option `cache`.
    pub cache_max_bytes: u64,
    /// The process's resident memory.
    pub resident_bytes: u64,
    /// The last query's error, if any had one.
    pub last_error: Option<String>,
    /// The role of that query: [`QueryRequest::role`]; none if the error was not a query's.
    pub last_error_role: Option<u32>,
    /// The file systems that were read from, and the ways to the device's memory that each of them has; a line
    /// each.
    pub storage_paths: Vec<String>,
    /// What a device needs of the host's libraries: which are there, and what is wrong; a line each.
    pub libraries: Vec<String>,
    /// Which network connects this process with its other ranks; each that is built after a failure has a higher number. None where
    /// there are no processes of other ranks.
    pub generation: Option<u64>,
    /// The processes of ranks other than 0, whose engine this is.
    pub ranks: Vec<RankStatus>,
}

/// How the process of a rank other than 0 is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStatus {
    /// Its number.
    pub rank: u32,
    /// Its process, if it has one.
    pub pid: Option<u32>,
    /// Where it is, as named in the server option `hosts`; none on one host.
    pub host: Option<String>,
    /// `starting`, `ready`, `connecting`, `running`, `waiting to restart`.
    pub state: String,
    /// The process's resident memory.
    pub resident_bytes: u64,
    /// How its device's memory is used.
    pub device_memory: DeviceMemoryStatus,
    /// Queries of which it has run a part.
    pub queries_run: u64,
    /// Those that it runs a part of now.
    pub queries_running: u64,
    /// How often the process was started again.
    pub restarts: u64,
    /// The file systems that it has read from, and the ways to the device that each has; a line each.
    pub storage_paths: Vec<String>,
    /// Why it ended last.
    pub last_error: Option<String>,
}

/// One column of one file in one memory space of the column caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheEntry {
    /// The rank that holds it.
    pub rank: u32,
    /// Absolute path.
    pub path: String,
    /// The column's name in the file; empty for bytes of an object of a store, which may be of any column.
    pub column: String,
    /// Where it is held.
    pub space: MemorySpace,
    /// Row groups of it that are held.
    pub row_group_count: u32,
    /// Memory they take.
    pub memory_bytes: u64,
    /// Memory they would take unpacked: a GPU keeps rows in fewer bits than operators compute with.
    pub unpacked_bytes: u64,
    /// Uses that found them here.
    pub hits: u64,
    /// Uses that had to get them from a slower memory space or the file.
    pub misses: u64,
}
