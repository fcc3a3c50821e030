//! Finds the wanted rows of a scan from as few columns as possible: rows that meet the scan's own
//! conditions and whose keys joins above may match.
//!
//! ```text
//! page indexes ─► pages of the early columns ─► conditions, keys ─► rows that pass ─► pages of the late columns
//! ```
//!
//! Early columns are the columns of the conditions, and the keys. They are decoded first. The other
//! columns are decoded only for the rows that pass. Text that only the scan's conditions read
//! (`expressions/coded.rs`), and late text, becomes codes if its dictionary has few entries, and
//! stays codes.
//!
//! Deliberately absent: decoding.
//!
//! Source: late materialisation, Abadi et al., "Materialization Strategies in a Column-Oriented
//! DBMS", ICDE 2007, section 3. We differ: rows are numbered among the decoded ones, and a page is
//! decoded as a whole or not at all.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use pystachio_files::{BoundedColumns, IndexedRowGroup, RowGroupBounds, rows_left};
use pystachio_plan::{Error, Expression, Literal, OperatorMetrics, Result, ScanColumn, could_fail};

use crate::{
    decode::{ResidentChunk, RowSelection},
    device::AnyColumn,
    execution::{
        Columns,
        expressions::{RowCondition, is_text},
        runtime_filter::{ScanRuntimeFilter, TestedRows},
    },
    operation::{Queue, SelectedTiles},
};

/// Text comes as codes, and conditions are evaluated for the entries of its dictionary, if at least this many rows share one on
/// average.
pub(super) const ROWS_AN_ENTRY_MIN: usize = 2;

/// The tests that a scan applies to its rows.
pub(super) struct ScanFilter {
    own: Option<OwnConditions>,
    /// The same, and a test that separates this rank's rows from those of others.
    own_of_shared: Option<OwnConditions>,
    runtime: Vec<ScanRuntimeFilter>,
    /// The keys of these.
    keys: BoundedColumns,
    row_groups_pruned: AtomicU64,
    skips_pages: bool,
    /// Places of text columns whose cells this scan does not need; empty for a query that runs
    /// without codes.
    coded_places: Vec<usize>,
    /// Whether text may come as codes at all.
    allows_codes: bool,
    /// Counts of dictionaries that conditions were evaluated for, and of their rows.
    entries_tested: AtomicU64,
    rows_tested: AtomicU64,
}

/// The conditions of the scan itself, all of which must be true.
pub(super) struct OwnConditions {
    pub(super) condition: RowCondition,
    /// The same, one by one, if none of them can fail: then their order does not matter.
    pub(super) parts: Option<Vec<RowCondition>>,
    /// The same, for page indexes.
    conditions: Vec<Expression>,
    parameters: Vec<Literal>,
}

/// The tests for the rows of one part, as of now. If a join's filter turns out to drop few rows,
/// later parts skip it.
pub(super) struct RowTest<'a> {
    pub(super) filter: &'a ScanFilter,
    pub(super) own: Option<&'a OwnConditions>,
    pub(super) runtime: Vec<&'a ScanRuntimeFilter>,
    early: Vec<usize>,
}

/// The early columns of a row group, in the order of [`RowTest::early`].
pub(super) struct EarlyColumns {
    pub(super) row_count: usize,
    pub(super) columns: Vec<AnyColumn>,
}

/// The rows that pass.
pub(super) enum Passed {
    /// All of them.
    All,
    /// Some, or none.
    Some(SelectedTiles),
}

impl ScanFilter {
    /// A scan's own conditions, and the filters of joins above. `of_rank` tests rows of row groups
    /// that several ranks share.
    ///
    /// # Errors
    ///
    /// `NotSupported` for expressions that no kernel evaluates.
    pub(super) fn compile(
        conditions: &[Expression],
        of_rank: Option<Expression>,
        columns: &[ScanColumn],
        parameters: &[Literal],
        runtime: Vec<ScanRuntimeFilter>,
    ) -> Result<Self> {
        let compile = |conditions: &[Expression]| match Expression::all_of(conditions.to_vec()) {
            Some(condition) => OwnConditions::compile(&condition, conditions, columns, parameters).map(Some),
            None => Ok(None),
        };
        let own = compile(conditions)?;
        // If a condition fails for a row of another rank, the query fails on that rank too.
        let of_shared = of_rank.map(|of_rank| compile(&[&[of_rank], conditions].concat())).transpose()?;
        let own_of_shared = of_shared.flatten();
        let (row_groups_pruned, entries_tested, rows_tested) = Default::default();
        let coded_places = Vec::new();
        let keys = BoundedColumns::at(runtime.iter().flat_map(ScanRuntimeFilter::places));
        Ok(Self {
            own,
            own_of_shared,
            runtime,
            keys,
            row_groups_pruned,
            skips_pages: true,
            coded_places,
            allows_codes: false,
            entries_tested,
            rows_tested,
        })
    }

