//! Values of a fixed width: booleans, numbers of the machine, dates and times, uuid.

use std::ops::Range;

use arrow_array::{
    Array, BooleanArray, Date32Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use pgrx::pg_sys::Datum;
use pystachio_plan::{Error, ErrorKind, Result};

use super::{block::Cells, text::TextScratch};

/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
pub const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub const EPOCH_MICROSECONDS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;
/// PostgreSQL's dates, in days since 2000: 4714-11-24 BC to 5874897-12-31.
const DATES: Range<i64> = -2_451_545..2_145_031_949;
/// PostgreSQL's timestamps, in microseconds since 2000: 4714-11-24 BC to 294276-12-31.
const TIMESTAMPS: Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;
const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// `boolean`.
pub fn fill_bool(array: &BooleanArray, rows: Range<usize>, cells: &mut Cells<'_>) {
    cells.fill(array, rows, |row| Datum::from(array.value(row)));
}

/// `smallint`.
pub fn fill_int16(array: &Int16Array, rows: Range<usize>, cells: &mut Cells<'_>) {
    let values = array.values();
    cells.fill(array, rows, |row| Datum::from(values[row]));
}

/// `integer`.
pub fn fill_int32(array: &Int32Array, rows: Range<usize>, cells: &mut Cells<'_>) {
    let values = array.values();
    cells.fill(array, rows, |row| Datum::from(values[row]));
}

/// `bigint`.
pub fn fill_int64(array: &Int64Array, rows: Range<usize>, cells: &mut Cells<'_>) {
    let values = array.values();
    cells.fill(array, rows, |row| Datum::from(values[row]));
}

/// `real`, widened as PostgreSQL widens it: with its sign.
pub fn fill_float32(array: &Float32Array, rows: Range<usize>, cells: &mut Cells<'_>) {
    let values = array.values();
    cells.fill(array, rows, |row| Datum::from(values[row].to_bits() as i32));
}

/// `double precision`.
pub fn fill_float64(array: &Float64Array, rows: Range<usize>, cells: &mut Cells<'_>) {
    let values = array.values();
    cells.fill(array, rows, |row| Datum::from(values[row].to_bits() as i64));
}

/// `date`.
pub fn fill_date(array: &Date32Array, rows: Range<usize>, cells: &mut Cells<'_>) -> Result<()> {
    let values = array.values();
    cells.try_fill(array, rows, |row| {
        let days = i64::from(values[row]) - i64::from(EPOCH_DAYS);
        if DATES.contains(&days) {
            Ok(Datum::from(days as i32))
        } else if matches!(values[row], i32::MIN | i32::MAX) {
            // Infinity is the same number in both; it comes from a parameter or a constant.
            Ok(Datum::from(values[row]))
        } else {
            Err(out_of_range("date", values[row]))
        }
    })
}

/// `time`.
pub fn fill_time(array: &Time64MicrosecondArray, rows: Range<usize>, cells: &mut Cells<'_>) -> Result<()> {
    let values = array.values();
    cells.try_fill(array, rows, |row| {
        let time = values[row];
        if (0..=DAY_MICROSECONDS).contains(&time) {
            Ok(Datum::from(time))
        } else {
            Err(out_of_range("time", time))
        }
    })
}

/// `timetz`, of times in UTC: microseconds, and the zone's seconds west of Greenwich.
pub fn fill_time_of_utc(
    array: &Time64MicrosecondArray,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut TextScratch,
) -> Result<()> {
    let values = array.values();
    let times = scratch.words(2 * rows.len());
    for (place, row) in rows.clone().enumerate() {
        times[2 * place] = values[row] as u64;
        times[2 * place + 1] = 0;
    }
    let start = rows.start;
    cells.try_fill(array, rows, |row| match (0..=DAY_MICROSECONDS).contains(&values[row]) {
        true => Ok(Datum::from(&raw const times[2 * (row - start)])),
        false => Err(out_of_range("time", values[row])),
    })
}

/// `timestamp` and `timestamptz`.
pub fn fill_timestamp(
    array: &TimestampMicrosecondArray,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
) -> Result<()> {
    let values = array.values();
    cells.try_fill(array, rows, |row| match values[row].checked_sub(EPOCH_MICROSECONDS) {
        // Infinity, as with dates. Without it the greatest number would be a moment of the year 294247.
        _ if matches!(values[row], i64::MIN | i64::MAX) => Ok(Datum::from(values[row])),
        Some(time) if TIMESTAMPS.contains(&time) => Ok(Datum::from(time)),
        _ => Err(out_of_range("timestamp", values[row])),
    })
}

/// `interval`: microseconds, days and months, 16 bytes in all.
pub fn fill_interval(
    array: &IntervalMonthDayNanoArray,
    rows: Range<usize>,
    cells: &mut Cells<'_>,
    scratch: &mut TextScratch,
) {
    let values = array.values();
    let intervals = scratch.words(2 * rows.len());
    for (place, row) in rows.clone().enumerate() {
        let value = values[row];
        intervals[2 * place] = (value.nanoseconds / 1000) as u64;
        intervals[2 * place + 1] = u64::from(value.days as u32) | u64::from(value.months as u32) << 32;
    }
    let start = rows.start;
    cells.fill(array, rows, |row| Datum::from(&raw const intervals[2 * (row - start)]));
}

/// `uuid`: 16 bytes, used where they lie.
pub fn fill_uuid(array: &FixedSizeBinaryArray, rows: Range<usize>, cells: &mut Cells<'_>) {
    cells.fill(array as &dyn Array, rows, |row| Datum::from(array.value(row).as_ptr()));
}

fn out_of_range(type_name: &str, value: impl std::fmt::Display) -> Error {
    let message = format!("{type_name} out of range for PostgreSQL: {value} since 1970-01-01");
    Error::new(ErrorKind::DatetimeOutOfRange, message)
}
