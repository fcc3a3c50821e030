//! A filter of a join's build keys for the scans of its probe side.
//!
//! ```text
//! join: build side was seen ─► least and greatest key, set of keys ─► RuntimeFilter ─► scan: row groups, then rows
//! ```
//!
//! A scan that waits for a filter loads column chunks ahead, and decodes nothing. A set of keys
//! that most rows pass is no longer applied.
//!
//! Invariants: rows that a filter drops have no match in its join. Whether there is a filter
//! changes no row of a result: `route.rs` decides which scans may have it.
//!
//! Deliberately absent: bounds of keys that are no integers.
//!
//! Source: sideways information passing, Ives and Taylor, ICDE 2008. We differ: filters come only
//! from a complete build side, and their benefit is measured while they are used.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use pystachio_engine::locking::lock_whole;
use pystachio_files::{RowGroupBounds, refutes};
use pystachio_plan::{
    ColumnId, DataType, Error, ErrorKind, Expression, Function, Literal, OperatorMetrics, Result, Value,
};

use crate::{
    device::{AnyColumn, Buffer, CellType, Claim, Column, Readback, Stream},
    operation::{FilterCounts, KeyFilter, KeyFilterShape, KeyRange, KeyTest, Queue},
};

/// Rows after which a filter's benefit is known.
const SAMPLE_ROWS: u64 = 1 << 16;
/// A filter is worth its time if it drops at least one row of so many.
const DROPPED_ROW_OF: u64 = 4;

/// A filter between a join and one or more scans, from planning on.
#[derive(Default)]
pub(in crate::execution) struct RuntimeFilter {
    /// Absent until the build side was read; then `None` if the join makes no filter.
    known: OnceLock<Option<KnownKeys>>,
}

/// The keys of a build side.
struct KnownKeys {
    /// The least and the greatest value of each key; absent for other types than integers.
    ranges: Vec<Option<RangeInclusive<i64>>>,
    /// Absent if there is no key at all.
    filter: Option<KeyFilter>,
}

impl RuntimeFilter {
    /// Whether scans no longer wait for it.
    pub(in crate::execution) fn is_settled(&self) -> bool {
        self.known.get().is_some()
    }

    fn known(&self) -> Option<&KnownKeys> {
        self.known.get().and_then(Option::as_ref)
    }

    fn set(&self) -> Option<&KeyFilter> {
        self.known.get().and_then(set_of)
    }

    /// Whether rows may have been dropped by it.
    pub(in crate::execution) fn is_used(&self) -> bool {
        self.known().is_some()
    }
}

/// The filters that one join sends.
#[derive(Default)]
pub(in crate::execution) struct JoinFilters {
    targets: Mutex<Vec<FilterTarget>>,
}

/// The filters of an unread build side. Dropping it, read or not, ends the scans' wait for them.
pub(in crate::execution) struct FilterGiver(pub(in crate::execution) Arc<JoinFilters>);

impl Drop for FilterGiver {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// A filter, and the keys that it is made of.
struct FilterTarget {
    /// Places of the join's keys.
    keys: Vec<usize>,
    filter: Arc<RuntimeFilter>,
    /// Rows of all scans that get it.
    row_count: u64,
    /// Whether it only goes before a filter of several keys, for which it is worth no more than a bitmap.
    goes_before: bool,
}

impl JoinFilters {
    /// The filter over some of the join's keys, for one more scan of so many rows. `goes_before`: the scan tests it
    /// before one of several keys.
    pub(in crate::execution) fn filter_for(
        &self,
        keys: &[usize],
        row_count: u64,
        goes_before: bool,
    ) -> Arc<RuntimeFilter> {
        let mut targets = lock_whole(&self.targets);
        if let Some(target) = targets.iter_mut().find(|target| target.keys == keys) {
            target.row_count += row_count;
            target.goes_before &= goes_before;
            return target.filter.clone();
        }
        let filter = Arc::new(RuntimeFilter::default());
        targets.push(FilterTarget { keys: keys.to_vec(), filter: filter.clone(), row_count, goes_before });
        filter
    }

    /// Whether any scan is to get one.
    pub(in crate::execution) fn has_targets(&self) -> bool {
        !lock_whole(&self.targets).is_empty()
    }

    /// Settles the rest of the filters as absent.
    pub(in crate::execution) fn give_up(&self) {
        for target in &*lock_whole(&self.targets) {
            let _ = target.filter.known.set(None);
        }
    }

    /// Whether scans wait for any.
    pub(in crate::execution) fn are_wanted(&self) -> bool {
        let targets = lock_whole(&self.targets);
        targets.iter().any(|target| !target.filter.is_settled())
    }

