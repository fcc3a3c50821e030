use super::*;
use crate::{ARRAY_ITEMS_MAX, ARRAY_SUBSCRIPT, ArrayComparison, RuntimeValue};

fn any(name: &str, is_any: bool, scalar: Source, array: Source) -> Source {
    let function = Rc::new(CatalogFunction::builtin(name));
    let has_given = scalar.has_given || array.has_given;
    let operands = Some(Box::new((scalar, array)));
    let part =
        Part::ArrayComparison(ArrayComparison { function, collation: bytes_collation(), is_any, operands });
    Source { has_given, ..Source::new(part, SourceType::Bool) }
}

fn integers() -> SourceType {
    SourceType::array_of(SourceType::Integer)
}

fn constants(values: impl IntoIterator<Item = i64>) -> Source {
    let items = values.into_iter().map(|value| Constant::Value(Value::Int(value))).collect();
    Source::new(Part::Constant(Constant::Array(items)), integers())
}

#[test]
fn constants_become_a_list() {
    let found = any("int4eq", true, column(NUMBER), constants([1, 2]));
    assert_eq!(lowered(&found), "(column 1 IN (1, 2))");
    assert_eq!(
        lowered(&any("int4ne", false, column(NUMBER), constants([1, 2]))),
        "(NOT (column 1 IN (1, 2)))"
    );
    assert_eq!(
        lowered(&any("int4lt", true, column(NUMBER), constants([1, 2]))),
        "((column 1 < 1) OR (column 1 < 2))"
    );
    assert_eq!(
        lowered(&any("int4lt", false, column(NUMBER), constants([1, 2]))),
        "((column 1 < 1) AND (column 1 < 2))"
    );
    assert_eq!(lowered(&any("int4lt", true, column(NUMBER), constants([7]))), "(column 1 < 7)");
}

#[test]
fn nothing_is_found_in_nothing() {
    let of_nothing =
        |is_any| lower(&any("int4eq", is_any, column(NUMBER), constants([]))).unwrap().expression;
    assert_eq!(of_nothing(true), Expression::literal(Value::Bool(false), DataType::Bool));
    let all = lower(&any("int4ne", false, column(NUMBER), constants([]))).unwrap().expression;
    assert_eq!(all, Expression::literal(Value::Bool(true), DataType::Bool));
}

#[test]
fn arrays_that_plans_do_not_hold_are_refused() {
    let null = null(integers());
    assert_eq!(refused(&any("int4eq", true, column(NUMBER), null)), Refusal::NullArray);
    let long = Source::new(Part::Constant(Constant::LongArray(10_001)), integers());
    let refusal = refused(&any("int4eq", true, column(NUMBER), long));
    assert_eq!(refusal.to_string(), format!("an array of 10001 elements, more than {ARRAY_ITEMS_MAX}"));
}

#[test]
fn an_array_of_run_time_is_one_parameter() {
    let notes = Notes::default();
    let found = any("int4eq", true, column(NUMBER), given(3, integers()));
    let found = lower_with(&found, &notes).unwrap();
    assert_eq!(expression_text(&found.expression), "(column 1 = ANY ($1))");
    let list = DataType::List(Box::new(DataType::Int32));
    assert_eq!(notes.parameter_at(0), Some((RuntimeValue::Origin(Origin(3)), list)));
    // The elements come in the type in which they are compared.
    lower_with(&any("int84eq", true, column(BIG), given(3, integers())), &notes).unwrap();
    let wide = DataType::List(Box::new(DataType::Int64));
    assert_eq!(notes.parameter_at(1), Some((RuntimeValue::Origin(Origin(3)), wide)));
    assert_eq!(refused(&any("int4lt", true, column(NUMBER), given(3, integers()))), Refusal::RuntimeAny);
}

#[test]
fn an_array_of_each_row_is_refused() {
    let array = Part::ArrayCast { array: Box::new(column(NAME)), evaluated: None };
    let array = Source::new(array, integers());
    assert_eq!(refused(&any("int4eq", true, column(NUMBER), array.clone())), Refusal::AnyOfRow);
    assert_eq!(refused(&any("textlike", true, column(NAME), array)), Refusal::LikeAnyOfRow);
}

#[test]
fn like_any_is_a_like_for_each_pattern() {
    let patterns = ["a%", "b%"].map(|pattern| Constant::Value(Value::Text(pattern.into())));
    let texts = SourceType::array_of(SourceType::Text);
    let array = Source::new(Part::Constant(Constant::Array(patterns.into())), texts.clone());
    let found = any("textlike", true, column(NAME), array);
    assert_eq!(lowered(&found), "((column 4 LIKE 'a%') OR (column 4 LIKE 'b%'))");
    let notes = Notes::default();
    lower_with(&any("textlike", true, column(NAME), given(0, texts.clone())), &notes).unwrap();
    let list = DataType::List(Box::new(DataType::Text));
    assert_eq!(notes.parameter_at(0), Some((RuntimeValue::Origin(Origin(0)), list)));
}

