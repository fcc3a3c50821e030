//! The rows of segments that pass a scan's filter: one launch tests integers and codes, and the
//! other conditions see the rows that remain.
//!
//! ```text
//! comparisons, sets of codes and keys ─► rows that pass ─► other conditions over their cells ─► rows that pass ─► given columns
//! ```
//!
//! Invariants: [`RowTest::select`] finds the same rows in the decoded columns. Conditions are split
//! only if none can fail.

use pystachio_plan::{Error, Result};

use super::filter::{ROWS_AN_ENTRY_MIN, RowTest};
use crate::{
    device::{AnyColumn, Buffer, CellType},
    execution::{expressions::RowCondition, runtime_filter::ScanRuntimeFilter},
    operation::{FilterCounts, KeyFilter, Queue},
    program::Comparison,
    segment::{ReadForm, SegmentTable, SelectedRows, TableTest},
};

/// Row groups all of whose wanted columns are segments.
pub(super) struct ResidentRows {
    pub(super) table: SegmentTable,
    /// The places of the table's columns in the scan, in order.
    pub(super) places: Vec<usize>,
}

/// A test of the table, with the memory that it reads.
enum PlannedTest<'a> {
    Comparison(Comparison),
    Codes(usize, KeyFilter),
    Search(usize, Buffer),
    Keys(usize, PlannedKeys<'a>, &'a ScanRuntimeFilter),
}

enum PlannedKeys<'a> {
    OfCodes(KeyFilter),
    OfValues(&'a KeyFilter),
}

/// Tests of a table, and what else its rows must meet.
#[derive(Default)]
struct TestPlan<'a> {
    tests: Vec<PlannedTest<'a>>,
    conditions: Vec<&'a RowCondition>,
    filters: Vec<&'a ScanRuntimeFilter>,
}

impl ResidentRows {
    /// The column of the table with a place in the scan.
    ///
    /// # Errors
    ///
    /// `Internal` if there is none.
    pub(super) fn column(&self, place: usize) -> Result<usize> {
        self.places
            .binary_search(&place)
            .map_err(|_| Error::internal("a scan reads a column that its segments lack"))
    }

    /// How a column is read: as codes if that is allowed and there are as many rows as entries.
    fn form(&self, column: usize, row_count: usize, allows_codes: bool) -> ReadForm {
        match self.table.entries(column) {
            Some((_, entry_count)) if allows_codes && row_count >= entry_count => ReadForm::Codes,
            _ => ReadForm::Cells,
        }
    }

    /// Columns of the selected rows, by their places in the scan.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and faults of the device.
    pub(super) fn read(
        &self,
        queue: &Queue,
        places: &[usize],
        selected: Option<&SelectedRows>,
        takes_codes: impl Fn(usize) -> bool,
    ) -> Result<Vec<AnyColumn>> {
        let row_count = selected.map_or(self.table.row_count(), SelectedRows::count);
        let read = |place: &usize| {
            let column = self.column(*place)?;
            Ok((column, self.form(column, row_count, takes_codes(*place))))
        };
        let reads = places.iter().map(read).collect::<Result<Vec<_>>>()?;
        queue.read_segments(&self.table, &reads, selected)
    }
}

impl<'a> RowTest<'a> {
    /// The rows of segments that pass; `None` if all do. Waits for their count.
    ///
    /// # Errors
    ///
    /// Errors of the condition's functions; `OutOfMemory`, `Device`.
    pub(super) fn select_resident(&self, queue: &Queue, rows: &ResidentRows) -> Result<Option<SelectedRows>> {
        let plan = self.plan(queue, rows)?;
        let mut selected = match plan.tests.is_empty() {
            true => None,
            false => Some(run_tests(queue, rows, &plan.tests)?),
        };
        let count = |selected: &Option<SelectedRows>| {
            selected.as_ref().map_or(rows.table.row_count(), SelectedRows::count)
        };
        for condition in plan.conditions {
            let row_count = count(&selected);
            if row_count == 0 {
                break;
            }
            let takes_codes = |place| self.filter.takes_codes(place);
            let columns = rows.read(queue, condition.places(), selected.as_ref(), takes_codes)?;
            let flags =
                condition.flags(queue, row_count, |place| column_of(condition.places(), &columns, place))?;
            for coded in columns.iter().filter_map(AnyColumn::codes) {
                self.filter.count_entries(coded.entry_count, row_count);
            }
            selected = Some(narrowed(queue, rows, selected.as_ref(), &flags)?);
        }
        for filter in plan.filters {
            let row_count = count(&selected);
            if row_count == 0 {
                break;
            }
            let places: Vec<usize> = filter.places().collect();
            let columns = rows.read(queue, &places, selected.as_ref(), |_| places.len() == 1)?;
            let keys: Vec<&AnyColumn> = columns.iter().collect();
            let tested = filter.test(queue, &keys, row_count, None)?;
            let left = narrowed(queue, rows, selected.as_ref(), &tested.flags);
            // After an error too, no kernel may still read the filter.
            tested.wait_counted()?;
            selected = Some(left?);
        }
        Ok(selected.filter(|selected| selected.count() < rows.table.row_count()))
    }

