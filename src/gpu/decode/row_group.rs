//! The columns of a row group, decoded with one launch of each kernel.

use std::sync::Arc;

use pystachio_files::ColumnVariant;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    chunk_decoder::ChunkDecoder,
    chunk_plan::ChunkPlan,
    column_chunk::{ColumnSource, EncodedColumnChunk, check_column},
    fault::ColumnNames,
    load::{DecodedForm, EncodedBytes, KnownGood, ResidentChunk},
    page_batch::PageBatch,
    page_map::ChunkExtent,
    row_selection::RowSelection,
};
use crate::{
    device::{AnyColumn, Buffer, CellType, Column},
    operation::{Queue, Status},
};

/// The status, as words, in front of the counts of NULLs.
const STATUS_WORDS: usize = 2;

/// Decodes one column chunk and waits for it: [`decode_row_group`] of one column.
///
/// # Errors
///
/// As of [`decode_row_group`].
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
/// - `NullNotAllowed`, `StringTooLong`, `NumericOutOfRange`, `DatetimeOutOfRange`: a value that the column
///   as it is declared can't hold.
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
    let request = |(source, chunk)| ChunkRequest { source, chunk, as_codes: false };
    let requests: Vec<_> = sources.iter().zip(load.chunks().iter().map(Arc::as_ref)).map(request).collect();
    let pending = queue.decode_chunks(&requests, &RowSelection::range(0..rows));
    // What is wrong with a page's compression comes before what its values then seem to be.
    load.wait_chunks()?;
    pending?.wait_columns()
}

fn row_count_of(row_count: usize) -> Result<u32> {
    u32::try_from(row_count).map_err(|_| {
        Error::new(ErrorKind::NotSupported, format!("a row group has too many rows: row_count={row_count}"))
    })
}

/// Waits, and says how many NULLs each column has, or what is wrong with a value or a page.
type WaitDecoded = Box<dyn FnOnce() -> Result<Vec<u32>> + Send>;

/// A chunk to be decoded.
#[derive(Clone, Copy)]
pub struct ChunkRequest<'a> {
    /// What is known of it.
    pub source: &'a ColumnSource<'a>,
    /// Its pages.
    pub chunk: &'a ResidentChunk,
    /// Whether its rows become places in its dictionary, which must have all its values
    /// ([`ResidentChunk::dictionary_entries`]).
    pub as_codes: bool,
}

/// A row group whose decoding is enqueued.
pub struct PendingRowGroup {
    columns: Vec<AnyColumn>,
    /// Data pages that are decoded, and those that have no row that is wanted.
    pages: PageCounts,
    wait: WaitDecoded,
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
    /// Bytes of a row in all columns.
    pub fn row_bytes(&self) -> u64 {
        self.columns.iter().map(|column| u64::from(column.row_bytes())).sum()
    }

    /// Puts other columns in the places of those that have cells: copies of some of their rows, which are enqueued on
    /// the same stream. They are what [`PendingRowGroup::wait_columns`] gives. Where text points to is known only when
    /// they have been waited for.
    ///
    /// # Errors
    ///
    /// Those of `copy`.
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

    /// How many data pages are decoded, of all columns together.
    pub fn pages(&self) -> PageCounts {
        self.pages
    }

    /// Waits for columns, all of which have cells.
    ///
    /// # Errors
    ///
    /// As of [`decode_row_group`].
    pub fn wait_columns(self) -> Result<Vec<Column>> {
        let cells = |column| match column {
            AnyColumn::Cells(cells) => Ok(cells),
            AnyColumn::Codes(_) => Err(Error::internal("codes where cells were wanted")),
        };
        self.wait_decoded()?.into_iter().map(cells).collect()
    }

