//! A query's spill file on the host's disk: a file without a name, and its extents in use.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use pystachio_plan::{Error, ErrorKind, Result, system_reason};

use crate::locking::lock;

/// Makes the names of a process's files unique while the files have names.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A query's file. Freed extents are used again.
pub struct SpillFile {
    file: File,
    /// For messages.
    directory: PathBuf,
    space: Mutex<Space>,
}

#[derive(Default)]
struct Space {
    end: u64,
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
    directory: PathBuf,
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
    /// Space in a file of this directory.
    pub fn in_directory(directory: &Path) -> Arc<Self> {
        let (file, written_bytes) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { directory: directory.to_owned(), file, written_bytes })
    }

    /// Space in a file that is open already.
    pub fn over(file: Arc<SpillFile>) -> Arc<Self> {
        let directory = file.directory.clone();
        Arc::new(Self { directory, file: Mutex::new(Some(file)), written_bytes: AtomicU64::new(0) })
    }

    /// Space that refuses every write.
    #[cfg(test)]
    pub(crate) fn on_full_disk() -> Arc<Self> {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        Self::over(SpillFile::over(full, Path::new("/some/folder")))
    }

    /// Writes bytes of the host to the file.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory.
    pub fn keep(&self, bytes: &[u8]) -> Result<KeptBytes> {
        let extent = self.file()?.extent(bytes.len() as u64);
        extent.write(0, bytes)?;
        self.note_written(bytes.len() as u64);
        Ok(KeptBytes { extent, bytes: bytes.len() })
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
        let made = SpillFile::create(&self.directory)?;
        *file = Some(made.clone());
        Ok(made)
    }
}

impl SpillFile {
    /// Makes a file in `directory` and removes its name before returning.
    ///
    /// # Errors
    ///
    /// `FileAccess`, naming the directory.
    pub fn create(directory: &Path) -> Result<Arc<Self>> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("rows-{}-{number}", std::process::id()));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(|error| failed(directory, "made", &error))?;
        std::fs::remove_file(&path).map_err(|error| failed(directory, "unlinked", &error))?;
        Ok(Self::over(file, directory))
    }

    /// A file that is open already, of `directory` in messages.
    pub fn over(file: File, directory: &Path) -> Arc<Self> {
        Arc::new(Self { file, directory: directory.to_owned(), space: Mutex::default() })
    }

    /// Allocates an extent of so many bytes.
    pub fn extent(self: &Arc<Self>, bytes: u64) -> Extent {
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
                space.end += bytes;
                offset
            }
        };
        Extent { file: self.clone(), offset, bytes }
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
        written.map_err(|error| failed(&self.file.directory, "written", &error))
    }

    /// Reads bytes at an offset within the extent.
    ///
    /// # Errors
    ///
    /// As of [`Extent::write`].
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        assert!(offset + target.len() as u64 <= self.bytes, "bytes of an extent");
        let read = self.file.file.read_exact_at(target, self.offset + offset);
        read.map_err(|error| failed(&self.file.directory, "read", &error))
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

    #[test]
    fn freed_extents_are_used_again_and_neighbours_become_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = SpillFile::create(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has a name");
        let extents: Vec<Extent> = (0..4).map(|_| file.extent(100)).collect();
        extents[3].write(0, b"last").unwrap();
        let [a, b, c, d]: [Extent; 4] = extents.try_into().ok().unwrap();
        drop(a);
        drop(c);
        drop(b);
        let whole = file.extent(300);
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
        let file = SpillFile::over(full, Path::new("/some/folder"));
        let error = file.extent(10).write(0, b"x").unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileAccess);
        assert!(error.message.contains("directory=/some/folder"), "{error}");
        let error = SpillFile::create(Path::new("/nowhere/at/all")).map(|_| ()).unwrap_err();
        assert!(error.message.contains("/nowhere/at/all"), "{error}");
    }
}
