//! What every rank tells all others at the beginning of a round, over NCCL.
//!
//! ```text
//! page-locked ┌ own block ┐ ── ncclSend to each ──►  … ── ncclRecv from each ──► ┌ rank 0's ┬ rank 1's ┬ … ┐ page-locked
//! slot        │ number │ reserved │ block │
//! ```
//!
//! As sends and receives and not as `ncclAllGather`: the number in a slot says whether that rank's block has come, though another one's
//! has not.
//!
//! Invariants: a slot is written by the host or the device, never by both at once.
#![expect(unsafe_code, reason = "page-locked memory, which the device writes")]

use std::{ptr, slice, sync::Arc};

use pystachio_gpu::{
    device::{Event, Platform, StreamLease},
    exchange::{Rank, ReceivePart, SendPart},
};
use pystachio_plan::{Error, Result};

use super::connection::{Connection, Membership};
use crate::platform::CudaPlatform;

/// Bytes of a slot before the block.
const SLOT_HEAD_BYTES: usize = 16;
/// Slots begin at multiples of this: what one thread block of NCCL's copies at once.
const SLOT_ALIGNMENT: usize = 128;

/// Gathers of one rank.
pub(super) struct NcclGather {
    connection: Option<Connection>,
    membership: Membership,
    platform: Arc<CudaPlatform>,
    lease: StreamLease,
    slots: Option<Slots>,
    /// Gathers that were begun.
    number: u64,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    /// None is on its way.
    Idle,
    /// NCCL enqueues it.
    Enqueuing,
    /// It is over when the event is reached.
    Running(Event),
}

/// Page-locked memory: a slot for every rank, and one of this rank's own to send from.
struct Slots {
    address: u64,
    block_bytes: usize,
    slot_bytes: usize,
    count: usize,
}

impl Slots {
    fn new(platform: &CudaPlatform, block_bytes: usize, rank_count: usize) -> Result<Self> {
        let slot_bytes = (SLOT_HEAD_BYTES + block_bytes).next_multiple_of(SLOT_ALIGNMENT);
        let count = rank_count + 1;
        let address = platform.allocate_host(slot_bytes * count)?;
        let slots = Self { address, block_bytes, slot_bytes, count };
        // SAFETY: memory of ours of that size, which nobody else has yet.
        unsafe { ptr::write_bytes(address as *mut u8, 0, slot_bytes * count) };
        Ok(slots)
    }

    fn slot(&self, place: usize) -> u64 {
        assert!(place < self.count, "a slot of a gather");
        self.address + (place * self.slot_bytes) as u64
    }

    /// The slot to send from.
    fn own(&self) -> usize {
        self.count - 1
    }

    fn bytes(&self) -> u64 {
        (SLOT_HEAD_BYTES + self.block_bytes) as u64
    }

    fn write(&self, place: usize, number: u64, block: &[u8]) {
        let slot = self.slot(place) as *mut u8;
        // SAFETY: the slot has as many bytes, and no gather is on its way.
        unsafe {
            slot.cast::<u64>().write_volatile(number);
            ptr::copy_nonoverlapping(block.as_ptr(), slot.add(SLOT_HEAD_BYTES), block.len());
        }
    }

    /// The number in a slot, which the device may be about to write.
    fn number(&self, place: usize) -> u64 {
        // SAFETY: the slot begins with a number at a multiple of 8.
        unsafe { (self.slot(place) as *const u64).read_volatile() }
    }

    fn block(&self, place: usize) -> Vec<u8> {
        let block = (self.slot(place) as *const u8).wrapping_add(SLOT_HEAD_BYTES);
        // SAFETY: the slot has as many bytes, and the gather that wrote them is over.
        unsafe { slice::from_raw_parts(block, self.block_bytes) }.to_vec()
    }
}

impl NcclGather {
    /// Gathers over a connection that nothing else uses.
    pub(super) fn new(
        connection: Connection,
        membership: Membership,
        platform: Arc<CudaPlatform>,
        lease: StreamLease,
    ) -> Self {
        let connection = Some(connection);
        Self { connection, membership, platform, lease, slots: None, number: 0, phase: Phase::Idle }
    }

    /// Begins the next one. The device's context is current.
    pub(super) fn begin(&mut self, block: &[u8]) -> Result<()> {
        assert!(matches!(self.phase, Phase::Idle), "two gathers at once");
        let Membership { rank, rank_count } = self.membership;
        if self.slots.as_ref().is_none_or(|slots| slots.block_bytes != block.len()) {
            self.release_slots();
            self.slots = Some(Slots::new(&self.platform, block.len(), rank_count)?);
        }
        let (Some(slots), Some(connection)) = (&self.slots, &self.connection) else { return Err(aborted()) };
        self.number += 1;
        slots.write(slots.own(), self.number, block);
        slots.write(rank.place(), self.number, block);
        let others = (0..rank_count).filter(|place| *place != rank.place());
        let (sends, receives): (Vec<SendPart>, Vec<ReceivePart>) = others
            .map(|place| {
                let other = Rank(place as u16);
                let send = SendPart { to: other, address: slots.slot(slots.own()), bytes: slots.bytes() };
                (send, ReceivePart { from: other, address: slots.slot(place), bytes: slots.bytes() })
            })
            .unzip();
        if !sends.is_empty() {
            connection.begin_group(&sends, &receives, self.lease.stream())?;
        }
        self.phase = Phase::Enqueuing;
        Ok(())
    }

    /// What all ranks told, if they have; does not wait.
    pub(super) fn poll(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let (Some(slots), Some(connection)) = (&self.slots, &self.connection) else { return Err(aborted()) };
        if matches!(self.phase, Phase::Enqueuing) && connection.is_ready()? {
            self.phase = Phase::Running(self.platform.record_event(self.lease.stream())?);
        }
        let Phase::Running(event) = self.phase else { return Ok(None) };
        if !self.platform.has_reached(event)? {
            return Ok(None);
        }
        self.platform.release_event(event);
        self.phase = Phase::Idle;
        let ranks = 0..self.membership.rank_count;
        if let Some(place) = ranks.clone().find(|place| slots.number(*place) != self.number) {
            let (found, expected) = (slots.number(place), self.number);
            let message = format!("rank {place} told of round {found} where {expected} was expected");
            return Err(Error::internal(message));
        }
        Ok(Some(ranks.map(|place| slots.block(place)).collect()))
    }

    /// Ranks whose block of the gather that is on its way has not come.
    pub(super) fn missing(&self) -> Vec<Rank> {
        let Some(slots) = self.slots.as_ref().filter(|_| !matches!(self.phase, Phase::Idle)) else {
            return Vec::new();
        };
        let ranks = (0..self.membership.rank_count).filter(|place| slots.number(*place) != self.number);
        ranks.map(|place| Rank(place as u16)).collect()
    }

    /// The connection, for whoever ends it.
    pub(super) fn take_connection(&mut self) -> Option<Connection> {
        self.connection.take()
    }

    /// Lets go of what the device may use still: its memory and stream are nobody's from now on.
    pub(super) fn forget(mut self) {
        self.slots = None;
        std::mem::forget(self.lease);
    }

    /// Gives memory back. The device does not use it any more.
    pub(super) fn close(mut self) {
        if let Phase::Running(event) = self.phase {
            self.platform.release_event(event);
        }
        self.release_slots();
    }

    fn release_slots(&mut self) {
        if let Some(slots) = self.slots.take() {
            self.platform.release_host(slots.address, slots.slot_bytes * slots.count);
        }
    }
}

/// What a communicator says that was given up.
pub(super) fn aborted() -> Error {
    Error::internal("a communicator that was given up")
}
