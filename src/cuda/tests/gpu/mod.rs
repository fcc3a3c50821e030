//! The GPU that the tests of this folder run on.

pub mod ranks;

use pystachio_cuda::CudaPlatform;

/// Whether a variable of the environment is 1.
pub fn is_set(name: &str) -> bool {
    std::env::var(name).as_deref() == Ok("1")
}

/// The GPU. Without one says so, and with `PYSTACHIO_REQUIRE_GPU=1` fails.
#[allow(dead_code, reason = "not every test has just one")]
pub fn open() -> Option<CudaPlatform> {
    CudaPlatform::open(0)
        .inspect_err(|error| {
            assert!(!is_set("PYSTACHIO_REQUIRE_GPU"), "{error}");
            println!("skipped: {error}");
        })
        .ok()
}
