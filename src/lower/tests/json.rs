//! Fields of JSON that are fields of structs.

use pystachio_plan::Function;

use super::*;
use crate::JSON_SUBSCRIPT;

/// The scope with fields of the columns JSONB and JSON.
fn with_fields() -> Scope {
    let Scope::Base { relation_index, columns, .. } = scope() else { panic!("the scope is one table's") };
    let field = |id: u32, attribute: i16, path: &[&str], data_type: DataType| {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        let magnitude = type_magnitude(&data_type);
        let column = Expression::column(ColumnId(id), data_type);
        ((attribute, path), Lowered::number(column, Scale::None, magnitude))
    };
    let fields = [
        field(101, JSONB, &["t"], DataType::Text),
        field(102, JSONB, &["s", "i"], DataType::Int32),
        field(103, JSONB, &["n"], DataType::Decimal { precision: 9, scale: 2 }),
        field(104, JSONB, &["f"], DataType::Float64),
        field(105, JSON, &["t"], DataType::Text),
        field(106, JSONB, &["d"], DataType::Date),
    ];
    Scope::Base { relation_index, columns, fields: fields.into_iter().collect(), item_fields: HashMap::new() }
}

fn step(name: &str, json: Source, key: &str) -> Source {
    call(name, SourceType::Text, vec![json, text(key)])
}

fn path(name: &str, json: Source, keys: &[&str]) -> Source {
    let keys = keys.iter().map(|key| Constant::Value(Value::Text((*key).into()))).collect();
    let keys = Source::new(Part::Constant(Constant::Array(keys)), SourceType::Text);
    call(name, SourceType::Text, vec![json, keys])
}

fn cast(text: Source, to: SourceType) -> Source {
    Source::new(Part::CoerceViaText(Box::new(text)), to)
}

fn lowered(source: &Source) -> Option<Lowered> {
    Lowering::new(&with_fields(), &Notes::default(), &TestServer::default()).lower(source).ok()
}

fn column_of(source: &Source) -> Option<u32> {
    match lowered(source)?.expression {
        Expression::Column { id, .. } => Some(id.0),
        _ => None,
    }
}

#[test]
fn text_of_a_field_is_the_field() {
    let jsonb = || column(JSONB);
    let text_of = |json, key: &str| step("jsonb_object_field_text", json, key);
    assert_eq!(column_of(&text_of(jsonb(), "t")), Some(101));
    assert_eq!(column_of(&step("json_object_field_text", column(JSON), "t")), Some(105));
    assert_eq!(column_of(&path("jsonb_extract_path_text", jsonb(), &["t"])), Some(101));
    let number = text_of(step("jsonb_object_field", jsonb(), "s"), "i");
    for same in [
        number.clone(),
        path("jsonb_extract_path_text", jsonb(), &["s", "i"]),
        text_of(path("jsonb_extract_path", jsonb(), &["s"]), "i"),
        text_of(step(JSON_SUBSCRIPT, jsonb(), "s"), "i"),
    ] {
        let text = Expression::column(ColumnId(102), DataType::Int32);
        let text = Expression::call(Function::Cast, vec![text], DataType::Text);
        assert_eq!(lowered(&same).unwrap().expression, text);
        assert_eq!(column_of(&cast(same, SourceType::Integer)), Some(102));
    }
    assert_eq!(*lowered(&cast(number, SourceType::BigInt)).unwrap().data_type(), DataType::Int64);
}

#[test]
fn a_field_cast_from_its_text_is_the_field_if_the_text_reads_back_as_it() {
    let of = |key, to| cast(step("jsonb_object_field_text", column(JSONB), key), to);
    assert_eq!(lowered(&of("n", SourceType::Numeric)).unwrap().scale, Scale::Fixed(2));
    assert_eq!(column_of(&of("d", SourceType::Date)), Some(106));
    for (key, to) in [
        ("n", SourceType::Integer),
        ("f", SourceType::Double),
        ("t", SourceType::Integer),
        ("d", SourceType::Timestamp),
        ("none", SourceType::Integer),
    ] {
        assert_eq!(column_of(&of(key, to.clone())), None, "{key} {to:?}");
    }
}

