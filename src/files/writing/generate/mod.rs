//! TPC-H data as Parquet, one file a table.
//!
//! ```text
//! tables ──► row groups, largest table first ──► a thread generates and encodes one at a time
//!                                                        │
//!            one file a table, row groups in order ◄─────┘
//! ```
//!
//! - `table.rs`: the eight tables and their rows
//! - `form.rs`: how their columns are written
//! - `output.rs`: files under provisional names, renamed when all are whole
//!
//! Invariants: a directory has either all requested files or none that were not there before. Dropping
//! the future stops the threads within a batch of rows, and the last one removes what was written.
//!
//! Source: row groups generated and encoded independently, as tpchgen-cli does.

mod form;
mod output;
mod table;

#[cfg(test)]
mod tests;

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pystachio_engine::{WriteProgress, locking::lock_whole};
use pystachio_plan::{Error, ErrorKind, FileLayout, GenerateRequest, Result};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{
    form::{TableForm, TableSettings, TrialMeans},
    output::{Output, OutputFile},
    table::Table,
};
use crate::writing::{
    admission::{Admission, Grant},
    layout::{self, Codecs},
};

/// A row group is one thread's work: enough of them for every thread, and for pruning to have a point;
/// few enough that dictionaries and page headers don't count.
const ROW_GROUP_ROWS: u64 = 512 * 1024;
const ROW_GROUP_ROWS_MIN: u64 = 1024;
const ROW_GROUP_ROWS_MAX: u64 = 16 * 1024 * 1024;
/// Below, tables have fewer rows than the rules of the specification need.
const SCALE_FACTOR_MIN: f64 = 0.001;
const SCALE_FACTOR_MAX: f64 = 100_000.0;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Writes the TPC-H tables and returns their names and row counts.
///
/// # Errors
///
/// `InvalidArgument` for a request that makes no sense or a file that exists; `FilePermission` and
/// `FileAccess`, naming the file, if writing fails. Nothing is left behind then.
pub async fn generate(
    request: GenerateRequest,
    threads: usize,
    admission: Admission,
    progress: &(dyn Fn(WriteProgress) + Send + Sync),
) -> Result<Vec<(String, u64)>> {
    let settings = settings(&request)?;
    let tables = tables(&request)?;
    let token = CancellationToken::new();
    let stop: DropGuard = token.clone().drop_guard();
    let admission = Arc::new(admission);
    let prepare = {
        let (admission, token) = (admission.clone(), token.clone());
        move || {
            let means = TrialMeans { threads, admission: &admission, stop: &token };
            let reserved = Output::reserve(Path::new(&request.directory), &tables, request.overwrite)?;
            let mut forms = Vec::new();
            for table in tables {
                forms.push((table, TableForm::of(table, &settings, &means)?.ok_or_else(cancelled)?));
            }
            let output = Output::create(reserved, forms)?;
            Ok(GenerateRun::new(output, request.scale_factor, admission, token))
        }
    };
    let ended = tokio::task::spawn_blocking(prepare).await;
    let run = Arc::new(ended.unwrap_or_else(|failure| Err(failed(&failure)))?);
    let mut workers = JoinSet::new();
    for _ in 0..threads.max(1) {
        let run = run.clone();
        workers.spawn_blocking(move || run.work());
    }
    let mut interval = tokio::time::interval(PROGRESS_INTERVAL);
    let mut outcome = Ok(());
    loop {
        tokio::select! {
            _ = interval.tick() => progress(run.progress()),
            ended = workers.join_next() => {
                let Some(ended) = ended else { break };
                if let Err(error) = ended.unwrap_or_else(|failure| Err(failed(&failure))) {
                    run.stop.cancel();
                    outcome = outcome.and(Err(error));
                }
            }
        }
    }
    outcome?;
    progress(run.progress());
    let rows = run.output.commit()?;
    stop.disarm();
    Ok(rows)
}

fn failed(failure: &tokio::task::JoinError) -> Error {
    Error::internal(format!("generating failed: {failure}"))
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the request was cancelled")
}

