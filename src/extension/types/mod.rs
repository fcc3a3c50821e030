//! PostgreSQL's types and the plan language's: which is which, and values both ways.
//!
//! - `catalog.rs`: which plan type a PostgreSQL type is
//! - `column.rs`: one column of a batch as datums, by family; `block.rs`: some rows of all columns
//! - `domain.rs`: values of domains, checked
//! - `numeric.rs`, `text.rs`, `fixed.rs`, `array.rs`, `record.rs`, `input.rs`: the families
//! - `parameter.rs`: datums as literals
//! - `writer.rs`: datums as columns of batches
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
mod input;
mod numeric;
mod parameter;
mod record;
mod text;
mod writer;

pub use block::RowBlock;
pub use catalog::{
    CompositeField, attribute_count, base_type, composite_fields, composite_relations, data_type, item_type,
    rests_on_files, scan_column,
};
pub use column::{ColumnReader, ColumnSource};
pub use fixed::{EPOCH_DAYS, EPOCH_MICROSECONDS};
pub use parameter::{array_texts, elements, literal, null_literal, text};
pub use writer::{ColumnWriter, is_carried, sent_column, written_column};
