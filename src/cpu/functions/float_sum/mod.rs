//! `sum` of floats, rounded once, and the sum of squared deviations from the mean, or of products of those of pairs.
//!
//! PostgreSQL rounds at each row, so that its result depends on the order of rows. Here sums are kept without rounding
//! ([`exact`]), so that any order, any number of threads and ranks, and any spilling give one result: the float next to the
//! mathematical one.
//!
//! ```text
//! sum:         Σx
//! deviations:  Σ(x - mean)² = (n·Σx² - (Σx)²) / n
//! of pairs:    Σ(x - mean of x)(y - mean of y) = (n·Σxy - Σx·Σy) / n
//! ```
//!
//! A partial result is a state in bytes: as DataFusion's between its phases, and as `bytea` between ranks.

mod exact;
#[cfg(test)]
mod tests;

use std::{fmt::Debug, mem::size_of, sync::Arc};

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
    array::{Array, ArrayRef, AsArray, BinaryViewBuilder, BooleanArray, PrimitiveBuilder},
    datatypes::{DataType as ArrowType, Field, FieldRef, Float32Type, Float64Type},
};
use num_bigint::BigInt;
use pystachio_engine::deviations::squared_deviations;
use pystachio_plan::{Aggregate, DataType, Error, ErrorKind, Result};

use self::exact::{ExactSums, FloatForm, Power, Total};
use super::{faults::float_overflow, sum::passes};
use crate::error::to_datafusion;

/// The aggregates of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Sum,
    Deviations,
    /// Deviations of pairs of which neither value is NULL.
    Pairs,
}

/// One of them, with a result of one type, which is `bytea` for partial results.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FloatSum {
    of: Of,
    result: DataType,
    signature: Signature,
}

impl FloatSum {
    /// # Errors
    ///
    /// `NotSupported` if it has no result of this type.
    pub(super) fn new(of: Of, result: &DataType) -> Result<Self> {
        let is_held = match result {
            DataType::Float64 | DataType::Bytea => true,
            DataType::Float32 => of == Of::Sum,
            _ => false,
        };
        if !is_held {
            let message = format!("{of:?} of floats as {result} is not supported");
            return Err(Error::new(ErrorKind::NotSupported, message));
        }
        Ok(Self { of, result: result.clone(), signature: Signature::any(1, Volatility::Immutable) })
    }
}

impl AggregateUDFImpl for FloatSum {
    fn name(&self) -> &str {
        match self.of {
            Of::Sum => "sum",
            Of::Deviations | Of::Pairs => "deviations",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> DataFusionResult<ArrowType> {
        Ok(self.result.to_arrow())
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        let mut totals = Totals::new(self.of, self.result.clone());
        totals.resize(1);
        Ok(Box::new(Whole(totals)))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        let name = format_state_name(arguments.name, self.name());
        Ok(vec![Arc::new(Field::new(name, ArrowType::BinaryView, true))])
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _arguments: AccumulatorArgs<'_>,
    ) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Totals::new(self.of, self.result.clone())))
    }
}

/// Of each group.
#[derive(Debug)]
struct Totals {
    of: Of,
    result: DataType,
    sums: ExactSums,
    /// Of pairs: the sums of their second values.
    others: ExactSums,
    /// Of deviations: the squares or products, and the count of values.
    squares: ExactSums,
    counts: Vec<u64>,
}

impl Totals {
    fn new(of: Of, result: DataType) -> Self {
        let [sums, others] = [(); 2].map(|()| ExactSums::new(Power::Values));
        Self { of, result, sums, others, squares: ExactSums::new(Power::Squares), counts: Vec::new() }
    }

    fn resize(&mut self, group_count: usize) {
        self.sums.resize(group_count);
        if self.of == Of::Pairs {
            self.others.resize(group_count);
        }
        if self.of != Of::Sum {
            self.squares.resize(group_count);
            self.counts.resize(group_count, 0);
        }
    }

    fn add(&mut self, rows: impl Iterator<Item = (usize, f64)> + Clone) {
        if self.of != Of::Sum {
            self.squares.add(rows.clone());
            rows.clone().for_each(|(group, _)| self.counts[group] += 1);
        }
        self.sums.add(rows);
    }

    fn add_pairs(&mut self, rows: impl Iterator<Item = (usize, f64, f64)> + Clone) {
        self.squares.add_products(rows.clone());
        rows.clone().for_each(|(group, ..)| self.counts[group] += 1);
        self.sums.add(rows.clone().map(|(group, value, _)| (group, value)));
        self.others.add(rows.map(|(group, _, other)| (group, other)));
    }

