//! A rank's end of a network between devices of one host that read each other's memory.
//!
//! ```text
//! sender                              data socket                        receiver
//! connected ─────── its region, as a descriptor ────────────────────────►  mapped
//! a group begins ── offer: where a part lies, and its bytes ──────────►  the next part that it expects of that rank
//!                                                                         copied by the receiver's device, on its stream
//! the part has moved ◄─────────────── taken: so many parts until now ──── when the device has come to the end of that
//! ```
//!
//! The copy engines of a GPU move the bytes and need no multiprocessor. NCCL's kernels wait until a
//! multiprocessor is nearly empty; on GPUs filled by queries that took five times as long as the
//! transfer.
//!
//! The receiver copies. So a stopped rank that goes on, and does not know yet that others have
//! given it up, writes nowhere. It may read a sender's memory after its reuse: before a part counts
//! as moved, its receiver checks again that no rank has sent its closing message (`controlled.rs`),
//! which every rank sends before it reuses its memory. The memory of an ended process exists as
//! long as it is mapped.
//!
//! Invariants: no call waits for another rank, or for the device. Parts of one pair of ranks meet
//! in the order of their lists. A rank reads nothing beyond the region of another one, whatever
//! that one offers. If a rank's socket ends, the rank is gone (see `mod.rs`).
//!
//! Source: one-sided access within a host, as `ncclPutSignal` of NCCL 2.29 (user guide, "Host-initiated one-sided communication"). We differ:
//! the receiver reads, and nothing needs the library.

use std::{
    collections::VecDeque,
    os::fd::{BorrowedFd, OwnedFd},
};

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    frame::{DIRECT_BYTES, DirectFrame},
    groups::{GroupPart, PartGroups, copy_own},
    link::{LinkSocket, SocketProgress},
};
use crate::{
    device::{DeviceMemory, Event, Stream, StreamLease, StreamPriority},
    exchange::{ExchangeRegion, Rank, ReceivePart, SendPart, Transfers, communicator::peer_error},
};

/// Limit of the parts that another rank may offer before this one expects them: more than a round
/// and the running groups move.
const OFFERS_MAX: usize = 1 << 16;
const READ_BYTES: usize = 4 << 10;

/// How regions are shared between the devices of a host.
pub trait RegionSharing: Send {
    /// A handle to a region of this rank's device that another process can map.
    ///
    /// # Errors
    ///
    /// If the device's driver can't share it.
    fn share(&self, region: &ExchangeRegion) -> Result<OwnedFd>;

    /// Another rank's shared region of so many bytes, mapped for this rank's device to read.
    ///
    /// # Errors
    ///
    /// If the device can't access that memory.
    fn map(&self, shared: OwnedFd, bytes: u64) -> Result<Box<dyn MappedRegion>>;
}

/// Another rank's region.
pub trait MappedRegion: Send {
    /// Copies bytes at an offset in it to an address of this rank's device. Both ranges are valid.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    fn read(&self, offset_bytes: u64, target: u64, bytes: u64, stream: Stream) -> Result<()>;
}

/// A rank's end of a network of devices that read each other's memory.
pub struct DirectTransfers {
    rank: Rank,
    memory: DeviceMemory,
    lease: StreamLease,
    sharing: Box<dyn RegionSharing>,
    /// The address of the region.
    region_start: u64,
    /// By rank; none at its own place.
    ends: Vec<Option<DirectEnd>>,
    groups: PartGroups,
    /// Parts being copied to this rank, in the order of the stream.
    batches: VecDeque<CopiedBatch>,
}

/// Copied parts, when an event is reached: the sender, and the group here.
struct CopiedBatch {
    event: Event,
    parts: Vec<(Rank, u64)>,
}

/// The data socket of a link, and its messages.
struct DirectEnd {
    other: Rank,
    socket: LinkSocket,
    /// Absent until it has arrived.
    region: Option<PeerRegion>,
    unsent: VecDeque<u8>,
    received: Vec<u8>,
    /// Groups of the parts offered to the other rank that it has not taken, in their order.
    offered: VecDeque<u64>,
    /// The number of parts that it has taken.
    taken_from_here: u64,
    /// Its offers that this rank has not begun to copy: offset and bytes.
    offers: VecDeque<(u64, u64)>,
    /// Expected parts of it that were not begun.
    expected: VecDeque<GroupPart>,
    /// Groups of parts that are being copied.
    copying: VecDeque<u64>,
    /// The number of parts that this rank has taken, and of those that it has reported.
    taken_here: u64,
    taken_said: u64,
}

/// The region of another rank.
struct PeerRegion {
    mapped: Box<dyn MappedRegion>,
    bytes: u64,
}

