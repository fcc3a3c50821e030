//! Plans made by hand.

use pystachio_plan::{ExchangeChoice, ExchangeTraffic, Function, Value};

use super::*;

fn shape(seed: u64, row_count: usize) -> Shape {
    Shape { seed, row_count, key_count: 400, repeated_percent: 3, null_percent: 5 }
}

fn tables() -> [Table; 2] {
    [Table::made(shape(81, 3000)), Table::made(shape(82, 1500))]
}

/// Whether the rows of a plan have an order.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    InOrder,
    InAny,
}

/// How many ranks, the memory of each, and in which order their devices work.
type RankCase = (usize, u64, Option<u64>);

/// Runs a plan on one rank and on several, with plenty of memory and with little.
fn check_ranks(make: impl Fn() -> Plan, rows: Rows, context: &str) {
    let shapes = [
        (1, PLENTY_BYTES / 4, None),
        (2, PLENTY_BYTES / 4, None),
        (3, PLENTY_BYTES / 4, Some(7)),
        (4, PLENTY_BYTES / 4, None),
        (3, 6 << 20, Some(8)),
    ];
    check_shapes(make, rows, (&shapes, context));
}

/// The same, on so many ranks with so much memory each and in these orders.
fn check_shapes(make: impl Fn() -> Plan, rows: Rows, (shapes, context): (&[RankCase], &str)) {
    let in_order = |answer: Answer| match rows {
        Rows::InOrder => answer.rows,
        Rows::InAny => sorted(answer.rows),
    };
    let expected = in_order(Fixture::new(PLENTY_BYTES).run(make()).unwrap());
    for (rank_count, memory_bytes, seed) in shapes.iter().copied() {
        let context = format!("{context}, ranks {rank_count}, memory {memory_bytes}, seed {seed:?}");
        let shape = RankShape { memory_bytes, seed, ..RankShape::new(rank_count) };
        let answer = RankedFixture::new(shape).run(make());
        let answer = answer.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(is_distributed(&answer), rank_count > 1, "{context}: {:?}", answer.metrics.operators);
        assert_eq!(in_order(answer), expected, "{context}");
    }
}

/// The median, the mode and the count of a table's values.
fn picked(table: &Table, groups: &[(u32, Expression)]) -> Plan {
    let list = DataType::List(Box::new(DataType::Int64));
    let order = vec![SortKey { expression: int64(2), descending: false, nulls_first: false }];
    let array =
        AggregateCall { order, ..aggregate_call(200, Aggregate::Array, Some(int64(2)), list.clone()) };
    let count = aggregate_call(201, Aggregate::Count, Some(int64(2)), DataType::Int64);
    let half = Expression::literal(Value::Float(0.5), DataType::Float64);
    let values = Expression::column(ColumnId(200), list);
    let pick = |id, function, arguments| NamedExpression {
        id: ColumnId(id),
        expression: Expression::call(function, arguments, DataType::Int64),
    };
    let mut expressions = vec![
        pick(300, Function::PercentileDisc, vec![values.clone(), half]),
        pick(301, Function::Mode, vec![values]),
    ];
    let own = groups.iter().map(|(id, _)| *id).chain([201]);
    expressions.extend(own.map(|id| NamedExpression { id: ColumnId(id), expression: int64(id) }));
    let input = aggregated(table.scan(0), groups, vec![array, count], 400.0);
    plan(Relation::new(Operator::Project { input, expressions }, 400.0))
}

#[test]
fn percentiles_and_modes_are_of_the_rows_of_all_ranks() {
    let [table, _] = tables();
    check_ranks(|| picked(&table, &[(100, int64(0))]), Rows::InAny, "by key");
    check_ranks(|| picked(&table, &[]), Rows::InAny, "of all rows");
}

#[test]
fn rows_of_a_table_that_ranks_share_come_once() {
    let [table, _] = tables();
    check_ranks(|| plan(table.scan(0)), Rows::InAny, "scan");
}

#[test]
fn a_query_that_one_rank_answers_sooner_is_not_shared() {
    let [table, _] = tables();
    let ranks = |policy| RankShape { options: RankedOptions::of(policy), ..RankShape::new(2) };
    for (policy, is_shared) in [(RankPolicy::Fastest, false), (RankPolicy::All, true)] {
        let answer = RankedFixture::new(ranks(policy)).run(plan(table.scan(0))).unwrap();
        assert_eq!((answer.rows.len(), is_distributed(&answer)), (3000, is_shared), "{policy:?}");
        assert_eq!(counter(&answer, "rows_sent") > 0, is_shared, "{:?}", answer.metrics.operators);
    }
}

