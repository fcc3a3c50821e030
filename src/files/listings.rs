//! What folders hold, read once for as long as they stay as they are.
//!
//! Invariants: a listing is given only if its folder is the same, and was changed when it was last. One of a folder that was
//! changed just before it was read is not kept: the file system's clock may be too coarse to tell the next change. Neither is
//! one with a link, whose end may change while the folder does not.
//!
//! Deliberately absent: which of the entries are files of a table (`file_set.rs`), and what files are (`files.rs`).

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pystachio_engine::locking::lock_whole;
use pystachio_plan::Result;

use crate::error::from_io;

/// Entries of all kept listings: some ten megabytes.
const ENTRIES_MAX: usize = 100_000;
/// How long before it is read a folder must have been changed last for its listing to be kept. File systems count in seconds at
/// the worst.
const SETTLED: Duration = Duration::from_secs(3);

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FolderEntry {
    /// Within the folder.
    pub name: OsString,
    /// Whether it is a folder, or a link that leads to one.
    pub is_folder: bool,
}

/// A folder, and when it was changed: its content, and all else of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderState {
    device: u64,
    inode: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl FolderState {
    fn at(folder: &Path) -> Result<Self> {
        let metadata = fs::metadata(folder).map_err(|error| from_io(folder, "read", &error))?;
        let nanoseconds = |seconds: i64, part: i64| i128::from(seconds) * 1_000_000_000 + i128::from(part);
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Whether a later change shows in the state.
    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let last = self.modified_ns.max(self.changed_ns);
        i128::try_from(now).is_ok_and(|now| last + SETTLED.as_nanos() as i128 <= now)
    }
}

#[derive(Debug)]
struct KeptListing {
    state: FolderState,
    entries: Arc<[FolderEntry]>,
}

#[derive(Debug, Default)]
struct Kept {
    by_path: HashMap<PathBuf, KeptListing>,
    entry_count: usize,
}

/// Lists folders.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<Kept>);

impl Listings {
    /// The entries of a folder, by their names. Blocks.
    ///
    /// # Errors
    ///
    /// Those of the file system, naming the folder.
    pub(super) fn entries(&self, folder: &Path) -> Result<Arc<[FolderEntry]>> {
        // Before the folder is read: a change meanwhile makes it another one.
        let state = FolderState::at(folder)?;
        if let Some(known) = lock_whole(&self.0).get(folder, state) {
            return Ok(known);
        }
        let is_settled = state.is_settled(SystemTime::now());
        let (entries, has_links) = read(folder)?;
        let entries: Arc<[FolderEntry]> = entries.into();
        if is_settled && !has_links {
            lock_whole(&self.0).keep(folder, KeptListing { state, entries: entries.clone() });
        }
        Ok(entries)
    }
}

impl Kept {
    fn get(&self, folder: &Path, state: FolderState) -> Option<Arc<[FolderEntry]>> {
        let known = self.by_path.get(folder).filter(|known| known.state == state)?;
        Some(known.entries.clone())
    }

    /// Keeps a listing. Where there are too many entries, those before it go.
    fn keep(&mut self, folder: &Path, listing: KeptListing) {
        // Of a folder without entries too.
        let count = listing.entries.len() + 1;
        if count > ENTRIES_MAX {
            return;
        }
        if self.entry_count + count > ENTRIES_MAX {
            *self = Self::default();
        }
        self.entry_count += count;
        if let Some(before) = self.by_path.insert(folder.to_owned(), listing) {
            self.entry_count -= before.entries.len() + 1;
        }
    }
}

/// Whether a name marks a file or folder of other programs that is no part of a table.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_'))
}

