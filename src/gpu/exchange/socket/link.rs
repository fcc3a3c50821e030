//! The two sockets between two ranks.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use pystachio_plan::{Error, Result};

use super::descriptors::{receive_with, send_with};

/// A stream socket whose calls do not wait.
#[derive(Debug)]
pub struct LinkSocket(LinkStream);

#[derive(Debug)]
enum LinkStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// The result of a call on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketProgress {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The stream has ended.
    End,
}

/// The connection of two ranks: the sockets of both ends are of the same kind, and both use the
/// same one for control.
#[derive(Debug)]
pub struct RankLink {
    /// For control messages.
    pub control: LinkSocket,
    /// For parts.
    pub data: LinkSocket,
}

impl LinkSocket {
    /// A connected Unix socket, by its descriptor.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn unix(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from(descriptor);
        socket.set_nonblocking(true)?;
        Ok(Self(LinkStream::Unix(socket)))
    }

    /// A connection to another host.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // A round consists of some small writes, for each of which others wait.
        socket.set_nodelay(true)?;
        Ok(Self(LinkStream::Tcp(socket)))
    }

    /// The descriptor, for a process that it is handed to.
    pub fn into_descriptor(self) -> OwnedFd {
        match self.0 {
            LinkStream::Unix(socket) => socket.into(),
            LinkStream::Tcp(socket) => socket.into(),
        }
    }

    /// Its descriptor, as long as it lives.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.0 {
            LinkStream::Unix(socket) => socket.as_fd(),
            LinkStream::Tcp(socket) => socket.as_fd(),
        }
    }

    /// Reads available bytes.
    pub(super) fn read(&mut self, target: &mut [u8]) -> SocketProgress {
        moved(|| match &mut self.0 {
            LinkStream::Unix(socket) => socket.read(target),
            LinkStream::Tcp(socket) => socket.read(target),
        })
    }

    /// Writes as many bytes as there is room for, the first with descriptors; over a Unix socket
    /// only.
    pub(super) fn write_with(&self, source: &[u8], descriptors: &[OwnedFd]) -> SocketProgress {
        match &self.0 {
            LinkStream::Unix(socket) => moved(|| send_with(socket.as_fd(), source, descriptors)),
            LinkStream::Tcp(_) => SocketProgress::End,
        }
    }

    /// Reads available bytes, and the descriptors that came with them; over a Unix socket only.
    pub(super) fn read_with(&self, target: &mut [u8]) -> (SocketProgress, Vec<OwnedFd>) {
        let LinkStream::Unix(socket) = &self.0 else { return (SocketProgress::End, Vec::new()) };
        let mut came = Vec::new();
        let read = moved(|| {
            let (bytes, descriptors) = receive_with(socket.as_fd(), target)?;
            came = descriptors;
            Ok(bytes)
        });
        (read, came)
    }

    /// Writes as many bytes as there is room for.
    pub(super) fn write(&mut self, source: &[u8]) -> SocketProgress {
        moved(|| match &mut self.0 {
            LinkStream::Unix(socket) => socket.write(source),
            LinkStream::Tcp(socket) => socket.write(source),
        })
    }
}

impl LinkSocket {
    /// Writes pending bytes, as far as there is room. If the connection has ended, drops them:
    /// reading finds out why.
    pub(super) fn write_waiting(&mut self, waiting: &mut VecDeque<u8>) {
        loop {
            let (first, _) = waiting.as_slices();
            if first.is_empty() {
                return;
            }
            match self.write(first) {
                SocketProgress::Bytes(bytes) => drop(waiting.drain(..bytes)),
                SocketProgress::Nothing => return,
                SocketProgress::End => waiting.clear(),
            }
        }
    }

    /// Ends this side's stream: the other side reads the written bytes, and then the end.
    pub(super) fn end(&self) {
        // If it has ended already, there is nothing to do.
        let _ = match &self.0 {
            LinkStream::Unix(socket) => socket.shutdown(Shutdown::Write),
            LinkStream::Tcp(socket) => socket.shutdown(Shutdown::Write),
        };
    }
}

/// A failed connection has ended: it is of no further use.
fn moved(mut call: impl FnMut() -> io::Result<usize>) -> SocketProgress {
    loop {
        match call() {
            Ok(0) => return SocketProgress::End,
            Ok(bytes) => return SocketProgress::Bytes(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return SocketProgress::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return SocketProgress::End,
        }
    }
}

/// Links between all ranks of one host: for each rank one to every other, and none at its own place.
///
/// # Errors
///
/// `Internal` if the process can't have as many sockets: each pair of ranks has two, and each of
/// these two ends.
pub fn links_of_one_host(rank_count: usize) -> Result<Vec<Vec<Option<RankLink>>>> {
    let mut links: Vec<Vec<Option<RankLink>>> =
        (0..rank_count).map(|_| Vec::with_capacity(rank_count)).collect();
    for first in 0..rank_count {
        // Earlier iterations have put a link into its place already.
        let (to_first, to_others) = links.split_at_mut(first + 1);
        let Some(to_first) = to_first.last_mut() else { continue };
        to_first.push(None);
        for to_other in to_others {
            let (one, other) = pair().map_err(|error| {
                Error::internal(format!("no sockets between ranks: ranks={rank_count}: {error}"))
                    .with_hint("Each two ranks have two sockets between them. Raise the limit of open files (ulimit -n).")
            })?;
            to_first.push(Some(one));
            to_other.push(Some(other));
        }
    }
    Ok(links)
}

fn pair() -> io::Result<(RankLink, RankLink)> {
    let sockets = || -> io::Result<(LinkSocket, LinkSocket)> {
        let (one, other) = UnixStream::pair()?;
        Ok((LinkSocket::unix(one.into())?, LinkSocket::unix(other.into())?))
    };
    let (control, data) = (sockets()?, sockets()?);
    Ok((RankLink { control: control.0, data: data.0 }, RankLink { control: control.1, data: data.1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_link_to_each_other_one() {
        let mut links = links_of_one_host(4).unwrap();
        for (rank, links) in links.iter().enumerate() {
            let missing: Vec<usize> = (0..4).filter(|other| links[*other].is_none()).collect();
            assert_eq!((links.len(), missing), (4, vec![rank]));
        }
        let mut one = links[1][3].take().unwrap();
        let mut other = links[3][1].take().unwrap();
        assert_eq!(one.data.write(b"data"), SocketProgress::Bytes(4));
        let mut read = [0; 8];
        assert_eq!(
            (other.control.read(&mut read), other.data.read(&mut read)),
            (SocketProgress::Nothing, SocketProgress::Bytes(4))
        );
        drop(one);
        assert_eq!(other.control.read(&mut read), SocketProgress::End);
    }
}
