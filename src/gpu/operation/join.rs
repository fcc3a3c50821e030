//! Hash tables, and the pairs of matching rows.
//!
//! Rows with equal hashes are chained: `heads` has the last row of each chain, `next_rows` the row before it. Where one
//! integer key is dense, it is its own slot and nothing is hashed.
//!
//! A chain may be as long as the build side, so a launch takes a bounded number of steps along the chains of its rows, and
//! the next one goes on there. Counting ends as soon as there are more pairs than the caller wants.

use pystachio_plan::{Error, ErrorKind, Result};

use super::{
    KEYS_MAX, KeyRange, Queue, RowNumbers,
    abi::{
        FindEqualKeys, HashKeys, InsertBuildRows, KeyColumns, ProbeRows, SLOTS_BY_HASH, SLOTS_BY_KEY,
        WritePairs,
    },
};
use crate::device::{Buffer, Column, Kernel, Readback};

/// Slots of a table whose keys are slots, for each row: more would cost more memory than hashes do.
const SLOTS_PER_ROW_MAX: u64 = 4;

/// Steps along chains in a launch, except those of [`CHAIN_STEPS_MIN`].
const LAUNCH_STEPS: u64 = 256 << 20;
/// Steps that a launch takes along a chain: at least so many, or rows with ordinary chains would
/// need several launches;
const CHAIN_STEPS_MIN: u64 = 16;
/// and at most so many, each of which waits for the one before: a tenth of a second.
const CHAIN_STEPS_MAX: u64 = 256 << 10;

/// The build side of a hash join.
pub struct JoinTable {
    row_count: usize,
    keys: Vec<Column>,
    slots: SlotLookup,
    heads: Buffer,
    next_rows: Buffer,
    slot_count: u64,
    /// Whether no two rows have equal keys.
    is_unique: bool,
    /// Whether no two rows share a slot.
    has_chains_of_one: bool,
}

impl JoinTable {
    /// Rows of the build side.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Bytes of a table of so many rows besides their keys: hashes, links, and slots. A table whose
    /// keys are its slots takes no more.
    pub fn bytes_for(row_count: usize) -> u64 {
        Self::bytes_with(row_count, hashed_slots(row_count))
    }

    /// Upper bound of the bytes that so many rows add to a larger table, whose slots are a power of
    /// two.
    pub fn bytes_within(row_count: usize) -> u64 {
        Self::bytes_with(row_count, (row_count as u64).saturating_mul(SLOTS_PER_ROW_MAX))
    }

    fn bytes_with(row_count: usize, slot_count: u64) -> u64 {
        const ROW_BYTES: u64 = (size_of::<u64>() + size_of::<u32>()) as u64;
        const SLOT_BYTES: u64 = size_of::<u32>() as u64;
        const _: () = assert!(SLOTS_PER_ROW_MAX * SLOT_BYTES + 4 <= ROW_BYTES + 2 * SLOT_BYTES);
        row_count as u64 * ROW_BYTES + slot_count.saturating_mul(SLOT_BYTES)
    }

    /// Its device memory: a table that is probed on another stream than it was built on is
    /// published there, and used here, like any buffer.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        let keys = self.keys.iter().flat_map(Column::buffers);
        let hashes = match &self.slots {
            SlotLookup::ByHash(hashes) => Some(hashes),
            SlotLookup::ByKey(_) => None,
        };
        keys.chain(hashes).chain([&self.heads, &self.next_rows])
    }
}

/// The kinds of pairs that a probe returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Every match.
    Matches,
    /// Every match, and a pair with no build row for a probe row without one.
    MatchesOrMiss,
    /// The first match only.
    First,
}

/// Rows of both sides, pair by pair.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The probe side's.
    pub probe: RowNumbers,
    /// The build side's.
    pub build: RowNumbers,
}

/// Slots of a table by hash: at least two a row, and fewer than four.
fn hashed_slots(row_count: usize) -> u64 {
    (row_count as u64).saturating_mul(2).max(2).next_power_of_two()
}

/// How keys find their slot.
enum SlotLookup {
    /// By their hashes, one a build row.
    ByHash(Buffer),
    /// By themselves: integers from this one on.
    ByKey(i64),
}

impl SlotLookup {
    fn code(&self) -> u32 {
        match self {
            Self::ByHash(_) => SLOTS_BY_HASH,
            Self::ByKey(_) => SLOTS_BY_KEY,
        }
    }

