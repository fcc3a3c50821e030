//! The rows of row groups that pass a scan's filter: its early columns first, the others for the
//! rows that pass. Consecutive row groups are decoded, tested and returned together, so small ones
//! cost no more than their rows.
//!
//! If all needed columns of row groups are segments, `resident_rows.rs` tests and reads them
//! instead.
//!
//! Invariants: rows come in the order of the row groups. If no row passes, the other columns are
//! not decoded, and not read unless they were loaded ahead.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use pystachio_files::IndexedRowGroup;
use pystachio_plan::{DataType, Result};

use super::{
    chunk_loads::WantedChunks,
    filter::{EarlyColumns, Passed, RowTest},
    parts::RowGroup,
    residency::RowGroupSegments,
    resident_rows::ResidentRows,
    source::{PartRows, PlacedFold, ScanWork},
};
use crate::{
    decode::{ChunkRequest, ColumnRequest, ColumnSource, PendingColumns, ResidentChunk, RowSelection},
    device::{AnyColumn, Buffer, Column, Rows},
    operation::{Queue, SELECTED_TILE_ROWS},
    segment::{Factor, Fold, SegmentTable, SelectedRows, TableRows},
};

/// A row group whose chunks were loaded before the filters were settled.
pub(super) struct LoadedRowGroup {
    /// The rows that page indexes leave.
    rows: RowSelection,
    /// By place in the scan: pages of the columns that were no segments.
    chunks: Vec<Option<Arc<ResidentChunk>>>,
}

/// Row groups to decode together, with the chunks loaded ahead.
pub(super) type ReadRowGroups<'a> = Vec<(&'a RowGroup, Option<LoadedRowGroup>)>;

/// A row group with wanted rows, and their places among those of all row groups.
struct SelectedRowGroup<'a> {
    row_group: &'a RowGroup,
    rows: RowSelection,
    /// By place in the scan: chunks that were loaded ahead, if any were.
    loaded: Vec<Option<Arc<ResidentChunk>>>,
    /// By place in the scan: wanted columns that are segments.
    segments: RowGroupSegments,
}

impl SelectedRowGroup<'_> {
    /// Whether a column is a segment.
    fn has_segment(&self, place: usize) -> bool {
        self.segments[place].is_some()
    }
}

impl ScanWork {
    /// Loads all columns of row groups, for the rows that page indexes leave.
    ///
    /// # Errors
    ///
    /// Errors of the files; `OutOfMemory`, `Device`, `Cancelled`.
    pub(super) fn load_ahead(&self, queue: &Queue, row_groups: &[&RowGroup]) -> Result<Vec<LoadedRowGroup>> {
        let rows: Vec<RowSelection> = row_groups.iter().map(|row_group| self.rows_left(row_group)).collect();
        let missing = |(row_group, rows): (&&RowGroup, &RowSelection)| match rows.row_count() {
            0 => Vec::new(),
            _ => {
                let places = 0..self.columns.len();
                places.filter(|place| !self.has_segment(row_group, *place)).collect::<Vec<usize>>()
            }
        };
        let places: Vec<Vec<usize>> = row_groups.iter().zip(&rows).map(missing).collect();
        let all = row_groups.iter().zip(&rows).zip(&places).filter(|(_, places)| !places.is_empty());
        let wanted: Vec<WantedChunks<'_>> =
            all.map(|((row_group, rows), places)| self.wanted(row_group, places, rows)).collect();
        let mut loaded = self.load(queue, &wanted.iter().collect::<Vec<_>>())?.into_iter();
        drop(wanted);
        let with_chunks = |(rows, places): (RowSelection, &Vec<usize>)| {
            let mut chunks = vec![None; self.columns.len()];
            let loaded = if places.is_empty() { None } else { loaded.next() };
            for (place, chunk) in places.iter().zip(loaded.into_iter().flatten()) {
                chunks[*place] = Some(chunk);
            }
            LoadedRowGroup { rows, chunks }
        };
        Ok(rows.into_iter().zip(&places).map(with_chunks).collect())
    }