    fn plan(&self, queue: &Queue, rows: &ResidentRows) -> Result<TestPlan<'a>> {
        let mut plan = TestPlan::default();
        if let Some(own) = self.own {
            match &own.parts {
                None => plan.conditions.push(&own.condition),
                Some(parts) => {
                    for part in parts {
                        match self.plan_condition(queue, rows, part)? {
                            Some(tests) => plan.tests.extend(tests),
                            None => plan.conditions.push(part),
                        }
                    }
                }
            }
        }
        for filter in self.runtime.iter().copied() {
            match plan_filter(queue, rows, filter)? {
                Some(test) => plan.tests.push(test),
                None => plan.filters.push(filter),
            }
        }
        Ok(plan)
    }

    /// A condition as tests of the table; `None` if no tests express it.
    fn plan_condition(
        &self,
        queue: &Queue,
        rows: &ResidentRows,
        condition: &RowCondition,
    ) -> Result<Option<Vec<PlannedTest<'a>>>> {
        if let Some(comparisons) = condition.comparisons() {
            let mut tests = Vec::with_capacity(comparisons.len());
            for comparison in comparisons {
                let comparison = match comparison {
                    Comparison::Within { column, range } => {
                        Comparison::Within { column: rows.column(column)?, range }
                    }
                    Comparison::Ordered { column, other, orderings } => Comparison::Ordered {
                        column: rows.column(column)?,
                        other: rows.column(other)?,
                        orderings,
                    },
                };
                let is_testable = match &comparison {
                    Comparison::Within { column, .. } => rows.table.is_testable(*column),
                    Comparison::Ordered { column, other, .. } => {
                        rows.table.is_testable(*column) && rows.table.is_testable(*other)
                    }
                };
                if !is_testable {
                    return Ok(None);
                }
                tests.push(PlannedTest::Comparison(comparison));
            }
            return Ok(Some(tests));
        }
        let [place] = condition.places() else { return Ok(None) };
        let column = rows.column(*place)?;
        if rows.table.is_searchable(column)
            && let Some(search) = condition.search()
        {
            return Ok(Some(vec![PlannedTest::Search(column, queue.upload_search(&search)?)]));
        }
        let Some((entries, entry_count)) = rows.table.entries(column) else { return Ok(None) };
        if !self.filter.allows_codes() || entry_count * ROWS_AN_ENTRY_MIN > rows.table.row_count() {
            return Ok(None);
        }
        let entries = AnyColumn::Cells(entries.clone());
        let flags = condition.flags(queue, entry_count, |_| Ok(&entries))?;
        self.filter.count_entries(entry_count, rows.table.row_count());
        let of_null = flags.slice(entry_count as u64 - 1, 1);
        // Tests drop NULLs.
        if queue.download::<u8>(&of_null, 1)? != [0] {
            return Ok(None);
        }
        Ok(Some(vec![PlannedTest::Codes(column, queue.flagged_codes(&flags, entry_count)?)]))
    }
}

