//! Claims about aggregates, which the whole engine runs: lowering and accumulators.

use std::sync::Arc;

use crate::datafusion::{
    logical_expr::{Accumulator, AggregateUDF, EmitTo, Expr, GroupsAccumulator, function::AccumulatorArgs},
    physical_expr::expressions::col,
};
use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array},
    datatypes::{DataType as ArrowType, Decimal128Type, Field, Int64Type, Schema},
};
use pystachio_plan::{Aggregate, AggregateCall, ColumnId, DataType, ErrorKind, Expression};

use crate::{
    error::from_datafusion,
    functions::{LoweringInput, lower_aggregate, sum::CheckedSum},
};

/// Makes the accumulators of a sum and hands them to `check`.
fn with_arguments<T>(
    input: &ArrowType,
    result: &DataType,
    distinct: bool,
    make: impl FnOnce(&AggregateUDF, AccumulatorArgs<'_>) -> T,
) -> T {
    let field = Arc::new(Field::new("c0", input.clone(), true));
    let schema = Schema::new(vec![Arc::clone(&field)]);
    let arguments = AccumulatorArgs {
        return_field: Arc::new(Field::new("sum", result.to_arrow(), true)),
        schema: &schema,
        ignore_nulls: false,
        order_bys: &[],
        is_reversed: false,
        name: "sum",
        is_distinct: distinct,
        exprs: &[col("c0", &schema).expect("a column")],
        expr_fields: &[field],
    };
    make(&AggregateUDF::new_from_impl(CheckedSum::new(result).expect("a sum")), arguments)
}

fn groups(input: &ArrowType, result: &DataType) -> Box<dyn GroupsAccumulator> {
    with_arguments(input, result, false, |function, arguments| {
        assert!(function.groups_accumulator_supported(arguments.clone()));
        function.create_groups_accumulator(arguments).expect("an accumulator")
    })
}

fn single(input: &ArrowType, result: &DataType, distinct: bool) -> Box<dyn Accumulator> {
    with_arguments(input, result, distinct, |function, arguments| {
        function.accumulator(arguments).expect("an accumulator")
    })
}

fn integers(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn decimal(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}

fn longs(array: &ArrayRef) -> Vec<Option<i64>> {
    array.as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn groups_without_a_value_are_null() {
    let mut sums = groups(&ArrowType::Int64, &DataType::Int64);
    sums.update_batch(&[integers(vec![Some(1), Some(2)])], &[0, 1], None, 2).expect("no overflow");
    sums.update_batch(&[integers(vec![None, Some(5), None])], &[2, 0, 1], None, 3).expect("no overflow");
    let filter = BooleanArray::from(vec![Some(false), None, Some(true)]);
    sums.update_batch(&[integers(vec![Some(7), Some(8), Some(9)])], &[3, 3, 4], Some(&filter), 5)
        .expect("no overflow");
    sums.update_batch(&[integers(vec![Some(1)])], &[5], None, 6).expect("no overflow");
    let first = sums.evaluate(EmitTo::First(2)).expect("sums");
    assert_eq!(longs(&first), [Some(6), Some(2)]);
    let rest = sums.evaluate(EmitTo::All).expect("sums");
    assert_eq!(longs(&rest), [None, None, Some(9), Some(1)]);
    sums.update_batch(&[integers(vec![Some(4)])], &[0], None, 1).expect("no overflow");
    assert_eq!(longs(&sums.evaluate(EmitTo::All).expect("sums")), [Some(4)], "the accumulator starts again");
}

#[test]
fn states_merge_into_the_same_sums() {
    let source = groups(&ArrowType::Int32, &DataType::Int64);
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let filter = BooleanArray::from(vec![true, true, false]);
    let states = source.convert_to_state(&[values], Some(&filter)).expect("states");
    assert_eq!(longs(&states[0]), [Some(1), None, None]);
    let mut target = groups(&ArrowType::Int32, &DataType::Int64);
    target.merge_batch(&states, &[0, 1, 1], 2).expect("no overflow");
    target.merge_batch(&[integers(vec![Some(10)])], &[0], 2).expect("no overflow");
    assert_eq!(longs(&target.evaluate(EmitTo::All).expect("sums")), [Some(11), None]);
}

#[test]
fn sums_of_integers_that_overflow_are_errors() {
    let most = integers(vec![Some(i64::MAX), Some(1)]);
    let mut sums = groups(&ArrowType::Int64, &DataType::Int64);
    let error = sums.update_batch(&[Arc::clone(&most)], &[0, 0], None, 1).expect_err("an overflow");
    let error = from_datafusion(&error);
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::NumericOutOfRange, "bigint out of range"));
    let mut sum = single(&ArrowType::Int64, &DataType::Int64, false);
    assert!(sum.update_batch(&[Arc::clone(&most)]).is_err());
    let mut sum = single(&ArrowType::Int64, &decimal(38, 0), false);
    sum.update_batch(&[most]).expect("128 bits hold it");
    assert_eq!(sum.evaluate().expect("a sum").to_string(), "9223372036854775808");
}

#[test]
fn sums_of_decimals_that_overflow_are_errors_and_never_wrap() {
    let huge = |width: u8| -> ArrayRef {
        let values = Decimal128Array::from(vec![i128::MAX, 1]);
        Arc::new(values.with_precision_and_scale(width, 2).expect("a decimal"))
    };
    let input = ArrowType::Decimal128(38, 2);
    let mut sums = groups(&input, &decimal(38, 2));
    let error = sums.update_batch(&[huge(38)], &[0, 0], None, 1).expect_err("an overflow");
    assert_eq!(from_datafusion(&error).kind, ErrorKind::NumericOutOfRange);
    let mut sums = groups(&input, &decimal(50, 2));
    sums.update_batch(&[huge(38)], &[0, 0], None, 1).expect("256 bits hold it");
    let wide = sums.evaluate(EmitTo::All).expect("sums");
    let wide = wide.as_primitive::<arrow::datatypes::Decimal256Type>().value(0);
    assert_eq!(wide.to_string(), "170141183460469231731687303715884105728");
}

#[test]
fn distinct_sums_count_equal_values_once() {
    let values = Decimal128Array::from(vec![Some(100), Some(250), Some(100), None]);
    let values: ArrayRef = Arc::new(values.with_precision_and_scale(10, 2).expect("a decimal"));
    let input = ArrowType::Decimal128(10, 2);
    let mut first = single(&input, &decimal(38, 2), true);
    let mut second = single(&input, &decimal(38, 2), true);
    first.update_batch(&[Arc::clone(&values)]).expect("values");
    second.update_batch(&[values.slice(0, 1)]).expect("values");
    let state = second.state().expect("a state")[0].to_array().expect("an array");
    first.merge_batch(&[state]).expect("a state");
    let sum = first.evaluate().expect("a sum").to_array().expect("an array");
    assert_eq!(sum.as_primitive::<Decimal128Type>().value(0), 350);
    let mut empty = single(&input, &decimal(38, 2), true);
    assert!(empty.evaluate().expect("a sum").is_null());
}

#[test]
fn a_sum_over_nothing_is_null() {
    let mut sum = single(&ArrowType::Int64, &DataType::Int64, false);
    assert!(sum.evaluate().expect("a sum").is_null());
    sum.update_batch(&[integers(vec![None])]).expect("values");
    assert!(sum.evaluate().expect("a sum").is_null());
}

fn lower(
    function: Aggregate,
    argument: DataType,
    result: DataType,
    distinct: bool,
) -> Result<Expr, ErrorKind> {
    let schema = Arc::new(Schema::new(vec![Field::new("c0", argument.to_arrow(), true)]));
    let call = AggregateCall {
        id: ColumnId(1),
        function,
        argument: Some(Expression::column(ColumnId(0), argument)),
        distinct,
        filter: None,
        data_type: result,
        order: Vec::new(),
    };
    lower_aggregate(&call, &LoweringInput { schema: &schema, parameters: &[] }).map_err(|error| error.kind)
}

#[test]
fn floats_are_counted_and_ordered_with_one_nan_and_one_zero() {
    for (function, distinct, normalized) in [
        (Aggregate::Min, false, "normalizenan(c0)"),
        (Aggregate::Max, false, "normalizenan(c0)"),
        (Aggregate::Count, true, "normalizefloat(c0)"),
    ] {
        let lowered = lower(function, DataType::Float64, DataType::Float64, distinct).expect("an aggregate");
        assert!(lowered.to_string().contains(normalized), "{lowered}");
    }
    let array: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, f64::NAN, -f64::NAN]));
    let schema = Arc::new(Schema::new(vec![Field::new("c0", ArrowType::Float64, true)]));
    let own = crate::functions::call::normalize_float(
        crate::datafusion::logical_expr::col("c0"),
        &DataType::Float64,
    );
    let logical = crate::datafusion::common::DFSchema::try_from(schema.as_ref().clone()).expect("a schema");
    let physical = crate::datafusion::physical_expr::create_physical_expr(
        &own,
        &logical,
        &Default::default(),
        &Default::default(),
    )
    .expect("an expression");
    let batch = arrow::array::RecordBatch::try_new(schema, vec![array]).expect("a batch");
    let values = physical.evaluate(&batch).and_then(|value| value.into_array(3)).expect("values");
    let bits: Vec<u64> = values
        .as_primitive::<arrow::datatypes::Float64Type>()
        .values()
        .iter()
        .map(|value| value.to_bits())
        .collect();
    assert_eq!(bits, [0, f64::NAN.to_bits(), f64::NAN.to_bits()]);
}

#[test]
fn what_has_no_order_has_no_least_value() {
    for data_type in [DataType::Interval, DataType::Uuid, DataType::Bool] {
        let refused = lower(Aggregate::Min, data_type.clone(), data_type, false);
        assert_eq!(refused, Err(ErrorKind::NotSupported));
    }
    let refused = lower(Aggregate::Sum, DataType::Text, DataType::Text, false);
    assert_eq!(refused, Err(ErrorKind::NotSupported));
}