    /// Makes the filters of a measured build side, as far as `claim` grows for them. Readers use
    /// them on streams of their own, after the work enqueued so far. `give_keys` passes on the keys
    /// of all its rows, in any number of pieces. Returns the bytes that they take.
    ///
    /// # Errors
    ///
    /// Errors of `give_keys`, except `OutOfMemory`, and faults of the device.
    pub(in crate::execution) fn publish(
        &self,
        queue: &Queue,
        measured: &MeasuredKeys,
        claim: &mut Claim,
        give_keys: impl FnOnce(&mut dyn FnMut(&[Column], usize) -> Result<()>) -> Result<()>,
    ) -> Result<u64> {
        let targets = lock_whole(&self.targets);
        let waiting: Vec<&FilterTarget> =
            targets.iter().filter(|target| !target.filter.is_settled()).collect();
        let mut known =
            waiting.iter().map(|target| target.open(queue, measured, claim)).collect::<Result<Vec<_>>>()?;
        let sets = || {
            let sets = known.iter().map(set_of);
            waiting.iter().zip(sets).filter_map(|(target, set)| Some((target, set?)))
        };
        let mut insert = |keys: &[Column], row_count: usize| {
            sets().try_for_each(|(target, set)| queue.insert_keys(set, &target.own(keys), row_count))
        };
        let inserted = match sets().next() {
            Some(_) => give_keys(&mut insert).and_then(|()| {
                let buffers = sets().flat_map(|(_, set)| set.buffers());
                queue.memory().publish(buffers, queue.stream())
            }),
            None => Ok(()),
        };
        match inserted {
            Ok(()) => {}
            // A query works without filters.
            Err(error) if error.kind == ErrorKind::OutOfMemory => {
                known.iter_mut().filter(|known| set_of(known).is_some()).for_each(|known| *known = None);
            }
            Err(error) => return Err(error),
        }
        let mut bytes = 0;
        for (target, known) in waiting.iter().zip(known) {
            bytes += set_of(&known).map_or(0, |set| set.shape().bytes());
            // No other code settles it.
            let _ = target.filter.known.set(known);
        }
        Ok(bytes)
    }
}

/// The set of keys, if there is one.
fn set_of(known: &Option<KnownKeys>) -> Option<&KeyFilter> {
    known.as_ref().and_then(|known| known.filter.as_ref())
}

/// A summary of the keys of rows before they are put into sets.
#[derive(Default)]
pub(in crate::execution) struct MeasuredKeys {
    row_count: usize,
    /// By key of the join; absent for other types than integers, and if every row is NULL.
    ranges: Vec<Option<KeyRange>>,
}

impl MeasuredKeys {
    /// Adds the keys of some rows; waits.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(in crate::execution) fn add(
        &mut self,
        queue: &Queue,
        keys: &[Column],
        row_count: usize,
    ) -> Result<()> {
        self.row_count += row_count;
        self.ranges.resize(keys.len(), None);
        for (known, key) in self.ranges.iter_mut().zip(keys) {
            let Some(range) = queue.key_range(key, row_count)? else { continue };
            *known = Some(match known {
                None => range,
                Some(KeyRange { least, greatest }) => {
                    KeyRange { least: range.least.min(*least), greatest: range.greatest.max(*greatest) }
                }
            });
        }
        Ok(())
    }
}

impl FilterTarget {
    /// The places of its own keys among the join's.
    fn own<T: Clone>(&self, keys: &[T]) -> Vec<T> {
        self.keys.iter().filter_map(|place| keys.get(*place)).cloned().collect()
    }

