//! The columns of a row group, decoded with one launch of each kernel.

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    chunk_decoder::ChunkDecoder,
    chunk_plan::ChunkPlan,
    column_chunk::{ColumnSource, EncodedColumnChunk, check_column},
    fault::ColumnNames,
    load::{EncodedBytes, ResidentChunk, load_chunks},
    page_batch::PageBatch,
    page_map::ChunkExtent,
    row_selection::RowSelection,
};
use crate::device::{Buffer, CellType, Column, DeviceMemory, Stream, abi::Status};

/// The status, as words, in front of the counts of NULLs.
const STATUS_WORDS: usize = 2;

/// Decodes one column chunk and waits for it: [`decode_row_group`] of one column.
///
/// # Errors
///
/// As of [`decode_row_group`].
pub fn decode_column_chunk(
    memory: &DeviceMemory,
    chunk: &EncodedColumnChunk<'_>,
    row_count: usize,
    stream: Stream,
) -> Result<Column> {
    let columns = decode_row_group(memory, std::slice::from_ref(chunk), row_count, stream)?;
    columns.into_iter().next().ok_or_else(|| Error::internal("a chunk was decoded into no column"))
}

/// Decodes chunks of one row group and waits for them: one column a chunk, in their order.
///
/// # Errors
///
/// - `NotSupported`: a form that no kernel reads, naming the column; the CPU engine reads it.
/// - `FileCorrupt`, naming file, column and page.
/// - `NullNotAllowed`, `StringTooLong`, `NumericOutOfRange`, `DatetimeOutOfRange`: a value that the column
///   as it is declared can't hold.
/// - `OutOfMemory`, `Device`.
pub fn decode_row_group(
    memory: &DeviceMemory,
    chunks: &[EncodedColumnChunk<'_>],
    row_count: usize,
    stream: Stream,
) -> Result<Vec<Column>> {
    let rows = row_count_of(row_count)?;
    for chunk in chunks {
        check_column(chunk.metadata.column_descr(), chunk.column)?;
    }
    let sources: Vec<ColumnSource<'_>> = chunks.iter().map(EncodedColumnChunk::source).collect();
    let extents: Vec<ChunkExtent> =
        chunks.iter().map(|chunk| ChunkExtent::whole(chunk.bytes.len() as u64, rows)).collect();
    let encoded = chunks.iter().zip(&extents).map(|(chunk, extent)| EncodedBytes::Host(chunk.bytes, extent));
    let load = load_chunks(memory, sources.iter().zip(encoded).collect(), stream)?;
    let requests: Vec<_> = sources.iter().zip(load.chunks()).map(|(s, chunk)| (s, chunk.as_ref())).collect();
    let pending = PendingRowGroup::start(memory, &requests, &RowSelection::range(0..rows), stream);
    // What is wrong with a page's compression comes before what its values then seem to be.
    load.wait_chunks()?;
    pending?.wait_columns()
}

fn row_count_of(row_count: usize) -> Result<u32> {
    u32::try_from(row_count).map_err(|_| {
        Error::new(ErrorKind::NotSupported, format!("a row group has too many rows: row_count={row_count}"))
    })
}

/// A row group whose decoding is enqueued.
pub struct PendingRowGroup {
    memory: DeviceMemory,
    stream: Stream,
    /// The status and, for each chunk, its count of NULLs; absent if there are no chunks.
    outcome: Option<Buffer>,
    batch: PageBatch,
    columns: Vec<Column>,
    names: Vec<ColumnNames>,
    /// Data pages that are decoded, and those that have no row that is wanted.
    pages: PageCounts,
}

/// Data pages of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Decoded.
    pub decoded: u64,
    /// Not decoded: no row of theirs is wanted.
    pub skipped: u64,
}

