//! Claims that the case files cannot test: laziness, NULL logic, registers, errors, sharing of
//! memory.

use pystachio_plan::{
    CaseBranch, ColumnId, Ctype, DataType, ErrorKind, Expression, Function, Literal, Result, Value,
};

use super::{Device, column, decimal, input_of, text};
use crate::{device::CellType, program::Program};

fn divisors() -> Vec<(DataType, Vec<Value>)> {
    let values = vec![Value::Int(0), Value::Int(5), Value::Null, Value::Int(2), Value::Int(0)];
    vec![(DataType::Int32, values)]
}

fn divisor() -> Expression {
    column(0, DataType::Int32)
}

fn quotient() -> Expression {
    Expression::call(Function::Divide, vec![Expression::int32(10), divisor()], DataType::Int32)
}

fn not_zero() -> Expression {
    Expression::predicate(Function::NotEqual, vec![divisor(), Expression::int32(0)])
}

fn greater_than_three(value: Expression) -> Expression {
    Expression::predicate(Function::Greater, vec![value, Expression::int32(3)])
}

fn run(expression: &Expression, columns: &[(DataType, Vec<Value>)]) -> Result<Vec<Value>> {
    let row_count = columns.first().map_or(1, |(_, values)| values.len());
    Device::new().evaluate(expression, columns, row_count)
}

fn integers(values: &[Option<i64>]) -> Vec<Value> {
    values.iter().map(|value| value.map_or(Value::Null, Value::Int)).collect()
}

fn booleans(values: &[Option<bool>]) -> Vec<Value> {
    values.iter().map(|value| value.map_or(Value::Null, Value::Bool)).collect()
}

#[test]
fn a_division_fails_for_the_row_that_reaches_it() {
    let error = run(&quotient(), &divisors()).expect_err("a zero divisor");
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::DivisionByZero, "division by zero"));
}

#[test]
fn case_does_not_evaluate_a_branch_for_other_rows() {
    for otherwise in [None, Some(Box::new(Expression::int32(-1)))] {
        let other = otherwise.as_ref().map(|_| -1);
        let case = Expression::Case {
            branches: vec![CaseBranch { condition: not_zero(), result: quotient() }],
            otherwise,
            data_type: DataType::Int32,
        };
        let expected = integers(&[other, Some(2), other, Some(5), other]);
        assert_eq!(run(&case, &divisors()).expect("values"), expected);
    }
}

#[test]
fn case_does_not_evaluate_a_condition_after_the_one_that_holds() {
    let zero = Expression::predicate(Function::Not, vec![not_zero()]);
    let case = Expression::Case {
        branches: vec![
            CaseBranch { condition: zero, result: Expression::int32(7) },
            CaseBranch { condition: greater_than_three(quotient()), result: quotient() },
        ],
        otherwise: Some(Box::new(Expression::int32(-1))),
        data_type: DataType::Int32,
    };
    let expected = integers(&[Some(7), Some(-1), Some(-1), Some(5), Some(7)]);
    assert_eq!(run(&case, &divisors()).expect("values"), expected);
}

#[test]
fn and_does_not_evaluate_what_may_fail_for_decided_rows() {
    let both = Expression::predicate(Function::And, vec![not_zero(), greater_than_three(quotient())]);
    let expected = booleans(&[Some(false), Some(false), None, Some(true), Some(false)]);
    assert_eq!(run(&both, &divisors()).expect("values"), expected);
    let flags = Device::new().filter(&both, &divisors(), 5).expect("flags");
    assert_eq!(flags, [false, false, false, true, false]);
}

#[test]
fn and_evaluates_what_may_fail_where_the_rest_is_null() {
    let unknown = Expression::literal(Value::Null, DataType::Bool);
    let both = Expression::predicate(Function::And, vec![unknown, greater_than_three(quotient())]);
    assert_eq!(run(&both, &divisors()).expect_err("a zero divisor").kind, ErrorKind::DivisionByZero);
}

#[test]
fn a_filter_tests_nothing_after_a_condition_that_is_not_true() {
    // NULL for the rows of 0, as a comparison with NULL is, and true for others.
    let known = Expression::predicate(
        Function::NotEqual,
        vec![
            Expression::call(Function::NullIf, vec![divisor(), Expression::int32(0)], DataType::Int32),
            Expression::int32(0),
        ],
    );
    let rows = Expression::predicate(
        Function::And,
        vec![known, Expression::predicate(Function::IsNotNull, vec![divisor()])],
    );
    let both = Expression::predicate(Function::And, vec![rows, greater_than_three(quotient())]);
    let flags = Device::new().filter(&both, &divisors(), 5).expect("no row of 0 is divided");
    assert_eq!(flags, [false, false, false, true, false]);
    // Within an expression NULL decides nothing.
    let tested = Expression::predicate(Function::IsNotNull, vec![both]);
    assert_eq!(run(&tested, &divisors()).expect_err("a zero divisor").kind, ErrorKind::DivisionByZero);
}

