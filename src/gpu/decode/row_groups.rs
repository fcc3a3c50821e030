//! Decodes the columns of row groups, with one launch of each kernel.

use std::sync::Arc;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    chunk_decoder::{ChunkDecoder, ChunkTarget, ScratchSpace},
    chunk_plan::ChunkPlan,
    column_chunk::{ColumnSource, EncodedColumnChunk, check_column},
    column_memory::ColumnMemory,
    fault::ColumnNames,
    load::{EncodedBytes, ResidentChunk},
    page_batch::PageBatch,
    page_map::ChunkExtent,
    row_selection::RowSelection,
};
use crate::{
    device::{AnyColumn, Buffer, CellType, Column},
    operation::{Queue, Status},
};

/// The status, as words, in front of the counts of NULLs.
const STATUS_WORDS: usize = size_of::<Status>() / size_of::<u32>();

/// Decodes one column chunk and waits for it: [`decode_row_group`] of one column.
///
/// # Errors
///
/// Errors of [`decode_row_group`].
pub fn decode_column_chunk(
    queue: &Queue,
    chunk: &EncodedColumnChunk<'_>,
    row_count: usize,
) -> Result<Column> {
    let columns = decode_row_group(queue, std::slice::from_ref(chunk), row_count)?;
    columns.into_iter().next().ok_or_else(|| Error::internal("a chunk was decoded into no column"))
}

/// Decodes chunks of one row group and waits for them: one column a chunk, in their order.
///
/// # Errors
///
/// - `NotSupported`: a form that no kernel reads, naming the column; the CPU engine reads it.
/// - `FileCorrupt`, naming file, column and page.
/// - `NullNotAllowed`, `StringTooLong`, `NumericOutOfRange`, `DatetimeOutOfRange`: a value outside
///   of the declared type
/// - `OutOfMemory`, `Device`.
pub fn decode_row_group(
    queue: &Queue,
    chunks: &[EncodedColumnChunk<'_>],
    row_count: usize,
) -> Result<Vec<Column>> {
    let rows = row_count_of(row_count)?;
    for chunk in chunks {
        check_column(chunk.metadata.column_descr(), chunk.column)?;
    }
    let sources: Vec<ColumnSource<'_>> = chunks.iter().map(EncodedColumnChunk::source).collect();
    let extents: Vec<ChunkExtent> =
        chunks.iter().map(|chunk| ChunkExtent::whole(chunk.bytes.len() as u64, rows)).collect();
    let encoded = chunks.iter().zip(&extents).map(|(chunk, extent)| EncodedBytes::Host(chunk.bytes, extent));
    let load = queue.load_chunks(sources.iter().zip(encoded).collect())?;
    let request =
        |(source, chunk)| ColumnRequest { chunks: vec![ChunkRequest { source, chunk }], as_codes: false };
    let requests: Vec<_> = sources.iter().zip(load.chunks().iter().map(Arc::as_ref)).map(request).collect();
    let rows = RowSelection::range(0..rows);
    let pending = queue.decode_columns(&requests, &[&rows], row_count);
    // A fault in a page's compression is reported before faults in the values that it yields.
    load.wait_chunks()?;
    pending?.wait_columns()
}

fn row_count_of(row_count: usize) -> Result<u32> {
    u32::try_from(row_count).map_err(|_| {
        Error::new(ErrorKind::NotSupported, format!("a row group has too many rows: row_count={row_count}"))
    })
}

/// Waits, and returns the number of NULLs of each column, or the fault of a value or a page.
type WaitDecoded = Box<dyn FnOnce() -> Result<Vec<u32>> + Send>;

/// A column to be decoded: a chunk for each of some row groups, in the order of their rows.
pub struct ColumnRequest<'a> {
    /// One a row group; at least one.
    pub chunks: Vec<ChunkRequest<'a>>,
    /// Whether rows become indices into the dictionaries, which must contain all values
    /// ([`ResidentChunk::dictionary_entries`]).
    pub as_codes: bool,
}

/// A chunk to be decoded.
#[derive(Clone, Copy)]
pub struct ChunkRequest<'a> {
    /// Its metadata.
    pub source: &'a ColumnSource<'a>,
    /// Its pages.
    pub chunk: &'a ResidentChunk,
}

/// Columns whose decoding is enqueued.
pub struct PendingColumns {
    columns: Vec<AnyColumn>,
    /// Numbers of decoded data pages, and of those without a wanted row.
    pages: PageCounts,
    wait: WaitDecoded,
}

