//! Joins: the build side whole and the probe side chunk by chunk. If the build side exceeds its
//! claim, both sides partition by partition.

use std::collections::VecDeque;

use pystachio_plan::Result;

use super::{
    build::{BuildRows, HeldBuild, HeldBuildRows, ReadBuild, SpilledBuild, whole},
    fragment::BuildFragment,
    matching::{BuildSide, Built, Matching, Probing},
    partitions::{PartitionedJoin, SpilledSide},
};
use crate::{
    device::{Claim, Rows},
    execution::{CountedSource, Driver, Source, query::Held},
};

/// A join.
pub(in crate::execution) struct JoinSource {
    probe: ProbeSide,
    state: JoinState,
}

/// The probe side's chunks.
struct ProbeSide {
    /// Absent once no more of its rows are wanted.
    operator: Option<CountedSource>,
    /// Rows that were read before the build side was made, and the claim for them.
    ahead: VecDeque<Rows>,
    claim: Option<Claim>,
}

impl ProbeSide {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        match self.ahead.pop_front() {
            Some(rows) => Ok(Some(rows)),
            None => {
                self.claim = None;
                self.operator.as_mut().map_or(Ok(None), |operator| operator.next(driver))
            }
        }
    }
}

/// A side with at least this many times the rows of the other is not hashed, if the other turns out
/// to be so small.
const SWAP_FACTOR: usize = 4;
/// Smaller sides are hashed as planned.
const SWAP_ROWS_MIN: usize = 1 << 12;

/// The state of a join.
enum JoinState {
    /// The build side was not requested; a driver of its own may be reading it.
    Start(BuildFragment),
    /// Probe chunks are read.
    Probing(Box<BuiltSide>),
    /// Both sides were spilled.
    Partitioned(Box<SpilledSides>),
    /// The end.
    Done,
}

/// Spilled sides.
struct SpilledSides {
    matching: Matching,
    join: PartitionedJoin,
    /// For the filters.
    _claim: Claim,
}

/// A build side that is held whole.
struct BuiltSide {
    matching: Matching,
    built: Built,
    is_empty: bool,
    probing: Option<Probing>,
    /// For the held rows.
    _claim: Claim,
}

impl JoinSource {
    pub(in crate::execution) fn new(build: BuildFragment, probe: CountedSource) -> Self {
        let probe = ProbeSide { operator: Some(probe), ahead: VecDeque::new(), claim: None };
        Self { probe, state: JoinState::Start(build) }
    }

    /// Requests the build side, and reads the probe side too if both have to be partitioned.
    fn start(&mut self, driver: &mut Driver, build: BuildFragment) -> Result<JoinState> {
        let ReadBuild { matching, rows } = build.take(driver)?;
        match rows {
            BuildRows::Pointless => {
                self.probe.operator = None;
                Ok(JoinState::Done)
            }
            BuildRows::Spilled(build) => self.partition(driver, matching, build),
            BuildRows::Held(held) => self.build(driver, matching, held),
        }
    }

    /// Hashes the side that turns out to be small, unless there is a table. Skips the probe side if
    /// the build side is empty and unmatched probe rows are not output.
    fn build(&mut self, driver: &mut Driver, mut matching: Matching, held: HeldBuild) -> Result<JoinState> {
        if held.rows.row_count() == 0 && matching.drops_unmatched_probe() {
            self.probe.operator = None;
            return Ok(JoinState::Done);
        }
        let held = match self.smaller_side(driver, &matching, held.rows.row_count())? {
            Some((probe, claim)) => {
                matching.swap();
                self.probe = ProbeSide {
                    operator: None,
                    ahead: VecDeque::from([held.rows.into_chunk().into()]),
                    claim: Some(held.claim),
                };
                let rows = HeldBuildRows::Chunk(whole(&driver.queue, matching.build_types(), probe)?);
                HeldBuild { rows, claim, filter_bytes: 0 }
            }
            None => held,
        };
        let is_empty = held.rows.row_count() == 0;
        let (built, claim) = held.into_built(&matching, &driver.queue)?;
        Ok(JoinState::Probing(Box::new(BuiltSide {
            matching,
            built,
            is_empty,
            probing: None,
            _claim: claim,
        })))
    }

