//! `sum` that says when it overflows.
//!
//! Integers are added in 64 bits, or in 128 if the result is a decimal; decimals in the width of the
//! result. DataFusion's own sum wraps, which the check here costs about as much as it.
//!
//! Invariants: a group's sum is NULL until a value that is not NULL and passes the filter was added.

use std::{collections::HashSet, fmt::Debug, hash::Hash, marker::PhantomData, mem::size_of, sync::Arc};

use crate::datafusion::{
    common::ScalarValue,
    error::{DataFusionError, Result as DataFusionResult},
    logical_expr::{
        Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::format_state_name,
    },
};
use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, ListArray, PrimitiveArray},
    buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    datatypes::{
        DataType as ArrowType, Decimal128Type, Decimal256Type, Field, FieldRef, Int16Type, Int32Type,
        Int64Type, i256,
    },
};
use pystachio_plan::{DataType, Error, ErrorKind, Result};

use super::{digits::decimal_overflow, faults::out_of_range};
use crate::error::to_datafusion;

/// `sum` with a result of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CheckedSum {
    result: DataType,
    signature: Signature,
}

impl CheckedSum {
    /// # Errors
    ///
    /// `NotSupported` if sums are not of this type.
    pub(super) fn new(result: &DataType) -> Result<Self> {
        if !matches!(result, DataType::Int64 | DataType::Decimal { .. }) {
            return Err(Error::new(
                ErrorKind::NotSupported,
                format!("a sum of type {result} is not supported"),
            ));
        }
        Ok(Self { result: result.clone(), signature: Signature::any(1, Volatility::Immutable) })
    }
}

/// Makes something generic over the types of input and sum.
macro_rules! for_types {
    ($input:expr, $result:expr, $make:ident) => {
        match ($input, $result.to_arrow()) {
            (ArrowType::Int16, ArrowType::Int64) => $make!(Int16Type, Int64Type),
            (ArrowType::Int32, ArrowType::Int64) => $make!(Int32Type, Int64Type),
            (ArrowType::Int64, ArrowType::Int64) => $make!(Int64Type, Int64Type),
            (ArrowType::Int16, ArrowType::Decimal128(..)) => $make!(Int16Type, Decimal128Type),
            (ArrowType::Int32, ArrowType::Decimal128(..)) => $make!(Int32Type, Decimal128Type),
            (ArrowType::Int64, ArrowType::Decimal128(..)) => $make!(Int64Type, Decimal128Type),
            (ArrowType::Decimal128(..), ArrowType::Decimal128(..)) => $make!(Decimal128Type, Decimal128Type),
            (ArrowType::Decimal128(..), ArrowType::Decimal256(..)) => $make!(Decimal128Type, Decimal256Type),
            (ArrowType::Int64, ArrowType::Decimal256(..)) => $make!(Int64Type, Decimal256Type),
            (ArrowType::Decimal256(..), ArrowType::Decimal256(..)) => $make!(Decimal256Type, Decimal256Type),
            (input, result) => Err(unexpected(input, &result)),
        }
    };
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> DataFusionResult<ArrowType> {
        Ok(self.result.to_arrow())
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        let input = self.input_type(&arguments)?;
        if arguments.is_distinct {
            macro_rules! make {
                ($input:ty, $sum:ty) => {
                    Ok(Box::new(DistinctSum::<$input, $sum>::new(self.result.clone())))
                };
            }
            return for_types!(&input, self.result, make);
        }
        macro_rules! make {
            ($input:ty, $sum:ty) => {
                Ok(Box::new(PlainSum::<$input, $sum> {
                    sum: None,
                    result: self.result.clone(),
                    input: PhantomData,
                }))
            };
        }
        for_types!(&input, self.result, make)
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        let sum = self.result.to_arrow();
        Ok(vec![if arguments.is_distinct {
            let item = Field::new_list_field(sum, true);
            Arc::new(Field::new_list(format_state_name(arguments.name, "sum distinct"), item, true))
        } else {
            Arc::new(Field::new(format_state_name(arguments.name, "sum"), sum, true))
        }])
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        let input = self.input_type(&arguments)?;
        macro_rules! make {
            ($input:ty, $sum:ty) => {
                Ok(Box::new(GroupedSum::<$input, $sum> {
                    sums: Vec::new(),
                    seen: None,
                    result: self.result.clone(),
                    input: PhantomData,
                }))
            };
        }
        for_types!(&input, self.result, make)
    }
}

