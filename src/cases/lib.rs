//! What PostgreSQL gives for every function of the plan language: the cases that the tests of both engines run. A
//! dependency of tests alone.
//!
//! `postgresql/*.tsv` has sections of one function each. A section starts with `#`, the function as
//! [`pystachio_plan::function_of_name`] reads it, its argument types, its result type and the SQL that was run; each
//! line has the arguments and what PostgreSQL 15 printed: a text, `\N` for NULL, or `ERROR: ` and the message. The suite
//! `cases` of `regress/differential` runs them all on a server. A variance's arguments are a count, two sums and a scale: rows
//! that have them are in `variance_rows.tsv`, for that suite alone.
//!
//! - `sample.rs`: which of many cases a run takes
//! - `section.rs`: sections and their lines
//! - `value.rs`: types and values as the files write them
//! - `tests.rs`: every signature of the registry has cases, NULL and edge values among them
//!
//! Invariants: a file that does not parse is a panic. Values are the plan's, those of decimals at their type's scale, but for
//! a result of more than 128 bits, which plans do not have: it is the text of its digits.
//!
//! Must not know: engines, PostgreSQL.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests read the files: one that does not parse fails them"
)]

mod sample;
mod section;
mod value;

#[cfg(test)]
mod tests;

pub use sample::Sample;
pub use section::{CaseFile, Line, Outcome, Section, case_files};
pub use value::{decimal_value, is_same};
