//! The memory that exchanges send from and receive into: one range on each rank, allocated once.
//!
//! ```text
//! region ┌─ extent: outbox of an exchange ─┬─ extent: its inbox ─┬─ … ─┬─ free ─┐   extents live as long as an exchange
//!        │ block │ block │   free          │ block │   free      │
//!        └───────┴───────┴─────────────────┴───────┴─────────────┘              blocks live for a round or two
//! ```
//!
//! The range is registered with a network once, so it is never memory of a pool. Every exchange has
//! extents of its own: however full they are, other exchanges keep their room.
//!
//! Invariants: blocks and extents never overlap. Memory is not reused before all announced uses
//! ([`RegionBlock::use_until_now`]) have happened. A request for memory polls that; opening an
//! exchange waits for it, for a bounded time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use pystachio_engine::locking::{lock, lock_whole, whole};
use pystachio_plan::{Error, ErrorKind, Result};

use crate::device::{Buffer, DeviceMemory, Event, Platform, Stream, StreamPriority};

/// Blocks begin at multiples of this, and their bytes are multiples of it: parts of a block are
/// columns for kernels, which read several cells at once from multiples of 64 (`device/column.rs`).
pub const BLOCK_ALIGNMENT: u64 = 64;

/// How long opening an exchange waits at most for the device's work on earlier ones: a thousand
/// times as long as a device takes to unpack a gigabyte.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// The interval of its polls.
const SETTLE_INTERVAL: Duration = Duration::from_micros(50);

/// The requested memory of one side of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentBytes {
    /// The preferred bytes.
    pub(super) wanted: u64,
    /// The least useful bytes.
    pub(super) least: u64,
}

/// Free ranges of addresses; adjacent ones are joined.
#[derive(Debug, Default)]
struct FreeRanges {
    /// The start of each, and its bytes.
    ranges: BTreeMap<u64, u64>,
}

impl FreeRanges {
    /// The first range that is long enough, cut from its beginning.
    fn take_first(&mut self, bytes: u64) -> Option<u64> {
        let (start, _) = self.ranges.iter().find(|(_, length)| **length >= bytes)?;
        self.cut(*start, bytes)
    }

    /// The longest range, cut from its beginning.
    fn take_longest(&mut self, bytes: u64) -> Option<u64> {
        let (start, _) = self.ranges.iter().max_by_key(|(_, length)| **length)?;
        self.cut(*start, bytes)
    }

