//! Dates, times and timestamps.

use super::{
    CatalogNames, CatalogUse, Caveat, Example, FailureRule, Form, FunctionEntry, ResultType, Shown,
    Signature,
    TypeClass::{self, Bytea, Date, Decimals, Float64, Int32, Int64, Interval, Time, Timestamps},
};
use crate::{DataType, Expression, Function};

/// The fields to which a moment is truncated, and others.
macro_rules! units_and {
    ($($other:literal),*) => {
        &[
            "microseconds",
            "milliseconds",
            "second",
            "minute",
            "hour",
            "day",
            "week",
            "month",
            "quarter",
            "year",
            "decade",
            "century",
            "millennium",
            $($other),*
        ]
    };
}

/// Every field, those included that a type does not have: PostgreSQL says which.
const FIELDS: &[&str] = units_and!("dow", "isodow", "doy", "isoyear", "epoch");
/// The fields to which a moment is truncated.
const UNITS: &[&str] = units_and!();
const DAYS: &[&str] = &["-2147483648", "-1000", "0", "1", "2147483647"];
const INTERVALS: &[&str] = &[
    "0",
    "1 day",
    "-1 day",
    "1 month",
    "-1 month",
    "13 months",
    "1 year 2 months 3 days 04:05:06.789",
    "-25 hours",
    "0.000001 seconds",
    "1000000 days",
];

const STRIDES: &[&str] = &["15 minutes", "1 day", "0.000001 seconds", "100000000 days"];
/// Time zones: with rules, without, with half an hour of summer time, with summer time that has ended, and with that around
/// Ramadan; an offset, an abbreviation, and a rule.
const ZONES: &[&str] = &[
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "UTC",
    "+05:30",
    "EST",
    "CET-1CEST,M3.5.0,M10.5.0/3",
];

const EXTRACTS: &[Example] = &[Example::with("extract({n} from {a})", FIELDS)];
const PARTS: &[Example] = &[Example::with("date_part('{n}', {a})", FIELDS)];

const fn extract(arguments: &'static [TypeClass]) -> Signature {
    Signature::new(arguments, ResultType::Of(Decimals), EXTRACTS)
}

const fn date_part(arguments: &'static [TypeClass]) -> Signature {
    Signature::new(arguments, ResultType::Of(Float64), PARTS)
}

pub(super) static EXTRACT: FunctionEntry =
    FunctionEntry::new("extract", Form::Field(Function::Extract), "A field of a date or time, exactly.")
        .failure(FailureRule::Depends(field_could_fail))
        .shown(Shown::FieldFrom)
        .signatures(&[extract(&[Date]), extract(&[Time]), extract(&[Timestamps])])
        .caveats(&[Caveat::Distance])
        .catalog(&[CatalogNames::itself(&["extract"])]);

pub(super) static DATE_PART: FunctionEntry = FunctionEntry::new(
    "date_part",
    Form::Field(Function::DatePart),
    "A field of a date or time, in PostgreSQL's steps.",
)
.failure(FailureRule::Depends(field_could_fail))
.shown(Shown::Field)
.signatures(&[date_part(&[Date]), date_part(&[Time]), date_part(&[Timestamps])])
.caveats(&[Caveat::Distance])
.catalog(&[CatalogNames::itself(&["date_part"])]);

pub(super) static DATE_TRUNC: FunctionEntry = FunctionEntry::new(
    "date_trunc",
    Form::Field(Function::DateTrunc),
    "The start of the unit that a moment is in.",
)
.failure(FailureRule::Always)
.shown(Shown::Field)
.signatures(&[Signature::new(
    &[Timestamps],
    ResultType::Same,
    &[Example::with("date_trunc('{n}', {a})", UNITS)],
)])
.caveats(&[Caveat::Distance, Caveat::TimeZone { place: 2, of: 3 }])
.catalog(&[CatalogNames::itself(&["date_trunc"])]);

pub(super) static ADD_DAYS: FunctionEntry =
    FunctionEntry::new("add_days", Form::Plain(Function::AddDays), "The date so many days later.")
        .failure(FailureRule::Always)
        .shown(Shown::Infix("+"))
        .signatures(&[Signature::new(
            &[Date, Int32],
            ResultType::Same,
            &[Example::of("{a} + {b}"), Example::of("{b} + {a}"), Example::with("{a} + ({n})", DAYS)],
        )])
        .catalog(&[
            CatalogNames::itself(&["date_pli"]),
            CatalogNames { names: &["integer_pl_date"], is: CatalogUse::Exchanged },
        ]);

pub(super) static SUBTRACT_DAYS: FunctionEntry = FunctionEntry::new(
    "subtract_days",
    Form::Plain(Function::SubtractDays),
    "The date so many days earlier.",
)
.failure(FailureRule::Always)
.shown(Shown::Infix("-"))
.signatures(&[Signature::new(
    &[Date, Int32],
    ResultType::Same,
    &[Example::of("{a} - {b}"), Example::with("{a} - ({n})", DAYS)],
)])
.catalog(&[CatalogNames::itself(&["date_mii"])]);

