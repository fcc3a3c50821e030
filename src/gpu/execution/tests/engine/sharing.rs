//! Several queries at once, queries that end early, and devices that fail.

use std::{
    path::Path,
    sync::{Mutex, Weak},
    time::{Duration, Instant},
};

use pystachio_engine::ResultStream;
use pystachio_plan::{Error, ErrorKind, Operator, Relation, SortKey};

use super::*;
use crate::device::{Reclaim, Reservation, Stream};

/// Only a hang takes longer, whatever load the machine has.
const HANG: Duration = Duration::from_secs(300);

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
    // A reservation of all memory.
    let other = fixture.engine.memory().open_account();
    other.admit(Reservation::of_minimum(PLENTY_BYTES), &StopFlag::default()).unwrap();
    let stop = StopFlag::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| fixture.run_until(sort(&table), stop.clone()));
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(100) {
            assert!(!waiting.is_finished(), "the query did not wait");
            std::thread::yield_now();
        }
        stop.stop();
        // The reservation is held still.
        assert_eq!(waiting.join().unwrap().unwrap_err().kind, ErrorKind::Cancelled);
        // The next one gets it as soon as it is free.
        let waiting = scope.spawn(|| fixture.run(sort(&table)));
        drop(other);
        assert_eq!(waiting.join().unwrap().unwrap().rows.len(), table.rows.len());
    });
}

/// Reads a stream to its end.
async fn rest(mut stream: Box<dyn ResultStream>) -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    while let Some(batch) = stream.next_batch().await? {
        rows.extend(batch_rows(&batch));
    }
    Ok(rows)
}

#[test]
fn queries_that_are_not_read_give_their_memory_to_those_that_wait() {
    let table = table();
    let fixture = Fixture::new(table.bytes() / 4);
    let small_batches = || QueryRequest { batch_rows_max: 100, ..request(sort(&table)) };
    let alone = Fixture::new(PLENTY_BYTES).run(sort(&table)).unwrap().rows;
    let opened = fixture.runtime.block_on(async {
        let mut opened = Vec::new();
        // More than have room at once, and each only to its first rows.
        for number in 0..9 {
            let started = fixture.engine.run(small_batches(), StopFlag::default());
            let started = tokio::time::timeout(HANG, started).await;
            let mut stream = started.unwrap_or_else(|_| panic!("query {number} waits for ever"))?;
            let first = stream.next_batch().await?.map(|batch| batch_rows(&batch)).unwrap_or_default();
            opened.push((first, stream));
        }
        Ok::<_, Error>(opened)
    });
    let mut opened = opened.unwrap();
    // One is dropped with unread rows.
    opened.remove(4);
    for (mut rows, stream) in opened {
        assert!(!rows.is_empty() && rows.len() < table.rows.len());
        rows.extend(fixture.runtime.block_on(rest(stream)).unwrap());
        assert!(rows == alone, "spooled rows differ");
    }
    fixture.wait_idle();
    assert_eq!(fixture.engine.memory().used_bytes(), 0);
}

#[test]
fn many_small_queries_run_at_once_beside_a_large_one() {
    let table = table();
    let fixture = Fixture::new(PLENTY_BYTES);
    let memory = fixture.engine.memory();
    let large = memory.open_account();
    large.admit(Reservation::of_minimum(PLENTY_BYTES / 4), &StopFlag::default()).unwrap();
    let small_batches = || QueryRequest { batch_rows_max: 100, ..request(sort(&table)) };
    let opened = fixture.runtime.block_on(async {
        let mut opened = Vec::new();
        // Each has its first rows and waits for its reader, with its memory.
        for _ in 0..8 {
            opened.push(fixture.engine.run(small_batches(), StopFlag::default()).await?);
        }
        Ok::<_, Error>(opened)
    });
    let opened = opened.unwrap();
    assert_eq!((memory.admitted_count(), memory.waiting_count()), (9, 0));
    drop(large);
    for stream in opened {
        assert_eq!(stream.metrics().spilled_bytes, 0);
        assert_eq!(fixture.runtime.block_on(rest(stream)).unwrap().len(), table.rows.len());
    }
}

#[test]
fn a_query_that_is_not_read_keeps_its_rows_where_nobody_waits() {
    let table = table();
    let fixture = Fixture::new(table.bytes());
    let small_batches = QueryRequest { batch_rows_max: 100, ..request(plan(table.scan(0))) };
    fixture.runtime.block_on(async {
        let mut stream = fixture.engine.run(small_batches, StopFlag::default()).await.unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(stream.metrics().spilled_bytes, 0);
        let mut count = 0;
        while let Some(batch) = stream.next_batch().await.unwrap() {
            count += batch.num_rows();
        }
        assert_eq!((count, stream.metrics().spilled_bytes), (table.rows.len(), 0));
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
        spill: Spilling::to(Path::new("/nowhere/at/all")),
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
        spill: Spilling::to(folder.path()),
    };
    let plenty = Fixture::new(PLENTY_BYTES).run(sort(&table)).unwrap();
    let mut fixture = Fixture::new(PLENTY_BYTES);
    fixture.engine = Arc::new(DeviceEngine::new(Arc::new(EmulatedPlatform::new()), &options));
    let answer = fixture.run(sort(&table)).unwrap();
    assert_eq!(answer.rows, plenty.rows);
    assert!(answer.metrics.spilled_bytes > table.bytes(), "{}", answer.metrics.spilled_bytes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files are left over");
}

#[test]
fn queries_that_have_reserved_all_leave_column_chunks_on_the_device() {
    let table = table();
    let memory_bytes = 16 * table.bytes();
    let fixture = Fixture::caching(Arc::new(EmulatedPlatform::new()), memory_bytes, (memory_bytes / 2, 0));
    let first = fixture.run(sort(&table)).unwrap();
    assert!(first.metrics.bytes_read > 0 && first.metrics.cache_hits == 0, "{:?}", first.metrics);
    let memory = fixture.engine.memory();
    let others: Vec<_> = (0..3).map(|_| memory.open_account()).collect();
    others.iter().for_each(|other| {
        other.admit(Reservation::of_minimum(memory_bytes / 4), &StopFlag::default()).unwrap()
    });
    let again = fixture.run(sort(&table)).unwrap();
    assert_eq!(again.rows, first.rows);
    assert_eq!((again.metrics.bytes_read, again.metrics.cache_misses), (0, 0), "{:?}", again.metrics);
    // New chunks still enter the cache.
    let cached = fixture.engine.cache_bytes().0;
    let other_table = self::table();
    fixture.run(sort(&other_table)).unwrap();
    assert!(fixture.engine.cache_bytes().0 > cached);
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
