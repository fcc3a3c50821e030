//! Build sides that drivers of their own read: in parallel, to their end or not, successful or not.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    thread::ThreadId,
    time::{Duration, Instant},
};

use pystachio_cases::Sample;
use pystachio_engine::ResultStream;
use pystachio_plan::{
    AggregatePhase, Error, ErrorKind, Function, JoinKey, JoinSide, Literal, NamedExpression, SortKey, Value,
};

use super::{
    watched::{Calls, is_build_thread, is_query_thread},
    *,
};
use crate::execution::join::RUNNING_MAX;

/// The work of one thread on the emulated device while others wait for it.
const HANG: Duration = Duration::from_secs(300);
/// Orders that every test tries.
const SEEDS: std::ops::Range<u64> = 0..4;

fn table(seed: u64, row_count: usize) -> Table {
    Table::made(Shape { seed, row_count, key_count: 300, repeated_percent: 2, null_percent: 5 })
}

/// A join of which the right side is hashed.
fn joined(left: Arc<Relation>, right: Arc<Relation>, keys: (u32, u32)) -> Arc<Relation> {
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left,
        right,
        keys: vec![JoinKey { left: int64(keys.0), right: int64(keys.1) }],
        residual: None,
        build: JoinSide::Right,
    };
    Relation::new(operator, 1.0)
}

/// A table joined by its key with the numbers of `build_count` others, one join above the other.
fn star(probe: &Table, build: &Table, build_count: u32) -> Arc<Relation> {
    let joins = (1..=build_count).map(|place| 100 * place);
    joins.fold(probe.scan(0), |left, first| joined(left, build.scan(first), (0, first + 3)))
}

/// Column 3 by key, in order.
fn grouped(input: Arc<Relation>) -> Plan {
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    let operator = Operator::Aggregate {
        input,
        groups: vec![NamedExpression { id: ColumnId(9000), expression: int64(0) }],
        aggregates: vec![
            aggregate_call(9001, Aggregate::Count, None, DataType::Int64),
            aggregate_call(9002, Aggregate::Sum, Some(int64(3)), wide),
        ],
        phase: AggregatePhase::Whole,
    };
    let keys = vec![SortKey { expression: int64(9000), descending: false, nulls_first: false }];
    plan(Relation::new(Operator::Sort { input: Relation::new(operator, 1.0), keys }, 1.0))
}

fn one_by_one() -> DeviceSettings {
    DeviceSettings { concurrent_builds: false, ..DeviceSettings::default() }
}

fn failure() -> Error {
    Error::new(ErrorKind::InvalidArgument, "a build side that can't be read")
}

