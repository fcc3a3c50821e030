use super::*;
use crate::{
    Aggregate, AggregateCall, AggregatePhase, DataType, Expression, FileSet, Function, JoinKey, JoinKind,
    JoinSide, NamedExpression, RepeatedParts, Value, WindowFrame, WindowFunction,
};

fn column(id: u32) -> Expression {
    Expression::column(ColumnId(id), DataType::Int64)
}

/// Columns of table t, by their ids and names, where column `a` is greater than a number.
fn scan(columns: &[(u32, &str)], above: i64) -> Arc<Relation> {
    let of = |(id, name): &(u32, &str)| ScanColumn {
        id: ColumnId(*id),
        name: (*name).to_owned(),
        field_id: None,
        within: Vec::new(),
        data_type: DataType::Int64,
        not_null: false,
        length_max: None,
        trim_blanks: false,
        content: Default::default(),
        common: Vec::new(),
    };
    let limit = Expression::literal(Value::Int(above), DataType::Int64);
    let first = columns.iter().find(|(_, name)| *name == "a").map_or(0, |(id, _)| *id);
    let operator = Operator::Scan {
        table: "t".to_owned(),
        files: FileSet::parquet(vec!["t".to_owned()]),
        columns: columns.iter().map(of).collect(),
        filters: vec![Expression::call(Function::Greater, vec![column(first), limit], DataType::Bool)],
        extent: ScanExtent::Whole,
    };
    Relation::new(operator, 1000.0)
}

fn named(id: u32, of: u32) -> NamedExpression {
    NamedExpression { id: ColumnId(id), expression: column(of) }
}

fn aggregate(input: Arc<Relation>, group: (u32, u32), calls: &[(u32, Aggregate, u32)]) -> Arc<Relation> {
    let call = |(id, function, of): &(u32, Aggregate, u32)| AggregateCall {
        id: ColumnId(*id),
        function: *function,
        argument: Some(column(*of)),
        distinct: false,
        filter: None,
        data_type: DataType::Int64,
        order: Vec::new(),
    };
    let operator = Operator::Aggregate {
        input,
        groups: vec![named(group.0, group.1)],
        aggregates: calls.iter().map(call).collect(),
        phase: AggregatePhase::Whole,
    };
    Relation::new(operator, 100.0)
}

fn project(input: Arc<Relation>, expressions: &[(u32, u32)]) -> Arc<Relation> {
    let expressions = expressions.iter().map(|(id, of)| named(*id, *of)).collect();
    Relation::new(Operator::Project { input, expressions }, 100.0)
}

fn window(input: Arc<Relation>, partition: u32, calls: &[(u32, WindowFunction)]) -> Arc<Relation> {
    let call = |(id, function): &(u32, WindowFunction)| WindowCall {
        id: ColumnId(*id),
        function: *function,
        argument: None,
        frame: WindowFrame::whole(),
        data_type: DataType::Int64,
    };
    let operator = Operator::Window {
        input,
        partition: vec![column(partition)],
        order: Vec::new(),
        calls: calls.iter().map(call).collect(),
    };
    Relation::new(operator, 100.0)
}

fn join(left: Arc<Relation>, right: Arc<Relation>, keys: (u32, u32)) -> Arc<Relation> {
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left,
        right,
        keys: vec![JoinKey { left: column(keys.0), right: column(keys.1) }],
        residual: None,
        build: JoinSide::Right,
    };
    Relation::new(operator, 100.0)
}

/// The tree, and the two sides of the join at its root.
fn changed(root: &Arc<Relation>) -> (Arc<Relation>, Arc<Relation>, Arc<Relation>) {
    let mut next = 1000;
    let mut next_column = || {
        next += 1;
        ColumnId(next)
    };
    let plan = Plan { root: root.clone(), outputs: Vec::new() };
    let root = with_equal_parts(&plan, &mut next_column).root;
    let Operator::Join { left, right, .. } = &root.operator else { panic!("no join") };
    let (left, right) = (left.clone(), right.clone());
    (root, left, right)
}

/// The ids that columns had are those that they have, and no id is defined twice.
#[track_caller]
fn assert_keeps_columns(before: &Relation, after: &Relation) {
    let ids: Vec<ColumnId> = after.columns().into_iter().map(|(id, _)| id).collect();
    for (id, _) in before.columns() {
        assert!(ids.contains(&id), "{id:?} is lost");
    }
    let mut defined = Vec::new();
    note_scanned(after, &mut defined);
    let count = defined.len();
    defined.sort_unstable();
    defined.dedup();
    assert_eq!(defined.len(), count);
}

fn note_scanned(relation: &Relation, defined: &mut Vec<ColumnId>) {
    if let Operator::Scan { columns, .. } = &relation.operator {
        defined.extend(columns.iter().map(|column| column.id));
    }
    relation.inputs().into_iter().for_each(|input| note_scanned(input, defined));
}

