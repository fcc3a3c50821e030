//! Which chunks stay on the device and on the host, and which are evicted first.

use pystachio_files::{FileVersion, KeyDigest};
use pystachio_plan::MemorySpace;

use pystachio_engine::StopFlag;

use super::*;
use crate::{decode::ResidentChunk, device::EmulatedPlatform};

/// A slab of the smallest budgets.
const SLAB_BYTES: u64 = 4 << 10;

fn key(row_group: usize) -> ChunkKey {
    let file = FileIdentity {
        version: FileVersion::Local { device: 1, inode: 2, modified_ns: 4 },
        file_bytes: 3,
        keys: KeyDigest::default(),
    };
    ChunkKey { file, row_group, leaf: 0, rows: (0, 1), form: ChunkForm::Pages }
}

fn chunk(cache: &ChunkCache, bytes: u64) -> CachedChunk {
    CachedChunk::Pages(Arc::new(ResidentChunk::for_tests(&cache.shared.memory, bytes)))
}

fn origin() -> ChunkOrigin {
    ChunkOrigin { path: PathBuf::from("/f.parquet"), column: "a".to_owned() }
}

fn cache(bytes_max: u64, host_bytes: u64) -> ChunkCache {
    let platform = Arc::new(EmulatedPlatform::new());
    let memory = DeviceMemory::new(platform.clone(), 1 << 30);
    ChunkCache::new(&memory, HostMemory::new(platform, host_bytes), bytes_max, u64::MAX)
}

fn load(cache: &ChunkCache, row_group: usize, bytes: u64, query: u64) {
    let ChunkClaim::Mine(claim) = cache.claim(key(row_group), query) else { panic!("not to be loaded") };
    claim.publish(&chunk(cache, bytes), origin(), query, Stream(0));
}

fn holds(cache: &ChunkCache, row_group: usize, query: u64) -> bool {
    matches!(cache.claim(key(row_group), query), ChunkClaim::Held(_))
}

#[test]
fn a_chunk_is_loaded_by_one_reader_at_a_time() {
    let cache = cache(100, 0);
    let claim = cache.claim(key(0), 1);
    assert!(matches!(cache.claim(key(0), 1), ChunkClaim::Busy));
    drop(claim);
    assert!(
        matches!(cache.claim(key(0), 1), ChunkClaim::Mine(_)),
        "a reader that failed leaves it to others"
    );
    load(&cache, 0, 10, 1);
    assert!(holds(&cache, 0, 1));
}

#[test]
fn chunks_of_older_queries_give_way() {
    let cache = cache(100, 0);
    load(&cache, 0, 60, 1);
    load(&cache, 1, 40, 2);
    load(&cache, 2, 50, 3);
    assert!(!holds(&cache, 0, 3) && holds(&cache, 1, 3) && holds(&cache, 2, 3));
    assert_eq!(cache.bytes(), (90, 100));
}

#[test]
fn a_query_does_not_drive_its_own_chunks_out() {
    let cache = cache(100, 0);
    (0..5).for_each(|row_group| load(&cache, row_group, 40, 7));
    assert!(holds(&cache, 0, 7) && holds(&cache, 1, 7) && !holds(&cache, 2, 7));
}

#[test]
fn memory_that_is_asked_for_comes_back() {
    let cache = cache(100, 0);
    load(&cache, 0, 30, 1);
    load(&cache, 1, 30, 2);
    cache.shared.reclaim(10);
    assert!(!holds(&cache, 0, 3) && holds(&cache, 1, 3));
    cache.shared.reclaim(u64::MAX);
    assert_eq!(cache.bytes().0, 0);
}

#[test]
fn unused_chunks_in_a_range_give_way() {
    let cache = cache(100, 0);
    (0..3).for_each(|row_group| load(&cache, row_group, 30, 1));
    assert_eq!(cache.shared.idle_buffers().len(), 3);
    let ChunkClaim::Held(used) = cache.claim(key(1), 1) else { panic!("not here") };
    let (start, bytes) = used.pages().unwrap().buffers().next().unwrap().held();
    let range = start + bytes - 1..start + bytes;
    assert_eq!(cache.shared.idle_buffers().len(), 2);
    cache.shared.reclaim_ranges(std::slice::from_ref(&range));
    assert_eq!(cache.bytes().0, 90);
    drop(used);
    cache.shared.reclaim_ranges(std::slice::from_ref(&range));
    assert!(holds(&cache, 0, 2) && !holds(&cache, 1, 2) && holds(&cache, 2, 2));
}

