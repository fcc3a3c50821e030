//! Where the levels and values of a decompressed page are.
//!
//! Decompressed pages of a chunk lie one after another in one buffer. Uncompressed sections stay in
//! the buffer of the encoded chunk. Indexes of pages that store differences or runs lie one after
//! another in a third.

use parquet::basic::Type as PhysicalType;

use pystachio_files::{ListedPage, PageEncoding, PageKind};

use super::{
    abi::{
        DELTA_SEGMENT_VALUES, DeltaIndex, DeltaSegment, LevelsForm, PAGE_ALIGNMENT, RUN_SEGMENT_VALUES,
        RunSegment, ValueSource,
    },
    chunk_plan::encoding,
    column_chunk::{Codec, value_source},
};

/// Which of a chunk's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageMemory {
    Encoded,
    Decompressed,
    Index,
}

/// Bytes in one of a chunk's buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) memory: PageMemory,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// A page's sections.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLayout {
    /// The definition levels of a page V2.
    pub(super) levels: Option<Section>,
    /// The values; in a page V1 levels come before them.
    pub(super) values: Section,
    /// The encoded bytes that the device decompresses into `values`.
    pub(super) compressed: Option<Section>,
    /// The index of its differences or runs, if a kernel decodes it by one.
    pub(super) index: Option<Section>,
}

impl PageLayout {
    /// How a page's definition levels are stored; `None` if no kernel reads them.
    pub(super) fn levels_form(&self, page: &ListedPage, is_optional: bool) -> Option<LevelsForm> {
        // The CPU engine reports headers that it would not read.
        if matches!(page.header.kind, PageKind::DataV1 { has_known_levels: false, .. }) {
            return None;
        }
        Some(match (is_optional, page.header.kind, self.levels) {
            (false, ..) => LevelsForm::None,
            (true, _, Some(_)) => LevelsForm::Runs,
            (true, PageKind::DataV1 { definition_encoding: PageEncoding::Rle, .. }, None) => {
                LevelsForm::Prefixed
            }
            (true, PageKind::DataV1 { definition_encoding: PageEncoding::BitPacked, .. }, None) => {
                LevelsForm::Packed
            }
            _ => return None,
        })
    }
}

/// Lays out the decompressed pages of a chunk.
#[derive(Debug)]
pub(super) struct LayoutBuilder {
    codec: Codec,
    physical: PhysicalType,
    /// Bytes of the buffer of decompressed pages so far.
    pub(super) decompressed_bytes: u64,
    /// Bytes of the buffer of indexes so far.
    pub(super) index_bytes: u64,
}

impl LayoutBuilder {
    pub(super) fn new(codec: Codec, physical: PhysicalType) -> Self {
        Self { codec, physical, decompressed_bytes: 0, index_bytes: 0 }
    }

    /// The layout of a chunk's next page.
    ///
    /// # Errors
    ///
    /// The fault of the page, in words.
    pub(super) fn add(&mut self, page: &ListedPage) -> Result<PageLayout, &'static str> {
        let (definition_bytes, repetition_bytes, is_compressed, is_v2) = match page.header.kind {
            PageKind::DataV2 { definition_bytes, repetition_bytes, is_compressed, .. } => {
                (definition_bytes, repetition_bytes, is_compressed, true)
            }
            _ => (0, 0, true, false),
        };
        let body_bytes = page.header.compressed_bytes;
        let start = page.body.start as u64;
        let index = self.reserve_index(page)?;
        let levels_bytes = definition_bytes.checked_add(repetition_bytes).ok_or(LEVELS_TOO_LONG)?;
        let whole = match self.codec {
            Codec::Host => {
                let bytes = page.header.whole_bytes();
                Some(Section { memory: PageMemory::Decompressed, offset: self.reserve(bytes), bytes })
            }
            codec if codec == Codec::None || !is_compressed => {
                Some(Section { memory: PageMemory::Encoded, offset: start, bytes: body_bytes })
            }
            _ => None,
        };
        if let Some(whole) = whole {
            let values_bytes = whole.bytes.checked_sub(levels_bytes).ok_or(LEVELS_TOO_LONG)?;
            let levels = Section {
                offset: whole.offset + u64::from(repetition_bytes),
                bytes: definition_bytes,
                ..whole
            };
            let values =
                Section { offset: whole.offset + u64::from(levels_bytes), bytes: values_bytes, ..whole };
            return Ok(PageLayout { levels: is_v2.then_some(levels), values, compressed: None, index });
        }
        let compressed_bytes = body_bytes.checked_sub(levels_bytes).ok_or(LEVELS_TOO_LONG)?;
        let values_bytes = page.header.uncompressed_bytes.checked_sub(levels_bytes).ok_or(LEVELS_TOO_LONG)?;
        let encoded = |offset: u32, bytes| Section {
            memory: PageMemory::Encoded,
            offset: start + u64::from(offset),
            bytes,
        };
        let values = Section {
            memory: PageMemory::Decompressed,
            offset: self.reserve(values_bytes),
            bytes: values_bytes,
        };
        Ok(PageLayout {
            levels: is_v2.then(|| encoded(repetition_bytes, definition_bytes)),
            values,
            // Some writers' pages without values have an empty compressed form.
            compressed: (values_bytes > 0).then(|| encoded(levels_bytes, compressed_bytes)),
            index,
        })
    }

    /// Room for the index of a page that has one.
    fn reserve_index(&mut self, page: &ListedPage) -> Result<Option<Section>, &'static str> {
        let segments = |values: u32, bytes: usize| u64::from(page.row_count.div_ceil(values)) * bytes as u64;
        let bytes = match value_source(encoding(page), self.physical) {
            Some((_, form)) if form.is_indexed() => {
                size_of::<DeltaIndex>() as u64 + segments(DELTA_SEGMENT_VALUES, size_of::<DeltaSegment>())
            }
            Some((ValueSource::Indexes | ValueSource::Flags, _)) => {
                segments(RUN_SEGMENT_VALUES, size_of::<RunSegment>())
            }
            _ => return Ok(None),
        };
        let offset = self.index_bytes;
        self.index_bytes += bytes;
        let bytes = u32::try_from(bytes).map_err(|_| "a page is too large")?;
        Ok(Some(Section { memory: PageMemory::Index, offset, bytes }))
    }

    fn reserve(&mut self, bytes: u32) -> u64 {
        let offset = self.decompressed_bytes;
        self.decompressed_bytes = (offset + u64::from(bytes)).next_multiple_of(PAGE_ALIGNMENT);
        offset
    }
}

const LEVELS_TOO_LONG: &str = "its levels are longer than the page";
