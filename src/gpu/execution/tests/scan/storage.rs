//! Every way from files to the device: the same rows, the same errors.

use std::io::{Read, Seek, SeekFrom, Write};

use parquet::basic::{Compression, ZstdLevel};
use pystachio_files::PageCacheProbe;
use pystachio_plan::{ErrorKind, StoragePath};

use super::*;
use crate::decode::tests::host_library::{HostLibrary, LibraryFault};

const PATHS: [StoragePath; 6] = [
    StoragePath::Auto,
    StoragePath::PageCache,
    StoragePath::Direct,
    StoragePath::DirectPread,
    StoragePath::GpuDirect,
    StoragePath::CuFileCompat,
];

fn table() -> Table {
    let shape = Shape { seed: 71, row_count: 5000, key_count: 1 << 40, repeated_percent: 0, null_percent: 5 };
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
            // Without a checksum the host decompresses the page, unless the query sends unchecked
            // pages to the device.
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
    let table = table();
    let past_it =
        run(&Fixture::new(PLENTY_BYTES), &table, StoragePath::Direct).unwrap().metrics.storage_paths;
    let taken = |page_cache, cache| {
        let platform = Arc::new(EmulatedPlatform::new());
        let fixture = Fixture::adapted(platform, PLENTY_BYTES, (PLENTY_BYTES / 2, 0), |engine| {
            engine.with_page_cache(page_cache)
        });
        let settings = DeviceSettings { cache, ..DeviceSettings::default() };
        fixture.run_with(plan(table.scan(0)), settings).unwrap().metrics.storage_paths
    };
    let (all, none): (PageCacheProbe, PageCacheProbe) = (|_, _, _| true, |_, _, _| false);
    let first_half: PageCacheProbe = |file, start, bytes| start + bytes <= file.metadata().unwrap().len() / 2;
    assert_eq!(taken(all, true), [StoragePath::PageCache]);
    assert_eq!(taken(none, true), past_it);
    assert_eq!(taken(first_half, true), [&[StoragePath::PageCache], &past_it[..]].concat());
    assert_eq!(taken(none, false), [StoragePath::PageCache]);
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
