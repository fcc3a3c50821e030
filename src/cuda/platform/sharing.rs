//! Shares memory of one GPU with other GPUs of the host, which read it.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::{os::fd::OwnedFd, sync::Arc};

use cudarc::driver::{
    result::{self, device},
    sys::{cuCtxGetDevice, cuDeviceCanAccessPeer},
};
use pystachio_gpu::{
    device::Stream,
    exchange::{ExchangeRegion, MappedRegion, RegionSharing},
};
use pystachio_plan::{Error, ErrorKind, Result};

use super::{CudaPlatform, handle};
use crate::fault::from_driver;

/// Regions of the GPUs of a host, as one of them sees them.
pub struct SharedRegions(
    /// That GPU.
    pub Arc<CudaPlatform>,
);

/// Another GPU's region, mapped for this one. Dropped when nothing reads it any more.
struct PeerRegion {
    platform: Arc<CudaPlatform>,
    address: u64,
    bytes: u64,
}

impl CudaPlatform {
    /// Whether this GPU reaches the memory of all others that the process sees.
    ///
    /// # Errors
    ///
    /// `Device`.
    pub fn reaches_others(&self) -> Result<bool> {
        let failed = |error| from_driver("tell which GPUs it reaches", error);
        self.use_context()?;
        let mut own = 0;
        // SAFETY: the pointer is to a live value; a context is current.
        unsafe { cuCtxGetDevice(&raw mut own) }.result().map_err(failed)?;
        for number in 0..device::get_count().map_err(failed)? {
            let other = device::get(number).map_err(failed)?;
            if other == own {
                continue;
            }
            let mut reaches = 0;
            // SAFETY: the pointer is to a live value; both devices are there.
            unsafe { cuDeviceCanAccessPeer(&raw mut reaches, own, other) }.result().map_err(failed)?;
            if reaches == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Bytes of memory as the driver maps it.
    fn mapped_bytes(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.addresses.granularity())
    }
}

/// What a driver says of memory of another GPU.
fn unreachable(action: &str, error: result::DriverError) -> Error {
    let error = from_driver(action, error);
    Error::new(ErrorKind::Unavailable, format!("GPUs do not read each other's memory: {}", error.message))
        .with_hint("NCCL moves rows between these GPUs instead.")
}

impl RegionSharing for SharedRegions {
    fn share(&self, region: &ExchangeRegion) -> Result<OwnedFd> {
        let _call = self.0.enter()?;
        let shared = self.0.addresses.share(region.range().0);
        shared.map_err(|error| unreachable("share memory with other processes", error))
    }

    fn map(&self, shared: OwnedFd, bytes: u64) -> Result<Box<dyn MappedRegion>> {
        let platform = &self.0;
        let _call = platform.enter()?;
        let bytes = platform.mapped_bytes(bytes);
        let mapped = platform.addresses.map_shared(&shared, bytes);
        let address = mapped.map_err(|(action, error)| unreachable(action, error))?;
        Ok(Box::new(PeerRegion { platform: platform.clone(), address, bytes }))
    }
}

impl MappedRegion for PeerRegion {
    fn read(&self, offset_bytes: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        let _call = self.platform.enter()?;
        // SAFETY: both have this many bytes.
        unsafe {
            result::memcpy_dtod_async(target, self.address + offset_bytes, bytes as usize, handle(stream))
        }
        .map_err(|error| from_driver("copy from another GPU", error))
    }
}

impl Drop for PeerRegion {
    fn drop(&mut self) {
        let Ok(_call) = self.platform.enter() else { return };
        let addresses = &self.platform.addresses;
        let unmapped = addresses.decommit(self.address, self.bytes);
        let given_back = unmapped.and_then(|()| addresses.unreserve(self.address, self.bytes));
        if let Err(error) = given_back {
            tracing::error!("{}", from_driver("unmap memory of another GPU", error));
        }
    }
}
