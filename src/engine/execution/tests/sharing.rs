//! Several queries at once, queries that end early, and devices that fail.

use std::{
    fs::File,
    ops::Range,
    path::Path,
    sync::{Mutex, Weak},
    time::{Duration, Instant},
};

use pystachio_plan::{Error, ErrorKind, Operator, Relation, SortKey};

use super::*;
use crate::device::{DeviceFile, DeviceFileMode, Kernel, Mark, Reclaim, Slot, Stream};

/// What a cancel may take on the emulated device.
const PROMPT: Duration = Duration::from_secs(2);

/// What is done before a call of the device; what it fails with, the call fails with.
type Before = Box<dyn Fn(&Calls) -> Result<()> + Send + Sync>;

/// The emulated device with something done before launches, copies to page-locked memory, and files that it reads
/// by itself.
pub(super) struct Watched {
    device: EmulatedPlatform,
    calls: Calls,
    before: Before,
}

impl Watched {
    pub(super) fn new(before: impl Fn(&Calls) -> Result<()> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { device: EmulatedPlatform::new(), calls: Calls::default(), before: Box::new(before) })
    }
}

impl Platform for Watched {
    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn reader_count(&self) -> usize {
        self.device.reader_count()
    }

    fn create_stream(&self) -> Result<Stream> {
        self.device.create_stream()
    }

    fn allocate(&self, bytes: u64, stream: Stream) -> Result<u64> {
        self.device.allocate(bytes, stream)
    }

    fn release(&self, address: u64, bytes: u64, stream: Stream) {
        self.device.release(address, bytes, stream);
    }

    fn allocate_unpooled(&self, bytes: u64) -> Result<u64> {
        self.device.allocate_unpooled(bytes)
    }

    fn release_unpooled(&self, address: u64, bytes: u64) {
        self.device.release_unpooled(address, bytes);
    }

    fn upload(&self, source: &[u8], target: u64, stream: Stream) -> Result<()> {
        self.device.upload(source, target, stream)
    }

    fn lend_slot(&self, waits: bool) -> Result<Option<Slot>> {
        self.device.lend_slot(waits)
    }

    fn return_slot(&self, slot: Slot) {
        self.device.return_slot(slot);
    }

    fn upload_slot(&self, slot: Slot, range: Range<usize>, target: u64, stream: Stream) -> Result<()> {
        self.device.upload_slot(slot, range, target, stream)
    }

    fn open_file(&self, file: &File, path: &Path, mode: DeviceFileMode) -> Result<Box<dyn DeviceFile>> {
        (self.before)(&self.calls)?;
        self.device.open_file(file, path, mode)
    }

    fn download(&self, source: u64, target: &mut [u8], stream: Stream) -> Result<()> {
        self.device.download(source, target, stream)
    }

    fn upload_pageable(&self, source: &[u8], target: u64, stream: Stream) -> Result<()> {
        self.device.upload_pageable(source, target, stream)
    }

    fn download_pageable(&self, source: u64, target: &mut [u8], stream: Stream) -> Result<()> {
        self.device.download_pageable(source, target, stream)
    }

    fn allocate_host(&self, bytes: usize) -> Result<u64> {
        self.device.allocate_host(bytes)
    }

    fn release_host(&self, address: u64, bytes: usize) {
        self.device.release_host(address, bytes);
    }

    fn upload_pinned(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.device.upload_pinned(source, target, bytes, stream)
    }

    fn download_pinned(&self, source: u64, target: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.calls.spilled_copies.fetch_add(1, Ordering::Relaxed);
        (self.before)(&self.calls)?;
        self.device.download_pinned(source, target, bytes, stream)
    }

    fn copy(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<()> {
        self.device.copy(source, target, bytes, stream)
    }

    fn fill(&self, target: u64, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        self.device.fill(target, value, bytes, stream)
    }

    fn launch(&self, kernel: Kernel, grid: u32, arguments: &[u8], stream: Stream) -> Result<()> {
        self.calls.launches.fetch_add(1, Ordering::Relaxed);
        (self.before)(&self.calls)?;
        self.device.launch(kernel, grid, arguments, stream)
    }

    fn wait(&self, stream: Stream) -> Result<()> {
        self.device.wait(stream)
    }

    fn wait_mark(&self, mark: Mark) -> Result<()> {
        self.device.wait_mark(mark)
    }

    fn wait_all(&self) -> Result<()> {
        self.device.wait_all()
    }

    fn mark(&self, stream: Stream) -> Result<Mark> {
        self.device.mark(stream)
    }

    fn elapsed_us(&self, from: Mark, to: Mark) -> Result<f64> {
        self.device.elapsed_us(from, to)
    }

    fn release_mark(&self, mark: Mark) {
        self.device.release_mark(mark);
    }
}

fn table() -> Table {
    Table::made(Shape {
        seed: 51,
        row_count: 20_000,
        key_count: 1 << 40,
        repeated_percent: 0,
        null_percent: 5,
    })
}

fn sort(table: &Table) -> Plan {
    let keys = vec![SortKey { expression: int64(0), descending: false, nulls_first: false }];
    plan(Relation::new(Operator::Sort { input: table.scan(0), keys }, 1.0))
}

#[test]
fn queries_at_once_share_the_arena() {
    let table = table();
    let alone = Fixture::new(PLENTY_BYTES).run(sort(&table)).unwrap().rows;
    let fixture = Fixture::new(table.bytes() / 4);
    // Twice as many as have room at once.
    std::thread::scope(|scope| {
        let answers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    fixture.runtime.handle().block_on(async {
                        let mut stream =
                            fixture.engine.run(request(sort(&table)), StopFlag::default()).await?;
                        let mut rows = Vec::new();
                        while let Some(batch) = stream.next_batch().await? {
                            rows.extend(batch_rows(&batch));
                        }
                        Ok::<_, Error>(rows)
                    })
                })
            })
            .collect();
        for answer in answers {
            assert_eq!(answer.join().unwrap().unwrap(), alone);
        }
    });
    fixture.wait_idle();
    assert_eq!(fixture.engine.memory().used_bytes(), 0);
}