#[test]
fn joins_of_every_kind_meet_their_rows() {
    let [left, right] = tables();
    for kind in JOIN_KINDS {
        for build in [JoinSide::Left, JoinSide::Right] {
            let make = || {
                let sides = [left.scan(0), right.scan(10)];
                plan(joined(kind, sides, &[(int64(0), int64(10))], build))
            };
            let shapes = [(2, PLENTY_BYTES / 4, Some(7)), (3, 6 << 20, None)];
            check_shapes(make, Rows::InAny, (&shapes, &format!("{kind:?}, build {build:?}")));
        }
    }
}

#[test]
fn texts_are_keys_of_joins_and_groups_on_all_ranks() {
    let [left, right] = tables();
    let make = || {
        let few = limited(sorted_by(right.scan(10), &[(int64(13), false)]), 0, 50);
        let both = joined(JoinKind::Inner, [left.scan(0), few], &[(text(1), text(11))], JoinSide::Right);
        let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
        plan(aggregated(both, &[(20, text(1)), (21, int64(0))], vec![count], 500.0))
    };
    check_ranks(make, Rows::InAny, "texts");
}

#[test]
fn aggregates_of_all_rows_of_groups_and_of_different_values() {
    let [table, _] = tables();
    let calls = |distinct: bool| {
        let wide = DataType::Decimal { precision: 38, scale: 0 };
        let calls = vec![
            aggregate_call(30, Aggregate::Count, Some(int64(2)), DataType::Int64),
            aggregate_call(31, Aggregate::Sum, Some(int64(2)), wide),
        ];
        calls.into_iter().map(|call| AggregateCall { distinct, ..call }).collect::<Vec<_>>()
    };
    for distinct in [false, true] {
        for groups in [vec![], vec![(20, int64(0))], vec![(20, text(1)), (21, int64(0))]] {
            for rows in [3.0, 3000.0] {
                let make = || plan(aggregated(table.scan(0), &groups, calls(distinct), rows));
                let shapes = [(2, 6 << 20, Some(7)), (4, PLENTY_BYTES / 4, None)];
                let context = format!("distinct {distinct}, {groups:?}, {rows} rows");
                check_shapes(make, Rows::InAny, (&shapes, &context));
            }
        }
    }
}

#[test]
fn orders_and_first_rows_are_those_of_all_ranks() {
    let [table, _] = tables();
    let keys = [(text(1), true), (int64(3), false)];
    check_ranks(|| plan(sorted_by(table.scan(0), &keys)), Rows::InOrder, "sort");
    let first = || plan(limited(sorted_by(table.scan(0), &keys), 5, 40));
    check_ranks(first, Rows::InOrder, "first rows");
    let counted = || {
        let some = limited(table.scan(0), 10, 200);
        plan(aggregated(some, &[], vec![aggregate_call(30, Aggregate::Count, None, DataType::Int64)], 1.0))
    };
    check_ranks(counted, Rows::InAny, "some rows");
}

/// The second join's filter covers one rank's keys. Below the shuffle of the first join it would
/// drop rows that other ranks need.
#[test]
fn filters_of_one_ranks_keys_stay_where_they_hold() {
    let [left, right] = tables();
    let third = Table::made(shape(83, 600));
    let make = || {
        let is_few = Expression::predicate(
            Function::Less,
            vec![int64(22), Expression::literal(pystachio_plan::Value::Int(0), DataType::Int64)],
        );
        let below = joined(
            JoinKind::Inner,
            [left.scan(0), right.scan(10)],
            &[(int64(0), int64(10))],
            JoinSide::Right,
        );
        let few = third.filtered(20, &[is_few]);
        plan(joined(JoinKind::Inner, [below, few], &[(int64(3), int64(23))], JoinSide::Right))
    };
    check_ranks(make, Rows::InAny, "two joins");
}

