//! Scans: row groups of Parquet files, read, decoded and filtered by the query's readers.
//!
//! A row group's column chunks come from the device's cache, or are read into page-locked memory,
//! copied and decompressed. Readers then decode and filter them (`passing_rows.rs`). Until the
//! filters of joins above are settled, readers load column chunks ahead and decode nothing. A chunk
//! that a reader hands to a driver belongs to the driver's stream.
//!
//! Invariants: chunks come in the order of files and row groups. A chunk has some row groups, or a
//! piece of one that does not fit into memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::{Range, RangeInclusive},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_files::{
    BoundedColumns, ColumnPlace, FieldPlace, FileFooter, OpenedFiles, RowGroupBounds, ScanConditions,
    TableFile, column_places, memory_available, refutes,
};
use pystachio_plan::{ColumnId, Error, ErrorKind, Expression, FileSet, Result, ScanColumn, StoragePath};

use super::{
    chunk_cache::ChunkCache,
    filter::ScanFilter,
    parts::{PartSize, RowGroup, ScanFile, ScanFileColumn, chunk_rows, cut, parts},
    passing_rows::{LoadedRowGroup, ReadRowGroups},
    pieces::PIECE_ROWS_MIN,
    readers::{ReaderPool, ScanParts, WantedScan},
    residency::declaration_of,
    share::{RangePart, ScanShare},
};
use crate::{
    decode::{DerivedChunk, check_column},
    device::{CellType, Rows},
    execution::{
        Columns, Driver, FoldedRows, QueryContext, Source,
        query::QueryMeter,
        runtime_filter::{FilterRoute, ReducedOperators},
        scan_fold::{FoldedColumn, ScanFold},
    },
    file_systems::FileSystems,
    operation::Queue,
    segment::Factor,
};

/// Rows that a chunk has at least, where a table has them. Then an operator's fixed cost for each
/// chunk is small against its cost for the rows.
const CHUNK_ROWS_MIN: usize = 32 << 20;
/// The part of the ahead limit that a chunk may use, in shares of a reader: readers of chunks of
/// that size take turns.
const SHARES_OF_CHUNK: u64 = 2;
/// And at most this part of it.
const CHUNK_PART_OF_AHEAD: u64 = 4;
/// A scan up to this part of the device's cache is expected to stay in it; decompressed pages are
/// larger.
const CACHE_PART_OF_SCAN: u64 = 2;

/// The row groups of a table; a chunk has some of them.
pub(in crate::execution) struct ScanSource {
    work: Arc<ScanWork>,
    wanted: WantedScan,
}

impl Drop for ScanSource {
    fn drop(&mut self) {
        self.wanted.finish();
        self.work.forget_pages();
    }
}

/// The scan's places in its query.
pub(in crate::execution) struct ScanPlace {
    /// In [`pystachio_plan::QueryMetrics::operators`].
    pub(in crate::execution) operator: usize,
    /// In the order in which the query wants its scans.
    pub(in crate::execution) rank: usize,
    /// The filters of joins above that it can use.
    pub(in crate::execution) route: FilterRoute,
    /// Which rows of the table it reads.
    pub(in crate::execution) share: ScanShare,
}

/// What the scans of a plan share while it is compiled: what is asked of their columns, and what
/// they tell of them.
pub(in crate::execution) struct PlannedScans<'a> {
    pub(in crate::execution) readers: &'a ReaderPool,
    pub(in crate::execution) cache: &'a ChunkCache,
    /// The columns that the query reads outside of the scans' own conditions.
    pub(in crate::execution) columns_above: HashSet<ColumnId>,
    /// The columns whose ranges are asked for: those by which an aggregate alone groups.
    pub(in crate::execution) only_keys: HashSet<ColumnId>,
    /// Bounds of their integers, from footers. They serve as estimates; results must not depend on
    /// them.
    pub(in crate::execution) integer_ranges: HashMap<ColumnId, RangeInclusive<i64>>,
    /// The operators that the scans' runtime filters have passed.
    pub(in crate::execution) reduced: ReducedOperators,
}

/// Chunks of a part that were loaded ahead, by the row group's place in the part.
#[derive(Default)]
pub(super) struct LoadedPart(BTreeMap<usize, LoadedRowGroup>);

/// The rows of a part, or their groups.
#[derive(Debug)]
pub(super) struct PartRows {
    pub(super) rows: Rows,
    /// Of how many rows these are groups.
    pub(super) folded: Option<usize>,
}

