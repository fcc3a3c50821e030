//! Joins: the build side whole, the probe side chunk by chunk.
//!
//! Every kind comes from the pairs that match and from marks: which probe rows of the chunk, and which
//! build rows of all, are in a pair. Rows of a preserved side without a mark come out alone; build rows
//! do so after the last probe chunk.

use std::collections::VecDeque;

use pystachio_plan::{DataType, JoinKind, JoinSide, Result};

use super::{Operator, QueryContext, Source};
use crate::{
    device::{Buffer, Chunk, Column},
    operation::{JoinTable, Pairs, ProbeMode, Queue},
    program::{Filter, Program},
};

/// The side with this many times the rows of the other is not hashed, where the other turns out to be that small.
const SWAP_FACTOR: usize = 4;
/// Smaller sides are hashed as planned.
const SWAP_ROWS_MIN: usize = 1 << 16;
/// Pairs of a join without keys that are tried at once.
const CROSS_PAIRS_MAX: u64 = 8 << 20;

/// A join.
pub(super) struct JoinSource {
    pub(super) kind: JoinKind,
    pub(super) build_side: JoinSide,
    pub(super) build: Operator,
    pub(super) probe: Operator,
    /// The keys' values on either side; `None` if there are none.
    pub(super) keys: Option<(Program, Program)>,
    /// The condition on a pair, over left columns and then right columns.
    pub(super) residual: Option<Residual>,
    pub(super) state: JoinState,
    /// Probe chunks that were read before the build side was hashed.
    pub(super) ahead: VecDeque<Chunk>,
}

/// A condition on a pair.
pub(super) struct Residual {
    pub(super) condition: Filter,
    /// Which columns of a pair it reads.
    pub(super) reads: Vec<bool>,
}

/// How far a join is.
pub(super) enum JoinState {
    /// The build side has not been read.
    Start,
    /// Probe chunks come.
    Probing(Box<Built>),
    /// Nothing more comes.
    Done,
}

/// The build side.
pub(super) struct Built {
    chunk: Chunk,
    /// Absent for a join without keys.
    table: Option<JoinTable>,
    /// One byte a build row: whether it is in a pair. Absent if nobody asks.
    marks: Option<Buffer>,
    /// A probe chunk of a join without keys that is not through, and its next pair.
    rest: Option<(Chunk, u64, Option<Buffer>)>,
}

impl JoinSource {
    /// Whether rows of the build side come out because of their marks.
    fn marks_build(&self) -> bool {
        match self.kind {
            JoinKind::Inner | JoinKind::NullAwareAnti => false,
            JoinKind::Full => true,
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => self.build_side == JoinSide::Left,
        }
    }

    /// Whether rows of the probe side come out because of their marks.
    fn marks_probe(&self) -> bool {
        match self.kind {
            JoinKind::Inner => false,
            JoinKind::Full | JoinKind::NullAwareAnti => true,
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => self.build_side == JoinSide::Right,
        }
    }

    /// Whether pairs themselves come out.
    fn gives_pairs(&self) -> bool {
        matches!(self.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Full)
    }

    /// Hashes the other side if it turns out to be far smaller: estimates of what joins give may be off by
    /// orders of magnitude, and many rows on few keys make long chains.
    fn choose_side(&mut self, context: &mut QueryContext, build: Chunk) -> Result<Chunk> {
        let may_swap = self.kind != JoinKind::NullAwareAnti && self.keys.is_some();
        if !may_swap || build.row_count < SWAP_ROWS_MIN {
            return Ok(build);
        }
        let mut row_count = 0;
        while row_count < build.row_count / SWAP_FACTOR {
            let Some(chunk) = self.probe.next(context)? else {
                return self.swap_sides(context, build);
            };
            row_count += chunk.row_count;
            self.ahead.push_back(chunk);
        }
        Ok(build)
    }

    /// What was to be probed is hashed, and the other way round.
    fn swap_sides(&mut self, context: &QueryContext, build: Chunk) -> Result<Chunk> {
        let chunks = Vec::from(std::mem::replace(&mut self.ahead, VecDeque::from([build])));
        std::mem::swap(&mut self.build, &mut self.probe);
        self.keys = self.keys.take().map(|(build, probe)| (probe, build));
        self.build_side = match self.build_side {
            JoinSide::Left => JoinSide::Right,
            JoinSide::Right => JoinSide::Left,
        };
        match chunks.is_empty() {
            true => context.queue.empty(&self.build.types()),
            false => context.queue.concat(&chunks),
        }
    }

