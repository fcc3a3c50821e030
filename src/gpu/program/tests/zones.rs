//! Functions of time zones against the tables that zones are, whose own tests compare them with the zones.

use pystachio_plan::{
    ColumnId, DataType, DateField, ErrorKind, Expression, Function, Literal, NextTransition, TimeZone, Value,
    ZoneTable,
};

use super::{Device, column};
use crate::program::Program;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
const YEAR: i64 = 31_556_952;
const CYCLE: i64 = 146_097 * DAY;
/// 4714-11-24 BC.
const TIMESTAMP_MIN: i64 = (-2_451_545 + 10_957) * DAY * SECOND;

/// Offsets, each from a moment on, and between years a change each half year, which repeats every 400 years.
struct Zone {
    name: &'static str,
    /// The offset before all else.
    first: i64,
    changes: &'static [(i64, i64)],
    /// Offsets of the first and the second half of a year, and the first and the last year.
    yearly: Option<([i64; 2], i64, i64)>,
}

const EVER: i64 = 1_000_000;

const ZONES: &[Zone] = &[
    Zone { name: "UTC", first: 0, changes: &[], yearly: None },
    Zone { name: "UTC-12", first: 12 * HOUR, changes: &[], yearly: None },
    Zone {
        name: "POSIX",
        first: -3 * HOUR,
        changes: &[],
        yearly: Some(([-3 * HOUR, -2 * HOUR], -EVER, EVER)),
    },
    Zone {
        name: "since 1893",
        first: 3_208,
        changes: &[(-2_422_054_408, HOUR), (-1_693_706_400, 2 * HOUR), (-1_680_483_600, HOUR)],
        yearly: Some(([2 * HOUR, HOUR], 1980, EVER)),
    },
    Zone {
        name: "until 2019",
        first: -11_188,
        changes: &[(-1_767_214_412, -3 * HOUR)],
        yearly: Some(([-3 * HOUR, -2 * HOUR], 1985, 2019)),
    },
    Zone {
        name: "half an hour",
        first: 38_180,
        changes: &[(-2_364_114_980, 10 * HOUR), (352_216_800, 37_800)],
        yearly: Some(([39_600, 37_800], 1987, EVER)),
    },
    Zone {
        name: "a day is skipped",
        first: 45_184,
        changes: &[(-2_445_424_384, -41_216), (-1_861_878_784, -11 * HOUR), (1_325_239_200, 13 * HOUR)],
        yearly: None,
    },
];

impl Zone {
    fn half_year(number: i64) -> i64 {
        // On hours that repeat every 400 years.
        number.div_euclid(800) * CYCLE + number.rem_euclid(800) * (CYCLE / 800 / HOUR) * HOUR
    }

    fn transitions_after(&self, utc: i64) -> Option<(i64, i64)> {
        let change = self.changes.iter().copied().find(|(start, _)| *start > utc);
        let yearly = self.yearly.and_then(|(offsets, from, until)| {
            let from = (from - 1970) * 2;
            let mut number =
                ((utc.div_euclid(CYCLE) * 800) + utc.rem_euclid(CYCLE) / (CYCLE / 800) - 2).max(from);
            while Self::half_year(number) <= utc {
                number += 1;
            }
            let start = Self::half_year(number);
            (number < (until - 1970) * 2).then_some((start, offsets[number.rem_euclid(2) as usize]))
        });
        change.into_iter().chain(yearly).min()
    }

    fn offset_at(&self, utc: i64) -> i64 {
        let before = |(start, offset): &(i64, i64)| (*start <= utc).then_some((*start, *offset));
        let change = self.changes.iter().filter_map(before).next_back();
        let yearly = self.yearly.and_then(|(offsets, from, until)| {
            let numbers = (from - 1970) * 2..(until - 1970) * 2;
            let guess = utc.div_euclid(CYCLE) * 800 + utc.rem_euclid(CYCLE) / (CYCLE / 800) + 2;
            let mut number = guess.min(numbers.end - 1);
            while Self::half_year(number) > utc {
                number -= 1;
            }
            let start = Self::half_year(number);
            (number >= numbers.start).then_some((start, offsets[number.rem_euclid(2) as usize]))
        });
        change.into_iter().chain(yearly).max().map_or(self.first, |(_, offset)| offset)
    }

    fn table(&self) -> Vec<u8> {
        ZoneTable::encode(self).expect("a table")
    }