    /// The summary of the keys, with a set that is still empty if there is a key at all. `None` if
    /// it would cost more than the scan, or if memory is short.
    fn open(&self, queue: &Queue, measured: &MeasuredKeys, claim: &mut Claim) -> Result<Option<KnownKeys>> {
        let MeasuredKeys { row_count, ranges } = measured;
        if *row_count as u64 > self.row_count {
            return Ok(None);
        }
        let own = self.own(ranges);
        let only_range = if let [range] = own.as_slice() { *range } else { None };
        let ranges = own.iter().map(|range| range.map(|range| range.least..=range.greatest)).collect();
        if *row_count == 0 {
            return Ok(Some(KnownKeys { ranges, filter: None }));
        }
        let bitmap = KeyFilterShape::bitmap(only_range, *row_count, self.row_count);
        let bloom = (!self.goes_before).then(|| KeyFilterShape::bloom(*row_count));
        let mut shapes = bitmap.into_iter().chain(bloom);
        let has_room = |shape: &KeyFilterShape| claim.try_resize(claim.bytes() + shape.bytes());
        let Some(shape) = shapes.find(has_room) else { return Ok(None) };
        match queue.open_key_filter(shape) {
            Ok(filter) => Ok(Some(KnownKeys { ranges, filter: Some(filter) })),
            // A query works without filters.
            Err(error) if error.kind == ErrorKind::OutOfMemory => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A filter as one scan uses it.
pub(in crate::execution) struct ScanRuntimeFilter {
    filter: Arc<RuntimeFilter>,
    /// Id, type and place in the scan of each key.
    columns: Vec<(ColumnId, DataType, usize)>,
    /// What every key of a row that passes meets, once that is known.
    bounds: OnceLock<Vec<Expression>>,
    tested: AtomicU64,
    passed: AtomicU64,
    /// The counts that were reported already.
    shown: Mutex<FilterCounts>,
}

impl ScanRuntimeFilter {
    /// The filters over some keys of a join for a scan of so many rows. Of several keys, those that are integers have
    /// filters of their own too: their bitmaps leave few rows for a Bloom filter of all.
    pub(super) fn of_join(
        join: &JoinFilters,
        keys: &[usize],
        columns: &[(ColumnId, DataType, usize)],
        row_count: u64,
    ) -> Vec<Self> {
        let filter = |keys: &[usize], columns: &[(ColumnId, DataType, usize)], goes_before| Self {
            filter: join.filter_for(keys, row_count, goes_before),
            columns: columns.to_vec(),
            bounds: OnceLock::new(),
            tested: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            shown: Mutex::default(),
        };
        let is_integer = |data_type: &DataType| {
            matches!(CellType::of(data_type), Ok(CellType::Int16 | CellType::Int32 | CellType::Int64))
        };
        let single =
            keys.iter().zip(columns).filter(|(_, (_, data_type, _))| keys.len() > 1 && is_integer(data_type));
        let mut filters: Vec<Self> =
            single.map(|(key, column)| filter(&[*key], std::slice::from_ref(column), true)).collect();
        filters.push(filter(keys, columns, false));
        filters
    }

    /// The filter, which other scans may have too.
    pub(in crate::execution) fn filter(&self) -> &Arc<RuntimeFilter> {
        &self.filter
    }

    /// Whether the scan no longer waits for it.
    pub(in crate::execution) fn is_settled(&self) -> bool {
        self.filter.is_settled()
    }

    /// Whether no row within the bounds passes.
    pub(in crate::execution) fn refutes(&self, bounds: &RowGroupBounds) -> bool {
        let Some(known) = self.filter.known() else { return false };
        if known.filter.is_none() {
            return true;
        }
        let within = self.bounds.get_or_init(|| {
            let every = self.columns.iter().zip(&known.ranges);
            every.flat_map(|(column, range)| conditions(column, range.as_ref())).collect()
        });
        refutes(within, bounds, &[])
    }

    /// A condition on the keys of rows that pass, as far as bounds of pages can contradict it.
    pub(in crate::execution) fn conditions(&self) -> Vec<Expression> {
        let Some(known) = self.filter.known() else { return Vec::new() };
        // For other keys, bounds could only show that all are NULL: not worth reading a page index.
        let measured = self.columns.iter().zip(&known.ranges).filter(|(_, range)| range.is_some());
        measured.flat_map(|(column, range)| conditions(column, range.as_ref())).collect()
    }

    /// Whether to test rows: there is a filter, and most rows do not pass it.
    pub(in crate::execution) fn is_worth_testing(&self) -> bool {
        self.filter.set().is_some()
            && is_worth(self.tested.load(Ordering::Relaxed), self.passed.load(Ordering::Relaxed))
    }

    /// Places of the keys in the scan.
    pub(in crate::execution) fn places(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|(.., place)| *place)
    }

    /// Tests the rows with these keys, of those that `asked` marks.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(in crate::execution) fn test(
        &self,
        queue: &Queue,
        keys: &[&AnyColumn],
        row_count: usize,
        asked: Option<&Buffer>,
    ) -> Result<TestedRows<'_>> {
        let Some(filter) = self.filter.set() else {
            return Err(Error::internal("a filter was asked before its keys were known"));
        };
        Buffer::use_all_on(filter.buffers(), queue.stream())?;
        let counts = queue.zeros::<FilterCounts>(1)?;
        let test = KeyTest { asked, counts: Some(&counts) };
        let flags = match keys {
            [AnyColumn::Codes(coded)] => {
                let entries = passing_entries(queue, filter, &coded.entries, coded.entry_count)?;
                queue.test_keys(&entries, &[coded.code_column()], row_count, test)?
            }
            keys => {
                let cells = keys.iter().map(|key| queue.cells_of(key, row_count));
                queue.test_keys(filter, &cells.collect::<Result<Vec<_>>>()?, row_count, test)?
            }
        };
        let counts = queue.memory().post::<FilterCounts>(counts.address(), 1, queue.stream())?;
        Ok(TestedRows { flags, counts, filter: self })
    }

