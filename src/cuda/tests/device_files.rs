//! Files that the GPU reads by itself: the same bytes as pread gives.
//!
//! Without a GPU the test says so and passes; with PYSTACHIO_REQUIRE_GPU=1 that is a failure. A host without cuFile,
//! or whose cuFile can't be used, says why; with PYSTACHIO_REQUIRE_CUFILE=1 that is a failure of the compatibility
//! mode, which needs no hardware of its own.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::{fs::File, sync::Arc};

use pystachio_cuda::CudaPlatform;
use pystachio_engine::device::{DeviceFileMode, DeviceMemory, Platform};
use pystachio_plan::ErrorKind;

const MEMORY_BYTES: u64 = 1 << 30;
/// More than one call of cuFile reads, and no multiple of a block.
const FILE_BYTES: usize = (40 << 20) + 777;

fn is_required(name: &str) -> bool {
    std::env::var(name).as_deref() == Ok("1")
}

#[test]
fn the_gpu_reads_what_the_file_has() {
    let platform = match CudaPlatform::open(0) {
        Ok(platform) => Arc::new(platform),
        Err(error) => {
            assert!(!is_required("PYSTACHIO_REQUIRE_GPU"), "{error}");
            println!("skipped: {error}");
            return;
        }
    };
    let memory = DeviceMemory::new(platform.clone(), MEMORY_BYTES);
    let lease = memory.lease_stream().expect("a stream");
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
                    mode == DeviceFileMode::Compatibility && is_required("PYSTACHIO_REQUIRE_CUFILE");
                assert!(!is_failure && error.kind == ErrorKind::Unavailable, "{mode:?}: {error}");
                println!("skipped {mode:?}: {error}");
                continue;
            }
        };
        let ranges = [(0, FILE_BYTES), (0, 4096), (4096, 8192), (1, 1), (4095, 2), (777, 20 << 20)];
        for (offset, length) in ranges.into_iter().chain([(FILE_BYTES - 9, 9)]) {
            let stream = lease.stream();
            let buffer = memory.allocate_zeroed(length as u64, stream).expect("memory");
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
