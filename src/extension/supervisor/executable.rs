//! The engine's executable, as it was when the library was loaded.
//!
//! If the library is preloaded, all sessions have the library of the server's start. An upgraded
//! package replaces the executable meanwhile, and the new engine may speak another protocol. An
//! engine that ended and started again would then be lost until the server restarts. So the
//! supervisor keeps the first file open, and runs that.

#![expect(unsafe_code, reason = "asks the loader where this library is")]

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::settings;

/// The file beside the library. All processes that the postmaster forks have it open.
static EXECUTABLE: OnceLock<File> = OnceLock::new();

/// Opens the executable for as long as the process, and those that it forks, live.
pub fn keep_open() {
    // Where it can't be opened, starting it fails with the reason.
    if let Some(file) = beside_library().ok().and_then(|path| File::open(path).ok()) {
        let _ = EXECUTABLE.set(file);
    }
}

/// A command that runs the executable, and its path for messages.
///
/// # Errors
///
/// It is not known where the library is.
pub fn command() -> io::Result<(Command, PathBuf)> {
    if let Some(path) = settings::engine_path() {
        let path = PathBuf::from(path.to_string_lossy().into_owned());
        return Ok((Command::new(&path), path));
    }
    let path = beside_library()?;
    let opened = EXECUTABLE.get().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let command = match opened.filter(|opened| Path::new(opened).exists()) {
        Some(opened) => {
            let mut command = Command::new(opened);
            command.arg0(&path);
            command
        }
        None => Command::new(&path),
    };
    Ok((command, path))
}

fn beside_library() -> io::Result<PathBuf> {
    let library = library_path().ok_or_else(|| io::Error::other("the extension's library is nowhere"))?;
    Ok(library.with_file_name("pystachio-engine"))
}

/// Where this library was loaded from.
fn library_path() -> Option<PathBuf> {
    let mut information = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let address: fn() -> Option<PathBuf> = library_path;
    // SAFETY: dladdr fills the structure for an address in a loaded library, and its name lives as long.
    unsafe {
        if libc::dladdr(address as *const libc::c_void, information.as_mut_ptr()) == 0 {
            return None;
        }
        let name = information.assume_init().dli_fname;
        (!name.is_null())
            .then(|| PathBuf::from(std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned()))
    }
}