impl CheckedSum {
    /// The input's type, whose digits must count the same as the result's.
    fn input_type(&self, arguments: &AccumulatorArgs<'_>) -> DataFusionResult<ArrowType> {
        let field = arguments
            .expr_fields
            .first()
            .ok_or_else(|| to_datafusion(Error::internal("sum has no argument")))?;
        let scale = |data_type: &ArrowType| match data_type {
            ArrowType::Decimal128(_, scale) | ArrowType::Decimal256(_, scale) => *scale,
            _ => 0,
        };
        if scale(field.data_type()) != scale(&self.result.to_arrow()) {
            return Err(unexpected(field.data_type(), &self.result.to_arrow()));
        }
        Ok(field.data_type().clone())
    }
}

fn unexpected(input: &ArrowType, result: &ArrowType) -> DataFusionError {
    to_datafusion(Error::internal(format!("a sum of {input} as {result} is not planned for")))
}

fn overflow(result: &DataType) -> DataFusionError {
    to_datafusion(match result {
        DataType::Int64 => out_of_range(result),
        _ => decimal_overflow("sum", result),
    })
}

/// A sum that can be added to and reports overflow.
trait Sum: Copy + Default + Eq + Hash + Debug + Send + Sync {
    fn plus(self, other: Self) -> (Self, bool);
}

impl Sum for i64 {
    #[inline]
    fn plus(self, other: Self) -> (Self, bool) {
        self.overflowing_add(other)
    }
}

impl Sum for i128 {
    #[inline]
    fn plus(self, other: Self) -> (Self, bool) {
        self.overflowing_add(other)
    }
}

impl Sum for i256 {
    #[inline]
    fn plus(self, other: Self) -> (Self, bool) {
        let sum = self.wrapping_add(other);
        // Operands of one sign overflowed if the sum has the other.
        (sum, self.is_negative() == other.is_negative() && sum.is_negative() != self.is_negative())
    }
}

/// Conversion without loss.
trait Widen<S> {
    fn widen(self) -> S;
}

macro_rules! widen {
    ($from:ty, $to:ty, $convert:expr) => {
        impl Widen<$to> for $from {
            #[inline]
            fn widen(self) -> $to {
                $convert(self)
            }
        }
    };
}

widen!(i16, i64, i64::from);
widen!(i32, i64, i64::from);
widen!(i64, i64, std::convert::identity);
widen!(i16, i128, i128::from);
widen!(i32, i128, i128::from);
widen!(i64, i128, i128::from);
widen!(i128, i128, std::convert::identity);
widen!(i64, i256, |value: i64| i256::from_i128(value.into()));
widen!(i128, i256, i256::from_i128);
widen!(i256, i256, std::convert::identity);

/// What the accumulators need of the types of input and sum.
trait Addend<S: ArrowPrimitiveType>: ArrowPrimitiveType + Debug
where
    Self::Native: Widen<S::Native>,
    S::Native: Sum,
{
}

impl<I, S> Addend<S> for I
where
    I: ArrowPrimitiveType + Debug,
    S: ArrowPrimitiveType,
    I::Native: Widen<S::Native>,
    S::Native: Sum,
{
}

/// The values of an aggregate's one argument.
pub(super) fn primitive<P: ArrowPrimitiveType>(values: &[ArrayRef]) -> DataFusionResult<&PrimitiveArray<P>> {
    let found = values.first();
    found.and_then(|array| array.as_primitive_opt::<P>()).ok_or_else(|| {
        let found = found.map(|array| array.data_type());
        let message = format!("an aggregate of {} got values of {found:?}", P::DATA_TYPE);
        to_datafusion(Error::internal(message))
    })
}

