//! Matches some probe rows with a build side.
//!
//! Every kind of join comes from the pairs that match and from marks: which of the probe rows, and which
//! build rows of all, are in a pair. Rows of a preserved side without a mark come out alone: probe rows when the
//! whole build side has been seen, build rows when the whole probe side has.
//!
//! - `pairs.rs`: pairs, piece by piece; `members.rs`: joins that only ask whether a key is there
//! - `entries.rs`: keys that come as codes
//!
//! Invariants: pairs come out in pieces that memory has room for, unless one probe row alone has more.

mod entries;
mod members;
mod pairs;

use pystachio_plan::{DataType, JoinKind, JoinSide, Result};

use self::entries::EntryMatches;
use crate::{
    device::{AnyColumn, Buffer, CellType, Chunk, Column, Rows},
    execution::{Driver, expressions::RowProgram, runtime_filter::drops_unmatched},
    operation::{JoinTable, KeyFilter, Queue, RowNumbers},
    program::Filter,
};

/// Bytes of a computed key.
const KEY_BYTES: u64 = 17;
/// The least cost of a row of a small build side, besides its cells and a copy of a column: two
/// computed keys and four slots. Allocations are rounded up, and the cost of probing is not
/// counted, which matters for small sides.
const SMALL_ROW_BYTES: u64 = 63;
/// Build sides up to this many bytes are small.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a cell and its validity.
fn column_bytes(data_type: &DataType) -> u64 {
    CellType::of(data_type).map_or(16, |cell| u64::from(cell.bytes()) + 1)
}

/// How rows of two sides match, and the output.
pub(in crate::execution) struct Matching {
    pub(super) kind: JoinKind,
    build_side: JoinSide,
    /// The keys' values, of the build side and of the probe side; `None` if there are none.
    keys: Option<(RowProgram, RowProgram)>,
    /// The condition on a pair.
    residual: Option<Residual>,
    build_types: Vec<DataType>,
    probe_types: Vec<DataType>,
}

/// A condition on a pair.
pub(in crate::execution) struct Residual {
    /// Over the columns that it reads, left ones and then right ones.
    pub(in crate::execution) condition: Filter,
    /// Their places on either side.
    pub(in crate::execution) left: Vec<usize>,
    pub(in crate::execution) right: Vec<usize>,
}

/// A build side, or a piece of one.
pub(super) struct Built {
    chunk: Chunk,
    lookup: Lookup,
    /// One byte a build row: whether it is in a pair. Absent if not needed.
    marks: Option<Buffer>,
}

/// The lookup of a probe row's matches.
enum Lookup {
    /// There are no keys: every pair is tried.
    EveryPair,
    /// Build rows by key.
    Table(JoinTable),
    /// Whether a key is there.
    Members(KeyFilter),
}

/// Probe rows on their way.
pub(super) struct Probing {
    rows: Rows,
    /// Empty for a join without keys. The codes, if there are matches by entry.
    keys: Vec<Column>,
    by_entry: Option<EntryMatches>,
    /// One byte a row: whether it is in a pair. Absent if not needed.
    marks: Option<Buffer>,
    /// Whether earlier pieces of the build side have marked rows.
    is_marked: bool,
    /// The next row, or the next pair of a join without keys.
    next: u64,
    /// Rows whose pairs are tried at once.
    step: usize,
}

/// Facts about the whole build side when probe rows meet a piece of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuildSide {
    /// Whether it has no rows at all.
    pub(super) is_empty: bool,
    /// Whether this piece is the last of it that the probe rows meet.
    pub(super) is_last: bool,
}

impl Matching {
    pub(in crate::execution) fn new(
        kind: JoinKind,
        build_side: JoinSide,
        keys: Option<(RowProgram, RowProgram)>,
        residual: Option<Residual>,
        types: (Vec<DataType>, Vec<DataType>),
    ) -> Self {
        let (build_types, probe_types) = types;
        Self { kind, build_side, keys, residual, build_types, probe_types }
    }

