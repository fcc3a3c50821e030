//! Dates and times that are made of numbers, their texts, and numbers that are read from text.

use super::{
    CatalogNames, CatalogUse, Caveat, Example, FailureRule, Form, FunctionEntry, NullRule, ResultType, Shown,
    Signature,
    TypeClass::{Bool, Bytea, Date, Decimals, Float64, Int32, Int64, Interval, Text, Time, Timestamps},
};
use crate::{Function, Justified};

const TEXT: ResultType = ResultType::Of(Text);

const FORMATS: &[&str] = &[
    "YYYY-MM-DD HH24:MI:SS.US",
    "Day, DDth Month YYYY HH12:MI AM",
    "IYYY-IW-ID Q CC J WW W DDD",
    "FMDay FMDDth FMMonth FMRM Y,YYY B.C. \"Q\"Q",
    "",
];

pub(super) static MAKE_DATE: FunctionEntry = FunctionEntry::new(
    "make_date",
    Form::Plain(Function::MakeDate),
    "The date of a year, month and day. Numbers that make none are an error.",
)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(
    &[Int32, Int32, Int32],
    ResultType::Of(Date),
    &[Example::of("make_date({a}, 2, 29)"), Example::of("make_date(2024, {a}, {b})")],
)])
.catalog(&[CatalogNames::itself(&["make_date"])]);

pub(super) static MAKE_TIME: FunctionEntry = FunctionEntry::new(
    "make_time",
    Form::Plain(Function::MakeTime),
    "The time of an hour, minute and second. Numbers that make none are an error.",
)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(
    &[Int32, Int32, Float64],
    ResultType::Of(Time),
    &[Example::of("make_time({a}, 30, {b})")],
)])
.catalog(&[CatalogNames::itself(&["make_time"])]);

pub(super) static MAKE_TIMESTAMP: FunctionEntry = FunctionEntry::new(
    "make_timestamp",
    Form::Plain(Function::MakeTimestamp),
    "The timestamp of a year, month, day, hour, minute and second. Numbers that make none are an error.",
)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(
    &[Int32, Int32, Int32, Int32, Int32, Float64],
    ResultType::Of(Timestamps),
    &[Example::of("make_timestamp({a}, 12, 31, 23, 59, {b})")],
)])
.catalog(&[CatalogNames::itself(&["make_timestamp"])]);

pub(super) static SPAN: FunctionEntry =
    FunctionEntry::new("span", Form::Plain(Function::Span), "The interval of so many days and microseconds.")
        .failure(FailureRule::Always)
        .on_host()
        .signatures(&[Signature::new(&[Int64, Int64], ResultType::Of(Interval), &[])]);

pub(super) static MEAN_SPAN: FunctionEntry = FunctionEntry::new(
    "mean_span",
    Form::Plain(Function::MeanSpan),
    "The mean of so many intervals whose days and microseconds sum up to these.",
)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(&[Int64, Int64, Int64], ResultType::Of(Interval), &[])]);

pub(super) static MAKE_INTERVAL: FunctionEntry = FunctionEntry::new(
    "make_interval",
    Form::Plain(Function::MakeInterval),
    "The interval of years, months, weeks, days, hours, minutes and seconds. Seconds that are no number or infinite are an error.",
)
.failure(FailureRule::Always)
.on_host()
.signatures(&[Signature::new(
    &[Int32, Int32, Int32, Int32, Int32, Int32, Float64],
    ResultType::Of(Interval),
    &[
        Example::of("make_interval(days => {a}, secs => {b})"),
        Example::of("make_interval({a}, {b}, 3, 4, 5, 6, 7.5)"),
        Example::of("make_interval(weeks => {a}, mins => {b})"),
    ],
)])
.catalog(&[CatalogNames::itself(&["make_interval"])]);

pub(super) static IS_FINITE: FunctionEntry = FunctionEntry::new(
    "isfinite",
    Form::Plain(Function::IsFinite),
    "Whether a date or timestamp is neither infinity nor -infinity.",
)
.on_host()
.signatures(&[
    Signature::new(&[Date], ResultType::Of(Bool), &[Example::of("isfinite({a})")]),
    Signature::new(&[Timestamps], ResultType::Of(Bool), &[Example::of("isfinite({a})")]),
])
.catalog(&[CatalogNames::itself(&["isfinite"])]);

pub(super) static AGE: FunctionEntry =
    FunctionEntry::new("age", Form::Plain(Function::Age), "The years, months, days and time from b to a.")
        .failure(FailureRule::Always)
        .on_host()
        .signatures(&[
            Signature::new(
                &[Timestamps, Timestamps],
                ResultType::Of(Interval),
                &[Example::of("age({a}, {b})")],
            ),
            Signature::new(&[Timestamps, Timestamps, Bool], ResultType::Of(Interval), &[]),
        ])
        .catalog(&[CatalogNames::itself(&["age"])]);

pub(super) static ADD_TIME: FunctionEntry =
    FunctionEntry::new("add_time", Form::Plain(Function::AddTime), "The timestamp of a date and a time.")
        .failure(FailureRule::Always)
        .on_host()
        .shown(Shown::Infix("+"))
        .signatures(&[Signature::new(
            &[Date, Time],
            ResultType::Of(Timestamps),
            &[Example::of("{a} + {b}"), Example::of("{b} + {a}")],
        )])
        .catalog(&[CatalogNames::itself(&["datetime_pl"])]);