/// What a scan aggregates of rows that are segments, by places of columns in the scan.
pub(super) struct PlacedFold {
    pub(super) fold: Arc<ScanFold>,
    pub(super) keys: Vec<usize>,
    pub(super) arguments: Vec<Vec<Factor>>,
}

/// State that readers share.
pub(super) struct ScanWork {
    pub(super) table: String,
    pub(super) columns: Vec<ScanColumn>,
    /// The number of each one's declaration.
    pub(super) declarations: Vec<u32>,
    /// Places of the output columns, without those that only its filter reads.
    pub(super) given: Vec<usize>,
    pub(super) filter: ScanFilter,
    parts: Vec<Vec<RowGroup>>,
    /// Absent if the query runs without it.
    pub(super) cache: Option<ChunkCache>,
    /// Whether chunks that are used again become segments.
    pub(super) makes_segments: bool,
    pub(super) file_systems: Arc<FileSystems>,
    /// How to read files.
    pub(super) storage_path: StoragePath,
    /// The fallback if the user sets no method and there is no GPUDirect, once a file is opened: what
    /// is on the device already needs none, and the host's free memory takes a while to find out.
    own_path: OnceLock<StoragePath>,
    bytes_to_read: u64,
    /// Whether reads bypass the page cache for bytes that it does not hold: the device's cache
    /// keeps the bytes, and storage is faster so.
    pub(super) avoids_page_cache: bool,
    /// The methods by which files were read.
    paths_taken: Mutex<BTreeSet<StoragePath>>,
    pub(super) query: u64,
    operator: usize,
    /// Stops the scan when the query ends, or when its operators want no more rows of it.
    pub(super) stop: StopFlag,
    pub(super) counts: ScanCounters,
    /// The progress shown to users.
    pub(super) meter: Arc<QueryMeter>,
    /// Whether all that it reads was segments on the device when it was opened.
    pub(super) is_resident: bool,
    /// Set before readers begin.
    pub(super) fold: OnceLock<PlacedFold>,
}

/// Counts of readers since the query last took them.
#[derive(Default)]
pub(super) struct ScanCounters {
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_cached: AtomicU64,
    pub(super) bytes_pinned: AtomicU64,
    pub(super) bytes_decoded: AtomicU64,
    /// Data pages.
    pub(super) pages_decoded: AtomicU64,
    /// Data pages without a wanted row.
    pub(super) pages_skipped: AtomicU64,
    pub(super) cache_hits: AtomicU64,
    pub(super) cache_misses: AtomicU64,
}

