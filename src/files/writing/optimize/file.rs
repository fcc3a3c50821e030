//! One file: a form for every column, then column chunks by many threads, appended in their order by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    ops::Range,
    sync::{Condvar, Mutex},
    thread,
    time::Duration,
};

use parquet::{
    column::writer::ColumnCloseResult,
    errors::ParquetError,
    file::{
        metadata::{ParquetMetaData, SortingColumn},
        properties::WriterPropertiesPtr,
        writer::SerializedFileWriter,
    },
};
use pystachio_engine::{
    from_panic,
    locking::{lock_whole, whole},
};
use pystachio_plan::{Error, ErrorKind, OptimizedColumn, Result};

use super::{
    OptimizeRun,
    chunk::{ChunkTask, EncodedChunk, encode_chunk},
};
use crate::{
    TableFile,
    writing::{
        admission::Grant,
        layout::{
            ColumnChoice, FileBytes, ParquetSource, Trials, base_properties, choose_columns,
            column_properties, page_rows, run_threads,
        },
        written_files::{WrittenFiles, write_failed},
    },
};

/// Bytes of a column chunk before compression, which sets how many rows of long values make a row group.
const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// The part of the memory that one column chunk may have.
const CHUNK_MEMORY_PART: u64 = 8;
/// What a chunk is reserved beyond what the sample says, in percent.
const RESERVE_PERCENT: u64 = 125;
/// Memory that a chunk has beside its pages: a batch of rows, a page, a dictionary.
const CHUNK_OVERHEAD_BYTES: u64 = 16 << 20;
/// How often a thread that waits looks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(50);

/// What is written to a file.
struct FilePlan<'a> {
    source: &'a ParquetSource<FileBytes>,
    row_groups: Vec<Range<u64>>,
    choices: Vec<ColumnChoice>,
    properties: Vec<WriterPropertiesPtr>,
}

/// Chunks that wait for those before them.
#[derive(Default)]
struct Encoded {
    chunks: Mutex<BTreeMap<usize, EncodedChunk>>,
    arrived: Condvar,
}

/// What the chunks of a column have come to.
#[derive(Default)]
struct Written {
    encodings: BTreeSet<String>,
    pages: Option<u64>,
    bytes: u64,
}

impl OptimizeRun {
    /// Writes one file under its provisional name; `None` if it is not wanted any more.
    pub(super) fn write_file(
        &self,
        file: &TableFile,
        written: &WrittenFiles,
        number: usize,
        row_group_rows: u64,
    ) -> Result<Option<Vec<OptimizedColumn>>> {
        let handle = file.handle()?;
        let source = ParquetSource {
            bytes: FileBytes::new(file, &handle).into(),
            metadata: file.footer.metadata().clone(),
            path: file.footer.path.clone(),
        };
        if source.column_count() == 0 {
            let message = format!("Parquet file \"{}\" has no columns", source.path.display());
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        let row_groups = row_groups(&source, row_group_rows, self.means.admission.bytes_max());
        let page_rows = page_rows(row_groups.iter().map(|rows| rows.end - rows.start).min().unwrap_or(0));
        let trials = Trials {
            codecs: self.codecs,
            page_rows,
            threads: self.means.threads,
            admission: &self.means.admission,
            stop: &self.stop,
        };
        let Some(choices) = choose_columns(&source, &trials)? else { return Ok(None) };
        let properties =
            choices.iter().map(|choice| column_properties(choice.form, page_rows).into()).collect();
        let plan = FilePlan { source: &source, row_groups, choices, properties };
        let path = written.path(number);
        let failed = |error: ParquetError| write_failed(path, &error);
        let file_properties = base_properties(page_rows)
            .set_key_value_metadata(source.metadata.file_metadata().key_value_metadata().cloned())
            .set_sorting_columns(kept_sorting(&source.metadata, &plan.row_groups));
        let writer = SerializedFileWriter::new(
            written.create_file(number)?,
            source.metadata.file_metadata().schema_descr().root_schema_ptr(),
            file_properties.build().into(),
        );
        let mut writer = writer.map_err(failed)?;
        let Some(columns) = self.write_row_groups(&plan, &mut writer, &failed)? else { return Ok(None) };
        writer.close().map_err(failed)?;
        file.check_unchanged(&handle)?;
        let columns = columns.iter().enumerate();
        let columns = columns.map(|(column, written)| plan.report(column, written, &path.to_string_lossy()));
        Ok(Some(columns.collect()))
    }

    /// Encodes chunks with all threads and appends them in this one.
    fn write_row_groups(
        &self,
        plan: &FilePlan<'_>,
        writer: &mut SerializedFileWriter<File>,
        failed: &dyn Fn(ParquetError) -> Error,
    ) -> Result<Option<Vec<Written>>> {
        let encoded = Encoded::default();
        let next_chunk = Mutex::new(0);
        let encode = || {
            while let Some((number, grant)) = self.next_chunk(plan, &next_chunk)? {
                let column = number % plan.choices.len();
                let task = ChunkTask {
                    rows: plan.row_groups[number / plan.choices.len()].clone(),
                    column,
                    properties: plan.properties[column].clone(),
                    rows_done: &self.state.cells_done,
                    stop: &self.stop,
                };
                let Some(chunk) = encode_chunk(plan.source, &task, grant)? else { break };
                lock_whole(&encoded.chunks).insert(number, chunk);
                encoded.arrived.notify_all();
            }
            Ok(())
        };
        thread::scope(|scope| {
            let encoding = scope.spawn(|| run_threads(self.means.threads, &self.stop, &encode));
            // An encoder would wait for ever for memory that is never given back.
            let stopping = self.stop.clone().drop_guard();
            let appended = self.append(plan, writer, &encoded, failed)?;
            stopping.disarm();
            // What they fail with is why nothing could be appended.
            encoding.join().unwrap_or_else(|panic| Err(from_panic(panic.as_ref())))?;
            Ok(appended)
        })
    }

    /// The next chunk to be encoded, in the order in which they are appended, with memory for it.
    fn next_chunk(&self, plan: &FilePlan<'_>, next: &Mutex<usize>) -> Result<Option<(usize, Grant)>> {
        // Held while this one waits for memory, so that no later chunk gets it.
        let mut next = lock_whole(next);
        let number = *next;
        let Some(rows) = plan.row_groups.get(number / plan.choices.len()) else { return Ok(None) };
        let row_bytes = plan.choices[number % plan.choices.len()].row_bytes;
        let bytes = row_bytes * (rows.end - rows.start) / 100 * RESERVE_PERCENT + CHUNK_OVERHEAD_BYTES;
        let Some(grant) = self.means.admission.admit(bytes, &self.stop)? else { return Ok(None) };
        *next += 1;
        Ok(Some((number, grant)))
    }

    fn append(
        &self,
        plan: &FilePlan<'_>,
        writer: &mut SerializedFileWriter<File>,
        encoded: &Encoded,
        failed: &dyn Fn(ParquetError) -> Error,
    ) -> Result<Option<Vec<Written>>> {
        let column_count = plan.choices.len();
        let mut columns: Vec<Written> = (0..column_count).map(|_| Written::default()).collect();
        for row_group in 0..plan.row_groups.len() {
            let mut target = writer.next_row_group().map_err(failed)?;
            for (column, written) in columns.iter_mut().enumerate() {
                let number = row_group * column_count + column;
                let Some(EncodedChunk { bytes, close, grant }) = self.wait_for(encoded, number) else {
                    return Ok(None);
                };
                written.add(&close);
                target.append_column(&bytes, close).map_err(failed)?;
                drop((bytes, grant));
            }
            target.close().map_err(failed)?;
        }
        Ok(Some(columns))
    }

    /// Waits for a chunk; `None` if the run has stopped.
    fn wait_for(&self, encoded: &Encoded, number: usize) -> Option<EncodedChunk> {
        let mut chunks = lock_whole(&encoded.chunks);
        loop {
            if let Some(chunk) = chunks.remove(&number) {
                return Some(chunk);
            }
            if self.stop.is_cancelled() {
                return None;
            }
            chunks = whole(encoded.arrived.wait_timeout(chunks, WAIT)).0;
        }
    }
}

impl FilePlan<'_> {
    fn report(&self, column: usize, written: &Written, file: &str) -> OptimizedColumn {
        let choice = &self.choices[column];
        let groups = self.source.metadata.row_groups().iter();
        let encodings: Vec<&str> = written.encodings.iter().map(String::as_str).collect();
        OptimizedColumn {
            file: file.to_owned(),
            column: self.source.column(column).path().string(),
            encoding: if encodings.is_empty() { choice.form.encoding_name() } else { encodings.join(", ") },
            compression: choice.form.compression_name(),
            row_groups: self.row_groups.len() as u64,
            pages: written.pages.unwrap_or(0),
            bytes_before: groups
                .map(|group| u64::try_from(group.column(column).compressed_size()).unwrap_or(0))
                .sum(),
            bytes_after: written.bytes,
            reason: choice.reason.clone(),
        }
    }
}