/// A join's filter as a test of the table; `None` if it has several keys, or keys that are neither integers nor codes.
fn plan_filter<'a>(
    queue: &Queue,
    rows: &ResidentRows,
    filter: &'a ScanRuntimeFilter,
) -> Result<Option<PlannedTest<'a>>> {
    let places: Vec<usize> = filter.places().collect();
    let [place] = places.as_slice() else { return Ok(None) };
    let column = rows.column(*place)?;
    let is_integer =
        matches!(rows.table.cell_type(column), CellType::Int16 | CellType::Int32 | CellType::Int64);
    if is_integer && rows.table.is_testable(column) {
        let keys = filter.keys_on(queue.stream())?.map(PlannedKeys::OfValues);
        return Ok(keys.map(|keys| PlannedTest::Keys(column, keys, filter)));
    }
    let Some((entries, entry_count)) = rows.table.entries(column) else { return Ok(None) };
    if entry_count * ROWS_AN_ENTRY_MIN > rows.table.row_count() {
        return Ok(None);
    }
    let keys = filter.passing_codes(queue, entries, entry_count)?.map(PlannedKeys::OfCodes);
    Ok(keys.map(|keys| PlannedTest::Keys(column, keys, filter)))
}

/// The rows that pass planned tests; counts those of joins' filters.
fn run_tests(queue: &Queue, rows: &ResidentRows, planned: &[PlannedTest<'_>]) -> Result<SelectedRows> {
    let filters: Vec<&ScanRuntimeFilter> = planned
        .iter()
        .filter_map(|test| match test {
            PlannedTest::Keys(.., filter) => Some(*filter),
            PlannedTest::Comparison(_) | PlannedTest::Codes(..) | PlannedTest::Search(..) => None,
        })
        .collect();
    let count_bytes = size_of::<FilterCounts>() as u64;
    let counts = match filters.is_empty() {
        true => None,
        false => Some(queue.upload(&vec![FilterCounts::default(); filters.len()])?),
    };
    let mut places = counts
        .iter()
        .flat_map(|counts| {
            (0..filters.len() as u64).map(|place| counts.slice(place * count_bytes, count_bytes))
        })
        .collect::<Vec<Buffer>>()
        .into_iter();
    let places_of: Vec<Option<Buffer>> = planned
        .iter()
        .map(|test| if matches!(test, PlannedTest::Keys(..)) { places.next() } else { None })
        .collect();
    let mut tests: Vec<TableTest<'_>> = planned
        .iter()
        .zip(&places_of)
        .map(|(test, counts)| match test {
            PlannedTest::Comparison(Comparison::Within { column, range }) => {
                TableTest::Within { column: *column, least: *range.start(), greatest: *range.end() }
            }
            PlannedTest::Comparison(Comparison::Ordered { column, other, orderings }) => {
                TableTest::Ordered { column: *column, other: *other, orderings: *orderings }
            }
            PlannedTest::Codes(column, codes) => {
                TableTest::Key { column: *column, keys: codes, counts: None }
            }
            PlannedTest::Search(column, search) => TableTest::Search { column: *column, search },
            PlannedTest::Keys(column, keys, _) => {
                let keys = match keys {
                    PlannedKeys::OfCodes(keys) => keys,
                    PlannedKeys::OfValues(keys) => keys,
                };
                TableTest::Key { column: *column, keys, counts: counts.as_ref() }
            }
        })
        .collect();
    // What costs most is asked of the fewest rows.
    tests.sort_by_key(|test| matches!(test, TableTest::Search { .. }));
    let selected = queue.test_segments(&rows.table, None, &tests);
    if let Some(counts) = &counts {
        // After an error too, no kernel may still read the filters.
        let counts: Vec<FilterCounts> = queue.download(counts, filters.len())?;
        filters.iter().zip(counts).for_each(|(filter, counts)| filter.count(counts));
    }
    selected
}

/// The rows that have a flag, a flag for each that is left so far.
fn narrowed(
    queue: &Queue,
    rows: &ResidentRows,
    selected: Option<&SelectedRows>,
    flags: &Buffer,
) -> Result<SelectedRows> {
    let test = match selected {
        None => TableTest::Flags(flags),
        Some(_) => TableTest::FlagsOfTested(flags),
    };
    queue.test_segments(&rows.table, selected, &[test])
}

fn column_of<'a>(places: &[usize], columns: &'a [AnyColumn], place: usize) -> Result<&'a AnyColumn> {
    let column = places.iter().position(|known| *known == place).and_then(|number| columns.get(number));
    column.ok_or_else(|| Error::internal("a condition reads a column that was not read"))
}
