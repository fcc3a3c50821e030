//! Folders that are tables of another format: Delta Lake, Iceberg, Hudi.
//!
//! Their Parquet files alone are not the table. Deleted or replaced rows stay in the files until a
//! cleanup, and the format's own log says which files, and which rows of them, are current. Reading
//! all files would return rows that the table does not have.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Error, ErrorKind, Result};

/// A folder of Delta Lake's log, and one of Hudi's, below the table's own.
const DELTA_LOG: &str = "_delta_log";
const HUDI_LOG: &str = ".hoodie";
/// Iceberg's folder, and the end of the names of the files in it that describe the table.
const ICEBERG_METADATA: &str = "metadata";
const ICEBERG_SUFFIX: &str = ".metadata.json";

/// Whether Parquet files may be read as a table of their own that are found in a folder: neither it nor a folder above it
/// is a table of another format. Blocks.
///
/// # Errors
///
/// `NotSupported`, naming the folder that is one, and what says so.
pub fn check_not_of_other_format(folder: &Path) -> Result<()> {
    let Some((table, format, found)) = folder.ancestors().find_map(other_format) else { return Ok(()) };
    let message = format!(
        "folder \"{}\" is a table of {format}: \"{}\" says which of its rows are current, and is not read",
        table.display(),
        found.display()
    );
    Err(Error::new(ErrorKind::NotSupported, message).with_hint(
        "Give the paths of the files that the table has now, one by one, if none of their rows is deleted, or copy the \
         table into plain Parquet. IMPORT FOREIGN SCHEMA leaves a folder out that is named after EXCEPT.",
    ))
}

/// The format whose table a folder is, and what says so.
fn other_format(folder: &Path) -> Option<(&Path, &'static str, PathBuf)> {
    for (format, name) in [("Delta Lake", DELTA_LOG), ("Hudi", HUDI_LOG)] {
        let log = folder.join(name);
        if log.is_dir() {
            return Some((folder, format, log));
        }
    }
    let files = fs::read_dir(folder.join(ICEBERG_METADATA)).ok()?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    let is_metadata = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(ICEBERG_SUFFIX.as_bytes()))
    };
    paths.find(is_metadata).map(|found| (folder, "Iceberg", found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_other_formats_are_told_by_their_logs() {
        let root = tempfile::tempdir().unwrap();
        for folder in [
            "delta/_delta_log",
            "delta/day=1",
            "hudi/.hoodie",
            "iceberg/metadata",
            "iceberg/data",
            "plain/metadata",
        ] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for file in ["iceberg/metadata/v1.metadata.json", "plain/metadata/notes.json"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        let says = |path: &str, format: &str| {
            let message = check_not_of_other_format(&root.path().join(path)).unwrap_err().message;
            assert!(message.contains(&format!(" is a table of {format}: ")), "{path}: {message}");
        };
        says("delta", "Delta Lake");
        says("delta/day=1", "Delta Lake");
        says("hudi", "Hudi");
        says("iceberg", "Iceberg");
        says("iceberg/data", "Iceberg");
        for path in ["", "plain", "plain/metadata", "nothing"] {
            assert!(check_not_of_other_format(&root.path().join(path)).is_ok(), "{path}");
        }
    }
}
