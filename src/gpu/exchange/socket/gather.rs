//! Gathers and closing messages over control sockets.

use std::os::fd::BorrowedFd;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{control::ControlEnd, frame::ControlFrame, link::LinkSocket};
use crate::exchange::Rank;

/// A rank's end of the control sockets to all others.
///
/// # Ordering
///
/// The n-th gather of one rank is the n-th of every other.
pub(super) struct ControlLinks {
    rank: Rank,
    /// By rank; none at its own place.
    ends: Vec<Option<ControlEnd>>,
    /// Gathers that it has begun.
    gather_count: u64,
    /// Its block in the running gather.
    told: Option<Vec<u8>>,
    /// The blocks of others in it, by rank.
    heard: Vec<Option<Vec<u8>>>,
}

impl ControlLinks {
    /// The end of a rank that has a socket to each other one.
    ///
    /// # Panics
    ///
    /// If there is a socket to the rank itself, or none to another one.
    pub(super) fn new(rank: Rank, sockets: Vec<Option<LinkSocket>>) -> Self {
        let open = |(number, socket): (u16, Option<LinkSocket>)| {
            assert_eq!(socket.is_none(), number == rank.0, "a socket to each other rank");
            socket.map(|socket| ControlEnd::new(Rank(number), socket))
        };
        let ends: Vec<Option<ControlEnd>> = (0..).zip(sockets).map(open).collect();
        Self { rank, heard: ends.iter().map(|_| None).collect(), ends, gather_count: 0, told: None }
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn rank_count(&self) -> usize {
        self.ends.len()
    }

    /// Descriptors that become readable when another rank has sent a message.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.ends.iter().flatten().filter_map(ControlEnd::descriptor).collect()
    }

    /// Writes pending bytes, and reads available ones.
    pub(super) fn work(&mut self) {
        let number = self.gather_count;
        let is_gathering = self.told.is_some();
        for (end, heard) in self.ends.iter_mut().zip(&mut self.heard) {
            let Some(end) = end else { continue };
            end.work();
            if is_gathering && heard.is_none() && end.has_heard(number) {
                *heard = end.take_heard();
            }
        }
    }

    /// # Errors
    ///
    /// Why another rank has left.
    pub(super) fn check_gone(&self) -> Result<()> {
        let gone = self.ends.iter().flatten().find_map(ControlEnd::gone);
        gone.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The error of a failure; if it is that another rank is gone, that rank's own reason.
    pub(super) fn reason_of(&mut self, error: Error) -> Error {
        if error.kind == ErrorKind::Peer {
            self.work();
            return self.check_gone().err().unwrap_or(error);
        }
        error
    }

    pub(super) fn begin(&mut self, block: &[u8]) {
        assert!(self.told.is_none(), "two gathers at once");
        self.gather_count += 1;
        self.told = Some(block.to_vec());
        let frame = ControlFrame::Gather { number: self.gather_count, block: block.to_vec() };
        self.ends.iter_mut().flatten().for_each(|end| end.tell(&frame));
    }

    pub(super) fn poll(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        self.work();
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

    /// Whether another rank has begun a gather that this one has not.
    pub(super) fn is_awaited(&mut self) -> bool {
        self.work();
        // The gather reports ranks that are gone.
        let has_begun = |end: &ControlEnd| end.heard_number() > self.gather_count || end.gone().is_some();
        self.ends.iter().flatten().any(has_begun)
    }

    /// Ranks whose block of the running gather is missing.
    pub(super) fn missing(&self) -> Vec<Rank> {
        let ranks = (0..).map(Rank).zip(&self.heard).zip(&self.ends);
        ranks
            .filter(|((_, heard), end)| end.is_some() && heard.is_none())
            .map(|((rank, _), _)| rank)
            .collect()
    }

    /// Tells all ranks why this one leaves, or at least that it does: they can read it once this
    /// returns.
    pub(super) fn send_close(&mut self, reason: &Error) {
        let reason = match reason.kind {
            ErrorKind::Peer => ControlFrame::CloseBecauseOf { reason: reason.message.clone() },
            _ => ControlFrame::Close { reason: format!("has given up: {reason}") },
        };
        self.ends.iter_mut().flatten().for_each(|end| end.tell_last(&reason));
    }
}
