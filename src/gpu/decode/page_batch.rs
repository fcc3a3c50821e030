//! The pages of row groups in the form for kernels, and the launches that decode them.
//!
//! Invariants: a page's number is its place in the batch. Lists hold numbers of pages, or slices of their rows, one a
//! block.

use bytemuck::{Pod, cast_slice};
use pystachio_plan::Result;

use super::{
    abi::{
        BUILD_BYTES, BUILD_STRING_BYTES, CHAIN_SECTION_BYTES, CHAIN_SECTION_PIECES, ChainPiece, ChainSection,
        DecodePages, DeltaForm, EncodedPage, LocateStrings, PAGE_PADDING_BYTES, PageColumn, PageSection,
        PageSlice, PageState, SLICE_ROWS, ValueSource,
    },
    row_selection::{PlacedRows, RowSelection},
};
use crate::{
    device::{Buffer, CellType, Kernel},
    operation::Queue,
};

/// Arrays start at multiples of this.
const ARRAY_ALIGNMENT: usize = 16;

/// Bytes of a value in a page's scratch memory.
pub(super) const SCRATCH_BYTES: u64 = 8;

/// Bytes of a word of a page that kernels load.
pub(super) const LOADED_WORD_BYTES: u64 = 4;

/// The position of a page in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageOrigin {
    /// The chunk's place among those decoded at once.
    pub(super) chunk: usize,
    /// The page's place in its chunk, the dictionary included.
    pub(super) page: usize,
}

/// A page to be decoded.
pub(super) struct BatchPage {
    pub(super) page: EncodedPage,
    pub(super) source: ValueSource,
    pub(super) delta_form: DeltaForm,
    pub(super) is_optional: bool,
    pub(super) origin: PageOrigin,
}

/// Strings that were built for pages of a chunk, to be kept alive by its column.
pub(super) struct BuiltStrings {
    pub(super) chunk: usize,
    pub(super) buffer: Buffer,
}

/// Sections of pages of plain strings: those of pages of several first, as launches take them.
#[derive(Default)]
struct StringSections {
    /// Of pages of several sections.
    several: Vec<PageSection>,
    /// Of the others.
    single: Vec<PageSection>,
}

impl StringSections {
    /// Adds a page's. A word may begin before the page.
    fn add(&mut self, number: u32, page: &EncodedPage) {
        let bytes = page.values % LOADED_WORD_BYTES + u64::from(page.values_bytes);
        let count = bytes.div_ceil(CHAIN_SECTION_BYTES).max(1) as u32;
        let first = self.several.len() as u32;
        let target = if count == 1 { &mut self.single } else { &mut self.several };
        target.extend((0..count).map(|section| PageSection { page: number, number: section, count, first }));
    }

    fn is_empty(&self) -> bool {
        self.several.is_empty() && self.single.is_empty()
    }
}

/// Launches of `build_strings` that make all strings of a page.
fn build_launches(state: &PageState) -> u64 {
    (state.string_bytes + u64::from(state.located) * BUILD_STRING_BYTES).div_ceil(BUILD_BYTES).max(1)
}

/// Pages and columns that are decoded at once.
#[derive(Default)]
pub(super) struct PageBatch {
    pages: Vec<EncodedPage>,
    states: Vec<PageState>,
    origins: Vec<PageOrigin>,
    columns: Vec<PageColumn>,
    with_levels: Vec<u32>,
    with_strings: StringSections,
    with_prefixes: Vec<u32>,
    /// By the kernel that writes their cells.
    slices: CellLists<Vec<PageSlice>>,
}

/// The kernels that write cells, in the order of their launches.
const CELL_KERNELS: [Kernel; 5] = [
    Kernel::ConvertValues,
    Kernel::ConvertLargeValues,
    Kernel::DecodeDeltas,
    Kernel::DecodeLargeDeltas,
    Kernel::DecodeIndexes,
];

/// One for each kernel that writes cells.
#[derive(Debug, Default)]
pub(super) struct CellLists<T>([T; CELL_KERNELS.len()]);

impl<T> CellLists<T> {
    /// The kernel that writes cells of a size from pages of a source and form.
    pub(super) fn of(&mut self, source: ValueSource, form: DeltaForm, cell_bytes: u32) -> &mut T {
        let is_large = cell_bytes == CellType::Int256.bytes();
        let place = match source {
            ValueSource::Indexes | ValueSource::Flags => 4,
            _ => 2 * usize::from(form.is_indexed()) + usize::from(is_large),
        };
        &mut self.0[place]
    }

