//! Columns that stay on the device between queries, in a form that kernels test and read without decoding pages.
//!
//! ```text
//! decoded column ─ encode ─► Segment of each row group ─┐
//!                                                       ├─► SegmentTable ─ test ─► SelectedRows ─ read ─► columns
//! decoded column ─ encode ─► Segment of each row group ─┘
//! ```
//!
//! - `form.rs`: a segment, and its copy on the host
//! - `encode.rs`: decoded columns become segments
//! - `dictionary.rs`: the values of a text column of a table, of which segments have codes
//! - `table.rs`: segments of some columns of some row groups; `test.rs`: which of their rows pass; `search.rs`: searches of text; `read.rs`: rows as columns;
//!   `fold.rs`: rows added to groups
//!
//! A segment has the rows of one column chunk as the column is declared. Integers of any width, booleans, dates and codes are blocks of 1,024
//! distances from a base ([kernels/abi/segment.h](../../../kernels/abi/segment.h)), text is its bytes and distances to them, everything
//! else plain cells.
//!
//! Invariants: a segment has the values that decoding gives, and only chunks without a fault become one. Codes of a dictionary never
//! change their value.
//!
//! Deliberately absent: where segments are kept and when they are made (`execution/scan`); conditions that no test expresses.

mod dictionary;
mod encode;
mod fold;
mod form;
mod read;
mod search;
mod table;
mod test;
#[cfg(test)]
mod tests;

use crate::abi;

pub use dictionary::TableDictionary;
pub use fold::{Factor, Fold};
pub use form::{PinnedSegment, Segment};
pub use read::ReadForm;
pub use search::TextSearch;
pub use table::{SegmentTable, TableRows};
pub use test::{SelectedRows, TableTest};
