//! Whether a query has equal rows, and whether two queries have rows in common, as far as the
//! queries prove it without their rows.
//!
//! ```text
//! SELECT 'web' AS channel, item, … FROM (SELECT item, … GROUP BY item) w        no two have one item,
//! SELECT 'store' AS channel, item, … FROM (SELECT item, … GROUP BY item) s      and none of both one channel
//! ```

use pgrx::pg_sys;
use pystachio_lower::Constant;

use super::Level;
use crate::pg::tree::{TargetEntry, Var, check_stack_depth, is_deterministic};

/// Whether no two rows of all these queries are equal. `columns` are the types and collations by which they are compared.
pub fn are_distinct(leaves: &[Level<'_, '_>], columns: &[(pg_sys::Oid, pg_sys::Oid)]) -> bool {
    let keeps_type = |place: usize, column: &TargetEntry<'_>| {
        let expression = column.expression();
        columns.get(place) == Some(&(expression.type_oid(), expression.collation()))
    };
    let is_unique = |leaf: &Level<'_, '_>| {
        let kept = leaf.query.columns().enumerate().filter(|(place, column)| keeps_type(*place, column));
        is_unique(*leaf, &kept.map(|(_, column)| column.number()).collect::<Vec<_>>())
    };
    let differ = |a: &Level<'_, '_>, b: &Level<'_, '_>| {
        let pairs = a.query.columns().zip(b.query.columns()).enumerate();
        pairs.into_iter().any(|(place, (a, b))| {
            keeps_type(place, &a) && keeps_type(place, &b) && are_other_constants(a, b)
        })
    };
    leaves.iter().all(is_unique)
        && leaves
            .iter()
            .enumerate()
            .all(|(place, leaf)| leaves[..place].iter().all(|other| differ(leaf, other)))
}

/// Whether no two rows of a query have the same values in these columns of its target list.
fn is_unique(level: Level<'_, '_>, columns: &[i16]) -> bool {
    check_stack_depth();
    let query = level.query;
    let is_read = query.command() == pg_sys::CmdType::CMD_SELECT;
    if !is_read
        || query.has_sets_in_target()
        || query.set_operations().is_some()
        || !query.grouping_sets().is_nil()
        || query.has_distinct_on()
    {
        return false;
    }
    let is_named = |reference: u32| {
        let mut targets = query.targets().iter();
        targets.any(|target| target.reference() == reference && columns.contains(&target.number()))
    };
    if !query.distinct().is_nil() && query.distinct().iter().all(|clause| is_named(clause.reference())) {
        return true;
    }
    if !query.groups().is_nil() {
        return query.groups().iter().all(|clause| is_named(clause.reference()));
    }
    if query.has_aggregates() {
        // One row.
        return true;
    }
    is_unique_below(level, columns)
}

/// The same of a query whose rows are some of those of the one subquery that it reads.
fn is_unique_below(level: Level<'_, '_>, columns: &[i16]) -> bool {
    let query = level.query;
    let items = query.sources();
    let reference = match items.first() {
        Some(only) if items.len() == 1 => only.downcast::<pg_sys::RangeTblRef>(),
        _ => None,
    };
    let Some(index) = reference.map(|reference| reference.index()) else { return false };
    let Some(below) = level.below(index) else { return false };
    let named = query.targets().iter().filter(|target| columns.contains(&target.number()));
    let named = named.filter_map(|target| target.expression().downcast::<pg_sys::Var>());
    let is_of = |var: &Var<'_>| var.levels_up() == 0 && var.relation() == index;
    is_unique(below, &named.filter(is_of).map(|var| var.attribute()).collect::<Vec<_>>())
}

/// Whether two columns are constants that are not equal.
fn are_other_constants(a: TargetEntry<'_>, b: TargetEntry<'_>) -> bool {
    let constant = |column: TargetEntry<'_>| {
        let expression = column.expression();
        let compares_bytes = match expression.type_oid() {
            pg_sys::BOOLOID | pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID | pg_sys::DATEOID => true,
            pg_sys::TEXTOID | pg_sys::VARCHAROID => is_deterministic(expression.collation()),
            _ => false,
        };
        let value = expression.downcast::<pg_sys::Const>().filter(|_| compares_bytes)?.mirrored();
        matches!(value, Constant::Null | Constant::Value(_)).then_some(value)
    };
    match (constant(a), constant(b)) {
        (Some(a), Some(b)) => a != b,
        _ => false,
    }
}
