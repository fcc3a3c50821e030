//! Links between ranks of several hosts: TCP connections whose ends prove to each other that rank 0 invited them.
//!
//! ```text
//! rank k                                          rank j < k, which listens
//!   hello: magic u32 │ k u16 │ j u16 │ socket u8 │ zeros 7 │ nonce 32 ─►
//!                       ◄─ nonce 32 │ HMAC of token over "listener", hello and nonce 32
//!   HMAC of token over "caller", hello and the listener's nonce 32 ────►
//! ```
//!
//! The token belongs to one generation. Ranks get it with their invitation, over encrypted connections. It is never sent on a link, and
//! proofs are compared in constant time. The link itself is not encrypted.
//!
//! Invariants: no wait is longer than [`LINKS_MAX`]. A caller without a proof is dropped, takes no rank's place, and causes no error.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use pystachio_gpu::exchange::{LinkSocket, Rank, RankLink};
use pystachio_plan::{Error, ErrorKind, Result};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// All links of a rank are there within that, or it can't be connected.
const LINKS_MAX: Duration = Duration::from_secs(5);
/// A caller must prove its invitation within this time.
const PROOF_MAX: Duration = Duration::from_secs(2);
/// A rank that could not connect tries again after this time: the other end may not have its invitation yet.
const CALL_AGAIN: Duration = Duration::from_millis(50);
/// Callers that are heard at once; strangers may be among them.
const CALLERS_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"PXL\n";
const HELLO_BYTES: usize = 48;
const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
/// For control and for data.
const SOCKETS: u8 = 2;

/// The secret that the ranks of one generation share.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkToken([u8; 32]);

impl fmt::Debug for LinkToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LinkToken")
    }
}

impl LinkToken {
    /// A new one.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub(super) fn new() -> Result<Self> {
        random().map(Self)
    }

    fn proof(&self, side: &str, hello: &[u8; HELLO_BYTES], nonce: &[u8; NONCE_BYTES]) -> hmac::Tag {
        hmac::sign(&self.key(), &proven(side, hello, nonce))
    }

    /// Whether a proof is one; the time that it takes tells nothing.
    fn is_proven(
        &self,
        side: &str,
        hello: &[u8; HELLO_BYTES],
        nonce: &[u8; NONCE_BYTES],
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        hmac::verify(&self.key(), &proven(side, hello, nonce), proof).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

fn proven(side: &str, hello: &[u8], nonce: &[u8]) -> Vec<u8> {
    [side.as_bytes(), hello, nonce].concat()
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::internal("the system has no random bytes"))?;
    Ok(bytes)
}

