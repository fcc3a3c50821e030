//! Another rank's process, as rank 0 starts and ends it: a child of its own, or one on another host.
//!
//! Invariants: a rank's process on this host is a child of this process, in its process group. It ends with this process: its control
//! connection closes, or the kernel kills it. Rank 0 waits for it, so no zombie stays.
#![expect(unsafe_code, reason = "says between fork and exec when a process dies, and sends signals")]

use std::{
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Child, Command, ExitStatus, Stdio},
};

use pystachio_gpu::exchange::Rank;

use super::hosts::{HostRank, Hosts};
use crate::process::ending_status;

/// The executable of this process, whatever has become of its file: ranks of different versions do not understand each other.
const EXECUTABLE: &str = "/proc/self/exe";
/// What processes show as their name.
const NAME: &str = "pystachio-engine";

/// How other ranks are started: as this process was, and as which rank.
#[derive(Clone, Debug)]
pub struct RankCommand {
    /// The arguments of this process.
    pub arguments: Vec<OsString>,
    /// The hosts that ranks are on, where there are several.
    pub hosts: Option<Hosts>,
}

/// A rank's process.
pub(super) enum RankProcess {
    /// On this host.
    Child(ChildProcess),
    /// On another one.
    OnHost(HostRank),
}

/// A rank's process on this host. Dropped, it is killed and waited for.
#[derive(Debug)]
pub(super) struct ChildProcess {
    child: Child,
    has_ended: bool,
}

impl RankCommand {
    /// Starts a rank's process where it belongs, or asks its host to. Called within a runtime; what is said of [`RankCommand::start_child`] holds.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub(super) fn start(&self, rank: Rank) -> io::Result<(RankProcess, UnixStream)> {
        match self.hosts.as_ref().filter(|hosts| hosts.host_of(rank) != hosts.own()) {
            None => self.start_child(rank).map(|(child, socket)| (RankProcess::Child(child), socket)),
            Some(hosts) => {
                HostRank::start(hosts, rank).map(|(process, socket)| (RankProcess::OnHost(process), socket))
            }
        }
    }

    /// Starts a rank's process on this host. It ends when the thread that calls this does. Its end of the control connection is its standard input.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub(super) fn start_child(&self, rank: Rank) -> io::Result<(ChildProcess, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(EXECUTABLE);
        command
            .arg0(NAME)
            .args(&self.arguments)
            .arg(format!("--rank={rank}"))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        let parent = std::process::id();
        // SAFETY: only system calls that are allowed between fork and exec.
        unsafe { command.pre_exec(move || die_with(parent)) };
        Ok((ChildProcess { child: command.spawn()?, has_ended: false }, ours))
    }
}

impl RankProcess {
    /// Its process id; one on another host may have none yet.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Child(child) => Some(child.pid()),
            Self::OnHost(process) => process.pid(),
        }
    }

    /// The other host that it is on, if it is.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Child(_) => None,
            Self::OnHost(process) => Some(process.host()),
        }
    }

    /// What it is called in errors: `process 7 on host b:5611`.
    pub(super) fn name(&self) -> String {
        match (self.pid(), self.host()) {
            (Some(pid), Some(host)) => format!("process {pid} on host {host}"),
            (None, Some(host)) => format!("host {host}"),
            (pid, None) => format!("process {}", pid.unwrap_or(0)),
        }
    }

    /// How it ended, or ends, if it does.
    pub(super) fn end_reason(&mut self) -> Option<String> {
        match self {
            Self::Child(child) => child.end_reason(),
            Self::OnHost(process) => process.end_reason(),
        }
    }

    /// Asks it to end.
    pub(super) fn ask_to_end(&self) {
        match self {
            Self::Child(child) => child.ask_to_end(),
            Self::OnHost(process) => process.end(),
        }
    }

    /// Ends it; on this host, waits for that.
    pub(super) fn kill(&mut self) {
        match self {
            Self::Child(child) => child.kill(),
            Self::OnHost(process) => process.end(),
        }
    }
}

impl ChildProcess {
    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, or ends, if it does. Its connections to others are closed long before the last of a process with a GPU.
    pub(super) fn end_reason(&mut self) -> Option<String> {
        let reason = match self.child.try_wait() {
            Ok(None) => return ending_status(self.child.id()).map(exit_text),
            Ok(Some(status)) => exit_text(status),
            Err(error) => format!("can't be waited for: {error}"),
        };
        self.has_ended = true;
        Some(reason)
    }

    /// Asks it to end.
    pub(super) fn ask_to_end(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Ends it, and waits for that.
    pub(super) fn kill(&mut self) {
        if !self.has_ended {
            self.signal(libc::SIGKILL);
            let _ = self.child.wait();
            self.has_ended = true;
        }
    }

    fn signal(&self, signal: i32) {
        if !self.has_ended {
            // SAFETY: the process is a child that was not waited for, so that its number is its own.
            unsafe { libc::kill(self.child.id() as i32, signal) };
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs in the child: it dies with its parent.
fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: system calls without pointers.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have ended before the first call took effect.
        if libc::getppid() as u32 != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

fn exit_text(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(libc::SIGKILL), _) => {
            "was killed by signal 9 (SIGKILL: by hand, or because the machine is out of memory)".to_owned()
        }
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(0)) => "ended, as it was asked to".to_owned(),
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".to_owned(),
    }
}
