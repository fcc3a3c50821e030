//! Files that go into a store: each is written to a folder of the engine's, and uploaded when it is complete.
//!
//! Deliberately absent: what a file is (`mod.rs`), how it is uploaded (`stores/upload.rs`).

use std::{fs, path::Path, sync::Arc};

use pystachio_engine::StopFlag;
use pystachio_plan::{Error, FileSet, Result, WriteRequest, WriteTarget, is_in_store};
use tempfile::TempDir;

use super::{RowMeans, spilled::new_folder};
use crate::{
    FileCatalog, from_io,
    stores::{Existing, StoreSession, Upload},
};

/// The name of the folder that files are written to, in that of this write.
const FOLDER: &str = "files";

/// Where files of a write go.
pub(super) struct Remote {
    session: StoreSession,
    catalog: Arc<FileCatalog>,
    /// The folder in the store, without a slash at its end, or the object.
    url: String,
    /// The same of the files before they are uploaded.
    local: String,
    existing: Existing,
    uploads: Vec<Upload>,
    /// Removed with this.
    _scratch: TempDir,
}

impl Remote {
    /// Where the files of a request go, whose target is then a folder or file of the engine's; `None` if they stay on the host.
    ///
    /// # Errors
    ///
    /// Those of a place that can't be written to.
    pub(super) fn of(request: &mut WriteRequest, means: &RowMeans, stop: &StopFlag) -> Result<Option<Self>> {
        let Some(url) = request.target.path().filter(|path| is_in_store(path)) else { return Ok(None) };
        let url = url.trim_end_matches('/').to_owned();
        let catalog = means.catalog.for_request(&request.access, stop);
        let session = catalog.session()?.clone();
        let scratch = new_folder(&means.spill, "write-")?;
        let folder = scratch.path().join(FOLDER);
        fs::create_dir(&folder).map_err(|error| from_io(&folder, "make directory", &error))?;
        let (existing, local) = match &request.target {
            WriteTarget::File { overwrite: true, .. } => (Existing::Replaced, folder.join("file.parquet")),
            WriteTarget::File { overwrite: false, .. } => (Existing::Refused, folder.join("file.parquet")),
            WriteTarget::Folder { .. } | WriteTarget::Spill => (Existing::Never, folder),
        };
        session.check_writable(&url, existing)?;
        let local = local.to_string_lossy().into_owned();
        match &mut request.target {
            WriteTarget::File { path, .. } | WriteTarget::Folder { path, .. } => path.clone_from(&local),
            WriteTarget::Spill => {}
        }
        Ok(Some(Self { session, catalog, url, local, existing, uploads: Vec::new(), _scratch: scratch }))
    }

    /// The catalog that lists the store, and the folder's files.
    pub(super) fn files(&self) -> (&Arc<FileCatalog>, FileSet) {
        (&self.catalog, FileSet::parquet(vec![format!("{}/", self.url)]))
    }

    /// The object that a file of the folder becomes.
    pub(super) fn url_of(&self, path: &Path) -> Result<String> {
        match path.to_string_lossy().strip_prefix(&self.local) {
            Some(below) => Ok(format!("{}{below}", self.url)),
            None => Err(Error::internal("a file of a write is in another folder")),
        }
    }

    /// Uploads a file that is complete. Blocks.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(super) fn upload(&mut self, file: &Path, url: &str) -> Result<()> {
        self.uploads.push(self.session.upload(file, url, self.existing)?);
        Ok(())
    }

    /// Makes all objects visible. Blocks.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(super) fn complete(&mut self) -> Result<()> {
        self.uploads.iter_mut().try_for_each(Upload::complete)
    }

    /// Leaves the objects as they are.
    pub(super) fn keep(self) {
        self.uploads.into_iter().for_each(Upload::keep);
    }
}