    /// Adds values, pairs of them, or partial results where the array has bytes. `groups` has the group of each row.
    fn add_array(
        &mut self,
        array: &dyn Array,
        groups: impl Fn(usize) -> usize + Copy,
        filter: Option<&BooleanArray>,
    ) -> DataFusionResult<()> {
        let is_added = |row: &usize| array.is_valid(*row) && filter.is_none_or(|filter| passes(filter, *row));
        let is_whole = array.null_count() == 0 && filter.is_none();
        let rows = 0..array.len();
        macro_rules! add_floats {
            ($float:ty) => {{
                let values = array.as_primitive::<$float>().values();
                let row = |row: usize| (groups(row), f64::from(values[row]));
                if is_whole { self.add(rows.map(row)) } else { self.add(rows.filter(is_added).map(row)) }
            }};
        }
        match array.data_type() {
            ArrowType::Float32 => add_floats!(Float32Type),
            ArrowType::Float64 => add_floats!(Float64Type),
            ArrowType::Struct(_) => {
                let columns = array.as_struct().columns();
                let floats = |place: usize| columns.get(place)?.as_primitive_opt::<Float64Type>();
                let (Some(values), Some(others)) = (floats(0), floats(1)) else {
                    return Err(lacking("pair of floats"));
                };
                let is_pair = |row: &usize| is_added(row) && values.is_valid(*row) && others.is_valid(*row);
                let row = |row: usize| (groups(row), values.value(row), others.value(row));
                self.add_pairs(rows.filter(is_pair).map(row));
            }
            ArrowType::BinaryView => {
                let states = array.as_binary_view();
                for row in rows.filter(is_added) {
                    self.add_state(groups(row), states.value(row)).ok_or_else(|| {
                        to_datafusion(Error::internal("a partial sum of floats has bytes of another form"))
                    })?;
                }
            }
            other => {
                return Err(to_datafusion(Error::internal(format!("a sum of {other} is no sum of floats"))));
            }
        }
        Ok(())
    }

    /// Makes the groups ready for [`Totals::write_state`] and [`Totals::value`].
    fn finish(&mut self) {
        self.sums.carry();
        self.others.carry();
        self.squares.carry();
    }

    /// A group's partial result: for deviations the count, 8 bytes; of each sum its length, 2 bytes, and the sum; and the squares.
    fn write_state(&self, group: usize, state: &mut Vec<u8>) -> Option<()> {
        state.clear();
        if self.of == Of::Sum {
            return self.sums.write_state(group, state);
        }
        state.extend(self.counts[group].to_ne_bytes());
        for sums in [Some(&self.sums), self.second_sums()].into_iter().flatten() {
            let start = state.len() + 2;
            state.extend([0, 0]);
            sums.write_state(group, state)?;
            let length = (state.len() - start) as u16;
            state[start - 2..start].copy_from_slice(&length.to_ne_bytes());
        }
        self.squares.write_state(group, state)
    }

    fn second_sums(&self) -> Option<&ExactSums> {
        (self.of == Of::Pairs).then_some(&self.others)
    }

    fn add_state(&mut self, group: usize, state: &[u8]) -> Option<()> {
        if self.of == Of::Sum {
            return self.sums.add_state(group, state);
        }
        let (count, mut rest) = state.split_first_chunk()?;
        self.counts[group] += u64::from_ne_bytes(*count);
        let others = (self.of == Of::Pairs).then_some(&mut self.others);
        for sums in [Some(&mut self.sums), others].into_iter().flatten() {
            let (length, behind) = rest.split_first_chunk()?;
            let (sum, behind) = behind.split_at_checked(u16::from_ne_bytes(*length).into())?;
            sums.add_state(group, sum)?;
            rest = behind;
        }
        self.squares.add_state(group, rest)
    }

    fn value(&self, group: usize) -> DataFusionResult<Option<f64>> {
        let form = if self.result == DataType::Float32 { FloatForm::SINGLE } else { FloatForm::DOUBLE };
        match self.of {
            Of::Sum => match self.sums.rounded(group, form) {
                Total::Nothing => Ok(None),
                Total::Special(value) | Total::Finite(value) => Ok(Some(value)),
                Total::Overflow => Err(to_datafusion(float_overflow())),
            },
            Of::Deviations | Of::Pairs => {
                let other = self.second_sums().unwrap_or(&self.sums).number(group);
                let (sum, other, squares) = match (self.sums.number(group), other, self.squares.number(group))
                {
                    (Ok(sum), Ok(other), Ok(squares)) => (sum, other, squares),
                    (Err(Total::Nothing), ..) => return Ok(None),
                    // PostgreSQL has NaN as soon as a value is not finite.
                    _ => return Ok(Some(f64::NAN)),
                };
                let count = BigInt::from(self.counts[group]);
                squared_deviations(&count, &(sum * other), &squares).map(Some).map_err(to_datafusion)
            }
        }
    }

