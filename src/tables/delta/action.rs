//! Actions: what commits and checkpoints consist of.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use pystachio_plan::{Error, ErrorKind, Result, percent_decoded_bytes};
use serde::Deserialize;
use serde_json::Value;

use super::{bounds::Statistics, corrupt, deletion_vector::DeletionVector};
use crate::{DataFile, FileDeletes, TableColumn, table_log::stored_path};

/// The columns of checkpoints that are read.
pub(super) const CHECKPOINT_COLUMNS: &[&str] = &["add", "metaData", "protocol", "sidecar"];

/// One action: one of its fields is set, or none of a kind that readers ignore.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Action {
    pub(super) add: Option<Add>,
    pub(super) remove: Option<Remove>,
    pub(super) meta_data: Option<Metadata>,
    pub(super) protocol: Option<Protocol>,
    pub(super) sidecar: Option<Sidecar>,
    pub(super) commit_info: Option<CommitInfo>,
}

/// A file that the table has from then on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    pub(super) path: String,
    #[serde(default)]
    partition_values: HashMap<String, Option<String>>,
    stats: Option<String>,
    /// The same as `stats`, as checkpoints may have it.
    #[serde(rename = "stats_parsed")]
    stats_parsed: Option<Value>,
    pub(super) deletion_vector: Option<DeletionVector>,
}

/// A file that the table does not have any more.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remove {
    pub(super) path: String,
    pub(super) deletion_vector: Option<DeletionVector>,
}

/// The table's schema and properties.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) schema_string: String,
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
    #[serde(default)]
    pub(super) configuration: HashMap<String, Option<String>>,
}

/// What readers have to know.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: i32,
    pub(super) reader_features: Option<Vec<String>>,
}

/// A file with a part of a checkpoint.
#[derive(Debug, Deserialize)]
pub(super) struct Sidecar {
    pub(super) path: String,
}

/// When and why a commit was made.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitInfo {
    /// In milliseconds since 1970.
    pub(super) in_commit_timestamp: Option<i64>,
}

impl Metadata {
    /// A property of the table.
    pub(super) fn property(&self, name: &str) -> Option<&str> {
        self.configuration.get(name)?.as_deref()
    }
}

impl Add {
    /// The file, of a table with these columns.
    pub(super) fn into_file(self, root: &Path, columns: &[TableColumn]) -> Result<DataFile> {
        let path = located(root, &self.path)?;
        let mut partition_values = Vec::new();
        for (place, column) in columns.iter().enumerate().filter(|(_, column)| column.is_partition) {
            let value = self.partition_values.get(&column.stored.name).ok_or_else(|| {
                corrupt(
                    &path,
                    &format!("the log has no value of partition column \"{}\" for the file", column.name),
                )
            })?;
            // An empty text stands for NULL.
            partition_values.push((place, value.clone().filter(|value| !value.is_empty())));
        }
        // Statistics that can't be read are none.
        let statistics = match (&self.stats, self.stats_parsed) {
            (Some(text), _) => serde_json::from_str::<Statistics>(text).ok(),
            (None, Some(parsed)) => serde_json::from_value::<Statistics>(parsed).ok(),
            (None, None) => None,
        };
        let statistics = statistics.unwrap_or_default();
        Ok(DataFile {
            path,
            row_count: statistics.row_count(),
            partition_values,
            bounds: statistics.bounds(columns),
            deletes: self.deletion_vector.map(FileDeletes::Vector),
        })
    }
}

/// Where a path of the log leads: it is relative to the table's folder, or absolute; percent-encoded.
pub(super) fn located(root: &Path, path: &str) -> Result<PathBuf> {
    let local = path.strip_prefix("file://").or_else(|| path.strip_prefix("file:")).unwrap_or(path);
    // What a table in a store may read is checked where it is read.
    if let Some(path) = stored_path(root, local) {
        return Ok(path);
    }
    if let Some((scheme, _)) = local.split_once("://") {
        let message = format!(
            "Delta table \"{}\" has a file in a store that can't be read: \"{path}\"",
            root.display()
        );
        return Err(Error::new(ErrorKind::NotSupported, message)
            .with_hint(format!("Copy the table to a local folder: files of \"{scheme}\" are not read.")));
    }
    let bytes = percent_decoded_bytes(local);
    Ok(root.join(Path::new(OsStr::from_bytes(&bytes))))
}
