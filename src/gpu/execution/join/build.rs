//! Build sides: read whole, held or spilled, and the filters that they send to scans of the probe
//! side.
//!
//! ```text
//! UnreadBuild ── rows, keys, filters ──► ReadBuild: held ── table ──► held, with a table
//!                                        ReadBuild: spilled, by the hash of the keys
//! ```
//!
//! Invariants: filters are settled before another driver gets the build side. One driver may read a
//! build side, and another one run the rest of the join (`fragment.rs`); it uses the rows after
//! [`ReadBuild::publish`] and [`ReadBuild::use_on`].

use std::sync::Arc;

use pystachio_plan::{DataType, JoinKind, Result};

use super::{
    fragment::Fragments,
    matching::{Built, Matching},
    partitions::{PartitionedJoin, SpilledSide},
};
use crate::{
    device::{Buffer, Chunk, Claim, Column},
    execution::{
        CountedSource, Driver,
        exchange::KeyGiver,
        query::{Held, Spilling, for_each_block},
        runtime_filter::{FilterGiver, MeasuredKeys},
    },
    operation::Queue,
    spill::SpilledPartitions,
};

/// An unread build side.
pub(in crate::execution) struct UnreadBuild {
    pub(in crate::execution) matching: Matching,
    pub(in crate::execution) operator: CountedSource,
    /// For the probe side's scans.
    pub(in crate::execution) filters: FilterGiver,
    /// For scans that only a filter of all ranks' keys may reach.
    pub(in crate::execution) shared: Option<KeyGiver>,
}

/// A build side that was read to its end.
pub(super) struct ReadBuild {
    pub(super) matching: Matching,
    pub(super) rows: BuildRows,
}

/// Rows of the build side, all of them.
pub(super) enum BuildRows {
    /// The join has no row, whatever the probe side has.
    Pointless,
    /// They are on the device.
    Held(HeldBuild),
    /// They are not.
    Spilled(SpilledBuild),
}

/// A build side on the device.
pub(super) struct HeldBuild {
    pub(super) rows: HeldBuildRows,
    /// For the rows, a table and filters.
    pub(super) claim: Claim,
    pub(super) filter_bytes: u64,
}

/// Rows on the device.
pub(super) enum HeldBuildRows {
    /// As they are.
    Chunk(Chunk),
    /// Ready to be probed.
    Built(Built),
}

/// A build side off the device.
pub(super) struct SpilledBuild {
    pub(super) partitions: SpilledPartitions,
    /// For joining its partitions.
    pub(super) claim: Claim,
    /// For the filters.
    pub(super) filter_claim: Claim,
}

/// The result of holding a build side's rows.
enum HoldResult {
    Pointless,
    Held(Held),
    /// With the summary of their keys.
    Spilled(SpilledPartitions, MeasuredKeys),
}

impl HeldBuildRows {
    /// How many there are.
    pub(super) fn row_count(&self) -> usize {
        self.chunk().row_count
    }

    fn chunk(&self) -> &Chunk {
        match self {
            Self::Chunk(chunk) => chunk,
            Self::Built(built) => built.chunk(),
        }
    }

    /// The rows alone.
    pub(super) fn into_chunk(self) -> Chunk {
        match self {
            Self::Chunk(chunk) => chunk,
            Self::Built(built) => built.into_chunk(),
        }
    }

    fn buffers(&self) -> Vec<&Buffer> {
        match self {
            Self::Chunk(chunk) => chunk.columns.iter().flat_map(Column::buffers).collect(),
            Self::Built(built) => built.buffers(),
        }
    }
}

impl ReadBuild {
    /// With a table, if the rows are held.
    ///
    /// # Errors
    ///
    /// Errors of [`Matching::build`].
    pub(super) fn with_table(self, queue: &Queue) -> Result<Self> {
        let Self { matching, rows } = self;
        let rows = match rows {
            BuildRows::Held(held) => {
                let filter_bytes = held.filter_bytes;
                let (built, claim) = held.into_built(&matching, queue)?;
                BuildRows::Held(HeldBuild { rows: HeldBuildRows::Built(built), claim, filter_bytes })
            }
            others => others,
        };
        Ok(Self { matching, rows })
    }

    /// Marks the work enqueued so far as the last that writes into its memory, before another
    /// stream uses it.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn publish(&self, queue: &Queue) -> Result<()> {
        queue.memory().publish(self.buffers().into_iter(), queue.stream())
    }

    /// From now on another driver's stream uses it.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(super) fn use_on(&self, queue: &Queue) -> Result<()> {
        Buffer::use_all_on(self.buffers(), queue.stream())
    }

    fn buffers(&self) -> Vec<&Buffer> {
        match &self.rows {
            BuildRows::Held(held) => held.rows.buffers(),
            BuildRows::Pointless | BuildRows::Spilled(_) => Vec::new(),
        }
    }
}

impl HeldBuild {
    /// The rows, ready to be probed, and the claim for them.
    ///
    /// # Errors
    ///
    /// Errors of [`Matching::build`].
    pub(super) fn into_built(self, matching: &Matching, queue: &Queue) -> Result<(Built, Claim)> {
        let Self { rows, mut claim, filter_bytes } = self;
        let built = match rows {
            HeldBuildRows::Built(built) => return Ok((built, claim)),
            HeldBuildRows::Chunk(chunk) => matching.build(queue, chunk)?,
        };
        claim.try_resize(matching.built_bytes(&built) + filter_bytes);
        Ok((built, claim))
    }
}

