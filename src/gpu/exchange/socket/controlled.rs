//! A network that moves parts by its own means, whose ranks tell one another by sockets.

use std::os::fd::BorrowedFd;

use pystachio_plan::{Error, Result};

use super::gather::ControlLinks;
use crate::{
    device::Stream,
    exchange::{Awaited, Communicator, Rank, ReceivePart, SendPart},
};

/// A communicator of which only groups are used, and control sockets for what is told.
///
/// Ranks of one host tell each other sooner so than by their devices, whatever these move meanwhile; each hears at once that another one tells
/// something, or that its process has ended.
pub struct ControlledCommunicator<C> {
    control: ControlLinks,
    inner: C,
    groups_begun: u64,
}

impl<C: Communicator> ControlledCommunicator<C> {
    /// # Panics
    ///
    /// If both are not of the same rank among as many.
    pub fn new(control: ControlLinks, inner: C) -> Self {
        let place = (inner.rank(), inner.rank_count());
        assert_eq!((control.rank(), control.rank_count()), place, "control and data of one rank");
        Self { control, inner, groups_begun: 0 }
    }
}

impl<C: Communicator> Communicator for ControlledCommunicator<C> {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn rank_count(&self) -> usize {
        self.inner.rank_count()
    }

    fn stream(&self) -> Stream {
        self.inner.stream()
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
        self.inner.begin_transfers(sends, receives).map_err(|error| self.control.reason_of(error))
    }

    fn poll_transfers(&mut self) -> Result<u64> {
        let over = self.inner.poll_transfers().map_err(|error| self.control.reason_of(error))?;
        // A device waits for a rank that is gone without a word.
        if over < self.groups_begun {
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
        match awaited {
            Awaited::Gather => self.control.missing(),
            Awaited::Transfers => self.inner.missing_ranks(awaited),
        }
    }

    fn abort(&mut self, reason: &Error) {
        self.control.say_farewell(reason);
        self.inner.abort(reason);
    }
}
