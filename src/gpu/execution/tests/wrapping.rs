//! A device around another, whose calls are counted and may fail. Selecting rows, and tables of joins, it has itself:
//! plain loops on the host, without a kernel.

use std::{
    collections::{BTreeMap, HashMap},
    ops::{Deref, Range, RangeInclusive},
    sync::Mutex,
};

use pystachio_plan::{Error, ErrorKind};

use super::*;
use crate::{
    decode::{ChunkRequest, ColumnSource, EncodedBytes, PendingLoad, PendingRowGroup, RowSelection},
    device::{Buffer, Chunk, Column},
    operation::{
        Accumulator, DecodeOperations, Device, FaultReport, GroupOperations, GroupSlots, Grouping,
        HashPartitioning, JoinOperations, JoinTable, KeyFilter, KeyFilterOperations, KeyFilterShape,
        KeyRange, KeyTest, Lane, MeasuredText, NO_ROW, PackedText, Pairs, PartitionOperations, Partitioned,
        ProbeMode, ProgramOperations, RowNumbers, RowOperations, SelectedTiles, SlotLayout, SlotOperations,
        SortColumn, SortOperations, TextOperations,
    },
    program::{Code, Computed},
};

/// How often each operation was called.
pub(super) type Operations = Mutex<BTreeMap<&'static str, u64>>;

/// The device.
pub(super) struct Wrapping {
    inner: Arc<dyn Device>,
    operations: Arc<Operations>,
    /// The operation that fails.
    failing: Option<&'static str>,
}

/// Its form of a [`JoinTable`].
type RowsByKey = HashMap<Vec<u8>, Vec<u32>>;

impl Wrapping {
    pub(super) fn new(
        inner: Arc<dyn Device>,
        operations: Arc<Operations>,
        failing: Option<&'static str>,
    ) -> Self {
        Self { inner, operations, failing }
    }

    fn call(&self, operation: &'static str) -> Result<&dyn Device> {
        *self.operations.lock().unwrap().entry(operation).or_default() += 1;
        match self.failing == Some(operation) {
            true => Err(Error::new(ErrorKind::Device, format!("{operation} fails here"))),
            false => Ok(self.inner.as_ref()),
        }
    }

    fn numbers(&self, rows: &[u32], of_rows: usize, may_miss: bool) -> Result<RowNumbers> {
        let count = rows.len();
        Ok(RowNumbers { rows: self.upload(rows)?, count, may_miss, is_every_row: count == of_rows })
    }

    /// The bytes of each row's keys; `None` if one is NULL. Keys are no text.
    fn keys(&self, keys: &[Column], row_count: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let mut found = vec![Some(Vec::new()); row_count];
        for key in keys {
            let width = key.cell_type.bytes() as usize;
            let cells: Vec<u8> = self.download(&key.values, row_count * width)?;
            let validity: Option<Vec<u8>> =
                key.validity.as_ref().map(|validity| self.download(validity, row_count)).transpose()?;
            for (row, found) in found.iter_mut().enumerate() {
                match &mut *found {
                    Some(_) if validity.as_ref().is_some_and(|validity| validity[row] == 0) => *found = None,
                    Some(bytes) => bytes.extend(&cells[row * width..][..width]),
                    None => {}
                }
            }
        }
        Ok(found)
    }
}

impl Device for Wrapping {
    fn lane(&self) -> &Lane {
        self.inner.lane()
    }

    fn report_faults(&self) -> Result<FaultReport> {
        self.call("report_faults")?.report_faults()
    }
}

impl Deref for Wrapping {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.inner.lane()
    }
}

impl DecodeOperations for Wrapping {
    fn load_chunks(&self, chunks: Vec<(&ColumnSource<'_>, EncodedBytes<'_>)>) -> Result<PendingLoad> {
        self.call("load_chunks")?.load_chunks(chunks)
    }

