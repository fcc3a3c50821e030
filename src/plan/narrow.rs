//! Conditions that a plan has beside its own: it is narrowed by them before it runs, or widened again.
//!
//! ```text
//! narrow:  Filter k IN ($1)            widen:  back, if $1 is unknown
//!            Join                ─►    Join
//!              Scan a                    Scan a [k IN ($1)]
//!              Scan b                    Scan b
//! ```
//!
//! Invariants: such a condition can't fail, so it may see rows that conditions of the plan drop. It stays a condition of its
//! own wherever it is put, so that it can be found again.

use std::sync::Arc;

use crate::{
    ColumnId, Expression, JoinKind, JoinSide, NamedExpression, Operator, Relation, prune::require_columns,
};

/// The tree with a further condition on its rows, as far below as its columns are. About `share` of the rows meet it.
pub fn narrow(relation: &Arc<Relation>, condition: &Expression, share: f64) -> Arc<Relation> {
    let operator = match &relation.operator {
        Operator::Scan { table, files, columns, filters, extent } => Operator::Scan {
            table: table.clone(),
            files: files.clone(),
            columns: columns.clone(),
            filters: filters.iter().chain([condition]).cloned().collect(),
            extent: extent.clone(),
        },
        Operator::Filter { input, predicate } => {
            Operator::Filter { input: narrow(input, condition, share), predicate: predicate.clone() }
        }
        Operator::Sort { input, keys } => {
            Operator::Sort { input: narrow(input, condition, share), keys: keys.clone() }
        }
        Operator::Project { input, expressions } => match below(expressions, condition) {
            Some(condition) => Operator::Project {
                input: narrow(input, &condition, share),
                expressions: expressions.clone(),
            },
            None => return above(relation, condition, share),
        },
        Operator::Aggregate { input, groups, aggregates, phase } => match below(groups, condition) {
            Some(condition) => Operator::Aggregate {
                input: narrow(input, &condition, share),
                groups: groups.clone(),
                aggregates: aggregates.clone(),
                phase: *phase,
            },
            None => return above(relation, condition, share),
        },
        Operator::Join { kind, left, right, keys, residual, build } => {
            let (left, right, side) = match narrowed_side(*kind, left, right, condition) {
                Some(JoinSide::Left) => (narrow(left, condition, share), right.clone(), JoinSide::Left),
                Some(JoinSide::Right) => (left.clone(), narrow(right, condition, share), JoinSide::Right),
                None => return above(relation, condition, share),
            };
            let is_smaller = match side {
                JoinSide::Left => left.estimate.rows < right.estimate.rows,
                JoinSide::Right => right.estimate.rows < left.estimate.rows,
            };
            let build = if is_smaller { side } else { *build };
            Operator::Join { kind: *kind, left, right, keys: keys.clone(), residual: residual.clone(), build }
        }
        // All rows of a partition meet it, or none.
        Operator::Window { input, partition, order, calls } => {
            let divides = |column: ColumnId| {
                partition.iter().any(|part| matches!(part, Expression::Column { id, .. } if *id == column))
            };
            if !columns_of(condition).all(divides) {
                return above(relation, condition, share);
            }
            Operator::Window {
                input: narrow(input, condition, share),
                partition: partition.clone(),
                order: order.clone(),
                calls: calls.clone(),
            }
        }
        Operator::UnionAll { inputs, columns } => {
            let inputs = inputs.iter().map(|(input, ids)| {
                let condition =
                    renamed(condition, columns.iter().map(|(id, _)| *id).zip(ids.iter().copied()));
                (narrow(input, &condition, share), ids.clone())
            });
            Operator::UnionAll { inputs: inputs.collect(), columns: columns.clone() }
        }
        _ => return above(relation, condition, share),
    };
    Relation::new(operator, relation.estimate.rows * share)
}

fn above(relation: &Arc<Relation>, condition: &Expression, share: f64) -> Arc<Relation> {
    let filter = Operator::Filter { input: relation.clone(), predicate: condition.clone() };
    Relation::new(filter, relation.estimate.rows * share)
}

/// The tree without the conditions that `is_dropped` names: whole ones, as [`narrow`] puts them.
pub fn widen(relation: &Arc<Relation>, is_dropped: &dyn Fn(&Expression) -> bool) -> Arc<Relation> {
    match &relation.operator {
        Operator::Filter { input, predicate } if is_dropped(predicate) => widen(input, is_dropped),
        Operator::Scan { table, files, columns, filters, extent } if filters.iter().any(is_dropped) => {
            let scan = Operator::Scan {
                table: table.clone(),
                files: files.clone(),
                columns: columns.clone(),
                filters: filters.iter().filter(|filter| !is_dropped(filter)).cloned().collect(),
                extent: extent.clone(),
            };
            Relation::new(scan, relation.estimate.rows)
        }
        _ => relation.map_inputs(&mut |input| widen(input, is_dropped)),
    }
}