impl ScanSource {
    /// Opens the files, matches their columns and prunes row groups by statistics.
    ///
    /// # Errors
    ///
    /// Errors of the files; `NotSupported` for columns that no kernel decodes.
    pub(in crate::execution) fn open(
        (table, files): (&str, &FileSet),
        columns: &[ScanColumn],
        filters: &[Expression],
        place: ScanPlace,
        (scans, query): (&mut PlannedScans<'_>, &mut QueryContext),
    ) -> Result<Self> {
        let mut row_groups = Vec::new();
        let is_ranged = |id: &ColumnId| scans.only_keys.contains(id);
        let is_bounded = |id| is_ranged(&id) || place.share.column() == Some(id);
        let bounded = BoundedColumns::of(columns, filters, is_bounded);
        let mut ranges = ColumnRanges::of(columns.iter().map(|column| column.id).filter(is_ranged));
        let conditions = ScanConditions { columns, filters, parameters: &query.parameters };
        let OpenedFiles { files: opened, left_out } = query.files.open(table, files, &conditions)?;
        let places = column_places(table, &opened, left_out == 0, columns)?;
        let metrics = query.metrics_mut();
        metrics.files_total += left_out as u64;
        metrics.files_pruned += left_out as u64;
        // Of each row group, whether statistics leave it, and this rank's share of it.
        let mut left = Vec::new();
        let mut columns_of_files = Vec::with_capacity(opened.len());
        let mut leaves = CheckedLeaves { of: None, leaves: vec![None; columns.len()] };
        for (file, places) in opened.iter().zip(&places) {
            leaves.next(file);
            let of_file = columns.iter().zip(places).enumerate();
            let of_file = of_file.map(|(number, (column, place))| leaves.column(number, column, place));
            columns_of_files.push(of_file.collect::<Result<Vec<_>>>()?);
            let row_groups = file.footer.metadata().row_groups();
            let first = left.len();
            for (number, row_group) in row_groups.iter().enumerate() {
                let bounds = bounded.in_row_group(&file.footer, number, columns, places);
                let is_left = !refutes(filters, &bounds, &query.parameters);
                let part = is_left.then(|| place.share.part(&bounds));
                let is_read = matches!(part, Some(RangePart::Some | RangePart::All));
                if is_read && row_group.num_rows() > 0 {
                    ranges.add(&bounds);
                }
                left.push(part);
            }
            let metrics = query.metrics_mut();
            metrics.files_total += 1;
            metrics.row_groups_total += row_groups.len() as u64;
            metrics.row_groups_pruned += left[first..].iter().filter(|part| part.is_none()).count() as u64;
            let mut with_rows = row_groups.iter().zip(&left[first..]);
            let is_read = with_rows.any(|(row_group, part)| part.is_some() && row_group.num_rows() > 0);
            metrics.files_pruned += u64::from(!is_read && !row_groups.is_empty());
        }
        let kept: Vec<bool> = left.iter().map(Option::is_some).collect();
        let mut shares = left.into_iter().zip(place.share.rows(&opened, &kept));
        for ((file, places), of_file) in opened.into_iter().zip(places).zip(columns_of_files) {
            let file = Arc::new(ScanFile::new(file, places, of_file));
            for (index, row_group) in file.file.footer.metadata().row_groups().iter().enumerate() {
                let Some((Some(part @ (RangePart::Some | RangePart::All)), shares)) = shares.next() else {
                    continue;
                };
                let row_count = chunk_rows(row_group)?;
                for rows in shares.into_iter().filter(|rows| !rows.is_empty()) {
                    // They are within the row group.
                    let rows = (row_count, rows.start as u32..rows.end as u32);
                    let own = RowGroup::new(&file, index, columns, rows)?;
                    row_groups.push(RowGroup { is_shared: part == RangePart::Some, ..own });
                }
            }
        }
        ranges.add_to(&mut scans.integer_ranges);
        let given =
            (0..columns.len()).filter(|place| scans.columns_above.contains(&columns[*place].id)).collect();
        columns.iter().try_for_each(|column| CellType::of(&column.data_type).map(|_| ()))?;
        let row_count: u64 = row_groups.iter().map(|row_group| row_group.rows.len() as u64).sum();
        let runtime = place.route.arrive(columns, row_count, &mut scans.reduced);
        let of_rank = place.share.condition();
        let filter = ScanFilter::compile(filters, of_rank, columns, &query.parameters, runtime)?;
        let filter = if query.settings.page_skipping { filter } else { filter.without_skipping() };
        let filter = if query.settings.dictionary_codes { filter.with_codes(columns) } else { filter };
        let bytes_to_read: u64 = row_groups.iter().map(|row_group| row_group.encoded_bytes).sum();
        let reader_count = query.memory.reader_count();
        let ahead_bytes = query.memory.ahead_bytes();
        let bytes_max =
            (ahead_bytes / reader_count as u64 * SHARES_OF_CHUNK).min(ahead_bytes / CHUNK_PART_OF_AHEAD);
        row_groups = cut(row_groups, columns, ahead_bytes)?;
        query.meter.expect(row_groups.iter().map(RowGroup::piece_bytes).sum());
        let mut work = ScanWork {
            table: table.to_owned(),
            columns: columns.to_vec(),
            declarations: columns.iter().map(declaration_of).collect(),
            given,
            filter,
            parts: Vec::new(),
            cache: (query.settings.cache && !files.is_sent()).then(|| scans.cache.clone()),
            makes_segments: query.settings.segments,
            file_systems: query.file_systems.clone(),
            storage_path: query.settings.storage,
            own_path: OnceLock::new(),
            bytes_to_read,
            avoids_page_cache: query.settings.storage == StoragePath::Auto
                && query.settings.cache
                && bytes_to_read <= scans.cache.bytes().1 / CACHE_PART_OF_SCAN,
            paths_taken: Mutex::default(),
            query: query.number,
            operator: place.operator,
            stop: query.stop.of_part(),
            counts: ScanCounters::default(),
            meter: query.meter.clone(),
            is_resident: false,
            fold: OnceLock::new(),
        };
        work.is_resident = work.note_segments(&mut row_groups);
        if work.is_resident {
            for row_group in &mut row_groups {
                row_group.bytes = row_group.resident_bytes(columns)?;
            }
        }
        // Readers of resident row groups wait for no storage, so more parts would only mean more launches.
        let count_min = if work.is_resident { 1 } else { reader_count };
        work.parts = parts(row_groups, PartSize { rows_min: CHUNK_ROWS_MIN, bytes_max, count_min });
        let work = Arc::new(work);
        let wanted = scans.readers.add(work.clone(), place.rank);
        Ok(Self { work, wanted })
    }

    /// The columns of its chunks.
    pub(in crate::execution) fn columns(&self) -> Columns {
        let given = self.work.given.iter().map(|place| &self.work.columns[*place]);
        given.map(|column| (column.id, column.data_type.clone())).collect()
    }
}

/// The least and the greatest integer of some columns, as far as all row groups tell.
struct ColumnRanges(Vec<(ColumnId, Option<(i64, i64)>)>);

impl ColumnRanges {
    /// The ranges of no rows yet.
    fn of(columns: impl Iterator<Item = ColumnId>) -> Self {
        Self(columns.map(|column| (column, Some((i64::MAX, i64::MIN)))).collect())
    }

