//! Sums are compared with sums of whole numbers of any size.

use arrow::array::{Float32Array, Float64Array};
use num_bigint::BigInt;
use pystachio_engine::deviations::nearest_quotient;

use super::*;

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 << 13)
    }

    /// A finite number whose exponent is one of so many around 1.
    fn float(&mut self, exponents: u64) -> f64 {
        let exponent = 1023 - exponents / 2 + self.next() % exponents;
        let bits = (self.next() << 63) | (exponent.min(2046) << 52) | (self.next() & ((1 << 52) - 1));
        f64::from_bits(bits)
    }
}

/// A finite number as a multiple of 2^-1074.
fn whole(value: f64) -> BigInt {
    let (bits, exponent) = (value.to_bits(), (value.to_bits() >> 52) & 0x7ff);
    let digits = BigInt::from((bits & ((1 << 52) - 1)) | if exponent == 0 { 0 } else { 1 << 52 });
    let digits = digits << (exponent.max(1) - 1);
    if value.is_sign_negative() { -digits } else { digits }
}

/// The nearest double to a multiple of 2^-1074, found by halving: the float whose neighbours are not nearer.
fn nearest(number: &BigInt) -> f64 {
    let (mut low, mut high) = (0_u64, f64::MAX.to_bits());
    let wanted = BigInt::from(number.magnitude().clone());
    while low < high {
        let middle = u64::midpoint(low, high + 1);
        if whole(f64::from_bits(middle)) <= wanted { low = middle } else { high = middle - 1 }
    }
    let below = f64::from_bits(low);
    let above = f64::from_bits(low + 1);
    if !above.is_finite() {
        return if number.sign() == num_bigint::Sign::Minus { -below } else { below };
    }
    let (to_below, to_above) = (&wanted - whole(below), whole(above) - &wanted);
    let value = if to_below < to_above || (to_below == to_above && low % 2 == 0) { below } else { above };
    if number.sign() == num_bigint::Sign::Minus { -value } else { value }
}

fn totals(of: Of, values: &[f64]) -> Totals {
    let mut totals = Totals::new(of, DataType::Float64);
    totals.resize(1);
    totals.add(values.iter().map(|value| (0, *value)));
    totals.finish();
    totals
}

/// The bytes of a group's partial result.
fn state(totals: &Totals, group: usize) -> Option<Vec<u8>> {
    let mut state = Vec::new();
    totals.write_state(group, &mut state).map(|()| state)
}

fn sum(values: &[f64]) -> DataFusionResult<Option<f64>> {
    totals(Of::Sum, values).value(0)
}

fn bits(value: Option<f64>) -> Option<u64> {
    value.map(f64::to_bits)
}

#[test]
fn a_sum_is_the_float_next_to_the_mathematical_one() {
    let mut random = Random(7);
    for exponents in [1, 8, 40, 300, 2000] {
        for count in [1, 2, 3, 17, 400] {
            let values: Vec<f64> = (0..count).map(|_| random.float(exponents)).collect();
            let wanted = nearest(&values.iter().map(|value| whole(*value)).sum());
            let found = sum(&values).unwrap();
            let mut whole = Whole(Totals::new(Of::Sum, DataType::Float64));
            whole.0.resize(1);
            for part in values.chunks(150) {
                whole.update_batch(&[Arc::new(Float64Array::from(part.to_vec()))]).unwrap();
            }
            let ScalarValue::Float64(at_once) = whole.evaluate().unwrap() else { panic!("a float") };
            assert_eq!(bits(at_once), bits(found));
            assert_eq!(
                bits(found),
                bits(Some(wanted)),
                "{count} values of {exponents} exponents: {found:?} {wanted}"
            );
        }
    }
}

#[test]
fn what_is_added_twice_with_both_signs_leaves_the_rest() {
    let mut random = Random(11);
    let mut values: Vec<f64> = (0..1000).map(|_| random.float(2000)).collect();
    values.extend(values.clone().iter().map(|value| -value));
    values.push(1e-300);
    assert_eq!(sum(&values).unwrap(), Some(1e-300));
    values.push(-1e-300);
    assert_eq!(bits(sum(&values).unwrap()), bits(Some(0.0)));
}

fn pairs(values: &[(f64, f64)]) -> Totals {
    let mut totals = Totals::new(Of::Pairs, DataType::Float64);
    totals.resize(1);
    totals.add_pairs(values.iter().map(|(x, y)| (0, *x, *y)));
    totals.finish();
    totals
}

