//! The bytes that a launch reads and writes of the device's memory, as far as its arguments tell.
//!
//! A lower bound: every cell that a row certainly needs counts once. It leaves out text that cells
//! point to, chains of more than one row, the rest of a sector, and accesses that depend on data.
//!
//! Deliberately absent: kernels whose arguments are lists on the device. Their callers pass the
//! bytes to [`Queue::launch_moving`](super::Queue::launch_moving).

use bytemuck::Pod;

use super::{
    BLOOM_BLOCK_WORDS,
    abi::{
        AccumulateFloats, AccumulateGroups, AccumulateSlots, AssignGroups, AssignHashPartitions,
        AssignOwners, AssignRangePartitions, CellRange as CellRangeView, CollectRuns, ColumnView,
        CombineFlags, CompareTexts, CompressTexts, CopyRanges, CopyStrings, CountFrames, CountRepeats,
        DecompressTexts, EncodeSortWords, FindBest, FindEqualKeys, FindFrames, FindRows, FinishFloats,
        FinishSums, FloatGroup, GatherCells, HashKeys, InsertBuildRows, InsertFilterKeys, KeyColumns,
        MarkRows, MarkRuns, MeasureKeys, MeasureRanges, MeasureSortWords, MoveStrings, NumberRows, PackCells,
        PairBest, PlaceStrings, ProbeRows, RankRows, RepeatRows, RowRuns, SLOTS_BY_KEY, ScanBest, ScanCounts,
        ScatterRows, SlotInput, SlotKey as SlotKeyView, SlotKeyTarget, SlotOutput, SortDigits, SumFrames,
        SumRows, TakeSlots, TestFilterKeys, TextGroups, UnpackCells, UnpackedRange, WindowFrames, WritePairs,
    },
};
use crate::device::{Kernel, StringCell};

/// A row number, a group number, a slot, a length.
const NUMBER_BYTES: u64 = 4;
/// A hash, a count, an offset, a sort word.
const WORD_BYTES: u64 = 8;
/// A flag, a mark, the validity of a row.
const FLAG_BYTES: u64 = 1;
/// A sum that fits two words.
const SUM_BYTES: u64 = 16;

