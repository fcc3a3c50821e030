//! Statistics of columns that were never analyzed, from the footers: null fraction, least and greatest value,
//! and an estimate of the count of distinct values.
//!
//! Of a subquery with groups, and of UNION ALL, PostgreSQL knows nothing either. Where they are ours, the columns below tell how many
//! values there are.
//!
//! ANALYZE knows more, so what it has stored is preferred. Without either, core would assume 200 distinct
//! values for every column, and joins on keys would look a thousand times larger than they are.

use pgrx::{IntoDatum, pg_sys, prelude::*};
use pystachio_plan::{ColumnDescription, DataType, Value};

use super::{
    descriptions::{describe, planned_options},
    relation_info::{RelationInfo, is_our_table},
};
use crate::{
    options,
    pg::tree::{ColumnStatistics, RangeEntry, Rel, Root, SortGroupClause, column_type},
    types::{EPOCH_DAYS, EPOCH_MICROSECONDS, base_type},
};

/// What is known of a column for which PostgreSQL has no statistics: of a table of ours that was never analyzed, or of a subquery of
/// ours.
pub fn column_statistics<'p>(
    root: Root<'p>,
    entry: RangeEntry<'p>,
    attribute_number: i16,
) -> Option<ColumnStatistics> {
    if entry.kind() == pg_sys::RTEKind::RTE_SUBQUERY {
        return subquery_statistics(root, entry, attribute_number);
    }
    let table_oid = entry.table_oid();
    if entry.relation_kind() != pg_sys::RELKIND_FOREIGN_TABLE
        || attribute_number <= 0
        || entry.is_analyzed(attribute_number)
        || !is_our_table(table_oid)
    {
        return None;
    }
    let description = describe(&planned_options(table_oid)).ok()?;
    let column = description.column(&options::file_column(table_oid, attribute_number))?;
    let row_count = description.row_count as f64;
    Some(ColumnStatistics {
        null_fraction: column.null_count.map_or(0.0, |nulls| nulls as f64 / row_count.max(1.0)),
        width: average_width(column, row_count),
        distinct: distinct_estimate(column, row_count),
        bounds: bounds(table_oid, attribute_number, column),
        may_read_all: may_read_all(root, entry, attribute_number),
    })
}

fn subquery_statistics<'p>(
    root: Root<'p>,
    entry: RangeEntry<'p>,
    attribute_number: i16,
) -> Option<ColumnStatistics> {
    let place = usize::try_from(attribute_number).ok()?.checked_sub(1)?;
    let index = root.indexes().find(|index| root.entry(*index) == Some(entry))?;
    let relation = root.relation(index)?;
    RelationInfo::of(relation)?;
    let distinct = match entry.has_members() {
        true => distinct_of_members(root, relation, place)?,
        false => distinct_of_groups(relation, place)?,
    };
    Some(ColumnStatistics { null_fraction: 0.0, width: 0, distinct, bounds: None, may_read_all: true })
}

/// Values of a column of UNION ALL: those of its members.
fn distinct_of_members<'p>(root: Root<'p>, relation: Rel<'p>, place: usize) -> Option<f64> {
    let mut sum = 0.0;
    for member in root.append_rel_list().iter() {
        let child = root.relation(member.child_index() as usize);
        if member.parent_index() == relation.index() && child.is_some_and(|child| !child.is_dummy()) {
            sum += root.distinct_values(member.translated_vars().get(place)?)?;
        }
    }
    (sum > 0.0).then_some(sum)
}

/// Values of a column by which a subquery groups.
fn distinct_of_groups(relation: Rel<'_>, place: usize) -> Option<f64> {
    let subroot = relation.subroot()?;
    let subquery = subroot.parse();
    let column = subquery.targets().get(place)?;
    let is_key = |clause: SortGroupClause<'_>| clause.reference() == column.reference();
    let is_grouped = column.reference() != 0
        && subquery.grouping_sets().is_nil()
        && subquery.set_operations().is_none()
        && subquery.groups().iter().any(is_key);
    if !is_grouped {
        return None;
    }
    match subquery.groups().len() {
        1 => Some(-1.0),
        _ => subroot.distinct_values(column.expression()),
    }
}

