//! Time zones: the session's, and those that a query names. Each is a parameter, from which a table is made when the query
//! starts (`execution/parameters.rs`).

use pgrx::{IntoDatum, pg_sys};
use pystachio_plan::{DataType, Expression, Function, Interval, Value};

use super::{Lowered, LoweredResult, Lowering, Refusal};
use crate::{
    pg::zone::zone_table,
    planner::{
        nodes::{list_of, node_as},
        planning::with_planning,
    },
};

impl Lowering<'_> {
    /// A time zone that is an argument: a name, or an interval ahead of UTC.
    pub(super) unsafe fn lower_zone(&self, node: *mut pg_sys::Node) -> LoweredResult {
        unsafe {
            match node_as::<pg_sys::Const>(node, pg_sys::NodeTag::T_Const) {
                Some(zone) if zone.constisnull => {
                    return Ok(Lowered::plain(Expression::literal(Value::Null, DataType::Bytea)));
                }
                Some(zone) => {
                    zone_table(zone.constvalue, zone.consttype).map_err(|error| Refusal(error.message))?;
                }
                None if !self.is_runtime_value(node)? => return Err(Refusal::new("a time zone of each row")),
                // Some names are errors, which PostgreSQL would not raise there.
                None if self.conditional.get() => {
                    return Err(Refusal::new("a runtime time zone in a branch that may not be taken"));
                }
                None => {}
            }
            Ok(Lowered::plain(zone_parameter(node)))
        }
    }
}

unsafe fn zone_parameter(node: *mut pg_sys::Node) -> Expression {
    let index = with_planning(|planning| unsafe { planning.parameter(node, DataType::Bytea) });
    Expression::Parameter { index, data_type: DataType::Bytea }
}

/// The session's time zone. It is a parameter of type `name`, which no argument of a function of zones is.
pub(super) fn session_zone() -> Expression {
    // SAFETY: makes nodes of constants.
    unsafe {
        let call = |function_oid: u32, type_oid, argument: *mut pg_sys::Node| {
            pg_sys::makeFuncExpr(
                pg_sys::Oid::from(function_oid),
                type_oid,
                list_of([argument]),
                pg_sys::DEFAULT_COLLATION_OID,
                pg_sys::DEFAULT_COLLATION_OID,
                pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
            )
        };
        let name = "TimeZone".into_datum().unwrap_or(pg_sys::Datum::from(0));
        let name =
            pg_sys::makeConst(pg_sys::TEXTOID, -1, pg_sys::DEFAULT_COLLATION_OID, -1, name, false, false);
        let setting = call(pg_sys::F_CURRENT_SETTING_TEXT, pg_sys::TEXTOID, name.cast());
        zone_parameter(call(pg_sys::F_NAME_TEXT, pg_sys::NAMEOID, setting.cast()).cast())
    }
}

/// A function of a moment or a local time and the session's time zone.
pub(super) fn in_session_zone(function: Function, moment: Expression, result: DataType) -> Expression {
    Expression::call(function, vec![moment, session_zone()], result)
}

/// A `timestamptz` as the local time in the session's time zone; anything else as it is.
pub(super) fn to_local_time(value: Lowered) -> Lowered {
    if *value.data_type() != DataType::TimestampTz {
        return value;
    }
    Lowered::plain(in_session_zone(Function::LocalTime, value.expression, DataType::Timestamp))
}

/// A `timestamptz` later by months and days of the session's time zone, each with the offset that it leads to, and then by
/// microseconds.
pub(super) fn add_in_session_zone(moment: Expression, interval: Interval) -> Expression {
    let Interval { months, days, microseconds } = interval;
    let add = |moment, interval, data_type: DataType| {
        let interval = Expression::literal(Value::Interval(interval), DataType::Interval);
        Expression::call(Function::AddInterval, vec![moment, interval], data_type)
    };
    let mut sum = moment;
    for part in [Interval { months, days: 0, microseconds: 0 }, Interval { months: 0, days, microseconds: 0 }]
    {
        if (part.months, part.days) != (0, 0) {
            let local = in_session_zone(Function::LocalTime, sum, DataType::Timestamp);
            let later = add(local, part, DataType::Timestamp);
            sum = in_session_zone(Function::Instant, later, DataType::TimestampTz);
        }
    }
    add(sum, Interval { months: 0, days: 0, microseconds }, DataType::TimestampTz)
}
