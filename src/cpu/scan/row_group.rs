//! One row group: its columns' chunks whole, for the cache, or batch by batch.
//!
//! ```text
//! columns of the first condition ─► of the second ─► … ─► the other columns      each group with a reader of its own
//!        every batch                 where rows are left        where rows are left
//! ```
//!
//! A group of columns is read from the first batch of which a condition before it leaves a row; batches without one are skipped.
//!
//! Invariants: no batch of a reader is lost when there is no memory for it. A row group knows the first of its rows that was
//! not handed on, and can be opened there again, in either way. What all groups will take is reserved when it is opened.
//!
//! Deliberately absent: what to do without memory, which the partition decides.

use std::sync::{Arc, Mutex};

use crate::datafusion::{
    error::Result as DataFusionResult,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
};
use arrow::array::{Array, ArrayRef, BooleanArray};
use pystachio_engine::locking::{lock, whole};
use pystachio_files::Pin;
use pystachio_plan::{Error, ErrorKind};
use tokio::task::JoinHandle;

use super::{
    BATCH_ROWS, PIECE_ROWS,
    decode::{ColumnReader, ReadRows, page_ranges},
    metrics::ScanMetrics,
    pages::PageMemory,
    queue::ScanUnit,
    selected_rows::SelectedRows,
    table::{ScanFile, ScanTable, StoredColumn},
    zones::Bound,
};
use crate::{
    cache::{Chunk, ChunkBuilder, ChunkKey, ColumnCache},
    error::to_datafusion,
    pool::{CHUNK_CONSUMER, SCAN_CONSUMER},
};

/// With what a partition reads row groups.
pub(super) struct RowGroupSource {
    table: Arc<ScanTable>,
    cache: Arc<ColumnCache>,
    /// The last use of the cache before the scan.
    began: u64,
    metrics: Arc<ScanMetrics>,
    /// From which memory for chunks is reserved.
    chunks: MemoryReservation,
    /// What readers hold, and their last batch, by group of columns.
    reading: Vec<Arc<PageMemory>>,
    /// For others of these.
    readers: MemoryReservation,
}

/// How a row group is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadWay {
    /// Chunk by chunk as columns are needed, each decoded whole and kept in the cache.
    Chunks,
    /// A batch at a time.
    Batches,
}

/// A row group that is being read.
pub(super) struct RowGroup {
    /// With the first row that was not handed on.
    pub(super) unit: ScanUnit,
    pub(super) row_count: usize,
    pub(super) selected: Arc<SelectedRows>,
    columns: RowGroupColumns,
}

enum RowGroupColumns {
    /// Decoded chunks of the columns that were needed so far.
    Chunks(Vec<Option<Arc<Chunk>>>),
    /// Each column is of one group.
    Groups(Vec<ColumnGroup>),
}

/// Columns that are read together.
struct ColumnGroup {
    columns: Vec<usize>,
    memory: Arc<PageMemory>,
    /// Whether what the reader will take must be there before it reads.
    needs_all: bool,
    /// From the first batch that was wanted. The lock is never contended: it lets references to the state cross threads, for the
    /// reader itself may only move.
    reader: Mutex<Option<ColumnReader>>,
}

/// Rows of a row group that filters are evaluated on.
pub(super) struct Slice {
    first_row: usize,
    pub(super) row_count: usize,
    /// Columns of the table, where the source has them at hand.
    columns: Vec<Option<ArrayRef>>,
}

impl RowGroup {
    /// Which rows of a slice the table has; `None` if it has all of them.
    pub(super) fn kept_rows(&self, slice: &Slice, table: &ScanTable) -> Option<BooleanArray> {
        let rows = slice.first_row..slice.first_row + slice.row_count;
        table.files[self.unit.file].kept_rows(self.unit.row_group, rows)
    }

    pub(super) fn way(&self) -> ReadWay {
        match self.columns {
            RowGroupColumns::Chunks(_) => ReadWay::Chunks,
            RowGroupColumns::Groups(_) => ReadWay::Batches,
        }
    }

    /// Whether no row of a slice is within a bound, as far as that is known.
    pub(super) fn refutes(&self, slice: &Slice, bound: &Bound) -> bool {
        let RowGroupColumns::Chunks(chunks) = &self.columns else { return false };
        let Some(Some(chunk)) = chunks.get(bound.column) else { return false };
        slice.first_row.is_multiple_of(BATCH_ROWS)
            && chunk.zones().is_some_and(|zones| zones.refute(slice.first_row / BATCH_ROWS, bound))
    }

    /// Whether columns were read that the first condition does not need.
    pub(super) fn has_late_columns(&self) -> bool {
        let RowGroupColumns::Groups(groups) = &self.columns else { return true };
        groups.iter().skip(1).any(|group| lock(&group.reader).is_some())
    }

