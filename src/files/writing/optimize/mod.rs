//! Parquet files rewritten for reading on a GPU, by the rules of [`crate::writing::layout`].
//!
//! ```text
//! file ──► a form for every column, by trial ──► column chunks, a thread each ──► appended in order
//! ```
//!
//! - `target.rs`: where files go
//! - `chunk.rs`: one column chunk
//! - `file.rs`: one file
//!
//! Invariants: every value, level and annotation is the source's. A target has either all files or none that
//! were not there before. Dropping the future stops the threads within a batch of rows, and what was written
//! is removed. A column chunk takes memory from the engine's pool, and waits for it.
//!
//! Deliberately absent: sorting rows; joining small files. Bloom filters are not written anew.

mod chunk;
mod file;
mod target;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pystachio_engine::{WriteProgress, from_panic, locking::lock_whole};
use pystachio_plan::{Error, ErrorKind, FileSet, OptimizeRequest, OptimizedColumn, Result};
use tokio_util::sync::CancellationToken;

use self::target::target_paths;
use crate::{
    FileCatalog,
    writing::{
        admission::Admission,
        layout::Codecs,
        written_files::{WrittenFiles, file_name},
    },
};

const ROW_GROUP_ROWS_MIN: u64 = 1024;
const ROW_GROUP_ROWS_MAX: u64 = 100_000_000;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// What an engine lends to a run.
pub struct OptimizeMeans {
    /// Footers of the source.
    pub catalog: Arc<FileCatalog>,
    /// Threads that encode.
    pub threads: usize,
    /// Memory for what they encode.
    pub admission: Admission,
}

/// Rewrites files and returns their columns.
///
/// # Errors
///
/// `InvalidArgument` for a request that makes no sense or a file that exists; those of reading the source and
/// of writing, naming the file; `OutOfMemory`. Nothing is left behind then.
pub async fn optimize(
    request: OptimizeRequest,
    means: OptimizeMeans,
    progress: &(dyn Fn(WriteProgress) + Send + Sync),
) -> Result<Vec<OptimizedColumn>> {
    let codecs = Codecs::parse(&request.compression)?;
    if !(ROW_GROUP_ROWS_MIN..=ROW_GROUP_ROWS_MAX).contains(&request.row_group_rows) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "row group size of {} rows is out of range: it must be from {ROW_GROUP_ROWS_MIN} to {ROW_GROUP_ROWS_MAX}",
                request.row_group_rows
            ),
        ));
    }
    let run =
        Arc::new(OptimizeRun { means, codecs, state: RunState::default(), stop: CancellationToken::new() });
    let stop = run.stop.clone().drop_guard();
    let mut work = tokio::task::spawn_blocking({
        let run = run.clone();
        move || run.work(&request)
    });
    let mut interval = tokio::time::interval(PROGRESS_INTERVAL);
    let outcome = loop {
        tokio::select! {
            _ = interval.tick() => progress(run.state.progress()),
            ended = &mut work => break ended,
        }
    };
    let columns = outcome.unwrap_or_else(|failure| match failure.try_into_panic() {
        Ok(panic) => Err(from_panic(panic.as_ref())),
        Err(_) => Err(Error::new(ErrorKind::Cancelled, "the engine is shutting down")),
    })?;
    progress(run.state.progress());
    stop.disarm();
    Ok(columns)
}

/// Rewrites one file as the file `number` of `written`. Blocks.
///
/// # Errors
///
/// As of [`optimize`]; `Cancelled` after `stop`.
pub(crate) fn rewrite(
    source: &Path,
    (written, number): (&WrittenFiles, usize),
    codecs: Codecs,
    row_group_rows: u64,
    means: OptimizeMeans,
    stop: CancellationToken,
) -> Result<()> {
    let run = OptimizeRun { codecs, means, state: RunState::default(), stop };
    let source = FileSet::parquet(vec![source.to_string_lossy().into_owned()]);
    for file in run.means.catalog.open_all(&source)? {
        let done = run.write_file(&file, written, number, row_group_rows)?;
        done.ok_or_else(|| Error::new(ErrorKind::Cancelled, "the request was cancelled"))?;
    }
    Ok(())
}

/// What the threads of a run share.
struct OptimizeRun {
    means: OptimizeMeans,
    codecs: Codecs,
    state: RunState,
    stop: CancellationToken,
}

/// How far a run is.
#[derive(Default)]
struct RunState {
    file_now: Mutex<String>,
    /// Rows of one column each.
    cells_total: AtomicU64,
    cells_done: AtomicU64,
    rows_total: AtomicU64,
}

impl RunState {
    fn progress(&self) -> WriteProgress {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows_total = of(&self.rows_total);
        let rows_done = u128::from(rows_total) * u128::from(of(&self.cells_done))
            / u128::from(of(&self.cells_total).max(1));
        let name = lock_whole(&self.file_now).clone();
        WriteProgress { name, rows_done: u64::try_from(rows_done).unwrap_or(rows_total), rows_total }
    }
}

impl OptimizeRun {
    fn work(&self, request: &OptimizeRequest) -> Result<Vec<OptimizedColumn>> {
        let files = self.means.catalog.open_all(&FileSet::parquet(vec![request.source.clone()]))?;
        if let Some(file) = files.iter().find(|file| file.is_decrypted()) {
            let message =
                format!("file \"{}\" is encrypted, and can't be optimized", file.footer.path.display());
            return Err(Error::new(ErrorKind::NotSupported, message).with_hint(
                "Write the rows of a foreign table over it with COPY or pystachio.write_parquet.",
            ));
        }
        let paths = target_paths(request, &files)?;
        let known: BTreeSet<String> = paths.iter().map(|path| file_name(path)).collect();
        let written = WrittenFiles::create(paths, &known, request.overwrite)?;
        for file in &files {
            let rows = file.footer.row_count() as u64;
            let columns = file.footer.metadata().file_metadata().schema_descr().num_columns() as u64;
            self.state.rows_total.fetch_add(rows, Ordering::Relaxed);
            self.state.cells_total.fetch_add(rows * columns, Ordering::Relaxed);
        }
        let mut columns = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let name = file_name(&file.footer.path);
            *lock_whole(&self.state.file_now) = name;
            let done = self.write_file(file, &written, number, request.row_group_rows)?;
            columns
                .extend(done.ok_or_else(|| Error::new(ErrorKind::Cancelled, "the request was cancelled"))?);
        }
        written.commit()?;
        Ok(columns)
    }
}
