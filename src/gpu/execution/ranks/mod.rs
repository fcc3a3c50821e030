//! A query on all ranks: rank 0's engine, which a host knows, and the ranks beside it.
//!
//! ```text
//! host ─► RankedEngine ─► distribute ─┬─► rank 0: DeviceEngine ─► rows ─► host
//!                                     ├─► RankPeer 1 ─► DeviceEngine         ┐ their outcome and metrics
//!                                     └─► RankPeer 2 ─► DeviceEngine         ┘
//!                                          all of them: one plan, one number, one network
//! ```
//!
//! - `ranked_engine.rs`: the engine that the host starts: which queries run on all ranks, and how
//!   one runs
//! - `peer.rs`: a rank as rank 0 sees it, and one in the same process
//! - `stream.rs`: rank 0's rows, and the outcome of the other ranks; `views.rs`: the state
//!   of all ranks for views
//! - `rank_table.rs`: the ranks that are connected; `rank_device.rs`: a device that is a rank
//! - `one_process.rs`: ranks side by side in one process, each with a device of its own
//!
//! A rank's device does not know which host started the other ranks. It shares only the exchange
//! network with them. All ranks prepare a query in parallel: they open its files and compile its
//! plan. Rank 0's arena admits the query first, and then it begins on the other ranks. Otherwise
//! two queries that wait for memory in different orders on two ranks would wait for each other. A
//! query that runs on another rank has its memory on rank 0, or is about to end. Queries that rank
//! 0 runs alone end without other ranks. So a query that waits for memory on another rank waits
//! only for queries that end.
//!
//! If a rank refuses a query before the first row (no kernel, no memory, no room in the network),
//! rank 0 runs it alone. If rank 0 refuses it too, the host runs it elsewhere.
//!
//! Invariants: rank 0 alone outputs rows, whatever the number of ranks. Dropping the stream stops
//! the query on all of them.
//!
//! A network ends when a rank is lost: its queries fail, new queries run on rank 0 alone, and the
//! supervisor of the ranks connects them again.
//!
//! Deliberately absent: ranks in processes of their own; how they are started, reached and
//! connected (`src/worker/ranks`).

mod one_process;
mod peer;
mod rank_device;
mod rank_table;
mod ranked_engine;
mod stream;
mod views;

#[cfg(test)]
pub(super) use self::one_process::ranks_over;
pub use self::{
    one_process::ranks_of_one_process,
    peer::{LocalPeer, RankPeer},
    rank_device::RankDevice,
    rank_table::RankTable,
    ranked_engine::{RankedEngine, RankedOptions},
};
