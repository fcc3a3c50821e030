//! The interface between exchanges and a kind of network, which carries bytes between ranks.
//!
//! ```text
//! network thread ── begin_gather ─► … poll_gather ─► every rank's block        control: small, to all
//!                ── begin_transfers ─► … poll_transfers ─► so many are done    data: grouped sends and receives, sizes agreed before
//! ```
//!
//! Gathers go over control sockets between each two ranks (`socket/gather.rs`), over any network. A
//! [`Transfers`] moves parts: by copy engines, sockets, or NCCL.
//!
//! A communicator only begins operations and reports whether they have ended. The network thread
//! waits, in one place (`network.rs`), with a deadline, and polls everything else meanwhile: no
//! method here waits for another rank.
//!
//! How NCCL fits (`ncclConfig_t::blocking = 0`, version 2.18 or later):
//!
//! | here | NCCL |
//! |---|---|
//! | `begin_transfers` | `ncclGroupStart`, every `ncclSend` and `ncclRecv` in the order of the lists, `ncclGroupEnd` (it may say `ncclInProgress`), then an event once it is enqueued |
//! | `poll_transfers` | `ncclCommGetAsyncError`, while that is `ncclInProgress` nothing else; then `cuEventQuery`, oldest group first |
//! | `abort` | `ncclCommAbort`. Only the network thread calls NCCL, so no other call is running then. It ends the device's work; the communicator is of no further use, and the next generation has another one. |
//!
//! NCCL does not tell other ranks that a rank gives up: they receive that on their control sockets.
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
    /// The receiver.
    pub to: Rank,
    /// Their address in the exchange region.
    pub address: u64,
    /// Their number; the receiver expects as many.
    pub bytes: u64,
}

/// Room for bytes of another rank, or of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivePart {
    /// The sender.
    pub from: Rank,
    /// Their target address in the exchange region.
    pub address: u64,
    /// Their number; the sender sends as many.
    pub bytes: u64,
}

/// Moves parts between all ranks.
///
/// # Ordering
///
/// Parts of one pair of ranks meet in the order of their lists, group after group. Groups end in the order in which they were begun.
///
/// # Errors
///
/// Every method but [`Transfers::abort`]: `Peer` for another rank that is known to have failed,
/// with its number and reason in the message; `Device` for a fault of this rank's own device. After
/// an error only `abort` may be called.
pub trait Transfers: Send + 'static {
    /// This rank.
    fn rank(&self) -> Rank;

    /// How many ranks there are.
    fn rank_count(&self) -> usize;

    /// The stream of all transfers on this rank's device. It only reads and writes parts. The
    /// caller ensures that parts to be sent are written, and that the targets of parts to be
    /// received are unused, before a group begins.
    fn stream(&self) -> Stream;

    /// Begins to move a group of parts.
    fn begin_transfers(&mut self, sends: &[SendPart], receives: &[ReceivePart]) -> Result<()>;

    /// The number of groups that have ended since the first one, including that of
    /// [`super::warm_up()`]; does not wait. Parts received by an ended group may be used on every
    /// stream.
    fn poll_transfers(&mut self) -> Result<u64>;

    /// A descriptor that becomes readable when a poll may find more.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// The ranks that the oldest group waits for, as far as known.
    fn missing_in_group(&self) -> Vec<Rank>;

    /// Gives up: no call of any rank waits for this one any more. Pending operations end in any
    /// state; [`Transfers::stream`] orders their reads and writes until then.
    fn abort(&mut self, _reason: &Error) {}
}

/// One rank's end of the connections between all ranks.
///
/// # Ordering
///
/// The n-th gather of one rank is the n-th of every other. A gather waits for no group, so a rank
/// that can't move data can still report it.
pub trait Communicator: Transfers {
    /// Begins to send some bytes to every rank. No other gather may be running.
    fn begin_gather(&mut self, block: &[u8]) -> Result<()>;

    /// The bytes of every rank, in the order of ranks, once all have arrived; does not wait.
    fn poll_gather(&mut self) -> Result<Option<Vec<Vec<u8>>>>;

    /// Whether another rank has begun a gather that this one has not.
    fn is_awaited(&mut self) -> bool;

    /// The ranks that the running gather waits for.
    fn missing_in_gather(&self) -> Vec<Rank>;
}

/// A query's error because of another rank.
pub(super) fn peer_error(rank: Rank, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Peer, format!("rank {rank} {reason}"))
}

/// The error of ranks that have waited too long: how long, and where.
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
