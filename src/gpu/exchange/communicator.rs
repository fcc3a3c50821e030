//! What carries bytes between ranks: the seam between exchanges and a kind of network.
//!
//! ```text
//! network thread ── begin_gather ─► … poll_gather ─► every rank's block        control: small, to all
//!                ── begin_transfers ─► … poll_transfers ─► so many are done    data: grouped sends and receives, sizes agreed before
//! ```
//!
//! Gathers go over control sockets between each two ranks (`socket/gather.rs`), over any network. What moves parts is a [`Transfers`]:
//! copy engines, sockets, or NCCL.
//!
//! A communicator only begins things and says whether they are over. Whoever drives it waits, in one place
//! (`network.rs`), with a deadline and between looks at everything else: no method here waits for another rank.
//!
//! How NCCL fits (`ncclConfig_t::blocking = 0`, version 2.18 or later):
//!
//! | here | NCCL |
//! |---|---|
//! | `begin_transfers` | `ncclGroupStart`, every `ncclSend` and `ncclRecv` in the order of the lists, `ncclGroupEnd` (it may say `ncclInProgress`), then an event once it is enqueued |
//! | `poll_transfers` | `ncclCommGetAsyncError`, while that is `ncclInProgress` nothing else; then `cuEventQuery`, oldest group first |
//! | `abort` | `ncclCommAbort`. Only the network thread is ever within NCCL, so that nobody is in it then. The device's work ends by it; the communicator is of no more use, and the next generation has another one. |
//!
//! A rank that gives up tells no other one through NCCL: the others hear it on their control sockets.
//!
//! Invariants: one thread uses a communicator. All ranks begin the same gathers and groups in the same order. A peer that fails
//! is `ErrorKind::Peer`, never `Device`. No call of the device's driver lasts as long as a peer takes, so that
//! [`crate::device::CallWatch`] never finds a thread that only waits for another rank.
//!
//! Source: rounds by one thread per rank as in PystachIO (arXiv 2512.02862), section 5.4; non-blocking communicators and abort as
//! in the NCCL user guide ("Fault tolerance").

use std::os::fd::BorrowedFd;

use pystachio_plan::{Error, ErrorKind, Result};

use super::Rank;
use crate::device::Stream;

/// Bytes for another rank, or for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendPart {
    /// Who gets them.
    pub to: Rank,
    /// Where they are in the exchange region.
    pub address: u64,
    /// How many; the receiver expects as many.
    pub bytes: u64,
}

/// Room for bytes of another rank, or of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivePart {
    /// Who sends them.
    pub from: Rank,
    /// Where they go in the exchange region.
    pub address: u64,
    /// How many; the sender sends as many.
    pub bytes: u64,
}

/// What moves parts between all ranks.
///
/// # Ordering
///
/// Parts of one pair of ranks meet in the order of their lists, group after group. Groups end in the order in which they were begun.
///
/// # Errors
///
/// Every method but [`Transfers::abort`]: `Peer` for another rank that is known to have failed, with its number and reason in the message;
/// `Device` for a fault of this rank's own device. After an error only `abort` is called.
pub trait Transfers: Send + 'static {
    /// This rank.
    fn rank(&self) -> Rank;

    /// How many ranks there are.
    fn rank_count(&self) -> usize;

    /// The stream of all transfers on this rank's device. It reads and writes parts only: whoever drives it sees to it that what is sent
    /// has been written, and what is received into is used by nobody, before a group begins.
    fn stream(&self) -> Stream;

    /// Begins to move a group of parts.
    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()>;

    /// How many groups are over since the first one, that of [`super::warm_up()`] among them; does not wait. What a group that is over received
    /// is there for every stream.
    fn poll_transfers(&mut self) -> Result<u64>;

    /// What there is something to read of when a poll may find more.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// The ranks that the oldest group waits for, as far as that is known.
    fn missing_in_group(&self) -> Vec<Rank>;

    /// Gives up: no call of any rank waits for this one any more. What is on its way ends in any state, and what it reads and writes
    /// until then is ordered by [`Transfers::stream`].
    fn abort(&mut self, _reason: &Error) {}
}

/// One rank's end of what connects all ranks.
///
/// # Ordering
///
/// The n-th gather of one rank is the n-th of every other. A gather waits for no group: a rank that can't move data tells so all the same.
pub trait Communicator: Transfers {
    /// Begins to tell every rank some bytes. There is no other gather on its way.
    fn begin_gather(&mut self, block: &[u8]) -> Result<()>;

    /// What every rank told, in the order of ranks, once all have; does not wait.
    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>>;

    /// Whether another rank has begun a gather that this one has not.
    fn is_awaited(&mut self) -> bool;

    /// The ranks that the gather on its way waits for.
    fn missing_in_gather(&self) -> Vec<Rank>;
}

/// What a query fails with because of another rank.
pub(super) fn peer_error(rank: Rank, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Peer, format!("rank {rank} {reason}"))
}

/// What ranks fail with that have waited for too long: for so long, and where.
pub(super) fn silence_error(missing: &[Rank], waited: impl std::fmt::Display) -> Error {
    match missing {
        [] => Error::new(ErrorKind::Peer, format!("some rank did not answer {waited}")),
        [rank] => peer_error(*rank, format!("did not answer {waited}")),
        ranks => {
            let ranks: Vec<String> = ranks.iter().map(Rank::to_string).collect();
            Error::new(ErrorKind::Peer, format!("ranks {} did not answer {waited}", ranks.join(", ")))
        }
    }
}
