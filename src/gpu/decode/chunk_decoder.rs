//! One chunk's memory on the device, and its pages in the batch.

use pystachio_files::{ListedPage, PageEncoding};
use pystachio_plan::{Error, Result};

use super::{
    abi::{DeltaForm, EncodedPage, PageColumn, ValueSource, WORD_ROWS, column_flags},
    chunk_plan::{ChunkPlan, encoding},
    column_chunk::value_source,
    page_batch::{BatchPage, PageBatch, PageOrigin, SCRATCH_BYTES},
    page_layout::PageLayout,
    row_group::PageCounts,
    row_selection::RowSelection,
};
use crate::device::{Buffer, CODE_BYTES, CellType, CodedColumn, Column, DeviceMemory, Stream};

/// Bytes of a validity word.
const WORD_BYTES: u64 = 8;
/// Bytes of a string's length in a page.
const LENGTH_BYTES: u64 = 4;

/// Adds a chunk's pages to a batch.
pub(super) struct ChunkDecoder<'a> {
    pub(super) memory: &'a DeviceMemory,
    pub(super) stream: Stream,
    pub(super) plan: &'a ChunkPlan<'a>,
    pub(super) number: usize,
    /// Where NULLs are counted; 0 if that is known, and that there is no fault.
    pub(super) null_count: u64,
    pub(super) batch: &'a mut PageBatch,
    /// Memory that must live until the kernels are enqueued.
    pub(super) scratch: &'a mut Vec<Buffer>,
    pub(super) pages: &'a mut PageCounts,
}

/// A data page with rows that are wanted.
struct WantedPage<'a> {
    page: &'a ListedPage,
    layout: PageLayout,
}

/// A dictionary that is decoded.
struct Dictionary {
    values: Buffer,
    validity: Option<Buffer>,
    entries: u32,
}

impl<'a> ChunkDecoder<'a> {
    /// Adds the chunk's pages that have rows of the selection, and returns the column that these are decoded into.
    pub(super) fn add(&mut self, rows: &RowSelection) -> Result<Column> {
        let plan = self.plan;
        let row_count = rows.row_count() as u64;
        let values = self.allocate(row_count * u64::from(plan.conversion.cell_type.bytes()))?;
        let validity = plan.is_optional.then(|| self.allocate(row_count)).transpose()?;
        let mut column = plan.conversion.page_column();
        column.values = values.address();
        column.validity = validity.as_ref().map_or(0, Buffer::address);
        let dictionary = self.add_pages(column, rows)?;
        self.scratch.extend(dictionary.map(|dictionary| dictionary.values));
        Ok(self.column(values, validity))
    }

    /// The same, of a chunk whose values are all in its dictionary: the dictionary, and which entry each row has.
    pub(super) fn add_codes(&mut self, rows: &RowSelection) -> Result<CodedColumn> {
        let codes = self.allocate(rows.row_count() as u64 * u64::from(CODE_BYTES))?;
        let mut column = self.plan.conversion.page_column();
        column.values = codes.address();
        column.cell_bytes = CODE_BYTES;
        column.flags |= column_flags::CODES;
        let dictionary = self.add_pages(column, rows)?;
        let Dictionary { values, validity, entries } =
            dictionary.ok_or_else(|| Error::internal("a column without a dictionary is decoded as codes"))?;
        Ok(CodedColumn { entries: self.column(values, validity), entry_count: entries as usize + 1, codes })
    }

    fn column(&self, values: Buffer, validity: Option<Buffer>) -> Column {
        let plan = self.plan;
        let strings = match plan.conversion.cell_type {
            CellType::String => plan.chunk.page_buffers().cloned().collect(),
            _ => Vec::new(),
        };
        Column {
            data_type: plan.source.column.data_type.clone(),
            cell_type: plan.conversion.cell_type,
            values,
            validity,
            strings,
        }
    }

