//! Bytes on their way from files to the device.
//!
//! ```text
//! file ─► slot ─► device        read by the host, several parts under way at once
//! file ──────────► device       read by the device itself
//! ```
//!
//! Invariants: a slot is returned only when neither a read nor a copy touches it any more.
//!
//! Deliberately absent: how the host reads; a [`PartSource`] does.
#![expect(unsafe_code, reason = "slots are memory that reads under way may still write")]

use std::{collections::VecDeque, ops::Range, time::Instant};

use pystachio_files::{PartSource, Slot};
use pystachio_plan::{ActivityKind, Error, Result};

use super::{DeviceMemory, Stream};

/// Bytes that a device reads of a file between two polls of the stop flag: many of the pieces in
/// which libraries read.
const FILE_PIECE_BYTES: usize = 64 << 20;

/// How a device reads files by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFileMode {
    /// From storage to the device, without passing through the host's memory.
    GpuDirect,
    /// Through memory of the library.
    Compatibility,
}

/// A file that a device reads by itself.
pub trait DeviceFile: Send + Sync {
    /// Fills device memory with a range of the file. The memory has the bytes on return.
    ///
    /// # Errors
    ///
    /// `FileCorrupt` if the file ends before the range does, `FileAccess`, `Device`; each names the file.
    fn read(&self, offset: u64, bytes: u64, target: u64) -> Result<()>;
}

/// Parts being read, and their slots.
struct InFlight<'a> {
    memory: &'a DeviceMemory,
    source: &'a mut dyn PartSource,
    parts: VecDeque<(Slot, Instant)>,
}

impl InFlight<'_> {
    /// Begins parts from `start` on, as many as there are slots and the source wants. Returns where
    /// they end.
    fn begin(&mut self, mut start: u64, end: u64) -> Result<u64> {
        while start < end && self.parts.len() < self.source.parts_in_flight() {
            // A thread that waits for a slot while it holds others could wait for ever.
            let Some(mut slot) =
                self.memory.platform().lend_slot(self.parts.is_empty().then(|| self.memory.stop()))?
            else {
                break;
            };
            match self.source.begin(start, end - start, &mut slot) {
                Ok(bytes) => {
                    self.parts.push_back((slot, Instant::now()));
                    start += bytes as u64;
                }
                Err(error) => {
                    self.memory.platform().return_slot(slot);
                    return Err(error);
                }
            }
        }
        Ok(start)
    }

    /// Waits for the oldest part.
    fn finish(&mut self) -> Result<(Slot, Range<usize>, Instant)> {
        let Some((mut slot, begun)) = self.parts.pop_front() else {
            return Err(Error::internal("no part of an upload is under way"));
        };
        match self.source.finish(&mut slot) {
            Ok(range) => Ok((slot, range, begun)),
            Err(error) => {
                self.memory.platform().return_slot(slot);
                Err(error)
            }
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.source.abandon() {
            self.parts.drain(..).for_each(|(slot, _)| self.memory.platform().return_slot(slot));
        }
    }
}

impl DeviceMemory {
    /// Copies `bytes` of a source to an address inside a live buffer. `see` gets each part when it
    /// has been read, in order. Copies are enqueued.
    ///
    /// # Errors
    ///
    /// Errors of the source and of `see`, `Device`, `Cancelled`; the target's content has no
    /// meaning then.
    pub fn upload_parts(
        &self,
        (bytes, address): (u64, u64),
        stream: Stream,
        source: &mut dyn PartSource,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut in_flight = InFlight { memory: self, source, parts: VecDeque::new() };
        let (mut begun, mut done) = (0, 0);
        while done < bytes {
            self.stop().check()?;
            begun = in_flight.begin(begun, bytes)?;
            let (mut slot, range, since) = in_flight.finish()?;
            self.note_done(ActivityKind::Read, "read", range.len() as u64, since);
            // SAFETY: the slot's read is finished, and no copy has begun.
            let seen = unsafe { slot.memory() }
                .get(range.clone())
                .ok_or_else(|| Error::internal("a part is not within its slot"))
                .and_then(&mut *see);
            if let Err(error) = seen {
                self.platform().return_slot(slot);
                return Err(error);
            }
            let part_bytes = range.len() as u64;
            self.platform().upload_slot(slot, range, address + done, stream)?;
            done += part_bytes;
        }
        self.note_enqueued(ActivityKind::Upload, "upload", bytes, stream);
        Ok(())
    }