#[test]
fn or_does_not_evaluate_what_may_fail_for_decided_rows() {
    let zero = Expression::predicate(Function::Not, vec![not_zero()]);
    let either = Expression::predicate(Function::Or, vec![zero, greater_than_three(quotient())]);
    let expected = booleans(&[Some(true), Some(false), None, Some(true), Some(true)]);
    assert_eq!(run(&either, &divisors()).expect("values"), expected);
}

#[test]
fn coalesce_does_not_evaluate_what_may_fail_for_decided_rows() {
    let first = Expression::call(
        Function::NullIf,
        vec![Expression::int32(7), column(1, DataType::Int32)],
        DataType::Int32,
    );
    let expression =
        Expression::call(Function::Coalesce, vec![first, quotient(), divisor()], DataType::Int32);
    let mut columns = divisors();
    columns.push((DataType::Int32, integers(&[Some(1), Some(7), Some(7), Some(1), Some(1)])));
    let expected = integers(&[Some(7), Some(2), None, Some(7), Some(7)]);
    assert_eq!(run(&expression, &columns).expect("values"), expected);
}

#[test]
fn what_was_computed_for_some_rows_is_computed_again_for_others() {
    // The quotient in the branch is not the one outside, which all rows that are not zero need.
    let case = |condition| Expression::Case {
        branches: vec![CaseBranch { condition, result: quotient() }],
        otherwise: Some(Box::new(Expression::int32(0))),
        data_type: DataType::Int32,
    };
    let two = Expression::predicate(Function::Equal, vec![divisor(), Expression::int32(2)]);
    let sum = Expression::call(Function::Add, vec![case(two), case(not_zero())], DataType::Int32);
    let expected = integers(&[Some(0), Some(2), Some(0), Some(10), Some(0)]);
    assert_eq!(run(&sum, &divisors()).expect("values"), expected);
}

#[test]
fn three_valued_logic_is_that_of_sql() {
    let all = [Some(true), Some(false), None];
    type Pair = (Option<bool>, Option<bool>);
    let pairs: Vec<Pair> = all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))).collect();
    let side = |pick: fn(&Pair) -> Option<bool>| booleans(&pairs.iter().map(pick).collect::<Vec<_>>());
    let columns = vec![(DataType::Bool, side(|pair| pair.0)), (DataType::Bool, side(|pair| pair.1))];
    let operands = || vec![column(0, DataType::Bool), column(1, DataType::Bool)];
    let and = side(|pair| match pair {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    });
    let or = side(|pair| match pair {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    });
    assert_eq!(run(&Expression::predicate(Function::And, operands()), &columns).expect("values"), and);
    assert_eq!(run(&Expression::predicate(Function::Or, operands()), &columns).expect("values"), or);
}

#[test]
fn null_slots_never_fail_whatever_they_hold() {
    let columns = vec![(decimal(38, 0), vec![Value::Null, Value::Decimal(1)])];
    let value = || column(0, decimal(38, 0));
    let product = Expression::call(Function::Multiply, vec![value(), value()], decimal(38, 0));
    assert_eq!(run(&product, &columns).expect("values"), [Value::Null, Value::Decimal(1)]);
}

#[test]
fn a_product_that_does_not_fit_is_an_error_and_never_wraps() {
    for (precision, value) in
        [(38, 10_i128.pow(20)), (38, i128::MAX), (38, -(10_i128.pow(19)) * 2), (18, 10_i128.pow(10))]
    {
        let columns = vec![(decimal(precision, 0), vec![Value::Decimal(1), Value::Decimal(value)])];
        let operand = || column(0, decimal(precision, 0));
        let product = Expression::call(Function::Multiply, vec![operand(), operand()], decimal(precision, 0));
        let error = run(&product, &columns).expect_err("too many digits");
        assert_eq!(error.kind, ErrorKind::NumericOutOfRange);
        assert!(error.message.contains(&format!("{precision} digits")), "{}", error.message);
    }
}

#[test]
fn a_field_overflow_says_what_the_field_holds() {
    let columns = vec![(decimal(10, 4), vec![Value::Decimal(10_000_000)])];
    let cast = Expression::call(Function::Cast, vec![column(0, decimal(10, 4))], decimal(5, 2));
    let error = run(&cast, &columns).expect_err("four digits before the point");
    assert_eq!(error.message, "numeric field overflow");
    assert!(
        error.detail.is_some_and(|detail| detail.contains("precision 5, scale 2") && detail.contains("10^3"))
    );
}

