//! Parts of JSON documents, and values that are read from text.

use super::*;
use crate::JSON_SUBSCRIPT;

fn cast(argument: Source, of: SourceType) -> Source {
    Source::new(Part::CoerceViaText(Box::new(argument)), of)
}

fn jsonb() -> SourceType {
    SourceType::from_text("jsonb")
}

fn step(name: &str, document: Source, step: Source) -> Source {
    let of = match name.ends_with("_text") {
        true => SourceType::Text,
        false => document.of.clone(),
    };
    call(name, of, vec![document, step])
}

fn path(steps: &[&str]) -> Source {
    let steps = steps.iter().map(|step| Constant::Value(Value::Text((*step).to_owned())));
    Source::new(Part::Constant(Constant::Array(steps.collect())), SourceType::array_of(SourceType::Text))
}

#[test]
fn steps_are_one_path() {
    let inner =
        step("jsonb_array_element", step("jsonb_object_field", column(JSONB), text("a")), integer(-2));
    assert_eq!(
        lowered(&step("jsonb_object_field_text", inner.clone(), text("b.c"))),
        r"jsonb_part_text(column 14, '.a[-2].b\.c')"
    );
    assert_eq!(lowered(&inner), "jsonb_part(column 14, '.a[-2]')");
    assert_eq!(
        lowered(&step(
            "jsonb_extract_path_text",
            step(JSON_SUBSCRIPT, column(JSONB), integer(7)),
            path(&["a", "0"])
        )),
        "jsonb_part_text(column 14, '/7/a/0')"
    );
    assert_eq!(lowered(&step("jsonb_extract_path", column(JSONB), path(&[]))), "jsonb_part(column 14, '')");
}

/// Where a document names a field twice, `#>` of `json` looks into both.
#[test]
fn paths_of_json_are_not_joined() {
    let inner = step("json_extract_path", column(JSON), path(&["a", "b"]));
    assert_eq!(
        lowered(&step("json_object_field_text", inner, text("c"))),
        "json_part_text(json_part(column 12, '/a/b'), '.c')"
    );
    let inner = step("json_object_field", column(JSON), text("a"));
    assert_eq!(
        lowered(&step("json_array_element_text", inner, integer(0))),
        "json_part_text(column 12, '.a[0]')"
    );
}

#[test]
fn steps_that_are_no_constants_stay() {
    let refusal = refused(&step("jsonb_object_field_text", column(JSONB), column(NAME)));
    assert_eq!(refusal.to_string(), "function jsonb_object_field_text with a step that is no constant");
    let steps = vec!["a"; 101];
    assert!(lower(&step("jsonb_extract_path", column(JSONB), path(&steps))).is_err());
    let nulls = Source::new(
        Part::Constant(Constant::Array(vec![Constant::Null])),
        SourceType::array_of(SourceType::Text),
    );
    assert!(lower(&step("jsonb_extract_path", column(JSONB), nulls)).is_err());
    let latin = TestServer { text_form: TextForm::OneByte { is_ordered: true }, ..TestServer::default() };
    let source = step("jsonb_object_field", column(JSONB), text("a"));
    assert!(Lowering::new(&scope(), &Notes::default(), &latin).lower(&source).is_err());
}

#[test]
fn documents_are_asked() {
    let document = || constant(Value::Text("{}".to_owned()), jsonb());
    let of_two = |name| call(name, SourceType::Bool, vec![column(JSONB), document()]);
    assert_eq!(lowered(&of_two("jsonb_contains")), "jsonb_contains(column 14, '{}')");
    assert_eq!(lowered(&of_two("jsonb_contained")), "jsonb_contains('{}', column 14)");
    let exists = |name, keys| call(name, SourceType::Bool, vec![column(JSONB), keys]);
    assert_eq!(lowered(&exists("jsonb_exists", text("a"))), "jsonb_exists(column 14, 'a')");
    assert_eq!(
        lowered(&exists("jsonb_exists_any", path(&["a", "b"]))),
        "(jsonb_exists(column 14, 'a') OR jsonb_exists(column 14, 'b'))"
    );
    assert_eq!(
        lowered(&exists("jsonb_exists_all", path(&["a", "b"]))),
        "(jsonb_exists(column 14, 'a') AND jsonb_exists(column 14, 'b'))"
    );
    assert!(lower(&exists("jsonb_exists_any", path(&[]))).is_err());
    assert!(lower(&exists("jsonb_exists_any", column(NAMES))).is_err());
    assert_eq!(lowered(&call("json_typeof", SourceType::Text, vec![column(JSON)])), "json_typeof(column 12)");
}

#[test]
fn text_and_documents_are_cast() {
    assert_eq!(lowered(&cast(column(NAME), jsonb())), "jsonb_cast(column 4)");
    assert_eq!(lowered(&cast(column(NAME), SourceType::Json)), "json_cast(column 4)");
    assert_eq!(lowered(&cast(column(JSONB), SourceType::Text)), "jsonb_text(column 14)");
    assert_eq!(lowered(&cast(column(JSON), SourceType::Text)), "column 12");
    assert_eq!(lowered(&cast(column(JSON), jsonb())), "jsonb_cast(column 12)");
    assert_eq!(lowered(&cast(column(JSONB), SourceType::Json)), "jsonb_text(column 14)");
    let inner = cast(column(NAME), jsonb());
    assert_eq!(
        lowered(&step("jsonb_object_field_text", inner, text("a"))),
        "jsonb_part_text(jsonb_cast(column 4), '.a')"
    );
}

#[test]
fn values_are_read_from_text() {
    assert_eq!(lowered(&cast(column(NAME), SourceType::BigInt)), "(column 4)::bigint");
    assert_eq!(lowered(&cast(column(CODE), SourceType::Double)), "(column 11)::double precision");
    assert_eq!(lowered(&cast(column(NAME), SourceType::Uuid)), "(column 4)::uuid");
    assert!(lower(&cast(column(CODE), SourceType::Uuid)).is_err());
    assert!(lower(&cast(column(NAME), SourceType::Date)).is_err());
    assert!(lower(&cast(column(NAME), SourceType::Numeric)).is_err());
    let to_numeric = |precision: i64, scale: i64| {
        let modifier = integer((precision << 16 | scale) + 4);
        call("numeric", SourceType::Numeric, vec![cast(column(NAME), SourceType::Numeric), modifier])
    };
    assert_eq!(lowered(&to_numeric(12, 2)), "(column 4)::numeric(12,2)");
    assert!(lower(&to_numeric(2, 4)).is_err() && lower(&to_numeric(60, 4)).is_err());
}
