//! The emulated device: host memory, and the kernels' own sources compiled for the host.
//!
//! Fresh memory is filled with a pattern, so that a kernel which reads unwritten memory fails a
//! test. Cells of NULL rows are filled with poison, so that code which reads a cell before its
//! validity fails too. The device refuses calls that a driver refuses: a copy over a range that no
//! single live buffer holds, on the device or on the host. A buffer may be used only on streams
//! that were announced for it.
//!
//! - `memory.rs`: allocations, and refused accesses
//! - `schedule.rs`: when work happens: at once, or late in an order that a seed chooses
//! - `failures.rs`: failures on purpose
#![expect(unsafe_code, reason = "device addresses are host pointers here")]

mod failures;
mod memory;
mod schedule;

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use pystachio_engine::StopFlag;
use pystachio_files::{Slot, from_io};
use pystachio_plan::{Error, ErrorKind, Result};

pub use self::failures::Refusal;
use self::{
    failures::{Behaviour, Failures},
    memory::{COMMIT_BYTES, EmulatedMemory, GUARD_BYTES, LockedMemory, close_buffer, open_buffer},
    schedule::Schedule,
};
use super::{
    BatchSize, CallWatch, Decompressor, DeviceFile, DeviceFileMode, Event, FrameBatch, FrameFormat, Kernel,
    NullCells, Platform, Stream, StreamPriority, TimedEvent, poison::poison_cell,
};

/// The increment of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number of a sequence of SplitMix64 by its state.
fn mix(state: u64) -> u64 {
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The content of fresh memory, unless a test compares another one.
const POISON: u8 = 0xa5;

unsafe extern "C" {
    fn pystachio_emulate(kernel: u32, arguments: *const std::ffi::c_void, grid: u32) -> i32;
}

/// A device on the host.
pub struct EmulatedPlatform {
    poison: u8,
    memory: Arc<EmulatedMemory>,
    locked: Arc<LockedMemory>,
    schedule: Arc<Schedule>,
    failures: Arc<Failures>,
    slots_lent: Arc<AtomicUsize>,
    has_gpudirect: bool,
    decompressor: Option<OrderedDecompressor>,
    calls: Arc<CallWatch>,
}

impl EmulatedPlatform {
    /// A device that reads files by itself in the compatibility mode only. The environment may make
    /// it late and let calls fail (`failures.rs`).
    pub fn new() -> Self {
        // Each device of a process has an order of its own.
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        let behaviour = Behaviour::of_environment();
        let number = DEVICES.fetch_add(1, Ordering::Relaxed);
        let seed = behaviour.seed.map(|seed| seed.wrapping_add(number << 32));
        Self::behaving(Behaviour { seed, ..behaviour })
    }

    fn behaving(behaviour: Behaviour) -> Self {
        Self {
            poison: POISON,
            memory: Arc::default(),
            locked: Arc::default(),
            schedule: Arc::new(Schedule::new(behaviour.seed)),
            failures: Arc::new(Failures::new(behaviour)),
            slots_lent: Arc::default(),
            has_gpudirect: false,
            decompressor: None,
            calls: Arc::default(),
        }
    }

    /// A device that works at once and never fails, whatever the environment says.
    pub fn at_once() -> Self {
        Self::behaving(Behaviour::default())
    }

    /// A device that works late, in a seeded order.
    pub fn with_seed(seed: u64) -> Self {
        Self::behaving(Behaviour { seed: Some(seed), ..Behaviour::default() })
    }

    /// A device that reads files by itself.
    pub fn with_gpudirect() -> Self {
        Self { has_gpudirect: true, ..Self::new() }
    }

    /// A device with a library that decompresses.
    pub fn with_decompressor(library: impl Decompressor + 'static) -> Self {
        let device = Self::new();
        let decompressor =
            OrderedDecompressor { library: Box::new(library), schedule: device.schedule.clone() };
        Self { decompressor: Some(decompressor), ..device }
    }

    /// A device with other bytes in fresh memory.
    pub fn with_poison(poison: u8) -> Self {
        Self { poison, ..Self::new() }
    }

    /// Makes the call of a kind fail that comes after so many others.
    pub fn refuse(&self, kind: Refusal, after: u64) {
        self.failures.plan(kind, after);
    }

    /// Calls of a kind so far.
    pub fn count(&self, kind: Refusal) -> u64 {
        self.failures.count(kind)
    }

    /// Slots that were not returned.
    pub fn slots_lent(&self) -> usize {
        self.slots_lent.load(Ordering::Relaxed)
    }

    /// Fails if the copy is to fail on purpose, or if a driver would refuse it.
    fn check_copy(&self, action: &str, ranges: &[(u64, u64)], stream: Stream) -> Result<()> {
        if self.failures.refuses(Refusal::Copy) {
            return Err(Error::internal(format!(
                "the emulated device could not {action}: it was told to refuse this"
            )));
        }
        ranges
            .iter()
            .try_for_each(|(address, bytes)| self.memory.check(action, *address, *bytes, Some(stream)))
    }
}

/// A library that works when it is called, yet in the order of its streams.
struct OrderedDecompressor {
    library: Box<dyn Decompressor>,
    schedule: Arc<Schedule>,
}

impl Decompressor for OrderedDecompressor {
    fn name(&self, format: FrameFormat) -> &'static str {
        self.library.name(format)
    }

    fn scratch_bytes(&self, format: FrameFormat, size: BatchSize, stream: Stream) -> Option<u64> {
        self.library.scratch_bytes(format, size, stream)
    }

    fn decompress(&self, batch: &FrameBatch, scratch: Option<(u64, u64)>, stream: Stream) -> Result<()> {
        self.schedule.wait(stream)?;
        self.library.decompress(batch, scratch, stream)
    }
}

