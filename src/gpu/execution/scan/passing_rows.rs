//! The rows of row groups that pass a scan's filter: its early columns first, the others for the
//! rows that pass. Consecutive row groups are decoded, tested and returned together, so small ones
//! cost no more than their rows.
//!
//! Invariants: rows come in the order of the row groups. If no row passes, the other columns are
//! not decoded, and not read unless they were loaded ahead.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use pystachio_files::IndexedRowGroup;
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{
    chunk_loads::WantedChunks,
    filter::{EarlyColumns, Passed, RowTest},
    parts::RowGroup,
    source::ScanWork,
};
use crate::{
    decode::{ChunkRequest, ColumnRequest, ColumnSource, PendingColumns, ResidentChunk, RowSelection},
    device::{AnyColumn, Buffer, Column, Rows},
    operation::{Queue, SELECTED_TILE_ROWS},
};

/// A row group whose chunks were loaded before the filters were settled.
pub(super) struct LoadedRowGroup {
    /// The rows that page indexes leave.
    rows: RowSelection,
    /// One chunk a column of the scan; none without rows.
    chunks: Vec<Arc<ResidentChunk>>,
}

/// Row groups to decode together, with the chunks loaded ahead.
pub(super) type ReadRowGroups<'a> = Vec<(&'a RowGroup, Option<LoadedRowGroup>)>;

/// A row group with wanted rows, and their places among those of all row groups.
struct SelectedRowGroup<'a> {
    row_group: &'a RowGroup,
    rows: RowSelection,
    /// One chunk a column of the scan, if they were loaded ahead.
    loaded: Option<Vec<Arc<ResidentChunk>>>,
}

impl ScanWork {
    /// Loads all columns of row groups, for the rows that page indexes leave.
    ///
    /// # Errors
    ///
    /// Errors of the files; `OutOfMemory`, `Device`, `Cancelled`.
    pub(super) fn load_ahead(&self, queue: &Queue, row_groups: &[&RowGroup]) -> Result<Vec<LoadedRowGroup>> {
        let places: Vec<usize> = (0..self.columns.len()).collect();
        let rows: Vec<RowSelection> = row_groups.iter().map(|row_group| self.rows_left(row_group)).collect();
        let selected = row_groups.iter().zip(&rows).filter(|(_, rows)| rows.row_count() > 0);
        let wanted: Vec<WantedChunks<'_>> =
            selected.map(|(row_group, rows)| self.wanted(row_group, &places, rows)).collect();
        let mut loaded = self.load(queue, &wanted.iter().collect::<Vec<_>>())?.into_iter();
        drop(wanted);
        let with_chunks = |rows: RowSelection| {
            let chunks = if rows.row_count() == 0 { None } else { loaded.next() };
            LoadedRowGroup { rows, chunks: chunks.unwrap_or_default() }
        };
        Ok(rows.into_iter().map(with_chunks).collect())
    }