/// The entries of a folder, and whether links are among them.
fn read(folder: &Path) -> Result<(Vec<FolderEntry>, bool)> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let mut has_links = false;
    let mut found = Vec::new();
    for entry in entries.map_err(|error| from_io(folder, "read folder", &error))? {
        let name = entry.file_name();
        // The folder says what most entries are. What a link leads to, the link's end says.
        let is_folder = match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            // A table skips it, wherever it leads to.
            _ if is_hidden(&name) => false,
            _ => {
                has_links = true;
                let path = entry.path();
                fs::metadata(&path).map_err(|error| from_io(&path, "read", &error))?.is_dir()
            }
        };
        found.push(FolderEntry { name, is_folder });
    }
    found.sort();
    Ok((found, has_links))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::symlink};

    use super::*;

    fn names(listings: &Listings, folder: &Path) -> Vec<(String, bool)> {
        let shown = |entry: &FolderEntry| (entry.name.to_string_lossy().into_owned(), entry.is_folder);
        listings.entries(folder).unwrap().iter().map(shown).collect()
    }

    /// Makes a folder look as if it had been changed long ago: its content, at least.
    fn settle(listings: &Listings, folder: &Path) {
        let state = FolderState::at(folder).unwrap();
        let (entries, has_links) = read(folder).unwrap();
        assert!(!has_links);
        lock_whole(&listings.0).keep(folder, KeptListing { state, entries: entries.into() });
    }

    #[test]
    fn a_folder_is_read_again_once_it_has_changed() {
        let (folder, listings) = (tempfile::tempdir().unwrap(), Listings::default());
        let path = folder.path();
        File::create(path.join("a")).unwrap();
        fs::create_dir(path.join("b")).unwrap();
        settle(&listings, path);
        let first = listings.entries(path).unwrap();
        assert!(Arc::ptr_eq(&first, &listings.entries(path).unwrap()));
        assert_eq!(names(&listings, path), [("a".to_owned(), false), ("b".to_owned(), true)]);
        // As a change of its rights would.
        File::open(path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        assert!(!Arc::ptr_eq(&first, &listings.entries(path).unwrap()));
        fs::remove_file(path.join("a")).unwrap();
        assert_eq!(names(&listings, path), [("b".to_owned(), true)]);
        fs::remove_dir_all(path).unwrap();
        assert!(listings.entries(path).is_err());
    }

    #[test]
    fn what_may_change_unseen_is_not_kept() {
        let (folder, listings) = (tempfile::tempdir().unwrap(), Listings::default());
        let path = folder.path();
        let is_kept = |folder: &Path| lock_whole(&listings.0).by_path.contains_key(folder);
        // It was made just now.
        listings.entries(path).unwrap();
        assert!(!is_kept(path));
        let state = FolderState::at(path).unwrap();
        let last = UNIX_EPOCH + Duration::from_nanos(state.changed_ns as u64);
        assert!(!state.is_settled(last) && !state.is_settled(UNIX_EPOCH));
        assert!(state.is_settled(last + SETTLED));
        symlink("/nowhere", path.join(".link")).unwrap();
        assert!(!read(path).unwrap().1);
        symlink("..", path.join("link")).unwrap();
        assert!(read(path).unwrap().1);
        symlink("/nowhere", path.join("lost")).unwrap();
        assert!(listings.entries(path).unwrap_err().message.contains("lost"));
    }

    #[test]
    fn listings_beyond_the_limit_are_forgotten() {
        let state = FolderState { device: 1, inode: 2, modified_ns: 3, changed_ns: 4 };
        let listing = |count: usize| {
            let entry = FolderEntry { name: "a".into(), is_folder: false };
            KeptListing { state, entries: vec![entry; count].into() }
        };
        let mut kept = Kept::default();
        kept.keep(Path::new("/a"), listing(ENTRIES_MAX - 1));
        kept.keep(Path::new("/a"), listing(ENTRIES_MAX / 2));
        kept.keep(Path::new("/b"), listing(9));
        let is_kept = |kept: &Kept, path: &str| kept.get(Path::new(path), state).is_some();
        // The first one was forgotten for its successor.
        assert!(is_kept(&kept, "/a") && is_kept(&kept, "/b"));
        kept.keep(Path::new("/c"), listing(ENTRIES_MAX));
        assert!(is_kept(&kept, "/a") && !is_kept(&kept, "/c"));
        kept.keep(Path::new("/c"), listing(ENTRIES_MAX / 2));
        assert!(!is_kept(&kept, "/a") && is_kept(&kept, "/c"));
        assert_eq!(kept.entry_count, ENTRIES_MAX / 2 + 1);
    }
}
