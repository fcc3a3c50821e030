//! An engine's process: starting it, asking it to end, noticing its end.
//!
//! The worker forks and the child calls exec at once: between the two it makes system calls only, and touches no shared memory.
#![expect(unsafe_code, reason = "sets up the child between fork and exec")]

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ExitStatus, Stdio},
};

use super::{EngineHome, budget::Share, engine_log::EngineLog, executable, processors::Processors};
use crate::settings;

/// Where PostgreSQL has its own temporary files: base backups leave it out, and a server that starts empties it.
const SPILL_DIRECTORY: &str = "base/pgsql_tmp";
/// Where cuFile logs, which otherwise is the working directory: that of the data.
const CUFILE_LOG_VARIABLE: &str = "CUFILE_LOGFILE_PATH";
/// How many streams a GPU takes work from at once. With the driver's 8, those of one query wait for one another, and for those of
/// all other queries.
const CONNECTIONS_VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
const CONNECTIONS: &str = "32";
/// What NCCL reads from the environment of ranks that use it (`src/cuda/nccl`).
const NCCL_VARIABLES: [(&str, &str); 2] = [("NCCL_NVLS_ENABLE", "0"), ("NCCL_P2P_DIRECT_DISABLE", "1")];
/// The kernel's flag of a process that is ending (`PF_EXITING`).
const EXITING: u32 = 0x4;
/// Fields of `/proc/<pid>/stat` between the process's name and its flags, and between these and how it ends, as `waitpid` will say.
const FIELDS_BEFORE_FLAGS: usize = 6;
const FIELDS_BEFORE_STATUS: usize = 42;
/// `CLOSE_RANGE_CLOEXEC` of linux/close_range.h.
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// A running engine. Dropped, it is killed.
pub struct EngineProcess {
    child: Child,
    log: EngineLog,
    share: Share,
}

/// How a process ended.
pub struct Exit {
    /// In words: `was killed by signal 9 (SIGKILL)`.
    pub reason: String,
    /// With status 0.
    pub is_success: bool,
}

