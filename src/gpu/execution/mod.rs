//! Plans run on one device: a tree of sources that give chunks.
//!
//! - `engine`: what the host starts, and how a query of it runs
//! - `compile`: a plan becomes a tree of sources
//! - `scan`, `join`, `aggregate`, `sort`, `window`: these operators; `row_wise.rs`: filter, project, limit and
//!   union; `repeat.rs`: rows once for each of some numbers
//! - `shared.rs`: parts of a plan that are computed once for several readers
//! - `exchange`: rows to and from other ranks; `ranks`: a query on all of them
//! - `source.rs`: what all operators are; `scan_fold.rs`: what a scan aggregates for an operator above
//! - `runtime_filter`: filters that joins make of their keys, and the scans that use them
//! - `expressions`: expressions over rows, evaluated once an entry where a column comes as codes
//! - `query`: drivers, the memory of a query, and rows that operators hold
//! - `waiting.rs`: waiting for the host's tasks; it imports nothing
//!
//! ```text
//!   ranks ─► engine ─► compile ─► scan, join, aggregate, sort, … ─► exchange ─┬─► source ─┬─► query          an arrow is an import; what is
//!                                                                             │           └─► scan_fold      farther right may be imported too
//!                                                                             ├─► runtime_filter
//!                                                                             └─► expressions
//! ```
//!
//! No import points to the left. Operators do not import one another, with two exceptions: an
//! aggregate ends in a projection of `row_wise.rs`, and a join gives its keys to an exchange.
//! A driver knows the query's context, and no operator. What else the sources of a query share
//! (readers, fragments, exchanges) they get from `compile`.
//!
//! ```text
//!   sort ◄── aggregate ◄── join ◄── filter ◄── scan         a chunk is pulled through to the next breaker
//!                            ▲
//!                            └── build side, whole, or partition by partition: a fragment, which a driver of its own may
//!                                pull before the join asks
//! ```
//!
//! Invariants: a query reports a fault before any row computed after it. A driver has one stream,
//! so all its device work is in one order. It uses chunks of readers and other drivers after their
//! enqueued work, and a dropped buffer is freed after its last use on any stream. Between two
//! chunks a driver polls whether its fragment is still wanted. An operator has a claim for the rows
//! that it holds from one chunk to the next, and spills the rows for which it gets none. Chunks fit
//! the free memory; larger ones are given in parts, which are slices. Small chunks are merged with
//! the following ones where an operator above reads all rows before it outputs any. Text whose
//! dictionary has few entries passes between operators as codes; operators that hold rows, sort,
//! hash a build side or send rows turn codes into cells.
//!
//! In a plan for several ranks every exchange cuts the tree: a driver of its own runs the part
//! below.
//!
//! Deliberately absent: a fallback for expressions without a kernel. They are `NotSupported` before
//! the first row, and the host runs such a plan on another engine.

mod aggregate;
mod compile;
mod engine;
mod exchange;
mod expressions;
mod join;
mod query;
mod ranks;
mod repeat;
mod row_wise;
mod runtime_filter;
mod scan;
mod scan_fold;
mod shared;
mod sort;
mod source;
#[cfg(test)]
mod tests;
mod waiting;
mod window;

pub use engine::{DeviceEngine, DeviceOptions};
pub use exchange::{BegunOnFirst, QueryStart, RankPart, never_begun};
pub use ranks::{
    LocalPeer, RankDevice, RankPeer, RankTable, RankedEngine, RankedOptions, ranks_of_one_process,
};

use pystachio_plan::{ColumnId, DataType};

use self::{
    query::{Driver, QueryContext},
    source::{CountedSource, FoldedRows, Source},
};

/// Columns of a source, in the order of its chunks.
type Columns = Vec<(ColumnId, DataType)>;
