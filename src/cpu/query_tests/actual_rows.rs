//! Actual rows against what each operator gives when it runs as a plan of its own.

use super::*;
use pystachio_plan::{ActualRows, JoinKey, JoinKind, JoinSide, SortKey};

/// Three tables of 900, 40 and no rows: `k` with NULLs, and `v`.
fn tables(fixture: &Fixture) -> [Arc<Relation>; 3] {
    let table = |name: &str, first: u32, rows: i64, groups: i64| {
        let keys: Vec<_> = (0..rows).map(|row| (row % 11 != 3).then_some(row % groups)).collect();
        let values: Vec<_> = (0..rows).map(Some).collect();
        let path = fixture.write(name, vec![("k", int64s(&keys)), ("v", int64s(&values))], 100);
        let columns =
            vec![scan_column(first, "k", DataType::Int64), scan_column(first + 1, "v", DataType::Int64)];
        let files = FileSet::parquet(vec![path.to_str().unwrap().to_owned()]);
        Relation::new(
            Operator::Scan {
                table: name.to_owned(),
                files,
                columns,
                filters: Vec::new(),
                extent: ScanExtent::Whole,
            },
            rows as f64,
        )
    };
    [table("a", 1, 900, 60), table("b", 3, 40, 30), table("empty", 5, 0, 1)]
}

fn join(kind: JoinKind, build: JoinSide, left: &Arc<Relation>, right: &Arc<Relation>) -> Arc<Relation> {
    let key = |side: &Arc<Relation>| column(side.columns()[0].0.0);
    let keys = vec![JoinKey { left: key(left), right: key(right) }];
    let (left, right) = (left.clone(), right.clone());
    Relation::new(Operator::Join { kind, left, right, keys, residual: None, build }, 100.0)
}

fn filter(input: &Arc<Relation>, predicate: Expression) -> Arc<Relation> {
    Relation::new(Operator::Filter { input: input.clone(), predicate }, 10.0)
}

fn sort(input: &Arc<Relation>, id: u32) -> Arc<Relation> {
    let keys = vec![SortKey { expression: column(id), descending: true, nulls_first: true }];
    Relation::new(Operator::Sort { input: input.clone(), keys }, 10.0)
}

fn limit(input: &Arc<Relation>, count: i64, offset: i64) -> Arc<Relation> {
    let (offset, count) = ((offset > 0).then(|| int(offset)), Some(int(count)));
    Relation::new(Operator::Limit { input: input.clone(), offset, count }, 5.0)
}

fn aggregate(input: &Arc<Relation>, groups: &[u32], calls: Vec<AggregateCall>) -> Arc<Relation> {
    let groups = groups.iter().map(|id| named(*id, column(*id))).collect();
    Relation::new(
        Operator::Aggregate { input: input.clone(), groups, aggregates: calls, phase: AggregatePhase::Whole },
        10.0,
    )
}

fn preorder(relation: &Arc<Relation>, found: &mut Vec<Arc<Relation>>) {
    found.push(relation.clone());
    relation.inputs().into_iter().for_each(|input| preorder(input, found));
}

/// Runs the plan; every count must be that of the operator alone, or less where it says so.
async fn checked(fixture: &Fixture, root: &Arc<Relation>) -> Vec<Option<ActualRows>> {
    let run = async |relation: &Arc<Relation>| {
        let ids: Vec<u32> = relation.columns().iter().map(|(id, _)| id.0).collect();
        fixture.run(relation.clone(), &ids).await.unwrap()
    };
    let metrics = run(root).await.metrics;
    let found = metrics.actual_rows;
    let operators: Vec<_> = metrics
        .operators
        .iter()
        .map(|operator| {
            format!(
                "{}{} {:?}",
                "  ".repeat(operator.depth as usize),
                operator.description,
                operator.row_count
            )
        })
        .collect();
    let operators = operators.join("\n");
    let mut relations = Vec::new();
    preorder(root, &mut relations);
    assert_eq!(found.len(), relations.len());
    for (relation, actual) in relations.iter().zip(&found) {
        let Some(actual) = actual else { continue };
        let alone = run(relation).await.rows.len() as u64;
        let is_right = if actual.is_reduced { actual.row_count <= alone } else { actual.row_count == alone };
        assert!(is_right, "{actual:?} of {alone} rows of {relation:?} in\n{operators}");
    }
    assert!(found[0].is_some_and(|rows| !rows.is_reduced), "no rows of the root: {operators}");
    found
}

#[tokio::test]
async fn every_operator_of_a_plain_tree_is_counted() {
    let fixture = Fixture::new();
    let [a, b, _] = tables(&fixture);
    let joined = join(JoinKind::Inner, JoinSide::Right, &a, &b);
    let count = call(10, Aggregate::Count, None, DataType::Int64);
    let grouped = aggregate(&joined, &[1], vec![count]);
    let having = filter(&grouped, compare(Function::Greater, column(10), int(10)));
    let found = checked(&fixture, &sort(&having, 10)).await;
    assert!(found.iter().all(Option::is_some), "{found:?}");
    let reduced: Vec<_> = found.iter().flatten().map(|rows| rows.is_reduced).collect();
    // Only the probe side's scan knows of the build side's keys.
    assert_eq!(reduced, [false, false, false, false, true, false]);
}

