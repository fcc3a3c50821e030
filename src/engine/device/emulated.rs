//! The emulated device: host memory, and the kernels' own sources compiled for the host.
//!
//! Invariants: everything has happened when a method returns, so streams need no order of their own.
//! Fresh memory is filled with a pattern, so that a kernel that reads what nobody wrote is found out; cells of rows that are
//! NULL get hostile values, so that whoever looks at them is. What a driver refuses is refused: a copy over a range that no
//! single live allocation holds, on the device or on the host.
//!
//! - `memory.rs`: what is allocated, and what is refused
#![expect(unsafe_code, reason = "device addresses are host pointers here")]

mod memory;

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
    time::Instant,
};

use pystachio_plan::{Error, ErrorKind, Result};

use self::memory::{EmulatedMemory, LockedMemory};
use super::{
    CallWatch, Decompressor, DeviceFile, DeviceFileMode, Mark, NullCells, Platform, Slot, Stream,
    hostile::hostile_cell,
};
use crate::{
    kernel::{Kernel, KernelDevice, KernelPlatform},
    operation::{Device, Lane},
    storage::from_io,
};

/// What fresh memory holds, unless someone wants to see that it makes no difference.
const POISON: u8 = 0xa5;

unsafe extern "C" {
    fn pystachio_emulate(kernel: u32, arguments: *const std::ffi::c_void, grid: u32) -> i32;
}

/// A device on the host.
pub struct EmulatedPlatform {
    poison: u8,
    memory: Arc<EmulatedMemory>,
    locked: LockedMemory,
    streams: AtomicU64,
    slots_lent: AtomicUsize,
    has_gpudirect: bool,
    decompressor: Option<Box<dyn Decompressor>>,
    calls: Arc<CallWatch>,
    started: Instant,
}

impl EmulatedPlatform {
    /// A device of its own. It reads files by itself in the compatibility mode only.
    pub fn new() -> Self {
        Self {
            poison: POISON,
            memory: Arc::default(),
            locked: LockedMemory::default(),
            streams: AtomicU64::new(0),
            slots_lent: AtomicUsize::new(0),
            has_gpudirect: false,
            decompressor: None,
            calls: Arc::default(),
            started: Instant::now(),
        }
    }

    /// A device that reads files by itself.
    pub fn with_gpudirect() -> Self {
        Self { has_gpudirect: true, ..Self::new() }
    }

    /// A device with a library that decompresses.
    pub fn with_decompressor(decompressor: impl Decompressor + 'static) -> Self {
        Self { decompressor: Some(Box::new(decompressor)), ..Self::new() }
    }

    /// A device with other bytes in fresh memory.
    pub fn with_poison(poison: u8) -> Self {
        Self { poison, ..Self::new() }
    }

    /// Slots that have not been given back.
    pub fn slots_lent(&self) -> usize {
        self.slots_lent.load(Ordering::Relaxed)
    }
}

impl Default for EmulatedPlatform {
    fn default() -> Self {
        Self::new()
    }
}

/// Slots that are lent without waiting.
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
}

