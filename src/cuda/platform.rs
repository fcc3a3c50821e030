//! One GPU: memory, copies and streams.
//!
//! - `open.rs`: how it is found; `functions.rs`: kernels and their launches; `address_space.rs`: where memory is mapped
//! - `sharing.rs`: memory that other GPUs of the host read; `page_locked.rs`: memory of the host
#![expect(unsafe_code, reason = "the driver's interface is C")]

mod address_space;
mod functions;
mod open;
mod page_locked;
mod sharing;

use std::{
    fs::File,
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use cudarc::driver::{
    result::{self, ctx, event, stream},
    sys::{CUcontext, CUevent, CUevent_flags, CUevent_wait_flags, CUresult, CUstream},
};
use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_files::Slot;
use pystachio_gpu::device::{
    CallGuard, CallWatch, Decompressor, DeviceFile, DeviceFileMode, Event, Kernel, Platform, Stream,
    StreamPriority, TimedEvent,
};
use pystachio_plan::{Error, Result};

pub use self::sharing::SharedRegions;
use self::{address_space::AddressSpace, functions::Functions, page_locked::PageLockedMemory};
use crate::{
    cufile::CuFile,
    fault::from_driver,
    nvcomp::Nvcomp,
    staging::{SLOT_BYTES, Staging},
};

/// Threads that read for one scan: as many as saturate the page cache and the bus together.
const READERS: usize = 12;

/// An NVIDIA GPU.
pub struct CudaPlatform {
    context: CUcontext,
    addresses: AddressSpace,
    page_locked: PageLockedMemory,
    functions: Functions,
    staging: Staging,
    cufile: CuFile,
    nvcomp: Option<Nvcomp>,
    description: String,
    memory_bytes: u64,
    streams: Mutex<Vec<CUstream>>,
    idle_events: Mutex<IdleEvents>,
    calls: Arc<CallWatch>,
}

/// Events that no recorded moment uses.
#[derive(Default)]
struct IdleEvents {
    plain: Vec<CUevent>,
    timed: Vec<CUevent>,
}

// SAFETY: the driver's handles belong to no thread; every method makes the context current first.
unsafe impl Send for CudaPlatform {}
// SAFETY: as above; what is mutable is behind locks.
unsafe impl Sync for CudaPlatform {}

impl CudaPlatform {
    fn events(&self) -> MutexGuard<'_, IdleEvents> {
        lock_whole(&self.idle_events)
    }

    /// Records an event, an idle one or a new one with these flags.
    fn record(&self, idle: Option<CUevent>, flags: CUevent_flags, stream: Stream) -> Result<Event> {
        let _call = self.enter()?;
        let event = match idle {
            Some(event) => event,
            None => event::create(flags).map_err(|error| from_driver("create an event", error))?,
        };
        // SAFETY: an event and a stream of ours.
        unsafe { event::record(event, handle(stream)) }
            .map_err(|error| from_driver("record an event", error))?;
        Ok(Event(event as u64))
    }

    /// Makes the context this thread's, and begins a call.
    fn enter(&self) -> Result<CallGuard<'_>> {
        self.use_context()?;
        Ok(self.calls.enter())
    }

    /// Makes the context this thread's, for what may wait for others than the device.
    pub(crate) fn use_context(&self) -> Result<()> {
        // SAFETY: the context lives as long as the process.
        unsafe { ctx::set_current(self.context) }.map_err(|error| from_driver("use its context", error))
    }
}

fn handle(stream: Stream) -> CUstream {
    stream.0 as CUstream
}

impl Platform for CudaPlatform {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn calls(&self) -> Arc<CallWatch> {
        self.calls.clone()
    }

    fn reader_count(&self) -> usize {
        READERS
    }

    fn create_stream(&self, priority: StreamPriority) -> Result<Stream> {
        let _call = self.enter()?;
        let created = stream::get_priority_range().and_then(|(lowest, highest)| {
            let priority = match priority {
                StreamPriority::High => highest,
                StreamPriority::Low => lowest,
            };
            stream::create_with_priority(stream::StreamKind::NonBlocking, priority)
        });
        let created = created.map_err(|error| from_driver("create a stream", error))?;
        lock_whole(&self.streams).push(created);
        Ok(Stream(created as u64))
    }

