//! Bounds of functions of time, from those of their column: the start of a unit, the local time in a time zone, the date of a
//! timestamp.
//!
//! Invariants: no row within the column's bounds gives a value outside of the derived ones, or an error. Infinite values have no
//! bounds.

use std::borrow::Cow;

use pystachio_plan::{ColumnId, DataType, DateField, Expression, Function, Literal, Value, ZoneTable};

use crate::{
    pruning::{Bounds, literal},
    value_range::{DATE_DAYS, DAY_US, TIMESTAMP_US_MIN},
};

/// Bounds of an expression over a column that has some; `None` if no bounds are known.
pub(super) fn bounds_of<'a>(
    expression: &Expression,
    column_bounds: &dyn Fn(ColumnId) -> Option<&'a Bounds>,
    parameters: &[Literal],
) -> Option<Cow<'a, Bounds>> {
    match expression {
        Expression::Column { id, .. } => column_bounds(*id).map(Cow::Borrowed),
        Expression::Call { function, arguments, data_type } => {
            let (value, rest) = arguments.split_first()?;
            let ends = Ends::of(*function, value.data_type(), data_type, rest.first(), parameters)?;
            let bounds = bounds_of(value, column_bounds, parameters)?;
            ends.apply(&bounds, data_type).map(Cow::Owned)
        }
        _ => None,
    }
}

impl Bounds {
    /// The bounds of dates as those of their midnights.
    pub(super) fn to_timestamps(&self) -> Option<Self> {
        Ends::ToTimestamp.apply(self, &DataType::Timestamp)
    }
}

/// What a function makes of the ends of a range.
enum Ends {
    /// At most so many microseconds are added: to the first end, and to the last.
    Moved(i64, i64),
    /// Timestamps become their dates.
    ToDate,
    /// Dates become their midnights.
    ToTimestamp,
}

impl Ends {
    fn of(
        function: Function,
        from: &DataType,
        to: &DataType,
        zone: Option<&Expression>,
        parameters: &[Literal],
    ) -> Option<Self> {
        let offsets = || match &literal(zone?, parameters)?.value {
            Value::Bytes(table) => ZoneTable::extreme_offsets(table),
            _ => None,
        };
        Some(match (function, from, to) {
            (Function::LocalTime, ..) => {
                let (least, greatest) = offsets()?;
                Self::Moved(least, greatest)
            }
            (Function::Instant, ..) => {
                let (least, greatest) = offsets()?;
                Self::Moved(-greatest, -least)
            }
            (Function::DateTrunc(field), ..) => Self::Moved(-length_max(field)?, 0),
            (Function::DateTruncInZone(field), ..) => {
                let (least, greatest) = offsets()?;
                // The start may have another offset.
                let spread = greatest - least;
                Self::Moved(-length_max(field)? - spread, spread)
            }
            (Function::Cast, DataType::Timestamp, DataType::Date) => Self::ToDate,
            (Function::Cast, DataType::Date, DataType::Timestamp) => Self::ToTimestamp,
            _ => return None,
        })
    }

    fn apply(self, bounds: &Bounds, data_type: &DataType) -> Option<Bounds> {
        let (Some(Value::Int(minimum)), Some(Value::Int(maximum))) = (&bounds.minimum, &bounds.maximum)
        else {
            return None;
        };
        let (minimum, maximum) = (*minimum, *maximum);
        let is_timestamp = |moment: i64| moment >= TIMESTAMP_US_MIN && moment != i64::MAX;
        let (minimum, maximum) = match self {
            Self::Moved(down, up) => {
                if !is_timestamp(minimum) || !is_timestamp(maximum) {
                    return None;
                }
                let (minimum, maximum) = (minimum.checked_add(down)?, maximum.checked_add(up)?);
                (is_timestamp(minimum) && is_timestamp(maximum)).then_some((minimum, maximum))?
            }
            Self::ToDate => {
                if !is_timestamp(minimum) || !is_timestamp(maximum) {
                    return None;
                }
                (minimum.div_euclid(DAY_US), maximum.div_euclid(DAY_US))
            }
            Self::ToTimestamp => {
                let is_date = |days: i64| i32::try_from(days).is_ok_and(|days| DATE_DAYS.contains(&days));
                if !is_date(minimum) || !is_date(maximum) {
                    return None;
                }
                (minimum.checked_mul(DAY_US)?, maximum.checked_mul(DAY_US)?)
            }
        };
        Some(Bounds {
            data_type: data_type.clone(),
            minimum: Some(Value::Int(minimum)),
            maximum: Some(Value::Int(maximum)),
            null_count: bounds.null_count,
            row_count: bounds.row_count,
            members: None,
        })
    }
}