#[track_caller]
fn assert_shared(root: &Relation, parts: &[&Relation]) {
    let found = RepeatedParts::of(root, |_| true);
    let groups: Vec<Option<usize>> = parts.iter().map(|part| found.group(part)).collect();
    assert!(groups[0].is_some() && groups.iter().all(|group| *group == groups[0]), "{groups:?}");
}

#[test]
fn aggregates_of_other_columns_become_one() {
    let one = aggregate(scan(&[(1, "a"), (2, "x")], 0), (3, 1), &[(4, Aggregate::Max, 2)]);
    let other = aggregate(
        scan(&[(11, "y"), (12, "a")], 0),
        (13, 12),
        &[(14, Aggregate::Min, 11), (15, Aggregate::Max, 11)],
    );
    let before = join(one, other, (3, 13));
    let (root, left, right) = changed(&before);
    assert_shared(&root, &[&left, &right]);
    assert_keeps_columns(&before, &root);
    assert_eq!((left.columns().len(), right.columns().len()), (4, 4));
}

#[test]
fn other_conditions_and_other_groups_stay_apart() {
    let one = || aggregate(scan(&[(1, "a"), (2, "x")], 0), (3, 1), &[(4, Aggregate::Max, 2)]);
    for other in [
        aggregate(scan(&[(11, "a"), (12, "y")], 7), (13, 11), &[(14, Aggregate::Max, 12)]),
        aggregate(scan(&[(11, "a"), (12, "y")], 0), (13, 12), &[(14, Aggregate::Max, 12)]),
    ] {
        let before = join(one(), other, (3, 13));
        assert_eq!(changed(&before).0, before);
    }
}

#[test]
fn windows_and_what_is_between_become_one() {
    let of = |from: u32, x: &str, calls: &[(u32, WindowFunction)]| {
        let scan = scan(&[(from, "a"), (from + 1, x)], 0);
        let groups = aggregate(scan, (from + 2, from), &[(from + 3, Aggregate::Max, from + 1)]);
        // One column passes through as itself.
        let input = project(groups, &[(from + 2, from + 2), (from + 4, from + 3)]);
        window(input, from + 2, calls)
    };
    let one = of(10, "x", &[(18, WindowFunction::Rank)]);
    let other = of(20, "y", &[(28, WindowFunction::RowNumber), (29, WindowFunction::Rank)]);
    let before = join(one, other, (12, 22));
    let (root, left, right) = changed(&before);
    assert_shared(&root, &[&left, &right]);
    assert_keeps_columns(&before, &root);
}

#[test]
fn two_columns_of_one_value_keep_two_ids() {
    let one = aggregate(scan(&[(1, "a"), (2, "x")], 0), (3, 1), &[(4, Aggregate::Max, 2)]);
    let other = aggregate(
        scan(&[(11, "a"), (12, "x")], 0),
        (13, 11),
        &[(14, Aggregate::Max, 12), (15, Aggregate::Max, 12)],
    );
    let before = join(one, other, (3, 13));
    let (root, left, right) = changed(&before);
    assert_shared(&root, &[&left, &right]);
    assert_keeps_columns(&before, &root);
}

/// What was alike before stays alike where a part around it gets columns.
#[test]
fn inner_parts_are_made_one_first() {
    let inner = |from: u32, calls: &[(u32, Aggregate, u32)]| {
        aggregate(scan(&[(from, "a"), (from + 1, "x")], 0), (from + 2, from), calls)
    };
    let outer = |from: u32, function| {
        let below = inner(from, &[(from + 3, Aggregate::Max, from + 1)]);
        aggregate(below, (from + 4, from + 3), &[(from + 5, function, from + 2)])
    };
    let third = inner(30, &[(33, Aggregate::Min, 31)]);
    let before = join(join(outer(0, Aggregate::Max), outer(10, Aggregate::Min), (4, 14)), third, (4, 32));
    let (root, left, third) = changed(&before);
    let Operator::Join { left: one, right: other, .. } = &left.operator else { panic!("no join") };
    assert_shared(&root, &[one, other]);
    assert_shared(&root, &[one.inputs()[0], other.inputs()[0], &third]);
    assert_keeps_columns(&before, &root);
}

#[test]
fn joins_below_parts_are_compared() {
    let of = |from: u32, x: &str, calls: &[(u32, Aggregate, u32)]| {
        let left = scan(&[(from, "a"), (from + 1, x)], 0);
        let right = scan(&[(from + 2, "a"), (from + 3, "z")], 5);
        aggregate(join(left, right, (from, from + 2)), (from + 4, from + 3), calls)
    };
    let before =
        join(of(0, "x", &[(5, Aggregate::Max, 1)]), of(10, "y", &[(15, Aggregate::Max, 11)]), (4, 14));
    let (root, left, right) = changed(&before);
    assert_shared(&root, &[&left, &right]);
    assert_keeps_columns(&before, &root);
}