/// Data pages of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Decoded.
    pub decoded: u64,
    /// Not decoded, without a wanted row.
    pub skipped: u64,
}

impl PageCounts {
    /// Those of both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self { decoded: self.decoded + other.decoded, skipped: self.skipped + other.skipped }
    }
}

impl PendingColumns {
    /// No columns.
    pub fn none() -> Self {
        let (columns, pages) = Default::default();
        Self { columns, pages, wait: Box::new(|| Ok(Vec::new())) }
    }

    /// The same with one more column, which is not decoded, at a place among them.
    #[must_use]
    pub fn with_column(mut self, place: usize, mut column: AnyColumn) -> Self {
        // Its validity stays as it is.
        let null_count = column.values_mut().validity.is_some().into();
        self.columns.insert(place, column);
        let wait = self.wait;
        self.wait = Box::new(move || {
            let mut null_counts = wait()?;
            null_counts.insert(place, null_count);
            Ok(null_counts)
        });
        self
    }

    /// Bytes of a row in all columns.
    pub fn row_bytes(&self) -> u64 {
        self.columns.iter().map(|column| u64::from(column.row_bytes())).sum()
    }

    /// Replaces columns of cells by copies of some of their rows, which are enqueued on the same
    /// stream. [`Self::wait_columns`] then returns the copies. The addresses of text are known only
    /// after the wait.
    ///
    /// # Errors
    ///
    /// Errors of `copy`.
    pub fn map_columns(mut self, copy: impl FnOnce(&[&Column]) -> Result<Vec<Column>>) -> Result<Self> {
        let cells = self.columns.iter().filter_map(|column| match column {
            AnyColumn::Cells(cells) => Some(cells),
            AnyColumn::Codes(_) => None,
        });
        let mut copied = copy(&cells.collect::<Vec<_>>())?.into_iter();
        for column in &mut self.columns {
            if let AnyColumn::Cells(cells) = column {
                *cells = copied.next().ok_or_else(|| Error::internal("a column that was not copied"))?;
            }
        }
        Ok(self)
    }

    /// The number of decoded data pages of all columns.
    pub fn pages(&self) -> PageCounts {
        self.pages
    }

    /// Waits for columns, all of which have cells.
    ///
    /// # Errors
    ///
    /// Errors of [`decode_row_group`].
    pub fn wait_columns(self) -> Result<Vec<Column>> {
        let cells = |column| match column {
            AnyColumn::Cells(cells) => Ok(cells),
            AnyColumn::Codes(_) => Err(Error::internal("codes where cells were wanted")),
        };
        self.wait_decoded()?.into_iter().map(cells).collect()
    }

    /// Waits for the columns. Copies by codes must not be enqueued before: a corrupt page may leave
    /// any codes.
    ///
    /// # Errors
    ///
    /// Errors of [`decode_row_group`].
    pub fn wait_decoded(mut self) -> Result<Vec<AnyColumn>> {
        let null_counts = (self.wait)()?;
        for (column, null_count) in self.columns.iter_mut().zip(null_counts) {
            if null_count == 0 {
                column.values_mut().validity = None;
            }
        }
        Ok(self.columns)
    }
}