    fn hashes(&self) -> u64 {
        match self {
            Self::ByHash(hashes) => hashes.address(),
            Self::ByKey(_) => 0,
        }
    }

    fn least(&self) -> i64 {
        match self {
            Self::ByHash(_) => 0,
            Self::ByKey(least) => *least,
        }
    }
}

/// The key columns in the form for kernels.
///
/// # Errors
///
/// `NotSupported` for more keys than kernels support.
pub(super) fn key_columns(keys: &[Column]) -> Result<KeyColumns> {
    if keys.len() > KEYS_MAX {
        let message = format!("more keys than a kernel takes: keys={}, keys_max={KEYS_MAX}", keys.len());
        return Err(Error::new(ErrorKind::NotSupported, message));
    }
    let mut columns = KeyColumns { count: keys.len() as u32, ..KeyColumns::default() };
    for (target, key) in columns.columns.iter_mut().zip(keys) {
        *target = key.view();
    }
    Ok(columns)
}

/// Matching rows by their keys: one column a key, at most [`KEYS_MAX`], on both sides of the same types. A row with a
/// NULL key matches nothing.
impl Queue {
    /// Builds a table over rows; waits.
    ///
    /// # Errors
    ///
    /// `NotSupported` for more than [`KEYS_MAX`] keys.
    pub fn build(&self, keys: Vec<Column>, row_count: usize) -> Result<JoinTable> {
        let (slots, slot_count) = match self.dense_slots(&keys, row_count)? {
            Some(dense) => dense,
            None => (SlotLookup::ByHash(self.hash(&keys, row_count, false)?), hashed_slots(row_count)),
        };
        let heads = self.allocate_filled::<u32>(slot_count, 0xff)?;
        let next_rows = self.allocate::<u32>(row_count as u64)?;
        let shared = self.zeros::<u32>(1)?;
        let arguments = InsertBuildRows {
            key: keys.first().map(Column::view).unwrap_or_default(),
            hashes: slots.hashes(),
            heads: heads.address(),
            next_rows: next_rows.address(),
            row_count: row_count as u64,
            slot_count,
            least: slots.least(),
            shared: shared.address(),
            slots: slots.code(),
            reserved: 0,
        };
        self.launch_strided(Kernel::InsertBuildRows, row_count as u64, &arguments)?;
        let has_chains_of_one = self.is_zero(&shared)?;
        let mut is_unique = has_chains_of_one;
        if let (false, SlotLookup::ByHash(hashes)) = (is_unique, &slots) {
            let found = self.zeros::<u32>(1)?;
            let arguments = FindEqualKeys {
                keys: key_columns(&keys)?,
                hashes: hashes.address(),
                next_rows: next_rows.address(),
                row_count: row_count as u64,
                found: found.address(),
            };
            self.launch_strided(Kernel::FindEqualKeys, row_count as u64, &arguments)?;
            is_unique = self.is_zero(&found)?;
        }
        Ok(JoinTable { row_count, keys, slots, heads, next_rows, slot_count, is_unique, has_chains_of_one })
    }

