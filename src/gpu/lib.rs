//! The GPU engine: plans run on a device, whose operations are kernels.
//!
//! - `execution`: a tree of sources that give chunks; hosts start [`execution::DeviceEngine`]
//! - `decode`: column chunks of Parquet become columns; `program`: expressions become a byte-code
//! - `segment`: columns that stay on the device, packed
//! - `spill`: rows that do not fit on the device
//! - `exchange`: rows moving between ranks
//! - `operation`: the building blocks of operators, implemented by kernels
//! - `device`: memory, columns, streams; the platform interface, and the emulated platform
//! - `abi.rs`: what kernels are given, which the build makes of kernels/abi
//! - `file_systems.rs`: methods of reading files to a device; `affinity`: which disks are near a
//!   GPU
//!
//! Invariants: a result is the CPU engine's, or the query is refused with `NotSupported` before its first row.
//!
//! Deliberately absent: CUDA, which `src/cuda` has; footers and how the host reads files (`src/files`); PostgreSQL,
//! DataFusion, sockets.

mod abi;
pub mod affinity;
pub mod decode;
pub mod device;
pub mod exchange;
pub mod execution;
mod file_systems;
pub mod operation;
pub mod program;
pub mod segment;
pub mod spill;