    /// Fills an address inside a live buffer with `bytes` of a file that the device reads by itself.
    ///
    /// # Errors
    ///
    /// Errors of [`DeviceFile::read`]; `Cancelled`.
    pub fn read_file(
        &self,
        file: &dyn DeviceFile,
        offset: u64,
        (bytes, address): (u64, u64),
        stream: Stream,
    ) -> Result<()> {
        // Earlier work on this stream may still use the memory.
        self.platform().wait(stream)?;
        let begun = Instant::now();
        for first in (0..bytes).step_by(FILE_PIECE_BYTES) {
            self.stop().check()?;
            let piece = (FILE_PIECE_BYTES as u64).min(bytes - first);
            file.read(offset + first, piece, address + first)?;
        }
        self.note_done(ActivityKind::Read, "read to device", bytes, begun);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::{EmulatedPlatform, Platform};

    /// Numbered bytes, some of them a part; reading fails at a place.
    struct Numbers {
        part_bytes: usize,
        in_flight: usize,
        fails_at: u64,
        begun: VecDeque<(u64, usize)>,
        abandoned: usize,
    }

    impl Numbers {
        fn new(part_bytes: usize, in_flight: usize, fails_at: u64) -> Self {
            Self { part_bytes, in_flight, fails_at, begun: VecDeque::new(), abandoned: 0 }
        }
    }

    impl PartSource for Numbers {
        fn parts_in_flight(&self) -> usize {
            self.in_flight
        }

        fn begin(&mut self, start: u64, bytes_left: u64, slot: &mut Slot) -> Result<usize> {
            let bytes = self.part_bytes.min(bytes_left as usize).min(slot.bytes - 3);
            self.begun.push_back((start, bytes));
            Ok(bytes)
        }

        fn finish(&mut self, slot: &mut Slot) -> Result<Range<usize>> {
            let (start, bytes) = self.begun.pop_front().unwrap();
            if start >= self.fails_at {
                return Err(Error::internal("no such part"));
            }
            // SAFETY: no read is running.
            let target = unsafe { &mut slot.memory()[3..3 + bytes] };
            target.iter_mut().zip(start..).for_each(|(byte, place)| *byte = (place % 251) as u8);
            Ok(3..3 + bytes)
        }

        fn abandon(&mut self) -> bool {
            self.abandoned += self.begun.len();
            self.begun.clear();
            true
        }
    }

    const BYTES: u64 = 100_000;

    fn memory() -> (Arc<EmulatedPlatform>, DeviceMemory) {
        let platform = Arc::new(EmulatedPlatform::at_once());
        (platform.clone(), DeviceMemory::new(platform, u64::MAX))
    }

    #[test]
    fn parts_of_any_size_arrive_in_their_order() {
        let (platform, memory) = memory();
        for (part_bytes, in_flight) in [(1000, 1), (1000, 4), (333, 40), (1 << 20, 2)] {
            let buffer = memory.allocate(BYTES, Stream(0)).unwrap();
            let mut source = Numbers::new(part_bytes, in_flight, u64::MAX);
            let mut seen = Vec::new();
            let mut see = |part: &[u8]| {
                seen.extend_from_slice(part);
                Ok(())
            };
            memory.upload_parts((BYTES, buffer.address()), Stream(0), &mut source, &mut see).unwrap();
            let expected: Vec<u8> = (0..BYTES).map(|place| (place % 251) as u8).collect();
            assert_eq!(seen, expected, "{part_bytes} {in_flight}");
            assert_eq!(memory.download::<u8>(&buffer, BYTES as usize, Stream(0)).unwrap(), expected);
            assert_eq!(platform.slots_lent(), 0);
        }
    }

    #[test]
    fn an_upload_that_fails_gives_its_slots_back() {
        let (platform, memory) = memory();
        let buffer = memory.allocate(BYTES, Stream(0)).unwrap();
        let target = (BYTES, buffer.address());
        let mut source = Numbers::new(1000, 4, 50_000);
        memory.upload_parts(target, Stream(0), &mut source, &mut |_| Ok(())).unwrap_err();
        platform.wait(Stream(0)).unwrap();
        assert_eq!((source.abandoned, platform.slots_lent()), (3, 0));
        let mut source = Numbers::new(1000, 4, u64::MAX);
        let mut see = |_: &[u8]| Err(Error::internal("not what was expected"));
        memory.upload_parts(target, Stream(0), &mut source, &mut see).unwrap_err();
        platform.wait(Stream(0)).unwrap();
        assert_eq!((source.abandoned, platform.slots_lent()), (3, 0));
    }
}
