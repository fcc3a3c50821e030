//! Outgoing and incoming parts on one link, a piece at a time.
//!
//! ```text
//! out: next part ─► head ─► download of a piece ─► written ─┐      in: next part ─► head ─► read of a piece ─► upload ─┐
//!                               └─◄── more of the part ◄────┤                        └─◄── more of the part ◄──────────┤
//!                                      that was all: done ◄─┘                                  that was all: done ◄────┘
//! ```

use std::collections::VecDeque;

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    frame::{PART_HEAD_BYTES, check_part, encode_part},
    groups::GroupPart,
    link::{LinkSocket, SocketProgress},
};
use crate::{
    device::{DeviceMemory, Event, StagingBuffer, Stream},
    exchange::{Rank, communicator::peer_error},
};

/// Staging memory of a link for a part on each side: about as much as a Unix socket holds, so that
/// neither side waits long for the other.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// The device whose memory contains the parts, and the stream of their copies.
pub(super) struct PartDevice<'a> {
    pub(super) memory: &'a DeviceMemory,
    pub(super) stream: Stream,
}

/// The current step of one side of a link.
enum SideStep {
    /// The next part's head; so many bytes of it have moved.
    Head([u8; PART_HEAD_BYTES], usize),
    /// A piece of so many bytes, of which so many have moved through the socket.
    Moving(usize, usize),
    /// A copy of a piece of so many bytes, until this event is reached.
    Copying(usize, Event),
}

/// One side of a link.
struct LinkSide {
    parts: VecDeque<GroupPart>,
    /// The step within the first part.
    step: SideStep,
    /// Finished parts.
    done_count: u64,
    /// Finished bytes of the first part.
    done_bytes: u64,
    staging: StagingBuffer,
}

impl LinkSide {
    fn new(memory: &DeviceMemory) -> Result<Self> {
        Ok(Self {
            parts: VecDeque::new(),
            step: SideStep::Head([0; PART_HEAD_BYTES], 0),
            done_count: 0,
            done_bytes: 0,
            staging: StagingBuffer::new(memory.platform().clone(), PIECE_BYTES)?,
        })
    }

    /// The next piece of the first part.
    fn piece_bytes(&self, part: GroupPart) -> usize {
        (part.bytes - self.done_bytes).min(PIECE_BYTES as u64) as usize
    }

    /// Ends the first part.
    fn next_part(&mut self) -> Option<u64> {
        (self.step, self.done_bytes) = (SideStep::Head([0; PART_HEAD_BYTES], 0), 0);
        self.done_count += 1;
        self.parts.pop_front().map(|part| part.group)
    }
}

/// The data socket of a link, and its unfinished parts.
pub(super) struct DataEnd {
    other: Rank,
    socket: LinkSocket,
    out: LinkSide,
    incoming: LinkSide,
}

impl DataEnd {
    /// # Errors
    ///
    /// Errors of [`StagingBuffer::new`].
    pub(super) fn new(other: Rank, socket: LinkSocket, memory: &DeviceMemory) -> Result<Self> {
        Ok(Self { other, socket, out: LinkSide::new(memory)?, incoming: LinkSide::new(memory)? })
    }

    /// Adds an outgoing part.
    pub(super) fn send(&mut self, part: GroupPart) {
        self.out.parts.push_back(part);
    }

    /// Adds an expected part.
    pub(super) fn expect(&mut self, part: GroupPart) {
        self.incoming.parts.push_back(part);
    }

    /// Whether some part of a group is unfinished.
    pub(super) fn is_at(&self, group: u64) -> bool {
        let is_of = |side: &LinkSide| side.parts.front().is_some_and(|part| part.group <= group);
        is_of(&self.out) || is_of(&self.incoming)
    }

    /// Goes on as far as sockets and device allow. Returns the groups of finished parts, one for
    /// each.
    ///
    /// # Errors
    ///
    /// `Peer` or `Protocol`, naming the other rank, if its socket has ended or sends unexpected
    /// bytes; faults of the device.
    pub(super) fn work(&mut self, device: &PartDevice<'_>) -> Result<Vec<u64>> {
        let mut done = Vec::new();
        while let Some(part) = self.out.parts.front().copied() {
            match self.send_on(part, device)? {
                SideProgress::Waits => break,
                SideProgress::Goes => {}
                SideProgress::Done => done.extend(self.out.next_part()),
            }
        }
        while let Some(part) = self.incoming.parts.front().copied() {
            match self.receive_on(part, device)? {
                SideProgress::Waits => break,
                SideProgress::Goes => {}
                SideProgress::Done => done.extend(self.incoming.next_part()),
            }
        }
        Ok(done)
    }

