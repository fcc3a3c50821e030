//! Scans: row groups of Parquet files, read, decoded and filtered by several threads at once.
//!
//! ```text
//! reader 0   ─ read ─ copy ─ decode ─ filter ─┐
//! reader 1      ─ read ─ copy ─ decode ─ filter ─┤ bounded channel ──► chunks in the order of the files
//! reader 2         ─ read ─ …                   ─┘
//! ```
//!
//! Each reader has a queue of its own, so that storage, the bus and the device work at the same time. A
//! chunk is handed over when its queue has nothing left to do, and belongs to the query's queue then.
//!
//! Invariants: chunks come in the order of files and row groups, and have some row groups each. What is decoded
//! ahead is bounded by bytes, and by two chunks a reader (`read_ahead.rs`).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use parquet::file::metadata::RowGroupMetaData;
use pystachio_plan::{DataType, Error, ErrorKind, Expression, FileSet, Result, ScanColumn};

use super::{Columns, QueryContext, Source, read_ahead::ReadAhead, rows::filter_chunk};
use crate::{
    StopFlag,
    decode::{EncodedColumnChunk, check_column, chunk_range, decode_row_group},
    device::{CellType, Chunk, DeviceMemory},
    operation::Queue,
    program::Filter,
    storage::{RowGroupBounds, TableFile, refutes},
};

/// Rows that a chunk has at least, where a table has them: what an operator costs a chunk, whatever its size,
/// is then small against what it costs a row.
const CHUNK_ROWS_MIN: usize = 4 << 20;
/// Chunks that every reader has at least, where a table has them.
const CHUNKS_PER_READER: usize = 2;

/// The row groups of a table, some of them a chunk.
pub(super) struct ScanSource {
    work: Arc<ScanWork>,
    state: ScanState,
    /// Chunks that came before their turn.
    early: BTreeMap<usize, Chunk>,
    next: usize,
}

enum ScanState {
    Start,
    Reading { chunks: Receiver<Result<(usize, Chunk)>>, readers: Vec<JoinHandle<()>> },
}

/// What readers share.
struct ScanWork {
    table: String,
    columns: Vec<ScanColumn>,
    filter: Option<Filter>,
    parts: Vec<Vec<RowGroup>>,
    ahead: ReadAhead,
    bytes_read: AtomicU64,
    /// Set when the scan is dropped.
    dropped: StopFlag,
}

/// A row group of a file.
#[derive(Clone)]
struct RowGroup {
    file: Arc<ScanFile>,
    index: usize,
    row_count: usize,
    /// About what decoding it takes on the device.
    bytes: u64,
}

/// A file and where the columns that are read are in it.
struct ScanFile {
    file: TableFile,
    leaves: Vec<usize>,
}

impl ScanSource {
    /// Opens the files, matches their columns and rules out row groups by statistics.
    ///
    /// # Errors
    ///
    /// Those of the files; `NotSupported` for columns that no kernel decodes.
    pub(super) fn open(
        table: &str,
        files: &FileSet,
        columns: &[ScanColumn],
        filters: &[Expression],
        context: &mut QueryContext,
    ) -> Result<Self> {
        let mut row_groups = Vec::new();
        for file in context.catalog.open_all(files)? {
            let leaves = columns.iter().map(|column| leaf_of(table, &file, column)).collect::<Result<_>>()?;
            let file = Arc::new(ScanFile { file, leaves });
            let count = file.file.footer.metadata().num_row_groups();
            context.metrics.files_total += 1;
            context.metrics.row_groups_total += count as u64;
            let before = row_groups.len();
            for index in 0..count {
                let row_group = file.file.footer.metadata().row_group(index);
                let bounds = RowGroupBounds::new(&file.file.footer, row_group, columns, &file.leaves);
                if refutes(filters, &bounds, &context.parameters) {
                    context.metrics.row_groups_pruned += 1;
                } else if row_group.num_rows() > 0 {
                    let row_count = usize::try_from(row_group.num_rows()).unwrap_or(usize::MAX);
                    let bytes = decoding_bytes(row_group, columns, &file.leaves)?;
                    row_groups.push(RowGroup { file: file.clone(), index, row_count, bytes });
                }
            }
            if row_groups.len() == before && count > 0 {
                context.metrics.files_pruned += 1;
            }
        }
        let known: Columns = columns.iter().map(|column| (column.id, column.data_type.clone())).collect();
        check_types(&known)?;
        let filter = match Expression::all_of(filters.to_vec()) {
            None => None,
            Some(condition) => Some(Filter::compile(&condition, &known, &context.parameters)?),
        };
        let reader_count = context.queue.memory().platform().reader_count();
        let parts_ahead = reader_count * CHUNKS_PER_READER;
        let bytes_max = context.memory.ahead_bytes() / parts_ahead as u64;
        let work = ScanWork {
            table: table.to_owned(),
            columns: columns.to_vec(),
            filter,
            parts: parts(row_groups, reader_count, bytes_max),
            ahead: ReadAhead::new(context.memory.clone(), parts_ahead),
            bytes_read: AtomicU64::new(0),
            dropped: StopFlag::default(),
        };
        Ok(Self { work: Arc::new(work), state: ScanState::Start, early: BTreeMap::new(), next: 0 })
    }

