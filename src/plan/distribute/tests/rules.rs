//! What is refused, because rows would be lost, multiplied or missed; and that the interpreter sees that they would.

use std::sync::Arc;

use super::{
    super::{Distribution, FilterScope, filter_scope},
    column, int,
    interpreter::{Random, Ranks, Row, Tables},
    join_on, named, scan, typed,
};
use crate::{
    AggregatePhase, ColumnId, DataType, ErrorKind, ExchangeId, ExchangeKind, ExchangeReach, Expression,
    Function, JoinKind, NamedExpression, Operator, Partitioning, Relation, Result, ScanExtent,
};

fn partitioned(table: &str, first: u32) -> Arc<Relation> {
    let mut relation = scan(table, first, 100.0);
    if let Operator::Scan { extent, .. } = &mut Arc::make_mut(&mut relation).operator {
        *extent = ScanExtent::Partitioned;
    }
    relation
}

fn exchange(input: &Arc<Relation>, kind: ExchangeKind) -> Arc<Relation> {
    exchange_of(input, kind, ExchangeReach::All)
}

fn exchange_of(input: &Arc<Relation>, kind: ExchangeKind, reach: ExchangeReach) -> Arc<Relation> {
    Relation::new(Operator::Exchange { input: input.clone(), id: ExchangeId(0), kind, reach }, 100.0)
}

fn shuffle(input: &Arc<Relation>, key: u32) -> Arc<Relation> {
    exchange(input, ExchangeKind::Hash { keys: vec![column(key)] })
}

fn broadcast(input: &Arc<Relation>) -> Arc<Relation> {
    exchange(input, ExchangeKind::Broadcast)
}

fn gather(input: &Arc<Relation>) -> Arc<Relation> {
    exchange(input, ExchangeKind::Gather)
}

fn aggregate(input: &Arc<Relation>, groups: Vec<NamedExpression>, phase: AggregatePhase) -> Arc<Relation> {
    let input = input.clone();
    Relation::new(Operator::Aggregate { input, groups, aggregates: Vec::new(), phase }, 10.0)
}

fn is_refused(relation: &Relation) -> bool {
    matches!(Distribution::of(relation), Err(error) if error.kind == ErrorKind::Internal)
}

fn hashed(ids: &[&[u32]]) -> Result<Distribution> {
    let key = |ids: &&[u32]| ids.iter().map(|id| column(*id)).collect();
    Ok(Distribution::Partitioned { keys: ids.iter().map(key).collect(), by: Partitioning::Hash })
}

/// The rows that rank 0 has of a relation, of a table `a` whose rows are assigned to both of two ranks and `b` whose are not.
fn rows_on_two_ranks(relation: &Relation) -> Vec<Row> {
    let row = |value: i128| vec![Some(value); 3];
    let rows = (0..4).map(|value| (value as usize, row(value))).collect();
    let tables = Tables::from([("a".to_owned(), rows), ("b".to_owned(), vec![(0, row(0)), (1, row(1))])]);
    let mut ranks = Ranks {
        count: 2,
        hosts: 1,
        tables: &tables,
        parameters: &[],
        random: Random(1),
        choices: 1,
        is_checked: false,
    };
    let mut rows =
        ranks.run(&gather(&Arc::new(relation.clone()))).expect("it runs, if wrongly").swap_remove(0);
    rows.sort();
    rows
}

#[test]
fn a_preserved_side_is_not_broadcast() {
    let (left, right) = (partitioned("a", 1), partitioned("b", 11));
    for (kind, expected) in [
        (JoinKind::Left, 4),
        (JoinKind::Full, 4),
        (JoinKind::Semi, 2),
        (JoinKind::Anti, 2),
        (JoinKind::NullAwareAnti, 2),
    ] {
        let join =
            |left: &Arc<Relation>, right: &Arc<Relation>| join_on(kind, [left, right], &[(1, 11)], 4.0);
        let wrong = join(&broadcast(&left), &right);
        assert!(is_refused(&wrong), "{kind:?}");
        if kind != JoinKind::Semi {
            // Rows without a match on one rank have one on the other.
            assert_ne!(rows_on_two_ranks(&wrong).len(), expected, "{kind:?}");
        }
        let right_way = match kind {
            JoinKind::Full => join(&shuffle(&left, 1), &shuffle(&right, 11)),
            _ => join(&left, &broadcast(&right)),
        };
        assert!(!is_refused(&right_way));
        assert_eq!(rows_on_two_ranks(&right_way).len(), expected, "{kind:?}");
    }
    // Of an inner join no side is preserved.
    assert!(!is_refused(&join_on(JoinKind::Inner, [&broadcast(&left), &right], &[(1, 11)], 4.0)));
}