pub(super) static TURN_TIME: FunctionEntry = FunctionEntry::new(
    "turn_time",
    Form::Plain(Function::TurnTime),
    "The time of day later by an interval's hours, minutes and seconds.",
)
.on_host()
.shown(Shown::Infix("+"))
.signatures(&[Signature::new(
    &[Time, Interval],
    ResultType::Same,
    &[
        Example::with("{a} + interval '{n}'", &["3 hours", "-25 hours", "1 day 00:00:00.000001"]),
        Example::with("{a} - interval '{n}'", &["3 hours", "-25 hours"]),
    ],
)])
.catalog(&[
    CatalogNames::itself(&["time_pl_interval"]),
    CatalogNames { names: &["time_mi_interval"], is: CatalogUse::MinusSecond },
]);

/// Formats by which dates are read.
const READ_FORMATS: &[&str] = &["YYYY-MM-DD", "YYYYMMDD", "DD.FMMM.YYYY"];

pub(super) static READ_DATE: FunctionEntry =
    FunctionEntry::new("to_date", Form::Plain(Function::ReadDate), "The date that a text is in a format.")
        .failure(FailureRule::Always)
        .expensive()
        .on_host()
        .signatures(&[Signature::new(
            &[Text, Text],
            ResultType::Of(Date),
            &[Example::with("to_date({a}, '{n}')", READ_FORMATS)],
        )])
        .catalog(&[CatalogNames::itself(&["to_date"])]);

pub(super) static READ_TIMESTAMP: FunctionEntry = FunctionEntry::new(
    "read_timestamp",
    Form::Plain(Function::ReadTimestamp),
    "The local time that a text is in a format.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.signatures(&[Signature::new(
    &[Text, Text],
    ResultType::Of(Timestamps),
    &[Example::with("to_timestamp({a}, '{n}')", &["YYYY-MM-DD HH24:MI:SS"])],
)]);

pub(super) static FORMAT_MOMENT: FunctionEntry =
    FunctionEntry::new("to_char", Form::Plain(Function::FormatMoment), "The moment in a format.")
        .nulls(NullRule::StrictAndOwn)
        .expensive()
        .signatures(&[Signature::new(
            &[Timestamps, Text],
            TEXT,
            &[Example::with("to_char({a}, '{n}')", FORMATS)],
        )])
        .caveats(&[Caveat::Distance])
        .catalog(&[CatalogNames::itself(&["to_char"])]);

const NUMBER_FORMATS: &[&str] = &["999", "9,999.99", "FM000.9", "99x99"];

pub(super) static READ_NUMBER: FunctionEntry = FunctionEntry::new(
    "to_number",
    Form::Plain(Function::ReadNumber),
    "The number that the text is in a format.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.signatures(&[Signature::new(
    &[Text, Text],
    ResultType::Of(Decimals),
    &[Example::with("to_number({a}, '{n}')", NUMBER_FORMATS)],
)])
.catalog(&[CatalogNames::itself(&["to_number"])]);

pub(super) static READ_NUMBER_SCALE: FunctionEntry = FunctionEntry::new(
    "to_number_scale",
    Form::Plain(Function::ReadNumberScale),
    "The digits behind the point of the number that the text is in a format.",
)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Text, Text], ResultType::Of(Int32), &[])]);

/// Whole units of an interval.
macro_rules! justified {
    ($entry:ident, $name:literal, $units:ident, $meaning:literal) => {
        pub(super) static $entry: FunctionEntry =
            FunctionEntry::new($name, Form::Plain(Function::Justify(Justified::$units)), $meaning)
                .failure(FailureRule::Always)
                .on_host()
                .signatures(&[Signature::new(&[Interval], ResultType::Same, &[])])
                .catalog(&[CatalogNames::itself(&[$name])]);
    };
}

justified!(JUSTIFY_HOURS, "justify_hours", Hours, "The interval with days in the place of 24 hours.");
justified!(JUSTIFY_DAYS, "justify_days", Days, "The interval with months in the place of 30 days.");
justified!(JUSTIFY_INTERVAL, "justify_interval", All, "The interval with days, months and one sign.");

pub(super) static MOMENT_TEXT: FunctionEntry = FunctionEntry::new(
    "moment_text",
    Form::Plain(Function::MomentText),
    "A date or timestamp as text of a DateStyle.",
)
.expensive()
.on_host()
.signatures(&[
    Signature::new(&[Date, Text], TEXT, &[Example::of("{a}::text")]),
    Signature::new(&[Timestamps, Text], TEXT, &[Example::of("{a}::text")]),
]);

pub(super) static INSTANT_TEXT: FunctionEntry = FunctionEntry::new(
    "instant_text",
    Form::Plain(Function::InstantText),
    "A timestamp with time zone as text, in a time zone.",
)
.failure(FailureRule::Always)
.expensive()
.on_host()
.signatures(&[Signature::new(&[Timestamps, Bytea, Text], TEXT, &[Example::of("{a}::text")])]);
