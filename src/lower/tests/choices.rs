use pystachio_plan::Function;

use super::*;

fn case(branches: Vec<(Source, Source)>, otherwise: Option<Source>, of: SourceType) -> Source {
    Source::new(Part::Case { operand: None, branches, otherwise: otherwise.map(Box::new) }, of)
}

#[test]
fn branches_of_one_scale_have_it() {
    let both = case(vec![(column(FLAG), column(PRICE))], Some(numeric("0.00")), SourceType::Numeric);
    assert_eq!(lower(&both).unwrap().scale, Scale::Fixed(2));
}

#[test]
fn branches_of_two_scales_show_their_own() {
    let choice = case(vec![(column(FLAG), column(PRICE))], Some(numeric("0")), SourceType::Numeric);
    let choice = lower(&choice).unwrap();
    let Scale::Varies(scale) = choice.scale else { panic!("{:?}", choice.scale) };
    assert_eq!(expression_text(&scale), "CASE WHEN column 8 THEN 2 ELSE 0 END");
}

#[test]
fn a_missing_branch_has_no_scale() {
    let choice = case(vec![(column(FLAG), column(RATE))], None, SourceType::Numeric);
    assert_eq!(lower(&choice).unwrap().scale, Scale::Fixed(4));
}

#[test]
fn coalesce_shows_the_scale_of_the_first_that_is_not_null() {
    let arguments = vec![column(PRICE), column(RATE)];
    let choice = lower(&Source::new(Part::Coalesce(arguments), SourceType::Numeric)).unwrap();
    let Scale::Varies(scale) = &choice.scale else { panic!("{:?}", choice.scale) };
    assert!(expression_text(scale).starts_with("CASE WHEN"), "{}", expression_text(scale));
    assert!(!choice.not_null);
    let with_constant = vec![column(PRICE), numeric("0.00")];
    let choice = lower(&Source::new(Part::Coalesce(with_constant), SourceType::Numeric)).unwrap();
    assert_eq!(choice.scale, Scale::Fixed(2));
    assert!(choice.not_null);
}

#[test]
fn a_choice_does_not_show_where_another_operand_has_more_digits() {
    let binary = |name, left, right| call(name, SourceType::Numeric, vec![left, right]);
    let price = || Source::new(Part::Coalesce(vec![column(PRICE), numeric("0.0")]), SourceType::Numeric);
    assert!(matches!(lower(&price()).unwrap().scale, Scale::Varies(_)));
    assert_eq!(lower(&binary("numeric_sub", column(PRICE), price())).unwrap().scale, Scale::Fixed(2));
    assert_eq!(lower(&binary("numeric_add", price(), column(RATE))).unwrap().scale, Scale::Fixed(4));
    assert!(matches!(
        lower(&binary("numeric_add", price(), numeric("1.5"))).unwrap().scale,
        Scale::Varies(_)
    ));
}

#[test]
fn greatest_shows_the_scale_of_what_it_chooses() {
    let greatest = |arguments| {
        let collation = None;
        Source::new(Part::Extreme { function: Function::Greatest, collation, arguments }, SourceType::Numeric)
    };
    assert_eq!(lower(&greatest(vec![column(PRICE), numeric("1.00")])).unwrap().scale, Scale::Fixed(2));
    // The one that is chosen shows its own.
    let mixed = lower(&greatest(vec![column(PRICE), numeric("1")])).unwrap();
    assert!(matches!((&mixed.scale, &mixed.expression), (Scale::Varies(_), Expression::Case { .. })));
    let many = std::iter::repeat_n([column(PRICE), numeric("1")], 6).flatten().collect();
    assert_eq!(refused(&greatest(many)), Refusal::ExtremeOfScales);
}

#[test]
fn the_operand_of_a_simple_case_stands_in_its_conditions() {
    let operand = Source::new(Part::CaseOperand, SourceType::Integer);
    let branches = vec![
        (test("int4eq", operand.clone(), integer(1)), text("one")),
        (test("int4eq", operand.clone(), integer(2)), text("two")),
    ];
    let simple = Part::Case { operand: Some(Box::new(column(NUMBER))), branches, otherwise: None };
    let simple = Source::new(simple, SourceType::Text);
    assert_eq!(lowered(&simple), "CASE WHEN (column 1 = 1) THEN 'one' WHEN (column 1 = 2) THEN 'two' END");
    assert_eq!(refused(&operand), Refusal::CaseOperandOutside);
}

#[test]
fn values_of_character_are_not_chosen_among() {
    let choice = Source::new(Part::Coalesce(vec![column(CODE), column(CODE)]), SourceType::Character);
    assert_eq!(refused(&choice), Refusal::ChoiceOfCharacter);
}

#[test]
fn nullif_is_of_one_type() {
    let null_if =
        |b| Source::new(Part::NullIf(call_of("int4eq", vec![column(NUMBER), b])), SourceType::Integer);
    assert_eq!(lowered(&null_if(integer(0))), "null_if(column 1, 0)");
    let wide =
        Source::new(Part::NullIf(call_of("int48eq", vec![column(NUMBER), column(BIG)])), SourceType::Integer);
    assert_eq!(refused(&wide), Refusal::NullIfOfTwoTypes);
}
