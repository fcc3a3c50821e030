//! Spill files: where an engine's queries have them, how much they may hold, and a query's file without a name.
//!
//! ```text
//! Spilling (an engine) ── its folder, the option `spill_limit`
//!    └ QuerySpill (a query) ── the folder of its session's tablespace, `temp_file_limit`
//!         └ SpillSpace ─ SpillFile ─ Extent: results of clients that stopped, rows of a device
//! ```
//!
//! Invariants: bytes of a file count in both limits from before they are written until the file is gone.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use pystachio_plan::{Error, ErrorKind, Result, SpillRequest, system_reason};

use crate::{locking::lock, spill_folder::SpillFolder};

/// Makes the names of a process's files unique while the files have names.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Where an engine's queries spill to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spilling {
    shared: Arc<SpillingInner>,
}

#[derive(Debug)]
struct SpillingInner {
    /// The folder for queries that have none of their own.
    directory: PathBuf,
    used: Arc<SpillUse>,
    /// Folders of this process in the directories that queries named. Each is removed with its last query.
    folders: Mutex<HashMap<PathBuf, Weak<SpillFolder>>>,
}

/// Where one query spills to, and how much it may. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QuerySpill {
    spilling: Spilling,
    /// The directory that the query named.
    wanted: Option<PathBuf>,
    /// This process's folder there, once it is needed; none if the engine's own serves.
    folder: Arc<OnceLock<Option<Arc<SpillFolder>>>>,
    query: Arc<SpillUse>,
}

/// Bytes in spill files, and how many there may be.
#[derive(Debug)]
struct SpillUse {
    used_bytes: AtomicU64,
    /// All that were ever counted.
    taken_bytes: AtomicU64,
    bytes_max: Option<u64>,
}

impl SpillUse {
    fn new(bytes_max: Option<u64>) -> Arc<Self> {
        Arc::new(Self { used_bytes: AtomicU64::new(0), taken_bytes: AtomicU64::new(0), bytes_max })
    }

    /// Counts more bytes; false if there would be too many.
    fn take(&self, bytes: u64) -> bool {
        let bytes_max = self.bytes_max.unwrap_or(u64::MAX);
        let added = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= bytes_max);
        let is_within = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok();
        self.taken_bytes.fetch_add(if is_within { bytes } else { 0 }, Ordering::Relaxed);
        is_within
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Spilling {
    /// Spilling to a folder that is there, without a limit.
    pub fn to(directory: &Path) -> Self {
        Self::within(directory, None)
    }

    /// Spilling to a folder that is there; all queries together at most so many bytes.
    pub fn within(directory: &Path, bytes_max: Option<u64>) -> Self {
        let (directory, used, folders) = (directory.to_owned(), SpillUse::new(bytes_max), Mutex::default());
        Self { shared: Arc::new(SpillingInner { directory, used, folders }) }
    }

    /// The folder for queries that have none of their own.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Bytes that spill files hold now.
    pub fn used_bytes(&self) -> u64 {
        self.shared.used.used_bytes.load(Ordering::Relaxed)
    }

    /// Where a query spills to.
    pub fn of_query(&self, request: &SpillRequest) -> QuerySpill {
        QuerySpill {
            spilling: self.clone(),
            wanted: request.directory.as_ref().map(PathBuf::from),
            folder: Arc::default(),
            query: SpillUse::new(request.bytes_max),
        }
    }

    /// This process's folder in a directory; `None` if it can't be made, or if the engine's own is there.
    fn folder_in(&self, directory: &Path) -> Option<Arc<SpillFolder>> {
        if self.shared.directory.parent() == Some(directory) {
            return None;
        }
        let mut folders = lock(&self.shared.folders);
        if let Some(folder) = folders.get(directory).and_then(Weak::upgrade) {
            return Some(folder);
        }
        match SpillFolder::create(directory) {
            Ok(folder) => {
                let folder = Arc::new(folder);
                folders.insert(directory.to_owned(), Arc::downgrade(&folder));
                Some(folder)
            }
            Err(error) => {
                let path = directory.display();
                tracing::warn!(%path, %error, "spill files go to the engine's own folder instead");
                None
            }
        }
    }
}

impl QuerySpill {
    /// The folder for its files; makes it if need be.
    pub fn directory(&self) -> &Path {
        let find = || self.spilling.folder_in(self.wanted.as_deref()?);
        match self.folder.get_or_init(find) {
            Some(folder) => folder.path(),
            None => &self.spilling.shared.directory,
        }
    }

