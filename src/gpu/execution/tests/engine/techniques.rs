//! Every technique that can be switched off: the same rows and the same errors without it.

use std::sync::atomic::AtomicU64;

use pystachio_plan::{
    AggregatePhase, ErrorKind, Function, JoinKey, JoinKind, JoinSide, NamedExpression, Operator, Relation,
    Value, technique_names,
};

use super::*;

/// All techniques, and all but one.
fn techniques() -> Vec<(&'static str, DeviceSettings)> {
    let without = |name| (name, DeviceSettings::default().without(name).unwrap());
    std::iter::once(("none", DeviceSettings::default())).chain(technique_names().map(without)).collect()
}

fn table() -> Table {
    Table::made(Shape { seed: 71, row_count: 3000, key_count: 400, repeated_percent: 2, null_percent: 5 })
}

/// Memory for all, and for less.
fn memories(table: &Table) -> [u64; 2] {
    [PLENTY_BYTES, table.bytes() / 2]
}

/// Pairs of equal keys, of which the left columns are 0 to 3 and the right ones 4 to 7.
fn joined(table: &Table) -> Arc<Relation> {
    let operator = Operator::Join {
        kind: JoinKind::Inner,
        left: table.scan(0),
        right: table.scan(4),
        keys: vec![JoinKey { left: int64(0), right: int64(4) }],
        residual: None,
        build: JoinSide::Right,
    };
    Relation::new(operator, 1.0)
}

fn named(id: u32, expression: Expression) -> NamedExpression {
    NamedExpression { id: ColumnId(id), expression }
}

/// Count and sum of column 103 by column 100.
fn grouped(input: Arc<Relation>) -> Arc<Relation> {
    let wide = DataType::Decimal { precision: 38, scale: 0 };
    let operator = Operator::Aggregate {
        input,
        groups: vec![named(200, int64(100))],
        aggregates: vec![
            aggregate_call(201, Aggregate::Count, None, DataType::Int64),
            aggregate_call(202, Aggregate::Sum, Some(int64(103)), wide.clone()),
            aggregate_call(203, Aggregate::Min, Some(int64(103)), DataType::Int64),
        ],
        phase: AggregatePhase::Whole,
    };
    Relation::new(operator, 1.0)
}

fn projected(input: Arc<Relation>, last: Expression) -> Arc<Relation> {
    let expressions = vec![named(100, int64(0)), named(101, text(1)), named(103, last)];
    Relation::new(Operator::Project { input, expressions }, 1.0)
}

fn number(value: i64) -> Expression {
    Expression::literal(Value::Int(value), DataType::Int64)
}

fn call(function: Function, a: Expression, b: Expression) -> Expression {
    Expression::call(function, vec![a, b], DataType::Int64)
}

#[test]
fn without_any_technique_the_rows_are_the_same() {
    let table = table();
    let make = || plan(grouped(projected(joined(&table), call(Function::Add, int64(3), int64(7)))));
    let expected = sorted(Fixture::new(PLENTY_BYTES).run(make()).unwrap().rows);
    assert!(expected.len() > 300);
    for (name, settings) in techniques() {
        for memory_bytes in memories(&table) {
            let answer = Fixture::new(memory_bytes).run_with(make(), settings).unwrap();
            assert_eq!(sorted(answer.rows), expected, "without {name}, memory {memory_bytes}");
        }
    }
}

/// Bytes by which a checker of uninitialised memory finds reads on a GPU.
#[test]
fn what_fresh_memory_holds_makes_no_difference() {
    let table = table();
    let make = || plan(grouped(projected(joined(&table), call(Function::Add, int64(3), int64(7)))));
    let [first, second] = [0xa5, 0x3c].map(|poison| {
        memories(&table).map(|memory_bytes| {
            let platform = Arc::new(EmulatedPlatform::with_poison(poison));
            sorted(Fixture::over(platform, memory_bytes).run(make()).unwrap().rows)
        })
    });
    assert_eq!(first, second);
}

#[test]
fn faults_that_are_read_later_are_the_same_errors() {
    let table = table();
    // Every other value is even, and few rows' number is 3.
    let remainder = || call(Function::Modulo, int64(2), number(2));
    let quotient = || call(Function::Divide, int64(7), remainder());
    let is_three = |value| Expression::predicate(Function::Equal, vec![value, number(3)]);
    let filter = |input, predicate| Relation::new(Operator::Filter { input, predicate }, 1.0);
    let too_large = || call(Function::Multiply, int64(3), number(i64::MAX / 2));
    type Make<'a> = Box<dyn Fn() -> Arc<Relation> + 'a>;
    let plans: Vec<(&str, ErrorKind, Make<'_>)> = vec![
        (
            "a value that is only returned",
            ErrorKind::DivisionByZero,
            Box::new(|| projected(joined(&table), quotient())),
        ),
        (
            "a condition, after which rows with another fault are added up",
            ErrorKind::DivisionByZero,
            Box::new(|| {
                let kept = filter(joined(&table), is_three(quotient()));
                grouped(projected(kept, too_large()))
            }),
        ),
        (
            "a condition that no row meets",
            ErrorKind::DivisionByZero,
            Box::new(|| {
                let none = Expression::predicate(Function::Less, vec![quotient(), number(i64::MIN)]);
                filter(joined(&table), none)
            }),
        ),
        (
            "a key",
            ErrorKind::NumericOutOfRange,
            Box::new(|| {
                let keys = projected(joined(&table), number(1));
                let operator = Operator::Join {
                    kind: JoinKind::Left,
                    left: keys,
                    right: table.scan(300),
                    keys: vec![JoinKey {
                        left: call(Function::Multiply, int64(100), number(i64::MAX / 2)),
                        right: int64(300),
                    }],
                    residual: None,
                    build: JoinSide::Left,
                };
                Relation::new(operator, 1.0)
            }),
        ),
    ];
    for (name, kind, make) in plans {
        let mut messages = Vec::new();
        for (without, settings) in techniques() {
            // With memory for all: of smaller chunks the first one may have the other fault.
            let error = Fixture::new(PLENTY_BYTES).run_with(plan(make()), settings).unwrap_err();
            assert_eq!(error.kind, kind, "{name}, without {without}: {error}");
            messages.push(error.message);
        }
        messages.dedup();
        assert_eq!(messages.len(), 1, "{name}: {messages:?}");
    }
}

#[test]
fn memory_comes_from_the_pool_and_copies_go_through_page_locked_memory() {
    let table = table();
    let joined = plan(grouped(projected(joined(&table), call(Function::Add, int64(3), int64(7)))));
    let platform = Watched::new(|_| Ok(()));
    Fixture::over(platform.clone(), PLENTY_BYTES).run(joined).unwrap();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let calls = &platform.calls;
    assert!(count(&calls.buffers) > 1 && count(&calls.reservations) == 1 && count(&calls.pinned) > 0);
    assert_eq!(count(&calls.spilled_copies) + count(&calls.returned_copies), 0);
}