    fn start(&mut self, context: &QueryContext) -> Result<()> {
        let memory = context.queue.memory();
        let count = memory.platform().reader_count().min(self.work.parts.len()).max(1);
        let (sender, chunks) = channel();
        let mut readers = Vec::with_capacity(count);
        for _ in 0..count {
            let reader = Reader {
                work: self.work.clone(),
                memory: memory.clone(),
                sender: sender.clone(),
                stop: context.stop.clone(),
            };
            let thread = std::thread::Builder::new()
                .name("pystachio-reader".to_owned())
                .spawn(move || reader.run())
                .map_err(|error| Error::internal(format!("a thread can't be started: {error}")))?;
            readers.push(thread);
        }
        self.state = ScanState::Reading { chunks, readers };
        Ok(())
    }
}

impl Source for ScanSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        if self.next == self.work.parts.len() {
            return Ok(None);
        }
        if matches!(self.state, ScanState::Start) {
            self.start(context)?;
        }
        let ScanState::Reading { chunks, .. } = &self.state else {
            return Err(Error::internal("a scan reads before it has started"));
        };
        while !self.early.contains_key(&self.next) {
            let (place, chunk) = chunks
                .recv()
                .unwrap_or_else(|_| Err(Error::internal("the readers of a scan ended without a word")))?;
            self.early.insert(place, chunk);
        }
        let chunk = self.early.remove(&self.next);
        self.work.ahead.give_back(self.next);
        self.next += 1;
        context.metrics.bytes_read += self.work.bytes_read.swap(0, Ordering::Relaxed);
        if let Some(chunk) = &chunk {
            chunk.adopt(context.queue.stream());
        }
        Ok(chunk)
    }
}

impl Drop for ScanSource {
    fn drop(&mut self) {
        self.work.dropped.stop();
        if let ScanState::Reading { chunks, readers } = std::mem::replace(&mut self.state, ScanState::Start) {
            // Readers that wait to send hear that nobody listens.
            drop(chunks);
            for reader in readers {
                let _ = reader.join();
            }
        }
    }
}

/// One thread of a scan.
struct Reader {
    work: Arc<ScanWork>,
    memory: DeviceMemory,
    sender: Sender<Result<(usize, Chunk)>>,
    stop: StopFlag,
}