    /// Bytes that its files have held, those that are gone included.
    pub fn taken_bytes(&self) -> u64 {
        self.query.taken_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that are about to be written.
    ///
    /// # Errors
    ///
    /// `SpillLimit`, naming the limit.
    pub fn take(&self, bytes: u64) -> Result<()> {
        let refused = |message: String, hint: &str| {
            Err(Error::new(ErrorKind::SpillLimit, message).with_hint(hint.to_owned()))
        };
        if !self.query.take(bytes) {
            let kilobytes = self.query.bytes_max.unwrap_or(u64::MAX) / 1024;
            return refused(
                format!("temporary file size exceeds temp_file_limit ({kilobytes}kB)"),
                "Raise temp_file_limit, or the server option memory, so that less is spilled.",
            );
        }
        if !self.spilling.shared.used.take(bytes) {
            self.query.give_back(bytes);
            let megabytes = self.spilling.shared.used.bytes_max.unwrap_or(u64::MAX) >> 20;
            return refused(
                format!("spill files of the engine exceed the server option spill_limit ({megabytes} MB)"),
                "Raise spill_limit, raise memory, so that less is spilled, or run fewer queries at once.",
            );
        }
        Ok(())
    }

    /// Counts bytes as gone.
    pub fn give_back(&self, bytes: u64) {
        self.query.give_back(bytes);
        self.spilling.shared.used.give_back(bytes);
    }
}

/// A query's file. Freed extents are used again.
pub struct SpillFile {
    file: File,
    spill: QuerySpill,
    space: Mutex<Space>,
}

#[derive(Default)]
struct Space {
    end: u64,
    /// The file's length, which counts as used.
    file_bytes: u64,
    /// Offset and bytes of each free extent before the end, by offset. Adjacent ones are merged.
    free: Vec<(u64, u64)>,
}

/// Bytes of a file that are in use.
pub struct Extent {
    file: Arc<SpillFile>,
    offset: u64,
    bytes: u64,
}

/// A query's space on disk for bytes of the host. The file is made at the first write.
pub struct SpillSpace {
    spill: QuerySpill,
    file: Mutex<Option<Arc<SpillFile>>>,
    written_bytes: AtomicU64,
}

/// Bytes of the host in a query's file. Given back when it is dropped.
pub struct KeptBytes {
    extent: Extent,
    bytes: usize,
}

impl KeptBytes {
    /// The bytes.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut target = vec![0; self.bytes];
        self.extent.read(0, &mut target)?;
        Ok(target)
    }
}

impl SpillSpace {
    /// Space in a file of a query.
    pub fn new(spill: QuerySpill) -> Arc<Self> {
        Arc::new(Self { spill, file: Mutex::default(), written_bytes: AtomicU64::new(0) })
    }

    /// Space in a file that is open already.
    pub fn over(file: Arc<SpillFile>) -> Arc<Self> {
        let spill = file.spill.clone();
        Arc::new(Self { spill, file: Mutex::new(Some(file)), written_bytes: AtomicU64::new(0) })
    }

    /// Space that refuses every write.
    #[cfg(test)]
    pub(crate) fn on_full_disk() -> Arc<Self> {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        Self::over(SpillFile::over(
            full,
            Spilling::to(Path::new("/some/folder")).of_query(&SpillRequest::default()),
        ))
    }

