use pystachio_plan::{CaseBranch, DataType, ErrorKind, Expression, Function, Value};

use super::{Device, column, decimal};

/// More than one thread computes.
const ROWS: i64 = 10_000;

/// Groups of two rows, 0 and twice the group's number; every seventh has no rows.
fn columns() -> Vec<(DataType, Vec<Value>)> {
    let sums = |sum: fn(i64) -> i64| -> Vec<Value> {
        (0..ROWS)
            .map(|number| if is_empty(number) { Value::Null } else { Value::Decimal(sum(number).into()) })
            .collect()
    };
    let counts = (0..ROWS).map(|number| Value::Int(if is_empty(number) { 0 } else { 2 })).collect();
    vec![
        (DataType::Int64, counts),
        (decimal(38, 0), sums(|number| 2 * number)),
        (decimal(76, 0), sums(|number| 4 * number * number)),
    ]
}

fn is_empty(number: i64) -> bool {
    number % 7 == 3
}

/// `stddev_pop` of a group: its number.
fn deviation() -> Expression {
    let arguments = vec![
        column(0, DataType::Int64),
        column(1, decimal(38, 0)),
        column(2, decimal(76, 0)),
        Expression::int32(0),
    ];
    Expression::call(Function::Variance { sample: false, deviation: true }, arguments, decimal(76, 34))
}

fn number_of(row: i64) -> Expression {
    Expression::literal(Value::Decimal(row.into()), decimal(18, 0))
}

#[test]
fn variances_are_parts_of_expressions_and_of_conditions() {
    let device = Device::new();
    let rounded = Expression::call(Function::Round, vec![deviation(), Expression::int32(0)], decimal(42, 0));
    let doubled = Expression::call(Function::Add, vec![rounded.clone(), rounded], decimal(43, 0));
    let found = device.evaluate(&doubled, &columns(), ROWS as usize).unwrap();
    for (number, value) in (0..ROWS).zip(found) {
        let expected = if is_empty(number) { Value::Null } else { Value::Decimal((2 * number).into()) };
        assert_eq!(value, expected, "row {number}");
    }
    let condition = Expression::predicate(Function::Less, vec![deviation(), number_of(5)]);
    let kept = device.filter(&condition, &columns(), ROWS as usize).unwrap();
    let expected: Vec<bool> = (0..ROWS).map(|number| number < 5 && !is_empty(number)).collect();
    assert_eq!(kept, expected);
    let is_null = Expression::predicate(Function::IsNull, vec![deviation()]);
    let nulls = device.filter(&is_null, &columns(), ROWS as usize).unwrap();
    assert_eq!(nulls, (0..ROWS).map(is_empty).collect::<Vec<bool>>());
}

#[test]
fn variances_that_a_choice_could_skip_are_refused() {
    let is_positive = Expression::predicate(Function::Greater, vec![column(1, decimal(38, 0)), number_of(0)]);
    let case = Expression::Case {
        branches: vec![CaseBranch { condition: is_positive, result: deviation() }],
        otherwise: None,
        data_type: decimal(76, 34),
    };
    let error = Device::new().evaluate(&case, &columns(), ROWS as usize).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotSupported);
}

#[test]
fn a_variance_that_no_decimal_holds_is_an_error() {
    let huge = || Value::Decimal(10_i128.pow(37));
    let columns = vec![
        (DataType::Int64, vec![Value::Int(2)]),
        (decimal(38, 0), vec![Value::Decimal(0)]),
        (decimal(76, 0), vec![huge()]),
    ];
    let Expression::Call { function, arguments, .. } = deviation() else { panic!("a call") };
    let narrow = Expression::call(function, arguments, decimal(18, 16));
    let error = Device::new().evaluate(&narrow, &columns, 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NumericOutOfRange, "{error}");
}
