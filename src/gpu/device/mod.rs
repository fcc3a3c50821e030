//! Devices: their memory, where columns are, and how they come and go.
//!
//! - `platform.rs`: memory, copies, streams and launches, the seam between this crate and a kind of device; `kernel.rs`: which
//!   kernels there are
//! - `emulated.rs`: a platform on the host, running the kernels' own sources; `hostile.rs`: what it puts into cells of NULLs
//! - `memory.rs`: buffers; `arena.rs`: who may use how much
//! - `upload.rs`: bytes on their way from files to the device
//! - `host.rs`: page-locked memory of the host, for what does not fit and what leaves the cache; `staging.rs`: one piece of it, for what passes through
//! - `host_budget.rs`: other memory of the host, which is counted; `host_threads.rs`: threads that help readers
//! - `decompressor.rs`: libraries that decompress what no kernel does
//! - `mailbox.rs`: counts and faults on their way to the host
//! - `column.rs`: columns and chunks in a device's memory
//! - `activity.rs`: what was done for a query and when; `call_watch.rs`: calls that do not return
//!
//! Invariants: work is ordered by [`Stream`]. What one stream made another uses after [`Buffer::use_on`], before which the first
//! one has published it ([`DeviceMemory::publish`]) or the host has waited for it. A buffer's memory is nobody else's before all
//! streams that use it have done so; the host waits for none of them.
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
mod hostile;
mod kernel;
mod mailbox;
mod memory;
mod platform;
mod staging;
mod upload;

pub use activity::{ActivityLog, NotedActivity, device_work};
pub use arena::{Claim, Reclaim};
pub use call_watch::{CallGuard, CallWatch};
pub use column::{
    AnyColumn, CODE_BYTES, CellType, Chunk, CodedColumn, Column, DECIMAL64_DIGITS_MAX, DECIMAL128_DIGITS_MAX,
    DECIMAL256_DIGITS_MAX, HeldMemory, Rows, StringCell,
};
pub use decompressor::{BatchSize, Decompressor, FrameBatch, FrameFormat};
pub use emulated::{EmulatedPlatform, Refusal};
pub use host::{HostBytes, HostMemory};
pub use host_budget::{HostBudget, HostShare};
pub use host_threads::{HostThreads, LentThreads};
pub use hostile::NullCells;
pub use kernel::{KERNELS, Kernel};
pub use mailbox::Readback;
pub use memory::{Buffer, DeviceMemory, Lifetime, MemoryTechniques, PoolUse, StreamLease};
pub use platform::{Event, Platform, Stream, StreamPriority, TimedEvent};
pub use staging::StagingBuffer;
pub use upload::{DeviceFile, DeviceFileMode};