impl Queue {
    /// Enqueues the decoding of some rows of resident chunks, each as its column is declared. The
    /// rows of the row groups lie one after another in the columns, as their selections say. Pages
    /// without such rows are skipped. Waits only if a chunk has pages of DELTA_BYTE_ARRAY.
    ///
    /// # Shapes
    ///
    /// `rows`: a selection for each row group, with places in the columns (see
    /// [`RowSelection::starting_at`]). One column a request, each with `row_count` rows, as cells
    /// or as codes. Rows outside of all selections have no meaning.
    ///
    /// # Errors
    ///
    /// Those of [`decode_row_group`] that do not depend on values.
    pub fn decode_columns<'a>(
        &self,
        requests: &[ColumnRequest<'a>],
        rows: &[&'a RowSelection],
        row_count: usize,
    ) -> Result<PendingColumns> {
        if requests.is_empty() {
            return Ok(PendingColumns::none());
        }
        let memory = (self.memory(), self.stream());
        let plans = requests.iter().map(|request| request.plans(rows)).collect::<Result<Vec<_>>>()?;
        let all_plans = || plans.iter().flatten();
        // The status, a count of NULLs for each chunk, and a byte for each entry of dictionaries.
        let counts_bytes = ((STATUS_WORDS + all_plans().count()) * 4) as u64;
        let fault_bytes: u64 = all_plans().map(ChunkPlan::entry_count).sum();
        let outcome = memory.0.allocate(counts_bytes + fault_bytes, memory.1)?;
        memory.0.fill(&outcome, 0, memory.1)?;
        let scratch_bytes: u64 = all_plans().map(ChunkPlan::scratch_bytes).sum();
        let scratch = memory.0.allocate(scratch_bytes.max(1), memory.1)?;
        let mut space = ScratchSpace::of(&scratch);
        let mut batch = PageBatch::default();
        let mut memories = Vec::with_capacity(requests.len());
        let mut column_of = Vec::new();
        let mut faults = outcome.address() + counts_bytes;
        for (request, plans) in requests.iter().zip(&plans) {
            let (column, targets) = ColumnMemory::allocate(memory, plans, request.as_codes, row_count)?;
            for (plan, target) in plans.iter().zip(targets) {
                let number = column_of.len();
                let null_count = outcome.address() + ((STATUS_WORDS + number) * 4) as u64;
                let target = ChunkTarget { faults, null_count, ..target };
                ChunkDecoder { plan, number, target, batch: &mut batch, space: &mut space }.add()?;
                faults += plan.entry_count();
                column_of.push(memories.len());
            }
            memories.push(column);
        }
        let built = batch.launch(self, outcome.address())?;
        // Dictionaries that only kernels read; until those are enqueued.
        let mut dictionaries = Vec::new();
        let into_column =
            |(plans, memory): (&Vec<_>, ColumnMemory)| memory.into_column(plans, &mut dictionaries);
        let mut columns = plans.iter().zip(memories).map(into_column).collect::<Result<Vec<_>>>()?;
        for built in built {
            let column = column_of.get(built.chunk).and_then(|column| columns.get_mut(*column));
            if let Some(column) = column.map(AnyColumn::values_mut)
                && column.cell_type == CellType::String
            {
                column.strings.push(built.buffer);
            } else {
                dictionaries.push(built.buffer);
            }
        }
        for column in &columns {
            // A dictionary's entry for NULL is evaluated with the others even if no row turns out
            // to be NULL: it is and stays all zeroes.
            if let AnyColumn::Cells(cells) = column {
                self.poison_nulls(cells, row_count);
            }
        }
        let pages = all_plans().map(ChunkPlan::page_counts).fold(PageCounts::default(), PageCounts::plus);
        let names: Vec<ColumnNames> = all_plans().map(|plan| plan.names.clone()).collect();
        let (queue, column_count) = (self.clone(), columns.len());
        let wait: WaitDecoded = Box::new(move || {
            let chunk_nulls = null_counts(&queue, &outcome, &batch, &names)?;
            let mut null_counts = vec![0u32; column_count];
            for (null_count, column) in chunk_nulls.into_iter().zip(column_of) {
                // There are no more rows than 32 bits can number.
                null_counts[column] += null_count;
            }
            Ok(null_counts)
        });
        Ok(PendingColumns { columns, pages, wait })
    }
}

impl<'a> ColumnRequest<'a> {
    fn plans(&self, rows: &[&'a RowSelection]) -> Result<Vec<ChunkPlan<'a>>> {
        if self.chunks.len() != rows.len() {
            return Err(Error::internal("a column has not a chunk for each row group"));
        }
        let plan = |(request, rows): (&ChunkRequest<'a>, &&'a RowSelection)| {
            ChunkPlan::new(request.source, request.chunk, rows)
        };
        self.chunks.iter().zip(rows).map(plan).collect()
    }
}

/// Waits, and returns the counts of NULLs; or turns the kernels' reports into an error.
fn null_counts(
    queue: &Queue,
    outcome: &Buffer,
    batch: &PageBatch,
    names: &[ColumnNames],
) -> Result<Vec<u32>> {
    let mut words: Vec<u32> = queue.download(outcome, STATUS_WORDS + names.len())?;
    let null_counts = words.split_off(STATUS_WORDS);
    let status = Status { code: words[0], detail: words[1], ..Status::default() };
    if status.code == 0 {
        return Ok(null_counts);
    }
    let origin = batch.origin(status.detail);
    match origin.and_then(|origin| Some((origin, names.get(origin.chunk)?))) {
        Some((origin, names)) => Err(names.error_of(status, origin.page)),
        None => Err(Error::internal(format!("a kernel reported an unknown page: {status:?}"))),
    }
}
