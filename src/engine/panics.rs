//! Panics that were caught, as errors.

use std::any::Any;

use pystachio_plan::Error;

/// Turns a panic that was caught in a query's thread into an error.
pub fn from_panic(payload: &(dyn Any + Send)) -> Error {
    let message = payload
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned());
    Error::internal(format!("the engine failed while it ran the query: {message}"))
}
