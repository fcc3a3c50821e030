//! Files with Parquet's modular encryption, read as plain ones.
//!
//! - `cipher.rs`: AES-GCM and AES-CTR; `keys.rs`: which key a file means
//! - `footer.rs`: an encrypted footer as a plain one, and where the file's encrypted modules are
//! - `pages.rs`: an encrypted column chunk as a plain one
//! - `bytes.rs`: the plain bytes of a file that is open, for as long as they are read
//!
//! # Goals
//!
//! - All code behind [`crate::TableFile`] sees a plain file: footers, page indexes, checks of pages, both engines, their caches.
//! - Both kinds of footers, AES_GCM_V1 and AES_GCM_CTR_V1, keys of footers and of columns, AAD prefixes.
//! - Files of pyarrow, Spark and DuckDB, of this host and of stores.
//!
//! # What it is not
//!
//! No KMS: keys are options of user mappings. No encryption of what is written, of spill files or of memory. Delete files of table formats
//! are not decrypted.
//!
//! # Design
//!
//! ```text
//! footer ─► decrypted, chunks' metadata put in their places ─► the plain footer ─► as of any file
//!                         └─► regions: which bytes are encrypted, with which key
//! fetch(range) ─► the region that the range begins in ─► decrypted into anonymous memory ─► read by the handle, as a file
//! ```
//!
//! A plain page is shorter than the encrypted one by two lengths, two nonces and up to two tags. Its header is made longer by so much, with a
//! field that no reader knows. So pages, chunks and indexes of pages stay where they are, and offsets in footers and indexes hold.
//!
//! # Invariants
//!
//! - What is kept of an encrypted file (footers, descriptions, decoded columns on hosts and devices) is kept by the digest of the keys
//!   that it was read with, which is part of [`crate::FileIdentity`]. A request with other keys, or without, does not find it.
//! - Plain bytes are in memory alone, taken from the engine's, and only while a reader has the file open. What a store's cache has on disk
//!   is encrypted.
//! - A module is bound to its file and place, but in files of DuckDB, which binds nothing. A module that does not open is an error
//!   which names file and column.
//! - Pages of AES_GCM_CTR_V1 have nothing that protects them. Where their headers have checksums, these are compared.
//! - No key is in an error, a log line, a plan or a file.
//!
//! # Evidence
//!
//! On one core ring opens AES-GCM at 9 GB/s, the crate `aes-gcm` at 1 GB/s; AES-CTR takes 6.7 GB/s. Three million rows of lineitem (100 MB,
//! Snappy) without the column cache, two threads, 2026-11-28: the four columns of Q6 in 64 ms instead of 50, half of all columns in 131 ms
//! instead of 97, with either algorithm.
//!
//! Source: Parquet's Encryption.md and parquet.thrift; Arrow's `parquet/encryption`; DuckDB's `parquet_crypto.cpp`.

mod bytes;
mod cipher;
mod footer;
mod keys;
mod pages;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use pystachio_plan::{Error, ErrorKind};

pub use self::bytes::FileHandle;
pub use self::keys::KeyDigest;
pub(crate) use self::{
    bytes::{DecryptedFile, DecryptedPin},
    footer::open_footer,
    keys::RoleKeys,
};
use self::{cipher::ModuleCipher, keys::KeyFault};
use crate::error::corrupt_file;

/// What a column takes of a layout, with its key as a cipher has it.
const COLUMN_BYTES: usize = 1024;

/// What a module is, as its AAD has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Module {
    Footer = 0,
    ColumnMetaData = 1,
    DataPage = 2,
    DictionaryPage = 3,
    DataPageHeader = 4,
    DictionaryPageHeader = 5,
    ColumnIndex = 6,
    OffsetIndex = 7,
}

/// A column chunk's place: the numbers of its row group and of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkPlace {
    row_group: i16,
    column: i16,
}

/// The part of the AAD that all modules of a file have; none in files of DuckDB, whose modules have no AAD.
#[derive(Debug)]
struct FileAad(Option<Vec<u8>>);

impl FileAad {
    /// The AAD of a module; of a data page with its number among those of its chunk.
    fn of(&self, module: Module, place: Option<ChunkPlace>, data_page: Option<i16>) -> Vec<u8> {
        let Some(of_file) = &self.0 else { return Vec::new() };
        let mut aad = of_file.clone();
        aad.push(module as u8);
        let numbers = place.map(|place| [place.row_group, place.column]).into_iter().flatten();
        numbers.chain(data_page).for_each(|number| aad.extend(number.to_le_bytes()));
        aad
    }
}

/// Where encrypted modules, and the plain chunks of other columns, are in the file.
#[derive(Debug)]
struct Region {
    start: u64,
    end: u64,
    content: Content,
}

/// What is in a region.
#[derive(Debug)]
enum Content {
    /// Bytes that are not encrypted.
    Plain,
    /// Pages.
    Chunk { cipher: Arc<ModuleCipher>, place: ChunkPlace, leaf: usize, has_dictionary: bool },
    /// An index of pages.
    Index { cipher: Arc<ModuleCipher>, place: ChunkPlace, leaf: usize, module: Module },
}

/// How a file is encrypted, as far as the keys of a request open it.
#[derive(Debug)]
pub(crate) struct EncryptedLayout {
    aad: FileAad,
    /// Whether pages are encrypted by AES-CTR.
    is_ctr: bool,
    /// By their starts, without overlaps.
    regions: Vec<Region>,
    /// The columns' paths, by leaf.
    paths: Vec<String>,
    /// Why leaves can't be read, of those that can't.
    locked: Vec<Option<KeyFault>>,
}

impl EncryptedLayout {
    /// What it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let regions = self.regions.capacity() * size_of::<Region>();
        let columns = self.paths.iter().map(|path| path.capacity() + COLUMN_BYTES).sum::<usize>();
        (regions + columns) as u64
    }

    /// Where the last region ends.
    pub(crate) fn end(&self) -> u64 {
        self.regions.last().map_or(0, |region| region.end)
    }

    /// The number of the region that a byte is in.
    fn region_at(&self, position: u64) -> Option<usize> {
        let place = self.regions.partition_point(|region| region.start <= position).checked_sub(1)?;
        (position < self.regions[place].end).then_some(place)
    }

    fn path_of(&self, leaf: usize) -> &str {
        self.paths.get(leaf).map_or("", String::as_str)
    }

    /// Whether the request has no key for a leaf.
    pub(crate) fn is_locked(&self, leaf: usize) -> bool {
        self.locked.get(leaf).is_some_and(Option::is_some)
    }

    /// The error of reading a leaf of a file, if it can't be read.
    pub(crate) fn refusal(&self, file: &Path, leaf: usize) -> Option<Error> {
        let fault = self.locked.get(leaf)?.as_ref()?;
        Some(self.key_error(file, leaf, fault))
    }

    fn key_error(&self, file: &Path, leaf: usize, fault: &KeyFault) -> Error {
        let (path, hint) = (self.path_of(leaf), fault.hint(Some(self.path_of(leaf))));
        match fault {
            KeyFault::Missing(_) | KeyFault::MissingFooter(_) => {
                let message = format!(
                    "column \"{path}\" of file \"{}\" is encrypted, and the user mapping of the role has no key for it",
                    file.display()
                );
                Error::new(ErrorKind::FilePermission, message).with_hint(hint)
            }
            KeyFault::Wrong => corrupt_file(
                file,
                &format!(
                    "column \"{path}\" can't be decrypted: the user mapping has another key than the one that it was encrypted with"
                ),
            )
            .with_hint(hint),
        }
    }
}