    /// The set of keys, for work on a stream; absent if there is none.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(in crate::execution) fn keys_on(&self, stream: Stream) -> Result<Option<&KeyFilter>> {
        let Some(filter) = self.filter.set() else { return Ok(None) };
        Buffer::use_all_on(filter.buffers(), stream)?;
        Ok(Some(filter))
    }

    /// The entries of a dictionary of its single key that pass, as a set of codes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(in crate::execution) fn passing_codes(
        &self,
        queue: &Queue,
        entries: &Column,
        entry_count: usize,
    ) -> Result<Option<KeyFilter>> {
        let filter = self.keys_on(queue.stream())?;
        filter.map(|filter| passing_entries(queue, filter, entries, entry_count)).transpose()
    }

    /// Adds counts of rows.
    pub(in crate::execution) fn count(&self, counts: FilterCounts) {
        self.tested.fetch_add(counts.tested, Ordering::Relaxed);
        self.passed.fetch_add(counts.passed, Ordering::Relaxed);
    }

    /// Adds the counts since the last call to an operator.
    pub(in crate::execution) fn show(&self, operator: &mut OperatorMetrics) {
        let Some(filter) = self.filter.set() else { return };
        let names = match filter.shape() {
            KeyFilterShape::Bitmap { .. } => ("bitmap_rows_tested", "bitmap_rows_dropped"),
            KeyFilterShape::Bloom { .. } => ("bloom_rows_tested", "bloom_rows_dropped"),
        };
        let passed = self.passed.load(Ordering::Relaxed);
        let now = FilterCounts { tested: self.tested.load(Ordering::Relaxed).max(passed), passed };
        let mut shown = lock_whole(&self.shown);
        let dropped = |counts: &FilterCounts| counts.tested - counts.passed;
        operator.count(names.0, now.tested.saturating_sub(shown.tested));
        operator.count(names.1, dropped(&now).saturating_sub(dropped(&shown)));
        *shown = now;
    }
}

/// The entries of a dictionary that pass, as a set of codes.
fn passing_entries(
    queue: &Queue,
    filter: &KeyFilter,
    entries: &Column,
    entry_count: usize,
) -> Result<KeyFilter> {
    let flags = queue.test_keys(filter, std::slice::from_ref(entries), entry_count, KeyTest::default())?;
    queue.flagged_codes(&flags, entry_count)
}

/// The results of testing rows.
pub(in crate::execution) struct TestedRows<'a> {
    /// One byte a row: whether it passes.
    pub(in crate::execution) flags: Buffer,
    counts: Readback,
    filter: &'a ScanRuntimeFilter,
}

impl TestedRows<'_> {
    /// Counts them; waits. Until then the device may still read the filter.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub(in crate::execution) fn wait_counted(self) -> Result<()> {
        for counts in self.counts.wait::<FilterCounts>(1)? {
            self.filter.count(counts);
        }
        Ok(())
    }
}

fn is_worth(tested: u64, passed: u64) -> bool {
    tested < SAMPLE_ROWS || tested.saturating_sub(passed) >= tested / DROPPED_ROW_OF
}

/// A condition on a key in the set, as far as bounds of a row group can contradict it.
fn conditions(
    (id, data_type, _): &(ColumnId, DataType, usize),
    range: Option<&RangeInclusive<i64>>,
) -> Vec<Expression> {
    let column = || Expression::column(*id, data_type.clone());
    let mut conditions = vec![Expression::predicate(Function::IsNotNull, vec![column()])];
    if let Some(range) = range {
        let value = |value: i64| match data_type {
            DataType::Decimal { .. } => Value::Decimal(value.into()),
            _ => Value::Int(value),
        };
        let bounds = [(Function::GreaterEqual, *range.start()), (Function::LessEqual, *range.end())];
        conditions.extend(bounds.map(|(function, bound)| {
            let bound = Expression::Literal(Literal::new(value(bound), data_type.clone()));
            Expression::predicate(function, vec![column(), bound])
        }));
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_build_side_that_was_given_up() {
        let filters = Arc::new(JoinFilters::default());
        let filter = filters.filter_for(&[0], 10, false);
        let giver = FilterGiver(filters);
        assert!(!filter.is_settled());
        drop(giver);
        assert!(filter.is_settled() && !filter.is_used());
    }

    #[test]
    fn a_filter_that_lets_most_rows_pass_is_not_asked_any_more() {
        // Too few rows say nothing.
        assert!(is_worth(0, 0) && is_worth(SAMPLE_ROWS - 1, SAMPLE_ROWS - 1));
        assert!(!is_worth(SAMPLE_ROWS, SAMPLE_ROWS));
        assert!(!is_worth(1_000_000, 750_001));
        assert!(is_worth(1_000_000, 750_000) && is_worth(1_000_000, 0));
        // Another reader may have updated one of the counts only.
        assert!(!is_worth(SAMPLE_ROWS, SAMPLE_ROWS + 1));
    }
}
