//! The CPU engine: plans run by Apache DataFusion.
//!
//! - `engine.rs`: [`CpuEngine`], what the host starts
//! - `lowering`: a plan becomes DataFusion's physical operators, and `expand.rs`, `unnest.rs`, `window`, `first_rows.rs`, `compact.rs` some of ours; `functions`: its expressions and
//!   aggregates; `preparation.rs`: what else it needs to run
//! - `scan`: Parquet row groups in, batches out; `cache.rs`: decoded columns kept between queries;
//!   `pool.rs`: the memory of both; `spill.rs`: files for what it has no room for
//! - `datafusion.rs`: the parts of DataFusion that are used
//! - `shared.rs`: parts of a plan that are computed once for several readers
//! - `sample.rs`: rows for ANALYZE; `distinct.rs`: how many values a column has
//! - `stream.rs`, `metrics.rs`: results and what they cost; `actual_rows.rs`: rows of the plan's operators
//! - `inputs.rs`: what every operator says of its inputs
//! - `error.rs`: errors of DataFusion, Arrow and Parquet as plan errors
//!
//! Invariants: inside DataFusion every column is named by [`column_name`] of its id, so names are unique
//! in a plan and need no qualifier. A result is PostgreSQL's or an error.
//!
//! Deliberately absent: files and footers, and how files are written (`src/files`), PostgreSQL, sockets. No other crate
//! names DataFusion.

mod actual_rows;
mod cache;
mod compact;
mod datafusion;
mod distinct;
mod drive;
mod engine;
mod error;
mod expand;
mod first_rows;
mod functions;
mod given_rows;
mod inputs;
mod lowering;
mod metrics;
mod places;
mod pool;
mod preparation;
mod sample;
mod scan;
mod screen;
mod shared;
mod sorted_writer;
mod spill;
mod stopping;
mod stream;
mod unnest;
mod window;

#[cfg(test)]
mod query_tests;

pub use engine::{CpuEngine, CpuOptions};

/// The name that a plan's column has inside DataFusion.
pub(crate) fn column_name(id: pystachio_plan::ColumnId) -> String {
    format!("c{}", id.0)
}