    /// Waits for the columns. What is copied by codes must not be enqueued before: a corrupt page leaves any.
    ///
    /// # Errors
    ///
    /// As of [`decode_row_group`].
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
    /// Enqueues the decoding of some rows of resident chunks, each as its column is declared. Pages without such rows
    /// are not looked at. Waits only if a chunk has pages of DELTA_BYTE_ARRAY.
    ///
    /// # Shapes
    ///
    /// One column a chunk, each with the selection's rows, as cells or as codes. Those that a narrowed selection leaves out
    /// have no meaning.
    ///
    /// # Errors
    ///
    /// Of [`decode_row_group`], those that need no values.
    pub fn decode_chunks<'a>(
        &self,
        chunks: &[ChunkRequest<'a>],
        rows: &RowSelection,
    ) -> Result<PendingRowGroup> {
        if chunks.is_empty() {
            let wait = Box::new(|| Ok(Vec::new()));
            return Ok(PendingRowGroup { columns: Vec::new(), pages: PageCounts::default(), wait });
        }
        let (memory, stream) = (self.memory(), self.stream());
        let forms: Vec<DecodedForm> = chunks
            .iter()
            .map(|request| (ColumnVariant::of(request.source.column), request.as_codes))
            .collect();
        let known =
            chunks.iter().zip(&forms).map(|(request, form)| request.chunk.known_good.null_count(form));
        let known: Option<Vec<u32>> = known.collect();
        // The status and, for each chunk, its count of NULLs. Nobody looks at those of chunks that are known to be good.
        let outcome = memory.allocate(((STATUS_WORDS + chunks.len()) * 4) as u64, stream)?;
        if known.is_none() {
            memory.fill(&outcome, 0, stream)?;
        }
        let plan = |request: &ChunkRequest<'a>| ChunkPlan::new(request.source, request.chunk);
        let plans = chunks.iter().map(plan).collect::<Result<Vec<_>>>()?;
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
                null_count: match known {
                    Some(_) => 0,
                    None => outcome.address() + ((STATUS_WORDS + number) * 4) as u64,
                },
                batch: &mut batch,
                scratch: &mut scratch,
                pages: &mut pages,
            };
            columns.push(match chunks[number].as_codes {
                false => AnyColumn::Cells(decoder.add(rows)?),
                true => AnyColumn::Codes(decoder.add_codes(rows)?),
            });
        }
        for built in batch.launch(self, outcome.address())? {
            if let Some(column) = columns.get_mut(built.chunk).map(AnyColumn::values_mut)
                && column.cell_type == CellType::String
            {
                column.strings.push(built.buffer);
            } else {
                scratch.push(built.buffer);
            }
        }
        for column in &columns {
            // The entry of a dictionary that stands for NULL is evaluated with the others where no row turns out to be NULL: it is
            // all zeroes, and stays so.
            if let AnyColumn::Cells(cells) = column {
                self.spoil_nulls(cells, rows.row_count());
            }
        }
        let wait: WaitDecoded = match known {
            Some(null_counts) => Box::new(move || Ok(null_counts)),
            None => {
                let names: Vec<ColumnNames> = plans.into_iter().map(|plan| plan.names).collect();
                let queue = self.clone();
                let decoded_count = rows.decoded_count();
                let known_good: Vec<Option<Arc<KnownGood>>> = chunks
                    .iter()
                    .map(|request| {
                        (request.chunk.row_count() == decoded_count).then(|| request.chunk.known_good.clone())
                    })
                    .collect();
                Box::new(move || {
                    let null_counts = null_counts(&queue, &outcome, &batch, &names)?;
                    for ((known_good, form), null_count) in
                        known_good.into_iter().zip(forms).zip(&null_counts)
                    {
                        if let Some(known_good) = known_good {
                            known_good.add(form, *null_count);
                        }
                    }
                    Ok(null_counts)
                })
            }
        };
        Ok(PendingRowGroup { columns, pages, wait })
    }
}

/// Waits, and gives the counts of NULLs; or turns what kernels report of pages into an error.
fn null_counts(
    queue: &Queue,
    outcome: &Buffer,
    batch: &PageBatch,
    names: &[ColumnNames],
) -> Result<Vec<u32>> {
    let mut words: Vec<u32> = queue.download(outcome, STATUS_WORDS + names.len())?;
    let null_counts = words.split_off(STATUS_WORDS);
    let status = Status { code: words[0], detail: words[1] };
    if status.code == 0 {
        return Ok(null_counts);
    }
    let origin = batch.origin(status.detail);
    match origin.and_then(|origin| Some((origin, names.get(origin.chunk)?))) {
        Some((origin, names)) => Err(names.error_of(status, origin.page)),
        None => Err(Error::internal(format!("a kernel reported an unknown page: {status:?}"))),
    }
}