    fn cut(&mut self, start: u64, bytes: u64) -> Option<u64> {
        let length = self.ranges.get(&start).copied().filter(|length| *length >= bytes)?;
        self.ranges.remove(&start);
        if length > bytes {
            self.ranges.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    fn longest(&self) -> u64 {
        self.ranges.values().copied().max().unwrap_or(0)
    }

    fn give_back(&mut self, start: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (mut start, mut end) = (start, start + bytes);
        if let Some((before, length)) = self.ranges.range(..start).next_back()
            && before + length == start
        {
            start = *before;
            self.ranges.remove(&start);
        }
        if let Some(length) = self.ranges.remove(&end) {
            end += length;
        }
        self.ranges.insert(start, end - start);
    }
}

/// Free ranges, and those that become free when some work has happened.
#[derive(Default)]
struct RegionRanges {
    free: FreeRanges,
    retiring: Vec<Retiring>,
}

struct Retiring {
    start: u64,
    bytes: u64,
    uses: Vec<Event>,
}

impl RegionRanges {
    /// Polls which work has happened. Returns whether more is free than before.
    fn settle(&mut self, platform: &dyn Platform) -> Result<bool> {
        let mut has_more = false;
        let mut left = Vec::with_capacity(self.retiring.len());
        let mut looked = Ok(());
        for mut retiring in std::mem::take(&mut self.retiring) {
            looked = looked.and(forget_reached(platform, &mut retiring.uses));
            if retiring.uses.is_empty() {
                self.free.give_back(retiring.start, retiring.bytes);
                has_more = true;
            } else {
                left.push(retiring);
            }
        }
        self.retiring = left;
        looked.map(|()| has_more)
    }

    fn retire(&mut self, start: u64, bytes: u64, uses: Vec<Event>) {
        match uses.is_empty() {
            true => self.free.give_back(start, bytes),
            false => self.retiring.push(Retiring { start, bytes, uses }),
        }
    }
}

/// Drops reached events.
fn forget_reached(platform: &dyn Platform, uses: &mut Vec<Event>) -> Result<()> {
    let mut looked = Ok(());
    uses.retain(|event| match platform.has_reached(*event) {
        Ok(true) => {
            platform.release_event(*event);
            false
        }
        Ok(false) => true,
        Err(error) => {
            looked = Err(error);
            true
        }
    });
    looked
}

/// A rank's memory for exchanges. Cheap to clone.
#[derive(Clone)]
pub struct ExchangeRegion {
    shared: Arc<RegionShared>,
}

struct RegionShared {
    memory: DeviceMemory,
    buffer: Buffer,
    ranges: Mutex<RegionRanges>,
}

impl ExchangeRegion {
    /// Memory of a device of its own, which counts for no arena of queries. Waits for the device.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the device lacks it, and faults of the device.
    pub fn new(platform: Arc<dyn Platform>, bytes: u64) -> Result<Self> {
        let bytes = bytes.next_multiple_of(BLOCK_ALIGNMENT);
        let memory = DeviceMemory::new(platform, bytes);
        let lease = memory.lease_stream(StreamPriority::High)?;
        let buffer = memory.reserve(bytes, lease.stream())?;
        // From here on every stream may use it without being ordered after this one.
        memory.platform().wait(lease.stream())?;
        let mut ranges = RegionRanges::default();
        ranges.free.give_back(buffer.address(), bytes);
        Ok(Self { shared: Arc::new(RegionShared { memory, buffer, ranges: Mutex::new(ranges) }) })
    }

    /// Its device memory, for copies from and to it.
    pub fn memory(&self) -> &DeviceMemory {
        &self.shared.memory
    }

    /// Its address and its bytes, which a network registers.
    pub fn range(&self) -> (u64, u64) {
        (self.shared.buffer.address(), self.shared.buffer.bytes())
    }

    /// Marks its blocks as used by a stream from now on.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn use_on(&self, stream: Stream) -> Result<()> {
        self.shared.buffer.use_on(stream)
    }

    /// A range for one side of an exchange. Waits while dropped memory is still in use, until the
    /// preferred bytes are free; after the limit it gets the least, so that the rest serves as many
    /// others as possible.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if other exchanges leave less than the least, and faults of the device.
    ///
    /// # Panics
    ///
    /// If the preferred bytes are fewer than the least.
    pub(super) fn allocate_extent(&self, bytes: ExtentBytes) -> Result<Arc<RegionExtent>> {
        let [wanted, least] =
            [bytes.wanted, bytes.least].map(|bytes| bytes.next_multiple_of(BLOCK_ALIGNMENT));
        assert!(least <= wanted, "the least of an extent");
        let begun = Instant::now();
        loop {
            {
                let mut ranges = self.shared.lock();
                ranges.settle(&**self.shared.memory.platform())?;
                if let Some(start) = ranges.free.take_first(wanted) {
                    return Ok(self.extent(start, wanted));
                }
                if ranges.retiring.is_empty() || begun.elapsed() >= SETTLE_MAX {
                    let start = ranges.free.take_first(least);
                    return match start {
                        Some(start) => Ok(self.extent(start, least)),
                        None => Err(self.too_little(least, ranges.free.longest())),
                    };
                }
            }
            thread::sleep(SETTLE_INTERVAL);
        }
    }

    fn too_little(&self, requested: u64, longest: u64) -> Error {
        let message = format!(
            "exchanges have too little memory: requested_bytes={requested}, longest_free_bytes={longest}, region_bytes={}",
            self.shared.buffer.bytes()
        );
        Error::new(ErrorKind::OutOfMemory, message)
            .with_hint("Raise the memory for exchanges, or run fewer queries at once.")
    }

    fn extent(&self, start: u64, bytes: u64) -> Arc<RegionExtent> {
        let mut own = RegionRanges::default();
        own.free.give_back(start, bytes);
        Arc::new(RegionExtent { region: self.clone(), start, bytes, ranges: Mutex::new(own) })
    }
}

impl RegionShared {
    fn lock(&self) -> MutexGuard<'_, RegionRanges> {
        lock(&self.ranges)
    }
}

