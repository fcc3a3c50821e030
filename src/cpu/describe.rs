//! Tables as the planner needs them.

use pystachio_plan::{Error, ErrorKind, FileSet, Result, TableDescription};

use crate::files::FileCatalog;

/// Describes a table from its files' footers. Blocks.
pub(crate) fn describe(_catalog: &FileCatalog, files: &FileSet) -> Result<TableDescription> {
    Err(Error::new(ErrorKind::NotSupported, format!("describe {:?}", files.paths)))
}
