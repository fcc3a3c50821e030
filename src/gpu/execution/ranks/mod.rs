//! A query on all ranks: rank 0's engine, which a host knows, and the ranks beside it.
//!
//! ```text
//! host ─► RankedEngine ─► distribute ─┬─► rank 0: DeviceEngine ─► rows ─► host
//!                                     ├─► RankPeer 1 ─► DeviceEngine         ┐ their outcome and metrics
//!                                     └─► RankPeer 2 ─► DeviceEngine         ┘
//!                                          all of them: one plan, one number, one network
//! ```
//!
//! - `ranked_engine.rs`: what the host starts: which queries run on all ranks, and how one does
//! - `peer.rs`: a rank as rank 0 sees it, and one in the same process
//! - `stream.rs`: rank 0's rows, and what came of the other ranks; `recollection.rs`: what all ranks remember
//! - `rank_table.rs`: the ranks that are connected; `rank_device.rs`: a device that is a rank
//! - `one_process.rs`: ranks side by side in one process, each with a device of its own
//!
//! The ranks' devices know nothing of who started them: what they share is the exchange network. All prepare a query beside one another: they
//! open its files and compile its plan. It is admitted by rank 0's arena first, and begins on other ranks then: two queries that wait for memory in different orders on two ranks would wait for each other. What other
//! ranks run has its memory on rank 0, or is about to end, and rank 0 runs alone what ends without others. So whoever waits for memory on another
//! rank waits for what ends.
//!
//! What a rank refuses before the first row (no kernel, no memory, no room in the network), rank 0 runs alone; what it refuses too, the host runs
//! elsewhere.
//!
//! Invariants: rows are those of rank 0 alone, whatever the number of ranks. Whoever drops the stream stops the query on all of them.
//!
//! A network does not go on after a rank was lost: what runs over it fails, queries run on rank 0 alone then, and whoever looks after the ranks
//! connects them anew.
//!
//! Deliberately absent: ranks in processes of their own, how they are started, reached and connected (`src/worker/ranks`).

mod one_process;
mod peer;
mod rank_device;
mod rank_table;
mod ranked_engine;
mod recollection;
mod stream;

#[cfg(test)]
pub(super) use self::one_process::ranks_over;
pub use self::{
    one_process::ranks_of_one_process,
    peer::{LocalPeer, RankPeer},
    rank_device::RankDevice,
    rank_table::RankTable,
    ranked_engine::{RankedEngine, RankedOptions},
    stream::never_begun,
};
