//! What kernels need of a kind of device besides its memory.

use pystachio_plan::Result;

use super::Kernel;
use crate::device::{Platform, Stream};

/// A platform that runs kernels.
pub trait KernelPlatform: Platform {
    /// Runs a kernel over `grid` blocks. `arguments` is its struct, byte for byte as in kernels/abi.
    ///
    /// # Errors
    ///
    /// `Device` for a fault of the device, which is then lost to this process.
    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], stream: Stream) -> Result<()>;
}
