//! Which keys of a join are heavy, and plans that would partition them to the wrong ranks.

use std::sync::Arc;

use super::{
    super::{
        DistributeRequest, Distributed, Distribution, ExchangeCosts, RankPolicy, RunTimeChoices, ScanFigures,
        distribute, heavy_key_columns, with_common_values,
    },
    column, int, join_on, named, plans, scan, typed,
};
use crate::{
    Aggregate, AggregatePhase, ColumnId, CommonValue, DataType, ExchangeId, ExchangeKind, ExchangeReach,
    Expression, Function, JoinKey, JoinKind, JoinSide, Operator, Plan, Relation, ScanExtent,
    TwoLevelExchange, Value,
};

const LARGE: ScanFigures =
    ScanFigures { row_count: 600_000_000, encoded_bytes: 20 << 30, ranges: Vec::new() };
const ALL: RunTimeChoices = RunTimeChoices { broadcast: true, heavy_keys: true };
/// What no line of EXPLAIN may show.
const SECRET: i64 = 424_242;
const SPLIT: &str = "heavy keys split: ";

/// A scan whose first column has common values.
fn common(relation: &Arc<Relation>, values: &[(Value, f64)]) -> Arc<Relation> {
    let mut relation = relation.clone();
    if let Operator::Scan { columns, .. } = &mut Arc::make_mut(&mut relation).operator {
        let values = values.iter().cloned();
        columns[0].common = values.map(|(value, share)| CommonValue { value, share }).collect();
    }
    relation
}

fn probe(values: &[(Value, f64)]) -> Arc<Relation> {
    common(&scan("t", 1, 6e8), values)
}

fn build() -> Arc<Relation> {
    scan("u", 11, 5e8)
}

/// On four ranks, with a count of all rows above.
fn lines(joined: &Arc<Relation>, choices: RunTimeChoices) -> String {
    distributed(&counted(joined), choices)
}

/// A count of all rows.
fn counted(joined: &Arc<Relation>) -> Arc<Relation> {
    let count = super::call(90, Aggregate::Count, None, DataType::Int64);
    let phase = AggregatePhase::Whole;
    let above =
        Operator::Aggregate { input: joined.clone(), groups: Vec::new(), aggregates: vec![count], phase };
    Relation::new(above, 1.0)
}

fn distributed(root: &Arc<Relation>, choices: RunTimeChoices) -> String {
    plans::text(&on_four_ranks(root, choices))
}

fn on_four_ranks(root: &Arc<Relation>, choices: RunTimeChoices) -> Distributed {
    on_hosts(1, root, choices, TwoLevelExchange::Auto)
}

/// Four ranks on so many hosts.
fn on_hosts(
    hosts: u32,
    root: &Arc<Relation>,
    choices: RunTimeChoices,
    two_level: TwoLevelExchange,
) -> Distributed {
    let costs = ExchangeCosts { ranks: 4, hosts, ..ExchangeCosts::default() };
    let plan = Plan { root: root.clone(), outputs: root.columns().into_iter().map(|(id, _)| id).collect() };
    let scans = vec![LARGE; root.scans().len()];
    let request =
        DistributeRequest { costs: &costs, scans: &scans, policy: RankPolicy::All, choices, two_level };
    distribute(&plan, request).unwrap()
}

/// What EXPLAIN says of the heavy keys of an inner join of these sides.
fn split(probe: &Arc<Relation>, build: &Arc<Relation>) -> usize {
    let lines = lines(&join_on(JoinKind::Inner, [probe, build], &[(1, 11)], 6e8), ALL);
    assert!(lines.contains("Shuffle"), "{lines}");
    lines.matches(SPLIT).count()
}