    /// Writes bytes of the host to the file.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory; `SpillLimit`.
    pub fn keep(&self, bytes: &[u8]) -> Result<KeptBytes> {
        let extent = self.file()?.extent(bytes.len() as u64)?;
        extent.write(0, bytes)?;
        self.note_written(bytes.len() as u64);
        Ok(KeptBytes { extent, bytes: bytes.len() })
    }

    /// Where the query spills to.
    pub fn spill(&self) -> &QuerySpill {
        &self.spill
    }

    /// The sum of all bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that were written elsewhere.
    pub fn note_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The file; makes it if there is none yet.
    ///
    /// # Errors
    ///
    /// As of [`SpillFile::create`].
    pub fn file(&self) -> Result<Arc<SpillFile>> {
        let mut file = lock(&self.file);
        if let Some(file) = file.as_ref() {
            return Ok(file.clone());
        }
        let made = SpillFile::create(&self.spill)?;
        *file = Some(made.clone());
        Ok(made)
    }
}

impl SpillFile {
    /// Makes a query's file and removes its name before returning.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory.
    pub fn create(spill: &QuerySpill) -> Result<Arc<Self>> {
        let directory = spill.directory();
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("rows-{}-{number}", std::process::id()));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(|error| failed(directory, "made", &error))?;
        std::fs::remove_file(&path).map_err(|error| failed(directory, "unlinked", &error))?;
        Ok(Self::over(file, spill.clone()))
    }

    /// A query's file that is open already.
    pub fn over(file: File, spill: QuerySpill) -> Arc<Self> {
        Arc::new(Self { file, spill, space: Mutex::default() })
    }

    /// Allocates an extent of so many bytes.
    ///
    /// # Errors
    ///
    /// `SpillLimit`, if the file would become too long.
    pub fn extent(self: &Arc<Self>, bytes: u64) -> Result<Extent> {
        let mut space = lock(&self.space);
        let found = space.free.iter().position(|(_, free)| *free >= bytes);
        let offset = match found {
            Some(place) => {
                let (offset, free) = space.free[place];
                if free == bytes {
                    space.free.remove(place);
                } else {
                    space.free[place] = (offset + bytes, free - bytes);
                }
                offset
            }
            None => {
                let offset = space.end;
                let longer = (offset + bytes).saturating_sub(space.file_bytes);
                self.spill.take(longer)?;
                space.file_bytes += longer;
                space.end += bytes;
                offset
            }
        };
        Ok(Extent { file: self.clone(), offset, bytes })
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.spill.give_back(lock(&self.space).file_bytes);
    }
}

impl Extent {
    /// Writes bytes at an offset within the extent.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory.
    pub fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        assert!(offset + source.len() as u64 <= self.bytes, "bytes of an extent");
        let written = self.file.file.write_all_at(source, self.offset + offset);
        written.map_err(|error| failed(self.file.spill.directory(), "written", &error))
    }

    /// Reads bytes at an offset within the extent.
    ///
    /// # Errors
    ///
    /// As of [`Extent::write`].
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        assert!(offset + target.len() as u64 <= self.bytes, "bytes of an extent");
        let read = self.file.file.read_exact_at(target, self.offset + offset);
        read.map_err(|error| failed(self.file.spill.directory(), "read", &error))
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut space = lock(&self.file.space);
        space.release(self.offset, self.bytes);
    }
}

impl Space {
    fn release(&mut self, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let place = self.free.partition_point(|(known, _)| *known < offset);
        self.free.insert(place, (offset, bytes));
        if let Some((next, next_bytes)) = self.free.get(place + 1).copied()
            && offset + bytes == next
        {
            self.free[place].1 += next_bytes;
            self.free.remove(place + 1);
        }
        if place > 0 && self.free[place - 1].0 + self.free[place - 1].1 == offset {
            self.free[place - 1].1 += self.free[place].1;
            self.free.remove(place);
        }
        if let Some((last, last_bytes)) = self.free.last().copied()
            && last + last_bytes == self.end
        {
            self.end = last;
            self.free.pop();
        }
    }
}