fn columns_of(condition: &Expression) -> impl Iterator<Item = ColumnId> {
    let mut columns = crate::prune::Required::new();
    require_columns(condition, &mut columns);
    columns.into_iter()
}

/// The condition on the input, if its columns are columns of the input, under whatever ids.
fn below(expressions: &[NamedExpression], condition: &Expression) -> Option<Expression> {
    let inner_of = |column: ColumnId| {
        let named = expressions.iter().find(|named| named.id == column)?;
        match &named.expression {
            Expression::Column { id, .. } => Some((column, *id)),
            _ => None,
        }
    };
    let names: Option<Vec<_>> = columns_of(condition).map(inner_of).collect();
    Some(renamed(condition, names?.into_iter()))
}

/// The side of a join whose rows a condition on the result may be tested on: it has the columns, and the join drops its rows
/// without a match or keeps them as they are.
fn narrowed_side(
    kind: JoinKind,
    left: &Relation,
    right: &Relation,
    condition: &Expression,
) -> Option<JoinSide> {
    let has = |side: &Relation| {
        let columns = side.columns();
        columns_of(condition).all(|column| columns.iter().any(|(id, _)| *id == column))
    };
    match kind {
        JoinKind::Full => None,
        _ if has(left) => Some(JoinSide::Left),
        JoinKind::Inner if has(right) => Some(JoinSide::Right),
        _ => None,
    }
}

