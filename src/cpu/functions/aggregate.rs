//! Aggregates of the plan language as DataFusion's.
//!
//! DataFusion's own accumulators are used for all but `sum`, which wraps there when it overflows and rounds floats at each row, and
//! `min` and `max` of floats, which lose infinities and NaN. Those of distinct texts count what they allocate first.

use std::sync::Arc;

use crate::datafusion::{
    common::ScalarValue,
    error::Result as DataFusionResult,
    functions_aggregate::{
        any_value::any_value_udaf,
        bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf},
        bool_and_or::{bool_and_udaf, bool_or_udaf},
        count::count_udaf,
        min_max::{max_udaf, min_udaf},
    },
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility,
        expr::AggregateFunction,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::COUNT_STAR_EXPANSION,
    },
};
use arrow::{
    array::ArrayRef,
    datatypes::{DataType as ArrowType, FieldRef},
};
use pystachio_plan::{Aggregate, AggregateCall, DataType, Error, ErrorKind, Expression, Result, SortKey};

use super::{
    LoweringInput, call,
    collect::{Collect, CollectedKey},
    float_extreme::{Extreme, FloatExtreme},
    float_sum::{FloatSum, Of},
    sum::CheckedSum,
};

/// See [`super::lower_aggregate`].
///
/// # Errors
///
/// `NotSupported` for an argument type that the aggregate does not have.
pub(super) fn lower_aggregate(aggregate: &AggregateCall, input: &LoweringInput<'_>) -> Result<Expr> {
    let argument = match &aggregate.argument {
        Some(argument) if aggregate.function == Aggregate::Array => {
            return input.lower_collection(aggregate, argument);
        }
        Some(argument) => input.lower_argument(aggregate, argument)?,
        None if aggregate.function == Aggregate::Count => Expr::Literal(COUNT_STAR_EXPANSION, None),
        None => return Err(Error::internal(format!("{:?} has no argument", aggregate.function))),
    };
    // What is the least, the greatest or any of distinct values is that of all values.
    let distinct = aggregate.distinct && matches!(aggregate.function, Aggregate::Count | Aggregate::Sum);
    let filter = aggregate.filter.as_ref().map(|filter| input.lower(filter)).transpose()?;
    let function = function(aggregate)?;
    Ok(Expr::AggregateFunction(AggregateFunction::new_udf(
        function,
        vec![argument],
        distinct,
        filter.map(Box::new),
        Vec::new(),
        None,
    )))
}

impl LoweringInput<'_> {
    /// An array of an argument, whose keys are arguments too. A key that is the argument is there once.
    fn lower_collection(&self, aggregate: &AggregateCall, argument: &Expression) -> Result<Expr> {
        if aggregate.distinct {
            return Err(Error::internal("an array of distinct values of rows that are not distinct"));
        }
        let mut arguments = vec![self.lower_aligned(argument, argument.data_type())?];
        let mut types = vec![argument.data_type().to_arrow()];
        let mut keys = Vec::with_capacity(aggregate.order.len());
        for SortKey { expression, descending, nulls_first } in &aggregate.order {
            let data_type = expression.data_type();
            let mut key = self.lower_aligned(expression, data_type)?;
            if data_type.is_float() {
                key = call::normalize_float(key, data_type);
            }
            let known = arguments.iter().position(|known| *known == key);
            let place = known.unwrap_or(arguments.len());
            if known.is_none() {
                arguments.push(key);
                types.push(data_type.to_arrow());
            }
            keys.push(CollectedKey { argument: place, descending: *descending, nulls_first: *nulls_first });
        }
        let filter = aggregate.filter.as_ref().map(|filter| self.lower(filter)).transpose()?;
        let function = Arc::new(AggregateUDF::new_from_impl(Collect::new(types, keys)));
        let filter = filter.map(Box::new);
        let call = AggregateFunction::new_udf(function, arguments, false, filter, Vec::new(), None);
        Ok(Expr::AggregateFunction(call))
    }

    fn lower_argument(&self, aggregate: &AggregateCall, argument: &Expression) -> Result<Expr> {
        let data_type = argument.data_type();
        let lowered = match aggregate.function {
            // The result has the argument's Arrow type.
            Aggregate::Min | Aggregate::Max | Aggregate::AnyValue => {
                self.lower_aligned(argument, &aggregate.data_type)?
            }
            _ => self.lower(argument)?,
        };
        if !data_type.is_float() {
            return Ok(lowered);
        }
        // Arrow tells -0 from 0 and one NaN from another, and puts negative NaN first.
        Ok(match aggregate.function {
            // The least of zeros is one of them: where there is -0 alone, it is -0.
            Aggregate::Min | Aggregate::Max => call::normalize_nan(lowered, data_type),
            Aggregate::AnyValue | Aggregate::Sum | Aggregate::Deviations => lowered,
            Aggregate::Count if !aggregate.distinct => lowered,
            _ => call::normalize_float(lowered, data_type),
        })
    }
}

