//! Rows for ANALYZE.

use pystachio_engine::ResultStream;
use pystachio_plan::{Error, ErrorKind, Result, SampleRequest};

use crate::files::FileCatalog;

/// Starts reading a sample of a table's rows.
pub(crate) fn sample(_catalog: &FileCatalog, request: &SampleRequest) -> Result<Box<dyn ResultStream>> {
    Err(Error::new(ErrorKind::NotSupported, format!("sample {:?}", request.files.paths)))
}
