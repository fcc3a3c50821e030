//! Groups of transfers of one rank, until all of their parts have moved.

use std::collections::VecDeque;

use pystachio_plan::Result;

use crate::{
    device::{DeviceMemory, Event, Stream},
    exchange::{Rank, ReceivePart, SendPart},
};

/// A part, and its group: groups are numbered on this rank alone, since a rank with nothing to move
/// begins none.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupPart {
    pub(super) group: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// Groups in the order of their beginning, in which they end.
#[derive(Default)]
pub(super) struct PartGroups {
    on_way: VecDeque<PartGroup>,
    begun: u64,
    over: u64,
}

/// A running group.
struct PartGroup {
    number: u64,
    /// Parts from and to other ranks that have not moved.
    parts_left: usize,
    /// The event of its parts to this rank itself.
    own: Option<Event>,
}

impl PartGroups {
    /// The number of the next group.
    pub(super) fn next(&self) -> u64 {
        self.begun + 1
    }

    /// Begins a group of so many parts from and to other ranks; `own` is the event of parts to this
    /// rank itself.
    pub(super) fn begin(&mut self, parts_left: usize, own: Option<Event>) {
        self.begun += 1;
        self.on_way.push_back(PartGroup { number: self.begun, parts_left, own });
    }

    /// Records that a part of a group has moved.
    pub(super) fn note_moved(&mut self, number: u64) {
        if let Some(group) = self.on_way.iter_mut().find(|group| group.number == number) {
            group.parts_left -= 1;
        }
    }

    /// Polls which groups have ended. Returns how many have since the first one.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn settle(&mut self, memory: &DeviceMemory) -> Result<u64> {
        let platform = memory.platform();
        while let Some(group) = self.on_way.front_mut() {
            if let Some(event) = group.own
                && platform.has_reached(event)?
            {
                platform.release_event(event);
                group.own = None;
            }
            if group.own.is_some() || group.parts_left > 0 {
                break;
            }
            self.over = group.number;
            self.on_way.pop_front();
        }
        Ok(self.over)
    }

    /// The oldest running group.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.on_way.front().map(|group| group.number)
    }

    /// Drops events that are no longer polled.
    pub(super) fn release_events(&mut self, memory: &DeviceMemory) {
        let own = self.on_way.drain(..).filter_map(|group| group.own);
        own.for_each(|event| memory.platform().release_event(event));
    }
}

/// Begins to copy the parts from a rank to itself. Returns the event of their end; `None` if there
/// are none.
///
/// # Errors
///
/// Faults of the device.
///
/// # Panics
///
/// If it receives other parts from itself than it sends.
pub(super) fn copy_own(
    rank: Rank,
    (memory, stream): (&DeviceMemory, Stream),
    (sends, receives): (&[SendPart], &[ReceivePart]),
) -> Result<Option<Event>> {
    let sent: Vec<&SendPart> = sends.iter().filter(|part| part.to == rank).collect();
    let received: Vec<&ReceivePart> = receives.iter().filter(|part| part.from == rank).collect();
    let are_equal = sent.len() == received.len()
        && sent.iter().zip(&received).all(|(sent, received)| sent.bytes == received.bytes);
    assert!(are_equal, "a rank receives from itself what it sends to itself");
    for (sent, received) in sent.iter().zip(&received) {
        memory.copy(sent.address, received.address, sent.bytes, stream)?;
    }
    match sent.is_empty() {
        true => Ok(None),
        false => memory.platform().record_event(stream).map(Some),
    }
}
