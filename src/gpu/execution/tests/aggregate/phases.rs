//! Aggregates in two steps have the results of one step, whatever rows each of the first steps
//! gets.

use pystachio_plan::{
    Aggregate, AggregateCall, AggregatePhase, DataType, Function, NamedExpression, Operator, Relation, Value,
};

use super::*;

/// Ids of groups and of aggregates.
const GROUP: u32 = 100;
const CALL: u32 = 200;
/// Ids of partial columns.
const PARTIAL: u32 = 300;

fn decimal(precision: u8) -> DataType {
    DataType::Decimal { precision, scale: 0 }
}

/// The aggregates that have partial results, over a scan whose columns have ids from `first` on.
fn calls(first: u32) -> Vec<AggregateCall> {
    let value = || int64(first + 2);
    let large = Expression::call(Function::Cast, vec![value()], decimal(30));
    let is_positive = Expression::predicate(
        Function::Less,
        vec![Expression::literal(Value::Int(0), DataType::Int64), value()],
    );
    let filtered = |call: AggregateCall| AggregateCall { filter: Some(is_positive.clone()), ..call };
    vec![
        aggregate_call(CALL, Aggregate::Count, None, DataType::Int64),
        aggregate_call(CALL + 1, Aggregate::Count, Some(text(first + 1)), DataType::Int64),
        aggregate_call(CALL + 2, Aggregate::Sum, Some(value()), decimal(38)),
        aggregate_call(CALL + 3, Aggregate::Sum, Some(large), decimal(76)),
        aggregate_call(CALL + 4, Aggregate::Min, Some(value()), DataType::Int64),
        aggregate_call(CALL + 5, Aggregate::Max, Some(text(first + 1)), DataType::Text),
        filtered(aggregate_call(CALL + 6, Aggregate::Count, None, DataType::Int64)),
        filtered(aggregate_call(CALL + 7, Aggregate::Sum, Some(value()), decimal(38))),
        aggregate_call(CALL + 8, Aggregate::BoolAnd, Some(is_positive.clone()), DataType::Bool),
        aggregate_call(CALL + 9, Aggregate::BoolOr, Some(is_positive.clone()), DataType::Bool),
    ]
}

/// Sums of floats, whose partial results are bytes.
fn float_calls(first: u32) -> Vec<AggregateCall> {
    let value = || int64(first + 2);
    // Tenths, whose sums depend on the order if they are rounded.
    let tenth = Expression::literal(Value::Float(0.1), DataType::Float64);
    let float = |data_type: &DataType| Expression::call(Function::Cast, vec![value()], data_type.clone());
    let tenths =
        Expression::call(Function::Multiply, vec![float(&DataType::Float64), tenth], DataType::Float64);
    let (double, single) = (DataType::Float64, DataType::Float32);
    let is_negative = Expression::predicate(
        Function::Less,
        vec![value(), Expression::literal(Value::Int(0), DataType::Int64)],
    );
    let deviations = aggregate_call(CALL + 1, Aggregate::Deviations, Some(tenths.clone()), double.clone());
    vec![
        aggregate_call(CALL, Aggregate::Sum, Some(tenths), double),
        AggregateCall { filter: Some(is_negative), ..deviations },
        aggregate_call(CALL + 2, Aggregate::Sum, Some(float(&single)), single),
        aggregate_call(CALL + 3, Aggregate::Count, Some(value()), DataType::Int64),
    ]
}

/// Aggregates over a scan whose columns have ids from a number on.
type Calls = fn(u32) -> Vec<AggregateCall>;

/// Rows of a table whose numbers lie between these.
fn numbered(table: &Table, first: u32, from: i64, to: i64) -> Arc<Relation> {
    let number = |value| Expression::literal(Value::Int(value), DataType::Int64);
    let at_least = Expression::predicate(Function::LessEqual, vec![number(from), int64(first + 3)]);
    let below = Expression::predicate(Function::Less, vec![int64(first + 3), number(to)]);
    table.filtered(first, &[at_least, below])
}

fn aggregate(
    input: Arc<Relation>,
    groups: Vec<Expression>,
    aggregates: Vec<AggregateCall>,
    phase: AggregatePhase,
) -> Arc<Relation> {
    let named =
        (GROUP..).zip(groups).map(|(id, expression)| NamedExpression { id: ColumnId(id), expression });
    Relation::new(Operator::Aggregate { input, groups: named.collect(), aggregates, phase }, 10.0)
}