impl Default for EmulatedPlatform {
    fn default() -> Self {
        Self::new()
    }
}

/// Slots that can be lent at once.
const SLOTS: usize = 6;
/// Small, so that column chunks are read in several parts.
const SLOT_LAYOUT: Layout = match Layout::from_size_align(256 << 10, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a size that is no multiple of its alignment"),
};

/// A file that is read into the device's memory, which is the host's.
struct EmulatedFile {
    file: File,
    path: PathBuf,
    memory: Arc<EmulatedMemory>,
    failures: Arc<Failures>,
}

impl DeviceFile for EmulatedFile {
    fn read(&self, offset: u64, bytes: u64, target: u64) -> Result<()> {
        if self.failures.refuses(Refusal::Read) {
            let message =
                format!("could not read file \"{}\": it was told to refuse this", self.path.display());
            return Err(Error::new(ErrorKind::FileAccess, message));
        }
        self.memory.check("read a file", target, bytes, None)?;
        // SAFETY: the target is device memory of at least this size, and no other work uses it.
        let target = unsafe { std::slice::from_raw_parts_mut(target as *mut u8, bytes as usize) };
        self.file.read_exact_at(target, offset).map_err(|error| from_io(&self.path, "read", &error))
    }
}

const TO_DEVICE: &str = "copy to the device";
const FROM_DEVICE: &str = "copy from the device";
const WITHIN_DEVICE: &str = "copy memory";

/// Copies bytes between addresses that have been checked.
fn copy_bytes(source: u64, target: u64, bytes: u64) {
    // SAFETY: both are memory of at least this size.
    unsafe { std::ptr::copy(source as *const u8, target as *mut u8, bytes as usize) };
}

impl Platform for EmulatedPlatform {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn calls(&self) -> Arc<CallWatch> {
        self.calls.clone()
    }

    fn reader_count(&self) -> usize {
        2
    }

    fn create_stream(&self, _priority: StreamPriority) -> Result<Stream> {
        Ok(self.schedule.create_stream())
    }

    fn commit_bytes(&self) -> u64 {
        COMMIT_BYTES
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.memory.reserve(bytes)
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        self.memory.unreserve(address, bytes);
    }

    fn commit(&self, address: u64, bytes: u64) -> Result<()> {
        self.memory.commit(address, bytes)
    }

    fn decommit(&self, address: u64, bytes: u64) {
        self.memory.decommit(address, bytes);
    }

    fn note_lent(&self, address: u64, bytes: u64, stream: Stream) -> Result<()> {
        if self.failures.refuses(Refusal::Allocation) {
            let message = format!("the emulated device was told to refuse {bytes} bytes");
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        }
        self.memory.add(address, bytes, stream);
        let poison = self.poison;
        self.schedule.enqueue(stream, move || {
            open_buffer(address, bytes, poison);
            Ok(())
        })
    }

    fn note_used(&self, address: u64, stream: Stream) {
        self.memory.allow(address, stream);
    }

