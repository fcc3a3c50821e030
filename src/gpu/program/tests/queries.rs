//! Expressions of TPC-H, as the planner lowers them.

use pystachio_plan::{CaseBranch, DataType, DateField, Expression, Function, Value};

use super::{Device, column, decimal, input_of, text};
use crate::program::{Filter, Program};

fn call(function: Function, arguments: Vec<Expression>, data_type: DataType) -> Expression {
    Expression::call(function, arguments, data_type)
}

fn all(conditions: Vec<Expression>) -> Expression {
    Expression::predicate(Function::And, conditions)
}

fn test(function: Function, a: Expression, b: Expression) -> Expression {
    Expression::predicate(function, vec![a, b])
}

fn number(value: i128, scale: u8) -> Expression {
    Expression::literal(Value::Decimal(value), decimal(12, scale))
}

fn texts(values: &[&str]) -> Vec<Value> {
    values.iter().map(|value| Value::Text((*value).to_owned())).collect()
}

fn decimals(values: &[i128]) -> Vec<Value> {
    values.iter().map(|value| Value::Decimal(*value)).collect()
}

#[test]
fn revenue_and_charge_of_query_1() {
    let device = Device::new();
    for (product, charge) in [(decimal(12, 4), decimal(16, 6)), (decimal(30, 4), decimal(36, 6))] {
        let money = || decimal(15, 2);
        let one = || number(1, 0);
        let kept = call(Function::Subtract, vec![one(), column(1, money())], decimal(16, 2));
        let revenue = call(Function::Multiply, vec![column(0, money()), kept], product.clone());
        let taxed = call(Function::Add, vec![one(), column(2, money())], decimal(16, 2));
        let charge = call(Function::Multiply, vec![revenue.clone(), taxed], charge);
        let columns = vec![
            (money(), decimals(&[10_494_950, 90_001, 1])),
            (money(), decimals(&[10, 0, 7])),
            (money(), decimals(&[8, 0, 1])),
        ];
        let program = Program::compile(&[revenue, charge], &input_of(&columns), &[]).expect("a program");
        let chunk = device.chunk(&columns, 3);
        let results = program.evaluate(&device.queue, &chunk).expect("columns");
        assert_eq!(device.values(&results[0], 3), decimals(&[10_494_950 * 90, 9_000_100, 93]));
        let charges = decimals(&[10_494_950 * 90 * 108, 900_010_000, 93 * 101]);
        assert_eq!(device.values(&results[1], 3), charges);
    }
}

#[test]
fn the_filter_of_query_6() {
    let device = Device::new();
    let money = || decimal(15, 2);
    let date = |days| Expression::literal(Value::Int(days), DataType::Date);
    let condition = all(vec![
        test(Function::GreaterEqual, column(0, DataType::Date), date(8_766)),
        test(Function::Less, column(0, DataType::Date), date(9_131)),
        test(Function::GreaterEqual, column(1, money()), number(5, 2)),
        test(Function::LessEqual, column(1, money()), number(7, 2)),
        test(Function::Less, column(2, money()), number(24, 0)),
    ]);
    let columns = vec![
        (DataType::Date, [8_766, 9_130, 9_131, 8_800, 8_800].map(Value::Int).to_vec()),
        (money(), decimals(&[5, 7, 6, 8, 6])),
        (money(), decimals(&[2_399, 100, 100, 100, 2_400])),
    ];
    let flags = device.filter(&condition, &columns, 5).expect("flags");
    assert_eq!(flags, [true, true, false, false, false]);
}

#[test]
fn the_year_and_the_profit_of_query_9() {
    let device = Device::new();
    let year = call(Function::Extract(DateField::Year), vec![column(0, DataType::Date)], decimal(20, 0));
    let green = test(Function::Like, column(1, DataType::Text), text("%green%"));
    let columns = vec![
        (DataType::Date, [0, 10_440, -1].map(Value::Int).to_vec()),
        (DataType::Text, texts(&["forest green lace", "gree", "green"])),
    ];
    assert_eq!(device.evaluate(&year, &columns, 3).expect("years"), decimals(&[1970, 1998, 1969]));
    assert_eq!(device.filter(&green, &columns, 3).expect("flags"), [true, false, true]);
}

