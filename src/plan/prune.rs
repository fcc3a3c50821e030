//! Drops the columns of a plan that no operator reads.
//!
//! The planner carries every column of every input upwards and decides what is needed once, here, from
//! the top down.

use std::{collections::HashSet, sync::Arc};

use crate::{ColumnId, Expression, NamedExpression, Operator, Plan, Relation, ScanExtent, WindowCall};

/// The same plan without columns that neither its outputs nor any operator reads.
///
/// # Ordering
///
/// Columns that stay keep their order.
pub fn prune_columns(plan: &Plan) -> Plan {
    let required = plan.outputs.iter().copied().collect();
    Plan { root: prune_relation(&plan.root, &required), outputs: plan.outputs.clone() }
}

/// The columns that a plan reads anywhere but in the conditions of its scans: a scan need not give the others.
pub fn columns_above_scans(plan: &Plan) -> HashSet<ColumnId> {
    let mut read: Required = plan.outputs.iter().copied().collect();
    let mut waiting = vec![&plan.root];
    while let Some(relation) = waiting.pop() {
        match &relation.operator {
            Operator::Scan { .. } => {}
            Operator::UnionAll { inputs, .. } => read.extend(inputs.iter().flat_map(|(_, ids)| ids)),
            _ => relation.expressions().into_iter().for_each(|part| require_columns(part, &mut read)),
        }
        waiting.extend(relation.inputs());
    }
    read
}

pub(crate) type Required = HashSet<ColumnId>;

fn prune_relation(relation: &Relation, required: &Required) -> Arc<Relation> {
    let operator = match &relation.operator {
        Operator::Scan { table, files, columns, filters, extent } => {
            let mut needed = required.clone();
            filters.iter().for_each(|filter| require_columns(filter, &mut needed));
            if let ScanExtent::Range { column, .. } = extent {
                needed.insert(*column);
            }
            Operator::Scan {
                table: table.clone(),
                files: files.clone(),
                columns: columns.iter().filter(|column| needed.contains(&column.id)).cloned().collect(),
                filters: filters.clone(),
                extent: extent.clone(),
            }
        }
        Operator::Filter { input, predicate } => {
            let mut needed = required.clone();
            require_columns(predicate, &mut needed);
            Operator::Filter { input: prune_relation(input, &needed), predicate: predicate.clone() }
        }
        Operator::Project { input, expressions } => {
            let expressions = retain_named(expressions, required);
            let mut needed = Required::new();
            expressions.iter().for_each(|named| require_columns(&named.expression, &mut needed));
            Operator::Project { input: prune_relation(input, &needed), expressions }
        }
        Operator::Join { kind, left, right, keys, residual, build } => {
            let mut needed = required.clone();
            for key in keys {
                require_columns(&key.left, &mut needed);
                require_columns(&key.right, &mut needed);
            }
            residual.iter().for_each(|condition| require_columns(condition, &mut needed));
            Operator::Join {
                kind: *kind,
                left: prune_relation(left, &needed),
                right: prune_relation(right, &needed),
                keys: keys.clone(),
                residual: residual.clone(),
                build: *build,
            }
        }
        Operator::Aggregate { input, groups, aggregates, phase } => {
            let aggregates: Vec<_> =
                aggregates.iter().filter(|call| required.contains(&call.id)).cloned().collect();
            let mut needed = Required::new();
            groups.iter().for_each(|named| require_columns(&named.expression, &mut needed));
            for call in &aggregates {
                call.inputs().for_each(|part| require_columns(part, &mut needed));
            }
            Operator::Aggregate {
                input: prune_relation(input, &needed),
                groups: groups.clone(),
                aggregates,
                phase: *phase,
            }
        }
        Operator::Sort { input, keys } => {
            let mut needed = required.clone();
            keys.iter().for_each(|key| require_columns(&key.expression, &mut needed));
            Operator::Sort { input: prune_relation(input, &needed), keys: keys.clone() }
        }
        Operator::Limit { input, offset, count } => Operator::Limit {
            input: prune_relation(input, required),
            offset: offset.clone(),
            count: count.clone(),
        },
        Operator::Unnest { input, arrays, number, keeps_rows } => {
            let mut needed = required.clone();
            arrays.iter().for_each(|unnested| require_columns(&unnested.array, &mut needed));
            Operator::Unnest {
                input: prune_relation(input, &needed),
                arrays: arrays.clone(),
                number: number.filter(|number| required.contains(number)),
                keeps_rows: *keeps_rows,
            }
        }
        Operator::Window { input, partition, order, calls } => {
            let calls: Vec<_> = calls.iter().filter(|call| required.contains(&call.id)).cloned().collect();
            if calls.is_empty() {
                return prune_relation(input, required);
            }
            let mut needed = required.clone();
            let keys = order.iter().map(|key| &key.expression);
            let read = partition.iter().chain(keys).chain(calls.iter().flat_map(WindowCall::expressions));
            read.for_each(|part| require_columns(part, &mut needed));
            let (partition, order) = (partition.clone(), order.clone());
            Operator::Window { input: prune_relation(input, &needed), partition, order, calls }
        }
        Operator::UnionAll { inputs, columns } => {
            let kept: Vec<bool> = columns.iter().map(|(id, _)| required.contains(id)).collect();
            let inputs = inputs
                .iter()
                .map(|(input, ids)| {
                    let ids = retain_marked(ids, &kept);
                    (prune_relation(input, &ids.iter().copied().collect()), ids)
                })
                .collect();
            Operator::UnionAll { inputs, columns: retain_marked(columns, &kept) }
        }
        Operator::Exchange { input, id, kind, reach } => {
            let mut needed = required.clone();
            kind.expressions().for_each(|key| require_columns(key, &mut needed));
            let input = prune_relation(input, &needed);
            Operator::Exchange { input, id: *id, kind: kind.clone(), reach: *reach }
        }
    };
    Arc::new(Relation { operator, estimate: relation.estimate })
}

