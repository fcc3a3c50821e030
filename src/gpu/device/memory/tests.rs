//! Lifetimes under devices that work late: cases that the model before this one got wrong, and this
//! one gets right.

use std::collections::VecDeque;

use super::*;
use crate::device::EmulatedPlatform;

const BYTES: usize = 4096;

/// Which streams are waited for before memory is reused.
#[derive(Clone, Copy, PartialEq)]
enum Model {
    /// The last announced stream: a buffer knew one stream, and each user replaced it.
    LastNamed,
    /// Every stream that uses it.
    Uses,
}

/// A reader's buffer that a query copies, and that is dropped before the device has copied it; the
/// reader goes on with other memory. Returns the content of the query's copy.
fn copied(model: Model, seed: u64) -> Vec<u8> {
    let platform = Arc::new(EmulatedPlatform::with_seed(seed));
    let memory = DeviceMemory::new(platform.clone(), 1 << 20);
    let [reader, query] = [
        platform.create_stream(StreamPriority::Low).unwrap(),
        platform.create_stream(StreamPriority::Low).unwrap(),
    ];
    let pages = memory.upload(&[1u8; BYTES], reader).unwrap();
    platform.wait(reader).unwrap();
    let result = memory.allocate(BYTES as u64, query).unwrap();
    match model {
        Model::Uses => pages.use_on(query).unwrap(),
        // The query has announced its stream, and then a reader its own again, for another piece of
        // the row group.
        Model::LastNamed => platform.note_used(pages.address(), query),
    }
    memory.copy(pages.address(), result.address(), BYTES as u64, query).unwrap();
    drop(pages);
    let others = memory.upload(&[2u8; BYTES], reader).unwrap();
    platform.wait(reader).unwrap();
    let copied = memory.download::<u8>(&result, BYTES, query).unwrap();
    drop(others);
    copied
}

#[test]
fn the_model_in_which_the_last_stream_counts_is_found_out() {
    let wrong = |model| (0..100).filter(|seed| copied(model, *seed) != [1; BYTES]).count();
    assert_eq!(wrong(Model::Uses), 0);
    assert!(wrong(Model::LastNamed) > 10);
}

#[test]
fn who_does_not_order_streams_is_found_out() {
    let read = |is_published: bool, seed| {
        let platform = Arc::new(EmulatedPlatform::with_seed(seed));
        let memory = DeviceMemory::new(platform.clone(), 1 << 20);
        let [writer, reader] = [
            platform.create_stream(StreamPriority::Low).unwrap(),
            platform.create_stream(StreamPriority::Low).unwrap(),
        ];
        let buffer = memory.upload(&[1u8; BYTES], writer).unwrap();
        if is_published {
            memory.publish([&buffer].into_iter(), writer).unwrap();
        }
        buffer.use_on(reader).unwrap();
        memory.download::<u8>(&buffer, BYTES, reader).unwrap() == [1; BYTES]
    };
    assert!((0..100).all(|seed| read(true, seed)));
    assert!((0..100).filter(|seed| !read(false, *seed)).count() > 10);
}

#[test]
fn a_stream_that_was_not_named_is_refused() {
    let platform = Arc::new(EmulatedPlatform::new());
    let memory = DeviceMemory::new(platform.clone(), 1 << 20);
    let [owner, other] = [
        platform.create_stream(StreamPriority::Low).unwrap(),
        platform.create_stream(StreamPriority::Low).unwrap(),
    ];
    let buffer = memory.upload(&[1u8; BYTES], owner).unwrap();
    let error = memory.download::<u8>(&buffer, BYTES, other).unwrap_err();
    assert!(error.message.contains("the stream was not announced for the buffer"), "{error}");
}

#[test]
fn memory_of_reservations_of_their_own_is_given_back() {
    let platform = Arc::new(EmulatedPlatform::with_seed(3));
    let memory = DeviceMemory::new(platform.clone(), 1 << 20);
    let [owner, other] = [
        platform.create_stream(StreamPriority::Low).unwrap(),
        platform.create_stream(StreamPriority::Low).unwrap(),
    ];
    let buffer = memory.reserve(BYTES as u64, owner).unwrap();
    memory.upload_to(&[1u8; BYTES], buffer.address(), owner).unwrap();
    memory.publish([&buffer].into_iter(), owner).unwrap();
    buffer.use_on(other).unwrap();
    memory.fill(&buffer, 9, other).unwrap();
    // Both streams must have ended their use before the addresses are unmapped, or this ends the
    // process.
    drop(buffer);
    assert_eq!((memory.used_bytes(), memory.pool_use()), (0, PoolUse::default()));
}

/// A cache of buffers, of which the first is evicted first.
struct Cache(Mutex<VecDeque<Buffer>>);

impl Reclaim for Cache {
    fn reclaim(&self, bytes: u64) {
        let mut held = lock_whole(&self.0);
        let mut found = 0;
        while found < bytes
            && let Some(buffer) = held.pop_front()
        {
            found += buffer.bytes();
        }
    }

    fn idle_buffers(&self) -> Vec<(u64, u64)> {
        lock_whole(&self.0).iter().filter(|buffer| !buffer.is_shared()).map(Buffer::held).collect()
    }

    fn reclaim_ranges(&self, ranges: &[Range<u64>]) {
        let is_within = |buffer: &Buffer| ranges.iter().any(|range| range.contains(&buffer.address()));
        lock_whole(&self.0).retain(|buffer| buffer.is_shared() || !is_within(buffer));
    }
}

/// A cache fills the memory with buffers of half a piece. Those that it evicts first lie apart, so that
/// each leaves a hole that is too small to be moved.
#[test]
fn a_long_buffer_finds_room_among_scattered_buffers_of_a_cache() {
    const MEMORY_BYTES: u64 = 128 << 20;
    const HELD_BYTES: u64 = 128 << 10;
    const LONG_BYTES: u64 = 30 << 20;
    let platform = Arc::new(EmulatedPlatform::at_once());
    let memory = DeviceMemory::new(platform.clone(), MEMORY_BYTES);
    let cache = Arc::new(Cache(Mutex::default()));
    memory.add_reclaimer(Arc::downgrade(&cache) as Weak<dyn Reclaim>);
    let bytes = HELD_BYTES - platform.guard_bytes();
    let mut all = Vec::new();
    while let Ok(buffer) = memory.allocate_for(Lifetime::Long, bytes, Stream(0)) {
        all.push(buffer);
    }
    let apart = [0, 2, 1, 3].into_iter().flat_map(|first| all.iter().skip(first).step_by(4).cloned());
    lock_whole(&cache.0).extend(apart);
    // One that a query uses stays.
    let used = all.swap_remove(all.len() / 2);
    drop(all);
    let query = memory.open_account();
    query.admit(super::Reservation::of_minimum(MEMORY_BYTES / 2), &StopFlag::default()).unwrap();
    let before = cache.idle_buffers().len() as u64 * HELD_BYTES;
    let long = query.allocate(LONG_BYTES, Stream(1)).unwrap();
    let lost = before - cache.idle_buffers().len() as u64 * HELD_BYTES;
    assert!(lost <= 2 * LONG_BYTES + HELD_BYTES, "no more goes than the bytes, and the range: {lost}");
    assert!(long.address() + LONG_BYTES <= used.address() || used.address() < long.address());
    assert_eq!(lock_whole(&cache.0).iter().filter(|buffer| buffer.is_shared()).count(), 1);
    query.allocate(LONG_BYTES, Stream(1)).unwrap();
}
