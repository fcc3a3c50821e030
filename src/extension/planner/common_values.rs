//! The frequent values of columns that ANALYZE has found. Engines with several ranks partition rows by them.
//!
//! The values travel in the plan, and PostgreSQL can be made to print plans. A plan therefore has only values that the view
//! `pg_stats` shows to the planning role: of columns that it may read itself, in tables whose policies do not bind it. Through
//! another role's view there are none.
//!
//! Deliberately absent: the use of the values (`pystachio_plan`'s `distribute`).

use std::sync::Arc;

use pgrx::pg_sys;
use pystachio_lower::{Notes, lower_constant};
use pystachio_plan::{
    CommonValue, DataType, Expression, Relation, ScanColumn, Value, heavy_key_columns, with_common_values,
};

use super::planning::with_planning;
use crate::pg::mirror::{constant, source_type};

/// What fewer rows have would matter to more than sixteen ranks.
const SHARE_MIN: f64 = 1.0 / 64.0;
/// The most values of a column.
const COMMON_VALUES_MAX: usize = 16;

/// The tree, whose scans know the common values of the columns that its joins compare.
pub unsafe fn with_analyzed_values(root: &Arc<Relation>) -> Arc<Relation> {
    let compared = heavy_key_columns(root);
    if compared.is_empty() {
        return root.clone();
    }
    with_common_values(root, &compared, &mut |_, column| unsafe { common_values(column) })
}

/// The common values of a column, NULL among them.
unsafe fn common_values(column: &ScanColumn) -> Vec<CommonValue> {
    unsafe {
        let known = with_planning(|planning| planning.column_of_table(column.id));
        let Some((table_oid, attribute_number)) = known else { return Vec::new() };
        if !may_see_statistics(table_oid, attribute_number) {
            return Vec::new();
        }
        let tuple = pg_sys::SearchSysCache3(
            pg_sys::SysCacheIdentifier::STATRELATTINH as i32,
            table_oid.into(),
            pg_sys::Datum::from(attribute_number),
            pg_sys::Datum::from(false),
        );
        if tuple.is_null() {
            return Vec::new();
        }
        let statistic = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_statistic>();
        let nulls = CommonValue { value: Value::Null, share: f64::from((*statistic).stanullfrac) };
        let mut common = vec![nulls];
        common.extend(most_common(tuple, &column.data_type));
        pg_sys::ReleaseSysCache(tuple);
        common.retain(|known| known.share >= SHARE_MIN);
        common.truncate(COMMON_VALUES_MAX);
        common
    }
}

/// Whether `pg_stats` shows the current role this column.
unsafe fn may_see_statistics(table_oid: pg_sys::Oid, attribute_number: i16) -> bool {
    unsafe {
        let role = pg_sys::GetUserId();
        let select = pg_sys::ACL_SELECT as pg_sys::AclMode;
        let may_read = pg_sys::pg_class_aclcheck(table_oid, role, select) == pg_sys::AclResult::ACLCHECK_OK
            || pg_sys::pg_attribute_aclcheck(table_oid, attribute_number, role, select)
                == pg_sys::AclResult::ACLCHECK_OK;
        let policies = pg_sys::check_enable_rls(table_oid, pg_sys::InvalidOid, true);
        may_read && policies != pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
    }
}

/// The list of most common values, the most frequent first.
unsafe fn most_common(tuple: pg_sys::HeapTuple, data_type: &DataType) -> Vec<CommonValue> {
    unsafe {
        let mut slot = pg_sys::AttStatsSlot::default();
        let has_list = pg_sys::get_attstatsslot(
            &raw mut slot,
            tuple,
            pg_sys::STATISTIC_KIND_MCV as i32,
            pg_sys::InvalidOid,
            (pg_sys::ATTSTATSSLOT_VALUES | pg_sys::ATTSTATSSLOT_NUMBERS) as i32,
        );
        if !has_list {
            return Vec::new();
        }
        let count = slot.nvalues.min(slot.nnumbers).max(0) as usize;
        let value = |place: usize| {
            let share = f64::from(*slot.numbers.add(place));
            let value = value_of(*slot.values.add(place), slot.valuetype, data_type)?;
            Some(CommonValue { value, share })
        };
        let common = (0..count.min(COMMON_VALUES_MAX)).filter_map(value).collect();
        pg_sys::free_attstatsslot(&raw mut slot);
        common
    }
}

/// A value as the plan has it in a column of a type; `None` if it has another form there, or none.
unsafe fn value_of(datum: pg_sys::Datum, type_oid: pg_sys::Oid, data_type: &DataType) -> Option<Value> {
    let notes = Notes::default();
    let constant = unsafe { constant(datum, false, type_oid) };
    let lowered = lower_constant(&constant, &source_type(type_oid), &notes).ok()?;
    // As a constant of the query it would say that values of the query may be infinite.
    if notes.met_infinity() {
        return None;
    }
    let Expression::Literal(literal) = lowered.expression else { return None };
    match (literal.value, &literal.data_type, data_type) {
        (Value::Decimal(unscaled), DataType::Decimal { scale: own, .. }, DataType::Decimal { scale, .. }) => {
            let power = 10i128.checked_pow(u32::from(scale.checked_sub(*own)?))?;
            unscaled.checked_mul(power).map(Value::Decimal)
        }
        (value, own, data_type) if own == data_type => Some(value),
        _ => None,
    }
}
