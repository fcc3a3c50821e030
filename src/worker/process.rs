//! The process as the operating system sees it: memory, descriptors, parent.

use std::{
    fs,
    os::unix::process::{ExitStatusExt, parent_id},
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant, SystemTime},
};

/// Added to the process's score, of 1000, by which the kernel chooses what to end when memory runs out:
/// an engine restarts by itself, a database server does not.
const OOM_SCORE_ADJUSTMENT: &str = "800";
/// The file, beside the socket, whose time of change says when the engine last had a request.
pub const USED_FILE: &str = "used";
/// How exact that is.
const USE_INTERVAL: Duration = Duration::from_secs(1);
const PARENT_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long a process without queries waits before it gives memory back: allocators keep it for the next query.
const REST_INTERVAL: Duration = Duration::from_secs(2);
/// How long to wait for an engine that is ending. One with 48 GB of page-locked memory in small pages took 8 s.
const ENDING_WAIT_MAX: Duration = Duration::from_secs(60);
const ENDING_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// `pystachio-engine`, cut to the length that the kernel keeps.
const ENGINE_NAME: &str = "pystachio-engin";
/// The kernel's flag of a process that is ending (`PF_EXITING`).
const EXITING: u32 = 0x4;
/// Fields of `/proc/<pid>/stat` between its state and its flags.
const FLAGS_AFTER_STATE: usize = 5;
/// And between its flags and how it ends, as `waitpid` will say.
const STATUS_AFTER_FLAGS: usize = 42;

/// Makes the kernel end this process first when memory runs out. Does nothing if that is not allowed.
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

/// Names this thread; the first thread names the process. A process started through another path would show that path's name.
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

/// Returns unused memory to the system whenever queries have run and none has run for a while. Never returns.
/// `queries` gives the counts of ended and of running queries.
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

/// Changes the time of a file as long as there are requests. Never returns. `requests` gives the counts of those that have begun
/// and of those that run.
pub async fn note_use(path: PathBuf, requests: impl Fn() -> (u64, u64)) {
    let mut interval = tokio::time::interval(USE_INTERVAL);
    let mut before = None;
    loop {
        interval.tick().await;
        let (begun, running) = requests();
        if (running > 0 || before != Some(begun))
            && let Err(error) = fs::File::create(&path).and_then(|file| file.set_modified(SystemTime::now()))
        {
            tracing::warn!(path = %path.display(), %error, "the time of the last request can't be noted");
        }
        before = Some(begun);
    }
}

/// Returns free pages of the allocator to the system.
#[expect(unsafe_code, reason = "asks the C library's allocator")]
fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Waits until no engine is ending. A killed engine with much memory keeps a GPU's memory for seconds after its supervisor has
/// gone, and an engine that opens the GPU meanwhile finds too little.
pub fn wait_for_ending_engines() {
    let deadline = Instant::now() + ENDING_WAIT_MAX;
    let mut is_told = false;
    while let Some(pid) = ending_engine() {
        if Instant::now() >= deadline {
            tracing::warn!(
                pid,
                "an engine has not ended within {ENDING_WAIT_MAX:?}; a GPU is opened beside it"
            );
            return;
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::info!(pid, "waits for an engine that is ending");
        }
        std::thread::sleep(ENDING_POLL_INTERVAL);
    }
}

/// Finds an engine's process that is ending in the kernel.
fn ending_engine() -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|pid| {
        let folder = Path::new("/proc").join(pid.to_string());
        let Ok(line) = fs::read_to_string(folder.join("stat")) else { return false };
        is_ending_engine(&line, || fs::read_dir(folder.join("task")).is_ok_and(|tasks| tasks.count() > 1))
    })
}