#[test]
fn a_column_is_passed_through_without_a_launch() {
    let device = Device::new();
    let columns = divisors();
    let program = Program::compile(&[divisor(), divisor()], &input_of(&columns), &[]).expect("a program");
    let chunk = device.chunk(&columns, 5);
    let results = program.evaluate(&device.queue, &chunk).expect("columns");
    assert!(results.iter().all(|result| result.values.address() == chunk.columns[0].values.address()));
}

#[test]
fn outputs_are_in_the_order_of_the_expressions() {
    let device = Device::new();
    let columns = vec![
        (DataType::Int32, integers(&[Some(1), None])),
        (DataType::Text, vec![Value::Text("b".into()); 2]),
    ];
    let sum = Expression::call(Function::Add, vec![divisor(), divisor()], DataType::Int32);
    let is_b = Expression::predicate(Function::Equal, vec![column(1, DataType::Text), text("b")]);
    let expressions = [sum, column(1, DataType::Text), is_b, Expression::int32(3)];
    let program = Program::compile(&expressions, &input_of(&columns), &[]).expect("a program");
    let chunk = device.chunk(&columns, 2);
    for _ in 0..2 {
        let results = program.evaluate(&device.queue, &chunk).expect("columns");
        let values: Vec<Vec<Value>> = results.iter().map(|result| device.values(result, 2)).collect();
        assert_eq!(values[0], integers(&[Some(2), None]));
        assert_eq!(values[1], vec![Value::Text("b".into()); 2]);
        assert_eq!(values[2], booleans(&[Some(true), Some(true)]));
        assert_eq!(values[3], integers(&[Some(3), Some(3)]));
        let validity: Vec<bool> = results.iter().map(|result| result.validity.is_some()).collect();
        assert_eq!(validity, [true, false, false, false], "only where a NULL can be");
    }
}

#[test]
fn no_rows_are_no_error() {
    let columns = vec![(DataType::Int32, Vec::new())];
    assert_eq!(run(&quotient(), &columns).expect("no rows"), []);
}

#[test]
fn many_blocks_of_rows_are_all_evaluated() {
    let row_count = 100_003;
    let values: Vec<i64> = (0..row_count).collect();
    let columns = vec![(DataType::Int64, values.iter().map(|value| Value::Int(*value)).collect())];
    let value = || column(0, DataType::Int64);
    let square = Expression::call(Function::Multiply, vec![value(), value()], DataType::Int64);
    let expected: Vec<Value> = values.iter().map(|value| Value::Int(value * value)).collect();
    assert_eq!(run(&square, &columns).expect("values"), expected);
}

/// ((c0 * 1 + c0 * 2) + c0 * 3) + … with every product alive until the end.
fn many_products(count: i64) -> Expression {
    let value = || column(0, DataType::Int64);
    let product = |factor| {
        let factor = Expression::literal(Value::Int(factor), DataType::Int64);
        Expression::call(Function::Multiply, vec![value(), factor], DataType::Int64)
    };
    (2..=count).rev().fold(product(1), |sum, factor| {
        Expression::call(Function::Add, vec![product(factor), sum], DataType::Int64)
    })
}

#[test]
fn a_program_uses_all_registers_and_refuses_to_need_more() {
    let columns = vec![(DataType::Int64, integers(&[Some(1), Some(10), None]))];
    let expected = |count: i64| {
        let sum = count * (count + 1) / 2;
        integers(&[Some(sum), Some(10 * sum), None])
    };
    for count in [14, 15, 16, 17, 40, 60] {
        assert_eq!(run(&many_products(count), &columns).expect("values"), expected(count));
    }
    let error = run(&many_products(70), &columns).expect_err("too many values at once");
    assert_eq!(error.kind, ErrorKind::NotSupported);
}

#[test]
fn many_conditions_do_not_nest_deep() {
    let condition =
        |value: i32| Expression::predicate(Function::NotEqual, vec![divisor(), Expression::int32(value)]);
    let conditions = (100..20_000).map(condition).collect();
    let all = Expression::predicate(Function::And, conditions);
    let columns = vec![(DataType::Int32, integers(&[Some(-1), Some(19_999), None]))];
    assert_eq!(run(&all, &columns).expect("values"), booleans(&[Some(true), Some(false), None]));
}

