//! The driver's errors as plan errors.

use cudarc::driver::{DriverError, sys::CUresult};
use pystachio_plan::{Error, ErrorKind};

/// Whether the driver has refused only this call. It then works on, and so do other queries. After any other error every
/// call may fail.
fn is_refusal(result: CUresult) -> bool {
    matches!(
        result,
        CUresult::CUDA_ERROR_INVALID_VALUE
            | CUresult::CUDA_ERROR_INVALID_HANDLE
            | CUresult::CUDA_ERROR_NOT_FOUND
            | CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
            | CUresult::CUDA_ERROR_NOT_PERMITTED
            | CUresult::CUDA_ERROR_NOT_SUPPORTED
    )
}

/// What a call of the driver failed with. `action` says what was tried.
pub(crate) fn from_driver(action: &str, error: DriverError) -> Error {
    let name = error.error_name().ok().and_then(|name| name.to_str().ok()).unwrap_or("unknown error");
    let message = format!("the GPU could not {action}: {name}");
    match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::new(ErrorKind::OutOfMemory, message)
            .with_hint("Lower the server option device_memory, or free memory of the GPU that others hold."),
        refusal if is_refusal(refusal) => Error::internal(message).with_hint(
            "This is a bug in pystachio. Please report it with the query. Other queries are not affected.",
        ),
        // What can't be undone in this process: the context is lost with whatever was on the device.
        _ => Error::new(ErrorKind::Device, message).with_hint(
            "Run the query again: the engine restarts by itself. Look into the server log for the reason.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_device_does_not_survive_is_no_refusal() {
        for refusal in [CUresult::CUDA_ERROR_INVALID_VALUE, CUresult::CUDA_ERROR_NOT_SUPPORTED] {
            assert!(is_refusal(refusal), "{refusal:?}");
        }
        for fault in [
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            CUresult::CUDA_ERROR_LAUNCH_FAILED,
            CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
            CUresult::CUDA_ERROR_INVALID_CONTEXT,
            CUresult::CUDA_ERROR_UNKNOWN,
        ] {
            assert!(!is_refusal(fault), "{fault:?}");
        }
    }
}
