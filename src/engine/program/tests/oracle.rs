//! Decimals against integers of any size, on random operands.

use num_bigint::BigInt;
use pystachio_plan::{DataType, ErrorKind, Expression, Function, Value};

use super::{Device, column, decimal};

/// Numbers of all sizes, from a seed: xorshift, Marsaglia, "Xorshift RNGs", 2003.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A decimal of at most 38 digits, with any count of digits alike; often round, small or on an edge.
    fn decimal(&mut self) -> i128 {
        let digits = self.below(39) as u32;
        let bound = 10_i128.pow(digits);
        let value = (i128::from(self.next()) << 63 | i128::from(self.next() >> 1)) % bound;
        let value = match self.below(8) {
            0 => bound - 1,
            1 => bound,
            2 => value - value % 10_i128.pow(digits / 2),
            3 => i128::from(self.below(20)),
            _ => value,
        };
        let value = value.min(10_i128.pow(38) - 1);
        if self.below(2) == 0 { -value } else { value }
    }
}

const ROUNDS: usize = 150;
const ROWS: usize = 64;

/// Evaluates a function for random operands one row at a time where it fails, and compares every row.
fn check(
    function: Function,
    oracle: impl Fn(&BigInt, &BigInt, [u32; 3]) -> Option<BigInt>,
    result_scale: fn(u32, u32, u32) -> u32,
) {
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    let device = Device::new();
    let mut random = Random(seed);
    for _ in 0..ROUNDS {
        let (a_scale, b_scale) = (random.below(39) as u32, random.below(39) as u32);
        let scale = result_scale(a_scale, b_scale, random.below(39) as u32);
        if scale > 38 {
            continue;
        }
        let rows: Vec<(i128, i128)> = (0..ROWS).map(|_| (random.decimal(), random.decimal())).collect();
        let wanted: Vec<Option<i128>> = rows
            .iter()
            .map(|(a, b)| oracle(&BigInt::from(*a), &BigInt::from(*b), [a_scale, b_scale, scale]))
            .map(|value| value.and_then(|value| i128::try_from(value).ok()))
            .collect();
        let mut arguments =
            vec![column(0, decimal(38, a_scale as u8)), column(1, decimal(38, b_scale as u8))];
        let result = match function {
            Function::Less => DataType::Bool,
            _ => decimal(38, scale as u8),
        };
        if function == Function::DivideDecimal {
            arguments.push(Expression::int32(scale as i32));
        }
        let expression = Expression::call(function, arguments, result);
        let columns_of = |rows: &[(i128, i128)]| {
            vec![
                (decimal(38, a_scale as u8), rows.iter().map(|row| Value::Decimal(row.0)).collect()),
                (decimal(38, b_scale as u8), rows.iter().map(|row| Value::Decimal(row.1)).collect()),
            ]
        };
        let (fitting, failing): (Vec<_>, Vec<_>) =
            rows.iter().zip(&wanted).partition(|(_, wanted)| wanted.is_some());
        let fitting_rows: Vec<(i128, i128)> = fitting.iter().map(|(row, _)| **row).collect();
        let actual = device.evaluate(&expression, &columns_of(&fitting_rows), fitting_rows.len());
        let actual = actual.expect("values that fit");
        for ((row, wanted), actual) in fitting.iter().zip(actual) {
            let actual = match actual {
                Value::Decimal(value) => value,
                Value::Bool(value) => i128::from(value),
                other => panic!("{other:?}"),
            };
            assert_eq!(Some(actual), **wanted, "{function:?} {row:?} at {a_scale}, {b_scale}, {scale}");
        }
        for (row, _) in failing.iter().take(4) {
            let error = device.evaluate(&expression, &columns_of(&[**row]), 1).expect_err("no value");
            let kind = if row.1 == 0 { ErrorKind::DivisionByZero } else { ErrorKind::NumericOutOfRange };
            let may_be = [kind, ErrorKind::NumericOutOfRange];
            assert!(may_be.contains(&error.kind), "{function:?} {row:?}: {error:?}");
        }
    }
}

fn power(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

/// Half away from zero.
fn divide(a: &BigInt, b: &BigInt) -> BigInt {
    let negative = (a < &BigInt::ZERO) != (b < &BigInt::ZERO);
    let (a, b) = (BigInt::from(a.magnitude().clone()), BigInt::from(b.magnitude().clone()));
    let quotient: BigInt = (&a * 2 + &b) / (&b * 2);
    if negative { -quotient } else { quotient }
}

#[test]
fn quotients_are_exact() {
    check(
        Function::DivideDecimal,
        |a, b, [a_scale, b_scale, scale]| {
            (*b != BigInt::ZERO).then(|| divide(&(a * power(scale + b_scale)), &(b * power(a_scale))))
        },
        |_, _, any| any,
    );
}

#[test]
fn remainders_are_exact() {
    check(
        Function::Modulo,
        |a, b, [a_scale, b_scale, scale]| {
            (*b != BigInt::ZERO).then(|| (a * power(scale - a_scale)) % (b * power(scale - b_scale)))
        },
        |a, b, _| a.max(b),
    );
}

#[test]
fn products_are_exact() {
    check(
        Function::Multiply,
        |a, b, [a_scale, b_scale, scale]| Some(a * b * power(scale - a_scale - b_scale)),
        |a, b, _| a + b,
    );
}

#[test]
fn orders_are_exact() {
    check(
        Function::Less,
        |a, b, [a_scale, b_scale, _]| Some(BigInt::from(u8::from(a * power(b_scale) < b * power(a_scale)))),
        |_, _, _| 0,
    );
}

#[test]
fn floats_are_the_nearest() {
    let device = Device::new();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for scale in 0..=38_u8 {
        let values: Vec<i128> = (0..300).map(|_| random.decimal()).collect();
        let columns = vec![(decimal(38, scale), values.iter().map(|value| Value::Decimal(*value)).collect())];
        for data_type in [DataType::Float64, DataType::Float32] {
            let cast =
                Expression::call(Function::Cast, vec![column(0, decimal(38, scale))], data_type.clone());
            let actual = device.evaluate(&cast, &columns, values.len()).expect("floats");
            for (value, actual) in values.iter().zip(actual) {
                let text = format!("{value}e-{scale}");
                let wanted = match data_type {
                    DataType::Float32 => f64::from(text.parse::<f32>().expect("a float")),
                    _ => text.parse().expect("a float"),
                };
                assert_eq!(actual, Value::Float(wanted), "{text} as {data_type}");
            }
        }
    }
}