impl Reader {
    fn run(self) {
        let queue = match Queue::new(&self.memory) {
            Ok(queue) => queue,
            Err(error) => {
                let _ = self.sender.send(Err(error));
                return;
            }
        };
        let is_stopped = || self.stop.is_stopped() || self.work.dropped.is_stopped();
        loop {
            let bytes_of = |place: usize| {
                let part = self.work.parts.get(place)?;
                Some(part.iter().map(|row_group| row_group.bytes).sum())
            };
            let taken = self.work.ahead.take(bytes_of, is_stopped);
            if is_stopped() {
                let _ = self.sender.send(Err(Error::new(ErrorKind::Cancelled, "the query was cancelled")));
                return;
            }
            let Some((place, part)) = taken.and_then(|place| Some((place, self.work.parts.get(place)?)))
            else {
                return;
            };
            // A panic ends the query, not the process.
            let read = || {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.work.read_part(&queue, part)))
                    .unwrap_or_else(|_| Err(Error::internal("a reader failed while it decoded a row group")))
            };
            let chunk = match read() {
                // The estimate was too low: chunks before this one go on and leave their memory.
                Err(error)
                    if error.kind == ErrorKind::OutOfMemory
                        && self.work.ahead.wait_first(place, is_stopped) =>
                {
                    read()
                }
                other => other,
            };
            let is_error = chunk.is_err();
            if self.sender.send(chunk.map(|chunk| (place, chunk))).is_err() || is_error {
                return;
            }
        }
    }
}

/// About what decoding a row group takes on the device: its bytes, compressed and not, and twice its cells.
fn decoding_bytes(row_group: &RowGroupMetaData, columns: &[ScanColumn], leaves: &[usize]) -> Result<u64> {
    let rows = u64::try_from(row_group.num_rows()).unwrap_or(0);
    let mut bytes = 0u64;
    for (column, leaf) in columns.iter().zip(leaves) {
        let chunk = row_group.column(*leaf);
        let encoded = chunk.compressed_size().max(0) as u64 + chunk.uncompressed_size().max(0) as u64;
        let cell_bytes = u64::from(CellType::of(&column.data_type)?.bytes()) + 1;
        bytes = bytes.saturating_add(encoded).saturating_add(2 * rows * cell_bytes);
    }
    Ok(bytes)
}

/// Row groups in parts that become a chunk each: large enough, small enough for what may be decoded ahead, and
/// enough of them to keep all readers busy.
fn parts(row_groups: Vec<RowGroup>, reader_count: usize, bytes_max: u64) -> Vec<Vec<RowGroup>> {
    let length_max = (row_groups.len() / (reader_count * CHUNKS_PER_READER)).max(1);
    let mut parts: Vec<Vec<RowGroup>> = Vec::new();
    let (mut row_count, mut bytes) = (usize::MAX, 0u64);
    for row_group in row_groups {
        let is_full = row_count >= CHUNK_ROWS_MIN
            || parts.last().is_none_or(|part| part.len() >= length_max)
            || bytes.saturating_add(row_group.bytes) > bytes_max;
        row_count = if is_full { row_group.row_count } else { row_count + row_group.row_count };
        bytes = if is_full { row_group.bytes } else { bytes + row_group.bytes };
        match parts.last_mut() {
            Some(part) if !is_full => part.push(row_group),
            _ => parts.push(vec![row_group]),
        }
    }
    parts
}

impl ScanWork {
    /// The rows of some row groups that meet the filter; nothing is left to do on the queue.
    fn read_part(&self, queue: &Queue, part: &[RowGroup]) -> Result<Chunk> {
        let chunks = part.iter().map(|row_group| self.read(queue, row_group)).collect::<Result<Vec<_>>>()?;
        let chunk = queue.concat(&chunks)?;
        queue.wait()?;
        Ok(chunk)
    }

