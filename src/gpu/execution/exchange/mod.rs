//! Exchanges of a plan. Each cuts the tree: a driver of its own runs the part below and sends the
//! rows to other ranks.
//!
//! ```text
//!                    below: a driver                              above: operators
//! scan ─► join ─► SendingFragment ─► outbox ═ rounds ═ inbox ─► receiving driver ─► ReceivedRows ─► ExchangeSource ─► join
//!                                                                 │ no room            ▲ at the end
//!                                                                 └──── spill store ───┘
//! ```
//!
//! - `exchanges.rs`: all exchanges of a query on one rank, their threads, and how the query ends on all ranks
//! - `buffers.rs`: how much of the memory for exchanges each of them has
//! - `sending.rs`: the fragment below an exchange; `senders.rs`: other drivers that send its rows; `held_back.rs`: rows that wait for its end
//! - `owner_keys.rs`: which rank owns a row, and which rows stay because their keys are heavy
//! - `choice.rs`: whether a join's build side is broadcast after all
//! - `received.rs`: received rows, held or spilled until an operator reads them
//! - `shared_keys.rs`: keys of a build side that all ranks give to one another, for filters that pass exchanges
//! - `source.rs`: the source above an exchange; and `Own`, an exchange that moves no rows
//!
//! Every rank runs the same tree, but only rank 0 reads the root. All fragments run at once, each
//! by a driver on a thread of its own, and further drivers help to send. Another driver empties
//! each inbox, whether or not the operators above read, and in whichever order. It spills the rows
//! for which it gets no claim. So a rank that wants the rows of one exchange first does not keep
//! another rank waiting for room in a different exchange. A wait then depends only on the part of
//! the tree below, so waits have no cycle.
//!
//! A fragment whose scans may use filters of joins above begins when these are settled, or after a
//! bounded wait.
//!
//! A rank sends rows only after all faults of earlier work are known to be none. So a rank never
//! receives rows that a fault has spoiled. A fragment whose rows no rank wants any more ends after
//! its current chunk.
//!
//! Rank 0 sorts the rows of a `Merge` again instead of merging runs. Its sort holds and spills by
//! range, runs on the device, and knows the limit above it. Merging would wait for the slowest
//! rank's next rows over and over. The fragments below have applied the limit already, so in most
//! plans there are few rows.
//!
//! Invariants: a query fails on a rank with that rank's first error, and then stops on all ranks
//! (`Exchanges::fail`). A rank that has all rows that it wants no longer fails. Threads end before
//! the query does.
//!
//! Deliberately absent: how rows move (`crate::exchange`); how the query starts on all ranks
//! (`ranks`).

mod buffers;
mod choice;
mod exchanges;
mod held_back;
mod owner_keys;
mod received;
mod senders;
mod sending;
mod shared_keys;
mod source;

pub use self::exchanges::{BegunOnFirst, QueryStart, RankPart, never_begun};
pub(super) use self::{
    buffers::block_bytes_of,
    exchanges::Exchanges,
    owner_keys::{HeavyRows, OwnerKeys},
    received::ReceivedRows,
    sending::{BROADCAST_CHOSEN, HEAVY_ROWS, SHUFFLE_CHOSEN, SendTarget, SendingFragment},
    shared_keys::{KeyGiver, SharedKeys},
    source::{ExchangeSource, OwnSource},
};
