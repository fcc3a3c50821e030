//! What a table format needs of a store.

use std::{ops::Range, path::Path};

use pystachio_plan::Result;
use serde_json::Value;

/// A file in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogEntry {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was changed, in microseconds since 1970.
    pub modified_us: i64,
}

/// A store of logs.
pub trait TableStorage {
    /// The files of a folder, in any order. Blocks.
    ///
    /// # Errors
    ///
    /// `FileNotFound`, `FilePermission`, `FileAccess`, each naming the folder.
    fn list(&self, folder: &Path) -> Result<Vec<LogEntry>>;

    /// What [`Self::list`] says of a file. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::list`], for the file.
    fn entry(&self, path: &Path) -> Result<LogEntry>;

    /// A file, or a range of its bytes. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::list`], for the file; `FileCorrupt` if it ends before the range does.
    fn read(&self, path: &Path, range: Option<Range<u64>>) -> Result<Vec<u8>>;

    /// Calls `visit` for each row of a Parquet file: a JSON object of those of `columns` that the file has. Dates are numbers of
    /// days, timestamps numbers of microseconds. Blocks.
    ///
    /// # Errors
    ///
    /// As of [`Self::read`]; those of `visit`.
    fn rows(&self, path: &Path, columns: &[&str], visit: &mut dyn FnMut(Value) -> Result<()>) -> Result<()>;
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use pystachio_plan::{Error, ErrorKind};
    use serde_json::Value as Json;

    use super::*;

    /// Files of a table in `/t` by their paths below it. Parquet files are rows in JSON.
    #[derive(Default)]
    pub(crate) struct Memory {
        pub(crate) files: BTreeMap<String, Vec<u8>>,
    }

    impl Memory {
        pub(crate) fn with(mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Self {
            self.files.insert(format!("/t/{path}"), bytes.into());
            self
        }

        fn bytes(&self, path: &Path) -> Result<&Vec<u8>> {
            let name = path.display().to_string();
            self.files
                .get(&name)
                .ok_or_else(|| Error::new(ErrorKind::FileNotFound, format!("file \"{name}\" does not exist")))
        }
    }

    impl TableStorage for Memory {
        fn list(&self, folder: &Path) -> Result<Vec<LogEntry>> {
            let start = format!("{}/", folder.display());
            let within =
                self.files.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&start)?, bytes)));
            let entries: Vec<LogEntry> = within
                .filter(|(name, _)| !name.contains('/'))
                .enumerate()
                .map(|(place, (name, bytes))| LogEntry {
                    name: name.to_owned(),
                    bytes: bytes.len() as u64,
                    modified_us: 1_000_000 * place as i64,
                })
                .collect();
            match entries.is_empty() {
                true => Err(Error::new(ErrorKind::FileNotFound, "no folder")),
                false => Ok(entries),
            }
        }

        fn entry(&self, path: &Path) -> Result<LogEntry> {
            let bytes = self.bytes(path)?.len() as u64;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(LogEntry { name, bytes, modified_us: 0 })
        }

        fn read(&self, path: &Path, range: Option<Range<u64>>) -> Result<Vec<u8>> {
            let bytes = self.bytes(path)?;
            let Some(range) = range else { return Ok(bytes.clone()) };
            let part = bytes.get(range.start as usize..range.end as usize);
            part.map(<[u8]>::to_vec).ok_or_else(|| Error::new(ErrorKind::FileCorrupt, "truncated"))
        }

        fn rows(
            &self,
            path: &Path,
            columns: &[&str],
            visit: &mut dyn FnMut(Json) -> Result<()>,
        ) -> Result<()> {
            let rows: Vec<Json> = serde_json::from_slice(self.bytes(path)?)
                .map_err(|error| Error::new(ErrorKind::FileCorrupt, error.to_string()))?;
            for mut row in rows {
                if let Some(fields) = row.as_object_mut() {
                    fields.retain(|name, _| columns.contains(&name.as_str()));
                }
                visit(row)?;
            }
            Ok(())
        }
    }
}