impl EngineProcess {
    /// Starts the engine of this folder, whose log lines name it `owner`.
    ///
    /// # Errors
    ///
    /// The executable can't be run; the error names it. Or the kernel does not tell the processors.
    pub fn start(home: &EngineHome, share: Share, owner: &str) -> io::Result<Self> {
        // What a process that was killed has left.
        let _ = std::fs::remove_file(home.socket());
        let (mut command, executable) = executable::command()?;
        let (options, resources) = (&home.options, &share.resources);
        let ordinals: Vec<String> = options.devices.iter().map(u32::to_string).collect();
        command
            .arg(format!("--socket={}", home.socket().display()))
            .arg(format!("--device={}", share.device))
            .arg(format!("--ranks={}", options.ranks))
            .arg(format!("--rank-policy={}", options.rank_policy))
            .arg(format!("--rank-processes={}", options.rank_processes))
            .arg(format!("--threads={}", resources.threads))
            .arg(format!("--memory={}", resources.memory_bytes))
            .arg(format!("--cache={}", resources.cache_bytes))
            .arg(format!("--device-ordinals={}", ordinals.join(",")))
            .arg(format!("--device-memory={}", options.device_memory))
            .arg(format!("--pinned-cache={}", resources.pinned_cache_bytes))
            .arg(format!("--device-timeout={}", options.device_timeout_s))
            .arg(format!("--affinity={}", options.affinity))
            .arg(format!("--spill-directory={SPILL_DIRECTORY}"))
            .arg(format!("--name={}", home.server_name))
            .env("PYSTACHIO_LOG", &options.log_level)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if std::env::var_os(CUFILE_LOG_VARIABLE).is_none() {
            command.env(CUFILE_LOG_VARIABLE, home.directory().join("cufile.log"));
        }
        if std::env::var_os(CONNECTIONS_VARIABLE).is_none() {
            command.env(CONNECTIONS_VARIABLE, CONNECTIONS);
        }
        if let Some(bytes_max) = options.spill_bytes_max {
            command.arg(format!("--spill-limit={bytes_max}"));
        }
        if let Some(bytes) = options.object_cache_bytes {
            command.arg(format!("--object-cache={bytes}"));
        }
        if let Some(directory) = &options.object_cache_directory {
            command.arg(format!("--object-cache-directory={directory}"));
        }
        if let Some(hosts) = &options.hosts {
            command
                .arg(format!("--hosts={}", hosts.hosts.join(",")))
                .arg(format!("--host={}", hosts.host))
                .arg(format!("--tls-certificate={}", hosts.tls_certificate))
                .arg(format!("--tls-key={}", hosts.tls_key))
                .arg(format!("--tls-ca={}", hosts.tls_ca));
        }
        if options.rank_count() > 1 {
            command.envs(NCCL_VARIABLES);
        }
        let supervisor_pid = std::process::id();
        let processors = settings::threads().map(|count| Processors::first(count as usize)).transpose()?;
        // SAFETY: only system calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                prepare(supervisor_pid)?;
                processors.as_ref().map_or(Ok(()), Processors::bind)
            });
        }
        let mut child = command.spawn().map_err(|error| {
            io::Error::other(format!("can't be started: \"{}\": {error}", executable.display()))
        })?;
        let pipe = child.stderr.take().ok_or_else(|| io::Error::other("it has no standard error"));
        match pipe.and_then(|pipe| EngineLog::new(pipe, owner.to_owned())) {
            Ok(log) => Ok(Self { child, log, share }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it was started with.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// What it writes to its standard error.
    pub fn log(&mut self) -> &mut EngineLog {
        &mut self.log
    }

    /// How it ended, if it did.
    pub fn exit(&mut self) -> Option<Exit> {
        match self.child.try_wait() {
            Ok(status) => {
                status.map(|status| Exit { reason: exit_text(status), is_success: status.success() })
            }
            Err(error) => Some(Exit { reason: format!("can't be waited for: {error}"), is_success: false }),
        }
    }

    /// Asks it to end when the requests that it runs have ended.
    pub fn retire(&mut self) {
        self.signal_first(libc::SIGUSR1);
    }

    /// Asks it to end if it runs no request.
    pub fn end_if_idle(&mut self) {
        self.signal_first(libc::SIGUSR2);
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        if self.is_running() {
            self.signal_all(libc::SIGTERM);
        }
    }

    /// Kills it, if it has not ended, and logs what it has said.
    pub fn kill(&mut self) {
        if self.is_running() {
            self.signal_all(libc::SIGKILL);
            let _ = self.child.wait();
        }
        self.log.finish();
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// A signal to the process that serves the socket, which ends its ranks itself.
    fn signal_first(&mut self, signal: i32) {
        if self.is_running() {
            // SAFETY: the child has not been waited for, so that its number is its own.
            unsafe { libc::kill(self.child.id() as i32, signal) };
        }
    }

    /// A signal to the process and its ranks.
    fn signal_all(&self, signal: i32) {
        // SAFETY: the child leads its own process group, and has not been waited for.
        unsafe { libc::kill(-(self.child.id() as i32), signal) };
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs in the child: it dies with the supervisor, is out of reach of signals to the server's group, and
/// holds none of the server's files open.
fn prepare(supervisor_pid: u32) -> io::Result<()> {
    // SAFETY: system calls without pointers.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::setpgid(0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The supervisor may have ended before the first call took effect.
        if libc::getppid() as u32 != supervisor_pid {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // Kernels before 5.11 refuse; PostgreSQL closes on exec most of what it opens anyway.
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC);
    }
    Ok(())
}

/// How a process ends that the kernel is ending, and that was not waited for. Not of one that ends with status 0: that is what the
/// kernel shows before it knows.
pub(super) fn ending_reason(pid: u32) -> Option<String> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
    let flags: u32 = fields.nth(FIELDS_BEFORE_FLAGS)?.parse().ok()?;
    let status: i32 = fields.nth(FIELDS_BEFORE_STATUS)?.parse().ok()?;
    (flags & EXITING != 0 && status != 0).then(|| exit_text(ExitStatus::from_raw(status)))
}

fn exit_text(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => match signal_name(signal) {
            Some(name) => format!("was killed by signal {signal} ({name})"),
            None => format!("was killed by signal {signal}"),
        },
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".into(),
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL: by hand, or because the machine is out of memory",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGUSR2 => "SIGUSR2",
        _ => return None,
    })
}