impl Drop for RegionShared {
    fn drop(&mut self) {
        // The buffer waits for its streams itself.
        let retiring = std::mem::take(&mut self.lock().retiring);
        for event in retiring.into_iter().flat_map(|retiring| retiring.uses) {
            self.memory.platform().release_event(event);
        }
    }
}

/// A range of the region that belongs to one side of an exchange.
pub(super) struct RegionExtent {
    region: ExchangeRegion,
    start: u64,
    bytes: u64,
    ranges: Mutex<RegionRanges>,
}

impl RegionExtent {
    /// The region.
    pub(super) fn region(&self) -> &ExchangeRegion {
        &self.region
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A block, or `None` if no range is long enough.
    pub(super) fn allocate(self: &Arc<Self>, bytes: u64) -> Option<RegionBlock> {
        let bytes = bytes.next_multiple_of(BLOCK_ALIGNMENT);
        let address = self.lock().free.take_first(bytes)?;
        Some(self.block(address, bytes))
    }

    /// A block of the longest range. If blocks together have no more than the last
    /// [`RegionExtent::room`], all of them fit, whatever is freed meanwhile, provided that no other
    /// thread allocates.
    pub(super) fn allocate_in_longest(self: &Arc<Self>, bytes: u64) -> Option<RegionBlock> {
        let bytes = bytes.next_multiple_of(BLOCK_ALIGNMENT);
        let address = self.lock().free.take_longest(bytes)?;
        Some(self.block(address, bytes))
    }

    fn block(self: &Arc<Self>, address: u64, bytes: u64) -> RegionBlock {
        RegionBlock { extent: self.clone(), address, bytes, uses: Mutex::default() }
    }

    /// The longest free range.
    pub(super) fn room(&self) -> u64 {
        self.lock().free.longest()
    }

    /// Polls which dropped blocks are no longer in use. Returns whether there is more room than
    /// before.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn settle(&self) -> Result<bool> {
        let mut ranges = self.lock();
        if ranges.retiring.is_empty() {
            return Ok(false);
        }
        ranges.settle(&**self.region.memory().platform())
    }

    /// Whether dropped blocks may still be in use.
    pub(super) fn is_settling(&self) -> bool {
        !self.lock().retiring.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, RegionRanges> {
        lock(&self.ranges)
    }
}

impl Drop for RegionExtent {
    fn drop(&mut self) {
        let retiring = std::mem::take(&mut self.lock().retiring);
        let uses = retiring.into_iter().flat_map(|retiring| retiring.uses).collect();
        self.region.shared.lock().retire(self.start, self.bytes, uses);
    }
}

/// A block of an extent, freed when this is dropped and its uses have happened.
pub(super) struct RegionBlock {
    extent: Arc<RegionExtent>,
    address: u64,
    bytes: u64,
    uses: Mutex<Vec<Event>>,
}

impl RegionBlock {
    /// Its address.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Its bytes, a multiple of [`BLOCK_ALIGNMENT`].
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Announces that work enqueued on a stream so far may use it.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn use_until_now(&self, stream: Stream) -> Result<()> {
        let event = self.extent.region.memory().platform().record_event(stream)?;
        lock_whole(&self.uses).push(event);
        Ok(())
    }

    /// Whether all announced uses have happened; does not wait.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn is_settled(&self) -> Result<bool> {
        let mut uses = lock_whole(&self.uses);
        forget_reached(&**self.extent.region.memory().platform(), &mut uses)?;
        Ok(uses.is_empty())
    }
}

