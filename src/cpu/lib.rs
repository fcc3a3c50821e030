//! The CPU engine: plans run by Apache DataFusion.
//!
//! - `engine.rs`: [`CpuEngine`], what the host starts
//! - `lowering`: a plan becomes DataFusion's physical operators; `functions`: its expressions and aggregates
//! - `scan`: Parquet row groups in, batches out; `cache.rs`: decoded columns kept between queries;
//!   `pool.rs`: the memory of both
//! - `files.rs`, `footer_check.rs`: file sets, file identity, footers
//! - `describe.rs`, `file_type.rs`, `statistics.rs`, `sample.rs`: tables for the planner; `generate.rs`: TPC-H data
//! - `stream.rs`, `metrics.rs`: results and what they cost; `actual_rows.rs`: rows of the plan's operators
//! - `error.rs`: errors of DataFusion, Arrow and Parquet as plan errors
//!
//! Invariants: inside DataFusion every column is named by [`column_name`] of its id, so names are unique
//! in a plan and need no qualifier. A result is PostgreSQL's or an error.
//!
//! Deliberately absent: PostgreSQL, sockets. No other crate names DataFusion.

mod actual_rows;
mod cache;
mod describe;
mod engine;
mod error;
mod file_type;
mod files;
mod footer_check;
mod functions;
mod generate;
mod lowering;
mod metrics;
mod pool;
mod sample;
mod scan;
mod statistics;
mod stopping;
mod stream;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]
mod query_tests;

pub use engine::{CpuEngine, CpuOptions};

/// The name that a plan's column has inside DataFusion.
pub(crate) fn column_name(id: pystachio_plan::ColumnId) -> String {
    format!("c{}", id.0)
}
