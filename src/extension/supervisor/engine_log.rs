//! Copies an engine's standard error to the database server's log, line by line: with the server's prefix, in the server's log
//! format, and with the engine's server and database.
//!
//! Invariants: the supervisor reads as soon as there is output, so the engine never blocks for long. The length of a line is
//! bounded, and so is each read.

use std::{
    io::{ErrorKind, Read},
    os::fd::{AsRawFd, RawFd},
    process::ChildStderr,
};

use pgrx::prelude::*;

use crate::pg::wait::set_nonblocking;

/// What is longer is logged in parts.
const LINE_BYTES_MAX: usize = 8 << 10;
/// What is read before signals are looked at again.
const READ_BYTES_MAX: usize = 256 << 10;

/// The standard error of a running engine.
pub struct EngineLog {
    /// Absent once it has been closed.
    pipe: Option<ChildStderr>,
    /// Whose engine it is, in words.
    owner: String,
    /// What was read of a line that has no end yet.
    rest: Vec<u8>,
}

impl EngineLog {
    /// The standard error of an engine whose log lines name it `owner`.
    ///
    /// # Errors
    ///
    /// The pipe can't be read without waiting.
    pub fn new(pipe: ChildStderr, owner: String) -> std::io::Result<Self> {
        set_nonblocking(pipe.as_raw_fd())?;
        Ok(Self { pipe: Some(pipe), owner, rest: Vec::new() })
    }

    /// What becomes readable when there is something.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.pipe.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Logs what there is, up to the last whole line.
    pub fn relay(&mut self) {
        let mut buffer = [0; LINE_BYTES_MAX];
        for _ in 0..READ_BYTES_MAX / LINE_BYTES_MAX {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.take(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Logs all that there is. The engine has ended.
    pub fn finish(&mut self) {
        self.relay();
        let rest = std::mem::take(&mut self.rest);
        self.write(&rest);
    }

    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") || self.rest.len() >= LINE_BYTES_MAX {
                let line = std::mem::take(&mut self.rest);
                self.write(&line);
            }
        }
    }

    fn write(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let (level, text) = split_level(line);
        let owner = &self.owner;
        match level {
            Some("ERROR") => warning!("{owner}: error: {text}"),
            Some("WARN") => warning!("{owner}: {text}"),
            Some("INFO") | None => log!("{owner}: {text}"),
            // The server's option log_level has said that these are wanted.
            Some(other) => log!("{owner}: {}: {text}", other.to_ascii_lowercase()),
        }
    }
}

/// The level of a line that begins with a time and a level, as an engine's do, and what comes after both.
fn split_level(line: &str) -> (Option<&str>, &str) {
    let has_time =
        |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit()) && word.ends_with('Z');
    let words = line.split_once(' ').filter(|(time, _)| has_time(time));
    let leveled = words.and_then(|(_, after)| after.trim_start().split_once(' '));
    match leveled {
        Some((level @ ("ERROR" | "WARN" | "INFO" | "DEBUG" | "TRACE"), text)) => {
            (Some(level), text.trim_start())
        }
        _ => (None, line),
    }
}
