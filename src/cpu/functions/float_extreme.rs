//! `min` and `max` of floats in PostgreSQL's order, in which NaN is the greatest value.
//!
//! DataFusion's own begin a group with the greatest or the least finite value, which an infinity does not replace, and let any value
//! replace NaN.
//!
//! Invariants: a group has no value until one that is not NULL and passes the filter was added. Of -0 and 0, which are equal, the
//! first one stays.

use std::{fmt::Debug, mem::size_of, sync::Arc};

use crate::datafusion::{
    common::ScalarValue,
    error::{DataFusionError, Result as DataFusionResult},
    logical_expr::{
        Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
        function::AccumulatorArgs,
    },
};
use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray},
    datatypes::{DataType as ArrowType, Float32Type, Float64Type},
};
use pystachio_plan::Error;

use super::sum::{nulls_of_filtered, passes, primitive};
use crate::error::to_datafusion;

/// The least or the greatest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extreme {
    Least,
    Greatest,
}

/// `min` or `max` of floats.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FloatExtreme {
    extreme: Extreme,
    signature: Signature,
}

impl FloatExtreme {
    pub(super) fn new(extreme: Extreme) -> Self {
        Self { extreme, signature: Signature::any(1, Volatility::Immutable) }
    }
}

/// Makes something generic over the type of a float.
macro_rules! for_floats {
    ($arguments:expr, $make:ident) => {
        match $arguments.expr_fields.first().map(|field| field.data_type()) {
            Some(ArrowType::Float32) => $make!(Float32Type),
            Some(ArrowType::Float64) => $make!(Float64Type),
            other => Err(unexpected(other)),
        }
    };
}

impl AggregateUDFImpl for FloatExtreme {
    fn name(&self) -> &str {
        match self.extreme {
            Extreme::Least => "min",
            Extreme::Greatest => "max",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[ArrowType]) -> DataFusionResult<ArrowType> {
        arguments.first().cloned().ok_or_else(|| unexpected(None))
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        macro_rules! make {
            ($float:ty) => {
                Ok(Box::new(One::<$float> { value: None, extreme: self.extreme }))
            };
        }
        for_floats!(arguments, make)
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        macro_rules! make {
            ($float:ty) => {
                Ok(Box::new(Grouped::<$float> { values: Vec::new(), extreme: self.extreme }))
            };
        }
        for_floats!(arguments, make)
    }
}

fn unexpected(found: Option<&ArrowType>) -> DataFusionError {
    to_datafusion(Error::internal(format!("the extreme of {found:?}, which is no float")))
}

/// A float as PostgreSQL compares it.
trait Float: Copy + Debug + Send + Sync {
    /// Whether it stands after another one.
    fn is_after(self, other: Self) -> bool;
}

macro_rules! float {
    ($float:ty) => {
        impl Float for $float {
            #[inline]
            fn is_after(self, other: Self) -> bool {
                self > other || (self.is_nan() && !other.is_nan())
            }
        }
    };
}

float!(f32);
float!(f64);

impl Extreme {
    #[inline]
    fn of<F: Float>(self, kept: Option<F>, value: F) -> F {
        let Some(kept) = kept else { return value };
        let replaces = match self {
            Self::Least => kept.is_after(value),
            Self::Greatest => value.is_after(kept),
        };
        if replaces { value } else { kept }
    }
}

/// Of all rows.
#[derive(Debug)]
struct One<P: ArrowPrimitiveType> {
    value: Option<P::Native>,
    extreme: Extreme,
}

impl<P: ArrowPrimitiveType + Debug> Accumulator for One<P>
where
    P::Native: Float,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        for value in primitive::<P>(values)?.iter().flatten() {
            self.value = Some(self.extreme.of(self.value, value));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        ScalarValue::try_from_array(&PrimitiveArray::<P>::from_iter([self.value]), 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// Of the rows of each group.
#[derive(Debug)]
struct Grouped<P: ArrowPrimitiveType> {
    values: Vec<Option<P::Native>>,
    extreme: Extreme,
}

impl<P: ArrowPrimitiveType> Grouped<P> {
    fn take(&mut self, emit: EmitTo) -> ArrayRef {
        Arc::new(emit.take_needed(&mut self.values).into_iter().collect::<PrimitiveArray<P>>())
    }
}

impl<P: ArrowPrimitiveType + Debug> GroupsAccumulator for Grouped<P>
where
    P::Native: Float,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> DataFusionResult<()> {
        let array = primitive::<P>(values)?;
        assert_eq!(array.len(), group_indices.len(), "a group for every value");
        self.values.resize(group_count, None);
        let mut add = |group: usize, value| {
            let kept = &mut self.values[group];
            *kept = Some(self.extreme.of(*kept, value));
        };
        let rows = group_indices.iter().zip(array.values());
        if array.null_count() == 0 && filter.is_none() {
            rows.for_each(|(group, value)| add(*group, *value));
        } else {
            for (row, (group, value)) in rows.enumerate() {
                if array.is_valid(row) && filter.is_none_or(|filter| passes(filter, row)) {
                    add(*group, *value);
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> DataFusionResult<ArrayRef> {
        Ok(self.take(emit))
    }

    fn state(&mut self, emit: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        Ok(vec![self.take(emit)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> DataFusionResult<()> {
        self.update_batch(values, group_indices, None, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let array = primitive::<P>(values)?;
        let nulls = nulls_of_filtered(array.nulls(), filter);
        Ok(vec![Arc::new(PrimitiveArray::<P>::new(array.values().clone(), nulls))])
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<Option<P::Native>>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float64Array};

    use super::*;

    #[test]
    fn extremes_are_those_of_postgresql_whatever_the_order_of_rows() {
        let (nan, least, greatest) = (f64::NAN, f64::NEG_INFINITY, f64::INFINITY);
        // Values of a group, and their least and greatest.
        let groups = [
            (vec![least], least, least),
            (vec![greatest], greatest, greatest),
            (vec![nan], nan, nan),
            (vec![nan, 5.0], 5.0, nan),
            (vec![nan, greatest, least], least, nan),
            (vec![-0.5, 0.25, f64::MAX, f64::MIN], f64::MIN, f64::MAX),
        ];
        for (values, min, max) in groups {
            for backwards in [false, true] {
                let mut values = values.clone();
                if backwards {
                    values.reverse();
                }
                let rows: ArrayRef = Arc::new(Float64Array::from(values.clone()));
                for (extreme, wanted) in [(Extreme::Least, min), (Extreme::Greatest, max)] {
                    let mut grouped = Grouped::<Float64Type> { values: Vec::new(), extreme };
                    // The second of three groups; the others have nothing.
                    grouped
                        .update_batch(std::slice::from_ref(&rows), &vec![1; values.len()], None, 3)
                        .unwrap();
                    let states = grouped.state(EmitTo::All).unwrap();
                    grouped.merge_batch(&states, &[0, 1, 2], 3).unwrap();
                    let result = grouped.evaluate(EmitTo::All).unwrap();
                    let result = result.as_primitive::<Float64Type>();
                    assert_eq!((result.is_null(0), result.is_null(2)), (true, true));
                    assert_eq!(result.value(1).to_bits(), wanted.to_bits(), "{extreme:?} of {values:?}");
                    let mut one = One::<Float64Type> { value: None, extreme };
                    one.update_batch(std::slice::from_ref(&rows)).unwrap();
                    let ScalarValue::Float64(Some(found)) = one.evaluate().unwrap() else {
                        panic!("a value")
                    };
                    assert_eq!(found.to_bits(), wanted.to_bits(), "{extreme:?} of {values:?}");
                }
            }
        }
    }
}
