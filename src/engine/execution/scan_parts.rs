//! How a table's row groups are divided among readers: several a part, or a part for a piece of one.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, OnceLock},
};

use parquet::file::metadata::RowGroupMetaData;
use pystachio_plan::{Error, ErrorKind, Result, ScanColumn};

use crate::{
    decode::PageMap,
    device::CellType,
    storage::{FileWay, TableFile},
};

/// Rows of a piece of a row group at least: fewer are not worth the pages that pieces share.
const PIECE_ROWS_MIN: u64 = 1024;

/// A row group of a file, or some of its rows.
#[derive(Clone)]
pub(super) struct RowGroup {
    pub(super) file: Arc<ScanFile>,
    pub(super) index: usize,
    /// Rows of the whole row group.
    pub(super) row_count: u32,
    /// Those that are scanned.
    pub(super) rows: Range<u32>,
    /// About what decoding it takes on the device.
    pub(super) bytes: u64,
}

impl RowGroup {
    /// Bytes of the columns that are read.
    pub(super) fn encoded_bytes(&self) -> u64 {
        let metadata = self.file.file.footer.metadata().row_group(self.index);
        let chunks = self.file.leaves.iter().map(|leaf| metadata.column(*leaf));
        chunks.map(|chunk| u64::try_from(chunk.compressed_size()).unwrap_or(0)).sum()
    }

    /// The row group itself, or pieces of so many bytes where it has more than fit.
    pub(super) fn pieces(self, bytes_max: u64, piece_bytes_max: u64) -> impl Iterator<Item = Self> {
        let row_count = u64::from(self.row_count);
        let count = match self.bytes > bytes_max {
            true => self.bytes.div_ceil(piece_bytes_max.max(1)).min(row_count / PIECE_ROWS_MIN).max(1),
            false => 1,
        };
        let piece_rows = row_count.div_ceil(count).max(1) as usize;
        let bytes = self.bytes / count;
        (0..self.row_count).step_by(piece_rows).map(move |first| {
            let end = (u64::from(first) + piece_rows as u64).min(row_count) as u32;
            Self { rows: first..end, bytes, ..self.clone() }
        })
    }
}

/// A file and where the columns that are read are in it.
pub(super) struct ScanFile {
    pub(super) file: TableFile,
    pub(super) leaves: Vec<usize>,
    /// How it is read, once a reader has wanted it.
    pub(super) way: OnceLock<Result<FileWay>>,
    /// Where the pages of chunks are, by row group and leaf, once a reader has wanted to know.
    pub(super) page_maps: Mutex<HashMap<(usize, usize), Arc<PageMap>>>,
}

/// How large parts are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartSize {
    /// Rows of a part at least, where there are enough row groups.
    pub(super) rows_min: usize,
    /// Bytes of a part at most, where it has several row groups.
    pub(super) bytes_max: u64,
    /// Parts at least, where there are as many row groups.
    pub(super) count_min: usize,
}

/// The rows of a row group, which must be few enough for a chunk.
pub(super) fn chunk_rows(row_group: &RowGroupMetaData) -> Result<u32> {
    u32::try_from(row_group.num_rows())
        .ok()
        .filter(|rows| *rows < u32::MAX)
        .ok_or_else(|| Error::new(ErrorKind::NotSupported, "a row group has more rows than a chunk may have"))
}

/// About what decoding a row group takes on the device: its bytes, compressed and not, and twice its cells.
pub(super) fn decoding_bytes(
    row_group: &RowGroupMetaData,
    columns: &[ScanColumn],
    leaves: &[usize],
) -> Result<u64> {
    let rows = u64::try_from(row_group.num_rows()).unwrap_or(0);
    let mut bytes = 0u64;
    for (column, leaf) in columns.iter().zip(leaves) {
        let chunk = row_group.column(*leaf);
        let encoded = chunk.compressed_size().max(0) as u64 + chunk.uncompressed_size().max(0) as u64;
        let cell_bytes = u64::from(CellType::of(&column.data_type)?.bytes()) + 1;
        bytes = bytes.saturating_add(encoded).saturating_add(2 * rows * cell_bytes);
    }
    Ok(bytes)
}

/// Row groups in parts that become a chunk each: large enough, small enough for what may be decoded ahead, and
/// enough of them to keep all readers busy.
pub(super) fn parts(row_groups: Vec<RowGroup>, size: PartSize) -> Vec<Vec<RowGroup>> {
    let length_max = (row_groups.len() / size.count_min).max(1);
    let mut parts: Vec<Vec<RowGroup>> = Vec::new();
    let (mut row_count, mut bytes) = (0, 0u64);
    for row_group in row_groups {
        let is_full = row_count >= size.rows_min
            || parts.last().is_none_or(|part| part.len() >= length_max)
            || bytes.saturating_add(row_group.bytes) > size.bytes_max;
        let rows = row_group.rows.len();
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
    use pystachio_plan::FileSet;

    use crate::storage::FileCatalog;

    fn row_groups(row_counts: &[u32]) -> Vec<RowGroup> {
        let catalog = FileCatalog::default();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../regress/data/t1.parquet");
        let file = catalog.open_all(&FileSet { paths: vec![path.to_owned()] }).unwrap().remove(0);
        let file = Arc::new(ScanFile {
            file,
            leaves: Vec::new(),
            way: OnceLock::new(),
            page_maps: Mutex::default(),
        });
        let row_group = |(index, row_count): (usize, &u32)| RowGroup {
            file: file.clone(),
            index,
            row_count: *row_count,
            rows: 0..*row_count,
            bytes: u64::from(*row_count) * 10,
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
        let pieces = |row_count, bytes_max, piece_bytes_max| {
            let group = row_groups(&[row_count]).remove(0);
            group.pieces(bytes_max, piece_bytes_max).map(|piece| piece.rows).collect::<Vec<_>>()
        };
        assert_eq!(pieces(10_000, 100_000, 10_000), [0..10_000]);
        assert_eq!(pieces(10_000, 99_999, 33_400), [0..3334, 3334..6668, 6668..10_000]);
        assert_eq!(pieces(10_000, 10, 1).len(), 9);
        assert_eq!(pieces(500, 10, 1), [0..500]);
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
}