impl DeviceFile for EmulatedFile {
    fn read(&self, offset: u64, bytes: u64, target: u64) -> Result<()> {
        self.memory.check("read a file", target, bytes)?;
        // SAFETY: the target is device memory of at least this size, which nobody else uses.
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

    fn device(self: Arc<Self>, lane: Lane) -> Arc<dyn Device> {
        Arc::new(KernelDevice::new(self, lane))
    }

    fn reader_count(&self) -> usize {
        2
    }

    fn create_stream(&self) -> Result<Stream> {
        Ok(Stream(self.streams.fetch_add(1, Ordering::Relaxed)))
    }

    fn allocate(&self, bytes: u64, _stream: Stream) -> Result<u64> {
        self.memory.allocate(bytes, self.poison)
    }

    fn release(&self, address: u64, bytes: u64, _stream: Stream) {
        self.memory.release(address, bytes, self.poison);
    }

    fn allocate_unpooled(&self, bytes: u64) -> Result<u64> {
        self.allocate(bytes, Stream(0))
    }

    fn release_unpooled(&self, address: u64, bytes: u64) {
        self.release(address, bytes, Stream(0));
    }

    fn upload(&self, source: &[u8], target: u64, _stream: Stream) -> Result<()> {
        self.memory.check(TO_DEVICE, target, source.len() as u64)?;
        copy_bytes(source.as_ptr() as u64, target, source.len() as u64);
        Ok(())
    }

    fn lend_slot(&self, waits: bool) -> Result<Option<Slot>> {
        let lent = self.slots_lent.fetch_add(1, Ordering::Relaxed);
        if lent >= SLOTS && !waits {
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
        // SAFETY: `lend_slot` allocated it with this layout, and its owner gives it back.
        unsafe { dealloc(slot.address as *mut u8, SLOT_LAYOUT) };
        self.slots_lent.fetch_sub(1, Ordering::Relaxed);
    }

    fn upload_slot(&self, slot: Slot, range: Range<usize>, target: u64, _stream: Stream) -> Result<()> {
        assert!(range.end <= slot.bytes, "bytes of a slot");
        let bytes = range.len() as u64;
        let checked = self.memory.check(TO_DEVICE, target, bytes);
        if checked.is_ok() {
            copy_bytes(slot.address + range.start as u64, target, bytes);
        }
        self.return_slot(slot);
        checked
    }

    fn open_file(&self, file: &File, path: &Path, mode: DeviceFileMode) -> Result<Box<dyn DeviceFile>> {
        if mode == DeviceFileMode::GpuDirect && !self.has_gpudirect {
            return Err(Error::new(ErrorKind::Unavailable, "the emulated device has none"));
        }
        let file = file.try_clone().map_err(|error| from_io(path, "open", &error))?;
        Ok(Box::new(EmulatedFile { file, path: path.to_owned(), memory: self.memory.clone() }))
    }

    fn download(&self, source: u64, target: &mut [u8], _stream: Stream) -> Result<()> {
        self.memory.check(FROM_DEVICE, source, target.len() as u64)?;
        copy_bytes(source, target.as_mut_ptr() as u64, target.len() as u64);
        Ok(())
    }

    fn upload_pageable(&self, source: &[u8], target: u64, stream: Stream) -> Result<()> {
        self.upload(source, target, stream)
    }

    fn download_pageable(&self, source: u64, target: &mut [u8], stream: Stream) -> Result<()> {
        self.download(source, target, stream)
    }

    fn allocate_host(&self, bytes: usize) -> Result<u64> {
        self.locked.allocate(bytes as u64, self.poison)
    }

    fn release_host(&self, address: u64, bytes: usize) {
        self.locked.release(address, bytes as u64);
    }

    fn upload_pinned(&self, source: u64, target: u64, bytes: usize, _stream: Stream) -> Result<()> {
        self.locked.check(TO_DEVICE, source, bytes as u64)?;
        self.memory.check(TO_DEVICE, target, bytes as u64)?;
        copy_bytes(source, target, bytes as u64);
        Ok(())
    }

    fn download_pinned(&self, source: u64, target: u64, bytes: usize, _stream: Stream) -> Result<()> {
        self.memory.check(FROM_DEVICE, source, bytes as u64)?;
        self.locked.check(FROM_DEVICE, target, bytes as u64)?;
        copy_bytes(source, target, bytes as u64);
        Ok(())
    }

    fn copy(&self, source: u64, target: u64, bytes: u64, _stream: Stream) -> Result<()> {
        self.memory.check(WITHIN_DEVICE, source, bytes)?;
        self.memory.check(WITHIN_DEVICE, target, bytes)?;
        copy_bytes(source, target, bytes);
        Ok(())
    }

    fn fill(&self, target: u64, value: u8, bytes: u64, _stream: Stream) -> Result<()> {
        self.memory.check("fill memory", target, bytes)?;
        // SAFETY: device memory of at least this size.
        unsafe { (target as *mut u8).write_bytes(value, bytes as usize) };
        Ok(())
    }

    fn decompressor(&self) -> Option<&dyn Decompressor> {
        self.decompressor.as_deref()
    }

    fn wait(&self, _stream: Stream) -> Result<()> {
        Ok(())
    }

    fn wait_mark(&self, _mark: Mark) -> Result<()> {
        Ok(())
    }

    fn wait_all(&self) -> Result<()> {
        Ok(())
    }

    fn mark(&self, _stream: Stream) -> Result<Mark> {
        Ok(Mark(self.started.elapsed().as_nanos() as u64))
    }

    fn elapsed_us(&self, from: Mark, to: Mark) -> Result<f64> {
        Ok((to.0 as f64 - from.0 as f64) / 1000.0)
    }

    fn release_mark(&self, _mark: Mark) {}

    fn spoil_nulls(&self, cells: NullCells) {
        let NullCells { values, validity, cell_type, row_count } = cells;
        if row_count == 0 {
            return;
        }
        let cell_bytes = cell_type.bytes() as usize;
        // SAFETY: both are device memory with so many rows, which nobody else writes while an operation does.
        let (validity, values) = unsafe {
            (
                std::slice::from_raw_parts(validity as *const u8, row_count),
                std::slice::from_raw_parts_mut(values as *mut u8, row_count * cell_bytes),
            )
        };
        let cells = validity.iter().zip(values.chunks_exact_mut(cell_bytes)).enumerate();
        for (row, (_, cell)) in cells.filter(|(_, (flag, _))| **flag == 0) {
            cell.copy_from_slice(&hostile_cell(cell_type, row)[..cell_bytes]);
        }
    }
}

impl KernelPlatform for EmulatedPlatform {
    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], _stream: Stream) -> Result<()> {
        if grid == 0 {
            return Ok(());
        }
        // Argument structs hold 64-bit addresses.
        let mut aligned = vec![0u64; arguments.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut aligned)[..arguments.len()].copy_from_slice(arguments);
        self.memory.check_arguments(kernel.name(), &aligned)?;
        let _call = self.calls.enter();
        // SAFETY: the argument is the kernel's struct, whose layout abi.rs and kernels/abi share; the
        // addresses in it are live buffers of this device.
        let status = unsafe { pystachio_emulate(kernel as u32, aligned.as_ptr().cast(), grid) };
        match status {
            0 => Ok(()),
            _ => Err(Error::internal(format!("no such kernel: {}", kernel.name()))),
        }
    }
}
