//! How a rank's row groups are divided among readers: several a part, or a part for a piece of one.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, OnceLock, Weak},
};

use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use pystachio_engine::locking::lock_whole;
use pystachio_files::{ChunkSizes, ColumnPlace, TableFile};
use pystachio_plan::{Error, ErrorKind, Result, ScanColumn};

use super::{
    assignment::RowGroupSize,
    chunk_loads::{PagesKey, SharedPages, read_indexed_pages},
    pieces::{self, ColumnCost},
};
use crate::{
    decode::{DerivedChunk, PageMap},
    device::CellType,
    exchange::Rank,
    file_systems::FileWay,
    segment::Segment,
};

/// A row group of a file, or some of its rows.
#[derive(Clone)]
pub(super) struct RowGroup {
    pub(super) file: Arc<ScanFile>,
    pub(super) index: usize,
    /// Rows of the whole row group.
    pub(super) row_count: u32,
    /// The rows that this rank owns, whether or not a query wants them: the unit of loading and
    /// caching.
    pub(super) assigned: Range<u32>,
    /// The rows that are scanned.
    pub(super) rows: Range<u32>,
    /// Whether a test of the rows must separate this rank's rows from those of others.
    pub(super) is_shared: bool,
    /// An estimate of the device memory that decoding it takes.
    pub(super) bytes: u64,
    /// An estimate of the bytes of the read columns that the rank's rows have.
    pub(super) encoded_bytes: u64,
    /// By place in the scan: segments that were on the device when the scan began, as far as it looked for them. They may be gone.
    pub(super) segments: Vec<Weak<Segment>>,
}

impl RowGroup {
    /// The rank's rows of a row group, which other ranks may share.
    ///
    /// # Errors
    ///
    /// `NotSupported` for columns that no kernel decodes.
    pub(super) fn new(
        file: &Arc<ScanFile>,
        index: usize,
        columns: &[ScanColumn],
        (row_count, assigned): (u32, Range<u32>),
    ) -> Result<Self> {
        let ColumnBytes { encoded, decoding } = ColumnBytes::of(file, index, columns)?;
        Ok(Self {
            file: file.clone(),
            index,
            row_count,
            bytes: part_of(decoding, assigned.len(), row_count),
            encoded_bytes: part_of(encoded, assigned.len(), row_count),
            rows: assigned.clone(),
            assigned,
            is_shared: false,
            segments: Vec::new(),
        })
    }

    /// An estimate of the bytes of the read columns that this part's rows have.
    pub(super) fn piece_bytes(&self) -> u64 {
        part_of(self.encoded_bytes, self.rows.len(), self.assigned.len() as u32)
    }

    /// An estimate of the device memory that reading its segments takes: all cells, for rows that all
    /// pass, and their numbers.
    ///
    /// # Errors
    ///
    /// `NotSupported` for columns that no kernel decodes.
    pub(super) fn resident_bytes(&self, columns: &[ScanColumn]) -> Result<u64> {
        let cells = columns.iter().map(cell_bytes).sum::<Result<u64>>()?;
        Ok(self.rows.len() as u64 * (cells + ROW_NUMBER_BYTES))
    }

    /// An estimate of the device memory that aggregating its segments takes, of which the scan gives
    /// only the groups.
    pub(super) fn folding_bytes(&self) -> u64 {
        self.rows.len() as u64 * ROW_NUMBER_BYTES
    }

    /// Its number in its file, and the rank's rows: the first, and the one behind the last.
    pub(super) fn assigned_rows(&self) -> (usize, (u32, u32)) {
        (self.index, (self.assigned.start, self.assigned.end))
    }

    /// Whether the rank has all rows of the row group.
    pub(super) fn is_whole(&self) -> bool {
        self.assigned == (0..self.row_count)
    }

    /// Whether these are some of the rank's rows, since all of them do not fit at once.
    pub(super) fn is_piece(&self) -> bool {
        self.rows != self.assigned
    }

    /// Whether it contains the last of the rank's rows: pieces are read in order.
    pub(super) fn has_last_rows(&self) -> bool {
        self.rows.end == self.assigned.end
    }

    /// The key of its kept pages of a stored column, which is given by its place in the scan.
    pub(super) fn pages_key(&self, place: usize) -> PagesKey {
        PagesKey { row_group: self.index, leaf: self.file.leaf(place) }
    }

