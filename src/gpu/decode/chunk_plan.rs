//! What is decided about a chunk before it is decoded.

use parquet::basic::Type as PhysicalType;
use pystachio_files::{ListedPage, PageEncoding, PageKind};
use pystachio_plan::{Error, Result};

use super::{
    column_chunk::ColumnSource, conversion::ColumnConversion, fault::ColumnNames, load::ResidentChunk,
};

/// A chunk and how its pages are decoded.
pub(super) struct ChunkPlan<'a> {
    pub(super) source: &'a ColumnSource<'a>,
    pub(super) chunk: &'a ResidentChunk,
    pub(super) names: ColumnNames,
    pub(super) conversion: ColumnConversion,
    pub(super) physical: PhysicalType,
    pub(super) is_optional: bool,
}

impl<'a> ChunkPlan<'a> {
    pub(super) fn new(source: &'a ColumnSource<'a>, chunk: &'a ResidentChunk) -> Result<Self> {
        let descriptor = source.metadata.column_descr();
        Ok(Self {
            source,
            chunk,
            names: source.names(),
            conversion: ColumnConversion::plan(descriptor, source.column)?,
            physical: descriptor.physical_type(),
            is_optional: descriptor.max_def_level() > 0,
        })
    }

    pub(super) fn not_supported(&self, what: &str) -> Error {
        self.names.not_supported(self.source.metadata.column_descr(), what)
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
