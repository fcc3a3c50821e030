//! Lifetimes under devices that work late: cases that the model before this one got wrong, and this
//! one gets right.

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
