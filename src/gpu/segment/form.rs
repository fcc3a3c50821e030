//! A segment on the device, and its copy on the host.

use std::sync::Arc;

use pystachio_plan::Result;

use super::{
    abi::{SEGMENT_BLOCK_ROWS, SEGMENT_BLOCK_WORDS, SegmentBlock, SegmentForm, SegmentView},
    dictionary::TableDictionary,
};
use crate::device::{Buffer, CellType, DeviceMemory, HostBytes, HostMemory, Lifetime, Stream};

/// Parts of a segment begin at multiples of this: whole lines.
const PART_ALIGNMENT: u64 = 128;
const WORD_BYTES: u64 = size_of::<u32>() as u64;

/// The rows of a column chunk, in one buffer: blocks, validity, words or cells, text.
#[derive(Debug)]
pub struct Segment {
    pub(super) layout: SegmentLayout,
    pub(super) content: Buffer,
    /// Of codes.
    pub(super) dictionary: Option<Arc<TableDictionary>>,
}

/// What a segment consists of, and where its parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentLayout {
    pub(super) form: SegmentForm,
    pub(super) cell_type: CellType,
    pub(super) row_count: u64,
    /// Whether any row is NULL.
    pub(super) has_nulls: bool,
    /// Bytes of words, or of cells.
    pub(super) value_bytes: u64,
    /// Of text.
    pub(super) text_bytes: u64,
    /// The least and the greatest distance-coded value; the first is more than the second if there is none.
    pub(super) bounds: (i64, i64),
}

/// Offsets of a segment's parts, and all of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentParts {
    pub(super) validity: u64,
    pub(super) values: u64,
    pub(super) text: u64,
    pub(super) end: u64,
}

/// A segment in page-locked memory of the host.
pub struct PinnedSegment {
    layout: SegmentLayout,
    content: HostBytes,
    dictionary: Option<Arc<TableDictionary>>,
}

impl SegmentLayout {
    /// Blocks of rows.
    pub(super) fn block_count(&self) -> u64 {
        self.row_count.div_ceil(SEGMENT_BLOCK_ROWS)
    }

    /// Bytes of the rows as a column of cells, without the texts of a dictionary.
    fn unpacked_bytes(&self) -> u64 {
        let row_bytes = u64::from(self.cell_type.bytes()) + u64::from(self.has_nulls);
        self.row_count * row_bytes + self.text_bytes
    }

    pub(super) fn parts(&self) -> SegmentParts {
        let heads = match self.form {
            SegmentForm::Distances => self.block_count(),
            SegmentForm::Text => self.block_count() + 1,
            SegmentForm::Cells => 0,
        };
        let validity = (heads * size_of::<SegmentBlock>() as u64).next_multiple_of(PART_ALIGNMENT);
        let validity_bytes =
            if self.has_nulls { self.block_count() * SEGMENT_BLOCK_WORDS * WORD_BYTES } else { 0 };
        let values = (validity + validity_bytes).next_multiple_of(PART_ALIGNMENT);
        let text = (values + self.value_bytes).next_multiple_of(PART_ALIGNMENT);
        // A distance is read with the word behind it, and a text by whole words.
        let end = text + self.text_bytes + PART_ALIGNMENT;
        SegmentParts { validity, values, text, end }
    }
}

impl Segment {
    /// Its device memory, without its dictionary, which other segments share.
    pub fn bytes(&self) -> u64 {
        self.content.bytes()
    }

    /// The bytes that its rows would take as a column of cells, without the texts of a dictionary.
    pub fn unpacked_bytes(&self) -> u64 {
        self.layout.unpacked_bytes()
    }

    /// Its memory.
    pub fn buffer(&self) -> &Buffer {
        &self.content
    }

    /// A segment of cells, of as many bytes.
    #[cfg(test)]
    pub(crate) fn for_tests(memory: &DeviceMemory, bytes: u64) -> Self {
        let layout = SegmentLayout {
            form: SegmentForm::Cells,
            cell_type: CellType::Bool,
            row_count: 1,
            has_nulls: false,
            value_bytes: bytes,
            text_bytes: 0,
            bounds: (i64::MAX, i64::MIN),
        };
        let content = memory.allocate_for(Lifetime::Long, bytes, Stream(0)).expect("room");
        Self { layout, content, dictionary: None }
    }

    /// Rows.
    pub fn row_count(&self) -> u64 {
        self.layout.row_count
    }

    /// The dictionary, of codes.
    pub fn dictionary(&self) -> Option<&Arc<TableDictionary>> {
        self.dictionary.as_ref()
    }

    /// The least and the greatest integer or code; the first is more than the second if every row is NULL.
    pub fn bounds(&self) -> (i64, i64) {
        self.layout.bounds
    }

    /// Whether any row is NULL.
    pub fn has_nulls(&self) -> bool {
        self.layout.has_nulls
    }

    /// Whether kernels can test its rows: integers, booleans, dates and codes.
    pub fn is_testable(&self) -> bool {
        self.layout.form == SegmentForm::Distances
    }

    /// Whether it has text, and no codes.
    pub fn is_text(&self) -> bool {
        self.layout.form == SegmentForm::Text
    }

    /// The segment as kernels see it; `entries` is where the dictionary's entries are.
    pub(super) fn view(&self, entries: u64) -> SegmentView {
        let (start, parts) = (self.content.address(), self.layout.parts());
        let texts = match self.layout.form {
            SegmentForm::Text => start + parts.text,
            SegmentForm::Distances | SegmentForm::Cells => entries,
        };
        SegmentView {
            blocks: start,
            words: start + parts.values,
            validity: if self.layout.has_nulls { start + parts.validity } else { 0 },
            texts,
            form: self.layout.form as u32,
            reserved: 0,
        }
    }
}

impl PinnedSegment {
    /// Copies a segment to the host and waits for it; `None` if there is no room. No work on any stream may still write to its memory.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn copy(
        segment: &Segment,
        host: &HostMemory,
        memory: &DeviceMemory,
        stream: Stream,
    ) -> Result<Option<Self>> {
        let buffer = &segment.content;
        let Some(content) = host.allocate(buffer.bytes())? else { return Ok(None) };
        let copied = buffer
            .use_on(stream)
            .and_then(|()| content.download(memory, 0, (buffer.address(), buffer.bytes()), stream));
        // Before the slabs are given back, even if the copy could not be enqueued.
        memory.platform().wait(stream)?;
        copied?;
        Ok(Some(Self { layout: segment.layout, content, dictionary: segment.dictionary.clone() }))
    }

    /// Its page-locked memory.
    pub fn locked_bytes(&self) -> u64 {
        self.content.locked_bytes()
    }

    /// See [`Segment::unpacked_bytes`].
    pub fn unpacked_bytes(&self) -> u64 {
        self.layout.unpacked_bytes()
    }

    /// Enqueues the copy back to the device. It stays on the host until the copy has happened.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub fn to_device(&self, memory: &DeviceMemory, stream: Stream) -> Result<Segment> {
        let bytes = self.layout.parts().end;
        let content = memory.allocate_for(Lifetime::Long, bytes, stream)?;
        self.content.upload(memory, 0, (content.address(), bytes), stream)?;
        Ok(Segment { layout: self.layout, content, dictionary: self.dictionary.clone() })
    }
}
