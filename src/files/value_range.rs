//! Which stored values a column may have: those of its annotation, and those of PostgreSQL's types.
//!
//! The format does not keep a writer from storing 300 in a column of eight bits. Such a value is an error on both
//! engines, whatever the column is declared as, and bounds that hold one are not used.
//!
//! Deliberately absent: how values are decoded, which each engine does itself.

use std::ops::RangeInclusive;

use parquet::{
    basic::{LogicalType, TimeUnit, Type as PhysicalType},
    schema::types::Type,
};

use crate::file_type::annotation;

/// Days from 1970-01-01 to PostgreSQL's first and last date.
pub const DATE_DAYS: RangeInclusive<i32> = -2_440_588..=2_145_042_905;
/// Microseconds from 1970-01-01 to PostgreSQL's first timestamp; its last lies beyond 64 bits.
pub const TIMESTAMP_US_MIN: i64 = -210_866_803_200_000_000;
/// Microseconds of a day; PostgreSQL's `time` reaches 24:00.
pub const DAY_US: i64 = 86_400_000_000;

/// DuckDB's infinite dates as they are stored, and PostgreSQL's for each.
///
/// Source: DuckDB's `date_t::infinity` and `date_t::ninfinity`.
pub const DATE_INFINITIES: [(i32, i32); 2] = [(-i32::MAX, i32::MIN), (i32::MAX, i32::MAX)];
/// The same of timestamps, whether they are stored in microseconds or in milliseconds. In nanoseconds both numbers are
/// moments of 1677 and 2262, which other writers mean by them.
pub const TIMESTAMP_INFINITIES: [(i64, i64); 2] = [(-i64::MAX, i64::MIN), (i64::MAX, i64::MAX)];

/// The most digits of a decimal that 128 bits hold.
const DECIMAL_DIGITS_MAX: i32 = 38;

/// The stored numbers that the annotation of a primitive field allows; `None` where it allows all that are stored, or
/// where PostgreSQL's own type is what bounds them.
pub fn annotated_range(field: &Type) -> Option<RangeInclusive<i128>> {
    let Type::PrimitiveType { basic_info, physical_type, scale, precision, .. } = field else { return None };
    match annotation(basic_info, *precision, *scale)? {
        LogicalType::Decimal(decimal) if (1..=DECIMAL_DIGITS_MAX).contains(&decimal.precision) => {
            let greatest = 10_i128.pow(decimal.precision.unsigned_abs()) - 1;
            Some(-greatest..=greatest)
        }
        LogicalType::Integer(integer) if *physical_type == PhysicalType::INT32 => {
            match (integer.bit_width, integer.is_signed) {
                (8, true) => Some(i8::MIN.into()..=i8::MAX.into()),
                (8, false) => Some(0..=u8::MAX.into()),
                (16, true) => Some(i16::MIN.into()..=i16::MAX.into()),
                (16, false) => Some(0..=u16::MAX.into()),
                _ => None,
            }
        }
        _ => None,
    }
}

/// PostgreSQL's value for a stored date; `None` if it has none.
pub fn date_value(days: i64) -> Option<i64> {
    let days = i32::try_from(days).ok()?;
    let infinity = DATE_INFINITIES.iter().find(|(stored, _)| *stored == days).map(|(_, own)| *own);
    infinity.or(DATE_DAYS.contains(&days).then_some(days)).map(i64::from)
}

/// PostgreSQL's microseconds of a day for a stored time; `None` if it has none.
pub fn time_value(stored: i64, unit: &TimeUnit) -> Option<i64> {
    let microseconds = in_microseconds(stored, unit)?;
    (0..=DAY_US).contains(&microseconds).then_some(microseconds)
}

/// PostgreSQL's value for a stored timestamp; `None` if it has none.
pub fn timestamp_value(stored: i64, unit: &TimeUnit) -> Option<i64> {
    if *unit != TimeUnit::NANOS
        && let Some((_, own)) = TIMESTAMP_INFINITIES.iter().find(|(infinity, _)| *infinity == stored)
    {
        return Some(*own);
    }
    in_microseconds(stored, unit).filter(|microseconds| *microseconds >= TIMESTAMP_US_MIN)
}

fn in_microseconds(stored: i64, unit: &TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::MILLIS => stored.checked_mul(1000),
        TimeUnit::MICROS => Some(stored),
        TimeUnit::NANOS => Some(stored.div_euclid(1000)),
    }
}

#[cfg(test)]
mod tests {
    use parquet::{basic::ConvertedType, schema::types::PrimitiveTypeBuilder};

    use super::*;

    fn range(build: impl FnOnce(PrimitiveTypeBuilder<'_>) -> PrimitiveTypeBuilder<'_>) -> Option<[i128; 2]> {
        let field = build(Type::primitive_type_builder("v", PhysicalType::INT32)).build().unwrap();
        annotated_range(&field).map(|range| [*range.start(), *range.end()])
    }

    #[test]
    fn old_and_new_annotations_allow_the_same_values() {
        let old = |converted| range(|field| field.with_converted_type(converted));
        let new = |logical| range(|field| field.with_logical_type(Some(logical)));
        assert_eq!(old(ConvertedType::INT_8), Some([-128, 127]));
        assert_eq!(old(ConvertedType::UINT_16), Some([0, 65_535]));
        assert_eq!(old(ConvertedType::UINT_32), None);
        assert_eq!(new(LogicalType::integer(8, true)), Some([-128, 127]));
        assert_eq!(new(LogicalType::integer(16, false)), Some([0, 65_535]));
        let decimal =
            range(|field| field.with_precision(3).with_scale(1).with_converted_type(ConvertedType::DECIMAL));
        assert_eq!(decimal, Some([-999, 999]));
        assert_eq!(range(|field| field), None);
    }

    #[test]
    fn infinities_of_duckdb_are_those_of_postgresql() {
        assert_eq!(date_value((-i32::MAX).into()), Some(i32::MIN.into()));
        assert_eq!(date_value(i32::MAX.into()), Some(i32::MAX.into()));
        assert_eq!([i64::from(i32::MIN), i64::from(*DATE_DAYS.end()) + 1].map(date_value), [None, None]);
        for unit in [TimeUnit::MICROS, TimeUnit::MILLIS] {
            assert_eq!(timestamp_value(-i64::MAX, &unit), Some(i64::MIN));
            assert_eq!(timestamp_value(i64::MAX, &unit), Some(i64::MAX));
        }
        assert_eq!(timestamp_value(i64::MIN, &TimeUnit::MICROS), None);
        assert_eq!(timestamp_value(i64::MAX, &TimeUnit::NANOS), Some(i64::MAX / 1000));
        assert_eq!(timestamp_value(-1, &TimeUnit::NANOS), Some(-1));
        assert_eq!(time_value(DAY_US + 1, &TimeUnit::MICROS), None);
        assert_eq!(time_value(86_400_000, &TimeUnit::MILLIS), Some(DAY_US));
    }
}