/// Both sides of the join are shuffled: one rank's keys of the build side say nothing about the
/// rows that it sends away.
#[test]
fn filters_of_all_ranks_keys_pass_exchanges() {
    let [left, right] = tables();
    let is_few = || {
        let tenth = Expression::literal(pystachio_plan::Value::Int(150), DataType::Int64);
        Expression::predicate(Function::Less, vec![int64(13), tenth])
    };
    let make = || {
        // The plan expects as many rows as there are: too many for every rank to have them.
        let few = right.filtered(10, &[is_few()]);
        let few = Relation::new(few.operator.clone(), 1500.0);
        let both = joined(JoinKind::Inner, [left.scan(0), few], &[(int64(0), int64(10))], JoinSide::Right);
        let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
        plan(aggregated(both, &[(20, int64(3))], vec![count], 3000.0))
    };
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    for (rank_count, seed) in [(4, None), (4, Some(5)), (3, Some(6))] {
        let answer =
            RankedFixture::new(RankShape { seed, ..RankShape::new(rank_count) }).run(make()).unwrap();
        let dropped: u64 = ["bitmap_rows_dropped", "bloom_rows_dropped"]
            .iter()
            .map(|name| answer.metrics.operators.iter().map(|operator| operator.counter(name)).sum::<u64>())
            .sum();
        assert!(dropped > 1000, "{dropped} {:?}", answer.metrics.operators);
        assert_eq!(sorted(answer.rows), expected);
    }
}

/// One side of the upper join needs the rows that the other side needs, in another order, with
/// little room in every buffer.
#[test]
fn ranks_that_read_exchanges_in_different_orders_do_not_wait_for_one_another() {
    let [left, right] = tables();
    let make = || {
        let sides = |first: u32| {
            let sides = [left.scan(first), right.scan(first + 10)];
            joined(JoinKind::Inner, sides, &[(int64(first), int64(first + 10))], JoinSide::Left)
        };
        let grouped = |first: u32| {
            let count = aggregate_call(first + 30, Aggregate::Count, None, DataType::Int64);
            aggregated(sides(first), &[(first + 20, int64(first + 13))], vec![count], 1500.0)
        };
        let keys = [(int64(20), int64(120))];
        plan(joined(JoinKind::Full, [grouped(0), grouped(100)], &keys, JoinSide::Right))
    };
    check_ranks(make, Rows::InAny, "the same twice");
}

/// Joins with large estimates for both sides, over a build side of so many rows.
fn check_choice(build_rows: usize, choice: ExchangeChoice) {
    let (left, right) = (Table::made(shape(81, 3000)), Table::made(shape(82, build_rows)));
    let options = RankedOptions { policy: RankPolicy::All, costs: shuffling_costs() };
    let expecting = |relation: Arc<Relation>, rows| Relation::new(relation.operator.clone(), rows);
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
        let make = || {
            let sides = [expecting(left.scan(0), 20_000.0), expecting(right.scan(10), 40_000.0)];
            let both = joined(kind, sides, &[(int64(0), int64(10))], JoinSide::Right);
            let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
            plan(aggregated(both, &[(20, text(1))], vec![count], 3.0))
        };
        let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
        for (rank_count, memory_bytes, seed) in
            [(2, PLENTY_BYTES / 4, Some(7)), (2, PLENTY_BYTES / 4, None), (3, 6 << 20, Some(3))]
        {
            let context = format!("{kind:?}, ranks {rank_count}, memory {memory_bytes}, seed {seed:?}");
            let shape = RankShape { memory_bytes, seed, options, ..RankShape::new(rank_count) };
            let answer = RankedFixture::new(shape).run(make()).unwrap();
            let exchanges = &answer.metrics.exchanges;
            let stays = |traffic: &ExchangeTraffic| traffic.sent_rows == 0 && traffic.kept_rows > 0;
            let chosen: Vec<_> = exchanges.iter().filter_map(|traffic| traffic.choice).collect();
            assert_eq!(chosen, vec![choice; 2 * rank_count], "{context}");
            let chose_broadcast = choice == ExchangeChoice::Broadcast;
            let of_joins = exchanges.iter().filter(|traffic| traffic.choice.is_some());
            assert_eq!(of_joins.filter(|traffic| stays(traffic)).count() > 0, chose_broadcast, "{context}");
            assert_eq!(sorted(answer.rows), expected, "{context}");
        }
    }
}

#[test]
fn a_build_side_that_turns_out_small_is_broadcast() {
    check_choice(300, ExchangeChoice::Broadcast);
}

#[test]
fn a_build_side_that_is_as_large_as_expected_is_shuffled() {
    check_choice(60_000, ExchangeChoice::Shuffle);
}

#[test]
fn a_build_side_that_one_rank_has_no_rows_of_is_broadcast() {
    check_choice(1, ExchangeChoice::Broadcast);
}

