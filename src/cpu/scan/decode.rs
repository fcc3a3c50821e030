//! Bytes of column chunks into arrays.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, GenericByteViewArray, MAX_INLINE_VIEW_LEN, RecordBatch},
    compute::nullif,
    datatypes::{ByteViewType, DataType},
};
use bytes::Bytes;
use parquet::{
    arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReader, parquet_to_arrow_field_levels},
    basic::Type as PhysicalType,
    file::metadata::ColumnChunkMetaData,
};
use pystachio_files::{
    FieldPlace, FileHandle, PageHeader, PageLocation, PageSize, check_pages, chunk_range, corrupt_file,
    decoding_panics::{NOT_DECODABLE, decode_guarded},
    from_parquet, page_locations,
};
use pystachio_plan::{Error, Result};

use crate::error::{from_arrow, from_datafusion};

use super::{
    pages::{ChunkBytes, PageMemory, RowGroupPages, VALUE_BYTES, batch_share, bytes_from},
    selected_rows::SelectedRows,
    table::{ScanFile, ScanTable},
};

/// A reader that is to skip so many batches begins anew at the row after them.
const SKIPPED_BATCHES_MIN: usize = 4;

/// The rows of a row group that a reader reads, and in how many at once.
#[derive(Clone, Debug)]
pub(crate) struct ReadRows {
    pub(crate) row_group: usize,
    /// Those before it are skipped, if need be whole pages of them.
    pub(crate) first_row: usize,
    pub(crate) batch_rows: usize,
    /// Where these are not all, batches are slices of them.
    pub(crate) selected: Arc<SelectedRows>,
}

/// Reads some columns of one row group, batch by batch. Blocks on the file when it is made, and not
/// after.
pub(crate) struct ColumnReader {
    reader: ParquetRecordBatchReader,
    pages: RowGroupPages,
    leaves: Vec<usize>,
    batch_rows: usize,
    /// For each column read: the way to it in the reader's batches; none of a column that is not stored.
    ways: Vec<Option<Vec<usize>>>,
    columns: Vec<usize>,
    selected: Arc<SelectedRows>,
    next_row: usize,
    /// Bytes read from the file.
    pub(crate) bytes_read: usize,
    /// What pages and a batch will take, about.
    pub(crate) expected_bytes: usize,
}

impl ColumnReader {
    /// A reader of declared columns of a row group. Arrays are allocated for no more rows than there are. What pages
    /// decompress to is taken out of `memory` before it is there, and is not used any more when no reader holds it, or a
    /// batch does.
    ///
    /// # Errors
    ///
    /// `FileAccess` if the file has changed, `FileCorrupt`.
    pub(crate) fn try_new(
        file: &ScanFile,
        columns: &[usize],
        rows: ReadRows,
        memory: &Arc<PageMemory>,
    ) -> Result<Self> {
        let ReadRows { row_group, first_row, batch_rows, selected } = rows;
        let footer = file.footer();
        let metadata = footer.metadata();
        // Leaves have the same numbers for the reader as in the file; columns above them need not.
        let leaves = leaves(file, columns);
        let mut roots: Vec<usize> = fields(file, columns).map(|field| field.column).collect();
        roots.sort_unstable();
        roots.dedup();
        let way = |column: &usize| {
            let field = file.stored(*column)?.field;
            let root = roots.binary_search(&field.column).ok()?;
            Some(std::iter::once(root).chain(footer.way_within(field, &leaves)).collect())
        };
        let ways = columns.iter().map(way).collect();
        let row_count = usize::try_from(metadata.row_group(row_group).num_rows())
            .map_err(|_| corrupt(file, "a row group has a negative number of rows"))?;
        let chunks = read_chunks(file, row_group, &leaves, (&selected, first_row))?;
        let bytes_read = chunks.iter().map(ChunkBytes::bytes).sum();
        let batch_rows = batch_rows.min(row_count.max(1));
        let expected_bytes = chunks.iter().map(|chunk| chunk.expected_bytes(batch_rows, row_count)).sum();
        let pages =
            RowGroupPages { footer: file.file.footer.clone(), row_group, chunks, memory: memory.clone() };
        let reader = read_pages(file, &pages, &leaves, (&selected, first_row), batch_rows)?;
        Ok(Self {
            reader,
            pages,
            leaves,
            batch_rows,
            ways,
            columns: columns.to_vec(),
            next_row: selected.slice(first_row).map_or(row_count, |slice| slice.start),
            selected,
            bytes_read,
            expected_bytes,
        })
    }

