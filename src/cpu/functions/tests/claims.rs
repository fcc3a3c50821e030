//! What the case files cannot say: what is not evaluated, what stays native, parameters, bounds.

use std::sync::Arc;

use crate::datafusion::logical_expr::Expr;
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int32Array, Int64Array, StringViewArray,
    },
    buffer::NullBuffer,
    datatypes::{DataType as ArrowType, Decimal128Type, Field, Int32Type, Schema, SchemaRef},
};
use num_bigint::BigInt;
use pystachio_plan::{
    CaseBranch, ColumnId, Ctype, DataType, ErrorKind, Expression, Function, Literal, LocaleName, Result,
    Value,
};

use super::{evaluate, evaluate_with};
use crate::functions::{LoweringInput, lower_expression};

fn schema(types: &[ArrowType]) -> SchemaRef {
    let field = |(index, data_type): (usize, &ArrowType)| {
        Field::new(crate::column_name(ColumnId(index as u32)), data_type.clone(), true)
    };
    Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()))
}

fn column(id: u32, data_type: DataType) -> Expression {
    Expression::column(ColumnId(id), data_type)
}

fn run(expression: &Expression, columns: Vec<ArrayRef>) -> Result<ArrayRef> {
    let types: Vec<ArrowType> = columns.iter().map(|column| column.data_type().clone()).collect();
    let rows = columns.first().map_or(1, |column| column.len());
    evaluate(expression, &schema(&types), columns, rows)
}

fn lowered(expression: &Expression, types: &[ArrowType]) -> String {
    let schema = schema(types);
    let input = LoweringInput { schema: &schema, parameters: &[] };
    lower_expression(expression, &input).expect("an expression").to_string()
}

fn quotient() -> Expression {
    Expression::call(
        Function::Divide,
        vec![Expression::int32(10), column(0, DataType::Int32)],
        DataType::Int32,
    )
}

fn divisors() -> Vec<ArrayRef> {
    vec![Arc::new(Int32Array::from(vec![Some(0), Some(5), None, Some(2), Some(0)]))]
}

fn not_zero() -> Expression {
    Expression::predicate(Function::NotEqual, vec![column(0, DataType::Int32), Expression::int32(0)])
}

fn greater_than_three(value: Expression) -> Expression {
    Expression::predicate(Function::Greater, vec![value, Expression::int32(3)])
}

fn booleans(array: &ArrayRef) -> Vec<Option<bool>> {
    array.as_boolean().iter().collect()
}

#[test]
fn a_division_fails_for_the_row_that_reaches_it() {
    let error = run(&quotient(), divisors()).expect_err("a zero divisor");
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::DivisionByZero, "division by zero"));
}

#[test]
fn case_does_not_evaluate_a_branch_for_other_rows() {
    for otherwise in [None, Some(Box::new(Expression::int32(-1)))] {
        let expected = if otherwise.is_some() { Some(-1) } else { None };
        let case = Expression::Case {
            branches: vec![CaseBranch { condition: not_zero(), result: quotient() }],
            otherwise,
            data_type: DataType::Int32,
        };
        let values: Vec<Option<i32>> =
            run(&case, divisors()).expect("values").as_primitive::<Int32Type>().iter().collect();
        assert_eq!(values, [expected, Some(2), expected, Some(5), expected]);
    }
}

#[test]
fn case_with_boolean_results_does_not_evaluate_a_branch_for_other_rows() {
    let zero = Expression::predicate(Function::Not, vec![not_zero()]);
    let case = Expression::Case {
        branches: vec![CaseBranch {
            condition: zero,
            result: Expression::literal(Value::Bool(true), DataType::Bool),
        }],
        otherwise: Some(Box::new(greater_than_three(quotient()))),
        data_type: DataType::Bool,
    };
    let values = booleans(&run(&case, divisors()).expect("values"));
    assert_eq!(values, [Some(true), Some(false), None, Some(true), Some(true)]);
}

#[test]
fn and_does_not_evaluate_what_may_fail_for_decided_rows() {
    let both = Expression::predicate(Function::And, vec![not_zero(), greater_than_three(quotient())]);
    let values = booleans(&run(&both, divisors()).expect("values"));
    assert_eq!(values, [Some(false), Some(false), None, Some(true), Some(false)]);
}