/// Their text lies in pages with the text of many other rows, which are not sent.
#[test]
fn few_rows_of_a_table_with_much_text_are_broadcast() {
    let left = Table::made(shape(81, 3000));
    let long = |row: Row| Row { text: Some(format!("{:0>300}", row.number)), ..row };
    let rows: Vec<Row> = shape(82, 20_000).rows().into_iter().map(long).collect();
    let properties = WriterProperties::builder().set_dictionary_enabled(false);
    let properties = properties.set_max_row_group_row_count(Some(2_500)).build();
    let right = Table::written(std::env::temp_dir(), rows, properties);
    let options = RankedOptions { policy: RankPolicy::All, costs: shuffling_costs() };
    let expecting = |relation: Arc<Relation>, rows| Relation::new(relation.operator.clone(), rows);
    let seventh = Expression::literal(pystachio_plan::Value::Int(7), DataType::Int64);
    let is_few = Expression::predicate(Function::Equal, vec![int64(12), seventh]);
    let make = || {
        let few = right.filtered(10, std::slice::from_ref(&is_few));
        let sides = [expecting(left.scan(0), 20_000.0), expecting(few, 40_000.0)];
        let both = joined(JoinKind::Left, sides, &[(int64(0), int64(10))], JoinSide::Right);
        let count = aggregate_call(30, Aggregate::Count, Some(text(11)), DataType::Int64);
        plan(aggregated(both, &[(20, text(1))], vec![count], 3.0))
    };
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    for seed in [None, Some(5)] {
        let answer =
            RankedFixture::new(RankShape { seed, options, ..RankShape::new(2) }).run(make()).unwrap();
        let chosen: Vec<_> = answer.metrics.exchanges.iter().filter_map(|traffic| traffic.choice).collect();
        assert_eq!(chosen, [ExchangeChoice::Broadcast; 4], "seed {seed:?}: {:?}", answer.metrics.exchanges);
        assert_eq!(sorted(answer.rows), expected, "seed {seed:?}");
    }
}

#[test]
fn a_plan_of_very_many_joins_runs_on_all_ranks() {
    let (left, right) = (Table::made(shape(85, 200)), Table::made(shape(86, 120)));
    let make = || {
        let joins = (1..=70).map(|number| 100 * number);
        let all = joins.fold(left.scan(0), |below, first| {
            let keys = [(int64(0), int64(first))];
            joined(JoinKind::Semi, [below, right.scan(first)], &keys, JoinSide::Right)
        });
        plan(all)
    };
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    assert!(!expected.is_empty());
    let answer = RankedFixture::new(RankShape::new(2)).run(make()).unwrap();
    assert!(is_distributed(&answer), "{:?}", answer.metrics.ranks);
    let exchanges = answer.metrics.exchanges.iter().filter(|traffic| traffic.rank == 0);
    assert!(exchanges.count() > 64);
    assert_eq!(sorted(answer.rows), expected);
}

/// As much memory for each row of a rank's part as two GPUs of 80 GB have for 800 million, a quarter of it for exchanges.
#[test]
fn shuffled_sides_of_a_join_that_fit_are_not_spilled() {
    const ROWS_OF_RANK: usize = 60_000;
    const MEMORY_BYTES: u64 = 180 * ROWS_OF_RANK as u64;
    let (row_count, key_count) = (2 * ROWS_OF_RANK, 40_000);
    let shape = |seed| Shape { seed, row_count, key_count, repeated_percent: 0, null_percent: 2 };
    let (left, right) = (Table::made(shape(83)), Table::made(shape(84)));
    let make = || {
        let sides = [left.scan(0), right.scan(10)];
        let both = joined(JoinKind::Inner, sides, &[(int64(0), int64(10))], JoinSide::Right);
        let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
        let greatest = aggregate_call(31, Aggregate::Max, Some(int64(3)), DataType::Int64);
        plan(aggregated(both, &[], vec![count, greatest], 1.0))
    };
    let expected = Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows;
    let shape = RankShape {
        memory_bytes: MEMORY_BYTES,
        seed: Some(9),
        options: RankedOptions { policy: RankPolicy::All, costs: shuffling_costs() },
        ..RankShape::new(2)
    };
    let answer = RankedFixture::new(shape).run(make()).unwrap();
    let descriptions = answer.metrics.operators.iter().map(|operator| &operator.description);
    assert_eq!(
        descriptions.filter(|text| text.starts_with("Shuffle")).count(),
        2,
        "{:?}",
        answer.metrics.operators
    );
    assert_eq!((answer.metrics.spilled_bytes, counter(&answer, "rows_spilled")), (0, 0), "{answer:?}");
    assert_eq!(answer.rows, expected);
}