    /// The rank's rows in pieces of this many bytes.
    fn pieces(&self, columns: &[ScanColumn], bytes_max: u64) -> Result<impl Iterator<Item = Self>> {
        let costs = columns
            .iter()
            .zip(&self.file.columns)
            .map(|(column, of_file)| self.column_cost(column, of_file))
            .collect::<Result<Vec<_>>>()?;
        let pieces = pieces::cut(&costs, self.assigned.clone(), bytes_max);
        Ok(pieces.into_iter().map(|(rows, bytes)| Self { rows, bytes, ..self.clone() }))
    }

    /// The bytes of a column, page by page if its offset index locates the pages; otherwise a row's
    /// share.
    fn column_cost(&self, column: &ScanColumn, of_file: &ScanFileColumn) -> Result<ColumnCost> {
        let chunk = self.file.metadata_of(self.index, of_file);
        let loading_bytes = loading_bytes(chunk);
        let encoded_bytes = chunk.compressed_size().max(1) as u64;
        let cells = 2 * cell_bytes(column)?;
        let Some(map) = of_file.leaf().and_then(|leaf| read_indexed_pages(self, leaf)) else {
            let row_bytes = cells + loading_bytes.div_ceil(u64::from(self.row_count.max(1)));
            return Ok(ColumnCost { row_bytes, ..ColumnCost::default() });
        };
        let loaded =
            |bytes: u64| (u128::from(bytes) * u128::from(loading_bytes) / u128::from(encoded_bytes)) as u64;
        Ok(ColumnCost {
            row_bytes: cells,
            piece_bytes: loaded(map.dictionary_bytes()),
            pages: map.pages().map(|(first_row, bytes)| (first_row, loaded(bytes))).collect(),
        })
    }
}

/// Row groups, in pieces of this many bytes where there are more.
///
/// # Errors
///
/// `NotSupported` for columns that no kernel decodes.
pub(super) fn cut(
    row_groups: Vec<RowGroup>,
    columns: &[ScanColumn],
    bytes_max: u64,
) -> Result<Vec<RowGroup>> {
    if row_groups.iter().all(|row_group| row_group.bytes <= bytes_max) {
        return Ok(row_groups);
    }
    let mut pieces = Vec::with_capacity(row_groups.len());
    for row_group in row_groups {
        match row_group.bytes <= bytes_max {
            true => pieces.push(row_group),
            false => pieces.extend(row_group.pieces(columns, bytes_max)?),
        }
    }
    Ok(pieces)
}

/// A file, and the columns in it that the scan reads.
pub(super) struct ScanFile {
    pub(super) file: TableFile,
    /// The places of the scan's columns.
    pub(super) places: Vec<ColumnPlace>,
    /// The same columns.
    pub(super) columns: Vec<ScanFileColumn>,
    /// How to read it, once a reader has opened it.
    pub(super) way: OnceLock<Result<FileWay>>,
    /// Locations of the pages of chunks, by row group and leaf: from the first reader's request
    /// until the row group is read.
    pub(super) page_maps: Mutex<HashMap<(usize, usize), Arc<PageMap>>>,
    /// Pages that pieces of a row group share.
    pub(super) shared_pages: SharedPages,
}

/// What a file has of a column that the scan reads.
pub(super) enum ScanFileColumn {
    /// A leaf.
    Stored(usize),
    /// Chunks of one value, one a row group.
    Derived(Vec<DerivedChunk>),
}

impl ScanFileColumn {
    /// The leaf, of a column that is stored.
    pub(super) fn leaf(&self) -> Option<usize> {
        match self {
            Self::Stored(leaf) => Some(*leaf),
            Self::Derived(_) => None,
        }
    }
}

impl ScanFile {
    /// A file of which only the columns are known.
    pub(super) fn new(file: TableFile, places: Vec<ColumnPlace>, columns: Vec<ScanFileColumn>) -> Self {
        Self {
            file,
            places,
            columns,
            way: OnceLock::new(),
            page_maps: Mutex::default(),
            shared_pages: SharedPages::default(),
        }
    }

    /// The leaf of a column that is stored, by its place in the scan.
    pub(super) fn leaf(&self, place: usize) -> usize {
        self.columns.get(place).and_then(ScanFileColumn::leaf).unwrap_or(usize::MAX)
    }

    /// The chunk of a column that has one value in all rows, by its place in the scan.
    pub(super) fn derived(&self, row_group: usize, place: usize) -> Option<&DerivedChunk> {
        match self.columns.get(place)? {
            ScanFileColumn::Stored(_) => None,
            ScanFileColumn::Derived(chunks) => chunks.get(row_group),
        }
    }

    /// The metadata of a column's chunk, by its place in the scan.
    pub(super) fn metadata(&self, row_group: usize, place: usize) -> &ColumnChunkMetaData {
        self.metadata_of(row_group, &self.columns[place])
    }