#[test]
fn a_query_waits_for_the_arena_and_can_be_cancelled_there() {
    let table = table();
    let fixture = Fixture::new(PLENTY_BYTES);
    // Somebody's reservation of all of it.
    let other = fixture.engine.memory().open_account();
    other.admit(PLENTY_BYTES, &StopFlag::default()).unwrap();
    let stop = StopFlag::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| fixture.run_until(sort(&table), stop.clone()));
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(100) {
            assert!(!waiting.is_finished(), "the query did not wait");
            std::thread::yield_now();
        }
        let started = Instant::now();
        stop.stop();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind, ErrorKind::Cancelled);
        assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
        // The next one gets it as soon as it is free.
        let waiting = scope.spawn(|| fixture.run(sort(&table)));
        drop(other);
        assert_eq!(waiting.join().unwrap().unwrap().rows.len(), table.rows.len());
    });
}

#[test]
fn a_query_is_cancelled_while_it_spills() {
    let table = table();
    let stop = StopFlag::default();
    let stopped = stop.clone();
    let launches = Arc::new(Mutex::new(0));
    let launches_then = launches.clone();
    let platform = Watched::new(move |calls| {
        if calls.spilled_copies.load(Ordering::Relaxed) == 5 && !stopped.is_stopped() {
            stopped.stop();
            *launches_then.lock().unwrap() = calls.launches();
        }
        Ok(())
    });
    let fixture = Fixture::over(platform.clone(), table.bytes() / 16);
    let error = fixture.run_until(sort(&table), stop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Cancelled, "{error}");
    let after = platform.calls.launches() - *launches.lock().unwrap();
    // Within a chunk: decoding and spilling one take far fewer.
    assert!(after < 200, "{after} launches after the cancel");
}

#[test]
fn a_fault_of_the_device_ends_the_query_with_an_error_that_says_so() {
    let table = table();
    for launches in [1, 50, 400] {
        let platform = Watched::new(move |calls| {
            if calls.launches() < launches {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Device, "the device is lost"))
        });
        let error = Fixture::over(platform, table.bytes() / 16).run(sort(&table)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Device, "{error}");
    }
}

#[test]
fn a_folder_that_takes_no_file_is_an_error_that_names_it() {
    let table = table();
    let options = DeviceOptions {
        affinity: Affinity::default(),
        cache_bytes: 0,
        pinned_cache_bytes: 0,
        memory_bytes: table.bytes() / 16,
        host_bytes: 0,
        spill_directory: PathBuf::from("/nowhere/at/all"),
    };
    let mut fixture = Fixture::new(PLENTY_BYTES);
    fixture.engine = Arc::new(DeviceEngine::new(Arc::new(EmulatedPlatform::new()), &options));
    let error = fixture.run(sort(&table)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FileAccess);
    assert!(error.message.contains("directory=/nowhere/at/all"), "{error}");
}

#[test]
fn rows_go_to_files_where_the_host_has_no_memory_for_them() {
    let table = table();
    let folder = tempfile::tempdir().unwrap();
    let options = DeviceOptions {
        affinity: Affinity::default(),
        cache_bytes: 0,
        pinned_cache_bytes: 0,
        memory_bytes: table.bytes() / 16,
        host_bytes: 0,
        spill_directory: folder.path().to_owned(),
    };
    let plenty = Fixture::new(PLENTY_BYTES).run(sort(&table)).unwrap();
    let mut fixture = Fixture::new(PLENTY_BYTES);
    fixture.engine = Arc::new(DeviceEngine::new(Arc::new(EmulatedPlatform::new()), &options));
    let answer = fixture.run(sort(&table)).unwrap();
    assert_eq!(answer.rows, plenty.rows);
    assert!(answer.metrics.spilled_bytes > table.bytes(), "{}", answer.metrics.spilled_bytes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files are left over");
}

/// A cache that holds buffers.
struct Cache(Mutex<Vec<crate::device::Buffer>>);

impl Reclaim for Cache {
    fn reclaim(&self, _bytes: u64) {
        self.0.lock().unwrap().clear();
    }
}

#[test]
fn caches_give_way_to_queries() {
    let table = table();
    let fixture = Fixture::new(table.bytes());
    let memory = fixture.engine.memory();
    let cache = Arc::new(Cache(Mutex::default()));
    let weak: Weak<dyn Reclaim> = Arc::downgrade(&cache) as Weak<dyn Reclaim>;
    memory.add_reclaimer(weak);
    while let Ok(buffer) = memory.allocate(10_000, Stream(0)) {
        cache.0.lock().unwrap().push(buffer);
    }
    assert!(memory.used_bytes() > table.bytes() / 10 * 9);
    assert_eq!(fixture.run(sort(&table)).unwrap().rows.len(), table.rows.len());
    assert!(cache.0.lock().unwrap().is_empty());
}
