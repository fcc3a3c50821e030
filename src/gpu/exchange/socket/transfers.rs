//! Parts over data sockets.

use pystachio_plan::Result;

use super::{
    data::{DataEnd, PartDevice},
    groups::{GroupPart, PartGroups, copy_own},
    link::LinkSocket,
};
use crate::{
    device::{DeviceMemory, Stream, StreamLease, StreamPriority},
    exchange::{ExchangeRegion, Rank, ReceivePart, SendPart, Transfers},
};

/// A rank's end of a network of sockets.
pub struct SocketTransfers {
    rank: Rank,
    memory: DeviceMemory,
    lease: StreamLease,
    /// By rank; none at its own place.
    data: Vec<Option<DataEnd>>,
    groups: PartGroups,
}

impl SocketTransfers {
    /// The end of a rank that has a data socket to each other one, which moves parts of a region.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the host has no page-locked memory for it, and faults of the device.
    pub fn new(rank: Rank, sockets: Vec<Option<LinkSocket>>, region: &ExchangeRegion) -> Result<Self> {
        let memory = region.memory().clone();
        let lease = memory.lease_stream(StreamPriority::High)?;
        let open = |(number, socket): (u16, Option<LinkSocket>)| {
            socket.map(|socket| DataEnd::new(Rank(number), socket, &memory)).transpose()
        };
        let data = (0..).zip(sockets).map(open).collect::<Result<_>>()?;
        Ok(Self { rank, memory, lease, data, groups: PartGroups::default() })
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

impl Transfers for SocketTransfers {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn rank_count(&self) -> usize {
        self.data.len()
    }

    fn stream(&self) -> Stream {
        self.lease.stream()
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
        let own = copy_own(self.rank, (&self.memory, self.stream()), (sends, receives))?;
        self.groups.begin(parts_left, own);
        self.work_on_groups().map(drop)
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        self.work_on_groups()
    }

    fn missing_in_group(&self) -> Vec<Rank> {
        let oldest = self.groups.oldest();
        let is_at = |data: &DataEnd| oldest.is_some_and(|number| data.is_at(number));
        let ranks = (0..).map(Rank).zip(&self.data);
        ranks.filter(|(_, data)| data.as_ref().is_some_and(is_at)).map(|(rank, _)| rank).collect()
    }
}

impl Drop for SocketTransfers {
    fn drop(&mut self) {
        let platform = self.memory.platform();
        // The device may be reading and writing pieces.
        if let Err(error) = platform.wait(self.lease.stream()) {
            tracing::error!("{error}");
            // The device is lost, and the process with it: the memory must not be reused.
            std::mem::forget(std::mem::take(&mut self.data));
            return;
        }
        self.data.iter().flatten().for_each(|data| data.release_events(&self.memory));
        self.groups.release_events(&self.memory);
    }
}
