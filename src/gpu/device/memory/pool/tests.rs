//! The pool by itself, and over devices that work late.

use std::collections::BTreeMap;

use super::*;
use crate::device::{DeviceMemory, EmulatedPlatform, Refusal, StreamPriority};

const PIECE: u64 = 64 << 10;

fn pool(bytes_max: u64) -> (Arc<EmulatedPlatform>, MemoryPool) {
    let platform = Arc::new(EmulatedPlatform::new());
    (platform.clone(), MemoryPool::new(platform, bytes_max))
}

/// The next number of a sequence (SplitMix64).
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

#[test]
fn a_buffer_apart_from_the_pool_takes_whole_pieces_and_no_more() {
    let (platform, pool) = pool(1 << 30);
    let (commit, guard) = (platform.commit_bytes(), platform.guard_bytes());
    assert_eq!([0, 1, commit - guard].map(|bytes| pool.own_bytes(bytes)), [commit; 3]);
    // The pool would round it up.
    let large = 300 * commit + 1;
    assert_eq!(pool.own_bytes(large), (large + guard).next_multiple_of(commit));
    assert!(pool.block_bytes(large) > pool.own_bytes(large));
}

#[test]
fn short_lives_and_long_ones_grow_from_two_ends() {
    let (_platform, pool) = pool(16 * PIECE);
    let short: Vec<u64> = (0..3).map(|_| pool.allocate(1000, Stream(0), Lifetime::Short).unwrap()).collect();
    let long: Vec<u64> = (0..3).map(|_| pool.allocate(1000, Stream(0), Lifetime::Long).unwrap()).collect();
    assert!(short.is_sorted() && long.iter().rev().is_sorted() && long[2] - short[2] > 16 * PIECE);
    let used = pool.usage();
    assert_eq!(used.committed_bytes, 2 * PIECE);
    assert_eq!(used.free_bytes, 2 * PIECE - 6 * pool.block_bytes(1000));
    for address in short.into_iter().chain(long) {
        pool.release(address, 1000, &[Stream(0)]);
    }
    assert_eq!(
        pool.usage(),
        PoolUse { committed_bytes: 2 * PIECE, free_bytes: 2 * PIECE, scattered_bytes: PIECE }
    );
}

#[test]
fn what_is_free_in_pieces_makes_a_long_range_elsewhere() {
    let (_platform, pool) = pool(64 * PIECE);
    let bytes = 2 * PIECE - pool.guard_bytes;
    let mut all = Vec::new();
    while let Ok(address) = pool.allocate(bytes, Stream(0), Lifetime::Short) {
        all.push(address);
    }
    assert!(all.len() >= 32, "{}", all.len());
    // Every second one goes: a half is free, and no range is longer than a buffer was.
    for address in all.iter().skip(1).step_by(2) {
        pool.release(*address, bytes, &[Stream(0)]);
    }
    let committed = pool.usage().committed_bytes;
    assert!(pool.usage().scattered_bytes > 28 * PIECE, "{:?}", pool.usage());
    let long_bytes = pool.usage().free_bytes / 8 * 5;
    let long = pool.allocate(long_bytes, Stream(1), Lifetime::Short).unwrap();
    assert_eq!(pool.usage().committed_bytes, committed);
    // The rest of the free half has no such range, in either part.
    let error = pool.allocate(long_bytes, Stream(1), Lifetime::Short).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfMemory);
    pool.release(long, long_bytes, &[Stream(1)]);
    for address in all.iter().step_by(2) {
        pool.release(*address, bytes, &[Stream(0)]);
    }
    let used = pool.usage();
    assert_eq!(used.free_bytes, used.committed_bytes);
}

#[test]
fn a_refused_allocation_leaves_the_pool_as_it_was() {
    let (platform, pool) = pool(16 * PIECE);
    platform.refuse(Refusal::Allocation, 0);
    assert_eq!(pool.allocate(5, Stream(0), Lifetime::Short).unwrap_err().kind, ErrorKind::OutOfMemory);
    let used = pool.usage();
    assert_eq!((used.free_bytes, used.committed_bytes), (PIECE, PIECE));
    let address = pool.allocate(PIECE - 256, Stream(0), Lifetime::Short).unwrap();
    pool.release(address, PIECE - 256, &[Stream(0)]);
    assert_eq!(pool.usage().committed_bytes, PIECE);
}

