use super::*;
use crate::{AggregateRefusal, AggregateSource, LoweredAggregate};

fn aggregate(name: &str, argument: Option<Source>) -> AggregateSource {
    AggregateSource {
        function: Rc::new(CatalogFunction::builtin(name)),
        collation: bytes_collation(),
        has_order: false,
        is_of_other_level: false,
        is_distinct: false,
        arguments: argument.into_iter().collect(),
        filter: None,
    }
}

fn lower(aggregate: &AggregateSource) -> Result<LoweredAggregate, Refusal> {
    Lowering::new(&scope(), &Notes::default(), &TestServer::default()).lower_aggregate(aggregate)
}

#[track_caller]
fn refused(aggregate: &AggregateSource) -> String {
    match lower(aggregate) {
        Ok(lowered) => panic!("lowered to {} calls", lowered.calls.len()),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn a_sum_shows_the_scale_of_its_argument() {
    let sum = lower(&aggregate("sum", Some(column(RATE)))).unwrap();
    assert_eq!(sum.value.scale, Scale::Fixed(4));
    assert_eq!(sum.calls.len(), 1);
}

#[test]
fn a_sum_over_a_choice_sums_by_scale() {
    let branches = vec![(column(FLAG), column(PRICE))];
    let choice = Part::Case { operand: None, branches, otherwise: Some(Box::new(numeric("0"))) };
    let sum = lower(&aggregate("sum", Some(Source::new(choice, SourceType::Numeric)))).unwrap();
    // A sum of the prices, and a count of the zeroes.
    assert_eq!(sum.calls.len(), 2);
    assert!(matches!(sum.value.scale, Scale::Varies(_)));
}

#[test]
fn an_average_is_a_sum_and_a_count() {
    let average = lower(&aggregate("avg", Some(column(NUMBER)))).unwrap();
    assert_eq!(average.calls.len(), 2);
    assert!(average.value.data_type().is_decimal());
}

#[test]
fn columns_of_calls_are_new_ones() {
    let (scope, notes) = (scope(), Notes::default());
    let server = TestServer::default();
    let lowering = Lowering::new(&scope, &notes, &server);
    let ids = |name| {
        let lowered = lowering.lower_aggregate(&aggregate(name, Some(column(PRICE)))).unwrap();
        lowered.calls.into_iter().map(|call| call.id.0).collect::<Vec<_>>()
    };
    assert_eq!((ids("sum"), ids("avg")), (vec![1], vec![2, 3]));
}

#[test]
fn refusals_name_the_aggregate() {
    assert_eq!(refused(&aggregate("string_agg", Some(column(NAME)))), "aggregate string_agg");
    assert_eq!(refused(&aggregate("sum", Some(column(FLOAT)))), "aggregate sum of double precision");
    assert_eq!(
        refused(&aggregate("sum", Some(given(0, SourceType::Numeric)))),
        "aggregate sum of a runtime numeric"
    );
    let ordered = AggregateSource { has_order: true, ..aggregate("max", Some(column(NUMBER))) };
    assert_eq!(refused(&ordered), "aggregate max with ORDER BY");
    let several = AggregateSource { arguments: vec![column(NAME), column(NAME)], ..aggregate("max", None) };
    assert_eq!(refused(&several), "aggregate max with several arguments");
    let of_user = CatalogFunction::user_defined("mine");
    let of_user = AggregateSource { function: Rc::new(of_user), ..aggregate("", Some(column(NAME))) };
    let refusal = Refusal::AggregateUse { name: "mine".into(), why: AggregateRefusal::NotBuiltIn };
    assert_eq!(lower(&of_user).err(), Some(refusal));
    let variance = AggregateSource { is_distinct: true, ..aggregate("variance", Some(column(NUMBER))) };
    assert_eq!(refused(&variance), "a variance of DISTINCT values");
    assert_eq!(refused(&aggregate("sum", None)), "an aggregate without its argument");
    let text =
        AggregateSource { collation: language_collation(true), ..aggregate("max", Some(column(NAME))) };
    assert_eq!(refused(&text), "text ordered by collation de");
}