    fn add(&mut self, bounds: &RowGroupBounds) {
        for (column, range) in &mut self.0 {
            let both = range.zip(bounds.integers(*column));
            *range = both.map(|((least, greatest), own)| (least.min(*own.start()), greatest.max(*own.end())));
        }
    }

    fn add_to(self, known: &mut HashMap<ColumnId, RangeInclusive<i64>>) {
        for (column, range) in self.0 {
            let Some((least, greatest)) = range.filter(|(least, greatest)| least <= greatest) else {
                continue;
            };
            known.insert(column, least..=greatest);
        }
    }
}

impl ScanSource {
    fn next_part(&mut self, driver: &mut Driver) -> Result<Option<PartRows>> {
        driver.check_last_faults()?;
        let chunk = self.wanted.next_part(driver.stop())?;
        let (counts, metrics) = (&self.work.counts, &mut driver.metrics);
        let bytes_read = counts.bytes_read.swap(0, Ordering::Relaxed);
        let paths = std::mem::take(&mut *self.work.paths_taken());
        metrics.storage_paths.extend(paths);
        metrics.bytes_read += bytes_read;
        let operator = metrics.operator(self.work.operator);
        operator.count("bytes_read", bytes_read);
        operator.count("bytes_cached", counts.bytes_cached.swap(0, Ordering::Relaxed));
        operator.count("bytes_pinned", counts.bytes_pinned.swap(0, Ordering::Relaxed));
        operator.count("bytes_decoded", counts.bytes_decoded.swap(0, Ordering::Relaxed));
        operator.count("pages_decoded", counts.pages_decoded.swap(0, Ordering::Relaxed));
        operator.count("pages_skipped", counts.pages_skipped.swap(0, Ordering::Relaxed));
        self.work.filter.show(operator);
        metrics.cache_hits += counts.cache_hits.swap(0, Ordering::Relaxed);
        metrics.cache_misses += counts.cache_misses.swap(0, Ordering::Relaxed);
        match &chunk {
            Some(chunk) => chunk.rows.use_on(driver.queue.stream())?,
            None => {
                self.wanted.finish();
                self.work.forget_pages();
            }
        }
        Ok(chunk)
    }
}

impl Source for ScanSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        match self.next_part(driver)? {
            None => Ok(None),
            Some(PartRows { rows, folded: None }) => Ok(Some(rows)),
            Some(_) => Err(Error::internal("a scan gave groups where rows were wanted")),
        }
    }

    fn fold(&mut self, fold: Arc<ScanFold>) -> bool {
        let place = |id: &ColumnId| self.work.columns.iter().position(|column| column.id == *id);
        let factor = |column: &FoldedColumn| {
            let FoldedColumn { constant, coefficient, column } = *column;
            Some(Factor { constant, coefficient, column: place(&column)? })
        };
        let product = |factors: &Vec<FoldedColumn>| factors.iter().map(factor).collect();
        let keys = fold.keys.iter().map(place).collect::<Option<Vec<usize>>>();
        let arguments = fold.arguments.iter().map(product).collect::<Option<Vec<Vec<Factor>>>>();
        let (Some(keys), Some(arguments)) = (keys, arguments) else { return false };
        self.work.makes_segments && self.work.fold.set(PlacedFold { fold, keys, arguments }).is_ok()
    }

    fn next_folded(&mut self, driver: &mut Driver) -> Result<Option<FoldedRows>> {
        let Some(PartRows { rows, folded }) = self.next_part(driver)? else { return Ok(None) };
        Ok(Some(match folded {
            None => FoldedRows::Rows(rows),
            Some(row_count) => FoldedRows::Groups { groups: driver.queue.chunk_of(&rows)?, row_count },
        }))
    }

    fn expect_whole(&mut self) -> bool {
        self.work.filter.drops_rows()
    }
}

