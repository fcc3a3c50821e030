//! The first bytes that each side of a connection sends, in a form that no version changes.
//!
//! ```text
//! ┌──────────┬──────────────┬─────────┬────────────────┬─────────┐
//! │ magic [8]│ protocol u32 │ pid u32 │ version_bytes u16 │ version │   little endian; the version is UTF-8
//! └──────────┴──────────────┴─────────┴────────────────┴─────────┘
//! ```
//!
//! The backend sends its greeting, and the engine answers with its own. If their protocols differ, both close the
//! connection, and the backend can say which versions met. All other bytes may mean something else in each version.
//!
//! Backends older than greetings (0.2.0) send a shorter message and wait. They are known by its first bytes, and get an answer that
//! they take for a sign of an update.

use std::io::Read;

use crate::{Error, ErrorKind, PROTOCOL_VERSION, Result};

/// Bytes of a greeting before the text of its version.
pub const GREETING_HEADER_BYTES: usize = 18;
/// Read as the header of a frame, this is longer than any frame: versions without greetings refuse it.
const MAGIC: [u8; GREETING_MARK_BYTES] = *b"pystach\n";
/// Bytes that tell a greeting from all else.
pub const GREETING_MARK_BYTES: usize = 8;
/// What a backend older than greetings gets: a message of its protocol that is no welcome, for which it raises an error with the hint
/// to restart the server.
pub const ANSWER_TO_OLDER: [u8; 7] = [2, 0, 0, 0, 0, 2, 0];

/// How one side of a connection introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// [`PROTOCOL_VERSION`] of that side.
    pub protocol_version: u32,
    /// Its process.
    pub pid: u32,
    /// Its version, as in `pystachio.version()`.
    pub version: String,
}

/// A greeting without its version, and how many bytes that has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreetingHeader {
    protocol_version: u32,
    pid: u32,
    /// Bytes of the version.
    pub version_bytes: usize,
}

impl Greeting {
    /// The greeting of this process.
    pub fn own(version: &str) -> Self {
        Self { protocol_version: PROTOCOL_VERSION, pid: std::process::id(), version: version.to_owned() }
    }

    /// The greeting as it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let version = &self.version.as_bytes()[..self.version.len().min(u16::MAX.into())];
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.protocol_version.to_le_bytes());
        bytes.extend_from_slice(&self.pid.to_le_bytes());
        bytes.extend_from_slice(&(version.len() as u16).to_le_bytes());
        bytes.extend_from_slice(version);
        bytes
    }

    /// Reads a greeting from a socket that blocks.
    ///
    /// # Errors
    ///
    /// As of [`GreetingHeader::decode`]; [`ErrorKind::Unavailable`] if the connection fails or ends.
    pub fn read(source: &mut impl Read) -> Result<Self> {
        let lost = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, format!("connection is lost: {error}"))
        };
        let mut header = [0; GREETING_HEADER_BYTES];
        source.read_exact(&mut header).map_err(lost)?;
        let header = GreetingHeader::decode(header)?;
        let mut version = vec![0; header.version_bytes];
        source.read_exact(&mut version).map_err(lost)?;
        Ok(header.with_version(&version))
    }

    /// Whether both sides speak the same protocol.
    pub fn is_understood(&self) -> bool {
        self.protocol_version == PROTOCOL_VERSION
    }
}

impl GreetingHeader {
    /// Checks the first [`GREETING_MARK_BYTES`] of a header.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the bytes begin no greeting: the other side is older than greetings.
    pub fn check_mark(mark: &[u8]) -> Result<()> {
        match mark == MAGIC {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Protocol, "a connection does not begin with a greeting")),
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// As of [`Self::check_mark`].
    pub fn decode(bytes: [u8; GREETING_HEADER_BYTES]) -> Result<Self> {
        let [mark @ .., a, b, c, d, e, f, g, h, low, high] = bytes;
        Self::check_mark(&mark)?;
        Ok(Self {
            protocol_version: u32::from_le_bytes([a, b, c, d]),
            pid: u32::from_le_bytes([e, f, g, h]),
            version_bytes: u16::from_le_bytes([low, high]).into(),
        })
    }

    /// The greeting with the bytes of its version.
    pub fn with_version(self, version: &[u8]) -> Greeting {
        Greeting {
            protocol_version: self.protocol_version,
            pid: self.pid,
            version: String::from_utf8_lossy(version).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FRAME_HEADER_BYTES, FrameHeader};

    fn decode(bytes: &[u8]) -> Result<Greeting> {
        let mut rest = bytes;
        let greeting = Greeting::read(&mut rest)?;
        assert!(rest.is_empty());
        Ok(greeting)
    }

    #[test]
    fn a_greeting_survives_the_round_trip() {
        let own = Greeting::own("1.2.3");
        assert_eq!(decode(&own.encode()).unwrap(), own);
        assert!(own.is_understood());
        let other = Greeting { protocol_version: PROTOCOL_VERSION + 1, ..own };
        assert!(!decode(&other.encode()).unwrap().is_understood());
    }

    /// Later versions must send these bytes too.
    #[test]
    fn the_form_is_what_it_was_at_first() {
        let greeting = Greeting { protocol_version: 0x0102_0304, pid: 0x0506_0708, version: "é1".into() };
        let expected = b"pystach\n\x04\x03\x02\x01\x08\x07\x06\x05\x03\x00\xc3\xa91";
        assert_eq!(greeting.encode(), expected);
    }

    #[test]
    fn versions_without_greetings_are_told_apart() {
        let bytes = Greeting::own("1").encode();
        assert!(FrameHeader::decode(bytes[..FRAME_HEADER_BYTES].try_into().unwrap()).is_err());
        let frame = [9, 0, 0, 0, 0, 0, 21, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
        assert_eq!(GreetingHeader::decode(frame).unwrap_err().kind, ErrorKind::Protocol);
    }
}
