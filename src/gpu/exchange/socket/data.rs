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
    link::{LinkSocket, Moved},
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
enum Step {
    /// The next part's head; so many bytes of it have moved.
    Head([u8; PART_HEAD_BYTES], usize),
    /// A piece of so many bytes, of which so many have moved through the socket.
    Moving(usize, usize),
    /// A copy of a piece of so many bytes, until this event is reached.
    Copying(usize, Event),
}

/// One side of a link.
struct Side {
    parts: VecDeque<GroupPart>,
    /// The step within the first part.
    step: Step,
    /// Finished parts.
    done_count: u64,
    /// Finished bytes of the first part.
    done_bytes: u64,
    staging: StagingBuffer,
}

impl Side {
    fn new(memory: &DeviceMemory) -> Result<Self> {
        Ok(Self {
            parts: VecDeque::new(),
            step: Step::Head([0; PART_HEAD_BYTES], 0),
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
        (self.step, self.done_bytes) = (Step::Head([0; PART_HEAD_BYTES], 0), 0);
        self.done_count += 1;
        self.parts.pop_front().map(|part| part.group)
    }
}

/// The data socket of a link, and its unfinished parts.
pub(super) struct DataEnd {
    other: Rank,
    socket: LinkSocket,
    out: Side,
    incoming: Side,
}

impl DataEnd {
    /// # Errors
    ///
    /// Errors of [`StagingBuffer::new`].
    pub(super) fn new(other: Rank, socket: LinkSocket, memory: &DeviceMemory) -> Result<Self> {
        Ok(Self { other, socket, out: Side::new(memory)?, incoming: Side::new(memory)? })
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
        let is_of = |side: &Side| side.parts.front().is_some_and(|part| part.group <= group);
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
                Progress::Waits => break,
                Progress::Goes => {}
                Progress::Done => done.extend(self.out.next_part()),
            }
        }
        while let Some(part) = self.incoming.parts.front().copied() {
            match self.receive_on(part, device)? {
                Progress::Waits => break,
                Progress::Goes => {}
                Progress::Done => done.extend(self.incoming.next_part()),
            }
        }
        Ok(done)
    }

    fn send_on(&mut self, part: GroupPart, device: &PartDevice<'_>) -> Result<Progress> {
        let Self { other, socket, out, .. } = self;
        match out.step {
            Step::Head(_, written) => {
                let head = encode_part(out.done_count, part.bytes);
                let Some(bytes) = check(*other, socket.write(&head[written..]))? else {
                    return Ok(Progress::Waits);
                };
                out.step = Step::Head(head, written + bytes);
                match written + bytes == PART_HEAD_BYTES {
                    true => out.download_piece(part, device),
                    false => Ok(Progress::Goes),
                }
            }
            Step::Copying(bytes, event) => {
                let platform = device.memory.platform();
                if !platform.has_reached(event)? {
                    return Ok(Progress::Waits);
                }
                platform.release_event(event);
                out.step = Step::Moving(bytes, 0);
                Ok(Progress::Goes)
            }
            Step::Moving(bytes, written) => {
                let piece = &out.staging.bytes()[written..bytes];
                let Some(more) = check(*other, socket.write(piece))? else { return Ok(Progress::Waits) };
                out.step = Step::Moving(bytes, written + more);
                if written + more < bytes {
                    return Ok(Progress::Goes);
                }
                out.done_bytes += bytes as u64;
                out.download_piece(part, device)
            }
        }
    }

    fn receive_on(&mut self, part: GroupPart, device: &PartDevice<'_>) -> Result<Progress> {
        let Self { other, socket, incoming, .. } = self;
        match &mut incoming.step {
            Step::Head(head, read) => {
                let Some(bytes) = check(*other, socket.read(&mut head[*read..]))? else {
                    return Ok(Progress::Waits);
                };
                *read += bytes;
                if *read < PART_HEAD_BYTES {
                    return Ok(Progress::Goes);
                }
                check_part(head, incoming.done_count, part.bytes).map_err(|what| {
                    let message = format!("rank {other} sent a part that was not expected: {what}");
                    Error::new(ErrorKind::Protocol, message)
                })?;
                Ok(incoming.next_piece(part))
            }
            Step::Moving(bytes, read) => {
                let (bytes, before) = (*bytes, *read);
                let target = &mut incoming.staging.bytes_mut()[before..bytes];
                let Some(more) = check(*other, socket.read(target))? else { return Ok(Progress::Waits) };
                incoming.step = Step::Moving(bytes, before + more);
                if before + more < bytes {
                    return Ok(Progress::Goes);
                }
                let target = part.address + incoming.done_bytes;
                incoming.staging.upload(device.memory, target, bytes, device.stream)?;
                let event = device.memory.platform().record_event(device.stream)?;
                incoming.step = Step::Copying(bytes, event);
                Ok(Progress::Goes)
            }
            Step::Copying(bytes, event) => {
                let (bytes, event, platform) = (*bytes, *event, device.memory.platform());
                if !platform.has_reached(event)? {
                    return Ok(Progress::Waits);
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
            if let Step::Copying(_, event) = side.step {
                memory.platform().release_event(event);
            }
        }
    }
}

/// The progress of a side.
enum Progress {
    /// It waits for the socket or the device.
    Waits,
    /// There is more to do.
    Goes,
    /// The part has moved.
    Done,
}

impl Side {
    /// Begins to copy the next piece of an outgoing part.
    fn download_piece(&mut self, part: GroupPart, device: &PartDevice<'_>) -> Result<Progress> {
        let bytes = self.piece_bytes(part);
        if bytes == 0 {
            return Ok(Progress::Done);
        }
        self.staging.download(device.memory, part.address + self.done_bytes, bytes, device.stream)?;
        self.step = Step::Copying(bytes, device.memory.platform().record_event(device.stream)?);
        Ok(Progress::Goes)
    }

    /// Begins to read the next piece of an incoming part.
    fn next_piece(&mut self, part: GroupPart) -> Progress {
        match self.piece_bytes(part) {
            0 => Progress::Done,
            bytes => {
                self.step = Step::Moving(bytes, 0);
                Progress::Goes
            }
        }
    }
}

/// The bytes that moved; `None` if none could.
fn check(other: Rank, moved: Moved) -> Result<Option<usize>> {
    match moved {
        Moved::Bytes(bytes) => Ok(Some(bytes)),
        Moved::Nothing => Ok(None),
        Moved::End => Err(peer_error(other, "is gone")),
    }
}
