//! Placement of buffers in a device's memory: one reservation of address space, allocated in the
//! order of streams.
//!
//! ```text
//! base ┌──────────┬──────┬─────────┬───────────────────────────────┬──────┬───────────┐ base + reserved
//!      │ buffer   │ free │ buffer  │ uncommitted: no memory there  │ free │ buffer    │
//!      └──────────┴──────┴─────────┴───────────────────────────────┴──────┴───────────┘
//!        short lives grow upwards ──►                       ◄── long lives grow downwards
//! ```
//!
//! Enqueued work may still use freed memory: it is *pending* on the streams that used it, each up
//! to a position. A stream may take memory that is pending on itself alone, since its own work
//! happens in order. It takes memory pending on others when they have reached that position, or
//! after waiting for them on the device. The host waits for a device in one case only: if there is
//! no room otherwise.
//!
//! Most allocations are as large as a buffer that was freed before. Freed blocks are kept by size
//! (`kept.rs`) until other room runs out.
//!
//! Memory is committed to addresses piece by piece, as needed, up to a limit. There are more
//! addresses than memory, so that a long range is possible even if free memory is scattered: pieces
//! that are completely free are decommitted there and committed elsewhere.
//!
//! Free memory can be too scattered for a long buffer although caches have more. `room.rs` then
//! finds which of their buffers have to go.
//!
//! Invariants: free blocks, uncommitted ranges and buffers never overlap. Pending memory is not
//! given to another stream before that stream is ordered after its users, nor is it decommitted.
//!
//! Source: stream-ordered pools as in RMM (rapidsai/rmm, pool_memory_resource), expandable segments
//! as in PyTorch's CUDA allocator. We differ: buffers of caches and of queries are placed from two
//! ends, so that long-lived ones do not fragment the room of short-lived ones.

mod kept;
mod room;

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use pystachio_engine::locking::{lock, whole};
use pystachio_plan::{Error, ErrorKind, Result};

use self::{
    kept::{KeptBlocks, LetGo, Use},
    room::{Block, Pieces, cheapest_room},
};
use crate::device::{Event, Platform, Stream};

/// Buffers start at multiples of this.
const ALIGNMENT_BYTES: u64 = 256;
/// Buffers are rounded up by at most this part of their size, so that there are few sizes: those
/// between two powers of two.
const SIZES_PER_DOUBLING: u64 = 32;
/// The same for buffers that are small parts of the pool, up to these: however many there are at
/// once, the rounding is little.
const SMALL_SIZES: [(u64, u64); 2] = [(1 << 16, 4), (1 << 12, 8)];
/// The part of the arena's size that may be committed on top, for rounding and for gaps between
/// buffers.
const SLACK_PART: u64 = 16;
const _: () = assert!(SLACK_PART < SIZES_PER_DOUBLING);
/// The most of the pool that may be kept by size.
const KEPT_PART: u64 = 8;
/// At least this many blocks have room there: larger ones are not kept.
const KEPT_BLOCKS_MIN: u64 = 4;
/// Buffers whose guards come on top of that, on a platform for tests with guards.
const GUARDED_BUFFERS: u64 = 32 << 10;
/// The ratio of addresses to memory.
const ADDRESSES_PER_BYTE: u64 = 4;
/// No more addresses than this are reserved: a process has 47 bits of them.
const RESERVED_BYTES_MAX: u64 = 1 << 42;
/// Pieces that divide the limit, unless they would be larger than `PIECE_BYTES_MAX`.
const PIECES_MIN: u64 = 512;
const PIECE_BYTES_MAX: u64 = 64 << 20;
/// A stream's position is recorded by an event when this much was freed on it since the last one,
/// so that other streams can find it reached. If memory can be committed instead, all streams are
/// polled when this much was freed in total.
const RECORDED_BYTES: u64 = 64 << 20;

/// The expected lifetime of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// A query's work.
    Short,
    /// It may stay between queries.
    Long,
}

/// The use of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// The device's memory that is committed.
    pub committed_bytes: u64,
    /// Of it, the part outside of buffers.
    pub free_bytes: u64,
    /// Of that, the part in ranges too small for the largest buffer that would fit if they were
    /// contiguous: all free memory but the longest range.
    pub scattered_bytes: u64,
}