    /// The first groups' results, in the result's type.
    fn results(&self, group_count: usize) -> DataFusionResult<ArrayRef> {
        macro_rules! floats {
            ($float:ty) => {{
                let mut builder = PrimitiveBuilder::<$float>::with_capacity(group_count);
                for group in 0..group_count {
                    builder.append_option(self.value(group)?.map(|value| value as _));
                }
                Arc::new(builder.finish())
            }};
        }
        Ok(match self.result {
            DataType::Float32 => floats!(Float32Type),
            DataType::Float64 => floats!(Float64Type),
            _ => self.states(group_count),
        })
    }

    fn states(&self, group_count: usize) -> ArrayRef {
        let (mut builder, mut state) = (BinaryViewBuilder::new(), Vec::new());
        for group in 0..group_count {
            let written = self.write_state(group, &mut state);
            builder.append_option(written.map(|()| &state));
        }
        Arc::new(builder.finish())
    }

    /// Makes an array of the first groups, and forgets them.
    fn take(
        &mut self,
        emit: EmitTo,
        make: impl Fn(&Self, usize) -> DataFusionResult<ArrayRef>,
    ) -> DataFusionResult<ArrayRef> {
        let group_count = match emit {
            EmitTo::All => self.sums.group_count(),
            EmitTo::First(count) => count,
        };
        self.finish();
        let made = make(self, group_count)?;
        self.sums.drop_first(group_count);
        if self.of == Of::Pairs {
            self.others.drop_first(group_count);
        }
        if self.of != Of::Sum {
            self.squares.drop_first(group_count);
            self.counts.drain(..group_count);
        }
        Ok(made)
    }

    fn bytes(&self) -> usize {
        self.sums.bytes()
            + self.others.bytes()
            + self.squares.bytes()
            + self.counts.capacity() * size_of::<u64>()
    }
}

/// The sum or the deviations of all values, in a type of floats.
pub(crate) fn float_sum(
    aggregate: Aggregate,
    data_type: &ArrowType,
    values: &ArrayRef,
) -> DataFusionResult<ScalarValue> {
    let of = match values.data_type() {
        _ if aggregate == Aggregate::Sum => Of::Sum,
        ArrowType::Struct(_) => Of::Pairs,
        _ => Of::Deviations,
    };
    let result = if *data_type == ArrowType::Float32 { DataType::Float32 } else { DataType::Float64 };
    let mut totals = Totals::new(of, result);
    totals.resize(1);
    totals.add_array(values, |_| 0, None)?;
    totals.finish();
    ScalarValue::try_from_array(&totals.results(1)?, 0)
}

/// The one argument of an aggregate.
fn argument(values: &[ArrayRef]) -> DataFusionResult<&ArrayRef> {
    values.first().ok_or_else(|| lacking("argument"))
}

fn lacking(what: &str) -> DataFusionError {
    to_datafusion(Error::internal(format!("a sum of floats lacks its {what}")))
}

/// Of all rows, which are one group.
#[derive(Debug)]
struct Whole(Totals);

impl Accumulator for Whole {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let array = argument(values)?;
        match array.as_primitive_opt::<Float64Type>() {
            Some(floats) if self.0.of == Of::Sum && floats.null_count() == 0 => {
                self.0.sums.add_all(0, floats.values());
                Ok(())
            }
            _ => self.0.add_array(array, |_| 0, None),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        self.0.finish();
        Ok(vec![ScalarValue::try_from_array(&self.0.states(1), 0)?])
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.0.finish();
        ScalarValue::try_from_array(&self.0.results(1)?, 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.0.bytes()
    }
}

impl GroupsAccumulator for Totals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> DataFusionResult<()> {
        let array = argument(values)?;
        assert_eq!(array.len(), group_indices.len(), "a group for every value");
        self.resize(group_count);
        self.add_array(array, |row| group_indices[row], filter)
    }

    fn evaluate(&mut self, emit: EmitTo) -> DataFusionResult<ArrayRef> {
        self.take(emit, Self::results)
    }

    fn state(&mut self, emit: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        Ok(vec![self.take(emit, |totals, group_count| Ok(totals.states(group_count)))?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> DataFusionResult<()> {
        GroupsAccumulator::update_batch(self, values, group_indices, None, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let array = argument(values)?;
        let mut rows = Self::new(self.of, DataType::Bytea);
        rows.resize(array.len());
        rows.add_array(array, |row| row, filter)?;
        rows.finish();
        Ok(vec![rows.states(array.len())])
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.bytes()
    }
}
