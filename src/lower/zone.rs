//! Time zones: the session's, and those that a query names. Each is a parameter, from which a table is made when the query
//! starts.

use pystachio_plan::{DataType, Expression, Function, Interval, Value};

use crate::{
    Constant, Lowered, LoweredResult, Lowering, Notes, Part, Refusal, RuntimeValue, Source, SourceType,
};

impl Lowering<'_> {
    /// A time zone that is an argument: a name, or an interval ahead of UTC.
    pub(crate) fn lower_zone(&self, source: &Source) -> LoweredResult {
        let zone = match &source.part {
            Part::Constant(Constant::Null) => {
                return Ok(Lowered::plain(Expression::literal(Value::Null, DataType::Bytea)));
            }
            Part::Constant(Constant::Value(zone)) => {
                self.server.check_zone(zone).map_err(Refusal::Zone)?;
                RuntimeValue::Zone(zone.clone())
            }
            Part::Constant(_) => return Err(Refusal::Constant(source.of.name().to_owned())),
            _ => {
                let origin = source.origin.ok_or(Refusal::ZoneOfRow)?;
                self.is_runtime_value(source)?;
                // Some names are errors, which PostgreSQL would not raise there.
                if self.conditional.get() {
                    return Err(Refusal::ConditionalZone);
                }
                RuntimeValue::Origin(origin)
            }
        };
        Ok(Lowered::plain(zone_parameter(self.notes, zone)))
    }

    /// The text of a date or timestamp, by the session's DateStyle; `None` of another type. With another style than ISO a timestamp with
    /// time zone shows its zone's abbreviation, which no table has.
    pub(crate) fn lower_text_of_moment(&self, source: &Source) -> Result<Option<Lowered>, Refusal> {
        let (function, zone) = match source.of {
            SourceType::Date | SourceType::Timestamp => (Function::MomentText, None),
            SourceType::TimestampTz if self.server.has_iso_dates() => {
                (Function::InstantText, Some(session_zone(self.notes)))
            }
            _ => return Ok(None),
        };
        let style = self.notes.parameter(RuntimeValue::DateStyle, DataType::Text);
        let style = Expression::Parameter { index: style, data_type: DataType::Text };
        let moment = self.lower(source)?.expression;
        let arguments = [moment].into_iter().chain(zone).chain([style]).collect();
        Ok(Some(Lowered::plain(Expression::call(function, arguments, DataType::Text))))
    }
}

fn zone_parameter(notes: &Notes, zone: RuntimeValue) -> Expression {
    Expression::Parameter { index: notes.parameter(zone, DataType::Bytea), data_type: DataType::Bytea }
}

/// The session's time zone.
pub(crate) fn session_zone(notes: &Notes) -> Expression {
    zone_parameter(notes, RuntimeValue::SessionZone)
}

/// A function of a moment or a local time and the session's time zone.
pub(crate) fn in_session_zone(
    notes: &Notes,
    function: Function,
    moment: Expression,
    result: DataType,
) -> Expression {
    Expression::call(function, vec![moment, session_zone(notes)], result)
}

/// A `timestamptz` as the local time in the session's time zone; anything else as it is.
pub(crate) fn to_local_time(notes: &Notes, value: Lowered) -> Lowered {
    if *value.data_type() != DataType::TimestampTz {
        return value;
    }
    Lowered::plain(in_session_zone(notes, Function::LocalTime, value.expression, DataType::Timestamp))
}

/// A `timestamptz` later by months and days of the session's time zone, each with the offset that it leads to, and then by
/// microseconds.
pub(crate) fn add_in_session_zone(notes: &Notes, moment: Expression, interval: Interval) -> Expression {
    let Interval { months, days, microseconds } = interval;
    let add = |moment, interval, data_type: DataType| {
        let interval = Expression::literal(Value::Interval(interval), DataType::Interval);
        Expression::call(Function::AddInterval, vec![moment, interval], data_type)
    };
    let mut sum = moment;
    for part in [Interval { months, days: 0, microseconds: 0 }, Interval { months: 0, days, microseconds: 0 }]
    {
        if (part.months, part.days) != (0, 0) {
            let local = in_session_zone(notes, Function::LocalTime, sum, DataType::Timestamp);
            let later = add(local, part, DataType::Timestamp);
            sum = in_session_zone(notes, Function::Instant, later, DataType::TimestampTz);
        }
    }
    add(sum, Interval { months: 0, days: 0, microseconds }, DataType::TimestampTz)
}
