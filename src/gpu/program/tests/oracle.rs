//! Decimals of 128 and of 256 bits against integers of any size, on random operands.

use arrow::datatypes::i256;
use num_bigint::BigInt;
use pystachio_plan::{DataType, ErrorKind, Expression, Function, Value};

use super::{Device, column, decimal, decimal_value, digits_of};

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

    /// A decimal of at most `digits_max` digits, with any count of digits alike; often round, small or on an edge.
    fn decimal(&mut self, digits_max: u8) -> BigInt {
        let digits = self.below(u64::from(digits_max) + 1) as u32;
        let bound = power(digits);
        let value = (0..4).fold(BigInt::ZERO, |value, _| (value << 64) + self.next()) % &bound;
        let value = match self.below(8) {
            0 => bound - 1,
            1 => bound,
            2 => &value - &value % power(digits / 2),
            3 => BigInt::from(self.below(20)),
            _ => value,
        };
        let value = value.min(power(digits_max.into()) - 1);
        if self.below(2) == 0 { -value } else { value }
    }
}

/// A function of two integers.
type Oracle = fn(&BigInt, &BigInt) -> BigInt;

/// The integer, if a decimal of so many digits has the bits for it.
fn held(value: &BigInt, digits: u8) -> Option<i256> {
    let bytes = value.to_signed_bytes_le();
    let fill = if *value < BigInt::ZERO { 0xff } else { 0 };
    let mut all = [fill; 32];
    all.get_mut(..bytes.len())?.copy_from_slice(&bytes);
    let value = i256::from_le_bytes(all);
    (digits > 38 || value.to_i128().is_some()).then_some(value)
}

fn value_of(number: &BigInt) -> Value {
    decimal_value(held(number, 76).expect("at most 76 digits"))
}

const ROUNDS: usize = 150;
const ROWS: usize = 64;

/// [`check_digits`] of decimals of 38 and of 76 digits.
fn check(
    function: Function,
    oracle: impl Fn(&BigInt, &BigInt, [u32; 3]) -> Option<BigInt>,
    result_scale: fn(u32, u32, u32) -> u32,
) {
    for digits in [38, 76] {
        check_digits(digits, function, &oracle, result_scale);
    }
}