    fn commit_bytes(&self) -> u64 {
        self.addresses.granularity()
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let _call = self.enter()?;
        self.addresses
            .reserve(bytes)
            .map_err(|error| from_driver(&format!("reserve {bytes} addresses"), error))
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        if let Ok(_call) = self.enter()
            && let Err(error) = self.addresses.unreserve(address, bytes)
        {
            tracing::error!("{}", from_driver("give addresses back", error));
        }
    }

    fn commit(&self, address: u64, bytes: u64) -> Result<()> {
        let _call = self.enter()?;
        self.addresses
            .commit(address, bytes)
            .map_err(|error| from_driver(&format!("commit {bytes} bytes of memory"), error))
    }

    fn decommit(&self, address: u64, bytes: u64) {
        if let Ok(_call) = self.enter()
            && let Err(error) = self.addresses.decommit(address, bytes)
        {
            tracing::error!("{}", from_driver("free memory", error));
        }
    }

    fn upload(&self, source: &[u8], target: u64, stream: Stream, stop: &StopFlag) -> Result<()> {
        self.use_context()?;
        for (place, part) in source.chunks(SLOT_BYTES).enumerate() {
            let address = target + (place * SLOT_BYTES) as u64;
            self.staging.with_slot(part.len(), handle(stream), stop, |slot| {
                let slot = &mut slot[..part.len()];
                slot.copy_from_slice(part);
                let _call = self.calls.enter();
                // SAFETY: the slot stays as it is until its event; the target has this many bytes.
                unsafe { result::memcpy_htod_async(address, slot, handle(stream)) }
                    .map_err(|error| from_driver("copy to the device", error))
            })?;
        }
        Ok(())
    }

    fn lend_slot(&self, stop: Option<&StopFlag>) -> Result<Option<Slot>> {
        self.use_context()?;
        self.staging.lend(stop)
    }

    fn return_slot(&self, slot: Slot) {
        self.staging.give_back(slot);
    }

    fn upload_slot(&self, mut slot: Slot, range: Range<usize>, target: u64, stream: Stream) -> Result<()> {
        let _call = self.enter()?;
        // SAFETY: the slot is its owner's, and stays as it is until its event.
        let part = unsafe { slot.memory() }.get(range);
        let copied = match part {
            // SAFETY: the target has this many bytes.
            Some(part) => unsafe { result::memcpy_htod_async(target, part, handle(stream)) }
                .map_err(|error| from_driver("copy to the device", error)),
            None => Err(Error::internal("bytes that are not within their slot")),
        };
        let returned = self.staging.give_back_after(slot, handle(stream));
        copied.and(returned)
    }

    fn open_file(&self, file: &File, path: &Path, mode: DeviceFileMode) -> Result<Box<dyn DeviceFile>> {
        self.use_context()?;
        Ok(Box::new(self.cufile.open_file(file, path, mode, self.context)?))
    }

    fn download(&self, source: u64, target: &mut [u8], stream: Stream, stop: &StopFlag) -> Result<()> {
        self.use_context()?;
        for (place, part) in target.chunks_mut(SLOT_BYTES).enumerate() {
            let address = source + (place * SLOT_BYTES) as u64;
            self.staging.with_slot(part.len(), handle(stream), stop, |slot| {
                let _call = self.calls.enter();
                let slot = &mut slot[..part.len()];
                // SAFETY: the source has this many bytes; the slot is ours until the wait below ends.
                unsafe {
                    result::memcpy_dtoh_async(slot, address, handle(stream))
                        .map_err(|error| from_driver("copy from the device", error))?;
                    result::stream::synchronize(handle(stream))
                        .map_err(|error| from_driver("finish its work", error))?;
                }
                part.copy_from_slice(slot);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn allocate_host(&self, bytes: usize) -> Result<u64> {
        let _call = self.enter()?;
        self.page_locked
            .allocate(bytes)
            .map_err(|error| from_driver(&format!("page-lock {bytes} bytes of the host"), error))
    }

    fn release_host(&self, address: u64, _bytes: usize) {
        if let Ok(_call) = self.enter()
            && let Err(error) = self.page_locked.release(address)
        {
            tracing::error!("{}", from_driver("free page-locked memory", error));
        }
    }

    fn upload_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        let _call = self.enter()?;
        // SAFETY: memory of the caller's with this many bytes, which stays as it is until the copy has happened.
        let slice = unsafe { std::slice::from_raw_parts(source as *const u8, bytes) };
        // SAFETY: the target has this many bytes.
        unsafe { result::memcpy_htod_async(target, slice, handle(stream)) }
            .map_err(|error| from_driver("copy to the device", error))
    }

    fn download_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        let _call = self.enter()?;
        // SAFETY: memory of the caller's with this many bytes, which no other code touches before the copy has finished.
        let slice = unsafe { std::slice::from_raw_parts_mut(target as *mut u8, bytes) };
        // SAFETY: the source has this many bytes.
        unsafe { result::memcpy_dtoh_async(slice, source, handle(stream)) }
            .map_err(|error| from_driver("copy from the device", error))
    }

    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], stream: Stream) -> Result<()> {
        self.launch_kernel(kernel, grid, arguments, stream)
    }

    fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        let _call = self.enter()?;
        // SAFETY: both have this many bytes.
        unsafe { result::memcpy_dtod_async(target, source, bytes as usize, handle(stream)) }
            .map_err(|error| from_driver("copy memory", error))
    }

    fn fill(&self, target: u64, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _call = self.enter()?;
        // SAFETY: the target has this many bytes.
        unsafe { result::memset_d8_async(target, value, bytes as usize, handle(stream)) }
            .map_err(|error| from_driver("fill memory", error))
    }

    fn decompressor(&self) -> Option<&dyn Decompressor> {
        let nvcomp = self.nvcomp.as_ref().filter(|nvcomp| nvcomp.is_sound())?;
        Some(nvcomp)
    }

    fn wait(&self, stream: Stream) -> Result<()> {
        let _call = self.enter()?;
        // SAFETY: a stream of ours.
        unsafe { result::stream::synchronize(handle(stream)) }
            .map_err(|error| from_driver("finish its work", error))
    }

    fn wait_event(&self, event: Event) -> Result<()> {
        let _call = self.enter()?;
        // SAFETY: an event of ours that was recorded.
        unsafe { event::synchronize(event.0 as CUevent) }
            .map_err(|error| from_driver("finish its work", error))
    }

    fn has_reached(&self, event: Event) -> Result<bool> {
        let _call = self.enter()?;
        // SAFETY: an event of ours that was recorded.
        match unsafe { event::query(event.0 as CUevent) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(from_driver("finish its work", error)),
        }
    }

    fn order_after(&self, stream: Stream, event: Event) -> Result<()> {
        let _call = self.enter()?;
        // SAFETY: a stream of ours, and an event of ours that was recorded. What is waited for is what was recorded until now,
        // whatever becomes of the event.
        unsafe {
            stream::wait_event(handle(stream), event.0 as CUevent, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        }
        .map_err(|error| from_driver("order a stream after another", error))
    }

    fn record_event(&self, stream: Stream) -> Result<Event> {
        let idle = self.events().plain.pop();
        self.record(idle, CUevent_flags::CU_EVENT_DISABLE_TIMING, stream)
    }

    fn release_event(&self, event: Event) {
        self.events().plain.push(event.0 as CUevent);
    }

    fn record_timed_event(&self, stream: Stream) -> Result<TimedEvent> {
        let idle = self.events().timed.pop();
        self.record(idle, CUevent_flags::CU_EVENT_DEFAULT, stream).map(TimedEvent)
    }

    fn elapsed_us(&self, from: TimedEvent, to: TimedEvent) -> Result<f64> {
        let _call = self.enter()?;
        let [from, to] = [from, to].map(|TimedEvent(event)| event.0 as CUevent);
        // SAFETY: timed events of ours that were recorded.
        let elapsed_ms = unsafe { event::elapsed(from, to) }
            .map_err(|error| from_driver("tell when an event was", error))?;
        Ok(f64::from(elapsed_ms) * 1000.0)
    }

    fn release_timed_event(&self, event: TimedEvent) {
        self.events().timed.push(event.0.0 as CUevent);
    }
}

impl Drop for CudaPlatform {
    fn drop(&mut self) {
        if let Ok(_call) = self.enter() {
            for created in lock_whole(&self.streams).drain(..) {
                // SAFETY: this is the last owner of the platform.
                let _ = unsafe { stream::destroy(created) };
            }
            let IdleEvents { plain, timed } = std::mem::take(&mut *self.events());
            for event in plain.into_iter().chain(timed) {
                // SAFETY: as above.
                let _ = unsafe { event::destroy(event) };
            }
        }
    }
}
