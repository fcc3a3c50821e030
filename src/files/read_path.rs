//! How the host reads files, for memory of its own or of a device.
//!
//! - the page cache: what was read before comes from memory, and what comes from storage stays there
//! - direct: past the page cache (O_DIRECT), for tables that would only drive everything else out of it; by
//!   io_uring, so that storage has several reads to do at once, or by pread; small ranges that lie side by side are
//!   one read, whose bytes the reader keeps until it has given them all away
//!
//! Invariants: a direct reader's file has the identity of the handle that it was made from.
//!
//! Deliberately absent: which way a file is read, files that a device reads by itself.
#![expect(unsafe_code, reason = "reads under way, and hints to the page cache, are the kernel's")]

use std::{collections::VecDeque, fs::File, ops::Range, os::fd::AsRawFd, os::unix::fs::FileExt};

use pystachio_plan::{Error, ErrorKind, Result, StoragePath};

use crate::{
    FileHandle, PartSource, Pin, Slot, TableFile,
    direct_reads::{ALIGNMENT, DirectFile, DirectRead, READS_IN_FLIGHT, ring_refusal},
    from_io,
};

/// Larger ranges are reads of their own: they keep storage busy, and are not copied within the host.
const NEIGHBOUR_BYTES_MAX: u64 = 1 << 20;
/// What may lie between neighbours, and is read for nothing.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// The most that is read at once for neighbours, and that a reader holds.
const NEIGHBOURHOOD_BYTES_MAX: u64 = 4 << 20;

/// Bytes of memory that the host can give without swapping; all there is if it does not tell.
///
/// Source: MemAvailable of /proc/meminfo.
pub fn memory_available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |kilobytes| kilobytes.saturating_mul(1024))
}

/// Why direct reads of a file system's files are not had, where they are not.
#[derive(Clone, Debug)]
pub struct DirectRefusals {
    /// At all.
    pub direct: Option<String>,
    /// By io_uring.
    pub ring: Option<String>,
}

impl DirectRefusals {
    /// Those of the file system of an open file, which tries it.
    pub fn of(handle: &File) -> Self {
        Self {
            direct: DirectFile::open(handle, false).err().map(|error| error.to_string()),
            ring: ring_refusal().map(|error| error.to_string()),
        }
    }
}

/// The error of a file that can't be read in the way that the user asked for.
pub fn path_refused(file: &TableFile, way: &str, reason: &str) -> Error {
    let message = format!("file \"{}\" can't be read by {way}: {reason}", file.footer.path.display());
    Error::new(ErrorKind::InvalidArgument, message)
        .with_hint("Set pystachio.gpu_storage to auto; pystachio.engines shows the ways that there are.")
}

/// A reader of one file, of one thread.
pub struct FileReader<'a> {
    file: &'a TableFile,
    handle: FileHandle,
    direct: Option<DirectFile>,
    /// Of several ranges each, which are read at once.
    neighbourhoods: Vec<Range<u64>>,
    held: Option<HeldBytes>,
    /// Keep the bytes of an object here.
    pins: Vec<Pin>,
    /// Keeps the column chunk of an encrypted file that is read at the moment: all of a row group would take too much memory.
    decrypted: Option<Pin>,
}

/// Bytes of a file that were read directly.
struct HeldBytes {
    /// In the file.
    start: u64,
    /// From `skipped` on, where memory is aligned.
    memory: Vec<u8>,
    skipped: usize,
    /// How many came.
    bytes: usize,
}

impl HeldBytes {
    /// Reads whole blocks with a range of the file, as far as there is a file.
    fn read(direct: &DirectFile, range: &Range<u64>) -> std::io::Result<Self> {
        let start = range.start - range.start % ALIGNMENT;
        let wanted = (range.end - start).next_multiple_of(ALIGNMENT) as usize;
        let mut memory = vec![0; wanted + ALIGNMENT as usize];
        let skipped = memory.as_ptr().align_offset(ALIGNMENT as usize);
        let bytes = direct.read(start, &mut memory[skipped..skipped + wanted])?;
        Ok(Self { start, memory, skipped, bytes })
    }

    /// The bytes of a range, if they are there.
    fn get(&self, position: u64, bytes: usize) -> Option<&[u8]> {
        let first = usize::try_from(position.checked_sub(self.start)?).ok()?;
        self.memory.get(self.skipped..self.skipped + self.bytes)?.get(first..first.checked_add(bytes)?)
    }
}

