//! What is decided about a chunk before anything is uploaded.

use parquet::basic::Type as PhysicalType;
use pystachio_plan::{Error, Result};

use super::{
    column_chunk::{Codec, EncodedColumnChunk},
    conversion::ColumnConversion,
    fault::ColumnNames,
    page_header::{PageEncoding, PageKind},
    page_list::{ListedPage, PageList},
};

/// A chunk, its pages and how they are decoded.
pub(super) struct ChunkPlan<'a> {
    pub(super) chunk: &'a EncodedColumnChunk<'a>,
    pub(super) names: ColumnNames,
    pub(super) conversion: ColumnConversion,
    pub(super) pages: PageList,
    pub(super) codec: Codec,
    pub(super) physical: PhysicalType,
    pub(super) is_optional: bool,
}

impl<'a> ChunkPlan<'a> {
    pub(super) fn new(chunk: &'a EncodedColumnChunk<'a>, row_count: u32) -> Result<Self> {
        let descriptor = chunk.metadata.column_descr();
        let names = ColumnNames::new(chunk.table, chunk.path, chunk.column);
        let conversion = ColumnConversion::plan(descriptor, chunk.column)?;
        let codec = Codec::of(chunk.metadata.compression_codec())
            .ok_or_else(|| names.not_supported(descriptor, "unknown compression"))?;
        let mut pages = PageList::read(chunk.bytes, row_count)
            .map_err(|(page, reason)| names.corrupt_page(page, reason))?;
        let needs_dictionary = pages.data.iter().any(|page| encoding(page) == PageEncoding::Dictionary);
        if !needs_dictionary {
            pages.dictionary = None;
        } else if pages.dictionary.is_none() {
            return Err(names.corrupt_page(0, "a page needs a dictionary, and there is none"));
        }
        let is_optional = descriptor.max_def_level() > 0;
        let physical = descriptor.physical_type();
        Ok(Self { chunk, names, conversion, pages, codec, physical, is_optional })
    }

    /// The dictionary, if there is one, then the data pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = &ListedPage> {
        self.pages.dictionary.iter().chain(&self.pages.data)
    }

    pub(super) fn not_supported(&self, what: &str) -> Error {
        self.names.not_supported(self.chunk.metadata.column_descr(), what)
    }
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
