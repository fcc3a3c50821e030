//! The process as the operating system sees it: memory, parent, folder for spill files.

use std::{
    fs, io,
    os::unix::{fs::DirBuilderExt, process::parent_id},
    path::{Path, PathBuf},
    time::Duration,
};

/// Added to the process's score, of 1000, by which the kernel chooses what to end when memory runs out:
/// an engine restarts by itself, a database server does not.
const OOM_SCORE_ADJUSTMENT: &str = "800";
const PARENT_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long a process without queries waits before it gives memory back: allocators keep it for the next query.
const REST_INTERVAL: Duration = Duration::from_secs(2);
const SPILL_FOLDER_PREFIX: &str = "pystachio-spill-";

/// Makes the kernel prefer this process when memory runs out. Where that is not allowed, nothing happens.
pub fn prefer_as_oom_victim() {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT) {
        tracing::debug!(%error, "the score for running out of memory is left as it is");
    }
}

/// Ends the process at the first SIGSEGV or SIGBUS. Rust's own handler, which tells stack overflows
/// apart, swallows the first signal that another process sends.
#[expect(unsafe_code, reason = "sets the disposition of a signal")]
pub fn end_at_memory_faults() {
    // SAFETY: the default disposition needs no handler.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}

/// Gives this thread a name, and the process if it is its first one: what is started by another path than its file's has that path's.
#[expect(unsafe_code, reason = "names a thread that runs already")]
pub fn name_thread(name: &std::ffi::CStr) {
    // SAFETY: a C string, which is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// The process's resident memory; 0 where the system doesn't tell.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|value| value.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Whenever queries have run and none has for a while, gives memory that nobody uses back to the system. Never ends.
/// `queries` says how many have run and how many run.
pub async fn return_memory_at_rest(queries: impl Fn() -> (u64, u64)) {
    let mut interval = tokio::time::interval(REST_INTERVAL);
    let (mut before, mut returned) = (0, 0);
    loop {
        interval.tick().await;
        let (run, running) = queries();
        if running == 0 && run == before && run != returned {
            returned = run;
            // It looks through all that was ever allocated.
            let _ = tokio::task::spawn_blocking(return_free_memory).await;
        }
        before = run;
    }
}

/// Gives pages that the allocator holds, and nobody uses, back to the system.
#[expect(unsafe_code, reason = "asks the C library's allocator")]
fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Waits until `parent` is no longer this process's parent.
pub async fn wait_for_orphaning(parent: u32) {
    let mut interval = tokio::time::interval(PARENT_POLL_INTERVAL);
    while parent_id() == parent {
        interval.tick().await;
    }
}

/// A folder for this process's spill files, removed with them when dropped.
#[derive(Debug)]
pub struct SpillFolder {
    path: PathBuf,
}

impl SpillFolder {
    /// Makes the folder inside `directory`, and removes those of engines that were killed.
    ///
    /// # Errors
    ///
    /// Those of making a folder.
    pub fn create(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)?.flatten() {
            if is_abandoned(&entry.file_name().to_string_lossy()) {
                // Another engine may be removing the same folder.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = spill_folder(directory, std::process::id());
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::DirBuilder::new().mode(0o700).create(&path)?;
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

/// Removes the folder of a process that has ended, if there is one.
pub fn remove_spill_folder(directory: &Path, pid: u32) {
    match fs::remove_dir_all(spill_folder(directory, pid)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(process = pid, %error, "spill folder can't be removed");
        }
        _ => {}
    }
}

fn spill_folder(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{SPILL_FOLDER_PREFIX}{pid}"))
}

fn is_abandoned(folder: &str) -> bool {
    let process = folder.strip_prefix(SPILL_FOLDER_PREFIX).and_then(|process| process.parse::<u32>().ok());
    process.is_some_and(has_ended)
}

/// Whether a process has ended, though nobody may have waited for it yet.
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
    fn resident_memory_is_known() {
        assert!(resident_bytes() > 100_000);
    }

    /// What is kept lies between what is freed, so that the allocator gives nothing back by itself.
    #[test]
    #[cfg(target_env = "gnu")]
    fn memory_between_what_is_kept_goes_back() {
        const BLOCK_BYTES: usize = 16 << 10;
        const BLOCKS: usize = 10_000;
        let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK_BYTES]).collect();
        let mut place = 0;
        blocks.retain(|_| {
            place += 1;
            place % 64 == 0
        });
        let held = resident_bytes();
        return_free_memory();
        let freed = held.saturating_sub(resident_bytes());
        assert!(freed > (BLOCKS * BLOCK_BYTES / 2) as u64, "{freed} bytes");
        assert_eq!(blocks.len(), BLOCKS / 64);
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended() {
        assert!(!has_ended(std::process::id()) && has_ended(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }

    #[test]
    fn spill_folders_of_dead_engines_are_removed_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let dead = directory.path().join(format!("{SPILL_FOLDER_PREFIX}4294967295"));
        let alive = directory.path().join(format!("{SPILL_FOLDER_PREFIX}1"));
        let foreign = directory.path().join("other");
        for folder in [&dead, &alive, &foreign] {
            fs::create_dir(folder).unwrap();
        }
        let spill = SpillFolder::create(directory.path()).unwrap();
        assert!(!dead.exists() && alive.exists() && foreign.exists());
        let path = spill.path().to_owned();
        fs::write(path.join("run"), "x").unwrap();
        drop(spill);
        assert!(!path.exists());
    }
}
