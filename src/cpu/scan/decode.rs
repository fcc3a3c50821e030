//! Bytes of column chunks into arrays.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, GenericByteViewArray, MAX_INLINE_VIEW_LEN, RecordBatch},
    compute::nullif,
    datatypes::{ByteViewType, DataType},
};
use bytes::Bytes;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection, RowSelector},
        parquet_to_arrow_field_levels,
    },
    basic::Type as PhysicalType,
    file::metadata::ColumnChunkMetaData,
};
use pystachio_files::{
    FieldPlace, check_pages, chunk_range, corrupt_file,
    decoding_panics::{NOT_DECODABLE, decode_guarded},
    from_parquet,
};
use pystachio_plan::{Error, Result};

use crate::error::{from_arrow, from_datafusion};

use super::{
    pages::{ChunkBytes, PageMemory, RowGroupPages, VALUE_BYTES, batch_share},
    table::{ScanFile, ScanTable},
};

/// A reader that is to skip so many batches begins anew at the row after them.
const SKIPPED_BATCHES_MIN: usize = 4;

/// The rows of a row group that a reader reads, and in how many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRows {
    pub(crate) row_group: usize,
    /// Those before it are skipped, if need be whole pages of them.
    pub(crate) first_row: usize,
    pub(crate) batch_rows: usize,
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
    next_row: usize,
    rows_left: usize,
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
        let ReadRows { row_group, first_row, batch_rows } = rows;
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
        let chunks = read_chunks(file, row_group, &leaves)?;
        let bytes_read = chunks.iter().map(ChunkBytes::bytes).sum();
        let batch_rows = batch_rows.min(row_count.max(1));
        let expected_bytes = chunks.iter().map(|chunk| chunk.expected_bytes(batch_rows, row_count)).sum();
        let pages =
            RowGroupPages { footer: file.file.footer.clone(), row_group, chunks, memory: memory.clone() };
        let reader = read_pages(file, &pages, &leaves, first_row, batch_rows)?;
        let (columns, rows_left) = (columns.to_vec(), row_count.saturating_sub(first_row));
        Ok(Self {
            reader,
            pages,
            leaves,
            batch_rows,
            ways,
            columns,
            next_row: first_row,
            rows_left,
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
        let skipped = row.saturating_sub(self.next_row);
        if skipped >= SKIPPED_BATCHES_MIN * self.batch_rows {
            let memory = &self.pages.memory;
            memory.begin(self.bytes_read).map_err(|error| from_datafusion(&error))?;
            self.reader = read_pages(file, &self.pages, &self.leaves, row, self.batch_rows)?;
            self.next_row = row;
            self.rows_left = self.rows_left.saturating_sub(skipped);
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
        self.rows_left == 0
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
                    let made = file.made(*column, self.pages.row_group, first_row..self.next_row)?;
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
            if self.rows_left > 0 {
                return Err(self.too_few_values(file));
            }
            return Ok(None);
        };
        let batch = batch.map_err(|error| self.corrupt(file, &reason(&error)))?;
        self.next_row = self.next_row.saturating_add(batch.num_rows());
        self.rows_left = self
            .rows_left
            .checked_sub(batch.num_rows())
            .ok_or_else(|| self.corrupt(file, "a column has more values than its row group has rows"))?;
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

/// A reader of the pages of some leaves from a row on; pages before it are skipped.
fn read_pages(
    file: &ScanFile,
    pages: &RowGroupPages,
    leaves: &[usize],
    first_row: usize,
    batch_rows: usize,
) -> Result<ParquetRecordBatchReader> {
    let selection = (first_row > 0).then(|| {
        let rows_left = pages.num_rows().saturating_sub(first_row);
        RowSelection::from(vec![RowSelector::skip(first_row), RowSelector::select(rows_left)])
    });
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

/// Where the chunks of declared columns are in the file.
pub(super) fn chunk_ranges(file: &ScanFile, row_group: usize, columns: &[usize]) -> Vec<(u64, u64)> {
    chunks_of(file, row_group, columns).filter_map(chunk_range).collect()
}

/// Reads the chunks of some leaves, ascending, and checks their pages' headers. Blocks.
fn read_chunks(file: &ScanFile, row_group: usize, leaves: &[usize]) -> Result<Vec<ChunkBytes>> {
    let handle = file.file.handle()?;
    let metadata = file.footer().metadata().row_group(row_group);
    let row_count = u64::try_from(metadata.num_rows()).unwrap_or(0);
    // All at once: of an object they are fewer and parallel requests.
    let _pin = file.file.fetch(leaves.iter().filter_map(|leaf| chunk_range(metadata.column(*leaf))))?;
    let mut chunks = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let column = metadata.column(*leaf);
        let range = chunk_range(column)
            .and_then(|(start, chunk_bytes)| Some((start, usize::try_from(chunk_bytes).ok()?)));
        let Some((start, chunk_bytes)) = range else {
            return Err(corrupt(file, "the footer gives a column chunk a negative place or size"));
        };
        let bytes: Bytes = file.file.read_range(&handle, start, chunk_bytes)?;
        let pages = check_pages(&bytes, column, row_count).map_err(|(page, reason)| {
            corrupt(file, &format!("column \"{}\", page {page}: {reason}", column.column_path().string()))
        })?;
        chunks.push(ChunkBytes { leaf: *leaf, start, bytes, pages });
    }
    file.file.check_unchanged(&handle)?;
    Ok(chunks)
}