/// What of ranges is read at once: small ones that follow one another closely.
fn neighbourhoods(ranges: &[(u64, u64)]) -> Vec<Range<u64>> {
    let mut found: Vec<(Range<u64>, usize)> = Vec::new();
    for &(start, bytes) in ranges.iter().filter(|(_, bytes)| *bytes <= NEIGHBOUR_BYTES_MAX) {
        let end = start.saturating_add(bytes);
        match found.last_mut() {
            Some((last, count))
                if (last.end..=last.end.saturating_add(GAP_BYTES_MAX)).contains(&start)
                    && end - last.start <= NEIGHBOURHOOD_BYTES_MAX =>
            {
                (last.end, *count) = (end, *count + 1);
            }
            _ => found.push((start..end, 1)),
        }
    }
    found.into_iter().filter(|(_, count)| *count > 1).map(|(range, _)| range).collect()
}

impl<'a> FileReader<'a> {
    /// A reader of a file's present content. What is neither direct nor the page cache is the page cache here.
    ///
    /// # Errors
    ///
    /// As of [`TableFile::handle`]; `InvalidArgument` if the file system has no direct reads.
    pub fn open(file: &'a TableFile, path: StoragePath) -> Result<Self> {
        let handle = file.handle()?;
        let direct = match path {
            StoragePath::Direct | StoragePath::DirectPread => {
                let opened = DirectFile::open(&handle, path == StoragePath::Direct);
                Some(opened.map_err(|error| path_refused(file, "direct reads", &error.to_string()))?)
            }
            _ => None,
        };
        Ok(Self {
            file,
            handle,
            direct,
            neighbourhoods: Vec::new(),
            held: None,
            pins: Vec::new(),
            decrypted: None,
        })
    }

    /// The way that it takes.
    pub fn path(&self) -> StoragePath {
        match &self.direct {
            None => StoragePath::PageCache,
            Some(direct) if direct.has_ring() => StoragePath::Direct,
            Some(_) => StoragePath::DirectPread,
        }
    }

    /// The open file.
    pub fn handle(&self) -> &File {
        &self.handle
    }