    /// The same filter, for a query that allows text as codes.
    pub(super) fn with_codes(mut self, columns: &[ScanColumn]) -> Self {
        // Filters of several keys read cells.
        let of_several = self.runtime.iter().filter(|filter| filter.places().count() > 1);
        let tested: BTreeSet<usize> = of_several.flat_map(ScanRuntimeFilter::places).collect();
        let (read, without_cells) = match &self.own_of_shared.as_ref().or(self.own.as_ref()) {
            Some(own) => (own.condition.places(), own.condition.places_without_cells()),
            None => (&[][..], Vec::new()),
        };
        let may_be_coded = |place: &usize| {
            is_text(&columns[*place].data_type)
                && !tested.contains(place)
                && (!read.contains(place) || without_cells.contains(place))
        };
        self.coded_places = (0..columns.len()).filter(may_be_coded).collect();
        self.allows_codes = true;
        self
    }

    /// The same filter, for a query that decodes all pages of a row group at once.
    pub(super) fn without_skipping(self) -> Self {
        Self { skips_pages: false, ..self }
    }

    /// Whether rows may be dropped.
    pub(super) fn drops_rows(&self) -> bool {
        self.own.is_some() || !self.runtime.is_empty()
    }

    /// Whether all filters of joins are settled.
    pub(super) fn is_settled(&self) -> bool {
        self.runtime.iter().all(ScanRuntimeFilter::is_settled)
    }

    /// Whether a join's filter has bounds that statistics of a row group can contradict.
    pub(super) fn may_prune(&self) -> bool {
        self.runtime.iter().any(|filter| filter.filter().is_used())
    }

    /// The columns whose bounds joins' filters can contradict.
    pub(super) fn keys(&self) -> &BoundedColumns {
        &self.keys
    }

    /// Whether a join's filter says that no row within the bounds is wanted.
    pub(super) fn refutes(&self, bounds: &RowGroupBounds) -> bool {
        self.runtime.iter().any(|filter| filter.refutes(bounds))
    }

    /// Counts a row group that was not decoded.
    pub(super) fn note_pruned(&self) {
        self.row_groups_pruned.fetch_add(1, Ordering::Relaxed);
    }

    /// The test that separates this rank's rows from those of others, if the row group has both.
    fn own(&self, is_shared: bool) -> Option<&OwnConditions> {
        if is_shared { self.own_of_shared.as_ref().or(self.own.as_ref()) } else { self.own.as_ref() }
    }

    /// The rows of a row group within a range that page indexes leave. `is_shared`: other ranks may
    /// have rows of it too. Blocks.
    pub(super) fn rows_left(
        &self,
        place: &IndexedRowGroup<'_>,
        rows: &Range<u32>,
        is_shared: bool,
    ) -> RowSelection {
        if !self.skips_pages {
            return RowSelection::of([rows.clone()]);
        }
        let own = self.own(is_shared).into_iter().flat_map(|own| own.conditions.iter().cloned());
        let conditions: Vec<Expression> =
            own.chain(self.runtime.iter().flat_map(ScanRuntimeFilter::conditions)).collect();
        let parameters = self.own(is_shared).map_or(&[][..], |own| &own.parameters);
        let left = rows_left(place, &conditions, parameters);
        match left {
            None => RowSelection::range(rows.clone()),
            Some(left) => {
                RowSelection::of(left.iter().map(|left| left.start.max(rows.start)..left.end.min(rows.end)))
            }
        }
    }

    /// The tests for rows of `column_count` columns, as of now. `is_shared`: other ranks may have
    /// some of the rows.
    pub(super) fn test(&self, column_count: usize, is_shared: bool) -> RowTest<'_> {
        let runtime: Vec<&ScanRuntimeFilter> =
            self.runtime.iter().filter(|filter| filter.is_worth_testing()).collect();
        let own = self.own(is_shared);
        let read = own.iter().flat_map(|own| own.condition.places().iter().copied());
        let mut early: Vec<usize> = read.chain(runtime.iter().flat_map(|filter| filter.places())).collect();
        if !self.skips_pages {
            early = (0..column_count).collect();
        }
        early.sort_unstable();
        early.dedup();
        RowTest { filter: self, own, runtime, early }
    }

    /// Whether a column's rows may come as codes.
    pub(super) fn allows_codes(&self) -> bool {
        self.allows_codes
    }

    /// Whether a condition that reads a column takes its codes.
    pub(super) fn takes_codes(&self, place: usize) -> bool {
        self.coded_places.contains(&place)
    }

    /// Counts a dictionary that a condition was evaluated for, and its rows.
    pub(super) fn count_entries(&self, entries: usize, rows: usize) {
        self.entries_tested.fetch_add(entries as u64, Ordering::Relaxed);
        self.rows_tested.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Adds the counts since the last call to an operator.
    pub(super) fn show(&self, operator: &mut OperatorMetrics) {
        operator.count("row_groups_pruned_by_joins", self.row_groups_pruned.swap(0, Ordering::Relaxed));
        operator.count("dictionary_entries_tested", self.entries_tested.swap(0, Ordering::Relaxed));
        operator.count("dictionary_rows_tested", self.rows_tested.swap(0, Ordering::Relaxed));
        self.runtime.iter().for_each(|filter| filter.show(operator));
    }
}