#[test]
fn the_view_sums_row_groups_of_a_column() {
    let cache = cache(100, 0);
    load(&cache, 0, 30, 1);
    load(&cache, 1, 20, 1);
    assert!(holds(&cache, 1, 2));
    let entries = cache.entries();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].row_group_count, entries[0].memory_bytes, entries[0].hits), (2, 50, 1));
}

/// Where a query finds a chunk: on the device, on the host, or in neither. A chunk on the host
/// comes to the device.
fn found(cache: &ChunkCache, row_group: usize, query: u64) -> Option<MemorySpace> {
    match cache.claim(key(row_group), query) {
        ChunkClaim::Held(_) => Some(MemorySpace::Device),
        ChunkClaim::Busy => panic!("busy"),
        ChunkClaim::Mine(claim) => {
            let pinned = claim.pinned()?.clone();
            let chunk = Arc::new(pinned.to_device(&cache.shared.memory, Stream(0)).unwrap());
            claim.publish(&chunk, origin(), query, Stream(0));
            Some(MemorySpace::Pinned)
        }
    }
}

fn tiers(cache: &ChunkCache) -> Vec<(MemorySpace, u32, u64, u64)> {
    let entries = cache.entries().into_iter();
    entries.map(|entry| (entry.space, entry.row_group_count, entry.hits, entry.misses)).collect()
}

#[test]
fn what_leaves_the_device_is_found_on_the_host_with_its_bytes() {
    let cache = cache(100, 64 * SLAB_BYTES);
    let ChunkClaim::Mine(claim) = cache.claim(key(0), 1) else { panic!("not to be loaded") };
    let loaded = chunk(&cache, 60);
    let written: Vec<u8> = (0..60).collect();
    let buffer = loaded.pages().unwrap().buffers().next().unwrap().clone();
    cache.shared.memory.upload_to(&written, buffer.address(), Stream(0)).unwrap();
    claim.publish(&loaded, origin(), 1, Stream(0));
    drop(loaded);
    load(&cache, 1, 60, 2);
    assert_eq!(tiers(&cache), [(MemorySpace::Device, 1, 0, 1), (MemorySpace::Pinned, 1, 0, 1)]);
    let ChunkClaim::Mine(claim) = cache.claim(key(0), 3) else { panic!("not to be fetched") };
    let fetched = claim.pinned().unwrap().to_device(&cache.shared.memory, Stream(0)).unwrap();
    let buffer = fetched.pages().unwrap().buffers().next().unwrap();
    assert_eq!(cache.shared.memory.download::<u8>(buffer, 60, Stream(0)).unwrap(), written);
    assert!(matches!(cache.claim(key(0), 3), ChunkClaim::Busy), "two readers fetch it");
    claim.publish(&fetched, origin(), 3, Stream(0));
    // The other chunk was used after it, until now.
    assert_eq!(found(&cache, 0, 4), Some(MemorySpace::Pinned));
    // It is in both places now, and the other chunk was evicted.
    assert_eq!(found(&cache, 0, 5), Some(MemorySpace::Device));
    assert_eq!(tiers(&cache), [(MemorySpace::Device, 1, 1, 3), (MemorySpace::Pinned, 2, 2, 2)]);
    assert_eq!(cache.bytes(), (60, 100));
}

#[test]
fn a_table_larger_than_the_device_is_kept_on_both() {
    let cache = cache(100, 64 * SLAB_BYTES);
    (0..5).for_each(|row_group| load(&cache, row_group, 40, 7));
    for query in [8, 9] {
        let places: Vec<_> = (0..5).map(|row_group| found(&cache, row_group, query)).collect();
        assert_eq!(
            places.iter().filter(|place| **place == Some(MemorySpace::Device)).count(),
            2,
            "{places:?}"
        );
        assert_eq!(
            places.iter().filter(|place| **place == Some(MemorySpace::Pinned)).count(),
            3,
            "{places:?}"
        );
    }
}

#[test]
fn the_host_keeps_what_was_used_last() {
    // Room for two chunks, which have a slab each.
    let cache = cache(10, 2 * SLAB_BYTES);
    load(&cache, 0, 50, 1);
    load(&cache, 1, 50, 2);
    load(&cache, 2, 50, 3);
    assert_eq!(found(&cache, 0, 4), None);
    assert_eq!(found(&cache, 1, 4), Some(MemorySpace::Pinned));
    // Chunks that the same query has used stay.
    load(&cache, 3, 50, 4);
    load(&cache, 4, 50, 4);
    assert_eq!(
        (found(&cache, 1, 5), found(&cache, 3, 5)),
        (Some(MemorySpace::Pinned), Some(MemorySpace::Pinned))
    );
    assert_eq!((found(&cache, 2, 5), found(&cache, 4, 5)), (None, None));
}