#[test]
fn the_counts_of_query_12_and_the_share_of_query_14() {
    let device = Device::new();
    let priority = || column(0, DataType::Text);
    let urgent = Expression::predicate(
        Function::Or,
        vec![
            test(Function::Equal, priority(), text("1-URGENT")),
            test(Function::Equal, priority(), text("2-HIGH")),
        ],
    );
    let count = Expression::Case {
        branches: vec![CaseBranch { condition: urgent, result: Expression::int32(1) }],
        otherwise: Some(Box::new(Expression::int32(0))),
        data_type: DataType::Int32,
    };
    let promo = Expression::Case {
        branches: vec![CaseBranch {
            condition: test(Function::Like, priority(), text("1%")),
            result: call(Function::Multiply, vec![column(1, decimal(15, 2)), number(150, 2)], decimal(27, 4)),
        }],
        otherwise: Some(Box::new(number(0, 0))),
        data_type: decimal(27, 4),
    };
    let columns = vec![
        (DataType::Text, texts(&["1-URGENT", "2-HIGH", "5-LOW"])),
        (decimal(15, 2), decimals(&[100, 200, 300])),
    ];
    let counts = device.evaluate(&count, &columns, 3).expect("counts");
    assert_eq!(counts, [Value::Int(1), Value::Int(1), Value::Int(0)]);
    assert_eq!(device.evaluate(&promo, &columns, 3).expect("shares"), decimals(&[15_000, 0, 0]));
}

#[test]
fn the_comments_of_query_13_and_the_codes_of_query_22() {
    let device = Device::new();
    let like = test(Function::Like, column(0, DataType::Text), text("%special%requests%"));
    let unusual = Expression::predicate(Function::Not, vec![like]);
    let columns =
        vec![(DataType::Text, texts(&["a special lot of requests", "requests special", "", "13-555"]))];
    assert_eq!(device.filter(&unusual, &columns, 4).expect("flags"), [false, true, true, true]);
    let code = call(
        Function::Substring,
        vec![column(0, DataType::Text), Expression::int32(1), Expression::int32(2)],
        DataType::Text,
    );
    let codes = ["13", "31", "23", "29", "30", "18", "17"].map(text);
    let condition = Expression::predicate(Function::In, std::iter::once(code).chain(codes).collect());
    assert_eq!(device.filter(&condition, &columns, 4).expect("flags"), [false, false, false, true]);
}