    /// Makes ranges readable as long as the reader lives, each one's first byte, and how many they are. For every range that is read,
    /// by this reader or by a device. Blocks for an object. Encrypted ones are decrypted when they are read.
    ///
    /// # Errors
    ///
    /// Those of [`TableFile::fetch`].
    pub fn fetch(&mut self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<()> {
        if self.file.is_in_store() {
            self.pins.push(self.file.fetch_ahead(ranges)?);
        }
        Ok(())
    }

    /// Says which ranges will be read next, in their order, so that storage gets large requests and many at once: each
    /// one's first byte, and how many they are.
    pub fn announce(&mut self, ranges: &[(u64, u64)]) {
        if self.direct.is_some() {
            self.neighbourhoods = neighbourhoods(ranges);
            return;
        }
        for &(offset, range_bytes) in ranges {
            let (offset, range_bytes) = (offset as libc::off_t, range_bytes as libc::off_t);
            // A hint: without it the reads are as right.
            // SAFETY: the file is open; the call touches no memory of ours.
            let _ = unsafe {
                libc::posix_fadvise(self.handle.as_raw_fd(), offset, range_bytes, libc::POSIX_FADV_WILLNEED)
            };
        }
    }

    fn neighbourhood(&self, position: u64, bytes: u64) -> Option<&Range<u64>> {
        let end = position.saturating_add(bytes);
        self.neighbourhoods.iter().find(|range| range.start <= position && end <= range.end)
    }

    /// Bytes that lie in a neighbourhood, all of which is read if it is not held.
    fn held(&mut self, position: u64, bytes: usize) -> std::io::Result<&[u8]> {
        if self.held.as_ref().and_then(|held| held.get(position, bytes)).is_none()
            && let (Some(direct), Some(range)) = (&self.direct, self.neighbourhood(position, bytes as u64))
        {
            self.held = Some(HeldBytes::read(direct, range)?);
        }
        let found = self.held.as_ref().and_then(|held| held.get(position, bytes));
        found.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    /// The file's bytes from a place on, part by part.
    pub fn parts(&mut self, offset: u64) -> FileParts<'_, 'a> {
        FileParts { reader: self, offset, begun: VecDeque::new() }
    }
}

/// Bytes of a file that are read part by part.
pub struct FileParts<'r, 'f> {
    reader: &'r mut FileReader<'f>,
    offset: u64,
    begun: VecDeque<Part>,
}

/// A part that has begun.
struct Part {
    /// In the file.
    position: u64,
    bytes: usize,
    way: PartWay,
}

/// Where a part comes from.
enum PartWay {
    PageCache,
    Direct(DirectRead),
    /// What the reader holds, or will.
    Neighbourhood,
}

impl PartSource for FileParts<'_, '_> {
    fn parts_in_flight(&self) -> usize {
        if self.reader.path() == StoragePath::Direct { READS_IN_FLIGHT } else { 1 }
    }

    fn begin(&mut self, start: u64, bytes_left: u64, slot: &mut Slot) -> Result<usize> {
        let position = self.offset + start;
        self.reader.fetch([(position, bytes_left)])?;
        if self.reader.file.is_decrypted() {
            // Its bytes are read when the part is finished, before the next one begins.
            self.reader.decrypted = Some(self.reader.file.fetch([(position, bytes_left)])?);
        }
        let whole = bytes_left.min(slot.bytes as u64) as usize;
        let is_neighbour = self.reader.neighbourhood(position, bytes_left).is_some();
        let part = match &mut self.reader.direct {
            None => Part { position, bytes: whole, way: PartWay::PageCache },
            Some(_) if is_neighbour => Part { position, bytes: whole, way: PartWay::Neighbourhood },
            Some(direct) => {
                let skipped = position % ALIGNMENT;
                let read_bytes = (skipped + bytes_left).next_multiple_of(ALIGNMENT).min(slot.bytes as u64);
                let bytes = (read_bytes - skipped).min(bytes_left) as usize;
                let memory = slot.address as *mut u8;
                // SAFETY: the slot is the read's until `finish` or `abandon`.
                let read = unsafe { direct.begin(position - skipped, memory, read_bytes as usize) };
                Part { position, bytes, way: PartWay::Direct(read) }
            }
        };
        let bytes = part.bytes;
        self.begun.push_back(part);
        Ok(bytes)
    }

    fn finish(&mut self, slot: &mut Slot) -> Result<Range<usize>> {
        let part = self.begun.pop_front().ok_or_else(|| Error::internal("no part of a file has begun"))?;
        let path = &self.reader.file.footer.path;
        let read = match (&mut self.reader.direct, part.way) {
            (Some(direct), PartWay::Direct(read)) => direct.wait(read).and_then(|count| {
                let skipped = (part.position % ALIGNMENT) as usize;
                if count < skipped + part.bytes {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                Ok(skipped..skipped + part.bytes)
            }),
            (_, way) => {
                // SAFETY: nothing reads into the slot before this.
                let target = unsafe { slot.memory() }.get_mut(..part.bytes).unwrap_or_default();
                match way {
                    PartWay::Neighbourhood => {
                        self.reader.held(part.position, part.bytes).map(|held| target.copy_from_slice(held))
                    }
                    _ => self.reader.handle.read_exact_at(target, part.position),
                }
                .map(|()| 0..part.bytes)
            }
        };
        read.map_err(|error| from_io(path, "read", &error))
    }

    fn abandon(&mut self) -> bool {
        self.begun.clear();
        self.reader.direct.as_mut().is_none_or(DirectFile::abandon)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use pystachio_plan::{ErrorKind, FileSet};

    use super::*;
    use crate::FileCatalog;

    /// A Parquet file of some megabytes that is no multiple of a block.
    fn table_file() -> (tempfile::TempDir, TableFile, Vec<u8>) {
        let source = "../../regress/data/t1.parquet";
        let parquet = std::fs::read(source).unwrap();
        // Beside the test: where temporary files are, there may be no direct reads.
        let test = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(test.parent().unwrap()).unwrap();
        let path = folder.path().join("t.parquet");
        // The bytes between the magic and the first page belong to no page.
        let padding: Vec<u8> = (0..9_000_001_u32).map(|place| (place * 31 % 251) as u8).collect();
        let bytes = [&b"PAR1"[..], &padding, &parquet].concat();
        std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        let files = FileSet::parquet(vec![path.display().to_string()]);
        let file = FileCatalog::default().open_all(&files).unwrap().remove(0);
        (folder, file, bytes)
    }

    /// What has begun of a range, and the slots; as an upload to a device reads it.
    struct Reading<'r, 'f> {
        parts: FileParts<'r, 'f>,
        slots: VecDeque<Slot>,
    }

    impl Reading<'_, '_> {
        /// Begins as many parts from `start` on as may be under way. Says where they end.
        fn begin(&mut self, mut start: usize, end: usize) -> Result<usize> {
            while start < end && self.slots.len() < self.parts.parts_in_flight() {
                let mut slot = Slot::on_heap();
                let begun = self.parts.begin(start as u64, (end - start) as u64, &mut slot);
                self.slots.push_back(slot);
                start += begun?;
            }
            Ok(start)
        }

        fn finish(&mut self) -> Result<Vec<u8>> {
            let mut slot = self.slots.pop_front().unwrap();
            let range = self.parts.finish(&mut slot);
            // SAFETY: the slot's read is finished, also after an error.
            let part = range.map(|range| unsafe { slot.memory() }[range].to_vec());
            // SAFETY: as above.
            unsafe { slot.free() };
            part
        }
    }

    impl Drop for Reading<'_, '_> {
        fn drop(&mut self) {
            assert!(self.parts.abandon());
            // SAFETY: nothing is under way.
            self.slots.drain(..).for_each(|slot| unsafe { slot.free() });
        }
    }

    /// A range of a file.
    fn read(reader: &mut FileReader<'_>, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        reader.announce(&[(offset, bytes as u64)]);
        read_announced(reader, offset, bytes)
    }

    fn read_announced(reader: &mut FileReader<'_>, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut reading = Reading { parts: reader.parts(offset), slots: VecDeque::new() };
        let (mut found, mut begun) = (Vec::new(), 0);
        while found.len() < bytes {
            begun = reading.begin(begun, bytes)?;
            found.extend(reading.finish()?);
        }
        Ok(found)
    }

    const PATHS: [StoragePath; 3] = [StoragePath::PageCache, StoragePath::Direct, StoragePath::DirectPread];

    fn check_all_ranges(reader: &mut FileReader<'_>, bytes: &[u8]) {
        let path = reader.path();
        for (offset, length) in [(0, 1), (4095, 2), (4096, 4096), (17, 5_000_000), (bytes.len() - 9, 9)] {
            let found = read(reader, offset as u64, length).unwrap();
            assert!(found == bytes[offset..offset + length], "{path:?} {offset} {length}");
        }
        let beyond = read(reader, bytes.len() as u64 - 9, 10).unwrap_err();
        assert_eq!(beyond.kind, ErrorKind::FileCorrupt, "{path:?}");
        // An error leaves the reader as it was.
        assert!(read(reader, 3, 2_000_000).unwrap() == bytes[3..2_000_003], "{path:?}");
    }

    #[test]
    fn every_path_gives_the_same_bytes() {
        let (_folder, file, bytes) = table_file();
        for path in PATHS {
            let mut reader = FileReader::open(&file, path).unwrap();
            assert!(reader.path() == path || path == StoragePath::Direct, "{path:?}");
            check_all_ranges(&mut reader, &bytes);
        }
    }

    #[test]
    fn small_ranges_that_follow_closely_are_read_at_once() {
        let (small, gap) = (NEIGHBOUR_BYTES_MAX, GAP_BYTES_MAX);
        let of = |ranges: &[(u64, u64)]| {
            neighbourhoods(ranges).into_iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(4, 100), (104, 50), (154 + gap, 10)]), [(4, 164 + gap)]);
        assert_eq!(of(&[(4, 100), (105 + gap, 50)]), []);
        assert_eq!(of(&[(4, small + 1), (5 + small, 10)]), []);
        assert_eq!(of(&[(4, 10), (14, small + 1), (15 + small, 10)]), []);
        // Neighbours come in the file's order, and end where so much is read.
        assert_eq!(of(&[(104, 50), (4, 100)]), []);
        let many: Vec<_> = (0..6).map(|place| (4 + place * small, small)).collect();
        assert_eq!(of(&many), [(4, 4 + 4 * small), (4 + 4 * small, 4 + 6 * small)]);
        assert_eq!(of(&[(u64::MAX - 9, 5), (u64::MAX - 4, 99)]), [(u64::MAX - 9, u64::MAX)]);
    }

    #[test]
    fn neighbours_are_given_what_one_read_brought() {
        let (_folder, file, bytes) = table_file();
        let ranges = [(5000, 3000), (8000, 1), (8101, 70_000), (4_000_000, 10), (4_000_010, 20)];
        for path in PATHS {
            let mut reader = FileReader::open(&file, path).unwrap();
            reader.announce(&ranges);
            let mut held = Vec::new();
            for (offset, length) in ranges {
                let found = read_announced(&mut reader, offset, length as usize).unwrap();
                assert!(found == bytes[offset as usize..][..length as usize], "{path:?} {offset}");
                held.extend(reader.held.as_ref().map(|held| (held.start, held.memory.as_ptr())));
            }
            held.dedup();
            let starts: Vec<u64> = held.iter().map(|(start, _)| *start).collect();
            assert_eq!(starts, if path == StoragePath::PageCache { vec![] } else { vec![4096, 3_997_696] });
        }
    }

    #[test]
    fn neighbours_that_the_file_has_lost_are_errors_and_others_are_not() {
        let (folder, file, bytes) = table_file();
        let mut reader = FileReader::open(&file, StoragePath::Direct).unwrap();
        std::fs::File::options()
            .write(true)
            .open(folder.path().join("t.parquet"))
            .unwrap()
            .set_len(9000)
            .unwrap();
        reader.announce(&[(5000, 4000), (9000, 100)]);
        assert!(read_announced(&mut reader, 5000, 4000).unwrap() == bytes[5000..9000]);
        let error = read_announced(&mut reader, 9000, 100).unwrap_err();
        assert_eq!(error.kind, ErrorKind::FileCorrupt);
        assert!(error.message.contains("t.parquet"), "{error}");
    }

    #[test]
    fn a_file_that_is_cut_meanwhile_is_an_error_on_every_path() {
        for path in PATHS {
            let (folder, file, bytes) = table_file();
            let mut reader = FileReader::open(&file, path).unwrap();
            let whole = std::fs::File::options().write(true).open(folder.path().join("t.parquet")).unwrap();
            whole.set_len(5_000_001).unwrap();
            assert!(read(&mut reader, 0, 5_000_001).unwrap() == bytes[..5_000_001], "{path:?}");
            let error = read(&mut reader, 1, 5_000_001).unwrap_err();
            assert_eq!(error.kind, ErrorKind::FileCorrupt, "{path:?}");
            assert!(error.message.contains("t.parquet"), "{error}");
            FileReader::open(&file, path).err().unwrap();
        }
    }

    /// Makes the kernel refuse io_uring to this thread, as containers do.
    fn refuse_io_uring() {
        let statement =
            |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut filter = [
            // The number of the system call.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_io_uring_setup as u32, 0, 1),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: both calls concern this thread; the program lives until they return.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        assert!(refused, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn without_io_uring_direct_reads_go_on_by_pread() {
        let (_folder, file, bytes) = table_file();
        let thread = std::thread::spawn(move || {
            refuse_io_uring();
            let mut reader = FileReader::open(&file, StoragePath::Direct).unwrap();
            assert_eq!(reader.path(), StoragePath::DirectPread);
            check_all_ranges(&mut reader, &bytes);
        });
        thread.join().unwrap();
    }

    #[test]
    fn reads_that_nobody_waits_for_leave_their_memory_alone() {
        let (_folder, file, _) = table_file();
        let mut reader = FileReader::open(&file, StoragePath::Direct).unwrap();
        let mut reading = Reading { parts: reader.parts(4), slots: VecDeque::new() };
        reading.begin(0, 9_000_000).unwrap();
        reading.finish().unwrap();
        let is_direct = reading.parts.reader.path() == StoragePath::Direct;
        assert!(!is_direct || !reading.slots.is_empty(), "nothing is under way");
        // Its slots are given back, which the reads must have left by then.
        drop(reading);
        assert!(reader.direct.as_mut().is_none_or(DirectFile::abandon));
    }
}
