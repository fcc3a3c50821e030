use pystachio_plan::{JsonPath, JsonStep};

use super::*;

fn steps(path: &str) -> Vec<JsonStep> {
    JsonPath::parse(path).unwrap().steps
}

/// The part of a document of `json` and that of `jsonb`.
fn parts<'a>(text: &'a str, path: &str) -> [Option<&'a str>; 2] {
    let part = |form| Reader::new(text, form).part(&steps(path)).unwrap().map(|part| &text[part]);
    [part(Form::JsonDecoded), part(Form::Jsonb)]
}

fn shown(text: &str) -> String {
    let mut target = String::new();
    Tree::parse(text).unwrap().write(&mut target);
    target
}

fn detail(text: &str, form: Form) -> Option<String> {
    let error = Reader::new(text, form).whole().err()?;
    Some(error.detail.unwrap_or(error.message))
}

#[test]
fn a_path_leads_to_a_part() {
    let text = r#" {"a": {"b": [10, {"c": "x"}, -0.50 ]}, "n":null, "" : {"7":1}} "#;
    for (path, part) in [
        ("", Some(text.trim())),
        (".a.b[0]", Some("10")),
        (".a.b[-1]", Some("-0.50")),
        (".a.b[1].c", Some("\"x\"")),
        ("/a/b/1/c", Some("\"x\"")),
        ("/a/b/-3", Some("10")),
        (".a.b[-4]", None),
        (".a.b[3]", None),
        (".a[0]", None),
        (".a.b.0", None),
        (".n", Some("null")),
        (".n.x", None),
        (".", Some("{\"7\":1}")),
        ("./7", Some("1")),
        (".[7]", None),
        (".x", None),
        (".a.b[0].x", None),
    ] {
        assert_eq!(parts(text, path), [part, part], "{path}");
    }
}

/// Source: PostgreSQL 15, `jsonfuncs.c` (`jsonb_array_element`): `JB_ROOT_IS_ARRAY` is true of a single value.
#[test]
fn a_single_value_of_jsonb_is_an_array_of_it() {
    for (text, path) in [("7", "[0]"), ("7", "[-1]"), ("7", "[0][0]"), ("null", "[0]"), ("\"7\"", "[-1]")] {
        assert_eq!(parts(text, path), [None, Some(text)], "{text} {path}");
    }
    assert_eq!(parts("{\"a\": true}", ".a[0]"), [None, Some("true")]);
    for path in ["[1]", "/0", "[-2]", "[0].a", ".a"] {
        assert_eq!(parts("7", path), [None; 2], "{path}");
    }
}

