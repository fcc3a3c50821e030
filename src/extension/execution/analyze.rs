//! Sampling for ANALYZE, and how many values columns have.
//!
//! ```text
//! engine ─► rows ────► PostgreSQL's ANALYZE ─► pg_statistic
//!        ─► counts ─► MEASURED ─────────────────────▲ stadistinct, at the end of the command or of the transaction
//! ```
//!
//! A foreign table gives ANALYZE rows and nothing else. Most statistics of 30,000 rows are good.
//! The number of distinct values in a large table is not (`src/cpu/distinct.rs`), whichever rows
//! are chosen: a sample can't show that each value is in four of six billion rows. So this module
//! writes the measured count when ANALYZE has written its own. `pg_stats.n_distinct` shows the
//! count, and the planner reads it. Null fractions, most common values, histograms and correlations
//! stay as PostgreSQL computed them.
//!
//! ANALYZE of several tables, and VACUUM, commit after each table. The callback of transactions
//! writes the count before that commit. In a transaction block the hook of utility commands writes
//! it, so that the next query has it. If ANALYZE is the command that loads the library, the hook
//! did not exist when it began, and the count comes with the commit.
//!
//! Statistics of a parent with its children are PostgreSQL's alone: the values of several tables may be the same ones.
#![expect(unsafe_code, reason = "PostgreSQL's relation structures are C structures")]

use std::cell::RefCell;

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{
    ColumnDescription, ColumnId, DescribeExtent, FileSet, Request, Result, SampleRequest, ScanColumn,
    TableDescription,
};

use super::query::RunningQuery;
use crate::{
    client,
    error::{OrRaise, raise},
    options,
    pg::{compat, list, stored_statistics},
    planner::distinct_bound,
    scan_private::DisplayScale,
    stores,
    types::{self, ColumnReader, ColumnSource, RowBlock},
    writing,
};

/// A table, and how many values its columns have, as `stadistinct`.
type MeasuredTable = (pg_sys::Oid, Vec<(i16, f64)>);

thread_local! {
    /// Tables that this transaction has sampled.
    static MEASURED: RefCell<Vec<MeasuredTable>> = const { RefCell::new(Vec::new()) };
}

