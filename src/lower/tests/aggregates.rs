use pystachio_plan::Aggregate;

use super::*;
use crate::{AggregateRefusal, AggregateSource, LoweredAggregate, OrderSource};

fn aggregate(name: &str, argument: Option<Source>) -> AggregateSource {
    AggregateSource {
        function: Rc::new(CatalogFunction::builtin(name)),
        collation: bytes_collation(),
        is_variadic: false,
        is_of_other_level: false,
        is_distinct: false,
        arguments: argument.into_iter().collect(),
        direct: Vec::new(),
        order: Vec::new(),
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
fn a_variance_of_floats_is_a_sum_of_squared_deviations_and_a_count() {
    for name in ["stddev", "stddev_pop", "variance", "var_pop"] {
        let lowered = lower(&aggregate(name, Some(column(FLOAT)))).unwrap();
        let functions: Vec<_> = lowered.calls.iter().map(|call| call.function).collect();
        assert_eq!(functions, [Aggregate::Deviations, Aggregate::Count], "{name}");
        assert_eq!(*lowered.value.data_type(), DataType::Float64);
    }
}

#[test]
fn the_sum_of_a_value_and_a_constant_is_made_of_those_of_the_value() {
    let plus = |function: &str, a, b, of| call(function, of, vec![a, b]);
    let shifted = plus("numeric_add", column(PRICE), numeric("1.250"), SourceType::Numeric);
    let sum = lower(&aggregate("sum", Some(shifted))).unwrap();
    let arguments: Vec<_> = sum.calls.iter().map(|call| (call.function, call.argument.clone())).collect();
    let price = lower_with(&column(PRICE), &Notes::default()).unwrap().expression;
    assert_eq!(arguments, [(Aggregate::Sum, Some(price.clone())), (Aggregate::Count, Some(price))]);
    assert_eq!(sum.value.scale, Scale::Fixed(3));
    // One of integers is so only where it overflows in no row.
    let overflows = plus("int4pl", column(NUMBER), integer(1), SourceType::Integer);
    assert_eq!(lower(&aggregate("sum", Some(overflows.clone()))).unwrap().calls.len(), 1);
    let bounded =
        Lowered { magnitude: 1000.0, ..Lowered::of_type(Expression::column(ColumnId(1), DataType::Int32)) };
    let scope = Scope::of_columns(1, HashMap::from([(NUMBER, bounded)]));
    let (notes, server) = (Notes::default(), TestServer::default());
    let lowering = Lowering::new(&scope, &notes, &server);
    for name in ["sum", "avg"] {
        let lowered = lowering.lower_aggregate(&aggregate(name, Some(overflows.clone()))).unwrap();
        let functions: Vec<_> = lowered.calls.iter().map(|call| call.function).collect();
        assert_eq!(functions, [Aggregate::Sum, Aggregate::Count], "{name}");
    }
    let distinct = AggregateSource { is_distinct: true, ..aggregate("sum", Some(overflows)) };
    assert_eq!(lowering.lower_aggregate(&distinct).unwrap().calls.len(), 1);
}

#[test]
fn an_aggregate_of_pairs_is_made_of_sums() {
    let of_pairs = |name: &str| AggregateSource {
        arguments: vec![column(FLOAT), column(FLOAT)],
        ..aggregate(name, None)
    };
    let functions = |name| {
        let lowered = lower(&of_pairs(name)).unwrap();
        lowered.calls.iter().map(|call| call.function).collect::<Vec<_>>()
    };
    use Aggregate::{Count, Deviations, Sum};
    assert_eq!(functions("regr_count"), [Count]);
    assert_eq!(functions("regr_avgy"), [Sum, Count]);
    assert_eq!(functions("covar_samp"), [Count, Deviations]);
    // Both deviations are those of one column, which is there once.
    assert_eq!(functions("corr"), [Deviations, Deviations]);
    assert_eq!(functions("regr_intercept"), [Sum, Deviations, Deviations, Count]);
    let distinct = AggregateSource { is_distinct: true, ..of_pairs("corr") };
    assert!(refused(&distinct).contains("in an order"));
    let keeps = TestServer { keeps_float_sums: true, ..TestServer::default() };
    let with = |name| {
        Lowering::new(&scope(), &Notes::default(), &keeps).lower_aggregate(&of_pairs(name)).map(|_| ())
    };
    assert_eq!(with("regr_count"), Ok(()));
    assert!(with("regr_slope").unwrap_err().to_string().contains("exact_float_sums"));
}

#[test]
fn all_groups_together_are_bounded_as_one_is() {
    let sum = lower(&aggregate("sum", Some(column(PRICE)))).unwrap().value;
    let bound = sum.magnitude;
    let scope = Rc::new(Scope::of_columns(1, HashMap::from([(PRICE, sum)])));
    let (notes, server) = (Notes::default(), TestServer::default());
    let magnitude = |scope: &Scope, name| {
        let lowering = Lowering::new(scope, &notes, &server);
        lowering.lower_aggregate(&aggregate(name, Some(column(PRICE)))).unwrap().value.magnitude
    };
    assert_eq!(magnitude(&scope, "sum"), bound);
    // A join has a group in several rows.
    let other = Rc::new(Scope::of_columns(2, HashMap::new()));
    assert!(magnitude(&Scope::Join(scope, other), "sum") > bound);
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
    assert_eq!(refused(&aggregate("xmlagg", Some(column(NAME)))), "aggregate xmlagg");
    assert_eq!(refused(&aggregate("json_agg", Some(column(SPAN)))), "interval as JSON");
    assert_eq!(refused(&aggregate("json_agg", Some(column(JSONB)))), "jsonb as JSON");
    let distinct = AggregateSource { is_distinct: true, ..aggregate("json_agg", Some(column(NUMBER))) };
    assert_eq!(refused(&distinct), "aggregate json_agg of DISTINCT values");
    let mut fields = aggregate("json_object_agg", Some(column(NAME)));
    fields.arguments.push(column(NUMBER));
    assert_eq!(refused(&fields), "aggregate json_object_agg with a key that may be NULL");
    let keeps = TestServer { keeps_float_sums: true, ..TestServer::default() };
    let lowered = Lowering::new(&scope(), &Notes::default(), &keeps)
        .lower_aggregate(&aggregate("stddev", Some(column(FLOAT))))
        .err();
    let refusal = Refusal::AggregateUse { name: "stddev".into(), why: AggregateRefusal::FloatSums };
    assert_eq!(lowered, Some(refusal));
    let distinct = AggregateSource { is_distinct: true, ..aggregate("avg", Some(column(FLOAT))) };
    assert!(refused(&distinct).contains("in an order"));
    assert_eq!(
        refused(&aggregate("sum", Some(given(0, SourceType::Numeric)))),
        "aggregate sum of a runtime numeric"
    );
    let variadic = AggregateSource { is_variadic: true, ..aggregate("max", Some(column(NUMBER))) };
    assert_eq!(refused(&variadic), "aggregate max with VARIADIC");
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

fn ordered(name: &str, arguments: Vec<Source>, keys: Vec<Source>) -> AggregateSource {
    let order = keys.into_iter().map(|key| OrderSource {
        key,
        collation: bytes_collation(),
        descending: Some(false),
        nulls_first: false,
    });
    AggregateSource { order: order.collect(), arguments, ..aggregate(name, None) }
}

fn double(value: f64) -> Source {
    Source::new(Part::Constant(Constant::Value(Value::Float(value))), SourceType::Double)
}

#[test]
fn arrays_have_the_order_of_their_aggregate() {
    let array = lower(&ordered("array_agg", vec![column(NAME)], vec![column(NUMBER)])).unwrap();
    assert_eq!(*array.value.data_type(), DataType::List(Box::new(DataType::Text)));
    assert_eq!(array.calls.len(), 1);
    assert_eq!(array.calls[0].order.len(), 1);
    let joined = lower(&ordered("string_agg", vec![column(NAME), column(NAME)], Vec::new())).unwrap();
    assert_eq!((joined.calls.len(), joined.value.data_type()), (2, &DataType::Text));
}

#[test]
fn an_order_that_changes_nothing_is_ignored() {
    let greatest = lower(&ordered("max", vec![column(NUMBER)], vec![column(NAME)])).unwrap();
    assert!(greatest.calls[0].order.is_empty());
}

#[test]
fn percentiles_need_constant_fractions() {
    let of = |name, fraction| AggregateSource {
        direct: vec![fraction],
        ..ordered(name, vec![column(FLOAT)], vec![column(FLOAT)])
    };
    let found = lower(&of("percentile_cont", double(0.25))).unwrap();
    assert_eq!(*found.value.data_type(), DataType::Float64);
    let words = "aggregate percentile_disc with a fraction that is no constant from 0 to 1";
    assert_eq!(refused(&of("percentile_disc", double(1.5))), words);
    assert_eq!(refused(&of("percentile_disc", column(FLOAT))), words);
}

#[test]
fn hypothetical_rows_are_counted() {
    let of = |name| AggregateSource {
        direct: vec![double(0.5)],
        ..ordered(name, vec![column(FLOAT)], vec![column(FLOAT)])
    };
    for (name, calls) in [("rank", 1), ("dense_rank", 2), ("percent_rank", 2), ("cume_dist", 2)] {
        let place = lower(&of(name)).unwrap();
        assert_eq!(place.calls.len(), calls, "{name}");
        assert!(place.calls.iter().all(|call| call.function == Aggregate::Count));
    }
}
