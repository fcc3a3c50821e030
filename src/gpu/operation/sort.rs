//! Orders of rows.

use pystachio_plan::Result;

use super::RowNumbers;
use crate::device::Column;

/// A key of a sort.
#[derive(Clone, Debug)]
pub struct SortColumn {
    /// The values.
    pub column: Column,
    /// Greatest first.
    pub descending: bool,
    /// NULLs before everything else.
    pub nulls_first: bool,
}

/// Ordering rows. See [`super::Device`] for what every operation has in common.
pub trait SortOperations {
    /// The numbers of all rows in the order of the keys, the first key first. Stable. Waits for what the keys are like.
    fn sort(&self, keys: &[SortColumn], row_count: usize) -> Result<RowNumbers>;
}
