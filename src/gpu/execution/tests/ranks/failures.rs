//! Ranks that fail, are stopped or slow, and rows that are no longer wanted.

use pystachio_plan::{ErrorKind, Function, Value};

use super::*;
use crate::exchange::{
    Rank,
    faulty::{Fault, FaultPoint, FaultyCommunicator},
};

fn table() -> Table {
    Table::made(Shape { seed: 91, row_count: 4000, key_count: 500, repeated_percent: 0, null_percent: 0 })
}

fn number(value: i64) -> Expression {
    Expression::literal(Value::Int(value), DataType::Int64)
}

/// A sum of quotients that fails at one row, which one rank alone has.
fn failing(table: &Table, at: i64) -> Plan {
    let difference = Expression::call(Function::Subtract, vec![int64(3), number(at)], DataType::Int64);
    let quotient = Expression::call(Function::Divide, vec![number(1000), difference], DataType::Int64);
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    let sum = aggregate_call(30, Aggregate::Sum, Some(quotient), wide);
    plan(aggregated(table.scan(0), &[(20, int64(0))], vec![sum], 500.0))
}

#[test]
fn what_one_rank_finds_wrong_is_the_querys_error_and_the_next_query_runs() {
    let table = table();
    for rank_count in [2, 3] {
        let ranks = RankedFixture::new(RankShape { seed: Some(5), ..RankShape::new(rank_count) });
        let alone = Fixture::new(PLENTY_BYTES);
        for at in [0, 61, 125, 3999] {
            let expected = alone.run(failing(&table, at)).unwrap_err();
            assert_eq!(expected.kind, ErrorKind::DivisionByZero);
            assert_eq!(ranks.run(failing(&table, at)).unwrap_err(), expected, "row {at}");
            // No row fails.
            let rows = sorted(ranks.run(failing(&table, 5000)).unwrap().rows);
            assert_eq!(rows, sorted(alone.run(failing(&table, 5000)).unwrap().rows));
        }
    }
}

#[test]
fn a_query_that_is_stopped_ends_on_all_ranks() {
    let table = table();
    let ranks = RankedFixture::new(RankShape { seed: Some(6), ..RankShape::new(3) });
    let pairs = || {
        let sides = [table.scan(0), table.scan(10)];
        let less = Expression::predicate(Function::Less, vec![int64(2), int64(12)]);
        let mut join = joined(JoinKind::Inner, sides, &[], JoinSide::Right);
        if let Operator::Join { residual, .. } = &mut Arc::make_mut(&mut join).operator {
            *residual = Some(less);
        }
        let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
        plan(aggregated(join, &[(20, int64(0))], vec![count], 500.0))
    };
    for looks in [0, 1, 20] {
        let stop = StopFlag::default();
        let stopping = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                (0..looks * 10_000).for_each(|_| std::thread::yield_now());
                stop.stop();
            })
        };
        let result = ranks.run_until(pairs(), stop);
        stopping.join().unwrap();
        if let Err(error) = result {
            assert_eq!(error.kind, ErrorKind::Cancelled, "{error}");
        }
    }
    // All memory of the other ranks is free again.
    let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
    let answer = ranks.run(plan(aggregated(table.scan(0), &[], vec![count], 1.0))).unwrap();
    assert_eq!(answer.rows, [["4000"]]);
    assert!(is_distributed(&answer));
}

/// A network in which one rank has a fault at some round.
fn with_fault(
    rank_count: usize,
    of: Rank,
    fault: (FaultPoint, u64, Fault),
    silence_max: Duration,
) -> RankedFixture {
    let idle_interval = Duration::from_millis(20);
    let network = NetworkOptions { silence_max, idle_interval, ..NetworkOptions::default() };
    RankedFixture::over_network(RankShape::new(rank_count), network, |communicator| {
        let faults = if communicator.rank() == of { vec![fault] } else { Vec::new() };
        Box::new(FaultyCommunicator::new(communicator, faults))
    })
}

#[test]
fn a_rank_that_dies_ends_the_query_by_its_name_and_rank_0_goes_on_alone() {
    let table = table();
    let points = [FaultPoint::BeforeGather, FaultPoint::AfterGather, FaultPoint::AmidTransfers];
    let mut failed_count = 0;
    for (point, after) in points.iter().flat_map(|point| [0, 3, 9].map(|after| (*point, after))) {
        let silence = Duration::from_secs(30);
        let ranks = with_fault(3, Rank(1), (point, after, Fault::Death), silence);
        for _ in 0..2 {
            match ranks.run(plan(sorted_by(table.scan(0), &[(int64(3), false)]))) {
                Ok(answer) => assert_eq!(answer.rows.len(), 4000),
                Err(error) => {
                    failed_count += 1;
                    let message = error.message.as_str();
                    assert!(message.contains("rank 1"), "{:?}: {message}", error.kind);
                }
            }
        }
        // Whatever its outcome.
        while let Err(error) = ranks.run(plan(table.scan(0))) {
            assert!(error.message.contains("rank 1"), "{point:?} {after}: {error}");
        }
    }
    assert!(failed_count > 0, "no rank died while a query ran");
}