/// The condition with other columns.
fn renamed(condition: &Expression, names: impl Iterator<Item = (ColumnId, ColumnId)> + Clone) -> Expression {
    let mut condition = condition.clone();
    condition.map_parts(&mut |part| {
        if let Expression::Column { id, .. } = part
            && let Some((_, other)) = names.clone().find(|(known, _)| known == id)
        {
            *id = other;
        }
    });
    condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Aggregate, AggregateCall, AggregatePhase, ColumnContent, DataType, FileSet, Function, JoinKey,
        ScanColumn, ScanExtent, plan_lines,
    };

    fn column(id: u32) -> Expression {
        Expression::column(ColumnId(id), DataType::Int64)
    }

    fn scan(table: &str, ids: &[u32]) -> Arc<Relation> {
        let columns = ids.iter().map(|id| ScanColumn {
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
        });
        let scan = Operator::Scan {
            table: table.into(),
            files: FileSet::parquet(Vec::new()),
            columns: columns.collect(),
            filters: Vec::new(),
            extent: ScanExtent::Whole,
        };
        Relation::new(scan, 1000.0)
    }

    fn keys(id: u32) -> Expression {
        let list = Expression::Parameter { index: 0, data_type: DataType::List(Box::new(DataType::Int64)) };
        Expression::predicate(Function::In, vec![column(id), list])
    }

    fn is_keys(condition: &Expression) -> bool {
        matches!(condition, Expression::Call { function: Function::In, .. })
    }

    fn join(kind: JoinKind) -> Arc<Relation> {
        let join = Operator::Join {
            kind,
            left: scan("a", &[1, 2]),
            right: scan("b", &[3, 4]),
            keys: vec![JoinKey { left: column(1), right: column(3) }],
            residual: None,
            build: JoinSide::Right,
        };
        Relation::new(join, 1000.0)
    }

    /// The operators that have a condition of keys, and that the tree is the same again without.
    fn narrowed(relation: &Arc<Relation>, id: u32) -> Vec<String> {
        let narrowed = narrow(relation, &keys(id), 0.01);
        let plain = |tree: &Arc<Relation>| {
            let plan = crate::Plan { root: tree.clone(), outputs: Vec::new() };
            let lines = plan_lines(&plan, crate::PlanFacts::default());
            lines.into_iter().map(|line| line.replace(", build left", ", build right")).collect::<Vec<_>>()
        };
        assert_eq!(plain(&widen(&narrowed, &is_keys)), plain(relation));
        plain(&narrowed)
            .into_iter()
            .filter(|line| line.contains("$1"))
            .map(|line| line.trim().into())
            .collect()
    }

    fn is_of(lines: &[String], start: &str) -> bool {
        matches!(lines, [line] if line.starts_with(start))
    }

    #[test]
    fn a_condition_goes_to_the_scan_that_has_its_columns() {
        assert!(is_of(&narrowed(&scan("a", &[1, 2]), 2), "Scan a"));
        assert!(is_of(&narrowed(&join(JoinKind::Inner), 2), "Scan a"));
        assert!(is_of(&narrowed(&join(JoinKind::Inner), 3), "Scan b"));
        assert!(is_of(&narrowed(&join(JoinKind::Left), 2), "Scan a"));
        assert!(is_of(&narrowed(&join(JoinKind::Semi), 1), "Scan a"));
        assert!(is_of(&narrowed(&join(JoinKind::Anti), 1), "Scan a"));
    }

    #[test]
    fn a_condition_stays_above_an_outer_join_that_makes_its_column_null() {
        assert!(is_of(&narrowed(&join(JoinKind::Left), 4), "Filter"));
        assert!(is_of(&narrowed(&join(JoinKind::Full), 1), "Filter"));
    }

    #[test]
    fn a_condition_goes_below_what_passes_its_columns() {
        let computed = Expression::call(Function::Negate, vec![column(2)], DataType::Int64);
        let passed = vec![
            NamedExpression { id: ColumnId(1), expression: column(1) },
            NamedExpression { id: ColumnId(6), expression: column(2) },
            NamedExpression { id: ColumnId(9), expression: computed },
        ];
        let project = Operator::Project { input: scan("a", &[1, 2]), expressions: passed.clone() };
        let project = Relation::new(project, 1000.0);
        assert!(is_of(&narrowed(&project, 1), "Scan a"));
        assert!(narrowed(&project, 6)[0].contains("(c2 = ANY ($1))"));
        assert!(is_of(&narrowed(&project, 9), "Filter"));
        let count = AggregateCall {
            id: ColumnId(8),
            function: Aggregate::Count,
            argument: None,
            distinct: false,
            filter: None,
            data_type: DataType::Int64,
            order: Vec::new(),
        };
        let aggregate = Operator::Aggregate {
            input: scan("a", &[1, 2]),
            groups: passed,
            aggregates: vec![count],
            phase: AggregatePhase::Whole,
        };
        let aggregate = Relation::new(aggregate, 10.0);
        assert!(is_of(&narrowed(&aggregate, 1), "Scan a"));
        assert!(is_of(&narrowed(&aggregate, 6), "Scan a"));
        assert!(is_of(&narrowed(&aggregate, 9), "Filter"));
        assert!(is_of(&narrowed(&aggregate, 8), "Filter"));
    }

    #[test]
    fn a_condition_goes_below_a_window_that_divides_rows_by_its_columns() {
        let rank = crate::WindowCall {
            id: ColumnId(8),
            function: crate::WindowFunction::Rank,
            argument: None,
            frame: crate::WindowFrame::whole(),
            data_type: DataType::Int64,
        };
        let window = Operator::Window {
            input: scan("a", &[1, 2, 3]),
            partition: vec![column(1), Expression::call(Function::Negate, vec![column(2)], DataType::Int64)],
            order: Vec::new(),
            calls: vec![rank],
        };
        let window = Relation::new(window, 1000.0);
        assert!(is_of(&narrowed(&window, 1), "Scan a"));
        for id in [2, 3, 8] {
            assert!(is_of(&narrowed(&window, id), "Filter"));
        }
    }

    #[test]
    fn a_condition_stays_above_a_limit() {
        let limit = Operator::Limit {
            input: scan("a", &[1]),
            offset: None,
            count: Some(Expression::literal(crate::Value::Int(3), DataType::Int64)),
        };
        assert!(is_of(&narrowed(&Relation::new(limit, 3.0), 1), "Filter"));
    }

    #[test]
    fn every_input_of_a_union_has_the_condition_on_its_own_column() {
        let inputs = vec![(scan("a", &[1]), vec![ColumnId(1)]), (scan("b", &[2]), vec![ColumnId(2)])];
        let union = Operator::UnionAll { inputs, columns: vec![(ColumnId(3), DataType::Int64)] };
        let union = Relation::new(union, 2000.0);
        let lines = narrowed(&union, 3);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.starts_with("Scan")));
    }

    #[test]
    fn the_side_with_fewer_rows_becomes_the_build_side() {
        let narrowed = narrow(&join(JoinKind::Inner), &keys(2), 0.01);
        assert!(matches!(narrowed.operator, Operator::Join { build: JoinSide::Left, .. }));
        assert_eq!(narrowed.estimate.rows, 10.0);
    }
}
