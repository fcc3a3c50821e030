//! Bytes of column chunks into arrays.

use std::sync::Arc;

use arrow::array::ArrayRef;
use bytes::Bytes;
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReader, parquet_to_arrow_field_levels};
use pystachio_files::{
    check_pages, chunk_range, corrupt_file,
    decoding_panics::{NOT_DECODABLE, decode_guarded},
    from_parquet,
};
use pystachio_plan::{Error, Result};

use super::{
    pages::{ChunkBytes, PageMemory, RowGroupPages},
    table::{ScanFile, ScanTable},
};
use crate::datafusion::execution::memory_pool::MemoryReservation;

/// Reads some columns of one row group, batch by batch. Blocks on the file when it is made, and not
/// after.
pub(crate) struct ColumnReader {
    reader: ParquetRecordBatchReader,
    /// For each column read: its place in the reader's batches.
    places: Vec<usize>,
    columns: Vec<usize>,
    rows_left: usize,
    memory: Arc<PageMemory>,
    /// Bytes read from the file.
    pub(crate) bytes_read: usize,
}

impl ColumnReader {
    /// A reader of declared columns of a row group, in batches of `batch_rows`. Arrays are allocated for
    /// no more rows than there are. What pages decompress to is taken out of `memory` before it is there, and
    /// given back when no reader holds it, or a batch does.
    ///
    /// # Errors
    ///
    /// `FileAccess` if the file has changed, `FileCorrupt`.
    pub(crate) fn try_new(
        file: &ScanFile,
        row_group: usize,
        columns: &[usize],
        batch_rows: usize,
        memory: MemoryReservation,
    ) -> Result<Self> {
        let footer = file.footer();
        let metadata = footer.metadata();
        let roots = roots(file, columns);
        let places = columns
            .iter()
            .filter_map(|column| roots.binary_search(&file.columns[*column].index).ok())
            .collect();
        let rows_left = usize::try_from(metadata.row_group(row_group).num_rows())
            .map_err(|_| corrupt(file, "a row group has a negative number of rows"))?;
        // Leaves have the same numbers for the reader as in the file; columns above them need not.
        let leaves: Vec<usize> = roots.iter().flat_map(|root| footer.leaves(*root)).collect();
        let memory = Arc::new(PageMemory::new(memory));
        let chunks = read_chunks(file, row_group, &leaves)?;
        let bytes_read = chunks.iter().map(ChunkBytes::bytes).sum();
        let pages =
            RowGroupPages { footer: file.file.footer.clone(), row_group, chunks, memory: memory.clone() };
        let build = || {
            let mask = ProjectionMask::leaves(footer.reader.parquet_schema(), leaves);
            let fields = footer.reader.schema().fields();
            let levels = parquet_to_arrow_field_levels(footer.reader.parquet_schema(), mask, Some(fields))?;
            let batch_rows = batch_rows.min(rows_left.max(1));
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &pages, batch_rows, None)
        };
        let reader = decode_guarded(build)
            .ok_or_else(|| corrupt(file, NOT_DECODABLE))?
            .map_err(|error| from_parquet(&file.path, &error))?;
        Ok(Self { reader, places, columns: columns.to_vec(), rows_left, memory, bytes_read })
    }

    /// Bytes that a reader of these columns reads and holds.
    pub(crate) fn bytes_to_read(file: &ScanFile, row_group: usize, columns: &[usize]) -> usize {
        let metadata = file.footer().metadata().row_group(row_group);
        let leaves = roots(file, columns).into_iter().flat_map(|root| file.footer().leaves(root));
        leaves.map(|leaf| usize::try_from(metadata.column(leaf).compressed_size()).unwrap_or(0)).sum()
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
        let batch = decode_guarded(|| self.reader.next());
        if let Some(failure) = self.memory.take_failure() {
            return Err(failure);
        }
        let batch = batch.ok_or_else(|| self.corrupt(file, NOT_DECODABLE))?;
        let Some(batch) = batch else {
            if self.rows_left > 0 {
                return Err(self.corrupt(file, "a column has fewer values than its row group has rows"));
            }
            return Ok(None);
        };
        let batch = batch.map_err(|error| self.corrupt(file, &reason(&error)))?;
        self.memory.keep_current();
        let row_count = batch.num_rows();
        self.rows_left = self
            .rows_left
            .checked_sub(row_count)
            .ok_or_else(|| self.corrupt(file, "a column has more values than its row group has rows"))?;
        let arrays = self
            .columns
            .iter()
            .zip(&self.places)
            .map(|(column, place)| {
                let conversion = &file.columns[*column].conversion;
                conversion.apply(batch.column(*place), table.place(file, *column))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Some((row_count, arrays)))
    }

    /// The error of pages that can't be decoded, which names the column if there is no other.
    fn corrupt(&self, file: &ScanFile, reason: &str) -> Error {
        match self.columns.as_slice() {
            [column] => {
                let field = file.field(*column);
                corrupt(file, &format!("column \"{}\": {reason}", field.name()))
            }
            _ => corrupt(file, reason),
        }
    }
}

/// The file's columns that declared ones are, ascending.
fn roots(file: &ScanFile, columns: &[usize]) -> Vec<usize> {
    let mut roots: Vec<usize> = columns.iter().map(|column| file.columns[*column].index).collect();
    roots.sort_unstable();
    roots.dedup();
    roots
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

/// Reads the chunks of some leaves, ascending, and checks their pages' headers. Blocks.
fn read_chunks(file: &ScanFile, row_group: usize, leaves: &[usize]) -> Result<Vec<ChunkBytes>> {
    let handle = file.file.handle()?;
    let metadata = file.footer().metadata().row_group(row_group);
    let row_count = u64::try_from(metadata.num_rows()).unwrap_or(0);
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