    /// Moments near transitions, far from any, and at the ends of what there is.
    fn moments(&self) -> Vec<i64> {
        let mut moments = vec![i64::MIN, i64::MAX, TIMESTAMP_MIN, TIMESTAMP_MIN + DAY * SECOND, i64::MAX - 1];
        let years = [-4_712, -1_000, 1, 1_599, 1_850, 2_499, 2_500, 2_900, 9_999, 290_000];
        let years = years.into_iter().chain(1_885..2_040).map(|year| (year - 1_970) * YEAR);
        for year in years {
            let mut seconds = year;
            for _ in 0..3 {
                let next = self.transitions_after(seconds).map_or(seconds + YEAR / 3, |(start, _)| start);
                for near in [-DAY, -2 * HOUR, -1, 0, 1, HOUR / 2, HOUR, 2 * HOUR, DAY] {
                    moments.extend([-1, 0].map(|more| (next + near) * SECOND + more));
                }
                seconds = next;
            }
        }
        for hours in [-40, -25, -14, -12, -3, -1, 0, 1, 3, 12, 14, 25] {
            moments.push(TIMESTAMP_MIN.saturating_add(hours * HOUR * SECOND));
            moments.push((i64::MAX - 1).saturating_add(hours.min(0) * HOUR * SECOND));
        }
        moments.retain(|moment| *moment >= TIMESTAMP_MIN || *moment == i64::MIN);
        moments.sort_unstable();
        moments.dedup();
        moments
    }
}

impl TimeZone for Zone {
    fn next_transition(&self, utc_seconds: i64) -> NextTransition {
        NextTransition { offset: self.offset_at(utc_seconds), then: self.transitions_after(utc_seconds) }
    }
}

fn is_infinite(moment: i64) -> bool {
    moment == i64::MIN || moment == i64::MAX
}

/// Compares a function of zones with what it should give, `None` being out of range.
fn check(device: &Device, zone: &Zone, function: Function, expected: &dyn Fn(i64) -> Option<i64>) {
    let (from, to) = match function {
        Function::Instant => (DataType::Timestamp, DataType::TimestampTz),
        Function::LocalTime => (DataType::TimestampTz, DataType::Timestamp),
        _ => (DataType::TimestampTz, DataType::TimestampTz),
    };
    let table = Expression::Literal(Literal::new(Value::Bytes(zone.table()), DataType::Bytea));
    let call = Expression::call(function, vec![column(0, from.clone()), table], to);
    let expected_of = |moment: &i64| match is_infinite(*moment) {
        true => Some(*moment),
        false => expected(*moment).filter(|moment| *moment >= TIMESTAMP_MIN),
    };
    let (within, beyond): (Vec<i64>, Vec<i64>) =
        zone.moments().into_iter().partition(|moment| expected_of(moment).is_some());
    let mut values: Vec<Value> = within.iter().copied().map(Value::Int).collect();
    values.push(Value::Null);
    let row_count = values.len();
    let results = device.evaluate(&call, &[(from.clone(), values)], row_count).expect("moments");
    assert_eq!(results.last(), Some(&Value::Null));
    for (moment, found) in within.iter().zip(&results) {
        let expected = Value::Int(expected_of(moment).expect("within"));
        assert_eq!(*found, expected, "{} {function:?} {moment}", zone.name);
    }
    for moment in beyond {
        let error =
            device.evaluate(&call, &[(from.clone(), vec![Value::Int(moment)])], 1).expect_err("beyond");
        assert_eq!(error.kind, ErrorKind::DatetimeOutOfRange);
        assert_eq!(error.message, "timestamp out of range", "{} {function:?} {moment}", zone.name);
    }
}

#[test]
fn local_times_and_moments_are_those_of_the_table() {
    let device = Device::new();
    for zone in ZONES {
        let table = ZoneTable::decode(&zone.table()).expect("a table");
        check(&device, zone, Function::LocalTime, &|utc| table.to_local(utc));
        check(&device, zone, Function::Instant, &|local| table.to_utc(local));
    }
}

#[test]
fn units_start_by_the_zone_and_short_ones_keep_the_offset() {
    let device = Device::new();
    let units = [
        (DateField::Microseconds, 1),
        (DateField::Milliseconds, SECOND / 1_000),
        (DateField::Second, SECOND),
        (DateField::Minute, 60 * SECOND),
        (DateField::Hour, HOUR * SECOND),
    ];
    for zone in ZONES {
        let table = ZoneTable::decode(&zone.table()).expect("a table");
        for (field, unit) in units {
            check(&device, zone, Function::DateTruncInZone(field), &|utc| {
                let local = table.to_local(utc)?;
                (local - local.rem_euclid(unit)).checked_sub(table.offset(utc))
            });
        }
        let day = DAY * SECOND;
        let midnight = |days: i64| days.checked_mul(day).filter(|local| *local >= TIMESTAMP_MIN);
        check(&device, zone, Function::DateTruncInZone(DateField::Day), &|utc| {
            table.to_utc(midnight(table.to_local(utc)?.div_euclid(day))?)
        });
        check(&device, zone, Function::DateTruncInZone(DateField::Week), &|utc| {
            let days = table.to_local(utc)?.div_euclid(day);
            table.to_utc(midnight(days - (days + 3).rem_euclid(7))?)
        });
    }
}

