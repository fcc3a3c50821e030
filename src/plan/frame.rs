//! How messages and batches are framed on the socket.
//!
//! ```text
//! ┌───────────────┬──────┬─────────────┐
//! │ body_bytes u32│ kind │ body        │   little endian; kind is one byte
//! └───────────────┴──────┴─────────────┘
//! ```
//!
//! A result is one `Schema` frame and any number of `Batch` frames. Their bodies are encapsulated Arrow
//! IPC messages (continuation marker, metadata, body), as an Arrow IPC stream would have them.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Error, ErrorKind, Result};

/// Bytes before a frame's body.
pub const FRAME_HEADER_BYTES: usize = 5;
/// The largest body; larger ones mean that the two sides lost step.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

/// What a frame's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrameKind {
    /// A [`crate::Request`] or [`crate::Response`].
    Message,
    /// The Arrow schema of the batches that follow.
    Schema,
    /// An Arrow record batch.
    Batch,
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the body is.
    pub kind: FrameKind,
    /// How long it is.
    pub body_bytes: usize,
}

impl FrameHeader {
    /// The header as it is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the body exceeds [`FRAME_BYTES_MAX`].
    pub fn encode(self) -> Result<[u8; FRAME_HEADER_BYTES]> {
        check_body_bytes(self.body_bytes)?;
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..4].copy_from_slice(&(self.body_bytes as u32).to_le_bytes());
        header[4] = self.kind as u8;
        Ok(header)
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the kind is unknown or the body exceeds [`FRAME_BYTES_MAX`].
    pub fn decode(header: [u8; FRAME_HEADER_BYTES]) -> Result<Self> {
        let [a, b, c, d, kind] = header;
        let body_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        check_body_bytes(body_bytes)?;
        let kind = match kind {
            0 => FrameKind::Message,
            1 => FrameKind::Schema,
            2 => FrameKind::Batch,
            other => {
                return Err(Error::new(ErrorKind::Protocol, format!("unknown frame kind: kind={other}")));
            }
        };
        Ok(Self { kind, body_bytes })
    }
}

/// A message as a whole frame, header included.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] if it exceeds [`FRAME_BYTES_MAX`].
pub fn encode_message<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    let mut frame = postcard::to_extend(message, vec![0; FRAME_HEADER_BYTES])
        .map_err(|error| Error::new(ErrorKind::Protocol, format!("message can't be encoded: {error}")))?;
    let header = FrameHeader { kind: FrameKind::Message, body_bytes: frame.len() - FRAME_HEADER_BYTES };
    frame[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode()?);
    Ok(frame)
}

/// A message from a frame's body.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] if the bytes are no such message.
pub fn decode_message<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    postcard::from_bytes(body)
        .map_err(|error| Error::new(ErrorKind::Protocol, format!("message can't be decoded: {error}")))
}

fn check_body_bytes(body_bytes: usize) -> Result<()> {
    if body_bytes > FRAME_BYTES_MAX {
        return Err(Error::new(
            ErrorKind::Protocol,
            format!("frame exceeds limit: body_bytes={body_bytes}, body_bytes_max={FRAME_BYTES_MAX}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSet, Request};

    #[test]
    fn header_survives_the_round_trip() {
        for kind in [FrameKind::Message, FrameKind::Schema, FrameKind::Batch] {
            let header = FrameHeader { kind, body_bytes: 70_000 };
            assert_eq!(FrameHeader::decode(header.encode().unwrap()).unwrap(), header);
        }
    }

    #[test]
    fn oversized_and_unknown_headers_are_refused() {
        assert!(FrameHeader { kind: FrameKind::Batch, body_bytes: FRAME_BYTES_MAX + 1 }.encode().is_err());
        assert!(FrameHeader::decode([1, 0, 0, 0, 9]).is_err());
        assert!(FrameHeader::decode([255, 255, 255, 255, 0]).is_err());
    }

    #[test]
    fn message_survives_the_round_trip() {
        let request = Request::Identify {
            tables: vec![FileSet::parquet(vec!["/a".into()])],
            access: crate::StoreAccess::default(),
        };
        let frame = encode_message(&request).unwrap();
        let header = FrameHeader::decode(frame[..FRAME_HEADER_BYTES].try_into().unwrap()).unwrap();
        assert_eq!(header.body_bytes, frame.len() - FRAME_HEADER_BYTES);
        assert_eq!(decode_message::<Request>(&frame[FRAME_HEADER_BYTES..]).unwrap(), request);
    }

    #[test]
    fn garbage_is_an_error() {
        assert_eq!(decode_message::<Request>(&[250, 1, 2]).unwrap_err().kind, ErrorKind::Protocol);
    }
}