/// The bytes that a launch moves; 0 if its arguments do not tell.
pub(super) fn bytes_moved(kernel: Kernel, arguments: &[u8]) -> u64 {
    match kernel {
        Kernel::GatherCells => {
            let GatherCells { rows, row_count, column_count, columns, .. } = read(arguments);
            let columns = columns.iter().take(column_count as usize);
            let bytes: u64 =
                columns.map(|column| cell(&column.source) + written(&column.source, column.validity)).sum();
            row_count * (if_set(rows, NUMBER_BYTES) + bytes)
        }
        Kernel::CopyRanges => {
            let CopyRanges { range_count, ranges, .. } = read(arguments);
            2 * ranges.iter().take(range_count as usize).map(|range| range.bytes).sum::<u64>()
        }
        Kernel::MarkRows => {
            let MarkRows { flags, count, .. } = read(arguments);
            count * (NUMBER_BYTES + if_set(flags, FLAG_BYTES) + FLAG_BYTES)
        }
        Kernel::CombineFlags => {
            let CombineFlags { validity, row_count, .. } = read(arguments);
            row_count * (2 * FLAG_BYTES + if_set(validity, FLAG_BYTES))
        }
        Kernel::CountRepeats => {
            let CountRepeats { lasts, row_count, .. } = read(arguments);
            row_count * (cell(&lasts) + NUMBER_BYTES)
        }
        Kernel::RepeatRows => {
            let RepeatRows { row_count, count, validity, .. } = read(arguments);
            row_count * WORD_BYTES + count * (NUMBER_BYTES + WORD_BYTES + if_set(validity, FLAG_BYTES))
        }
        Kernel::SelectRows => {
            let ScanCounts { row_count, count_bytes, .. } = read(arguments);
            row_count * u64::from(count_bytes)
        }
        Kernel::CountBefore => {
            let ScanCounts { row_count, count_bytes, .. } = read(arguments);
            row_count * (u64::from(count_bytes) + NUMBER_BYTES)
        }
        Kernel::WriteOffsets => {
            let ScanCounts { row_count, count_bytes, .. } = read(arguments);
            row_count * (u64::from(count_bytes) + WORD_BYTES)
        }
        Kernel::MeasureStrings => {
            let CopyStrings { source, row_count, .. } = read(arguments);
            row_count * (cell(&source) + NUMBER_BYTES)
        }
        Kernel::CopyStrings => {
            let CopyStrings { source, cells, row_count, .. } = read(arguments);
            row_count * (cell(&source) + WORD_BYTES + if_set(cells, size_of::<StringCell>() as u64))
        }
        Kernel::MoveStrings => read::<MoveStrings>(arguments).row_count * 2 * size_of::<StringCell>() as u64,
        Kernel::PlaceStrings => {
            let cell_bytes = size_of::<StringCell>() as u64;
            read::<PlaceStrings>(arguments).row_count * (NUMBER_BYTES + WORD_BYTES + cell_bytes)
        }
        Kernel::AssignHashPartitions => {
            read::<AssignHashPartitions>(arguments).row_count * (2 * WORD_BYTES + NUMBER_BYTES)
        }
        Kernel::AssignRangePartitions => {
            let AssignRangePartitions { keys, row_count, .. } = read(arguments);
            row_count * (key_bytes(&keys) + WORD_BYTES + NUMBER_BYTES)
        }
        Kernel::AssignOwners => {
            let AssignOwners { keys, row_count, .. } = read(arguments);
            row_count * (key_bytes(&keys) + FLAG_BYTES)
        }
        Kernel::ScatterRows => {
            let ScatterRows { row_count, column_count, block_count, columns, blocks, .. } = read(arguments);
            let blocks = blocks.iter().take(block_count as usize);
            let scattered: u64 = blocks.map(|block| block.end_row.saturating_sub(block.first_row)).sum();
            let columns = columns.iter().take(column_count as usize);
            let bytes: u64 = columns.map(|column| 2 * cell(column)).sum();
            row_count * FLAG_BYTES + scattered * bytes
        }
        Kernel::MeasureRanges => {
            let MeasureRanges { range_count, ranges, .. } = read(arguments);
            ranges.iter().take(range_count as usize).map(cells_of).sum()
        }
        Kernel::CountRuns | Kernel::CollectRuns => {
            let CollectRuns { range_count, ranges, .. } = read(arguments);
            ranges.iter().take(range_count as usize).map(|range| cells_of(&range.source)).sum()
        }
        Kernel::PackCells => {
            let PackCells { range_count, ranges, .. } = read(arguments);
            let ranges = ranges.iter().take(range_count as usize);
            ranges.map(|range| cells_of(&range.source) + bits(range.source.row_count, range.width)).sum()
        }
        Kernel::UnpackCells => {
            let UnpackCells { range_count, ranges, .. } = read(arguments);
            let cells = |range: &UnpackedRange| range.row_count * u64::from(range.cell_bytes);
            let ranges = ranges.iter().take(range_count as usize);
            ranges.map(|range| bits(range.row_count, range.width) + cells(range)).sum()
        }
        Kernel::CompressTexts => {
            let CompressTexts { text_count, texts, .. } = read(arguments);
            texts.iter().take(text_count as usize).map(|text| text.bytes).sum()
        }
        Kernel::DecompressTexts => {
            let DecompressTexts { text_count, texts, .. } = read(arguments);
            texts.iter().take(text_count as usize).map(|text| text.bytes + text.source_bytes).sum()
        }
        Kernel::HashKeys => {
            let HashKeys { keys, row_count, .. } = read(arguments);
            row_count * (key_bytes(&keys) + WORD_BYTES)
        }
        Kernel::MeasureKeys => {
            let MeasureKeys { keys, row_count, .. } = read(arguments);
            row_count * cell(&keys)
        }
        Kernel::InsertBuildRows => {
            let InsertBuildRows { key, row_count, slots, .. } = read(arguments);
            let found_by = if slots == SLOTS_BY_KEY { cell(&key) } else { WORD_BYTES };
            // A slot is read and written, a link is written.
            row_count * (found_by + 3 * NUMBER_BYTES)
        }
        Kernel::FindEqualKeys => read::<FindEqualKeys>(arguments).row_count * (WORD_BYTES + NUMBER_BYTES),
        Kernel::MatchRows => {
            let arguments: ProbeRows = read(arguments);
            arguments.probe_row_count * (probe_bytes(&arguments) + NUMBER_BYTES + FLAG_BYTES)
        }
        Kernel::CountMatches | Kernel::WriteMatches => {
            let arguments: ProbeRows = read(arguments);
            let offset = if kernel == Kernel::WriteMatches { WORD_BYTES } else { 0 };
            arguments.probe_row_count * (probe_bytes(&arguments) + NUMBER_BYTES + offset)
        }
        Kernel::InsertBitmapKeys => {
            let InsertFilterKeys { keys, row_count, .. } = read(arguments);
            row_count * (key_bytes(&keys) + NUMBER_BYTES)
        }
        Kernel::InsertBloomKeys => {
            let InsertFilterKeys { keys, row_count, .. } = read(arguments);
            row_count * (key_bytes(&keys) + BLOOM_BLOCK_WORDS * NUMBER_BYTES)
        }
        Kernel::TestBitmapKeys => tested(&read(arguments), NUMBER_BYTES),
        Kernel::TestBloomKeys => tested(&read(arguments), BLOOM_BLOCK_WORDS * NUMBER_BYTES),
        Kernel::WritePairs => read::<WritePairs>(arguments).pair_count * 2 * NUMBER_BYTES,
        Kernel::AssignGroups => {
            let AssignGroups { keys, row_count, .. } = read(arguments);
            // The hashes and keys of the row and of its group's leader.
            let compared = 2 * (WORD_BYTES + key_bytes(&keys));
            row_count * (compared + 2 * NUMBER_BYTES + FLAG_BYTES)
        }
        Kernel::NumberGroups => read::<AssignGroups>(arguments).row_count * (2 * NUMBER_BYTES + WORD_BYTES),
        Kernel::AccumulateFewGroups | Kernel::AccumulateFewLargeSums => accumulated(&read(arguments), 0),
        Kernel::AccumulateGroups | Kernel::AccumulateLargeSums => {
            let arguments: AccumulateGroups = read(arguments);
            let a_group =
                if_set(arguments.sums, SUM_BYTES + WORD_BYTES) + if_set(arguments.rows, NUMBER_BYTES);
            // Read and written.
            accumulated(&arguments, 2 * a_group)
        }
        Kernel::FinishLargeSums => {
            let FinishSums { group_count, cell_bytes, .. } = read(arguments);
            group_count * (WORD_BYTES + SUM_BYTES + u64::from(cell_bytes) + FLAG_BYTES)
        }
        Kernel::AccumulateSlots => {
            let arguments: AccumulateSlots = read(arguments);
            let sum = |input: &SlotInput| 2 * if_set(input.sum_word.into(), SUM_BYTES);
            let added: u64 = slot_inputs(&arguments).map(|input| cell(&input.input) + sum(input)).sum();
            arguments.row_count * (slot_keys(&arguments) + 2 * WORD_BYTES + added)
        }
        Kernel::AccumulateBlockSlots | Kernel::AccumulatePrivateSlots => {
            let arguments: AccumulateSlots = read(arguments);
            let inputs: u64 = slot_inputs(&arguments).map(|input| cell(&input.input)).sum();
            arguments.row_count * (u64::from(arguments.share_count) * slot_keys(&arguments) + inputs)
        }
        Kernel::MeasureFloats
        | Kernel::AccumulateFloats
        | Kernel::AccumulateBlockFloats
        | Kernel::AccumulatePrivateFloats => {
            let AccumulateFloats { input, groups, first_row, end_row, word_count, .. } = read(arguments);
            let words = if kernel == Kernel::MeasureFloats { 0 } else { word_count * WORD_BYTES };
            (end_row - first_row) * (cell(&input) + if_set(groups, NUMBER_BYTES)) + words
        }
        Kernel::CountFloatWords | Kernel::MeasureFloatStates => {
            read::<FinishFloats>(arguments).group_count * (size_of::<FloatGroup>() as u64 + NUMBER_BYTES)
        }
        Kernel::RoundFloatSums => {
            let FinishFloats { group_count, cell_bytes, .. } = read(arguments);
            group_count * (size_of::<FloatGroup>() as u64 + WORD_BYTES + u64::from(cell_bytes) + FLAG_BYTES)
        }
        Kernel::FlagSlots => read::<TakeSlots>(arguments).slot_count * (WORD_BYTES + FLAG_BYTES),
        Kernel::TakeSlots => {
            let TakeSlots { numbers, row_count, slot_words, key_count, keys, output_count, outputs, .. } =
                read(arguments);
            let keys = keys.iter().take(key_count as usize);
            let outputs = outputs.iter().take(output_count as usize);
            let key = |key: &SlotKeyTarget| u64::from(key.cell_bytes) + if_set(key.validity, FLAG_BYTES);
            let output =
                |output: &SlotOutput| u64::from(output.cell_bytes) + if_set(output.validity, FLAG_BYTES);
            let written = keys.map(key).sum::<u64>() + outputs.map(output).sum::<u64>();
            row_count * (if_set(numbers, NUMBER_BYTES) + WORD_BYTES * u64::from(slot_words) + written)
        }
        Kernel::MeasureSortWords => {
            let MeasureSortWords { column, row_count, .. } = read(arguments);
            row_count * cell(&column)
        }
        Kernel::RankRows => {
            let RankRows { keys, key_count, row_count, .. } = read(arguments);
            let keys = keys.iter().take(key_count as usize);
            row_count * (keys.map(|key| cell(&key.column)).sum::<u64>() + NUMBER_BYTES)
        }
        Kernel::EncodeSortWords => {
            let EncodeSortWords { column, row_count, .. } = read(arguments);
            row_count * (NUMBER_BYTES + cell(&column) + WORD_BYTES)
        }
        Kernel::CompareTexts => {
            let CompareTexts { count, leaders, .. } = read(arguments);
            let known = if_set(leaders, 3 * NUMBER_BYTES);
            // The text's cell and its leader's; the text's own bytes are unknown here.
            count
                * (NUMBER_BYTES + known + 2 * size_of::<StringCell>() as u64 + 2 * WORD_BYTES + NUMBER_BYTES)
        }
        Kernel::MarkTextGroups => {
            read::<TextGroups>(arguments).count * (NUMBER_BYTES + 2 * WORD_BYTES + FLAG_BYTES)
        }
        Kernel::RankTextGroups => {
            let TextGroups { count, groups, .. } = read(arguments);
            let bounds = WORD_BYTES + FLAG_BYTES + NUMBER_BYTES;
            count * (2 * NUMBER_BYTES + if_set(groups, NUMBER_BYTES) + bounds + 3 * WORD_BYTES + FLAG_BYTES)
        }
        Kernel::KeepTextGroups => {
            let bounds = 2 * WORD_BYTES + FLAG_BYTES + NUMBER_BYTES;
            read::<TextGroups>(arguments).kept_count * (bounds + 8 * NUMBER_BYTES)
        }
        Kernel::MarkRuns => {
            let MarkRuns { keys, outer, row_count, .. } = read(arguments);
            row_count * (key_bytes(&keys) + if_set(outer, FLAG_BYTES) + FLAG_BYTES)
        }
        Kernel::FindFrames => {
            let FindFrames { partitions, peers, key, row_count, .. } = read(arguments);
            let key = if_set(key.values, 2 * cell(&key));
            row_count * (run(&partitions) + run(&peers) + key + 2 * NUMBER_BYTES)
        }
        Kernel::NumberRows => {
            let NumberRows { partitions, peers, row_count, .. } = read(arguments);
            row_count * (run(&partitions) + run(&peers) + WORD_BYTES)
        }
        Kernel::FindRows => {
            let FindRows { frames, partitions, row_count, .. } = read(arguments);
            row_count * (frame(&frames) + run(&partitions) + NUMBER_BYTES)
        }
        Kernel::CountFrames => {
            let CountFrames { frames, filled, .. } = read(arguments);
            frames.row_count * (frame(&frames) + if_set(filled, 2 * NUMBER_BYTES) + WORD_BYTES)
        }
        Kernel::SumTiles | Kernel::SumLargeTiles => {
            let SumRows { addends, row_count, .. } = read(arguments);
            row_count * cell(&addends)
        }
        Kernel::WriteSums | Kernel::WriteLargeSums => {
            let SumRows { addends, row_count, .. } = read(arguments);
            let sum = if kernel == Kernel::WriteSums { SUM_BYTES } else { 2 * SUM_BYTES };
            row_count * (cell(&addends) + sum)
        }
        Kernel::SumFrames | Kernel::SumLargeFrames => {
            let SumFrames { frames, filled, cell_bytes, .. } = read(arguments);
            let sum = if kernel == Kernel::SumFrames { SUM_BYTES } else { 2 * SUM_BYTES };
            let counts = if_set(filled, 2 * NUMBER_BYTES);
            frames.row_count * (frame(&frames) + counts + 2 * sum + u64::from(cell_bytes) + FLAG_BYTES)
        }
        Kernel::BestTiles | Kernel::WriteBest => {
            let ScanBest { column, starts, states, count, .. } = read(arguments);
            let state = match states {
                0 => cell(&column) + if_set(starts, FLAG_BYTES),
                _ => WORD_BYTES,
            };
            let written = if kernel == Kernel::WriteBest { NUMBER_BYTES } else { 0 };
            count * (state + written)
        }
        Kernel::PairBest => {
            let PairBest { column, source, count, .. } = read(arguments);
            count * (cell(&column) + if_set(source, NUMBER_BYTES)) + count.div_ceil(2) * NUMBER_BYTES
        }
        Kernel::FindBest => {
            let FindBest { column, frames, running, .. } = read(arguments);
            let found = if running == 0 { cell(&column) } else { NUMBER_BYTES };
            frames.row_count * (frame(&frames) + found + NUMBER_BYTES)
        }
        Kernel::CountDigits => read::<SortDigits>(arguments).row_count * WORD_BYTES,
        Kernel::ScatterDigits => read::<SortDigits>(arguments).row_count * 2 * (WORD_BYTES + NUMBER_BYTES),
        _ => 0,
    }
}