#[test]
fn a_full_join_has_neither_side_on_every_rank() {
    let (left, right) = (partitioned("a", 1), partitioned("b", 11));
    let wrong = join_on(JoinKind::Full, [&left, &broadcast(&right)], &[(1, 11)], 4.0);
    assert!(is_refused(&wrong));
    let both = join_on(JoinKind::Full, [&broadcast(&left), &broadcast(&right)], &[(1, 11)], 4.0);
    assert_eq!(Distribution::of(&both), Ok(Distribution::Replicated));
    let gathered = join_on(JoinKind::Full, [&gather(&left), &gather(&right)], &[], 4.0);
    assert_eq!(Distribution::of(&gathered), Ok(Distribution::Single));
}

#[test]
fn not_in_needs_its_whole_list() {
    let (left, right) = (partitioned("a", 1), partitioned("b", 11));
    let sides = [&shuffle(&left, 1), &shuffle(&right, 11)];
    assert!(is_refused(&join_on(JoinKind::NullAwareAnti, sides, &[(1, 11)], 4.0)));
    assert!(!is_refused(&join_on(JoinKind::Anti, sides, &[(1, 11)], 4.0)));
}

#[test]
fn sides_that_are_partitioned_by_other_keys_do_not_meet() {
    let (left, right) = (partitioned("a", 1), partitioned("b", 11));
    let join = |left: &Arc<Relation>, right: &Arc<Relation>| {
        join_on(JoinKind::Inner, [left, right], &[(1, 11), (2, 12)], 4.0)
    };
    assert!(is_refused(&join(&left, &right)));
    assert!(is_refused(&join(&shuffle(&left, 1), &shuffle(&right, 12))));
    assert!(is_refused(&join(&shuffle(&left, 3), &shuffle(&right, 13))));
    // Rows with equal keys have one of them equal.
    assert_eq!(Distribution::of(&join(&shuffle(&left, 2), &shuffle(&right, 12))), hashed(&[&[2, 12]]));
    let both = |input: &Arc<Relation>, keys: [u32; 2]| {
        exchange(input, ExchangeKind::Hash { keys: keys.map(column).to_vec() })
    };
    assert!(is_refused(&join(&both(&left, [1, 2]), &both(&right, [12, 11]))));
    assert!(!is_refused(&join(&both(&left, [2, 1]), &both(&right, [12, 11]))));
}

#[test]
fn keys_of_the_side_without_a_match_tell_nothing() {
    let (left, right) = (shuffle(&partitioned("a", 1), 1), shuffle(&partitioned("b", 11), 11));
    let of = |kind| Distribution::of(&join_on(kind, [&left, &right], &[(1, 11)], 4.0));
    assert_eq!(of(JoinKind::Inner), hashed(&[&[1, 11]]));
    assert_eq!(of(JoinKind::Left), hashed(&[&[1]]));
    assert_eq!(of(JoinKind::Semi), hashed(&[&[1]]));
    let merged = Expression::call(Function::Coalesce, vec![column(1), column(11)], DataType::Int64);
    let merged = Distribution::Partitioned { keys: vec![vec![merged]], by: Partitioning::Hash };
    assert_eq!(of(JoinKind::Full), Ok(merged));
}

#[test]
fn what_equals_a_key_of_an_inner_join_is_one() {
    let left = shuffle(&partitioned("a", 1), 1);
    let right = broadcast(&partitioned("b", 11));
    let of = |kind| Distribution::of(&join_on(kind, [&left, &right], &[(1, 11)], 4.0));
    assert_eq!(of(JoinKind::Inner), hashed(&[&[1, 11]]));
    assert_eq!(of(JoinKind::Left), hashed(&[&[1]]));
}

#[test]
fn projections_rename_keys_or_lose_them() {
    let input = shuffle(&partitioned("a", 1), 1);
    let of = |expressions| {
        Distribution::of(&Relation::new(Operator::Project { input: input.clone(), expressions }, 1.0))
    };
    assert_eq!(of(vec![named(9, column(1)), named(2, column(2))]), hashed(&[&[9]]));
    assert_eq!(of(vec![named(2, column(2))]), Ok(Distribution::Arbitrary));
    let sum = Expression::call(Function::Add, vec![column(1), int(1)], DataType::Int64);
    assert_eq!(of(vec![named(9, sum)]), Ok(Distribution::Arbitrary));
}