    /// Whether rows of the build side come out because of their marks.
    pub(super) fn marks_build(&self) -> bool {
        match self.kind {
            JoinKind::Inner | JoinKind::NullAwareAnti => false,
            JoinKind::Full => true,
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => self.build_side == JoinSide::Left,
        }
    }

    /// Whether rows of the probe side come out because of their marks.
    pub(super) fn marks_probe(&self) -> bool {
        match self.kind {
            JoinKind::Inner => false,
            JoinKind::Full | JoinKind::NullAwareAnti => true,
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => self.build_side == JoinSide::Right,
        }
    }

    /// Whether a probe row without a match appears in no result.
    pub(super) fn drops_unmatched_probe(&self) -> bool {
        let probe_side = match self.build_side {
            JoinSide::Left => JoinSide::Right,
            JoinSide::Right => JoinSide::Left,
        };
        drops_unmatched(self.kind, probe_side)
    }

    /// Whether pairs themselves come out.
    fn gives_pairs(&self) -> bool {
        matches!(self.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Full)
    }

    /// Whether either side may be the build side.
    pub(super) fn may_swap(&self) -> bool {
        self.has_keys() && self.kind != JoinKind::NullAwareAnti
    }

    /// Makes the probe side the build side, and the other way round.
    pub(super) fn swap(&mut self) {
        self.build_side = match self.build_side {
            JoinSide::Left => JoinSide::Right,
            JoinSide::Right => JoinSide::Left,
        };
        self.keys = self.keys.take().map(|(build, probe)| (probe, build));
        std::mem::swap(&mut self.build_types, &mut self.probe_types);
    }

    /// Whether rows can be partitioned by key.
    pub(super) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// The types of the build side's columns.
    pub(super) fn build_types(&self) -> &[DataType] {
        &self.build_types
    }

    /// The keys of a chunk of the build side.
    pub(super) fn build_keys(&self, queue: &Queue, chunk: &Chunk) -> Result<Vec<Column>> {
        match &self.keys {
            None => Ok(Vec::new()),
            Some((keys, _)) => keys.evaluate_cells(queue, &chunk.clone().into()),
        }
    }

    /// The keys of rows of the probe side.
    pub(super) fn probe_keys(&self, queue: &Queue, rows: &Rows) -> Result<Vec<Column>> {
        match &self.keys {
            None => Ok(Vec::new()),
            Some((_, keys)) => keys.evaluate_cells(queue, rows),
        }
    }

    /// The same, or codes and the matches of their entries.
    fn probing_keys(
        &self,
        queue: &Queue,
        built: &Built,
        rows: &Rows,
    ) -> Result<(Vec<Column>, Option<EntryMatches>)> {
        let Some((_, program)) = &self.keys else { return Ok((Vec::new(), None)) };
        let keys = program.evaluate(queue, rows)?;
        match (self.entry_matches(queue, &built.lookup, &keys, rows.row_count)?, keys.as_slice()) {
            (Some(matches), [AnyColumn::Codes(coded)]) => Ok((vec![coded.code_column()], Some(matches))),
            _ => {
                let cells = keys.iter().map(|key| queue.cells_of(key, rows.row_count));
                Ok((cells.collect::<Result<_>>()?, None))
            }
        }
    }

    /// Memory to build a side from chunks with this many bytes and rows: they are held beside a
    /// copy of one column at a time, and then beside the table.
    pub(super) fn build_bytes(&self, bytes: u64, row_count: usize) -> u64 {
        let exact = self.copy_bytes(row_count).max(self.table_bytes(row_count, JoinTable::bytes_for));
        bytes + exact.max(self.small_bytes(row_count))
    }

    /// The most that such chunks add to the memory of a larger build side.
    pub(super) fn part_bytes(&self, bytes: u64, row_count: usize) -> u64 {
        let exact = self.copy_bytes(row_count).max(self.table_bytes(row_count, JoinTable::bytes_within));
        bytes + exact.max(self.small_bytes(row_count))
    }

