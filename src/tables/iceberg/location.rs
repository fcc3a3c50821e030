//! Where the paths of a table's metadata lead.

use std::path::{Path, PathBuf};

use pystachio_plan::{Error, ErrorKind, Result};

use crate::table_log::stored_path;

/// Where a table is, and where its metadata say that it is.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// The folder of the table.
    pub(super) root: PathBuf,
    /// What paths in the metadata begin with that are in the folder.
    written: String,
}

impl Location {
    /// That of a table whose metadata name the location `written`. `root`: the folder that was found; else it is that location.
    ///
    /// # Errors
    ///
    /// As of [`Self::resolve`].
    pub(super) fn new(root: Option<PathBuf>, written: &str, metadata: &Path) -> Result<Self> {
        let written = written.trim_end_matches('/').to_owned();
        let given = || stored_path(metadata, &written).map_or_else(|| local(&written, metadata), Ok);
        let root = root.map_or_else(given, Ok)?;
        Ok(Self { root, written })
    }

    /// The file of a path: in the table's folder, wherever that is now, or where the path says.
    ///
    /// # Errors
    ///
    /// `NotSupported` for a path in a store, of a table that is in none.
    pub(super) fn resolve(&self, path: &str) -> Result<PathBuf> {
        let within = |path: &str, folder: &str| {
            path.strip_prefix(folder)?.strip_prefix('/').map(|rest| rest.trim_start_matches('/').to_owned())
        };
        let found = within(path, &self.written)
            .or_else(|| within(without_scheme(path), without_scheme(&self.written)));
        match found {
            Some(rest) => Ok(self.root.join(rest)),
            None => stored_path(&self.root, path).map_or_else(|| local(path, &self.root), Ok),
        }
    }
}

/// A path of this host.
fn local(path: &str, table: &Path) -> Result<PathBuf> {
    let bare = without_scheme(path);
    if Path::new(bare).is_absolute() {
        return Ok(PathBuf::from(bare));
    }
    let message = format!(
        "Iceberg table \"{}\" has a file that is not in its folder, nor on this host: \"{path}\"",
        table.display()
    );
    Err(Error::new(ErrorKind::NotSupported, message)
        .with_hint("Copy the table to a local folder as a whole: paths below its location are found there."))
}

/// `file:///a`, `file:/a` and `/a` are the same file; others stay as they are.
fn without_scheme(path: &str) -> &str {
    match path.strip_prefix("file:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => path,
    }
}