#[test]
fn groups_meet_if_rows_are_partitioned_by_some_of_them() {
    let by = |ids: &[u32]| ids.iter().map(|id| named(*id, column(*id))).collect::<Vec<_>>();
    let scan = partitioned("a", 1);
    let of = |input: &Arc<Relation>, ids: &[u32]| {
        Distribution::of(&aggregate(input, by(ids), AggregatePhase::Whole))
    };
    assert_eq!(of(&shuffle(&scan, 1), &[1, 2]), hashed(&[&[1]]));
    assert!(of(&shuffle(&scan, 1), &[2]).is_err());
    assert!(of(&scan, &[1]).is_err());
    assert_eq!(of(&gather(&scan), &[1]), Ok(Distribution::Single));
    assert_eq!(of(&broadcast(&scan), &[1]), Ok(Distribution::Replicated));
}

#[test]
fn functions_of_groups_that_print_differently_do_not_partition_them() {
    // -0 and 0 are one group of two texts.
    let data_type = DataType::Float64;
    let float = typed(1, data_type.clone());
    let input = super::scan_typed("a", &[(1, "c0", data_type)], 1.0);
    let mut input = input;
    if let Operator::Scan { extent, .. } = &mut Arc::make_mut(&mut input).operator {
        *extent = ScanExtent::Partitioned;
    }
    let text = Expression::call(Function::Cast, vec![float.clone()], DataType::Text);
    let by = |key: Expression| exchange(&input, ExchangeKind::Hash { keys: vec![key] });
    let grouped =
        |input: &Arc<Relation>| aggregate(input, vec![named(9, float.clone())], AggregatePhase::Whole);
    assert!(is_refused(&grouped(&by(text))));
    assert!(!is_refused(&grouped(&by(float.clone()))));
}

#[test]
fn an_aggregate_without_groups_is_one_row_of_all_ranks() {
    let scan = partitioned("a", 1);
    let of = |input: &Arc<Relation>, phase| Distribution::of(&aggregate(input, Vec::new(), phase));
    for phase in [AggregatePhase::Whole, AggregatePhase::Final] {
        // Ranks without rows would have a row too.
        assert!(of(&gather(&scan), phase).is_err());
        assert!(of(&scan, phase).is_err());
        assert_eq!(of(&broadcast(&scan), phase), Ok(Distribution::Replicated));
    }
    assert_eq!(of(&scan, AggregatePhase::Partial), Ok(Distribution::Arbitrary));
}

#[test]
fn rows_of_every_rank_are_not_multiplied() {
    let all = broadcast(&partitioned("a", 1));
    assert!(is_refused(&gather(&all)));
    assert!(is_refused(&shuffle(&all, 1)));
    assert!(is_refused(&broadcast(&all)));
    let own = |keys| Distribution::of(&exchange(&all, ExchangeKind::Own { keys }));
    assert_eq!(own(Vec::new()), Ok(Distribution::Single));
    assert_eq!(own(vec![column(1)]), hashed(&[&[1]]));
    assert!(is_refused(&exchange(&partitioned("a", 1), ExchangeKind::Own { keys: Vec::new() })));
    let union = |inputs: [&Arc<Relation>; 2]| {
        let inputs = inputs.map(|input| (input.clone(), vec![ColumnId(1)])).to_vec();
        let columns = vec![(ColumnId(9), DataType::Int64)];
        Distribution::of(&Relation::new(Operator::UnionAll { inputs, columns }, 1.0))
    };
    assert!(union([&all, &partitioned("a", 1)]).is_err());
    assert_eq!(union([&all, &all]), Ok(Distribution::Replicated));
    let shuffled = shuffle(&partitioned("a", 1), 1);
    assert_eq!(union([&shuffled, &shuffled]), hashed(&[&[9]]));
    assert_eq!(union([&shuffled, &gather(&partitioned("a", 1))]), Ok(Distribution::Arbitrary));
}

