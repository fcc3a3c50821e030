//! Joins: the build side whole and the probe side chunk by chunk; where the build side is larger than its claim,
//! both sides partition by partition.

use std::{collections::VecDeque, sync::Arc};

use pystachio_plan::{JoinKind, Result};

use super::{
    Operator, QueryContext, Source,
    held::{Held, Spilling, for_each_block},
    join_partitions::{PartitionedJoin, Side},
    matching::{BuildSide, Built, Matching, Probing},
    runtime_filter::{JoinFilters, MeasuredKeys},
};
use crate::{
    device::{Chunk, Claim, Rows},
    operation::Queue,
    spill::SpilledPartitions,
};

/// A join.
pub(super) struct JoinSource {
    matching: Matching,
    build: Operator,
    probe: ProbeSide,
    /// For the probe side's scans.
    filters: Arc<JoinFilters>,
    state: JoinState,
}

/// The probe side's chunks.
struct ProbeSide {
    operator: Operator,
    /// Rows that were read before the build side was made, and the claim for them.
    ahead: VecDeque<Rows>,
    claim: Option<Claim>,
}

impl ProbeSide {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Rows>> {
        match self.ahead.pop_front() {
            Some(rows) => Ok(Some(rows)),
            None => {
                self.claim = None;
                self.operator.next(context)
            }
        }
    }
}

/// The side with this many times the rows of the other is not hashed, where the other turns out to be that small.
const SWAP_FACTOR: usize = 4;
/// Smaller sides are hashed as planned.
const SWAP_ROWS_MIN: usize = 1 << 12;

/// How far a join is.
enum JoinState {
    /// The build side has not been read.
    Start,
    /// Probe chunks come.
    Probing(Box<BuiltSide>),
    /// Both sides were spilled.
    Partitioned(Box<SpilledSides>),
    /// Nothing more comes.
    Done,
}

/// Rows of the build side, all of them.
enum BuildRows {
    Held(Held),
    /// With what is known of their keys.
    Spilled(SpilledPartitions, MeasuredKeys),
}

/// Sides that were spilled.
struct SpilledSides {
    join: PartitionedJoin,
    /// For the filters.
    _claim: Claim,
}

/// A build side that is held whole.
struct BuiltSide {
    built: Built,
    is_empty: bool,
    probing: Option<Probing>,
    /// For what is held.
    _claim: Claim,
}

impl JoinSource {
    pub(super) fn new(
        matching: Matching,
        build: Operator,
        probe: Operator,
        filters: Arc<JoinFilters>,
    ) -> Self {
        let probe = ProbeSide { operator: probe, ahead: VecDeque::new(), claim: None };
        Self { matching, build, probe, filters, state: JoinState::Start }
    }

    /// Reads the build side, and the probe side too if both have to be partitioned.
    fn read_build(&mut self, context: &mut QueryContext) -> Result<JoinState> {
        let mut claim = context.memory.claim()?;
        let held = match self.hold_build(context, &mut claim)? {
            None => return Ok(JoinState::Done),
            Some(BuildRows::Spilled(build, measured)) => {
                return self.partition(context, (build, &measured), claim);
            }
            Some(BuildRows::Held(held)) => held,
        };
        let chunk = whole(context, &self.build, held)?;
        // Before the first row of the probe side is asked for.
        let filter_bytes = self.publish(context, &chunk, &mut claim)?;
        let (chunk, mut claim) = self.choose_side(context, chunk, claim)?;
        let queue = &context.queue;
        let is_empty = chunk.row_count == 0;
        let built = self.matching.build(queue, chunk)?;
        claim.try_resize(self.matching.built_bytes(&built) + filter_bytes);
        Ok(JoinState::Probing(Box::new(BuiltSide { built, is_empty, probing: None, _claim: claim })))
    }

    /// Spills the probe side of a build side that was spilled.
    fn partition(
        &mut self,
        context: &mut QueryContext,
        (build, measured): (SpilledPartitions, &MeasuredKeys),
        mut claim: Claim,
    ) -> Result<JoinState> {
        let filter_claim = self.publish_spilled(context, &build, measured)?;
        let mut probe = PartitionedJoin::spilling(&self.matching, Side::Probe);
        while let Some(rows) = self.probe.next(context)? {
            let chunk = context.queue.chunk_of(&rows)?;
            probe.push(context, &mut claim, chunk)?;
        }
        let probe = probe.finish(context)?;
        let types = self.build.types();
        let join = PartitionedJoin::new(&self.matching, (build, probe), types, claim);
        Ok(JoinState::Partitioned(Box::new(SpilledSides { join, _claim: filter_claim })))
    }

    /// Sends the scans what they wait for of a build side that is held.
    fn publish(&self, context: &QueryContext, chunk: &Chunk, claim: &mut Claim) -> Result<u64> {
        if !self.filters.are_wanted() {
            return Ok(0);
        }
        let queue = &context.queue;
        let keys = self.matching.build_keys(queue, chunk)?;
        let mut measured = MeasuredKeys::default();
        measured.add(queue, &keys, chunk.row_count)?;
        self.filters.publish(queue, &measured, claim, |insert| insert(&keys, chunk.row_count))
    }

