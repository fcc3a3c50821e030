//! What one rank and another tell each other, on one link.

use std::{collections::VecDeque, os::fd::BorrowedFd};

use pystachio_plan::{Error, ErrorKind};

use super::{
    frame::ControlFrame,
    link::{LinkSocket, Moved},
};
use crate::exchange::{Rank, communicator::peer_error};

/// Gathers that another rank may have told of and this one has not come to: one that it has not heard yet, and the next one.
const GATHERS_AHEAD_MAX: usize = 2;
const READ_BYTES: usize = 16 << 10;

/// One rank's end.
pub(super) struct ControlEnd {
    other: Rank,
    socket: LinkSocket,
    unsent: VecDeque<u8>,
    received: Vec<u8>,
    /// Blocks that were heard and not taken, by the numbers of their gathers.
    heard: VecDeque<(u64, Vec<u8>)>,
    /// The number of the last one that was heard.
    heard_number: u64,
    gone: Option<Error>,
}

impl ControlEnd {
    pub(super) fn new(other: Rank, socket: LinkSocket) -> Self {
        Self {
            other,
            socket,
            unsent: VecDeque::new(),
            received: Vec::new(),
            heard: VecDeque::new(),
            heard_number: 0,
            gone: None,
        }
    }

    /// Tells something, as far as there is room now.
    pub(super) fn tell(&mut self, frame: &ControlFrame) {
        self.unsent.extend(frame.encode());
        self.flush();
    }

    /// Tells the last of all. Where there is no room for it, this end of the link ends: whoever goes on reads what was told before, and then that
    /// nothing more comes.
    pub(super) fn tell_last(&mut self, frame: &ControlFrame) {
        self.tell(frame);
        if !self.unsent.is_empty() {
            self.socket.end();
        }
    }

    /// Sends on, and reads what there is.
    pub(super) fn work(&mut self) {
        self.flush();
        if self.gone.is_none() {
            self.read();
        }
    }

    /// What there is something to read of when the other rank has told something, as long as it may.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.gone.is_none().then(|| self.socket.descriptor())
    }

    /// Why the other rank tells nothing more.
    pub(super) fn gone(&self) -> Option<&Error> {
        self.gone.as_ref()
    }

    /// The number of the last gather that the other rank has begun, as far as this one has heard.
    pub(super) fn heard_number(&self) -> u64 {
        self.heard_number
    }

    /// Whether its block of a gather is there.
    pub(super) fn has_heard(&self, number: u64) -> bool {
        self.heard.front().is_some_and(|(first, _)| *first == number)
    }

    /// Takes the block that is there.
    pub(super) fn take_heard(&mut self) -> Option<Vec<u8>> {
        self.heard.pop_front().map(|(_, block)| block)
    }

    fn flush(&mut self) {
        self.socket.write_waiting(&mut self.unsent);
    }

    fn read(&mut self) {
        let mut piece = [0; READ_BYTES];
        loop {
            match self.socket.read(&mut piece) {
                Moved::Bytes(bytes) => self.received.extend(&piece[..bytes]),
                Moved::Nothing => return,
                Moved::End => {
                    self.gone = Some(peer_error(self.other, "is gone"));
                    return;
                }
            }
            if let Err(error) = self.take_frames() {
                self.gone = Some(error);
                return;
            }
        }
    }

    /// # Errors
    ///
    /// Why nothing more comes.
    fn take_frames(&mut self) -> Result<(), Error> {
        let wrong = |other: Rank, what: String| {
            Error::new(ErrorKind::Protocol, format!("rank {other} told something that is wrong: {what}"))
        };
        let mut taken = 0;
        let told = loop {
            match ControlFrame::decode(&self.received[taken..]) {
                Ok(None) => break Ok(()),
                Err(what) => break Err(wrong(self.other, what)),
                Ok(Some((frame, bytes))) => {
                    taken += bytes;
                    match frame {
                        ControlFrame::Farewell { reason } => break Err(peer_error(self.other, reason)),
                        ControlFrame::FarewellOfOther { reason } => {
                            break Err(Error::new(ErrorKind::Peer, reason));
                        }
                        ControlFrame::Gather { number, block } => {
                            if number != self.heard_number + 1 || self.heard.len() == GATHERS_AHEAD_MAX {
                                let heard = self.heard_number;
                                let what = format!("gather={number}, last_gather={heard}");
                                break Err(wrong(self.other, what));
                            }
                            self.heard_number = number;
                            self.heard.push_back((number, block));
                        }
                    }
                }
            }
        };
        self.received.drain(..taken);
        told
    }
}
