//! Decimals of more than 38 digits among everything else that a program has.

use pystachio_plan::{CaseBranch, DataType, ErrorKind, Expression, Function, Result, Value};

use super::{Device, column, decimal, input_of, text};
use crate::program::Program;

fn run(expression: &Expression, columns: &[(DataType, Vec<Value>)]) -> Result<Vec<Value>> {
    let row_count = columns.first().map_or(1, |(_, values)| values.len());
    Device::new().evaluate(expression, columns, row_count)
}

fn booleans(values: &[Option<bool>]) -> Vec<Value> {
    values.iter().map(|value| value.map_or(Value::Null, Value::Bool)).collect()
}

/// 60 digits, and 38.
fn large_columns() -> Vec<(DataType, Vec<Value>)> {
    let digits = |zeros: usize| Value::Text(format!("-12{}", "0".repeat(zeros)));
    vec![
        (decimal(60, 10), vec![digits(50), Value::Null, Value::Decimal(15_000_000_000), Value::Decimal(7)]),
        (
            decimal(38, 0),
            vec![Value::Decimal(10_i128.pow(37)), Value::Decimal(4), Value::Null, Value::Decimal(1)],
        ),
        (DataType::Text, ["a", "b", "c", "d"].map(|word| Value::Text(word.into())).to_vec()),
    ]
}

#[test]
fn choices_among_decimals_of_more_than_38_digits_keep_every_digit() {
    let (large, wide, word) =
        (|| column(0, decimal(60, 10)), || column(1, decimal(38, 0)), || column(2, DataType::Text));
    let is_first = Expression::predicate(Function::Like, vec![word(), text("a%")]);
    let case = Expression::Case {
        branches: vec![CaseBranch { condition: is_first, result: large() }],
        otherwise: Some(Box::new(wide())),
        data_type: decimal(60, 10),
    };
    let columns = large_columns();
    let first = columns[0].1[0].clone();
    let wide_at_scale = |value: i128| Value::Decimal(value * 10_i128.pow(10));
    let expected = [first.clone(), wide_at_scale(4), Value::Null, wide_at_scale(1)];
    assert_eq!(run(&case, &columns).expect("values"), expected);
    let either = Expression::call(Function::Coalesce, vec![large(), wide()], decimal(60, 10));
    let expected = [first.clone(), wide_at_scale(4), Value::Decimal(15_000_000_000), Value::Decimal(7)];
    assert_eq!(run(&either, &columns).expect("values"), expected);
    let greatest = Expression::call(Function::Greatest, vec![large(), wide()], decimal(60, 10));
    let expected = [
        Value::Text(format!("1{}", "0".repeat(47))),
        wide_at_scale(4),
        Value::Decimal(15_000_000_000),
        wide_at_scale(1),
    ];
    assert_eq!(run(&greatest, &columns).expect("values"), expected);
    let seven = Expression::literal(Value::Decimal(7), decimal(60, 10));
    let none = Expression::call(Function::NullIf, vec![large(), seven], decimal(60, 10));
    let expected = [first, Value::Null, Value::Decimal(15_000_000_000), Value::Null];
    assert_eq!(run(&none, &columns).expect("values"), expected);
}

#[test]
fn decimals_of_more_than_38_digits_are_compared_with_numbers_of_any_scale() {
    let large = || column(0, decimal(60, 10));
    let number = |value: i128, scale| Expression::literal(Value::Decimal(value), decimal(38, scale));
    let columns = large_columns();
    let less = Expression::predicate(Function::Less, vec![large(), number(15, 1)]);
    let expected = booleans(&[Some(true), None, Some(false), Some(true)]);
    assert_eq!(run(&less, &columns).expect("values"), expected);
    let least = Expression::predicate(Function::LessEqual, vec![large(), number(-10_i128.pow(37), 0)]);
    let expected = booleans(&[Some(true), None, Some(false), Some(false)]);
    assert_eq!(run(&least, &columns).expect("values"), expected);
    let items =
        [(3, 1), (15, 1), (150, 2), (7, 10), (70, 11), (71, 11)].map(|(value, scale)| number(value, scale));
    let is_in = Expression::predicate(Function::In, std::iter::once(large()).chain(items).collect());
    let expected = booleans(&[Some(false), None, Some(true), Some(true)]);
    assert_eq!(run(&is_in, &columns).expect("values"), expected);
}

#[test]
fn a_list_is_searched_in_a_program_with_pairs_of_cells() {
    let large = Expression::call(
        Function::Add,
        vec![column(0, decimal(60, 10)), column(1, decimal(38, 0))],
        decimal(61, 10),
    );
    let numbers = (0..50).map(|value| Expression::literal(Value::Decimal(value * 4), decimal(38, 0)));
    let wide = std::iter::once(column(1, decimal(38, 0)));
    let is_in = Expression::predicate(Function::In, wide.chain(numbers).collect());
    let words = ["x", "d", "b", "yy"].map(text);
    let word = std::iter::once(column(2, DataType::Text));
    let is_word = Expression::predicate(Function::In, word.chain(words).collect());
    let device = Device::new();
    let columns = large_columns();
    let program = Program::compile(&[large, is_in, is_word], &input_of(&columns), &[]).expect("a program");
    let results = program.evaluate(&device.queue, &device.chunk(&columns, 4)).expect("columns");
    let values: Vec<Vec<Value>> = results.iter().map(|result| device.values(result, 4)).collect();
    let sum = Value::Text(format!("-11999{}", "0".repeat(47)));
    assert_eq!(values[0], [sum, Value::Null, Value::Null, Value::Decimal(10_000_000_007)]);
    assert_eq!(values[1], booleans(&[Some(false), Some(true), None, Some(false)]));
    assert_eq!(values[2], booleans(&[Some(false), Some(true), Some(false), Some(true)]));
}

#[test]
fn a_program_with_pairs_of_cells_has_half_the_registers() {
    let value = || column(0, decimal(60, 0));
    let sum_of = |count: i128| {
        let product = |factor| {
            let factor = Expression::literal(Value::Decimal(factor), decimal(10, 0));
            Expression::call(Function::Multiply, vec![value(), factor], decimal(70, 0))
        };
        (2..=count).rev().fold(product(1), |sum, factor| {
            Expression::call(Function::Add, vec![product(factor), sum], decimal(76, 0))
        })
    };
    let columns = vec![(decimal(60, 0), vec![Value::Decimal(1), Value::Decimal(10), Value::Null])];
    for count in [15, 28] {
        let sum = count * (count + 1) / 2;
        let expected = [Value::Decimal(sum), Value::Decimal(10 * sum), Value::Null];
        assert_eq!(run(&sum_of(count), &columns).expect("values"), expected);
    }
    let error = run(&sum_of(40), &columns).expect_err("too many values at once");
    assert_eq!(error.kind, ErrorKind::NotSupported);
}
