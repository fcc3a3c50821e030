//! TPC-H data.

use pystachio_engine::GenerateProgress;
use pystachio_plan::{Error, ErrorKind, GenerateRequest, Result};

/// Writes the TPC-H tables.
pub(crate) async fn generate(
    request: GenerateRequest,
    _threads: usize,
    _progress: &(dyn Fn(GenerateProgress) + Send + Sync),
) -> Result<Vec<(String, u64)>> {
    Err(Error::new(ErrorKind::NotSupported, format!("generate into {}", request.directory)))
}