    /// The rows of row groups that pass the filter, in their order; with `folds`, the groups of these if the scan can aggregate them.
    ///
    /// # Errors
    ///
    /// Errors of the files, of decoding and of the filter; `Cancelled`.
    pub(super) fn read(&self, queue: &Queue, row_groups: ReadRowGroups<'_>, folds: bool) -> Result<PartRows> {
        let unfolded = |rows: Rows| PartRows { rows, folded: None };
        let mut selected = Vec::with_capacity(row_groups.len());
        for (row_group, loaded) in row_groups {
            let rows = self.rows_left(row_group);
            let (rows, loaded) = match loaded {
                // More filters of joins may have been settled since.
                Some(loaded) => (loaded.rows.common(&rows), loaded.chunks),
                None => (rows, Vec::new()),
            };
            if rows.row_count() > 0 {
                selected.push(SelectedRowGroup { row_group, rows, loaded, segments: Vec::new() });
            }
        }
        if selected.is_empty() {
            return self.no_rows(queue).map(unfolded);
        }
        let is_shared = selected.iter().any(|selected| selected.row_group.is_shared);
        let test = self.filter.test(self.columns.len(), is_shared);
        let mut places: Vec<usize> = test.early().iter().chain(&self.given).copied().collect();
        places.sort_unstable();
        places.dedup();
        let row_groups: Vec<&RowGroup> = selected.iter().map(|selected| selected.row_group).collect();
        let segments = self.find_segments(queue, &row_groups, &places)?;
        for (selected, segments) in selected.iter_mut().zip(segments) {
            selected.segments = segments;
        }
        // Row groups that follow one another and have the same columns as segments.
        let mut parts = Vec::new();
        let is_alike = |one: &SelectedRowGroup<'_>, next: &SelectedRowGroup<'_>| {
            places.iter().all(|place| one.has_segment(*place) == next.has_segment(*place))
        };
        for run in selected.chunk_by_mut(is_alike) {
            let mut row_count = 0;
            for selected in run.iter_mut() {
                let rows = std::mem::replace(&mut selected.rows, RowSelection::range(0..0));
                selected.rows = rows.starting_at(row_count as u32);
                row_count += selected.rows.row_count();
            }
            let is_resident = places.iter().all(|place| run[0].has_segment(*place));
            if !is_resident {
                parts.push(self.read_pages(queue, run, (&test, row_count))?);
                continue;
            }
            self.stop.check()?;
            let selected: Vec<_> = run.iter().map(|selected| (selected, &selected.rows)).collect();
            let table = self.segment_table(queue, &selected, &places, row_count)?;
            let rows = ResidentRows { table, places: places.clone() };
            let passed = test.select_resident(queue, &rows)?;
            if folds
                && run.len() == row_groups.len()
                && let Some(folded) = self.fold_resident(queue, &rows, passed.as_ref())?
            {
                return Ok(folded);
            }
            parts.push(self.read_resident(queue, &rows, passed.as_ref())?);
        }
        queue.concat_rows(parts).map(unfolded)
    }

    /// The groups of the rows that passed, if the scan aggregates and can do so here.
    fn fold_resident(
        &self,
        queue: &Queue,
        rows: &ResidentRows,
        passed: Option<&SelectedRows>,
    ) -> Result<Option<PartRows>> {
        let Some(PlacedFold { fold, keys, arguments }) = self.fold.get() else { return Ok(None) };
        let row_count = passed.map_or(rows.table.row_count(), SelectedRows::count);
        let keys = keys.iter().map(|key| rows.column(*key)).collect::<Result<Vec<_>>>()?;
        let factor = |factor: &Factor| rows.column(factor.column).map(|column| Factor { column, ..*factor });
        let arguments = arguments
            .iter()
            .map(|factors| factors.iter().map(factor).collect())
            .collect::<Result<Vec<Vec<Factor>>>>()?;
        let fold = Fold {
            keys: &keys,
            arguments: &arguments,
            layout: &fold.layout,
            key_types: &fold.key_types,
            partial_types: &fold.partial_types,
        };
        let groups = queue.fold_segments(&rows.table, passed, &fold)?;
        Ok(groups.map(|groups| PartRows { rows: groups.into(), folded: Some(row_count) }))
    }

    /// The rows that passed, of row groups all of whose wanted columns are segments.
    fn read_resident(
        &self,
        queue: &Queue,
        rows: &ResidentRows,
        passed: Option<&SelectedRows>,
    ) -> Result<Rows> {
        let row_count = passed.map_or(rows.table.row_count(), SelectedRows::count);
        if row_count == 0 {
            return self.no_rows(queue);
        }
        let columns = rows.read(queue, &self.given, passed, |_| self.filter.allows_codes())?;
        let row_bytes: u64 = columns.iter().map(|column| u64::from(column.row_bytes())).sum();
        self.counts.bytes_decoded.fetch_add(row_count as u64 * row_bytes, Ordering::Relaxed);
        Ok(Rows { row_count, columns })
    }