#[test]
fn the_last_of_equal_names_counts() {
    let text = r#"{"a": {"b": 1}, "\u0061": {"c": 2}}"#;
    assert_eq!(parts(text, ".a"), [Some("{\"c\": 2}"); 2]);
    assert_eq!(parts(text, ".a.b"), [None; 2]);
    // `json #>` keeps what it has found.
    assert_eq!(parts(text, "/a/b"), [Some("1"), None]);
    assert_eq!(shown(r#"{"b":1, "aa":2, "b":{"x":[]}, "a":3}"#), r#"{"a": 3, "b": {"x": []}, "aa": 2}"#);
}

#[test]
fn what_is_no_json_is_an_error_that_says_what_is_wrong() {
    for (text, expected) in [
        ("", "The input string ended unexpectedly."),
        ("{", "The input string ended unexpectedly."),
        ("[1,", "The input string ended unexpectedly."),
        ("{\"a\"", "The input string ended unexpectedly."),
        ("[1 2]", "Expected \",\" or \"]\", but found \"2\"."),
        ("{\"a\":1 \"b\"}", "Expected \",\" or \"}\", but found \"\"b\"\"."),
        ("{1:2}", "Expected string or \"}\", but found \"1\"."),
        ("{\"a\":1,}", "Expected string, but found \"}\"."),
        ("{\"a\" 1}", "Expected \":\", but found \"1\"."),
        ("[,]", "Expected JSON value, but found \",\"."),
        ("1 2", "Expected end of input, but found \"2\"."),
        ("nulls", "Token \"nulls\" is invalid."),
        ("tRue", "Token \"tRue\" is invalid."),
        ("'a'", "Token \"'\" is invalid."),
        ("é", "Token \"é\" is invalid."),
        ("€é1", "Token \"€é1\" is invalid."),
        ("01", "Token \"01\" is invalid."),
        ("1.", "Token \"1.\" is invalid."),
        ("-", "Token \"-\" is invalid."),
        ("1e+", "Token \"1e+\" is invalid."),
        ("\"a", "Token \"\"a\" is invalid."),
        ("\"a\\", "Token \"\"a\\\" is invalid."),
        ("\"\\x\"", "Escape sequence \"\\x\" is invalid."),
        ("\"\\u12g4\"", "\"\\u\" must be followed by four hexadecimal digits."),
        ("\"\t\"", "Character with value 0x09 must be escaped."),
    ] {
        for form in [Form::Json, Form::JsonDecoded, Form::Jsonb] {
            assert_eq!(detail(text, form).as_deref(), Some(expected), "{text}");
        }
    }
    for text in [r#""\u0000""#, r#"["\ud800"]"#, r#"{"\udc00":1}"#, r#""\ud800\ud800""#, r#""\ud800x""#] {
        assert_eq!(detail(text, Form::Json), None, "{text}");
        assert!(detail(text, Form::JsonDecoded).is_some() && detail(text, Form::Jsonb).is_some(), "{text}");
    }
    assert_eq!(detail("1e200000", Form::Json), None);
    assert!(detail("1e200000", Form::Jsonb).is_some());
}

/// A function reads the fault also where its path leads elsewhere.
#[test]
fn a_document_is_read_to_its_end() {
    for text in ["{\"a\":1,\"b\":}", "[1,x]", "{\"a\":1} x", "{\"b\":{\"c\" 1},\"a\":1}"] {
        assert!(Tree::parse(text).is_err() && Reader::new(text, Form::Jsonb).has_key("a").is_err(), "{text}");
        for other in ["1", "{}", "{\"a\":1}", "[1]"] {
            assert!(Tree::parse(other).unwrap().is_in(text).is_err(), "{text} {other}");
        }
        for path in ["", ".a", ".z", "[0]", "[-1]", "/a/b"] {
            assert!(Reader::new(text, Form::Jsonb).part(&steps(path)).is_err(), "{text} {path}");
        }
    }
}

#[test]
fn strings_of_every_length_end_where_they_end() {
    for length in 0..40 {
        let plain = "x".repeat(length);
        for (text, expected) in [
            (format!("[\"{plain}\", 1]"), Some(plain.clone())),
            (format!("[\"{plain}\\n\", 1]"), Some(format!("{plain}\n"))),
            (format!("[\"{plain}é\u{7f}\", 1]"), Some(format!("{plain}é\u{7f}"))),
            (format!("[\"{plain}\u{1}\", 1]"), None),
            (format!("[\"{plain}"), None),
        ] {
            let part = Reader::new(&text, Form::Jsonb).part(&steps("[0]")).ok().flatten();
            assert_eq!(part.map(|part| decoded_text(&text[part])), expected, "{text}");
        }
    }
}

#[test]
fn numbers_are_printed_as_numeric() {
    for (text, number) in [
        ("1.50", "1.50"),
        ("1e2", "100"),
        ("-1.5E3", "-1500"),
        ("1.25e1", "12.5"),
        ("5e-3", "0.005"),
        ("-0", "0"),
        ("-0.00", "0.00"),
        ("0e5", "0"),
        ("0.001e1", "0.01"),
        ("120e-1", "12.0"),
    ] {
        assert_eq!(shown(text), number, "{text}");
    }
    assert_eq!(shown("1e131071").len(), 131_072);
    assert_eq!(shown("1e-16383").len(), 16_385);
    for text in ["1e131072", "1e-16384", "1e99999999999999999999", "-1e-2147483648"] {
        assert!(Tree::parse(text).is_err(), "{text}");
    }
}

#[test]
fn texts_are_decoded_and_escaped_again() {
    assert_eq!(decoded_text(r#""a\u00e9\ud83d\ude00\n\/\"""#), "a\u{e9}\u{1f600}\n/\"");
    assert_eq!(shown(r#""\u0001\u001f\u007f\b\"\\\/é""#), "\"\\u0001\\u001f\u{7f}\\b\\\"\\\\/é\"");
}

fn decoded_text(token: &str) -> String {
    reader::decoded(token).unwrap().into_owned()
}

#[test]
fn a_document_contains_another() {
    let contains = |text: &str, other: &str| Tree::parse(other).unwrap().is_in(text).unwrap();
    for (text, other) in [
        (r#"{"a":1.0,"b":[1,{"c":2,"d":3}]}"#, r#"{"a":1}"#),
        (r#"{"a":1,"b":[1,{"c":2,"d":3}]}"#, r#"{"b":[{"c":2}]}"#),
        (r#"{"b":[1,2]}"#, r#"{"b":[2,2,1]}"#),
        ("[1,[2,3]]", "[[3]]"),
        ("[1,2]", "1"),
        ("\"a\"", "\"a\""),
        ("{}", "{}"),
        ("[]", "[]"),
        ("[null]", "null"),
        ("1.00", "1"),
    ] {
        assert!(contains(text, other), "{text} {other}");
    }
    for (text, other) in [
        (r#"{"a":1}"#, r#"{"a":2}"#),
        (r#"{"a":1}"#, r#"{"a":"1"}"#),
        (r#"{"a":[1]}"#, r#"{"a":1}"#),
        (r#"{"a":{}}"#, r#"{"a":[]}"#),
        ("[[1,2]]", "[1]"),
        ("[[1]]", "1"),
        ("1", "[1]"),
        ("{}", "[]"),
        ("[]", "{}"),
        ("{}", "1"),
        ("null", "[]"),
    ] {
        assert!(!contains(text, other), "{text} {other}");
    }
}

#[test]
fn a_document_has_keys() {
    let has = |text: &str, key| Reader::new(text, Form::Jsonb).has_key(key).unwrap();
    assert!(has(r#"{"a":1}"#, "a") && has(r#"["b","a"]"#, "a") && has("\"a\"", "a"));
    assert!(!has(r#"{"b":"a"}"#, "a") && !has("[[\"a\"]]", "a") && !has("null", "null"));
}

/// Deep documents are read, and only their values have a bound.
#[test]
fn deep_documents_do_not_end_the_engine() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Reader::new(&deep, Form::Jsonb).whole().is_ok());
    assert_eq!(Tree::parse(&deep).unwrap_err().kind, ErrorKind::LimitExceeded);
    let open = "[{\"a\":".repeat(100_000);
    assert!(Reader::new(&open, Form::Jsonb).whole().is_err());
}