    fn send_on(&mut self, part: GroupPart, device: &PartDevice<'_>) -> Result<SideProgress> {
        let Self { other, socket, out, .. } = self;
        match out.step {
            SideStep::Head(_, written) => {
                let head = encode_part(out.done_count, part.bytes);
                let Some(bytes) = check(*other, socket.write(&head[written..]))? else {
                    return Ok(SideProgress::Waits);
                };
                out.step = SideStep::Head(head, written + bytes);
                match written + bytes == PART_HEAD_BYTES {
                    true => out.download_piece(part, device),
                    false => Ok(SideProgress::Goes),
                }
            }
            SideStep::Copying(bytes, event) => {
                let platform = device.memory.platform();
                if !platform.has_reached(event)? {
                    return Ok(SideProgress::Waits);
                }
                platform.release_event(event);
                out.step = SideStep::Moving(bytes, 0);
                Ok(SideProgress::Goes)
            }
            SideStep::Moving(bytes, written) => {
                let piece = &out.staging.bytes()[written..bytes];
                let Some(more) = check(*other, socket.write(piece))? else { return Ok(SideProgress::Waits) };
                out.step = SideStep::Moving(bytes, written + more);
                if written + more < bytes {
                    return Ok(SideProgress::Goes);
                }
                out.done_bytes += bytes as u64;
                out.download_piece(part, device)
            }
        }
    }

    fn receive_on(&mut self, part: GroupPart, device: &PartDevice<'_>) -> Result<SideProgress> {
        let Self { other, socket, incoming, .. } = self;
        match &mut incoming.step {
            SideStep::Head(head, read) => {
                let Some(bytes) = check(*other, socket.read(&mut head[*read..]))? else {
                    return Ok(SideProgress::Waits);
                };
                *read += bytes;
                if *read < PART_HEAD_BYTES {
                    return Ok(SideProgress::Goes);
                }
                check_part(head, incoming.done_count, part.bytes).map_err(|what| {
                    let message = format!("rank {other} sent a part that was not expected: {what}");
                    Error::new(ErrorKind::Protocol, message)
                })?;
                Ok(incoming.next_piece(part))
            }
            SideStep::Moving(bytes, read) => {
                let (bytes, before) = (*bytes, *read);
                let target = &mut incoming.staging.bytes_mut()[before..bytes];
                let Some(more) = check(*other, socket.read(target))? else { return Ok(SideProgress::Waits) };
                incoming.step = SideStep::Moving(bytes, before + more);
                if before + more < bytes {
                    return Ok(SideProgress::Goes);
                }
                let target = part.address + incoming.done_bytes;
                incoming.staging.upload(device.memory, target, bytes, device.stream)?;
                let event = device.memory.platform().record_event(device.stream)?;
                incoming.step = SideStep::Copying(bytes, event);
                Ok(SideProgress::Goes)
            }
            SideStep::Copying(bytes, event) => {
                let (bytes, event, platform) = (*bytes, *event, device.memory.platform());
                if !platform.has_reached(event)? {
                    return Ok(SideProgress::Waits);
                }
                platform.release_event(event);
                incoming.done_bytes += bytes as u64;
                Ok(incoming.next_piece(part))
            }
        }
    }

    /// Drops events that are no longer polled.
    pub(super) fn release_events(&self, memory: &DeviceMemory) {
        for side in [&self.out, &self.incoming] {
            if let SideStep::Copying(_, event) = side.step {
                memory.platform().release_event(event);
            }
        }
    }
}

/// The progress of a side.
enum SideProgress {
    /// It waits for the socket or the device.
    Waits,
    /// There is more to do.
    Goes,
    /// The part has moved.
    Done,
}

impl LinkSide {
    /// Begins to copy the next piece of an outgoing part.
    fn download_piece(&mut self, part: GroupPart, device: &PartDevice<'_>) -> Result<SideProgress> {
        let bytes = self.piece_bytes(part);
        if bytes == 0 {
            return Ok(SideProgress::Done);
        }
        self.staging.download(device.memory, part.address + self.done_bytes, bytes, device.stream)?;
        self.step = SideStep::Copying(bytes, device.memory.platform().record_event(device.stream)?);
        Ok(SideProgress::Goes)
    }

    /// Begins to read the next piece of an incoming part.
    fn next_piece(&mut self, part: GroupPart) -> SideProgress {
        match self.piece_bytes(part) {
            0 => SideProgress::Done,
            bytes => {
                self.step = SideStep::Moving(bytes, 0);
                SideProgress::Goes
            }
        }
    }
}

/// The bytes that moved; `None` if none could.
fn check(other: Rank, moved: SocketProgress) -> Result<Option<usize>> {
    match moved {
        SocketProgress::Bytes(bytes) => Ok(Some(bytes)),
        SocketProgress::Nothing => Ok(None),
        SocketProgress::End => Err(peer_error(other, "is gone")),
    }
}