    /// The pairs of rows whose keys are equal, in probe order, or `None` if there are more than `pairs_max`. Pairs of
    /// one probe row have no order. Waits for their count.
    ///
    /// # Errors
    ///
    /// Errors of [`Queue::build`]; `NotSupported` for more pairs than a chunk may have rows.
    pub fn probe(
        &self,
        table: &JoinTable,
        keys: &[Column],
        row_count: usize,
        mode: ProbeMode,
        pairs_max: u64,
    ) -> Result<Option<Pairs>> {
        debug_assert!(table.keys.iter().zip(keys).all(|(a, b)| a.cell_type == b.cell_type));
        let hashes = match table.slots {
            SlotLookup::ByHash(_) => Some(self.hash(keys, row_count, false)?),
            SlotLookup::ByKey(_) => None,
        };
        let mut arguments = ProbeRows {
            build_keys: key_columns(&table.keys)?,
            probe_keys: key_columns(keys)?,
            build_hashes: table.slots.hashes(),
            heads: table.heads.address(),
            next_rows: table.next_rows.address(),
            slot_count: table.slot_count,
            least: table.slots.least(),
            probe_hashes: hashes.as_ref().map_or(0, Buffer::address),
            probe_row_count: row_count as u64,
            slots: table.slots.code(),
            steps_max: chain_steps(row_count as u64),
            keep_unmatched: (mode == ProbeMode::MatchesOrMiss).into(),
            ..ProbeRows::default()
        };
        // If a key is its slot, the first row is a match.
        let is_one_step = table.has_chains_of_one
            || (mode == ProbeMode::First && matches!(table.slots, SlotLookup::ByKey(_)));
        let walk = if is_one_step { None } else { Some(ChainWalk::new(self, row_count)?) };
        if let Some(walk) = &walk {
            arguments.cursors = walk.cursors.address();
            arguments.unfinished = walk.unfinished.address();
        }
        if mode == ProbeMode::First || (mode == ProbeMode::Matches && table.is_unique) {
            return self.match_rows(arguments, walk.as_ref(), row_count, pairs_max);
        }
        let counts = self.allocate::<u32>(row_count as u64)?;
        arguments.counts = counts.address();
        let (offsets, total) = loop {
            self.launch_strided(Kernel::CountMatches, row_count as u64, &arguments)?;
            let unfinished = walk.as_ref().map(|walk| walk.post_unfinished(self)).transpose()?;
            let (offsets, total) = self.offsets(&counts, 4, row_count)?;
            if total > pairs_max {
                return Ok(None);
            }
            if !goes_on(self, walk.as_ref(), unfinished, &mut arguments)? {
                break (offsets, total);
            }
        };
        let total = check_pairs(total)?;
        let probe_rows = self.allocate::<u32>(total as u64)?;
        let build_rows = self.allocate::<u32>(total as u64)?;
        arguments.offsets = offsets.address();
        arguments.probe_rows = probe_rows.address();
        arguments.build_rows = build_rows.address();
        // The steps that sufficed for counting leave no rows to wait for.
        let waited = walk.as_ref().filter(|_| arguments.resumes != 0);
        arguments.resumes = 0;
        arguments.steps_max = chain_steps(row_count as u64);
        let mut is_left = total > 0;
        while is_left {
            self.launch_strided(Kernel::WriteMatches, row_count as u64, &arguments)?;
            let unfinished = waited.map(|walk| walk.post_unfinished(self)).transpose()?;
            is_left = goes_on(self, waited, unfinished, &mut arguments)?;
        }
        Ok(Some(Pairs {
            probe: RowNumbers { rows: probe_rows, count: total, may_miss: false, is_every_row: false },
            build: RowNumbers {
                rows: build_rows,
                count: total,
                may_miss: mode == ProbeMode::MatchesOrMiss,
                is_every_row: false,
            },
        }))
    }

    /// Some pairs of a join without keys: `count` of them from pair `first` on, where pairs are numbered probe row by
    /// probe row.
    pub fn cross(&self, first: u64, count: usize, build_row_count: usize) -> Result<Pairs> {
        let probe_rows = self.allocate::<u32>(count as u64)?;
        let build_rows = self.allocate::<u32>(count as u64)?;
        let arguments = WritePairs {
            probe_rows: probe_rows.address(),
            build_rows: build_rows.address(),
            first_pair: first,
            pair_count: count as u64,
            build_row_count: build_row_count as u64,
        };
        self.launch_strided(Kernel::WritePairs, count as u64, &arguments)?;
        Ok(Pairs {
            probe: RowNumbers { rows: probe_rows, count, may_miss: false, is_every_row: false },
            build: RowNumbers { rows: build_rows, count, may_miss: false, is_every_row: false },
        })
    }

    /// Some of the pairs: `kept` are their places.
    pub fn select_pairs(&self, pairs: &Pairs, kept: &RowNumbers) -> Result<Pairs> {
        Ok(Pairs {
            probe: self.select_numbers(&pairs.probe, kept)?,
            build: self.select_numbers(&pairs.build, kept)?,
        })
    }
}

impl Queue {
    /// One hash a row. A row with a NULL key matches nothing unless `nulls_match`.
    pub(super) fn hash(&self, keys: &[Column], row_count: usize, nulls_match: bool) -> Result<Buffer> {
        let hashes = self.allocate::<u64>(row_count as u64)?;
        let arguments = HashKeys {
            keys: key_columns(keys)?,
            hashes: hashes.address(),
            row_count: row_count as u64,
            nulls_match: nulls_match.into(),
            reserved: 0,
        };
        self.launch_strided(Kernel::HashKeys, row_count as u64, &arguments)?;
        Ok(hashes)
    }

