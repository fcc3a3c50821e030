//! Control messages between two ranks, on one link.

use std::{collections::VecDeque, os::fd::BorrowedFd};

use pystachio_plan::{Error, ErrorKind};

use super::{
    frame::ControlFrame,
    link::{LinkSocket, SocketProgress},
};
use crate::exchange::{Rank, communicator::peer_error};

/// Limit of gathers that another rank may be ahead of this one: one that is unread, and the next
/// one.
const GATHERS_AHEAD_MAX: usize = 2;
const READ_BYTES: usize = 16 << 10;

/// One rank's end.
pub(super) struct ControlEnd {
    other: Rank,
    socket: LinkSocket,
    unsent: VecDeque<u8>,
    received: Vec<u8>,
    /// Received and untaken blocks, by the numbers of their gathers.
    heard: VecDeque<(u64, Vec<u8>)>,
    /// The number of the last received gather.
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

    /// Sends a block, as far as there is room now.
    pub(super) fn tell(&mut self, frame: &ControlFrame) {
        self.unsent.extend(frame.encode());
        self.flush();
    }

    /// Sends the last message. Without room for it, this end of the link ends: the peer reads
    /// earlier messages, and then the end of the stream.
    pub(super) fn tell_last(&mut self, frame: &ControlFrame) {
        self.tell(frame);
        if !self.unsent.is_empty() {
            self.socket.end();
        }
    }

    /// Writes pending bytes, and reads available ones.
    pub(super) fn work(&mut self) {
        self.flush();
        if self.gone.is_none() {
            self.read();
        }
    }

    /// A descriptor that becomes readable when the other rank has sent a message, as long as it
    /// may.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.gone.is_none().then(|| self.socket.descriptor())
    }

    /// Why the other rank sends no more messages.
    pub(super) fn gone(&self) -> Option<&Error> {
        self.gone.as_ref()
    }

    /// The number of the last gather that the other rank has begun, as far as this one has
    /// received.
    pub(super) fn heard_number(&self) -> u64 {
        self.heard_number
    }

    /// Whether its block of a gather has arrived.
    pub(super) fn has_heard(&self, number: u64) -> bool {
        self.heard.front().is_some_and(|(first, _)| *first == number)
    }

    /// Takes the block that has arrived.
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
                SocketProgress::Bytes(bytes) => self.received.extend(&piece[..bytes]),
                SocketProgress::Nothing => return,
                SocketProgress::End => {
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
    /// Why no more messages come.
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
                        ControlFrame::Close { reason } => break Err(peer_error(self.other, reason)),
                        ControlFrame::CloseBecauseOf { reason } => {
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
