//! Parts of a plan that read the same rows and want different columns of them, made one.
//!
//! A common table expression that two places read is planned for each of them, with the columns that this place wants. Both parts get
//! the columns of both:
//!
//! ```text
//! Aggregate sum(x) by a    and    Aggregate max(y) by a    ─►    Aggregate sum(x), max(y) by a    twice
//!   Scan t [a, x]                   Scan t [a, y]                  Scan t [a, x, y]
//! ```
//!
//! They are then alike but for the ids of their columns, and engines compute them once ([`crate::RepeatedParts`]).
//!
//! Invariants: a part keeps the ids of its columns, and has the same rows as before. Inner parts are made one before outer ones, so that
//! what was alike stays so.
//!
//! Deliberately absent: parts with different conditions. Each of them reads less than both would together.

use std::{collections::HashMap, sync::Arc};

use crate::{
    AggregateCall, AggregatePhase, ColumnId, NamedExpression, Operator, Plan, Relation, ScanColumn,
    ScanExtent, WindowCall,
    repeated::{canonical, is_part, narrowed_inputs, reads_files_twice},
};

/// Parts of a plan that are looked at. Every two of them are compared.
const PARTS_MAX: usize = 64;

/// The same plan with alike parts made one. `next_column` gives ids that the plan does not have.
pub fn with_equal_parts(plan: &Plan, next_column: &mut dyn FnMut() -> ColumnId) -> Plan {
    let mut root = plan.root.clone();
    if !reads_files_twice(&root) {
        return plan.clone();
    }
    while let Some(changed) = with_one_pair(&root, next_column) {
        root = changed;
    }
    Plan { root, outputs: plan.outputs.clone() }
}

/// The tree with the first two parts made one that are not yet, the innermost first.
fn with_one_pair(root: &Arc<Relation>, next_column: &mut dyn FnMut() -> ColumnId) -> Option<Arc<Relation>> {
    let mut parts = Vec::new();
    find(root, false, &mut parts);
    parts.truncate(PARTS_MAX);
    let forms: Vec<Arc<Relation>> = parts.iter().map(|(part, _)| canonical(part)).collect();
    for (place, (one, one_is_narrowed)) in parts.iter().enumerate() {
        for (other_place, (other, other_is_narrowed)) in parts.iter().enumerate().skip(place + 1) {
            if (*one_is_narrowed && *other_is_narrowed) || forms[place] == forms[other_place] {
                continue;
            }
            let mut names = HashMap::new();
            let Some(merged) = align(one, other, &mut names, next_column) else { continue };
            let mut own: HashMap<ColumnId, ColumnId> =
                names.into_iter().map(|(of_other, merged)| (merged, of_other)).collect();
            let copy = merged.map_columns(&mut |id| *own.entry(id).or_insert_with(&mut *next_column));
            return Some(replace(root, &[(one, &merged), (other, &copy)]));
        }
    }
    None
}

/// Notes the parts, inner ones first, and whether each is joined with few rows.
fn find<'a>(relation: &'a Arc<Relation>, is_narrowed: bool, found: &mut Vec<(&'a Arc<Relation>, bool)>) {
    for (input, is_narrowed) in relation.inputs().into_iter().zip(narrowed_inputs(relation, is_narrowed)) {
        find(input, is_narrowed, found);
    }
    if is_part(relation) {
        found.push((relation, is_narrowed));
    }
}

fn replace(relation: &Arc<Relation>, changes: &[(&Arc<Relation>, &Arc<Relation>)]) -> Arc<Relation> {
    match changes.iter().find(|(before, _)| Arc::ptr_eq(before, relation)) {
        Some((_, after)) => (*after).clone(),
        None => relation.map_inputs(&mut |input| replace(input, changes)),
    }
}

