//! What the page cache holds of a file.
#![expect(unsafe_code, reason = "a read that does not wait is libc's")]

use std::{fs::File, os::fd::AsRawFd};

/// Places of a range that are looked at.
const PROBES: u64 = 3;

/// Whether the page cache holds a range of a file, as far as its first, middle and last byte tell. True where the
/// file system does not tell.
///
/// Source: preadv2(2), `RWF_NOWAIT`: a read that would have to wait for storage fails with `EAGAIN`. Unlike mincore(2)
/// it needs no more rights than reading does.
pub fn is_in_page_cache(file: &File, offset: u64, range_bytes: u64) -> bool {
    let last = range_bytes.saturating_sub(1);
    (0..PROBES).all(|probe| has_byte(file, offset + last / (PROBES - 1) * probe))
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
    use std::{io::Write, os::unix::fs::FileExt};

    use super::*;

    /// What the kernel says of the page at a place, whose file is ours.
    fn is_resident(file: &File, offset: usize) -> bool {
        let (length, mut flags) = (4096, [0_u8; 1]);
        // SAFETY: a mapping of the open file for reading, unmapped again; one page has one flag.
        unsafe {
            let handle = file.as_raw_fd();
            let address = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                handle,
                offset as libc::off_t,
            );
            assert_ne!(address, libc::MAP_FAILED);
            assert_eq!(libc::mincore(address, length, flags.as_mut_ptr()), 0);
            assert_eq!(libc::munmap(address, length), 0);
        }
        flags[0] & 1 == 1
    }

    #[test]
    fn what_was_just_written_is_held_and_what_was_dropped_is_not() {
        // In the sources' folder: a file system in memory drops nothing.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; 8 << 20]).unwrap();
        assert!(is_in_page_cache(&file, 0, 8 << 20));
        assert!(is_in_page_cache(&file, 100, 0));
        file.sync_all().unwrap();
        // SAFETY: the file is open; the call touches no memory of ours.
        let dropped = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(dropped, 0);
        let place = 4 << 20;
        let expected = is_resident(&file, place);
        assert_eq!(is_in_page_cache(&file, place as u64, 1), expected);
        file.read_exact_at(&mut [0; 1], place as u64).unwrap();
        assert!(is_in_page_cache(&file, place as u64, 1));
    }
}