#[test]
fn or_does_not_evaluate_what_may_fail_for_decided_rows() {
    let zero = Expression::predicate(Function::Not, vec![not_zero()]);
    let either = Expression::predicate(Function::Or, vec![zero, greater_than_three(quotient())]);
    let values = booleans(&run(&either, divisors()).expect("values"));
    assert_eq!(values, [Some(true), Some(false), None, Some(true), Some(true)]);
}

#[test]
fn coalesce_does_not_evaluate_what_may_fail_for_decided_rows() {
    let first = Expression::call(
        Function::NullIf,
        vec![Expression::int32(7), column(1, DataType::Int32)],
        DataType::Int32,
    );
    let expression = Expression::call(Function::Coalesce, vec![first, quotient()], DataType::Int32);
    let mut columns = divisors();
    columns.push(Arc::new(Int32Array::from(vec![1, 7, 7, 1, 1])));
    let values: Vec<Option<i32>> =
        run(&expression, columns).expect("values").as_primitive::<Int32Type>().iter().collect();
    assert_eq!(values, [Some(7), Some(2), None, Some(7), Some(7)]);
}

#[test]
fn a_constant_that_fails_fails_only_for_a_row() {
    let failing =
        Expression::call(Function::Divide, vec![Expression::int32(1), Expression::int32(0)], DataType::Int32);
    let case = Expression::Case {
        branches: vec![CaseBranch { condition: not_zero(), result: failing }],
        otherwise: None,
        data_type: DataType::Int32,
    };
    let zeros: ArrayRef = Arc::new(Int32Array::from(vec![0, 0]));
    assert_eq!(run(&case, vec![zeros]).expect("no row takes the branch").null_count(), 2);
    let error = run(&case, divisors()).expect_err("a row takes the branch");
    assert_eq!(error.kind, ErrorKind::DivisionByZero);
}

#[test]
fn null_slots_never_fail_whatever_they_hold() {
    let nulls = NullBuffer::from(vec![false, true]);
    let zeros: ArrayRef = Arc::new(Int32Array::new(vec![0, 5].into(), Some(nulls.clone())));
    assert_eq!(run(&quotient(), vec![zeros]).expect("values").null_count(), 1);
    let decimal = DataType::Decimal { precision: 38, scale: 0 };
    let divide = Expression::call(
        Function::DivideDecimal,
        vec![
            Expression::literal(Value::Decimal(1), decimal.clone()),
            column(0, decimal.clone()),
            Expression::int32(0),
        ],
        decimal.clone(),
    );
    let zeros = Decimal128Array::new(vec![0, 1].into(), Some(nulls.clone()));
    let zeros: ArrayRef = Arc::new(zeros.with_precision_and_scale(38, 0).expect("a decimal"));
    assert_eq!(run(&divide, vec![zeros]).expect("values").null_count(), 1);
    let multiply = Expression::call(
        Function::Multiply,
        vec![column(0, decimal.clone()), column(0, decimal.clone())],
        decimal,
    );
    let huge = Decimal128Array::new(vec![i128::MAX, 1].into(), Some(nulls));
    let huge: ArrayRef = Arc::new(huge.with_precision_and_scale(38, 0).expect("a decimal"));
    assert_eq!(run(&multiply, vec![huge]).expect("values").null_count(), 1);
}

#[test]
fn a_product_that_does_not_fit_is_an_error_and_never_wraps() {
    let decimal = DataType::Decimal { precision: 38, scale: 0 };
    let multiply = Expression::call(
        Function::Multiply,
        vec![column(0, decimal.clone()), column(0, decimal.clone())],
        decimal,
    );
    let huge = Decimal128Array::from(vec![1, 10_i128.pow(20)]);
    let huge: ArrayRef = Arc::new(huge.with_precision_and_scale(38, 0).expect("a decimal"));
    let error = run(&multiply, vec![huge]).expect_err("41 digits");
    assert_eq!(error.kind, ErrorKind::NumericOutOfRange);
    assert!(error.message.contains(&format!("1{}", "0".repeat(40))), "{}", error.message);
}

