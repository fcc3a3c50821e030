//! The interface to a kind of device for memory, caches and queues.

use std::{fs::File, ops::Range, path::Path, sync::Arc};

use pystachio_engine::StopFlag;
use pystachio_files::Slot;
use pystachio_plan::Result;

use super::{CallWatch, Decompressor, DeviceFile, DeviceFileMode, Kernel, NullCells};

/// An order of work: tasks enqueued on one stream happen one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(
    /// The platform's number for it.
    pub u64,
);

/// The priority of a stream when the work of several waits for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPriority {
    /// Streams of drivers: the query waits for them.
    High,
    /// Streams of readers, which work ahead.
    Low,
}

/// A position in the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(
    /// The platform's number for it.
    pub u64,
);

/// An event with the time when it was reached. It costs more than an [`Event`]: only logs of
/// activities record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimedEvent(
    /// The event.
    pub Event,
);

/// Memory, copies, streams and kernels of one device.
///
/// Addresses are the platform's numbers: a device in host memory uses the host's, and copies are
/// plain copies.
///
/// Methods enqueue and return, except those that wait and [`Platform::download`].
///
/// # Errors
///
/// Every method: `Device` for a fault of the device, which is then lost to this process; `Internal`
/// for a call that the device refuses and survives, such as a copy over a range that no single
/// allocation holds.
pub trait Platform: Send + Sync + 'static {
    /// `cuda` or `emulated`.
    fn name(&self) -> &'static str;

    /// The driver calls of all threads: if one does not return, the device is lost.
    fn calls(&self) -> Arc<CallWatch>;

    /// How many streams keep the device busy: threads that read and decode row groups.
    fn reader_count(&self) -> usize;

    /// A new stream. Streams live as long as the platform.
    fn create_stream(&self, priority: StreamPriority) -> Result<Stream>;

    /// The granularity of committed memory, a power of two.
    fn commit_bytes(&self) -> u64;

    /// Reserves addresses for so many bytes, a multiple of [`Platform::commit_bytes`] at a multiple
    /// of it, without memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if there are not as many.
    fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Frees addresses, none of which has memory.
    fn unreserve(&self, address: u64, bytes: u64);

    /// Commits memory to some addresses of a reservation. Its content has no meaning. Every stream
    /// may use it, and a copy may cross from one piece to the next.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the device lacks memory.
    fn commit(&self, address: u64, bytes: u64) -> Result<()>;

    /// Decommits the memory that one call of [`Platform::commit`] committed, which nothing uses.
    fn decommit(&self, address: u64, bytes: u64);

    /// Announces a lent buffer, which a stream may use from now on.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, on a platform for tests.
    fn note_lent(&self, _address: u64, _bytes: u64, _stream: Stream) -> Result<()> {
        Ok(())
    }

    /// Announces that one more stream may use the buffer at an address.
    fn note_used(&self, _address: u64, _stream: Stream) {}

    /// Announces a returned buffer, which enqueued work on some streams may still use.
    fn note_returned(&self, _address: u64, _bytes: u64, _streams: &[Stream]) {}

    /// Guard bytes behind every buffer, on a platform for tests.
    fn guard_bytes(&self) -> u64 {
        0
    }

    /// Copies host bytes to the device. `source` may be reused on return. Waits for page-locked
    /// memory on the way until `stop` is set.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    fn upload(&self, source: &[u8], target: u64, stream: Stream, stop: &StopFlag) -> Result<()>;

    /// A slot for a part of an upload, or `None` if all are lent. With `stop` it waits for one
    /// until that is set.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    fn lend_slot(&self, stop: Option<&StopFlag>) -> Result<Option<Slot>>;

    /// Returns a slot that is no longer used.
    fn return_slot(&self, slot: Slot);

    /// Copies bytes of a slot to the device, and returns the slot when the copy has happened.
    fn upload_slot(&self, slot: Slot, range: Range<usize>, target: u64, stream: Stream) -> Result<()>;

    /// Opens a file that the device reads by itself. `path` is for error messages.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it can't, whatever the file's content; `FileAccess` if it can't now. The
    /// message has the reason.
    fn open_file(&self, file: &File, path: &Path, mode: DeviceFileMode) -> Result<Box<dyn DeviceFile>>;

    /// Copies device bytes to the host, and waits for them; see [`Platform::upload`] for
    /// page-locked memory on the way.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    fn download(&self, source: u64, target: &mut [u8], stream: Stream, stop: &StopFlag) -> Result<()>;

    /// Page-locked host memory of at least `bytes`, which copies reach at the bus's speed. Its content has no
    /// meaning.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the host lacks it.
    fn allocate_host(&self, bytes: usize) -> Result<u64>;

    /// Frees host memory. No copy from or to it may be running.
    fn release_host(&self, address: u64, bytes: usize);

    /// Copies host memory to the device directly. The memory must stay unchanged until the copy has
    /// happened. Only memory of [`Platform::allocate_host`] reaches the bus's speed.
    fn upload_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Copies device bytes directly into host memory, which has them once the copy has happened;
    /// see [`Platform::upload_in_place`].
    fn download_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Runs a kernel over `grid` blocks. `arguments` is its struct, byte for byte as in kernels/abi. Called by
    /// `operation`'s queue alone.
    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], stream: Stream) -> Result<()>;

    /// Copies within the device.
    fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()>;

    /// Sets every byte.
    fn fill(&self, target: u64, value: u8, bytes: u64, stream: Stream) -> Result<()>;

    /// The library that decompresses formats without a kernel, if there is one.
    fn decompressor(&self) -> Option<&dyn Decompressor> {
        None
    }

    /// Waits for all work enqueued on a stream.
    fn wait(&self, stream: Stream) -> Result<()>;

    /// Waits until an event is reached. Work enqueued after it may still run.
    fn wait_event(&self, event: Event) -> Result<()>;

    /// Whether an event is reached; does not wait.
    fn has_reached(&self, event: Event) -> Result<bool>;

    /// Orders later work of a stream after an event, which may be returned at once. The host does
    /// not wait.
    fn order_after(&self, stream: Stream, event: Event) -> Result<()>;

    /// Records an event after all work enqueued on a stream.
    fn record_event(&self, stream: Stream) -> Result<Event>;

    /// Returns an event.
    fn release_event(&self, event: Event);

    /// Like [`Platform::record_event`], for an event with its time.
    fn record_timed_event(&self, stream: Stream) -> Result<TimedEvent> {
        self.record_event(stream).map(TimedEvent)
    }

    /// Microseconds from one event to another. Both have been reached.
    fn elapsed_us(&self, from: TimedEvent, to: TimedEvent) -> Result<f64>;

    /// Returns a timed event.
    fn release_timed_event(&self, event: TimedEvent) {
        self.release_event(event.0);
    }

    /// Announces cells of NULL rows that an operation has just written on a stream, which have no
    /// meaning. A platform for tests fills them with poison.
    fn poison_nulls(&self, _cells: NullCells, _stream: Stream) {}
}
