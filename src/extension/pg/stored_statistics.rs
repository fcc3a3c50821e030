//! Rows of `pg_statistic` that ANALYZE has just written, with another count of distinct values.
#![expect(unsafe_code, reason = "reads and writes rows of a catalog")]

use pgrx::{IntoDatum, pg_sys};

use super::list;

/// The column option of PostgreSQL's by which a user says how many values there are.
const USER_OPTION: &str = "n_distinct";

/// Says of columns of a table how many distinct values they have, as `stadistinct`. Columns that this transaction's ANALYZE has
/// not written stay as they are, and so do those of which it says nothing, or of which the user does.
pub fn replace_distinct(table_oid: pg_sys::Oid, columns: &[(i16, f64)]) {
    // SAFETY: in a transaction that may write. The catalog is locked as PostgreSQL's ANALYZE locks it, and its row is a copy of
    // ours. ANALYZE holds a lock on the table until the transaction ends, so no other one writes the row.
    unsafe {
        // What ANALYZE has written is visible after this.
        pg_sys::CommandCounterIncrement();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let catalog = pg_sys::table_open(pg_sys::StatisticRelationId, pg_sys::RowExclusiveLock as i32);
        for (attribute_number, distinct) in columns {
            let row = pg_sys::SearchSysCacheCopy(
                pg_sys::SysCacheIdentifier::STATRELATTINH as i32,
                table_oid.into(),
                pg_sys::Datum::from(*attribute_number),
                pg_sys::Datum::from(false),
                pg_sys::Datum::from(0),
            );
            if row.is_null() {
                continue;
            }
            if is_of_this_transaction(row)
                && known_distinct(row) != 0.0
                && !is_set_by_user(table_oid, *attribute_number)
            {
                let column = pg_sys::Anum_pg_statistic_stadistinct as i32;
                let value = (*distinct as f32).into_datum().unwrap_or(pg_sys::Datum::from(0));
                let changed = pg_sys::heap_modify_tuple_by_cols(
                    row,
                    (*catalog).rd_att,
                    1,
                    [column].as_mut_ptr(),
                    [value].as_mut_ptr(),
                    [false].as_mut_ptr(),
                );
                pg_sys::CatalogTupleUpdate(catalog, &raw mut (*changed).t_self, changed);
                pg_sys::heap_freetuple(changed);
            }
            pg_sys::heap_freetuple(row);
        }
        pg_sys::table_close(catalog, pg_sys::RowExclusiveLock as i32);
        pg_sys::PopActiveSnapshot();
        // For what the same transaction plans next.
        pg_sys::CommandCounterIncrement();
    }
}

/// # Safety
///
/// `row` is a row of a table.
unsafe fn is_of_this_transaction(row: pg_sys::HeapTuple) -> bool {
    // SAFETY: as the caller says; the header of a stored row names its writer.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId((*(*row).t_data).t_choice.t_heap.t_xmin) }
}

/// # Safety
///
/// `row` is a row of `pg_statistic`.
unsafe fn known_distinct(row: pg_sys::HeapTuple) -> f32 {
    // SAFETY: as the caller says.
    unsafe { (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_statistic>()).stadistinct }
}

/// Whether `ALTER TABLE … ALTER COLUMN … SET (n_distinct = …)` says it of a column.
fn is_set_by_user(table_oid: pg_sys::Oid, attribute_number: i16) -> bool {
    let cache = pg_sys::SysCacheIdentifier::ATTNUM as i32;
    // SAFETY: a look into a catalog, whose row is held until the options have been copied out of it.
    unsafe {
        let row = pg_sys::SearchSysCache2(cache, table_oid.into(), pg_sys::Datum::from(attribute_number));
        if row.is_null() {
            return false;
        }
        let mut is_null = false;
        let number = pg_sys::Anum_pg_attribute_attoptions as _;
        let options = pg_sys::SysCacheGetAttr(cache, row, number, &raw mut is_null);
        let options =
            if is_null { Vec::new() } else { list::options(pg_sys::untransformRelOptions(options)) };
        pg_sys::ReleaseSysCache(row);
        options.iter().any(|(name, _)| name == USER_OPTION)
    }
}

/// Whether equal values of a column are equal byte by byte, as far as its collation goes.
pub fn compares_bytes(collation: pg_sys::Oid) -> bool {
    // SAFETY: a look into a catalog.
    collation == pg_sys::InvalidOid || unsafe { pg_sys::get_collation_isdeterministic(collation) }
}