    fn metadata_of<'a>(&'a self, row_group: usize, column: &'a ScanFileColumn) -> &'a ColumnChunkMetaData {
        match column {
            ScanFileColumn::Stored(leaf) => self.file.footer.metadata().row_group(row_group).column(*leaf),
            ScanFileColumn::Derived(chunks) => chunks[row_group].metadata(),
        }
    }

    /// Drops the page locations of a row group: a scan keeps those of row groups that readers work
    /// on.
    pub(super) fn forget_page_maps(&self, row_group: usize) {
        lock_whole(&self.page_maps).retain(|(known, _), _| *known != row_group);
    }
}

/// A row's number, and its place among those that pass.
const ROW_NUMBER_BYTES: u64 = 8;
/// Rows of a chunk at most: they are numbered with 32 bits, and one number stands for no row.
const CHUNK_ROWS_MAX: usize = u32::MAX as usize - 1;

/// Sizes of parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartSize {
    /// Rows of a part at least, where there are enough row groups.
    pub(super) rows_min: usize,
    /// Bytes of a part at most, where it has several row groups.
    pub(super) bytes_max: u64,
    /// Parts at least, where there are as many row groups.
    pub(super) count_min: usize,
}

/// Checks that a row group has few enough rows for a chunk.
pub(super) fn chunk_rows(row_group: &RowGroupMetaData) -> Result<u32> {
    u32::try_from(row_group.num_rows())
        .ok()
        .filter(|rows| *rows as usize <= CHUNK_ROWS_MAX)
        .ok_or_else(|| Error::new(ErrorKind::NotSupported, "a row group has more rows than a chunk may have"))
}

/// The bytes of some of a row group's rows, if all of them have so many.
fn part_of(bytes: u64, rows: usize, row_count: u32) -> u64 {
    if rows == row_count as usize {
        return bytes;
    }
    (u128::from(bytes) * rows as u128 / u128::from(row_count.max(1))) as u64
}

/// The bytes of all columns of each row group of a file.
pub(super) fn row_group_sizes(file: &TableFile) -> impl Iterator<Item = RowGroupSize> {
    let owner = file.rank.map(Rank);
    let sizes = file.footer.metadata().row_groups().iter().map(row_group_size);
    sizes.map(move |size| RowGroupSize { owner, ..size })
}

fn row_group_size(row_group: &RowGroupMetaData) -> RowGroupSize {
    let bytes = row_group.columns().iter().map(|chunk| u64::try_from(chunk.compressed_size()).unwrap_or(0));
    RowGroupSize { bytes: bytes.fold(0, u64::saturating_add), rows: rows_of(row_group), owner: None }
}

/// The rows of a row group.
pub(super) fn rows_of(row_group: &RowGroupMetaData) -> u64 {
    u64::try_from(row_group.num_rows()).unwrap_or(0)
}

/// Device memory to load a column chunk.
fn loading_bytes(chunk: &ColumnChunkMetaData) -> u64 {
    ChunkSizes::of(chunk).loading_bytes()
}

/// A cell of a column with its validity.
fn cell_bytes(column: &ScanColumn) -> Result<u64> {
    Ok(u64::from(CellType::of(&column.data_type)?.bytes()) + 1)
}

/// Estimates of the bytes of a row group's columns that a scan reads.
struct ColumnBytes {
    /// In the file.
    encoded: u64,
    /// The device memory that decoding takes: these bytes, compressed and not, and twice the cells.
    decoding: u64,
}

impl ColumnBytes {
    fn of(file: &ScanFile, row_group: usize, columns: &[ScanColumn]) -> Result<Self> {
        let rows = rows_of(file.file.footer.metadata().row_group(row_group));
        let mut bytes = Self { encoded: 0, decoding: 0 };
        for (column, of_file) in columns.iter().zip(&file.columns) {
            let loading = match of_file {
                ScanFileColumn::Stored(leaf) => {
                    let sizes = file.file.footer.chunk_sizes(*leaf).get(row_group);
                    let sizes =
                        sizes.ok_or_else(|| Error::internal("a row group without a chunk of a column"))?;
                    bytes.encoded = bytes.encoded.saturating_add(sizes.compressed_bytes);
                    sizes.loading_bytes()
                }
                ScanFileColumn::Derived(chunks) => loading_bytes(chunks[row_group].metadata()),
            };
            let cells = 2 * rows * cell_bytes(column)?;
            bytes.decoding = bytes.decoding.saturating_add(loading).saturating_add(cells);
        }
        Ok(bytes)
    }
}

