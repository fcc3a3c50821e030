//! Reserves addresses of a GPU and commits memory to them.
//!
//! The driver maps physical memory to reserved addresses piece by piece. A range can therefore be long while its memory comes and goes.
//! This GPU may read and write the memory, and so may devices that read files if the GPU allows it.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use cudarc::driver::{
    DriverError,
    result::device,
    sys::{
        CUdevice, CUdevice_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
        CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
        CUmemLocationType, cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemExportToShareableHandle,
        cuMemGetAllocationGranularity, cuMemImportFromShareableHandle, cuMemMap, cuMemRelease,
        cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap,
    },
};

/// What another process of the host maps memory by.
const SHARED_AS: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// How memory of one GPU is mapped.
pub(super) struct AddressSpace {
    properties: CUmemAllocationProp,
    access: CUmemAccessDesc,
    granularity: u64,
}

impl AddressSpace {
    /// That of a GPU; `None` if its driver maps no memory to addresses of a process's choice.
    pub(super) fn of(device: CUdevice) -> Result<Option<Self>, DriverError> {
        // SAFETY: the device is there.
        let has = |attribute| unsafe { device::get_attribute(device, attribute) }.map(|value| value != 0);
        if !has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? {
            return Ok(None);
        }
        let is_direct = has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)?;
        // SAFETY: both are plain structures of the driver's, for which zeros are defaults.
        let (mut properties, mut access) = unsafe {
            (
                MaybeUninit::<CUmemAllocationProp>::zeroed().assume_init(),
                MaybeUninit::<CUmemAccessDesc>::zeroed().assume_init(),
            )
        };
        let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location;
        properties.allocFlags.gpuDirectRDMACapable = u8::from(is_direct);
        // What other processes' GPUs may copy from and to, once it is registered with what connects ranks.
        if has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)? {
            properties.requestedHandleTypes = SHARED_AS;
        }
        access.location = location;
        access.flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let mut granularity = 0;
        // SAFETY: both pointers are to live values.
        unsafe {
            cuMemGetAllocationGranularity(
                &raw mut granularity,
                &raw const properties,
                CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            )
        }
        .result()?;
        Ok(Some(Self { properties, access, granularity: granularity as u64 }))
    }

    /// Memory is mapped in multiples of this.
    pub(super) fn granularity(&self) -> u64 {
        self.granularity
    }

    /// Addresses without memory. A context is current, as for all that follows.
    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut address = 0;
        // SAFETY: the pointer is to a live value; any address will do.
        unsafe { cuMemAddressReserve(&raw mut address, bytes as usize, self.granularity as usize, 0, 0) }
            .result()?;
        Ok(address)
    }

    /// Gives addresses back, none of which has memory.
    pub(super) fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        // SAFETY: `reserve` gave them, and their last user is gone.
        unsafe { cuMemAddressFree(address, bytes as usize) }.result()
    }

    /// Maps fresh memory to reserved addresses.
    pub(super) fn commit(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut handle = 0;
        // SAFETY: both pointers are to live values.
        unsafe { cuMemCreate(&raw mut handle, bytes as usize, &raw const self.properties, 0) }.result()?;
        // SAFETY: the addresses are reserved and have no memory.
        let mapped = unsafe { cuMemMap(address, bytes as usize, 0, handle, 0) }.result();
        // What is mapped stays until it is unmapped.
        // SAFETY: the handle was made above, and is not used again.
        let released = unsafe { cuMemRelease(handle) }.result();
        mapped?;
        self.allow(address, bytes, released)
    }

    /// Lets this GPU use what has just been mapped, if all went well; otherwise it is unmapped.
    fn allow(&self, address: u64, bytes: u64, before: Result<(), DriverError>) -> Result<(), DriverError> {
        // SAFETY: the addresses have just been mapped; the pointer is to a live value.
        let allowed = unsafe { cuMemSetAccess(address, bytes as usize, &raw const self.access, 1) }.result();
        allowed.and(before).inspect_err(|_| {
            let _ = self.decommit(address, bytes);
        })
    }

    /// What one call of `commit` has mapped at an address, for other processes.
    pub(super) fn share(&self, address: u64) -> Result<OwnedFd, DriverError> {
        let mut handle = 0;
        // SAFETY: the pointer is to a live value; the address is one that memory begins at.
        unsafe { cuMemRetainAllocationHandle(&raw mut handle, address as *mut c_void) }.result()?;
        let mut descriptor = -1;
        // SAFETY: the pointer is to a live value of the kind that is asked for.
        let exported =
            unsafe { cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, SHARED_AS, 0) }
                .result();
        // SAFETY: the handle was retained above, and is not used again.
        let released = unsafe { cuMemRelease(handle) }.result();
        exported?;
        // SAFETY: the driver made it for this process, and no other code owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        released.map(|()| descriptor)
    }

    /// Maps memory that another process shares, perhaps of another GPU, to fresh addresses. They are given back by `decommit` and `unreserve`. An
    /// error says what was not possible, which drivers differ in.
    pub(super) fn map_shared(
        &self,
        shared: &OwnedFd,
        bytes: u64,
    ) -> Result<u64, (&'static str, DriverError)> {
        let not_taken = |error| ("take over memory of another process", error);
        let mut handle = 0;
        let descriptor = shared.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the pointer is to a live value; the descriptor is open.
        unsafe { cuMemImportFromShareableHandle(&raw mut handle, descriptor, SHARED_AS) }
            .result()
            .map_err(not_taken)?;
        let reserved = self.reserve(bytes).map_err(|error| ("reserve addresses for other GPUs", error));
        let mapped = reserved.and_then(|address| {
            // SAFETY: the addresses are reserved and have no memory.
            let mapped = unsafe { cuMemMap(address, bytes as usize, 0, handle, 0) }.result();
            let mapped = mapped.map_err(|error| ("map memory of another GPU", error));
            let allowed = mapped.and_then(|()| {
                let allowed = self.allow(address, bytes, Ok(()));
                allowed.map_err(|error| ("be allowed to use memory of another GPU", error))
            });
            match allowed {
                Ok(()) => Ok(address),
                Err(error) => {
                    let _ = self.unreserve(address, bytes);
                    Err(error)
                }
            }
        });
        // SAFETY: the handle was made above, and is not used again.
        let released = unsafe { cuMemRelease(handle) }.result();
        mapped.and_then(|address| released.map(|()| address).map_err(not_taken))
    }

    /// Unmaps what one call of `commit` has mapped, and nothing uses.
    pub(super) fn decommit(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        // SAFETY: it was mapped as one piece, and nothing uses it.
        unsafe { cuMemUnmap(address, bytes as usize) }.result()
    }
}