impl PendingRowGroup {
    /// Enqueues the decoding of some rows of resident chunks, each as it is declared. Pages without such rows are
    /// not looked at.
    ///
    /// Waits for the stream only if a chunk has pages of DELTA_BYTE_ARRAY.
    ///
    /// # Shapes
    ///
    /// Each column has the selection's rows. Those that a narrowed selection leaves out have no meaning.
    ///
    /// # Errors
    ///
    /// Of [`decode_row_group`], those that need no values.
    pub fn start(
        memory: &DeviceMemory,
        chunks: &[(&ColumnSource<'_>, &ResidentChunk)],
        rows: &RowSelection,
        stream: Stream,
    ) -> Result<Self> {
        if chunks.is_empty() {
            return Ok(Self::nothing(memory, stream));
        }
        let outcome = memory.allocate_zeroed(((STATUS_WORDS + chunks.len()) * 4) as u64, stream)?;
        let plans =
            chunks.iter().map(|(source, chunk)| ChunkPlan::new(source, chunk)).collect::<Result<Vec<_>>>()?;
        let mut batch = PageBatch::default();
        let mut columns = Vec::with_capacity(chunks.len());
        let mut pages = PageCounts::default();
        // Until the kernels are enqueued.
        let mut scratch = Vec::new();
        for (number, plan) in plans.iter().enumerate() {
            let mut decoder = ChunkDecoder {
                memory,
                stream,
                plan,
                number,
                null_count: outcome.address() + ((STATUS_WORDS + number) * 4) as u64,
                batch: &mut batch,
                scratch: &mut scratch,
                pages: &mut pages,
            };
            columns.push(decoder.add(rows)?);
        }
        for built in batch.launch(memory, outcome.address(), stream)? {
            if let Some(column) = columns.get_mut(built.chunk)
                && column.cell_type == CellType::String
            {
                column.strings.push(built.buffer);
            } else {
                scratch.push(built.buffer);
            }
        }
        let names = plans.into_iter().map(|plan| plan.names).collect();
        Ok(Self { memory: memory.clone(), stream, outcome: Some(outcome), batch, columns, names, pages })
    }

    fn nothing(memory: &DeviceMemory, stream: Stream) -> Self {
        Self {
            memory: memory.clone(),
            stream,
            outcome: None,
            batch: PageBatch::default(),
            columns: Vec::new(),
            names: Vec::new(),
            pages: PageCounts::default(),
        }
    }

    /// The columns, which what is enqueued on the same stream may copy. Where text points to is known only when
    /// they have been waited for.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Puts other columns in the places of these: copies of some of their rows, which are enqueued on the same
    /// stream. They are what [`PendingRowGroup::wait_columns`] gives.
    ///
    /// # Errors
    ///
    /// Those of `copy`.
    pub fn map_columns(mut self, copy: impl FnMut(&Column) -> Result<Column>) -> Result<Self> {
        self.columns = self.columns.iter().map(copy).collect::<Result<_>>()?;
        Ok(self)
    }

    /// How many data pages are decoded, of all columns together.
    pub fn pages(&self) -> PageCounts {
        self.pages
    }

    /// Waits for the columns.
    ///
    /// # Errors
    ///
    /// As of [`decode_row_group`].
    pub fn wait_columns(mut self) -> Result<Vec<Column>> {
        let Some(outcome) = &self.outcome else { return Ok(self.columns) };
        let words: Vec<u32> =
            self.memory.download(outcome, STATUS_WORDS + self.columns.len(), self.stream)?;
        let (status, null_counts) = words.split_at(STATUS_WORDS);
        let status = Status { code: status[0], detail: status[1] };
        if status.code != 0 {
            return Err(self.error_of(status));
        }
        for (column, null_count) in self.columns.iter_mut().zip(null_counts) {
            if *null_count == 0 {
                column.validity = None;
            }
        }
        Ok(self.columns)
    }

    fn error_of(&self, status: Status) -> Error {
        let origin = self.batch.origin(status.detail);
        let names = origin.and_then(|origin| self.names.get(origin.chunk));
        match (origin, names) {
            (Some(origin), Some(names)) => names.error_of(status, origin.page),
            _ => Error::internal(format!("a kernel reported an unknown page: {status:?}")),
        }
    }
}
