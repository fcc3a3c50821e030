//! The rows of a row group that pass a scan's filter: its columns first, the others where rows are left.
//!
//! Invariants: rows come in the order of the row group. What is left of a column without rows is not decoded, and not
//! read unless it was loaded ahead.

use std::sync::{Arc, atomic::Ordering};

use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{chunk_loads::WantedChunks, scan::ScanWork, scan_filter::Passed, scan_parts::RowGroup};
use crate::{
    decode::{ColumnSource, PendingRowGroup, ResidentChunk, RowSelection},
    device::{Chunk, Column},
    operation::{Queue, SELECTED_TILE_ROWS},
    storage::IndexedRowGroup,
};

/// A row group whose chunks were loaded before it was known which of its rows are wanted.
pub(super) struct LoadedRowGroup {
    /// The rows that page indexes leave.
    rows: RowSelection,
    /// One chunk a column of the scan; none without rows.
    chunks: Vec<Arc<ResidentChunk>>,
}

impl ScanWork {
    /// Loads all columns of a row group, as far as page indexes leave rows of it.
    ///
    /// # Errors
    ///
    /// Those of the file; `OutOfMemory`, `Device`, `Cancelled`.
    pub(super) fn load_ahead(&self, queue: &Queue, row_group: &RowGroup) -> Result<LoadedRowGroup> {
        let rows = self.rows_left(row_group);
        let places: Vec<usize> = (0..self.columns.len()).collect();
        let chunks = match rows.row_count() {
            0 => Vec::new(),
            _ => {
                let sources = self.sources(row_group, &places);
                self.load(
                    queue,
                    &WantedChunks { row_group, places: &places, sources: &sources, rows: &rows },
                )?
            }
        };
        Ok(LoadedRowGroup { rows, chunks })
    }

    /// The rows of a row group that pass the filter. `loaded`: its column chunks, if they were loaded ahead.
    ///
    /// # Errors
    ///
    /// Those of the file, of decoding and of the filter; `Cancelled`.
    pub(super) fn read(
        &self,
        queue: &Queue,
        row_group: &RowGroup,
        loaded: Option<LoadedRowGroup>,
    ) -> Result<Chunk> {
        let rows = self.rows_left(row_group);
        let (rows, loaded) = match loaded {
            // Joins may have said more since.
            Some(loaded) => (loaded.rows.common(&rows), Some(loaded.chunks)),
            None => (rows, None),
        };
        if rows.row_count() == 0 {
            return self.no_rows(queue);
        }
        let decoder = RowGroupDecoder { scan: self, queue, row_group, loaded };
        let test = self.filter.test(self.columns.len());
        let (early_places, late_places): (Vec<usize>, Vec<usize>) =
            (0..self.columns.len()).partition(|place| test.early().contains(place));
        let early = decoder.start(&early_places, &rows)?.wait_columns()?;
        let early = Chunk { row_count: rows.row_count(), columns: early };
        let (row_count, early, late) = match test.select(queue, &early, !late_places.is_empty())? {
            Passed::All => {
                let late = decoder.start(&late_places, &rows)?.wait_columns()?;
                (rows.row_count(), early.columns, late)
            }
            Passed::Some(selected) if selected.rows.count == 0 => return self.no_rows(queue),
            Passed::Some(selected) => {
                let gather = |column: &Column| queue.gather(column, &selected.rows);
                let left = match late_places.is_empty() {
                    true => rows,
                    false => rows.narrowed(SELECTED_TILE_ROWS, &selected.has_rows),
                };
                let late = decoder.start(&late_places, &left)?.map_columns(gather)?;
                let early = early.columns.iter().map(gather).collect::<Result<_>>()?;
                (selected.rows.count, early, late.wait_columns()?)
            }
        };
        let mut columns: Vec<(usize, Column)> =
            early_places.into_iter().zip(early).chain(late_places.into_iter().zip(late)).collect();
        columns.sort_by_key(|(place, _)| *place);
        Ok(Chunk { row_count, columns: columns.into_iter().map(|(_, column)| column).collect() })
    }

    /// A chunk of the scan's columns without rows.
    pub(super) fn no_rows(&self, queue: &Queue) -> Result<Chunk> {
        let types: Vec<DataType> = self.columns.iter().map(|column| column.data_type.clone()).collect();
        queue.empty(&types)
    }

    /// The rows that page indexes leave.
    fn rows_left(&self, row_group: &RowGroup) -> RowSelection {
        let place = IndexedRowGroup {
            file: &row_group.file.file,
            row_group: row_group.index,
            columns: &self.columns,
            leaves: &row_group.file.leaves,
        };
        self.filter.rows_left(&place, &row_group.rows)
    }

    /// Columns of a row group, as decoding knows them.
    fn sources<'a>(&'a self, row_group: &'a RowGroup, places: &[usize]) -> Vec<ColumnSource<'a>> {
        let footer = &row_group.file.file.footer;
        let metadata = footer.metadata().row_group(row_group.index);
        let source = |place: &usize| ColumnSource {
            metadata: metadata.column(row_group.file.leaves[*place]),
            column: &self.columns[*place],
            table: &self.table,
            path: &footer.path,
        };
        places.iter().map(source).collect()
    }
}

/// Decodes columns of one row group.
struct RowGroupDecoder<'a> {
    scan: &'a ScanWork,
    queue: &'a Queue,
    row_group: &'a RowGroup,
    loaded: Option<Vec<Arc<ResidentChunk>>>,
}

impl RowGroupDecoder<'_> {
    /// Enqueues the decoding of some rows of some columns.
    fn start(&self, places: &[usize], rows: &RowSelection) -> Result<PendingRowGroup> {
        let Self { scan, queue, row_group, .. } = *self;
        if scan.stop.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        let sources = scan.sources(row_group, places);
        let chunks = match &self.loaded {
            Some(loaded) => {
                let chunks: Vec<Arc<ResidentChunk>> =
                    places.iter().map(|place| loaded[*place].clone()).collect();
                // They may come from another reader.
                chunks
                    .iter()
                    .flat_map(|chunk| chunk.buffers())
                    .for_each(|buffer| buffer.adopt(queue.stream()));
                chunks
            }
            None => scan.load(queue, &WantedChunks { row_group, places, sources: &sources, rows })?,
        };
        let requests: Vec<(&ColumnSource<'_>, &ResidentChunk)> =
            sources.iter().zip(chunks.iter().map(Arc::as_ref)).collect();
        let decoding = queue.decode_chunks(&requests, rows)?;
        let counts = &scan.counts;
        counts.pages_decoded.fetch_add(decoding.pages().decoded, Ordering::Relaxed);
        counts.pages_skipped.fetch_add(decoding.pages().skipped, Ordering::Relaxed);
        let bytes_of =
            |column: &Column| u64::from(column.cell_type.bytes()) + u64::from(column.validity.is_some());
        let cell_bytes: u64 = decoding.columns().iter().map(bytes_of).sum();
        counts.bytes_decoded.fetch_add(rows.decoded_count() as u64 * cell_bytes, Ordering::Relaxed);
        Ok(decoding)
    }
}