    /// Goes on at a row that was not read. A few batches before it are decoded, and many are skipped by whole pages.
    ///
    /// # Errors
    ///
    /// As of [`Self::next`].
    pub(super) fn seek(&mut self, file: &ScanFile, row: usize) -> Result<()> {
        let skipped = self.selected.from(self.next_row).map(|run| run.end.min(row).saturating_sub(run.start));
        if skipped.sum::<usize>() >= SKIPPED_BATCHES_MIN * self.batch_rows {
            let memory = &self.pages.memory;
            memory.begin(self.bytes_read).map_err(|error| from_datafusion(&error))?;
            let rows = (&*self.selected, row);
            self.reader = read_pages(file, &self.pages, &self.leaves, rows, self.batch_rows)?;
            self.next_row = row;
            return Ok(());
        }
        while self.next_row < row {
            if self.read(file)?.is_none() {
                return Err(Error::internal("rows after a row group's last were to be skipped"));
            }
        }
        Ok(())
    }

    /// Whether it has given all rows.
    pub(super) fn is_read(&self) -> bool {
        self.selected.from(self.next_row).next().is_none()
    }

    /// Bytes that a reader of these columns reads and holds.
    pub(crate) fn bytes_to_read(file: &ScanFile, row_group: usize, columns: &[usize]) -> usize {
        let chunks = chunks_of(file, row_group, columns);
        let bytes = chunks.map(|chunk| usize::try_from(chunk.compressed_size()).unwrap_or(0));
        bytes.fold(0, usize::saturating_add)
    }

    /// What these columns take in memory, decoded, as far as the footer says: arrays of text point into their pages.
    pub(crate) fn bytes_decoded(file: &ScanFile, row_group: usize, columns: &[usize]) -> usize {
        let row_count = file.footer().metadata().row_group(row_group).num_rows();
        let value_bytes = usize::try_from(row_count).unwrap_or(0).saturating_mul(VALUE_BYTES);
        let bytes = chunks_of(file, row_group, columns).map(|chunk| match chunk.column_type() {
            PhysicalType::BYTE_ARRAY => {
                let text_bytes = usize::try_from(chunk.uncompressed_size()).unwrap_or(0);
                value_bytes.saturating_add(text_bytes)
            }
            _ => value_bytes,
        });
        bytes.fold(0, usize::saturating_add)
    }

    /// The same for two batches of `batch_rows`: one on its way, and the next.
    pub(crate) fn batch_bytes(
        file: &ScanFile,
        row_group: usize,
        columns: &[usize],
        batch_rows: usize,
    ) -> usize {
        let row_count = file.footer().metadata().row_group(row_group).num_rows();
        let row_count = usize::try_from(row_count).unwrap_or(0);
        let decoded_bytes = Self::bytes_decoded(file, row_group, columns);
        batch_share(decoded_bytes, batch_rows, row_count).saturating_mul(2)
    }

    /// The next batch: one array a column, converted as declared; `None` after the last.
    ///
    /// # Errors
    ///
    /// `FileCorrupt`, `OutOfMemory`, and those of the conversions.
    pub(crate) fn next(
        &mut self,
        table: &ScanTable,
        file: &ScanFile,
    ) -> Result<Option<(usize, Vec<ArrayRef>)>> {
        let first_row = self.next_row;
        let Some(batch) = self.read(file)? else { return Ok(None) };
        let (row_count, memory) = (batch.num_rows(), &self.pages.memory);
        let arrays = self
            .columns
            .iter()
            .zip(&self.ways)
            .map(|(column, way)| match (file.stored(*column), way) {
                (Some(stored), Some(way)) => {
                    let array = array_at(&batch, way)?;
                    let converted = stored.conversion.apply(&array, table.place(file, *column), memory);
                    converted.map(without_unused_buffers)
                }
                _ => {
                    let made = file.made(*column, self.pages.row_group, first_row..first_row + row_count)?;
                    made.ok_or_else(|| Error::internal("a column was not read"))
                }
            })
            .collect::<Result<Vec<_>>>()?;
        memory.keep_batch(&arrays).map_err(|error| from_datafusion(&error))?;
        Ok(Some((row_count, arrays)))
    }