fn tables(request: &GenerateRequest) -> Result<Vec<Table>> {
    if request.tables.is_empty() {
        return Ok(Table::ALL.to_vec());
    }
    let mut tables = Vec::new();
    for name in &request.tables {
        let table = Table::ALL.into_iter().find(|table| table.name() == name).ok_or_else(|| {
            let valid = Table::ALL.map(Table::name).join(", ");
            invalid(format!("unknown TPC-H table \"{name}\"; valid are {valid}"))
        })?;
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    Ok(tables)
}

fn settings(request: &GenerateRequest) -> Result<TableSettings> {
    if !Path::new(&request.directory).is_absolute() {
        return Err(invalid(format!("directory \"{}\" is not an absolute path", request.directory)));
    }
    if !(SCALE_FACTOR_MIN..=SCALE_FACTOR_MAX).contains(&request.scale_factor) {
        return Err(invalid(format!(
            "scale factor {} is out of range: it must be from {SCALE_FACTOR_MIN} to {SCALE_FACTOR_MAX}",
            request.scale_factor
        )));
    }
    let row_group_rows = match (request.row_group_rows, request.layout) {
        (0, FileLayout::Default) => ROW_GROUP_ROWS,
        (0, FileLayout::Gpu) => layout::ROW_GROUP_ROWS,
        (rows, _) => rows,
    };
    if !(ROW_GROUP_ROWS_MIN..=ROW_GROUP_ROWS_MAX).contains(&row_group_rows) {
        return Err(invalid(format!(
            "row group size of {row_group_rows} rows is out of range: \
             it must be 0 (the engine's choice) or from {ROW_GROUP_ROWS_MIN} to {ROW_GROUP_ROWS_MAX}"
        )));
    }
    Ok(TableSettings {
        scale_factor: request.scale_factor,
        row_group_rows,
        codecs: Codecs::parse(&request.compression)?,
        layout: request.layout,
    })
}

/// What the threads share.
struct GenerateRun {
    output: Output,
    scale_factor: f64,
    /// Places in `output.files()` and part numbers, in the order in which they are taken.
    parts: Vec<(usize, u32)>,
    next_part: Mutex<usize>,
    rows_done: AtomicU64,
    rows_total: u64,
    table_now: Mutex<Table>,
    admission: Arc<Admission>,
    stop: CancellationToken,
}

impl GenerateRun {
    fn new(output: Output, scale_factor: f64, admission: Arc<Admission>, stop: CancellationToken) -> Self {
        let files = output.files();
        let mut order: Vec<usize> = (0..files.len()).collect();
        // The largest first, so that the threads end together.
        order.sort_by_key(|file| std::cmp::Reverse(files[*file].part_count()));
        let parts = order.iter().flat_map(|file| (1..=files[*file].part_count()).map(|part| (*file, part)));
        let rows_total = files.iter().map(|file| file.table().row_count(scale_factor)).sum();
        let table_now = Mutex::new(files.first().map_or(Table::Region, OutputFile::table));
        Self {
            parts: parts.collect(),
            output,
            scale_factor,
            next_part: Mutex::new(0),
            rows_done: AtomicU64::new(0),
            rows_total,
            table_now,
            admission,
            stop,
        }
    }

    fn progress(&self) -> WriteProgress {
        let table = *lock_whole(&self.table_now);
        let rows_done = self.rows_done.load(Ordering::Relaxed);
        // The number of lineitems is known when they are written.
        let rows_total = self.rows_total.max(rows_done);
        WriteProgress { name: table.name().to_owned(), rows_done, rows_total }
    }

    /// Takes parts until none is left or the run is stopped.
    fn work(&self) -> Result<()> {
        while let Some((file, part, grant)) = self.next_part()? {
            *lock_whole(&self.table_now) = file.table();
            if !self.write_part(file, part, grant)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next part, with memory for it; `None` after the last, or if the run is stopped.
    fn next_part(&self) -> Result<Option<(&OutputFile, u32, Grant)>> {
        // Held while this one waits for memory, so that no later part gets it.
        let mut next = lock_whole(&self.next_part);
        let Some((file, part)) = self.parts.get(*next) else { return Ok(None) };
        let file = &self.output.files()[*file];
        let Some(grant) = self.admission.admit(file.part_bytes(), &self.stop)? else { return Ok(None) };
        *next += 1;
        Ok(Some((file, *part, grant)))
    }

    /// Returns whether the part was written; otherwise the run is stopped.
    fn write_part(&self, file: &OutputFile, part: u32, grant: Grant) -> Result<bool> {
        let mut row_group = file.start_row_group(part, grant)?;
        for batch in file.table().batches(self.scale_factor, part, file.part_count()) {
            if self.stop.is_cancelled() {
                return Ok(false);
            }
            let batch = batch.map_err(|error| Error::internal(format!("TPC-H rows: {error}")))?;
            row_group.write(&batch)?;
            self.rows_done.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        }
        file.append(part, row_group)?;
        Ok(true)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
