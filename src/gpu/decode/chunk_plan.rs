//! The plan for decoding a chunk.

use parquet::basic::Type as PhysicalType;
use pystachio_files::{ListedPage, PageEncoding, PageKind};
use pystachio_plan::{Error, Result};

use super::{
    abi::{DeltaForm, EncodedPage, ValueSource, WORD_ROWS},
    column_chunk::{ColumnSource, value_source},
    conversion::ColumnConversion,
    fault::ColumnNames,
    load::ResidentChunk,
    page_batch::SCRATCH_BYTES,
    page_layout::PageLayout,
    row_groups::PageCounts,
    row_selection::RowSelection,
};
use crate::device::CellType;

/// Bytes of a validity word.
pub(super) const WORD_BYTES: u64 = 8;

/// A chunk, its wanted rows, and how its pages are decoded.
pub(super) struct ChunkPlan<'a> {
    pub(super) source: &'a ColumnSource<'a>,
    pub(super) chunk: &'a ResidentChunk,
    pub(super) rows: &'a RowSelection,
    pub(super) names: ColumnNames,
    pub(super) conversion: ColumnConversion,
    pub(super) physical: PhysicalType,
    pub(super) is_optional: bool,
    /// The data pages with wanted rows.
    pub(super) wanted: Vec<WantedPage<'a>>,
}

/// A data page with wanted rows.
#[derive(Clone, Copy)]
pub(super) struct WantedPage<'a> {
    pub(super) page: &'a ListedPage,
    pub(super) layout: PageLayout,
}

/// A data page in the form for kernels, and how its values are found.
pub(super) struct DataPage {
    pub(super) encoded: EncodedPage,
    pub(super) source: ValueSource,
    pub(super) delta_form: DeltaForm,
}

impl<'a> ChunkPlan<'a> {
    pub(super) fn new(
        source: &'a ColumnSource<'a>,
        chunk: &'a ResidentChunk,
        rows: &'a RowSelection,
    ) -> Result<Self> {
        let descriptor = source.metadata.column_descr();
        Ok(Self {
            source,
            chunk,
            rows,
            names: source.names(),
            conversion: ColumnConversion::plan(descriptor, source.column)?,
            physical: descriptor.physical_type(),
            is_optional: descriptor.max_def_level() > 0,
            wanted: wanted_pages(chunk, rows)?,
        })
    }

    pub(super) fn not_supported(&self, what: &str) -> Error {
        self.names.not_supported(self.source.metadata.column_descr(), what)
    }

    /// A data page in the form for kernels, without its column and without the memory that it needs
    /// beside the chunk's own.
    ///
    /// # Errors
    ///
    /// `NotSupported` for an encoding that no kernel reads.
    pub(super) fn data_page(&self, wanted: WantedPage<'_>) -> Result<DataPage> {
        let WantedPage { page, layout } = wanted;
        let (source, delta_form) = value_source(encoding(page), self.physical)
            .filter(|(source, _)| {
                // A string's bytes must lie side by side.
                *source != ValueSource::Split || self.conversion.cell_type != CellType::String
            })
            .ok_or_else(|| self.not_supported(&format!("encoding {:?}", encoding(page))))?;
        let levels_form = layout
            .levels_form(page, self.is_optional)
            .ok_or_else(|| self.not_supported("levels of an unknown encoding"))?;
        let encoded = EncodedPage {
            levels_form: levels_form as u32,
            source: source as u32,
            delta_form: delta_form as u32,
            ..self.chunk.encoded_page(page, &layout)
        };
        Ok(DataPage { encoded, source, delta_form })
    }

    /// Data pages that are decoded, and those that are not.
    pub(super) fn page_counts(&self) -> PageCounts {
        let decoded = self.wanted.len() as u64;
        PageCounts { decoded, skipped: self.chunk.pages.data.len() as u64 - decoded }
    }

    /// The dictionary's page, if there is one.
    pub(super) fn dictionary(&self) -> Option<WantedPage<'a>> {
        let page = self.chunk.pages.dictionary.as_ref()?;
        self.chunk.layouts.first().map(|layout| WantedPage { page, layout: *layout })
    }

    /// Entries of the dictionary.
    pub(super) fn entry_count(&self) -> u64 {
        self.dictionary().map_or(0, |dictionary| dictionary.page.row_count.into())
    }

    /// Temporary memory of its pages while they are decoded.
    pub(super) fn scratch_bytes(&self) -> u64 {
        let of_page = |page: &ListedPage, encoding| {
            let rows = u64::from(page.row_count);
            let words = if self.is_optional { rows.div_ceil(WORD_ROWS.into()) * WORD_BYTES } else { 0 };
            let values = match value_source(encoding, self.physical) {
                Some((_, DeltaForm::Strings)) => 2 * rows * SCRATCH_BYTES,
                Some((source, form)) if has_scratch(source, form) => rows * SCRATCH_BYTES,
                _ => 0,
            };
            words + values
        };
        let data: u64 = self.wanted.iter().map(|wanted| of_page(wanted.page, encoding(wanted.page))).sum();
        data + self.dictionary().map_or(0, |dictionary| of_page(dictionary.page, PageEncoding::Plain))
    }
}

fn data_pages(chunk: &ResidentChunk) -> impl Iterator<Item = WantedPage<'_>> {
    let layouts = chunk.layouts.iter().skip(usize::from(chunk.pages.dictionary.is_some()));
    chunk.pages.data.iter().zip(layouts).map(|(page, layout)| WantedPage { page, layout: *layout })
}

/// The data pages that have rows of a selection.
fn wanted_pages<'a>(chunk: &'a ResidentChunk, rows: &RowSelection) -> Result<Vec<WantedPage<'a>>> {
    let mut wanted = Vec::new();
    let mut found = 0;
    for data_page in data_pages(chunk) {
        let rows = rows.within(data_page.page.first_row, data_page.page.row_count);
        let row_count: usize = rows.map(|rows| rows.row_count as usize).sum();
        if row_count > 0 {
            wanted.push(data_page);
        }
        found += row_count;
    }
    if found != rows.decoded_count() {
        return Err(Error::internal("a column chunk lacks pages that are to be decoded"));
    }
    Ok(wanted)
}

/// How a page's values are encoded.
pub(super) fn encoding(page: &ListedPage) -> PageEncoding {
    match page.header.kind {
        PageKind::Dictionary { encoding, .. }
        | PageKind::DataV1 { encoding, .. }
        | PageKind::DataV2 { encoding, .. } => encoding,
        PageKind::Index => PageEncoding::Unknown(-1),
    }
}

/// Whether the positions of a page's values are found before the conversion.
pub(super) fn has_scratch(source: ValueSource, form: DeltaForm) -> bool {
    source == ValueSource::Strings && !form.is_indexed()
}
