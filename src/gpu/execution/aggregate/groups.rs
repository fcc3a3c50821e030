//! Merges rows with equal keys: partial results of an aggregate.
//!
//! ```text
//! chunks ─► held ─► merged when there are many ─► partitioned by the hash of their keys, if they stay too many
//!                                            │        │ partition by partition, the same way
//! results ◄── merged, in the types of the plan ◄──────┘
//!                                            └─► passed on as they are, by the first of two phases
//! ```
//!
//! A merge takes far more memory than the rows. So rows are partitioned, or passed on, when there is no memory for it, and
//! also when a merge left most of them: their keys are different, and another merge would not make them fewer either.
//! Partitions are merged one after another, each within the memory that the operator is sure to have.
//!
//! Invariants: merged rows have different keys, so partitioning them makes them fewer. Rows that are passed on may have keys
//! of others.
//!
//! Source: Larson, "Data Reduction by Partial Preaggregation", ICDE 2002, for rows that are passed on.

use std::collections::VecDeque;

use pystachio_plan::{DataType, Result};

use crate::{
    device::{Chunk, Claim},
    execution::{
        Driver,
        query::{Held, PARTITION_LEVELS_MAX, PARTITIONS, ROWS_MAX, Spilling, for_each_block, groups_within},
    },
    operation::{Accumulation, Accumulator, HashPartitioning, Queue, SumWidth},
    spill::SpilledPart,
};

/// Rows are merged when there are this many times the rows left by the last merge.
const MERGE_GROWTH: usize = 4;
/// Fewer rows are not merged as long as memory suffices. Tests have few rows.
const MERGE_ROWS_MIN: usize = if cfg!(test) { 256 } else { 4 << 20 };
/// A merge that leaves more than this part of the rows does not pay.
const LEFT_PART_MAX: (usize, usize) = (3, 4);
/// As many are merged rather than copied.
const MERGE_ROWS_FEW: usize = 1 << 16;
/// Copies of all rows that a merge makes, and bytes for every row besides: hashes, slots, group numbers, sums.
const MERGE_COPIES: u64 = 3;
const MERGE_ROW_BYTES: u64 = 72;
/// The same more for sums of floats, which have words of twice the bytes of their states, and bounds of these.
const FLOAT_COPIES: u64 = 2;
const FLOAT_ROW_BYTES: u64 = 72;

/// The merge of rows with equal keys.
pub(super) struct Merger {
    /// Columns, from the first on, that are keys.
    pub(super) key_count: usize,
    /// The columns after the keys.
    pub(super) values: Vec<MergedValue>,
}

/// A column of partial results.
pub(super) struct MergedValue {
    pub(super) accumulator: Accumulator,
    /// The type of partial results.
    pub(super) partial_type: DataType,
    /// The type of results.
    pub(super) data_type: DataType,
}

/// What happens to rows that stay too many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ManyRows {
    /// They are partitioned, and merged at last.
    Partitioned,
    /// They are results as they are.
    PassedOn,
}

/// Rows that were partitioned, each time anew, and rows that were passed on.
#[derive(Clone, Copy, Default)]
pub(super) struct PutAside {
    pub(super) partitioned: u64,
    pub(super) passed_on: u64,
}

/// Rows of different keys, as far as they were merged.
pub(super) struct MergedGroups {
    merger: Merger,
    many_rows: ManyRows,
    claim: Claim,
    held: Held,
    /// Rows after the last merge.
    merged_rows: usize,
    /// Whether merges make rows fewer, as far as known.
    merges_pay: bool,
    /// Rows that were added.
    row_count: usize,
    /// Whether merges pay is tried again when so many rows were added.
    tried_from: usize,
    /// Results for now.
    passed_on: VecDeque<Chunk>,
    counts: PutAside,
    /// The partitions that rows are spilled to, once they are.
    spilled: Option<Spilling<'static>>,
    /// How often the incoming rows were partitioned.
    level: u32,
    /// The number of partitions of the next partitioning.
    partition_count: usize,
    /// Remaining partitions, each with its level.
    work: Vec<(SpilledPart, u32)>,
}

