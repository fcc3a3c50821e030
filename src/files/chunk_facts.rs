//! What scans ask of a leaf's chunks, by row group: a decoded footer has it in other forms and far apart, and a scan asks for each of
//! thousands of row groups.
//!
//! Invariants: a footer's memory includes these facts of all leaves, though only those of leaves that are asked for are made.

use parquet::{basic::CompressionCodec, file::metadata::ColumnChunkMetaData};
use pystachio_plan::Value;

use crate::{
    files::FileFooter,
    statistics::{ChunkStatistics, ColumnSummary},
};

/// Facts of a column chunk.
#[derive(Debug)]
pub struct ChunkFacts {
    /// Its bytes in the file.
    pub compressed_bytes: u64,
    /// The same before they were compressed. Nothing bounds it: a footer may state any number.
    pub uncompressed_bytes: u64,
    is_compressed: bool,
    /// What its statistics say; absent of text and bytes, which would take memory of their own.
    pub(crate) bounds: Option<ChunkBounds>,
}

/// Bounds of a chunk's values, which are of the file's type.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkBounds {
    pub(crate) minimum: Option<Value>,
    pub(crate) maximum: Option<Value>,
    pub(crate) null_count: Option<u64>,
}

impl ChunkFacts {
    /// Those of a chunk of which only these sizes are known.
    pub fn of_sizes(chunk: &ColumnChunkMetaData) -> Self {
        let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
        Self {
            compressed_bytes: bytes(chunk.compressed_size()),
            uncompressed_bytes: bytes(chunk.uncompressed_size()),
            is_compressed: chunk.compression_codec() != CompressionCodec::UNCOMPRESSED,
            bounds: None,
        }
    }

    /// Memory to load it: its bytes, and again decompressed.
    pub fn loading_bytes(&self) -> u64 {
        let decompressed_bytes = if self.is_compressed { self.uncompressed_bytes } else { 0 };
        self.compressed_bytes.saturating_add(decompressed_bytes)
    }

    /// Those of the chunks of a leaf.
    pub(crate) fn of_leaf(footer: &FileFooter, leaf: usize) -> Box<[Self]> {
        let file_type = footer.type_of_leaf(leaf);
        let row_groups = footer.metadata().row_groups().iter();
        let facts = row_groups.map(|row_group| {
            let statistics = file_type.and_then(|file_type| footer.statistics_of(row_group, leaf, file_type));
            let bounds = statistics.map(|statistics| ChunkBounds::of(&statistics));
            let bounds = bounds.filter(ChunkBounds::is_small);
            Self { bounds, ..Self::of_sizes(row_group.column(leaf)) }
        });
        facts.collect()
    }
}

impl ChunkBounds {
    pub(crate) fn of(part: &ChunkStatistics<'_>) -> Self {
        let mut summary = ColumnSummary::new();
        summary.add(part);
        let (minimum, maximum) = (summary.minimum(), summary.maximum());
        Self { minimum, maximum, null_count: summary.null_count() }
    }

    /// Whether its values have no memory of their own.
    fn is_small(&self) -> bool {
        let is_large = |value: &Value| matches!(value, Value::Text(_) | Value::Bytes(_));
        !self.minimum.iter().chain(&self.maximum).any(is_large)
    }
}