    /// Whether all rows were handed on.
    pub(super) fn is_read(&self) -> bool {
        self.unit.first_row >= self.row_count
    }

    /// The rows up to a slice's last were handed on.
    pub(super) fn hand_on(&mut self, slice: &Slice) {
        let next = self.selected.slice(slice.first_row + slice.row_count);
        self.unit.first_row = next.map_or(self.row_count, |next| next.start);
    }
}

impl RowGroupSource {
    pub(super) fn new(
        table: Arc<ScanTable>,
        (cache, began): (Arc<ColumnCache>, u64),
        metrics: Arc<ScanMetrics>,
        context: &TaskContext,
    ) -> Self {
        let consumer = |name: &str| MemoryConsumer::new(name).register(context.memory_pool());
        Self {
            table,
            began,
            cache,
            metrics,
            chunks: consumer(CHUNK_CONSUMER),
            reading: Vec::new(),
            readers: consumer(SCAN_CONSUMER),
        }
    }

    fn file(&self, unit: ScanUnit) -> &ScanFile {
        &self.table.files[unit.file]
    }

    fn all_columns(&self) -> Vec<usize> {
        (0..self.table.columns.len()).collect()
    }

    /// Whether chunks of a row group are decoded whole for the cache. One that would take most of it would soon be dropped.
    pub(super) fn keeps_chunks(&self, unit: ScanUnit) -> bool {
        let decoded_bytes = ColumnReader::bytes_decoded(self.file(unit), unit.row_group, &self.all_columns());
        self.cache.is_enabled() && decoded_bytes <= self.cache.bytes_max() / 2
    }

    /// How a row group is read best. Where few of its rows are read, and that not often, decoding the others would cost more than it
    /// saves.
    pub(super) fn best_way(&self, unit: ScanUnit, selected: &SelectedRows) -> ReadWay {
        if !self.keeps_chunks(unit) {
            return ReadWay::Batches;
        }
        if !selected.are_few() || self.is_cached(unit) {
            return ReadWay::Chunks;
        }
        let file = self.file(unit);
        let rows = (selected.count(), file.all_rows(unit.row_group).count());
        match self.cache.is_read_often((file.footer().identity, unit.row_group), rows) {
            true => ReadWay::Chunks,
            false => ReadWay::Batches,
        }
    }

    /// The rows of a row group that are to be read. Chunks in the cache have closer bounds of their own than files do.
    pub(super) fn selected_rows(&self, unit: ScanUnit) -> SelectedRows {
        match self.cache.is_enabled() && self.is_cached(unit) {
            true => self.file(unit).all_rows(unit.row_group),
            false => self.table.selected_rows(unit),
        }
    }

    fn is_cached(&self, unit: ScanUnit) -> bool {
        (0..self.table.columns.len()).all(|column| {
            let stored = self.file(unit).stored(column);
            stored.is_none_or(|stored| self.cache.has(&self.chunk_key(unit, column, stored)))
        })
    }

    /// Opens a row group at its first row that was not handed on. Where it is read by batches, what they will take is reserved;
    /// where `needs_all` is not set, less will do. `conditions` are the columns of each, `selected` the rows that may meet them.
    ///
    /// # Errors
    ///
    /// The pool's.
    pub(super) fn open(
        &mut self,
        (unit, selected): (ScanUnit, Arc<SelectedRows>),
        way: ReadWay,
        conditions: &[Vec<usize>],
        needs_all: bool,
    ) -> DataFusionResult<RowGroup> {
        let row_count = self.file(unit).all_rows(unit.row_group).count();
        let columns = match way {
            ReadWay::Chunks => RowGroupColumns::Chunks(vec![None; self.table.columns.len()]),
            ReadWay::Batches => {
                let groups = groups_of(self.table.columns.len(), conditions);
                // The row group before may have had more of them.
                self.reading.iter().skip(groups.len()).for_each(|memory| memory.release());
                let groups = groups.into_iter().enumerate();
                let groups = groups.map(|(index, columns)| self.open_group(unit, index, columns, needs_all));
                RowGroupColumns::Groups(groups.collect::<DataFusionResult<_>>()?)
            }
        };
        Ok(RowGroup { unit, row_count, selected, columns })
    }

    fn open_group(
        &mut self,
        unit: ScanUnit,
        index: usize,
        columns: Vec<usize>,
        needs_all: bool,
    ) -> DataFusionResult<ColumnGroup> {
        if index >= self.reading.len() {
            self.reading.push(PageMemory::of_batches(self.readers.new_empty()));
        }
        let (file, memory) = (self.file(unit), self.reading[index].clone());
        memory.begin(ColumnReader::bytes_to_read(file, unit.row_group, &columns))?;
        let expected = memory.expect(ColumnReader::batch_bytes(file, unit.row_group, &columns, BATCH_ROWS));
        if needs_all {
            expected?;
        }
        Ok(ColumnGroup { columns, memory, needs_all, reader: Mutex::new(None) })
    }