fn typed<P: ArrowPrimitiveType>(array: PrimitiveArray<P>, result: &DataType) -> PrimitiveArray<P> {
    array.with_data_type(result.to_arrow())
}

/// One sum.
#[derive(Debug)]
struct PlainSum<I, S: ArrowPrimitiveType> {
    sum: Option<S::Native>,
    result: DataType,
    input: PhantomData<fn(I)>,
}

impl<I, S: ArrowPrimitiveType> PlainSum<I, S>
where
    S::Native: Sum,
{
    fn add<P>(&mut self, values: &[ArrayRef]) -> DataFusionResult<()>
    where
        P: ArrowPrimitiveType,
        P::Native: Widen<S::Native>,
    {
        let array = primitive::<P>(values)?;
        if array.null_count() == array.len() {
            return Ok(());
        }
        let mut overflowed = false;
        let mut add = |sum: S::Native, value: P::Native| {
            let (sum, over) = sum.plus(value.widen());
            overflowed |= over;
            sum
        };
        let start = self.sum.unwrap_or_default();
        let sum = if array.null_count() == 0 {
            array.values().iter().fold(start, |sum, value| add(sum, *value))
        } else {
            array.iter().flatten().fold(start, add)
        };
        if overflowed {
            return Err(overflow(&self.result));
        }
        self.sum = Some(sum);
        Ok(())
    }

    fn value(&self) -> DataFusionResult<ScalarValue> {
        let array = typed(PrimitiveArray::<S>::from_iter([self.sum]), &self.result);
        ScalarValue::try_from_array(&array, 0)
    }
}

impl<I, S> Accumulator for PlainSum<I, S>
where
    I: Addend<S> + 'static,
    I::Native: Widen<S::Native>,
    S: ArrowPrimitiveType + Debug,
    S::Native: Sum + Widen<S::Native>,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add::<I>(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.add::<S>(states)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Ok(vec![self.value()?])
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.value()
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// One sum of distinct values.
#[derive(Debug)]
struct DistinctSum<I, S: ArrowPrimitiveType> {
    values: HashSet<S::Native>,
    result: DataType,
    input: PhantomData<fn(I)>,
}

impl<I, S: ArrowPrimitiveType> DistinctSum<I, S> {
    fn new(result: DataType) -> Self {
        Self { values: HashSet::new(), result, input: PhantomData }
    }
}

impl<I, S> Accumulator for DistinctSum<I, S>
where
    I: Addend<S> + 'static,
    I::Native: Widen<S::Native>,
    S: ArrowPrimitiveType + Debug,
    S::Native: Sum + Widen<S::Native>,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let array = primitive::<I>(values)?;
        self.values.extend(array.iter().flatten().map(Widen::widen));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let lists = states
            .first()
            .and_then(|array| array.as_list_opt::<i32>())
            .ok_or_else(|| to_datafusion(Error::internal("a distinct sum got no lists")))?;
        for list in lists.iter().flatten() {
            let array = primitive::<S>(std::slice::from_ref(&list))?;
            self.values.extend(array.iter().flatten());
        }
        Ok(())
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let values = PrimitiveArray::<S>::from_iter_values(self.values.iter().copied());
        let values = typed(values, &self.result);
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([values.len()]);
        let list = ListArray::try_new(item, offsets, Arc::new(values), None)?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let mut sum = PlainSum::<S, S> { sum: None, result: self.result.clone(), input: PhantomData };
        let values = PrimitiveArray::<S>::from_iter_values(self.values.iter().copied());
        sum.add::<S>(&[Arc::new(values)])?;
        sum.value()
    }

    fn size(&self) -> usize {
        // A control byte and the value, at the least load that the set has after growing.
        size_of::<Self>() + self.values.capacity() * (size_of::<S::Native>() + 1)
    }
}

