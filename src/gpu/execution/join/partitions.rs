//! A join whose build side is larger than its claim.
//!
//! ```text
//! build ─► partition by hash ─► spill ┐   partition by partition: build side back, probe side chunk by chunk
//! probe ─► partition by hash ─► spill ┘   a build side still too large: both sides partitioned once more
//!                                         one key too often: the build side piece by piece, the probe side each time
//! ```
//!
//! Invariants: equal keys are in the same partition of either side. If a build side comes in
//! pieces, the marks of probe rows are spilled from piece to piece like other rows, so that rows
//! without a match are output once.
//!
//! Source: DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984, section 3.4
//! (GRACE). We differ: no partition stays in memory, rows are spilled in blocks of all partitions, so that small
//! partitions make no small copies, and partitions that are small together are joined as one.

use std::ops::Range;

use pystachio_plan::{DataType, Error, Result};

use super::matching::{BuildSide, Built, Matching, Probing};
use crate::{
    device::{Buffer, CellType, Chunk, Claim, Column, Rows},
    execution::{
        Driver,
        query::{PARTITION_LEVELS_MAX, PARTITIONS, ROWS_MAX, Spilling, for_each_block, groups_within},
    },
    operation::{HashPartitioning, Queue},
    spill::{SpilledChunk, SpilledPart, SpilledPartitions, SpilledSize},
};

/// A partition with at least this part of its parent's build rows has a key that can't be partitioned.
const STUCK_PART: (usize, usize) = (7, 8);

/// Both sides off the device.
pub(super) struct PartitionedJoin {
    work: Vec<Partition>,
    current: Option<Current>,
    /// Whether the whole build side has no rows.
    build_is_empty: bool,
    claim: Claim,
}

/// The side whose rows are spilled.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpilledSide {
    /// The side that is hashed.
    Build,
    /// The side that looks up its matches.
    Probe,
}

/// A partition of either side, or several.
struct Partition {
    build: SpilledPart,
    probe: SpilledPart,
    /// How often its rows were partitioned, less one.
    level: u32,
    /// Whether partitioning once more would not help.
    is_stuck: bool,
}

/// The partition that is being joined.
struct Current {
    partition: Partition,
    build_pieces: Vec<Range<usize>>,
    /// The piece that is built.
    build_place: usize,
    built: Built,
    probe_batches: Vec<Range<usize>>,
    /// The batch that is probed, or comes next.
    probe_place: usize,
    probing: Option<Probing>,
    /// Marks from earlier pieces, by batch: a byte a row.
    marks: Vec<Option<SpilledChunk>>,
}

/// Marks of probe rows as a chunk of one column.
fn marks_chunk(marks: &Buffer, row_count: usize) -> Chunk {
    let column = Column {
        data_type: DataType::Bool,
        cell_type: CellType::Bool,
        values: marks.clone(),
        validity: None,
        strings: Vec::new(),
    };
    Chunk { row_count, columns: vec![column] }
}

/// Spilled marks.
fn read_marks(queue: &Queue, spilled: &SpilledChunk) -> Result<Buffer> {
    let chunk = SpilledChunk::read(queue, &[(spilled, spilled.ranges(0..spilled.partition_count()))]);
    // From here on the read bytes may be freed.
    queue.wait()?;
    let marks = chunk?.columns.into_iter().next().map(|column| column.values);
    marks.ok_or_else(|| Error::internal("spilled marks without a column"))
}

fn partitioning(partition_count: usize, level: u32) -> HashPartitioning {
    HashPartitioning { partition_count, level, nulls_match: false }
}

impl PartitionedJoin {
    /// Both sides, build and probe, as they were first partitioned.
    pub(super) fn new(
        matching: &Matching,
        (build, probe): (SpilledPartitions, SpilledPartitions),
        claim: Claim,
    ) -> Self {
        let build_is_empty = build.sizes().iter().all(|size| size.row_count == 0);
        let mut join = Self { work: Vec::new(), current: None, build_is_empty, claim };
        join.add_work(matching, build, probe, |_| (0, false));
        join
    }

