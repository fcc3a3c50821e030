//! The CUDA platform: memory, copies and kernel launches on an NVIDIA GPU.
//!
//! - `platform.rs`: [`CudaPlatform`], a [`pystachio_gpu::device::Platform`] that launches kernels
//! - `staging.rs`: page-locked memory that every copy from and to the host passes through
//! - `cufile.rs`: file reads directly into GPU memory
//! - `nvcomp.rs`: a library that decompresses on the GPU
//! - `nccl/`: carries blocks of exchanges between GPUs
//! - `library.rs`: finds libraries of the host and their versions
//! - `fault.rs`: the driver's errors as plan errors
//!
//! Libraries are opened at run time: without a driver this crate loads, and says what is missing.
//!
//! Deliberately absent: plans, PostgreSQL. No other crate names cudarc or embeds kernels.

mod cufile;
mod fault;
mod library;
pub mod nccl;
mod nvcomp;
mod platform;
mod staging;

pub use library::library_lines;
pub use platform::{CudaPlatform, SharedRegions};

include!(concat!(env!("OUT_DIR"), "/modules.rs"));
