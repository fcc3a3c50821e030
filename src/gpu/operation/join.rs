//! Tables that rows are looked up in by key, and the pairs that match.

use std::any::Any;

use pystachio_plan::{Error, Result};

use super::RowNumbers;
use crate::device::Column;

/// Key columns that joins, groups and partitions take.
pub const KEYS_MAX: usize = 16;

/// The build side of a hash join. How rows are found is the device's own: only the one that built it looks into it, and
/// nothing else needs to.
pub struct JoinTable {
    row_count: usize,
    form: Box<dyn Any + Send + Sync>,
}

impl JoinTable {
    /// A table over rows, in a form that the device finds again by [`JoinTable::form`].
    pub fn new(row_count: usize, form: impl Any + Send + Sync) -> Self {
        Self { row_count, form: Box::new(form) }
    }

    /// Rows of the build side.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// The table as its device made it.
    ///
    /// # Errors
    ///
    /// `Internal` for a table of a device of another kind.
    pub fn form<T: Any>(&self) -> Result<&T> {
        self.form
            .downcast_ref()
            .ok_or_else(|| Error::internal("a join table is probed on another kind of device than built it"))
    }
}

/// Which pairs a probe gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Every match.
    Matches,
    /// Every match, and a pair with no build row for a probe row without one.
    MatchesOrMiss,
    /// The first match only.
    First,
}

/// Rows of both sides, pair by pair.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The probe side's.
    pub probe: RowNumbers,
    /// The build side's.
    pub build: RowNumbers,
}

/// Matching rows by their keys: one column a key, at most [`KEYS_MAX`], on both sides of the same types. A row with a
/// NULL key matches nothing. See [`super::Device`] for what every operation has in common.
pub trait JoinOperations {
    /// Builds a table over rows; waits.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more than [`KEYS_MAX`] keys.
    fn build(&self, keys: Vec<Column>, row_count: usize) -> Result<JoinTable>;

    /// The pairs of rows whose keys are equal, in probe order, or `None` if there are more than `pairs_max`. Pairs of
    /// one probe row have no order. Waits for their count.
    ///
    /// # Errors
    ///
    /// As of [`JoinOperations::build`]; `NotSupported` for more pairs than a chunk may have rows.
    fn probe(
        &self,
        table: &JoinTable,
        keys: &[Column],
        row_count: usize,
        mode: ProbeMode,
        pairs_max: u64,
    ) -> Result<Option<Pairs>>;

    /// Some pairs of a join without keys: `count` of them from pair `first` on, where pairs are numbered probe row by
    /// probe row.
    fn cross(&self, first: u64, count: usize, build_row_count: usize) -> Result<Pairs>;

    /// Some of the pairs: `kept` are their places.
    fn select_pairs(&self, pairs: &Pairs, kept: &RowNumbers) -> Result<Pairs>;
}
