//! Column chunks of files: their pages on the device, and columns of those.

use pystachio_plan::Result;

use crate::decode::{ChunkRequest, ColumnSource, EncodedBytes, PendingLoad, PendingRowGroup, RowSelection};

/// Loading and decoding column chunks. See [`super::Device`] for what every operation has in common.
pub trait DecodeOperations {
    /// Enqueues the loading of chunks of one row group: their pages come to the device, if they are not there yet, and
    /// are decompressed. One resident chunk each, in their order. Waits if the host may have to decompress some of the
    /// pages after all: those of LZ4, and those that a library decompresses.
    ///
    /// # Errors
    ///
    /// `NotSupported` for an unknown compression, `FileCorrupt` naming file, column and page.
    fn load_chunks(&self, chunks: Vec<(&ColumnSource<'_>, EncodedBytes<'_>)>) -> Result<PendingLoad>;

    /// Enqueues the decoding of some rows of resident chunks, each as its column is declared. Pages without such rows
    /// are not looked at. Waits only if a chunk has pages of DELTA_BYTE_ARRAY.
    ///
    /// # Shapes
    ///
    /// One column a chunk, each with the selection's rows, as cells or as codes. Those that a narrowed selection leaves out
    /// have no meaning.
    ///
    /// # Errors
    ///
    /// Of [`crate::decode::decode_row_group`], those that need no values.
    fn decode_chunks(&self, chunks: &[ChunkRequest<'_>], rows: &RowSelection) -> Result<PendingRowGroup>;
}
