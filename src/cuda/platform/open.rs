//! Finds a GPU and reads its properties.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::sync::{Arc, Mutex};

use cudarc::driver::{
    result::{self, ctx, device, primary_ctx},
    sys::{CUctx_flags, CUdevice_attribute, cuDevicePrimaryCtxSetFlags_v2},
};
use pystachio_gpu::device::CallWatch;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{CudaPlatform, address_space::AddressSpace, functions::Functions, page_locked::PageLockedMemory};
use crate::{
    MODULES, cufile::CuFile, fault::from_driver, library::driver_version, nvcomp::Nvcomp, staging::Staging,
};

impl CudaPlatform {
    /// The GPU of this number, with the kernels loaded.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there is no driver, no such GPU, or no kernel in this build; the message says which.
    pub fn open(ordinal: u32) -> Result<Self> {
        let unavailable = |message: String| Error::new(ErrorKind::Unavailable, message);
        driver_version().map_err(|reason| unavailable(format!("CUDA is not used: {reason}")))?;
        if MODULES.is_empty() {
            return Err(unavailable(
                "CUDA is not used: this build has no kernels (no nvcc was found)".to_owned(),
            ));
        }
        let failed = |action: &str| {
            let action = action.to_owned();
            move |error| {
                let error = from_driver(&action, error);
                Error::new(ErrorKind::Unavailable, format!("CUDA is not used: {}", error.message))
            }
        };
        result::init().map_err(failed("be initialised"))?;
        let count = device::get_count().map_err(failed("be counted"))?;
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        if number >= count {
            return Err(unavailable(format!(
                "CUDA is not used: there is no GPU {ordinal}, only {count} GPUs"
            )));
        }
        let device = device::get(number).map_err(failed("be opened"))?;
        // Threads of several queries are more than processors: one that waits for the device must not keep another one from
        // working. Where others have made the context already, it stays as it is.
        // SAFETY: the device is there.
        let _ = unsafe { cuDevicePrimaryCtxSetFlags_v2(device, CUctx_flags::CU_CTX_SCHED_YIELD as u32) };
        // SAFETY: the device is there; the primary context is kept until the process ends.
        let context = unsafe { primary_ctx::retain(device) }.map_err(failed("make a context"))?;
        // SAFETY: the context is retained.
        unsafe { ctx::set_current(context) }.map_err(failed("use its context"))?;
        let name = device::get_name(device).map_err(failed("tell its name"))?;
        // SAFETY: the device is there.
        let memory_bytes = unsafe { device::total_mem(device) }.map_err(failed("tell its memory"))? as u64;
        let attribute = |attribute| {
            // SAFETY: the device is there.
            unsafe { device::get_attribute(device, attribute) }.map_err(failed("tell its attributes"))
        };
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let addresses = AddressSpace::of(device).map_err(failed("tell how it maps memory"))?.ok_or_else(|| {
            unavailable(format!(
                "CUDA is not used: the driver of GPU {ordinal} ({name}) maps no memory to addresses (virtual memory management)"
            ))
        })?;
        let calls = Arc::<CallWatch>::default();
        Ok(Self {
            context,
            addresses,
            page_locked: PageLockedMemory::default(),
            functions: Functions::load()?,
            staging: Staging::new(calls.clone())?,
            cufile: CuFile::new(),
            nvcomp: Nvcomp::open(context),
            description: format!("{name}, compute capability {major}.{minor}"),
            memory_bytes,
            streams: Mutex::new(Vec::new()),
            idle_events: Mutex::default(),
            calls,
        })
    }

    /// How many GPUs there are. No context is made.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there is no driver, or no GPU.
    pub fn count() -> Result<u32> {
        let unavailable =
            |reason: String| Error::new(ErrorKind::Unavailable, format!("CUDA is not used: {reason}"));
        driver_version().map_err(unavailable)?;
        let count = result::init().and_then(|()| device::get_count());
        let count = count.map_err(|error| unavailable(from_driver("be counted", error).message))?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Name and compute capability.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The PCI addresses of all GPUs, in the driver's order: `0000:1b:00.0`.
    ///
    /// # Errors
    ///
    /// `Device`.
    pub fn gpu_addresses(&self) -> Result<Vec<String>> {
        let failed = |error| from_driver("tell the GPUs' addresses", error);
        let address = |ordinal| {
            let device = device::get(ordinal).map_err(failed)?;
            let attribute = |attribute| {
                // SAFETY: the device is there.
                unsafe { device::get_attribute(device, attribute) }.map_err(failed)
            };
            let domain = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
            let bus = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
            let slot = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
            Ok(format!("{domain:04x}:{bus:02x}:{slot:02x}.0"))
        };
        (0..device::get_count().map_err(failed)?).map(address).collect()
    }

    /// The GPU's whole memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}