#[test]
fn deviations_of_pairs_are_rounded_once_in_any_order() {
    let mut random = Random(5);
    for exponents in [1, 30, 400, 900] {
        let mut values: Vec<_> =
            (0..200).map(|_| (random.float(exponents), random.float(exponents))).collect();
        values.extend([(0.0, 3.5), (-2.5, -0.0)]);
        let sum = |of: &dyn Fn(&(f64, f64)) -> BigInt| values.iter().map(of).sum::<BigInt>();
        let count = BigInt::from(values.len());
        let (x, y) = (sum(&|pair| whole(pair.0)), sum(&|pair| whole(pair.1)));
        let wanted = &count * sum(&|pair| whole(pair.0) * whole(pair.1)) - x * y;
        let wanted = nearest_quotient(&wanted, &count, Power::Squares.unit());
        let found = pairs(&values).value(0).unwrap();
        assert_eq!(bits(found), bits(Some(wanted)));
        values.reverse();
        let mut merged = Totals::new(Of::Pairs, DataType::Float64);
        merged.resize(1);
        for part in values.chunks(37) {
            merged.add_state(0, &state(&pairs(part), 0).unwrap()).unwrap();
        }
        merged.finish();
        assert_eq!(bits(merged.value(0).unwrap()), bits(found));
        // A value with itself is its square.
        let own: Vec<f64> = values.iter().map(|pair| pair.0).collect();
        let twice: Vec<_> = own.iter().map(|value| (*value, *value)).collect();
        assert_eq!(pairs(&twice).value(0).unwrap(), totals(Of::Deviations, &own).value(0).unwrap());
    }
    assert_eq!(pairs(&[]).value(0).unwrap(), None);
    assert!(pairs(&[(f64::INFINITY, 0.0)]).value(0).unwrap().is_some_and(f64::is_nan));
    assert!(pairs(&[(1e300, 1e300), (-1e300, -1e300)]).value(0).is_err());
}

#[test]
fn no_order_and_no_division_of_the_rows_changes_a_result() {
    let mut random = Random(3);
    for of in [Of::Sum, Of::Deviations] {
        for exponents in [3, 60, 900] {
            let mut values: Vec<f64> = (0..300).map(|_| random.float(exponents)).collect();
            let wanted = totals(of, &values).value(0).unwrap();
            values.reverse();
            let mut merged = Totals::new(of, DataType::Float64);
            merged.resize(1);
            for part in values.chunks(37) {
                let state = state(&totals(of, part), 0).unwrap();
                merged.add_state(0, &state).unwrap();
            }
            merged.finish();
            assert_eq!(bits(merged.value(0).unwrap()), bits(wanted), "{of:?}, {exponents} exponents");
        }
    }
}

#[test]
fn values_that_are_no_finite_numbers_decide_alone() {
    let (infinity, nan) = (f64::INFINITY, f64::NAN);
    let cases = [
        (vec![], None),
        (vec![-0.0], Some(-0.0)),
        (vec![-0.0, -0.0], Some(-0.0)),
        (vec![-0.0, 0.0], Some(0.0)),
        (vec![1.0, -1.0, -0.0], Some(0.0)),
        (vec![1.0, infinity], Some(infinity)),
        (vec![-infinity, 1e308, 1e308], Some(-infinity)),
        (vec![infinity, -infinity], Some(nan)),
        (vec![nan, infinity], Some(nan)),
        (vec![f64::from_bits(1), f64::from_bits(1)], Some(f64::from_bits(2))),
        (vec![1e308, 1e308, -1e308], Some(1e308)),
    ];
    for (values, wanted) in cases {
        let found = sum(&values).unwrap();
        let is_same = bits(found) == bits(wanted)
            || (found.is_some_and(f64::is_nan) && wanted.is_some_and(f64::is_nan));
        assert!(is_same, "{values:?}: {found:?}");
        let mut merged = Totals::new(Of::Sum, DataType::Float64);
        merged.resize(1);
        if let Some(state) = state(&totals(Of::Sum, &values), 0) {
            merged.add_state(0, &state).unwrap();
        }
        merged.finish();
        assert_eq!(format!("{:?}", merged.value(0).unwrap()), format!("{wanted:?}"));
    }
    assert!(sum(&[1e308, 1e308]).unwrap_err().to_string().contains("value out of range: overflow"));
}

