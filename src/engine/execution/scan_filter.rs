//! Which rows of a scan are wanted, found out from as few of its columns as possible: those that meet its own
//! conditions, of them those whose keys joins above may match.
//!
//! ```text
//! page indexes ─► pages of the early columns ─► conditions, keys ─► rows that pass ─► pages of the late columns
//! ```
//!
//! Early columns are those that the conditions read, and the keys. They are decoded first; the others only where rows
//! are left.
//!
//! Deliberately absent: decoding.
//!
//! Source: late materialisation, Abadi et al., "Materialization Strategies in a Column-Oriented DBMS", ICDE 2007,
//! section 3. We differ: rows are numbered within what was decoded, and a page is decoded as a whole or not at all.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use pystachio_plan::{Error, Expression, Literal, OperatorMetrics, Result, ScanColumn};

use super::{
    Columns,
    runtime_filter::{ScanRuntimeFilter, TestedRows},
};
use crate::{
    decode::RowSelection,
    device::{Chunk, Column},
    operation::{Queue, SelectedTiles},
    program::Filter,
    storage::{IndexedRowGroup, RowGroupBounds, rows_left},
};

/// What a scan asks of a row.
pub(super) struct ScanFilter {
    own: Option<OwnConditions>,
    runtime: Vec<ScanRuntimeFilter>,
    row_groups_pruned: AtomicU64,
    skips_pages: bool,
}

/// The conditions of the scan itself, all of which must be true.
struct OwnConditions {
    /// Places of the columns that they read, among the scan's.
    places: Vec<usize>,
    /// Over these columns.
    condition: Filter,
    /// What it was compiled from, for page indexes.
    conditions: Vec<Expression>,
    parameters: Vec<Literal>,
}

/// What is asked of the rows of one part, as things are: it may turn out that a filter of a join drops little, and then
/// later parts are not asked.
pub(super) struct RowTest<'a> {
    own: Option<&'a OwnConditions>,
    runtime: Vec<&'a ScanRuntimeFilter>,
    early: Vec<usize>,
}

/// The rows that pass.
pub(super) enum Passed {
    /// All of them.
    All,
    /// Some, or none.
    Some(SelectedTiles),
}

impl ScanFilter {
    /// A scan's own conditions, and the filters of joins above.
    ///
    /// # Errors
    ///
    /// `NotSupported` for what no kernel evaluates.
    pub(super) fn compile(
        conditions: &[Expression],
        columns: &[ScanColumn],
        parameters: &[Literal],
        runtime: Vec<ScanRuntimeFilter>,
    ) -> Result<Self> {
        let own = match Expression::all_of(conditions.to_vec()) {
            Some(condition) => Some(OwnConditions::compile(condition, conditions, columns, parameters)?),
            None => None,
        };
        Ok(Self { own, runtime, row_groups_pruned: AtomicU64::new(0), skips_pages: true })
    }

    /// The same filter, for a query that decodes all pages of a row group at once.
    pub(super) fn without_skipping(self) -> Self {
        Self { skips_pages: false, ..self }
    }

    /// Whether all that joins will say is known.
    pub(super) fn is_settled(&self) -> bool {
        self.runtime.iter().all(ScanRuntimeFilter::is_settled)
    }

    /// Whether joins say anything that bounds of a row group can contradict.
    pub(super) fn may_prune(&self) -> bool {
        self.runtime.iter().any(|filter| filter.filter().is_used())
    }

    /// Whether joins say that no row within the bounds is wanted.
    pub(super) fn refutes(&self, bounds: &RowGroupBounds) -> bool {
        self.runtime.iter().any(|filter| filter.refutes(bounds))
    }

    /// Counts a row group that was not decoded.
    pub(super) fn note_pruned(&self) {
        self.row_groups_pruned.fetch_add(1, Ordering::Relaxed);
    }

    /// The rows of a row group that page indexes leave, and of these the ones within a range. Blocks.
    pub(super) fn rows_left(&self, place: &IndexedRowGroup<'_>, rows: &Range<u32>) -> RowSelection {
        if !self.skips_pages {
            return RowSelection::of([rows.clone()]);
        }
        let own = self.own.iter().flat_map(|own| own.conditions.iter().cloned());
        let conditions: Vec<Expression> =
            own.chain(self.runtime.iter().flat_map(ScanRuntimeFilter::conditions)).collect();
        let parameters = self.own.as_ref().map_or(&[][..], |own| &own.parameters);
        let left = rows_left(place, &conditions, parameters);
        match left {
            None => RowSelection::range(rows.clone()),
            Some(left) => {
                RowSelection::of(left.iter().map(|left| left.start.max(rows.start)..left.end.min(rows.end)))
            }
        }
    }

