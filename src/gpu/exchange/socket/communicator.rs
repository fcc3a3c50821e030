//! A rank's end of all links.

use std::collections::VecDeque;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    control::ControlEnd,
    data::{DataEnd, GroupPart, PartDevice},
    frame::ControlFrame,
    link::RankLink,
};
use crate::{
    device::{DeviceMemory, Event, Stream, StreamLease, StreamPriority},
    exchange::{Awaited, Communicator, ExchangeRegion, Rank, ReceivePart, SendPart},
};

/// A rank's end of a network of sockets.
pub struct SocketCommunicator {
    rank: Rank,
    memory: DeviceMemory,
    lease: StreamLease,
    /// By rank; none at its own place.
    links: Vec<Option<Link>>,
    /// Gathers that it has begun.
    gather_count: u64,
    /// What it tells in the gather that is on its way.
    told: Option<Vec<u8>>,
    /// What others have told in it, by rank.
    heard: Vec<Option<Vec<u8>>>,
    groups: VecDeque<PartGroup>,
    groups_begun: u64,
    groups_over: u64,
}

/// What connects it to another rank.
struct Link {
    control: ControlEnd,
    data: DataEnd,
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
        let open = |(number, link): (u16, Option<RankLink>)| {
            assert_eq!(link.is_none(), number == rank.0, "a link to each other rank");
            let other = Rank(number);
            let open = |link: RankLink| -> Result<Link> {
                let control = ControlEnd::new(other, link.control);
                Ok(Link { control, data: DataEnd::new(other, link.data, &memory)? })
            };
            link.map(open).transpose()
        };
        let links = (0..).zip(links).map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            rank,
            heard: links.iter().map(|_| None).collect(),
            links,
            memory,
            lease,
            gather_count: 0,
            told: None,
            groups: VecDeque::new(),
            groups_begun: 0,
            groups_over: 0,
        })
    }

    fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.links.len() as u16).map(Rank)
    }

    /// # Errors
    ///
    /// Why another rank takes part no more.
    fn check_gone(&self) -> Result<()> {
        let gone = self.links.iter().flatten().find_map(|link| link.control.gone());
        gone.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Sends and reads what there is of what ranks tell each other.
    fn work_on_control(&mut self) {
        let number = self.gather_count;
        let is_gathering = self.told.is_some();
        for (link, heard) in self.links.iter_mut().zip(&mut self.heard) {
            let Some(link) = link else { continue };
            link.control.work();
            if is_gathering && heard.is_none() && link.control.has_heard(number) {
                *heard = link.control.take_heard();
            }
        }
    }

    fn work_on_groups(&mut self) -> Result<()> {
        let device = PartDevice { memory: &self.memory, stream: self.lease.stream() };
        for link in self.links.iter_mut().flatten() {
            for number in link.data.work(&device)? {
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
        let sent: Vec<&SendPart> = sends.iter().filter(|part| part.to == self.rank).collect();
        let received: Vec<&ReceivePart> = receives.iter().filter(|part| part.from == self.rank).collect();
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
        self.rank
    }

    fn rank_count(&self) -> usize {
        self.links.len()
    }

    fn stream(&self) -> Stream {
        self.lease.stream()
    }

    fn begin_gather(&mut self, block: &[u8]) -> Result<()> {
        assert!(self.told.is_none(), "two gathers at once");
        self.gather_count += 1;
        self.told = Some(block.to_vec());
        let frame = ControlFrame::Gather { number: self.gather_count, block: block.to_vec() };
        self.links.iter_mut().flatten().for_each(|link| link.control.tell(&frame));
        Ok(())
    }

    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        self.work_on_control();
        let missing = self.heard.iter().filter(|heard| heard.is_none()).count();
        // Its own place is always empty.
        if missing > 1 {
            return self.check_gone().map(|()| None);
        }
        let own = self.told.take();
        let heard: Vec<Option<Vec<u8>>> = self.heard.iter_mut().map(Option::take).collect();
        let told = heard.into_iter().map(|block| block.or_else(|| own.clone())).collect();
        Ok(told)
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        self.groups_begun += 1;
        let number = self.groups_begun;
        let mut parts_left = 0;
        for SendPart { to, address, bytes } in sends {
            if let Some(Some(link)) = self.links.get_mut(to.place()) {
                link.data.send(GroupPart { group: number, address: *address, bytes: *bytes });
                parts_left += 1;
            }
        }
        for ReceivePart { from, address, bytes } in receives {
            if let Some(Some(link)) = self.links.get_mut(from.place()) {
                link.data.expect(GroupPart { group: number, address: *address, bytes: *bytes });
                parts_left += 1;
            }
        }
        let own = self.copy_own(sends, receives)?;
        self.groups.push_back(PartGroup { number, parts_left, own });
        self.work_on_groups().or_else(|error| self.reason_of(error))
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        self.work_on_groups().or_else(|error| self.reason_of(error))?;
        if !self.groups.is_empty() {
            self.work_on_control();
            self.check_gone()?;
        }
        Ok(self.groups_over)
    }

    fn is_awaited(&mut self) -> bool {
        self.work_on_control();
        let has_begun = |link: &Link| {
            // Who is gone is found in the gather.
            link.control.heard_number() > self.gather_count || link.control.gone().is_some()
        };
        self.links.iter().flatten().any(has_begun)
    }

    fn missing_ranks(&mut self, awaited: Awaited) -> Vec<Rank> {
        let oldest = self.groups.front().map(|group| group.number);
        let is_missing = |rank: &Rank| {
            let Some(Some(link)) = self.links.get(rank.place()) else { return false };
            match awaited {
                Awaited::Gather => self.heard.get(rank.place()).is_some_and(Option::is_none),
                Awaited::Transfers => oldest.is_some_and(|number| link.data.is_at(number)),
            }
        };
        self.ranks().filter(is_missing).collect()
    }

    fn abort(&mut self, reason: &Error) {
        let reason = match reason.kind {
            ErrorKind::Peer => ControlFrame::FarewellOfOther { reason: reason.message.clone() },
            _ => ControlFrame::Farewell { reason: format!("has given up: {reason}") },
        };
        self.links.iter_mut().flatten().for_each(|link| link.control.tell(&reason));
    }
}

impl SocketCommunicator {
    /// What a data socket failed with; if it ended, what the other rank has said of that.
    fn reason_of<T>(&mut self, error: Error) -> Result<T> {
        if error.kind == ErrorKind::Peer {
            self.work_on_control();
            self.check_gone()?;
        }
        Err(error)
    }
}

impl Drop for SocketCommunicator {
    fn drop(&mut self) {
        let platform = self.memory.platform();
        // The device may be reading and writing pieces.
        if let Err(error) = platform.wait(self.lease.stream()) {
            tracing::error!("{error}");
            // The device is lost, and the process with it: nobody is to have the memory.
            std::mem::forget(std::mem::take(&mut self.links));
            return;
        }
        self.links.iter().flatten().for_each(|link| link.data.release_events(&self.memory));
        self.groups.drain(..).filter_map(|group| group.own).for_each(|event| platform.release_event(event));
    }
}