/// The memory of one device by addresses.
pub(super) struct MemoryPool {
    platform: Arc<dyn Platform>,
    /// The limit of committed memory.
    bytes_max: u64,
    piece_bytes: u64,
    guard_bytes: u64,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// The reservation, after the first allocation.
    reserved: Option<Range<u64>>,
    committed_bytes: u64,
    /// By the start of each.
    free: BTreeMap<u64, FreeBlock>,
    /// Addresses without memory, in whole pieces: the start and the end of each range.
    uncommitted: BTreeMap<u64, u64>,
    streams: BTreeMap<Stream, StreamClock>,
    kept: KeptBlocks,
    /// Freed since all streams were polled; may be pending on some.
    freed_bytes: u64,
    /// Whether a stream has moved on since free blocks were last joined.
    has_progress: bool,
}

/// Memory outside of buffers.
#[derive(Clone, Debug)]
struct FreeBlock {
    end: u64,
    /// Streams whose work may still use it, up to a position of each. Empty: none.
    pending: Vec<Use>,
}

/// The positions of a stream, in bytes freed on it.
#[derive(Default)]
struct StreamClock {
    now: u64,
    /// The last recorded position.
    recorded: Option<(u64, Event)>,
    reached: u64,
    /// Freed since the last event.
    freed_bytes: u64,
}

impl MemoryPool {
    /// A pool of a device's memory for buffers of at most this many bytes in total. Nothing is
    /// reserved before it is needed.
    pub(super) fn new(platform: Arc<dyn Platform>, buffer_bytes_max: u64) -> Self {
        let smallest = platform.commit_bytes();
        let piece_bytes = (buffer_bytes_max / PIECES_MIN)
            .clamp(smallest, PIECE_BYTES_MAX.max(smallest))
            .next_multiple_of(smallest);
        let guard_bytes = platform.guard_bytes();
        let slack = buffer_bytes_max / SLACK_PART + 2 * piece_bytes + guard_bytes * GUARDED_BUFFERS;
        let bytes_max =
            buffer_bytes_max.saturating_add(slack).min(RESERVED_BYTES_MAX).next_multiple_of(piece_bytes);
        Self { platform, bytes_max, piece_bytes, guard_bytes, state: Mutex::default() }
    }

    /// The size of a buffer with a reservation of its own: the least possible, so that a process
    /// that maps it knows its size.
    pub(super) fn own_bytes(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(1).saturating_add(self.guard_bytes);
        bytes.next_multiple_of(self.platform.commit_bytes())
    }

    /// The size of a buffer in the pool.
    pub(super) fn block_bytes(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(1).saturating_add(self.guard_bytes);
        let doubled = bytes.checked_next_power_of_two().unwrap_or(bytes);
        let few = SMALL_SIZES.iter().find(|(part, _)| doubled <= self.bytes_max / part);
        let sizes = few.map_or(SIZES_PER_DOUBLING, |(_, sizes)| *sizes);
        bytes.next_multiple_of((doubled / (2 * sizes)).max(ALIGNMENT_BYTES))
    }

    /// Memory for a buffer, which `stream` may use at once.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if there is no range of so many bytes; faults of the device.
    pub(super) fn allocate(&self, bytes: u64, stream: Stream, lifetime: Lifetime) -> Result<u64> {
        let block_bytes = self.block_bytes(bytes);
        let mut has_waited = false;
        let (mut state, address) = loop {
            let mut state = self.lock();
            if lifetime == Lifetime::Short
                && let Some(address) = self.take_kept(&mut state, stream, block_bytes)?
            {
                break (state, address);
            }
            if let Some(address) = self.find(&mut state, block_bytes, stream, lifetime)? {
                break (state, address);
            }
            if has_waited {
                return Err(self.used_up(&state, bytes));
            }
            has_waited = true;
            let positions = self.record_pending(&state)?;
            // Other threads go on while the device works.
            drop(state);
            self.wait_for(positions)?;
        };
        let lent = self.platform.note_lent(address, bytes, stream);
        if lent.is_err() {
            let moment = state.moment(stream);
            state.put(address..address + block_bytes, vec![(stream, moment)]);
        }
        lent.map(|()| address)
    }

