//! Reads past the page cache, of whole blocks.
//!
//! Invariants: position, memory and length of a read are multiples of [`ALIGNMENT`]. Where io_uring is refused
//! or fails, pread reads.
//!
//! Deliberately absent: buffers and files registered with io_uring. Slots come from a pool that all readers
//! share, and a read of megabytes costs little beside.
#![expect(unsafe_code, reason = "a read under way writes memory that Rust can't watch")]

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
};

use io_uring::{IoUring, opcode, types::Fd};

/// What direct reads are aligned to, in the file and in memory: the largest logical block of usual storage.
pub(super) const ALIGNMENT: u64 = 4096;
/// Reads under way at once, of one reader: while one part is copied, storage has others to do.
pub(super) const READS_IN_FLIGHT: usize = 4;

/// A file that is open for direct reads.
pub(super) struct DirectFile {
    handle: File,
    ring: Option<Ring>,
}

/// A read that has begun, by pread when it is waited for.
pub(super) struct DirectRead {
    position: u64,
    memory: *mut u8,
    bytes: usize,
    /// The ring's number for it, if it has it.
    number: Option<u64>,
}

impl DirectFile {
    /// The same file, for direct reads.
    ///
    /// # Errors
    ///
    /// Its file system has none.
    pub(super) fn open(handle: &File, with_ring: bool) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let handle = File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        Ok(Self { handle, ring: if with_ring { Ring::open().ok() } else { None } })
    }

    /// Whether io_uring reads.
    pub(super) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Begins to fill memory from a place in the file.
    ///
    /// # Safety
    ///
    /// The memory is the read's alone until it is waited for, or [`DirectFile::abandon`] says so.
    pub(super) unsafe fn begin(&mut self, position: u64, memory: *mut u8, bytes: usize) -> DirectRead {
        let is_aligned = position.is_multiple_of(ALIGNMENT) && bytes.is_multiple_of(ALIGNMENT as usize);
        assert!(is_aligned && (memory as u64).is_multiple_of(ALIGNMENT), "a direct read of whole blocks");
        let number = match &mut self.ring {
            // SAFETY: the caller keeps the memory for the read.
            Some(ring) => unsafe { ring.submit(&self.handle, position, memory, bytes) },
            None => None,
        };
        DirectRead { position, memory, bytes, number }
    }

    /// Waits for a read. Says how many bytes came: fewer than were wanted at the end of the file only.
    ///
    /// # Errors
    ///
    /// Those of pread.
    pub(super) fn wait(&mut self, read: DirectRead) -> io::Result<usize> {
        let mut done = 0;
        if let (Some(ring), Some(number)) = (&mut self.ring, read.number) {
            // What io_uring could not read, pread tries.
            done = usize::try_from(ring.wait(number)?).unwrap_or(0);
        }
        // SAFETY: the caller that began the read keeps this memory, and the kernel has finished with it.
        let memory = unsafe { std::slice::from_raw_parts_mut(read.memory, read.bytes) };
        self.read_rest(read.position, memory, done)
    }

    /// Fills memory from a place in the file, and waits. Says how many bytes came, as [`DirectFile::wait`] does.
    ///
    /// # Errors
    ///
    /// Those of pread.
    pub(super) fn read(&self, position: u64, memory: &mut [u8]) -> io::Result<usize> {
        self.read_rest(position, memory, 0)
    }

    /// [`DirectFile::read`], where the first bytes are `done`.
    fn read_rest(&self, position: u64, memory: &mut [u8], mut done: usize) -> io::Result<usize> {
        while done < memory.len() {
            done -= done % ALIGNMENT as usize;
            let wanted = &mut memory[done..];
            match self.handle.read_at(wanted, position + done as u64) {
                Ok(0) => break,
                // The last block of a file is short.
                Ok(count) if !count.is_multiple_of(ALIGNMENT as usize) => return Ok(done + count),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Waits for all reads that were begun. Returns whether they have ended.
    pub(super) fn abandon(&mut self) -> bool {
        self.ring.as_mut().is_none_or(|ring| ring.wait_all().is_ok())
    }
}

/// Whether the kernel lets this process use io_uring, or why not.
pub(super) fn ring_refusal() -> Option<io::Error> {
    Ring::open().err()
}

/// An io_uring of one reader.
struct Ring {
    ring: IoUring,
    last_number: u64,
    in_flight: usize,
    /// Results that were not taken yet.
    results: BTreeMap<u64, i32>,
}

impl Ring {
    fn open() -> io::Result<Self> {
        let ring = IoUring::new(READS_IN_FLIGHT as u32)?;
        Ok(Self { ring, last_number: 0, in_flight: 0, results: BTreeMap::new() })
    }

    /// Hands a read to the kernel; `None` if it takes no more.
    ///
    /// # Safety
    ///
    /// The memory is the read's alone until the read is waited for.
    unsafe fn submit(&mut self, file: &File, position: u64, memory: *mut u8, bytes: usize) -> Option<u64> {
        let number = self.last_number + 1;
        let bytes = u32::try_from(bytes).ok()?;
        let read = opcode::Read::new(Fd(file.as_raw_fd()), memory, bytes).offset(position).build();
        // SAFETY: the caller keeps the memory, and the file outlives the ring, which is dropped with it.
        unsafe { self.ring.submission().push(&read.user_data(number)) }.ok()?;
        self.last_number = number;
        self.in_flight += 1;
        // What the kernel does not take now, it takes when it is waited for.
        let _ = self.ring.submit();
        Some(number)
    }

    /// A read's result: bytes, or an error's number below zero.
    fn wait(&mut self, number: u64) -> io::Result<i32> {
        loop {
            self.collect();
            if let Some(result) = self.results.remove(&number) {
                return Ok(result);
            }
            self.enter()?;
        }
    }

    fn wait_all(&mut self) -> io::Result<()> {
        loop {
            self.collect();
            if self.in_flight == 0 {
                self.results.clear();
                return Ok(());
            }
            self.enter()?;
        }
    }

    fn enter(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                std::thread::yield_now();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn collect(&mut self) {
        for entry in self.ring.completion() {
            self.in_flight -= 1;
            self.results.insert(entry.user_data(), entry.result());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.wait_all();
    }
}
