//! Sources that look at one row at a time: filter, project, limit, union and values.

use pystachio_plan::Result;

use super::{Operator, QueryContext, Source};
use crate::{
    device::{Buffer, Chunk},
    operation::Queue,
    program::{Filter, Program},
};

/// The rows for which a condition is true.
pub(super) struct FilterSource {
    pub(super) input: Operator,
    pub(super) predicate: Filter,
}

impl Source for FilterSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        let Some(chunk) = self.input.next(context)? else { return Ok(None) };
        filter_chunk(&context.queue, chunk, &self.predicate).map(Some)
    }
}

/// The rows of a chunk for which a condition is true.
pub(super) fn filter_chunk(queue: &Queue, chunk: Chunk, predicate: &Filter) -> Result<Chunk> {
    if chunk.row_count == 0 {
        return Ok(chunk);
    }
    let flags = predicate.evaluate(queue, &chunk)?;
    keep_flagged(queue, chunk, &flags.values)
}

/// The rows of a chunk whose flag is 1.
fn keep_flagged(queue: &Queue, chunk: Chunk, flags: &Buffer) -> Result<Chunk> {
    let rows = queue.select(flags, chunk.row_count)?;
    if rows.count == chunk.row_count { Ok(chunk) } else { queue.gather_chunk(&chunk, &rows) }
}

/// New columns.
pub(super) struct ProjectSource {
    pub(super) input: Operator,
    pub(super) program: Program,
}

impl Source for ProjectSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        let Some(chunk) = self.input.next(context)? else { return Ok(None) };
        project(context, &chunk, &self.program).map(Some)
    }
}

/// A chunk of a program's results.
pub(super) fn project(context: &QueryContext, chunk: &Chunk, program: &Program) -> Result<Chunk> {
    let queue = &context.queue;
    let columns = program.evaluate(queue, chunk)?;
    Ok(Chunk { row_count: chunk.row_count, columns })
}

/// Some rows of the input's order.
pub(super) struct LimitSource {
    pub(super) input: Operator,
    /// Rows still to skip.
    pub(super) skip: usize,
    /// Rows still to give; `None`: all.
    pub(super) count: Option<usize>,
}

impl Source for LimitSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        if self.count == Some(0) {
            return Ok(None);
        }
        let Some(chunk) = self.input.next(context)? else { return Ok(None) };
        let first = self.skip.min(chunk.row_count);
        self.skip -= first;
        let rest = chunk.row_count - first;
        let kept = self.count.map_or(rest, |count| count.min(rest));
        self.count = self.count.map(|count| count - kept);
        context.queue.slice(&chunk, first, kept).map(Some)
    }
}

/// The rows of several inputs, each made alike by a program.
pub(super) struct UnionSource {
    pub(super) inputs: Vec<(Operator, Program)>,
    /// The input being read.
    pub(super) current: usize,
}

impl Source for UnionSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        while let Some((input, program)) = self.inputs.get_mut(self.current) {
            if let Some(chunk) = input.next(context)? {
                return project(context, &chunk, program).map(Some);
            }
            self.current += 1;
        }
        Ok(None)
    }
}

/// Rows written in the plan, each a program over nothing.
pub(super) struct ValuesSource {
    pub(super) rows: Vec<Program>,
    pub(super) is_done: bool,
}

impl Source for ValuesSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        if std::mem::replace(&mut self.is_done, true) || self.rows.is_empty() {
            return Ok(None);
        }
        let nothing = Chunk { row_count: 1, columns: Vec::new() };
        let rows = self.rows.iter().map(|row| project(context, &nothing, row)).collect::<Result<Vec<_>>>()?;
        context.queue.concat(&rows).map(Some)
    }
}