/// Such a part is read from the document as JSON (`documents.rs`), if its steps are constants.
#[test]
fn what_is_no_text_of_a_known_field_is_no_column() {
    for stays in [
        step("jsonb_object_field", column(JSONB), "t"),
        step("jsonb_object_field_text", column(JSONB), "T"),
        step("jsonb_object_field_text", column(JSONB), "s"),
        step("jsonb_object_field_text", column(JSONB), "n"),
        step("jsonb_object_field_text", column(JSON), "n"),
        path("jsonb_extract_path_text", column(JSONB), &[]),
        path("jsonb_object_field_text", column(JSONB), &["t"]),
        call("jsonb_object_field_text", SourceType::Text, vec![column(JSONB), column(NAME)]),
    ] {
        assert_eq!(column_of(&stays), None, "{stays:?}");
    }
}

#[test]
fn json_is_made_of_values_whose_text_is_known() {
    let made = |name: &str, arguments| call(name, SourceType::Json, arguments);
    let shown = |source: &Source| crate::tests::lowered(source);
    assert_eq!(
        shown(&made("json_build_object", vec![text("a"), column(NUMBER), text("b"), null(SourceType::Text)])),
        "('{' || json_text('a') || ' : ' || json_text(column 1) || ', ' || json_text('b') || ' : null}')"
    );
    assert_eq!(shown(&made("json_build_array", Vec::new())), "'[]'");
    assert_eq!(
        shown(&made("to_json", vec![column(DAY)])),
        "CASE WHEN (column 5 IS NOT NULL) THEN json_text(column 5) END"
    );
    let reason = |name: &str, arguments| refused(&made(name, arguments)).to_string();
    assert_eq!(reason("json_build_array", vec![column(SPAN)]), "interval as JSON");
    assert_eq!(reason("json_build_array", vec![column(JSONB)]), "jsonb as JSON");
    assert_eq!(
        shown(&made("jsonb_build_array", vec![column(JSONB)])),
        "('[' || coalesce(column 14, 'null') || ']')"
    );
    assert_eq!(
        shown(&made("json_build_array", vec![column(FLOAT), column(MOMENT), column(NUMBERS)])),
        "('[' || json_text(column 9, $1) || ', ' || json_text(column 7, $2) || ', ' || json_text(column 15) || ']')"
    );
    assert_eq!(
        reason("json_build_object", vec![column(NAME), column(NUMBER)]),
        "function json_build_object with a key that may be NULL"
    );
    assert_eq!(
        reason("json_build_object", vec![text("a")]),
        "function json_build_object with these arguments"
    );
}

#[test]
fn rows_are_objects_of_their_fields() {
    let row = |names: &[&str], fields| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Source::new(Part::Row { fields, names }, SourceType::other("record"))
    };
    let of = |name: &str, row| call(name, SourceType::Json, vec![row]);
    let shown = |source: &Source| crate::tests::lowered(source);
    let inner = || row(&["f1"], vec![column(NAME)]);
    assert_eq!(
        shown(&of("row_to_json", row(&["n", "r"], vec![column(NUMBER), inner()]))),
        "('{' || json_text('n') || ':' || json_text(column 1) || ',' || json_text('r') || ':' || ('{' || json_text('f1') || \
         ':' || json_text(column 4) || '}') || '}')"
    );
    // A row that an outer join may not have.
    let is_there = Part::NullTest {
        function: Function::IsNotNull,
        argument: Box::new(column(NUMBER)),
        row_fields: None,
    };
    let is_there = Source::new(is_there, SourceType::Bool);
    let choice = Part::Case { operand: None, branches: vec![(is_there, inner())], otherwise: None };
    let choice = || Source::new(choice.clone(), SourceType::other("record"));
    assert_eq!(
        shown(&of("json_build_array", choice())),
        "('[' || CASE WHEN (column 1 IS NOT NULL) THEN ('{' || json_text('f1') || ':' || json_text(column 4) || '}') \
         ELSE 'null' END || ']')"
    );
    let array = Part::Array { items: vec![column(NUMBER), column(BIG)], is_nested: false };
    let array = Source::new(array, SourceType::array_of(SourceType::BigInt));
    assert_eq!(
        shown(&of("to_json", array)),
        "('[' || json_text(column 1) || ',' || json_text(column 10) || ']')"
    );
    assert!(lower(&of("to_json", choice())).is_err());
    assert_eq!(refused(&of("to_json", row(&[], vec![column(NAME)]))).to_string(), "record as JSON");
}
