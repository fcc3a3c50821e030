//! Errors of the file system and of Parquet as plan errors, each naming the file.

use std::{error::Error as StandardError, io, path::Path};

use parquet::errors::ParquetError;
use pystachio_plan::{Error, ErrorKind, system_reason};

/// What went wrong with a file, by the operating system.
pub fn from_io(path: &Path, action: &str, error: &io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::FileNotFound, format!("file \"{path}\" does not exist"))
        }
        io::ErrorKind::PermissionDenied => {
            Error::new(ErrorKind::FilePermission, format!("could not {action} \"{path}\": permission denied"))
                .with_hint(
                    "Engines run as the operating system user of the PostgreSQL server. Give that user access to the file and to each folder above it.",
                )
        }
        io::ErrorKind::UnexpectedEof => Error::new(
            ErrorKind::FileCorrupt,
            format!("file \"{path}\" is truncated: it ended while the engine read it"),
        ),
        _ => {
            let reason = system_reason(error);
            Error::new(ErrorKind::FileAccess, format!("could not {action} \"{path}\": {reason}"))
        }
    }
}

/// What went wrong with a file, by the Parquet reader. An error of ours that it carries comes out as it
/// went in.
pub fn from_parquet(path: &Path, error: &ParquetError) -> Error {
    if let ParquetError::External(source) = error {
        if let Some(own) = find_own(source.as_ref()) {
            return own;
        }
        if let Some(source) = source.downcast_ref::<io::Error>() {
            return from_io(path, "read", source);
        }
    }
    let reason = match error {
        ParquetError::General(message)
        | ParquetError::NYI(message)
        | ParquetError::EOF(message)
        | ParquetError::ArrowError(message) => message.trim_end_matches('.').to_owned(),
        other => other.to_string(),
    };
    corrupt_file(path, &reason)
}

/// The error of a file that is damaged, or no Parquet.
pub fn corrupt_file(path: &Path, reason: &str) -> Error {
    let message = format!("could not read Parquet file \"{}\": {reason}", path.display());
    Error::new(ErrorKind::FileCorrupt, message)
}

fn find_own(error: &(dyn StandardError + 'static)) -> Option<Error> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(own) = error.downcast_ref::<Error>() {
            return Some(own.clone());
        }
        current = error.source();
    }
    None
}
