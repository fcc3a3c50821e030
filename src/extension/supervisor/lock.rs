//! The supervisor's lock on a file in the data directory.
//!
//! The lock is one of `fcntl`. The kernel names the process that holds it, and releases it with
//! that process. So no signal reaches a process that has the number of a former supervisor.
//!
//! Invariants: a process releases such a lock when it closes any descriptor of the file. So the supervisor opens it once, and
//! never asks for the holder.
#![expect(unsafe_code, reason = "fcntl and kill")]

use std::{
    fs, io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use super::home::ENGINES_DIRECTORY;

/// Proof that this process is the supervisor.
pub struct SupervisorLock {
    _file: fs::File,
}

/// Becomes the supervisor; `None` if there is one.
///
/// # Errors
///
/// The file can't be made or locked.
pub fn take() -> io::Result<Option<SupervisorLock>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(ENGINES_DIRECTORY)?;
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path())?;
    let mut lock = whole_file();
    // SAFETY: an open file, and a structure that is filled in.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock) } {
        0 => Ok(Some(SupervisorLock { _file: file })),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) => Ok(None),
            error => Err(error),
        },
    }
}

/// The supervisor's process, if there is one. Not for the supervisor itself.
pub fn holder() -> Option<u32> {
    let file = fs::OpenOptions::new().write(true).open(path()).ok()?;
    let mut lock = whole_file();
    // SAFETY: as above. The call changes the structure and locks nothing.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) } == 0;
    let is_locked = done && i32::from(lock.l_type) != libc::F_UNLCK;
    u32::try_from(lock.l_pid).ok().filter(|pid| is_locked && *pid > 0)
}

/// Makes the supervisor look at all folders.
pub fn wake(supervisor_pid: u32) {
    // SAFETY: the process holds the lock. To a process of PostgreSQL, SIGUSR1 without a reason in shared memory is a wake-up.
    unsafe { libc::kill(supervisor_pid as i32, libc::SIGUSR1) };
}

fn path() -> PathBuf {
    Path::new(ENGINES_DIRECTORY).join("lock")
}

fn whole_file() -> libc::flock {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