    /// Whether a flag is not set; waits.
    fn is_zero(&self, flag: &Buffer) -> Result<bool> {
        Ok(self.download::<u32>(flag, 1)?.first() == Some(&0))
    }

    /// Slots that are keys, if there is one integer key and its values lie close enough together; waits then.
    fn dense_slots(&self, keys: &[Column], row_count: usize) -> Result<Option<(SlotLookup, u64)>> {
        let [key] = keys else { return Ok(None) };
        let Some(KeyRange { least, greatest }) = self.key_range(key, row_count)? else { return Ok(None) };
        let slot_count = greatest.abs_diff(least).saturating_add(1);
        let is_dense = slot_count <= (row_count as u64).saturating_mul(SLOTS_PER_ROW_MAX);
        Ok(is_dense.then_some((SlotLookup::ByKey(least), slot_count)))
    }

    /// At most one pair for each probe row.
    fn match_rows(
        &self,
        arguments: ProbeRows,
        walk: Option<&ChainWalk>,
        row_count: usize,
        pairs_max: u64,
    ) -> Result<Option<Pairs>> {
        let build_rows = self.allocate::<u32>(row_count as u64)?;
        let flags = self.allocate::<u8>(row_count as u64)?;
        let mut arguments =
            ProbeRows { build_rows: build_rows.address(), flags: flags.address(), ..arguments };
        let probe = loop {
            self.launch_strided(Kernel::MatchRows, row_count as u64, &arguments)?;
            let unfinished = walk.map(|walk| walk.post_unfinished(self)).transpose()?;
            let probe = self.select(&flags, row_count)?;
            if probe.count as u64 > pairs_max {
                return Ok(None);
            }
            if !goes_on(self, walk, unfinished, &mut arguments)? {
                break probe;
            }
        };
        let all = RowNumbers { rows: build_rows, count: row_count, may_miss: false, is_every_row: false };
        let build = self.select_numbers(&all, &probe)?;
        Ok(Some(Pairs { probe, build }))
    }

    /// Some of the numbers.
    fn select_numbers(&self, numbers: &RowNumbers, kept: &RowNumbers) -> Result<RowNumbers> {
        if kept.is_every_row {
            return Ok(numbers.clone());
        }
        let selected = self.gather(&Column::of_numbers(numbers.rows.clone()), kept)?;
        Ok(RowNumbers {
            rows: selected.values,
            count: kept.count,
            may_miss: numbers.may_miss,
            is_every_row: false,
        })
    }
}

/// The progress of probe rows along their chains.
struct ChainWalk {
    /// The build row of each probe row at which the next launch continues.
    cursors: Buffer,
    /// Their number.
    unfinished: Buffer,
}

impl ChainWalk {
    fn new(queue: &Queue, row_count: usize) -> Result<Self> {
        Ok(Self { cursors: queue.allocate::<u32>(row_count as u64)?, unfinished: queue.zeros::<u32>(1)? })
    }

    /// Sends the number of rows that a launch has left to the host.
    fn post_unfinished(&self, queue: &Queue) -> Result<Readback> {
        queue.memory().post::<u32>(self.unfinished.address(), 1, queue.stream())
    }
}

/// Whether another launch must continue the chains; sets its arguments.
fn goes_on(
    queue: &Queue,
    walk: Option<&ChainWalk>,
    unfinished: Option<Readback>,
    arguments: &mut ProbeRows,
) -> Result<bool> {
    let (Some(walk), Some(unfinished)) = (walk, unfinished) else { return Ok(false) };
    let unfinished = unfinished.wait::<u32>(1)?.first().copied().unwrap_or_default();
    if unfinished == 0 {
        return Ok(false);
    }
    queue.memory().fill(&walk.unfinished, 0, queue.stream())?;
    arguments.resumes = 1;
    arguments.steps_max = chain_steps(unfinished.into());
    Ok(true)
}

/// Steps that a launch takes along each of so many chains.
fn chain_steps(chain_count: u64) -> u32 {
    (LAUNCH_STEPS / chain_count.max(1)).clamp(CHAIN_STEPS_MIN, CHAIN_STEPS_MAX) as u32
}

/// Pairs are numbered with 32 bits.
fn check_pairs(total: u64) -> Result<usize> {
    if total >= u64::from(u32::MAX) {
        let message = format!("a chunk of a join has more rows than a chunk may have: rows={total}");
        return Err(Error::new(ErrorKind::NotSupported, message));
    }
    Ok(total as usize)
}