#[test]
fn choices_that_nest_too_deep_are_refused() {
    let mut case = quotient();
    for _ in 0..80 {
        case = Expression::Case {
            branches: vec![CaseBranch { condition: not_zero(), result: case }],
            otherwise: None,
            data_type: DataType::Int32,
        };
    }
    assert_eq!(run(&case, &divisors()).expect_err("80 levels").kind, ErrorKind::NotSupported);
}

#[test]
fn an_expression_that_nests_too_deep_is_refused() {
    let mut expression = column(0, DataType::Int64);
    for _ in 0..5_000 {
        expression = Expression::call(Function::Negate, vec![expression], DataType::Int64);
    }
    let columns = vec![(DataType::Int64, integers(&[Some(1)]))];
    assert_eq!(run(&expression, &columns).expect_err("too deep").kind, ErrorKind::NotSupported);
    // Such a tree is also dropped recursively; not here.
    std::mem::forget(expression);
}

#[test]
fn choices_that_all_rows_make_may_nest() {
    let mut nested = divisor();
    for level in 0..200 {
        let condition = Expression::predicate(Function::Equal, vec![divisor(), Expression::int32(level)]);
        nested = Expression::Case {
            branches: vec![CaseBranch { condition, result: Expression::int32(level) }],
            otherwise: Some(Box::new(nested)),
            data_type: DataType::Int32,
        };
        nested = Expression::call(Function::Coalesce, vec![nested, divisor()], DataType::Int32);
    }
    assert_eq!(run(&nested, &divisors()).expect("values"), divisors()[0].1);
}

#[test]
fn long_lists_are_searched() {
    let device = Device::new();
    let is_in = |value: Expression, items: Vec<Expression>| {
        Expression::predicate(Function::In, std::iter::once(value).chain(items).collect())
    };
    let numbers: Vec<Expression> = (0..40_000).map(|value| Expression::int32(value * 2)).collect();
    let columns = vec![(DataType::Int32, integers(&[Some(78_000), Some(78_001), Some(-2), None]))];
    let expression = is_in(divisor(), numbers.clone());
    let expected = booleans(&[Some(true), Some(false), Some(false), None]);
    assert_eq!(device.evaluate(&expression, &columns, 4).expect("values"), expected);
    let with_null = numbers.into_iter().chain([Expression::literal(Value::Null, DataType::Int32)]).collect();
    let expected = booleans(&[Some(true), None, None, None]);
    assert_eq!(device.evaluate(&is_in(divisor(), with_null), &columns, 4).expect("values"), expected);
    let words: Vec<Expression> = ["MAIL", "SHIP", "", "A", "SHIPS", "mail"].map(text).into();
    let column_values = ["SHIP", "SHI", "", "AIR"].map(|word| Value::Text(word.into())).to_vec();
    let expression = is_in(column(0, DataType::Text), words);
    let expected = booleans(&[Some(true), Some(false), Some(true), Some(false)]);
    assert_eq!(
        device.evaluate(&expression, &[(DataType::Text, column_values)], 4).expect("values"),
        expected
    );
}

#[test]
fn a_list_of_numbers_of_another_scale_holds_what_can_be_equal() {
    let items = [(125, 3), (1_300, 4), (7, 0)]
        .map(|(value, scale)| Expression::literal(Value::Decimal(value), decimal(10, scale)));
    let value = column(0, decimal(15, 2));
    let expression = Expression::predicate(Function::In, std::iter::once(value).chain(items).collect());
    let columns = vec![(decimal(15, 2), [12, 13, 700].map(Value::Decimal).to_vec())];
    let expected = booleans(&[Some(false), Some(true), Some(true)]);
    assert_eq!(run(&expression, &columns).expect("values"), expected);
}

#[test]
fn a_numeric_parameter_is_compared_at_its_own_scale() {
    let device = Device::new();
    let columns = vec![(decimal(15, 2), vec![Value::Decimal(12), Value::Decimal(13), Value::Null])];
    let parameter = || Expression::Parameter { index: 0, data_type: DataType::Numeric };
    let bound = |value, scale| Literal::new(Value::Decimal(value), decimal(38, scale));
    let cases = [
        (Function::Equal, bound(125, 3), [Some(false), Some(false), None]),
        (Function::Equal, bound(120_000, 6), [Some(true), Some(false), None]),
        (Function::Less, bound(125, 3), [Some(true), Some(false), None]),
        (Function::GreaterEqual, bound(-125, 3), [Some(true), Some(true), None]),
        (Function::NotEqual, bound(125, 3), [Some(true), Some(true), None]),
        (Function::IsDistinctFrom, bound(125, 3), [Some(true), Some(true), Some(true)]),
        (Function::Less, bound(10_i128.pow(37), 0), [Some(true), Some(true), None]),
        (Function::Greater, Literal::new(Value::Null, DataType::Numeric), [None, None, None]),
    ];
    for (function, literal, expected) in cases {
        let expression = Expression::predicate(function, vec![column(0, decimal(15, 2)), parameter()]);
        let values = device.evaluate_with(&expression, &columns, 3, std::slice::from_ref(&literal));
        assert_eq!(values.expect("values"), booleans(&expected), "{function:?} {literal:?}");
    }
    let missing = Expression::Parameter { index: 3, data_type: DataType::Int32 };
    let error = device.evaluate(&missing, &columns, 3).expect_err("no value");
    assert!(error.message.contains("parameter 3"), "{}", error.message);
}