#[test]
fn longer_units_are_those_of_local_time() {
    let device = Device::new();
    let fields =
        [DateField::Month, DateField::Quarter, DateField::Year, DateField::Decade, DateField::Century];
    for zone in ZONES {
        let table = ZoneTable::decode(&zone.table()).expect("a table");
        // Far from the ends, where all of them are in range.
        let known = -6_000 * YEAR * SECOND..9_000 * YEAR * SECOND;
        let moments: Vec<i64> = zone.moments().into_iter().filter(|moment| known.contains(moment)).collect();
        let ints = |values: &[i64]| values.iter().copied().map(Value::Int).collect::<Vec<Value>>();
        let locals: Vec<i64> = moments.iter().map(|utc| table.to_local(*utc).expect("in range")).collect();
        for field in fields {
            let local = column(0, DataType::Timestamp);
            let start = Expression::call(Function::DateTrunc(field), vec![local], DataType::Timestamp);
            let starts = device.evaluate(&start, &[(DataType::Timestamp, ints(&locals))], locals.len());
            let expected = starts.expect("starts").into_iter().map(|start| match start {
                Value::Int(start) => Value::Int(table.to_utc(start).expect("in range")),
                other => panic!("{other:?}"),
            });
            let literal = Literal::new(Value::Bytes(zone.table()), DataType::Bytea);
            let arguments = vec![column(0, DataType::TimestampTz), Expression::Literal(literal)];
            let call = Expression::call(Function::DateTruncInZone(field), arguments, DataType::TimestampTz);
            let columns = [(DataType::TimestampTz, ints(&moments))];
            let found = device.evaluate(&call, &columns, moments.len()).expect("starts");
            for ((moment, found), expected) in moments.iter().zip(found).zip(expected) {
                assert_eq!(found, expected, "{} {field:?} {moment}", zone.name);
            }
        }
    }
}

#[test]
fn a_zone_is_one_table_for_all_that_go_by_it() {
    let zone = || Expression::Parameter { index: 0, data_type: DataType::Bytea };
    let local = || {
        let arguments = vec![column(0, DataType::TimestampTz), zone()];
        Expression::call(Function::LocalTime, arguments, DataType::Timestamp)
    };
    let field = |field| {
        let data_type = DataType::Decimal { precision: 18, scale: 0 };
        Expression::call(Function::Extract(field), vec![local()], data_type)
    };
    let expressions = [field(DateField::Hour), field(DateField::Day), local()];
    let input = [(ColumnId(0), DataType::TimestampTz)];
    let parameters = [Literal::new(Value::Bytes(zone_bytes()), DataType::Bytea)];
    let one = Program::compile(&expressions[..1], &input, &parameters).expect("a program");
    let all = Program::compile(&expressions, &input, &parameters).expect("a program");
    // Of its own, an expression may have a constant or two.
    assert!(cell_count(&all) < cell_count(&one) + 4, "{} and {}", cell_count(&all), cell_count(&one));
}

#[test]
fn a_zone_of_each_row_is_refused_and_one_that_is_null_gives_null() {
    let device = Device::new();
    let call = |zone| {
        let arguments = vec![column(0, DataType::TimestampTz), zone];
        Expression::call(Function::LocalTime, arguments, DataType::Timestamp)
    };
    let moments = || (DataType::TimestampTz, vec![Value::Int(0)]);
    let zones = (DataType::Bytea, vec![Value::Bytes(zone_bytes())]);
    let refused = device.evaluate(&call(column(1, DataType::Bytea)), &[moments(), zones], 1);
    assert_eq!(refused.expect_err("a column").kind, ErrorKind::NotSupported);
    let null = Expression::literal(Value::Null, DataType::Bytea);
    assert_eq!(device.evaluate(&call(null), &[moments()], 1).expect("a row"), [Value::Null]);
    let bytes = Expression::literal(Value::Bytes(vec![1, 2, 3]), DataType::Bytea);
    assert_eq!(
        device.evaluate(&call(bytes), &[moments()], 1).expect_err("no zone").kind,
        ErrorKind::Internal
    );
}

fn zone_bytes() -> Vec<u8> {
    ZONES.iter().find(|zone| zone.yearly.is_some()).expect("a zone").table()
}

/// Constants of a program and cells of its tables.
fn cell_count(program: &Program) -> usize {
    program.code.as_ref().expect("code").constants.cells.len()
}
