//! Operations by kernels: [`KernelDevice`], over any platform that can launch them.
//!
//! - `device.rs`: [`KernelDevice`]; `platform.rs`: [`KernelPlatform`]; `list.rs`: which kernels there are
//! - `rows.rs`, `text.rs`, `join.rs`, `key_filter.rs`, `group.rs`, `slots.rs`, `sort.rs`, `text_ranks.rs`, `partition.rs`: the
//!   operations, as `operation/` describes them; `evaluate.rs`: programs; `decode.rs`: pages, which `decode/` prepares
//! - `abi.rs`: what kernels are given, laid out as in kernels/abi; `fault.rs`: what they report
//! - `traffic.rs`: the bytes that a launch moves
//!
//! Invariants: nothing outside of this module, the parts of `decode/` that it calls and the platforms launches a
//! kernel: that takes a [`KernelDevice`] or a [`KernelPlatform`], and neither a queue nor a
//! [`crate::device::DeviceMemory`] gives one.
//!
//! Deliberately absent: plans, files, threads.

mod abi;
mod decode;
mod device;
mod evaluate;
mod fault;
mod group;
mod join;
mod key_filter;
mod list;
mod partition;
mod platform;
mod rows;
mod slots;
mod sort;
mod text;
mod text_ranks;
mod traffic;

pub(crate) use abi::Status;
pub use device::KernelDevice;
pub use list::{KERNELS, Kernel};
pub use platform::KernelPlatform;
