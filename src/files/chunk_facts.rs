//! What scans ask of a leaf's chunks, by row group: a decoded footer has it in other forms and far apart, and a scan asks for each of
//! thousands of row groups.
//!
//! Invariants: a footer's memory includes sizes and bounds of all leaves, though only those that are asked for are made.

use std::{mem::size_of, sync::OnceLock};

use parquet::{basic::CompressionCodec, file::metadata::ColumnChunkMetaData};
use pystachio_plan::Value;

use crate::{
    files::FileFooter,
    statistics::{ChunkStatistics, ColumnSummary},
};

/// The facts of a leaf's chunks, as far as they were asked for.
#[derive(Debug, Default)]
pub(crate) struct LeafFacts {
    sizes: OnceLock<Box<[ChunkSizes]>>,
    bounds: OnceLock<Box<[Option<ChunkBounds>]>>,
}

/// Sizes of a column chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSizes {
    /// Its bytes in the file.
    pub compressed_bytes: u64,
    /// The same before they were compressed. Nothing bounds it: a footer may state any number.
    pub uncompressed_bytes: u64,
    is_compressed: bool,
}

/// Bounds of a chunk's values, which are of the file's type.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkBounds {
    pub(crate) minimum: Option<Value>,
    pub(crate) maximum: Option<Value>,
    pub(crate) null_count: Option<u64>,
}

impl LeafFacts {
    /// What they take for each chunk, besides themselves.
    pub(crate) const CHUNK_BYTES: usize = size_of::<ChunkSizes>() + size_of::<Option<ChunkBounds>>();

    /// The sizes of all chunks of the leaf.
    pub(crate) fn sizes(&self, footer: &FileFooter, leaf: usize) -> &[ChunkSizes] {
        let row_groups = footer.metadata().row_groups().iter();
        self.sizes
            .get_or_init(|| row_groups.map(|row_group| ChunkSizes::of(row_group.column(leaf))).collect())
    }

    /// The bounds of a chunk; `None` where the file tells none that can be believed.
    pub(crate) fn bounds(&self, footer: &FileFooter, leaf: usize, row_group: usize) -> Option<ChunkBounds> {
        let file_type = footer.type_of_leaf(leaf)?;
        let row_groups = footer.metadata().row_groups();
        let of_chunk = |row_group| Some(ChunkBounds::of(&footer.statistics_of(row_group, leaf, file_type)?));
        let kept = self.bounds.get_or_init(|| {
            let all = row_groups.iter().map(of_chunk);
            // Texts would take memory of their own.
            all.map(|bounds| bounds.filter(ChunkBounds::is_small)).collect()
        });
        kept.get(row_group)?.clone().or_else(|| of_chunk(row_groups.get(row_group)?))
    }
}

impl ChunkSizes {
    /// Those that a footer states.
    pub fn of(chunk: &ColumnChunkMetaData) -> Self {
        let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
        Self {
            compressed_bytes: bytes(chunk.compressed_size()),
            uncompressed_bytes: bytes(chunk.uncompressed_size()),
            is_compressed: chunk.compression_codec() != CompressionCodec::UNCOMPRESSED,
        }
    }

    /// Memory to load the chunk: its bytes, and again decompressed.
    pub fn loading_bytes(&self) -> u64 {
        let decompressed_bytes = if self.is_compressed { self.uncompressed_bytes } else { 0 };
        self.compressed_bytes.saturating_add(decompressed_bytes)
    }
}

impl ChunkBounds {
    fn of(part: &ChunkStatistics<'_>) -> Self {
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