impl DirectTransfers {
    /// The end of a rank that has a data socket to each other one, which are Unix sockets. Shares its region with them; theirs are mapped when
    /// they come. Where a device does not reach another one's memory, the first transfers fail.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the device's memory can't be shared; `Peer` if another rank is gone.
    pub fn connect(
        rank: Rank,
        sockets: Vec<Option<LinkSocket>>,
        region: &ExchangeRegion,
        sharing: Box<dyn RegionSharing>,
    ) -> Result<Self> {
        let (region_start, region_bytes) = region.range();
        let memory = region.memory().clone();
        let lease = memory.lease_stream(StreamPriority::High)?;
        let open = |(number, socket): (u16, Option<LinkSocket>)| {
            let share = |socket| DirectEnd::new(Rank(number), socket, (sharing.share(region)?, region_bytes));
            socket.map(share).transpose()
        };
        let ends = (0..).zip(sockets).map(open).collect::<Result<_>>()?;
        let (groups, batches) = (PartGroups::default(), VecDeque::new());
        Ok(Self { rank, memory, lease, sharing, region_start, ends, groups, batches })
    }

    /// Continues all running work.
    fn work(&mut self) -> Result<u64> {
        for end in self.ends.iter_mut().flatten() {
            for group in end.work(&*self.sharing)? {
                self.groups.note_moved(group);
            }
        }
        self.begin_copies()?;
        self.end_copies()?;
        self.groups.settle(&self.memory)
    }

    /// Begins to copy parts that are both offered and expected.
    fn begin_copies(&mut self) -> Result<()> {
        let stream = self.lease.stream();
        let mut parts = Vec::new();
        for end in self.ends.iter_mut().flatten() {
            while let Some(group) = end.begin_copy(stream)? {
                parts.push((end.other, group));
            }
        }
        if !parts.is_empty() {
            let event = self.memory.platform().record_event(stream)?;
            self.batches.push_back(CopiedBatch { event, parts });
        }
        Ok(())
    }

    /// Reports the copied parts.
    fn end_copies(&mut self) -> Result<()> {
        let platform = self.memory.platform();
        while let Some(batch) = self.batches.front() {
            if !platform.has_reached(batch.event)? {
                break;
            }
            let Some(CopiedBatch { event, parts }) = self.batches.pop_front() else { break };
            platform.release_event(event);
            for (from, group) in parts {
                self.groups.note_moved(group);
                if let Some(Some(end)) = self.ends.get_mut(from.place()) {
                    end.copying.pop_front();
                    end.taken_here += 1;
                }
            }
            self.ends.iter_mut().flatten().for_each(DirectEnd::say_taken);
        }
        Ok(())
    }
}

impl DirectEnd {
    /// Sends the handle of this rank's region of so many bytes to another one.
    fn new(other: Rank, socket: LinkSocket, (shared, bytes): (OwnedFd, u64)) -> Result<Self> {
        let frame = DirectFrame::Offer { offset_bytes: 0, bytes }.encode();
        // The socket is empty: so few bytes fit at once.
        if socket.write_with(&frame, std::slice::from_ref(&shared)) != SocketProgress::Bytes(DIRECT_BYTES) {
            return Err(peer_error(other, "is gone"));
        }
        Ok(Self {
            other,
            socket,
            region: None,
            unsent: VecDeque::new(),
            received: Vec::new(),
            offered: VecDeque::new(),
            taken_from_here: 0,
            offers: VecDeque::new(),
            expected: VecDeque::new(),
            copying: VecDeque::new(),
            taken_here: 0,
            taken_said: 0,
        })
    }

    fn say(&mut self, frame: DirectFrame) {
        self.unsent.extend(frame.encode());
    }

