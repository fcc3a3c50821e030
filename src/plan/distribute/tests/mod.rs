//! Tests of distributed plans.
//!
//! - `plans.rs`: hand-made plans, and what EXPLAIN says of them
//! - `levels.rs`: exchanges that are made of two
//! - `rules.rs`: what [`super::Distribution::of`] refuses
//! - `interpreter.rs`: runs a plan over small tables, on one rank or on several
//! - `heavy.rs`: which keys are heavy, and what is refused of them
//! - `generator.rs`: plans at random
//! - `equivalence.rs`: on any number of ranks plans give what they give on one

mod equivalence;
mod generator;
mod heavy;
mod interpreter;
mod levels;
mod plans;
mod rules;

use std::sync::Arc;

use crate::{
    Aggregate, AggregateCall, ColumnContent, ColumnId, DataType, Expression, FileSet, JoinKey, JoinKind,
    JoinSide, NamedExpression, Operator, Relation, ScanColumn, ScanExtent, SortKey, Value,
};

fn typed(id: u32, data_type: DataType) -> Expression {
    Expression::column(ColumnId(id), data_type)
}

fn column(id: u32) -> Expression {
    typed(id, DataType::Int64)
}

fn int(value: i64) -> Expression {
    Expression::literal(Value::Int(value), DataType::Int64)
}

/// A scan of a table whose columns have these ids and types, and names `c0` and so on by their places.
fn scan_typed(table: &str, columns: &[(u32, &str, DataType)], rows: f64) -> Arc<Relation> {
    let column = |(id, name, data_type): &(u32, &str, DataType)| ScanColumn {
        id: ColumnId(*id),
        name: (*name).to_owned(),
        data_type: data_type.clone(),
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: ColumnContent::Column,
        field_id: None,
        within: Vec::new(),
        common: Vec::new(),
    };
    let operator = Operator::Scan {
        table: table.to_owned(),
        files: FileSet::parquet(vec![format!("/{table}")]),
        columns: columns.iter().map(column).collect(),
        filters: Vec::new(),
        extent: ScanExtent::Whole,
    };
    Relation::new(operator, rows)
}

/// A scan of a table with three columns of bigint, with ids from `first` on.
fn scan(table: &str, first: u32, rows: f64) -> Arc<Relation> {
    let columns = ["c0", "c1", "c2"].into_iter().zip(first..);
    let columns: Vec<_> = columns.map(|(name, id)| (id, name, DataType::Int64)).collect();
    scan_typed(table, &columns, rows)
}

fn join_on(kind: JoinKind, sides: [&Arc<Relation>; 2], keys: &[(u32, u32)], rows: f64) -> Arc<Relation> {
    let key = |(left, right): &(u32, u32)| JoinKey { left: column(*left), right: column(*right) };
    let operator = Operator::Join {
        kind,
        left: sides[0].clone(),
        right: sides[1].clone(),
        keys: keys.iter().map(key).collect(),
        residual: None,
        build: JoinSide::Right,
    };
    Relation::new(operator, rows)
}

fn named(id: u32, expression: Expression) -> NamedExpression {
    NamedExpression { id: ColumnId(id), expression }
}

fn call(id: u32, function: Aggregate, argument: Option<Expression>, data_type: DataType) -> AggregateCall {
    AggregateCall {
        id: ColumnId(id),
        function,
        argument,
        distinct: false,
        filter: None,
        data_type,
        order: Vec::new(),
    }
}

fn ascending(expression: Expression) -> SortKey {
    SortKey { expression, descending: false, nulls_first: false }
}
