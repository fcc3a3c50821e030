//! Sorting: the whole input, in order.

use pystachio_plan::{Result, SortKey};

use super::{Operator, QueryContext, Source};
use crate::{device::Chunk, operation::SortColumn, program::Program};

/// All rows in order, as one chunk.
pub(super) struct SortSource {
    pub(super) input: Operator,
    /// The keys' values.
    pub(super) program: Program,
    pub(super) keys: Vec<SortKey>,
    pub(super) is_done: bool,
}

impl Source for SortSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(None);
        }
        let chunk = self.input.collect(context)?;
        let queue = &context.queue;
        let values = self.program.evaluate(queue.memory(), &chunk, queue.stream())?;
        let keys: Vec<SortColumn> = values
            .into_iter()
            .zip(&self.keys)
            .map(|(column, key)| SortColumn {
                column,
                descending: key.descending,
                nulls_first: key.nulls_first,
            })
            .collect();
        let rows = queue.sort(&keys, chunk.row_count)?;
        queue.gather_chunk(&chunk, &rows).map(Some)
    }
}