#[test]
fn sums_of_single_floats_are_rounded_to_single_once() {
    let mut totals = Totals::new(Of::Sum, DataType::Float32);
    totals.resize(2);
    // Halfway between two floats, and a little more that a double would lose.
    let values: ArrayRef =
        Arc::new(Float32Array::from(vec![16_777_216.0, 1.0, 1e-30, f32::from_bits(1), f32::from_bits(1)]));
    totals.add_array(&values, |row| usize::from(row > 2), None).unwrap();
    totals.finish();
    let results = totals.results(2).unwrap();
    let results = results.as_primitive::<Float32Type>();
    assert_eq!((results.value(0), results.value(1)), (16_777_218.0, f32::from_bits(2)));
    let mut totals = Totals::new(Of::Sum, DataType::Float32);
    totals.resize(1);
    totals.add([(0, f64::from(f32::MAX)), (0, f64::from(f32::MAX))].into_iter());
    totals.finish();
    assert!(totals.results(1).is_err());
}

#[test]
fn deviations_are_exact() {
    let mut random = Random(5);
    let square = |value: &BigInt| value * value;
    for exponents in [1, 30, 400] {
        for count in [1_usize, 2, 5, 200] {
            let values: Vec<f64> = (0..count).map(|_| random.float(exponents)).collect();
            let sum: BigInt = values.iter().map(|value| whole(*value)).sum();
            let squares: BigInt = values.iter().map(|value| square(&whole(*value))).sum();
            let wanted = nearest_quotient(&(squares * count - square(&sum)), &BigInt::from(count), -2148);
            let found = totals(Of::Deviations, &values).value(0).unwrap();
            assert_eq!(bits(found), bits(Some(wanted)));
            if exponents == 1 {
                let mean = values.iter().sum::<f64>() / count as f64;
                let about: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
                assert!((wanted - about).abs() <= about * 1e-9, "{wanted} {about}");
            }
        }
    }
    assert!(totals(Of::Deviations, &[1.0, f64::INFINITY]).value(0).unwrap().is_some_and(f64::is_nan));
    assert!(totals(Of::Deviations, &[1e300, -1e300]).value(0).is_err());
}

#[test]
fn quotients_are_rounded_to_the_nearest() {
    let quotient = |a: i64, b: i64, exponent| nearest_quotient(&a.into(), &b.into(), exponent);
    assert_eq!(quotient(1, 3, 0).to_bits(), (1.0_f64 / 3.0).to_bits());
    assert_eq!(quotient(-2, 7, 0).to_bits(), (-2.0_f64 / 7.0).to_bits());
    assert_eq!(quotient(1 << 60, 1, -60), 1.0);
    assert_eq!(quotient(0, 5, 0), 0.0);
    // Half of the least number goes to the even zero, a little more to the least number.
    assert_eq!(quotient(1, 2, -1074).to_bits(), 0);
    assert_eq!(quotient(5, 8, -1074).to_bits(), 1);
    assert_eq!(quotient(3, 2, -1074).to_bits(), 2);
    assert_eq!(quotient(1, 1, 1030), f64::INFINITY);
    let mut random = Random(13);
    for _ in 0..2000 {
        let (a, b) = ((random.next() >> 12) as i64, (random.next() >> 40) as i64 + 1);
        assert_eq!(quotient(a, b, 0).to_bits(), (a as f64 / b as f64).to_bits(), "{a} / {b}");
    }
}

#[test]
fn groups_are_given_out_from_the_first_and_bytes_of_another_form_are_refused() {
    let mut totals = Totals::new(Of::Sum, DataType::Float64);
    let values: ArrayRef =
        Arc::new(Float64Array::from(vec![Some(1.5), None, Some(2.0), Some(1e200), Some(-0.25)]));
    let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), None, Some(true)]);
    GroupsAccumulator::update_batch(&mut totals, &[values], &[0, 1, 2, 1, 2], Some(&filter), 4).unwrap();
    let first = GroupsAccumulator::evaluate(&mut totals, EmitTo::First(2)).unwrap();
    let first = first.as_primitive::<Float64Type>();
    assert_eq!((first.value(0), first.is_null(1)), (1.5, true));
    let rest = GroupsAccumulator::state(&mut totals, EmitTo::All).unwrap();
    GroupsAccumulator::merge_batch(&mut totals, &rest, &[1, 0], 2).unwrap();
    let merged = GroupsAccumulator::evaluate(&mut totals, EmitTo::All).unwrap();
    let merged = merged.as_primitive::<Float64Type>();
    assert_eq!((merged.is_null(0), merged.value(1)), (true, 1.75));
    totals.resize(1);
    for state in [&[][..], &[1, 0], &[1, 0, 0, 1], &[1, 255, 255, 0, 0, 0, 0]] {
        assert!(totals.add_state(0, state).is_none(), "{state:?}");
    }
}