    /// The columns of a group for a slice.
    fn read_group(
        &self,
        (unit, selected): (ScanUnit, &Arc<SelectedRows>),
        group: &mut ColumnGroup,
        (first_row, row_count): (usize, usize),
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let elapsed = self.metrics.elapsed();
        let _timer = elapsed.timer();
        let file = self.file(unit);
        let reader = whole(group.reader.get_mut());
        let reader = match reader {
            Some(reader) => reader,
            None => {
                let selected = selected.clone();
                let rows =
                    ReadRows { row_group: unit.row_group, first_row, batch_rows: BATCH_ROWS, selected };
                let opened = ColumnReader::try_new(file, &group.columns, rows, &group.memory);
                let opened = opened.map_err(to_datafusion)?;
                self.metrics.bytes_read.add(opened.bytes_read);
                let expected = group.memory.expect(opened.expected_bytes);
                if group.needs_all {
                    expected?;
                }
                reader.insert(opened)
            }
        };
        reader.seek(file, first_row).map_err(to_datafusion)?;
        match reader.next(&self.table, file).map_err(to_datafusion)? {
            Some((rows_read, arrays)) if rows_read == row_count => Ok(arrays),
            _ => Err(to_datafusion(reader.too_few_values(file))),
        }
    }

    /// Has readers that have given all rows agree that there are no more.
    pub(super) fn finish(&self, row_group: &mut RowGroup) -> DataFusionResult<()> {
        let RowGroupColumns::Groups(groups) = &mut row_group.columns else { return Ok(()) };
        let file = self.file(row_group.unit);
        for group in groups {
            if let Some(reader) = whole(group.reader.get_mut())
                && reader.is_read()
            {
                reader.next(&self.table, file).map_err(to_datafusion)?;
            }
        }
        Ok(())
    }

    /// Lets go of what the last readers left reserved. No row group is open.
    pub(super) fn release(&self) {
        self.reading.iter().for_each(|memory| memory.release());
    }

    /// The next rows that were not handed on; `None` if there are none.
    pub(super) fn next_slice(&self, row_group: &RowGroup) -> Option<Slice> {
        let rows = row_group.selected.slice(row_group.unit.first_row)?;
        let columns = vec![None; self.table.columns.len()];
        Some(Slice { first_row: rows.start, row_count: rows.len(), columns })
    }

    /// Some of the table's columns for a slice. Reads those that the slice does not have yet.
    pub(super) async fn columns(
        &self,
        row_group: &mut RowGroup,
        slice: &mut Slice,
        wanted: &[usize],
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let mut arrays = Vec::with_capacity(wanted.len());
        for column in wanted {
            if slice.columns[*column].is_none() {
                self.read_column(row_group, slice, *column).await?;
            }
            arrays.extend(slice.columns[*column].clone());
        }
        Ok(arrays)
    }

    async fn read_column(
        &self,
        row_group: &mut RowGroup,
        slice: &mut Slice,
        column: usize,
    ) -> DataFusionResult<()> {
        let unit = row_group.unit;
        let file = self.file(unit);
        let Some(stored) = file.stored(column) else {
            let rows = slice.first_row..slice.first_row + slice.row_count;
            let made = file.made(column, unit.row_group, rows).map_err(to_datafusion)?;
            let made = made.ok_or_else(|| to_datafusion(Error::internal("a column was not made")))?;
            slice.columns[column] = Some(made);
            return Ok(());
        };
        match &mut row_group.columns {
            RowGroupColumns::Chunks(chunks) => {
                let array = self.chunk_slice(unit, chunks, slice, (column, stored)).await?;
                slice.columns[column] = Some(array);
            }
            RowGroupColumns::Groups(groups) => {
                let group = groups.iter_mut().find(|group| group.columns.contains(&column));
                let group = group.ok_or_else(|| to_datafusion(Error::internal("a column is of no group")))?;
                let rows = (slice.first_row, slice.row_count);
                let arrays = self.read_group((unit, &row_group.selected), group, rows)?;
                for (column, array) in group.columns.iter().zip(arrays) {
                    slice.columns[*column] = Some(array);
                }
            }
        }
        Ok(())
    }