impl Drop for RegionBlock {
    fn drop(&mut self) {
        let uses = std::mem::take(whole(self.uses.get_mut()));
        self.extent.lock().retire(self.address, self.bytes, uses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::EmulatedPlatform;

    /// Exactly so many bytes.
    fn all_of(bytes: u64) -> ExtentBytes {
        ExtentBytes { wanted: bytes, least: bytes }
    }

    #[test]
    fn free_neighbours_are_one_range() {
        let mut free = FreeRanges::default();
        free.give_back(0, 1024);
        let blocks: Vec<u64> = (0..4).map(|_| free.take_first(256).unwrap()).collect();
        assert_eq!(
            (blocks.as_slice(), free.longest(), free.take_first(1)),
            (&[0, 256, 512, 768][..], 0, None)
        );
        for start in [256, 768, 0] {
            free.give_back(start, 256);
        }
        assert_eq!((free.longest(), free.take_first(257).is_some()), (512, true));
        free.give_back(512, 256);
        free.give_back(0, 257);
        assert_eq!(free.ranges, BTreeMap::from([(0, 1024)]));
    }

    #[test]
    fn the_longest_range_holds_what_its_length_promised() {
        let mut free = FreeRanges::default();
        free.give_back(0, 640);
        free.give_back(1000, 512);
        let room = free.longest();
        let first = free.take_longest(320);
        // Blocks freed meanwhile may be longer, and take nothing away.
        free.give_back(2000, 330);
        assert_eq!((first, free.take_longest(room - 320)), (Some(0), Some(1000)));
        assert_eq!(free.take_longest(331), None);
    }

    #[test]
    fn a_block_is_free_when_the_work_that_uses_it_has_happened() {
        for seed in 0..20 {
            let platform = Arc::new(EmulatedPlatform::with_seed(seed));
            let region = ExchangeRegion::new(platform.clone(), 1 << 20).unwrap();
            let extent = region.allocate_extent(all_of(1 << 12)).unwrap();
            let stream = platform.create_stream(StreamPriority::Low).unwrap();
            region.use_on(stream).unwrap();
            let block = extent.allocate(1 << 12).unwrap();
            assert!(extent.allocate(1).is_none());
            platform.fill(block.address(), 1, block.bytes(), stream).unwrap();
            block.use_until_now(stream).unwrap();
            drop(block);
            assert!(extent.is_settling() && extent.room() == 0, "seed {seed}");
            platform.wait(stream).unwrap();
            assert!(extent.settle().unwrap() && extent.room() == 1 << 12, "seed {seed}");
        }
    }

    #[test]
    fn an_extent_that_is_let_go_of_is_had_again_after_its_work() {
        for seed in 0..20 {
            let platform = Arc::new(EmulatedPlatform::with_seed(seed));
            let region = ExchangeRegion::new(platform.clone(), 1 << 12).unwrap();
            let stream = platform.create_stream(StreamPriority::Low).unwrap();
            region.use_on(stream).unwrap();
            let extent = region.allocate_extent(all_of(1 << 12)).unwrap();
            let block = extent.allocate(64).unwrap();
            platform.fill(block.address(), 1, 64, stream).unwrap();
            block.use_until_now(stream).unwrap();
            drop((block, extent));
            // A request for it waits for the work, if it has not happened.
            assert!(region.allocate_extent(all_of(1 << 12)).is_ok(), "seed {seed}");
            let error = region.allocate_extent(all_of(1 << 13)).err().unwrap();
            assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error}");
        }
    }

    #[test]
    fn who_wants_more_than_is_there_in_one_piece_has_the_least() {
        let region = ExchangeRegion::new(Arc::new(EmulatedPlatform::at_once()), 1 << 12).unwrap();
        let extents: Vec<_> = (0..4).map(|_| region.allocate_extent(all_of(1 << 10)).unwrap()).collect();
        let [first, second, third, fourth] = extents.try_into().unwrap_or_else(|_| panic!("four"));
        drop((first, third));
        let bytes = ExtentBytes { wanted: 1 << 11, least: 1 << 9 };
        let left: Vec<u64> =
            (0..4).map(|_| region.allocate_extent(bytes).unwrap()).map(|extent| extent.bytes()).collect();
        assert_eq!(left, [1 << 9; 4]);
        drop((second, fourth));
        let error =
            region.allocate_extent(ExtentBytes { wanted: 1 << 13, least: (1 << 12) + 1 }).err().unwrap();
        assert_eq!(
            error.message,
            "exchanges have too little memory: requested_bytes=4160, longest_free_bytes=4096, region_bytes=4096"
        );
    }
}
