//! Greetings and whole frames from and to a socket.
//!
//! Invariants: a read that is dropped half way loses no byte. A frame is written whole, or the connection
//! is closed.

use std::io::{self, IoSlice};

use arrow::buffer::Buffer;
use pystachio_plan::{
    Error, ErrorKind, FRAME_HEADER_BYTES, FrameHeader, FrameKind, GREETING_HEADER_BYTES, GREETING_MARK_BYTES,
    Greeting, GreetingHeader, Response, Result, encode_message,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Frames up to this size are copied together and written at once.
const COPIED_BYTES_MAX: usize = 64 * 1024;
/// The most bytes that one read asks for.
const READ_BYTES_MAX: usize = 256 * 1024;

/// Reads frames from a socket.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    received: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Nothing read yet.
    pub fn new(source: R) -> Self {
        Self { source, received: Vec::new() }
    }

    /// The greeting, before any frame; `None` if the other side closes the connection without one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if something else comes; [`ErrorKind::Unavailable`] if the connection failed or was
    /// closed inside the greeting.
    pub async fn greeting(&mut self) -> Result<Option<Greeting>> {
        let mut header = [0; GREETING_HEADER_BYTES];
        let lost = |error: io::Error| connection_lost(&error.to_string());
        // What is older than greetings may send no more before it is answered.
        let (mark, rest) = header.split_at_mut(GREETING_MARK_BYTES);
        match self.source.read_exact(mark).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(lost(error)),
        }
        GreetingHeader::check_mark(mark)?;
        self.source.read_exact(rest).await.map_err(lost)?;
        let header = GreetingHeader::decode(header)?;
        let mut version = vec![0; header.version_bytes];
        self.source.read_exact(&mut version).await.map_err(lost)?;
        Ok(Some(header.with_version(&version)))
    }

    /// The next frame, or `None` if the other side has closed the connection between two frames. May be
    /// dropped at any time and called again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for a header that makes no sense; [`ErrorKind::Unavailable`] if the
    /// connection failed or was closed inside a frame.
    pub async fn next(&mut self) -> Result<Option<(FrameKind, Vec<u8>)>> {
        loop {
            let missing = match self.received.first_chunk::<FRAME_HEADER_BYTES>() {
                None => FRAME_HEADER_BYTES - self.received.len(),
                Some(header) => {
                    let header = FrameHeader::decode(*header)?;
                    let frame_bytes = FRAME_HEADER_BYTES + header.body_bytes;
                    if self.received.len() >= frame_bytes {
                        let rest = self.received.split_off(frame_bytes);
                        let mut frame = std::mem::replace(&mut self.received, rest);
                        frame.drain(..FRAME_HEADER_BYTES);
                        return Ok(Some((header.kind, frame)));
                    }
                    frame_bytes - self.received.len()
                }
            };
            self.received.reserve(missing.clamp(1024, READ_BYTES_MAX));
            match self.source.read_buf(&mut self.received).await {
                Ok(0) if self.received.is_empty() => return Ok(None),
                Ok(0) => return Err(connection_lost("closed inside a frame")),
                Ok(_) => {}
                Err(error) => return Err(connection_lost(&error.to_string())),
            }
        }
    }
}

/// A frame ready to be written.
#[derive(Clone, Debug)]
pub struct Frame {
    header: [u8; FRAME_HEADER_BYTES],
    body: Vec<Buffer>,
    body_bytes: usize,
}

impl Frame {
    /// A frame whose body is these buffers, one after the other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the body is larger than a frame can be.
    pub fn new(kind: FrameKind, body: Vec<Buffer>) -> Result<Self> {
        let body_bytes = body.iter().map(Buffer::len).sum();
        Ok(Self { header: FrameHeader { kind, body_bytes }.encode()?, body, body_bytes })
    }

    /// A message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the message is larger than a frame can be.
    pub fn message(response: &Response) -> Result<Self> {
        let frame = encode_message(response)?;
        let body = Buffer::from(frame).slice(FRAME_HEADER_BYTES);
        Self::new(FrameKind::Message, vec![body])
    }

    /// How long the body is.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Writes frames one after the other; small ones at once.
    ///
    /// # Errors
    ///
    /// As of [`Frame::write`].
    pub async fn write_all<W: AsyncWrite + Unpin>(frames: &[Self], target: &mut W) -> Result<()> {
        let bytes: usize = frames.iter().map(|frame| FRAME_HEADER_BYTES + frame.body_bytes).sum();
        if frames.len() == 1 || bytes > COPIED_BYTES_MAX {
            for frame in frames {
                frame.write(target).await?;
            }
            return Ok(());
        }
        let mut copy = Vec::with_capacity(bytes);
        frames.iter().for_each(|frame| frame.copy_to(&mut copy));
        target.write_all(&copy).await.map_err(|error| connection_lost(&error.to_string()))
    }

    fn copy_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.header);
        self.body.iter().for_each(|buffer| bytes.extend_from_slice(buffer));
    }

    /// Writes the frame, waiting for the other side as long as it takes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the connection failed; it is then of no more use.
    pub async fn write<W: AsyncWrite + Unpin>(&self, target: &mut W) -> Result<()> {
        let written = if self.body_bytes <= COPIED_BYTES_MAX {
            let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + self.body_bytes);
            self.copy_to(&mut bytes);
            target.write_all(&bytes).await
        } else {
            self.write_slices(target).await
        };
        written.map_err(|error| connection_lost(&error.to_string()))
    }

    async fn write_slices<W: AsyncWrite + Unpin>(&self, target: &mut W) -> io::Result<()> {
        let mut slices = Vec::with_capacity(self.body.len() + 1);
        slices.push(IoSlice::new(&self.header));
        slices.extend(self.body.iter().map(|buffer| IoSlice::new(buffer)));
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let written = target.write_vectored(rest).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }
}

pub(crate) fn connection_lost(reason: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("connection is lost: {reason}"))
}
