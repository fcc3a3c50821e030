//! The folder of a process's spill files in a directory that processes share.
//!
//! PostgreSQL makes such directories (`pgsql_tmp`). It leaves them out of base backups, and removes everything in them
//! whose name begins as [`FOLDER_PREFIX`] does when the server starts or restarts after a crash. Folders of processes
//! that were killed are removed by the next process that makes a folder there.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Its beginning is PostgreSQL's own prefix of temporary files.
const FOLDER_PREFIX: &str = "pgsql_tmp_pystachio_";
/// A process may have several folders in a directory, one after another.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A folder for this process's spill files, removed with them when dropped.
#[derive(Debug)]
pub struct SpillFolder {
    path: PathBuf,
}

impl SpillFolder {
    /// Makes a folder inside `directory`, and removes those of processes that were killed. The directory itself is made
    /// if it is absent, but not its parents.
    ///
    /// # Errors
    ///
    /// Those of making a folder.
    pub fn create(directory: &Path) -> io::Result<Self> {
        let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
        match make(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        remove_folders(directory, has_ended)?;
        let (pid, number) = (std::process::id(), NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = directory.join(format!("{FOLDER_PREFIX}{pid}_{number}"));
        make(&path)?;
        Ok(Self { path })
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "spill folder can't be removed");
        }
    }
}

/// Removes the folders of a process that has ended, if there are any.
pub fn remove_spill_folders(directory: &Path, pid: u32) {
    if let Err(error) = remove_folders(directory, |owner| owner == pid) {
        tracing::warn!(process = pid, %error, "spill folder can't be removed");
    }
}

/// Removes the folders of processes for which `is_gone`.
fn remove_folders(directory: &Path, is_gone: impl Fn(u32) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        if owner(&entry.file_name().to_string_lossy()).is_some_and(&is_gone) {
            // Another process may be removing the same folder.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// The process whose folder has this name. One of this process's id that it has not made is of an earlier process.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(FOLDER_PREFIX)?.split('_').next()?.parse().ok()
}

/// Whether a process has ended. Its parent may not have waited for it yet.
fn has_ended(process: u32) -> bool {
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        // Its name, in parentheses, may have any characters.
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_not_been_waited_for_has_ended() {
        assert!(!has_ended(std::process::id()) && has_ended(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }

    #[test]
    fn folders_of_dead_processes_are_removed_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let [dead, alive, other] =
            ["pgsql_tmp_pystachio_4294967295_3", "pgsql_tmp_pystachio_1_0", "pgsql_tmp1.0"]
                .map(|name| directory.path().join(name));
        for folder in [&dead, &alive, &other] {
            fs::create_dir(folder).unwrap();
        }
        let [first, second] = [(), ()].map(|()| SpillFolder::create(directory.path()).unwrap());
        assert!(!dead.exists() && alive.exists() && other.exists());
        let path = first.path().to_owned();
        fs::write(path.join("run"), "x").unwrap();
        drop(first);
        assert!(!path.exists() && second.path().exists());
        remove_spill_folders(directory.path(), std::process::id());
        assert!(!second.path().exists() && alive.exists());
        fs::create_dir(second.path()).unwrap();
        assert!(SpillFolder::create(&directory.path().join("a/b")).is_err());
    }
}