/// Waits for an event of other threads; fails if it does not come.
fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > HANG {
            return Err(Error::internal(format!("waited in vain for {what}")));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Threads that meet: each of them waits at its first call until there are enough.
#[derive(Default)]
struct Meeting {
    come: Mutex<BTreeSet<String>>,
    /// The most that were there at once.
    most: AtomicU64,
    inside: AtomicU64,
}

impl Meeting {
    fn come(&self, wanted: usize) -> Result<()> {
        let thread = |id: ThreadId| format!("{id:?}");
        let mut come = self.come.lock().unwrap();
        if !come.insert(thread(std::thread::current().id())) {
            return Ok(());
        }
        // Under the lock: the threads before this one see it only when it counts as inside.
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        drop(come);
        let met = wait_until("other build sides", || self.count() >= wanted);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        met
    }

    fn count(&self) -> usize {
        self.come.lock().unwrap().len()
    }
}

#[test]
fn build_sides_are_read_beside_one_another() {
    let (probe, build) = (table(201, 600), table(202, 240));
    let expected =
        Fixture::new(PLENTY_BYTES).run_with(grouped(star(&probe, &build, 2)), one_by_one()).unwrap();
    assert!(!expected.rows.is_empty());
    let meeting = Arc::new(Meeting::default());
    let met = meeting.clone();
    let platform = Watched::new(move |_| if is_build_thread() { met.come(2) } else { Ok(()) });
    let answer = Fixture::over(platform, PLENTY_BYTES).run(grouped(star(&probe, &build, 2))).unwrap();
    assert_eq!(answer.rows, expected.rows);
    assert_eq!(meeting.count(), 2);
}

#[test]
fn no_more_build_sides_are_read_at_once_than_there_may_be() {
    let (probe, build) = (table(203, 600), table(204, 240));
    let root = || grouped(star(&probe, &build, RUNNING_MAX as u32 + 3));
    let expected = Fixture::new(PLENTY_BYTES).run_with(root(), one_by_one()).unwrap();
    let meeting = Arc::new(Meeting::default());
    let met = meeting.clone();
    let platform = Watched::new(move |_| if is_build_thread() { met.come(RUNNING_MAX) } else { Ok(()) });
    let answer = Fixture::over(platform, PLENTY_BYTES).run(root()).unwrap();
    assert_eq!(answer.rows, expected.rows);
    assert_eq!(meeting.most.load(Ordering::SeqCst), RUNNING_MAX as u64);
}

#[test]
fn a_query_that_does_without_has_one_driver() {
    let (probe, build) = (table(205, 600), table(206, 240));
    let platform = Watched::new(|_| if is_build_thread() { Err(failure()) } else { Ok(()) });
    let fixture = Fixture::over(platform, PLENTY_BYTES);
    assert!(!fixture.run_with(grouped(star(&probe, &build, 2)), one_by_one()).unwrap().rows.is_empty());
    let error = fixture.run(grouped(star(&probe, &build, 2))).unwrap_err();
    assert_eq!((error.kind, error.message), (failure().kind, failure().message));
}

/// The rows of a table, and then those of joins of another one, of which some rows are wanted.
fn unequal(first: Arc<Relation>, second: Arc<Relation>, row_count: Option<i64>) -> Plan {
    let ids =
        |relation: &Relation| relation.columns().into_iter().take(4).map(|(id, _)| id).collect::<Vec<_>>();
    let columns =
        [(7000, DataType::Int64), (7001, DataType::Text), (7002, DataType::Int64), (7003, DataType::Int64)];
    let inputs = vec![(first.clone(), ids(&first)), (second.clone(), ids(&second))];
    let columns = columns.map(|(id, data_type)| (ColumnId(id), data_type)).to_vec();
    let union = Relation::new(Operator::UnionAll { inputs, columns }, 1.0);
    let Some(row_count) = row_count else { return plan(union) };
    let count = Some(Expression::Literal(Literal::new(Value::Int(row_count), DataType::Int64)));
    plan(Relation::new(Operator::Limit { input: union, offset: None, count }, 1.0))
}

/// A table's columns, of which the driver computes one: a LIMIT above has no row before a launch of its driver.
fn computed(table: &Table) -> Arc<Relation> {
    let scan = table.scan(5000);
    let columns = scan.columns().into_iter().take(4);
    let expressions = columns.map(|(id, data_type)| NamedExpression {
        id: ColumnId(id.0 + 1000),
        expression: match id.0 {
            5000 => {
                let one = Expression::literal(Value::Int(1), DataType::Int64);
                Expression::call(Function::Add, vec![int64(5000), one], DataType::Int64)
            }
            _ => Expression::column(id, data_type),
        },
    });
    Relation::new(Operator::Project { expressions: expressions.collect(), input: scan }, 1.0)
}

#[test]
fn a_build_side_that_is_not_asked_for_fails_no_query() {
    let (probe, build) = (table(207, 600), table(208, 240));
    let has_failed = Arc::new(AtomicBool::new(false));
    let told = has_failed.clone();
    let platform = Watched::new(move |_| {
        if is_build_thread() {
            told.store(true, Ordering::SeqCst);
            return Err(failure());
        }
        // The limit has no row before.
        if is_query_thread() {
            wait_until("a build side to fail", || told.load(Ordering::SeqCst))?;
        }
        Ok(())
    });
    let fixture = Fixture::over(platform, PLENTY_BYTES);
    let answer = fixture.run(unequal(computed(&probe), star(&probe, &build, 2), Some(5))).unwrap();
    assert_eq!(answer.rows.len(), 5);
    assert!(has_failed.load(Ordering::SeqCst));
    let error = fixture.run(unequal(probe.scan(5000), star(&probe, &build, 2), None)).unwrap_err();
    assert_eq!((error.kind, error.message), (failure().kind, failure().message));
}

/// One value of the build side can't be computed: PostgreSQL fails where it hashes that side.
#[test]
fn a_fault_of_a_build_side_is_told_when_it_is_asked_for() {
    let (probe, build) = (table(209, 600), table(210, 240));
    let number = |value| Expression::literal(Value::Int(value), DataType::Int64);
    let call = |function, a, b| Expression::call(function, vec![a, b], DataType::Int64);
    let none = || call(Function::Subtract, int64(103), number(100));
    let faulty = |left: Arc<Relation>| {
        let expressions = vec![
            NamedExpression { id: ColumnId(200), expression: int64(103) },
            NamedExpression { id: ColumnId(201), expression: call(Function::Divide, int64(103), none()) },
        ];
        let input = Relation::new(Operator::Project { input: build.scan(100), expressions }, 1.0);
        joined(left, input, (0, 200))
    };
    for device in [DeviceSettings::default(), one_by_one()] {
        let fixture = Fixture::new(PLENTY_BYTES);
        let error = fixture.run_with(plan(faulty(probe.scan(0))), device).unwrap_err();
        assert_eq!(error.kind, ErrorKind::DivisionByZero, "{error}");
        let answer =
            fixture.run_with(unequal(probe.scan(5000), faulty(probe.scan(0)), Some(7)), device).unwrap();
        assert_eq!(answer.rows.len(), 7);
    }
}

#[test]
fn a_panic_of_a_build_side_ends_its_query_only() {
    let (probe, build) = (table(211, 600), table(212, 240));
    let panics = Arc::new(AtomicBool::new(true));
    let wanted = panics.clone();
    let platform = Watched::new(move |_| {
        assert!(!is_build_thread() || !wanted.swap(false, Ordering::SeqCst), "a defect");
        Ok(())
    });
    let fixture = Fixture::over(platform, PLENTY_BYTES);
    let error = fixture.run(grouped(star(&probe, &build, 2))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(error.message.contains("a defect"), "{error}");
    assert!(!fixture.run(grouped(star(&probe, &build, 2))).unwrap().rows.is_empty());
}

#[test]
fn a_cancel_ends_all_build_sides() {
    let (probe, build) = (table(213, 600), table(214, 6000));
    let stop = StopFlag::default();
    let (meeting, stopped) = (Arc::new(Meeting::default()), stop.clone());
    let (met, after) = (meeting.clone(), Arc::new(AtomicU64::new(0)));
    let counted = after.clone();
    let platform = Watched::new(move |_| {
        if is_build_thread() {
            counted.fetch_add(u64::from(stopped.is_stopped()), Ordering::SeqCst);
            met.come(2)?;
            stopped.stop();
        }
        Ok(())
    });
    let fixture = Fixture::over(platform, PLENTY_BYTES);
    let error = fixture.run_until(grouped(star(&probe, &build, 2)), stop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Cancelled);
    // Of a hundred row groups; a call is answered before the next is made.
    assert!(after.load(Ordering::SeqCst) < 20, "{after:?} calls after the cancel");
}

/// Build sides are blocked until the query has output all wanted rows: then they are stopped, not
/// read to their end.
#[test]
fn a_limit_stops_the_build_sides_that_it_makes_pointless() {
    let (probe, build) = (table(215, 600), table(216, 6000));
    let is_given = Arc::new(AtomicBool::new(false));
    let (given, calls) = (is_given.clone(), Arc::new(AtomicU64::new(0)));
    let counted = calls.clone();
    let platform = Watched::new(move |_| {
        if !is_build_thread() {
            return Ok(());
        }
        counted.fetch_add(1, Ordering::SeqCst);
        wait_until("the rows that are wanted", || given.load(Ordering::SeqCst))
    });
    let fixture = Fixture::over(platform, PLENTY_BYTES);
    let limited = unequal(probe.scan(5000), star(&probe, &build, 2), Some(5));
    let row_count = fixture.runtime.block_on(async {
        let mut stream = fixture.engine.run(request(limited), StopFlag::default()).await.unwrap();
        let first = stream.next_batch().await.unwrap().unwrap();
        is_given.store(true, Ordering::SeqCst);
        assert!(stream.next_batch().await.unwrap().is_none());
        first.num_rows()
    });
    fixture.wait_idle();
    assert_eq!(row_count, 5);
    let pointless = calls.swap(0, Ordering::SeqCst);
    assert_eq!(fixture.engine.memory().used_bytes(), 0);
    fixture.run(unequal(probe.scan(5000), star(&probe, &build, 2), None)).unwrap();
    let whole = calls.load(Ordering::SeqCst);
    assert!(pointless * 2 < whole, "{pointless} calls for unwanted build sides, {whole} for whole ones");
}

/// A dropped query ends with all of its threads, whatever they are doing.
#[test]
fn a_query_that_is_dropped_leaves_nothing() {
    let (probe, build) = (table(217, 2000), table(218, 2000));
    for seed in SEEDS {
        let platform = Arc::new(EmulatedPlatform::with_seed(seed));
        let fixture = Fixture::over(platform, PLENTY_BYTES);
        let first = unequal(probe.scan(5000), star(&probe, &build, 3), None);
        fixture.runtime.block_on(async {
            let mut stream: Box<dyn ResultStream> =
                fixture.engine.run(request(first), StopFlag::default()).await.unwrap();
            stream.next_batch().await.unwrap();
        });
        fixture.wait_idle();
        assert_eq!(fixture.engine.memory().used_bytes(), 0, "seed {seed}");
    }
}

/// Joins whose build sides are joins, with filters from join to join: `(probe ⋈ (a ⋈ b)) ⋈ (c ⋈ (d ⋈ e))`.
fn bushy(probe: &Table, build: &Table) -> Arc<Relation> {
    let few = |first: u32| {
        let limit = Expression::literal(Value::Int(250), DataType::Int64);
        build.filtered(first, &[Expression::predicate(Function::Less, vec![int64(first + 2), limit])])
    };
    let inner = joined(build.scan(100), few(200), (103, 203));
    let deep = joined(few(400), few(500), (403, 503));
    let outer = joined(build.scan(300), deep, (300, 400));
    joined(joined(probe.scan(0), inner, (0, 100)), outer, (3, 303))
}

#[test]
fn nested_joins_with_filters_give_the_same_rows_in_any_order() {
    let (probe, build) = (table(219, 700), table(220, 700));
    let expected =
        Fixture::new(PLENTY_BYTES).run_with(grouped(bushy(&probe, &build)), one_by_one()).unwrap().rows;
    assert!(!expected.is_empty());
    let little = probe.bytes() / 2;
    for seed in Sample::of("nested_joins_with_filters").take(SEEDS) {
        for (memory_bytes, cache) in [(PLENTY_BYTES, PLENTY_BYTES), (little, little / 4), (little / 2, 0)] {
            let platform = Arc::new(EmulatedPlatform::with_seed(seed));
            let fixture = Fixture::caching(platform, memory_bytes, (cache, 0));
            for device in [one_by_one(), DeviceSettings::default()] {
                let answer = fixture.run_with(grouped(bushy(&probe, &build)), device);
                let answer = answer.unwrap_or_else(|error| {
                    panic!("seed {seed}, memory {memory_bytes}, {device:?}: {error}")
                });
                assert!(
                    answer.rows == expected,
                    "seed {seed}, memory {memory_bytes}, {device:?}: other rows"
                );
            }
        }
    }
}

#[test]
fn build_sides_that_spill_side_by_side_give_the_same_rows() {
    let (probe, build) = (table(221, 2000), table(222, 4000));
    let expected =
        Fixture::new(PLENTY_BYTES).run_with(grouped(star(&probe, &build, 3)), one_by_one()).unwrap().rows;
    assert!(!expected.is_empty());
    for seed in Sample::of("build_sides_that_spill_side_by_side").take(SEEDS) {
        for part in [4, 16] {
            let platform = Arc::new(EmulatedPlatform::with_seed(seed));
            let fixture = Fixture::over(platform, build.bytes() / part);
            let answer = fixture.run(grouped(star(&probe, &build, 3)));
            let answer = answer.unwrap_or_else(|error| panic!("seed {seed}, 1/{part}: {error}"));
            assert!(answer.metrics.spilled_bytes > 0, "seed {seed}, 1/{part}");
            assert!(answer.rows == expected, "seed {seed}, 1/{part}: other rows");
        }
    }
}

/// If memory is short for build sides in parallel, they are read one after another.
#[test]
fn a_query_that_lacks_memory_for_its_build_sides_at_once_runs_again_one_by_one() {
    let (probe, build) = (table(225, 700), table(226, 700));
    let expected =
        Fixture::new(PLENTY_BYTES).run_with(grouped(bushy(&probe, &build)), one_by_one()).unwrap().rows;
    // The driver that reads a build side beside the query's own is refused memory.
    let refused = Arc::new(AtomicU64::new(0));
    let counted = refused.clone();
    let platform = Watched::new(move |_| match is_build_thread() {
        true => {
            counted.fetch_add(1, Ordering::SeqCst);
            Err(Error::new(ErrorKind::OutOfMemory, "the device's memory is exhausted"))
        }
        false => Ok(()),
    });
    let fixture = Fixture::over(platform, PLENTY_BYTES);
    let answer = fixture.run(grouped(bushy(&probe, &build))).unwrap();
    assert!(refused.load(Ordering::SeqCst) > 0);
    assert!(answer.rows == expected);
    fixture.wait_idle();
    assert_eq!(fixture.engine.query_counts(), (1, 0));
}

/// Counts of rows and bytes are the same, whichever driver counted them.
#[test]
fn metrics_of_all_drivers_come_together() {
    let (probe, build) = (table(223, 1500), table(224, 1500));
    let [beside, alone] = [DeviceSettings::default(), one_by_one()].map(|device| {
        let answer = Fixture::new(PLENTY_BYTES).run_with(grouped(bushy(&probe, &build)), device).unwrap();
        let metrics = answer.metrics;
        assert!(metrics.bytes_read > 0 && metrics.device_work.is_some());
        let operators = metrics.operators.iter().map(|operator| {
            assert!(operator.elapsed_us.is_some(), "{operator:?}");
            let pages = operator.counters.iter().find(|(name, _)| name == "pages_decoded").cloned();
            assert_eq!(pages.is_some(), operator.description.starts_with("Scan"), "{operator:?}");
            (operator.description.clone(), operator.row_count, pages)
        });
        let operators: Vec<_> = operators.collect();
        (operators, metrics.actual_rows, metrics.row_count)
    });
    assert_eq!(beside, alone);
}

/// The query's counts of `Calls` cover all its drivers.
#[test]
fn waits_of_build_sides_are_the_querys() {
    let (probe, build) = (table(225, 600), table(226, 240));
    let platform = Watched::new(|_: &Calls| Ok(()));
    let waits = |device| {
        let before = platform.calls.waits.load(Ordering::Relaxed);
        let fixture = Fixture::over(platform.clone(), PLENTY_BYTES);
        fixture.run_with(grouped(star(&probe, &build, 2)), device).unwrap();
        platform.calls.waits.load(Ordering::Relaxed) - before
    };
    let (beside, alone) = (waits(DeviceSettings::default()), waits(one_by_one()));
    // A fragment waits for its faults, and for its table, before it hands over.
    assert!(beside <= alone + 8, "{beside} waits, {alone} one by one");
}
