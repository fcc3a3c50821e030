//! Manifests: which files a snapshot has, and the list of them.

use std::path::{Path, PathBuf};

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    avro::{Datum, FileProperties, Record, read_records},
    corrupt,
    location::Location,
    metadata::{Snapshot, TableMetadata},
};
use crate::TableStorage;

/// What the files of a manifest hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Rows,
    PositionDeletes,
    EqualityDeletes,
}

/// A manifest of a snapshot.
pub(super) struct Manifest {
    path: PathBuf,
    /// `None`: the manifest itself says it.
    spec_id: Option<i64>,
    pub(super) has_deletes: bool,
    /// The sequence number of files that have none of their own.
    sequence: i64,
}

/// A live file of a manifest.
pub(super) struct Entry<'r> {
    pub(super) manifest: &'r Path,
    pub(super) content: Content,
    pub(super) spec_id: i64,
    /// When its rows came, in the order of commits.
    pub(super) sequence: i64,
    /// As the metadata write it.
    pub(super) written_path: &'r str,
    /// What the manifest says of it.
    pub(super) file: &'r Record,
}

impl Entry<'_> {
    /// The rows of the file.
    pub(super) fn row_count(&self) -> Option<u64> {
        self.file.get(103, "record_count").long().and_then(|count| u64::try_from(count).ok())
    }

    pub(super) fn is_of_format(&self, format: &str) -> bool {
        self.file.get(101, "file_format").text().is_some_and(|own| own.eq_ignore_ascii_case(format))
    }

    /// What a map of the file's columns has, by the ids of the columns.
    pub(super) fn by_column(&self, id: i64, name: &str) -> impl Iterator<Item = (i64, &Datum)> {
        let entries = self.file.get(id, name).array().iter().filter_map(Datum::record);
        // The ids of keys and values differ from map to map.
        entries.filter_map(|entry| {
            let (key, value) = entry.pair()?;
            Some((key.long()?, value))
        })
    }

    /// The error of a manifest that says of the file what can't be.
    pub(super) fn corrupt(&self, reason: &str) -> Error {
        corrupt(self.manifest, &format!("file \"{}\" {reason}", self.written_path))
    }
}

/// The manifests of a snapshot.
pub(super) fn manifests(
    storage: &dyn TableStorage,
    location: &Location,
    snapshot: &Snapshot,
) -> Result<Vec<Manifest>> {
    if let Some(list) = &snapshot.manifest_list {
        return read_list(storage, location, &location.resolve(list)?);
    }
    let paths = snapshot.manifests.iter().flatten();
    paths
        .map(|path| {
            let path = location.resolve(path)?;
            Ok(Manifest { path, spec_id: None, has_deletes: false, sequence: 0 })
        })
        .collect()
}

fn read_list(storage: &dyn TableStorage, location: &Location, path: &Path) -> Result<Vec<Manifest>> {
    let bytes = storage.read(path, None)?;
    let mut found = Vec::new();
    read_records(&bytes, &|reason| corrupt(path, &reason), &mut |record, _| {
        let written = record.get(500, "manifest_path").text();
        let written = written.ok_or_else(|| corrupt(path, "it has a manifest without a path"))?;
        if !record.get(519, "key_metadata").is_null() {
            return Err(encrypted(location, written));
        }
        let has_deletes = match record.get(517, "content").long() {
            None | Some(0) => false,
            Some(1) => true,
            Some(other) => {
                return Err(corrupt(
                    path,
                    &format!("manifest \"{written}\" has the unknown content {other}"),
                ));
            }
        };
        found.push(Manifest {
            path: location.resolve(written)?,
            spec_id: record.get(502, "partition_spec_id").long(),
            has_deletes,
            sequence: record.get(515, "sequence_number").long().unwrap_or(0),
        });
        Ok(())
    })?;
    Ok(found)
}

impl Manifest {
    /// Calls `visit` for each of its files that the snapshot has.
    pub(super) fn read(
        &self,
        storage: &dyn TableStorage,
        location: &Location,
        metadata: &TableMetadata,
        visit: &mut dyn FnMut(&Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let path = &self.path;
        let bytes = storage.read(path, None)?;
        read_records(&bytes, &|reason| corrupt(path, &reason), &mut |record, properties| {
            let status = record.get(0, "status").long();
            let is_added = match status {
                Some(0) => false,
                Some(1) => true,
                // Files that the snapshot removed.
                Some(2) => return Ok(()),
                _ => return Err(corrupt(path, "it has a file of which it does not say whether it is live")),
            };
            let file = record.get(2, "data_file").record();
            let file = file.ok_or_else(|| corrupt(path, "it has an entry without a file"))?;
            let written_path = file.get(100, "file_path").text();
            let written_path = written_path.ok_or_else(|| corrupt(path, "it has a file without a path"))?;
            if !file.get(131, "key_metadata").is_null() {
                return Err(encrypted(location, written_path));
            }
            let entry = Entry {
                manifest: path,
                content: Content::Rows,
                spec_id: self.spec_id.or_else(|| property(properties, "partition-spec-id")).unwrap_or(0),
                sequence: 0,
                written_path,
                file,
            };
            let sequence = match record.get(3, "sequence_number").long() {
                _ if !metadata.has_sequence_numbers() => 0,
                Some(sequence) => sequence,
                None if is_added || self.sequence == 0 => self.sequence,
                None => return Err(entry.corrupt("has no sequence number")),
            };
            let content = match file.get(134, "content").long() {
                None | Some(0) => Content::Rows,
                Some(1) => Content::PositionDeletes,
                Some(2) => Content::EqualityDeletes,
                Some(other) => return Err(entry.corrupt(&format!("has the unknown content {other}"))),
            };
            if (content != Content::Rows) != self.has_deletes {
                return Err(entry.corrupt("is in a manifest for files of another kind"));
            }
            visit(&Entry { content, sequence, ..entry })
        })?;
        Ok(())
    }
}

/// A number among what a manifest says of itself.
fn property(properties: &FileProperties, name: &str) -> Option<i64> {
    std::str::from_utf8(properties.get(name)?).ok()?.parse().ok()
}

fn encrypted(location: &Location, path: &str) -> Error {
    let message = format!("Iceberg table \"{}\" has the encrypted file \"{path}\"", location.root.display());
    Error::new(ErrorKind::NotSupported, message).with_hint("Copy the table into one that is not encrypted.")
}