/// Evaluates a function for random operands one row at a time where it fails, and compares every row.
fn check_digits(
    digits: u8,
    function: Function,
    oracle: &impl Fn(&BigInt, &BigInt, [u32; 3]) -> Option<BigInt>,
    result_scale: fn(u32, u32, u32) -> u32,
) {
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}, {digits} digits");
    let device = Device::new();
    let mut random = Random(seed);
    for _ in 0..ROUNDS {
        let mut any_scale = || random.below(u64::from(digits) + 1) as u32;
        let (a_scale, b_scale) = (any_scale(), any_scale());
        let scale = result_scale(a_scale, b_scale, any_scale());
        if scale > digits.into() {
            continue;
        }
        let rows: Vec<(BigInt, BigInt)> =
            (0..ROWS).map(|_| (random.decimal(digits), random.decimal(digits))).collect();
        let wanted: Vec<Option<i256>> = rows
            .iter()
            .map(|(a, b)| oracle(a, b, [a_scale, b_scale, scale]))
            .map(|value| value.and_then(|value| held(&value, digits)))
            .collect();
        let (a_type, b_type) = (decimal(digits, a_scale as u8), decimal(digits, b_scale as u8));
        let mut arguments = vec![column(0, a_type.clone()), column(1, b_type.clone())];
        let result = match function {
            Function::Less => DataType::Bool,
            _ => decimal(digits, scale as u8),
        };
        if function == Function::DivideDecimal {
            arguments.push(Expression::int32(scale as i32));
        }
        let expression = Expression::call(function, arguments, result);
        let columns_of = |rows: &[&(BigInt, BigInt)]| {
            vec![
                (a_type.clone(), rows.iter().map(|row| value_of(&row.0)).collect()),
                (b_type.clone(), rows.iter().map(|row| value_of(&row.1)).collect()),
            ]
        };
        let (fitting, failing): (Vec<_>, Vec<_>) =
            rows.iter().zip(&wanted).partition(|(_, wanted)| wanted.is_some());
        let fitting_rows: Vec<&(BigInt, BigInt)> = fitting.iter().map(|(row, _)| *row).collect();
        let actual = device.evaluate(&expression, &columns_of(&fitting_rows), fitting_rows.len());
        let actual = actual.expect("values that fit");
        for ((row, wanted), actual) in fitting.iter().zip(actual) {
            let actual = match actual {
                Value::Bool(value) => i256::from(i32::from(value)),
                other => digits_of(&other),
            };
            assert_eq!(Some(actual), **wanted, "{function:?} {row:?} at {a_scale}, {b_scale}, {scale}");
        }
        for (row, _) in failing.iter().take(4) {
            let error = device.evaluate(&expression, &columns_of(&[row]), 1).expect_err("no value");
            let is_zero = row.1 == BigInt::ZERO;
            let kind = if is_zero { ErrorKind::DivisionByZero } else { ErrorKind::NumericOutOfRange };
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
fn sums_and_differences_are_exact() {
    let device = Device::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for digits in [38, 76] {
        let operand = |index| column(index, decimal(digits, 0));
        for (function, sign) in [(Function::Add, 1), (Function::Subtract, -1)] {
            let expression = Expression::call(function, vec![operand(0), operand(1)], decimal(digits, 0));
            for _ in 0..2_000 {
                let (a, b) = (random.decimal(digits), random.decimal(digits));
                let columns =
                    vec![(decimal(digits, 0), vec![value_of(&a)]), (decimal(digits, 0), vec![value_of(&b)])];
                let actual = device.evaluate(&expression, &columns, 1);
                match held(&(&a + &b * sign), digits) {
                    Some(wanted) => assert_eq!(actual.expect("a sum"), [decimal_value(wanted)], "{a} {b}"),
                    None => {
                        assert_eq!(actual.expect_err("no sum").kind, ErrorKind::NumericOutOfRange, "{a} {b}");
                    }
                }
            }
        }
    }
}

#[test]
fn roundings_are_exact() {
    let device = Device::new();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for digits in [38, 76_u8] {
        for _ in 0..ROUNDS {
            let scale = random.below(u64::from(digits) + 1) as u32;
            let kept = random.below(u64::from(scale) + 1) as u32;
            let rows: Vec<BigInt> = (0..ROWS).map(|_| random.decimal(digits)).collect();
            let columns = vec![(decimal(digits, scale as u8), rows.iter().map(value_of).collect())];
            let arguments = vec![column(0, decimal(digits, scale as u8)), Expression::int32(kept as i32)];
            let unit = power(scale - kept);
            let oracles: [(Function, Oracle); 2] =
                [(Function::Round, divide), (Function::Truncate, |value, unit| value / unit)];
            for (function, oracle) in oracles {
                let rounded = Expression::call(function, arguments.clone(), decimal(digits, kept as u8));
                let actual = device.evaluate(&rounded, &columns, ROWS).expect("values");
                for (row, actual) in rows.iter().zip(actual) {
                    assert_eq!(
                        actual,
                        value_of(&oracle(row, &unit)),
                        "{function:?} {row} at {scale}, {kept}"
                    );
                }
            }
            // As a cast to another width, back and forth.
            let other = decimal(114 - digits, kept as u8);
            let cast = Expression::call(Function::Cast, vec![column(0, columns[0].0.clone())], other);
            let fitting = |row: &BigInt| {
                let limit = power(u32::from(114 - digits));
                divide(row, &unit).magnitude() < limit.magnitude()
            };
            let rows: Vec<BigInt> = rows.into_iter().filter(fitting).collect();
            let columns = vec![(columns[0].0.clone(), rows.iter().map(value_of).collect())];
            if kept > 38 {
                continue;
            }
            let actual = device.evaluate(&cast, &columns, rows.len()).expect("values");
            for (row, actual) in rows.iter().zip(actual) {
                assert_eq!(actual, value_of(&divide(row, &unit)), "{row} at {scale} as {kept}");
            }
        }
    }
}

#[test]
fn floats_are_the_nearest() {
    let device = Device::new();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for (digits, scale) in (0..=38).map(|scale| (38, scale)).chain((0..=76).map(|scale| (76, scale))) {
        let data_type = decimal(digits, scale);
        let values: Vec<BigInt> = (0..300).map(|_| random.decimal(digits)).collect();
        let columns = vec![(data_type.clone(), values.iter().map(value_of).collect())];
        for float in [DataType::Float64, DataType::Float32] {
            let cast = Expression::call(Function::Cast, vec![column(0, data_type.clone())], float.clone());
            let actual = match device.evaluate(&cast, &columns, values.len()) {
                // Some of the values are no `real`.
                Err(error) if error.kind == ErrorKind::NotSupported => {
                    assert!(float == DataType::Float32 && !(38..=44).contains(&scale) && digits > 38);
                    continue;
                }
                actual => actual.expect("floats"),
            };
            for (value, actual) in values.iter().zip(actual) {
                let text = format!("{value}e-{scale}");
                let wanted = match float {
                    DataType::Float32 => f64::from(text.parse::<f32>().expect("a float")),
                    _ => text.parse().expect("a float"),
                };
                assert_eq!(actual, Value::Float(wanted), "{text} as {float}");
            }
        }
    }
}
