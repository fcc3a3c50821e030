//! How bytes get from files into memory.
//!
//! - the page cache: what was read before comes from memory, and what comes from storage stays there
//! - direct: past the page cache (O_DIRECT), for tables that would only drive everything else out of it
//!
//! Invariants: a direct reader's file has the identity of the handle that it was made from. A file system that
//! refuses direct reads is read through the page cache.
//!
//! Deliberately absent: which memory the bytes are for.
#![expect(unsafe_code, reason = "memory aligned for direct reads, and hints to the page cache, are libc's")]

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    fs::File,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    sync::Arc,
};

use pystachio_plan::{Result, StoragePath};

use super::{TableFile, from_io};

/// What direct reads are aligned to, in the file and in memory: the largest logical block of usual storage.
const ALIGNMENT: u64 = 4096;
/// Bytes of one direct read: large enough for storage to give its full bandwidth.
const DIRECT_BYTES: usize = 4 << 20;

/// Bytes of memory that the host can give without swapping; all there is if it does not tell.
///
/// Source: MemAvailable of /proc/meminfo.
pub fn memory_available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |kilobytes| kilobytes.saturating_mul(1024))
}

/// A reader of one file, of one thread.
pub struct FileReader<'a> {
    file: &'a TableFile,
    handle: Arc<File>,
    direct: Option<Direct>,
}

struct Direct {
    handle: File,
    buffer: AlignedBuffer,
}

impl<'a> FileReader<'a> {
    /// A reader of a file's present content. `Auto` is the page cache: whoever knows how much is read decides.
    ///
    /// # Errors
    ///
    /// As of [`TableFile::handle`].
    pub fn open(file: &'a TableFile, path: StoragePath) -> Result<Self> {
        let handle = file.handle()?;
        let direct = match path {
            StoragePath::Direct => open_direct(&handle),
            StoragePath::Auto | StoragePath::PageCache => None,
        };
        Ok(Self { file, handle, direct })
    }

    /// The way that it takes.
    pub fn path(&self) -> StoragePath {
        if self.direct.is_some() { StoragePath::Direct } else { StoragePath::PageCache }
    }

    /// The open file.
    pub fn handle(&self) -> &File {
        &self.handle
    }

    /// Says that a range will be read soon, so that storage gets large requests and many at once.
    pub fn announce(&self, offset: u64, range_bytes: u64) {
        if self.direct.is_none() {
            let (offset, range_bytes) = (offset as libc::off_t, range_bytes as libc::off_t);
            // A hint: without it the reads are as right.
            // SAFETY: the file is open; the call touches no memory of ours.
            let _ = unsafe {
                libc::posix_fadvise(self.handle.as_raw_fd(), offset, range_bytes, libc::POSIX_FADV_WILLNEED)
            };
        }
    }

    /// Fills memory from a place in the file. Blocks.
    ///
    /// # Errors
    ///
    /// `FileAccess`.
    pub fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<()> {
        let read = match &mut self.direct {
            None => self.handle.read_exact_at(target, offset),
            Some(direct) => direct.read(offset, target),
        };
        read.map_err(|error| from_io(&self.file.footer.path, "read", &error))
    }
}

/// The same file, opened for direct reads; `None` where its file system has none.
fn open_direct(handle: &File) -> Option<Direct> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let handle = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).ok()?;
    Some(Direct { handle, buffer: AlignedBuffer::new() })
}

impl Direct {
    fn read(&mut self, offset: u64, target: &mut [u8]) -> std::io::Result<()> {
        let mut done = 0;
        while done < target.len() {
            let position = offset + done as u64;
            let skipped = (position % ALIGNMENT) as usize;
            let wanted =
                (skipped + target.len() - done).next_multiple_of(ALIGNMENT as usize).min(DIRECT_BYTES);
            let buffer = &mut self.buffer.bytes()[..wanted];
            // The last block of a file is short.
            let read = self.handle.read_at(buffer, position - skipped as u64)?;
            let count = read.saturating_sub(skipped).min(target.len() - done);
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            target[done..done + count].copy_from_slice(&buffer[skipped..skipped + count]);
            done += count;
        }
        Ok(())
    }
}

/// Memory for direct reads.
struct AlignedBuffer {
    address: *mut u8,
}

// SAFETY: the memory is this value's alone.
unsafe impl Send for AlignedBuffer {}

impl AlignedBuffer {
    const LAYOUT: Layout = match Layout::from_size_align(DIRECT_BYTES, ALIGNMENT as usize) {
        Ok(layout) => layout,
        Err(_) => panic!("a size that is no multiple of its alignment"),
    };

    fn new() -> Self {
        // SAFETY: the layout has a size above zero.
        let address = unsafe { alloc(Self::LAYOUT) };
        if address.is_null() {
            handle_alloc_error(Self::LAYOUT);
        }
        // SAFETY: it has just been allocated with this size.
        unsafe { address.write_bytes(0, DIRECT_BYTES) };
        Self { address }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated with this size, initialised, and borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.address, DIRECT_BYTES) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.address, Self::LAYOUT) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use pystachio_plan::FileSet;

    use super::*;
    use crate::storage::FileCatalog;

    /// A Parquet file of some megabytes that is no multiple of a block.
    fn table_file() -> (tempfile::TempDir, TableFile, Vec<u8>) {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../regress/data/t1.parquet");
        let parquet = std::fs::read(source).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        // What lies between the magic and the first page is nobody's.
        let padding: Vec<u8> = (0..9_000_001_u32).map(|place| (place * 31 % 251) as u8).collect();
        let bytes = [&b"PAR1"[..], &padding, &parquet].concat();
        std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        let files = FileSet { paths: vec![path.display().to_string()] };
        let file = FileCatalog::default().open_all(&files).unwrap().remove(0);
        (folder, file, bytes)
    }

    #[test]
    fn every_path_gives_the_same_bytes() {
        let (_folder, file, bytes) = table_file();
        for path in [StoragePath::Auto, StoragePath::PageCache, StoragePath::Direct] {
            let mut reader = FileReader::open(&file, path).unwrap();
            for (offset, length) in [(0, 1), (4095, 2), (4096, 4096), (17, 5_000_000), (bytes.len() - 9, 9)] {
                let mut target = vec![0; length];
                reader.announce(offset as u64, length as u64);
                reader.read(offset as u64, &mut target).unwrap();
                assert_eq!(target, bytes[offset..offset + length], "{path:?} {offset} {length}");
            }
            let mut beyond = vec![0; 10];
            reader.read(bytes.len() as u64 - 9, &mut beyond).unwrap_err();
        }
    }
}
