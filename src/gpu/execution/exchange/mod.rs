//! Exchanges of a plan: the tree is cut there, and what is below sends its rows to other ranks by a driver of its own.
//!
//! ```text
//!                    below: a driver                              above: whoever asks
//! scan ─► join ─► SendingFragment ─► outbox ═ rounds ═ inbox ─► receiving driver ─► ReceivedRows ─► ExchangeSource ─► join
//!                                                                 │ no room            ▲ at the end
//!                                                                 └──── spill store ───┘
//! ```
//!
//! - `exchanges.rs`: all exchanges of a query on one rank, their threads, and how the query ends on all ranks
//! - `boxes.rs`: how much of the memory for exchanges each of them has
//! - `sending.rs`: the fragment below an exchange; `senders.rs`: other drivers that send its rows; `held_back.rs`: rows that wait for its end
//! - `owner_keys.rs`: whose rows are, and which stay because their keys are heavy
//! - `choice.rs`: whether a join's build side is broadcast after all
//! - `received.rs`: rows that came, held or spilled until somebody asks for them
//! - `shared_keys.rs`: keys of a build side that all ranks give to one another, for filters that pass exchanges
//! - `source.rs`: what is above an exchange reads; and `Own`, at which nothing moves
//!
//! Every rank runs the same tree, but for the root: rank 0 alone reads it. All fragments run at once, each by a driver with a
//! thread of its own, which others help to send, and each inbox is emptied by another one, whatever is read above it and in which order. What the receiving
//! driver gets no claim for it spills. So a rank that wants the rows of one exchange first keeps no other rank waiting for the room of another
//! one: nobody waits for a reader, and what is left to wait for is what is below, which is a tree.
//!
//! A fragment whose scans may have filters of joins above begins when these are settled, or have not been for a while.
//!
//! Rows are sent when all faults of the work before are known to be none: what a rank gets is what no fault has spoiled. A
//! fragment that nobody reads any more, on no rank, ends after the rows at hand.
//!
//! The rows of a `Merge` are sorted again on rank 0 and not merged: its sort holds and spills by range, runs on the device, and knows how few rows a
//! limit above it wants, while to merge runs means to wait for the slowest rank's next rows over and over. What is below has cut its rows to
//! the limit already, so that there are few of them in most plans.
//!
//! Invariants: a query fails on a rank with what went wrong there first, and gives up on all ranks then (`Exchanges::fail`). A rank that has all
//! rows that it wants does not fail any more. Threads end before the query does.
//!
//! Deliberately absent: how rows move (`crate::exchange`); who starts the query on all ranks (`ranks`).

mod boxes;
mod choice;
mod exchanges;
mod held_back;
mod owner_keys;
mod received;
mod senders;
mod sending;
mod shared_keys;
mod source;

pub use self::exchanges::{FilesOfFirst, QueryStart, RankPart};
pub(super) use self::{
    boxes::block_bytes_of,
    exchanges::{Exchanges, RankPlace},
    owner_keys::{HeavyRows, OwnerKeys},
    received::ReceivedRows,
    sending::{BROADCAST_CHOSEN, HEAVY_ROWS, SHUFFLE_CHOSEN, SendingFragment, Target},
    shared_keys::{KeyGiver, SharedKeys},
    source::{ExchangeSource, OwnSource},
};