#[test]
fn rows_of_frequent_keys_stay_and_meet_what_goes_to_all_ranks() {
    let values = [(Value::Int(SECRET), 0.5), (Value::Int(7), 0.1), (Value::Null, 0.2), (Value::Int(8), 0.02)];
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
        let lines = lines(&join_on(kind, [&probe(&values), &build()], &[(1, 11)], 6e8), ALL);
        assert!(lines.contains("or stay if 1 is broadcast; heavy keys split: 3"), "{lines}");
        let copied = format!("or broadcast up to {} bytes; heavy keys split: 2", 256 << 20);
        assert!(lines.contains(&copied), "{lines}");
        assert!(!lines.contains(&SECRET.to_string()), "{lines}");
    }
    // Rows without a key match nothing, so that nothing is copied for them.
    let nulls = join_on(JoinKind::Left, [&probe(&[(Value::Null, 0.6)]), &build()], &[(1, 11)], 6e8);
    let lines = lines(&nulls, ALL);
    assert!(lines.contains("or stay if 1 is broadcast; heavy keys split: 1"), "{lines}");
    assert_eq!(lines.matches(SPLIT).count(), 1, "{lines}");
}

#[test]
fn a_key_is_heavy_if_its_rank_would_have_clearly_more_than_others() {
    let of = |share| split(&probe(&[(Value::Int(SECRET), share)]), &build());
    assert_eq!((of(0.062), of(0.063)), (0, 2));
    for nonsense in [f64::NAN, f64::INFINITY, -0.5, 0.0, 1.5] {
        assert_eq!(of(nonsense), 0, "{nonsense}");
    }
    // Rows that are few in bytes are not worth it.
    let tiny = lines(
        &join_on(
            JoinKind::Left,
            [&common(&scan("t", 1, 6e5), &[(Value::Int(7), 0.5)]), &build()],
            &[(1, 11)],
            6e8,
        ),
        ALL,
    );
    assert!(tiny.contains("Shuffle") && !tiny.contains(SPLIT), "{tiny}");
}

#[test]
fn what_is_copied_is_no_more_than_what_stays() {
    let side = probe(&[(Value::Int(7), 0.5)]);
    let of = |share| {
        let build = common(&build(), &[(Value::Int(7), share), (Value::Int(8), 0.3)]);
        let joined = join_on(JoinKind::Inner, [&side, &build], &[(1, 11)], 6e8);
        lines(&joined, ALL).matches(SPLIT).count()
    };
    // 5e8 × share × 3 copies against 6e8 × 0.5 rows.
    assert_eq!((of(0.19), of(0.21)), (2, 0));
}

/// Seven values of as many rows each, as of a column of a few words.
fn words() -> Vec<(Value, f64)> {
    (0..7).map(|word| (Value::Int(SECRET + word), 1.0 / 7.0)).collect()
}

#[test]
fn a_smaller_side_goes_to_all_ranks_only_where_a_split_would_not_move_less() {
    let small = scan("u", 11, 1e8);
    let joined = |values: &[(Value, f64)]| join_on(JoinKind::Left, [&probe(values), &small], &[(1, 11)], 6e8);
    let is_split = |values: &[(Value, f64)], choices| {
        let lines = lines(&joined(values), choices);
        let is_broadcast = lines.contains("Broadcast 0: the smaller side");
        assert_ne!(is_broadcast, lines.contains(SPLIT), "{lines}");
        !is_broadcast
    };
    assert!(is_split(&words(), ALL));
    assert!(!is_split(&words(), RunTimeChoices { heavy_keys: false, ..ALL }));
    assert!(!is_split(&[], ALL));
    // So it is worth knowing which values are frequent, but of a side that is soon sent.
    let unknown = |small: &Arc<Relation>| {
        let joined = join_on(JoinKind::Left, [&probe(&[]), small], &[(1, 11)], 6e8);
        on_four_ranks(&counted(&joined), ALL).unknown_keys
    };
    assert_eq!(unknown(&small), [ColumnId(1), ColumnId(11)].into());
    assert!(unknown(&scan("u", 11, 1e5)).is_empty());
    // Ranks tell how much they are expected to move.
    let moved = |values: &[(Value, f64)]| on_four_ranks(&counted(&joined(values)), ALL).exchanged_bytes();
    assert!(moved(&words()) < moved(&[]) / 2.0, "{} and {}", moved(&words()), moved(&[]));
}