#[test]
fn comparisons_with_constants_stay_native_in_the_columns_type() {
    let price = || column(0, DataType::Decimal { precision: 15, scale: 2 });
    let eighth = || Expression::literal(Value::Decimal(125), DataType::Decimal { precision: 3, scale: 3 });
    let decimal = [ArrowType::Decimal128(15, 2)];
    let less = Expression::predicate(Function::Less, vec![price(), eighth()]);
    assert_eq!(lowered(&less, &decimal), "c0 <= Decimal128(0.12,15,2)");
    let greater = Expression::predicate(Function::LessEqual, vec![eighth(), price()]);
    assert_eq!(lowered(&greater, &decimal), "c0 > Decimal128(0.12,15,2)");
    let date = Expression::call(Function::Cast, vec![column(0, DataType::Date)], DataType::Timestamp);
    let midnight = Expression::literal(Value::Int(86_400_000_000), DataType::Timestamp);
    let on = Expression::predicate(Function::LessEqual, vec![date.clone(), midnight]);
    assert_eq!(lowered(&on, &[ArrowType::Date32]), "c0 <= Date32(\"1970-01-02\")");
    let evening = Expression::literal(Value::Int(86_400_000_000 - 1), DataType::Timestamp);
    let after = Expression::predicate(Function::GreaterEqual, vec![date, evening]);
    assert_eq!(lowered(&after, &[ArrowType::Date32]), "c0 > Date32(\"1970-01-01\")");
    let wide = Expression::call(Function::Cast, vec![column(0, DataType::Int32)], DataType::Int64);
    let beyond = Expression::literal(Value::Int(1 << 40), DataType::Int64);
    let below = Expression::predicate(Function::Less, vec![wide, beyond]);
    assert_eq!(lowered(&below, &[ArrowType::Int32]), "c0 <= Int32(2147483647)");
    let text = Expression::predicate(
        Function::Equal,
        vec![column(0, DataType::Text), Expression::literal(Value::Text("x".into()), DataType::Text)],
    );
    assert_eq!(lowered(&text, &[ArrowType::Utf8]), "c0 = Utf8(\"x\")");
    assert_eq!(lowered(&text, &[ArrowType::Utf8View]), "c0 = Utf8View(\"x\")");
}

#[test]
fn comparisons_of_casts_with_constants_have_the_values_of_the_comparison() {
    let days = [Some(-1), Some(0), Some(1), None];
    let column_values: ArrayRef = Arc::new(arrow::array::Date32Array::from(days.to_vec()));
    type Test = fn(i64, i64) -> bool;
    let functions: [(Function, Test); 6] = [
        (Function::Equal, |a, b| a == b),
        (Function::NotEqual, |a, b| a != b),
        (Function::Less, |a, b| a < b),
        (Function::LessEqual, |a, b| a <= b),
        (Function::Greater, |a, b| a > b),
        (Function::GreaterEqual, |a, b| a >= b),
    ];
    for (function, holds) in functions {
        for constant in [-86_400_000_001, -86_400_000_000, -1, 0, 1, 86_400_000_000, i64::MAX, i64::MIN] {
            let date = Expression::call(Function::Cast, vec![column(0, DataType::Date)], DataType::Timestamp);
            let literal = Expression::literal(Value::Int(constant), DataType::Timestamp);
            let expression = Expression::predicate(function, vec![date, literal]);
            let actual = booleans(&run(&expression, vec![Arc::clone(&column_values)]).expect("values"));
            let expected: Vec<Option<bool>> = days
                .iter()
                .map(|day| day.map(|day: i32| holds(i64::from(day) * 86_400_000_000, constant)))
                .collect();
            assert_eq!(actual, expected, "{function:?} {constant}");
        }
    }
}

#[test]
fn a_numeric_parameter_is_compared_at_its_own_scale() {
    let decimal = DataType::Decimal { precision: 15, scale: 2 };
    let values = Decimal128Array::from(vec![Some(12), Some(13), None]);
    let values: ArrayRef = Arc::new(values.with_precision_and_scale(15, 2).expect("a decimal"));
    let parameter = Expression::Parameter { index: 0, data_type: DataType::Numeric };
    let bound =
        |value, scale| Literal::new(Value::Decimal(value), DataType::Decimal { precision: 38, scale });
    let cases = [
        (Function::Equal, bound(125, 3), [Some(false), Some(false), None]),
        (Function::Equal, bound(120_000, 6), [Some(true), Some(false), None]),
        (Function::Less, bound(125, 3), [Some(true), Some(false), None]),
        (Function::NotEqual, bound(125, 3), [Some(true), Some(true), None]),
        (Function::IsDistinctFrom, bound(125, 3), [Some(true), Some(true), Some(true)]),
    ];
    for (function, literal, expected) in cases {
        let expression = Expression::predicate(function, vec![column(0, decimal.clone()), parameter.clone()]);
        let schema = schema(&[ArrowType::Decimal128(15, 2)]);
        let array =
            evaluate_with(&expression, &schema, vec![Arc::clone(&values)], 3, std::slice::from_ref(&literal));
        assert_eq!(booleans(&array.expect("values")), expected, "{function:?} {literal:?}");
    }
    let null = Literal::new(Value::Null, DataType::Numeric);
    let expression = Expression::predicate(Function::Less, vec![column(0, decimal), parameter]);
    let schema = schema(&[ArrowType::Decimal128(15, 2)]);
    let array = evaluate_with(&expression, &schema, vec![values], 3, &[null]).expect("values");
    assert_eq!(booleans(&array), [None, None, None]);
}