/// Registers the callback of transactions. Called once, when the library is loaded.
pub fn register_callback() {
    // SAFETY: the callback lives as long as the process.
    unsafe { pg_sys::RegisterXactCallback(Some(end_transaction), std::ptr::null_mut()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn end_transaction(
    event: pg_sys::XactEvent::Type,
    _argument: *mut std::ffi::c_void,
) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT | pg_sys::XactEvent::XACT_EVENT_PRE_PREPARE => {
            store_measured();
        }
        pg_sys::XactEvent::XACT_EVENT_ABORT => MEASURED.with_borrow_mut(Vec::clear),
        _ => {}
    }
}

/// Stores what the transaction has measured, when ANALYZE has written its statistics.
pub fn store_measured() {
    for (table_oid, columns) in MEASURED.take() {
        stored_statistics::replace_distinct(table_oid, &columns);
    }
}

/// Declares that the table can be sampled, and its size.
#[pg_guard]
pub unsafe extern "C-unwind" fn analyze_foreign_table(
    relation: pg_sys::Relation,
    function: *mut pg_sys::AcquireSampleRowsFunc,
    page_count: *mut pg_sys::BlockNumber,
) -> bool {
    // SAFETY: called by ANALYZE with an open relation.
    unsafe {
        let table = options::table_options((*relation).rd_id);
        let description = describe(table.server_oid, &table.files);
        let bytes =
            description.columns.iter().map(|column| column.uncompressed_bytes).fold(0, u64::saturating_add);
        *page_count = u32::try_from(bytes.div_ceil(u64::from(pg_sys::BLCKSZ))).unwrap_or(u32::MAX - 1).max(1);
        *function = Some(acquire_sample_rows);
    }
    true
}

#[pg_guard]
unsafe extern "C-unwind" fn acquire_sample_rows(
    relation: pg_sys::Relation,
    _level: i32,
    rows: *mut pg_sys::HeapTuple,
    row_count_max: i32,
    row_count_total: *mut f64,
    dead_row_count: *mut f64,
) -> i32 {
    // SAFETY: called by ANALYZE with room for `row_count_max` tuples.
    unsafe {
        let table = options::table_options((*relation).rd_id);
        let description = describe(table.server_oid, &table.files);
        *row_count_total = description.row_count as f64;
        *dead_row_count = 0.0;
        let wanted = usize::try_from(row_count_max).unwrap_or(0);
        let tuples = sample(relation, table, &description, wanted).or_raise();
        std::ptr::copy_nonoverlapping(tuples.as_ptr(), rows, tuples.len());
        tuples.len() as i32
    }
}

fn describe(server_oid: pg_sys::Oid, files: &FileSet) -> TableDescription {
    let mut descriptions =
        client::describe(server_oid, std::slice::from_ref(files), DescribeExtent::All).or_raise();
    match descriptions.pop() {
        Some(description) => description.or_raise(),
        None => raise(pystachio_plan::Error::internal("the engine described nothing")),
    }
}

unsafe fn sample(
    relation: pg_sys::Relation,
    table: options::TableOptions,
    description: &TableDescription,
    row_count_max: usize,
) -> Result<Vec<pg_sys::HeapTuple>> {
    // SAFETY: the relation is open, so its descriptor is valid.
    let descriptor = unsafe { list::attributes((*relation).rd_att) };
    // SAFETY: as above.
    let relation_oid = unsafe { (*relation).rd_id };
    let mut scan_columns: Vec<ScanColumn> = Vec::new();
    let mut scanned = Vec::new();
    let mut readers = Vec::new();
    for attribute in descriptor.iter() {
        let id = ColumnId(scan_columns.len() as u32);
        // Neither is in the files; ANALYZE looks at neither.
        let is_absent = attribute.attisdropped || compat::is_virtual(attribute);
        let column = match is_absent {
            true => None,
            false => {
                let in_files = options::file_column(relation_oid, attribute.attnum);
                types::scan_column(relation_oid, attribute, id, description.column(&in_files))
            }
        };
        readers.push(ColumnReader::new(ColumnSource {
            output_index: column.as_ref().map(|_| scan_columns.len()),
            display_scale: DisplayScale::OfType,
            type_oid: if column.is_some() { attribute.atttypid } else { pg_sys::BOOLOID },
            type_modifier: attribute.atttypmod,
        })?);
        if let Some(column) = column {
            scanned.push((*attribute, description.column(&column.file_column())));
            scan_columns.push(column);
        }
    }
    if table.writable {
        writing::share_files(relation_oid);
    }
    let access = stores::access(table.server_oid, [&table.files])?;
    let request = Request::Sample(SampleRequest {
        access,
        files: table.files,
        columns: scan_columns,
        row_count: row_count_max as u64,
        // The same table gives the same statistics: plans don't change by chance.
        seed: u64::from(relation_oid.to_u32()),
    });
    let mut query = RunningQuery::start(table.server_oid, &request)?;
    let mut tuples = Vec::with_capacity(row_count_max);
    let mut block = RowBlock::default();
    while let Some(batch) = query.next_batch()? {
        let mut row_offset = 0;
        while row_offset < batch.num_rows() {
            row_offset += block.fill(&batch, row_offset..batch.num_rows(), &mut readers)?;
            while let Some((values, nulls)) = block.next_row() {
                if tuples.len() < row_count_max {
                    // SAFETY: as many values and flags as the descriptor has attributes; they are copied.
                    tuples.push(unsafe {
                        pg_sys::heap_form_tuple(
                            (*relation).rd_att,
                            values.as_ptr().cast_mut(),
                            nulls.as_ptr().cast_mut(),
                        )
                    });
                }
            }
        }
    }
    let counts = query.cost().metrics.map_or_else(Vec::new, |metrics| metrics.distinct_counts);
    let measured = scanned.iter().zip(counts).filter_map(|((attribute, column), count)| {
        let count = count.filter(|_| stored_statistics::compares_bytes(attribute.attcollation))?;
        Some((attribute.attnum, stored_distinct(count, *column, description.row_count as f64)))
    });
    MEASURED.with_borrow_mut(|tables| tables.push((relation_oid, measured.collect())));
    Ok(tuples)
}

/// A count of values as `stadistinct`: a tenth of the rows and more, as a part of them. A range of whole numbers bounds it.
fn stored_distinct(count: f64, column: Option<&ColumnDescription>, row_count: f64) -> f64 {
    let bound = column.map(|column| distinct_bound(column, row_count)).filter(|bound| *bound > 0.0);
    let count = count.min(bound.unwrap_or(row_count)).max(1.0);
    if count > 0.1 * row_count { -(count / row_count).min(1.0) } else { count.round() }
}
