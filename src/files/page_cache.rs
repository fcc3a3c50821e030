//! What the page cache holds of a file.
#![expect(unsafe_code, reason = "a read that does not wait is libc's")]

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    os::fd::AsRawFd,
};

/// Tells whether the page cache holds a range of a file: its first byte, and how many they are.
pub type PageCacheProbe = fn(&File, u64, u64) -> bool;

/// Places of a range that are looked at.
const PROBES: u64 = 4;

/// Whether the page cache holds a range of a file, as far as a few of its bytes tell. True where the file system does
/// not tell.
///
/// Source: preadv2(2), `RWF_NOWAIT`: a read that would have to wait for storage fails with `EAGAIN`. Unlike mincore(2)
/// and cachestat(2) it needs no more rights than reading does. The kernel reads the page of such a byte all the same,
/// after the call: other bytes are looked at each time, so that being looked at does not make a range look held.
pub fn is_in_page_cache(file: &File, offset: u64, range_bytes: u64) -> bool {
    places(range_bytes, &RandomState::new()).all(|place| has_byte(file, offset + place))
}

/// A place in each of the range's equal parts.
fn places(range_bytes: u64, random: &RandomState) -> impl Iterator<Item = u64> {
    let part_bytes = range_bytes / PROBES;
    (0..PROBES).map(move |part| part_bytes * part + random.hash_one(part) % part_bytes.max(1))
}

fn has_byte(file: &File, offset: u64) -> bool {
    let mut byte = 0_u8;
    let part = libc::iovec { iov_base: std::ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
    // SAFETY: the file is open, and the vector describes one byte that lives until the call returns.
    let count = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_NOWAIT) };
    count >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Write, ops::Range};

    use super::*;

    const PAGE_BYTES: usize = 4096;
    /// As many as any process may lock.
    const MAPPED_BYTES: usize = 8 * PAGE_BYTES;

    /// Pages of a file, mapped.
    struct MappedPages(*mut libc::c_void);

    impl MappedPages {
        fn new(file: &File, offset: usize) -> Self {
            // SAFETY: a mapping of the open file for reading, at a place of the kernel's choice.
            let address = unsafe {
                let (handle, offset) = (file.as_raw_fd(), offset as libc::off_t);
                libc::mmap(
                    std::ptr::null_mut(),
                    MAPPED_BYTES,
                    libc::PROT_READ,
                    libc::MAP_SHARED,
                    handle,
                    offset,
                )
            };
            assert_ne!(address, libc::MAP_FAILED);
            Self(address)
        }

        /// Whether the kernel has any of them, whose file is ours.
        fn is_any_resident(&self) -> bool {
            let mut flags = [0_u8; MAPPED_BYTES / PAGE_BYTES];
            // SAFETY: each mapped page has a flag.
            assert_eq!(unsafe { libc::mincore(self.0, MAPPED_BYTES, flags.as_mut_ptr()) }, 0);
            flags.iter().any(|flag| flag & 1 == 1)
        }

        /// Reads them, and keeps them in memory as long as they are mapped, where a process may lock pages.
        fn lock(&self) {
            // SAFETY: the pages are mapped for reading.
            unsafe {
                libc::mlock(self.0, MAPPED_BYTES);
                for offset in (0..MAPPED_BYTES).step_by(PAGE_BYTES) {
                    std::ptr::read_volatile(self.0.cast::<u8>().add(offset));
                }
            }
        }
    }

    impl Drop for MappedPages {
        fn drop(&mut self) {
            // SAFETY: the mapping is this one's, and nothing refers into it.
            assert_eq!(unsafe { libc::munmap(self.0, MAPPED_BYTES) }, 0);
        }
    }

    /// A look makes the kernel read the page that it missed, and finds it where that read ends before the kernel looks again, as it does when the
    /// process is interrupted between the two: what is dropped is looked for in several places.
    #[test]
    fn pages_that_are_kept_are_held_and_pages_that_were_dropped_are_not() {
        const PLACE_BYTES: usize = 1 << 20;
        const PLACES: usize = 32;
        // In the sources' folder: a file system in memory drops nothing.
        let mut file = tempfile::tempfile_in(".").unwrap();
        file.write_all(&vec![7; PLACES * PLACE_BYTES]).unwrap();
        file.sync_all().unwrap();
        // SAFETY: the file is open; the call touches no memory of ours.
        let dropped = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(dropped, 0);
        let is_held = |place: usize, range_bytes| is_in_page_cache(&file, place as u64, range_bytes as u64);
        let pages = (0..PLACES)
            .map(|place| place * PLACE_BYTES)
            .map(|place| (place, MappedPages::new(&file, place)))
            .collect::<Vec<_>>();
        let missing = pages.iter().filter(|(_, pages)| !pages.is_any_resident()).collect::<Vec<_>>();
        assert!(missing.is_empty() || missing.iter().any(|(place, _)| !is_held(*place, MAPPED_BYTES)));
        let (place, pages) = &pages[PLACES / 2];
        pages.lock();
        for (skipped, range_bytes) in [(0, MAPPED_BYTES), (100, MAPPED_BYTES - 100), (100, 0), (0, 1)] {
            assert!(is_held(place + skipped, range_bytes), "{skipped} {range_bytes}");
        }
    }

    #[test]
    fn each_part_of_a_range_is_looked_at_and_other_places_each_time() {
        let of = |range_bytes| places(range_bytes, &RandomState::new()).collect::<Vec<_>>();
        assert_eq!(of(0), [0; PROBES as usize]);
        assert_eq!(of(PROBES), (0..PROBES).collect::<Vec<_>>());
        let parts: [Range<u64>; PROBES as usize] = [0..256, 256..512, 512..768, 768..1024];
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            let found = of(1026);
            assert!(parts.iter().zip(&found).all(|(part, place)| part.contains(place)), "{found:?}");
            seen.extend(found);
        }
        assert!(seen.len() > 200, "{seen:?}");
        assert!(of(u64::MAX).is_sorted());
    }
}
