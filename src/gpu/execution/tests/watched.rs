//! The emulated device with its calls counted, and a hook before launches, copies to page-locked
//! memory, and files that it reads by itself.

use std::{
    collections::BTreeMap,
    fs::File,
    ops::Range,
    path::Path,
    sync::{Mutex, atomic::AtomicU64},
};

use super::*;
use pystachio_files::Slot;

use crate::{
    device::{
        CallWatch, DeviceFile, DeviceFileMode, Event, KERNELS, Kernel, Stream, StreamPriority, TimedEvent,
    },
    operation::operation_of,
};

/// Copies of so many bytes are counts and faults.
const READBACK_BYTES_MAX: usize = 64;

/// Calls of a platform that have happened.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) launches: AtomicU64,
    /// Launches by the kernel's name, and of those that [`operation_of`] names.
    by_name: Mutex<BTreeMap<&'static str, u64>>,
    pub(super) spilled_copies: AtomicU64,
    /// Reservations of addresses, and buffers.
    pub(super) reservations: AtomicU64,
    pub(super) buffers: AtomicU64,
    /// Copies between host and device by way of page-locked memory.
    pub(super) pinned: AtomicU64,
    /// Copies of what was spilled back to the device.
    pub(super) returned_copies: AtomicU64,
    /// Waits of the query's drivers for the device, and of others.
    pub(super) waits: AtomicU64,
    pub(super) reader_waits: AtomicU64,
}

/// Whether this is a query's own thread.
pub(super) fn is_query_thread() -> bool {
    std::thread::current().name() == Some("pystachio-query")
}

/// Whether this is the thread of a build side.
pub(super) fn is_build_thread() -> bool {
    std::thread::current().name() == Some(crate::execution::join::THREAD_NAME)
}

impl Calls {
    fn count_wait(&self) {
        let is_driver = is_query_thread() || is_build_thread();
        let waits = if is_driver { &self.waits } else { &self.reader_waits };
        waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Launches of a kernel, or of an operation.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.by_name.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    /// The names of the kernels that were launched.
    pub(super) fn kernels(&self) -> Vec<&'static str> {
        let launched = self.by_name.lock().unwrap();
        KERNELS.into_iter().map(Kernel::name).filter(|name| launched.contains_key(name)).collect()
    }
}

/// A hook before a call of the device; the call fails with its error.
type Before = Box<dyn Fn(&Calls) -> Result<()> + Send + Sync>;

/// The emulated device with a hook before launches and copies to page-locked memory.
pub(super) struct Watched {
    device: EmulatedPlatform,
    pub(super) calls: Calls,
    before: Before,
    reader_count: usize,
}

impl Watched {
    pub(super) fn new(before: impl Fn(&Calls) -> Result<()> + Send + Sync + 'static) -> Arc<Self> {
        Self::with_readers(EmulatedPlatform::at_once().reader_count(), before)
    }

    /// With so many readers for a query.
    pub(super) fn with_readers(
        reader_count: usize,
        before: impl Fn(&Calls) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        // Tests count its calls, which a seeded order would change.
        let (device, calls, before) = (EmulatedPlatform::at_once(), Calls::default(), Box::new(before));
        Arc::new(Self { device, calls, before, reader_count })
    }
}

impl Platform for Watched {
    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn calls(&self) -> Arc<CallWatch> {
        self.device.calls()
    }

    fn reader_count(&self) -> usize {
        self.reader_count
    }

    fn create_stream(&self, priority: StreamPriority) -> Result<Stream> {
        self.device.create_stream(priority)
    }

    fn commit_bytes(&self) -> u64 {
        self.device.commit_bytes()
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.calls.reservations.fetch_add(1, Ordering::Relaxed);
        self.device.reserve(bytes)
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        self.device.unreserve(address, bytes);
    }

    fn commit(&self, address: u64, bytes: u64) -> Result<()> {
        self.device.commit(address, bytes)
    }

