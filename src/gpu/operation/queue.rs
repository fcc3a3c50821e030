//! A stream with memory, on which kernels and copies are enqueued.

use std::sync::{Arc, Mutex};

use bytemuck::{Pod, bytes_of};
use pystachio_engine::{StopFlag, locking::lock_whole};
use pystachio_plan::{ActivityKind, Result};

use super::{
    FaultReport,
    abi::{ScanState, Status},
    fault,
    traffic::bytes_moved,
};
use crate::device::{
    Buffer, Column, DeviceMemory, Kernel, NullCells, Rows, Stream, StreamLease, StreamPriority,
};

/// Words before those of the tiles in the state of a scan.
const SCAN_STATE_WORDS: u64 = (size_of::<ScanState>() / size_of::<u64>()) as u64;
/// Blocks of a kernel whose threads stride over rows: enough to fill the largest GPU several times.
const STRIDED_BLOCKS_MAX: u64 = 4096;
/// Zeros that are filled at once, and the part of the memory that they may be: every queue has some.
const ZEROS_BYTES: u64 = 4 << 10;
const ZEROS_PART: u64 = 1 << 16;
/// An operation's limit of them, and the alignment of its part: two operations never write to one
/// line of a cache.
const ZERO_CELLS_BYTES_MAX: u64 = 256;
const ZEROS_ALIGNMENT_BYTES: u64 = 64;
const _: () = assert!(ZERO_CELLS_BYTES_MAX <= ZEROS_BYTES);

/// The memory of a device and one stream on it, with the operations that operators consist of,
/// which the files of this module, `program` and `decode` add. Cheap to clone; the last clone
/// returns the stream for reuse, ordered after all work enqueued on this one.
///
/// # Shapes
///
/// Input columns and flags of an operation have at least as many rows as the caller says; outputs
/// have as many as its documentation says. A flag is a byte, 0 or 1.
///
/// # Units
///
/// Rows are numbered from 0 with 32 bits, so a chunk has fewer than 2^32 - 1 of them.
///
/// # Ordering
///
/// Operations of one queue happen in the order of their calls. A call returns when its work is enqueued, unless its
/// documentation says that it waits.
///
/// # Errors
///
/// Every operation: `OutOfMemory` if memory for results or work is refused, and `Device` for a
/// fault of the device, which is then lost to this process. Operations document further errors.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<QueueInner>,
}

struct QueueInner {
    memory: DeviceMemory,
    lease: Arc<StreamLease>,
    defers_faults: bool,
    /// The status word for faults that are reported later. Allocated for the first kernel that may
    /// report one.
    deferred_status: Mutex<Option<Buffer>>,
    /// Unused zeros, for small needs.
    zeros: Mutex<Option<Zeros>>,
    /// Zeros that scans leave as they found them. The next one on the stream uses them again.
    scan_state: Mutex<Option<Buffer>>,
}

/// Some zeros, and how many bytes of them are in use.
struct Zeros {
    buffer: Buffer,
    used_bytes: u64,
}

impl Queue {
    /// A queue on a stream of its own. Others wait for it only if they use its buffers.
    ///
    /// # Errors
    ///
    /// Errors of [`crate::device::Platform`].
    pub fn new(memory: &DeviceMemory) -> Result<Self> {
        Self::with_priority(memory, StreamPriority::Low)
    }

    /// A queue for a driver: its work has priority if the device has no room for all enqueued work.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::new`].
    pub fn for_driver(memory: &DeviceMemory) -> Result<Self> {
        Self::with_priority(memory, StreamPriority::High)
    }

    fn with_priority(memory: &DeviceMemory, priority: StreamPriority) -> Result<Self> {
        let lease = Arc::new(memory.lease_stream(priority)?);
        Ok(Self::on(memory.separated(), lease, false))
    }

    /// The same queue, whose faults are looked at later by [`Queue::report_faults`].
    pub fn with_deferred_faults(&self) -> Self {
        Self::on(self.memory().clone(), self.shared.lease.clone(), true)
    }

    /// The same queue, for work that ends when `stop` is set.
    pub fn until(&self, stop: StopFlag) -> Self {
        Self::on(self.memory().until(stop), self.shared.lease.clone(), self.shared.defers_faults)
    }