    /// The segments of some columns, for the selected rows.
    fn segment_table(
        &self,
        queue: &Queue,
        selected: &[(&SelectedRowGroup<'_>, &RowSelection)],
        places: &[usize],
        row_count: usize,
    ) -> Result<SegmentTable> {
        let types: Vec<DataType> =
            places.iter().map(|place| self.columns[*place].data_type.clone()).collect();
        let mut row_groups = Vec::with_capacity(selected.len());
        for (SelectedRowGroup { row_group, segments, .. }, rows) in selected {
            let first = row_group.assigned.start;
            row_groups.extend(rows.placed().map(|(rows, target_row)| TableRows {
                segments: places.iter().filter_map(|place| segments[*place].clone()).collect(),
                rows: rows.start - first..rows.end - first,
                target_row,
            }));
        }
        SegmentTable::new(queue, &types, row_groups, row_count)
    }

    /// The rows that pass, of row groups some of whose columns have pages.
    fn read_pages(
        &self,
        queue: &Queue,
        selected: &[SelectedRowGroup<'_>],
        (test, row_count): (&RowTest<'_>, usize),
    ) -> Result<Rows> {
        let decoder = RowGroupsDecoder { scan: self, queue, row_groups: selected, row_count };
        let early_places = test.early();
        let late_places: Vec<usize> =
            self.given.iter().copied().filter(|place| !early_places.contains(place)).collect();
        let all_rows: Vec<RowSelection> = selected.iter().map(|selected| selected.rows.clone()).collect();
        let early = decoder.start(early_places, &all_rows, test)?.wait_decoded()?;
        let early = EarlyColumns { row_count, columns: early };
        let (row_count, early, late) = match test.select(queue, &early, !late_places.is_empty())? {
            Passed::All => {
                let late = decoder.start(&late_places, &all_rows, test)?.wait_decoded()?;
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
                let late = decoder.start(&late_places, &left, test)?.map_columns(gather)?;
                let gather = |columns: &[&AnyColumn]| queue.gather_columns(columns, &selected.rows);
                let early = self.given_early(early_places, &early, gather)?;
                let mut late = late.wait_decoded()?;
                // Decoding has gathered columns of cells already.
                let coded: Vec<usize> =
                    (0..late.len()).filter(|place| late[*place].codes().is_some()).collect();
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
        // Segments have closer bounds of their own.
        let left = match self.is_resident || self.has_segments(row_group) {
            true => RowSelection::range(row_group.rows.clone()),
            false => self.filter.rows_left(&place, &row_group.rows, row_group.is_shared),
        };
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
    pub(super) fn wanted<'a>(
        &'a self,
        row_group: &'a RowGroup,
        places: &'a [usize],
        rows: &'a RowSelection,
    ) -> WantedChunks<'a> {
        let sources = places.iter().map(|place| self.source(row_group, *place)).collect();
        WantedChunks { row_group, places, sources, rows }
    }

    /// A column of a row group, which is given by its place in the scan.
    pub(super) fn source<'a>(&'a self, row_group: &'a RowGroup, place: usize) -> ColumnSource<'a> {
        let file = &row_group.file;
        ColumnSource {
            metadata: file.metadata(row_group.index, place),
            column: &self.columns[place],
            table: &self.table,
            path: &file.file.footer.path,
        }
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
    /// Enqueues the decoding of selected rows of some columns, and the reading of those that are segments: one selection for each row group.
    fn start(&self, places: &[usize], rows: &[RowSelection], test: &RowTest<'_>) -> Result<PendingColumns> {
        let is_segment =
            |place: &usize| self.row_groups.first().is_some_and(|selected| selected.has_segment(*place));
        let (resident, paged): (Vec<usize>, Vec<usize>) = places.iter().copied().partition(is_segment);
        let mut pending = self.start_pages(&paged, rows, test)?;
        for (place, column) in resident.iter().zip(self.read_segments(&resident, rows, test)?) {
            let number = places.iter().position(|known| known == place).unwrap_or(0);
            pending = pending.with_column(number, column);
        }
        Ok(pending)
    }

    /// Some rows of columns that are segments.
    fn read_segments(
        &self,
        places: &[usize],
        rows: &[RowSelection],
        test: &RowTest<'_>,
    ) -> Result<Vec<AnyColumn>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let selected: Vec<_> = self.row_groups.iter().zip(rows).collect();
        let table = self.scan.segment_table(self.queue, &selected, places, self.row_count)?;
        let rows = ResidentRows { table, places: places.to_vec() };
        rows.read(self.queue, places, None, |place| test.filter.takes_codes(place))
    }

    /// Enqueues the decoding of selected rows of columns that have pages.
    fn start_pages(
        &self,
        places: &[usize],
        rows: &[RowSelection],
        test: &RowTest<'_>,
    ) -> Result<PendingColumns> {
        let Self { scan, queue, row_count, .. } = *self;
        scan.stop.check()?;
        if places.is_empty() {
            return Ok(PendingColumns::none());
        }
        let with_rows = self.row_groups.iter().zip(rows).filter(|(_, rows)| rows.decoded_count() > 0);
        let (selected, rows): (Vec<&SelectedRowGroup<'_>>, Vec<&RowSelection>) = with_rows.unzip();
        let wanted: Vec<WantedChunks<'_>> = selected
            .iter()
            .zip(&rows)
            .map(|(selected, rows)| scan.wanted(selected.row_group, places, rows))
            .collect();
        let loaded: Vec<Option<Vec<Arc<ResidentChunk>>>> = selected
            .iter()
            .map(|selected| {
                places.iter().map(|place| selected.loaded.get(*place).cloned().flatten()).collect()
            })
            .collect();
        let missing: Vec<&WantedChunks<'_>> = wanted
            .iter()
            .zip(&loaded)
            .filter(|(_, loaded)| loaded.is_none())
            .map(|(wanted, _)| wanted)
            .collect();
        let mut read = scan.load(queue, &missing)?.into_iter();
        // By row group, then by column. They may come from another reader, or from the cache.
        let chunks: Vec<Vec<Arc<ResidentChunk>>> = loaded
            .into_iter()
            .map(|loaded| loaded.unwrap_or_else(|| read.next().unwrap_or_default()))
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