/// A kernel's arguments; zeros if they are another kernel's: the estimate must not fail.
fn read<T: Pod>(arguments: &[u8]) -> T {
    bytemuck::try_pod_read_unaligned(arguments).unwrap_or_else(|_| T::zeroed())
}

fn if_set(address: u64, bytes: u64) -> u64 {
    if address == 0 { 0 } else { bytes }
}

/// The cells of a range with their validity, read.
fn cells_of(range: &CellRangeView) -> u64 {
    range.row_count * (u64::from(range.cell_bytes) + if_set(range.validity, FLAG_BYTES))
}

/// Values of so many bits.
fn bits(count: u64, width: u32) -> u64 {
    (count * u64::from(width)).div_ceil(8)
}

/// The number of a row's run and the first row of that.
fn run(runs: &RowRuns) -> u64 {
    if_set(runs.numbers, 2 * NUMBER_BYTES)
}

/// The first row of a frame, and the one behind its last.
fn frame(frames: &WindowFrames) -> u64 {
    if_set(frames.starts, 2 * NUMBER_BYTES)
}

/// A cell with its validity, read.
fn cell(column: &ColumnView) -> u64 {
    u64::from(column.cell_bytes) + if_set(column.validity, FLAG_BYTES)
}

/// A cell with its validity, written to another column.
fn written(column: &ColumnView, validity: u64) -> u64 {
    u64::from(column.cell_bytes) + if_set(validity, FLAG_BYTES)
}

