//! A chunk's pages in the form for kernels, which stay with the chunk: to decode rows again, a
//! launch only names them.
//!
//! ```text
//! buffer   | PageColumn | EncodedPage … | PageState … | PageSlice … of each kernel that writes cells |
//! launch   DecodeRange: rows 100 to 300 of the chunk, and where their cells go
//! ```
//!
//! Invariants: only of chunks decoded without a fault and without NULLs, so kernels no longer read
//! levels. Their pages need no memory but their own, and the dictionary, if any, stays too.

use pystachio_files::ColumnVariant;
use pystachio_plan::{ErrorKind, Result};

use super::{
    abi::{
        DecodePages, DecodeRange, DeltaForm, EncodedPage, PageColumn, PageSlice, PageState, SLICE_ROWS,
        WORD_ROWS,
    },
    chunk_plan::{ChunkPlan, DataPage, WORD_BYTES, has_scratch},
    decoded_dictionary::DecodedDictionary,
    page_batch::{CellLists, PackedArrays},
    row_selection::{PlacedRows, RowSelection},
};
use crate::{
    device::{Buffer, Kernel, Lifetime},
    operation::Queue,
};

/// Bytes of a chunk's descriptors besides those of its pages: a column, and the arrays' alignment.
const CHUNK_BYTES: u64 = 512;
/// Bytes of a page's descriptors, without its slices.
const PAGE_BYTES: u64 = (size_of::<EncodedPage>() + size_of::<PageState>() + size_of::<u32>()) as u64;

/// The descriptors of a chunk, as one kind of column.
#[derive(Debug)]
pub(super) struct PageDescriptors {
    variant: ColumnVariant,
    buffer: Buffer,
    /// Places in the buffer.
    pages: usize,
    states: usize,
    /// By the kernel that writes their cells.
    slices: CellLists<SliceList>,
}

/// Slices that one kernel writes.
#[derive(Debug, Default)]
struct SliceList {
    /// Of the first; in the buffer.
    place: usize,
    /// Rows of the chunk, by slice.
    rows: Vec<SliceRows>,
    /// Bytes of their pages' values.
    encoded_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct SliceRows {
    first: u32,
    end: u32,
    /// Rows of all slices before.
    before: u32,
}

/// Ranges of rows that one kernel decodes.
#[derive(Debug, Default)]
pub(super) struct RangeList {
    pub(super) ranges: Vec<DecodeRange>,
    pub(super) block_count: u32,
    /// The least bytes read and written.
    pub(super) bytes: u64,
}

/// Where the rows of a chunk are decoded into.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeTarget {
    /// Cells, or codes.
    pub(super) values: u64,
    pub(super) value_bytes: u64,
    /// The code of the dictionary's first entry, and of NULL.
    pub(super) codes: (u32, u32),
    /// More bits of [`PageColumn::flags`].
    pub(super) flags: u32,
}

/// Upper bound of the bytes of descriptors of so many pages with so many rows.
pub(super) fn descriptor_bytes_max(page_count: u64, row_count: u64) -> u64 {
    if page_count == 0 {
        return 0;
    }
    let slice_count = row_count / u64::from(SLICE_ROWS) + page_count;
    CHUNK_BYTES + page_count * PAGE_BYTES + slice_count * size_of::<PageSlice>() as u64
}