/// Buffers come and go on some streams, each filled with a number of its own and read just before
/// it is dropped.
fn check_streams(seed: u64) {
    let platform = Arc::new(EmulatedPlatform::with_seed(seed));
    let memory = DeviceMemory::new(platform.clone(), 24 * PIECE);
    let streams: Vec<Stream> = (0..3).map(|_| platform.create_stream(StreamPriority::Low).unwrap()).collect();
    let mut random = seed;
    let mut live = BTreeMap::new();
    // The targets of the reads: one place for each number.
    let read = memory.allocate(256 * 256, streams[0]).unwrap();
    memory.fill(&read, 0xff, streams[0]).unwrap();
    memory.publish([&read].into_iter(), streams[0]).unwrap();
    streams.iter().for_each(|stream| read.use_on(*stream).unwrap());
    for number in 0..256u64 {
        let stream = streams[(next(&mut random) % 3) as usize];
        let bytes = 256 + next(&mut random) % (3 * PIECE);
        if let Ok(buffer) = memory.allocate(bytes, stream) {
            memory.fill(&buffer, number as u8, stream).unwrap();
            memory.publish([&buffer].into_iter(), stream).unwrap();
            live.insert(number, buffer);
        }
        while live.len() > (next(&mut random) % 8) as usize {
            let place = (next(&mut random) % live.len() as u64) as usize;
            let chosen = *live.keys().nth(place).unwrap();
            let buffer = live.remove(&chosen).unwrap();
            let reader = streams[(next(&mut random) % 3) as usize];
            buffer.use_on(reader).unwrap();
            let last = buffer.address() + buffer.bytes() - 256;
            memory.copy(last, read.address() + chosen * 256, 256, reader).unwrap();
        }
    }
    drop(live);
    streams.iter().for_each(|stream| platform.wait(*stream).unwrap());
    let found = memory.download::<u8>(&read, 256 * 256, streams[0]).unwrap();
    for (number, bytes) in found.chunks(256).enumerate() {
        let is_right =
            bytes.iter().all(|byte| *byte == number as u8) || bytes.iter().all(|byte| *byte == 0xff);
        assert!(is_right, "seed {seed}: buffer {number} holds {bytes:?}");
    }
    drop(read);
    let used = memory.pool_use();
    assert_eq!(used.free_bytes, used.committed_bytes, "seed {seed}");
}

#[test]
fn streams_never_see_each_others_bytes() {
    (0..60).for_each(check_streams);
}

#[test]
fn what_several_streams_have_used_is_used_again_when_these_are_done() {
    let platform = Arc::new(EmulatedPlatform::with_seed(5));
    let pool = MemoryPool::new(platform.clone(), 1024 * PIECE);
    let [reader, driver, other] = [(); 3].map(|()| platform.create_stream(StreamPriority::Low).unwrap());
    let address = pool.allocate(PIECE, reader, Lifetime::Short).unwrap();
    platform.note_used(address, driver);
    (0..8).for_each(|_| platform.fill(address, 1, PIECE, driver).unwrap());
    pool.release(address, PIECE, &[reader, driver]);
    let committed = |pool: &MemoryPool| pool.lock().committed_bytes;
    // The first call only selects positions to poll; a stream that finds nothing uses other memory
    // meanwhile.
    let take = |stream| {
        let first = pool.allocate(PIECE, stream, Lifetime::Short).unwrap();
        let before = committed(&pool);
        [reader, driver].into_iter().for_each(|stream| platform.wait(stream).unwrap());
        let second = pool.allocate(PIECE, stream, Lifetime::Short).unwrap();
        assert_eq!(committed(&pool), before);
        [second, first].into_iter().for_each(|taken| pool.release(taken, PIECE, &[stream]));
        (first == address, second == address)
    };
    assert_eq!((take(reader), take(other)), ((false, true), (false, true)));
}

#[test]
fn pieces_whose_users_were_waited_for_can_be_committed_elsewhere() {
    let platform = Arc::new(EmulatedPlatform::with_seed(11));
    let pool = MemoryPool::new(platform.clone(), 64 * PIECE);
    let [user, other] = [(); 2].map(|()| platform.create_stream(StreamPriority::Low).unwrap());
    let bytes = 2 * PIECE - pool.guard_bytes;
    let mut all = Vec::new();
    while let Ok(address) = pool.allocate(bytes, user, Lifetime::Short) {
        all.push(address);
    }
    // The position after the first return is recorded, and the others lie behind it.
    let mut returned = all.iter().skip(1).step_by(2);
    let first = *returned.next().unwrap();
    pool.release(first, bytes, &[user]);
    {
        let mut state = pool.lock();
        let clock = state.streams.entry(user).or_default();
        pool.record_now(clock, user).unwrap();
    }
    let count = returned.map(|address| pool.release(*address, bytes, &[user])).count() as u64;
    // No two of them are adjacent: they are of use once their user has ended.
    let long = pool.allocate((count - 1) * 2 * PIECE, other, Lifetime::Short).unwrap();
    assert!(!all.contains(&long));
    pool.release(long, (count - 1) * 2 * PIECE, &[other]);
    all.iter().step_by(2).for_each(|address| pool.release(*address, bytes, &[user]));
}

#[test]
fn an_error_tells_the_longest_range() {
    let (_platform, pool) = pool(64 * PIECE);
    let error = pool.allocate(1 << 40, Stream(0), Lifetime::Short).unwrap_err();
    assert!(
        error.message.contains("requested_bytes=1099511627776, longest_free_bytes=0, free_bytes=0"),
        "{error}"
    );
    assert!(error.hint.unwrap().contains("device_memory"));
}