impl Merger {
    /// Bytes that a merge of so many rows takes, by their bytes and their number.
    fn cost(&self) -> impl Fn(u64, usize) -> u64 + use<> {
        let is_of_floats = |value: &MergedValue| {
            matches!(value.accumulator, Accumulator::FloatSum | Accumulator::Deviations)
        };
        let (copies, row_bytes) = match self.values.iter().any(is_of_floats) {
            true => (MERGE_COPIES + FLOAT_COPIES, MERGE_ROW_BYTES + FLOAT_ROW_BYTES),
            false => (MERGE_COPIES, MERGE_ROW_BYTES),
        };
        move |bytes, row_count| copies * bytes + row_bytes * row_count as u64
    }

    /// Merges rows of equal keys. `is_last`: into the types of results.
    fn merge(&self, queue: &Queue, chunks: &[Chunk], is_last: bool) -> Result<Chunk> {
        let chunk = queue.concat(chunks)?;
        let (keys, partials) = chunk.columns.split_at(self.key_count);
        let grouping = queue.group(keys, chunk.row_count, chunk.row_count)?;
        let mut columns = match &grouping.leaders {
            None => Vec::new(),
            Some(leaders) => queue.gather_all(&keys.iter().collect::<Vec<_>>(), leaders)?,
        };
        let calls: Vec<Accumulation> = self
            .values
            .iter()
            .zip(partials)
            .enumerate()
            .map(|(number, (value, partial))| Accumulation {
                accumulator: value.accumulator,
                input: Some(number),
                width: SumWidth::of_partial(partial),
                result: if is_last { &value.data_type } else { &value.partial_type }.clone(),
            })
            .collect();
        columns.extend(queue.accumulate(&grouping, &partials.iter().collect::<Vec<_>>(), &calls)?);
        Ok(Chunk { row_count: grouping.group_count, columns })
    }
}

impl MergedGroups {
    /// No rows yet.
    pub(super) fn new(merger: Merger, many_rows: ManyRows, claim: Claim) -> Self {
        Self {
            merger,
            many_rows,
            claim,
            held: Held::default(),
            merged_rows: MERGE_ROWS_MIN,
            merges_pay: true,
            row_count: 0,
            tried_from: 0,
            passed_on: VecDeque::new(),
            counts: PutAside::default(),
            spilled: None,
            level: 0,
            partition_count: PARTITIONS,
            work: Vec::new(),
        }
    }

    /// Whether no rows were added.
    pub(super) fn is_empty(&self) -> bool {
        self.held.row_count() == 0 && self.spilled.is_none()
    }

    /// Adds rows, in the types of partial results.
    pub(super) fn add(&mut self, driver: &Driver, chunk: Chunk) -> Result<()> {
        let queue = &driver.queue;
        self.row_count += chunk.row_count;
        if !self.merges_pay && self.row_count < self.tried_from && self.may_put_aside() {
            return self.put_aside(driver, chunk);
        }
        self.held.push(chunk);
        // A chunk of few rows may keep much text in memory: then fewer are collected before a copy.
        let is_few = self.held.row_count() <= MERGE_ROWS_FEW && self.held.chunks().len() > 1;
        if is_few && !self.held.fits(&mut self.claim, self.merger.cost()) {
            self.merge(queue)?;
        }
        let has_grown = self.held.chunks().len() > 1
            && self.held.row_count() > self.merged_rows.saturating_mul(MERGE_GROWTH);
        let fits = self.held.try_claim(queue, &mut self.claim, self.merger.cost())?;
        if fits && !has_grown {
            return Ok(());
        }
        self.merge(queue)?;
        if self.may_put_aside() {
            // Without room for as much again, a merge at every chunk would cost too much.
            let cost = self.merger.cost();
            let has_room = |bytes, rows| 2 * cost(bytes, rows);
            if !self.merges_pay || (!fits && !self.held.try_claim(queue, &mut self.claim, has_room)?) {
                return self.put_held_aside(driver);
            }
        }
        self.held.try_claim(queue, &mut self.claim, self.merger.cost())?;
        Ok(())
    }

    fn may_put_aside(&self) -> bool {
        self.merger.key_count > 0 && self.level <= PARTITION_LEVELS_MAX
    }