impl ScanParts for ScanWork {
    fn part_count(&self) -> usize {
        self.parts.len()
    }

    fn part_bytes(&self, part: usize) -> u64 {
        let row_groups = self.parts.get(part).map_or(&[][..], Vec::as_slice);
        match self.is_resident && self.fold.get().is_some() {
            true => row_groups.iter().map(RowGroup::folding_bytes).sum(),
            false => row_groups.iter().map(|row_group| row_group.bytes).sum(),
        }
    }

    fn is_ready(&self) -> bool {
        self.filter.is_settled()
    }

    fn stop(&self) -> &StopFlag {
        &self.stop
    }

    fn load_part(&self, part: usize, queue: &Queue) -> Result<LoadedPart> {
        if self.is_resident {
            return Ok(LoadedPart::default());
        }
        queue.memory().attribute(self.operator as u32);
        let row_groups = self.row_groups(part)?.iter().enumerate();
        let (places, row_groups): (Vec<usize>, Vec<&RowGroup>) =
            row_groups.filter(|(_, row_group)| !self.is_refuted(row_group)).unzip();
        Ok(LoadedPart(places.into_iter().zip(self.load_ahead(queue, &row_groups)?).collect()))
    }

    fn read_part(&self, part: usize, loaded: Option<LoadedPart>, queue: &Queue) -> Result<PartRows> {
        queue.memory().attribute(self.operator as u32);
        let chunk = self.read_row_groups(part, loaded.unwrap_or_default(), queue);
        for row_group in self.row_groups(part)?.iter().filter(|row_group| row_group.has_last_rows()) {
            row_group.file.forget_page_maps(row_group.index);
        }
        match &chunk {
            Ok(_) => self.meter.note_done(self.row_groups(part)?.iter().map(RowGroup::piece_bytes).sum()),
            Err(_) => self.forget_pages(),
        }
        chunk
    }
}

impl ScanWork {
    /// How to read files if the user sets no method and there is no GPUDirect.
    pub(super) fn own_path(&self) -> StoragePath {
        let resolve = || self.storage_path.resolve(self.bytes_to_read, memory_available());
        *self.own_path.get_or_init(resolve)
    }

    pub(super) fn paths_taken(&self) -> MutexGuard<'_, BTreeSet<StoragePath>> {
        lock_whole(&self.paths_taken)
    }

    /// The rows of a part. Other streams may use them after the work enqueued so far.
    fn read_row_groups(&self, part: usize, mut loaded: LoadedPart, queue: &Queue) -> Result<PartRows> {
        let mut row_groups: ReadRowGroups<'_> = Vec::new();
        for (place, row_group) in self.row_groups(part)?.iter().enumerate() {
            if self.is_refuted(row_group) {
                // Counted once, even if it comes in pieces or is on several ranks.
                if row_group.rows.start == 0 {
                    self.filter.note_pruned();
                }
            } else {
                row_groups.push((row_group, loaded.0.remove(&place)));
            }
        }
        let read = self.read_as_fits(queue, row_groups, true)?;
        queue.publish(&read.rows)?;
        Ok(read)
    }

    /// The rows of row groups. If memory does not suffice to decode all at once, each half after
    /// the other.
    fn read_as_fits(&self, queue: &Queue, row_groups: ReadRowGroups<'_>, folds: bool) -> Result<PartRows> {
        let all: Vec<&RowGroup> = row_groups.iter().map(|(row_group, _)| *row_group).collect();
        match self.read(queue, row_groups, folds) {
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                let Some([first, second]) = halves(&all) else { return Err(error) };
                queue.wait()?;
                let read = |half: Vec<RowGroup>| {
                    let half = half.iter().map(|row_group| (row_group, None)).collect();
                    self.read_as_fits(queue, half, false).map(|part| part.rows)
                };
                let rows = queue.concat_rows(vec![read(first)?, read(second)?])?;
                Ok(PartRows { rows, folded: None })
            }
            read => read,
        }
    }

    /// Drops pages that pieces of row groups share.
    fn forget_pages(&self) {
        self.parts.iter().flatten().for_each(|row_group| row_group.file.shared_pages.clear());
    }

    fn row_groups(&self, part: usize) -> Result<&[RowGroup]> {
        self.parts.get(part).map(Vec::as_slice).ok_or_else(|| Error::internal("a part that is not there"))
    }

    /// Whether joins above match no row of a row group.
    fn is_refuted(&self, row_group: &RowGroup) -> bool {
        if !self.filter.may_prune() {
            return false;
        }
        let ScanFile { file, places, .. } = &*row_group.file;
        let bounds = self.filter.keys().in_row_group(&file.footer, row_group.index, &self.columns, places);
        self.filter.refutes(&bounds)
    }
}