/// The aggregate of the table in one step, and in as many first steps as there are ranges of row numbers.
fn plans(
    table: &Table,
    calls: Calls,
    groups: impl Fn(u32) -> Vec<Expression>,
    ranges: &[(i64, i64)],
) -> (Plan, Plan) {
    let whole = aggregate(table.scan(0), groups(0), calls(0), AggregatePhase::Whole);
    let mut parts = Vec::new();
    let mut last = Vec::new();
    for (place, (from, to)) in (0..).zip(ranges) {
        let first = 10 * place;
        let phases = (PARTIAL..).zip(calls(first)).map(|(id, call)| call.in_phases(ColumnId(id)));
        let (partial, own_last): (Vec<_>, Vec<_>) = phases.unzip();
        let input = numbered(table, first, *from, *to);
        let part = aggregate(input, groups(first), partial, AggregatePhase::Partial);
        let ids: Vec<ColumnId> = part.columns().into_iter().map(|(id, _)| id).collect();
        parts.push((part, ids));
        last = own_last;
    }
    let columns = parts[0].0.columns();
    let named = columns.iter().filter(|(id, _)| id.0 < CALL);
    let keys = named.map(|(id, data_type)| Expression::column(*id, data_type.clone())).collect();
    let union = Relation::new(Operator::UnionAll { inputs: parts, columns: columns.clone() }, 10.0);
    (plan(whole), plan(aggregate(union, keys, last, AggregatePhase::Final)))
}

fn check_phases(
    table: &Table,
    calls: Calls,
    groups: impl Fn(u32) -> Vec<Expression>,
    (memory_bytes, context): (u64, &str),
) {
    let ranges = [(0, 100), (100, 100), (100, 1500), (1500, i64::MAX)];
    let (whole, in_phases) = plans(table, calls, groups, &ranges);
    let fixture = Fixture::new(memory_bytes);
    let expected = sorted(fixture.run(whole).unwrap_or_else(|error| panic!("{context}: {error}")).rows);
    let found = sorted(fixture.run(in_phases).unwrap_or_else(|error| panic!("{context}: {error}")).rows);
    assert_eq!(found, expected, "{context}");
}

#[test]
fn results_of_two_steps_are_those_of_one() {
    let shape = Shape { seed: 71, row_count: 4000, key_count: 300, repeated_percent: 20, null_percent: 10 };
    let (table, empty) = (Table::made(shape), Table::made(Shape { row_count: 0, ..shape }));
    let both = |first| vec![text(first + 1), int64(first)];
    // Rows of partial results have several times the bytes of rows.
    for (calls, memory_part) in [(calls as Calls, 4), (float_calls, 2)] {
        for (table, name) in [(&table, "rows"), (&empty, "no rows")] {
            let check = |groups: &dyn Fn(u32) -> Vec<Expression>, by: &str| {
                check_phases(table, calls, groups, (PLENTY_BYTES, &format!("{name}, {by}")));
            };
            check(&|_| Vec::new(), "no groups");
            check(&|first| vec![int64(first)], "by number");
            check(&both, "by text and number");
        }
        check_phases(&table, calls, both, (table.bytes() / memory_part, "little memory"));
    }
}

#[test]
fn a_sum_that_does_not_fit_is_an_error_of_the_last_step() {
    let large = 10_i128.pow(18) * 6;
    let row = |number: i64| Row { key: Some(1), text: None, value: Some(large as i64), number };
    let table = Table::new(vec![row(0), row(1), row(2)]);
    let sum = |first: u32| aggregate_call(CALL, Aggregate::Sum, Some(int64(first + 2)), DataType::Int64);
    let (partial, last) = sum(0).in_phases(ColumnId(PARTIAL));
    let partial = aggregate(table.scan(0), Vec::new(), vec![partial], AggregatePhase::Partial);
    let fixture = Fixture::new(PLENTY_BYTES);
    assert_eq!(fixture.run(plan(partial.clone())).unwrap().rows, [[(3 * large).to_string()]]);
    let last = aggregate(partial, Vec::new(), vec![last], AggregatePhase::Final);
    let whole = aggregate(table.scan(0), Vec::new(), vec![sum(0)], AggregatePhase::Whole);
    let [last, whole] = [last, whole].map(|root| fixture.run(plan(root)).unwrap_err());
    assert_eq!(last, whole);
}

/// The first phase outputs groups that merging does not make fewer, and holds few of them.
#[test]
fn groups_that_stay_many_are_passed_on() {
    let shape = Shape { seed: 72, row_count: 20_000, key_count: 9000, repeated_percent: 0, null_percent: 10 };
    let table = Table::made(shape);
    let ranges = [(0, 12_000), (12_000, i64::MAX)];
    let numbered = |first: u32| vec![text(first + 1), int64(first + 3)];
    let few = |first: u32| vec![text(first + 1)];
    for (groups, passes_on) in [(&numbered as &dyn Fn(u32) -> Vec<Expression>, true), (&few, false)] {
        let (whole, in_phases) = plans(&table, calls, groups, &ranges);
        let fixture = Fixture::new(table.bytes() * 4);
        let (whole, in_phases) = (fixture.run(whole).unwrap(), fixture.run(in_phases).unwrap());
        assert_eq!(counter(&in_phases, "rows_passed_on") > 0, passes_on, "{:?}", in_phases.metrics);
        assert_eq!(sorted(in_phases.rows), sorted(whole.rows));
    }
}
