//! Messages on the connection between rank 0 and another rank.

use std::{os::fd::OwnedFd, sync::Arc};

use pystachio_plan::{Error, ErrorKind, FrameKind, Result, decode_message, encode_message};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use super::descriptors::{DescriptorReader, ReceivedDescriptors, write_with};
use crate::FrameReader;

/// The side that reads.
pub(super) struct ControlReader {
    frames: FrameReader<DescriptorReader>,
    descriptors: ReceivedDescriptors,
}

/// The side that writes.
pub(super) struct ControlWriter(Arc<UnixStream>);

/// Both sides of a connection.
///
/// # Errors
///
/// The system refuses.
pub(super) fn open(
    socket: std::os::unix::net::UnixStream,
) -> std::io::Result<(ControlReader, ControlWriter)> {
    socket.set_nonblocking(true)?;
    let stream = Arc::new(UnixStream::from_std(socket)?);
    let reader = DescriptorReader::new(stream.clone());
    let descriptors = reader.received();
    Ok((ControlReader { frames: FrameReader::new(reader), descriptors }, ControlWriter(stream)))
}

impl ControlReader {
    /// The next message; `None` if the other side has closed the connection. May be dropped at any time and called again.
    ///
    /// # Errors
    ///
    /// `Protocol` for what is no message of this kind, `Unavailable` if the connection failed.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        match self.frames.next().await? {
            None => Ok(None),
            Some((FrameKind::Message, body)) => decode_message(&body).map(Some),
            Some((kind, _)) => {
                let message = format!("ranks send messages only: frame_kind={kind:?}");
                Err(Error::new(ErrorKind::Protocol, message))
            }
        }
    }

    /// Descriptors that came with the message that was read last.
    ///
    /// # Errors
    ///
    /// `Protocol` if fewer came.
    pub(super) fn take_descriptors(&self, count: u32) -> Result<Vec<OwnedFd>> {
        let taken = self.descriptors.take(count as usize);
        taken.ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                format!("fewer descriptors came than a message has: descriptors={count}"),
            )
        })
    }
}

impl ControlWriter {
    /// Sends a message, and descriptors with it; waits for the other side as long as it takes.
    ///
    /// # Errors
    ///
    /// `Protocol` for a message that is too large, `Unavailable` if the connection failed.
    pub(super) async fn send<T: Serialize>(&self, message: &T, descriptors: &[OwnedFd]) -> Result<()> {
        let bytes = encode_message(message)?;
        let sent = write_with(&self.0, &bytes, descriptors).await;
        sent.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("connection between ranks is lost: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ranks::message::{FromRank, ToRank};

    fn pair() -> (std::os::unix::net::UnixStream, ControlReader) {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        (one, open(other).unwrap().0)
    }

    #[tokio::test]
    async fn messages_come_in_their_order_until_the_end() {
        let (one, mut reader) = pair();
        let (_, writer) = open(one).unwrap();
        for query in 0..3 {
            writer.send(&ToRank::Stop { query }, &[]).await.unwrap();
        }
        drop(writer);
        for query in 0..3 {
            assert_eq!(reader.next::<ToRank>().await.unwrap(), Some(ToRank::Stop { query }));
        }
        assert_eq!(reader.next::<ToRank>().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_no_message_is_an_error() {
        for (bytes, kind) in [
            (&b"\x03\0\0\0\0\xff\xff\xff"[..], ErrorKind::Protocol),
            (b"\xff\xff\xff\xff\0", ErrorKind::Protocol),
            (b"\0\0\0\0\x02", ErrorKind::Protocol),
            (b"\x03\0\0\0\0\x01", ErrorKind::Unavailable),
        ] {
            let (mut one, mut reader) = pair();
            one.write_all(bytes).unwrap();
            drop(one);
            assert_eq!(reader.next::<FromRank>().await.unwrap_err().kind, kind, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn descriptors_that_did_not_come_are_an_error() {
        let (one, mut reader) = pair();
        let (_, writer) = open(one).unwrap();
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        writer.send(&ToRank::Stop { query: 1 }, &[file]).await.unwrap();
        assert!(reader.next::<ToRank>().await.unwrap().is_some());
        assert_eq!(reader.take_descriptors(2).unwrap_err().kind, ErrorKind::Protocol);
        assert_eq!(reader.take_descriptors(1).unwrap().len(), 1);
    }
}