impl OwnConditions {
    fn compile(
        condition: &Expression,
        conditions: &[Expression],
        columns: &[ScanColumn],
        parameters: &[Literal],
    ) -> Result<Self> {
        let input: Columns = columns.iter().map(|column| (column.id, column.data_type.clone())).collect();
        let condition = RowCondition::compile(condition, &input, parameters)?;
        let parts = match conditions.iter().any(|part| could_fail(part, &|_| false)) {
            true => None,
            false => {
                let part = |part| RowCondition::compile(part, &input, parameters).ok();
                conditions.iter().map(part).collect()
            }
        };
        Ok(Self { condition, parts, conditions: conditions.to_vec(), parameters: parameters.to_vec() })
    }
}

impl RowTest<'_> {
    /// Places of the early columns, in the order of the chunk that [`RowTest::select`] gets.
    pub(super) fn early(&self) -> &[usize] {
        &self.early
    }

    /// Whether a column becomes codes, if this many of its rows are decoded.
    pub(super) fn wants_codes<'c>(
        &self,
        place: usize,
        mut chunks: impl Iterator<Item = &'c ResidentChunk>,
        row_count: usize,
    ) -> bool {
        let is_worth_it = |entries: usize| entries.saturating_mul(ROWS_AN_ENTRY_MIN) <= row_count;
        let more = |entries: usize, chunk: &ResidentChunk| entries.checked_add(chunk.dictionary_entries()?);
        self.filter.coded_places.contains(&place) && chunks.try_fold(0, more).is_some_and(is_worth_it)
    }

    /// The rows of the early columns that pass, and the tiles that contain some, where needed.
    /// Waits for their count.
    ///
    /// # Errors
    ///
    /// Errors of the condition's functions; `OutOfMemory`, `Device`.
    pub(super) fn select(&self, queue: &Queue, early: &EarlyColumns, needs_tiles: bool) -> Result<Passed> {
        let row_count = early.row_count;
        let column = |place| self.column(early, place);
        let mut flags = None;
        if let Some(own) = self.own {
            flags = Some(own.condition.flags(queue, row_count, column)?);
            self.count_entries(own, early)?;
        }
        let mut tested = Vec::new();
        for filter in &self.runtime {
            let keys = filter.places().map(column).collect::<Result<Vec<_>>>()?;
            let rows = filter.test(queue, &keys, row_count, flags.as_ref())?;
            flags = Some(rows.flags.clone());
            tested.push(rows);
        }
        let Some(flags) = flags else { return Ok(Passed::All) };
        let selected = match needs_tiles {
            true => queue.select_tiles(&flags, row_count),
            false => {
                let rows = queue.select(&flags, row_count);
                rows.map(|rows| SelectedTiles { rows, has_rows: Vec::new() })
            }
        };
        // They arrived before the count of the selected rows. After an error too, no kernel may
        // still read the filters.
        tested.into_iter().try_for_each(TestedRows::wait_counted)?;
        let selected = selected?;
        Ok(if selected.rows.count == row_count { Passed::All } else { Passed::Some(selected) })
    }

    /// An early column, by its place in the scan.
    fn column<'c>(&self, early: &'c EarlyColumns, place: usize) -> Result<&'c AnyColumn> {
        let number = self.early.binary_search(&place).ok();
        let column = number.and_then(|number| early.columns.get(number));
        column.ok_or_else(|| Error::internal("a scan's filter reads a column that is not decoded yet"))
    }

    fn count_entries(&self, own: &OwnConditions, early: &EarlyColumns) -> Result<()> {
        for place in own.condition.places() {
            if let Some(coded) = self.column(early, *place)?.codes() {
                self.filter.count_entries(coded.entry_count, early.row_count);
            }
        }
        Ok(())
    }
}
