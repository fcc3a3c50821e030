//! Groups of transfers of one rank, until all of their parts have moved.

use std::collections::VecDeque;

use pystachio_plan::Result;

use crate::{
    device::{DeviceMemory, Event, Stream},
    exchange::{Rank, ReceivePart, SendPart},
};

/// A part, and the group that it belongs to: groups are numbered on this rank alone, since a rank that has nothing to move begins none.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupPart {
    pub(super) group: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// Groups in the order in which they were begun, in which they end.
#[derive(Default)]
pub(super) struct PartGroups {
    on_way: VecDeque<PartGroup>,
    begun: u64,
    over: u64,
}

/// A group that is on its way.
struct PartGroup {
    number: u64,
    /// Parts from and to other ranks that have not moved.
    parts_left: usize,
    /// When what it sends to itself is there.
    own: Option<Event>,
}

impl PartGroups {
    /// The number of the group that is begun next.
    pub(super) fn next(&self) -> u64 {
        self.begun + 1
    }

    /// Begins a group of so many parts from and to other ranks; `own` is when what goes to this rank itself is there.
    pub(super) fn begin(&mut self, parts_left: usize, own: Option<Event>) {
        self.begun += 1;
        self.on_way.push_back(PartGroup { number: self.begun, parts_left, own });
    }

    /// Says that a part of a group has moved.
    pub(super) fn note_moved(&mut self, number: u64) {
        if let Some(group) = self.on_way.iter_mut().find(|group| group.number == number) {
            group.parts_left -= 1;
        }
    }

    /// Looks which groups are over. Says how many are since the first one.
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

    /// The oldest group that is not over.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.on_way.front().map(|group| group.number)
    }

    /// Lets go of events, where nothing is looked at any more.
    pub(super) fn release_events(&mut self, memory: &DeviceMemory) {
        let own = self.on_way.drain(..).filter_map(|group| group.own);
        own.for_each(|event| memory.platform().release_event(event));
    }
}

/// Begins to copy what goes from a rank to itself. Returns when it is there; nothing if there is none.
///
/// # Errors
///
/// Faults of the device.
///
/// # Panics
///
/// If it receives something else from itself than it sends.
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