    /// Memory of a finished build side.
    pub(super) fn built_bytes(&self, built: &Built) -> u64 {
        let row_count = built.chunk.row_count;
        let least = (row_count as u64 * SMALL_ROW_BYTES).min(SMALL_BYTES_MAX);
        built.chunk.held_bytes() + self.table_bytes(row_count, JoinTable::bytes_for).max(least)
    }

    /// The least memory that is assumed.
    fn small_bytes(&self, row_count: usize) -> u64 {
        (self.copy_bytes(row_count) + row_count as u64 * SMALL_ROW_BYTES).min(SMALL_BYTES_MAX)
    }

    fn copy_bytes(&self, row_count: usize) -> u64 {
        row_count as u64 * self.build_types.iter().map(column_bytes).max().unwrap_or(0)
    }

    /// Finds rows by their keys, and marks those found.
    fn table_bytes(&self, row_count: usize, lookup_bytes: impl Fn(usize) -> u64) -> u64 {
        let rows = row_count as u64;
        let lookup = self
            .keys
            .as_ref()
            .map_or(0, |(keys, _)| lookup_bytes(row_count) + rows * KEY_BYTES * keys.computed_count() as u64);
        lookup + if self.marks_build() { rows } else { 0 }
    }

    /// A build side that is ready to be probed.
    pub(super) fn build(&self, queue: &Queue, chunk: Chunk) -> Result<Built> {
        let lookup = match self.has_keys() {
            true => {
                let keys = self.build_keys(queue, &chunk)?;
                match self.members(queue, &chunk, &keys)? {
                    Some(members) => Lookup::Members(members),
                    None => Lookup::Table(queue.build(keys, chunk.row_count)?),
                }
            }
            false => Lookup::EveryPair,
        };
        let marks = match self.marks_build() {
            true => Some(queue.allocate_filled::<u8>(chunk.row_count as u64, 0)?),
            false => None,
        };
        Ok(Built { chunk, lookup, marks })
    }

    /// Probe rows before their first piece; `marks` are the marks from earlier pieces of the build
    /// side.
    pub(super) fn probe(
        &self,
        queue: &Queue,
        built: &Built,
        rows: Rows,
        marks: Option<Buffer>,
    ) -> Result<Probing> {
        let (keys, by_entry) = self.probing_keys(queue, built, &rows)?;
        let is_marked = marks.is_some();
        let marks = match (marks, self.marks_probe()) {
            (None, true) => Some(queue.allocate_filled::<u8>(rows.row_count as u64, 0)?),
            (marks, _) => marks,
        };
        let step = rows.row_count.max(1);
        Ok(Probing { rows, keys, by_entry, marks, is_marked, next: 0, step })
    }