#[tokio::test]
async fn joins_of_every_kind_are_counted() {
    let fixture = Fixture::new();
    let [a, b, empty] = tables(&fixture);
    let kinds = [
        JoinKind::Inner,
        JoinKind::Left,
        JoinKind::Full,
        JoinKind::Semi,
        JoinKind::Anti,
        JoinKind::NullAwareAnti,
    ];
    for kind in kinds {
        for build in [JoinSide::Left, JoinSide::Right] {
            for (left, right) in [(&a, &b), (&b, &a), (&a, &empty), (&empty, &a)] {
                let found = checked(&fixture, &join(kind, build, left, right)).await;
                assert!(found.iter().all(Option::is_some), "{kind:?} {build:?} {found:?}");
            }
            let renamed = rename(&b, 20);
            let inner = join(kind, build, &a, &b);
            for other in [JoinSide::Left, JoinSide::Right] {
                checked(&fixture, &join(JoinKind::Inner, other, &inner, &renamed)).await;
                checked(&fixture, &join(kind, other, &renamed, &inner)).await;
            }
        }
    }
}

/// The same rows under other ids.
fn rename(relation: &Arc<Relation>, first: u32) -> Arc<Relation> {
    let columns = relation.columns();
    let expressions = (first..).zip(&columns).map(|(id, (own, _))| named(id, column(own.0))).collect();
    Relation::new(Operator::Project { input: relation.clone(), expressions }, relation.estimate.rows)
}

#[tokio::test]
async fn limits_do_not_make_counts_wrong() {
    // Which rows a limit leaves without an order differs with the operators.
    let fixture = Fixture::with_memory(1 << 30, 64 << 20);
    let [a, b, _] = tables(&fixture);
    let joined = join(JoinKind::Left, JoinSide::Right, &a, &b);
    let grouped = aggregate(&joined, &[2], vec![call(10, Aggregate::Max, Some(column(1)), DataType::Int64)]);
    for input in [&a, &joined, &grouped] {
        let id = input.columns()[0].0.0;
        for (count, offset) in [(7, 0), (7, 5), (5000, 3)] {
            for root in [
                limit(input, count, offset),
                limit(&sort(input, id), count, offset),
                sort(&limit(input, count, 0), id),
                sort(&limit(&sort(input, id), 4, 0), input.columns()[1].0.0),
                limit(&limit(&sort(input, id), 20, 1), 7, 2),
                sort(&sort(&limit(input, 10, 0), id), id),
                join(JoinKind::Inner, JoinSide::Left, &limit(&sort(input, id), 9, 0), &rename(&b, 30)),
            ] {
                checked(&fixture, &root).await;
            }
        }
    }
}

#[tokio::test]
async fn aggregates_are_counted_however_they_are_answered() {
    // Which rows a limit leaves without an order differs with the operators.
    let fixture = Fixture::with_memory(1 << 30, 64 << 20);
    let [a, _, empty] = tables(&fixture);
    let distinct = |id, argument| AggregateCall {
        distinct: true,
        ..call(id, Aggregate::Count, Some(column(argument)), DataType::Int64)
    };
    let max = call(11, Aggregate::Max, Some(column(2)), DataType::Int64);
    for input in [&a, &filter(&a, compare(Function::Less, column(2), int(300)))] {
        for groups in [&[][..], &[1][..]] {
            for calls in [vec![distinct(10, 2)], vec![distinct(10, 2), max.clone()], vec![max.clone()]] {
                let root = aggregate(input, groups, calls);
                checked(&fixture, &root).await;
                let twice = aggregate(&root, &[root.columns()[0].0.0], Vec::new());
                checked(&fixture, &limit(&twice, 3, 0)).await;
            }
        }
    }
    checked(&fixture, &aggregate(&a, &[1, 2], Vec::new())).await;
    checked(&fixture, &aggregate(&empty, &[5], Vec::new())).await;
}

#[tokio::test]
async fn filters_that_move_are_not_counted_where_they_were() {
    let fixture = Fixture::new();
    let [a, b, _] = tables(&fixture);
    let joined = join(JoinKind::Left, JoinSide::Right, &a, &b);
    let grouped = aggregate(&joined, &[1], vec![call(10, Aggregate::Max, Some(column(4)), DataType::Int64)]);
    let of_group = compare(Function::Less, column(1), int(20));
    let of_result = compare(Function::Greater, column(10), int(12));
    for predicate in [
        of_group.clone(),
        of_result.clone(),
        Expression::predicate(Function::And, vec![of_group.clone(), of_result.clone()]),
    ] {
        let kept = filter(&grouped, predicate);
        // The root's own count may be the one that is missing.
        let root = sort(&kept, 1);
        checked(&fixture, &root).await;
        checked(&fixture, &sort(&filter(&filter(&grouped, of_result.clone()), of_group.clone()), 1)).await;
        checked(&fixture, &join(JoinKind::Semi, JoinSide::Right, &kept, &rename(&b, 40))).await;
    }
}

#[tokio::test]
async fn unions_are_counted_by_member() {
    let fixture = Fixture::new();
    let [a, b, _] = tables(&fixture);
    let member = |relation: &Arc<Relation>| {
        (relation.clone(), relation.columns().iter().map(|(id, _)| *id).collect::<Vec<_>>())
    };
    let columns = vec![(ColumnId(50), DataType::Int64), (ColumnId(51), DataType::Int64)];
    let union = Relation::new(Operator::UnionAll { inputs: vec![member(&a), member(&b)], columns }, 940.0);
    let found = checked(&fixture, &sort(&union, 51)).await;
    assert!(found.iter().all(Option::is_some), "{found:?}");
    checked(&fixture, &limit(&sort(&union, 51), 5, 0)).await;
    checked(&fixture, &filter(&sort(&union, 51), compare(Function::Less, column(51), int(9)))).await;
    checked(&fixture, &aggregate(&union, &[50], Vec::new())).await;
    checked(&fixture, &join(JoinKind::Inner, JoinSide::Right, &union, &rename(&b, 60))).await;
}