    /// Adds the dictionary, if there is one, and the data pages that have rows of the selection.
    fn add_pages(&mut self, mut column: PageColumn, rows: &RowSelection) -> Result<Option<Dictionary>> {
        let plan = self.plan;
        let wanted = self.wanted_pages(rows)?;
        column.null_count = self.null_count;
        let mut space = self.allocate_scratch(&wanted)?;
        let dictionary = match (&plan.chunk.pages.dictionary, plan.chunk.layouts.first()) {
            (Some(page), Some(layout)) => {
                Some(self.add_dictionary(page, *layout, &mut column, &mut space)?)
            }
            _ => None,
        };
        let column_number = self.batch.add_column(column);
        for page in wanted {
            self.add_data_page(page, column_number, rows, &mut space)?;
        }
        Ok(dictionary)
    }

    /// The data pages that have rows of the selection.
    fn wanted_pages(&mut self, rows: &RowSelection) -> Result<Vec<WantedPage<'a>>> {
        let chunk = self.plan.chunk;
        let layouts = chunk.layouts.iter().skip(usize::from(chunk.pages.dictionary.is_some()));
        let mut wanted = Vec::new();
        let mut found = 0;
        for (page, layout) in chunk.pages.data.iter().zip(layouts) {
            let rows = rows.within(page.first_row, page.row_count);
            let row_count: usize = rows.map(|rows| rows.row_count as usize).sum();
            if row_count > 0 {
                wanted.push(WantedPage { page, layout: *layout });
            }
            found += row_count;
        }
        if found != rows.decoded_count() {
            return Err(Error::internal("a column chunk lacks pages that are to be decoded"));
        }
        self.pages.decoded += wanted.len() as u64;
        self.pages.skipped += (chunk.pages.data.len() - wanted.len()) as u64;
        Ok(wanted)
    }

    /// Adds a dictionary as a column of its own, and says to the data's column where it is. With one more entry, which
    /// is NULL if the data may be, where that is decoded into codes.
    fn add_dictionary(
        &mut self,
        page: &ListedPage,
        layout: PageLayout,
        column: &mut PageColumn,
        space: &mut ScratchSpace,
    ) -> Result<Dictionary> {
        let plan = self.plan;
        let entries = u64::from(page.row_count);
        if !matches!(encoding(page), PageEncoding::Plain | PageEncoding::Dictionary) {
            return Err(plan.not_supported("a dictionary of an unknown encoding"));
        }
        let entry_bytes = match plan.conversion.source_bytes {
            0 => LENGTH_BYTES,
            bytes => bytes.into(),
        };
        if entries * entry_bytes > u64::from(layout.values.bytes) {
            return Err(plan.names.corrupt_page(page.number, "a dictionary has fewer values than it says"));
        }
        let is_coded = column.flags & column_flags::CODES != 0;
        let cell_bytes = u64::from(plan.conversion.cell_type.bytes());
        let values = self.allocate((entries + u64::from(is_coded)) * cell_bytes)?;
        let mut validity = None;
        if is_coded {
            let end = entries * cell_bytes;
            self.memory.fill_range(&values, end..end + cell_bytes, 0, self.stream)?;
            if plan.is_optional {
                let flags = self.allocate(entries + 1)?;
                self.memory.fill_range(&flags, entries..entries + 1, 0, self.stream)?;
                validity = Some(flags);
            }
        }
        let faults = self.allocate(entries)?;
        if self.null_count != 0 {
            self.memory.fill(&faults, 0, self.stream)?;
        }
        column.dictionary = values.address();
        column.faults = faults.address();
        column.dictionary_count = page.row_count;
        column.dictionary_page = self.batch.next_page();
        let mut dictionary = plan.conversion.page_column();
        dictionary.values = values.address();
        dictionary.validity = validity.as_ref().map_or(0, Buffer::address);
        dictionary.faults = faults.address();
        dictionary.is_dictionary = 1;
        let number = self.batch.add_column(dictionary);
        let mut encoded = EncodedPage { column: number, ..plan.chunk.encoded_page(page, &layout) };
        let (source, delta_form) = value_source(PageEncoding::Plain, plan.physical)
            .ok_or_else(|| plan.not_supported("a dictionary"))?;
        if source == ValueSource::Strings {
            encoded.scratch = space.take_values(page.row_count);
        }
        self.scratch.push(faults);
        let origin = PageOrigin { chunk: self.number, page: page.number };
        let rows = RowSelection::range(0..page.row_count);
        let batch_page = BatchPage { page: encoded, source, delta_form, is_optional: false, origin };
        self.batch.add_page(batch_page, &rows, 0);
        Ok(Dictionary { values, validity, entries: page.row_count })
    }

    fn add_data_page(
        &mut self,
        wanted: WantedPage<'_>,
        column: u32,
        rows: &RowSelection,
        space: &mut ScratchSpace,
    ) -> Result<()> {
        let WantedPage { page, layout } = wanted;
        let plan = self.plan;
        let mut encoded = EncodedPage { column, ..plan.chunk.encoded_page(page, &layout) };
        if plan.is_optional {
            encoded.words = space.take_words(page.row_count);
        }
        let (source, delta_form) = value_source(encoding(page), plan.physical)
            .filter(|(source, _)| {
                // A string's bytes must lie side by side.
                *source != ValueSource::Split || plan.conversion.cell_type != CellType::String
            })
            .ok_or_else(|| plan.not_supported(&format!("encoding {:?}", encoding(page))))?;
        if has_scratch(source, delta_form) {
            encoded.scratch = space.take_values(page.row_count);
        }
        if delta_form == DeltaForm::Strings {
            encoded.prefixes = space.take_values(page.row_count);
        }
        let levels_form = layout
            .levels_form(page, plan.is_optional)
            .ok_or_else(|| plan.not_supported("levels of an unknown encoding"))?;
        encoded.levels_form = levels_form as u32;
        let origin = PageOrigin { chunk: self.number, page: page.number };
        let is_optional = plan.is_optional;
        let batch_page = BatchPage { page: encoded, source, delta_form, is_optional, origin };
        self.batch.add_page(batch_page, rows, page.first_row);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer> {
        self.memory.allocate(bytes.max(1), self.stream)
    }

    /// Memory of the pages' own, one piece after another.
    fn allocate_scratch(&mut self, wanted: &[WantedPage<'_>]) -> Result<ScratchSpace> {
        let plan = self.plan;
        let of_page = |page: &ListedPage, encoding| {
            let rows = u64::from(page.row_count);
            let words = if plan.is_optional { rows.div_ceil(WORD_ROWS.into()) * WORD_BYTES } else { 0 };
            let values = match value_source(encoding, plan.physical) {
                Some((_, DeltaForm::Strings)) => 2 * rows * SCRATCH_BYTES,
                Some((source, form)) if has_scratch(source, form) => rows * SCRATCH_BYTES,
                _ => 0,
            };
            words + values
        };
        let data: u64 = wanted.iter().map(|wanted| of_page(wanted.page, encoding(wanted.page))).sum();
        let dictionary =
            plan.chunk.pages.dictionary.as_ref().map_or(0, |page| of_page(page, PageEncoding::Plain));
        let bytes = data + dictionary;
        let buffer = self.allocate(bytes)?;
        let space = ScratchSpace { next: buffer.address(), end: buffer.address() + bytes };
        self.scratch.push(buffer);
        Ok(space)
    }
}

/// Whether the places of a page's values are found before they are converted.
fn has_scratch(source: ValueSource, form: DeltaForm) -> bool {
    source == ValueSource::Strings && !form.is_indexed()
}

/// Scratch memory of a chunk's pages.
struct ScratchSpace {
    next: u64,
    end: u64,
}

impl ScratchSpace {
    /// The address of the next piece.
    fn take(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes;
        assert!(self.next <= self.end, "a chunk's pages take more scratch memory than was counted");
        address
    }

    fn take_values(&mut self, row_count: u32) -> u64 {
        self.take(u64::from(row_count) * SCRATCH_BYTES)
    }

    fn take_words(&mut self, row_count: u32) -> u64 {
        self.take(u64::from(row_count.div_ceil(WORD_ROWS)) * WORD_BYTES)
    }
}