    fn on(memory: DeviceMemory, lease: Arc<StreamLease>, defers_faults: bool) -> Self {
        let (deferred_status, zeros, scan_state) = Default::default();
        Self {
            shared: Arc::new(QueueInner { memory, lease, defers_faults, deferred_status, zeros, scan_state }),
        }
    }

    /// The device's memory.
    pub fn memory(&self) -> &DeviceMemory {
        &self.shared.memory
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
        self.shared.lease.stream()
    }

    /// Whether faults in values may be reported later than by the operation that finds them: by
    /// [`Queue::report_faults`].
    pub fn defers_faults(&self) -> bool {
        self.shared.defers_faults
    }

    /// Fails if no more work is wanted. Code that enqueues work of many steps calls it before each
    /// of them, so that a cancel is noticed between any two.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    pub fn check_wanted(&self) -> Result<()> {
        self.memory().stop().check()
    }

    /// Waits for all enqueued work.
    pub fn wait(&self) -> Result<()> {
        self.memory().platform().wait(self.stream())
    }

    /// Marks the work enqueued so far as the last writes into rows: streams that use them are
    /// ordered after it. The host does not wait.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn publish(&self, rows: &Rows) -> Result<()> {
        self.memory().publish(rows.buffers(), self.stream())
    }

    pub(crate) fn allocate<T>(&self, count: u64) -> Result<Buffer> {
        self.memory().allocate(count * size_of::<T>() as u64, self.stream())
    }

    pub(crate) fn allocate_filled<T>(&self, count: u64, byte: u8) -> Result<Buffer> {
        let buffer = self.allocate::<T>(count)?;
        self.memory().fill(&buffer, byte, self.stream())?;
        Ok(buffer)
    }

    /// A few zeros, up to [`ZERO_CELLS_BYTES_MAX`]: counts and reports of one operation. They are a
    /// part of more, which are filled at once, so that an operation has no fill of its own. Only
    /// this queue's stream may use them: adjacent ones are written later.
    pub(crate) fn zeros<T>(&self, count: usize) -> Result<Buffer> {
        let bytes = (count * size_of::<T>()) as u64;
        assert!(bytes <= ZERO_CELLS_BYTES_MAX, "zeros that are many");
        let mut zeros = lock_whole(&self.shared.zeros);
        let known = zeros.take().filter(|known| known.used_bytes + bytes <= known.buffer.bytes());
        let Zeros { buffer, used_bytes } = match known {
            Some(known) => known,
            None => {
                let all_bytes = ZEROS_BYTES.min(self.memory().bytes_max() / ZEROS_PART).max(bytes);
                Zeros { buffer: self.allocate_filled::<u8>(all_bytes, 0)?, used_bytes: 0 }
            }
        };
        let part = buffer.slice(used_bytes, bytes);
        let used_bytes = (used_bytes + bytes).next_multiple_of(ZEROS_ALIGNMENT_BYTES);
        *zeros = Some(Zeros { buffer, used_bytes });
        Ok(part)
    }

    /// Says that cells of a column's NULLs were written; see [`crate::device::Platform::poison_nulls`].
    pub(crate) fn poison_nulls(&self, column: &Column, row_count: usize) {
        if let Some(cells) = NullCells::of(column, row_count) {
            self.memory().platform().poison_nulls(cells, self.stream());
        }
    }

    pub(crate) fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer> {
        self.memory().upload(values, self.stream())
    }

    pub(crate) fn download<T: Pod>(&self, buffer: &Buffer, count: usize) -> Result<Vec<T>> {
        self.memory().download(buffer, count, self.stream())
    }

    pub(crate) fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()> {
        self.memory().copy(source, target, bytes, self.stream())
    }

    /// Runs a kernel on its argument struct, unless its query was cancelled.
    pub(crate) fn launch<T: Pod>(&self, kernel: Kernel, blocks: u64, arguments: &T) -> Result<()> {
        let grid = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.launch_moving(kernel, grid, arguments, || bytes_moved(kernel, bytes_of(arguments)))
    }

    /// Runs a kernel whose threads stride over `count` rows.
    pub(crate) fn launch_strided<T: Pod>(&self, kernel: Kernel, count: u64, arguments: &T) -> Result<()> {
        let blocks = count.div_ceil(u64::from(kernel.block_threads())).min(STRIDED_BLOCKS_MAX);
        self.launch(kernel, blocks, arguments)
    }

    /// Like [`Queue::launch`], for a kernel whose arguments do not tell its traffic: `bytes`
    /// estimates it, as [`bytes_moved`] does. It is called only if the work is recorded.
    pub(crate) fn launch_moving<T: Pod>(
        &self,
        kernel: Kernel,
        grid: u32,
        arguments: &T,
        bytes: impl FnOnce() -> u64,
    ) -> Result<()> {
        if grid == 0 {
            return Ok(());
        }
        self.check_wanted()?;
        let stream = self.stream();
        self.memory().platform().launch(kernel, grid, bytes_of(arguments), stream)?;
        if self.memory().is_watched() {
            self.memory().note_enqueued(ActivityKind::Kernel, kernel.name(), bytes(), stream);
        }
        Ok(())
    }

    /// The address of a status word that [`Queue::report_faults`] checks later: a kernel's report
    /// comes before the consequences of its fault on the stream. `None` if statuses are checked at
    /// once.
    ///
    /// # Errors
    ///
    /// Errors of [`crate::device::DeviceMemory::allocate`].
    pub(crate) fn deferred_status(&self) -> Result<Option<u64>> {
        if !self.defers_faults() {
            return Ok(None);
        }
        let mut status = lock_whole(&self.shared.deferred_status);
        let buffer = match status.take() {
            Some(buffer) => buffer,
            None => self.zeros::<Status>(1)?,
        };
        let address = buffer.address();
        *status = Some(buffer);
        Ok(Some(address))
    }

    /// The address of zeros for the state of a scan of so many tiles ([`super::abi::ScanCounts`]), which are zeros again after it.
    ///
    /// # Errors
    ///
    /// Errors of [`crate::device::DeviceMemory::allocate`].
    pub(super) fn scan_state(&self, tiles: u64) -> Result<u64> {
        let words = SCAN_STATE_WORDS + tiles;
        let mut state = lock_whole(&self.shared.scan_state);
        let buffer = match state.take().filter(|buffer| buffer.bytes() >= words * size_of::<u64>() as u64) {
            Some(buffer) => buffer,
            None => self.allocate_filled::<u64>(words.next_power_of_two(), 0)?,
        };
        let address = buffer.address();
        *state = Some(buffer);
        Ok(address)
    }

    /// Checks for faults in values that operations have found so far and not reported, without
    /// waiting. Only a queue that defers faults has any.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn report_faults(&self) -> Result<FaultReport> {
        let status = lock_whole(&self.shared.deferred_status);
        let Some(buffer) = status.as_ref() else { return Ok(FaultReport::none()) };
        let readback = self.memory().post::<Status>(buffer.address(), 1, self.stream())?;
        Ok(FaultReport::pending(move || fault::check(readback.wait::<Status>(1)?.first())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::EmulatedPlatform;

    #[test]
    fn small_zeros_are_zeros_and_nobody_has_them_twice() {
        let memory = DeviceMemory::new(Arc::new(EmulatedPlatform::with_seed(3)), 1 << 26);
        let queue = Queue::new(&memory).unwrap();
        let mut all = Vec::new();
        // Several times as many as are filled at once.
        for number in 1..300usize {
            let words = number % (ZERO_CELLS_BYTES_MAX as usize / 4) + 1;
            let zeros = queue.zeros::<u32>(words).unwrap();
            assert_eq!(queue.download::<u32>(&zeros, words).unwrap(), vec![0; words]);
            memory.fill(&zeros, number as u8, queue.stream()).unwrap();
            all.push((zeros, number as u8));
        }
        for (zeros, number) in all {
            let bytes: Vec<u8> = queue.download(&zeros, zeros.bytes() as usize).unwrap();
            assert!(bytes.iter().all(|byte| *byte == number), "{number}: {bytes:?}");
        }
    }
}