    fn merge(&mut self, queue: &Queue) -> Result<()> {
        let merged = self.merger.merge(queue, self.held.chunks(), false)?;
        let rows = self.held.row_count();
        if self.held.take().len() > 1 && rows > MERGE_ROWS_MIN {
            self.merges_pay = merged.row_count * LEFT_PART_MAX.1 <= rows * LEFT_PART_MAX.0;
        }
        self.merged_rows = merged.row_count.max(MERGE_ROWS_MIN);
        self.held.push(merged);
        Ok(())
    }

    /// Partitions rows, or passes them on.
    fn put_aside(&mut self, driver: &Driver, chunk: Chunk) -> Result<()> {
        if self.many_rows == ManyRows::PassedOn {
            self.counts.passed_on += chunk.row_count as u64;
            self.passed_on.push_back(chunk);
            return Ok(());
        }
        self.counts.partitioned += chunk.row_count as u64;
        let (level, key_count) = (self.level, self.merger.key_count);
        let by = HashPartitioning { partition_count: self.partition_count, level, nulls_match: true };
        let spilling = self.spilled.get_or_insert_with(|| {
            Spilling::new(by.partition_count, move |queue, chunk| {
                queue.partition(&chunk.columns[..key_count], chunk.row_count, by).map(Some)
            })
            .keeping()
        });
        spilling.push(driver, &mut self.claim, chunk)
    }

    fn put_held_aside(&mut self, driver: &Driver) -> Result<()> {
        for chunk in self.held.take() {
            self.put_aside(driver, chunk)?;
        }
        match &mut self.spilled {
            // The held rows were as many as memory allows.
            Some(spilling) => spilling.flush(driver, &mut self.claim)?,
            None => {
                self.claim.try_resize(0);
            }
        }
        self.merged_rows = MERGE_ROWS_MIN;
        if !self.merges_pay {
            self.tried_from = self.row_count.saturating_mul(2);
        }
        Ok(())
    }

    /// The counts since the last call.
    pub(super) fn take_counts(&mut self) -> PutAside {
        std::mem::take(&mut self.counts)
    }

    /// Results that are passed on before the last row is added.
    pub(super) fn next_passed_on(&mut self) -> Option<Chunk> {
        self.passed_on.pop_front()
    }

    /// The next results, after the last row was added; `None` after the last.
    pub(super) fn next(&mut self, driver: &Driver) -> Result<Option<Chunk>> {
        loop {
            driver.check_cancelled()?;
            if let Some(chunk) = self.next_passed_on() {
                return Ok(Some(chunk));
            }
            if self.spilled.is_some() {
                self.put_held_aside(driver)?;
            }
            if let Some(spilling) = self.spilled.take() {
                let partitions = spilling.finish(driver, &mut self.claim)?;
                let cost = self.merger.cost();
                let costs: Vec<u64> =
                    partitions.sizes().iter().map(|size| cost(size.bytes, size.row_count)).collect();
                // Small partitions are merged together, but none takes memory from caches for that.
                let claimed = self.claim.resize_up_to(costs.iter().copied().max().unwrap_or(0));
                let parts = partitions.into_groups(&groups_within(costs, claimed));
                self.work.extend(parts.into_iter().map(|part| (part, self.level)));
            }
            if self.held.row_count() > 0 {
                let result = self.merger.merge(&driver.queue, self.held.chunks(), true)?;
                self.held.take();
                if self.work.is_empty() {
                    self.claim.try_resize(0);
                }
                return Ok(Some(result));
            }
            let Some((part, level)) = self.work.pop() else {
                self.claim.try_resize(0);
                return Ok(None);
            };
            self.level = level + 1;
            let cost = self.merger.cost()(part.bytes(), part.row_count());
            let claimed = self.claim.resize_up_to(cost);
            self.merged_rows = MERGE_ROWS_MIN;
            if claimed >= cost && part.row_count() <= ROWS_MAX {
                if let Some(all) = part.first_batch(u64::MAX) {
                    self.held.push(part.read(&driver.queue, all)?);
                }
                continue;
            }
            let wanted = (2 * cost / claimed.max(1)).next_power_of_two();
            self.partition_count = (wanted as usize).clamp(2, PARTITIONS);
            for_each_block(driver, part, |chunk| self.add(driver, chunk))?;
        }
    }
}
