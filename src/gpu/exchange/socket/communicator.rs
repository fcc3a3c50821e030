//! A rank's end of all links.

use std::{collections::VecDeque, os::fd::BorrowedFd};

use pystachio_plan::{Error, Result};

use super::{
    data::{DataEnd, GroupPart, PartDevice},
    gather::ControlLinks,
    link::RankLink,
};
use crate::{
    device::{DeviceMemory, Event, Stream, StreamLease, StreamPriority},
    exchange::{Awaited, Communicator, ExchangeRegion, Rank, ReceivePart, SendPart},
};

/// A rank's end of a network of sockets.
pub struct SocketCommunicator {
    memory: DeviceMemory,
    lease: StreamLease,
    control: ControlLinks,
    /// For parts, by rank; none at its own place.
    data: Vec<Option<DataEnd>>,
    groups: VecDeque<PartGroup>,
    groups_begun: u64,
    groups_over: u64,
}

/// A group that is on its way.
struct PartGroup {
    number: u64,
    /// Parts from and to other ranks that have not moved.
    parts_left: usize,
    /// When what it sends to itself is there.
    own: Option<Event>,
}

impl SocketCommunicator {
    /// The end of a rank that has a link to each other one, which moves what is in a region.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the host has no page-locked memory for it, and faults of the device.
    ///
    /// # Panics
    ///
    /// If there is a link to the rank itself, or none to another one.
    pub fn new(rank: Rank, links: Vec<Option<RankLink>>, region: &ExchangeRegion) -> Result<Self> {
        let memory = region.memory().clone();
        let lease = memory.lease_stream(StreamPriority::High)?;
        let (mut control, mut data) = (Vec::with_capacity(links.len()), Vec::with_capacity(links.len()));
        for (number, link) in (0..).zip(links) {
            let (of_control, of_data) = link.map(|link| (link.control, link.data)).unzip();
            control.push(of_control);
            data.push(of_data.map(|socket| DataEnd::new(Rank(number), socket, &memory)).transpose()?);
        }
        let control = ControlLinks::new(rank, control);
        let groups = VecDeque::new();
        Ok(Self { memory, lease, control, data, groups, groups_begun: 0, groups_over: 0 })
    }

    fn work_on_groups(&mut self) -> Result<()> {
        let device = PartDevice { memory: &self.memory, stream: self.lease.stream() };
        for data in self.data.iter_mut().flatten() {
            for number in data.work(&device)? {
                if let Some(group) = self.groups.iter_mut().find(|group| group.number == number) {
                    group.parts_left -= 1;
                }
            }
        }
        let platform = self.memory.platform();
        while let Some(group) = self.groups.front_mut() {
            if let Some(event) = group.own
                && platform.has_reached(event)?
            {
                platform.release_event(event);
                group.own = None;
            }
            if group.own.is_some() || group.parts_left > 0 {
                break;
            }
            self.groups_over = group.number;
            self.groups.pop_front();
        }
        Ok(())
    }

    /// Begins to copy what goes to this rank itself.
    fn copy_own(&self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<Option<Event>> {
        let rank = self.rank();
        let sent: Vec<&SendPart> = sends.iter().filter(|part| part.to == rank).collect();
        let received: Vec<&ReceivePart> = receives.iter().filter(|part| part.from == rank).collect();
        let are_equal = sent.len() == received.len()
            && sent.iter().zip(&received).all(|(sent, received)| sent.bytes == received.bytes);
        assert!(are_equal, "a rank receives from itself what it sends to itself");
        for (sent, received) in sent.iter().zip(&received) {
            self.memory.copy(sent.address, received.address, sent.bytes, self.stream())?;
        }
        match sent.is_empty() {
            true => Ok(None),
            false => self.memory.platform().record_event(self.stream()).map(Some),
        }
    }
}

impl Communicator for SocketCommunicator {
    fn rank(&self) -> Rank {
        self.control.rank()
    }

    fn rank_count(&self) -> usize {
        self.control.rank_count()
    }

    fn stream(&self) -> Stream {
        self.lease.stream()
    }

    fn begin_gather(&mut self, block: &[u8]) -> Result<()> {
        self.control.begin(block);
        Ok(())
    }

    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        self.control.poll()
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        self.groups_begun += 1;
        let number = self.groups_begun;
        let mut parts_left = 0;
        for SendPart { to, address, bytes } in sends {
            if let Some(Some(data)) = self.data.get_mut(to.place()) {
                data.send(GroupPart { group: number, address: *address, bytes: *bytes });
                parts_left += 1;
            }
        }
        for ReceivePart { from, address, bytes } in receives {
            if let Some(Some(data)) = self.data.get_mut(from.place()) {
                data.expect(GroupPart { group: number, address: *address, bytes: *bytes });
                parts_left += 1;
            }
        }
        let own = self.copy_own(sends, receives)?;
        self.groups.push_back(PartGroup { number, parts_left, own });
        self.work_on_groups().map_err(|error| self.control.reason_of(error))
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        self.work_on_groups().map_err(|error| self.control.reason_of(error))?;
        if !self.groups.is_empty() {
            self.control.work();
            self.control.check_gone()?;
        }
        Ok(self.groups_over)
    }

    fn is_awaited(&mut self) -> bool {
        self.control.is_awaited()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.control.descriptors()
    }

    fn missing_ranks(&mut self, awaited: Awaited) -> Vec<Rank> {
        let oldest = self.groups.front().map(|group| group.number);
        let is_at = |data: &DataEnd| oldest.is_some_and(|number| data.is_at(number));
        match awaited {
            Awaited::Gather => self.control.missing(),
            Awaited::Transfers => {
                let ranks = (0..).map(Rank).zip(&self.data);
                ranks.filter(|(_, data)| data.as_ref().is_some_and(is_at)).map(|(rank, _)| rank).collect()
            }
        }
    }

    fn abort(&mut self, reason: &Error) {
        self.control.say_farewell(reason);
    }
}

impl Drop for SocketCommunicator {
    fn drop(&mut self) {
        let platform = self.memory.platform();
        // The device may be reading and writing pieces.
        if let Err(error) = platform.wait(self.lease.stream()) {
            tracing::error!("{error}");
            // The device is lost, and the process with it: nobody is to have the memory.
            std::mem::forget(std::mem::take(&mut self.data));
            return;
        }
        self.data.iter().flatten().for_each(|data| data.release_events(&self.memory));
        self.groups.drain(..).filter_map(|group| group.own).for_each(|event| platform.release_event(event));
    }
}