fn function(aggregate: &AggregateCall) -> Result<Arc<AggregateUDF>> {
    let data_type = aggregate.argument.as_ref().map(Expression::data_type);
    let refused = || {
        let data_type = data_type.map(ToString::to_string).unwrap_or_default();
        let function = format!("{:?}", aggregate.function).to_lowercase();
        Error::new(ErrorKind::NotSupported, format!("{function} is not supported for {data_type}"))
    };
    Ok(match aggregate.function {
        Aggregate::Count if aggregate.distinct && has_views(data_type) => {
            Arc::new(AggregateUDF::new_from_impl(CountedDistinct::new()))
        }
        Aggregate::Count => count_udaf(),
        Aggregate::Sum if aggregate.is_of_floats() => float_sum(Of::Sum, aggregate)?,
        Aggregate::Sum => Arc::new(AggregateUDF::new_from_impl(CheckedSum::new(&aggregate.data_type)?)),
        Aggregate::Deviations => match data_type {
            Some(DataType::Record(_)) => float_sum(Of::Pairs, aggregate)?,
            _ => float_sum(Of::Deviations, aggregate)?,
        },
        Aggregate::Min if is_float(data_type) => extreme(Extreme::Least),
        Aggregate::Max | Aggregate::AnyValue if is_float(data_type) => extreme(Extreme::Greatest),
        Aggregate::Min | Aggregate::Max => {
            let ordered = data_type.is_some_and(is_ordered);
            match aggregate.function {
                _ if !ordered => return Err(refused()),
                Aggregate::Min => min_udaf(),
                _ => max_udaf(),
            }
        }
        Aggregate::BoolAnd => bool_and_udaf(),
        Aggregate::BoolOr => bool_or_udaf(),
        Aggregate::BitAnd => bit_and_udaf(),
        Aggregate::BitOr => bit_or_udaf(),
        Aggregate::BitXor => bit_xor_udaf(),
        // `lower_collection` makes it.
        Aggregate::Array => return Err(refused()),
        // All values are equal, so the greatest is any; it has an accumulator for many groups.
        Aggregate::AnyValue => match data_type {
            Some(DataType::Bool) => bool_or_udaf(),
            Some(data_type) if is_ordered(data_type) => max_udaf(),
            _ => any_value_udaf(),
        },
    })
}

fn float_sum(of: Of, aggregate: &AggregateCall) -> Result<Arc<AggregateUDF>> {
    if aggregate.distinct {
        return Err(Error::internal("a sum of distinct floats, which PostgreSQL adds in their order"));
    }
    Ok(Arc::new(AggregateUDF::new_from_impl(FloatSum::new(of, &aggregate.data_type)?)))
}

fn extreme(extreme: Extreme) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(FloatExtreme::new(extreme)))
}

fn is_float(data_type: Option<&DataType>) -> bool {
    data_type.is_some_and(DataType::is_float)
}

/// Whether distinct values of the type are kept as views.
fn has_views(data_type: Option<&DataType>) -> bool {
    matches!(data_type, Some(DataType::Text | DataType::Bytea))
}

/// DataFusion's `count(DISTINCT …)` of texts, whose table counts its first allocation too.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CountedDistinct {
    signature: Signature,
}

impl CountedDistinct {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for CountedDistinct {
    fn name(&self) -> &str {
        "count"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> DataFusionResult<ArrowType> {
        Ok(ArrowType::Int64)
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(Box::new(CountedAccumulator(count_udaf().accumulator(arguments)?)))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        count_udaf().state_fields(arguments)
    }

    fn default_value(&self, _data_type: &ArrowType) -> DataFusionResult<ScalarValue> {
        Ok(ScalarValue::Int64(Some(0)))
    }
}

/// What DataFusion's table of views allocates at once: 1024 places for 512 values, with their views and hashes.
///
/// Source: `INITIAL_MAP_CAPACITY` in `binary_view_map.rs` of datafusion-physical-expr-common.
const FIRST_TABLE_BYTES: usize = 1024 * (32 + 1);

#[derive(Debug)]
struct CountedAccumulator(Box<dyn Accumulator>);

impl Accumulator for CountedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.0.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.0.merge_batch(states)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        self.0.state()
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        size_of::<Self>() + FIRST_TABLE_BYTES + self.0.size()
    }
}

/// Whether DataFusion's min and max follow the order of the comparisons.
fn is_ordered(data_type: &DataType) -> bool {
    !matches!(
        data_type,
        DataType::Bool
            | DataType::Interval
            | DataType::Uuid
            | DataType::List(_)
            | DataType::Record(_)
            | DataType::Numeric
    )
}

const _: () = assert!(matches!(COUNT_STAR_EXPANSION, ScalarValue::Int64(Some(1))));
