//! Deletion vectors: rows of a file that are deleted, in the log itself or in a file beside it.
//!
//! A file has its version in one byte, and at the offset of each vector the vector between its size and its checksum
//! (`encoded_rows.rs`).

use std::path::{Path, PathBuf};

use pystachio_plan::{Error, ErrorKind, Result};
use serde::Deserialize;

use super::action::located;
use crate::{
    DeletedRows, TableStorage,
    encoded_rows::{FRAME_BYTES, decode, unframed},
};

/// The only version of files.
const FILE_VERSION: u8 = 1;
/// Characters of a UUID in Z85.
const UUID_CHARACTERS: usize = 20;
const Z85: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Where the deleted rows of a file are listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionVector {
    storage_type: String,
    path_or_inline_dv: String,
    offset: Option<i64>,
    size_in_bytes: i64,
    cardinality: i64,
}

impl DeletionVector {
    /// What tells it from others.
    pub(super) fn id(&self) -> String {
        let offset = self.offset.map(|offset| format!("@{offset}")).unwrap_or_default();
        format!("{}{}{offset}", self.storage_type, self.path_or_inline_dv)
    }

    /// How many rows the log says that it has.
    pub fn row_count(&self) -> u64 {
        u64::try_from(self.cardinality).unwrap_or(0)
    }

    /// The rows of a file that it lists, for a table in a folder. Blocks.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` if it is not what the log says; those of reading it.
    pub fn read(&self, storage: &dyn TableStorage, root: &Path, file: &Path) -> Result<DeletedRows> {
        let corrupt = |reason: &str| {
            let message = format!("the deletion vector of file \"{}\" is damaged: {reason}", file.display());
            Error::new(ErrorKind::FileCorrupt, message)
        };
        let vector_bytes =
            usize::try_from(self.size_in_bytes).map_err(|_| corrupt("its size is negative"))?;
        let bytes = match self.path(root)? {
            None => {
                let bytes = z85_decoded(&self.path_or_inline_dv).ok_or_else(|| corrupt("it is not Z85"))?;
                bytes.get(..vector_bytes).ok_or_else(|| corrupt("it is shorter than the log says"))?.to_vec()
            }
            Some(path) => {
                let offset = self
                    .offset
                    .map_or(Ok(1), u64::try_from)
                    .map_err(|_| corrupt("its offset is negative"))?;
                let end = offset
                    .checked_add(vector_bytes as u64 + FRAME_BYTES)
                    .ok_or_else(|| corrupt("its offset is too large"))?;
                if storage.read(&path, Some(0..1))? != [FILE_VERSION] {
                    return Err(corrupt(&format!("\"{}\" has an unknown version", path.display())));
                }
                let framed = storage.read(&path, Some(offset..end))?;
                unframed(&framed).map_err(|reason| corrupt(&reason))?.to_vec()
            }
        };
        let rows = decode(&bytes).map_err(|reason| corrupt(&reason))?;
        match rows.len() == self.row_count() {
            true => Ok(rows.into()),
            false => {
                Err(corrupt(&format!("it has {} rows, and {} in the log", rows.len(), self.cardinality)))
            }
        }
    }

    /// The file that it is in, if it is in one.
    fn path(&self, root: &Path) -> Result<Option<PathBuf>> {
        let text = &self.path_or_inline_dv;
        match self.storage_type.as_str() {
            "i" => Ok(None),
            "p" => located(root, text).map(Some),
            "u" => {
                let split = text.len().checked_sub(UUID_CHARACTERS).and_then(|at| text.split_at_checked(at));
                let parts = split.and_then(|(prefix, uuid)| Some((prefix, uuid_text(&z85_decoded(uuid)?)?)));
                let (prefix, uuid) = parts.ok_or_else(|| {
                    let message = format!(
                        "the log of Delta table \"{}\" names a deletion vector \"{text}\", which is no UUID in Z85",
                        root.display()
                    );
                    Error::new(ErrorKind::FileCorrupt, message)
                })?;
                Ok(Some(root.join(prefix).join(format!("deletion_vector_{uuid}.bin"))))
            }
            other => {
                let message = format!(
                    "Delta table \"{}\" has deletion vectors of the unknown kind \"{other}\"",
                    root.display()
                );
                Err(Error::new(ErrorKind::NotSupported, message))
            }
        }
    }
}

/// The bytes of a text in Z85, of which five characters are four bytes.
fn z85_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 5 * 4);
    for five in text.as_bytes().chunks(5) {
        let digit = |byte: &u8| Z85.iter().position(|known| known == byte).map(|digit| digit as u64);
        let number = five.iter().try_fold(0, |number, byte| Some(number * 85 + digit(byte)?))?;
        if five.len() < 5 {
            return None;
        }
        bytes.extend(u32::try_from(number).ok()?.to_be_bytes());
    }
    Some(bytes)
}

fn uuid_text(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let text = format!("{:032x}", u128::from_be_bytes(bytes));
    Some([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}
