//! The byte format of control messages, and of a part's beginning.
//!
//! ```text
//! control   magic u32 │ kind u8 │ zeros 3 │ number u64 │ bytes u32 │ zeros 4 │ content
//! part      magic u32 │ zeros 4 │ number u64 │ bytes u64
//! direct    magic u32 │ kind u32 │ offset or count u64 │ bytes u64
//! ```
//!
//! Numbers are little-endian.

use crate::exchange::{RANKS_MAX, message::ControlShape};

/// A whole control message from one rank to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ControlFrame {
    /// Its block in the gather of this number.
    Gather {
        /// Gathers are numbered from 1.
        number: u64,
        /// The block.
        block: Vec<u8>,
    },
    /// The last message: the rank leaves. The reason, in words about this rank.
    Close {
        /// `has given up: …`
        reason: String,
    },
    /// The same because of another rank: the reason, in words about that one.
    CloseBecauseOf {
        /// `rank 2 is gone`
        reason: String,
    },
}

/// Limit of a block: some times the report of a round with the largest number of ranks
/// (`message.rs`).
pub(super) const CONTROL_BYTES_MAX: usize = 1 << 20;
const LARGEST: ControlShape = ControlShape { generation: 0, rank_count: RANKS_MAX, block_bytes_max: 0 };
const _: () = assert!(LARGEST.bytes_max() <= CONTROL_BYTES_MAX);
/// Bytes before a block.
pub(super) const CONTROL_HEAD_BYTES: usize = 24;
/// Bytes before a part.
pub(super) const PART_HEAD_BYTES: usize = 24;

/// Bytes of a message about parts that the other rank reads by itself.
pub(super) const DIRECT_BYTES: usize = 24;

const CONTROL_MAGIC: u32 = u32::from_le_bytes(*b"PXS\n");
const PART_MAGIC: u32 = u32::from_le_bytes(*b"PXP\n");
const DIRECT_MAGIC: u32 = u32::from_le_bytes(*b"PXD\n");
const OFFER: u32 = 1;
const TAKEN: u32 = 2;
const GATHER: u8 = 1;
const CLOSE: u8 = 2;
const CLOSE_BECAUSE_OF: u8 = 3;
/// Bytes of a reason; longer ones are cut.
const REASON_BYTES_MAX: usize = 1024;

/// The fault of an invalid frame.
pub(super) type FrameResult<T> = std::result::Result<T, String>;

impl ControlFrame {
    /// As bytes.
    ///
    /// # Panics
    ///
    /// If a block is too long.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, number, content) = match self {
            Self::Gather { number, block } => (GATHER, *number, block.as_slice()),
            Self::Close { reason } => (CLOSE, 0, cut(reason)),
            Self::CloseBecauseOf { reason } => (CLOSE_BECAUSE_OF, 0, cut(reason)),
        };
        assert!(content.len() <= CONTROL_BYTES_MAX, "bytes that a rank tells");
        let mut bytes = Vec::with_capacity(CONTROL_HEAD_BYTES + content.len());
        bytes.extend(CONTROL_MAGIC.to_le_bytes());
        bytes.extend([kind, 0, 0, 0]);
        bytes.extend(number.to_le_bytes());
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(content);
        bytes
    }

    /// The first frame of these bytes and its size; `None` if they are too few.
    ///
    /// # Errors
    ///
    /// The fault of an invalid frame.
    pub(super) fn decode(bytes: &[u8]) -> FrameResult<Option<(Self, usize)>> {
        let Some(head) = bytes.first_chunk::<CONTROL_HEAD_BYTES>() else { return Ok(None) };
        expect("magic", u64::from(word(head, 0)), u64::from(CONTROL_MAGIC))?;
        let (kind, number, content_bytes) = (head[4], long(head, 8), word(head, 16) as usize);
        if content_bytes > CONTROL_BYTES_MAX {
            return Err(format!("bytes={content_bytes}, bytes_max={CONTROL_BYTES_MAX}"));
        }
        let end = CONTROL_HEAD_BYTES + content_bytes;
        let Some(content) = bytes.get(CONTROL_HEAD_BYTES..end) else { return Ok(None) };
        let reason = || String::from_utf8_lossy(content).into_owned();
        let frame = match kind {
            GATHER => Self::Gather { number, block: content.to_vec() },
            CLOSE => Self::Close { reason: reason() },
            CLOSE_BECAUSE_OF => Self::CloseBecauseOf { reason: reason() },
            other => return Err(format!("kind={other}")),
        };
        Ok(Some((frame, end)))
    }
}

/// A message about parts that the other rank reads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectFrame {
    /// A part of this rank's region; as the first frame, all of it.
    Offer {
        /// Its offset in the region.
        offset_bytes: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// How many parts of the other rank were taken since the first one.
    Taken {
        /// How many.
        count: u64,
    },
}

impl DirectFrame {
    /// As bytes.
    pub(super) fn encode(self) -> [u8; DIRECT_BYTES] {
        let (kind, first, second) = match self {
            Self::Offer { offset_bytes, bytes } => (OFFER, offset_bytes, bytes),
            Self::Taken { count } => (TAKEN, count, 0),
        };
        let mut frame = encode_part(first, second);
        frame[..4].copy_from_slice(&DIRECT_MAGIC.to_le_bytes());
        frame[4..8].copy_from_slice(&kind.to_le_bytes());
        frame
    }

