//! The GPU as a platform: files that it reads by itself have the same bytes as pread gives, and a call that does not
//! return is seen.
//!
//! Without a GPU the tests say so and pass; with PYSTACHIO_REQUIRE_GPU=1 that is a failure. A host without cuFile,
//! or whose cuFile can't be used, says why; with PYSTACHIO_REQUIRE_CUFILE=1 that is a failure of the compatibility
//! mode, which needs no hardware of its own.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

mod gpu;

use std::{
    ffi::{CStr, c_void},
    fs::File,
    ptr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cudarc::driver::{
    result::{launch_kernel, module},
    sys::CUstream,
};
use pystachio_gpu::device::{DeviceFileMode, DeviceMemory, Platform, StreamPriority};
use pystachio_plan::ErrorKind;

const MEMORY_BYTES: u64 = 1 << 30;
/// More than one call of cuFile reads, and no multiple of a block.
const FILE_BYTES: usize = (40 << 20) + 777;

/// Runs until a word of the host's memory is no longer zero.
const WAITING_KERNEL: &CStr = c"
.version 7.0
.target sm_80
.address_size 64
.visible .entry wait_for_word(.param .u64 word)
{
    .reg .u64 %address;
    .reg .u32 %value;
    .reg .pred %is_zero;
    ld.param.u64 %address, [word];
again:
    ld.volatile.u32 %value, [%address];
    setp.eq.u32 %is_zero, %value, 0;
    @%is_zero bra again;
    ret;
}
";

#[test]
#[expect(unsafe_code, reason = "a kernel of the test's own, and page-locked memory")]
fn a_call_that_does_not_return_is_seen() {
    // Under a sanitizer the launch itself waits.
    let Some(platform) = gpu::open().filter(|_| !gpu::is_set("PYSTACHIO_SANITIZED")) else { return };
    let calls = platform.calls();
    let stream = platform.create_stream(StreamPriority::Low).expect("a stream");
    let word = platform.allocate_host(4).expect("page-locked memory");
    let word_pointer = ptr::with_exposed_provenance_mut::<u32>(word as usize);
    // SAFETY: four bytes that no other code has yet.
    unsafe { word_pointer.write_volatile(0) };
    // The context is this thread's from here on.
    platform.wait(stream).expect("an idle stream");
    let mut parameters = [(&raw const word).cast_mut().cast::<c_void>()];
    // SAFETY: the kernel has one parameter, an address that the device can read, and is at its end before the word goes.
    unsafe {
        let loaded = module::load_data(WAITING_KERNEL.as_ptr().cast()).expect("the kernel");
        let function = module::get_function(loaded, c"wait_for_word".to_owned()).expect("the kernel");
        launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, stream.0 as CUstream, &mut parameters)
            .expect("a launch");
    }
    assert_eq!(calls.look(), 0);
    let most_looks = thread::scope(|scope| {
        let waiting = scope.spawn(|| platform.wait(stream));
        let (begin, mut most_looks) = (Instant::now(), 0);
        while most_looks < 5 && begin.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(5));
            most_looks = calls.look();
        }
        // SAFETY: the memory is there; the kernel waits for this.
        unsafe { word_pointer.write_volatile(1) };
        waiting.join().expect("no panic").expect("the kernel ends");
        most_looks
    });
    assert_eq!((most_looks, calls.look()), (5, 0));
    platform.release_host(word, 4);
}

#[test]
fn the_gpu_reads_what_the_file_has() {
    let Some(platform) = gpu::open().map(Arc::new) else { return };
    let memory = DeviceMemory::new(platform.clone(), MEMORY_BYTES);
    let lease = memory.lease_stream(StreamPriority::Low).expect("a stream");
    let test = std::env::current_exe().expect("this test's path");
    let folder = tempfile::tempdir_in(test.parent().expect("its folder")).expect("a folder");
    let path = folder.path().join("bytes");
    let bytes: Vec<u8> = (0..FILE_BYTES as u64).map(|place| (place * 31 % 251) as u8).collect();
    std::fs::write(&path, &bytes).expect("a file");
    let file = File::open(&path).expect("the file");
    file.sync_all().expect("the file's bytes on storage");
    for mode in [DeviceFileMode::GpuDirect, DeviceFileMode::Compatibility] {
        let device_file = match platform.open_file(&file, &path, mode) {
            Ok(device_file) => device_file,
            Err(error) => {
                let is_failure =
                    mode == DeviceFileMode::Compatibility && gpu::is_set("PYSTACHIO_REQUIRE_CUFILE");
                assert!(!is_failure && error.kind == ErrorKind::Unavailable, "{mode:?}: {error}");
                println!("skipped {mode:?}: {error}");
                continue;
            }
        };
        let ranges = [(0, FILE_BYTES), (0, 4096), (4096, 8192), (1, 1), (4095, 2), (777, 20 << 20)];
        for (offset, length) in ranges.into_iter().chain([(FILE_BYTES - 9, 9)]) {
            let stream = lease.stream();
            let buffer = memory.allocate(length as u64, stream).expect("memory");
            memory.fill(&buffer, 0, stream).expect("zeros");
            let target = (length as u64, buffer.address());
            memory.read_file(device_file.as_ref(), offset as u64, target, stream).expect("a read");
            let found: Vec<u8> = memory.download(&buffer, length, stream).expect("bytes");
            assert!(found == bytes[offset..offset + length], "{mode:?} {offset} {length}");
        }
        let buffer = memory.allocate(10, lease.stream()).expect("memory");
        let target = (10, buffer.address());
        let beyond = memory.read_file(device_file.as_ref(), FILE_BYTES as u64 - 9, target, lease.stream());
        assert_eq!(beyond.expect_err("the file has ended").kind, ErrorKind::FileCorrupt, "{mode:?}");
        // One mode at a time.
        let other = match mode {
            DeviceFileMode::GpuDirect => DeviceFileMode::Compatibility,
            DeviceFileMode::Compatibility => DeviceFileMode::GpuDirect,
        };
        let refused = platform.open_file(&file, &path, other).err().expect("cuFile is in another mode");
        let is_there_never = other == DeviceFileMode::GpuDirect && refused.kind == ErrorKind::Unavailable;
        assert!(is_there_never || refused.kind == ErrorKind::FileAccess, "{refused}");
    }
}