/// One sum a group.
#[derive(Debug)]
struct GroupedSum<I, S: ArrowPrimitiveType> {
    sums: Vec<S::Native>,
    /// Which groups have a value; absent while all have, which is so until a NULL or a filter comes.
    seen: Option<Vec<bool>>,
    result: DataType,
    input: PhantomData<fn(I)>,
}

impl<I, S: ArrowPrimitiveType> GroupedSum<I, S>
where
    S::Native: Sum,
{
    fn add<P>(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> DataFusionResult<()>
    where
        P: ArrowPrimitiveType,
        P::Native: Widen<S::Native>,
    {
        let array = primitive::<P>(values)?;
        assert_eq!(array.len(), group_indices.len(), "a group for every value");
        let sifted = array.null_count() > 0 || filter.is_some();
        if sifted && self.seen.is_none() {
            self.seen = Some(vec![true; self.sums.len()]);
        }
        self.sums.resize(group_count, S::Native::default());
        if let Some(seen) = &mut self.seen {
            seen.resize(group_count, false);
        }
        let (sums, seen) = (self.sums.as_mut_slice(), self.seen.as_deref_mut());
        let mut overflowed = false;
        let mut add = |group: usize, value: P::Native| {
            let (sum, over) = sums[group].plus(value.widen());
            sums[group] = sum;
            overflowed |= over;
        };
        let rows = group_indices.iter().zip(array.values());
        match seen {
            None => rows.for_each(|(group, value)| add(*group, *value)),
            Some(seen) if !sifted => rows.for_each(|(group, value)| {
                seen[*group] = true;
                add(*group, *value);
            }),
            Some(seen) => {
                for (row, (group, value)) in rows.enumerate() {
                    if array.is_valid(row) && filter.is_none_or(|filter| passes(filter, row)) {
                        seen[*group] = true;
                        add(*group, *value);
                    }
                }
            }
        }
        if overflowed { Err(overflow(&self.result)) } else { Ok(()) }
    }

    fn take(&mut self, emit: EmitTo) -> ArrayRef {
        let sums = emit.take_needed(&mut self.sums);
        let nulls = self.seen.as_mut().map(|seen| NullBuffer::from(emit.take_needed(seen)));
        if self.sums.is_empty() {
            self.seen = None;
        }
        Arc::new(typed(PrimitiveArray::<S>::new(ScalarBuffer::from(sums), nulls), &self.result))
    }
}

pub(super) fn passes(filter: &BooleanArray, row: usize) -> bool {
    filter.is_valid(row) && filter.value(row)
}

/// The NULLs of an array, and of it where a row does not pass the filter.
pub(super) fn nulls_of_filtered(
    nulls: Option<&NullBuffer>,
    filter: Option<&BooleanArray>,
) -> Option<NullBuffer> {
    let kept = filter
        .map(|filter| NullBuffer::new(BooleanBuffer::collect_bool(filter.len(), |row| passes(filter, row))));
    NullBuffer::union(nulls, kept.as_ref())
}

impl<I, S> GroupsAccumulator for GroupedSum<I, S>
where
    I: Addend<S> + 'static,
    I::Native: Widen<S::Native>,
    S: ArrowPrimitiveType + Debug,
    S::Native: Sum + Widen<S::Native>,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> DataFusionResult<()> {
        self.add::<I>(values, group_indices, filter, group_count)
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
        self.add::<S>(values, group_indices, None, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let array = primitive::<I>(values)?;
        let sums: Vec<S::Native> = array.values().iter().map(|value| value.widen()).collect();
        let nulls = nulls_of_filtered(array.nulls(), filter);
        Ok(vec![Arc::new(typed(PrimitiveArray::<S>::new(ScalarBuffer::from(sums), nulls), &self.result))])
    }

    fn size(&self) -> usize {
        let seen = self.seen.as_ref().map_or(0, Vec::capacity);
        size_of::<Self>() + self.sums.capacity() * size_of::<S::Native>() + seen
    }
}
