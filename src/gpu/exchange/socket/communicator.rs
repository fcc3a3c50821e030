//! A rank's end of all links.

use std::os::fd::BorrowedFd;

use pystachio_plan::{Error, Result};

use super::{
    data::{DataEnd, PartDevice},
    gather::ControlLinks,
    groups::{GroupPart, PartGroups, copy_own},
    link::RankLink,
};
use crate::{
    device::{DeviceMemory, Stream, StreamLease, StreamPriority},
    exchange::{Awaited, Communicator, ExchangeRegion, Rank, ReceivePart, SendPart},
};

/// A rank's end of a network of sockets.
pub struct SocketCommunicator {
    memory: DeviceMemory,
    lease: StreamLease,
    control: ControlLinks,
    /// For parts, by rank; none at its own place.
    data: Vec<Option<DataEnd>>,
    groups: PartGroups,
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
        Ok(Self { memory, lease, control, data, groups: PartGroups::default() })
    }

    fn work_on_groups(&mut self) -> Result<u64> {
        let device = PartDevice { memory: &self.memory, stream: self.lease.stream() };
        for data in self.data.iter_mut().flatten() {
            for number in data.work(&device)? {
                self.groups.note_moved(number);
            }
        }
        self.groups.settle(&self.memory)
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
        let number = self.groups.next();
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
        let own = copy_own(self.rank(), (&self.memory, self.stream()), (sends, receives))?;
        self.groups.begin(parts_left, own);
        self.work_on_groups().map(drop).map_err(|error| self.control.reason_of(error))
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        let over = self.work_on_groups().map_err(|error| self.control.reason_of(error))?;
        if self.groups.are_on_way() {
            self.control.work();
            self.control.check_gone()?;
        }
        Ok(over)
    }

    fn is_awaited(&mut self) -> bool {
        self.control.is_awaited()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.control.descriptors()
    }

    fn missing_ranks(&mut self, awaited: Awaited) -> Vec<Rank> {
        let oldest = self.groups.oldest();
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
        self.groups.release_events(&self.memory);
    }
}
