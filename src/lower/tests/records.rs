use pystachio_plan::{RecordField, SortKey};

use super::*;
use crate::{Comparison, RecordComparison, RecordFieldSource, RecordSource, RecordTest};

/// The attribute of a column of a composite type that has a number and a name.
const RECORD: i16 = 20;

fn record_type() -> DataType {
    let field = |name: &str, data_type| RecordField {
        name: name.into(),
        data_type,
        length_max: None,
        trim_blanks: false,
        is_json: false,
    };
    DataType::Record(vec![field("n", DataType::Int32), field("t", DataType::Text)])
}

/// The scope of a relation with such a column: 20 is the whole value, 21 and 22 are its fields.
fn record_scope(relation_index: u32, not_null: bool) -> Scope {
    let lowered =
        |id, data_type| Lowered { not_null, ..Lowered::of_type(Expression::column(ColumnId(id), data_type)) };
    let field = |name: &str, id, data_type| {
        let lowered = Lowered { not_null: false, ..lowered(id, data_type) };
        ((RECORD, vec![name.to_owned()]), lowered)
    };
    Scope::Base {
        relation_index,
        columns: HashMap::from([(RECORD, lowered(20, record_type()))]),
        fields: HashMap::from([field("n", 21, DataType::Int32), field("t", 22, DataType::Text)]),
        item_fields: HashMap::new(),
    }
}

fn record_column(relation: u32) -> RecordSource {
    let part = Part::Column(ColumnReference { relation, attribute: RECORD, levels_up: 0 });
    let whole = Source::new(part, SourceType::other("pair"));
    let field = |name: &str, of, collation| {
        let part = Part::Field { record: Box::new(whole.clone()), name: name.into() };
        RecordFieldSource { collation, value: Source::new(part, of) }
    };
    let fields = vec![field("n", SourceType::Integer, None), field("t", SourceType::Text, bytes_collation())];
    RecordSource { whole, fields }
}

fn row(number: Source, name: Source) -> RecordSource {
    let whole = Source::new(Part::Row { fields: Vec::new(), names: Vec::new() }, SourceType::other("pair"));
    let fields = vec![
        RecordFieldSource { collation: None, value: number },
        RecordFieldSource { collation: bytes_collation(), value: name },
    ];
    RecordSource { whole, fields }
}

fn compared(test: RecordTest, left: RecordSource, right: RecordSource) -> Source {
    let comparison = RecordComparison { test, left, right };
    Source::new(Part::RecordComparison(Box::new(comparison)), SourceType::Bool)
}

fn lowered_over(scope: &Scope, source: &Source) -> Result<String, Refusal> {
    let (notes, server) = (Notes::default(), TestServer::default());
    Lowering::new(scope, &notes, &server).lower(source).map(|lowered| expression_text(&lowered.expression))
}

#[test]
fn values_are_compared_by_their_fields_and_null_by_itself() {
    let one = || row(integer(1), text("a"));
    let same = "((NOT (column 21 IS DISTINCT FROM 1)) AND (NOT (column 22 IS DISTINCT FROM 'a')))".to_owned();
    let equal = compared(RecordTest::Comparison(Comparison::Equal), record_column(1), one());
    assert_eq!(
        lowered_over(&record_scope(1, false), &equal).unwrap(),
        format!(
            "((column 21 = 1) AND (column 22 = 'a') AND CASE WHEN (column 20 IS NULL) THEN NULL ELSE {same} END)"
        )
    );
    assert_eq!(
        lowered_over(&record_scope(1, true), &equal).unwrap(),
        format!("((column 21 = 1) AND (column 22 = 'a') AND {same})")
    );
    let distinct = compared(RecordTest::IsDistinct, record_column(1), one());
    assert_eq!(
        lowered_over(&record_scope(1, false), &distinct).unwrap(),
        format!("CASE WHEN (column 20 IS NULL) THEN true ELSE (NOT {same}) END")
    );
    let less = compared(RecordTest::Comparison(Comparison::Less), record_column(1), one());
    assert_eq!(
        lowered_over(&record_scope(1, true), &less).unwrap(),
        "(((column 21 < 1) IS TRUE) OR ((column 21 IS NOT NULL) AND (1 IS NULL)) OR ((NOT (column 21 IS DISTINCT FROM 1)) \
         AND (((column 22 < 'a') IS TRUE) OR ((column 22 IS NOT NULL) AND ('a' IS NULL)))))"
    );
}

#[test]
fn values_of_two_tables_and_fields_of_other_orders_stay_in_postgresql() {
    let both = Scope::Join(Rc::new(record_scope(1, false)), Rc::new(record_scope(2, false)));
    let equal = compared(RecordTest::Comparison(Comparison::Equal), record_column(1), record_column(2));
    assert_eq!(lowered_over(&both, &equal), Err(Refusal::RecordsOfJoin));
    let mut of_language = record_column(1);
    of_language.fields[1].collation = language_collation(true);
    let test = |comparison| {
        let own = compared(RecordTest::Comparison(comparison), of_language.clone(), of_language.clone());
        lowered_over(&record_scope(1, false), &own)
    };
    assert!(test(Comparison::Equal).is_ok());
    assert_eq!(test(Comparison::Less), Err(Refusal::OrderByCollation("de".into())));
    let mut of_spans = record_column(1);
    of_spans.fields[0].value.of = SourceType::Interval;
    let own = compared(RecordTest::IsDistinct, of_spans.clone(), of_spans);
    assert_eq!(lowered_over(&record_scope(1, false), &own), Err(Refusal::Equality("interval".into())));
}

#[test]
fn null_is_the_greatest_value_of_a_field_and_has_the_order_of_its_own() {
    let (notes, server) = (Notes::default(), TestServer::default());
    let keys = |descending, nulls_first, not_null| {
        let scope = record_scope(1, not_null);
        let keys = Lowering::new(&scope, &notes, &server).lower_record_order(
            &record_column(1),
            descending,
            nulls_first,
        );
        let shown = |key: SortKey| (expression_text(&key.expression), key.descending, key.nulls_first);
        keys.unwrap().into_iter().map(shown).collect::<Vec<_>>()
    };
    let key = |text: &str, descending, nulls_first| (text.to_owned(), descending, nulls_first);
    assert_eq!(
        keys(true, false, false),
        [
            key("(column 20 IS NULL)", false, false),
            key("column 21", true, true),
            key("column 22", true, true)
        ]
    );
    assert_eq!(keys(false, true, true), [key("column 21", false, false), key("column 22", false, false)]);
}