    /// Spills the probe side of a build side that was spilled.
    fn partition(
        &mut self,
        driver: &mut Driver,
        matching: Matching,
        build: SpilledBuild,
    ) -> Result<JoinState> {
        let SpilledBuild { partitions, mut claim, filter_claim } = build;
        let mut probe = PartitionedJoin::spilling(&matching, SpilledSide::Probe);
        while let Some(rows) = self.probe.next(driver)? {
            let chunk = driver.queue.chunk_of(&rows)?;
            probe.push(driver, &mut claim, chunk)?;
        }
        let probe = probe.finish(driver, &mut claim)?;
        let join = PartitionedJoin::new(&matching, (partitions, probe), claim);
        Ok(JoinState::Partitioned(Box::new(SpilledSides { matching, join, _claim: filter_claim })))
    }

    /// Reads the probe side, and returns all of its rows with their claim if they turn out to be
    /// far fewer than the build rows; then the probe side is hashed instead. Estimates of join
    /// results may be off by orders of magnitude, and many rows of few keys make long chains.
    /// Otherwise the rows read so far are kept for the join.
    fn smaller_side(
        &mut self,
        driver: &mut Driver,
        matching: &Matching,
        build_row_count: usize,
    ) -> Result<Option<(Held, Claim)>> {
        if !matching.may_swap() || build_row_count < SWAP_ROWS_MIN {
            return Ok(None);
        }
        let mut claim = driver.query.memory.claim()?;
        let mut ahead = Held::default();
        while ahead.row_count() < build_row_count / SWAP_FACTOR {
            match self.probe.next(driver)? {
                None => return Ok(Some((ahead, claim))),
                Some(rows) if rows.row_count == 0 => {}
                Some(rows) => {
                    ahead.push(driver.queue.chunk_of(&rows)?);
                    if !ahead.try_claim(&driver.queue, &mut claim, |bytes, _| bytes)? {
                        break;
                    }
                }
            }
        }
        self.probe.ahead.extend(ahead.take().into_iter().map(Rows::from));
        self.probe.claim = Some(claim);
        Ok(None)
    }
}

impl Source for JoinSource {
    fn next(&mut self, driver: &mut Driver) -> Result<Option<Rows>> {
        self.state = match std::mem::replace(&mut self.state, JoinState::Done) {
            JoinState::Start(build) => self.start(driver, build)?,
            started => started,
        };
        match &mut self.state {
            JoinState::Start(_) | JoinState::Done => Ok(None),
            JoinState::Partitioned(sides) => {
                let rows = sides.join.next(&sides.matching, driver)?;
                if rows.is_none() {
                    self.state = JoinState::Done;
                }
                Ok(rows)
            }
            JoinState::Probing(side) => {
                let BuiltSide { matching, built, is_empty, probing: current, .. } = &mut **side;
                let known = BuildSide { is_empty: *is_empty, is_last: true };
                loop {
                    let Some(probing) = current else {
                        let Some(rows) = self.probe.next(driver)? else {
                            let alone = matching.unmatched(&driver.queue, built)?;
                            self.state = JoinState::Done;
                            return Ok(alone);
                        };
                        let probing = matching.probe(&driver.queue, built, rows, None)?;
                        if probing.is_by_entry() {
                            driver.count("dictionary_rows_probed", probing.row_count() as u64);
                        }
                        *current = Some(probing);
                        continue;
                    };
                    match matching.next(driver, built, probing, known)? {
                        Some(rows) => return Ok(Some(rows)),
                        None => *current = None,
                    }
                }
            }
        }
    }

    fn expect_whole(&mut self) -> bool {
        if let Some(operator) = &mut self.probe.operator {
            operator.expect_whole();
        }
        true
    }
}