/// Groups row groups into parts, each of which becomes a chunk: large enough, small enough for the
/// limit of bytes decoded ahead, and enough parts to keep all readers busy.
pub(super) fn parts(row_groups: Vec<RowGroup>, size: PartSize) -> Vec<Vec<RowGroup>> {
    let length_max = (row_groups.len() / size.count_min).max(1);
    let mut parts: Vec<Vec<RowGroup>> = Vec::new();
    let (mut row_count, mut bytes) = (0, 0u64);
    for row_group in row_groups {
        let rows = row_group.rows.len();
        let is_full = row_count >= size.rows_min
            || row_count.saturating_add(rows) > CHUNK_ROWS_MAX
            || parts.last().is_none_or(|part| part.len() >= length_max)
            || bytes.saturating_add(row_group.bytes) > size.bytes_max;
        row_count = if is_full { rows } else { row_count + rows };
        bytes = if is_full { row_group.bytes } else { bytes + row_group.bytes };
        match parts.last_mut() {
            Some(part) if !is_full => part.push(row_group),
            _ => parts.push(vec![row_group]),
        }
    }
    parts
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them of one")]
mod tests {
    use super::*;
    use pystachio_files::FileCatalog;
    use pystachio_plan::FileSet;

    fn row_groups(row_counts: &[u32]) -> Vec<RowGroup> {
        let catalog = FileCatalog::default();
        let path = "../../regress/data/t1.parquet";
        let file = catalog.open_all(&FileSet::parquet(vec![path.to_owned()])).unwrap().remove(0);
        let file = Arc::new(ScanFile::new(file, Vec::new(), Vec::new()));
        let row_group = |(index, row_count): (usize, &u32)| RowGroup {
            file: file.clone(),
            index,
            row_count: *row_count,
            assigned: 0..*row_count,
            rows: 0..*row_count,
            is_shared: false,
            bytes: u64::from(*row_count) * 10,
            encoded_bytes: 0,
            segments: Vec::new(),
        };
        row_counts.iter().enumerate().map(row_group).collect()
    }

    fn lengths(row_counts: &[u32], count_min: usize, bytes_max: u64) -> Vec<usize> {
        let row_groups = row_groups(row_counts);
        let found = parts(row_groups, PartSize { rows_min: 4 << 20, bytes_max, count_min });
        let order: Vec<usize> = found.iter().flatten().map(|row_group| row_group.index).collect();
        assert_eq!(order, (0..row_counts.len()).collect::<Vec<_>>());
        found.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_row_group_that_does_not_fit_is_scanned_in_pieces() {
        let pieces = |row_count, bytes_max| {
            let pieces = cut(row_groups(&[row_count]), &[], bytes_max).unwrap();
            pieces.into_iter().map(|piece| piece.rows).collect::<Vec<_>>()
        };
        assert_eq!(pieces(10_000, 100_000), [0..10_000]);
        // Without columns there is nothing to cut.
        assert_eq!(pieces(10_000, 99_999), [0..10_000]);
    }

    #[test]
    fn where_pages_are_is_kept_no_longer_than_their_row_group_is_read() {
        let file = &row_groups(&[10])[0].file;
        let map = Arc::new(PageMap::of_places([(0, 5, 0)], 5, 10).unwrap());
        for key in [(0, 0), (0, 1), (1, 0)] {
            file.page_maps.lock().unwrap().insert(key, map.clone());
        }
        file.forget_page_maps(0);
        assert_eq!(file.page_maps.lock().unwrap().keys().collect::<Vec<_>>(), [&(1, 0)]);
    }

    #[test]
    fn small_row_groups_share_a_chunk_and_large_ones_have_their_own() {
        assert_eq!(lengths(&[500_000; 40], 4, u64::MAX), [9, 9, 9, 9, 4]);
        assert_eq!(lengths(&[8_000_000; 5], 2, u64::MAX), [1; 5]);
        assert_eq!(lengths(&[500_000; 8], 24, u64::MAX), [1; 8]);
        assert_eq!(lengths(&[500_000; 40], 4, 20_000_000), [4; 10]);
        assert_eq!(lengths(&[500_000; 40], 4, 1), [1; 40]);
        assert_eq!(lengths(&[], 24, u64::MAX), [0; 0]);
    }

    #[test]
    fn a_part_has_no_more_rows_than_a_chunk_can_number() {
        let all_in_one = PartSize { rows_min: usize::MAX, bytes_max: u64::MAX, count_min: 1 };
        let lengths = |row_counts: &[u32]| {
            parts(row_groups(row_counts), all_in_one).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[1 << 30; 7]), [3, 3, 1]);
        assert_eq!(lengths(&[u32::MAX - 1, 1, u32::MAX - 2]), [1, 2]);
    }
}