#[test]
fn where_shuffles_have_two_levels_by_order_nothing_is_split() {
    let joined = counted(&join_on(JoinKind::Inner, [&probe(&words()), &build()], &[(1, 11)], 6e8));
    let lines = |hosts, two_level| plans::text(&on_hosts(hosts, &joined, ALL, two_level));
    let two = lines(2, TwoLevelExchange::On);
    assert!(!two.contains(SPLIT) && two.contains("within hosts"), "{two}");
    for (hosts, two_level) in
        [(2, TwoLevelExchange::Off), (1, TwoLevelExchange::On), (4, TwoLevelExchange::On)]
    {
        assert!(lines(hosts, two_level).contains(SPLIT), "{hosts} hosts, {two_level:?}");
    }
}

#[test]
fn what_most_rows_have_makes_a_shuffle_of_all_of_them_slower() {
    let without = RunTimeChoices { heavy_keys: false, ..ALL };
    let is_shuffled = |share| {
        let sides = [&probe(&[(Value::Int(SECRET), share)]), &build()];
        lines(&join_on(JoinKind::Inner, sides, &[(1, 11)], 6e8), without).contains("Shuffle 0")
    };
    assert!(is_shuffled(0.05) && !is_shuffled(0.9));
    // Groups meet after partial results, of which a value has few.
    let grouped = |share| {
        let input = probe(&[(Value::Int(SECRET), share)]);
        let groups = vec![named(30, column(1))];
        let aggregates = vec![super::call(31, Aggregate::Count, None, DataType::Int64)];
        let phase = AggregatePhase::Whole;
        distributed(&Relation::new(Operator::Aggregate { input, groups, aggregates, phase }, 5e8), ALL)
    };
    let (even, skewed) = (grouped(0.05), grouped(0.9));
    assert!(even.contains("about as many groups as rows"), "{even}");
    assert!(skewed.contains("partial results of a group meet"), "{skewed}");
}

#[test]
fn keys_are_traced_to_the_column_of_a_table() {
    let side = probe(&[(Value::Int(SECRET), 0.5)]);
    let is_few = Expression::predicate(Function::Less, vec![column(2), int(9)]);
    let filtered = Relation::new(Operator::Filter { input: side.clone(), predicate: is_few }, 6e8);
    assert_eq!(split(&filtered, &build()), 2);
    let renamed = |expression| {
        let expressions = vec![named(31, expression), named(2, column(2))];
        let projected = Relation::new(Operator::Project { input: filtered.clone(), expressions }, 6e8);
        let joined = join_on(JoinKind::Inner, [&projected, &build()], &[(31, 11)], 6e8);
        lines(&joined, ALL).matches(SPLIT).count()
    };
    assert_eq!(renamed(column(1)), 2);
    let sum = Expression::call(Function::Add, vec![column(1), int(1)], DataType::Int64);
    assert_eq!(renamed(sum), 0);
    // The probe side of a join below, which is partitioned by another key.
    let below = join_on(JoinKind::Left, [&side, &scan("v", 21, 5e8)], &[(2, 21)], 6e8);
    let above = lines(&join_on(JoinKind::Inner, [&below, &build()], &[(1, 11)], 6e8), ALL);
    assert_eq!(above.matches(SPLIT).count(), 2, "{above}");
    // Groups are no rows of their values.
    let groups = vec![named(1, column(1))];
    let aggregates = Vec::new();
    let phase = AggregatePhase::Whole;
    let grouped = Operator::Aggregate { input: side, groups, aggregates, phase };
    let above = join_on(JoinKind::Inner, [&Relation::new(grouped, 6e8), &build()], &[(1, 11)], 6e8);
    assert!(!lines(&above, ALL).contains(SPLIT));
}

