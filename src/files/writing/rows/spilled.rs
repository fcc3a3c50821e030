//! Files that only the scans of one query read: rows that a backend sends. They are spill files of the query.

use std::path::Path;

use pystachio_engine::spill::QuerySpill;
use pystachio_plan::{Result, WriteRequest, WriteTarget};
use tempfile::TempDir;

use crate::from_io;

/// Where such files are, and what they take of the space for spilling. Both are given back when it is dropped.
pub(super) struct Spilled {
    spill: QuerySpill,
    /// Bytes that are counted.
    bytes: u64,
    _folder: TempDir,
}

impl Spilled {
    /// Space for the rows of a request, whose target is then a folder of the engine's; `None` if they go elsewhere.
    ///
    /// # Errors
    ///
    /// Those of making the folder.
    pub(super) fn of(request: &mut WriteRequest, spill: &QuerySpill) -> Result<Option<Self>> {
        if !matches!(request.target, WriteTarget::Spill) {
            return Ok(None);
        }
        let folder = new_folder(spill, "sent-")?;
        // Other processes of the engine read the files too.
        let path = folder.path().canonicalize().map_err(|error| from_io(folder.path(), "write", &error))?;
        let path = path.to_string_lossy().into_owned();
        request.target = WriteTarget::Folder { path, stem: "rows".to_owned() };
        Ok(Some(Self { spill: spill.clone(), bytes: 0, _folder: folder }))
    }

    /// Counts what the files have now.
    ///
    /// # Errors
    ///
    /// `SpillLimit`, naming the limit.
    pub(super) fn note(&mut self, bytes: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.spill.take(more)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        self.spill.give_back(self.bytes);
    }
}

/// A folder of the engine's for one write, which is removed when it is dropped.
///
/// # Errors
///
/// `FileAccess`, naming the folder that it can't be made in.
pub(super) fn new_folder(spill: &QuerySpill, prefix: &str) -> Result<TempDir> {
    let directory: &Path = spill.directory();
    TempDir::with_prefix_in(prefix, directory).map_err(|error| from_io(directory, "write", &error))
}
