//! The frequent values of columns that ANALYZE has found. Engines with several ranks partition rows by them.
//!
//! The values travel in the plan, and PostgreSQL can be made to print plans. A plan therefore has only values that the view
//! `pg_stats` shows to the planning role: of columns that it may read itself, in tables whose policies do not bind it. Through
//! another role's view there are none.
//!
//! Deliberately absent: the use of the values (`pystachio_plan`'s `distribute`).

use std::sync::Arc;

use pgrx::pg_sys::Oid;
use pystachio_lower::{Constant, Notes, lower_constant};
use pystachio_plan::{
    CommonValue, DataType, Expression, Relation, ScanColumn, Value, heavy_key_columns, with_common_values,
};

use super::planning::with_planning;
use crate::pg::{
    mirror::source_type,
    tree::{analyzed_column, current_role, is_bound_by_policies, may_read_column},
};

/// What fewer rows have would matter to more than sixteen ranks.
const SHARE_MIN: f64 = 1.0 / 64.0;
/// The most values of a column.
const COMMON_VALUES_MAX: usize = 16;

/// The tree, whose scans know the common values of the columns that its joins compare.
pub fn with_analyzed_values(root: &Arc<Relation>) -> Arc<Relation> {
    let compared = heavy_key_columns(root);
    if compared.is_empty() {
        return root.clone();
    }
    with_common_values(root, &compared, &mut |_, column| common_values(column).unwrap_or_default())
}

/// The common values of a column, NULL among them. `None` if they are not known, or not for the current role.
fn common_values(column: &ScanColumn) -> Option<Vec<CommonValue>> {
    let (table_oid, attribute_number) = with_planning(|planning| planning.column_of_table(column.id))?;
    if !may_see_statistics(table_oid, attribute_number) {
        return None;
    }
    let analyzed = analyzed_column(table_oid, attribute_number, COMMON_VALUES_MAX)?;
    let nulls = CommonValue { value: Value::Null, share: analyzed.null_fraction };
    let values = analyzed.common.iter().filter_map(|(constant, share)| {
        let value = value_of(constant, analyzed.type_oid, &column.data_type)?;
        Some(CommonValue { value, share: *share })
    });
    let mut common: Vec<CommonValue> = std::iter::once(nulls).chain(values).collect();
    common.retain(|known| known.share >= SHARE_MIN);
    common.truncate(COMMON_VALUES_MAX);
    Some(common)
}

/// Whether `pg_stats` shows the current role this column.
fn may_see_statistics(table_oid: Oid, attribute_number: i16) -> bool {
    may_read_column(table_oid, attribute_number, current_role()) && !is_bound_by_policies(table_oid)
}

/// A value as the plan has it in a column of a type; `None` if it has another form there, or none.
fn value_of(constant: &Constant, type_oid: Oid, data_type: &DataType) -> Option<Value> {
    let notes = Notes::default();
    let lowered = lower_constant(constant, &source_type(type_oid), &notes).ok()?;
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