#[test]
fn the_alternatives_of_query_19() {
    let device = Device::new();
    let alternative = |brand: &str, containers: [&str; 4], low: i128, size: i32| {
        let container = column(1, DataType::Text);
        let containers = std::iter::once(container).chain(containers.map(text)).collect();
        all(vec![
            test(Function::Equal, column(0, DataType::Text), text(brand)),
            Expression::predicate(Function::In, containers),
            test(Function::GreaterEqual, column(2, decimal(15, 2)), number(low, 0)),
            test(Function::LessEqual, column(2, decimal(15, 2)), number(low + 10, 0)),
            test(Function::GreaterEqual, column(3, DataType::Int32), Expression::int32(1)),
            test(Function::LessEqual, column(3, DataType::Int32), Expression::int32(size)),
        ])
    };
    let condition = Expression::predicate(
        Function::Or,
        vec![
            alternative("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5),
            alternative("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10),
            alternative("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15),
        ],
    );
    let columns = vec![
        (DataType::Text, texts(&["Brand#12", "Brand#23", "Brand#34", "Brand#12", "Brand#23"])),
        (DataType::Text, texts(&["SM BOX", "MED PACK", "LG PKG", "MED BOX", "MED BAG"])),
        (decimal(15, 2), decimals(&[1_100, 2_000, 3_001, 500, 1_000])),
        (DataType::Int32, [5, 10, 15, 1, 11].map(Value::Int).to_vec()),
    ];
    let flags = device.filter(&condition, &columns, 5).expect("flags");
    assert_eq!(flags, [true, true, false, false, false]);
}

/// A quotient as the planner lowers it: its digits and how many of them are shown.
fn quotient(
    (dividend, dividend_scale): (Expression, i32),
    (divisor, divisor_scale): (Expression, i32),
    data_type: DataType,
) -> [Expression; 2] {
    let (a_shown, b_shown) = (Expression::int32(dividend_scale), Expression::int32(divisor_scale));
    let choice = vec![dividend.clone(), a_shown, divisor.clone(), b_shown];
    let scale = call(Function::QuotientScale, choice, DataType::Int32);
    [call(Function::DivideDecimal, vec![dividend, divisor, scale.clone()], data_type), scale]
}

#[test]
fn the_sums_and_averages_of_query_1() {
    let device = Device::new();
    let sum = |index, scale| column(index, decimal(38, scale));
    let count = || call(Function::Cast, vec![column(4, DataType::Int64)], decimal(13, 0));
    let mut expressions = vec![sum(0, 2), sum(1, 2), sum(3, 6), column(4, DataType::Int64)];
    for (index, precision) in [(0, 38), (1, 42), (2, 38)] {
        expressions.extend(quotient((sum(index, 2), 2), (count(), 0), decimal(precision, 36)));
    }
    let columns = vec![
        (decimal(38, 2), decimals(&[3_773_410_700])),
        (decimal(38, 2), decimals(&[5_658_655_440_073])),
        (decimal(38, 2), decimals(&[7_390_291])),
        (decimal(38, 6), decimals(&[55_909_065_222_827_692])),
        (DataType::Int64, vec![Value::Int(1_478_493)]),
    ];
    let program = Program::compile(&expressions, &input_of(&columns), &[]).expect("a program");
    let results = program.evaluate(&device.queue, &device.chunk(&columns, 1)).expect("columns");
    let values: Vec<Value> = results.iter().flat_map(|result| device.values(result, 1)).collect();
    // 25.5220058532573370 and 38273.129734621672 are what PostgreSQL prints, and 0.04998529583839761162.
    assert_eq!(values[4..6], [Value::Decimal(255_220_058_532_573_370 * 10_i128.pow(20)), Value::Int(16)]);
    let price = Value::Text(format!("38273129734621672{}", "0".repeat(24)));
    assert_eq!(values[6..8], [price, Value::Int(12)]);
    assert_eq!(values[8..], [Value::Decimal(4_998_529_583_839_761_162 * 10_i128.pow(16)), Value::Int(20)]);
}

/// Comparisons of integers have a kernel of their own: it passes the rows that the interpreter finds true.
#[test]
fn conditions_of_comparisons_pass_the_rows_in_which_they_are_true() {
    let device = Device::new();
    let ends = [i64::MIN, i64::MIN + 1, -3, -1, 0, 1, 2, 3, 7, i64::MAX - 1, i64::MAX];
    let row_count = 5_000;
    let values_of = |least: i64, greatest: i64, seed: usize| -> Vec<Value> {
        let value = |row: usize| match (row * (seed + 3) + row / 13) % 12 {
            11 => Value::Null,
            place => Value::Int(ends[place].clamp(least, greatest)),
        };
        (0..row_count).map(value).collect()
    };
    let columns = vec![
        (DataType::Int16, values_of(i16::MIN.into(), i16::MAX.into(), 0)),
        (DataType::Int32, values_of(i32::MIN.into(), i32::MAX.into(), 1)),
        (DataType::Int64, values_of(i64::MIN, i64::MAX, 2)),
        (DataType::Int64, values_of(i64::MIN, i64::MAX, 3)),
        (
            DataType::Bool,
            (0..row_count)
                .map(|row| {
                    [Value::Null, Value::Bool(row % 7 < 3), Value::Bool(row % 2 == 0)][row % 3].clone()
                })
                .collect(),
        ),
    ];
    let types = [DataType::Int16, DataType::Int32, DataType::Int64, DataType::Int64, DataType::Bool];
    let operand = |place: u32| column(place, types[place as usize].clone());
    let int64 = |value: i64| Expression::literal(Value::Int(value), DataType::Int64);
    let functions = [
        Function::Equal,
        Function::NotEqual,
        Function::Less,
        Function::LessEqual,
        Function::Greater,
        Function::GreaterEqual,
    ];
    let mut conditions = Vec::new();
    for (number, function) in functions.into_iter().enumerate() {
        for (place, value) in ends.into_iter().enumerate() {
            let own = test(function, operand(2), int64(value));
            let turned = test(function, int64(value), operand(3));
            let narrow = test(
                functions[(number + place) % 6],
                operand(0),
                Expression::literal(Value::Int(place as i64 - 4), DataType::Int16),
            );
            conditions.push(own.clone());
            conditions.push(all(vec![own.clone(), turned]));
            conditions.push(all(vec![narrow, test(function, operand(3), operand(2)), own]));
        }
        conditions.push(test(function, operand(2), operand(3)));
    }
    let small = test(Function::GreaterEqual, operand(1), Expression::int32(-1));
    conditions.push(all(vec![small.clone(), test(Function::Less, operand(1), Expression::int32(7))]));
    conditions.push(all(vec![small.clone(), test(Function::Less, operand(1), Expression::int32(-5))]));
    conditions.push(operand(4));
    conditions.push(all(vec![operand(4), small.clone()]));
    let input = input_of(&columns);
    let chunk = device.chunk(&columns, row_count);
    let mut tested = 0;
    for condition in conditions {
        let filter = Filter::compile(&condition, &input, &[]).expect("a condition");
        tested += usize::from(filter.terms.is_some());
        let flags = filter.evaluate(&device.queue, &chunk).expect("flags");
        let flags: Vec<u8> = device.queue.download(&flags.values, row_count).expect("flags");
        let program = Program::compile(std::slice::from_ref(&condition), &input, &[]).expect("a program");
        let expected = program.evaluate(&device.queue, &chunk).expect("values");
        let expected = device.values(&expected[0], row_count);
        let expected: Vec<u8> = expected.iter().map(|value| u8::from(*value == Value::Bool(true))).collect();
        assert!(flags == expected, "{condition:?}");
    }
    // All but those with <> of a constant.
    assert!(tested > 130, "{tested}");
}