#[test]
fn a_parameter_without_a_value_is_refused() {
    let schema = schema(&[]);
    let input = LoweringInput { schema: &schema, parameters: &[] };
    let parameter = Expression::Parameter { index: 3, data_type: DataType::Int32 };
    let error = lower_expression(&parameter, &input).expect_err("no value");
    assert!(error.message.contains("parameter 3"), "{}", error.message);
}

#[test]
fn an_expression_that_nests_too_deep_is_refused() {
    let mut expression = column(0, DataType::Int64);
    for _ in 0..5_000 {
        expression = Expression::call(Function::Negate, vec![expression], DataType::Int64);
    }
    let schema = schema(&[ArrowType::Int64]);
    let input = LoweringInput { schema: &schema, parameters: &[] };
    let error = lower_expression(&expression, &input).expect_err("too deep");
    assert_eq!(error.kind, ErrorKind::NotSupported);
    // Such a tree is also dropped recursively; not here.
    std::mem::forget(expression);
    let value: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    assert!(run(&column(0, DataType::Int64), vec![value]).is_ok(), "the count of levels starts again");
}

#[test]
fn many_conditions_do_not_nest_deep() {
    let conditions: Vec<Expression> = (0..20_000)
        .map(|value| {
            Expression::predicate(
                Function::NotEqual,
                vec![column(0, DataType::Int32), Expression::int32(value)],
            )
        })
        .collect();
    let expression = Expression::predicate(Function::And, conditions);
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(-1), Some(19_999), None]));
    assert_eq!(booleans(&run(&expression, vec![values]).expect("values")), [Some(true), Some(false), None]);
}

#[test]
fn a_pattern_of_many_wildcards_exhausts_no_stack() {
    let text: ArrayRef = Arc::new(StringViewArray::from(vec!["ab".repeat(2_000)]));
    for pattern in ["%a_".repeat(1_500), "%".repeat(100_000) + "_", "_".repeat(4_000)] {
        let like = Expression::predicate(
            Function::Like,
            vec![column(0, DataType::Text), Expression::literal(Value::Text(pattern), DataType::Text)],
        );
        assert_eq!(booleans(&run(&like, vec![Arc::clone(&text)]).expect("values")), [Some(true)]);
    }
}

#[test]
fn simple_patterns_stay_native() {
    let like = |pattern: &str| {
        Expression::predicate(
            Function::Like,
            vec![column(0, DataType::Text), Expression::literal(Value::Text(pattern.into()), DataType::Text)],
        )
    };
    for pattern in ["%BRASS", "forest%", "%green%", "exact"] {
        assert!(lowered(&like(pattern), &[ArrowType::Utf8View]).contains(" LIKE "), "{pattern}");
    }
    assert!(!lowered(&like("%special%requests%"), &[ArrowType::Utf8View]).contains(" LIKE "));
}

#[test]
fn an_unknown_locale_is_refused_by_name() {
    let ctype = Ctype::Libc(LocaleName::new("xx_XX.UTF-8").expect("a name"));
    let text = || column(0, DataType::Text);
    for function in [Function::Upper(ctype), Function::Lower(ctype)] {
        let call = Expression::call(function, vec![text()], DataType::Text);
        let error = run(&call, vec![Arc::new(StringViewArray::from(vec!["a"]))]).expect_err("no such locale");
        assert_eq!(error.kind, ErrorKind::NotSupported);
        assert!(error.message.contains("xx_XX.UTF-8"), "{error}");
    }
    let call = Expression::predicate(Function::ILike(ctype), vec![text(), text()]);
    let error = run(&call, vec![Arc::new(StringViewArray::from(vec!["a"]))]).expect_err("no such locale");
    assert_eq!(error.kind, ErrorKind::NotSupported);
}

