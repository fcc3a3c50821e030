//! Devices: their memory, and the placement and lifetime of columns.
//!
//! - `platform.rs`: memory, copies, streams and launches, the interface between this crate and a
//!   kind of device; `kernel.rs`: the list of kernels
//! - `emulated.rs`: a platform on the host, running the kernels' own sources; `poison.rs`: its
//!   poison for cells of NULL rows
//! - `memory.rs`: buffers; `arena.rs`: limits for each user
//! - `upload.rs`: bytes on their way from files to the device
//! - `host.rs`: page-locked memory of the host, for spilled and evicted data; `staging.rs`: one
//!   piece of it, for copies in passing
//! - `host_budget.rs`: a budget for other host memory; `host_threads.rs`: helper threads for
//!   readers
//! - `decompressor.rs`: libraries that decompress formats without a kernel
//! - `mailbox.rs`: counts and faults on their way to the host
//! - `column.rs`: columns and chunks in a device's memory
//! - `speed.rs`: how fast a device is
//! - `activity.rs`: activities of a query; `call_watch.rs`: calls that do not return
//!
//! Invariants: work is ordered by [`Stream`]. A stream uses another one's buffers after
//! [`Buffer::use_on`]; before that, the other one has published them ([`DeviceMemory::publish`]) or
//! the host has waited for it. A buffer's memory is not reused before the work of all streams that
//! use it; the host waits for none of them.
//!
//! Deliberately absent: CUDA. `src/cuda` implements [`Platform`] over it.

mod activity;
mod arena;
mod call_watch;
mod column;
mod decompressor;
mod emulated;
mod host;
mod host_budget;
mod host_threads;
mod kernel;
mod mailbox;
mod memory;
mod platform;
mod poison;
mod speed;
mod staging;
mod upload;

pub use crate::abi::{CellType, FrameFormat, StringCell};
pub use activity::{ActivityLog, NotedActivity, device_work};
pub use arena::{Claim, Reclaim, Reservation};
pub use call_watch::{CallGuard, CallWatch};
pub(crate) use column::held_bytes;
pub use column::{
    AnyColumn, CODE_BYTES, Chunk, CodedColumn, Column, DECIMAL64_DIGITS_MAX, DECIMAL128_DIGITS_MAX,
    DECIMAL256_DIGITS_MAX, HeldMemory, Rows,
};
pub use decompressor::{BatchSize, Decompressor, FrameBatch};
pub use emulated::{EmulatedPlatform, Refusal};
pub use host::{HostBytes, HostMemory};
pub use host_budget::{HostBudget, HostShare};
pub use host_threads::{HostThreads, LentThreads};
pub use kernel::{KERNELS, Kernel};
pub use mailbox::Readback;
pub use memory::{Buffer, DeviceMemory, Lifetime, MemoryTechniques, PoolUse, StreamLease};
pub use platform::{Event, Platform, Stream, StreamPriority, TimedEvent};
pub use poison::NullCells;
pub use speed::DeviceSpeed;
pub use staging::StagingBuffer;
pub use upload::{DeviceFile, DeviceFileMode};
