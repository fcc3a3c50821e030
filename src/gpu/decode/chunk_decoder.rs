//! One chunk's pages in the batch.

use pystachio_files::PageEncoding;
use pystachio_plan::Result;

use super::{
    abi::{ColumnFlag as column_flags, DeltaForm, EncodedPage, ValueSource, WORD_ROWS},
    chunk_plan::{ChunkPlan, DataPage, WORD_BYTES, WantedPage, encoding, has_scratch},
    column_chunk::value_source,
    page_batch::{BatchPage, PageBatch, PageOrigin, SCRATCH_BYTES},
    row_selection::RowSelection,
};
use crate::device::{Buffer, CODE_BYTES};

/// Bytes of a string's length in a page.
const LENGTH_BYTES: u64 = 4;

/// Adds a chunk's pages to a batch.
pub(super) struct ChunkDecoder<'a> {
    pub(super) plan: &'a ChunkPlan<'a>,
    /// Its number among the chunks that are decoded at once.
    pub(super) number: usize,
    pub(super) target: ChunkTarget,
    pub(super) batch: &'a mut PageBatch,
    pub(super) space: &'a mut ScratchSpace,
}

/// Addresses of a chunk's outputs; 0 for those that it has not.
#[derive(Clone, Copy, Default)]
pub(super) struct ChunkTarget {
    /// The column's cells, or codes.
    pub(super) values: u64,
    /// The column's flags of rows that are not NULL.
    pub(super) validity: u64,
    /// The cells of the chunk's own dictionary.
    pub(super) entries: u64,
    /// Their flags.
    pub(super) entry_flags: u64,
    /// Faults of the entries: a byte for each.
    pub(super) faults: u64,
    /// The counter of NULLs.
    pub(super) null_count: u64,
    /// Present if rows become codes.
    pub(super) codes: Option<ChunkCodes>,
}

/// Codes of a chunk's rows.
#[derive(Clone, Copy)]
pub(super) struct ChunkCodes {
    /// Of the dictionary's first entry.
    pub(super) first: u32,
    /// Of NULL.
    pub(super) null: u32,
}

impl ChunkDecoder<'_> {
    /// Adds the dictionary, if there is one, and the wanted data pages.
    pub(super) fn add(mut self) -> Result<()> {
        let (plan, target) = (self.plan, self.target);
        let mut column = plan.conversion.page_column();
        column.values = target.values;
        column.validity = target.validity;
        column.null_count = target.null_count;
        if let Some(codes) = target.codes {
            column.cell_bytes = CODE_BYTES;
            column.flags |= column_flags::CODES;
            (column.first_code, column.null_code) = (codes.first, codes.null);
        }
        if let Some(dictionary) = plan.dictionary() {
            column.dictionary = target.entries;
            column.faults = target.faults;
            column.dictionary_count = dictionary.page.row_count;
            column.dictionary_page = self.batch.next_page();
            self.add_dictionary(dictionary)?;
        }
        let column_number = self.batch.add_column(column);
        plan.wanted.iter().try_for_each(|page| self.add_data_page(*page, column_number))
    }

    /// Adds the dictionary as a column of its own.
    fn add_dictionary(&mut self, dictionary: WantedPage<'_>) -> Result<()> {
        let WantedPage { page, layout } = dictionary;
        let (plan, target) = (self.plan, self.target);
        if !matches!(encoding(page), PageEncoding::Plain | PageEncoding::Dictionary) {
            return Err(plan.not_supported("a dictionary of an unknown encoding"));
        }
        let entry_bytes = match plan.conversion.source_bytes {
            0 => LENGTH_BYTES,
            bytes => bytes.into(),
        };
        if u64::from(page.row_count) * entry_bytes > u64::from(layout.values.bytes) {
            return Err(plan.names.corrupt_page(page.number, "a dictionary has fewer values than it says"));
        }
        let mut entries = plan.conversion.page_column();
        entries.values = target.entries;
        entries.validity = target.entry_flags;
        entries.faults = target.faults;
        entries.flags |= column_flags::DICTIONARY;
        let number = self.batch.add_column(entries);
        let mut encoded = EncodedPage { column: number, ..plan.chunk.encoded_page(page, &layout) };
        let (source, delta_form) = value_source(PageEncoding::Plain, plan.physical)
            .ok_or_else(|| plan.not_supported("a dictionary"))?;
        if source == ValueSource::Strings {
            encoded.scratch = self.space.take_values(page.row_count);
        }
        let origin = PageOrigin { chunk: self.number, page: page.number };
        let rows = RowSelection::range(0..page.row_count);
        let batch_page = BatchPage { page: encoded, source, delta_form, is_optional: false, origin };
        self.batch.add_page(batch_page, &rows, 0);
        Ok(())
    }

    fn add_data_page(&mut self, wanted: WantedPage<'_>, column: u32) -> Result<()> {
        let (plan, page) = (self.plan, wanted.page);
        let DataPage { mut encoded, source, delta_form } = plan.data_page(wanted)?;
        encoded.column = column;
        if plan.is_optional {
            encoded.words = self.space.allocate_words(page.row_count);
        }
        if has_scratch(source, delta_form) {
            encoded.scratch = self.space.take_values(page.row_count);
        }
        if delta_form == DeltaForm::Strings {
            encoded.prefixes = self.space.take_values(page.row_count);
        }
        let origin = PageOrigin { chunk: self.number, page: page.number };
        let is_optional = plan.is_optional;
        let batch_page = BatchPage { page: encoded, source, delta_form, is_optional, origin };
        self.batch.add_page(batch_page, plan.rows, page.first_row);
        Ok(())
    }
}

/// Scratch memory of pages, one piece after another.
pub(super) struct ScratchSpace {
    next: u64,
    end: u64,
}

impl ScratchSpace {
    /// All of a buffer.
    pub(super) fn of(buffer: &Buffer) -> Self {
        Self { next: buffer.address(), end: buffer.address() + buffer.bytes() }
    }

    /// The address of the next piece.
    fn take(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes;
        assert!(self.next <= self.end, "pages take more scratch memory than was counted");
        address
    }

    fn take_values(&mut self, row_count: u32) -> u64 {
        self.take(u64::from(row_count) * SCRATCH_BYTES)
    }

    fn allocate_words(&mut self, row_count: u32) -> u64 {
        self.take(u64::from(row_count.div_ceil(WORD_ROWS)) * WORD_BYTES)
    }
}