    /// The next rows as the file has them.
    fn read(&mut self, file: &ScanFile) -> Result<Option<RecordBatch>> {
        let batch = decode_guarded(|| self.reader.next());
        if let Some(failure) = self.pages.memory.take_failure() {
            return Err(failure);
        }
        let batch = batch.ok_or_else(|| self.corrupt(file, NOT_DECODABLE))?;
        let Some(batch) = batch else {
            return if self.is_read() { Ok(None) } else { Err(self.too_few_values(file)) };
        };
        let batch = batch.map_err(|error| self.corrupt(file, &reason(&error)))?;
        let run = self.selected.from(self.next_row).next().unwrap_or_default();
        if batch.num_rows() > run.len() {
            return Err(self.corrupt(file, "a column has more values than its row group has rows"));
        }
        let end = self.next_row + batch.num_rows();
        self.next_row = self.selected.from(end).next().map_or(end, |run| run.start);
        Ok(Some(batch))
    }

    /// The error of a file that gives fewer rows than its footer announces.
    pub(super) fn too_few_values(&self, file: &ScanFile) -> Error {
        self.corrupt(file, "a column has fewer values than its row group has rows")
    }

    /// The error of pages that can't be decoded, which names the column if there is no other.
    fn corrupt(&self, file: &ScanFile, reason: &str) -> Error {
        match self.columns.as_slice() {
            [column] => match file.stored(*column) {
                Some(stored) => corrupt(file, &format!("column \"{}\": {reason}", stored.source.column)),
                None => corrupt(file, reason),
            },
            _ => corrupt(file, reason),
        }
    }
}

/// A reader of the pages of some leaves for selected rows from one on; pages without such rows are skipped.
fn read_pages(
    file: &ScanFile,
    pages: &RowGroupPages,
    leaves: &[usize],
    (selected, first_row): (&SelectedRows, usize),
    batch_rows: usize,
) -> Result<ParquetRecordBatchReader> {
    let selection = (first_row > 0 || !selected.is_all()).then(|| selected.selection(first_row));
    let reader = &file.footer().reader;
    let build = || {
        let mask = ProjectionMask::leaves(reader.parquet_schema(), leaves.iter().copied());
        let fields = reader.schema().fields();
        let levels = parquet_to_arrow_field_levels(reader.parquet_schema(), mask, Some(fields))?;
        ParquetRecordBatchReader::try_new_with_row_groups(&levels, pages, batch_rows, selection)
    };
    decode_guarded(build)
        .ok_or_else(|| corrupt(file, NOT_DECODABLE))?
        .map_err(|error| from_parquet(&file.path, &error))
}

/// The chunks of declared columns in a row group.
fn chunks_of<'a>(
    file: &'a ScanFile,
    row_group: usize,
    columns: &[usize],
) -> impl Iterator<Item = &'a ColumnChunkMetaData> {
    let metadata = file.footer().metadata().row_group(row_group);
    leaves(file, columns).into_iter().map(|leaf| metadata.column(leaf))
}

/// The file's fields that declared columns are.
fn fields<'a>(file: &'a ScanFile, columns: &'a [usize]) -> impl Iterator<Item = FieldPlace> + 'a {
    columns.iter().filter_map(|column| file.stored(*column)).map(|stored| stored.field)
}

/// The leaves of declared columns, ascending.
fn leaves(file: &ScanFile, columns: &[usize]) -> Vec<usize> {
    let stored = columns.iter().filter_map(|column| file.stored(*column));
    let mut leaves: Vec<usize> = stored.flat_map(|stored| stored.leaves.iter().copied()).collect();
    leaves.sort_unstable();
    leaves.dedup();
    leaves
}

/// The array without pages that none of its values points into: what compares, hashes and groups texts takes shorter ways then.
fn without_unused_buffers(array: ArrayRef) -> ArrayRef {
    fn without<T: ByteViewType>(array: &GenericByteViewArray<T>) -> Option<ArrayRef> {
        let longest = array.lengths().max().unwrap_or(0);
        let is_unused = !array.data_buffers().is_empty() && longest <= MAX_INLINE_VIEW_LEN;
        is_unused.then(|| Arc::new(array.gc()) as ArrayRef)
    }
    let without = match array.data_type() {
        DataType::Utf8View => without(array.as_string_view()),
        DataType::BinaryView => without(array.as_binary_view()),
        _ => None,
    };
    without.unwrap_or(array)
}

