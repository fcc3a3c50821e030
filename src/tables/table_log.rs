//! What says which states a table has: Delta's log, or Iceberg's metadata.

use std::path::{Path, PathBuf};

use pystachio_plan::{Result, TableFormat, TableVersion, is_in_store, store_scheme};

use crate::{TableState, TableStorage, delta::LogListing, iceberg::MetadataFile};

/// What was found of a table at a path, before anything of it was read but what says where to read.
#[derive(Debug)]
pub enum TableLog {
    /// The log of Delta Lake.
    Delta(LogListing),
    /// The newest metadata of Iceberg.
    Iceberg(MetadataFile),
}

impl TableLog {
    /// Finds that of a table of a format; `None` if the format has none. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound` if there is no such table at the path; those of reading it.
    pub fn find(storage: &dyn TableStorage, format: &TableFormat, path: &Path) -> Result<Option<Self>> {
        Ok(match format {
            TableFormat::Parquet | TableFormat::Sent(_) => None,
            TableFormat::Delta(_) => Some(Self::Delta(LogListing::read(storage, path)?)),
            TableFormat::Iceberg(_) => Some(Self::Iceberg(MetadataFile::find(storage, path)?)),
        })
    }

    /// That of a table whose catalog names its metadata. Blocks.
    ///
    /// # Errors
    ///
    /// Those of reaching them.
    pub fn of_catalog(storage: &dyn TableStorage, metadata: &Path) -> Result<Self> {
        MetadataFile::named(storage, metadata).map(Self::Iceberg)
    }

    /// What tells it from others at the same path: equal if the table has not changed.
    pub fn digest(&self) -> u64 {
        match self {
            Self::Delta(listing) => listing.digest(),
            Self::Iceberg(metadata) => metadata.digest(),
        }
    }

    /// The table at a version. Blocks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a version that the table does not have (any more), `NotSupported` for what can't be read,
    /// `FileCorrupt` for what is incomplete or damaged; those of reading it.
    pub fn load(&self, storage: &dyn TableStorage, version: &TableVersion) -> Result<TableState> {
        match self {
            Self::Delta(listing) => listing.load(storage, version),
            Self::Iceberg(metadata) => metadata.load(storage, version),
        }
    }
}

/// A path in a store, which a table that is in one names.
pub(crate) fn stored_path(table: &Path, path: &str) -> Option<PathBuf> {
    table.to_str().filter(|table| is_in_store(table)).and_then(|_| store_path(path))
}

/// A path in a store by its own name. Hadoop has others for the same store.
pub fn store_path(path: &str) -> Option<PathBuf> {
    let scheme = store_scheme(path)?;
    let rest = path.get(scheme.len() + 3..)?;
    Some(match scheme {
        "s3a" | "s3n" => PathBuf::from(format!("s3://{rest}")),
        // container@account.dfs.core.windows.net/key
        "abfs" | "abfss" | "wasb" | "wasbs" => {
            let (place, key) = rest.split_once('/').unwrap_or((rest, ""));
            let (container, _) = place.split_once('@')?;
            PathBuf::from(format!("az://{container}/{key}"))
        }
        // An empty host is this one.
        "file" => return None,
        _ => PathBuf::from(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_have_several_names() {
        let path = |path: &str| store_path(path).map(|path| path.display().to_string());
        for (given, own) in [
            ("s3://b/k", "s3://b/k"),
            ("s3a://b/k/l", "s3://b/k/l"),
            ("gs://b/k", "gs://b/k"),
            ("abfss://c@a.dfs.core.windows.net/k/l", "az://c/k/l"),
            ("wasbs://c@a.blob.core.windows.net/k", "az://c/k"),
        ] {
            assert_eq!(path(given).as_deref(), Some(own));
        }
        for given in ["/a/b", "file:/a", "file:///a", "abfss://c/k"] {
            assert_eq!(path(given), None, "{given}");
        }
        assert_eq!(stored_path(Path::new("/t"), "s3://b/k"), None);
    }
}
