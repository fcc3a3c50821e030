//! The one error that crosses the socket.

use serde::{Deserialize, Serialize};

use crate::general_text;

/// What went wrong, as far as the other side must know to choose a SQLSTATE and a next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// A file or folder that does not exist, or a pattern that matches nothing.
    FileNotFound,
    /// A file that the engine's user may not read or write.
    FilePermission,
    /// Reading or writing failed: the disk is full, the device fails.
    FileAccess,
    /// A file that is not what it should be: not Parquet, truncated, encrypted, a corrupt page.
    FileCorrupt,
    /// Files were replaced after a plan was made for them, which does not hold for the new ones.
    FilesChanged,
    /// A column that a file does not have, or a type that can't be read as the declared one.
    SchemaMismatch,
    /// A NULL in a column that is declared NOT NULL.
    NullNotAllowed,
    /// A value longer than its declared `varchar(n)` or `char(n)`.
    StringTooLong,
    /// A number outside its type, as PostgreSQL reports it.
    NumericOutOfRange,
    /// Division by zero.
    DivisionByZero,
    /// A date or timestamp outside its type.
    DatetimeOutOfRange,
    /// A text that is no date or time of a format.
    InvalidDatetime,
    /// An argument that PostgreSQL rejects too, such as a negative substring length.
    InvalidArgument,
    /// A negative length of a substring.
    SubstringLength,
    /// A pattern that ends with its escape character.
    EscapeSequence,
    /// A root or power that is no real number.
    InvalidPowerArgument,
    /// A logarithm of what is not positive.
    InvalidLogarithmArgument,
    /// A value that PostgreSQL would not make, such as a text of 1 GB.
    LimitExceeded,
    /// Text that can't be read as the type it is cast to.
    InvalidText,
    /// A character that no text has: that of code 0.
    UntranslatableCharacter,
    /// The plan asks for what this engine does not have.
    NotSupported,
    /// The memory that the server option `memory` allows is used up.
    OutOfMemory,
    /// Spill files would hold more than a setting or an option allows.
    SpillLimit,
    /// The query was cancelled.
    Cancelled,
    /// The two sides do not speak the same protocol.
    Protocol,
    /// The engine can't be reached, or went away.
    Unavailable,
    /// The device failed, or was lost. The engine that used it ends, and is started anew.
    Device,
    /// Another rank failed, hangs or is gone, or has given up the query. This one's device is fine, and its engine goes on.
    Peer,
    /// A bug of ours.
    Internal,
    /// The engine ends, and has not begun the request. The request may be sent to the engine that comes next.
    Retired,
}

/// An error with what a user needs to act on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of failure this is.
    pub kind: ErrorKind,
    /// Names the object and the value; lower case, no full stop.
    pub message: String,
    /// More about the circumstances, if there is more.
    pub detail: Option<String>,
    /// The way out, if there is one.
    pub hint: Option<String>,
}

/// The reason of a failed system call in PostgreSQL's words, without Rust's "(os error N)".
pub fn system_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// A result with the crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with neither detail nor hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), detail: None, hint: None }
    }

    /// A bug of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// PostgreSQL's error of seconds since 1970 that are no moment.
    pub fn no_moment(seconds: f64) -> Self {
        if seconds.is_nan() {
            return Self::new(ErrorKind::DatetimeOutOfRange, "timestamp cannot be NaN");
        }
        let message = format!("timestamp out of range: \"{}\"", general_text(seconds, 6));
        Self::new(ErrorKind::DatetimeOutOfRange, message)
    }

    /// The same error with more about the circumstances.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The same error with the way out.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_printed_as_c_prints_them() {
        let seconds = [-210_866_803_201.0, 1e20, 9_224_318_016_000.0, 1.234_565e100, -1e308, f64::NAN];
        let found = seconds.map(|seconds| Error::no_moment(seconds).message);
        let out = |seconds: &str| format!("timestamp out of range: \"{seconds}\"");
        let expected = ["-2.10867e+11", "1e+20", "9.22432e+12", "1.23456e+100", "-1e+308"].map(out);
        assert_eq!(found[..5], expected);
        assert_eq!(found[5], "timestamp cannot be NaN");
    }
}
