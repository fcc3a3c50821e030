//! Statistics of columns that were never analyzed, from the footers: null fraction, least and greatest value,
//! and a bound on the count of distinct values.
//!
//! ANALYZE knows more, so what it has stored is preferred. Without either, core would assume 200 distinct
//! values for every column, and joins on keys would look a thousand times larger than they are.

use pgrx::{IntoDatum, pg_sys, prelude::*};
use pystachio_plan::{ColumnDescription, DataType, Value};

use super::{descriptions::describe, relation_info::is_ours_oid};
use crate::{
    options,
    pg::{compat, hooks},
    types::{EPOCH_DAYS, EPOCH_MICROSECONDS, base_type},
};

static mut NEXT_RELATION_STATS: pg_sys::get_relation_stats_hook_type = None;

/// Puts our hook before the one that is there.
pub fn install_hook() {
    unsafe {
        NEXT_RELATION_STATS = pg_sys::get_relation_stats_hook;
        pg_sys::get_relation_stats_hook = Some(relation_stats);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn relation_stats(
    root: *mut pg_sys::PlannerInfo,
    entry: *mut pg_sys::RangeTblEntry,
    attribute_number: pg_sys::AttrNumber,
    variable: *mut pg_sys::VariableStatData,
) -> bool {
    unsafe {
        if hooks::relation_stats(NEXT_RELATION_STATS, root, entry, attribute_number, variable) {
            return true;
        }
        if (*entry).relkind as u8 != b'f'
            || attribute_number <= 0
            || is_analyzed(entry, attribute_number)
            || !is_ours_oid((*pg_sys::GetForeignTable((*entry).relid)).serverid)
        {
            return false;
        }
        let table = options::table_options((*entry).relid);
        let Ok(description) = describe(&table) else { return false };
        let name = options::column_name((*entry).relid, attribute_number);
        let Some(column) = description.column(&name) else { return false };
        let tuple = statistic_tuple(entry, attribute_number, column, description.row_count as f64);
        (*variable).statsTuple = tuple;
        (*variable).freefunc = Some(free_tuple);
        (*variable).acl_ok = may_read_all(root, entry, attribute_number);
        true
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn free_tuple(tuple: pg_sys::HeapTuple) {
    unsafe { pg_sys::heap_freetuple(tuple) }
}

unsafe fn is_analyzed(entry: *mut pg_sys::RangeTblEntry, attribute_number: i16) -> bool {
    unsafe {
        pg_sys::SearchSysCacheExists(
            pg_sys::SysCacheIdentifier::STATRELATTINH as i32,
            (*entry).relid.into(),
            pg_sys::Datum::from(attribute_number),
            pg_sys::Datum::from((*entry).inh),
            pg_sys::Datum::from(0),
        )
    }
}

/// Whether the query may read a column of every row of a table. Core shows statistics to functions that are not leakproof only
/// then: their errors and notices would tell values. For statistics that are stored, `examine_simple_variable` asks the same.
unsafe fn may_read_all(
    root: *mut pg_sys::PlannerInfo,
    entry: *mut pg_sys::RangeTblEntry,
    attribute_number: i16,
) -> bool {
    unsafe {
        let Some((entry, attribute_number)) = named_column(root, entry, attribute_number) else {
            return false;
        };
        let checked = compat::checked_role(root, entry);
        let role = if checked == pg_sys::InvalidOid { pg_sys::GetUserId() } else { checked };
        let select = pg_sys::ACL_SELECT as pg_sys::AclMode;
        let allowed = pg_sys::AclResult::ACLCHECK_OK;
        (*entry).securityQuals.is_null()
            && (pg_sys::pg_class_aclcheck((*entry).relid, role, select) == allowed
                || pg_sys::pg_attribute_aclcheck((*entry).relid, attribute_number, role, select) == allowed)
    }
}

/// The column of the table that the query names: of a partition or child it is the one of the topmost parent, on which the
/// rights are. `None` where the parent has no such column.
unsafe fn named_column(
    root: *mut pg_sys::PlannerInfo,
    entry: *mut pg_sys::RangeTblEntry,
    attribute_number: i16,
) -> Option<(*mut pg_sys::RangeTblEntry, i16)> {
    unsafe {
        let (entries, children) = ((*root).simple_rte_array, (*root).append_rel_array);
        let (mut entry, mut attribute_number) = (entry, attribute_number);
        if children.is_null() {
            return Some((entry, attribute_number));
        }
        let mut index =
            (1..(*root).simple_rel_array_size as usize).find(|index| *entries.add(*index) == entry)?;
        while let Some(child) = (*children.add(index)).as_ref() {
            let parent = *entries.add(child.parent_relid as usize);
            // A member of UNION ALL has rights of its own.
            if (*parent).rtekind != pg_sys::RTEKind::RTE_RELATION {
                break;
            }
            let place = usize::try_from(attribute_number - 1).ok()?;
            if place >= child.num_child_cols as usize {
                return None;
            }
            attribute_number = *child.parent_colnos.add(place);
            if attribute_number == 0 {
                return None;
            }
            (entry, index) = (parent, child.parent_relid as usize);
        }
        Some((entry, attribute_number))
    }
}

/// A row of `pg_statistic` that was never stored.
unsafe fn statistic_tuple(
    entry: *mut pg_sys::RangeTblEntry,
    attribute_number: i16,
    column: &ColumnDescription,
    row_count: f64,
) -> pg_sys::HeapTuple {
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::StatisticRelationId, pg_sys::AccessShareLock as i32);
        let descriptor = (*catalog).rd_att;
        let attribute_count = (*descriptor).natts as usize;
        let mut values = vec![pg_sys::Datum::from(0); attribute_count];
        let mut nulls = vec![false; attribute_count];
        nulls[pg_sys::Anum_pg_statistic_stanumbers1 as usize - 1..].fill(true);
        let mut set = |number: u32, datum: pg_sys::Datum| {
            values[number as usize - 1] = datum;
            nulls[number as usize - 1] = false;
        };
        let null_fraction = column.null_count.map_or(0.0, |nulls| nulls as f64 / row_count.max(1.0));
        set(pg_sys::Anum_pg_statistic_starelid, (*entry).relid.into());
        set(pg_sys::Anum_pg_statistic_staattnum, pg_sys::Datum::from(attribute_number));
        set(pg_sys::Anum_pg_statistic_stanullfrac, float_datum(null_fraction));
        set(pg_sys::Anum_pg_statistic_stawidth, pg_sys::Datum::from(average_width(column, row_count)));
        set(pg_sys::Anum_pg_statistic_stadistinct, float_datum(distinct_bound(column, row_count)));
        if let Some((array, less_operator, collation)) = histogram((*entry).relid, attribute_number, column) {
            set(pg_sys::Anum_pg_statistic_stakind1, pg_sys::Datum::from(pg_sys::STATISTIC_KIND_HISTOGRAM));
            set(pg_sys::Anum_pg_statistic_staop1, less_operator.into());
            set(pg_sys::Anum_pg_statistic_stacoll1, collation.into());
            set(pg_sys::Anum_pg_statistic_stavalues1, pg_sys::Datum::from(array));
        }
        let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as i32);
        tuple
    }
}

fn float_datum(value: f64) -> pg_sys::Datum {
    (value as f32).into_datum().unwrap_or(pg_sys::Datum::from(0))
}

fn average_width(column: &ColumnDescription, row_count: f64) -> i32 {
    (column.uncompressed_bytes as f64 / row_count.max(1.0)).clamp(1.0, 1_000_000.0).ceil() as i32
}

/// `stadistinct`: a count, or minus the fraction of distinct rows; 0 for unknown. The range bounds the
/// distinct values of whole numbers; a range at least as wide as the table is long is taken for a key. Core
/// knows how many booleans there are only where there are no statistics.
fn distinct_bound(column: &ColumnDescription, row_count: f64) -> f64 {
    let Some(data_type) = &column.data_type else { return 0.0 };
    match (&column.minimum, &column.maximum) {
        (Some(Value::Bool(low)), Some(Value::Bool(high))) if low == high => 1.0,
        _ if *data_type == DataType::Bool => 2.0,
        (Some(Value::Int(low)), Some(Value::Int(high)))
            if data_type.is_integer() || *data_type == DataType::Date =>
        {
            let range = (*high as f64) - (*low as f64) + 1.0;
            if range >= row_count { -1.0 } else { range }
        }
        (Some(Value::Decimal(low)), Some(Value::Decimal(high))) => {
            let range = (*high as f64) - (*low as f64) + 1.0;
            if range >= row_count { -1.0 } else { range }
        }
        _ => 0.0,
    }
}

type Histogram = (*mut pg_sys::ArrayType, pg_sys::Oid, pg_sys::Oid);

/// A histogram of one bucket, from least to greatest.
unsafe fn histogram(
    table_oid: pg_sys::Oid,
    attribute_number: i16,
    column: &ColumnDescription,
) -> Option<Histogram> {
    unsafe {
        let (type_oid, _) = base_type(pg_sys::get_atttype(table_oid, attribute_number), -1);
        let low = datum_of(type_oid, column.data_type.as_ref()?, column.minimum.as_ref()?)?;
        let high = datum_of(type_oid, column.data_type.as_ref()?, column.maximum.as_ref()?)?;
        let entry = pg_sys::lookup_type_cache(type_oid, pg_sys::TYPECACHE_LT_OPR as i32);
        let (mut length, mut by_value, mut alignment) = (0i16, false, 0);
        pg_sys::get_typlenbyvalalign(type_oid, &raw mut length, &raw mut by_value, &raw mut alignment);
        let mut bounds = [low, high];
        let array =
            pg_sys::construct_array(bounds.as_mut_ptr(), 2, type_oid, i32::from(length), by_value, alignment);
        Some((array, (*entry).lt_opr, pg_sys::get_typcollation(type_oid)))
    }
}

/// A bound from the footers as a value of the declared type, where that is a number or a moment.
unsafe fn datum_of(type_oid: pg_sys::Oid, data_type: &DataType, value: &Value) -> Option<pg_sys::Datum> {
    let whole = match value {
        Value::Int(whole) => *whole,
        Value::Decimal(unscaled) if type_oid == pg_sys::NUMERICOID => {
            let DataType::Decimal { scale, .. } = data_type else { return None };
            return numeric_datum(*unscaled, *scale);
        }
        _ => return None,
    };
    match type_oid {
        pg_sys::INT2OID => i16::try_from(whole).ok()?.into_datum(),
        pg_sys::INT4OID => i32::try_from(whole).ok()?.into_datum(),
        pg_sys::INT8OID => whole.into_datum(),
        pg_sys::NUMERICOID => numeric_datum(i128::from(whole), 0),
        // No part of what is infinite can be estimated.
        pg_sys::DATEOID if whole == i64::from(i32::MAX) => None,
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID if whole == i64::MAX => None,
        pg_sys::DATEOID if *data_type == DataType::Date => {
            i32::try_from(whole - i64::from(EPOCH_DAYS)).ok()?.into_datum()
        }
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID
            if matches!(data_type, DataType::Timestamp | DataType::TimestampTz) =>
        {
            whole.checked_sub(EPOCH_MICROSECONDS)?.into_datum()
        }
        _ => None,
    }
}

fn numeric_datum(unscaled: i128, scale: u8) -> Option<pg_sys::Datum> {
    let text = format!("{unscaled}e-{scale}");
    text.parse::<AnyNumeric>().ok()?.into_datum()
}