    /// Frees a buffer's memory, which enqueued work on some streams may still use.
    pub(super) fn release(&self, address: u64, bytes: u64, streams: &[Stream]) {
        let block_bytes = self.block_bytes(bytes);
        let mut state = self.lock();
        self.platform.note_returned(address, bytes, streams);
        let mut pending = Vec::with_capacity(streams.len());
        for stream in streams {
            let clock = state.streams.entry(*stream).or_default();
            clock.now += 1;
            clock.freed_bytes += bytes;
            pending.push((*stream, clock.now));
            if clock.freed_bytes >= RECORDED_BYTES && clock.recorded.is_none() {
                // If it can't be recorded now, it is recorded when needed.
                let _ = self.record_now(clock, *stream);
            }
        }
        let kept_bytes_max = self.bytes_max / KEPT_PART;
        if block_bytes > kept_bytes_max / KEPT_BLOCKS_MIN {
            state.free(LetGo { address, bytes: block_bytes, uses: pending });
            return;
        }
        state.kept.put(address, block_bytes, pending);
        for block in state.kept.take_surplus(kept_bytes_max) {
            state.free(block);
        }
    }

    /// The use of the memory.
    pub(super) fn usage(&self) -> PoolUse {
        let mut state = self.lock();
        state.let_go_kept();
        let free_bytes = state.free_bytes();
        let scattered_bytes = free_bytes - state.longest_free_bytes();
        PoolUse { committed_bytes: state.committed_bytes, free_bytes, scattered_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    /// A kept block of this size that the stream may use.
    fn take_kept(&self, state: &mut PoolState, stream: Stream, block_bytes: u64) -> Result<Option<u64>> {
        let PoolState { kept, streams, has_progress, .. } = state;
        kept.take(block_bytes, stream, |uses| self.have_reached(streams, has_progress, uses, stream))
    }

    /// Whether all of these streams but one have reached their positions, as far as the device
    /// knows now.
    fn have_reached(
        &self,
        streams: &mut BTreeMap<Stream, StreamClock>,
        has_progress: &mut bool,
        pending: &[Use],
        own: Stream,
    ) -> Result<bool> {
        let mut are_done = true;
        for (stream, moment) in pending.iter().filter(|(stream, _)| *stream != own) {
            let clock = streams.entry(*stream).or_default();
            if clock.reached < *moment {
                *has_progress |= self.look_at(clock)?;
            }
            if clock.reached < *moment {
                are_done = false;
                // Positions recorded before come first.
                if clock.recorded.is_none() {
                    self.record_now(clock, *stream)?;
                }
            }
        }
        Ok(are_done)
    }

    fn used_up(&self, state: &PoolState, bytes: u64) -> Error {
        let message = format!(
            "no free range of device memory is long enough: requested_bytes={bytes}, longest_free_bytes={}, \
             free_bytes={}, committed_bytes={}, limit_bytes={}",
            state.longest_free_bytes(),
            state.free_bytes(),
            state.committed_bytes,
            self.bytes_max
        );
        Error::new(ErrorKind::OutOfMemory, message)
            .with_hint("Raise the server option device_memory, or run fewer queries at once.")
    }

    /// The ranges that caches have to empty so that a buffer finds room, where they lose least.
    /// `idle` are their buffers that nothing else uses: the start and the bytes of each. `None` if
    /// no range would be long enough.
    pub(super) fn room(&self, bytes: u64, idle: Vec<(u64, u64)>) -> Option<Vec<Range<u64>>> {
        let mut state = self.lock();
        let reserved = state.reserved.clone()?;
        state.let_go_kept();
        let free =
            state.free.iter().map(|(start, block)| Block { range: *start..block.end, is_cached: false });
        let cached = idle
            .into_iter()
            .filter(|(start, _)| reserved.contains(start))
            .map(|(start, bytes)| Block { range: start..start + self.block_bytes(bytes), is_cached: true });
        let pieces = Pieces { base: reserved.start, bytes: self.piece_bytes };
        let blocks = free.chain(cached).collect();
        drop(state);
        cheapest_room(blocks, self.block_bytes(bytes), pieces).map(|room| room.ranges)
    }

    /// Takes a range, in the order of cost: free memory on its side; memory that turns out to be
    /// free; newly committed memory; the same with kept blocks; free memory on the other side;
    /// memory that other streams still use.
    fn find(
        &self,
        state: &mut PoolState,
        bytes: u64,
        stream: Stream,
        lifetime: Lifetime,
    ) -> Result<Option<u64>> {
        let mut found = self.find_or_grow(state, bytes, stream, lifetime)?;
        if found.is_none() && state.kept.bytes() > 0 {
            state.let_go_kept();
            found = self.find_or_grow(state, bytes, stream, lifetime)?;
        }
        let found = found
            .or_else(|| state.find_usable(bytes, stream, lifetime, false))
            .or_else(|| state.find_run(bytes, lifetime, |_, _| true));
        let Some(address) = found else { return Ok(None) };
        let pending = state.cut_out(address..address + bytes);
        self.order_after(state, stream, &pending)?;
        Ok(Some(address))
    }

    fn find_or_grow(
        &self,
        state: &mut PoolState,
        bytes: u64,
        stream: Stream,
        lifetime: Lifetime,
    ) -> Result<Option<u64>> {
        let found = state.find_usable(bytes, stream, lifetime, true);
        if found.is_some() {
            return Ok(found);
        }
        // All streams are polled only now and then, as long as memory can be committed instead.
        if state.freed_bytes < RECORDED_BYTES && self.grow(state, bytes, stream, lifetime)? {
            return Ok(state.find_usable(bytes, stream, lifetime, true));
        }
        if self.look(state)?
            && let Some(found) = state.find_usable(bytes, stream, lifetime, true)
        {
            return Ok(Some(found));
        }
        // Pieces that turned out to be free can be committed elsewhere.
        match self.grow(state, bytes, stream, lifetime)? {
            true => Ok(state.find_usable(bytes, stream, lifetime, true)),
            false => Ok(None),
        }
    }

    /// Orders a stream after others.
    fn order_after(&self, state: &mut PoolState, stream: Stream, pending: &[Use]) -> Result<()> {
        let mut moments: BTreeMap<Stream, u64> = BTreeMap::new();
        for (other, moment) in pending.iter().filter(|(other, _)| *other != stream) {
            let latest = moments.entry(*other).or_default();
            *latest = (*moment).max(*latest);
        }
        for (other, moment) in &moments {
            let clock = state.streams.entry(*other).or_default();
            if clock.reached >= *moment {
                continue;
            }
            let event = match clock.recorded {
                Some((recorded, event)) if recorded >= *moment => event,
                _ => self.record_now(clock, *other)?,
            };
            self.platform.order_after(stream, event)?;
        }
        Ok(())
    }

    /// Records a stream's position, in place of an earlier one.
    fn record_now(&self, clock: &mut StreamClock, stream: Stream) -> Result<Event> {
        let event = self.platform.record_event(stream)?;
        if let Some((_, earlier)) = clock.recorded.replace((clock.now, event)) {
            self.platform.release_event(earlier);
        }
        clock.freed_bytes = 0;
        Ok(event)
    }

    /// Records the positions of all streams that memory is pending on.
    fn record_pending(&self, state: &PoolState) -> Result<Vec<(Use, Event)>> {
        let pending: HashSet<Stream> =
            state.free.values().flat_map(|block| &block.pending).map(|(stream, _)| *stream).collect();
        let record = |stream| Ok(((stream, state.moment(stream)), self.platform.record_event(stream)?));
        pending.into_iter().map(record).collect()
    }

    /// Waits until streams have reached these positions, and notes that they have: what they enqueue
    /// meanwhile may take long.
    fn wait_for(&self, positions: Vec<(Use, Event)>) -> Result<()> {
        let waited = positions.iter().try_for_each(|(_, event)| self.platform.wait_event(*event));
        let mut state = self.lock();
        for ((stream, moment), event) in positions {
            self.platform.release_event(event);
            if waited.is_ok() {
                let clock = state.streams.entry(stream).or_default();
                clock.reached = clock.reached.max(moment);
                state.has_progress = true;
            }
        }
        waited
    }

    /// Polls the positions of all streams; returns whether more memory is free than before.
    fn look(&self, state: &mut PoolState) -> Result<bool> {
        state.freed_bytes = 0;
        for (stream, clock) in &mut state.streams {
            if clock.recorded.is_none() && clock.now > clock.reached {
                self.record_now(clock, *stream)?;
            }
            state.has_progress |= self.look_at(clock)?;
        }
        let has_more = std::mem::take(&mut state.has_progress);
        if has_more {
            state.settle();
        }
        Ok(has_more)
    }

    /// Polls whether a stream's recorded position has been reached.
    fn look_at(&self, clock: &mut StreamClock) -> Result<bool> {
        let Some((moment, event)) = clock.recorded else { return Ok(false) };
        if !self.platform.has_reached(event)? {
            return Ok(false);
        }
        // The host may have waited for a later one.
        clock.reached = clock.reached.max(moment);
        clock.recorded = None;
        self.platform.release_event(event);
        Ok(true)
    }

    /// Commits memory beside free memory, so that there is a range of so many bytes. At the limit,
    /// pieces that are free elsewhere are decommitted for it. Returns whether there is one then.
    fn grow(&self, state: &mut PoolState, bytes: u64, stream: Stream, lifetime: Lifetime) -> Result<bool> {
        if state.reserved.is_none() {
            let addresses =
                self.bytes_max.saturating_mul(ADDRESSES_PER_BYTE).min(RESERVED_BYTES_MAX.max(self.bytes_max));
            let base = self.platform.reserve(addresses)?;
            state.reserved = Some(base..base + addresses);
            state.uncommitted.insert(base, base + addresses);
        }
        let Some(range) = state.range_to_commit(bytes, self.piece_bytes, stream, lifetime) else {
            return Ok(false);
        };
        let wanted = range.end - range.start;
        if state.committed_bytes + wanted > self.bytes_max {
            self.give_up_pieces(state, state.committed_bytes + wanted - self.bytes_max, &range);
        }
        if state.committed_bytes + wanted > self.bytes_max {
            return Ok(false);
        }
        for piece in range.clone().step_by(self.piece_bytes as usize) {
            match self.platform.commit(piece, self.piece_bytes) {
                Ok(()) => {}
                // Other programs use the device too.
                Err(error) if error.kind == ErrorKind::OutOfMemory => return Ok(false),
                Err(error) => return Err(error),
            }
            state.take_uncommitted(piece..piece + self.piece_bytes);
            state.committed_bytes += self.piece_bytes;
            state.put(piece..piece + self.piece_bytes, Vec::new());
        }
        Ok(true)
    }

    /// Decommits pieces that are completely free and unused, until so many bytes are decommitted.
    /// Pieces beside the range to be committed stay.
    fn give_up_pieces(&self, state: &mut PoolState, bytes: u64, beside: &Range<u64>) {
        let mut given_up = 0;
        let mut pieces = Vec::new();
        for (start, block) in &state.free {
            if !block.pending.is_empty() || block.end == beside.start || *start == beside.end {
                continue;
            }
            let base = state.reserved.as_ref().map_or(0, |reserved| reserved.start);
            let first = base + (start - base).next_multiple_of(self.piece_bytes);
            let fitting = block.end.saturating_sub(first) / self.piece_bytes;
            for number in 0..fitting {
                if given_up >= bytes {
                    break;
                }
                pieces.push(first + number * self.piece_bytes);
                given_up += self.piece_bytes;
            }
        }
        for piece in pieces {
            state.cut_out(piece..piece + self.piece_bytes);
            self.platform.decommit(piece, self.piece_bytes);
            state.committed_bytes -= self.piece_bytes;
            state.put_uncommitted(piece..piece + self.piece_bytes);
        }
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let state = whole(self.state.get_mut());
        // Its streams are waited for as for free memory.
        state.let_go_kept();
        for clock in state.streams.values_mut() {
            if let Some((_, event)) = clock.recorded.take() {
                self.platform.release_event(event);
            }
        }
        if let Some(reserved) = state.reserved.take() {
            // Nothing is allocated any more, but enqueued work may use freed memory.
            let waited = state.streams.keys().try_for_each(|stream| self.platform.wait(*stream));
            if let Err(error) = waited {
                tracing::error!("{error}");
                return;
            }
            let mut start = reserved.start;
            let ends: Vec<(u64, u64)> = state.uncommitted.iter().map(|(start, end)| (*start, *end)).collect();
            for (gap, end) in ends.into_iter().chain([(reserved.end, reserved.end)]) {
                while start < gap {
                    self.platform.decommit(start, self.piece_bytes);
                    start += self.piece_bytes;
                }
                start = end;
            }
            self.platform.unreserve(reserved.start, reserved.end - reserved.start);
        }
    }
}

impl PoolState {
    /// The position of the last free on a stream.
    fn moment(&self, stream: Stream) -> u64 {
        self.streams.get(&stream).map_or(0, |clock| clock.now)
    }

    /// Frees the kept blocks.
    fn let_go_kept(&mut self) {
        for block in self.kept.take_all() {
            self.free(block);
        }
    }

    fn free(&mut self, block: LetGo) {
        let LetGo { address, bytes, uses } = block;
        self.freed_bytes += bytes;
        self.put(address..address + bytes, uses);
    }

    fn free_bytes(&self) -> u64 {
        self.free.iter().map(|(start, block)| block.end - start).sum()
    }

    /// The longest range.
    fn longest_free_bytes(&self) -> u64 {
        longest_run(self.free.iter().map(|(start, block)| *start..block.end))
    }

    /// Whether a stream may use a block at once.
    fn is_usable(&self, block: &FreeBlock, stream: Stream) -> bool {
        let is_reached = |(other, moment): &Use| {
            *other == stream || self.streams.get(other).is_some_and(|clock| clock.reached >= *moment)
        };
        block.pending.iter().all(is_reached)
    }

    /// The first range of so many bytes that a stream may use at once: on the side of its lifetime,
    /// or anywhere.
    fn find_usable(
        &self,
        bytes: u64,
        stream: Stream,
        lifetime: Lifetime,
        is_on_its_side: bool,
    ) -> Option<u64> {
        let gap =
            self.uncommitted.iter().max_by_key(|(start, end)| *end - *start).map_or(0, |(start, _)| *start);
        let is_on_side = |start: u64| match lifetime {
            _ if !is_on_its_side || gap == 0 => true,
            Lifetime::Short => start < gap,
            Lifetime::Long => start > gap,
        };
        self.find_run(bytes, lifetime, |start, block| is_on_side(start) && self.is_usable(block, stream))
    }

    /// The first range of so many bytes, from one end, inside blocks that may be taken.
    fn find_run(
        &self,
        bytes: u64,
        lifetime: Lifetime,
        may_take: impl Fn(u64, &FreeBlock) -> bool,
    ) -> Option<u64> {
        let mut run: Option<Range<u64>> = None;
        let mut extend = |start: u64, block: &FreeBlock| {
            if !may_take(start, block) {
                run = None;
                return None;
            }
            run = Some(match run.take() {
                Some(before) if before.end == start => before.start..block.end,
                Some(before) if before.start == block.end => start..before.end,
                _ => start..block.end,
            });
            let found = run.clone()?;
            (found.end - found.start >= bytes).then_some(match lifetime {
                Lifetime::Short => found.start,
                Lifetime::Long => found.end - bytes,
            })
        };
        match lifetime {
            Lifetime::Short => self.free.iter().find_map(|(start, block)| extend(*start, block)),
            Lifetime::Long => self.free.iter().rev().find_map(|(start, block)| extend(*start, block)),
        }
    }

    /// Cuts a range out of the free blocks that contain it. Returns the streams that may still use
    /// it.
    fn cut_out(&mut self, range: Range<u64>) -> Vec<Use> {
        let first = self.free.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let starts: Vec<u64> = self.free.range(first..range.end).map(|(start, _)| *start).collect();
        let mut pending = Vec::new();
        for start in starts {
            let Some(block) = self.free.remove(&start) else { continue };
            if block.end <= range.start {
                self.free.insert(start, block);
                continue;
            }
            if start < range.start {
                self.free.insert(start, FreeBlock { end: range.start, pending: block.pending.clone() });
            }
            if block.end > range.end {
                self.free.insert(range.end, block.clone());
            }
            pending.extend(block.pending);
        }
        pending
    }

    /// Adds free memory, joined with adjacent memory that is pending on the same streams.
    fn put(&mut self, block: Range<u64>, pending: Vec<Use>) {
        let Range { mut start, mut end } = block;
        let mut pending = pending;
        if let Some((before, known)) = self.free.range(..start).next_back()
            && known.end == start
            && are_alike(&known.pending, &pending)
        {
            let before = *before;
            pending = later(&known.pending, &pending);
            self.free.remove(&before);
            start = before;
        }
        if let Some(known) = self.free.get(&end)
            && are_alike(&known.pending, &pending)
        {
            pending = later(&known.pending, &pending);
            let known_end = known.end;
            self.free.remove(&end);
            end = known_end;
        }
        self.free.insert(start, FreeBlock { end, pending });
    }

    /// Drops positions that were reached, and joins memory that is free for all.
    fn settle(&mut self) {
        let blocks = std::mem::take(&mut self.free);
        for (start, FreeBlock { end, mut pending }) in blocks {
            pending.retain(|(stream, moment)| {
                self.streams.get(stream).is_none_or(|clock| clock.reached < *moment)
            });
            self.put(start..end, pending);
        }
    }

    /// Uncommitted pieces that make a range of so many bytes, with adjacent free memory on the
    /// growing side.
    fn range_to_commit(
        &self,
        bytes: u64,
        piece_bytes: u64,
        stream: Stream,
        lifetime: Lifetime,
    ) -> Option<Range<u64>> {
        let rounded = |bytes: u64| bytes.max(1).next_multiple_of(piece_bytes);
        let choose = |start: u64, end: u64| {
            let wanted = match lifetime {
                Lifetime::Short => {
                    let wanted = rounded(bytes.saturating_sub(self.usable_before(start, stream)));
                    start..start.checked_add(wanted)?
                }
                Lifetime::Long => {
                    let wanted = rounded(bytes.saturating_sub(self.usable_after(end, stream)));
                    end.checked_sub(wanted)?..end
                }
            };
            (wanted.start >= start && wanted.end <= end).then_some(wanted)
        };
        match lifetime {
            Lifetime::Short => self.uncommitted.iter().find_map(|(start, end)| choose(*start, *end)),
            Lifetime::Long => self.uncommitted.iter().rev().find_map(|(start, end)| choose(*start, *end)),
        }
    }

    /// Bytes that a stream may use right before an address.
    fn usable_before(&self, address: u64, stream: Stream) -> u64 {
        let mut start = address;
        for (block_start, block) in self.free.range(..address).rev() {
            if block.end != start || !self.is_usable(block, stream) {
                break;
            }
            start = *block_start;
        }
        address - start
    }

    /// Bytes that a stream may use from an address on.
    fn usable_after(&self, address: u64, stream: Stream) -> u64 {
        let mut end = address;
        for (block_start, block) in self.free.range(address..) {
            if *block_start != end || !self.is_usable(block, stream) {
                break;
            }
            end = block.end;
        }
        end - address
    }

    /// Records that a range has memory now.
    fn take_uncommitted(&mut self, range: Range<u64>) {
        let Some((start, end)) =
            self.uncommitted.range(..=range.start).next_back().map(|(start, end)| (*start, *end))
        else {
            return;
        };
        self.uncommitted.remove(&start);
        if start < range.start {
            self.uncommitted.insert(start, range.start);
        }
        if range.end < end {
            self.uncommitted.insert(range.end, end);
        }
    }

    /// Records that a range has no memory any more.
    fn put_uncommitted(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if let Some((before, before_end)) = self.uncommitted.range(..start).next_back()
            && *before_end == start
        {
            start = *before;
        }
        if let Some(after_end) = self.uncommitted.remove(&end) {
            end = after_end;
        }
        self.uncommitted.insert(start, end);
    }
}

/// Whether blocks are pending on the same streams.
fn are_alike(one: &[Use], other: &[Use]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|((one, _), (other, _))| one == other)
}

/// The later moments of two lists of the same streams.
fn later(one: &[Use], other: &[Use]) -> Vec<Use> {
    one.iter().zip(other).map(|((stream, one), (_, other))| (*stream, *one.max(other))).collect()
}

/// The longest contiguous range.
fn longest_run(ranges: impl Iterator<Item = Range<u64>>) -> u64 {
    let (mut longest, mut run) = (0, 0..0);
    for range in ranges {
        run = if run.end == range.start { run.start..range.end } else { range };
        longest = longest.max(run.end - run.start);
    }
    longest
}

#[cfg(test)]
mod tests;
