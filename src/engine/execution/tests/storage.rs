//! Every way from files to the device: the same rows, the same errors.

#![expect(unsafe_code, reason = "pages are dropped from the page cache by libc")]

use std::{
    io::{Read, Seek, SeekFrom, Write},
    os::fd::AsRawFd,
};

use parquet::basic::{Compression, ZstdLevel};
use pystachio_plan::{ErrorKind, StoragePath};

use super::*;
use crate::{
    decode::tests::host_library::{HostLibrary, LibraryFault},
    storage::is_in_page_cache,
};

const PATHS: [StoragePath; 6] = [
    StoragePath::Auto,
    StoragePath::PageCache,
    StoragePath::Direct,
    StoragePath::DirectPread,
    StoragePath::GpuDirect,
    StoragePath::CuFileCompat,
];

/// How often a file is read until all of it stays in the page cache.
const TRIES_MAX: usize = 5;

fn table() -> Table {
    table_of(5000)
}

fn table_of(row_count: usize) -> Table {
    let shape = Shape { seed: 71, row_count, key_count: 1 << 40, repeated_percent: 0, null_percent: 5 };
    // Where temporary files are, there may be no direct reads.
    let test = std::env::current_exe().unwrap();
    Table::new_in(test.parent().unwrap(), shape.rows())
}

fn run(fixture: &Fixture, table: &Table, storage: StoragePath) -> Result<Answer> {
    let settings = DeviceSettings { storage, ..DeviceSettings::default() };
    fixture.run_with(plan(table.scan(0)), settings)
}

#[test]
fn every_path_gives_the_same_rows() {
    let table = table();
    let expected: Vec<Vec<String>> = table.rows.iter().map(shown_row).collect();
    let fixture = Fixture::over(Arc::new(EmulatedPlatform::with_gpudirect()), PLENTY_BYTES);
    for path in PATHS {
        let answer = run(&fixture, &table, path).unwrap();
        assert!(answer.rows == expected, "{path:?}");
        let taken = match path {
            StoragePath::Auto => StoragePath::GpuDirect,
            path => path,
        };
        // Where the kernel refuses io_uring, there is only pread.
        let is_taken = answer.metrics.storage_paths == [taken]
            || (path == StoragePath::Direct && answer.metrics.storage_paths == [StoragePath::DirectPread]);
        assert!(is_taken, "{path:?} {:?}", answer.metrics.storage_paths);
    }
    assert_eq!(fixture.engine.storage_paths().len(), 1);
}

#[test]
fn pages_that_a_library_decompresses_come_on_every_path() {
    let rows = table().rows;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(700))
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(50);
    let table = Table::written(std::env::temp_dir(), rows, properties.build());
    let expected: Vec<Vec<String>> = table.rows.iter().map(shown_row).collect();
    for fault in [LibraryFault::None, LibraryFault::FindsFaults] {
        for path in [StoragePath::PageCache, StoragePath::CuFileCompat] {
            let (library, frames) = HostLibrary::new(fault);
            let fixture = Fixture::over(Arc::new(EmulatedPlatform::with_decompressor(library)), PLENTY_BYTES);
            // Without a checksum the host has the page, unless that is what the query wants.
            let answer = run(&fixture, &table, path).unwrap();
            assert!(answer.rows == expected, "{path:?} {fault:?}");
            assert_eq!(frames.load(Ordering::Relaxed), 0, "{path:?} {fault:?}");
            let settings =
                DeviceSettings { storage: path, nvcomp_unchecked: true, ..DeviceSettings::default() };
            let answer = fixture.run_with(plan(table.scan(0)), settings).unwrap();
            assert!(answer.rows == expected, "{path:?} {fault:?}");
            assert!(frames.load(Ordering::Relaxed) > 50, "{path:?} {fault:?}");
        }
    }
}

#[test]
fn what_the_page_cache_does_not_hold_is_read_past_it_if_the_device_keeps_it() {
    // Large enough that reading the footer does not bring all of it into the page cache.
    let table = table_of(60_000);
    let file = std::fs::File::open(&table.path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let drop_pages = || {
        file.sync_all().unwrap();
        // SAFETY: the file is open; the call touches no memory of ours.
        assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    };
    let direct = run(&Fixture::new(PLENTY_BYTES), &table, StoragePath::Direct).unwrap().metrics.storage_paths;
    let taken = |cache: bool| {
        let settings = DeviceSettings { cache, ..DeviceSettings::default() };
        let fixture =
            Fixture::caching(Arc::new(EmulatedPlatform::new()), PLENTY_BYTES, (PLENTY_BYTES / 2, 0));
        fixture.run_with(plan(table.scan(0)), settings).unwrap().metrics.storage_paths
    };
    drop_pages();
    // A file system in memory drops nothing.
    let is_dropped = !is_in_page_cache(&file, 0, bytes);
    drop_pages();
    // The end of the file may be there again, by reading the footer.
    assert_eq!(taken(true).contains(&direct[0]), is_dropped);
    drop_pages();
    // The kernel may take pages back at any time: what was read once is there in one of a few tries.
    let is_kept = (0..TRIES_MAX).any(|_| {
        assert_eq!(taken(false), [StoragePath::PageCache]);
        taken(true) == [StoragePath::PageCache]
    });
    assert!(is_kept, "{TRIES_MAX} tries");
}

#[test]
fn without_gpudirect_the_page_cache_is_taken_and_gpudirect_is_an_error() {
    let table = table();
    let fixture = Fixture::new(PLENTY_BYTES);
    let answer = run(&fixture, &table, StoragePath::Auto).unwrap();
    assert_eq!(answer.metrics.storage_paths, [StoragePath::PageCache]);
    let error = run(&fixture, &table, StoragePath::GpuDirect).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
    assert!(error.message.contains("t.parquet") && error.message.contains("GPUDirect"), "{error}");
}

#[test]
fn damaged_headers_are_the_same_error_on_every_path() {
    let table = table();
    // The first page's header is after the magic.
    let mut file = std::fs::File::options().read(true).write(true).open(&table.path).unwrap();
    let mut start = [0; 8];
    file.seek(SeekFrom::Start(4)).unwrap();
    file.read_exact(&mut start).unwrap();
    for damage in [[0xff; 8], [0; 8]] {
        assert_ne!(start, damage);
        file.seek(SeekFrom::Start(4)).unwrap();
        file.write_all(&damage).unwrap();
        let fixture = Fixture::over(Arc::new(EmulatedPlatform::with_gpudirect()), PLENTY_BYTES);
        let errors = PATHS.map(|path| run(&fixture, &table, path).unwrap_err());
        assert_eq!(errors[0].kind, ErrorKind::FileCorrupt, "{}", errors[0]);
        for (path, error) in PATHS.iter().zip(&errors) {
            assert_eq!(error, &errors[0], "{path:?}");
        }
    }
}

#[test]
fn a_file_that_changes_while_the_device_reads_it_is_an_error() {
    let table = table();
    let path = table.path.clone();
    let platform = Watched::new(move |_| {
        // The content stays, and the time of change does not.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        Ok(())
    });
    let error = run(&Fixture::over(platform, PLENTY_BYTES), &table, StoragePath::CuFileCompat).unwrap_err();
    assert!(error.message.contains("was changed while the query read it"), "{error}");
}