impl UnreadBuild {
    /// Reads the build side, and settles the filters of the scans. Begins the fragments that have
    /// waited for these.
    ///
    /// # Errors
    ///
    /// Errors of the rows and of spilling; `Cancelled`, and faults of the device.
    pub(super) fn read(mut self, driver: &mut Driver, fragments: &Arc<Fragments>) -> Result<ReadBuild> {
        let rows = self.read_rows(driver)?;
        let Self { matching, operator, .. } = self;
        // From now on other operators may use the memory that those below held and claimed.
        drop(operator);
        fragments.begin(&driver.query);
        Ok(ReadBuild { matching, rows })
    }

    fn read_rows(&mut self, driver: &mut Driver) -> Result<BuildRows> {
        let mut claim = driver.query.memory.claim()?;
        let held = match self.hold(driver, &mut claim)? {
            HoldResult::Pointless => return Ok(BuildRows::Pointless),
            HoldResult::Spilled(partitions, measured) => {
                let filter_claim = self.publish_spilled(driver, &partitions, &measured)?;
                return Ok(BuildRows::Spilled(SpilledBuild { partitions, claim, filter_claim }));
            }
            HoldResult::Held(held) => held,
        };
        let chunk = whole(&driver.queue, self.matching.build_types(), held)?;
        let filter_bytes = self.publish(driver, &chunk, &mut claim)?;
        Ok(BuildRows::Held(HeldBuild { rows: HeldBuildRows::Chunk(chunk), claim, filter_bytes }))
    }

    /// Holds the rows of the build side, or spills them.
    fn hold(&mut self, driver: &mut Driver, claim: &mut Claim) -> Result<HoldResult> {
        let mut held = Held::default();
        let mut spilled: Option<Spilling<'_>> = None;
        let mut measured = MeasuredKeys::default();
        let measures = self.matching.has_keys() && self.filters.0.are_wanted();
        let mut measure = |queue: &Queue, chunk: &Chunk| match measures {
            true => measured.add(queue, &self.matching.build_keys(queue, chunk)?, chunk.row_count),
            false => Ok(()),
        };
        while let Some(chunk) = self.operator.next_chunk(driver)? {
            if chunk.row_count == 0 {
                continue;
            }
            let queue = &driver.queue;
            if self.matching.kind == JoinKind::NullAwareAnti {
                let keys = self.matching.build_keys(queue, &chunk)?;
                if let Some(key) = keys.first()
                    && queue.has_null(key, chunk.row_count)?
                {
                    // x NOT IN (…, NULL, …) is never true.
                    return Ok(HoldResult::Pointless);
                }
            }
            if let Some(spilling) = &mut spilled {
                measure(queue, &chunk)?;
                spilling.push(driver, claim, chunk)?;
                continue;
            }
            held.push(chunk);
            let cost = |bytes, rows| self.matching.build_bytes(bytes, rows);
            if held.try_claim(queue, claim, cost)? {
                continue;
            }
            let mut spilling = PartitionedJoin::spilling(&self.matching, SpilledSide::Build);
            for chunk in held.take() {
                measure(queue, &chunk)?;
                spilling.push(driver, claim, chunk)?;
            }
            spilled = Some(spilling);
        }
        let spilled = spilled.map(|spilling| spilling.finish(driver, claim)).transpose()?;
        Ok(match spilled {
            Some(spilled) => HoldResult::Spilled(spilled, measured),
            None => HoldResult::Held(held),
        })
    }

    /// Settles the scans' filters for a build side that is held.
    fn publish(&self, driver: &Driver, chunk: &Chunk, claim: &mut Claim) -> Result<u64> {
        if !self.filters.0.are_wanted() && self.shared.is_none() {
            return Ok(0);
        }
        let queue = &driver.queue;
        let keys = self.matching.build_keys(queue, chunk)?;
        if let Some(KeyGiver(shared)) = &self.shared {
            shared.give(queue, chunk.row_count, |give| give(&keys, chunk.row_count))?;
        }
        let mut measured = MeasuredKeys::default();
        measured.add(queue, &keys, chunk.row_count)?;
        self.filters.0.publish(queue, &measured, claim, |insert| insert(&keys, chunk.row_count))
    }

    /// Settles the scans' filters for a spilled build side. Its rows are read back for that, block
    /// by block; each probe row that a filter drops need not be spilled.
    fn publish_spilled(
        &self,
        driver: &Driver,
        build: &SpilledPartitions,
        measured: &MeasuredKeys,
    ) -> Result<Claim> {
        let queue = &driver.queue;
        let mut claim = driver.query.memory.claim()?;
        let all_keys = |give: &mut dyn FnMut(&[Column], usize) -> Result<()>| {
            for_each_block(driver, build.whole(), |chunk| {
                give(&self.matching.build_keys(queue, &chunk)?, chunk.row_count)
            })
        };
        if let Some(KeyGiver(shared)) = &self.shared {
            shared.give(queue, build.whole().row_count(), all_keys)?;
        }
        self.filters.0.publish(queue, measured, &mut claim, all_keys)?;
        Ok(claim)
    }
}

/// All held rows as one chunk of columns of these types.
pub(super) fn whole(queue: &Queue, types: &[DataType], mut held: Held) -> Result<Chunk> {
    match held.row_count() {
        0 => queue.empty(types),
        _ => queue.concat_taken(held.take()),
    }
}
