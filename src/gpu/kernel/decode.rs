//! Pages, which `decode/` prepares for the kernels.

use pystachio_plan::Result;

use super::KernelDevice;
use crate::{
    decode::{
        ChunkRequest, ColumnSource, EncodedBytes, PendingLoad, PendingRowGroup, RowSelection,
        enqueue_decoding, enqueue_loading,
    },
    operation::DecodeOperations,
};

impl DecodeOperations for KernelDevice {
    fn load_chunks(&self, chunks: Vec<(&ColumnSource<'_>, EncodedBytes<'_>)>) -> Result<PendingLoad> {
        enqueue_loading(self, chunks)
    }

    fn decode_chunks(&self, chunks: &[ChunkRequest<'_>], rows: &RowSelection) -> Result<PendingRowGroup> {
        enqueue_decoding(self, chunks, rows)
    }
}