#[test]
fn memory_that_is_asked_for_goes_on_to_the_host() {
    let cache = cache(100, 64 * SLAB_BYTES);
    load(&cache, 0, 30, 1);
    load(&cache, 1, 30, 2);
    cache.shared.reclaim(u64::MAX);
    assert_eq!(cache.bytes().0, 0);
    assert_eq!(
        (found(&cache, 0, 3), found(&cache, 1, 3)),
        (Some(MemorySpace::Pinned), Some(MemorySpace::Pinned))
    );
    // Its copy is still there: a second move takes no room.
    cache.shared.reclaim(u64::MAX);
    assert_eq!(tiers(&cache), [(MemorySpace::Pinned, 2, 2, 2)]);
}

#[test]
fn a_reader_that_fails_to_fetch_leaves_the_copy_where_it_is() {
    let cache = cache(100, 64 * SLAB_BYTES);
    load(&cache, 0, 30, 1);
    cache.shared.reclaim(u64::MAX);
    let ChunkClaim::Mine(claim) = cache.claim(key(0), 2) else { panic!("not to be fetched") };
    drop(claim);
    assert_eq!(found(&cache, 0, 3), Some(MemorySpace::Pinned));
}

#[test]
fn a_reader_that_waits_for_a_chunk_of_another_query_sees_the_end_of_its_own() {
    let cache = cache(100, 0);
    // Another query's read, which hangs.
    let ChunkClaim::Mine(hanging) = cache.claim(key(0), 1) else { panic!("not to be loaded") };
    let query = StopFlag::default();
    let scan = query.of_part();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| cache.wait_loaded(&key(0), &scan));
        scan.stop();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind, pystachio_plan::ErrorKind::Cancelled);
        let waiting = threads.spawn(|| cache.wait_loaded(&key(0), &query));
        drop(hanging);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn chunks_whose_pages_take_too_much_of_the_host_to_describe_give_way() {
    let platform = Arc::new(EmulatedPlatform::new());
    let memory = DeviceMemory::new(platform.clone(), 1 << 30);
    let host = HostMemory::new(platform, 64 * SLAB_BYTES);
    let cache = ChunkCache::new(&memory, host, 100, 10_000);
    let load = |row_group: usize, host_bytes: usize, query: u64| {
        let ChunkClaim::Mine(claim) = cache.claim(key(row_group), query) else { panic!("not to be loaded") };
        let chunk = ResidentChunk::described_for_tests(&memory, 10, host_bytes);
        let chunk = CachedChunk::Pages(Arc::new(chunk));
        claim.publish(&chunk, origin(), query, Stream(0));
    };
    let host_bytes = || cache.shared.lock().host_bytes();
    (0..3).for_each(|row_group| load(row_group, 3000, row_group as u64));
    assert!(holds(&cache, 0, 3) && (9000..10_000).contains(&host_bytes()));
    // The chunk that was not used for the longest time.
    load(3, 3000, 4);
    assert!(!holds(&cache, 1, 5) && holds(&cache, 0, 5) && holds(&cache, 2, 5) && holds(&cache, 3, 5));
    assert!((9000..10_000).contains(&host_bytes()));
    // Its pages are still described after it left the device.
    cache.shared.reclaim(u64::MAX);
    assert!((9000..10_000).contains(&host_bytes()));
    load(4, 6000, 6);
    assert!((9000..10_000).contains(&host_bytes()));
    // A chunk that alone exceeds the limit is not kept.
    load(5, 11_000, 7);
    assert!((9000..10_000).contains(&host_bytes()));
    assert_eq!(found(&cache, 5, 8), None);
}

#[test]
fn uses_on_the_device_decide_what_gives_way() {
    let cache = cache(100, 64 * SLAB_BYTES);
    (0..4).for_each(|row_group| load(&cache, row_group, 25, row_group as u64));
    // A use does not move a chunk in the orders, until room is needed.
    assert!(cache.find(key(0), 5).is_some() && cache.find(key(2), 6).is_some());
    assert!(cache.find(key(0), 4).is_some(), "an older query that still runs");
    load(&cache, 4, 25, 7);
    load(&cache, 5, 25, 7);
    let found = (0..6).map(|row_group| cache.find(key(row_group), 7).is_some());
    assert_eq!(found.collect::<Vec<_>>(), [true, false, true, false, true, true]);
    // All are used by this query now.
    load(&cache, 6, 25, 7);
    assert!(cache.find(key(6), 7).is_none());
    load(&cache, 7, 25, 8);
    assert_eq!((0..8).filter(|row_group| cache.find(key(*row_group), 8).is_some()).count(), 4);
    assert!(cache.find(key(7), 8).is_some() && cache.find(key(0), 8).is_none());
}