    /// The frame of these bytes.
    ///
    /// # Errors
    ///
    /// The fault of an invalid frame.
    pub(super) fn decode(bytes: &[u8]) -> FrameResult<Self> {
        let frame: &[u8; DIRECT_BYTES] =
            bytes.try_into().map_err(|_| format!("frame_bytes={}", bytes.len()))?;
        expect("magic", u64::from(word(frame, 0)), u64::from(DIRECT_MAGIC))?;
        let (first, second) = (long(frame, 8), long(frame, 16));
        match word(frame, 4) {
            OFFER => Ok(Self::Offer { offset_bytes: first, bytes: second }),
            TAKEN => expect("zeros", second, 0).map(|()| Self::Taken { count: first }),
            kind => Err(format!("kind={kind}")),
        }
    }
}

/// The beginning of a part: its number among all parts in this direction, from 0.
pub(super) fn encode_part(number: u64, bytes: u64) -> [u8; PART_HEAD_BYTES] {
    let mut head = [0; PART_HEAD_BYTES];
    head[..4].copy_from_slice(&PART_MAGIC.to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..].copy_from_slice(&bytes.to_le_bytes());
    head
}

/// Checks that this is the beginning of the expected part.
///
/// # Errors
///
/// The mismatch.
pub(super) fn check_part(head: &[u8; PART_HEAD_BYTES], number: u64, bytes: u64) -> FrameResult<()> {
    expect("magic", u64::from(word(head, 0)), u64::from(PART_MAGIC))?;
    expect("part", long(head, 8), number)?;
    expect("part_bytes", long(head, 16), bytes)
}

fn word(head: &[u8; 24], offset: usize) -> u32 {
    head[offset..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(head: &[u8; 24], offset: usize) -> u64 {
    head[offset..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn expect(name: &str, found: u64, expected: u64) -> FrameResult<()> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{name}={found}, expected={expected}")),
    }
}

/// The prefix of a reason, up to the end of a character.
fn cut(reason: &str) -> &[u8] {
    &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> [ControlFrame; 4] {
        [
            ControlFrame::Gather { number: 7, block: vec![1, 2, 3] },
            ControlFrame::Gather { number: 8, block: Vec::new() },
            ControlFrame::Close { reason: "has given up: no memory".to_owned() },
            ControlFrame::CloseBecauseOf { reason: "rank 2 is gone".to_owned() },
        ]
    }

    #[test]
    fn what_is_told_comes_back_and_a_part_of_it_is_waited_for() {
        for frame in frames() {
            let bytes = frame.encode();
            let longer: Vec<u8> = bytes.iter().copied().chain([9; 30]).collect();
            assert_eq!(ControlFrame::decode(&longer), Ok(Some((frame, bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(ControlFrame::decode(&bytes[..end]), Ok(None), "{end} bytes");
            }
        }
        let reason = "ä".repeat(REASON_BYTES_MAX);
        let (frame, _) = ControlFrame::decode(&ControlFrame::Close { reason }.encode()).unwrap().unwrap();
        assert_eq!(frame, ControlFrame::Close { reason: "ä".repeat(REASON_BYTES_MAX / 2) });
    }

    #[test]
    fn whatever_comes_is_a_frame_or_an_error() {
        for frame in frames() {
            let bytes = frame.encode();
            for place in 0..CONTROL_HEAD_BYTES {
                for value in 0..=255 {
                    let mut changed = bytes.clone();
                    changed[place] = value;
                    if let Ok(Some((_, taken))) = ControlFrame::decode(&changed) {
                        assert!(taken <= changed.len());
                    }
                }
            }
        }
        let mut long = ControlFrame::Gather { number: 1, block: Vec::new() }.encode();
        long[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(ControlFrame::decode(&long), Err("bytes=4294967295, bytes_max=1048576".to_owned()));
        assert!(ControlFrame::decode(&[0; 24]).unwrap_err().starts_with("magic=0"));
    }

    #[test]
    fn what_is_said_of_parts_comes_back_and_nothing_else_does() {
        let frames =
            [DirectFrame::Offer { offset_bytes: 64, bytes: 1 << 40 }, DirectFrame::Taken { count: 7 }];
        for frame in frames {
            let bytes = frame.encode();
            assert_eq!(DirectFrame::decode(&bytes), Ok(frame));
            assert!(DirectFrame::decode(&bytes[1..]).is_err());
            for place in 0..8 {
                let mut changed = bytes;
                changed[place] ^= 0x55;
                assert!(DirectFrame::decode(&changed).is_err(), "byte {place}");
            }
        }
        assert_eq!(DirectFrame::decode(&encode_part(1, 1)).unwrap_err().split('=').next(), Some("magic"));
    }

    #[test]
    fn a_part_is_the_one_that_is_expected() {
        let head = encode_part(3, 1 << 40);
        assert_eq!(check_part(&head, 3, 1 << 40), Ok(()));
        assert_eq!(check_part(&head, 4, 1 << 40), Err("part=3, expected=4".to_owned()));
        assert_eq!(check_part(&head, 3, 64), Err("part_bytes=1099511627776, expected=64".to_owned()));
        assert!(check_part(&[1; 24], 3, 64).is_err());
    }
}