fn key_bytes(keys: &KeyColumns) -> u64 {
    keys.columns.iter().take(keys.count as usize).map(cell).sum()
}

/// The accesses to find one build row: the slot, and the probe row's key, or its hash and the hash
/// of the build row.
fn probe_bytes(arguments: &ProbeRows) -> u64 {
    let found_by = match arguments.slots {
        SLOTS_BY_KEY => key_bytes(&arguments.probe_keys),
        _ => 2 * WORD_BYTES,
    };
    found_by + NUMBER_BYTES
}

/// `found`: the bytes of the filter for a row.
fn tested(arguments: &TestFilterKeys, found: u64) -> u64 {
    let TestFilterKeys { keys, row_count, asked, .. } = arguments;
    row_count * (key_bytes(keys) + found + if_set(*asked, FLAG_BYTES) + FLAG_BYTES)
}

fn accumulated(arguments: &AccumulateGroups, a_group: u64) -> u64 {
    let AccumulateGroups { input, groups, row_count, .. } = arguments;
    row_count * (cell(input) + if_set(*groups, NUMBER_BYTES) + a_group)
}

fn slot_inputs(arguments: &AccumulateSlots) -> impl Iterator<Item = &SlotInput> {
    arguments.inputs.iter().take(arguments.input_count as usize)
}

