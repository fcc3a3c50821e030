//! Functions of time zones, which plans have as tables.
//!
//! Source: PostgreSQL 15, `timestamp.c` (`timestamptz2timestamp`, `timestamp2timestamptz`, `timestamptz_trunc_internal`).

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::cast,
    datatypes::{DataType as ArrowType, TimestampMicrosecondType},
};
use pystachio_plan::{DateField, Result, ZoneTable};

use super::{
    calendar::{is_infinite_timestamp, is_timestamp, timestamp_out_of_range},
    datetime::truncate,
    invocation::Invocation,
    lanes::{Nullable, checked, internal, map_lanes, timestamp_array},
};
use crate::{datafusion::logical_expr::ColumnarValue, error::from_arrow};

/// The local time at a moment.
///
/// # Errors
///
/// `DatetimeOutOfRange`.
pub(super) fn local_time(call: &Invocation<'_>) -> Result<ArrayRef> {
    in_zone(call, &|zone, utc| zone.to_local(utc))
}

/// The moment of a local time.
///
/// # Errors
///
/// `DatetimeOutOfRange`.
pub(super) fn instant(call: &Invocation<'_>) -> Result<ArrayRef> {
    in_zone(call, &|zone, local| zone.to_utc(local))
}

/// `date_trunc(field, a, zone)`.
///
/// # Errors
///
/// `NotSupported` for a field that can't be truncated to, `DatetimeOutOfRange`.
pub(super) fn date_trunc(field: DateField, call: &Invocation<'_>) -> Result<ArrayRef> {
    if !field.is_unit() {
        return Err(field.not_supported(call.result));
    }
    let keeps_offset = field.is_of_time();
    in_zone(call, &|zone, utc| {
        let start = truncate(field, zone.to_local(utc)?)?;
        if keeps_offset { start.checked_sub(zone.offset(utc)) } else { zone.to_utc(start) }
    })
}

/// One timestamp of another; infinite ones stay as they are.
fn in_zone(call: &Invocation<'_>, compute: &dyn Fn(&ZoneTable, i64) -> Option<i64>) -> Result<ArrayRef> {
    let moments = call.lanes::<TimestampMicrosecondType>(0)?;
    let of = |zone: &ZoneTable, moment: i64| match is_infinite_timestamp(moment) {
        true => (moment, false),
        false => checked(compute(zone, moment).filter(|moment| is_timestamp(*moment))),
    };
    let zones = match call.argument(1)? {
        ColumnarValue::Array(zones) => zones.clone(),
        ColumnarValue::Scalar(zone) => zone.to_array().map_err(|error| internal(&error))?,
    };
    let zones = cast(&zones, &ArrowType::Binary).map_err(|error| from_arrow(&error))?;
    let zones = zones.as_binary::<i32>();
    // The zone of a whole query.
    if zones.len() == 1 {
        if zones.is_null(0) {
            return Ok(timestamp_array(Nullable::null(call.rows), call.result));
        }
        let zone = ZoneTable::decode(zones.value(0))?;
        let values =
            map_lanes(&moments, call.rows, |moment| of(&zone, moment), |_| timestamp_out_of_range())?;
        return Ok(timestamp_array(values, call.result));
    }
    let mut values = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let value = match (moments.get(row), zones.is_valid(row)) {
            (Some(moment), true) => {
                let (value, failed) = of(&ZoneTable::decode(zones.value(row))?, moment);
                if failed {
                    return Err(timestamp_out_of_range());
                }
                Some(value)
            }
            _ => None,
        };
        values.push(value);
    }
    let nulls = values.iter().map(Option::is_some).collect::<Vec<_>>();
    let values = Nullable {
        values: values.into_iter().map(Option::unwrap_or_default).collect(),
        nulls: Some(nulls.into()),
    };
    Ok(timestamp_array(values, call.result))
}