/// Whether the query may read a column of every row of a table. Core shows statistics to functions that are not leakproof only
/// then: their errors and notices would tell values. For statistics that are stored, `examine_simple_variable` asks the same.
fn may_read_all<'p>(root: Root<'p>, entry: RangeEntry<'p>, attribute_number: i16) -> bool {
    named_column(root, entry, attribute_number).is_some_and(|(entry, attribute_number)| {
        entry.security_conditions().is_nil() && entry.may_read(root, attribute_number)
    })
}

/// The column of the table that the query names: of a partition or child it is the one of the topmost parent, on which the
/// rights are. `None` where the parent has no such column.
fn named_column<'p>(
    root: Root<'p>,
    entry: RangeEntry<'p>,
    attribute_number: i16,
) -> Option<(RangeEntry<'p>, i16)> {
    let (mut entry, mut attribute_number) = (entry, attribute_number);
    if !root.has_members() {
        return Some((entry, attribute_number));
    }
    let mut index = root.indexes().find(|index| root.entry(*index) == Some(entry))?;
    while let Some(child) = root.membership(index) {
        let parent_index = child.parent_index() as usize;
        let parent = root.entry(parent_index)?;
        // A member of UNION ALL has rights of its own.
        if parent.kind() != pg_sys::RTEKind::RTE_RELATION {
            break;
        }
        attribute_number = child.parent_column(attribute_number)?;
        (entry, index) = (parent, parent_index);
    }
    Some((entry, attribute_number))
}

fn average_width(column: &ColumnDescription, row_count: f64) -> i32 {
    (column.uncompressed_bytes as f64 / row_count.max(1.0)).clamp(1.0, 1_000_000.0).ceil() as i32
}

/// The part of the rows that differ from which on a column is expected to have more values when it has more rows.
const GROWING_SHARE: f64 = 0.1;

/// `stadistinct` by all that is known.
fn distinct_estimate(column: &ColumnDescription, row_count: f64) -> f64 {
    let bound = distinct_bound(column, row_count);
    let Some(estimate) = column.distinct_estimate.filter(|_| column.distinct_count.is_none()) else {
        return bound;
    };
    let least = if bound > 0.0 { estimate.min(bound) } else { estimate };
    match least > row_count * GROWING_SHARE {
        true => -(least / row_count).min(1.0),
        false => least,
    }
}

/// `stadistinct`: a count, or minus the fraction of distinct rows; 0 for unknown. The range bounds the
/// distinct values of whole numbers; a range at least as wide as the table is long is taken for a key. Core
/// knows how many booleans there are only where there are no statistics.
pub fn distinct_bound(column: &ColumnDescription, row_count: f64) -> f64 {
    if let Some(count) = column.distinct_count {
        return count.max(1) as f64;
    }
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

/// The column's type, and its least and greatest value.
fn bounds(
    table_oid: pg_sys::Oid,
    attribute_number: i16,
    column: &ColumnDescription,
) -> Option<(pg_sys::Oid, [pg_sys::Datum; 2])> {
    let (type_oid, _) = base_type(column_type(table_oid, attribute_number), -1);
    let low = datum_of(type_oid, column.data_type.as_ref()?, column.minimum.as_ref()?)?;
    let high = datum_of(type_oid, column.data_type.as_ref()?, column.maximum.as_ref()?)?;
    Some((type_oid, [low, high]))
}

/// A bound from the footers as a value of the declared type, where that is a number or a moment.
fn datum_of(type_oid: pg_sys::Oid, data_type: &DataType, value: &Value) -> Option<pg_sys::Datum> {
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
