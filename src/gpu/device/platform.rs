//! What memory, caches and queues need of a kind of device.

use std::{fs::File, ops::Range, path::Path, sync::Arc};

use pystachio_engine::StopFlag;
use pystachio_files::Slot;
use pystachio_plan::Result;

use super::{CallWatch, Decompressor, DeviceFile, DeviceFileMode, Kernel, NullCells};

/// An order of work: what is enqueued on one stream happens one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(
    /// The platform's number for it.
    pub u64,
);

/// What has room on the device first, if the work of several streams waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPriority {
    /// Of drivers: everybody waits for what they do.
    High,
    /// Of readers, which work ahead.
    Low,
}

/// A moment in the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(
    /// The platform's number for it.
    pub u64,
);

/// An event that also notes when it was reached. It costs more than an [`Event`]: only logs of activities record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimedEvent(
    /// The event.
    pub Event,
);

/// Memory, copies, streams and kernels of one device.
///
/// Addresses are the platform's numbers: a device in the host's memory has the host's, copies of which are plain copies.
///
/// Methods enqueue and return, except those that wait and [`Platform::download`].
///
/// # Errors
///
/// Every method: `Device` for a fault of the device, which is then lost to this process; `Internal` for a call that the device
/// refuses and survives, as a copy over a range that no single allocation holds.
pub trait Platform: Send + Sync + 'static {
    /// `cuda` or `emulated`.
    fn name(&self) -> &'static str;

    /// Which threads are within a call of the driver: one that does not return is a device that is lost.
    fn calls(&self) -> Arc<CallWatch>;

    /// How many streams keep the device busy: threads that read and decode row groups.
    fn reader_count(&self) -> usize;

    /// A new stream. Streams live as long as the platform.
    fn create_stream(&self, priority: StreamPriority) -> Result<Stream>;

    /// The least amount of memory that is committed, a power of two; what is, is a multiple of it.
    fn commit_bytes(&self) -> u64;

    /// Addresses for so many bytes, a multiple of [`Platform::commit_bytes`] at a multiple of it, without memory.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if there are not as many.
    fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Gives addresses back, none of which has memory.
    fn unreserve(&self, address: u64, bytes: u64);

    /// Gives memory to some addresses of a reservation. Its content has no meaning. Every stream may use it, and a copy may
    /// cross from one piece to the next.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the device has not enough.
    fn commit(&self, address: u64, bytes: u64) -> Result<()>;

    /// Takes the memory back that one call of [`Platform::commit`] gave, which nothing uses.
    fn decommit(&self, address: u64, bytes: u64);

    /// Says that a buffer is lent which a stream may use from now on.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, from a platform that tests.
    fn note_lent(&self, _address: u64, _bytes: u64, _stream: Stream) -> Result<()> {
        Ok(())
    }

    /// Says that one more stream may use the buffer at an address.
    fn note_used(&self, _address: u64, _stream: Stream) {}

    /// Says that a buffer was given back, which what is enqueued on some streams may use still.
    fn note_returned(&self, _address: u64, _bytes: u64, _streams: &[Stream]) {}

    /// Bytes behind every buffer that belong to nobody: some for a platform that tests.
    fn guard_bytes(&self) -> u64 {
        0
    }

    /// Copies host bytes to the device. `source` may be reused when this returns. Waits for page-locked memory on the way
    /// until `stop` says that nobody wants it any more.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    fn upload(&self, source: &[u8], target: u64, stream: Stream, stop: &StopFlag) -> Result<()>;

    /// A slot for a part of an upload, or `None` where all are lent. With `stop` it waits for one, until that says that nobody
    /// wants it any more.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    fn lend_slot(&self, stop: Option<&StopFlag>) -> Result<Option<Slot>>;

    /// Gives a slot back, which nothing touches.
    fn return_slot(&self, slot: Slot);

    /// Copies bytes of a slot to the device, and gives the slot back when the copy has happened.
    fn upload_slot(&self, slot: Slot, range: Range<usize>, target: u64, stream: Stream) -> Result<()>;

    /// Lets the device read an open file by itself. `path` is the file's, for errors.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it can't, whatever the file's content; `FileAccess` if it can't now. The message has the
    /// reason.
    fn open_file(&self, file: &File, path: &Path, mode: DeviceFileMode) -> Result<Box<dyn DeviceFile>>;

    /// Copies device bytes to the host, and waits for them; for page-locked memory on the way as [`Platform::upload`].
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
    /// `OutOfMemory` if the host has not enough of it.
    fn allocate_host(&self, bytes: usize) -> Result<u64>;

    /// Gives host memory back. No copy from or to it is under way.
    fn release_host(&self, address: u64, bytes: usize);

    /// Copies host memory to the device from where it lies, which stays as it is until the copy has happened. The bus's speed has
    /// only memory of [`Platform::allocate_host`].
    fn upload_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Copies device bytes to where host memory lies, which has them once the copy has happened; see
    /// [`Platform::upload_in_place`].
    fn download_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Runs a kernel over `grid` blocks. `arguments` is its struct, byte for byte as in kernels/abi. Called by
    /// `operation`'s queue alone.
    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], stream: Stream) -> Result<()>;

    /// Copies within the device.
    fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()>;

    /// Sets every byte.
    fn fill(&self, target: u64, value: u8, bytes: u64, stream: Stream) -> Result<()>;

    /// What decompresses formats that no kernel does, if there is such a library.
    fn decompressor(&self) -> Option<&dyn Decompressor> {
        None
    }

    /// Waits for all that is enqueued on a stream.
    fn wait(&self, stream: Stream) -> Result<()>;

    /// Waits until an event is reached. What was enqueued after it may still be going on.
    fn wait_event(&self, event: Event) -> Result<()>;

    /// Whether an event is reached; does not wait.
    fn has_reached(&self, event: Event) -> Result<bool>;

    /// Lets what is enqueued on a stream from now on happen after an event, which may be given back at once. The host does not
    /// wait.
    fn order_after(&self, stream: Stream, event: Event) -> Result<()>;

    /// Records the moment when all that is enqueued on a stream has happened.
    fn record_event(&self, stream: Stream) -> Result<Event>;

    /// Gives an event back.
    fn release_event(&self, event: Event);

    /// As [`Platform::record_event`], for an event that notes its time.
    fn record_timed_event(&self, stream: Stream) -> Result<TimedEvent> {
        self.record_event(stream).map(TimedEvent)
    }

    /// Microseconds from one event to another. Both have been reached.
    fn elapsed_us(&self, from: TimedEvent, to: TimedEvent) -> Result<f64>;

    /// Gives a timed event back.
    fn release_timed_event(&self, event: TimedEvent) {
        self.release_event(event.0);
    }

    /// What an operation has just written on a stream into cells of rows that are NULL has no meaning: a platform that tests
    /// puts there what hurts whoever looks.
    fn spoil_nulls(&self, _cells: NullCells, _stream: Stream) {}
}