    /// What is asked of rows of `column_count` columns now.
    pub(super) fn test(&self, column_count: usize) -> RowTest<'_> {
        let runtime: Vec<&ScanRuntimeFilter> =
            self.runtime.iter().filter(|filter| filter.is_worth_testing()).collect();
        let own = self.own.iter().flat_map(|own| own.places.iter().copied());
        let mut early: Vec<usize> = own.chain(runtime.iter().flat_map(|filter| filter.places())).collect();
        if !self.skips_pages {
            early = (0..column_count).collect();
        }
        early.sort_unstable();
        early.dedup();
        RowTest { own: self.own.as_ref(), runtime, early }
    }

    /// Adds what was counted since the last time to an operator.
    pub(super) fn show(&self, operator: &mut OperatorMetrics) {
        operator.count("row_groups_pruned_by_joins", self.row_groups_pruned.swap(0, Ordering::Relaxed));
        self.runtime.iter().for_each(|filter| filter.show(operator));
    }
}

impl OwnConditions {
    fn compile(
        condition: Expression,
        conditions: &[Expression],
        columns: &[ScanColumn],
        parameters: &[Literal],
    ) -> Result<Self> {
        let mut read = Vec::new();
        condition.walk(&mut |part| {
            if let Expression::Column { id, .. } = part {
                read.push(*id);
            }
        });
        let places: Vec<usize> =
            (0..columns.len()).filter(|place| read.contains(&columns[*place].id)).collect();
        let known: Columns =
            places.iter().map(|place| (columns[*place].id, columns[*place].data_type.clone())).collect();
        Ok(Self {
            places,
            condition: Filter::compile(&condition, &known, parameters)?,
            conditions: conditions.to_vec(),
            parameters: parameters.to_vec(),
        })
    }
}

impl RowTest<'_> {
    /// Places of the columns that are needed to find out which rows pass, in the order of the chunk that
    /// [`RowTest::select`] is given.
    pub(super) fn early(&self) -> &[usize] {
        &self.early
    }

    /// The rows of a chunk of the early columns that pass, and the tiles that have some where they are needed. Waits for
    /// their count.
    ///
    /// # Errors
    ///
    /// Those of the condition's functions; `OutOfMemory`, `Device`.
    pub(super) fn select(&self, queue: &Queue, chunk: &Chunk, needs_tiles: bool) -> Result<Passed> {
        let mut flags = match self.own {
            Some(own) => {
                let read = Chunk { row_count: chunk.row_count, columns: self.columns(chunk, &own.places)? };
                Some(own.condition.evaluate(queue, &read)?.values)
            }
            None => None,
        };
        let mut tested = Vec::new();
        for filter in &self.runtime {
            let places: Vec<usize> = filter.places().collect();
            let keys = self.columns(chunk, &places)?;
            let rows = filter.test(queue, &keys, chunk.row_count, flags.as_ref())?;
            flags = Some(rows.flags.clone());
            tested.push(rows);
        }
        let Some(flags) = flags else { return Ok(Passed::All) };
        let selected = match needs_tiles {
            true => queue.select_tiles(&flags, chunk.row_count),
            false => {
                let rows = queue.select(&flags, chunk.row_count);
                rows.map(|rows| SelectedTiles { rows, has_rows: Vec::new() })
            }
        };
        // They have come before the count of what is selected. Also after an error nobody may be reading the filters.
        tested.into_iter().try_for_each(TestedRows::wait_counted)?;
        let selected = selected?;
        Ok(if selected.rows.count == chunk.row_count { Passed::All } else { Passed::Some(selected) })
    }

    /// Columns of a chunk of the early columns, by their places in the scan.
    fn columns(&self, chunk: &Chunk, places: &[usize]) -> Result<Vec<Column>> {
        let column = |place: &usize| {
            let number = self.early.binary_search(place).ok();
            let column = number.and_then(|number| chunk.columns.get(number)).cloned();
            column.ok_or_else(|| Error::internal("a scan's filter reads a column that is not decoded yet"))
        };
        places.iter().map(column).collect()
    }
}
