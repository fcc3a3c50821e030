//! The driver's errors as plan errors.

use cudarc::driver::{DriverError, sys::CUresult};
use pystachio_plan::{Error, ErrorKind};

/// What a call of the driver failed with. `action` says what was tried.
pub(crate) fn from_driver(action: &str, error: DriverError) -> Error {
    let name = error.error_name().ok().and_then(|name| name.to_str().ok()).unwrap_or("unknown error");
    let message = format!("the GPU could not {action}: {name}");
    match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::new(ErrorKind::OutOfMemory, message)
            .with_hint("Lower the server option device_memory, or free memory of the GPU that others hold."),
        // What can't be undone in this process: the context is lost with whatever was on the device.
        _ => Error::new(ErrorKind::Device, message).with_hint(
            "The engine is restarted by itself; run the query again. The server log may say more.",
        ),
    }
}