    async fn chunk_slice(
        &self,
        unit: ScanUnit,
        chunks: &mut [Option<Arc<Chunk>>],
        slice: &Slice,
        (column, stored): (usize, &StoredColumn),
    ) -> DataFusionResult<ArrayRef> {
        let chunk = match &chunks[column] {
            Some(chunk) => chunk,
            None => {
                let chunk = self.chunk(unit, column, stored).await?;
                chunks[column].insert(chunk)
            }
        };
        let piece = chunk
            .pieces
            .get(slice.first_row / PIECE_ROWS)
            .filter(|piece| slice.first_row % PIECE_ROWS + slice.row_count <= piece.len());
        let Some(piece) = piece else {
            return Err(to_datafusion(Error::internal("a chunk is shorter than its row group")));
        };
        Ok(piece.slice(slice.first_row % PIECE_ROWS, slice.row_count))
    }

    /// A column of a row group, from the cache or from the file.
    async fn chunk(
        &self,
        unit: ScanUnit,
        column: usize,
        stored: &StoredColumn,
    ) -> DataFusionResult<Arc<Chunk>> {
        let file = self.file(unit);
        let key = self.chunk_key(unit, column, stored);
        if let Some(chunk) = self.cache.get(&key) {
            self.metrics.cache_hits.add(1);
            return Ok(chunk);
        }
        let chunk = Arc::new(self.decode(file, unit, column).await?);
        self.metrics.cache_misses.add(1);
        self.cache.insert(key, &chunk, stored.source.clone(), self.began);
        Ok(chunk)
    }

    fn chunk_key(&self, unit: ScanUnit, column: usize, stored: &StoredColumn) -> ChunkKey {
        ChunkKey {
            identity: self.file(unit).footer().identity,
            row_group: unit.row_group,
            column: stored.field,
            variant: stored.variant.as_ref().unwrap_or(&self.table.variants[column]).clone(),
        }
    }

    /// Fetches what will be read of a row group: of an object, in the background. `first` are the columns of the first condition
    /// where others may not be read at all.
    pub(super) fn fetch_ahead(
        &self,
        unit: ScanUnit,
        first: Option<&[usize]>,
    ) -> Option<JoinHandle<Option<Pin>>> {
        let file = self.file(unit);
        if !file.file.is_in_store() {
            return None;
        }
        let mut columns = self.all_columns();
        columns.retain(|column| first.is_none_or(|first| first.contains(column)));
        let keeps_chunks = self.keeps_chunks(unit);
        if keeps_chunks {
            let has = |column, stored| self.cache.has(&self.chunk_key(unit, column, stored));
            columns.retain(|column| file.stored(*column).is_some_and(|stored| !has(*column, stored)));
        }
        if columns.is_empty() {
            return None;
        }
        let table = self.table.clone();
        // The scan reports a failure when it reads the row group.
        Some(tokio::task::spawn_blocking(move || {
            let (file, mut selected) = (&table.files[unit.file], table.selected_rows(unit));
            if keeps_chunks && !selected.are_few() {
                selected = file.all_rows(unit.row_group);
            }
            let ranges = page_ranges(file, unit.row_group, &columns, &selected);
            file.file.fetch_ahead(ranges).ok()
        }))
    }

    async fn decode(&self, file: &ScanFile, unit: ScanUnit, column: usize) -> DataFusionResult<Chunk> {
        let pages = PageMemory::of_pages(self.chunks.new_empty());
        pages.begin(ColumnReader::bytes_to_read(file, unit.row_group, &[column]))?;
        let elapsed = self.metrics.elapsed();
        let timer = elapsed.timer();
        let selected = Arc::new(file.all_rows(unit.row_group));
        let rows = ReadRows { row_group: unit.row_group, first_row: 0, batch_rows: PIECE_ROWS, selected };
        let mut reader = ColumnReader::try_new(file, &[column], rows, &pages).map_err(to_datafusion)?;
        timer.done();
        self.metrics.bytes_read.add(reader.bytes_read);
        let mut chunk = ChunkBuilder::new(self.chunks.new_empty());
        loop {
            let timer = elapsed.timer();
            let batch = reader.next(&self.table, file).map_err(to_datafusion)?;
            timer.done();
            let Some((row_count, arrays)) = batch else { break };
            // Slices are cut at multiples of a batch, so every piece but the last must be whole.
            if chunk.last_rows().is_some_and(|rows| rows != PIECE_ROWS) || row_count > PIECE_ROWS {
                let message = format!("the Parquet reader cut file \"{}\" unevenly", file.path.display());
                return Err(to_datafusion(Error::new(ErrorKind::Internal, message)));
            }
            for array in arrays {
                chunk.push(array)?;
            }
            // Gives a cancellation the chance to arrive between pieces.
            tokio::task::yield_now().await;
        }
        Ok(chunk.finish())
    }
}

/// Columns that are read together: those of each condition that none before it has, and all others.
fn groups_of(column_count: usize, conditions: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..column_count).collect();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for condition in conditions {
        groups.push(left.extract_if(.., |column| condition.contains(column)).collect());
    }
    groups.push(left);
    groups.retain(|group| !group.is_empty());
    groups
}
