use pystachio_plan::ErrorKind;

use super::*;

fn wide(text: &str) -> Result<f64> {
    float(text, "double precision", |number| number.parse().unwrap_or_default(), |value| value)
}

fn narrow(text: &str) -> Result<f32> {
    float(text, "real", |number| number.parse().unwrap_or_default(), |value| value as f32)
}

#[test]
fn integers_are_read_in_digits() {
    let read = |text| integer::<i32>(text, "integer", false);
    for (text, value) in [("0", 0), (" +7\t", 7), ("-2147483648", i32::MIN), ("00012", 12), ("-0", 0)] {
        assert_eq!(read(text), Ok(value), "{text}");
    }
    for text in ["", " ", "-", "1 2", "0x10", "1_000", "1.0", "\u{a0}1", "٣", "1e3", "99999999999x"] {
        let kind =
            if text.starts_with("999") { ErrorKind::NumericOutOfRange } else { ErrorKind::InvalidText };
        assert_eq!(read(text).map_err(|error| error.kind), Err(kind), "{text}");
    }
    let error = read("2147483648").unwrap_err();
    assert_eq!(error.message, "value \"2147483648\" is out of range for type integer");
    assert_eq!(integer::<i16>("-32768", "smallint", false), Ok(i16::MIN));
    assert_eq!(integer::<i64>("-9223372036854775808", "bigint", false), Ok(i64::MIN));
    assert!(integer::<i64>("9223372036854775808", "bigint", false).is_err());
    assert!(integer::<i64>(&"9".repeat(100), "bigint", false).is_err());
}

#[test]
fn later_versions_read_other_bases() {
    let read = |text| integer::<i32>(text, "integer", true).ok();
    for (text, value) in
        [("0x1F", 31), ("-0o17", -15), ("0B101", 5), ("1_000", 1000), ("0x_f", 15), ("0b1_0", 2)]
    {
        assert_eq!(read(text), Some(value), "{text}");
    }
    for text in ["0x", "_1", "1_", "1__0", "0b2", "0o8", "0xg", "0x1_", "-"] {
        assert_eq!(read(text), None, "{text}");
    }
    assert_eq!(read("-0x80000000"), Some(i32::MIN));
    assert_eq!(read("0x80000000"), None);
}

#[test]
fn floats_are_read_as_c_reads_them() {
    for (text, value) in [
        ("1.5", 1.5),
        (" -.5e1 ", -5.0),
        ("1.", 1.0),
        ("+0", 0.0),
        ("inf", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
        ("1e308", 1e308),
        ("4.9e-324", 5e-324),
        ("0x1.8p3", 12.0),
        ("0x10", 16.0),
        ("0x.8P-1", 0.25),
        ("0x1fffffffffffff8", 144_115_188_075_855_872.0),
        ("-0x1p-1074", -5e-324),
        ("0e99999", 0.0),
    ] {
        assert_eq!(wide(text), Ok(value), "{text}");
    }
    assert!(wide("nan").is_ok_and(f64::is_nan) && wide(" NaN(12_a) ").is_ok_and(f64::is_nan));
    assert!(wide("-0").is_ok_and(|zero| zero.is_sign_negative()));
    for text in
        ["", " ", ".", "e5", "1e", "1e+", "1 2", "0x", "0xp1", "infinit", "nan(", "1,5", "--1", "+-1", "é"]
    {
        assert_eq!(wide(text).map_err(|error| error.kind), Err(ErrorKind::InvalidText), "{text}");
    }
    for text in ["1e309", "-1e400", "1e-400", "0x1p1024", "0x1p-1080"] {
        assert_eq!(wide(text).map_err(|error| error.kind), Err(ErrorKind::NumericOutOfRange), "{text}");
    }
    assert_eq!(
        wide("1e400x").map_err(|error| error.message),
        Err("\"1e400\" is out of range for type double precision".to_owned())
    );
    assert_eq!(narrow("0.1"), Ok(0.1f32));
    assert_eq!(narrow("16777217"), Ok(16777216.0));
    assert!(narrow("1e39").is_err() && narrow("1e-50").is_err() && narrow("1e-45").is_ok());
}

#[test]
fn booleans_are_words_or_their_starts() {
    for text in ["t", "TRUE", " tru ", "y", "yes", "on", "1"] {
        assert_eq!(boolean(text), Ok(true), "{text}");
    }
    for text in ["f", "False", "n", "no", "of", "OFF", "0"] {
        assert_eq!(boolean(text), Ok(false), "{text}");
    }
    for text in ["", " ", "o", "truer", "01", "2", "oo", "é"] {
        assert!(boolean(text).is_err(), "{text}");
    }
}

#[test]
fn uuids_have_hyphens_behind_any_four_digits() {
    let plain = "a0eebc999c0b4ef8bb6d6bb9bd380a11";
    let value = uuid(plain);
    assert!(value.is_ok());
    for text in [
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
    ] {
        assert_eq!(uuid(text), value, "{text}");
    }
    for text in [
        "",
        "{",
        "a0eebc999c0b4ef8bb6d6bb9bd380a1",
        "a0eebc999c0b4ef8bb6d6bb9bd380a111",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11-",
        "a0-eebc999c0b4ef8bb6d6bb9bd380a11",
        "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
        " a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "g0eebc999c0b4ef8bb6d6bb9bd380a11",
    ] {
        assert!(uuid(text).is_err(), "{text}");
    }
}