#[test]
fn in_with_constants_of_another_scale_keeps_only_what_can_be_equal() {
    let decimal =
        |value, scale| Expression::literal(Value::Decimal(value), DataType::Decimal { precision: 10, scale });
    let x = column(0, DataType::Decimal { precision: 10, scale: 1 });
    let values = Decimal128Array::from(vec![Some(15), Some(20), None]);
    let values: ArrayRef = Arc::new(values.with_precision_and_scale(10, 1).expect("a decimal"));
    let cases = [
        (vec![decimal(150, 2), decimal(1_234, 3)], [Some(true), Some(false), None]),
        (vec![decimal(151, 2), decimal(1_234, 3)], [Some(false), Some(false), None]),
    ];
    for (items, expected) in cases {
        let mut arguments = vec![x.clone()];
        arguments.extend(items);
        let expression = Expression::predicate(Function::In, arguments);
        assert_eq!(booleans(&run(&expression, vec![Arc::clone(&values)]).expect("values")), expected);
    }
}

#[test]
fn quotients_are_those_of_integers_of_any_size() {
    // A linear congruential generator: the same numbers in every run.
    let mut state = 20_261_120_u64;
    let mut next = move |bits: u32| {
        let mut value: i128 = 0;
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value = (value << 42) ^ i128::from(state >> 20);
        }
        value >> (127 - bits)
    };
    for round in 0..3_000_u32 {
        let (a, b) = (next(1 + round % 120), next(1 + (round * 7) % 120));
        let (a_scale, b_scale, scale) = ((round % 20) as u8, (round % 7) as u8, (round % 25) as u8);
        let digits = i128::from(round % (u32::from(scale) + 1));
        if b == 0 {
            continue;
        }
        let literal = |value, scale| {
            Expression::literal(Value::Decimal(value), DataType::Decimal { precision: 38, scale })
        };
        let expression = Expression::call(
            Function::DivideDecimal,
            vec![literal(a, a_scale), literal(b, b_scale), Expression::int32(digits as i32)],
            DataType::Decimal { precision: 76, scale },
        );
        let ten = |exponent: u32| BigInt::from(10).pow(exponent);
        let numerator = BigInt::from(a) * ten(digits as u32 + u32::from(b_scale)) * 2;
        let denominator = BigInt::from(b) * ten(a_scale.into());
        let doubled = &numerator / &denominator;
        let sign = if (a < 0) == (b < 0) { 1 } else { -1 };
        let rounded: BigInt = (doubled + sign) / 2 * ten(u32::from(scale) - digits as u32);
        match run(&expression, Vec::new()) {
            Ok(array) => {
                let value = array.as_primitive::<arrow::datatypes::Decimal256Type>().value(0);
                assert_eq!(value.to_string(), rounded.to_string(), "{a} {b} {a_scale} {b_scale} {digits}");
            }
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::NumericOutOfRange);
                assert!(rounded.magnitude().bits() >= 255, "{rounded} fits: {error}");
            }
        }
    }
}

#[test]
fn a_decimal_keeps_the_type_of_its_call() {
    let value = |scale| column(0, DataType::Decimal { precision: 15, scale });
    let add = Expression::call(
        Function::Add,
        vec![value(2), Expression::literal(Value::Decimal(1), DataType::Decimal { precision: 1, scale: 0 })],
        DataType::Decimal { precision: 16, scale: 2 },
    );
    let values = Decimal128Array::from(vec![5]).with_precision_and_scale(15, 2).expect("a decimal");
    let array = run(&add, vec![Arc::new(values)]).expect("values");
    assert_eq!(*array.data_type(), ArrowType::Decimal128(16, 2));
    assert_eq!(array.as_primitive::<Decimal128Type>().value(0), 105);
}

#[test]
fn a_condition_on_a_boolean_column_is_the_column() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
    assert_eq!(booleans(&run(&column(0, DataType::Bool), vec![flags]).expect("values")), [Some(true), None]);
    let schema = schema(&[ArrowType::Boolean]);
    let input = LoweringInput { schema: &schema, parameters: &[] };
    let expression = lower_expression(&column(0, DataType::Bool), &input).expect("a column");
    assert!(matches!(expression, Expr::Column(_)));
}
