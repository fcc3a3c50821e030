//! What kernels report, as errors.

use pystachio_plan::{Error, ErrorKind, Result};

use super::Queue;
use crate::device::{Buffer, abi::Status};

/// A status word on the device.
pub struct StatusCell {
    buffer: Buffer,
}

/// What a fault in a file is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultContext<'a> {
    /// The file, if the kernel reads one.
    pub path: Option<&'a str>,
    /// The column, if the kernel reads one.
    pub column: Option<&'a str>,
}

impl StatusCell {
    /// A status that says that all is well.
    pub fn new(queue: &Queue) -> Result<Self> {
        Ok(Self { buffer: queue.memory().allocate_zeroed(size_of::<Status>() as u64, queue.stream())? })
    }

    /// What kernels are given.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// Waits, and turns a report into an error.
    ///
    /// # Errors
    ///
    /// What the first report says.
    pub fn check(&self, queue: &Queue, context: FaultContext<'_>) -> Result<()> {
        match queue.download::<Status>(&self.buffer, 1)?.first() {
            Some(status) if status.code != 0 => Err(fault(*status, context)),
            _ => Ok(()),
        }
    }
}

/// The error of a status that is not 0. Messages of functions are PostgreSQL's.
fn fault(status: Status, context: FaultContext<'_>) -> Error {
    let place = match (context.path, context.column) {
        (Some(path), Some(column)) => format!(" \"{path}\", column \"{column}\""),
        (Some(path), None) => format!(" \"{path}\""),
        _ => String::new(),
    };
    let (kind, message) = match status.code {
        1 => (ErrorKind::NumericOutOfRange, "smallint out of range".to_owned()),
        2 => (ErrorKind::NumericOutOfRange, "integer out of range".to_owned()),
        3 => (ErrorKind::NumericOutOfRange, "bigint out of range".to_owned()),
        4 => (ErrorKind::NumericOutOfRange, "numeric value out of range".to_owned()),
        5 => (ErrorKind::NumericOutOfRange, "numeric field overflow".to_owned()),
        6 => (ErrorKind::DivisionByZero, "division by zero".to_owned()),
        7 => (ErrorKind::NumericOutOfRange, "value out of range: overflow".to_owned()),
        8 => (ErrorKind::NumericOutOfRange, "value out of range: underflow".to_owned()),
        9 => (ErrorKind::SubstringLength, "negative substring length not allowed".to_owned()),
        10 => (ErrorKind::DatetimeOutOfRange, "date out of range".to_owned()),
        11 => (ErrorKind::DatetimeOutOfRange, "timestamp out of range".to_owned()),
        12 => (ErrorKind::InvalidPowerArgument, "cannot take square root of a negative number".to_owned()),
        13 => (ErrorKind::EscapeSequence, "LIKE pattern must not end with escape character".to_owned()),
        14 => (ErrorKind::DatetimeOutOfRange, "interval out of range".to_owned()),
        15 => (ErrorKind::StringTooLong, format!("a value is longer than its column allows: file{place}")),
        16 => (ErrorKind::NullNotAllowed, format!("a column declared NOT NULL has a NULL: file{place}")),
        32..=36 => {
            (ErrorKind::FileCorrupt, format!("a page is corrupt: file{place}, page {}", status.detail))
        }
        code => (ErrorKind::Internal, format!("a kernel failed: code={code}, detail={}", status.detail)),
    };
    Error::new(kind, message)
}