/// The most microseconds that a unit has; `None` for a field that is no unit.
fn length_max(field: DateField) -> Option<i64> {
    let days = match field {
        DateField::Microseconds
        | DateField::Milliseconds
        | DateField::Second
        | DateField::Minute
        | DateField::Hour
        | DateField::Day => 1,
        DateField::Week => 7,
        DateField::Month => 31,
        DateField::Quarter => 92,
        DateField::Year => 366,
        DateField::Decade => 3_653,
        DateField::Century => 36_525,
        DateField::Millennium => 365_250,
        DateField::DayOfWeek
        | DateField::IsoDayOfWeek
        | DateField::DayOfYear
        | DateField::IsoYear
        | DateField::Epoch => return None,
    };
    Some(days * DAY_US)
}

#[cfg(test)]
mod tests {
    use pystachio_plan::{NextTransition, TimeZone};

    use super::*;

    const ID: ColumnId = ColumnId(1);
    const HOUR_US: i64 = DAY_US / 24;
    /// 2024-05-01.
    const DAY: i64 = 19_844 * DAY_US;

    /// One hour ahead, and two from 2024-03-31 01:00 on.
    struct Zone;

    impl TimeZone for Zone {
        fn next_transition(&self, utc_seconds: i64) -> NextTransition {
            const TRANSITION: i64 = 1_711_846_800;
            match utc_seconds < TRANSITION {
                true => NextTransition { offset: 3_600, then: Some((TRANSITION, 7_200)) },
                false => NextTransition { offset: 7_200, then: None },
            }
        }
    }

    fn range_of(
        expression: &Expression,
        data_type: DataType,
        minimum: i64,
        maximum: i64,
    ) -> Option<(Value, Value)> {
        let bounds = Bounds {
            data_type,
            minimum: Some(Value::Int(minimum)),
            maximum: Some(Value::Int(maximum)),
            null_count: Some(0),
            row_count: 10,
            members: None,
        };
        let derived = bounds_of(expression, &|id| (id == ID).then_some(&bounds), &[])?.into_owned();
        assert_eq!(derived.data_type, *expression.data_type());
        Some((derived.minimum?, derived.maximum?))
    }

    fn call(function: Function, from: DataType, to: DataType) -> Expression {
        Expression::call(function, vec![Expression::column(ID, from)], to)
    }

    fn in_zone(function: Function, value: Expression, to: DataType) -> Expression {
        let table = Value::Bytes(ZoneTable::encode(&Zone).expect("a table"));
        Expression::call(function, vec![value, Expression::literal(table, DataType::Bytea)], to)
    }

    fn ints(minimum: i64, maximum: i64) -> Option<(Value, Value)> {
        Some((Value::Int(minimum), Value::Int(maximum)))
    }

    #[test]
    fn ends_move_by_a_unit_and_by_the_offsets_of_a_zone() {
        use DataType::{Date, Timestamp, TimestampTz};
        let trunc = call(Function::DateTrunc(DateField::Month), Timestamp, Timestamp);
        assert_eq!(range_of(&trunc, Timestamp, DAY, DAY + 7), ints(DAY - 31 * DAY_US, DAY + 7));
        let local = in_zone(Function::LocalTime, Expression::column(ID, TimestampTz), Timestamp);
        assert_eq!(range_of(&local, TimestampTz, DAY, DAY), ints(DAY + HOUR_US, DAY + 2 * HOUR_US));
        let date = Expression::call(Function::Cast, vec![local], Date);
        assert_eq!(range_of(&date, TimestampTz, DAY - HOUR_US * 3 / 2, DAY), ints(19_843, 19_844));
        let midnight = call(Function::Cast, Date, Timestamp);
        let instant = in_zone(Function::Instant, midnight, TimestampTz);
        assert_eq!(range_of(&instant, Date, 19_844, 19_845), ints(DAY - 2 * HOUR_US, DAY + DAY_US - HOUR_US));
        let column = Expression::column(ID, TimestampTz);
        let start = in_zone(Function::DateTruncInZone(DateField::Day), column, TimestampTz);
        assert_eq!(range_of(&start, TimestampTz, DAY, DAY), ints(DAY - 25 * HOUR_US, DAY + HOUR_US));
    }

    #[test]
    fn what_could_fail_or_is_infinite_has_no_bounds() {
        use DataType::{Date, Timestamp};
        let day = call(Function::DateTrunc(DateField::Day), Timestamp, Timestamp);
        assert_eq!(range_of(&day, Timestamp, TIMESTAMP_US_MIN, DAY), None);
        assert_eq!(range_of(&day, Timestamp, i64::MIN, DAY), None);
        assert_eq!(range_of(&day, Timestamp, DAY, i64::MAX), None);
        let midnight = call(Function::Cast, Date, Timestamp);
        assert_eq!(range_of(&midnight, Date, 0, i64::from(*DATE_DAYS.end())), None);
        assert_eq!(range_of(&midnight, Date, i64::from(i32::MIN), 0), None);
        let date = call(Function::Cast, Timestamp, Date);
        assert_eq!(range_of(&date, Timestamp, DAY, i64::MAX), None);
        let hour = call(Function::Extract(DateField::Hour), Timestamp, DataType::Int32);
        assert_eq!(range_of(&hour, Timestamp, DAY, DAY), None);
        assert_eq!(range_of(&Expression::column(ColumnId(2), Date), Date, 0, 1), None);
    }
}