#[test]
fn a_cast_of_an_array_of_run_time_is_evaluated_with_it() {
    let of_texts = given(0, SourceType::array_of(SourceType::Text));
    let cast = Part::ArrayCast { array: Box::new(of_texts), evaluated: Some(Origin(1)) };
    let found = any("int4eq", true, column(NUMBER), Source::new(cast, integers()));
    assert!(lower(&found).is_ok());
    // Where it need not be evaluated it could fail without need.
    let guarded =
        Part::Logic { function: pystachio_plan::Function::Or, arguments: vec![column(FLAG), found] };
    assert_eq!(refused(&Source::new(guarded, SourceType::Bool)), Refusal::AnyOfRow);
}

#[test]
fn an_element_of_a_columns_array_is_found() {
    assert_eq!(
        lowered(&any("int4eq", true, column(NUMBER), column(NUMBERS))),
        "(column 1 = ANY (column 15))"
    );
    assert_eq!(lowered(&any("texteq", true, text("a"), column(NAMES))), "('a' = ANY (column 16))");
    assert_eq!(lowered(&any("int4ne", false, integer(3), column(NUMBERS))), "(NOT (3 = ANY (column 15)))");
    // An element would have to be converted.
    let of_wider = any("int84eq", true, column(BIG), column(NUMBERS));
    assert_eq!(refused(&of_wider), Refusal::AnyOfType("integer[]".into()));
    assert_eq!(refused(&any("int4lt", true, column(NUMBER), column(NUMBERS))), Refusal::RuntimeAny);
}

#[test]
fn containment_is_membership_of_each_element() {
    let on = |name, first, second| call(name, SourceType::Bool, vec![first, second]);
    let found = |test: &str| format!("CASE WHEN (column 15 IS NOT NULL) THEN {test} END");
    let both = found("(((1 = ANY (column 15)) IS TRUE) AND ((2 = ANY (column 15)) IS TRUE))");
    assert_eq!(lowered(&on("arraycontains", column(NUMBERS), constants([1, 2]))), both);
    assert_eq!(lowered(&on("arraycontained", constants([1, 2]), column(NUMBERS))), both);
    let one = found("(((1 = ANY (column 15)) IS TRUE) OR ((2 = ANY (column 15)) IS TRUE))");
    assert_eq!(lowered(&on("arrayoverlap", column(NUMBERS), constants([1, 2]))), one);
    assert_eq!(lowered(&on("arrayoverlap", constants([1, 2]), column(NUMBERS))), one);
    assert_eq!(lowered(&on("arraycontains", column(NUMBERS), constants([]))), found("true"));
    assert_eq!(lowered(&on("arrayoverlap", column(NUMBERS), constants([]))), found("false"));
    let is_refused = |source| matches!(lower(&source), Err(Refusal::Function(_)));
    assert!(is_refused(on("arraycontained", column(NUMBERS), constants([1]))));
    assert!(is_refused(on("arraycontains", column(NUMBERS), column(NUMBERS))));
}

#[test]
fn elements_are_taken_and_counted() {
    let element = |array, number| call(ARRAY_SUBSCRIPT, SourceType::Integer, vec![array, number]);
    assert_eq!(lowered(&element(column(NUMBERS), integer(1))), "column 15[1]");
    assert_eq!(lowered(&element(column(NUMBERS), column(NUMBER))), "column 15[column 1]");
    let count = |name, arguments| call(name, SourceType::Integer, arguments);
    assert_eq!(lowered(&count("cardinality", vec![column(NAMES)])), "cardinality(column 16)");
    let length = count("array_length", vec![column(NAMES), integer(1)]);
    assert_eq!(lowered(&length), "null_if(cardinality(column 16), 0)");
    assert!(lower(&count("array_length", vec![column(NAMES), integer(2)])).is_err());
}

#[test]
fn fields_of_elements_are_elements_of_the_arrays_of_the_field() {
    let Scope::Base { relation_index, columns, fields, .. } = scope() else {
        panic!("the scope is one table's")
    };
    let prices = Expression::column(ColumnId(200), DataType::List(Box::new(DataType::Int64)));
    let price = Lowered::of_type(Expression::column(ColumnId(200), DataType::Int64));
    let prices = Lowered { expression: prices, not_null: true, ..price };
    let item_fields = HashMap::from([((NUMBERS, vec!["made".to_owned(), "price".to_owned()]), prices)]);
    let scope = Scope::Base { relation_index, columns, fields, item_fields };
    let field_of = |array: i16, number, name: &str| {
        let element = call(ARRAY_SUBSCRIPT, SourceType::other("item"), vec![column(array), number]);
        let made = Part::Field { record: Box::new(element), name: "made".to_owned() };
        let record = Box::new(Source::new(made, SourceType::other("made")));
        Source::new(Part::Field { record, name: name.to_owned() }, SourceType::BigInt)
    };
    let lower =
        |source: &Source| Lowering::new(&scope, &Notes::default(), &TestServer::default()).lower(source);
    let found = lower(&field_of(NUMBERS, column(NUMBER), "price")).unwrap();
    assert_eq!(expression_text(&found.expression), "column 200[column 1]");
    assert_eq!((found.data_type(), found.not_null), (&DataType::Int64, false));
    assert!(lower(&field_of(NUMBERS, integer(1), "other")).is_err());
    assert!(lower(&field_of(NAMES, integer(1), "price")).is_err());
}