#[test]
fn a_slow_rank_is_waited_for_and_a_silent_one_is_not() {
    let table = table();
    let slow = (FaultPoint::BeforeTransfers, 0, Fault::Delay(3000));
    let ranks = with_fault(3, Rank(2), slow, Duration::from_secs(60));
    let rows = sorted(ranks.run(plan(table.scan(0))).unwrap().rows);
    assert_eq!(rows, sorted(Fixture::new(PLENTY_BYTES).run(plan(table.scan(0))).unwrap().rows));
    let silent = (FaultPoint::BeforeTransfers, 0, Fault::Silence);
    let ranks = with_fault(3, Rank(2), silent, Duration::from_secs(10));
    let error = ranks.run(plan(table.scan(0))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Peer, "{error}");
    // Another rank may be late too.
    let names_it = ["rank 2", "ranks 0, 2", "ranks 1, 2"].iter().any(|name| error.message.contains(name));
    assert!(names_it, "{error}");
}

#[test]
fn rows_that_came_before_they_are_wanted_are_spilled_where_there_is_no_room() {
    let shape =
        |seed| Shape { seed, row_count: 30_000, key_count: 20_000, repeated_percent: 0, null_percent: 2 };
    let (left, right) = (Table::made(shape(95)), Table::made(shape(96)));
    let make = || {
        let keys = [(int64(0), int64(10))];
        plan(joined(JoinKind::Full, [left.scan(0), right.scan(10)], &keys, JoinSide::Right))
    };
    let ranks = RankedFixture::new(RankShape { memory_bytes: 3 << 20, ..RankShape::new(2) });
    let answer = ranks.run(make()).unwrap();
    assert!(is_distributed(&answer));
    assert!(counter(&answer, "rows_spilled") > 0, "{:?}", answer.metrics.operators);
    assert_eq!(sorted(answer.rows), sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows));
}

#[test]
fn a_stream_that_is_dropped_stops_all_ranks() {
    let table = table();
    let ranks = RankedFixture::new(RankShape::new(2));
    for _ in 0..8 {
        ranks.runtime.block_on(async {
            let mut stream =
                ranks.engine.run(request(plan(table.scan(0))), StopFlag::default()).await.unwrap();
            stream.next_batch().await.unwrap().unwrap();
        });
    }
    assert_eq!(ranks.run(plan(table.scan(0))).unwrap().rows.len(), 4000);
}

#[test]
fn a_rank_that_has_no_kernel_or_memory_for_a_plan_leaves_it_to_one() {
    let table = table();
    let longest = "x".repeat(200_000);
    let mut rows = table.rows.clone();
    // Rows that are larger than a block, one on a rank that is to send it.
    rows[100].text = Some(longest.clone());
    rows[3900].text = Some(longest.clone());
    let table = Table::new(rows);
    let ranks = RankedFixture::new(RankShape { memory_bytes: 16 << 20, ..RankShape::new(2) });
    let answer = ranks.run(plan(sorted_by(table.scan(0), &[(int64(3), false)]))).unwrap();
    assert_eq!(answer.rows.len(), 4000);
    assert_eq!(answer.rows[100][1], longest);
    assert!(!is_distributed(&answer));
}

#[test]
fn rows_that_a_limit_does_not_want_are_not_waited_for() {
    let table = table();
    for seed in 0..6 {
        let ranks = RankedFixture::new(RankShape { seed: Some(seed), ..RankShape::new(3) });
        for count in [0, 1, 70] {
            let answer = ranks.run(plan(limited(table.scan(0), 0, count))).unwrap();
            assert_eq!(answer.rows.len(), count as usize, "seed {seed}");
        }
        let keys = [(int64(0), int64(10))];
        let semi = joined(JoinKind::Semi, [table.scan(0), table.scan(10)], &keys, JoinSide::Right);
        assert_eq!(ranks.run(plan(limited(semi, 3, 5))).unwrap().rows.len(), 5, "seed {seed}");
    }
}

#[test]
fn queries_side_by_side_on_all_ranks_have_their_own_rows() {
    let table = table();
    let ranks = RankedFixture::as_hosted(RankShape { memory_bytes: 32 << 20, ..RankShape::new(2) });
    let grouped = |id: u32| {
        let count = aggregate_call(30, Aggregate::Count, None, DataType::Int64);
        plan(aggregated(table.scan(0), &[(20, int64(id))], vec![count], 4000.0))
    };
    let expected: Vec<_> =
        [0, 2, 3].map(|id| sorted(Fixture::new(PLENTY_BYTES).run(grouped(id)).unwrap().rows)).into();
    // More than there is memory for at once.
    std::thread::scope(|scope| {
        for place in 0..9 {
            let (ranks, grouped, expected) = (&ranks, &grouped, &expected);
            scope.spawn(move || {
                let plan = grouped([0, 2, 3][place % 3]);
                let answer = ranks.answer(request(plan), StopFlag::default()).unwrap();
                assert_eq!(sorted(answer.rows), expected[place % 3], "query {place}");
            });
        }
    });
}