pub(crate) fn require_columns(expression: &Expression, required: &mut Required) {
    expression.walk(&mut |part| {
        if let Expression::Column { id, .. } = part {
            required.insert(*id);
        }
    });
}

fn retain_named(expressions: &[NamedExpression], required: &Required) -> Vec<NamedExpression> {
    expressions.iter().filter(|named| required.contains(&named.id)).cloned().collect()
}

fn retain_marked<T: Clone>(items: &[T], kept: &[bool]) -> Vec<T> {
    items.iter().zip(kept).filter(|(_, kept)| **kept).map(|(item, _)| item.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnContent, DataType, FileSet, Function, ScanColumn, SortKey};

    fn column(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Int64)
    }

    fn scan(ids: &[u32]) -> Arc<Relation> {
        let columns = ids
            .iter()
            .map(|id| ScanColumn {
                id: ColumnId(*id),
                name: format!("c{id}"),
                data_type: DataType::Int64,
                not_null: false,
                length_max: None,
                trim_blanks: false,
                content: ColumnContent::Column,
                field_id: None,
                within: Vec::new(),
                common: Vec::new(),
            })
            .collect();
        let files = FileSet::parquet(vec!["/t.parquet".into()]);
        let (filters, extent) = (Vec::new(), ScanExtent::Whole);
        Relation::new(Operator::Scan { table: "t".into(), files, columns, filters, extent }, 1.0)
    }

    fn ids(relation: &Relation) -> Vec<u32> {
        relation.columns().iter().map(|(id, _)| id.0).collect()
    }

    #[test]
    fn filter_columns_stay_below_and_leave_above() {
        let predicate = Expression::predicate(Function::Less, vec![column(2), column(3)]);
        let filter = Relation::new(Operator::Filter { input: scan(&[1, 2, 3, 4]), predicate }, 1.0);
        let plan = prune_columns(&Plan { root: filter, outputs: vec![ColumnId(1)] });
        assert_eq!(ids(&plan.root), [1, 2, 3]);
    }

    #[test]
    fn columns_that_only_a_scan_reads_are_not_above_it() {
        let mut input = scan(&[1, 2, 3, 4]);
        if let Operator::Scan { filters, .. } = &mut Arc::make_mut(&mut input).operator {
            filters.push(Expression::predicate(Function::Less, vec![column(2), column(3)]));
        }
        let keys = vec![SortKey { expression: column(3), descending: false, nulls_first: false }];
        let sort = Relation::new(Operator::Sort { input, keys }, 1.0);
        let columns = vec![(ColumnId(10), DataType::Int64)];
        let inputs = vec![(sort, vec![ColumnId(4)]), (scan(&[5, 6]), vec![ColumnId(6)])];
        let union = Relation::new(Operator::UnionAll { inputs, columns }, 1.0);
        let above = columns_above_scans(&Plan { root: union, outputs: vec![ColumnId(10)] });
        assert_eq!(above, [3, 4, 6, 10].map(ColumnId).into());
    }

    #[test]
    fn count_of_rows_reads_no_column() {
        let plan = prune_columns(&Plan { root: scan(&[1, 2]), outputs: Vec::new() });
        assert_eq!(ids(&plan.root), [0u32; 0]);
    }

    #[test]
    fn union_inputs_lose_the_same_places() {
        let columns = vec![(ColumnId(10), DataType::Int64), (ColumnId(11), DataType::Int64)];
        let inputs = vec![
            (scan(&[1, 2]), vec![ColumnId(2), ColumnId(1)]),
            (scan(&[3, 4]), vec![ColumnId(3), ColumnId(4)]),
        ];
        let union = Relation::new(Operator::UnionAll { inputs, columns }, 1.0);
        let plan = prune_columns(&Plan { root: union, outputs: vec![ColumnId(11)] });
        let inputs = plan.root.inputs();
        assert_eq!(ids(&plan.root), [11]);
        assert_eq!(ids(inputs[0]), [1]);
        assert_eq!(ids(inputs[1]), [4]);
    }
}
