//! The functions and views that SQL can use.
//!
//! - `describe.rs`: `pystachio.describe()` and `pystachio.refresh_table()`; `read_parquet()` is in `file_tables.rs`
//! - `engines.rs`: the views `pystachio.engines` and `pystachio.cache`, and `pystachio.version()`
//! - `queries.rs`: the views `pystachio.queries` and `pystachio.statistics`, and `pystachio.statistics_reset()`
//! - `registry.rs`: `pystachio.functions()`
//! - `timeline.rs`: `pystachio.timeline` and its relatives
//! - `import_views.rs`: `pystachio.import_views()`
//! - `optimize.rs`: `pystachio.optimize_parquet`
//! - `tpch.rs`: `pystachio.tpch_generate` and `pystachio.tpch_query`; `tpch/`: the queries' texts
//! - `rows.rs`: rows by the names of their columns, for every version of the extension's SQL
//! - `write_parquet.rs`: `pystachio.write_parquet`
//! - `writing.rs`: what functions that write files share
//!
//! Their SQL (defaults, volatility, strictness, rights) is in `sql/` at the root of the repository.
//!
//! Invariants: a role that sees a server's engine or cache has USAGE on the server. A role that reads or writes
//! files here may do so by `COPY` as well.
//!
//! Deliberately absent: anything that starts an engine only to look at it.

mod describe;
mod engines;
mod import_views;
mod optimize;
mod queries;
mod registry;
mod rows;
mod timeline;
mod tpch;
mod write_parquet;
mod writing;

use crate::{error::OrRaise, pg::encoding};

pub use writing::check_path;

/// An argument of type `text`.
fn text_argument(bytes: &[u8]) -> String {
    encoding::argument(bytes).or_raise()
}

/// A result of type `text`.
fn text_result(text: &str) -> Vec<u8> {
    encoding::to_shown(text).into_bytes()
}

/// A count as SQL has it.
fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Microseconds as SQL shows times.
fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}