    fn decode_chunks(&self, chunks: &[ChunkRequest<'_>], rows: &RowSelection) -> Result<PendingRowGroup> {
        self.call("decode_chunks")?.decode_chunks(chunks, rows)
    }
}

impl ProgramOperations for Wrapping {
    fn run(&self, code: &Code, outputs: &[&Computed], chunk: &Chunk) -> Result<Vec<Column>> {
        self.call("run")?.run(code, outputs, chunk)
    }
}

impl RowOperations for Wrapping {
    fn select(&self, flags: &Buffer, row_count: usize) -> Result<RowNumbers> {
        self.call("select")?;
        let flags: Vec<u8> = self.download(flags, row_count)?;
        let rows: Vec<u32> = (0..row_count as u32).filter(|row| flags[*row as usize] != 0).collect();
        self.numbers(&rows, row_count, false)
    }

    fn select_tiles(&self, flags: &Buffer, row_count: usize) -> Result<SelectedTiles> {
        self.call("select_tiles")?.select_tiles(flags, row_count)
    }

    fn flags(&self, column: &Column, row_count: usize, invert: bool) -> Result<Buffer> {
        self.call("flags")?.flags(column, row_count, invert)
    }

    fn mark(
        &self,
        rows: &RowNumbers,
        flags: Option<&Buffer>,
        marks: &Buffer,
        first_row: usize,
    ) -> Result<()> {
        self.call("mark")?.mark(rows, flags, marks, first_row)
    }

    fn gather(&self, column: &Column, rows: &RowNumbers) -> Result<Column> {
        self.call("gather")?.gather(column, rows)
    }

    fn slice_column(&self, column: &Column, first_row: usize, row_count: usize) -> Result<Column> {
        self.call("slice_column")?.slice_column(column, first_row, row_count)
    }

    fn pick(&self, values: &Buffer, places: &[u32]) -> Result<Vec<u64>> {
        self.call("pick")?.pick(values, places)
    }
}

impl TextOperations for Wrapping {
    fn measure_text(&self, column: &Column, row_count: usize) -> Result<MeasuredText> {
        self.call("measure_text")?.measure_text(column, row_count)
    }

    fn copy_text(
        &self,
        column: &Column,
        row_count: usize,
        measured: MeasuredText,
        cells: Option<&Buffer>,
    ) -> Result<PackedText> {
        self.call("copy_text")?.copy_text(column, row_count, measured, cells)
    }

    fn move_strings(&self, cells: &Buffer, rows: Range<usize>, from: u64, to: u64) -> Result<()> {
        self.call("move_strings")?.move_strings(cells, rows, from, to)
    }
}

impl JoinOperations for Wrapping {
    fn build(&self, keys: Vec<Column>, row_count: usize) -> Result<JoinTable> {
        self.call("build")?;
        let mut rows = RowsByKey::new();
        for (row, key) in (0..).zip(self.keys(&keys, row_count)?) {
            if let Some(key) = key {
                rows.entry(key).or_default().push(row);
            }
        }
        Ok(JoinTable::new(row_count, rows))
    }

    fn probe(
        &self,
        table: &JoinTable,
        keys: &[Column],
        row_count: usize,
        mode: ProbeMode,
        pairs_max: u64,
    ) -> Result<Option<Pairs>> {
        self.call("probe")?;
        let table: &RowsByKey = table.form()?;
        let (mut probe_rows, mut build_rows) = (Vec::new(), Vec::new());
        for (row, key) in (0..).zip(self.keys(keys, row_count)?) {
            let found = key.and_then(|key| table.get(&key)).map_or(&[][..], Vec::as_slice);
            let found = if mode == ProbeMode::First { &found[..found.len().min(1)] } else { found };
            let missing = [NO_ROW];
            let is_miss = found.is_empty() && mode == ProbeMode::MatchesOrMiss;
            for build_row in if is_miss { &missing } else { found } {
                probe_rows.push(row);
                build_rows.push(*build_row);
            }
        }
        if probe_rows.len() as u64 > pairs_max {
            return Ok(None);
        }
        let probe = self.numbers(&probe_rows, usize::MAX, false)?;
        let build = self.numbers(&build_rows, usize::MAX, mode == ProbeMode::MatchesOrMiss)?;
        Ok(Some(Pairs { probe, build }))
    }