    /// Reports how many parts were taken, if that has changed.
    fn say_taken(&mut self) {
        if self.taken_here > self.taken_said {
            self.taken_said = self.taken_here;
            self.say(DirectFrame::Taken { count: self.taken_here });
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.socket.write_waiting(&mut self.unsent);
    }

    /// Maps the other rank's region, if it has arrived.
    fn map(&mut self, sharing: &dyn RegionSharing) -> Result<()> {
        let mut frame = [0; DIRECT_BYTES];
        let (moved, mut descriptors) = self.socket.read_with(&mut frame);
        match moved {
            SocketProgress::Nothing => return Ok(()),
            SocketProgress::End => return Err(peer_error(self.other, "is gone")),
            SocketProgress::Bytes(_) => {}
        }
        let (Ok(DirectFrame::Offer { offset_bytes: 0, bytes }), Some(shared)) =
            (DirectFrame::decode(&frame), descriptors.pop())
        else {
            return Err(self.wrong("its region did not come first"));
        };
        self.region = Some(PeerRegion { mapped: sharing.map(shared, bytes)?, bytes });
        Ok(())
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        let message = format!("rank {} offered something that is wrong: {what}", self.other);
        Error::new(ErrorKind::Protocol, message)
    }

    /// Writes pending bytes, and reads available ones. Returns the groups of parts that the other
    /// rank has taken, one for each.
    fn work(&mut self, sharing: &dyn RegionSharing) -> Result<Vec<u64>> {
        self.flush();
        if self.region.is_none() {
            self.map(sharing)?;
        }
        if self.region.is_none() {
            return Ok(Vec::new());
        }
        let mut piece = [0; READ_BYTES];
        loop {
            match self.socket.read(&mut piece) {
                SocketProgress::Bytes(bytes) => self.received.extend(&piece[..bytes]),
                SocketProgress::Nothing => break,
                SocketProgress::End => return Err(peer_error(self.other, "is gone")),
            }
        }
        let whole = self.received.len() / DIRECT_BYTES * DIRECT_BYTES;
        let mut moved = Vec::new();
        let bytes: Vec<u8> = self.received.drain(..whole).collect();
        for bytes in bytes.chunks_exact(DIRECT_BYTES) {
            self.hear(bytes, &mut moved).map_err(|what| self.wrong(what))?;
        }
        Ok(moved)
    }

    /// # Errors
    ///
    /// Errors of invalid messages.
    fn hear(&mut self, bytes: &[u8], moved: &mut Vec<u64>) -> std::result::Result<(), String> {
        match DirectFrame::decode(bytes)? {
            DirectFrame::Taken { count } => {
                let newly = count
                    .checked_sub(self.taken_from_here)
                    .filter(|newly| *newly <= self.offered.len() as u64);
                let Some(newly) = newly else {
                    return Err(format!(
                        "taken={count}, taken_before={}, offered={}",
                        self.taken_from_here,
                        self.offered.len()
                    ));
                };
                self.taken_from_here = count;
                moved.extend(self.offered.drain(..newly as usize));
            }
            DirectFrame::Offer { offset_bytes, bytes } => {
                let region_bytes = self.region.as_ref().map_or(0, |region| region.bytes);
                let end = offset_bytes.checked_add(bytes).filter(|end| *end <= region_bytes);
                if end.is_none() || self.offers.len() == OFFERS_MAX {
                    return Err(format!(
                        "offset={offset_bytes}, bytes={bytes}, region_bytes={region_bytes}, offers={}",
                        self.offers.len()
                    ));
                }
                self.offers.push_back((offset_bytes, bytes));
            }
        }
        Ok(())
    }

    /// Begins to copy the next part, if it is offered and expected. Returns its group.
    fn begin_copy(&mut self, stream: Stream) -> Result<Option<u64>> {
        let (Some((offset_bytes, bytes)), Some(part), Some(region)) =
            (self.offers.front().copied(), self.expected.front().copied(), &self.region)
        else {
            return Ok(None);
        };
        if bytes != part.bytes {
            return Err(self.wrong(format!("bytes={bytes}, expected={}", part.bytes)));
        }
        if bytes > 0 {
            region.mapped.read(offset_bytes, part.address, bytes, stream)?;
        }
        self.offers.pop_front();
        self.expected.pop_front();
        self.copying.push_back(part.group);
        Ok(Some(part.group))
    }

    /// Whether some part of a group is unfinished.
    fn is_at(&self, group: u64) -> bool {
        let parts = [self.offered.front().copied(), self.copying.front().copied()];
        let expected = self.expected.front().map(|part| part.group);
        parts.into_iter().chain([expected]).flatten().any(|of| of <= group)
    }
}

impl Transfers for DirectTransfers {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn rank_count(&self) -> usize {
        self.ends.len()
    }

    fn stream(&self) -> Stream {
        self.lease.stream()
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        let number = self.groups.next();
        let mut parts_left = 0;
        for SendPart { to, address, bytes } in sends {
            if let Some(Some(end)) = self.ends.get_mut(to.place()) {
                end.say(DirectFrame::Offer { offset_bytes: address - self.region_start, bytes: *bytes });
                end.offered.push_back(number);
                parts_left += 1;
            }
        }
        for ReceivePart { from, address, bytes } in receives {
            if let Some(Some(end)) = self.ends.get_mut(from.place()) {
                end.expected.push_back(GroupPart { group: number, address: *address, bytes: *bytes });
                parts_left += 1;
            }
        }
        let own = copy_own(self.rank, (&self.memory, self.stream()), (sends, receives))?;
        self.groups.begin(parts_left, own);
        self.work().map(drop)
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        self.work()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.ends.iter().flatten().map(|end| end.socket.descriptor()).collect()
    }

    fn missing_in_group(&self) -> Vec<Rank> {
        let oldest = self.groups.oldest();
        let is_at = |end: &&DirectEnd| oldest.is_some_and(|number| end.is_at(number));
        self.ends.iter().flatten().filter(is_at).map(|end| end.other).collect()
    }
}

impl Drop for DirectTransfers {
    fn drop(&mut self) {
        let platform = self.memory.platform();
        // Regions of others are read until then.
        if let Err(error) = platform.wait(self.lease.stream()) {
            tracing::error!("{error}");
            // The device is lost, and the process with it.
            std::mem::forget(std::mem::take(&mut self.ends));
            return;
        }
        self.batches.drain(..).for_each(|batch| platform.release_event(batch.event));
        self.groups.release_events(&self.memory);
    }
}
