use pystachio_plan::Interval;

use super::*;
use crate::RuntimeValue;

fn at_zone(zone: Source, value: Source, of: SourceType) -> Source {
    call("timezone", of, vec![zone, value])
}

#[test]
fn zones_are_parameters_that_are_shared() {
    let notes = Notes::default();
    let berlin = |attribute, of| at_zone(text("Europe/Berlin"), column(attribute), of);
    let local = lower_with(&berlin(MOMENT, SourceType::Timestamp), &notes).unwrap();
    let moment = lower_with(&berlin(LOCAL, SourceType::TimestampTz), &notes).unwrap();
    assert_eq!(*local.data_type(), DataType::Timestamp);
    assert_eq!(*moment.data_type(), DataType::TimestampTz);
    let zone = RuntimeValue::Zone(Value::Text("Europe/Berlin".into()));
    assert_eq!(notes.parameter_at(0), Some((zone, DataType::Bytea)));
    assert_eq!(notes.parameter_at(1), None);
}

#[test]
fn a_zone_that_the_server_does_not_know_is_refused() {
    let refusal = refused(&at_zone(text("Nowhere"), column(MOMENT), SourceType::Timestamp));
    assert_eq!(refusal.to_string(), "time zone \"Nowhere\" not recognized");
    assert_eq!(refused(&at_zone(column(NAME), column(MOMENT), SourceType::Timestamp)), Refusal::ZoneOfRow);
    let null = at_zone(null(SourceType::Text), column(MOMENT), SourceType::Timestamp);
    assert!(lower(&null).is_ok());
}

#[test]
fn fields_of_a_moment_are_of_the_session_s_zone() {
    let notes = Notes::default();
    let field =
        |name: &str, attribute| call("extract", SourceType::Numeric, vec![text(name), column(attribute)]);
    lower_with(&field("hour", LOCAL), &notes).unwrap();
    lower_with(&field("epoch", MOMENT), &notes).unwrap();
    assert_eq!(notes.parameter_at(0), None);
    lower_with(&field("hour", MOMENT), &notes).unwrap();
    assert_eq!(notes.parameter_at(0), Some((RuntimeValue::SessionZone, DataType::Bytea)));
}

#[test]
fn a_field_is_a_constant_that_is_known() {
    let field = |field| call("extract", SourceType::Numeric, vec![field, column(LOCAL)]);
    assert_eq!(lower(&field(text("SECONDS"))).unwrap().scale, Scale::Fixed(6));
    assert_eq!(refused(&field(text("fortnight"))).to_string(), "function extract with the field fortnight");
    assert_eq!(
        refused(&field(column(NAME))).to_string(),
        "function extract with a field that is no constant"
    );
    assert_eq!(refused(&field(null(SourceType::Text))).to_string(), "function extract with an unknown field");
    let of_date = call("extract", SourceType::Numeric, vec![text("hour"), column(DAY)]);
    assert_eq!(refused(&of_date).to_string(), "function extract of Hour on date");
}

#[test]
fn what_may_be_infinite_has_no_fields() {
    let value = given(0, SourceType::Timestamp);
    let field = call("extract", SourceType::Numeric, vec![text("year"), value]);
    assert_eq!(refused(&field).to_string(), "function extract on a value that may be infinite");
    let notes = Notes::default();
    let infinity = constant(Value::Int(i64::MAX), SourceType::Timestamp);
    lower_with(&test("timestamp_lt", column(LOCAL), infinity), &notes).unwrap();
    assert!(notes.met_infinity());
    let field = call("extract", SourceType::Numeric, vec![text("year"), column(LOCAL)]);
    assert!(lower_with(&field, &notes).is_err());
    assert!(lower(&field).is_ok());
}

#[test]
fn months_and_days_are_added_in_the_session_s_zone() {
    let interval = |months, days| {
        let value = Value::Interval(Interval { months, days, microseconds: 5 });
        constant(value, SourceType::Interval)
    };
    let later = |attribute, interval| {
        let (name, of) = match attribute {
            MOMENT => ("timestamptz_pl_interval", SourceType::TimestampTz),
            _ => ("timestamp_pl_interval", SourceType::Timestamp),
        };
        call(name, of, vec![column(attribute), interval])
    };
    let depth = |source: &Source| lower(source).unwrap().size().depth;
    assert_eq!(depth(&later(LOCAL, interval(1, 1))), 2);
    // A local time and back for the months, the same for the days, and the rest.
    assert_eq!(depth(&later(MOMENT, interval(1, 1))), 8);
    assert_eq!(depth(&later(MOMENT, interval(0, 0))), 2);
    let refusal = refused(&later(LOCAL, column(SPAN)));
    assert_eq!(refusal.to_string(), "function timestamp_pl_interval with an interval that is no constant");
    let least = interval(i32::MIN, 0);
    assert!(refused(&later(LOCAL, least)).to_string().ends_with("with an interval out of range"));
}

#[test]
fn differences_with_infinities_are_refused_where_intervals_may_be_infinite() {
    let value = given(0, SourceType::Timestamp);
    let difference = call("timestamp_mi", SourceType::Interval, vec![column(LOCAL), value]);
    assert!(lower(&difference).is_ok());
    let server = TestServer { has_infinite_intervals: true, ..TestServer::default() };
    assert!(Lowering::new(&scope(), &Notes::default(), &server).lower(&difference).is_err());
}