#[test]
fn values_are_those_of_the_type_in_which_both_sides_are_partitioned() {
    let narrow = super::scan_typed("t", &[(1, "c0", DataType::Int32)], 6e8);
    let narrow = common(&narrow, &[(Value::Int(SECRET), 0.5)]);
    let joined = |right: DataType| {
        let build = super::scan_typed("u", &[(11, "c0", right.clone())], 5e8);
        let keys = vec![JoinKey { left: typed(1, DataType::Int32), right: typed(11, right) }];
        let (kind, residual) = (JoinKind::Inner, None);
        let (left, right) = (narrow.clone(), build);
        let build = JoinSide::Right;
        Relation::new(Operator::Join { kind, left, right, keys, residual, build }, 6e8)
    };
    for right in [DataType::Int64, DataType::Decimal { precision: 12, scale: 2 }] {
        let root = joined(right);
        assert_eq!(lines(&root, ALL).matches(SPLIT).count(), 2);
        assert_eq!(heavy_key_columns(&root), [1, 11].map(ColumnId).into());
    }
    // No value of a plan has so many digits.
    let wide = DataType::Decimal { precision: 40, scale: 2 };
    assert_eq!(lines(&joined(wide), ALL).matches(SPLIT).count(), 0);
}

#[test]
fn where_it_would_be_wrong_or_is_not_wanted_no_key_is_heavy() {
    let side = probe(&[(Value::Int(7), 0.5)]);
    let join = |kind, keys: &[(u32, u32)], build_side| {
        let mut joined = join_on(kind, [&side, &build()], keys, 6e8);
        if let Operator::Join { build, .. } = &mut Arc::make_mut(&mut joined).operator {
            *build = build_side;
        }
        joined
    };
    let inner = join(JoinKind::Inner, &[(1, 11)], JoinSide::Right);
    assert!(lines(&inner, ALL).contains(SPLIT));
    for joined in [
        join(JoinKind::Full, &[(1, 11)], JoinSide::Right),
        // The frequent values are the build side's.
        join(JoinKind::Inner, &[(1, 11)], JoinSide::Left),
        join(JoinKind::Left, &[(1, 11)], JoinSide::Left),
        join(JoinKind::Inner, &[(1, 11), (2, 12)], JoinSide::Right),
    ] {
        let lines = lines(&joined, ALL);
        assert!(!lines.contains(SPLIT), "{lines}");
    }
    // What is grouped by the key meets anew.
    let groups = vec![named(30, column(1))];
    let aggregates = vec![super::call(31, Aggregate::Count, None, DataType::Int64)];
    let phase = AggregatePhase::Whole;
    let grouped = Operator::Aggregate { input: inner.clone(), groups, aggregates, phase };
    let grouped = distributed(&Relation::new(grouped, 1e8), ALL);
    let meets = grouped.find("Shuffle 2 by c0: partial results of a group meet");
    assert!(meets < grouped.find(SPLIT) && meets.is_some(), "{grouped}");
    // Either choice can be done without.
    let one_less = RunTimeChoices { heavy_keys: false, ..ALL };
    let without = lines(&inner, one_less);
    assert!(!without.contains(SPLIT), "{without}");
    // Where no key is so frequent that a shuffle of all rows is slower.
    let even = lines(&join_on(JoinKind::Inner, [&probe(&[]), &build()], &[(1, 11)], 6e8), one_less);
    assert!(!even.contains(SPLIT) && even.contains("or broadcast up to"), "{even}");
    let alone = lines(&inner, RunTimeChoices { broadcast: false, ..ALL });
    assert!(alone.contains("or broadcast up to 0 bytes; heavy keys split: 1"), "{alone}");
}

