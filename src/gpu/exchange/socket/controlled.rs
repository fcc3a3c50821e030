//! A rank's end of a network: control sockets, and a [`Transfers`] for parts.

use std::os::fd::BorrowedFd;

use pystachio_plan::{Error, Result};

use super::{
    gather::ControlLinks,
    link::{LinkSocket, RankLink},
};
use crate::{
    device::Stream,
    exchange::{Communicator, Rank, ReceivePart, SendPart, Transfers},
};

/// A rank with a link to each other one, over which ranks exchange control messages; parts move by
/// `T`.
///
/// Control messages are faster so than by devices, whatever these move meanwhile; each rank learns
/// at once that another one has sent a message, or that its process has ended.
pub struct ControlledCommunicator<T> {
    /// Dropped first: when another rank sees that this one is gone, its device no longer reads
    /// memory of others.
    transfers: T,
    control: ControlLinks,
    groups_begun: u64,
    groups_over: u64,
}

impl<T: Transfers> ControlledCommunicator<T> {
    /// The end of a rank with a link to each other one. `connect` makes the transfers, and may use
    /// the data sockets, by rank.
    ///
    /// # Errors
    ///
    /// Errors of `connect`.
    ///
    /// # Panics
    ///
    /// If there is a link to the rank itself, or none to another one.
    pub fn connect(
        rank: Rank,
        links: Vec<Option<RankLink>>,
        connect: impl FnOnce(Vec<Option<LinkSocket>>) -> Result<T>,
    ) -> Result<Self> {
        let (control, data) =
            links.into_iter().map(|link| link.map(|link| (link.control, link.data)).unzip()).unzip();
        let control = ControlLinks::new(rank, control);
        Ok(Self { transfers: connect(data)?, control, groups_begun: 0, groups_over: 0 })
    }
}

impl<T: Transfers> Transfers for ControlledCommunicator<T> {
    fn rank(&self) -> Rank {
        self.control.rank()
    }

    fn rank_count(&self) -> usize {
        self.control.rank_count()
    }

    fn stream(&self) -> Stream {
        self.transfers.stream()
    }

    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()> {
        self.groups_begun += 1;
        self.transfers.begin_transfers(sends, receives).map_err(|error| self.control.reason_of(error))
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        let is_moving = self.groups_over < self.groups_begun;
        self.groups_over = self.transfers.poll_transfers().map_err(|error| self.control.reason_of(error))?;
        // A device waits for a rank that is gone without a message, and bytes read from one that
        // has left are not valid.
        if is_moving {
            self.control.work();
            self.control.check_gone()?;
        }
        Ok(self.groups_over)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [self.control.descriptors(), self.transfers.descriptors()].concat()
    }

    fn missing_in_group(&self) -> Vec<Rank> {
        self.transfers.missing_in_group()
    }

    fn abort(&mut self, reason: &Error) {
        self.control.send_close(reason);
        self.transfers.abort(reason);
    }
}

impl<T: Transfers> Communicator for ControlledCommunicator<T> {
    fn begin_gather(&mut self, block: &[u8]) -> Result<()> {
        self.control.begin(block);
        Ok(())
    }

    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        self.control.poll()
    }

    fn is_awaited(&mut self) -> bool {
        self.control.is_awaited()
    }

    fn missing_in_gather(&self) -> Vec<Rank> {
        self.control.missing()
    }
}