pub(super) static DAYS_BETWEEN: FunctionEntry =
    FunctionEntry::new("days_between", Form::Plain(Function::DaysBetween), "The days from b to a.")
        .failure(FailureRule::Always)
        .shown(Shown::Infix("-"))
        .signatures(&[Signature::new(&[Date, Date], ResultType::Of(Int32), &[Example::of("{a} - {b}")])])
        .catalog(&[CatalogNames::itself(&["date_mi"])]);

pub(super) static ADD_INTERVAL: FunctionEntry = FunctionEntry::new(
    "add_interval",
    Form::Plain(Function::AddInterval),
    "The moment later by months, then days, then microseconds.",
)
.failure(FailureRule::Always)
.shown(Shown::Infix("+"))
.signatures(&[Signature::new(
    &[Timestamps, Interval],
    ResultType::Same,
    &[Example::with("{a} + interval '{n}'", INTERVALS), Example::with("{a} - interval '{n}'", INTERVALS)],
)])
.caveats(&[Caveat::Distance])
.catalog(&[
    CatalogNames::itself(&["date_pl_interval", "timestamp_pl_interval", "timestamptz_pl_interval"]),
    CatalogNames {
        names: &["date_mi_interval", "timestamp_mi_interval", "timestamptz_mi_interval"],
        is: CatalogUse::MinusSecond,
    },
]);

pub(super) static TIMESTAMP_DIFFERENCE: FunctionEntry = FunctionEntry::new(
    "timestamp_difference",
    Form::Plain(Function::TimestampDifference),
    "The days and microseconds from b to a.",
)
.failure(FailureRule::Always)
.shown(Shown::Infix("-"))
.signatures(&[Signature::new(
    &[Timestamps, Timestamps],
    ResultType::Of(Interval),
    &[Example::of("{a} - {b}")],
)])
.caveats(&[Caveat::Distance])
.catalog(&[CatalogNames::itself(&["timestamp_mi", "timestamptz_mi"])]);

pub(super) static DATE_BIN: FunctionEntry = FunctionEntry::new(
    "date_bin",
    Form::Plain(Function::DateBin),
    "The start of the stride that a moment is in.",
)
.failure(FailureRule::Always)
.signatures(&[Signature::new(
    &[Timestamps, Int64, Timestamps],
    ResultType::Same,
    &[Example::with("date_bin('{n}', {a}, '2001-02-03 04:05:06.7')", STRIDES)],
)])
.caveats(&[Caveat::Distance])
.catalog(&[CatalogNames::itself(&["date_bin"])]);

pub(super) static TO_TIMESTAMP: FunctionEntry = FunctionEntry::new(
    "to_timestamp",
    Form::Plain(Function::ToTimestamp),
    "The moment so many seconds after 1970 began.",
)
.failure(FailureRule::Always)
.signatures(&[Signature::new(&[Float64], ResultType::Of(Timestamps), &[Example::of("to_timestamp({a})")])])
.catalog(&[CatalogNames::itself(&["to_timestamp"])]);

pub(super) static LOCAL_TIME: FunctionEntry = FunctionEntry::new(
    "local_time",
    Form::Plain(Function::LocalTime),
    "The local time in a time zone at a moment.",
)
.failure(FailureRule::Always)
.signatures(&[Signature::new(
    &[Timestamps, Bytea],
    ResultType::Of(Timestamps),
    &[Example::with("{a} AT TIME ZONE '{n}'", ZONES)],
)])
.caveats(&[Caveat::Distance, Caveat::TimeZone { place: 0, of: 2 }])
.catalog(&[CatalogNames::itself(&["timezone"])]);

pub(super) static INSTANT: FunctionEntry = FunctionEntry::new(
    "instant",
    Form::Plain(Function::Instant),
    "The moment that a local time is in a time zone.",
)
.failure(FailureRule::Always)
.signatures(&[Signature::new(&[Timestamps, Bytea], ResultType::Of(Timestamps), &[])]);

pub(super) static DATE_TRUNC_IN_ZONE: FunctionEntry = FunctionEntry::new(
    "date_trunc_in_zone",
    Form::Field(Function::DateTruncInZone),
    "The start of the unit that a moment is in, in a time zone.",
)
.failure(FailureRule::Always)
.shown(Shown::Field)
.signatures(&[Signature::new(
    &[Timestamps, Bytea],
    ResultType::Of(Timestamps),
    &[Example {
        sql: "date_trunc('{n}', {a}, '{m}')",
        constants: &["second", "hour", "day", "week", "year"],
        more_constants: ZONES,
    }],
)]);

/// Fields of what is infinite are no numbers; a date from a file is not, and no time is.
fn field_could_fail(arguments: &[Expression], _data_type: &DataType) -> bool {
    let value = arguments.first();
    value.is_some_and(|value| !matches!(value.data_type(), DataType::Date | DataType::Time))
}