    /// Sends the scans what they wait for of a build side that was spilled: its rows come back for it, block by block,
    /// and every row of the probe side that is dropped need not be spilled.
    fn publish_spilled(
        &self,
        context: &QueryContext,
        build: &SpilledPartitions,
        measured: &MeasuredKeys,
    ) -> Result<Claim> {
        let queue = &context.queue;
        let mut claim = context.memory.claim()?;
        self.filters.publish(queue, measured, &mut claim, |insert| {
            for_each_block(context, build.whole(), |chunk| {
                insert(&self.matching.build_keys(queue, &chunk)?, chunk.row_count)
            })
        })?;
        Ok(claim)
    }

    /// The rows of the build side; `None` if the join has no row whatever comes.
    fn hold_build(&mut self, context: &mut QueryContext, claim: &mut Claim) -> Result<Option<BuildRows>> {
        let mut held = Held::default();
        let mut spilled: Option<Spilling<'_>> = None;
        let mut measured = MeasuredKeys::default();
        let measures = self.matching.has_keys() && self.filters.are_wanted();
        let mut measure = |queue: &Queue, chunk: &Chunk| match measures {
            true => measured.add(queue, &self.matching.build_keys(queue, chunk)?, chunk.row_count),
            false => Ok(()),
        };
        while let Some(chunk) = self.build.next_chunk(context)? {
            if chunk.row_count == 0 {
                continue;
            }
            let queue = &context.queue;
            if self.matching.kind == JoinKind::NullAwareAnti {
                let keys = self.matching.build_keys(queue, &chunk)?;
                if let Some(key) = keys.first()
                    && queue.has_null(key, chunk.row_count)?
                {
                    // x NOT IN (…, NULL, …) is never true.
                    return Ok(None);
                }
            }
            if let Some(spilling) = &mut spilled {
                measure(queue, &chunk)?;
                spilling.push(context, claim, chunk)?;
                continue;
            }
            held.push(chunk);
            let cost = |bytes, rows| self.matching.build_bytes(bytes, rows);
            if held.try_claim(queue, claim, cost)? {
                continue;
            }
            let mut spilling = PartitionedJoin::spilling(&self.matching, Side::Build);
            for chunk in held.take() {
                measure(queue, &chunk)?;
                spilling.push(context, claim, chunk)?;
            }
            spilled = Some(spilling);
        }
        let spilled = spilled.map(|spilling| spilling.finish(context)).transpose()?;
        Ok(Some(match spilled {
            Some(spilled) => BuildRows::Spilled(spilled, measured),
            None => BuildRows::Held(held),
        }))
    }

    /// Makes the other side the build side if it turns out to be far smaller: estimates of what joins give may be
    /// off by orders of magnitude, and many rows of few keys make long chains. Returns the build side's rows with
    /// the claim for them.
    fn choose_side(
        &mut self,
        context: &mut QueryContext,
        build: Chunk,
        build_claim: Claim,
    ) -> Result<(Chunk, Claim)> {
        if !self.matching.may_swap() || build.row_count < SWAP_ROWS_MIN {
            return Ok((build, build_claim));
        }
        let mut claim = context.memory.claim()?;
        let mut ahead = Held::default();
        while ahead.row_count() < build.row_count / SWAP_FACTOR {
            match self.probe.next(context)? {
                None => {
                    std::mem::swap(&mut self.build, &mut self.probe.operator);
                    self.matching.swap();
                    self.probe.ahead.push_back(build.into());
                    self.probe.claim = Some(build_claim);
                    return Ok((whole(context, &self.build, ahead)?, claim));
                }
                Some(rows) if rows.row_count == 0 => {}
                Some(rows) => {
                    ahead.push(context.queue.chunk_of(&rows)?);
                    if !ahead.try_claim(&context.queue, &mut claim, |bytes, _| bytes)? {
                        break;
                    }
                }
            }
        }
        self.probe.ahead.extend(ahead.take().into_iter().map(Rows::from));
        self.probe.claim = Some(claim);
        Ok((build, build_claim))
    }
}

/// All rows that are held as one chunk.
fn whole(context: &QueryContext, operator: &Operator, mut held: Held) -> Result<Chunk> {
    match held.row_count() {
        0 => context.queue.empty(&operator.types()),
        _ => context.queue.concat_taken(held.take()),
    }
}

impl Source for JoinSource {
    fn next(&mut self, context: &mut QueryContext) -> Result<Option<Rows>> {
        if matches!(self.state, JoinState::Start) {
            self.state = self.read_build(context)?;
        }
        match &mut self.state {
            JoinState::Start | JoinState::Done => Ok(None),
            JoinState::Partitioned(sides) => {
                let rows = sides.join.next(&self.matching, context)?;
                if rows.is_none() {
                    self.state = JoinState::Done;
                }
                Ok(rows)
            }
            JoinState::Probing(side) => loop {
                let Some(probing) = &mut side.probing else {
                    let Some(rows) = self.probe.next(context)? else {
                        let alone = self.matching.unmatched(&context.queue, &side.built)?;
                        self.state = JoinState::Done;
                        return Ok(alone);
                    };
                    let probing = self.matching.probe(&context.queue, &side.built, rows, None)?;
                    if probing.is_by_entry() {
                        context.count("dictionary_rows_probed", probing.row_count() as u64);
                    }
                    side.probing = Some(probing);
                    continue;
                };
                let known = BuildSide { is_empty: side.is_empty, is_last: true };
                match self.matching.next(context, &side.built, probing, known)? {
                    Some(rows) => return Ok(Some(rows)),
                    None => side.probing = None,
                }
            },
        }
    }
}