    /// The kernels with their elements.
    pub(super) fn each(&self) -> impl Iterator<Item = (Kernel, &T)> {
        CELL_KERNELS.into_iter().zip(&self.0)
    }

    /// The same, mapped.
    pub(super) fn map<U>(&self, of: impl FnMut(&T) -> U) -> CellLists<U> {
        CellLists(self.0.each_ref().map(of))
    }
}

impl PageBatch {
    /// The number of the next page.
    pub(super) fn next_page(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Adds a column and returns its number.
    pub(super) fn add_column(&mut self, column: PageColumn) -> u32 {
        self.columns.push(column);
        (self.columns.len() - 1) as u32
    }

    /// Adds a page, in the order of [`PageBatch::next_page`], and its wanted rows, among those from
    /// `first_row` on.
    pub(super) fn add_page(&mut self, added: BatchPage, rows: &RowSelection, first_row: u32) {
        let number = self.next_page();
        let mut state = PageState::default();
        if added.is_optional {
            self.with_levels.push(number);
        } else {
            state.dense = 1;
            state.value_count = added.page.row_count;
        }
        match (added.source, added.delta_form) {
            (ValueSource::Strings, DeltaForm::None) => self.with_strings.add(number, &added.page),
            (_, DeltaForm::Strings) => self.with_prefixes.push(number),
            _ => {}
        }
        let rows = rows.within(first_row, added.page.row_count).flat_map(|rows| rows.parts(SLICE_ROWS));
        let slice_of = |rows: PlacedRows| PageSlice {
            page: number,
            first_row: rows.first_row,
            row_count: rows.row_count,
            target_row: rows.target_row,
        };
        let column = self.columns.get(added.page.column as usize);
        let cell_bytes = column.map_or(0, |column| column.cell_bytes);
        self.slices.of(added.source, added.delta_form, cell_bytes).extend(rows.map(slice_of));
        let page =
            EncodedPage { source: added.source as u32, delta_form: added.delta_form as u32, ..added.page };
        self.pages.push(page);
        self.states.push(state);
        self.origins.push(added.origin);
    }

    /// Where the page with a number is in its file.
    pub(super) fn origin(&self, page: u32) -> Option<PageOrigin> {
        self.origins.get(page as usize).copied()
    }

    /// Enqueues everything. Waits only if strings must be built: for their size, and so that little
    /// work is left on the stream if the query is cancelled.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, `Device`, `Cancelled`.
    pub(super) fn launch(&self, queue: &Queue, status: u64) -> Result<Vec<BuiltStrings>> {
        let mut arrays = PackedArrays::default();
        let pages = arrays.add(&self.pages);
        let columns = arrays.add(&self.columns);
        let states = arrays.add(&self.states);
        let [with_levels, with_prefixes] =
            [&self.with_levels, &self.with_prefixes].map(|list| arrays.add(list));
        let StringSections { several, single } = &self.with_strings;
        let string_sections = arrays.add(&[several.as_slice(), single].concat());
        let slices = self.slices.map(|slices| arrays.add(slices));
        let tasks = queue.upload(&arrays.bytes)?;
        let at = |offset: usize| tasks.address() + offset as u64;
        let mut arguments =
            DecodePages { pages: at(pages), columns: at(columns), states: at(states), list: 0, status };
        let decode = |kernel, arguments: DecodePages, list: usize, numbers: &[u32]| {
            let arguments = DecodePages { list: at(list), ..arguments };
            queue.launch_moving(kernel, numbers.len() as u32, &arguments, || {
                numbers.iter().map(|number| self.bytes_moved(kernel, *number)).sum()
            })
        };
        decode(Kernel::DecodeLevels, arguments, with_levels, &self.with_levels)?;
        self.locate_strings(queue, arguments, at(string_sections))?;
        decode(Kernel::DecodePrefixes, arguments, with_prefixes, &self.with_prefixes)?;
        let mut built = Vec::new();
        let mut rebuilt_pages = None;
        if !self.with_prefixes.is_empty() {
            let states: Vec<PageState> =
                queue.memory().download_from(at(states), self.states.len(), queue.stream())?;
            let mut pages = self.pages.clone();
            built = self.allocate_strings(queue, &states, &mut pages)?;
            let buffer = queue.upload(&pages)?;
            arguments.pages = buffer.address();
            let launches = self.with_prefixes.iter().map(|number| build_launches(&states[*number as usize]));
            for launch in 0..launches.max().unwrap_or(0) {
                if launch > 0 {
                    queue.wait()?;
                }
                queue.check_wanted()?;
                decode(Kernel::BuildStrings, arguments, with_prefixes, &self.with_prefixes)?;
            }
            rebuilt_pages = Some(buffer);
        }
        for ((kernel, slices), (_, list)) in self.slices.each().zip(slices.each()) {
            let arguments = DecodePages { list: at(*list), ..arguments };
            queue.launch_moving(kernel, slices.len() as u32, &arguments, || {
                slices.iter().map(|slice| self.bytes_moved_by_slice(kernel, slice)).sum()
            })?;
        }
        drop(rebuilt_pages);
        Ok(built)
    }

    /// Finds plain strings. `list`: the sections' address.
    fn locate_strings(&self, queue: &Queue, arguments: DecodePages, list: u64) -> Result<()> {
        if self.with_strings.is_empty() {
            return Ok(());
        }
        let StringSections { several, single } = &self.with_strings;
        let count = several.len() as u64;
        let sections = queue.allocate::<ChainSection>(count)?;
        let pieces = queue.allocate::<ChainPiece>(count * CHAIN_SECTION_PIECES)?;
        let DecodePages { pages, states, status, .. } = arguments;
        let (sections, pieces_at) = (sections.address(), pieces.address());
        let arguments = LocateStrings { pages, states, list, sections, pieces: pieces_at, status };
        // Sections have their shares of their pages.
        let bytes_of = |kernel, sections: &[PageSection]| {
            let bytes =
                |section: &PageSection| self.bytes_moved(kernel, section.page) / u64::from(section.count);
            sections.iter().map(bytes).sum::<u64>()
        };
        let kernel = Kernel::LocateStrings;
        queue.launch_moving(kernel, (several.len() + single.len()) as u32, &arguments, || {
            bytes_of(kernel, several) + bytes_of(kernel, single)
        })?;
        let kernel = Kernel::WritePlaces;
        queue.launch_moving(kernel, several.len() as u32, &arguments, || bytes_of(kernel, several))
    }

    /// The least bytes moved to decode a page: its bytes, intermediate results, and its cells.
    /// Dictionary entries, which caches hold, and built strings are left out.
    fn bytes_moved(&self, kernel: Kernel, number: u32) -> u64 {
        let Some(page) = self.pages.get(number as usize) else { return 0 };
        let cell_bytes = self.columns.get(page.column as usize).map_or(0, |column| column.cell_bytes);
        let rows = u64::from(page.row_count);
        let (encoded, cells) = (u64::from(page.values_bytes), rows * u64::from(cell_bytes));
        let has_scratch = page.scratch != 0;
        match kernel {
            Kernel::DecodeLevels => rows / 4,
            Kernel::LocateStrings => encoded,
            Kernel::WritePlaces => rows * SCRATCH_BYTES,
            Kernel::DecodePrefixes => encoded + 2 * rows * SCRATCH_BYTES,
            Kernel::BuildStrings => encoded + 3 * rows * SCRATCH_BYTES,
            Kernel::DecodeIndexes | Kernel::DecodeDeltas | Kernel::DecodeLargeDeltas => encoded + cells,
            _ if has_scratch => rows * SCRATCH_BYTES + cells,
            _ => encoded + cells,
        }
    }

    /// A slice's share of its page.
    fn bytes_moved_by_slice(&self, kernel: Kernel, slice: &PageSlice) -> u64 {
        let rows = self.pages.get(slice.page as usize).map_or(0, |page| page.row_count);
        self.bytes_moved(kernel, slice.page) * u64::from(slice.row_count) / u64::from(rows.max(1))
    }

    /// Memory for the strings of pages that store only the difference from the previous string.
    fn allocate_strings(
        &self,
        queue: &Queue,
        states: &[PageState],
        pages: &mut [EncodedPage],
    ) -> Result<Vec<BuiltStrings>> {
        let mut built = Vec::with_capacity(self.with_prefixes.len());
        for number in &self.with_prefixes {
            let number = *number as usize;
            // Whole words are loaded.
            let bytes = states[number].string_bytes + PAGE_PADDING_BYTES;
            let buffer = queue.memory().allocate(bytes, queue.stream())?;
            pages[number].strings = buffer.address();
            built.push(BuiltStrings { chunk: self.origins[number].chunk, buffer });
        }
        Ok(built)
    }
}

/// Arrays one after another, to be uploaded at once.
#[derive(Default)]
pub(super) struct PackedArrays {
    pub(super) bytes: Vec<u8>,
}

impl PackedArrays {
    /// Appends an array and returns where it starts.
    pub(super) fn add<T: Pod>(&mut self, values: &[T]) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(ARRAY_ALIGNMENT), 0);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(cast_slice(values));
        start
    }
}