fn failed(directory: &Path, action: &str, error: &io::Error) -> Error {
    let (directory, reason) = (directory.display(), system_reason(error));
    Error::new(
        ErrorKind::FileAccess,
        format!("spill file can't be {action}: directory={directory}: {reason}"),
    )
    .with_hint("Make room there, raise the server option memory, or run fewer queries at once.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(directory: &Path, bytes_max: Option<u64>) -> QuerySpill {
        Spilling::to(directory).of_query(&SpillRequest { directory: None, bytes_max })
    }

    #[test]
    fn a_file_that_would_be_too_long_is_an_error_and_what_is_gone_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let spilling = Spilling::within(folder.path(), Some(5000));
        let request = SpillRequest { directory: None, bytes_max: Some(4096) };
        let first = SpillSpace::new(spilling.of_query(&request));
        let kept = first.keep(&[1; 3000]).unwrap();
        let error = first.keep(&[1; 1097]).map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::SpillLimit);
        assert_eq!(error.message, "temporary file size exceeds temp_file_limit (4kB)");
        // The query itself may have more.
        let second = SpillSpace::new(spilling.of_query(&request));
        let error = second.keep(&[1; 2001]).map(drop).unwrap_err();
        assert!(error.message.contains("spill_limit"), "{error}");
        assert_eq!(spilling.used_bytes(), 3000);
        // Freed bytes of the file are used again.
        drop(kept);
        let _kept = first.keep(&[1; 4096]).unwrap();
        assert_eq!(spilling.used_bytes(), 4096);
        drop((first, _kept));
        assert_eq!(spilling.used_bytes(), 0);
        second.keep(&[1; 2001]).unwrap();
    }

    #[test]
    fn queries_spill_where_they_ask_for_and_leave_nothing_there() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let spilling = Spilling::to(own.path());
        let asked = |path: &Path| {
            let directory = Some(path.to_str().unwrap().to_owned());
            spilling.of_query(&SpillRequest { directory, bytes_max: None })
        };
        let [first, second] = [asked(other.path()), asked(other.path())];
        assert_eq!(first.directory(), second.directory());
        assert_eq!(first.directory().parent(), Some(other.path()));
        SpillSpace::new(first.clone()).keep(b"rows").unwrap();
        drop(first);
        assert!(second.directory().is_dir());
        drop(second);
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
        assert_eq!(asked(Path::new("/nowhere/at/all")).directory(), own.path());
    }

    #[test]
    fn freed_extents_are_used_again_and_neighbours_become_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = SpillFile::create(&query(folder.path(), None)).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has a name");
        let extents: Vec<Extent> = (0..4).map(|_| file.extent(100).unwrap()).collect();
        extents[3].write(0, b"last").unwrap();
        let [a, b, c, d]: [Extent; 4] = extents.try_into().ok().unwrap();
        drop(a);
        drop(c);
        drop(b);
        let whole = file.extent(300).unwrap();
        assert_eq!(whole.offset, 0);
        let mut text = [0; 4];
        d.read(0, &mut text).unwrap();
        assert_eq!(&text, b"last");
        drop((whole, d));
        assert_eq!(file.space.lock().unwrap().end, 0);
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_it() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let file = SpillFile::over(full, query(Path::new("/some/folder"), None));
        let error = file.extent(10).unwrap().write(0, b"x").unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileAccess);
        assert!(error.message.contains("directory=/some/folder"), "{error}");
        let error = SpillFile::create(&query(Path::new("/nowhere/at/all"), None)).map(|_| ()).unwrap_err();
        assert!(error.message.contains("/nowhere/at/all"), "{error}");
    }
}
