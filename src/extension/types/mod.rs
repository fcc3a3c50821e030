//! PostgreSQL's types and the plan language's: which is which, and values both ways.

mod catalog;

pub use catalog::{data_type, scan_column};
