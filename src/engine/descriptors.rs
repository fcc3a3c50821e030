//! File descriptors of this process: their limit, and a count of those that files keep open.
//!
//! Invariants: files that are kept open while a query does not read them hold at most half of the descriptors. The other
//! half is for connections, spill files and files being read.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// The part of all descriptors that kept files may hold.
const KEPT_PART: u64 = 2;

static KEPT: AtomicU64 = AtomicU64::new(0);
static KEPT_MAX: OnceLock<u64> = OnceLock::new();

/// A descriptor that is kept, counted as long as this lives.
#[derive(Debug)]
pub struct KeptDescriptor(());

impl KeptDescriptor {
    /// Counts one more kept descriptor; `None` if there are enough.
    pub fn take() -> Option<Self> {
        let kept_max =
            *KEPT_MAX.get_or_init(|| limits().map_or(u64::MAX, |limits| limits.rlim_cur) / KEPT_PART);
        let added = |kept: u64| (kept < kept_max).then_some(kept + 1);
        KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok().then_some(Self(()))
    }
}

impl Drop for KeptDescriptor {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Allows this process as many descriptors as its user may have: servers are started with few, for old programs that
/// can't have more. Returns how many that are. Called before any descriptor is kept.
#[expect(unsafe_code, reason = "sets a limit of the process")]
pub fn raise_descriptor_limit() -> std::io::Result<u64> {
    let limits = limits()?;
    let raised = libc::rlimit { rlim_cur: limits.rlim_max, ..limits };
    // SAFETY: the structure is whole.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } {
        0 => Ok(raised.rlim_cur),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[expect(unsafe_code, reason = "asks for a limit of the process")]
fn limits() -> std::io::Result<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is written whole.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) } {
        0 => Ok(limits),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, as the counts are the process's.
    #[test]
    fn half_of_all_descriptors_may_be_kept() {
        let limit = raise_descriptor_limit().unwrap();
        assert_eq!(limits().unwrap().rlim_cur, limit);
        KEPT_MAX.set(2).unwrap();
        let first = KeptDescriptor::take().unwrap();
        let _second = KeptDescriptor::take().unwrap();
        assert!(KeptDescriptor::take().is_none());
        drop(first);
        assert!(KeptDescriptor::take().is_some());
    }
}