/// The array at the end of a way: a field of structs is NULL where one of them is.
fn array_at(batch: &RecordBatch, way: &[usize]) -> Result<ArrayRef> {
    let missing = || Error::internal("a batch lacks a column");
    let (root, within) = way.split_first().ok_or_else(missing)?;
    let mut array = batch.columns().get(*root).cloned().ok_or_else(missing)?;
    for place in within {
        let record = array.as_struct_opt().ok_or_else(missing)?;
        let field = record.columns().get(*place).cloned().ok_or_else(missing)?;
        array = match record.nulls() {
            Some(nulls) if nulls.null_count() > 0 => {
                let is_null = BooleanArray::new(!nulls.inner(), None);
                nullif(&field, &is_null).map_err(|error| from_arrow(&error))?
            }
            _ => field,
        };
    }
    Ok(array)
}

fn reason(error: &arrow::error::ArrowError) -> String {
    match error {
        arrow::error::ArrowError::ParquetError(message) => message.clone(),
        other => other.to_string(),
    }
}

fn corrupt(file: &ScanFile, reason: &str) -> Error {
    corrupt_file(&file.path, reason)
}

/// Where the pages of declared columns are in the file that have rows of some: those of their chunks, where that is not known.
pub(super) fn page_ranges(
    file: &ScanFile,
    row_group: usize,
    columns: &[usize],
    selected: &SelectedRows,
) -> Vec<(u64, u64)> {
    let metadata = file.footer().metadata().row_group(row_group);
    let ranges = leaves(file, columns).into_iter().flat_map(|leaf| {
        let whole = chunk_range(metadata.column(leaf));
        let parts = PagesRead::of(file, (row_group, leaf), (selected, 0)).map(|pages| pages.ranges());
        parts.unwrap_or_else(|| whole.into_iter().collect())
    });
    ranges.collect()
}

/// The pages of a chunk that have rows which are read.
struct PagesRead {
    /// All of the chunk's.
    locations: Arc<[PageLocation]>,
    /// Of each, whether it is read.
    is_read: Vec<bool>,
    /// The bytes before them: a dictionary, or none.
    dictionary: Range<u64>,
    row_count: u64,
}

impl PagesRead {
    /// `None` if all are read, or their places are not known.
    fn of(
        file: &ScanFile,
        (row_group, leaf): (usize, usize),
        (selected, first_row): (&SelectedRows, usize),
    ) -> Option<Self> {
        if selected.is_all() {
            return None;
        }
        let metadata = file.footer().metadata().row_group(row_group);
        let (start, _) = chunk_range(metadata.column(leaf))?;
        let row_count = u64::try_from(metadata.num_rows()).ok()?;
        let locations = page_locations(&file.file, row_group, leaf)?;
        let dictionary = start..locations.first()?.offset;
        let runs: Vec<Range<usize>> = selected.from(first_row).collect();
        let ends = locations.iter().skip(1).map(|page| page.first_row).chain([row_count]);
        let has_rows = |(page, end): (&PageLocation, u64)| {
            let place = runs.partition_point(|run| run.end as u64 <= page.first_row);
            runs.get(place).is_some_and(|run| (run.start as u64) < end)
        };
        let is_read: Vec<bool> = locations.iter().zip(ends).map(has_rows).collect();
        let leaves_out = is_read.contains(&false);
        leaves_out.then_some(Self { locations, is_read, dictionary, row_count })
    }

