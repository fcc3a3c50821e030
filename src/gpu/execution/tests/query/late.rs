//! Devices that work late, in seeded orders, and that refuse calls.

use pystachio_cases::Sample;
use pystachio_plan::{
    AggregatePhase, Error, ErrorKind, JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Relation,
    SortKey,
};

use super::*;
use crate::device::Refusal;

/// Orders that every test tries.
const SEEDS: std::ops::Range<u64> = 0..4;
/// Calls of a kind that are refused, one a run, evenly from the first to the last.
const REFUSED: u64 = 10;

fn table() -> Table {
    Table::made(Shape { seed: 81, row_count: 1200, key_count: 300, repeated_percent: 2, null_percent: 5 })
}

/// Joins a table with itself, groups the result, and sorts that by text: all operators that spill,
/// and readers that apply the join's filter.
fn query(table: &Table) -> Plan {
    let joined = Operator::Join {
        kind: JoinKind::Inner,
        left: table.scan(0),
        right: table.scan(4),
        keys: vec![JoinKey { left: int64(0), right: int64(4) }],
        residual: None,
        build: JoinSide::Right,
    };
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    let grouped = Operator::Aggregate {
        input: Relation::new(joined, 1.0),
        groups: vec![
            NamedExpression { id: ColumnId(100), expression: text(1) },
            NamedExpression { id: ColumnId(101), expression: int64(4) },
        ],
        aggregates: vec![
            aggregate_call(201, Aggregate::Count, None, DataType::Int64),
            aggregate_call(202, Aggregate::Sum, Some(int64(7)), wide),
        ],
        phase: AggregatePhase::Whole,
    };
    let ascending = |expression| SortKey { expression, descending: false, nulls_first: false };
    let keys = vec![ascending(text(100)), ascending(int64(101))];
    plan(Relation::new(Operator::Sort { input: Relation::new(grouped, 1.0), keys }, 1.0))
}

/// Memory for all of the data and for a part, each with and without a cache of column chunks.
fn memories(table: &Table) -> [(u64, (u64, u64)); 3] {
    let little = table.bytes() / 2;
    [(PLENTY_BYTES, (PLENTY_BYTES, 0)), (little, (little / 4, little)), (little, (0, 0))]
}

#[test]
fn any_order_of_streams_gives_the_same_rows() {
    let table = table();
    let expected = Fixture::new(PLENTY_BYTES).run(query(&table)).unwrap().rows;
    assert!(expected.len() > 300);
    for seed in Sample::of("any_order_of_streams").take(SEEDS) {
        for (memory_bytes, cache) in memories(&table) {
            let platform = Arc::new(EmulatedPlatform::with_seed(seed));
            let fixture = Fixture::caching(platform, memory_bytes, cache);
            // The second time chunks are there already, or on the host.
            for time in ["first", "second"] {
                let answer = fixture.run(query(&table));
                let answer =
                    answer.unwrap_or_else(|error| panic!("seed {seed}, memory {memory_bytes}: {error}"));
                assert!(
                    answer.rows == expected,
                    "seed {seed}, memory {memory_bytes}, {time} time: other rows"
                );
            }
        }
    }
}

#[test]
fn queries_at_once_do_not_disturb_each_other_in_any_order() {
    let table = table();
    let expected = Fixture::new(PLENTY_BYTES).run(query(&table)).unwrap().rows;
    for seed in Sample::of("queries_at_once_in_any_order").take(SEEDS) {
        let platform = Arc::new(EmulatedPlatform::with_seed(seed));
        let fixture = Fixture::caching(platform, table.bytes(), (table.bytes() / 8, table.bytes()));
        std::thread::scope(|scope| {
            let answers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        fixture.runtime.handle().block_on(async {
                            let started = fixture.engine.run(request(query(&table)), StopFlag::default());
                            let mut stream = started.await?;
                            let mut rows = Vec::new();
                            while let Some(batch) = stream.next_batch().await? {
                                rows.extend(batch_rows(&batch));
                            }
                            Ok::<_, Error>(rows)
                        })
                    })
                })
                .collect();
            for answer in answers {
                let rows = answer.join().unwrap().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                assert!(rows == expected, "seed {seed}: other rows");
            }
        });
    }
}

/// Whichever call is refused, the query reports it or works without; nothing leaks, and the next
/// query is right.
fn check_refusals(kind: Refusal, expected_kinds: &[ErrorKind], make: impl Fn() -> Arc<EmulatedPlatform>) {
    let table = table();
    let expected = Fixture::new(PLENTY_BYTES).run(query(&table)).unwrap().rows;
    let (memory_bytes, cache) = memories(&table)[1];
    let platform = make();
    let fixture = Fixture::caching(platform.clone(), memory_bytes, cache);
    fixture.run(query(&table)).unwrap();
    let calls = platform.count(kind);
    assert!(calls > REFUSED, "{calls} calls of {kind:?}");
    let (mut failed, mut sample) = (0, Sample::of(&format!("a refused {kind:?}")));
    for place in sample.take((0..calls).step_by((calls / REFUSED) as usize)) {
        let platform = make();
        let fixture = Fixture::caching(platform.clone(), memory_bytes, cache);
        platform.refuse(kind, place);
        match fixture.run(query(&table)) {
            Ok(answer) => assert!(answer.rows == expected, "{kind:?} {place}: other rows"),
            Err(error) => {
                assert!(expected_kinds.contains(&error.kind), "{kind:?} {place}: {:?}: {error}", error.kind);
                failed += 1;
            }
        }
        // There may have been fewer calls than the first time.
        platform.refuse(kind, u64::MAX / 2);
        let again = fixture.run(query(&table));
        let again = again.unwrap_or_else(|error| panic!("after {kind:?} {place}: {error}"));
        assert!(again.rows == expected, "after {kind:?} {place}: other rows");
    }
    assert!(!sample.is_whole() || failed > 0 || kind == Refusal::Allocation, "no {kind:?} failed a query");
}

#[test]
fn a_refused_allocation_fails_no_more_than_its_query() {
    check_refusals(Refusal::Allocation, &[ErrorKind::OutOfMemory], || Arc::new(EmulatedPlatform::new()));
    check_refusals(Refusal::Allocation, &[ErrorKind::OutOfMemory], || {
        Arc::new(EmulatedPlatform::with_seed(5))
    });
}

#[test]
fn a_refused_copy_fails_no_more_than_its_query() {
    check_refusals(Refusal::Copy, &[ErrorKind::Internal], || Arc::new(EmulatedPlatform::with_seed(6)));
}
