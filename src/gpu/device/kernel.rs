//! The list of kernels of kernels/abi/kernels.h.

use crate::abi::BLOCK_THREADS;

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

impl Kernel {
    /// The entry's name.
    pub fn name(self) -> &'static str {
        KERNEL_NAMES[self as usize]
    }

    /// Threads of a block.
    pub const fn block_threads(self) -> u32 {
        KERNEL_THREADS[self as usize]
    }
}
