//! How far the filter of keys that a join makes of its build side may go on its way to scans of the probe side.
//!
//! ```text
//! rank 0: join ◄─ shuffle ◄─ scan      the filter that rank 0 makes of its share of the build side knows its keys alone;
//! rank 1: join ◄─ shuffle ◄─ scan      below the shuffle it would drop the rows of rank 1
//! ```
//!
//! Invariants: a filter drops a row only if no rank's build side has its key. A filter of one rank's share may pass
//! nothing at which rows change ranks; the union of all ranks' shares may, and so may the filter of a build side that every
//! rank has whole. A missing share is no filter.
//!
//! Deliberately absent: which operators between exchanges a filter may pass; that is each engine's.

use super::distribution::Distribution;
use crate::{ExchangeKind, Relation, Result};

/// Of which rows of the build side a rank's filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterScope {
    /// Of all of them, on every rank.
    Complete,
    /// Of those that the rank has. The union over all ranks is complete.
    Share,
}

impl FilterScope {
    /// Whether a filter of this scope, without the other ranks' shares, may go on below an exchange of the probe side.
    ///
    /// Of rows that every rank has and one of them owns, a rank may drop all that match none of its own: those are not
    /// its rows, or match nothing.
    pub fn passes(self, kind: &ExchangeKind) -> bool {
        self == Self::Complete || !kind.moves_rows()
    }
}

/// The scope of the filter that a join of a distributed plan makes of its build side.
///
/// # Errors
///
/// Those of [`Distribution::of`].
pub fn filter_scope(build: &Relation) -> Result<FilterScope> {
    Ok(match Distribution::of(build)? {
        Distribution::Replicated => FilterScope::Complete,
        Distribution::Arbitrary
        | Distribution::Partitioned { .. }
        | Distribution::Chosen { .. }
        | Distribution::Halfway(_)
        | Distribution::Single => FilterScope::Share,
    })
}