#[test]
fn ranks_do_not_choose_rows_for_themselves() {
    let limit = |input| Relation::new(Operator::Limit { input, offset: None, count: Some(int(3)) }, 3.0);
    assert!(is_refused(&limit(broadcast(&partitioned("a", 1)))));
    assert_eq!(Distribution::of(&limit(gather(&partitioned("a", 1)))), Ok(Distribution::Single));
}

#[test]
fn rows_are_not_partitioned_by_values_that_are_equal_in_many_forms() {
    let keys = vec![typed(1, DataType::Interval)];
    assert!(is_refused(&exchange(&partitioned("a", 1), ExchangeKind::Hash { keys })));
    assert!(is_refused(&exchange(&partitioned("a", 1), ExchangeKind::Hash { keys: Vec::new() })));
}

#[test]
fn a_share_of_a_filter_stops_where_rows_change_ranks() {
    let scan = partitioned("a", 1);
    assert_eq!(filter_scope(&broadcast(&scan)), Ok(FilterScope::Complete));
    let moving = [
        ExchangeKind::Hash { keys: vec![column(1)] },
        ExchangeKind::Broadcast,
        ExchangeKind::Gather,
        ExchangeKind::Merge { keys: Vec::new() },
    ];
    for build in [scan.clone(), shuffle(&scan, 1), gather(&scan)] {
        let scope = filter_scope(&build).unwrap();
        assert_eq!(scope, FilterScope::Share);
        assert!(moving.iter().all(|kind| !scope.passes(kind) && FilterScope::Complete.passes(kind)));
        assert!(scope.passes(&ExchangeKind::Own { keys: vec![column(1)] }));
    }
}

#[test]
fn of_two_levels_the_second_follows_the_first_of_its_kind_and_nothing_else_does() {
    let scan = partitioned("a", 1);
    let between = |kind| exchange_of(&scan, kind, ExchangeReach::BetweenHosts);
    let within = |input: &Arc<Relation>, kind| exchange_of(input, kind, ExchangeReach::WithinHost);
    let hash = |key| ExchangeKind::Hash { keys: vec![column(key)] };
    let merge = || ExchangeKind::Merge { keys: vec![super::ascending(column(1))] };
    for kind in [hash(1), ExchangeKind::Broadcast, ExchangeKind::Gather, merge()] {
        let first = between(kind.clone());
        assert_eq!(Distribution::of(&first), Ok(Distribution::Halfway(kind.clone())));
        assert_eq!(
            Distribution::of(&within(&first, kind.clone())),
            Distribution::of(&exchange(&scan, kind.clone()))
        );
        assert_eq!(filter_scope(&first), Ok(FilterScope::Share));
        // Neither twice, nor the second alone, nor another one after the first.
        assert!(is_refused(&exchange_of(&first, kind.clone(), ExchangeReach::BetweenHosts)), "{kind:?}");
        assert!(is_refused(&within(&scan, kind.clone())), "{kind:?}");
        assert!(is_refused(&exchange(&first, kind.clone())), "{kind:?}");
        for other in [hash(2), hash(1), ExchangeKind::Broadcast, ExchangeKind::Gather, merge()] {
            assert_eq!(is_refused(&within(&first, other.clone())), other != kind, "{kind:?}, {other:?}");
        }
        // No operator may be between them.
        let filtered = Relation::new(Operator::Filter { input: first.clone(), predicate: int(1) }, 1.0);
        let named = vec![named(9, column(1))];
        let projected =
            Relation::new(Operator::Project { input: first.clone(), expressions: named.clone() }, 1.0);
        let grouped = aggregate(&first, named, AggregatePhase::Partial);
        let all = broadcast(&partitioned("b", 11));
        let joins = [[&first, &all], [&all, &first], [&first, &first]];
        let joins = joins.map(|sides| join_on(JoinKind::Inner, sides, &[(1, 11)], 4.0));
        for above in [filtered, projected, grouped].into_iter().chain(joins) {
            assert!(is_refused(&above), "{:?}", above.operator);
        }
    }
    let all = broadcast(&scan);
    let two_of =
        |kind: ExchangeKind| within(&exchange_of(&all, kind.clone(), ExchangeReach::BetweenHosts), kind);
    assert!(
        is_refused(&two_of(ExchangeKind::Gather))
            && is_refused(&two_of(ExchangeKind::Own { keys: Vec::new() }))
    );
    let chosen = ExchangeKind::HashOrBroadcast { keys: vec![column(1)], bytes_max: 1, heavy: Vec::new() };
    assert!(is_refused(&between(chosen)));
}