/// Whether a line of `/proc/<pid>/stat` shows an ending process. Its first thread may have ended before others.
fn is_ending_engine(line: &str, has_more_threads: impl FnOnce() -> bool) -> bool {
    let Some((front, back)) = line.rsplit_once(')') else { return false };
    let mut fields = back.split_ascii_whitespace();
    let (state, flags) =
        (fields.next(), fields.nth(FLAGS_AFTER_STATE).and_then(|flags| flags.parse::<u32>().ok()));
    let is_ending = flags.is_some_and(|flags| flags & EXITING != 0);
    let is_engine = front.split_once('(').is_some_and(|(_, name)| name == ENGINE_NAME);
    is_engine && is_ending && (state != Some("Z") || has_more_threads())
}

/// How a child ends that the kernel is ending, and that was not waited for: `waitpid` says it only when the process is gone, which
/// takes seconds with a GPU. Not of one that ends with status 0: that is what the kernel shows before it knows.
pub fn ending_status(pid: u32) -> Option<ExitStatus> {
    ending_status_of(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn ending_status_of(line: &str) -> Option<ExitStatus> {
    let (_, back) = line.rsplit_once(')')?;
    let mut fields = back.split_ascii_whitespace().skip(1);
    let flags: u32 = fields.nth(FLAGS_AFTER_STATE)?.parse().ok()?;
    let status: i32 = fields.nth(STATUS_AFTER_FLAGS)?.parse().ok()?;
    (flags & EXITING != 0 && status != 0).then(|| ExitStatus::from_raw(status))
}

/// Waits until `parent` is no longer this process's parent.
pub async fn wait_for_orphaning(parent: u32) {
    let mut interval = tokio::time::interval(PARENT_POLL_INTERVAL);
    while parent_id() == parent {
        interval.tick().await;
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
    fn an_engine_is_ending_from_when_the_kernel_says_so_until_its_last_thread_has_ended() {
        let line = |name: &str, state: &str, flags: u32| {
            format!("31 ({name}) {state} 1 31 31 0 -1 {flags} 4211 0 0 0 1 2 0 0 20 0 9 0 88 0 0")
        };
        let [alone, with_others] = [false, true].map(|others| move || others);
        assert!(is_ending_engine(&line(ENGINE_NAME, "R", 4194304 | EXITING), alone));
        assert!(is_ending_engine(&line(ENGINE_NAME, "Z", 4194304 | EXITING), with_others));
        for (line, why) in [
            (line(ENGINE_NAME, "S", 4194304), "runs"),
            (line(ENGINE_NAME, "Z", 4194304 | EXITING), "is only to be waited for"),
            (line("postgres", "R", 4194304 | EXITING), "is no engine"),
            (line(") R 1 1 1 0 -1 4 (x", "S", 0), "has a name that looks so"),
            (String::new(), "is nothing"),
        ] {
            assert!(!is_ending_engine(&line, alone), "{why}");
        }
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!is_ending_engine(&own, with_others));
        wait_for_ending_engines();
    }

    #[test]
    fn how_a_child_ends_is_known_before_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(ending_status(child.id()), None);
        child.kill().unwrap();
        let ending = loop {
            match ending_status(child.id()) {
                Some(ending) => break ending,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!((ending.signal(), child.wait().unwrap()), (Some(libc::SIGKILL), ending));
        assert_eq!(ending_status(child.id()), None);
    }

    #[test]
    fn a_status_of_0_may_be_one_that_is_not_known_yet() {
        let line = |flags: u32, status: i32| {
            format!("31 (a) b) D 1 31 31 0 -1 {flags}{} {status}", " 0".repeat(STATUS_AFTER_FLAGS))
        };
        assert_eq!(ending_status_of(&line(EXITING, 1 << 8)).and_then(|status| status.code()), Some(1));
        for (line, why) in [
            (line(EXITING, 0), "may end with anything"),
            (line(0, 9), "runs"),
            ("31 (a) D 1".to_owned(), "is cut off"),
            (String::new(), "is nothing"),
        ] {
            assert_eq!(ending_status_of(&line), None, "{why}");
        }
    }
}