/// A relation with the columns of both, by the ids of the first one, if both have the same rows but for their columns. `names` gets
/// the id there of each column of the second one; no two have the same.
fn align(
    one: &Arc<Relation>,
    other: &Arc<Relation>,
    names: &mut HashMap<ColumnId, ColumnId>,
    next_column: &mut dyn FnMut() -> ColumnId,
) -> Option<Arc<Relation>> {
    // Inputs are aligned first, so that this operator is compared by the ids of the first relation.
    let mut inputs = Vec::new();
    if has_own_columns(&one.operator) {
        let pairs = one.inputs().into_iter().zip(other.inputs());
        inputs = pairs.map(|(one, other)| align(one, other, names, next_column)).collect::<Option<_>>()?;
    }
    let renamed = other.map_columns(&mut |id| names.get(&id).copied().unwrap_or(id));
    let mut own_ids = own_ids(&other.operator).into_iter();
    // The id of a column of the second one: that of an equal column of the first one, unless another column has it.
    let mut id_of = |known: &[ColumnId]| {
        let own = own_ids.next()?;
        let is_free = |id: &ColumnId| names.iter().all(|(of, named)| named != id || *of == own);
        let found = known.iter().copied().find(is_free);
        let id = found.unwrap_or_else(&mut *next_column);
        names.insert(own, id);
        Some((id, found.is_none()))
    };
    let mut merged = (**one).clone();
    match (&mut merged.operator, &renamed.operator) {
        (
            Operator::Scan { files, columns, filters, extent: ScanExtent::Whole, .. },
            Operator::Scan { files: other_files, columns: other_columns, extent: ScanExtent::Whole, .. },
        ) => {
            if files != other_files {
                return None;
            }
            for column in other_columns {
                let same = columns.iter().filter(|known| is_same_column(known, column)).map(|known| known.id);
                let (id, is_new) = id_of(&same.collect::<Vec<_>>())?;
                if is_new {
                    columns.push(ScanColumn { id, ..column.clone() });
                }
            }
            // The conditions of a scan are over its own columns, which have their names now.
            let renamed = other.map_columns(&mut |id| names.get(&id).copied().unwrap_or(id));
            match &renamed.operator {
                Operator::Scan { filters: other_filters, .. } if filters == other_filters => {}
                _ => return None,
            }
        }
        (Operator::Filter { predicate, .. }, Operator::Filter { predicate: other, .. }) => {
            if predicate != other {
                return None;
            }
        }
        (Operator::Project { expressions, .. }, Operator::Project { expressions: others, .. }) => {
            for NamedExpression { expression, .. } in others {
                let same =
                    expressions.iter().filter(|known| known.expression == *expression).map(|known| known.id);
                let (id, is_new) = id_of(&same.collect::<Vec<_>>())?;
                if is_new {
                    expressions.push(NamedExpression { id, expression: expression.clone() });
                }
            }
        }
        (
            Operator::Aggregate { groups, aggregates, phase: AggregatePhase::Whole, .. },
            Operator::Aggregate {
                groups: other_groups,
                aggregates: other_aggregates,
                phase: AggregatePhase::Whole,
                ..
            },
        ) => {
            let is_same_group =
                |(own, other): (&NamedExpression, &NamedExpression)| own.expression == other.expression;
            if groups.len() != other_groups.len() || !groups.iter().zip(other_groups).all(is_same_group) {
                return None;
            }
            for group in groups.iter() {
                // Two groups by the same expression would share an id.
                id_of(&[group.id]).filter(|(_, is_new)| !is_new)?;
            }
            for call in other_aggregates {
                let is_same =
                    |known: &&AggregateCall| AggregateCall { id: call.id, ..(*known).clone() } == *call;
                let same = aggregates.iter().filter(is_same).map(|known| known.id);
                let (id, is_new) = id_of(&same.collect::<Vec<_>>())?;
                if is_new {
                    aggregates.push(AggregateCall { id, ..call.clone() });
                }
            }
        }
        (
            Operator::Window { partition, order, calls, .. },
            Operator::Window { partition: other_partition, order: other_order, calls: other_calls, .. },
        ) => {
            if partition != other_partition || order != other_order {
                return None;
            }
            for call in other_calls {
                let is_same = |known: &&WindowCall| WindowCall { id: call.id, ..(*known).clone() } == *call;
                let same = calls.iter().filter(is_same).map(|known| known.id);
                let (id, is_new) = id_of(&same.collect::<Vec<_>>())?;
                if is_new {
                    calls.push(WindowCall { id, ..call.clone() });
                }
            }
        }
        (
            Operator::Join { kind, keys, residual, build, .. },
            Operator::Join {
                kind: other_kind,
                keys: other_keys,
                residual: other_residual,
                build: other_build,
                ..
            },
        ) => {
            let is_same = kind == other_kind
                && keys == other_keys
                && residual == other_residual
                && build == other_build;
            if !is_same {
                return None;
            }
        }
        _ if canonical(one) == canonical(other) => {
            let columns = other.columns().into_iter().zip(one.columns());
            names.extend(columns.map(|((of_other, _), (of_one, _))| (of_other, of_one)));
            return Some(one.clone());
        }
        _ => return None,
    }
    for (input, aligned) in merged.inputs_mut().into_iter().zip(inputs) {
        *input = aligned;
    }
    Some(Arc::new(merged))
}

/// The ids that an operator gives columns of its own.
fn own_ids(operator: &Operator) -> Vec<ColumnId> {
    match operator {
        Operator::Scan { columns, .. } => columns.iter().map(|column| column.id).collect(),
        Operator::Project { expressions, .. } => expressions.iter().map(|named| named.id).collect(),
        Operator::Aggregate { groups, aggregates, .. } => {
            groups.iter().map(|group| group.id).chain(aggregates.iter().map(|call| call.id)).collect()
        }
        Operator::Window { calls, .. } => calls.iter().map(|call| call.id).collect(),
        _ => Vec::new(),
    }
}

/// Whether columns of inputs may be added below an operator without changing its rows.
fn has_own_columns(operator: &Operator) -> bool {
    matches!(
        operator,
        Operator::Filter { .. }
            | Operator::Project { .. }
            | Operator::Aggregate { .. }
            | Operator::Window { .. }
            | Operator::Join { .. }
    )
}

fn is_same_column(one: &ScanColumn, other: &ScanColumn) -> bool {
    ScanColumn { id: other.id, common: other.common.clone(), ..one.clone() } == *other
}

#[cfg(test)]
mod tests;