/// Where a rank is linked with those of higher numbers. It listens on its host's address alone, on a port that the system chooses.
#[derive(Debug)]
pub struct LinkListener {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl LinkListener {
    /// Listens on a host of this name.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the name has no address of this host.
    pub fn bind(host_name: &str) -> Result<Self> {
        let listen = || -> io::Result<Self> {
            let addresses: Vec<SocketAddr> = (host_name, 0).to_socket_addrs()?.collect();
            let listener = std::net::TcpListener::bind(addresses.as_slice())?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        listen().map_err(|error| {
            let message = format!("ranks of other hosts can't be linked: host={host_name}: {error}");
            Error::new(ErrorKind::Unavailable, message)
                .with_hint("Set the server option host to an address of this host.")
        })
    }

    /// Where others connect to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Links with all other ranks, which are at these addresses, by rank. Waits for them, not on a thread of a runtime.
    ///
    /// # Errors
    ///
    /// `Peer` for a rank that is not there in time.
    pub(super) fn link(
        &self,
        (rank, rank_count): (Rank, usize),
        token: &LinkToken,
        addresses: &[SocketAddr],
    ) -> Result<Vec<Option<RankLink>>> {
        if addresses.len() != rank_count || rank.place() >= rank_count {
            let message = format!(
                "ranks are not linked by these addresses: rank={rank}, ranks={rank_count}, addresses={}",
                addresses.len()
            );
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        let failed =
            |error: io::Error| Error::internal(format!("links between ranks can't be made: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let mut links = LinkTable::new(rank, rank_count);
        let linked = runtime.block_on(async {
            let listener = TcpListener::from_std(self.listener.try_clone()?)?;
            let linked = links.gather(&listener, token, addresses);
            io::Result::Ok(tokio::time::timeout(LINKS_MAX, linked).await.unwrap_or(Ok(())))
        });
        linked.map_err(failed)??;
        links.finish()
    }
}

/// Sockets between a rank and others, as they come about.
struct LinkTable {
    rank: Rank,
    sockets: Vec<[Option<TcpStream>; SOCKETS as usize]>,
}

/// One of the sockets with another rank.
type Linked = (Rank, u8, TcpStream);

impl LinkTable {
    fn new(rank: Rank, rank_count: usize) -> Self {
        Self { rank, sockets: (0..rank_count).map(|_| [None, None]).collect() }
    }

    fn missing(&self) -> Option<Rank> {
        let others = (0..self.sockets.len()).filter(|place| *place != self.rank.place());
        let mut missing = others.filter(|place| self.sockets[*place].iter().any(Option::is_none));
        missing.next().map(|place| Rank(place as u16))
    }

    /// Calls those of lower numbers, and listens for those of higher ones.
    async fn gather(
        &mut self,
        listener: &TcpListener,
        token: &LinkToken,
        addresses: &[SocketAddr],
    ) -> Result<()> {
        let rank = self.rank;
        let mut calls: JoinSet<Result<Linked>> = JoinSet::new();
        for (other, address) in (0..rank.0).zip(addresses) {
            for socket in 0..SOCKETS {
                calls.spawn(call(hello((rank, Rank(other)), socket)?, *address, token.clone()));
            }
        }
        let mut callers: JoinSet<Option<Linked>> = JoinSet::new();
        while self.missing().is_some() {
            tokio::select! {
                Some(called) = calls.join_next() => {
                    self.take(called.map_err(|error| Error::internal(format!("a call panicked: {error}")))??);
                }
                Some(Ok(caller)) = callers.join_next() => {
                    caller.into_iter().for_each(|linked| self.take(linked));
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if callers.len() < CALLERS_MAX => {
                        callers.spawn(answer(stream, (rank, addresses.len()), token.clone(), random()?));
                    }
                    // One too many, or one that was gone at once.
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(CALL_AGAIN).await,
                },
            }
        }
        Ok(())
    }

    fn take(&mut self, (other, socket, stream): Linked) {
        let place =
            self.sockets.get_mut(other.place()).and_then(|sockets| sockets.get_mut(usize::from(socket)));
        if let Some(place) = place {
            *place = Some(stream);
        }
    }

    fn finish(self) -> Result<Vec<Option<RankLink>>> {
        if let Some(missing) = self.missing() {
            let message = format!("rank {missing} was not linked with within {LINKS_MAX:?}");
            return Err(Error::new(ErrorKind::Peer, message)
                .with_hint("Hosts connect to all ports of each other's addresses in the server option hosts: let firewalls pass them."));
        }
        let socket = |stream: Option<TcpStream>| -> Result<Option<LinkSocket>> {
            let opened = stream.map(|stream| LinkSocket::tcp(stream.into_std()?)).transpose();
            opened.map_err(|error: io::Error| Error::internal(format!("a link can't be used: {error}")))
        };
        let link = |[control, data]: [Option<TcpStream>; 2]| -> Result<Option<RankLink>> {
            Ok(socket(control)?.zip(socket(data)?).map(|(control, data)| RankLink { control, data }))
        };
        self.sockets.into_iter().map(link).collect()
    }
}

fn hello((from, to): (Rank, Rank), socket: u8) -> Result<[u8; HELLO_BYTES]> {
    let mut hello = [0; HELLO_BYTES];
    hello[..4].copy_from_slice(&MAGIC);
    hello[4..6].copy_from_slice(&from.0.to_le_bytes());
    hello[6..8].copy_from_slice(&to.0.to_le_bytes());
    hello[8] = socket;
    hello[16..].copy_from_slice(&random::<NONCE_BYTES>()?);
    Ok(hello)
}

/// Connects to a rank, again and again.
async fn call(hello: [u8; HELLO_BYTES], address: SocketAddr, token: LinkToken) -> Result<Linked> {
    let other = Rank(u16::from_le_bytes([hello[6], hello[7]]));
    loop {
        let called = tokio::time::timeout(PROOF_MAX, call_once(&hello, address, &token)).await;
        if let Ok(Ok(Some(stream))) = called {
            return Ok((other, hello[8], stream));
        }
        tokio::time::sleep(CALL_AGAIN).await;
    }
}

/// A stream whose other end has proven itself; none if it has not.
async fn call_once(
    hello: &[u8; HELLO_BYTES],
    address: SocketAddr,
    token: &LinkToken,
) -> io::Result<Option<TcpStream>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(hello).await?;
    let (mut nonce, mut proof) = ([0; NONCE_BYTES], [0; PROOF_BYTES]);
    stream.read_exact(&mut nonce).await?;
    stream.read_exact(&mut proof).await?;
    if !token.is_proven("listener", hello, &nonce, &proof) {
        return Ok(None);
    }
    stream.write_all(token.proof("caller", hello, &nonce).as_ref()).await?;
    Ok(Some(stream))
}

/// Reads the caller's hello and proof. Returns its rank, which is above this one, or none.
async fn answer(
    mut stream: TcpStream,
    (rank, rank_count): (Rank, usize),
    token: LinkToken,
    nonce: [u8; NONCE_BYTES],
) -> Option<Linked> {
    let heard = async {
        stream.set_nodelay(true)?;
        let (mut hello, mut proof) = ([0; HELLO_BYTES], [0; PROOF_BYTES]);
        stream.read_exact(&mut hello).await?;
        let [from, to] = [4, 6].map(|place| u16::from_le_bytes([hello[place], hello[place + 1]]));
        let is_expected = hello[..4] == MAGIC
            && to == rank.0
            && (rank.place() + 1..rank_count).contains(&usize::from(from))
            && hello[8] < SOCKETS;
        if !is_expected {
            return Ok(None);
        }
        stream.write_all(&nonce).await?;
        stream.write_all(token.proof("listener", &hello, &nonce).as_ref()).await?;
        stream.read_exact(&mut proof).await?;
        io::Result::Ok(token.is_proven("caller", &hello, &nonce, &proof).then_some((Rank(from), hello[8])))
    };
    match tokio::time::timeout(PROOF_MAX, heard).await {
        Ok(Ok(Some((other, socket)))) => Some((other, socket, stream)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn listeners(count: usize) -> (Vec<LinkListener>, Vec<SocketAddr>) {
        let listeners: Vec<_> = (0..count).map(|_| LinkListener::bind("127.0.0.1").unwrap()).collect();
        let addresses = listeners.iter().map(LinkListener::address).collect();
        (listeners, addresses)
    }

    /// What comes of all ranks, by rank, each of which has a token.
    fn link(
        listeners: &[LinkListener],
        addresses: &[SocketAddr],
        tokens: &[LinkToken],
    ) -> Vec<Result<Vec<Option<RankLink>>>> {
        let count = listeners.len();
        std::thread::scope(|scope| {
            let link = |place: usize| {
                move || listeners[place].link((Rank(place as u16), count), &tokens[place], addresses)
            };
            let threads: Vec<_> = (0..count).map(|place| scope.spawn(link(place))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_with_one_token_are_linked_whoever_else_calls() {
        let (listeners, addresses) = listeners(3);
        let token = LinkToken::new().unwrap();
        // One that says nothing, one that says something else, and one that knows no token.
        let _silent = std::net::TcpStream::connect(addresses[0]).unwrap();
        let mut other = std::net::TcpStream::connect(addresses[0]).unwrap();
        other.write_all(&[7; 100]).unwrap();
        let mut stranger = std::net::TcpStream::connect(addresses[0]).unwrap();
        stranger.write_all(&hello((Rank(2), Rank(0)), 0).unwrap()).unwrap();
        stranger.write_all(&[0; PROOF_BYTES]).unwrap();
        let linked = link(&listeners, &addresses, &vec![token; 3]);
        for (rank, links) in linked.into_iter().enumerate() {
            let there: Vec<bool> = links.unwrap().iter().map(Option::is_some).collect();
            assert_eq!(there, (0..3).map(|other| other != rank).collect::<Vec<_>>());
        }
        stranger.set_read_timeout(Some(PROOF_MAX)).unwrap();
        let mut answered = Vec::new();
        // It was told a proof that it can do nothing with, and is not heard.
        stranger.read_to_end(&mut answered).unwrap();
        assert_eq!(answered.len(), NONCE_BYTES + PROOF_BYTES);
    }

    #[test]
    fn a_rank_with_another_token_is_linked_with_nobody() {
        let (listeners, addresses) = listeners(2);
        let tokens = [LinkToken::new().unwrap(), LinkToken::new().unwrap()];
        assert_ne!(tokens[0], tokens[1]);
        for (links, missing) in link(&listeners, &addresses, &tokens).into_iter().zip([1, 0]) {
            let error = links.err().unwrap();
            assert_eq!(error.message, format!("rank {missing} was not linked with within 5s"));
            assert_eq!(error.kind, ErrorKind::Peer);
        }
    }

    #[test]
    fn what_is_proven_is_of_one_side_and_one_hello() {
        let token = LinkToken::new().unwrap();
        let (one, other) = (hello((Rank(1), Rank(0)), 0).unwrap(), hello((Rank(1), Rank(0)), 1).unwrap());
        let nonce = random().unwrap();
        let proof: [u8; PROOF_BYTES] = token.proof("caller", &one, &nonce).as_ref().try_into().unwrap();
        assert!(token.is_proven("caller", &one, &nonce, &proof));
        assert!(!token.is_proven("listener", &one, &nonce, &proof));
        assert!(!token.is_proven("caller", &other, &nonce, &proof));
        assert!(!token.is_proven("caller", &one, &random().unwrap(), &proof));
        assert_eq!(format!("{token:?}"), "LinkToken");
    }

    #[test]
    fn addresses_that_are_too_few_link_nobody() {
        let (listeners, addresses) = listeners(1);
        let linked = listeners[0].link((Rank(0), 2), &LinkToken::new().unwrap(), &addresses);
        let text = "ranks are not linked by these addresses: rank=0, ranks=2, addresses=1";
        assert_eq!(linked.err().unwrap().message, text);
        let error = LinkListener::bind("192.0.2.1").unwrap_err();
        assert!(
            error.message.starts_with("ranks of other hosts can't be linked: host=192.0.2.1: "),
            "{error}"
        );
    }
}