    fn note_returned(&self, address: u64, bytes: u64, streams: &[Stream]) {
        self.memory.remove(address, bytes);
        let poison = self.poison;
        // The last stream to use it closes it.
        let left = Arc::new(AtomicUsize::new(streams.len()));
        for stream in streams {
            let left = left.clone();
            let closed = self.schedule.enqueue(*stream, move || match left.fetch_sub(1, Ordering::AcqRel) {
                1 => close_buffer(address, bytes, poison),
                _ => Ok(()),
            });
            assert!(closed.is_ok(), "{closed:?}");
        }
    }

    fn guard_bytes(&self) -> u64 {
        GUARD_BYTES
    }

    fn upload(&self, source: &[u8], target: u64, stream: Stream, _stop: &StopFlag) -> Result<()> {
        let bytes = source.len() as u64;
        self.check_copy(TO_DEVICE, &[(target, bytes)], stream)?;
        if !self.schedule.is_late() {
            copy_bytes(source.as_ptr() as u64, target, bytes);
            return Ok(());
        }
        let source = source.to_vec();
        self.schedule.enqueue(stream, move || {
            copy_bytes(source.as_ptr() as u64, target, bytes);
            Ok(())
        })
    }

    fn lend_slot(&self, stop: Option<&StopFlag>) -> Result<Option<Slot>> {
        let lent = self.slots_lent.fetch_add(1, Ordering::Relaxed);
        if lent >= SLOTS && stop.is_none() {
            self.slots_lent.fetch_sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc(SLOT_LAYOUT) };
        if memory.is_null() {
            handle_alloc_error(SLOT_LAYOUT);
        }
        // SAFETY: it has just been allocated with this size.
        unsafe { memory.write_bytes(POISON, SLOT_LAYOUT.size()) };
        Ok(Some(Slot { number: lent, address: memory as u64, bytes: SLOT_LAYOUT.size() }))
    }

    fn return_slot(&self, slot: Slot) {
        give_back(&slot, &self.slots_lent);
    }

    fn upload_slot(&self, slot: Slot, range: Range<usize>, target: u64, stream: Stream) -> Result<()> {
        assert!(range.end <= slot.bytes, "bytes of a slot");
        let bytes = range.len() as u64;
        if let Err(error) = self.check_copy(TO_DEVICE, &[(target, bytes)], stream) {
            self.return_slot(slot);
            return Err(error);
        }
        let slots_lent = self.slots_lent.clone();
        self.schedule.enqueue(stream, move || {
            copy_bytes(slot.address + range.start as u64, target, bytes);
            give_back(&slot, &slots_lent);
            Ok(())
        })
    }

    fn open_file(&self, file: &File, path: &Path, mode: DeviceFileMode) -> Result<Box<dyn DeviceFile>> {
        if mode == DeviceFileMode::GpuDirect && !self.has_gpudirect {
            return Err(Error::new(ErrorKind::Unavailable, "the emulated device has none"));
        }
        let file = file.try_clone().map_err(|error| from_io(path, "open", &error))?;
        Ok(Box::new(EmulatedFile {
            file,
            path: path.to_owned(),
            memory: self.memory.clone(),
            failures: self.failures.clone(),
        }))
    }

    fn download(&self, source: u64, target: &mut [u8], stream: Stream, _stop: &StopFlag) -> Result<()> {
        self.check_copy(FROM_DEVICE, &[(source, target.len() as u64)], stream)?;
        self.schedule.wait(stream)?;
        copy_bytes(source, target.as_mut_ptr() as u64, target.len() as u64);
        Ok(())
    }

    fn allocate_host(&self, bytes: usize) -> Result<u64> {
        self.locked.allocate(bytes as u64, self.poison)
    }

    fn release_host(&self, address: u64, bytes: usize) {
        self.locked.release(address, bytes as u64);
    }