#[test]
fn uses_of_all_segments_of_a_leaf_are_uses_of_each() {
    let cache = cache(100, 0);
    let segment_key =
        |leaf, row_group| LeafKey { file: key(0).file, leaf, declaration: 0 }.chunk(row_group, (0, 1));
    let load = |leaf, row_group, query| {
        let ChunkClaim::Mine(claim) = cache.claim(segment_key(leaf, row_group), query) else {
            panic!("not to be loaded")
        };
        let segment = Segment::for_tests(&cache.shared.memory, 20);
        let column = format!("of leaf {leaf}");
        let origin = ChunkOrigin { path: PathBuf::from("/f.parquet"), column };
        claim.publish(&CachedChunk::Segment(Arc::new(segment)), origin, query, Stream(0));
    };
    let find = |leaf, row_groups: &[usize], query| {
        let leaf = LeafKey { file: key(0).file, leaf, declaration: 0 };
        let row_groups: Vec<_> = row_groups.iter().map(|row_group| (*row_group, (0, 1))).collect();
        cache
            .find_segments(&leaf, &row_groups, query)
            .map(|segments| segments.iter().filter_map(Weak::upgrade).count())
    };
    let hits = |leaf: usize| {
        let name = format!("of leaf {leaf}");
        let entries = cache.entries().into_iter().filter(|entry| entry.column == name);
        entries.map(|entry| (entry.row_group_count, entry.hits)).collect::<Vec<_>>()
    };
    for (leaf, row_group) in [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)] {
        load(leaf, row_group, 1);
    }
    assert_eq!(find(0, &[0, 2], 5), Some(2));
    assert_eq!(find(0, &[0, 2], 3), Some(2), "an older query that still runs");
    assert_eq!(find(1, &[1], 4), Some(1));
    assert_eq!(find(1, &[0, 3], 4), None, "one is not here");
    assert_eq!(find(2, &[0], 4), None);
    assert_eq!((hits(0), hits(1)), (vec![(2, 4)], vec![(3, 2)]));
    // The one that was not used since query 1 goes first, then the oldest of query 4; those of query 5 stay.
    load(2, 0, 6);
    load(2, 1, 6);
    assert_eq!((find(1, &[0], 6), find(1, &[2], 6)), (None, None));
    assert_eq!((find(1, &[1], 6), find(0, &[0, 2], 7)), (Some(1), Some(2)));
    assert_eq!((hits(0), hits(1)), (vec![(2, 6)], vec![(1, 2)]));
    // What comes later begins with no uses, whatever its leaf counts.
    load(0, 3, 8);
    assert_eq!(find(0, &[0, 2, 3], 8), Some(3));
    assert_eq!(hits(0), [(3, 9)]);
}

/// Chunks of a large table.
const MANY: usize = 100_000;

#[test]
fn making_room_in_a_full_cache_looks_at_few_chunks() {
    let host_bytes = 2 * SLAB_BYTES;
    let cache = cache(MANY as u64, host_bytes);
    (0..MANY).for_each(|row_group| load(&cache, row_group, 1, row_group as u64 / 100));
    let steps = || cache.shared.lock().steps();
    let before = steps();
    // A newer query replaces the oldest chunks and skips one that is in use.
    let in_use = cache.find(key(0), 0).unwrap();
    let newer = MANY as u64;
    (0..1000).for_each(|row_group| load(&cache, MANY + row_group, 1, newer));
    assert!(steps() - before <= 1000 * 8, "{} steps", steps() - before);
    assert_eq!(cache.bytes().0, MANY as u64);
    assert!(cache.find(key(0), 0).is_some() && cache.find(key(1), 0).is_none());
    drop(in_use);
    // A query whose own chunks fill the cache has none to replace.
    let before = steps();
    let oldest = 0;
    (0..1000).for_each(|row_group| load(&cache, 2 * MANY + row_group, 1, oldest));
    assert!(steps() - before <= 1000 * 8, "{} steps", steps() - before);
}