    fn cross(&self, first: u64, count: usize, build_row_count: usize) -> Result<Pairs> {
        self.call("cross")?.cross(first, count, build_row_count)
    }

    fn select_pairs(&self, pairs: &Pairs, kept: &RowNumbers) -> Result<Pairs> {
        self.call("select_pairs")?.select_pairs(pairs, kept)
    }
}

impl KeyFilterOperations for Wrapping {
    fn key_range(&self, key: &Column, row_count: usize) -> Result<Option<KeyRange>> {
        self.call("key_range")?.key_range(key, row_count)
    }

    fn open_key_filter(&self, shape: KeyFilterShape) -> Result<KeyFilter> {
        self.call("open_key_filter")?.open_key_filter(shape)
    }

    fn insert_keys(&self, filter: &KeyFilter, keys: &[Column], row_count: usize) -> Result<()> {
        self.call("insert_keys")?.insert_keys(filter, keys, row_count)
    }

    fn has_repeated_key(&self, filter: &KeyFilter) -> Result<bool> {
        self.call("has_repeated_key")?.has_repeated_key(filter)
    }

    fn test_keys(
        &self,
        filter: &KeyFilter,
        keys: &[Column],
        row_count: usize,
        test: KeyTest<'_>,
    ) -> Result<Buffer> {
        self.call("test_keys")?.test_keys(filter, keys, row_count, test)
    }
}

impl GroupOperations for Wrapping {
    fn group(&self, keys: &[Column], row_count: usize, groups_max: usize) -> Result<Grouping> {
        // Of codes there are known to be few.
        self.call(if groups_max < row_count { "group of few" } else { "group" })?;
        self.inner.group(keys, row_count, groups_max)
    }

    fn accumulate(
        &self,
        grouping: &Grouping,
        accumulator: Accumulator,
        input: Option<&Column>,
        result: &DataType,
    ) -> Result<Column> {
        self.call("accumulate")?.accumulate(grouping, accumulator, input, result)
    }

    fn merge(
        &self,
        grouping: &Grouping,
        accumulator: Accumulator,
        partial: &Column,
        result: &DataType,
    ) -> Result<Column> {
        self.call("merge")?.merge(grouping, accumulator, partial, result)
    }
}

impl SlotOperations for Wrapping {
    fn open_slots(&self, layout: &SlotLayout, keys: RangeInclusive<i64>) -> Result<GroupSlots> {
        self.call("open_slots")?.open_slots(layout, keys)
    }

    fn grow_slots(
        &self,
        layout: &SlotLayout,
        slots: &GroupSlots,
        keys: RangeInclusive<i64>,
    ) -> Result<GroupSlots> {
        self.call("grow_slots")?.grow_slots(layout, slots, keys)
    }

    fn accumulate_slots(
        &self,
        layout: &SlotLayout,
        slots: &mut GroupSlots,
        key: &Column,
        arguments: &[Column],
        row_count: usize,
    ) -> Result<()> {
        self.call("accumulate_slots")?.accumulate_slots(layout, slots, key, arguments, row_count)
    }

    fn take_slots(
        &self,
        layout: &SlotLayout,
        slots: &GroupSlots,
        key_type: &DataType,
        result_types: &[DataType],
    ) -> Result<Chunk> {
        self.call("take_slots")?.take_slots(layout, slots, key_type, result_types)
    }
}

impl SortOperations for Wrapping {
    fn sort(&self, keys: &[SortColumn], row_count: usize) -> Result<RowNumbers> {
        self.call("sort")?.sort(keys, row_count)
    }
}

impl PartitionOperations for Wrapping {
    fn partition(&self, keys: &[Column], row_count: usize, by: HashPartitioning) -> Result<Partitioned> {
        self.call("partition")?.partition(keys, row_count, by)
    }

    fn partition_by_range(
        &self,
        keys: &[SortColumn],
        row_count: usize,
        splitters: &[Column],
        splitter_count: usize,
    ) -> Result<Partitioned> {
        self.call("partition_by_range")?.partition_by_range(keys, row_count, splitters, splitter_count)
    }
}