    fn upload_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        if !self.locked.is_within(source) {
            // SAFETY: the caller's memory; a driver has copied it on return.
            let source = unsafe { std::slice::from_raw_parts(source as *const u8, bytes) };
            return self.upload(source, target, stream, &StopFlag::default());
        }
        let bytes = bytes as u64;
        self.locked.check(TO_DEVICE, source, bytes)?;
        self.check_copy(TO_DEVICE, &[(target, bytes)], stream)?;
        let locked = self.locked.clone();
        self.schedule.enqueue(stream, move || {
            // It must still be allocated.
            locked.check(TO_DEVICE, source, bytes)?;
            copy_bytes(source, target, bytes);
            Ok(())
        })
    }

    fn download_in_place(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        if !self.locked.is_within(target) {
            // SAFETY: the caller's memory; a driver has written it on return.
            let target = unsafe { std::slice::from_raw_parts_mut(target as *mut u8, bytes) };
            return self.download(source, target, stream, &StopFlag::default());
        }
        let bytes = bytes as u64;
        self.check_copy(FROM_DEVICE, &[(source, bytes)], stream)?;
        self.locked.check(FROM_DEVICE, target, bytes)?;
        let locked = self.locked.clone();
        self.schedule.enqueue(stream, move || {
            locked.check(FROM_DEVICE, target, bytes)?;
            copy_bytes(source, target, bytes);
            Ok(())
        })
    }

    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], stream: Stream) -> Result<()> {
        if grid == 0 {
            return Ok(());
        }
        // Argument structs hold 64-bit addresses.
        let mut aligned = vec![0u64; arguments.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut aligned)[..arguments.len()].copy_from_slice(arguments);
        self.memory.check_arguments(kernel.name(), &aligned, stream)?;
        let calls = self.calls.clone();
        self.schedule.enqueue(stream, move || {
            let _call = calls.enter();
            // SAFETY: the argument is the kernel's struct, whose layout abi.rs and kernels/abi share; the
            // addresses in it are buffers of this device that the stream uses.
            let status = unsafe { pystachio_emulate(kernel as u32, aligned.as_ptr().cast(), grid) };
            match status {
                0 => Ok(()),
                _ => Err(Error::internal(format!("no such kernel: {}", kernel.name()))),
            }
        })
    }

    fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        self.check_copy(WITHIN_DEVICE, &[(source, bytes), (target, bytes)], stream)?;
        self.schedule.enqueue(stream, move || {
            copy_bytes(source, target, bytes);
            Ok(())
        })
    }

    fn fill(&self, target: u64, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        self.check_copy("fill memory", &[(target, bytes)], stream)?;
        self.schedule.enqueue(stream, move || {
            // SAFETY: device memory of at least this size.
            unsafe { (target as *mut u8).write_bytes(value, bytes as usize) };
            Ok(())
        })
    }

    fn decompressor(&self) -> Option<&dyn Decompressor> {
        self.decompressor.as_ref().map(|decompressor| decompressor as &dyn Decompressor)
    }

    fn wait(&self, stream: Stream) -> Result<()> {
        self.schedule.wait(stream)
    }

    fn wait_event(&self, event: Event) -> Result<()> {
        self.schedule.wait_event(event)
    }

    fn has_reached(&self, event: Event) -> Result<bool> {
        Ok(self.schedule.has_reached(event))
    }

    fn order_after(&self, stream: Stream, event: Event) -> Result<()> {
        self.schedule.order_after(stream, event);
        Ok(())
    }

    fn record_event(&self, stream: Stream) -> Result<Event> {
        Ok(self.schedule.record_event(stream))
    }

    fn release_event(&self, event: Event) {
        self.schedule.release_event(event);
    }

    fn elapsed_us(&self, from: TimedEvent, to: TimedEvent) -> Result<f64> {
        Ok((self.schedule.nanoseconds(to.0)? - self.schedule.nanoseconds(from.0)?) / 1000.0)
    }

    fn poison_nulls(&self, cells: NullCells, stream: Stream) {
        let poisoned = self.schedule.enqueue(stream, move || {
            poison_cells(cells);
            Ok(())
        });
        assert!(poisoned.is_ok(), "{poisoned:?}");
    }
}

/// Fills the cells of NULL rows with poison.
fn poison_cells(cells: NullCells) {
    let NullCells { values, validity, cell_type, row_count } = cells;
    if row_count == 0 {
        return;
    }
    let cell_bytes = cell_type.bytes() as usize;
    // SAFETY: both are device memory with so many rows, and no other work writes them while this
    // stream may.
    let (validity, values) = unsafe {
        (
            std::slice::from_raw_parts(validity as *const u8, row_count),
            std::slice::from_raw_parts_mut(values as *mut u8, row_count * cell_bytes),
        )
    };
    let cells = validity.iter().zip(values.chunks_exact_mut(cell_bytes)).enumerate();
    for (row, (_, cell)) in cells.filter(|(_, (flag, _))| **flag == 0) {
        cell.copy_from_slice(&poison_cell(cell_type, row)[..cell_bytes]);
    }
}

/// Frees a slot's memory.
fn give_back(slot: &Slot, slots_lent: &AtomicUsize) {
    // SAFETY: `lend_slot` allocated it with this layout, and its owner returns it.
    unsafe { dealloc(slot.address as *mut u8, SLOT_LAYOUT) };
    slots_lent.fetch_sub(1, Ordering::Relaxed);
}