/// Halves the row groups, or the rows of one; `None` if these are too few.
fn halves(row_groups: &[&RowGroup]) -> Option<[Vec<RowGroup>; 2]> {
    match row_groups {
        [] => None,
        [row_group] => {
            let Range { start, end } = row_group.rows;
            let middle = start + (end - start) / 2;
            let part = |rows| vec![RowGroup { rows, ..(*row_group).clone() }];
            (u64::from(end - start) > PIECE_ROWS_MIN).then(|| [part(start..middle), part(middle..end)])
        }
        several => {
            let (first, second) = several.split_at(several.len() / 2);
            Some([first, second].map(|half| half.iter().map(|row_group| (*row_group).clone()).collect()))
        }
    }
}

/// The leaves of a scan's columns in a file. The next file with the same columns has them too.
struct CheckedLeaves<'a> {
    of: Option<&'a TableFile>,
    /// By place in the scan: the field, and its leaf, which a kernel decodes.
    leaves: Vec<Option<(FieldPlace, usize)>>,
}

impl<'a> CheckedLeaves<'a> {
    /// Goes on with the next file.
    fn next(&mut self, file: &'a TableFile) {
        if !self.of.is_some_and(|before| file.footer.has_columns_of(&before.footer)) {
            self.leaves.fill(None);
        }
        self.of = Some(file);
    }

    /// What the file has of a declared column, which is given by its place in the scan.
    fn column(&mut self, number: usize, column: &ScanColumn, place: &ColumnPlace) -> Result<ScanFileColumn> {
        let footer = match self.of {
            Some(file) => &*file.footer,
            None => return Err(Error::internal("a column of no file")),
        };
        let row_groups = || footer.metadata().row_groups().iter();
        Ok(match place {
            ColumnPlace::Stored(field) => match self.leaves[number] {
                Some((known, leaf)) if known == *field => ScanFileColumn::Stored(leaf),
                _ => {
                    let leaf = checked_leaf(footer, column, *field)?;
                    self.leaves[number] = Some((*field, leaf));
                    ScanFileColumn::Stored(leaf)
                }
            },
            ColumnPlace::Constant(value) => {
                let chunk = |row_group| DerivedChunk::new(column, value, chunk_rows(row_group)?);
                ScanFileColumn::Derived(row_groups().map(chunk).collect::<Result<_>>()?)
            }
            ColumnPlace::RowNumber => {
                let chunk = |row_group| {
                    let first = footer.row_numbers(row_group).start;
                    DerivedChunk::of_numbers(column, first, chunk_rows(row_group)?)
                };
                ScanFileColumn::Derived(row_groups().map(chunk).collect::<Result<_>>()?)
            }
        })
    }
}

/// The leaf of a field that a kernel decodes.
fn checked_leaf(footer: &FileFooter, column: &ScanColumn, field: FieldPlace) -> Result<usize> {
    let Some(leaf) = footer.value_leaf(field) else {
        let message = format!("no kernel decodes column \"{}\": it is nested", column.name);
        return Err(Error::new(ErrorKind::NotSupported, message));
    };
    check_column(&footer.metadata().file_metadata().schema_descr().column(leaf), column)?;
    Ok(leaf)
}
