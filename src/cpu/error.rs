//! Errors of DataFusion and Arrow as plan errors.
//!
//! Invariants: an error of our own that travels through DataFusion as `External` comes out as it went in,
//! however deep it is wrapped. An error that names a file keeps the name.

use std::{error::Error as StandardError, io};

use crate::datafusion::error::DataFusionError;
use arrow::error::ArrowError;
use pystachio_plan::{Error, ErrorKind};

/// What the message of a memory pool begins with; what the memory was for comes after it.
pub(crate) const REFUSED: &str = "refused: ";

/// Wraps an error of ours for a way through DataFusion; [`from_datafusion`] gives it back.
pub(crate) fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The plan error that a DataFusion error carries or amounts to.
pub(crate) fn from_datafusion(error: &DataFusionError) -> Error {
    if let Some(own) = find_own(error) {
        return own;
    }
    match error.find_root() {
        DataFusionError::ResourcesExhausted(message) => match message.strip_prefix(REFUSED) {
            Some(what) => out_of_memory(what),
            None => out_of_memory("an operator of it"),
        },
        DataFusionError::ArrowError(source, _) => from_arrow(source),
        DataFusionError::IoError(source) => Error::new(ErrorKind::FileAccess, source.to_string()),
        DataFusionError::NotImplemented(message) => Error::new(ErrorKind::NotSupported, message.clone()),
        other => Error::internal(other.to_string()),
    }
}

/// The plan error that an Arrow error carries or amounts to.
pub(crate) fn from_arrow(error: &ArrowError) -> Error {
    if let Some(own) = find_own(error) {
        return own;
    }
    match error {
        ArrowError::DivideByZero => Error::new(ErrorKind::DivisionByZero, "division by zero"),
        ArrowError::ArithmeticOverflow(message) => {
            Error::new(ErrorKind::NumericOutOfRange, "value out of range").with_detail(message.clone())
        }
        ArrowError::IoError(message, _) => Error::new(ErrorKind::FileAccess, message.clone()),
        ArrowError::NotYetImplemented(message) => Error::new(ErrorKind::NotSupported, message.clone()),
        other => Error::internal(other.to_string()),
    }
}

/// A query that gets no more memory; `what` it was for.
pub(crate) fn out_of_memory(what: &str) -> Error {
    let error = Error::new(
        ErrorKind::OutOfMemory,
        "the query needs more memory than the server's option \"memory\" allows",
    );
    error
        .with_detail(format!("There is no memory for {what}."))
        .with_hint("Increase the option \"memory\" of the foreign server, or run fewer queries at once.")
}

/// The error of ours at the end of a chain of sources.
fn find_own(error: &(dyn StandardError + 'static)) -> Option<Error> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(own) = error.downcast_ref::<Error>() {
            return Some(own.clone());
        }
        current = match error.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Collection(errors)) => {
                return errors.iter().find_map(|error| find_own(error));
            }
            _ => match (error.downcast_ref::<ArrowError>(), error.downcast_ref::<io::Error>()) {
                (Some(ArrowError::ExternalError(inner)), _) => Some(inner.as_ref()),
                // Its source is that of the error that it carries.
                (_, Some(carrier)) => carrier.get_ref().map(|inner| inner as _),
                _ => error.source(),
            },
        };
    }
    None
}