#[test]
fn bins_are_lengths_of_time() {
    let bin = |months, days| {
        let stride = Value::Interval(Interval { months, days, microseconds: 0 });
        let origin = constant(Value::Int(0), SourceType::Timestamp);
        let stride = constant(stride, SourceType::Interval);
        call("date_bin", SourceType::Timestamp, vec![stride, column(LOCAL), origin])
    };
    assert!(lower(&bin(0, 7)).is_ok());
    let refusal = refused(&bin(1, 0));
    assert_eq!(refusal.to_string(), "function date_bin with a stride that is no length of time");
    let server = TestServer { bins_wrongly: true, ..TestServer::default() };
    assert!(Lowering::new(&scope(), &Notes::default(), &server).lower(&bin(0, 7)).is_err());
}

#[test]
fn formats_are_constants_without_names_of_the_locale() {
    let formatted = |value, format| call("to_char", SourceType::Text, vec![value, format]);
    assert_eq!(lowered(&formatted(column(LOCAL), text("YYYY TZ"))), "to_char(column 6, 'YYYY TZ')");
    let reason = |value, format| refused(&formatted(value, format)).to_string();
    assert_eq!(
        reason(column(LOCAL), text("TMMonth")),
        "function to_char with a format of the locale's names"
    );
    assert_eq!(
        reason(column(MOMENT), text("HH24 OF")),
        "function to_char with a format that shows the time zone"
    );
    assert_eq!(reason(column(LOCAL), column(NAME)), "function to_char with a format that is no constant");
    assert_eq!(lowered(&formatted(column(NUMBER), text("FM999"))), "format_number(column 1, 'FM999')");
    assert_eq!(reason(column(NUMBER), text("S999")), "function to_char with S in a format");
    assert_eq!(
        reason(column(NUMBER), text("9.9.9")),
        "function to_char with patterns in a format that exclude each other"
    );
    assert_eq!(reason(column(FLOAT), text("9th")), "function to_char with TH in a format");
}

#[test]
fn formats_by_which_moments_are_read_have_numbers_alone() {
    let read = |name, of, format| call(name, of, vec![column(NAME), format]);
    let date = |format| read("to_date", SourceType::Date, format);
    assert_eq!(lowered(&date(text("YYYYMMDD"))), "to_date(column 4, 'YYYYMMDD')");
    let notes = Notes::default();
    let moment = read("to_timestamp", SourceType::TimestampTz, text("YYYY-MM-DD HH24:MI:SS"));
    assert_eq!(*lower_with(&moment, &notes).unwrap().data_type(), DataType::TimestampTz);
    assert_eq!(refused(&date(text("DD Mon YYYY"))).to_string(), "function to_date with Mon in a format");
    let number = |format| read("to_number", SourceType::Numeric, format);
    let lower_number = |format| lower(&number(text(format))).unwrap();
    assert_eq!(*lower_number("9,999.99").data_type(), DataType::Decimal { precision: 6, scale: 2 });
    assert!(matches!(lower_number("9,999.99").scale, Scale::Varies(_)));
    assert_eq!(lower_number("FM000").scale, Scale::Fixed(0));
    let reason = |format| refused(&number(text(format))).to_string();
    assert_eq!(reason("9D9"), "function to_number with D in a format");
    for format in ["9MI", "SG9", "9PR", "", "x", &"9".repeat(39)] {
        let why = "function to_number with a format of more than 38 digits, or of none, or of signs";
        assert_eq!(reason(format), why, "{format}");
    }
    let justified = call("justify_interval", SourceType::Interval, vec![column(SPAN)]);
    assert_eq!(lowered(&justified), "justify_interval(column 13)");
    assert_eq!(refused(&date(text("YYYY YYYY"))).to_string(), "function to_date with YYYY in a format");
    assert_eq!(
        refused(&date(column(NAME))).to_string(),
        "function to_date with a format that is no constant"
    );
}

#[test]
fn texts_of_moments_are_of_the_session_s_style_and_zone() {
    let notes = Notes::default();
    let printed = |attribute| Source::new(Part::CoerceViaText(Box::new(column(attribute))), SourceType::Text);
    lower_with(&printed(DAY), &notes).unwrap();
    assert_eq!(notes.parameter_at(0), Some((RuntimeValue::DateStyle, DataType::Text)));
    assert_eq!(notes.parameter_at(1), None);
    lower_with(&printed(MOMENT), &notes).unwrap();
    assert_eq!(notes.parameter_at(1), Some((RuntimeValue::SessionZone, DataType::Bytea)));
}

#[test]
fn ages_of_moments_ask_which_one_is_earlier() {
    let age = |attribute| call("age", SourceType::Interval, vec![column(attribute), column(attribute)]);
    assert_eq!(lowered(&age(LOCAL)), "age(column 6, column 6)");
    assert_eq!(
        lowered(&age(MOMENT)),
        "age(local_time(column 7, $1), local_time(column 7, $1), (column 7 < column 7))"
    );
}
