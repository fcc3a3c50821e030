//! A stream socket on which descriptors come and go with the bytes.
//!
//! Invariants: a descriptor that came belongs to the process from then on, and is closed on exec. More than some are never kept.
#![expect(
    unsafe_code,
    reason = "descriptors travel in control messages, which the standard library has no calls for"
)]

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    pin::Pin,
    ptr,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use pystachio_engine::locking::lock_whole;
use tokio::{
    io::{AsyncRead, Interest, ReadBuf},
    net::UnixStream,
};

/// Descriptors that one message carries: `SCM_MAX_FD` of Linux.
pub(super) const DESCRIPTORS_MAX: usize = 253;
/// Room for them, and for the head of the control message.
const CONTROL_BYTES: usize = 16 + DESCRIPTORS_MAX * size_of::<RawFd>() + 4;
const _: () = assert!(CONTROL_BYTES.is_multiple_of(8));

/// Where control messages lie, as aligned as their heads must be.
#[repr(C, align(8))]
struct ControlSpace([u8; CONTROL_BYTES]);

/// Descriptors that came and nobody has taken.
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
            let read = stream.try_io(Interest::READABLE, || receive(stream.as_raw_fd(), target));
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
        let sent = stream.try_io(Interest::WRITABLE, || send(stream.as_raw_fd(), &bytes[written..], left));
        match sent {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => (written, left) = (written + more, &[]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send(socket: RawFd, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<usize> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::other("more descriptors than a message has"));
    }
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut space = ControlSpace([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !numbers.is_empty() {
        let payload_bytes = mem::size_of_val(numbers.as_slice());
        // SAFETY: the space has room for a head and as many numbers, which is what its macros compute; the first head
        // lies at its beginning.
        unsafe {
            message.msg_control = (&raw mut space.0).cast();
            message.msg_controllen = libc::CMSG_SPACE(payload_bytes as u32) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(payload_bytes as u32) as _;
            ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), libc::CMSG_DATA(head), payload_bytes);
        }
    }
    // SAFETY: the message's parts live until the call returns.
    let sent = unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn receive(socket: RawFd, target: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = ControlSpace([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut space.0).cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the message's parts live until the call returns.
    let read =
        unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) };
    let bytes = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    let descriptors = descriptors_of(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("descriptors did not come: the process has too many open files"));
    }
    Ok((bytes, descriptors))
}

/// What came beside the bytes of a message.
fn descriptors_of(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has written whole heads into the message's space, and its macros stay within that. Each number of a message of
    // rights is a new descriptor of this process, which nobody else knows.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*head).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for place in 0..count {
                    let number = libc::CMSG_DATA(head).cast::<RawFd>().add(place).read_unaligned();
                    descriptors.push(OwnedFd::from_raw_fd(number));
                }
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
    descriptors
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
        // Whoever sends them without end is heard no more.
        for _ in 0..2 {
            write_with(&writer, b"x", &open(DESCRIPTORS_MAX)).await.unwrap();
        }
        assert_eq!(reader.read_u8().await.unwrap(), b'x');
        assert!(reader.read_u8().await.is_err());
    }
}