fn slot_keys(arguments: &AccumulateSlots) -> u64 {
    let keys = arguments.keys.iter().take(arguments.key_count as usize);
    keys.map(|SlotKeyView { key, .. }| cell(key)).sum()
}

/// The names that [`operation_of`] gives launches that find groups known to be few, and those that
/// copy a range of rows.
#[cfg(test)]
pub(crate) const GROUPS_OF_FEW: &str = "groups of few";
#[cfg(test)]
pub(crate) const SLICES: &str = "slices";

/// Which of the operations that launch a kernel it is, for tests.
#[cfg(test)]
pub(crate) fn operation_of(kernel: Kernel, arguments: &[u8]) -> Option<&'static str> {
    match kernel {
        Kernel::AssignGroups => {
            let AssignGroups { row_count, slot_count, .. } = read(arguments);
            (slot_count < (2 * row_count).next_power_of_two()).then_some(GROUPS_OF_FEW)
        }
        Kernel::GatherCells => {
            let GatherCells { rows, row_count, .. } = read(arguments);
            (rows == 0 && row_count > 0).then_some(SLICES)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::bytes_of;

    use super::*;
    use crate::operation::abi::GatheredColumn;

    #[test]
    fn a_gather_moves_row_numbers_and_cells() {
        let mut arguments = GatherCells { row_count: 10, column_count: 1, ..GatherCells::default() };
        let source = ColumnView { values: 1, cell_bytes: 8, ..ColumnView::default() };
        arguments.columns[0] = GatheredColumn { source, values: 1, validity: 0 };
        assert_eq!(bytes_moved(Kernel::GatherCells, bytes_of(&arguments)), 10 * 16);
        (arguments.rows, arguments.columns[0].validity, arguments.columns[0].source.validity) = (1, 1, 1);
        assert_eq!(bytes_moved(Kernel::GatherCells, bytes_of(&arguments)), 10 * (4 + 9 + 9));
        // Uncounted cells do not move; row numbers are read once.
        arguments.columns[1] = arguments.columns[0];
        assert_eq!(bytes_moved(Kernel::GatherCells, bytes_of(&arguments)), 10 * (4 + 9 + 9));
        arguments.column_count = 2;
        assert_eq!(bytes_moved(Kernel::GatherCells, bytes_of(&arguments)), 10 * (4 + 2 * (9 + 9)));
    }

    #[test]
    fn keys_count_as_often_as_there_are_of_them() {
        let mut arguments = HashKeys { row_count: 3, ..HashKeys::default() };
        arguments.keys.count = 2;
        arguments.keys.columns[0].cell_bytes = 4;
        arguments.keys.columns[1].cell_bytes = 16;
        arguments.keys.columns[2].cell_bytes = 32;
        assert_eq!(bytes_moved(Kernel::HashKeys, bytes_of(&arguments)), 3 * (4 + 16 + 8));
    }

    #[test]
    fn arguments_of_another_kernel_move_nothing() {
        assert_eq!(bytes_moved(Kernel::GatherCells, &[1, 2, 3]), 0);
        assert_eq!(bytes_moved(Kernel::DecodeLevels, &[0; 40]), 0);
    }
}