impl Written {
    fn add(&mut self, close: &ColumnCloseResult) {
        self.bytes += u64::try_from(close.metadata.compressed_size()).unwrap_or(0);
        let pages = close.offset_index.as_ref().map_or(0, |index| index.page_locations.len() as u64);
        self.pages = Some(self.pages.map_or(pages, |fewest| fewest.min(pages)));
        for pages in close.metadata.page_encoding_stats().into_iter().flatten() {
            if pages.page_type != parquet::basic::PageType::DICTIONARY_PAGE {
                self.encodings.insert(pages.encoding.to_string());
            }
        }
    }
}

/// Row groups of about the same number of rows, and no more than asked for or than memory allows.
fn row_groups(source: &ParquetSource<FileBytes>, row_group_rows: u64, memory_bytes: u64) -> Vec<Range<u64>> {
    let chunk_bytes_max = CHUNK_BYTES_MAX.min(memory_bytes / CHUNK_MEMORY_PART);
    let row_bytes = (0..source.column_count()).map(|column| source.row_bytes(column)).max().unwrap_or(0);
    let most = row_group_rows.min(chunk_bytes_max / row_bytes.max(1)).max(1);
    let row_count = source.row_count();
    let group_count = row_count.div_ceil(most);
    let start = |group: u64| {
        let start = u128::from(row_count) * u128::from(group) / u128::from(group_count.max(1));
        u64::try_from(start).unwrap_or(row_count)
    };
    (0..group_count).map(|group| start(group)..start(group + 1)).collect()
}

/// By what the rows of every row group are sorted: as the source says, where each comes from one of its own.
fn kept_sorting(metadata: &ParquetMetaData, row_groups: &[Range<u64>]) -> Option<Vec<SortingColumn>> {
    let first = metadata.row_groups().first()?.sorting_columns()?;
    if metadata.row_groups().iter().any(|group| group.sorting_columns() != Some(first)) {
        return None;
    }
    let mut end = 0;
    let ends: Vec<u64> = metadata
        .row_groups()
        .iter()
        .map(|group| {
            end += u64::try_from(group.num_rows()).unwrap_or(0);
            end
        })
        .collect();
    let is_within_one = |rows: &Range<u64>| {
        let place = ends.partition_point(|end| *end <= rows.start);
        ends.get(place).is_some_and(|end| rows.end <= *end)
    };
    row_groups.iter().all(is_within_one).then(|| first.clone())
}
