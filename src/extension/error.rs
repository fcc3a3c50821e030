//! From an error of the plan language to an ERROR of PostgreSQL.

use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys::panic::ErrorReport};
use pystachio_plan::{Error, ErrorKind};

use crate::pg::encoding::to_message;

/// Keeps Rust's backtraces out of the DETAIL of errors, where pgrx puts them if the server was started
/// with RUST_BACKTRACE set. RUST_LIB_BACKTRACE, where it is set, still decides.
#[expect(unsafe_code, reason = "changes the environment")]
pub fn without_backtraces() {
    if std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
        // SAFETY: a PostgreSQL process has one thread when it loads a library.
        unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    }
}

/// The SQLSTATE of each kind of failure.
pub fn sqlstate(kind: ErrorKind) -> PgSqlErrorCode {
    match kind {
        ErrorKind::FileNotFound => PgSqlErrorCode::ERRCODE_UNDEFINED_FILE,
        ErrorKind::FilePermission => PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
        ErrorKind::FileAccess => PgSqlErrorCode::ERRCODE_IO_ERROR,
        ErrorKind::FileCorrupt => PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
        ErrorKind::FilesChanged => PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
        ErrorKind::SchemaMismatch => PgSqlErrorCode::ERRCODE_FDW_INVALID_DATA_TYPE,
        ErrorKind::NullNotAllowed => PgSqlErrorCode::ERRCODE_NOT_NULL_VIOLATION,
        ErrorKind::StringTooLong => PgSqlErrorCode::ERRCODE_STRING_DATA_RIGHT_TRUNCATION,
        ErrorKind::NumericOutOfRange => PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
        ErrorKind::DivisionByZero => PgSqlErrorCode::ERRCODE_DIVISION_BY_ZERO,
        ErrorKind::DatetimeOutOfRange => PgSqlErrorCode::ERRCODE_DATETIME_FIELD_OVERFLOW,
        ErrorKind::InvalidDatetime => PgSqlErrorCode::ERRCODE_INVALID_DATETIME_FORMAT,
        ErrorKind::InvalidArgument => PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        ErrorKind::SubstringLength => PgSqlErrorCode::ERRCODE_SUBSTRING_ERROR,
        ErrorKind::EscapeSequence => PgSqlErrorCode::ERRCODE_INVALID_ESCAPE_SEQUENCE,
        ErrorKind::InvalidPowerArgument => PgSqlErrorCode::ERRCODE_INVALID_ARGUMENT_FOR_POWER_FUNCTION,
        ErrorKind::InvalidLogarithmArgument => PgSqlErrorCode::ERRCODE_INVALID_ARGUMENT_FOR_LOG,
        ErrorKind::LimitExceeded => PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        ErrorKind::UntranslatableCharacter => PgSqlErrorCode::ERRCODE_UNTRANSLATABLE_CHARACTER,
        ErrorKind::InvalidText => PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION,
        ErrorKind::NotSupported => PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        ErrorKind::OutOfMemory => PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
        ErrorKind::SpillLimit => PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        ErrorKind::Cancelled => PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
        ErrorKind::Protocol => PgSqlErrorCode::ERRCODE_PROTOCOL_VIOLATION,
        ErrorKind::Unavailable | ErrorKind::Retired => PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE,
        ErrorKind::Device => PgSqlErrorCode::ERRCODE_SYSTEM_ERROR,
        ErrorKind::Peer => PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE,
        ErrorKind::Internal => PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
    }
}

/// Ends the statement with this error.
pub fn raise(error: Error) -> ! {
    let mut report = ErrorReport::new(sqlstate(error.kind), to_message(error.message), "pystachio");
    if let Some(detail) = error.detail {
        report = report.set_detail(to_message(detail));
    }
    if let Some(hint) = error.hint {
        report = report.set_hint(to_message(hint));
    }
    report.report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// A result whose error ends the statement.
pub trait OrRaise<T> {
    /// The value, or [`raise`].
    fn or_raise(self) -> T;
}

impl<T> OrRaise<T> for pystachio_plan::Result<T> {
    fn or_raise(self) -> T {
        self.unwrap_or_else(|error| raise(error))
    }
}