    /// The rows of a row group that meet the filter.
    fn read(&self, queue: &Queue, row_group: &RowGroup) -> Result<Chunk> {
        let (scan_file, index) = (&row_group.file, row_group.index);
        let footer = &scan_file.file.footer;
        let row_group = footer.metadata().row_group(index);
        let row_count =
            usize::try_from(row_group.num_rows()).ok().filter(|rows| *rows < u32::MAX as usize).ok_or_else(
                || Error::new(ErrorKind::NotSupported, "a row group has more rows than a chunk may have"),
            )?;
        let handle = scan_file.file.handle()?;
        let mut bytes = Vec::with_capacity(self.columns.len());
        for leaf in &scan_file.leaves {
            let range = chunk_range(row_group.column(*leaf)).ok_or_else(|| footer.changed())?;
            bytes.push(scan_file.file.read_range(&handle, range.0, range.1 as usize)?);
            self.bytes_read.fetch_add(range.1, Ordering::Relaxed);
        }
        scan_file.file.check_unchanged(&handle)?;
        let encoded: Vec<EncodedColumnChunk<'_>> = bytes
            .iter()
            .zip(&self.columns)
            .zip(&scan_file.leaves)
            .map(|((bytes, column), leaf)| EncodedColumnChunk {
                bytes,
                metadata: row_group.column(*leaf),
                column,
                table: &self.table,
                path: &footer.path,
            })
            .collect();
        let columns = decode_row_group(queue.memory(), &encoded, row_count, queue.stream())?;
        let mut chunk = Chunk { row_count, columns };
        if let Some(condition) = &self.filter {
            chunk = filter_chunk(queue, chunk, condition)?;
        }
        Ok(chunk)
    }
}

/// The leaf column of a file that a declared column reads: matched exactly first and then without regard
/// to case.
fn leaf_of(table: &str, file: &TableFile, column: &ScanColumn) -> Result<usize> {
    let footer = &file.footer;
    let schema = footer.metadata().file_metadata().schema_descr();
    let roots = schema.root_schema().get_fields();
    let exact = roots.iter().position(|field| field.name() == column.name);
    let root = exact
        .or_else(|| roots.iter().position(|field| field.name().to_lowercase() == column.name.to_lowercase()));
    let Some(root) = root else {
        return Err(Error::new(
            ErrorKind::SchemaMismatch,
            format!(
                "file \"{}\" has no column \"{}\", which foreign table \"{table}\" declares",
                footer.path.display(),
                column.name
            ),
        ));
    };
    let mut leaves = (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == root);
    match (leaves.next(), leaves.next()) {
        (Some(leaf), None) if schema.column(leaf).max_rep_level() == 0 => {
            check_column(&schema.column(leaf), column)?;
            Ok(leaf)
        }
        _ => {
            let message = format!("no kernel decodes column \"{}\": it is nested", column.name);
            Err(Error::new(ErrorKind::NotSupported, message))
        }
    }
}

fn check_types(columns: &[(pystachio_plan::ColumnId, DataType)]) -> Result<()> {
    for (_, data_type) in columns {
        CellType::of(data_type)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::FileCatalog;

    fn lengths(row_counts: &[usize], reader_count: usize, bytes_max: u64) -> Vec<usize> {
        let catalog = FileCatalog::default();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../regress/data/t1.parquet");
        let file = catalog.open_all(&FileSet { paths: vec![path.to_owned()] }).unwrap().remove(0);
        let file = Arc::new(ScanFile { file, leaves: Vec::new() });
        let row_group = |(index, row_count): (usize, &usize)| RowGroup {
            file: file.clone(),
            index,
            row_count: *row_count,
            bytes: *row_count as u64 * 10,
        };
        let row_groups = row_counts.iter().enumerate().map(row_group).collect();
        let found = parts(row_groups, reader_count, bytes_max);
        let order: Vec<usize> = found.iter().flatten().map(|row_group| row_group.index).collect();
        assert_eq!(order, (0..row_counts.len()).collect::<Vec<_>>());
        found.iter().map(Vec::len).collect()
    }

    #[test]
    fn small_row_groups_share_a_chunk_and_large_ones_have_their_own() {
        assert_eq!(lengths(&[500_000; 40], 2, u64::MAX), [9, 9, 9, 9, 4]);
        assert_eq!(lengths(&[8_000_000; 5], 1, u64::MAX), [1; 5]);
        assert_eq!(lengths(&[500_000; 8], 12, u64::MAX), [1; 8]);
        assert_eq!(lengths(&[500_000; 40], 2, 20_000_000), [4; 10]);
        assert_eq!(lengths(&[500_000; 40], 2, 1), [1; 40]);
        assert_eq!(lengths(&[], 12, u64::MAX), [0; 0]);
    }
}
