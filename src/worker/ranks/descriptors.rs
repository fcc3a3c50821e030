//! A stream socket that carries descriptors beside bytes.
//!
//! Invariants: the process owns a received descriptor and closes it on exec. The number of descriptors that wait is bounded.
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use pystachio_engine::locking::lock_whole;
use pystachio_gpu::exchange::{DESCRIPTORS_MAX, receive_with, send_with};
use tokio::{
    io::{AsyncRead, Interest, ReadBuf},
    net::UnixStream,
};

/// Received descriptors that were not taken yet.
#[derive(Clone, Default)]
pub(super) struct ReceivedDescriptors(Arc<Mutex<VecDeque<OwnedFd>>>);

impl ReceivedDescriptors {
    /// The next ones; `None` if there are not as many.
    pub(super) fn take(&self, count: usize) -> Option<Vec<OwnedFd>> {
        let mut received = lock_whole(&self.0);
        (received.len() >= count).then(|| received.drain(..count).collect())
    }
}

/// The side that reads.
pub(super) struct DescriptorReader {
    stream: Arc<UnixStream>,
    received: ReceivedDescriptors,
}

impl DescriptorReader {
    pub(super) fn new(stream: Arc<UnixStream>) -> Self {
        Self { stream, received: ReceivedDescriptors::default() }
    }

    /// What comes beside the bytes. A descriptor is there before the bytes that came with it are read.
    pub(super) fn received(&self) -> ReceivedDescriptors {
        self.received.clone()
    }
}

impl AsyncRead for DescriptorReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, received } = self.get_mut();
        loop {
            ready!(stream.poll_read_ready(context))?;
            let target = buffer.initialize_unfilled();
            let read = stream.try_io(Interest::READABLE, || receive_with(stream.as_fd(), target));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok((bytes, descriptors)) => {
                    let mut received = lock_whole(&received.0);
                    if received.len() + descriptors.len() > DESCRIPTORS_MAX {
                        return Poll::Ready(Err(io::Error::other("more descriptors than a message has")));
                    }
                    received.extend(descriptors);
                    drop(received);
                    buffer.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// Writes bytes, the first of which have descriptors with them.
///
/// # Errors
///
/// The connection failed, or there are too many descriptors.
pub(super) async fn write_with(stream: &UnixStream, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
    let (mut written, mut left) = (0, descriptors);
    while written < bytes.len() {
        stream.writable().await?;
        let sent = stream.try_io(Interest::WRITABLE, || send_with(stream.as_fd(), &bytes[written..], left));
        match sent {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => (written, left) = (written + more, &[]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use tokio::io::AsyncReadExt;

    use super::*;

    fn pair() -> (UnixStream, DescriptorReader) {
        let (one, other) = UnixStream::pair().unwrap();
        (one, DescriptorReader::new(Arc::new(other)))
    }

    #[tokio::test]
    async fn descriptors_come_with_the_bytes_that_they_were_sent_with() {
        let (writer, mut reader) = pair();
        let received = reader.received();
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        write_with(&writer, b"before", &[]).await.unwrap();
        write_with(&writer, b"with", &[theirs.into()]).await.unwrap();
        let mut bytes = [0; 6];
        reader.read_exact(&mut bytes).await.unwrap();
        assert_eq!((&bytes, received.take(1).is_none()), (b"before", true));
        let mut bytes = [0; 4];
        reader.read_exact(&mut bytes).await.unwrap();
        let descriptor = received.take(1).unwrap().remove(0);
        ours.write_all(b"through").unwrap();
        let mut read = [0; 7];
        std::os::unix::net::UnixStream::from(descriptor).read_exact(&mut read).unwrap();
        assert_eq!((&bytes, &read), (b"with", b"through"));
    }

    #[tokio::test]
    async fn as_many_as_a_message_carries_come_and_more_are_refused() {
        let (writer, mut reader) = pair();
        let received = reader.received();
        let open = |count: usize| -> Vec<OwnedFd> {
            let file = std::fs::File::open("/dev/null").unwrap();
            (0..count).map(|_| file.try_clone().unwrap().into()).collect()
        };
        assert!(write_with(&writer, b"x", &open(DESCRIPTORS_MAX + 1)).await.is_err());
        write_with(&writer, b"x", &open(DESCRIPTORS_MAX)).await.unwrap();
        assert_eq!(reader.read_u8().await.unwrap(), b'x');
        assert!(received.take(DESCRIPTORS_MAX + 1).is_none());
        assert_eq!(received.take(DESCRIPTORS_MAX).unwrap().len(), DESCRIPTORS_MAX);
        // A sender of too many descriptors is cut off.
        for _ in 0..2 {
            write_with(&writer, b"x", &open(DESCRIPTORS_MAX)).await.unwrap();
        }
        assert_eq!(reader.read_u8().await.unwrap(), b'x');
        assert!(reader.read_u8().await.is_err());
    }
}
