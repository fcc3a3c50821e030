//! Table formats: Delta Lake, Iceberg, Hudi.
//!
//! The Parquet files of such a table alone are not the table. Deleted or replaced rows stay in the files until a
//! cleanup, and the format's own log says which files, and which rows of them, are current. Reading
//! all files would return rows that the table does not have.

use std::{
    ffi::OsStr,
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// What says which files, and which rows of them, a table has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TableFormat {
    /// The paths: the table has all rows of all their files.
    #[default]
    Parquet,
    /// The log of Delta Lake.
    Delta(TableVersion),
    /// The metadata of Iceberg.
    Iceberg(TableVersion),
    /// None: rows of PostgreSQL's that the backend sends, by their number in the plan. The paths are those of the files that the engine
    /// has made of them, and until then there are none.
    Sent(u32),
}

/// A version of a table that has several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TableVersion {
    /// The last one.
    #[default]
    Latest,
    /// The one with a number; of Iceberg a snapshot with the schema that it was written with.
    Number(i64),
    /// The one that a branch or a tag of Iceberg stands for.
    Named(String),
    /// The last one that was committed at a time or before, in microseconds since 1970.
    AsOf(i64),
    /// A snapshot of Iceberg under one of the table's schemas. Plans name one; users do not.
    Snapshot {
        /// The snapshot; -1: none, the table has no rows.
        snapshot: i64,
        /// The schema.
        schema: i64,
    },
}

impl TableFormat {
    /// Whether what it means may change: the last version of a table, or of a branch.
    pub fn is_latest(&self) -> bool {
        self.version().is_some_and(|version| matches!(version, TableVersion::Latest | TableVersion::Named(_)))
    }

    /// The version, of a format that has several.
    pub fn version(&self) -> Option<&TableVersion> {
        match self {
            Self::Parquet | Self::Sent(_) => None,
            Self::Delta(version) | Self::Iceberg(version) => Some(version),
        }
    }

    /// The same format at another version.
    #[must_use]
    pub fn at(&self, version: TableVersion) -> Self {
        match self {
            Self::Parquet => Self::Parquet,
            Self::Delta(_) => Self::Delta(version),
            Self::Iceberg(_) => Self::Iceberg(version),
            Self::Sent(number) => Self::Sent(*number),
        }
    }

    /// What the option `format` calls it.
    pub fn option(&self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Delta(_) => "delta",
            Self::Iceberg(_) => "iceberg",
            Self::Sent(_) => "rows of PostgreSQL",
        }
    }
}

impl fmt::Display for TableFormat {
    /// The format, and the version that a plan names.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.option())?;
        match self.version() {
            Some(TableVersion::Number(number)) => write!(formatter, " version {number}"),
            Some(TableVersion::Snapshot { snapshot: -1, .. }) => formatter.write_str(" without a snapshot"),
            Some(TableVersion::Snapshot { snapshot, .. }) => write!(formatter, " snapshot {snapshot}"),
            _ => Ok(()),
        }
    }
}

/// Formats, as messages call them.
const DELTA: &str = "Delta Lake";
const HUDI: &str = "Hudi";
const ICEBERG: &str = "Iceberg";
/// A folder of Delta Lake's log, and one of Hudi's, below the table's own.
const DELTA_LOG: &str = "_delta_log";
const HUDI_LOG: &str = ".hoodie";
/// Iceberg's folder, and the ends of the names of the files in it that describe the table.
const ICEBERG_METADATA: &str = "metadata";
const ICEBERG_SUFFIXES: [&str; 2] = [".metadata.json", ".metadata.json.gz"];

/// Whether Parquet files may be read as a table of their own that are found in a folder: neither it nor a folder above it
/// is a table of another format. Blocks.
///
/// # Errors
///
/// `NotSupported`, naming the folder that is one, and what says so.
pub fn check_not_of_other_format(folder: &Path) -> Result<()> {
    folder.ancestors().try_for_each(check_folder)
}

/// The same for a folder in one that was checked.
///
/// # Errors
///
/// As of [`check_not_of_other_format`].
pub fn check_folder(folder: &Path) -> Result<()> {
    let Some((format, found)) = other_format(folder) else { return Ok(()) };
    let message = format!(
        "folder \"{}\" is a table of {format}: \"{}\" says which of its rows are current",
        folder.display(),
        found.display()
    );
    let hint = match format_of_folder(folder) {
        Some(format) => format!(
            "Use the folder itself as the path, with the option format '{}'. IMPORT FOREIGN SCHEMA sets it.",
            format.option()
        ),
        None => "Give the paths of the files that the table has now, one by one, if none of their rows is deleted, or copy \
                 the table into plain Parquet. IMPORT FOREIGN SCHEMA leaves a folder out that is named after EXCEPT."
            .to_owned(),
    };
    Err(Error::new(ErrorKind::NotSupported, message).with_hint(hint))
}

/// The format whose table a folder is, if it is one that engines read. Blocks.
pub fn format_of_folder(folder: &Path) -> Option<TableFormat> {
    match other_format(folder)?.0 {
        DELTA => Some(TableFormat::Delta(TableVersion::Latest)),
        ICEBERG => Some(TableFormat::Iceberg(TableVersion::Latest)),
        _ => None,
    }
}

/// Whether a folder with an entry of this name may be a table of another format.
pub fn marks_table(name: &OsStr) -> bool {
    [DELTA_LOG, HUDI_LOG, ICEBERG_METADATA].iter().any(|mark| name == *mark)
}

/// Whether a path is named as files are that describe tables of Iceberg.
pub fn is_iceberg_metadata(path: &str) -> bool {
    ICEBERG_SUFFIXES.iter().any(|suffix| path.ends_with(suffix))
}

/// The format whose table a folder is, and what says so.
fn other_format(folder: &Path) -> Option<(&'static str, PathBuf)> {
    for (format, name) in [(DELTA, DELTA_LOG), (HUDI, HUDI_LOG)] {
        let log = folder.join(name);
        if log.is_dir() {
            return Some((format, log));
        }
    }
    let files = fs::read_dir(folder.join(ICEBERG_METADATA)).ok()?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    let is_metadata = |path: &PathBuf| path.to_str().is_some_and(is_iceberg_metadata);
    paths.find(is_metadata).map(|found| (ICEBERG, found))
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
        let format = |path: &str| format_of_folder(&root.path().join(path)).map(|format| format.option());
        assert_eq!(
            ["delta", "iceberg", "hudi", "plain"].map(format),
            [Some("delta"), Some("iceberg"), None, None]
        );
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
