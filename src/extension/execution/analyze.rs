//! Sampling for ANALYZE.
#![expect(unsafe_code, reason = "PostgreSQL's relation structures are C structures")]

use pgrx::{pg_sys, prelude::*};
use pystachio_plan::{ColumnId, FileSet, Request, Result, SampleRequest, ScanColumn, TableDescription};

use super::query::RunningQuery;
use crate::{
    client,
    error::{OrRaise, raise},
    options,
    pg::{compat, list},
    scan_private::DisplayScale,
    types::{self, ColumnReader, ColumnSource, RowBlock},
};

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
    let mut descriptions = client::describe(server_oid, std::slice::from_ref(files)).or_raise();
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
    let mut readers = Vec::new();
    for attribute in descriptor.iter() {
        let id = ColumnId(scan_columns.len() as u32);
        // Neither is in the files; ANALYZE looks at neither.
        let is_absent = attribute.attisdropped || compat::is_virtual(attribute);
        let column = match is_absent {
            true => None,
            false => {
                let name = options::column_name(relation_oid, attribute.attnum);
                types::scan_column(relation_oid, attribute, id, description.column(&name))
            }
        };
        readers.push(ColumnReader::new(ColumnSource {
            output_index: column.as_ref().map(|_| scan_columns.len()),
            display_scale: DisplayScale::OfType,
            type_oid: if column.is_some() { attribute.atttypid } else { pg_sys::BOOLOID },
            type_modifier: attribute.atttypmod,
        })?);
        scan_columns.extend(column);
    }
    let request = Request::Sample(SampleRequest {
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
    Ok(tuples)
}
