//! The pairs of one probe chunk and a build side, piece by piece.

use pystachio_plan::{DataType, JoinSide, Result};

use super::{Built, Lookup, Matching, Probing, Residual, column_bytes};
use crate::{
    device::{Buffer, Chunk},
    execution::QueryContext,
    operation::{Pairs, ProbeMode, Queue},
};

/// Pairs that are tried at once, whatever memory there is; a probe chunk may have as many as it has rows. What is done
/// with them then takes a fraction of a second, and a cancel is heard in between.
const PAIRS_MAX: u64 = 8 << 20;
/// Fewer pairs are never cut into pieces.
const PAIRS_MIN: u64 = 64;

impl Matching {
    /// The next pairs of a probe chunk; `end` is its last row, or its last pair of a join without keys.
    pub(super) fn next_pairs(
        &self,
        context: &QueryContext,
        built: &Built,
        probing: &mut Probing,
        end: u64,
    ) -> Result<Chunk> {
        let queue = &context.queue;
        let pairs_max = self.pairs_max(context);
        let first = probing.next;
        let table = match &built.lookup {
            Lookup::Table(table) => table,
            Lookup::Members(members) => return self.next_members(queue, members, probing),
            Lookup::EveryPair => {
                let count = (end - first).min(pairs_max.min(PAIRS_MAX));
                let pairs = queue.cross(first, count as usize, built.chunk.row_count)?;
                probing.next += count;
                let marks = probing.marks.as_ref().map(|marks| (marks, 0));
                return self.emit(queue, built, &probing.chunk, marks, pairs);
            }
        };
        let only_marks = !self.gives_pairs() && built.marks.is_none() && self.residual.is_none();
        let mode = if only_marks { ProbeMode::First } else { ProbeMode::Matches };
        loop {
            let first_row = first as usize;
            let count = probing.step.min(probing.chunk.row_count - first_row);
            let keys = Chunk { row_count: probing.chunk.row_count, columns: probing.keys.clone() };
            let keys = queue.slice(&keys, first_row, count)?;
            let pairs_max = pairs_max.min(PAIRS_MAX.max(probing.chunk.row_count as u64));
            let limit = if count > 1 { pairs_max } else { u64::MAX };
            let Some(pairs) = queue.probe(table, &keys.columns, count, mode, limit)? else {
                probing.step = count.div_ceil(2);
                continue;
            };
            probing.next += count as u64;
            let chunk = queue.slice(&probing.chunk, first_row, count)?;
            let marks = probing.marks.as_ref().map(|marks| (marks, first_row));
            return self.emit(queue, built, &chunk, marks, pairs);
        }
    }

    /// Pairs that there is room for at once.
    fn pairs_max(&self, context: &QueryContext) -> u64 {
        let cell_bytes = |types: &[DataType]| types.iter().map(column_bytes).sum::<u64>();
        // Row numbers of both sides, before and after a residual condition.
        let a_pair = 16 + cell_bytes(&self.build_types) + cell_bytes(&self.probe_types);
        (context.memory.chunk_bytes() / a_pair).max(PAIRS_MIN)
    }

    /// Marks the pairs that meet the residual condition, and gives them if the kind of join does. Probe marks
    /// come with the row that the chunk's first one has there.
    fn emit(
        &self,
        queue: &Queue,
        built: &Built,
        probe: &Chunk,
        probe_marks: Option<(&Buffer, usize)>,
        pairs: Pairs,
    ) -> Result<Chunk> {
        let pairs = self.filter_pairs(queue, built, probe, pairs)?;
        if let Some(marks) = &built.marks {
            queue.mark(&pairs.build, None, marks, 0)?;
        }
        if let Some((marks, first_row)) = probe_marks {
            queue.mark(&pairs.probe, None, marks, first_row)?;
        }
        match self.gives_pairs() {
            true => self.pair_chunk(queue, built, probe, &pairs, None),
            false => queue.empty(&self.types()),
        }
    }

    /// The pairs that meet the residual condition.
    fn filter_pairs(&self, queue: &Queue, built: &Built, probe: &Chunk, pairs: Pairs) -> Result<Pairs> {
        let Some(residual) = &self.residual else { return Ok(pairs) };
        if pairs.probe.count == 0 {
            return Ok(pairs);
        }
        let chunk = self.pair_chunk(queue, built, probe, &pairs, Some(residual))?;
        let flags = residual.condition.evaluate(queue, &chunk)?;
        let kept = queue.select(&flags.values, chunk.row_count)?;
        queue.select_pairs(&pairs, &kept)
    }

    /// Left columns and then right columns of every pair. Columns that `reader` does not read are empty.
    fn pair_chunk(
        &self,
        queue: &Queue,
        built: &Built,
        probe: &Chunk,
        pairs: &Pairs,
        reader: Option<&Residual>,
    ) -> Result<Chunk> {
        let (left, left_rows, right, right_rows) = match self.build_side {
            JoinSide::Left => (&built.chunk, &pairs.build, probe, &pairs.probe),
            JoinSide::Right => (probe, &pairs.probe, &built.chunk, &pairs.build),
        };
        let sides = left.columns.iter().map(|column| (column, left_rows));
        let sides = sides.chain(right.columns.iter().map(|column| (column, right_rows)));
        let columns = sides
            .enumerate()
            .map(|(place, (column, rows))| {
                if reader.is_some_and(|reader| !reader.reads[place]) {
                    return Ok(column.clone());
                }
                queue.gather(column, rows)
            })
            .collect::<Result<_>>()?;
        Ok(Chunk { row_count: pairs.probe.count, columns })
    }
}
