//! Window functions: the rows of whole partitions in order, with a column for each function.
//!
//! ```text
//! input, whole ─┬───────────────────────────────► sorted ─► a stage for each window of this order ─► rows and functions
//!               └─► parts by hash of the partition, one after another ─┘
//! ```
//!
//! - `stage.rs`: the functions of one window over rows in order
//! - `source.rs`: the operator: rows until they are whole, their order, and parts of them where memory is short
//!
//! Windows whose orders are the beginning of the innermost one's are one operator, which sorts once.
//!
//! Invariants: a partition is on the device as a whole. All rows of a part are sorted and computed at once, however many
//! partitions it has.
//!
//! Deliberately absent: partitions larger than memory. They are `OutOfMemory`, and the host runs such a query on another engine.

mod source;
mod stage;

pub(super) use self::{
    source::{WindowOrder, WindowSource},
    stage::WindowStage,
};
