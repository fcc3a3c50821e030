//! PostgreSQL's types and the plan language's: which is which, and values both ways.
//!
//! - `catalog.rs`: which plan type a PostgreSQL type is
//! - `column.rs`: one column of a batch as datums, by family; `block.rs`: some rows of all columns
//! - `domain.rs`: values of domains, checked
//! - `numeric.rs`, `text.rs`, `fixed.rs`, `array.rs`: the families
//! - `parameter.rs`: datums as literals
//!
//! Invariants: values that PostgreSQL passes by reference lie in memory of the block or of the batch, and
//! are valid until the next block is filled. Whatever the engine sends is checked against the range of
//! the PostgreSQL type before PostgreSQL sees it.
//!
//! Deliberately absent: arithmetic. Values are only laid out anew.

mod array;
mod block;
mod catalog;
mod column;
mod domain;
mod fixed;
mod numeric;
mod parameter;
mod text;

pub use block::RowBlock;
pub use catalog::{base_type, data_type, scan_column};
pub use column::{ColumnReader, ColumnSource};
pub use fixed::{EPOCH_DAYS, EPOCH_MICROSECONDS};
pub use parameter::{array_texts, elements, literal, null_literal, text};
