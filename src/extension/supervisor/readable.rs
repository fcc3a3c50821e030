//! Waiting for any of several descriptors, beside the process's latch.
//!
//! PostgreSQL's own wait takes one descriptor. It gets that of an epoll instance, which is readable
//! if one of its members is.
#![expect(unsafe_code, reason = "epoll")]

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Descriptors of which one may have something to read. A descriptor that is closed is no member any more.
pub struct ReadableSet(OwnedFd);

impl ReadableSet {
    /// No descriptors.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a system call without pointers.
        match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
            descriptor if descriptor >= 0 => {
                // SAFETY: the descriptor is new, and nothing else owns it.
                Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    ///
    /// The descriptor is a member, or none that can be waited for.
    pub fn add(&self, descriptor: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and the structure lives through the call.
        let done =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// What is readable when a member is.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