    fn read(&self) -> impl Iterator<Item = (usize, PageLocation)> + '_ {
        self.locations.iter().copied().enumerate().filter(|(page, _)| self.is_read[*page])
    }

    /// The ranges of the file that they are in, with the dictionary; those of neighbours are one.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let dictionary = (self.dictionary.start, self.dictionary.end - self.dictionary.start);
        let mut ranges = if dictionary.1 > 0 { vec![dictionary] } else { Vec::new() };
        for (_, page) in self.read() {
            match ranges.last_mut() {
                Some((start, bytes)) if *start + *bytes == page.offset => *bytes += page.page_bytes,
                _ => ranges.push((page.offset, page.page_bytes)),
            }
        }
        ranges
    }

    /// Checks the pages' headers against their places, and says what the pages take.
    fn check(
        &self,
        chunk: &ColumnChunkMetaData,
        bytes_at: impl Fn(u64) -> Option<Bytes>,
    ) -> std::result::Result<Vec<PageSize>, (usize, &'static str)> {
        let has_dictionary = !self.dictionary.is_empty();
        let dictionary = has_dictionary.then_some((0, self.dictionary.start, None));
        let ends = self.locations.iter().skip(1).map(|page| page.first_row).chain([self.row_count]);
        let pages = self.locations.iter().zip(ends).enumerate().map(|(number, (page, end))| {
            let is_read = self.is_read[number];
            (number + usize::from(has_dictionary), page.offset, Some((is_read, page, end - page.first_row)))
        });
        let mut sizes = Vec::with_capacity(self.locations.len() + 1);
        for (number, offset, page) in dictionary.into_iter().chain(pages) {
            if page.is_some_and(|(is_read, ..)| !is_read) {
                sizes.push(PageSize { number, is_dictionary: false, decompressed_bytes: 0 });
                continue;
            }
            let bytes = bytes_at(offset).ok_or((number, NOT_IN_PLACE))?;
            let (header, header_bytes) = PageHeader::parse(&bytes).map_err(|reason| (number, reason))?;
            header.check_sizes(chunk).map_err(|reason| (number, reason))?;
            let page_bytes = header_bytes as u64 + u64::from(header.compressed_bytes);
            let is_in_place = match page {
                // A page of another kind may follow it.
                None => {
                    page_bytes <= self.dictionary.end - self.dictionary.start
                        && header.value_count().is_none()
                }
                Some((_, page, rows)) => {
                    page_bytes == page.page_bytes && header.value_count().map(u64::from) == Some(rows)
                }
            };
            if !is_in_place {
                return Err((number, NOT_IN_PLACE));
            }
            sizes.push(PageSize {
                number,
                is_dictionary: page.is_none(),
                decompressed_bytes: header.decompressed_bytes(chunk),
            });
        }
        Ok(sizes)
    }
}

const NOT_IN_PLACE: &str = "it is not what the offset index says of it";

/// Reads the chunks of some leaves, ascending, and checks their pages' headers: of chunks whose pages have known places, only
/// those with rows that are read. Blocks.
fn read_chunks(
    file: &ScanFile,
    row_group: usize,
    leaves: &[usize],
    rows: (&SelectedRows, usize),
) -> Result<Vec<ChunkBytes>> {
    let handle = file.file.handle()?;
    let metadata = file.footer().metadata().row_group(row_group);
    let row_count = u64::try_from(metadata.num_rows()).unwrap_or(0);
    let mut plans = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let Some(whole) = chunk_range(metadata.column(*leaf)) else {
            return Err(corrupt(file, "the footer gives a column chunk a negative place or size"));
        };
        let pages = PagesRead::of(file, (row_group, *leaf), rows);
        let ranges = pages.as_ref().map_or_else(|| vec![whole], PagesRead::ranges);
        plans.push((*leaf, pages, ranges));
    }
    // All at once: of an object they are fewer and parallel requests.
    let _pin = file.file.fetch(plans.iter().flat_map(|(.., ranges)| ranges.iter().copied()))?;
    let mut chunks = Vec::with_capacity(leaves.len());
    for (leaf, pages, ranges) in plans {
        let column = metadata.column(leaf);
        let parts = read_parts(file, &handle, &ranges)?;
        let in_page = |(page, reason): (usize, &'static str)| {
            corrupt(file, &format!("column \"{}\", page {page}: {reason}", column.column_path().string()))
        };
        let chunk = match pages {
            None => {
                let bytes = parts.first().map_or(&[][..], |(_, bytes)| bytes);
                let sizes = check_pages(bytes, column, row_count).map_err(in_page)?;
                ChunkBytes { leaf, parts, pages: sizes, locations: None }
            }
            Some(pages) => {
                let sizes = pages.check(column, |place| bytes_from(&parts, place)).map_err(in_page)?;
                ChunkBytes { leaf, parts, pages: sizes, locations: Some(pages.locations) }
            }
        };
        chunks.push(chunk);
    }
    file.file.check_unchanged(&handle)?;
    Ok(chunks)
}

fn read_parts(file: &ScanFile, handle: &FileHandle, ranges: &[(u64, u64)]) -> Result<Vec<(u64, Bytes)>> {
    let read = |(start, bytes): &(u64, u64)| {
        let Ok(bytes) = usize::try_from(*bytes) else {
            return Err(corrupt(file, "the footer gives a column chunk a negative place or size"));
        };
        Ok((*start, file.file.read_range(handle, *start, bytes)?))
    };
    ranges.iter().map(read).collect()
}
