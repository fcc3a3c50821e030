//! Bytes of column chunks into arrays.

use std::{
    fs::File,
    io::Read,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow::array::ArrayRef;
use bytes::{Buf, Bytes};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    errors::{ParquetError, Result as ParquetResult},
    file::reader::{ChunkReader, Length},
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::table::{ScanFile, ScanTable};
use pystachio_engine::{decode::check_pages, storage::from_parquet};

/// Reads some columns of one row group, batch by batch. Blocks on the file when it is made, and not
/// after.
pub(crate) struct ColumnReader {
    reader: ParquetRecordBatchReader,
    /// For each column read: its place in the reader's batches.
    places: Vec<usize>,
    columns: Vec<usize>,
    rows_left: usize,
    /// Bytes read from the file.
    pub(crate) bytes_read: usize,
}

impl ColumnReader {
    /// A reader of declared columns of a row group, in batches of `batch_rows`. Arrays are allocated for
    /// no more rows than there are.
    ///
    /// # Errors
    ///
    /// `FileAccess` if the file has changed, `FileCorrupt`.
    pub(crate) fn try_new(
        file: &ScanFile,
        row_group: usize,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Self> {
        let footer = file.footer();
        let metadata = footer.metadata();
        let schema = metadata.file_metadata().schema_descr();
        let mut roots: Vec<usize> = columns.iter().map(|column| file.columns[*column].index).collect();
        roots.sort_unstable();
        roots.dedup();
        let places = columns
            .iter()
            .filter_map(|column| roots.binary_search(&file.columns[*column].index).ok())
            .collect();
        let handle = file.file.handle()?;
        let bytes = RowGroupBytes::read(file, &handle, row_group, &roots)?;
        file.file.check_unchanged(&handle)?;
        let bytes_read = bytes.ranges.iter().map(|(_, bytes)| bytes.len()).sum();
        let rows_left = usize::try_from(metadata.row_group(row_group).num_rows())
            .map_err(|_| corrupt(file, "a row group has a negative number of rows"))?;
        // Leaves have the same numbers for the reader as in the file; columns above them need not.
        let leaves = (0..schema.num_columns())
            .filter(|leaf| roots.binary_search(&schema.get_column_root_idx(*leaf)).is_ok());
        let mask = ProjectionMask::leaves(footer.reader.parquet_schema(), leaves);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, footer.reader.clone())
            .with_projection(mask)
            .with_row_groups(vec![row_group])
            .with_batch_size(batch_rows.min(rows_left.max(1)))
            .build()
            .map_err(|error| from_parquet(&file.path, &error))?;
        Ok(Self { reader, places, columns: columns.to_vec(), rows_left, bytes_read })
    }

    /// Bytes that a reader of these columns reads and holds.
    pub(crate) fn bytes_to_read(file: &ScanFile, row_group: usize, columns: &[usize]) -> usize {
        let metadata = file.footer().metadata();
        let schema = metadata.file_metadata().schema_descr();
        let roots: Vec<usize> = columns.iter().map(|column| file.columns[*column].index).collect();
        let leaves = metadata.row_group(row_group).columns().iter().enumerate();
        leaves
            .filter(|(leaf, _)| roots.contains(&schema.get_column_root_idx(*leaf)))
            .map(|(_, column)| usize::try_from(column.compressed_size()).unwrap_or(0))
            .sum()
    }

    /// The next batch: one array a column, converted as declared; `None` after the last.
    ///
    /// # Errors
    ///
    /// `FileCorrupt`, and those of the conversions.
    pub(crate) fn next(
        &mut self,
        table: &ScanTable,
        file: &ScanFile,
    ) -> Result<Option<(usize, Vec<ArrayRef>)>> {
        // The reader panics at pages whose levels are shorter than they should be.
        let batch = catch_unwind(AssertUnwindSafe(|| self.reader.next()))
            .map_err(|_| corrupt(file, "a page can't be decoded"))?;
        let Some(batch) = batch else {
            if self.rows_left > 0 {
                return Err(corrupt(file, "a column has fewer values than its row group has rows"));
            }
            return Ok(None);
        };
        let batch = batch.map_err(|error| corrupt(file, &reason(&error)))?;
        let row_count = batch.num_rows();
        self.rows_left = self
            .rows_left
            .checked_sub(row_count)
            .ok_or_else(|| corrupt(file, "a column has more values than its row group has rows"))?;
        let arrays = self
            .columns
            .iter()
            .zip(&self.places)
            .map(|(column, place)| {
                let conversion = &file.columns[*column].conversion;
                conversion.apply(batch.column(*place), table.names(file, *column))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Some((row_count, arrays)))
    }
}

fn reason(error: &arrow::error::ArrowError) -> String {
    match error {
        arrow::error::ArrowError::ParquetError(message) => message.clone(),
        other => other.to_string(),
    }
}

fn corrupt(file: &ScanFile, reason: &str) -> Error {
    Error::new(
        ErrorKind::FileCorrupt,
        format!("could not read Parquet file \"{}\": {reason}", file.path.display()),
    )
}

/// The column chunks of a row group, in memory.
struct RowGroupBytes {
    file_bytes: u64,
    /// Where each chunk starts in the file, ascending.
    ranges: Vec<(u64, Bytes)>,
}

impl RowGroupBytes {
    fn read(file: &ScanFile, handle: &Arc<File>, row_group: usize, roots: &[usize]) -> Result<Self> {
        let metadata = file.footer().metadata();
        let schema = metadata.file_metadata().schema_descr();
        let row_count = u64::try_from(metadata.row_group(row_group).num_rows()).unwrap_or(0);
        let mut ranges = Vec::with_capacity(roots.len());
        for (leaf, column) in metadata.row_group(row_group).columns().iter().enumerate() {
            if roots.binary_search(&schema.get_column_root_idx(leaf)).is_err() {
                continue;
            }
            let start = match column.dictionary_page_offset() {
                Some(offset) if offset > 0 => offset.min(column.data_page_offset()),
                _ => column.data_page_offset(),
            };
            let (Ok(start), Ok(chunk_bytes)) =
                (u64::try_from(start), usize::try_from(column.compressed_size()))
            else {
                return Err(corrupt(file, "the footer gives a column chunk a negative place or size"));
            };
            let bytes = file.file.read_range(handle, start, chunk_bytes)?;
            check_pages(&bytes, column, row_count).map_err(|(page, reason)| {
                corrupt(file, &format!("column \"{}\", page {page}: {reason}", column.column_path().string()))
            })?;
            ranges.push((start, bytes));
        }
        ranges.sort_unstable_by_key(|(start, _)| *start);
        Ok(Self { file_bytes: file.footer().identity.file_bytes, ranges })
    }

    fn tail(&self, start: u64) -> ParquetResult<Bytes> {
        let after = self.ranges.partition_point(|(chunk_start, _)| *chunk_start <= start);
        let found = after.checked_sub(1).and_then(|index| self.ranges.get(index));
        found
            .and_then(|(chunk_start, bytes)| {
                let skipped = usize::try_from(start - chunk_start).ok()?;
                (skipped <= bytes.len()).then(|| bytes.slice(skipped..))
            })
            .ok_or_else(|| ParquetError::EOF("a page lies outside of its column chunk".to_owned()))
    }
}

impl Length for RowGroupBytes {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for RowGroupBytes {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(Box::new(self.tail(start)?.reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let tail = self.tail(start)?;
        if length > tail.len() {
            return Err(ParquetError::EOF("a page ends after its column chunk".to_owned()));
        }
        Ok(tail.slice(..length))
    }
}