    /// The first partitioning of a side's rows.
    pub(super) fn spilling(matching: &Matching, side: SpilledSide) -> Spilling<'_> {
        match matching.has_keys() {
            true => divided(matching, side, partitioning(PARTITIONS, 0)),
            false => Spilling::in_order(),
        }
    }

    /// Adds partitions of both sides to the list, several as one where they fit. `kind` gives a
    /// partition's level, and whether partitioning it once more would not help, from its build
    /// rows.
    fn add_work(
        &mut self,
        matching: &Matching,
        build: SpilledPartitions,
        probe: SpilledPartitions,
        kind: impl Fn(usize) -> (u32, bool),
    ) {
        let cost = |size: &SpilledSize| matching.part_bytes(size.bytes, size.row_count);
        let costs: Vec<u64> = build.sizes().iter().map(cost).collect();
        // The memory stays claimed, so that a part that fits now need not be partitioned later.
        let claimed = self.claim.resize_up_to(costs.iter().sum());
        let groups = groups_within(costs, claimed);
        let pairs = build.into_groups(&groups).into_iter().zip(probe.into_groups(&groups));
        self.work.extend(pairs.map(|(build, probe)| {
            let (level, is_stuck) = kind(build.row_count());
            Partition { build, probe, level, is_stuck }
        }));
    }

    /// The next rows, or `None` after the last partition.
    pub(super) fn next(&mut self, matching: &Matching, driver: &mut Driver) -> Result<Option<Rows>> {
        loop {
            driver.check_cancelled()?;
            let Some(mut current) = self.current.take() else {
                let Some(partition) = self.work.pop() else {
                    self.claim.try_resize(0);
                    return Ok(None);
                };
                self.start(matching, driver, partition)?;
                continue;
            };
            if let Some(mut probing) = current.probing.take() {
                let is_last = current.build_place + 1 == current.build_pieces.len();
                let side = BuildSide { is_empty: self.build_is_empty, is_last };
                let rows = matching.next(driver, &current.built, &mut probing, side)?;
                if rows.is_some() {
                    current.probing = Some(probing);
                    self.current = Some(current);
                    return Ok(rows);
                }
                if let (Some(marks), false) = (probing.marks(), is_last) {
                    let (row_count, store) = (probing.row_count(), &driver.query.memory.store);
                    let chunk = marks_chunk(marks, row_count);
                    let spilled = SpilledChunk::write(&driver.queue, store, &chunk, vec![0, row_count])?;
                    current.marks[current.probe_place] = Some(spilled);
                }
                current.probe_place += 1;
            } else if let Some(batch) = current.probe_batches.get(current.probe_place) {
                let queue = &driver.queue;
                let chunk = current.partition.probe.read(queue, batch.clone())?;
                let spilled = current.marks[current.probe_place].as_ref();
                let marks = spilled.map(|spilled| read_marks(queue, spilled)).transpose()?;
                current.probing = Some(matching.probe(queue, &current.built, chunk.into(), marks)?);
            } else {
                let alone = matching.unmatched(&driver.queue, &current.built)?;
                current.build_place += 1;
                if current.build_place < current.build_pieces.len() {
                    self.current = Some(self.build(matching, driver, current)?);
                }
                if alone.is_some() {
                    return Ok(alone);
                }
                continue;
            }
            self.current = Some(current);
        }
    }

    /// Starts to join a partition, or partitions it once more.
    fn start(&mut self, matching: &Matching, driver: &Driver, partition: Partition) -> Result<()> {
        let (bytes, rows) = (partition.build.bytes(), partition.build.row_count());
        let gives_nothing = (rows == 0 && matching.drops_unmatched_probe())
            || (partition.probe.row_count() == 0 && !matching.marks_build());
        if gives_nothing {
            return Ok(());
        }
        let cost = matching.build_bytes(bytes, rows);
        let fits = rows <= ROWS_MAX && (self.claim.bytes() >= cost || self.claim.try_resize(cost));
        let may_split = matching.has_keys() && !partition.is_stuck && partition.level < PARTITION_LEVELS_MAX;
        if !fits && may_split {
            return self.split(matching, driver, partition, cost);
        }
        // As many build rows as the claim allows: the whole partition, or a piece of it.
        let claimed = if fits { cost } else { self.claim.resize_up_to(cost) };
        let piece_bytes = (u128::from(bytes) * u128::from(claimed) / u128::from(cost.max(1))) as u64;
        let mut build_pieces = partition.build.batches(if fits { u64::MAX } else { piece_bytes });
        if build_pieces.is_empty() {
            build_pieces.push(0..0);
        }
        let probe_batches = partition.probe.batches(driver.query.memory.chunk_bytes());
        let marks = probe_batches.iter().map(|_| None).collect();
        let built = self.read_piece(matching, driver, &partition, build_pieces[0].clone())?;
        self.current = Some(Current {
            partition,
            build_pieces,
            build_place: 0,
            built,
            probe_batches,
            probe_place: 0,
            probing: None,
            marks,
        });
        Ok(())
    }

    /// The next piece of the build side, for the probe side from its beginning.
    fn build(&self, matching: &Matching, driver: &Driver, current: Current) -> Result<Current> {
        let Current { partition, build_pieces, build_place, built, probe_batches, marks, .. } = current;
        drop(built);
        let piece = build_pieces[build_place].clone();
        let built = self.read_piece(matching, driver, &partition, piece)?;
        Ok(Current {
            partition,
            build_pieces,
            build_place,
            built,
            probe_batches,
            probe_place: 0,
            probing: None,
            marks,
        })
    }

    fn read_piece(
        &self,
        matching: &Matching,
        driver: &Driver,
        partition: &Partition,
        piece: Range<usize>,
    ) -> Result<Built> {
        let queue = &driver.queue;
        let chunk = match piece.is_empty() {
            true => queue.empty(matching.build_types())?,
            false => partition.build.read(queue, piece)?,
        };
        matching.build(queue, chunk)
    }

    /// Partitions both sides of a partition by other bits of their hashes.
    fn split(&mut self, matching: &Matching, driver: &Driver, partition: Partition, cost: u64) -> Result<()> {
        let level = partition.level + 1;
        let claimed = self.claim.resize_up_to(cost);
        let wanted = (2 * cost / claimed.max(1)).next_power_of_two();
        let by = partitioning((wanted as usize).clamp(2, PARTITIONS), level);
        let build_rows = partition.build.row_count();
        let mut build = divided(matching, SpilledSide::Build, by);
        for_each_block(driver, partition.build, |chunk| build.push(driver, &mut self.claim, chunk))?;
        let build = build.finish(driver, &mut self.claim)?;
        let mut probe = divided(matching, SpilledSide::Probe, by);
        for_each_block(driver, partition.probe, |chunk| probe.push(driver, &mut self.claim, chunk))?;
        let probe = probe.finish(driver, &mut self.claim)?;
        let is_stuck = |rows: usize| rows * STUCK_PART.1 >= build_rows * STUCK_PART.0;
        self.add_work(matching, build, probe, |rows| (level, is_stuck(rows)));
        Ok(())
    }
}

/// Partitioning of a side's rows by their keys.
fn divided(matching: &Matching, side: SpilledSide, by: HashPartitioning) -> Spilling<'_> {
    Spilling::new(by.partition_count, move |queue, chunk| {
        let keys = match side {
            SpilledSide::Build => matching.build_keys(queue, chunk)?,
            SpilledSide::Probe => matching.probe_keys(queue, &chunk.clone().into())?,
        };
        queue.partition(&keys, chunk.row_count, by).map(Some)
    })
}