    /// The next probe chunk.
    fn next_probe(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        match self.ahead.pop_front() {
            Some(chunk) => Ok(Some(chunk)),
            None => self.probe.next(context),
        }
    }

    fn read_build(&mut self, context: &mut QueryContext) -> Result<()> {
        let chunk = self.build.collect(context)?;
        let chunk = self.choose_side(context, chunk)?;
        let queue = &context.queue;
        let table = match &self.keys {
            None => None,
            Some((build_keys, _)) => {
                let keys = build_keys.evaluate(queue.memory(), &chunk, queue.stream())?;
                if self.kind == JoinKind::NullAwareAnti
                    && let Some(key) = keys.first()
                    && queue.has_null(key, chunk.row_count)?
                {
                    // x NOT IN (…, NULL, …) is never true.
                    self.state = JoinState::Done;
                    return Ok(());
                }
                Some(queue.build(keys, chunk.row_count)?)
            }
        };
        let marks = match self.marks_build() {
            true => Some(queue.allocate_filled::<u8>(chunk.row_count as u64, 0)?),
            false => None,
        };
        self.state = JoinState::Probing(Box::new(Built { chunk, table, marks, rest: None }));
        Ok(())
    }

    /// The chunk for the next pairs, or the build rows that are left at the end.
    fn probe_next(&mut self, context: &mut QueryContext, built: &mut Built) -> Result<Option<Chunk>> {
        if built.table.is_none() {
            return self.cross_next(context, built);
        }
        match self.next_probe(context)? {
            Some(chunk) => self.probe_chunk(context, built, &chunk).map(Some),
            None => Ok(None),
        }
    }

    fn probe_chunk(&self, context: &QueryContext, built: &Built, probe: &Chunk) -> Result<Chunk> {
        let queue = &context.queue;
        let (Some(table), Some((_, probe_keys))) = (&built.table, &self.keys) else {
            return queue.empty(&[]);
        };
        let keys = probe_keys.evaluate(queue.memory(), probe, queue.stream())?;
        if self.kind == JoinKind::NullAwareAnti && table.row_count() == 0 {
            // x NOT IN () is true, of NULL too.
            return Ok(probe.clone());
        }
        let only_marks = !self.gives_pairs() && built.marks.is_none() && self.residual.is_none();
        let mode = if only_marks { ProbeMode::First } else { ProbeMode::Matches };
        let pairs = queue.probe(table, &keys, probe.row_count, mode)?;
        let pairs = self.filter_pairs(context, built, probe, pairs)?;
        let marks = match self.marks_probe() {
            true => Some(queue.allocate_filled::<u8>(probe.row_count as u64, 0)?),
            false => None,
        };
        if let (JoinKind::NullAwareAnti, Some(marks), Some(key)) = (self.kind, &marks, keys.first())
            && let Some(validity) = &key.validity
        {
            // A NULL on the left is never true either: marked as if it had a match.
            let nulls = Column {
                data_type: DataType::Bool,
                cell_type: crate::device::CellType::Bool,
                values: validity.clone(),
                validity: None,
                strings: Vec::new(),
            };
            let flags = queue.flags(&nulls, probe.row_count, true)?;
            let rows = queue.select(&flags, probe.row_count)?;
            queue.mark(&rows, None, marks)?;
        }
        self.emit(context, built, probe, &pairs, marks.as_ref(), true)
    }