    /// The next piece of the probe rows' output, or `None` after the last.
    pub(super) fn next(
        &self,
        driver: &Driver,
        built: &Built,
        probing: &mut Probing,
        side: BuildSide,
    ) -> Result<Option<Rows>> {
        if self.kind == JoinKind::NullAwareAnti && side.is_empty {
            // x NOT IN () is true, of NULL too.
            let is_first = std::mem::replace(&mut probing.next, u64::MAX) == 0;
            return Ok(is_first.then(|| probing.rows.clone()));
        }
        let end = match built.lookup {
            Lookup::Table(_) | Lookup::Members(_) => probing.rows.row_count as u64,
            Lookup::EveryPair => probing.rows.row_count as u64 * built.chunk.row_count as u64,
        };
        if probing.next < end {
            return self.next_pairs(driver, built, probing, end).map(Some);
        }
        if probing.next == u64::MAX {
            return Ok(None);
        }
        probing.next = u64::MAX;
        match (&probing.marks, side.is_last) {
            (Some(marks), true) => {
                let queue = &driver.queue;
                if self.kind == JoinKind::NullAwareAnti {
                    mark_nulls(queue, probing, marks)?;
                }
                let alone = self.marked_rows(queue, probing.rows.row_count, marks)?;
                let alone = queue.gather_rows(&probing.rows, &alone)?;
                let side = self.build_side == JoinSide::Left;
                self.preserved(queue, alone, &self.build_types, side).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The build rows without a match, or with one, that are output after every probe row.
    pub(super) fn unmatched(&self, queue: &Queue, built: &Built) -> Result<Option<Rows>> {
        let Some(marks) = &built.marks else { return Ok(None) };
        let alone = self.marked_rows(queue, built.chunk.row_count, marks)?;
        let alone = queue.gather_chunk(&built.chunk, &alone)?.into();
        self.preserved(queue, alone, &self.probe_types, self.build_side == JoinSide::Right).map(Some)
    }

    /// Rows with a mark for a semi join, without one for the others.
    fn marked_rows(&self, queue: &Queue, row_count: usize, marks: &Buffer) -> Result<RowNumbers> {
        let flags = match self.kind {
            JoinKind::Semi => marks.clone(),
            _ => queue.flags(&boolean(marks), row_count, true)?,
        };
        queue.select(&flags, row_count)
    }

    /// Rows of one side with NULLs for the other, where the kind has the other's columns.
    fn preserved(&self, queue: &Queue, rows: Rows, other: &[DataType], other_is_left: bool) -> Result<Rows> {
        if !self.gives_pairs() {
            return Ok(rows);
        }
        let nulls = other
            .iter()
            .map(|data_type| queue.nulls(data_type, rows.row_count).map(AnyColumn::Cells))
            .collect::<Result<Vec<_>>>()?;
        let columns = match other_is_left {
            true => nulls.into_iter().chain(rows.columns).collect(),
            false => rows.columns.into_iter().chain(nulls).collect(),
        };
        Ok(Rows { row_count: rows.row_count, columns })
    }

    fn types(&self) -> Vec<DataType> {
        let (left, right) = match self.build_side {
            JoinSide::Left => (&self.build_types, &self.probe_types),
            JoinSide::Right => (&self.probe_types, &self.build_types),
        };
        let right = if self.gives_pairs() { right.as_slice() } else { &[] };
        left.iter().chain(right).cloned().collect()
    }
}

impl Built {
    /// Its rows.
    pub(super) fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// Its rows alone.
    pub(super) fn into_chunk(self) -> Chunk {
        self.chunk
    }

    /// All of its memory.
    pub(super) fn buffers(&self) -> Vec<&Buffer> {
        let rows = self.chunk.columns.iter().flat_map(Column::buffers);
        let lookup: Vec<&Buffer> = match &self.lookup {
            Lookup::EveryPair => Vec::new(),
            Lookup::Table(table) => table.buffers().collect(),
            Lookup::Members(members) => members.buffers().collect(),
        };
        rows.chain(lookup).chain(&self.marks).collect()
    }
}

impl Probing {
    /// The marks so far.
    pub(super) fn marks(&self) -> Option<&Buffer> {
        self.marks.as_ref()
    }

    /// Whether matches are by entries of a dictionary.
    pub(super) fn is_by_entry(&self) -> bool {
        self.by_entry.is_some()
    }

    /// How many rows.
    pub(super) fn row_count(&self) -> usize {
        self.rows.row_count
    }
}

/// A NULL on the left is in no result of NOT IN: marked as if it had a match.
fn mark_nulls(queue: &Queue, probing: &Probing, marks: &Buffer) -> Result<()> {
    let Some(validity) = probing.keys.first().and_then(|key| key.validity.as_ref()) else { return Ok(()) };
    let flags = queue.flags(&boolean(validity), probing.rows.row_count, true)?;
    let rows = queue.select(&flags, probing.rows.row_count)?;
    queue.mark(&rows, None, marks, 0)
}

/// Bytes of 0 and 1 as a column.
fn boolean(bytes: &Buffer) -> Column {
    Column {
        data_type: DataType::Bool,
        cell_type: CellType::Bool,
        values: bytes.clone(),
        validity: None,
        strings: Vec::new(),
    }
}