    /// The rows of row groups that pass the filter, in their order.
    ///
    /// # Errors
    ///
    /// Errors of the files, of decoding and of the filter; `Cancelled`.
    pub(super) fn read(&self, queue: &Queue, row_groups: ReadRowGroups<'_>) -> Result<Rows> {
        let mut selected = Vec::with_capacity(row_groups.len());
        let mut row_count = 0;
        for (row_group, loaded) in row_groups {
            let rows = self.rows_left(row_group);
            let (rows, loaded) = match loaded {
                // More filters of joins may have been settled since.
                Some(loaded) => (loaded.rows.common(&rows), Some(loaded.chunks)),
                None => (rows, None),
            };
            if rows.row_count() > 0 {
                let rows = rows.starting_at(row_count as u32);
                row_count += rows.row_count();
                selected.push(SelectedRowGroup { row_group, rows, loaded });
            }
        }
        if selected.is_empty() {
            return self.no_rows(queue);
        }
        let decoder = RowGroupsDecoder { scan: self, queue, row_groups: &selected, row_count };
        let is_shared = selected.iter().any(|selected| selected.row_group.is_shared);
        let test = self.filter.test(self.columns.len(), is_shared);
        let early_places = test.early();
        let late_places: Vec<usize> =
            self.given.iter().copied().filter(|place| !early_places.contains(place)).collect();
        let all_rows: Vec<RowSelection> = selected.iter().map(|selected| selected.rows.clone()).collect();
        let early = decoder.start(early_places, &all_rows, &test)?.wait_decoded()?;
        let early = EarlyColumns { row_count, columns: early };
        let (row_count, early, late) = match test.select(queue, &early, !late_places.is_empty())? {
            Passed::All => {
                let late = decoder.start(&late_places, &all_rows, &test)?.wait_decoded()?;
                (
                    row_count,
                    self.given_early(early_places, &early, |columns| {
                        Ok(columns.iter().map(|column| (*column).clone()).collect())
                    })?,
                    late,
                )
            }
            Passed::Some(selected) if selected.rows.count == 0 => return self.no_rows(queue),
            Passed::Some(selected) => {
                let gather = |columns: &[&Column]| queue.gather_all(columns, &selected.rows);
                let left: Vec<RowSelection> = match late_places.is_empty() {
                    true => all_rows,
                    false => all_rows
                        .iter()
                        .map(|rows| rows.narrowed(SELECTED_TILE_ROWS, &selected.has_rows))
                        .collect(),
                };
                let late = decoder.start(&late_places, &left, &test)?.map_columns(gather)?;
                let gather = |columns: &[&AnyColumn]| queue.gather_columns(columns, &selected.rows);
                let early = self.given_early(early_places, &early, gather)?;
                let mut late = late.wait_decoded()?;
                // Decoding has gathered columns of cells already.
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

    /// The early columns that the scan outputs, by place, as far as they are wanted.
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

    /// The output columns, without rows.
    pub(super) fn no_rows(&self, queue: &Queue) -> Result<Rows> {
        let type_of = |place: &usize| self.columns[*place].data_type.clone();
        let types: Vec<DataType> = self.given.iter().map(type_of).collect();
        queue.empty(&types).map(Rows::from)
    }

    /// The rows that page indexes leave, of those that the table has.
    fn rows_left(&self, row_group: &RowGroup) -> RowSelection {
        let place = IndexedRowGroup {
            file: &row_group.file.file,
            row_group: row_group.index,
            columns: &self.columns,
            places: &row_group.file.places,
        };
        let left = self.filter.rows_left(&place, &row_group.rows, row_group.is_shared);
        let Range { start, end } = row_group.rows;
        // They are within the row group.
        match row_group.file.file.kept_rows(row_group.index, start.into()..end.into()) {
            Some(kept) => {
                left.common(&RowSelection::of(kept.iter().map(|kept| kept.start as u32..kept.end as u32)))
            }
            None => left,
        }
    }

    /// Columns of a row group, of which some rows are wanted.
    fn wanted<'a>(
        &'a self,
        row_group: &'a RowGroup,
        places: &'a [usize],
        rows: &'a RowSelection,
    ) -> WantedChunks<'a> {
        let file = &row_group.file;
        let source = |place: &usize| ColumnSource {
            metadata: file.metadata(row_group.index, *place),
            column: &self.columns[*place],
            table: &self.table,
            path: &file.file.footer.path,
        };
        WantedChunks { row_group, places, sources: places.iter().map(source).collect(), rows }
    }
}

/// Decodes columns of row groups that follow one another.
struct RowGroupsDecoder<'a> {
    scan: &'a ScanWork,
    queue: &'a Queue,
    row_groups: &'a [SelectedRowGroup<'a>],
    row_count: usize,
}

impl RowGroupsDecoder<'_> {
    /// Enqueues the decoding of selected rows of some columns: one selection for each row group.
    fn start(&self, places: &[usize], rows: &[RowSelection], test: &RowTest<'_>) -> Result<PendingColumns> {
        let Self { scan, queue, row_count, .. } = *self;
        if scan.stop.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "the query was cancelled"));
        }
        let with_rows = self.row_groups.iter().zip(rows).filter(|(_, rows)| rows.decoded_count() > 0);
        let (selected, rows): (Vec<&SelectedRowGroup<'_>>, Vec<&RowSelection>) = with_rows.unzip();
        let wanted: Vec<WantedChunks<'_>> = selected
            .iter()
            .zip(&rows)
            .map(|(selected, rows)| scan.wanted(selected.row_group, places, rows))
            .collect();
        let loaded = selected.iter().map(|selected| selected.loaded.as_ref());
        let missing: Vec<&WantedChunks<'_>> = wanted
            .iter()
            .zip(loaded.clone())
            .filter(|(_, loaded)| loaded.is_none())
            .map(|(wanted, _)| wanted)
            .collect();
        let mut read = scan.load(queue, &missing)?.into_iter();
        // By row group, then by column. They may come from another reader, or from the cache.
        let chunks: Vec<Vec<Arc<ResidentChunk>>> = loaded
            .map(|loaded| match loaded {
                Some(chunks) => places.iter().map(|place| chunks[*place].clone()).collect(),
                None => read.next().unwrap_or_default(),
            })
            .collect();
        Buffer::use_all_on(chunks.iter().flatten().flat_map(|chunk| chunk.buffers()), queue.stream())?;
        let decoded_count: usize = rows.iter().map(|rows| rows.decoded_count()).sum();
        let request = |(number, place): (usize, &usize)| {
            let requests: Vec<ChunkRequest<'_>> = wanted
                .iter()
                .zip(&chunks)
                .map(|(wanted, chunks)| ChunkRequest {
                    source: &wanted.sources[number],
                    chunk: &chunks[number],
                })
                .collect();
            let as_codes =
                test.wants_codes(*place, requests.iter().map(|request| request.chunk), decoded_count);
            ColumnRequest { chunks: requests, as_codes }
        };
        let requests: Vec<ColumnRequest<'_>> = places.iter().enumerate().map(request).collect();
        let decoding = queue.decode_columns(&requests, &rows, row_count)?;
        let counts = &scan.counts;
        counts.pages_decoded.fetch_add(decoding.pages().decoded, Ordering::Relaxed);
        counts.pages_skipped.fetch_add(decoding.pages().skipped, Ordering::Relaxed);
        let bytes_decoded = decoded_count as u64 * decoding.row_bytes();
        counts.bytes_decoded.fetch_add(bytes_decoded, Ordering::Relaxed);
        Ok(decoding)
    }
}