    /// The pairs that meet the residual condition.
    fn filter_pairs(
        &self,
        context: &QueryContext,
        built: &Built,
        probe: &Chunk,
        pairs: Pairs,
    ) -> Result<Pairs> {
        let Some(residual) = &self.residual else { return Ok(pairs) };
        if pairs.probe.count == 0 {
            return Ok(pairs);
        }
        let queue = &context.queue;
        let chunk = self.pair_chunk(queue, built, probe, &pairs, Some(residual))?;
        let flags = residual.condition.evaluate(queue.memory(), &chunk, queue.stream())?;
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

    /// What the kind of join gives of a probe chunk, or of a part of its pairs: then `is_last` says whether
    /// its other pairs were seen.
    fn emit(
        &self,
        context: &QueryContext,
        built: &Built,
        probe: &Chunk,
        pairs: &Pairs,
        probe_marks: Option<&Buffer>,
        is_last: bool,
    ) -> Result<Chunk> {
        let queue = &context.queue;
        if let Some(marks) = &built.marks {
            queue.mark(&pairs.build, None, marks)?;
        }
        if let Some(marks) = probe_marks {
            queue.mark(&pairs.probe, None, marks)?;
        }
        let mut chunks = Vec::new();
        if self.gives_pairs() {
            chunks.push(self.pair_chunk(queue, built, probe, pairs, None)?);
        }
        if let (Some(marks), true) = (probe_marks, is_last) {
            let alone = self.marked_rows(queue, probe, marks)?;
            chunks.push(self.preserved(queue, alone, &built.chunk, self.build_side == JoinSide::Left)?);
        }
        if chunks.is_empty() { queue.empty(&self.types()) } else { queue.concat(&chunks) }
    }

    /// Rows with a mark for a semi join, without one for the others.
    fn marked_rows(&self, queue: &Queue, chunk: &Chunk, marks: &Buffer) -> Result<Chunk> {
        let marked = Column {
            data_type: DataType::Bool,
            cell_type: crate::device::CellType::Bool,
            values: marks.clone(),
            validity: None,
            strings: Vec::new(),
        };
        let flags = queue.flags(&marked, chunk.row_count, self.kind != JoinKind::Semi)?;
        let rows = queue.select(&flags, chunk.row_count)?;
        queue.gather_chunk(chunk, &rows)
    }

    /// Rows of one side with NULLs for the other, where the kind has the other's columns.
    fn preserved(&self, queue: &Queue, rows: Chunk, other: &Chunk, other_is_left: bool) -> Result<Chunk> {
        if !self.gives_pairs() {
            return Ok(rows);
        }
        let nulls = other
            .columns
            .iter()
            .map(|column| queue.nulls(&column.data_type, rows.row_count))
            .collect::<Result<Vec<_>>>()?;
        let columns = match other_is_left {
            true => nulls.into_iter().chain(rows.columns).collect(),
            false => rows.columns.into_iter().chain(nulls).collect(),
        };
        Ok(Chunk { row_count: rows.row_count, columns })
    }

    /// The next slice of the pairs of a join without keys.
    fn cross_next(&mut self, context: &mut QueryContext, built: &mut Built) -> Result<Option<Chunk>> {
        let (probe, first, marks) = match built.rest.take() {
            Some(rest) => rest,
            None => match self.next_probe(context)? {
                None => return Ok(None),
                Some(chunk) => {
                    let marks = match self.marks_probe() {
                        true => Some(context.queue.allocate_filled::<u8>(chunk.row_count as u64, 0)?),
                        false => None,
                    };
                    (chunk, 0, marks)
                }
            },
        };
        let build_rows = built.chunk.row_count;
        let total = probe.row_count as u64 * build_rows as u64;
        let count = (total - first).min(CROSS_PAIRS_MAX);
        let pairs = context.queue.cross(first, count as usize, build_rows)?;
        let pairs = self.filter_pairs(context, built, &probe, pairs)?;
        let is_last = first + count == total;
        let chunk = self.emit(context, built, &probe, &pairs, marks.as_ref(), is_last)?;
        if !is_last {
            built.rest = Some((probe, first + count, marks));
        }
        Ok(Some(chunk))
    }

    fn types(&self) -> Vec<DataType> {
        let (left, right) = match self.build_side {
            JoinSide::Left => (&self.build, &self.probe),
            JoinSide::Right => (&self.probe, &self.build),
        };
        let mut types = left.types();
        if self.gives_pairs() {
            types.extend(right.types());
        }
        types
    }
}

impl Source for JoinSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Chunk>> {
        if matches!(self.state, JoinState::Start) {
            self.read_build(context)?;
        }
        let JoinState::Probing(mut built) = std::mem::replace(&mut self.state, JoinState::Done) else {
            return Ok(None);
        };
        if let Some(chunk) = self.probe_next(context, &mut built)? {
            self.state = JoinState::Probing(built);
            return Ok(Some(chunk));
        }
        let Some(marks) = &built.marks else { return Ok(None) };
        let queue = &context.queue;
        let alone = self.marked_rows(queue, &built.chunk, marks)?;
        let other = queue.empty(&self.probe.types())?;
        self.preserved(queue, alone, &other, self.build_side == JoinSide::Right).map(Some)
    }
}