impl PageDescriptors {
    /// The descriptors of a chunk decoded without a fault and without NULLs; made if possible. Work
    /// enqueued on the queue from now on may use them. `None` if they do not stay.
    ///
    /// # Errors
    ///
    /// Faults of the device, and `Cancelled`.
    pub(super) fn of<'a>(queue: &Queue, plan: &ChunkPlan<'a>) -> Result<Option<&'a Self>> {
        let chunk = plan.chunk;
        if chunk.kept.descriptors.get().is_none() {
            match Self::make(queue, plan)? {
                Made::Never => drop(chunk.kept.descriptors.set(None)),
                Made::Deferred => {}
                Made::Now(made) => {
                    queue.memory().publish([&made.buffer].into_iter(), queue.stream())?;
                    if made.buffer.try_detach() {
                        drop(chunk.kept.descriptors.set(Some(made)));
                    }
                }
            }
        }
        let known = chunk.kept.descriptors.get().and_then(Option::as_deref);
        let known = known.filter(|known| known.variant == plan.variant());
        if let Some(known) = known {
            let dictionary = chunk.kept.dictionary.get().into_iter().flat_map(DecodedDictionary::buffers);
            Buffer::use_all_on(dictionary.chain([&known.buffer]), queue.stream())?;
        }
        Ok(known)
    }

    fn make(queue: &Queue, plan: &ChunkPlan<'_>) -> Result<Made> {
        let (chunk, memory) = (plan.chunk, queue.memory());
        if chunk.descriptor_bytes() == 0 {
            return Ok(Made::Never);
        }
        let variant = plan.variant();
        let mut column = plan.conversion.page_column();
        if let Some(dictionary) = plan.dictionary() {
            let Some(decoded) = chunk.kept.dictionary.get().filter(|decoded| decoded.is_as(&variant)) else {
                return Ok(Made::Deferred);
            };
            column.dictionary = decoded.entries.address();
            column.dictionary_count = dictionary.page.row_count;
        }
        let Some(DescribedPages { mut pages, states, mut lists }) = DescribedPages::of(plan, &column)? else {
            return Ok(Made::Never);
        };
        let scratch = match plan.is_optional {
            true => Some(allocate_words(queue, &mut pages)?),
            false => None,
        };
        let mut arrays = PackedArrays::default();
        let columns = arrays.add(&[column]);
        let (page_place, state_place) = (arrays.add(&pages), arrays.add(&states));
        for (list, slices) in lists.each_mut() {
            list.place = arrays.add(slices);
        }
        let numbers: Vec<u32> = (0..pages.len() as u32).collect();
        let number_place = arrays.add(&numbers);
        let bytes = arrays.bytes.len() as u64;
        if bytes > chunk.descriptor_bytes() || bytes > memory.cache_room() {
            return Ok(Made::Deferred);
        }
        let buffer = match memory.allocate_for(Lifetime::Long, bytes, queue.stream()) {
            Err(error) if error.kind == ErrorKind::OutOfMemory => return Ok(Made::Deferred),
            buffer => buffer?,
        };
        memory.upload_to(&arrays.bytes, buffer.address(), queue.stream())?;
        let at = |place: usize| buffer.address() + place as u64;
        if let Some((scratch, words_bytes)) = scratch {
            // Where the values begin behind the levels; nothing else needs to be measured or
            // reported.
            let arguments = DecodePages {
                pages: at(page_place),
                columns: at(columns),
                states: at(state_place),
                list: at(number_place),
                status: scratch.address() + words_bytes,
            };
            queue.launch_moving(Kernel::DecodeLevels, pages.len() as u32, &arguments, || words_bytes)?;
        }
        assert_eq!(columns, 0, "the column comes first");
        let slices = lists.map(|(list, _)| SliceList { rows: list.rows.clone(), ..*list });
        Ok(Made::Now(Box::new(Self { variant, buffer, pages: page_place, states: state_place, slices })))
    }

    /// Adds the rows of a selection to the kernels' work, and returns their number.
    pub(super) fn add_ranges(
        &self,
        rows: &RowSelection,
        target: RangeTarget,
        lists: &mut CellLists<RangeList>,
    ) -> usize {
        let base = self.buffer.address();
        let mut added = 0;
        for ((_, list), ranges) in self.slices.each().zip(lists.each_mut()) {
            let pages = DecodeRange {
                pages: base + self.pages as u64,
                states: base + self.states as u64,
                column: base,
                slices: base + list.place as u64,
                values: target.values,
                first_code: target.codes.0,
                null_code: target.codes.1,
                flags: target.flags,
                ..DecodeRange::default()
            };
            for placed in rows.placed_rows() {
                let Some((first_slice, slice_count, row_count)) = list.within(*placed) else { continue };
                ranges.ranges.push(DecodeRange {
                    first_slice,
                    first_block: ranges.block_count,
                    first_row: placed.first_row,
                    end_row: placed.end(),
                    target_row: placed.target_row,
                    ..pages
                });
                ranges.block_count += slice_count;
                ranges.bytes += u64::from(row_count) * target.value_bytes + list.bytes_of(row_count);
                added += row_count as usize;
            }
        }
        added
    }

    /// Device memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Its memory.
    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

