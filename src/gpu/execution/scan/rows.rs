//! The rows of a row group that pass a scan's filter: its columns first, the others where rows are left.
//!
//! Invariants: rows come in the order of the row group. What is left of a column without rows is not decoded, and not
//! read unless it was loaded ahead.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use pystachio_files::IndexedRowGroup;
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    chunk_loads::WantedChunks,
    filter::{EarlyColumns, Passed},
    parts::RowGroup,
    source::ScanWork,
};
use crate::{
    decode::{ChunkRequest, ColumnSource, PendingRowGroup, ResidentChunk, RowSelection},
    device::{AnyColumn, Column, Rows},
    operation::{Queue, SELECTED_TILE_ROWS},
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
    ) -> Result<Rows> {
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
        let early_places = test.early();
        let late_places: Vec<usize> =
            self.given.iter().copied().filter(|place| !early_places.contains(place)).collect();
        let as_codes = |place, chunk: &ResidentChunk| test.wants_codes(place, chunk, rows.decoded_count());
        let early = decoder.start(early_places, &rows, as_codes)?.wait_decoded()?;
        let early = EarlyColumns { row_count: rows.row_count(), columns: early };
        let (row_count, early, late) = match test.select(queue, &early, !late_places.is_empty())? {
            Passed::All => {
                let late = decoder.start(&late_places, &rows, as_codes)?.wait_decoded()?;
                (
                    rows.row_count(),
                    self.given_early(early_places, &early, |columns| {
                        Ok(columns.iter().map(|column| (*column).clone()).collect())
                    })?,
                    late,
                )
            }
            Passed::Some(selected) if selected.rows.count == 0 => return self.no_rows(queue),
            Passed::Some(selected) => {
                let gather = |columns: &[&Column]| queue.gather_all(columns, &selected.rows);
                let left = match late_places.is_empty() {
                    true => rows,
                    false => rows.narrowed(SELECTED_TILE_ROWS, &selected.has_rows),
                };
                let as_codes =
                    |place, chunk: &ResidentChunk| test.wants_codes(place, chunk, left.decoded_count());
                let late = decoder.start(&late_places, &left, as_codes)?.map_columns(gather)?;
                let gather = |columns: &[&AnyColumn]| queue.gather_columns(columns, &selected.rows);
                let early = self.given_early(early_places, &early, gather)?;
                let mut late = late.wait_decoded()?;
                // What has cells was gathered while it was decoded.
                let coded: Vec<usize> =
                    (0..late.len()).filter(|place| matches!(late[*place], AnyColumn::Codes(_))).collect();
                let gathered = gather(&coded.iter().map(|place| &late[*place]).collect::<Vec<_>>())?;
                for (place, column) in coded.into_iter().zip(gathered) {
                    late[place] = column;
                }
                (selected.rows.count, early, late)
            }
        };
        let mut columns: BTreeMap<usize, AnyColumn> = early;
        columns.extend(late_places.into_iter().zip(late));
        Ok(Rows { row_count, columns: columns.into_values().collect() })
    }

    /// The early columns that the scan gives, by place, as far as they are wanted.
    fn given_early(
        &self,
        places: &[usize],
        early: &EarlyColumns,
        wanted: impl Fn(&[&AnyColumn]) -> Result<Vec<AnyColumn>>,
    ) -> Result<BTreeMap<usize, AnyColumn>> {
        let numbered = places.iter().copied().zip(&early.columns);
        let (places, columns): (Vec<usize>, Vec<&AnyColumn>) =
            numbered.filter(|(place, _)| self.given.contains(place)).unzip();
        Ok(places.into_iter().zip(wanted(&columns)?).collect())
    }

    /// The columns that the scan gives, without rows.
    pub(super) fn no_rows(&self, queue: &Queue) -> Result<Rows> {
        let type_of = |place: &usize| self.columns[*place].data_type.clone();
        let types: Vec<DataType> = self.given.iter().map(type_of).collect();
        queue.empty(&types).map(Rows::from)
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
    /// Enqueues the decoding of some rows of some columns. `as_codes`: whether the column at a place becomes codes.
    fn start(
        &self,
        places: &[usize],
        rows: &RowSelection,
        as_codes: impl Fn(usize, &ResidentChunk) -> bool,
    ) -> Result<PendingRowGroup> {
        let Self { scan, queue, row_group, .. } = *self;
        if scan.stop.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        let sources = scan.sources(row_group, places);
        let chunks = match &self.loaded {
            Some(loaded) => places.iter().map(|place| loaded[*place].clone()).collect(),
            None => scan.load(queue, &WantedChunks { row_group, places, sources: &sources, rows })?,
        };
        // They may come from another reader, or from the cache.
        let chunks: Vec<Arc<ResidentChunk>> = chunks;
        chunks
            .iter()
            .flat_map(|chunk| chunk.buffers())
            .try_for_each(|buffer| buffer.use_on(queue.stream()))?;
        let request =
            |((place, source), chunk)| ChunkRequest { source, chunk, as_codes: as_codes(place, chunk) };
        let numbered = places.iter().copied().zip(&sources).zip(chunks.iter().map(Arc::as_ref));
        let requests: Vec<ChunkRequest<'_>> = numbered.map(request).collect();
        let decoding = queue.decode_chunks(&requests, rows)?;
        let counts = &scan.counts;
        counts.pages_decoded.fetch_add(decoding.pages().decoded, Ordering::Relaxed);
        counts.pages_skipped.fetch_add(decoding.pages().skipped, Ordering::Relaxed);
        let bytes_decoded = rows.decoded_count() as u64 * decoding.row_bytes();
        counts.bytes_decoded.fetch_add(bytes_decoded, Ordering::Relaxed);
        Ok(decoding)
    }
}