#[test]
fn sides_that_do_not_agree_which_keys_are_heavy_do_not_meet() {
    let partitioned = |relation: Arc<Relation>| {
        let mut relation = relation;
        if let Operator::Scan { extent, .. } = &mut Arc::make_mut(&mut relation).operator {
            *extent = ScanExtent::Partitioned;
        }
        relation
    };
    let exchange = |input: Arc<Relation>, id, kind| {
        Relation::new(
            Operator::Exchange {
                input: partitioned(input),
                id: ExchangeId(id),
                kind,
                reach: ExchangeReach::All,
            },
            6e8,
        )
    };
    let of = |kind, stay: (&[u32], &[Value]), all: (&[u32], &[Value])| {
        let keys = |ids: &[u32]| ids.iter().map(|id| column(*id)).collect::<Vec<_>>();
        let kinds = [
            ExchangeKind::HashOrStay { keys: keys(stay.0), partner: ExchangeId(1), heavy: stay.1.to_vec() },
            ExchangeKind::HashOrBroadcast { keys: keys(all.0), bytes_max: 1, heavy: all.1.to_vec() },
        ];
        let [stay, all] = kinds;
        let sides = [&exchange(probe(&[]), 0, stay), &exchange(build(), 1, all)];
        Distribution::of(&join_on(kind, sides, &[(1, 11), (2, 12)], 6e8))
    };
    let (seven, null) = (Value::Int(7), Value::Null);
    let both = [seven.clone(), null.clone()];
    let right = Ok(Distribution::Arbitrary);
    assert_eq!(of(JoinKind::Left, (&[1], &both[..1]), (&[11], &both[..1])), right);
    assert_eq!(of(JoinKind::Left, (&[1], &both), (&[11], &both[..1])), right);
    assert_eq!(of(JoinKind::Left, (&[1], &[null]), (&[11], &[])), right);
    assert!(of(JoinKind::Left, (&[1], &[]), (&[11], &both[..1])).is_err());
    assert!(of(JoinKind::Left, (&[1], &both), (&[11], &[])).is_err());
    assert!(of(JoinKind::Left, (&[1], &[Value::Int(8)]), (&[11], &[seven])).is_err());
    assert!(of(JoinKind::Left, (&[1, 2], &both), (&[11, 12], &both)).is_err());
    assert!(of(JoinKind::Full, (&[1], &both), (&[11], &both[..1])).is_err());
}

#[test]
fn columns_of_which_nothing_is_known_are_told_where_it_would_be_worth_knowing() {
    let unknown = |probe: &Arc<Relation>, build: &Arc<Relation>, choices| {
        let root = join_on(JoinKind::Left, [probe, build], &[(1, 11)], 6e8);
        let told = on_four_ranks(&counted(&root), choices).unknown_keys;
        told.into_iter().map(|ColumnId(id)| id).collect::<Vec<_>>()
    };
    let known = |relation: &Arc<Relation>| common(relation, &[(Value::Int(SECRET), 0.5)]);
    let (plain, none) = (probe(&[]), Vec::<u32>::new());
    assert_eq!(unknown(&plain, &build(), ALL), [1, 11]);
    assert_eq!(unknown(&known(&plain), &build(), ALL), [11]);
    assert_eq!(unknown(&known(&plain), &known(&build()), ALL), none);
    assert_eq!(unknown(&plain, &build(), RunTimeChoices { heavy_keys: false, ..ALL }), none);
    // Nothing that few rows have is heavy, and no floating-point number.
    assert_eq!(unknown(&scan("t", 1, 1e5), &build(), ALL), none);
    let float = |table, id| super::scan_typed(table, &[(id, "c0", DataType::Float64)], 6e8);
    let keys = vec![JoinKey { left: typed(1, DataType::Float64), right: typed(11, DataType::Float64) }];
    let (left, right) = (float("t", 1), float("u", 11));
    let (kind, residual, build) = (JoinKind::Inner, None, JoinSide::Right);
    let joined = Operator::Join { kind, left, right, keys, residual, build };
    assert!(on_four_ranks(&counted(&Relation::new(joined, 6e8)), ALL).unknown_keys.is_empty());
}

#[test]
fn values_that_somebody_has_counted_are_the_scan_s() {
    let root = join_on(JoinKind::Left, [&probe(&[]), &build()], &[(1, 11)], 6e8);
    let mut asked = Vec::new();
    let told = with_common_values(&root, &[ColumnId(1), ColumnId(2)].into(), &mut |_, column| {
        asked.push(column.id);
        vec![CommonValue {
            value: Value::Int(SECRET),
            share: if column.id == ColumnId(1) { 0.5 } else { 0.0 },
        }]
    });
    assert_eq!(asked, [ColumnId(1), ColumnId(2)]);
    assert!(lines(&told, ALL).contains("heavy keys split: 1"));
    assert_eq!(on_four_ranks(&counted(&told), ALL).unknown_keys, [ColumnId(11)].into());
}