/// The outcome of making descriptors.
enum Made {
    Now(Box<PageDescriptors>),
    /// Not now: memory is short, or the dictionary does not stay yet.
    Deferred,
    /// Never.
    Never,
}

/// The pages of a chunk, on the host.
struct DescribedPages {
    pages: Vec<EncodedPage>,
    states: Vec<PageState>,
    lists: CellLists<(SliceList, Vec<PageSlice>)>,
}

impl DescribedPages {
    /// All data pages of a chunk; `None` if one needs memory beside its own.
    fn of(plan: &ChunkPlan<'_>, column: &PageColumn) -> Result<Option<Self>> {
        let mut described = Self { pages: Vec::new(), states: Vec::new(), lists: CellLists::default() };
        for wanted in plan.all_pages() {
            let DataPage { encoded, source, delta_form } = plan.data_page(wanted)?;
            if has_scratch(source, delta_form) || delta_form == DeltaForm::Strings {
                return Ok(None);
            }
            let (list, slices) = described.lists.of(source, delta_form, column.cell_bytes);
            let number = described.pages.len() as u32;
            let first = wanted.page.first_row;
            for rows in PlacedRows::of_page(wanted.page.row_count).flat_map(|rows| rows.parts(SLICE_ROWS)) {
                let before = list.rows.last().map_or(0, |last| last.before + (last.end - last.first));
                let chunk_row = first + rows.first_row;
                list.rows.push(SliceRows { first: chunk_row, end: chunk_row + rows.row_count, before });
                slices.push(PageSlice {
                    page: number,
                    first_row: rows.first_row,
                    row_count: rows.row_count,
                    target_row: chunk_row,
                });
            }
            list.encoded_bytes += u64::from(encoded.values_bytes);
            described.pages.push(encoded);
            described.states.push(PageState {
                dense: 1,
                value_count: wanted.page.row_count,
                ..PageState::default()
            });
        }
        Ok(Some(described))
    }
}

/// Gives pages memory for their level words, which no kernel reads: the memory, and the bytes of
/// the words; behind them is a status.
fn allocate_words(queue: &Queue, pages: &mut [EncodedPage]) -> Result<(Buffer, u64)> {
    let words = |page: &EncodedPage| u64::from(page.row_count.div_ceil(WORD_ROWS)) * WORD_BYTES;
    let bytes: u64 = pages.iter().map(words).sum();
    let buffer = queue.memory().allocate(bytes + WORD_BYTES, queue.stream())?;
    let mut place = buffer.address();
    for page in pages {
        page.words = place;
        place += words(page);
    }
    Ok((buffer, bytes))
}

impl SliceList {
    /// The slices with some of these rows: the first, their number, and how many of the rows they
    /// contain.
    fn within(&self, rows: PlacedRows) -> Option<(u32, u32, u32)> {
        let first = self.rows.partition_point(|slice| slice.end <= rows.first_row);
        let end = self.rows.partition_point(|slice| slice.first < rows.end());
        let (one, last) = (self.rows.get(first)?, self.rows.get(end.checked_sub(1)?)?);
        if end <= first {
            return None;
        }
        let all = last.before + (last.end - last.first) - one.before;
        let cut = rows.first_row.saturating_sub(one.first) + last.end.saturating_sub(rows.end());
        Some((first as u32, (end - first) as u32, all - cut))
    }

    /// The bytes of so many of its rows.
    fn bytes_of(&self, row_count: u32) -> u64 {
        let rows = self.rows.last().map_or(1, |last| u64::from(last.before + (last.end - last.first)));
        (u128::from(self.encoded_bytes) * u128::from(row_count) / u128::from(rows.max(1))) as u64
    }
}
