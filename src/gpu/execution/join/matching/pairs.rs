//! The pairs of some probe rows and a build side, piece by piece.

use pystachio_plan::{DataType, JoinSide, Result};

use super::{Built, Lookup, Matching, Probing, Residual, column_bytes};
use crate::{
    device::{AnyColumn, Buffer, Chunk, Column, Rows},
    execution::Driver,
    operation::{Pairs, ProbeMode, Queue},
};

/// Upper bound of the pairs tried at once, whatever memory there is; at least one for each probe
/// row. Processing them then takes a fraction of a second, and a cancel is noticed in between.
const PAIRS_MAX: u64 = 8 << 20;
/// Fewer pairs than this are never cut into pieces.
const PAIRS_MIN: u64 = 64;

impl Matching {
    /// The next pairs of probe rows; `end` is the last of them, or their last pair of a join without keys.
    pub(super) fn next_pairs(
        &self,
        driver: &Driver,
        built: &Built,
        probing: &mut Probing,
        end: u64,
    ) -> Result<Rows> {
        let queue = &driver.queue;
        let pairs_max = self.pairs_max(driver);
        let first = probing.next;
        let table = match &built.lookup {
            Lookup::Table(table) => table,
            Lookup::Members(members) => return self.next_members(queue, members, probing),
            Lookup::EveryPair => {
                let count = (end - first).min(pairs_max.min(PAIRS_MAX));
                let pairs = queue.cross(first, count as usize, built.chunk.row_count)?;
                probing.next += count;
                let marks = probing.marks.as_ref().map(|marks| (marks, 0));
                return self.emit(queue, built, &probing.rows, marks, pairs);
            }
        };
        let only_marks = !self.gives_pairs() && built.marks.is_none() && self.residual.is_none();
        let mode = if only_marks { ProbeMode::First } else { ProbeMode::Matches };
        loop {
            let first_row = first as usize;
            let count = probing.step.min(probing.rows.row_count - first_row);
            let keys = Chunk { row_count: probing.rows.row_count, columns: probing.keys.clone() };
            let keys = queue.slice(&keys, first_row, count)?;
            let pairs_max = pairs_max.min(PAIRS_MAX.max(probing.rows.row_count as u64));
            let limit = if count > 1 { pairs_max } else { u64::MAX };
            let found = match &probing.by_entry {
                Some(matches) => matches.probe(queue, &keys.columns, count, mode, limit)?,
                None => queue.probe(table, &keys.columns, count, mode, limit)?,
            };
            let Some(pairs) = found else {
                probing.step = count.div_ceil(2);
                continue;
            };
            probing.next += count as u64;
            let rows = queue.slice_rows(&probing.rows, first_row, count)?;
            let marks = probing.marks.as_ref().map(|marks| (marks, first_row));
            return self.emit(queue, built, &rows, marks, pairs);
        }
    }

    /// Pairs that there is room for at once.
    fn pairs_max(&self, driver: &Driver) -> u64 {
        let cell_bytes = |types: &[DataType]| types.iter().map(column_bytes).sum::<u64>();
        // Row numbers of both sides, before and after a residual condition.
        let a_pair = 16 + cell_bytes(&self.build_types) + cell_bytes(&self.probe_types);
        (driver.query.memory.chunk_bytes() / a_pair).max(PAIRS_MIN)
    }

    /// Marks the pairs that meet the residual condition, and outputs them if the kind of join does.
    /// Probe marks start at the chunk's first row.
    fn emit(
        &self,
        queue: &Queue,
        built: &Built,
        probe: &Rows,
        probe_marks: Option<(&Buffer, usize)>,
        pairs: Pairs,
    ) -> Result<Rows> {
        let pairs = self.filter_pairs(queue, built, probe, pairs)?;
        if let Some(marks) = &built.marks {
            queue.mark(&pairs.build, None, marks, 0)?;
        }
        if let Some((marks, first_row)) = probe_marks {
            queue.mark(&pairs.probe, None, marks, first_row)?;
        }
        if !self.gives_pairs() {
            return queue.empty(&self.types()).map(Rows::from);
        }
        let build = queue.gather_all(&built.chunk.columns.iter().collect::<Vec<_>>(), &pairs.build)?;
        let build = build.into_iter().map(AnyColumn::Cells);
        let probe = queue.gather_columns(&probe.columns.iter().collect::<Vec<_>>(), &pairs.probe)?;
        let columns = match self.build_side {
            JoinSide::Left => build.chain(probe).collect(),
            JoinSide::Right => probe.into_iter().chain(build).collect(),
        };
        Ok(Rows { row_count: pairs.probe.count, columns })
    }

    /// The pairs that meet the residual condition.
    fn filter_pairs(&self, queue: &Queue, built: &Built, probe: &Rows, pairs: Pairs) -> Result<Pairs> {
        let Some(Residual { condition, left, right }) = &self.residual else { return Ok(pairs) };
        if pairs.probe.count == 0 {
            return Ok(pairs);
        }
        let (build_places, probe_places) = match self.build_side {
            JoinSide::Left => (left, right),
            JoinSide::Right => (right, left),
        };
        let build: Vec<&Column> = build_places.iter().map(|place| &built.chunk.columns[*place]).collect();
        let build = queue.gather_all(&build, &pairs.build)?;
        let probe: Vec<&AnyColumn> = probe_places.iter().map(|place| &probe.columns[*place]).collect();
        let probe = queue.gather_columns(&probe, &pairs.probe)?;
        let probe = probe.iter().map(|column| queue.cells_of(column, pairs.probe.count));
        let probe = probe.collect::<Result<Vec<_>>>()?;
        let columns = match self.build_side {
            JoinSide::Left => build.into_iter().chain(probe).collect(),
            JoinSide::Right => probe.into_iter().chain(build).collect(),
        };
        let chunk = Chunk { row_count: pairs.probe.count, columns };
        let flags = condition.evaluate(queue, &chunk)?;
        let kept = queue.select(&flags.values, chunk.row_count)?;
        queue.select_pairs(&pairs, &kept)
    }
}