    fn decommit(&self, address: u64, bytes: u64) {
        self.device.decommit(address, bytes);
    }

    fn note_lent(&self, address: u64, bytes: u64, stream: Stream) -> Result<()> {
        self.calls.buffers.fetch_add(1, Ordering::Relaxed);
        self.device.note_lent(address, bytes, stream)
    }

    fn note_used(&self, address: u64, stream: Stream) {
        self.device.note_used(address, stream);
    }

    fn note_returned(&self, address: u64, bytes: u64, streams: &[Stream]) {
        self.device.note_returned(address, bytes, streams);
    }

    fn guard_bytes(&self) -> u64 {
        self.device.guard_bytes()
    }

    fn upload(&self, source: &[u8], target: u64, stream: Stream, stop: &StopFlag) -> Result<()> {
        self.calls.pinned.fetch_add(1, Ordering::Relaxed);
        self.device.upload(source, target, stream, stop)
    }

    fn lend_slot(&self, stop: Option<&StopFlag>) -> Result<Option<Slot>> {
        self.device.lend_slot(stop)
    }

    fn return_slot(&self, slot: Slot) {
        self.device.return_slot(slot);
    }

    fn upload_slot(&self, slot: Slot, range: Range<usize>, target: u64, stream: Stream) -> Result<()> {
        self.calls.pinned.fetch_add(1, Ordering::Relaxed);
        self.device.upload_slot(slot, range, target, stream)
    }

    fn open_file(&self, file: &File, path: &Path, mode: DeviceFileMode) -> Result<Box<dyn DeviceFile>> {
        (self.before)(&self.calls)?;
        self.device.open_file(file, path, mode)
    }

    fn download(&self, source: u64, target: &mut [u8], stream: Stream, stop: &StopFlag) -> Result<()> {
        self.calls.pinned.fetch_add(1, Ordering::Relaxed);
        self.device.download(source, target, stream, stop)
    }

    fn allocate_host(&self, bytes: usize) -> Result<u64> {
        self.device.allocate_host(bytes)
    }

    fn release_host(&self, address: u64, bytes: usize) {
        self.device.release_host(address, bytes);
    }

    fn upload_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.calls.returned_copies.fetch_add(1, Ordering::Relaxed);
        self.device.upload_in_place(source, target, bytes, stream)
    }

    fn download_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        if bytes > READBACK_BYTES_MAX {
            self.calls.spilled_copies.fetch_add(1, Ordering::Relaxed);
            (self.before)(&self.calls)?;
        }
        self.device.download_in_place(source, target, bytes, stream)
    }

    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], stream: Stream) -> Result<()> {
        self.calls.launches.fetch_add(1, Ordering::Relaxed);
        for name in [Some(kernel.name()), operation_of(kernel, arguments)].into_iter().flatten() {
            *self.calls.by_name.lock().unwrap().entry(name).or_default() += 1;
        }
        (self.before)(&self.calls)?;
        self.device.launch(kernel, grid, arguments, stream)
    }

    fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        self.device.copy(source, target, bytes, stream)
    }

    fn fill(&self, target: u64, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        self.device.fill(target, value, bytes, stream)
    }

    fn wait(&self, stream: Stream) -> Result<()> {
        self.calls.count_wait();
        self.device.wait(stream)
    }

    fn wait_event(&self, event: Event) -> Result<()> {
        self.calls.count_wait();
        self.device.wait_event(event)
    }

    fn has_reached(&self, event: Event) -> Result<bool> {
        self.device.has_reached(event)
    }

    fn order_after(&self, stream: Stream, event: Event) -> Result<()> {
        self.device.order_after(stream, event)
    }

    fn record_event(&self, stream: Stream) -> Result<Event> {
        self.device.record_event(stream)
    }

    fn release_event(&self, event: Event) {
        self.device.release_event(event);
    }

    fn elapsed_us(&self, from: TimedEvent, to: TimedEvent) -> Result<f64> {
        self.device.elapsed_us(from, to)
    }
}