#[test]
fn made_text_gets_as_much_space_as_it_needs() {
    let device = Device::new();
    let growing: Vec<Value> = (0..600).map(|index| Value::Text("ab".repeat(index))).collect();
    let shrinking: Vec<Value> = growing.iter().rev().cloned().collect();
    let word = || column(0, DataType::Text);
    let call = |function, arguments| Expression::call(function, arguments, DataType::Text);
    let upper = call(Function::Upper(Ctype::Ascii), vec![word()]);
    let twice = call(Function::Concat, vec![upper.clone(), upper]);
    let replaced = call(Function::Replace, vec![twice, text("B"), text("-long-")]);
    for words in [growing, shrinking] {
        let columns = vec![(DataType::Text, words.clone())];
        let values = device.evaluate(&replaced, &columns, 600).expect("values");
        for (word, value) in words.iter().zip(values) {
            let Value::Text(word) = word else { panic!("a text") };
            assert_eq!(value, Value::Text(word.repeat(2).to_uppercase().replace('B', "-long-")));
        }
    }
}

#[test]
fn made_text_outlives_the_chunk_and_the_program() {
    let device = Device::new();
    // The queue's memory for reports stays with it.
    drop(device.queue.zeros::<u32>(1).expect("zeros"));
    let before = device.queue.memory().used_bytes();
    let columns = vec![(DataType::Text, vec![Value::Text("north".into()), Value::Null])];
    let results = {
        let part = Expression::call(
            Function::Substring,
            vec![column(0, DataType::Text), Expression::int32(2), Expression::int32(3)],
            DataType::Text,
        );
        let constant = Expression::call(
            Function::Coalesce,
            vec![column(0, DataType::Text), text("none")],
            DataType::Text,
        );
        let program = Program::compile(&[part, constant], &input_of(&columns), &[]).expect("a program");
        let chunk = device.chunk(&columns, 2);
        program.evaluate(&device.queue, &chunk).expect("columns")
    };
    assert_eq!(device.values(&results[0], 2), [Value::Text("ort".into()), Value::Null]);
    assert_eq!(device.values(&results[1], 2), [Value::Text("north".into()), Value::Text("none".into())]);
    drop(results);
    assert_eq!(device.queue.memory().used_bytes(), before);
}

#[test]
fn a_pattern_of_many_wildcards_is_matched() {
    let columns = vec![(DataType::Text, vec![Value::Text("ab".repeat(2_000))])];
    for pattern in ["%a_".repeat(1_500), "%".repeat(100_000) + "_", "_".repeat(4_000)] {
        let like = Expression::predicate(Function::Like, vec![column(0, DataType::Text), text(&pattern)]);
        assert_eq!(run(&like, &columns).expect("values"), [Value::Bool(true)]);
    }
}

#[test]
fn what_the_device_has_no_function_for_is_refused_by_name() {
    let large = || column(0, decimal(76, 60));
    let real = Expression::call(Function::Cast, vec![large()], DataType::Float32);
    let error = run(&real, &[(decimal(76, 60), vec![Value::Decimal(1)])]).expect_err("perhaps no real");
    assert_eq!(error.kind, ErrorKind::NotSupported);
    assert!(error.message.contains("Cast of numeric(76,60)"), "{}", error.message);
    let input = [(ColumnId(0), decimal(77, 10))];
    let is_null = Expression::predicate(Function::IsNull, vec![column(0, decimal(77, 10))]);
    let error = Program::compile(&[is_null], &input, &[]).err().expect("a column of 77 digits");
    assert_eq!(error.kind, ErrorKind::NotSupported);
    assert!(CellType::of(&decimal(76, 0)).is_ok());
}

#[test]
fn a_launch_that_cannot_fail_needs_no_status() {
    let device = Device::new();
    let columns = vec![(DataType::Int32, integers(&[Some(4), None]))];
    let flags = device.filter(&greater_than_three(divisor()), &columns, 2).expect("flags");
    assert_eq!(flags, [true, false]);
}
